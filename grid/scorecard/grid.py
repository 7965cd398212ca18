"""The runs of the grid as curves: every finished run is a file, whatever else is still missing.

Shape legend: K evaluations of a run, P problems.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.metrics import score_from_counts
from isocompute.spread import progress

PACKED = Path(__file__).parents[2] / "src" / "isocompute" / "data" / "grid"
K = 4  # avg@4, best@4, worst@4 from the samples that there are


class Run(NamedTuple):
    """One file: its head, and its rows by validation set."""

    head: dict[str, Any]
    rows: dict[str, list[dict[str, Any]]]

    @property
    def key(self) -> tuple[int, int, int]:
        """(B_p, n, seed)."""
        spec = self.head["spec"]
        return spec["problems_per_batch"], spec["rollouts_per_problem"], spec["seed"]


@cache
def load(folder: Path) -> tuple[Run, ...]:
    """All finished runs of a folder, by name."""
    return tuple(_run(file) for file in sorted(folder.glob("*.parquet")))


def _run(file: Path) -> Run:
    table = pq.read_table(file)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        rows[row["problem_set"]].append(row)
    return Run(json.loads(table.schema.metadata[b"isocompute"]), dict(rows))


def of_study(folder: Path, studies: tuple[str, ...], arm: str = "") -> list[Run]:
    """The runs of some studies, of one recipe where `arm` names it.

    A run that several studies plan is made once, and its head names the first. The files of the
    package name it under each.
    """
    shared = set().union(*(_packed(study, arm) for study in studies))
    return [
        run for run in load(folder)
        if run.head["run"] in shared or (
            run.head["study"] in studies
            and (not arm or run.head["spec"].get("arm", {}).get("recipe") == arm)
        )
    ]  # fmt: skip


@cache
def _packed(study: str, arm: str) -> frozenset[str]:
    file = PACKED / f"{study}.parquet"
    if not file.exists():
        return frozenset()
    table = pq.read_table(file, columns=["run", "arm"]).to_pydict()
    return frozenset(r for r, a in zip(table["run"], table["arm"], strict=True) if arm in ("", a))


@cache
def curves(
    folder: Path, studies: tuple[str, ...], arm: str, metric: str, on: str | None
) -> list[Curve]:
    """Curves on one validation set; None: that of the first study's own kind."""
    name = on or studies[0].partition("-")[0]
    return [_curve(run, name, metric) for run in of_study(folder, studies, arm) if name in run.rows]


def _curve(run: Run, name: str, metric: str) -> Curve:
    rows = run.rows[name]
    b_p, n, seed = run.key

    def column(key: str) -> NDArray[np.float64]:
        return np.array([row[key] for row in rows], dtype=np.float64)

    score_K = [
        score_from_counts(np.array(row["successes"]), row["samples"], f"{metric}@{K}")
        for row in rows
    ]
    return Curve(
        problems_per_batch=b_p, rollouts_per_problem=n, seed=seed, run=run.head["run"],
        rollouts_K=column("rollouts"), score_K=np.array(score_K, dtype=np.float64),
        tokens_K=column("tokens"), steps_K=column("steps"), metric=f"{metric}@{K}",
        problem_set=name,
    )  # fmt: skip


def of_problems(
    folder: Path, studies: tuple[str, ...], name: str, column: str
) -> dict[tuple[int, int, int], float]:
    """A number of every run that its outcomes per problem give, at equal rollouts within a B_p.

    `interference` and `uniform_progress` are those of `metrics.progress` from step 0 on; `gap` is
    the training problems' score minus the validation set's.
    """
    runs = of_study(folder, studies)
    out = {}
    for b_p in {run.key[0] for run in runs}:
        peers = [run for run in runs if run.key[0] == b_p]
        end = min(run.rows[name][-1]["rollouts"] for run in peers)
        for run in peers:
            first, last = run.rows[name][0], _at(run.rows[name], end)
            if column == "gap":
                value = _score(_at(run.rows["trained"], end)) - _score(last)
            else:
                moved = progress(
                    np.array(first["successes"]), np.array(last["successes"]),
                    first["samples"], last["samples"],
                )  # fmt: skip
                found = getattr(moved, column)
                value = np.nan if found is None else float(found)
            out[run.key] = value
    return out


def _at(rows: list[dict[str, Any]], rollouts: float) -> dict[str, Any]:
    """The last evaluation that is not beyond a budget."""
    return [row for row in rows if row["rollouts"] <= rollouts][-1]


def _score(row: dict[str, Any]) -> float:
    return float(np.sum(row["successes"])) / (row["samples"] * len(row["successes"]))


def seconds_per_million(folder: Path) -> float | None:
    """CPU seconds that a million rollouts took, over all finished runs; None where none is."""
    runs = load(folder)
    spent = sum(max(row["rollouts"] for rows in run.rows.values() for row in rows) for run in runs)
    cpu_s = float(sum(run.head["cpu_s"] for run in runs))
    return float(cpu_s / spent * 1e6) if spent else None


def landscapes(runs: list[Run], sizes: tuple[int, ...]) -> dict[str, NDArray[np.float64]]:
    """Pass rates of the training problems before training, and after it at some n.

    At the largest budget that all of these runs reached; runs of one n are put together. Empty
    where an n has no run.
    """
    chosen = {n: [run for run in runs if run.key[1] == n] for n in sizes}
    if not all(chosen.values()):
        return {}
    every = [run for peers in chosen.values() for run in peers]
    end = min(run.rows["trained"][-1]["rollouts"] for run in every)
    out = {"before": _rates([run.rows["trained"][0] for run in every])}
    for n, peers in chosen.items():
        out[f"n={n}"] = _rates([_at(run.rows["trained"], end) for run in peers])
    return out


def _rates(rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    parts = [np.array(row["successes"], dtype=np.float64) / row["samples"] for row in rows]
    return np.concatenate(parts)
