"""An audit by construction: a planted run through each tracker's real library, read back exactly.

Every run has B_p = 8, n = 4, 12 updates, seed 7, responses of 50 tokens, evaluations every second
update with the base model's first. Keys are those of the trainer whose name the test bears, at the
versions that `importers/words/vocabulary.py` names. Those marked `trainers` need the trackers: `pip
install wandb mlflow tensorboard tensorboardX trackio pandas` beside the package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isocompute.importers import ImportedRun, read_log, to_curves

needs_tracker = pytest.mark.trainers

B_P, N, UPDATES, SEED, LENGTH = 8, 4, 12, 7, 50.0
BATCH = B_P * N
STEPS = list(range(0, UPDATES + 1, 2))
GIVEN = {"problems_per_batch": B_P, "rollouts_per_problem": N, "seed": SEED}
Row = dict[str, float]


def planted(step: int) -> float:
    return round(0.2 + 0.6 * step / (step + 9) + 0.013 * (step % 3), 6)


def audit(
    run: ImportedRun, *, label: str = "avg@4", tokens: bool = True, steps: list[int] = STEPS,
    planned: int | None = UPDATES, problem_set: str = "math", tolerance: float = 1e-12,
) -> None:
    """Everything that was planted, exactly."""
    assert (run.problems_per_batch, run.rollouts_per_problem, run.seed) == (B_P, N, SEED)
    assert run.steps == planned
    assert run.n_errors == 0, run.errors
    found = [s for s in run.series if s.metric.label == label and s.split == "validation"]
    assert len(found) == 1, [(s.metric.label, s.split) for s in run.series]
    s = found[0]
    assert s.problem_set == problem_set
    assert s.step_K.tolist() == steps
    assert s.rollouts_K.tolist() == [BATCH * step for step in steps]
    assert s.score_K.tolist() == pytest.approx([planted(x) for x in steps], abs=tolerance)
    if tokens:
        assert s.tokens_K.tolist() == [BATCH * LENGTH * step for step in steps]
    (curve,) = to_curves([run], label)
    assert curve.rollouts_K[0] == BATCH * steps[0]


def logged(score: str, length: str, train: str) -> Iterator[tuple[int, Row]]:
    """Rows of a trainer that logs an update and the evaluation after it in one call."""
    for step in range(UPDATES + 1):
        row: Row = {}
        if step:
            row |= {length: LENGTH, train: 0.25, "actor/grad_norm": 0.1}
        if step % 2 == 0:
            row[score] = planted(step)
        yield step, row


VERL = {
    "data": {"train_batch_size": B_P, "seed": SEED, "max_response_length": 64},
    "actor_rollout_ref": {"rollout": {"n": N, "val_kwargs": {"n": 4}},
                          "actor": {"optim": {"lr": 1e-6}}, "model": {"path": "Qwen/Qwen2.5-7B"}},
    "trainer": {"total_training_steps": UPDATES},
}
VERL_KEYS = ("val-core/math/acc/mean@4", "response_length/mean", "critic/score/mean")
TRL = {
    "num_generations": N, "num_generations_eval": 4, "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4, "generation_batch_size": BATCH, "steps_per_generation": 4,
    "num_iterations": 1, "max_steps": UPDATES, "seed": SEED, "logging_steps": 1,
    "learning_rate": 1e-6,
}


def trl_rows() -> Iterator[Row]:
    """transformers' callbacks: one call per row, `train/global_step` in each."""
    for step in range(UPDATES + 1):
        if step:
            yield {"train/reward": 0.25, "train/completions/mean_length": LENGTH,
                   "train/global_step": step}
        if step % 2 == 0:
            yield {"eval/reward": planted(step), "eval/runtime": 1.5, "train/global_step": step}


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    return module


def offline(tmp_path: Path) -> ImportedRun:
    # `finish` may return before the package's own process has written its last block.
    sys.modules["wandb"].teardown()
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    (run,) = read_log(path)
    return run


@needs_tracker
def test_wandb_verl(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config=VERL)
    for step, row in logged(*VERL_KEYS):
        run.log({**row, "training/global_step": step}, step=step)
    run.finish()
    read = offline(tmp_path)
    audit(read)
    assert read.provenance.facts == {
        "model": "Qwen/Qwen2.5-7B", "learning_rate": "1e-06", "max_response_length": "64",
        "evaluation_samples": "4", "length_penalty": "none", "lora_rank": "0"}


