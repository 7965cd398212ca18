"""The collectors of the runs of one file, where a row or a column says whose it is."""

from __future__ import annotations

from isocompute.importers.collect import MAX_RUNS, Collector
from isocompute.importers.ledger import Errors
from isocompute.importers.settings import Settings


def one_of(
    collectors: dict[str, Collector], key: str, name: str, errors: Errors, settings: Settings, *,
    named: bool = True,
) -> Collector | None:
    """The collector of one of a file's runs; None beyond those that a file may have.

    Args:
        collectors: those of the file, by key; a new run is entered.
        key: what tells the run from others.
        name: what it is called; where it is `named`, a pattern may find its settings there.
        errors, settings: see `Collector`.
    """
    if key not in collectors:
        if len(collectors) >= MAX_RUNS:
            return None
        collectors[key] = Collector(name, errors, settings.for_run(name) if named else settings)
    return collectors[key]
