"""What one fitted sweep is worth against its truth: a flat row of numbers.

A row's `sums` maps a name to [value, count]: value / count is the sweep's mean, and sums over
sweeps give the page's figures with standard errors (`figures.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from isocompute.domain import Curve
from isocompute.testing.families import CONDITIONS, stopped_early
from isocompute.testing.truth import Arm, Truth
from validation.adapters import REFUSALS, Adapter, Answers, Key
from validation.cells import EVERY, Cell, rng_of, world_of

FACTORS = (1, 4, 10)  # of the sweep's budget, at which a plan is asked for
WHERE = ("start", "middle", "end")
BINS = (0.0, 0.05, 0.10, 0.30, 0.50, 0.70, 0.90, 1.0)
MISSED = 0.05  # by which a named score that is off should have been stopped
TIED = 1e-6  # scores that share being the best
WITHIN = 0.005  # of the best: still in the running
ONWARD = 1.25  # of the budget at which it was last in the running, a run is stopped

Sums = dict[str, list[float]]


class Tally(dict):  # type: ignore[type-arg]
    """name -> [sum of values, count]."""

    def add(self, name: str, value: float, count: float = 1.0) -> None:
        """One more value (or several, already summed)."""
        had = self.setdefault(name, [0.0, 0.0])
        had[0] += round(float(value), 6)
        had[1] += count


def key_of(arm: Arm) -> Key:
    return arm.problems_per_batch, arm.rollouts_per_problem


@cache
def truth_of(cell: Cell) -> Truth:
    """What is true of a cell's sweeps."""
    return CONDITIONS[cell.condition].seen(world_of(cell)).truth(CONDITIONS[cell.condition].noise)


@cache
def whole_truth_of(cell: Cell) -> Truth:
    """The same with every n of the world, where a cell keeps a few."""
    world = EVERY[cell.world.split("@")[0]].until(world_of(cell).max_rollouts)
    return world.truth(CONDITIONS[cell.condition].noise)


@cache
def scores_of(truth_of_cell: Any, cell: Cell, budget: float) -> Mapping[Key, float]:
    truth = truth_of_cell(cell)
    score_J = truth.score(budget)[:, 0]
    return {key_of(a): float(s) for a, s in zip(truth.arms, score_J, strict=True)}


@cache
def budgets_of(cell: Cell) -> tuple[tuple[str, float], ...]:
    """Start, middle and end of the budgets at which all are compared."""
    return tuple(zip(WHERE, np.geomspace(*truth_of(cell).support, 3).tolist(), strict=True))


def row_of(adapter: Adapter, cell: Cell, seed: int) -> dict[str, Any]:
    """One sweep, fitted and judged."""
    rng = rng_of(cell, seed)
    curves = CONDITIONS[cell.condition].sample(world_of(cell), rng)
    tally = Tally()
    row: dict[str, Any] = {"seed": seed, "sums": tally, "loss": {}}
    start = time.process_time()
    try:
        answers = adapter.fit(curves, seed)
        tally.add("fit seconds", time.process_time() - start)
    except REFUSALS as refusal:
        tally.add("no fit", 1)
        row["why"] = str(refusal)[:300]
        unfitted(cell, curves, row)
        return row
    except Exception as crash:  # noqa: BLE001 (a crash is a row: the page must show it)
        tally.add("crashed", 1)
        row["why"] = f"{type(crash).__name__}: {crash}"[:300]
        return row
    tally.add("no fit", 0)
    tally.add("stop", answers.verdict == "stop")
    tally.add("caution", answers.verdict == "caution")
    PARTS[cell.part](adapter, answers, cell, curves, row)
    tally.add("seconds", time.process_time() - start)
    return row


def so_far(curves: Sequence[Curve]) -> Mapping[Key, float]:
    """The best score that each configuration has shown."""
    best: dict[Key, float] = {}
    for c in curves:
        key = (c.problems_per_batch, c.rollouts_per_problem)
        best[key] = max(best.get(key, 0.0), float(c.score_K.max()))
    return best


def unfitted(cell: Cell, curves: Sequence[Curve], row: dict[str, Any]) -> None:
    """A sweep without a fit: its user keeps the best so far, and no interval holds."""
    tally, seen = row["sums"], so_far(curves)
    keep = max(seen, key=lambda key: seen[key])
    if cell.part == "sweep":
        for factor, budget in planned(cell):
            true = scores_of(truth_of, cell, budget)
            row["loss"][str(factor)] = round(max(true.values()) - true[keep], 5)
            tally.add(f"held {factor}x", 0)
            tally.add(f"refused {factor}x", 1)
        for where, _ in budgets_of(cell):
            tally.add(f"curve {where}", 0, len(seen))
    if cell.part == "surface":
        for where, _ in budgets_of(cell):
            tally.add(f"best n held {where}", 0)
    if cell.part == "null":
        tally.add("claimed", 0)
    if cell.part == "few":
        for factor, _ in planned(cell):
            tally.add(f"over keeping {factor}x", 0)
            tally.add(f"refused {factor}x", 1)


