"""Planted families, surfaces and noises: truths checked by hand, every option changes something."""

from dataclasses import replace

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.testing.families import CONDITIONS, FAMILIES, SURFACES, Condition, cut_to
from isocompute.testing.forms import FORMS, Surface
from isocompute.testing.noises import Noise, dipped, drifted, evaluated
from isocompute.testing.planted import NOISE, WORLDS
from isocompute.testing.simulated import Grpo, SimulatedArm, signal_table, simulate
from isocompute.testing.truth import World

QUIET = Noise(problems=10**6, samples=1, ceiling_sd=0.0, midpoint_sd=0.0)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_sweeps_of_the_older_worlds_are_what_they_were():
    curves = WORLDS["rising"].sample(NOISE["middle"], 1, rng(1))
    assert len(curves) == 7
    assert curves[0].score_K[:4] * 1200 == pytest.approx([454, 492, 521, 489])
    assert curves[-1].score_K[-2:] * 1200 == pytest.approx([843, 857])


@pytest.mark.parametrize(
    ("form", "z", "share"),
    [
        ("logistic", 0.0, 0.5),
        ("gompertz", 0.0, np.exp(-1)),
        ("weibull", 0.0, 0.5),
        ("weibull", np.log(2), 0.75),  # twice the scale: 1 - (1/2)^2
        ("double", 0.0, 0.5),
        ("double", -2.0, (0.5 + 1 / (1 + np.exp(7.2))) / 2),  # middle of the first half
        ("slow", 0.0, np.log(2) / 4),
        ("slow", 20.0, 5.0),  # goes on in proportion to log C
    ],
)
def test_forms_by_hand(form, z, share):
    assert FORMS[form](np.array([z]))[0] == pytest.approx(share, rel=1e-6)


def test_the_optimum_of_an_interior_surface_is_where_the_square_peaks():
    truth = SURFACES["interior"].truth(QUIET)
    for c in (3e5, 2e6, 8e6):  # rise 0.25 + 0.006 u - 0.006 u^2 peaks at u = 1/2, n = 2^6.5
        assert np.log2(truth.best_n(c)) == pytest.approx(6.5, abs=1e-6)


def test_the_optimum_of_a_rising_surface_has_no_slope():
    truth, surface = SURFACES["rises"].truth(QUIET), SURFACES["rises"].surface
    at = {}
    for c in (3e5, 1e6, 4e6):
        best, h = np.log2(truth.best_n(c)), 1e-3
        left, middle, right = surface.score([best - h, best, best + h], np.log10(c))
        assert middle >= max(left, right)
        at[c] = best
    assert 3 < at[3e5] < at[1e6] - 0.5 < at[4e6] - 1.0 < 9
    assert SURFACES["falls"].truth(QUIET).best_n(3e5) > SURFACES["falls"].truth(QUIET).best_n(4e6)


def test_an_optimum_beyond_the_n_tested_is_at_their_edge():
    edge = replace(SURFACES["rises"], arms=SURFACES["rises"].arms[:3])  # 8, 16, 32
    assert edge.truth(QUIET).best_n(8e6) == pytest.approx(32)
    with pytest.raises(InputError, match="a continuous best n needs a world that is a surface"):
        WORLDS["rising"].truth(QUIET).best_n(1e6)


def test_arms_of_a_surface_are_its_samples():
    for world in SURFACES.values():
        x = np.linspace(4.5, 7.5, 5)
        for arm in world.arms:
            log2_n = np.log2(arm.rollouts_per_problem)
            assert arm.score(x) == pytest.approx(world.surface.score(log2_n, x))
    steps = SURFACES["steps"].surface  # half the rise after 60 * 16 * (32 + 32) rollouts at n = 32
    assert 10 ** steps.log10_midpoint(5.0) == pytest.approx(61440)
    assert [len(SURFACES[s].arms) for s in ("three_n", "four_n", "twenty_n")] == [3, 4, 20]


