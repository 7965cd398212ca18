"""A study: one YAML file, validated, expanded to run specifications."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isocompute.study.spec import RunSpec
from isocompute.study.sweep import Limits, Study

if TYPE_CHECKING:
    from isocompute.study.file import load_study

__all__ = ["Limits", "RunSpec", "Study", "load_study"]


def __getattr__(name: str) -> Any:
    # pydantic and the YAML reader load only where a file comes in, not in every worker.
    if name != "load_study":
        raise AttributeError(f"module 'isocompute.study' has no attribute {name!r}")
    return importlib.import_module("isocompute.study.file").load_study
