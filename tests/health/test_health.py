"""Health rules on planted runs: each rule fires when it should, where it should, and only then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.health import (
    METRICS,
    Finding,
    Monitor,
    Thresholds,
    check_arrays,
    check_steps,
    roughness,
    smoothness,
)
from isocompute.health import monitor as monitor_module
from isocompute.testing.planted import NOISE, WORLDS

HEALTHY = {
    "reward": 0.5, "entropy": 0.5, "kl": 0.05, "grad_norm": 1.0, "learning_rate": 1e-3,
    "length_tokens": 20.0, "clipped_share": 0.0, "zero_variance_share": 0.3,
    "verifier_error_share": 0.0,
}


def run(
    change: Callable[[int], Mapping[str, float]], steps: int = 100, **limits: float
) -> list[Finding]:
    """Findings of a run that is healthy apart from `change(step)`."""
    records = [(s, {**HEALTHY, **change(s)}) for s in range(1, steps + 1)]
    return check_steps(records, Thresholds(**limits))  # type: ignore[arg-type]


def after(step: int, **values: float) -> Callable[[int], Mapping[str, float]]:
    return lambda s: values if s > step else {}


def test_a_healthy_run_with_noise_has_no_finding() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, size=(500, 4))

    def change(s: int) -> dict[str, float]:
        a, b, c, d = noise[s - 1]
        return {
            "reward": 0.4 + 0.3 * s / 500 + 0.05 * a,
            "entropy": 0.5 * np.exp(-s / 500) * np.exp(0.1 * b),
            "grad_norm": float(np.exp(0.5 * c)),
            "length_tokens": 20 * np.exp(0.05 * d),
            "kl": 0.3 * s / 500,
        }

    assert run(change, steps=500) == []


@pytest.mark.parametrize(
    ("code", "severity", "values", "words"),
    [
        ("entropy_collapse", "failure", {"entropy": 0.04}, "0.04 at step 39 after 0.5"),
        ("entropy_explosion", "failure", {"entropy": 1.2}, "must stay below 1 nats/token"),
        ("length_explosion", "failure", {"length_tokens": 50.0}, "have 50 tokens"),
        ("kl_drift", "warning", {"kl": 1.5}, "raise kl_coef"),
        ("clipped_responses", "warning", {"clipped_share": 0.2},
         "at most 10% of the responses should be cut off, but 20% are"),
        ("dead_batches", "warning", {"zero_variance_share": 0.95}, "raise n"),
        ("dead_batches", "failure", {"zero_variance_share": 1.0, "groups": 32}, "raise n"),
        ("verifier_errors", "warning", {"verifier_error_share": 0.05}, "correct the verifier"),
        ("reward_collapse", "failure", {"reward": 0.1}, "0.1 at step 36 after 0.5"),
    ],
)
def test_each_rule_fires_once_and_names_its_values(
    code: str, severity: str, values: dict[str, float], words: str
) -> None:
    findings = run(after(20, **values))
    assert [f.code for f in findings] == [code]
    (finding,) = findings
    assert finding.severity == severity
    # Broken for the first time when the window's mean crosses (steps 21..30), reported when it
    # has been broken for a whole window.
    assert 30 <= finding.step <= 40
    assert words in finding.message
    assert next(iter(finding.values.values())) == pytest.approx(next(iter(values.values())))
    assert "\n" not in finding.message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_divergence_is_told_at_once(value: float) -> None:
    monitor = Monitor()
    assert monitor.update(1, HEALTHY) == []
    (finding,) = monitor.update(2, {**HEALTHY, "loss": value})
    assert (finding.code, finding.severity, finding.step) == ("divergence", "failure", 2)
    assert "`loss` must be finite" in finding.message
    assert monitor.update(3, {"grad_norm": value}) == []  # each rule once a run


def test_kl_drift_is_a_warning_alone() -> None:
    monitor = Monitor()
    for step in range(1, 60):
        monitor.update(step, {**HEALTHY, "kl": 3.0})
    assert [(f.code, f.severity) for f in monitor.findings] == [("kl_drift", "warning")]


def test_a_warning_may_become_a_failure() -> None:
    findings = run(lambda s: {"zero_variance_share": 0.95 if s < 40 else 1.0, "groups": 20})
    assert [(f.code, f.severity) for f in findings] == [
        ("dead_batches", "warning"), ("dead_batches", "failure")
    ]


def test_success_is_no_fault() -> None:
    solved = {"groups": 32, "reward": 0.97, "entropy": 0.01, "zero_variance_share": 1.0}
    assert run(after(20, **solved)) == []
    codes = {f.code for f in run(after(20, **solved), solved=0.99)}
    assert codes == {"entropy_collapse", "dead_batches"}


def test_longer_answers_with_more_reward_are_no_fault() -> None:
    assert run(after(20, length_tokens=60.0, reward=0.7)) == []


def test_exploration_from_a_deterministic_start_is_no_explosion() -> None:
    assert run(lambda s: {"entropy": 0.05 if s <= 20 else 0.3}) == []
    codes = [f.code for f in run(lambda s: {"entropy": 0.05 if s <= 20 else 0.36})]
    assert codes == ["entropy_explosion"]


def test_a_short_dip_is_not_reported() -> None:
    assert run(lambda s: {"entropy": 0.01} if 40 <= s < 48 else {}) == []


def test_gradient_spikes_need_several_in_one_window() -> None:
    assert run(lambda s: {"grad_norm": 20.0} if s in (30, 60) else {}) == []
    (finding,) = run(lambda s: {"grad_norm": 20.0} if s in (30, 32, 34) else {})
    assert (finding.code, finding.step, finding.values) == ("gradient_spikes", 34, {"spikes": 3.0})


def test_a_noisy_hard_set_is_no_reward_collapse() -> None:
    # Nine windows of ten have reward 0.01 with single lucky batches: the best window is luck.
    rng = np.random.default_rng(1)
    lucky = rng.random(400) < 0.1
    assert run(lambda s: {"reward": 0.1 if lucky[s - 1] else 0.0}, steps=400) == []


def test_a_metric_that_is_not_measured_breaks_no_rule() -> None:
    assert check_steps((s, {}) for s in range(1, 50)) == []
    assert check_steps((s, {"unheard_of": float("nan")}) for s in range(1, 50)) == []


def test_live_equals_afterwards_and_survives_a_replay() -> None:
    def change(s: int) -> dict[str, float]:
        return {"entropy": 0.02, "kl": 2.0} if s > 30 else {}

    live = Monitor()
    told = [f for s in range(1, 101) for f in live.update(s, {**HEALTHY, **change(s)})]
    assert told == live.findings == run(change)


@pytest.mark.parametrize(
    ("name", "value", "change"),
    [
        ("window", 40, after(70, entropy=0.04)),
        ("entropy_collapse", 0.05, after(20, entropy=0.04)),
        ("entropy_explosion", 3.0, after(20, entropy=1.2)),
        ("entropy_explosion_nats", 0.9, after(20, entropy=1.2)),
        ("length_explosion", 3.0, after(20, length_tokens=50.0)),
        ("kl_drift", 2.0, after(20, kl=1.5)),
        ("clipped", 0.3, after(20, clipped_share=0.2)),
        ("dead_batches", 0.99, after(20, zero_variance_share=0.95)),
        ("solved", 0.4, after(20, zero_variance_share=0.95)),
        ("reward_collapse", 0.1, after(20, reward=0.1)),
        ("gradient_spike", 30.0, lambda s: {"grad_norm": 20.0} if s in (30, 32, 34) else {}),
        ("spikes", 4, lambda s: {"grad_norm": 20.0} if s in (30, 32, 34) else {}),
        ("verifier_errors", 0.1, after(20, verifier_error_share=0.05)),
    ],
)
def test_every_threshold_changes_something(
    name: str, value: float, change: Callable[[int], Mapping[str, float]]
) -> None:
    assert len(run(change)) == 1
    assert run(change, **{name: value}) == []


def test_arrays_of_a_store_give_the_same() -> None:
    steps = np.arange(1, 61)
    entropy = np.where(steps > 20, 0.04, 0.5)
    kl = np.where(steps == 50, np.inf, np.nan)
    findings = check_arrays(steps, {"entropy": entropy, "kl": kl})
    assert [(f.code, f.step) for f in findings] == [("entropy_collapse", 39), ("divergence", 50)]
    assert len(check_arrays(steps, {"entropy": entropy}, Thresholds(entropy_collapse=0.01))) == 0
    # Lists, with None for what a step has not, as JSON gives them.
    lists = {"entropy": entropy.tolist(), "kl": [None if np.isnan(v) else v for v in kl]}
    assert check_arrays(steps.tolist(), lists) == findings


def test_thresholds_outside_their_range() -> None:
    with pytest.raises(InputError, match="`kl_drift` must be finite and > 0, but got 0"):
        Thresholds(kl_drift=0)
    with pytest.raises(InputError, match="`solved` must be finite and > 0, but got nan"):
        Thresholds(solved=float("nan"))
    with pytest.raises(InputError, match="`window` must be >= 2 steps, but got 1"):
        Thresholds(window=1)


def test_text_in_a_number_is_named() -> None:
    with pytest.raises(InputError, match="`entropy` must be a number, but got 'low' at step 3"):
        Monitor().update(3, {"entropy": "low"})  # type: ignore[dict-item]


def test_metrics_have_units_and_meanings() -> None:
    assert {"entropy", "kl", "grad_norm", "learning_rate", "length_tokens", "clipped_share",
            "zero_variance_share", "reward"} <= METRICS.keys()
    assert all(meaning for _, meaning in METRICS.values())


def test_smoothness_by_hand() -> None:
    # Isotonic fit of (0, 2, 1, 3) is (0, 1.5, 1.5, 3): residual 0.5, total 5.
    assert smoothness([0, 2, 1, 3]) == pytest.approx(0.9)
    assert smoothness([0.1, 0.2, np.nan, 0.3, 0.4]) == pytest.approx(1.0)
    assert smoothness([0.4, 0.3, 0.2, 0.1]) == pytest.approx(0.0)
    assert smoothness([0.1, 0.2, 0.3]) is None
    assert smoothness([0.2, 0.2, 0.2, 0.2]) is None
    assert smoothness([]) is None


def test_smoothness_tells_noise_from_a_fall() -> None:
    rng = np.random.default_rng(2)
    rise = 0.6 / (1 + np.exp(-np.linspace(-4, 6, 40)))
    noisy = smoothness(rise + rng.normal(0, 0.01, 40))
    peaked = smoothness(rise - np.linspace(0, 1, 40) ** 8 * 0.5)
    assert noisy is not None
    assert peaked is not None
    assert noisy > 0.98
    assert peaked < 0.9


def test_the_page_on_health_lists_every_rule_and_number() -> None:
    page = (Path(__file__).parents[2] / "docs" / "health.md").read_text(encoding="utf-8")
    source = Path(monitor_module.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'"([a-z_]+)", "(?:failure|warning)"', source)) - {"failure"}
    assert {"divergence", "entropy_collapse", "kl_drift"} <= codes
    assert [c for c in codes if f"`{c}`" not in page] == []


def test_roughness_by_hand() -> None:
    """[0, 2, 1, 3] / 10: isotonic [0, 1.5, 1.5, 3] / 10 leaves 2 (0.05)^2 of 0.05."""
    found = roughness([0.0, 0.2, 0.1, 0.3], 0.0)
    assert found is not None
    assert found.smoothness == pytest.approx(0.9)
    noise = 0.004
    variance = noise * np.array([0.002 * 0.998, 0.15 * 0.85, 0.15 * 0.85, 0.3 * 0.7])
    found = roughness([0.0, 0.2, 0.1, 0.3], noise)
    assert found is not None
    assert found.smoothness == pytest.approx(1 - (0.005 - variance.sum()) / 0.05)
    z = ((0.0025 / variance[1:3]).sum() - 4) / np.sqrt(8)
    assert found.z == pytest.approx(z)
    assert roughness([0.1, 0.2, 0.3], 0.0) is None
    assert roughness([0.2] * 5, 0.0) == (1.0, pytest.approx(-5 / np.sqrt(10)))


@pytest.mark.parametrize("noise", ["low", "middle", "high"])
def test_healthy_and_overfitting_sweeps_are_smooth(noise: str) -> None:
    """No false alarm in 126 runs of each; docs/health.md has the rate over 1,260."""
    level = NOISE[noise]
    phi = 1 / (level.problems * level.samples)
    for name in ("rising", "equal", "overfit"):
        for seed in range(6):
            curves = WORLDS[name].sample(level, 3, np.random.default_rng(seed))
            found = [roughness(c.score_K, phi) for c in curves]
            assert not any(f is None or f.too_rough for f in found)


@pytest.mark.parametrize("fault", ["collapse", "oscillation", "spikes"])
def test_broken_curves_are_too_rough(fault: str) -> None:
    level = NOISE["middle"]
    rng = np.random.default_rng(0)
    caught = []
    for curve in WORLDS["rising"].sample(level, 3, rng):
        x = np.log10(np.maximum(curve.rollouts_K, 1))
        broken = {
            "collapse": np.where(x > 6, 0.02, curve.score_K),
            "oscillation": curve.score_K + 0.15 * np.sin(2 * np.pi * x / 0.5) * (x > 5),
            "spikes": curve.score_K + rng.normal(0, 0.1, len(x)),
        }[fault]
        found = roughness(np.clip(broken, 0, 1), 1 / (level.problems * level.samples))
        caught.append(found is not None and found.too_rough)
    assert np.mean(caught) >= 0.8


def test_many_checkpoints_are_averaged_and_the_verdict_stays() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 20_000)
    rise = 0.2 + 0.4 * x
    healthy = roughness(rng.binomial(100, rise) / 100, 0.01)
    wavy = np.clip(rise + 0.2 * np.sin(12 * np.pi * x), 0, 1)
    broken = roughness(rng.binomial(100, wavy) / 100, 0.01)
    assert healthy is not None
    assert broken is not None
    assert healthy.smoothness > 0.99
    assert not healthy.too_rough
    assert broken.too_rough
