"""Matrices of the model written out, to compare with what works on their blocks."""

from __future__ import annotations

import numpy as np

from isocompute.model.form import FloatArray
from isocompute.model.prior import Blocks


def whole_of(blocks: Blocks) -> FloatArray:
    """The matrices, (H, P, P)."""
    H, own, J = blocks.own.shape[:3]
    P = own * J + blocks.shared.shape[1]
    out = np.zeros((H, P, P))
    for i in range(own):
        part = slice(i * J, (i + 1) * J)
        out[:, part, part] = blocks.own[:, i]
    rest = range(own * J, P)
    out[:, rest, rest] = blocks.shared
    return out
