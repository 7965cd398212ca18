"""What planted sweeps were tallied to, and the rows that show it; see `law_coverage.py`.

Every head and its rows stand together. A `Cell` holds one world at one noise and number of seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

LEVELS = (0.90, 0.95)
FACTORS = (1, 4, 10)  # of the largest budget of the sweep, at which a plan is asked for
BUDGETS = 9  # inside the common support at which n*(C) is checked


@dataclass
class Cell:
    """Tallies of one cell: name -> list of outcomes, one per check."""

    tally: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: int = 0
    sweeps: int = 0
    seconds: float = 0.0

    def mean(self, name: str) -> float:
        """Mean of the outcomes under a name; NaN where there is none."""
        values = self.tally.get(name)
        return float(np.mean(values)) if values else float("nan")

    def add(self, other: Cell) -> None:
        """Take in another part of the same cell."""
        for name, values in other.tally.items():
            self.tally[name].extend(values)
        self.refused += other.refused
        self.sweeps += other.sweeps
        self.seconds += other.seconds


class Task(NamedTuple):
    """One chunk of one cell."""

    part: str
    world: str
    noise: str
    seeds: int
    first: int
    sweeps: int
    draws: int

    def file(self, folder: Path) -> Path:
        """Where the chunk is written down."""
        return folder / ("-".join(map(str, self)) + ".json")


def percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def coverage_row(name: str, noise: str, seeds: int, cell: Cell) -> str:
    label = f"{seeds}" + (" (conditional)" if seeds == 1 else "")
    last, off = (
        np.array(cell.tally.get(key, [np.nan] * BUDGETS))[BUDGETS - 1 :: BUDGETS]
        for key in ("law 0.90", "law off 0.90")
    )
    numbers = [percent(cell.mean(f"law {level:.2f}")) for level in LEVELS]
    numbers += [percent(float(last.mean())), f"{np.quantile(off, 0.95):.2f}"]
    numbers += [percent(cell.mean(f"set {level:.2f}")) for level in LEVELS]
    numbers += [f"{cell.mean(f'size {level:.2f}'):.1f}" for level in LEVELS]
    numbers += [
        percent(cell.mean(f"{w} {level:.2f}"))
        for w in ("ceiling", "bounded", "crossing", "crossover")
        for level in LEVELS
    ]
    found, true = cell.mean("crossovers detected"), cell.mean("true crossovers")
    numbers += [f"{found:.1f} of {true:.1f}", f"{cell.mean('law error'):.2f}"]
    numbers += [str(cell.refused), str(cell.sweeps)]
    numbers += [f"{cell.seconds / max(cell.sweeps, 1):.2f}"]
    return f"| {name} | {noise} | {label} | " + " | ".join(numbers) + " |"


COVERAGE_HEAD = (
    "| world | noise | seeds | law 90 | law 95 | end 90 | end off | set 90 | set 95 |"
    " size 90 | size 95 | ceiling 90 | ceiling 95 | bounded 90 | bounded 95 |"
    " crossover 90 | crossover 95 | reported 90 | reported 95 | crossovers | law error |"
    " refused | sweeps | s |\n"
    + "|---" * 24
    + "|"
)
RULES = ("plan", "expected score", "law, rounded down", "best n of the sweep", "best so far")


def regret_rows(name: str, noise: str, seeds: int, cell: Cell) -> Iterable[str]:
    for factor in FACTORS:
        shown = []
        for rule in RULES:
            lost = cell.tally.get(f"{rule} {factor}x", [np.nan])
            shown.append(f"{np.median(lost):.4f}, {np.quantile(lost, 0.95):.4f}")
        refused = percent(cell.mean(f"refused {factor}x"))
        yield (
            f"| {name} | {noise} | {seeds} | {factor}x | "
            + " | ".join(shown)
            + f" | {refused} | {cell.sweeps} |"
        )


SCORES_HEAD = (
    "| world | noise | seeds | budget | score 95 | too high by | width | regret said | regret |"
    " sweeps |\n" + "|---" * 10 + "|"
)


def score_rows(name: str, noise: str, seeds: int, cell: Cell) -> Iterable[str]:
    for factor in FACTORS:
        covered = percent(cell.mean(f"score {factor}x"))
        numbers = [f"{cell.mean(f'{what} {factor}x'):.4f}" for what in
                   ("too high", "wide", "said", "plan")]  # fmt: skip
        yield (
            f"| {name} | {noise} | {seeds} | {factor}x | {covered} | "
            + " | ".join(numbers)
            + f" | {cell.sweeps} |"
        )


RISES_HEAD = (
    "| world | noise | seeds | rise claimed | bound holds | bound | midpoint 90 | midpoint 95 |"
    " refused | sweeps |\n" + "|---" * 10 + "|"
)
REGRET_HEAD = (
    "| world | noise | seeds | budget | " + " | ".join(RULES) + " | refused, % | sweeps |\n"
    + "|---" * 11 + "|"
)  # fmt: skip


def rise_row(name: str, noise: str, seeds: int, cell: Cell) -> str:
    numbers = [percent(cell.mean(what)) for what in ("rise claimed", "bound holds")]
    numbers.append(f"{cell.mean('bound'):.1f}")
    numbers += [percent(cell.mean(f"midpoint {level:.2f}")) for level in LEVELS]
    return (
        f"| {name} | {noise} | {seeds} | "
        + " | ".join(numbers)
        + f" | {cell.refused} | {cell.sweeps} |"
    )


PROBABILITY_EDGES = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0)
PROBABILITY_HEAD = "| noise | said | on average | best in truth | n |\n" + "|---" * 5 + "|"


def probability_rows(noise: str, cell: Cell) -> Iterable[str]:
    """How often an n is best of which that is said, by what is said."""
    said, true = np.array(cell.tally["probability"]), np.array(cell.tally["is best"])
    for low, high in pairwise(PROBABILITY_EDGES):
        here = (said >= low) & ((said < high) | (high == 1))
        if here.any():
            numbers = f"{said[here].mean():.3f} | {true[here].mean():.3f} | {here.sum():,}"
            yield f"| {noise} | {low:g} to {high:g} | {numbers} |"


def rows_of(cells: Iterable[tuple[Task, Cell]]) -> Iterable[str]:
    """A cell's rows by its part."""
    for t, cell in cells:
        of = t.world, t.noise, t.seeds, cell
        if t.part == "regret":
            yield from regret_rows(*of)
        else:
            yield coverage_row(*of) if t.part == "coverage" else rise_row(*of)
