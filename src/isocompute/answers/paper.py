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
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.answers.law import AVERAGED_SHARE, Law, Variable, averaged, fit_law
from isocompute.answers.sigmoid import Bounds, fit_sigmoids
from isocompute.domain import Configuration, Curve
from isocompute.domain.text import compact
from isocompute.errors import InputError, RefusalError

FloatArray = NDArray[np.float64]

BIN_WIDTH = 0.002  # the text gives none; this one yields the published path on Easy
_PARAMETERS = 4
_SLOPE = (0.1, 100.0)  # per decade
_PER_DECADE = 50  # budgets: steps of 5%


@dataclass(frozen=True, kw_only=True)
class PrintedLaw:
    """What the study itself printed of one of its panels (B_p = 32), beside our own answers.

    Args:
        law: its law of n*(C); `plateau` as printed.
        frontier: (n, budget up to which it is best; None: to the end).
        best_score: best validation reward by n.
        beyond: what it says of n that the panel does not hold; "" where nothing.
        best_n: B_p -> n best at the largest budget by (best@4, worst@4).
        source: where it is printed.
    """

    law: Law
    plateau: int
    frontier: tuple[tuple[int, float | None], ...]
    best_score: dict[int, float]
    beyond: str
    best_n: dict[int, tuple[int, int]]
    source: str

    def n_at(self, rollouts: ArrayLike) -> FloatArray:
        """The printed law's n* at budgets in rollouts, not rounded; same shape."""
        return self.law.predict(rollouts)

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
            at = float(self.n_at(rollouts))
            out.insert(1, f"At {compact(rollouts)} rollouts that law says n = {at:.0f}.")
        if self.beyond:
            out.append(f"It also says that {self.beyond}.")
        best = ", ".join(f"{a}/{b} at B_p = {bp}" for bp, (a, b) in self.best_n.items())
        return [*out, f"Its best n at the largest budget by best@4/worst@4: {best}."]


def printed_law(source: str | None) -> PrintedLaw | None:
    """What the study printed of a source, "published:qwen2.5-7b-easy" or "-hard"; else None."""
    file = resources.files("isocompute") / "data" / "published" / "printed.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    panel = known["panels"].get((source or "").removeprefix("published:"))
    if panel is None or not str(source).startswith("published:"):
        return None
    return PrintedLaw(
        law=Law(form="sigmoid_log10", variable="rollouts", **panel["law"]),
        plateau=panel["plateau"],
        frontier=tuple((n, x) for n, x in panel["frontier"]),
        best_score={int(n): score for n, score in panel["best_score"].items()},
        beyond=panel["beyond"] or "",
        best_n={int(bp): (n["best@4"], n["worst@4"]) for bp, n in panel["best_n"].items()},
        source=known["source"],
    )


class PaperCurve(NamedTuple):
    """The sigmoid of one configuration, score against log10 of the budget."""

    configuration: Configuration
    n_records: int
    floor: float
    ceiling: float
    slope: float
    log10_midpoint: float


class Stretch(NamedTuple):
    """Budgets over which one configuration attains the envelope."""

    start: float
    end: float
    configuration: Configuration


class Change(NamedTuple):
    """Where the configuration that attains the envelope changes."""

    at: float
    before: Configuration
    after: Configuration


