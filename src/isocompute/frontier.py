"""Fitted curves -> upper envelope, crossovers, who wins with what probability.

Shape legend: J configurations, V budgets (evenly spaced in log10 x), D bootstrap draws.
Source: arXiv 2603.12151, section 4; probabilities, merging and marks are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import MIN_STEPS, CurveFits
from isocompute.errors import RefusalError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BUDGETS_PER_DECADE = 48  # a step of 5% of the budget; crossovers are interpolated
IN_QUESTION = 0.02  # chance that the best configuration is one without data at a budget
OCTAVE = float(np.log10(2))
_NEVER = 1e3  # stands for a score without data: finite, so that sums stay so
SUPPORTED = 0.80  # a change that fewer than four in five draws confirm is a tie
EXCLUDED = 0.95  # ... but what this share of the draws contradicts cannot keep the lead


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of budgets with one best configuration; x in the unit of the fit."""

    start: float
    end: float
    configuration: int
    score_start: float
    score_end: float
    probability_best: float
    extrapolated: bool


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Where the best configuration changes."""

    at: float
    interval: tuple[float | None, float | None]
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The envelope over a set of configurations.

    Args:
        x_V: log10 budgets, ascending.
        score_JV: fitted scores.
        best_V: index of the best configuration after ties were resolved.
        supported_V: budgets at which every configuration in question has data.
        draw_best_DV: index of the best configuration in every draw.
        floor: median over the configurations of the score that their curves start from.
        draw_last_DJ: scores at the largest budget of the common support in every draw.
        probability_JV: share of the draws in which a configuration is best.
        drift_JV: gain of that share, of those with data, in draws of twice their variance.
        regret_JV: expected loss of score by choosing a configuration.
        segments, crossovers: the same path in words.
        ties: changes that were taken back, as (before, after, at, confidence).
    """

    x_V: FloatArray
    score_JV: FloatArray
    best_V: IntArray
    supported_V: NDArray[np.bool_]
    draw_best_DV: IntArray
    floor: float
    draw_last_DJ: FloatArray
    probability_JV: FloatArray
    drift_JV: FloatArray
    regret_JV: FloatArray
    segments: tuple[Segment, ...]
    crossovers: tuple[Crossover, ...]
    ties: tuple[tuple[int, int, float, float], ...]

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest budget of the common support."""
        inside = self.x_V[self.supported_V]
        return float(10 ** inside[0]), float(10 ** inside[-1])


def fit_frontier(fits: CurveFits, *, level: float = 0.95) -> Frontier:
    """Upper envelope of the fitted curves with its uncertainty.

    Budgets are ranked only where every configuration that could be best has data and 20
    steps: the common support. A change of the best configuration that the draws do not
    confirm is a tie, and the configuration that led before keeps the lead.

    Args:
        fits: fitted curves with draws.
        level: of the crossovers' intervals.

    Raises:
        RefusalError: with fewer than two configurations, or none compared at a common budget.
    """
    if len(fits.binned) < 2:
        raise RefusalError(
            "a frontier needs at least 2 configurations with a fitted curve, but got "
            f"{len(fits.binned)}; add runs with another rollouts_per_problem.",
            ["the same study with rollouts_per_problem at least two octaves above and below"],
        )
    low, high = float(fits.start_J.min()), float(fits.end_J.max())
    if not np.isfinite(low) or high <= low:
        raise _no_twenty_steps(fits)
    x_V = np.linspace(low, high, max(24, int(np.ceil((high - low) * BUDGETS_PER_DECADE)) + 1))
    score, draw_score = fits.value(x_V), fits.draw_value(x_V)
    J, D = len(score), len(draw_score)
    draw_best = draw_score.argmax(axis=1)
    probability = _share_best(draw_best, J)
    regret = (draw_score.max(axis=1, keepdims=True) - draw_score).mean(axis=0)
    has_data = (x_V >= fits.start_J[:, None] - 1e-9) & (x_V <= fits.end_J[:, None] + 1e-9)
    ranked = ((probability * ~has_data).sum(axis=0) < IN_QUESTION) & (has_data.sum(axis=0) > 1)
    ended = (probability * (x_V > fits.end_J[:, None] + 1e-9)).sum(axis=0)
    supported = _longest_run(_bridged(ranked, x_V, open_V=ended < IN_QUESTION))
    if supported.sum() < 2:
        raise RefusalError(
            "configurations can be ranked only at budgets where all that could be best have data "
            f"(from 20 steps on), but the {J} configurations share none; "
            "run the larger n longer, or the smaller n further.",
            ["every rollouts_per_problem to the same budget in rollouts, at least 20 steps each"],
        )
    eligible = has_data | ~supported
    candidate = np.where(eligible, score, -np.inf)
    noisier = np.where(eligible, score + np.sqrt(2) * (draw_score - score), -np.inf)
    as_drawn = np.where(eligible, draw_score, -np.inf)
    drift = _share_best(noisier.argmax(axis=1), J) - _share_best(as_drawn.argmax(axis=1), J)
    best, ties = _resolve_ties(candidate, draw_best, supported, x_V, fits.rollouts_per_problem_J)
    segments = _segments(best, score, probability, supported, x_V)
    crossovers = crossovers_of(segments, draw_score, x_V, supported, level) if D else ()
    return Frontier(
        x_V=x_V,
        score_JV=score,
        best_V=best,
        supported_V=supported,
        draw_best_DV=draw_best,
        floor=float(np.median(fits.fit.floor)),
        draw_last_DJ=draw_score[:, :, np.flatnonzero(supported)[-1]],
        probability_JV=probability,
        drift_JV=drift,
        regret_JV=regret,
        segments=segments,
        crossovers=crossovers,
        ties=ties,
    )


def _share_best(best_DV: IntArray, J: int) -> FloatArray:
    """Share of the draws in which each configuration is best, shape (J, V)."""
    return np.stack([(best_DV == j).mean(axis=0) for j in range(J)])


def _no_twenty_steps(fits: CurveFits) -> RefusalError:
    batch = min(one.batch_size for one in fits.binned)
    most = max(float(c.rollouts_K.max()) for one in fits.binned for c in one.runs)
    return RefusalError(
        f"a frontier needs evaluations beyond {MIN_STEPS} steps, but no configuration has them: "
        f"the largest budget is {most:,.6g} rollouts, {most / batch:.3g} steps of the smallest "
        f"batch (B_p * n = {batch}); train longer, or convert the column if it holds steps, "
        "hours, tokens or log10 C: rollouts = B_p * n * steps.",
        [f"every configuration to {MIN_STEPS} steps and beyond, and to one budget"],
    )


def _bridged(
    flag_V: NDArray[np.bool_], x_V: FloatArray, *, open_V: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Gaps of up to an octave between True stretches closed, where `open_V` holds all along.

    A configuration that comes to lead is in question just before its 20th step. It is no choice
    there yet, and what was compared on either side belongs together: without this the budgets
    from its 20th step on, the largest of the sweep, would count as not compared.
    """
    out = flag_V.copy()
    for start, stop in _runs(flag_V.astype(np.int64)):
        inner = start > 0 and stop < len(flag_V) and not flag_V[start]
        if inner and x_V[stop] - x_V[start - 1] <= OCTAVE and open_V[start:stop].all():
            out[start:stop] = True
    return out


