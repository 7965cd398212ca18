"""Records -> learning curves, record-breaking points, monotone sigmoid fits."""

from isocompute.curves.bins import BinnedRuns, Bins
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.curves.load import load_curves
from isocompute.importers.base import Curve

__all__ = ["BinnedRuns", "Bins", "Curve", "CurveFits", "fit_curves", "load_curves"]
