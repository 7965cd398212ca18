"""Planted worlds: sweeps whose truth is known, for tests of curves, frontiers and laws.

A world is a list of arms (`isocompute.testing.truth`); who samples it chooses seeds and noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isocompute.errors import InputError
from isocompute.testing.noises import Noise
from isocompute.testing.truth import Arm, TrueCrossover, Truth, World

__all__ = [
    "NOISE", "NULL_WORLDS", "WORLDS", "Arm", "Noise", "TrueCrossover", "Truth", "World",
    "chained_arms",
]  # fmt: skip

NOISE: Mapping[str, Noise] = {
    "low": Noise(problems=300, samples=16, ceiling_sd=0.003, midpoint_sd=0.015),
    "middle": Noise(),  # ScaleRL saw ceilings of repeats within 0.02 of each other
    "high": Noise(problems=150, samples=4, ceiling_sd=0.012, midpoint_sd=0.05),
}


def chained_arms(
    rollouts_per_problem: tuple[int, ...],
    ceilings: tuple[float, ...],
    crossings: tuple[float, ...],
    *,
    problems_per_batch: int = 16,
    floor: float = 0.40,
    slope: float = 3.0,
    first_midpoint: float = 4.9,
) -> tuple[Arm, ...]:
    """Arms of one slope whose neighbours cross at given budgets.

    Args:
        rollouts_per_problem: n, in the order in which they lead.
        ceilings: rising along that order.
        crossings: log10 C at which each hands over to the next, one fewer.

    Raises:
        InputError: if the three do not fit each other or the ceilings do not rise.
    """
    lengths = len(rollouts_per_problem), len(ceilings), len(crossings) + 1
    if len(set(lengths)) != 1 or not (np.diff(ceilings) > 0).all():
        raise InputError(
            "chained arms need one ceiling per n, rising, and one crossing fewer, but got "
            f"{lengths[0]} n, ceilings {ceilings}, {len(crossings)} crossings; make them fit."
        )
    midpoint, arms = first_midpoint, []
    for j, (n, ceiling) in enumerate(zip(rollouts_per_problem, ceilings, strict=True)):
        if j:
            share = (ceilings[j - 1] - floor) / (ceiling - floor)
            s = share / (1 + np.exp(-slope * (crossings[j - 1] - midpoint)))
            midpoint = crossings[j - 1] - float(np.log(s / (1 - s))) / slope
        arms.append(
            Arm(
                problems_per_batch=problems_per_batch,
                rollouts_per_problem=n,
                floor=floor,
                ceiling=ceiling,
                slope=slope,
                midpoint=midpoint,
            )
        )
    return tuple(arms)


_N = (8, 16, 32, 64, 128, 256, 512)
_RISING = chained_arms(
    _N, (0.600, 0.620, 0.641, 0.662, 0.683, 0.704, 0.725), (5.5, 5.7, 5.9, 6.1, 6.3, 6.5)
)
_EQUAL = Arm(
    problems_per_batch=16, rollouts_per_problem=8, floor=0.40, ceiling=0.65, slope=3.0, midpoint=5.2
)


def _ladder(ceilings: tuple[float, ...]) -> tuple[Arm, ...]:
    """The same curve with one ceiling per n: the order never changes."""
    return tuple(
        replace(_EQUAL, rollouts_per_problem=n, ceiling=c)
        for n, c in zip(_N, ceilings, strict=True)
    )


def _joint() -> tuple[Arm, ...]:
    """Three B_p, each a little worse away from 64, under a cap B <= 16,384."""
    return tuple(
        replace(
            arm,
            problems_per_batch=b_p,
            ceiling=arm.ceiling - 0.006 * abs(np.log2(b_p / 64)),
        )
        for b_p in (16, 64, 256)
        for arm in _RISING
        if b_p * arm.rollouts_per_problem <= 16384
    )


WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(name="rising", arms=_RISING),
        World(
            name="late_winner",
            arms=chained_arms((8, 128, 512), (0.60, 0.66, 0.72), (5.8, 6.4)),
        ),
        World(
            name="three_octaves",
            arms=(
                *chained_arms((8, 16, 32, 64), (0.600, 0.625, 0.650, 0.675), (5.6, 5.85, 6.1)),
                replace(_RISING[-1], rollouts_per_problem=128, ceiling=0.665, midpoint=5.75),
            ),
        ),
        World(name="equal", arms=_ladder((0.65,) * 7)),
        World(  # one n starts sooner and all reach one plateau: it never ceases to be best
            name="meeting",
            arms=tuple(
                replace(a, slope=4.0, midpoint=4.8 if a.rollouts_per_problem == 8 else 5.0)
                for a in _ladder((0.65,) * 7)
            ),
        ),
        World(name="constant_small", arms=_ladder((0.68, 0.66, 0.65, 0.64, 0.63, 0.62, 0.61))),
        World(name="constant_large", arms=_ladder((0.61, 0.62, 0.63, 0.64, 0.65, 0.66, 0.68))),
        World(
            name="falling",
            arms=chained_arms((512, 128, 32, 8), (0.60, 0.63, 0.66, 0.69), (5.6, 5.95, 6.3)),
        ),
        World(
            name="overfit",
            arms=tuple(
                replace(a, falls_from=6.2, fall=0.04 * (1 + (a.rollouts_per_problem <= 64)))
                for a in _RISING
            ),
        ),
        World(
            name="collapse",
            arms=tuple(
                replace(a, collapses_at=6.0) if a.rollouts_per_problem in (32, 256) else a
                for a in _RISING
            ),
        ),
        World(
            name="unequal_seeds",
            arms=tuple(
                replace(a, seeds=s) for a, s in zip(_RISING, (5, 1, 3, 2, 5, 2, 3), strict=True)
            ),
        ),
        World(name="capped", arms=tuple(a for a in _RISING if a.batch_size <= 2048)),
        World(name="joint_capped", arms=_joint()),
        World(name="gompertz", arms=tuple(replace(a, shape="gompertz") for a in _RISING)),
    )
}
NULL_WORLDS = ("equal", "meeting", "constant_small", "constant_large", "falling")
