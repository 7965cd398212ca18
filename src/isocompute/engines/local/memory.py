"""The C library's allocator, told to keep what tensors give back.

By default glibc returns large freed blocks to the system and takes them again page by page, and the
system clears every page. With nothing but short-lived tensors of some megabytes that was 10 to 20%
of an update's CPU time; peak memory stays the same.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MOST = -1, -4  # of malloc.h
_KEPT = 1 << 30  # free bytes at the heap's end before any are returned
_MAPPED = 0  # blocks that may be mapped by themselves, to be cleared each time


def keep_freed_memory() -> bool:
    """Set it for this process; False where the C library has no such setting."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return False
    return bool(mallopt(_MMAP_MOST, _MAPPED)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
