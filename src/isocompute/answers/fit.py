"""Fit a whole sweep: curves in; answers, notices, verdict and document out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from isocompute.allocation import Rates
from isocompute.answers.best import FloatArray, choice, guess_row
from isocompute.answers.document import chances, data_sha256, fit_document, law_of
from isocompute.answers.metered import metered
from isocompute.answers.overfit import overfitting
from isocompute.answers.paper import PaperFit, paper_fit
from isocompute.answers.price import timed
from isocompute.answers.reading import DRAWS, Reading
from isocompute.answers.spending import filled
from isocompute.answers.verdict import limits
from isocompute.answers.weight import Verdict, verdict_of
from isocompute.domain import Configuration, Curve, Notice, as_warnings
from isocompute.errors import InputError, RefusalError
from isocompute.model import fit_posterior

Fix = tuple[Literal["problems_per_batch", "batch_size"], int]
Select = Literal["best", "final"]
_ON_THE_WAY = 13  # budgets from the last one compared to a plan's: curves bend little between them


@dataclass(frozen=True, kw_only=True)
class Fit(Reading):
    """A fitted sweep: every answer, and how sure it is."""

    @cached_property
    def law(self) -> dict[str, Any]:
        """The paper's sigmoid through the path of the best n, as in the document."""
        return law_of(self, "rollouts_per_problem")

    @cached_property
    def paper(self) -> PaperFit | RefusalError:
        """The same answers by the published pipeline, or why it has none."""
        try:
            return paper_fit(self.curves, unit=self.unit)
        except RefusalError as refusal:
            return refusal

    @cached_property
    def train_test(self) -> list[dict[str, Any]]:
        """`overfitting` of the runs whose scores on training batches are known."""
        # Success per training rollout is comparable with mean success only.
        train = () if self.metric.startswith(("best", "worst")) else self.train
        # Training batches are seldom timed.
        train = tuple(c for c in train if c.spent(self.unit) is not None)
        return overfitting(self.counted, train, unit=self.unit)

    def neighbours(self, x: float) -> list[dict[str, Any]]:
        """Guessed scores of untested n at a budget, at the B_p of the choice.

        For powers of two between the tested n, and one beyond either end.

        Returns:
            Rows {"problems_per_batch", "rollouts_per_problem", "score", "interval", "gain" over
            the choice, "gain_interval"}; empty at a fixed batch, where B_p moves with n.
        """
        wanted, guess_DF, own_D = self.guesses(x)
        return [guess_row(c, g, own_D, self.level)
                for c, g in zip(wanted, guess_DF.T, strict=True)]  # fmt: skip

    def guesses(self, x: float) -> tuple[list[Configuration], FloatArray, FloatArray]:
        """Untested n at the B_p of the choice, draws of their scores, and of the choice's."""
        chosen = self.configurations[choice(self.scores_at([x]).mean(axis=0)[:, 0])]
        b_p, (bp_J, n_J) = chosen.problems_per_batch, self._bp_n
        first, last = np.rint(np.log2([f(n_J[bp_J == b_p]) for f in (min, max)])).astype(int)
        # One rollout of a problem has no group to be compared with.
        every = [Configuration(b_p, 2**o) for o in range(max(first - 1, 1), last + 2)]
        wanted = [c for c in every if c not in self.configurations] * (self.batch_size is None)
        score_DF = self.scores_of([*wanted, chosen], x)
        return wanted, score_DF[:, :-1], score_DF[:, -1]

    def chances(self, x: float) -> dict[str, Any]:
        """Chances, regrets and mean scores of every budget from the last one compared to x."""
        known = min(self.support[1], x)
        x_X = np.geomspace(known, x, _ON_THE_WAY) if known < x else np.array([x])
        score_DJX = self.scores_at(x_X)
        return {**chances(self, x_X, score_DJX), "score": score_DJX.mean(axis=0)}

    @property
    def logged(self) -> tuple[Curve, ...]:
        """The runs used, with what their own logs count."""
        return self.posterior.in_rollouts.curves

    @property
    def data_sha256(self) -> str:
        """Of the runs that were fitted."""
        return data_sha256(self.logged)

    @cached_property
    def notices(self) -> list[Notice]:
        """What limits these answers, the gravest first."""
        return limits(self)

    def again(self, unit: str, curves: Sequence[Curve] | None = None) -> Fit:
        """The same fit read by another unit; raises as `fit_sweep`.

        Args:
            unit: see `fit_sweep`.
            curves: those of the fit, with other tokens or GPU-hours.
        """
        _require_steps(self.setting, unit)
        posterior = self.posterior.in_rollouts
        if curves is not None:
            posterior = replace(posterior, curves=tuple(curves))
        train = tuple(filled(self.train, unit, posterior.curves))
        out = replace(self, posterior=metered(posterior, unit), train=train)
        out.__dict__["backtest"] = self.backtest  # which is by rollouts
        return out

    @property
    def warnings(self) -> list[dict[str, str]]:
        """[{"code", "message"}] of `notices`."""
        return as_warnings(self.notices)

    @property
    def verdict(self) -> Verdict:
        """ok, caution or stop, and why."""
        return verdict_of(self.notices)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The `fit --json` contract."""
        return fit_document(self)

    @cached_property
    def short_document(self) -> dict[str, Any]:
        """What of it the short answer needs, without what takes long beside that."""
        return fit_document(self, whole=False)


def fit_sweep(
    curves: Sequence[Curve], *, fix: Fix | None = None, joint: bool = False, unit: str = "rollouts",
    select: Select = "best", metric: str | None = None, level: float = 0.95, draws: int = DRAWS,
    seed: int = 0, sources: Sequence[str] = (), train: Sequence[Curve] = (),
    rates: Rates | None = None,
) -> Fit:  # fmt: skip
    """Fit a sweep.

    Args:
        curves: runs of one metric on one problem set.
        fix: ("problems_per_batch", B_p) or ("batch_size", B); by default the B_p there is, or
            the joint setting where there are several.
        joint: all (B_p, n) together.
        unit: one of `domain.curve.UNITS`.
        select: a budget's score is that of the "best" checkpoint so far (the method's) or of
            the "final" one.
        metric: name of the score, for the record.
        level: probability of all intervals.
        draws, seed: number of draws of the posterior, and their seed.
        sources: where the curves came from, for the record.
        train: training curves of the same runs, for the train-test gap.
        rates: what GPU-hours are counted by where runs were not timed.

    Raises:
        InputError: an option that does not fit the curves.
        RefusalError: no usable curve.
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
    if draws < 2:
        raise InputError(f"`draws >= 2` must hold, but got draws={draws}; 400 is usual.")
    if select not in ("best", "final"):
        raise InputError(f"select must be best or final, but got {select!r}; choose one of them.")
    if unit == "gpu-hours" and rates is not None:
        curves, train = timed(curves, rates), timed(train, rates)
    train = filled(train, unit, curves)
    for curve in filled(curves, unit):
        curve.position(unit)
    chosen, setting = select_curves(curves, fix=fix, joint=joint)
    _require_steps(setting, unit)
    names = sorted({c.metric for c in chosen})
    return Fit(
        posterior=metered(fit_posterior(chosen, select=select, draws=draws, seed=seed), unit),
        setting=setting,
        metric=metric or (names[0] if len(names) == 1 and names[0] else "score"),
        level=level,
        sources=tuple(sources),
        draws=draws,
        seed=seed,
        train=tuple(train),
    )


def _require_steps(setting: Mapping[str, Any], unit: str) -> None:
    if setting["kind"] == "fixed_batch_size" and unit != "rollouts":
        raise InputError(
            "a fixed batch is a law in steps, so unit must be rollouts, but got "
            f"{unit}; drop --unit."
        )


def select_curves(
    curves: Sequence[Curve], *, fix: Fix | None = None, joint: bool = False
) -> tuple[list[Curve], dict[str, Any]]:
    """The runs of one setting, and {"kind", "value"} of it; see `fit_sweep`."""
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
    if name not in ("problems_per_batch", "batch_size"):
        raise InputError(
            f"--fix must name problems_per_batch or batch_size, but got {name!r}; choose one of "
            "them."
        )
    there = [getattr(c.configuration, name) for c in curves]
    if value not in there:
        raise InputError(
            f"--fix {name}={value} must match a run, but the curves have {name} in "
            f"{', '.join(map(str, sorted(set(there))[:12]))}; choose one of them."
        )
    chosen = [c for c, of in zip(curves, there, strict=True) if of == value]
    return chosen, {"kind": f"fixed_{name}", "value": int(value)}
