"""A plan in words: what a colleague who knows would say, in about fifteen lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.trainers import key_lines

WIDTH = 96
# Warnings of a law that change how its n is to be read.
_BEARING_ON_N = ("rise_not_claimed", "optimum_at_edge", "non_monotone")
# A budget less than this outside the support, in decades, is not worth a word.
NOTICEABLE_LOG10 = 0.01


def advice_lines(document: Mapping[str, Any], *, trainer: str | None = None) -> list[str]:
    """The `plan --json` document as text lines, no colour, at most `WIDTH` wide.

    Args:
        document: of a `Plan`.
        trainer: also print this trainer's keys.

    Raises:
        InputError: for a trainer that the document does not have.
    """
    refusal = document["refusal"]
    if refusal is not None:
        lines = _wrapped("No plan: " + refusal["reason"])
        for step in refusal["run_next"]:
            lines += _wrapped(f"Run next: {step}")
        return lines + _warning_lines(document)
    lines = [*_headline(document), "", *_why(document), *_warning_lines(document)]
    if trainer is not None:
        lines += ["", *_trainer_lines(document, trainer)]
    return lines


def _headline(d: Mapping[str, Any]) -> list[str]:
    return [
        f"With {compact(d['budget_rollouts'])} rollouts: "
        f"{d['rollouts_per_problem']} rollouts per problem, {d['problems_per_batch']} problems "
        f"per batch, {d['steps']:,} steps",
        f"  batch           {d['batch_size']:,} rollouts; {d['rollouts']:,} in all",
        f"  learning rate   {d['learning_rate']:.3g} after {d['recipe']['warmup_steps']} warm-up "
        f"steps ({d['recipe']['learning_rate']:.3g} at B={d['recipe']['base_batch_size']}, "
        f"{d['recipe']['learning_rate_scaling']} scaling)",
        f"  recipe          {_recipe(d['recipe'])}",
        f"  expected        {_expected(d)}",
        f"  cost            {_cost(d['cost'])}",
    ]


def _recipe(r: Mapping[str, Any]) -> str:
    terms = [
        f"{name} {r[key]:g}"
        for name, key in (("KL", "kl_coef"), ("entropy", "entropy_coef"))
        if r[key]
    ]
    return f"{r['objective'].upper()}, {' + '.join(terms) if terms else 'no KL, no entropy bonus'}"


def _expected(d: Mapping[str, Any]) -> str:
    if d["predicted_score"] is None:
        return "not known: this allocation was not trained in the sweep"
    interval = d["predicted_score_interval"]
    between = "" if interval is None else f" (between {interval[0]:.3f} and {interval[1]:.3f})"
    return f"{d['law'].get('metric') or 'score'} {d['predicted_score']:.3f}{between}"


def _cost(cost: Mapping[str, float | None]) -> str:
    parts = [
        f"{compact(value)} {unit}"
        for unit, value in (
            ("tokens", cost["tokens"]),
            ("GPU-hours", cost["gpu_hours"]),
            ("USD", cost["usd"]),
        )
        if value is not None
    ]
    return ", ".join(parts) or "not known; give --tokens-per-rollout or --rollouts-per-gpu-hour"


def _why(d: Mapping[str, Any]) -> list[str]:
    """Where n comes from and how far to trust it."""
    law, interval, n = d["law"], d["rollouts_per_problem_interval"], d["rollouts_per_problem"]
    distance = d["extrapolation_log10"]
    inside = distance < NOTICEABLE_LOG10
    known = "without an interval" if interval is None else f"between {_ends(interval)}"
    by_law = (
        f"the law of {law.get('source') or 'the sweep'} gives "
        f"{d['rollouts_per_problem_law']:.0f} ({known})"
    )
    if d["chosen_by"] == "law":
        sentences = [f"{by_law}, and n is the power of two below or at it"]
        if d["expected_regret"] is not None:
            sentences.append(
                f"Following the law costs {d['expected_regret']:.4f} of score on average"
            )
    else:
        sentences = [_BY_SCORE[d["chosen_by"]], by_law[0].upper() + by_law[1:]]
        other = d["law_rollouts_per_problem"]
        if other is not None and other != n:
            sentences[-1] += f", rounded down {other}" + _lost(d["law_expected_regret"])
        if d["expected_regret"] is not None:
            sentences.append(
                f"n={n} loses {d['expected_regret']:.4f} of score on average to the n that is "
                "really best"
            )
    if d["confidence_set"]:
        tested = ", ".join(str(m) for m in d["confidence_set"])
        where = "" if inside else "where all were last compared, "
        sentences.append(f"Of the n tested, {where}{tested} cannot be told from the best")
    if law.get("plateau") is not None and (law.get("identified") or {}).get("plateau", True):
        sentences.append(f"The law saturates near {law['plateau']:.0f}")
    where = "inside" if inside else f"{distance:.2f} decades outside"
    sentences.append(f"The budget lies {where} the budgets that were compared")
    return _wrapped(f"Why n={n}: " + ". ".join(sentences) + ".")


_BY_SCORE = {
    "expected_score": "of the n that the limits admit, it has the largest expected score at this "
    "budget",
    "tie_by_trend": "no n tested is surely better out here, and in this sweep the best n moves its "
    "way as the budget grows; on planted sweeps that loses less than the smallest expected loss",
    "tie_by_law": "no n tested is surely better out here, and it lies nearest to the law",
}


def _lost(regret: float | None) -> str:
    return "" if regret is None else f", which would lose {regret:.4f} of score on average"


def _ends(interval: Sequence[float | None]) -> str:
    return " and ".join("?" if end is None else f"{end:.0f}" for end in interval)


def _warning_lines(d: Mapping[str, Any]) -> list[str]:
    """The plan's own warnings, and those of the law that bear on n, in full; others by code."""
    of_law = [c for c in d["law"].get("warnings") or [] if c not in _BEARING_ON_N]
    lines: list[str] = []
    for warning in d["warnings"]:
        if warning["code"] not in of_law:
            lines += _wrapped(f"! {warning['code']}: {warning['message']}")
    if of_law:
        lines += _wrapped(
            f"! of the law itself: {', '.join(of_law)}; `isocompute fit "
            f"{d['law'].get('source') or 'SOURCE'}` explains them."
        )
    return lines


def _trainer_lines(d: Mapping[str, Any], trainer: str) -> list[str]:
    if trainer not in d["trainer"]:
        raise InputError(
            f"a trainer must be one of {', '.join(d['trainer'])}, but got {trainer!r}; "
            "choose one of them."
        )
    return [
        f"For {trainer}:",
        *(f"  {line}" for line in key_lines(d["trainer"][trainer])),
        *_wrapped("  Units: " + d["trainer_units"][trainer]),
    ]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
