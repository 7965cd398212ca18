"""One hierarchical model of a sweep: curves in, draws out. Nothing else estimates."""

from isocompute.model.fit import fit_posterior
from isocompute.model.posterior import Posterior

__all__ = ["Posterior", "fit_posterior"]
