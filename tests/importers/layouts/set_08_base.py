"""What is true of a layout of the eighth set, and the files that most of them write."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """What is true of one run: scores by the steps (batches of B_p x n rollouts) that were done."""

    bp: int
    n: int
    scores: dict[int, float]
    seed: int | None = None
    name: str = ""

    @property
    def curve(self) -> list[tuple[int, float]]:
        return [(step * self.bp * self.n, score) for step, score in self.scores.items()]

    @property
    def steps(self) -> int:
        return max(self.scores)


@dataclass(frozen=True)
class Layout:
    name: str
    write: Callable[[Path], Path]
    runs: tuple[Run, ...]
    trap: str
    knows: str
    table: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    must_say: tuple[str, ...] = field(default=())


def curve(
    n: int, steps: range | list[int], top: float = 0.62, digits: int = 4, shift: float = 0.0
) -> dict[int, float]:
    """A rising curve that is not the same for any two n."""
    last = max(steps)
    rise = top + n / 1000
    return {
        step: round(0.2137 + shift + rise * (step / (last + 37.0 + n)), digits) for step in steps
    }


def to_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def to_csv(path: Path, rows: list[dict[str, object]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter=delimiter, restval="")
        writer.writeheader()
        writer.writerows(rows)


def to_wandb_config(path: Path, values: dict[str, object]) -> None:
    """A W&B config.yaml: every top key holds a `value`; JSON is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        "_wandb:",
        "    value:",
        "        cli_version: 0.19.8",
        "        python_version: 3.10.12",
    ]
    for key, value in values.items():
        lines += [f"{key}:", f"    value: {json.dumps(value)}"]
    path.write_text("\n".join(lines) + "\n")
