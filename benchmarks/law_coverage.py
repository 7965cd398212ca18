"""Coverage, false rises, power and regret of the law on planted worlds, every cell printed.

One command: `make coverage-table`, which also renews the tables of docs/coverage.md, where the
definitions are (`law_coverage_page.py`). A sweep's seed is `--base` plus its index; nothing is
tuned here.

Cells are computed in chunks, each written to `--cells` when it is done: an interrupted run goes on
where it stopped, and several runs may share one folder. `--sweeps 2000` is the definitive table.

Every interval is checked at 90% and 95%. One-seed cells are conditional on the runs' curves and
labelled so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from law_coverage_rows import (
    BUDGETS,
    COVERAGE_HEAD,
    FACTORS,
    LEVELS,
    REGRET_HEAD,
    RISES_HEAD,
    Cell,
    Task,
    rows_of,
)

from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.errors import RefusalError
from isocompute.frontier import (
    Frontier,
    crossing_interval,
    crossings,
    crossovers_of,
    fit_frontier,
)
from isocompute.laws import Fit, fit_sweep
from isocompute.laws.estimate import LawEstimate, confidence_set, estimate_law
from isocompute.plan import plan_budget
from isocompute.testing.planted import (
    NOISE,
    NULL_WORLDS,
    WORLDS,
    Arm,
    Noise,
    TrueCrossover,
    Truth,
    World,
)

CHUNK = 100  # sweeps that one process does before it writes them down
HALF_DECADE = 0.5
COVERAGE_WORLDS = (
    "rising", "late_winner", "three_octaves", "falling", "overfit", "collapse", "unequal_seeds",
    "capped", "joint_capped", "gompertz",
)  # fmt: skip
RISE_WORLDS = tuple(dict.fromkeys((*NULL_WORLDS, *COVERAGE_WORLDS)))
REGRET_WORLDS = (*COVERAGE_WORLDS, "constant_small", "constant_large", "equal")


def pipeline(
    world: World, noise: Noise, seeds: int, seed: int, draws: int
) -> tuple[CurveFits, Frontier, LawEstimate]:
    curves = world.sample(noise, seeds, np.random.default_rng(seed))
    fits = fit_curves(curves, draws=draws, seed=seed, unseen_seed_sd=0.0)
    frontier = fit_frontier(fits, level=LEVELS[0])
    law = estimate_law(frontier, fits.rollouts_per_problem_J, variable="rollouts")
    return fits, frontier, law


class Target(NamedTuple):
    """What is true between two budgets; many sweeps of a world share their common support."""

    budgets: np.ndarray
    n: np.ndarray  # of the law, at the budgets
    good: list[set[int]]
    x: np.ndarray
    score: np.ndarray  # at x, one row per arm
    crossovers: list[TrueCrossover]


def target_of(truth: Truth, low: float, high: float) -> Target:
    budgets, x = np.geomspace(low, high, BUDGETS), np.geomspace(low, high, 400)
    n, good = truth.law(low, high).predict(budgets), truth.good(budgets)
    return Target(budgets, n, good, x, truth.score(x), truth.crossovers(low, high))


def check_law(cell: Cell, target: Target, fits: CurveFits, fr: Frontier, law: LawEstimate) -> None:
    n_J = fits.rollouts_per_problem_J
    for c, n, good in zip(*target[:3], strict=True):
        where = int(np.abs(fr.x_V - np.log10(c)).argmin())
        for level in LEVELS:
            lo, hi = law.interval(float(c), level) or (np.nan, np.nan)
            cell.tally[f"law {level:.2f}"].append(bool(lo * (1 - 1e-6) <= n <= hi * (1 + 1e-6)))
            off = np.log2(max(n / hi, lo / n, 1.0)) if np.isfinite(lo) else np.nan
            cell.tally[f"law off {level:.2f}"].append(float(off))
            chosen = confidence_set(fr.probability_JV[:, where], n_J, level)
            cell.tally[f"set {level:.2f}"].append(bool(good & set(chosen)))
            cell.tally[f"size {level:.2f}"].append(len(chosen))
        cell.tally["law error"].append(abs(np.log2(law.predict(float(c)) / n)))


def bent(truth: Truth, fits: CurveFits) -> Iterable[tuple[int, Arm]]:
    """Curves with a true ceiling, half a decade past their midpoint: more is not required."""
    last = np.log10(truth.world.max_rollouts)
    arms = {(a.problems_per_batch, a.rollouts_per_problem): a for a in truth.arms}
    for j, one in enumerate(fits.binned):
        arm = arms[one.problems_per_batch, one.rollouts_per_problem]
        if not arm.falls_from and arm.midpoint <= last - HALF_DECADE:
            yield j, arm


def check_curves(cell: Cell, truth: Truth, fits: CurveFits) -> None:
    for j, arm in bent(truth, fits):
        for level in LEVELS:
            lo, hi = fits.ceiling_interval(j, level)
            cell.tally[f"bounded {level:.2f}"].append(hi is not None)
            if hi is not None and lo is not None:
                cell.tally[f"ceiling {level:.2f}"].append(lo <= arm.ceiling <= hi)


def check_numbers(
    cell: Cell, truth: Truth, fits: CurveFits, fr: Frontier, law: LawEstimate
) -> None:
    """The other numbers of a fit: the rise's bound, probabilities of being best, midpoints."""
    low, high = fr.support
    first, last = truth.good([law.judged_from, high])
    # The most that n within 0.005 of the best admit (definitions, 1).
    most = np.log2(max(last) / min(first))
    if law.lower_bound is not None:
        cell.tally["bound holds"].append(law.lower_bound <= most + 1e-9)
        cell.tally["bound"].append(law.lower_bound)
    budgets = np.geomspace(low, high, BUDGETS)
    best = truth.rollouts_per_problem_J[truth.best(budgets)]
    for c, n_best in zip(budgets, best, strict=True):
        where = int(np.abs(fr.x_V - np.log10(c)).argmin())
        for n in np.unique(fits.rollouts_per_problem_J):
            mass = fr.probability_JV[fits.rollouts_per_problem_J == n, where].sum()
            cell.tally["probability"].append(round(float(mass), 4))
            cell.tally["is best"].append(bool(n == n_best))
    for j, arm in bent(truth, fits):
        for level in LEVELS:
            lo, hi = fits.midpoint_interval(j, level)
            if lo is not None and hi is not None:
                cell.tally[f"midpoint {level:.2f}"].append(lo <= arm.midpoint <= hi)


