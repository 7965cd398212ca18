"""Health rules against noise: healthy runs stay healthy, planted faults are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from isocompute.health import check_arrays
from isocompute.health.groups import Groups
from isocompute.health.rewards import Rewards

Run = Mapping[str, np.ndarray]


def batches(
    rng: np.random.Generator, steps: int, size: tuple[int, int], rates: tuple[float, float],
    change: Callable[[np.ndarray], np.ndarray] = np.ones_like,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Steps of a run whose problems have Beta pass rates, times what becomes of them by its end."""
    factor = change(np.linspace(0, 1, steps))[:, None]
    right = rng.binomial(size[1], np.minimum(rng.beta(*rates, (steps, size[0])) * factor, 1))
    return {
        "reward": right.mean(1) / size[1],
        "zero_variance_share": ((right == 0) | (right == size[1])).mean(1),
        "groups": np.full(steps, size[0]),
    }


def found(run: Run, code: str, severity: str = "") -> bool:
    steps = np.arange(1, len(next(iter(run.values()))) + 1)
    return any(f.code == code and severity in f.severity for f in check_arrays(steps, run))


def lost(reward: np.ndarray) -> bool:
    """`reward_collapse` alone, in a quarter of the time."""
    rewards, streak = Rewards(10), 0
    for value in reward.tolist():
        rewards.add(value)
        streak = streak + 1 if rewards.lost(0.5) else 0
        if streak == 10:
            return True
    return False


def halfway(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda at: np.where(at < 0.5, 1.0, factor)


# ---- reward_collapse ----

HARD, EXTREME = (0.3, 8.0), (0.05, 8.0)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("steps", "size", "rates"),
    [
        (1000, (8, 8), HARD),  # 0.15 before
        (300, (8, 2), EXTREME),
        pytest.param(3000, (8, 8), HARD, marks=pytest.mark.long),  # 0.44
        pytest.param(3000, (64, 8), EXTREME, marks=pytest.mark.long),  # 0.40
        pytest.param(3000, (8, 8), (0.5, 4.0), marks=pytest.mark.long),
    ],
)
def test_a_reward_that_never_changes_is_not_lost(steps, size, rates) -> None:
    rng = np.random.default_rng(0)
    runs = [batches(rng, steps, size, rates)["reward"] for _ in range(20)]
    assert not any(map(lost, runs))


@pytest.mark.parametrize(
    ("steps", "share"),
    [(1000, 0.5), (300, 0.3), (100, 0.0), pytest.param(3000, 0.5, marks=pytest.mark.long)],
)
def test_a_lost_reward_is_found_in_small_batches(steps: int, share: float) -> None:
    """A fall to half at 3,000 steps was found in 0.72."""
    rng = np.random.default_rng(1)
    runs = [batches(rng, steps, (8, 8), HARD, halfway(share))["reward"] for _ in range(20)]
    assert np.mean([lost(reward) for reward in runs]) >= 0.95


def test_a_reward_that_is_no_rate_is_judged_by_what_was_seen() -> None:
    """The same run as rates and, moved and stretched, from -2 to 3."""
    rng = np.random.default_rng(2)
    for share, expected in ((1.0, False), (0.3, True)):
        rate = batches(rng, 300, (8, 8), HARD, halfway(share))["reward"]
        for reward in (rate, 5 * rate - 2):
            assert lost(reward) == expected


def test_a_lucky_start_is_no_level() -> None:
    """Noise counts from the first step: else three lucky ones before the window are without it."""
    reward = np.zeros(60)
    reward[[1, 3, 6]] = 1 / 8
    assert not lost(reward)


def test_resumed_steps_find_the_same() -> None:
    """A monitor is fed again from the first step, so its state is a function of the steps."""
    reward = batches(np.random.default_rng(3), 400, (8, 8), HARD, halfway(0.2))["reward"]
    seen = []
    for _ in range(2):
        rewards = Rewards(10)
        seen.append([rewards.add(r) or (rewards.lost(0.5), rewards.gain) for r in reward.tolist()])
    assert seen[0] == seen[1]


# ---- length_explosion ----


@pytest.mark.parametrize(
    ("gain", "size", "least", "most", "failed"),
    [
        (1.0, (32, 8), 0.9, 1.0, (0.5, 1.0)),  # found in 0.55 before
        (1.0, (8, 8), 0.9, 1.0, (0.5, 1.0)),
        (2.0, (32, 8), 0.0, 0.1, (0.0, 0.0)),
        (2.0, (8, 8), 0.0, 0.8, (0.0, 0.05)),  # not sure there: a warning at most
    ],
)
def test_only_a_sure_gain_excuses_longer_answers(gain, size, least, most, failed) -> None:
    rng = np.random.default_rng(4)

    def grown() -> dict[str, np.ndarray]:
        out = batches(rng, 200, size, HARD, lambda at: 1 + (gain - 1) * at)
        length = 400 * 2.5 ** np.linspace(0, 1, 200) * np.exp(rng.normal(0, 0.03, 200))
        return {"reward": out["reward"], "length_tokens": length}

    runs = [grown() for _ in range(30)]
    told, failures = (
        np.mean([found(run, "length_explosion", severity) for run in runs])
        for severity in ("", "failure")
    )
    assert least <= told <= most
    assert failed[0] <= failures <= failed[1]


