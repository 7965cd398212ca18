"""Scores at equal rollouts: Student's t over seeds, paired by (B_p, n, seed).

One number per seed, so that configurations of one seed never count as independent.

Shape legend: X budgets, K evaluations, S seeds, T two sweeps, N values of n.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as student

from isocompute.answers import fit_sweep
from isocompute.domain import Curve
from scorecard.statistics import LEVEL, ONE_N, FloatArray, Key, Sweep, one_n, spent, unknown
from scorecard.verdicts import Estimate

Runs = Mapping[tuple[int, int, int], float]  # (B_p, n, seed) -> a number of that run

SMALL, LARGE = (
    4,
    64,
)  # the two n that every world has; sixteen times apart, as the paper's 8 and 128
LAST = 0.2  # of a run's rollouts: the mean of its evaluations there is its final score. Half of it
# leaves one evaluation at the largest n (noise of a single one, 0.014); twice averages over a rise.
WINDOW = 0.25  # decades of the moving mean in which a peak is looked for


def final_scores(sweep: Sweep) -> dict[tuple[int, int, int], float]:
    """Mean score of every run over the last fifth of the rollouts that all its peers reached."""
    end = min(c.rollouts_K[-1] for c in sweep)
    out = {}
    for c in sweep:
        kept_K = c.rollouts_K <= end * (1 + 1e-9)
        late_K = kept_K & (c.rollouts_K > (1 - LAST) * end)
        late_K[np.flatnonzero(kept_K)[-1]] = True
        out[(*c.configuration, c.seed or 0)] = float(c.score_K[late_K].mean())
    return out


def over_seeds(values: Sequence[float], rollouts: float = 0.0, note: str = "") -> Estimate:
    """Mean over seeds with Student's interval; one seed has none."""
    value_S = np.array([v for v in values if math.isfinite(v)])
    if not len(value_S):
        return unknown("no runs in common")
    mean = float(np.mean(value_S))
    if len(value_S) < 2:
        return Estimate(mean, -math.inf, math.inf, 1, rollouts, "one seed has no interval")
    error = float(np.std(value_S, ddof=1)) / math.sqrt(len(value_S))
    half = float(student.ppf((1 + LEVEL) / 2, len(value_S) - 1)) * error
    return Estimate(mean, mean - half, mean + half, len(value_S), rollouts, note)


def per_seed(difference: Runs) -> list[float]:
    """One number per seed: the mean over its configurations."""
    by_seed = defaultdict(list)
    for (_, _, seed), value in difference.items():
        by_seed[seed].append(value)
    return [float(np.mean(values)) for _, values in sorted(by_seed.items())]


def contrast_runs(a: Runs, b: Runs, rollouts: float = 0.0) -> Estimate:
    """Number of b minus that of a, paired by (B_p, n, seed)."""
    return over_seeds(per_seed({key: b[key] - a[key] for key in b if key in a}), rollouts)


def contrast(a: Sweep, b: Sweep) -> Estimate:
    """Final score of b minus that of a, at equal rollouts, paired by (B_p, n, seed)."""
    end = min(c.rollouts_K[-1] for c in (*a, *b))
    both = [final_scores([c.until(end) for c in one]) for one in (a, b)]
    return contrast_runs(both[0], both[1], spent(a, b))


def pair_runs(
    runs: Runs, small: int = SMALL, large: int = LARGE, rollouts: float = 0.0
) -> Estimate:
    """Number at the large n minus that at the small n, paired by (B_p, seed)."""
    at = {(b_p, seed): v for (b_p, n, seed), v in runs.items() if n == small}
    both = {
        (b_p, n, seed): v - at[b_p, seed]
        for (b_p, n, seed), v in runs.items()
        if n == large and (b_p, seed) in at
    }
    return over_seeds(per_seed(both), rollouts)


def pair(sweep: Sweep, small: int = SMALL, large: int = LARGE) -> Estimate:
    """Final score at the large n minus that at the small n, paired by (B_p, seed)."""
    two = [c for c in sweep if c.rollouts_per_problem in (small, large)]
    if {c.rollouts_per_problem for c in two} != {small, large}:
        return unknown(f"n = {small} and n = {large} are not both there")
    runs: dict[tuple[int, int, int], float] = {}
    for b_p in {c.problems_per_batch for c in two}:  # at equal rollouts within a B_p
        runs |= final_scores([c for c in two if c.problems_per_batch == b_p])
    return pair_runs(runs, small, large, spent(two))


def moved(sweep: Sweep) -> Estimate:
    """Final score minus the score before training, per seed."""
    start = {(*c.configuration, c.seed or 0): float(c.score_K[0]) for c in sweep}
    ends = {
        (*c.configuration, c.seed or 0): final_scores([c])[(*c.configuration, c.seed or 0)]
        for c in sweep
    }
    return contrast_runs(start, ends, spent(sweep))


