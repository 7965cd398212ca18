"""Scores of a fit or plan as its trainer logs them.

Everything is fitted in 0..1. What a person holds against a log must be in the log's own units.

Shape legend: K evaluations of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isocompute.answers.reading import Reading
from isocompute.domain import Curve
from isocompute.intervals import FloatArray

PLAIN = (0.0, 1.0)
# Entries of a document: scores, differences of scores, and the entries of rows.
_SCORE, _DIFFERENCE = "score", "difference"
_OF_BEST = {"score": _SCORE, "score_interval": _SCORE, "expected_regret": _DIFFERENCE}
_OF_PAIRS = {"scores": {"score": _SCORE, "interval": _SCORE}}
_OF_SPREAD = {**_OF_PAIRS, "spread": _DIFFERENCE, "interval": _DIFFERENCE, "noise": _DIFFERENCE}
_OF_BINS = {"bin_width": _DIFFERENCE, "curves": {"floor": _SCORE, "ceiling": _SCORE}}
_PREDICTED = {"predicted_score": _SCORE, "predicted_score_interval": _SCORE}
_OF_PART = {**_PREDICTED, "lost": _DIFFERENCE, "interval": _DIFFERENCE}
# Of a fit, then of a plan.
_ENTRIES: Mapping[str, Any] = {
    "curves": {
        "floor": _SCORE, "floor_interval": _SCORE, "ceiling": _SCORE, "ceiling_interval": _SCORE,
        "at": {"score": _SCORE, "interval": _SCORE},
    },
    "best": _OF_BEST,
    "by_gpu_hours": _OF_BEST,
    "neighbours": {"score": _SCORE, "interval": _SCORE, "gain": _DIFFERENCE,
                   "gain_interval": _DIFFERENCE},
    "frontier": {"score_from": _SCORE, "score_to": _SCORE},
    "law": {"at": {"expected_regret": _DIFFERENCE}},
    "law_problems_per_batch": {"at": {"expected_regret": _DIFFERENCE}},
    "direction": {"equal_batch": _OF_PAIRS},
    "paper": {**_OF_BINS, "by_bin_width": _OF_BINS},
    "backtest": {
        "mae_model": _DIFFERENCE, "mae_best_so_far": _DIFFERENCE, "excess": _DIFFERENCE,
        "rules": _DIFFERENCE,
        "rows": {"predicted": _SCORE, "interval": _SCORE, "best_so_far": _SCORE,
                 "observed": _SCORE},
    },
    "spread": {"problems_per_batch": _OF_SPREAD, "rollouts_per_problem": _OF_SPREAD},
    "train_test": {"gap_at_peak": _DIFFERENCE, "gap": _DIFFERENCE, "validation_lost": _DIFFERENCE,
                   "train_gained": _DIFFERENCE},
    "probabilities": {"regret": _DIFFERENCE},
    "best_n": {"score": _SCORE},
    **_PREDICTED, "expected_regret": _DIFFERENCE,
    "gain": {**_PREDICTED, "score": _DIFFERENCE, "interval": _DIFFERENCE},
    "half": _OF_PART,
    "tenth": _OF_PART,
    "runner_up": _OF_PART,
    "fell": {**_OF_PART, "score": _SCORE},
    "check": {"score": _SCORE, "interval": _SCORE},
    "overtakes": {"behind": _DIFFERENCE},
    "chances": {"regret": _DIFFERENCE, "score": _SCORE},
    "rules": {rule: {"score": _SCORE, "lost": _DIFFERENCE}
              for rule in ("model", "best_so_far", "largest_n", "next_n", "paper")},
    "target": {"score": _SCORE},
    "after_checks": _PREDICTED,
    "run_next": {"gain": _DIFFERENCE, "lost": _DIFFERENCE},
}  # fmt: skip


def range_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """What scores could be where they were read."""
    return next((c.score_range for c in curves if c.score_range != PLAIN), PLAIN)


def _ends(d: Mapping[str, Any]) -> tuple[float, float]:
    """What the scores of a fit or a plan could be where they were read."""
    of_fit = (d.get("provenance") or {}).get("score_range")
    low, high = (d.get("logged") or {}).get("range") or of_fit or PLAIN
    return float(low), float(high)


def span_of(d: Mapping[str, Any]) -> float:
    """How far apart the lowest and the highest score are where they were read."""
    low, high = _ends(d)
    return high - low


def in_logs(fit: Reading, value: float) -> float:
    """A score in 0..1 as the trainer logs it."""
    low, high = range_of(fit.curves)
    return low + (high - low) * value


def logged(fit: Reading, d: Mapping[str, Any]) -> dict[str, Any]:
    """The entry `logged` of a plan: what is held against the log, in its units."""
    keys = {c.key for c in fit.curves}  # which may not agree
    entry = {"key": keys.pop() if len(keys) == 1 else "", "range": list(range_of(fit.curves))}
    shown = as_logged({**d, "logged": entry})
    check = shown["check"] or {}
    return {
        **entry, "predicted_score": shown["predicted_score"],
        "predicted_score_interval": shown["predicted_score_interval"],
        "check_score": check.get("score"), "check_interval": check.get("interval"),
    }  # fmt: skip


def logged_scores(curve: Curve) -> FloatArray:
    """Scores of a run as they were logged, (K,)."""
    low, high = curve.score_range
    return np.asarray(low + (high - low) * np.asarray(curve.score_K, dtype=np.float64))


def as_logged(d: Mapping[str, Any]) -> dict[str, Any]:
    """A fit or plan whose scores, and differences of scores, are in the units of the log.

    >>> fit = {"best": [{"score": 0.6, "interval": [4, 8], "expected_regret": {"4": 0.1}}],
    ...        "provenance": {"score_range": [-1, 1]}}
    >>> shown = as_logged(fit)["best"][0]
    >>> round(shown["score"], 3), shown["interval"], shown["expected_regret"]
    (0.2, [4, 8], {'4': 0.2})
    >>> plan = {"predicted_score": 0.6, "half": {"lost": 0.1}, "logged": {"range": [-1, 1]}}
    >>> shown = as_logged(plan)
    >>> round(shown["predicted_score"], 3), shown["half"]["lost"]
    (0.2, 0.2)
    """
    low, high = _ends(d)

    def moved(value: Any, by: Any) -> Any:
        if isinstance(value, Mapping):
            of = by if isinstance(by, Mapping) else dict.fromkeys(value, by)
            return {k: moved(v, of[k]) if k in of else v for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [moved(one, by) for one in value]
        if isinstance(by, Mapping) or isinstance(value, bool | str) or value is None:
            return value
        return (high - low) * value + (low if by == _SCORE else 0.0)

    return dict(d) if (low, high) == PLAIN else moved(d, _ENTRIES)


def digits_of(d: Mapping[str, Any]) -> int:
    """Decimals of the scores of a plan or a fit in words: three of 0..1, one of percent."""
    return max(3 - round(math.log10(span_of(d))), 0)


def score_text(d: Mapping[str, Any], value: float, sign: str = "") -> str:
    """A score of a plan or a fit in words."""
    digits = digits_of(d)
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # no minus before nothing


def in_words(fit: Reading, value: float, *, difference: bool = False) -> str:
    """A score of 0..1, or a difference of two, in words as the trainer logs it."""
    low, high = ends = range_of(fit.curves)
    shown = (high - low) * value + (0.0 if difference else low)
    return score_text({"logged": {"range": ends}}, shown)
