"""Tidy curves: CSV or Parquet, one row per evaluation (the contract of the design page)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.base import Curve
from isocompute.store.arms import matches, no_match

if TYPE_CHECKING:
    import pyarrow as pa

REQUIRED = ("problems_per_batch", "rollouts_per_problem", "rollouts", "score")
_NUMBERS = (*REQUIRED, "steps", "tokens", "seed", "best", "worst")
_TEXTS = ("run", "metric", "problem_set", "split", "arm")
_SCORES = ("score", "best", "worst")
_MISSING = ("", "nan", "na", "null", "none", "n/a")
_MAX_BYTES = 8 << 30  # unpacked: gzip and Parquet expand a thousand times
_MAX_ROWS = 50_000_000  # about 8 GB of columns; more is a bomb or belongs into several files

FloatArray = NDArray[np.float64]


def load_tidy(
    path: str | Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
) -> list[Curve]:
    """Read tidy curves.

    Args:
        path: a .csv (or .csv.gz) or .parquet file with the columns of the design page; others
            are ignored.
        score_range: what scores may be; they are rescaled from it to 0..1.
        where: column -> value that its rows must have, see `store.arms.matches`.

    Returns:
        One Curve per (configuration, run, seed, metric, problem set, split, arm), rows in order of
        rollouts. Columns `best` and `worst` become curves of the metrics "best" and "worst".

    Raises:
        InputError: names the row and the value that breaks the contract.
    """
    path = Path(path)
    table = _select(_read(path, tuple(where or ())), where or {}, path)
    n_rows = table.num_rows
    if n_rows == 0:
        raise InputError(f"{path}: a tidy file needs at least 1 row, but it has none; add rows.")
    names = set(table.column_names)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InputError(
            f"{path}: columns {', '.join(REQUIRED)} must exist, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing (found: "
            f"{_some(table.column_names)}); rename or add them."
        )
    numbers = {name: _numbers(table, name, path) for name in _NUMBERS if name in names}
    texts = {name: _texts(table, name) for name in _TEXTS if name in names}
    _check(numbers, path, score_range)
    low, high = score_range
    for name in _SCORES:
        if name in numbers:
            numbers[name] = (numbers[name] - low) / (high - low)
    return _group(numbers, texts, path)


def load_published(name: str) -> list[Curve]:
    """Curves shipped with the package, for example "qwen2.5-7b-easy".

    Raises:
        InputError: for an unknown name; lists the known ones.
    """
    folder = resources.files("isocompute") / "data" / "published"
    known = sorted(f.name[:-4] for f in folder.iterdir() if f.name.endswith(".csv"))
    if name not in known:
        raise InputError(
            f"a published law must be one of {', '.join('published:' + k for k in known)}, "
            f"but got {'published:' + name!r}; choose one of them."
        )
    with resources.as_file(folder / f"{name}.csv") as path:
        curves = load_tidy(path)
    return [c.replace(metric="avg@4", problem_set=name.rsplit("-", 1)[-1]) for c in curves]


def _select(table: pa.Table, where: Mapping[str, str], path: Path) -> pa.Table:
    """The rows that a selection leaves."""
    for name, wanted in where.items():
        if name not in table.column_names:
            raise InputError(
                f"{path}: a selection must name a column, but there is no {name!r}; add it, or "
                "choose another."
            )
        codes, texts = _texts(table, name)
        fits = np.array([matches(text.strip(), wanted) for text in texts], dtype=bool)
        if not fits.any():
            raise no_match(str(path), name, wanted, sorted(texts))
        table = table.filter(fits[codes])
    return table


def _read(path: Path, extra: tuple[str, ...] = ()) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise InputError(
            f"{path}: a source must be a readable file, but there is none; check the path."
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path}: a tidy file must not be empty, but it has 0 bytes; add rows.")
    try:
        if path.suffix == ".parquet":
            schema = pa.parquet.read_metadata(path).schema
            there = {schema.column(i).path for i in range(len(schema))}
            # texts stay dictionaries: a name that repeats is held once
            texts = sorted(there & set(_TEXTS))
            file = pa.parquet.ParquetFile(path, read_dictionary=texts)
            wanted = [c for c in file.schema_arrow.names if c in (*_NUMBERS, *_TEXTS, *extra)]
            _check_size(path, file.metadata.num_rows, _unpacked_bytes(file.metadata, wanted))
            table = file.read(columns=wanted)
            return table.rename_columns([c.strip() for c in table.column_names])
        # Everything as text: a number that is not one is then reported with its row.
        options = pa.csv.ConvertOptions(strings_can_be_null=False)
        with pa.csv.open_csv(path, convert_options=options) as reader:
            header = reader.schema.names
        duplicates = sorted({c for c in header if header.count(c) > 1})
        if duplicates:
            raise InputError(
                f"{path}: column names must be unique, but {', '.join(map(repr, duplicates))} "
                "occurs more than once; rename or drop one."
            )
        keep = [c for c in header if c.strip() in (*_NUMBERS, *_TEXTS, *extra)]
        if not keep:
            raise InputError(
                f"{path}: columns {', '.join(REQUIRED)} must exist, but none was found (found: "
                f"{_some(header)}); is this a tidy curves file?"
            )
        options = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(keep, pa.string()),
            include_columns=keep,
            strings_can_be_null=False,
        )
        if path.suffix == ".gz":
            table = _read_packed(path, options)
        else:
            table = pa.csv.read_csv(path, convert_options=options)
        return table.rename_columns([c.strip() for c in table.column_names])
    except (pa.ArrowInvalid, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        detail = ascii(" ".join(str(error).split()))[1:-1][:100]  # a binary file has anything
        raise InputError(
            f"{path}: must be a CSV or Parquet table with one row per evaluation, but it cannot "
            f"be read as one ({detail}); check the file."
        ) from None


def _unpacked_bytes(metadata: Any, wanted: list[str]) -> int:
    """Bytes of some columns of a Parquet file, by what its footer says."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in columns if c.path_in_schema in wanted)


