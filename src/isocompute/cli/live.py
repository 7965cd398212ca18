"""Progress on stderr: one line that renews itself on a terminal, a line now and then in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocompute.domain.text import visible

if TYPE_CHECKING:
    from isocompute.runner import Progress

_LOG_EVERY_S = 15.0
_BAR = 24


class LiveLine:
    """Shows each progress report; use as a context so that the line ends cleanly."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last_s = -_LOG_EVERY_S
        self._shown = False

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shown:
            print(file=sys.stderr)

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._shown:
            print(file=sys.stderr)
            self._shown = False
        print(visible(line, None), file=sys.stderr, flush=True)

    def __call__(self, report: Progress) -> None:
        """Show one report."""
        line = visible(report.line(), None)
        if self._terminal:
            share = min(report.rollouts_done / max(report.rollouts_total, 1), 1.0)
            bar = "#" * round(share * _BAR)
            width = shutil.get_terminal_size().columns - 1
            text = f"[{bar.ljust(_BAR, '.')}] {line}"[:width]
            print(f"\r{text.ljust(width)}", end="", file=sys.stderr, flush=True)
            self._shown = True
            return
        now = time.monotonic()
        if report.note or now - self._last_s >= _LOG_EVERY_S:
            self._last_s = now
            print(line, file=sys.stderr, flush=True)


class Screen:
    """Draws a few lines again and again: in place on a terminal, when they change in a log."""

    def __init__(self) -> None:
        self._last: list[str] = []
        self._height = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Show the present lines."""
        lines = [visible(line, None) for line in lines]
        if lines == self._last:
            return
        self._last = lines
        if sys.stdout.isatty():
            width, height = shutil.get_terminal_size()
            lines = [line[: width - 1] for line in lines[: height - 1]]
            if self._height:
                print(f"\x1b[{self._height}A\x1b[J", end="")
            self._height = len(lines)
        print("\n".join(lines), flush=True)
