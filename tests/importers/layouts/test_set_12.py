"""A twelfth blind set: what its fourteen layouts found, each with variations of its principle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import ImportedRun, import_logs, load_settings, read_log
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.names import pattern_for
from isocompute.sources import load_curves
from test_set_11 import events

SIZES = (4, 8, 16)


def score(n: int, step: int) -> float:
    return round(0.2 + 0.4 * (1 - 0.98**step) + n / 1000, 4)


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def document(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def held_out(run: ImportedRun) -> dict[int, float]:
    """The only held-out curve of a run."""
    (s,) = (s for s in run.series if s.split == "validation")
    return dict(zip(s.step_K.tolist(), s.score_K.tolist(), strict=True))


def refused(source: Path, *words: str, maps: Iterable[str] = ()) -> str:
    """What an import says instead of a number."""
    with pytest.raises(InputError) as caught:
        import_logs([source], source.parent / "study", settings=load_settings(words, [*maps]))
    return str(caught.value)


# 1 a training score never stands for the held-out one
@pytest.mark.parametrize(
    ("key", "metric"),
    [("heldout/accuracy", "avg"), ("math500_acc", "avg"), ("eval/score", "avg"),
     ("test/mean@8", "avg@8"), ("dev_exact_match", "avg"), ("val/pass@4", "best@4")],
)  # fmt: skip
def test_a_held_out_score_is_never_passed_over_for_the_training_one(
    tmp_path: Path, key: str, metric: str
) -> None:
    rows = [{"step": s, "train/reward": 0.1 + s / 100, key: score(8, s)} for s in range(0, 50, 10)]
    log = lines(tmp_path / "run.jsonl", rows)
    given = ["problems_per_batch=32", "rollouts_per_problem=8"]
    said = refused(log, *given)
    assert f"{key} was not read; add --map {key}={metric}, or --set split=train" in said
    settings = load_settings(given, [f"{key}={metric}"])
    (run,) = read_log(log, settings=settings)
    assert held_out(run) == {s: score(8, s) for s in range(0, 50, 10)}
    import_logs([log], tmp_path / "own", settings=load_settings([*given, "split=train"]))


@pytest.mark.parametrize("key", ["train/accuracy", "batch/success", "val_loss", "actor/acc_std"])
def test_a_log_of_training_alone_is_kept(tmp_path: Path, key: str) -> None:
    rows = [{"step": s, "train/reward": 0.1 + s / 100, key: 0.5} for s in range(5)]
    settings = load_settings(["problems_per_batch=32", "rollouts_per_problem=8"])
    summary = import_logs([lines(tmp_path / "run.jsonl", rows)], tmp_path / "s", settings=settings)
    assert summary.stored == ["run"]


# 2 rows that say their split
@pytest.mark.parametrize(
    ("word", "train", "test"),
    [("kind", "train", "eval"), ("split", "training", "test"), ("mode", "Train", "Validation"),
     ("event", "train", "held_out")],
)  # fmt: skip
@pytest.mark.parametrize("key", ["accuracy", "reward"])
def test_rows_of_two_splits_under_one_key_are_two_series(
    tmp_path: Path, word: str, train: str, test: str, key: str
) -> None:
    rows: list[dict[str, Any]] = []
    for s in range(0, 40, 5):
        rows.append({"step": s, word: train, key: 0.9, "entropy": 0.1})
        rows.append({"step": s, word: test, key: score(8, s)})
    log = lines(tmp_path / "run.jsonl", rows)
    (run,) = read_log(log, settings=load_settings([], [f"{key}=avg"]))
    assert held_out(run) == {s: score(8, s) for s in range(0, 40, 5)}
    assert {s.split: s.score_K[0] for s in run.series} == {"train": 0.9, "validation": score(8, 0)}


# 3 a counter beside the step that says otherwise
def clearml(path: Path, n: int, *, gap: int, key: str = "progress/updates_done") -> Path:
    """Series apart, each with its own x, which jumps where the task was continued."""
    title, _, series = key.rpartition("/")
    x = [s if s <= 20 else s + gap for s in range(1, 41)]
    at = [0, *(s if s <= 20 else s + gap for s in range(5, 41, 5))]
    true = [0, *range(5, 41, 5)]
    arguments = {"group_size": n, "prompts_per_update": 64, "seed": 42}
    told = {k: {"section": "Args", "name": k, "value": str(v), "type": "int"}
            for k, v in arguments.items()}  # fmt: skip
    return document(path, {
        "id": path.stem, "name": f"GRPO group={n}", "hyperparameters": {"Args": told},
        "scalars": {
            "heldout": {"accuracy": {"name": "accuracy", "x": at,
                                     "y": [score(n, s) for s in true]}},
            "train": {"reward": {"name": "reward", "x": x, "y": [0.5] * 40}},
            title: {series: {"name": series, "x": x, "y": [float(s) for s in range(1, 41)]}},
        },
    })  # fmt: skip


@pytest.mark.parametrize("key", ["progress/updates_done", "rl/num_updates", "loop/train_iters"])
def test_a_counter_of_updates_beside_the_step_is_held_against_it(tmp_path: Path, key: str) -> None:
    for n in SIZES:
        clearml(tmp_path / "logs" / f"task_{n}.json", n, gap=20 if n == 8 else 0, key=key)
    said = refused(tmp_path / "logs")
    assert f"step says 60 where {key} says 40; choose with --set step={key} or" in said
    assert " add --map heldout/accuracy=avg, or" in said  # all that is open, in one message
    settings = load_settings([f"step={key}"], ["heldout/accuracy=avg"])
    for run in read_log(tmp_path / "logs", settings=settings):
        n = run.rollouts_per_problem or 0
        assert (run.problems_per_batch, run.seed) == (64, 42)
        assert held_out(run) == {s: score(n, s) for s in range(0, 41, 5)}


def test_a_counter_in_rows_is_held_against_the_step(tmp_path: Path) -> None:
    rows = [{"step": 4 * s, "updates_done": s, "val/acc": score(8, s)} for s in range(12)]
    log = lines(tmp_path / "run.jsonl", rows)
    said = refused(log, maps=["val/acc=avg"])
    assert "step says 44 where updates_done says 11" in said
    for name, last in (("updates_done", 11), ("step", 44)):
        settings = load_settings([f"step={name}"], ["val/acc=avg"])
        assert max(held_out(read_log(log, settings=settings)[0])) == last


@pytest.mark.parametrize(
    "beside",
    [lambda s: {"updates_done": s}, lambda s: {"updates_done": s + 1},  # counted from 1
     lambda s: {"timing_s/step": 90 + s}, lambda s: {"max_steps": 500},
     lambda s: {"optimizer_steps": 8 * s}, lambda s: {"env/steps": 90 * s},
     lambda s: {"rollout_updates": (7 * s) % 5}],
)  # fmt: skip
def test_other_counts_beside_the_step_are_left_alone(tmp_path: Path, beside: Any) -> None:
    rows = [{"step": s, "val/acc": score(8, s), **beside(s)} for s in range(0, 40, 2)]
    log = lines(tmp_path / "run.jsonl", rows)
    (run,) = read_log(log, settings=load_settings([], ["val/acc=avg"]))
    assert max(held_out(run)) == 38


def test_columns_of_one_document_take_the_counter_by_their_step(tmp_path: Path) -> None:
    at = [10 * s for s in range(9)]
    one = {"config": {"group_size": 8, "prompts_per_step": 32}, "history": {
        "_step": at, "val/acc": [score(8, s) for s in range(9)],
        "train/global_step": list(range(9)),
    }}  # fmt: skip
    log = document(tmp_path / "run.json", one)
    settings = load_settings(["step=train/global_step"], ["val/acc=avg"])
    assert held_out(read_log(log, settings=settings)[0]) == {s: score(8, s) for s in range(9)}


# 4 the configuration beside a log
def ray(folder: Path, n: int, *, restored: int = 0) -> Path:
    rows = [{"training_iteration": s, "heldout_accuracy": score(n, s), "reward_train": 0.3}
            for s in range(1, 25)]  # fmt: skip
    if restored:
        again = [{**row, "heldout_accuracy": row["heldout_accuracy"] + 0.01} for row in rows]
        rows = rows[: restored + 5] + again[restored:]
    trial = folder / f"Trainable_c41f_{n:05}_num_generations={n}"
    document(trial / "params.json",
             {"num_generations": n, "prompts_per_iteration": 256, "seed": 3})  # fmt: skip
    return lines(trial / "result.json", rows)


def test_ray_tunes_parameters_lie_beside_its_results(tmp_path: Path) -> None:
    for n in SIZES:
        ray(tmp_path / "logs", n, restored=12 if n == 16 else 0)
    assert refused(tmp_path / "logs").endswith("name the score: --map heldout_accuracy=avg.")
    runs = read_log(tmp_path / "logs", settings=load_settings([], ["heldout_accuracy=avg"]))
    found = {(r.problems_per_batch, r.rollouts_per_problem, r.seed) for r in runs}
    assert found == {(256, n, 3) for n in SIZES}
    assert all(run.name.startswith("Trainable_") for run in runs)
    last = next(run for run in runs if run.rollouts_per_problem == 16)
    assert held_out(last)[12] == score(16, 12)
    assert held_out(last)[15] == pytest.approx(score(16, 15) + 0.01)


@pytest.mark.parametrize("filled", [True, False])
def test_a_table_of_runs_with_their_last_step_configures_those_it_names_by_id(
    tmp_path: Path, filled: bool
) -> None:
    """W&B's runs table; the history may repeat the last evaluation on every row."""
    names = {"6n4v5sxf": 8, "ej36hsdy": 16}
    table = ["Name,State,Created,ID,actor.group_size,data.prompts_per_step,data.seed,_step"]
    rows = ["run_id,_step,train/kl,eval/step,eval/amc_acc"]
    for i, (run, n) in enumerate(names.items()):
        table.append(f'"sweep-{i}",finished,2025-02-10,{run},{n},128,0,40')
        for s in range(41):
            at = s // 10 * 10
            told = score(n, min(at, 20))  # the evaluations at 20, 30 and 40 are equal
            rows.append(f"{run},{s},0.1," + (f"{at}.0,{told}" if filled or s == at else ","))
    (tmp_path / "runs_table.csv").write_text("\n".join(table) + "\n")
    (tmp_path / "history.csv").write_text("\n".join(rows) + "\n")
    for run in read_log(tmp_path):
        n = names[run.name]
        assert (run.problems_per_batch, run.rollouts_per_problem, run.seed) == (128, n, 0)
        assert held_out(run) == {s: score(n, min(s, 20)) for s in range(0, 41, 10)}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"rl.problems_per_step": 32, "rl.samples_per_problem": 4}, (32, 4)),
        ({"actor.group_size": 8, "data.prompts_per_step": 128}, (128, 8)),
        ({"Problems per update": "64", "Samples per problem": "128"}, (64, 128)),
        ({"train_problems_per_update": 64, "group_size": 16}, (64, 16)),
        ({"train.num_generations": 8, "train.prompts_per_batch": 16}, (16, 8)),
        ({"a.prompts_per_step": 8, "b.prompts_per_step": 16, "group_size": 4}, (None, 4)),
        ({"a.prompts_per_step": 8, "eval.samples_per_problem": 4}, (8, None)),
        ({"a.prompts_per_step": 8, "quantization.group_size": 128}, (8, None)),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_else_are_read_in_any_section(
    config: dict[str, object], found: tuple[int | None, int | None]
) -> None:
    said = configuration(config)
    assert (said.problems_per_batch, said.rollouts_per_problem) == found


