"""Set 40, layouts 8 to 14: trackers' exports, evaluations, tables and a script of one's own."""

import csv
import io
import json
import sqlite3
from pathlib import Path

from set_40_truth import (
    Layout,
    Truth,
    curve,
    put,
    put_lines,
    reward,
    rollouts,
)


def open_instruct_history(folder: Path) -> Truth:
    """open-instruct: W&B histories as CSV; its global_step is the count of rollouts."""
    curves = {}
    settings = {}
    for n in (4, 8, 16):
        name = f"grpo_olmo_n{n}__1__17900{n:02d}"
        points = curve(64, n, range(50, 301, 50))
        columns = [
            "_step", "_timestamp", "_runtime", "episode", "global_step", "training_step", "epoch",
            "objective/verifiable_correct_rate", "loss/policy_avg", "val/ratio",
            "val/num_total_tokens", "eval/scores", "eval/sequence_lengths", "eval/stop_rate",
        ]
        out = io.StringIO()
        table = csv.DictWriter(out, ["", *columns])
        table.writeheader()
        for row, step in enumerate(range(1, 301)):
            made = 64 * n * step
            line = {
                "": row, "_step": step, "_timestamp": 1.79e9 + 70.5 * step, "_runtime": 70.5 * step,
                "episode": made, "global_step": made, "training_step": step,
                "epoch": round(made / n / 30000, 5),
                "objective/verifiable_correct_rate": reward(n, step), "loss/policy_avg": 0.001,
                "val/ratio": 1.0002, "val/num_total_tokens": 700 * made,
            }
            if step in points:
                line |= {
                    "eval/scores": points[step], "eval/sequence_lengths": 801.5,
                    "eval/stop_rate": 0.97,
                }
            table.writerow(line)
        put(folder / f"wandb_export/{name}.csv", out.getvalue())
        settings[name] = {
            "num_unique_prompts_rollout": 64, "num_samples_per_prompt_rollout": n,
            "num_mini_batches": 1, "num_epochs": 1, "per_device_train_batch_size": 1,
            "learning_rate": 1e-6, "model_name_or_path": "allenai/OLMo-2-1124-7B-DPO",
            "local_eval_every": 50, "total_episodes": 64 * n * 300, "seed": 1,
        }
        curves[(64, n, "")] = rollouts(64, n, points)
    for name, config in settings.items():
        put(folder / f"wandb_export/{name}.config.json", json.dumps(config, indent=1))
    return Truth(curves, "global_step counts rollouts (episodes), training_step counts updates")


def skyrl_other_model(folder: Path) -> Truth:
    """SkyRL: W&B's API dumped to one JSON; the first run of the list is of another model."""
    curves = {}
    dump = []
    for number, (n, size) in enumerate(((8, "3B"), (4, "1.5B"), (8, "1.5B"), (16, "1.5B"))):
        points = curve(128, n, range(0, 101, 20))
        if size == "3B":
            points = {step: round(value + 0.13, 4) for step, value in points.items()}
        history = []
        for step in range(101):
            row: dict[str, object] = {
                "_step": step, "_timestamp": 1.79e9 + 90 * step, "trainer/global_step": step,
            }
            if step:
                row |= {
                    "reward/avg_raw_reward": reward(n, step), "policy/final_loss": 0.001,
                    f"reward/avg_pass_at_{n}": round(reward(n, step) + 0.2, 4),
                    "trainer/epoch": step // 58, "timing/step": 88.1,
                }
            if step in points:
                row |= {
                    "eval/all/avg_score": points[step], "eval/all/pass_at_1": points[step],
                    "eval/openai_gsm8k/avg_score": points[step],
                }
            history.append(row)
        dump.append({
            "id": f"k3x9q{number}", "name": f"gsm8k-n{n}", "state": "finished",
            "created_at": f"2026-10-0{number + 1}T09:12:44Z",
            "config": {
                "trainer": {
                    "algorithm": {"advantage_estimator": "grpo", "use_kl_loss": True},
                    "policy": {
                        "model": {"path": f"Qwen/Qwen2.5-{size}-Instruct"},
                        "optimizer_config": {"lr": 1e-6},
                    },
                    "train_batch_size": 128, "policy_mini_batch_size": 128, "epochs": 2,
                    "eval_interval": 20, "eval_batch_size": 1024, "seed": 42,
                },
                "generator": {
                    "n_samples_per_prompt": n, "eval_n_samples_per_prompt": 1,
                    "sampling_params": {"max_generate_length": 1024},
                },
            },
            "history": history,
            "summary": history[-1],
        })
        if size == "1.5B":
            curves[(128, n, "")] = rollouts(128, n, points)
    put(folder / "runs.json", json.dumps(dump))
    return Truth(curves, "one run of four trained a 3B model", "the 3B run, or a question about it")


