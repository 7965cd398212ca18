"""A fitted sweep and its plans, for a notebook."""

from __future__ import annotations

import html
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from isocompute.answers import Fit, advice_lines, fit_sweep, plan_from_source
from isocompute.answers.logged import in_logs
from isocompute.cli.fit_short import fit_lines
from isocompute.domain import Configuration
from isocompute.domain.text import plain
from isocompute.errors import InputError
from isocompute.notebook.table import Table
from isocompute.notebook.words import in_python, said_in_python
from isocompute.sources import Options, load_with_train, source_names
from isocompute.trainers import on_processes, with_comments

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from isocompute.allocation import Allocation
    from isocompute.answers.fit import Fix, Select
    from isocompute.recipe import Difficulty
    from isocompute.sources.load import Sources


@dataclass(frozen=True, kw_only=True, repr=False)
class Prescription:
    """How to spend a budget. Printed, it is what `isocompute plan` prints.

    Args:
        allocation: (B_p, n, M); None where the plan was refused.
        document: the content of `plan --json`.
        trainer: the trainer of `settings`, if any.
    """

    allocation: Allocation | None
    document: dict[str, Any]
    trainer: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the trainer: its keys and their values; printed, ready to paste.

        Raises:
            InputError: no trainer was asked for, or there is no plan.
        """
        if self.trainer is None or self.allocation is None:
            raise InputError(
                "settings need a plan for a trainer, but "
                + ("no trainer was named" if self.trainer is None else "there is no plan")
                + '; ask for it: sweep.plan(budget, trainer="trl").'
            )
        keys: dict[str, Any] = with_comments(self.document)["trainer"][self.trainer]
        return keys

    @property
    def notices(self) -> Table:
        """What limits the plan, the most serious first."""
        return Table([dict(one) for one in self.document["notices"]])

    def to_frame(self) -> pd.DataFrame:
        """One row: the entries of the document that are single values."""
        alone = (str, int, float, bool, type(None))
        return Table([{k: v for k, v in self.document.items() if isinstance(v, alone)}]).to_frame()

    def __repr__(self) -> str:
        lines = advice_lines(with_comments(self.document), trainer=self.trainer)
        return in_python("\n".join(lines))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep:
    """A fitted sweep. Printed, it is what `isocompute fit` prints.

    Args:
        fit: everything that was estimated.
        names: names of the sources.
    """

    fit: Fit = field(repr=False)
    names: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The content of `fit --json`."""
        return self.fit.document

    @property
    def notices(self) -> Table:
        """What limits the answers, the most serious first."""
        return Table([dict(one) for one in self.document["notices"]])

    @said_in_python()
    def best(self, budget: float | str | Sequence[float | str] | None = None) -> Table:
        """The best n at a budget, with its interval, and the tested configuration that leads.

        Args:
            budget: one or several, as numbers in the unit of the fit, or as texts ("2e6",
                "400gpuh"); None: all budgets of the document.

        Returns:
            A row a budget: `best_n` is where the trend over n has its peak, also between the n
            tested; `rollouts_per_problem` the tested n that scores most, as a plan takes it.
            Scores are as logged.

        Raises:
            InputError: a budget in a unit that not every run counted, or below one step.
        """
        fit = self.fit
        if budget is None:
            rows = fit.best
        else:
            single = isinstance(budget, (str, int, float, np.number))
            asked: list[Any] = [budget] if single else [*budget]  # type: ignore[misc]
            unit = _unit_of(asked, fit)
            fit = fit if unit == fit.unit else fit.again(unit)
            rows = [fit.best_at(_amount(one, fit)) for one in asked]
        return Table(
            [
                plain({
                    fit.unit: float(f"{row.x:.12g}"),  # read off log10
                    "best_n": row.rollouts_per_problem,
                    "best_n_low": row.interval[0],
                    "best_n_high": row.interval[1],
                    "problems_per_batch": row.problems_per_batch,
                    "rollouts_per_problem": row.tested_rollouts_per_problem,
                    "score": in_logs(fit, row.score),
                    "score_low": in_logs(fit, row.score_interval[0]),
                    "score_high": in_logs(fit, row.score_interval[1]),
                    "as_good": row.as_good,
                    "extrapolated": row.extrapolated,
                })
                for row in rows
            ]
        )  # fmt: skip

    @said_in_python()
    def plan(
        self,
        budget: float | str | None = None,
        *,
        score: float | None = None,
        trainer: str | None = None,
        processes: int | None = None,
        current: int | tuple[int, int] | str | None = None,
        difficulty: Difficulty | None = None,
        batch_size: int | None = None,
        steps: int | None = None,
        max_batch: int | None = None,
        min_steps: int | None = None,
        problems: int | None = None,
        only_n: Sequence[int] = (),
        tokens_per_rollout: float | None = None,
        rollouts_per_gpu_hour: float | None = None,
        usd_per_gpu_hour: float | None = None,
    ) -> Prescription:
        """Plan how to spend a budget, from this sweep.

        Args:
            budget: a number of rollouts, or "2e6", "5e9tok", "400gpuh", "64gpux3d", "$2000".
            score: instead of a budget: to reach, as your trainer logs it.
            trainer: also give this trainer's settings.
            processes: of TRL, among which its batch is divided.
            current: the n, (B_p, n) or "n=16,bp=32" that you run today, to see what the plan gains.
            difficulty: of your problems: easy, hard or mixed.
            batch_size, steps: instead of a budget: split a fixed batch into problems and n.
            max_batch, min_steps: most rollouts per batch; fewest steps.
            problems: size of the training set.
            only_n: choose among these n alone.
            tokens_per_rollout, rollouts_per_gpu_hour, usd_per_gpu_hour: what a rollout costs.

        Raises:
            InputError: an option that does not fit, as on the command line.
        """
        from isocompute.allocation import Rates, parse_budget
        from isocompute.trainers import find_trainer

        if trainer is not None:
            trainer = trainer.lower()
            find_trainer(trainer)
        found = plan_from_source(
            ", ".join(self.names),
            budget=None if budget is None else parse_budget(str(budget)),
            score=score,
            batch_size=batch_size,
            steps=steps,
            difficulty=difficulty,
            rates=Rates(
                tokens_per_rollout=tokens_per_rollout,
                rollouts_per_gpu_hour=rollouts_per_gpu_hour,
                usd_per_gpu_hour=usd_per_gpu_hour,
            ),
            max_batch_size=max_batch,
            min_steps=min_steps,
            current=_current(current),
            problems=problems,
            only_n=only_n,
            fit=self.fit,
        )
        document = on_processes(found.document, processes, trainer)
        return Prescription(allocation=found.allocation, document=document, trainer=trainer)

    def report(
        self,
        path: str | Path,
        *,
        plan: Prescription | None = None,
        beside: Sequence[Sweep] = (),
        title: str | None = None,
    ) -> Path:
        """Write the report, one HTML file.

        Args:
            path: the file to write.
            plan: result of `plan`; None: the page shows the best n by budget instead.
            beside: other sweeps, for comparison.
            title: heading of the page.
        """
        from isocompute.report import render_report, study_view
        from isocompute.store.arms import split_source

        folder = Path(split_source(self.names[0])[0])
        is_study = len(self.names) == 1 and (folder / "study.db").is_file()
        named: dict[str, Any] = {} if title is None else {"title": title}
        return render_report(
            [(", ".join(one.names), one.fit) for one in (self, *beside)],
            None if plan is None else plan.document,
            path,
            study=study_view(self.names[0]) if is_study else None,
            **named,
        )

    @property
    def figures(self) -> list[str]:
        """Names of the figures that this sweep has the data for."""
        return list(self._figures())

    def figure(self, name: str) -> Figure:
        """A figure by its name; a notebook shows it, `.savefig("law.pdf")` writes it.

        Args:
            name: one of `figures`.

        Raises:
            InputError: another name, or a figure for which the data are missing.
        """
        there = self._figures()
        if name not in there:
            raise InputError(
                f"a figure must be one of {', '.join(there)}, but got {name!r}; choose one of them."
            )
        figure: Figure = there[name](self.fit)
        # Figures are made without pyplot, so a notebook has to be told how to show one.
        vars(figure)["_repr_png_"] = lambda: _png(figure)
        return figure

    def _figures(self) -> dict[str, Callable[..., Figure]]:
        from isocompute.report.figures import FIGURES

        return {one.kind: one.draw for one in FIGURES if one.there(self.document)}

    def to_frame(self) -> pd.DataFrame:
        """`best()` as a pandas DataFrame: the best n by budget."""
        return self.best().to_frame()

    def __repr__(self) -> str:
        named = {**self.document["provenance"], "sources": ["SOURCE"]}
        return in_python("\n".join(fit_lines({**self.document, "provenance": named})))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


