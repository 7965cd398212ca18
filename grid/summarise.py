"""Claims and pictures of docs/grid.md, from the packed grid.

    python grid/summarise.py

Writes the block between the two marks of docs/grid.md, and docs/images/grid-*.png. What a claim is
judged on are runs that differ in nothing but their seed: the mean over seeds with its interval by
Student's t, at 95%; of a difference between two arms, of the differences seed by seed.

Shape legend: P problems; S seeds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import stats

from isocompute.answers import Fit, fit_sweep
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.report.style import series_styles
from isocompute.sources import load_curves

matplotlib.use("Agg")
from matplotlib import pyplot as plt

GRID = Path(__file__).resolve().parent
ROOT = GRID.parent
PACKED = ROOT / "src" / "isocompute" / "data" / "grid"
PAGE, IMAGES = ROOT / "docs" / "grid.md", ROOT / "docs" / "images"
BLOCK = re.compile(r"(?<=<!-- made by grid/summarise.py -->\n).*?(?=<!-- end -->)", re.S)
B_P = 32
SHOWN_N = (4, 32, 256, 1024)
LEAST = 0.02  # a change of score below this is none: a third of what the n of the grid spread over
FEWEST = 3  # seeds of an interval, n of a path
SETS = ("very_easy", "easy", "hard", "extremely_hard")


class Estimate(NamedTuple):
    """A mean over seeds and its interval; the interval is None below three seeds."""

    mean: float
    interval: tuple[float, float] | None
    seeds: int

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:+.3f} ({self.seeds} seed{'s' if self.seeds > 1 else ''})"
        low, high = self.interval
        return f"{self.mean:+.3f} [{low:+.3f}, {high:+.3f}]"

    def says(self, sign: int, least: float = LEAST) -> str:
        """Whether the change has this sign and more than `least`: holds, does not, open."""
        if self.interval is None:
            return "open"
        low, high = sorted(sign * end for end in self.interval)
        return "holds" if low > least else "does not" if high < least else "open"


def estimate(value_S: Any) -> Estimate:
    """Mean over seeds."""
    value_S = np.asarray(value_S, dtype=float)
    mean, size = float(value_S.mean()), len(value_S)
    if size < FEWEST:
        return Estimate(mean, None, size)
    half = float(stats.t.ppf(0.975, size - 1)) * float(value_S.std(ddof=1)) / np.sqrt(size)
    return Estimate(mean, (mean - half, mean + half), size)


def load(name: str) -> pd.DataFrame | None:
    """Rows of a study at B_p = 32; None where none of its runs is there."""
    file = PACKED / f"{name}.parquet"
    if not file.exists():
        return None
    table = pq.read_table(file).to_pandas()
    table = table[table.problems_per_batch == B_P]
    return table if len(table) else None


def at_end(table: pd.DataFrame, problem_set: str, split: str = "validation") -> pd.DataFrame:
    """The last row of each run on one set."""
    rows = table[(table.problem_set == problem_set) & (table.split == split)]
    return rows.sort_values("rollouts").groupby("run").tail(1)


def change(table: pd.DataFrame, problem_set: str, column: str = "score") -> pd.DataFrame:
    """Of each run: the last value less the first, on one set."""
    rows = table[(table.problem_set == problem_set) & (table.split == "validation")]
    rows = rows.sort_values("rollouts")
    grouped = rows.groupby(["rollouts_per_problem", "seed"])[column]
    return (grouped.last() - grouped.first()).rename("value").reset_index()


def best_of_16(table: pd.DataFrame) -> pd.DataFrame:
    """pass@16 of the rows whose outcomes were kept."""
    rows = table[table.successes.notna()].copy()
    rows["pass16"] = [float(np.mean(np.asarray(x) > 0)) for x in rows.successes]
    return rows


def by_n(rows: pd.DataFrame, sign: int, *, least: float = LEAST) -> tuple[str, str]:
    """An estimate for each n, and what they say together."""
    parts, verdicts = [], []
    for n, group in rows.groupby("rollouts_per_problem"):
        one = estimate(group.value)
        parts.append(f"n={n}: {one}")
        verdicts.append(one.says(sign, least))
    told = [v for v in verdicts if v != "open"]
    if not told:
        return "; ".join(parts), "open"
    if len(set(told)) == 1:
        return "; ".join(parts), told[0] + ("" if len(told) == len(verdicts) else ", for some n")
    return "; ".join(parts), "depends on n"


def forgetting(table: pd.DataFrame, problem_set: str) -> pd.DataFrame:
    """The last score less the best of the run, on the kind that was trained on."""
    rows = table[(table.problem_set == problem_set) & (table.split == "validation")]
    rows = rows.sort_values("rollouts")
    grouped = rows.groupby(["rollouts_per_problem", "seed"]).score
    return (grouped.last() - grouped.max()).rename("value").reset_index()


def never(table: pd.DataFrame, problem_set: str) -> pd.DataFrame:
    """Share of problems without a success in 16 at the end."""
    rows = at_end(table, problem_set).copy()
    rows["value"] = [float(np.mean(np.asarray(x) == 0)) for x in rows.successes]
    return rows[["rollouts_per_problem", "seed", "value"]]


def pairs(one: pd.DataFrame, two: pd.DataFrame, problem_set: str, column: str) -> pd.DataFrame:
    """The end of one study less that of another, by n and seed."""
    keys = ["rollouts_per_problem", "seed"]
    both = at_end(one, problem_set).merge(at_end(two, problem_set), on=keys)
    both["value"] = both[f"{column}_x"] - both[f"{column}_y"]
    return both[[*keys, "value"]]


def fits() -> dict[str, Fit]:
    """The model of each arm at B_p = 32, where there are enough runs for one."""
    found = {}
    for name in ("easy", "hard"):
        try:
            found[name] = fit_sweep(load_curves(f"grid:{name}"))
        except InputError as error:
            print(f"no fit of {name}: {error}")
    return found


def level(fit: Fit) -> tuple[str, str]:
    """n* over the last two octaves against the two before: what saturation would be."""
    best = [row for row in fit.document["best"] if not row["extrapolated"]]
    if len(best) < 2 or fit.posterior.n_runs_J.min() < FEWEST:
        return "an n has fewer than three runs", "open"
    last = best[-1]
    told = ", ".join(
        f"{compact(row['x'])}: {row['rollouts_per_problem']:.0f} "
        f"[{row['interval'][0]:.0f}, {row['interval'][1]:.0f}]"
        for row in best[:: max(1, len(best) // 5)] + [last]
    )
    octaves = np.log2([row["x"] for row in best])
    late = [row for row, x in zip(best, octaves, strict=True) if x >= octaves[-1] - 2]
    moved = np.log2(late[-1]["rollouts_per_problem"] / late[0]["rollouts_per_problem"])
    return f"{told}; over the last two octaves {moved:+.1f} octaves of n", (
        "levels off" if moved < 0.5 else "still rising"
    )


def rise(fit: Fit) -> tuple[str, str]:
    """The claimed rise of n*."""
    rising = fit.document["law"]["rising"]
    told = f"{rising['octaves']:.1f} octaves, at least {rising['lower_bound']:.1f}"
    return told, "holds" if rising["claimed"] else "not claimed"


def lower_on_hard(models: dict[str, Fit]) -> tuple[str, str]:
    """n* at the end of the support, Hard against Easy."""
    last = {name: [row for row in fit.document["best"] if not row["extrapolated"]][-1]
            for name, fit in models.items()}  # fmt: skip
    told = "; ".join(
        f"{name}: {row['rollouts_per_problem']:.0f} [{row['interval'][0]:.0f}, "
        f"{row['interval'][1]:.0f}] at {compact(row['x'])}" for name, row in last.items()
    )  # fmt: skip
    easy, hard = last["easy"]["interval"], last["hard"]["interval"]
    return told, "holds" if hard[1] < easy[0] else "does not" if hard[0] > easy[1] else "open"


def claims(models: dict[str, Fit]) -> list[tuple[str, str, str]]:
    """(claim, estimates, verdict), as far as there are runs."""
    rows: list[tuple[str, str, str]] = []
    for name, fit in models.items():
        rows.append((f"n* rises with the budget ({name})", *rise(fit)))
        rows.append((f"n* levels off ({name})", *level(fit)))
    if len(models) == len(("easy", "hard")):
        rows.append(("n* levels off lower on Hard than on Easy", *lower_on_hard(models)))
    hard, easy = load("hard"), load("easy")
    if hard is not None:
        for name in ("very_easy", "easy"):
            rows.append((f"Interference: training on Hard lowers avg@4 of {name}",
                         *by_n(change(hard, name), -1)))  # fmt: skip
        rows.append(("Forgetting: the end of a run on Hard lies below its best",
                     *by_n(forgetting(hard, "hard"), -1)))  # fmt: skip
        rows.append(("Coverage: share of Hard never right in 16 at the end",
                     *by_n(never(hard, "hard"), 1, least=0.05)))  # fmt: skip
        for name in ("very_easy", "hard"):
            rows.append((f"pass@16 of {name} ends below the base model's after training on Hard",
                         *by_n(change(best_of_16(hard), name, "pass16"), -1)))  # fmt: skip
    if easy is not None:
        rows.append(("Transfer: training on Easy raises avg@4 of hard",
                     *by_n(change(easy, "hard"), 1)))  # fmt: skip
        rows.append(("Forgetting: the end of a run on Easy lies below its best",
                     *by_n(forgetting(easy, "easy"), -1)))  # fmt: skip
        for name in ("easy", "hard"):
            rows.append((f"pass@16 of {name} ends below the base model's after training on Easy",
                         *by_n(change(best_of_16(easy), name, "pass16"), -1)))  # fmt: skip
    plain, regularised = load("easy-plain"), load("hard-regularised")
    if easy is not None and plain is not None:
        rows.append(("Entropy collapses without regularisers (Easy; nats, plain less regularised)",
                     *by_n(pairs(plain, easy, "easy", "entropy"), -1, least=0.001)))  # fmt: skip
        rows.append(("Easy ends lower without regularisers",
                     *by_n(pairs(plain, easy, "easy", "score"), -1, least=0.005)))  # fmt: skip
    if hard is not None and regularised is not None:
        rows.append(("Hard ends lower with the regularisers of Easy",
                     *by_n(pairs(regularised, hard, "hard", "score"), -1)))  # fmt: skip
    return rows


def draw_difficulty() -> None:
    """Histogram of the base model's successes in 16, with the bands."""
    rate_P = pq.read_table(GRID / "problems.parquet", columns=["pass_rate"])
    count_P = np.round(rate_P.column("pass_rate").to_numpy() * 16).astype(int)
    size = np.bincount(count_P, minlength=17)
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    bands = {"Hard": (0, 1, "#4c1d95"), "Easy": (5, 9, "#c2255c"), "Very Easy": (10, 14, "#b45309")}
    colour = ["#9ca3af"] * 17
    for low, high, shade in bands.values():
        colour[low : high + 1] = [shade] * (high + 1 - low)
    axes.bar(range(17), size / 1000, color=colour, width=0.85)
    for name, (low, high, shade) in bands.items():
        total = size[low : high + 1].sum()
        top = size[low : high + 1].max() / 1000
        axes.text((low + high) / 2 + (0.8 if low == 0 else 0), top + 0.25, f"{name}: {total:,}",
                  ha="left" if low == 0 else "center", color=shade, fontsize=9)  # fmt: skip
    axes.set(xlabel="right answers of the base model in 16", ylabel="problems (thousands)",
             xticks=range(0, 17, 2), ylim=(0, size.max() / 1000 + 1.5))  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "grid-difficulty.png", dpi=120)
    plt.close(figure)


