"""Shapes of logs that people publish, in small: one trap each, with numbers of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_logs
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.words.settings import load_settings


def read(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> list[ImportedRun]:
    return read_logs([source], settings=load_settings([*sets], [*maps]))


def refused(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> str:
    with pytest.raises(InputError) as caught:
        read(source, sets, maps)
    return str(caught.value)


def steps(source: Path, kind: str = "", **options: Sequence[str]) -> list[int]:
    (run,) = read(source, **options)
    return [int(k) for k in next(s for s in run.series if kind in s.split).step_K]


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")
    return path


def json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    return text(path, "".join(json.dumps(row) + "\n" for row in rows))


# Consoles of transformers' trainers whose rows were held back: one bar, many rows.


def bar(step: int, total: int) -> str:
    return f"\r {100 * step // total}%|   | {step}/{total} [00:01<01:00, 1.0s/it]"


def held_back(blocks: Sequence[tuple[int, Sequence[str]]], total: int, closing: bool = True) -> str:
    """Bars up to a step, then the rows that were kept until then, and that bar again."""
    out, at = "", 0
    for end, rows in blocks:
        out += "".join(bar(s, total) for s in range(at, end + 1)) + "\r" + " " * 30 + "\r"
        out += "\n".join(rows) + "\n" + (bar(end, total) if closing else "")
        at = end + 1
    return out + "\n"


def row(step: int, epoch: object, kind: str = "loss") -> str:
    return str({kind: 0.1, f"{kind[:-4]}reward": 0.3 + step / 1000, "epoch": epoch})


ENDED = "{'train_runtime': 9.5, 'train_loss': 0.1, 'epoch': %s}"


@pytest.mark.parametrize("closing", [True, False])
def test_rows_under_one_bar_stand_at_their_epochs(tmp_path: Path, closing: bool) -> None:
    blocks = [(24, [row(s, s / 48) for s in (8, 16, 24)]),
              (48, [row(s, s / 48) for s in (32, 40, 48)])]  # fmt: skip
    log = text(tmp_path / "a.log", held_back(blocks, 48, closing))
    assert steps(log) == [8, 16, 24, 32, 40, 48]


def test_rows_of_rounded_epochs_stand_at_even_distances(tmp_path: Path) -> None:
    """Two decimals of 900 updates an epoch leave nine steps open, thirty rows do not."""
    at = range(15, 451, 15)
    blocks = [(225, [row(s, round(s / 900, 2)) for s in at[:15]]),
              (450, [row(s, round(s / 900, 2)) for s in at[15:]])]  # fmt: skip
    log = text(tmp_path / "a.log", held_back(blocks, 900))
    assert steps(log) == list(at)


def test_uneven_rows_of_rounded_epochs_are_refused(tmp_path: Path) -> None:
    at = (1, 20, 40, 60)
    log = text(
        tmp_path / "a.log", held_back([(60, [row(s, round(s / 900, 2)) for s in at])], 900)
    )
    assert "trainer_state.json" in refused(log)


def test_rows_behind_the_last_bar_stand_at_their_updates(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 700:.4g}") for s in range(1, 13)]
    log = text(tmp_path / "a.log", held_back([(12, rows)], 12, closing=False))
    assert steps(log) == list(range(1, 13))


def test_the_trainers_last_line_dates_rows_that_all_came_at_the_end(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 70:.4g}") for s in (10, 20, 30)]
    log = text(tmp_path / "a.log",
               held_back([(35, [*rows, ENDED % "'0.5'"])], 35, closing=False))  # fmt: skip
    assert steps(log) == [10, 20, 30]


def test_rows_that_nothing_dates_are_refused_by_their_reason(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 70:.4g}") for s in (10, 20, 30)]
    log = text(tmp_path / "a.log", held_back([(35, rows)], 35, closing=False))
    assert "behind the bar of step 35 together" in refused(log)


def test_an_evaluation_stands_with_its_row_of_training(tmp_path: Path) -> None:
    rows = [row(s, s / 40, kind) for s in (10, 20) for kind in ("loss", "eval_loss")]
    more = [row(s, s / 40, kind) for s in (30, 40) for kind in ("loss", "eval_loss")]
    log = text(tmp_path / "a.log", held_back([(20, rows), (40, more)], 40))
    assert steps(log, "validation") == [10, 20, 30, 40]


def test_a_second_training_in_a_console_is_a_run_of_its_own(tmp_path: Path) -> None:
    one = held_back([(4, [row(s, s / 4) for s in range(1, 5)] + [ENDED % "1.0"])], 4)
    two = held_back([(6, [row(s, s / 6) for s in range(1, 7)] + [ENDED % "1.0"])], 6)
    found = read(text(tmp_path / "a.log", f"{one}Num Epochs = 1\n{two}"))
    assert [(run.name, run.series[0].step_K.tolist()) for run in found] == [
        ("a", [1, 2, 3, 4]), ("a-2", [1, 2, 3, 4, 5, 6])
    ]  # fmt: skip


# Loops of one's own that count from 0 and write a known key.

SEQUENCE = ["problems_per_batch=4", "rollouts_per_problem=4"]


def from_zero(first: bool, key: str) -> list[dict[str, object]]:
    """Evaluations after updates 6, 12, 18, 24, with a baseline before training or without."""
    rows: list[dict[str, object]] = []
    for at in range(24):
        scores = {key: 0.1 + at / 100} if at % 6 == 5 or (first and not at) else {}
        rows.append({"step": at, "train/loss": 0.2, **scores})
    return rows


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", ["eval/reward", "eval_reward", "validation/accuracy"])
def test_known_keys_counted_from_zero_stand_one_later(
    tmp_path: Path, first: bool, key: str
) -> None:
    log = json_lines(tmp_path / "a.jsonl", from_zero(first, key))
    assert steps(log, "validation", sets=SEQUENCE) == [0] * first + [6, 12, 18, 24]


@pytest.mark.parametrize("first", [True, False])
def test_so_do_those_of_a_long_table(tmp_path: Path, first: bool) -> None:
    cells = [
        f"own,{key},{one['step']},{value}"
        for one in from_zero(first, "eval/reward") for key, value in one.items() if key != "step"
    ]
    log = text(tmp_path / "a.csv", "\n".join(["run,metric,step,value", *cells]) + "\n")
    assert steps(log, "validation", sets=SEQUENCE) == [0] * first + [6, 12, 18, 24]


def test_the_last_evaluation_may_stand_anywhere(tmp_path: Path) -> None:
    rows = [{"step": at, "eval/reward": 0.1 + at / 100} for at in (0, 6, 13, 20, 23)]
    assert steps(json_lines(tmp_path / "a.jsonl", rows), "validation") == [0, 7, 14, 21, 24]


def test_a_known_key_at_multiples_stays(tmp_path: Path) -> None:
    rows = [{"step": at, "train/loss": 0.2, "eval/reward": 0.1 + at / 100} for at in (6, 12, 18)]
    assert steps(json_lines(tmp_path / "a.jsonl", rows), "validation") == [6, 12, 18]


# What a console says of an engine, and of the trainer.

ENGINE = "INFO engine.py] config: model='q', engine_config=EngineConfig(backend='x'), seed=0, k=1"


@pytest.mark.parametrize(
    ("said", "seed"),
    [
        (ENGINE, None),
        ("TrainingArguments(\nnum_generations=4,\nseed=7,\n)\n" + ENGINE, 7),
        ("args: GRPOConfig(output='o', engine=EngineConfig(seed=3), seed=5), seed=9", 5),
        ("args: GRPOConfig(output='o', seed=5, engine=EngineConfig(seed=3))", 5),
        ("engine: EngineConfig(seed=3, k=1)", None),
        ("args: GRPOConfig(output='o'), engine: EngineConfig(seed=3)", None),
    ],
)
def test_only_a_trainers_own_arguments_say_the_seed(
    tmp_path: Path, said: str, seed: int | None
) -> None:
    rows = "".join(bar(s, 3) + "\n" + row(s, s / 3) + bar(s, 3) + "\n" for s in (1, 2, 3))
    (run,) = read(text(tmp_path / "a.log", f"{said}\n{rows}"))
    assert run.seed == seed


# Configurations that are cut off, and facts that one run says and another does not.


def verl(folder: Path, name: str, length: int, *, whole: bool = True, shift: float = 0.0) -> Path:
    """A console of verl; without its end, the configuration loses the lines behind `data`."""
    said = [
        "{'actor_rollout_ref': {'rollout': {'n': 4,", "                       'top_k': -1}},",
        f" 'data': {{'max_response_length': {length},", "          'train_batch_size': 16,",
        "          'train_files': '/d/(a.parquet'},", " 'trainer': {'save_freq': -1,",
    ]  # fmt: skip
    ends = ["              'test_freq': 5}}"] if whole else ["              'total_trai"]
    rows = [
        f"step:{s} - actor/pg_loss:0.1 - critic/score/mean:{0.2 + s / 100 + shift:.3f}"
        f" - val/test_score/q:{0.1 + s / 100 + shift:.3f}" for s in (5, 10, 15)
    ]  # fmt: skip
    noise = ["(Worker pid=2) loaded"]
    lines = [f"(main pid=1) {line}" for line in (*said[:2], *said[2:], *ends, *rows)]
    return text(folder / f"{name}.log", "\n".join([*lines[:3], *noise, *lines[3:]]) + "\n")


@pytest.mark.parametrize("whole", [True, False])
def test_whole_lines_of_a_configuration_are_read(tmp_path: Path, whole: bool) -> None:
    (run,) = read(verl(tmp_path, "a", 700, whole=whole))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 4)
    assert run.provenance.facts["max_response_length"] == "700"


def test_a_length_that_a_cut_configuration_says_is_held_against_another(tmp_path: Path) -> None:
    from isocompute.sources import load_curves

    verl(tmp_path, "a", 700, whole=False)
    verl(tmp_path, "b", 300, shift=0.01)
    with pytest.raises(InputError, match="share their max response length"):
        load_curves([str(tmp_path)])


def test_a_fact_that_one_run_does_not_say_is_told(tmp_path: Path) -> None:
    from isocompute.importers.runs.repetitions import unsaid
    from isocompute.sources import load_curves

    a, _ = verl(tmp_path, "a", 700), verl(tmp_path, "b", 700, shift=0.01)
    a.write_text(a.read_text().replace("'max_response_length'", "'mrl'"))
    said: list[str] = []
    load_curves([str(tmp_path)], say=said.append)
    (line,) = [one for one in said if "max response length" in one]
    assert "not known of 1 of 2 runs (the first: 'a')" in line
    assert "--where max_response_length=700" in line
    assert unsaid(read(tmp_path), {"max_response_length"}) == []


@pytest.mark.parametrize("at", ["'train_batch_size': 16,", "'save_freq': -1,"])
def test_what_another_process_wrote_into_a_line_is_left_out(tmp_path: Path, at: str) -> None:
    log = verl(tmp_path, "a", 700, whole=False)
    log.write_text(log.read_text().replace(at, f"{at}(W_0 Worker pid=3) ab"))
    (run,) = read(log)
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 4)


# verl 0.1: PPO without a word for n, validations that are printed alone.


def ppo(folder: Path, *, split: bool = False) -> Path:
    said = [
        "{'algorithm': {'adv_estimator': 'gae'},", " 'data': {'max_response_length': 70,",
        "          'train_batch_size': 16}}",
        "\"Initial validation metrics: {'test_score/q': 0.013}\"",
    ]  # fmt: skip
    if split:
        said[3:] = ["(\"Initial validation metrics: {'test_score/r': 0.02, \"",
                    " \"'test_score/q': 0.013}\")"]  # fmt: skip
    rows = [f"step:{s} - critic/score/mean:0.{s + 10}" for s in range(14)]
    rows[3::4] = [f"{one} - val/test_score/q:0.3{s:02}" for s, one in enumerate(rows) if s % 4 == 3]
    ends = "\"Final validation metrics: {'test_score/q': 0.388}\""
    lines = [f"(main_task pid=1) {line}" for line in (*said, *rows, ends)]
    return text(folder / "a.log", "\n".join(lines) + "\n")


@pytest.mark.parametrize("split", [True, False])
def test_printed_validations_stand_at_both_ends(tmp_path: Path, split: bool) -> None:
    (run,) = read(ppo(tmp_path, split=split))
    of = next(s for s in run.series if s.split == "validation" and s.problem_set == "q")
    assert of.step_K.tolist() == [0, 4, 8, 12, 14]
    assert of.score_K.tolist() == [0.013, 0.303, 0.307, 0.311, 0.388]


def test_ppo_draws_one_response(tmp_path: Path) -> None:
    (run,) = read(ppo(tmp_path))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 1)


def test_files_that_are_no_logs_are_counted_and_no_more(tmp_path: Path) -> None:
    log = ppo(tmp_path)
    text(tmp_path / "requirements.txt", "numpy\n")
    text(tmp_path / "adapter.json", '{\n"alpha": 3\n}')
    (run,) = read(log.parent)
    assert "2 other files of the folder gave no run" in run.notes


# Batches that are drawn until they are full.


def filtering(folder: Path, said: str, drawn: Sequence[int]) -> Path:
    lines = [
        "{'actor_rollout_ref': {'rollout': {'n': 4}},",
        f" 'data': {{'train_batch_size': 16}}, {said}}}",
        *(f"step:{s} - critic/score/mean:0.{s + 10} - rollout/total_num_samples:{count}"
          for s, count in enumerate(drawn, 1)),
    ]  # fmt: skip
    return text(folder / "a.log", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "said",
    ["'online_filtering': True", "'algorithm': {'group_filter': {'enable': True}}",
     "'trainer': {'dynamic_sampling': 'true'}"],
)  # fmt: skip
def test_refilled_batches_are_told_and_counted_where_a_key_says_it(
    tmp_path: Path, said: str
) -> None:
    log = filtering(tmp_path, said, (48, 16, 32))
    (run,) = read(log)
    (note,) = [one for one in run.notes if "refills" in one]
    line = "--map rollout/total_num_samples=problems_sampled"
    assert line in note
    (run,) = read(log, maps=[line.removeprefix("--map ")])
    assert not [one for one in run.notes if "refills" in one]
    assert run.series[0].rollouts_K.tolist() == [192, 256, 384]


def test_a_filter_that_is_off_is_no_matter(tmp_path: Path) -> None:
    (run,) = read(filtering(tmp_path, "'online_filtering': False", (16, 16, 16)))
    assert run.notes == ()


def test_a_count_that_sums_up_is_none_of_what_an_update_drew(tmp_path: Path) -> None:
    log = filtering(tmp_path, "'online_filtering': True", (16, 48, 80))
    told = refused(log, maps=["rollout/total_num_samples=problems_sampled"])
    assert "at least B_p = 16, but goes to 80" in told


# Which key is offered as the score.


def offer(folder: Path, rows: Iterable[Mapping[str, object]]) -> str:
    """What an import says of a log whose score it does not know."""
    from isocompute.importers import import_logs

    log = json_lines(folder / "own.jsonl", rows)
    with pytest.raises(InputError) as caught:
        import_logs([log], folder / "study", settings=load_settings(SEQUENCE))
    return str(caught.value).partition("name the score: ")[2]


def every(**values: object) -> list[dict[str, object]]:
    return [{"step": s, "loss": 0.1, **values} for s in range(1, 13)]


def test_a_rate_beside_every_loss_is_of_training(tmp_path: Path) -> None:
    told = offer(tmp_path, every(solve_rate=0.3))
    assert told.startswith("--map solve_rate=avg --set split=train if it is of the training batch")


def test_a_rate_in_few_rows_goes_before_those_in_all(tmp_path: Path) -> None:
    rows = every(step_accuracy=0.5, prompts_valid=3, json_valid_rate=0.4, format_reward=0.2)
    for one in rows[3::4]:
        one |= {"correctness": 0.25, "n_graded": 40, "correct_total": 10}
    assert offer(tmp_path, rows).startswith("--map correctness=avg")
    assert "split=train" not in offer(tmp_path / "b", rows)


@pytest.mark.parametrize("key", ["eval_cer", "val/wer_mean", "reward_std", "n_correct", "is_valid"])
def test_no_error_spread_or_count_is_offered(tmp_path: Path, key: str) -> None:
    rows = every()
    for one in rows[3::4]:
        one[key] = 0.25
    assert offer(tmp_path, rows).startswith("--map KEY=avg")


def test_a_score_in_0_to_1_goes_before_another(tmp_path: Path) -> None:
    rows = every()
    for one in rows[3::4]:
        one |= {"eval_score_sum": 41.5, "eval_score_mean": 0.4, "eval_score_file": "a.json"}
    assert offer(tmp_path, rows).startswith("--map eval_score_mean=avg")


def test_text_is_no_score(tmp_path: Path) -> None:
    rows = [{"step": s, "train/loss": 0.1, "val_set": "d.json"} for s in range(1, 9)]
    told = offer(tmp_path, rows)
    assert told.startswith("--map KEY=avg")
    assert "it seems to be no run of RL" in told


def test_a_step_rows_own_success_is_not_asked_about(tmp_path: Path) -> None:
    """A training score is kept where what was not read is one, too; else it is asked about."""
    from isocompute.importers import import_logs

    rows: list[dict[str, object]] = [
        {"step": s, "critic/score/mean": 0.1, "actor/lr": 1e-6, "extra/success": 0.2}
        for s in range(1, 4)
    ]
    log = json_lines(tmp_path / "own.jsonl", rows)
    import_logs([log], tmp_path / "one", settings=load_settings(SEQUENCE))
    for one in rows[:2]:
        del one["extra/success"]
    with pytest.raises(InputError, match="extra/success was not read"):
        import_logs(
            [json_lines(tmp_path / "b.jsonl", rows)], tmp_path / "two",
            settings=load_settings(SEQUENCE),
        )


def underscored(path: Path, n: int) -> Path:
    head = ("step,critic_score_mean,actor_lr,response_length_mean,prompt_length_mean,"
            "perf_total_num_tokens,val-core_own_acc_mean@2")  # fmt: skip
    rows = [f"{s},0.{s + 10},1e-6,30,20,{50 * 16 * n},{0.2 + s / 100 if s % 5 == 0 else ''}"
            for s in range(1, 16)]  # fmt: skip
    return text(path, "\n".join([head, *rows]) + "\n")


def test_underscores_for_slashes_are_the_same_keys(tmp_path: Path) -> None:
    log = underscored(tmp_path / "m.csv", 4)
    (run,) = read(log, sets=["problems_per_batch=16", "rollouts_per_problem=4"])
    labels = {(s.metric.label, s.split, s.step_K.size) for s in run.series}
    assert labels == {("avg", "train", 15), ("avg@2", "validation", 3)}
    told = refused(log, sets=["problems_per_batch=16", "rollouts_per_problem=16"])
    assert "says 64 rollouts per step" in told
    (run,) = read(log, maps=["critic_score_mean=avg@3"])  # by the name that stands there
    assert ("avg@3", 15) in {(s.metric.label, s.step_K.size) for s in run.series}


def test_counts_of_a_table_of_evaluations_are_no_n() -> None:
    from isocompute.importers.words.asking import likely_columns

    header = ["step", "benchmark", "pass_at_1", "n_samples"]
    assert likely_columns(header, ["rollouts_per_problem"]) == {}
    assert likely_columns(["step", "n_samples"], ["rollouts_per_problem"]) != {}


def test_a_preview_says_what_an_import_asks(tmp_path: Path, capsys: Any) -> None:
    from isocompute.cli import main

    rows = [{"step": s, "reward": 0.1, "loss": 0.2} for s in range(1, 9)]
    log = json_lines(tmp_path / "own.jsonl", rows)
    main(["import", str(log), "--preview", *(f"--set={one}" for one in SEQUENCE)])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "Then: isocompute fit study --split train"


# A count of the rollouts of a step holds B_p and n.


def tinker(folder: Path, counts: Sequence[int], builder: Mapping[str, object]) -> Path:
    text(folder / "config.json", json.dumps({"dataset_builder": builder}))
    return json_lines(folder / "metrics.jsonl", [
        {"step": s, "env/all/reward/total": 0.1 + s / 100, "env/all/total_episodes": count}
        for s, count in enumerate(counts)
    ])


def test_tinkers_groups_per_batch_is_b_p(tmp_path: Path) -> None:
    (run,) = read(tinker(tmp_path, [48, 40, 24], {"groups_per_batch": 6, "group_size": 8}))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (6, 8)


def test_a_count_of_episodes_holds_b_p_that_was_given(tmp_path: Path) -> None:
    log = tinker(tmp_path, [48, 48, 24, 48], {"group_size": 8})
    (run,) = read(log, sets=["problems_per_batch=6"])
    assert run.problems_per_batch == 6
    told = refused(log, sets=["problems_per_batch=12"])
    assert "is 96 where the log counts 48 in most steps" in told
    short = [48, 40, 24, 32, 48, 16, 8, 48]  # short batches in most steps say nothing
    log = tinker(tmp_path, short, {"group_size": 8})
    (run,) = read(log, sets=["problems_per_batch=12"])
    assert run.problems_per_batch == 12


@pytest.mark.parametrize("batch", [3, 21])
def test_a_batch_is_taken_where_the_rollouts_of_a_step_agree(tmp_path: Path, batch: int) -> None:
    text(tmp_path / "config.json", json.dumps({"batch_size": batch, "group_size": 7}))
    log = json_lines(tmp_path / "metrics.jsonl", [
        {"step": s, "val/accuracy": s / 50, "rollout_count": 21} for s in range(1, 9)])
    (run,) = read(log, maps=["val/accuracy=avg"])
    assert (run.problems_per_batch, run.rollouts_per_problem) == (3, 7)
    text(tmp_path / "config.json", json.dumps({"batch_size": 5, "group_size": 7}))
    (run,) = read(log, maps=["val/accuracy=avg"])
    assert run.problems_per_batch is None
    assert "B_p is 3 by the 21 rollouts" in run.notes[0]


def test_a_count_in_every_tenth_row_may_be_of_ten_updates(tmp_path: Path) -> None:
    text(tmp_path / "config.json", json.dumps({"batch_size": 3, "group_size": 7}))
    log = json_lines(tmp_path / "metrics.jsonl", [
        {"step": s, "val/accuracy": s / 500, "rollout_count": 210} for s in range(10, 90, 10)])
    (run,) = read(log, maps=["val/accuracy=avg"], sets=["problems_per_batch=3"])
    assert run.problems_per_batch == 3


def test_results_of_checkpoints_stay_held_out_beside_a_training_score(tmp_path: Path) -> None:
    json_lines(tmp_path / "run" / "metrics.jsonl", every(accuracy=0.3))
    for s in (4, 8):
        text(tmp_path / "run" / "eval" / f"step_{s}" / "metrics.json", '{"accuracy": 0.2}')
    (run,) = read(tmp_path / "run", sets=[*SEQUENCE, "split=train"], maps=["accuracy=avg"])
    assert {(s.split, s.step_K.size) for s in run.series} == {("train", 12), ("validation", 2)}
