"""JSON lines: verl's file logger, prime-rl's metrics.jsonl, dumps of verl and SkyRL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.collect import Collector
from isocompute.importers.dumps import Dump, add_sample, finish_dumps, is_dump_row, step_of_path
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.reading import (
    MAX_LINE_BYTES,
    flatten,
    iter_lines,
    open_log,
    parse_json,
    run_name,
    unfolded,
)
from isocompute.importers.runs import ImportedRun
from isocompute.importers.settings import Settings

_OF_MAX = "global_step/max_steps"
_STEPS = ("step", "global_step", _OF_MAX, "_step", "iteration", "update")
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


def read_jsonl(paths: Sequence[Path], settings: Settings, name: str = "") -> list[ImportedRun]:
    """One run from one file, or from all files of one folder of dumps.

    Raises:
        InputError: if no line of a file is a row of a log that is known.
    """
    first = paths[0]
    errors = Errors(str(first))
    collector = Collector(name or run_name(first), errors, settings)
    collector.configure_beside(first)
    dumps: dict[tuple[int, str], Dump] = {}
    source = ""
    for path in paths:
        errors.file = str(path)[:300]
        for number, row in iter_objects(path, errors):
            kind = _take(row, number, collector, dumps, path)
            source = source or kind
    if not source:
        raise InputError(
            f"a JSON-lines log must hold rows with a step, or samples with a score, but "
            f"{str(first)!r} has none{_keys(collector)}; name the step's key with --set step=KEY."
        )
    finish_dumps(dumps, collector)
    if errors.count:
        collector.note(f"{errors.count} rows were not used; the first: line "
                       f"{errors.kept[0].line}: {errors.kept[0].reason}")
    return [collector.finish(first, source, provenance_of(first, source))]


def _keys(collector: Collector) -> str:
    keys = ", ".join(collector.passed[:8])
    return f" (its rows have {keys})" if keys else ""


def _take(
    row: dict[str, object], number: int, collector: Collector,
    dumps: dict[tuple[int, str], Dump], path: Path,
) -> str:
    """Take one row; the format that it is of, or "" if of none."""
    if is_dump_row(row):
        add_sample(dumps, row, number, collector, path)
        return "skyrl-dump" if "input_prompt" in row else "verl-dump"
    data = row.get("data")
    if isinstance(data, dict) and "step" in row:
        collector.row(row["step"], data, number)
        return "verl-file"
    key = collector.settings.step or next((k for k in _STEPS if k in row), "step")
    if key in row:
        calls = key == "_step"
        if key == _OF_MAX:  # ms-swift: "5/100", of all that are planned
            done, _, planned = str(row[key]).partition("/")
            collector.configure({"max_steps": planned})
            row = {**row, key: done}
        nested = any(isinstance(value, dict) for value in row.values())
        flat = flatten(row, separator="/") if nested else unfolded(row)
        collector.row(row[key], flat, number, calls=calls)
        return "jsonl"
    step = step_of_path(path)
    if step is not None and any(k.startswith("eval/") for k in row):
        collector.row(step, row, number)
        return "skyrl-eval"
    config = row.get("config")
    if isinstance(config, dict):
        collector.configure(config, number)
        return ""
    collector.errors.add(number, f"a row must have the key {key!r}")
    collector.passed.extend(k[:60] for k in list(row)[:8] if k not in collector.passed)
    return ""