@dataclass(frozen=True, kw_only=True)
class PaperFit:
    """What the published pipeline says of a sweep.

    Args:
        unit, bin_width: as asked for.
        curves: one per configuration with enough record points, by (B_p, n).
        left_out: configurations (B_p, n) with fewer than 4 record points.
        frontier: the envelope, merged into stretches.
        law: through the running average of its n.
    """

    unit: str
    bin_width: float
    curves: tuple[PaperCurve, ...]
    left_out: tuple[Configuration, ...]
    frontier: tuple[Stretch, ...]
    law: Law
    runs: tuple[Curve, ...] = field(repr=False, compare=False)

    @property
    def crossovers(self) -> tuple[Change, ...]:
        """Changes along the frontier."""
        pairs = pairwise(self.frontier)
        return tuple(Change(b.start, a.configuration, b.configuration) for a, b in pairs)

    def n_at(self, x: ArrayLike) -> FloatArray:
        """n*(x) of the law, not rounded; same shape as x."""
        return self.law.predict(x)

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

    def to_dict(self, *, widths: bool = True) -> dict[str, Any]:
        """The key `paper` of `fit --json`; `widths` False leaves out the other bin widths."""
        law = ("form", "variable", "L", "k", "x0", "b", "plateau")
        out = {
            "method": "paper",
            "unit": self.unit,
            "bin_width": self.bin_width,
            "curves": [
                _named(c[0]) | dict(zip(c._fields[1:], c[1:], strict=True)) for c in self.curves
            ],
            "left_out": [_named(c) for c in self.left_out],
            "frontier": [
                {"from": s.start, "to": s.end, **_named(s.configuration)} for s in self.frontier
            ],
            "crossovers": [
                {"at": c.at, **_named(c.before, "from_"), **_named(c.after, "to_")}
                for c in self.crossovers
            ],
            "law": {name: getattr(self.law, name) for name in law},
        }
        if widths:
            out["by_bin_width"] = [
                {"bin_width": width, "refused": fit}
                if isinstance(fit, str)
                else fit.to_dict(widths=False)
                for width, fit in self.by_bin_width.items()
            ]
        return out


def _named(configuration: Configuration, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: value for name, value in configuration._asdict().items()}


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
    fits = [
        fit_sigmoids(x, score[None], Bounds(
            level=(0.0, 1.0), slope=_SLOPE, midpoint=(float(x.min()), float(x.max()))))
        for x, score in fitted.values()
    ]  # fmt: skip
    x = np.concatenate([xy[0] for xy in fitted.values()])
    x_V = np.linspace(x.min(), x.max(), max(24, int(np.ptp(x) * _PER_DECADE) + 2))
    score_JV = np.concatenate([fit.value(x_V) for fit in fits])
    n_J = np.array([key.rollouts_per_problem for key in fitted], dtype=np.float64)
    n_V = averaged(x_V, n_J[score_JV.argmax(axis=0)], AVERAGED_SHARE * float(np.ptp(x_V)))
    return PaperFit(
        unit=unit,
        bin_width=bin_width,
        curves=tuple(
            PaperCurve(key, xy.shape[1], *(
                float(v[0]) for v in (f.floor, f.floor + f.height, f.slope, f.midpoint)))
            for (key, xy), f in zip(fitted.items(), fits, strict=True)
        ),
        left_out=tuple(key for key in pooled if key not in fitted),
        frontier=_stretches(x_V, score_JV, list(fitted)),
        law=fit_law(10**x_V, n_V, variable=cast("Variable", unit)),
        runs=tuple(curves),
    )  # fmt: skip


def _stretches(
    x_V: FloatArray, score_JV: FloatArray, keys: Sequence[Configuration]
) -> tuple[Stretch, ...]:
    """The envelope's path; a change lies where the two curves cross between two budgets."""
    best_V = score_JV.argmax(axis=0)
    at = [float(x_V[0])]
    path = [int(best_V[0])]
    for v in np.flatnonzero(np.diff(best_V)):
        before, after = int(best_V[v]), int(best_V[v + 1])
        lead = score_JV[before, v : v + 2] - score_JV[after, v : v + 2]
        at.append(float(x_V[v] + (x_V[v + 1] - x_V[v]) * lead[0] / (lead[0] - lead[1])))
        path.append(after)
    at.append(float(x_V[-1]))
    return tuple(
        Stretch(float(10**start), float(10**end), keys[j])
        for (start, end), j in zip(pairwise(at), path, strict=True)
    )
