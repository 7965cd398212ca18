"""A whole fit on planted draws: best n by budget, direction, back-test, verdict, document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fake_posterior import FakePosterior, rising, runs_of
from isocompute.answers import reading
from isocompute.answers.backtest import backtest, simple_rules
from isocompute.answers.best import Ridge, interval
from isocompute.answers.claims import confounded, direction
from isocompute.answers.document import UNSAID, provenance
from isocompute.answers.fit import Fit, fit_sweep
from isocompute.answers.overfit import falls, noise_scale, overfitting, windows_of
from isocompute.answers.verdict import seeds, untested
from isocompute.answers.weight import verdict_of
from isocompute.cli.fit_short import fit_lines
from isocompute.domain import Configuration, Curve, notice
from isocompute.errors import InputError, RefusalError

SEVEN = [(32, 2**k) for k in range(3, 10)]
FIXED = {"kind": "fixed_problems_per_batch", "value": 32}
JOINT = {"kind": "joint", "value": None}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def honest_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fitted to a part of the curves says of the rest what the planted draws say."""

    def refit(curves: Sequence[Curve], **_: Any) -> FakePosterior:
        arms = sorted({c.configuration for c in curves})
        return FakePosterior(
            arms, rising, move_D=np.random.default_rng(1).normal(0, 0.2, 200), curves=curves
        )

    monkeypatch.setattr(reading, "fit_posterior", refit)


def fit_of(
    rng: np.random.Generator,
    arms: Sequence[tuple[int, int]] = SEVEN,
    setting: dict[str, Any] = FIXED,
    level: float = 0.9,
    draws: int = 400,
    sd: float = 0.2,
    **planted: Any,
) -> Fit:
    move = rng.normal(0, sd, draws)
    fake = FakePosterior(arms, planted.pop("surface", rising), move_D=move, **planted)
    fake.curves = tuple(runs_of(fake, rng))
    return Fit(posterior=fake, setting=setting, metric="avg@4", level=level, draws=draws)


def test_the_best_n_is_that_of_the_surface_with_the_spread_of_its_draws(rng) -> None:
    fit = fit_of(rng)
    for x, log2_n in ((3e4, 3.954), (1e5, 5.0), (1e6, 7.0)):
        best = fit.best_at(x)
        assert np.log2(best.rollouts_per_problem) == pytest.approx(log2_n, abs=0.03)
        # 90% of a normal of 0.2 octaves: 0.329 on either side
        width = np.log2(best.interval[1] / best.interval[0])
        assert width == pytest.approx(2 * 1.645 * 0.2, abs=0.09)
        near = 2 ** round(log2_n)
        assert best.configuration == (32, near)
        assert best.probability[near] > 0.95
        assert sum(best.probability.values()) == pytest.approx(1)
        assert best.as_good == [near]
        assert best.expected_regret[near] < 0.001
        # a neighbour lies an octave from an optimum that is 0.2 octaves off at random
        assert best.expected_regret[near * 2] == pytest.approx(0.02 * 1, abs=0.005)
        score_D = fit.scores_of([(32, near)], x)[:, 0]
        assert best.score == pytest.approx(score_D.mean())
        assert best.score_interval == pytest.approx(interval(score_D, fit.level))
        assert fit.expected_scores(x)[Configuration(32, near)] == pytest.approx(score_D.mean())


def test_narrower_at_a_lower_level(rng) -> None:
    fit = fit_of(rng, level=0.5)
    low, high = fit.best_at(1e5).interval
    assert np.log2(high / low) == pytest.approx(2 * 0.674 * 0.2, abs=0.05)


def test_at_least_twenty_budgets_are_reported_evenly(rng) -> None:
    fit = fit_of(rng, last=[6.0] * 6 + [6.6])
    assert fit.support[1] == pytest.approx(1e6)  # n = 256 could win beyond and has no data there
    inside = [b for b in fit.best if not b.extrapolated]
    assert len(inside) == 25
    steps = np.diff(np.log10([b.x for b in fit.best]))
    assert steps == pytest.approx(np.full(len(steps), steps[0]))
    assert fit.best[-1].x == pytest.approx(10**6.6, rel=0.3)
    assert fit.best[-1].extrapolated
    # Runs end at a whole batch: the budget that is said in round numbers is not beyond them.
    end = fit.support[1]
    assert not fit.best_at(1.02 * end).extrapolated
    assert fit.best_at(1.06 * end).extrapolated


def test_the_budgets_compared_end_where_data_end_to_the_rollout(rng) -> None:
    """131,072.02 of them cost a plan's check a part of a step, and its run a whole one."""
    first, last = np.log10(1280), np.log10(131_072)
    fit = fit_of(rng, first=[first] * 7, last=[last] * 6 + [6.6])
    assert fit.support == pytest.approx((1280, 131_072), rel=1e-12)


