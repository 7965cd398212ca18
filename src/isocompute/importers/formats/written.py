"""What people print and write themselves: `(4127) heldout {"update": 40, ...}`, notes, notebooks.

Lines end in an object of JSON or Python, its step in it or before it, or say a step and numbers
in words (`[eval] step 40 acc 0.5`), some of them of held-out problems; a notebook's stand in its
outputs, and its settings in its code. Where several jobs write into one file, what stands before
the object says whose line it is: the number of a process, or a name in front of a bar. A run takes
its name from an object that has one.

In Markdown a table with a column of updates is the course of the run that its column `run` or the
heading above it names, or of one for each n that its columns name; one without is of settings, by
run. What the text says of the seed holds for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from isocompute.errors import InputError
from isocompute.importers.beside.listed import NAMING
from isocompute.importers.formats.jsonl import RUN_KEYS, RunsOfRows, take_row
from isocompute.importers.formats.notebooks import RESUMES, cells_of, read_cells, trainings_of
from isocompute.importers.formats.printed import settings_in, steps_told
from isocompute.importers.formats.whose import STEP_COLUMNS
from isocompute.importers.runs.collect import Collector
from isocompute.importers.tables.handing import is_a_table, of_training_alone
from isocompute.importers.tables.workbooks import LATEX, SEED, is_workbook
from isocompute.importers.values.cells import means_of, of_hundred, of_means
from isocompute.importers.values.imported import (
    DESIGN,
    Errors,
    ImportedRun,
    Metric,
    UnclearError,
    provenance_of,
)
from isocompute.importers.values.reading import (
    OF_ONES_OWN,
    iter_lines,
    open_log,
    parse_json,
    parse_python,
    whole,
)
from isocompute.importers.values.series import is_text, step_of
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.meanings import tell_of_training
from isocompute.importers.words.names import runs_in_columns
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.plain_words import explained
from isocompute.importers.words.scored import likely_key
from isocompute.importers.words.settings import Column, Settings
from isocompute.importers.words.splits import SPLITS, split_of
from isocompute.importers.words.vocabulary import column_of

_LINE = re.compile(r"(?P<before>[^{]*[^{\s][^{]*?)\s*(?P<row>\{.*\})\s*")
_PROCESS = re.compile(  # the number behind a file is its line: [pipeline.py (612)], pipeline.py:612
    r"(?<!\.py)(?<!\.py )\((?:pid[ =:]*)?(?P<round>[0-9]+)\)|\bpid[ =:]*(?P<pid>[0-9]+)|"
    r"\[(?:pid[ =:]*)?(?P<square>[0-9]{2,7})\]|^\s*(?P<bar>[\w.:/-]+)\s*\|", re.I,
)  # fmt: skip
_SAID = re.compile(r"(?P<word>[A-Za-z][\w-]*)")
_WORD = re.compile(rf"{_SAID.pattern}[\s:=-]*$")
# [held-out] step   20  acc 0.4320
_TOLD = re.compile(
    r"(?P<before>[^{}]{0,80}?)\b(?:step|update|iter(?:ation)?)s?[ =:#]{1,6}(?P<step>[0-9]{1,9})\b"
    r"(?P<rest>[^{}]{1,400})$", re.I,
)  # fmt: skip
_NUMBER = re.compile(
    r"((?:(?:val|eval|test|valid|validation|dev|held-?out) )?"
    r"[A-Za-z_][\w@/.^-]{0,80})\s{0,4}[ =:]\s{0,4}(-?[0-9]*\.?[0-9]+(?:e-?[0-9]+)?%?)"
    r"(?=$|[\s,;|)\]])", re.I,
)  # fmt: skip
# (218/400), and what it counts
_SHARE = re.compile(r"(?<![\d/.])([0-9]{1,9})/([1-9][0-9]{0,8})(?![\d/.])(?:[ ]*([a-z]+))?", re.I)
# Words for solved problems; a share of others may be truncated, well-formed or wrong, or progress
_SOLVED = re.compile(
    r"(?:(?:val|eval|test|valid|validation|dev|held-?out)[ /_.-])?(?:mean[_.-])?(?:acc|accuracy|"
    r"correct|solved?|success|pass(?:ed|@1|_1|1)?|score|exact(?:_match)?|em|right|hits?|win)"
    r"(?:[_.-](?:rate|frac|fraction|share))?", re.I,
)
_ALONE = "solved"  # the key of a number that has none, and counts what it is of
_BESIDE = re.compile(  # words beside it that say nothing of what it is
    "at|after|on|of|the|for|set|global|training|train|greedy|held|out|result|results|problems",
    re.I,
)
_NAMING = re.compile(r"[A-Za-z][\w@-]*")
_LOGGER = re.compile(r"(?:[\w.]+:[0-9]+ \[?)?\b(?:INFO|DEBUG|WARNING)\b(?::[\w.]+)?")
_RESPONSES = re.compile("samples|responses|rollouts|completions|generations|answers|trials", re.I)
# of a line that holds no row, or before one
_STEP = re.compile(
    r"\b(?:global_|train_)?(?:step|update|iter(?:ation)?)[ =:#]{1,3}([0-9]{1,9})\b", re.I
)
_CLOSE = 6e-4  # of a share that is printed with three digits
_LEAST = 3  # lines; one or two may be settings that a log of another kind prints
_RULER = re.compile(r"\|?[\s:|-]*-[\s:|-]*")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*")
_UPDATES = ("updates", "batches", *STEP_COLUMNS)
_CELL = "score"  # the key of scores that only the name of their run's column stands above
_LONGEST = 1 << 22


class _Row(NamedTuple):
    line: int
    process: str  # "" where the line names none
    row: dict[str, object]


def read_prefixed(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of the lines that end in a JSON object; none where there are no such lines.

    Raises:
        UnclearError: rows of several jobs, of which some do not say whose they are.
    """
    rows, counted = _rows(path), ""
    if not rows:
        rows, settings, counted = _told(path, settings)
    if len({one.process for one in rows}) > max(len(rows) / _LEAST, 1):  # of each line a number
        rows = [one._replace(process="") for one in rows]
    if len(rows) < _LEAST or not any(step_of(one.row) for one in rows):
        return []
    if (cells := cells_of(path)) is None:
        said: dict[str, object] = {}
        for _, text in _lines(path):
            said |= settings_in(text)
        return _runs(path, settings, rows, said, run_name(path), counted)
    step = next(key for one in rows if (key := step_of(one.row)))
    at = [(one.line, v) for one in rows if (v := whole(one.row.get(step))) is not None]
    found, began, resumes = list[ImportedRun](), 0, any(RESUMES.search(one.code) for one in cells)
    for name, last, said in trainings_of(cells, at):
        own = [one for one in rows if began < one.line <= last]
        called = f"{run_name(path)} {name}".strip()
        its = settings.for_run(called) if name else settings
        found += _runs(path, its, own, said, called, counted, resumes=resumes)
        began = last
    return found


