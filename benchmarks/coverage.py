"""Coverage, false rises, power and regret of the law on planted worlds, every cell printed.

One command: `python benchmarks/coverage.py --sweeps 200 -o docs/coverage-table.md`. Definitions are
those of docs/coverage.md. A sweep's seed is the cell's seed plus its index; nothing is tuned here.

Every interval is checked at 90% and 95%. One-seed cells are conditional on the runs' curves and
labelled so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.errors import RefusalError
from isocompute.frontier import Frontier, fit_frontier
from isocompute.laws.estimate import LawEstimate, confidence_set, estimate_law
from isocompute.laws.outlook import expected_scores
from isocompute.testing.planted import NOISE, NULL_WORLDS, WORLDS, Noise, Truth, World

LEVELS = (0.90, 0.95)
BUDGETS = 9  # inside the common support at which n*(C) is checked
HALF_DECADE = 0.5
COVERAGE_WORLDS = (
    "rising", "late_winner", "three_octaves", "falling", "overfit", "collapse", "unequal_seeds",
    "capped", "joint_capped", "gompertz",
)  # fmt: skip


@dataclass
class Cell:
    """Tallies of one cell: name -> list of outcomes, one per check."""

    tally: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: int = 0
    seconds: float = 0.0

    def mean(self, name: str) -> float:
        """Mean of the outcomes under a name; NaN where there is none."""
        values = self.tally.get(name)
        return float(np.mean(values)) if values else float("nan")


def pipeline(
    world: World, noise: Noise, seeds: int, seed: int, draws: int
) -> tuple[CurveFits, Frontier, LawEstimate]:
    curves = world.sample(noise, seeds, np.random.default_rng(seed))
    fits = fit_curves(curves, draws=draws, seed=seed, unseen_seed_sd=0.0)
    frontier = fit_frontier(fits, level=LEVELS[0])
    law = estimate_law(frontier, fits.rollouts_per_problem_J, variable="rollouts")
    return fits, frontier, law


def check_law(cell: Cell, truth: Truth, fits: CurveFits, fr: Frontier, law: LawEstimate) -> None:
    low, high = fr.support
    target = truth.law(low, high)
    budgets = np.geomspace(low, high, BUDGETS)
    n_J = fits.rollouts_per_problem_J
    for c, good in zip(budgets, truth.good(budgets), strict=True):
        n = float(target.predict(c))
        where = int(np.abs(fr.x_V - np.log10(c)).argmin())
        for level in LEVELS:
            lo, hi = law.interval(float(c), level) or (np.nan, np.nan)
            cell.tally[f"law {level:.2f}"].append(lo * (1 - 1e-6) <= n <= hi * (1 + 1e-6))
            chosen = confidence_set(fr.probability_JV[:, where], n_J, level)
            cell.tally[f"set {level:.2f}"].append(bool(good & set(chosen)))
            cell.tally[f"size {level:.2f}"].append(len(chosen))
        cell.tally["law error"].append(abs(np.log2(law.predict(float(c)) / n)))


def check_curves(cell: Cell, truth: Truth, fits: CurveFits) -> None:
    last = np.log10(truth.world.max_rollouts)
    arms = {(a.problems_per_batch, a.rollouts_per_problem): a for a in truth.arms}
    for j, one in enumerate(fits.binned):
        arm = arms[one.problems_per_batch, one.rollouts_per_problem]
        if arm.shape != "logistic" or arm.falls_from or arm.midpoint > last - HALF_DECADE:
            continue  # no true ceiling of the fitted form, or not required
        for level in LEVELS:
            lo, hi = fits.ceiling_interval(j, level)
            cell.tally[f"bounded {level:.2f}"].append(hi is not None)
            if hi is not None and lo is not None:
                cell.tally[f"ceiling {level:.2f}"].append(lo <= arm.ceiling <= hi)


def check_crossovers(cell: Cell, truth: Truth, fits: CurveFits, fr: Frontier) -> None:
    low, high = fr.support
    true = {(c.before, c.after): c.at for c in truth.crossovers(low, high)}
    for level in LEVELS:
        at_level = fr if level == LEVELS[0] else fit_frontier(fits, level=level)
        found = {(c.before, c.after): c for c in at_level.crossovers}
        for pair, c in found.items():
            score = truth.score(np.geomspace(low, high, 400))
            lead = score[pair[1]] - score[pair[0]]
            flips = np.flatnonzero(np.diff(np.sign(lead)))
            if len(flips) == 1 and lead[-1] > 0:
                at = np.geomspace(low, high, 400)[flips[0]]
                lo, hi = c.interval
                cell.tally[f"crossover {level:.2f}"].append((lo or 0.0) <= at <= (hi or np.inf))
        if level == LEVELS[0]:
            cell.tally["true crossovers"].append(len(true))
            cell.tally["crossovers detected"].append(len(found))


def run_cell(world: World, noise: Noise, seeds: int, sweeps: int, draws: int, base: int) -> Cell:
    if seeds == 1:  # conditional on these runs: their curves are the truth
        noise = replace(noise, ceiling_sd=0.0, midpoint_sd=0.0)
    cell, truth = Cell(), world.truth(noise)
    start = time.process_time()
    for i in range(sweeps):
        try:
            fits, fr, law = pipeline(world, noise, seeds, base + i, draws)
        except RefusalError:
            cell.refused += 1
            continue
        check_law(cell, truth, fits, fr, law)
        check_curves(cell, truth, fits)
        check_crossovers(cell, truth, fits, fr)
        cell.tally["rise claimed"].append(law.claimed)
    cell.seconds = time.process_time() - start
    return cell


def regret_cell(world: World, noise: Noise, seeds: int, sweeps: int, draws: int, base: int) -> Cell:
    """Score lost by choosing n from the law, at 1, 4 and 10 times the largest sweep budget."""
    cell, truth = Cell(), world.truth(noise)
    n_J = truth.rollouts_per_problem_J
    start = time.process_time()
    for i in range(sweeps):
        try:
            fits, fr, law = pipeline(world, noise, seeds, base + i, draws)
        except RefusalError:
            cell.refused += 1
            continue
        top = fr.support[1]
        inside = np.flatnonzero(fr.supported_V)
        best_of_sweep = int(n_J[int(fr.best_V[inside[-1]])])
        raw = {
            (c.problems_per_batch, c.rollouts_per_problem): float(c.score_K[-1])
            for c in world.sample(noise, seeds, np.random.default_rng(base + i))
        }
        best_score = max(raw, key=lambda key: raw[key])[1]
        for factor in (1, 4, 10):
            score = truth.score(top * factor)[:, 0]
            law_n = law.predict(top * factor)
            allowed = sorted(set(n_J.tolist()))
            by_law = max([n for n in allowed if n <= law_n * (1 + 1e-9)], default=allowed[0])
            expected = expected_scores(fits, top * factor)
            by_curves = max(expected, key=lambda key: expected[key])[1]
            for name, n in (
                ("law", by_law),
                ("fitted curves", by_curves),
                ("best n of the sweep", best_of_sweep),
                ("best score", best_score),
            ):  # fmt: skip
                cell.tally[f"{name} {factor}x"].append(float(score.max() - score[n_J == n].max()))
    cell.seconds = time.process_time() - start
    return cell


def percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def coverage_row(name: str, noise: str, seeds: int, cell: Cell, sweeps: int) -> str:
    label = f"{seeds}" + (" (conditional)" if seeds == 1 else "")
    numbers = [percent(cell.mean(f"{w} {level:.2f}")) for w in ("law", "set") for level in LEVELS]
    numbers += [f"{cell.mean(f'size {level:.2f}'):.1f}" for level in LEVELS]
    numbers += [
        percent(cell.mean(f"{w} {level:.2f}"))
        for w in ("ceiling", "bounded", "crossover")
        for level in LEVELS
    ]
    found, true = cell.mean("crossovers detected"), cell.mean("true crossovers")
    numbers += [f"{found:.1f} of {true:.1f}", f"{cell.mean('law error'):.2f}"]
    numbers += [percent(cell.mean("rise claimed")), str(cell.refused)]
    numbers += [f"{cell.seconds / sweeps:.2f}"]
    return f"| {name} | {noise} | {label} | " + " | ".join(numbers) + " |"


COVERAGE_HEAD = (
    "| world | noise | seeds | law 90 | law 95 | set 90 | set 95 | size 90 | size 95 | ceiling 90 |"
    " ceiling 95 | bounded 90 | bounded 95 | crossover 90 | crossover 95 | crossovers |"
    " law error | rise | refused | s |\n" + "|---" * 20 + "|"
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=200, help="per coverage cell")
    parser.add_argument("--null-sweeps", type=int, default=500, help="per null world and power")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--worlds", nargs="*", default=list(COVERAGE_WORLDS))
    parser.add_argument("--noise", nargs="*", default=list(NOISE))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3, 5])
    parser.add_argument("--parts", nargs="*", default=["coverage", "null", "regret"])
    parser.add_argument("--base", type=int, default=10_000, help="seed of the first sweep")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(argv)
    lines: list[str] = []

    def out(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        if options.output:
            options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")

    cells = [(noise, seeds) for noise in options.noise for seeds in options.seeds]
    if "coverage" in options.parts:
        out(f"### Coverage, {options.sweeps} sweeps a cell, {options.draws} draws\n")
        out(COVERAGE_HEAD)
        for name in options.worlds:
            for noise, seeds in cells:
                cell = run_cell(
                    WORLDS[name], NOISE[noise], seeds, options.sweeps, options.draws, options.base
                )
                out(coverage_row(name, noise, seeds, cell, options.sweeps))
    if "null" in options.parts:
        out(f"\n### Claimed rises (%), {options.null_sweeps} sweeps a cell\n")
        out("| world | noise | seeds | rise claimed | refused |\n|---|---|---|---|---|")
        for name in (*NULL_WORLDS, "three_octaves"):
            for noise, seeds in [c for c in cells if c[1] == 3]:
                cell = Cell()
                for i in range(options.null_sweeps):
                    try:
                        law = pipeline(
                            WORLDS[name], NOISE[noise], seeds, options.base + i, options.draws
                        )[2]
                        cell.tally["rise"].append(law.claimed)
                    except RefusalError:
                        cell.refused += 1
                rise = percent(cell.mean("rise"))
                out(f"| {name} | {noise} | {seeds} | {rise} | {cell.refused} |")
    if "regret" in options.parts:
        out(f"\n### Regret in score (median, 95th percentile), {options.sweeps} sweeps a cell\n")
        names = ("law", "fitted curves", "best n of the sweep", "best score")
        out("| world | noise | seeds | budget | " + " | ".join(names) + " | refused |")
        out("|---" * 9 + "|")
        for name in options.worlds:
            for noise, seeds in [c for c in cells if c[1] == 3]:
                small = WORLDS[name].until(WORLDS[name].max_rollouts / 4)
                cell = regret_cell(
                    small, NOISE[noise], seeds, options.sweeps, options.draws, options.base
                )
                for factor in (1, 4, 10):
                    parts = [cell.tally.get(f"{w} {factor}x", [np.nan]) for w in names]
                    shown = [f"{np.median(p):.4f}, {np.quantile(p, 0.95):.4f}" for p in parts]
                    out(f"| {name} | {noise} | {seeds} | {factor}x | " + " | ".join(shown)
                        + f" | {cell.refused} |")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
