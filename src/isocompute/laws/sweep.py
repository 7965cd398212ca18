"""A whole sweep: curves, frontier, law, back-test, sensitivity, warnings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.beyond import curves_beyond
from isocompute.curves.bins import Select
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.frontier import Frontier, fit_frontier
from isocompute.laws.backtest import backtest
from isocompute.laws.estimate import LawEstimate, confidence_set, estimate_law
from isocompute.laws.leave_out import leave_out
from isocompute.laws.outlook import (
    expected_regrets,
    expected_scores,
    score_with_interval,
    shares_ahead,
)
from isocompute.laws.sensitivity import sensitivity

FloatArray = NDArray[np.float64]
Fix = tuple[Literal["problems_per_batch", "batch_size"], int]

STABLE_WITHIN = 0.02  # smallest stable B_p: within this of the best B_p's score
DRAWS = 1000


class LawPoint(NamedTuple):
    """The law at one budget; x in rollouts (or tokens, for a law of tokens)."""

    rollouts: float
    rollouts_per_problem: float
    interval: tuple[float, float] | None
    confidence_set: list[int]
    expected_regret: float | None
    problems_per_batch: int | None
    extrapolation_log10: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Everything that a sweep says, with how sure it is.

    Args:
        curves: the runs used.
        curve_fits, frontier, law: the three stages.
        law_problems_per_batch: B_p*(M), for a fixed batch only.
        setting: {"kind", "value"} as in the JSON.
        metric: name of the score.
        unit: "rollouts" or "tokens", of every x.
        level: of all intervals.
        sources: where the curves came from.
        seed, draws: of the bootstrap.
        train: curves of the same runs on their training batches, where they are known.
    """

    curves: tuple[Curve, ...]
    curve_fits: CurveFits
    frontier: Frontier
    law: LawEstimate
    law_problems_per_batch: LawEstimate | None
    setting: dict[str, Any]
    metric: str
    unit: str
    level: float
    sources: tuple[str, ...]
    seed: int
    draws: int
    train: tuple[Curve, ...] = ()

    @cached_property
    def backtest(self) -> dict[str, Any]:
        """How well a part of the sweep predicts the rest: `laws.backtest`, `laws.leave_out`."""
        scores = backtest(
            self.curves, self.curve_fits, unit=self.unit, level=self.level, seed=self.seed
        )
        return {**scores, "left_out": leave_out(self)}

    @cached_property
    def sensitivity(self) -> list[dict[str, Any]]:
        """The law under other bin widths and under the paper's strict record rule."""
        return sensitivity(self)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The `fit --json` contract."""
        from isocompute.laws.document import fit_document

        return fit_document(self)

    @property
    def warnings(self) -> list[dict[str, str]]:
        """[{"code", "message"}]."""
        found: list[dict[str, str]] = self.document["warnings"]
        return found

    @property
    def records(self) -> dict[tuple[int, int], tuple[FloatArray, FloatArray]]:
        """Record-breaking points (x, score) by (B_p, n)."""
        return {
            (b.problems_per_batch, b.rollouts_per_problem): (b.record_rollouts, b.record_score)
            for b in self.curve_fits.binned
        }

    @property
    def support(self) -> tuple[float, float]:
        """The common support, in x."""
        return self.frontier.support

    @property
    def variable(self) -> str:
        """What the law is a function of: rollouts, tokens or steps."""
        return self.law.law.variable

    def law_x(self, x: float) -> float:
        """The law's own variable at a budget: M = C / B for a fixed batch, else the budget."""
        return x / self.setting["value"] if self.variable == "steps" else x

    def at(self, rollouts: float) -> LawPoint:
        """The law at one budget.

        Raises:
            InputError: if the budget is not finite and > 0.
        """
        _require_budget(rollouts, self.unit)
        n = self.law.predict(self.law_x(rollouts))
        low, high = self.support
        x = np.log10(rollouts)
        distance = max(0.0, float(np.log10(low) - x), float(x - np.log10(high)))
        where = int(np.abs(self.frontier.x_V - np.clip(x, np.log10(low), np.log10(high))).argmin())
        n_J = self.curve_fits.rollouts_per_problem_J
        near = _nearest(n, n_J)
        rows = np.flatnonzero(n_J == near)
        regret = float(self.frontier.regret_JV[rows, where].min()) if distance < 1e-9 else None
        return LawPoint(
            rollouts=float(rollouts),
            rollouts_per_problem=n,
            interval=self.law.interval(self.law_x(rollouts), self.level),
            confidence_set=confidence_set(self.frontier.probability_JV[:, where], n_J, self.level),
            expected_regret=regret,
            problems_per_batch=self.stable_problems_per_batch(near)[0],
            extrapolation_log10=distance,
        )

    def score_at(
        self,
        problems_per_batch: int,
        rollouts_per_problem: int,
        rollouts: float,
        chosen_from: Collection[tuple[int, int]] = (),
    ) -> tuple[float, float, float] | None:
        """(score, low, high) of a configuration's curve at a budget; None where it has none.

        Beyond the budgets compared the score is the mean of the draws, as what chooses n there:
        they are of both forms, the fitted curve is of one. `chosen_from`: the (B_p, n) among
        which it was chosen for its score; what luck added to that is taken away.
        """
        fits, which = self._curves_at(rollouts), (problems_per_batch, rollouts_per_problem)
        mean = fits is not self.curve_fits
        return score_with_interval(
            fits, which, rollouts, self.level, mean=mean, chosen_from=chosen_from
        )

    def expected_scores(self, rollouts: float) -> dict[tuple[int, int], float]:
        """Mean over the draws of every configuration's score at a budget, by (B_p, n).

        The largest one is the choice of least expected regret, inside the sweep and beyond it:
        on planted sweeps it lost less than the law's own n rounded to the grid
        (docs/coverage.md), as the law only knows which n has led so far.

        Raises:
            InputError: if the budget is not finite and > 0.
        """
        _require_budget(rollouts, self.unit)
        return expected_scores(self._curves_at(rollouts), rollouts)

    def expected_regrets(self, rollouts: float) -> dict[tuple[int, int], float]:
        """Mean over the draws of what each configuration loses against the best, by (B_p, n)."""
        _require_budget(rollouts, self.unit)
        return expected_regrets(self._curves_at(rollouts), rollouts)

    def gompertz_share(self, rollouts: float) -> float:
        """Share of the draws whose curves are Gompertz ones at a budget."""
        _require_budget(rollouts, self.unit)
        draws = self._curves_at(rollouts).draw_J
        return float(draws[0].gompertz.mean()) if draws else 0.0

    def shares_ahead(self, rollouts: float) -> dict[tuple[int, int], float]:
        """Share of the draws in which each is at least as good as the best expected."""
        _require_budget(rollouts, self.unit)
        return shares_ahead(self._curves_at(rollouts), rollouts)

    @cached_property
    def curves_beyond(self) -> CurveFits:
        """Curves for budgets beyond those compared: of either form, with shared slopes."""
        return curves_beyond(self.curve_fits, seed=self.seed)

    def _curves_at(self, x: float) -> CurveFits:
        return self.curves_beyond if x > self.support[1] * (1 + 1e-9) else self.curve_fits

    @property
    def trend(self) -> int:
        """1 where n* rises over the common support in 95% of the draws, -1 where it falls."""
        return self.law.trend

    def stable_problems_per_batch(
        self, rollouts_per_problem: int
    ) -> tuple[int, list[dict[str, str]]]:
        """Smallest tested B_p at this n whose score is within 0.02 of the best B_p's.

        Compared at the largest budget that all of them reached. With one B_p tested: that one,
        and warning `bp_untested`. At an n that was not tested, the tested n nearest to it.
        """
        n_J, b_J = self.curve_fits.rollouts_per_problem_J, self.curve_fits.problems_per_batch_J
        n = _nearest(rollouts_per_problem, n_J)
        rows = np.flatnonzero(n_J == n)
        if len(rows) == 1:
            only = int(b_J[rows[0]])
            return only, [
                {
                    "code": "bp_untested",
                    "message": f"B_p={only} is the only problems_per_batch tested at n={n}; "
                    "whether a "
                    "smaller one is stable, or a larger one better, is not known.",
                }
            ]
        x = np.array([float(self.curve_fits.end_J[rows].min())])
        score = self.curve_fits.value(x)[rows, 0]
        good = rows[score >= score.max() - STABLE_WITHIN]
        return int(b_J[good].min()), []


