"""What transformers' trainers print: `{'eval_reward': 0.31, 'epoch': 0.5}` and a progress bar.

The dictionary has no step; the bar stands at it before and is drawn anew right after (transformers
5.23, trainer_callback.py, ProgressCallback: tqdm.write; 5 prints numbers as text). Where the two
differ (only one of the streams was kept whole), the printed epoch tells which of them counts. Bars
of evaluations and data sets count something else: the first without a name is that of the training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from isocompute.importers.formats.printed import AnotherRunError
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import number, parse_python
from isocompute.importers.values.series import OF_MAX

BAR = re.compile(
    r"(?:^|\r)(?:Train:)?\s*[0-9]{1,3}%\|[^|\r]{0,200}\|\s*([0-9]{1,12})/([0-9]{1,12}) \["
)
_LOGGED = re.compile(r"\{'[^\r\n]{1,20000}?'epoch': [^\r\n{}]{1,300}\}")
# Unsloth 2025.11, models/_utils.py; transformers 5.23, trainer.py, says it to its logger
_PLAN = re.compile(r"(Num Epochs|Total (?:optimization )?steps) = ([0-9][0-9,]{0,14})")
_ENDED = 0.02  # of the highest learning rate, below which a plan was trained to its end


_SLACK = 0.05  # of an update: floating point, and digits cut before
_PART = 0.4  # of an update; above half, the bar before and the one behind are told apart no more


class Progress:
    """Rows of one console, each with the step of the bar around it."""

    def __init__(self) -> None:
        self.total: int | None = None  # updates that the training bar counts to
        self.unplaced = 0
        self.by_epoch = False  # steps were told by epochs
        self._bar: int | None = None  # where the training bar stands
        self._rows: list[_Row] = []
        self._ended: _Row | None = None  # the trainer's last line, with the time of it all
        self._anew = False  # a bar began behind it
        self._cut = 0  # the last line of a first training
        self._again = False  # and rows of training followed
        self._epochs: int | None = None  # and updates by a banner, which counts without a bar
        self._planned: int | None = None
        self._every: int | None = None  # updates of a row, where they are known

    @property
    def is_unplanned(self) -> bool:
        """Whether neither a bar nor a banner says how many updates the rows are of."""
        return self.total is None and self._planned is None and self.began

    def plan(self, updates: int | None, every: int | None) -> None:
        """Take the updates that were planned, and those of a row; None of these: all were done."""
        self._planned, self._every = updates, every

    def take(self, text: str, line: int) -> None:
        """Take a line of text with bars, rows or a banner in it."""
        for word, count in _PLAN.findall(text):
            if word == "Num Epochs":
                self._epochs = int(count.replace(",", ""))
            else:
                self._planned = int(count.replace(",", ""))
        marks = [(m.start(), m) for m in BAR.finditer(text)]
        marks += [(m.start(), m) for m in _LOGGED.finditer(text)]
        for _, mark in sorted(marks, key=lambda pair: pair[0]):
            if mark.re is _LOGGED:
                values = _values(mark.group(0))
                if values is not None and "train_runtime" in values:
                    self._ended = self._ended or _Row(line, values, self._bar)
                    self._cut = self._cut or line
                elif values is not None:
                    row = _Row(line, values, self._bar)
                    self._rows.append(row)
                    if row.trains and not self._again and self._is_earlier(row):
                        self._again, self._cut = True, min(self._cut, line - 1)
                    self._again |= row.trains and self._anew
                    if isinstance(said := values.get(OF_MAX), str):  # ms-swift: "10/60"
                        done, _, planned = said.partition("/")
                        if done.isdecimal() and planned.isdecimal():
                            row.before = row.after = int(done)
                            self.total = self.total or int(planned)
                continue
            step, total = int(mark.group(1)), int(mark.group(2))
            if self.total is None:
                self.total = total
            if self._ended is not None and not (self._anew or self._again):
                self._anew = not step
                self._cut = self._cut if self._anew else line
            if total == self.total:
                self._bar = step
                for row in reversed(self._rows):
                    if row.after is not None:
                        break
                    row.after = step
                if self._ended is not None and not self._anew:
                    self._ended.after = step

    def _is_earlier(self, row: _Row) -> bool:
        """Whether a row behind the trainer's last line is of an earlier epoch than that."""
        if self._ended is None or row.line <= self._ended.line:
            return False
        ends, at = (number(one.values.get("epoch")) for one in (self._ended, row))
        return ends is not None and at is not None and at < ends

    def _is_whole(self) -> bool:
        """Whether the plan of a banner was trained to its end, and not stopped on the way."""
        trains = [row for row in self._rows if row.trains]
        if self._every is not None and self._planned is not None and trains:
            left = self._planned - self._every * len(trains)
            if left == 0:
                self._ended = self._ended or trains[-1]
            return 0 <= left < self._every and self._ended is not None
        if self._ended is None or not trains:
            return len(trains) == self._planned
        rates = [rate for row in trains if (rate := number(row.values.get("learning_rate")))]
        last = number(trains[-1].values.get("learning_rate"))
        return number(self._ended.values.get("epoch")) == self._epochs or (
            last is not None and last <= _ENDED * max(rates, default=0.0)
        )

    @property
    def began(self) -> bool:
        """Whether there are rows."""
        return bool(self._rows)

    def finish(self, what: str) -> Iterator[tuple[int, dict[str, object], int]]:
        """(step, values, line) of every row; where the bars do not say it, `epoch` decides.

        Raises:
            UnclearError: where it does not.
            AnotherRunError: another training follows.
        """
        if self._again:
            raise AnotherRunError(self._cut)
        if self.total is None and self._planned is not None and self._is_whole():
            self.total = self._planned  # every row stands before its end, as the last line does
            for row in (*self._rows, *filter(None, [self._ended])):
                row.before, row.after = 0, self.total
        placed = [row for row in self._rows if row.after is not None]
        shared = next(((a, b) for a, b in pairwise(self._rows) if a.is_apart(b)), None)
        if shared or len(placed) < len(self._rows):
            if told := self._told_by_epochs():
                yield from told
                return
            if self.total is not None and not any(map(_is_rewarded, self._rows)):
                return  # a training before it, by examples: where its rows stand is of no curve
            if self.total is not None and (shared or not placed):
                row, other = shared or (self._rows[0], self._rows[-1])
                where = "have none" if self._bar is None else (
                    f"stand behind the bar of step {row.bar()} together"
                )
                raise UnclearError(
                    f"{what}: a bar must stand before and behind every row, but lines {row.line} "
                    f"and {other.line} {where}, and their epochs do not tell their steps; give the "
                    "trainer_state.json of the last checkpoint, or move the console away."
                )
        doubtful = [row for row in placed if row.before != row.after]
        choice = "after"
        if doubtful:
            fits = [name for name in ("after", "before") if _even(self._rows, name)]
            known = [row for row in doubtful if row.before is not None]
            if len(fits) != 1 and (fits or known):
                if told := self._told_by_epochs():
                    yield from told
                    return
                row = (known or doubtful)[0]
                raise UnclearError(
                    f"{what}: the bars around a row must show one step, but those of line "
                    f"{row.line} show {row.before} and {row.after}; give the "
                    "trainer_state.json of the last checkpoint, or move the console away."
                )
            choice = (fits or ["after"])[0]
        for row in self._rows:
            step = getattr(row, choice)
            if step is None:
                self.unplaced += 1
            else:
                yield step, row.values, row.line

    def _told_by_epochs(self) -> list[tuple[int, dict[str, object], int]]:
        """Every row at the step that its epoch tells; none where they do not tell all."""
        if self.total is None:
            return []
        if every := _updates_of_each(self._rows, self.total):
            self.by_epoch = True
            return [(every * at, row.values, row.line) for at, row in enumerate(self._rows, 1)]
        read = (_by_epoch(self._rows, self._ended, self.total, after=a) for a in (True, False))
        found = [steps for steps in read if steps]
        if not found or found[0] != found[-1]:
            return []
        self.by_epoch = True
        return [(step, row.values, row.line)
                for step, row in zip(found[0], self._rows, strict=True)]  # fmt: skip


