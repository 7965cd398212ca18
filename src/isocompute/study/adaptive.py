"""What an adaptive sweep may spend and when it ends, and the decisions that it takes on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from isocompute.domain import Configuration
from isocompute.errors import InputError

# What a sweep may train where nobody says: so many times one run of everything, 40% of three seeds.
# In 16 real studies half of it lost 0.0013 of score more, and no bound at all (1.8 times) nothing.
SPENT = 1.2
Action = Literal["start", "continue", "freeze", "wait", "repeat", "end", "thaw"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds of an adaptive sweep.

    Args:
        target: rollouts of the run that the sweep is to plan.
        spend: training rollouts that the sweep may draw; None: 1.2 times one run of everything.
        chance, improvement: a configuration is frozen when its chance to be within 0.005 of the
            best, and its expected improvement over the best of the others, are below these at
            every budget still to be planned for, at two looks in a row.
        tolerance: the sweep ends when its plan is expected to lose less than this.
        metric, problem_set: what is compared; None: avg@ all samples on the only set.

    Raises:
        InputError: on a value outside its range.
    """

    target: float
    spend: float | None = None
    chance: float = 0.02
    improvement: float = 0.0006
    tolerance: float = 0.002
    metric: str | None = None
    problem_set: str | None = None

    @property
    def compared(self) -> str:
        """The scores that the study names."""
        return " on ".join(word for word in (self.metric, self.problem_set) if word)

    def __post_init__(self) -> None:
        for name in ("chance", "improvement", "tolerance"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise InputError(
                    f"`adaptive.{name}` must lie between 0 and 1, but got {value!r}; correct it."
                )
        for name in ("target", "spend"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 1):
                raise InputError(
                    f"`adaptive.{name}` must be a budget of at least 1 rollout, but got {value!r}; "
                    "correct it."
                )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One line of a look: what becomes of a configuration, or of the sweep.

    The lines of one look together say how far every run trains next, so the last look is all that
    a resumed sweep needs.

    Args:
        action: "start" (with one seed), "continue" (to the next slice), "freeze" (no further),
            "wait" (no further now), "repeat" (with another seed), "thaw" (to the end, because a
            person asked); of the sweep "continue" or "end".
        configuration: None for the sweep.
        rollouts: to which each of its seeds trains, the first the longest; others do not train.
        numbers: that the decision follows from.
        compared: of the sweep, the scores that it follows from, where the study names them.
    """

    action: Action
    configuration: Configuration | None = None
    rollouts: tuple[int, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    compared: str = ""

    @property
    def is_frozen(self) -> bool:
        """Whether it trains no further until it is thawed."""
        return self.action == "freeze"


class Look(NamedTuple):
    """The decisions taken at one time: one of the sweep, then one for every configuration."""

    number: int
    decisions: tuple[Decision, ...]

    @property
    def of_sweep(self) -> Decision:
        """Whether it goes on, with the figures of the plan."""
        return next(d for d in self.decisions if d.configuration is None)

    @property
    def of_configurations(self) -> dict[Configuration, Decision]:
        """What becomes of each."""
        return {d.configuration: d for d in self.decisions if d.configuration is not None}

    @property
    def saw_nothing(self) -> bool:
        """Whether the sweep ended because every run failed before its first evaluation."""
        numbers = self.of_sweep.numbers  # without a fit of them a look says only what was spent
        return self.has_ended and "spent" in numbers and "loss_at_target" not in numbers

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is decided."""
        return self.of_sweep.action == "end"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What an adaptive sweep chooses from.

    Args:
        steps: updates of a whole run, by configuration.
        seeds: runs that each configuration may have.
        slices: shares of a run's budget at which it is looked at, ascending to 1.
        bounds: of the sweep.
        first_evaluation: rollouts before which no run has a score.
    """

    steps: Mapping[Configuration, int]
    seeds: int
    slices: tuple[float, ...]
    bounds: Bounds
    first_evaluation: int = 1

    def levels(self, configuration: Configuration) -> list[int]:
        """Rollouts of a run at the end of each slice, ascending; the first has a score to show."""
        steps = self.steps[configuration]
        least = -(-self.first_evaluation // configuration.batch_size)
        each = {min(max(1, least, int(steps * share)), steps) for share in self.slices}
        return [s * configuration.batch_size for s in sorted(each)]

    def spent(self, decisions: Mapping[Configuration, Decision]) -> int:
        """Rollouts of all runs once these decisions are carried out."""
        return sum(sum(d.rollouts) for d in decisions.values())

    @property
    def first_slices(self) -> int:
        """Rollouts of the first slice of every configuration: what any sweep begins with."""
        return sum(self.levels(c)[0] for c in self.steps)

    @property
    def limit(self) -> float:
        """Rollouts that may be spent."""
        once = sum(m * c.batch_size for c, m in self.steps.items())
        return min(self.bounds.spend or SPENT * once, self.seeds * once)

    def of_sweep(self, action: Action, numbers: Mapping[str, float]) -> Decision:
        """What becomes of the sweep, with the rules that it follows from."""
        return Decision(
            action=action, numbers={**self.rules, **numbers}, compared=self.bounds.compared
        )

    def has_changed_since(self, look: Look) -> bool:
        """Whether the study asks for more, by other bounds or by other scores than that look."""
        of = look.of_sweep
        return of.compared != self.bounds.compared or any(
            of.numbers.get(name) != value for name, value in self.rules.items()
        )

    @property
    def rules(self) -> dict[str, float]:
        """What decides when the sweep ends; a sweep that has ended goes on where they change."""
        of = self.bounds
        return {
            "target": of.target,
            "limit": self.limit,
            "tolerance": of.tolerance,
            "chance_bound": of.chance,
            "improvement_bound": of.improvement,
            "rollouts_of_a_run": max(m * c.batch_size for c, m in self.steps.items()),
        }

    def started(self, last: Look | None) -> Look | None:
        """The look that starts every configuration that has none, with one seed on the first slice.

        None where there is none to start.
        """
        before = {} if last is None else last.of_configurations
        new = [
            Decision(action="start", configuration=c, rollouts=(self.levels(c)[0],))
            for c in sorted(self.steps)
            if c not in before
        ]
        if not new:
            return None
        number = 0 if last is None else last.number + 1
        rows = sorted([*before.values(), *new], key=lambda d: d.configuration or (0, 0))
        return Look(number, (self.of_sweep("continue", {}), *rows))

    def begun_again(self, last: Look) -> Look:
        """The look after one that saw nothing: its runs were mended, or are tried again."""
        rows = [replace(d, action="start") for d in last.of_configurations.values()]
        return Look(last.number + 1, (self.of_sweep("continue", {}), *rows))

    def thawed(self, last: Look, rollouts_per_problem: Sequence[int] | None) -> Look | None:
        """The look after a person's word that frozen n go on to the end; None: none is frozen.

        Args:
            last: the last look.
            rollouts_per_problem: which n; None: all that are frozen.

        Raises:
            InputError: an n that is not frozen.
        """
        rows = last.of_configurations
        frozen = {c for c, d in rows.items() if d.is_frozen and c in self.steps}
        n = {c.rollouts_per_problem for c in frozen}
        asked = n if rollouts_per_problem is None else set(rollouts_per_problem)
        if not asked <= n:
            wrong = ", ".join(map(str, sorted(asked - n)))
            known = ", ".join(map(str, sorted(n))) or "none"
            more = "name those, or " if n else ""
            raise InputError(
                f"--thaw must name frozen n ({known}), but got {wrong}; {more}train others "
                "further with a larger adaptive.spend, or all of the grid with adaptive=false."
            )
        for c in frozen:
            if c.rollouts_per_problem in asked:
                whole = (self.levels(c)[-1],) * len(rows[c].rollouts)
                rows[c] = Decision(action="thaw", configuration=c, rollouts=whole)
        return Look(last.number + 1, (last.of_sweep, *rows.values())) if asked else None
