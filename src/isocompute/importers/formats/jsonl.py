"""JSON lines: verl's file logger, prime-rl's metrics.jsonl, dumps of verl and SkyRL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.formats.dumps import (
    Dump,
    add_sample,
    finish_dumps,
    is_dump_row,
    step_of_path,
)
from isocompute.importers.formats.whose import UnnamedRows
from isocompute.importers.runs.begun import with_base
from isocompute.importers.runs.collect import MAX_RUNS, Collector
from isocompute.importers.runs.counting import Parts, parts_of
from isocompute.importers.values.imported import Errors, ImportedRun, Provenance, provenance_of
from isocompute.importers.values.reading import (
    MAX_LINE_BYTES,
    flatten,
    iter_lines,
    open_log,
    parse_json,
    unfolded,
    whole,
)
from isocompute.importers.values.series import IDS, OF_MAX, RUNS, SETTINGS, STEPS, step_of
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import settings_in_row
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.splits import OF_SPLIT, SPLITS
from isocompute.importers.words.vocabulary import SAMPLES, STEP_KEYS

RUN_KEYS = frozenset(RUNS)
_SEPARATOR = re.compile("[./]")
_FEW = 2  # counts: as many go up by chance
_KEYS = 8  # of a row without a step
_COUNTERS = tuple(key for key in STEP_KEYS if "/" in key and not key.startswith("eval/"))
_FIRST = 2_000  # rows that tell how counters go together
# what a loop of one's own writes where it goes on: resumed_step: 60, resume_from: out/ckpt_60
_RESUMED = re.compile(r"(?:resum\w*|restart\w*|start)_?(?:step|iter(?:ation)?|update)|"
                      r"(?:resum|restart)[a-z]*(?:_(?:from|at))?(?:_checkpoint)?", re.I)
_CHECKPOINT = re.compile(r"(?:step|ckpt|checkpoint|iter|update)s?[-_=]?0*([0-9]{1,9})"
                         r"(?:\.\w+)?/?$", re.I)  # fmt: skip
_PROBE = 200  # lines looked at before a file counts as no JSON lines


def iter_objects(path: Path, errors: Errors) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, object) of every line that holds a JSON object; the others are reported."""
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data is None:
                errors.add(number, f"a line must unpack and have at most {MAX_LINE_BYTES} bytes")
                continue
            if not data.strip():
                continue
            value, reason = parse_json(data)
            if isinstance(value, dict):
                yield number, value
            else:
                errors.add(number, reason or "a row must be a JSON object")


def looks_like_jsonl(path: Path) -> bool:
    """True if one of the first lines is a JSON object."""
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data and data.lstrip()[:1] == b"{":
                value, _ = parse_json(data)
                if isinstance(value, dict):
                    return True
            if number >= _PROBE:
                break
    return False


class RunsOfRows:
    """A collector for every run that the rows of one file name; one where they name none."""

    def __init__(self, first: Collector, path: Path) -> None:
        self.first, self._path = first, path
        self._key: str | None = None
        self._known: dict[str, Collector] = {}
        self._unnamed = UnnamedRows(first, path)
        self._parts: dict[Path, Parts | None] = {}

    def of(self, row: Mapping[str, object], step: object = None) -> Collector:
        """The collector of the run that a row names, or whose settings it repeats.

        Raises:
            InputError: if the file has more runs than one file may have.
        """
        if self._key is None:  # looked for in rows until one has it
            if RUN_KEYS.isdisjoint(row):  # nearly every row of a million
                return self._unnamed.of(row, step)
            self._key = next((k for k in RUNS if isinstance(row.get(k), str)), None)
            if self._key is None:
                return self._unnamed.of(row, step)
        name = row.get(self._key)
        if not isinstance(name, str):
            return self.first
        own = next((value for k in IDS if isinstance(value := row.get(k), str)), name)
        if own not in self._known:
            if len(self._known) >= MAX_RUNS:
                raise InputError(
                    f"a log must hold at most {MAX_RUNS} runs, but {str(self._path)!r} has more "
                    f"values of {self._key}; split it."
                )
            settings = self.first.settings.for_run(name)
            self._known[own] = Collector(name, self.first.errors, settings)
        return self._known[own]

    def placed(self, row: dict[str, object], path: Path) -> dict[str, object]:
        """A row without a step, with that where another counter of its file says it."""
        if path not in self._parts:  # few logs have such a row, and none is read twice but those
            named = self.first.settings.step
            rows = (row for _, row in islice(iter_objects(path, Errors("")), _FIRST))
            self._parts[path] = parts_of(rows, STEPS if named is None else (named,))
        parts = self._parts[path]
        if parts is None or (at := parts.at(row)) is None:
            return row
        self.first.counters.infer(parts.told)
        return {**row, parts.step: at}

    def finish(self, path: Path, source: str, provenance: Provenance) -> list[ImportedRun]:
        """Those that have rows, each with the configuration that the files beside it say."""
        for collector in self._known.values():
            collector.configure_beside(self._path, alone=len(self._known) == 1)
        first = [self.first] if self.first.n_rows or not self._known else []
        every = [*first, *self._unnamed.settle(), *self._known.values()]
        return with_base([one.finish(path, source, provenance) for one in every])