@said_in_python()
def fit(
    source: Sources,
    *,
    fix: Fix | None = None,
    joint: bool = False,
    unit: str = "rollouts",
    select: Select = "best",
    **loading: Unpack[Options],
) -> Sweep:
    """Fit a sweep.

    Args:
        source: a data frame (pandas, polars, Arrow) with the columns of a table of curves; or a
            path to a table, a study folder or a log; or published:NAME; or a list of these.
        fix: ("problems_per_batch", B_p) or ("batch_size", B).
        joint: fit all (B_p, n) together.
        unit: "rollouts", "tokens" or "gpu-hours".
        select: "best" checkpoint so far, or the "final" one.
        loading: metric, problem_set, split, where, score_range, settings: see
            `sources.load.Options`. Rows that were left out are reported as a Python warning.

    Raises:
        InputError: a source that cannot be read, or an option that does not fit.
        RefusalError: no curve can be fitted.
    """
    if unknown := ", ".join(sorted(loading.keys() - Options.__annotations__.keys())):
        known = ", ".join(("fix", "joint", "unit", "select", *Options.__annotations__))
        raise InputError(f"an option must be one of {known}, but got {unknown}; correct it.")
    said: list[str] = []
    loading.setdefault("say", said.append)
    names = tuple(source_names(source))
    curves, train = load_with_train(source, **loading)
    for line in said:
        warnings.warn(line, stacklevel=3)
    found = fit_sweep(
        curves, fix=fix, joint=joint, unit=unit, select=select, sources=names, train=train
    )
    return Sweep(fit=found, names=names)


