"""Logs as CSV: W&B charts and `run.history()`, TensorBoard's downloads, long tables.

| layout | header |
|---|---|
| chart of W&B | an axis, then `RUN - METRIC` with `__MIN` and `__MAX` |
| history of W&B (`run.history().to_csv`) | `_step`, and the keys that were logged |
| TensorBoard | `Wall time,Step,Value`; run and tag stand in the file's name |
| long | a column of metrics, one of values, one of steps; any others hold for the run |
| any other with steps | where a configuration lies beside it: a history, or one series |

A table of tidy curves is none of them (`tidy`). Checked against files of wandb 0.31 (pandas writes
an index column without a name) and TensorBoard 2.20 (`run-NAME-tag-TAG.csv`).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.asking import pattern_in_columns
from isocompute.importers.beside import (
    configuration_beside,
    configuration_in_table,
    is_beside_one,
    run_and_key,
)
from isocompute.importers.called import may_be_setting
from isocompute.importers.collect import Collector
from isocompute.importers.configuration import IN_ROWS, MODELS
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.reading import (
    CLOCKS,
    METRIC_WORDS,
    VALUE_WORDS,
    clean_text,
    clock_of,
    iter_lines,
    number,
    open_log,
    parse_json,
    refuse_grouped,
    run_name,
)
from isocompute.importers.runs import ImportedRun, UnclearError
from isocompute.importers.settings import Column, Settings, parse_metric
from isocompute.importers.steps import ASSUMED, goes_back
from isocompute.importers.torn import decimals, ends_within_line, may_be_cut
from isocompute.importers.unnamed import Unnamed, says_one, setting_of
from isocompute.importers.vocabulary import STEP_KEYS, column_of

Rows = Iterator[tuple[int, list[str]]]  # number of the line, its cells

MAX_COLUMNS = 10_000
MAX_RUNS = 10_000
_TIDY = {"score", "problems_per_batch", "rollouts_per_problem"}
_TENSORBOARD = ["wall time", "step", "value"]
_TEXT_VALUE = ("string_value", "int_value", "bool_value")  # Neptune: a parameter has no step
_SECTION = re.compile(r"^(?:parameters|params|config|hparams)/")
_NESTED = "data."  # verl's rows through pandas' json_normalize
_STEP = ("step", "_step", "global_step", "iteration", "update", "steps", *STEP_KEYS)
_RUN = ("run", "run_name", "experiment", "trial", "name", "run.name")
_PARENT = ("parent_run_id", "parent_id", "parent")
_ID = ("run_id", "run_uuid", "run.hash", "run id", "wandb_id")  # tells runs of one name apart
_OWN = "id"  # W&B's, where it is none that counts rows
_WRONG_AXIS = re.compile("time|epoch|token|sample|episode|rollout|hour|runtime", re.I)
# A decimal comma, where semicolons or tabs part the cells; 1,234 may be thousands and stays.
_POINT = re.compile(r"^\s*(-?(?:0|[0-9]+(?!,[0-9]{3}\s*$))),([0-9]+)\s*$")
# W&B's table of runs, and MLflow's: a row per run, with the last value of everything
_OF_RUNS = ({"name", "state", "created"}, {"run id", "status", "start time"})
# Aim 3.29, sdk/sequences/metric.py, dataframe: context and settings are columns
_SPLIT = ("split", "metric.context.subset", "metric.context")
_SPLITS = ("train", "eval", "val", "valid", "validation", "test")  # folders that are part of a key
_RELATIVE = ("relative time", "relative_time", "epoch")
_WRITTEN = 3  # numbers of a column that are kept to tell whether its last one is cut
_SAMPLED = 500  # rows that run.history() gives at most, unless it is asked for more


def is_csv_log(header: str, path: Path) -> bool:
    """True where a first line is the header of one of these layouts."""
    if not path.name.removesuffix(".gz").endswith((".csv", ".tsv")) and not header.startswith('"'):
        return False
    cells = _cells(header, _separator(header))
    return layout_of(cells) is not None or _described(cells, path) is not None


def _described(cells: Sequence[str], path: Path) -> str | None:
    """The layout of a table that says nothing of B_p and n, where a file beside it does.

    JSON lines of the same rows are a log whatever their keys; so are these.
    """
    plain = [cell.strip().lower() for cell in cells]
    if not any(word in plain for word in _STEP) or pattern_in_columns(cells) is not None or any(
        may_be_setting(cell) for cell in plain
    ):
        return None
    rest = set(plain) - {"", *_STEP, *CLOCKS, *_RELATIVE}
    if len(rest) == 1 and rest <= set(VALUE_WORDS) and run_and_key(path) is not None:
        return "series"
    there = configuration_beside(path) or configuration_in_table(path, run_name(path))
    return "history" if there or is_beside_one(path) else None


def layout_of(cells: Sequence[str]) -> str | None:
    """Which of the layouts a header has; None where it is none of them."""
    cells = _unnested(cells)
    plain = [cell.strip().lower() for cell in cells]
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
    if "_step" in plain or (logged and any(cell in _STEP for cell in (*plain, *cells))):
        return "history"
    return None


def _unnested(header: Sequence[str]) -> list[str]:
    """Columns without the prefix of verl's rows; a setting's name begins with it."""
    return [c if setting_of(c) in IN_ROWS else c.removeprefix(_NESTED) for c in header]


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
        separator = _separator(text)
        header = _cells(text, separator)[:MAX_COLUMNS]
        rows = _rows(lines, header, separator, errors)
        if path.suffix != ".gz" and ends_within_line(path):
            rows = _without_cut(rows, errors)
        return read_layout(path, header, rows, settings, errors)


def read_layout(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors,
    configs: Mapping[str, Mapping[str, object]] | None = None,
) -> list[ImportedRun]:
    """The runs of rows under a header of one of the layouts; `configs` by run."""
    header = _unnested(header)
    if doubles := [cell for cell, count in Counter(header).items() if cell and count > 1]:
        raise UnclearError(
            f"{path}: column names must be unique, but {doubles[0]!r:.100} occurs more than once; "
            "give the runs names of their own (in W&B before the export), or rename a column."
        )
    kind = layout_of(header) or _described(header, path) or ""
    if kind == "runs":
        raise InputError(
            f"a log must hold the course of a run, but {str(path)!r} is a table of runs with the "
            "last value of each; export a chart, or every run's history (run.history())."
        )
    read = {"chart": _chart, "history": _history, "tensorboard": _tensorboard, "long": _long,
            "series": _series}  # fmt: skip
    collectors = read[kind](path, header, rows, settings, errors)
    for key, config in (configs or {}).items():
        if key in collectors:
            collectors[key].configure(config)
    alone = len(collectors) == 1 and kind != "chart"
    for collector in collectors.values():
        collector.configure_beside(path, alone=alone)
    source = f"{kind}-csv" if kind in ("tensorboard", "long", "series") else "wandb-csv"
    if path.suffix == ".parquet":
        source = f"{kind}-parquet"
    provenance = provenance_of(path, source)
    if errors.count and collectors:
        next(iter(collectors.values())).note(
            f"{errors.count} rows were not used; the first: line {errors.kept[0].line}: "
            f"{errors.kept[0].reason}"
        )
    return [c.finish(path, source, provenance) for c in collectors.values()]


def _separator(header: str) -> str:
    return next((s for s in ",;\t" if s in header), ",")


def _cells(line: str, separator: str = ",") -> list[str]:
    try:
        return next(csv.reader([line.replace("\0", "")], delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def _rows(
    lines: Iterator[tuple[int, bytes | None]], header: list[str], separator: str, errors: Errors
) -> Rows:
    """Cells in the order of the header, whatever order a later header has."""
    width, names, place = len(header), sorted(header), list[int]()
    for line, data in lines:
        cells = _cells(data.decode("utf-8", "replace"), separator) if data is not None else []
        if separator in ";\t":
            cells = [_POINT.sub(r"\1.\2", cell) for cell in cells]
        if cells[:1] and cells[0] in names and sorted(cells) == names:
            place = [] if cells == header else [cells.index(name) for name in header]
        elif len(cells) == width:
            cells = [_of_hundred(cell) if "%" in cell else cell for cell in cells]
            yield line, [cells[i] for i in place] if place else cells
        elif data is None or data.strip():
            errors.add(line, f"a row must have {width} cells, but got {len(cells)}")


def _without_cut(rows: Rows, errors: Errors) -> Rows:
    """Rows of a file that ends within a line: a last number that seems cut is left out."""
    held: tuple[int, list[str]] | None = None
    written: list[str] = []  # the shortest number of the last column is enough, once there are some
    for row in rows:
        if held is not None:
            yield held
            if number(held[1][-1]) is not None:
                written = sorted((*written, held[1][-1]), key=decimals)[:_WRITTEN]
        held = row
    if held is None:
        return
    line, cells = held
    is_last = not errors.kept or errors.kept[-1].line < line
    if is_last and may_be_cut(cells[-1], written):
        errors.add(line, f"the file ends within this line: its last number, {cells[-1]:.20}, was "
                         "left out")  # fmt: skip
        cells = [*cells[:-1], ""]
    yield line, cells


def _of_hundred(cell: str) -> str:
    """A share that a sheet shows as 43.2%, as 0.432; other cells as they are."""
    share = number(cell.strip().removesuffix("%"))
    return cell if share is None else repr(share / 100)


def _chart(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One run per `RUN - METRIC` name before the last dash."""
    axis = settings.step if settings.step in header else header[0]
    if axis is None or _WRONG_AXIS.search(axis):
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
        column = column_of(key, header)
        if axis == "global_step" and column is not None and column.trainer == "open-instruct":
            raise InputError(
                f"a chart must have updates on its x axis, but open-instruct's global_step counts "
                f"rollouts, and {str(path)!r} has {key} over it; put training_step there and "
                "export it again."
            )
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
        if not calls and axis not in _STEP and settings.step is None:
            collector.counters.infer(f"step: the chart's axis {axis!r}, {ASSUMED}")
    return collectors


