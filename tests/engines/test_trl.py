"""The TRL engine: what it renders and refuses; against TRL itself under `trainers`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Allocation
from isocompute.engines.base import StopRequested
from isocompute.engines.trl import TrlEngine, TrlOptions, render_config, training_order
from isocompute.engines.trl import engine as trl_engine
from isocompute.engines.trl.overrides import HARMLESS as HARMLESS_FIELDS
from isocompute.errors import InputError, RunError
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import Recipe
from isocompute.study import RunSpec
from isocompute.testing import EngineTestCase
from isocompute.trainers import read_allocation, trainer_settings
from sinks import ListSink

TRL_PYTHON = os.environ.get("ISOCOMPUTE_TRL_PYTHON", sys.executable)
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and "ISOCOMPUTE_TRL_PYTHON" not in os.environ,
    reason="no Python with trl",
)


def digits(name: str, size: int) -> ProblemSet:
    return ProblemSet(name=name, verifier="exact", problems=[
        Problem(id=f"{name}-{i}", prompt=f"{i} + 1 = ?", answer=str(i + 1)) for i in range(size)])


def make_spec(
    b_p: int = 4, n: int = 8, steps: int = 4, *, recipe: Recipe | None = None, seed: int = 0,
    train: ProblemSet | None = None, validation: ProblemSet | None = None, **options: Any,
) -> RunSpec:
    return RunSpec(
        engine="trl", seed=seed,
        allocation=Allocation(problems_per_batch=b_p, rollouts_per_problem=n, steps=steps),
        recipe=recipe or Recipe(), train=train or digits("train", 16),
        validation={"val": validation or digits("val", 5)}, evaluations_per_octave=1,
        first_evaluation=64, engine_options={"model": "org/model", "max_new_tokens": 8, **options},
    )


def config_of(spec: RunSpec) -> dict[str, Any]:
    return render_config(spec, TrlOptions.of(spec))


def test_the_allocation_and_recipe_reach_grpo_config() -> None:
    recipe = Recipe(kl_coef=0.002, temperature=0.7, top_p=0.9, clip_low=0.1,
                    clip_high=0.3, warmup_steps=7, weight_decay=0.01, max_grad_norm=0.5,
                    advantage_std="none", aggregation="seq-mean-token-mean", learning_rate=3e-6)
    config = config_of(make_spec(6, 16, 40, recipe=recipe, seed=5, micro_batch=40))
    expected = {
        "per_device_train_batch_size": 32, "gradient_accumulation_steps": 3,
        "num_generations": 16, "max_steps": 40, "num_iterations": 1, "beta": 0.002,
        "temperature": 0.7, "top_p": 0.9, "epsilon": 0.1,
        "epsilon_high": 0.3, "warmup_steps": 7, "weight_decay": 0.01, "max_grad_norm": 0.5,
        "scale_rewards": "none", "loss_type": "grpo", "seed": 5, "num_generations_eval": 4,
        "per_device_eval_batch_size": 40, "max_completion_length": 8,
        "learning_rate": 3e-6 * (96 / 1024) ** 0.5, "lr_scheduler_type": "constant_with_warmup",
    }
    assert {key: config[key] for key in expected} == expected
    cispo = config_of(make_spec(recipe=Recipe(objective="cispo", clip_high=0.3)))
    assert (cispo["loss_type"], cispo["epsilon_high"]) == ("cispo", 1.3)
    plain = config_of(make_spec(recipe=Recipe(kl_coef=0.001, entropy_coef=0.003)))
    assert (plain["loss_type"], plain["scale_rewards"]) == ("dapo", "group")
    assert plain["entropy_coef"] == 0.003


def test_importance_sampling_is_the_recipes_not_trls_default() -> None:
    keys = [f"vllm_importance_sampling_{k}" for k in ("correction", "mode", "clip_max")]
    for cap, level, expected in (
        (None, "token", [False, None, None]),
        (2.0, "token", [True, "token_truncate", 2.0]),
        (3.5, "sequence", [True, "sequence_truncate", 3.5]),
    ):
        recipe = Recipe(importance_cap=cap, importance_level=level)
        config = config_of(make_spec(recipe=recipe))
        assert [config.get(key) for key in keys] == expected


def test_the_engine_writes_what_the_plan_writes() -> None:
    recipe = Recipe.for_difficulty("easy", objective="cispo", clip_high=0.3, weight_decay=0.1)
    spec = make_spec(6, 16, 40, recipe=recipe, seed=5)
    plan = trainer_settings("trl", spec.allocation, recipe, seed=5, response_tokens=8)
    assert plan.not_set == ()
    config = config_of(spec)
    batch = {"per_device_train_batch_size", "gradient_accumulation_steps"}  # one product
    assert {k: config[k] for k in plan.keys if k not in batch} == {
        k: v for k, v in plan.keys.items() if k not in batch}  # fmt: skip


@pytest.mark.parametrize(("b_p", "n"), [(1, 2), (7, 3), (32, 16), (13, 64), (1, 2048)])
def test_plan_and_engine_mean_the_same_batch(b_p: int, n: int) -> None:
    spec = make_spec(b_p, n, 9, train=digits("train", 40))
    for keys in (config_of(spec), trainer_settings("trl", spec.allocation, spec.recipe).keys):
        assert read_allocation("trl", keys) == spec.allocation


@pytest.mark.parametrize(("changes", "message"), [
    ({"recipe": Recipe(objective="ppo")}, "`objective` must be 'grpo' or 'cispo'"),
    ({"recipe": Recipe(advantage_std="population")}, "`advantage_std` must be"),
    ({"recipe": Recipe(aggregation="seq-mean-token-sum")}, "`aggregation` must be 'token-mean'"),
    ({"recipe": Recipe(objective="cispo", aggregation="seq-mean-token-mean")},
     "cispo and the entropy bonus are token-mean"),
    ({"recipe": Recipe(aggregation="seq-mean-token-mean", kl_coef=0.1, entropy_coef=0.1)},
     "the entropy bonus are token-mean"),
    ({"recipe": Recipe(zero_variance_filter="loss")}, "`zero_variance_filter` must be"),
    ({"recipe": Recipe(updates_per_batch=2)}, "`updates_per_batch` must be 1"),
    ({"recipe": Recipe(gradient_rollouts=4)}, "`gradient_rollouts` must be None"),
    ({"recipe": Recipe(importance_cap=0.5)}, "`importance_cap` must be >= 1 with the engine 'trl'"),
    ({"n": 1}, "`rollouts_per_problem >= 2` must hold"),
    ({"b_p": 17}, "must not exceed the training problems, but got 17 for 16"),
    ({"model": ""}, "engine_options.model must name"),
    ({"gpu": 1}, "must be among model, python"),
    ({"micro_batch": 0}, "engine_options.micro_batch must be an integer >= 1"),
    ({"threads": True}, "engine_options.threads must be"),
    ({"processes": 0}, "engine_options.processes must be an integer >= 1"),
    ({"processes": 3}, "multiple of the processes, but got 32 rollouts for 3"),
    ({"max_new_tokens": -1}, "engine_options.max_new_tokens must be"),
    ({"max_new_tokens": None}, "the length limit must be known"),
    ({"device": "tpu"}, "engine_options.device must be auto, cpu or cuda"),
    ({"overrides": ["use_vllm"]}, "engine_options.overrides must be a mapping"),
])
def test_what_trl_cannot_do_is_refused_first(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrlEngine().check(make_spec(**changes))


def test_a_k1_estimator_without_kl_changes_nothing_and_is_allowed() -> None:
    TrlEngine().check(make_spec(recipe=Recipe(kl_estimator="k1")))


# Every one of these changes B_p, n, M, the schedule, how often or how late a batch is used, the
# loss, the reward or the problems in TRL 1.16, or could not be told from one that does.
HARMFUL: list[dict[str, Any]] = [
    {"per_device_train_batch_size": 9}, {"gradient_accumulation_steps": 2}, {"max_steps": 9},
    {"num_generations": 3}, {"num_generations_eval": 2}, {"generation_batch_size": 64},
    {"steps_per_generation": 4}, {"num_iterations": 2}, {"num_train_epochs": 1},
    {"auto_find_batch_size": True}, {"per_device_eval_batch_size": 4},
    {"max_completion_length": 4}, {"temperature": 0.1}, {"top_p": 0.5}, {"top_k": 3},
    {"min_p": 0.1}, {"repetition_penalty": 1.1}, {"generation_kwargs": {"temperature": 0.1}},
    {"vllm_structured_outputs_regex": "[0-9]"}, {"mask_truncated_completions": True},
    {"learning_rate": 1.0}, {"lr_scheduler_type": "linear"}, {"warmup_steps": 9},
    {"lr_scheduler_kwargs": {"num_cycles": 2}}, {"optim": "sgd"}, {"optim_args": "x=1"},
    {"adam_beta1": 0.5}, {"weight_decay": 1.0}, {"max_grad_norm": 9.0},
    {"beta": 1.0}, {"sync_ref_model": True}, {"epsilon": 0.9}, {"epsilon_high": 0.9},
    {"delta": 2.0}, {"importance_sampling_level": "sequence"}, {"loss_type": "grpo"},
    {"scale_rewards": "batch"}, {"reward_weights": [2.0]}, {"top_entropy_quantile": 0.2},
    {"entropy_coef": 1.0}, {"use_adaptive_entropy": True}, {"off_policy_mask_threshold": 1.0},
    {"vllm_importance_sampling_correction": True}, {"vllm_importance_sampling_clip_max": 9.0},
    {"use_bias_correction_kl": True}, {"disable_dropout": False}, {"neftune_noise_alpha": 1.0},
    {"shuffle_dataset": True}, {"seed": 9}, {"data_seed": 9}, {"resume_from_checkpoint": "x"},
    {"eval_strategy": "steps"}, {"save_strategy": "steps"}, {"output_dir": "x"},
    {"use_liger_kernel": True}, {"deepspeed": "x.json"}, {"accelerator_config": {}},
    {" max_steps": 9}, {"no_such_field": 1}, {9: 9},
]  # fmt: skip
HARMLESS: list[dict[str, Any]] = [
    {"use_vllm": True, "vllm_mode": "colocate"}, {"vllm_gpu_memory_utilization": 0.4},
    {"vllm_mode": "server", "vllm_server_host": "10.0.0.1", "vllm_server_port": 8001},
    {"vllm_server_base_url": "http://10.0.0.1:8001"}, {"vllm_server_timeout": 30.0},
    {"vllm_tensor_parallel_size": 2}, {"vllm_enable_sleep_mode": True},
    {"vllm_max_model_length": 64}, {"bf16": False}, {"tf32": True},
    {"model_init_kwargs": {"attn_implementation": "sdpa"}}, {"gradient_checkpointing": False},
    {"gradient_checkpointing_kwargs": {"use_reentrant": False}}, {"torch_compile": True},
    {"torch_empty_cache_steps": 5}, {"log_completions": True}, {"log_level": "warning"},
    {"report_to": "wandb"}, {"run_name": "mine"}, {"dataloader_num_workers": 1},
    {"dataloader_pin_memory": False}, {"ddp_timeout": 60},
    {"chat_template_kwargs": {"enable_thinking": False}}, {"cast_lm_head_to_fp32": True},
]  # fmt: skip


def test_overrides_that_change_the_study_are_refused() -> None:
    assert len(HARMFUL) >= 40
    for overrides in HARMFUL:
        with pytest.raises(InputError, match="an override must not change what the study decides"):
            TrlEngine().check(make_spec(overrides=overrides))


def test_harmless_overrides_reach_grpo_config_and_change_nothing_else() -> None:
    assert len(HARMLESS) >= 20
    plain = config_of(make_spec())
    for overrides in HARMLESS:
        assert config_of(make_spec(overrides=overrides)) == plain | overrides


@pytest.mark.trainers
@needs_trl
def test_trl_knows_every_field_that_may_be_overridden() -> None:
    code = "import dataclasses, json, trl\n" \
           "print(json.dumps([f.name for f in dataclasses.fields(trl.GRPOConfig)]))"
    known = json.loads(subprocess.run([TRL_PYTHON, "-c", code], check=True, capture_output=True,
                                      text=True).stdout.splitlines()[-1])  # fmt: skip
    assert {*HARMLESS_FIELDS} <= {*known}
    assert {key for one in HARMFUL for key in one} - {*known} == {" max_steps", "no_such_field", 9}


def test_a_shipped_model_is_its_folder_and_knows_its_length() -> None:
    options = TrlOptions.of(make_spec(model="bits", max_new_tokens=None))
    assert Path(options.model_path, "model.safetensors").is_file()
    assert options.length_limit == 8
    assert TrlOptions.of(make_spec(model="../bits")).model_path == "../bits"


def test_order_of_training_is_passes_of_unique_batches_and_only_grows() -> None:
    order = training_order(10, 4, 5, seed=1)
    assert order.size == 20
    for pass_of in (order[:8], order[8:16]):  # 2 of 10 are dropped per pass
        assert len(set(pass_of.tolist())) == 8
    assert np.array_equal(training_order(10, 4, 9, seed=1)[:20], order)
    assert not np.array_equal(training_order(10, 4, 5, seed=2), order)


def test_both_engines_train_on_the_same_problems_in_the_same_order() -> None:
    local = pytest.importorskip("isocompute.engines.local.steps", reason="needs torch")
    steps = [local.batch_problems(step, 10, 4, 3) for step in range(1, 6)]
    assert np.concatenate(steps).tolist() == training_order(10, 4, 5, seed=3).tolist()


def test_a_python_that_is_not_there_and_one_that_fails(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="TRL must start, but '/no/python'"):
        TrlEngine().run(make_spec(python="/no/python"), None, ListSink(tmp_path))
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho no module named trl\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(RunError, match="gave 3 after step 0 of 4: no module named trl"):
        TrlEngine().run(make_spec(python=str(failing)), None, ListSink(tmp_path))


def fake_python(path: Path, events: list[dict[str, Any]]) -> str:
    """A Python that sends these events instead of training, and notes what it is told."""
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "out = os.fdopen(int(sys.argv[3]), 'w')\n"
        "job = json.load(open(sys.argv[2]))\n"
        "job['state'] = job['resume'] and json.load(open(job['resume'] + '/trainer_state.json'))\n"
        "job['replies'] = []\n"
        f"for event in json.loads({json.dumps(json.dumps(events))}):\n"
        "    print(json.dumps(event), file=out, flush=True)\n"
        "    job['replies'].append(json.loads(sys.stdin.readline() or 'null'))\n"
        f"json.dump(job, open({str(path)!r} + '.json', 'w'))\n")
    path.chmod(0o755)
    return str(path)


EVALUATION = {"kind": "evaluation", "step": 0, "tokens": 0, "problem_set": "val",
              "samples": [4] * 5, "successes": [1] * 5, "failed": 0, "sampled_tokens": 9,
              "wall_s": 0.1, "unjudged": [{"message": "ValueError: torn"}]}


@pytest.mark.parametrize(("event", "message"), [
    ({"kind": "step", "step": 1, "samples": [8] * 3, "problems": [0, 1, 2], "successes": [1] * 3},
     "step 1 must have 4 problems with 8 rollouts each, but TRL trained on 3"),
    (EVALUATION | {"samples": [4, 4, 4, 4, 2]},
     "must have 4 samples per problem, but step 0 has 2"),
    (EVALUATION | {"failed": 3}, "at least one evaluation must be judged in full, but the verifier"
     r" failed on 3 samples of 'val' \(ValueError: torn\)"),
])
def test_records_that_are_not_as_asked_are_refused(
    tmp_path: Path, event: dict[str, Any], message: str
) -> None:
    python = fake_python(tmp_path / "python", [event])
    with pytest.raises(RunError, match=message):
        TrlEngine().run(make_spec(python=python), None, ListSink(tmp_path))


def test_row_26_an_evaluation_with_a_failed_verifier_is_missing(tmp_path: Path) -> None:
    later = EVALUATION | {"step": 2}
    python = fake_python(tmp_path / "python", [EVALUATION | {"failed": 1}, later])
    sink = ListSink(tmp_path)
    TrlEngine().run(make_spec(python=python), None, sink)
    assert [record.step for record in sink.pending] == [2]


def test_what_trl_sends_is_counted_kept_and_gone_on_from(tmp_path: Path) -> None:
    """2 problems x 4 rollouts: 8 after the first update, 24 after the third."""
    saved = tmp_path / "saved"
    saved.mkdir()
    names = ("model.safetensors", "model-00002-of-00002.safetensors", "optimizer.pt",
             "training_args.bin", "rng_state.pth", "model-card.md",
             "other.safetensors")  # fmt: skip
    for name in names:
        (saved / name).write_text(name)
    state = {"global_step": 3, "max_steps": 3, "log_history": [{"loss": 1.0}]}
    (saved / "trainer_state.json").write_text(json.dumps(state))
    step = {"kind": "step", "step": 1, "tokens": 50, "samples": [4, 4], "problems": [7, 3],
            "successes": [1, 4], "health": {"grad_norm": 0.5}, "wall_s": 0.25,
            "unjudged": [{"problem": 7, "rollouts": 2, "message": "torn", "response": "8"}]}
    third = step | {"step": 3, "tokens": 150, "unjudged": []}
    last = EVALUATION | {"step": 3, "tokens": 150, "successes": [0, 1, 2, 3, 4]}
    kept = {"kind": "checkpoint", "step": 3, "tokens": 150, "path": str(saved)}
    python, sink = fake_python(tmp_path / "python", [step, third, last, kept]), ListSink(tmp_path)
    TrlEngine().run(make_spec(2, 4, 3, python=python), None, sink)
    first, then = sink.steps
    assert (first.step, first.rollouts, first.tokens, first.samples) == (1, 8, 50, 4)
    assert (first.problem_Q.tolist(), first.successes_Q.tolist()) == ([3, 7], [4, 1])
    assert (first.health, first.wall_s) == ({"grad_norm": 0.5}, 0.25)
    assert [(one.problem, one.rollouts) for one in first.unjudged] == [(7, 2)]
    assert (then.step, then.rollouts, then.tokens) == (3, 24, 150)
    (seen,) = sink.evaluations
    assert (seen.step, seen.rollouts, seen.tokens, seen.samples) == (3, 24, 150, 4)
    assert seen.successes_P.tolist() == [0, 1, 2, 3, 4]
    assert (seen.sampled_tokens, seen.wall_s) == (9, 0.1)
    job = json.loads((tmp_path / "python.json").read_text())
    assert (job["start"], job["tokens"], job["evaluated"], job["resume"]) == (0, 0, False, None)
    # evaluated, and saved with it, at the end alone: the grid begins at 64 rollouts
    assert job["replies"][:2] == [
        {"evaluate": False, "save": False}, {"evaluate": True, "save": True}
    ]
    assert sink.last is not None
    assert not saved.exists()
    assert {path.name for path in sink.last.iterdir()} == {
        *names[:3], "trainer_state.json", "trl.json"
    }
    assert json.loads((sink.last / "trainer_state.json").read_text()) == state | {"log_history": []}
    TrlEngine().run(make_spec(2, 4, 3, python="/no/python"), sink.last, sink)  # at its end already
    longer = fake_python(tmp_path / "longer", [])
    TrlEngine().run(make_spec(2, 4, 5, python=longer), sink.last, sink)
    job = json.loads((tmp_path / "longer.json").read_text())
    assert (job["start"], job["tokens"], job["evaluated"]) == (3, 150, True)
    assert job["state"] == state | {"log_history": [], "max_steps": 5}


# ---- with TRL ----


def world(name: str, size: int, seed: int) -> ProblemSet:
    from isocompute.engines.local.worlds import BitRuleWorld

    return BitRuleWorld(agree=17).problems(name, size, seed)


def bits_spec(**changes: Any) -> RunSpec:
    recipe = changes.pop("recipe", None) or Recipe(
        learning_rate=1e-3, temperature=1.0, warmup_steps=2)
    return make_spec(
        recipe=recipe, train=world("train", 16, 1),
        validation=changes.pop("validation", None) or world("val", 6, 2),
        **{"model": "bits", "max_new_tokens": None, "python": TRL_PYTHON, "micro_batch": 16,
           "device": "cpu", **changes})


def told(sink: ListSink) -> list[Any]:
    return [
        *((s.step, s.rollouts, s.tokens, s.problem_Q.tolist(), s.successes_Q.tolist(),
           s.health["grad_norm"]) for s in sink.steps),
        *((e.step, e.tokens, e.successes_P.tolist(), e.sampled_tokens) for e in sink.evaluations),
    ]


@pytest.mark.trainers
@needs_trl
def test_two_processes_train_one_batch_and_resume(tmp_path: Path) -> None:
    spec = bits_spec(processes=2)
    whole = ListSink(tmp_path / "whole")
    TrlEngine().run(spec, None, whole)
    assert [s.step for s in whole.steps] == [1, 2, 3, 4]
    for step in whole.steps:  # every rollout of both, told once
        assert len(step.problem_Q) == 4
        assert step.samples == 8
        assert step.tokens == step.step * 32 * 8  # eight tokens each: nothing counted twice
    order = training_order(len(spec.train), 4, 4, spec.seed).reshape(4, 4)
    assert [sorted(row) for row in order.tolist()] == [s.problem_Q.tolist() for s in whole.steps]
    for evaluation in whole.evaluations:
        assert len(evaluation.successes_P) == 6
        assert evaluation.successes_P.max() <= 4
    alone = ListSink(tmp_path / "alone")
    TrlEngine().run(bits_spec(), None, alone)
    assert told(alone) != told(whole)  # each process draws its own
    for one, two in zip(alone.steps, whole.steps, strict=True):
        assert one.problem_Q.tolist() == two.problem_Q.tolist()
    cut = ListSink(tmp_path / "cut", stop_at=2)
    with pytest.raises(StopRequested):
        TrlEngine().run(spec, None, cut)
    cut.stop_at = None
    TrlEngine().run(spec, cut.last, cut)
    assert told(cut) == told(whole)


@pytest.mark.trainers
@needs_trl
def test_processes_of_one_problem_draw_different_responses(tmp_path: Path) -> None:
    """One problem on two processes: with one stream both would draw the same four responses."""
    spec = bits_spec(b_p=1, n=8, steps=12, processes=2, micro_batch=4)
    sink = ListSink(tmp_path)
    TrlEngine().run(spec, None, sink)
    assert [s.samples for s in sink.steps] == [8] * 12
    assert any(int(s.successes_Q[0]) % 2 for s in sink.steps)  # twins would give even counts


@pytest.mark.trainers
@needs_trl
def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    class Killer(ListSink):
        def step(self, record: Any) -> None:
            super().step(record)
            for status in Path("/proc").glob("[0-9]*/environ"):
                try:
                    words = status.read_bytes()
                    line = (status.parent / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"RANK=1" in words and str(tmp_path).encode() in line:
                    os.kill(int(status.parent.name), 9)

    spec = bits_spec(processes=2, steps=50)
    tempfile.tempdir = str(tmp_path)
    try:
        with pytest.raises(RunError, match="TRL must end with exit code 0"):
            TrlEngine().run(spec, None, Killer(tmp_path / "sink"))
    finally:
        tempfile.tempdir = None


@pytest.mark.trainers
@needs_trl
def test_a_stopped_run_resumes_as_if_uninterrupted(tmp_path: Path) -> None:
    whole = ListSink(tmp_path / "whole")
    TrlEngine().run(bits_spec(), None, whole)
    assert [s.step for s in whole.steps] == [1, 2, 3, 4]
    assert [s.rollouts for s in whole.steps] == [32, 64, 96, 128]
    assert [e.step for e in whole.evaluations] == [0, 2, 4]
    assert whole.evaluations[0].sampled_tokens == 6 * 4 * 8
    first = whole.steps[0]
    assert first.health["learning_rate"] == pytest.approx(bits_spec().learning_rate / 2)
    assert first.health["reward"] == first.successes_Q.sum() / 32

    cut = ListSink(tmp_path / "cut", stop_at=2)
    with pytest.raises(StopRequested):
        TrlEngine().run(bits_spec(), None, cut)
    cut.stop_at, cut.pending = None, []
    TrlEngine().run(bits_spec(), cut.last, cut)
    assert told(cut) == told(whole)
    # answers have a fixed length: none ends early, and none counts as cut off
    assert [s.tokens for s in whole.steps] == [256, 512, 768, 1024]
    assert "clipped_share" not in first.health
    final = [sink.last / "model.safetensors" for sink in (cut, whole) if sink.last]
    assert final[0].read_bytes() == final[1].read_bytes()
    kept = {p.name for p in final[0].parent.iterdir()}
    assert not {"training_args.bin", "rng_state.pth"} & kept  # row 20

    # a larger budget continues the run: its first steps are the same
    longer = ListSink(tmp_path / "longer")
    TrlEngine().run(bits_spec(steps=6), cut.last, longer)
    assert [s.step for s in longer.steps] == [5, 6]
    TrlEngine().run(bits_spec(), cut.last, longer)  # nothing left to do
    assert len(longer.steps) == 2


class _AskedError(Exception):
    """What TRL was asked for."""


def test_on_a_gpu_weights_keep_updates_that_bfloat16_would_round_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(**words: Any) -> None:
        raise _AskedError(words)

    tokenizer = SimpleNamespace(eos_token="<end>", chat_template=None)
    rows = SimpleNamespace(select=lambda order: order)
    stubs = {
        "datasets": {"disable_progress_bars": lambda: None,
                     "Dataset": SimpleNamespace(from_list=lambda _: rows)},
        "transformers": {
            "AutoTokenizer": SimpleNamespace(from_pretrained=lambda *_, **__: tokenizer)},
        "trl": {"GRPOConfig": asked},
        "torch": {"cuda": SimpleNamespace(is_available=lambda: True)},
    }  # fmt: skip
    for name, words in stubs.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**words))
    found = importlib.util.spec_from_file_location("trl_program", trl_engine._PROGRAM)
    assert found is not None
    assert found.loader is not None
    program = importlib.util.module_from_spec(found)
    found.loader.exec_module(program)
    job = {"device": "auto", "model": "m", "chat": None, "sets": {}, "train": [], "order": [],
           "folder": "f", "config": {}}  # fmt: skip
    for more, kept in (({}, {"dtype": "float32"}),
                       ({"model_init_kwargs": {"attn_implementation": "sdpa"}},
                        {"dtype": "float32", "attn_implementation": "sdpa"}),
                       ({"model_init_kwargs": {"dtype": "bfloat16"}}, {"dtype": "bfloat16"})):
        program.JOB.update(job | {"config": more})
        with pytest.raises(_AskedError) as told:
            program.run(program.Channel(None))
        words = told.value.args[0]
        assert (words["bf16"], words["use_cpu"], words["model_init_kwargs"]) == (True, False, kept)


@pytest.mark.gpu
@needs_trl
def test_a_gpu_trains_and_resumes(tmp_path: Path) -> None:
    """Products in bfloat16, chosen by `auto`; a resumed run goes on where it was."""
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("needs a CUDA device")
    whole = ListSink(tmp_path / "whole")
    TrlEngine().run(bits_spec(device="auto"), None, whole)
    cut = ListSink(tmp_path / "cut", stop_at=2)
    with pytest.raises(StopRequested):
        TrlEngine().run(bits_spec(device="cuda"), None, cut)
    cut.stop_at, cut.pending = None, []
    TrlEngine().run(bits_spec(device="cuda"), cut.last, cut)
    for sink in (whole, cut):
        assert [s.step for s in sink.steps] == [1, 2, 3, 4]
        assert [s.tokens for s in sink.steps] == [256, 512, 768, 1024]
        assert [e.step for e in sink.evaluations] == [0, 2, 4]
        assert all(np.isfinite(v) for s in sink.steps for v in s.health.values())
    assert [s.problem_Q.tolist() for s in cut.steps] == [s.problem_Q.tolist() for s in whole.steps]
    assert told(cut) == told(whole)
    assert whole.last is not None
    kept = pytest.importorskip("safetensors.torch").load_file(whole.last / "model.safetensors")
    assert {str(value.dtype) for value in kept.values()} == {"torch.float32"}


@pytest.mark.trainers
@needs_trl
@pytest.mark.parametrize("recipe", [
    Recipe(objective="cispo", learning_rate=1e-3, temperature=1.0),
    Recipe(kl_coef=0.1, entropy_coef=0.01, learning_rate=1e-3, temperature=1.0),
])
def test_other_recipes_train(tmp_path: Path, recipe: Recipe) -> None:
    sink = ListSink(tmp_path)
    TrlEngine().run(bits_spec(steps=2, recipe=recipe), None, sink)
    assert [s.step for s in sink.steps] == [1, 2]
    if recipe.kl_coef:
        assert sink.steps[0].health["kl"] == pytest.approx(0.0, abs=1e-6)
        assert sink.steps[1].health["kl"] > 0
    weights = [folder / "model.safetensors" for folder in sorted(tmp_path.iterdir())]
    assert weights[0].read_bytes() != weights[-1].read_bytes()


@pytest.mark.trainers
@needs_trl
def test_trl_and_the_embedded_engine_draw_from_the_same_policy(tmp_path: Path) -> None:
    from isocompute.engines.local import LocalEngine

    validation = world("val", 300, 3)
    means = []
    for engine, options in ((TrlEngine(), None), (LocalEngine(), {"model": "bits"})):
        spec = bits_spec(steps=1, validation=validation)
        if options is not None:
            spec = RunSpec(**{**spec.__dict__, "engine": "local", "engine_options": options})
        sink = ListSink(tmp_path / engine.name)
        engine.run(spec, None, sink)
        assert sink.steps[0].rollouts == 32
        assert sink.steps[0].tokens == 32 * 8
        means.append(sink.evaluations[0].successes_P.mean() / 4)
    # 1200 samples each, standard error of the difference below 0.02
    assert means[0] == pytest.approx(means[1], abs=0.06)


@pytest.mark.trainers
@needs_trl
class TestConformance(EngineTestCase):
    supported = [{"learning_rate": 1e-1}, {"temperature": 0.5}, {"advantage_std": "none"}]
    unsupported = [{"objective": "ppo"}, {"zero_variance_filter": "loss"},
                   {"updates_per_batch": 2}]
    unsupported_options = [{"no_such_option": 1}, {"max_new_tokens": "many"}]

    def engine(self) -> TrlEngine:
        return TrlEngine()

    def spec(self) -> RunSpec:
        return bits_spec(steps=4)
