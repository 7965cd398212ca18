"""Laws: the published ones recovered, every setting, every refusal, the JSON contract."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from isocompute import fit_law
from isocompute.curves.fits import fit_curves
from isocompute.curves.means import LIKELIER
from isocompute.errors import InputError, RefusalError
from isocompute.frontier import Frontier, fit_frontier
from isocompute.laws import fit_sweep
from isocompute.laws.estimate import confidence_set, estimate_law
from isocompute.laws.outlook import expected_scores
from isocompute.report.reading import sigmoid
from isocompute.testing.planted import NOISE, WORLDS, Noise

QUIET = Noise(problems=10_000, samples=1000, ceiling_sd=0.0, midpoint_sd=0.0)


def sweep(name, seed=0, seeds=3, noise=NOISE["middle"]):
    return WORLDS[name].sample(noise, seeds, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def rising():
    return fit_sweep(sweep("rising"), draws=60, sources=["planted"])


def published(u, L, k, x0, b):
    return 2 ** (L / (1 + np.exp(-k * (u - x0))) + b)


# PAPER.md section 4, "Published numbers".
@pytest.mark.parametrize(
    ("L", "k", "x0", "b", "low", "high", "variable", "linear"),
    [
        (6.09, 4.75, 5.84, 2.73, 5.0, 6.8, "rollouts", False),
        (4.47, 7.23, 5.84, 2.79, 5.0, 6.8, "rollouts", False),
        (6.62, 3.47, 9.18, 2.64, 8.0, 10.3, "tokens", False),
        (7.10, 0.01, 91.7, 2.00, 1.0, 800.0, "steps", True),
        (10.73, -0.01, 23.9, 3.88, 1.0, 800.0, "steps", True),
    ],
)
def test_published_laws_are_recovered(L, k, x0, b, low, high, variable, linear) -> None:
    u = np.linspace(low, high, 60)
    n = published(u, L, k, x0, b)
    x = u if linear else 10**u
    law = fit_law(x, n, variable=variable, linear=linear, decreasing=k < 0)
    assert np.abs(np.log2(law.predict(x) / n)).max() < 0.05
    assert law.variable == variable
    assert law.form == ("sigmoid_linear" if linear else "sigmoid_log10")
    assert law.k is not None
    assert (law.k < 0) == (k < 0)
    if k > 1:  # identified by these points: the parameters come back too
        assert (law.L, law.k, law.x0, law.b) == pytest.approx((L, k, x0, b), rel=0.02)
        assert law.plateau == pytest.approx(2 ** (L + b), rel=0.03)


def test_fit_law_smooths_only_when_asked_and_ignores_order() -> None:
    x = np.geomspace(1e5, 1e7, 24)
    n = np.where(x < 1e6, 8, 512)
    plain, smooth = fit_law(x, n), fit_law(x, n, smooth=1.0)
    assert plain.predict([3e5, 3e6]) == pytest.approx([8, 512], rel=0.02)
    assert smooth.predict(8e5) > 12
    back = fit_law(x[::-1], n[::-1])
    assert back.predict(x) == pytest.approx(plain.predict(x), rel=1e-6)


def test_constant_and_wrong_way_points_are_a_constant_law() -> None:
    x = np.geomspace(1e5, 1e7, 10)
    law = fit_law(x, np.full(10, 64))
    assert (law.form, law.L, law.plateau) == ("constant", 0.0, 64.0)
    assert law.predict([1.0, 1e12]) == pytest.approx([64, 64])
    falling = np.geomspace(512, 8, 10)
    flat = fit_law(x, falling)
    assert flat.form == "constant"
    assert "non_monotone" in flat.flags
    down = fit_law(x, falling, decreasing=True)
    assert down.predict(x) == pytest.approx(falling, rel=0.25)
    assert down.plateau < 16


def test_predict_keeps_the_shape() -> None:
    law = fit_law([1e5, 3e5, 1e6, 3e6, 1e7], [8, 8, 64, 512, 512])
    assert law.predict(1e6).shape == ()
    assert law.predict([[1e5, 1e6]]).shape == (1, 2)


@pytest.mark.parametrize(
    ("x", "n", "error", "message"),
    [
        ([1e5, 1e6], [8], InputError, "1-D arrays of one length, but got shapes"),
        ([[1e5]], [[8]], InputError, "1-D arrays of one length"),
        ([1e5, -1e6, 1, 1], [8, 8, 8, 8], InputError, "`rollouts > 0`"),
        ([1e5, np.inf, 1, 1], [8, 8, 8, 8], InputError, "not finite"),
        ([1e5, 1e6, 1e7, 1e8], [8, 0.5, 8, 8], InputError, "`rollouts_per_problem >= 1`"),
        ([1e5, 1e6, 1e7], [8, 8, 8], RefusalError, "`n_points >= 4` must hold"),
        ([], [], RefusalError, "got n_points=0"),
    ],
)
def test_fit_law_says_what_is_wrong(x, n, error, message) -> None:
    with pytest.raises(error, match=message):
        fit_law(x, n)


def test_a_fit_of_something_else_says_what_it_takes() -> None:
    with pytest.raises(InputError, match=r"must be a list of Curve, but got str; .*load_curves"):
        fit_sweep("runs.csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"`fix` must be a pair \(name, value\), but got 'B'"):
        fit_sweep(sweep("rising"), fix="B")  # type: ignore[arg-type]


def test_predict_and_at_refuse_budgets_that_are_none(rising) -> None:
    with pytest.raises(InputError, match="`rollouts > 0` must hold for a prediction"):
        fit_law([1e5, 1e6, 1e7, 1e8], [8, 8, 64, 64]).predict(0)
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(InputError, match="`rollouts > 0` must hold for a budget"):
            rising.at(bad)


@pytest.mark.long
def test_a_planted_rise_is_found_and_inside_the_intervals(rising) -> None:
    truth = WORLDS["rising"].truth(NOISE["middle"])
    law = truth.law(*rising.support)
    budgets = np.geomspace(*rising.support, 8)
    inside = [
        low * 0.9 <= law.predict(c) <= high * 1.1
        for c, (low, high) in ((c, rising.at(c).interval) for c in budgets)
    ]
    assert np.mean(inside) > 0.7
    assert rising.document["law"]["rising"]["claimed"]
    assert rising.law.octaves >= 4
    for c, good in zip(budgets, truth.good(budgets), strict=True):
        assert good & set(rising.at(c).confidence_set)


def test_at_reports_the_distance_beyond_the_support(rising) -> None:
    low, high = rising.support
    assert rising.at(high).extrapolation_log10 == 0
    assert rising.at(10 * high).extrapolation_log10 == pytest.approx(1)
    assert rising.at(low / 10).extrapolation_log10 == pytest.approx(1)
    assert rising.at(10 * high).expected_regret is None
    assert 0 <= rising.at(high).expected_regret < 0.05


def test_expected_scores_choose_well_beyond_the_sweep(rising) -> None:
    """Ten times the largest budget: 0.02 of score at most, fixed before it was measured."""
    world = WORLDS["rising"]
    truth = world.truth(NOISE["middle"])
    small = fit_sweep(
        world.until(world.max_rollouts / 4).sample(NOISE["middle"], 3, np.random.default_rng(1)),
        draws=60,
    )
    for factor in (1, 4, 10):
        budget = world.max_rollouts / 4 * factor
        scores = small.expected_scores(budget)
        assert set(scores) == {(16, n) for n in (8, 16, 32, 64, 128, 256, 512)}
        chosen = max(scores, key=lambda key: scores[key])[1]
        true = truth.score(budget)[:, 0]
        assert true.max() - true[truth.rollouts_per_problem_J == chosen][0] <= 0.02
    with pytest.raises(InputError, match="`rollouts > 0` must hold for a budget"):
        rising.expected_scores(0)


@pytest.mark.parametrize(
    ("name", "form"), [("gompertz", "gompertz"), ("rising", "logistic"), ("falling", "logistic"),
                       ("overfit", "logistic"), ("late_winner", "logistic")],
)  # fmt: skip
def test_the_planted_form_is_chosen_for_what_lies_beyond(name: str, form: str) -> None:
    """From a quarter of the budget; a sweep in six may stay with the sigmoids of the method."""
    world = WORLDS[name].until(WORLDS[name].max_rollouts / 4)
    found = []
    for seed in range(6):
        curves = world.sample(NOISE["middle"], 3, np.random.default_rng(seed))
        found.append(fit_curves(curves, draws=0).form)
    assert found.count(form) >= (5 if form == "gompertz" else 6), found


@pytest.mark.long
def test_curves_that_bend_late_are_followed_inside_the_sweep_and_beyond() -> None:
    world = WORLDS["gompertz"]
    budget = world.max_rollouts / 4
    curves = world.until(budget).sample(NOISE["middle"], 3, np.random.default_rng(1))
    fit = fit_sweep(curves, draws=60)
    truth = world.truth(NOISE["middle"])
    sigmoids = fit_curves(curves, draws=60, logistic_only=True)
    assert (fit.curve_fits.form, sigmoids.form) == ("gompertz", "logistic")
    assert fit.document["provenance"]["gompertz_gain"] == sigmoids.gompertz_gain > LIKELIER
    assert "bends_late" in {w["code"] for w in fit.warnings}
    for at, better in ((fit.support[1], 0.8), (10 * budget, 0.5)):
        errors = [
            np.abs(np.array(list(scores.values())) - truth.score(at)[:, 0]).mean()
            for scores in (fit.expected_scores(at), expected_scores(sigmoids, at))
        ]
        assert errors[0] < better * errors[1], (at, errors)
    found = fit.score_at(16, 512, 10 * budget)
    assert found is not None
    assert found[0] == pytest.approx(fit.expected_scores(10 * budget)[16, 512], abs=0.02)


@pytest.mark.long
def test_a_document_of_gompertz_curves_says_how_to_read_them() -> None:
    fits = {name: fit_sweep(sweep(name), draws=10) for name in ("gompertz", "rising")}
    document = fits["gompertz"].document
    assert (document["version"], fits["rising"].document["version"]) == (2, 1)
    assert {row["form"] for row in document["curves"]} == {"gompertz"}
    assert {row["form"] for row in fits["rising"].document["curves"]} == {"logistic"}
    rules = [[row["rule"] for row in fit.document["sensitivity"]] for fit in fits.values()]
    assert [("logistic curves" in names) for names in rules] == [True, False]
    # What another program draws from the document is what was fitted.
    x = np.array(fits["gompertz"].support)
    for j, row in enumerate(document["curves"]):
        z = row["slope"] * (np.log10(x) - row["log10_midpoint"])
        score = row["floor"] + (row["ceiling"] - row["floor"]) * np.exp(-np.exp(-z))
        drawn = fits["gompertz"].curve_fits.value(np.log10(x))[j]
        assert score == pytest.approx(drawn, abs=1e-9)
        assert sigmoid(row, x) == pytest.approx(drawn, abs=1e-9)


def test_a_falling_n_is_a_falling_law_and_no_rise() -> None:
    fit = fit_sweep(sweep("falling", seeds=2), draws=30)
    document = fit.document
    assert document["law"]["k"] < 0
    assert "falling" in document["law"]["flags"]
    assert not document["law"]["rising"]["claimed"]
    assert fit.at(fit.support[0]).rollouts_per_problem > 256
    assert fit.at(fit.support[1]).rollouts_per_problem < 16
    assert "falling" in {w["code"] for w in fit.warnings}


def test_up_and_down_has_no_form() -> None:
    a, b = WORLDS["late_winner"].arms[:2]
    again = replace(a, problems_per_batch=8, rollouts_per_problem=16, ceiling=0.75, midpoint=6.25)
    world = replace(WORLDS["late_winner"], arms=(a, b, again))
    fit = fit_sweep(world.sample(NOISE["low"], 3, np.random.default_rng(0)), joint=True, draws=60)
    law = fit.document["law"]
    assert law["form"] is None
    assert law["k"] is None
    assert law["L"] is None
    n = [row["rollouts_per_problem"] for row in law["at"]]
    assert n[0] == 8
    assert max(n) == 128
    assert n[-1] == 16
    assert "non_monotone" in {w["code"] for w in fit.warnings}


@pytest.mark.long
def test_a_constant_best_n_is_a_constant_law() -> None:
    document = fit_sweep(sweep("constant_large", seeds=2), draws=30).document
    assert document["law"]["form"] == "constant"
    assert document["law"]["at"][0]["rollouts_per_problem"] == 512
    assert not document["law"]["rising"]["claimed"]
    assert "optimum_at_edge" in {w["code"] for w in document["warnings"]}


@pytest.mark.long
def test_fixed_batch_gives_both_laws_in_steps() -> None:
    batch = 4096
    arms = tuple(
        replace(a, problems_per_batch=batch // a.rollouts_per_problem)
        for a in WORLDS["rising"].arms
    )
    curves = replace(WORLDS["rising"], arms=arms).sample(QUIET, 1, np.random.default_rng(0))
    fit = fit_sweep(curves, fix=("batch_size", batch), draws=20)
    document = fit.document
    assert document["setting"] == {"kind": "fixed_batch_size", "value": batch}
    assert document["law"]["variable"] == document["law_problems_per_batch"]["variable"] == "steps"
    n, b_p = (
        [row[q] for row in document[key]["at"]]
        for key, q in (
            ("law", "rollouts_per_problem"),
            ("law_problems_per_batch", "problems_per_batch"),
        )
    )
    assert n[-1] > 8 * n[0]
    assert b_p[-1] < b_p[0] / 8
    assert np.array(n) * np.array(b_p) == pytest.approx(np.full(len(n), batch), rel=0.02)
    assert document["law"]["at"][-1]["x"] == pytest.approx(fit.support[1] / batch)
    with pytest.raises(InputError, match="a law in steps, so unit must be rollouts"):
        fit_sweep(curves, fix=("batch_size", batch), unit="tokens", draws=5)


def test_joint_setting_takes_the_smallest_stable_b_p() -> None:
    curves = [
        c
        for c in sweep("joint_capped", seeds=1, noise=QUIET)
        if c.rollouts_per_problem in (16, 128, 512) and c.problems_per_batch < 256
    ]
    fit = fit_sweep(curves, draws=20)
    assert fit.document["setting"] == {"kind": "joint", "value": None}
    stable, warnings = fit.stable_problems_per_batch(16)
    assert (stable, warnings) == (16, [])  # 0.012 below the best: within 0.02
    assert fit.stable_problems_per_batch(512)[1][0]["code"] == "bp_untested"
    assert fit.at(fit.support[1]).problems_per_batch == 16
    assert fit.law.octaves >= 4
    only = fit_sweep(curves, fix=("problems_per_batch", 64), draws=5)
    assert {c.problems_per_batch for c in only.curves} == {64}


@pytest.mark.long
def test_tokens_shift_the_law_by_their_price() -> None:
    curves = sweep("capped")
    a, b = fit_sweep(curves, draws=20), fit_sweep(curves, draws=20, unit="tokens")
    assert b.document["unit"] == b.document["law"]["variable"] == "tokens"
    at = np.sqrt(np.prod(a.support))
    assert b.at(1000 * at).rollouts_per_problem == pytest.approx(
        a.at(at).rollouts_per_problem, rel=0.15
    )


@pytest.mark.long
def test_every_option_changes_something() -> None:
    curves = sweep("capped", seeds=1)
    plain = fit_sweep(curves, draws=20)
    c = float(np.sqrt(np.prod(plain.support)))
    assert fit_sweep(curves, draws=20).at(c) == plain.at(c)
    assert fit_sweep(curves, draws=20, seed=1).at(c) != plain.at(c)
    assert fit_sweep(curves, draws=21).at(c) != plain.at(c)
    wide, narrow = plain.at(c).interval, fit_sweep(curves, draws=20, level=0.5).at(c).interval
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    assert wide != narrow
    assert fit_sweep(curves, draws=5, metric="best@4").document["metric"] == "best@4"
    assert fit_sweep(curves, draws=5, joint=True).document["setting"]["kind"] == "joint"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.3}, "`0.5 <= level < 1` must hold, but got level=0.3"),
        ({"level": 1.0}, "`0.5 <= level < 1`"),
        ({"unit": "hours"}, "unit must be rollouts or tokens, but got 'hours'"),
        ({"joint": True, "fix": ("batch_size", 64)}, "exclude each other"),
        ({"fix": ("batch_size", 7)}, "must match a run, but the curves have batch_size in 128"),
        ({"fix": ("steps", 7)}, "must name problems_per_batch or batch_size, but got 'steps'"),
    ],
)
def test_fit_sweep_says_what_is_wrong(options, message) -> None:
    with pytest.raises(InputError, match=message):
        fit_sweep(sweep("capped", seeds=1), draws=5, **options)


def test_fit_sweep_needs_runs_tokens_and_two_configurations() -> None:
    curves = sweep("capped", seeds=1)
    with pytest.raises(InputError, match="at least 1 run, but got 0"):
        fit_sweep([])
    bare = [c.replace(tokens_K=None) for c in curves]
    with pytest.raises(InputError, match="needs a `tokens` column on every row"):
        fit_sweep(bare, unit="tokens")
    with pytest.raises(RefusalError, match="at least 2 configurations"):
        fit_sweep(curves[:1], draws=5)


def even_frontier(drift_V: np.ndarray) -> Frontier:
    """n = 8 leads in a quarter of 20 draws, n = 64 in the rest, n = 512 never, at all 81 budgets.

    The mean of the draws is log2 n = 5.25. Budgets from 1e4 to 1e6 are ranked. `drift_V` is what
    n = 8 gains from n = 64 under twice the variance.
    """
    x = np.linspace(3.0, 7.0, 81)
    shape = (3, len(x))
    best = np.ones(len(x), dtype=np.int64)
    best[x < 4.02] = 0  # or it would be a constant law
    return Frontier(
        x_V=x,
        score_JV=np.zeros(shape),
        best_V=best,
        supported_V=(x > 3.99) & (x < 6.01),
        draw_best_DV=np.repeat(np.repeat([[0], [1]], [5, 15], axis=0), len(x), axis=1),
        floor=-1.0,
        draw_last_DJ=np.zeros((20, 3)),
        probability_JV=np.repeat([[0.25], [0.75], [0.0]], len(x), axis=1),
        drift_JV=np.stack([drift_V, -drift_V, 0 * drift_V]),
        regret_JV=np.zeros(shape),
        segments=(),
        crossovers=(),
        ties=(),
    )


@pytest.mark.parametrize(
    ("drift", "law", "first", "last"),  # all but the drift in log2 n
    [
        (0.0, 5.25, 3.0, 6.0),  # no flattening seen: the mean of the draws
        # 5.25, and 5.1 under more noise: twice the difference is added. Draws at 8 stay, those at
        # 64 are stretched from there: 3 + 3 (5.55 - 3) / (5.25 - 3).
        (0.05, 5.55, 3.0, 6.4),
        # Off the other limit: 9 - 3 (9 - 4.95) / (9 - 5.25); none below 8.
        (-0.05, 4.95, 3.0, 5.76),
        (0.75, 9.0, 3.0, 9.0),  # never beyond the n tested
    ],
)
def test_what_noise_flattens_is_extrapolated_away(drift, law, first, last) -> None:
    drift_V = np.full(81, drift)
    drift_V[:20], drift_V[61:] = 1.0, -1.0  # budgets that are not ranked have no say
    estimate = estimate_law(even_frontier(drift_V), np.array([8, 64, 512]), variable="rollouts")
    assert np.log2(estimate.predict(1e5)) == pytest.approx(law)
    drawn = np.sort(estimate.draw_values(1e5))
    assert drawn[[0, -1]] == pytest.approx([first, last], abs=1e-6)


def test_what_is_extrapolated_takes_the_running_average_of_the_path() -> None:
    x = np.linspace(3.0, 7.0, 81)
    estimate = estimate_law(
        even_frontier(np.where(x > 5, 0.05, 0.0)), np.array([8, 64, 512]), variable="rollouts"
    )
    # From 5.25 to 5.55, as a ramp of 0.3 of two decades around 1e5: a sixth of it 0.2 before.
    assert np.log2(estimate.predict(10**4.4)) == pytest.approx(5.25, abs=0.01)
    assert np.log2(estimate.predict(10**4.8)) == pytest.approx(5.25 + 0.3 / 6, abs=0.02)


def test_a_constant_law_lies_in_its_own_interval() -> None:
    """Two n, all but equal: draws moved as one excluded the n that the law names."""
    equal = WORLDS["equal"].arms[0]
    arms = tuple(
        replace(equal, rollouts_per_problem=n, ceiling=c) for n, c in ((8, 0.65), (512, 0.656))
    )
    world = replace(WORLDS["equal"], name="close", arms=arms)
    constant = 0
    for seed in range(8):
        curves = world.sample(NOISE["high"], 3, np.random.default_rng(seed))
        at = (fit := fit_sweep(curves, draws=100, seed=seed)).at(fit.support[1])
        if fit.law.law.form == "constant":
            constant += 1
            assert at.interval[0] <= at.rollouts_per_problem * 1.001
            assert at.rollouts_per_problem <= at.interval[1] * 1.001
    assert constant >= 4


@pytest.mark.long
def test_laws_of_noisy_sweeps_lie_nearer_to_the_noiseless_frontier() -> None:
    """Planted truth, 24 sweeps: the largest budget of a law whose last leader is the largest n."""
    world, noise = WORLDS["rising"], NOISE["high"]
    truth = world.truth(noise)
    error: dict[str, list[float]] = {"flattened": [], "extrapolated": []}
    for seed in range(24):
        curves = world.sample(noise, 3, np.random.default_rng(seed))
        fits = fit_curves(curves, draws=60, seed=seed, unseen_seed_sd=0.0)
        frontier = fit_frontier(fits)
        low, high = frontier.support
        true = float(np.log2(truth.law(low, high).predict(high)))
        as_drawn = replace(frontier, drift_JV=0 * frontier.drift_JV)
        for name, one in (("flattened", as_drawn), ("extrapolated", frontier)):
            law = estimate_law(one, fits.rollouts_per_problem_J, variable="rollouts")
            error[name].append(float(np.log2(law.predict(high))) - true)
    flattened, extrapolated = (float(np.mean(error[name])) for name in error)
    assert flattened < extrapolated < 0.05  # octaves
    assert abs(extrapolated) < 0.85 * abs(flattened)


def test_confidence_set_is_the_fewest_that_add_up() -> None:
    probability, n = np.array([0.05, 0.5, 0.15, 0.3]), np.array([8, 16, 32, 64])
    assert confidence_set(probability, n, 0.5) == [16]
    assert confidence_set(probability, n, 0.8) == [16, 64]
    assert confidence_set(probability, n, 0.95) == [16, 32, 64]
    assert confidence_set(probability, n, 1.0) == [8, 16, 32, 64]
    assert confidence_set(probability, np.array([8, 16, 16, 8]), 0.6) == [16]


def _walk(value, path="$"):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _walk(v, f"{path}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from _walk(v, f"{path}[{i}]")
    else:
        yield path, value


@pytest.mark.long
@pytest.mark.parametrize(("name", "seeds"), [("rising", 3), ("equal", 1), ("capped", 1)])
def test_the_document_keeps_its_contract(name: str, seeds: int, rising) -> None:
    fit = rising if name == "rising" else fit_sweep(sweep(name, seeds=seeds), draws=30)
    document = json.loads(json.dumps(fit.document, allow_nan=False))
    for path, value in _walk(document):
        assert value is None or isinstance(value, (bool, int, float, str)), path
    assert document["version"] == 1
    assert document["level"] == 0.95
    law = document["law"]
    assert law["form"] in ("sigmoid_log10", "sigmoid_linear", "constant", None)
    assert set(law["rising"]) == {"from", "octaves", "lower_bound", "claimed"}
    assert isinstance(law["rising"]["claimed"], bool)
    assert all(isinstance(v, bool) for v in law["identified"].values())
    x = np.array([row["x"] for row in law["at"]])
    assert len(x) >= 20
    assert np.allclose(np.diff(np.log(x)), np.log(x[1] / x[0]))
    assert x[[0, -1]] == pytest.approx(document["support"])
    n_tested = {c["rollouts_per_problem"] for c in document["curves"]}
    for row in law["at"]:
        low, high = row["interval"]
        assert 1 <= low <= high
        assert set(row["confidence_set"]) <= n_tested
        assert row["expected_regret"] >= 0
        assert isinstance(row["problems_per_batch"], int)
    for left, right in pairwise(document["frontier"]):
        assert left["from"] <= left["to"] == right["from"] <= right["to"]
    for part in document["frontier"]:
        assert 0 <= part["probability_best"] <= 1
        assert isinstance(part["extrapolated"], bool)
    for crossing in document["crossovers"]:
        low, high = crossing["interval"]
        assert low is None or low <= crossing["at"] * (1 + 1e-9)
        assert high is None or high >= crossing["at"] * (1 - 1e-9)
    for row in document["curves"]:
        assert row["floor"] <= row["ceiling"]
        assert (row["ceiling_interval"][1] is not None) == row["identified"]
        early, late = row["log10_midpoint_interval"]
        assert (late is not None) == row["identified"]
        assert early < row["log10_midpoint"] < (late or np.inf)
    assert {"cuts", "mae_law", "mae_best_so_far", "skill", "coverage"} <= set(document["backtest"])
    codes = [w["code"] for w in document["warnings"]]
    assert all(w["message"] for w in document["warnings"])
    assert ("seeds_missing" in codes) == (seeds == 1)


def test_backtest_compares_with_baselines_and_sensitivity_with_other_rules(rising) -> None:
    test = rising.backtest
    assert len(test["cuts"]) == 3
    assert test["n_held_out"] == len(test["rows"])
    assert sum(c["n_held_out"] for c in test["by_cut"]) == len(test["rows"])
    row = test["rows"][0]
    assert row["x"] > row["cut"]
    assert row["interval"][0] <= row["predicted"] <= row["interval"][1]
    error = np.mean([abs(r["predicted"] - r["observed"]) for r in test["rows"]])
    assert test["mae_law"] == pytest.approx(error)
    assert test["skill"] == pytest.approx(1 - test["mae_law"] / test["mae_best_so_far"])
    assert len(rising.sensitivity) == 6
    assert all(len(r["x"]) == 5 for r in rising.sensitivity[:4])
    every = rising.sensitivity[0]["x"]
    for row, share in zip(rising.sensitivity[4:], (0.03, 0.1), strict=True):
        assert f"{100 * share:g}%" in row["rule"]
        assert row["x"] == every[-len(row["x"]) :]
        top = max(float(c.rollouts_K.max()) for c in rising.curves)
        assert row["x"][0] >= share * top
        assert every[-len(row["x"]) - 1] < 1.3 * share * top
        assert len(row["rollouts_per_problem"]) == len(row["x"])


@pytest.mark.parametrize("name", ["equal", "constant_small", "constant_large", "falling"])
def test_no_rise_is_claimed_where_there_is_none(name: str) -> None:
    """Small version of benchmarks/law_coverage.py: at most 7% there, so 2 of 4 here is too many."""
    claimed = sum(
        fit_sweep(sweep(name, seed, noise=NOISE["high"]), draws=40).law.claimed for seed in range(4)
    )
    assert claimed <= 1


def test_a_three_octave_rise_is_claimed() -> None:
    claimed = sum(
        fit_sweep(sweep("three_octaves", seed), draws=40).law.claimed for seed in range(4)
    )
    assert claimed >= 3


@pytest.mark.long
def test_the_final_checkpoint_counts_a_fall_that_the_best_one_hides() -> None:
    curves = WORLDS["overfit"].sample(NOISE["low"], 3, np.random.default_rng(4))
    best, final = (fit_sweep(curves, select=s, draws=50) for s in ("best", "final"))
    x = WORLDS["overfit"].max_rollouts
    before, after = best.expected_scores(x), final.expected_scores(x)
    # n = 8 has lost 0.08 per decade since 10^6.2, which is 0.06 at the end.
    assert after[16, 8] < before[16, 8] - 0.01
    assert before[16, 8] == pytest.approx(0.6, abs=0.01)
    assert final.document["provenance"]["selection"] == "final"
    assert "falls_after_peak" not in {w["code"] for w in final.warnings}
    assert {r["observed"] for r in final.backtest["rows"]} != {
        r["observed"] for r in best.backtest["rows"]
    }
    with pytest.raises(InputError, match="select must be best or final, but got 'last'"):
        fit_sweep(curves, select="last")  # type: ignore[arg-type]
