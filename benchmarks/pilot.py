"""Does a pilot know the n? A tenth of a sweep's rollouts, and what its n loses later.

    python benchmarks/pilot.py [--share 0.1]

Every curve of a sweep is cut at a share of its budget. From what is left each rule names an n for
nine budgets between there and the end; what that n scores there below the best is read off the
model's fit of the whole sweep. Sweeps: the published panels, the studies in studies/results, the
grid. Means are over worlds, each the mean of its sweeps, with the standard error between worlds.

Rules that see the pilot: the model, fitted to it and asked beyond it; a noise law, steps to a
score ~ 1 + b / n with b read at the scores that the pilot reached, and followed in log rollouts;
both, the geometric mean of the two; the n that leads at its end. Rules that see nothing: 64, the
law printed for the 7B model on Easy or Hard, the largest n.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.answers.paper import printed_law
from isocompute.domain import Curve
from isocompute.model import Posterior, fit_posterior
from isocompute.sources import load_curves

FloatArray = NDArray[np.float64]

RESULTS = Path(__file__).parents[1] / "studies/results"
BUDGETS = 9
SHARE = 0.1
DRAWS = 200
LEAST = 3  # values of n that were evaluated so early
# Batches grow with n and the learning rate with their root, so that steps fall with the root of n.
ROOT = 0.5
SWEEPS: dict[str, tuple[tuple[str, str, int, str], ...]] = {  # world: source, arm, B_p, difficulty
    "7B, Easy": tuple((f"published:qwen2.5-7b-easy{b}", "", 0, "easy")
                      for b in ("", "-bp64", "-bp256")),
    "7B, Hard": tuple((f"published:qwen2.5-7b-hard{b}", "", 0, "hard")
                      for b in ("", "-bp64", "-bp256")),
    "bits, easy": tuple(("bits.csv", f"problems={size}", b, "easy")
                        for size in ("large", "small") for b in (16, 64)),
    "bits, hard": tuple(("hard-bits.csv", "", b, "hard") for b in (16, 64)),
    "countdown": (("countdown.csv", "", 16, "easy"),),
    "machine": (("machine.csv", "", 16, "easy"),),
    "products": (("products.csv", "", 16, "easy"),),
    "verbs, easy": (("grid:easy", "", 32, "easy"),),
    "verbs, hard": (("grid:hard", "", 32, "hard"),),
}  # fmt: skip


def curves_of(source: str, arm: str, b_p: int) -> list[Curve]:
    """The curves of one sweep at one B_p."""
    path = source if ":" in source else str(RESULTS / source)
    where = [f"arm={arm}"] if arm else []
    return [c for c in load_curves([path], where=where) if not b_p or c.problems_per_batch == b_p]


class Pilot(NamedTuple):
    """What a rule may see: the fit of the pilot, its n, the budgets asked for."""

    fit: Posterior
    n_J: FloatArray
    x_X: FloatArray  # log10 of rollouts
    difficulty: str


def model(pilot: Pilot) -> FloatArray:
    """The n of largest expected score."""
    return pilot.n_J[pilot.fit.scores(pilot.x_X).mean(axis=0).argmax(axis=0)]


def leader(pilot: Pilot) -> FloatArray:
    """The n that leads where the pilot ends."""
    return np.repeat(model(pilot._replace(x_X=pilot.x_X[:1])), len(pilot.x_X))


def noise_law(pilot: Pilot) -> FloatArray:
    """The n of fewest rollouts to a score, n^(1/2) (1 + b / n), is b; it follows log rollouts."""
    n_J, x_X = pilot.n_J, pilot.x_X
    at_X = np.linspace(x_X[0] - 1.5, x_X[0], 60)
    best_JX = np.maximum.accumulate(pilot.fit.scores(at_X).mean(axis=0), axis=1)
    low, high = best_JX[:, 0].max(), np.sort(best_JX[:, -1])[-LEAST]
    b_B = np.geomspace(1, 4096, 121)
    places, found = [], []
    for level in np.linspace(low, high, 12)[1:-1]:
        there = best_JX[:, -1] >= level
        reached_J = np.array([np.interp(level, row, at_X) for row in best_JX[there]])
        law_BJ = ROOT * np.log10(n_J[there]) + np.log10(1 + b_B[:, None] / n_J[there])
        rest_BJ = reached_J - law_BJ
        worst_B = ((rest_BJ - rest_BJ.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        places.append(reached_J.mean())
        found.append(np.log10(b_B[worst_B.argmin()]))
    if len(set(places)) < 2 or low >= high:
        return leader(pilot)
    slope, start = np.polyfit(places, found, 1)
    return nearest(10.0 ** (start + max(slope, 0.0) * x_X), n_J)


def both(pilot: Pilot) -> FloatArray:
    """The geometric mean of model and noise law."""
    return nearest(np.sqrt(model(pilot) * noise_law(pilot)), pilot.n_J)


def always(pilot: Pilot) -> FloatArray:
    """Always n = 64."""
    return nearest(np.full(len(pilot.x_X), 64.0), pilot.n_J)


def printed(pilot: Pilot) -> FloatArray:
    """The law printed for the 7B model."""
    law = printed_law(f"published:qwen2.5-7b-{pilot.difficulty}")
    assert law is not None
    return nearest(np.array([float(law.law.predict(10.0**x)) for x in pilot.x_X]), pilot.n_J)


def largest(pilot: Pilot) -> FloatArray:
    """The largest n."""
    return np.full(len(pilot.x_X), pilot.n_J.max())


RULES: dict[str, Callable[[Pilot], FloatArray]] = {
    "model": model, "noise law": noise_law, "both": both, "leader": leader, "64": always,
    "printed law": printed, "largest": largest,
}  # fmt: skip


def nearest(wanted_X: FloatArray, n_J: FloatArray) -> FloatArray:
    """The tested n nearest in log n."""
    away_XJ = np.abs(np.log(wanted_X)[:, None] - np.log(n_J))
    return n_J[away_XJ.argmin(axis=1)]


def lost(curves: Sequence[Curve], kind: str, share: float) -> dict[str, float] | None:
    """Score that each rule loses, mean of the budgets after the pilot; None: no pilot."""
    whole = fit_posterior(curves, draws=DRAWS)
    n_J = np.array([c.rollouts_per_problem for c in whole.configurations], float)
    end = float(whole.last_J.min())
    x_X = np.linspace(end + np.log10(share), end, BUDGETS)
    early = [c.until(10 ** x_X[0] * (1 + 1e-9)) for c in curves]
    early = [c for c in early if c.rollouts_K.max(initial=0.0) > 0]
    if len({c.rollouts_per_problem for c in early}) < LEAST:
        return None
    pilot = fit_posterior(early, draws=DRAWS)
    seen = [c in pilot.configurations for c in whole.configurations]
    score_JX = whole.scores(x_X).mean(axis=0)
    rows = {n: j for j, n in enumerate(n_J)}
    of = {}
    for name, rule in RULES.items():
        chosen_X = rule(Pilot(pilot, n_J[seen], x_X, kind))
        mine_X = score_JX[[rows[n] for n in chosen_X], np.arange(BUDGETS)]
        of[name] = float((score_JX.max(axis=0) - mine_X).mean())
    return of


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=SHARE, help="of the budget, for the pilot")
    share = parser.parse_args().share
    print("| world | sweeps | " + " | ".join(RULES) + " |\n|" + "---|" * (2 + len(RULES)))
    worlds, total = [], 0
    for world, sweeps in SWEEPS.items():
        every = [lost(curves_of(s, arm, b), kind, share) for s, arm, b, kind in sweeps]
        cases = [case for case in every if case]
        total += len(cases)
        if not cases:
            print(f"| {world} | 0 |" + " |" * len(RULES))
            continue
        worlds.append([np.mean([case[name] for case in cases]) for name in RULES])
        print(f"| {world} | {len(cases)} | " + " | ".join(f"{v:.4f}" for v in worlds[-1]) + " |",
              flush=True)  # fmt: skip
    mean, se = np.mean(worlds, axis=0), np.std(worlds, axis=0, ddof=1) / np.sqrt(len(worlds))
    print(f"| mean of worlds | {total} | "
          + " | ".join(f"{m:.4f} ±{s:.4f}" for m, s in zip(mean, se, strict=True))
          + " |")  # fmt: skip
    difference = np.subtract(worlds, np.array(worlds)[:, [0]])
    print("| above the model, paired | | "
          + " | ".join(f"{m:+.4f} ±{s:.4f}" for m, s in zip(
              difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(len(worlds)),
              strict=True)) + " |")  # fmt: skip


if __name__ == "__main__":
    main()
