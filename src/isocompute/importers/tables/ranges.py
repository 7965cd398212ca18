"""What the numbers of a tidy table must be, each alone and beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.runs.cadence import BATCH, FEWEST
from isocompute.importers.tables.cells import NO_RUN
from isocompute.importers.tables.table import FloatArray
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.words.called import mapping
from isocompute.importers.words.scale import MOST_ROLLOUTS, check_range

SCORES = ("score", "best", "worst")
# Batches that serve several updates and dynamic sampling stay within 50 times; thousands do not. At
# half a batch used for 64 updates is refused, at twice rollouts in hundreds pass.
_LEAST = 0.02
_ENOUGH = 4  # evaluations that are a curve


class _Rule(NamedTuple):
    """What a column must be, its rows that are not, and what to do about them."""

    name: str
    must: str
    bad: NDArray[np.bool_]
    cure: str
    seen: Sequence[float] = ()  # the lowest and the highest score, where another range may cure it

    def check(self, value: FloatArray, path: Path) -> None:
        """Refuse the first row that breaks it."""
        if not self.bad.any():
            return
        row, seen = int(self.bad.argmax()), self.seen
        percent = len(seen) > 0 and seen[0] >= 0 and 10 < seen[1] <= 100
        words = ("0", "100") if percent else ("LOW", "HIGH")
        raise InputError(
            f"{path}: `{self.name}` must be {self.must}, but row {row + 1} has {value[row]:g} "
            f"({int(self.bad.sum())} such rows); {self.cure}"
            f"{', for percent --range 0 100' if percent else ''}.",
            options=("--range", *words) if seen else (),
            condition="the scores are percent" if percent else "",
            trial=("--range", *(words if percent else map(repr, seen))) if seen else (),
        )


def check_numbers(
    numbers: Mapping[str, FloatArray], path: Path, score_range: tuple[float, float],
    called: str = "rollouts",
) -> None:
    """Refuse numbers that break the contract of tidy curves.

    Args:
        numbers: column -> its values.
        path: for the message.
        score_range: what scores may be.
        called: the file's own name for rollouts; under another, one that no update reaches counts
            something else.

    Raises:
        InputError: names the first row, its value, how many there are, and the cure.
    """

    def check(*groups: Iterable[_Rule]) -> None:
        for rule in chain(*groups):  # each is made when those before it hold
            rule.check(numbers[rule.name], path)

    check(_of_batches(numbers), _of_rollouts(numbers, called), _of_counts(numbers))
    if "steps" in numbers:
        check(_of_updates(numbers))
        _check_cumulative(numbers, path)
    check(_of_tokens(numbers), _of_seeds(numbers))
    check_range(score_range)
    check(_of_scores(numbers, score_range))


def batch_of(numbers: Mapping[str, FloatArray]) -> FloatArray:
    """Rollouts of an update."""
    return numbers["problems_per_batch"] * numbers["rollouts_per_problem"]


def refuse_rollouts(numbers: Mapping[str, FloatArray], path: Path, key: str) -> None:
    """Refuse updates that are all whole batches of rollouts, as a count of those is.

    Raises:
        UnclearError: with what settles it.
    """
    counted = numbers["steps"] > 0
    at, batch = numbers["steps"][counted], batch_of(numbers)[counted]
    with np.errstate(invalid="ignore"):
        whole = bool((batch >= BATCH).all() and (at % batch == 0).all())
    if whole and np.unique(at).size >= FEWEST:
        raise UnclearError(
            f"{path}: steps must be updates, but all of `{key}`, to {at.max():.0f}, are multiples "
            f"of B_p * n, as a count of rollouts is; add {mapping(key, 'rollouts')} if it is one, "
            f"else {mapping(key, 'steps')}.", options=("--map", f"{key}=rollouts"),
            condition=f"`{key}` counts rollouts",
        )


def _of_batches(numbers: Mapping[str, FloatArray]) -> Iterator[_Rule]:
    for name in ("problems_per_batch", "rollouts_per_problem"):
        v = numbers[name]
        yield _Rule(
            name, "a whole number >= 1", ~((v >= 1) & (v == np.floor(v)) & (v < 2**53)),
            NO_RUN if np.isnan(v).any() and not np.isnan(v).all() else "correct the column",
        )


def _of_rollouts(numbers: Mapping[str, FloatArray], called: str) -> Iterator[_Rule]:
    v = numbers["rollouts"]
    scored = ~np.all([np.isnan(numbers[name]) for name in SCORES if name in numbers], axis=0)
    yield _Rule(
        "rollouts", f"cumulative rollouts, finite and >= 0, at most {MOST_ROLLOUTS:.0e}",
        ~((v >= 0) & (v <= MOST_ROLLOUTS)) & (scored | ~np.isnan(v)),
        "correct or drop those rows",
    )
    below = (v > 0) & (v < batch_of(numbers))
    few = called == "rollouts" and ("steps" in numbers or np.unique(v[below]).size < _ENOUGH)
    yield _Rule(
        "rollouts", "cumulative, at least B_p * n after an update",
        below & bool(below[v > 0].all()) & (not few),
        f"if {called!r} counts updates, map it to steps; if it is in thousands, multiply them "
        "out",
    )


def _of_counts(numbers: Mapping[str, FloatArray]) -> Iterator[_Rule]:
    if "steps" in numbers:
        v = numbers["steps"]
        yield _Rule(
            "steps", "whole updates", np.isfinite(v) & (v != np.floor(v)),
            "give a column that counts updates (epochs times the updates of one)",
        )
    for name in ("steps", "tokens"):
        if name in numbers:
            v = numbers[name]
            yield _Rule(
                name, "finite and >= 0, or empty", ~np.isnan(v) & ~((v >= 0) & np.isfinite(v)),
                "correct or empty those cells",
            )


def _of_updates(numbers: Mapping[str, FloatArray]) -> Iterator[_Rule]:
    """What rollouts must be beside steps."""
    n, rollouts, drawn = (numbers["rollouts_per_problem"], numbers["rollouts"],
                          batch_of(numbers) * numbers["steps"])  # fmt: skip
    both = (drawn > 0) & (rollouts > 0)
    share = np.median(rollouts[both] / drawn[both]) if both.any() else 1.0
    yield _Rule(
        "rollouts",
        f"of the order of problems_per_batch * rollouts_per_problem * steps ({share:.3g} of it at "
        "the median; is it in thousands, or of each step alone?)",
        both & (not _LEAST < share < 1 / _LEAST),
        "give cumulative rollouts as whole numbers, or drop that column: steps make them",
    )
    of_problems = np.unique(n[both]).size > 1 and np.all(rollouts[both] == (drawn / n)[both])
    yield _Rule(
        "rollouts", "responses (those of this table are B_p * steps at every n, as problems are)",
        both & (n > 1) & bool(of_problems),
        "drop that column: problems_per_batch, rollouts_per_problem and steps make it",
    )


def _of_tokens(numbers: Mapping[str, FloatArray]) -> Iterator[_Rule]:
    if "tokens" in numbers:
        tokens, rollouts = numbers["tokens"], numbers["rollouts"]
        both = (tokens > 0) & (rollouts > 0)
        mean = float(np.median(tokens[both] / rollouts[both])) if both.any() else 1.0
        yield _Rule(
            "tokens", f"cumulative tokens, at least 1 of each rollout ({mean:.3g} at the median; "
            "are they in thousands?)", both & (mean < 1),
            "give tokens as whole numbers, or drop the column",
        )  # fmt: skip


def _of_seeds(numbers: Mapping[str, FloatArray]) -> Iterator[_Rule]:
    if "seed" in numbers:
        v = numbers["seed"]
        yield _Rule(
            "seed", "a whole number, or empty",
            ~np.isnan(v) & ~(np.isfinite(v) & (v == np.floor(v)) & (np.abs(v) < 2**53)),
            "correct or empty those cells",
        )


def _of_scores(
    numbers: Mapping[str, FloatArray], score_range: tuple[float, float]
) -> Iterator[_Rule]:
    low, high = score_range
    for name in (name for name in SCORES if name in numbers):
        v = numbers[name]
        seen = v[np.isfinite(v)]
        counts = seen.size and (seen == np.floor(seen)).all() and seen.max() > high
        yield _Rule(
            name, f"in {low:g}..{high:g}", ~np.isnan(v) & ~((v >= low) & (v <= high)),
            "correct those rows, or give --range LOW HIGH if scores are on another scale"
            + (f" (they go from {seen.min():.4g} to {seen.max():.4g})" if seen.size else "")
            + ("; of counts of right answers HIGH is the number of problems" if counts else ""),
            (float(min(low, seen.min())), float(max(high, seen.max()))) if seen.size else (),
        )


def _check_cumulative(numbers: Mapping[str, FloatArray], path: Path) -> None:
    """Rollouts below B_p * n * steps come of batches that serve several updates, or are no sum."""
    batch, rollouts, steps = batch_of(numbers), numbers["rollouts"], numbers["steps"]
    for size in np.unique(batch):
        rows = np.flatnonzero((batch == size) & (steps > 0) & (rollouts > 0))
        if not rows.size:
            continue
        last = rows[np.argmax(steps[rows])]
        updates = round(size * steps[last] / rollouts[last])  # that each batch would serve
        over = rows[rollouts[rows] > (np.ceil(steps[rows] / max(updates, 1)) + 0.5) * size]
        if updates > 1 and over.size:
            row = over[0]
            raise InputError(
                f"{path}: `rollouts` must be cumulative, but they are {rollouts[row]:,.0f} at step "
                f"{steps[row]:g} and {rollouts[last]:,.0f} at step {steps[last]:g}, where B_p * n "
                f"* steps is {size * steps[row]:,.0f} and {size * steps[last]:,.0f}; add them up, "
                "or drop the column if steps say it."
            )
