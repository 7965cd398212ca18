"""CSV logs with a column for every metric, or for one: W&B's charts, histories, TensorBoard's."""

from __future__ import annotations

import re
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.beside import run_and_key
from isocompute.importers.collect import Collector
from isocompute.importers.configuration import MODELS
from isocompute.importers.csv_cells import Rows
from isocompute.importers.csv_runs import STEPS, identity_of, settle
from isocompute.importers.ledger import Errors
from isocompute.importers.reading import VALUE_WORDS, clean_text, run_name
from isocompute.importers.runs import SAMPLED
from isocompute.importers.settings import Settings
from isocompute.importers.several import one_of
from isocompute.importers.steps import ASSUMED
from isocompute.importers.unnamed import Unnamed, says_one, setting_of, two_runs
from isocompute.importers.vocabulary import OF_POLICY, STEP_KEYS, column_of, with_slashes

_WRONG_AXIS = re.compile("time|epoch|token|sample|episode|rollout|hour|runtime", re.I)
# open-instruct 0.3.0, grpo_fast.py, counts responses under `episode`
_ROLLOUTS = re.compile(r"(?:.*[/_. ])?(?:episodes?|rollouts|trajectories)(?:_seen|_so_far)?", re.I)
_SPLITS = ("train", "eval", "val", "valid", "validation", "test")  # folders that are part of a key
_SAMPLED = 500  # rows that run.history() gives at most, unless it is asked for more


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
        if not (calls or axis in STEPS or settings.step or collector.counters.rollouts):
            collector.counters.infer(f"step: the chart's axis {axis!r}, {ASSUMED}")
    return collectors


def read_history(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One run, or one per value of a column `run`; an empty cell was not logged in that call."""
    plain = {c.strip().lower(): c for c in header}
    step = next((plain[c] for c in ("_step", *STEPS) if c in plain), "")
    if settings.step and not (step and OF_POLICY.search(settings.step)):  # that is of scores alone
        step = settings.step
    if step not in header:
        raise InputError(
            f"a history must have a column of steps, but {str(path)!r} has none named {step!r} "
            f"({', '.join(header[:8])}); name it with --set step=COLUMN."
        )
    at = header.index(step)
    named, own, rows = identity_of(header, rows)
    calls = "_step" in header
    if calls:
        at = header.index("_step")
    collectors: dict[str, Collector] = {}
    # DVCLive 3: plots/metrics/eval/reward.tsv has the columns step, reward
    above = f"{path.parent.name}/" if path.parent.name.lower() in _SPLITS else ""
    keys = [(i, setting_of(key) if says_one(key, settings) and key not in settings.columns
             else key if "/" in key else above + key)
            for i, key in enumerate(header)
            if key and i not in (named, own) and (i != at or key == settings.step)]  # fmt: skip
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
                raise two_runs(path, clean_text(name), column, said[key, column], cells[i])
        collector = one_of(collectors, key, name, errors, settings, named=named is not None)
        if collector is not None:
            values = {word: cells[i] for i, word in keys if cells[i] and not cells[i].isspace()}
            collector.row(cells[at], values, line, calls=calls)
    settle(unnamed, collectors)
    if calls and named is None and count == _SAMPLED:
        for collector in collectors.values():
            collector.counters.infer(SAMPLED)
    return collectors


def read_tensorboard(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One tag of one run, both of the file's name."""
    name = run_name(path)
    match = re.fullmatch(r"(?:run-)?(?P<run>.*?)[-_]tag[-_](?P<tag>.+)", name)
    tag = match["tag"] if match else header[2]
    for key in settings.columns:  # the download writes a slash as an underscore
        if re.sub(r"[^\w.-]", "_", key) == tag:
            tag = key
    tag = tag if tag in settings.columns else with_slashes(tag)
    run = match["run"] if match and match["run"] not in ("", ".") else path.parent.name
    collector = Collector(run or name, errors, settings)
    collector.counters.found()
    for line, cells in rows:
        collector.row(cells[1], {tag: cells[2]}, line)
    return {run or name: collector}


def read_series(
    path: Path, header: list[str], rows: Rows, settings: Settings, errors: Errors
) -> dict[str, Collector]:
    """One key of one run, both of the file's name as a table of runs beside it has them."""
    run, key = run_and_key(path) or (run_name(path), path.stem)
    plain = [cell.strip().lower() for cell in header]
    at = next(plain.index(c) for c in STEPS if c in plain)
    value = next(plain.index(c) for c in VALUE_WORDS if c in plain)
    collector = Collector(run, errors, settings.for_file(run))
    for line, cells in rows:
        collector.row(cells[at], {key: cells[value]}, line, calls=plain[at] == "_step")
    return {run: collector}
