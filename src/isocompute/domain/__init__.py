"""What every later module uses: configurations, learning curves, notices."""

from isocompute.domain.curve import Configuration, Curve, Groups
from isocompute.domain.notices import Effort, Notice, as_warnings, documented, notice, ordered

__all__ = [
    "Configuration", "Curve", "Effort", "Groups", "Notice", "as_warnings", "documented", "notice",
    "ordered",
]  # fmt: skip
