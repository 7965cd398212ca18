"""Draws of whole sweeps: planted truth, luck that is its own, and what a posterior is asked.

Shape legend: D draws, J configurations, X budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from isocompute.answers.fit import fit_sweep
from isocompute.domain import Configuration, Curve
from isocompute.errors import RefusalError
from isocompute.model import Posterior, fit_posterior
from isocompute.model import posterior as asked
from isocompute.model.form import Form
from isocompute.testing.planted import NOISE, WORLDS, World

FloatArray = NDArray[np.float64]

FOUR = World(
    name="four", arms=tuple(a for a in WORLDS["rising"].arms if a.rollouts_per_problem < 100)
)
X = np.array([4.6, 5.5, 6.5, 6.9])


def sweep(world: World = FOUR, seeds: int = 2, seed: int = 0, noise: str = "middle") -> list[Curve]:
    return world.sample(NOISE[noise], seeds, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    return sweep()


@pytest.fixture(scope="module")
def posterior(curves: list[Curve]) -> Posterior:
    return fit_posterior(curves, draws=60)


def away(one: Posterior, other: Posterior, x: FloatArray = X) -> float:
    return float(np.abs(one.scores(x) - other.scores(x)).max())


def interval(draw_D: FloatArray) -> tuple[FloatArray, FloatArray]:
    low, high = np.quantile(draw_D, [0.025, 0.975], axis=0)
    return low, high


@pytest.mark.heavy
def test_planted_scores_lie_in_their_intervals() -> None:
    """Ten sweeps of four n at four budgets, every second one beyond its data."""
    inside, off = [], []
    for seed in range(10):
        world = FOUR.until(2.0**20) if seed % 2 else FOUR
        found = fit_posterior(sweep(world, seed=seed), draws=120).scores(X)
        truth = FOUR.truth(NOISE["middle"]).score(10**X)
        low, high = interval(found)
        inside.append((low <= truth) & (truth <= high))
        if not seed % 2:
            off.append(np.abs(found.mean(axis=0) - truth))
    assert np.mean(inside) >= 0.88
    assert np.mean(off) < 0.006


def test_where_n_matters_much_what_seeds_agree_on_is_no_luck() -> None:
    """Two seeds of 12 configurations whose ceilings differ by 0.3, far more than in the prior."""

    def truth(b_p: int, n: int, x: FloatArray) -> FloatArray:
        height = 0.36 - 0.02 * (np.log2(b_p * n) - 9) ** 2
        return np.asarray(0.3 + height / (1 + np.exp(-2.4 * (np.log10(np.maximum(x, 1)) - 4))))

    rng, out = np.random.default_rng(0), list[Curve]()
    for b_p, n, seed in product((8, 32), (4, 8, 16, 32, 64, 128), (0, 1)):
        x = np.append(0, 300_000 / 2 ** (np.arange(11, -1, -1) / 2))
        p = truth(b_p, n, x * 10 ** rng.normal(0, 0.03)) + rng.normal(0, 0.006)
        out.append(Curve(problems_per_batch=b_p, rollouts_per_problem=n, seed=seed,
                         run=f"{b_p}-{n}-{seed}", rollouts_K=x,
                         score_K=rng.binomial(2000, p) / 2000))  # fmt: skip
    found = fit_posterior(out, draws=60)
    score_DJ = found.scores(np.log10([2e5]))[:, :, 0]
    off = score_DJ.mean(axis=0) - [truth(*c, np.array(2e5)) for c in found.configurations]
    assert np.abs(off).max() < 0.03
    assert score_DJ.std(axis=0).max() < 0.02


@pytest.mark.long
def test_planted_parameters_are_found() -> None:
    curves = sweep(FOUR, seeds=4, noise="low")
    found = fit_posterior(curves, draws=200)
    for name, planted, near in (
        ("ceiling_DJ", [a.ceiling for a in FOUR.arms], 0.02),
        ("log10_midpoint_DJ", [a.midpoint for a in FOUR.arms], 0.08),
    ):
        draw_DJ = getattr(found, name)
        assert draw_DJ.shape == (200, 4)
        np.testing.assert_allclose(draw_DJ.mean(axis=0), planted, atol=near)
    assert found.floor_D.mean() == pytest.approx(0.4, abs=0.004)
    # At its midpoint a curve has made half of its rise, whatever its bend.
    half_J = (found.floor_D[:, None] + found.ceiling_DJ).mean(axis=0) / 2
    middle = found.scores(np.median(found.log10_midpoint_DJ, axis=0))
    np.testing.assert_allclose(np.diagonal(middle.mean(axis=0)), half_J, atol=0.01)


@pytest.mark.heavy
def test_a_seed_fixes_the_draws_and_another_draws_others(
    curves: list[Curve], posterior: Posterior
) -> None:
    assert away(fit_posterior(curves, draws=60), posterior) == 0
    assert away(fit_posterior(curves, draws=60, seed=1), posterior) > 0.001
    assert posterior.draws == 60
    assert fit_posterior(curves, draws=11).scores(X).shape == (11, 4, 4)
    np.testing.assert_array_equal(posterior.scores(X), posterior.scores(X))
    n = np.array([3.5, 7.0])
    np.testing.assert_array_equal(
        posterior.smooth_scores(16, n, X), posterior.smooth_scores(16, n, X)
    )


@pytest.mark.long
def test_the_order_of_runs_does_not_matter(curves: list[Curve], posterior: Posterior) -> None:
    assert away(fit_posterior(curves[::-1], draws=60), posterior) < 1e-6


@pytest.mark.parametrize("select", ["best", "final"])
def test_positions_may_differ_by_configuration(posterior: Posterior, select: str) -> None:
    found = replace(posterior, select=select)
    rows = X + np.array([0.3, 0.0, -0.2, 0.1])[:, None]
    turned = np.roll(np.arange(len(X)), 1)  # in any order
    mine = found.scores(rows[:, turned])[:, :, np.argsort(turned)]
    n, bp = np.array([3.5, 5.0]), 16.0
    of_n = np.concatenate([X + np.array([[0.15], [0.05]]), rows])
    smooth = found.smooth_scores(bp, n, of_n)
    for j, row in enumerate(rows):
        np.testing.assert_allclose(mine[:, j], found.scores(row)[:, j], atol=1e-9)
    np.testing.assert_allclose(
        found.smooth_scores(bp, n, np.tile(X, (6, 1))), found.smooth_scores(bp, n, X), atol=1e-9
    )
    assert np.abs(smooth - found.smooth_scores(bp, n, X)).max() > 0.01


def test_the_best_so_far_counts_from_a_configurations_own_first_evaluation(
    curves: list[Curve],
) -> None:
    """Where nobody has looked draws are wide: their highest is no checkpoint that was kept."""
    late = curves[0].configuration
    cut = [
        c.replace(rollouts_K=c.rollouts_K[6:], score_K=c.score_K[6:], tokens_K=None, steps_K=None)
        if c.configuration == late else c for c in curves
    ]  # fmt: skip
    found = fit_posterior(cut, draws=60)
    j = found.configurations.index(late)
    first = float(found.data.x_JK[j][found.data.has_JK[j]].min())
    assert first > float(found.data.x_JK[found.data.has_JK].min()) + 0.3
    x = np.linspace(first - 1.5, first, 40)
    np.testing.assert_array_equal(found.scores(x)[:, j], found._plain(x)[:, j])
    after = found.scores(np.linspace(first, first + 1, 40))[:, j]
    assert (np.diff(after, axis=1) >= 0).all()


@pytest.mark.long
def test_the_last_checkpoint_of_a_falling_run_scores_less_than_its_best() -> None:
    world = World(name="f", arms=tuple(a for a in WORLDS["overfit"].arms if a.batch_size < 2000))
    curves = sweep(world, noise="low", seed=1)
    best, final = (fit_posterior(curves, draws=60, select=s) for s in ("best", "final"))
    x = np.array([6.0, 6.5, 6.9])
    true_best = world.truth(NOISE["low"]).score(10**x)
    true_final = np.array([arm.mean(x, NOISE["low"]) for arm in world.arms])
    assert (true_best - true_final)[:, 2].min() > 0.03
    np.testing.assert_allclose(best.scores(x).mean(axis=0), true_best, atol=0.02)
    np.testing.assert_allclose(final.scores(x).mean(axis=0), true_final, atol=0.01)


def test_falling_scores_do_not_depend_on_what_was_asked_before(posterior: Posterior) -> None:
    (old, *_), J = posterior.parts, len(posterior.configurations)
    falls = np.repeat([[np.log(0.2)] * J + [5.5] * J], len(old.parameters), axis=0)
    part = old._replace(
        form=Form(declines=True),
        parameters=np.insert(old.parameters, [3 * J] * 2 * J, falls, axis=1),
        log_scales=np.insert(old.log_scales, [12] * 8, -2.0, axis=1),
        prior=replace(old.prior, own=5, centre=np.insert(old.prior.centre, [3] * 2, [-2.0, 5.5])),
    )
    fresh = partial(replace, posterior, parts=(part,))  # remembers nothing
    found = fresh()
    far, near, n = np.array([8.0, 4.1, 6.6]), np.array([6.6, 2.0]), np.array([3.5])
    for x in (near, far, np.tile(near, (len(found.configurations), 1))):
        np.testing.assert_array_equal(found.scores(x), fresh().scores(x))
        assert not found.scores(x).flags.writeable
    for x in (near, far):
        np.testing.assert_array_equal(
            found.smooth_scores(16, n, x), fresh().smooth_scores(16, n, x)
        )
    # No lower than anywhere before, on a lattice of a tenth of a decade or asked for.
    one = found._curves(part, part.parameters, near, found.data.log2_n_J)[:, :, 0]
    start = float(found.data.x_JK[found.data.has_JK].min())
    every = np.append(np.arange(start, 6.6, asked.STEP), 6.6)
    own = part.parameters.T[: -part.form.shared].reshape(part.form.own, -1, len(one))
    value = part.form.value(own, part.parameters.T[-part.form.shared :], every[None])
    np.testing.assert_allclose(one, value.max(axis=1).T, atol=1e-5)
    assert (value[:, -1] + 0.02 < one.T).all()


def test_smooth_scores_pass_through_those_tested(posterior: Posterior) -> None:
    x = np.array([4.4, 5.5, 6.6])
    tested, every = np.array([3.0, 4.0, 5.0, 6.0]), posterior.scores(x)
    found = posterior.smooth_scores(16, np.concatenate([tested, [3.5, 8.0]]), x)
    np.testing.assert_allclose(found[:, :4], every, atol=1e-3)
    between, beyond = found[:, 4, 1], found[:, 5, 1]
    ends = every[:, :2, 1].mean(axis=0)
    assert ends.min() - 0.01 < between.mean() < ends.max() + 0.01
    assert every[:, 0, 1].std() < beyond.std()
    another = posterior.smooth_scores(64, tested, x)
    assert (another.std(axis=0) > every.std(axis=0) + 1e-4).all()


def test_what_an_n_has_of_its_own_fades_to_its_neighbours() -> None:
    n, bp = np.array([3.0, 4.0, 6.0]), np.full(3, 5.0)
    at = np.array([3.0, 3.5, 4.5, 5.5, 6.5, 7.5, 1.9])
    found = asked._nearness(at, np.full(7, 5.0), n, bp)
    by_hand = [
        [1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0], [0, 0, 0.5], [0, 0, 0.5], [0, 0, 0], [0, 0, 0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, by_hand)
    assert not asked._nearness(at, np.full(7, 6.0), n, bp).any()
    near = asked._nearness(np.array([3.25]), np.full(1, 5.0), np.array([3.0, 3.5]), bp[:2])
    np.testing.assert_allclose(near, [[0.5, 0.5]])
    # The nearest of several others is where it ends, however far the next is.
    three = asked._nearness(np.array([3.25]), np.full(1, 5.0), np.array([3.0, 3.5, 3.75]), bp)
    np.testing.assert_allclose(three, [[0.5, 0.5, 0.0]])


def test_between_the_tested_n_curves_go_through_their_draws(posterior: Posterior) -> None:
    """Without nuggets a draw's smooth part is the draw wherever n was tested."""
    (part, *_) = posterior.parts
    log_scales = part.log_scales.copy()
    log_scales[:, 2:12:4], log_scales[:, 3:12:4] = np.log(0.1), np.log(1e-4)
    smooth = part._replace(log_scales=log_scales)
    n, rng = posterior.data.log2_n_J, np.random.default_rng(0)
    found = asked._between(smooth, n, np.full(4, 4.0), rng)
    np.testing.assert_allclose(found, part.parameters[:, :12], atol=0.02)