def test_a_rise_is_claimed_where_the_surface_rises(rng) -> None:
    fit = fit_of(rng)
    # scores rise by 0.3 from the floor of 0.1 at 10^3, where the best n is below the 8 tested: they
    # have made a fifth of that at 10^3.6, and n* goes on from 8 to 128
    assert fit.rise.start == pytest.approx(3.6, abs=0.2)
    assert fit.rise.claimed
    assert fit.rise.octaves == pytest.approx(4.0, abs=0.1)

    def level(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.1 * (x - 3.0) + 0.1 - 0.02 * (log2_n - 6.0) ** 2 + 0 * log2_bp

    flat = fit_of(rng, surface=level)
    assert flat.rise.octaves == pytest.approx(0.0, abs=1e-6)
    assert not flat.rise.claimed


@pytest.mark.parametrize("goes_on", [False, True])
def test_where_it_levels_off_is_where_plans_beyond_the_data_stay(rng, goes_on) -> None:
    """The best n rests at 32 for a decade; what `plan` takes at five times the data decides."""

    def rests(log2_bp: np.ndarray, log2_n: np.ndarray, x: np.ndarray) -> np.ndarray:
        best = np.minimum(3.0 + 2.0 * (x - 4.0), 5.0) + goes_on * 4.0 * np.maximum(x - 6.0, 0.0)
        return 0.1 + 0.1 * (x - 3.0) - 0.02 * (log2_n - best) ** 2 + 0.0 * log2_bp

    fit = fit_of(rng, surface=rests, sd=0.05)
    assert fit.best_at(1e6).configuration == (32, 32)
    assert fit.best_at(5e6).configuration == (32, 256 if goes_on else 32)
    assert fit.law["identified"]["plateau"] is not goes_on
    assert fit.law["plateau_interval"][1] is None if goes_on else fit.law["plateau"] < 40


def width(fit: Fit, x: float) -> float:
    """Of the interval of the score of 32 x 128."""
    return np.diff(interval(fit.scores_of([(32, 128)], x)[:, 0], fit.level)).item()


def test_beyond_the_data_draws_are_as_wide_as_the_back_test_says(rng, monkeypatch) -> None:
    fit = fit_of(rng, last=5.5)
    inside = width(fit, 10**5.4)
    wide = fit_of(np.random.default_rng(0), last=5.5)
    monkeypatch.setitem(wide.__dict__, "backtest", reading.Backtest(widened_by=2.0))
    monkeypatch.setitem(fit.__dict__, "backtest", reading.Backtest(widened_by=1.0))
    assert width(wide, 10**5.4) == inside
    assert width(wide, 10**6.3) / width(fit, 10**6.3) == pytest.approx(2.0)
    # half of the tested distance of log10 2 beyond the end: half of the widening
    halfway = 10 ** (5.5 + np.log10(2) / 2)
    ratio, base = width(wide, halfway), width(fit, halfway)
    assert ratio / base == pytest.approx(1.5)
    mean = fit.scores_at(10**6.3).mean(axis=0)[2:]  # scores of the first two end at 0
    assert wide.scores_at(10**6.3).mean(axis=0)[2:] == pytest.approx(mean)
    low, high = wide.best_at(10**6.3).interval
    base_low, base_high = fit.best_at(10**6.3).interval
    assert np.log2(high / low) > 1.5 * np.log2(base_high / base_low)


def test_budgets_may_be_whole_numbers_of_any_size_and_all_must_be_good(rng) -> None:
    fit = fit_of(rng, draws=20)
    assert np.array_equal(fit.scores_at([10**5, 10**6]), fit.scores_at([1e5, 1e6]))
    for ask in (fit.best_at, fit.scores_at, fit.expected_scores):
        ask(10**20)  # more than a machine's integer holds
    with pytest.raises(InputError, match="must hold for a budget, but got"):
        fit.scores_at([1e5, -1.0])


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_must_be_a_positive_number(rng, bad: float) -> None:
    fit = fit_of(rng, draws=20)
    for ask in (fit.best_at, fit.scores_at, fit.expected_scores):
        with pytest.raises(InputError, match="`rollouts > 0` must hold for a budget"):
            ask(bad)


def test_several_budgets_at_once(rng) -> None:
    fit = fit_of(rng, draws=20)
    assert fit.scores_at([1e4, 1e5]).shape == (20, 7, 2)
    assert fit.scores_at(1e5).shape == (20, 7)
    assert (fit.scores_at([1e4, 1e5])[:, :, 1] == fit.scores_at(1e5)).all()


@pytest.mark.parametrize(("top", "best"), [(3.0, 64), (9.0, 256)])
def test_the_best_n_lies_between_those_tested_at_the_best_b_p(rng, top, best) -> None:
    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.3 + 0.1 * (x - 5) - 0.001 * (log2_n - top) ** 2 + 0.1 * (log2_bp < 5)

    fit = fit_of(rng, [(16, 64), (16, 256), (32, 8), (32, 512)], JOINT, surface=surface)
    assert fit.best_at(1e5).rollouts_per_problem == pytest.approx(best)
    assert fit.best_at(1e5).configuration == (16, best)


def two_by_two(slope: float) -> Any:
    """log2 n* at 10^5 = 6 + slope (log2 B_p - 5)."""

    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        best = 6 + slope * (log2_bp - 5) + (x - 5)
        return 0.3 + 0.1 * (x - 5) - 0.01 * (log2_n - best) ** 2 - 0.001 * (log2_bp - 5) ** 2

    return surface


GRID = [(b, 2**k) for b in (16, 32, 64) for k in range(3, 10)]


@pytest.mark.parametrize(
    ("slope", "sd", "follows"),
    [(0.0, 0.2, "n"), (-1.0, 0.2, "batch"), (-0.5, 0.2, "between"), (-0.5, None, None)],
)
def test_the_optimum_follows_n_or_the_batch_or_neither(rng, slope, sd, follows) -> None:
    if sd is None:  # draws that turn the ridge: every slope from -1.5 to 0.5
        turn = np.linspace(-1, 1, 400)
        found = direction(
            fit_of(rng, GRID, JOINT, surface=two_by_two(slope)).frontier,
            planted_ridge(slope + turn),
            0.9,
        )
    else:
        found = fit_of(rng, GRID, JOINT, surface=two_by_two(slope), first=4.0).direction
    assert found["d_log_n_d_log_bp"] == pytest.approx(slope, abs=0.03)
    assert found["follows"] == follows
    assert found["interval"][0] <= slope + 1e-6
    assert slope - 1e-6 <= found["interval"][1]
    word = {"n": "follows n,", "batch": "follows the batch,", "between": "neither", None: "cannot"}
    assert word[follows] in found["sentence"]
    assert f"changes {2 ** found['d_log_n_d_log_bp']:.2g}-fold" in found["sentence"]


def planted_ridge(slope_D: np.ndarray, edge: bool = False) -> Ridge:
    tested = np.array([16, 64])
    log2_n = 5 + slope_D[None, :, None] * np.array([-1.0, 1.0])[:, None, None]
    flags = np.zeros(log2_n.shape, int)
    if edge:
        flags[0] = 1
    D = len(slope_D)
    return Ridge(log2_n[0], np.full((D, 1), 16.0), tested, log2_n, flags)


def test_an_n_at_the_end_of_those_tested_says_nothing_of_the_direction(rng) -> None:
    fit = fit_of(rng, GRID, JOINT, surface=two_by_two(0.0), draws=50)
    told = direction(fit.frontier, planted_ridge(np.full(50, -1.0)), 0.9)
    assert (told["follows"], told["d_log_n_d_log_bp"]) == ("batch", pytest.approx(-1))
    bound = direction(fit.frontier, planted_ridge(np.full(50, -1.0), edge=True), 0.9)
    assert "lies at an end of those tested" in bound["sentence"]
    assert bound["follows"] is bound["d_log_n_d_log_bp"] is bound["interval"] is None


def test_one_b_p_per_n_confounds_n_with_the_batch(rng) -> None:
    assert confounded([Configuration(32, n) for n in (8, 16)])
    assert confounded([Configuration(64, 8), Configuration(32, 16)])
    assert not confounded([Configuration(64, 8), Configuration(32, 8)])
    fit = fit_of(rng)
    assert fit.direction["follows"] is None
    assert "one B_p per n" in fit.direction["sentence"]
    assert "n_confounded_with_batch" in {n.code for n in fit.notices}


def test_equal_batches_are_compared(rng) -> None:
    found = fit_of(rng, GRID, JOINT, surface=two_by_two(0.0)).direction
    sizes = [row["batch_size"] for row in found["equal_batch"]]
    assert sizes == [16 * 2**k for k in range(4, 11) if k < 11][: len(sizes)]
    row = next(r for r in found["equal_batch"] if r["batch_size"] == 2048)
    pairs = [(s["problems_per_batch"], s["rollouts_per_problem"]) for s in row["scores"]]
    assert pairs == [(16, 128), (32, 64), (64, 32)]


def test_a_fixed_batch_moves_n_and_b_p_against_each_other(rng) -> None:
    arms = [(2**k, 2 ** (12 - k)) for k in range(3, 10)]
    fit = fit_of(rng, arms, {"kind": "fixed_batch_size", "value": 4096})
    best = fit.best_at(1e5)
    assert np.log2(best.rollouts_per_problem) == pytest.approx(5.0, abs=0.03)
    law, other = fit.document["law"], fit.document["law_problems_per_batch"]
    assert law["variable"] == other["variable"] == "steps"
    for row, mirrored in zip(law["at"], other["at"], strict=True):
        assert row["x"] == mirrored["x"]
        product = row["rollouts_per_problem"] * mirrored["problems_per_batch"]
        assert product == pytest.approx(4096)
        assert mirrored["interval"][0] <= mirrored["problems_per_batch"] <= mirrored["interval"][1]
    assert law["at"][-1]["x"] == pytest.approx(1e6 / 4096)
    assert "falling" in other["flags"]
    assert "falling" not in law["flags"]
    assert fit_of(rng).document["law_problems_per_batch"] is None


def test_the_back_test_measures_misses_by_hand(rng) -> None:
    """Refits that say 0.02 less than what came, with a standard deviation of 0.01."""
    arms = SEVEN[:4]
    shift = np.tile(rng.normal(0, 0.01, 4000)[:, None], (1, 4))
    shift = (shift - shift.mean()) / shift.std() * 0.01

    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.2 + 0.1 * (x - 4) + 0.01 * (log2_n - 3) + 0 * log2_bp

    whole = FakePosterior(arms, surface, shift_DJ=np.zeros((4000, 4)), first=4.0)
    whole.curves = tuple(runs_of(whole, rng))
    seen = []

    def refit(curves: Sequence[Curve]) -> FakePosterior:
        seen.append(max(c.rollouts_K.max() for c in curves))
        return FakePosterior(arms, surface, shift_DJ=shift - 0.02, first=4.0)

    found = backtest(whole, refit, level=0.9)
    assert found.cuts == pytest.approx((5e5, 2.5e5))
    assert max(seen) <= 5e5
    assert len(found.rows) == 2 * 4 * 3
    assert found.mae_model == pytest.approx(0.02)
    # best so far was 0.02 lower too, and the score then rose by 0.1 a decade; on average over a
    # third, two thirds and all of the way of log10 2 and of log10 4
    rise = 0.1 * np.log10(2) * np.mean([1 / 3, 2 / 3, 1.0]) * np.array([1, 2])
    assert found.mae_best_so_far == pytest.approx(0.02 + rise.mean())
    assert found.skill == pytest.approx(1 - 0.02 / (0.02 + rise.mean()))
    assert found.coverage == 0.0  # 0.02 is two standard deviations, the interval 1.645
    # per observation the errors are all alike: the model's 0.02, the other's by cut
    each = -0.1 * np.log10(2) * np.array([1] * 4 + [2] * 4) * 2 / 3
    doubt = 2 * each.std() / np.sqrt(7)
    assert found.excess == pytest.approx((each.mean() - doubt, each.mean() + doubt))
    assert [row["miss"] for row in found.rows] == pytest.approx([2.0] * 24)
    # eight configurations at a cut, each four; four beforehand, each one
    assert found.widened_by == pytest.approx(np.sqrt((4 + 8 * 4) / 12))
    # n = 64 is the best of four all the time: the largest, the leader, and nothing is next
    assert found.rules == pytest.approx(
        {"model": 0.0, "best_so_far": 0.0, "largest_n": 0.0, "next_n": 0.0}
    )
    assert backtest(whole, refit, level=0.99).coverage == 1.0
    whole.first_J[3] = 5.55  # its 20th step lies between the two cuts
    whole.last_J[1:3] = 5.0
    later = backtest(whole, refit, level=0.9)
    assert later.excess is None  # three observations
    later = later.rows
    assert [(r["cut"] > 4e5) for r in later if r["rollouts_per_problem"] == 64] == [True] * 3


def test_rules_lose_what_the_surface_says(rng) -> None:
    fit = fit_of(rng, first=4.0, sd=0.01)
    found = fit.backtest
    assert found.widened_by == 1.0
    # n* = 8 at 10^4 to 128 at 10^6; at the cut 10^5.70 the leader is 64 (6.4) or, at 10^5.40, 64
    # (5.8), which lies an octave from the best at the end; next is 128, largest is 512
    assert found.rules["best_so_far"] == pytest.approx(0.02, abs=0.002)
    assert found.rules["next_n"] == pytest.approx(0.0, abs=0.001)
    assert found.rules["largest_n"] == pytest.approx(0.08, abs=0.003)
    assert found.rules["model"] == pytest.approx(0.0, abs=0.001)


def test_a_sweep_that_cannot_be_cut_has_no_back_test(rng) -> None:
    whole = FakePosterior(SEVEN, rising, first=4.0)
    whole.curves = tuple(runs_of(whole, rng))

    def refuses(curves: Sequence[Curve]) -> FakePosterior:
        raise RefusalError("nothing to fit")

    found = backtest(whole, refuses, level=0.9)
    assert (found.mae_model, found.skill, found.coverage) == (None, None, None)
    assert (found.widened_by, found.rules, found.cuts) == (1.0, {}, ())


def test_simple_rules_keep_the_leaders_b_p() -> None:
    arms = [Configuration(b, n) for b in (16, 32) for n in (8, 64, 256)]
    rules = simple_rules(arms, Configuration(16, 256))
    assert rules["next_n"] == rules["largest_n"] == rules["best_so_far"] == (16, 256)
    assert simple_rules(arms, Configuration(32, 8))["next_n"] == (32, 64)


def test_a_verdict_is_that_of_the_gravest_notice() -> None:
    note = notice("n_confounded_with_batch")
    caution = notice("one_or_two_n", which=[8, 16], wanted=32)
    stop = notice(
        "scores_flat", hidden="; a rise below 0.02 would not show", more="", rates="higher"
    )
    assert verdict_of([]) == ("ok", "")
    assert verdict_of([note]) == ("ok", "")
    assert verdict_of([note, caution]) == ("caution", caution.text)
    assert verdict_of([caution, note, stop]) == ("stop", stop.text)


def codes(fit: Fit) -> set[str]:
    return {n.code for n in fit.notices}


def test_what_was_not_tested_is_said(rng) -> None:
    assert "seeds_missing" in codes(fit_of(rng, runs=1))
    (few,) = [n for n in fit_of(rng, runs=2).notices if n.code == "few_seeds"]
    assert few.remedy.startswith("Train more seeds, to three of each (")
    sound = codes(fit_of(rng, runs=3))
    assert not sound & {"seeds_missing", "few_seeds", "one_or_two_n", "n_not_told_apart"}
    # A check need not go further than all n were compared, nor further than a plan.
    (apart,) = [n for n in fit_of(rng).notices if n.code == "n_confounded_with_batch"]
    assert apart.rollouts == 2e6
    fit = fit_of(rng)
    assert fit.trained() == fit.trained(Configuration(32, 8)) == fit.reached() == 1e6
    assert fit.trained(Configuration(32, 8), to=1e5) == 1e5
    early: Any = SimpleNamespace(
        support=(4e3, 1e5), configurations=fit.configurations, trained=fit.trained, buys=fit.buys
    )
    both = [Configuration(32, 8), Configuration(32, 2048)]  # the second was never trained
    assert seeds(early, both) == dict.fromkeys(both, 2e5)
    assert seeds(early, both, 1, 6e4) == dict.fromkeys(both, 6e4)
    short = {n.code: n.rollouts for n in untested(fit_of(rng, runs=1), 8e5)}
    assert short["seeds_missing"] in {1.6e6, 3.2e6, 4.8e6}
    assert short["n_confounded_with_batch"] == 1.6e6
    two = fit_of(rng, [(32, 8), (32, 64)])
    (said,) = [n for n in two.notices if n.code == "one_or_two_n"]
    assert "but n = 8 and 64 was tested" in said.text
    assert "Train n = 128 once" in said.remedy  # which is best there
    (said,) = [n for n in fit_of(rng, [(32, 16)]).notices if n.code == "one_or_two_n"]
    assert "n = 32 once" in said.remedy
    alone = [n.code for n in fit_of(rng, [(32, 16)], runs=1).notices]
    assert alone.index("one_or_two_n") < alone.index("seeds_missing")  # it costs half of them
    assert two.verdict.level == "caution"


def test_untested_n_have_a_guess_one_octave_beyond_and_between(rng) -> None:
    fit = fit_of(rng, [(32, 16), (32, 128)], first=4.0)
    rows = fit.neighbours(1e6)  # n* = 128 there, 0.02 per squared octave
    assert [r["rollouts_per_problem"] for r in rows] == [8, 32, 64, 256]
    assert [r["gain"] for r in rows] == pytest.approx([-0.32, -0.08, -0.02, -0.02], abs=0.003)
    chosen = fit.scores_of([(32, 128)], 1e6).mean()
    assert rows[2]["score"] - rows[2]["gain"] == pytest.approx(chosen)
    for row in rows:
        low, high = row["gain_interval"]
        # 0.04 per octave times the octaves of a move of 0.2 on either side, 90%
        apart = abs(np.log2(row["rollouts_per_problem"] / 128))
        assert high - low == pytest.approx(0.04 * apart * 2 * 1.645 * 0.2, rel=0.15)
        assert row["interval"][0] < row["score"] < row["interval"][1]
    at_batch = {"kind": "fixed_batch_size", "value": 2048}
    assert fit_of(rng, [(128, 16), (16, 128)], at_batch).neighbours(1e6) == []
    assert [r["rollouts_per_problem"] for r in fit_of(rng).neighbours(1e5)] == [4, 1024]


def test_edges_ties_and_turns_of_the_best_n_are_said(rng) -> None:
    edge = fit_of(rng, SEVEN[:3], first=4.0)  # 8 to 32, and n* goes on to 128
    (said,) = [n for n in edge.notices if n.code == "optimum_at_edge"]
    assert "is 32, the largest tested" in said.text
    wide = fit_of(rng, sd=2.0, runs=1)
    first, second = [n.code for n in wide.notices if n.level == "caution"][:2]
    assert (first, second) == ("n_not_told_apart", "seeds_missing")  # as plans say it

    def falling(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return rising(log2_bp, 12 - log2_n, x)

    assert "falling" in codes(fit_of(rng, surface=falling, first=4.0))

    def turning(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        best = 8.0 - 4 * np.abs(x - 5.0)
        return 0.1 + 0.1 * (x - 3) - 0.02 * (log2_n - best) ** 2 + 0 * log2_bp

    assert "non_monotone" in codes(fit_of(rng, surface=turning, first=4.0))
    assert "non_monotone" not in codes(fit_of(rng, first=4.0))


def test_what_is_the_matter_with_runs_is_said(rng) -> None:
    fit = fit_of(rng, last=[6.0] * 6 + [6.5], state=["broken", "stopped", *["complete"] * 5])
    curves = list(fit.curves)
    lost = np.where(curves[0].rollouts_K > 1e4, 0.02, curves[0].score_K)
    curves[0] = curves[0].replace(score_K=lost)
    curves[0] = curves[0].replace(failed_rules=("kl_drift",), n_missing=3, trials=400)
    curves[4] = curves[4].replace(n_repeated=20)
    rough = 0.3 + 0.25 * rng.choice([-1, 1], 30)
    curves[5] = curves[5].replace(score_K=rough)
    curves.append(curves[0].replace(rollouts_per_problem=4096, score_K=curves[1].score_K))
    fit.posterior.curves = tuple(curves)
    said = {n.code: n.text for n in fit.notices}
    # The last of 30 evaluations from 1e3 to 1e6 before 1e4 is the tenth: 8,532 rollouts.
    assert said["unhealthy_run"] == (
        "n = 8 rose to 0.19 and broke after step 33 (1 of 3 runs). Only the scores before that "
        "count.")  # fmt: skip
    assert "n = 16" in said["stopped_early"]
    assert "n = 8 (broke in 1 of 3 runs and failed kl_drift)" in said["failed_health"]
    assert "6 rows" in said["scores_missing"]
    assert "20 rows" in said["runs_mixed"]
    assert "400 to 1200" in said["unequal_evaluations"]
    assert "1 of 22 runs" in said["not_smooth"]
    assert "4096" in said["configuration_left_out"]
    assert "n = 8" in said["budgets_not_shared"]
    sound = codes(fit_of(rng))
    assert not sound & (set(said) - {"n_confounded_with_batch", "slope_not_identified"})


def test_runs_that_do_not_learn_stop_everything(rng) -> None:
    fit = fit_of(rng)
    down = tuple(c.replace(score_K=c.score_K[::-1].copy()) for c in fit.curves)
    fit.posterior.curves = down
    (said,) = [n for n in fit.notices if n.code == "scores_fall"]
    assert said.text.startswith("Scores fall instead of rising: n = 8, 16")
    assert "scores_fall" in codes(fit)
    assert "falls_after_peak" not in codes(fit)
    assert fit.verdict.level == "stop"
    one = fit_of(rng)
    one.posterior.curves = (*down[:3], *one.curves[3:])
    (said,) = [n for n in one.notices if n.code == "falls_after_peak"]
    assert "n = 8;" in said.text
    assert one.verdict.level == "caution"
    # A fall is no noise, however little a rise explains of it.
    assert "not_smooth" not in codes(one)
    still = fit_of(rng)
    noise = np.random.default_rng(3)
    still.posterior.curves = tuple(
        c.replace(score_K=0.3 + 0.01 * noise.standard_normal(30)) for c in still.curves
    )
    assert "scores_flat" in codes(still)


def ends_of(*scores: float, n: int = 8, at: Sequence[float] = (0.0, 1e6)) -> Curve:
    return Curve(problems_per_batch=32, rollouts_per_problem=n, run=str(n),
                 rollouts_K=np.array(at), score_K=np.array(scores))  # fmt: skip


def test_a_rise_from_step_0_to_the_only_evaluation_is_one() -> None:
    # One standard error of the difference is 0.013 at p = 0.2 to 0.3: 300 problems x 4, 2 scores.
    def rises(last: float) -> bool:
        (of,) = windows_of([ends_of(0.2, last)], "rollouts").values()
        return of.rises

    assert rises(0.26)
    assert not rises(0.22)
    assert not rises(0.1)
    (learned,) = windows_of(  # before its first evaluation
        [ends_of(0.2, 0.5, 0.501, 0.5, 0.501, at=(0, 1e4, 1e5, 1e6, 1e7))], "rollouts"
    ).values()
    assert learned.rises
    assert learned.change(0, -1)[1] < 3
    (alone,) = windows_of([ends_of(0.5, at=(1e6,))], "rollouts").values()
    assert alone.rises  # nothing tells that it did not
    assert windows_of([ends_of(0.5, at=(0.0,))], "rollouts") == {}  # nothing but the start


def test_runs_with_step_0_and_one_evaluation_are_not_called_flat(rng) -> None:
    fit = fit_of(rng)
    fit.posterior.curves = tuple(ends_of(0.2, 0.5, n=n) for n in (8, 16, 32))
    assert "scores_flat" not in codes(fit)
    for name in ("notices", "counted", "windows", "broke"):
        fit.__dict__.pop(name)
    fit.posterior.curves = tuple(ends_of(0.2, 0.2, n=n) for n in (8, 16, 32))
    assert "scores_flat" in codes(fit)


def test_runs_that_fall_before_their_first_evaluation_are_not_told_to_try_higher_rates(rng) -> None:
    fit = fit_of(rng)
    at = (0.0, 1e4, 1e5, 1e6)
    fit.posterior.curves = tuple(ends_of(0.3, 0.0, 0.01, 0.0, n=n, at=at) for n in (8, 16, 32))
    (stop,) = [one for one in fit.notices if one.code in ("scores_fall", "scores_flat")]
    assert stop.code == "scores_fall"
    assert "at half the learning rate" in stop.remedy
    for name in ("notices", "counted", "windows", "broke"):
        fit.__dict__.pop(name)
    one, *others = fit.curves  # fewer than half
    fit.posterior.curves = (one, *(c.replace(score_K=np.full(4, 0.3)) for c in others))
    assert "scores_flat" in codes(fit)


@pytest.mark.parametrize(
    ("rules", "rates"),
    [(("reward_collapse",), "lower"), (("dead_batches",), "higher"), ((), "higher")],
)
def test_flat_runs_that_broke_are_told_to_try_lower_rates(rng, rules, rates) -> None:
    fit = fit_of(rng)
    fit.posterior.curves = tuple(
        ends_of(0.2, 0.2, n=n).replace(failed_rules=rules) for n in (8, 16, 32)
    )
    (stop,) = [one for one in fit.notices if one.code == "scores_flat"]
    assert f"Try {rates} rates" in stop.remedy


def test_where_n_goes_on_rising_it_is_not_said_to_level_off(rng) -> None:
    # The best n rises by two octaves a decade; from 1e5.5 on it stays.
    def levelling(until: float) -> Any:
        return lambda bp, n, x: rising(bp, n + 2 * np.maximum(x - until, 0.0), x)

    ends, stays = (fit_of(rng, surface=levelling(at), last=[6.0] * 7) for at in (9.0, 5.5))
    assert np.median(ends.path_far) == pytest.approx(9, abs=0.1)
    assert np.median(stays.path_far) == pytest.approx(6, abs=0.1)
    assert not ends.law["identified"]["plateau"]
    assert ends.law["plateau_interval"][1] is None
    low, high = stays.law["plateau_interval"]
    assert low < 64 < high


def test_runs_that_fall_are_the_first_reason(rng) -> None:
    fit = fit_of(rng)
    fit.posterior.curves = tuple(c.replace(score_K=c.score_K[::-1].copy()) for c in fit.curves)
    fit.__dict__["backtest"] = reading.Backtest(
        skill=-0.5, coverage=0.9, excess=(0.03, 0.05), rows=({},) * 12
    )
    first, second, *_ = fit.notices
    assert (first.code, second.code) == ("scores_fall", "no_skill")
    # Nothing is learned by training on what fell.
    assert " again at half the learning rate (" in second.remedy
    assert " on to " not in second.remedy


def test_a_fit_that_nothing_tested_is_not_ok(rng) -> None:
    fit = fit_of(rng)
    assert "nothing_held_out" not in codes(fit)
    fit.__dict__.pop("notices")
    fit.__dict__["backtest"] = reading.Backtest()
    assert "nothing_held_out" in codes(fit)
    assert fit.verdict.level == "caution"


def test_a_failed_back_test_stops_everything(rng, monkeypatch) -> None:
    good = reading.Backtest(skill=0.5, coverage=0.9, excess=(-0.02, -0.01), rows=({},) * 12)
    for change, code in (
        ({}, None),
        ({"excess": (0.01, 0.04), "skill": -0.5}, "no_skill"),
        ({"excess": (0.01, 0.02), "skill": -0.5}, None),  # by what repeats of one run differ by
        ({"excess": (-0.001, 0.1), "skill": -0.5}, None),  # by no more than chance
        ({"widened_by": 4.5}, "intervals_missed"),
        ({"widened_by": 4.5, "excess": None}, "intervals_missed"),
        ({"widened_by": 2.5, "excess": None}, "intervals_widened"),
        ({"widened_by": 3.5}, "intervals_widened"),
        ({"widened_by": 1.4}, None),
    ):
        fit = fit_of(rng)
        monkeypatch.setitem(fit.__dict__, "backtest", replace(good, **change))
        own = {"no_skill", "intervals_missed", "intervals_widened"}
        assert codes(fit) & own == ({code} if code else set())
        assert (fit.verdict.level == "stop") == (code in ("no_skill", "intervals_missed"))


def test_the_smallest_stable_b_p_is_one_without_a_failure(rng) -> None:
    def cheap(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.3 + 0.1 * (x - 5) - 0.01 * (log2_n - 6) ** 2 - 0.0005 * (6 - log2_bp)

    arms = [*GRID, (16, 1024)]
    fit = fit_of(rng, arms, JOINT, surface=cheap)
    assert fit.stable_problems_per_batch(64, 1e5) == (16, [])
    row = next(one for one in fit.document["best"] if one["tested_rollouts_per_problem"] == 64)
    # What scores most, by less than counts, and what a plan takes.
    assert (row["problems_per_batch"], row["stable_problems_per_batch"]) == (64, 16)
    assert fit.stable_problems_per_batch(60, 1e5) == (16, [])
    fit.__dict__["unhealthy"] = {Configuration(16, 64): "kl_drift"}
    b_p, (said,) = fit.stable_problems_per_batch(64, 1e5)
    assert (b_p, said.code) == (32, "bp_unhealthy")
    assert "kl_drift" in said.text
    fit.__dict__["unhealthy"] = {Configuration(b, 64): "kl_drift" for b in (16, 32, 64)}
    assert fit.stable_problems_per_batch(64, 1e5)[1][0].code == "bp_unstable"
    assert fit.stable_problems_per_batch(1024, 1e5)[1][0].code == "bp_untested"
    fit.posterior.curves = tuple(
        c.replace(failed_rules=("dead_batches",)) if c.configuration == (16, 64) else c
        for c in fit.curves
    )
    fit.__dict__.pop("unhealthy")
    assert fit.unhealthy == {Configuration(16, 64): "failed dead_batches"}
    assert fit.stable_problems_per_batch(64, 1e5)[0] == 32


def test_noise_is_measured_on_neighbours_and_no_collapse_moves_it(rng) -> None:
    p = 0.4 + 0.1 * np.linspace(0, 1, 2000)
    y = p + np.sqrt(p * (1 - p) / 1200) * rng.standard_normal(2000)
    y[900:905] = 0.0
    run = Curve(
        problems_per_batch=32, rollouts_per_problem=8, run="a",
        rollouts_K=np.arange(1.0, 2001), score_K=y,
    )  # fmt: skip
    assert noise_scale([run]) == pytest.approx(1 / 1200, rel=0.1)
    assert noise_scale([]) == 1 / 1200  # nothing to measure it on: 300 problems, 4 samples


def test_a_bend_between_evaluations_decades_apart_is_no_noise() -> None:
    run = Curve(
        problems_per_batch=32, rollouts_per_problem=8, run="a",
        rollouts_K=np.array([0.0, 1e3, 3e4, 1e6]), score_K=np.array([0.30, 0.31, 0.45, 0.48]),
    )  # fmt: skip
    assert noise_scale([run]) == 1 / 1200
    assert windows_of([run], "rollouts")[Configuration(32, 8)].rises
    # Of an uneven line the weights are a quarter and three: its noise is that of 1.625 scores.
    uneven = run.replace(
        rollouts_K=10 ** np.array([3.0, 3.3, 3.4]), score_K=np.array([0.4, 0.45, 0.4])
    )
    p = 1.25 / 3
    expected = (0.05 / 0.6745) ** 2 / (1.625 * p * (1 - p))
    assert noise_scale([uneven]) == pytest.approx(expected)
    # Nearer neighbours weigh more: what lies on their line has no noise, wherever it lies.
    x = np.array([1e3, 2e3, 8e3, 9e3])
    line = run.replace(rollouts_K=x, score_K=0.1 * np.log10(x))
    assert noise_scale([line]) == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize(("problems", "samples", "mean"), [(300, 4, 0.002), (100, 1, 0.005)])
def test_runs_that_hardly_ever_succeed_are_flat(rng, problems, samples, mean) -> None:
    """Three n, three seeds, no learning: a sure rise or fall is noise."""
    learned = fell = 0
    for _ in range(25):
        rate = rng.beta(0.3, 0.3 / mean - 0.3, problems)
        sweep = [
            Curve(
                problems_per_batch=32, rollouts_per_problem=n, run=f"{n}-{seed}", seed=seed,
                rollouts_K=np.r_[0, np.geomspace(1e3, 3e5, 12)],
                score_K=rng.binomial(samples, rate, (13, problems)).mean(1) / samples,
            )
            for n in (8, 16, 32) for seed in range(3)
        ]  # fmt: skip
        windows = windows_of(sweep, "rollouts").values()
        learned += any(of.rises for of in windows)
        fell += any(map(falls, windows))
    assert learned <= 2  # of 25; 0.002 where phi is used and 0.02 where it is measured: half
    assert fell <= 2


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_noise_at_the_ends_of_the_scale_is_that_of_the_mean_of_three_scores(end) -> None:
    run = Curve(
        problems_per_batch=32, rollouts_per_problem=8, run="a",
        rollouts_K=np.array([1.0, 2.0, 4.0]), score_K=np.abs(end - np.array([0.0, 0.01, 0.0])),
    )  # fmt: skip
    p = 0.01 / 3
    expected = 0.01**2 / (1.5 * p * (1 - p)) / 0.6745**2
    assert noise_scale([run]) == pytest.approx(expected)


def test_overfitting_is_a_fall_of_validation_alone() -> None:
    x = np.geomspace(1e3, 1e6, 31)
    up = np.linspace(0.2, 0.5, 31)
    down = np.where(x > 1e5, 0.4 - 0.05 * np.log10(x / 1e5), np.minimum(up, 0.4))

    def run(score: np.ndarray, split: str, n: int) -> Curve:
        return Curve(
            problems_per_batch=32, rollouts_per_problem=n, run=f"{split} {n}", split=split,
            rollouts_K=x, score_K=score,
        )  # fmt: skip

    validation, train = [run(down, "validation", 8), run(up, "validation", 16)], [
        run(up, "train", 8), run(up, "train", 16), run(up, "train", 32),
    ]  # fmt: skip
    first, second = overfitting(validation, train)
    assert first["overfits"]
    assert not second["overfits"]
    assert first["validation_lost"] == pytest.approx(0.045, abs=0.006)
    assert first["from"] == pytest.approx(1e5, rel=0.3)
    assert first["gap"] == pytest.approx(0.5 - 0.355, abs=0.02)
    assert overfitting(validation, []) == []
    assert not overfitting(validation, [run(down, "train", 8)])[0]["overfits"]
    (of,) = windows_of([run(down, "validation", 8)], "rollouts").values()
    assert falls(of)
    assert windows_of([], "rollouts") == {}


def test_overfitting_is_not_asked_of_the_best_of_k(rng) -> None:
    fit = fit_of(rng)
    train = tuple(c.replace(split="train") for c in fit.curves)
    assert len(replace(fit, train=train).train_test) == 7
    assert replace(fit, train=train, metric="best@4").train_test == []


def test_the_document_has_what_it_promises_and_no_number_that_is_none(rng) -> None:
    fit = fit_of(rng)
    document = fit.document
    json.dumps(document, allow_nan=False)
    assert document["version"] == 2
    assert document["verdict"] == {"level": fit.verdict.level, "reason": fit.verdict.reason}
    assert list(document["notices"][0]) == ["code", "level", "text", "remedy", "rollouts"]
    assert [w["code"] for w in document["warnings"]] == [n["code"] for n in document["notices"]]
    assert len(document["best"]) >= 20
    row = document["best"][-1]
    assert set(row) >= {
        "x", "rollouts_per_problem", "interval", "probability", "as_good", "expected_regret",
        "problems_per_batch", "score", "score_interval", "extrapolated",
    }  # fmt: skip
    assert row["probability"]["128"] == pytest.approx(1.0, abs=0.05)
    (curve, *_) = document["curves"]
    assert curve["ceiling"] == pytest.approx(0.6)
    assert curve["state"] == "complete"
    assert curve["max_rollouts"] == pytest.approx(1e6)
    last = curve["at"][-1]
    assert last["x"] == pytest.approx(1e6)
    score_D = fit.scores_of([(32, 8)], 1e6)[:, 0]
    assert last["score"] == pytest.approx(score_D.mean())
    assert last["interval"] == pytest.approx(interval(score_D, fit.level))
    assert document["frontier"][0]["from"] == pytest.approx(1e3)
    assert document["frontier"][-1]["to"] == pytest.approx(1e6)
    for left, right in zip(document["frontier"], document["frontier"][1:], strict=False):
        assert left["to"] == right["from"]
    steps = [(c["from_rollouts_per_problem"], c["to_rollouts_per_problem"])
             for c in document["crossovers"]]  # fmt: skip
    assert steps == [(8, 16), (16, 32), (32, 64), (64, 128)]
    # log2 n* = 3.5 where 8 and 16 are level: 10^4.25
    assert document["crossovers"][0]["at"] == pytest.approx(10**4.25, rel=0.05)
    assert (
        document["crossovers"][0]["interval"][0]
        < 10**4.25
        < document["crossovers"][0]["interval"][1]
    )
    assert document["law"]["at"][0]["x"] == pytest.approx(document["best"][0]["x"])
    assert document["law"]["rising"]["claimed"]
    assert document["law"]["rising"]["from"] == pytest.approx(10**3.75)  # scores leave the floor
    assert document["backtest"]["n_held_out"] == len(document["backtest"]["rows"]) > 0
    assert document["probabilities"]["configurations"][0] == [32, 8]
    assert np.array(document["probabilities"]["best"]).sum(axis=0) == pytest.approx(1.0)
    assert [r["rollouts_per_problem"] for r in document["neighbours"]] == [4, 1024]
    assert document["paper"]["method"] == "paper"
    assert document["spread"]["rollouts_per_problem"][0]["problems_per_batch"] == 32


def test_the_short_document_has_what_the_short_answer_says(rng) -> None:
    fit = fit_of(rng)
    short, whole = fit.short_document, fit.document
    assert set(whole) - set(short) == set(UNSAID)
    assert fit_lines(short) == fit_lines(whole)
    known = {name: whole["provenance"][name] for name in ("sources", "score_range")}
    assert short.pop("provenance") == known
    assert short == {name: whole[name] for name in short}


def test_a_curve_says_where_its_data_end(rng) -> None:
    (curve, *_, other) = fit_of(rng, last=[5.5] + [6.0] * 6, draws=50).document["curves"]
    assert {row["extrapolated"] for row in curve["at"] if row["x"] <= 10**5.5 + 1} == {False}
    assert {row["extrapolated"] for row in curve["at"] if row["x"] > 10**5.51} == {True}
    assert not any(row["extrapolated"] for row in other["at"])


def test_a_ceiling_that_lies_beyond_the_data_is_open(rng) -> None:
    fit = fit_of(rng)
    fit.posterior.log10_midpoint_DJ[: len(fit.posterior.move_D) // 16, 0] = 6.5
    first, second = fit.document["curves"][:2]
    assert first["flags"] == ["ceiling_unbounded"]
    assert first["ceiling_interval"][1] is None
    assert second["flags"] == []
    assert second["ceiling_interval"][1] is not None
    assert "ceiling_unbounded" in codes(fit)
    wider = replace(fit, level=0.8)  # a sixteenth of the draws is less than its tail
    assert wider.document["curves"][0]["flags"] == []


def test_provenance_tells_data_and_options(rng) -> None:
    fit = fit_of(rng)
    said = fit.document["provenance"]
    assert said["n_runs"] == 21
    assert said["n_points"] == 630
    assert said["score_range"] == [0, 1]
    read = [c.replace(score_range=(0.0, 100.0)) for c in fit.curves]
    fit.posterior.curves = tuple(read)
    assert provenance(fit)["score_range"] == [0, 100]
    other = fit_of(np.random.default_rng(5))
    assert said["data_sha256"] != other.document["provenance"]["data_sha256"]
    assert said["code_sha256"] == other.document["provenance"]["code_sha256"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fix": "batch_size"}, "`fix` must be a pair"),
        ({"fix": ("nonsense", 3)}, "--fix must name problems_per_batch or batch_size"),
        ({"fix": ("problems_per_batch", 3)}, "must match a run, but the curves have"),
        ({"fix": ("batch_size", 256), "joint": True}, "--joint and --fix exclude each other"),
        ({"fix": ("batch_size", 256), "unit": "tokens"}, "needs a `tokens` column"),
        ({"level": 0.4}, "`0.5 <= level < 1` must hold"),
        ({"draws": 1}, "`draws >= 2` must hold"),
        ({"unit": "hours"}, "unit must be one of rollouts, tokens, gpu-hours"),
        ({"select": "last"}, "select must be best or final"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(rng, options, message) -> None:
    curves = fit_of(rng, draws=5).curves
    with pytest.raises(InputError, match=message):
        fit_sweep(curves, **options)


def test_what_is_no_curve_is_refused(rng) -> None:
    with pytest.raises(InputError, match="must be a list of Curve"):
        fit_sweep("runs.csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1 run, but got 0"):
        fit_sweep([])
    curves = [c.replace(tokens_K=c.rollouts_K) for c in fit_of(rng, draws=5).curves]
    with pytest.raises(InputError, match="a fixed batch is a law in steps"):
        fit_sweep(curves, fix=("batch_size", 256), unit="tokens")


def test_the_best_so_far_is_no_less_than_what_is_reached(rng) -> None:
    fit = fit_of(rng, draws=50)
    c = fit.configurations[0]
    end = 10 ** float(fit.posterior.last_J[0])
    reached = fit.scores_at(end)[:, 0]
    low, high = interval(reached, fit.level)
    nothing = np.zeros(50)
    # Draws that the back-test spreads, far below what the runs have already.
    assert fit.ends(c, 4 * end, nothing) == pytest.approx((low, high), abs=1e-9)
    assert fit.ends(c, 4 * end, nothing + 0.9) == pytest.approx((0.9, 0.9))
    assert fit.ends(c, 0.5 * end, nothing) == (0.0, 0.0)  # inside the data
    assert fit.ends(Configuration(3, 3), 4 * end, nothing) == (0.0, 0.0)  # nobody ran it


def test_the_advice_to_failed_runs_is_about_what_broke_them_not_what_followed(rng) -> None:
    fit = fit_of(rng)
    rules = ("dead_batches", "reward_collapse")
    fit.posterior.curves = tuple(c.replace(failed_rules=rules) for c in fit.curves)
    (said,) = [one for one in fit.notices if one.code == "failed_health"]
    assert said.remedy.startswith("Lower the learning rate")
