"""Claims and pictures of docs/grid.md, from the packed grid.

    python grid/summarise.py

Writes the blocks between marks of docs/grid.md, and docs/images/grid-*.png. What a claim is
judged on are runs that differ in nothing but their seed: the mean over seeds with its interval by
Student's t, at 95%; of a difference between two arms, of the differences seed by seed.

Shape legend: P problems; S seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import stats
from scorecard.panels import save

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
MARK, END = "<!-- {}, made by grid/summarise.py -->\n", "<!-- end -->\n"
B_P = 32
DPI = 120
SHOWN_N = (4, 32, 256, 1024)
LEAST = 0.02  # a change of score below this is none: a third of what the n of the grid spread over
LEAST_ENTROPY = 0.02  # nats: a fifteenth of what the base model has
LEVEL = 0.5  # octaves that n* may still move over the last two octaves of the budget
FEWEST = 3  # seeds of an interval, n of a path
SETS = ("very_easy", "easy", "hard", "extremely_hard")
ANCHOR_END = 524_288  # rollouts of the runs of `anchor`; those that `scaling` shares go on
SCALED_AT = (131_072, ANCHOR_END, 2_097_152)  # 2.1M: where n = 4 has had its 20,000 updates


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


def span(chosen: Sequence[int], tested: Sequence[int]) -> str:
    """Some of the n that were tested, in words: "4, 32 to 128 and 1,024"."""
    parts: list[list[int]] = []
    for n in chosen:
        after = parts and tested.index(n) == tested.index(parts[-1][-1]) + 1
        parts = [*parts[:-1], [*parts[-1], n]] if after else [*parts, [n]]
    told = []
    for part in parts:
        whole = [f"{part[0]:,} to {part[-1]:,}"]
        told += whole if len(part) > 2 else [f"{n:,}" for n in part]
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + f" and {told[-1]}"


def together(verdict_N: Mapping[int, str]) -> str:
    """What the verdicts of several n say: for which n it holds, does not, is open."""
    words = {"holds": "holds", "does not": "does not hold", "open": "open"}
    groups = {w: [n for n, one in verdict_N.items() if one == w] for w in words}
    there = {w: chosen for w, chosen in groups.items() if chosen}
    if len(there) == 1:
        word = next(iter(there))
        return "does not hold for any n" if word == "does not" else f"{word} for every n"
    told = [f"{words[w]} for n = {span(chosen, list(verdict_N))}" for w, chosen in there.items()]
    last = next(reversed(there))
    if len(there[last]) > 2:
        told[-1] = f"{words[last]} for the others"
    return ", ".join(told)


def by_n(rows: pd.DataFrame, sign: int, *, least: float = LEAST) -> tuple[str, str]:
    """The mean over n and its range; what the estimates of each n say together."""
    each = {int(n): estimate(group.value) for n, group in rows.groupby("rollouts_per_problem")}
    mean = estimate(rows.groupby("seed").value.mean())
    low, high = (pick(each, key=lambda n: each[n].mean) for pick in (min, max))
    told = f"{mean}; by n from {each[low].mean:+.3f} (n = {low:,}) to {each[high].mean:+.3f}"
    return f"{told} (n = {high:,})", together({n: one.says(sign, least) for n, one in each.items()})


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


def moved_late(fit: Fit) -> tuple[float, float, float]:
    """Octaves that n* moves over the last two octaves of the budget: median, interval."""
    x_X, log2_n_DX = fit.path
    start = int(np.searchsorted(x_X, x_X[-1] - 2 * np.log10(2) - 1e-9))
    low, middle, high = np.quantile(log2_n_DX[:, -1] - log2_n_DX[:, start], (0.025, 0.5, 0.975))
    return float(middle), float(low), float(high)


def compared(fit: Fit) -> list[dict[str, Any]]:
    """The best n at the budgets where configurations are compared."""
    return [row for row in fit.document["best"] if not row["extrapolated"]]


def best_n(row: Mapping[str, Any]) -> str:
    """n* with its interval."""
    low, high = row["interval"]
    return f"{row['rollouts_per_problem']:,.0f} [{low:,.0f}, {high:,.0f}]"


def level(fit: Fit) -> tuple[str, str]:
    """n* at a few budgets, and whether it still moved over the last two octaves of them."""
    best = compared(fit)
    if len(best) < 2 or fit.posterior.n_runs_J.min() < FEWEST:
        return "an n has fewer than three runs", "open"
    shown = [best[round(i)] for i in np.linspace(0, len(best) - 1, 5)]
    told = ", ".join(f"{best_n(row)} at {compact(row['x'])}" for row in shown)
    moved, low, high = moved_late(fit)
    told = f"{told}; over the last two octaves of rollouts {moved:+.1f} octaves [{low:+.1f}, "
    verdict = "holds" if high < LEVEL else "does not: still rising" if low > LEVEL else "open"
    if verdict == "open" and moved > LEVEL:
        verdict = "open: rising in the median, no level is seen"
    return f"{told}{high:+.1f}]", verdict


def rise(fit: Fit) -> tuple[str, str]:
    """The claimed rise of n*."""
    rising = fit.document["law"]["rising"]
    told = f"{rising['octaves']:.1f} octaves, at least {rising['lower_bound']:.1f}"
    return told, "holds" if rising["claimed"] else "open"


def lower_on_hard(models: dict[str, Fit]) -> tuple[str, str]:
    """n* at the end of the support, Hard against Easy."""
    last = {name: compared(fit)[-1] for name, fit in models.items()}
    told = "; ".join(
        f"{name.capitalize()}: {best_n(row)} at {compact(row['x'])}" for name, row in last.items()
    )
    easy, hard = last["easy"]["interval"], last["hard"]["interval"]
    return told, "holds" if hard[1] < easy[0] else "does not" if hard[0] > easy[1] else "open"


def entropies(table: pd.DataFrame, problem_set: str) -> pd.DataFrame:
    """Entropy of each run's own samples: mean of the first updates, of the last, and its change."""
    rows = table[(table.problem_set == problem_set) & (table.split == "validation")]
    rows = rows[rows.entropy.notna()].sort_values("rollouts")
    grouped = rows.groupby(["rollouts_per_problem", "seed"]).entropy
    both = pd.DataFrame({"first": grouped.first(), "last": grouped.last()}).reset_index()
    return both.assign(value=both["last"] - both["first"])


