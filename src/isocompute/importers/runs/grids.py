"""Whether a word that some runs have, and others not, tells two sweeps apart.

A word of a recipe is in runs beside a sweep: they repeat its seeds, or have further ones. One that
was done again, on another machine or day, by another person, is part of it: without it a seed
lacks an n.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TypeVar

from isocompute.importers.values.reading import number

T = TypeVar("T", bound=Hashable)

# What names add to a run that was done once more: run2, rep_1, b, 20250914, v3.
_REPEAT = re.compile(
    r"(?:seed|s|runs?|r|rep|repeat|replica|trial|t|try|v|exp|take)?[0-9]+|\([0-9]+\)|[a-z]|rerun|retry|copy",
    re.I,
)

Design = tuple[int | None, int | None, int | None]

# Words that are of a recipe even where they go along with the seed: grpo and gspo, kl, lr.
_OF_RECIPE = re.compile(
    r"(?<![a-z])(?:[a-z]*po|rloo|reinforce|remax|gpg|kl|lr|beta|temp|clip|ent|entropy|len|easy|hard)"
    r"(?![a-z])",
    re.I,
)


def parted(said: Iterable[tuple[T, str]]) -> tuple[T, dict[str, int]] | None:
    """The first of some groups that says two things, with these, and how often all say each.

    >>> parted([((6, 4), "1e-6"), ((6, 8), "2e-6"), ((6, 8), "1e-06"), ((6, 8), "2E-6")])
    ((6, 8), {'2e-6': 1, '1e-06': 1})
    >>> parted([("a", "GRPO"), ("a", "grpo")])
    """
    groups, every = defaultdict[T, dict[str, str]](dict), Counter[str]()
    for at, value in said:
        groups[at].setdefault(plain_value(value), value)
        every[value] += 1
    for at, values in groups.items():
        if len(values) > 1:
            return at, {one: every[one] for one in sorted(
                values.values(), key=lambda one: -every[one])}  # fmt: skip
    return None


def plain_value(text: str) -> str:
    """A value however it is written: GRPO is grpo, and 4096.0 is 4096."""
    value = number(text)
    return text.casefold() if value is None else repr(value)


def is_one_grid(groups: Iterable[Collection[Design]], words: Iterable[str] = ()) -> bool:
    """Whether runs are one sweep, each seed once for every n, that their words do not divide.

    Args:
        groups: designs of the runs that share a word.
        words: of the groups; where they go along with the seed, none may be of a recipe.

    >>> is_one_grid([[(6, 4, 1), (6, 4, 2), (6, 8, 1)], [(6, 8, 2)]])  # the last was done again
    True
    >>> is_one_grid([[(6, 4, 1), (6, 4, 2), (6, 8, 1), (6, 8, 2)], [(6, 4, 3)]])  # one more
    False
    >>> by_seed = [[(6, 4, 1), (6, 8, 1)], [(6, 4, 2), (6, 8, 2)]]
    >>> is_one_grid(by_seed, ["n*-h100", "n*-a100"]), is_one_grid(by_seed, ["grpo", "gspo"])
    (True, False)
    """
    parts = [[*designs] for designs in groups]
    every = [design for part in parts for design in part]
    if not _is_grid(every) or len({design[:2] for design in every}) < 2:
        return False
    if not any(map(_of_all_sizes(every), parts)):
        return True
    return is_by_seed(parts) and not any(map(_OF_RECIPE.search, words))


def is_by_seed(groups: Iterable[Collection[Design]]) -> bool:
    """Whether all runs of a group have one seed.

    >>> is_by_seed([[(6, 4, 1), (6, 8, 1)], [(6, 4, 2)]])
    True
    """
    return all(len({seed for *_, seed in part}) == 1 for part in groups)


def may_be_recipes(groups: Iterable[Collection[Design]]) -> bool:
    """Whether runs that share a value may be a sweep of their own: of every n, or seeds once more.

    One that was done again, or hosts by chance, leave n without a seed that others have.

    >>> may_be_recipes([[(6, 4, 1), (6, 8, 1)], [(6, 4, 2), (6, 8, 2)]])
    True
    >>> may_be_recipes([[(6, 4, 1), (6, 8, 2)], [(6, 4, 2), (6, 8, 1)]])
    False
    >>> may_be_recipes([[(6, 4, None)] * 2 + [(6, 8, None)], [(6, 8, None)]])  # no seeds are known
    False
    """
    parts = [[*designs] for designs in groups]
    every = [design for part in parts for design in part]
    if None in {seed for *_, seed in every}:
        parts = [[(*of, i) for of, count in Counter(design[:2] for design in part).items()
                  for i in range(count)] for part in parts]  # fmt: skip
    elif sum(len({*part}) for part in parts) > len({*every}):
        return True
    return any(map(_of_all_sizes(every), parts))


def _of_all_sizes(every: Iterable[Design]) -> Callable[[Collection[Design]], bool]:
    """Whether some runs have each seed of theirs at every B_p and n of all."""
    sizes = {design[:2] for design in every}
    return lambda part: _is_grid(part) and {design[:2] for design in part} == sizes


def _is_grid(designs: Collection[Design]) -> bool:
    seeds = {seed for *_, seed in designs}
    sizes = {design[:2] for design in designs}
    return None not in seeds and len({*designs}) == len(designs) == len(seeds) * len(sizes)


def once(name: str) -> str:
    """A name without the number or letter of a repetition, or a time.

    >>> once("grpo-*-run2"), once("qwen-1.5b.*"), once("20250914_grpo_*_b")
    ('grpo*', 'qwen-1.5b*', '*grpo*')
    """
    words = re.split(r"((?<![0-9])[-_. :]+|[-_: ]+|\.(?![0-9]))", name)
    words[::2] = ["*" if _REPEAT.fullmatch(word) else word for word in words[::2]]
    return re.sub(r"[-_. :]*\*(?:[-_. :]*\*)*[-_. :]*", "*", "".join(words))
