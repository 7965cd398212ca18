"""Words of the command line -> numbers, each with its complaint."""

from __future__ import annotations

import argparse
import math
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

from isocompute.domain import Configuration
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.allocation import Rates

RATES = ("tokens_per_rollout", "rollouts_per_gpu_hour", "usd_per_gpu_hour")
WORLD_SIZE = 1200  # problems of a generated world where no size is given


def positive_int(text: str) -> int:
    """A whole number >= 1; 4096, 1e6, 8_192 and 12k are fine."""
    thousands = text.strip().endswith("k")
    value = positive(text.strip().removesuffix("k"))
    value = round(1000 * value, 6) if thousands else value  # 1000 * 16.1 is no whole number
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"must be a whole number, but got {text!r}")
    return int(value)


def positive_ints(text: str) -> list[int]:
    """Whole numbers >= 1, separated by commas."""
    return [positive_int(part) for part in text.removeprefix("n=").split(",")]


def count(text: str) -> int:
    """A whole number >= 0."""
    value = finite(text)
    if value < 0 or not value.is_integer():
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0, but got {text!r}")
    return int(value)


def seed(text: str) -> int:
    """A whole number >= 0 that random numbers can be drawn from."""
    value = count(text)
    if value >= 2**63:
        raise argparse.ArgumentTypeError(f"must be below 2**63, but got {text!r}")
    return value


def positive(text: str) -> float:
    """A finite number > 0."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, but got {text!r}")
    return value


def nonnegative(text: str) -> float:
    """A finite number >= 0."""
    value = finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be below 0, but got {text!r}")
    return value


def share(text: str) -> float:
    """A share above 0: 15% or 0.15.

    >>> share("15%"), share("0.15")
    (0.15, 0.15)
    """
    percent = text.strip().endswith("%")
    value = positive(text.strip().removesuffix("%"))
    if value >= (100 if percent else 1):
        meant = f"; write {value:g}% for {value / 100:g}" if 1 < value < 100 else ""
        raise argparse.ArgumentTypeError(f"must be below 100%, but got {text!r}{meant}")
    return value / 100 if percent else value


def gpus(text: str) -> tuple[int, str]:
    """How many GPUs, and which: 64xH100, or 64.

    >>> gpus("64xH100"), gpus("8")
    ((64, 'H100'), (8, ''))
    """
    number, times, kind = (part.strip() for part in text.partition("x"))
    named = kind[:1].isalpha() if times else True  # no model begins with a digit: 8x8xH100 is 64
    if not number.isdecimal() or int(number) < 1 or not named:
        raise argparse.ArgumentTypeError(
            f"must be all GPUs together, as 64xH100 or 64, but got {text!r}"
        )
    return int(number), kind


def hours(text: str) -> float:
    """Hours above 0: 72, 72h or 3d.

    >>> hours("72"), hours("72h"), hours("3d")
    (72.0, 72.0, 72.0)
    """
    number = text.strip()
    if number.endswith("d"):
        return 24 * positive(number.removesuffix("d"))
    return positive(number.removesuffix("h"))


def numbers(text: str) -> list[float]:
    """Finite numbers > 0 with commas between them."""
    return [positive(part) for part in text.split(",")]


def thawed(text: str) -> list[int] | bool:
    """`all`, or values of n with commas between them.

    >>> thawed("8,64"), thawed("all")
    ([8, 64], True)
    """
    return True if text == "all" else [count(part) for part in text.split(",")]


def world_options(text: str) -> tuple[str, dict[str, int | float | str]]:
    """A generated world in one word -> the set's name and the generator's options.

    Raises:
        InputError: for an option that is not NAME=VALUE.

    >>> world_options("world:machine,size=300,part=train")
    ('machine', {'size': 300, 'world': 'machine', 'part': 'train'})
    >>> world_options("world:bits,size=300,gain=2.5")[1]["gain"]
    2.5
    """
    world, *rest = text.removeprefix("world:").split(",")
    options: dict[str, int | float | str] = {"size": WORLD_SIZE, "world": world}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals or not name or name == "world":
            raise InputError(
                f"a generated world must be written world:NAME,OPTION=VALUE, but got {part!r} in "
                f"{text!r}; write for example world:machine,size=300,seed=1."
            )
        options[name] = value
        for number in (float, int):
            with suppress(ValueError):
                options[name] = number(value)
    return world, options


def words(text: str) -> list[str]:
    """Arguments as a shell would part them; nothing else that a shell does is done."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a command, but {text!r} has {error}") from error


def finite(text: str) -> float:
    """Any finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        plain = ", written without %" if text.strip().endswith("%") else ""
        raise argparse.ArgumentTypeError(f"must be a finite number{plain}, but got {text!r}")
    return value


def fix(text: str) -> tuple[str, int]:
    """What a fit holds fixed: NAME=VALUE."""
    name, _, value = text.partition("=")
    if name not in ("problems_per_batch", "batch_size"):
        raise argparse.ArgumentTypeError(
            f"must be problems_per_batch=VALUE or batch_size=VALUE, but got {text!r}"
        )
    return name, positive_int(value)


def today(text: str) -> Configuration | int:
    """Today's setting: n=16,bp=32, n=16 or 16; raises ValueError for others.

    >>> today("16")
    16
    """
    from isocompute.answers.beside import parse_current

    return parse_current(f"n={text}" if text.strip().isdigit() else text)


def current(text: str) -> Configuration | int:
    """The same on the command line."""
    try:
        return today(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def rates_given(options: argparse.Namespace) -> Rates:
    """What the options say of costs."""
    from isocompute.allocation import Rates

    return Rates(**{name: getattr(options, name) for name in RATES})
