"""Plans from the first part of real sweeps: every study of the shipped grid with four n or more.

    python benchmarks/grid_held_out.py [-o docs/validation.md]

Each study is cut at a half, a quarter and a tenth of the largest budget that all of its n reach,
with three seeds and with one, fitted, and n is chosen for that budget. Three minutes. No number
of the model was chosen with these sweeps.

Truth of an n: its mean score over the seeds, averaged over three evaluations, the best so far at
that budget (what a plan names). Its own standard error is about 0.01.

Shape legend: X positions in log10 rollouts.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from validation.__main__ import renew
from validation.adapters import ADAPTERS, REFUSALS
from validation.rows import so_far
from validation.tables import table

from isocompute.design import shipped_worlds
from isocompute.design.judge import allowed, best_guess, lost_by
from isocompute.domain import Curve
from isocompute.sources import load_curves
from isocompute.testing.families import cut_to

CUTS = (1 / 2, 1 / 4, 1 / 10)
# (SOURCE, B_p or all that there is)
SWEEPS: tuple[tuple[str, int | None], ...] = (
    *((f"grid:{kind}-joint", b_p) for kind in ("hard", "easy") for b_p in (8, 32, 128)),
    *((f"grid:{name}", None) for name in (
        "hard-d50", "hard-d5000", "easy-d50", "easy-d5000", "dual", "tri", "extreme", "long", "ppo",
        "cispo")),
)  # fmt: skip
EASY = ("easy", "ppo", "cispo")  # in the names of studies of easy problems
RULES = ("best so far", "next n after the leader", "n = 64 always", "largest n")


def name_of(source: str, b_p: int | None) -> str:
    """A sweep in a table: "hard-bp32"."""
    return source.removeprefix("grid:").replace("-joint", "" if b_p is None else f"-bp{b_p}")


def sweep_of(source: str, b_p: int | None) -> list[Curve]:
    return [c for c in load_curves([source]) if b_p in (None, c.problems_per_batch)]


def truth_of(curves: Sequence[Curve], budget: float) -> dict[int, float]:
    """Score of each n at a budget, by all of its seeds."""
    runs: dict[int, list[np.ndarray]] = defaultdict(list)
    x_X = np.log10(budget) - np.arange(0.0, 3.3, 0.15)[::-1]
    for c in curves:
        learnt = c.rollouts_K > 0
        y = c.score_K[learnt]
        smooth = np.convolve(np.pad(y, 1, mode="edge"), np.full(3, 1 / 3), "valid")
        runs[c.rollouts_per_problem].append(np.interp(x_X, np.log10(c.rollouts_K[learnt]), smooth))
    return {n: float(np.mean(of, axis=0).max()) for n, of in runs.items()}


def row_of(name: str, curves: Sequence[Curve], cut: float, seeds: int) -> dict[str, Any]:
    """What a fit of the first part chooses, and what that was worth."""
    budget = float(min(c.rollouts_K[-1] for c in curves))
    true = truth_of(curves, budget)
    top, order = max(true.values()), sorted(true)
    part = [
        cut_to(c, cut * budget) for c in curves
        if c.seed is not None and c.seed < seeds and (c.rollouts_K <= cut * budget).sum() >= 2
    ]  # fmt: skip
    seen = so_far(part)
    leader = max(seen, key=lambda key: seen[key])[1]
    following = order[min(order.index(leader) + 1, len(order) - 1)]
    by_rule = (leader, following, 64, order[-1])
    row = {
        "sweep": name, "cut": cut, "seeds": seeds, "budget": budget,
        "best": max(true, key=lambda n: true[n]),
        "rules": dict(zip(RULES, (top - true[n] for n in by_rule), strict=True)),
    }  # fmt: skip
    try:
        answers = ADAPTERS["answers"].fit(part, 0)
        choice, refused = answers.chosen(budget), answers.refused(budget)
    except REFUSALS:
        choice, refused = None, True
    if choice is None:
        return {**row, "verdict": "refused", "loss": row["rules"]["best so far"], "held": False}
    n = choice.configuration[1]
    return {
        **row, "verdict": "refused" if refused else answers.verdict, "chosen": n,
        "loss": top - true[n], "true": true[n], "held": choice.low <= true[n] <= choice.high,
        **choice._asdict(),
    }  # fmt: skip


def guesses() -> str:
    """What `design` would run without any of these sweeps, by the shipped prior, and its loss."""
    worlds = {kind: shipped_worlds(kind, 200, 0) for kind in ("easy", "hard")}
    foretold, lost = [], []
    for source, b_p in SWEEPS:
        curves = sweep_of(source, b_p)
        budget = float(min(c.rollouts_K[-1] for c in curves))
        true = truth_of(curves, budget)
        of = worlds["easy" if any(word in source for word in EASY) else "hard"]
        among = [f for f in allowed(of, b_p or 32, budget, None) if of.n_F[f] in true]
        guess = best_guess(of, budget, among)
        foretold.append(float(lost_by(of, guess, budget, budget, among).mean()))
        lost.append(max(true[of.n_F[f]] for f in among) - true[of.n_F[guess]])
    error = np.std(lost, ddof=1) / np.sqrt(len(lost))
    return (
        f"Without any sweep, `design`'s guess loses {np.mean(lost):.4f} ± {error:.4f} here; "
        f"its prior, of another model, foretells {np.mean(foretold):.4f}.\n"
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each cut and number of seeds; the means of all sweeps."""
    lines = []
    for seeds in (3, 1):
        for cut in CUTS:
            mine = [r for r in rows if (r["seeds"], r["cut"]) == (seeds, cut)]
            told = [r for r in mine if "score" in r]

            def mean(values: Sequence[float]) -> float:
                return float(np.mean(values))

            lines.append([
                str(seeds), f"1/{1 / cut:g}", f"{mean([r['loss'] for r in mine]):.4f}",
                *(f"{mean([r['rules'][rule] for r in mine]):.4f}" for rule in RULES),
                f"{sum(r['held'] for r in mine)} of {len(mine)}",
                f"{mean([r['high'] - r['low'] for r in told]):.3f}",
                f"{mean([r['score'] - r['true'] for r in told]):+.3f}",
                str(sum(r["verdict"] == "refused" for r in mine)),
            ])  # fmt: skip
    head = ("seeds", "seen", "plan loses", *RULES, "held", "width", "named - true", "refused")
    return table(head, lines)


