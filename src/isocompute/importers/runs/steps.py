"""What counts updates in a log: decided here, and checked against all else that the log says.

A tracker has a step of its own, which a trainer may hand over or leave to count calls of `log`;
many trainers log a counter of updates beside it. The counter that a log defines for a key counts
(W&B's `define_metric`), else the trainer's own, else the tracker's step. Where two of them stand
in one row and differ, where some scores have no counter, or where the last step lies beyond the
planned one, nothing is guessed: the import stops with both values and `--set step=KEY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from isocompute.importers.runs.counting import FEW, Epochs, are_calls
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import clock_of, number, whole
from isocompute.importers.words.meanings import tell_of_training
from isocompute.importers.words.vocabulary import (
    CALLS,
    COUNTS,
    OF_POLICY,
    STEP_KEYS,
    TRACKER_STEPS,
    axis_of,
    counts_checkpoints,
)

BEFORE = "and the updates before it count as its own"  # ends the line of a log that begins late
BY_EPOCHS = "step: by the printed epochs"
ASSUMED = "taken for updates"  # ends the line of a step that nothing beside it confirms
# ends the refusal of a log whose order counts
EARLIEST_FIRST = (
    ", but the newest seem to stand first; sort the file by time, the earliest first."
)
# Trainers whose counter may begin at 0 and stand at an evaluation after the update that it counts:
# verl 0.1 (trainer/ppo/ray_trainer.py, fit), AReaL 1.0.4 (trainer/rl_trainer.py, train), slime
# 0.3.1 (train.py); and prime-rl, which since 2026-06 (559b447, orchestrator/orchestrator.py) counts
# from 1 and evaluates before the update of the same number.
FROM_ZERO = ("verl", "areal", "slime", "prime-rl")

# Scores on which two counters must agree to be one: a count of calls meets it at 0 and may at 1. At
# half chance would do, at twice short runs are asked about.
_ENOUGH = 4
_FIRST = 300  # rows that tell whether each is a call of its own
LATER = (
    "step: the log counts its first update as step 0, so every evaluation stands one update later"
)
LAST = "step: the evaluation after the last update is logged one later, and stands at it"
EARLIER = (
    "step: the log counts an evaluation with the update that follows it, so each stands one update "
    "earlier"
)


class Counters:
    """The counters of one run's log, and the doubts about them.

    Args:
        wanted: the counter that the user names; no doubt is left then.
    """

    def __init__(self, wanted: str | None) -> None:
        self.wanted = wanted
        # a row's step is to be looked for
        self.busy = wanted is not None and wanted not in TRACKER_STEPS
        self.seen: dict[str, None] = {}  # keys of counters, in the order of the log
        self.defined: dict[str, str] = {}  # the log's own: key or glob -> counter
        self._own = set[str]()  # those of them that count updates
        self.calls = False  # the tracker's step counts calls
        self.logged: dict[str, None] = {}  # a key `step`, of rows whose own step counts calls
        self._call = -1  # the tracker's step of the last such row
        self._is_handed = False  # those are no calls, counted from 0 without a gap
        self._handed: tuple[int, int] | None = None  # the first: the tracker's step and the logged
        self.evaluated = OF_POLICY.search(wanted or "") is not None  # it is of scores alone
        self.rivals: dict[str, int] = {}  # counts that are the step in every row: in how many
        self.rollouts = ""  # the axis of a chart that counts them
        self.apart = False  # and once was another than the counter beside it
        self.inferred: list[str] = []
        self._last: int | None = None
        self._filled = 0
        self._by_step: dict[int, int] = {}  # the named counter, by the tracker's step
        self._beside: dict[str, list[tuple[int, int]]] = {}  # others: their first rows and the last
        self._ahead: dict[str, set[int]] = {}  # by how much they were before the step
        self._differ: tuple[str, int, int] | None = None
        self._late: set[int] = set()  # by how much evaluations stand after their policy's update
        self._before: tuple[int, Mapping[str, object]] = (0, {})  # step of the row before, and it
        self._epoch: float | None = None  # the last that a row said
        self.has_epochs = False  # a row said one
        self.backward = False  # the log goes back in time where it goes back to a step
        self._ends: dict[str, int] = {}  # of counters beside the named one: how far they go
        self._per_epoch = False  # steps begin anew with an epoch
        self._epochs = Epochs()
        self._checkpoint = 0  # the step of one that the rows behind go on from, until one is read
        self._behind = 0  # that of one where the counter began anew
        self._rows: list[tuple[int, tuple[str, ...]]] = []  # the first: their steps and their keys

    def look_for_rivals(self, values: Mapping[str, object]) -> None:
        """Take the keys of a first row: counts of samples or tokens, which the step may be."""
        if self.wanted is None:
            self.rivals = {key: 0 for key in values if COUNTS.search(str(key))}

    def hold(self, step: int, values: Mapping[str, object]) -> None:
        """Hold the step of a row against them; those that differ once are no rivals."""
        for key in list(self.rivals):
            value = whole(values.get(key))
            if value is not None and value != step:
                del self.rivals[key]
            elif value is not None and step > 1:
                self.rivals[key] += 1

    def follow(self, step: int, values: Mapping[str, object]) -> bool:
        """Take a row; whether its step goes back. Begun anew with an epoch it counts within one."""
        was, said = self._epoch, values.get("epoch")
        now = None if said is None else number(said)  # nearly every row of a million says none
        if back := step < self._before[0]:
            self._per_epoch |= now is not None and was is not None and now > was
            self.backward |= goes_back(clock_of(self._before[1]), clock_of(values))
        self._before, self._epoch = (step, values), was if now is None else now
        if len(self._rows) < _FIRST:
            self._rows.append((step, tuple(values)))
        return back

    def goes_on(self, step: int) -> None:
        """Take the step of the checkpoint that the rows behind go on from."""
        self._checkpoint = step

    def in_epochs(self, step: object, values: Mapping[str, object]) -> object:
        """A row's step; where it begins anew with every epoch, counted on over those before it."""
        epoch, at = whole(values.get("epoch")), whole(step)
        if at is None or self.wanted is not None or (epoch is None and not self._epochs.before):
            return step
        self.has_epochs = True
        if epoch is None:
            own = self._epochs.beside(at)
            self._per_epoch |= own is None
            return at if own is None else own
        trains = tell_of_training([k for k, v in values.items() if number(v) is not None])
        own = self._epochs.at(at, epoch, trains)
        self._per_epoch |= self._epochs.are_batches
        if own == at:
            return step
        self.infer("step: it begins anew with every epoch; those of the epochs before are added")
        return own

    def counted_on(self, step: object) -> object:
        """A row's step; where the counter began anew behind a checkpoint, counted on from there."""
        at = whole(step) if self._checkpoint or self._behind else None
        if at is None:
            return step
        if self._checkpoint:
            self._behind, self._checkpoint = self._checkpoint * (at < self._checkpoint), 0
            if self._behind:
                self.infer(f"steps: counted on from {self._behind}, the checkpoint that a row "
                           "names, since they begin anew behind it")  # fmt: skip
        return at + self._behind

    def found(self) -> None:
        """The named counter is a column that the reader hands over as the step."""
        self.busy = False

    def define(self, key: str, counter: str) -> None:
        """Take what the log itself says counts the steps of a key (`eval/*`: of many)."""
        self.defined |= {key: counter} if counter else {}
        self._own |= {counter} if counts_checkpoints(counter) else set()

    def see(self, keys: Iterable[str]) -> None:
        """Take those of the keys that count updates, by a trainer's name or as the log says it."""
        self.seen |= {k: None for k in keys if k in STEP_KEYS or k in self._own} | self.logged

    def axis(self, key: str) -> str | None:
        """The key that counts updates for a logged key; None: the tracker's own step."""
        if self.wanted is not None or not self.seen:
            return None
        return axis_of(key, self.seen, self.defined)

    def value(self, value: object) -> int | None:
        """A counter's value; ms-swift writes it with the plan, `5/100`."""
        if isinstance(value, str) and "/" in value:
            value = value.split("/", 1)[0]
        return whole(value)

    def own(self, step: object, values: Mapping[str, object]) -> tuple[object, bool]:
        """The step of a row whose tracker counts calls, and whether it does: prime-rl logs `step`.

        Of the same name as the tracker's, it is no counter beside it, but that of all rows; one
        that outruns steps that were handed over, and so count no calls, is asked about.
        """
        another = self.wanted not in (None, "step") and not self.evaluated
        own = None if another else self.value(values.get("step"))
        if own is None:
            named = self.logged and self.wanted == "step"
            return self.place(step, values, calls=True) if named else step, True
        self.logged["step"], self._last = None, own
        if (at := whole(step)) is not None:
            self.apart |= own != at
            first, before = self._handed or (at, own), self._call
            self._call, self._is_handed = at, self._is_handed or at > before + 1
            self._handed = first
            if self._is_handed and own - first[1] > at - first[0] and self.wanted is None:
                self.differ("_step", own, at)
        return own, False

    def place(self, step: object, values: Mapping[str, object], calls: bool) -> object:
        """The step of a row by the counter that the user named."""
        assert self.wanted is not None
        if self.wanted in values:
            found = self.value(values[self.wanted])
            for key in self.seen.keys() & values.keys() - {self.wanted}:
                self._ends[key] = max(self._ends.get(key, 0), whole(values[key]) or 0)
            if found is not None:
                self._last = found
                if (at := whole(step)) is not None:
                    self._by_step[at] = found
            return values[self.wanted] if found is None else found
        if calls:  # rows of one log call after the other: the last count still holds
            self._filled += 1
            return 0 if self._last is None else self._last
        return None

    def waits(self, step: object, values: Mapping[str, object], calls: bool) -> bool:
        """Whether a row is to wait for the counter: series kept apart share their steps."""
        if self.wanted in values or (calls and len(values) > 1):
            return False
        return whole(step) is not None

    def at(self, step: object) -> int | None:
        """The named counter at a step of the tracker's, or at the last one before it."""
        at = whole(step)
        if at is None or at in self._by_step:
            return None if at is None else self._by_step[at]
        before = [own for own in self._by_step if own < at]
        self._filled += bool(before)
        return self._by_step[max(before)] if before else (0 if self._by_step and not at else None)

    def compare(self, key: str, step: int, value: object) -> bool:
        """Take what seems to count updates beside the step; whether it still seems so."""
        own = whole(value)
        if own is None:
            return False
        seen = self._beside.setdefault(key, [])
        if seen and (own - seen[-1][1]) * (step - seen[-1][0]) < 0:
            del self._beside[key]
            return False
        seen[FEW:] = [(step, own)]
        if len(ahead := self._ahead.setdefault(key, set())) < FEW:
            ahead.add(own - step)
        return True

    def held_against(self) -> None:
        """Take the last values of what counted beside the step, where they are others."""
        for key, seen in self._beside.items():
            (at, own), (first_at, first) = seen[-1], seen[0]
            moved = own > first and at > first_at
            # beside a count of calls, one that slips once is another
            apart = abs(own - at) > 1 or (self.calls and len(self._ahead[key]) > 1)
            if moved and len(seen) > FEW and apart:
                self.differ(key, at, own)

    def side(self, step: int, values: Mapping[str, object]) -> int:
        """The step of numbers beside scores (lengths, tokens), where the tracker's counts calls."""
        if self.seen and self.wanted is None:
            for key in STEP_KEYS:
                if key in self.seen and key in values:
                    found = self.value(values[key])
                    return step if found is None else found
        return step

    def differ(self, key: str, step: int, own: int) -> None:
        """Take a row whose tracker says another step than its trainer."""
        if self._differ is None or own > self._differ[2]:
            self._differ = (key, step, own)

    def at_policy(self, key: str, step: int, own: int) -> None:
        """Take the update that an evaluation at a step says its policy had."""
        self._late.add(step - own)
        if step != own:
            self.differ(key, step, own)

    def lag(self, trainers: set[str]) -> int | None:
        """By how much evaluations stand after their policy's update; None where nothing says it.

        prime-rl logs one under the update that follows it, and both numbers say so.
        """
        if self.evaluated:
            return 0
        return 1 if self._late == {1} and "prime-rl" in trainers else None

    def agree(self, per_tick: int | Fraction) -> None:
        """Drop the doubt about a counter that moves by so many while the tracker's moves by one."""
        if self._differ is not None:
            _, step, own = self._differ
            self._differ = None if 0 <= step * per_tick - own < per_tick else self._differ

    def counts(self, batch: int) -> bool:
        """Whether the tracker's step is the trainer's counter times a batch: it counts rollouts."""
        return self._differ is not None and self._differ[1] == self._differ[2] * batch > 0

    def infer(self, line: str) -> None:
        """Take what was concluded rather than read."""
        if line not in self.inferred:
            self.inferred.append(line)

    def settle(
        self, what: str, last: int, planned: int | None,
        elsewhere: Sequence[tuple[str, str, int]], trainers: set[str], both: int, used: str | None,
        own_plan: int | None = None,
    ) -> None:
        """Refuse steps whose unit is not clear.

        Args:
            what: the log and the run, for the message.
            last: the last step.
            planned: how many updates were planned.
            elsewhere: scores without the counter that others have: (key, counter, how many).
            trainers: whose words the scores are.
            both: scores that have the tracker's step and the counter.
            used: the counter of the scores.
            own_plan: updates that were planned, as the log says it.

        Raises:
            UnclearError: with both values and the option that settles it.
        """
        if self._per_epoch and self.wanted is None:
            raise UnclearError(
                f"{what}: steps must count on, but they begin anew with every epoch; add the "
                "updates of the epochs before, or name what counts on with --set step=KEY.",
                options=("--set", "step=KEY"), trial=("--set", "step=step"),
            )
        if self._filled:
            self.infer(f"step: {self._filled} rows without {self.wanted} take the one before them")
        if self.wanted is None:
            self._doubts(what, last, elsewhere, trainers, both, planned)
        ended = [key for key, end in self._ends.items() if end == own_plan]
        if own_plan and ended and last > own_plan + 1 + own_plan // 50:
            raise UnclearError(
                f"{what}: steps must be updates, but {self.wanted} counts to {last} and {ended[0]} "
                f"to the {own_plan} that are planned; drop --set steps, and name {ended[0]} with "
                f"--set step={ended[0]}.", options=("--set", f"step={ended[0]}"),
                condition=f"`{ended[0]}` counts updates",
            )
        if planned is not None and last > planned + 1 + planned // 50:
            others = [k for k in self.seen if k not in (self.wanted, used)]
            raise UnclearError(
                f"{what}: steps must be updates, but the log counts to {last} and {planned} are "
                f"planned; name what counts updates with --set step=KEY"
                f"{' (there are ' + ', '.join(others) + ')' if others else ''}, or the plan, if "
                f"{last} updates were made, with --set steps={last}.",
                options=("--set", "step=KEY"), trial=("--set", f"steps={last}"))

    def _doubts(
        self, what: str, last: int, elsewhere: Sequence[tuple[str, str, int]], trainers: set[str],
        both: int, planned: int | None,
    ) -> None:
        if same := [key for key, count in self.rivals.items() if count >= FEW]:
            raise UnclearError(
                f"{what}: steps must be updates, but {same[0]} is the same number in "
                "every row; name what counts updates with --set step=KEY, or write a table of "
                "problems_per_batch, rollouts_per_problem, rollouts, score.",
                options=("--set", "step=KEY"), trial=("--set", "step=step"),
            )
        if self._differ is not None and self.lag(trainers) is None:
            key, step, own = self._differ
            raise UnclearError(
                f"{what}: one key must count updates, but step says {step} where {key} says "
                f"{own}; choose with --set step={key} or --set step=step.",
                options=("--set", f"step={key}"), condition=f"`{key}` counts updates",
            )
        if self.calls and elsewhere and both >= _ENOUGH and not self.apart:
            self.infer(  # the trainer hands its own counter to the tracker (verl)
                f"step: the tracker's own is {elsewhere[0][1]} wherever both stand, so it counts "
                "updates where it stands alone"
            )
        elif self.calls and elsewhere:
            key, axis, count = elsewhere[0]
            raise UnclearError(
                f"{what}: every score must have its updates beside it, but {count} of {key} have "
                f"no {axis}, and the tracker's own step (to {last}) counts calls of log; add --set "
                f"step={axis} to take the one before each, or --set step=_step.",
                options=("--set", f"step={axis}"), condition=f"`{axis}` counts updates",
            )
        if self.calls and not self.seen and last:
            if trainers & {*CALLS} or (planned is None and are_calls(self._rows)):
                raise UnclearError(
                    f"{what}: steps must be updates, but the tracker's own step (to {last}) counts "
                    f"calls of log and no key beside it counts updates; export the log with one "
                    f"({STEP_KEYS[0]}), or add --set step=_step if each call was one update.",
                    options=("--set", "step=KEY"), trial=("--set", "step=_step"),
                )
            if trainers & {"", "easyr1"} and planned is None:
                self.infer(f"step: the tracker's own (to {last}), {ASSUMED}")


def goes_back(was: float | None, now: float | None) -> bool:
    """Whether a clock stands before what it showed above.

    >>> goes_back(20.0, 10.0), goes_back(None, 10.0)
    (True, False)
    """
    return was is not None and now is not None and now < was
