"""What a table of curves says above its rows, in names or in files beside it, for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.beside.beside import configuration_beside
from isocompute.importers.beside.listed import configuration_in_table
from isocompute.importers.tables.columns import DRAWN
from isocompute.importers.tables.table import FloatArray
from isocompute.importers.tables.wide import Texts
from isocompute.importers.tables.workbooks import said_beside
from isocompute.importers.values.headers import head_of
from isocompute.importers.values.imported import DESIGN, UnclearError
from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.configuration import configuration, facts_of, problems_of
from isocompute.importers.words.plain_words import RESPONSES, counted_in, plain_name
from isocompute.importers.words.settings import Settings
from isocompute.recipe import RECORDED, SHARED

# How many problems are trained on, each once in an epoch
_TRAINED_ON = re.compile(
    r"(?:.*[./])?(?:(?:num|n)_)?train(?:ing)?_?(?:set_?|data_?)?"
    r"(?:problems|prompts|questions|examples|samples|size)(?:_in_(?:the_)?(?:train_)?(?:data_?)?set)?",
    re.I,
)  # fmt: skip


def with_block(path: Path, settings: Settings) -> Settings:
    """With the B_p, n and seed that lines above the table say.

    Raises:
        InputError: a name or a setting says otherwise.
    """
    try:
        above = head_of(path).said
        meant = {key: c.metric.label for key, c in settings.columns.items() if key in above}
        said = configuration({plain_name(meant.get(k, k)): above[k] for k in above})
        columns = {k: c for k, c in settings.columns.items() if k not in above}
        settings = replace(settings, columns=columns)
    except (OSError, EOFError):  # told where the rows are read
        return settings
    for name in DESIGN:
        own, given = getattr(said, name), getattr(settings, name)
        if own is not None and given not in (None, own):
            raise InputError(
                f"{path}: {name} must be one number, but the lines above the table say {own} and "
                f"the setting or pattern {given}; drop that part of it, and the table's is used."
            )
        if own is not None:
            settings = replace(settings, **{name: own})
    return settings


def with_configuration(
    path: Path, settings: Settings, say: Callable[[str], None] | None
) -> Settings:
    """With the B_p, n, seed and training problems that its configuration, or a sheet, says."""
    sheet = said_beside(path)
    if (beside := configuration_beside(path) or sheet) is None:
        return settings
    name, config = beside
    if sheet is not None:
        config = {plain_name(key): value for key, value in config.items()}
    said = configuration(config)
    found = {key: getattr(said, key) for key in DESIGN}
    counts = {v for k, value in config.items() if _TRAINED_ON.fullmatch(k) and (v := whole(value))}
    found["training_problems"] = counts.pop() if len(counts) == 1 else None
    new = {k: v for k, v in found.items() if v is not None and getattr(settings, k) is None}
    if new and say is not None:
        say(f"{path}: {', '.join(f'{k}={v}' for k, v in new.items())}: read from {name} beside it")
    elif sheet is not None and say is not None:
        say(f"{path}: {name} beside it holds no scores and no setting that is used; passed over")
    return replace(settings, **new)


def from_problems(numbers: dict[str, FloatArray], settings: Settings, path: Path) -> None:
    """Updates where a table counts problems, or passes over those of training: batches of B_p.

    Raises:
        InputError: a row is no whole number of updates.
    """
    epochs, drawn, of = (numbers.pop("epochs", None), numbers.pop(DRAWN, None),
                         settings.training_problems)  # fmt: skip
    at, word = drawn, "problems"
    if drawn is not None:
        _refuse_other_counts(numbers, drawn, path)
    if drawn is None and epochs is not None and of is not None:
        at, drawn, word = epochs, epochs * of, f"epochs of {of} problems"
    if at is None or drawn is None or {"steps", "rollouts"} & numbers.keys() or (
        "problems_per_batch" not in numbers
    ):
        return
    steps = drawn / numbers["problems_per_batch"]
    if word == "problems" and steps.size > 2 and (steps == 1).all():
        raise InputError(
            f"{path}: {DRAWN} must count the problems so far, but every row has those of one "
            "batch; write a column `steps` of your updates."
        )
    if (odd := (abs(steps - np.round(steps)) > 1e-6) & np.isfinite(steps)).any():
        row = int(odd.argmax())
        raise InputError(
            f"{path}: an update must take a whole batch, but row {row + 1} stands at "
            f"{at[row]:g} {word}, {steps[row]:.2f} batches of "
            f"{numbers['problems_per_batch'][row]:g}; write a column `steps` of your updates."
        )
    numbers["steps"] = np.round(steps)


def _refuse_other_counts(numbers: dict[str, FloatArray], drawn: FloatArray, path: Path) -> None:
    """Updates or rollouts of a table, against the problems that a column map says it counts."""
    b_p, n = (numbers.get(name) for name in DESIGN[:2])
    for name, each in (("steps", b_p), ("rollouts", None if n is None else 1 / n)):
        if name not in numbers or each is None:
            continue
        counted = numbers[name] * each
        if (odd := (abs(counted - drawn) > 1e-6 * np.maximum(drawn, 1))).any():
            row = int(odd.argmax())
            raise InputError(
                f"{path}: {name} and {DRAWN} must agree, but row {row + 1} has "
                f"{name}={numbers[name][row]:g}, which are {counted[row]:g} problems, beside "
                f"{drawn[row]:g}; drop the --map to {DRAWN}, or leave out the column of {name} "
                "where it counts something else."
            )


def from_responses(
    numbers: dict[str, FloatArray], path: Path, units: tuple[NDArray[np.int64], list[str]] | None
) -> None:
    """B_p of a batch that counts responses, where n is known; of one in units, by its rows'."""
    batch, n = numbers.pop(RESPONSES, None), numbers.get("rollouts_per_problem")
    if batch is None or n is None or "problems_per_batch" in numbers:
        return
    if units is not None:
        codes, words = units
        meant = [counted_in(word) for word in words]
        if None in meant:
            odd = meant.index(None)
            raise UnclearError(
                f"{path}: the unit of a batch must be problems or responses, but row "
                f"{int((codes == odd).argmax()) + 1} has {words[odd]!r:.40}; write one of them."
            )
        n = np.where(np.array([name == RESPONSES for name in meant])[codes], n, 1.0)
    pairs = np.unique(np.stack([batch, n]), axis=1)
    for one, of in pairs.T:
        if of >= 1 and one >= 1:  # others are refused with their row
            problems_of(int(one), int(of), str(path))
    numbers["problems_per_batch"] = batch / n