def _read_packed(path: Path, options: Any) -> pa.Table:
    """A packed CSV, in pieces: what it unpacks to is known only then."""
    import pyarrow as pa
    import pyarrow.csv

    rows = size = 0
    batches = []
    with pa.csv.open_csv(path, convert_options=options) as reader:
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            _check_size(path, rows, size)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _check_size(path: Path, rows: int, size: int) -> None:
    if rows > _MAX_ROWS or size > _MAX_BYTES:
        raise InputError(
            f"{path}: at most {_MAX_ROWS} rows and {_MAX_BYTES} unpacked bytes are read, but it "
            f"has {rows} rows and {size} bytes, or more; split or thin it."
        )


def _some(names: list[str], most: int = 12) -> str:
    """A few column names, printable whatever the file holds."""
    shown = [ascii(n)[1:-1][:40] for n in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def _numbers(table: pa.Table, name: str, path: Path) -> FloatArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        try:
            out: FloatArray = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"{path}: column {name} must hold numbers, but its type is {column.type}; "
                "convert it."
            ) from None
        return out
    text = pc.utf8_trim_whitespace(column)
    absent = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_MISSING))
    text = pc.if_else(pc.fill_null(absent, True), pa.scalar(None, pa.string()), text)
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except pa.ArrowInvalid:
        return _numbers_one_by_one(text.to_pylist(), name, path)


def _numbers_one_by_one(values: list[str | None], name: str, path: Path) -> FloatArray:
    """The slow way, which finds the row; it also knows spellings such as `inf` and `1E5`."""
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        try:
            if value is not None:
                if "_" in value:
                    raise ValueError
                out[i] = float(value)
        except ValueError:
            raise InputError(
                f"{path}: column {name} must hold numbers, but row {i + 1} has "
                f"{ascii(value)[:60]}; correct or empty that cell."
            ) from None
    return out


