"""The back-test: what is held out, beside which baselines, and what the blend may look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isocompute.domain import Curve
from isocompute.laws import backtest as module
from isocompute.laws import fit_sweep
from isocompute.laws.sweep import Fit
from isocompute.sources import load_curves
from isocompute.testing.planted import NOISE, WORLDS


def row(x: float, law: float, flat: float, seen: float, power: float = 0.5) -> dict[str, Any]:
    return {
        "x": x,
        "predicted": law,
        "best_so_far": flat,
        "power_law": power,
        "observed": seen,
        "interval": [law - 0.1, law + 0.1],
        "blend": None,
    }


def test_errors_by_hand() -> None:
    rows = [row(10, 0.6, 0.5, 0.7, 0.8), row(20, 0.7, 0.5, 0.9, 0.8)]
    errors = module._errors(rows)
    assert errors["mae_law"] == pytest.approx((0.1 + 0.2) / 2)
    assert errors["mae_best_so_far"] == pytest.approx((0.2 + 0.4) / 2)
    assert errors["mae_power_law"] == pytest.approx(0.1)
    assert errors["skill"] == pytest.approx(0.5)
    assert errors["coverage"] == 0.5
    assert errors["mae_blend"] is None
    assert module._errors([])["n_held_out"] == 0


@pytest.mark.parametrize(
    ("seen", "weight"), [(0.7, 1.0), (0.6, 0.5), (0.5, 0.0), (0.9, 1.0), (0.2, 0.0)]
)
def test_the_weight_is_the_share_of_the_way_that_scores_went(seen: float, weight: float) -> None:
    rows = [row(x, 0.7, 0.5, seen) for x in range(8)]
    assert module._weight(rows) == pytest.approx(weight)
    assert module._weight(rows[:7]) is None
    assert module._weight([row(x, 0.5, 0.5, 0.6) for x in range(8)]) is None


def test_a_blend_wins_only_against_both() -> None:
    rows = [{**row(1, 0.7, 0.5, 0.6), "blend": 0.6}]
    assert module._blend_wins(rows) is True
    assert module._blend_wins([{**rows[0], "observed": 0.7}]) is False
    assert module._blend_wins([]) is None


@pytest.fixture(scope="module")
def rising() -> Fit:
    return fit_sweep(WORLDS["rising"].sample(NOISE["middle"], 3, np.random.default_rng(0)))


@pytest.mark.long
def test_no_part_of_a_cut_sees_what_lies_beyond_it(rising: Fit) -> None:
    """Scores beyond the last cut are replaced; what is predicted there stays to the digit."""
    last = rising.backtest["by_cut"][-1]

    def bent(curve: Curve) -> Curve:
        late = curve.rollouts_K > last["cut"]
        return curve.replace(score_K=np.where(late, 0.95, curve.score_K))

    test = fit_sweep([bent(c) for c in rising.curves]).backtest
    other = test["by_cut"][-1]
    assert other["cut"] == last["cut"]
    assert other["blend_weight"] == pytest.approx(last["blend_weight"], abs=0.05)
    keys = ("predicted", "best_so_far", "power_law")
    before, after = (
        {
            (r["x"], r["rollouts_per_problem"]): [r[k] for k in keys]
            for r in t["rows"]
            if r["cut"] == last["cut"]
        }
        for t in (rising.backtest, test)
    )
    assert set(before) == set(after)
    for key, values in before.items():
        assert after[key] == pytest.approx(values)
    assert other["mae_law"] > 0.2 > last["mae_law"]


def test_without_the_last_budget_or_n_each_rule_is_judged_by_the_whole_sweep(rising: Fit) -> None:
    budget, largest = rising.backtest["left_out"]
    assert budget["left_out"] == "budget"
    assert budget["beyond"] == pytest.approx(budget["at"] / 2)
    assert budget["at"] == pytest.approx(rising.support[1])
    said = budget["rollouts_per_problem"]
    assert said["full"] == pytest.approx(rising.at(budget["at"]).rollouts_per_problem)
    assert abs(budget["octaves_off"]["law"]) < 1
    for name, octaves in budget["octaves_off"].items():
        assert octaves == pytest.approx(np.log2(said[name] / said["full"]))
    scores = rising.expected_scores(budget["at"])
    lost = max(scores.values()) - scores[(16, 256)]
    assert budget["score_lost"]["best_so_far"] == pytest.approx(lost)
    assert largest["value"] == 512
    assert largest["edge"] is True  # and so it was right to ask for larger n
    assert largest["gain_interval"][0] < largest["gain"] < largest["gain_interval"][1]


@pytest.mark.long
def test_the_largest_n_of_a_world_without_use_for_it_gains_nothing() -> None:
    """On the published hard set 512 is no better than 128, and the law without it says so."""
    row = fit_sweep(load_curves(["published:qwen2.5-7b-hard"])).backtest["left_out"][1]
    assert row["value"] == 512
    assert row["gain_interval"][1] < 0
    assert row["edge"] is False
    assert abs(row["octaves_off"]["law"]) < 0.5


def test_two_n_leave_no_law_without_one_of_them() -> None:
    curves = [
        c
        for c in WORLDS["rising"].sample(NOISE["middle"], 3, np.random.default_rng(0))
        if c.rollouts_per_problem in (8, 512)
    ]
    assert [r["left_out"] for r in fit_sweep(curves).backtest["left_out"]] == ["budget"]


def test_what_cannot_be_fitted_without_its_largest_budget_is_refused() -> None:
    world = WORLDS["late_winner"].until(2.0**18)  # n=512 has its 20th step at 160,000 rollouts
    curves = world.sample(NOISE["middle"], 3, np.random.default_rng(0))
    curves = [c for c in curves if c.rollouts_per_problem != 128]
    row = fit_sweep(curves).backtest["left_out"][0]
    assert "share none" in row["refused"]
    assert set(row) == {"left_out", "beyond", "at", "refused"}


def test_a_power_law_of_n_is_exact_on_one(rising: Fit) -> None:
    """Two budgets by hand: n* = 8 at 10^5 and 32 at 10^6 is C^(2 log10 2); clipped to the n."""
    from dataclasses import replace

    from isocompute.laws.leave_out import _power_law

    law = replace(rising.law, u_V=np.array([5.0, 6.0]), path_V=np.array([3.0, 5.0]))
    n_J = np.array([8, 16, 32, 64, 128])
    assert _power_law(law, 10**6.5, n_J) == pytest.approx(64)
    assert _power_law(law, 1e9, n_J) == 128
