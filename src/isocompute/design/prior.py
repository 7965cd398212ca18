"""What is believed of a sweep before it is run: worlds, each a whole set of learning curves.

A world is one draw of a posterior: of the shipped published sweeps, or of an earlier study. Another
model needs more or fewer rollouts for the same progress and has its best n elsewhere, so the worlds
of the shipped sweeps are moved along the budget and along n; those of an earlier study stay.

Shape legend: W worlds, F values of n, X positions in log10 rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.allocation import powers_of_two
from isocompute.answers.around import PUBLISHED_PROBLEMS
from isocompute.answers.fit import Fit, fit_sweep
from isocompute.domain import Curve
from isocompute.errors import InputError, RefusalError
from isocompute.intervals import FloatArray
from isocompute.model import Posterior, fit_posterior
from isocompute.sources.studies import study_facts

# Sweeps of Qwen2.5-7B-Instruct by difficulty (arXiv 2603.12151). Those at B_p = 256 hold few n.
SHIPPED: Mapping[str, tuple[str, ...]] = {
    difficulty: tuple(f"published:qwen2.5-7b-{difficulty}{panel}" for panel in ("", "-bp64"))
    for difficulty in ("easy", "hard")
}
SHIPPED_BP = 32
OTHER_BP = (64, 256)  # of panels that stand alone where that B_p is asked for
# Standard deviation, in decades, of the rollouts that another model needs for the same progress: a
# belief. At 5M rollouts a guess without a sweep loses 0.012; with half of it 0.009, twice 0.011.
BUDGET_SD = 0.5
# And in octaves, of the n that is best: at half a million rollouts the study's other base models
# peak at n = 64 and 16 where the shipped one is near 40 (arXiv 2603.12151, appendix). The guess
# loses 0.012 with half of it as well, 0.014 with twice.
OCTAVES_SD = 1.0
FARTHEST = 2.0  # standard deviations; beyond them draws are cut
SHIPPED_N = (8, 512)
FEWEST_N = 3  # of a sweep: two are a comparison
LEAST_DRAWS = 40  # of a posterior: what a fit tries depends on how many are asked for
FINE = 0.04  # decades between positions at which curves are held
RANGE = (2.0, 10.0)  # log10 rollouts over which a world is known
_X = np.asarray(RANGE[0] + FINE * np.arange(round((RANGE[1] - RANGE[0]) / FINE) + 1))


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Sets of true learning curves, all equally likely.

    Args:
        problems_per_batch: B_p at which the curves were measured.
        n_F: rollouts per problem, ascending powers of two.
        x_X: log10 rollouts, even.
        score_WFX: mean score of the best checkpoint so far.
        metric: of the scores.
        sources: what the worlds were drawn from.
        longest: most rollouts of one run in those sources.
        problems: of their training set; None where it is not known.
        longest_of: most rollouts of a run by the n that those sources hold.
        batches: the smallest and the largest of their runs, in rollouts.
        tested_bp: all B_p of those sources.
        fit: of an older study.
    """

    problems_per_batch: int
    n_F: tuple[int, ...]
    x_X: FloatArray
    score_WFX: FloatArray
    metric: str
    sources: tuple[str, ...]
    longest: float
    problems: int | None = None
    longest_of: Mapping[int, float] = field(default_factory=dict)
    batches: tuple[int, int] | None = None
    tested_bp: tuple[int, ...] = ()
    fit: Fit | None = field(default=None, repr=False, compare=False)

    def passes(self, n: int) -> float | None:
        """Most passes that a run of this n, or the nearest one, made; None: not known."""
        if self.problems is None or not self.longest_of:
            return None
        near = min(self.longest_of, key=lambda one: (abs(np.log2(one / n)), one))
        return self.longest_of[near] / near / self.problems

    def __len__(self) -> int:
        return len(self.score_WFX)

    def at(self, rollouts: ArrayLike) -> FloatArray:
        """Scores (W, F) at one budget, or at one for each n (F,): of the ends beyond them."""
        x_F = np.log10(np.maximum(np.broadcast_to(rollouts, len(self.n_F)), 1.0))
        place_F = np.interp(x_F, self.x_X, np.arange(len(self.x_X)))
        left_F = np.minimum(place_F.astype(int), len(self.x_X) - 2)
        share_F, every = place_F - left_F, np.arange(len(self.n_F))
        before, after = (self.score_WFX[:, every, left_F + i] for i in (0, 1))
        return np.asarray(before + share_F * (after - before))

    def take(self, which: slice | NDArray[np.int64]) -> Worlds:
        """Some of the worlds."""
        return replace(self, score_WFX=self.score_WFX[which])


