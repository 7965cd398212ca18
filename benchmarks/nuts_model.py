"""The posterior of `isocompute.model`, written again for NUTS (NumPyro), to check its draws.

Shared with the package: the reduced data, the settings of the noise, the constants of the prior.
Written anew: curve, Gaussian process prior, likelihood, and what a draw says of scores, of the
misfit and of an untested n (there the package says how much of a tested n's own its neighbours
share). Settings of the noise are summed out; everything else is sampled.

Shape legend: S settings of the noise, J configurations, K positions, D draws, F points, X budgets,
R bumps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.diagnostics import gelman_rubin
from numpyro.infer import MCMC, NUTS
from numpyro.infer.initialization import init_to_value

from isocompute.model.form import HINGE, KNOTS, SPACING
from isocompute.model.noise import MISFIT_LENGTH, scaling_of
from isocompute.model.posterior import Posterior, _nearness
from isocompute.model.prior import BUMP, OCTAVES, SCALES, SHARED

jax.config.update("jax_enable_x64", True)

CHAINS = 4
BEND = 3  # shared parameters before the bumps: logit of the floor, log nu, log q


class Full(NamedTuple):
    """What NUTS found: draws, and the largest split R-hat of any parameter or scale."""

    own: np.ndarray  # (D, own, J)
    shared: np.ndarray  # (D, 3 + R) logit of the floor, log nu, log q, bumps
    log_scales: np.ndarray  # (D, own * 4 + 1), that of the bumps last
    setting: np.ndarray  # (D,)
    r_hat: float
    divergences: int


def curve(own: Any, shared: Any, x: Any) -> Any:
    """Scores (J, K) of curves with parameters (own, J) and (3 + R,) at x (J, K)."""
    floor, height = jax.nn.sigmoid(shared[0]), jax.nn.sigmoid(own[0])[:, None]
    nu, q = jnp.exp(shared[1]), jnp.exp(shared[2])
    z = jnp.clip(jnp.exp(own[1])[:, None] * (x - own[2][:, None]), -30, 30)
    log_richards = -jnp.log1p(nu * jnp.exp(-z)) / nu
    hazard = -jnp.log(jnp.maximum(-jnp.expm1(log_richards), 1e-300))
    gained = 1 - (1 + q * hazard) ** (-1 / q)
    for knot, weight in zip(KNOTS, shared[BEND:], strict=True):
        gained = gained + weight * _bump((z - knot) / SPACING)
    value = floor + (1 - floor) * height * gained
    if len(own) == 5:
        since = (x - own[4][:, None]) / HINGE
        value = value - jnp.exp(own[3])[:, None] * HINGE * jax.nn.softplus(since)
    return value


def _bump(t: Any) -> Any:
    """Cubic B-spline of unit spacing, 1 at its middle, piece by piece."""
    t = jnp.abs(t)
    inside = 1 - 1.5 * t**2 + 0.75 * t**3
    return jnp.where(t < 1, inside, jnp.where(t < 2, 0.25 * (2 - t) ** 3, 0.0))


def _alike(n: Any, bp: Any, n2: Any, bp2: Any) -> Any:
    """Squared-exponential correlation between points (n, bp) and (n2, bp2)."""
    square = (n[:, None] - n2) ** 2 + (bp[:, None] - bp2) ** 2
    return jnp.exp(-square / (2 * OCTAVES**2))


def _matern(apart: Any, length: float) -> Any:
    r = np.sqrt(3.0) * abs(apart) / length
    return (1 + r) * jnp.exp(-r)


def _smooth(i: int, scales: Any, n: Any, bp: Any, n2: Any, bp2: Any, centre: Any) -> Any:
    """Covariance of the smooth part of parameter i between points (n, bp) and (n2, bp2)."""
    return (
        SCALES[i].constant ** 2
        + scales[0] ** 2 * (n - centre[0])[:, None] * (n2 - centre[0])
        + scales[1] ** 2 * (bp - centre[1])[:, None] * (bp2 - centre[1])
        + scales[2] ** 2 * _alike(n, bp, n2, bp2)
    )


class Sweep:
    """One form of one fitted sweep, as NUTS sees it.

    Args:
        posterior: whose data, noise and prior are taken.
        centred: which coordinates to sample in; the posterior is the same.
    """

    def __init__(self, posterior: Posterior, *, centred: bool) -> None:
        data, self.noise = posterior.data, posterior.noise
        self.centred, drawn = centred, posterior.parts[0]
        self.prior, self.own = drawn.prior, drawn.form.own
        self.data = data
        self.n, self.bp = jnp.array(data.log2_n_J), jnp.array(data.log2_bp_J)
        self.middle = (self.n.mean(), self.bp.mean())
        self.medians = np.log([[s.line_n, s.line_bp, s.smooth, s.nugget] for s in SCALES])
        self.medians = self.medians[: self.own]
        scaling = scaling_of(self.noise.covariance, data.has_JK)
        self.whiten, self.log_det = jnp.array(scaling.whiten), jnp.array(scaling.log_det)
        # Bumps are sampled in units of their scale: few data say much about it.
        usual = drawn.parameters.copy()
        usual[:, -len(KNOTS) :] /= np.exp(drawn.log_scales[:, -1:])
        self.start = usual.mean(axis=0)
        self.usual = np.linalg.cholesky(np.cov(usual.T) + 1e-10 * np.eye(len(self.start)))
        self.shared_sd = jnp.array([self.prior.floor_sd, SHARED[0][1], SHARED[1][1]])

    def means(self) -> Any:
        """Prior means (own, J)."""
        return jnp.array(
            [
                self.prior.centre[i]
                + SCALES[i].mean_line_n * (self.n - self.middle[0])
                + SCALES[i].mean_line_bp * (self.bp - self.middle[1])
                for i in range(self.own)
            ]
        )

    def log_likelihoods(self, own: Any, shared: Any) -> Any:
        """Of the data under every setting of the noise, with its prior weight, (S,)."""
        x, y = jnp.array(self.data.x_JK), jnp.array(self.data.score_JK)
        left = jnp.where(jnp.array(self.data.has_JK), y - curve(own, shared, x), 0.0)
        scaled = jnp.einsum("sjkl,jl->sjk", self.whiten, left)
        return (
            jnp.log(jnp.array(self.noise.weight_S))
            - 0.5 * (scaled**2).sum(axis=(1, 2))
            - self.log_det
        )

    def model(self) -> None:
        """The joint density."""
        h = numpyro.sample("h", dist.Normal(0.0, 1.0).expand([self.own, 4]).to_event(2))
        log_bump = np.log(BUMP) + numpyro.sample("h_bump", dist.Normal(0.0, 1.0))
        log_scales = self.medians + h
        lower = [self._lower(i, jnp.exp(log_scales[i])) for i in range(self.own)]
        own, bend, u = self._centred(lower) if self.centred else self._not_centred(lower)
        shared = jnp.concatenate([bend, jnp.exp(log_bump) * u])
        numpyro.deterministic("own", own)
        numpyro.deterministic("shared", shared)
        numpyro.deterministic("log_scales", jnp.append(log_scales.ravel(), log_bump))
        each = numpyro.deterministic("each", self.log_likelihoods(own, shared))
        numpyro.factor("data", logsumexp(each))

    def _lower(self, i: int, scales: Any) -> Any:
        """Cholesky factor of the prior covariance of parameter i."""
        covariance = _smooth(i, scales, self.n, self.bp, self.n, self.bp, self.middle)
        return jnp.linalg.cholesky(covariance + scales[3] ** 2 * jnp.eye(len(self.n)))

    def bend_means(self) -> Any:
        """Prior means of what the curves share before the bumps, (3,)."""
        return jnp.array(self.prior.centre[self.own : self.own + BEND])

    def _not_centred(self, lower: list[Any]) -> tuple[Any, Any, Any]:
        """Parameters as the prior makes them: where data say little."""
        z = numpyro.sample("z", dist.Normal().expand([self.own, len(self.n)]).to_event(2))
        u = numpyro.sample("u", dist.Normal().expand([BEND + len(KNOTS)]).to_event(1))
        own = self.means() + jnp.stack([low @ row for low, row in zip(lower, z, strict=True)])
        return own, self.bend_means() + self.shared_sd * u[:BEND], u[BEND:]

    def _centred(self, lower: list[Any]) -> tuple[Any, Any, Any]:
        """Parameters themselves, in coordinates of their usual spread: where data say much."""
        J = len(self.n)
        free = dist.ImproperUniform(dist.constraints.real, (), (len(self.start),))
        p = jnp.array(self.start) + jnp.array(self.usual) @ numpyro.sample("w", free)
        own, shared = p[: self.own * J].reshape(self.own, J), p[self.own * J :]
        bend, u = shared[:BEND], shared[BEND:]
        log_p = dist.Normal(0.0, self.shared_sd).log_prob(bend - self.bend_means()).sum()
        numpyro.factor("shared prior", log_p + dist.Normal().log_prob(u).sum())
        for i, (low, left) in enumerate(zip(lower, own - self.means(), strict=True)):
            prior = dist.MultivariateNormal(0.0, scale_tril=low)
            numpyro.factor(f"prior {i}", prior.log_prob(left))
        return own, bend, u

    def _begin(self) -> dict[str, Any]:
        """The mean draw, expressed in what is sampled, at median scales."""
        begin = {"h": jnp.zeros((self.own, 4)), "h_bump": jnp.zeros(())}
        if self.centred:
            return {**begin, "w": jnp.zeros(len(self.start))}
        o = self.own * len(self.n)
        own = jnp.array(self.start[:o].reshape(self.own, -1)) - self.means()
        lower = [self._lower(i, jnp.exp(self.medians[i])) for i in range(self.own)]
        z = [jnp.linalg.solve(low, row) for low, row in zip(lower, own, strict=True)]
        bend = (jnp.array(self.start[o : o + BEND]) - self.bend_means()) / self.shared_sd
        u = jnp.concatenate([bend, jnp.array(self.start[o + BEND :])])
        return {**begin, "z": jnp.stack(z), "u": u}

    def sample(self, warmup: int, draws: int, seed: int) -> Full:
        """NUTS: `draws` of each of four chains, all kept."""
        kernel = NUTS(
            self.model,
            dense_mass=True,
            target_accept_prob=0.9,
            init_strategy=init_to_value(values=self._begin()),
        )
        chains = MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=draws,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )
        chains.run(jax.random.PRNGKey(seed), extra_fields=("diverging",))
        kept = chains.get_samples(group_by_chain=True)
        worst = max(
            float(np.max(_split_r_hat(np.asarray(kept[name]).reshape(CHAINS, draws, -1))))
            for name in ("own", "shared", "log_scales")
        )
        flat = {k: np.asarray(v).reshape(CHAINS * draws, *v.shape[2:]) for k, v in kept.items()}
        rng = np.random.default_rng(seed)
        each = flat["each"]
        setting = (each + rng.gumbel(size=each.shape)).argmax(axis=1)
        return Full(
            flat["own"],
            flat["shared"],
            flat["log_scales"],
            setting,
            worst,
            int(np.asarray(chains.get_extra_fields()["diverging"]).sum()),
        )

    def scores(self, full: Full, x_X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Scores (D, J, X): curve, and misfit given what the curve leaves of the data."""
        J = len(self.n)
        at = jnp.array(np.tile(x_X, (J, 1)))
        value = np.array(jax.jit(jax.vmap(lambda o, s: curve(o, s, at)))(full.own, full.shared))
        here = jnp.array(self.data.x_JK)
        seen = np.array(jax.jit(jax.vmap(lambda o, s: curve(o, s, here)))(full.own, full.shared))
        among = np.asarray(_matern(x_X[:, None] - x_X, MISFIT_LENGTH))
        for s in np.unique(full.setting):
            rows = np.flatnonzero(full.setting == s)
            variance = self.noise.misfit[s] ** 2
            for j in range(J):
                k = np.flatnonzero(self.data.has_JK[j])
                x = self.data.x_JK[j, k]
                total = self.noise.covariance[s, j][k][:, k]
                cross = variance * np.asarray(_matern(x_X[:, None] - x, MISFIT_LENGTH))
                gain = np.linalg.solve(total, cross.T).T
                left = self.data.score_JK[j, k] - seen[rows, j][:, k]
                rest = variance * among - gain @ cross.T
                value[rows, j] += left @ gain.T
                value[rows, j] += rng.multivariate_normal(
                    np.zeros(len(x_X)), rest, len(rows), method="eigh"
                )
        return np.clip(value, 0, 1)

    def smooth_scores(
        self,
        full: Full,
        score: np.ndarray,
        bp: float,
        log2_n_F: np.ndarray,
        x_X: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        """Scores (D, F, X) at any n: the smooth part, and what tested n have of their own near it.

        `score` (D, J, X) are those of the tested configurations in the same draws.
        """
        n, log2_bp = np.append(log2_n_F, self.n), np.full(len(log2_n_F), np.log2(bp))
        smooth = self._between(full, n, np.append(log2_bp, self.bp), x_X, seed)
        F = len(log2_n_F)
        share = _nearness(log2_n_F, log2_bp, np.asarray(self.n), np.asarray(self.bp))
        out = smooth[:, :F] + np.einsum("fj,djx->dfx", share, score - smooth[:, F:])
        return np.clip(out, 0, 1)

    def _between(
        self, full: Full, log2_n_F: np.ndarray, log2_bp_F: np.ndarray, x_X: np.ndarray, seed: int
    ) -> np.ndarray:
        """Curves (D, F, X) of the smooth part: draws of the process given its values."""
        rng, J, F = np.random.default_rng(seed), len(self.n), len(log2_n_F)
        places = (np.append(self.n, log2_n_F), np.append(self.bp, log2_bp_F))
        lines = [np.asarray(p - m) for p, m in zip(places, self.middle, strict=True)]
        like = np.asarray(_alike(*places, *places))
        own = np.empty((len(full.own), self.own, F))
        every = full.log_scales[:, :-1].reshape(-1, self.own, 4)
        for i in range(self.own):
            scales = np.exp(every[:, i])[..., None, None] ** 2
            whole = SCALES[i].constant ** 2 + scales[:, 2] * like
            whole = whole + scales[:, 0] * np.outer(lines[0], lines[0])
            whole += scales[:, 1] * np.outer(lines[1], lines[1])
            inside = whole[:, :J, :J] + scales[:, 3] * np.eye(J)
            gain = np.linalg.solve(inside, whole[:, :J, J:]).transpose(0, 2, 1)
            rest = whole[:, J:, J:] - gain @ whole[:, :J, J:] + 1e-8 * np.eye(F)
            mean = self.prior.centre[i] + SCALES[i].mean_line_n * lines[0]
            mean = mean + SCALES[i].mean_line_bp * lines[1]
            left = full.own[:, i] - mean[:J]
            luck = np.linalg.cholesky(rest) @ rng.standard_normal((len(rest), F, 1))
            own[:, i] = mean[J:] + (gain @ left[..., None] + luck)[..., 0]
        at = jnp.array(np.tile(x_X, (F, 1)))
        return np.asarray(jax.jit(jax.vmap(lambda o, s: curve(o, s, at)))(own, full.shared))


def _split_r_hat(chains: np.ndarray) -> np.ndarray:
    """Split R-hat of (chains, draws, quantities); 1 where a quantity does not vary."""
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    vary = parts.std(axis=(0, 1)) > 0
    out = np.ones(chains.shape[2])
    out[vary] = gelman_rubin(parts[:, :, vary])
    return out
