"""How often each test would say so: planted sweeps of the planned size, with and without effect.

    make claims-power        # some minutes of one core; writes power.json

A planted world has n = 4 to 1,024 at one or three B_p, three seeds, 4M rollouts, and curves shaped
as the first runs of the world of the grid are: half of the rise takes 32 updates times
(n + NOISE_N) rollouts a problem, larger n end higher up to `levels_at`. Noise is what seeds of the
worlds before it had (`studies/results`): 0.013 of final score, 0.04 decades of midpoint, scores on
300 problems four times. Trials of 20 seeds have the size of *bits, fresh*, those of
60 seeds draw its runs again. Truth is planted in n* or in the score, by the claim's own unit.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from isocompute.domain import Curve
from isocompute.sources import load_curves
from isocompute.spread import progress
from isocompute.testing.planted import Arm, Noise, World
from scorecard import scores
from scorecard import statistics as of
from scorecard.verdicts import Estimate, Kind, verdict

FILE = Path(__file__).with_name("power.json")
N = tuple(2**k for k in range(2, 11))
B_P = (8, 32, 128)
MAX_ROLLOUTS = 4e6
SEEDS = 3
NOISE = Noise(problems=300, samples=4, ceiling_sd=0.013, midpoint_sd=0.04)
SIMULATIONS = 10  # a rate is known to 0.15; twice as many would take twice the five minutes
QUICK = 100  # of a test without a fit: a rate is known to 0.05
# The column *bits, fresh*: seeds 20 to 39, seven n, 262,144 rollouts. Its noise is that of `bits`,
# 15 seeds: 0.006 of final score, sampling included.
FRESH = Noise(problems=300, samples=4, ceiling_sd=0.004, midpoint_sd=0.04)
FRESH_SEEDS, FRESH_N = 20, (4, 8, 16, 32, 64, 128, 256)
# The column *bits, 60 seeds*: what its rows see where the worlds are as those twenty seeds say.
SIXTY = 60
RESULTS = Path(__file__).parents[2] / "studies" / "results"

_STEPS, _NOISE_N, _SLOPE, _FLOOR, _TOP = 32.0, 10.0, 4.0, 0.05, 0.74
_PER_OCTAVE = 0.015  # of ceiling, below `levels_at`

Rng = np.random.Generator
Sweep = list[Curve]


def planted(
    *, levels_at: float, per_octave: float = _PER_OCTAVE, follows_batch: float = 1.0,
    bp_gain: float = 0.0, b_p: tuple[int, ...] = (32,), n: tuple[int, ...] = N,
    top: float = _TOP, falls: float = 0.0, beyond: float = 0.0,
) -> World:  # fmt: skip
    """A sweep in which larger n end higher up to `levels_at`, and small n start sooner.

    Args:
        levels_at: n from which the ceiling is the same.
        per_octave: of ceiling, per octave of n below it.
        follows_batch: 1 where the optimum in n moves with B_p as the batch does, 0 where not.
        bp_gain: ceiling per octave of B_p.
        b_p, n: of the sweep.
        top: highest ceiling.
        falls: score lost per decade from 300k rollouts on.
        beyond: ceiling lost per octave of n above `levels_at`; at 0 all larger n meet in the end.
    """
    arms = []
    for b in b_p:
        # Where the batch counts, what n gives at this B_p is what n B_p / 32 gives at B_p = 32.
        moved = levels_at / (b / 32) ** follows_batch
        for one in n:
            short = max(0.0, math.log2(moved / one))
            over = max(0.0, math.log2(one / moved))
            arms.append(
                Arm(
                    problems_per_batch=b, rollouts_per_problem=one, floor=_FLOOR, slope=_SLOPE,
                    ceiling=top - per_octave * short - beyond * over
                    + bp_gain * math.log2(b / 32),
                    midpoint=math.log10(
                        _STEPS * 32 * (b / 32) ** follows_batch * (one + _NOISE_N)
                    ),
                    falls_from=5.5 if falls else None, fall=falls,
                )
            )  # fmt: skip
    return World(name="planted", arms=tuple(arms), max_rollouts=MAX_ROLLOUTS)


def seen(world: World, rng: Rng, seeds: int = SEEDS, noise: Noise = NOISE) -> Sweep:
    """One sweep of it."""
    return world.sample(noise, seeds, rng)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One test on one planted truth.

    Args:
        rows: claims whose test this is.
        truth: what is planted, in words.
        expected: the right verdict.
        kind, smallest: of the claim.
        run: one draw of the sweeps -> the estimate.
        simulations: draws.
    """

    rows: str
    truth: str
    expected: str
    kind: Kind
    smallest: float
    run: Callable[[Rng], Estimate]
    simulations: int = SIMULATIONS


