"""Checkpoint folders: made, made durable, hashed, checked, removed.

A checkpoint is valid only if the database refers to it, so nothing is renamed: a folder whose
commit never happened is an orphan, found and removed by the run's next owner. Every path is
built from our own hash and integers, never from a name in a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isocompute.errors import InputError

_BLOCK = 1 << 20


def run_folder(study: Path, run_hash: str) -> Path:
    """Where the checkpoints of a run live.

    Raises:
        InputError: if the hash is not 16 hexadecimal digits (a damaged or doctored file).
    """
    if not re.fullmatch(r"[0-9a-f]{16}", run_hash):
        raise InputError(
            f"a run's hash must be 16 hexadecimal digits, but got {run_hash!r}; "
            "study.db is damaged, restore it from a copy."
        )
    return study / "checkpoints" / run_hash


def checkpoint_folder(study: Path, run_hash: str, token: int, serial: int) -> Path:
    """The folder of one checkpoint: the claim's token and the checkpoint's number in it."""
    return run_folder(study, run_hash) / f"{int(token)}-{int(serial)}"


def weights_of(folder: Path) -> str:
    """Hash of a folder's model weights alone, nothing made durable."""
    return _hash(folder)[1]


def seal(folder: Path) -> tuple[str, str, int]:
    """Make a folder durable and return (sha256, sha256 of its model weights, bytes).

    The weights are the file `model.*` (model.safetensors), if there is one.

    Raises:
        OSError: if any fsync fails; the checkpoint then never happened.
    """
    paths = [*folder.rglob("*"), folder, folder.parent]
    # What waits for the disk at the same time shares one commit of the file system's journal:
    # measured 5 ms instead of 20 for a checkpoint of three files.
    with ThreadPoolExecutor(max_workers=8) as threads:
        waits = [threads.submit(_sync, path) for path in paths]
        found = _hash(folder)
    for wait in waits:
        wait.result()
    return found


def fault(folder: Path, sha256: str, owner: Callable[[str], str] = lambda _: "") -> str:
    """Why a checkpoint cannot be used, or "" if it is complete.

    Args:
        folder: of the checkpoint.
        sha256: as committed.
        owner: hash -> which other checkpoint was committed with it, in words, or "".
    """
    try:
        if not folder.is_dir():
            return "its folder is missing"
        digest, _, size = _hash(folder)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if digest != sha256:
        if size and (other := owner(digest)):
            return f"its folder holds {other}; the folders were swapped or copied"
        return "its content is empty" if size == 0 else "its hash differs from the committed one"
    return ""


def make_folder(path: Path) -> None:
    """Make a folder, its parents too, each durable in its own parent."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def remove(folder: Path) -> None:
    """Remove a folder that nothing refers to; what cannot be removed is left for later."""
    shutil.rmtree(folder, ignore_errors=True)


def _hash(folder: Path) -> tuple[str, str, int]:
    total, weights, size = hashlib.sha256(), "", 0
    for path in sorted(p for p in folder.rglob("*") if not p.is_dir()):
        content = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                content.update(block)
                size += len(block)
        name = path.relative_to(folder).as_posix()
        total.update(f"{len(name.encode())}:{name}:{content.hexdigest()}".encode())
        if path.parent == folder and path.stem == "model":
            weights = content.hexdigest()
    return total.hexdigest(), weights, size


def _sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