def planned(cell: Cell) -> Iterable[tuple[int, float]]:
    top = truth_of(cell).support[1]
    return [(factor, top * factor) for factor in FACTORS]


def judge_sweep(
    adapter: Adapter,  # noqa: ARG001
    answers: Answers,
    cell: Cell,
    curves: Sequence[Curve],
    row: dict[str, Any],
) -> None:
    tally = row["sums"]
    for where, budget in budgets_of(cell):
        true = scores_of(truth_of, cell, budget)
        judge_curves(tally, f"curve {where}", answers, true, reached(curves, budget), budget)
        judge_curves(tally, "curve inside", answers, true, reached(curves, budget), budget)
        judge_chances(tally, "p", answers, true, budget)
    top = planned(cell)
    judge_chances(tally, "p beyond", answers, scores_of(truth_of, cell, top[1][1]), top[1][1])
    tally.add("claimed", answers.rise().claimed)
    seen = so_far(curves)
    largest = max(seen, key=lambda key: (key[1], seen[key]))
    best_so_far = max(seen, key=lambda key: seen[key])
    for factor, budget in top:
        true = scores_of(truth_of, cell, budget)
        best = max(true.values())
        judge_plan(tally, row, answers, true, factor, budget)
        tally.add(f"largest n {factor}x", best - true[largest])
        tally.add(f"best so far {factor}x", best - true[best_so_far])


def reached(curves: Sequence[Curve], budget: float) -> set[Key]:
    """Configurations with a run that reaches a budget."""
    return {
        (c.problems_per_batch, c.rollouts_per_problem)
        for c in curves
        if c.rollouts_K[-1] >= budget * (1 - 1e-9)
    }


def judge_curves(
    tally: Tally,
    name: str,
    answers: Answers,
    true: Mapping[Key, float],
    keys: Iterable[Key],
    budget: float,
) -> None:
    for key in keys:
        interval = answers.curve_interval(key, budget, 0.90)
        held = interval is not None and interval[0] <= true[key] <= interval[1]
        tally.add(name, held)
        if interval is not None:
            tally.add(f"{name} width", interval[1] - interval[0])


def judge_chances(
    tally: Tally, name: str, answers: Answers, true: Mapping[Key, float], budget: float
) -> None:
    """Said and true chances of being best, by bins; equals share the truth."""
    best = max(true.values())
    ties = [key for key, score in true.items() if score >= best - TIED]
    for key, p in answers.p_best(budget).items():
        if key not in true:
            continue
        k = min(int(np.searchsorted(BINS, p, side="right")) - 1, len(BINS) - 2)
        share = f"{name} {BINS[k]:.2f}-{BINS[k + 1]:.2f}"
        tally.add(f"{share} said", p)
        tally.add(f"{share} off", (key in ties) / len(ties) - p)


def judge_plan(
    tally: Tally,
    row: dict[str, Any],
    answers: Answers,
    true: Mapping[Key, float],
    factor: int,
    budget: float,
) -> None:
    tally.add(f"refused {factor}x", answers.refused(budget))
    choice = answers.chosen(budget)
    if choice is None:
        tally.add(f"nothing chosen {factor}x", 1)
        tally.add(f"held {factor}x", 0)
        return
    score = true[choice.configuration]
    row["loss"][str(factor)] = round(max(true.values()) - score, 5)
    tally.add(f"held {factor}x", choice.low <= score <= choice.high)
    tally.add(f"width {factor}x", choice.high - choice.low)
    tally.add(f"error {factor}x", choice.score - score)
    if abs(choice.score - score) > MISSED:
        tally.add("missed and stopped", answers.verdict == "stop" or answers.refused(budget))


def judge_surface(
    adapter: Adapter,  # noqa: ARG001
    answers: Answers,
    cell: Cell,
    curves: Sequence[Curve],  # noqa: ARG001
    row: dict[str, Any],
) -> None:
    tally = row["sums"]
    for where, budget in budgets_of(cell):
        true, found = best_n(cell, budget), answers.n_star(budget, 0.90)
        if found is None:
            tally.add(f"best n held {where}", 0)
            tally.add(f"best n none {where}", 1)
            continue
        slack = 1 + 1e-6
        tally.add(f"best n held {where}", found.low / slack <= true <= found.high * slack)
        tally.add(f"best n width {where}", float(np.log2(found.high / found.low)))
        tally.add(f"best n bias {where}", float(np.log2(found.n / true)))
        judge_curves(
            tally, f"curve {where}", answers, scores_of(truth_of, cell, budget),
            scores_of(truth_of, cell, budget), budget,
        )  # fmt: skip