def test_families_by_hand():
    truth = {name: w.truth(QUIET) for name, w in FAMILIES.items() if not name.startswith("grpo")}

    def best(name, c):
        return int(truth[name].rollouts_per_problem_J[truth[name].best(c)[0]])

    assert best("tent", 1e6) == best("stands_out", 1e6) == 64
    assert best("no_order", 8e6) == best("fails_late", 8e7) == 256
    assert best("one_crossing", 10**5.88) == 16
    assert best("one_crossing", 10**5.92) == 128
    assert best("unbounded", 8e6) < best("unbounded", 8e7)
    assert truth["unbounded"].score([8e7]).max() > truth["unbounded"].score([8e6]).max() + 0.05
    shapes = {a.rollouts_per_problem: a.shape for a in FAMILIES["half_gompertz"].arms}
    assert (shapes[32], shapes[64]) == ("logistic", "gompertz")


def test_the_signal_of_a_group_by_hand():
    # n = 2: half the groups are mixed at p = 1/2, each gives sqrt(1/2 * 1/2 * 1/2).
    middle = np.argmin(abs(np.linspace(-14, 14, 281)))
    assert signal_table(2)[middle] == pytest.approx(0.5 * np.sqrt(1 / 8))
    assert signal_table(512)[middle] == pytest.approx(0.5, abs=2e-3)
    hard = np.argmin(abs(np.linspace(-14, 14, 281) + 7))  # p = 0.0009
    assert signal_table(512)[hard] > 5 * signal_table(8)[hard]


def test_simulated_grpo_starts_from_its_base_and_every_number_matters():
    base, steps = Grpo(base_mean=0.0, base_sd=1.5), np.array([0.0, 300.0])
    score = simulate(16, 8, base, steps, 4, rng())
    assert score[:, 0] == pytest.approx(0.4, abs=1e-3)  # 0.8 of one half
    assert (score[:, 1] > 0.45).all()
    changes = {"base_mean": -1.0, "base_sd": 1.0, "rate": 0.01, "shared": 0.2, "forgetting": 0.6,
               "noise": 1.0, "common": 0.8, "largest_step": 0.0005, "solvable": 0.5}  # fmt: skip
    for name, value in changes.items():
        other = simulate(16, 8, replace(base, **{name: value}), steps, 4, rng())
        assert not np.allclose(other[:, 1], score[:, 1], atol=1e-4), name


@pytest.mark.heavy
def test_simulated_arms_know_their_mean():
    grpo = Grpo(base_mean=0.0, base_sd=1.5)
    arm = SimulatedArm(problems_per_batch=16, rollouts_per_problem=64, grpo=grpo)
    x = np.array([5.0, 5.5, 6.0])
    runs = np.array([arm.run(x, QUIET, 0, rng(s)) for s in range(40)])
    assert runs.mean(axis=0) == pytest.approx(arm.mean(x, QUIET), abs=0.004)
    assert runs.std(axis=0).max() > 0.001
    assert arm.score(x, ceiling_shift=0.01) == pytest.approx(arm.score(x) + 0.01)
    assert arm.score(x, midpoint_shift=0.1) == pytest.approx(arm.score(x - 0.1))


def test_lasting_noise_lasts_and_keeps_its_size():
    x, noise = np.linspace(4, 6, 41), replace(QUIET, drift_sd=0.01)
    off = np.array([drifted(np.full(41, 0.5), x, noise, rng(s)) - 0.5 for s in range(600)])
    assert off.std(axis=0) == pytest.approx(np.full(41, 0.01), rel=0.15)
    near, far = np.corrcoef(off.T)[20, [22, 40]]
    assert near == pytest.approx(np.exp(-0.1 / 0.5), abs=0.08)
    assert far == pytest.approx(np.exp(-1.0 / 0.5), abs=0.1)
    start = drifted(np.array([0.5, 0.5]), np.array([-np.inf, 4.0]), noise, rng())
    assert start[0] == 0.5 != start[1]


def test_dips_are_early():
    noise, steps = replace(QUIET, dip_sd=0.05), np.array([0.0, 5.0, 20.0])
    low = np.array([dipped(np.full(3, 0.5), steps, noise, rng(s)) for s in range(400)])
    assert (low[:, 1] < 0.5).all()
    assert (0.5 - low[:, 1]).mean() == pytest.approx(0.05 * np.sqrt(2 / np.pi), rel=0.1)
    assert low[:, [0, 2]] == pytest.approx(np.full((400, 2), 0.5), abs=1e-3)