def from_names(
    numbers: dict[str, FloatArray], texts: Texts, settings: Settings
) -> None:
    """Take what `pattern` finds in the names of runs, where all of them say it."""
    if settings.pattern is None or "run" not in texts:
        return
    codes, names = texts["run"]
    found = [settings.for_run(name) for name in names]
    for name in DESIGN:
        said = [getattr(one, name) for one in found]
        if name not in numbers and said and None not in said:
            numbers[name] = np.array(said, dtype=np.float64)[codes]


def from_table_beside(
    numbers: dict[str, FloatArray], texts: Texts, recorded: dict[str, FloatArray], path: Path,
    shared: dict[str, list[str]], say: Callable[[str], None] | None,
) -> None:
    """Take what a table of runs beside this one says; `shared`: texts, by number in `recorded`."""
    if "run" not in texts or not path.is_file():
        return
    codes, names = texts["run"]
    found = [configuration_in_table(path, name, known=numbers) for name in names]
    rows = [row for row in found if row is not None]
    said = [configuration(row) for _, row in rows]
    for name in DESIGN if len(said) == len(names) else ():
        values = [getattr(one, name) for one in said]
        if name not in numbers and None not in values:
            numbers[name] = np.array(values, dtype=np.float64)[codes]
            if say is not None:
                say(f"{path}: {name}: read from {rows[0][0]} beside it")
    facts = [facts_of(row[1]) if row else {} for row in found]
    for word in RECORDED:
        values = [number(one.get(word)) for one in facts]
        if word not in recorded and any(value is not None for value in values):
            recorded[word] = np.array(values, dtype=np.float64)[codes]
    for word in SHARED:
        words = [one.get(word, "") for one in facts]
        if word not in recorded and any(words):
            shared[word] = sorted({*words})
            recorded[word] = np.array([float(shared[word].index(one)) for one in words])[codes]
