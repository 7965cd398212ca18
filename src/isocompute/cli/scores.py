"""Which scores are meant, and what a log does not say: asked alike by every command."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from isocompute.cli.output import warn

if TYPE_CHECKING:
    from isocompute.importers import Settings

Options = argparse.Namespace
_METRIC = re.compile(r"(avg|mean|best|worst|pass|maj)(\W|$)")


class Scores(TypedDict):
    """Arguments of `sources.load_curves`."""

    metric: str | None
    problem_set: str | None
    score_range: tuple[float, float]
    settings: Settings | None
    say: Callable[[str], None]


def scores(options: Options) -> Scores:
    """Which scores are meant, as every command that reads curves is asked."""
    low, high = options.range
    return {
        "metric": options.metric,
        "problem_set": options.problem_set,
        "score_range": (low, high),
        "settings": _settings(options),
        "say": warn,
    }


def _settings(options: Options) -> Settings | None:
    """What the logs do not say, where anything is given."""
    if not options.set and not options.map:
        return None
    from isocompute.importers import load_settings

    return load_settings(options.set, options.map)


# Options that say how a source is read: name, attribute.
_READING = (
    ("--set", "set"), ("--map", "map"),  # the source itself says `where` and `split`: `narrowed`
    ("--problem-set", "problem_set"), ("--metric", "metric"), ("--fix", "fix"),
    ("--joint", "joint"),
)  # fmt: skip


def metric_names(text: str) -> list[str]:
    """Names with commas between them; what begins no name is the rest of the one before.

    >>> metric_names("avg@4, best@4"), metric_names("avg:exact_match,flexible-extract")
    (['avg@4', 'best@4'], ['avg:exact_match,flexible-extract'])
    """
    found: list[str] = []
    for word in text.split(","):
        if found and ":" in found[-1] and not _METRIC.match(word.strip()) and word.strip():
            found[-1] += f",{word}"
        else:
            found.append(word.strip())
    return found


def repeated(options: Options) -> str:
    """The options that the next command needs, too: "--map columns.yaml --set ..."."""
    words = []
    for name, attribute in _READING:
        value = getattr(options, attribute, None)
        if value is True:
            words.append(name)
        elif isinstance(value, tuple):
            words.append(f"{name} {value[0]}={value[1]}")
        elif isinstance(value, str):
            one = metric_names(value)[0] if attribute == "metric" else value  # a plan is of one
            words.append(f"{name} {shlex.quote(one)}")
        else:
            words += [f"{name} {shlex.quote(str(one))}" for one in value or ()]
    if tuple(options.range) != (0.0, 1.0):
        words.append("--range {:g} {:g}".format(*options.range))
    return " ".join(words)


def narrowed(source: str, options: Options, *more: str) -> str:
    """A source with the selections that stand in options."""
    from isocompute.store.arms import with_where

    split = [] if options.split is None else [f"split={options.split}"]
    return with_where(source, [*options.where, *more, *split])