def draw_curves(tables: dict[str, pd.DataFrame]) -> None:
    """Scores of four n against rollouts: on the kind trained on, and on others."""
    styles = series_styles([(B_P, n) for n in SHOWN_N])
    figure, axes = plt.subplots(len(tables), 3, figsize=(10.5, 3.3 * len(tables)), squeeze=False,
                                sharex=True, sharey=True, layout="constrained")  # fmt: skip
    for row, (name, table) in zip(axes, tables.items(), strict=True):
        own = name
        others = [s for s in ("easy", "hard", "very_easy") if s != own]
        for axis, problem_set in zip(row, (own, *others), strict=True):
            shown = table[(table.problem_set == problem_set) & (table.split == "validation")]
            for n in SHOWN_N:
                part = shown[shown.rollouts_per_problem == n]
                if not len(part):
                    continue
                style = styles[B_P, n]
                for _, run in part.groupby("run"):
                    run = run[run.rollouts > 0].sort_values("rollouts")
                    axis.plot(run.rollouts, run.score, color=style.light, alpha=0.35, lw=0.8)
                mean = part[part.rollouts > 0].groupby("rollouts").score.agg(["mean", "size"])
                mean = mean[mean["size"] == mean["size"].max()]["mean"]
                axis.plot(mean.index, mean, color=style.light, lw=1.8, label=f"n={n}",
                          linestyle=style.linestyle)  # fmt: skip
            start = shown[shown.rollouts == 0].score.mean()
            axis.axhline(start, color="#6b7280", lw=0.8, ls=":")
            axis.set_title(f"trained on {own}, judged on {problem_set.replace('_', ' ')}",
                           fontsize=9, loc="left")  # fmt: skip
            axis.set_xscale("log")
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("avg@4")
        row[0].legend(frameon=False, fontsize=8, loc="best")
    for axis in axes[-1]:
        axis.set_xlabel("rollouts")
    axes[0, 0].set_ylim(0, 1)
    figure.savefig(IMAGES / "grid-curves.png", dpi=120)
    plt.close(figure)


