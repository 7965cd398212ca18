"""A third set of layouts by another mind, committed before a reader was tried on them.

What users keep of trackers and tables; `layouts_third_trainers.py` has the trainers' own logs and
consoles. Each layout is a sweep of three runs or more with one trap; `right` is None where the
files do not hold the answer. Names of columns and keys are facts of the named packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from layouts_blind import EVALUATED_AT, SWEEP, Blind, Truth, put, put_json, put_lines, score, truth
from layouts_blind_tables import table

LAYOUTS: dict[str, Blind] = {}
TRAINED = range(5, 61, 5)


def layout(trap: str) -> Callable[[Callable[[Path], list[Truth] | None]], object]:
    """Enter the function under its own name."""

    def enter(write: Callable[[Path], list[Truth] | None]) -> object:
        LAYOUTS[write.__name__] = Blind(trap=trap, write=write)
        return write

    return enter


def runs(*, seeds: bool = True, after: int = 0) -> list[Truth]:
    """The sweep; without its seeds where no file says them, from its first evaluation on."""
    every = []
    for bp, n, seed in SWEEP:
        whole = truth(bp, n, seed)
        every.append(
            Truth(
                problems_per_batch=bp,
                rollouts_per_problem=n,
                seed=seed if seeds else None,
                scores={step: right for step, right in whole.scores.items() if step >= after},
                rollouts=whole.rollouts,
            )
        )
    return every


def trl_arguments(bp: int, n: int, seed: int) -> dict[str, object]:
    """TRL's GRPOConfig as it is saved: its generation batch holds B_p * n samples."""
    return {
        "per_device_train_batch_size": n,
        "gradient_accumulation_steps": bp,
        "steps_per_generation": bp,
        "generation_batch_size": bp * n,
        "num_generations": n,
        "num_iterations": 1,
        "learning_rate": 1e-6,
        "max_steps": 60,
        "seed": seed,
    }


@layout("train and eval share one name; metric.context.subset alone tells them apart")
def aim_frames(root: Path) -> list[Truth]:
    """Aim 3.29 Metric.dataframe(include_run, include_name, include_context), put one on another."""
    header = ["idx", "step", "value", "epoch", "time", "run.hash"]
    keys = list(trl_arguments(8, 4, 0))
    header += [f"run.hparams.{key}" for key in keys]
    header += ["metric.name", "metric.context.subset"]
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        given = list(trl_arguments(bp, n, seed).values())
        for subset, shift, steps in (("train", 0.2, TRAINED), ("eval", 0.0, EVALUATED_AT)):
            for index, step in enumerate(steps):
                value = round(score(n, seed, step) + shift, 4)
                when = f"2026-09-01 10:{step // 2:02d}:00.120000"
                rows.append([index, step, value, step / 60, when, f"6f3ac{n:03d}d"]
                            + given + ["reward", subset])
    table(root / "aim.csv", ["", *header], [[i, *row] for i, row in enumerate(rows)])
    return runs()


@layout("a column of milliseconds beside each curve; train and eval share a file")
def swanlab_openapi(root: Path) -> list[Truth]:
    """SwanLab OpenApi.get_metrics(...).to_csv(): step, KEY, KEY_timestamp; a file a run."""
    for bp, n, seed in SWEEP:
        keys = ["eval/reward", "train/reward"]
        header = ["step"] + [cell for key in keys for cell in (key, f"{key}_timestamp")]
        rows: list[list[object]] = []
        for step in range(0, 61, 5):
            right = score(n, seed, step)
            at = 1756720000000 + 30000 * step
            seen = [right, at] if step in EVALUATED_AT else ["", ""]
            rows.append([step, *seen, *([round(right + 0.2, 4), at] if step else ["", ""])])
        table(root / f"grpo-bp{bp}-n{n}-seed{seed}.csv", header, rows)
    return runs()


@layout("one list of points a key, times in milliseconds; the answer of the service around them")
def swanlab_api_json(root: Path) -> list[Truth]:
    """SwanLab 0.10 `swanlab api run metrics --save`: {"ok", "errmsg", "data": {KEY: [points]}}."""
    for bp, n, seed in SWEEP:
        points = [
            {"step": s, "value": score(n, seed, s), "timestamp": 1756720000000 + 30000 * s}
            for s in EVALUATED_AT
        ]
        train = [{"step": s, "value": 0.7, "timestamp": 1756720000000} for s in TRAINED]
        answer = {"ok": True, "errmsg": "", "data": {"eval/reward": points, "train/reward": train}}
        put_json(root / f"grpo-bp{bp}-n{n}-seed{seed}.json", answer)
    return runs()


