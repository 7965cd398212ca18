"""Logs as CSV: W&B charts and `run.history()`, TensorBoard's downloads, long tables.

| layout | header |
|---|---|
| chart of W&B | an axis, then `RUN - METRIC` with `__MIN` and `__MAX` |
| history of W&B (`run.history().to_csv`) | `_step`, and the keys that were logged |
| TensorBoard | `Wall time,Step,Value`; run and tag stand in the file's name |
| long | a column of metrics, one of values, one of steps; any others hold for the run |
| any other with steps | where a configuration lies beside it: a history, or one series |

Here is which of them a file has; `csv_wide` and `csv_long` read them, `csv_cells` takes lines
apart, `csv_runs` finds the columns of run and step. A table of tidy curves is none of them
(`tidy`). Checked against files of wandb 0.31 (pandas writes an index column without a name) and
TensorBoard 2.20 (`run-NAME-tag-TAG.csv`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.beside import (
    configuration_beside,
    configuration_in_table,
    is_beside_one,
    run_and_key,
)
from isocompute.importers.called import may_be_setting
from isocompute.importers.configuration import IN_ROWS
from isocompute.importers.csv_cells import Rows, cells_of, rows_of, without_cut
from isocompute.importers.csv_long import read_long
from isocompute.importers.csv_runs import STEPS
from isocompute.importers.csv_wide import read_chart, read_history, read_series, read_tensorboard
from isocompute.importers.events import are_events, with_steps
from isocompute.importers.headers import separator_of
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.names import pattern_in_columns
from isocompute.importers.reading import (
    CLOCKS,
    METRIC_WORDS,
    VALUE_WORDS,
    iter_lines,
    open_log,
    run_name,
)
from isocompute.importers.runs import AGAIN, ImportedRun, UnclearError
from isocompute.importers.settings import Settings
from isocompute.importers.torn import ends_within_line
from isocompute.importers.unnamed import setting_of
from isocompute.importers.vocabulary import column_of, header_with_slashes

MAX_COLUMNS = 10_000
_TIDY = {"score", "problems_per_batch", "rollouts_per_problem"}
_TENSORBOARD = ["wall time", "step", "value"]
_NESTED = "data."  # verl's rows through pandas' json_normalize
# W&B's table of runs, and MLflow's: a row per run, with the last value of everything
_OF_RUNS = ({"name", "state", "created"}, {"run id", "status", "start time"})
_RELATIVE = ("relative time", "relative_time", "epoch")


def is_csv_log(header: str, path: Path) -> bool:
    """True where a first line is the header of one of these layouts."""
    if not path.name.removesuffix(".gz").endswith((".csv", ".tsv")) and not header.startswith('"'):
        return False
    cells = cells_of(header, separator_of(header))
    return layout_of(cells) is not None or _described(cells, path) is not None


def _described(cells: Sequence[str], path: Path) -> str | None:
    """The layout of a table that says nothing of B_p and n, where a file beside it does.

    JSON lines of the same rows are a log whatever their keys; so are these.
    """
    plain = [cell.strip().lower() for cell in cells]
    if not any(word in plain for word in STEPS) or pattern_in_columns(cells) is not None or any(
        may_be_setting(cell) for cell in plain
    ):
        return None
    rest = set(plain) - {"", *STEPS, *CLOCKS, *_RELATIVE}
    if len(rest) == 1 and rest <= set(VALUE_WORDS) and run_and_key(path) is not None:
        return "series"
    there = configuration_beside(path) or configuration_in_table(path, run_name(path))
    return "history" if there or is_beside_one(path) else None


def layout_of(cells: Sequence[str]) -> str | None:
    """Which of the layouts a header has; None where it is none of them."""
    cells = _unnested(cells)
    plain = [cell.strip().lower() for cell in cells]
    if are_events(plain):
        return "long"
    is_long = any(c in METRIC_WORDS for c in plain) and any(c in VALUE_WORDS for c in plain)
    # A long table may say B_p and n in columns of ours; its scores are not one of them.
    if len(plain) < 2 or (_TIDY & set(plain) and not (is_long and "score" not in plain)):
        return None
    if plain == _TENSORBOARD:
        return "tensorboard"
    if any(words <= set(plain) for words in _OF_RUNS):
        return "runs"
    if any(" - " in cell for cell in cells[1:]):
        return "chart"
    if is_long:
        return "long"
    logged = any(column_of(cell, cells) is not None for cell in cells)
    if "_step" in plain or (logged and any(cell in STEPS for cell in (*plain, *cells))):
        return "history"
    return None


def _unnested(header: Sequence[str]) -> list[str]:
    """Columns without the prefix of verl's rows, with slashes; a setting's name begins with it."""
    return header_with_slashes(
        [c if setting_of(c) in IN_ROWS else c.removeprefix(_NESTED) for c in header]
    )


def read_csv_log(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of a CSV log.

    Raises:
        InputError: if its axis is no step, or a column that must be there is not.
    """
    errors = Errors(str(path))
    with open_log(path) as handle:
        lines = ((line.number, line.data) for line in iter_lines(handle, str(path)))
        _, first = next(lines)
        text = (first or b"").decode("utf-8", "replace")
        separator = separator_of(text)
        header = cells_of(text, separator)[:MAX_COLUMNS]
        rows = rows_of(lines, header, separator, errors)
        if path.suffix != ".gz" and ends_within_line(path):
            rows = without_cut(rows, errors)
        return read_layout(path, header, rows, settings, errors)


