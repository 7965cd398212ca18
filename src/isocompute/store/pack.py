"""Integer arrays as bytes: little-endian, unsigned, of the smallest width that holds them.

Shape legend: P problems; K + 1 possible numbers of successes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError

IntArray = NDArray[np.int64]


def pack(values: NDArray[np.integer[Any]], *, most: int | None = None) -> bytes:
    """Bytes of a 1-D array of integers in 0..most (None: no upper end).

    >>> pack(np.array([1, 2, 300])).hex()
    '010002002c01'

    Raises:
        InputError: if a value lies outside, or the array is not 1-D.
    """
    array = np.asarray(values)
    # Negative values become huge ones, so that a single pass finds both ends.
    unsigned = array.astype(np.uint64)
    top = int(unsigned.max()) if array.size else 0
    if array.ndim != 1 or top >= 1 << 63 or (most is not None and top > most):
        ends = (int(array.min()), int(array.max())) if array.size else ()
        raise InputError(
            f"counts must be 1-D and lie in 0..{'' if most is None else most}, but got shape "
            f"{array.shape} with ends {ends}; correct the engine."
        )
    width = 1 if top < 1 << 8 else 2 if top < 1 << 16 else 4 if top < 1 << 32 else 8
    return unsigned.astype(f"<u{width}").tobytes()


def unpack(data: bytes, size: int) -> IntArray:
    """The array of `size` integers that `pack` made into bytes.

    Raises:
        InputError: if the number of bytes does not fit.
    """
    if size == 0 and not data:
        return np.zeros(0, dtype=np.int64)
    width = len(data) // size if size else 0
    if width not in (1, 2, 4, 8) or width * size != len(data):
        raise InputError(
            f"a packed array of {size} integers must take 1, 2, 4 or 8 bytes each, but got "
            f"{len(data)} bytes; study.db is damaged, run `isocompute doctor`."
        )
    return np.frombuffer(data, dtype=f"<u{width}").astype(np.int64)


def count_text(successes_P: NDArray[np.integer[Any]], samples: int) -> str:
    """Number of problems with 0, 1, ..., `samples` successes, as JSON text.

    >>> count_text(np.array([0, 0, 2, 1]), 2)
    '[2,1,1]'

    Raises:
        InputError: if a count of successes lies outside 0..samples.
    """
    array = np.asarray(successes_P)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if samples < 1 or low < 0 or high > samples:
        raise InputError(
            f"successes must lie in 0..samples, but got {low}..{high} with samples={samples}; "
            "correct the engine."
        )
    return json.dumps(np.bincount(array, minlength=samples + 1).tolist(), separators=(",", ":"))


def fits(problems: int | None, counts: int, samples: int) -> bool:
    """Whether an evaluation has as many counts as its set has problems.

    Of outcomes whose problems are not known each stands alone: a whole number of single ones for
    every problem.
    """
    if problems is None:
        return False
    return counts == problems or (samples == 1 and counts > 0 and counts % problems == 0)
