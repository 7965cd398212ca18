"""What a design may spend: its budget, the rates that this needs, and its deadline."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from isocompute.cli.values import RATES, rates_given
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.allocation import Budget, Rates
    from isocompute.domain import Notice

Options = argparse.Namespace


def budget_of(options: Options) -> Budget:
    """Of --budget, else of --gpus and --hours."""
    from isocompute.allocation import Budget, parse_budget

    given = {"--gpus": options.gpus, "--hours": options.hours}
    missing = [name for name, value in given.items() if value is None]
    if options.budget is not None:
        if options.hours is not None and options.gpus is None:
            raise InputError(
                "a deadline is that of machines, but got --hours without --gpus; add --gpus."
            )
        return parse_budget(options.budget)
    if missing:
        there = "".join(set(given) - set(missing)) or "neither"
        raise InputError(
            f"a design needs --budget, or --gpus and --hours, but got {there}; add "
            f"{'--budget' if there == 'neither' else missing[0]}."
        )
    count, kind = options.gpus
    if options.rollouts_per_gpu_hour is None and options.prior is None:
        raise InputError(
            f"GPU-hours need the rollouts that a GPU trains on in an hour, but none is known for "
            f"{kind or 'these GPUs'}; add --rollouts-per-gpu-hour (B_p x n x steps / (GPUs x "
            "hours) of your last run, or of ten steps), or --prior with a study whose runs were "
            "timed."
        )
    return Budget(amount=count * options.hours, unit="gpu_hours")


def in_time(options: Options, budget: Budget, rates: Rates, notices: list[Notice]) -> Budget:
    """The budget, or what the machines train in their hours, if that is less."""
    from isocompute.allocation import Budget
    from isocompute.domain import notice

    if options.budget is None or options.hours is None:
        return budget
    (gpus, _), hours = options.gpus, options.hours
    time = Budget(amount=gpus * hours, unit="gpu_hours")
    check_hours(time, rates)
    share = rates.rollouts(time) / rates.rollouts(budget)
    if share >= 1:
        return budget
    notices.append(notice("deadline_binds", gpus=gpus, hours=hours, share=share))
    return time


def check_hours(budget: Budget, rates: Rates) -> None:
    """Refuse GPU-hours and money where nobody knows what a rollout takes of them."""
    said = {"gpu_hours": "GPU-hours", "usd": "money"}.get(budget.unit)
    unpriced = budget.unit == "usd" and rates.usd_per_gpu_hour is None
    if said and rates.rollouts_per_gpu_hour is None:
        also, none, and_add = (
            (" and the price of a GPU-hour", "neither", " and --usd-per-gpu-hour")
            if unpriced else ("", "none", ""))  # fmt: skip
        raise InputError(
            f"a budget in {said} needs the rollouts that a GPU trains on in an hour{also}, but "
            f"{none} is known; add --rollouts-per-gpu-hour (your last run: B_p x n x steps / GPUs "
            f"/ hours){and_add}, name a --prior whose runs were timed, or give the budget in "
            "rollouts."
        )


def rates_of(options: Options, source: str | None) -> tuple[Rates, dict[str, str]]:
    """Rates given, then those of the prior's study file."""
    from isocompute.sources.studies import with_study_rates

    given = rates_given(options)
    filled = with_study_rates(source, given)
    of_study = [n for n in RATES if getattr(filled, n) != getattr(given, n)]
    return filled, dict.fromkeys(of_study, "study")