def draw_path(models: dict[str, Fit]) -> None:
    """n* against the budget, with its interval, for both arms."""
    figure, axis = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    colours = {"easy": "#c2255c", "hard": "#4c1d95"}
    for name, fit in models.items():
        colour = colours[name]
        best = [row for row in fit.document["best"] if not row["extrapolated"]]
        x = [row["x"] for row in best]
        low, high = zip(*[row["interval"] for row in best], strict=True)
        axis.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
        axis.plot(x, [row["rollouts_per_problem"] for row in best], color=colour, lw=2,
                  label=name.capitalize(), marker="o", ms=3)  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log", base=2)
    ticks = [4, 16, 64, 256, 1024]
    axis.set(xlabel="rollouts", ylabel="best n, 95% interval", ylim=(4, 1024), yticks=ticks,
             yticklabels=list(map(str, ticks)))  # fmt: skip
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "grid-path.png", dpi=120)
    plt.close(figure)


def main() -> None:
    """Pictures and the block of the page."""
    draw_difficulty()
    tables = {name: t for name in ("hard", "easy") if (t := load(name)) is not None}
    if tables:
        draw_curves(tables)
    models = fits()
    models = {name: fit for name, fit in models.items()
              if len(fit.posterior.configurations) >= FEWEST}  # fmt: skip
    if models:
        draw_path(models)
    there = {name: table.run.nunique() for name, table in tables.items()}
    counted = ", ".join(f"{name} {k} of 27" for name, k in there.items())
    lines = [f"Runs at B_p = {B_P}: {counted}.", "",
             "| claim | mean and 95% interval over seeds | verdict |", "|---|---|---|"]  # fmt: skip
    if models:
        lines = ["![The best n against the budget](images/grid-path.png)", "", *lines]
    lines += [f"| {claim} | {told} | {verdict} |" for claim, told, verdict in claims(models)]
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: "\n".join(lines) + "\n", page), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