# 5 a hint holds for every run
@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (("6n4v5sxf", "ej36hsdy", "hmp0gugx"), None),
        (("n8_a", "n16_b", "base"), None),
        (("n8_s0", "n8_s1", "n16"), "n{rollouts_per_problem}[_s{seed}]"),
        (("n8_s0", "n16_s1"), "n{rollouts_per_problem}_s{seed}"),
        (("n8_1.5b_s1", "n16_7b_s1"), "n{rollouts_per_problem}*s{seed}"),
        (("n8-r1", "n8-r2", "n16-r1"), "n{rollouts_per_problem}-r{seed}"),
        (("n8-r1", "n8_x-r1", "n16-r1"), "n{rollouts_per_problem}"),  # tells nothing apart
        (("k8__1__1749620401", "k16__1__1749620455"), "k{rollouts_per_problem}__{seed}__"),
        (("k8", "k8_b", "top_k50"), None),
        (("g8_1", "g16_1", "g16_2"), "g{rollouts_per_problem}_{seed}"),
        (("s1/n8", "s2/n8", "s1/n16"), "s{seed}/n{rollouts_per_problem}"),
        (("32xn8-seed4", "32xn16-seed4"), "n{rollouts_per_problem}-seed{seed}"),
    ],
)  # fmt: skip
def test_a_pattern_is_proposed_where_all_names_follow_it(
    tmp_path: Path, names: tuple[str, ...], pattern: str | None
) -> None:
    for i, name in enumerate(names):
        rows = [{"step": s, "eval_reward": score(i, s)} for s in range(5)]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        lines(tmp_path / f"{name}.jsonl", rows)
    settings = load_settings(["problems_per_batch=32"])
    assert pattern_for(read_log(tmp_path, settings=settings)) == pattern


