"""Which reader reads which file: by its content, and by its name where that is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.beside.beside import of_other_logs
from isocompute.importers.beside.described import files_beside
from isocompute.importers.beside.elsewhere import configurations_in
from isocompute.importers.folder import (
    WRITTEN,
    Files,
    Tried,
    by_kind,
    files_in,
    is_kept_by_wandb,
    refuse_folder,
    with_notes,
)
from isocompute.importers.formats.checkpoints import (
    models_in,
    own_folder,
    read_results,
    results_in,
    with_results,
)
from isocompute.importers.formats.csvlogs import downloads_in, is_csv_log, read_csv_log
from isocompute.importers.formats.documents import (
    document_of,
    read_documents,
    read_trainer_state,
    runs_in,
)
from isocompute.importers.formats.evaluated import evaluated_in_tables
from isocompute.importers.formats.exported import console_in
from isocompute.importers.formats.jsonl import looks_like_jsonl, read_jsonl
from isocompute.importers.formats.parquetlogs import header_of, is_parquet_log, read_parquet_log
from isocompute.importers.formats.ranks import parts_in, read_parts
from isocompute.importers.formats.recording import is_recording, read_recording
from isocompute.importers.formats.stores import (
    above_others,
    is_deleted,
    read_mlflow_run,
    read_sqlite,
)
from isocompute.importers.formats.swanlab import HEADER as SWANLAB
from isocompute.importers.formats.swanlab import read_swanlab
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
    refuse_archive,
    refuse_scores_elsewhere,
)
from isocompute.importers.tables.workbooks import is_workbook
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.values.reading import OF_ONES_OWN, anew, open_log
from isocompute.importers.words.paths import named_by_folders
from isocompute.importers.words.scored import check_map
from isocompute.importers.words.settings import Settings, settings_from


@anew
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
    counted = settings.step is not None or settings.eval_every is not None
    refuse_siblings(settled, named=settings.pattern is not None, counted=counted)
    return settled


def _read_file(path: Path, settings: Settings, lines: Sequence[Path] = ()) -> list[ImportedRun]:
    refuse_archive(path)
    if is_workbook(path):
        raise is_a_table(path, "")
    head = _beginning(path)
    if head.startswith(b":W&B"):
        return read_wandb(path, settings)
    if head.startswith(SWANLAB):
        return read_swanlab(path, settings)
    if head.startswith(b"SQLite format 3\0"):
        return read_sqlite(path, settings)
    _refuse_bytes(path, head)
    if is_parquet_log(path):
        return read_parquet_log(path, settings)
    if path.suffix in WRITTEN and (found := read_written(path, settings)):
        return found
    if is_event_file(head) or "tfevents" in path.name:
        return read_tensorboard(path, settings, lines)
    if path.name == "trainer_state.json" or b'"log_history"' in head:
        return read_trainer_state(path, settings)
    if is_recording(head):
        return read_recording(path, settings)
    if (console := console_in(path, head)) is not None:
        from isocompute.importers.formats.console import read_console  # slow to compile

        if found := [run for run in read_console(path, settings, console) if run.n_rows]:
            return found
    if looks_like_jsonl(path):
        if (document := document_of(path, settings.step)) is not None:
            if several := runs_in(document):
                return read_documents(several, path, settings)
            return read_trainer_state(path, settings)
        return read_jsonl([path], settings)
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    if is_csv_log(first, path):
        return read_csv_log(path, settings, lines)
    if b"{" in head and path.suffix == ".json":
        return read_trainer_state(path, settings)
    return _read_printed(path, settings, first)


def _beginning(path: Path) -> bytes:
    with open_log(path) as handle:
        try:
            return handle.read(4096)
        except (OSError, EOFError) as error:
            raise InputError(
                f"a log must be readable, but {str(path)!r} gives {error}; copy it again."
            ) from error


def _refuse_bytes(path: Path, head: bytes) -> None:
    """Refuse what would run code, or holds columns of numbers."""
    if head[:1] == b"\x80" or path.suffix in (".pkl", ".pickle", ".pt", ".pth", ".bin"):
        raise InputError(
            f"a log must not be able to run code, but {str(path)!r} is a pickle; import the "
            "trainer's text log or its tracker's file instead."
        )
    if head.startswith((b"PAR1", b"ARROW1", b"\x93NUMPY")) and not is_parquet_log(path):
        if header := header_of(path):
            raise is_a_table(path, ",".join(header))
        raise InputError(
            f"a log must be one of a trainer or tracker, but {str(path)!r} is a table; give it as "
            "tidy curves (see the columns in the documentation)."
        )


def _read_printed(path: Path, settings: Settings, first: str) -> list[ImportedRun]:
    """Runs of what a console printed; `first`: the line that would be the header of a table."""
    from isocompute.importers.formats.console import read_console  # slow to compile

    runs = read_console(path, settings)
    if any(run.n_rows for run in runs):
        return runs
    if prefixed := read_prefixed(path, settings):
        return prefixed
    if path.name.endswith((".csv", ".tsv", ".csv.gz")) or is_table(path):
        raise is_a_table(path, first)
    given = (settings.problems_per_batch, settings.rollouts_per_problem) != (None, None)
    if not given and any(None not in run.design[:2] and not files_beside(run) for run in runs):
        raise InputError(
            f"a console must hold rows of updates, but {str(path)!r} ends behind the configuration "
            "that it prints, as of a run that stopped before its first; leave it out."
        )
    raise InputError(
        f"a log must be one of verl, TRL, W&B, TensorBoard, MLflow, trackio, prime-rl, SkyRL "
        f"or tidy curves, but {str(path)!r} {NOTHING}; give what its tracker wrote (W&B, "
        f"TensorBoard, MLflow), or {OF_ONES_OWN}."
    )


def _read_folder(folder: Path, settings: Settings) -> list[ImportedRun]:
    files = files_in(folder)
    with named_by_folders(files.logs):
        return _read_files(folder, files, settings)


def _read_files(folder: Path, files: Files, settings: Settings) -> list[ImportedRun]:
    tried = Tried()
    own, apart = _results(files.logs, settings)
    logs = [path for path in files.logs if path not in apart]
    parts = parts_in(logs)
    states, dumps, single = by_kind(logs)
    for home, path in states.items():
        tried.read(read_trainer_state, path, settings.for_path(home))
    for home, paths in dumps.items():
        tried.read(read_jsonl, paths, settings.for_path(home), own_folder(home).name)
    stores = [store for store in files.stores if not is_deleted(store)]
    deleted, above = len(files.stores) - len(stores), above_others(stores)
    for store in (store for store in stores if store not in above):
        tried.read(read_mlflow_run, store, settings)
    for bare, paths in parts.items():
        if (whole_run := read_parts(paths, settings.for_path(bare))) is not None:
            tried.runs += whole_run
            single = [path for path in single if path not in paths]
    charts = lines_of([path for path in single if "tfevents" in path.name]) | downloads_in(single)
    lines = {path for found in charts.values() for path in found}
    copies = {path for path in single if is_kept_by_wandb(path)}
    for path in (one for one in single if one not in lines | copies):
        tried.read(_read_file, path, settings.for_path(path), charts.get(path, ()))
    kept = {Path(run.provenance.path).parent for run in tried.runs if run.n_rows} if copies else ()
    for path in (one for one in single if one in copies and one.parents[1] not in kept):
        tried.read(_read_file, path, settings.for_path(path))
    own += evaluated_in_tables(tried.runs, tried.cures, settings)
    tried.reasons = [one for one in tried.reasons if one in tried.cures]
    tried.runs = with_results(tried.runs, own, settings)
    refuse_scores_elsewhere(tried.runs, tried.cures.values(), settings)
    if not tried.runs and not any(TABLE in one for one in tried.reasons):
        for path in files.written:
            tried.read(read_written, path, settings.for_path(path))
    if not tried.runs:
        refuse_folder(folder, files, tried, deleted)
    return with_notes(tried, files, deleted, above)


def _results(logs: Sequence[Path], settings: Settings) -> tuple[list[ImportedRun], set[Path]]:
    """Runs of results of checkpoints, and the files that are no logs of their own."""
    apart = of_other_logs(logs)
    if apart == set(logs):  # beside nothing: read, and refused for what it is
        apart = set()
    evaluated = results_in(logs)
    apart |= {one.file for results in evaluated.values() for one in results}
    models = models_in([path for path in logs if path not in apart]) if evaluated else {}
    own = [run for home, results in evaluated.items()
           for run in read_results(results, settings.for_path(home), models, apart)]  # fmt: skip
    return own, apart
