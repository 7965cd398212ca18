"""Random numbers that are a function of what they are for: nothing is stored, nothing advances.

Shape legend: `...` rows (one per rollout), T tokens.

A generator on a device has a state that every draw moves on: to be saved, and another for every
order of draws. Here the numbers of a rollout depend on its key (seed, use, step), its problem and
its place among that problem's rollouts, and on nothing else. So a resumed run needs no state, runs
that are trained together draw what each would draw alone, and all devices draw the same bits.

Source: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.streams import Use, stream_key

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_WORD = 0xFFFFFFFF

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four random words of 32 bits, as int64, for every counter.

    Args:
        counter: four words of 32 bits, as int64; their shapes broadcast.
        key: two words; the same.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(_ROUNDS):
        if number:
            k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
        # Products of 64 bits wrap in int64; their halves are the right ones.
        one, two = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((two >> 32) & _WORD) ^ c1 ^ k0, two & _WORD,
            ((one >> 32) & _WORD) ^ c3 ^ k1, one & _WORD,
        )  # fmt: skip
    return c0, c1, c2, c3


def device_key(
    seed: int, use: Use, first: int, second: int = 0, again: int = 0
) -> tuple[int, int]:
    """Two words of 32 bits: the key of one stream; see `stream_key`.

    `again` tells apart the draws of problems that are drawn again.
    """
    words = (*stream_key(seed, use, first, second), *((again,) if again else ()))
    one, two = np.random.SeedSequence(words).generate_state(2, np.uint32).tolist()
    return one, two


def uniforms(key: Tensor, problem: Tensor, sample: Tensor, tokens: int) -> Tensor:
    """Numbers (..., T) in [0, 1), float64 with 53 random bits.

    Args:
        key: (..., 2) words of `device_key`.
        problem: (...) number of each row's problem.
        sample: (...) number of the row among those of its problem.
        tokens: T.
    """
    pair = torch.arange((tokens + 1) // 2, device=sample.device)
    counter = pair, sample[..., None], problem[..., None], torch.zeros_like(pair)
    a, b, c, d = philox(counter, (key[..., :1], key[..., 1:]))
    words = torch.stack([(a >> 5) * (1 << 26) + (b >> 6), (c >> 5) * (1 << 26) + (d >> 6)], -1)
    return words.flatten(-2)[..., :tokens].double() * 2.0**-53
