"""One of several runs that are trained together: what of it lives on the host.

Shape legend: P prompts of a batch, N rows (rollouts), D distinct responses, T response tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.base import DivergedError, IntArray, Sink
from isocompute.engines.local.experience import make_experience
from isocompute.engines.local.gradient import active_rows, row_weights
from isocompute.engines.local.learner import is_probed, probed_kl
from isocompute.engines.local.options import Options
from isocompute.engines.local.policy import Policy, base_folder
from isocompute.engines.local.sampling import Samples, not_finite
from isocompute.engines.local.steps import Run, stream
from isocompute.engines.streams import Use
from isocompute.study.spec import RunSpec


class Rows(NamedTuple):
    """Responses of one run as they come from the device.

    Attributes:
        place_N: prompt of each row, ascending.
        token_NT, length_N, ended_N: as of `fixed.Drawn`.
        logprob_NT: None where nobody asked for it.
    """

    place_N: IntArray
    token_NT: IntArray
    length_N: IntArray
    ended_N: IntArray
    logprob_NT: Tensor | None


def distinct(rows: Rows, words: int) -> tuple[IntArray, IntArray, IntArray]:
    """Which rows (D,) stand for the distinct ones, of whom each row (N,) is one, and their counts.

    In the order of prompts, and within a prompt of tokens.

    >>> rows = Rows(np.array([0, 0, 1]), np.array([[5, 2], [5, 2], [5, 2]]), None, None, None)
    >>> [x.tolist() for x in distinct(rows, 6)]
    [[0, 2], [0, 0, 1], [2, 1]]
    """
    code_N = rows.place_N.astype(np.int64)
    # So many tokens at once as fit into 62 bits behind the number of a prefix.
    most = max(code_N.max(initial=0) + 1, len(code_N))
    taken = max(1, int((62 - np.log2(most)) / np.log2(words)))
    for start in range(0, rows.token_NT.shape[1], taken):
        for token_N in rows.token_NT[:, start : start + taken].T:
            code_N = code_N * words + token_N
        code_N = np.unique(code_N, return_inverse=True)[1]
    _, first, of, counts = np.unique(
        code_N, return_index=True, return_inverse=True, return_counts=True
    )
    return first, of, counts


class Member(Run):
    """A run on the host; the policy's part there is tokens and rewards.

    Args:
        spec: what to train.
        sink: where records go.

    Attributes:
        error: what ended it before its end.
        is_kept: whether its end has been saved, so that nothing can take it back.
    """

    def __init__(self, spec: RunSpec, sink: Sink) -> None:
        options = Options.of(spec)
        # Its model stays what it is: the base model, for the probe of KL.
        super().__init__(spec, sink, Policy(base_folder(options.model), options.max_new_tokens))
        self.error: Exception | None = None
        self.is_kept = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: at its end, or ended by an error."""
        return self.error is not None or self.step >= self.spec.allocation.steps

    @property
    def is_probed(self) -> bool:
        """Whether the next update measures KL from the log-probabilities of the samples."""
        batch = self.spec.allocation.batch_size
        return not self.done and is_probed(self.recipe, self.step + 1, batch)

    def samples(self, rows: Rows, prompts: int, entropy: float) -> tuple[Samples, IntArray]:
        """The distinct responses of rows, and which one each row is."""
        first, of, counts = distinct(rows, self.policy.model.sizes.vocab_size)
        token_DT = torch.from_numpy(rows.token_NT[first].astype(np.int64))
        logprob = rows.logprob_NT
        made = Samples(
            token_NT=token_DT, length_N=torch.from_numpy(rows.length_N[first].astype(np.int64)),
            prompt_N=torch.from_numpy(rows.place_N[first].astype(np.int64)),
            count_N=torch.from_numpy(counts.astype(np.int64)),
            logprob_NT=torch.zeros(token_DT.shape) if logprob is None else logprob[first],
            clipped_N=torch.from_numpy(rows.ended_N[first] == 0), prompts=prompts,
            entropy=entropy,
        )  # fmt: skip
        return made, of

    def judge(self, rows: Rows, problem_P: IntArray) -> Judged:
        """Rewards of a batch, and what each of its rows is worth to the update."""
        samples, of = self.samples(rows, len(problem_P), 0.0)
        reward_D = self.policy.rewards(samples, self.train_set, problem_P.tolist())
        generator = stream(self.spec.seed, Use.LEARNING, self.step + 1)
        index = torch.from_numpy(problem_P)
        prompts = self.train_set.token_PS[index], self.train_set.length_P[index]
        made = make_experience(*prompts, samples, reward_D, self.recipe, generator=generator)
        weight, regular = row_weights(made, self.recipe)
        active = active_rows(made, self.recipe, weight, regular)
        # Of a response that was drawn c times each row carries a c-th part.
        share = 1 / samples.count_N[~reward_D.isnan()]
        numbers = (made.advantage_NT[:, 0], weight * share, regular * share,
                   active * made.count_N * share)  # fmt: skip
        pushes_4D = torch.zeros(4, len(reward_D))
        pushes_4D[:, ~reward_D.isnan()] = torch.stack([x.float() for x in numbers])
        health: dict[str, float] = {}
        if self.is_probed:
            health["kl"] = probed_kl(
                self.policy.model, *prompts, samples, generator, self.recipe.temperature
            )
        health["zero_variance_share"] = 1 - float(made.varies_P.float().mean())
        return Judged(samples, reward_D, problem_P, pushes_4D[:, torch.from_numpy(of)], health)


class Judged(NamedTuple):
    """A batch with its rewards.

    Attributes:
        samples, reward_D: distinct responses, and their rewards.
        problem_P: problems of the batch.
        pushes_4N: advantage, weight, regular weight and count of each row; see `fixed.Pushes`.
        health: what the host measured.
    """

    samples: Samples
    reward_D: Tensor
    problem_P: IntArray
    pushes_4N: Tensor
    health: dict[str, float]


def measured(made: Judged, sums: list[float], member: Member) -> tuple[Samples, dict[str, float]]:
    """The responses with their entropy, and the health numbers of an update.

    Raises:
        DivergedError: if a number is not finite.
    """
    loss, tokens, kl, norm, entropy = sums
    if not math.isfinite(entropy):
        raise not_finite()
    if not math.isfinite(norm):
        raise DivergedError(
            f"gradients must be finite, but their norm is {norm} at step {member.step + 1}; lower "
            "the learning rate."
        )
    health = made.health | {"loss": loss, "grad_norm": norm}
    if member.recipe.kl_coef > 0 and tokens:
        health["kl"] = kl / tokens
    return replace(made.samples, entropy=entropy / made.samples.tokens), health
