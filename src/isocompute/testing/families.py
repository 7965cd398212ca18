"""Worlds that no estimator here was made for, smooth surfaces, and ways to see them.

`FAMILIES`: curves outside the fitted forms, orders that are not smooth in n. `SURFACES`: the score
is a closed form of (log2 n, log10 C), so that the best n is exact (`Truth.best_n`). `CONDITIONS`:
noise, seeds and evaluation grids, by name. Committed before any estimator was tuned on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isocompute.testing.forms import Surface
from isocompute.testing.noises import Noise
from isocompute.testing.planted import NOISE, WORLDS, chained_arms
from isocompute.testing.simulated import Grpo, SimulatedArm
from isocompute.testing.truth import Arm, Curve, World

__all__ = ["CONDITIONS", "FAMILIES", "SURFACES", "Condition", "cut_to", "stopped_early"]

_N = (8, 16, 32, 64, 128, 256, 512)
_RISING = WORLDS["rising"].arms
_FLAT = Arm(
    problems_per_batch=16, rollouts_per_problem=8, floor=0.40, ceiling=0.65, slope=3.0, midpoint=5.2
)
_GRPO_ROLLOUTS = 2.0**21


def of_surface(name: str, surface: Surface, rollouts_per_problem: Sequence[int] = _N) -> World:
    """A world whose arms are samples of a surface at given n."""
    arms = tuple(
        Arm(
            problems_per_batch=surface.problems_per_batch,
            rollouts_per_problem=n,
            floor=surface.floor,
            ceiling=float(surface.ceiling(np.log2(n))),
            slope=surface.slope,
            midpoint=float(surface.log10_midpoint(np.log2(n))),
            shape=surface.shape,
        )
        for n in rollouts_per_problem
    )
    return World(name=name, arms=arms, surface=surface)


_RISES = Surface(rise=(0.25, 0.02, -0.0028), midpoint=5.6, per_octave=0.10)
_STEPS = Surface(rise=(0.25, 0.020, -0.0025), timing="steps")
_TWENTY = tuple(round(8 * 64 ** (k / 19)) for k in range(20))

SURFACES: Mapping[str, World] = {
    world.name: world
    for world in (
        of_surface("rises", _RISES),
        of_surface("rises_weibull", replace(_RISES, shape="weibull", slope=2.2)),
        of_surface("interior", Surface(rise=(0.25, 0.006, -0.006))),
        of_surface("steps", _STEPS),
        of_surface("falls", replace(_RISES, rise=(0.25, -0.02, -0.0028), per_octave=-0.10)),
        of_surface("three_n", _RISES, (8, 64, 512)),
        of_surface("four_n", _RISES, (8, 32, 128, 512)),
        of_surface("twenty_n", _RISES, _TWENTY),
    )
}


def _ladder(
    ceilings: tuple[float, ...], midpoints: tuple[float, ...] = (5.2,) * 7
) -> tuple[Arm, ...]:
    return tuple(
        replace(_FLAT, rollouts_per_problem=n, ceiling=c, midpoint=m)
        for n, c, m in zip(_N, ceilings, midpoints, strict=True)
    )


def _grpo(name: str, grpo: Grpo) -> World:
    arms = tuple(SimulatedArm(problems_per_batch=16, rollouts_per_problem=n, grpo=grpo) for n in _N)
    return World(name=name, arms=arms, max_rollouts=_GRPO_ROLLOUTS)


FAMILIES: Mapping[str, World] = {
    world.name: world
    for world in (
        World(name="weibull", arms=tuple(replace(a, shape="weibull") for a in _RISING)),
        World(name="double_rise", arms=tuple(replace(a, shape="double") for a in _RISING)),
        World(
            name="unbounded",
            arms=tuple(replace(a, shape="slow", slope=2.0) for a in _RISING),
        ),
        World(
            name="half_gompertz",
            arms=tuple(
                replace(a, shape="gompertz") if a.rollouts_per_problem >= 64 else a for a in _RISING
            ),
        ),
        _grpo("grpo_easy", Grpo(base_mean=0.0, base_sd=1.5)),
        _grpo(
            "grpo_hard",
            Grpo(base_mean=-4.0, base_sd=2.5, shared=0.3, forgetting=0.10, solvable=0.6),
        ),
        replace(SURFACES["steps"], name="step_limited"),
        replace(SURFACES["rises"], name="concave"),
        World(name="stands_out", arms=_ladder((0.64, 0.64, 0.64, 0.68, 0.64, 0.64, 0.64))),
        World(name="tent", arms=_ladder((0.614, 0.626, 0.638, 0.650, 0.638, 0.626, 0.614))),
        World(
            name="no_order",
            arms=_ladder(
                (0.640, 0.672, 0.624, 0.661, 0.633, 0.690, 0.652),
                (5.10, 5.35, 5.00, 5.25, 5.40, 5.55, 5.15),
            ),
        ),
        World(  # the fall lies within the quarter of the budget that plans are made from
            name="fails_late",
            arms=tuple(
                replace(a, falls_from=5.9, fall=0.15) if a.rollouts_per_problem == 512 else a
                for a in _RISING
            ),
        ),
        World(
            name="one_crossing",
            arms=chained_arms((16, 128), (0.62, 0.68), (5.9,)),
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How a world is seen.

    Args:
        name: of the condition.
        noise: of seeds and evaluations.
        seeds: runs per configuration.
        linear: evaluations a run, evenly spaced in C; None for the even grid in log C.
        shortest: runs end at a share of the sweep drawn from here to 1, evenly in log; 1 for
            runs of one length.
    """

    name: str
    noise: Noise = field(default_factory=lambda: NOISE["middle"])
    seeds: int = 3
    linear: int | None = None
    shortest: float = 1.0

    def seen(self, world: World) -> World:
        """The world on this condition's grid."""
        return world if self.linear is None else replace(world, linear=self.linear)

    def sample(self, world: World, rng: np.random.Generator) -> list[Curve]:
        """One sweep of the world."""
        curves = self.seen(world).sample(self.noise, self.seeds, rng)
        if self.shortest >= 1.0:
            return curves
        ends = world.max_rollouts * self.shortest ** rng.uniform(0.0, 1.0, len(curves))
        return [cut_to(c, float(end)) for c, end in zip(curves, ends, strict=True)]


