"""Steps from approximate draws to the posterior: slopes, what is chosen, what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from isocompute.model import fit_posterior
from isocompute.model import solve as solving
from isocompute.model import walk as walking
from isocompute.model.form import KNOTS, Form
from isocompute.model.prior import Blocks, Prior
from isocompute.model.solve import (
    Problem,
    gauss_newton,
    linear_evidence,
    products_at,
    slope,
    solve_modes,
)
from isocompute.model.threads import one_thread
from isocompute.testing.planted import NOISE, WORLDS
from matrices import whole_of

N = np.array([3.0, 4.0, 6.0])
CENTRE = np.array([0.0, 1.0, 5.0, -1.0, 0.0, -2.0, *[0.0] * len(KNOTS)])
P = 9 + 3 + len(KNOTS)
X = np.tile(np.linspace(4.0, 6.0, 8), (3, 1))


def prior() -> Prior:
    return Prior(N, np.full(3, 5.0), CENTRE, 0.1, 3)


def problem(settings: int, group: np.ndarray, *, seen: bool = True) -> Problem:
    whiten = np.array([np.eye(8) / 0.02 / (s + 1) for s in range(settings)])
    return Problem(
        form=Form(),
        x_JK=X,
        whiten=np.repeat(whiten[:, None], 3, axis=1) * seen,
        group_B=group,
    )


def test_slope_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    p = prior().mean() + 0.1 * rng.standard_normal((2, P))
    score = rng.uniform(0.2, 0.6, X.shape)
    precision = prior().covariance(prior().sample(2, rng)).inverse()
    of = problem(2, np.array([0, 1]))
    down = slope(of, p, score, prior().mean(), precision)[1]
    for i in range(P):
        e = 2e-3 * np.eye(P)[i]  # curves are in single precision
        high, low = (slope(of, p + s * e, score, prior().mean(), precision)[0] for s in (1, -1))
        np.testing.assert_allclose(down[:, i], -(high - low) / 8e-3, rtol=1e-3, atol=0.05)


def test_modes_do_not_depend_on_how_many_are_solved_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    group = np.array([0, 0, 1, 1, 1])
    of = problem(2, group)
    start = prior().mean() + 0.3 * rng.standard_normal((5, P))
    score = rng.uniform(0.2, 0.6, (5, *X.shape))
    mean = prior().mean() + 0.1 * rng.standard_normal((5, P))
    precision = prior().covariance(prior().sample(5, rng)).inverse()
    whole = solve_modes(of, start, score, mean, precision, iterations=6)
    monkeypatch.setattr(solving, "AT_ONCE", 2 * P**2)
    apart = solve_modes(of, start, score, mean, precision, iterations=6)
    np.testing.assert_allclose(apart.parameters, whole.parameters, atol=2e-3)
    np.testing.assert_allclose(apart.loss, whole.loss, rtol=1e-3)


@pytest.mark.parametrize("at_once", [1, 2 * P**2, 10**9])
def test_a_leap_takes_each_draw_s_own_curvature(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """However many leap at once, and in whatever order their matrices stand."""
    rng = np.random.default_rng(6)
    setting = np.array([0, 0, 0, 1, 1])
    of = problem(2, setting)
    p = prior().mean() + 0.05 * rng.standard_normal((5, P))
    score = of.form.value(*of.split(p[:1]), X)[:, :, 0]
    precision = prior().covariance(prior().sample(5, rng)).inverse()
    products = products_at(of, p, np.zeros((1, *X.shape)))
    now = walking.Walkers(p, np.zeros((5, 13)), setting)

    def leap(order: np.ndarray) -> np.ndarray:
        place = np.argsort(order)
        return walking._leap(of, now, products[order], place, score, prior().mean(), precision,
                             np.random.default_rng(7)).parameters  # fmt: skip

    expected = leap(np.arange(5))
    assert not np.allclose(expected, p)
    monkeypatch.setattr(solving, "AT_ONCE", at_once)
    np.testing.assert_allclose(leap(np.array([3, 1, 4, 0, 2])), expected, atol=1e-4)


def test_evidence_of_a_line_is_exact() -> None:
    """Near its mode a curve is a line: evidence as of the normal that data and prior make."""
    rng = np.random.default_rng(1)
    of = problem(3, np.arange(3))
    p = prior().mean()
    score = of.form.value(*of.split(p[None]), X)[:, :, 0] + 0.01 * rng.standard_normal(X.shape)
    weak = prior().covariance(prior().sample(1, rng)).inverse()
    precision = Blocks(1e4 * weak.own, 1e4 * weak.shared)
    jacobian = of.form.value_and_jacobian(*of.split(p[None]), X)[1][..., 0]
    whole = np.zeros((24, P))
    for j in range(3):
        whole[8 * j : 8 * j + 8, [j, 3 + j, 6 + j, *range(9, P)]] = jacobian[j]
    left = (score - of.form.value(*of.split(p[None]), X)[:, :, 0]).ravel()
    exact = []
    for s in range(3):
        covariance = whole @ np.linalg.solve(whole_of(precision)[0], whole.T)
        covariance += (0.02 * (s + 1)) ** 2 * np.eye(24)
        exact.append(
            -0.5 * left @ np.linalg.solve(covariance, left) - 0.5 * np.linalg.slogdet(covariance)[1]
        )
    sizes = 0.02 * np.arange(1, 4)[:, None, None, None]
    covariance = sizes**2 * np.eye(8) * np.ones((1, 3, 1, 1))
    line = of.form, X, np.ones(X.shape, bool), score, p
    found = linear_evidence(*line, prior().mean(), precision, covariance)
    np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-6)


def test_noise_that_fits_is_chosen() -> None:
    """Residuals of 0.06 under sizes 0.02, 0.04, 0.06, 0.08: the first is impossible."""
    rng = np.random.default_rng(2)
    D = 400
    p = np.broadcast_to(prior().mean(), (D, P)).copy()
    of = problem(4, np.zeros(D, np.int64))
    score = of.form.value(*of.split(p[:1]), X)[:, :, 0] + 0.06 * np.sign(X - 5.0)
    half = np.log(0.02 * np.arange(1, 5)) * 24
    chosen = walking._settings(of, walking.Walkers(p, np.zeros((D, P)), of.group_B), score,
                               -half, rng)  # fmt: skip
    log_p = -half - 0.5 * 24 * (0.06 / (0.02 * np.arange(1, 5))) ** 2
    exact = np.exp(log_p - np.logaddexp.reduce(log_p))
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / D, exact, atol=0.08)


class Plane:
    """score linear in every parameter: data and prior make a normal posterior."""

    own, shared = 3, Form.shared

    def value(self, own: np.ndarray, shared: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self.value_and_jacobian(own, shared, x)[0]

    def value_and_jacobian(
        self, own: np.ndarray, shared: np.ndarray, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        away = x - 5.0
        columns = [away**0, away, away**2, *(0.2 * np.cos(r * away) for r in range(self.shared))]
        jacobian = np.stack(columns, axis=2)[..., None] * np.ones(own.shape[2])
        every = np.concatenate([own, np.repeat(shared[:, None], len(x), axis=1)])
        return np.einsum("jkcb,cjb->jkb", jacobian, every), jacobian


def planes(D: int) -> Problem:
    return replace(problem(1, np.zeros(D, np.int64)), form=Plane())  # type: ignore[arg-type]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("rounds", "wide"), [(4, 1.0), pytest.param(50, 0.3, marks=pytest.mark.long)]
)
def test_a_normal_posterior_stays_as_it_is(
    rounds: int, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its own draws, and (longer) from draws that are too narrow; scales held."""
    monkeypatch.setattr(walking, "LEAST_ROUNDS", rounds)
    monkeypatch.setattr(walking, "MOST_ROUNDS", rounds)
    monkeypatch.setattr(Prior, "log_scales", lambda self, z: self.median() + 1e-9 * z)
    monkeypatch.setattr(walking, "POSSIBLE", 2)
    rng, D, own = np.random.default_rng(5), 1200, prior()
    of = planes(D)
    precision = own.covariance(own.median()[None]).inverse()
    score = np.random.default_rng(6).uniform(0.2, 0.6, X.shape)
    hessian = gauss_newton(planes(1), own.mean()[None], precision)[0]
    down = slope(planes(1), own.mean()[None], score, own.mean(), precision)[1][0]
    mean, covariance = own.mean() + np.linalg.solve(hessian, down), np.linalg.inv(hessian)
    luck = rng.standard_normal((D, P)) @ np.linalg.cholesky(covariance).T
    scales = np.repeat(own.median()[None], D, axis=0)
    start = walking.Walkers(mean + wide * luck, scales, of.group_B)
    found = walking.walk(of, start, score, own, np.zeros(1), rng)
    sd = np.sqrt(np.diagonal(covariance))
    assert 0.85 < found.accepted < 1
    assert np.abs((found.parameters.mean(axis=0) - mean) / sd).max() < 0.15
    np.testing.assert_allclose(found.parameters.std(axis=0), sd, rtol=0.12)
    moved = np.abs(found.parameters - start.parameters) / sd
    assert np.median(moved) > 0.3  # it did walk