def _rises(levels_at: float, **more: object) -> Callable[[Rng], Estimate]:
    return lambda rng: of.rise(seen(planted(levels_at=levels_at, **more), rng))  # type: ignore[arg-type]


def _shift(a: float, b: float) -> Callable[[Rng], Estimate]:
    def run(rng: Rng) -> Estimate:
        both = [seen(planted(levels_at=one, beyond=0.01), rng) for one in (a, b)]
        return of.shift(both[0], both[1])

    return run


def _joint(**truth: float) -> Callable[[Rng], Sweep]:
    return lambda rng: seen(planted(b_p=B_P, levels_at=64, **truth), rng)  # type: ignore[arg-type]


def _contrast(gain: float, n: tuple[int, ...]) -> Callable[[Rng], Estimate]:
    def run(rng: Rng) -> Estimate:
        a, b = (planted(levels_at=64, n=n, top=_TOP + g) for g in (0.0, gain))
        return scores.contrast(seen(a, rng), seen(b, rng))

    return run


def _pair(gain: float) -> Callable[[Rng], Estimate]:
    def run(rng: Rng) -> Estimate:
        small, large = planted(levels_at=4, n=(4, 64)).arms
        return scores.pair(
            seen(
                World(
                    name="pair", max_rollouts=MAX_ROLLOUTS,
                    arms=(small, replace(large, ceiling=small.ceiling + gain)),
                ),
                rng,
            )
        )  # fmt: skip

    return run


def _turns(octaves: float) -> Callable[[Rng], Estimate]:
    """At one batch of 4,096 the lead goes from n = 8 to n = 64 and back: flat and steep curves."""

    def run(rng: Rng) -> Estimate:
        arms = []
        for n in (4, 8, 16, 32, 64, 128, 256):
            steep = octaves > 0 and n > 16
            off = 0.03 * abs(math.log2(n / (64 if steep else 8)))
            arms.append(
                Arm(
                    problems_per_batch=4096 // n, rollouts_per_problem=n, floor=_FLOOR,
                    ceiling=(0.62 if steep else 0.75) - off,
                    slope=5.0 if steep else 1.5, midpoint=5.0 if steep else 5.2,
                )
            )  # fmt: skip
        world = World(name="turns", arms=tuple(arms), max_rollouts=MAX_ROLLOUTS)
        return of.turn_at_fixed_batch(seen(world, rng), 4096)

    return run


def _late_fall(rng: Rng, noise: Noise = NOISE) -> Estimate:
    """The small n that leads at a sixteenth of the budget falls after it."""
    world = planted(levels_at=4)
    arms = tuple(
        replace(arm, falls_from=5.5, fall=0.25) if arm.rollouts_per_problem < 32 else arm
        for arm in world.arms
    )
    return of.pilot_loss(seen(replace(world, arms=arms), rng, noise=noise))


def _fresh(rng: Rng, **truth: object) -> Sweep:
    """A sweep of the size of *bits, fresh*."""
    return seen(planted(**{"n": FRESH_N, **truth}), rng, FRESH_SEEDS, FRESH)  # type: ignore[arg-type]


def _fresh_shift(a: float, b: float, loss: float = 0.01) -> Callable[[Rng], Estimate]:
    def run(rng: Rng) -> Estimate:
        both = [_fresh(rng, levels_at=one, per_octave=loss, beyond=loss) for one in (a, b)]
        return of.shift(both[0], both[1])

    return run


def _one_for_both(a: float, b: float, loss: float) -> Callable[[Rng], Estimate]:
    """Two sweeps that lose so much per octave beside their best n."""

    def run(rng: Rng) -> Estimate:
        both = [_fresh(rng, levels_at=one, per_octave=loss, beyond=loss) for one in (a, b)]
        return scores.one_for_both(both[0], both[1])

    return run


