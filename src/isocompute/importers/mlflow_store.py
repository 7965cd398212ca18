"""MLflow's file store: `mlruns/EXPERIMENT/RUN/{metrics,params,tags}`, a file for every key.

Source: MLflow 3 (store/tracking/file_store.py): a line of a metric is `timestamp value step`; the
path below `metrics` is the key, a parameter's file holds its value, `meta.yaml` the run's name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from isocompute import __version__
from isocompute.importers.calls import Calls
from isocompute.importers.collect import Collector
from isocompute.importers.described import CUT
from isocompute.importers.ledger import Errors
from isocompute.importers.reading import clean_text, iter_lines, open_log
from isocompute.importers.reading import number as number_of
from isocompute.importers.runs import STOPPED, ImportedRun, Provenance
from isocompute.importers.settings import Settings

DELETED = "{} more runs were deleted in MLflow and are left out"
MAX_KEYS = 20_000
_MOST_STILL = 1 << 28  # bytes of metrics that are held at once; at half nothing changes
_MAX_PARAM_BYTES = 8_000  # MLflow's own limit is 6,000 characters


def is_mlflow_run(folder: Path, names: Sequence[str], folders: Sequence[str]) -> bool:
    """True for the folder of one run."""
    return "meta.yaml" in names and "metrics" in folders and (folder / "params").is_dir()


def is_deleted(folder: Path) -> bool:
    """Whether its owner has deleted a run: MLflow keeps the folder, and shows it no more."""
    return re.search(r"^lifecycle_stage: *'?deleted", _meta(folder), re.MULTILINE) is not None


def read_mlflow_run(folder: Path, settings: Settings) -> list[ImportedRun]:
    """The run of a folder."""
    errors = Errors(str(folder))
    name = _name(folder)
    settings = settings.for_path(folder)
    named = settings.for_file(name)
    collector = Collector(name, errors, named)
    digest = hashlib.sha256()
    size = 0
    own = _params(folder)
    for value in own.values():
        digest.update(value.encode())
    tag = folder / "tags" / "mlflow.parentRunId"
    parent = folder.parent / (tag.read_text("utf-8", "replace").strip() if tag.is_file() else "")
    shared = _params(parent) if parent != folder.parent else {}
    collector.configure({**shared, **own})
    if shared.keys() - own:
        collector.counters.infer(f"configuration: of its parent run {_name(parent)}, too")
    files = _files(folder / "metrics")
    still = all(map(_is_still, files)) and sum(p.stat().st_size for p in files) < _MOST_STILL
    held = list[tuple[str, str, str, int]]()  # of a run whose step never moves: all lie at 0
    for path in files:
        key = path.relative_to(folder / "metrics").as_posix()
        errors.file = clean_text(path)
        with open_log(path) as handle:
            for number, data in iter_lines(handle, str(path)):
                words = (data or b"").decode("utf-8", "replace").split()
                digest.update(data or b"")
                size += len(data or b"")
                if len(words) not in (2, 3):
                    errors.add(number, "a line of a metric must be `timestamp value step`")
                    continue
                if still:
                    held.append((words[0], key, words[1], number))
                else:
                    collector.row(words[2] if len(words) == 3 else 0, {key: words[1]}, number)
    if len(held) > len(files):
        calls = Calls(collector)
        for time, key, text, at in sorted(held, key=lambda one: number_of(one[0]) or 0):
            calls.take(time, key, text, at)
        calls.finish()
        calls.check(clean_text(folder))
    else:
        for _, key, text, at in held:
            collector.row(0, {key: text}, at)
    if state := re.search(r"^status: *'?([45]|FAILED|KILLED)\b", _meta(folder), re.MULTILINE):
        word = CUT["failed" if state[1] in ("4", "FAILED") else "killed"]
        collector.note(f"MLflow says that it {word}{STOPPED}")
    if errors.count:
        collector.note(f"{errors.count} lines were not used")
    provenance = Provenance(
        path=clean_text(folder), sha256=digest.hexdigest(), size_bytes=size,
        format="mlflow-files", version=__version__,
    )
    return [collector.finish(folder, "mlflow-files", provenance)]


def _params(folder: Path) -> dict[str, str]:
    """Parameters of the run of a folder."""
    home = folder / "params"
    return {
        path.relative_to(home).as_posix().replace("/", "."): (
            path.read_bytes()[:_MAX_PARAM_BYTES].decode("utf-8", "replace").strip()
        ) for path in _files(home)
    }  # fmt: skip


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in sorted(folder.rglob("*"))[:MAX_KEYS] if p.is_file()]


def _is_still(path: Path) -> bool:
    """Whether the first and the last line of a metric's file stand at step 0."""
    with path.open("rb") as file:
        first = file.readline(300).split()
        file.seek(max(path.stat().st_size - 300, 0))
        last = file.read().splitlines()[-1:]
    return all(words[2:] in ([b"0"], []) for words in (first, *(line.split() for line in last)))


def _name(folder: Path) -> str:
    tag = folder / "tags" / "mlflow.runName"
    if tag.is_file():
        return clean_text(tag.read_bytes()[:300].decode("utf-8", "replace").strip())
    found = re.search(r"^run_name: *'?([^'\n]+?)'? *$", _meta(folder), re.MULTILINE)
    return clean_text(found[1]) if found else folder.name


def _meta(folder: Path) -> str:
    return (folder / "meta.yaml").read_bytes()[:20_000].decode("utf-8", "replace")
