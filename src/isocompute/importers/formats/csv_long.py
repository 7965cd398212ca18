"""CSV logs with a row for every number: a column of metrics, one of values, one of steps.

Or of events (`run, elapsed_s, event, value`), without a column of steps: an update is one of the
events, and an evaluation stands at as many updates as have rows before it in the order of time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.formats.whose import (
    STEP_COLUMNS,
    RunsOfTable,
    identity_of,
    setting_of,
)
from isocompute.importers.runs.collect import MAX_RUNS, Collector
from isocompute.importers.runs.steps import goes_back
from isocompute.importers.values.cells import Rows
from isocompute.importers.values.imported import Errors, UnclearError
from isocompute.importers.values.reading import (
    CLOCKS,
    METRIC_WORDS,
    VALUE_WORDS,
    clean_text,
    clock_of,
    number,
    parse_json,
    refuse_grouped,
)
from isocompute.importers.words.settings import Column, Settings, parse_metric
from isocompute.importers.words.vocabulary import column_of

_TEXT_VALUE = ("string_value", "int_value", "bool_value")  # Neptune: a parameter has no step
_SECTION = re.compile(r"^(?:parameters|params|config|hparams)/")
_PARENT = ("parent_run_id", "parent_id", "parent")
# Aim 3.29, sdk/sequences/metric.py, dataframe: context and settings are columns
_SPLIT = ("split", "metric.context.subset", "metric.context")
_EVENT = "event"
_UPDATE = re.compile(r"(?:train\w*|optim\w*|grad\w*)?[_ /]?(?:updates?|steps?|train)(?:ed)?", re.I)
_TIME = re.compile(r"(?:elapsed|wall|time|seconds)(?:[_ ].*)?|.*[_ ](?:time|sec|secs|seconds|s)")


def read_long(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One row per number; columns that do not change within a run say what it is."""
    plain = [cell.strip().lower() for cell in header]
    metric = next(plain.index(c) for c in METRIC_WORDS if c in plain)
    value = next(plain.index(c) for c in VALUE_WORDS if c in plain)
    wanted = () if settings.step is None else (settings.step.lower(),)  # pandas' index has no name
    step = next((plain.index(c) for c in (*wanted, *STEP_COLUMNS) if c in plain), None)
    if step is None:
        raise InputError(
            f"a long table must have a column of steps, but {str(path)!r} has "
            f"{', '.join(header[:8])}; name it with --set step=COLUMN."
        )
    nan = plain.index("is_nan") if "is_nan" in plain else None  # MLflow keeps NaN as 0 with a mark
    split = next((plain.index(c) for c in _SPLIT if c in plain), None)
    sets = plain.index("problem_set") if "problem_set" in plain else None
    texts = [plain.index(c) for c in _TEXT_VALUE if c in plain]
    taken = (metric, value, step, nan, split, sets, *texts)
    names = ["" if i in taken else cell for i, cell in enumerate(header)]
    runs = RunsOfTable(path, names, rows, settings, errors, (metric, step))
    extras = [i for i in range(len(plain)) if i not in (*taken, runs.named, runs.own)]
    clock = next((plain.index(c) for c in CLOCKS if c in plain), None)
    above, parents = next((plain.index(c) for c in _PARENT if c in plain), None), set[str]()
    told: dict[str, list[str | None]] = {}
    known: dict[tuple[str, str, str], Column | None] = {}
    latest: dict[tuple[str, tuple[str, ...]], tuple[float, str]] = {}  # step and time of a series
    for line, cells in runs.rows:
        run, collector = runs.of(cells, cells[step] or None)  # a parameter has no step
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
            if constant[j] != cells[i]:
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
            refuse_grouped(cells[step], collector.name)
        if at is None or at < 0 or at != int(at):
            errors.add(line, f"a step must be a whole number >= 0, but got {cells[step]!r:.60}")
        elif score is None:
            collector.row(int(at), {key: cells[value]}, line)
        else:
            collector.score(column, int(at), score, line)
    collectors = runs.settle()
    for name, constant in told.items():
        says = {setting_of(header[i]): v for i, v in zip(extras, constant, strict=True)
                if v and plain[i]}  # fmt: skip
        collectors[name].configure(says)
        collectors[name].extras.update({k: v[:200] for k, v in says.items()})
    for name in parents & collectors.keys():
        del collectors[name]
        for collector in collectors.values():
            collector.counters.infer(f"run: {clean_text(name)} is the parent of others; left out")
    return collectors


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


def are_events(plain: Sequence[str]) -> bool:
    """Whether a header, in lower case, is of events and their values, in time and without steps.

    >>> are_events(["run", "elapsed_s", "event", "value"]), are_events(["step", "event", "value"])
    (True, False)
    """
    return (_EVENT in plain and any(word in plain for word in VALUE_WORDS)
            and not {*STEP_COLUMNS} & {*plain} and _clock(plain) is not None)  # fmt: skip


def _clock(plain: Sequence[str]) -> int | None:
    return next((i for i, cell in enumerate(plain) if cell in CLOCKS or _TIME.fullmatch(cell)),
                None)  # fmt: skip


def with_steps(path: Path, header: list[str], rows: Rows) -> tuple[list[str], Rows, str]:
    """The header and the rows of a long table with steps, and a line that says how they came.

    Raises:
        UnclearError: no single event is an update, or the clock does not say the order.
    """
    plain = [cell.strip().lower() for cell in header]
    named, own, rows = identity_of(plain, rows)
    event, clock = plain.index(_EVENT), _clock(plain)
    assert clock is not None
    kept = list(rows)
    kinds = Counter(cells[event] for _, cells in kept)
    updates = [kind for kind in kinds if _UPDATE.fullmatch(kind.strip())]
    times = [number(cells[clock]) for _, cells in kept]
    if len(updates) != 1 or None in times:
        raise UnclearError(
            f"{path}: a table of events must have one that is an update, and a time in every row, "
            f"but has {', '.join(sorted(kinds))[:200]}; add a column step, of updates done."
        )
    of = own if own is not None else named
    done, made = defaultdict[str, int](int), list[tuple[int, list[str]]]()
    order = sorted(range(len(kept)), key=lambda i: times[i] or 0.0)  # of one time as they stand
    for line, cells in (kept[i] for i in order):
        run, kind = "" if of is None else cells[of], cells[event]
        done[run] += kind == updates[0]
        name = f"train/{kind}" if kind == updates[0] else kind
        made.append((line, [*cells[:event], name, *cells[event + 1 :], str(done[run])]))
    names = [*header[:event], "metric", *header[event + 1 :], "step"]
    told = f"step: the rows of {updates[0]!r} before each, in the order of {header[clock]}"
    return names, iter(made), told
