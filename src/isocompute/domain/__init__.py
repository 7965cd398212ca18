"""What every later module uses: configurations, learning curves, notices."""

from isocompute.domain.curve import Configuration, Curve
from isocompute.domain.notices import Notice, as_warnings, documented, notice, ordered

__all__ = ["Configuration", "Curve", "Notice", "as_warnings", "documented", "notice", "ordered"]