@pytest.mark.heavy
def test_without_data_draws_walk_back_to_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started a tenth as wide, at scales too small by e, under noise of one setting."""
    monkeypatch.setattr(walking, "LEAST_ROUNDS", 60)
    monkeypatch.setattr(walking, "MOST_ROUNDS", 60)
    rng = np.random.default_rng(3)
    D = 600
    own = prior()
    scales = own.sample(D, rng) - 1.0
    p = own.mean() + 0.1 * own.covariance(own.sample(D, rng)).normal(D, rng, np.arange(D))
    of = problem(2, np.zeros(D, np.int64), seen=False)
    start = walking.Walkers(p, scales, of.group_B)
    found = walking.walk(of, start, np.zeros(X.shape), own, np.zeros(2), rng)
    # by the whole matrices, which know nothing of blocks
    fresh = own.mean() + (
        np.linalg.cholesky(whole_of(own.covariance(own.sample(4000, rng))))
        @ rng.standard_normal((4000, P, 1))
    )[..., 0]
    spread, exact = found.parameters.std(axis=0), fresh.std(axis=0)
    np.testing.assert_allclose(spread[:12], exact[:12], rtol=0.12)
    np.testing.assert_allclose(spread[12:], exact[12:], rtol=0.3)  # few sets of scales matter
    apart = (found.parameters - own.mean()).mean(axis=0) / fresh.std(axis=0)
    assert np.abs(apart).max() < 0.15
    between = np.abs(np.diff(found.parameters[:, 3:6], axis=1)).mean(axis=0)  # neighbours alike
    exact = np.abs(np.diff(fresh[:, 3:6], axis=1)).mean(axis=0)
    np.testing.assert_allclose(between, exact, rtol=0.2)
    assert np.bincount(found.setting, minlength=2).min() > 0.42 * D
    assert found.accepted > 0.8


@pytest.mark.heavy
def test_draws_do_not_hang_on_the_seed() -> None:
    """P(best) of the same one-seed sweep from several random seeds of the fit."""
    curves = WORLDS["rising"].until(2.0**20).sample(NOISE["middle"], 1, np.random.default_rng(4))
    share = []
    for seed in range(4):
        best = fit_posterior(curves, seed=seed).scores(np.array([5.5, 6.5])).argmax(axis=1)
        share.append([(best == j).mean(axis=0) for j in range(7)])
    assert np.ptp(np.array(share), axis=0).max() < 0.15


@pytest.mark.parametrize("size", [1, 8, 9, 97])
def test_triangular_matrices_are_inverted_by_their_quarters(size: int) -> None:
    rng = np.random.default_rng(2)
    lower = np.tril(rng.standard_normal((3, size, size))) + 9 * np.eye(size)
    found = walking._inverse_of_lower(lower)
    np.testing.assert_allclose(found @ lower, np.tile(np.eye(size), (3, 1, 1)), atol=1e-9)


def test_linear_algebra_has_one_thread_and_then_what_it_had() -> None:
    """Small matrices on many threads cost twice the time of one."""

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        assert one_thread(threads)() == {1}
        assert threads() == before
    assert fit_posterior.__wrapped__.__name__ == "fit_posterior"  # the fit is run so
