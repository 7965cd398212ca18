"""How many processes trained, by accelerate's own file: no configuration of a trainer says it.

`accelerate launch --config_file zero2.yaml` (002dd35, commands/config/config_args.py,
ClusterConfig): the file has `distributed_type` and `num_processes`, those of all machines; -1 says
nothing. It lies beside the log or in a folder above, alone of its kind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from isocompute.importers.elsewhere import content
from isocompute.importers.fresh import processes_of
from isocompute.importers.reading import MAX_LINE_BYTES

_OF_A_DEVICE = ("per_device_train_batch_size", "grpo_samples")  # TRL, torchtune


def with_processes(
    found: tuple[str, Mapping[str, object]], path: Path, levels: int
) -> tuple[str, dict[str, object]]:
    """A configuration of one device's batch, with the processes that such a file starts.

    Args:
        found: the name of a configuration, and what it says.
        path: of the log.
        levels: folders above the log's that are looked into.
    """
    name, config = found
    if any(key in config for key in _OF_A_DEVICE) and not processes_of(config):
        for folder in list(path.parents)[:levels]:
            if len(there := of_accelerate(folder, folder.stat().st_mtime_ns)) == 1:
                file, count = there[0]
                file = os.path.relpath(folder / file, path.parent)
                return f"{name} and {file}", {**config, "num_processes": count}
    return name, dict(config)


@lru_cache(maxsize=8)
def of_accelerate(folder: Path, _changed: int) -> list[tuple[str, object]]:
    """Files of `accelerate config` in a folder, and the processes that each starts."""
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    read = ((f.name, content(f)) for f in sorted(files) if f.stat().st_size <= MAX_LINE_BYTES)
    return [(name, config["num_processes"]) for name, config in read
            if {"num_processes", "distributed_type"} <= config.keys()]  # fmt: skip
