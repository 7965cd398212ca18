"""What every step of training has, however it is computed: numbers, problems and a record.

Shape legend: Q problems of one batch, N distinct responses.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.base import IntArray, StepRecord
from isocompute.engines.local.policy import Policy, successes_of
from isocompute.engines.local.sampling import Samples
from isocompute.engines.streams import Use, problem_order, stream_key


def stream(seed: int, use: Use = Use.TRAINING, first: int = 0, second: int = 0) -> torch.Generator:
    """A generator of random numbers that depends on nothing but its key; see `stream_key`.

    Every step draws from its own stream, so that a resumed run needs no saved state.
    """
    key = stream_key(seed, use, first, second)
    word = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word))


def batch_problems(step: int, size: int, batch: int, seed: int) -> IntArray:
    """Problems of a step (1-based): passes over the set in random order, batches unique.

    What a pass leaves over when `size` is no multiple of `batch` is dropped.
    """
    passes, place = divmod(step - 1, size // batch)
    return problem_order(seed, passes, size)[place * batch : (place + 1) * batch]


def step_record(
    policy: Policy, samples: Samples, reward_N: Tensor, *, step: int, rollouts: int, tokens: int,
    problem_Q: IntArray, samples_each: int, health: dict[str, float], started: float,
) -> StepRecord:  # fmt: skip
    """The record of an update; adds what the samples tell to its health.

    Args:
        policy: has judged the samples; what it counted is taken from it.
        samples, reward_N: of the batch.
        step, rollouts, tokens: position after the update.
        problem_Q: problems of the batch.
        samples_each: rollouts per problem.
        health: what the update measured.
        started: of the step, on the monotonic clock.
    """
    batch = len(problem_Q) * samples_each
    successes_Q = successes_of(samples, reward_N)
    errors = int((samples.count_N * reward_N.isnan()).sum())
    health |= {
        "reward": float(successes_Q.sum()) / max(1, batch - errors),
        "entropy": samples.entropy,
        "length_tokens": samples.tokens / batch,
        "distinct_share": samples.length_N.numel() / batch,
        # Those of an evaluation count in the next step.
        "verifier_error_share": policy.errors / policy.judged,
    }
    policy.judged = policy.errors = 0
    if policy.model.sizes.end_tokens:
        health["clipped_share"] = policy.cut_off(samples) / batch
    return StepRecord(
        step=step, rollouts=rollouts, tokens=tokens, problem_Q=problem_Q,
        successes_Q=successes_Q.cpu().numpy(), samples=samples_each, health=health,
        wall_s=time.monotonic() - started, unjudged=policy.take_unjudged(),
    )  # fmt: skip