def test_values_between_positions_are_linear_and_held_at_the_ends() -> None:
    found = asked.interpolate(
        np.array([1.0, 2.0, 3.0]), np.array([[0.0, 1.0, 5.0]]), np.array([0.0, 1.5, 2.25, 9.0])
    )
    np.testing.assert_allclose(found, [[0, 0.5, 2, 5]], atol=0.01)


def test_a_posterior_counts_what_it_was_made_from(posterior: Posterior) -> None:
    assert posterior.configurations == tuple(Configuration(16, n) for n in (8, 16, 32, 64))
    assert posterior.n_runs_J.tolist() == [2] * 4
    assert posterior.n_points_J[0] == 2 * (len(FOUR.evaluated_at(FOUR.arms[0])) - 1)
    np.testing.assert_allclose(posterior.last_J, np.log10(2.0**23), atol=0.001)
    batch = np.array([a.batch_size for a in FOUR.arms])
    assert (10**posterior.first_J >= 20 * batch - 1e-6).all()
    assert (10**posterior.first_J < 40 * batch + 8192).all()
    assert posterior.state_J == ("complete",) * 4
    assert (posterior.unit, posterior.select, posterior.seed) == ("rollouts", "best", 0)
    assert replace(posterior, seed=5).seed == 5


def ended(curves: Sequence[Curve], n: int, limit: float) -> list[Curve]:
    return [c.until(limit) if c.rollouts_per_problem == n else c for c in curves]


