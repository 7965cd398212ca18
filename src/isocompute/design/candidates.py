"""Which sweeps a budget can hold.

A sweep is n evenly spaced in log2, at one B_p, every run as long as the money allows; a run that
has fewer than 20 steps compares nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isocompute.allocation import floor_power_of_two, powers_of_two
from isocompute.design.simulate import PROBLEMS, Sweep
from isocompute.design.worth import LEAST_STEPS
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.study.file import MOST_ROLLOUTS

# (how many n, octaves between two of them, seeds). Three n are the fewest that show a bend.
SHAPES = (
    (3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 2, 2),
    (4, 1, 1), (4, 2, 1), (5, 1, 1), (7, 1, 1), (4, 2, 2),
)  # fmt: skip
FEWEST_N = 3
LEAST_BP = 8  # below it a batch is too noisy for the recipes here: half of the smallest published


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sweep and its final run.

    Args:
        budget: rollouts for both.
        spend: share of it that the sweep may take.
        n_F: the n that the prior covers.
        max_batch: rollouts that a batch may hold; None: any number.
        problems: D, size of the training set; None: large enough.
        evaluated: problems of an evaluation.
    """

    budget: float
    spend: float
    n_F: Sequence[int]
    max_batch: int | None = None
    problems: int | None = None
    evaluated: int = PROBLEMS

    @property
    def sweep(self) -> float:
        """Rollouts of the sweep, at most."""
        return self.budget * self.spend

    @property
    def final(self) -> float:
        """Rollouts that a sweep leaves for the final run, at least."""
        return self.budget - self.sweep


def check_limits(limits: Limits, b_p: int) -> None:
    """Refuse what holds no final run at all.

    Raises:
        InputError: a share outside (0, 1), problems that fill no batch, limits or a budget below
            one update.
    """
    smallest = b_p * limits.n_F[0]
    if limits.budget > MOST_ROLLOUTS:
        raise InputError(
            f"a budget must be at most {MOST_ROLLOUTS:.0e} rollouts, but got {limits.budget:.3g}; "
            "lower it."
        )
    if not 0 < limits.spend < 1:
        raise InputError(
            "a sweep must take more than 0% and less than 100% of the budget, but got --spend "
            f"{limits.spend:.4g}; 15% is usual."
        )
    if limits.problems is not None and limits.problems < b_p:
        raise InputError(
            f"the problems must fill a batch (B_p = {b_p}), but got --problems {limits.problems}; "
            "add problems, or lower --problems-per-batch."
        )
    if limits.max_batch is not None and limits.max_batch < smallest:
        raise InputError(
            f"a batch must hold {b_p} problems with n = {limits.n_F[0]} ({smallest} rollouts), but "
            f"got --max-batch {limits.max_batch}; raise it, or lower --problems-per-batch."
        )
    if limits.budget < smallest:
        raise InputError(
            f"a budget must hold one update of {b_p} problems with n = {limits.n_F[0]} ({smallest} "
            f"rollouts), but got {compact(limits.budget)}; raise it."
        )


def starting_bp(known: int, problems: int | None) -> int:
    """B_p to begin with: that of the prior, or the largest power of two that D fills."""
    return known if problems is None else min(known, floor_power_of_two(max(problems, 1)))


def candidates(limits: Limits, b_p: int, guess: int, *, fixed: bool) -> list[Sweep]:
    """Sweeps within the limits, at the largest B_p at which there are any.

    Args:
        limits: to keep to.
        b_p: the largest B_p; halved, down to 8, while nothing fits.
        guess: the best n without a sweep: one candidate of each shape is centred on it.
        fixed: B_p was asked for: it is not halved.

    Raises:
        InputError: not even the smallest sweep of three n fits.
    """
    sizes = [b_p] if fixed else [b_p >> i for i in range(8) if b_p >> i >= min(LEAST_BP, b_p)]
    for size in sizes:
        if found := _at(limits, size, guess):
            return found
    raise _none(limits, sizes[-1])


def _at(limits: Limits, b_p: int, guess: int) -> list[Sweep]:
    out: dict[Sweep, None] = {}
    for count, octaves, seeds in SHAPES:
        each = limits.sweep / (count * seeds)
        most = min(each, limits.final) / (LEAST_STEPS * b_p)
        if limits.max_batch is not None:
            most = min(most, limits.max_batch / b_p)
        if most < limits.n_F[0]:
            continue
        top = min(floor_power_of_two(most), limits.n_F[-1])
        span = 2 ** (octaves * (count - 1))
        centred = min(guess * 2 ** (octaves * ((count - 1) // 2)), top)
        for last in dict.fromkeys((top, centred)):
            if last // span < limits.n_F[0]:
                continue
            n = tuple(powers_of_two(last // span, last)[::octaves])
            out[Sweep(problems_per_batch=b_p, rollouts_per_problem=n, seeds=seeds,
                      rollouts_per_run=int(each), evaluated=limits.evaluated)] = None  # fmt: skip
    return list(out)


def _none(limits: Limits, b_p: int) -> InputError:
    n = limits.n_F[: FEWEST_N]
    if limits.max_batch is not None and len(n) == FEWEST_N and limits.max_batch < b_p * n[-1]:
        return InputError(
            f"a sweep needs {FEWEST_N} n, the largest with a batch of {b_p * n[-1]} rollouts, but "
            f"got --max-batch {limits.max_batch}; raise it."
        )
    takes = LEAST_STEPS * b_p * n[-1] * FEWEST_N
    return InputError(
        f"a sweep needs {FEWEST_N} n with {LEAST_STEPS} steps each (at least {compact(takes)} "
        f"rollouts at B_p = {b_p}), but may spend {compact(limits.sweep)} ({limits.spend:.3g} of "
        f"{compact(limits.budget)}); raise --budget or --spend, or plan from a "
        "published sweep: `isocompute plan`."
    )
