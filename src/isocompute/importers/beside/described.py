"""What a run says of itself: its configuration, and words that its rows repeat."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from isocompute.importers.beside.beside import configuration_beside, configuration_named
from isocompute.importers.beside.elsewhere import content, with_processes
from isocompute.importers.beside.listed import configuration_in_table
from isocompute.importers.values.imported import (
    DESIGN,
    STOPPED,
    Errors,
    ImportedRun,
    UnclearError,
)
from isocompute.importers.values.reading import clean_text, flatten, whole
from isocompute.importers.words.called import refuse_logarithm
from isocompute.importers.words.configuration import IN_ROWS, configuration
from isocompute.importers.words.fresh import TOLD, Found, processes_of, sharing
from isocompute.importers.words.names import number_in
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.plain_words import by_unit
from isocompute.importers.words.settings import Column
from isocompute.importers.words.splits import SPLITS

# begins and ends the line of a run that a file beside it describes
BESIDE, SIDE = "configuration: read from ", " beside the log"
# What W&B and MLflow say of a run that did not come to its end, in words.
CUT = {"crashed": "crashed", "failed": "failed", "killed": "was killed",
       "interrupted": "was interrupted", "timeout": "ran out of time"}  # fmt: skip
_STATES = ("State", "state", "Status", "status")
_STATE = "run.json"  # of Sacred's FileStorageObserver, beside config.json: `status`


def files_beside(run: ImportedRun) -> list[str]:
    """The files beside its log that a run's configuration was read from."""
    return [line.removeprefix(BESIDE).removesuffix(SIDE)
            for line in run.provenance.inferred if line.startswith(BESIDE)]  # fmt: skip


def two_in_rows(run: str, key: str, one: object, other: object) -> UnclearError:
    """The refusal of rows that say two things of one run."""
    return UnclearError(
        f"a run must have one {key}, but the rows of {run!r} have {clean_text(one)} and "
        f"{clean_text(other)}; give each run a log of its own, or its rows a name in `run` (a "
        "batch that changes within a run is not read)."
    )


def _without_remark(run: str) -> str:
    """A name without what a person or a file manager appended to it.

    >>> [_without_remark(name) for name in ("a-r8 (copy)", "a-r8 - node3", "a (n8)", "a n8")]
    ['a-r8', 'a-r8', 'a (n8)', 'a n8']
    """
    found = re.fullmatch(r"(\S+)( (?:\(|- |copy).*)", run, re.I)
    says = found is not None and any(number_in(found[2], name) is not None for name in DESIGN)
    return run if found is None or says else found[1]


class Described:
    """What one run says of itself.

    Args:
        errors: where a configuration goes that says two things.
        note: takes a line for a reader of the result.
        columns: the user's names of keys.
    """

    def __init__(
        self, errors: Errors, note: Callable[[str], None], columns: Mapping[str, Column]
    ) -> None:
        self.config: dict[str, object] = {}  # flat
        self.beside = ""  # the file that it was read from, where that is not the log
        self._errors = errors
        self._note = note
        self._columns = columns
        self._found: Found | None = None
        self._words: dict[str, str] = {}  # what all of its rows say of themselves
        self._held: dict[str, int] = {}

    @property
    def found(self) -> Found:
        """What is known of B_p, n and the rest."""
        return self._found or configuration(self.config)

    def configure(self, config: object, line: int = 0) -> None:
        """Take a configuration, nested or flat; a later one may add keys, not change B_p, n."""
        flat = flatten(config)
        flat |= by_unit(flat)
        for key, column in self._columns.items():  # the user's names for B_p, n, the seed
            if key in flat and (name := column.metric.label) in IN_ROWS:
                if key != name:
                    refuse_logarithm(key, name, [flat[key]], "a column map")
                flat[name] = flat.pop(key) if key in IN_ROWS else flat[key]  # it means that alone
        before = configuration(self.config)
        self.config.update(flat)
        after = configuration(self.config)
        changed = [name for name in ("problems_per_batch", "rollouts_per_problem")
                   if getattr(before, name) not in (None, getattr(after, name))]  # fmt: skip
        if changed and self.beside.startswith(".."):  # of the latest start, and this is another
            self._note(f"{self.beside} is not used: the log says other settings of itself")
            self.beside, self.config, changed = "", flat, []
        for name in changed:
            old, new = getattr(before, name), getattr(after, name)
            self._errors.add(line, f"the configuration changes {name} from {old} to {new}")
            self._note(f"the log changes {name} from {old} to {new} within one run")
            self._found = Found()  # neither value holds for the whole run

    def look_beside(self, path: Path, run: str, within: Path | None, *, alone: bool) -> None:
        """Take the configuration beside a log, if one is of this run, `alone` in it or not."""
        own = configuration_beside(path, within) if alone else None
        beside = own or next((found for name in dict.fromkeys((
            run, run.partition("/")[0], run.partition("__")[0], _without_remark(run),
        )) if (
            found := configuration_in_table(path, name, within)
            or configuration_named(path, name, within)
        )), None)  # `RUN/exp_001` is of the job RUN, `RUN__SEED__TIME` one of its starts,
        # `RUN (copy)` what lies in a folder of that name
        if beside is None and alone:  # a file is named for the run's id, where runs share a name
            beside = configuration_in_table(path, run_name(path))
        if beside is not None:
            self.beside, config = with_processes(beside, path)
            self.configure(config)
        said = next((self.config[key] for key in _STATES if key in self.config), "")
        state, said_by = str(said).lower(), self.beside or "the log"
        if (file := path.with_name(_STATE)).is_file() and not state and file != path:
            state, said_by = str(content(file).get("status", "")).lower(), _STATE
        if state in CUT:
            self._note(f"{said_by} says that it {CUT[state]}{STOPPED}")

    def trained_in(self, processes: int | None) -> None:
        """Take how many processes trained, where the configuration does not say it."""
        own = processes_of(self.config)
        if processes is not None and (own is None or sharing(self.config)[0]):
            self.config[TOLD] = processes
        elif processes not in (None, own):
            self._note(f"the log says processes={own}, the setting {processes}: the log's is used")

    def hold(self, name: str, value: object, run: str) -> None:
        """Take a setting that rows repeat: one that changes has no B_p, n or seed to be read."""
        if (now := whole(value)) is None:
            return
        if (before := self._held.setdefault(name, now)) != now:
            raise two_in_rows(run, name, before, now)
        if name not in self.config:
            self.configure({name: now})

    def of_model(self, key: str, value: object) -> None:
        """Take the model that rows name; one that changes on the way is a checkpoint of it."""
        if not isinstance(value, str) or not value.strip():
            return
        if self._words.setdefault(key, value) == value:
            self.config.setdefault(key, value)
        else:
            self._words[key] = ""
            self.config.pop(key, None)

    def of_one(self, word: str, value: object, run: str) -> None:
        """Take what a row says of itself; rows that say several things are of several logs."""
        if not isinstance(value, str) or not value.strip():
            return
        split = SPLITS.get(value.lower(), "")
        if (before := self._words.setdefault(f"{word} {split}", value)) != value:
            raise UnclearError(
                f"the rows of a log must be of one {word}, but those of {run!r} have "
                f"{before!r} and {value!r}; write a file for each, or put the word into the keys "
                f"({value}/accuracy)."
            )
