"""Twenty-eight layouts more, by another hand, committed before a reader was tried on them.

They are what people keep: sheets, charts on other axes, tables turned on their side, loops of their
own. Every layout is a sweep of three runs or more, with one trap.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layouts import B_P, EVERY, LENGTH, UPDATES, Layout, lines, planted, score, trl_params
from layouts_foreign import EVALUATED, NAMED, SIZES, sweep, table, wandb_config
from layouts_unseen import mapped

KEY = "val-core/math/acc/mean@4"


def without_start(truth: dict[tuple[int, int | None], Any]) -> dict[tuple[int, int | None], Any]:
    """Training alone was logged, or nothing was evaluated before it."""
    for points in truth.values():
        points.pop(0.0, None)
    return truth


def instead(name: str, write: Callable[[Path], None]) -> Callable[[Path], None]:
    """The file is taken away, and another is put in its place."""
    def mend(folder: Path) -> None:
        (folder / name).unlink()
        write(folder)
    return mend


def again(folder: Path) -> None:
    """The same chart, on the step."""
    chart(folder / "wandb_export.csv", "train/global_step", lambda n, s: s)


def plain(folder: Path) -> None:
    """The table as the contract has it."""
    rows = [[n, B_P, B_P * n * step, score(n, step)] for n in SIZES for step in EVALUATED]
    table(folder / "plain.csv",
          ["rollouts_per_problem", "problems_per_batch", "rollouts", "score"], rows)


def chart(path: Path, axis: str, x: Callable[[int, int], Any]) -> None:
    """A W&B chart of three runs on another axis; every run has x values of its own."""
    header = [axis]
    for n in SIZES:
        name = f"bp8_n{n} - eval/reward"
        header += [name, f"{name}__MIN", f"{name}__MAX"]
    cells: list[tuple[Any, int, float]] = sorted(
        (x(n, step), SIZES.index(n), score(n, step)) for n in SIZES for step in EVALUATED
    )
    rows = []
    for at, column, value in cells:
        row: list[Any] = [at, *[""] * (3 * len(SIZES))]
        row[1 + 3 * column : 4 + 3 * column] = [value] * 3
        rows.append(row)
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
    path.write_text(text + "\n")


def semicolons_wide(folder: Path) -> Layout:
    """A sheet in German: a byte order mark, semicolons, decimal commas, one column a run."""
    text = ["Update;" + ";".join(f"bp8_n{n}" for n in SIZES)]
    text += [f"{step};" + ";".join(f"{score(n, step):.4f}".replace(".", ",") for n in SIZES)
             for step in EVALUATED]
    (folder / "Auswertung.csv").write_text("\r\n".join(text) + "\r\n", encoding="utf-8-sig")
    truth = {(n, None): planted(n, scale=lambda x: round(x, 4)) for n in SIZES}
    return Layout(truth=truth, first=NAMED)


def dates_index(folder: Path) -> Layout:
    """A data frame whose index is the time of day; the update is another column."""
    for n in SIZES:
        rows = [[f"2026-03-01 {8 + step:02d}:15:00", step, score(n, step), 0.1 + 0.01 * step]
                for step in EVALUATED]
        table(folder / f"bp8_n{n}.csv", ["", "global_step", "eval/accuracy", "train/loss"], rows)
    return Layout(truth=sweep(), first=NAMED, second=mapped("eval/accuracy", "score"))


def small_percent(folder: Path) -> Layout:
    """A hard set, in percent: every score lies below one percent, and only the header says so."""
    rows = [[n, B_P, B_P * n * step, f"{score(n, step):.4f}"] for n in SIZES for step in EVALUATED]
    table(folder / "sweep.csv",
          ["rollouts_per_problem", "problems_per_batch", "rollouts", "score (%)"], rows)
    truth = {(n, None): planted(n, scale=lambda x: round(x, 4) / 100) for n in SIZES}
    settings = {"columns": {"score (%)": "score"}}
    return Layout(truth=truth, second={"settings": settings, "score_range": (0.0, 100.0)})


def two_paces(folder: Path) -> Layout:
    """One set is evaluated every 2 updates, another every 3, each call with a row of its own."""
    for n in SIZES:
        rows: list[list[Any]] = []
        for step in range(UPDATES + 1):
            if step:
                rows.append([len(rows), step, 0.01 * step, None, None])
            if step % 2 == 0:
                rows.append([len(rows), step, None, score(n, step), None])
            if step % 3 == 0:
                rows.append([len(rows), step, None, None, 0.1 + 0.001 * step])
        table(folder / f"bp8_n{n}" / "history.csv",
              ["_step", "training/global_step", "critic/score/mean",
               "val-core/math500/acc/mean@4", "val-core/aime/acc/mean@4"], rows)
    return Layout(truth=sweep(), first={**NAMED, "problem_set": "math500"})


def steps_per_generation(folder: Path) -> Layout:
    """TRL draws one batch for two optimizer steps: they are one update."""
    for n in SIZES:
        args = {"num_generations": n, "per_device_train_batch_size": 2, "num_iterations": 1,
                "gradient_accumulation_steps": B_P * n // 8, "max_steps": 2 * UPDATES,
                "steps_per_generation": 2 * (B_P * n // 8), "eval_steps": EVERY}
        history: list[dict[str, Any]] = []
        for step in range(1, 2 * UPDATES + 1):
            history.append({"step": step, "reward": 0.1, "completions/mean_length": LENGTH,
                            "num_tokens": B_P * n * (LENGTH + 10) * ((step + 1) // 2)})
            if step % (2 * EVERY) == 0:
                history.append({"step": step, "eval_reward": score(n, step // 2)})
        run = folder / f"run{n}"
        lines(run / "log.jsonl", history)
        (run / "args.json").write_text(json.dumps({**args, "global_world_size": 2}))
    return Layout(truth=without_start(sweep()))


def tokens_axis(folder: Path) -> Layout:
    """A chart over the tokens seen."""
    chart(folder / "wandb_export.csv", "num_tokens", lambda n, s: B_P * n * s * 60)
    return Layout(truth=sweep(), first=NAMED, mend=again)


def seconds_axis(folder: Path) -> Layout:
    """A chart over the seconds since the start."""
    chart(folder / "wandb_export.csv", "Relative Time (Process)", lambda n, s: 31 * s * n // 4)
    return Layout(truth=sweep(), first=NAMED, mend=again)


def epochs_axis(folder: Path) -> Layout:
    """A chart over epochs; ten updates are one."""
    chart(folder / "wandb_export.csv", "train/epoch", lambda n, s: s / 10)
    return Layout(truth=sweep(), first=NAMED, mend=again)


def one_without_n(folder: Path) -> Layout:
    """Two names say n, the third is called after what it was for."""
    for n, name in zip(SIZES, ("bp8_n4", "bp8_n8", "baseline"), strict=True):
        lines(folder / f"{name}.jsonl",
              [{"step": step, "data": {KEY: score(n, step)}} for step in EVALUATED])
    settings = {**NAMED["settings"], "problems_per_batch": B_P, "rollouts_per_problem": 16}
    return Layout(truth=sweep(), first=NAMED, second={"settings": settings})


def batch_of_samples(folder: Path) -> Layout:
    """The folder says n; `batch_size` beside the log counts samples, of a loop of one's own."""
    for n in SIZES:
        run = folder / f"G{n}"
        lines(run / "metrics.jsonl",
              [{"step": step, KEY: score(n, step)} for step in EVALUATED])
        (run / "config.json").write_text(
            json.dumps({"batch_size": B_P * n, "lr": 1e-6, "model": "Qwen/Qwen2.5-7B"}))
    first = {"pattern": "G{rollouts_per_problem}"}
    return Layout(truth=sweep(), first={"settings": first},
                  second={"settings": {**first, "problems_per_batch": B_P}})


