"""The errors that isocompute raises.

Every message has three parts: the rule, the values seen, and the cure, in one line.
The command line turns them into exit codes: 1 a failed run, 2 bad input, 3 a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class IsocomputeError(Exception):
    """Root of everything isocompute raises on purpose."""

    exit_code = 1


class InputError(IsocomputeError, ValueError):
    """Input that breaks a rule: a file, an option, an argument. Nothing was written.

    Args:
        text: one line: the rule, the values seen, the cure.
        options: words of the command line that settle it; what only the user knows in capitals.
        trial: words under which to look for what would be asked next, where those cannot be;
            None: nothing can be.
        condition: what must be true for those options to be right, "`i` counts updates"; "" where
            they are.
    """

    exit_code = 2

    def __init__(
        self, text: str = "", *, options: Sequence[str] = (), trial: Sequence[str] | None = None,
        condition: str = "",
    ) -> None:  # fmt: skip
        super().__init__(text)
        self.options = tuple(options)
        self.condition = condition
        self.trial = tuple(options if trial is None else trial)


class AskedError(InputError):
    """Everything that must be known before an input can be read, in one message.

    Args:
        asked: what was not clear, in the order in which it was met.
        then: words that the next command needs, where that is another one.
        after: what is asked there.
    """

    def __init__(
        self, asked: Sequence[InputError], then: Sequence[str] = (),
        after: Sequence[InputError] = (),
    ) -> None:  # fmt: skip
        lines = [str(one) for one in asked]
        text = lines[0] if len(lines) == 1 else " ".join(
            f"{i}) {line}" for i, line in enumerate(lines, 1)
        )
        super().__init__(text, options=[word for one in asked for word in one.options])
        self.asked = tuple(asked)
        self.then, self.after = tuple(then), tuple(after)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return InputError, (str(self),)


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
        document: what programs read of it, where it is more than that.
    """

    exit_code = 3

    def __init__(
        self, reason: str, run_next: Sequence[str] = (), document: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.run_next = tuple(run_next)
        refusal = {"reason": reason, "run_next": list(run_next)}
        self.document = {"version": 1, "refusal": refusal} if document is None else dict(document)