def _require_budget(amount: float, unit: str) -> None:
    if not (np.isfinite(amount) and amount > 0):
        raise InputError(
            f"`{unit} > 0` must hold for a budget, but got {amount!r}; give a positive number."
        )


def _nearest(n: float, n_J: NDArray[np.int64]) -> int:
    """The tested n nearest to n on the log scale, the smaller one on a tie."""
    values = np.unique(n_J)
    return int(values[np.abs(np.log2(values) - np.log2(max(n, 1.0))).argmin()])


def fit_sweep(
    curves: Sequence[Curve],
    *,
    fix: Fix | None = None,
    joint: bool = False,
    unit: str = "rollouts",
    select: Select = "best",
    metric: str | None = None,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
    sources: Sequence[str] = (),
    train: Sequence[Curve] = (),
) -> Fit:
    """Fit the law of a sweep.

    Args:
        curves: runs of one metric on one problem set.
        fix: ("problems_per_batch", B_p) or ("batch_size", B); by default the B_p there is, or
            the joint setting where there are several.
        joint: envelope over all (B_p, n).
        unit: "rollouts" or "tokens".
        select: a budget's score is that of the "best" checkpoint so far (the method's) or of
            the "final" one.
        metric: name of the score, for the record.
        level: of all intervals.
        draws, seed: of the bootstrap.
        sources: where the curves came from, for the record.
        train: of the same runs, for the train-test gap.

    Raises:
        InputError: an option that does not fit the curves.
        RefusalError: a law that the curves cannot carry.
    """
    if not all(isinstance(c, Curve) for c in curves):
        raise InputError(
            f"`curves` must be a list of Curve, but got {type(curves).__name__}; read files with "
            "isocompute.sources.load_curves(PATHS)."
        )
    if fix is not None and (isinstance(fix, str) or len(fix) != 2):
        raise InputError(
            f"`fix` must be a pair (name, value), but got {fix!r}; for example "
            '("problems_per_batch", 32).'
        )
    if not 0.5 <= level < 1:
        raise InputError(f"`0.5 <= level < 1` must hold, but got level={level:g}; 0.95 is usual.")
    if unit not in ("rollouts", "tokens"):
        raise InputError(f"unit must be rollouts or tokens, but got {unit!r}; choose one of them.")
    if select not in ("best", "final"):
        raise InputError(f"select must be best or final, but got {select!r}; choose one of them.")
    if unit == "tokens" and any(c.tokens_K is None for c in curves):
        without = next(c for c in curves if c.tokens_K is None)
        raise InputError(
            "a fit by tokens needs a `tokens` column on every row, but the run of "
            "problems_per_batch="
            f"{without.problems_per_batch}, rollouts_per_problem={without.rollouts_per_problem} "
            "lacks "
            "it; add it or fit by rollouts."
        )
    chosen, setting = _select(curves, fix, joint)
    fits = fit_curves(chosen, unit=unit, select=select, draws=draws, seed=seed)
    frontier = fit_frontier(fits, level=level)
    fixed_batch = setting["value"] if setting["kind"] == "fixed_batch_size" else None
    if fixed_batch is not None and unit == "tokens":
        raise InputError(
            "a fixed batch is a law in steps, so unit must be rollouts, but got tokens; drop "
            "--unit."
        )
    variable: Any = "steps" if fixed_batch else unit
    law = estimate_law(
        frontier,
        fits.rollouts_per_problem_J,
        variable=variable,
        batch_size=fixed_batch,
        level=level,
    )
    other = (
        estimate_law(
            frontier,
            fits.problems_per_batch_J,
            variable=variable,
            batch_size=fixed_batch,
            level=level,
            decreasing=True,
        )
        if fixed_batch
        else None
    )
    return Fit(
        curves=tuple(chosen),
        curve_fits=fits,
        frontier=frontier,
        law=law,
        law_problems_per_batch=other,
        setting=setting,
        metric=metric or _metric_of(chosen),
        unit=unit,
        level=level,
        sources=tuple(sources),
        seed=seed,
        draws=draws,
        train=tuple(train),
    )


