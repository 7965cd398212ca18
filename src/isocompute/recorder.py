"""Record your own training loop: a file per run that every command reads.

    rec = isocompute.Recorder("runs/bp32_n64_s0", problems_per_batch=32, rollouts_per_problem=64)
    rec.log(step, score=0.41, tokens=3_100_000)

Each record is one line, written at once and never changed. A fault is reported once, in one line,
and kept in the file with its reason; training is never stopped. Only the standard library is
needed, so it runs in any trainer's Python.
"""

from __future__ import annotations

import math
import operator
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from isocompute.errors import InputError
from isocompute.journal import Journal

MARK = "recorder"  # the first key of a file's first record
VERSION = 1
ENDING = ".jsonl"

_BUSY_S = 1.0  # for another process to write its first line; twice: a rank waits that much longer

_COUNTS = {"tokens": "generated", "rollouts": "drawn"}  # by step, from the run's begin on

Outcomes = Mapping[str, Sequence[float]]


_OPEN: WeakValueDictionary[Path, Recorder] = WeakValueDictionary()  # files that this process holds


class Recorder:
    """Records the scores of one run, in a file that every command reads.

    Args:
        path: the file; `.jsonl` is added if missing. A file of the same run is continued (a
            resume); one of another run is left alone, and `NAME-2.jsonl` is written.
        problems_per_batch, rollouts_per_problem: the configuration.
        seed: the run's seed, if it has one.
        samples: samples per problem in an evaluation, the k of avg@k; None: not known.
        score_range: lowest and highest possible score.
        facts: other settings that tell runs apart, such as {"learning_rate": 1e-6, "model": "..."}.

    Raises:
        InputError: an argument that breaks a rule, before anything is trained.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        problems_per_batch: int,
        rollouts_per_problem: int,
        seed: int | None = None,
        samples: int | None = None,
        score_range: tuple[float, float] = (0.0, 1.0),
        facts: Mapping[str, object] | None = None,
    ) -> None:
        try:
            low, high = (float(end) for end in score_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(
                f"`low < high` must hold for score_range, but got {score_range!r}; correct it."
            )
        path = Path(path)
        if not path.name:
            raise InputError(f"a record needs a file's name, but got {str(path)!r}; name one.")
        path = path if path.suffix == ENDING else path.with_name(path.name + ENDING)
        self._journal = Journal(path)
        self.batch = _count("problems_per_batch", problems_per_batch) * _count(
            "rollouts_per_problem", rollouts_per_problem
        )
        self._samples = None if samples is None else _count("samples", samples)
        self._range = low, high
        self._run: dict[str, Any] = {
            "problems_per_batch": int(problems_per_batch),
            "rollouts_per_problem": int(rollouts_per_problem),
            "seed": None if seed is None else _seed(seed),
            "samples": self._samples, "score_range": [low, high],
            "facts": {str(k): _plain(v) for k, v in (facts or {}).items()},
        }  # fmt: skip
        self._lock = threading.Lock()
        self._opened_by = 0  # process that holds the file; a fork of it holds nothing
        self._silent = False
        self._said: set[str] = set()
        self._counts: dict[str, dict[int, int]] = {key: {} for key in _COUNTS}  # of the whole run
        self._begun_again: set[str] = set()  # those of them that a resume counts from 0 on
        self._last = -1  # step, since this start
        self._there: set[tuple[int, str, str]] = set()  # scores since this start

    @property
    def path(self) -> Path:
        """The file that is written; one with a number from the first record on, if need be."""
        return self._journal.path

    def log(
        self,
        step: int,
        *,
        score: float | None = None,
        tokens: int | None = None,
        outcomes: Outcomes | None = None,
        samples: int | None = None,
        rollouts: int | None = None,
        problem_set: str = "",
        split: str = "validation",
    ) -> None:
        """Record what is known after `step` updates; 0 is before the first.

        Never raises: a fault is reported in one line and kept in the file with its reason.

        Args:
            step: updates since the run began, also after a resume.
            score: mean over the problems.
            tokens: generated in training so far, over the whole run.
            outcomes: 0 or 1 of every sample, by problem; the score is then their mean.
            samples: k of this score, if not the run's.
            rollouts: drawn in training so far, if not B_p * n * step.
            problem_set: its name, if there are several.
            split: "validation", or "train" for a score of the training batches.
        """
        with self._lock:
            try:
                self._take(
                    step, {"score": score, "tokens": tokens, "samples": samples,
                           "rollouts": rollouts, "problem_set": problem_set, "split": split},
                    outcomes,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001 - no record is worth a training run
                self._say("broken", f"a record was lost to {type(error).__name__}: {error}")

    def tokens_before(self, step: int) -> int | None:
        """Tokens that were recorded at the step before `step`, for a counter that resumes.

        0 before the first update; None where that step has none.
        """
        with self._lock:
            self._open()
            return 0 if step <= 1 else self._counts["tokens"].get(step - 1)

    def close(self) -> None:
        """Close the file; a later `log` opens it again and resumes."""
        with self._lock:
            self._journal.close()

    def _take(self, step: Any, given: dict[str, Any], outcomes: Outcomes | None) -> None:
        self._open()
        if self._silent:
            return
        row: dict[str, Any] = {"step": None}
        refused: list[str] = []
        place = -1
        try:
            place = row["step"] = _whole(step)
        except (TypeError, ValueError):
            row["given_step"] = repr(step)[:80]
            refused.append(self._say(
                "step", f"a step must be a whole number >= 0, but got {step!r:.80}; pass the "
                "number of updates since the run began",
            ))  # fmt: skip
        row |= {key: value for key, value in given.items() if value not in (None, "")}
        if outcomes is not None:
            refused += self._add_outcomes(row, outcomes)
        refused += self._check(row, place)
        if refused:
            row["refused"] = "; ".join(refused)
        if self._last < 0 <= place:  # what a resume does again may have another length
            for key, counted in self._counts.items():
                self._counts[key] = {s: count for s, count in counted.items() if s < place}
        self._write(row)
        if place >= 0 and not refused:
            self._last = max(self._last, place)
            if "score" in row:
                self._there.add((place, str(row.get("problem_set", "")), str(row["split"])))
            for key in _COUNTS.keys() & row.keys():
                self._counts[key][place] = row[key]

    def _add_outcomes(self, row: dict[str, Any], outcomes: Outcomes) -> list[str]:
        """Successes per problem, and their mean as the score."""
        drawn = {str(name): [float(v) for v in values] for name, values in outcomes.items()}
        sizes = sorted({len(values) for values in drawn.values()})
        other = next(((k, v) for k, values in drawn.items() for v in values if v not in (0, 1)),
                     None)  # fmt: skip
        if len(sizes) != 1 or sizes == [0] or other is not None:
            seen = (f"problem {other[0]!r:.40} has {other[1]:g}" if other is not None
                    else f"got {len(drawn)} problems with {sizes} samples")  # fmt: skip
            return [self._say(
                "outcomes", f"outcomes must be 0 or 1, as many for every problem, but {seen}; "
                "give those that are whole, or a score alone",
            )]  # fmt: skip
        row["samples"] = sizes[0]
        row["successes"] = {name: int(sum(values)) for name, values in drawn.items()}
        low, high = self._range
        mean = sum(row["successes"].values()) / (sizes[0] * len(drawn))
        row["score"] = low + (high - low) * mean
        return []

    def _check(self, row: dict[str, Any], step: int) -> list[str]:
        """Numbers made plain in place; why the record must not count, if it must not."""
        refused = []
        low, high = self._range
        if "score" in row:
            row["score"] = _plain(row["score"])
            if not isinstance(row["score"], float) or not low <= row["score"] <= high:
                refused.append(self._say(
                    "score", f"a score must lie in {low:g}..{high:g}, but got "
                    f"{row['score']!r:.60} at step {step}; divide percent by 100, or give "
                    "score_range=(LOW, HIGH)",
                ))  # fmt: skip
        if row["split"] not in ("validation", "train"):
            refused.append(self._say(
                "split", f"a split must be validation or train, but got {row['split']!r:.40}",
            ))  # fmt: skip
        for key in ("tokens", "rollouts", "samples"):
            if key in row:
                try:
                    row[key] = _whole(row[key])
                except (TypeError, ValueError):
                    self._say(key, f"{key} must be a whole number >= 0, but got "
                                   f"{row.pop(key)!r:.60}; it is left out")  # fmt: skip
        for key, done in _COUNTS.items():
            earlier = max((c for s, c in self._counts[key].items() if s < step), default=0)
            if key not in row or (row[key] >= earlier and key not in self._begun_again):
                continue
            self._begun_again.add(key)  # later ones of this start lack as much
            self._say(f"fewer {key}", f"{key} must count from the run's begin, but step {step} has "
                                      f"{row[key]} after {earlier}; add what was {done} before "
                                      "the resume. They are left out until the next start",
            )  # fmt: skip
            del row[key]
        if 0 <= step < self._last:
            refused.append(self._say(
                "back", f"steps must not go back within one start, but step {step} follows "
                f"{self._last}; pass the number of updates since the run began, and make a new "
                "Recorder for a resume",
            ))  # fmt: skip
        elif "score" in row and (
            (step, str(row.get("problem_set", "")), str(row["split"])) in self._there
        ):
            refused.append(self._say(
                "twice", f"a step must have one score on a problem set, but step {step} has a "
                "second; name the sets (problem_set=...), or log each once",
            ))  # fmt: skip
        return refused

    def _open(self) -> None:
        """Hold the file, and know what it says of the run so far."""
        if self._silent or self._journal.is_open:
            return
        if self._opened_by not in (0, os.getpid()):  # a fork: the file is the parent's
            self._silence()
            return
        try:
            self._find()
        except OSError as error:
            self._refused_by_disk(error)
            return
        if self._journal.held_elsewhere and not self._taken_over():
            self._silence()
            return
        _OPEN[self.path.resolve()] = self
        self._opened_by, self._last, self._there = os.getpid(), -1, set()
        self._begun_again.clear()
        starts = 0
        for row in self._journal.rows():
            starts += MARK in row
            for key in _COUNTS if isinstance(row.get("step"), int) else ():
                if isinstance(row.get(key), int):
                    self._counts[key][row["step"]] = row[key]
        self._write({
            MARK: VERSION, **self._run, "start": starts + 1, "process": os.getpid(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }, first=True)  # fmt: skip

    def _find(self) -> None:
        """The file of this run: the one that was named, or the next name that is free."""
        named, number, other = self.path, 1, ""
        while True:
            journal = self._journal
            journal.open()
            header = self._header(journal)
            if header is None or all(header.get(k) == v for k, v in self._run.items()):
                break
            journal.close()
            number += 1
            other = other or _differing(header, self._run)
            journal.move(named.with_name(f"{named.name.removesuffix(ENDING)}-{number}{ENDING}"))
        if other:
            self._say("other", f"a file must hold one run, but {named.name} holds another "
                      f"({other}); give each run a name of its own. This one is written to "
                      f"{self.path.name}")  # fmt: skip

    def _taken_over(self) -> bool:
        """Whether an older recorder of this process held the file, and has given it up."""
        older = _OPEN.get(self.path.resolve())
        if older is None or older is self or older._opened_by != os.getpid():
            return False
        with older._lock:
            older._silent = True
            older._journal.close()
        older._say("newer", f"one recorder must record a run, but this process has made a newer "
                            f"one of {self.path.name}; log to that. The older records nothing "
                            "any more")  # fmt: skip
        self._journal.open()
        return not self._journal.held_elsewhere

    @staticmethod
    def _header(journal: Journal) -> dict[str, Any] | None:
        """The first header of a file; None where it has none yet."""
        until = time.monotonic() + (_BUSY_S if journal.held_elsewhere else 0.0)
        while True:
            for row in journal.rows():
                if MARK in row:
                    return row
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)

    def _silence(self) -> None:
        self._silent = True
        self._say("held", f"one process must record a run, but another holds {self.path.name}; log "
                          "on one rank alone, or give each run a name of its own. This process "
                          "records nothing")  # fmt: skip

    def _write(self, row: Mapping[str, Any], *, first: bool = False) -> None:
        try:
            self._journal.append(row, first=first)
        except OSError as error:
            self._refused_by_disk(error)

    def _refused_by_disk(self, error: OSError) -> None:
        self._say("disk", f"{self.path} must be writable, but gives {error}; make room. Records "
                          "wait in memory and are written with the next")  # fmt: skip

    def _say(self, kind: str, text: str) -> str:
        """One line for each kind of fault; returns it."""
        if kind not in self._said:
            self._said.add(kind)
            print(f"isocompute: {' '.join(text.split())}.", file=sys.stderr, flush=True)
        return text


def _count(name: str, value: object) -> int:
    try:
        number = _whole(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise InputError(f"`{name}` must be a whole number >= 1, but got {value!r}; correct it.")
    return number


def _seed(value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]  # whatever a caller gives
    except TypeError:
        raise InputError(f"`seed` must be a whole number, but got {value!r}; correct it.") from None


def _whole(value: Any) -> int:
    """A whole number >= 0 of Python, NumPy or a tensor.

    Raises:
        TypeError, ValueError: it is none.
    """
    number = float(value)
    if isinstance(value, (bool, str, bytes)) or not number.is_integer() or number < 0:
        raise ValueError(value)
    return int(number) if isinstance(value, float) else int(value)


def _plain(value: Any) -> Any:
    """A JSON value: a finite float of anything that is a number, else its text."""
    if value is None or isinstance(value, (str, bool)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return repr(value)[:200]
    return number if math.isfinite(number) else repr(number)


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}: {there.get(k)!r}, here {v!r}" for k, v in here.items()
                     if there.get(k) != v)[:200]  # fmt: skip
