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


def _head(file: Any) -> dict[str, Any]:
    """What `grid/make.py` says of a file."""
    return dict(json.loads(file.metadata.metadata[b"isocompute"]))


def _unknown(name: str) -> InputError:
    import pyarrow.parquet as parquet

    names = []
    for stem, path in grid_files().items():
        names.append(stem)
        if _head(parquet.ParquetFile(path))["main"] is not None:
            names.append(stem + JOINT)
    listed = ", ".join(GRID + one for one in names) or "none in this installation"
    return InputError(
        f"a grid must be one of {listed}, but got {GRID + name!r}; choose one of them."
    )


def grid_problem_set(name: str) -> str | None:
    """The set that a study of the grid trained on, "hard" for example; None for an unknown name."""
    import pyarrow.parquet as parquet

    file = grid_files().get(name.removesuffix(JOINT))
    return None if file is None else str(_head(parquet.ParquetFile(file))["problem_set"])


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

    path = grid_files().get(name.removesuffix(JOINT))
    file = None if path is None else parquet.ParquetFile(path)
    head = {} if file is None else _head(file)
    if file is None or (name.endswith(JOINT) and head["main"] is None):
        raise _unknown(name)
    main = None if name.endswith(JOINT) else head["main"]
    return str(head["problem_set"]), main, file.read(columns=list(columns)).to_pylist()


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

    files = {
        f"{stem}{ending}": parquet.ParquetFile(path)
        for stem, path in grid_files().items()
        if name.startswith(stem) for ending in ("", JOINT)
    }  # fmt: skip
    main_b_p = _head(files[name])["main"] if name in files else None
    if name not in files or (name.endswith(JOINT) and main_b_p is None):
        raise _unknown(name)
    file, head = files[name], _head(files[name])
    table = file.read(columns=[*_COLUMNS, _PROBLEMS])
    if set(table.column("arm").to_pylist()) == {""}:
        table = table.drop_columns(["arm"])
    if head["runs"] < head["of"] and say is not None:
        say(f"{GRID}{name}: {head['runs']} of {head['of']} runs are finished and included")
    chosen_where = dict(where or {})
    if main_b_p is not None and not name.endswith(JOINT):
        chosen_where.setdefault("problems_per_batch", str(main_b_p))
    if problem_set is None:  # curves that nobody asked for would take most of the time
        chosen_where.setdefault("problem_set", str(head["problem_set"]))
    (trained_on,) = table.column(_PROBLEMS).unique().to_pylist()
    curves = [c.replace(trained_on=trained_on)
              for c in load_table(table.drop_columns([_PROBLEMS]), where=chosen_where)]  # fmt: skip
    chosen = [c for c in curves if c.split == split]
    return chosen, [c for c in curves if c.split == "train"]