def own_loop(folder: Path) -> Layout:
    """A loop of one's own counts from 0 and evaluates after every second update."""
    for n in SIZES:
        rows = []
        for i in range(UPDATES):
            row = {"iter": i, "reward_mean": 0.1 + 0.01 * i, "lr": 1e-6}
            if (i + 1) % EVERY == 0:
                row["eval/acc"] = score(n, i + 1)
            rows.append(row)
        lines(folder / f"bp8_n{n}.jsonl", rows)
    settings = {**NAMED["settings"], "step": "iter", "columns": {"eval/acc": "avg"}}
    return Layout(truth=without_start(sweep()), first=NAMED, second={"settings": settings})


def resumed_history(folder: Path) -> Layout:
    """W&B went on counting calls when the job went back to update 6; what was done again counts."""
    for n in SIZES:
        rows: list[list[Any]] = []
        for first, last, off in ((0, 8, 0.01), (7, UPDATES, 0.0)):
            for step in range(first, last + 1):
                if step:
                    rows.append([len(rows), step, 0.2, None])
                if step % EVERY == 0:
                    wrong = off if step > 6 else 0.0
                    rows.append([len(rows), step, None, score(n, step) - wrong])
        table(folder / f"bp8_n{n}" / "history.csv",
              ["_step", "train/global_step", "train/reward", "eval/reward"], rows)
    return Layout(truth=sweep(), first=NAMED)


