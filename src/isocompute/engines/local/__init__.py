"""The embedded engine: a tiny Llama-type transformer, trained by RL on a laptop's CPU."""

from isocompute.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
