"""Specifications + engine -> store: worker processes, leases, retries, resume, progress."""

from isocompute.runner.calibrate import calibrate
from isocompute.runner.open import missing_trainer, open_study, planned_study
from isocompute.runner.preflight import check_before_writing
from isocompute.runner.preview import Preview, preview
from isocompute.runner.progress import Progress, Summary
from isocompute.runner.run import default_workers, run_study
from isocompute.runner.settings import Settings

__all__ = [
    "Preview",
    "Progress",
    "Settings",
    "Summary",
    "calibrate",
    "check_before_writing",
    "default_workers",
    "missing_trainer",
    "open_study",
    "planned_study",
    "preview",
    "run_study",
]
