"""One JSON document of a run: its series by name, and its settings beside them.

| document | series |
|---|---|
| SwanLab 0.10, `swanlab api run metrics --save` | `data: {KEY: [{step, value, timestamp}]}` |
| MLflow, a run and `get_metric_history` | `metrics: {KEY: [{step, value, timestamp}]}` |
| ClearML, `Task.get_reported_scalars()` | `{TITLE: {SERIES: {x: [...], y: [...]}}}` |
| Sacred's `metrics.json` | `{KEY: {steps: [...], values: [...], timestamps: [...]}}` |
| W&B's API, a run as its name, config and history | `history: [{_step, KEY: ...}]` |
| a loop of one's own, a list for each kind of row | `evals: [{update, SET: {KEY: ...}}]` |
| the same, a list for each key | `{steps: [...], KEY: [...]}` |
| and of what was measured now and then | `{steps: [...], KEY: {STEP: ...}}` |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any, NamedTuple

from isocompute.importers.values.reading import flatten, number, unwrapped

SETTINGS = ("config", "cfg", "params", "parameters", "hyperparameters", "hyperparams", "hparams",
            "settings", "args", "hp")  # fmt: skip
OF_MAX = "global_step/max_steps"  # ms-swift 4.4: "5/100", of all that are planned
# What rows call their step, the most telling first; the last is Ray Tune 2's.
STEPS = ("step", "_step", "global_step", OF_MAX, "iteration", "iter", "update", "training_step",
         "train_step", "checkpoint_step", "ckpt_step", "training_iteration")  # fmt: skip
# And their run, where runs may share a name: pandas, MLflow, Comet, W&B.
IDS = ("run_id", "run_uuid", "experimentKey", "experiment_key", "wandb_id")
RUNS = ("run", "run_name", *IDS)  # keys of a row that name its run
# Lists of rows whose keys say all; the name of any other says what its rows are of.
_ROWS = ("history", "log_history", "data", "rows", "logs", "log", "metrics", "records", "points")
_GROUPS = ("Args.", "General.")  # sections of ClearML's hyperparameters
_AXES = (("x", "y"), ("steps", "values"), ("step", "value"))
_LISTS = (*STEPS, "steps", "updates", "iterations")
_DEPTH = 6
_LONG = 18  # digits of a step, at most


class Point(NamedTuple):
    """What one call logged: the tracker's step, and the numbers under their keys."""

    step: object
    values: dict[str, object]
    calls: bool


def step_of(row: Collection[object]) -> str:
    """The key of a row that says its step; "" where none does.

    >>> step_of({"epoch": 1, "update": 8}), step_of({"step": 8, "_step": 3}), step_of({"acc": 0.5})
    ('update', '_step', '')
    """
    key = next((key for key in STEPS if key in row), "")
    return "_step" if key == "step" and "_step" in row else key  # W&B's, held against its own


def settings_of(document: Mapping[str, object]) -> dict[str, object]:
    """The settings of a document, flat.

    >>> settings_of({"data": {"params": {"n": "4"}}, "hyperparameters": {"Args": {"seed": "1"}}})
    {'seed': '1', 'n': '4'}
    """
    found: dict[str, object] = {
        key: value for key, value in document.items() if isinstance(value, (int, float, str))
    }
    stack: list[tuple[object, int]] = [(document, 0)]
    while stack:
        value, depth = stack.pop()
        if not isinstance(value, dict) or depth > 2:
            continue
        for name, inner in value.items():
            if name in SETTINGS and isinstance(inner, dict):
                for key, setting in flatten(unwrapped(inner)).items():
                    group = next((g for g in _GROUPS if key.startswith(g)), "")
                    found[key.removeprefix(group)] = setting
            else:
                stack.append((inner, depth + 1))
    return found


def is_text(value: object) -> bool:
    """Whether a value holds no number: paths of checkpoints that were saved are no row.

    >>> is_text("run/step_8"), is_text("0.5"), is_text({"acc": 0.5})
    (True, False, False)
    """
    return isinstance(value, str) and number(value) is None


