"""Files of settings, whatever they are called: what they hold, and whose they are by that.

`recipes/a.yaml` with `output_dir: outputs/RUN` is RUN's, wherever its log lies. How many processes
trained no configuration of a trainer says, but accelerate's own file does:
`accelerate launch --config_file zero2.yaml` (002dd35, commands/config/config_args.py,
ClusterConfig) has `distributed_type` and `num_processes`, those of all machines; -1 says nothing.
It lies beside the log or in a folder above, alone of its kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import (
    MAX_LINE_BYTES,
    flatten,
    parse_json,
    until_it_changes,
    unwrapped,
    whole,
)
from isocompute.importers.words.called import COUNTS, is_called
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.fresh import processes_of
from isocompute.importers.words.names import number_in

NAMED_IN = ("wandb_run_name", "wb_run_name", "run_name", "exp_name", "experiment_name")
PLACED_IN = ("output_dir", "output_path", "default_local_dir", "log_dir", "log_path", "save",
              "logging_dir", "save_path", "save_dir", "ckpt_path", "checkpoint_dir")  # fmt: skip
# prime-rl's orchestrator writes its own part alone
_ORCHESTRATOR = ("orch", "orchestrator")
# a start that trains nothing overwrites the file of the one before (EasyR1, verl: trainer.val_only)
_TRAINS_NOTHING = re.compile(r"(?:^|[._])(?:val|eval|evaluate|test)_only$")
SETTINGS_IN = (".yaml", ".yml", ".toml", ".json")
_DEEP = 4  # references of references
_MOST, LONGEST = 2_000, 1 << 16  # files; bytes of one: a log is longer
# Folders above a log's that are looked into: verl writes logs/PROJECT/RUN.jsonl below the job's
# folder, 2 levels; half loses it, twice finds no more there.
LEVELS = 4
_NOT_OURS = ("wandb", "mlruns", "node_modules", "site-packages")
# How every answer of ours begins that a command wrote (`--json`).
_ANSWER = re.compile(
    r'\{\s*"version": \d,\s*"(?:budget_rollouts|answer|setting|method|a|problem_set|stored|study'
    r'|name|estimate|findings)":'
)
_STUDY = ("engine", "grid", "budget")  # of a study file
_TELLING = re.compile(r"[a-z].*[-_.0-9]|[-_.0-9].*[a-z]", re.I)  # `grpo` may be any word of it
_OF_A_DEVICE = ("per_device_train_batch_size", "grpo_samples")  # TRL, torchtune


def is_telling(run: str) -> bool:
    """Whether a run's name is no plain word or number, which may stand anywhere."""
    return _TELLING.search(run) is not None


def names_in(config: Mapping[str, object]) -> set[str]:
    """What a configuration calls its run."""
    return {str(v) for k, v in config.items() if k.rpartition(".")[2] in NAMED_IN}


def configuration_elsewhere(
    path: Path, run: str, within: Path | None
) -> tuple[str, dict[str, object]] | None:
    """The file of settings that names a run, or the folder of its outputs; None where two differ.

    Args:
        path: of the log.
        run: its name.
        within: the folder that is looked through.
    """
    if within is None or not is_telling(run):
        return None
    found = dict[Path, dict[str, object]]()
    for file, text in configurations_in(within):
        if run in text and file != path and _is_of(said := content(file), run):
            found[file] = said
    if not found or len({repr(sorted(said.items(), key=str)) for said in found.values()}) > 1:
        return None
    file, said = list(found.items())[-1]  # every checkpoint may have a copy
    return None if contradicts(said, run) else (os.path.relpath(file, path.parent), said)


def _is_of(said: Mapping[str, object], run: str) -> bool:
    places = {str(v).rstrip("/").rpartition("/")[2] for k, v in said.items()
              if k.rpartition(".")[2] in PLACED_IN}  # fmt: skip
    return run in names_in(said) | places | {str(said.get("name"))} and tells(said)


def is_ours(text: str) -> bool:
    """Whether a text is an answer or a study file of ours: no log's run was trained by it."""
    return _ANSWER.match(text) is not None or all(
        re.search(rf"^{key}:", text, re.MULTILINE) for key in _STUDY
    )


def is_answer(file: Path) -> bool:
    """Whether a file holds an answer of ours (`--json`)."""
    if file.suffix != ".json":
        return False
    with file.open("rb") as handle:
        return is_ours(handle.read(200).decode("utf-8", "replace"))


def tells(said: Mapping[str, object]) -> bool:
    """Whether settings say B_p or n, or what may be."""
    found = configuration(said)
    return bool(found.problems_per_batch or found.rollouts_per_problem or found.notes)


def contradicts(said: Mapping[str, object], run: str) -> bool:
    """Whether a run's name speaks of another n or B_p: a script that was changed for the next."""
    b_p, n, _ = configuration(said).design
    batch = number_in(run, "problems_per_batch")
    called = number_in(run, "rollouts_per_problem")
    # a name may say B_p * n
    other = None not in (b_p, n, batch) and batch not in (b_p, (b_p or 0) * (n or 0))
    return other or (None not in (n, called) and n != called)


@lru_cache(maxsize=1)
def configurations_in(within: Path) -> list[tuple[Path, str]]:
    """Files below a folder that may hold settings, with their text; none where they are many."""
    found = list[tuple[Path, str]]()
    for parent, folders, names in os.walk(within):
        folders[:] = sorted(f for f in folders if f not in _NOT_OURS and f[0] != ".")
        for name in sorted(n for n in names if n.endswith(SETTINGS_IN)):
            file = Path(parent, name)
            if file.is_file() and file.stat().st_size <= LONGEST:
                found.append((file, file.read_text("utf-8", "replace")))
            if len(found) > _MOST:
                return []
    return found


