"""What to do before a plan: checks with what they gain and cost, and those that are too dear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.step_lines import (
    checks,
    stake_words,
    step_cost,
    too_dear,
    with_checks,
)
from isocompute.answers.steps import OF_THE_SWEEP
from isocompute.answers.words import TOO_DEAR
from isocompute.report.words import Document

Section = dict[str, Any]

_FIRST = 3  # things to do before spending
_NOTHING = "No check is needed: run it."


def before(document: Document, *, plan: bool) -> Section:
    """The part of the first screen beside the facts.

    Args:
        document: of a plan, its scores as they are logged, or of a fit.
        plan: whether it is a plan that stands.
    """
    worth = checks(document) if plan and document.get("run_next") else []
    first = worth[:_FIRST]
    spent = with_checks(document, first)
    head = "In all" if document.get("trained") else "Out of the same budget:"
    left = too_dear(document, worth) if plan else []
    return {
        "first": _do_first(document),
        "first_head": "Do first" if not plan else "To learn more"
        if document.get("trained") else "Checks before you spend",
        "together": f"{head} {spent}." if spent else "",
        "again": any(one["settles"] in OF_THE_SWEEP for one in first),
        "dear": [_sentence(_priced(one, document, worth)) for one in left],
    }


def _do_first(document: Document) -> list[Section]:
    """At most three things to do before spending, with the command where one settles it."""
    steps = document.get("run_next") or (document.get("refusal") or {}).get("run_next") or []
    if document.get("rollouts") and document.get("run_next"):
        steps = checks(document) or [{"do": TOO_DEAR}]
    if not steps:
        steps = [{"do": row["todo"], "why": row["text"]} for row in told(document)
                 if row["level"] != "note" and row["todo"]]  # fmt: skip
    if not steps and (document.get("verdict") or {}).get("level") == "ok":
        steps = [{"do": _NOTHING}]
    reason = str((document.get("verdict") or {}).get("reason"))  # stands above already
    why = {row["code"]: row["text"] for row in told(document) if row["text"] not in reason}
    rows = [one if isinstance(one, Mapping) else {"do": one} for one in steps[:_FIRST]]
    return [
        {
            "do": _sentence(_priced(row, document)),
            "command": str(row.get("command") or ""),
            "why": str(row.get("why") or why.get(str(row.get("settles")), "")),
        }
        for row in rows
    ]


def _priced(
    step: Mapping[str, Any], document: Document, first: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A step with what it costs, in hours or money, and what it may gain beside the first ones."""
    stake = stake_words(step, document, first)
    beside = [part for part in (step_cost(step)[:2][-1], stake) if part]
    return str(step.get("do") or "") + (f" ({'; '.join(beside)})" if beside else "")


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "`")) else ".")


def told(document: Document) -> list[Section]:
    """Notices of a document as rows {"code", "level", "text", "todo"}."""
    return [
        {
            "code": str(row.get("code", "")),
            "level": str(row.get("level") or "caution"),
            "text": str(row.get("text") or row.get("message") or ""),
            "todo": str(row.get("remedy") or ""),
        }
        for row in document.get("notices") or document.get("warnings") or []
    ]
