"""The configuration that a trainer or tracker writes into the folder of a run's log.

| file | of |
|---|---|
| `config.json` | tinker-cookbook (2026-08), utils/ml_log.py |
| `experiment_config.json` | EasyR1 0.3.2, verl/utils/logger/logger.py |
| `args.json` | ms-swift 4.4, arguments/base_args/base_args.py |
| `training_args.json` | TRL and transformers, where `to_json_string()` was saved |
| `config.yaml`, `files/config.yaml` | W&B's folder of a run (`KEY: {value: ...}`), AReaL 1.0.4 |
| `.hydra/config.yaml`, also in a folder above | whatever Hydra starts: verl |
| `hparams.yaml` | Lightning 2, CSVLogger and TensorBoardLogger |
| `configs/orch.toml`, `configs/rl.toml` | prime-rl's own, where they are kept beside its metrics |
| `parameters.json` | Comet's `get_parameters_summary()`, a list of name and `valueCurrent` |
| `params.json` | Ray Tune 2, beside a trial's `result.json` |
| any other `.yaml`, `.yml`, `.toml`, or `.json` of settings | the one alone in a job's folder |

A log deeper than its job's folder takes the configuration there, if it is the only one below.
Of several runs, each takes the one that bears its name: `configs/NAME.yaml` beside the log or in a
folder above, or one in W&B's folders (`wandb/run-*`) that says so (`wandb_run_name`).
A checkpoint's history takes that of the run's folder above it.
It belongs to a log that goes by its folder's name (`metrics.jsonl`) or is the only log there;
beside several, which one it is of is not known, and none takes it. A file that is named for a log
(`NAME.json`, `NAME.config.yaml` beside `NAME.csv`) is of that one, and a table with a column `Name`
or `run` says it of every run that it names, beside the logs or one folder above: W&B's runs table
as CSV, or what its guide exports with `wandb.Api`, whose cell `config` holds all of it; so does a
JSON list of runs, or JSON lines with a run each (`listed`). A file of
one series may be named for its run and its key (`RUN-12_eval_acc.csv`, Neptune's `fetch_values()`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from isocompute.importers.beside.elsewhere import (
    LEVELS,
    LONGEST,
    agreed,
    content,
    contradicts,
    is_answer,
    names_in,
    of_accelerate,
    tells,
    with_processes,
)
from isocompute.importers.beside.launched import configuration_naming, folders_of, overridden
from isocompute.importers.beside.listed import HISTORY, LOGS, tables_of
from isocompute.importers.values.reading import (
    MAX_LINE_BYTES,
    parse_json,
    until_it_changes,
)
from isocompute.importers.values.series import points_of
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.names import without_seed
from isocompute.importers.words.paths import (
    TIMED,
    folder_name,
    is_of_folder,
    job_of,
    run_name,
    split_folder,
    started_at,
)

FILES = (
    "config.json", "experiment_config.json", "args.json", "training_args.json", "config.yaml",
    "files/config.yaml", ".hydra/config.yaml", "configs/orch.toml", "configs/orchestrator.toml",
    "configs/rl.toml", "configs/orchestrator.json", "configs/rl.json", "orch.toml", "hparams.yaml",
    "parameters.json", "params.json",
)
_MOST_FILES, _MOST_RUNS = 20_000, 1_000  # of a job's folder; a home may be above
_MOST_SETTINGS = 50  # JSON of a folder that is looked at; one with more holds samples or results
# of the log that they are named for
_OF_A_LOG = (
    ".json", ".yaml", ".yml", ".config.json", ".config.yaml", ".config.yml", "_config.json",
    "_config.yaml", "-config.json", "-config.yaml",
)
_CONFIGURATIONS = re.compile(r"(?:\w+[-_])?conf(?:ig)?s?", re.I)  # a folder of them


def configuration_beside(
    path: Path, within: Path | None = None
) -> tuple[str, dict[str, object]] | None:
    """The name and the content, flat, of the configuration beside a log; None where there is none.

    Args:
        path: of the log.
        within: the folder that was given; a command that changed the file lies in it.
    """
    homes = [path.parent]
    # the run's folder holds its checkpoints, or a folder for each split
    if path.parent.name.startswith("checkpoint-") or split_folder(path.parent):
        homes.append(path.parent.parent)
    found = next((found for home in homes if (found := _in_folder(home, path))), _of_job(path))
    if found and found[0].rpartition("/")[2] not in FILES:  # those a trainer writes as they were
        found = overridden(path, run_name(path), within, found)
    return found and with_processes(found, path)


def is_beside_one(path: Path) -> bool:
    """Whether a configuration lies in a log's folder, be it of this log or not."""
    return _in_folder(path.parent, path, whose=False) is not None


