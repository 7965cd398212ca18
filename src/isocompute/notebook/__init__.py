"""In a notebook: as short as on the command line, and every result a table."""

from isocompute.notebook.sweep import Prescription, Sweep, fit
from isocompute.notebook.table import Table

__all__ = ["Prescription", "Sweep", "Table", "fit"]
