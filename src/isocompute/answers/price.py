"""What rollouts cost by configuration: rates given, or found in the runs themselves.

The time of a rollout falls as the batch grows, so a rate belongs to a configuration. The time of
an update is a line in its batch, between measured batches and beyond them: a part that no batch
shortens (weights are moved, the longest answer is waited for), and work that GPUs share, seconds =
fixed + work x batch / GPUs. So on more GPUs small batches waste more of them. How a cost goes on
beyond the runs: `answers.spending`.
`allocation.Rates` does every conversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from isocompute.allocation import Budget, Rates
from isocompute.answers.machines import cadence, device_of, on_gpus
from isocompute.answers.spending import Spent, apart, lines, solved, telling, within
from isocompute.domain import Configuration, Curve, Effort, Work
from isocompute.domain.curve import UNITS
from isocompute.domain.text import compact, unit_words
from isocompute.errors import InputError
from isocompute.intervals import FloatArray
from isocompute.study.evaluated import Evaluated

# The unit in which n are compared, by that of a budget; in rollouts where it is not here.
PAID_IN = {"tokens": "tokens", "gpu_hours": "gpu-hours", "usd": "gpu-hours"}
UNITS_PAID = ("tokens", "gpu_hours", "usd")
BEYOND = 1.01  # of the rollouts of a run: whole batches do not end where it ended


@dataclass(frozen=True, kw_only=True)
class Price:
    """Rates with where they come from."""

    rates: Rates = field(default_factory=Rates)  # for any configuration
    origin: Mapping[str, str] = field(default_factory=dict)  # rate -> "study", "sweep"; else given
    # GPUs on which times were measured that are scaled to others
    timed_on: Mapping[Configuration, int] = field(default_factory=dict)
    start: float | None = None  # GPU-hours of each start of the trainer, as the runs' slices tell
    # Measured ones by unit: what more and more rollouts take
    spent: Mapping[str, Mapping[Configuration, Spent]] = field(default_factory=dict)
    clocked: bool = False  # times hold evaluations
    device: str = ""  # whose hours they are, if not a GPU's
    every: Mapping[Configuration, int] = field(default_factory=dict)  # then, updates between them
    one_rate: str = ""  # the unit of which every configuration takes as the one in the middle
    evaluated: Evaluated | None = None  # how runs are that a study adds; None: not known
    # Measured ones that cut responses where most do: by them others are priced.
    usual: frozenset[Configuration] = frozenset()

    def of(
        self, *which: Configuration, rollouts: float | None = None, low: bool = False
    ) -> Rates:
        """The rates of one configuration, or of several that train as many rollouts each.

        Args:
            which: configurations.
            rollouts: that each trains; beyond the data at the upper end, or the lower one. None:
                as in the runs, on average.
            low: take the lower end.
        """
        tokens, hours = (
            _mean([x for c in which if (x := self._each(unit, c, rollouts, low=low)) is not None])
            for unit in ("tokens", "gpu-hours")
        )
        return replace(
            self.rates, tokens_per_rollout=tokens, rollouts_per_gpu_hour=_inverse(hours)
        )

    def _each(
        self, unit: str, c: Configuration | None, rollouts: float | None, *, low: bool = False
    ) -> float | None:
        """What a rollout takes of a unit."""
        lines = self.spent.get(unit, {})
        known = {o: line.each(rollouts or None, low=low) for o, line in lines.items()}
        if not known:
            rates = self.rates
            return (rates.tokens_per_rollout if unit == "tokens"
                    else _inverse(rates.rollouts_per_gpu_hour))  # fmt: skip
        if c in known and unit != self.one_rate:
            return known[c]
        known = {o: each for o, each in known.items() if o in self.usual} or known
        if c is None or unit == self.one_rate:
            return median(known.values())
        n = c.rollouts_per_problem
        same = [each for o, each in known.items() if o.rollouts_per_problem == n]
        if unit == "tokens" and same:  # responses of another B_p are as long
            return median(same)
        batch_J = np.array([o.batch_size for o in known], dtype=np.float64)
        takes_J, batch = batch_J * np.array(list(known.values())), float(c.batch_size)
        return float(update_takes(batch_J, takes_J, np.array([batch]))[0]) / batch

    def buys(self, budget: Budget, c: Configuration | None = None) -> float:
        """Rollouts of a configuration (None: of any) that a budget pays for, at the upper end.

        Raises:
            InputError: a rate that is missing.
        """
        bought, unit = self.rates.rollouts(budget), PAID_IN.get(budget.unit, "rollouts")
        if not (lines := self.spent.get(unit)):
            return bought
        usd = self.rates.usd_per_gpu_hour or 1.0
        amount = budget.amount / usd if budget.unit == "usd" else budget.amount
        if c is not None and c in lines and unit != self.one_rate:
            return float(10 ** lines[c].buys(np.log10(max(amount, 1e-300))))
        return solved(lambda r: r * (self._each(unit, c, r) or 1.0), amount, bought)

    def cost(
        self, trains: Effort, *, starts: int = 0, runs: Effort | None = None
    ) -> dict[str, Any]:
        """What it costs to train so many rollouts of each configuration; None: not known.

        Of runs beyond the data at the upper end, with the lower one as `at_least`.

        Args:
            trains: rollouts by configuration.
            starts: of the trainer, counted as far as it is known what one takes.
            runs: rollouts of one run of them; None: as they say themselves (`Work`), starts, too.
        """
        if runs is None:
            starts = sum(Work.of(r).starts for r in trains.values() if r)
        ends = []
        for low in (False, True):
            each = [self.of(c, rollouts=runs.get(c), low=low).cost(r) if runs is not None
                    else self._of_work(c, Work.of(r))
                    for c, r in trains.items() if r]  # fmt: skip
            ends.append({
                name: None if any(one[name] is None for one in each)
                else sum(one[name] or 0.0 for one in each) + starts * self.started(name)
                for name in UNITS_PAID
            })  # fmt: skip
        whose = {"device": self.device} if self.device else {}
        return {**ends[0], **whose, **({} if runs is None else {"at_least": ends[1]})}

    def _of_work(self, c: Configuration, work: Work) -> dict[str, float | None]:
        """What runs take that go on from where they stand, at the upper end, evaluated or not.

        An evaluation's rollouts take what those of training do; a clock has counted them.
        """
        sums: dict[str, float | None] = dict.fromkeys(UNITS_PAID, 0.0)
        for span, many in work.spans.items():
            begun, whole = (self.of(c, rollouts=at).cost(at) for at in span)
            drawn = 0 if self.evaluated is None or not work.starts else (
                self.evaluated.drawn(c.batch_size, *span))  # fmt: skip
            more = 1 + drawn / (span[1] - span[0])
            for name, so_far in sums.items():
                to, start = whole[name], begun[name] or 0.0
                times = 1 if self.clocked and name != "tokens" else more
                sums[name] = (None if so_far is None or to is None
                              else so_far + many * times * (to - start))  # fmt: skip
        return sums

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

    @property
    def hours(self) -> Mapping[Configuration, Spent]:
        """What rollouts take of GPU-hours, as far as that was measured."""
        return self.spent.get("gpu-hours", {})

    def is_beyond(self, c: Configuration, rollouts: float) -> bool:
        """Whether so many rollouts lie beyond the runs whose hours are known."""
        known = [self.hours[c]] if c in self.hours else list(self.hours.values())
        return bool(known) and rollouts > BEYOND * max(line.end for line in known)

    def off(self, c: Configuration, rollouts: float = 0.0) -> float | None:
        """By what share the GPU-hours of a run may be off, in nine of ten cases.

        None where the runs cannot tell, beyond them, for a rate that was given, and for times
        that are scaled.
        """
        scaled = self.timed_on or self.one_rate == "gpu-hours"
        if scaled or not self.hours or self.is_beyond(c, rollouts):
            return None
        return within({one: line.runs for one, line in self.hours.items()}, c)

    def trends(self, c: Configuration, rollouts: float) -> dict[str, str]:
        """Of each rate whose cost has two ends: what makes them differ, in words."""
        cost, found = self.cost({c: rollouts}, runs={c: rollouts}), dict[str, str]()
        ends = {unit: apart(cost["at_least"][unit], cost[unit]) for unit in UNITS_PAID}
        for name, unit, rate in (("gpu_hours", "gpu-hours", "rollouts_per_gpu_hour"),
                                 ("tokens", "tokens", "tokens_per_rollout")):  # fmt: skip
            if ends[name]:
                lines = self.spent[unit]
                those = [lines[c]] if c in lines else lines.values()
                more = median(one.growth for one in those) > 0
                found[rate] = (f"responses grew {'longer' if more else 'shorter'}"
                               if ends["tokens"] else
                               f"rollouts grew {'dearer' if more else 'cheaper'}")  # fmt: skip
        return found

    def to_dict(self, c: Configuration, rollouts: float) -> dict[str, Any]:
        """`source` of a cost: by rate its value, where it comes from, how far off it may be."""
        rows = {
            name: {"value": value, "from": self.origin.get(name, "given")}
            for name, value in vars(self.of(c, rollouts=rollouts)).items()
            if value is not None
        }
        for name, trend in self.trends(c, rollouts).items():
            rows[name]["trend"] = trend
        if self.origin.get("rollouts_per_gpu_hour") == "sweep" and "rollouts_per_gpu_hour" in rows:
            some = next(iter(self.timed_on.values()), None)
            on = self.timed_on.get(c) if c in self.hours else some
            rows["rollouts_per_gpu_hour"] |= {
                "off": self.off(c, rollouts), "timed_on": on, "clocked": self.clocked,
                "beyond": self._beyond(c, rollouts),
            }  # fmt: skip
            if self.every:
                every = self.every.get(c) or round(median(self.every.values()))
                rows["rollouts_per_gpu_hour"]["evaluated_every"] = every
        if self.one_rate == "tokens" and self.origin.get("tokens_per_rollout") == "sweep":
            rows["tokens_per_rollout"]["beyond"] = "n"
        if self.start is not None and "rollouts_per_gpu_hour" in rows:
            rows["gpu_hours_per_start"] = {"value": self.start, "from": "sweep"}
        return rows

    def _beyond(self, c: Configuration, rollouts: float) -> str | None:
        """What a cost goes beyond: "batches" or "runs" that were timed, or what differs by "n"."""
        if self.one_rate == "gpu-hours":
            return "n"
        sizes = [one.batch_size for one in self.hours]
        if sizes and not min(sizes) <= c.batch_size <= max(sizes):
            return "batches"
        return "runs" if self.is_beyond(c, rollouts) else None


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
    """The units that runs of every (B_p, n) counted."""
    of = {unit: {c.configuration for c in telling(curves, unit)} for unit in UNITS}
    return [u for u, seen in of.items() if all(c.configuration in seen for c in curves)]


def unit_paid_in(budget: Budget | None, rates: Rates, curves: Sequence[Curve]) -> str:
    """The unit to compare n in, where nobody says: GPU-hours or tokens that a budget counts.

    Args:
        budget: of the plan; None: rollouts.
        rates: given, or from the study's file.
        curves: with the GPU-hours and tokens that their runs logged.
    """
    curves = on_gpus(curves, budget.gpus if budget else None)
    unit = PAID_IN.get(budget.unit if budget else "", "rollouts")
    known = {"tokens": rates.tokens_per_rollout, "gpu-hours": rates.rollouts_per_gpu_hour}
    return unit if known.get(unit) is None and unit in counted_in(curves) else "rollouts"


def in_unit(budget: Budget, unit: str, price: Price) -> float:
    """A budget in the unit of a fit, by the rates of any configuration.

    Raises:
        InputError: a budget in rollouts where n are compared by what is paid, which differs by n.
    """
    if budget.unit == "rollouts" and unit in price.spent:
        raise InputError(
            f"`--unit {unit}` compares n at equal {unit_words(unit)}, but the budget is "
            f"{compact(budget.amount)} rollouts, which take more of some n than of others; give "
            f"the budget in {unit_words(unit)}, or leave `--unit` out."
        )
    if budget.unit.replace("_", "-") == unit:
        return budget.amount
    if unit == "rollouts":
        return price.buys(budget)
    return price.rates.rollouts(budget) * per_rollout(price.rates, unit)  # money as its hours


def priced(curves: Sequence[Curve], rates: Rates, origin: Mapping[str, str] | None = None) -> Price:
    """Fill rates that nobody gave from what the runs logged.

    Args:
        curves: with tokens or GPU-hours, where they have them.
        rates: given, or from the study's file; they stay.
        origin: where those rates come from.
    """
    origin, spent = dict(origin or {}), dict[str, Mapping[Configuration, Spent]]()
    if rates.tokens_per_rollout is None and (tokens := lines(curves, "tokens")):
        spent["tokens"], origin["tokens_per_rollout"] = tokens, "sweep"
        rates = replace(rates, tokens_per_rollout=median(t.each() for t in tokens.values()))
    if rates.rollouts_per_gpu_hour is None and (hours := lines(curves, "gpu-hours")):
        spent["gpu-hours"], origin["rollouts_per_gpu_hour"] = hours, "sweep"
        rates = replace(rates, rollouts_per_gpu_hour=median(1 / h.each() for h in hours.values()))
    of_hours = curves if "gpu-hours" in spent else ()
    starts = [c.start_s * (c.gpus or 1) / 3600 for c in curves if c.start_s is not None]
    return Price(
        rates=rates, spent=spent, origin=origin, usual=_alike(curves),
        timed_on={c.configuration: c.timed_on for c in of_hours if c.timed_on},
        start=median(starts) if starts else None, clocked=any(c.clocked for c in of_hours),
        every=cadence(of_hours), device=device_of(of_hours),
    )  # fmt: skip


def _alike(curves: Sequence[Curve]) -> frozenset[Configuration]:
    """Configurations whose runs cut responses where most of them do; of equals the shorter."""
    of = {c.configuration: c.response_limit or 0 for c in curves}
    limits = sorted(of.values())
    most = max(limits, key=limits.count, default=0)
    return frozenset(c for c, limit in of.items() if limit == most)


def timed(curves: Sequence[Curve], rates: Rates) -> list[Curve]:
    """Curves with GPU-hours: their own where they were timed, else by a rate for all."""
    rate = rates.rollouts_per_gpu_hour
    if rate is None:
        return list(curves)
    return [
        c if c.gpu_hours_K is not None else c.replace(gpu_hours_K=c.rollouts_K / rate)
        for c in curves
    ]


def update_takes(batch_J: FloatArray, takes_J: FloatArray, batch_F: FloatArray) -> FloatArray:
    """What an update takes at some batches, from what those of other batches take.

    It lies on lines between them; of equal batches the middle one counts. Beyond the ends the last
    line goes on: work never falls as a batch grows, and no update is cheaper than its share of a
    larger one.

    >>> update_takes(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([1.5, 4.0]))
    array([3.5, 6. ])
    """
    batch = np.unique(batch_J)
    takes = np.array([median(takes_J[batch_J == size]) for size in batch])
    inside = np.clip(batch_F, batch[0], batch[-1])
    out = np.interp(inside, batch, takes)
    slopes = np.diff(takes) / np.diff(batch) if len(batch) > 1 else np.full(1, np.inf)
    for end in (0, -1):
        each, slope = takes[end] / batch[end], max(slopes[end], 0.0)
        # Where rollouts grow dearer with the batch, larger ones are dearer still, and small ones
        # are not free.
        slope = min(slope, each) if end == 0 or not np.isfinite(slope) else slope
        beyond = batch_F < batch[0] if end == 0 else batch_F > batch[-1]
        out += np.where(beyond, slope * (batch_F - batch[end]), 0.0)
    return np.asarray(out)