def test_length_without_a_known_reward_is_judged_alone() -> None:
    assert found({"length_tokens": np.repeat([20.0, 60.0], 20)}, "length_explosion", "failure")


# ---- one step ----


@pytest.mark.parametrize(
    ("name", "level", "outlier", "code"),
    [
        ("kl", 0.05, 9.8, "kl_drift"),
        ("verifier_error_share", 0.001, 0.12, "verifier_errors"),
        ("clipped_share", 0.02, 1.0, "clipped_responses"),
        ("entropy", 0.5, 9.0, "entropy_explosion"),
        ("length_tokens", 50.0, 900.0, "length_explosion"),
    ],
)
def test_two_steps_of_ten_break_no_rule_and_lasting_ones_do(name, level, outlier, code) -> None:
    """One step broke exactly the ten windows that it lies in: `kl_drift` in all such runs."""
    values = np.full(100, level)
    for steps in ([40], [40, 41], [40, 47]):
        values[steps] = outlier
    assert not found({name: values}, code)
    values[60:80] = outlier
    assert found({name: values}, code)


def test_two_steps_of_ten_and_no_more_are_left_out() -> None:
    """Four of ten are at 0.05: without two of them the mean of eight is 0.0125."""
    errors = np.tile([0.05] * 4 + [0.0] * 6, 4)
    (one,) = check_arrays(np.arange(1, 41), {"verifier_error_share": errors})
    assert one.code == "verifier_errors"
    assert one.values["verifier_error_share"] == pytest.approx(0.0125)


def test_a_heavy_tail_is_no_drift_and_rare_errors_are_seen() -> None:
    rng = np.random.default_rng(5)
    tails = np.where(rng.random((20, 1000)) < 0.03, 9.8, 0.05)
    assert not any(found({"kl": tail}, "kl_drift") for tail in tails)
    errors = rng.binomial(16, 0.03, (20, 300)) / 16  # the median is 0 in every second window
    assert np.mean([found({"verifier_error_share": e}, "verifier_errors") for e in errors]) >= 0.95


# ---- dead batches ----


@pytest.mark.parametrize(("size", "rates"), [((8, 2), EXTREME), ((8, 2), HARD), ((8, 8), EXTREME)])
def test_a_hard_set_is_not_dead(size, rates) -> None:
    """8 x 2 on a set of pass rate 0.006: 0.47 of healthy runs failed."""
    rng = np.random.default_rng(6)
    runs = [batches(rng, 300, size, rates) for _ in range(30)]
    assert np.mean([found(run, "dead_batches", "failure") for run in runs]) <= 0.04


@pytest.mark.parametrize("size", [(8, 2), (8, 8), (32, 8)])
def test_a_run_whose_groups_stop_teaching_fails(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    runs = [batches(rng, 300, size, HARD, halfway(0.0)) for _ in range(10)]
    assert all(found(run, "dead_batches", "failure") for run in runs)


def test_how_many_groups_are_enough_by_hand() -> None:
    """None ever taught: 9 / (9 + g) < 0.01 from 892 on. A share above a tenth counts as a tenth."""
    groups = Groups()
    groups.add(1.0, 891)
    assert not groups.dead(0.1)
    groups.add(1.0, 1)
    assert groups.dead(0.1)
    groups = Groups()
    groups.add(0.5, 198)  # 99 taught: 0.9^g < 0.01 / 100^2, g > 131.1
    groups.add(None, 50)
    groups.add(1.0, 131)
    assert not groups.dead(0.1)
    groups.add(1.0, 1)
    assert groups.dead(0.1)


# ---- gradient_spikes ----


@pytest.mark.parametrize("spikes", [0, 4])
def test_batches_without_a_gradient_are_no_median(spikes: int) -> None:
    """0.06 of 8 groups mix, elsewhere KL leaves 1e-4: every such run had spikes."""
    rng = np.random.default_rng(8)
    mixed = rng.binomial(8, 0.06, (20, 300))
    norm = np.sqrt(mixed) * np.exp(rng.normal(0, 0.3, mixed.shape)) + 1e-4
    for one, of in zip(norm, mixed, strict=True):
        live = np.flatnonzero(of)
        one[live[40 : 40 + spikes]] *= 40
    told = [
        found({"grad_norm": one, "zero_variance_share": 1 - of / 8}, "gradient_spikes")
        for one, of in zip(norm, mixed, strict=True)
    ]
    assert np.mean(told) == (spikes > 0)
