"""Consoles of verl, of transformers' trainers, and of those that `printed` knows.

verl prints `step:5 - KEY:VALUE - ...` behind prefixes, its command and its configuration; for
transformers' see `progress`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import IO

from isocompute.errors import InputError
from isocompute.importers.beside.beside import configuration_named
from isocompute.importers.formats.printed import (
    AnotherRunError,
    Block,
    Blocks,
    Joined,
    Part,
    parts_of,
    row_in,
    settings_in,
)
from isocompute.importers.formats.progress import Progress
from isocompute.importers.runs.collect import Collector
from isocompute.importers.runs.steps import BY_EPOCHS
from isocompute.importers.values.imported import (
    DESIGN,
    Errors,
    ImportedRun,
    UnclearError,
    disagree,
    provenance_of,
)
from isocompute.importers.values.reading import (
    OF_ONES_OWN,
    Line,
    ends_whole,
    flatten,
    iter_lines,
    open_log,
    parse_python,
    whole,
)
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.settings import Settings

# colours; what is copied from a page has lost their first sign: [36m(TaskRunner pid=123)[0m
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\[(?:0|1|3[0-7]|9[0-7])m")
# what srun and torchrun (a rank) and container logs (a time) put before a line, and (TaskRunner
# pid=123, ip=...)
PREFIX = re.compile(
    r"^(?:[0-9]{1,5}: |\[(?:default|rank)[0-9]{1,5}\]: ?|"
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]{5,20}(?:Z|[+-][0-9:]{4,6})? )*"
    r"(?:(\([A-Za-z_][^()]{0,200}\)) ?)?"
)
_PROCESS = re.compile(r"\([A-Za-z_]\w* [^()]{0,200}?pid=[0-9][^()]{0,200}\)")
# a progress bar may stand before it, in the same line: [1:12:31<6:01:14, 59.87s/it]step:5 - ...
STEP = re.compile(r"(?:^|[\s\]])step:([0-9]{1,15}) - (.*)", re.DOTALL)
# the command that started the run, whole (set -x) or line by line
_OVERRIDE = re.compile(
    r"(?:^|[\s'\"+])((?:data|actor_rollout_ref|trainer|algorithm|generator)(?:\.[A-Za-z_]\w*)+)=([^\s'\"\\]+)"
)
# print(args) of TRL and ms-swift: GRPOConfig(, then NAME=VALUE, on lines of their own or in one;
# those of engines and models (vLLM's DecodingConfig) say nothing of the run
_ECHO = re.compile(
    r"\b\w*(?:GRPO|RLOO|PPO|DPO|RLHF|Train(?:ing|er)?)(?:Config|Arguments)\((?=\s*(?:$|\w+=))")
_SAID = re.compile(r"(?:^|[(,\s])([a-z]\w{2,60})=([0-9][0-9.e+-]{0,30})(?=[,)\s]|$)")
_CALLED = "trainer.experiment_name"  # verl's name of a run: jobs of one console, or its starts
_MAX_CONFIG_LINES = 3_000
_BROKEN = 5  # last lines that may be torn or mixed with another process's
_TURNS = 4  # rows from one step back to the next; a run that goes on from a checkpoint has more
_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_MIXED = re.compile(r"(?<=[,{}\])])\((?:[\w:]+ )*pid=[0-9]{1,12}\).*")  # of another, in its line
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# verl 0.1 prints the first and last validation (trainer/ppo/ray_trainer.py, fit), and logs neither
_VALIDATED = re.compile(r"(Initial|Final) validation metrics: \{")
_TESTED = re.compile(r"'(test_score/[^']{1,300})': (?:np\.float64\()?([0-9.eE+-]{1,30})")
# [eval] step 20: 88/200 correct
_TOLD = re.compile(r"\b(?:step|update|iter\w{0,6})[ =:#]{1,3}[0-9]{1,9}\b[^{}|%]{0,60}?[ =:]"
                   r"(?:[0-9]{1,9}/[0-9]{1,9}|0?\.[0-9]{1,9})(?![0-9.])", re.I)  # fmt: skip
_GOES_ON = (" ", "'", '"', "}", "]", ")", ",", ":")  # of a further line of a dictionary


def read_console(path: Path, settings: Settings, cells: bytes | None = None) -> list[ImportedRun]:
    """The runs that a console log tells of; no rows if it is no such log.

    `cells`: what those of a notebook printed.
    """
    left, runs = parts_of(path) if cells is None else [Part()], list[ImportedRun]()
    while left:
        part = left.pop(0)
        try:
            runs += _read(path, settings, part, len(runs), cells)
        except AnotherRunError as another:
            left[:0] = part.cut(another.at)
    return runs


def _read(
    path: Path, settings: Settings, part: Part, others: int, cells: bytes | None
) -> list[ImportedRun]:
    """The runs of a part of a console, behind so many others."""
    errors = Errors(str(path))
    runs = _Runs(path, errors, settings, part, others)
    progress, blocks, joined = Progress(), Blocks(), Joined()
    config: list[str] = []
    printing: str | None = None  # the process that prints it
    last = ""  # step
    first: dict[str, object] = {}  # scores before it
    validated = ""  # which validation is printed
    told = ""  # a line of scores in a form of one's own
    depth, opened = 0, 0  # open brackets of a trainer's arguments; the line of the first
    with open_log(path) if cells is None else BytesIO(cells) as handle:
        for number, data in part.of(_whole_lines(handle, str(path), errors)):
            if data is None:
                errors.add(number, "a line is too long or cannot be unpacked")
                continue
            text = ANSI.sub("", data.decode("utf-8", "replace"))
            if "%|" in text or "'epoch': " in text or " steps = " in text:
                progress.take(PREFIX.sub("", text, count=1), number)
            # a progress bar rewrites its line: what follows the last return is what stood there
            text = text.rsplit("\r", 1)[-1]
            before = PREFIX.match(text)
            process = before.group(1) if before else None
            text = text[before.end() :] if before else text
            whole = joined.take(text, process)
            if whole is None:
                continue
            text = whole
            match = STEP.search(text)
            if match:
                config = _cut_off(config, text, runs.pending)
                named = _PROCESS.search(text, 0, match.start())  # behind a prefix of any form
                runs.speaks(process or (named and named[0]), int(match[1]))
                if first and not last:
                    runs.row("0", first, number)
                last = match.group(1)
                runs.row(last, _pairs(match.group(2)), number)
            elif validated or ((m := _VALIDATED.search(text)) and (validated := m[1])):
                scores: dict[str, object] = {f"val/{k}": v for k, v in _TESTED.findall(text)}
                if validated == "Initial":
                    first.update(scores)
                elif last and scores:
                    runs.row(last, scores, number)
                validated = "" if "}" in text else validated
            elif config and process == printing:  # another may print in between
                torn = config[-1].rstrip().endswith(":")  # Ray prints what a flush leaves of a line
                config = (_configuration if torn or text[:1] in _GOES_ON else _cut_off)(
                    config, text, runs.pending
                )
            elif not config and text.startswith("{'") and "'epoch': " not in text:
                printing, config = process, _configuration(config, text, runs.pending)
            elif depth or _ECHO.search(text):
                inside, opened = (text, opened) if depth else (_ECHO.split(text, 1)[1], number)
                said, depth = _own_arguments(inside, depth or 1)
                runs.hears(dict(_SAID.findall(said)), opened, progress)
            elif ".train_batch_size=" in text or ".rollout.n=" in text:
                runs.pending.update(_OVERRIDE.findall(text))
            elif found := blocks.take(text):
                runs.blocks(found, number)
            elif (printed := row_in(text)) is not None:
                runs.source = printed.source
                runs.row(printed.step, printed.values, number)
            else:
                told = told or (text if _TOLD.search(text) else "")
                runs.hears(settings_in(text), number, progress)
    runs.blocks(blocks.end(), 0)
    _cut_off(config, "", runs.pending)
    if progress.is_unplanned:
        progress.plan(*runs.planned())
    for step, values, at in progress.finish(str(path)):
        runs.source = "trl-console"
        runs.row(str(step), values, at)
    if progress.by_epoch:
        runs.found[-1].counters.infer(BY_EPOCHS)
    if progress.unplaced:
        errors.add(0, f"{progress.unplaced} rows are not followed by the trainer's progress bar")
        if progress.total is None:
            raise InputError(
                f"a console of transformers' trainers must hold the progress bar, which counts the "
                f"updates, but {str(path)!r} has {progress.unplaced} rows and no bar (it goes to "
                f"stderr); {_cure(told)}."
            )
    if progress.total is not None and runs.source == "trl-console":
        runs.plan(progress.total)
    return runs.finish()


def _cure(told: str) -> str:
    """What to give instead of a console without a bar; `told`: a line of scores of one's own.

    >>> _cure("[eval] step 20: 3/8 right")[:81]
    "its line '[eval] step 20: 3/8 right' is no trainer's: write a CSV of its scores: "
    """
    if (match := _TOLD.search(told)) is None:
        return ("give the trainer_state.json of the last checkpoint, or, if it was trained to the "
                "end, lay the launch script with --max_steps and --logging_steps beside it")
    share = match[0].rsplit(maxsplit=1)[-1]
    solved, _, of = share.partition("/")
    worth = f" ({share} is {int(solved) / int(of):.4g})" if int(of or 0) else ""
    return f"its line {told.strip()[:80]!r} is no trainer's: {OF_ONES_OWN}{worth}"


def _own_arguments(text: str, depth: int) -> tuple[str, int]:
    """What stands in the outermost of so many open brackets, and how many are open behind it.

    >>> _own_arguments("n=4, fsdp=Config(seed=1), seed=3), seed=0", 1)
    ('n=4, fsdp=Config, seed=3', 0)
    """
    kept = []
    for part in re.split(r"([()])", text):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if not depth:
            break
        if depth == 1 and part != ")":
            kept.append(part)
    return "".join(kept), 0 if text.strip() == ")" else depth


def _whole_lines(handle: IO[bytes], name: str, errors: Errors) -> Iterator[Line]:
    """Lines of a console; a last one without an end loses what may be half a number."""
    held: Line | None = None
    for line in iter_lines(handle, name):
        if held is not None:
            yield held
        held = line
    if held is None:
        return
    if held.data is not None and b"step:" in held.data and not ends_whole(handle):
        errors.add(held.number, "the file ends within this line: its last number was left out")
        held = Line(held.number, held.data.rpartition(b" - ")[0])
    yield held


class _Runs:
    """Runs of one file: a new one begins where another configuration, or the first step, does."""

    def __init__(
        self, path: Path, errors: Errors, settings: Settings, part: Part, others: int
    ) -> None:
        self.path = path
        self.errors = errors
        self.part = part
        self.name = part.name if part.named else run_name(path)
        self.settings = settings.for_run(self.name) if part.named else settings
        again = others and not part.named
        name = f"{self.name}-{others + 1}" if again else self.name
        self.found = [Collector(name, errors, self.settings)]
        self.pending: dict[str, object] = {}  # a configuration that no row has followed yet
        self.known = Found()
        self.first_step: int | None = None
        self.source = "verl-console"
        self.speakers: list[str] = []
        self.steps: list[int] = []  # of verl's rows
        self.called: list[str] = []  # what the configuration of each training calls it

    def speaks(self, process: str | None, step: int) -> None:
        """Refuse a file into which two runs wrote at once; one that went on has a new process."""
        self.steps.append(step)
        if process is None or self.speakers[-1:] == [process]:
            return
        if process in self.speakers:
            other = self.speakers[-1]
            raise UnclearError(
                f"a console must hold one run at a time, but in {str(self.path)!r} {process} and "
                f"{other} take turns; split it, for example `grep {shlex.quote(process[1:-1])} "
                "FILE > one.log`."
            )
        self.speakers.append(process)

    def hears(self, said: dict[str, object], number: int, progress: Progress) -> None:
        """Take settings that are printed; behind rows of a training, others are another's.

        Raises:
            AnotherRunError: they are.
        """
        if said and progress.began:
            now, known = configuration(said), configuration(self.pending)
            if disagree(now, known, DESIGN):
                raise AnotherRunError(number - 1)
        self.pending.update(said)

    def plan(self, steps: int) -> None:
        """Take the number of updates that a progress bar counts to."""
        self.found[-1].configure({"max_steps": steps})

    def planned(self) -> tuple[int | None, int | None]:
        """The updates of a run and of a row, as what lies beside the console says them."""
        if len(self.found) == 1:
            self._look_beside(self.found[0])
        said = self.found[-1].configured
        return configuration(said).steps or self.settings.steps, whole(said.get("logging_steps"))

    def row(self, step: str, values: dict[str, object], number: int) -> None:
        if self.pending:
            self._configure(int(step), number)
        if self.first_step is None:
            self.first_step = int(step)
        self.found[-1].row(step, values, number)

    def blocks(self, found: Sequence[Block], number: int) -> None:
        """Take numbers of an update whose step stands in another line."""
        for block in found:
            self.source = block.source
            self.row(block.step, {block.key: block.value}, number)

    def _configure(self, step: int, number: int) -> None:
        now = configuration(self.pending)
        changed = disagree(now, self.known, DESIGN)
        if self.first_step is not None and (changed or step <= self.first_step):
            name = f"{self.name}-{len(self.found) + 1}"
            self.found.append(Collector(name, self.errors, self.settings))
            self.first_step = None
        if self.first_step is None:
            self.called.append(str(self.pending.get(_CALLED) or ""))
        if self.first_step is None or now.problems_per_batch is not None:
            self.known = now
        self.found[-1].configure(self.pending, number)
        self.pending = {}

    def finish(self) -> list[ImportedRun]:
        back = sum(b < a for a, b in pairwise(self.steps))
        if back > max(len(self.steps) / _TURNS, 1):
            raise UnclearError(
                f"a console must hold one run at a time, but the steps of {str(self.path)!r} go "
                f"back {back} times, as where several runs write into one file; write the lines of "
                "each run into a file of its own."
            )
        if self.pending and self.first_step is None:
            self.found[-1].configure(self.pending)
        if len(self.found) == 1:
            self._look_beside(self.found[0])
        elif len({*filter(None, self.called)}) == len(self.found):  # jobs of one script
            for one, name in zip(self.found, self.called, strict=False):
                one.rename(name)
        if self.errors.count:
            self.found[0].note(self.errors.told("lines"))
        provenance = provenance_of(self.path, self.source)
        return [c.finish(self.path, self.source, provenance) for c in self.found]

    def _look_beside(self, only: Collector) -> None:
        """Take the configuration beside a console, or of a run that prints its own the seed."""
        said = configuration(only.configured)
        if None in (said.problems_per_batch, said.rollouts_per_problem):
            only.configure_beside(self.path, alone=self.part.is_whole)
        elif said.seed is None and (there := configuration_named(self.path, self.name)):
            beside = configuration(there[1])
            if beside.seed is not None and beside.rollouts_per_problem == said.rollouts_per_problem:
                only.configure({"seed": beside.seed})
                only.counters.infer(f"seed: read from {there[0]} beside the log")


def _pairs(text: str) -> dict[str, object]:
    """`a:1.0 - b:np.float64(2.0)` -> {"a": "1.0", ...}."""
    parts = (part.rpartition(":") for part in text.split(" - "))
    return {key.strip(): value.strip() for key, colon, value in parts if colon}


def _configuration(lines: list[str], text: str, found: dict[str, object]) -> list[str]:
    """Gather the printed configuration (a Python literal over many lines) until it is whole."""
    text = _MIXED.sub("", text)
    lines = [*lines, text] if len(lines) < _MAX_CONFIG_LINES else []
    if not lines or not text.rstrip().endswith("}"):
        return lines
    joined = "\n".join(lines)
    if joined.count("{") > joined.count("}"):
        return lines
    value = parse_python(joined)  # None: another process printed in between; its numbers are asked
    found.update(flatten(value) if isinstance(value, dict) else {})
    return []


def _cut_off(lines: list[str], _: str, found: dict[str, object]) -> list[str]:
    """Take the whole lines of a printed configuration whose end is missing; none are left.

    >>> found = {}
    >>> _cut_off(["{'data': {'n': 4,", "          'files': ['a',", "  'tra"], "", found), found
    ([], {'data.files': ['a'], 'data.n': 4})
    """
    for end in range(len(lines), max(len(lines) - _BROKEN, 0), -1):
        text = "\n".join(lines[:end]).rstrip()
        if not text.endswith((",", "{", "[", "(", "}", "]", ")")):
            continue
        bare, closing = _QUOTED.sub("", text), ""
        for mark in re.findall(r"[][(){}]", bare):
            closing = closing[1:] if mark in ")]}" else _CLOSING[mark] + closing
        value = parse_python(text.rstrip(",") + closing)
        if value is not None:
            found.update(flatten(value) if isinstance(value, dict) else {})
            break
    return []