def every(rows: Sequence[Mapping[str, Any]]) -> str:
    """All choices of three seeds."""
    lines = [
        [
            row["sweep"], f"1/{1 / row['cut']:g}", f"{row['budget'] / 1e6:.2f}M", str(row["best"]),
            str(row.get("chosen", "-")), f"{row['loss']:.4f}",
            *(_told(row) if "score" in row else ("-", "-")), "yes" if row["held"] else "no",
            row["verdict"],
        ]
        for row in rows if row["seeds"] == 3
    ]  # fmt: skip
    head = ("sweep", "seen", "budget", "best n", "chosen", "loss", "named score", "true", "held",
            "verdict")  # fmt: skip
    return table(head, lines)


def _told(row: Mapping[str, Any]) -> tuple[str, str]:
    interval = f"{row['low']:.3f} to {row['high']:.3f}"
    return f"{row['score']:.3f} ({interval})", f"{row['true']:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="renew the block `grid` of this page")
    options = parser.parse_args()
    rows = []
    for source, b_p in SWEEPS:
        curves = sweep_of(source, b_p)
        name = name_of(source, b_p)
        rows += [row_of(name, curves, cut, seeds) for seeds in (3, 1) for cut in CUTS]
    text = f"{summary(rows)}\n{guesses()}\nEvery choice with three seeds:\n\n{every(rows)}"
    print(text)
    if options.output:
        renew(options.output, {"grid": text})


if __name__ == "__main__":
    main()