def _history(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One run, or one per value of a column `run`; an empty cell was not logged in that call."""
    plain = {c.strip().lower(): c for c in header}
    step = settings.step or next((plain[c] for c in ("_step", *_STEP) if c in plain), "")
    if step not in header:
        raise InputError(
            f"a history must have a column of steps, but {str(path)!r} has none named {step!r} "
            f"({', '.join(header[:8])}); name it with --set step=COLUMN."
        )
    at = header.index(step)
    named, own = _identity(header)
    own, rows = _own_id(header, rows, named, own)
    calls = "_step" in header
    if calls:
        at = header.index("_step")
    collectors: dict[str, Collector] = {}
    # DVCLive 3: plots/metrics/eval/reward.tsv has the columns step, reward
    above = f"{path.parent.name}/" if path.parent.name.lower() in _SPLITS else ""
    keys = [(i, setting_of(key) if says_one(key, settings) and key not in settings.columns
             else key if "/" in key else above + key)
            for i, key in enumerate(header) if i not in (at, named, own) and key]  # fmt: skip
    fixed = [(i, c) for i, c in enumerate(header)
             if says_one(c, settings) and setting_of(c) not in MODELS]  # fmt: skip
    said: dict[tuple[str, str], str] = {}
    unnamed = None if named is not None else Unnamed(path, header, settings)
    count = 0
    for line, cells in rows:
        count += 1
        name = run_name(path) if named is None else cells[named]
        key = name if own is None else cells[own]
        if unnamed is not None:
            key = unnamed.key(cells, cells[at])
        for i, column in fixed:
            if cells[i] and said.setdefault((key, column), cells[i]) != cells[i]:
                raise _two_runs(path, name, column, said[key, column], cells[i])
        collector = _collector(key, name, collectors, errors, settings, named is not None)
        if collector is not None:
            values = {word: cells[i] for i, word in keys if cells[i] and not cells[i].isspace()}
            collector.row(cells[at], values, line, calls=calls)
    _settle(unnamed, collectors)
    if calls and named is None and count == _SAMPLED:
        for collector in collectors.values():
            collector.counters.infer(
                "score: 500 rows are what run.history() samples of a longer run; "
                "run.scan_history() gives all"
            )
    return collectors


def _identity(header: Sequence[str]) -> tuple[int | None, int | None]:
    """The columns that name a run and that tell runs apart, where there are any."""
    plain = [cell.strip().lower() for cell in header]
    named = next((plain.index(c) for c in _RUN if c in plain), None)
    own = next((plain.index(c) for c in _ID if c in plain), None)
    return (own if named is None else named), own


def _own_id(
    header: Sequence[str], rows: Rows, named: int | None, own: int | None
) -> tuple[int | None, Rows]:
    """A column `id` tells runs of one name apart, too, if its cells are no numbers."""
    plain = [cell.strip().lower() for cell in header]
    if own is not None or named is None or _OWN not in plain:
        return own, rows
    at = plain.index(_OWN)
    first = next(rows, None)
    if first is None:
        return None, rows
    cell = first[1][at].strip()
    return at if cell and number(cell) is None else None, chain([first], rows)


def _settle(unnamed: Unnamed | None, collectors: Mapping[str, Collector]) -> None:
    if unnamed is not None and (told := unnamed.settle(collectors)):
        for collector in collectors.values():
            collector.counters.infer(told)


def _collector(
    key: str, name: str, collectors: dict[str, Collector], errors: Errors, settings: Settings,
    named: bool,
) -> Collector | None:
    if key not in collectors:
        if len(collectors) >= MAX_RUNS:
            return None
        collectors[key] = Collector(name, errors, settings.for_run(name) if named else settings)
    return collectors[key]


def _tensorboard(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One tag of one run, both of the file's name."""
    name = run_name(path)
    match = re.fullmatch(r"(?:run-)?(?P<run>.*?)[-_]tag[-_](?P<tag>.+)", name)
    tag = match["tag"] if match else header[2]
    for key in settings.columns:  # the download writes a slash as an underscore
        if re.sub(r"[^\w.-]", "_", key) == tag:
            tag = key
    verl = re.fullmatch(r"val-(core|aux)_(.+)_([^_]+)_(mean|best|worst|maj)_([0-9]+)(_mean)?", tag)
    if verl is not None:
        part, source, variable, kind, k, mean = verl.groups()
        tag = f"val-{part}/{source}/{variable}/{kind}@{k}{'/mean' if mean else ''}"
    run = match["run"] if match and match["run"] not in ("", ".") else path.parent.name
    collector = Collector(run or name, errors, settings)
    collector.counters.found()
    for line, cells in rows:
        collector.row(cells[1], {tag: cells[2]}, line)
    return {run or name: collector}


def _series(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One key of one run, both of the file's name as a table of runs beside it has them."""
    run, key = run_and_key(path) or (run_name(path), path.stem)
    plain = [cell.strip().lower() for cell in header]
    at = next(plain.index(c) for c in _STEP if c in plain)
    value = next(plain.index(c) for c in VALUE_WORDS if c in plain)
    collector = Collector(run, errors, settings.for_file(run))
    for line, cells in rows:
        collector.row(cells[at], {key: cells[value]}, line, calls=plain[at] == "_step")
    return {run: collector}


def _long(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One row per number; columns that do not change within a run say what it is."""
    plain = [cell.strip().lower() for cell in header]
    metric = next(plain.index(c) for c in METRIC_WORDS if c in plain)
    value = next(plain.index(c) for c in VALUE_WORDS if c in plain)
    wanted = () if settings.step is None else (settings.step.lower(),)  # pandas' index has no name
    step = next((plain.index(c) for c in (*wanted, *_STEP) if c in plain), None)
    if step is None:
        raise InputError(
            f"a long table must have a column of steps, but {str(path)!r} has "
            f"{', '.join(header[:8])}; name it with --set step=COLUMN."
        )
    named, own = _identity([cell if i != metric else "" for i, cell in enumerate(plain)])
    own, rows = _own_id(header, rows, named, own)
    nan = plain.index("is_nan") if "is_nan" in plain else None  # MLflow keeps NaN as 0 with a mark
    split = next((plain.index(c) for c in _SPLIT if c in plain), None)
    sets = plain.index("problem_set") if "problem_set" in plain else None
    texts = [plain.index(c) for c in _TEXT_VALUE if c in plain]
    taken = (metric, value, step, named, own, nan, split, sets, *texts)
    extras = [i for i in range(len(plain)) if i not in taken]
    fixed = {i for i in extras
             if says_one(header[i], settings) and setting_of(header[i]) not in MODELS}  # fmt: skip
    clock = next((plain.index(c) for c in CLOCKS if c in plain), None)
    above, parents = next((plain.index(c) for c in _PARENT if c in plain), None), set[str]()
    collectors: dict[str, Collector] = {}
    told: dict[str, list[str | None]] = {}
    unnamed = None if named is not None else Unnamed(path, [
        cell if i in extras else "" for i, cell in enumerate(header)
    ], settings)  # fmt: skip
    known: dict[tuple[str, str, str], Column | None] = {}
    latest: dict[tuple[str, tuple[str, ...]], tuple[float, str]] = {}  # step and time of a series
    for line, cells in rows:
        name = run_name(path) if named is None else cells[named]
        run = name if own is None else cells[own]
        if unnamed is not None and cells[step]:  # a parameter has no step
            run = unnamed.key(cells, cells[step])
        collector = _collector(run, name, collectors, errors, settings, named is not None)
        if collector is None:
            continue
        if above is not None:
            parents.add(cells[above])
        if nan is not None and cells[nan].strip().lower() in ("1", "true", "t"):
            cells[value] = "nan"
        if texts and not cells[step]:
            word = next((cells[i] for i in (*texts, value) if cells[i]), "")
            key = _SECTION.sub("", cells[metric]).replace("/", ".")
            collector.configure({key: word}, line)
            continue
        constant = told.setdefault(run, [cells[i] for i in extras])
        for j, i in enumerate(extras):
            if (before := constant[j]) != cells[i]:
                if i in fixed and before and cells[i]:
                    raise _two_runs(path, name, header[i], before, cells[i])
                constant[j] = None
        key = cells[metric].removeprefix("metrics/") if texts else cells[metric]
        labels = (
            key, "" if split is None else _part(cells[split]), "" if sets is None else cells[sets]
        )
        if labels not in known and len(known) < MAX_RUNS:
            known[labels] = _column(labels, settings)
        at, column = number(cells[step]), known.get(labels)
        if clock is not None and at is not None:
            series = run, labels
            was = latest.get(series)
            if was is not None and at < was[0]:
                collector.counters.backward |= goes_back(*(
                    clock_of({"time": cell}) for cell in (was[1], cells[clock])
                ))
            if was is not None or len(latest) < MAX_RUNS:
                latest[series] = at, cells[clock]
        if column is None or collector.counters.busy:
            collector.row(cells[step], {key: cells[value]}, line, calls=plain[step] == "_step")
            continue
        collector.n_rows += 1
        score = number(cells[value])
        if at is None:
            refuse_grouped(cells[step], name)
        if at is None or at < 0 or at != int(at):
            errors.add(line, f"a step must be a whole number >= 0, but got {cells[step]!r:.60}")
        elif score is None:
            collector.row(int(at), {key: cells[value]}, line)
        else:
            collector.score(column, int(at), score, line)
    for name, constant in told.items():
        says = {setting_of(header[i]): v for i, v in zip(extras, constant, strict=True)
                if v and plain[i]}  # fmt: skip
        collectors[name].configure(says)
        collectors[name].extras.update({k: v[:200] for k, v in says.items()})
    _settle(unnamed, collectors)
    for name in parents & collectors.keys():
        del collectors[name]
        for collector in collectors.values():
            collector.counters.infer(f"run: {clean_text(name)} is the parent of others; left out")
    return collectors


def _two_runs(path: Path, name: str, column: str, first: str, other: str) -> UnclearError:
    return UnclearError(
        f"{path}: a run must have one {column.strip()}, but the rows of {clean_text(name)!r} have "
        f"{clean_text(first)} and {clean_text(other)}; give each run a name of its own in a column "
        "`run` (a batch that changes within a run is not read)."
    )


def _part(text: str) -> str:
    """A split, by its name or as Aim's context in JSON."""
    if text[:1] != "{":
        return text
    context, _ = parse_json(text)
    return str(context.get("subset", "")) if isinstance(context, dict) else ""


def _column(labels: tuple[str, str, str], settings: Settings) -> Column | None:
    """What a row's score is where the table names its split, its set or a metric of ours."""
    key, split, problem_set = labels
    column = settings.columns.get(key)
    if column is None and re.fullmatch(r"(avg|best|worst)(@[0-9]{1,6})?", key):
        column = Column(metric=parse_metric(key))
    if column is None and (split or problem_set):
        column = column_of(key)
    if column is None:
        return None
    return Column(
        metric=column.metric, trainer=column.trainer,
        problem_set=problem_set or column.problem_set,
        split=column.split if not split else "train" if split.startswith("train") else "validation",
    )
