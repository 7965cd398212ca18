"""One problem, tabular softmax: the suboptimality after t updates of n samples is A/(n t) + B/t.

With K answers, one of them right, REINFORCE against the group mean (no division by std) and step
size eta, the expected gradient closes the gap delta = 1 - pi by delta' = -eta K/(K - 1) delta^2
near the optimum, and the group mean, which holds the sample itself, shrinks it by (n - 1) / n.
Hence t * delta -> B n / (n - 1) = B + B / (n - 1) with the planted B = (K - 1) / (K eta).
"""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.engines.simulator import World, grpo_direction, simulated_problems

K, ETA, RUNS = 4, 0.4, 400
B = (K - 1) / (K * ETA)


def suboptimality(n: int, steps: int) -> float:
    """Mean of 1 - pi over runs from uniform policies, by the simulator's own update."""
    rng = np.random.default_rng(n)
    logits_RK = np.zeros((RUNS, K))
    right_RK = np.zeros((RUNS, K), dtype=bool)
    right_RK[:, 0] = True

    def policy() -> np.ndarray:
        raised = np.exp(logits_RK - logits_RK.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    for _ in range(steps):
        pi_RK = policy()
        counts_RK = rng.multinomial(n, pi_RK)
        # the direction is a mean over the problems of a batch; here each is a run of its own
        logits_RK += ETA * RUNS * grpo_direction(counts_RK, right_RK, pi_RK, "none")
    return float(1 - policy()[:, 0].mean())


@pytest.mark.long
def test_the_rate_of_one_problem_is_the_planted_one() -> None:
    t = 1024
    scaled = {n: t * suboptimality(n, t) for n in (2, 4, 16, 64)}
    for n, value in scaled.items():
        assert value == pytest.approx(B * n / (n - 1), rel=0.1)
    # A and B by regression on 1/n, n = 2 left out, where 1/(n - 1) is far from 1/n
    n = np.array([4, 16, 64])
    a, b = np.polyfit(1 / n, [scaled[int(v)] for v in n], 1)
    assert b == pytest.approx(B, rel=0.1)
    assert a == pytest.approx(B * 4 / 3, rel=0.25)


def test_suboptimality_falls_as_one_over_t() -> None:
    early, late = suboptimality(16, 256), suboptimality(16, 1024)
    assert early / late == pytest.approx(4, rel=0.15)


def test_one_problem_prefers_updates_to_samples_at_equal_compute() -> None:
    """C = n t = 4,096: fewer samples and more updates are better, as the theory says."""
    loss = [suboptimality(n, 4096 // n) for n in (4, 16, 64, 256)]
    assert loss == sorted(loss)
    assert loss[-1] > 10 * loss[0]


def test_a_base_model_that_knows_nothing_believes_noise_of_the_size_asked_for() -> None:
    problems = simulated_problems("p", 200)
    base_PA = World(knowledge=0.0, noise=0.5).problems(problems)[1]  # 3,200 numbers: within 5%
    assert base_PA.std() == pytest.approx(0.5, rel=0.05)
