"""The configuration that a trainer or tracker writes into the folder of a run's log.

| file | of |
|---|---|
| `config.json` | tinker-cookbook (2026-08), utils/ml_log.py |
| `experiment_config.json` | EasyR1 0.3.2, verl/utils/logger/logger.py |
| `args.json` | ms-swift 4.4, arguments/base_args/base_args.py |
| `config.yaml`, `files/config.yaml` | W&B's folder of a run (`KEY: {value: ...}`), AReaL 1.0.4 |
| `.hydra/config.yaml` | whatever Hydra starts: verl |
| `configs/orch.toml`, `configs/rl.toml` | prime-rl's own, where they are kept beside its metrics |

It belongs to a log that goes by its folder's name (`metrics.jsonl`) or is the only log there;
beside several, which one it is of is not known, and none takes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.configuration import configuration
from isocompute.importers.reading import MAX_LINE_BYTES, flatten, parse_json, run_name

_FILES = (
    "config.json", "experiment_config.json", "args.json", "config.yaml", "files/config.yaml",
    ".hydra/config.yaml", "configs/orch.toml", "configs/orchestrator.toml", "configs/rl.toml",
    "orch.toml",
)
# prime-rl's orchestrator writes its own part alone
_ORCHESTRATOR = ("orch", "orchestrator")
_LOGS = (".jsonl", ".csv", ".tsv", ".gz", ".json", ".log", ".out", ".txt")


def configuration_beside(path: Path) -> tuple[str, dict[str, object]] | None:
    """The name and the content, flat, of the configuration beside a log; None where there is none.

    Args:
        path: of the log.
    """
    folder = os.fspath(path.parent)
    for name in _FILES:
        if not os.path.isfile(os.path.join(folder, name)):
            continue
        file = path.parent / name
        if file == path or file.stat().st_size > MAX_LINE_BYTES:
            continue
        config = _content(file)
        found = configuration(config)
        if (found.problems_per_batch or found.rollouts_per_problem) and _is_its_own(path):
            return name, config
    return None


def _content(file: Path) -> dict[str, object]:
    """A configuration file, flat; empty where it cannot be read."""
    value: object = None
    if file.suffix == ".json":
        value, _ = parse_json(file.read_bytes())
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
            value = {
                key: inner["value"] if isinstance(inner, Mapping) and "value" in inner
                and set(inner) <= {"value", "desc"} else inner
                for key, inner in value.items() if key not in ("_wandb", "wandb_version")
            }
    return flatten(value)


def _is_its_own(path: Path) -> bool:
    """Whether the configuration of a folder is that of this log."""
    if run_name(path) == path.parent.name:
        return True
    logs = [p for p in path.parent.iterdir() if p.name.endswith(_LOGS) and p.name not in _FILES]
    return logs == [path]
