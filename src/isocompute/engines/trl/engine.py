"""The TRL engine: GRPOTrainer in a process of its own, its outcomes streamed into the store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from isocompute.engines.base import EvaluationRecord, Sink, StepRecord, Unjudged
from isocompute.engines.bundle import portable_name, write_bundle
from isocompute.engines.jobs import check_module, guarded, tail_of
from isocompute.engines.options import half_weights
from isocompute.engines.trl.options import (
    TrlOptions,
    check_spec,
    render_config,
    training_order,
)
from isocompute.errors import RunError
from isocompute.problems import ProblemSet
from isocompute.study.spec import RunSpec
from isocompute.verifiers import require_verifier

_POSITION = "trl.json"
# What a checkpoint needs of a Trainer's folder. Not kept: training_args.bin (a pickle that would
# run code) and rng_state.pth (every update seeds itself).
_KEPT = ("model.safetensors", "config.json", "generation_config.json", "optimizer.pt",
         "scheduler.pt", "trainer_state.json", "model.safetensors.index.json")  # fmt: skip
_PROGRAM = Path(__file__).with_name("program.py")


class TrlEngine:
    """Trains any Hugging Face causal language model with TRL's GRPOTrainer."""

    name = "trl"
    revision = 2  # of the order of problems

    def check(self, spec: RunSpec) -> None:
        """Refuse what TRL cannot train as asked.

        Raises:
            InputError: names the knob, its value, and what TRL offers.
        """
        options = TrlOptions.of(spec)
        check_spec(spec)
        render_config(spec, options)
        for problems in (spec.train, *spec.validation.values()):
            require_verifier(problems.verifier)

    def check_installed(self, spec: RunSpec) -> None:
        """Ask the Python of a run whether it has TRL.

        Raises:
            NotInstalledError: if it has not.
        """
        check_module("trl", TrlOptions.of(spec).python or sys.executable)

    def cautions(self, spec: RunSpec) -> list[str]:
        """Of weights that lose what they learn."""
        init = TrlOptions.of(spec).overrides.get("model_init_kwargs")
        precision = init.get("dtype") if isinstance(init, Mapping) else None
        return half_weights("overrides: model_init_kwargs.dtype", precision)

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train from the start or from a checkpoint's files to the end of the allocation.

        Raises:
            RunError: if the trainer's process fails, or judges nothing.
        """
        folder = Path(tempfile.mkdtemp(prefix="isocompute-trl-"))
        try:
            _Run(spec, TrlOptions.of(spec), resume, sink, folder).train()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """One process of TRL."""

    def __init__(
        self, spec: RunSpec, options: TrlOptions, resume: Path | None, sink: Sink, folder: Path
    ) -> None:
        self.spec, self.options, self.sink, self.folder = spec, options, sink, folder
        self.at: dict[str, Any] = {"step": 0, "tokens": 0}
        if resume is not None:
            self.at = json.loads((resume / _POSITION).read_text())
        self.resume = resume
        self.log = folder / "trainer.log"
        self.lost: list[str] = []
        self.recorded = 0

    def train(self) -> None:
        if self.at["step"] >= self.spec.allocation.steps:
            return
        with self._process() as (process, events, answers):
            for line in events:
                event = json.loads(line)
                reply = getattr(self, f"_on_{event['kind']}")(event)
                answers.write(json.dumps(reply or {}) + "\n")
                answers.flush()
            code = process.wait()
        if code != 0:
            raise RunError(
                f"TRL must end with exit code 0, but gave {code} after step {self.at['step']} of "
                f"{self.spec.allocation.steps}: {tail_of(self.log)}"
            )
        if self.lost and not self.recorded:
            raise RunError(
                f"at least one evaluation must be judged in full, but {self.lost[0]}; correct the "
                "verifier or the answers."
            )

    @contextlib.contextmanager
    def _process(self) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
        job = self.folder / "job.json"
        job.write_text(json.dumps(self._job()), encoding="utf-8")
        read, write = os.pipe()
        path = [str(self.folder / "rewards" / "bundle"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p),
            "OMP_NUM_THREADS": str(self.options.threads), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        python = self.options.python or sys.executable
        with self.log.open("wb") as log:
            try:
                process = subprocess.Popen(
                    [python, str(_PROGRAM), str(job), str(write)], stdin=subprocess.PIPE,
                    stdout=log, stderr=subprocess.STDOUT, pass_fds=(write,), text=True,
                    env=environment, cwd=self.folder, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                os.close(read)
                raise RunError(
                    f"TRL must start, but {python!r} gives {error.strerror}; check "
                    "engine_options.python."
                ) from error
            finally:
                os.close(write)
        assert process.stdin is not None
        try:
            with os.fdopen(read, encoding="utf-8") as events, guarded(process.pid):
                yield process, events, process.stdin
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _job(self) -> dict[str, Any]:
        spec, options = self.spec, self.options
        write_bundle((spec.train, *spec.validation.values()), self.folder / "rewards")
        allocation = spec.allocation
        trained = self.at["step"] > 0
        if trained:
            self._restore()
        return {
            "config": render_config(spec, options), "model": options.model_path,
            "folder": str(self.folder / "out"), "bundle": str(self.folder / "rewards"),
            "device": options.device, "threads": options.threads, "chat": options.chat,
            "processes": options.processes,
            "train": _rows(spec.train, "train"),
            "order": training_order(
                len(spec.train), allocation.problems_per_batch, allocation.steps, spec.seed
            ).tolist(),
            "sets": {name: _rows(problems, name)
                     for name, problems in sorted(spec.validation.items())},
            "start": self.at["step"], "tokens": self.at["tokens"],
            "evaluated": self.resume is not None,
            "resume": str(self.folder / "resume") if trained else None,
        }  # fmt: skip

    def _restore(self) -> None:
        """The checkpoint with the limits of this budget: TRL reads max_steps from it."""
        assert self.resume is not None
        target = self.folder / "resume"
        shutil.copytree(self.resume, target)
        path = target / "trainer_state.json"
        state = json.loads(path.read_text())
        state["max_steps"] = self.spec.allocation.steps
        path.write_text(json.dumps(state))

    def _on_step(self, event: dict[str, Any]) -> dict[str, Any]:
        allocation, step = self.spec.allocation, int(event["step"])
        n = allocation.rollouts_per_problem
        if set(event["samples"]) != {n} or len(event["samples"]) != allocation.problems_per_batch:
            raise RunError(
                f"step {step} must have {allocation.problems_per_batch} problems with {n} rollouts "
                f"each, but TRL trained on {len(event['samples'])} with "
                f"{sorted(set(event['samples']))}; use TRL 1.16, which was tested."
            )
        order = np.argsort(event["problems"])
        self.at = {"step": step, "tokens": event["tokens"]}
        self.sink.step(StepRecord(
            step=step, rollouts=step * allocation.batch_size, tokens=event["tokens"],
            problem_Q=np.array(event["problems"], np.int64)[order],
            successes_Q=np.array(event["successes"], np.int64)[order], samples=n,
            health={name: float(value) for name, value in event["health"].items()},
            wall_s=event["wall_s"], unjudged=[Unjudged(**row) for row in event["unjudged"]],
        ))  # fmt: skip
        evaluate = self.spec.is_evaluated(step)
        last = step == allocation.steps
        return {"evaluate": evaluate, "save": evaluate or last or self.sink.wants_checkpoint}

    def _on_evaluation(self, event: dict[str, Any]) -> None:
        k, name = self.spec.evaluation_samples, event["problem_set"]
        if event["failed"]:
            # a failed verifier is no wrong answer: the evaluation is missing, not lower
            self.lost.append(
                f"the verifier failed on {event['failed']} samples of {name!r} "
                f"({event['unjudged'][0]['message']})"
            )
            return
        if set(event["samples"]) != {k}:
            raise RunError(
                f"an evaluation must have {k} samples per problem, but step {event['step']} has "
                f"{min(event['samples'])} to {max(event['samples'])} on {name!r}; use TRL "
                "1.16, which was tested."
            )
        self.recorded += 1
        self.sink.evaluation(EvaluationRecord(
            step=event["step"], rollouts=event["step"] * self.spec.allocation.batch_size,
            tokens=event["tokens"], problem_set=name, samples=k,
            successes_P=np.array(event["successes"], np.int64),
            sampled_tokens=event["sampled_tokens"], wall_s=event["wall_s"],
        ))  # fmt: skip

    def _on_checkpoint(self, event: dict[str, Any]) -> None:
        source = Path(event["path"])
        with self.sink.checkpoint(event["step"]) as folder:
            for name in sorted(p.name for p in source.iterdir()):
                if name in _KEPT or (name.startswith("model-") and name.endswith(".safetensors")):
                    shutil.move(str(source / name), str(folder / name))
            _strip_history(folder / "trainer_state.json")
            (folder / _POSITION).write_text(json.dumps(
                {"step": event["step"], "tokens": event["tokens"]}
            ))  # fmt: skip
        shutil.rmtree(source, ignore_errors=True)

    def _on_end(self, event: dict[str, Any]) -> None:
        """Nothing to do: the steps that arrived say how far it came."""


def _strip_history(path: Path) -> None:
    """Take the log out of a Trainer's state: it holds clock times, and the store has it all."""
    if path.is_file():
        state = json.loads(path.read_text())
        state["log_history"] = []
        path.write_text(json.dumps(state, sort_keys=True))


def _rows(problems: ProblemSet, name: str) -> list[dict[str, Any]]:
    return [
        {"prompt": p.prompt, "answer": p.answer, "index": i, "problem_set": name,
         "verifier": portable_name(problems.verifier)}
        for i, p in enumerate(problems.problems)
    ]  # fmt: skip