def entropy_claims(plain: pd.DataFrame, regularised: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Entropy with and without the terms, before and after: both of them, by n."""
    arms = {"without": entropies(plain, "easy"), "with": entropies(regularised, "easy")}
    keys = ["rollouts_per_problem", "seed"]
    both = arms["with"].merge(arms["without"], on=keys, suffixes=("_with", "_without"))
    told = []
    for n, rows in both.groupby("rollouts_per_problem"):
        arm = [
            f"{rows[f'first_{name}'].mean():.3f} to {rows[f'last_{name}'].mean():.4f} {name}"
            for name in ("with", "without")
        ]
        told.append(f"n = {n:,}: {', '.join(arm)}")
    fell = by_n(arms["without"], -1, least=LEAST_ENTROPY)
    kept = by_n(both.assign(value=both.last_with - both.last_without), 1, least=LEAST_ENTROPY)
    return [
        ("Entropy falls without regularisers (Easy; nats a token, last updates less first)", *fell),
        ("A KL term and an entropy bonus of 0.001 keep the entropy up (Easy; nats a token, first "
         "updates to last, with the terms and without)", "; ".join(told), kept[1]),
    ]  # fmt: skip


def words(problem_set: str) -> str:
    """Name of a set as a reader knows it."""
    return problem_set.replace("_", " ").title()


def claims(models: dict[str, Fit]) -> list[tuple[str, str, str]]:
    """(claim, estimates, verdict), as far as there are runs."""
    rows: list[tuple[str, str, str]] = []
    for name, fit in models.items():
        rows.append((f"n* rises with the budget ({name.capitalize()})", *rise(fit)))
        rows.append((f"n* levels off ({name.capitalize()})", *level(fit)))
    if len(models) == len(("easy", "hard")):
        rows.append(("n* levels off lower on Hard than on Easy", *lower_on_hard(models)))
    hard, easy = load("hard"), load("easy")
    if hard is not None:
        for name in ("very_easy", "easy"):
            rows.append((f"Interference: training on Hard lowers avg@4 of {words(name)}",
                         *by_n(change(hard, name), -1)))  # fmt: skip
        rows.append(("Forgetting: the end of a run on Hard lies below its best",
                     *by_n(forgetting(hard, "hard"), -1)))  # fmt: skip
        rows.append(("Coverage: more than 0.05 of Hard is never right in 16 at the end",
                     *by_n(never(hard, "hard"), 1, least=0.05)))  # fmt: skip
        for name in ("very_easy", "hard"):
            rows.append((f"Training on Hard lowers pass@16 of {words(name)} below the base model's",
                         *by_n(change(best_of_16(hard), name, "pass16"), -1)))  # fmt: skip
    if easy is not None:
        rows.append(("Transfer: training on Easy raises avg@4 of Hard",
                     *by_n(change(easy, "hard"), 1)))  # fmt: skip
        rows.append(("Forgetting: the end of a run on Easy lies below its best",
                     *by_n(forgetting(easy, "easy"), -1)))  # fmt: skip
        for name in ("easy", "hard"):
            rows.append((f"Training on Easy lowers pass@16 of {words(name)} below the base model's",
                         *by_n(change(best_of_16(easy), name, "pass16"), -1)))  # fmt: skip
    plain, regularised = load("easy-plain"), load("hard-regularised")
    if easy is not None and plain is not None:
        rows += entropy_claims(plain, easy)
        rows.append(("Easy ends lower without regularisers (0.005 counts)",
                     *by_n(pairs(plain, easy, "easy", "score"), -1, least=0.005)))  # fmt: skip
    if hard is not None and regularised is not None:
        rows.append(("Hard ends lower with the regularisers of Easy",
                     *by_n(pairs(regularised, hard, "hard", "score"), -1)))  # fmt: skip
    return rows


def summary(models: dict[str, Fit]) -> list[str]:
    """What the world shows and does not, for the top of the page."""
    hard, easy = models["hard"], models["easy"]
    rising, last = hard.document["law"]["rising"], compared(hard)[-1]
    moved, low, high = moved_late(hard)
    lines = [
        f"- On Hard the best n rises by {rising['octaves']:.1f} octaves (at least "
        f"{rising['lower_bound']:.1f}), to {best_n(last)} at {compact(last['x'])} rollouts. No "
        f"level is seen: over the last two octaves of rollouts it moves by {moved:+.1f} octaves "
        f"[{low:+.1f}, {high:+.1f}]. A world in which it rises as far and levels "
        "off is the longer `bits` ([scorecard](scorecard.md), rows 1 to 4).",
    ]
    tables = {name: load(name) for name in ("hard", "easy")}
    if any(table is None for table in tables.values()):
        return lines
    early = tables["easy"]
    early = early[(early.problem_set == "easy") & (early.split == "validation")]
    early = early[(early.rollouts > 200_000) & (early.rollouts <= 300_000)]
    score_N = early.groupby("rollouts_per_problem").score.mean()
    solved = [n for n in score_N.index if score_N[n] > 0.985]
    ends = at_end(tables["easy"], "easy").groupby("rollouts_per_problem").score.mean()
    lines.append(
        f"- On Easy nearly everything is solved early: by 300,000 rollouts "
        f"{score_N[solved].min():.3f} to {score_N[solved].max():.3f} for n = "
        f"{span(solved, list(ends.index))}. All n end between {ends.min():.3f} and "
        f"{ends.max():.3f}, so after that n* there ({best_n(compared(easy)[-1])} at the end) "
        "says little."
    )
    start = tables["hard"]
    start = start[(start.rollouts == 0) & (start.problem_set == "very_easy")].score.mean()
    left = at_end(tables["hard"], "very_easy").groupby("rollouts_per_problem").score.mean()
    lines.append(
        f"- Training on Hard destroys what the base model knew: avg@4 of Very Easy falls from "
        f"{start:.2f} to {left.max():.2f} (n = {left.idxmax():,}) or less, {left.min():.2f} at n = "
        f"{left.idxmin():,}."
    )
    return lines


def until(table: pd.DataFrame, rollouts: int, problem_set: str = "hard") -> pd.DataFrame:
    """The last row of each run on one set, as if it had ended at a budget."""
    return at_end(table[table.rollouts <= rollouts], problem_set)


def unsigned(one: Estimate) -> str:
    """A score with its interval."""
    half = "" if one.interval is None else f" ± {one.interval[1] - one.mean:.3f}"
    return f"{one.mean:.3f}{half}"


def rate_table() -> list[str]:
    """Final score by learning rate and n, and whether n at their best rates differ."""
    table = load("anchor")
    if table is None:
        return ["No runs yet."]
    rows = until(table, ANCHOR_END)
    rates = sorted(rows.learning_rate.unique())
    shown = [f"{rate * 1e3:g}e-3" if rate > 9e-4 else f"{rate * 1e4:g}e-4" for rate in rates]
    lines = ["| n (batch) | " + " | ".join(shown) + " |", "|---" * (len(rates) + 1) + "|"]
    best: dict[int, tuple[int, pd.Series]] = {}
    for n, part in rows.groupby("rollouts_per_problem"):
        score = [part[part.learning_rate == rate].set_index("seed").score for rate in rates]
        top = int(np.argmax([one.mean() for one in score]))
        best[int(n)] = top, score[top]
        cells = [unsigned(estimate(one)) for one in score]
        cells[top] = f"**{cells[top]}**"
        lines.append(f"| {n:,} ({n * B_P:,}) | " + " | ".join(cells) + " |")
    least, *others = best
    gaps = [
        f"n = {n:,} less n = {least:,} is {estimate(best[n][1] - best[least][1])}" for n in others
    ]
    chosen = [
        f"n = {n:,}: {unsigned(estimate(score))} at {shown[top]}"
        for n, (top, score) in best.items()
    ]
    tied = all(
        (one := estimate(best[n][1] - best[least][1])).interval is not None
        and one.interval[0] < 0 < one.interval[1]
        for n in others
    )
    told = "no n is seen to lead" if tied else "the n differ"
    lines += [
        "",
        f"With the best rate for each n {told} at this budget ({'; '.join(chosen)}): "
        f"{', '.join(gaps)}. {at_edges(rows, rates, shown)}".rstrip(),
    ]
    return lines


def at_edges(rows: pd.DataFrame, rates: Sequence[float], shown: Sequence[str]) -> str:
    """Which n do best, or as well but for `LEAST`, at the smallest or the largest rate tried."""
    mean = rows.pivot_table(index="rollouts_per_problem", columns="learning_rate", values="score")
    told = []
    for place, word in ((0, "smallest"), (-1, "largest")):
        lost_N = mean.max(axis=1) - mean[rates[place]]
        for n in lost_N.index[lost_N < LEAST]:
            how = "does best" if lost_N[n] == 0 else f"loses {lost_N[n]:.3f} only"
            told.append(f"n = {n:,} {how} at the {word} rate tried ({shown[place]})")
    return f"{', and '.join(told)}: better rates may lie beyond." if told else ""


def scaling_table() -> list[str]:
    """Scores of three n under three scalings of the rate, and what n gains on the smallest."""
    scaled, root = load("scaling"), load("hard")
    if scaled is None or root is None:
        return ["No runs yet."]
    tested = sorted(scaled.rollouts_per_problem.unique())
    arms = {"constant": scaled[scaled.arm == "constant"],
            "square root": root[root.rollouts_per_problem.isin(tested)],
            "linear": scaled[scaled.arm == "linear"]}  # fmt: skip
    least, *others = tested
    heads = [f"n = {n:,}" for n in tested] + [f"{n:,} less {least:,}" for n in others]
    lines = ["| rollouts | rate | " + " | ".join(heads) + " |",
             "|---" * (len(heads) + 2) + "|"]  # fmt: skip
    for rollouts in SCALED_AT:
        for name, table in arms.items():
            rows = until(table, rollouts)
            score = {n: rows[rows.rollouts_per_problem == n].set_index("seed").score
                     for n in tested}  # fmt: skip
            cells = [unsigned(estimate(score[n])) for n in tested]
            cells += [str(estimate(score[n] - score[least])) for n in others]
            lines.append(f"| {compact(rollouts)} | {name} | " + " | ".join(cells) + " |")
    return lines


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
    save(figure, IMAGES / "grid-difficulty.png", DPI)
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
    save(figure, IMAGES / "grid-curves.png", DPI)
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
    save(figure, IMAGES / "grid-path.png", DPI)
    plt.close(figure)


def main() -> None:
    """Pictures and the block of the page."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from docs_runner import on_one_processor  # the path is set just above

    on_one_processor()
    draw_difficulty()
    tables = {name: t for name in ("hard", "easy") if (t := load(name)) is not None}
    if tables:
        draw_curves(tables)
    models = fits()
    models = {name: fit for name, fit in models.items()
              if len(fit.posterior.configurations) >= FEWEST}  # fmt: skip
    if models:
        draw_path(models)
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in blocks(models).items():
        page = put(page, name, lines)
        print("\n".join(lines))
    PAGE.write_text(page, encoding="utf-8")


def put(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with other lines in one of its blocks."""
    head, mark, rest = page.partition(MARK.format(name))
    _, end, tail = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{PAGE} has no block {name!r}")
    return "".join([head, mark, "".join(f"{line}\n" for line in lines), end, tail])


def blocks(models: dict[str, Fit]) -> dict[str, list[str]]:
    """Every block of the page by its name."""
    there = {name: table.run.nunique() for name in ("hard", "easy")
             if (table := load(name)) is not None}  # fmt: skip
    counted = ", ".join(f"{name.capitalize()} {k} of 27" for name, k in there.items())
    lines = [f"Runs at B_p = {B_P}: {counted}.", "",
             "| claim | estimate | verdict |", "|---|---|---|"]  # fmt: skip
    if models:
        lines = ["![The best n against the budget](images/grid-path.png)", "", *lines]
    lines += [f"| {claim} | {told} | {verdict} |" for claim, told, verdict in claims(models)]
    made = {"claims": lines, "rates": rate_table(), "scaling": scaling_table()}
    return {"summary": summary(models), **made} if len(models) == 2 else made


if __name__ == "__main__":
    main()
