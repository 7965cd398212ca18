"""The verl engine: one process (or Ray job) per attempt, its logs followed into the store."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute.allocation import evaluation_index, even_evaluations
from isocompute.engines.base import EvaluationRecord, Sink
from isocompute.engines.jobs import Job, LocalJob, RayJob, check_module, wait_until
from isocompute.engines.options import half_weights
from isocompute.engines.verl.checkpoints import Checkpoints
from isocompute.engines.verl.follow import Follower, Progress
from isocompute.engines.verl.installed import check_installed
from isocompute.engines.verl.leftovers import Leftovers
from isocompute.engines.verl.options import VerlOptions, check_spec
from isocompute.engines.verl.overrides import CRITIC_WEIGHTS, WEIGHTS, override_leaves
from isocompute.engines.verl.render import (
    override_lines,
    render_keys,
    validation_interval,
    write_files,
)
from isocompute.errors import RunError
from isocompute.study.spec import RunSpec

_REFERENCE = "verl.json"  # in a checkpoint of ours: where verl's own checkpoint lies
_ENDING_S = 20.0  # Ray's workers take some seconds to follow their driver; half was too short
_TRAINED = (0, 9)  # the release whose logs of the learning rate were seen


def python_environment(options: VerlOptions) -> dict[str, str | None]:
    """What a run's Python sees: nothing of the Python that this runs in."""
    return {"PYTHONPATH": None, "PYTHONHOME": None, **options.environment}


