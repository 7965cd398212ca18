"""The errors that isocompute raises.

Every message has three parts: the rule, the values seen, and the cure, in one line.
The command line turns them into exit codes: 1 a failed run, 2 bad input, 3 a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence


class IsocomputeError(Exception):
    """Root of everything isocompute raises on purpose."""

    exit_code = 1


class InputError(IsocomputeError, ValueError):
    """Input that breaks a rule: a file, an option, an argument. Nothing was written."""

    exit_code = 2


class NotInstalledError(InputError):
    """A package that this needs is not installed."""


class RunError(IsocomputeError, RuntimeError):
    """A run that failed while it was running; what it had committed is kept."""

    exit_code = 1


class RefusalError(IsocomputeError):
    """A question that the data cannot answer.

    Args:
        reason: one line: the rule, the values seen, the cure.
        run_next: what to run so that the question can be answered, in words or commands.
    """

    exit_code = 3

    def __init__(self, reason: str, run_next: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.run_next = tuple(run_next)
