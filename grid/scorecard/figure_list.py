"""The figures of the paper in its order: which panels, of which arms, and how each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.axes import Axes

from isocompute.answers import Fit, fit_sweep, printed_law
from isocompute.domain import Curve
from scorecard import grid, panels
from scorecard.evidence import ARMS, Evidence, MissingError
from scorecard.statistics import one_n

Draw = Callable[[Axes, Evidence], None]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: a title, and how to draw it for a column; raises MissingError where it cannot."""

    title: str
    draw: Draw
    x: str = "rollouts"
    y: str = "avg@4, validation"


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """One figure of the paper.

    Args:
        number: on the project page; "F" where the paper has it in an appendix alone.
        title: what it shows.
        see: how to read ours.
        needs: arms of the grid that give it.
        panels: left to right.
        also: columns beside the 7B curves and the grid.
    """

    number: str
    title: str
    see: str
    needs: tuple[str, ...]
    panels: tuple[Panel, ...]
    also: tuple[str, ...] = ("bits",)


@cache
def _fitted(key: tuple[int, ...], unit: str, batch: int | None) -> Fit:
    fix = None if batch is None else ("problems_per_batch", batch)
    return fit_sweep(_KEPT[key], unit=unit, fix=fix)  # type: ignore[arg-type]


_KEPT: dict[tuple[int, ...], Sequence[Curve]] = {}


def _fit(sweep: Sequence[Curve], unit: str = "rollouts") -> Fit:
    key = tuple(map(id, sweep))
    _KEPT[key] = sweep
    return _fitted(key, unit, None)


def _curves(arm: str, metric: str = "avg", on: str | None = None) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        sweep = e.sweep(arm, metric, on)
        if one_n(sweep):
            raise MissingError(f"{ARMS[arm][0]}: one n only so far")
        panels.curves(axes, sweep)

    return draw


def _at_bp(arm: str, place: int) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        sweep = e.sweep(arm)
        values = sorted({c.problems_per_batch for c in sweep})
        if place >= len(values):
            raise MissingError(f"{ARMS[arm][0]}: {len(values)} of them")
        panels.curves(axes, [c for c in sweep if c.problems_per_batch == values[place]])
        axes.set_title(f"{axes.get_title()}, B_p = {values[place]}", fontsize=9)

    return draw


def _path(arm: str, on: str | None = None, unit: str = "rollouts") -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        sweep = e.with_tokens(arm) if unit == "tokens" else e.sweep(arm, "avg", on)
        if one_n(sweep):
            raise MissingError(f"{ARMS[arm][0]}: one n only so far")
        source = e.arms.get(arm, {}).get("source") if unit == "rollouts" else None
        fit = _fit(sweep, unit)
        if len(fit.path[0]) < 2:
            raise MissingError(f"{ARMS[arm][0]}: no budgets at which several n are compared yet")
        panels.path(axes, fit, source)

    return draw


def _splits(arm: str, of_bp: bool) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        batch = e.fullest_batch(arm)
        chosen = [c for c in e.sweep(arm) if c.configuration.batch_size == batch]
        fit = fit_sweep(chosen, fix=("batch_size", batch))
        unknown = panels.splits(axes, fit, of_bp=of_bp)
        told = "\nat the end no split is excluded" if unknown else ""
        axes.set_title(f"{axes.get_title()}, B = {batch:,}{told}", fontsize=9)

    return draw


def _split_curves(arm: str) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        batch = e.fullest_batch(arm)
        panels.curves(axes, [c for c in e.sweep(arm) if c.configuration.batch_size == batch])
        axes.set_title(f"{axes.get_title()}, B = {batch:,}", fontsize=9)

    return draw


def _arms(names: dict[str, str], on: str | None = None, n: tuple[int, ...] = ()) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        found = {}
        for label, arm in names.items():
            try:
                found[label] = [
                    c for c in e.sweep(arm, "avg", on) if not n or c.rollouts_per_problem in n
                ]
            except MissingError:
                continue
        if len(found) < 2:
            raise MissingError(", ".join(ARMS[arm][0] for arm in names.values()))
        shared = set.intersection(*({c.rollouts_per_problem for c in s} for s in found.values()))
        panels.arms(
            axes,
            {k: [c for c in s if c.rollouts_per_problem in shared] for k, s in found.items()}
            if shared
            else found,
        )

    return draw


