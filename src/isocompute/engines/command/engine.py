"""One launch of a command for one run, and its log handed over once it has ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.allocation import evaluation_index
from isocompute.engines.base import EvaluationRecord, Sink, StepRecord
from isocompute.engines.command.kept import OF_ROWS, keep_rows, put_aside
from isocompute.engines.command.options import (
    FILL_IN,
    PLACE,
    CommandOptions,
    check_spec,
    placeholders,
)
from isocompute.engines.command.read import (
    evaluated_s,
    last_of,
    nothing_measured,
    read_run,
    scores_of,
    seconds_of,
    tokens_of,
)
from isocompute.engines.command.tail import Tail
from isocompute.engines.jobs import LocalJob, wait_until
from isocompute.errors import InputError, NotInstalledError, RunError
from isocompute.importers.values.imported import ImportedRun
from isocompute.study.spec import RunSpec

_REFERENCE = "command.json"
# Between two looks at a growing log: one costs under a millisecond, and nobody asks sooner.
_LOOK_S = 2.0


class CommandEngine:
    """Trains with a command, and reads the log that it leaves."""

    name = "command"
    whole_machine = True  # of a trainer that nobody here has heard of

    def check(self, spec: RunSpec) -> None:
        """Refuse a command that would not train as the study asks.

        Raises:
            InputError: names the placeholder or the word of the recipe, and the cure.
        """
        check_spec(spec, CommandOptions.of(spec))

    def check_installed(self, spec: RunSpec) -> None:
        """Refuse to start what `design` left open.

        Raises:
            NotInstalledError: names the option.
        """
        if name := CommandOptions.of(spec).unfilled:
            what = ("the program and arguments of your trainer" if name == "command" else
                    "the arguments with which it goes on in its folder, [] if it does so by itself")
            raise NotInstalledError(
                f"engine_options.{name} must be filled in, but still holds {FILL_IN}; put {what} "
                "there (docs/howto/own-trainer.md)."
            )

    def goes_on(self, spec: RunSpec) -> bool:
        """Whether a run that was stopped continues: an adaptive sweep trains in slices."""
        return CommandOptions.of(spec).resume is not None

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Run the command to its end, then hand over what its log says.

        Raises:
            RunError: if the command fails.
            InputError: if it trained something else than was asked: another try would as well.
        """
        _Attempt(spec, CommandOptions.of(spec), resume, sink).run()