def test_runs_that_stop_or_break_are_named(curves: list[Curve]) -> None:
    broken = [
        c.replace(score_K=np.where(c.rollouts_K > 1e6, 0.0, c.score_K))
        if c.rollouts_per_problem == 32 and c.seed == 0
        else c
        for c in ended(ended(curves, 8, 2.0**21), 16, 2.0**22.5)
    ]
    found = fit_posterior(broken, draws=4)
    assert found.state_J == ("stopped", "complete", "broken", "complete")
    # Its sound sibling goes on, so the score does not fall with it.
    assert found.scores(np.array([6.8]))[:, 2].min() > 0.55


@pytest.mark.parametrize("case", ["one run", "one point", "two n", "two b_p", "perfect", "nothing"])
def test_the_smallest_sweeps_have_answers(case: str, curves: list[Curve]) -> None:
    one = curves[:1]
    two_n = [curves[0], curves[-1]]
    chosen = {
        "one run": one,
        "one point": [c.replace(rollouts_K=c.rollouts_K[5:6], score_K=c.score_K[5:6],
                                tokens_K=None, steps_K=None) for c in one],
        "two n": two_n,
        "two b_p": [curves[0], curves[0].replace(problems_per_batch=64)],
        "perfect": [c.replace(score_K=c.score_K * 0 + 1) for c in two_n],
        "nothing": [c.replace(score_K=c.score_K * 0) for c in two_n],
    }[case]  # fmt: skip
    found = fit_posterior(chosen, draws=12)
    score = found.scores(X)
    assert score.shape == (12, len(found.configurations), 4)
    assert np.isfinite(score).all()
    assert score.min() >= 0
    assert score.max() <= 1
    smooth = found.smooth_scores(32, np.array([2.0, 3.0, 9.0]), X)
    assert np.isfinite(smooth).all()
    for name in ("floor_D", "ceiling_DJ", "slope_DJ", "log10_midpoint_DJ"):
        assert np.isfinite(getattr(found, name)).all(), name
    if case in ("perfect", "nothing"):
        planted = float(case == "perfect")
        np.testing.assert_allclose(score[:, :, :3].mean(axis=0), planted, atol=0.02)