# 6 a log that begins late is asked about, unless its plan decides
def late(path: Path, first: int, last: int, plan: Mapping[str, Any], *, tested: bool) -> Path:
    config = {"rl": {"problems_per_step": 32, "samples_per_problem": 8, **plan}, "seed": 1}
    document(path.parent / "config.json", config)
    rows: list[dict[str, Any]] = []
    for s in range(first, last + 1):
        if s > first or not tested:
            rows.append({"kind": "train", "global_step": s, "reward": 0.4})
        if (s - first) % 5 == 0 and tested:
            rows.append({"kind": "eval", "global_step": s, "accuracy": score(8, s - first)})
        elif not tested and s % 5 == 0:
            rows.append({"kind": "eval", "global_step": s, "accuracy": score(8, s)})
    return lines(path, rows)


@pytest.mark.parametrize("plan", ["rl_steps", "max_steps", "total_updates"])
def test_a_plan_that_ends_with_the_log_says_where_a_run_began(tmp_path: Path, plan: str) -> None:
    log = late(tmp_path / "metrics.jsonl", 1250, 1290, {plan: 40}, tested=True)
    settings = load_settings([], ["accuracy=avg"])
    import_logs([log], tmp_path / "study", settings=settings)
    (run,) = read_log(log, settings=settings)
    assert held_out(run) == {s: score(8, s) for s in range(0, 41, 5)}
    assert any(line.startswith("begins: step 1250, since 40 up") for line in run.concluded)


