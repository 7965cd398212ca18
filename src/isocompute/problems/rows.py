"""One row of a problem file -> one problem; every fault names where the row stands."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.errors import InputError
from isocompute.problems.sets import Problem

COLUMNS = ("id", "prompt", "answer", "source", "pass_rate", "pass_rate_samples", "verifier")
VERL_COLUMNS = {"source": "data_source", "answer": "reward_model.ground_truth"}
_SYNONYMS = {
    "prompt": ("question", "problem", "query", "instruction", "input", "text"),
    "answer": ("ground_truth", "solution", "target", "label", "expected", "output"),
}

Row = Mapping[str, Any]


def _lookup(row: Row, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def get_column(row: Row, column: str, columns: Mapping[str, str]) -> Any:
    """A column under its own name, the name that was given for it, or verl's."""
    if column in columns:
        return _lookup(row, columns[column])
    value = row.get(column)
    return _lookup(row, VERL_COLUMNS[column]) if value is None and column in VERL_COLUMNS else value


def read_problem(
    row: Row, where: str, number: int, columns: Mapping[str, str]
) -> tuple[Problem, str | None, bool]:
    """A row's problem, its `extra_info.index`, and whether it names its own id."""
    given_id = get_column(row, "id", columns)
    index = _lookup(row, "extra_info.index")
    problem = Problem(
        id=str(number) if given_id is None else read_text(given_id, "id", where),
        prompt=_prompt(_required(row, "prompt", where, columns), where),
        answer=read_text(_required(row, "answer", where, columns), "answer", where),
        source=read_text(get_column(row, "source", columns) or "", "source", where, empty=True),
        pass_rate=_pass_rate(get_column(row, "pass_rate", columns), where),
        pass_rate_samples=_samples(get_column(row, "pass_rate_samples", columns), where),
    )
    return problem, None if index is None else str(index), given_id is not None


def _required(row: Row, column: str, where: str, columns: Mapping[str, str]) -> Any:
    value = get_column(row, column, columns)
    if value is not None:
        return value
    name = columns.get(column, column)
    present = name in row or ("." in name and _lookup(row, name.rpartition(".")[0]) is not None)
    if present:
        raise InputError(f"`{name}` must not be empty, but {where} has none; fill it or drop it.")
    similar = [s for s in _SYNONYMS.get(column, ()) if s in row]
    similar += difflib.get_close_matches(column, list(row), n=1)
    cure = "add the column"
    if similar:
        cure = (
            f"if `{similar[0]}` is meant, rename it, or in a study file say so beside its path: "
            f"columns: {{{column}: {similar[0]}}}"
        )
    raise InputError(
        f"column `{name}` must be there, but {where} has {', '.join(map(str, row)) or 'none'}; "
        f"{cure}."
    )


def read_text(value: Any, column: str, where: str, *, empty: bool = False) -> str:
    """A value as text; whole numbers lose their decimal point.

    Raises:
        InputError: neither text nor a finite number, or empty where that is not allowed.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(
            f"`{column}` must be text or a number, but {where} has {_short(value)}; "
            "write it as text."
        )
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(
                f"`{column}` must be finite, but {where} has {value!r}; write it as text."
            )
        # Parquet turns a column of integers with a gap into floats.
        value = int(value) if value.is_integer() and abs(value) < 2**53 else value
    text = str(value)
    if not empty and not text.strip():
        raise InputError(f"`{column}` must not be empty, but {where} has {text!r}; fill it.")
    return text


def _prompt(value: Any, where: str) -> str:
    if isinstance(value, str):
        return read_text(value, "prompt", where)
    if not isinstance(value, Sequence) or not value:
        raise InputError(
            f"`prompt` must be text or a list of messages, but {where} has {_short(value)}; "
            'write text or [{"role": "user", "content": ...}].'
        )
    contents = []
    for message in value:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise InputError(
                f"each message of a `prompt` must have a role and a text content, but {where} has "
                f"{_short(message)}; only text can be asked."
            )
        contents.append(content)
    return read_text("\n\n".join(contents), "prompt", where)


def _pass_rate(value: Any, where: str) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(
            f"`pass_rate` must be a number in 0..1, but {where} has {_short(value)}; give "
            "successes divided by samples, or leave it out."
        )
    return float(value)


def _samples(value: Any, where: str) -> int | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < 1:
        raise InputError(
            f"`pass_rate_samples` must be a whole number >= 1, but {where} has {_short(value)}; "
            "correct it or leave it out."
        )
    return int(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
