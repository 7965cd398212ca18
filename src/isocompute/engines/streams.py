"""Random numbers of the engines: every use has a key of its own, and no two keys meet.

A key is always the same six words: seed (two), use, first number (two), second number. NumPy fills
a short key with zeros and cuts a large number into words, so that (3, 0, 7) and (3, 0, 7, 0) would
be one stream, as would be two uses that put the same numbers at different places.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_WORD = 32
_MOST = 1 << 2 * _WORD


class Use(IntEnum):
    """What random numbers are for, and what tells the streams of one use apart."""

    TRAINING = 0  # step
    EVALUATION = 1  # step, number of the set
    ORDER = 2  # pass over the training set
    DIFFICULTY = 3  # call
    LEARNING = 4  # step


def stream_key(seed: int, use: Use, first: int, second: int = 0) -> tuple[int, ...]:
    """The six words of one stream.

    >>> stream_key(3, Use.EVALUATION, 2**32, 1)
    (3, 0, 1, 0, 1, 1)
    """
    assert min(seed, first, second) >= 0
    assert max(seed, first) < _MOST
    assert second < 1 << _WORD
    mask = (1 << _WORD) - 1
    return seed & mask, seed >> _WORD, int(use), first & mask, first >> _WORD, second


def problem_order(seed: int, number: int, size: int) -> NDArray[np.int64]:
    """Order of the problems in one pass (0-based) over the training set."""
    return np.random.default_rng(stream_key(seed, Use.ORDER, number)).permutation(size)