def _in_folder(
    home: Path, path: Path, *, whose: bool = True
) -> tuple[str, dict[str, object]] | None:
    """The configuration in a folder, where it is that of the log, or `whose` it is is no matter."""
    folder = os.fspath(home)
    runs = _of_wandb(home) if home == path.parent else []
    own = _named_for(path)
    for name in (*own, *FILES, *_started_with(home)):
        if not os.path.isfile(os.path.join(folder, name)):
            continue
        file = home / name
        if file == path or file.stat().st_size > MAX_LINE_BYTES:
            continue
        config = content(file)
        if not tells(config) and not any(may_be_setting(key) for key in config):
            continue
        if not whose or name in own or home != path.parent or _is_its_own(path, name):
            return name, config
    if len(runs) == 1 and (not whose or _is_its_own(path)):
        return runs[0]
    return None


def _named_for(path: Path) -> list[str]:
    """Names that a file of settings may have for a log: `a.config.json` for `a_history.csv`."""
    names = dict.fromkeys((run_name(path), HISTORY.sub("", run_name(path))))
    return [f"{name}{ending}" for name in names for ending in _OF_A_LOG]


@until_it_changes
def _started_with(folder: Path) -> list[str]:
    """The file of settings under a name of the user's, where a folder has a single one."""
    names = os.listdir(folder)
    found = [name for name in names if name.endswith((".yaml", ".yml", ".toml"))]
    if len(found) == 2:
        others = [name for name, _ in of_accelerate(folder)]
        found = [name for name in found if name not in others]
    files = [name for name in names if name.endswith(".json")]
    if not found and len(files) <= _MOST_SETTINGS:
        found = [name for name in files if _says(folder / name)]
    return found if len(found) == 1 else []


def _says(file: Path) -> bool:
    """Whether a small JSON says B_p and n, and nothing of a run's course."""
    small = file.is_file() and file.stat().st_size <= LONGEST
    found = configuration(content(file)) if small else Found()
    if not (found.problems_per_batch and found.rollouts_per_problem):
        return False
    return next(islice(points_of(parse_json(file.read_bytes())[0]), 1), None) is None


def _of_job(path: Path) -> tuple[str, dict[str, object]] | None:
    """The configuration of the job in whose folder a log lies deeper, alone of its kind."""
    for folder in list(path.parents)[1 : 1 + LEVELS]:
        there = _started_with(folder)
        own = [name for name in there if name not in FILES]
        for name in (*FILES, *own):
            file = folder / name
            if file.is_file() and file.stat().st_size <= MAX_LINE_BYTES:
                alone = path.is_file() and _is_alone(path, folder)
                found = content(file) if alone else {}
                if name in own and not configuration(found).rollouts_per_problem:
                    continue
                return (os.path.relpath(file, path.parent), found) if found else None
    return None


def _is_alone(path: Path, folder: Path) -> bool:
    """Whether the logs of a log's kind below a folder are of its job alone."""
    events, seen, job = ".tfevents." in path.name, 0, job_of(path.relative_to(folder))
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".hydra", ".git")]
        seen += len(names)
        alike = (n for n in names if (".tfevents." in n if events else n.endswith(path.suffix)))
        if seen > _MOST_FILES or any(
            job_of(Path(parent, name).relative_to(folder)) != job for name in alike
            if name not in FILES
        ):
            return False
    return True


