"""The published pipeline, as its text has it and nothing added: a baseline beside our answers.

In each run the validation reward is binned, the first checkpoint of every new highest bin is kept
and the rest are dropped; a monotone sigmoid of reward against log10 C is fitted to the record
points of each configuration; n*(C) is the n whose curve attains the upper envelope; a sigmoid law
is fitted to a running average of n*(C). No weights, no ties, no intervals.

Where the text says nothing, the plainest reading: bin k holds rewards from k to k + 1 widths;
record points of all runs of a configuration go into one fit; a sigmoid has 4 parameters, so a
configuration with fewer record points has no curve; floor and ceiling lie in 0..1 and the midpoint
among the configuration's own record points; every curve counts at every budget from the first
record point of all to the last; the running average is of n, over 0.3 of that span. Of these the
midpoint matters most: left free, Hard (B_p = 32) goes to 128 at 0.97M rollouts, not at 0.89M.

Source: arXiv 2603.12151, section 4, appendices A and C.
Shape legend: J configurations, K checkpoints of a run, V budgets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isocompute.answers.best import FloatArray
from isocompute.answers.frontier import change_row, changes_of, spans_of
from isocompute.answers.law import AVERAGED_SHARE, Law, Variable, averaged, fit_law
from isocompute.answers.sigmoid import Bounds, fit_sigmoids
from isocompute.domain import Configuration, Curve
from isocompute.domain.text import compact
from isocompute.errors import InputError, RefusalError

Row = dict[str, Any]

BIN_WIDTH = 0.002  # the text gives none; this one yields the published path on Easy
_PARAMETERS = 4
_SLOPE = (0.1, 100.0)  # per decade
_PER_DECADE = 50  # budgets: steps of 5%


@dataclass(frozen=True, kw_only=True)
class PrintedLaw:
    """What the study itself printed of one of its panels (B_p = 32), beside our own answers."""

    law: Law  # of n*(C); it levels off at `plateau`
    plateau: int
    frontier: list[tuple[int, float | None]]  # n, budget up to which it is best (None: to the end)
    beyond: str  # what it says of n that the panel does not hold
    best_n: dict[str, dict[str, int]]  # B_p -> n best at the largest budget, by metric
    source: str  # where it is printed

    def sentences(self, rollouts: float | None = None) -> list[str]:
        """What was printed, in words; with what its law says at a budget."""
        law = self.law
        path = [f"n = {n}" + (f" to {compact(x)}" if x else "") for n, x in self.frontier]
        out = [
            f"The study's own law: log2 n* = {law.L:g} / (1 + exp(-{law.k:g} "
            f"(log10 C - {law.x0:g}))) + {law.b:g}; it levels off at n = {self.plateau}.",
            f"The study's own frontier: {', '.join(path[:-1])}, then {path[-1]}.",
        ]
        if rollouts is not None:
            n = float(law.predict(rollouts))
            out.insert(1, f"At {compact(rollouts)} rollouts that law says n = {n:.0f}.")
        if self.beyond:
            out.append(f"It also says that {self.beyond}.")
        best = ", ".join(
            f"{n['best@4']}/{n['worst@4']} at B_p = {b_p}" for b_p, n in self.best_n.items()
        )
        return [*out, f"Its best n at the largest budget by best@4/worst@4: {best}."]


def printed_law(source: str | None) -> PrintedLaw | None:
    """What the study printed of a source, "published:qwen2.5-7b-easy" or "-hard"; else None."""
    kind, _, name = (source or "").partition(":")
    file = resources.files("isocompute") / "data" / "published" / "printed.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    if kind != "published" or name not in known["panels"]:
        return None
    panel = known["panels"][name]
    return PrintedLaw(
        law=Law(form="sigmoid_log10", variable="rollouts", **panel["law"]),
        plateau=panel["plateau"],
        frontier=[(n, x) for n, x in panel["frontier"]],
        beyond=panel["beyond"] or "",
        best_n=panel["best_n"],
        source=known["source"],
    )


@dataclass(frozen=True, kw_only=True)
class PaperFit:
    """What the published pipeline says of a sweep; rows are those of the document.

    Args:
        unit, bin_width: as asked for.
        curves: one row per configuration with enough record points, by (B_p, n).
        left_out: configurations with fewer than 4 record points.
        frontier, crossovers: the envelope merged into stretches, and its changes.
        law: through the running average of its n.
    """

    unit: str
    bin_width: float
    curves: list[Row]
    left_out: list[Row]
    frontier: list[Row]
    crossovers: list[Row]
    law: Law
    runs: tuple[Curve, ...] = field(repr=False, compare=False)

    @cached_property
    def by_bin_width(self) -> dict[float, PaperFit | str]:
        """The same with half and with twice the width of a bin; the reason where it cannot."""
        out: dict[float, PaperFit | str] = {}
        for width in (self.bin_width / 2, self.bin_width * 2):
            try:
                out[width] = paper_fit(self.runs, unit=self.unit, bin_width=width)
            except RefusalError as refusal:
                out[width] = refusal.reason
        return out

    def to_dict(self, *, widths: bool = True) -> Row:
        """The key `paper` of `fit --json`; `widths` False leaves out the other bin widths."""
        own = ("unit", "bin_width", "curves", "left_out", "frontier", "crossovers")
        law = ("form", "variable", "L", "k", "x0", "b", "plateau")
        out: Row = {"method": "paper", **{name: getattr(self, name) for name in own}}
        out["law"] = {name: getattr(self.law, name) for name in law}
        if widths:
            out["by_bin_width"] = [
                {"bin_width": width, "refused": fit}
                if isinstance(fit, str)
                else fit.to_dict(widths=False)
                for width, fit in self.by_bin_width.items()
            ]
        return out


def records(score_K: FloatArray, bin_width: float) -> NDArray[np.bool_]:
    """First checkpoint of every new highest bin of the reward.

    >>> records(np.array([0.10, 0.13, 0.12, 0.19, 0.21]), 0.1).tolist()
    [True, False, False, False, True]
    """
    bin_K = np.floor(score_K / bin_width + 1e-9)  # 0.3 / 0.1 is a hair below 3
    before_K = np.concatenate([[-np.inf], np.maximum.accumulate(bin_K)[:-1]])
    return np.asarray(bin_K > before_K)


def paper_fit(
    curves: Sequence[Curve], *, unit: str = "rollouts", bin_width: float = BIN_WIDTH
) -> PaperFit:
    """Records, sigmoids, envelope, running average, law.

    Args:
        curves: one per run, of one metric. A checkpoint at budget 0 sets the record that later
            ones must exceed; on a log axis it has no place of its own.
        unit: of the budget.
        bin_width: of the reward, in units of score.

    Raises:
        InputError: bin width not in 0..1, an unknown unit, or tokens that a run does not have.
        RefusalError: fewer than 2 configurations with 4 record points.
    """
    if not 0 < bin_width < 1:
        raise InputError(
            f"`0 < bin_width < 1` must hold, but got bin_width={bin_width!r}; take {BIN_WIDTH}."
        )
    points: dict[Configuration, list[FloatArray]] = {}
    for curve in curves:
        x_K, kept_K = curve.position(unit), records(curve.score_K, bin_width)
        kept_K &= x_K > 0
        xy = np.stack([np.log10(x_K[kept_K]), curve.score_K[kept_K]])
        points.setdefault(curve.configuration, []).append(xy)
    pooled = {key: np.concatenate(parts, axis=1) for key, parts in sorted(points.items())}
    fitted = {key: xy for key, xy in pooled.items() if xy.shape[1] >= _PARAMETERS}
    if len(fitted) < 2:
        found = ", ".join(f"{key}: {xy.shape[1]}" for key, xy in pooled.items())
        raise RefusalError(
            "the published method needs at least 2 configurations with 4 record points, but got "
            f"record points of {found or 'no run'}; evaluate more often, or take narrower bins "
            f"than {bin_width:g}."
        )
    every = np.concatenate([x for x, _ in fitted.values()])
    x_V = np.linspace(every.min(), every.max(), max(24, int(np.ptp(every) * _PER_DECADE) + 2))
    rows, value_JV = [], []
    for key, (x, score) in fitted.items():
        ends = float(x.min()), float(x.max())
        fit = fit_sigmoids(x, score[None], Bounds(level=(0.0, 1.0), slope=_SLOPE, midpoint=ends))
        value_JV.append(fit.value(x_V)[0])
        of = {"floor": fit.floor, "ceiling": fit.floor + fit.height, "slope": fit.slope,
              "log10_midpoint": fit.midpoint}  # fmt: skip
        numbers = {name: float(value[0]) for name, value in of.items()}
        rows.append({**key._asdict(), "n_records": len(x), **numbers})
    score_JV, keys = np.array(value_JV), list(fitted)
    best_V = score_JV.argmax(axis=0)
    changes = changes_of(x_V, score_JV, best_V)
    n_V = np.array([key.rollouts_per_problem for key in keys], dtype=np.float64)[best_V]
    n_V = averaged(x_V, n_V, AVERAGED_SHARE * float(np.ptp(x_V)))
    return PaperFit(
        unit=unit,
        bin_width=bin_width,
        curves=rows,
        left_out=[key._asdict() for key in pooled if key not in fitted],
        frontier=[{"from": 10**start, "to": 10**end, **keys[j]._asdict()}
                  for j, start, end in spans_of(x_V, best_V, changes)],
        crossovers=[change_row(keys, change) for change in changes],
        law=fit_law(10**x_V, n_V, variable=cast("Variable", unit)),
        runs=tuple(curves),
    )  # fmt: skip


def paper_choice(
    curves: Sequence[Curve], among: Sequence[Configuration], amount: float, unit: str = "rollouts"
) -> Configuration | None:
    """Of some configurations of one B_p the one whose n is nearest to the method's law.

    Args:
        curves: those at that B_p are read.

    Returns:
        None where the method refuses the curves, or knows no such unit.
    """
    b_p = among[0].problems_per_batch
    try:
        law = paper_fit([c for c in curves if c.problems_per_batch == b_p], unit=unit).law
    except (InputError, RefusalError):
        return None
    n = float(law.predict(amount))
    return min(among, key=lambda c: abs(np.log2(c.rollouts_per_problem / n)))
