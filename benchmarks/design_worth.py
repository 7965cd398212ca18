"""Is the worth of a sweep, as `design` predicts it, what planted worlds then show?

Each case draws a question (budget, share, prior), one of the sweeps that `design` considers for
it, predicts what plans after it lose, then trains that sweep eight times in planted worlds that
were not drawn from the prior, plans with it as `plan` does and judges the plans by the worlds'
truth. Two priors: the shipped sweeps (eight worlds), and an older, smaller sweep of the same world
(eight sweeps of it). What a design truly loses is the mean of its eight: one sweep's luck is not
foretold.

Run: python benchmarks/design_worth.py CASES.jsonl [--cases 200] [--seconds 540]
Cases that the file holds already stay; the summary is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.design import Limits, Worlds, shipped_worlds, worlds_of
from isocompute.design.candidates import candidates
from isocompute.design.choose import Judge
from isocompute.design.judge import Loss, allowed, best_guess
from isocompute.domain import Curve
from isocompute.errors import InputError, RefusalError
from isocompute.model import fit_posterior
from isocompute.testing.families import of_surface
from isocompute.testing.forms import FORMS, Surface
from isocompute.testing.planted import NOISE
from isocompute.testing.truth import World

N = (8, 16, 32, 64, 128, 256, 512)
WORLDS = 40  # simulated sweeps behind each prediction, as `design` has them
DRAWS = 200  # of the fit that plans in the planted world
OLDER = 30.0  # the budget is so many times that of a run of the older sweep
EACH = 24  # planted sweeps that one prediction is held against
SHIPPED = 120  # worlds of the shipped prior, shared by all cases of one difficulty


def planted(rng: np.random.Generator, b_p: int) -> World:
    """A world whose curves and order of n have nothing to do with the shipped sweeps."""
    surface = Surface(
        shape=str(rng.choice(sorted(FORMS))),
        floor=float(rng.uniform(0.03, 0.5)),
        rise=(
            float(rng.uniform(0.12, 0.35)),
            float(rng.normal(0.012, 0.012)),
            -float(rng.uniform(0.0, 0.005)),
        ),
        slope=float(rng.uniform(1.2, 3.0)),
        midpoint=float(rng.normal(5.6, 0.5)),
        per_octave=float(rng.normal(0.08, 0.05)),
        problems_per_batch=b_p,
    )
    return of_surface("planted", surface, N)


def case(index: int, shipped: dict[str | None, Worlds]) -> list[dict[str, Any]]:
    """One question, its prediction and what came of it in each world; empty: no sweep fits."""
    rng = np.random.default_rng((17, index))
    budget = float(10 ** rng.uniform(6.0, 8.0))
    spend = float(10 ** rng.uniform(np.log10(0.05), np.log10(0.5)))
    noise = NOISE[str(rng.choice(sorted(NOISE)))]
    own = index % 3 > 0
    truths = [planted(rng, 32)] * EACH if own else [planted(rng, 32) for _ in range(EACH)]
    if own:
        curves = truths[0].until(budget / OLDER).sample(noise, 1, rng)
        curves = [c for c in curves if c.rollouts_K[-1] >= 20 * c.configuration.batch_size]
        if len(curves) < 3:
            return []
        try:
            worlds = worlds_of(curves, "older", WORLDS, index)
        except RefusalError:  # runs so short that none has learnt are no prior
            return []
    else:
        every = shipped[(None, "easy", "hard")[(index // 3) % 3]]
        worlds = every.take(rng.permutation(len(every))[:WORLDS])
    limits = Limits(budget=budget, spend=spend, n_F=worlds.n_F)
    left = limits.budget * (1 - limits.spend)
    among = allowed(worlds, 32, left, None)
    if not among:
        return []
    try:
        guess = worlds.n_F[best_guess(worlds, left, among)]
        every_sweep = candidates(limits, 32, guess, fixed=True)
    except InputError:
        return []
    sweep = every_sweep[int(rng.integers(len(every_sweep)))]
    judge = Judge(worlds, limits, 32, index)
    predicted = Loss.of(judge.lost(sweep, slice(0, WORLDS)).total_W)
    none_W, none_n = judge.without(slice(0, WORLDS))
    final, rows = limits.left(sweep), []
    for world in truths:
        arms = [a for a in world.arms if a.rollouts_per_problem in sweep.rollouts_per_problem]
        run = World(
            name="sweep", arms=tuple(arms), max_rollouts=float(sweep.rollouts_per_run),
            first=sweep.first_evaluation,
        )  # fmt: skip
        n = _planned(run.sample(noise, sweep.seeds, rng), final)
        truth = world.until(budget).truth(noise)
        free = [f for f, of in enumerate(N) if of in worlds.n_F and budget >= 20 * 32 * of]
        best = truth.score([budget])[free, 0].max()
        rows.append({
            "case": index, "prior": "older" if own else "shipped", "budget": budget,
            "spend": spend, "n": list(sweep.rollouts_per_problem), "seeds": sweep.seeds,
            "shape": world.surface and world.surface.shape, "chosen": n,
            "predicted": predicted.loss, "standard_error": predicted.standard_error,
            "lost": float(best - truth.score([final])[N.index(n), 0]),
            "predicted_without": float(none_W.mean()),
            "lost_without": float(best - truth.score([budget])[N.index(none_n), 0]),
        })  # fmt: skip
    return rows


def _planned(curves: list[Curve], final: float) -> int:
    posterior = fit_posterior(curves, draws=DRAWS)
    mean_J = posterior.scores(np.log10([final]))[:, :, 0].mean(axis=0)
    return posterior.configurations[int(mean_J.argmax())].rollouts_per_problem


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(v)).astype(float) for v in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """One line per prior, and one for all."""
    lines = ["prior   designs  predicted  lost           ratio  rank   without: predicted  lost"]
    for prior in ("shipped", "older", "all"):
        kept = [r for r in rows if prior in (r["prior"], "all")]
        if len(kept) < 3:
            continue
        designs = sorted({r["case"] for r in kept})
        said, lost, none, lost_none = (
            np.array([np.mean([r[k] for r in kept if r["case"] == d]) for d in designs])
            for k in ("predicted", "lost", "predicted_without", "lost_without")
        )
        found, found_none = (f"{v.mean():.4f} +- {v.std(ddof=1) / len(v) ** 0.5:.4f}"
                             for v in (lost, lost_none))  # fmt: skip
        lines.append(
            f"{prior:<8} {len(designs):>6}  {said.mean():.4f}    {found} "
            f"{said.mean() / lost.mean():.2f}   {rank_correlation(said, lost):.2f}   "
            f"{none.mean():.4f} {found_none}"
        )
    return lines


def main() -> None:
    """Cases that are missing, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=540.0)
    options = parser.parse_args()
    began = time.monotonic()
    lines = options.file.read_text().splitlines() if options.file.is_file() else []
    rows = [json.loads(line) for line in lines]
    done = {r["case"] for r in rows}
    shipped = {d: shipped_worlds(d, SHIPPED, 0) for d in (None, "easy", "hard")}
    kept = len({r["case"] for r in rows if "predicted" in r})
    index = 0
    while kept < options.cases and time.monotonic() - began < options.seconds:
        if index not in done:
            found = case(index, shipped)
            rows += found
            kept += bool(found)
            with options.file.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found or [{"case": index}])
        index += 1
    print("\n".join(summary([r for r in rows if "predicted" in r])))


if __name__ == "__main__":
    main()
