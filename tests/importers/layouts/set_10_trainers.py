"""The tenth blind set, continued: what trainers and loops of one's own leave behind."""

import json
from pathlib import Path

from set_10 import TABLES, Layout, Run, Truth, curve, write_csv, write_json


def trl_iterations(folder: Path) -> Truth:
    """TRL's checkpoints with the arguments beside them.

    Trap: num_iterations = 2, so a batch of rollouts serves two of the counted steps.
    """
    runs = [Run(32, n, 42) for n in (4, 8, 16)]
    for run in runs:
        steps = list(range(0, 201, 20))
        scores = curve(run, steps, per_step=run.bp * run.n // 2)
        home = folder / f"grpo-gen{run.n}"
        arguments = {
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": run.bp * run.n // 32,
            "world_size": 4,
            "num_generations": run.n,
            "num_iterations": 2,
            "learning_rate": 1e-6,
            "seed": 42,
            "max_steps": 200,
        }
        write_json(home / "training_args.json", arguments)
        for last in (100, 200):
            history: list[dict[str, object]] = []
            for step, score in zip(steps, scores, strict=True):
                if step > last:
                    break
                if step:
                    history.append(
                        {"step": step, "epoch": step / 400, "loss": 0.01, "reward": score - 0.05}
                    )
                history.append(
                    {"step": step, "epoch": step / 400, "eval_reward": score, "eval_runtime": 9.1}
                )
            state = {
                "global_step": last,
                "max_steps": 200,
                "epoch": last / 400,
                "log_history": history,
            }
            write_json(home / f"checkpoint-{last}" / "trainer_state.json", state)
    return Truth(runs)


def json_evals(folder: Path) -> Truth:
    """One JSON per run: a nested configuration and a list of evaluations.

    Trap: each evaluation has two sets and its own number of samples, 16; the truth is math500's.
    """
    runs = [Run(24, n, s) for n in (4, 8, 16, 32) for s in (0,)]
    for number, run in enumerate(runs):
        steps = list(range(0, 301, 50))
        scores = curve(run, steps)
        evals = [
            {
                "update": step,
                "math500": {"accuracy": score, "num_samples": 16},
                "aime24": {"accuracy": round(score / 4, 4), "num_samples": 16},
            }
            for step, score in zip(steps, scores, strict=True)
        ]
        config = {
            "algo": {
                "name": "grpo",
                "group_size": run.n,
                "prompts_per_step": run.bp,
                "updates": 300,
            },
            "eval": {"every": 50, "num_samples": 16},
            "seed": run.seed,
            "lr": 1e-6,
        }
        write_json(folder / f"run_{number:03d}.json", {"config": config, "evals": evals})
    return Truth(runs, ("--problem-set", "math500"))


def slurm_requeue(folder: Path) -> Truth:
    """An array of Slurm jobs, each folder with config.yaml and metrics.csv.

    Trap: task 1 was preempted after its evaluation at 120, went on from its checkpoint at 100,
    and appended to its file: the evaluation at 120 was done twice, and the second counts.
    """
    runs = [Run(16, n, 3) for n in (8, 16, 32)]
    for task, run in enumerate(runs):
        steps = list(range(0, 201, 20))
        scores = curve(run, steps)
        home = folder / f"job_881204_{task}"
        home.mkdir(parents=True)
        (home / "config.yaml").write_text(
            f"model: Qwen/Qwen3-1.7B\nseed: 3\ntrain:\n  prompts_per_batch: {run.bp}\n"
            f"  num_generations: {run.n}\n  lr: 1.0e-6\n  max_steps: 200\neval:\n  every: 20\n"
        )
        rows: list[list[object]] = []
        for step, score in zip(steps, scores, strict=True):
            if task == 1 and step == 120:
                rows.append([120, "", round(score + 0.0173, 4), 3000.5])
                rows.append([101, 0.41, "", 12.5])
            rows.append([step, "", score, 30 * step])
            rows.append([step + 1, 0.4, "", 30 * step + 20])
        write_csv(
            home / "metrics.csv", ["step", "train_reward", "val_accuracy", "seconds"], rows[:-1]
        )
        (home / f"slurm-881204_{task}.out").write_text("srun: job queued\nsrun: task 0 running\n")
    return Truth(runs)


def lightning_resume(folder: Path) -> Truth:
    """Lightning's CSVLogger: version_2 was stopped, version_3 went on from its checkpoint.

    Trap: versions 2 and 3 are one run; the evaluation at 120 was done twice, the second counts.
    """
    runs = [Run(32, n, 7) for n in (4, 8, 16)]
    versions: list[tuple[Run, list[tuple[int, float]]]] = []
    for run in runs:
        steps = list(range(0, 241, 30))
        rows = list(zip(steps, curve(run, steps), strict=True))
        if run.n == 16:
            again = round(rows[4][1] - 0.0121, 4)
            versions += [(run, [*rows[:4], (rows[4][0], again)]), (run, rows[4:])]
        else:
            versions.append((run, rows))
    for number, (run, rows) in enumerate(versions):
        home = folder / "lightning_logs" / f"version_{number}"
        home.mkdir(parents=True)
        (home / "hparams.yaml").write_text(
            f"problems_per_batch: {run.bp}\nnum_generations: {run.n}\n"
            "learning_rate: 2.0e-06\nseed: 7\n"
        )
        table = [[s // 60, s, "", v] for s, v in rows] + [
            [s // 60, s + 9, 0.3, ""] for s, _ in rows
        ]
        table.sort(key=lambda row: float(str(row[1])))
        write_csv(home / "metrics.csv", ["epoch", "step", "train_reward", "val_acc"], table)
    return Truth(runs)


def own_eval_index(folder: Path) -> Truth:
    """A loop of one's own: JSON lines of evaluations, with a config.json beside them.

    Trap: `step` counts evaluations; one is made every 25 updates, as the configuration says.
    """
    runs = [Run(20, n, 1) for n in (5, 10, 20)]
    for run in runs:
        home = folder / f"group{run.n}"
        scores = curve(run, range(0, 201, 25))
        config = {
            "prompts_per_batch": run.bp, "group_size": run.n, "seed": 1,
            "num_updates": 200, "eval_every": 25, "lr": 3e-6,
        }  # fmt: skip
        write_json(home / "config.json", config)
        rows = [json.dumps({"step": i, "val_acc": s}) for i, s in enumerate(scores)]
        (home / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    return Truth(runs)


def tensorboard_names(folder: Path) -> Truth:
    """CSV downloads of TensorBoard, named after runs of a Qwen2.5.

    Trap: the owner says n{rollouts_per_problem}, which the "n2" of "qwen2.5" meets first.
    """
    runs = [Run(32, n, s) for n in (8, 16, 64) for s in (0, 1)]
    for run in runs:
        steps = list(range(0, 101, 10))
        name = f"qwen2.5-7b-lr1e-6-n{run.n}-s{run.seed}"
        rows = [[1.73e9 + s * 60.5, s, v] for s, v in zip(steps, curve(run, steps), strict=True)]
        write_csv(folder / f"{name}-tag-eval_accuracy.csv", ["Wall time", "Step", "Value"], rows)
    return Truth(
        runs, ("--set", "pattern=n{rollouts_per_problem}", "--set", "problems_per_batch=32")
    )


def micro_batch(folder: Path) -> Truth:
    """A loop of one's own on eight GPUs with accumulated gradients.

    Trap: batch_size is per GPU and per backward pass: B_p is 2 x 8 x 4 = 64.
    """
    runs = [Run(64, n, 5) for n in (4, 8, 16)]
    for run in runs:
        home = folder / f"exp_{run.n:02d}gen"
        steps = list(range(0, 151, 25))
        config = {
            "batch_size": 2, "num_gpus": 8, "gradient_accumulation_steps": 4,
            "num_generations": run.n, "learning_rate": 1e-6, "seed": 5, "max_steps": 150,
        }  # fmt: skip
        write_json(home / "config.json", config)
        rows = [
            {"global_step": s, "eval/accuracy": v}
            for s, v in zip(steps, curve(run, steps), strict=True)
        ]
        (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Truth(runs)


TRAINERS: tuple[Layout, ...] = (
    trl_iterations, json_evals, slurm_requeue, lightning_resume, own_eval_index,
    tensorboard_names, micro_batch,
)  # fmt: skip
LAYOUTS: dict[str, Layout] = {layout.__name__: layout for layout in (*TABLES, *TRAINERS)}
