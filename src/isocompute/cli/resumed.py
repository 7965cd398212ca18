"""A dry run of a study that has a folder already, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute.cli.cells import indented, table, wrapped
from isocompute.domain.text import compact

if TYPE_CHECKING:
    from isocompute.runner import Preview
    from isocompute.study.cost import Cost


def resumed_lines(found: Preview, cost: Cost, folder: str) -> list[str]:
    """What is left to train, and what it costs.

    Args:
        found: what comes next.
        cost: of that, or of all that is left of a grid whose sweep goes on.
        folder: of the study.
    """
    from isocompute.cli.tables import grid_lines

    name = found.study.name
    ended = {state: count for state, count in found.states.items() if count}
    runs = ", ".join(f"{count} {state}" for state, count in ended.items())
    trained = f"{found.rollouts:,} rollouts are trained" + f" ({runs})" * bool(runs)
    if not found.trains and not found.goes_on:
        why = f" The sweep {found.ended}." if found.ended else ""
        if ended.keys() - {"done"}:
            why += " --retry-failed tries failed and invalid runs again."
        said = [f"{name}: nothing left to train; {trained}.{why}", "Nothing was run."]
    else:
        said = [f"{name}: {_to_go(found, cost)}; {trained}"]
    rows: dict[tuple[int, int, int, int], int] = {}
    for spec in found.trains:
        a = spec.allocation
        key = a.problems_per_batch, a.rollouts_per_problem, found.steps[spec.hash], a.steps
        rows[key] = rows.get(key, 0) + 1
    cells = [(str(b_p), str(n), str(done), str(end), compact(b_p * n * max(end - done, 0)),
              str(count)) for (b_p, n, done, end), count in sorted(rows.items())]  # fmt: skip
    lines = wrapped(*said, indent="")
    if rows:
        head = ("B_p", "n", "from step", "to step", "rollouts each", "runs")
        lines += indented(table(head, cells))
    if rows or found.goes_on:
        lines += wrapped(
            *grid_lines(found.study), *["Then it decides what to train next."] * found.goes_on,
            f"Nothing was run. Without --dry-run, it goes on in the folder {folder}.", indent="",
        )  # fmt: skip
    if found.thawed:
        lines.append(f"Would thaw n = {', '.join(map(str, found.thawed))}, to its end.")
    return [*lines, *wrapped(*found.notes, indent="")]


def _to_go(found: Preview, cost: Cost) -> str:
    """What is left; of an adaptive sweep that goes on, no more than it may spend."""
    from isocompute.study.cost import most_starts

    if not found.goes_on:
        return f"{cost.line()} to go"
    limit = found.study.grid().limit
    left = min(max(limit - found.rollouts, 0.0), cost.rollouts)
    share = left / max(cost.rollouts, 1)
    paid = cost.paid(share, most_starts(found.study, left, steps=found.steps))
    about = f", about {', '.join(paid)}" if paid else ""
    return f"adaptive, at most {left:,.0f} rollouts more (`adaptive.spend` is {limit:,.0f}){about}"
