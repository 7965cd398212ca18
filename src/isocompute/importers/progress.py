"""What transformers' trainers print: `{'eval_reward': 0.31, 'epoch': 0.5}` and a progress bar.

The dictionary has no step; the bar stands at it before and is drawn anew right after (transformers
5.23, trainer_callback.py, ProgressCallback: tqdm.write; 5 prints numbers as text). Where the two
differ (only one of the streams was kept whole), the printed epoch tells which of them counts. Bars
of evaluations and data sets count something else: the first without a name is that of the training.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isocompute.importers.reading import number
from isocompute.importers.runs import UnclearError

_BAR = re.compile(
    r"(?:^|\r)(?:Train:)?\s*[0-9]{1,3}%\|[^|\r]{0,200}\|\s*([0-9]{1,12})/([0-9]{1,12}) \["
)
_LOGGED = re.compile(r"\{'[^\r\n]{1,20000}?'epoch': [^\r\n{}]{1,300}\}")
OF_MAX = "global_step/max_steps"
_NOT_NUMBERS = re.compile(r"(?<![\w'.])(?:nan|-?inf)(?![\w'])")


_PART = 0.4  # of an update; above half, the bar before and the one behind are told apart no more


class Progress:
    """Rows of one console, each with the step of the bar around it."""

    def __init__(self) -> None:
        self.total: int | None = None  # updates that the training bar counts to
        self.unplaced = 0
        self._bar: int | None = None  # where the training bar stands
        self._rows: list[_Row] = []

    def take(self, text: str, line: int) -> None:
        """Take a line of text with bars and rows in it."""
        marks = [(m.start(), m) for m in _BAR.finditer(text)]
        marks += [(m.start(), m) for m in _LOGGED.finditer(text)]
        for _, mark in sorted(marks, key=lambda pair: pair[0]):
            if mark.re is _LOGGED:
                values = _values(mark.group(0))
                if values is not None and "train_runtime" not in values:
                    row = _Row(line, values, self._bar)
                    self._rows.append(row)
                    if isinstance(said := values.get(OF_MAX), str):  # ms-swift: "10/60"
                        done, _, planned = said.partition("/")
                        if done.isdecimal() and planned.isdecimal():
                            row.before = row.after = int(done)
                            self.total = self.total or int(planned)
                continue
            step, total = int(mark.group(1)), int(mark.group(2))
            if self.total is None:
                self.total = total
            if total == self.total:
                self._bar = step
                for row in reversed(self._rows):
                    if row.after is not None:
                        break
                    row.after = step

    def finish(self, what: str) -> Iterator[tuple[int, dict[str, object], int]]:
        """(step, values, line) of every row; where the bars around a row differ, `epoch` decides.

        Raises:
            UnclearError: where it does not.
        """
        doubtful = [row for row in self._rows if row.after is not None and row.before != row.after]
        choice = "after"
        if doubtful:
            fits = [name for name in ("after", "before") if _even(self._rows, name)]
            known = [row for row in doubtful if row.before is not None]
            if len(fits) != 1 and (fits or known):
                row = (known or doubtful)[0]
                raise UnclearError(
                    f"{what}: the bars around a row must show one step, but those of line "
                    f"{row.line} show {row.before} and {row.after}; give the "
                    "trainer_state.json of the last checkpoint."
                )
            choice = (fits or ["after"])[0]
        for row in self._rows:
            step = getattr(row, choice)
            if step is None:
                self.unplaced += 1
            else:
                yield step, row.values, row.line


@dataclass(slots=True)
class _Row:
    """A printed row: its line, its values, where the bar before and behind it stands."""

    line: int
    values: dict[str, object]
    before: int | None
    after: int | None = None


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
    try:
        found = ast.literal_eval(_NOT_NUMBERS.sub("None", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found if isinstance(found, dict) else None
