"""The draws of `isocompute.model` beside NUTS of the same posterior, on sweeps of many kinds.

    python benchmarks/against_nuts.py [--keep FOLDER] [--draws 2000] [NAME ...]

prints one line per sweep, each figure as largest (median) over configurations and budgets: how far
mean scores lie from those of NUTS, in its standard deviations; how far spreads differ, as a share;
errors of P(best); the first two of log2 of the best n, its spread where the middle half of it spans
a quarter of an octave (else it hangs on a handful of draws); largest split R-hat, divergent steps,
seconds of CPU of a fit with 400 draws, and of NUTS. Scores are asked for at four budgets inside the
sweep and at four times it. Needs the extra [nuts]. --keep stores what NUTS found and takes it up.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
from nuts_model import Full, Sweep

import isocompute.model.fit as fitted
from isocompute.domain import Curve
from isocompute.model import Posterior, fit_posterior
from isocompute.sources import load_curves
from isocompute.testing.planted import NOISE, WORLDS

WARMUP, DRAWS = 500, 1000  # of each of four chains
OURS = 2000  # draws, so that their own luck is small beside what is looked for
LEAST_SPREAD = 0.25  # octaves that the middle half of NUTS's best n spans


def planted(name: str, until: float, seeds: int, only: Sequence[int] = (), bp: Sequence[int] = (),
            seed: int = 0) -> list[Curve]:  # fmt: skip
    """A planted sweep at middle noise, with some of its n and B_p."""
    world = WORLDS[name].until(until)
    arms = tuple(
        a for a in world.arms
        if (not only or a.rollouts_per_problem in only) and (not bp or a.problems_per_batch in bp)
    )  # fmt: skip
    return replace(world, arms=arms).sample(NOISE["middle"], seeds, np.random.default_rng(seed))


def published(panel: str) -> list[Curve]:
    """A published panel up to half of its budget."""
    curves = load_curves(f"published:{panel}")
    half = 0.5 * max(float(c.rollouts_K.max()) for c in curves)
    cut = []
    for c in curves:
        k = c.rollouts_K <= half
        cut.append(
            c.replace(
                rollouts_K=c.rollouts_K[k],
                score_K=c.score_K[k],
                steps_K=None if c.steps_K is None else c.steps_K[k],
                tokens_K=None if c.tokens_K is None else c.tokens_K[k],
            )
        )
    return cut


class Case(NamedTuple):
    """A sweep, whether its curves decline (one form at a time), coordinates for NUTS."""

    what: str
    curves: Callable[[], list[Curve]]
    centred: bool = True
    declines: bool = False


# The last two took no part in choosing how far draws walk.
CASES = {
    "three seeds": Case("rising, 7 n, 3 seeds", lambda: planted("rising", 2.0**21, 3)),
    "one seed": Case("rising, 7 n, 1 seed", lambda: planted("rising", 2.0**21, 1)),
    "three n": Case(
        "3 n, 2 seeds, 8 octaves of C",
        lambda: planted("late_winner", 2.0**20, 2),
        centred=False,
    ),
    "two batches": Case(
        "2 B_p, 4 n each, 2 seeds",
        lambda: planted("joint_capped", 2.0**21, 2, only=(8, 32, 64, 128), bp=(16, 64)),
    ),
    "published": Case("published Easy panel, first half", lambda: published("qwen2.5-7b-easy")),
    "before the midpoint": Case(
        "4 n, 2 seeds, ends before the midpoint",
        lambda: planted("rising", 2.0**16, 2, only=(8, 16, 32, 64)),
        centred=False,
    ),
    "one n": Case("1 n, 1 run", lambda: planted("rising", 2.0**21, 1, only=(64,)), centred=False),
    "declines": Case(
        "overfit, 7 n, 3 seeds, falling form",
        lambda: planted("overfit", 2.0**22, 3),
        declines=True,
    ),
    "another panel": Case("published Hard panel, first half", lambda: published("qwen2.5-7b-hard")),
    "another family": Case(
        "gompertz, 7 n, 2 seeds", lambda: planted("gompertz", 2.0**21, 2, seed=5)
    ),
}


class Compared(NamedTuple):
    """Differences from NUTS: of scores, of P(best), of log2 of the best n."""

    shift: np.ndarray  # (J, X) of the mean, in NUTS's standard deviations
    spread: np.ndarray  # (J, X) ratio of standard deviations
    best: np.ndarray  # (J, X) difference of P(best)
    n_shift: np.ndarray  # (X,)
    n_spread: np.ndarray  # (X,)

    def line(self) -> str:
        """Largest (typical) figures; typical is the median of absolute values."""

        def pair(values: np.ndarray) -> str:
            values = np.abs(values[np.isfinite(values)])
            return f"{values.max():.2f} ({np.median(values):.2f})" if values.size else "-"

        return " | ".join(
            pair(v)
            for v in (self.shift, self.spread - 1, self.best, self.n_shift, self.n_spread - 1)
        )


def fit(case: Case, *, draws: int, seed: int = 0, **fixed: Any) -> Posterior:
    """The package's draws of one form alone, every budget scored as it is (`select="final"`).

    `fixed` replaces names of the package's module.
    """
    share = 1.0 - 2.0**-53 if case.declines else 0.0  # odds of 1 have no number
    with patch.multiple(fitted, DECLINE=share, **fixed):
        posterior = fit_posterior(case.curves(), select="final", draws=draws, seed=seed)
    assert [part.form.declines for part in posterior.parts] == [case.declines]
    return posterior


def budgets(posterior: Posterior) -> np.ndarray:
    """Four budgets inside the sweep, and four times its largest."""
    first = posterior.first_J[np.isfinite(posterior.first_J)]
    low, high = float(first.min()), float(posterior.last_J.max())
    return np.append(np.linspace(low + 0.25 * (high - low), high, 4), high + np.log10(4))


def best_log2_n(smooth: np.ndarray, log2_n: np.ndarray) -> np.ndarray:
    """log2 of the best n in every draw, (D, X)."""
    return log2_n[smooth.argmax(axis=1)]


def octaves(posterior: Posterior) -> tuple[float, np.ndarray]:
    """A B_p (that of most n) and its n, every eighth of an octave."""
    bp = np.array([c.problems_per_batch for c in posterior.configurations])
    values, counts = np.unique(bp, return_counts=True)
    most = values[counts.argmax()]
    log2_n = posterior.data.log2_n_J[bp == most]
    return float(most), np.arange(log2_n.min(), log2_n.max() + 0.01, 0.125)


class Functionals(NamedTuple):
    """What is compared."""

    score: np.ndarray  # (D, J, X)
    log2_n: np.ndarray  # (D, X)

    def best(self) -> np.ndarray:
        """P(best), (J, X)."""
        first = self.score.argmax(axis=1)
        return np.array([(first == j).mean(axis=0) for j in range(self.score.shape[1])])

    def against(self, full: Functionals) -> Compared:
        """Differences from the full sampling's."""
        middle = np.ptp(np.quantile(full.log2_n, (0.25, 0.75), axis=0), axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            sd, n_sd = full.score.std(axis=0), full.log2_n.std(axis=0)
            return Compared(
                (self.score.mean(axis=0) - full.score.mean(axis=0)) / sd,
                self.score.std(axis=0) / sd,
                self.best() - full.best(),
                (self.log2_n.mean(axis=0) - full.log2_n.mean(axis=0)) / n_sd,
                np.where(middle < LEAST_SPREAD, np.nan, self.log2_n.std(axis=0) / n_sd),
            )


def ours(posterior: Posterior) -> Functionals:
    """Functionals of the package's draws."""
    x, (bp, log2_n) = budgets(posterior), octaves(posterior)
    smooth = posterior.smooth_scores(bp, log2_n, x)
    return Functionals(posterior.scores(x), best_log2_n(smooth, log2_n))


def theirs(posterior: Posterior, sweep: Sweep, full: Full) -> Functionals:
    """Functionals of the full sampling's draws."""
    x, (bp, log2_n) = budgets(posterior), octaves(posterior)
    scores = sweep.scores(full, x, np.random.default_rng(0))
    smooth = sweep.smooth_scores(full, scores, bp, log2_n, x, 0)
    return Functionals(scores, best_log2_n(smooth, log2_n))


def sampled(name: str, posterior: Posterior, keep: Path | None) -> tuple[Sweep, Full, float]:
    """NUTS of a sweep, taken up where it was kept; with its seconds."""
    sweep = Sweep(posterior, centred=CASES[name].centred)
    path = keep / f"{name.replace(' ', '_')}.npz" if keep else None
    if path and path.exists():
        with np.load(path) as kept:
            if np.array_equal(kept["sizes"], posterior.noise.sizes):
                full = Full(**{k: kept[k] for k in Full._fields})
                return sweep, full, float(kept["wall_s"])
    began = time.perf_counter()
    full = sweep.sample(WARMUP, DRAWS, 0)
    wall_s = time.perf_counter() - began
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, sizes=posterior.noise.sizes, wall_s=wall_s, **full._asdict())
    return sweep, full, wall_s


HEAD = """| sweep | mean score, sd | spread of score | P(best) | mean log2 n*, sd | its spread | \
R-hat | divergent | ours, CPU s | NUTS, s |
|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--draws", type=int, default=OURS)
    chosen = parser.parse_args()
    print(HEAD)
    for name in chosen.names or CASES:
        case = CASES[name]
        began = time.process_time()
        fit(case, draws=400)
        cpu_s = time.process_time() - began
        posterior = fit(case, draws=chosen.draws)
        sweep, full, wall_s = sampled(name, posterior, chosen.keep)
        compared = ours(posterior).against(theirs(posterior, sweep, full))
        print(
            f"| {case.what} | {compared.line()} | {float(full.r_hat):.3f} | "
            f"{int(full.divergences)} | {cpu_s:.2f} | {wall_s:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