@pytest.mark.parametrize(
    ("first", "plan", "readings"),
    [
        (1250, {}, ((0, 1290), (1250, 40))),
        (1250, {"rl_steps": 1290}, ((0, 1290), (1250, 40))),  # a resume counts so, and may be new
        (1250, {"rl_steps": 100}, ((1250, 40),)),  # under way: its plan is below its steps
    ],
)
def test_a_log_that_begins_late_is_asked_about_with_both_readings(
    tmp_path: Path, first: int, plan: dict[str, int], readings: tuple[tuple[int, int], ...]
) -> None:
    log = late(tmp_path / "metrics.jsonl", first, 1290, plan, tested=True)
    said = refused(log, maps=["accuracy=avg"])
    assert "begins=0 if it did those before as well (1290 in all), or --set begins=1250" in said
    for begins, last in readings:
        settings = load_settings([f"begins={begins}"], ["accuracy=avg"])
        import_logs([log], tmp_path / str(begins), settings=settings)
        assert max(held_out(read_log(log, settings=settings)[0])) == last


def test_a_late_beginning_and_a_score_left_out_are_asked_at_once(tmp_path: Path) -> None:
    said = refused(late(tmp_path / "metrics.jsonl", 500, 560, {}, tested=True))
    assert "--map accuracy=avg" in said
    assert "--set begins=500" in said


def test_a_late_first_evaluation_of_an_early_log_is_not_asked_about(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"step": s, "kl": 0.1} for s in range(1, 60)]
    rows += [{"step": s, "eval_reward": score(8, s)} for s in range(60, 100, 10)]
    settings = load_settings(["problems_per_batch=32", "rollouts_per_problem=8"])
    log = lines(tmp_path / "run.jsonl", rows)
    import_logs([log], tmp_path / "study", settings=settings)


