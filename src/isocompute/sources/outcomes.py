"""A study folder or `grid:NAME` -> outcomes per problem, for `isocompute.interference`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isocompute.errors import InputError
from isocompute.interference import Groups, OutcomeRun, study_outcomes
from isocompute.sources.grid import GRID, grid_rows
from isocompute.store.arms import matches, split_source

_KEYS = ("arm", "problems_per_batch", "rollouts_per_problem", "seed", "run")


def load_outcomes(source: str, problem_set: str | None = None) -> tuple[str, Groups]:
    """The problem set, and its outcomes per problem by (B_p, n).

    Args:
        source: a study folder or `grid:NAME`, with a selection where it holds several arms.
        problem_set: None: the only one there is, or the one that the grid's study trained on.

    Raises:
        InputError: an unknown name or set, or several arms or sets and none chosen.
    """
    path, where = split_source(source)
    if not path.startswith(GRID):
        return study_outcomes(source, problem_set)
    trained_on, main_b_p, rows = grid_rows(
        path.removeprefix(GRID),
        [*_KEYS, "split", "problem_set", "rollouts", "samples", "successes"],
    )
    if main_b_p is not None:
        where.setdefault("problems_per_batch", str(main_b_p))
    wanted = where.pop("problem_set", problem_set or trained_on)
    unknown = sorted(set(where) - set(_KEYS))
    if unknown:
        raise InputError(
            f"{path}: runs are told apart by {', '.join(_KEYS)}, but got {', '.join(unknown)}; "
            "choose by one of them."
        )
    _require(path, "problem set", wanted, {row["problem_set"] for row in rows}, "--problem-set")
    runs: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        kept = row["split"] == "validation" and row["problem_set"] == wanted
        if (kept and row["successes"] is not None
                and all(matches(str(row[k]), v) for k, v in where.items())):  # fmt: skip
            runs.setdefault(tuple(row[key] for key in _KEYS), []).append(row)
    arms = {run[0] for run in runs}
    if len(arms) > 1:
        _require(path, "arm", "all", arms, "--where arm=")
    groups: Groups = {}
    for (_, b_p, n, *_), of in sorted(runs.items()):
        of.sort(key=lambda row: int(row["rollouts"]))
        groups.setdefault((b_p, n), []).append(
            OutcomeRun(
                np.array([row["rollouts"] for row in of]),
                np.array([row["successes"] for row in of], dtype=np.int64),
                int(of[0]["samples"]),
            )
        )
    return wanted, groups


def _require(path: str, what: str, got: str, known: set[str], option: str) -> None:
    if got not in known:
        raise InputError(
            f"{path}: the {what} must be one of {', '.join(map(repr, sorted(known)))}, but got "
            f"{got!r}; choose one with {option}."
        )
