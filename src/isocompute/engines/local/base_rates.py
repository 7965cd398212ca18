"""Successes of a model on a problem set, for the measurement of difficulty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from isocompute.engines.local.engine import stream
from isocompute.engines.local.policy import Policy, TokenizedProblems, base_folder
from isocompute.errors import RunError
from isocompute.problems import ProblemSet

IntArray = NDArray[np.int64]
_DIFFICULTY = 3  # a stream of random numbers apart from those of training


def success_counter(
    model: str,
    problems: ProblemSet,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Callable[[IntArray, int], tuple[IntArray, int]]:
    """(indices of problems, samples each) -> (successes per problem, tokens drawn).

    Args:
        model: a Hugging Face folder, or the name of a shipped base model.
        problems: the set; every prompt must be in the model's vocabulary.
        max_new_tokens, temperature, top_p: of sampling.
        seed: of sampling; a second call draws anew.

    Raises:
        InputError: if the model or a problem cannot be used. The function raises RunError where
            the verifier fails.
    """
    torch.set_num_threads(1)
    policy = Policy(base_folder(model), max_new_tokens)
    data = policy.tokenize(problems)
    calls = 0

    def count(index_P: IntArray, samples: int) -> tuple[IntArray, int]:
        nonlocal calls
        calls += 1
        index = torch.from_numpy(np.asarray(index_P, dtype=np.int64))
        part = TokenizedProblems(
            problems=data.problems.replace(
                problems=[data.problems.problems[i] for i in index_P.tolist()]
            ),
            token_PS=data.token_PS[index],
            length_P=data.length_P[index],
            verifier=data.verifier,
        )
        successes_P, tokens = policy.count_successes(
            part, samples, stream(_DIFFICULTY, seed, calls), temperature=temperature, top_p=top_p
        )
        if policy.errors:
            raise RunError(
                "the verifier must judge every response of a measurement, but failed on "
                f"{policy.errors} of {policy.judged}; mend the verifier."
            )
        return successes_P.numpy().astype(np.int64), tokens

    return count
