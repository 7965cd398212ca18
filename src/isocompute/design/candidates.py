"""Which sweeps a budget can hold.

A sweep is n evenly spaced in log2, at one B_p, every run as long as the money allows; a run that
has fewer than 20 steps compares nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isocompute.allocation import Budget, floor_power_of_two, powers_of_two
from isocompute.answers.price import PAID_IN, Price
from isocompute.answers.spending import solved
from isocompute.design.prior import FEWEST_N
from isocompute.design.simulate import Sweep
from isocompute.domain import Configuration
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.lr_sweep import LEAST, SHARE, STEPS
from isocompute.model.data import MIN_STEPS
from isocompute.recipe import Recipe
from isocompute.study.evaluated import PROBLEMS
from isocompute.study.file import MOST_ROLLOUTS

# (how many n, octaves between two of them, seeds). Three n are the fewest that show a bend.
SHAPES = (
    (3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 2, 2),
    (4, 1, 1), (4, 2, 1), (5, 1, 1), (7, 1, 1), (4, 2, 2),
)  # fmt: skip
LEAST_BP = 8  # below it a batch is too noisy for the recipes here: half of the smallest published


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sweep and its final run.

    Args:
        budget: amount for both, and for the learning rates where they are tried first.
        spend: share of it that training in the sweep may take.
        n_F: the n that the prior covers.
        unit: of the budget: rollouts, tokens, gpu_hours or usd.
        price: of rollouts, as far as it is known: a budget is spent at each configuration's own.
        max_batch: rollouts that a batch may hold; None: any number.
        problems: D, size of the training set; None: large enough.
        evaluated: problems of an evaluation.
        recipe: whose learning rate is swept first; None: it is known.
        slices: of a run of the sweep, each of which starts the trainer; 0: it is there already.
        share: of training that evaluations may draw, as `Sweep` has it.
    """

    budget: float
    spend: float
    n_F: Sequence[int]
    unit: str = "rollouts"
    price: Price = field(default_factory=Price)
    max_batch: int | None = None
    problems: int | None = None
    evaluated: int = PROBLEMS
    recipe: Recipe | None = None
    slices: int = 0
    share: float | None = None

    def each(self, b_p: int, n: int, rollouts: float | None = None) -> float:
        """What one rollout of a configuration takes of the budget.

        Args:
            b_p, n: the configuration.
            rollouts: of its run; None: as in the prior's runs on average.

        Raises:
            InputError: a rate that is missing.
        """
        rates = self.price.of(Configuration(b_p, n), rollouts=rollouts)
        return 1 / rates.rollouts(Budget(amount=1, unit=self.unit))

    def buys(self, b_p: int, n: int, amount: float) -> float:
        """Rollouts of one run that an amount pays for."""
        budget = Budget(amount=max(amount, 0.0), unit=self.unit)
        if not self.price.spent.get(PAID_IN.get(self.unit, "")):
            return amount / self.each(b_p, n)
        return self.price.buys(budget, Configuration(b_p, n)) if amount > 0 else 0.0

    @property
    def evaluations_apart(self) -> bool:
        """Whether the rate is of training alone: times by a clock hold evaluations already."""
        return not (self.price.clocked and self.unit in ("gpu_hours", "usd"))

    def trained(self, sweep: Sweep) -> float:
        """What training in a sweep takes of the budget."""
        b_p, seeds = sweep.problems_per_batch, sweep.seeds
        return sum(
            seeds * (rollouts := sweep.steps(n) * b_p * n) * self.each(b_p, n, rollouts)
            for n in sweep.rollouts_per_problem
        )

    def evaluated_for(self, sweep: Sweep) -> float:
        """What the evaluations of a sweep take of the budget."""
        b_p, seeds = sweep.problems_per_batch, sweep.seeds
        return self.evaluations_apart * sum(
            seeds * sweep.evaluation_rollouts(n) * self.each(b_p, n, sweep.steps(n) * b_p * n)
            for n in sweep.rollouts_per_problem
        )

    def starts(self, sweep: Sweep) -> int:
        """How often the trainer starts for it, at most; runs of one n train without a pause."""
        pauses = len(sweep.rollouts_per_problem) > 1
        return sweep.runs * (self.slices if pauses else min(self.slices, 1))

    def started_for(self, sweep: Sweep) -> float:
        """What starts of the trainer take of the budget, as far as it is known."""
        return self.starts(sweep) * self.price.started(self.unit)

    def taken(self, sweep: Sweep | None) -> float:
        """What a sweep takes of the budget, evaluations and starts included."""
        if sweep is None:
            return 0.0
        return self.trained(sweep) + self.evaluated_for(sweep) + self.started_for(sweep)

    def tried(self, sweep: Sweep, recipe: Recipe) -> Sweep:
        """The learning rates before a sweep, or before a run, as short as is paid for.

        They take half of what the sweep may take, or as much as the fewest steps need that tell
        rates apart.
        """
        batches = [n for n in self.n_F
                   if self.max_batch is None or sweep.problems_per_batch * n <= self.max_batch]
        usual = sweep.of_rates(recipe, batches, STEPS)
        fixed = self.evaluated_for(usual) + self.started_for(usual)
        paid = (SHARE * self.spend * self.budget - fixed) / self.trained(usual)
        return sweep.of_rates(recipe, batches, min(max(int(STEPS * paid), LEAST), STEPS))

    def first(self, sweep: Sweep) -> Sweep | None:
        """Learning rates that are tried first; None: none are asked for, or none are paid for."""
        if self.recipe is None:
            return None
        rates = self.tried(sweep, self.recipe)
        return rates if self.taken(rates) <= self.spend * self.budget else None

    def left(self, sweep: Sweep, *, swept: bool = True) -> float:
        """What the final run may take: what the runs before it leave, the sweep or none."""
        before = self.taken(self.first(sweep))
        before += self.taken(sweep) if swept else 0.0
        return self.budget - before

    def final(self, sweep: Sweep, n: int, amount: float) -> Sweep:
        """The longest run of an n that an amount pays for, evaluated as a sweep is."""
        batch = sweep.problems_per_batch * n
        amount -= self.started_for(sweep.single(n, batch))
        bought = self.buys(sweep.problems_per_batch, n, amount)
        most = sweep.single(n, max(bought, 0.0))
        whole = (bought - most.evaluations * self.evaluations_apart) // batch * batch
        return most.at(int(max(whole, 0.0)))


