"""Which sweeps are judged: parts, worlds, conditions, how many, and in which chunks.

Parts:
    sweep     a quarter of a world's budget; curves, P(best), rises, plans at 1, 4 and 10 times
    surface   the whole budget of a smooth surface; the best n at start, middle and end
    null      the whole budget of worlds without a rise, and of some with one; claims
    few       a sweep's one or two n; plans for them and their neighbours
    stopped   every n stopped after it was last in the running; the best n against the full fit
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocompute.testing.families import CONDITIONS, FAMILIES, SURFACES
from isocompute.testing.planted import NULL_WORLDS, WORLDS
from isocompute.testing.truth import World

CHUNK = 8  # sweeps that are written down together
DEFINITIVE, DEVELOPMENT = 10_000, 700_000  # first seed of the page, and of everything before it

EVERY: Mapping[str, World] = {**WORLDS, **FAMILIES, **SURFACES}
SWEEP_WORLDS = (*WORLDS, *FAMILIES)
# Curves of the fitted forms, ceilings and midpoints in order: refusals must be rare here.
CONTAINED = (
    "rising", "late_winner", "three_octaves", "equal", "meeting", "constant_small",
    "constant_large", "falling", "unequal_seeds", "capped", "joint_capped", "gompertz",
    "half_gompertz", "concave", "tent", "stands_out", "no_order", "one_crossing",
)  # fmt: skip
NULLS = (*NULL_WORLDS, "tent", "stands_out")
RISING = ("rising", "late_winner", "three_octaves", "gompertz", "concave", "weibull", "grpo_easy")
STOPPED = ("rising", "concave", "falling", "late_winner", "grpo_easy")
FEW: Mapping[str, tuple[int, ...]] = {
    "one_n": (32,),
    "two_n": (32, 64),
    "two_n_apart": (16, 256),
}
FEW_WORLDS = ("rising", "gompertz", "falling", "tent", "weibull", "grpo_easy", "concave")
MAIN = ("low", "middle", "high")  # the three noises that judged figures pool
OTHERS = tuple(name for name in CONDITIONS if name not in MAIN)


class Cell(NamedTuple):
    """Sweeps of one world, seen in one way, for one part."""

    part: str
    world: str
    condition: str

    def __str__(self) -> str:
        return "-".join(self)


class Chunk(NamedTuple):
    """Some sweeps of a cell, from one index on."""

    cell: Cell
    base: int
    first: int
    sweeps: int

    def file(self, folder: Path) -> Path:
        """Where its rows are."""
        return folder / f"{self.cell}-{self.base}-{self.first}-{self.sweeps}.jsonl"

    def seeds(self) -> range:
        """The indices of its sweeps."""
        return range(self.base + self.first, self.base + self.first + self.sweeps)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Sweeps per cell, by part; `others` for conditions beyond the three noises."""

    sweep: int = 134
    others: int = 16
    surface: int = 200
    null: int = 134
    few: int = 45
    stopped: int = 80

    @classmethod
    def all(cls, sweeps: int) -> Counts:
        """The same number everywhere."""
        return cls(**dict.fromkeys(cls.__dataclass_fields__, sweeps))


def world_of(cell: Cell) -> World:
    """The world that a cell's sweeps are drawn from, with its budget."""
    world = EVERY[cell.world.split("@")[0]]
    if cell.part in ("sweep", "few"):
        world = world.until(world.max_rollouts / 4)
    if cell.part == "few":
        n = FEW[cell.world.split("@")[1]]
        arms = tuple(a for a in world.arms if a.rollouts_per_problem in n)
        world = replace(world, arms=arms)
    return world


def rng_of(cell: Cell, seed: int) -> np.random.Generator:
    """The stream of one sweep: the same for every estimator."""
    return np.random.default_rng([seed, zlib.crc32(str(cell).encode())])


def cells_of(
    parts: Sequence[str], worlds: Sequence[str] | None, conditions: Sequence[str] | None
) -> list[Cell]:
    """Every cell asked for."""
    found = [Cell("sweep", w, c) for w in SWEEP_WORLDS for c in (*MAIN, *OTHERS)]
    found += [Cell("surface", w, "middle") for w in SURFACES]
    found += [Cell("null", w, c) for w in (*NULLS, *RISING) for c in MAIN]
    found += [
        Cell("few", f"{w}@{few}", c)
        for few, n in FEW.items()
        for w in FEW_WORLDS
        if set(n) <= {arm.rollouts_per_problem for arm in EVERY[w].arms}
        for c in MAIN
    ]
    found += [Cell("stopped", w, "middle") for w in STOPPED]
    return [
        cell
        for cell in found
        if cell.part in parts
        and (worlds is None or cell.world.split("@")[0] in worlds)
        and (conditions is None or cell.condition in conditions)
    ]


def sweeps_of(cell: Cell, counts: Counts) -> int:
    """How many sweeps a cell has."""
    if cell.part == "sweep" and cell.condition not in MAIN:
        return counts.others
    return int(getattr(counts, cell.part))


def chunks_of(cells: Sequence[Cell], counts: Counts, base: int) -> list[Chunk]:
    """Every cell's first chunk, then every cell's second: stopped early, the table is even."""
    chunks = []
    for cell in cells:
        total = sweeps_of(cell, counts)
        chunks += [Chunk(cell, base, i, min(CHUNK, total - i)) for i in range(0, total, CHUNK)]
    return sorted(chunks, key=lambda chunk: chunk.first)
