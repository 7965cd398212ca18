"""What every later module uses: configurations, learning curves, notices."""

from isocompute.domain.curve import Configuration, Curve, Effort, Groups, Work
from isocompute.domain.notices import Notice, as_warnings, documented, notice, ordered, says

__all__ = [
    "Configuration", "Curve", "Effort", "Groups", "Notice", "Work", "as_warnings", "documented",
    "notice", "ordered", "says",
]  # fmt: skip