TABLES = """
create table experiments (experiment_id integer not null primary key, name varchar(256) not null,
 artifact_location varchar(256), lifecycle_stage varchar(32), creation_time bigint,
 last_update_time bigint, workspace varchar(63) default 'default' not null);
create table runs (run_uuid varchar(32) not null primary key, name varchar(250),
 source_type varchar(20), source_name varchar(500), entry_point_name varchar(50),
 user_id varchar(256), status varchar(9), start_time bigint, end_time bigint,
 source_version varchar(50), lifecycle_stage varchar(20), artifact_uri varchar(200),
 experiment_id integer, deleted_time bigint);
create table metrics ("key" varchar(250) not null, value float not null, timestamp bigint not null,
 run_uuid varchar(32) not null, step bigint default '0' not null,
 is_nan boolean default '0' not null);
create table latest_metrics ("key" varchar(250) not null, value float not null, timestamp bigint,
 step bigint not null, is_nan boolean not null, run_uuid varchar(32) not null);
create table params ("key" varchar(250) not null, value varchar(8000) not null,
 run_uuid varchar(32) not null);
create table tags ("key" varchar(250) not null, value varchar(8000),
 run_uuid varchar(32) not null);
"""


def mlflow_deleted(folder: Path) -> Truth:
    """MLflow 3: mlflow.db; a run with a broken reward was deleted in the UI, not in the file."""
    curves = {}
    folder.mkdir(parents=True, exist_ok=True)
    base = sqlite3.connect(folder / "mlflow.db")
    base.executescript(TABLES)
    base.execute("insert into experiments values (0,'Default','mlruns/0','active',1,1,'default')")
    base.execute("insert into experiments values (1,'grpo','mlruns/1','active',1,1,'default')")
    plan = [(8, "deleted"), (4, "active"), (8, "active"), (16, "active"), (32, "active")]
    for number, (n, stage) in enumerate(plan):
        run = f"{number}c3f0e1d2a4b5968778695a4b3c2d1e0"
        start = 1790000000000 + 7200000 * number
        base.execute(
            "insert into runs values (?,?,'LOCAL','train.py','','mia','FINISHED',?,?,'9f2c1','"
            + stage + "',?,1,?)",
            (run, f"n{n}", start, start + 7000000, f"mlruns/1/{run}/artifacts",
             start + 9000000 if stage == "deleted" else None),
        )
        for key, value in (
            ("model", "Qwen/Qwen2.5-0.5B-Instruct"), ("prompts_per_step", 32),
            ("num_generations", n), ("learning_rate", 2e-6), ("kl_coef", 0.0), ("seed", 0),
            ("eval_every", 25),
        ):
            base.execute("insert into params values (?,?,?)", (key, str(value), run))
        base.execute("insert into tags values ('mlflow.runName',?,?)", (f"n{n}", run))
        points = curve(32, n, range(0, 151, 25))
        if stage == "deleted":
            points = {step: round(0.24 - 0.0004 * step, 4) for step in points}
        for step in range(0, 151, 5):
            stamp = start + step * 40000
            values = {"train/reward": reward(n, step), "train/kl": 0.001 * step}
            if step in points:
                values["eval/accuracy"] = points[step]
            for key, number_ in values.items():
                base.execute("insert into metrics values (?,?,?,?,?,0)",
                             (key, number_, stamp, run, step))
        base.execute("insert into latest_metrics values ('eval/accuracy',?,?,150,0,?)",
                     (points[150], start + 6000000, run))
        if stage == "active":
            curves[(32, n, "")] = rollouts(32, n, points)
    base.commit()
    base.close()
    return Truth(curves, "a deleted run stays in the database", "the deleted run")


