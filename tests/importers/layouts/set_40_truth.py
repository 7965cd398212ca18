"""Set 40: what fourteen layouts hold, told by the rule that made them and by nothing that reads."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Key = tuple[int, int, str]  # B_p, n, what tells runs of one B_p and n apart ("" where nothing does)


@dataclass(frozen=True)
class Truth:
    """The curves of a layout: cumulative rollouts to score, for every run that belongs in."""

    curves: dict[Key, dict[int, float]]
    trap: str
    left_out: str = ""  # what a careful reader drops, or asks about


@dataclass
class Layout:
    """One folder of logs, and how it is written."""

    name: str
    write: Callable[[Path], Truth]


def score(batch: int, n: int, rollouts: int, seed: int = 0) -> float:
    """A curve that rises and levels off, later and higher for a larger n."""
    top = 0.52 + 0.035 * math.log2(n)
    pace = 9000 + 1400 * n
    wobble = 0.006 * math.sin(1.7 * seed + 0.9 * n + rollouts / 5000 + batch)
    return round(0.24 + (top - 0.24) * (1 - math.exp(-rollouts / pace)) + wobble, 4)


def curve(batch: int, n: int, steps: Sequence[int], seed: int = 0) -> dict[int, float]:
    return {step: score(batch, n, batch * n * step, seed) for step in steps}


def rollouts(batch: int, n: int, points: dict[int, float]) -> dict[int, float]:
    return {batch * n * step: value for step, value in points.items()}


def reward(n: int, step: int) -> float:
    """What the trainer logs about its own batches, never a score."""
    return round(0.2 + 0.3 * (1 - math.exp(-step / 60)) + 0.02 * math.sin(step * 0.7 + n), 5)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def put_lines(path: Path, rows: Sequence[object]) -> None:
    put(path, "".join(json.dumps(row) + "\n" for row in rows))
