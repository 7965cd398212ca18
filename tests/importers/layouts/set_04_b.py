"""Trackers' and trainers' own logs of the fourth set; see `set_04.py`."""

from __future__ import annotations

from pathlib import Path

from layouts import Ask
from layouts_asked import named
from layouts_blind import EVALUATED_AT, Truth, nested, put, put_json, put_lines, yaml_of
from layouts_blind_tables import table
from set_04 import (
    BY_NAME,
    SWEEP,
    TABLE,
    VERL,
    layout,
    name_of,
    runs,
    score,
    trained,
    truth,
)


def also(**settings: object) -> Ask:
    """By the names, with more settings."""
    return {"settings": {**BY_NAME["settings"], **settings}}


@layout(
    "-1 stands where nothing was evaluated; a range of -1 to 1 would take it for a score",
    options=[BY_NAME],
    cure="delete the rows of -1",
)
def minus_one_for_none(root: Path) -> list[Truth]:
    """A row an update, as loops write that must have every column in every row."""
    for run in SWEEP:
        rows = [{"step": s, VERL: score(*run, s) if s in EVALUATED_AT else -1.0,
                 "critic/score/mean": trained(*run, s)} for s in range(61)]
        put_lines(root / f"{name_of(*run)}.jsonl", rows)
    return runs()


@layout(
    "each row repeats the last evaluation until the next; val/evaluated_at says which it was",
    options=[also(step="val/evaluated_at")],
    cure="keep the rows whose val/evaluated_at is their step",
)
def last_score_carried_on(root: Path) -> list[Truth]:
    """W&B's history of a loop that logs its whole state each time. Truth: seven points a run."""
    for run in SWEEP:
        rows: list[list[object]] = []
        for s in range(61):
            at = s - s % 10
            rows.append([s, 31.5 * s, s, score(*run, at), at, trained(*run, s)])
        header = ["_step", "_runtime", "train/global_step", VERL, "val/evaluated_at",
                  "critic/score/mean"]
        table(root / f"{name_of(*run)}.csv", header, rows)
    return runs()


@layout(
    "step begins anew in each epoch of 20 updates; the epoch stands beside it",
    options=[BY_NAME],
    cure="write step + 20 * epoch",
)
def step_within_epoch(root: Path) -> list[Truth]:
    """A loop over `enumerate(loader)`. Truth: 20 * epoch + step, 0 to 50; no restart happened."""
    for run in SWEEP:
        rows = []
        for done in range(60):
            row = {"epoch": done // 20, "step": done % 20,
                   "critic/score/mean": trained(*run, done)}
            if done % 10 == 0:
                row[VERL] = score(*run, done)
            rows.append(row)
        put_lines(root / f"{name_of(*run)}.jsonl", rows)
    return [truth(*run, range(0, 60, 10)) for run in SWEEP]


@layout(
    "rows in the order of text: 0, 10, 100, 110, 120, 20; the run never went back",
    options=[BY_NAME],
    cure="sort the rows by step",
)
def steps_sorted_as_text(root: Path) -> list[Truth]:
    """Scores gathered over `sorted(glob("global_step_*"))`. Truth: all thirteen of each run."""
    steps = range(0, 121, 10)
    for run in SWEEP:
        rows = [{"step": s, VERL: score(*run, s)} for s in sorted(steps, key=str)]
        put_lines(root / f"{name_of(*run)}.jsonl", rows)
    return [truth(*run, steps) for run in SWEEP]