def rows_along(document: object, key: str | None) -> object:
    """A document of columns, of which the user says which counts updates, as rows; else as it is.

    >>> rows_along({"lr": 0.1, "checkpoint": [4, 8], "acc": [0.5, 0.6]}, "checkpoint")
    {'lr': 0.1, 'log_history': [{'checkpoint': 4, 'acc': 0.5}, {'checkpoint': 8, 'acc': 0.6}]}
    """
    if not key or not isinstance(document, dict) or not isinstance(document.get(key), list):
        return document
    columns = {name: value for name, value in document.items() if _along(value, document[key])}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rest = {name: value for name, value in document.items() if name not in columns}
    return {**rest, "log_history": rows} if len(columns) > 1 else document


def _along(values: object, steps: Any) -> bool:
    """Whether a list holds a number for every step."""
    return (
        isinstance(values, list) and isinstance(steps, list) and len(values) == len(steps)
        and not any(isinstance(value, (dict, list)) for value in (*values, *steps))
    )


def _by_step(values: object, steps: Set[int]) -> dict[int, object]:
    """Numbers by the steps that they were measured at, some of a document's; none of any other.

    >>> _by_step({"8": 0.25, "4": 0.5}, {2, 4, 8}), _by_step({"8": 0.25, "16": 0.5}, {4, 8})
    ({8: 0.25, 4: 0.5}, {})
    """
    if not steps or not isinstance(values, dict) or not all(
        isinstance(key, str) and key.isdecimal() and len(key) <= _LONG
        and isinstance(value, (int, float, type(None))) for key, value in values.items()
    ):
        return {}
    found: dict[int, object] = {int(key): value for key, value in values.items()}
    return found if found.keys() <= steps else {}


def points_of(document: object, name: str = "", depth: int = 0) -> Iterator[Point]:
    """Every point of a document, series by series; none where it holds no series.

    >>> list(points_of({"eval/acc": [{"step": 4, "value": 0.5}]}))
    [Point(step=4, values={'eval/acc': 0.5}, calls=False)]
    >>> list(points_of({"eval": {"acc": {"x": [4], "y": [0.5]}}}))
    [Point(step=4, values={'eval/acc': 0.5}, calls=False)]
    >>> list(points_of({"eval": [{"update": 4, "math": {"acc": 0.5}}]}))
    [Point(step=4, values={'eval/math/acc': 0.5}, calls=False)]
    """
    if isinstance(document, list):
        for row in document:
            if not isinstance(row, dict):
                continue
            if not (step := step_of(row)):
                continue
            if "value" in row:
                yield Point(row[step], {name.rpartition("\0")[2]: row["value"]}, False)
            else:
                values = {key: value for key, value in row.items() if key != step}
                if (of := name.rpartition("\0")[2]) not in _ROWS:
                    own = {key: values.pop(key) for key in RUNS if key in values}
                    values = {**own, of: values}
                yield Point(row[step], flatten(values, separator="/"), step == "_step")
    elif isinstance(document, dict) and depth < _DEPTH:
        for x, y in _AXES:
            if _along(document.get(y), document.get(x)):
                key = "/".join(name.split("\0")[-2:])  # the title of the plot and the series
                yield from (
                    Point(step, {key: value}, False)
                    for step, value in zip(document[x], document[y], strict=True)
                )
                return
        at = next((key for key in _LISTS if isinstance(document.get(key), list)), None)
        known = {step for step in document[at] if isinstance(step, int)} if at else set[int]()
        for key, inner in document.items():
            if at is not None and key != at and _along(inner, document[at]):
                of = name.rpartition("\0")[2]
                whole = f"{of}/{key}" if of and of not in _ROWS and key not in RUNS else key
                for step, value in zip(document[at], inner, strict=True):
                    yield Point(step, {whole: value}, at == "_step")
            elif of_step := _by_step(inner, known):
                for place, value in of_step.items():
                    yield Point(place, {str(key): value}, at == "_step")
            elif key not in SETTINGS:
                yield from points_of(inner, f"{name}\0{key}" if name else str(key), depth + 1)
