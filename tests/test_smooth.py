"""Smoothness as a precondition: shown with every fit, warned of where it fails."""

from __future__ import annotations

import numpy as np
import pytest

from few_draws import few_draws  # noqa: F401  # a fixture
from isocompute.domain import Curve
from isocompute.laws import fit_sweep
from isocompute.testing.planted import NOISE, WORLDS

TRIALS = NOISE["middle"].problems * NOISE["middle"].samples


def sweep(trials: int | None = TRIALS) -> list[Curve]:
    curves = WORLDS["rising"].sample(NOISE["middle"], 3, np.random.default_rng(0))
    return [c.replace(trials=trials) for c in curves]


def codes(curves: list[Curve]) -> dict[str, str]:
    return {w["code"]: w["message"] for w in fit_sweep(curves).warnings}


def oscillating(curve: Curve) -> Curve:
    x = np.log10(np.maximum(curve.rollouts_K, 1))
    score = np.clip(curve.score_K + 0.2 * np.sin(2 * np.pi * x / 0.5) * (x > 5), 0, 1)
    return curve.replace(score_K=score)


@pytest.mark.long
def test_a_healthy_sweep_is_smooth_and_says_so() -> None:
    fit = fit_sweep(sweep())
    assert all(c["smoothness"] > 0.99 for c in fit.document["curves"])
    assert all(c["n_not_smooth"] == 0 for c in fit.document["curves"])
    assert "not_smooth" not in {w["code"] for w in fit.warnings}
    assert fit.document["provenance"]["evaluation_noise_ratio"] == pytest.approx(1, abs=0.25)
    unknown = fit_sweep(sweep(trials=None)).document["provenance"]
    assert unknown["evaluation_noise_ratio"] is None


@pytest.mark.long
def test_rough_runs_are_named() -> None:
    curves = [oscillating(c) if c.rollouts_per_problem == 64 else c for c in sweep()]
    fit = fit_sweep(curves)
    (row,) = [c for c in fit.document["curves"] if c["n_not_smooth"]]
    assert row["rollouts_per_problem"] == 64
    assert "not_smooth" in row["flags"]
    assert row["smoothness"] < 0.85
    (message,) = [w["message"] for w in fit.warnings if w["code"] == "not_smooth"]
    assert "of 21 runs are too rough to fit, they bias it" in message
    assert "B_p=16 n=64" in message


@pytest.mark.long
def test_most_runs_rough_is_no_law() -> None:
    message = codes([oscillating(c) for c in sweep()])["not_smooth"]
    assert "read no law off this sweep" in message


@pytest.mark.long
def test_noise_that_all_runs_share_is_told_only_where_the_outcomes_are_counted() -> None:
    rng = np.random.default_rng(1)
    spiky = [
        c.replace(score_K=np.clip(c.score_K + rng.normal(0, 0.1, len(c.score_K)), 0, 1))
        for c in sweep()
    ]
    fit = fit_sweep(spiky)
    assert "not_smooth" in {w["code"] for w in fit.warnings}
    assert fit.document["provenance"]["evaluation_noise_ratio"] > 20
    assert "not_smooth" not in codes([c.replace(trials=None) for c in spiky])
