"""From rows to figures with standard errors, and the judgement of each.

A figure is a ratio of sums over sweeps, sum(v) / sum(c); its standard error treats sweeps as the
units: sqrt(sum((v - r c)^2)) / sum(c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from validation.cells import Cell


class Figure(NamedTuple):
    """A ratio, its standard error, and the sweeps behind it."""

    value: float
    se: float
    sweeps: int

    def __str__(self) -> str:
        return "-" if not self.sweeps else f"{self.value:.4f} ±{self.se:.4f}"

    @property
    def percent(self) -> str:
        """As a share."""
        return "-" if not self.sweeps else f"{100 * self.value:.1f} ±{100 * self.se:.1f}"


@dataclass
class Summary:
    """All that is kept of a cell: moments of every sum, and every loss."""

    sweeps: int = 0
    moments: dict[str, list[float]] = field(default_factory=dict)  # n, v, c, vv, vc, cc
    losses: dict[str, list[float]] = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)

    def take(self, row: Mapping[str, Any]) -> None:
        """One more sweep."""
        self.sweeps += 1
        for name, (v, c) in row["sums"].items():
            had = self.moments.setdefault(name, [0.0] * 6)
            for i, more in enumerate((1, v, c, v * v, v * c, c * c)):
                had[i] += more
        for factor, loss in row["loss"].items():
            self.losses.setdefault(factor, []).append(loss)
        if "why" in row:
            self.why[row["why"]] = self.why.get(row["why"], 0) + 1

    def join(self, other: Summary) -> None:
        """The sweeps of another cell."""
        self.sweeps += other.sweeps
        for name, more in other.moments.items():
            had = self.moments.setdefault(name, [0.0] * 6)
            self.moments[name] = [a + b for a, b in zip(had, more, strict=True)]
        for factor, losses in other.losses.items():
            self.losses.setdefault(factor, []).extend(losses)
        for why, times in other.why.items():
            self.why[why] = self.why.get(why, 0) + times

    def figure(self, name: str) -> Figure:
        """A ratio by its name."""
        n, v, c, vv, vc, cc = self.moments.get(name, [0.0] * 6)
        if not c:
            return Figure(float("nan"), float("nan"), 0)
        r = v / c
        spread = max(vv - 2 * r * vc + r * r * cc, 0.0)
        small = n / max(n - 1, 1)
        return Figure(r, float(np.sqrt(spread * small) / c), int(n))

    def loss(self, factor: int) -> Figure:
        """Mean loss of plans."""
        losses = np.array(self.losses.get(str(factor), []))
        if not losses.size:
            return Figure(float("nan"), float("nan"), 0)
        sd = losses.std(ddof=1) if losses.size > 1 else np.nan
        return Figure(float(losses.mean()), float(sd / np.sqrt(losses.size)), losses.size)

    def loss_95(self, factor: int) -> Figure:
        """95th percentile of the losses of plans; its error from the order statistics."""
        losses = np.sort(self.losses.get(str(factor), []))
        m = len(losses)
        if m < 2:
            return Figure(float("nan"), float("nan"), 0)
        around = 0.95 + np.array([-1, 1]) * np.sqrt(0.95 * 0.05 / m)
        low, high = np.quantile(losses, np.clip(around, 0, 1))
        return Figure(float(np.quantile(losses, 0.95)), float((high - low) / 2), m)


Cells = dict[Cell, Summary]


def pooled(cells: Cells, keep: Callable[[Cell], bool]) -> Summary:
    """Every sweep of the cells that are kept."""
    out = Summary()
    for cell, summary in cells.items():
        if keep(cell):
            out.join(summary)
    return out


def to_document(cells: Cells, **about: Any) -> dict[str, Any]:
    """What is committed of a run: small, and exact to add up."""
    return {
        **about,
        "cells": {
            "|".join(cell): {
                "sweeps": s.sweeps,
                "moments": {k: [float(f"{x:.9g}") for x in v] for k, v in s.moments.items()},
                "losses": {k: [round(1e5 * x) for x in v] for k, v in s.losses.items()},
                "why": s.why,
            }
            for cell, s in cells.items()
        },
    }


def of_document(document: Mapping[str, Any]) -> Cells:
    """The cells of a committed run."""
    return {
        Cell(*name.split("|")): Summary(
            sweeps=kept["sweeps"],
            moments={k: list(v) for k, v in kept["moments"].items()},
            losses={k: [x / 1e5 for x in v] for k, v in kept["losses"].items()},
            why=dict(kept["why"]),
        )
        for name, kept in document["cells"].items()
    }
