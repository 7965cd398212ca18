"""Scores of a plan as its trainer logs them.

Everything is fitted in 0..1. What a person holds against a log must be in the log's own units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isocompute.answers.reading import Reading

PLAIN = (0.0, 1.0)
# Entries of a plan, and of the rows in it: scores, and differences of scores.
_SCORES = ("predicted_score", "predicted_score_interval", "score", "interval")
_LOST = ("expected_regret", "lost", "behind", "gain", "gain_interval")
# Rows whose `score` or `interval` is a difference.
_OF_A_DIFFERENCE = {"gain": ("score", "interval"), "half": ("interval",), "tenth": ("interval",),
                    "runner_up": ("interval",)}  # fmt: skip


def range_of(fit: Reading) -> tuple[float, float]:
    """What scores could be where they were read."""
    return next((c.score_range for c in fit.curves if c.score_range != PLAIN), PLAIN)


def key_of(fit: Reading) -> str:
    """What the logs call the score; "" where they do not agree or nobody knows."""
    keys = {c.key for c in fit.curves}
    return keys.pop() if len(keys) == 1 else ""


def in_logs(fit: Reading, value: float) -> float:
    """A score in 0..1 as the trainer logs it."""
    low, high = range_of(fit)
    return low + (high - low) * value


def logged(fit: Reading, d: Mapping[str, Any]) -> dict[str, Any]:
    """The entry `logged` of a plan: what is held against the log, in its units."""
    entry = {"key": key_of(fit), "range": list(range_of(fit))}
    shown = as_logged({**d, "logged": entry})
    check = shown["check"] or {}
    return {
        **entry, "predicted_score": shown["predicted_score"],
        "predicted_score_interval": shown["predicted_score_interval"],
        "check_score": check.get("score"), "check_interval": check.get("interval"),
    }  # fmt: skip


def as_logged(d: Mapping[str, Any]) -> Mapping[str, Any]:
    """A plan whose scores, and differences of scores, are in the units of the log.

    >>> plan = {"predicted_score": 0.6, "half": {"lost": 0.1}, "logged": {"range": [-1, 1]}}
    >>> shown = as_logged(plan)
    >>> round(shown["predicted_score"], 3), shown["half"]["lost"]
    (0.2, 0.2)
    """
    low, high = (d.get("logged") or {}).get("range") or PLAIN
    if (low, high) == PLAIN:
        return d

    def moved(value: Any, by: float) -> Any:
        if isinstance(value, list | tuple):
            return [moved(one, by) for one in value]
        return by + (high - low) * value if isinstance(value, int | float) else value

    def row(of: Mapping[str, Any], name: str = "") -> dict[str, Any]:
        apart = (*_LOST, *_OF_A_DIFFERENCE.get(name, ()))
        return {k: row(v, k) if isinstance(v, Mapping) else moved(v, 0.0) if k in apart
                else moved(v, low) if k in _SCORES else v for k, v in of.items()}  # fmt: skip

    rows = {k: row(d[k], k) for k in ("gain", "half", "tenth", "runner_up", "check", "overtakes",
                                      "rules") if d.get(k)}  # fmt: skip
    alone = {k: d[k] for k in (*_SCORES, *_LOST) if k in d and k != "gain"}
    steps = [{**one, **{k: moved(one.get(k), 0.0) for k in ("gain", "lost")}}
             for one in d.get("run_next") or ()]  # fmt: skip
    listed = {k: [row(one) for one in d.get(k) or ()] for k in ("neighbours", "after_checks")}
    return {**d, **row(alone), **rows, **listed, "run_next": steps}


def score_text(d: Mapping[str, Any], value: float, sign: str = "") -> str:
    """A score of a plan in words: three decimals of 0..1, one of percent."""
    low, high = (d.get("logged") or {}).get("range") or PLAIN
    return f"{value:{sign}.{max(3 - round(math.log10(high - low)), 0)}f}"
