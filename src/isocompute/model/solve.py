"""Posterior modes of many problems at once: batched Gauss-Newton on whitened residuals.

Curves and residuals are in single precision, twice as fast and far finer than any noise; priors and
what is solved are in double precision.

Shape legend: B problems (hypotheses or draws), J configurations, K positions, P parameters,
C = own + shared parameters that one configuration's curve depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from isocompute.model.form import FloatArray, Form, IntArray
from isocompute.model.prior import Blocks

LONGEST_STEP = 1.0  # of any parameter: all live on scales of about one
CONVERGED = 3e-3  # longest step of a problem that is done, far below any posterior spread
STUCK = 1e3  # damping at which a problem has nowhere better to go
# Numbers in all matrices that are worked on at once: such memory is used again instead of being
# asked for anew. A quarter takes up to a tenth longer, four times as many a tenth.
AT_ONCE = 2**19


def batches(problems: int, parameters: int) -> Iterator[slice]:
    """Stretches of problems whose matrices are worked on at once."""
    size = max(AT_ONCE // parameters**2, 1)
    return (slice(low, low + size) for low in range(0, problems, size))


class Mode(NamedTuple):
    """Where each problem ended."""

    parameters: FloatArray  # (B, P)
    loss: FloatArray  # (B,) residuals and prior, summed squares


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Curves and what weighs their residuals."""

    form: Form  # of the curves
    x_JK: FloatArray  # positions
    whiten: FloatArray  # (G, J, K, K) inverse Cholesky factors of the noise; zero without data
    group_B: IntArray  # which of them each problem uses, ascending

    def grouped(self, group_B: IntArray) -> Problem:
        """Other problems of the same curves."""
        return replace(self, group_B=group_B)

    def split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(own, J, B) and (shared, B) out of (B, P)."""
        B, own, J = len(parameters), self.form.own, len(self.x_JK)
        columns = np.ascontiguousarray(parameters.T, dtype=np.float32)
        return columns[: own * J].reshape(own, J, B), columns[own * J :]

    def whitened(self, values: FloatArray, *, back: bool = False) -> FloatArray:
        """Whitened (J, K, C, B) values, by each problem's factors or (back) their transposes."""
        J, K = values.shape[:2]
        out = np.empty(values.shape, values.dtype)
        for group, of in self.groups():
            part = np.ascontiguousarray(values[..., of])
            factor = self.whiten[group]
            product = (factor.transpose(0, 2, 1) if back else factor) @ part.reshape(J, K, -1)
            out[..., of] = product.reshape(part.shape)
        return out

    def groups(self) -> Iterator[tuple[int, slice]]:
        """Each group of problems, and where they stand."""
        edges = np.flatnonzero(np.diff(self.group_B, prepend=-1, append=-1))
        return (
            (int(self.group_B[low]), slice(int(low), int(high))) for low, high in pairwise(edges)
        )