def test_the_older_part_of_a_log_settles_where_it_begins(tmp_path: Path) -> None:
    settings = load_settings(["problems_per_batch=32", "rollouts_per_problem=8"])
    rows = [{"step": s, "eval_reward": score(8, s)} for s in range(0, 200, 10)]
    whole = tmp_path / "logs"
    lines(whole / "part1.jsonl", rows[:12])
    later = lines(whole / "part2.jsonl", rows[12:])
    assert "begins at step 120" in refused(
        later, "problems_per_batch=32", "rollouts_per_problem=8"
    )  # fmt: skip
    import_logs([whole], tmp_path / "study", settings=settings)
    other = tmp_path / "grows"
    import_logs([whole / "part1.jsonl"], other, settings=settings)
    import_logs([later], other, settings=settings)  # goes on with the one that is there


# 7 two words of one configuration that contradict each other
@pytest.mark.parametrize(
    ("config", "found"),
    [
        # forks of verl that leave its own word at 1
        ({"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 1,
          "es_manager.train.env_groups": 8, "es_manager.train.group_size": 4,
          "es_manager.val.env_groups": 256, "es_manager.val.group_size": 1}, (8, 4)),
        ({"data.train_batch_size": 512, "actor_rollout_ref.rollout.n": 1,
          "actor_rollout_ref.rollout.n_agent": 5}, (512, 5)),
        ({"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 1,
          "agent.group_size": 8}, (32, None)),
        ({"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 8,
          "agent.problems_per_step": 16}, (None, 8)),
        ({"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 8,
          "agent.group_size": 8, "eval.group_size": 1}, (32, 8)),
        ({"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 1,
          "agent.group_size": 8, "rollouts_per_problem": 8}, (32, 8)),
        ({"model.reinforce.num_rollout_samples": 64,
          "trainer.reinforce.num_rollouts_per_prompt": 4, "model.global_batch_size": 256}, (64, 4)),
    ],
)  # fmt: skip
def test_a_word_that_contradicts_another_is_asked_about(
    config: dict[str, object], found: tuple[int | None, int | None]
) -> None:
    said = configuration(config)
    assert (said.problems_per_batch, said.rollouts_per_problem) == found


def test_a_contradiction_is_told_with_the_option_that_settles_it(tmp_path: Path) -> None:
    document(tmp_path / "config.json", {
        "data": {"train_batch_size": 32}, "actor_rollout_ref": {"rollout": {"n": 1}},
        "agent": {"group_size": 8},
    })  # fmt: skip
    log = lines(tmp_path / "metrics.jsonl", [{"step": s, "eval_reward": 0.5} for s in range(3)])
    said = refused(log)
    assert "says 1, but agent.group_size 8: which is n is not known" in said
    settings = load_settings([], ["agent.group_size=rollouts_per_problem"])
    assert read_log(log, settings=settings)[0].rollouts_per_problem == 8


# 8 where a configuration lies
YAML = "problems_per_step: 32\ngroup_size: {n}\nseed: 7\n"


@pytest.mark.parametrize(
    ("log", "config"),
    [
        ("exp-{n}/logs/20250418-131204/metrics.jsonl", "exp-{n}/config.yaml"),
        ("tb/grpo/exp-{n}/metrics.jsonl", "configs/exp-{n}.yaml"),
        ("exp-{n}.jsonl", "configs/exp-{n}.yaml"),
        ("exp-{n}/history.jsonl", "exp-{n}/wandb/run-2025-ab{n}/files/config.yaml"),
        ("exp-{n}.jsonl", "wandb/run-2025-ab{n}/files/config.yaml"),
    ],
)  # fmt: skip
def test_a_configuration_is_found_by_its_folder_or_the_name_it_bears(
    tmp_path: Path, log: str, config: str
) -> None:
    for n in SIZES:
        rows = [{"step": s, "eval_reward": score(n, s)} for s in range(5)]
        lines(tmp_path / log.format(n=n), rows)
        file = tmp_path / config.format(n=n)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(YAML.format(n=n) + f"wandb_run_name: exp-{n}\n")
    runs = read_log(tmp_path)
    found = {(r.problems_per_batch, r.rollouts_per_problem, r.seed) for r in runs}
    assert found == {(32, n, 7) for n in SIZES}


