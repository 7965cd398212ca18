"""`trainer_state.json` of TRL (any transformers trainer): its `log_history`.

Scripts like transformers' and open-r1's (src/open_r1/grpo.py) save it before they evaluate at the
end: that score stands in `eval_results.json` beside it, with the epoch of the last update.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.beside.elsewhere import is_answer
from isocompute.importers.formats.documents import read_documents, runs_in, take_document
from isocompute.importers.formats.jsonl import RunsOfRows
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.reading import in_time, parse_json, unfolded
from isocompute.importers.words.configuration import settings_in_row
from isocompute.importers.words.fresh import OF_STATE
from isocompute.importers.words.paths import folder_name, run_name
from isocompute.importers.words.settings import Settings

_DIGITS = 0.005  # of an epoch: releases before 4.45 round it
MAX_BYTES = 256 << 20  # 1e5 logged steps have some 100 MB


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
    if path.name != "trainer_state.json" and (several := runs_in(state)):
        return read_documents(several, path, settings)
    if isinstance(state, list):  # the history alone, as `json.dump(trainer.state.log_history)`
        state = {"log_history": in_time(state)}  # Comet gives the newest first
    if isinstance(state, dict) and isinstance(state.get("log_history"), list):
        history = state["log_history"]
    else:
        history = _recover(data.decode("utf-8", "replace"))
        if not history:
            if isinstance(state, dict) and path.name != "trainer_state.json":
                if (found := _of_series(state, collector, path)) is not None:
                    return [found.finish(path, "series-json")]
                if isinstance(state.get("results"), dict):
                    raise InputError(
                        "a result of an evaluation must say its step, but no folder above "
                        f"{str(path)!r} does; lay a copy of it into step_0/ of every run that "
                        "began with this model, or move it away."
                    )
                if is_answer(path):
                    raise InputError(
                        f"a log must be a trainer's or tracker's, but {str(path)!r} is an answer "
                        "of isocompute (`--json`); give the logs that it was made from."
                    )
                keys = ", ".join(f"{key!s:.40}" for key in list(state)[:8])
                raise InputError(
                    "a JSON log must be a list of rows with a step, or hold one as `log_history`, "
                    f"but {str(path)!r} has {keys or 'nothing'}; "
                    "write its points as a table: run, step, metric, value."
                )
            raise InputError(
                f"a trainer_state.json must hold a list `log_history`, but {str(path)!r} does not"
                f"{f' ({reason})' if reason else ''}; use the one of another checkpoint."
            )
        errors.add(len(history) + 1, reason or "log_history is not a list")
        collector.note("the file is torn: the history up to the tear was read")
        state = {}
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
    runs = RunsOfRows(collector, path)
    for number, row in enumerate(history, start=1):
        if isinstance(row, dict):
            one = runs.of(row)
            if not one.n_rows:
                one.configure(settings_in_row(row), number)
            one.row(row.get("step"), unfolded(row), number)
        else:
            errors.add(number, "an entry of log_history must be an object")
    return [one.finish(path, "trainer-state") for one in runs.finish()]


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


def _of_series(state: dict[str, Any], collector: Collector, path: Path) -> Collector | None:
    """The run of a document of series; None where it holds none."""
    if isinstance(name := state.get("name"), str) and name:
        collector.rename(name)
    take_document(state, collector, path, alone=True)
    return collector if collector.n_rows else None


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
