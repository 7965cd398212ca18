"""What every later room speaks in: configurations, learning curves, notices."""

from isocompute.domain.curve import Configuration, Curve

__all__ = ["Configuration", "Curve"]