def test_a_configuration_above_several_logs_is_of_none(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(YAML.format(n=8))
    for name in ("a", "b"):
        rows = [{"step": s, "eval_reward": score(len(name), s)} for s in range(5)]
        lines(tmp_path / name / "metrics.jsonl", rows)
    assert {run.rollouts_per_problem for run in read_log(tmp_path / "a")} == {None}


# 9 a batch of responses, where B_p is known
def test_n_follows_from_a_batch_of_responses(tmp_path: Path) -> None:
    for n in SIZES:
        folder = tmp_path / "logs" / f"countdown_bs{32 * n}"
        config = {"batch_size": 32 * n, "num_questions_per_batch": 32, "micro_batch_size": 2}
        document(folder / "config.json", {"training": config})
        lines(folder / "metrics.jsonl",
              [{"step": s, "eval_reward": score(n, s)} for s in range(5)])  # fmt: skip
    said = refused(tmp_path / "logs")
    assert "add --map training.batch_size=batch_size if it counts responses" in said
    settings = load_settings([], ["training.batch_size=batch_size"])
    runs = read_log(tmp_path / "logs", settings=settings)
    assert {(r.problems_per_batch, r.rollouts_per_problem) for r in runs} == {
        (32, n) for n in SIZES
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "split"),
    [("rewards/eval/score/mean", "validation"), ("rewards/train/score/mean", "train"),
     ("rewards/accuracy_reward/mean", "train"), ("eval_rewards/accuracy/mean", "validation")],
)  # fmt: skip
def test_a_reward_whose_key_says_its_split_is_of_that(tmp_path: Path, key: str, split: str) -> None:
    log = lines(tmp_path / "run.jsonl", [{"step": s, key: 0.5} for s in range(3)])
    assert [s.split for s in read_log(log)[0].series] == [split]


# 10 checkpoints that were scored afterwards
def evaluated(path: Path, task: str, value: float, *, problems: int = 500) -> Path:
    """As lm-evaluation-harness 0.4 writes it."""
    return document(path, {
        "results": {task: {"alias": task, "exact_match,none": value,
                           "exact_match_stderr,none": 0.01}},
        "n-samples": {task: {"original": 500, "effective": problems}},
        "config": {"limit": None if problems == 500 else problems, "random_seed": 0},
    })  # fmt: skip


@pytest.mark.parametrize(
    "place", ["g{n}_seed3/step_{s:04}/x/results_1.json", "g{n}_seed3/checkpoint-{s}/results.json",
              "__ckpt__g{n}_seed3__step_{s}/results_2025.json",
              "lm_eval_out/g{n}_seed3/global_step_{s}/results_2.json"],
)  # fmt: skip
def test_results_of_checkpoints_are_a_curve(tmp_path: Path, place: str) -> None:
    for n in SIZES:
        for s in range(0, 100, 20):
            file = tmp_path / "logs" / place.format(n=n, s=s)
            evaluated(file, "math", score(n, s))
            if s == 40:  # a later trial on the first problems
                evaluated(file.with_name("results_9.json"), "math", 0.9, problems=50)
    assert "--set pattern='g{rollouts_per_problem}_seed{seed}'" in refused(tmp_path / "logs")
    words = ["pattern=g{rollouts_per_problem}_seed{seed}", "problems_per_batch=128"]
    runs = read_log(tmp_path / "logs", settings=load_settings(words))
    assert {(run.rollouts_per_problem, run.seed) for run in runs} == {(n, 3) for n in SIZES}
    for run in runs:
        n = run.rollouts_per_problem or 0
        assert held_out(run) == {s: score(n, s) for s in range(0, 100, 20)}
        assert run.provenance.evaluation_problems == 500
        assert "1 results on a part of the problems" in run.concluded[-1]


def test_several_tasks_of_checkpoints_are_several_sets(tmp_path: Path) -> None:
    for s in (0, 10):
        for task in ("math", "aime"):
            evaluated(tmp_path / "n8" / f"step_{s}" / task / "results_1.json", task, 0.1 + s / 100)
    (run,) = read_log(tmp_path, settings=load_settings(["problems_per_batch=8"]))
    assert sorted(s.problem_set for s in run.series) == ["aime", "math"]


