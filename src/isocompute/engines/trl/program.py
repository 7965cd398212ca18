"""Run by the Python that has TRL: one training run, told to the engine line by line.

    python program.py JOB.json EVENTS_FD

Events go to a file descriptor as JSON lines, one for every update, evaluation and checkpoint;
the engine answers each on standard input: {"save": ..., "stop": ...}. This file imports nothing
of isocompute except the verifiers in the bundle beside the job.

Of several processes the first owns the channel and starts the others, as `accelerate launch` would;
they train one batch together, and what each has judged is gathered before it is told.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

JOB: dict[str, Any] = {}
# Independent streams of random numbers: of an update, of an evaluation.
_TRAINING, _EVALUATION = 0, 1
HEALTH = {
    "loss": "loss", "grad_norm": "grad_norm", "entropy": "entropy", "kl": "kl",
    "completions/mean_length": "length_tokens", "completions/clipped_ratio": "clipped_share",
    "frac_reward_zero_std": "zero_variance_share", "clip_ratio/region_mean": "ratio_clipped_share",
    "cispo_clip_ratio": "ratio_clipped_share",
    "sampling/importance_sampling_ratio/mean": "importance_ratio",
}  # fmt: skip


def rank() -> int:
    """Of this process among those that train together; 0 for one alone."""
    return int(os.environ.get("RANK", "0"))


def together(value: Any) -> list[Any]:
    """The value of every process, in the order of their ranks, in each of them."""
    if JOB["processes"] == 1:
        return [value]
    from accelerate.utils import gather_object

    gathered: list[Any] = gather_object([value])
    return gathered


class Channel:
    """Events out, answers in; of several processes the first speaks, and all hear the answer."""

    def __init__(self, descriptor: int | None) -> None:
        self.out = None if descriptor is None else os.fdopen(descriptor, "w", encoding="utf-8")

    def send(self, kind: str, **values: Any) -> dict[str, Any]:
        """One event; returns the engine's answer, and ends the process if it says so."""
        answer: dict[str, Any] = {}
        if self.out is not None:
            self.out.write(json.dumps({"kind": kind, **values}) + "\n")
            self.out.flush()
            line = sys.stdin.readline()
            answer = json.loads(line) if line else {"stop": True}
        answer = together(answer)[0]
        if answer.get("stop"):
            if self.out is not None:
                self.out.close()
            os._exit(0)  # the engine knows why; nothing of ours is left to be written
        return answer


class Outcomes:
    """Rewards per problem of what was judged since the last look; None: the verifier failed."""

    def __init__(self) -> None:
        self.rewards: dict[tuple[str, int], list[float | None]] = {}
        self.tokens = 0
        self.reasons: dict[int, tuple[str, str]] = {}  # by problem: why, of which response

    def add(
        self, name: str, index: int, reward: float | None, tokens: int, reason: tuple[str, str]
    ) -> None:
        """Take one response; `reason` is read where it has no reward."""
        self.rewards.setdefault((name, index), []).append(reward)
        self.tokens += tokens
        if reward is None:
            self.reasons.setdefault(index, reason)

    def cut(self, samples: int) -> None:
        """Keep so many of each problem: processes draw some twice to fill their last batch."""
        for rewards in self.rewards.values():
            del rewards[samples:]

    @property
    def samples(self) -> int:
        """Responses, judged or not."""
        return sum(len(rewards) for rewards in self.rewards.values())

    @property
    def failed(self) -> int:
        """Those that the verifier failed on."""
        return sum(rewards.count(None) for rewards in self.rewards.values())

    @property
    def counts(self) -> dict[tuple[str, int], list[int]]:
        """Responses, successes and failures of the verifier, by set and problem."""
        return {
            key: [len(rewards), sum(int(r or 0) for r in rewards), rewards.count(None)]
            for key, rewards in self.rewards.items()
        }

    @property
    def unjudged(self) -> list[dict[str, Any]]:
        """Values of `engines.base.Unjudged`, by problem of the one set that was judged."""
        failed = {index: tally[2] for (_, index), tally in self.counts.items() if tally[2]}
        return [
            {"problem": index, "rollouts": failed[index], "message": self.reasons[index][0],
             "response": self.reasons[index][1][:300]}
            for index in sorted(failed)
        ]  # fmt: skip

    def take(self) -> Outcomes:
        """What every process has, and a fresh start for this one."""
        taken = Outcomes()
        for rewards, tokens, reasons in together((self.rewards, self.tokens, self.reasons)):
            for key, values in rewards.items():
                taken.rewards.setdefault(key, []).extend(values)
            taken.tokens += tokens
            taken.reasons = {**reasons, **taken.reasons}
        self.__init__()  # type: ignore[misc]
        return taken


