"""The columns of a CSV log that say which run and which step a row is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from isocompute.importers.collect import Collector
from isocompute.importers.csv_cells import Rows
from isocompute.importers.reading import number
from isocompute.importers.unnamed import Unnamed
from isocompute.importers.vocabulary import STEP_KEYS

STEPS = ("step", "_step", "global_step", "iteration", "update", "steps", *STEP_KEYS)
_RUN = ("run", "run_name", "experiment", "trial", "name", "run.name")
_ID = ("run_id", "run_uuid", "run.hash", "run id", "wandb_id")  # tells runs of one name apart
_OWN = "id"  # W&B's, where it is none that counts rows


def identity_of(
    header: Sequence[str], rows: Rows
) -> tuple[int | None, int | None, Rows]:
    """The columns that name a run and that tell runs apart, where there are any; and the rows.

    A column `id` tells runs of one name apart, too, if its cells are no numbers.
    """
    plain = [cell.strip().lower() for cell in header]
    named = next((plain.index(c) for c in _RUN if c in plain), None)
    own = next((plain.index(c) for c in _ID if c in plain), None)
    named = own if named is None else named
    if own is not None or named is None or _OWN not in plain:
        return named, own, rows
    at = plain.index(_OWN)
    first = next(rows, None)
    if first is None:
        return named, None, rows
    cell = first[1][at].strip()
    return named, at if cell and number(cell) is None else None, chain([first], rows)


def settle(unnamed: Unnamed | None, collectors: Mapping[str, Collector]) -> None:
    """Name runs that no column names by what differs between them."""
    if unnamed is not None and (told := unnamed.settle(collectors)):
        for collector in collectors.values():
            collector.counters.infer(told)
