"""One JSON document: the `trainer_state.json` of TRL (any transformers trainer), runs by name.

| file | runs |
|---|---|
| `{log_history: [...]}`, or a list of rows | one |
| a run as its series and settings (`series`) | one |
| `[{name, config, history: [...]}, ...]`, as W&B's API gives them | one for each entry |
| `{NAME: {config, history: [...]}, ...}` | one for each name |
| `{n8: [{step, KEY: ...}, ...], ...}` | one for each name, where all say their n |
| JSON lines of such entries | one for each line |

Scripts like transformers' and open-r1's (src/open_r1/grpo.py) save the state before they evaluate
at the end: that score stands in `eval_results.json` beside it, with the epoch of the last update.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.beside.elsewhere import is_answer
from isocompute.importers.formats.dumps import Dump, finish_dumps
from isocompute.importers.formats.jsonl import RunsOfRows, take_row, without_steps
from isocompute.importers.runs.collect import MAX_RUNS, Collector
from isocompute.importers.values.imported import (
    Errors,
    ImportedRun,
    UnclearError,
    provenance_of,
)
from isocompute.importers.values.reading import clean_text, in_time, parse_json
from isocompute.importers.values.series import (
    IDS,
    RUNS,
    SETTINGS,
    points_of,
    rows_along,
    settings_of,
    step_of,
)
from isocompute.importers.words.fresh import OF_STATE
from isocompute.importers.words.names import written_in
from isocompute.importers.words.paths import folder_name, run_name
from isocompute.importers.words.settings import Settings

_NAMES = ("name", "run_name", "display_name", "run")
_LISTS = ("runs", "experiments")
_NUMBERS = "keys"  # what a user calls the numbers that rows stand under
_LONG = 18  # digits of such a number, at most
_DIGITS = 0.005  # of an epoch: releases before 4.45 round it
MAX_BYTES = 256 << 20  # 1e5 logged steps have some 100 MB


def runs_in(document: object) -> list[tuple[str, dict[str, Any]]]:
    """The runs of a document of several, with their names; none where it is something else.

    >>> one = {"config": {"n": 4}, "history": [{"step": 0, "acc": 0.5}]}
    >>> [name for name, _ in runs_in([{"name": "a", **one}, one])]
    ['a', 'run 2']
    >>> [name for name, _ in runs_in({"a": one, "b": one})], runs_in([{"step": 1, "acc": 0.5}])
    (['a', 'b'], [])
    """
    if isinstance(document, list):
        if not all(map(_may_be_run, document)) or not any(map(_is_run, document)):
            return []
        keys = (*_NAMES, "id", *IDS)  # where nothing else names a run
        return [(_name(one, keys) or f"run {i}", one) for i, one in enumerate(document, start=1)]
    if not isinstance(document, dict):
        return []
    for key in _LISTS:
        if found := runs_in(document.get(key)):
            return found
    if len(document) > 1 and all(map(_is_listed, document, document.values())):
        return [(str(key), {"history": rows}) for key, rows in document.items()]
    several = (
        len(document) > 1 and all(map(_has_settings, document.values()))
        and any(map(_is_run, document.values()))
    )  # fmt: skip
    return [(_name(one) or str(key), one) for key, one in document.items()] if several else []


def document_of(path: Path, step: str | None = None) -> object:
    """What JSON lines that are no rows hold: one document, or one for each line; None for rows.

    `step`: the column that counts updates, where its user says so.
    """
    if path.suffix not in (".json", ".jsonl") or path.stat().st_size > MAX_BYTES:
        return None
    with path.open("rb") as handle:
        first, _ = parse_json(handle.readline())
        if not isinstance(first, dict) or ("data" in first and "step" in first):
            return None
        if not _is_run(first) and not runs_in(first) and rows_along(first, step) is first:
            return None
        rest = [line for line in handle if line.strip()]
    if not rest:
        return first
    documents = [first]
    for line in rest:
        value, _ = parse_json(line)
        if not _may_be_run(value):
            return None
        documents.append(value)
    return documents


def read_documents(
    found: list[tuple[str, dict[str, Any]]], path: Path, settings: Settings
) -> list[ImportedRun]:
    """Those runs, each with its own settings."""
    errors = Errors(str(path))
    return [
        run.finish(path, "series-json") for name, one in found
        for run in take_document(
            one, Collector(clean_text(name), errors, settings.for_run(name)), path)
    ]  # fmt: skip


def take_document(
    state: Mapping[str, object], collector: Collector, path: Path, *, alone: bool = False
) -> list[Collector]:
    """Give a collector all that a document of one run says, or one to each run that rows name.

    Raises:
        UnclearError: where some rows name one of several runs, and others none.
    """
    config, runs, unnamed = settings_of(state), dict[str, Collector](), 0
    collector.configure(config)
    collector.configure_beside(path, alone=alone)
    for number, point in enumerate(points_of(state), start=1):
        one = collector
        if (name := next((v for k in RUNS if isinstance(v := point.values.get(k), str)), "")):
            one = runs[name] if name in runs else _further(name, config, collector, path, runs)
        elif not unnamed:
            unnamed = number
        one.row(point.step, point.values, number, calls=point.calls)
    if len(runs) > 1:
        first, other = list(runs)[:2]
        if unnamed:
            raise UnclearError(
                f"{path}: every row must say its run where a document holds several, but row "
                f"{unnamed} names none and others {clean_text(first, 40)!r} and "
                f"{clean_text(other, 40)!r}; write a file for each run."
            )
        collector.rename(clean_text(first))
    return [*runs.values()] or [collector]


def _further(
    name: str, config: dict[str, object], first: Collector, path: Path, runs: dict[str, Collector]
) -> Collector:
    """The collector of a run that rows of a document name; the first such run has the document's.

    Raises:
        InputError: if the document has more runs than one file may have.
    """
    if not runs:
        runs[name] = first
    elif len(runs) >= MAX_RUNS:
        raise InputError(
            f"a log must hold at most {MAX_RUNS} runs, but {str(path)!r} has more; split it."
        )
    else:
        runs[name] = Collector(clean_text(name), first.errors, first.settings.for_run(name))
        runs[name].configure(config)
        runs[name].configure_beside(path, alone=False)
    return runs[name]


def _is_row(one: Mapping[str, object]) -> bool:
    """Whether a value says one step; a list of them is a column."""
    return bool(key := step_of(one)) and not isinstance(one[key], list)


def _is_run(one: object) -> bool:
    """Whether a value holds series, and is no row of one."""
    return (
        isinstance(one, dict) and not _is_row(one)
        and next(islice(points_of(one), 1), None) is not None
    )


def _is_listed(name: object, rows: object) -> bool:
    """Whether a list of rows stands under a name that says its n: a run, and no set or split."""
    return (
        isinstance(rows, list) and written_in(str(name), "rollouts_per_problem") is not None
        and all(isinstance(row, dict) and step_of(row) for row in rows)
    )  # fmt: skip


def _has_settings(one: object) -> bool:
    """Whether a value holds settings, and is no row; a run that failed at once has no series."""
    return (
        isinstance(one, dict) and not _is_row(one)
        and any(isinstance(one.get(key), dict) for key in SETTINGS)
    )  # fmt: skip


def _may_be_run(one: object) -> bool:
    return _has_settings(one) or _is_run(one)


def _name(one: Mapping[str, Any], keys: tuple[str, ...] = _NAMES) -> str:
    """The name that a document gives its run; "" where it has none."""
    info = one.get("info")
    for place in (one, info if isinstance(info, dict) else {}):
        for key in keys:
            if isinstance(name := place.get(key), str) and name:
                return name
    return ""


def read_trainer_state(path: Path, settings: Settings) -> list[ImportedRun]:
    """The run whose history the file holds; a torn file gives the rows before the tear.

    Raises:
        InputError: if the file is over 256 MiB, or holds no history.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(
            f"a trainer_state.json must have at most {MAX_BYTES} bytes, but {str(path)!r} has "
            f"{size}; log less often, or import the tracker's file."
        )
    errors = Errors(str(path))
    folder = path.parent
    name = folder_name(folder.parent if folder.name.startswith("checkpoint-") else folder)
    if path.name != "trainer_state.json":
        name = run_name(path)
    collector = Collector(name or path.stem, errors, settings)
    data = path.read_bytes()
    state, reason = parse_json(data)
    state = rows_along(state, settings.step)
    if path.name != "trainer_state.json" and (several := runs_in(state)):
        return read_documents(several, path, settings)
    if path.name != "trainer_state.json" and (rows := _under_numbers(state)):
        if settings.step != _NUMBERS:
            raise _of_numbers(rows, path)
        state = rows
    if isinstance(state, list):  # the history alone, as `json.dump(trainer.state.log_history)`
        state = {"log_history": in_time(state)}  # Comet gives the newest first
    if isinstance(state, dict) and isinstance(state.get("log_history"), list):
        history = state["log_history"]
    elif history := _recover(data.decode("utf-8", "replace")):
        errors.add(len(history) + 1, reason or "log_history is not a list")
        collector.note("the file is torn: the history up to the tear was read")
        state = {}
    elif not isinstance(state, dict) or path.name == "trainer_state.json":
        raise InputError(
            f"a trainer_state.json must hold a list `log_history`, but {str(path)!r} does not"
            f"{f' ({reason})' if reason else ''}; use the one of another checkpoint."
        )
    elif found := _of_series(state, collector, path):
        return [one.finish(path, "series-json") for one in found]
    else:
        raise _no_course(state, path)
    collector.configure({
        key: state[key] for key in ("logging_steps", "max_steps") if key in state
    } | {OF_STATE: state.get("train_batch_size")})
    collector.configure_beside(path)
    if end := _evaluated_after(folder, state, history):
        history = [*history, end]
        collector.counters.infer("score: of the end of training, from the results beside the state")
    window = state.get("logging_steps")
    if isinstance(window, int) and window > 1:
        collector.note(f"training rows are means over {window} steps")
    runs, dumps, known = RunsOfRows(collector, path), dict[tuple[int, str], Dump](), False
    for number, row in enumerate(history, start=1):
        if isinstance(row, dict):
            known |= take_row(row, number, runs, dumps, path) != ""
        else:
            errors.add(number, "an entry of log_history must be an object")
    if history and not known and path.name != "trainer_state.json":
        raise without_steps(path, collector)
    finish_dumps(dumps, collector)
    return runs.finish(path, "trainer-state", provenance_of(path, "trainer-state"))