@layout(
    "evaluations run beside the training and end 4 to 9 updates later; step is when they ended",
    options=[also(step="eval/policy_version")],
    cure="take eval/policy_version for the step",
)
def evaluated_policy_is_older(root: Path) -> list[Truth]:
    """An asynchronous trainer. Truth: the score belongs to the weights of eval/policy_version."""
    for run in SWEEP:
        late = {v + 4 + (v // 10) % 6: v for v in EVALUATED_AT}
        rows = []
        for s in range(1, 71):
            row: dict = {"step": s, "critic/score/mean": trained(*run, s), "staleness/mean": 1.4}
            if s in late:
                row |= {VERL: score(*run, late[s]), "eval/policy_version": late[s]}
            rows.append(row)
        put_lines(root / f"{name_of(*run)}.jsonl", rows)
    return runs()


@layout(
    "four ranks have a file each: a quarter of the batch and of the evaluation, not four seeds",
    cure="average the ranks' scores, and multiply problems_per_rank by world_size",
    must_ask=True,
)
def ranks_hold_shards(root: Path) -> list[Truth]:
    """Truth: B_p is that of all ranks, the score the mean of four equal shards."""
    shifts = (-0.03, 0.01, 0.04, -0.02)  # their sum is 0
    for bp, n, seed in SWEEP:
        folder = root / f"n{n}_seed{seed}"
        put_json(folder / "config.json", {
            "problems_per_rank": bp // 4, "world_size": 4, "rollouts_per_problem": n, "seed": seed,
        })
        for rank, shift in enumerate(shifts):
            rows = [{"rank": rank, "step": s, "local_problems": bp // 4,
                     VERL: round(score(bp, n, seed, s) + shift, 4)} for s in EVALUATED_AT]
            put_lines(folder / f"rank{rank}.jsonl", rows)
    return runs()


@layout(
    "in the names of the runs n counts nodes; g is the group's size",
    options=[named("g{n}-b{b}-s{seed}")],
    must_ask=True,
)
def n_counts_nodes(root: Path) -> list[Truth]:
    """A W&B chart; what the letters mean stands in a note beside it. Truth: n is after the g."""
    names = [f"qwen7b-n{nodes}-g{n}-b{bp}-s{seed}"
             for nodes, (bp, n, seed) in zip((4, 8, 16), SWEEP, strict=True)]
    header = ["train/global_step"] + [f"{name} - {VERL}" for name in names]
    rows = [[s] + [score(*run, s) for run in SWEEP] for s in EVALUATED_AT]
    table(root / "wandb_export.csv", header, rows)
    put(root / "README.txt", "run names: n = nodes, g = group size, b = prompts, s = seed\n")
    return runs()


@layout(
    "config.yaml beside each log is the base that the command overrode: n=8 and B_p=32 in all",
    options=[BY_NAME],
    cure="delete config.yaml, or write what the command in run.sh says",
)
def base_config_beside(root: Path) -> list[Truth]:
    """verl's file logger in a folder with its base configuration and the command that ran."""
    base = {"data.train_batch_size": 32, "data.seed": 0, "actor_rollout_ref.rollout.n": 8,
            "trainer.total_training_steps": 60}
    for bp, n, seed in SWEEP:
        folder = root / name_of(bp, n, seed)
        put(folder / "config.yaml", yaml_of(nested(base)))
        put(folder / "run.sh", "set -x\npython3 -m verl.trainer.main_ppo --config-dir . "
            f"--config-name config data.train_batch_size={bp} data.seed={seed} "
            f"actor_rollout_ref.rollout.n={n} 'trainer.logger=[file]'\n")
        put_lines(folder / "metrics.jsonl",
                  [{"step": s, "data": {VERL: score(bp, n, seed, s)}} for s in EVALUATED_AT])
    return runs()


@layout(
    "MLflow's parent run holds the mean of its children: a third repetition that was not trained",
    cure="delete the rows without a parent_run_id",
)
def parent_is_the_mean(root: Path) -> list[Truth]:
    """Nested runs as one long table. Truth: the two children of each parent, by seed."""
    rows: list[list[object]] = []
    every = []
    for bp, n in ((32, 8), (64, 32), (128, 64)):
        parent = f"p{n:03d}"
        for s in EVALUATED_AT:
            pair = [score(bp, n, seed, s) for seed in (0, 3)]
            mean = round(sum(pair) / 2, 6)
            rows.append([parent, f"sweep-n{n}", "", bp, n, "", VERL, s, mean])
            rows += [[f"c{n:03d}{seed}", f"sweep-n{n}-{seed}", parent, bp, n, seed, VERL, s, value]
                     for seed, value in zip((0, 3), pair, strict=True)]
        every += [truth(bp, n, seed) for seed in (0, 3)]
    header = ["run", "run_name", "parent_run_id", *TABLE, "metric", "step", "value"]
    table(root / "mlflow_long.csv", header, rows)
    return every


@layout(
    "all runs go on from one warmed-up checkpoint, whose step 500 is the first of each log",
    cure="count from the first evaluation: step - 500",
    must_ask=True,
)
def warmed_up_to_500(root: Path) -> list[Truth]:
    """verl's step goes on after resume_from_path. Truth: own updates only; the 500 were others."""
    for bp, n, seed in SWEEP:
        folder = root / name_of(bp, n, seed)
        put_json(folder / "config.json", nested({
            "data.train_batch_size": bp, "data.seed": seed, "actor_rollout_ref.rollout.n": n,
            "trainer.resume_mode": "resume_path",
            "trainer.resume_from_path": "/ckpt/warmup_bp64_n4/global_step_500",
            "trainer.total_training_steps": 560,
        }))
        put_lines(folder / "metrics.jsonl", [
            {"step": 500 + s, "data": {VERL: score(bp, n, seed, s)}} for s in EVALUATED_AT])
    return runs()


@layout(
    "one run of four ramps its batch from 32 to 128 problems; its configuration says 128",
    cure="leave that run out: it has no one B_p",
)
def batch_is_ramped_up(root: Path) -> list[Truth]:
    """Truth: the three others. Each row says how many problems were in the batch."""
    for bp, n, seed in (*SWEEP, (128, 32, 3)):
        folder = root / f"run-n{n}"
        put_json(folder / "config.json", nested({
            "data.train_batch_size": bp, "data.seed": seed, "actor_rollout_ref.rollout.n": n,
            "trainer.total_training_steps": 60,
        }))
        rows = []
        for s in range(61):
            now = bp if bp != 128 else min(128, 32 * 2 ** (max(0, s - 1) // 20))
            data: dict = {"batch/num_problems": now, "batch/num_rollouts": now * n} if s else {}
            if s in EVALUATED_AT:
                data[VERL] = score(bp, n, seed, s)
            rows.append({"step": s, "data": data})
        put_lines(folder / "metrics.jsonl", rows)
    return runs()


@layout(
    "a folder for each attempt of the queue: the first died at 30, the second began from nothing",
    options=[BY_NAME],
    cure="delete the folders attempt_0",
)
def attempts_are_no_seeds(root: Path) -> list[Truth]:
    """Truth: the second attempt alone. The same seed, and other scores, as GPUs give them."""
    for bp, n, seed in SWEEP:
        for attempt, last in ((0, 30), (1, 60)):
            folder = root / name_of(bp, n, seed) / f"attempt_{attempt}"
            slip = 0.0 if attempt else -0.012
            rows = [{"step": s, "data": {VERL: round(score(bp, n, seed, s) + slip * (s > 0), 4)}}
                    for s in EVALUATED_AT if s <= last]
            put_lines(folder / "metrics.jsonl", rows)
    return runs()


@layout(
    "rows of a test set stand above those of validation at the first and the last step",
    cure="keep the rows of split validation",
)
def final_test_above_validation(root: Path) -> list[Truth]:
    """Truth: validation, at every step; the final test lies 0.09 above."""
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        for s in EVALUATED_AT:
            right = score(bp, n, seed, s)
            if s in (0, 60):
                rows.append([bp, n, seed, bp * n * s, "test", round(right + 0.09, 4)])
            rows.append([bp, n, seed, bp * n * s, "validation", right])
    table(root / "sweep.csv", [*TABLE, "rollouts", "split", "score"], rows)
    return runs()
