"""What rollouts cost by configuration: rates given, or found in the runs themselves.

The time of a rollout falls as the batch grows, so a rate belongs to a configuration. The time of
an update is a line in its batch, between measured batches and beyond them: a part that no batch
shortens (weights are moved, the longest answer is waited for), and work that GPUs share, seconds =
fixed + work x batch / GPUs. So on more GPUs small batches waste more of them.
`allocation.Rates` does every conversion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.allocation import Budget, Rates
from isocompute.domain import Configuration, Curve, Effort, Notice, notice
from isocompute.domain.curve import UNITS
from isocompute.domain.text import compact, unit_words
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.answers.prescribe import Question

FloatArray = NDArray[np.float64]

# The unit in which n are compared, by that of a budget; in rollouts where it is not here.
PAID_IN = {"tokens": "tokens", "gpu_hours": "gpu-hours", "usd": "gpu-hours"}


@dataclass(frozen=True, kw_only=True)
class Price:
    """Rates with where they come from."""

    rates: Rates = field(default_factory=Rates)  # for any configuration
    tokens: Mapping[Configuration, float] = field(default_factory=dict)  # measured, per rollout
    speeds: Mapping[Configuration, float] = field(default_factory=dict)  # rollouts per GPU-hour
    origin: Mapping[str, str] = field(default_factory=dict)  # rate -> "study", "sweep"; else given
    # GPUs on which times were measured that are scaled to others
    timed_on: Mapping[Configuration, int] = field(default_factory=dict)
    start: float | None = None  # GPU-hours of each start of the trainer, as the runs' slices tell

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

    def cost(self, trains: Effort, *, starts: int = 0) -> dict[str, float | None]:
        """What it costs to train so many rollouts of each configuration; None: not known.

        Args:
            trains: rollouts by configuration.
            starts: of the trainer, counted as far as it is known what one takes.
        """
        each = [self.of(c).cost(rollouts) for c, rollouts in trains.items() if rollouts]
        return {
            name: None if any(one[name] is None for one in each)
            else sum(one[name] or 0.0 for one in each) + starts * self.started(name)
            for name in ("tokens", "gpu_hours", "usd")
        }  # fmt: skip

    def started(self, unit: str) -> float:
        """What one start of the trainer takes of a unit, as far as that is known."""
        each = {"gpu_hours": 1.0, "usd": self.rates.usd_per_gpu_hour or 0.0}.get(unit, 0.0)
        return each * (self.start or 0.0)

    def after_a_start(self, budget: Budget) -> Budget:
        """What of a budget is left once its run has started.

        Raises:
            InputError: it is nothing.
        """
        start, unit = self.started(budget.unit), unit_words(budget.unit.replace("_", "-"))
        if 0 < budget.amount <= start:
            raise InputError(
                f"a budget must pay for the start of its run ({compact(start)} {unit}), but got "
                f"{compact(budget.amount)}; raise it."
            )
        return replace(budget, amount=budget.amount - start) if start else budget

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
        if self.start is not None and "rollouts_per_gpu_hour" in rows:
            rows["gpu_hours_per_start"] = {"value": self.start, "from": "sweep"}
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
    of = {unit: [c.spent(unit) for c in curves] for unit in UNITS}
    return [u for u, runs in of.items() if all(x is not None and x[-1] > 0 for x in runs)]


def unit_paid_in(budget: Budget | None, rates: Rates, curves: Sequence[Curve]) -> str:
    """The unit to compare n in, where nobody says: GPU-hours or tokens that a budget counts.

    Args:
        budget: of the plan; None: rollouts.
        rates: given, or from the study's file.
        curves: with the GPU-hours and tokens that their runs logged.
    """
    unit = PAID_IN.get(budget.unit if budget else "", "rollouts")
    known = {"tokens": rates.tokens_per_rollout, "gpu-hours": rates.rollouts_per_gpu_hour}
    return unit if known.get(unit) is None and unit in counted_in(curves) else "rollouts"


def in_unit(budget: Budget, unit: str, price: Price) -> float:
    """A budget in the unit of a fit, by the rates of any configuration.

    Raises:
        InputError: a budget in rollouts where n are compared by what is paid, which differs by n.
    """
    differs = {"tokens": price.tokens, "gpu-hours": price.speeds}.get(unit)
    if budget.unit == "rollouts" and differs:
        raise InputError(
            f"`--unit {unit}` compares n at equal {unit_words(unit)}, but the budget is "
            f"{compact(budget.amount)} rollouts, which take more of some n than of others; give "
            f"the budget in {unit_words(unit)}, or leave `--unit` out."
        )
    if budget.unit.replace("_", "-") == unit:
        return budget.amount
    return price.rates.rollouts(budget) * per_rollout(price.rates, unit)


def priced(curves: Sequence[Curve], rates: Rates, origin: Mapping[str, str] | None = None) -> Price:
    """Fill rates that nobody gave from what the runs logged.

    Args:
        curves: with tokens or GPU-hours, where they have them.
        rates: given, or from the study's file; they stay.
        origin: where those rates come from.
    """
    origin = dict(origin or {})
    tokens, speeds = dict[Configuration, float](), dict[Configuration, float]()
    if rates.tokens_per_rollout is None and (tokens := _measured(curves, "tokens")):
        rates = replace(rates, tokens_per_rollout=median(tokens.values()))
        origin["tokens_per_rollout"] = "sweep"
    if rates.rollouts_per_gpu_hour is None and (hours := _measured(curves, "gpu-hours")):
        speeds = {c: 1 / each for c, each in hours.items()}
        rates = replace(rates, rollouts_per_gpu_hour=median(speeds.values()))
        origin["rollouts_per_gpu_hour"] = "sweep"
    timed_on = {c.configuration: c.timed_on for c in curves if speeds and c.timed_on}
    starts = [c.start_s * (c.gpus or 1) / 3600 for c in curves if c.start_s is not None]
    return Price(rates=rates, tokens=tokens, speeds=speeds, origin=origin, timed_on=timed_on,
                 start=median(starts) if starts else None)  # fmt: skip


def timed(curves: Sequence[Curve], rates: Rates) -> list[Curve]:
    """Curves with GPU-hours: their own where they were timed, else by a rate for all."""
    rate = rates.rollouts_per_gpu_hour
    if rate is None:
        return list(curves)
    return [
        c if c.gpu_hours_K is not None else c.replace(gpu_hours_K=c.rollouts_K / rate)
        for c in curves
    ]


def _measured(curves: Sequence[Curve], unit: str) -> dict[Configuration, float]:
    """Median amount per rollout of the runs of each configuration that have it."""
    seen = defaultdict[Configuration, list[float]](list)
    for c in curves:
        spent_K = c.spent(unit)
        if spent_K is not None and c.rollouts_K[-1] > 0 and 0 < spent_K[-1] < np.inf:
            seen[c.configuration].append(float(spent_K[-1] / c.rollouts_K[-1]))
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


def update_time(curves: Sequence[Curve]) -> tuple[float, float]:
    """Fixed seconds of an update, and GPU-seconds of work for each rollout; least squares, >= 0.

    Runs of one batch size cannot tell the two apart: all counts as work.

    Args:
        curves: that were timed on known GPUs.
    """
    from scipy.optimize import nnls

    timed: dict[tuple[int, int], list[float]] = {}
    for c in curves:
        each = _seconds(c)
        if each is not None and c.gpus:
            timed.setdefault((c.configuration.batch_size, c.gpus), []).append(each)
    if len(timed) < 2:
        work = [median(took) * gpus / batch for (batch, gpus), took in timed.items()]
        return 0.0, work[0] if work else 0.0
    took_T = np.array([median(one) for one in timed.values()])
    share_T = np.array([batch / gpus for batch, gpus in timed])
    (fixed, work), _ = nnls(np.stack([1 / took_T, share_T / took_T], axis=1), np.ones(len(took_T)))
    return float(fixed), float(work)


def _seconds(c: Curve) -> float | None:
    """Mean seconds of an update of a run."""
    if c.gpu_hours_K is None or not c.gpus or c.rollouts_K[-1] <= 0:
        return None
    updates = float(c.rollouts_K[-1]) / c.configuration.batch_size
    return float(c.gpu_hours_K[-1]) * 3600 / c.gpus / updates


def on_gpus(curves: Sequence[Curve], gpus: int | None) -> list[Curve]:
    """Curves with the GPU-hours that their rollouts would take on so many GPUs.

    Args:
        curves: those that were timed on another number are scaled; the others stay.
        gpus: None: as they are.
    """
    fixed, work = update_time(curves) if gpus else (0.0, 0.0)
    out = []
    for c in curves:
        if gpus and c.gpus not in (None, gpus) and c.gpu_hours_K is not None and fixed + work > 0:
            done = work * c.configuration.batch_size
            share = (fixed * gpus + done) / (fixed * (c.gpus or gpus) + done)
            hours_K = c.gpu_hours_K * share
            c = c.replace(gpu_hours_K=hours_K, gpus=gpus, timed_on=c.gpus, fixed_s=fixed)
        out.append(c)
    return out


def scaled_notices(q: Question, chosen: Configuration) -> list[Notice]:
    """That the times of a plan are of another number of GPUs."""
    found = q.price.origin.get("rollouts_per_gpu_hour") == "sweep"
    return times_scaled(_runs(q, chosen), q.gpus) if found else []


def times_scaled(curves: Sequence[Curve], gpus: int | None) -> list[Notice]:
    """That times are of another number of GPUs than these, or of nobody knows how many."""
    runs = [c for c in curves if c.gpu_hours_K is not None]
    if gpus is None or not runs:
        return []
    how = "all of an update is taken to be shared"
    if all(c.gpus is None for c in runs):
        known = "a number of GPUs that is not known"
        return [notice("gpus_scaled", known=known, gpus=gpus, how=how)]
    of = Counter((c.timed_on, c.fixed_s) for c in runs if c.timed_on)
    if not of:
        return []
    (timed_on, fixed), _ = of.most_common(1)[0]
    if fixed > 0:
        how = f"the {hours_words(fixed / 3600)} that an update takes whatever its batch are " \
              "taken to stay, and the rest to be shared"  # fmt: skip
    return [notice("gpus_scaled", known=gpus_words(timed_on or 0), gpus=gpus, how=how)]


def _runs(q: Question, chosen: Configuration) -> list[Curve]:
    """The runs with times of a configuration; of one that nobody ran, all."""
    timed = [c for c in q.fit.curves if c.gpu_hours_K is not None]
    return [c for c in timed if c.configuration == chosen] or timed


def wall_clock(
    q: Question, chosen: Configuration, gpu_hours: float | None
) -> dict[str, float] | None:
    """`gpus` and `hours` of a run; None where the one or the other is not known.

    GPUs are those of the budget, else those of most runs of the configuration.
    """
    known = Counter(c.gpus for c in _runs(q, chosen) if c.gpus)
    gpus = q.gpus or (known.most_common(1)[0][0] if known else None)
    return None if gpus is None or gpu_hours is None else {"gpus": gpus, "hours": gpu_hours / gpus}


def gpus_words(gpus: int) -> str:
    """A number of GPUs."""
    return f"{gpus} GPU{'s' * (gpus != 1)}"


def clock_words(d: Mapping[str, Any]) -> str:
    """Time and GPUs of a plan: "19 days on 4 GPUs"; "" where they are not known."""
    if not (wall := d.get("wall")):
        return ""
    return f"{hours_words(wall['hours'])} on {gpus_words(wall['gpus'])}"


def hours_words(hours: float) -> str:
    """A time in its own unit, to two digits.

    >>> [hours_words(h) for h in (455, 30, 1.5, 0.25, 0.001)]
    ['19 days', '30 hours', '1.5 hours', '15 minutes', '3.6 seconds']
    """
    for each, name in ((24.0, "days"), (1.0, "hours"), (1 / 60, "minutes")):
        if hours >= (1.5 if name == "days" else 1) * each:
            break
    else:
        each, name = 1 / 3600, "seconds"
    said = compact(float(f"{hours / each:.2g}"))
    return f"{said} {name.removesuffix('s') if said == '1' else name}"
