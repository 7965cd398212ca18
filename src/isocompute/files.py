"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isocompute.errors import InputError

fcntl: Any = None  # where a system has no locks, drafts of killed writers stay
with contextlib.suppress(ImportError):
    fcntl = importlib.import_module("fcntl")

_RANDOM = 8  # letters of a draft's name that `mkstemp` chooses


def not_found(path: str | Path) -> str:
    """That there is no such file, with the nearest name beside it where one is near."""
    path = Path(path)
    if path.is_symlink():
        return f"file not found: the link {path} leads nowhere; check where it points"
    if path.exists():
        return f"not a file: {path}; check the name and the folder"
    there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, sorted(there), n=1, cutoff=0.7)
    if not near:
        return f"file not found: {path}; check the name and the folder"
    return f"file not found: {path}. Did you mean {path.parent / near[0]}?"


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text to a draft beside the target, flush it to disk, put it in place."""
    with drafted(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def drafted(path: str | Path) -> Iterator[Path]:
    """A new empty file beside the target; on a clean exit it is flushed and takes its place.

    Its name cannot be guessed, and a link in the target's place is replaced, not followed: in a
    folder that others may write to, nobody chooses which file is overwritten.

    Raises:
        InputError: if the target is a device or a pipe, or a link to one: a file would stand in
            its place, and who may do that to /dev/null does it to the whole machine.
    """
    path = Path(path)
    refuse_device(path)
    handle, name = _draft(path)
    try:
        yield Path(name)
        os.fsync(handle)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _draft(path: Path) -> tuple[int, str]:
    """A new locked draft; those of writers that were killed, which nobody locks, are removed."""
    prefix, suffix = f".{path.name[:50]}.", ".part"
    with contextlib.suppress(OSError):
        for old in path.parent.iterdir():
            word = old.name.removeprefix(prefix).removesuffix(suffix)
            if old.name == f"{prefix}{word}{suffix}" and len(word) == _RANDOM:
                with contextlib.suppress(OSError, AttributeError), old.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    old.unlink()
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=suffix)
        with contextlib.suppress(OSError, AttributeError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # somebody took it for one of the dead before it was locked


def refuse_device(path: Path) -> None:
    """Raise where an output would replace something that is no file.

    Raises:
        InputError: names it.
    """
    mode = stat.S_IFREG  # no such file yet, or a link in a circle, which is replaced
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
    # /dev/stdout is a link, and where it leads may be a file.
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _is_link_of_system(path):
        raise InputError(
            f"an output must be a file, but {str(path)!r} is a device or pipe; name a file, "
            "or - for standard output where an option takes it."
        )


def refuse_file(folder: Path) -> None:
    """Raise where a folder is to be made and a file stands.

    Raises:
        InputError: names it.
    """
    for place in (folder, *folder.parents):
        if place.is_file():
            raise InputError(f"{str(place)!r} must be a folder, but is a file; name another.")


def _is_link_of_system(path: Path) -> bool:
    return path.is_symlink() and path.absolute().parent in (Path("/dev"), Path("/dev/fd"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
