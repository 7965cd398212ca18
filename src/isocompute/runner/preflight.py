"""Checks before any compute is spent: the trainer, the folder, its file system, its room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from isocompute.engines import engine_target, load_engine
from isocompute.store.database import StorageError, storage_error
from isocompute.study import Study

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "9p",
            "glusterfs", "afs", "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs",
            "virtiofs"}  # fmt: skip
_ROOM = 16 << 20  # bytes: below this no study can start


def check_trainers(study: Study) -> None:
    """Ask once whether the trainers of a study are installed: no other attempt would mend that.

    Raises:
        NotInstalledError: one line, with the Python that lacks it.
    """
    asked = set[str]()
    for spec in study.runs:
        key = repr((spec.engine, sorted(spec.engine_options.items())))
        if key not in asked:
            asked.add(key)
            engine = load_engine(engine_target(spec.engine))
            getattr(engine, "check_installed", lambda _: None)(spec)


def check_before_writing(study: Study, folder: Path) -> bool:
    """`check_trainers` of a study that is not begun: bad input leaves nothing behind.

    Returns:
        Whether it was asked. One that is begun may have nothing left to train.
    """
    if (folder / "study.db").is_file():
        return False
    check_trainers(study)
    return True


def check_folder(folder: Path) -> list[str]:
    """Try to write, look for room, and warn of a network file system.

    Returns:
        Warnings, one line each.

    Raises:
        StorageError: if the folder cannot be written or has no room.
    """
    try:
        descriptor, probe = tempfile.mkstemp(dir=folder, prefix=".probe-")
        try:
            os.write(descriptor, b"\0" * 4096)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            Path(probe).unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise storage_error(error) from error
    if free < _ROOM:
        raise StorageError(
            f"the study folder must have at least {_ROOM >> 20} MiB of room, but it has "
            f"{free >> 20} MiB; free space or choose another folder (-o)."
        )
    kind = file_system(folder)
    if kind in _NETWORK:
        return [
            f"{folder} is on a network file system ({kind}), where SQLite's locks may not hold; "
            "run one runner at a time, or put the study on a local disk."
        ]
    return []


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Type of the file system that holds the folder, or "" where it cannot be known."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    path = os.path.realpath(folder)
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