def _under_numbers(state: object) -> list[dict[str, object]]:
    """The rows of a document that holds each under a number; none of any other.

    >>> _under_numbers({"50": {"acc": 0.5}, "100": {"acc": 0.6}})
    [{'keys': 50, 'acc': 0.5}, {'keys': 100, 'acc': 0.6}]
    """
    if not isinstance(state, dict) or not all(
        key.isdecimal() and len(key) <= _LONG and isinstance(row, dict)
        for key, row in state.items()
    ):
        return []
    return [{_NUMBERS: int(key), **row} for key, row in state.items()]


def _of_numbers(rows: Sequence[Mapping[str, object]], path: Path) -> InputError:
    """The question of what numbers count that rows stand under: updates, or n, seeds, problems."""
    few = ", ".join(str(row[_NUMBERS]) for row in rows[:4])
    word = f"step={_NUMBERS}"
    return InputError(
        f"a JSON log must hold rows with a step, but those of {str(path)!r} stand under numbers "
        f"({few}{', ...' if len(rows) > 4 else ''}); add --set {word}, if these count updates.",
        options=("--set", word), condition=f"the numbers above the rows ({few}) count updates",
    )


def _no_course(state: Mapping[str, Any], path: Path) -> InputError:
    """The refusal of a document that holds no rows of a run."""
    if isinstance(state.get("results"), dict):
        return InputError(
            f"a result of an evaluation must say its step, but no folder above {str(path)!r} does; "
            "lay a copy of it into step_0/ of every run that began with this model, or move it "
            "away."
        )
    if is_answer(path):
        return InputError(
            f"a log must be a trainer's or tracker's, but {str(path)!r} is an answer of isocompute "
            "(`--json`); give the logs that it was made from."
        )
    keys = ", ".join(f"{key!s:.40}" for key in list(state)[:8])
    return InputError(
        "a JSON log must be a list of rows with a step, or hold one as `log_history`, but "
        f"{str(path)!r} has {keys or 'nothing'}; write its points as a table: run, step, metric, "
        "value."
    )


