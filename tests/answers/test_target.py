"""A score to reach: the budgets that planted draws need for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fake_posterior import FakePosterior, FloatArray, runs_of
from isocompute.allocation import Budget
from isocompute.answers import Fit, advice_lines, plan_from_source
from isocompute.answers.reading import Backtest
from isocompute.answers.target import budget_for
from isocompute.cli import main
from isocompute.errors import InputError

ARMS = [(32, 8), (32, 16), (32, 32)]


def straight(log2_bp: FloatArray, log2_n: FloatArray, x: FloatArray) -> FloatArray:
    """0.1 a decade, from 0.1 at a thousand rollouts; 16 rollouts score 0.01 more."""
    return 0.1 + 0.1 * (x - 3) + 0.01 * (log2_n == 4) + 0 * log2_bp


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> Fit:
    rng = np.random.default_rng(0)
    shift = rng.normal(0, 0.01, 4000)[:, None] * np.ones(3)
    fake = FakePosterior(ARMS, straight, shift_DJ=shift - shift.mean())
    fake.curves = tuple(runs_of(fake, rng))
    found = Fit(posterior=fake, setting={"kind": "fixed_problems_per_batch", "value": 32},
                metric="avg@4", level=0.95)  # fmt: skip
    found.__dict__["backtest"] = Backtest(widened_by=1.0)
    return found


def test_the_budget_is_that_at_which_the_best_n_is_expected_to_score_so_much(fit: Fit) -> None:
    reached = budget_for(fit, 0.26)
    assert np.log10(reached.even) == pytest.approx(4.5, abs=1e-3)
    # nine of ten draws of a normal lie above its mean less 1.28 of its spread: 0.128 decades more
    assert np.log10(reached.sure) == pytest.approx(4.628, abs=0.01)
    # 20 steps of the smallest batch are the least; there n = 8 scores 0.1 + 0.1 log10(5.12)
    with pytest.raises(InputError, match="lie above 0.1, where these runs begin, but got 0.05"):
        budget_for(fit, 0.05)
    least = budget_for(fit, 0.12)
    assert (least.least, reached.least) == (True, False)
    assert 20 * 32 * 8 <= least.even < 1.06 * 20 * 32 * 8
    # half a decade beyond the data is in reach, 2.2 decades are not
    assert np.log10(budget_for(fit, 0.46).even) == pytest.approx(6.5, abs=1e-3)
    with pytest.raises(InputError, match=r"within 100 times .* \(100M rollouts\), but 0.62 is not: "
                       r"the most there is 0\.610 \(0\.59. to 0\.63.\); ask for less"):
        budget_for(fit, 0.62)


def test_a_batch_too_large_for_20_steps_reaches_nothing() -> None:
    def larger(log2_bp: FloatArray, log2_n: FloatArray, x: FloatArray) -> FloatArray:
        return straight(log2_bp, log2_n, x) + 0.05 * (log2_n == 10)

    fake = FakePosterior([*ARMS, (32, 1024)], larger, shift_DJ=np.zeros((2, 4)))
    fake.curves = tuple(runs_of(fake, np.random.default_rng(0)))
    with_it = Fit(posterior=fake, setting={"kind": "fixed_problems_per_batch", "value": 32},
                  metric="avg@4", level=0.95)  # fmt: skip
    with_it.__dict__["backtest"] = Backtest(widened_by=1.0)
    # 20 of its steps take 655k rollouts: before, 16 rollouts are best
    assert np.log10(budget_for(with_it, 0.26).even) == pytest.approx(4.5, abs=1e-3)
    assert budget_for(with_it, 0.4).even == pytest.approx(20 * 32 * 1024, rel=0.06)


@pytest.mark.parametrize("score", [0.0, 1.0, 1.5, -0.2])
def test_a_score_lies_inside_its_range(fit: Fit, score: float) -> None:
    with pytest.raises(InputError, match=f"must lie between 0 and 1, but got {score:g}"):
        budget_for(fit, score)


def test_a_score_is_said_as_the_trainer_logs_it(fit: Fit) -> None:
    fit.posterior.curves = tuple(c.replace(score_range=(-1.0, 1.0)) for c in fit.curves)
    assert np.log10(budget_for(fit, -0.48).even) == pytest.approx(4.5, abs=1e-3)
    with pytest.raises(InputError, match="between -1 and 1, but got 1.5"):
        budget_for(fit, 1.5)


def test_a_plan_for_a_score_is_that_of_its_budget(fit: Fit) -> None:
    found = plan_from_source("own", fit=fit, score=0.26).document
    target = found["target"]
    assert (target["score"], target["unit"]) == (0.26, "rollouts")
    same = plan_from_source("own", fit=fit, budget=Budget(amount=target["even"], unit="rollouts"))
    keys = ("problems_per_batch", "rollouts_per_problem", "steps", "predicted_score")
    assert [found[k] for k in keys] == [same.document[k] for k in keys]
    assert same.document["target"] is None
    assert found["predicted_score"] == pytest.approx(0.26, abs=0.002)
    (line,) = [row for row in advice_lines(found) if row.startswith("  target")]
    assert line == "  target     0.260 is expected at 31.6k rollouts, 90% sure at 42.4k"
    early = plan_from_source("own", fit=fit, score=0.12).document
    assert any("rollouts or fewer, 90% sure" in row for row in advice_lines(early))
    never = {**found, "target": {**target, "sure": None}}
    assert any(row.endswith(", at no budget 90% sure") for row in advice_lines(never))


def test_a_plan_has_one_of_budget_score_and_batch() -> None:
    budget = Budget(amount=1e6, unit="rollouts")
    for given in ({}, {"score": 0.5, "budget": budget}, {"score": 0.5, "batch_size": 64}):
        with pytest.raises(InputError, match="a budget, a score to reach, or both batch size"):
            plan_from_source(**given)


@pytest.mark.heavy
def test_the_command_plans_for_a_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "published:qwen2.5-7b-easy", "--score", "0.6", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"]["even"] == pytest.approx(found["budget_rollouts"])
    assert found["predicted_score"] == pytest.approx(0.6, abs=0.003)
    page = tmp_path / "report.html"
    report = ["report", "published:qwen2.5-7b-easy", "--score", "0.6", "-o", str(page)]
    assert main(report) == 0
    assert "0.600 is expected at" in page.read_text(encoding="utf-8")
    assert main(["plan", "--score", "0.6", "--budget", "1e6"]) == 2
    assert "give one of the three" in capsys.readouterr().err