def read_jsonl(paths: Sequence[Path], settings: Settings, name: str = "") -> list[ImportedRun]:
    """The runs of one file, or the run of all files of one folder of dumps.

    Raises:
        InputError: if no line of a file is a row of a log that is known.
    """
    first = paths[0]
    errors = Errors(str(first))
    collector = Collector(name or run_name(first), errors, settings)
    collector.configure_beside(first)
    dumps: dict[tuple[int, str], Dump] = {}
    source = ""
    runs = RunsOfRows(collector, first)
    for path in paths:
        errors.file = str(path)[:300]
        for number, row in iter_objects(path, errors):
            kind = take_row(row, number, runs, dumps, path)
            source = source or kind
    if not source:
        raise without_steps(first, collector)
    finish_dumps(dumps, collector)
    if errors.count:
        collector.note(errors.told())
    return runs.finish(first, source, provenance_of(first, source))


def without_steps(path: Path, collector: Collector) -> InputError:
    """The refusal of rows of which none has a step, with the key that may count updates."""
    key = _counter(collector.passed)
    there = [*collector.passed, *collector.configured]  # a row without a step may be settings
    keys = ", ".join(key[:60] for key in there[:_KEYS])
    options = ["--set", f"step={key or 'KEY'}"]
    cure, condition = options[1], f"`{key}` counts updates (not rollouts or micro-batches)"
    if key:
        cure += ", if that counts updates"
    if SAMPLES.search(key):
        options += ["--map", f"{key}=rollouts"]
        cure += f", or with {shlex.join(options)}, if rollouts"
        condition = f"`{key}` counts rollouts, so far"
    return InputError(
        f"a JSON log must hold rows with a step, or samples with a score, but {str(path)!r} has "
        f"none{f' (its rows have {keys})' if keys else ''}; name the step's key with --set {cure}.",
        options=options, condition=condition if key else "",
    )


def _counter(rows: Mapping[str, Sequence[object]]) -> str:
    """The key of rows that alone goes up in whole numbers, of several the lowest; "" without.

    >>> _counter({"i": [0, 1, 1, 2], "toks": [90, 180, 190, 270], "acc": [0.1, 0.2, 0.3, 0.4]})
    'i'
    """
    lowest = dict[str, int]()
    for key, values in rows.items():
        counts = [value for value in values if type(value) is int]
        grows = all(a <= b for a, b in pairwise(counts)) and len(set(counts)) > _FEW
        if len(counts) == len(values) and grows and counts[0] >= 0:
            lowest[key] = counts[-1]
    return min(lowest, key=lowest.__getitem__, default="")


def _lifted(row: dict[str, object], named: str | None) -> dict[str, object]:
    """A row with the keys of the group that holds its step in their place, if one does.

    >>> _lifted({"config": {"n": 4}, "metrics": {"step": 8, "acc": 0.5}}, None)
    {'config': {'n': 4}, 'step': 8, 'acc': 0.5}
    """
    wanted = STEPS if named is None else (_SEPARATOR.split(named)[-1],)
    groups = [
        name for name, inner in row.items()
        if name not in SETTINGS and isinstance(inner, dict) and any(k in inner for k in wanted)
    ]  # fmt: skip
    group = row[groups[0]] if len(groups) == 1 else None
    if not isinstance(group, dict):
        return row
    return {**{k: v for k, v in row.items() if k != groups[0]}, **group}


_RIGHT = ("correct", "n_correct", "num_correct", "solved", "passed", "successes")
_OF_ALL = ("total", "n_total", "num_total", "n_problems", "num_problems")