def _splits(levels_at: float, beyond: float = 0.0) -> Callable[[Rng], Estimate]:
    """All splits of 1,024: the planted sweep at one B_p, each n at its own."""

    def run(rng: Rng) -> Estimate:
        sweep = _fresh(rng, levels_at=levels_at, beyond=beyond)
        own = [c.replace(problems_per_batch=1024 // c.rollouts_per_problem) for c in sweep]
        return of.rise_at_fixed_batch(own, 1024)

    return run


def _tokens(power: float) -> Callable[[Rng], Estimate]:
    """A rollout costs n to this power in tokens."""

    def run(rng: Rng) -> Estimate:
        sweep = seen(planted(levels_at=64, beyond=0.01), rng)
        return of.shift_of_rise(
            [c.replace(tokens_K=c.rollouts_K * float(c.rollouts_per_problem) ** power)
             for c in sweep]
        )  # fmt: skip

    return run


def _least_bp(on_hard: float) -> Callable[[Rng], Estimate]:
    def run(rng: Rng) -> Estimate:
        both = [_joint(follows_batch=0.0, bp_gain=gain)(rng) for gain in (0.0, on_hard)]
        return of.bp_minimum(both[0], both[1])

    return run


def _interfere(worse: float) -> Callable[[Rng], Estimate]:
    """300 problems, three seeds: pass rates rise by 0.4, but for a share that falls by 0.2."""

    def run(rng: Rng) -> Estimate:
        found = []
        for _ in range(SEEDS):
            before_P = rng.uniform(0.3, 0.6, 300)
            after_P = before_P + np.where(rng.random(300) < worse, -0.2, 0.4)
            counts = [rng.binomial(4, p_P) for p_P in (before_P, after_P)]
            share = progress(counts[0], counts[1], 4, 4).interference
            found.append(math.nan if share is None else share)
        return scores.over_seeds(found)

    return run


def _drawn_again(seeds: int, configurations: Callable[[int, int], bool], rng: Rng) -> Sweep:
    """So many seeds of *bits, fresh*: its own twenty runs, drawn with replacement."""
    of: dict[tuple[int, int], Sweep] = {}
    for name in ("fresh-bits", "fresh-splits-bits"):
        for curve in load_curves([str(RESULTS / f"{name}.parquet")]):
            if configurations(*curve.configuration):
                of.setdefault(tuple(curve.configuration), []).append(curve)
    return [
        runs[i].replace(run=f"{key}-{seed}", seed=seed)
        for key, runs in of.items() for seed, i in enumerate(rng.integers(0, len(runs), seeds))
    ]  # fmt: skip


def _sixty_shift(a: int, b: int) -> Callable[[Rng], Estimate]:
    """Row 6 between two B_p, n = 4 to 256."""
    return lambda rng: of.shift(
        *(_drawn_again(SIXTY, lambda b_p, n, one=one: b_p == one and n <= 256, rng)  # type: ignore[misc]
          for one in (a, b))
    )  # fmt: skip


def _sixty_splits(rng: Rng) -> Estimate:
    return of.rise_at_fixed_batch(
        _drawn_again(SIXTY, lambda b_p, n: b_p * n == 1024, rng), 1024
    )


THREE, ONE = (4, 16, 64), (256,)

TRIALS: tuple[Trial, ...] = (
    Trial(rows="1, 2, 17, 24, 30, 31", truth="n* rises by four octaves", expected="holds",
          kind="above", smallest=2.0, run=_rises(64)),
    Trial(rows="1, 2, 17, 24, 30, 31", truth="by two", expected="holds",
          kind="above", smallest=2.0, run=_rises(16)),
    Trial(rows="1, 2, 17, 24, 30, 31", truth="not at all: n = 4 stays ahead", expected="does not",
          kind="above", smallest=2.0, run=_rises(4, beyond=0.01)),
    Trial(rows="1, 2, 17, 24, 30, 31", truth="all n meet in the end", expected="undecided",
          kind="above", smallest=2.0, run=_rises(4)),
    Trial(rows="3, 4", truth="level from n = 16", expected="holds", kind="at_most",
          smallest=0.02, run=lambda g: of.loss_of_staying(seen(planted(levels_at=16), g))),
    Trial(rows="3, 4", truth="level from n = 64", expected="holds", kind="at_most",
          smallest=0.02, run=lambda g: of.loss_of_staying(seen(planted(levels_at=64), g))),
    Trial(rows="3, 4", truth="still rising: 0.04 an octave", expected="does not", kind="at_most",
          smallest=0.02,
          run=lambda g: of.loss_of_staying(seen(planted(levels_at=4096, per_octave=0.04), g))),
    Trial(rows="5, 6, 8, 9, 10, 22", truth="two n* two octaves apart", expected="holds",
          kind="above", smallest=2.0, run=_shift(16, 64)),
    Trial(rows="5, 6, 8, 9, 10, 22", truth="four octaves apart", expected="holds",
          kind="above", smallest=2.0, run=_shift(16, 256)),
    Trial(rows="5, 6, 8, 9, 10, 22", truth="the same n*", expected="does not",
          kind="above", smallest=2.0, run=_shift(32, 32)),
    Trial(rows="13", truth="out by two octaves and back", expected="holds",
          kind="above", smallest=1.0, run=_turns(2.0)),
    Trial(rows="13", truth="no turn", expected="does not",
          kind="above", smallest=1.0, run=_turns(0.0)),
    Trial(rows="14", truth="B_p counts for nothing", expected="holds", kind="above",
          smallest=1 / 3, run=lambda g: of.spread_share(_joint(follows_batch=0.0)(g))),
    Trial(rows="15", truth="B_p moves the score as much as n", expected="holds", kind="within",
          smallest=1 / 3,
          run=lambda g: of.spread_share(_joint(follows_batch=0.0, bp_gain=0.02)(g))),
    Trial(rows="39, 40", truth="n* follows n", expected="holds", kind="within", smallest=0.5,
          run=lambda g: of.direction(_joint(follows_batch=0.0)(g))),
    Trial(rows="39, 40", truth="n* follows the batch", expected="does not", kind="within",
          smallest=0.5, run=lambda g: of.direction(_joint(follows_batch=1.0)(g))),
    Trial(rows="25, 26, 32 to 35, 45", truth="two arms 0.04 apart, three n", expected="holds",
          kind="above", smallest=0.02, run=_contrast(0.04, THREE)),
    Trial(rows="25, 26, 32 to 35, 45", truth="0.02 apart, three n", expected="holds",
          kind="above", smallest=0.02, run=_contrast(0.02, THREE)),
    Trial(rows="25, 26, 32 to 35, 45", truth="equal, three n", expected="does not",
          kind="above", smallest=0.02, run=_contrast(0.0, THREE)),
    Trial(rows="32 to 38", truth="0.04 apart, one n", expected="holds",
          kind="above", smallest=0.02, run=_contrast(0.04, ONE)),
    Trial(rows="27, 28, 36", truth="equal, three n", expected="holds",
          kind="at_most", smallest=0.02, run=_contrast(0.0, THREE)),
    Trial(rows="11, 19, 20, 23, 29", truth="n = 64 above n = 4 by 0.05", expected="holds",
          kind="above", smallest=0.02, run=_pair(0.05)),
    Trial(rows="11, 19, 20, 23, 29", truth="equal", expected="does not",
          kind="above", smallest=0.02, run=_pair(0.0)),
    Trial(rows="21, 46", truth="validation falls by 0.04 a decade", expected="holds", kind="above",
          smallest=0.01, run=lambda g: scores.fall(seen(planted(levels_at=64, falls=0.04), g))),
    Trial(rows="21, 46", truth="it does not fall", expected="does not", kind="above", smallest=0.01,
          run=lambda g: scores.fall(seen(planted(levels_at=4), g))),
    Trial(rows="41", truth="the n that leads early leads late", expected="holds", kind="at_most",
          smallest=0.02, run=lambda g: of.pilot_loss(seen(planted(levels_at=4, beyond=0.01), g))),
    Trial(rows="41", truth="it falls after the pilot", expected="does not", kind="at_most",
          smallest=0.02, run=_late_fall),
    Trial(rows="42", truth="n = 16 to 1,024 within 0.05", expected="holds", kind="at_most",
          smallest=0.02, run=lambda g: scores.one_seed_loss(seen(planted(levels_at=64), g))),
    Trial(rows="7", truth="a rollout costs the same at every n", expected="holds", kind="within",
          smallest=1.0, run=_tokens(0.0)),
    Trial(rows="7", truth="it costs n squared", expected="does not", kind="within",
          smallest=1.0, run=_tokens(2.0)),
    Trial(rows="16", truth="an octave of B_p is worth 0.03 on Hard", expected="holds", kind="above",
          smallest=0.05, run=_least_bp(0.03)),
    Trial(rows="16", truth="nothing on either", expected="does not", kind="above",
          smallest=0.05, run=_least_bp(0.0)),
    Trial(rows="18", truth="a tenth falls by 0.2, the rest rises by 0.4", expected="holds",
          kind="above", smallest=0.05, run=_interfere(0.1), simulations=QUICK),
    Trial(rows="18", truth="all rise", expected="does not",
          kind="above", smallest=0.05, run=_interfere(0.0), simulations=QUICK),
    Trial(rows="43, 44", truth="level from n = 16", expected="holds", kind="at_most", smallest=0.5,
          run=lambda g: of.late_move(seen(planted(levels_at=16, beyond=0.01), g))),
    Trial(rows="43, 44", truth="still rising: 0.04 an octave", expected="does not", kind="at_most",
          smallest=0.5,
          run=lambda g: of.late_move(seen(planted(levels_at=4096, per_octave=0.04), g))),
    Trial(rows="12", truth="20 seeds, seven n: up by four octaves", expected="holds",
          kind="above", smallest=2.0, run=_splits(64)),
    Trial(rows="12", truth="20 seeds, seven n: n = 4 stays ahead", expected="does not",
          kind="above", smallest=2.0, run=_splits(4, beyond=0.01)),
    Trial(rows="5, 6, 8, 10, 22", truth="20 seeds, seven n: one octave apart, 0.01 an octave",
          expected="holds", kind="above", smallest=1.0, run=_fresh_shift(32, 64)),
    Trial(rows="5, 6, 8, 10, 22", truth="20 seeds, seven n: the same n*",
          expected="does not", kind="above", smallest=1.0, run=_fresh_shift(32, 32)),
    Trial(rows="47 to 52", truth="20 seeds: two octaves apart, 0.02 an octave", expected="holds",
          kind="above", smallest=0.01, run=_one_for_both(16, 64, 0.02), simulations=QUICK),
    Trial(rows="47 to 52", truth="20 seeds: the other way round", expected="does not",
          kind="above", smallest=0.01, run=_one_for_both(64, 16, 0.02), simulations=QUICK),
    Trial(rows="47 to 52", truth="20 seeds: two octaves apart, 0.004 an octave",
          expected="does not", kind="above", smallest=0.01, run=_one_for_both(16, 64, 0.004),
          simulations=QUICK),
    Trial(rows="47 to 52", truth="20 seeds: the same n*", expected="does not",
          kind="above", smallest=0.01, run=_one_for_both(32, 32, 0.02), simulations=QUICK),
    Trial(rows="6", truth="60 seeds drawn from the 20 of bits, fresh: B_p = 32 and 128",
          expected="holds", kind="above", smallest=1.0, run=_sixty_shift(128, 32),
          simulations=QUICK),
    Trial(rows="6", truth="60 seeds drawn from those 20: B_p = 32 twice", expected="does not",
          kind="above", smallest=1.0, run=_sixty_shift(32, 32), simulations=QUICK),
    Trial(rows="12", truth="60 seeds drawn from those 20, to half of the updates",
          expected="holds", kind="above", smallest=2.0, run=_sixty_splits, simulations=QUICK),
)  # fmt: skip


def measure(trial: Trial, seed: int) -> dict[str, object]:
    """Shares of the verdicts over draws of one trial, and the median half-width of intervals."""
    simulations = trial.simulations
    found = [trial.run(np.random.default_rng([seed, i])) for i in range(simulations)]
    said = [verdict(one, trial.kind, trial.smallest) for one in found]
    widths = [(one.high - one.low) / 2 for one in found]
    share: Mapping[str, float] = {
        name: round(said.count(name) / simulations, 3)
        for name in ("holds", "does not", "undecided")
    }
    half = float(np.median(widths))
    return {
        "rows": trial.rows, "truth": trial.truth, "expected": trial.expected,
        "simulations": simulations, **share,
        "half_width": round(half, 4) if math.isfinite(half) else None,
    }  # fmt: skip


def main() -> None:
    """Measure all, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    there = {
        (r["rows"], r["truth"], r["simulations"]): r
        for r in known.get("rows", ()) if known.get("seed") == options.seed
    }  # fmt: skip
    rows = []
    for trial in TRIALS:  # one at a time is written down, so that it goes on where it stopped
        row = there.get((trial.rows, trial.truth, trial.simulations))
        rows.append(row or measure(trial, options.seed))
        print(json.dumps(rows[-1]), flush=True)
        write({"seed": options.seed, "seeds": SEEDS, "rows": rows})


def write(document: dict[str, object]) -> None:
    """power.json."""
    FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