def _evaluated_after(
    folder: Path, state: dict[str, Any], history: list[Any]
) -> dict[str, Any] | None:
    """The row of an evaluation behind the last update of a run without any other; None without."""
    step, ended, best = (state.get(k) for k in ("global_step", "epoch", "best_model_checkpoint"))
    of_eval = (k for row in history if isinstance(row, dict) for k in row if k.startswith("eval_"))
    if not step or not isinstance(ended, (int, float)) or best or next(of_eval, None):
        return None  # the best checkpoint may be what was evaluated
    for home in (folder, folder.parent)[: 1 + folder.name.startswith("checkpoint-")]:
        for file in (home / name for name in ("eval_results.json", "all_results.json")):
            said = parse_json(file.read_bytes())[0] if file.is_file() else None
            said = said if isinstance(said, dict) else {}
            scores = {k: v for k, v in said.items() if k.startswith("eval_")}
            epoch = said.get("epoch")
            at_end = isinstance(epoch, (int, float)) and abs(epoch - ended) <= _DIGITS
            if scores and at_end:
                return {**scores, "epoch": epoch, "step": step}
    return None


def _of_series(state: dict[str, Any], collector: Collector, path: Path) -> list[Collector]:
    """The run of a document of series, or those that its rows name; none where it holds none."""
    if isinstance(name := state.get("name"), str) and name:
        collector.rename(name)
    return [one for one in take_document(state, collector, path, alone=True) if one.n_rows]


def _recover(text: str) -> list[Any]:
    """The whole entries of `log_history` before the place where the file breaks off."""
    at = text.find('"log_history"')
    at = text.find("[", at) if at >= 0 else -1
    decoder = json.JSONDecoder()
    rows: list[Any] = []
    while at >= 0:
        at += 1
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] != "{":
            break
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        rows.append(row)
        at -= 1
    return rows