@dataclass(slots=True)
class _Row:
    """A printed row: its line, its values, where the bar before and behind it stands."""

    line: int
    values: dict[str, object]
    before: int | None
    after: int | None = None

    def bar(self, *, after: bool = True) -> int:
        """Where the bar stands behind it, or before it; at the other end where there is none."""
        one, other = (self.after, self.before) if after else (self.before, self.after)
        return one if one is not None else -1 if other is None else other

    @property
    def trains(self) -> bool:
        """Whether it is of updates, of which a step has one row."""
        return not any(key.startswith("eval_") for key in self.values)

    def is_apart(self, other: _Row) -> bool:
        """Whether it is of another step; ms-swift's rows say theirs."""
        same = (self.before, self.after) == (other.before, other.after)
        if not same or self.bar() < 0 or OF_MAX in self.values or (
            self.trains != other.trains and self.before != self.after  # one of each bar
        ):
            return False
        both = self.values.keys() & other.values.keys() if self.trains and other.trains else ()
        return any(self.values[key] != other.values[key] for key in (*both, "epoch"))


def _is_rewarded(row: _Row) -> bool:
    """Whether a row may be of a curve: it has a reward, or an evaluation."""
    return not row.trains or any("reward" in key for key in row.values)


def _updates_of_each(rows: Sequence[_Row], total: int) -> int:
    """Of how many updates each row is, in order to the plan's end; 0 where that is not known.

    Some that were held back stand behind their bar, none before it.
    """
    every, left = divmod(total, len(rows))
    if left or not all(row.trains and every * at <= row.bar() for at, row in enumerate(rows, 1)):
        return 0
    told = [number(row.values.get("epoch")) for row in rows]
    at_K = np.arange(1, len(rows) + 1)
    epoch_K = np.array([np.nan if epoch is None else epoch for epoch in told])
    off_K = np.abs(epoch_K - epoch_K[-1] * at_K / len(rows))
    digit_K = np.array([*map(_half_digits(rows), epoch_K.tolist())])
    return every if bool((off_K <= digit_K + digit_K[-1]).all()) else 0