@layout("all runs in one wide table with steps as 10.0; the settings in a second table")
def neptune_query(root: Path) -> list[Truth]:
    """neptune-query fetch_metrics() and fetch_experiments_table(), both through to_csv()."""
    rows: list[list[object]] = []
    settings: list[list[object]] = []
    for bp, n, seed in SWEEP:
        name = f"calm-otter-{n}"
        settings.append([name, bp * n, n, seed, 1e-6])
        for step in range(0, 61, 5):
            right = score(n, seed, step)
            rows.append([name, f"{step:.1f}", right if step in EVALUATED_AT else "",
                         round(right + 0.1, 4) if step else ""])
    table(root / "metrics.csv", ["experiment", "step", "eval/reward", "train/reward"], rows)
    header = ["experiment", "params/generation_batch_size", "params/num_generations",
              "params/seed", "params/learning_rate"]
    table(root / "experiments.csv", header, settings)
    return runs()


@layout("the metric is the file's path, the score's column has its last part only")
def dvclive_plots(root: Path) -> list[Truth]:
    """DVCLive 3: dvclive/plots/metrics/eval/reward.tsv (step, reward), params.yaml beside."""
    for bp, n, seed in SWEEP:
        folder = root / f"bp{bp}_n{n}_seed{seed}" / "dvclive"
        given = "".join(f"{k}: {json.dumps(v)}\n" for k, v in trl_arguments(bp, n, seed).items())
        put(folder / "params.yaml", given)
        for split, shift, steps in (("eval", 0.0, EVALUATED_AT), ("train", 0.2, TRAINED)):
            rows = [[s, round(score(n, seed, s) + shift, 4)] for s in steps]
            table(folder / "plots" / "metrics" / split / "reward.tsv", ["step", "reward"], rows,
                  "\t")
        put_json(folder / "metrics.json", {"eval": {"reward": 0.6}, "step": 60})
    return runs()


@layout("every file is 0000.parquet; _step counts calls of log, three an update")
def wandb_history_parquet(root: Path) -> list[Truth]:
    """W&B's artifact run-ID-history:v0, downloaded; TRL's keys."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for bp, n, seed in SWEEP:
        rows, call = [], 0
        for step in range(0, 61, 5):
            for key, value in (
                ("train/reward", 0.5 if step else None),
                ("eval/reward", score(n, seed, step) if step in EVALUATED_AT else None),
                ("profiling/Time taken: GRPOTrainer._prepare_inputs", 0.1),
            ):
                row = dict.fromkeys(
                    ["train/reward", "eval/reward",
                     "profiling/Time taken: GRPOTrainer._prepare_inputs"]
                )
                row |= {"_step": call, "_runtime": 2.0 * call, "_timestamp": 1.756e9 + 2 * call}
                rows.append({**row, key: value, "train/global_step": step})
                call += 1
        path = root / f"bp{bp}_n{n}_seed{seed}" / "run-ab12cd-history-v0" / "0000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    return runs()


@layout("one chart of two metrics: the train reward of each run stands before its evaluation")
def wandb_chart_two_metrics(root: Path) -> list[Truth]:
    names = [f"bp{bp}_n{n}_seed{seed}" for bp, n, seed in SWEEP]
    header = ["train/global_step"]
    for name in names:
        for key in ("train/reward", "eval/reward"):
            header += [f"{name} - {key}", f"{name} - {key}__MIN", f"{name} - {key}__MAX"]
    rows: list[list[object]] = []
    for step in EVALUATED_AT:
        cells: list[object] = [step]
        for _, n, seed in SWEEP:
            right = score(n, seed, step)
            cells += [round(right + 0.15, 4)] * 3 + [right] * 3
        rows.append(cells)
    table(root / "wandb_export_2026-09-01T10_00_00.000+02_00.csv", header, rows)
    return runs()


@layout("two seeds have the same display name, so two columns have the same header")
def wandb_chart_same_names(root: Path) -> list[Truth]:
    sweep = [(8, n, seed) for n in (4, 16) for seed in (0, 1)]
    header = ["train/global_step"] + [f"grpo-bp{bp}-n{n} - eval/reward" for bp, n, _ in sweep]
    rows = [[s] + [score(n, seed, s) for _, n, seed in sweep] for s in EVALUATED_AT]
    table(root / "wandb_export.csv", header, rows)
    return [truth(*run) for run in sweep]


@layout("W&B's name of the run was changed by hand: n stands in its notes, not in its name")
def wandb_runs_table_beside(root: Path) -> list[Truth]:
    """A chart, and the runs' table (Name, State, Notes, Tags, settings) exported beside it."""
    names = ["baseline", "bigger groups", "huge groups, final"]
    header = ["train/global_step"] + [f"{name} - eval/reward" for name in names]
    rows = [[s] + [score(n, seed, s) for _, n, seed in SWEEP] for s in EVALUATED_AT]
    table(root / "chart.csv", header, rows)
    table(
        root / "runs.csv",
        ["Name", "State", "Notes", "Tags", "num_generations", "generation_batch_size", "seed",
         "eval/reward"],
        [[name, "finished", f"n={n}", "", n, bp * n, seed, 0.1]
         for name, (bp, n, seed) in zip(names, SWEEP, strict=True)],
    )
    return runs()


