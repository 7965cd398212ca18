"""Scores by position: the best so far, those at some places, those between points of a lattice.

Shape legend: D draws, J or F curves, L points of a lattice, X positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.intervals import FloatArray

IntArray = NDArray[np.int64]


def keep_best(value_FXD: NDArray[np.floating[Any]]) -> None:
    """Make of every score the best so far, in place; rows of draws take a tenth of the time."""
    for x in range(1, value_FXD.shape[1]):
        np.maximum(value_FXD[:, x], value_FXD[:, x - 1], out=value_FXD[:, x])


def at_places(values: NDArray[Any], index: IntArray) -> NDArray[Any]:
    """Values (..., J, L) at places (X,) of the last axis, or at those (J, X) of each row."""
    if index.ndim == 1:
        return values[..., index]
    return np.take_along_axis(values, index[None], axis=-1)


def interpolate(lattice: FloatArray, values: FloatArray, x: FloatArray) -> FloatArray:
    """Linear in x, on an even lattice, held at its ends."""
    place = np.clip((x - lattice[0]) / (lattice[1] - lattice[0]), 0, len(lattice) - 1.001)
    left = place.astype(int)
    share = place - left
    out: FloatArray = at_places(values, left) * (1 - share) + at_places(values, left + 1) * share
    return out
