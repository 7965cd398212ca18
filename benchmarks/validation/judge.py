"""The judged figures: each with its target, and whether it is met within two standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from isocompute.testing.families import SURFACES
from validation.cells import CONTAINED, MAIN, NULLS, OTHERS, SWEEP_WORLDS
from validation.figures import Cells, Figure, Summary, pooled
from validation.rows import BINS, FACTORS, WHERE

Panels = Sequence[Mapping[str, Any]]


class Judged(NamedTuple):
    """One line of the page's first table."""

    name: str
    target: str
    figure: Figure
    passed: bool | None  # None: too few sweeps to say, or an aim


def within(name: str, figure: Figure, low: float, high: float, unit: float = 100) -> Judged:
    """Judge a figure that must lie between two ends, two standard errors allowed."""
    down, up = (2 * error_at(figure, end, unit) for end in (low, high))
    passed = low - down <= figure.value <= high + up if figure.sweeps else None
    if np.isinf(low):
        target = f"at most {high * unit:g}"
    elif np.isinf(high):
        target = f"at least {low * unit:g}"
    else:
        target = f"{low * unit:g} to {high * unit:g}"
    return Judged(name, target, figure, passed)


def error_at(figure: Figure, end: float, unit: float) -> float:
    """Standard error; of sweeps that all agree, that of a share that lies on the end."""
    if figure.se == 0 and unit == 100 and 0 < end < 1 and figure.sweeps:
        return float(np.sqrt(end * (1 - end) / figure.sweeps))
    return float(np.nan_to_num(figure.se))


def at_most(name: str, figure: Figure, high: float, unit: float = 100) -> Judged:
    return within(name, figure, -np.inf, high, unit)


def at_least(name: str, figure: Figure, low: float, unit: float = 100) -> Judged:
    return within(name, figure, low, np.inf, unit)


def main_of(cells: Cells, world: str | None = None) -> Summary:
    """Sweeps of the three noises, of one world or of all."""
    return pooled(
        cells,
        lambda c: c.part == "sweep" and c.condition in MAIN and (world is None or c.world == world),
    )


def worlds_in(cells: Cells, part: str) -> list[str]:
    """Worlds with sweeps, in the order of the lists."""
    there = {cell.world for cell in cells if cell.part == part}
    return [w for w in (*SWEEP_WORLDS, *SURFACES) if w in there]


def judged(cells: Cells, today: Cells, panels: Panels, before: Panels = ()) -> list[Judged]:
    """Every figure that the sweeps at hand allow, beside those of what stood before."""
    return [
        *of_panels(panels, before),
        *of_surfaces(cells),
        *of_curves(cells),
        *of_chances(cells),
        *of_scores(cells),
        *of_rises(cells),
        *of_losses(cells, today),
        *of_few(cells),
        *of_stopped(cells),
        *of_refusals(cells),
    ]


def of_panels(panels: Panels, before: Panels) -> Iterator[Judged]:
    if not panels:
        return
    told = [row for row in panels if "loss" in row]
    if before:
        was = plain([row["loss"] for row in before if "loss" in row])
        mean = plain([row["loss"] for row in told])
        name, target = "panels: mean loss against the plan before", f"below {was.value:.4f}"
        yield Judged(name, target, mean, mean.value < was.value)
    loss = plain([row["loss"] for row in told])
    largest = plain([row["rules"]["largest n"] for row in panels])
    wide = plain([row["high"] - row["low"] for row in told])
    held = sum(row["held"] for row in told)
    stops = sum(row["verdict"] in ("refused", "stop") for row in panels)
    yield Judged("panels: mean loss", "at most 0.0055", loss, loss.value <= 0.0055)
    yield Judged(
        "panels: mean loss against the largest n",
        f"below {largest.value:.4f}",
        loss,
        loss.value < largest.value,
    )
    yield Judged("panels: interval of the chosen score holds", "at least 16 of 18",
                 Figure(held, 0.0, len(panels)), held >= 16 / 18 * len(panels))  # fmt: skip
    yield Judged("panels: its mean width", "at most 0.08", wide, wide.value <= 0.08)
    yield Judged("panels: refused or stopped", "none", Figure(stops, 0.0, len(panels)), stops == 0)


def plain(values: Sequence[float]) -> Figure:
    """Mean of numbers of equal weight."""
    data = np.array(values, dtype=float)
    if not data.size:
        return Figure(float("nan"), float("nan"), 0)
    sd = data.std(ddof=1) if data.size > 1 else np.nan
    return Figure(float(data.mean()), float(sd / np.sqrt(data.size)), data.size)


def of_surfaces(cells: Cells) -> Iterator[Judged]:
    for world in worlds_in(cells, "surface"):
        mine = pooled(cells, lambda c, w=world: c.part == "surface" and c.world == w)
        for where in WHERE:
            name = f"best n, {world}, {where}: 90% interval holds"
            yield within(name, mine.figure(f"best n held {where}"), 0.86, 0.97)
        if len(SURFACES[world].arms) == 7:
            for where in WHERE:
                width = mine.figure(f"best n width {where}")
                name = f"best n, {world}, {where}: width in octaves (an aim)"
                yield at_most(name, width, 1.5, unit=1)._replace(passed=None)


