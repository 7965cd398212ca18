"""Logs as CSV: W&B charts and `run.history()`, TensorBoard's downloads, long tables.

| layout | header |
|---|---|
| chart of W&B | an axis, then `RUN - METRIC` with `__MIN` and `__MAX` |
| history of W&B (`run.history().to_csv`) | `_step`, and the keys that were logged |
| TensorBoard | `Wall time,Step,Value`; run and tag stand in the file's name |
| long | a column of metrics, one of values, one of steps; any others hold for the run |
| any other with steps | where a configuration lies beside it: a history, or one series |

Here is which of them a file has; `csv_long` reads the long ones, `whose` finds the columns of run
and step. A table of tidy curves is none of them (`tidy`). Checked against files of wandb 0.31
(pandas writes an index column without a name) and TensorBoard 2.20 (`run-NAME-tag-TAG.csv`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.beside.beside import (
    configuration_beside,
    is_beside_one,
    run_and_key,
)
from isocompute.importers.beside.listed import configuration_in_table
from isocompute.importers.formats.csv_long import are_events, read_long, with_steps
from isocompute.importers.formats.whose import (
    STEP_COLUMNS,
    RunsOfTable,
    says_one,
    setting_of,
)
from isocompute.importers.runs.collect import Collector
from isocompute.importers.runs.steps import ASSUMED
from isocompute.importers.values.cells import Rows, cells_of, ends_within_line, rows_of, without_cut
from isocompute.importers.values.headers import COLUMNAR, separator_of
from isocompute.importers.values.imported import (
    AGAIN,
    SAMPLED,
    Errors,
    ImportedRun,
    UnclearError,
    provenance_of,
)
from isocompute.importers.values.reading import (
    CLOCKS,
    METRIC_WORDS,
    VALUE_WORDS,
    Line,
    iter_lines,
    number,
    open_log,
)
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import IN_ROWS
from isocompute.importers.words.names import pattern_in_columns
from isocompute.importers.words.paths import downloaded, run_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.splits import SPLITS
from isocompute.importers.words.vocabulary import (
    OF_POLICY,
    STEP_KEYS,
    column_of,
    header_with_slashes,
    with_slashes,
)

_WRONG_AXIS = re.compile("time|epoch|token|sample|episode|rollout|hour|runtime", re.I)
# open-instruct 0.3.0, grpo_fast.py, counts responses under `episode`
_ROLLOUTS = re.compile(r"(?:.*[/_. ])?(?:episodes?|rollouts|trajectories)(?:_seen|_so_far)?", re.I)
_SAMPLED = 500  # rows that run.history() gives at most, unless it is asked for more
MAX_COLUMNS = 10_000
_TIDY = {"score", "problems_per_batch", "rollouts_per_problem"}
_TENSORBOARD = ["wall time", "step", "value"]
_NESTED = "data."  # verl's rows through pandas' json_normalize
# W&B's table of runs, and MLflow's: a row per run, with the last value of everything
_OF_RUNS = ({"name", "state", "created"}, {"run id", "status", "start time"})
_RELATIVE = ("relative time", "relative_time", "epoch")
_Logged = tuple[str, str, str, str]  # tag, clock, step and value
_SETTING = re.compile(r"([A-Za-z_][\w./-]*): (\S+?)(?=,? |$)")
_GROUPED = re.compile(rf"(?:{_SETTING.pattern}(?:,? |$))+")


def read_chart(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One run per `RUN - METRIC` name before the last dash."""
    axis = settings.step if settings.step in header else header[0]
    counts = _ROLLOUTS.fullmatch(axis or "") is not None
    if axis is None or (_WRONG_AXIS.search(axis) and not counts):
        raise InputError(
            f"a W&B export must have the step on its x axis, but {str(path)!r} has {axis!r}; "
            f"put {STEP_KEYS[0]} (or Step) on the x axis of the chart and export it again."
        )
    at = header.index(axis)
    calls = axis in ("Step", "_step") and settings.step is None
    collectors: dict[str, Collector] = {}
    columns: list[tuple[int, Collector, str]] = []
    ranges: list[tuple[int, int]] = []
    for i, cell in enumerate(header):
        run, dash, key = cell.rpartition(" - ")
        if i == at or not dash:
            continue
        if key.endswith("__MIN"):
            high = cell.removesuffix("__MIN") + "__MAX"
            if high in header:
                ranges.append((i, header.index(high)))
            continue
        if key.endswith("__MAX"):
            continue
        if run not in collectors:
            collectors[run] = Collector(run, errors, settings.for_file(run))
            collectors[run].counters.found()
            if _GROUPED.fullmatch(run):  # W&B names a group of runs by what it has in common
                collectors[run].configure(dict(_SETTING.findall(run)))
            if counts:
                collectors[run].counters.rollouts = axis
        column = column_of(key, header)
        if axis == "global_step" and column is not None and column.trainer == "open-instruct":
            collectors[run].counters.rollouts = axis  # that of its trainer; training_step is ours
        columns.append((i, collectors[run], key))
    means = 0
    for line, cells in rows:
        for i, collector, key in columns:
            if cells[i].strip():  # an empty cell is a step that this run did not log
                collector.row(cells[at], {key: cells[i]}, line, calls=calls)
        means += sum(cells[a].strip() != cells[b].strip() for a, b in ranges)
    for collector in collectors.values():
        if means:
            collector.counters.infer(
                f"score: {means} points of the chart are means of several (their MIN and MAX "
                "differ): of grouped runs or of neighbouring steps"
            )
        if not (calls or axis in STEP_COLUMNS or settings.step or collector.counters.rollouts):
            collector.counters.infer(f"step: the chart's axis {axis!r}, {ASSUMED}")
    return collectors