def check_limits(limits: Limits, b_p: int) -> None:
    """Refuse what holds no final run at all.

    Raises:
        InputError: a share outside (0, 1), problems that fill no batch, limits or a budget below
            one update.
    """
    smallest = b_p * limits.n_F[0]
    bought = limits.buys(b_p, limits.n_F[0], limits.budget)
    if bought > MOST_ROLLOUTS:
        raise InputError(
            f"a budget must be at most {MOST_ROLLOUTS:.0e} rollouts, but got {bought:.3g}; "
            "lower it."
        )
    if not 0 < limits.spend < 1:
        raise InputError(
            "a sweep must take more than 0% and less than 100% of the budget, but got --spend "
            f"{limits.spend:.4g}; 15% is usual."
        )
    check_problems(limits.problems, b_p)
    if limits.max_batch is not None and limits.max_batch < smallest:
        raise InputError(
            f"a batch must hold {b_p} problems with n = {limits.n_F[0]} ({smallest} rollouts), but "
            f"got --max-batch {limits.max_batch}; raise it, or lower --problems-per-batch."
        )
    if bought < smallest:
        raise InputError(
            f"a budget must hold one update of {b_p} problems with n = {limits.n_F[0]} ({smallest} "
            f"rollouts), but got {compact(bought)}; raise it."
        )


def check_problems(problems: int | None, b_p: int) -> None:
    """Refuse problems that fill no batch.

    Raises:
        InputError: they are fewer than B_p.
    """
    if problems is not None and problems < b_p:
        lower = ", or lower --problems-per-batch" if b_p > LEAST_BP else ""
        raise InputError(
            f"the problems (--problems, --train) must fill a batch (B_p = {b_p}), but got "
            f"{problems}; add problems{lower}."
        )


def starting_bp(known: int, problems: int | None) -> int:
    """B_p to begin with: that of the prior, or the largest power of two, from 8, that D fills."""
    most = known if problems is None else floor_power_of_two(max(problems, LEAST_BP))
    return min(known, most)


