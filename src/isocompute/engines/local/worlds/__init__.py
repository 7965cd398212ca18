"""Generated problem worlds: families of graded difficulty, each with a shipped base model."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from isocompute.engines.local.worlds.base import Part, World
from isocompute.engines.local.worlds.bits import BitRuleWorld
from isocompute.engines.local.worlds.countdown import CountdownWorld
from isocompute.engines.local.worlds.machine import MachineWorld
from isocompute.engines.local.worlds.products import ProductWorld
from isocompute.engines.local.worlds.verbs import VerbWorld
from isocompute.errors import InputError
from isocompute.problems import ProblemSet

__all__ = [
    "WORLDS", "BitRuleWorld", "CountdownWorld", "MachineWorld", "ProductWorld", "VerbWorld",
    "World", "world_problems",
]  # fmt: skip

WORLDS: dict[str, type[World]] = {
    kind.name: kind
    for kind in (BitRuleWorld, MachineWorld, ProductWorld, VerbWorld, CountdownWorld)
}


def world_problems(
    name: str,
    *,
    size: int,
    seed: int = 0,
    world: str = "bits",
    part: str | None = None,
    **rule: int | float,
) -> ProblemSet:
    """Problems of a world, as a study file asks for them.

    Args:
        name: of the set; ids begin with it.
        size: number of problems.
        seed: which problems of the rule.
        world: one of `WORLDS`.
        part: "train" or "validation", which share no prompt; None: any problems.
        rule: fields of the world that differ from the shipped base model's.

    Raises:
        InputError: for an unknown world or field, or a size or seed that is not a whole number.
    """
    if world not in WORLDS:
        raise InputError(
            f"`world` must be one of {', '.join(WORLDS)}, but got {world!r}; choose one of them."
        )
    kind = cast("Any", WORLDS[world])
    known = {field.name: field.type for field in fields(kind)}
    for option, given in rule.items():
        if option not in known:
            raise InputError(
                f"options of the world {world!r} must be among size, seed, world, part, "
                f"{', '.join(known)}, but got {option!r}; remove it."
            )
        wanted = "a number" if known[option] == "float" else "a whole number"
        kinds = (int, float) if known[option] == "float" else int
        if isinstance(given, bool) or not isinstance(given, kinds):
            raise InputError(
                f"option `{option}` of the world {world!r} must be {wanted}, but got {given!r}; "
                "correct it."
            )
    for option, value, least in (("size", size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"`{option}` must be an integer >= {least}, but got {value!r}; correct the set."
            )
    made = cast("World", kind(**rule))
    return made.problems(name, size, seed, cast("Part | None", part))