def _numbered(header: Sequence[str]) -> list[str]:
    """The columns of a chart, with runs of one name numbered.

    >>> _numbered(["Step", "a - acc", "a - acc__MIN", "a - acc", "a - acc__MIN"])[1:]
    ['a - acc', 'a - acc__MIN', 'a (2) - acc', 'a (2) - acc__MIN']
    """
    seen, names = Counter[str](), list[str]()
    for cell in header:
        run, dash, key = cell.rpartition(" - ")
        seen[cell] += 1
        again = dash and seen[cell] > 1
        names.append(f"{run} ({seen[cell]}) - {key}" if again else cell)
    return names


def read_layout(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors,
    configs: Mapping[str, Mapping[str, object]] | None = None,
) -> list[ImportedRun]:
    """The runs of rows under a header of one of the layouts; `configs` by run."""
    own = settings.columns
    header = [c if c in own else new for c, new in zip(header, _unnested(header), strict=True)]
    kind = layout_of(header) or _described(header, path) or ""
    there, told = header, ""
    if are_events([cell.strip().lower() for cell in header]):
        header, rows, told = with_steps(path, header, rows)
    if kind == "chart":
        header = _numbered(header)
    if doubles := [cell for cell, count in Counter(header).items() if cell and count > 1]:
        raise UnclearError(
            f"{path}: column names must be unique, but {doubles[0]!r:.100} occurs more than once; "
            "rename a column."
        )
    if kind == "runs":
        raise InputError(
            f"a log must hold the course of a run, but {str(path)!r} is a table of runs with the "
            "last value of each; export a chart, or every run's history (run.history())."
        )
    read = {"chart": read_chart, "history": read_history, "tensorboard": read_tensorboard,
            "long": read_long, "series": read_series}  # fmt: skip
    collectors = read[kind](path, header, rows, settings, errors)
    for run in collectors.keys() - {cell.rpartition(" - ")[0] for cell in there}:
        if kind == "chart":
            collectors[run].counters.infer(AGAIN)
    for key, config in (configs or {}).items():
        if key in collectors:
            collectors[key].configure(config)
    alone = len(collectors) == 1 and kind != "chart"
    for collector in collectors.values():
        collector.configure_beside(path, alone=alone)
        if told:
            collector.counters.infer(told)
    source = f"{kind}-csv" if kind in ("tensorboard", "long", "series") else "wandb-csv"
    if path.suffix == ".parquet":
        source = f"{kind}-parquet"
    provenance = provenance_of(path, source)
    if errors.count and collectors:
        next(iter(collectors.values())).note(errors.told())
    return [c.finish(path, source, provenance) for c in collectors.values()]
