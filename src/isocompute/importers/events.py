"""Long tables of what happened, without a column of steps: an update is one of the events.

`run, elapsed_s, event, value` with a row for every update and every evaluation, in the order of
time: an evaluation stands at as many updates as have rows before it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from isocompute.importers.csv_cells import Rows
from isocompute.importers.csv_runs import STEPS, identity_of
from isocompute.importers.reading import CLOCKS, VALUE_WORDS, number
from isocompute.importers.runs import UnclearError

_EVENT = "event"
_UPDATE = re.compile(r"(?:train\w*|optim\w*|grad\w*)?[_ /]?(?:updates?|steps?|train)(?:ed)?", re.I)
_TIME = re.compile(r"(?:elapsed|wall|time|seconds)(?:[_ ].*)?|.*[_ ](?:time|sec|secs|seconds|s)")
TOLD = "step: the rows of {!r} before each, in the order of {}"


def are_events(plain: Sequence[str]) -> bool:
    """Whether a header, in lower case, is of events and their values, in time and without steps.

    >>> are_events(["run", "elapsed_s", "event", "value"]), are_events(["step", "event", "value"])
    (True, False)
    """
    return (_EVENT in plain and any(word in plain for word in VALUE_WORDS)
            and not any(word in plain for word in STEPS) and _clock(plain) is not None)  # fmt: skip


def _clock(plain: Sequence[str]) -> int | None:
    return next((i for i, cell in enumerate(plain) if cell in CLOCKS or _TIME.fullmatch(cell)),
                None)  # fmt: skip


def with_steps(path: Path, header: list[str], rows: Rows) -> tuple[list[str], Rows, str]:
    """The header and the rows of a long table with steps, and a line that says how they came.

    Raises:
        UnclearError: no single event is an update, or the clock does not say the order.
    """
    plain = [cell.strip().lower() for cell in header]
    named, own, rows = identity_of(plain, rows)
    event, clock = plain.index(_EVENT), _clock(plain)
    assert clock is not None
    kept = list(rows)
    kinds = Counter(cells[event] for _, cells in kept)
    updates = [kind for kind in kinds if _UPDATE.fullmatch(kind.strip())]
    times = [number(cells[clock]) for _, cells in kept]
    if len(updates) != 1 or None in times:
        raise UnclearError(
            f"{path}: a table of events must have one that is an update, and a time in every row, "
            f"but has {', '.join(sorted(kinds))[:200]}; add a column step, of updates done."
        )
    of = own if own is not None else named
    done, made = defaultdict[str, int](int), list[tuple[int, list[str]]]()
    order = sorted(range(len(kept)), key=lambda i: times[i] or 0.0)  # of one time as they stand
    for line, cells in (kept[i] for i in order):
        run, kind = "" if of is None else cells[of], cells[event]
        done[run] += kind == updates[0]
        name = f"train/{kind}" if kind == updates[0] else kind
        made.append((line, [*cells[:event], name, *cells[event + 1 :], str(done[run])]))
    names = [*header[:event], "metric", *header[event + 1 :], "step"]
    return names, iter(made), TOLD.format(updates[0], header[clock])
