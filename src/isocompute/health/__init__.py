"""Is a run healthy enough for a law to be read off it? Rules on step records, and smoothness."""

from isocompute.health.monitor import Monitor, check_arrays, check_steps
from isocompute.health.rules import METRICS, Finding, Severity, Thresholds
from isocompute.health.shape import Roughness, roughness, smoothness

__all__ = [
    "METRICS",
    "Finding",
    "Monitor",
    "Roughness",
    "Severity",
    "Thresholds",
    "check_arrays",
    "check_steps",
    "roughness",
    "smoothness",
]
