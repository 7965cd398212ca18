"""Files that the documentation takes for granted, made from planted sweeps of known truth."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from isocompute.domain import Curve
from isocompute.testing.planted import NOISE, WORLDS

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = "src/isocompute/data/published/qwen2.5-7b-easy.csv"
HEADER = ("problems_per_batch", "rollouts_per_problem", "rollouts", "score", "seed", "run")


def sweep(seeds: int = 3, shift: float = 0.0) -> list[Curve]:
    """n* rises by three octaves; B_p = 16; `shift` is added to every score."""
    curves = WORLDS["three_octaves"].sample(NOISE["middle"], seeds, np.random.default_rng(0))
    for curve in curves:
        curve.score_K[:] = np.clip(curve.score_K + shift, 0.0, 1.0)
    return curves


def _rows(curves: Iterable[Curve]) -> Iterable[tuple[object, ...]]:
    for c in curves:
        for x, y in zip(c.rollouts_K, c.score_K, strict=True):
            yield (c.problems_per_batch, c.rollouts_per_problem, int(x), round(float(y), 4),
                   c.seed, f"n{c.rollouts_per_problem}-s{c.seed}")  # fmt: skip


def _csv(path: Path, curves: Iterable[Curve]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(_rows(curves))


def my_runs(path: Path) -> None:
    """Tidy curves."""
    _csv(path, sweep())


def losses(path: Path) -> None:
    """Losses where scores belong."""
    _csv(path, [c.replace(score_K=1 - c.score_K) for c in sweep()])


def far_apart(path: Path) -> None:
    """Tidy curves of half a point more, for comparisons."""
    _csv(path, sweep(shift=0.03))


def verl_logs(folder: Path) -> None:
    """verl's file logger: one JSONL per run, in a folder that says B_p and n."""
    for c in sweep(1):
        batch = c.problems_per_batch * c.rollouts_per_problem
        run = folder / f"bp{c.problems_per_batch}_n{c.rollouts_per_problem}"
        run.mkdir(parents=True)
        rows = [
            {"step": int(x) // batch, "data": {
                "val-core/math/acc/mean@4": float(y), "training/global_step": int(x) // batch}}
            for x, y in zip(c.rollouts_K, c.score_K, strict=True)
        ]  # fmt: skip
        (run / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")


def wandb_chart(path: Path) -> None:
    """A chart of W&B, exported as CSV: a step, and one column per run."""
    curves = sweep(1)
    steps: dict[int, dict[str, float]] = {}
    for c in curves:
        batch = c.problems_per_batch * c.rollouts_per_problem
        for x, y in zip(c.rollouts_K, c.score_K, strict=True):
            name = f"bp{c.problems_per_batch}_n{c.rollouts_per_problem} - val-core/math/acc/mean@4"
            steps.setdefault(int(x) // batch, {})[name] = float(y)
    names = sorted({name for row in steps.values() for name in row})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Step", *names])
        writer.writerows([s, *(row.get(n, "") for n in names)] for s, row in sorted(steps.items()))


def wandb_histories(folder: Path) -> None:
    """Histories of W&B as CSV, one per run, with the run's configuration beside each."""
    folder.mkdir()
    for i, c in enumerate(sweep(1)):
        batch = c.problems_per_batch * c.rollouts_per_problem
        with (folder / f"swift-river-{i}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["_step", "_runtime", "training/global_step",
                             "val-core/math/acc/mean@4"])  # fmt: skip
            for x, y in zip(c.rollouts_K, c.score_K, strict=True):
                step = int(x) // batch
                writer.writerow([step, int(x) / 2, step, round(float(y), 4)])
        config = {"data": {"train_batch_size": c.problems_per_batch},
                  "actor_rollout_ref": {"rollout": {"n": c.rollouts_per_problem}},
                  "trainer": {"nnodes": 1, "n_gpus_per_node": 8}}  # fmt: skip
        (folder / f"swift-river-{i}.json").write_text(json.dumps(config))


def trl_runs(folder: Path) -> None:
    """What transformers' trainers leave: trainer_state.json per run."""
    for c in sweep(1):
        batch = c.problems_per_batch * c.rollouts_per_problem
        run = folder / f"bp{c.problems_per_batch}_n{c.rollouts_per_problem}"
        run.mkdir(parents=True)
        history = [
            {"step": int(x) // batch, "eval_reward": float(y)}
            for x, y in zip(c.rollouts_K, c.score_K, strict=True)
        ]
        state = {"global_step": history[-1]["step"], "log_history": history}
        (run / "trainer_state.json").write_text(json.dumps(state))


def problems(path: Path) -> None:
    """Sums, as JSONL."""
    rng = np.random.default_rng(0)
    rows = [
        {"id": f"sum-{i}", "prompt": f"{i // 60} + {i % 60} =", "answer": str(i // 60 + i % 60),
         "pass_rate": int(rng.integers(17)) / 16}
        for i in range(3600)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")


def my_log(path: Path) -> None:
    """JSON lines with names of one's own."""
    rows = [
        {"iteration": i, "val/accuracy": 0.3 + 0.01 * i, "val/pass4": 0.5 + 0.01 * i}
        for i in range(20)
    ]
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")


def my_study(folder: Path) -> None:
    """Two recipes on two problem sets, simulated."""
    from isocompute.runner import open_study, run_study

    file = folder.with_suffix(".yaml")
    file.write_text(ARMS)
    run_study(open_study(file), folder, workers=0)


def shipped(path: Path) -> None:
    """What a clone has at this place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / PUBLISHED, path)


ARMS = """
engine: simulator
problems:
  small:
    train: {generated: simulated, options: {size: 50}}
    validation: {held-out: {generated: simulated, options: {size: 100}}}
  large:
    train: {generated: simulated, options: {size: 100}}
    validation: {held-out: {generated: simulated, options: {size: 100}}}
recipes: {slow: {learning_rate: 30, temperature: 1.0}, fast: {learning_rate: 60, temperature: 1.0}}
grid: {problems_per_batch: 8, rollouts_per_problem: [4, 8, 16], seeds: 2}
budget: 8192
evaluation: {first: 128}
"""


FIXTURES: dict[str, Callable[[Path], None]] = {
    "my-runs.csv": my_runs,
    "losses.csv": losses,
    "with-kl.csv": far_apart,
    "without-kl.csv": my_runs,
    "outputs": verl_logs,
    "trl-runs": trl_runs,
    "chart.csv": wandb_chart,
    "histories": wandb_histories,
    "wandb_exports": wandb_histories,
    "sums.jsonl": problems,
    "my-log.jsonl": my_log,
    "my-study": my_study,
    PUBLISHED: shipped,
}