@pytest.mark.parametrize("folder", ["eval_results/global_step_{s}/math500", "step-{s}/math500"])
def test_a_training_log_never_stands_for_the_results_of_its_checkpoints(
    tmp_path: Path, folder: str
) -> None:
    config = "data.train_batch_size=256 actor_rollout_ref.rollout.n={n}"
    for n in SIZES:
        rows = [f"+ python3 -m verl.trainer.main_ppo {config.format(n=n)}"]
        rows += [f"step:{s} - critic/score/mean:0.500 - actor/lr:0.000" for s in range(1, 21)]
        (tmp_path / f"rollout{n}.log").write_text("\n".join([*rows, ""]))
        for s in (0, 10, 20):
            home = tmp_path / "checkpoints" / f"rollout{n}" / folder.format(s=s)
            content = {"num_samples": 500, "acc": 100 * score(n, s), "pass@k": {"1": 1.0}}
            document(home / "test_seed0_metrics.json", content)
    said = refused(tmp_path)
    assert "math500/acc, math500/pass@k/1 were not read; add --map math500/acc=avg" in said
    for run in read_log(tmp_path, settings=load_settings([], ["math500/acc=avg"])):
        n = run.rollouts_per_problem or 0
        assert (run.problems_per_batch, run.seed) == (256, None)
        assert held_out(run) == {s: 100 * score(n, s) for s in (0, 10, 20)}
        (s_K,) = (s.rollouts_K.tolist() for s in run.series if s.split == "validation")
        assert s_K == [0, 10 * 256 * n, 20 * 256 * n]


# 11 sheets
def sheet(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8-sig")
    return path


GERMAN = ["Gruppengröße=rollouts_per_problem", "Aufgaben=problems_per_batch",
          "Rollouts kumuliert=rollouts", "Trefferquote=score"]  # fmt: skip


@pytest.mark.parametrize("unit", ["", "Antworten;Aufgaben;Anzahl;Anteil\n", "–;–;Anzahl;–\n"])
@pytest.mark.parametrize("share", ["0,2{}", "2{},5 %"])
def test_thousands_are_dotted_where_decimals_have_commas(
    tmp_path: Path, unit: str, share: str
) -> None:
    rows = "".join(
        f"8;32;{256 * s * 10:,}".replace(",", ".") + f";{share.format(s)}\n" for s in range(6)
    )
    header = "Gruppengröße;Aufgaben;Rollouts kumuliert;Trefferquote\n"
    path = sheet(tmp_path / "a.csv", header + unit + rows)
    (curve,) = load_curves(path, settings=load_settings([], GERMAN))
    assert curve.rollouts_K.tolist() == [2560.0 * s for s in range(6)]
    expected = [0.2 + s / 100 if "%" not in share else 0.205 + s / 100 for s in range(6)]
    assert curve.score_K.tolist() == pytest.approx([0.2, *expected[1:]] if "%" not in share
                                                   else expected)  # fmt: skip


def test_a_dotted_count_without_commas_beside_it_is_asked_about(tmp_path: Path) -> None:
    text = "n;problems_per_batch;rollouts;score\n" + "".join(
        f"8;32;{s}.560;0.25\n" for s in range(1, 4)
    )
    with pytest.raises(InputError, match=r"'1.560', a fraction or thousands; write 1560"):
        load_curves(sheet(tmp_path / "a.csv", text), settings=load_settings([], ["n=n"]))


@pytest.mark.parametrize("names", [("n=12", 128), ("n=128", 128)])
def test_lines_above_a_table_say_what_all_its_rows_are(
    tmp_path: Path, names: tuple[str, int]
) -> None:
    """A sheet's name is cut at 31 characters."""
    name, n = names
    text = (
        "Model,Qwen3,,\nProblems per update,64,,\nSamples per problem,128,,\nSeed,4,,\n,,,\n"
        "Update,Test acc (500),Train reward,Notes\n"
        "0,0.244,,base\n10,0.348,0.3,\n20,0.392,0.4,\n30,0.45,0.5,\n"
    )
    path = sheet(tmp_path / f"qwen bp64 {name}.csv", text)
    maps = ["Test acc (500)=score"]
    (curve,) = load_curves(path, settings=load_settings([], maps))
    assert (curve.configuration, curve.seed) == ((64, n), 4)
    assert curve.rollouts_K.tolist() == [64.0 * n * s for s in (0, 10, 20, 30)]
    settings = load_settings(["pattern=n={rollouts_per_problem}"], maps)
    if name == "n=12":
        with pytest.raises(InputError, match="lines above the table say 128 and .* pattern 12;"):
            load_curves(path, settings=settings)
    else:
        assert load_curves(path, settings=settings)


# 12 problems that an update drew anew
@pytest.mark.parametrize("key", ["problems_sampled", "rollout/prompts_generated"])
def test_problems_sampled_beyond_the_batch_are_rollouts(tmp_path: Path, key: str) -> None:
    config = {"train_problems_per_update": 64, "group_size": 8}
    document(tmp_path / "config.json", config)
    rows: list[dict[str, Any]] = [{"update": 0, "heldout_acc": 0.1}]
    for s in range(1, 5):
        rows.append({"update": s, key: 64 + 16 * s, "train_reward": 0.2})
        rows.append({"update": s, "heldout_acc": 0.1 + s / 10})
    log = lines(tmp_path / "metrics.jsonl", rows)
    (run,) = read_log(log, settings=load_settings([], ["heldout_acc=avg"]))
    drawn = [0, 80, 176, 288, 416]
    (s_K,) = (s.rollouts_K.tolist() for s in run.series)
    assert s_K == [8.0 * d for d in drawn]


def test_a_folder_without_logs_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "supplement.md").write_text("| step | n=8 |\n")
    with pytest.raises(InputError, match=r"\(it has supplement.md\); write a CSV of its scores"):
        read_log(tmp_path)
    table = sheet(tmp_path / "a.csv", "acc,x\n0.5,1\n")
    with pytest.raises(InputError, match=r"isocompute fit '?[^ ]*a\.csv'? --map acc=score --set"):
        read_log(table)


