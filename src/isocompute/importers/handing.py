"""A table that was given to an import: handed on to the command that reads it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.domain import Curve

TABLE = " is a table of columns"


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
    from isocompute.importers.tables import of_sheets
    from isocompute.importers.tidy import load_tidy
    from isocompute.importers.workbooks import is_workbook, sheets_of, shown

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
    words += [word for one in asked for word in one.options]
    told = shown("; ".join(str(one).replace(f"{path}: ", "").rstrip(".") for one in asked))
    told = told.replace(f" (it has {some(columns)})", "").replace(shown(f"; {tables[0]}: "), "; ")
    how += f"{' and' if how else ' with'} what it will ask for ({told})" if told else ""
    return InputError(
        f"an import reads logs of trainers and trackers, but {str(path)!r}{TABLE} "
        f"{', '.join(columns[:10]):.300}; give it to fit{how or ' as it is'}: "
        f"{shlex.join(['isocompute', 'fit', str(path), *words])}"
    )
