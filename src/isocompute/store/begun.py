"""A study continues with the recipe that it began with, also under a newer version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isocompute.recipe import TIS_CAP, Recipe
from isocompute.study.sweep import Study

KEPT = (
    "this study continues as it began, without truncated importance sampling; newer studies with "
    "`difficulty` have it: to use it, start anew in another folder (-o)"
)


def keep_begun_recipes(stored: Mapping[str, tuple[dict[str, Any], int]], study: Study) -> Study:
    """The study with the recipes of its runs that have results.

    Studies of older versions with `difficulty` have no `importance_cap`. If the study file leaves
    the cap open and some runs were trained without it, all runs are.

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
