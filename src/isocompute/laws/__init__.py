"""Frontier -> n*(C), n*(M), B_p*(M), joint; intervals, identifiability, back-tests."""

from isocompute.laws.form import Law, fit_law
from isocompute.laws.sweep import Fit, LawPoint, fit_sweep

__all__ = ["Fit", "Law", "LawPoint", "fit_law", "fit_sweep"]
