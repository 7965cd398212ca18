"""What every later module uses: configurations, learning curves, notices."""

from isocompute.domain.curve import Configuration, Curve, Groups
from isocompute.domain.effort import Effort, Work
from isocompute.domain.notices import Notice, as_warnings, documented, notice, ordered

__all__ = [
    "Configuration", "Curve", "Effort", "Groups", "Notice", "Work", "as_warnings", "documented",
    "notice", "ordered",
]  # fmt: skip
