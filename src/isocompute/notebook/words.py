"""What the command line prints, in the words of Python: its options are arguments here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from isocompute.errors import InputError

_CALLS = (
    (r"isocompute plan SOURCE (?:--unit tokens )?--budget (\S+)", r'.plan("\1")'),
    (r"isocompute report SOURCE", '.report("report.html")'),
)
_WORDS = (
    (r"(?<=: )--(?:full|why)", ".notices"),
    (r" \(--why\)", ""),
    (r"--for (\w+)", r'trainer="\1"'),
    (r"--for\b", "trainer"),
    (r"--processes N", "processes=N"),
    (r"--processes\b", "processes"),
    (r"--set '(\w+)=([^']+)'", r'settings={"\1": "\2"}'),
    (r"--set (\w+)=([A-Z_\d.]*\w)", r'settings={"\1": \2}'),
    (r"--set (\w+)=(\w+)", r'settings={"\1": "\2"}'),
    (r"--map (\S+)=([\w@:]*\w)", r'settings={"columns": {"\1": "\2"}}'),
    (r"--range (LOW|-?[\d.]+) (HIGH|-?[\d.]*\d)", r"score_range=(\1, \2)"),
    (r"--range\b", "score_range"),
    (r"--fix (\w+)=(\d+)", r'fix=("\1", \2)'),
    (r"--(fix|joint|difficulty)\b", r"\1"),
    (r"--where (\S+=[^\s.,;)]+)", r'where="\1"'),
    (r"--n\b", "only_n"),
)
# Arguments of the same name, with a value where one stands.
_SAME = re.compile(
    r"--(problem-set|metric|split|unit|where|max-batch|min-steps|problems|current"
    r"|tokens-per-rollout|rollouts-per-gpu-hour|usd-per-gpu-hour)\b"
    r"(?: (?!out\b)([A-Z\d][\w.]*\b|\w+@[\w:]+|[\w:=-]+(?=[.,;)`\n]|$)))?"
)
# A command for a shell stays as it is, to the end of its line or of those that it goes on in.
_COMMAND = re.compile(r"(isocompute [a-z-]+ (?:[^\n]*\\\n)*[^\n]*)")


def in_python(text: str) -> str:
    """A text of the command line, with its options in the words of this module.

    >>> in_python("choose one with --problem-set; or add --rollouts-per-gpu-hour 900.")
    'choose one with problem_set; or add rollouts_per_gpu_hour=900.'
    """
    for option, word in _CALLS:
        text = re.sub(option, word, text)
    parts = _COMMAND.split(text)
    return "".join(part if i % 2 else _arguments(part) for i, part in enumerate(parts))


def _arguments(text: str) -> str:
    for option, word in _WORDS:
        text = re.sub(option, word, text)
    return _SAME.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if value is None:
        return name
    return f"{name}={value}" if re.fullmatch(r"[\d.]+|[A-Z_]+", value) else f'{name}="{value}"'


@contextmanager
def said_in_python() -> Iterator[None]:
    """Errors about input, in these words."""
    try:
        yield
    except InputError as error:
        error.args = (in_python(str(error)),)
        raise