def fall(sweep: Sweep) -> Estimate:
    """Score lost since the peak, where a run's peak is found in the other seeds' mean.

    A peak sought in the same run would be the largest of its noise; so flat runs fall by 0 here.
    """
    runs: dict[Key, list[Curve]] = defaultdict(list)
    for c in sweep:
        runs[c.configuration].append(c)
    lost: dict[tuple[int, int, int], float] = {}
    for key, peers in runs.items():
        if len(peers) < 2:
            continue
        end = min(c.rollouts_K[-1] for c in peers)
        first = max(c.rollouts_K[c.rollouts_K > 0][0] for c in peers)
        x_X = np.linspace(np.log10(first), np.log10(end), 40)
        smooth_SX = np.array([_smooth(c, x_X) for c in peers])
        for s, c in enumerate(peers):
            others_X = np.delete(smooth_SX, s, axis=0).mean(axis=0)
            peak = int(others_X.argmax())
            lost[(*key, c.seed or 0)] = float(smooth_SX[s, peak] - smooth_SX[s, -1])
    return over_seeds(per_seed(lost), spent(sweep))


def _smooth(curve: Curve, x_X: FloatArray) -> FloatArray:
    """Moving mean over a quarter of a decade; where no evaluation lies, the nearest one."""
    positive_K = curve.rollouts_K > 0
    x_K, y_K = np.log10(curve.rollouts_K[positive_K]), curve.score_K[positive_K]
    near_XK = np.abs(x_X[:, None] - x_K) <= WINDOW / 2
    nearest_X = np.abs(x_X[:, None] - x_K).argmin(axis=1)
    near_XK[np.arange(len(x_X)), nearest_X] = True
    out: FloatArray = near_XK @ y_K / near_XK.sum(axis=1)
    return out


def equal(a: Sweep, b: Sweep) -> tuple[Sweep, Sweep]:
    """Both, cut where the shorter of them ends."""
    end = min(max(c.rollouts_K[-1] for c in sweep) for sweep in (a, b))
    return _seen([c.until(end) for c in a]), _seen([c.until(end) for c in b])


def begin(sweep: Sweep, share: float) -> Sweep:
    """The first share of every run's rollouts."""
    return _seen([c.until(share * c.rollouts_K[-1]) for c in sweep])


def _seen(sweep: Sweep) -> Sweep:
    """Without runs that were not evaluated by then."""
    return [c for c in sweep if len(c.rollouts_K)]


def one_for_both(a: Sweep, b: Sweep) -> Estimate:
    """Score that one n for both costs, the best one for both, against each with its own.

    Half of what a and b lose together, in the scale of a score. Positive where b's own n is the
    larger, negative where a's is. A flat top costs nothing, however far two n* lie apart. All n are
    chosen by the mean over the other seeds and judged on the seed left out, so that luck gains
    nothing.
    """
    tables = [_by_n(one) for one in (a, b)]
    n = sorted(set(tables[0]) & set(tables[1]))
    shared_seeds = [set(table[one]) for table in tables for one in n]
    seeds = sorted(set.intersection(*shared_seeds)) if n else []
    if len(n) < 2 or len(seeds) < 2:
        return unknown("two n and two seeds of each, in both")
    score_TSN = np.array([[[table[one][seed] for one in n] for seed in seeds] for table in tables])
    costs = []
    for s in range(len(seeds)):
        others_TN = np.delete(score_TSN, s, axis=1).mean(axis=1)
        own, shared = others_TN.argmax(axis=1), int(others_TN.sum(axis=0).argmax())
        gained = score_TSN[(0, 1), s, own] - score_TSN[:, s, shared]
        costs.append(float(np.sign(own[1] - own[0]) * gained.mean()))
    return over_seeds(costs, spent(a, b))


def _by_n(sweep: Sweep) -> dict[int, dict[int, float]]:
    """Final score of every run, by n and seed; the mean where several B_p have one n."""
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, n, seed), score in final_scores(sweep).items():
        found[n][seed].append(score)
    return {n: {s: float(np.mean(v)) for s, v in of.items()} for n, of in found.items()}


def one_seed_loss(sweep: Sweep) -> Estimate:
    """Score lost by choosing n from the final scores of a single seed, by the whole sweep's fit."""
    if one_n(sweep):
        return unknown(ONE_N)
    fit = fit_sweep(sweep)
    at = fit.support[1]
    expected = fit.expected_scores(at)
    runs = final_scores([c for c in sweep if c.rollouts_K[-1] >= at * 0.99])
    lost = []
    for seed in sorted({s for _, _, s in runs}):
        own = {k: v for k, v in runs.items() if k[2] == seed}
        b_p, n, _ = max(own, key=lambda key: own[key])
        chosen = next(c for c in expected if tuple(c) == (b_p, n))
        lost.append(max(expected.values()) - expected[chosen])
    return over_seeds(lost, spent(sweep))
