"""Tables with a row for every run and a column for every update, as a pivot or a sheet has them.

Such a table is a rectangle: where a run ended early, its cells are empty or repeat its last score.
What repeats to the edge is no evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.tables.table import FloatArray, scores_of
from isocompute.importers.values.imported import DESIGN, UnclearError
from isocompute.importers.words.names import written_in
from isocompute.importers.words.paths import regex_of
from isocompute.importers.words.plain_words import plain_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import counts_updates

if TYPE_CHECKING:
    import pyarrow as pa

    from isocompute.importers.tables.columns import Scores

Texts = dict[str, tuple[NDArray[np.int64], list[str]]]
# Of a tail of equal scores in a sheet. At half two equal ones among thirty scores are believed, at
# twice two of ten are doubted.
_CHANCE = 0.05
_LEAST = 4  # columns of updates; one less where their names say it
_OF_UPDATES = re.compile(
    r"(?:^|[^a-z])(?:u|t|i|it|iters?|iterations?|steps?|updates?|ckpt|checkpoint)[^a-z]*$", re.I
)
_OTHERS = re.compile(
    r"(?:^|[^a-z])(?:s|seeds?|n|g|k|bp|b|bs|run|rep|fold|trial|rank|gpu|p|q|problem|question|"
    r"layer|top|pass|best|avg|mean|maj|epochs?|ep|hours?|h|min|tokens?|rollouts?|samples?)"
    r"[^a-z]*$", re.I,
)  # fmt: skip
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


def pattern_of_updates(header: Sequence[str], missing: Sequence[str] = ()) -> str | None:
    """The `pattern` of a table with a column for every update; None where it has none.

    `missing`: what no column says, and the names of those of updates may.

    >>> pattern_of_updates(["run", "n", "u0", "u20", "u40", "u60"])
    'u{steps}'
    >>> pattern_of_updates(["step", "seed0", "seed1", "seed2", "seed3"])
    >>> pattern_of_updates(["set", "n8-step9", "n8-step19", "n8-step29"], ["rollouts_per_problem"])
    'n{rollouts_per_problem}-step{steps}'
    """
    found: dict[tuple[str, str], list[int]] = {}
    for cell in header:
        if match := _NUMBERED.fullmatch(cell.strip()):
            found.setdefault((match[1], match[3]), []).append(int(match[2]))
    for (before, after), numbers in found.items():
        gaps = {b - a for a, b in pairwise(numbers)}
        named = _OF_UPDATES.search(before) is not None
        if len(numbers) < _LEAST - named or min(gaps) < 1 or _OTHERS.search(before):
            continue
        if named or (len(gaps) == 1 < min(gaps) and "{" not in before):
            for name in missing:
                if (place := written_in(before, name)) is not None:
                    before = f"{before[: place[0]]}{{{name}}}{before[place[1] :]}"
            return f"{before}{{steps}}{after}"
    return None


def of_update(column: str, settings: Settings) -> tuple[Settings, int] | None:
    """What a pattern finds in the whole name of a column for an update, and that update.

    >>> pattern = Settings(pattern="u{steps}")
    >>> of_update("u20", pattern)[1], of_update("du20", pattern)
    (20, None)
    """
    match = re.fullmatch(regex_of(settings.pattern or ""), column)
    if match is None:
        return None
    found = {name: int(text) for name, text in match.groupdict().items() if text}
    step = found.pop("steps")
    return replace(settings, **found), step  # type: ignore[arg-type]  # the fields' own values


def says_end(column: str) -> bool:
    """Whether a column of a table with one for every update says how many a run did."""
    return counts_updates(plain_name(column.strip()).removesuffix("_total").removesuffix("_run"))


def turned(
    table: pa.Table, scores: Sequence[Scores], numbers: Mapping[str, FloatArray], texts: Texts,
    recorded: Mapping[str, FloatArray], path: Path, score_range: tuple[float, float],
) -> tuple[dict[str, FloatArray], Texts, dict[str, FloatArray], str]:
    """The table with a row for every score: columns (rows,), texts, recorded, a line about the end.

    Args:
        table: with a row for every run.
        scores: its columns of scores, one for each update.
        numbers, texts, recorded: its other columns; `steps`, how many updates a run did.
        path: of the table, for messages.
        score_range: what scores may be.

    Raises:
        InputError: scores stand beyond the end of a run, and are no padding.
    """
    count, base = table.num_rows, dict(numbers)
    end = base.pop("steps", np.full(count, np.inf))
    base.pop("rollouts", None)  # of the whole run
    step = np.array([float(one.step or 0) for one in scores])
    cells = np.stack([scores_of(table, one.column, path, score_range) for one in scores])
    for run in range(count):
        _check_beyond(step, cells[:, run], float(end[run]), run, path)
    beyond = (step[:, None] > np.where(np.isnan(end), np.inf, end)) & ~np.isnan(cells)
    cells[beyond] = np.nan
    long = {name: np.tile(values, len(scores)) for name, values in base.items()}
    for name in DESIGN:
        own = [getattr(one.settings, name) for one in scores]
        if name not in long and None not in own:
            long[name] = np.repeat(np.array(own, dtype=np.float64), count)
    long["steps"], long["score"] = np.repeat(step, count), cells.reshape(-1)
    there = ~np.isnan(long["score"])
    long = {name: values[there] for name, values in long.items()}
    words = {name: (np.tile(codes, len(scores))[there], of) for name, (codes, of) in texts.items()}
    said = {name: np.tile(values, len(scores))[there] for name, values in recorded.items()}
    told = f"{int(beyond.sum())} cells beyond the end of their run are left out"
    return long, words, said, told if beyond.any() else ""


def _check_beyond(step: FloatArray, cells: FloatArray, end: float, run: int, path: Path) -> None:
    """What stands beyond the end of a run must repeat its last score, or be empty."""
    after = (step > end) & ~np.isnan(cells)
    own = cells[(step <= end) & ~np.isnan(cells)]
    if after.any() and (not own.size or (cells[after] != own[-1]).any()):
        raise InputError(
            f"{path}: a run must end where it says, but row {run + 1} ends at update {end:g} and "
            f"has scores up to update {step[after][-1]:g}; correct its end, or empty those cells."
        )


def without_padding(
    curves: list[Curve], settings: Settings, path: Path, say: Callable[[str], None] | None,
    is_turned: bool,
) -> list[Curve]:
    """Curves without the scores that repeat to the edge of a table, where the user says so.

    Raises:
        UnclearError: runs repeat their last score to where others have scores of their own.
    """
    tails = [_tail(c) for c in curves]
    if settings.padded == "keep" or not tails:
        return curves
    if settings.padded == "drop":
        if say is not None and any(tails):
            say(f"{path}: {sum(tails)} scores that repeat the last one are left out (padded=drop)")
        return [_without(c, tail) for c, tail in zip(curves, tails, strict=True)]
    at = max(range(len(curves)), key=tails.__getitem__)
    if not (is_turned and _is_padded(curves, tails)):  # a run that collapsed stands still, too
        return curves
    c, batch = curves[at], curves[at].problems_per_batch * curves[at].rollouts_per_problem
    ended = c.rollouts_K[-1 - tails[at]] / batch
    raise UnclearError(
        f"{path}: a run must end with an evaluation of its own, but {c.run or c.configuration!s} "
        f"has {c.score_K[-1]:.6g} from step {ended:g} to {c.rollouts_K[-1] / batch:g}, "
        f"{tails[at] + 1} times; add --set padded=drop if that fills up a table, or --set "
        "padded=keep if each was measured."
    )


def _is_padded(curves: Sequence[Curve], tails: Sequence[int]) -> bool:
    """Whether the longest tail of equal scores is less likely than `_CHANCE`.

    Two neighbours are equal by chance as often as they are before the tails; one of few problems
    often has the score of the one before it.
    """
    equal = [int((np.diff(c.score_K) == 0).sum()) - tail
             for c, tail in zip(curves, tails, strict=True)]  # fmt: skip
    pairs = sum(max(len(c.score_K) - 1, 0) for c in curves) - sum(tails)
    return max(tails) > 0 and ((sum(equal) + 1) / (pairs + 2)) ** max(tails) < _CHANCE


def _tail(c: Curve) -> int:
    """Scores at the end of a run that repeat the one before them; those of 0 and 1 may be real."""
    if len(c.score_K) < 2 or c.score_K[-1] in (0.0, 1.0):
        return 0
    other = np.flatnonzero(c.score_K != c.score_K[-1])
    return len(c.score_K) - 2 - int(other[-1]) if other.size else 0


def _without(c: Curve, tail: int) -> Curve:
    if not tail:
        return c
    there = {k: v for k, v in vars(c).items() if k.endswith("_K") and v is not None}
    return c.replace(**{k: v[:-tail] for k, v in there.items()})
