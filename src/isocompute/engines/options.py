"""What engines ask of a study alike: options of the right kind, words that they have, a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from isocompute.errors import InputError
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

T = TypeVar("T")

_KINDS: dict[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number",
    Mapping: "a mapping",
}  # fmt: skip
_CURES: dict[type, str] = {str: "put it in quotes", Mapping: "write NAME: VALUE"}


def read_options(kind: type[T], engine: str, given: Mapping[str, Any], elsewhere: str = "") -> T:
    """The options of a run, as the dataclass of its engine.

    Args:
        kind: the dataclass; lists are its own to check.
        engine: its word in the study file.
        given: what the study says, every option without a default among it.
        elsewhere: where a word belongs that is none of the options.

    Raises:
        InputError: for an unknown option, or a value of another kind than its field.
    """
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"engine_options of the engine {engine!r} must be among {', '.join(known)}, but "
                f"got {name!r}; remove it{elsewhere}."
            )
        hint = hints[name]
        wanted = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        one = get_origin(wanted[0]) or wanted[0]  # of `kind` or `kind | None`
        if one in _KINDS and not _is_a(value, one) and not (value is None and len(wanted) > 1):
            raise InputError(
                f"engine_options.{name} must be {_KINDS[one]}, but got {value!r:.80}; "
                f"{_CURES.get(one, 'correct it')}."
            )
    return kind(**given)


def require_words(
    recipe: Recipe, engine: str, supported: Iterable[tuple[str, Sequence[object], str]]
) -> None:
    """Refuse words of a recipe that an engine has not.

    Args:
        recipe: of a run.
        engine: its word in the study file.
        supported: (word, values that it has, why no others).

    Raises:
        InputError: names the word, its value, and what the engine has.
    """
    for name, allowed, why in supported:
        value = getattr(recipe, name)
        if value not in allowed:
            raise InputError(
                f"recipe `{name}` must be {' or '.join(map(repr, allowed))} with the engine "
                f"{engine!r}, but got {value!r} ({why}); change it or the engine."
            )


def require_batch(spec: RunSpec) -> None:
    """Refuse a batch that the training set does not fill.

    Raises:
        InputError: fewer problems than a batch has.
    """
    b_p = spec.allocation.problems_per_batch
    if b_p > len(spec.train):
        raise InputError(
            "`problems_per_batch` must not exceed the training problems, but got "
            f"{b_p} for {len(spec.train)}; lower it or add problems."
        )


def half_weights(key: str, precision: object) -> list[str]:
    """A caution where an override keeps weights in fewer bits than the updates need.

    An update below 0.2% of a bfloat16 weight is rounded away; Adam's are about the learning rate.
    """
    if precision in (None, "float32", "fp32", 32, "32"):
        return []
    return [
        f"! Weights in {precision} ({key}) round small updates away: at a learning rate of 1e-6, "
        "99% of the weights never change. Remove it: products are bfloat16 without it, too."
    ]


def _is_a(value: object, kind: type) -> bool:
    """Whole numbers are numbers; true and false are none."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