def solve_modes(
    problem: Problem,
    start_BP: FloatArray,
    score_BJK: FloatArray,
    mean_BP: FloatArray,
    precision: Blocks,
    *,
    iterations: int,
) -> Mode:
    """Minimise |whitened residuals|^2 + (p - mean)' precision (p - mean), damped.

    Args:
        problem: curves and noise.
        start_BP: first parameters.
        score_BJK: what is fitted (perturbed data, for a draw), (B or 1, J, K).
        mean_BP: prior means.
        precision: of the priors, of B problems.
        iterations: at most.
    """
    parts = list(batches(*start_BP.shape))
    if len(parts) > 1:
        found = [
            solve_modes(
                problem.grouped(problem.group_B[part]),
                start_BP[part],
                score_BJK if len(score_BJK) == 1 else score_BJK[part],
                mean_BP[part],
                precision.take(part),
                iterations=iterations,
            )
            for part in parts
        ]
        return Mode(*(np.concatenate(each) for each in zip(*found, strict=True)))
    p = np.array(start_BP)
    damping = np.full(len(p), 1e-3)
    products = products_at(problem, p, score_BJK)
    loss = _loss(products, mean_BP - p, precision)
    going = np.arange(len(p))
    room = np.zeros((len(p), *2 * p.shape[1:]))
    for _ in range(iterations):
        prior, apart = precision.take(going), (mean_BP - p)[going]
        hessian = assembled(problem.form.own, products[going], prior, room)
        down = _downhill(problem.form.own, products[going], apart, prior)
        diagonal = np.einsum("bpp->bp", hessian)  # a view
        diagonal += damping[going, None] * diagonal
        step = np.linalg.solve(hessian, down[:, :, None])[:, :, 0]
        length = np.abs(step).max(axis=1)
        step *= np.minimum(1.0, LONGEST_STEP / np.maximum(length, 1e-12))[:, None]
        trial = p[going] + step
        score = score_BJK if len(score_BJK) == 1 else score_BJK[going]
        new = products_at(problem.grouped(problem.group_B[going]), trial, score)
        new_loss = _loss(new, mean_BP[going] - trial, prior)
        better = new_loss < loss[going]
        took = going[better]
        p[took], loss[took], products[took] = trial[better], new_loss[better], new[better]
        damping[going] *= np.where(better, 0.2, 8.0)
        going = going[(length > CONVERGED) & (damping[going] < STUCK)]
        if not len(going):
            break
    return Mode(p, loss)


def products_at(problem: Problem, p: FloatArray, score_BJK: FloatArray) -> FloatArray:
    """What whitened derivatives and residuals make with each other, (B, J, C + 1, C + 1)."""
    own, shared = problem.split(p)
    value, jacobian = problem.form.value_and_jacobian(own, shared, problem.x_JK)
    left = (score_BJK.transpose(1, 2, 0) - value).astype(jacobian.dtype)
    J, K, C, B = jacobian.shape
    out = np.empty((B, J, C + 1, C + 1))
    for group, of in problem.groups():
        both = np.empty((J, K, C + 1, of.stop - of.start), jacobian.dtype)
        both[:, :, :C], both[:, :, C] = jacobian[..., of], left[..., of]
        white = problem.whiten[group] @ both.reshape(J, K, -1)
        # (., J, C + 1, K), in double precision: a product of rounded ones need not be positive.
        columns = np.ascontiguousarray(white.reshape(both.shape).transpose(3, 0, 2, 1), np.float64)
        np.matmul(columns, columns.transpose(0, 1, 3, 2), out=out[of])
    return out


def _loss(products: FloatArray, apart: FloatArray, precision: Blocks) -> FloatArray:
    """Squares of residuals and of what lies apart from the prior's mean, (B,)."""
    prior = (apart * precision.times(apart)).sum(axis=1)
    return np.asarray(products[:, :, -1, -1].sum(axis=1) + prior)


def assembled(
    n_own: int, products: FloatArray, precision: Blocks, room: FloatArray | None = None
) -> FloatArray:
    """Gauss-Newton matrices (B, P, P) of `products_at`.

    They lie in `room`: zeros, or earlier ones, as all that is not zero is written anew.
    """
    B, J, C = products.shape[:3]
    C, o = C - 1, n_own * J
    P = o + C - n_own
    hessian = np.zeros((B, P, P)) if room is None else room[:B]
    # Own parameters of one configuration meet each other: the diagonals of all blocks (J, J).
    b, p, q = hessian.strides
    own = as_strided(hessian, (B, n_own, n_own, J), (b, J * p, J * q, p + q))
    if room is not None:
        own[:] = 0.0
    for i in range(n_own):
        hessian[:, i * J : (i + 1) * J, i * J : (i + 1) * J] = precision.own[:, i]
    own += products[:, :, :n_own, :n_own].transpose(0, 2, 3, 1)
    cross = products[:, :, :n_own, n_own:C].transpose(0, 2, 1, 3).reshape(B, o, C - n_own)
    hessian[:, :o, o:] = cross
    hessian[:, o:, :o] = cross.transpose(0, 2, 1)
    hessian[:, o:, o:] = products[:, :, n_own:C, n_own:C].sum(axis=1)
    np.einsum("bpp->bp", hessian)[:, o:] += precision.shared
    return hessian


