"""The verl engine: one process (or Ray job) per attempt, its logs followed into the store."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from isocompute.allocation import evaluation_index
from isocompute.engines.base import Sink
from isocompute.engines.jobs import Job, LocalJob, RayJob, wait_until
from isocompute.engines.verl.follow import Follower, Progress
from isocompute.engines.verl.options import VerlOptions, check_spec
from isocompute.engines.verl.render import override_lines, render_keys, write_files
from isocompute.errors import RunError
from isocompute.study.spec import RunSpec

_REFERENCE = "verl.json"  # in a checkpoint of ours: where verl's own checkpoint lies


class VerlEngine:
    """Trains with verl in another Python, on this machine or a Ray cluster."""

    name = "verl"

    def check(self, spec: RunSpec) -> None:
        """Refuse what verl cannot train as asked.

        Raises:
            InputError: names the knob, its value, and what verl offers.
        """
        options = VerlOptions.of(spec)
        check_spec(spec, options)
        override_lines(render_keys(spec, options, Path(options.folder).absolute() / spec.hash))

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Launch an attempt, follow it to its end.

        Raises:
            RunError: if verl fails, or ends well with weights that never moved.
        """
        _Attempt(spec, VerlOptions.of(spec), resume, sink).run()


class _Attempt:
    """One launch of verl for one run."""

    def __init__(
        self, spec: RunSpec, options: VerlOptions, resume: Path | None, sink: Sink
    ) -> None:
        self.spec, self.options, self.sink = spec, options, sink
        self.folder = Path(options.folder).absolute() / spec.hash
        at: dict[str, Any] = {"step": 0, "tokens": 0, "path": None, "grid": -1}
        if resume is not None:
            at |= json.loads((resume / _REFERENCE).read_text())
        self.resume_from: str | None = at["path"]
        self.grid_index: int = at["grid"]
        self.attempt = 0
        while (self.folder / f"attempt-{self.attempt}").exists():
            self.attempt += 1
        self.logs = self.folder / f"attempt-{self.attempt}"
        self.follower = Follower(
            spec, self.logs, step=at["step"], tokens=at["tokens"], started=resume is not None
        )
        self.moved = resume is not None
        self.committed = at["step"]

    def run(self) -> None:
        if self.follower.step >= self.spec.allocation.steps:
            return
        write_files(self.spec, self.folder)
        for name in ("validation", "rollouts"):
            (self.logs / name).mkdir(parents=True)
        job = self._launch()
        try:
            code = None
            while code is None:
                moment = time.monotonic() + self.options.poll_s
                code = job.poll()
                self._drain()
                if code is None:
                    wait_until(moment)
            self._drain()
        except BaseException:
            job.stop()
            raise
        self._finish(code, job)

    def _launch(self) -> Job:
        keys = render_keys(
            self.spec, self.options, self.folder, attempt=self.attempt,
            resume_from=self.resume_from,
        )
        command = [self.options.python, "-m", "verl.trainer.main_ppo", *override_lines(keys)]
        (self.logs / "command.json").write_text(json.dumps(command, indent=1))
        environment = {"VERL_FILE_LOGGER_PATH": str(self.logs / "metrics.jsonl")}
        log = self.logs / "console.log"
        if self.options.ray_address is not None:
            names = [f"isocompute-{self.spec.hash}-{i}" for i in range(self.attempt + 1)]
            return RayJob(
                command, address=self.options.ray_address, log=log, environment=environment,
                name=names[-1], earlier=names[:-1],
            )
        return LocalJob(command, log=log, environment=environment, folder=self.logs)

    def _drain(self) -> None:
        for progress in self.follower.poll():
            self._record(progress)
            self._checkpoint(progress.step)

    def _record(self, progress: Progress) -> None:
        if progress.update is not None:
            self.sink.step(progress.update)
            gradient = progress.update.health.get("grad_norm")
            self.moved = self.moved or gradient is None or gradient > 0
        if progress.evaluations:
            index = evaluation_index(
                progress.step * self.spec.allocation.batch_size,
                per_octave=self.spec.evaluations_per_octave, first=self.spec.first_evaluation,
            )
            if index > self.grid_index:  # one evaluation per point of the common grid
                self.grid_index = index
                for record in progress.evaluations:
                    self.sink.evaluation(record)

    def _checkpoint(self, step: int) -> None:
        """Commit at steps that verl can resume from: its own checkpoint is complete by then."""
        path = self.folder / "checkpoints" / f"global_step_{step}"
        if step > 0 and not path.is_dir():
            return
        reference = {"step": step, "tokens": self.follower.tokens, "grid": self.grid_index,
                     "path": str(path) if step else None}  # fmt: skip
        self.committed = step
        with self.sink.checkpoint(step) as folder:
            (folder / _REFERENCE).write_text(json.dumps(reference))

    def _finish(self, code: int, job: Job) -> None:
        trained, asked = self.follower.step, self.spec.allocation.steps
        if code != 0:
            raise RunError(
                f"verl must end with exit code 0, but gave {code} after {trained} of {asked} "
                f"steps: {job.tail()} (log: {self.logs / 'console.log'})"
            )
        if trained > 0 and not self.moved:
            raise RunError(
                f"weights must change in training, but every gradient norm of {trained} steps is "
                "0; check the rewards and the learning rate."
            )
        # fewer steps than asked with exit code 0 are left for the runner to judge: invalid
