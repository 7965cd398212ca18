"""YAML 1.2 as data only: numbers are numbers, and nothing but JSON values comes out.

`1e-3` is a number (PyYAML reads it as text); tags, anchors, aliases and duplicate keys are
refused, so that a file can neither construct objects nor grow when it is read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    ScalarEvent,
)

from isocompute.errors import InputError
from isocompute.files import not_found

_MAX_BYTES = 1 << 20
MAX_DEPTH = 16


def read_yaml(path: Path) -> Any:
    """The JSON value of a YAML file.

    Raises:
        InputError: if it cannot be read, is too large, or holds more than plain data.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(  # a pipe or device may never end
            f"a study file must be a file, but {str(path)!r} is a pipe or device; save it first."
        )
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(not_found(path)) from None
    except OSError as error:
        raise InputError(
            f"a study file must be readable, but {str(path)!r} gives {error.strerror!r}; "
            "check its name."
        ) from error
    if len(data) > _MAX_BYTES:
        raise InputError(
            f"a study file must be at most {_MAX_BYTES:,} bytes, but {str(path)!r} is larger; "
            "keep problems in files of their own."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"a study file must be UTF-8 text, but byte {error.start} of {str(path)!r} is not; "
            "save it as UTF-8."
        ) from error
    return parse_yaml(text, where=repr(path.name))


def parse_yaml(text: str, *, where: str) -> Any:
    """The JSON value of a YAML text; `where` names it in messages.

    Raises:
        InputError: on a syntax error, tag, anchor, alias, duplicate key, more than one
            document, deep nesting, or a value that JSON does not have.
    """
    try:
        _refuse_more_than_data(text, where)
        value = YAML(typ="safe", pure=True).load(text)
    except InputError:  # a ValueError that already says what is wrong
        raise
    except YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise InputError(
            f"{where} must be valid YAML 1.2 without repeated keys, but{line}: "
            f"{' '.join(str(problem).split())[:200]}; correct that line."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} must be valid YAML 1.2, but reading it gives {str(error)[:100]!r}; "
            "correct the value."
        ) from error
    _check(value, where, "")
    return value


def _refuse_more_than_data(text: str, where: str) -> None:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "a line"
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise InputError(
                f"{where} must hold plain data without anchors and aliases, but {line} has one; "
                "write the value out."
            )
        if isinstance(event, ScalarEvent) and event.value == "<<" and event.style is None:
            raise InputError(  # of YAML 1.1: the parser would merge it without a word
                f"{where} must hold plain data without merge keys, but {line} has one (<<); write "
                "the values out."
            )
        tag = getattr(event, "tag", None)
        if tag:
            raise InputError(
                f"{where} must hold plain data without tags, but {line} has {str(tag)!r}; "
                "remove the tag."
            )
        if isinstance(event, CollectionEndEvent):
            depth -= 1
        elif isinstance(event, CollectionStartEvent):
            depth += 1
        if depth > MAX_DEPTH:
            raise InputError(
                f"{where} may nest at most {MAX_DEPTH} levels deep, but {line} goes deeper; "
                "flatten it."
            )


def _check(value: Any, where: str, name: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(
                    f"keys of {where} must be text, but got {key!r}; put it in quotes."
                )
            _check(item, where, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check(item, where, f"{name}[{i}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(
            f"numbers of {where} must be finite, but {name or 'it'} is {value!r}; give a finite "
            "number."
        )
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise InputError(
            f"values of {where} must be text, numbers, true, false or null, but {name or 'it'} is "
            f"a {type(value).__name__}; put it in quotes."
        )
