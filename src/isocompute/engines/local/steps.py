"""What every run has, however it is computed: random numbers, problems, records, a position.

Shape legend: Q problems of one batch, P problems of a set, N distinct responses.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.base import EvaluationRecord, IntArray, Sink, StepRecord
from isocompute.engines.local.policy import Policy, TokenizedProblems, successes_of
from isocompute.engines.local.sampling import Samples
from isocompute.engines.streams import Use, problem_order, stream_key
from isocompute.study.spec import RunSpec


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


class Run:
    """What of a run lives on the host, however it is computed: position, problems, records.

    Args:
        spec: what to train.
        sink: where records go.
        policy: judges the samples; what it counted is taken from it.
    """

    def __init__(self, spec: RunSpec, sink: Sink, policy: Policy) -> None:
        self.spec, self.sink, self.recipe, self.policy = spec, sink, spec.recipe, policy
        self.train_set = policy.tokenize(spec.train)
        self.validation: dict[str, TokenizedProblems] = {
            name: policy.tokenize(problems) for name, problems in sorted(spec.validation.items())
        }
        self.step = self.rollouts = self.tokens = 0

    def next_problems(self) -> IntArray:
        """Problems of the next update's batch."""
        b_p = self.spec.allocation.problems_per_batch
        return batch_problems(self.step + 1, len(self.train_set), b_p, self.spec.seed)

    def updated(
        self, samples: Samples, reward_N: Tensor, problem_Q: IntArray, health: dict[str, float],
        started: float,
    ) -> None:  # fmt: skip
        """Go on by one step, and record it.

        Args:
            samples, reward_N: of the batch.
            problem_Q: its problems.
            health: what the update measured; what the samples tell is added.
            started: of the step, on the monotonic clock.
        """
        batch, policy = self.spec.allocation.batch_size, self.policy
        self.step += 1
        self.rollouts += batch
        self.tokens += samples.tokens
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
        self.sink.step(StepRecord(
            step=self.step, rollouts=self.rollouts, tokens=self.tokens, problem_Q=problem_Q,
            successes_Q=successes_Q.cpu().numpy(),
            samples=self.spec.allocation.rollouts_per_problem, health=health,
            wall_s=time.monotonic() - started, unjudged=policy.take_unjudged(),
        ))  # fmt: skip

    def evaluated(
        self, name: str, successes_P: IntArray, tokens: int, rollouts: int, started: float
    ) -> None:
        """Record an evaluation of one validation set."""
        self.sink.evaluation(EvaluationRecord(
            step=self.step, rollouts=self.rollouts, tokens=self.tokens, problem_set=name,
            samples=self.spec.evaluation_samples, successes_P=successes_P,
            sampled_tokens=tokens, sampled_rollouts=rollouts,
            wall_s=time.monotonic() - started, unjudged=self.policy.take_unjudged(),
        ))  # fmt: skip

    def save_position(self, folder: Path) -> None:
        """Write where the run stands."""
        position = {"step": self.step, "rollouts": self.rollouts, "tokens": self.tokens,
                    "judged": self.policy.judged, "errors": self.policy.errors}  # fmt: skip
        (folder / "position.json").write_text(json.dumps(position), encoding="utf-8")

    def load_position(self, folder: Path) -> None:
        """Read what `save_position` wrote; an older version wrote no counts of the verifier."""
        said = json.loads((folder / "position.json").read_text(encoding="utf-8"))
        position = {"judged": 0, "errors": 0} | said
        self.step, self.rollouts, self.tokens, self.policy.judged, self.policy.errors = (
            int(position[name]) for name in ("step", "rollouts", "tokens", "judged", "errors")
        )
