"""Records -> learning curves, record-breaking points, monotone sigmoid fits."""

from isocompute.curves.bins import BinnedRuns, Bins
from isocompute.curves.fits import CurveFits, fit_curves

__all__ = ["BinnedRuns", "Bins", "CurveFits", "fit_curves"]
