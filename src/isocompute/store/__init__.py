"""One SQLite file per study: the only writer of records, and how they are read back."""

from isocompute.store.database import BusyError, Database, FencedError, StorageError
from isocompute.store.store import Accounting, Evaluations, Steps, Store, StoredRun

__all__ = [
    "Accounting",
    "BusyError",
    "Database",
    "Evaluations",
    "FencedError",
    "Steps",
    "StorageError",
    "Store",
    "StoredRun",
]