def _runs(
    path: Path, settings: Settings, rows: Sequence[_Row], said: dict[str, object], called: str,
    counted: str, *, resumes: bool = False,
) -> list[ImportedRun]:
    """The runs of rows, with what is said of them, what they are called, and how they count."""
    named = {one.process for one in rows}
    lost = [one for one in rows if not one.process]
    if lost and (len(named) > 1 or _goes_back(rows, resumes=resumes)):
        raise UnclearError(
            f"{path}: every row must say whose it is where several jobs write one log, but line "
            f"{lost[0].line} names no process and no run; write each job a log of its own, or a "
            "key run into its rows, or leave it out."
        )
    first = Collector(called, Errors(str(path)), settings)
    first.configure(said)
    first.configure_beside(path, alone=called == run_name(path))
    if counted:
        first.counters.infer(counted)
    runs = RunsOfRows(first, path)
    names: dict[str, str] = {}
    for line, process, row in rows:
        own = next((v for key in RUN_KEYS if isinstance(v := row.get(key), str)), None)
        name = names.get(process, f"{called} {process}") if own is None else own
        if process and len(named) > 1:
            names[process] = name
            row = {"run": name, **{k: v for k, v in row.items() if k not in RUN_KEYS}}
        take_row(row, line, runs, {}, path)
    return runs.finish(path, "text", provenance_of(path, "text"))


