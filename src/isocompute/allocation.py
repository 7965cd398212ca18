"""How a budget of rollouts is split: C = B_p * n * M, and what rollouts cost.

The only place where rollouts, tokens, GPU-hours and money are converted into each other.
Source: arXiv 2603.12151, section 2.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from isocompute.errors import InputError


def _require_positive_int(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(
            f"`{name}` must be an integer >= 1, but got {value!r}; give a whole positive number."
        )


@dataclass(frozen=True, kw_only=True, order=True)
class Allocation:
    """One way to spend a budget.

    Args:
        problems_per_batch: B_p, unique problems per gradient step.
        rollouts_per_problem: n, parallel samples per problem in one update (the group size).
        steps: M, sequential gradient updates.

    Raises:
        InputError: if any of the three is not an integer >= 1.

    >>> Allocation(problems_per_batch=32, rollouts_per_problem=256, steps=488).rollouts
    3997696
    """

    problems_per_batch: int
    rollouts_per_problem: int
    steps: int

    def __post_init__(self) -> None:
        _require_positive_int("problems_per_batch", self.problems_per_batch)
        _require_positive_int("rollouts_per_problem", self.rollouts_per_problem)
        _require_positive_int("steps", self.steps)

    @property
    def batch_size(self) -> int:
        """B = B_p * n, in rollouts."""
        return self.problems_per_batch * self.rollouts_per_problem

    @property
    def rollouts(self) -> int:
        """C = B_p * n * M."""
        return self.batch_size * self.steps


def floor_power_of_two(value: float) -> int:
    """Largest power of two that is <= value (value >= 1).

    Exact powers that arrive with rounding error (255.99999999999) count as the power.

    Raises:
        InputError: if value is not finite or is below 1.
    """
    if not math.isfinite(value) or value < 1:
        raise InputError(
            f"`value >= 1` must hold for a power of two below it, but got {value!r}; "
            "raise the budget or the limit."
        )
    return 1 << math.floor(math.log2(value) + 1e-9)


def powers_of_two(low: int, high: int) -> list[int]:
    """Powers of two from low to high, both included when they are powers of two.

    >>> powers_of_two(8, 64)
    [8, 16, 32, 64]

    Raises:
        InputError: if `1 <= low <= high` does not hold.
    """
    _require_positive_int("low", low)
    _require_positive_int("high", high)
    if low > high:
        raise InputError(f"`low <= high` must hold, but got low={low}, high={high}; swap them.")
    first = 1 << (low - 1).bit_length()
    return [first << i for i in range((high // first).bit_length())] if first <= high else []


def allocation_grid(
    problems_per_batch: Iterable[int],
    rollouts_per_problem: Iterable[int],
    *,
    rollouts: int,
    max_batch_size: int | None = None,
    max_steps: int | None = None,
) -> list[Allocation]:
    """Every (B_p, n) whose batch fits, with M = floor(rollouts / (B_p * n)).

    Pairs with B_p * n above `max_batch_size` or above the budget are left out; no run takes more
    than `max_steps` updates.
    """
    rollouts_per_problem = list(rollouts_per_problem)
    grid: list[Allocation] = []
    for b_p in problems_per_batch:
        for n in rollouts_per_problem:
            batch = b_p * n
            if (max_batch_size is not None and batch > max_batch_size) or batch > rollouts:
                continue
            steps = min(rollouts // batch, max_steps or rollouts)
            grid.append(Allocation(problems_per_batch=b_p, rollouts_per_problem=n, steps=steps))
    return grid


def allocation_splits(
    batch_sizes: Iterable[int],
    rollouts_per_problem: Iterable[int],
    *,
    rollouts: int,
    max_batch_size: int | None = None,
    max_steps: int | None = None,
) -> list[Allocation]:
    """Every split of every batch: B_p = B / n; limits as in `allocation_grid`.

    >>> [(a.problems_per_batch, a.steps) for a in allocation_splits([64], [4, 16], rollouts=640)]
    [(16, 10), (4, 10)]

    Raises:
        InputError: for a batch that some n does not divide.
    """
    rollouts_per_problem = list(rollouts_per_problem)
    splits: list[Allocation] = []
    for batch in batch_sizes:
        odd = [n for n in rollouts_per_problem if batch % n]
        if odd:
            raise InputError(
                "`batch_size` must be a multiple of every rollouts_per_problem, but got "
                f"{batch} and {odd[0]}; change one of them."
            )
        for n in rollouts_per_problem:
            splits += allocation_grid(
                [batch // n], [n], rollouts=rollouts, max_batch_size=max_batch_size,
                max_steps=max_steps,
            )  # fmt: skip
    return splits


def evaluation_index(rollouts: int, *, per_octave: int, first: int) -> int:
    """Number of points of the common evaluation grid that are <= rollouts.

    The grid is `first * 2**(i / per_octave)`, i = 0, 1, ...: it depends on nothing but these
    two numbers, so that every configuration, and a study extended later, is looked at
    equally often (records are biased by how often one looks). A run evaluates at step 0 and
    after each step at which this index rises.
    """
    if rollouts < first:
        return 0
    return math.floor(per_octave * math.log2(rollouts / first) + 1e-9) + 1


def even_interval(
    batch: int, steps: int, *, per_octave: int, first: int, draws: int, share: float
) -> int:
    """Steps between two evaluations of a trainer that knows no logarithmic grid.

    As often as the grid's finest spacing asks for, but with at most a share of the training
    rollouts spent on it.

    Args:
        batch, steps: rollouts of an update, updates of the run.
        per_octave, first: the common grid.
        draws: rollouts of one evaluation.
        share: of the training rollouts.
    """
    grid = {"per_octave": per_octave, "first": first}
    earliest = next((s for s in range(1, min(steps, 100_000) + 1)
                     if evaluation_index(s * batch, **grid) > 0), steps)  # fmt: skip
    affordable = math.ceil(draws / (share * batch))
    return max(1, min(steps, max(earliest, affordable)))


def even_evaluations(steps: int, every: int) -> int:
    """How many those are, step 0 and the end included."""
    return 1 + steps // every + (steps % every > 0)


_UNITS = {
    "": "rollouts",
    "rollouts": "rollouts",
    "tok": "tokens",
    "tokens": "tokens",
    "gpuh": "gpu_hours",
    "gpuhours": "gpu_hours",
    "usd": "usd",
}
# Decimal, because 64.1 times 1e3 is a little less than 64100.
_FACTORS = {name: Decimal(10) ** power for name, power in
            {"k": 3, "M": 6, "G": 9, "B": 9, "T": 12}.items()}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An amount in one of the units people are given: rollouts, tokens, gpu_hours, usd.

    Args:
        amount, unit: see above.
        gpus: where it was said as so many GPUs for so long.
    """

    amount: float
    unit: str
    gpus: int | None = field(default=None, repr=False, compare=False)

    @property
    def needs(self) -> tuple[str, ...]:
        """Rates without which it is no number of rollouts."""
        per_hour = "rollouts_per_gpu_hour"
        return {"tokens": ("tokens_per_rollout",), "gpu_hours": (per_hour,),
                "usd": ("usd_per_gpu_hour", per_hour)}.get(self.unit, ())  # fmt: skip


