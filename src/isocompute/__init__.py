"""How to spend the rollouts of LLM reinforcement learning, and how sure to be.

`fit` fits a sweep, `Sweep.plan` plans from it, `Recorder` records a training loop.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute.allocation import Allocation, parse_budget
    from isocompute.answers import fit_law
    from isocompute.errors import InputError, IsocomputeError, RefusalError, RunError
    from isocompute.notebook import Prescription, Sweep, Table, fit
    from isocompute.recipe import Recipe
    from isocompute.recorder import Recorder

__version__ = "0.1.0"

# Loaded on first use, so that `import isocompute` and `isocompute --help` stay light.
_HOME = {
    "Allocation": "allocation",
    "parse_budget": "allocation",
    "InputError": "errors",
    "IsocomputeError": "errors",
    "RefusalError": "errors",
    "RunError": "errors",
    "Recipe": "recipe",
    "Recorder": "recorder",
    "Prescription": "notebook",
    "Sweep": "notebook",
    "Table": "notebook",
    "fit": "notebook",
    "fit_law": "answers",
}

__all__ = [
    "Allocation",
    "InputError",
    "IsocomputeError",
    "Prescription",
    "Recipe",
    "Recorder",
    "RefusalError",
    "RunError",
    "Sweep",
    "Table",
    "fit",
    "fit_law",
    "parse_budget",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        # modules of the package, such as isocompute.sources, without an import of their own
        if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'isocompute' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"isocompute.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