def unsloth_notebook(folder: Path) -> Layout:
    """The table under a notebook's cell, pasted: rewards of the batches only, with tabs."""
    for n in SIZES:
        text = ["Step\tTraining Loss\treward\treward_std\tcompletions / mean_length\tkl"]
        text += [f"{step}\t0.000{step:02d}00\t{score(n, step):.6f}\t0.3\t{LENGTH}\t0.0001"
                 for step in range(1, UPDATES + 1)]
        (folder / f"bp8_n{n}.tsv").write_text("\n".join(text) + "\n")
    truth = {(n, None): planted(n, scale=lambda x: round(x, 6), every=1) for n in SIZES}
    return Layout(truth=without_start(truth), first=NAMED, second={**NAMED, "split": "train"})


def tensorboard_pivot(folder: Path) -> Layout:
    """TensorBoard's data frame: one writer for training and one for evaluation in every run."""
    rows: list[list[Any]] = []
    for n in SIZES:
        rows += [[f"bp8_n{n}/eval", step, score(n, step), None] for step in EVALUATED]
        rows += [[f"bp8_n{n}/train", step, None, 0.02 * step] for step in range(1, UPDATES + 1)]
    table(folder / "scalars.csv", ["run", "step", "eval/reward", "train/reward"], rows)
    return Layout(truth=sweep(), first=NAMED)


def pivoted_headers(folder: Path) -> Layout:
    """A pivoted data frame as it is saved: the metric above the run above the name of the index."""
    text = ["," + ",".join(["accuracy"] * 3), "run," + ",".join(f"bp8_n{n}" for n in SIZES),
            "step" + "," * 3]
    text += [f"{step}," + ",".join(str(score(n, step)) for n in SIZES) for step in EVALUATED]
    path = folder / "pivot.csv"
    path.write_text("\n".join(text) + "\n")

    def mend(folder: Path) -> None:
        path.write_text("\n".join([text[1].replace("run", "step"), *text[3:]]) + "\n")

    return Layout(truth=sweep(), first=NAMED, mend=mend)


def slime_train_steps(folder: Path) -> Layout:
    """slime on the step of its optimizer, which moves four times for a batch of rollouts."""
    for n in SIZES:
        run = folder / f"run-{n}"
        wandb_config(run / "config.yaml", {
            "rollout_batch_size": B_P, "n_samples_per_prompt": n, "num_rollout": UPDATES,
            "global_batch_size": B_P * n // 4, "eval_interval": EVERY,
            "wandb_always_use_train_step": True, "n_samples_per_eval_prompt": 4,
        })
        rows: list[dict[str, Any]] = [{"eval/step": 0, "eval/math500": score(n, 0)}]
        for index in range(UPDATES):
            rows.append({"rollout/step": 4 * index, "rollout/raw_reward": 0.1,
                         "rollout/response_len/mean": LENGTH})
            rows += [{"train/step": 4 * index + i, "train/loss": 0.01} for i in range(4)]
            if (index + 1) % EVERY == 0:
                rows.append({"eval/step": 4 * index, "eval/math500": score(n, index + 1)})
        for count, row in enumerate(rows):
            row["_step"] = count
        lines(run / "history.jsonl", rows)
    return Layout(truth=sweep())


