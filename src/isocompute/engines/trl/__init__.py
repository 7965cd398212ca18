"""TRL as an engine: GRPO and CISPO of any Hugging Face model, in a process of its own."""

from isocompute.engines.trl.engine import TrlEngine
from isocompute.engines.trl.options import TrlOptions, render_config, training_order

__all__ = ["TrlEngine", "TrlOptions", "render_config", "training_order"]