def _best_n(arm: str) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        law = printed_law(e.arms.get(arm, {}).get("source"))
        rows: dict[str, dict[int, float]] = {}
        if law is not None:
            for metric in ("best@4", "worst@4"):
                rows[metric] = {int(b): n[metric] for b, n in law.best_n.items()}
        else:
            for metric in ("best", "worst"):
                sweep = e.every(arm, metric)
                rows[f"{metric}@4"] = {}
                for b in sorted({c.problems_per_batch for c in sweep}):
                    own = [c for c in sweep if c.problems_per_batch == b]
                    if len({c.rollouts_per_problem for c in own}) > 2:
                        fit = _fit(own)
                        rows[f"{metric}@4"][b] = fit.best_at(fit.support[1]).rollouts_per_problem
        panels.best_n(axes, rows)

    return draw


def _sensitivity(arm: str, of_bp: bool) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        sweep = e.sweep(arm)
        if not of_bp:
            main = {tuple(c.configuration) for c in e.sweep(arm.removesuffix("_all"))}
            panels.curves(axes, [c for c in sweep if tuple(c.configuration) in main], leader=False)
            return
        by_n: dict[int, set[int]] = {}
        for c in sweep:
            by_n.setdefault(c.rollouts_per_problem, set()).add(c.problems_per_batch)
        # The paper's n = 16, or the n nearest to it that most B_p have.
        n = max(by_n, key=lambda one: (len(by_n[one]), -abs(np.log2(one / 16))))
        if len(by_n[n]) < 2:
            raise MissingError(f"{ARMS[arm][0]}: one n at several")
        panels.curves(axes, [c for c in sweep if c.rollouts_per_problem == n], leader=False,
                      by_bp=True)  # fmt: skip
        axes.set_title(f"{axes.get_title()}, n = {n}", fontsize=9)

    return draw


def _landscape(arm: str) -> Draw:
    def draw(axes: Axes, e: Evidence) -> None:
        known = e.arms.get(arm, {})
        if "study" not in known:
            raise MissingError(ARMS["problems"][0])
        runs = grid.of_study(e.folder, (str(known["study"]),))
        runs = [run for run in runs if run.key[0] == 32]
        rates = grid.landscapes(runs, (4, 64))
        if not rates:
            raise MissingError(f"{ARMS[arm][0]}: no finished run of n = 4 and n = 64")
        panels.landscape(axes, rates)

    return draw


def _rate_sweep(axes: Axes, e: Evidence) -> None:
    panels.rates(axes, e.rates())


def _difficulty(axes: Axes, e: Evidence) -> None:
    if e.name != "grid":
        raise MissingError("pass rates of the base model")
    import pyarrow.parquet as pq

    file = e.folder.parent / "problems.parquet"
    if not file.exists():
        raise MissingError("grid/problems.parquet")
    rates = np.array(pq.read_table(file, columns=["pass_rate"]).column(0))
    axes.hist(rates, np.linspace(-1 / 32, 1 + 1 / 32, 18).tolist(), color="#1e1b4b", rwidth=0.9)
    for low, high, name in ((0.3, 0.6, "Easy"), (0.0, 0.0625, "Hard"), (0.6, 0.9, "Very Easy")):
        axes.axvspan(low, high, alpha=0.12, color="#d97706", zorder=0)
        first = low == 0.0  # its label beside its bar, which is the tallest
        axes.text(high + 0.01 if first else (low + high) / 2, axes.get_ylim()[1] * 0.93, name,
                  ha="left" if first else "center", fontsize=8)  # fmt: skip


