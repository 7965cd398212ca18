"""What lies in a folder of runs: the files that are opened, and what is told of all others."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from isocompute.errors import InputError
from isocompute.importers.beside.beside import FILES
from isocompute.importers.formats.parquetlogs import columns_of, is_beside, is_parquet_log
from isocompute.importers.formats.recording import is_recording
from isocompute.importers.formats.stores import ABOVE, DELETED, is_mlflow_run, name_of
from isocompute.importers.tables.handing import (
    NOTHING,
    OF_STEPS,
    TABLE,
    TableError,
    is_a_table,
    is_archive,
    not_read,
    refuse_archives,
    refuse_tables,
    there,
)
from isocompute.importers.tables.workbooks import WORKBOOKS
from isocompute.importers.values.containers import older_parts
from isocompute.importers.values.headers import ARROW, COLUMNAR
from isocompute.importers.values.imported import ImportedRun, UnclearError
from isocompute.importers.values.reading import OF_ONES_OWN
from isocompute.importers.words.paths import ROTATED

MAX_FILES = 100_000
# Files that a folder of runs holds besides logs; large or not ours, never opened there.
_SKIPPED_ENDINGS = (
    ".safetensors", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".npz", ".npy", ".distcp", ".zip",
    ".tar", ".png", ".py", ".yaml", ".yml", ".toml", ".md", ".parquet", ".html", ".lock",
    ".db-journal", ".db-wal", ".db-shm", ".model", *ARROW,
)
WRITTEN = (".md", ".ipynb", ".tex")  # by people, for people: read where nothing else is a log
# Beside logs, read with them or nothing of ours.
_NO_LOGS = (
    *(name.rpartition("/")[2] for name in FILES), "wandb-summary.json", "wandb-metadata.json",
    "swanlab-metadata.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
    "checkpoint_tracker.json",
)
# What W&B says of itself, at the top and in a run's folder: wandb/run-20260801_101010-ID/logs.
_OF_WANDB = re.compile(
    r"(?:.*/)?(?:(?:wandb|(?:offline-)?run-[^/]*/logs)/debug[^/]*\.log"
    r"|(?:offline-)?run-[^/]*/files/requirements\.txt)"
)
_LOG_ENDINGS = (
    ".jsonl", ".json", ".wandb", ".swanlab", ".csv", ".tsv", ".db", ".sqlite", ".log", ".txt",
    ".out", ".stdout", ".gz",
)


@dataclass
class Files:
    """The files of a folder, by what is done with them."""

    logs: list[Path] = field(default_factory=list)  # all that may be one
    stores: list[Path] = field(default_factory=list)  # folders of MLflow
    archives: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)  # by people
    special: int = 0  # pipes, devices and broken links: not opened


@dataclass
class Tried:
    """The runs that were read, and why other files gave none."""

    runs: list[ImportedRun] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    cures: dict[str, InputError] = field(default_factory=dict)  # by the reason

    def read(self, reader: Any, *arguments: Any) -> None:
        """Take the runs of a reader, or why there are none."""
        try:
            self.runs.extend(reader(*arguments))
        except UnclearError as error:
            if not (isinstance(path := arguments[0], Path) and is_kept_by_wandb(path)):
                raise
            self.take(error)
        except InputError as error:
            self.take(error)

    def take(self, error: InputError) -> None:
        """Take why a file gave no run."""
        self.reasons.append(str(error))
        self.cures[str(error)] = error


def is_kept_by_wandb(path: Path) -> bool:
    """Whether a file is the console of a run whose history W&B's own file beside it holds."""
    return path.parts[-2:] == ("files", "output.log") and any(path.parents[1].glob("run-*.wandb"))


def is_candidate(path: Path) -> bool:
    """Whether a file of a folder is opened as a log, by its name."""
    name = path.name.lower()
    if (whole := ROTATED.sub("", name)).endswith((".jsonl", ".log", ".out", ".stdout")):
        name = whole
    if name[0] == "." or name.endswith(_SKIPPED_ENDINGS) or name in _NO_LOGS or is_archive(path):
        return False
    if _OF_WANDB.fullmatch(path.as_posix()):
        return False
    return name.endswith((*_LOG_ENDINGS, *WORKBOOKS)) or "tfevents" in name


def refuse_closed(error: OSError) -> NoReturn:
    """Refuse a folder that may not be read: the runs in it would be missing in silence.

    Raises:
        InputError: names it.
    """
    raise InputError(
        f"every folder of a sweep must be readable, but {error.filename!r} is not "
        f"({error.strerror}); change its permissions, or give the other folders one by one."
    )


