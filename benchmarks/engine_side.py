"""One side of the engine benchmark: a process that makes one update whenever it is told to.

`python benchmarks/engine_side.py isocompute|trl`, started by `benchmarks/engine.py`. It reads
JSON lines: a case, then "step" as often as wanted, then the next case; an empty line ends it.
Each side runs in its own Python, because trainers pin their own versions.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from isocompute.allocation import Allocation
from isocompute.engines.local.policy import base_folder
from isocompute.problems import ProblemSet, load_problems
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

# Small enough that the weights stay what they were: every update is the same work.
LEARNING_RATE = 1e-9
NEVER = 1_000_000


def spec_of(case: dict[str, Any], engine: str) -> RunSpec:
    """What both sides train: the Easy recipe at temperature 1."""
    problems: ProblemSet = load_problems(Path(case["problems"]))
    recipe = Recipe.for_difficulty("easy", temperature=1.0, learning_rate=LEARNING_RATE)
    allocation = Allocation(
        problems_per_batch=case["problems_per_batch"],
        rollouts_per_problem=case["rollouts_per_problem"], steps=NEVER,
    )  # fmt: skip
    return RunSpec(
        engine=engine, allocation=allocation, recipe=recipe, train=problems,
        validation={"none": problems}, seed=0, engine_options={"model": case["model"]},
    )  # fmt: skip


def say(**values: Any) -> None:
    print(json.dumps(values), file=OUT, flush=True)


def requests() -> Iterator[str]:
    for line in sys.stdin:
        if not line.strip():
            return
        yield line.strip()


# isocompute ------------------------------------------------------------------------------


class Stopwatch:
    """CPU seconds inside functions, by name; a function inside another is taken off it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.inside: list[str] = []
        self.since = 0.0

    def _turn(self) -> None:
        now = time.process_time()
        if self.inside:
            self.spent[self.inside[-1]] += now - self.since
        self.since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens inside as `name`."""
        self._turn()
        self.inside.append(name)
        try:
            yield
        finally:
            self._turn()
            self.inside.pop()

    def watch(self, owner: Any, function: str, name: str | Callable[[], str]) -> None:
        """Time every call of a function."""
        inner: Callable[..., Any] = getattr(owner, function)

        def outer(*args: Any, **options: Any) -> Any:
            with self.part(name if isinstance(name, str) else name()):
                return inner(*args, **options)

        setattr(owner, function, outer)


class LastSink:
    """Keeps the last record and drops the rest."""

    wants_checkpoint = False

    def step(self, record: Any) -> None:
        """Take a record."""
        self.record = record


def isocompute_side() -> None:
    """Updates of the embedded engine."""
    from isocompute.engines.local import engine
    from isocompute.engines.local.model import Transformer
    from isocompute.engines.local.optimizer import FlatAdamW
    from isocompute.engines.local.policy import Policy

    watch = Stopwatch()
    counts: dict[str, float] = {}
    watch.watch(engine, "sample", "sampling")

    def whose() -> str:
        return "forward" if torch.is_grad_enabled() else "base model"

    watch.watch(Transformer, "response_logprobs", whose)
    watch.watch(torch.Tensor, "backward", "backward")
    watch.watch(Policy, "rewards", "verifier")
    watch.watch(FlatAdamW, "step", "optimiser")
    drawn = engine.sample

    def counting(*args: Any, **options: Any) -> Any:
        samples = drawn(*args, **options)
        counts["distinct"] = len(samples.count_N) / int(samples.count_N.sum())
        counts["tokens"] = samples.tokens / int(samples.count_N.sum())
        counts["entropy"] = samples.entropy
        return samples

    engine.sample = counting  # type: ignore[assignment]
    run: Any = None
    for line in requests():
        if line == "count":
            say(gigaflop=operations(run.update) / 1e9)
            continue
        if line != "step":
            run = engine._Run(spec_of(json.loads(line), "local"), LastSink())  # type: ignore[arg-type]
            say(ready=True, matmul=matmul_speed(),
                parameters=sum(p.numel() for p in run.policy.model.parameters()))  # fmt: skip
            continue
        watch.spent.clear()
        started, used = time.perf_counter(), time.process_time()
        run.update()
        wall, cpu = time.perf_counter() - started, time.process_time() - used
        health = run.sink.record.health
        say(wall_s=wall, cpu_s=cpu, parts=dict(watch.spent), memory=peak_memory(), **counts,
            score=health["reward"], mixed=1 - health["zero_variance_share"],
            grad_norm=health["grad_norm"])  # fmt: skip


def operations(update: Callable[[], None]) -> int:
    """Floating-point operations of the matrix products in one update, as executed."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        update()
    return int(counter.get_total_flops())


