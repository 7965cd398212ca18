"""Every SOURCE -> learning curves; here scale, unit of a step and identity of a run are decided."""

from isocompute.sources.load import Loaded, Options, load_curves, load_with_train, source_names

__all__ = ["Loaded", "Options", "load_curves", "load_with_train", "source_names"]
