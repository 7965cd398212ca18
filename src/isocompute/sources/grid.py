"""`grid:NAME` -> learning curves: the package's own sweeps in a world in which skills compete."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers import load_table

GRID, JOINT = "grid:", "-joint"
_PROBLEMS = "problems"  # the column of D, the same in all runs of a file
# Of the columns of a file, what a curve is made of; the rest is for pandas and DuckDB.
_COLUMNS = ("run", "arm", "problems_per_batch", "rollouts_per_problem", "seed", "steps", "rollouts",
            "tokens", "split", "metric", "problem_set", "score", "best", "worst",
            "learning_rate")  # fmt: skip


def grid_files() -> dict[str, Path]:
    """Parquet files that are shipped, by the name after the prefix."""
    folder = Path(str(resources.files("isocompute") / "data" / "grid"))
    return {file.stem: file for file in sorted(folder.glob("*.parquet"))}


def _head(path: Path) -> dict[str, Any]:
    """What `grid/make.py` says of a file."""
    import pyarrow.parquet as parquet

    return dict(json.loads(parquet.read_metadata(path).metadata[b"isocompute"]))


def _study(name: str) -> tuple[Path, dict[str, Any], int | None]:
    """File and head of a study, and the main B_p that its name stands for; None: for all.

    Raises:
        InputError: an unknown name.
    """
    files, is_joint = grid_files(), name.endswith(JOINT)
    path = files.get(name.removesuffix(JOINT))
    head = {} if path is None else _head(path)
    if path is not None and not (is_joint and head["main"] is None):
        return path, head, None if is_joint else head["main"]
    names = list[str]()
    for stem, file in files.items():
        names += [stem, stem + JOINT] if _head(file)["main"] is not None else [stem]
    listed = ", ".join(GRID + one for one in names) or "none in this installation"
    raise InputError(
        f"a grid must be one of {listed}, but got {GRID + name!r}; choose one of them."
    )


def grid_problem_set(name: str) -> str | None:
    """The set that a study of the grid trained on, "hard" for example; None for an unknown name."""
    file = grid_files().get(name.removesuffix(JOINT))
    return None if file is None else str(_head(file)["problem_set"])


def grid_rows(
    name: str, columns: Sequence[str]
) -> tuple[str, int | None, list[dict[str, Any]]]:
    """Columns of a study of the grid, as they lie in its file.

    Returns:
        (the problem set that it trained on, its main B_p, rows); no main B_p where it has none, or
        for "NAME-joint", which stands for all.

    Raises:
        InputError: an unknown name.
    """
    import pyarrow.parquet as parquet

    path, head, main_b_p = _study(name)
    rows = parquet.ParquetFile(path).read(columns=list(columns)).to_pylist()
    return str(head["problem_set"]), main_b_p, rows


def load_grid(
    name: str,
    *,
    problem_set: str | None = None,
    split: str = "validation",
    where: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[list[Curve], list[Curve]]:
    """Curves of one study of the grid that is shipped, and those of its training batches.

    Args:
        name: of the study, for example "hard": its runs at one B_p where it has a main one
            (32), which "hard-joint" sets beside those at all others.
        problem_set: a validation set; None: the one of the kind that was trained on.
        split: "validation" or "train".
        where: column -> value that the runs must have, see `store.arms.matches`.
        say: hears how many of the study's runs are there, where some are missing.

    Raises:
        InputError: an unknown name (the known ones are listed), or nothing left by `where`.
    """
    import pyarrow.parquet as parquet

    path, head, main_b_p = _study(name)
    table = parquet.ParquetFile(path).read(columns=[*_COLUMNS, _PROBLEMS])
    if set(table.column("arm").to_pylist()) == {""}:
        table = table.drop_columns(["arm"])
    if head["runs"] < head["of"] and say is not None:
        say(f"{GRID}{name}: {head['runs']} of {head['of']} runs are finished and included")
    chosen_where = dict(where or {})
    if main_b_p is not None:
        chosen_where.setdefault("problems_per_batch", str(main_b_p))
    if problem_set is None:  # curves that nobody asked for would take most of the time
        chosen_where.setdefault("problem_set", str(head["problem_set"]))
    (trained_on,) = table.column(_PROBLEMS).unique().to_pylist()
    curves = [c.replace(trained_on=trained_on)
              for c in load_table(table.drop_columns([_PROBLEMS]), where=chosen_where)]  # fmt: skip
    chosen = [c for c in curves if c.split == split]
    return chosen, [c for c in curves if c.split == "train"]
