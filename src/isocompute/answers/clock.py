"""How long the run of a plan takes, on as many GPUs as there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from isocompute.answers.prescribe import Question
from isocompute.domain.text import compact


def wall_clock(q: Question, gpu_hours: float | None) -> dict[str, float] | None:
    """`gpus` and `hours` of a run; None where the one or the other is not known.

    GPUs are those of the budget, else those of most of the sweep's runs.
    """
    known = Counter(c.gpus for c in q.fit.curves if c.gpus)
    gpus = q.gpus or (known.most_common(1)[0][0] if known else None)
    return None if gpus is None or gpu_hours is None else {"gpus": gpus, "hours": gpu_hours / gpus}


def clock_words(d: Mapping[str, Any]) -> str:
    """Time and GPUs of a plan: "19 days on 4 GPUs"; "" where they are not known."""
    if not (wall := d.get("wall")):
        return ""
    gpus = f"{wall['gpus']} GPU{'s' * (wall['gpus'] != 1)}"
    return f"{hours_words(wall['hours'])} on {gpus}"


def hours_words(hours: float) -> str:
    """A time in its own unit, to two digits.

    >>> [hours_words(h) for h in (455, 30, 1.5, 0.25, 0.001)]
    ['19 days', '30 hours', '1.5 hours', '15 minutes', '3.6 seconds']
    """
    for each, name in ((24.0, "days"), (1.0, "hours"), (1 / 60, "minutes")):
        if hours >= (1.5 if name == "days" else 1) * each:
            break
    else:
        each, name = 1 / 3600, "seconds"
    said = compact(float(f"{hours / each:.2g}"))
    return f"{said} {name.removesuffix('s') if said == '1' else name}"
