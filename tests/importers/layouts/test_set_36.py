"""The thirty-sixth blind set: what every folder must give, and what was wrong at the first try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import set_36
from isocompute.importers.beside.listed import runs_listed
from isocompute.importers.tables.handing import is_a_table
from isocompute.importers.words.names import recipe_in
from layout_helpers import load, log, refused, score, write

# What a user adds, who reads what the tool says: its maps, its settings, its options.
TOLD: dict[str, tuple[Sequence[str], Sequence[str], dict[str, object]]] = {
    "verl_dapo": ((), (), {"metric": "avg@16"}),
    "trl_outputs": (
        (), ("pattern=G{rollouts_per_problem}-seed{seed}", "problems_per_batch=16"),
        {"metric": "avg:accuracy_reward"},
    ),
    "easyr1": ((), (), {"metric": "avg@1:accuracy"}),
    "wandb_chart": (
        (), ("pattern=bs{problems_per_batch}-n{rollouts_per_problem}-s{seed}",),
        {"problem_set": "math500", "where": ["run=*[12]"]},
    ),
    "open_instruct": ((), (), {"score_range": (0.0, 10.0)}),
    "mlflow_runs": (("eval/test_acc=avg",), (), {"score_range": (0.0, 100.0)}),
    "workbook": (
        ("Test acc. (%)=score", "Prompts / batch=problems_per_batch",
         "Samples / prompt=rollouts_per_problem"), (), {},
    ),
    "lm_eval": (
        (), ("pattern=n{rollouts_per_problem}_bp{problems_per_batch}_s{seed}",),
        {"metric": "avg:exact_match,strict-match"},
    ),
}  # fmt: skip
SCALE = {"open_instruct": 10, "mlflow_runs": 100, "workbook": 100}


@pytest.mark.parametrize("maker", set_36.MAKERS, ids=lambda maker: maker.__name__)
def test_what_was_planted_is_read(tmp_path: Path, maker: object) -> None:
    set_36.TRUTH.clear()
    maker(tmp_path)  # type: ignore[operator]
    (name,) = set_36.TRUTH
    maps, sets, options = TOLD.get(name, ((), (), {}))
    curves = load(tmp_path / name, maps, sets, **options)
    scale = 1 if all(c.score_K.max() <= 1 for c in curves) else SCALE[name]
    read = sorted(
        (c.problems_per_batch, c.rollouts_per_problem, c.seed or 0, c.rollouts_K.tolist(),
         [round(float(s) / scale, 3) for s in c.score_K])
        for c in curves
    )  # fmt: skip
    wanted = sorted(
        (one["bp"], one["n"], one["seed"] or 0, [r for r, _ in one["points"]],
         [round(s, 3) for _, s in one["points"]])
        for one in set_36.TRUTH[name]
    )  # fmt: skip
    if not any(of[2] for of in wanted):  # the truth has none; the configuration may
        read = [(*of[:2], 0, *of[3:]) for of in read]
    assert [of[:4] for of in read] == [of[:4] for of in wanted]
    for one, other in zip(read, wanted, strict=True):
        assert one[4] == pytest.approx(other[4], abs=1.1e-3)


def test_one_run_of_another_recipe_is_no_further_seed(tmp_path: Path) -> None:
    set_36.wandb_chart(tmp_path)
    maps, sets, options = TOLD["wandb_chart"]
    told = refused(tmp_path / "wandb_chart", maps, sets, problem_set="math500")
    assert ("'qwen3-4b-grpo-bs64-n8-s1-lr5e-6' is of n = 8 and seed 1, as "
            "'qwen3-4b-grpo-bs64-n8-s1' is") in told  # fmt: skip
    assert "--where run='!qwen3-4b-grpo-bs64-n8-s1-lr5e-6'" in told
    every = load(tmp_path / "wandb_chart", maps, sets, problem_set="math500", where=["run=*"])
    assert len(every) == len(load(tmp_path / "wandb_chart", maps, sets, **options)) + 1 == 9


@pytest.mark.parametrize("again", ["n4_s1_run2", "n4_s1_b", "n4_s1_20260501"])
def test_a_repetition_under_its_number_is_one(tmp_path: Path, again: str) -> None:
    for n in (4, 8):
        log(tmp_path, f"n{n}_s1", n)
    write(tmp_path / f"{again}.jsonl", "".join(
        json.dumps({"step": s, "val/accuracy": score(s, 4, 0.01)}) + "\n" for s in range(0, 60, 10)
    ))
    design = ["pattern=n{rollouts_per_problem}_s{seed}", "problems_per_batch=4"]
    assert len(load(tmp_path, ["val/accuracy=avg"], design)) == 3


def test_configurations_by_the_name_of_a_run(tmp_path: Path) -> None:
    said = {f"r{n}": {"num_unique_prompts_rollout": 6, "num_samples_per_prompt_rollout": n,
                       "seed": 3} for n in (4, 8)}  # fmt: skip
    file = write(tmp_path / "configs.json", json.dumps(said))
    assert runs_listed(file)["r8"]["num_samples_per_prompt_rollout"] == 8
    listed = "".join(json.dumps({"name": run, "config": one}) + "\n" for run, one in said.items())
    assert [*runs_listed(write(tmp_path / "runs.jsonl", listed))] == ["r4", "r8"]
    # the sections of one run are no runs
    one = {"data": {"train_batch_size": 6}, "algorithm": {"kl": 0.0}}
    assert not runs_listed(write(tmp_path / "config.json", json.dumps(one)))


def test_a_slash_between_words_is_a_per(tmp_path: Path) -> None:
    set_36.workbook(tmp_path)
    file = next((tmp_path / "workbook").iterdir())
    header = "Run,Prompts / batch,Samples / prompt,Seed,Train step,Test acc. (%)"
    said = str(is_a_table(file, header))
    assert "--map 'Prompts / batch=problems_per_batch'" in said
    assert "--map 'Samples / prompt=rollouts_per_problem'" in said


# Variants of the same folders, for numbers that are wrong and say nothing.

SEEDS = ((4, 1), (4, 2), (8, 1), (8, 2))
NAMED = ["pattern=bp{problems_per_batch}_n{rollouts_per_problem}*s{seed}"]


def jsonl(path: Path, n: int, seed: int, digits: int = 5) -> None:
    rows = ({"step": s, "val/accuracy": round(score(s, n, 0.0013171 * seed), digits)}
            for s in range(0, 60, 10))  # fmt: skip
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("usual", "other", "word", "choice"), [
    ("lr1e-6", "lr5e-6", "learning rate", "learning_rate=1e-06"),
    ("kl0.0", "kl0.01", "kl coef", "kl_coef=0"),
    ("temp0.7", "temp1.0", "temperature", "temperature=0.7"),
])  # fmt: skip
def test_a_name_that_says_another_recipe(
    tmp_path: Path, usual: str, other: str, word: str, choice: str
) -> None:
    for n, seed in SEEDS:
        jsonl(tmp_path / f"bp6_n{n}_{usual}_s{seed}.jsonl", n, seed)
    jsonl(tmp_path / f"bp6_n4_{other}_s3.jsonl", 4, 3)
    told = refused(tmp_path, ["val/accuracy=avg"], NAMED)
    assert f"runs must share their {word}" in told
    assert f"--where {choice}" in told
    assert len(load(tmp_path, ["val/accuracy=avg"], NAMED, where=[choice])) == 4


@pytest.mark.parametrize(("usual", "other", "choice"), [
    ("lr1e-6/bp6", "lr5e-6/bp6", "learning_rate=1e-06"),
    ("qwen2.5-1.5B-bp6", "qwen2.5-3B-bp6", "model=1.5b"),
])  # fmt: skip
def test_a_folder_or_a_name_that_says_another_recipe_or_model(
    tmp_path: Path, usual: str, other: str, choice: str
) -> None:
    for n, seed in SEEDS:
        jsonl(tmp_path / f"{usual}_n{n}_s{seed}.jsonl", n, seed)
    assert len(load(tmp_path, ["val/accuracy=avg"], NAMED)) == 4
    jsonl(tmp_path / f"{other}_n4_s3.jsonl", 4, 3)
    assert f"choose with --where {choice}" in refused(tmp_path, ["val/accuracy=avg"], NAMED)
    assert len(load(tmp_path, ["val/accuracy=avg"], NAMED, where=[choice])) == 4


def test_a_start_in_hydra_s_folders_that_died_is_no_seed(tmp_path: Path) -> None:
    for at, (n, seed, last) in enumerate([(4, 1, 50), (4, 2, 20), (4, 2, 50), (8, 1, 50)]):
        home = tmp_path / "outputs" / "2026-04-01" / f"10-{at:02d}-00"
        said = {"data": {"train_batch_size": 6, "seed": seed}, "trainer": {
            "total_training_steps": 50}, "actor_rollout_ref": {"rollout": {"n": n}}}  # fmt: skip
        write(home / ".hydra" / "config.yaml", json.dumps(said))
        rows = ({"step": s, "data": {"val-core/math/acc/mean@4": score(s, n, at / 300)}}
                for s in range(0, last + 1, 10))  # fmt: skip
        write(home / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    runs = {c.run: c.seed for c in load(tmp_path)}
    assert runs == {"10-00-00": 1, "10-02-00": 2, "10-03-00": 1}


def test_names_that_say_no_recipe(tmp_path: Path) -> None:
    assert recipe_in("n8_lr_sweep2") == recipe_in("qwen-temp1-n8") == recipe_in("klue3_n8") == {}
    assert recipe_in("run-x3k9q2b") == recipe_in("b32_n8") == {}
    assert recipe_in("grpo-n8-lr=2.5e-6") == {"learning_rate": "2.5e-06"}


def test_a_rate_that_follows_n_is_kept(tmp_path: Path) -> None:
    for n, seed in SEEDS:
        jsonl(tmp_path / f"bp6_n{n}_lr{n}e-6_s{seed}.jsonl", n, seed)
    curves = load(tmp_path, ["val/accuracy=avg"], NAMED)
    assert {(c.rollouts_per_problem, c.recorded["learning_rate"]) for c in curves} == {
        (4, 4e-6), (8, 8e-6)
    }


def test_a_configuration_that_says_another_recipe(tmp_path: Path) -> None:
    def verl(n: int, seed: int, kl: float) -> None:
        actor = {"use_kl_loss": True, "kl_loss_coef": kl, "optim": {"lr": 1e-6}}
        said = {"data": {"train_batch_size": 6, "seed": seed},
                "actor_rollout_ref": {"rollout": {"n": n}, "actor": actor}}  # fmt: skip
        write(tmp_path / f"r{n}{seed}" / "config.json", json.dumps(said))
        rows = ({"step": s, "val-core/math/acc/mean@4": score(s, n, 0.0013 * seed)}
                for s in range(0, 60, 10))  # fmt: skip
        write(tmp_path / f"r{n}{seed}" / "metrics.jsonl", "".join(
            json.dumps(row) + "\n" for row in rows))  # fmt: skip

    for n, seed in SEEDS:
        verl(n, seed, 0.001)
    assert len(load(tmp_path)) == 4
    verl(4, 3, 0.1)
    assert "kl coef to be compared or averaged, but have 0.001 (4 runs), 0.1" in refused(tmp_path)
    assert len(load(tmp_path, where=["kl_coef=0.001"])) == 4
    assert len(load(tmp_path, where=["kl_coef=*"])) == 5


def test_a_coefficient_that_adapts_is_measured_and_tells_no_runs_apart(tmp_path: Path) -> None:
    """A controller of the KL moves its coefficient, in each run by its own luck."""
    rows = ["problems_per_batch,rollouts_per_problem,seed,rollouts,score,kl_coef"]
    for seed in (1, 2):
        rows += [f"16,8,{seed},{k * 2560},{0.2 + k / 20 + seed / 999},{0.001 * seed * k}"
                 for k in (1, 2, 3)]  # fmt: skip
    write(tmp_path / "curves.csv", "\n".join(rows) + "\n")
    curves = load(tmp_path / "curves.csv")
    assert [c.recorded for c in curves] == [{}, {}]


def evaluations(path: Path, named: str, rates: bool) -> None:
    rows = [["run", "prompts_per_step", "group_size", "seed", "step", "val_acc", named]]
    for n, seed in (*SEEDS, (4, 3)):
        rate = 1e-5 if seed == 3 else 1e-6
        rows += [[f"r{n}{seed}", "6", f"{n}", f"{seed}", f"{s}", f"{score(s, n, seed / 700)}",
                  f"{rate}"] for s in range(0, 60, 10)]  # fmt: skip
    write(path, "\n".join(",".join(row if rates else row[:-1]) for row in rows) + "\n")


MAPS = ["val_acc=score", "prompts_per_step=problems_per_batch", "group_size=rollouts_per_problem"]


@pytest.mark.parametrize("named", ["lr", "actor_lr", "peak_lr", "policy_learning_rate"])
def test_a_column_of_rates(tmp_path: Path, named: str) -> None:
    evaluations(tmp_path / "all.csv", named, rates=True)
    told = refused(tmp_path / "all.csv", MAPS)
    assert "those of 6 x 4 have 1e-06, 1e-05" in told
    assert len(load(tmp_path / "all.csv", MAPS, where=["learning_rate=1e-6"])) == 4


def test_rates_in_a_table_of_runs_beside(tmp_path: Path) -> None:
    evaluations(tmp_path / "evals.csv", "lr", rates=False)
    runs = [f"r{n}{s},{1e-5 if s == 3 else 1e-6}" for n, s in (*SEEDS, (4, 3))]
    write(tmp_path / "runs.csv", "\n".join(["run,lr", *runs]) + "\n")
    told = refused(tmp_path / "evals.csv", MAPS)
    assert "those of 6 x 4 have 1e-06, 1e-05; choose with --where learning_rate=1e-06" in told
    assert len(load(tmp_path / "evals.csv", MAPS, where=["learning_rate=1e-6"])) == 4
    assert "there is no 'temperature'" in refused(
        tmp_path / "evals.csv", MAPS, where=["temperature=1"])  # fmt: skip


def test_a_rounded_copy_is_no_second_run(tmp_path: Path) -> None:
    for n, seed in SEEDS:
        jsonl(tmp_path / "full" / f"bp6_n{n}_s{seed}.jsonl", n, seed, digits=6)
        jsonl(tmp_path / "for_the_paper" / f"bp6_n{n}_s{seed}.jsonl", n, seed, digits=3)
    curves = load(tmp_path, ["val/accuracy=avg"], NAMED)
    assert len(curves) == 4
    first = next(c for c in curves if c.rollouts_per_problem == 4 and c.seed == 1)
    assert first.score_K[1] == round(score(10, 4, 0.0013171), 6)  # the finer one is kept


def test_three_columns_that_are_called_steps(tmp_path: Path) -> None:
    rows = [",".join(["n", "seed", "step 0", "step 40", "step 80"])]
    rows += [",".join(map(str, (n, s, *(score(k, n, s / 700) for k in (0, 40, 80)))))
             for n, s in SEEDS]  # fmt: skip
    table = write(tmp_path / "wide.csv", "\n".join(rows) + "\n")
    sets = ["problems_per_batch=6"]
    assert "--set pattern='step {steps}'" in refused(table, (), sets)
    curves = load(table, ["n=rollouts_per_problem"], [*sets, "pattern=step {steps}"])
    assert {(*c.rollouts_K,) for c in curves if c.rollouts_per_problem == 4} == {(0, 960, 1920)}


def test_a_start_that_repeats_rows_of_the_one_before_takes_its_beginning_along(
    tmp_path: Path,
) -> None:
    """A job that goes on from step 20 logs steps 21 to 44 once more, number for number."""
    def row(step: int, luck: float) -> str:
        said = {"critic/score/mean": 0.3 + step / 997 + luck}
        if step % 10 == 0:
            said["val-core/math/acc/mean@4"] = 0.2 + step / 499 + luck
        return json.dumps({"step": step, "data": said}) + "\n"

    folder = tmp_path / "bp16_n8_s1"
    folder.mkdir()
    first = [row(s, 0.0) for s in range(58)]
    after = [row(s, 0.0 if s < 45 else 0.001) for s in range(21, 93)]
    (folder / "job_101.jsonl").write_text("".join(first))
    (folder / "job_102.jsonl").write_text("".join(after))
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}_s{seed}"
    (run,) = load(tmp_path, (), (pattern,))
    assert run.steps_K.tolist() == list(range(0, 100, 10))
    assert run.score_K[[4, 5]] == pytest.approx([0.2 + 40 / 499, 0.201 + 50 / 499])