def nemo_config(folder: Path) -> Layout:
    """NeMo-RL's whole configuration: five batch sizes, one of which is B_p."""
    for n in SIZES:
        run = folder / f"exp_{n:03d}"
        wandb_config(run / "config.yaml", {
            "grpo": {"num_prompts_per_step": B_P, "num_generations_per_prompt": n,
                     "max_num_steps": UPDATES, "val_period": EVERY, "val_at_start": True,
                     "max_val_samples": 256, "val_batch_size": 64, "seed": 42},
            "policy": {"model_name": "Qwen/Qwen2.5-1.5B", "train_global_batch_size": B_P * n,
                       "train_micro_batch_size": 4, "generation_batch_size": 32},
        })
        rows: list[list[Any]] = [[0, 0, None, None, score(n, 0, 42), 91.0]]
        for step in range(1, UPDATES + 1):
            now = score(n, step, 42) if step % EVERY == 0 else None
            rows.append([step, step, 0.04 * step, LENGTH, now, 90.0 if now else None])
        table(run / "history.csv",
              ["_step", "train/step", "train/reward", "train/mean_gen_tokens_per_sample",
               "validation/accuracy", "validation/avg_length"],
              [[row[0], row[1] or None, *row[2:]] for row in rows])
    return Layout(truth={(n, 42): planted(n, 42) for n in SIZES})


def grouped_chart(folder: Path) -> Layout:
    """A chart grouped by n: the mean of the seeds, with their smallest and largest beside it."""
    header = ["train/global_step"]
    for n in SIZES:
        name = f"num_generations: {n} - eval/reward"
        header += [name, f"{name}__MIN", f"{name}__MAX"]
    rows = [[step, *(value for n in SIZES for value in
                     (score(n, step), score(n, step) - 0.02, score(n, step) + 0.03))]
            for step in EVALUATED]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
    (folder / "wandb_export_2026-02-02T10_00_00.000+01_00.csv").write_text(text + "\n")
    settings = {"pattern": "num_generations: {rollouts_per_problem}", "problems_per_batch": B_P}
    return Layout(truth=sweep(), first={"settings": settings})


def quoted_thousands(folder: Path) -> Layout:
    """A sheet in English: 1,536 rollouts in quotes, and headers in capitals."""
    rows = [[n, B_P, f'"{B_P * n * step:,}"', score(n, step)] for n in SIZES for step in EVALUATED]
    table(folder / "Sweep.csv",
          ["Rollouts_per_problem", "Problems_per_batch", "Rollouts", "Score"], rows)
    return Layout(truth=sweep(), mend=instead("Sweep.csv", plain))


def workbook(folder: Path) -> Layout:
    """The workbook itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("[Content_Types].xml", "<Types/>")
        packed.writestr("xl/workbook.xml", "<workbook/>")
    (folder / "sweep.xlsx").write_bytes(buffer.getvalue())
    return Layout(truth=sweep(), mend=instead("sweep.xlsx", plain))


def signed_rewards(folder: Path) -> Layout:
    """verl with DAPO's rewards of -1 and 1 beside the accuracy; here all of both lie in 0..1."""
    for n in SIZES:
        rows: list[dict[str, Any]] = []
        for step in range(UPDATES + 1):
            data: dict[str, Any] = {"critic/score/mean": 0.1, "response_length/mean": LENGTH}
            if step % EVERY == 0:
                accuracy = 0.5 + score(n, step) / 4
                data |= {"val-aux/math_dapo/score/mean@4": 2 * accuracy - 1,
                         "val-aux/math_dapo/reward/mean@4": 2 * accuracy - 1,
                         "val-core/math_dapo/acc/mean@4": accuracy,
                         "val-core/math_dapo/acc/best@4/mean": accuracy + 0.1,
                         "val-core/math_dapo/acc/maj@4/mean": accuracy + 0.05}
            rows.append({"step": step, "data": data})
        lines(folder / f"bp8_n{n}.jsonl", rows)
    truth = {(n, None): planted(n, scale=lambda x: 0.5 + x / 4) for n in SIZES}
    return Layout(truth=truth, first=NAMED)


def seed_columns(folder: Path) -> Layout:
    """A row per n and update, a column per seed."""
    rows = [[n, B_P, step, *(score(n, step, seed) for seed in range(3))]
            for n in SIZES for step in EVALUATED]
    table(folder / "sweep.csv",
          ["rollouts_per_problem", "problems_per_batch", "step", "seed_0", "seed_1", "seed_2"],
          rows)
    return Layout(truth={(n, seed): planted(n, seed) for n in SIZES for seed in range(3)})