def read_history(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One run, or one per value of a column `run`; an empty cell was not logged in that call."""
    plain = {c.strip().lower(): c for c in header}
    step = next((plain[c] for c in ("_step", *STEP_COLUMNS) if c in plain), "")
    if settings.step and not (step and OF_POLICY.search(settings.step)):  # that is of scores alone
        step = settings.step
    if step not in header:
        raise InputError(
            f"a history must have a column of steps, but {str(path)!r} has none named {step!r} "
            f"({', '.join(header[:8])}); name it with --set step=COLUMN."
        )
    at = header.index(step)
    runs = RunsOfTable(path, header, rows, settings, errors, (at,))
    # `Step` of a run's history that W&B's page gives; a trainer's own counter stands beside it
    calls = "_step" in header or (step == "Step" and any(
        column is not None and column.trainer for column in map(column_of, header)
    ) and any(key in STEP_KEYS for key in header))
    if "_step" in header:
        at = header.index("_step")
    # DVCLive 3: plots/metrics/eval/reward.tsv has the columns step, reward
    above = f"{path.parent.name}/" if path.parent.name.lower() in SPLITS else ""
    keys = [(i, setting_of(key) if says_one(key, settings) and key not in settings.columns
             else key if "/" in key else above + key)
            for i, key in enumerate(header)
            if key and i not in (runs.named, runs.own)
            and (i != at or key == settings.step or key in STEP_KEYS)]  # fmt: skip
    count, has_epochs = 0, "epoch" in header and not calls
    for line, cells in runs.rows:
        count += 1
        _, collector = runs.of(cells, cells[at])
        if collector is not None:
            values = {word: cells[i] for i, word in keys if cells[i] and not cells[i].isspace()}
            own = collector.counters.in_epochs(cells[at], values) if has_epochs else cells[at]
            if calls and "step" in values:
                values["step"] = str(collector.counters.in_epochs(values["step"], values))
            collector.row(own, values, line, calls=calls)
    collectors = runs.settle()
    if calls and runs.named is None and count == _SAMPLED:
        for collector in collectors.values():
            collector.counters.infer(SAMPLED)
    return collectors


def downloads_in(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """TensorBoard's downloads of one run, a tag each or one again: by the first, the others."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for path in files:
        if (one := downloaded(path)) is None or path.suffix != ".csv":
            continue
        with suppress(InputError), _opened(path, Errors(str(path))) as (header, _):
            if layout_of(header) == "tensorboard":
                found.setdefault((path.parent, one.run), []).append(path)
    return {first: others for first, *others in found.values() if others}


def read_tensorboard(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors,
    beside: Sequence[Path] = (),
) -> dict[str, Collector]:
    """Tags of one run, both of the names of its files; rows of several in the order of their times.

    Raises:
        UnclearError: one tag was downloaded twice, and had two courses.
    """
    found = dict[_Logged, int]()  # and the line
    _take_download(path, rows, header[2], settings, found)
    for file in beside:
        with _opened(file, errors) as (_, others):
            _take_download(file, others, header[2], settings, found)
    one = downloaded(path)
    run = (one.run if one else path.parent.name) or run_name(path)
    collector = Collector(run, errors, settings)
    collector.counters.found()
    by_time = sorted(found, key=lambda row: number(row[1]) or 0.0) if beside else [*found]
    for at, row in enumerate(by_time, 2):
        collector.row(row[2], {row[0]: row[3]}, at if beside else found[row])
    return {run: collector}


def _take_download(
    path: Path, rows: Rows, tag: str, settings: Settings, found: dict[_Logged, int]
) -> None:
    """Take the rows of a download whose name may say another tag, each once."""
    one, before = downloaded(path), {(row[0], row[2]) for row in found}
    tag = one.tag if one else tag
    named = (key for key in settings.columns if re.sub(r"[^\w.-]", "_", key) == tag)
    tag = tag if tag in settings.columns else next(named, with_slashes(tag))  # _ was a slash
    for line, (clock, step, value) in rows:
        if (tag, step) in before and (tag, clock, step, value) not in found:
            raise UnclearError(
                f"{path}: a tag of a run must have one course, but that of {tag} was downloaded "
                f"twice, and has two scores at step {step}; leave one out, or give each run a "
                "folder of its own, if they are two."
            )
        found.setdefault((tag, clock, step, value), line)


def read_series(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One key of one run, both of the file's name as a table of runs beside it has them."""
    run, key = run_and_key(path) or (run_name(path), path.stem)
    plain = [cell.strip().lower() for cell in header]
    at = next(plain.index(c) for c in STEP_COLUMNS if c in plain)
    value = next(plain.index(c) for c in VALUE_WORDS if c in plain)
    collector = Collector(run, errors, settings.for_file(run))
    for line, cells in rows:
        collector.row(cells[at], {key: cells[value]}, line, calls=plain[at] == "_step")
    return {run: collector}


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
    if not {*STEP_COLUMNS} & {*plain} or pattern_in_columns(cells) is not None or any(
        map(may_be_setting, plain)
    ):
        return None
    rest = set(plain) - {"", *STEP_COLUMNS, *CLOCKS, *_RELATIVE}
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
    if "_step" in plain or (logged and any(cell in STEP_COLUMNS for cell in (*plain, *cells))):
        return "history"
    return None


def _unnested(header: Sequence[str]) -> list[str]:
    """Columns without the prefix of verl's rows, with slashes; a setting's name begins with it."""
    return header_with_slashes(
        [c if setting_of(c) in IN_ROWS else c.removeprefix(_NESTED) for c in header]
    )


def read_csv_log(path: Path, settings: Settings, beside: Sequence[Path]) -> list[ImportedRun]:
    """The runs of a CSV log; `beside`: other downloads of the same run.

    Raises:
        InputError: if its axis is no step, or a column that must be there is not.
    """
    errors = Errors(str(path))
    with _opened(path, errors) as (header, rows):
        return read_layout(path, header, rows, settings, errors, beside=beside)


@contextmanager
def _opened(path: Path, errors: Errors) -> Iterator[tuple[list[str], Rows]]:
    """The header of a CSV, and the rows below it."""
    with open_log(path) as handle:
        lines = iter_lines(handle, str(path))
        text = (next(lines, Line(0, b"")).data or b"").decode("utf-8", "replace")
        separator = separator_of(text)
        header = cells_of(text, separator)[:MAX_COLUMNS]
        rows = rows_of(lines, header, separator, errors)
        if path.suffix != ".gz" and ends_within_line(path):
            rows = without_cut(rows, errors)
        yield header, rows


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
    configs: Mapping[str, Mapping[str, object]] | None = None, beside: Sequence[Path] = (),
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
    if kind == "tensorboard":
        collectors = read_tensorboard(path, header, rows, settings, errors, beside)
    else:
        read = {"chart": read_chart, "history": read_history, "long": read_long,
                "series": read_series}  # fmt: skip
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
    if path.suffix in COLUMNAR:
        source = f"{kind}-{path.suffix[1:]}"
    provenance = provenance_of(path, source)
    if errors.count and collectors:
        next(iter(collectors.values())).note(errors.told())
    return [c.finish(path, source, provenance) for c in collectors.values()]
