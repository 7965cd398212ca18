"""Figures and numbers of docs/findings, made by the package itself from the published curves.

    python scripts/make_findings.py [--check]

Each page of a finding holds a block between `<!-- made by scripts/make_findings.py -->` and
`<!-- end -->`; the script writes the block and the figure beside it. `--check` writes nothing and
ends with 1 where a block is not what the package says now.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isocompute.domain.text import compact
from isocompute.laws import Fit, fit_sweep
from isocompute.report import figures
from isocompute.report.words import interval, percent
from isocompute.sources import load_curves

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "findings"
BLOCK = re.compile(r"(?<=<!-- made by scripts/make_findings.py -->\n).*?(?=<!-- end -->)", re.S)
DPI = 110
NAMES = {"Easy": "published:qwen2.5-7b-easy", "Hard": "published:qwen2.5-7b-hard"}
# Laws as published on the project page: L, k, log10 C0, b (reference in docs/findings/index.md).
PUBLISHED = {"Easy": (6.09, 4.75, 5.84, 2.73), "Hard": (4.47, 7.23, 5.84, 2.79)}


def published_law(name: str, rollouts: float) -> float:
    """n*(C) of the published law."""
    height, slope, middle, floor = PUBLISHED[name]
    return float(2 ** (height / (1 + np.exp(-slope * (np.log10(rollouts) - middle))) + floor))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def law_rows(fit: Fit, most: int = 6) -> list[dict[str, Any]]:
    at = fit.document["law"]["at"]
    return [at[round(i * (len(at) - 1) / (most - 1))] for i in range(most)]


def rise(name: str, fits: dict[str, Fit]) -> tuple[str, Figure]:
    fit = fits[name]
    document, rising = fit.document, fit.document["law"]["rising"]
    rows, inside = [], 0
    least = min(c.rollouts_per_problem for c in fit.curves)
    for row in law_rows(fit):
        theirs = published_law(name, row["x"])
        low, high = row["interval"] or (None, None)
        holds = (low is None or low <= theirs) and (high is None or theirs <= high)
        inside += holds
        rows.append(
            (
                compact(row["x"]),
                compact(row["rollouts_per_problem"]),
                interval(row["interval"]),
                ", ".join(map(str, row["confidence_set"])),
                compact(theirs)
                + ("" if holds else " (no such n tested)" if theirs < least else " (outside)"),
            )
        )
    claim = (
        f"The rise is claimed: {rising['octaves']:.1f} octaves, at least "
        f"{rising['lower_bound']:.1f}."
        if rising["claimed"]
        else f"The frontier moves by {rising['octaves']:.1f} octaves, but a rise is **not "
        f"claimed**: the one-sided 95% bound is {rising['lower_bound']:.1f}."
    )
    codes = ", ".join(f"`{c}`" for c in sorted({w["code"] for w in document["warnings"]}))
    head = ("rollouts", "n*", "95% interval", "could be best", "published law")
    text = (
        f"{table(head, rows)}\n\n{claim} The published law lies inside our interval at {inside} of "
        f"{len(rows)} budgets. Warnings of this fit: {codes}.\n"
    )
    figure = figures.law(fit, title=f"n*(C), {name}")
    x = np.geomspace(*fit.support, 80)
    figure.axes[0].plot(
        x,
        [published_law(name, c) for c in x],
        color="#1b1b2b",
        linewidth=1.1,
        linestyle=(0, (5, 2)),
        label="law as published",
    )
    figure.axes[0].legend(loc="upper left", frameon=False, fontsize=8)
    return text, figure


def frontier(name: str, fits: dict[str, Fit]) -> tuple[str, Figure]:
    rows = [
        (
            compact(p["from"]),
            compact(p["to"]),
            str(p["rollouts_per_problem"]),
            f"{p['score_from']:.3f} to {p['score_to']:.3f}",
            percent(p["probability_best"]),
            "not ranked" if p["extrapolated"] else "",
        )
        for p in fits[name].document["frontier"]
    ]
    text = table(("from", "to", "n", "score", "best with", ""), rows) + "\n"
    return text, figures.learning_curves(fits[name], title=f"Learning curves, {name}")


def easy_and_hard(fits: dict[str, Fit]) -> tuple[str, Figure]:
    easy, hard = fits["Easy"], fits["Hard"]
    low, high = max(f.support[0] for f in fits.values()), min(f.support[1] for f in fits.values())
    rows = []
    for x in np.geomspace(low * 1.01, high * 0.99, 5):
        near = [
            min(f.document["law"]["at"], key=lambda r: abs(np.log(r["x"] / x)))
            for f in (easy, hard)
        ]
        apart = near[0]["interval"][0] > near[1]["interval"][1]
        both = [f"{compact(r['rollouts_per_problem'])} ({interval(r['interval'])})" for r in near]
        rows.append((compact(float(x)), *both, "yes" if apart else "no"))
    text = table(("rollouts", "n* Easy", "n* Hard", "intervals apart"), rows) + "\n"
    return text, figures.law(easy, others=[("Hard", hard)], title="n*(C), Easy and Hard")


def loss(fits: dict[str, Fit]) -> tuple[str, Figure]:
    rows = []
    for name, fit in fits.items():
        low, high = fit.support
        for x in (low * 1.01, float(np.sqrt(low * high)), high * 0.99):
            scores = {n: s for (_, n), s in fit.expected_scores(x).items()}
            best, worst = max(scores, key=scores.get), min(scores, key=scores.get)
            ends = [f"{n}: {scores[n]:.3f}" for n in (best, worst)]
            rows.append((name, compact(x), *ends, f"{100 * (scores[best] - scores[worst]):.1f}"))
    text = table(("set", "rollouts", "best n", "worst n", "points between"), rows) + "\n"
    return text, figures.loss_by_n(fits["Easy"], title="What another n loses, Easy")


def backtest(fits: dict[str, Fit]) -> tuple[str, Figure]:
    rows = []
    for name, fit in fits.items():
        test = fit.document["backtest"]
        rows.append(
            (
                name,
                str(test["n_held_out"]),
                f"{test['mae_law']:.4f}",
                f"{test['mae_best_so_far']:.4f}",
                f"{test['mae_power_law']:.4f}",
                percent(test["coverage"]),
            )
        )
    head = ("set", "held out", "fit misses by", "best so far", "power law", "inside interval")
    return table(head, rows) + "\n", figures.backtest(fits["Easy"], title="Predictions, Easy")


def sensitivity(fits: dict[str, Fit]) -> tuple[str, Figure]:
    rows = []
    for name, fit in fits.items():
        for rule in fit.document["sensitivity"]:
            values = rule["rollouts_per_problem"]
            said = rule["refused"]
            if values:  # a later start leaves out the smallest budgets
                said = ", ".join([*["–"] * (5 - len(values)), *(compact(v) for v in values)])
            rows.append((name, rule["rule"], said))
    text = table(("set", "rule", "n* at five budgets, even in log"), rows) + "\n"
    return text, figures.sensitivity(fits["Hard"], title="The law under other rules, Hard")


PAGES: dict[str, Callable[[dict[str, Fit]], tuple[str, Figure]]] = {
    "rise-easy": lambda fits: rise("Easy", fits),
    "rise-hard": lambda fits: rise("Hard", fits),
    "frontier": lambda fits: frontier("Easy", fits),
    "easy-and-hard": easy_and_hard,
    "what-n-is-worth": loss,
    "prediction": backtest,
    "sensitivity": sensitivity,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    fits = {name: fit_sweep(load_curves([s]), sources=[s]) for name, s in NAMES.items()}
    stale = []
    for page, make in PAGES.items():
        path = FOLDER / f"{page}.md"
        text, figure = make(fits)
        old = path.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda _, text=text: text, old)
        if options.check:
            stale += [page] if new != old else []
            continue
        path.write_text(new, encoding="utf-8")
        figure.savefig(FOLDER / f"{page}.png", dpi=DPI)
    for page in stale:
        print(
            f"docs/findings/{page}.md is not what the package says now: "
            "run scripts/make_findings.py",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
