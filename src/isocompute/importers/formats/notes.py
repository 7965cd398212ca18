"""Markdown of one's own notes: a table of runs with their settings, and each run's scores.

A table with a column of updates is the course of the run that its column `run` or the heading above
it names, or of one for each n that its columns name; one without is of settings, by run. What the
text says of the seed holds for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isocompute.errors import InputError
from isocompute.importers.beside.listed import NAMING
from isocompute.importers.formats.prefixed import read_prefixed
from isocompute.importers.formats.whose import STEPS
from isocompute.importers.runs.collect import Collector
from isocompute.importers.tables.handing import is_a_table
from isocompute.importers.tables.workbooks import LATEX, SEED, is_workbook
from isocompute.importers.values.imported import Errors, ImportedRun, provenance_of
from isocompute.importers.values.reading import OF_ONES_OWN
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.names import pattern_in_columns
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.plain_words import explained
from isocompute.importers.words.settings import Settings

_RULER = re.compile(r"\|?[\s:|-]*-[\s:|-]*")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*")
_UPDATES = ("updates", "batches", *STEPS)
_OURS = ("problems_per_batch", "rollouts_per_problem", "seed")
_CELL = "score"  # the key of scores that only the name of their run's column stands above
_LONGEST = 1 << 22


def read_written(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of notes or of a notebook; none where notes hold no table of a course.

    Raises:
        InputError: a notebook that prints no scores.
    """
    if path.suffix == ".md":
        return read_notes(path, settings)
    if path.suffix == LATEX:
        if is_workbook(path):
            raise is_a_table(path, "")
        return []
    if found := read_prefixed(path, settings):
        return found
    raise InputError(
        f"a notebook must print a step and a score in a line, but {str(path)!r} does not; give "
        f"what its trainer wrote (trainer_state.json), or {OF_ONES_OWN}."
    )


class _Table(NamedTuple):
    line: int  # of its header
    heading: str
    names: list[str]
    rows: list[list[str]]

    def at(self, words: tuple[str, ...]) -> int | None:
        """The column that has one of these names."""
        plain = [name.lower() for name in self.names]
        return next((plain.index(word) for word in words if word in plain), None)


def read_notes(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of a Markdown file; none where it has no course of any."""
    if path.stat().st_size > _LONGEST:
        return []
    text = path.read_text("utf-8", "replace")
    tables, errors = list(_tables(text)), Errors(str(path))
    about, courses = dict[str, dict[str, object]](), list[tuple[_Table, int]]()
    for table in tables:
        named, step = table.at(NAMING), table.at(_UPDATES)
        names = [] if named is None else [row[named] for row in table.rows]
        if step is not None and (named is None or len({*names}) < len(names)):
            courses.append((table, step))
            continue
        for row in table.rows if named is not None else ():
            said = {explained(key): cell for key, cell in zip(table.names, row, strict=True)}
            said = {"steps" if k.lower() in _UPDATES else k: v for k, v in said.items() if v}
            found = configuration(said)
            ours = {name: getattr(found, name) for name in _OURS}
            about.setdefault(row[named or 0], {}).update(said | {
                name: value for name, value in ours.items() if value is not None
            })
    seeds = {*SEED.findall("\n".join(line for line in text.splitlines() if "|" not in line))}
    runs = dict[str, Collector]()
    for table, step in courses:
        named, wide = table.at(NAMING), Settings(pattern=pattern_in_columns(table.names))
        is_wide = all(wide.for_run(k).named for i, k in enumerate(table.names) if i != step)
        for nth, row in enumerate(table.rows, table.line + 2):
            values = {key: cell for i, (key, cell) in enumerate(zip(table.names, row, strict=True))
                      if cell and i not in (step, named)}  # fmt: skip
            own = (table.heading or run_name(path)) if named is None else row[named]
            of = {own: values}
            if named is None and is_wide:  # a run in each column
                of = {key: {_CELL: cell} for key, cell in values.items()}
            for name, said in of.items():
                if name not in runs:
                    one = runs[name] = Collector(name, errors, settings.for_run(name))
                    one.configure(about.get(name, {}))
                    if len(seeds) == 1 and not any("seed" in key.lower() for key in one.configured):
                        one.configure({"seed": min(seeds)})
                        one.counters.infer(f"seed: {min(seeds)}, as the text of the notes says")
                runs[name].row(row[step], said, nth)
    provenance = provenance_of(path, "markdown")
    return [one.finish(path, "markdown", provenance) for one in runs.values()]


def _tables(text: str) -> Iterator[_Table]:
    lines, heading, at = text.splitlines(), "", 0
    while at < len(lines):
        if match := _HEADING.fullmatch(lines[at]):
            heading = match[1].strip("`*_ ")
        elif "|" in lines[at] and at + 1 < len(lines) and _RULER.fullmatch(lines[at + 1].strip()):
            first, names, rows = at + 1, _cells(lines[at]), list[list[str]]()
            at += 2
            while at < len(lines) and "|" in lines[at]:
                if len(cells := _cells(lines[at])) == len(names):
                    rows.append(cells)
                at += 1
            yield _Table(first, heading, names, rows)
            continue
        at += 1


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]