def cut_to(curve: Curve, rollouts: float) -> Curve:
    """The run as if it had been stopped there; at least two evaluations stay."""
    keep = curve.rollouts_K <= rollouts * (1 + 1e-9)
    keep[:2] = True
    return curve.replace(
        rollouts_K=curve.rollouts_K[keep],
        score_K=curve.score_K[keep],
        tokens_K=None if curve.tokens_K is None else curve.tokens_K[keep],
        steps_K=None if curve.steps_K is None else curve.steps_K[keep],
        gpu_hours_K=None if curve.gpu_hours_K is None else curve.gpu_hours_K[keep],
    )


def stopped_early(curves: Sequence[Curve], ends: Mapping[tuple[int, int], float]) -> list[Curve]:
    """The sweep with each configuration's runs stopped at its own budget."""
    return [cut_to(c, ends[c.problems_per_batch, c.rollouts_per_problem]) for c in curves]


_MIDDLE = NOISE["middle"]
_GREEDY = Noise(problems=300, samples=1, greedy=True)

CONDITIONS: Mapping[str, Condition] = {
    condition.name: condition
    for condition in (
        Condition(name="low", noise=NOISE["low"]),
        Condition(name="middle"),
        Condition(name="high", noise=NOISE["high"]),
        Condition(name="one_seed", seeds=1),
        Condition(name="two_seeds", seeds=2),
        Condition(name="five_seeds", seeds=5),
        Condition(name="lasting", noise=replace(_MIDDLE, drift_sd=0.010)),
        Condition(name="greedy", noise=_GREEDY),
        Condition(name="greedy_one_seed", noise=_GREEDY, seeds=1),
        Condition(name="dips", noise=replace(_MIDDLE, dip_sd=0.05)),
        Condition(name="shapes", noise=replace(_MIDDLE, slope_sd=0.15)),
        Condition(name="linear_grid", linear=40),
        Condition(name="unequal", shortest=0.25),
        Condition(name="told", noise=replace(_MIDDLE, told=True)),
    )
}