def with_share(row: dict[str, object]) -> dict[str, object]:
    """A row that counts successes and all, with their share as a number of its own.

    >>> with_share({"event": "eval", "correct": 30, "total": 40})["eval/correct/total"]
    0.75
    >>> with_share({"step": 8, "val/solved": 30, "val/total": 40})["val/solved/total"]
    0.75
    """
    for key in row:
        if not key.endswith(_RIGHT):  # nearly every key of a million rows
            continue
        section, slash, right = key.rpartition("/")
        if right not in _RIGHT:
            continue
        for of in (of for of in _OF_ALL if section + slash + of in row):
            part, every = row[key], row[section + slash + of]
            if type(part) is type(every) is int and 0 <= part <= every and every:
                said = next((f"{row[name]}/" for name in OF_SPLIT
                             if str(row.get(name)) in SPLITS), "")  # fmt: skip
                return {**row, f"{said}{key}/{of}": part / every}
    return row


def _resumed(row: Mapping[str, object]) -> int | None:
    """The step of the checkpoint that a row of one's own says a log goes on from.

    >>> _resumed({"event": "resume", "resumed_from": "out/ckpt_60"}), _resumed({"start": 3})
    (60, None)
    """
    for value in (value for key, value in row.items() if _RESUMED.fullmatch(key)):
        at = _CHECKPOINT.search(value) if isinstance(value, str) else None
        if step := whole(at[1] if at else value):
            return step
    return None


def take_row(
    row: dict[str, object], number: int, runs: RunsOfRows,
    dumps: dict[tuple[int, str], Dump], path: Path,
) -> str:
    """Take one row; the format that it is of, or "" if of none."""
    named = runs.first.settings.step
    if (named or step_of(row)) not in row:
        row = runs.placed(row, path)
    if runs.first.counters.evaluated and step_of(row):
        named = None  # of the scores alone; the row has a step of its own
    if not step_of(row) and named not in row:
        row = _lifted(row, named)
        named = None if named is None else _SEPARATOR.split(named)[-1]
    key = named or step_of(row) or next((k for k in _COUNTERS if k in row), "step")
    if "_step" in row and (key == "step" or key not in row):
        key = "_step"  # of W&B; what the run logs beside it is held against it
    collector = runs.of(row, row.get(key))
    if is_dump_row(row):
        add_sample(dumps, row, number, collector, path)
        return "skyrl-dump" if "input_prompt" in row else "verl-dump"
    data = row.get("data")
    if isinstance(data, dict) and "step" in row:
        collector.row(row["step"], data, number)
        return "verl-file"
    if key in row:
        calls = key == "_step"
        if key == OF_MAX:
            done, _, planned = str(row[key]).partition("/")
            collector.configure({"max_steps": planned})
            row = {**row, key: done}
        row[key] = collector.counters.counted_on(row[key])
        counts = "step" if calls else key
        if counts in row and ("epoch" in row or collector.counters.has_epochs):
            row[counts] = collector.counters.in_epochs(row[counts], row)
        if not collector.n_rows:
            collector.configure(settings_in_row(row), number)
        nested = any(isinstance(value, dict) for value in row.values())
        flat = flatten(row, separator="/") if nested else unfolded(row)
        collector.row(row[key], with_share(flat), number, calls=calls)
        return "jsonl"
    step = step_of_path(path)
    if step is not None and any(k.startswith("eval/") for k in row):
        collector.row(step, row, number)
        return "skyrl-eval"
    config = next((row[name] for name in SETTINGS if isinstance(row.get(name), dict)), None)
    if not isinstance(config, dict) and any(map(may_be_setting, row)):
        config = {k: v for k, v in row.items() if k not in RUN_KEYS}  # a line above its rows
    resumed = _resumed(row)
    # Settings above all rows may name the checkpoint of another training, that this one began with.
    if resumed is not None and (collector.n_rows or config is None):
        collector.counters.goes_on(resumed)
    if isinstance(config, dict):
        collector.configure(config, number)
    if isinstance(config, dict) or resumed is not None:
        return ""
    collector.errors.add(number, f"a row must have the key {key!r}")
    for k in list(row)[:_KEYS]:
        values = collector.passed.setdefault(k, [])
        if len(values) < _PROBE:
            values.append(row[k])
    return ""