def _longest_run(flag_V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Only the longest unbroken stretch of True."""
    padded = np.concatenate([[False], flag_V, [False]])
    edges = np.flatnonzero(np.diff(padded.astype(int)))
    out = np.zeros(len(flag_V), dtype=bool)
    if len(edges):
        starts, ends = edges[::2], edges[1::2]
        k = int((ends - starts).argmax())
        out[starts[k] : ends[k]] = True
    return out


def _runs(path_V: IntArray) -> list[tuple[int, int]]:
    """[start, stop) of each stretch of one value."""
    cuts = [0, *(np.flatnonzero(np.diff(path_V)) + 1).tolist(), len(path_V)]
    return list(pairwise(cuts))


def _resolve_ties(
    candidate_JV: FloatArray,
    draw_best_DV: IntArray,
    supported_V: NDArray[np.bool_],
    x_V: FloatArray,
    n_J: IntArray,
) -> tuple[IntArray, tuple[tuple[int, int, float, float], ...]]:
    """The path with only those changes of n that the draws confirm.

    A change to a larger n stands if somewhere in its stretch `SUPPORTED` of the draws put n* at
    least as high; a change to a smaller n, at least as low. The least certain change is taken
    back first: to an n on the way that the draws do confirm, else its stretch is shared between
    its neighbours at the point where that costs least. (Each round leaves fewer stretches, or one
    nearer to what leads before it.) Outside the common support nothing is ranked: above it the
    edge's winner stands, below it the largest fitted score, both marked.
    """
    inside = np.flatnonzero(supported_V)
    first, last = int(inside[0]), int(inside[-1])
    value = candidate_JV[:, first : last + 1]
    value = np.where(np.isfinite(value), value, -_NEVER)
    draw_n_DV = n_J[draw_best_DV[:, first : last + 1]]
    path = value.argmax(axis=0)
    ties: list[tuple[int, int, float, float]] = []
    while True:
        runs = _runs(path)
        weakest: tuple[float, int] | None = None
        for i, (a, b) in enumerate(runs[1:], start=1):
            before, after = int(path[a - 1]), int(path[a])
            drawn = draw_n_DV[:, a:b]
            confidence = _confidence(drawn, int(n_J[before]), int(n_J[after]))
            if confidence < SUPPORTED and (weakest is None or confidence < weakest[0]):
                weakest = (confidence, i)
        if weakest is None:
            break
        confidence, i = weakest
        a, b = runs[i]
        before, after = int(path[a - 1]), int(path[a])
        ties.append((after, before, float(10 ** x_V[first + a]), confidence))
        part = _part_of_the_way(value[:, a:b], draw_n_DV[:, a:b], n_J, before, after)
        if part is not None:
            k, offset = part
            path[a : a + offset], path[a + offset : b] = before, k
            continue
        split = b
        if i + 1 < len(runs):
            split = a + _overtakes(value[before, a:b] - value[int(path[b]), a:b])
            path[split:b] = path[b]
        path[a:split] = before
    runs = _runs(path)
    if len(runs) > 2:
        # Curves often lie together where they begin: no turn there unless the draws confirm it.
        start, second, end = int(path[0]), int(path[runs[1][0]]), int(path[-1])
        confidence = _confidence(draw_n_DV[:, : runs[0][1]], int(n_J[second]), int(n_J[start]))
        turns = (n_J[start] - n_J[second]) * (n_J[end] - n_J[second]) > 0
        if turns and confidence < SUPPORTED:
            ties.append((start, second, float(10 ** x_V[first]), confidence))
            path[: runs[0][1]] = second
    full = candidate_JV.argmax(axis=0)
    full[first : last + 1], full[last + 1 :] = path, path[-1]
    return full, tuple(ties)


def _confidence(drawn_DV: IntArray, n_before: int, n_after: int) -> float:
    """Largest share of the draws that put n* at least as far as a change does, over a stretch."""
    agrees = drawn_DV >= n_after if n_after >= n_before else drawn_DV <= n_after
    return float(agrees.mean(axis=0).max())


def _overtakes(lead_V: FloatArray) -> int:
    """Where giving up a lead costs least."""
    return int(np.concatenate([[0.0], lead_V]).cumsum().argmax())


def _part_of_the_way(
    value_JV: FloatArray, drawn_DV: IntArray, n_J: IntArray, before: int, after: int
) -> tuple[int, int] | None:
    """An n on the way from one leader to the next, where the draws exclude that the first stays.

    Without it, where 64 leads, then 256, and the draws are split between 128 and 256, the path
    would stay at 64, which none of them says.

    Returns:
        Its configuration (the one of the largest scores) and where in the stretch it takes the
        lead; None where the draws confirm none.
    """
    low, high = sorted((int(n_J[before]), int(n_J[after])))
    beyond = drawn_DV > low if n_J[after] > low else drawn_DV < high
    if beyond.mean(axis=0).max() < EXCLUDED:
        return None
    found: list[tuple[float, int, int]] = []
    for k in np.flatnonzero((n_J > low) & (n_J < high)):
        offset = _overtakes(value_JV[before] - value_JV[k])
        rest = drawn_DV[:, offset:]
        if rest.shape[1] and _confidence(rest, int(n_J[before]), int(n_J[k])) >= SUPPORTED:
            found.append((float(value_JV[k, offset:].mean()), int(k), offset))
    return max(found)[1:] if found else None


def _segments(
    best_V: IntArray,
    score_JV: FloatArray,
    probability_JV: FloatArray,
    supported_V: NDArray[np.bool_],
    x_V: FloatArray,
) -> tuple[Segment, ...]:
    """Stretches of one configuration, cut where the support begins and ends too."""
    code = best_V * 2 + supported_V
    out: list[Segment] = []
    runs = _runs(code)
    for i, (a, b) in enumerate(runs):
        j = int(best_V[a])
        end = b if i + 1 < len(runs) else b - 1  # a segment ends where the next begins
        if end <= a and out:
            continue
        out.append(
            Segment(
                start=float(10 ** x_V[a]),
                end=float(10 ** x_V[end]),
                configuration=j,
                score_start=float(score_JV[j, a]),
                score_end=float(score_JV[j, end]),
                probability_best=float(probability_JV[j, a:b].mean()),
                extrapolated=not bool(supported_V[a]),
            )
        )
    return tuple(out)


def crossovers_of(
    segments: tuple[Segment, ...],
    draw_DJV: FloatArray,
    x_V: FloatArray,
    supported_V: NDArray[np.bool_],
    level: float,
) -> tuple[Crossover, ...]:
    """Change points of the path inside the common support, with intervals from the draws."""
    out = []
    inside = np.flatnonzero(supported_V)
    first, last = int(inside[0]), int(inside[-1])
    for left, right in pairwise(segments):
        if left.configuration == right.configuration or right.extrapolated:
            continue
        at = np.log10(right.start)
        lead = (
            draw_DJV[:, right.configuration, first : last + 1]
            - draw_DJV[:, left.configuration, first : last + 1]
        )
        out.append(
            Crossover(
                at=right.start,
                interval=crossing_interval(lead, x_V[first : last + 1], at, level),
                before=left.configuration,
                after=right.configuration,
            )
        )
    return tuple(out)


def crossing_interval(
    lead_DV: FloatArray, x_V: FloatArray, near: float, level: float
) -> tuple[float | None, float | None]:
    """Where one curve overtakes another, from how far it leads in every draw.

    Args:
        lead_DV: its score minus the other's.
        x_V: log10 budgets.
        near: log10 budget: the crossing nearest to it counts where a draw has several.
        level: of the interval.

    Returns:
        Budgets; an end is None where the draws do not cross on that side.
    """
    tail = (1 - level) / 2
    positions = crossings(lead_DV, x_V, near)
    lo, hi = np.quantile(positions, [tail, 1 - tail], method="inverted_cdf")
    return (
        None if not np.isfinite(lo) else float(10**lo),
        None if not np.isfinite(hi) else float(10**hi),
    )


def crossings(lead_DV: FloatArray, x_V: FloatArray, near: float) -> FloatArray:
    """log10 x at which each lead turns positive, nearest to `near`; -inf or inf without one."""
    up = (lead_DV[:, :-1] <= 0) & (lead_DV[:, 1:] > 0)
    i = np.where(up, np.abs(x_V[:-1] - near), np.inf).argmin(axis=1)
    rows = np.arange(len(lead_DV))
    before, after = lead_DV[rows, i], lead_DV[rows, i + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = x_V[i] - before / (after - before) * (x_V[i + 1] - x_V[i])
    nowhere = np.where(lead_DV[:, -1] > 0, -np.inf, np.inf)
    out: FloatArray = np.where(up.any(axis=1), crossing, nowhere)
    return out
