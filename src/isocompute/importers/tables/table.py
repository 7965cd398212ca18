"""A CSV, Parquet or JSON file -> a table of the columns that are meant, as text where it is text.

A CSV may be separated by commas, semicolons or tabs, begin with lines of `#`, be packed or UTF-16.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.values import cells
from isocompute.importers.values.headers import (
    ARROW,
    RECORDS,
    arrow_file,
    head_of,
    require_unique,
)
from isocompute.importers.values.reading import clean_text, parse_json
from isocompute.recipe import RECORDED

if TYPE_CHECKING:
    import pyarrow as pa

_MISSING = ("", "nan", "na", "null", "none", "n/a", "-", "\u2013", "\u2014")  # dashes, too
_MAX_BYTES = 8 << 30  # unpacked: gzip and Parquet expand a thousand times
_MAX_ROWS = 50_000_000  # about 8 GB of columns; more is a bomb or belongs into several files
_CURVES = {"problems_per_batch", "rollouts_per_problem", "rollouts", "score"}
_SHOWN = 12  # names of columns in a message

FloatArray = NDArray[np.float64]
# header of the file -> column -> name that it goes by; columns that are not named are not read
Naming = Callable[[list[str]], dict[str, str]]


def read_table(path: Path, naming: Naming) -> pa.Table:
    """The columns of a file that are meant, under the names that they go by.

    Raises:
        InputError: a file that is no table, or is larger than a table of curves can be.
    """
    import pyarrow as pa

    if not path.is_file():
        raise InputError(
            f"{path}: a source must be a readable file, but there is none; check the path."
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path}: a tidy file must not be empty, but it has 0 bytes; add rows.")
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path, naming)
        if path.suffix in ARROW:
            with arrow_file(path) as file:
                whole = pa.ipc.open_file(file).read_all()
                _check_size(path, whole.num_rows, whole.nbytes)
                return table_in_memory(whole, path, naming)
        if path.suffix in RECORDS:
            return _read_records(path, naming)
        return _read_csv(path, naming)
    except (pa.ArrowInvalid, pa.ArrowException, UnicodeDecodeError, EOFError, OSError) as error:
        detail = ascii(" ".join(str(error).split()))[1:-1][:100]  # a binary file has anything
        raise InputError(
            f"{path}: must be a CSV, Parquet or JSON table with one row per evaluation, but it "
            f"cannot be read as one ({detail}); check the file."
        ) from None


def table_in_memory(source: Any, path: Path, naming: Naming) -> pa.Table:
    """The columns that are meant, of anything that gives an Arrow stream.

    Args:
        source: a data frame or an Arrow table.
        path: what messages call it.
        naming: as `read_table` has it.

    Raises:
        InputError: columns that Arrow cannot hold, or two of one name.
    """
    import pyarrow as pa

    try:
        # pa.table of a table would import pandas to ask whether it is a frame
        table = source if isinstance(source, pa.Table) else pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        detail = ascii(" ".join(str(error).split()))[1:-1][:100]
        raise InputError(
            f"{path}: each column must be of one type and under a name of its own, but the table "
            f"cannot be read ({detail}); convert it."
        ) from None
    header = list(table.column_names)
    require_unique(header, path)
    names = naming(header)
    table = table.select(list(names))
    for i, column in enumerate(table.columns):
        if column.type == pa.string_view():  # polars' texts; few functions of Arrow know them
            table = table.set_column(i, table.column_names[i], column.cast(pa.string()))
    return table.rename_columns([names[c] for c in table.column_names])


def is_records(path: Path) -> bool:
    """Whether JSON holds rows of curves, as data frames are written: one object for each.

    A row with a step is one of a log.
    """
    with path.open("rb") as file:
        text = file.read(1 << 16).decode("utf-8", "replace").lstrip("\ufeff")
    before, brace, _ = text.partition("{")
    if not brace or before.strip() not in ("", "["):
        return False
    try:
        row, _ = json.JSONDecoder().raw_decode(text, len(before))
    except (ValueError, RecursionError):
        return False
    return row.keys() >= _CURVES and "step" not in row


def _read_records(path: Path, naming: Naming) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json

    with path.open("rb") as file:
        is_list = file.read(1 << 10).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
    if not is_list:
        return table_in_memory(pa.json.read_json(path), path, naming)
    rows, reason = parse_json(path.read_bytes())
    if reason is not None or not all(isinstance(row, dict) for row in rows):
        raise pa.ArrowInvalid(reason or "a row must be an object")
    return table_in_memory(pa.Table.from_pylist(rows), path, naming)


def _read_parquet(path: Path, naming: Naming) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet

    names = naming(list(pa.parquet.read_schema(arrow_file(path)).names))
    # texts stay dictionaries: a name that repeats is held once
    texts = [
        field.name for field in pa.parquet.read_schema(arrow_file(path))
        if field.name in names and pa.types.is_string(field.type)
    ]  # fmt: skip
    file = pa.parquet.ParquetFile(arrow_file(path), read_dictionary=texts)
    _check_size(path, file.metadata.num_rows, _unpacked_bytes(file.metadata, list(names)))
    table = file.read(columns=list(names))
    return table.rename_columns([names[c] for c in table.column_names])


def descriptions(path: Path) -> dict[str, str]:
    """What a Parquet file says of its columns, of those of which it says something."""
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    import pyarrow.parquet

    said = {
        field.name: b" ".join(v for k, v in (field.metadata or {}).items() if b"PARQUET" not in k)
        for field in pyarrow.parquet.read_schema(arrow_file(path))
    }  # fmt: skip
    return {name: text.decode("utf-8", "replace") for name, text in said.items() if text}


def _read_csv(path: Path, naming: Naming) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    head = head_of(path)
    names = naming(head.names)
    # Everything as text: a number that is not one is then reported with its row.
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=list(names),
        strings_can_be_null=False,
    )
    how: dict[str, Any] = {
        "convert_options": convert,
        "read_options": pa.csv.ReadOptions(
            column_names=head.names, skip_rows=head.lines, encoding=head.encoding
        ),
        "parse_options": pa.csv.ParseOptions(delimiter=head.separator),
    }
    table = _read_packed(path, how) if path.suffix == ".gz" else pa.csv.read_csv(path, **how)
    if (last := head.names[-1]) in names and names[last] != "rollouts":
        _refuse_cut(table.column(last), last, path)
    table = cells.without_units(table, names)
    if head.separator in ";\t":
        commas = cells.has_decimal_commas(path, head.separator)
        table = cells.plain_thousands(table, names, path, commas)
        table = cells.with_points(table, names, commas)
    table = cells.without_highest(table, names)
    for name in table.column_names[:1]:  # tables joined by `cat`: a header is no row
        column = table.column(name)
        if (pc.max(pc.binary_length(column)).as_py() or 0) < len(name.strip()):
            continue  # the usual case: no cell is long enough
        repeats = pc.equal(pc.utf8_trim_whitespace(column), name.strip())
        if pc.any(repeats).as_py():
            table = table.filter(pc.invert(repeats))
    return table.rename_columns([names[c] for c in table.column_names])


def _refuse_cut(column: pa.ChunkedArray, name: str, path: Path) -> None:
    """A file that ends within the last number of its last row."""
    if path.suffix not in (".csv", ".tsv") or not cells.ends_within_line(path):
        return
    *others, last = column.to_pylist() or [""]
    if cells.may_be_cut(last, others):
        raise InputError(
            f"{path}: a table must be whole, but it ends within a line, and its last {name!r:.60} "
            f"is {ascii(last)[1:-1]:.20}, shorter than all others; delete that row, or end its "
            "line if it is whole."
        )


def _unpacked_bytes(metadata: Any, wanted: list[str]) -> int:
    """Bytes of some columns of a Parquet file, by what its footer says."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in columns if c.path_in_schema in wanted)


