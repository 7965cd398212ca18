"""Facts of recipe, metrics, difficulty and health that a changed number or word would alter.

Found missing by breaking lines on purpose (`make mutants`): each test stands for a kind of them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from itertools import combinations

import numpy as np
import pytest

from isocompute.difficulty import Draws, measure_difficulty, recommend
from isocompute.engines.base import Unjudged
from isocompute.errors import InputError, RunError
from isocompute.health import METRICS, Monitor, Thresholds, check_arrays, check_steps
from isocompute.health.shape import roughness, smoothness
from isocompute.intervals import binomial_interval
from isocompute.metrics import (
    metric_table,
    parse_metric,
    problem_scores,
    score_from_counts,
    score_from_histogram,
)
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import LARGEST, Recipe
from isocompute.spread import landscape, polarisation, progress

# ---- recipe ----


def test_defaults_of_a_recipe():
    assert asdict(Recipe()) == {
        "objective": "grpo", "advantage_std": "sample", "aggregation": "token-mean",
        "kl_coef": 0.0, "kl_estimator": "k3", "entropy_coef": 0.0,
        "allow_entropy_without_kl": False, "zero_variance_filter": "none", "learning_rate": 1e-6,
        "base_batch_size": 1024, "learning_rate_scaling": "sqrt", "warmup_steps": 10,
        "weight_decay": 0.0, "max_grad_norm": 1.0, "clip_low": 0.2, "clip_high": 0.2,
        "temperature": 0.6, "top_p": 1.0, "updates_per_batch": 1, "update_split": "mini-batch",
        "gradient_rollouts": None, "importance_cap": None, "importance_level": "token",
        "gae_gamma": 1.0, "gae_lambda": 1.0, "value_learning_rate": 1e-5, "value_clip": 0.5,
    }  # fmt: skip


TINY = 1e-9
LIMITS = {  # allowed, refused; each a step apart
    "kl_coef": ((0.0, LARGEST), (-TINY, 2 * LARGEST)),
    "entropy_coef": ((0.0,), (-TINY, math.inf)),
    "learning_rate": ((TINY, LARGEST), (0.0, math.nan)),
    "base_batch_size": ((1,), (0,)),
    "warmup_steps": ((0, 1), (-1,)),
    "weight_decay": ((0.0,), (-TINY, math.inf)),
    "max_grad_norm": ((TINY,), (0.0, math.inf)),
    "clip_low": ((0.0, 1.0), (-TINY, 1 + TINY)),
    "clip_high": ((0.0,), (-TINY, math.inf)),
    "temperature": ((TINY, 2.0), (0.0, math.inf)),
    "top_p": ((TINY, 1.0), (0.0, 1 + TINY)),
    "updates_per_batch": ((1, 2), (0,)),
    "gradient_rollouts": ((None, 1), (0,)),
    "importance_cap": ((None, TINY), (0.0,)),
    "gae_gamma": ((0.0, 1.0), (-TINY, 1 + TINY)),
    "gae_lambda": ((0.0, 1.0), (-TINY, 1 + TINY)),
    "value_learning_rate": ((TINY,), (0.0,)),
    "value_clip": ((TINY,), (0.0,)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_of_a_recipe_at_their_limits(name):
    allowed, refused = LIMITS[name]
    for value in allowed:
        assert getattr(Recipe(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(InputError, match=f"recipe `{name}` must be ") as caught:
            Recipe(**{name: value})
        # "at most" is said where that is what is broken
        assert ("at most" in str(caught.value)) == (math.isfinite(value) and value > LARGEST)


def test_every_number_of_a_recipe_has_its_limits_here():
    words = {"objective", "advantage_std", "aggregation", "kl_estimator", "zero_variance_filter",
             "learning_rate_scaling", "update_split", "importance_level"}  # fmt: skip
    assert {f.name for f in fields(Recipe)} == {*LIMITS, *words, "allow_entropy_without_kl"}
    for name in words:
        with pytest.raises(InputError, match=f"recipe `{name}` must be one of "):
            Recipe(**{name: "other"})


def test_what_goes_together_in_a_recipe():
    assert Recipe(kl_coef=TINY, entropy_coef=1.0).entropy_coef == 1.0
    assert Recipe(entropy_coef=1.0, allow_entropy_without_kl=True).kl_coef == 0.0
    assert Recipe(kl_estimator="k1").kl_coef == 0.0
    with pytest.raises(InputError, match="an entropy bonus needs KL to the base model"):
        Recipe(entropy_coef=TINY)
    with pytest.raises(InputError, match="gradient of k1 is 0 on average"):
        Recipe(kl_estimator="k1", kl_coef=TINY)


@pytest.mark.parametrize(("scaling", "factor"), [("sqrt", 3.0), ("linear", 9.0), ("constant", 1.0)])
def test_rates_scale_with_the_batch(scaling, factor):
    recipe = Recipe(learning_rate=2e-6, value_learning_rate=5e-6, base_batch_size=100,
                    learning_rate_scaling=scaling)  # fmt: skip
    assert recipe.learning_rate_at(900) == pytest.approx(2e-6 * factor)
    assert recipe.value_learning_rate_at(900) == pytest.approx(5e-6 * factor)


# ---- metrics ----


def test_tables_are_the_shares_of_subsets():
    """Every metric of every count, by enumeration."""
    for samples in (1, 3, 5):
        for k in range(1, samples + 1):
            for count in range(samples + 1):
                row = [1] * count + [0] * (samples - count)
                subsets = list(combinations(row, k))
                for kind, of in (("best", max), ("worst", min)):
                    expected = sum(map(of, subsets)) / len(subsets)
                    found = metric_table(samples, f"{kind}@{k}")
                    assert found[count] == pytest.approx(expected, abs=1e-15)
                    assert found.shape == (samples + 1,)
                assert metric_table(samples, f"avg@{k}")[count] == count / samples
    with pytest.raises(InputError, match=r"`k <= samples` must hold for best@4, but got 3"):
        metric_table(3, "best@4")
    with pytest.raises(InputError, match=r"ask for avg@1 at most"):
        metric_table(0, "avg@1")
    assert np.array_equal(metric_table(3, parse_metric("avg@1")), metric_table(3, "avg@1"))


@pytest.mark.parametrize(
    ("name", "kind", "k"),
    [("avg@4", "avg", 4), ("mean@12", "avg", 12), ("best@2", "best", 2), ("pass@8", "best", 8),
     ("worst@3", "worst", 3), ("pass^5", "worst", 5)],
)  # fmt: skip
def test_names_of_metrics(name, kind, k):
    assert tuple(parse_metric(name)) == (kind, k)


@pytest.mark.parametrize("name", ["avg", "avg@0", "avg@-1", "best@1.5", "pass^0", "Avg@4", ""])
def test_names_that_are_none(name):
    with pytest.raises(InputError, match="metric"):
        parse_metric(name)


def test_scores_of_sets_with_several_sizes():
    """1 of 2 and 3 of 4: 0.5 and 0.75; best of two 1 and 1; worst of two 0 and 0.5."""
    assert problem_scores([1, 3], [2, 4], "avg@1").tolist() == [0.5, 0.75]
    assert problem_scores([1, 3], [2, 4], "best@2").tolist() == [1.0, 1.0]
    assert problem_scores([1, 3], [2, 4], "worst@2").tolist() == [0.0, 0.5]
    assert float(score_from_counts([1, 3], [2, 4], "avg@1")) == 0.625
    # 2 problems without a success, 1 with one, 3 with both
    assert score_from_histogram([2, 1, 3], "avg@2") == pytest.approx((0.5 + 3) / 6)


def test_a_landscape_by_hand():
    found = landscape([0, 1, 3, 5, 10, 10], 10, bins=5)
    np.testing.assert_allclose(found.low_B, [0, 0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(found.high_B, [0, 0.2, 0.4, 0.6, 0.8, 1, 1])
    np.testing.assert_allclose(found.share_B, np.array([1, 1, 1, 1, 0, 0, 2]) / 6)
    assert (found.never, found.always) == (1 / 6, 2 / 6)
    assert landscape([0, 1, 2], 2, bins=1).share_B.tolist() == [1 / 3] * 3
    with pytest.raises(InputError, match="`bins >= 1` must hold, but got bins=0"):
        landscape([1], 2, bins=0)


def test_polarisation_by_hand():
    """0 and 4 of 4: between 0.5, no noise; largest 0.25 + 0.5/2."""
    assert polarisation([0, 4], 4) == pytest.approx(0.5 / (0.25 + 0.25))
    # 1 and 3 of 4: variance 0.125, noise 0.1875/3, largest 0.25 + 0.125/2
    assert polarisation([1, 3], 4) == pytest.approx((0.125 - 0.0625) / (0.25 + 0.0625))
    assert polarisation([0, 0], 4) is None
    assert polarisation([2, 2], [2, 2]) is None
    for counts, samples in (([1], 4), ([1, 1], 1)):
        with pytest.raises(InputError, match="polarisation needs >= 2 problems with >= 2 samples"):
            polarisation(counts, samples)


def test_progress_by_hand():
    """Sixteen problems, 4 samples before and 8 after: 12 go from 0 to 1, 4 from 1 to 0."""
    before, after = [0] * 12 + [4] * 4, [8] * 12 + [0] * 4
    found = progress(before, after, 4, 8)
    assert (found.gained, found.lost) == pytest.approx((0.75, 0.25), abs=0.06)  # 4 of 4 may be 0.9
    assert found.interference == pytest.approx(0.25, abs=0.01)
    assert found.uniform_progress == pytest.approx(0.25)  # mean 0.5, mean square 1
    spread = 16 * 0.1875 / 15
    assert found.rich_get_richer == pytest.approx(
        spread / (0.1875 + spread / 16) - spread / (0.1875 + spread / 16)
    )
    still = progress([2] * 40, [2] * 40, 4, 4)
    assert (still.gained, still.interference) == (pytest.approx(still.lost), None)
    assert progress([0, 4], [0, 0], 4, 4).rich_get_richer is None
    assert progress([0, 0], [0, 4], 4, 4).rich_get_richer is None
    assert progress([1, 3], [0, 4], 4, 4).rich_get_richer == pytest.approx(
        polarisation([0, 4], 4) - polarisation([1, 3], 4)
    )


@pytest.mark.parametrize(("problems", "known"), [(8, True), (9, False), (11, False)])
def test_interference_needs_a_movement_of_two_standard_errors(problems, known):
    """Three go from 0 to 1: mean p = 3/n against 2 sqrt(p (1 - p) / (n - 1)).

    n = 8: 0.375 > 0.366; n = 9: 0.333 = 0.333, which is not more; n = 11: 0.273 < 0.282.
    """
    found = progress([0] * problems, [16] * 3 + [0] * (problems - 3), 16, 16)
    assert (found.interference is not None) == known


# ---- difficulty ----


def problems_of(size):
    return ProblemSet(
        name="p", problems=[Problem(id=f"i{i}", prompt=str(i), answer="1") for i in range(size)]
    )


def test_two_stages_in_pieces():
    """5 problems in pieces of 2; the second and the fifth never succeed and get 8 more each."""
    calls = []
    right = np.array([3, 0, 4, 1, 0])

    def sample(index_P, samples):
        calls.append((index_P.tolist(), samples))
        return Draws(right[index_P] * (samples == 4), tokens=10)

    found = measure_difficulty(sample, problems_of(5), samples=4, second_stage=12, chunk=2)
    assert calls == [([0, 1], 4), ([2, 3], 4), ([4], 4), ([1, 4], 8)]
    assert (found.rollouts, found.tokens, found.errors) == (36, 40, 0)
    assert found.judged_P.tolist() == [4, 12, 4, 4, 12]
    assert [(p.pass_rate, p.pass_rate_samples) for p in found.problems.problems] == [
        (0.75, 4), (0.0, 12), (1.0, 4), (0.25, 4), (0.0, 12)
    ]  # fmt: skip
    assert found.histogram_C.tolist() == [2, 1, 0, 1, 1]
    rows = found.document["problems"]
    assert [(r["id"], r["avg"], r["successes"], r["samples"]) for r in rows] == [
        ("i0", 0.75, 3, 4), ("i1", 0.0, 0, 12), ("i2", 1.0, 4, 4), ("i3", 0.25, 1, 4),
        ("i4", 0.0, 0, 12),
    ]  # fmt: skip
    assert all(r["interval"][0] <= r["avg"] <= r["interval"][1] for r in rows)
    assert rows[0]["interval"][0] > rows[3]["interval"][0]


@pytest.mark.parametrize(("samples", "second"), [(4, 0), (4, 5), (1, 2)])
def test_stages_that_are_allowed(samples, second):
    found = measure_difficulty(
        lambda index_P, each: np.full(index_P.size, each), problems_of(2), samples=samples,
        second_stage=second, chunk=1,
    )  # fmt: skip
    assert found.rollouts == 2 * samples


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": 0}, "`samples >= 1` and `chunk >= 1` must hold, but got samples=0"),
        ({"chunk": 0}, "but got samples=16, chunk=0"),
        ({"samples": 4, "second_stage": 4}, "`second_stage > samples` must hold, or 0"),
    ],
)
def test_stages_that_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        measure_difficulty(lambda index_P, each: np.zeros(index_P.size, int), problems_of(2),
                           **given)  # fmt: skip


@pytest.mark.parametrize(
    "draws",
    [[5, 0], [-1, 0], [0], [0.5, 0], Draws([3, 0], judged_P=[2, 4]),
     Draws([0, 0], judged_P=[5, 4])],
)
def test_a_sampler_that_returns_no_counts_is_refused(draws):
    def sample(index_P, samples):
        return draws if isinstance(draws, Draws) else np.array(draws)

    with pytest.raises(RunError, match=r"a sampler must return 0..4 successes for each of 2"):
        measure_difficulty(sample, problems_of(2), samples=4)


def test_a_problem_is_judged_by_what_could_be_judged():
    one = Unjudged(problem=0, rollouts=3, message="no luck", response="x")
    found = measure_difficulty(
        lambda *_: Draws([1, 0], judged_P=[1, 4], unjudged=(one,)), problems_of(2), samples=4,
        second_stage=0,
    )  # fmt: skip
    assert found.first_rate_P.tolist() == [1.0, 0.0]
    assert found.histogram_C.tolist() == [1, 0, 0, 0, 0]  # only where all were judged
    assert (found.errors, found.document["unjudged"][0]["samples"]) == (3, 3)
    assert found.problems.problems[0].pass_rate_samples == 1
    none = replace(one, rollouts=4)
    with pytest.raises(RunError, match=r"of 8 samples must be judged.*all \(no luck\); correct"):
        measure_difficulty(
            lambda *_: Draws([0, 0], judged_P=[0, 0], unjudged=(none,)), problems_of(2), samples=4
        )


def test_the_interval_of_a_mean_lies_in_0_and_1():
    def of(*right):
        return measure_difficulty(
            lambda index_P, _: np.array(right)[index_P], problems_of(len(right)), samples=4,
            second_stage=0,
        ).mean_interval  # fmt: skip

    assert of(4, 4, 3)[1] == 1.0
    assert of(0, 0, 1)[0] == 0.0
    low, high = of(*[3, 2, 3, 3] * 4)
    assert 0.5 < low < 0.6875 < high < 1.0
    # Jeffreys' of 11 of 16, wider than the spread of four equal rates
    assert of(3, 2, 3, 3) == tuple(map(float, binomial_interval(11, 16)))
    assert of(0, 0, 0, 0)[1] == float(binomial_interval(0, 16)[1])
    assert of(2) == (0.0, 1.0)


def test_a_recipe_for_rates_that_are_not_all_known():
    assert recommend([0.4, math.nan, 0.5]).name == "easy"
    assert "mean pass rate 0.45; 0% of the problems at or below 0.0625, 100%" in recommend(
        [0.4, math.nan, 0.5]
    ).reason
    with pytest.raises(InputError, match="the pass rate of at least 1 problem"):
        recommend([math.nan])


# ---- health ----


def test_limits_are_those_of_the_page():
    """docs/health.md names them; each is a number > 0."""
    assert asdict(Thresholds()) == {
        "window": 10, "entropy_collapse": 0.1, "entropy_explosion": 2.0,
        "entropy_explosion_nats": 0.3, "kl_drift": 1.0, "length_explosion": 2.0, "clipped": 0.1,
        "dead_batches": 0.9, "solved": 0.9, "gradient_spike": 10.0, "spikes": 3,
        "reward_collapse": 0.5, "verifier_errors": 0.01,
    }  # fmt: skip
    for name in asdict(Thresholds()):
        for value in (0, -1, math.nan, math.inf):
            with pytest.raises(InputError, match=f"{name}"):
                Thresholds(**{name: value})


def test_arrays_and_steps_say_the_same_and_nan_is_missing():
    values = [2.0] * 25
    values[3] = math.nan
    steps = [(i, {"kl": v}) for i, v in enumerate(values, 1) if not math.isnan(v)]
    found = check_arrays(range(1, 26), {"kl": np.array(values)})
    assert [(f.code, f.step) for f in found] == [(f.code, f.step) for f in check_steps(steps)]
    assert [f.code for f in found] == ["kl_drift"]
    assert check_arrays(range(1, 26), {"other": np.array(values)}) == []


def test_a_finding_is_told_once_with_its_rule_and_what_was_seen():
    monitor = Monitor()
    told = [f for step in range(1, 60) for f in monitor.update(step, {"kl": 1.5, "unknown": 3.0})]
    assert [(f.code, f.step, f.severity) for f in told] == [("kl_drift", 19, "warning")]
    assert monitor.findings == told
    assert "nats/token" in told[0].message
    assert "1.5" in told[0].message
    assert told[0].values["kl"] == pytest.approx(1.5)
    assert "unknown" not in METRICS


def test_smoothness_needs_four_scores_that_differ():
    assert smoothness([0.1, 0.2, 0.3]) is None
    assert smoothness([0.3, 0.3, 0.3, 0.3]) is None
    assert smoothness([0.1, 0.2, math.nan, 0.3, 0.4]) == 1.0
    # fitted 0.2, 0.3, 0.3, 0.4: residuals 0.05 twice; spread about 0.3
    expected = 1 - (2 * 0.05**2) / (0.1**2 + 0.05**2 + 0.05**2 + 0.1**2)
    assert smoothness([0.2, 0.35, 0.25, 0.4]) == pytest.approx(expected)


def test_roughness_by_hand():
    """0.2, 0.6, 0.2, 0.6 pools to 0.2, 0.4, 0.4, 0.6; phi = 0.01."""
    found = roughness([0.2, 0.6, 0.2, 0.6], 0.01)
    variance = [0.0016, 0.0024, 0.0024, 0.0024]
    left = 2 * 0.04 - sum(variance)
    assert found.smoothness == pytest.approx(1 - left / 0.16)
    assert found.z == pytest.approx((2 * 0.04 / 0.0024 - 4) / math.sqrt(8))
    assert roughness([0.2, 0.6, 0.2], 0.01) is None
    assert roughness([0.3] * 5, 0.01).smoothness == 1.0


@pytest.mark.parametrize(
    ("share", "z", "rough"), [(0.8499, 3.01, True), (0.85, 3.01, False), (0.8499, 3.0, False)]
)
def test_when_a_curve_is_too_rough(share, z, rough):
    from isocompute.health.shape import Roughness

    assert Roughness(share, z).too_rough is rough


@pytest.mark.parametrize("field", ["warmup_steps", "base_batch_size", "gradient_rollouts"])
def test_a_count_of_a_recipe_is_whole(field):
    with pytest.raises(InputError, match=f"`{field}` must be a whole number, but got 1.5"):
        Recipe(**{field: 1.5})
