"""The embedded engine: a tiny Llama-type transformer, trained by RL on a laptop's CPU.

Its worlds make problems without torch, so nothing of torch is imported with the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]


def __getattr__(name: str) -> Any:
    """`LocalEngine`, imported when it is asked for."""
    if name == "LocalEngine":
        from isocompute.engines.local.engine import LocalEngine

        return LocalEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
