"""A table that was given to an import: handed on to the command that reads it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.settings import load_settings

TABLE = " is a table of columns"


def is_a_table(path: Path, header: str) -> InputError:
    """The refusal of a table, with the command for it and all that this will ask for.

    Args:
        path: of the table.
        header: its first line.
    """
    from isocompute.importers.asking import likely_columns
    from isocompute.importers.headers import head_of, refuse_markdown
    from isocompute.importers.tidy import load_tidy

    if "|" in header:
        refuse_markdown(path, path.read_bytes()[:4096].splitlines())
    if path.suffix in (".csv", ".tsv"):
        header = ",".join(head_of(path).names)
    columns = [column.strip(' "') for column in re.split("[,;\t]", header.strip())]
    score = "" if "score" in columns else likely_columns(columns, ["score"]).get("score", "")
    how = f", with {score} as the score if it holds that" if score else ""
    maps = [f"{score}=score"] if score else []
    named = f" --map {shlex.quote(maps[0])}" if maps else ""
    try:
        load_tidy(path, settings=load_settings([], maps))
        how = how or " as it is"
    except InputError as error:
        asked = str(error).removeprefix(f"{path}: ").rstrip(".")
        how += f"{' and' if how else ' with'} what it will ask for ({asked})"
    return InputError(
        f"an import reads logs of trainers and trackers, but {str(path)!r}{TABLE} "
        f"{', '.join(columns[:10]):.300}; give it to fit{how}: "
        f"isocompute fit {shlex.quote(str(path))}{named}"
    )