def check_crossovers(cell: Cell, target: Target, fits: CurveFits, fr: Frontier) -> None:
    """Every true crossover, whether the fit reports it or not; and those that it reports."""
    draw = fits.draw_value(fr.x_V)
    x, score, every = target[3:]
    true = [c for c in every if crosses_once(score[c.after] - score[c.before])]
    inside_V = fr.x_V[fr.supported_V]
    for c in true:
        lead_V = (fr.score_JV[c.after] - fr.score_JV[c.before])[fr.supported_V]
        # Where the fitted curves cross, or the end of the support beyond which they do.
        near = crossings(lead_V[None], inside_V, np.log10(c.at))[0]
        near = float(np.clip(near, inside_V[0], inside_V[-1]))
        lead_DV = (draw[:, c.after] - draw[:, c.before])[:, fr.supported_V]
        for level in LEVELS:
            lo, hi = crossing_interval(lead_DV, inside_V, near, level)
            cell.tally[f"crossing {level:.2f}"].append((lo or 0.0) <= c.at <= (hi or np.inf))
    for level in LEVELS:
        found = (
            fr.crossovers
            if level == LEVELS[0]
            else crossovers_of(fr.segments, draw, fr.x_V, fr.supported_V, level)
        )
        for f in found:
            lead = score[f.after] - score[f.before]
            if crosses_once(lead):
                at = x[np.flatnonzero(np.diff(np.sign(lead)))[0]]
                lo, hi = f.interval
                cell.tally[f"crossover {level:.2f}"].append((lo or 0.0) <= at <= (hi or np.inf))
    cell.tally["true crossovers"].append(len(every))
    cell.tally["crossovers detected"].append(len(fr.crossovers))


def crosses_once(lead_V: np.ndarray) -> bool:
    return len(np.flatnonzero(np.diff(np.sign(lead_V)))) == 1 and bool(lead_V[-1] > 0)