def main() -> None:
    """Train as the job says."""
    JOB.update(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    channel = Channel(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    if JOB["processes"] > 1 and "RANK" not in os.environ:
        start_others()
    os.environ["OMP_NUM_THREADS"] = str(JOB["threads"])
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(JOB["threads"])
    run(channel)


def start_others() -> None:
    """The other processes, in this one's process group: they are killed with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size = str(JOB["processes"])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": size,
                   "LOCAL_WORLD_SIZE": size, "RANK": "0", "LOCAL_RANK": "0"}  # fmt: skip
    for number in range(1, JOB["processes"]):
        subprocess.Popen(
            [sys.executable, __file__, sys.argv[1]], stdin=subprocess.DEVNULL,
            env={**os.environ, "RANK": str(number), "LOCAL_RANK": str(number)},
        )  # fmt: skip


def run(channel: Channel) -> None:
    """Model, data and trainer of the job; train to the end."""
    import datasets
    import torch
    import transformers
    import trl

    datasets.disable_progress_bars()
    cuda = JOB["device"] == "cuda" or (JOB["device"] == "auto" and torch.cuda.is_available())
    tokenizer = transformers.AutoTokenizer.from_pretrained(JOB["model"], padding_side="left")
    arguments = {"bf16": cuda, "gradient_checkpointing": cuda, **JOB["config"]}
    # In bfloat16 weights would keep 1% of what an update of 1e-6 changes.
    arguments["model_init_kwargs"] = {
        "dtype": "float32", **(arguments.get("model_init_kwargs") or {}),
    }  # fmt: skip
    if tokenizer.eos_token is None:
        # Answers of fixed length: TRL needs a word for the end, which then must never come
        # early, and reaching the limit is no fault.
        tokenizer.eos_token = tokenizer.pad_token
        least = "min_tokens" if arguments.get("use_vllm") else "min_new_tokens"
        arguments["generation_kwargs"] = {least: arguments["max_completion_length"]}
        del HEALTH["completions/clipped_ratio"]
    chat = tokenizer.chat_template is not None if JOB["chat"] is None else JOB["chat"]
    sets = {name: dataset_of(rows, chat) for name, rows in JOB["sets"].items()}
    train = dataset_of(JOB["train"], chat).select(JOB["order"])
    check_room(tokenizer, arguments, chat, [train, *sets.values()])
    settings = trl.GRPOConfig(output_dir=JOB["folder"], use_cpu=not cuda, **arguments)
    trainer = trainer_class(trl)(
        model=JOB["model"], reward_funcs=judge, args=settings, train_dataset=train,
        eval_dataset=sets, processing_class=tokenizer,
    )  # fmt: skip
    reporter = reporter_class(transformers)(trainer, channel)
    trainer.add_callback(reporter)
    judge.reporter = reporter  # type: ignore[attr-defined]
    trainer.train(resume_from_checkpoint=JOB["resume"])
    channel.send("end", step=trainer.state.global_step)


def dataset_of(rows: list[dict[str, Any]], chat: bool) -> Any:
    """Prompts with what the reward needs; as conversations where the model is a chat model."""
    import datasets

    for row in rows:
        if chat:
            row["prompt"] = [{"role": "user", "content": row["prompt"]}]
    return datasets.Dataset.from_list(rows)


def check_room(tokenizer: Any, arguments: dict[str, Any], chat: bool, sets: list[Any]) -> None:
    """VLLM cuts a response where its own limit is reached, and says nothing."""
    limit = arguments.get("vllm_max_model_length")
    if limit is None:
        return
    written = [
        tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False) if chat else p
        for prompts in sets for p in prompts["prompt"]
    ]  # fmt: skip
    longest = max(len(tokenizer(text, add_special_tokens=not chat).input_ids) for text in written)
    needed = longest + arguments["max_completion_length"]
    if limit < needed:
        sys.exit(
            f"vllm_max_model_length must be at least {needed}, the longest prompt and a response, "
            f"but got {limit}; raise it."
        )


def trainer_class(trl: Any) -> Any:
    """GRPOTrainer whose first update has a learning rate."""
    import torch

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc]
        def create_scheduler(self, _steps: int = 0, optimizer: Any = None, **_: Any) -> Any:
            """Step i of the warm-up has i / warmup_steps; TRL's own gives the first step 0."""
            warmup = JOB["config"]["warmup_steps"]
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda done: min(1.0, (done + 1) / max(1, warmup))
            )
            return self.lr_scheduler

    return Trainer


_VERIFIERS: dict[str, Any] = {}


def judge(
    completions: list[Any], completion_ids: list[Any], answer: list[str], index: list[int],
    problem_set: list[str], verifier: list[str], **_: Any,
) -> list[float | None]:
    """Rewards; None where the verifier failed, which TRL leaves out of the group."""
    from isocompute.verifiers import load_verifier

    reporter = judge.reporter  # type: ignore[attr-defined]
    outcomes = reporter.training if reporter.trainer.model.training else reporter.evaluation
    rewards: list[float | None] = []
    known: dict[tuple[str, str, str], tuple[float | None, str]] = {}
    for completion, ids, right, i, name, spec in zip(
        completions, completion_ids, answer, index, problem_set, verifier, strict=True
    ):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        if spec not in _VERIFIERS:
            _VERIFIERS[spec] = load_verifier(spec, folder=JOB["bundle"])
        key = (spec, text, right)
        if key not in known:
            outcome = _VERIFIERS[spec](text, right)
            reward = None if outcome.reward is None else float(outcome.reward)
            known[key] = reward, outcome.error or "no reason given"
        reward, message = known[key]
        rewards.append(reward)
        outcomes.add(name, i, reward, len(ids), (message, text))
    return rewards


def reporter_class(transformers: Any) -> Any:
    """The callback that seeds, evaluates on the grid, reports and saves."""

    class Reporter(transformers.TrainerCallback):  # type: ignore[misc]
        def __init__(self, trainer: Any, channel: Channel) -> None:
            self.trainer, self.channel = trainer, channel
            self.training, self.evaluation = Outcomes(), Outcomes()
            self.tokens = JOB["tokens"]
            self.started = time.monotonic()

        def seed(self, stream: int, step: int) -> None:
            """Every update and evaluation has its own stream: a resumed run needs no state."""
            import numpy as np

            words = [JOB["config"]["seed"], stream, step]
            if JOB["processes"] > 1:
                words.append(rank())  # or all would draw the same responses
            key = np.random.SeedSequence(words)
            transformers.set_seed(int(key.generate_state(1)[0]))

        def evaluate(self, step: int) -> None:
            self.seed(_EVALUATION, step)
            began = time.monotonic()
            for name in JOB["sets"]:
                self.evaluation = Outcomes()
                self.trainer.evaluate(self.trainer.eval_dataset[name], metric_key_prefix="eval")
                found = self.evaluation.take()
                found.cut(JOB["config"]["num_generations_eval"])
                size, counts = len(JOB["sets"][name]), found.counts
                drawn = [counts.get((name, i), [0, 0, 0]) for i in range(size)]
                self.channel.send(
                    "evaluation", step=step, tokens=self.tokens, problem_set=name,
                    samples=[t[0] for t in drawn], successes=[t[1] for t in drawn],
                    failed=found.failed, unjudged=found.unjudged,
                    sampled_tokens=found.tokens, wall_s=time.monotonic() - began,
                )  # fmt: skip
            self.evaluation = Outcomes()
            self.started = time.monotonic()

        def on_train_begin(self, args: Any, _state: Any, _control: Any, **_: Any) -> None:
            if not JOB["evaluated"]:
                self.evaluate(0)
                folder = os.path.join(args.output_dir, "start")
                self.trainer.save_model(folder)
                self.channel.send("checkpoint", step=0, tokens=0, path=folder)
            self.started = time.monotonic()

        def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            self.seed(_TRAINING, state.global_step + 1)

        def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
            control.should_log = True

        def on_log(
            self, _args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any
        ) -> None:
            if "loss" not in logs or not self.training.samples:
                return
            taken = self.training.take()
            counts = taken.counts
            self.tokens += taken.tokens
            step = state.global_step
            health = {name: logs[key] for key, name in HEALTH.items() if logs.get(key) is not None}
            warmup = max(1, JOB["config"]["warmup_steps"])
            health["learning_rate"] = JOB["config"]["learning_rate"] * min(1.0, step / warmup)
            judged = max(1, taken.samples - taken.failed)
            health["reward"] = sum(t[1] for t in counts.values()) / judged
            health["verifier_error_share"] = taken.failed / taken.samples
            answer = self.channel.send(
                "step", step=step, tokens=self.tokens,
                problems=[index for _, index in counts],
                samples=[t[0] for t in counts.values()],
                successes=[t[1] for t in counts.values()],
                health=health, wall_s=time.monotonic() - self.started, unjudged=taken.unjudged,
            )  # fmt: skip
            self.started = time.monotonic()
            if answer.get("evaluate"):
                # not the trainer's own: that one would drop this step's other flags
                self.trainer.model.eval()
                self.evaluate(step)
                self.trainer.model.train()
            control.should_save = bool(answer.get("save"))

        def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            self.channel.send("checkpoint", step=state.global_step, tokens=self.tokens, path=path)

    return Reporter


if __name__ == "__main__":
    main()