def _goes_back(rows: Sequence[_Row], *, resumes: bool) -> bool:
    """Whether rows of one kind go back to their last, or to the first where a job `resumes`."""
    last, first = dict[str, int](), dict[str, int]()
    for one in rows:
        step = whole(one.row.get(step_of(one.row)))
        kind = repr((one.row.get("event"), *one.row))
        if step is not None and step <= (first if resumes else last).get(kind, -1):
            return True
        if step is not None:
            last[kind] = step
            first.setdefault(kind, step)
    return False


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if (cells := cells_of(path)) is not None:
        yield from enumerate((line for cell in cells for line in cell.printed), 1)
        return
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data is not None:
                yield number, data.decode("utf-8", "replace")


def _rows(path: Path) -> list[_Row]:
    """Rows in their order; one without a step takes it of the lines around, where these agree."""
    rows, first, at = list[_Row](), 0, ""
    for number, text in _lines(path):
        match = _LINE.fullmatch(text) if text.rstrip().endswith("}") else None
        if match is None and (said := _STEP.search(text)):
            rows[first:] = [one if said[1] != at or step_of(one.row)
                            else one._replace(row={"step": int(at), **one.row})
                            for one in rows[first:]]  # fmt: skip
            first, at = len(rows), said[1]
        if match is None:
            continue
        value, _ = parse_json(match["row"])
        if value is None and "{'" in text:
            value = parse_python(match["row"])
        if not isinstance(value, dict) or all(map(is_text, value.values())):
            continue
        if (of := _STEP.search(match["before"])) and not step_of(value):
            value = {"step": int(of[1]), **value}
        process = _PROCESS.search(match["before"])
        own = next((v for key in RUN_KEYS if isinstance(v := value.get(key), str)), "")
        told = own if process is None else next(filter(None, process.groups()), "")
        word = _WORD.search(match["before"]) or next(
            (one for one in _SAID.finditer(match["before"]) if one["word"].lower() in SPLITS), None
        )
        event = {} if word is None or "event" in value else {"event": word["word"]}
        rows.append(_Row(number, told, {**value, **event}))
    return rows


def _told(path: Path, settings: Settings) -> tuple[list[_Row], Settings, str]:
    """Rows that lines say in words; none where fewer than three seem to be of held-out problems.

    Also the settings, and a line, where those print the successes of one number beside it.
    """
    rows, held_out, shares, progress = list[_Row](), 0, set[tuple[str, str]](), set[bool]()
    for number, text, match in steps_told(_lines(path), _TOLD):
        words = _SAID.findall(match["before"])
        word = next((one for one in words if one.lower() in SPLITS), "")
        found = _NUMBER.findall(f"{_LOGGER.sub('', match['before'])} | {match['rest']}")
        if not found and word and (bare := _bare(match["rest"])):
            found = [(_name_of(match["before"]), bare)]
            progress.add(_SHARE.findall(match["rest"])[0][0] == match["step"])
        if not found:
            continue
        found = [(key, f"{float(said[:-1]) / 100:.10g}" if said[-1] == "%" else said)
                 for key, said in found]  # fmt: skip
        event = {"event": word} if word else {}
        rows.append(_Row(number, "", {"step": int(match["step"]), **event, **dict(found)}))
        own = SPLITS.get(word.lower()) == "validation"
        held_out += own or any(
            key in settings.columns or split_of(key) for key, _ in found
        )
        shares |= _counted(text, found) if own else set()
    if settings.columns:  # else a line of a response: Step 2: walk at 4
        rows = [one for one in rows if {"event", *settings.columns} & {*one.row}
                or tell_of_training([*one.row])]  # fmt: skip
    counts_steps = progress == {True} and all(
        {*one.row} <= {"step", "event", _ALONE} for one in rows)
    kept = rows if held_out >= _LEAST and not counts_steps else []  # (40/500) at step 40
    keys = Counter(key for one in rows for key in one.row if not held_out)
    key = likely_key([key for key, lines in keys.items() if lines >= _LEAST])
    if key != "KEY":
        raise of_training_alone(path, list(keys), key)
    (key, problems), *others = shares or {("", "")}
    if others or not key or settings.columns or column_of(key):
        return kept, settings, ""
    return kept, replace(
        settings, columns={key: Column(metric=Metric(kind="avg", variable=key))},
        evaluation_problems=settings.evaluation_problems or whole(problems),
    ), f"score: {key}, the share of {problems} that its lines count"


