"""Successes of a model on a problem set, for the measurement of difficulty.

Shape legend: P problems of one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from isocompute.engines.base import Unjudged
from isocompute.engines.local.policy import Policy, TokenizedProblems, base_folder
from isocompute.engines.local.steps import stream
from isocompute.engines.streams import Use
from isocompute.problems import ProblemSet

IntArray = NDArray[np.int64]


class BaseCounts(NamedTuple):
    """Outcomes of one call, per problem asked for.

    Attributes:
        successes_P: responses that were right.
        judged_P: responses that the verifier could judge.
        tokens: drawn in all.
        unjudged: what the verifier failed on; `problem` is the index into the whole set.
        cut: responses that the length limit ended.
    """

    successes_P: IntArray
    judged_P: IntArray
    tokens: int
    unjudged: tuple[Unjudged, ...]
    cut: int


def success_counter(
    model: str,
    problems: ProblemSet,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    device: str = "cpu",
) -> Callable[[IntArray, int], BaseCounts]:
    """(indices of problems, samples each) -> counts.

    Args:
        model: a Hugging Face folder, or the name of a shipped base model.
        problems: the set; every prompt must be in the model's vocabulary.
        max_new_tokens, temperature: of sampling.
        seed: of sampling; a second call draws anew.
        device: where the model computes, "cpu" or "cuda".

    Raises:
        InputError: if the model, the device or a problem cannot be used.
    """
    torch.set_num_threads(1)
    policy = Policy(base_folder(model), max_new_tokens, device=device)
    data = policy.tokenize(problems)
    calls = 0

    def count(index_P: IntArray, samples: int) -> BaseCounts:
        nonlocal calls
        calls += 1
        places = np.asarray(index_P, dtype=np.int64)
        index = torch.from_numpy(places).to(policy.device)
        part = TokenizedProblems(
            problems=data.problems.replace(
                problems=[data.problems.problems[i] for i in places.tolist()]
            ),
            token_PS=data.token_PS[index],
            length_P=data.length_P[index],
            verifier=data.verifier,
        )
        # What could not be judged is left out of the rate, so nothing has to be drawn again.
        drawn = policy.count_successes(
            part, samples, stream(seed, Use.DIFFICULTY, calls), temperature=temperature, redraws=0,
        )  # fmt: skip
        judged_P = np.full(places.shape, samples, dtype=np.int64)
        unjudged = policy.take_unjudged()
        for one in unjudged:
            judged_P[one.problem] -= one.rollouts
        return BaseCounts(
            drawn.successes_P.cpu().numpy().astype(np.int64), judged_P, drawn.tokens,
            tuple(replace(one, problem=int(places[one.problem])) for one in unjudged), drawn.cut,
        )  # fmt: skip

    return count
