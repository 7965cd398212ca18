"""From a budget to a sweep: which one to run, its price, its worth, and when to stop it."""

from isocompute.design.candidates import Limits
from isocompute.design.choose import Asked, design_sweep, worlds_needed
from isocompute.design.kept import with_recipe
from isocompute.design.prior import Worlds, shipped_worlds, worlds_of
from isocompute.design.simulate import Sweep
from isocompute.design.study_file import Trainer, study_content, write_study
from isocompute.design.words import design_lines

__all__ = [
    "Asked", "Limits", "Sweep", "Trainer", "Worlds", "design_lines", "design_sweep",
    "shipped_worlds", "study_content", "worlds_needed", "worlds_of", "with_recipe", "write_study",
]  # fmt: skip