def files_in(folder: Path) -> Files:
    """What lies in a folder and those below it.

    Raises:
        InputError: it holds more logs than are read, or a folder that may not be read.
    """
    files = Files()
    for parent, folders, names in os.walk(folder, onerror=refuse_closed):
        if is_mlflow_run(Path(parent), names, folders):
            files.stores.append(Path(parent))
            folders[:] = []
            continue
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        paths = [Path(parent, n) for n in sorted(names)]
        named = [p for p in paths if is_candidate(p) or (is_parquet_log(p) and not is_beside(p))]
        regular = [p for p in named if p.is_file()]  # a pipe or device would never end
        files.special += len(named) - len(regular)
        files.logs += regular
        files.archives += [p for p in paths if is_archive(p)]
        files.written += [p for p in paths if p.suffix in WRITTEN and p.is_file()]
        files.tables += [p for p in paths
                         if p.suffix in COLUMNAR and p not in named and p.is_file()]  # fmt: skip
        if len(files.logs) > MAX_FILES:
            raise InputError(
                f"a folder must hold at most {MAX_FILES} logs, but {str(folder)!r} holds more; "
                "give its subfolders one by one."
            )
    older = {part for path in files.logs for part in older_parts(path)}  # read with their logs
    files.logs = [path for path in files.logs if path not in older]
    return files


def by_kind(
    logs: Sequence[Path],
) -> tuple[dict[Path, Path], dict[Path, list[Path]], list[Path]]:
    """The latest state of each run of checkpoints, the dumps of each run in order, other logs."""
    states, dumps = defaultdict[Path, list[Path]](list), defaultdict[Path, list[Path]](list)
    single: list[Path] = []
    for path in logs:
        if path.name == "trainer_state.json":
            home = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
            states[home].append(path)
        elif path.suffix == ".jsonl" and path.stem.isdecimal() and not is_recording(_head(path)):
            dumps[path.parent].append(path)
        elif path.suffix == ".jsonl" and path.parent.name.startswith("global_step_"):
            if path.stem != "aggregated_results":  # computed from the samples beside it
                dumps[path.parent.parent].append(path)
        else:
            single.append(path)
    latest = {home: max(paths, key=_checkpoint_number) for home, paths in states.items()}
    ordered = {home: sorted(paths, key=lambda p: (len(p.stem), p.stem))
               for home, paths in dumps.items()}  # fmt: skip
    return latest, ordered, single


def with_notes(
    tried: Tried, files: Files, deleted: int, above: Iterable[Path]
) -> list[ImportedRun]:
    """The runs, the first with a line for each kind of what gave none.

    `deleted`: how many stores were; `above`: those that hold others.
    """
    told = [DELETED.format(deleted, "MLflow")] * bool(deleted)
    told += [not_read(tried.reasons)] * bool(tried.reasons)
    told += [ABOVE.format(name_of(store)) for store in above]
    if files.special:
        told.append(f"{files.special} pipes, devices or broken links of the folder were not opened")
    if files.archives:
        first = ", ".join(one.name for one in files.archives[:3])
        told.append(f"{first}: archives of the folder were not opened; unpack them")
    if told:
        tried.runs[0] = replace(tried.runs[0], notes=(*tried.runs[0].notes, *told))
    return tried.runs


def refuse_folder(folder: Path, files: Files, tried: Tried, deleted: int) -> NoReturn:
    """Refuse a folder that gave no run.

    Raises:
        InputError: with what cures its first file that tells more than that it is no log.
    """
    if not tried.reasons:
        refuse_archives(folder, files.archives)
    for error in (is_a_table(p, columns) for p in files.tables if (columns := columns_of(p))):
        tried.take(error)
    telling = [reason for reason in tried.reasons if NOTHING not in reason or OF_STEPS in reason]
    telling = telling or tried.reasons
    telling = sorted(telling, key=lambda reason: not _is_cured(reason, tried.cures[reason]))
    if telling and all(TABLE in reason for reason in telling):
        if len(telling) > 1:
            refuse_tables(folder, tried.cures.values())
        raise InputError(telling[0])
    if telling:
        hint = f"; the first of {len(telling)}: {telling[0]}"
    elif deleted:
        hint = f" ({deleted} runs were deleted in MLflow)."
    else:
        hint = f"{there(folder)}; {OF_ONES_OWN}."
    cure = tried.cures[telling[0]] if telling else InputError()
    raise InputError(
        f"a folder must hold at least one log that is known, but {str(folder)!r} holds none{hint}",
        options=cure.options, trial=cure.trial, condition=cure.condition,
    )


def _is_cured(reason: str, error: InputError) -> bool:
    """Whether why a file gave no run says what reads it, with nothing to be guessed."""
    if isinstance(error, TableError):
        return bool(error.score)
    return OF_STEPS in reason or (bool(error.options) and "KEY" not in reason)


def _head(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(4096)


def _checkpoint_number(path: Path) -> int:
    name = path.parent.name.removeprefix("checkpoint-")
    # the state beside the checkpoints is written last, at the end of training
    return int(name) if name.isdecimal() else 1 << 62
