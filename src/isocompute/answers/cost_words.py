"""What a plan costs, in words, and where its rate comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocompute.answers.machines import doubt_words, gpus_words
from isocompute.answers.steps import ALIKE, amounts
from isocompute.domain.text import compact

TO_TRAIN = " to train"  # of hours without evaluations and checkpoints


def cost_words(cost: Mapping[str, Any]) -> tuple[list[str], str]:
    """What is spent, tokens last, and where the rate comes from."""
    return paid_words(cost) or ["not known; give --rollouts-per-gpu-hour"], source_words(cost)


def paid_words(cost: Mapping[str, Any]) -> list[str]:
    """Amounts of a cost; "to train" where evaluations and checkpoints come on top of its hours.

    What the start of the trainer takes of the hours is said where they would read otherwise
    without it.
    """
    train = TO_TRAIN if is_training_alone(cost) else ""
    hours = cost["gpu_hours"]
    start = ((cost.get("source") or {}).get("gpu_hours_per_start") or {}).get("value")
    shown = start and hours and compact(hours) != compact(hours - start)
    begin = f" ({compact(start)} to start)" if shown else ""
    return [one + train + begin if "PU-hour" in one else one for one in amounts(cost)]


def is_training_alone(cost: Mapping[str, Any]) -> bool:
    """Whether hours are those of the updates in the logs."""
    found = (cost.get("source") or {}).get("rollouts_per_gpu_hour") or {}
    return found.get("from") == "sweep" and found.get("clocked") is False


def evaluations_words(cost: Mapping[str, Any]) -> list[str]:
    """Whether evaluations are in a cost, and how many, as far as the logs tell."""
    if is_training_alone(cost):
        return ["The cost is that of training: evaluations and checkpoints come on top."]
    found = (cost.get("source") or {}).get("rollouts_per_gpu_hour") or {}
    if not (every := round(found.get("evaluated_every") or 0)):
        return []
    often = "every update" if every == 1 else f"every {every} updates"
    return [f"The cost holds an evaluation {often}, as in your runs."]


def other_amounts(cost: Mapping[str, Any], than: Mapping[str, Any]) -> list[str]:
    """What a setting costs where that differs from the plan's by more than the last step."""
    here, there = cost["gpu_hours"], than["gpu_hours"]
    if not here or not there:
        here, there = cost["tokens"], than["tokens"]
    same = here and there and abs(here / there - 1) < ALIKE
    return [] if same else amounts(cost)


def source_words(cost: Mapping[str, Any], *, trend: bool = True) -> str:
    """Where a cost comes from, of its hours or its tokens; "" where nothing is to be said.

    Args:
        cost: of a plan's document.
        trend: whether to say why it is a range, where it is one.
    """
    source = cost.get("source") or {}
    found = source.get("rollouts_per_gpu_hour") or {}
    tokens = source.get("tokens_per_rollout") or {}
    if not found and tokens.get("beyond") == "n":
        return f"your runs' tokens, {doubt_words(tokens)}"
    by_one = found.get("beyond") == "n"  # which is more than that they differ
    if not by_one and (found.get("trend") or (not found and tokens.get("trend"))):
        return rate_words(found or tokens) if trend else ""
    return rate_words(found) if found else ""


def rate_words(found: Mapping[str, Any]) -> str:
    """Where rollouts per GPU-hour come from, and how far off they may be."""
    if found.get("trend") and found.get("beyond") != "n":
        return f"{found['trend']} in your runs"
    if found.get("timed_on") is not None:
        return f"times of {gpus_words(found['timed_on'])}, scaled"
    if found.get("from") == "sweep" and "off" in found:
        clock = "runs' clock, evaluations in it" if found.get("clocked") else "runs' times"
        clock = "carried on" if found.get("beyond") == "runs" else f"your {clock}"
        return f"{clock}, {doubt_words(found)}"
    whose = {"study": "your study: ", "sweep": "your runs: "}.get(str(found.get("from")), "")
    return f"{whose}{compact(found.get('value'))} rollouts per GPU-hour"
