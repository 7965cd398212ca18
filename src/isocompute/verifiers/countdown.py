"""Expressions that must use given digits once each and reach a target."""

from __future__ import annotations

import re
from decimal import Decimal

_EXPRESSION = re.compile(r"[0-9](?:[-+*][0-9])*")
_ANSWER = re.compile(r"([0-9]+)>([0-9]+)")


def value_of(expression: str) -> int | None:
    """Value of one-digit numbers joined by + - *, products first; None for any other text.

    >>> value_of("2+3*4-1"), value_of("2+"), value_of("12+3")
    (13, None, None)
    """
    if _EXPRESSION.fullmatch(expression) is None:
        return None
    total, term, sign = 0, int(expression[0]), 1
    for operator, digit in zip(expression[1::2], expression[2::2], strict=True):
        if operator == "*":
            term *= int(digit)
        else:
            total += sign * term
            term, sign = int(digit), 1 if operator == "+" else -1
    return total + sign * term


def meets_target(response: str, answer: str) -> bool:
    """Whether an expression uses the digits of `DIGITS>TARGET` once each and has that value.

    >>> meets_target("3*5+7", "357>22"), meets_target("5*5-3", "357>22")
    (True, False)
    """
    found = _ANSWER.fullmatch(answer.strip())
    text = response.strip()
    if found is None or sorted(text[0::2]) != sorted(found[1]):
        return False
    return value_of(text) == Decimal(found[2])  # int refuses more than 4,300 digits


def answer_fault(answer: str) -> str | None:
    """Why no expression can be compared with this answer, or None."""
    if _ANSWER.fullmatch(answer.strip()):
        return None
    return f"the answer must read DIGITS>TARGET, as 2357>22, but got {answer!r}"