def _read_packed(path: Path, how: dict[str, Any]) -> pa.Table:
    """A packed CSV, in pieces: what it unpacks to is known only then."""
    import pyarrow as pa
    import pyarrow.csv

    rows = size = 0
    batches = []
    with pa.csv.open_csv(path, **how) as reader:
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


def some(names: list[str]) -> str:
    """A few column names, printable whatever the file holds."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(clean_text(name, 40) for name in names[:_SHOWN]) + more


def numbers_of(table: pa.Table, name: str, path: Path) -> FloatArray:
    """A column as numbers; NaN where a cell is empty or says that it is missing.

    Raises:
        InputError: names the first row that holds something else.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        try:
            return as_numpy(column.cast(pa.float64(), safe=False), np.nan)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"{path}: column {name} must hold numbers, but its type is {column.type}; "
                "convert it."
            ) from None
    if not column.null_count:
        try:  # the usual case, nothing but numbers
            return as_numpy(column.cast(pa.float64()), np.nan)
        except pa.ArrowInvalid:
            pass
    text = pc.utf8_trim_whitespace(column)
    absent = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_MISSING))
    text = pc.if_else(pc.fill_null(absent, True), pa.scalar(None, pa.string()), text)
    share = pc.all(pc.ends_with(text, "%")).as_py() and text.null_count < len(text)
    if share:  # a sheet shows 0.432 as 43.2%
        text = pc.utf8_trim_whitespace(pc.replace_substring(text, "%", ""))
    try:
        return as_numpy(text.cast(pa.float64()), np.nan) / (100 if share else 1)
    except pa.ArrowInvalid:
        return _numbers_one_by_one(text.to_pylist(), name, path)


