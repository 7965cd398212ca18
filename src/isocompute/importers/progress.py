"""What transformers' trainers print: `{'eval_reward': 0.31, 'epoch': 0.5}` and a progress bar.

The dictionary has no step; the bar is drawn anew right after it and has (transformers 5.23,
trainer_callback.py, ProgressCallback: tqdm.write; 5 prints numbers as text). Bars of evaluations
and data sets count something else: the first bar without a name is that of the training.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_BAR = re.compile(
    r"(?:^|\r)(?:Train:)?\s*[0-9]{1,3}%\|[^|\r]{0,200}\|\s*([0-9]{1,12})/([0-9]{1,12}) \["
)
_LOGGED = re.compile(r"\{'[^\r\n]{1,20000}?'epoch': [^\r\n{}]{1,30}\}")
_NOT_NUMBERS = re.compile(r"(?<![\w'.])(?:nan|-?inf)(?![\w'])")


class Progress:
    """Rows of one console, each with the step of the bar behind it."""

    def __init__(self) -> None:
        self.total: int | None = None  # updates that the training bar counts to
        self.unplaced = 0
        self._waiting: list[tuple[int, dict[str, object]]] = []

    def take(self, text: str, line: int) -> Iterator[tuple[int, dict[str, object], int]]:
        """(step, values, line) of every row whose step a line of text tells."""
        marks = [(m.start(), m) for m in _BAR.finditer(text)]
        marks += [(m.start(), m) for m in _LOGGED.finditer(text)]
        for _, mark in sorted(marks, key=lambda pair: pair[0]):
            if mark.re is _LOGGED:
                values = _values(mark.group(0))
                if values is not None:
                    self._waiting.append((line, values))
                continue
            step, total = int(mark.group(1)), int(mark.group(2))
            if self.total is None:
                self.total = total
            if total == self.total:
                for number, values in self._waiting:
                    yield step, values, number
                self._waiting = []

    def finish(self) -> None:
        """Count the rows that no bar followed."""
        self.unplaced += sum("train_runtime" not in values for _, values in self._waiting)


def _values(text: str) -> dict[str, object] | None:
    try:
        found = ast.literal_eval(_NOT_NUMBERS.sub("None", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found if isinstance(found, dict) else None