def shipped_worlds(
    difficulty: str | None, size: int, seed: int, b_p: int | None = None
) -> Worlds:
    """Worlds drawn from the published sweeps, moved along the budget and n.

    Args:
        difficulty: easy, hard, mixed (as hard), or None: both.
        size: how many worlds.
        seed: of everything random.
        b_p: asked for: worlds of the panels of that B_p, where there are any.
    """
    from isocompute.sources import load_curves

    kinds = {"easy": ("easy",), None: ("easy", "hard")}.get(difficulty, ("hard",))
    own = b_p if b_p in OTHER_BP else None
    names = [name for kind in kinds for name in (
        SHIPPED[kind] if own is None else [f"published:qwen2.5-7b-{kind}-bp{own}"])]
    rng = np.random.default_rng((seed, 11))
    luck_2W = np.clip(rng.standard_normal((2, size)), -FARTHEST, FARTHEST)
    shift_W, octaves_W = BUDGET_SD * luck_2W[0], OCTAVES_SD * luck_2W[1]
    # Dealt out in turn, so that the first worlds are a mixture, too.
    of_W = np.arange(size) % len(names)
    n_F, parts, every = _octaves(SHIPPED_N), np.empty(0), list[Curve]()
    if own is not None:  # they hold fewer n
        tested = {c.rollouts_per_problem for name in names for c in load_curves([name])}
        n_F = _octaves((min(tested), max(tested)))
    for i, name in enumerate(names):
        curves = load_curves([name])
        mine = of_W == i
        shift, octaves, count = shift_W[mine], octaves_W[mine], max(int(mine.sum()), LEAST_DRAWS)
        posterior = fit_posterior(curves, draws=count, seed=seed + i)
        score = _moved(posterior, curves[0].problems_per_batch, n_F, shift, octaves)
        parts = parts if i else np.empty((size, *score.shape[1:]))
        parts[mine] = score
        every += curves
    return Worlds(
        problems_per_batch=own or SHIPPED_BP, n_F=n_F, x_X=_X, score_WFX=parts,
        metric="avg@4", sources=tuple(names), **_reach(every),
        problems=PUBLISHED_PROBLEMS,
    )  # fmt: skip


def _reach(curves: Sequence[Curve]) -> dict[str, Any]:
    """The fields of a prior that are read off the curves."""
    of_n = dict[int, float]()
    for c in curves:
        n = c.rollouts_per_problem
        of_n[n] = max(of_n.get(n, 0.0), float(c.rollouts_K[-1]))
    batches = [c.configuration.batch_size for c in curves]
    return {"longest": max(of_n.values()), "longest_of": of_n,
            "batches": (min(batches), max(batches)),
            "tested_bp": tuple(sorted({c.problems_per_batch for c in curves}))}  # fmt: skip