def test_without_an_evaluation_after_step_0_there_is_no_fit(curves: list[Curve]) -> None:
    none = [c.until(0.0) for c in curves]
    with pytest.raises(RefusalError, match="after step 0, but got 0 .runs: 8"):
        fit_posterior(none)
    with pytest.raises(RefusalError, match="but got 0 .runs: 0"):
        fit_posterior([])


@pytest.mark.heavy
def test_more_runs_leave_less_to_luck() -> None:
    """The spread of a score at seven runs against that at one."""
    wide, narrow = (
        fit_posterior(sweep(seeds=seeds, seed=3), draws=100).scores(X[2:]).std(axis=0).mean()
        for seeds in (1, 7)
    )
    assert narrow < 0.7 * wide


def test_one_run_has_the_luck_of_every_size(posterior: Posterior) -> None:
    """Sizes of one setting by hand: variance of evaluation, lasting noise, ceiling, midpoint."""
    D = posterior.draws
    score, gained, factor = 0.5, 0.02, 10.0  # 0.02 a decade

    def spread(*sizes: float) -> float:
        every = np.tile([*sizes, 9.0], (len(posterior.noise.sizes), 1))
        noise = posterior.noise._replace(sizes=every)
        of = replace(posterior, noise=noise)
        score_D, gained_D = np.full(D, score), np.full(D, gained)
        luck = np.random.default_rng((of.seed, 4)).standard_normal(D)
        return float(((of.of_one_run(score_D, gained_D, factor) - score) / luck).mean())

    flat = np.full(D, 0.5), np.zeros(D), 2.0
    first, again, other = (posterior.of_one_run(*flat, which) for which in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.3  # another run, another luck
    assert spread(0.0, 0.0, 0.0, 0.0) == 0.0
    assert spread(0.0004, 0.0, 0.0, 0.0) == pytest.approx(0.01)  # sqrt(0.0004 * 0.25)
    assert spread(0.0, 0.0, 0.0, 0.02) == pytest.approx(0.01)  # 0.02 * 0.5
    assert spread(0.0, 0.0, 0.5, 0.0) == pytest.approx(0.01)  # half a decade of 0.02
    share = float((0.5 - posterior.floor_D).mean())
    assert spread(0.0, 0.1, 0.0, 0.0) == pytest.approx(0.1 * share, rel=1e-2)


@pytest.mark.heavy
def test_the_last_score_is_fitted_where_it_is_asked_for() -> None:
    curves = WORLDS["overfit"].sample(NOISE["low"], 2, np.random.default_rng(4))
    best, last = (fit_sweep(curves, draws=100, select=select) for select in ("best", "final"))
    at = best.support[1]
    first = best.configurations[:1]  # n = 8 falls most after its peak
    assert best.scores_of(first, at).mean() > last.scores_of(first, at).mean() + 0.01


@pytest.mark.heavy
def test_the_best_score_so_far_never_falls_in_any_draw() -> None:
    curves = WORLDS["rising"].until(2.0**20).sample(NOISE["high"], 1, np.random.default_rng(3))
    bent = [c.replace(score_K=c.score_K - 0.03 * (np.arange(len(c.score_K)) % 3)) for c in curves]
    x = np.linspace(4.0, 7.0, 61)
    best = fit_posterior(bent, draws=40).scores(x)
    assert (np.diff(best, axis=2) >= 0).all()
    final = fit_posterior(bent, draws=40, select="final").scores(x)
    assert (np.diff(final, axis=2) < -1e-4).any()
    # In whatever order, and with whatever other budgets, it is asked for.
    again = fit_posterior(bent, draws=40).scores(x[[30, 10]])
    assert np.allclose(again, best[:, :, [30, 10]], atol=2e-3)
