"""The table of studies/worlds.md: how the worlds differ, each number with its interval.

    python studies/worlds.py studies/results/runs.csv --into studies/worlds.md

Lengths and distinct responses are sampled here from the shipped base models (200 problems of
each world, 64 responses each); the rest comes from the runs at B_p = 16 on Easy problems.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from summarise import interval, shown, table

from isocompute.engines.local.engine import stream
from isocompute.engines.local.policy import Policy, base_folder
from isocompute.engines.local.sampling import sample
from isocompute.engines.local.worlds import WORLDS, BitRuleWorld

Run = dict[str, str]
PROBLEMS, RESPONSES = 200, 64
BEGIN, END = "<!-- written by studies/worlds.py -->\n", "<!-- end -->"


def lengths(name: str) -> list[str]:
    """Of the base model: mean tokens of a response and their spread, share of distinct ones."""
    model = "bits-mlp" if name == "bits" else name
    world = BitRuleWorld(agree=21) if name == "bits" else WORLDS[name]()
    policy = Policy(base_folder(model))
    data = policy.tokenize(world.problems("probe", PROBLEMS, seed=3))
    drawn = sample(
        policy.model, data.token_PS, data.length_P, RESPONSES,
        max_new_tokens=policy.max_new_tokens, generator=stream(0),
    )  # fmt: skip
    tokens = np.repeat(drawn.length_N.numpy(), drawn.count_N.numpy())
    by_problem = tokens.reshape(PROBLEMS, RESPONSES)
    spread = by_problem.std(axis=1, ddof=1)
    distinct = drawn.distinct_P.numpy() / RESPONSES
    return [
        f"{tokens.mean():.1f}",
        shown_over_problems(spread),
        shown_over_problems(distinct),
    ]


def shown_over_problems(values: np.ndarray) -> str:
    """Mean and half-width of the normal 95% interval over problems."""
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    return f"{values.mean():.2f} ±{half:.2f}"


def best_n(runs: Sequence[Run]) -> str:
    """The n of the highest mean score at the end, and its lead over the next, paired by seed."""
    by_n: dict[int, dict[str, float]] = {}
    for run in runs:
        n = int(run["rollouts_per_problem"])
        by_n.setdefault(n, {})[run["seed"]] = float(run["best_so_far"])
    order = sorted(by_n, key=lambda n: -float(np.mean(list(by_n[n].values()))))
    first, second = by_n[order[0]], by_n[order[1]]
    lead = [first[seed] - second[seed] for seed in first if seed in second]
    mean, half = interval(lead)
    return f"{order[0]} (before {order[1]} by {mean:.3f} ±{half:.3f})"


def column(runs: Sequence[Run], name: str, digits: int = 3) -> str:
    """Mean over runs with its interval."""
    return shown([float(run[name]) for run in runs], digits)


def main() -> None:
    """Read, sample, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--into", type=Path, help="a page with markers; default: print")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with options.runs.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for name in WORLDS:
        runs = [
            row for row in rows
            if row["study"] == name and row["problems_per_batch"] == "16"
            and row["arm"] in ("", "large") and row["state"] == "done"
        ]  # fmt: skip
        if not runs:
            continue
        middle = [row for row in runs if row["rollouts_per_problem"] == "16"]
        change = [float(r["length_end"]) - float(r["length_start"]) for r in middle]
        lines.append([
            f"`{name}`", *lengths(name), shown(change, 2), f"{int(runs[0]['rollouts']):,}",
            column(middle, "start"), column(middle, "best_so_far"), column(middle, "gap"),
            column(middle, "uniform_progress", 2), best_n(runs),
        ])  # fmt: skip
    head = ["world", "tokens", "their spread on one problem", "distinct of 64",
            "change of length by training", "rollouts", "score before", "score after",
            "train - validation", "evenness of progress", "best n"]  # fmt: skip
    text = table(head, lines)
    if options.into is None:
        print(text)
        return
    page = options.into.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    options.into.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