@cache
def best_n(cell: Cell, budget: float) -> float:
    """The exact continuous optimum."""
    return truth_of(cell).best_n(budget)


def judge_null(
    adapter: Adapter,  # noqa: ARG001
    answers: Answers,
    cell: Cell,
    curves: Sequence[Curve],  # noqa: ARG001
    row: dict[str, Any],
) -> None:
    tally, rise = row["sums"], answers.rise()
    tally.add("claimed", rise.claimed)
    first, last = truth_of(cell).good(truth_of(cell).support, within=WITHIN)
    if np.isfinite(rise.bound):
        tally.add("bound holds", rise.bound <= np.log2(max(last) / min(first)) + 1e-9)


def judge_few(
    adapter: Adapter,  # noqa: ARG001
    answers: Answers,
    cell: Cell,
    curves: Sequence[Curve],
    row: dict[str, Any],
) -> None:
    tally, seen = row["sums"], so_far(curves)
    keep = max(seen, key=lambda key: seen[key])
    tested = set(seen)
    beside = {(b, m) for b, n in tested for m in (n // 2, n * 2)} - tested
    for where, budget in (*budgets_of(cell), ("4x", planned(cell)[1][1])):
        true = scores_of(whole_truth_of, cell, budget)
        for name, keys in (("tested", tested), ("beside", beside & set(true))):
            judge_curves(tally, f"few {name} {where}", answers, true, keys, budget)
    for factor, budget in planned(cell):
        true = scores_of(whole_truth_of, cell, budget)
        tally.add(f"refused {factor}x", answers.refused(budget))
        choice = answers.chosen(budget)
        if choice is None:
            tally.add(f"over keeping {factor}x", 0)
            continue
        score = true[choice.configuration]
        tally.add(f"over keeping {factor}x", true[keep] - score)
        tally.add(f"moved {factor}x", choice.configuration not in tested)
        tally.add(f"held {factor}x", choice.low <= score <= choice.high)
        tally.add(f"width {factor}x", choice.high - choice.low)


def judge_stopped(
    adapter: Adapter, answers: Answers, cell: Cell, curves: Sequence[Curve], row: dict[str, Any]
) -> None:
    """The same sweep with its losers stopped: is the best n still what the full fit says?"""
    tally, truth = row["sums"], truth_of(cell)
    short = stopped_early(curves, last_in_the_running(truth))
    tally.add("stopped spent", sum(c.rollouts_K[-1] for c in short) / sum(
        c.rollouts_K[-1] for c in curves))  # fmt: skip
    try:
        other = adapter.fit(short, row["seed"])
    except REFUSALS:
        tally.add("stopped no fit", 1)
        return
    compare_stopped(tally, answers, other, np.geomspace(*truth.support, 9))


def compare_stopped(tally: Tally, whole: Answers, short: Answers, budgets: np.ndarray) -> None:
    """How far the best n moves when losers are stopped, in octaves, and where it is lost."""
    for budget in budgets.tolist():
        full, part = whole.n_star(budget, 0.90), short.n_star(budget, 0.90)
        if full is None:
            continue
        tally.add("stopped lost", part is None or short.refused(budget))
        if part is not None:
            off = abs(float(np.log2(part.n / full.n)))
            tally.add("stopped off", off)
            tally.add("stopped within half an octave", off <= 0.5)


def last_in_the_running(truth: Truth) -> dict[Key, float]:
    """1.25 times the last budget at which each n was within 0.005 of the best, or its 20 steps."""
    budgets = np.geomspace(*truth.support, 400)
    score_JV = truth.score(budgets)
    near_JV = score_JV >= score_JV.max(axis=0) - WITHIN
    ends = {}
    for arm, near_V in zip(truth.arms, near_JV, strict=True):
        last = budgets[np.flatnonzero(near_V)[-1]] if near_V.any() else 20 * arm.batch_size
        ends[key_of(arm)] = float(max(last, 20 * arm.batch_size)) * ONWARD
    return ends


PARTS = {
    "sweep": judge_sweep,
    "surface": judge_surface,
    "null": judge_null,
    "few": judge_few,
    "stopped": judge_stopped,
}