def _texts(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Codes and the distinct texts; a missing text is ''."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = pc.fill_null(column.cast(pa.string()), "").combine_chunks().dictionary_encode()
    else:
        column = column.cast(pa.string()).combine_chunks().dictionary_encode()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    codes = pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [str(t) for t in array.dictionary.to_pylist()]


def _check(numbers: dict[str, FloatArray], path: Path, score_range: tuple[float, float]) -> None:
    def refuse(name: str, rule: str, bad: NDArray[np.bool_], cure: str) -> None:
        if bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"{path}: `{name}` must be {rule}, but row {row + 1} has "
                f"{numbers[name][row]:g} ({int(bad.sum())} such rows); {cure}."
            )

    for name in ("problems_per_batch", "rollouts_per_problem"):
        v = numbers[name]
        refuse(
            name,
            "a whole number >= 1",
            ~((v >= 1) & (v == np.floor(v)) & (v < 2**53)),
            "correct the column",
        )
    v = numbers["rollouts"]
    refuse(
        "rollouts",
        "cumulative rollouts, finite and >= 0",
        ~((v >= 0) & np.isfinite(v)),
        "correct or drop those rows",
    )
    for name in ("steps", "tokens"):
        if name in numbers:
            v = numbers[name]
            refuse(
                name,
                "finite and >= 0, or empty",
                ~np.isnan(v) & ~((v >= 0) & np.isfinite(v)),
                "correct or empty those cells",
            )
    if "seed" in numbers:
        v = numbers["seed"]
        refuse(
            "seed",
            "a whole number, or empty",
            ~np.isnan(v) & ~(np.isfinite(v) & (v == np.floor(v)) & (np.abs(v) < 2**53)),
            "correct or empty those cells",
        )
    low, high = score_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(
            f"`low < high` must hold for the range of scores, but got {low:g} {high:g}; "
            "give --range LOW HIGH."
        )
    for name in _SCORES:
        if name in numbers:
            v = numbers[name]
            refuse(
                name,
                f"in {low:g}..{high:g}",
                ~np.isnan(v) & ~((v >= low) & (v <= high)),
                "correct those rows, or give --range LOW HIGH if scores are on another scale",
            )


def _group(
    numbers: dict[str, FloatArray],
    texts: dict[str, tuple[NDArray[np.int64], list[str]]],
    path: Path,
) -> list[Curve]:
    keys: list[NDArray[Any]] = [numbers["problems_per_batch"], numbers["rollouts_per_problem"]]
    keys += [codes for codes, _ in texts.values()]
    seed = numbers.get("seed")
    if seed is not None:
        keys.append(np.where(np.isnan(seed), -np.inf, seed))
    order = np.lexsort((numbers["rollouts"], *reversed(keys)))
    changed = np.zeros(len(order), dtype=bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    starts = np.flatnonzero(changed)
    curves: list[Curve] = []
    for rows in np.split(order, starts[1:]):
        first = rows[0]
        text = {name: values[codes[first]] for name, (codes, values) in texts.items()}
        this_seed = None if seed is None or np.isnan(seed[first]) else int(seed[first])
        for column in (c for c in _SCORES if c in numbers):
            score = numbers[column][rows]
            if column != "score" and np.isnan(score).all():
                continue
            kept = ~np.isnan(score)
            optional: dict[str, Any] = {
                f"{name}_K": numbers[name][rows][kept]
                for name in ("tokens", "steps")
                if name in numbers and not np.isnan(numbers[name][rows][kept]).any()
            }
            curves.append(
                Curve(
                    problems_per_batch=int(numbers["problems_per_batch"][first]),
                    rollouts_per_problem=int(numbers["rollouts_per_problem"][first]),
                    run=text.get("run", ""),
                    seed=this_seed,
                    rollouts_K=numbers["rollouts"][rows][kept],
                    score_K=score[kept],
                    metric=text.get("metric", "") if column == "score" else column,
                    problem_set=text.get("problem_set", ""),
                    split=text.get("split", "") or "validation",
                    arm=text.get("arm", ""),
                    n_missing=int((~kept).sum()),
                    **optional,
                )
            )
    _check_configurations(curves, path)
    return curves


def _check_configurations(curves: list[Curve], path: Path) -> None:
    points: dict[tuple[str, int, int], int] = {}
    missing: dict[tuple[str, int, int], int] = {}
    for c in curves:
        key = (c.metric, c.problems_per_batch, c.rollouts_per_problem)
        points[key] = points.get(key, 0) + len(c.score_K)
        missing[key] = missing.get(key, 0) + c.n_missing
    for (_, b_p, n), count in points.items():
        if count == 0:
            raise InputError(
                f"{path}: every configuration must have at least 1 score, but problems_per_batch="
                f"{b_p}, rollouts_per_problem={n} has 0 of {missing[(_, b_p, n)]} rows with one; "
                "add its scores or drop its rows."
            )
