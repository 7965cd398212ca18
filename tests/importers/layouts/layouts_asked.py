"""The blind layouts as `test_layouts` tries them: what is asked for, and what is typed then."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import layouts_blind_tables
import layouts_blind_trainers
from layouts import Ask, Layout
from layouts_blind import LAYOUTS as WRITTEN
from layouts_blind import Truth

# importing them enters their layouts
assert layouts_blind_tables
assert layouts_blind_trainers


def asking(metric: str | None = None, **settings: object) -> Ask:
    """What a user adds: settings, and a metric."""
    ask: Ask = {"settings": settings} if settings else {}
    return ask | ({"metric": metric} if metric else {})


def named(pattern: str, **settings: object) -> Ask:
    """B_p, n and seed by the names of files, in short."""
    for short, name in (("{b}", "problems_per_batch"), ("{n}", "rollouts_per_problem")):
        pattern = pattern.replace(short, f"{{{name}}}")
    return asking(pattern=pattern, **settings)


# The second try, and what the error of the first one must say.
SECOND: dict[str, tuple[str, Ask]] = {
    "easyr1_experiment_log": (r"add --metric avg@1:accuracy", asking("avg@1:accuracy")),
    "nemo_rl_history": (r"counts calls of log .* --set step=_step", asking(step="_step")),
    "skyrl_chart_csv": (r"must be known, .*--set pattern=", named("tbs{b}-nspp{n}-s{seed}")),
    "open_instruct_metrics": (
        r"name the score .--map eval/objective/verifiable_correct_rate=avg",
        asking(columns={"eval/objective/verifiable_correct_rate": "avg@1"}),
    ),
    "unsloth_checkpoints": (
        r"must be known, .*pattern='bp\{problems_per_batch\}_gen\{rollouts_per_problem\}_seed",
        named("bp{b}_gen{n}_seed{seed}") | {"score_range": (0.0, 2.0)},
    ),
    "verl_signed_reward": (
        r"must be known, .*--set pattern=",
        named("tbs{b}-n{n}-seed{seed}") | {"score_range": (-1.0, 1.0)},
    ),
    "lm_eval_folders": (
        r"must be known, .*pattern='bp\{problems_per_batch\}_n\{rollouts_per_problem\}_seed",
        named("bp{b}_n{n}_seed{seed}"),
    ),
    "comet_export": (
        r"not read: eval_accuracy, .*--map",
        named("9f{n}", problems_per_batch=8, columns={"eval_accuracy": "avg@1"}),
    ),
    "trackio_rows": (
        r"step says 18 where train/global_step says 60; .*--set step=train/global_step",
        named("forest-{n}", problems_per_batch=8, step="train/global_step"),
    ),
    "aim_dataframe": (
        r"not read: accuracy\).*--map.* 2\) `problems_per_batch` must be",
        asking(problems_per_batch=8, columns={"accuracy": "avg@1"}),
    ),
    "long_with_gaps": (
        r"not read: pass@4, mean@4, .*--map",
        named("run-{n}", problems_per_batch=8, columns={"mean@4": "avg@4"}),
    ),
    "timestamps_as_index": (
        r"score are missing \(it has , run, seed, batch_prompts, .*--map",
        named("r{n}-{seed}", problems_per_batch=8, step="update", columns={"solve_rate": "avg@1"}),
    ),
    "two_sets_and_their_mean": (
        r"not read: eval/aime24/accuracy, .*--map",
        named("run{n}", problems_per_batch=8, columns={"eval/average/accuracy": "avg@1"}),
    ),
    "pandas_two_headers": (
        r"add --set pattern='problems_per_batch\{problems_per_batch\}_rollouts_per_problem\{",
        asking(pattern="problems_per_batch{problems_per_batch}_"
                       "rollouts_per_problem{rollouts_per_problem}"),
    ),
}  # fmt: skip
# Where a table of one's own is the cure.
REWRITTEN = {
    "wandb_chart_by_time": r"the step on its x axis, .*'Relative Time \(Process\)'",
    "excel_american": r"column problems_per_batch .* row 23 has 'Total'; correct or empty",
    "mlflow_search_runs": r"are missing \(it has run_id, status, params.data.train_batch",
    "swanlab_chart": r"are missing \(it has step, bp8-n4-seed0-val/accuracy",
    "epochs_for_steps": r"are missing \(it has epoch, val_accuracy\)",
}
REFUSED = {name: line for name, (line, _) in SECOND.items()} | REWRITTEN
# The seed stands where no reader looks: in a column of a JSON row.
SEEDLESS = ("comet_export",)


def points(runs: list[Truth], *, seeds: bool) -> dict:
    """Score by rollouts of each run, as `test_layouts` compares them."""
    return {
        (run.rollouts_per_problem, run.seed if seeds else None): {
            float(run.rollouts[step]): score for step, score in run.scores.items()
        }
        for run in runs
    }


def rewrite(runs: list[Truth]) -> Callable[[Path], None]:
    """The user gives the table that the error asks for."""

    def mend(folder: Path) -> None:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with (folder / "own.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["problems_per_batch", "rollouts_per_problem", "seed", "rollouts", "score"]
            )
            for run in runs:
                b_p, n, seed = run.problems_per_batch, run.rollouts_per_problem, run.seed
                for step, score in run.scores.items():
                    cells = [b_p, n, "" if seed is None else seed, run.rollouts[step], score]
                    writer.writerow(cells)

    return mend


def entry(name: str) -> Callable[[Path], Layout]:
    def write(folder: Path) -> Layout:
        runs = WRITTEN[name].write(folder)
        if runs is None:  # the file does not hold the answer; another export does
            runs = WRITTEN["excel_american"].write(folder / "unused")
            shutil.rmtree(folder / "unused")
        _, second = SECOND.get(name, ("", None))
        return Layout(
            truth=points(runs, seeds=name not in SEEDLESS),
            second=second,
            mend=rewrite(runs) if name in REWRITTEN else None,
        )

    return write


LAYOUTS = {name: entry(name) for name in WRITTEN}