EASY_HARD = (("Easy", "easy"), ("Hard", "hard"))
REGULAR = {"neither": "easy_plain", "KL and entropy": "easy_regular", "with filter": "easy_filter"}
REGULAR_HARD = {"neither": "hard_plain", "KL and entropy": "hard_regular"}
SCALING = {"square root": "rate_sqrt", "constant": "rate_constant", "linear": "rate_linear"}
MIXED = {"Hard alone": "hard_on_easy", "Hard + Easy": "dual", "Hard + Easy + Very Easy": "tri"}
CROSS = (4, 64)

FIGURES: tuple[PaperFigure, ...] = (
    PaperFigure(
        number="2", title="How hard the problems are", needs=(),
        see="Pass rates of the base model over 16 samples; shaded: the bands of the sets.",
        panels=(Panel(title="all problems", draw=_difficulty, x="pass rate", y="problems"),),
    ),
    PaperFigure(
        number="3", title="KL and entropy terms, and the filter",
        see="Arms in one panel, each with a thinner line than the one before: a line within a line "
            "is a tie. Shaded: range of the seeds.",
        needs=("easy_plain", "easy_filter", "hard_regular"), also=("bits", "machine"),
        panels=(Panel(title="Easy", draw=_arms(REGULAR)),
                Panel(title="Hard", draw=_arms(REGULAR_HARD))),
    ),
    PaperFigure(
        number="4", title="The learning rate and its scaling", also=("bits", "machine"),
        see="Left: the rate at one batch size. Right: three scalings at eight times the batch.",
        needs=("rate_constant", "rate_linear"),
        panels=(Panel(title="anchor", draw=_rate_sweep, x="learning rate"),
                Panel(title="eight times the batch", draw=_arms(SCALING))),
    ),
    PaperFigure(
        number="5", title="Who leads at which budget, one B_p", needs=("easy", "hard"),
        also=("bits", "bits_long"),
        see="A line per n; broad: the best score so far of all, in the colour of the n that leads.",
        panels=tuple(Panel(title=t, draw=_curves(a)) for t, a in EASY_HARD),
    ),
    PaperFigure(
        number="6", title="The best n rises with the budget", needs=("easy", "hard"),
        also=("bits", "bits_long"),
        see="Line and band: our n* with its 95% interval. Dashed: the law as printed. Dotted: the "
            "paper's method by our code, from the same runs.",
        panels=tuple(
            Panel(title=t, draw=_path(a), y="best n") for t, a in EASY_HARD
        ),
    ),
    PaperFigure(
        number="7", title="The best n by metric and B_p", needs=("easy_all", "hard_all"),
        see="At the largest budget. Of the 7B model as the study printed it.",
        panels=tuple(
            Panel(title=t, draw=_best_n(a), x="B_p", y="best n") for t, a in EASY_HARD
        ),
    ),
    PaperFigure(
        number="8", title="A fixed batch: n*(M) and B_p*(M)", needs=("easy_splits",),
        see="The batch with most splits; 95% intervals. Where one spans every n, the runs do not "
            "tell the splits apart: on `verbs` so on Easy from some 250 updates on.",
        panels=(Panel(title="Easy: best n", draw=_splits("easy_splits", False), x="updates M",
                      y="best n"),
                Panel(title="Easy: best B_p", draw=_splits("easy_splits", True), x="updates M",
                      y="best B_p"),
                Panel(title="Hard: best n", draw=_splits("hard_splits", False), x="updates M",
                      y="best n")),
    ),
    PaperFigure(
        number="9", title="What B_p moves, and what n moves", needs=("easy_all", "hard_all"),
        see="Left of each pair: several B_p at one n. Right: several n at one B_p.",
        panels=tuple(
            Panel(title=f"{t}: {what}", draw=_sensitivity(f"{a}_all", bp))
            for t, a in EASY_HARD for what, bp in (("B_p varies", True), ("n varies", False))
        ),
    ),
    PaperFigure(
        number="10", title="The best n with B_p free", needs=("easy_all", "hard_all"),
        see="As figure 6, over all (B_p, n) together.",
        panels=tuple(
            Panel(title=t, draw=_path(f"{a}_all"), y="best n") for t, a in EASY_HARD
        ),
    ),
    PaperFigure(
        number="11", title="Who leads with B_p free", needs=("easy_all", "hard_all"),
        see="As figure 5; dashes tell B_p apart.",
        panels=tuple(Panel(title=t, draw=_curves(f"{a}_all")) for t, a in EASY_HARD),
    ),
    PaperFigure(
        number="12", title="Pass rates before and after, small n and large",
        see="Share of the training problems by pass rate, at equal rollouts.",
        needs=("easy", "hard"),
        panels=tuple(
            Panel(title=t, draw=_landscape(a), x="pass rate", y="share of problems")
            for t, a in EASY_HARD
        ),
    ),
    PaperFigure(
        number="13", title="Other base models", needs=("easy",),
        see="Other worlds have base models of their own.", also=("machine", "products",
                                                                 "countdown"),
        panels=(Panel(title="Easy", draw=_curves("easy")),),
    ),
    PaperFigure(
        number="14", title="Few problems and many", needs=("few", "easy"),
        see="Who leads, trained on many and on few problems.",
        panels=(Panel(title="many", draw=_curves("easy")), Panel(title="few", draw=_curves("few"))),
    ),
    PaperFigure(
        number="15", title="Mixtures, judged on every kind of problem",
        see="n = 4 and n = 64 of each training set.", needs=("hard_on_easy", "dual", "tri"),
        panels=tuple(
            Panel(title=f"on {on.replace('_', ' ')}", draw=_arms(MIXED, on, CROSS))
            for on in ("hard", "easy", "very_easy")
        ),
    ),
    PaperFigure(
        number="16", title="Who leads at each B_p, Easy", needs=("easy_all",), see="As figure 5.",
        panels=tuple(Panel(title="Easy", draw=_at_bp("easy_all", i)) for i in range(3)),
    ),
    PaperFigure(
        number="17", title="Who leads at each B_p, Hard", needs=("hard_all",), see="As figure 5.",
        panels=tuple(Panel(title="Hard", draw=_at_bp("hard_all", i)) for i in range(3)),
    ),
    PaperFigure(
        number="18 and 19", title="Who leads at a fixed batch", see="As figure 5; B_p = B / n.",
        needs=("easy_splits", "hard_splits"),
        panels=tuple(Panel(title=t, draw=_split_curves(f"{a}_splits")) for t, a in EASY_HARD),
    ),
    PaperFigure(
        number="20", title="Problems never solved in 128 tries", needs=("extremely_hard",),
        see="Left: best@4. Right: worst@4.",
        panels=tuple(
            Panel(title=f"{m}@4", draw=_curves("extremely_hard", m), y=f"{m}@4, validation")
            for m in ("best", "worst")
        ),
    ),
    PaperFigure(
        number="21", title="Outside the domain", needs=("outside",),
        see="Another kind of problem than was trained on.",
        panels=(Panel(title="another kind", draw=_curves("outside", on="other")),),
    ),
    PaperFigure(
        number="22", title="All of 256 rollouts, 64, and 64 of 256", needs=("n64_of_256",),
        see="Arms in one panel.",
        panels=(Panel(title="Easy", draw=lambda axes, e: panels.arms(axes, {
            label: [c.replace(rollouts_per_problem=1) for c in e.alike("n64_of_256", arm)]
            for label, arm in (("256", "n256"), ("64", "n64"), ("64 of 256", "n64_of_256"))
        })),),
    ),
    PaperFigure(
        number="23", title="Tokens in the place of rollouts", needs=("long",),
        see="The best n against rollouts, and against tokens.", also=("machine",),
        panels=(Panel(title="by rollouts", draw=lambda axes, e: panels.path(
                    axes, _fit(e.with_tokens("easy"))), y="best n"),
                Panel(title="by tokens", draw=_path("easy", unit="tokens"), x="tokens",
                      y="best n")),
    ),
    PaperFigure(
        number="of the appendix", title="PPO and CISPO", needs=("ppo", "cispo"),
        see="As figure 5, under other objectives.",
        panels=(Panel(title="PPO", draw=_curves("ppo")),
                Panel(title="CISPO", draw=_curves("cispo"))),
    ),
)  # fmt: skip