class _Attempt:
    """One launch of the command for one run."""

    def __init__(
        self, spec: RunSpec, options: CommandOptions, resume: Path | None, sink: Sink
    ) -> None:
        self.spec, self.options, self.sink = spec, options, sink
        self.at: dict[str, Any] = {"step": 0, "tokens": 0, "grid": -1, "folder": None, "map": {},
                                   "said": []}  # fmt: skip
        if resume is not None:
            self.at |= json.loads((resume / _REFERENCE).read_text())
        self.home = Path(options.folder).absolute() / spec.hash
        self.attempt = 0
        while (self.home / f"attempt-{self.attempt}.log").exists():
            self.attempt += 1
        # a run of another study may have left a folder: only one's own is gone on with
        self.again = options.resume is not None and self.at["folder"] is not None
        if not self.again:
            self.at["folder"] = f"run-{self.attempt}"
        self.folder = self.home / self.at["folder"]

    def run(self) -> None:
        if self.at["step"] >= self.spec.allocation.steps:
            return
        if self.at["step"] and self.options.resume is None:
            raise InputError(
                f"a run must go on from step {self.at['step']}, but the command has no way to "
                "resume; give engine_options.resume, or train to the whole budget at once "
                "(slices: [1], a new folder for a larger budget)."
            )
        if self.at["step"] and not self.folder.is_dir():
            raise InputError(
                "a run must go on in the folder in which it trained to step "
                f"{self.at['step']}, but there is no {self.folder}; start where the study was "
                "started, or move it back, then add --retry-failed."
            )
        self._keep_log()
        self._checkpoint()  # of the folder: a trainer that is killed at once goes on in it
        job = self._launch()
        tail, look = Tail(self.folder / self.options.log, self.options.reader,
                          self.spec.allocation.steps, self.options.columns.step), 0.0  # fmt: skip
        try:
            while (code := job.poll()) is None:
                moment = time.monotonic() + self.options.poll_s
                if moment > look:
                    look = moment + _LOOK_S
                    self._tell(tail.step())
                if self.sink.wants_checkpoint:
                    self._checkpoint()  # where a stop is asked for, this raises
                wait_until(moment)
        except BaseException:
            job.stop()
            raise
        if code != 0:
            gave = f"gave {code}" if code > 0 else f"signal {-code} ended it"
            raise RunError(
                f"the command must end with exit code 0, but {gave}: {job.tail()} (log: {job.log})"
            )
        self._hand_over()

    def _launch(self) -> LocalJob:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = placeholders(self.spec, str(self.folder))
        further = self.options.resume or () if self.again else ()
        command = [PLACE.sub(lambda m: words[m[1]], text)
                   for text in (*self.options.command, *further)]  # fmt: skip
        log = self.home / f"attempt-{self.attempt}.log"
        log.with_suffix(".json").write_text(json.dumps(command, indent=1))
        return LocalJob(command, log=log, environment={}, folder=Path.cwd())

    def _tell(self, step: int) -> None:
        """Say how far the log is, and that time passes; its rows are stored at the end."""
        self.sink.reached(min(max(step, self.at["step"]), self.spec.allocation.steps))

    def _mend_log(self) -> Path | None:
        """Rows that the command wrote over are put back; the log, if it is one of rows."""
        log: Path = self.folder / self.options.log
        if self.options.reader not in OF_ROWS or not log.is_file():
            return None
        keep_rows(log, self.folder.with_suffix(".kept"))
        return log

    def _keep_log(self) -> None:
        """Put the log aside before the command starts again: it may write it anew."""
        if (log := self._mend_log()) is not None:
            put_aside(log, self.folder.with_suffix(".kept"))

    def _checkpoint(self) -> None:
        with self.sink.checkpoint(self.at["step"]) as folder:
            (folder / _REFERENCE).write_text(json.dumps(self.at))

    def _hand_over(self) -> None:
        """What the log says.

        Raises:
            InputError: it cannot be read, or says nothing of the study's validation sets; what
                was trained is kept, and is read again under another map.
        """
        self._mend_log()
        self._checkpoint()  # of the folder, before anything is refused
        found = read_run(self.spec, self.options, self.folder)
        scores = list(scores_of(found, self.spec, self.options.metric))
        if not scores and self.at["grid"] < 0:
            raise InputError(
                nothing_measured(found, self.spec, self.folder / self.options.log))
        self._keep_map()
        due = {step for step, *_ in scores}
        last = last_of(found)
        allocation = self.spec.allocation
        tokens = tokens_of(found)
        self._follow(scores, found)
        took, tested, seen = seconds_of(found, last), evaluated_s(found, last), self.at["step"]
        for step in range(self.at["step"], min(last, allocation.steps) + 1):
            if step > self.at["step"]:
                self.at |= {"step": step, "tokens": max(self.at["tokens"], tokens.get(step, 0))}
                none = np.zeros(0, np.int64)
                self.sink.step(StepRecord(
                    step=step, rollouts=step * allocation.batch_size, tokens=self.at["tokens"],
                    problem_Q=none, successes_Q=none, samples=allocation.rollouts_per_problem,
                    wall_s=took[step - 1] if took else 0.0,
                ))  # fmt: skip
            index = evaluation_index(
                step * allocation.batch_size, per_octave=self.spec.evaluations_per_octave,
                first=self.spec.first_evaluation,
            )
            # One for each point of the common grid, and that of the end.
            if step in due and (index > self.at["grid"] or step == self.spec.last_step):
                self.at["grid"] = index
                of_step = [one[1:] for one in scores if one[0] == step]
                after = self.at["said"][-1][0] if self.at["said"] else -1
                self.at["said"].append([step, self.at["tokens"], index, _sums(of_step),
                                        _rows(found, after, step)])  # fmt: skip
                wall_s, seen = tested(seen, step) / len(of_step), step
                for one in of_step:
                    self._evaluation(step, wall_s, *one)
        self._checkpoint()

    def _follow(self, scores: list[Any], found: ImportedRun) -> None:
        """Take back what a trainer did anew, that went on from before where its slice had ended.

        Its log tells other rows then than it told; one that tells none of a step proves nothing.
        A second score of the slice's last step alone is of a trainer that scores where it goes
        on: the first stands.
        """
        now = {step: _sums([one[1:] for one in scores if one[0] == step]) for step, *_ in scores}
        said, end = self.at["said"], self.at["step"]
        after = -1
        for i, (step, tokens, grid, sums, rows) in enumerate(said):
            rows_now, of_now = _rows(found, after, step), now.get(step, sums)
            if (None not in (rows, rows_now) and rows_now != rows) or (
                of_now != sums and step != end
            ):
                back, tokens, grid, *_ = said[i - 1] if i else (-1, 0, -1)
                self.sink.rewind(back)
                self.at |= {"step": max(back, 0), "tokens": tokens, "grid": grid, "said": said[:i]}
                return
            said[i] = [step, tokens, grid, of_now, rows]
            after = step

    def _keep_map(self) -> None:
        """Hold a run to the map by which its first scores were read."""
        given = dict(self.options.map or {})
        if self.at["grid"] >= 0 and given != self.at["map"]:
            raise InputError(
                f"one run must be read under one map, but its scores up to step {self.at['step']} "
                f"were read under engine_options.map {self.at['map']}, and now it is {given}; put "
                "it back, or train in another folder (-o)."
            )
        self.at["map"] = given

    def _evaluation(
        self, step: int, wall_s: float, name: str, samples: int, successes_P: Any
    ) -> None:
        self.sink.evaluation(EvaluationRecord(
            step=step, rollouts=step * self.spec.allocation.batch_size, tokens=self.at["tokens"],
            problem_set=name, samples=samples, successes_P=successes_P,
            sampled_rollouts=samples * len(successes_P), wall_s=wall_s,
        ))  # fmt: skip


def _sums(of_step: list[Any]) -> list[list[Any]]:
    """Successes of an evaluation, by validation set, as JSON keeps them."""
    return [[name, samples, int(np.sum(successes_P))] for name, samples, successes_P in of_step]


def _rows(found: ImportedRun, after: int, step: int) -> float | None:
    """All that a log says of the updates after one step up to another, but for the score there."""
    parts = [s.score_K[(s.step_K > after) & (s.step_K < step + (s.split == "train"))]
             for s in found.series]  # fmt: skip
    return float(np.concatenate(parts).sum()) if sum(map(len, parts)) else None
