"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text to a draft beside the target, flush it to disk, put it in place."""
    with drafted(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def drafted(path: str | Path) -> Iterator[Path]:
    """A new empty file beside the target; on a clean exit it is flushed and takes its place.

    Its name cannot be guessed, and a link in the target's place is replaced, not followed: in a
    folder that others may write to, nobody chooses which file is overwritten.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.", suffix=".part")
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