def worlds_of(
    curves: Sequence[Curve], source: str, size: int, seed: int, b_p: int | None = None
) -> Worlds:
    """Worlds drawn from the fit of an earlier sweep, at a B_p asked for, else that of most n.

    Beyond its data the draws are widened by its back-test, as in a plan.

    Raises:
        InputError: fewer than two n at one B_p, or n that span no two octaves.
        RefusalError: runs that did not learn.
    """
    tested = sorted({c.configuration for c in curves})
    of_bp = {b: [n for bp, n in tested if bp == b] for b in {c[0] for c in tested}}
    if len(of_bp.get(b_p or 0, ())) < 2:
        b_p = max(of_bp, key=lambda b: (len(of_bp[b]), -b))
    assert b_p is not None
    if len(of_bp[b_p]) < 2:
        raise InputError(
            f"a prior needs at least 2 n at one B_p, but {source} has {len(of_bp[b_p])}; name "
            "another study, or leave --prior out."
        )
    n_F = _octaves(ends := (min(of_bp[b_p]), max(of_bp[b_p])))
    if len(n_F) < FEWEST_N:
        raise InputError(
            f"a prior must span two octaves of n, so that a sweep holds {FEWEST_N}, but {source} "
            f"has n = {ends[0]} to {ends[1]}; train n = {4 * ends[0]} once and give it, too, or "
            "leave --prior out."
        )
    fit = fit_sweep(curves, draws=max(size, LEAST_DRAWS), seed=seed)
    # A fit that failed its back-test is widened by it; of runs that stay level nothing is left.
    if stops := [one for one in fit.notices if one.code in ("scores_fall", "scores_flat")]:
        raise RefusalError(
            f"{source} cannot be a prior: {stops[0].text} {stops[0].remedy} Or leave --prior out.",
            [one.remedy for one in stops],
        )
    score_WFX = _moved(fit.posterior, b_p, n_F, np.zeros(size), np.zeros(size), fit.wider)
    logged = next((c.trained_on for c in curves if c.trained_on), None)
    return Worlds(
        problems_per_batch=b_p, n_F=n_F, x_X=_X, score_WFX=score_WFX,
        metric=curves[0].metric or "score", sources=(source,),
        **_reach(curves), fit=fit, problems=study_facts(source).problems or logged,
    )  # fmt: skip


def _octaves(ends: tuple[int, int]) -> tuple[int, ...]:
    low, high = ends
    return tuple(powers_of_two(low, high)) or (low,)


def _moved(
    posterior: Posterior, b_p: int, n_F: Sequence[int], shift_W: FloatArray, octaves_W: FloatArray,
    wider: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:  # fmt: skip
    """One draw of a posterior per world, moved by so many decades and octaves of n, (W, F, X).

    `wider` is the factor on the spread of draws so many decades beyond the data.
    """
    x_X, reach = _X, BUDGET_SD * FARTHEST
    wide_X = np.arange(x_X[0] - reach, x_X[-1] + reach + FINE, FINE)
    log2_n_F = np.log2(np.asarray(n_F, float))
    more = int(np.ceil(np.abs(octaves_W).max()))
    around = np.arange(1, more + 1)
    wide_N = np.concatenate([log2_n_F[0] - around[::-1], log2_n_F, log2_n_F[-1] + around])
    score_DFX = posterior.smooth_scores(b_p, wide_N, wide_X)
    if wider is not None:
        mean_FX = score_DFX.mean(axis=0)
        beyond_X = wide_X - float(posterior.last_J.max())
        score_DFX = np.clip(mean_FX + (score_DFX - mean_FX) * wider(beyond_X), 0.0, 1.0)
    # Forms and noises stand in order; worlds must be a mixture from the first on.
    order = np.random.default_rng((posterior.seed, 12)).permutation(len(score_DFX))[: len(shift_W)]
    out = np.empty((len(shift_W), len(n_F), len(x_X)))
    for w, (draw, shift, octaves) in enumerate(zip(order, shift_W, octaves_W, strict=True)):
        moved_NX = np.stack([np.interp(x_X - shift, wide_X, row) for row in score_DFX[draw]])
        at_F = np.interp(log2_n_F - octaves, wide_N, np.arange(len(wide_N)))
        left_F = np.minimum(at_F.astype(int), len(wide_N) - 2)
        share_F1 = (at_F - left_F)[:, None]
        out[w] = moved_NX[left_F] * (1 - share_F1) + moved_NX[left_F + 1] * share_F1
    return np.maximum.accumulate(out, axis=2)
