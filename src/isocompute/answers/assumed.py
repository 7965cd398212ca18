"""What the advice of a plan takes for granted, where the logs of its runs say that it is not plain.

Plain are on-policy updates at a constant rate: of these nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.domain import Curve
from isocompute.domain.text import compact
from isocompute.trainers.rows import FALLING


def assumptions(said: Mapping[str, Any], curves: Sequence[Curve], steps: int) -> list[str]:
    """Each in a few words: off-policy updates, a schedule that the plan's length changes, staleness.

    Args:
        said: what the logs of the runs say of their training.
        curves: of those runs.
        steps: of the plan.

    >>> assumptions({"updates_per_batch": 16.0, "passes_per_batch": 2.0, "staleness": 0.0}, [], 9)
    ['16 updates per batch, in 2 passes']
    """
    found = []
    if (updates := said.get("updates_per_batch", 1.0)) > 1:
        passes = said.get("passes_per_batch", 1.0)
        over = f", in {passes:g} passes" if passes > 1 else ""
        found.append(f"{updates:g} updates per batch{over}")
    if (kind := said.get("lr_schedule", "constant")) != "constant":
        ends = sorted(float(c.steps_K[-1]) for c in curves
                      if c.steps_K is not None and len(c.steps_K))  # fmt: skip
        span = " to ".join(dict.fromkeys(compact(end) for end in (*ends[:1], *ends[-1:])))
        rate = "a falling rate" if kind == FALLING else f"{kind.replace('_', ' ')} rate"
        found.append(f"{rate} over {compact(steps)} steps" + (f" (runs: {span})" if span else ""))
    if (old := said.get("staleness", 0.0)) > 0:
        found.append(f"asynchronous rollouts (staleness {old:g})")
    return found
