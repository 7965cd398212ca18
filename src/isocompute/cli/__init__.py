"""The command line: one command per stage, no logic.

Nothing heavy is imported here: commands import what they need when they run, so that
`isocompute --help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from isocompute.cli.asking import asking_lines
from isocompute.cli.output import write_json
from isocompute.cli.parser import build_parser, parse_options
from isocompute.domain.text import visible
from isocompute.errors import InputError, IsocomputeError, RefusalError

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _Terminated(BaseException):
    """SIGTERM arrived."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    0 success, 1 a failed run, 2 bad input, 3 a refusal, 130 Ctrl-C, 143 SIGTERM. Whatever goes
    wrong is one line on stderr.
    """
    for name in ("stdout", "stderr"):  # a shell's >&- closes them
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    previous = _on_sigterm()
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except RefusalError as error:
        more = [step.rstrip(".") for step in error.run_next if step not in error.reason]
        steps = f" Run next: {'; '.join(more)}." if more else ""
        return _complain(error.reason + steps, error.exit_code)
    except InputError as error:
        return _complain("\n".join(asking_lines(error, argv)), error.exit_code)
    except IsocomputeError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _complain("stopped by Ctrl-C; what was committed is kept.", 130)
    except _Terminated:
        return _complain("stopped by SIGTERM; what was committed is kept.", 143)
    except OSError as error:
        name = "" if error.filename is None else f"{error.filename}: "
        return _complain(
            f"{name}{error.strerror or error}; check the path, its permissions and the disk.",
            1 if error.errno in _DISK else 2,
        )
    except Exception as error:
        # The process ends here: one line for the user, the traceback for who asks for it.
        if os.environ.get("ISOCOMPUTE_DEBUG"):
            raise
        return _complain(
            f"unexpected {type(error).__name__}: {error}; this is a fault of isocompute. "
            "ISOCOMPUTE_DEBUG=1 shows where.",
            1,
        )
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _run(argv: Sequence[str] | None) -> int:
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions, see docs/cli.md
        import argcomplete

        argcomplete.autocomplete(build_parser())
    try:
        options = parse_options(argv)
    except SystemExit as asked:  # --help and --version have printed what they were asked for
        return int(asked.code or 0)
    try:
        code: int = options.command(options)
    except RefusalError as error:  # an answer, too
        write_json(error.document, getattr(options, "json", None))
        raise
    return code


def _on_sigterm() -> signal.Handlers | None:
    """Turn SIGTERM into an exception, in the main thread, where nobody else handles it."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return None
    try:
        signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread
        return None
    return signal.SIG_DFL


def _complain(message: str, code: int) -> int:
    """A message on stderr, with control characters made visible."""
    text = "\n".join(visible(line, None) for line in message.split("\n"))
    with contextlib.suppress(OSError):  # nobody may listen on stderr either
        print(f"isocompute: {text}", file=sys.stderr, flush=True)
    return code
