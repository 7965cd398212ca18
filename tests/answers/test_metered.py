"""A sweep read by what is paid: the same scores, at the rollouts that a budget buys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isocompute.allocation import Budget
from isocompute.answers import plan_budget
from isocompute.answers.fit import Fit, fit_sweep
from isocompute.answers.metered import Meter, metered
from isocompute.answers.price import update_takes
from isocompute.answers.verdict import open_choice, seeds
from isocompute.domain import Configuration, Curve
from isocompute.errors import InputError
from isocompute.testing.planted import NOISE, WORLDS

N = (8, 64)


def curve(n: int, takes: list[float], rollouts: tuple[float, ...] = (0, 1e3, 1e4, 1e5)) -> Curve:
    """`takes`: GPU-hours at each evaluation."""
    x = np.array(rollouts, dtype=np.float64)
    return Curve(
        problems_per_batch=16, rollouts_per_problem=n, run=f"{n} {takes}", rollouts_K=x,
        score_K=np.linspace(0.1, 0.5, len(x)), gpu_hours_K=np.array(takes),
    )  # fmt: skip


def meter(*curves: Curve) -> Meter:
    return Meter(curves, sorted({c.configuration for c in curves}), "gpu-hours")


def test_a_meter_reads_what_was_logged_and_goes_on_at_the_mean_rate() -> None:
    # 1,000 rollouts take an hour, then they get slower: 10 to 100 for 1e4 to 1e5 is 1e3 an hour.
    found = meter(curve(8, [0, 1, 20, 100]))
    at = np.log10([0.1, 1, 20, 100, 1000])
    bought = 10 ** found.rollouts(at)[0]
    np.testing.assert_allclose(bought, [100, 1e3, 1e4, 1e5, 1e6])
    # Between two evaluations on the line of the logarithms: halfway from 20 to 100, from 1e4 to 1e5
    (middle,) = found.rollouts(np.log10([np.sqrt(2000)]))
    assert 10 ** float(middle[0]) == pytest.approx(1e4 * np.sqrt(10))
    np.testing.assert_allclose(found.spent(0, np.log10([1e4, 1e6])), np.log10([20, 1000]))
    assert found.spent(0, np.array(np.inf)) == np.inf


def test_of_several_runs_the_middle_one_counts() -> None:
    rows = [curve(8, [0, 1, 10, 100]), curve(8, [0, 2, 20, 200]), curve(8, [0, 9, 90, 900])]
    assert 10 ** float(meter(*rows).spent(0, np.array(4.0))) == pytest.approx(20)
    short = curve(8, [0, 4, 40], (0, 1e3, 1e4))  # beyond its end as before: of 100 and 400
    assert 10 ** float(meter(rows[0], short).spent(0, np.array(5.0))) == pytest.approx(200)


def test_other_batches_take_what_lies_on_the_line_of_updates() -> None:
    found = meter(curve(8, [0, 1, 10, 100]), curve(64, [0, 0.25, 2.5, 25]))
    # Updates of 128 rollouts take 0.128 hours, of 1,024 0.256: those of 512 0.1829.
    at = np.log10([7.0, 70.0])
    (bought,) = 10 ** found.rollouts_of(np.array([512.0]), at)
    takes = 0.128 + 0.128 * 384 / 896
    np.testing.assert_allclose(bought, [7 / takes * 512, 70 / takes * 512])
    tested = found.rollouts_of(np.array([128.0, 1024.0]), at)
    np.testing.assert_allclose(tested, found.rollouts(at))
    assert update_takes(np.full(3, 8.0), np.array([1.0, 2.0, 9.0]), np.array([8.0]))[0] == 2
    # Rollouts that grow dearer with the batch go on to, and those of small batches are not free.
    found_F = update_takes(np.array([2.0, 4.0]), np.array([1.0, 6.0]), np.array([1.0, 8.0]))
    np.testing.assert_allclose(found_F, [0.5, 16.0])


def test_what_nobody_ran_is_tried_at_the_same_cost() -> None:
    """Of 8 an hour makes 1,000 rollouts, of 64 four times that: a check of 4 makes fewer."""
    rows = [curve(8, [0, 1, 10, 100]), curve(64, [0, 0.25, 2.5, 25]), curve(16, [0, 1, 9, 90])]
    fit = fit_sweep(rows, unit="gpu-hours", draws=10)
    for c, hours in ((Configuration(16, 8), 20), (Configuration(16, 64), 20)):
        at = next(row for row in rows if row.configuration == c)
        made = np.interp(hours, at.gpu_hours_K, at.rollouts_K)
        assert fit.buys(c, hours) == pytest.approx(made, rel=0.01)
    few, many = Configuration(16, 4), Configuration(16, 128)
    assert fit.buys(few, 20) < fit.buys(Configuration(16, 8), 20)
    end = fit.support[1]
    for c, rollouts in seeds(fit, [few, many], 1).items():
        assert rollouts == fit.buys(c, end)  # the longest run makes 100,000
    assert seeds(fit, [few], 1)[few] < 1e5
    # The notice that n are not told apart asks for the same seeds at the same price.
    tested = sorted(fit.configurations)
    (open_,) = open_choice(fit, [c.rollouts_per_problem for c in tested], [8], 8, 3, end / 2)
    assert dict(open_.trains) == seeds(fit, tested, x=end / 2)
    # In rollouts all go equally far.
    assert fit.again("rollouts").buys(few, 5e4) == 5e4


def test_a_meter_goes_on_as_what_was_logged_grew() -> None:
    x = (2.5e4, 5e4, 1e5)
    found = meter(curve(8, [v**1.5 for v in x], x))
    np.testing.assert_allclose(found.spent(0, np.array([6.0])), [9.0])
    np.testing.assert_allclose(found.rollouts(np.array([9.0]))[0], [6.0])


@pytest.fixture(scope="module")
def fit() -> Fit:
    """Rollouts of n = 8 take eight times as long as those of n = 64."""
    world = WORLDS["rising"].until(2.0**21)
    runs = world.sample(NOISE["low"], 2, np.random.default_rng(0))
    return fit_sweep([
        c.replace(gpu_hours_K=c.rollouts_K / 1000 / c.rollouts_per_problem) for c in runs
    ], draws=60)  # fmt: skip


@pytest.mark.heavy
def test_a_run_has_one_score_whatever_it_is_counted_in(fit: Fit) -> None:
    hours = fit.again("gpu-hours")
    assert (hours.unit, fit.unit) == ("gpu-hours", "rollouts")
    for c in fit.configurations:
        for rollouts in (1e5, 2e6, 1.5e7):  # inside and beyond
            spent = rollouts / 1000 / c.rollouts_per_problem
            assert hours.expected_scores(spent)[c] == pytest.approx(
                fit.expected_scores(rollouts)[c], abs=1e-6
            )
    between = Configuration(16, 24)
    takes = update_takes(
        np.array([c.batch_size for c in fit.configurations], dtype=float),
        np.array([16 / 1000.0 for _ in fit.configurations]), np.array([384.0]),
    )[0]  # an update takes as long at every n  # fmt: skip
    assert takes == pytest.approx(0.016)
    asked = hours.scores_of([between], 40.0)[:, 0].mean()
    assert asked == pytest.approx(
        float(fit.scores_of([between], 40 / 0.016 * 384)[:, 0].mean()), abs=0.01
    )


def test_what_a_posterior_says_of_its_data_is_in_the_unit(fit: Fit) -> None:
    hours = fit.again("gpu-hours").posterior
    shift = -3 - np.log10([c.rollouts_per_problem for c in fit.configurations])
    np.testing.assert_allclose(hours.last_J, fit.posterior.last_J + shift)
    np.testing.assert_allclose(hours.first_J, fit.posterior.first_J + shift)
    np.testing.assert_allclose(
        hours.log10_midpoint_DJ, fit.posterior.log10_midpoint_DJ + shift, atol=1e-9
    )
    assert hours.state_J == fit.posterior.state_J  # a run of a small n takes more hours
    np.testing.assert_array_equal(hours.ceiling_DJ, fit.posterior.ceiling_DJ)


@pytest.mark.heavy
def test_the_back_test_is_that_of_the_rollouts(fit: Fit) -> None:
    hours = fit.again("gpu-hours")
    assert hours.backtest == fit.backtest
    anew = replace(hours)
    assert anew.backtest.rows == fit.backtest.rows


def test_there_and_back_is_the_same_fit(fit: Fit) -> None:
    assert fit.again("gpu-hours").again("rollouts").posterior is fit.posterior
    assert metered(fit.posterior, "rollouts") is fit.posterior
    untimed = fit_sweep([c.replace(gpu_hours_K=None) for c in fit.curves], draws=4)
    with pytest.raises(InputError, match="needs the time of every run"):
        untimed.again("gpu-hours")


def test_n_is_compared_by_what_is_paid(fit: Fit) -> None:
    # For as many hours n = 512 gets 64 times the rollouts of n = 8.
    by_hours, by_rollouts = fit.again("gpu-hours").best, fit.best
    assert by_rollouts[0].tested_rollouts_per_problem < 64
    assert {b.tested_rollouts_per_problem for b in by_hours} <= {128, 256, 512}


@pytest.mark.heavy
def test_a_choice_that_wins_by_its_batches_names_the_batch_to_try(fit: Fit) -> None:
    # Early on n = 8 leads at equal rollouts, but an hour makes 64 times as many at n = 512.
    budget = Budget(amount=0.5, unit="gpu_hours")
    d = plan_budget(fit.again("gpu-hours"), budget).document
    n, codes = d["rollouts_per_problem"], {one["code"]: one for one in d["notices"]}
    assert n > 8
    by_rollouts = fit.best_at(d["rollouts"]).tested_rollouts_per_problem
    assert by_rollouts < n
    said = codes["won_by_batch"]
    assert f"At equal rollouts n = {by_rollouts} scores best: n = {n} wins" in said["text"]
    step = next(one for one in d["run_next"] if one["settles"] == "won_by_batch")
    wide = 16 * n // by_rollouts
    assert step["command"] == (
        f"isocompute run study.yaml grid.problems_per_batch={wide} "
        f"grid.rollouts_per_problem={by_rollouts} grid.seeds=1 budget={step['rollouts']:.0f}"
    )
    assert step["rollouts"] == pytest.approx(d["rollouts"], rel=0.02)
    # By rollouts, late on, or where some n was tried at two B_p there is nothing to say.
    assert "won_by_batch" not in str(plan_budget(fit, 2e6).document["notices"])
    late = plan_budget(fit.again("gpu-hours"), Budget(amount=500.0, unit="gpu_hours")).document
    assert "won_by_batch" not in str(late["notices"])
    other = [c.replace(problems_per_batch=64) for c in fit.curves if c.rollouts_per_problem == 8]
    two = fit_sweep([*fit.curves, *other], joint=True, draws=20, unit="gpu-hours")
    assert "won_by_batch" not in str(plan_budget(two, budget).document["notices"])
