"""From which budget on a choice leads that does not lead where all n were compared.

Shape legend: J configurations, X budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isocompute.answers.best import AS_GOOD, choice
from isocompute.answers.fit import Fit
from isocompute.domain import Configuration
from isocompute.domain.text import compact, unit_words

_PLACES = 60  # budgets looked at between the two: 4% apart over a decade


def overtakes(fit: Fit, chosen: Configuration, x: float) -> dict[str, Any] | None:
    """Where a choice for a budget takes the lead, if that lies beyond what was compared.

    Returns:
        `x`, from which on it scores best; what scores best at the last budget compared (`at`):
        `problems_per_batch`, `rollouts_per_problem`, and by how much the choice is `behind` it.
        None where it is best there, or as good; `x` is null where it leads at no budget tested.
    """
    known = fit.support[1]
    if x <= known or chosen not in fit.configurations:
        return None
    x_X = np.geomspace(known, x, _PLACES)
    mean_JX = fit.scores_at(x_X).mean(axis=0)
    mine_X, best = mean_JX[fit.configurations.index(chosen)], choice(mean_JX[:, 0])
    behind = float(mean_JX[best, 0] - mine_X[0])
    if behind < AS_GOOD:
        return None
    late = np.flatnonzero(mine_X < mean_JX.max(axis=0) - 1e-9)
    from_ = float(x_X[late[-1] + 1]) if late[-1] + 1 < _PLACES else None
    return {"x": from_, "at": known, "behind": behind, **fit.configurations[best]._asdict()}


def lead_words(d: Mapping[str, Any]) -> str:
    """One line of it; nothing where there is nothing to say."""
    found = d.get("overtakes")
    if not found or found["x"] is None:
        return ""
    first, at = (f"{float(f'{found[name]:.2g}'):.12g}" for name in ("x", "at"))
    n, unit = found["rollouts_per_problem"], unit_words(d["law"]["unit"])
    unit = "" if unit == "rollouts" else f" {unit}"
    other = f"n = {n}"
    if n == d["rollouts_per_problem"]:
        other = f"B_p = {found['problems_per_batch']}"
    return (
        f"from {compact(float(first))}{unit} on; at {compact(float(at))} {other} is "
        f"{found['behind']:.3f} ahead"
    )
