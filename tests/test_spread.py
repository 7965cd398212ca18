"""Spread along B_p and n, and the best n by metric: by hand, and on planted worlds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from few_draws import few_draws  # noqa: F401  # a fixture
from isocompute.cli import main
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.domain import Curve
from isocompute.laws.spread import best_n_rows, spread_tables
from isocompute.laws.sweep import fit_sweep
from isocompute.testing.planted import NOISE, WORLDS


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    return WORLDS["joint_capped"].sample(NOISE["middle"], 3, np.random.default_rng(0))


@pytest.fixture(scope="module")
def fits(curves: list[Curve]) -> CurveFits:
    return fit_curves(curves, draws=400)


def test_the_planted_spread_along_both_axes_lies_in_its_interval(fits: CurveFits) -> None:
    """Ceilings differ by 0.006 per octave of B_p from 64, so by 0.012 over 16, 64, 256."""
    tables = spread_tables(fits, 0.95)
    truth = WORLDS["joint_capped"].truth(NOISE["middle"])
    for name, other in (
        ("problems_per_batch", "rollouts_per_problem"),
        ("rollouts_per_problem", "problems_per_batch"),
    ):
        assert tables[name]
        inside = []
        for row in tables[name]:
            arms = [i for i, a in enumerate(truth.arms) if getattr(a, other) == row[other]]
            true = np.ptp(truth.score(row["at"])[arms, 0])
            shown = [s["score"] for s in row["scores"]]
            assert row["spread"] == pytest.approx(max(shown) - min(shown))
            assert len(row["scores"]) == len(arms)
            assert row["noise"] > 0
            inside.append(row["interval"][0] <= true + 0.006 and true <= row["interval"][1])
        assert np.mean(inside) >= 0.8
    (one,) = [r for r in tables["problems_per_batch"] if r["rollouts_per_problem"] == 8]
    assert [s["problems_per_batch"] for s in one["scores"]] == [16, 64, 256]
    along_n = [r["spread"] for r in tables["rollouts_per_problem"]]
    assert min(along_n) > max(r["spread"] for r in tables["problems_per_batch"])


def test_one_value_of_an_axis_has_no_spread() -> None:
    rising = WORLDS["rising"].sample(NOISE["middle"], 2, np.random.default_rng(0))
    tables = spread_tables(fit_curves(rising, draws=50), 0.95)
    assert tables["problems_per_batch"] == []
    assert [r["problems_per_batch"] for r in tables["rollouts_per_problem"]] == [16]


def test_a_configuration_without_its_20th_step_takes_no_part() -> None:
    """B_p = 16, n = 512 has its 20th step at 163,840 rollouts; its runs end before."""
    curves = WORLDS["rising"].sample(NOISE["middle"], 2, np.random.default_rng(0))
    short = [
        c.replace(rollouts_K=c.rollouts_K[keep], score_K=c.score_K[keep], tokens_K=None,
                  steps_K=None)
        for c in curves
        for keep in [(c.rollouts_per_problem < 512) | (c.rollouts_K < 120_000)]
    ]  # fmt: skip
    fit = fit_sweep(short, draws=50)
    (row,) = spread_tables(fit.curve_fits, 0.95)["rollouts_per_problem"]
    assert 512 in fit.curve_fits.rollouts_per_problem_J
    assert 512 not in [s["rollouts_per_problem"] for s in row["scores"]]
    assert row["at"] > 1e6
    assert best_n_rows([fit])[0]["rollouts_per_problem"] < 512


def test_a_configuration_begins_to_be_ranked_at_its_20th_step() -> None:
    """n = 8 ends at 100,000 rollouts, before the 20th step of n = 512 at B_p = 16 (163,840)."""
    curves = WORLDS["rising"].sample(NOISE["middle"], 2, np.random.default_rng(0))
    short = [
        c.replace(rollouts_K=c.rollouts_K[keep], score_K=c.score_K[keep], tokens_K=None,
                  steps_K=None)
        for c in curves
        for keep in [(c.rollouts_per_problem > 8) | (c.rollouts_K < 100_000)]
    ]  # fmt: skip
    fit = fit_sweep(short, draws=50)
    (row,) = spread_tables(fit.curve_fits, 0.95)["rollouts_per_problem"]
    ranked = [s["rollouts_per_problem"] for s in row["scores"]]
    assert 8 in ranked
    assert 512 not in ranked
    assert row["at"] < 163_840
    assert best_n_rows([fit])[0]["rollouts_per_problem"] in ranked


def test_best_n_by_metric_and_b_p(curves: list[Curve]) -> None:
    fit = fit_sweep(curves, draws=200)
    rows = best_n_rows([fit])
    assert [r["problems_per_batch"] for r in rows] == [16, 64, 256]
    assert {r["metric"] for r in rows} == {"avg@4"}
    for row in rows:
        assert row["rollouts_per_problem"] in row["confidence_set"]
        assert 0 < row["probability"] <= 1
    # the cap B <= 16,384 leaves B_p = 256 with n up to 64 only
    assert rows[2]["rollouts_per_problem"] == 64
    assert rows[0]["rollouts_per_problem"] >= 256


@pytest.mark.long
def test_fit_prints_metrics_side_by_side(
    curves: list[Curve], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """worst@4 is avg@4 upside down in n here, so its best n is the smallest."""
    table = tmp_path / "m.csv"
    lines = ["problems_per_batch,rollouts_per_problem,rollouts,score,seed,metric"]
    for c in curves:
        for x, y in zip(c.rollouts_K, c.score_K, strict=True):
            head = f"{c.problems_per_batch},{c.rollouts_per_problem},{x:.0f}"
            lines.append(f"{head},{y:.4f},{c.seed},avg@4")
            worst = max(0.0, 0.7 * y - 0.03 * np.log2(c.rollouts_per_problem))
            lines.append(f"{head},{worst:.4f},{c.seed},worst@4")
    table.write_text("\n".join(lines))
    out = tmp_path / "f.json"
    assert main(["fit", str(table), "--metric", "avg@4,worst@4", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Best n at the largest budget:" in text
    assert "Spread of the best score" in text
    document = json.loads(out.read_text())
    assert document["metric"] == "avg@4"
    assert [d["metric"] for d in document["by_metric"]] == ["avg@4", "worst@4"]
    best = {
        (r["metric"], r["problems_per_batch"]): r["rollouts_per_problem"]
        for r in document["best_n"]
    }
    assert best[("worst@4", 16)] == 8
    assert best[("avg@4", 16)] > 8
    assert main(["fit", str(table), "--metric", "avg@4,best@4"]) == 2
    assert "but got 'best@4'" in capsys.readouterr().err