@layout("Excel's first line sep=; comes before the header")
def excel_sep_line(root: Path) -> list[Truth]:
    lines = ["sep=;", "problems_per_batch;rollouts_per_problem;seed;rollouts;score"]
    lines += [f"{bp};{n};{seed};{bp * n * s};{score(n, seed, s)}"
              for bp, n, seed in SWEEP for s in EVALUATED_AT]
    put(root / "sweep.csv", "\r\n".join(lines) + "\r\n")
    return runs()


@layout("a title and an empty row stand above the header")
def sheet_with_title(root: Path) -> list[Truth]:
    rows: list[list[object]] = [["", "", "", "", ""]]
    rows.append(["problems_per_batch", "rollouts_per_problem", "seed", "rollouts", "score"])
    rows += [[bp, n, seed, bp * n * s, score(n, seed, s)]
             for bp, n, seed in SWEEP for s in EVALUATED_AT]
    table(root / "september.csv", ["GRPO sweep, September", "", "", "", ""], rows)
    return runs()


@layout("tokens are counted in thousands under the plain name tokens")
def tokens_in_thousands(root: Path) -> list[Truth]:
    header = ["problems_per_batch", "rollouts_per_problem", "seed", "rollouts", "tokens", "score"]
    rows = [[bp, n, seed, bp * n * s, bp * n * s * 240 / 1000, score(n, seed, s)]
            for bp, n, seed in SWEEP for s in EVALUATED_AT]
    table(root / "sweep.csv", header, rows)
    return [
        Truth(problems_per_batch=t.problems_per_batch, rollouts_per_problem=t.rollouts_per_problem,
              seed=t.seed, scores=t.scores, rollouts=t.rollouts,
              tokens={s: 240 * c for s, c in t.rollouts.items()})
        for t in runs()
    ]


@layout("rollouts are those of one update, not their sum: the same number in each row of a run")
def rollouts_of_each_update(root: Path) -> None:
    header = ["problems_per_batch", "rollouts_per_problem", "seed", "rollouts", "score"]
    rows = [[bp, n, seed, bp * n, score(n, seed, s)] for bp, n, seed in SWEEP for s in EVALUATED_AT]
    table(root / "sweep.csv", header, rows)


@layout("two runs in 0..1 and one in percent: a colleague's code")
def one_in_percent(root: Path) -> None:
    for bp, n, seed in SWEEP:
        scale = 100 if n == 16 else 1
        rows = [{"step": s, "eval_accuracy": round(scale * score(n, seed, s), 2)}
                for s in EVALUATED_AT]
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)


@layout("no step at all: a time stands in its place")
def times_only(root: Path) -> None:
    for bp, n, seed in SWEEP:
        rows = [{"ts": f"2026-09-01T10:{s:02d}:00Z", "eval/accuracy": score(n, seed, s)}
                for s in EVALUATED_AT]
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)


@layout("the older half of the log was rotated away to metrics.jsonl.1")
def rotated_log(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        folder = root / f"bp{bp}_n{n}_seed{seed}"
        rows = [{"step": s, "val-core/math/acc/mean@4": score(n, seed, s)} for s in EVALUATED_AT]
        lines = [{"step": row["step"], "data": row} for row in rows]
        put_lines(folder / "metrics.jsonl.1", lines[:4])
        put_lines(folder / "metrics.jsonl", lines[4:])
    return runs()


@layout("the log of the second node ends early, for that node died; clocks differ")
def node_died(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        for node, last in ((0, 60), (1, 30)):
            rows = [
                {"step": s, "data": {"val-core/math/acc/mean@4": score(n, seed, s),
                                     "perf/time_per_step": 30.5 + node + s / 9}}
                for s in EVALUATED_AT if s <= last
            ]
            put_lines(root / f"bp{bp}_n{n}_seed{seed}" / f"node{node}.jsonl", rows)
    return runs()


@layout("each n was trained at three learning rates; those are no seeds")
def learning_rates_mixed(root: Path) -> list[Truth]:
    """verl's file logger with the configuration beside it; the answer is one rate's sweep."""
    every = []
    for bp, n, seed in SWEEP:
        for index, rate in enumerate((5e-7, 1e-6, 2e-6)):
            folder = root / f"n{n}_lr{rate:g}"
            put_json(folder / "config.json", {
                "data": {"train_batch_size": bp, "seed": seed},
                "actor_rollout_ref": {"rollout": {"n": n}, "actor": {"optim": {"lr": rate}}},
            })
            rows = [{"step": s, "data": {
                "val-core/math/acc/mean@4": round(score(n, seed, s) - 0.03 * abs(index - 1), 4)}}
                for s in EVALUATED_AT]
            put_lines(folder / "metrics.jsonl", rows)
        every.append(truth(bp, n, seed))
    return every
