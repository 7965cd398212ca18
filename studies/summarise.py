"""Study folders -> the small files, tables and figures that this repository keeps of them.

    python studies/summarise.py FOLDER... -o studies/results

Each FOLDER is what `isocompute run STUDY.yaml -o FOLDER` wrote. Of each this writes NAME.csv
(tidy curves, as `isocompute export` does; a SOURCE of fit, plan and compare), and of all together
runs.csv (one row per run), tables.md and figures.

Intervals are Student's 95% over seeds, unless a table says otherwise.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from isocompute.metrics import progress, score_from_histogram
from isocompute.report.canvas import canvas
from isocompute.store import Store
from isocompute.store.arms import arm_labels
from isocompute.store.export import export_study

LAST = 0.2  # share of a run's rollouts whose batches give its train score and health at the end


@dataclass(frozen=True)
class Row:
    """One run: scores are avg@4 on validation unless they say otherwise."""

    study: str
    arm: str
    problems_per_batch: int
    rollouts_per_problem: int
    seed: int
    state: str
    steps: int
    rollouts: int
    start: float
    final: float
    best_so_far: float
    best_at: int
    final_best4: float
    final_worst4: float
    train: float  # reward of the last batches
    gap: float  # train minus final
    interference: float  # of validation problems, start to end: loss / (gain + loss)
    uniform_progress: float
    never: float  # share of validation problems without a success at the end
    entropy: float
    kl: float
    length_start: float
    length_end: float
    zero_variance: float
    wall_s: float


def read(folder: Path) -> list[Row]:
    """The runs of a study."""
    rows = []
    with Store(folder) as store:
        runs = store.runs()
        arms = arm_labels(runs)
        for run, arm in zip(runs, arms, strict=True):
            name = sorted(run.spec["validation"])[0]
            evaluations = store.evaluations(run.hash)
            mine = evaluations.problem_set_K == name
            counts_KC, at_K = evaluations.counts_KC[mine], evaluations.rollouts_K[mine]
            if not len(at_K) or run.rollouts == 0:
                continue
            score_K = [score_from_histogram(c, "avg@4") for c in counts_KC]
            best = int(np.argmax(score_K))
            _, successes_KP = store.successes(run.hash, name)
            moved = progress(successes_KP[0], successes_KP[-1], 4, 4)
            steps = store.steps(run.hash)
            last = np.flatnonzero(steps.rollouts_K > (1 - LAST) * run.rollouts)
            first = np.flatnonzero(steps.rollouts_K <= max(1, LAST * run.rollouts / 4))
            first = first if len(first) else np.array([0])

            def mean(
                health: str, where: np.ndarray, of: dict[str, np.ndarray] = steps.health
            ) -> float:
                values = of.get(health)
                return math.nan if values is None else float(np.nanmean(values[where]))

            train = mean("reward", last)
            rows.append(Row(
                study=folder.name, arm=" ".join(w.split("=")[1] for w in arm.split()),
                problems_per_batch=run.spec["problems_per_batch"],
                rollouts_per_problem=run.spec["rollouts_per_problem"], seed=run.spec["seed"],
                state=run.state, steps=run.steps_done, rollouts=run.rollouts,
                start=score_K[0], final=score_K[-1], best_so_far=score_K[best],
                best_at=int(at_K[best]),
                final_best4=score_from_histogram(counts_KC[-1], "best@4"),
                final_worst4=score_from_histogram(counts_KC[-1], "worst@4"),
                train=train, gap=train - score_K[-1],
                interference=math.nan if moved.interference is None else moved.interference,
                uniform_progress=(
                    math.nan if moved.uniform_progress is None else moved.uniform_progress
                ),
                never=float(counts_KC[-1][0] / counts_KC[-1].sum()),
                entropy=mean("entropy", last), kl=mean("kl", last),
                length_start=mean("length_tokens", first), length_end=mean("length_tokens", last),
                zero_variance=mean("zero_variance_share", last), wall_s=run.wall_s,
            ))  # fmt: skip
    return rows


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width over seeds; the half-width of fewer than two is NaN."""
    known = np.array([v for v in values if not math.isnan(v)])
    if len(known) < 2:
        return (float(known.mean()) if len(known) else math.nan), math.nan
    half = student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known))
    return float(known.mean()), float(half)


def shown(values: Sequence[float], digits: int = 3) -> str:
    """`0.812 ±0.010`."""
    mean, half = interval(values)
    if math.isnan(mean):
        return "-"
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ±{half:.{digits}f}")


def difference(a: Iterable[Row], b: Iterable[Row], of: Callable[[Row], float]) -> list[float]:
    """b - a, seed by seed."""
    by_seed = {row.seed: of(row) for row in a}
    return [of(row) - by_seed[row.seed] for row in b if row.seed in by_seed]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def configurations(rows: Sequence[Row]) -> dict[tuple[str, int, int], list[Row]]:
    """Runs that differ in the seed alone."""
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        key = (row.arm, row.problems_per_batch, row.rollouts_per_problem)
        groups.setdefault(key, []).append(row)
    return dict(sorted(groups.items()))