def of_curves(cells: Cells) -> Iterator[Judged]:
    for world in worlds_in(cells, "sweep"):
        figure = main_of(cells, world).figure("curve inside")
        yield within(f"curves, {world}: 90% interval holds", figure, 0.87, 0.93)
    for condition in OTHERS:
        mine = pooled(cells, lambda c, k=condition: c.part == "sweep" and c.condition == k)
        if mine.sweeps:
            figure = mine.figure("curve inside")
            yield within(f"curves, {condition}: 90% interval holds", figure, 0.87, 0.93)


def of_chances(cells: Cells) -> Iterator[Judged]:
    groups = {"three seeds": (MAIN, 0.05)}
    groups |= {c: ((c,), 0.10) for c in ("one_seed", "greedy", "greedy_one_seed")}
    for group, (conditions, limit) in groups.items():
        mine = pooled(cells, lambda c, k=conditions: c.part == "sweep" and c.condition in k)
        for low, high in pairwise(BINS):
            off = mine.figure(f"p {low:.2f}-{high:.2f} off")
            if off.sweeps:
                name = f"P(best), {group}, said {low:.2f} to {high:.2f}: true less said"
                yield within(name, off, -limit, limit)


def of_scores(cells: Cells) -> Iterator[Judged]:
    worlds = worlds_in(cells, "sweep")
    for factor in (4, 10):
        held = [main_of(cells, world).figure(f"held {factor}x") for world in worlds]
        held = [f for f in held if f.sweeps]
        if not held:
            continue
        se = float(np.sqrt(sum(f.se**2 for f in held)) / len(held))
        mean = Figure(float(np.mean([f.value for f in held])), se, sum(f.sweeps for f in held))
        yield at_least(f"named score at {factor}x: mean over worlds", mean, 0.85)
        worst = min(held, key=lambda f: f.value)
        yield at_least(f"named score at {factor}x: worst world", worst, 0.60)


def of_rises(cells: Cells) -> Iterator[Judged]:
    for world in NULLS:
        mine = pooled(cells, lambda c, w=world: c.part == "null" and c.world == w)
        if mine.sweeps:
            yield at_most(f"false rises, {world}", mine.figure("claimed"), 0.05)


def of_losses(cells: Cells, today: Cells) -> Iterator[Judged]:
    worlds = [w for w in worlds_in(cells, "sweep") if main_of(today, w).sweeps]
    for factor in FACTORS:
        ours, theirs = (mean_of_worlds(c, worlds, factor) for c in (cells, today))
        if not (ours.sweeps and theirs.sweeps):
            continue
        share = 1.0 if factor == 1 else 0.5
        se = float(np.hypot(ours.se, share * theirs.se))
        figure = Figure(ours.value, se, ours.sweeps)
        name = f"mean loss over worlds at {factor}x (before: {theirs.value:.4f} ±{theirs.se:.4f})"
        yield at_most(name, figure, round(share * theirs.value, 5), unit=1)
    for factor in FACTORS:
        high = main_of(cells).loss_95(factor)
        if high.sweeps:
            yield at_most(f"95th percentile of losses at {factor}x", high, 0.02, unit=1)
    for world in worlds:
        for factor in FACTORS:
            a, b = main_of(cells, world).loss(factor), main_of(today, world).loss(factor)
            more = Figure(a.value - b.value, float(np.hypot(a.se, b.se)), a.sweeps)
            yield at_most(f"loss more than before, {world} at {factor}x", more, 0.004, unit=1)


def mean_of_worlds(cells: Cells, worlds: Sequence[str], factor: int) -> Figure:
    """Every world counts the same, however many sweeps it has."""
    each = [f for w in worlds if (f := main_of(cells, w).loss(factor)).sweeps]
    if not each:
        return Figure(float("nan"), float("nan"), 0)
    se = float(np.sqrt(np.nansum([f.se**2 for f in each])) / len(each))
    return Figure(float(np.mean([f.value for f in each])), se, sum(f.sweeps for f in each))


def of_few(cells: Cells) -> Iterator[Judged]:
    mine = pooled(cells, lambda c: c.part == "few")
    if not mine.sweeps:
        return
    for where in (*WHERE, "4x"):
        for kind in ("tested", "beside"):
            figure = mine.figure(f"few {kind} {where}")
            name = f"one or two n, {kind}, {where}: 90% interval holds"
            yield within(name, figure, 0.86, 0.97)
    for factor in FACTORS:
        name = f"one or two n: loss over keeping the n that was run, {factor}x"
        yield at_most(name, mine.figure(f"over keeping {factor}x"), 0.0, unit=1)


def of_stopped(cells: Cells) -> Iterator[Judged]:
    mine = pooled(cells, lambda c: c.part == "stopped")
    if mine.sweeps:
        near = mine.figure("stopped within half an octave")
        yield at_least("stopped early: best n within half an octave", near, 0.95)
        yield at_most("stopped early: budgets lost", mine.figure("stopped lost"), 0.0)


def of_refusals(cells: Cells) -> Iterator[Judged]:
    for world in worlds_in(cells, "sweep"):
        if world not in CONTAINED:
            continue
        mine = main_of(cells, world)
        for factor in FACTORS:
            figure = mine.figure(f"refused {factor}x")
            if figure.sweeps:
                yield at_most(f"refused or stopped, {world} at {factor}x", figure, 0.05)
    missed = main_of(cells).figure("missed and stopped")
    if missed.sweeps:
        yield at_least("named score off by more than 0.05: stopped", missed, 0.5)