def scores_of(
    table: pa.Table, name: str, path: Path, score_range: tuple[float, float]
) -> FloatArray:
    """A column of scores in a range: a cell with a percent sign is a share, whatever that is."""
    found = numbers_of(table, name, path)
    low, high = score_range
    return low + found * (high - low) if has_percent_signs(table, name) else found


def as_numpy(values: pa.Array | pa.ChunkedArray, missing: float) -> NDArray[Any]:
    """Numbers or truth values; pyarrow's own `to_numpy` would import pandas (0.3 s)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(values.type):
        return as_numpy(values.cast(pa.int8()), missing).astype(bool)
    filled = pc.fill_null(values, missing) if values.null_count else values
    chunks = filled.chunks if isinstance(filled, pa.ChunkedArray) else [filled]
    empty = np.zeros(0, values.type.to_pandas_dtype())
    return np.concatenate([empty, *(np.from_dlpack(chunk) for chunk in chunks)])


def rows_where(table: pa.Table, keep: NDArray[np.bool_]) -> pa.Table:
    """Some rows of a table; a numpy mask as it is would import pandas."""
    import pyarrow as pa

    bits = pa.py_buffer(np.packbits(keep, bitorder="little").tobytes())
    return table.filter(pa.BooleanArray.from_buffers(pa.bool_(), len(keep), [None, bits]))


def lacking(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which cells of a column are empty or say that they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        with contextlib.suppress(pa.ArrowInvalid):  # the usual case, nothing but numbers
            found: FloatArray = as_numpy(column.cast(pa.float64()), np.nan)
            return np.isnan(found)
        plain = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        form = f"^(?:{'|'.join(map(re.escape, _MISSING))})$"  # an Arrow array would load pandas
        said = pc.match_substring_regex(plain, form)
        return as_numpy(pc.or_kleene(said, pc.is_null(column)), 0)
    return as_numpy(pc.is_null(column, nan_is_null=True), 0)


def has_percent_signs(table: pa.Table, name: str) -> bool:
    """Whether cells of a column are written as 43.2%, which `numbers_of` reads as 0.432."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(0)])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return is_text and bool(pc.any(pc.match_substring(column, "%")).as_py())


def _numbers_one_by_one(values: list[str | None], name: str, path: Path) -> FloatArray:
    """The slow way, which finds the row; it also knows spellings such as `inf` and `1E5`."""
    if name == "steps":
        values = cells.steps_named(values, path)
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
                f"{ascii(value)[:60]}; {cells.cure_of(name, str(value))}."
            ) from None
    return out


def recorded_columns(table: pa.Table, path: Path) -> dict[str, FloatArray]:
    """Columns of a table that a word of a recipe names, where they hold numbers."""
    out = {}
    for name in (name for name in RECORDED if name in table.column_names):
        with contextlib.suppress(InputError):  # another thing of that name
            out[name] = numbers_of(table, name, path)
    return out


def texts_of(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Codes and the distinct texts of a column; a missing text is ''."""
    import pyarrow as pa

    column = table.column(name).cast(pa.string()).combine_chunks().dictionary_encode()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    texts = [str(t) for t in array.dictionary.to_pylist()]
    codes = as_numpy(array.indices, -1).astype(np.int64)
    if array.null_count:
        if "" not in texts:
            texts.append("")
        codes[codes < 0] = texts.index("")
    return codes, texts