def best_so_far(folder: Path) -> Layout:
    """The best so far stands before the score itself, and no row is its own best."""
    for n in SIZES:
        rows, best = [], 0.0
        for step in EVALUATED:
            now = score(n, step) - (0.05 if step == 8 else 0.0)
            best = max(best, now)
            rows.append({"step": step, "eval/best_accuracy": best, "eval/accuracy": now})
        lines(folder / f"bp8_n{n}.jsonl", rows)
    truth = sweep()
    for (n, _), points in truth.items():
        points[float(B_P * n * 8)] -= 0.05
    return Layout(truth=truth, first=NAMED, second=mapped("eval/accuracy", "avg"))


def nested_rows(folder: Path) -> Layout:
    """Objects in objects, as a loop of one's own dumps them; pass@4 stands first."""
    for n in SIZES:
        lines(folder / f"bp8_n{n}.jsonl", [
            {"step": step, "train": {"reward": 0.1, "kl": 0.001},
             "eval": {"math500": {"pass@4": score(n, step) + 0.1, "avg@4": score(n, step)}}}
            for step in EVALUATED])
    return Layout(truth=sweep(), first=NAMED)


def gzipped(folder: Path) -> Layout:
    """Logs packed when they were put away, one of them still unpacked beside its pack."""
    for n in SIZES:
        text = "".join(json.dumps({"step": step, "data": {KEY: score(n, step)}}) + "\n"
                       for step in EVALUATED)
        (folder / f"bp8_n{n}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "bp8_n4.jsonl").write_text(
        "".join(json.dumps({"step": step, "data": {KEY: score(4, step)}}) + "\n"
                for step in EVALUATED))
    return Layout(truth=sweep(), first=NAMED)


def utf16_tabs(folder: Path) -> Layout:
    """What Excel calls text: UTF-16, tabs."""
    text = ["rollouts_per_problem\tproblems_per_batch\trollouts\tscore"]
    text += [f"{n}\t{B_P}\t{B_P * n * step}\t{score(n, step)}" for n in SIZES
             for step in EVALUATED]
    (folder / "Sweep.txt").write_text("\r\n".join(text) + "\r\n", encoding="utf-16")
    return Layout(truth=sweep(), mend=instead("Sweep.txt", plain))


def minibatch_steps(folder: Path) -> Layout:
    """TRL with two passes over each batch: one step of rollouts is two of the optimizer."""
    for n in SIZES:
        history: list[dict[str, Any]] = [{"config": trl_params(n, num_iterations=2, max_steps=24)}]
        for update in range(1, UPDATES + 1):
            history.append({"step": 2 * update, "reward": 0.1, "completions/mean_length": LENGTH})
            if update % EVERY == 0:
                history.append({"step": 2 * update, "eval_reward": score(n, update)})
        lines(folder / f"run{n}" / "history.jsonl", history)
    return Layout(truth=without_start({(n, 3): planted(n) for n in SIZES}))


def runs_table(folder: Path) -> Layout:
    """The table of runs: one row for each, with the last value of everything."""
    header: Sequence[str] = ["Name", "State", "Created", "Runtime", "num_generations", "batch",
                             "eval/reward", "train/global_step"]
    rows = [[f"bp8_n{n}", "finished", "2026-02-02T10:00:00.000Z", 3600 + n, n, B_P,
             score(n, UPDATES), UPDATES] for n in SIZES]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [list(header), *rows])
    (folder / "wandb_runs.csv").write_text(text + "\n")
    return Layout(truth=sweep(), first=NAMED, mend=instead("wandb_runs.csv", again))


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    f.__name__: f
    for f in (
        semicolons_wide, dates_index, small_percent, two_paces, steps_per_generation, tokens_axis,
        seconds_axis, epochs_axis, one_without_n, batch_of_samples, own_loop, resumed_history,
        unsloth_notebook, tensorboard_pivot, pivoted_headers, slime_train_steps, nemo_config,
        grouped_chart, quoted_thousands, workbook, signed_rewards, seed_columns, best_so_far,
        nested_rows, gzipped, utf16_tabs, minibatch_steps, runs_table,
    )
}