class VerlEngine:
    """Trains with verl in another Python, on this machine or a Ray cluster."""

    name = "verl"
    whole_machine = True  # minutes to start, and every GPU that it is given

    def check(self, spec: RunSpec) -> None:
        """Refuse what verl cannot train as asked.

        Raises:
            InputError: names the knob, its value, and what verl offers.
        """
        options = VerlOptions.of(spec)
        check_spec(spec, options)
        override_lines(render_keys(spec, options, Path(options.folder).absolute() / spec.hash))

    def check_installed(self, spec: RunSpec) -> None:
        """Ask the Python of a run whether it has verl; a Ray cluster is not asked.

        Raises:
            NotInstalledError: if it has not.
        """
        options = VerlOptions.of(spec)
        if options.ray_address is None:
            check_module("verl", options.python, python_environment(options))

    def cautions(self, spec: RunSpec) -> list[str]:
        """Of weights that lose what they learn."""
        set_to = override_leaves(VerlOptions.of(spec).overrides)
        keys = [WEIGHTS] + [CRITIC_WEIGHTS] * (spec.recipe.objective == "ppo")
        return [line for key in keys for line in half_weights(key, set_to.get(key))]

    def evaluations(self, spec: RunSpec) -> int:
        """Validations of verl, kept or not: every so many steps, and at the end."""
        steps = spec.allocation.steps
        every = validation_interval(spec, VerlOptions.of(spec))
        return even_evaluations(steps if steps == spec.last_step else steps // every * every, every)

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Launch an attempt, follow it to its end.

        Raises:
            RunError: if verl fails, or ends well with weights that never moved.
            InputError: for another release of verl than the study says, a checkpoint that lost a
                part, or a learning rate that is not the recipe's: another try ends the same.
        """
        _Attempt(spec, VerlOptions.of(spec), resume, sink).run()


class _Attempt:
    """One launch of verl for one run."""

    def __init__(
        self, spec: RunSpec, options: VerlOptions, resume: Path | None, sink: Sink
    ) -> None:
        self.spec, self.options, self.sink = spec, options, sink
        self.folder = Path(options.folder).absolute() / spec.hash
        at: dict[str, Any] = {"step": 0, "tokens": 0, "path": None, "grid": -1, "unkept": {}}
        if resume is not None:
            at |= json.loads((resume / _REFERENCE).read_text())
        self.resume_from: str | None = at["path"]
        self.grid_index: int = at["grid"]
        # by set: rollouts, tokens and seconds; without seconds, where an older version wrote it
        self.unkept: dict[str, list[Any]] = at["unkept"]
        self.checkpoints = Checkpoints(
            self.folder / "checkpoints", critic=spec.recipe.objective == "ppo"
        )
        if resume is not None and self.resume_from is not None:
            self.checkpoints.resumed_from(int(at["step"]), resume)
        self.attempt = 0
        while (self.folder / f"attempt-{self.attempt}").exists():
            self.attempt += 1
        self.logs = self.folder / f"attempt-{self.attempt}"
        self.follower = Follower(
            spec, self.logs, step=at["step"], tokens=at["tokens"], started=resume is not None,
            checks_rate=options.release >= _TRAINED, saves_in_step=options.saves_in_step,
        )  # fmt: skip
        self.moved = resume is not None

    def run(self) -> None:
        if self.follower.step >= self.spec.allocation.steps:
            return
        if self.resume_from is not None:
            self.checkpoints.check_whole(Path(self.resume_from))
        write_files(self.spec, self.folder)
        for name in ("validation", "rollouts"):
            (self.logs / name).mkdir(parents=True)
        local = self.options.ray_address is None
        leftovers = Leftovers(self.logs / "shared_memory.txt")
        if local:
            for earlier in range(self.attempt):
                Leftovers(self.folder / f"attempt-{earlier}" / "shared_memory.txt").remove()
            check_installed(self.options, self._environment, self.logs)
        job = self._launch()
        try:
            code = None
            while code is None:
                moment = time.monotonic() + self.options.poll_s
                code = job.poll()
                if isinstance(job, LocalJob) and code is None:
                    leftovers.note(job.process.pid)
                self._drain()
                if code is None:
                    wait_until(moment)
            self._drain()
        except BaseException:
            job.stop()
            raise
        finally:
            leftovers.remove(patience_s=_ENDING_S)
        self._finish(code, job)

    @property
    def _environment(self) -> dict[str, str | None]:
        """Of verl's processes."""
        log = str(self.logs / "metrics.jsonl")
        return {**python_environment(self.options), "VERL_FILE_LOGGER_PATH": log}

    def _launch(self) -> Job:
        keys = render_keys(
            self.spec, self.options, self.folder, attempt=self.attempt,
            resume_from=self.resume_from,
        )
        command = [self.options.python, "-m", "verl.trainer.main_ppo", *override_lines(keys)]
        (self.logs / "command.json").write_text(json.dumps(command, indent=1))
        log = self.logs / "console.log"
        if self.options.ray_address is not None:
            names = [f"isocompute-{self.spec.hash}-{i}" for i in range(self.attempt + 1)]
            given = {k: v for k, v in self._environment.items() if v is not None}
            return RayJob(
                command, address=self.options.ray_address, log=log, environment=given,
                name=names[-1], earlier=names[:-1],
            )
        return LocalJob(command, log=log, environment=self._environment, folder=self.logs)

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
            for record in progress.evaluations:
                if index > self.grid_index or progress.step == self.spec.last_step:
                    # one evaluation per point of the common grid, and the end's
                    self.sink.evaluation(self._with_unkept(record))
                else:
                    rollouts, tokens, *took_s = self.unkept.get(record.problem_set, (0, 0))
                    self.unkept[record.problem_set] = [
                        rollouts + record.samples * len(record.successes_P),
                        tokens + record.sampled_tokens, sum(took_s) + record.wall_s,
                    ]
            self.grid_index = max(self.grid_index, index)

    def _with_unkept(self, record: EvaluationRecord) -> EvaluationRecord:
        """The record with what validations between the grid's points drew and took.

        It was paid for, and is no part of the trainer's start.
        """
        if record.problem_set not in self.unkept:
            return record
        rollouts, tokens, *took_s = self.unkept.pop(record.problem_set)
        return replace(
            record, sampled_tokens=record.sampled_tokens + tokens,
            wall_s=record.wall_s + sum(took_s),
            sampled_rollouts=record.samples * len(record.successes_P) + rollouts,
        )

    def _checkpoint(self, step: int) -> None:
        """Commit at steps that verl can resume from: its own checkpoint is complete by then."""
        path = self.checkpoints.path(step)
        if step > 0 and not path.is_dir():
            return
        reference = {"step": step, "tokens": self.follower.tokens, "grid": self.grid_index,
                     "path": str(path) if step else None, "unkept": self.unkept}  # fmt: skip
        with self.sink.checkpoint(step) as folder:
            self.checkpoints.made(step, folder)
            (folder / _REFERENCE).write_text(json.dumps(reference))
        self.checkpoints.thin_out()

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