def _half_digits(rows: Sequence[_Row]) -> Callable[[float], float]:
    """Half of the last digit of a printed epoch: of four (5 prints text), else of its decimals."""
    is_text = isinstance(rows[0].values["epoch"], str)
    decimals = max(len(str(row.values.get("epoch")).partition(".")[2]) for row in rows)
    return lambda epoch: 0.5 * 10.0 ** (
        math.floor(math.log10(epoch)) - 3 if is_text and epoch > 0 else -decimals)


def _by_epoch(
    rows: Sequence[_Row], ended: _Row | None, total: int, *, after: bool
) -> list[int] | None:
    """The step of every row by its epoch, None where that does not tell all.

    A bar in mid-training says the step of the last row before it, the bar at the end that of the
    trainer's last line. Epochs are rounded: where they leave several steps, rows of training stand
    at even distances.
    """
    epochs = [number(row.values.get("epoch")) for row in rows]
    trains = [row for row in rows if row.trains]
    if not trains or None in epochs or any(row.bar() < 0 for row in rows):
        return None
    margin = _half_digits(rows)
    last = {row.bar(after=after): (at, row) for at, row in enumerate(trains, 1)}
    fixed = [(at, row, bar) for bar, (at, row) in last.items() if bar < total]
    stop = ended
    if len(trains) == total == trains[-1].bar():  # a row for every update
        stop = trains[-1]
    if stop is not None and stop.values["epoch"] == trains[-1].values["epoch"]:
        fixed.append((len(trains), trains[-1], stop.bar()))
    ends = [(row, bar) for _, row, bar in fixed]
    if stop is not None and stop.bar() > 0:
        ends.append((stop, stop.bar()))
    known = [(e, bar) for row, bar in ends if (e := number(row.values.get("epoch")))]
    spans = [(bar / (e + margin(e)), bar / max(e - margin(e), 1e-12)) for e, bar in known]
    low, high = max((a for a, _ in spans), default=0.0), min((b for _, b in spans), default=0.0)
    if low > high or not spans:
        return None
    reach = [
        range(max(math.ceil((e - margin(e)) * low - _SLACK), 0),
              math.floor((e + margin(e)) * high + _SLACK) + 1) for e in epochs if e is not None
    ]  # fmt: skip
    begun = rows.index(trains[0])
    reach = [range(1) if at < begun and one.start == 0 else one for at, one in enumerate(reach)]
    for of in (True, False):
        if not of:  # an evaluation stands behind its row of training, and before the next
            pairs = [*zip(rows, reach, strict=True)]
            done = accumulate((one.start if row.trains else 0 for row, one in pairs), max)
            reach = [one if row.trains else range(max(one.start, at), min(one.stop, total + 1))
                     for (row, one), at in zip(pairs, done, strict=True)]  # fmt: skip
        own = [at for at, row in enumerate(rows) if row.trains == of and reach[at] != range(1)]
        every = _apart([reach[at] for at in own], {bar / at for at, _, bar in fixed if of})
        if every is None and any(len(reach[at]) != 1 for at in own):
            return None
        for nth, at in enumerate(own, 1):
            reach[at] = reach[at] if every is None else range(every * nth, every * nth + 1)
    steps = [one.start for one in reach]
    order = [k for k, row in zip(steps, rows, strict=True) if row.trains]
    fit = all(k in one and k <= row.bar(after=after)
              for k, one, row in zip(steps, reach, rows, strict=True))  # fmt: skip
    return steps if fit and all(a < b for a, b in pairwise(order)) else None


def _apart(reach: Sequence[range], told: Collection[float]) -> int | None:
    """The distance at which rows stand evenly, each within what its epoch leaves; None without one.

    `told`: by bars, which choose among several.

    >>> _apart([range(4, 7), range(9, 12), range(14, 17)], ())
    5
    >>> _apart([range(1, 4), range(1, 7)], ()), _apart([range(1, 4), range(1, 7)], {3.0})
    (None, 3)
    """
    first = reach[0] if reach else ()
    found = [k for k in first if k and all(k * at in one for at, one in enumerate(reach, 1))]
    found = found if len(found) == 1 or len({*told}) != 1 else [k for k in found if k in told]
    return found[0] if len(found) == 1 else None


def _even(rows: Sequence[_Row], name: str) -> bool:
    """Whether every row's epoch is the same share of its step, to a part of one update."""
    pairs = [
        (epoch, step) for row in rows
        if (step := getattr(row, name)) and (epoch := number(row.values.get("epoch")))
    ]
    if not pairs:
        return False
    share = float(np.median([epoch / step for epoch, step in pairs]))
    return bool(max(abs(epoch / share - step) for epoch, step in pairs) < _PART)


def _values(text: str) -> dict[str, object] | None:
    found = parse_python(text)
    return found if isinstance(found, dict) else None