def agreed(files: Sequence[Path]) -> dict[str, object]:
    """What files of one name say, as a.json and a.yaml do; the first, where all say the same B_p.

    Raises:
        UnclearError: they do not.
    """
    said = [content(file) for file in files]
    of = [configuration(one).design for one in said if tells(one)]
    if any(one != of[0] for one in of):
        raise UnclearError(
            f"{files[0].parent}: configurations of one name must say the same B_p, n and seed, but "
            f"{' and '.join(file.name for file in files)} differ; move away the one that is not "
            "of the runs."
        )
    return next((one for one in said if tells(one)), said[0])


def content(file: Path) -> dict[str, object]:
    """A configuration file, flat; empty where it cannot be read."""
    value: object = None
    if is_ours(file.read_text("utf-8", "replace")):
        return {}
    if file.suffix == ".json":
        value, _ = parse_json(file.read_bytes())
        if file.stem in _ORCHESTRATOR and isinstance(value, dict):
            value = {"orchestrator": value, **value}
        if isinstance(value, list):  # Comet's
            rows = [row for row in value if isinstance(row, dict)]
            _refuse_changed(file, rows)
            value = {str(row.get("name")): row.get("valueCurrent") for row in rows}
    elif file.suffix == ".toml":
        import tomllib

        try:
            value = tomllib.loads(file.read_text("utf-8", "replace"))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}
        if file.stem in _ORCHESTRATOR:
            value = {"orchestrator": value, **value}
    else:  # most logs have none beside them
        from isocompute.study.yaml12 import read_yaml

        try:
            value = read_yaml(file)
        except InputError:
            return {}
        if isinstance(value, Mapping):  # W&B: {"lr": {"value": 1e-6, "desc": null}}
            value = {k: v for k, v in value.items() if k not in ("_wandb", "wandb_version")}
    flat = resolved(flatten(unwrapped(value)))
    if any(_TRAINS_NOTHING.search(key) and flat[key] is True for key in flat):
        return {}
    if "trl.num_generations" in flat and "micro_batch_size" in flat:  # axolotl's words for TRL's
        flat.setdefault("per_device_train_batch_size", flat["micro_batch_size"])
    return flat


def _refuse_changed(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Refuse a B_p or n that Comet has several of: it keeps the least and the most of a run."""
    for row in rows:
        key = str(row.get("name"))
        least, most = (whole(row.get(f"value{end}")) for end in ("Min", "Max"))
        if least != most and None not in (least, most) and any(map(is_called, (key, key), COUNTS)):
            raise UnclearError(
                f"a run must have one {key}, but {file} says {least} to {most}: it was changed on "
                "the way, and no curve holds both; move the run's folder away."
            )


_KEY_OF = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_WHOLE = r"\s*([0-9]{1,9})\s*"
_DIVIDED = re.compile(rf"\$\{{\w*div\w*:{_WHOLE},{_WHOLE}\}}|"
                      rf"\$\{{\w+:['\"]?{_WHOLE}//?{_WHOLE}['\"]?\}}")  # fmt: skip


def resolved(flat: Mapping[str, object]) -> dict[str, object]:
    """Settings with the values that they refer to, as OmegaConf keeps them (`.hydra/config.yaml`).

    >>> resolved({"b": 64, "k": 8, "n": "${k}", "p": "${int_div:${b},${n}}"})
    {'b': 64, 'k': 8, 'n': 8, 'p': 8}
    """
    def divided(one: re.Match[str]) -> str:
        all_of, by = (int(part) for part in one.groups() if part)
        return str(all_of // by) if by and all_of % by == 0 else one[0]

    out = dict(flat)
    for key, value in flat.items():
        for _ in range(_DEEP):
            if not isinstance(value, str) or "${" not in value:
                break
            known = _KEY_OF.fullmatch(value)
            value = flat.get(known[1], value) if known else _DIVIDED.sub(divided, _KEY_OF.sub(
                lambda one: str(flat.get(one[1], one[0])), value))  # fmt: skip
        if "${" not in str(value) and not isinstance(value, (dict, list)):
            text = isinstance(value, str) and value.isdecimal()
            out[key] = int(str(value)) if text and value is not flat[key] else value
    return out


def with_processes(
    found: tuple[str, Mapping[str, object]], path: Path
) -> tuple[str, dict[str, object]]:
    """A configuration of one device's batch, with the processes that such a file starts.

    Args:
        found: the name of a configuration, and what it says.
        path: of the log.
    """
    name, config = found
    if any(key in config for key in _OF_A_DEVICE) and not processes_of(config):
        own = (path.parent / name).parent  # recipes/ may hold both
        for folder in (*list(path.parents)[:LEVELS], *[own] * own.is_dir()):
            if len(there := of_accelerate(folder)) == 1:
                file, count = there[0]
                file = os.path.relpath(folder / file, path.parent)
                return f"{name} and {file}", {**config, "num_processes": count}
    return name, dict(config)


@until_it_changes
def of_accelerate(folder: Path) -> list[tuple[str, object]]:
    """Files of `accelerate config` in a folder, and the processes that each starts."""
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    read = ((f.name, content(f)) for f in sorted(files) if f.stat().st_size <= MAX_LINE_BYTES)
    return [(name, config["num_processes"]) for name, config in read
            if {"num_processes", "distributed_type"} <= config.keys()]  # fmt: skip