def test_greedy_evaluations_repeat_their_problems():
    noise = Noise(problems=300, samples=1, greedy=True)
    scores = np.array([evaluated(np.array([0.6, 0.6]), noise, rng(s)) for s in range(800)])
    assert scores.mean() == pytest.approx(0.6, abs=0.002)
    binomial_sd = np.sqrt(0.24 / 300)
    assert scores.std() < 0.85 * binomial_sd  # what all share moves nothing
    of_run = np.corrcoef(scores.T)[0, 1]
    assert 0.4 < of_run < 0.8  # what a run shares stays with it
    assert set(np.round(scores.ravel() * 300 % 1, 9)) <= {0.0, 1.0}


def test_seeds_that_differ_in_shape():
    world, noise = WORLDS["rising"], replace(QUIET, slope_sd=0.3)
    one = world.sample(noise, 2, rng())
    assert abs(one[0].score_K - one[1].score_K).max() > 0.01
    blurred, sharp = (world.truth(n).score([1e5, 3e6]) for n in (noise, QUIET))
    assert not np.allclose(blurred, sharp, atol=1e-3)


def test_conditions_change_what_is_seen():
    world = FAMILIES["tent"]
    linear = CONDITIONS["linear_grid"].sample(world, rng())
    gaps = np.diff(linear[0].rollouts_K)
    assert len(gaps) == 40
    assert gaps.max() - gaps.min() <= 128  # whole steps of B = 128
    cut = CONDITIONS["unequal"].sample(world, rng())
    ends = [c.rollouts_K[-1] / world.max_rollouts for c in cut]
    assert 0.15 < min(ends) < 0.4 < 0.75 < max(ends)
    assert len(CONDITIONS["one_seed"].sample(world, rng())) == 7
    assert len(CONDITIONS["five_seeds"].sample(world, rng())) == 35
    assert CONDITIONS["told"].sample(world, rng())[0].trials == 1200
    assert CONDITIONS["middle"].sample(world, rng())[0].trials is None
    assert {c.noise.greedy for n, c in CONDITIONS.items() if "greedy" in n} == {True}


def test_a_run_that_was_stopped():
    curve = Condition(name="a").sample(FAMILIES["tent"], rng())[0]
    short = cut_to(curve, 1e5)
    assert short.rollouts_K[-1] <= 1e5 < curve.rollouts_K[len(short.rollouts_K)]
    assert len(short.rollouts_K) == len(short.score_K) == len(short.steps_K) == len(short.tokens_K)
    assert len(cut_to(curve, 0.0).rollouts_K) == 2


@pytest.mark.heavy
def test_every_world_can_be_sampled_and_has_a_truth():
    for name, world in {**FAMILIES, **SURFACES}.items():
        assert world.name == name
        small = world.until(2.0**19)
        curves = CONDITIONS["lasting"].sample(small, rng())
        assert len(curves) == 3 * len(world.arms)
        if name == "grpo_easy":  # its mean curves take seconds; those of the hard one do
            continue
        score = small.truth(NOISE["middle"]).score(np.geomspace(2e5, 5e6, 5))
        assert ((score > 0) & (score < 1)).all()
        assert (np.diff(score, axis=1) >= 0).all()


def test_a_surface_moves_with_each_of_its_numbers():
    base = Surface()
    for change in (
        {"shape": "weibull"}, {"floor": 0.3}, {"rise": (0.3, 0.0, 0.0)}, {"slope": 2.0},
        {"midpoint": 5.0}, {"per_octave": 0.1}, {"timing": "steps"},
        {"rise": (0.25, 0.01, 0.0), "centre": 5.0},
    ):  # fmt: skip
        assert replace(base, **change).score(8.0, 5.4) != pytest.approx(base.score(8.0, 5.4))
    steps = replace(base, timing="steps")
    for change in ({"noise_n": 64.0}, {"steps": 90.0}, {"problems_per_batch": 64}):
        assert replace(steps, **change).score(8.0, 5.4) != pytest.approx(steps.score(8.0, 5.4))
    assert isinstance(SURFACES["rises"], World)