@needs_tracker
def test_wandb_trl_counts_calls_of_log(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config=TRL)
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for row in trl_rows():
        run.log(row)
    run.finish()
    audit(offline(tmp_path), problem_set="")


@needs_tracker
def test_wandb_openrlhf(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config={
        "rollout": {"batch_size": B_P, "n_samples_per_prompt": N}, "train": {"seed": SEED},
        "eval": {"n_samples_per_prompt": 4}})
    run.define_metric("train/global_step")
    run.define_metric("train/*", step_metric="train/global_step", step_sync=True)
    run.define_metric("eval/epoch")
    run.define_metric("eval/*", step_metric="eval/epoch", step_sync=True)
    for step in range(UPDATES + 1):
        if step:
            run.log({"train/reward": 0.25, "train/response_length": LENGTH,
                     "train/global_step": step})
        if step % 2 == 0:
            run.log({"eval/eval_math_pass1": planted(step), "eval/eval_math_pass4": 0.9,
                     "eval/global_step": step})
    run.finish()
    audit(offline(tmp_path), tokens=False, planned=None)


@needs_tracker
def test_wandb_slime_counts_its_first_update_as_0(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config={
        "rollout_batch_size": B_P, "n_samples_per_prompt": N, "num_rollout": UPDATES, "seed": SEED,
        "n_samples_per_eval_prompt": 4})
    for prefix in ("train", "rollout", "eval"):
        run.define_metric(f"{prefix}/step")
        run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
    run.log({"eval/math": planted(0), "eval/math-pass@4": 0.9, "eval/step": 0})
    for rollout in range(UPDATES):
        run.log({"rollout/raw_reward": 0.25, "rollout/step": rollout})
        run.log({"train/loss": 0.1, "train/step": rollout})
        if rollout % 2:
            run.log({"eval/math": planted(rollout + 1), "eval/math-pass@4": 0.9,
                     "eval/math-truncated_ratio": 0.1, "eval/step": rollout})
    run.finish()
    audit(offline(tmp_path), tokens=False)


@needs_tracker
def test_wandb_open_instruct(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config={
        "num_unique_prompts_rollout": B_P, "num_samples_per_prompt_rollout": N, "seed": SEED,
        "num_training_steps": UPDATES, "eval_pass_at_k": 4})
    run.define_metric("training_step")
    run.define_metric("*", step_metric="training_step")
    for step in range(1, UPDATES + 1):
        row: Row = {"episode": BATCH * step, "training_step": step, "objective/kl1_avg": 0.1}
        if step % 2 == 0:
            row |= {"eval/pass_at_1": planted(step), "eval/pass_at_4": 0.9, "eval/scores": 7.5,
                    "eval/pass_at_1_unbiased": planted(step), "eval/pass_at_4_unbiased": 0.9}
        run.log(row, step=step)
    run.finish()
    audit(offline(tmp_path), tokens=False, steps=STEPS[1:], problem_set="")


@needs_tracker
def test_wandb_areal_counts_its_first_update_as_0(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", name="n4", dir=str(tmp_path), mode="offline", config={
        "train_dataset": {"batch_size": B_P}, "gconfig": {"n_samples": N}, "seed": SEED,
        "total_train_steps": UPDATES})
    for step in range(UPDATES):
        row: Row = {"rollout/reward": 0.25, "ppo_actor/update/grad_norm": 0.1}
        if step % 2:
            row["eval-rollout/reward"] = planted(step + 1)
        run.log(row, step=step)
    run.finish()
    audit(offline(tmp_path), label="avg", tokens=False, steps=STEPS[1:], problem_set="")