def sample_of(task: Task) -> tuple[World, Noise]:
    world, noise = WORLDS[task.world], NOISE[task.noise]
    if task.part == "regret":
        world = world.until(world.max_rollouts / 4)
    if task.part == "coverage" and task.seeds == 1:
        # Conditional on these runs: their curves are the truth.
        noise = replace(noise, ceiling_sd=0.0, midpoint_sd=0.0)
    return world, noise


def run_chunk(task: Task) -> Cell:
    world, noise = sample_of(task)
    cell, truth = Cell(sweeps=task.sweeps), world.truth(noise)
    target = cache(partial(target_of, truth))
    start = time.process_time()
    for seed in range(task.first, task.first + task.sweeps):
        try:
            if task.part == "regret":
                check_plans(cell, truth, noise, task, seed)
                continue
            fits, fr, law = pipeline(world, noise, task.seeds, seed, task.draws)
        except RefusalError:
            cell.refused += 1
            continue
        cell.tally["rise claimed"].append(law.claimed)
        if task.part == "rises":
            check_numbers(cell, truth, fits, fr, law)
        if task.part == "coverage":
            check_law(cell, target(*fr.support), fits, fr, law)
            check_curves(cell, truth, fits)
            check_crossovers(cell, target(*fr.support), fits, fr)
    cell.seconds = time.process_time() - start
    return cell


def check_plans(cell: Cell, truth: Truth, noise: Noise, task: Task, seed: int) -> None:
    """Score lost by what `plan` says and by simpler rules, at 1, 4 and 10 times the sweep."""
    curves = truth.world.sample(noise, task.seeds, np.random.default_rng(seed))
    fit = fit_sweep(curves, draws=task.draws, seed=seed)
    without_back_test(fit)
    fr, arms = (
        fit.frontier,
        {(a.problems_per_batch, a.rollouts_per_problem): j for j, a in enumerate(truth.arms)},
    )
    top = fr.support[1]
    pairs = [(b.problems_per_batch, b.rollouts_per_problem) for b in fit.curve_fits.binned]
    leader = pairs[int(fr.best_V[int(np.flatnonzero(fr.supported_V)[-1])])]
    so_far: dict[tuple[int, int], float] = {}
    for c in curves:
        key = (c.problems_per_batch, c.rollouts_per_problem)
        so_far[key] = max(so_far.get(key, 0.0), float(c.score_K.max()))
    for factor in FACTORS:
        score = truth.score(top * factor)[:, 0]
        plan = plan_budget(fit, top * factor)
        expected = fit.expected_scores(top * factor)
        chosen = {
            "best n of the sweep": leader,
            "best so far": max(so_far, key=lambda key: so_far[key]),
            "expected score": max(expected, key=lambda key: expected[key]),
        }
        cell.tally[f"refused {factor}x"].append(plan.allocation is None)
        if plan.allocation is not None:
            chosen["plan"] = key = (
                plan.allocation.problems_per_batch,
                plan.allocation.rollouts_per_problem,
            )
            check_score(cell, factor, plan.document, float(score[arms[key]]))
            n = plan.document["law_rollouts_per_problem"]
            of_law = {pair: s for pair, s in expected.items() if pair[1] == n}
            if of_law:
                chosen["law, rounded down"] = max(of_law, key=lambda key: of_law[key])
        for name, key in chosen.items():
            cell.tally[f"{name} {factor}x"].append(float(score.max() - score[arms[key]]))


def check_score(cell: Cell, factor: int, document: Mapping[str, Any], true: float) -> None:
    """The score that a plan names for its choice, and what it says that choosing so loses."""
    low, high = document["predicted_score_interval"]
    cell.tally[f"score {factor}x"].append(low <= true <= high)
    cell.tally[f"too high {factor}x"].append(document["predicted_score"] - true)
    cell.tally[f"wide {factor}x"].append(high - low)
    cell.tally[f"said {factor}x"].append(document["expected_regret"])


def without_back_test(fit: Fit) -> None:
    """Leave the fit what the choice of a plan needs of its document; the rest takes long."""
    law = fit.law
    fit.__dict__["document"] = {
        "setting": fit.setting,
        "unit": fit.unit,
        "level": fit.level,
        "law": {
            "form": law.law.form if law.monotone else None,
            "plateau": law.law.plateau if law.monotone else None,
            "identified": law.identified,
        },
        "backtest": {},
        "warnings": [],
    }


