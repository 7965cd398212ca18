"""A table that was given to an import: handed on to the command that reads it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isocompute.errors import InputError
from isocompute.importers.runs import UnclearError

if TYPE_CHECKING:
    from isocompute.domain import Curve
    from isocompute.importers.runs import ImportedRun
    from isocompute.importers.settings import Settings

TABLE = " is a table of columns"
_MOST_BYTES = 16 << 20  # of a table that is looked through for the names of runs


class TableError(InputError):
    """A table was given to an import.

    Args:
        text: as of any error.
        path: of the table.
        score: the column that seems to hold scores; "" without.
        command: what reads it.
        how: what that asks for, in words.
    """

    def __init__(self, text: str, path: Path, score: str, command: str, how: str = "") -> None:
        super().__init__(text)
        self.path, self.score, self.command, self.how = path, score, command, how

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return InputError, (str(self),)


def refuse_scores_elsewhere(
    runs: Sequence[ImportedRun], errors: Iterable[InputError], settings: Settings
) -> None:
    """Refuse logs without a held-out score where a table beside them has scores of all these runs.

    Raises:
        UnclearError: with the command that reads that table.
    """
    from isocompute.importers.scored import scores_unread

    if not runs or settings.columns or settings.split == "train" or any(
        scores_unread(run) or any(s.split != "train" for s in run.series) for run in runs
    ):
        return
    for one in (e for e in errors if isinstance(e, TableError) and e.score):
        small = one.path.is_file() and one.path.stat().st_size < _MOST_BYTES
        text = one.path.read_text("utf-8", "replace") if small else ""
        rows = Counter(re.split('[,;\t\n"]', text))
        if min(rows[run.name] for run in runs) > 1:
            raise UnclearError(
                f"logs must hold held-out scores, but those of {len(runs)} runs hold none that is "
                f"known, and {str(one.path)!r} has {one.score} of each; if that is the score, give "
                f"the table to fit: {one.command}; if it stands in the logs, add --map KEY=avg, "
                "and --set split=train if it is of the training batch."
            )


def is_a_table(path: Path, header: str) -> InputError:
    """The refusal of a table, with the command for it and all that this will ask for.

    Args:
        path: of the table.
        header: its first line.
    """
    from isocompute.importers.asking import likely_columns
    from isocompute.importers.headers import head_of, refuse_markdown
    from isocompute.importers.questions import answered, collected
    from isocompute.importers.scale import PLAIN
    from isocompute.importers.table import some
    from isocompute.importers.tidy import load_tidy
    from isocompute.importers.workbooks import is_workbook, of_sheets, sheets_of, shown

    if "|" in header:
        refuse_markdown(path, path.read_bytes()[:4096].splitlines())
    tables = of_sheets(sheets_of(path)) if is_workbook(path) else [path]
    if tables[0].suffix in (".csv", ".tsv"):
        header = ",".join(head_of(tables[0]).names)
    columns = [column.strip(' "') for column in re.split("[,;\t]", header.strip())]
    score = "" if "score" in columns else likely_columns(columns, ["score"]).get("score", "")
    how = f", with {score} as the score if it holds that" if score else ""
    words = ["--map", f"{score}=score"] if score else []

    def read(more: Sequence[str]) -> list[Curve]:
        settings, given = answered(None, more)
        scale = given.get("score_range", PLAIN)
        return [c for one in tables for c in load_tidy(one, settings=settings, score_range=scale)]

    asked = collected(read, words)[1]
    words += _once([word for one in asked for word in one.options])
    told = shown("; ".join(str(one).replace(f"{path}: ", "").rstrip(".") for one in asked))
    told = told.replace(f" (it has {some(columns)})", "").replace(shown(f"; {tables[0]}: "), "; ")
    how += f"{' and' if how else ' with'} what it will ask for ({told})" if told else ""
    command = shlex.join(["isocompute", "fit", str(path), *words])
    return TableError(
        f"an import reads logs of trainers and trackers, but {str(path)!r}{TABLE} "
        f"{', '.join(columns[:10]):.300}; give it to fit{how or ' as it is'}: {command}",
        path, score, command, how,
    )


def _once(words: Sequence[str]) -> list[str]:
    """Options without those that several questions have.

    >>> _once(["--set", "a=A", "--range", "-1", "1", "--set", "a=A"])
    ['--set', 'a=A', '--range', '-1', '1']
    """
    options = list[tuple[str, ...]]()
    for word in words:
        if word.startswith("--"):
            options.append((word,))
        else:
            options[-1] += (word,)
    return [word for option in dict.fromkeys(options) for word in option]
