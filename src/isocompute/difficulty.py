"""How hard a problem set is for a base model: pass rates with intervals, bands, a recipe.

Sampling comes in as a callable, so nothing here needs a model or torch.

Shape legend: P problems; C = samples + 1 possible numbers of successes.

Source: arXiv 2603.12151, section 3: avg@16 of the base model decides the band; pass@128 = 0 is
"extremely hard".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.domain import Notice, documented, notice
from isocompute.engines.base import Unjudged
from isocompute.errors import InputError, RunError
from isocompute.health import Thresholds
from isocompute.intervals import binomial_interval
from isocompute.problems import BANDS, Problem, ProblemSet
from isocompute.problems.selection import in_band
from isocompute.recipe import Difficulty as DifficultyName
from isocompute.spread import mixed_share

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Draws(NamedTuple):
    """Outcomes of a sampling call, per problem asked for.

    Attributes:
        successes_P: responses that were right.
        judged_P: responses that the verifier could judge; None: all of them.
        tokens: tokens that were generated, 0 where they are not counted.
        unjudged: what the verifier failed on, and why; `problem` is the index into the set.
        cut: responses that a length limit ended, 0 where they are not counted.
    """

    successes_P: ArrayLike
    judged_P: ArrayLike | None = None
    tokens: int = 0
    unjudged: Sequence[Unjudged] = ()
    cut: int = 0


# Samples of a problem: a rate is then known to 0.0005. Half and twice of it change nothing else.
MOST_SAMPLES = 1_000_000
AT_ONCE = 1024  # samples of a problem in one call: memory does not grow beyond it

# (indices of problems, samples each) -> outcomes in that order.
SampleFunction = Callable[[IntArray, int], "Draws | ArrayLike"]


class Advice(NamedTuple):
    """The recipe for a set: `Recipe.for_difficulty(name)`, and why.

    Attributes:
        name: "easy", "hard" or "mixed".
        reason: the numbers behind it.
        notices: what to know about it.
    """

    name: DifficultyName
    reason: str
    notices: list[Notice]


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """Measured pass rates of a base model on a problem set.

    Args:
        problems: the set, each problem with its pass rate, so that it can be saved and selected
            from later with the same result. The rate is avg@`samples` of the first stage, as
            the bands of the paper want it; a problem without a success in both stages has rate
            0 from all its samples; one that could not be judged has none.
        successes_P, judged_P: totals over both stages.
        first_successes_P, first_judged_P: of the first stage alone, which decides the bands.
        low_P, high_P: ends of the binomial interval of each pass rate, from all samples.
        samples: per problem in the first stage.
        level: of the intervals.
        rollouts: samples drawn in all, both stages, judged or not.
        tokens: generated, 0 where the sampler does not count them.
        unjudged: the samples that could not be judged, by problem, with the first reason.
        cut: samples that a length limit ended, 0 where they are not counted.
    """

    problems: ProblemSet
    successes_P: IntArray = field(repr=False)
    judged_P: IntArray = field(repr=False)
    first_successes_P: IntArray = field(repr=False)
    first_judged_P: IntArray = field(repr=False)
    low_P: FloatArray = field(repr=False)
    high_P: FloatArray = field(repr=False)
    samples: int
    level: float
    rollouts: int
    tokens: int
    unjudged: tuple[Unjudged, ...] = ()
    cut: int = 0

    @property
    def errors(self) -> int:
        """Samples that the verifier failed to judge; they count in no pass rate."""
        return self.rollouts - int(self.judged_P.sum())

    @property
    def first_rate_P(self) -> FloatArray:
        """avg@`samples` per problem, first stage; NaN where nothing could be judged."""
        rate: FloatArray = np.full(self.first_judged_P.shape, np.nan)
        judged = self.first_judged_P > 0
        rate[judged] = self.first_successes_P[judged] / self.first_judged_P[judged]
        return rate

    @property
    def histogram_C(self) -> IntArray:
        """Problems with 0, 1, ..., `samples` successes in the first stage (all judged)."""
        whole = self.first_judged_P == self.samples
        return np.bincount(self.first_successes_P[whole], minlength=self.samples + 1)

    @property
    def mean_interval(self) -> tuple[float, float]:
        """Interval of the set's mean pass rate if its problems stand for more of their kind.

        Normal, from the spread of the first-stage rates over problems, which includes that of
        the samples; never narrower than Jeffreys' of all samples together, since no success says
        little of the spread.
        """
        from scipy import stats

        rate = self.first_rate_P[np.isfinite(self.first_rate_P)]
        if rate.size < 2:
            return 0.0, 1.0
        half = stats.norm.ppf(0.5 + self.level / 2) * rate.std(ddof=1) / np.sqrt(rate.size)
        drawn = rate.size * self.samples
        low, high = binomial_interval(round(rate.mean() * drawn), drawn, level=self.level)
        return (
            max(0.0, min(float(low), float(rate.mean() - half))),
            min(1.0, max(float(high), float(rate.mean() + half))),
        )

    def members(self, band: str) -> list[int]:
        """Indices of the problems in a band of `problems.BANDS`."""
        return [i for i, p in enumerate(self.problems.problems) if in_band(p, BANDS[band])]

    def select(self, band: str) -> ProblemSet:
        """The problems of a band as a set named `NAME-BAND`.

        Raises:
            InputError: unknown band, or a band without a problem.
        """
        if band not in BANDS:
            raise InputError(
                f"a band must be one of {', '.join(BANDS)}, but got {band!r}; choose one of them."
            )
        chosen = self.members(band)
        if not chosen:
            raise InputError(
                f"band {band} must hold at least 1 problem of set {self.problems.name!r}, but "
                f"holds 0 of {len(self.problems)}; take another band or other problems."
            )
        return self.problems.replace(
            name=f"{self.problems.name}-{band}",
            problems=[self.problems.problems[i] for i in chosen],
        )

    @property
    def mixed_groups(self) -> dict[int, float]:
        """By n, `mixed_share` over the problems, from all samples of each."""
        judged = self.judged_P > 0
        return mixed_share(self.successes_P[judged], self.judged_P[judged])

    @property
    def advice(self) -> Advice:
        """Which recipe to train this set with."""
        advice, share = recommend(self.first_rate_P), self.cut / self.rollouts
        if share <= Thresholds().clipped:
            return advice
        return advice._replace(notices=[notice("responses_cut", share=share), *advice.notices])

    @property
    def document(self) -> dict[str, Any]:
        """JSON values: what `isocompute difficulty --json` prints."""
        low, high = self.mean_interval
        rates = self.first_rate_P[np.isfinite(self.first_rate_P)]
        return {
            "version": 1,
            "problem_set": self.problems.name,
            "n_problems": len(self.problems),
            "samples": self.samples,
            "level": self.level,
            "rollouts": self.rollouts,
            "tokens": self.tokens or None,
            "errors": self.errors,
            "cut_off": self.cut,
            "unjudged": [
                {"id": self.problems.problems[one.problem].id, "samples": one.rollouts,
                 "message": one.message, "response": one.response}
                for one in self.unjudged
            ],
            "mean_pass_rate": float(rates.mean()) if rates.size else None,
            "mean_pass_rate_interval": [low, high] if rates.size else None,
            "histogram": self.histogram_C.tolist(),
            "bands": {
                name: {"low": b.low, "high": b.high, "n_problems": len(self.members(name))}
                for name, b in BANDS.items()
            },
            "mixed_groups": {str(n): share for n, share in self.mixed_groups.items()},
            "recipe": self.advice.name,
            "reason": self.advice.reason,
            **documented(self.advice.notices),
            "problems": [
                {"id": p.id, "avg": p.pass_rate, "successes": int(s), "samples": int(n),
                 "interval": [float(lo), float(hi)]}
                for p, s, n, lo, hi in zip(
                    self.problems.problems, self.successes_P, self.judged_P, self.low_P,
                    self.high_P, strict=True,
                )
            ],
        }


def recommend(rate_P: ArrayLike) -> Advice:
    """The recipe for a set with these pass rates.

    Hard (no regularisers) where the mean lies at or below 0.0625, Easy (KL and entropy bonus)
    from 0.3 on, Mixed (as Hard) where at least a quarter of the problems lies on each side.
    Between the two, Hard's recipe with a warning: the paper has no set there.

    Args:
        rate_P: pass rates of the base model; NaN where one could not be measured.

    Raises:
        InputError: if no pass rate is known.

    >>> recommend([0.4, 0.5]).name, recommend([0.0, 0.0, 0.0, 0.5, 0.4]).name
    ('easy', 'mixed')
    """
    rate = np.asarray(rate_P, dtype=np.float64)
    rate = rate[np.isfinite(rate)]
    if rate.size == 0:
        raise InputError(
            "a recipe needs the pass rate of at least 1 problem, but got none; measure it first."
        )
    hard, easy = BANDS["hard"].high + 1e-9, BANDS["easy"].low - 1e-9
    mean = float(rate.mean())
    share_hard, share_easy = float(np.mean(rate <= hard)), float(np.mean(rate >= easy))
    reason = (
        f"mean pass rate {mean:.3g}; {share_hard:.0%} of the problems at or below 0.0625, "
        f"{share_easy:.0%} at or above 0.3"
    )
    notices: list[Notice] = []
    if min(share_hard, share_easy) >= 0.25:
        return Advice("mixed", reason, notices)
    if mean > BANDS["very_easy"].high:
        notices.append(notice("little_left", rate=mean))
    if mean >= easy:
        return Advice("easy", reason, notices)
    if mean > hard:
        edges = BANDS["hard"].high, BANDS["easy"].low
        notices.append(notice("between_bands", rate=mean, hard=edges[0], easy=edges[1]))
    return Advice("hard", reason, notices)


def _draw(
    sample: SampleFunction, index_P: IntArray, samples: int
) -> tuple[IntArray, IntArray, Draws]:
    """Successes and judged samples of one call, checked, and the rest of it."""
    result = sample(index_P, samples)
    draws = result if isinstance(result, Draws) else Draws(result)
    successes = np.asarray(draws.successes_P)
    judged = np.full(index_P.shape, samples) if draws.judged_P is None else np.asarray(
        draws.judged_P
    )
    whole = all(np.issubdtype(a.dtype, np.integer) for a in (successes, judged))
    shapes = successes.shape == judged.shape == index_P.shape
    if not whole or not shapes or np.any(successes < 0) or np.any(successes > judged) or np.any(
        judged > samples
    ):
        raise RunError(
            f"a sampler must return 0..{samples} successes for each of {index_P.size} problems, "
            f"but returned {successes.dtype} of shape {successes.shape}; correct the sampler."
        )
    return successes.astype(np.int64), judged.astype(np.int64), draws


def measure_difficulty(
    sample: SampleFunction,
    problems: ProblemSet,
    *,
    samples: int = 16,
    second_stage: int = 128,
    level: float = 0.95,
    chunk: int = 256,
) -> Difficulty:
    """Pass rates of a base model, with a second stage for problems that never succeeded.

    Every problem is sampled `samples` times; those without a success are then sampled up to
    `second_stage` times in all.

    Args:
        sample: (indices of problems, samples each) -> `Draws`, or successes alone.
        problems: the set.
        samples: of the first stage, per problem.
        second_stage: samples in all for a problem without a success; 0: no second stage.
        level: of the binomial intervals, see `binomial_interval`.
        chunk: problems per call of `sample`.

    Raises:
        InputError: `samples` or `chunk` below 1, more than a million samples, or a second stage
            that is not 0 and not above the first.
        RunError: if the sampler returns something else than counts, or no sample could be
            judged.
    """
    if samples < 1 or chunk < 1:
        raise InputError(
            f"`samples >= 1` and `chunk >= 1` must hold, but got samples={samples}, "
            f"chunk={chunk}; raise them."
        )
    if second_stage != 0 and second_stage <= samples:
        raise InputError(
            f"`second_stage > samples` must hold, or 0 for none, but got "
            f"second_stage={second_stage}, samples={samples}; raise it."
        )
    if max(samples, second_stage) > MOST_SAMPLES:
        raise InputError(
            f"a problem may have at most {MOST_SAMPLES:,} samples, but got samples={samples:,}, "
            f"second_stage={second_stage:,}; lower them: 16 and 128 tell easy from hard."
        )
    size = len(problems)
    successes, judged = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    drawn = tokens = cut = 0
    unjudged: dict[int, Unjudged] = {}

    def stage(index_P: IntArray, each: int) -> None:
        nonlocal drawn, tokens, cut
        for start, begun in product(range(0, index_P.size, chunk), range(0, each, AT_ONCE)):
            part, of_each = index_P[start : start + chunk], min(AT_ONCE, each - begun)
            right, valid, draws = _draw(sample, part, of_each)
            successes[part] += right
            judged[part] += valid
            drawn += part.size * of_each
            tokens += int(draws.tokens)
            cut += int(draws.cut)
            for one in draws.unjudged:
                known = unjudged.get(one.problem)
                more = 0 if known is None else known.rollouts
                unjudged[one.problem] = replace(known or one, rollouts=one.rollouts + more)

    stage(np.arange(size), samples)
    first_successes, first_judged = successes.copy(), judged.copy()
    never = np.flatnonzero((successes == 0) & (judged > 0))
    if second_stage > samples and never.size:
        stage(never, second_stage - samples)
    if not judged.any():
        raise RunError(
            f"at least 1 of {drawn} samples must be judged, but the verifier failed on all"
            f"{_first_reason(unjudged)}; correct the verifier or raise its time-out."
        )
    low, high = binomial_interval(successes, judged, level=level)
    return Difficulty(
        problems=problems.replace(problems=[
            _with_rate(p, int(s), int(n if total == 0 else first))
            for p, s, first, total, n in zip(
                problems.problems, first_successes, first_judged, successes, judged, strict=True
            )
        ]),
        successes_P=successes, judged_P=judged,
        first_successes_P=first_successes, first_judged_P=first_judged,
        low_P=low, high_P=high,
        samples=samples, level=level, rollouts=drawn, tokens=tokens,
        unjudged=tuple(unjudged[problem] for problem in sorted(unjudged)), cut=cut,
    )  # fmt: skip


def _first_reason(unjudged: dict[int, Unjudged]) -> str:
    return next((f" ({one.message})" for one in unjudged.values()), "")


def _with_rate(problem: Problem, successes: int, samples: int) -> Problem:
    if samples == 0:
        return replace(problem, pass_rate=None, pass_rate_samples=None)
    return replace(problem, pass_rate=successes / samples, pass_rate_samples=samples)
