"""A study goes on under the recipe that it was begun with, whatever a word means by now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isocompute.recipe import TIS_CAP, Recipe
from isocompute.study.sweep import Study

KEPT = (
    "this study goes on as it was begun, without truncated importance sampling, which `difficulty` "
    "has come to mean; for a sweep with it begin anew in another folder (-o)"
)


def as_begun(stored: Mapping[str, tuple[dict[str, Any], int]], study: Study) -> Study:
    """The study with the recipes of its runs that have results.

    `difficulty` did not always mean an `importance_cap`. Where the study file leaves it to that
    word, and runs were trained without, all its runs are: none is begun anew, none is mixed in.

    Args:
        stored: specification and steps done of every run in the store, by hash.
        study: as the study file reads now.
    """
    words = json.dumps(study.source, default=str)
    if "difficulty" not in words or "importance_cap" in words:
        return study
    defaults = Recipe().to_dict()
    begun = [{**defaults, **spec.get("recipe", {})} for spec, steps in stored.values() if steps]
    runs = []
    for spec in study.runs:
        if spec.recipe.importance_cap == TIS_CAP:
            before = spec.recipe.replace(importance_cap=None)
            spec = replace(spec, recipe=before) if before.to_dict() in begun else spec
        runs.append(spec)
    return replace(study, runs=runs) if runs != list(study.runs) else study
