"""One hierarchical model of a sweep: curves in, draws out. Nothing else estimates."""

from isocompute.model.posterior import Posterior, fit_posterior

__all__ = ["Posterior", "fit_posterior"]