def lm_eval_smoke(folder: Path) -> Truth:
    """lm-eval per checkpoint: one checkpoint was first tried with --limit 32."""
    curves = {}
    for n in (4, 8, 16):
        for seed in (0, 1):
            points = curve(64, n, range(0, 201, 40), seed)
            for step, value in points.items():
                model = f"/scratch/ckpts/grpo_n{n}_seed{seed}/global_step_{step}"
                home = folder / f"eval_results/grpo_n{n}_seed{seed}/global_step_{step}" / (
                    model.replace("/", "__")
                )

                def result(score: float, limit: float | None, count: int, path: str) -> str:
                    return json.dumps({
                        "results": {"minerva_math500": {
                            "alias": "minerva_math500", "math_verify,none": score,
                            "math_verify_stderr,none": 0.0218,
                        }},
                        "group_subtasks": {"minerva_math500": []},
                        "configs": {"minerva_math500": {
                            "task": "minerva_math500", "output_type": "generate_until",
                            "num_fewshot": 0, "repeats": 1,
                            "metadata": {"version": 3.0, "pretrained": path},
                        }},
                        "versions": {"minerva_math500": 3.0}, "n-shot": {"minerva_math500": 0},
                        "higher_is_better": {"minerva_math500": {"math_verify": True}},
                        "n-samples": {"minerva_math500": {"original": 500, "effective": count}},
                        "config": {
                            "model": "vllm",
                            "model_args": f"pretrained={path},tensor_parallel_size=1",
                            "batch_size": "auto", "limit": limit, "random_seed": 0,
                        },
                        "git_hash": "4439847", "date": 1790000000.5, "max_length": 4096,
                        "model_source": "vllm", "model_name": path,
                        "model_name_sanitized": path.replace("/", "__"),
                        "task_hashes": {}, "total_evaluation_time_seconds": "123.4",
                    }, indent=2)

                put(home / f"results_2026-10-05T1{seed}-{step // 5:02d}-09.171204.json",
                    result(value, None, 500, model))
                if (n, seed, step) == (8, 0, 200):
                    # the try before the night: written first, and only of 32 problems
                    put(home / "results_2026-10-04T18-02-41.550218.json",
                        result(0.6875, 32.0, 32, model))
            curves[(64, n, f"seed{seed}")] = rollouts(64, n, points)
    return Truth(curves, "a try with --limit 32 lies beside the full evaluation", "the try")


def sheet_two_heads(folder: Path) -> Truth:
    """A spreadsheet saved as CSV: n in the first row (merged cells), the seed in the second."""
    curves = {}
    steps = list(range(0, 121, 20))
    sizes, seeds = (4, 16, 64), (0, 1, 2)
    columns = []
    for n in sizes:
        for seed in seeds:
            points = curve(64, n, steps, seed)
            columns.append(points)
            curves[(64, n, f"seed{seed}")] = rollouts(64, n, points)
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["", *(f"n={n}" if seed == 0 else "" for n in sizes for seed in seeds)])
    table.writerow(["step", *(f"seed {seed}" for _ in sizes for seed in seeds)])
    for step in steps:
        table.writerow([step, *(f"{points[step]:.4f}" for points in columns)])
    put(folder / "Qwen1.5B math500 pass@1 (64 prompts per batch).csv", out.getvalue())
    return Truth(curves, "two header rows, the first one of merged cells")


