"""A count that is stored as its logarithm: `log2_n` 2, 3, 4 for n = 4, 8, 16.

The small whole numbers of such a column look like counts. Its name, what a Parquet file says of it,
or values that follow each other as no sweep over n does, tell it; then the user says which it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from isocompute.importers.reading import number, whole
from isocompute.importers.runs import UnclearError

# What a column map calls the logarithm of a count -> that count.
LOG2 = {f"log2_{name}": name for name in ("problems_per_batch", "rollouts_per_problem")}
_LOG = r"log_?2|lg2?|ld|lb|exponent|exp2|pow(?:er)?(?:s|_?of)?_?(?:2|two)"
_NAMED = re.compile(
    rf"(?<![a-z])(?:{_LOG})(?:_?of)?(?:(?![a-z])_?|(?<=2))|"
    rf"_(?:{_LOG}|exp|power)(?![a-z0-9])", re.I,
)  # fmt: skip
_PLAIN_LOG = re.compile(r"(?<![a-z])(?:log|ln|exp|pow(?:er)?)(?![a-z])_?", re.I)
_TOLD = re.compile(r"(?<![a-z])(?:log_?2|lg|logarithm|base.2|exponent|powers? of (?:two|2))", re.I)
_MOST = 20  # 2 ** 20 rollouts of one problem; at half a B_p of 2,048 is none
_LEAST = 3  # values that follow each other; with two of them, n = 1 and 2 would be doubted


def without_logarithm(key: str) -> str | None:
    """What a key holds the logarithm of, in its own words; None where its name says none.

    >>> [without_logarithm(key) for key in ("lg_group", "rollout.log2n", "group_exponent", "logs")]
    ['group', 'n', 'group', None]
    """
    last = re.split("[./]", key)[-1]
    found = _NAMED.search(last)
    if found is None:
        return None
    return (last[: found.start()] + last[found.end() :]).strip("_- ()") or None


def refuse_logarithm(
    key: str, name: str, values: Iterable[object], of: str, told: str = ""
) -> None:
    """Refuse a key that a map calls a count and that seems to hold the logarithm of one.

    Args:
        key: of the log, as it stands there.
        name: the count that it is mapped to.
        values: that it has, as far as they are known.
        of: the log, for the message.
        told: what the file itself says of the key.

    Raises:
        UnclearError: with both readings, and the option for the logarithm.
    """
    seen = {now for value in values if (now := whole(value)) is not None}
    if seen and (max(seen) > _MOST or not all(map(_is_small, values))):
        return
    row = sorted(seen)
    follow = len(row) >= _LEAST and row == list(range(row[0], row[-1] + 1))
    plain = re.split("[./]", key)[-1]
    if not (
        without_logarithm(key) or _TOLD.search(told) or (seen and _PLAIN_LOG.search(plain))
        or (follow and key != name == "rollouts_per_problem")
    ):
        return
    shown = ", ".join(map(str, row[:6]))
    raised = ", ".join(str(2**one) for one in row[:6])
    there = f"{key!r} has {shown}, a logarithm as it seems" if row else (
        f"{key!r} names a logarithm")  # fmt: skip
    meant = f" if it is {raised}" if row else ""
    raise UnclearError(
        f"{of}: {name} must be a count, but {there}; add --map "
        f"{shlex.quote(f'{key}=log2_{name}')}{meant}, or call the key {name} if it is {shown}."
        if row else
        f"{of}: {name} must be a count, but {there}; add --map "
        f"{shlex.quote(f'{key}=log2_{name}')}, or call the key {name} if it is the count itself."
    )


def _is_small(value: object) -> bool:
    return (now := number(value)) is None or now <= _MOST


def raised(config: Mapping[str, object]) -> dict[str, object]:
    """The counts whose logarithms a configuration holds under the names of a column map.

    >>> raised({"log2_rollouts_per_problem": 4, "seed": 1})
    {'rollouts_per_problem': 16}
    """
    found: dict[str, object] = {}
    for log, name in LOG2.items():
        power = whole(config.get(log)) if log in config else None
        if power is not None and power <= _MOST:
            found[name] = 2**power
    return found
