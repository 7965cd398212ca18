"""Any trainer as an engine: a command that trains one run, and the log that it leaves.

The log is read by the readers of `isocompute import`: that is why this engine stands behind them.
"""

from isocompute.engines.command.engine import CommandEngine
from isocompute.engines.command.options import (
    FILL_IN,
    NEEDED,
    PLACE,
    READERS,
    CommandOptions,
    placeholders,
)

__all__ = ["FILL_IN", "NEEDED", "PLACE", "READERS", "CommandEngine", "CommandOptions",
           "placeholders"]  # fmt: skip