def seeds_of(part: str, world: str) -> tuple[int, ...]:
    """Numbers of seeds at which a world has a cell."""
    if part != "coverage" or world == "unequal_seeds":  # that world brings its own numbers
        return (3,)
    return (1, 2, 3, 5)


def sweeps_of(sweeps: int, seeds: int) -> int:
    """One seed is conditional on the run and not what the table is for: 500 are enough."""
    return min(sweeps, 500) if seeds == 1 else sweeps


def chunks(task: Task) -> list[Task]:
    return [
        task._replace(first=task.first + i, sweeps=min(CHUNK, task.sweeps - i))
        for i in range(0, task.sweeps, CHUNK)
    ]


def do(work: tuple[Task, Path]) -> Task:
    """Run one chunk, unless it is done, and write it down."""
    task, folder = work
    path = task.file(folder)
    if not path.exists():
        cell = run_chunk(task)
        tally = {name: [float(v) for v in values] for name, values in cell.tally.items()}
        text = json.dumps({**vars(cell), "tally": tally})
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return task


def cell_of(task: Task, folder: Path) -> Cell:
    """Whatever has been done of a cell."""
    cell = Cell()
    for chunk in chunks(task):
        if chunk.file(folder).exists():
            saved = json.loads(chunk.file(folder).read_text(encoding="utf-8"))
            saved["tally"] = defaultdict(list, saved["tally"])
            cell.add(Cell(**saved))
    return cell


def table(tasks: list[Task], folder: Path) -> str:
    """All cells as Markdown."""
    lines: list[str] = []
    heads = {
        "coverage": ("### Coverage\n", COVERAGE_HEAD),
        "rises": ("\n### Claimed rises, midpoints (%)\n", RISES_HEAD),
        "regret": ("\n### Score lost (median, 95th percentile)\n", REGRET_HEAD),
    }
    seconds = 0.0
    for part, head in heads.items():
        cells = [(t, c) for t in tasks if t.part == part and (c := cell_of(t, folder)).sweeps]
        seconds += sum(cell.seconds for _, cell in cells)
        lines.extend([*head, *rows_of(cells)] if cells else [])
    return "\n".join([*lines, "", f"{seconds / 3600:.2f} core-hours in all.", ""])


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sweeps", type=int, default=200, help="per coverage cell")
    options.add_argument("--rise-sweeps", type=int, default=500, help="per world")
    options.add_argument("--regret-sweeps", type=int, default=500, help="per world")
    options.add_argument("--draws", type=int, default=200)
    options.add_argument("--worlds", nargs="*", help="default: all")
    options.add_argument("--noise", nargs="*", default=list(NOISE))
    options.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3, 5])
    options.add_argument("--parts", nargs="*", default=["coverage", "rises", "regret"])
    options.add_argument("--base", type=int, default=10_000, help="seed of the first sweep")
    options.add_argument("--jobs", type=int, default=1, help="processes")
    options.add_argument("--cells", type=Path, default=Path("build/coverage"), help="folder")
    options.add_argument("--print-only", action="store_true", help="run nothing")
    options.add_argument("-o", "--output", type=Path)
    return options


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Every cell asked for."""
    return [
        Task(part, world, noise, seeds, options.base, sweeps_of(sweeps, seeds), options.draws)
        for part, worlds, sweeps in (
            ("coverage", COVERAGE_WORLDS, options.sweeps),
            ("rises", RISE_WORLDS, options.rise_sweeps),
            ("regret", REGRET_WORLDS, options.regret_sweeps),
        )
        if part in options.parts
        for world in worlds
        if options.worlds is None or world in options.worlds
        for noise in options.noise
        for seeds in options.seeds
        if seeds in seeds_of(part, world)
    ]


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    tasks = tasks_of(options)
    options.cells.mkdir(parents=True, exist_ok=True)
    # Every cell's first chunk, then every cell's second: stopped early, the table is even.
    todo = sorted((chunk for task in tasks for chunk in chunks(task)), key=lambda c: c.first)
    work = [(chunk, options.cells) for chunk in todo]
    if not options.print_only:
        with multiprocessing.Pool(options.jobs) as pool:
            for i, done in enumerate(pool.imap(do, work), start=1):
                print(f"{i}/{len(work)} {done.file(Path()).stem}", file=sys.stderr, flush=True)
    text = table(tasks, options.cells)
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