def configuration_named(
    path: Path, run: str, within: Path | None = None
) -> tuple[str, Mapping[str, object]] | None:
    """The configuration that bears a run's name, of the file or in it; None without one.

    It lies in `configs` or `train_configs` of the log's folder or of one above, there under the
    name without its seed, too; in a folder of the run's name (`outputs/NAME/.hydra`), or in W&B's
    folder of it; or the script that started it says it.

    Args:
        path: of the log.
        run: its name.
        within: the folder that was given: a file in it may name the run (`output_dir`).
    """
    homes = [home for folder in list(path.parents)[: 1 + LEVELS]
             for home in _of_configurations(folder)]  # fmt: skip
    for name, seed in filter(None, ((run, None), without_seed(run))):
        for home in homes:
            there = [file for ending in (".yaml", ".yml", ".json", ".toml")
                     if (file := home / f"{name}{ending}").is_file()
                     and file.stat().st_size <= MAX_LINE_BYTES]  # fmt: skip
            inner = _in_folder(home / name, path) if (home / name).is_dir() else None
            if not there and inner is None:
                continue
            file = there[0] if there else home / name / (inner or ("",))[0]
            said = agreed(there) if there else content(file)
            if seed is None:
                return os.path.relpath(file, path.parent), said
            if tells(said) and not contradicts(said, run):  # of runs that differ in their seed
                said = {k: v for k, v in said.items() if configuration({k: v}).seed is None}
                of = f"{os.path.relpath(file, path.parent)}, with seed={seed} of the run's name,"
                return of, {**said, "seed": seed}
    wandb = _of_wandb(path.parent)
    if (named := next((one for one in wandb if run in names_in(one[1])), None)) is not None:
        return named
    own = [(home, found) for home in folders_of(path, run) if (found := _in_folder(home, path))]
    if len(own) == 1:
        return os.path.relpath(own[0][0] / own[0][1][0], path.parent), own[0][1][1]
    return configuration_naming(path, HISTORY.sub("", run), within)


@until_it_changes
def _of_configurations(folder: Path) -> list[Path]:
    """Folders of configurations in a folder, by their names."""
    named = sorted(name for name in os.listdir(folder) if _CONFIGURATIONS.fullmatch(name))
    return [home for name in named if (home := folder / name).is_dir()]


@until_it_changes
def _of_wandb(folder: Path) -> list[tuple[str, dict[str, object]]]:
    """Configurations in W&B's folders of runs, which lie in a folder `wandb`."""
    files = sorted(folder.glob("wandb/*run-*/files/config.yaml"))[:_MOST_RUNS]
    return [(os.path.relpath(file, folder), content(file)) for file in files]


def run_and_key(path: Path) -> tuple[str, str] | None:
    """The run and the key that a file of one series is named for, where a table has that run."""
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    for folder in (path.parent, path.parent.parent):
        for rows in tables_of(folder).values():
            if folder != path.parent and path.parent.name in rows:
                return path.parent.name, stem
            named = (n for n in rows if stem.startswith(n) and stem[len(n) :][:1] in tuple("-_. "))
            if run := max(named, key=len, default=""):
                return run, stem[len(run) + 1 :]
    return None


def of_other_logs(files: Sequence[Path]) -> set[Path]:
    """Those of the files that are no logs: tables of runs, configurations named for a log."""
    named = {p.parent / name for p in files for name in _named_for(p) if p.name != name}
    folders = {p.parent for p in files}
    tables = {f / name for f in folders for name in tables_of(f)}
    started = {f / name for f in {p.parent for p in files if p.suffix == ".json"}
               for name in _started_with(f)}  # fmt: skip
    ended = {p for p in files if p.name.endswith("_results.json")  # read with the state beside it
             and p.with_name("trainer_state.json").is_file()}  # fmt: skip
    return (named | tables | started | ended | {*filter(is_answer, files)}) & set(files)


def _is_its_own(path: Path, name: str = "") -> bool:
    """Whether the configuration of a folder is that of this log; `name`: of its file."""
    if is_of_folder(path):
        return True
    if path.name == "trainer_state.json":  # of a trainer, which has one folder of outputs
        return True
    if run_name(path) == folder_name(path.parent) and not TIMED.fullmatch(path.stem):
        return True
    logs = [
        p for p in path.parent.iterdir()
        if (p.name.endswith(LOGS) or ".tfevents." in p.name) and p.name not in FILES
        and not (p.name.endswith(".json") and (is_answer(p) or _says(p)))
    ]
    # starts of one job, by their times: `identity` refuses those that do not go on with each other
    starts = {started_at(p) for p in logs} if name in FILES else {""}
    return logs == [path] or starts == {started_at(path)} != {""}
