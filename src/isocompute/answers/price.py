"""What rollouts cost by configuration: rates given, or found in the runs themselves.

The time of a rollout falls as the batch grows, so a rate belongs to a configuration. The time of
an update is a line in its batch, between measured batches and beyond them.
`allocation.Rates` does every conversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.allocation import Budget, Rates
from isocompute.domain import Configuration, Curve, Effort
from isocompute.domain.curve import UNITS
from isocompute.domain.text import compact, unit_words
from isocompute.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Price:
    """Rates with where they come from."""

    rates: Rates = field(default_factory=Rates)  # for any configuration
    tokens: Mapping[Configuration, float] = field(default_factory=dict)  # measured, per rollout
    speeds: Mapping[Configuration, float] = field(default_factory=dict)  # rollouts per GPU-hour
    origin: Mapping[str, str] = field(default_factory=dict)  # rate -> "study", "sweep"; else given
    # GPUs on which times were measured that are scaled to others
    timed_on: Mapping[Configuration, int] = field(default_factory=dict)

    def of(self, *which: Configuration) -> Rates:
        """The rates of one configuration, or of several that train as many rollouts each."""
        tokens = [self._tokens_of(c) for c in which]
        speeds = [self.speed_of(c) for c in which]
        return replace(
            self.rates,
            tokens_per_rollout=_mean([t for t in tokens if t is not None]),
            rollouts_per_gpu_hour=_inverse(_mean([1 / s for s in speeds if s is not None])),
        )

    def _tokens_of(self, c: Configuration) -> float | None:
        """Tokens of a rollout: as measured, at another B_p as at this n, else the usual ones."""
        n = c.rollouts_per_problem
        same = [t for other, t in self.tokens.items() if other.rollouts_per_problem == n]
        return self.tokens.get(c, median(same) if same else self.rates.tokens_per_rollout)

    def cost(self, trains: Effort) -> dict[str, float | None]:
        """What it costs to train so many rollouts of each configuration; None: not known."""
        each = [self.of(c).cost(rollouts) for c, rollouts in trains.items() if rollouts]
        return {
            name: None if any(one[name] is None for one in each)
            else sum(one[name] or 0.0 for one in each)
            for name in ("tokens", "gpu_hours", "usd")
        }  # fmt: skip

    def speed_of(self, c: Configuration) -> float | None:
        """Rollouts per GPU-hour of a configuration; None where nobody knows."""
        if not self.speeds:
            return self.rates.rollouts_per_gpu_hour
        return self.speeds.get(c) or _speed_at(self.speeds, c.batch_size)

    @property
    def off(self) -> float | None:
        """By what share the GPU-hours of a configuration may be off.

        The largest error in predicting a measured batch from those around it; None with fewer
        than three, a rate that was given, and times that are scaled.
        """
        if self.timed_on:
            return None
        sizes = sorted({c.batch_size for c in self.speeds})
        errors = []
        for c, speed in self.speeds.items():
            others = {o: s for o, s in self.speeds.items() if o.batch_size != c.batch_size}
            if c.batch_size in sizes[1:-1]:
                errors.append(abs(speed / _speed_at(others, c.batch_size) - 1))
        return float(max(errors)) if errors else None

    def to_dict(self, c: Configuration) -> dict[str, Any]:
        """`source` of a cost: by rate its value, where it comes from, how far off it may be."""
        rows = {
            name: {"value": value, "from": self.origin.get(name, "given")}
            for name, value in vars(self.of(c)).items()
            if value is not None
        }
        if self.origin.get("rollouts_per_gpu_hour") == "sweep" and "rollouts_per_gpu_hour" in rows:
            some = next(iter(self.timed_on.values()), None)
            on = self.timed_on.get(c) if c in self.speeds else some
            rows["rollouts_per_gpu_hour"] |= {"off": self.off, "timed_on": on}
        return rows


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def per_rollout(rates: Rates, unit: str) -> float:
    """How much of a unit one rollout takes; 1 where nobody knows."""
    speed = rates.rollouts_per_gpu_hour
    each = {"tokens": rates.tokens_per_rollout, "gpu-hours": 1 / speed if speed else None}
    return each.get(unit) or 1.0


def counted_in(curves: Sequence[Curve]) -> list[str]:
    """The units that every run counted."""
    return [unit for unit in UNITS if all(_counts(c, unit) for c in curves)]


def _counts(curve: Curve, unit: str) -> bool:
    spent_K = curve.spent(unit)
    return spent_K is not None and bool(spent_K[-1] > 0)


def unit_paid_in(budget: Budget | None, rates: Rates, curves: Sequence[Curve]) -> str:
    """The unit to compare n in, where nobody says: GPU-hours or tokens that a budget counts.

    Args:
        budget: of the plan; None: rollouts.
        rates: given, or from the study's file.
        curves: with the GPU-hours and tokens that their runs logged.
    """
    asked = None if budget is None else budget.unit
    unit = "rollouts"
    if asked == "tokens" and rates.tokens_per_rollout is None:
        unit = "tokens"
    elif asked in ("gpu_hours", "usd") and rates.rollouts_per_gpu_hour is None:
        unit = "gpu-hours"
    return unit if unit in counted_in(curves) else "rollouts"


def require_unit(budget: Budget, unit: str, price: Price) -> None:
    """Refuse a budget in rollouts where n are compared by what is paid, and that differs by n.

    Raises:
        InputError: with both and the cure.
    """
    differs = {"tokens": price.tokens, "gpu-hours": price.speeds}.get(unit)
    if budget.unit == "rollouts" and differs:
        raise InputError(
            f"`--unit {unit}` compares n at equal {unit_words(unit)}, but the budget is "
            f"{compact(budget.amount)} rollouts, which take more of some n than of others; give "
            f"the budget in {unit_words(unit)}, or leave `--unit` out."
        )


def in_unit(budget: Budget, unit: str, rates: Rates) -> float:
    """A budget in the unit of a fit, by the rates of any configuration."""
    if budget.unit.replace("_", "-") == unit:
        return budget.amount
    return rates.rollouts(budget) * per_rollout(rates, unit)


def priced(curves: Sequence[Curve], rates: Rates, origin: Mapping[str, str] | None = None) -> Price:
    """Fill rates that nobody gave from what the runs logged.

    Args:
        curves: with tokens or GPU-hours, where they have them.
        rates: given, or from the study's file; they stay.
        origin: where those rates come from.
    """
    origin = dict(origin or {})
    tokens, speeds = dict[Configuration, float](), dict[Configuration, float]()
    if rates.tokens_per_rollout is None and (tokens := _measured(curves, "tokens_K")):
        rates = replace(rates, tokens_per_rollout=median(tokens.values()))
        origin["tokens_per_rollout"] = "sweep"
    if rates.rollouts_per_gpu_hour is None and (hours := _measured(curves, "gpu_hours_K")):
        speeds = {c: 1 / each for c, each in hours.items()}
        rates = replace(rates, rollouts_per_gpu_hour=median(speeds.values()))
        origin["rollouts_per_gpu_hour"] = "sweep"
    timed_on = {c.configuration: c.timed_on for c in curves if speeds and c.timed_on}
    return Price(rates=rates, tokens=tokens, speeds=speeds, origin=origin, timed_on=timed_on)


def timed(curves: Sequence[Curve], rates: Rates) -> list[Curve]:
    """Curves with GPU-hours: their own where they were timed, else by a rate for all."""
    rate = rates.rollouts_per_gpu_hour
    if rate is None:
        return list(curves)
    return [
        c if c.gpu_hours_K is not None else c.replace(gpu_hours_K=c.rollouts_K / rate)
        for c in curves
    ]


def _measured(curves: Sequence[Curve], name: str) -> dict[Configuration, float]:
    """Median amount per rollout of the runs of each configuration that have it."""
    seen: dict[Configuration, list[float]] = {}
    for c in curves:
        spent_K = getattr(c, name)
        if spent_K is None or c.rollouts_K[-1] <= 0:
            continue
        each = float(spent_K[-1] / c.rollouts_K[-1])
        if np.isfinite(each) and each > 0:
            seen.setdefault(c.configuration, []).append(each)
    return {c: sorted(row)[len(row) // 2] for c, row in seen.items()}


def _speed_at(speeds: Mapping[Configuration, float], batch_size: int) -> float:
    """Speed at a batch, from those of other batches."""
    batch_J = np.array([c.batch_size for c in speeds], dtype=np.float64)
    hours_J = batch_J / np.array(list(speeds.values()))
    return batch_size / float(update_takes(batch_J, hours_J, np.array([float(batch_size)]))[0])


def update_takes(batch_J: FloatArray, takes_J: FloatArray, batch_F: FloatArray) -> FloatArray:
    """What an update takes at some batches, from what those of other batches take.

    It lies on lines between them; of equal batches the middle one counts. Beyond the ends the last
    line goes on: an update has a part that is fixed and one that grows with the batch, and neither
    is negative.

    >>> update_takes(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([1.5, 4.0]))
    array([3.5, 6. ])
    """
    batch = np.unique(batch_J)
    takes = np.array([median(takes_J[batch_J == size]) for size in batch])
    inside = np.clip(batch_F, batch[0], batch[-1])
    out = np.interp(inside, batch, takes)
    slopes = np.diff(takes) / np.diff(batch) if len(batch) > 1 else np.full(1, np.inf)
    for end in (0, -1):
        slope = min(max(slopes[end], 0.0), takes[end] / batch[end])
        beyond = batch_F < batch[0] if end == 0 else batch_F > batch[-1]
        out += np.where(beyond, slope * (batch_F - batch[end]), 0.0)
    return np.asarray(out)
