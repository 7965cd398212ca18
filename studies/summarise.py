"""Study folders -> the small files, tables and figures that this repository keeps of them.

    python studies/summarise.py FOLDER... -o studies/results

Each FOLDER is what `isocompute run STUDY.yaml -o FOLDER` wrote. Of each this writes NAME.csv, or
NAME.parquet (tidy curves, as `isocompute export` does; a SOURCE of fit, plan and compare), and of
all together runs.csv (one row per run) and tables.md; `--into PAGE` writes the tables into a page,
between markers, and into docs/findings the figures own-NAME.png that it shows.

What is kept stays, what is new is added: a run is known by its study, arm, B_p, n and seed.

Evenness is `metrics.progress`'s uniform progress from step 0 to the end, 1 where every problem
gained alike. The train score is that of the batches of the last fifth.

Intervals are Student's 95% over seeds, unless a table says otherwise.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from scipy.stats import t as student

from isocompute.metrics import score_from_histogram
from isocompute.spread import progress
from isocompute.store import Store
from isocompute.store.arms import arm_labels
from isocompute.store.export import export_study

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "grid"))

from scorecard.panels import save  # noqa: E402 (the folder is not installed)

FIGURES = ROOT / "docs" / "findings"
CONTRASTS = ("ablation", "scaling", "objectives", "baseline")
LAST = 0.2  # share of a run's rollouts whose batches give its train score and health at the end
Line = Mapping[str, str]  # of a CSV file


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

            right = sum(int(steps.successes[i].sum()) for i in last)
            drawn = sum(int(steps.samples_K[i]) * steps.successes[i].size for i in last)
            train = right / drawn
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


def as_line(row: Row) -> Line:
    """A run as it stands in runs.csv."""
    return {k: f"{v:.5g}" if isinstance(v, float) else str(v) for k, v in asdict(row).items()}


def as_row(line: Line) -> Row:
    """A run as it was kept."""
    kinds: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}
    return Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in fields(Row)})  # type: ignore[arg-type]


def lines_of(file: Path) -> list[Line]:
    """A CSV or Parquet file; none where it is not there yet."""
    if not file.exists():
        return []
    if file.suffix == ".parquet":
        rows = pq.read_table(file).to_pylist()
        return [
            {k: f"{v:.17g}" if isinstance(v, float) else str(v) for k, v in row.items()}
            for row in rows
        ]
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def write_lines(file: Path, lines: Sequence[Line]) -> None:
    """A CSV or Parquet file."""
    if file.suffix == ".parquet":
        words = ("arm", "run", "metric", "problem_set", "split")
        rows = [{k: v if k in words else float(v) for k, v in line.items()} for line in lines]
        pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd")
        return
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def added(kept: Sequence[Line], new: Sequence[Line]) -> list[Line]:
    """What is kept, and of what is new the runs that are not there yet.

    Raises:
        SystemExit: other columns, or arms told apart by other words, as where a folder holds fewer.
    """
    words = [
        sorted({w.partition("=")[0] for x in of for w in x.get("arm", "").split() if "=" in w})
        for of in (kept, new)
    ]
    if kept and new and (list(kept[0]) != list(new[0]) or words[0] != words[1]):
        raise SystemExit(
            f"what is new must have the columns and arms of what is kept, {list(kept[0])} told "
            f"apart by {words[0]}, but has {list(new[0])} by {words[1]}; train two arms at least."
        )

    def run(line: Line) -> tuple[str, ...]:
        keys = ("arm", "problems_per_batch", "rollouts_per_problem", "seed")
        return tuple(line.get(key, "") for key in ("study", *keys))

    there = {run(line) for line in kept}
    return [*kept, *(line for line in new if run(line) not in there)]


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
    """B - a, seed by seed."""
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
            arm or "-", problems, n, len(group), group[0].steps,
            shown([r.final for r in group]), shown([r.best_so_far for r in group]),
            shown([r.final_best4 for r in group]), shown([r.final_worst4 for r in group]),
            shown([r.train for r in group]), shown([r.gap for r in group]),
            shown([r.uniform_progress for r in group], 2),
            shown([r.length_end for r in group], 1),
        ])  # fmt: skip
    head = ["arm", "B_p", "n", "seeds", "M", "final avg@4", "best so far", "best@4", "worst@4",
            "train", "train - validation", "evenness", "tokens"]  # fmt: skip
    return table(head, lines)


def reference_of(row: Row) -> tuple[str, str, int] | None:
    """(study, arm, n) that a run is set against; None: it is a reference itself, or has none."""
    kind, _, world = row.study.partition("-")
    n = row.rollouts_per_problem
    if kind == "ablation":
        recipe, problems = row.arm.split()
        return None if recipe == "none" else (row.study, f"none {problems}", n)
    if kind == "scaling":
        return None if row.arm == "sqrt" else (row.study, "sqrt", n)
    if kind in ("objectives", "baseline"):
        if world == "bits" and kind == "objectives":
            return None if row.arm == "grpo" else (row.study, "grpo", n)
        return (world, "large" if world == "bits" else "", n)
    return None


def contrast_table(rows: Sequence[Row], everything: Sequence[Row]) -> str:
    """Every arm against its reference, paired by seed, at the same B_p, n and rollouts."""
    lines = []
    for (arm, problems, n), group in configurations(rows).items():
        wanted = reference_of(group[0])
        other = [
            row for row in everything
            if wanted == (row.study, row.arm, row.rollouts_per_problem)
            and row.problems_per_batch == problems and row.rollouts == group[0].rollouts
        ]  # fmt: skip
        lines.append([
            arm or "-", problems, n, len(group), group[0].steps,
            shown([r.final for r in group]),
            shown(difference(other, group, lambda r: r.final)) if other else "",
            shown([r.best_so_far for r in group]),
            shown(difference(other, group, lambda r: r.best_so_far)) if other else "",
            shown([r.train for r in group]), shown([r.entropy for r in group], 2),
            shown([r.kl for r in group], 2), shown([r.length_end for r in group], 1),
            sum(r.state != "done" for r in group) or "",
        ])  # fmt: skip
    head = ["arm", "B_p", "n", "seeds", "M", "final avg@4", "against reference", "best so far",
            "against reference", "train", "entropy", "KL", "tokens", "not done"]  # fmt: skip
    return table(head, lines)


def sets_table(curves: Sequence[Line]) -> str:
    """Scores at the start and at the end on every validation set, one row per arm and n."""
    names = list(dict.fromkeys(line["problem_set"] for line in curves))
    runs: dict[tuple[str, int, str, str], list[tuple[int, float]]] = {}
    for line in curves:
        arm, n = line["arm"].partition("=")[2], int(line["rollouts_per_problem"])
        of = runs.setdefault((arm, n, line["problem_set"], line["seed"]), [])
        of.append((int(line["rollouts"]), float(line["score"])))
    ends: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for (arm, n, name, seed), points in runs.items():
        # The start of a seed is that of all its runs.
        for key, (_, score) in ((("before", 0), min(points)), ((arm, n), max(points))):
            ends.setdefault(key, {}).setdefault(name, {})[seed] = score
    rows = [
        [arm if n else "(before)", n or "", len(by_set[names[0]]),
         *(shown(list(by_set[name].values())) for name in names)]
        for (arm, n), by_set in sorted(ends.items())
    ]  # fmt: skip
    return table(["trained on", "n", "runs", *names], rows)


def curves_figure(source: Path, title: str) -> Figure:
    """Mean validation score of every configuration, the seeds' range shaded, a panel per arm."""
    points: dict[tuple[str, int, int], dict[int, list[float]]] = {}
    for line in lines_of(source):
        arm = " ".join(w.split("=")[1] for w in line.get("arm", "").split())
        key = (arm, int(line["problems_per_batch"]), int(line["rollouts_per_problem"]))
        at = points.setdefault(key, {})
        at.setdefault(int(line["rollouts"]), []).append(float(line["score"]))
    contrast = title.partition("-")[0] in CONTRASTS
    # Arms side by side within a panel where they are to be compared; else n side by side.
    panels = sorted({(k[0].split()[1:] or [""])[0] if contrast else k[0] for k in points})
    figure = Figure(figsize=(4.6 * len(panels), 3.4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for arm, problems, n in sorted(points):
            if panel not in ((arm.split()[1:] or [""])[0] if contrast else arm,):
                continue
            at = points[(arm, problems, n)]
            x = sorted(v for v in at if v > 0 and len(at[v]) > 1)
            mean = [float(np.mean(at[v])) for v in x]
            several = len({k[2] for k in points}) > 1
            label = arm.split()[0] + (f", n = {n}" if several else "") if contrast and arm else (
                f"B_p = {problems}, n = {n}"
            )  # fmt: skip
            style = "--" if problems > 16 and not contrast else "-"
            (drawn,) = axes.plot(x, mean, style, label=label, linewidth=1.2)
            low, high = [min(at[v]) for v in x], [max(at[v]) for v in x]
            axes.fill_between(x, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlabel("rollouts")
        axes.set_title(" ".join((title, panel)).strip(), fontsize=9)
        axes.legend(fontsize=6)
    figure.axes[0].set_ylabel("avg@4; shaded: range of seeds")
    return figure


def fill(page: Path, name: str, made: str) -> None:
    """Write a table between its markers on a page, if they are there."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: written by studies/summarise.py -->\n", "<!-- end -->"
    before, found, rest = text.partition(begin)
    if found:
        after = rest.partition(end)[2]
        page.write_text(f"{before}{begin}{made}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Read, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--format", choices=("csv", "parquet"), default="csv",
        help="of NAME; parquet is a seventh of the size",
    )
    parser.add_argument("--into", type=Path, help="a page with markers for the tables")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    lines = lines_of(options.output / "runs.csv")
    for folder in options.folders:
        rows = read(folder)
        if any(row.state == "pending" for row in rows):
            raise SystemExit(f"{folder} must be finished, since what is kept stays; run it first.")
        lines = added(lines, [as_line(row) for row in rows])
        file = options.output / f"{folder.name}.{options.format}"
        with tempfile.TemporaryDirectory() as apart:
            export_study(folder, Path(apart, file.name))
            write_lines(file, added(lines_of(file), lines_of(Path(apart, file.name))))
    studies = list(dict.fromkeys(line["study"] for line in lines))
    lines.sort(key=lambda line: studies.index(line["study"]))
    write_lines(options.output / "runs.csv", lines)
    everything = [as_row(line) for line in lines]
    tables = []
    for name in studies:
        file = options.output / f"{name}.parquet"
        file = file if file.exists() else file.with_suffix(".csv")
        rows = [r for r in everything if r.study == name]
        kind = name.partition("-")[0]
        if kind == "mixtures":
            made = sets_table(lines_of(file))
        else:
            made = contrast_table(rows, everything) if kind in CONTRASTS else grid_table(rows)
        tables.append(f"## {name}\n\n{made}")
        if options.into is not None:
            fill(options.into, name, made)
            if f"own-{name}.png" in options.into.read_text(encoding="utf-8"):
                save(curves_figure(file, name), FIGURES / f"own-{name}.png", 90)
    (options.output / "tables.md").write_text(
        "# Tables of the studies\n\nWritten by `studies/summarise.py`.\n\n"
        + "\n\n".join(tables) + "\n",
        encoding="utf-8",
    )  # fmt: skip


if __name__ == "__main__":
    main()