def apart(folder: Path, kind: str) -> Path:
    """Series that readers keep apart: each number is a row of its own."""
    if kind == "tensorboard":
        numbers = [(3 * s, key, value) for s in range(0, 40, 4) for key, value in (
            ("val/acc", score(8, s)), ("train/global_step", float(s)))]  # fmt: skip
        events(folder / "events.out.tfevents.1.h.0", 1e9, numbers)
        return folder
    rows = [f"a,{key},{3 * s},{value}" for s in range(0, 40, 4)
            for key, value in (("val/acc", score(8, s)), ("train/global_step", s))]  # fmt: skip
    return sheet(folder / "a.csv", "\n".join(["run,metric,step,value", *rows, ""]))


@pytest.mark.parametrize("kind", ["tensorboard", "long"])
def test_a_named_counter_places_series_that_are_kept_apart(tmp_path: Path, kind: str) -> None:
    source, given = apart(tmp_path, kind), ["problems_per_batch=32", "rollouts_per_problem=8"]
    with pytest.raises(InputError, match="step says 108 where train/global_step says 36"):
        load_curves(source, settings=load_settings(given, ["val/acc=avg"]))
    for key, factor in (("train/global_step", 1), ("step", 3)):
        settings = load_settings([*given, f"step={key}"], ["val/acc=avg"])
        (curve,) = load_curves(source, settings=settings)
        assert curve.steps_K is not None
        assert curve.steps_K.tolist() == [float(factor * s) for s in range(0, 40, 4)]
        assert curve.score_K.tolist() == pytest.approx([score(8, s) for s in range(0, 40, 4)])


def test_scores_that_arrive_late_are_held_against_the_update_that_was_evaluated(
    tmp_path: Path,
) -> None:
    """An evaluator beside the training: each number has an event of its own, some updates late."""
    folder, steps = tmp_path / "n8", list(range(0, 60, 6))
    folder.mkdir()
    late = {s: s + (0 if s in (0, steps[-1]) else 3 + s % 4) for s in steps}
    rows = [(s, "train/loss", 0.1) for s in range(60)]
    for s in steps:
        rows += [(late[s], "val/acc", score(8, s)), (late[s], "val/policy_version", float(s))]
    events(folder / "events.out.tfevents.1.h.0", 1e9, rows)
    given = ["problems_per_batch=32", "rollouts_per_problem=8"]
    with pytest.raises(InputError, match="where val/policy_version says 48"):
        load_curves(folder, settings=load_settings(given, ["val/acc=avg"]))
    settings = load_settings([*given, "step=val/policy_version"], ["val/acc=avg"])
    (curve,) = load_curves(folder, settings=settings)
    assert curve.steps_K is not None
    assert curve.steps_K.tolist() == [float(s) for s in steps]
    assert curve.score_K.tolist() == pytest.approx([score(8, s) for s in steps])