def _bare(text: str) -> str:
    """The one number of a line that counts what it is of, and says nothing else; "" for others.

    >>> _bare(": 39.6% (198/500)"), _bare(" = 0.396 (198/500 right)"), _bare(": 40% (2/5 cut)")
    ('39.6%', '0.396', '')
    """
    counts = _SHARE.findall(text)
    said = counts[0][2] if len(counts) == 1 else "?"
    if said and not _SOLVED.fullmatch(said) and not _RESPONSES.fullmatch(said):
        return ""
    rest = _SHARE.sub(" ", text)
    numbers = re.findall(r"[0-9]*\.?[0-9]+%?", rest)
    return numbers[0] if len(numbers) == 1 and not re.search("[a-z]", rest, re.I) else ""


def _name_of(before: str) -> str:
    """What stands before a step calls a number that has no other name.

    >>> _name_of("INFO:my.logger:[val] at "), _name_of("[eval] format ok "), _name_of("val pass@8 ")
    ('solved', 'format_ok', 'pass@8')
    """
    words = _NAMING.findall(_LOGGER.sub("", before))
    return "_".join(one for one in words if not _BESIDE.fullmatch(one)
                    and one.lower() not in SPLITS) or _ALONE  # fmt: skip


def _counted(text: str, found: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """The key whose number a line prints as successes of problems, too; of a line without, ""."""
    counts = [(int(one[1]) / int(one[2]), one[2] if not _RESPONSES.fullmatch(one[3] or "")
              else f"{one[2]} responses") for one in _SHARE.finditer(text)]  # fmt: skip
    own = {(key, of) for key, value in found for share, of in counts
           if abs(float(value) - share) < _CLOSE}  # fmt: skip
    return own if own and all(_SOLVED.fullmatch(key) for key, _ in own) else {("", "")}


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
    if found := read_prefixed(path, settings) or read_cells(path, settings):
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
    about, courses = dict[str, dict[str, object]](), list[tuple[_Table, int, int | None]]()
    for table in tables:
        named, step = table.at(NAMING), table.at(_UPDATES)
        names = [] if named is None else [row[named] for row in table.rows]
        if step is not None and (named is None or len({*names}) < len(names)):
            courses.append((table, step, named))
            continue
        for row in table.rows if named is not None else ():
            said = {explained(key): cell for key, cell in zip(table.names, row, strict=True)}
            said = {"steps" if k.lower() in _UPDATES else k: v for k, v in said.items() if v}
            found = configuration(said)
            ours = {name: v for name in DESIGN if (v := getattr(found, name)) is not None}
            about.setdefault(row[named or 0], {}).update(said | ours)
    seeds = {*SEED.findall("\n".join(line for line in text.splitlines() if "|" not in line))}
    wides = [runs_in_columns(table.names, step) for table, step, _ in courses]
    runs, again = dict[str, Collector](), Counter(key for wide in wides for key in wide)
    for (table, step, named), wide in zip(courses, wides, strict=True):
        means = means_of(cell for row in table.rows for i, cell in enumerate(row)
                         if not may_be_setting(table.names[i]))  # fmt: skip
        for nth, row in enumerate(table.rows, table.line + 2):
            values = {key: of_hundred(means.get(cell, cell)) for i, (key, cell)
                      in enumerate(zip(table.names, row, strict=True))
                      if cell and i not in (step, named)}  # fmt: skip
            own = (table.heading or run_name(path)) if named is None else row[named]
            of = {own: values} if named is not None or not wide else {  # a run in each column
                f"{own} {key}" if wide[key] or again[key] > 1 else key: {_CELL: values[key]}
                for key in wide if key in values}
            for name, said in of.items():
                if name not in runs:
                    one = runs[name] = Collector(name, errors, settings.for_run(name))
                    one.configure(about.get(name, {}))
                    one.counters.inferred += of_means(means)
                    if len(seeds) == 1 and "seed" not in " ".join((*one.configured, *wide)).lower():
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
            first, names, rows, at = at + 1, _cells(lines[at]), list[list[str]](), at + 2
            while at < len(lines) and "|" in lines[at]:
                if len(cells := _cells(lines[at])) == len(names):
                    rows.append(cells)
                at += 1
            yield _Table(first, heading, names, rows)
            continue
        at += 1


def _cells(line: str) -> list[str]:
    return [cell.strip(" \t`*") for cell in line.replace("**", "").strip().strip("|").split("|")]