def _metric_of(curves: Sequence[Curve]) -> str:
    names = sorted({c.metric for c in curves})
    return names[0] if len(names) == 1 and names[0] else "score"


def _select(
    curves: Sequence[Curve], fix: Fix | None, joint: bool
) -> tuple[list[Curve], dict[str, Any]]:
    if not curves:
        raise InputError("a fit needs at least 1 run, but got 0; check the sources and the metric.")
    if joint and fix:
        raise InputError(
            f"--joint and --fix exclude each other, but got both (--fix {fix[0]}={fix[1]}); drop "
            "one."
        )
    values = sorted({c.problems_per_batch for c in curves})
    if fix is None and len(values) == 1 and not joint:
        fix = ("problems_per_batch", values[0])
    if fix is None:
        return list(curves), {"kind": "joint", "value": None}
    name, value = fix
    if name == "batch_size":
        batches = sorted({c.problems_per_batch * c.rollouts_per_problem for c in curves})
        chosen = [c for c in curves if c.problems_per_batch * c.rollouts_per_problem == value]
        kind, there = "fixed_batch_size", batches
    elif name == "problems_per_batch":
        chosen = [c for c in curves if c.problems_per_batch == value]
        kind, there = "fixed_problems_per_batch", values
    else:
        raise InputError(
            f"--fix must name problems_per_batch or batch_size, but got {name!r}; choose one of "
            "them."
        )
    if not chosen:
        raise InputError(
            f"--fix {name}={value} must match a run, but the curves have {name} in "
            f"{', '.join(map(str, there[:12]))}; choose one of them."
        )
    return chosen, {"kind": kind, "value": int(value)}