def grid_table(rows: Sequence[Row]) -> str:
    """Scores of every configuration at the end of its budget."""
    lines = []
    for (arm, problems, n), group in configurations(rows).items():
        lines.append([
            arm, problems, n, len(group), group[0].steps,
            shown([r.final for r in group]), shown([r.best_so_far for r in group]),
            shown([r.final_best4 for r in group]), shown([r.final_worst4 for r in group]),
            shown([r.train for r in group]), shown([r.gap for r in group]),
            shown([r.interference for r in group], 2), shown([r.never for r in group]),
            shown([r.entropy for r in group], 2), shown([r.length_end for r in group], 1),
        ])  # fmt: skip
    head = ["arm", "B_p", "n", "seeds", "M", "final avg@4", "best so far", "best@4", "worst@4",
            "train", "train - validation", "interference", "never right", "entropy",
            "tokens"]  # fmt: skip
    return table(head, lines)


def contrast_table(rows: Sequence[Row], reference: Callable[[str], str]) -> str:
    """Every arm against its reference arm, paired by seed, configuration by configuration."""
    groups = configurations(rows)
    lines = []
    for (arm, problems, n), group in groups.items():
        other = groups.get((reference(arm), problems, n), [])
        same = reference(arm) == arm or not other
        lines.append([
            arm, problems, n, len(group), shown([r.final for r in group]),
            "" if same else shown(difference(other, group, lambda r: r.final)),
            shown([r.best_so_far for r in group]),
            "" if same else shown(difference(other, group, lambda r: r.best_so_far)),
            shown([r.train for r in group]), shown([r.entropy for r in group], 2),
            shown([r.kl for r in group], 2), sum(r.state != "done" for r in group) or "",
        ])  # fmt: skip
    head = ["arm", "B_p", "n", "seeds", "final avg@4", "against reference", "best so far",
            "against reference", "train", "entropy", "KL", "not done"]  # fmt: skip
    return table(head, lines)


def curves_figure(rows: Sequence[Row], source: Path, target: Path, title: str) -> None:
    """Mean validation score of every configuration, the seeds' range shaded."""
    points: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    with source.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            key = (
                line.get("arm", ""), line["problems_per_batch"], line["rollouts_per_problem"]
            )  # fmt: skip
            at = points.setdefault(key, {})
            at.setdefault(int(line["rollouts"]), []).append(float(line["score"]))
    figure, axes = canvas(title, f"validation avg@4, {len(rows)} runs; shaded: range of the seeds")
    several = len({(arm, bp) for arm, bp, _ in points}) > 1
    for arm, problems, n in sorted(points, key=lambda k: (k[0], int(k[1]), int(k[2]))):
        at = points[(arm, problems, n)]
        x = sorted(v for v in at if v > 0)
        y = [np.mean(at[v]) for v in x]
        label = f"n = {n}"
        if several:
            label += f", B_p = {problems}" + (f", {arm.split('=')[-1]}" if arm else "")
        (line_,) = axes.plot(x, y, label=label, linewidth=1.2)
        axes.fill_between(
            x, [min(at[v]) for v in x], [max(at[v]) for v in x], color=line_.get_color(),
            alpha=0.12, linewidth=0,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("rollouts")
    axes.legend(fontsize=6, ncol=2)
    figure.savefig(target, dpi=110)


REFERENCES: dict[str, Callable[[str], str]] = {
    "ablation": lambda arm: " ".join([arm.split()[0], "none"]) if " " in arm else "none",
    "scaling": lambda arm: "sqrt",
    "objectives": lambda arm: "grpo",
    "baseline": lambda arm: "all",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    everything: list[Row] = []
    tables = []
    for folder in options.folders:
        rows = read(folder)
        everything += rows
        name = folder.name
        curves = options.output / f"{name}.csv"
        export_study(folder, curves)
        kind = name.partition("-")[0]
        if kind in REFERENCES:
            tables.append(f"## {name}\n\n" + contrast_table(rows, REFERENCES[kind]))
        else:
            tables.append(f"## {name}\n\n" + grid_table(rows))
    with (options.output / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(everything[0])), lineterminator="\n")
        writer.writeheader()
        for row in everything:
            writer.writerow({
                k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(row).items()
            })  # fmt: skip
    (options.output / "tables.md").write_text(
        "# Tables of the studies\n\nWritten by `studies/summarise.py`.\n\n"
        + "\n\n".join(tables) + "\n",
        encoding="utf-8",
    )  # fmt: skip


if __name__ == "__main__":
    main()