def parse_budget(text: str | float) -> Budget:
    """`2e6` or `2M` (rollouts), `5e9tok`, `400gpuh`, `64gpux3d`, `'$2000'` and the like -> Budget.

    A number counts rollouts.

    Commas separate thousands only: `1,500` is 1500, and `1,5` is refused.

    >>> parse_budget("64gpux3d"), parse_budget("$10k")
    (Budget(amount=4608.0, unit='gpu_hours'), Budget(amount=10000.0, unit='usd'))

    Raises:
        InputError: for text in a number, an unknown unit, or an amount that is not > 0.
    """
    asked = text = str(text)
    kind = r"(?:gpus?|x\s*[a-z]+[0-9]\w*?)"  # 64gpu, 64xH100
    if gpus := re.fullmatch(
        rf"\s*(\d+)\s*{kind}\s*x\s*([0-9.]+)\s*([dh])\s*", text, re.IGNORECASE
    ):
        hours = 24 if gpus[3].lower() == "d" else 1
        with contextlib.suppress(ValueError):
            text = f"{int(gpus[1]) * float(gpus[2]) * hours!r}gpuh"
    elif text.strip().startswith("$"):
        text = re.sub(r"([a-zA-Z]?)\s*$", r"\1usd", text.strip()[1:], count=1)
    number = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9_]*)(?:\.[0-9]*)?"
    match = re.fullmatch(rf"\s*({number}(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z][a-zA-Z_-]*)?\s*", text)
    word = re.sub("[_-]", "", match.group(2) or "") if match else ""
    unit = _UNITS.get(word.lower())
    factor = Decimal(1)
    if unit is None and word[:1] in _FACTORS:
        factor, unit = _FACTORS[word[0]], _UNITS.get(word[1:].lower())
    amount = math.nan
    if match is not None:
        with contextlib.suppress(ArithmeticError):  # no digit, or too many
            amount = float(Decimal(match.group(1).replace(",", "")) * factor)
    if match is None or unit is None or not math.isfinite(amount) or amount <= 0:
        said = "write for example 2e6, 2M, 5e9tok, 400gpuh, 64gpux3d or 2000usd."
        if re.fullmatch(_LEFT_OF_MONEY, asked):
            said = "if it was money, the shell took the $ and the digit behind it: write '$5000' " \
                   "in quotes, or 5000usd."  # fmt: skip
        elif re.fullmatch(r"[0-9.]+\s*(?:h|d|hours?|days?)", asked.strip(), re.IGNORECASE):
            said = "a time needs its GPUs: write for example 8gpux2d or 64gpux72h."
        raise InputError(
            "a budget must be a finite amount > 0 with one of the units rollouts (or none), tok, "
            f"gpuh, usd, but got {asked!r}; {said}"
        )
    return Budget(amount=amount, unit=unit, gpus=int(gpus[1]) if gpus else None)


