"""Which reader reads which file: by its content, and by its name where that is not enough."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.beside.beside import of_other_logs
from isocompute.importers.beside.elsewhere import configurations_in
from isocompute.importers.formats.checkpoints import (
    models_in,
    own_folder,
    read_results,
    results_in,
    with_results,
)
from isocompute.importers.formats.csvlogs import is_csv_log, read_csv_log
from isocompute.importers.formats.documents import (
    document_of,
    read_documents,
    read_trainer_state,
    runs_in,
)
from isocompute.importers.formats.evaluated import evaluated_in_tables
from isocompute.importers.formats.jsonl import looks_like_jsonl, read_jsonl
from isocompute.importers.formats.parquetlogs import (
    columns_of,
    header_of,
    is_beside,
    is_parquet_log,
    read_parquet_log,
)
from isocompute.importers.formats.ranks import parts_in, read_parts
from isocompute.importers.formats.recording import read_recording
from isocompute.importers.formats.stores import (
    ABOVE,
    DELETED,
    above_others,
    is_deleted,
    is_mlflow_run,
    name_of,
    read_mlflow_run,
    read_sqlite,
)
from isocompute.importers.formats.tensorboard import is_event_file, lines_of, read_tensorboard
from isocompute.importers.formats.wandb import read_wandb
from isocompute.importers.formats.written import read_prefixed, read_written
from isocompute.importers.given import is_table
from isocompute.importers.runs.identity import named_apart, settle_runs
from isocompute.importers.runs.siblings import refuse_siblings
from isocompute.importers.tables.handing import (
    NOTHING,
    TABLE,
    is_a_table,
    is_archive,
    not_read,
    refuse_archive,
    refuse_archives,
    refuse_scores_elsewhere,
    refuse_tables,
    there,
)
from isocompute.importers.tables.workbooks import WORKBOOKS, is_workbook
from isocompute.importers.values.imported import ImportedRun, UnclearError
from isocompute.importers.values.reading import OF_ONES_OWN, UTF16, in_utf8, open_log
from isocompute.importers.words.paths import ROTATED
from isocompute.importers.words.scored import check_map
from isocompute.importers.words.settings import Settings, settings_from

MAX_FILES = 100_000
# Files that a folder of runs holds besides logs; large or not ours, never opened there.
_SKIPPED_ENDINGS = (
    ".safetensors", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".npz", ".npy", ".distcp", ".zip",
    ".tar", ".png", ".py", ".yaml", ".yml", ".toml", ".md", ".parquet", ".html", ".lock",
    ".db-journal", ".db-wal", ".db-shm", ".model",
)
_WRITTEN = (".md", ".ipynb", ".tex")  # by people, for people: read where nothing else is a log
# Beside logs, read with them or nothing of ours.
_NO_LOGS = (
    "config.json", "experiment_config.json", "args.json", "training_args.json",
    "wandb-summary.json", "parameters.json", "params.json", "orchestrator.json", "rl.json",
    "wandb-metadata.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
)
_LOG_ENDINGS = (
    ".jsonl", ".json", ".wandb", ".csv", ".tsv", ".db", ".sqlite", ".log", ".txt", ".out",
    ".stdout", ".gz",
)


def read_log(
    path: str | Path, *, settings: Settings | Mapping[str, Any] | None = None
) -> list[ImportedRun]:
    """Read the runs of a log, or of every log in a folder.

    Args:
        path: a file of a trainer, a tracker or `isocompute.Recorder`, or a folder: checkpoints of
            one trainer give their latest history, dumps of one folder are one run.
        settings: what the log does not say (see `Settings`).

    Returns:
        Runs in the order of their names; configuration that nothing says is None.

    Raises:
        InputError: if nothing there is a log that is known, or the file would run code.
    """
    path = Path(path)
    if not isinstance(settings, Settings):
        settings = settings_from(settings or {})
    if path.is_dir():
        configurations_in.cache_clear()
        runs = _read_folder(path, replace(settings, within=path))
    elif path.is_file():
        runs = _read_file(path, settings.for_path(path))
    else:
        raise InputError(
            f"a log must be a file or a folder, but {str(path)!r} is neither; check the path."
        )
    check_map(path, runs, settings)
    settled = named_apart(settle_runs(runs, resumed=settings.resumed))
    refuse_siblings(settled, named=settings.pattern is not None)
    return settled


def _read_file(path: Path, settings: Settings, lines: Sequence[Path] = ()) -> list[ImportedRun]:
    refuse_archive(path)
    if is_workbook(path):
        raise is_a_table(path, "")
    with open_log(path) as handle:
        try:
            head = handle.read(4096)
        except (OSError, EOFError) as error:
            raise InputError(
                f"a log must be readable, but {str(path)!r} gives {error}; copy it again."
            ) from error
    if head.startswith(b":W&B"):
        return read_wandb(path, settings)
    if head.startswith(b"SQLite format 3\0"):
        return read_sqlite(path, settings)
    if head[:1] == b"\x80" or path.suffix in (".pkl", ".pickle", ".pt", ".pth", ".bin"):
        raise InputError(
            f"a log must not be able to run code, but {str(path)!r} is a pickle; import the "
            "trainer's text log or its tracker's file instead."
        )
    if head.startswith(UTF16):
        if is_table(path):
            raise is_a_table(path, in_utf8(head).split(b"\n", 1)[0].decode("utf-8", "replace"))
        raise InputError(
            f"a log must be UTF-8 text, but {str(path)!r} begins like UTF-16; save it as UTF-8."
        )
    if is_parquet_log(path):
        return read_parquet_log(path, settings)
    if head.startswith((b"PAR1", b"\x93NUMPY")):
        if head.startswith(b"PAR1") and (header := header_of(path)):
            raise is_a_table(path, ",".join(header))
        raise InputError(
            f"a log must be one of a trainer or tracker, but {str(path)!r} is a table; give it as "
            "tidy curves (see the columns in the documentation)."
        )
    if path.suffix in _WRITTEN and (found := read_written(path, settings)):
        return found
    if is_event_file(head) or "tfevents" in path.name:
        return read_tensorboard(path, settings, lines)
    if path.name == "trainer_state.json" or b'"log_history"' in head:
        return read_trainer_state(path, settings)
    if _is_recording(head):
        return read_recording(path, settings)
    if looks_like_jsonl(path):
        if (document := document_of(path)) is not None:
            if several := runs_in(document):
                return read_documents(several, path, settings)
            return read_trainer_state(path, settings)
        return read_jsonl([path], settings)
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    if is_csv_log(first, path):
        return read_csv_log(path, settings)
    if b"{" in head and path.suffix == ".json":
        return read_trainer_state(path, settings)
    from isocompute.importers.formats.console import read_console  # slow to compile

    runs = read_console(path, settings)
    if not any(run.n_rows for run in runs):
        if prefixed := read_prefixed(path, settings):
            return prefixed
        if path.name.endswith((".csv", ".tsv", ".csv.gz")):
            raise is_a_table(path, first)
        raise InputError(
            f"a log must be one of verl, TRL, W&B, TensorBoard, MLflow, trackio, prime-rl, SkyRL "
            f"or tidy curves, but {str(path)!r} {NOTHING}; give what its tracker wrote (W&B, "
            f"TensorBoard, MLflow), or {OF_ONES_OWN}."
        )
    return runs


def _is_recording(head: bytes) -> bool:
    """Whether a file begins as `isocompute.Recorder` begins one; its first line may be torn."""
    return any(line.startswith(b'{"recorder":') for line in head.split(b"\n", 3)[:3])


def is_candidate(path: Path) -> bool:
    """Whether a file of a folder is opened as a log, by its name."""
    name = path.name.lower()
    if (whole := ROTATED.sub("", name)).endswith((".jsonl", ".log", ".out", ".stdout")):
        name = whole
    if name[0] == "." or name.endswith(_SKIPPED_ENDINGS) or name in _NO_LOGS or is_archive(path):
        return False
    return name.endswith((*_LOG_ENDINGS, *WORKBOOKS)) or "tfevents" in name


def _read_folder(folder: Path, settings: Settings) -> list[ImportedRun]:
    files: list[Path] = []
    stores: list[Path] = []
    special, deleted, archives, tables, written = 0, 0, list[Path](), list[Path](), list[Path]()
    for parent, folders, names in os.walk(folder):
        if is_mlflow_run(Path(parent), names, folders):
            stores.append(Path(parent))
            folders[:] = []
            continue
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        paths = [Path(parent, n) for n in sorted(names)]
        named = [p for p in paths if is_candidate(p) or (is_parquet_log(p) and not is_beside(p))]
        regular = [p for p in named if p.is_file()]  # a pipe or device would never end
        special += len(named) - len(regular)
        files.extend(regular)
        archives += [p for p in paths if is_archive(p)]
        written += [p for p in paths if p.suffix in _WRITTEN and p.is_file()]
        tables += [p for p in paths if p.suffix == ".parquet" and p not in named and p.is_file()]
        if len(files) > MAX_FILES:
            raise InputError(
                f"a folder must hold at most {MAX_FILES} logs, but {str(folder)!r} holds more; "
                "give its subfolders one by one."
            )
    states, dumps = defaultdict[Path, list[Path]](list), defaultdict[Path, list[Path]](list)
    single: list[Path] = []
    apart = of_other_logs(files)
    if apart == set(files):  # beside nothing: read, and refused for what it is
        apart = set()
    evaluated = results_in(files)
    apart |= {one.file for results in evaluated.values() for one in results}
    models = models_in([path for path in files if path not in apart]) if evaluated else {}
    own = [run for home, results in evaluated.items()
           for run in read_results(results, settings.for_path(home), models, apart)]  # fmt: skip
    parts = parts_in([path for path in files if path not in apart])
    for path in files:
        if path in apart:
            continue
        if path.name == "trainer_state.json":
            home = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
            states[home].append(path)
        elif path.suffix == ".jsonl" and path.stem.isdecimal() and not _is_recording(_head(path)):
            dumps[path.parent].append(path)
        elif path.suffix == ".jsonl" and path.parent.name.startswith("global_step_"):
            if path.stem != "aggregated_results":  # computed from the samples beside it
                dumps[path.parent.parent].append(path)
        else:
            single.append(path)
    runs: list[ImportedRun] = []
    reasons: list[str] = []
    cures: dict[str, InputError] = {}

    def attempt(read: Any, *arguments: Any) -> None:
        try:
            runs.extend(read(*arguments))
        except UnclearError:
            raise
        except InputError as error:
            reasons.append(str(error))
            cures[str(error)] = error

    for home, paths in states.items():
        latest = max(paths, key=_checkpoint_number)
        attempt(read_trainer_state, latest, settings.for_path(home))
    for home, paths in dumps.items():
        paths.sort(key=lambda p: (len(p.stem), p.stem))
        attempt(read_jsonl, paths, settings.for_path(home), own_folder(home).name)
    stores, gone = [s for s in stores if not is_deleted(s)], len(stores)
    deleted, above = gone - len(stores), above_others(stores)
    for store in stores:
        if store not in above:
            attempt(read_mlflow_run, store, settings)
    for bare, files in parts.items():
        if (whole_run := read_parts(files, settings.for_path(bare))) is not None:
            runs += whole_run
            single = [path for path in single if path not in files]
    charts = lines_of([path for path in single if "tfevents" in path.name])
    lines = {path for found in charts.values() for path in found}
    for path in (one for one in single if one not in lines):
        attempt(_read_file, path, settings.for_path(path), charts.get(path, ()))
    own += evaluated_in_tables(runs, cures, settings)
    reasons = [one for one in reasons if one in cures]
    runs[:] = with_results(runs, own)
    refuse_scores_elsewhere(runs, cures.values(), settings)
    for path in written if not runs and not any(TABLE in one for one in reasons) else ():
        attempt(read_written, path, settings.for_path(path))
    told = [not_read(reasons)] * bool(reasons)
    if deleted:
        told.insert(0, DELETED.format(deleted, "MLflow"))
    told += [ABOVE.format(name_of(store)) for store in above]
    if special:
        told.append(f"{special} pipes, devices or broken links of the folder were not opened")
    if archives:
        first = ", ".join(one.name for one in archives[:3])
        told.append(f"{first}: archives of the folder were not opened; unpack them")
    if runs and told:
        runs[0] = replace(runs[0], notes=(*runs[0].notes, *told))
    if not runs and not reasons:
        refuse_archives(folder, archives)
    if not runs and tables:
        for error in (is_a_table(p, columns) for p in tables if (columns := columns_of(p))):
            reasons.append(str(error))
            cures[str(error)] = error
    telling = [reason for reason in reasons if NOTHING not in reason] or reasons
    if not runs and telling and all(TABLE in reason for reason in telling):
        if len(telling) > 1:
            refuse_tables(folder, cures.values())
        raise InputError(telling[0])
    if not runs:
        hint = f"; the first of {len(telling)}: {telling[0]}" if telling else (
            f"{there(folder)}; {OF_ONES_OWN}."
        )
        if deleted and not reasons:
            hint = f" ({deleted} runs were deleted in MLflow)."
        cure = cures.get(telling[0], InputError()) if telling else InputError()
        raise InputError(
            f"a folder must hold at least one log that is known, but {str(folder)!r} holds none"
            f"{hint}", options=cure.options, trial=cure.trial, condition=cure.condition,
        )
    return runs


def _head(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(4096)


def _checkpoint_number(path: Path) -> int:
    name = path.parent.name.removeprefix("checkpoint-")
    # the state beside the checkpoints is written last, at the end of training
    return int(name) if name.isdecimal() else 1 << 62
