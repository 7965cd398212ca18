"""Rows whose B_p or n becomes another on the way, under keys that nobody mapped."""

from __future__ import annotations

from collections.abc import Mapping

from isocompute.importers.values.imported import UnclearError
from isocompute.importers.words.called import is_called, mapping

_N = "rollouts_per_problem"
_FEW = 4  # values of an n: what has more is measured, as the samples that a filter leaves


def refuse_several(run: str, perhaps: Mapping[str, Mapping[int, int]]) -> None:
    """Rows that begin again with another n, under a key that nobody mapped: other runs."""
    for key, values in perhaps.items():
        if len(values) > 1 and len(set(values.values())) == 1:
            first, other = list(values)[:2]
            raise UnclearError(
                f"a run must have one {key}, but the rows of {run!r} have {first} and "
                f"{other} and hold the same steps again; give each run a log of its own, or "
                "its rows a name in `run`."
            )


def refuse_changed(perhaps: Mapping[str, Mapping[int, int]], what: str, n: int | None) -> None:
    """Refuse rows whose n becomes another on the way, under a key that nobody mapped."""
    for key, first in perhaps.items():
        on_the_way = len({*first.values()}) == len(first)  # not runs that wrote into one log
        if n in first and 1 < len(first) <= _FEW and on_the_way and is_called(key, _N):
            before, after, *_ = sorted(first, key=first.__getitem__)
            raise UnclearError(
                f"{what}: a run must have one n, but {key} is {before} and from step "
                f"{first[after]} on {after}: no curve holds both; move its log away, or add "
                f"{mapping(key, 'other')} if {key} is no n.",
                trial=("--map", f"{key}=other"),
            )