# What a shell leaves of $5000 (000), $10k (0k), $1,500 (,500) and $5 (nothing).
_LEFT_OF_MONEY = r"\s*(?:0*[kMGBT]?|,[0-9,]+)\s*"
_SAID = {"tokens": "tokens", "gpu_hours": "GPU-hours", "usd": "money"}
_CURES = {
    "rollouts_per_gpu_hour": "add --rollouts-per-gpu-hour (your last run: B_p x n x steps / GPUs / "
    "hours), or --set gpus=8 where the logs have times, or give the budget in rollouts.",
    "usd_per_gpu_hour": "with your own price add --usd-per-gpu-hour 2.",
    "tokens_per_rollout": "add --tokens-per-rollout, or give the budget in rollouts.",
}


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a rollout costs. A rate that is not known is None, and nothing is guessed.

    Args:
        tokens_per_rollout: generated tokens, mean.
        rollouts_per_gpu_hour: rollouts trained on per GPU-hour, all phases included.
        usd_per_gpu_hour: price.

    Raises:
        InputError: one that is not above 0.
    """

    tokens_per_rollout: float | None = None
    rollouts_per_gpu_hour: float | None = None
    usd_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                raise InputError(
                    f"`{name}` must be a number above 0, but got {value!r}; leave it out where it "
                    "is not known."
                )

    def rollouts(self, budget: Budget) -> float:
        """Rollouts that the budget buys.

        Raises:
            InputError: if the rate that the conversion needs is missing.
        """
        if budget.unit == "rollouts":
            return budget.amount
        if budget.unit == "tokens":
            return budget.amount / self._need("tokens_per_rollout", budget)
        hours = budget.amount
        if budget.unit == "usd":
            hours /= self._need("usd_per_gpu_hour", budget)
        return hours * self._need("rollouts_per_gpu_hour", budget)

    def cost(self, rollouts: float) -> dict[str, float | None]:
        """{"tokens", "gpu_hours", "usd"} of a number of rollouts; None where no rate is known."""
        tokens = None if self.tokens_per_rollout is None else rollouts * self.tokens_per_rollout
        hours = (
            None if self.rollouts_per_gpu_hour is None else rollouts / self.rollouts_per_gpu_hour
        )
        usd = (
            None
            if hours is None or self.usd_per_gpu_hour is None
            else hours * self.usd_per_gpu_hour
        )
        return {"tokens": tokens, "gpu_hours": hours, "usd": usd}

    def _need(self, name: str, budget: Budget) -> float:
        value: float | None = getattr(self, name)
        if value is None or not math.isfinite(value) or value <= 0:
            known = "none is known" if value is None else f"got {value!r}"
            raise InputError(
                f"a budget in {_SAID[budget.unit]} needs `{name}` > 0, but {known}; "
                f"{_CURES[name]}"
            )
        return value