@needs_tracker
@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_mlflow_verl_writes_at_as_a_word(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = "sqlite:///mlflow.db" if store == "sqlite" else (tmp_path / "mlruns").as_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("sweep")
    with mlflow.start_run(run_name="n4"):
        mlflow.log_params({
            "data/train_batch_size": B_P, "data/seed": SEED, "actor_rollout_ref/rollout/n": N,
            "trainer/total_training_steps": UPDATES})
        for step, row in logged(*VERL_KEYS):
            mlflow.log_metrics({k.replace("@", "_at_"): v for k, v in row.items()}, step=step)
    (run,) = read_log(tmp_path / ("mlflow.db" if store == "sqlite" else "mlruns"))
    assert run.name == "n4"
    audit(run)


@needs_tracker
def test_trackio_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    trackio.init(project="sweep", name="n4", config=TRL, embed=False)
    for row in trl_rows():
        trackio.log(row)
    trackio.finish()
    home = tmp_path if any(tmp_path.glob("*.db")) else Path(trackio.utils.TRACKIO_DIR)
    (path,) = home.glob("sweep*.db")
    (run,) = read_log(path)
    audit(run, problem_set="")


def scalars(write: Callable[[str, float, int], None], keys: tuple[str, str, str]) -> None:
    for step, row in logged(*keys):
        for key, value in row.items():
            write(key, value, step)


@needs_tracker
def test_tensorboard_nemo_rl(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "n4"))

    def write(key: str, value: float, step: int) -> None:
        summary = Summary(value=[Summary.Value(tag=key, simple_value=value)])
        writer.add_event(Event(step=step, summary=summary, wall_time=1.7e9 + step))

    scalars(write, ("validation/accuracy", "train/mean_gen_tokens_per_sample", "train/reward"))
    writer.close()
    (run,) = read_log(tmp_path, settings={**GIVEN, "evaluation_samples": 4, "steps": UPDATES})
    assert run.name == "n4"
    audit(run, tokens=False, problem_set="", tolerance=1e-7)


@needs_tracker
def test_tensorboardx_verl_writes_at_as_an_underscore(tmp_path: Path) -> None:
    tensorboardx = pytest.importorskip("tensorboardX")
    writer = tensorboardx.SummaryWriter(str(tmp_path / "n4"))
    scalars(lambda key, value, step: writer.add_scalar(key, value, step), VERL_KEYS)
    writer.close()
    (run,) = read_log(tmp_path, settings={**GIVEN, "steps": UPDATES})
    audit(run, tolerance=1e-7)


@needs_tracker
def test_history_of_wandb_as_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"_step": i, "_runtime": 2.5 * i, **row} for i, row in enumerate(trl_rows())]
    pandas.DataFrame(rows).to_csv(tmp_path / "n4.csv")
    (run,) = read_log(tmp_path / "n4.csv", settings={
        **GIVEN, "evaluation_samples": 4, "steps": UPDATES})
    audit(run, problem_set="")


def test_tinker_cookbook(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({
        "model_name": "Qwen/Qwen3-8B", "learning_rate": 4e-5, "max_steps": UPDATES,
        "dataset_builder": {"batch_size": B_P, "group_size": N, "seed": SEED}}))
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(UPDATES + 1):  # evaluated before the update of that number
            row: Row = {"step": step, "progress/batch": step}
            if step % 2 == 0:
                row["test/env/all/reward/total"] = planted(step)
            file.write(json.dumps(row) + "\n")
    (run,) = read_log(tmp_path)
    audit(run, label="avg", tokens=False, problem_set="")
    assert run.provenance.facts["model"] == "Qwen/Qwen3-8B"


def test_easyr1(tmp_path: Path) -> None:
    (tmp_path / "experiment_config.json").write_text(json.dumps({
        "data": {"rollout_batch_size": B_P, "seed": SEED}, "trainer": {"max_steps": UPDATES},
        "worker": {"rollout": {"n": N, "val_override_config": {"n": 4}}}}))
    with (tmp_path / "experiment_log.jsonl").open("w") as file:
        for step in range(UPDATES + 1):
            row: dict[str, Any] = {"step": step}
            if step:
                row["response_length"] = {"mean": LENGTH, "max": 64}
            if step % 2 == 0:
                row["val"] = {"reward_score": planted(step), "accuracy_reward": 0.3}
            file.write(json.dumps(row) + "\n")
    (run,) = read_log(tmp_path)
    audit(run, problem_set="")


def test_ms_swift(tmp_path: Path) -> None:
    with (tmp_path / "logging.jsonl").open("w") as file:
        for step in range(UPDATES + 1):
            at = {"global_step/max_steps": f"{step}/{UPDATES}", "elapsed_time": "1s"}
            if step:
                file.write(json.dumps({
                    "loss": 0.1, "reward": 0.25, "completions/mean_length": LENGTH, **at}) + "\n")
            if step % 2 == 0:
                file.write(json.dumps({"eval_reward": planted(step), **at}) + "\n")
    (run,) = read_log(tmp_path, settings={**GIVEN, "evaluation_samples": 4})
    audit(run, problem_set="")