def _downhill(
    n_own: int, products: FloatArray, apart: FloatArray, precision: Blocks
) -> FloatArray:
    """Downhill direction (half gradients) of `products_at`, (B, P)."""
    B, J, C = products.shape[:3]
    C, o = C - 1, n_own * J
    down = precision.times(apart)
    down[:, :o] += products[:, :, :n_own, C].transpose(0, 2, 1).reshape(B, o)
    down[:, o:] += products[:, :, n_own:C, C].sum(axis=1)
    return down


def gauss_newton(problem: Problem, p: FloatArray, precision: Blocks) -> FloatArray:
    """Gauss-Newton matrices (B, P, P) at given parameters; the scores do not matter to them."""
    products = products_at(problem, p, np.zeros((1, *problem.x_JK.shape)))
    return assembled(problem.form.own, products, precision)


def linear_evidence(
    form: Form,
    x_JK: FloatArray,
    has_JK: NDArray[np.bool_],
    score_JK: FloatArray,
    p: FloatArray,
    mean_P: FloatArray,
    precision: Blocks,
    covariance: FloatArray,
) -> FloatArray:
    """Log evidence (S,) with curves made linear at p (P,), up to what all have in common.

    Args:
        form, x_JK, has_JK, score_JK: curves and data.
        p: where the curves are made linear.
        mean_P, precision: of the prior; precision of one row.
        covariance: (S, J, K, K) of the noise.
    """
    J = len(x_JK)
    own, shared = p[: form.own * J].reshape(form.own, J, 1), p[form.own * J :, None]
    value, jacobian = form.value_and_jacobian(own, shared, x_JK)
    left = (score_JK - value[:, :, 0])[:, :, None]
    both = np.concatenate([jacobian[..., 0], left], axis=2) * has_JK[:, :, None]
    every = np.broadcast_to(both, (len(covariance), *both.shape))
    products = both.transpose(0, 2, 1) @ np.linalg.solve(covariance, every)
    apart = np.broadcast_to(mean_P - p, (len(covariance), len(p)))
    hessian = assembled(form.own, products, precision)
    down = _downhill(form.own, products, apart, precision)
    loss = _loss(products, apart, precision)
    gain = np.linalg.solve(hessian, down[:, :, None])[:, :, 0]
    lower = _lower(covariance)
    out: FloatArray = (
        -0.5 * (loss - (gain * down).sum(axis=1))
        - 0.5 * np.linalg.slogdet(hessian)[1]
        - np.log(np.diagonal(lower, axis1=2, axis2=3)).sum(axis=(1, 2))
    )
    return out


def _lower(covariance: FloatArray) -> FloatArray:
    """Cholesky factors (S, J, K, K); infinite, so without evidence, where rounding leaves none.

    Noise that lasts, far beyond what the scores show, hides the grain of each evaluation.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(covariance) > 1:
            return np.concatenate([_lower(one[None]) for one in covariance])
        return np.full_like(covariance, np.inf)


def slope(
    problem: Problem,
    p: FloatArray,
    score_JK: FloatArray,
    mean_P: FloatArray,
    precision: Blocks,
) -> tuple[FloatArray, FloatArray]:
    """Loss (B,) and downhill direction (B, P; half gradients) without the Gauss-Newton matrix."""
    own, shared = problem.split(p)
    value, jacobian = problem.form.value_and_jacobian(own, shared, problem.x_JK)
    left = score_JK[:, :, None] - value
    scaled = problem.whitened(left[:, :, None])
    weighed = problem.whitened(scaled, back=True)[:, :, 0]
    each = np.einsum("jkcb,jkb->cjb", jacobian, weighed)
    apart = mean_P - p
    pull = precision.times(apart)
    n_own = problem.form.own
    of_own = each[:n_own].reshape(-1, len(p))
    down = pull + np.concatenate([of_own, each[n_own:].sum(axis=1)]).T
    loss = (scaled**2).sum(axis=(0, 1, 2)) + (apart * pull).sum(axis=1)
    return loss, down