def _unit_of(budgets: Sequence[float | str], fit: Fit) -> str:
    """The unit that budgets name; that of the fit where they name none that every run counted."""
    from isocompute.allocation import parse_budget
    from isocompute.answers.price import counted_in

    named = {parse_budget(one).unit.replace("_", "-") for one in budgets if isinstance(one, str)}
    if len(named) == len({type(one) is str for one in budgets}) == 1:
        (unit,) = named
        if unit in counted_in(fit.curves) and fit.batch_size is None:
            return unit
    return fit.unit


def _amount(budget: float | str, fit: Fit) -> float:
    """A budget in the unit of a fit."""
    from isocompute.allocation import parse_budget

    if isinstance(budget, str):
        asked = parse_budget(budget)
        if asked.unit.replace("_", "-") != fit.unit:
            raise InputError(
                f"a budget must be in {fit.unit}, or in what every run counted, but got "
                f"{budget!r}; `plan` converts GPU-hours and money."
            )
        budget = asked.amount
    least = min(c.batch_size for c in fit.configurations)
    if fit.unit == "rollouts" and 0 < budget < least:
        raise InputError(
            f"a budget must hold a step of the smallest batch ({least:,} rollouts), but got "
            f"{budget:g}; GPU-hours are written as text: \"{budget:g}gpuh\"."
        )
    return float(budget)


def _png(figure: Figure) -> bytes:
    import matplotlib as mpl

    from isocompute.report.style import MATPLOTLIB

    to = io.BytesIO()
    with mpl.rc_context(MATPLOTLIB):
        figure.savefig(to, format="png")
    return to.getvalue()


def _current(given: int | tuple[int, int] | str | None) -> Configuration | int | None:
    """Today's setting, also in the words of the command line."""
    from isocompute.cli.values import today

    if isinstance(given, tuple | list) and len(given) == 2:
        return Configuration(*given)
    if given is None or isinstance(given, int):
        return given
    try:
        return today(str(given))
    except ValueError as error:
        raise InputError(f"`current` {error}; or give n, or (B_p, n).") from None