def candidates(limits: Limits, b_p: int, guess: int, *, fixed: bool) -> list[Sweep]:
    """Sweeps within the limits, at the largest B_p at which there are any.

    Args:
        b_p: the largest B_p; halved, down to 8, while nothing fits.
        guess: the best n without a sweep: one candidate of each shape is centred on it.
        fixed: B_p was asked for: it is not halved.

    Raises:
        InputError: not even the smallest sweep of three n fits.
    """
    sizes = [b_p] if fixed else [b_p >> i for i in range(8) if b_p >> i >= min(LEAST_BP, b_p)]
    for size in sizes:
        if found := _at(limits, size, guess):
            return found
    raise _none(limits, sizes[-1])


def _at(limits: Limits, b_p: int, guess: int) -> list[Sweep]:
    out: dict[Sweep, None] = {}
    for count, octaves, seeds in SHAPES:
        span = 2 ** (octaves * (count - 1))
        every = {
            last: sweep for last in limits.n_F
            if last // span >= limits.n_F[0]
            and (sweep := _longest(limits, b_p, last // span, last, octaves, seeds)) is not None
        }  # fmt: skip
        if not every:
            continue
        top = max(every)
        centred = min(guess * 2 ** (octaves * ((count - 1) // 2)), top)
        for last in dict.fromkeys((top, centred)):
            if last in every:
                out[every[last]] = None
    return list(out)


def _longest(
    limits: Limits, b_p: int, low: int, high: int, octaves: int, seeds: int
) -> Sweep | None:
    """The sweep of these n with the longest runs; None: they are too short, or the last one is."""
    n = tuple(powers_of_two(low, high)[::octaves])
    dear = sum(limits.each(b_p, one) for one in n)
    length = limits.budget * limits.spend / (seeds * dear)
    if limits.price.spent.get(PAID_IN.get(limits.unit, "")):
        length = solved(lambda r: seeds * r * sum(limits.each(b_p, one, r) for one in n),
                        limits.budget * limits.spend, length)  # fmt: skip
    sweep = Sweep(problems_per_batch=b_p, rollouts_per_problem=n, seeds=seeds,
                  rollouts_per_run=int(length), evaluated=limits.evaluated,
                  share=limits.share)  # fmt: skip
    if limits.max_batch is not None and b_p * high > limits.max_batch:
        return None
    # Its evaluations and all else before it must leave a run of its largest n.
    final = limits.final(sweep, high, limits.left(sweep))
    return sweep if length >= MIN_STEPS * b_p * high and final.steps(high) >= MIN_STEPS else None


def _none(limits: Limits, b_p: int) -> InputError:
    n = limits.n_F[: FEWEST_N]
    if limits.max_batch is not None and len(n) == FEWEST_N and limits.max_batch < b_p * n[-1]:
        return InputError(
            f"a sweep needs {FEWEST_N} n, the largest with a batch of {b_p * n[-1]} rollouts, but "
            f"got --max-batch {limits.max_batch}; raise it."
        )
    starts = FEWEST_N * limits.slices * limits.price.started(limits.unit)
    if starts >= (left := limits.budget * (1 - limits.spend)):
        return InputError(
            f"a sweep starts its trainer {FEWEST_N * limits.slices} times, which must leave a "
            f"final run, but takes {compact(starts)} of {compact(left)}; raise --budget."
        )
    takes, bought = MIN_STEPS * b_p * n[-1] * FEWEST_N, limits.buys(b_p, n[-1], limits.budget)
    if bought * limits.spend >= takes:
        final = MIN_STEPS * b_p * n[-1]
        return InputError(
            f"a sweep must leave a final run of {MIN_STEPS} steps ({compact(final)} rollouts at "
            f"B_p = {b_p}), but with its evaluations --spend {limits.spend:.3g} leaves too little "
            f"of {compact(bought)}; lower --spend, or raise --budget."
        )
    return InputError(
        f"a sweep needs {FEWEST_N} n with {MIN_STEPS} steps each (at least {compact(takes)} "
        f"rollouts at B_p = {b_p}), but may spend {compact(bought * limits.spend)} "
        f"({limits.spend:.3g} of {compact(bought)}); raise --budget or --spend, or plan "
        "without one: `isocompute plan`."
    )
