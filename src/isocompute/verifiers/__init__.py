"""0/1 rewards. A checker that crashes or hangs is an outcome `error`, never a reward of 0.

A verifier is a callable `(response, answer) -> Outcome`. Rules in plain Python are pure functions;
what runs foreign code (math-verify, a user's function) runs in a worker process that is killed
when it hangs (`worker`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from isocompute.errors import InputError
from isocompute.verifiers import countdown

MATH_TIMEOUT_S = 5.0  # the limit that math-verify itself sets on one comparison
FUNCTION_TIMEOUT_S = 10.0
START_TIMEOUT_S = 60.0  # importing sympy on a busy machine takes tens of seconds


class Outcome(NamedTuple):
    """What a verifier says of one response.

    Attributes:
        reward: 0 or 1; None where the verifier itself failed.
        error: why it failed, one line; None where it did not.
    """

    reward: int | None
    error: str | None = None


def failed_to_judge(error: BaseException) -> Outcome:
    """The outcome where a checker raised: no reward, and its words in one line."""
    text = f"{type(error).__name__}: {str(error)[:300]}"[:300]
    # it may quote a response: controls and halves of characters would reach terminal and study
    return Outcome(None, "".join(c if c.isprintable() else " " for c in text))


class Verifier(Protocol):
    """A way to judge responses. `spec` is the text that `load_verifier` understands."""

    spec: str

    def __call__(self, response: str, answer: str) -> Outcome:
        """Judge one response."""

    def check_answer(self, answer: str) -> str | None:
        """Why this answer can never be matched, or None where it can."""

    def close(self) -> None:
        """End what the verifier started. It starts again when it is called again."""


class RuleVerifier:
    """A verifier made of two pure functions.

    Args:
        spec: its name.
        rule: (response, answer) -> right or not; if it raises, the outcome is an error.
        fault: answer -> why it cannot be matched, or None.
    """

    def __init__(
        self, spec: str, rule: Callable[[str, str], bool], fault: Callable[[str], str | None]
    ) -> None:
        self.spec = spec
        self._rule = rule
        self._fault = fault

    def __call__(self, response: str, answer: str) -> Outcome:
        """Judge one response."""
        try:
            fault = self._fault(answer)
            return Outcome(None, fault) if fault else Outcome(int(self._rule(response, answer)))
        except Exception as error:  # noqa: BLE001  # no response may end the run that it is of
            return failed_to_judge(error)

    def check_answer(self, answer: str) -> str | None:
        """Why this answer can never be matched, or None where it can."""
        return self._fault(answer)

    def close(self) -> None:
        """Nothing to end."""


# An integer that stands alone: no digit, letter, point with digits, or fraction bar beside it.
_INTEGER = re.compile(r"(?<![\w.,/])[-+]?\d+(?:,\d{3})*(?![\w/]|[.,]\d)")


def last_integer(text: str) -> Decimal | None:
    """The last integer in a text; thousands may have commas, decimals and fractions do not count.

    A Decimal, which is exact whatever its length: Python's int refuses a text of more than 4,300
    digits, and a response may hold one.

    >>> last_integer("12 + 30 = 42."), last_integer("about 3.5"), last_integer("-1,200")
    (Decimal('42'), None, Decimal('-1200'))
    """
    found = _INTEGER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


_RADIX = {"bits": 2, "hexbits": 16}
_DIGITS = {"bits": re.compile("[01]+"), "hexbits": re.compile("[0-9a-fA-F]+")}


class Bits(NamedTuple):
    """A text of bits: their value as one number, and how many there are."""

    value: int
    size: int


def read_bits(text: str, name: str) -> Bits | None:
    """Bits of a text of 0 and 1 ("bits") or of hexadecimal digits ("hexbits"), None of another.

    >>> read_bits("a1", "hexbits")
    Bits(value=161, size=8)
    """
    if _DIGITS[name].fullmatch(text) is None:
        return None
    return Bits(int(text, _RADIX[name]), len(text) * (1 if name == "bits" else 4))


def agreement(given: Bits, right: Bits) -> int:
    """Places at which two texts of bits agree; 0 where they are not equally long.

    >>> agreement(Bits(0b1010, 4), Bits(0b1001, 4))
    2
    """
    if given.size != right.size:
        return 0
    return given.size - (given.value ^ right.value).bit_count()


def _no_fault(answer: str) -> str | None:
    return "the answer must not be empty" if not answer.strip() else None


def _integer_fault(answer: str) -> str | None:
    if re.fullmatch(r"\s*[-+]?\d+(?:,\d{3})*\s*", answer):
        return None
    return f"the answer must be an integer, but got {answer!r}"


def _exact(_: str) -> Verifier:
    return RuleVerifier("exact", lambda r, a: r.strip() == a.strip(), _no_fault)


def _integer(_: str) -> Verifier:
    return RuleVerifier("integer", lambda r, a: last_integer(r) == last_integer(a), _integer_fault)


def _countdown(_: str) -> Verifier:
    return RuleVerifier("countdown", countdown.meets_target, countdown.answer_fault)


def _at_least(spec: str) -> Verifier:
    name, _, number = spec.partition(">=")
    least = int(number) if re.fullmatch(r"\d{1,6}", number) else 0
    if least < 1:
        raise InputError(
            f"a verifier of agreeing bits must be written NAME>=K with K >= 1, but got {spec!r}; "
            f"write for example {name}>=21."
        )

    # A batch asks for the same few answers again and again.
    @lru_cache(maxsize=4096)
    def right_bits(answer: str) -> Bits | None:
        return read_bits(answer.strip(), name)

    def rule(response: str, answer: str) -> bool:
        given, right = read_bits(response.strip(), name), right_bits(answer)
        return given is not None and right is not None and agreement(given, right) >= least

    def fault(answer: str) -> str | None:
        right = right_bits(answer)
        if right is None or right.size < least:
            what = "a text of 0 and 1" if name == "bits" else "hexadecimal"
            return f"the answer must be {what} with at least {least} bits, but got {answer!r}"
        return None

    return RuleVerifier(spec, rule, fault)


_FACTORIES: dict[str, Callable[[str], Verifier]] = {
    "exact": _exact,
    "integer": _integer,
    "countdown": _countdown,
    "bits": _at_least,
    "hexbits": _at_least,
}


def load_verifier(
    spec: str, *, folder: str | Path = ".", timeout_s: float | None = None
) -> Verifier:
    """The verifier that a specification names.

    | specification | right when |
    |---|---|
    | `exact` | the texts are equal, apart from white space at both ends |
    | `integer` | the last integer of the response equals the answer |
    | `math` | math-verify finds the two equal (extra `[math]`) |
    | `bits>=K` | a text of 0 and 1, as long as the answer, agrees with it at K places or more |
    | `hexbits>=K` | the same for hexadecimal texts, four bits a digit |
    | `countdown` | the response uses the digits of the answer, `2357>22`, once each to make 22 |
    | `path/file.py:function` | `function(response, answer)` returns 1 (or True) |

    Args:
        spec: one of the table.
        folder: where relative paths of functions start.
        timeout_s: seconds after which a math or user's verifier is killed; the outcome is an
            error then. None: 5 s for math, 10 s for functions.

    Raises:
        InputError: unknown specification, missing file or function, a file that cannot be
            imported, `math` without math-verify, or a time-out that is not > 0.
    """
    if timeout_s is not None and not 0 < timeout_s < float("inf"):
        raise InputError(
            f"`timeout_s` of a verifier must be finite and > 0, but got {timeout_s!r}; "
            "give seconds."
        )
    path, colon, function = spec.rpartition(":")
    if spec == "math":
        return _worker(spec, "math", MATH_TIMEOUT_S if timeout_s is None else timeout_s)
    if colon and path.endswith(".py"):
        file = Path(folder) / path
        if not file.is_file() or not function.isidentifier():
            raise InputError(
                "a verifier of your own must be written path/file.py:function with a file that "
                f"exists, but got {spec!r}; check the path (relative paths start at "
                f"{Path(folder).resolve()})."
            )
        target = f"{file.resolve()}:{function}"
        return _worker(spec, target, FUNCTION_TIMEOUT_S if timeout_s is None else timeout_s)
    name, threshold, _ = spec.partition(">=")
    factory = _FACTORIES.get(name)
    if factory is None or (name in ("exact", "integer", "countdown") and threshold):
        raise InputError(
            "a verifier must be one of exact, integer, math, countdown, bits>=K, hexbits>=K, "
            f"path/file.py:function, but got {spec!r}; choose one of them."
        )
    return factory(spec)


def _worker(spec: str, target: str, timeout_s: float) -> Verifier:
    from isocompute.verifiers.worker import WorkerVerifier

    verifier = WorkerVerifier(
        spec, target=target, timeout_s=timeout_s, start_timeout_s=START_TIMEOUT_S
    )
    verifier.start()
    return verifier


def require_verifier(spec: str) -> None:
    """Refuse what `load_verifier` would; each is started once, however many runs ask.

    Raises:
        InputError: as `load_verifier`.
    """
    file = Path(spec.rpartition(":")[0]).resolve()
    _require_verifier(spec, file, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=256)
def _require_verifier(spec: str, _file: Path, _changed: int) -> None:
    load_verifier(spec).close()


def answer_fault(spec: str, answer: str) -> str | None:
    """Why an answer can never be matched under a verifier, or None; starts no process.

    Raises:
        InputError: unknown specification.
    """
    path, colon, _ = spec.rpartition(":")
    if spec == "math" or (colon and path.endswith(".py")):
        return _no_fault(answer)
    return load_verifier(spec).check_answer(answer)