def matmul_speed(size: int = 1024, repeats: int = 5) -> float:
    """Billions of operations per second of a large matrix product, best of a few."""
    a, b = torch.randn(2, size, size)
    best = math.inf
    for _ in range(repeats):
        started = time.process_time()
        torch.mm(a, b)
        best = min(best, time.process_time() - started)
    return 2 * size**3 / best / 1e9


# TRL -------------------------------------------------------------------------------------


class CaseEndedError(Exception):
    """Another case is asked for."""


class TrlCase:
    """GRPOTrainer with the settings that the TRL engine gives it, one update at a time."""

    def __init__(self, case: dict[str, Any], lines: Iterator[str], folder: str) -> None:
        import datasets
        import transformers
        import trl

        from isocompute.engines.trl.options import TrlOptions, render_config
        from isocompute.verifiers import load_verifier

        spec = spec_of(case, "trl")
        self.lines, self.following = lines, ""
        self.verifier = load_verifier(spec.train.verifier)
        self.tokens = 0.0
        model = base_folder(case["model"])
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, padding_side="left")
        if tokenizer.eos_token is None:
            tokenizer.eos_token = tokenizer.pad_token  # TRL wants the word; nothing says it
        settings = trl.GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False,
            model_init_kwargs={"dtype": "float32"}, **render_config(spec, TrlOptions.of(spec)),
        )  # fmt: skip
        rows = [{"prompt": p.prompt, "answer": p.answer} for p in spec.train.problems]
        self.trainer = trl.GRPOTrainer(
            model=str(model), reward_funcs=self.judge, args=settings, processing_class=tokenizer,
            train_dataset=datasets.Dataset.from_list(rows),
        )  # fmt: skip
        self.trainer.remove_callback(transformers.PrinterCallback)
        case_of = self

        class Turns(transformers.TrainerCallback):  # type: ignore[misc]
            """Waits for its turn before each update, and says how long it took."""

            def on_step_begin(self, *_: Any, **__: Any) -> None:
                case_of.following = next(lines, "")
                if case_of.following != "step":
                    raise CaseEndedError
                self.started, self.used = time.perf_counter(), time.process_time()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                wall = time.perf_counter() - self.started
                cpu = time.process_time() - self.used
                say(wall_s=wall, cpu_s=cpu, memory=peak_memory(), tokens=case_of.tokens)

        self.trainer.add_callback(Turns())
        say(ready=True, trl=trl.__version__, transformers=transformers.__version__)

    __name__ = "judge"  # TRL names a reward by it

    def judge(
        self, completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any
    ) -> list[float | None]:
        """Rewards; equal responses to equal answers are judged once, as on our side."""
        self.tokens = sum(map(len, completion_ids)) / len(completion_ids)
        known: dict[tuple[str, str], float | None] = {}
        for key in zip(completions, answer, strict=True):
            if key not in known:
                known[key] = self.verifier(*key).reward
        return [known[key] for key in zip(completions, answer, strict=True)]

    def run(self) -> str:
        """Updates as they are asked for; returns the line that ended it."""
        with suppress(CaseEndedError):
            self.trainer.train()
        return self.following


def trl_side() -> None:
    """Updates of TRL's GRPOTrainer."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    lines = requests()
    line = next(lines, "")
    while line:
        with tempfile.TemporaryDirectory() as folder:
            line = TrlCase(json.loads(line), lines, folder).run()


def peak_memory() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")  # trainers print; their lines are not ours
    os.dup2(2, 1)
    torch.set_num_threads(1)
    {"isocompute": isocompute_side, "trl": trl_side}[sys.argv[1]]()