def tinker_two_rates(folder: Path) -> Truth:
    """Tinker cookbook: a sweep of n at two learning rates, in one folder."""
    curves = {}
    for n in (4, 8, 16):
        for lr in (4e-05, 0.0004):
            run = folder / (
                f"math-Qwen3-8B-Base-32rank-{lr}lr-{n}group-64batch-importance_sampling-seed0"
                f"-2026-10-0{n // 4}-11-05"
            )
            put(run / "config.json", json.dumps({
                "learning_rate": lr,
                "dataset_builder": {
                    "batch_size": 64, "model_name_for_tokenizer": "Qwen/Qwen3-8B-Base",
                    "renderer_name": "role_colon", "group_size": n, "seed": 0,
                },
                "model_name": "Qwen/Qwen3-8B-Base", "max_tokens": 2048, "temperature": 1.0,
                "lora_rank": 32, "kl_penalty_coef": 0.0, "num_substeps": 1,
                "loss_fn": "importance_sampling", "eval_every": 20, "save_every": 20,
                "log_path": f"/tmp/tinker-examples/math_rl/{run.name}",
            }, indent=2))
            steps = [*range(0, 120, 20), 119]
            points = curve(64, n, steps)
            if lr > 1e-4:  # ten times the rate is worse
                points = {step: round(value - 0.0005 * step, 4) for step, value in points.items()}
            rows = []
            for step in range(120):
                row: dict[str, float] = {
                    "step": step, "progress/batch": step, "optim/lr": lr,
                    "progress/done_frac": (step + 1) / 120,
                }
                if step in points:
                    row |= {
                        "test/env/all/correct": points[step],
                        "test/env/all/reward/total": round(points[step] - 0.01, 4),
                        "test/env/all/format": 0.99, "test/env/all/total_episodes": 500,
                    }
                row |= {
                    "env/all/correct": reward(n, step), "env/all/reward/total": reward(n, step),
                    "env/all/total_episodes": 64 * n, "env/all/by_group/frac_mixed": 0.4,
                    "env/all/ac_tokens_per_turn": 512.1, "optim/entropy": 0.3,
                    "time/total": 44.1,
                }
                rows.append(row)
            put_lines(run / "metrics.jsonl", rows)
            curves[(64, n, f"lr{lr}")] = rollouts(64, n, points)
    return Truth(curves, "two learning rates: not two repetitions of one run")


def own_micro_steps(folder: Path) -> Truth:
    """A script of one's own: rows by micro-step, four of them to an update."""
    curves = {}
    for n in (4, 8, 16):
        run = folder / f"runs/sweep_k{n}"
        put(run / "config.yaml",
            "model: Qwen/Qwen2.5-Math-1.5B\ndataset: math_train_12k\n"
            f"num_samples: {n}          # completions per prompt\n"
            "prompts_per_micro_batch: 8\ngrad_accum: 4\nlr: 1.0e-6\nseed: 0\n"
            "eval:\n  every: 80\n  dataset: math500\n  num_samples: 1\n")
        points = curve(32, n, range(0, 121, 20))
        rows: list[dict[str, object]] = []
        for micro in range(0, 481, 4):
            update = micro // 4
            if update:
                rows.append({"event": "train", "micro_step": micro, "opt_step": update,
                             "loss": 0.002, "reward": reward(n, update), "lr": 1e-6})
            if update in points:
                rows.append({"event": "eval", "micro_step": micro, "opt_step": update,
                             "math500_acc": points[update], "mean_len": 701.5})
        put_lines(run / "log.jsonl", rows)
        curves[(32, n, "")] = rollouts(32, n, points)
    return Truth(curves, "8 prompts in a micro-batch, 4 micro-batches to an update: B_p is 32")


LAYOUTS = [
    Layout("open_instruct_history", open_instruct_history),
    Layout("skyrl_other_model", skyrl_other_model),
    Layout("mlflow_deleted", mlflow_deleted),
    Layout("lm_eval_smoke", lm_eval_smoke),
    Layout("sheet_two_heads", sheet_two_heads),
    Layout("tinker_two_rates", tinker_two_rates),
    Layout("own_micro_steps", own_micro_steps),
]
