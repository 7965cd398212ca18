"""What the thirty-fourth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from isocompute.importers import read_log
from isocompute.importers.runs.counting import are_calls
from layout_helpers import AT, MAP, drawn, events, lines, load, of, refused, score, write

N = (4, 8)
ALL = {key: at for n in N for key, at in of(6, n, None).items()}


def own(folder: Path, n: int, rows: list[dict[str, object]], **more: object) -> Path:
    """A loop of one's own: a configuration and JSON lines."""
    said = {"prompts_per_step": 6, "group_size": n, **more}
    write(folder / f"g{n}" / "config.json", json.dumps(said))
    lines(folder / f"g{n}" / "log.jsonl", rows)
    return folder


def held(n: int, at: range = AT, shift: int = 0, by: float = 0.0) -> list[dict[str, object]]:
    return [{"step": s - shift, "val/accuracy": score(s, n, by)} for s in at]


# What a launch script says of logs.

SCRIPT = """N=$1; LR=$2
train data.train_batch_size=6 actor_rollout_ref.rollout.n=$N \\
  actor_rollout_ref.actor.optim.lr=$LR trainer.experiment_name=mine-n$N-lr$LR
"""


def test_a_script_names_runs_with_a_rate_in_their_names(tmp_path: Path) -> None:
    write(tmp_path / "go.sh", SCRIPT)
    runs = [(n, rate) for n in N for rate in ("1e-6", "3e-6")]
    key = "val-core/held/acc/mean@2"
    write(tmp_path / "wandb_export.csv", "\n".join([
        ",".join(['"Step"', *(f'"mine-n{n}-lr{rate} - {key}"' for n, rate in runs)]),
        *(",".join([str(s), *(str(score(s, n, float(rate) * 1e4)) for n, rate in runs)])
          for s in AT), "",
    ]))  # fmt: skip
    told = refused(tmp_path)
    assert "share their learning rate" in told
    assert "run=" not in told  # one question: the names differ by the rate alone
    assert drawn(load(tmp_path, where=["learning_rate=3e-06"])) == ALL


def printed(n: int, rows: int) -> str:
    """TRL's stdout, whose bar went to stderr."""
    def at(step: int) -> float:
        return round(step * 16 / n / 480, 2)

    text = list[str]()
    for s in range(5, 5 * rows + 1, 5):
        text.append(str({"loss": 0.1, "reward": score(s, n), "epoch": at(s)}))
        if s % 15 == 0:
            text.append(str({"eval_loss": 0.1, "eval_reward": score(s, n), "epoch": at(s)}))
    return "\n".join([*text, str({"train_runtime": 9.5, "train_loss": 0.1, "epoch": at(60)}), ""])


def test_a_console_without_a_bar_is_read_by_its_script(tmp_path: Path) -> None:
    write(tmp_path / "go.sh", "for n in 4 8; do\n  accelerate launch --num_processes 2 go.py "
          "--num_generations $n --per_device_train_batch_size 4 --gradient_accumulation_steps 2 "
          "--max_steps 60 --logging_steps 5 > logs/mine_g$n.out 2> logs/mine_g$n.err\ndone\n")
    for n in N:
        write(tmp_path / "logs" / f"mine_g{n}.out", printed(n, 12))
    want = {(16 // n, n, None): [16 * s for s in (15, 30, 45, 60)] for n in N}
    assert drawn(load(tmp_path)) == want
    for n in N:  # it ended before the plan did
        write(tmp_path / "logs" / f"mine_g{n}.out", printed(n, 9))
    assert "lay the launch script with --max_steps and --logging_steps" in refused(tmp_path)


# Counters that begin anew, and steps that are no updates.


def test_a_counter_that_begins_anew_is_counted_on_from_the_checkpoint(tmp_path: Path) -> None:
    for said in ({"resumed_step": 30}, {"resume_from": "out/ckpt_30"}):
        own(tmp_path, 4, held(4))
        own(tmp_path, 8, [*held(8, range(0, 50, 10), by=0.01), {"event": "start", **said},
                          *held(8, range(30, 60, 10), shift=30)])  # fmt: skip
        curves = load(tmp_path, MAP)
        assert drawn(curves) == ALL
        assert curves[1].score_K.tolist() == [score(s, 8, 0.01 * (s < 30)) for s in AT]
    # one that goes on counting is left as it is
    rows = held(8)
    own(tmp_path, 8, [*rows[:4], {"restarted_at": 30}, *rows[4:]])
    assert drawn(load(tmp_path, MAP)) == ALL


def test_settings_above_the_rows_may_name_a_checkpoint_of_another_training(tmp_path: Path) -> None:
    said = {"problems_per_batch": 6, "rollouts_per_problem": 4, "resume_from": "sft/checkpoint_900"}
    lines(tmp_path / "log.jsonl", [said, *held(4)])
    assert drawn(load(tmp_path / "log.jsonl", MAP)) == of(6, 4, None)


@pytest.mark.parametrize("mixed", [False, True])
def test_of_several_runs_in_a_file_only_the_resumed_one_is_counted_on(
    tmp_path: Path, mixed: bool
) -> None:
    said = {4: {"problems_per_batch": 8}, 8: {"problems_per_batch": 4}}
    resumed = [*held(4, range(0, 40, 10)), {"resumed_from": "out/ckpt_30"},
               *held(4, range(40, 60, 10), shift=30)]  # fmt: skip
    runs = [[{"run": f"g{n}", "rollouts_per_problem": n, **said[n], **row} for row in rows]
            for n, rows in ((4, resumed), (8, held(8)))]  # fmt: skip
    rows = [row for pair in zip_longest(*runs) for row in pair if row] if mixed else [*chain(*runs)]
    lines(tmp_path / "log.jsonl", rows)
    want = {(32 // n, n, None): [32 * s for s in AT] for n in (4, 8)}
    assert drawn(load(tmp_path / "log.jsonl", MAP)) == want


def test_scores_that_go_on_where_steps_start_over_are_asked_about(tmp_path: Path) -> None:
    own(tmp_path, 4, held(4, range(10, 60, 10)))
    rows = [*held(8, range(10, 110, 10)), *held(8, range(100, 200, 10), shift=90)]
    told = refused(own(tmp_path, 8, rows), MAP)
    assert "at step 100 and 0.408 at step 10 again, as if it went on from a checkpoint" in told
    assert "resumed=apart" in told
    assert load(tmp_path, MAP, ["resumed=apart"])[1].score_K[0] == score(100, 8)
    own(tmp_path, 8, [*held(8, range(10, 110, 10)), *held(8, range(10, 60, 10), by=0.01)])
    assert load(tmp_path, MAP)[1].score_K[0] == score(10, 8, 0.01)  # begun anew


def test_what_a_step_is_where_a_batch_serves_several(tmp_path: Path) -> None:
    def rows(n: int, last: int, step: int = 4) -> list[dict[str, object]]:
        return [{"step": s * step, "val/accuracy": score(s, n)} for s in range(0, last, 5)]

    for n in N:
        own(tmp_path, n, rows(n, 60), ppo_epochs=2, num_minibatches=2)
    told = refused(tmp_path, MAP)
    assert "ppo_epochs is 2, num_minibatches is 2, and all scores stand at multiples of 4" in told
    for times in (4, 1):
        want = {(6, n, None): [6 * n * s * 4 // times for s in range(0, 60, 5)] for n in N}
        assert drawn(load(tmp_path, MAP, [f"num_iterations={times}"])) == want
    for n in N:  # rewards of every step: each has a batch of its own
        train = [{"step": s, "reward": score(s, n)} for s in range(1, 60)]
        own(tmp_path, n, [*train, *rows(n, 60, 1)], ppo_epochs=2, updates_per_rollout=4)
    assert drawn(load(tmp_path, MAP)) == {(6, n, None): [6 * n * s for s in range(0, 60, 5)]
                                          for n in N}  # fmt: skip


def test_evaluations_that_are_numbered_beside_a_longer_training(tmp_path: Path) -> None:
    for n in N:
        own(tmp_path, n, [{"step": s, "reward": score(s, n)} for s in range(1, 51)])
        (tmp_path / f"g{n}" / "log.jsonl").rename(tmp_path / f"g{n}" / "train.jsonl")
        lines(tmp_path / f"g{n}" / "eval.jsonl",
              ({"step": i, "val/accuracy": score(10 * i, n)} for i in range(6)))
    told = refused(tmp_path, MAP)
    assert "stand one by one to step 5, and the training beside it goes to 50" in told
    assert drawn(load(tmp_path, MAP, ["eval_every=10", "steps=50"])) == ALL
    kept = load(tmp_path, MAP, ["step=step"])
    assert kept[0].rollouts_K.tolist() == [6 * 4 * i for i in range(6)]


def test_a_step_of_calls_is_no_update(tmp_path: Path) -> None:
    for n in N:
        text = ["_step,_runtime,rollout/kl,val/acc"]
        for s in range(1, 61):
            text.append(f"{len(text) - 1},{s},0.1,")
            text += [f"{len(text) - 1},{s},,{score(s, n)}"] * (s % 10 == 0)
        write(tmp_path / f"n{n}.csv", "\n".join([*text, ""]))
    assert "counts calls of log" in refused(tmp_path, ["val/acc=avg"], ["problems_per_batch=6"])
    train, both = frozenset(("_step", "loss")), frozenset(("_step", "loss", "acc"))
    assert not are_calls([(s, both if s % 10 == 0 else train) for s in range(60)])
    assert not are_calls([])


# What scores are of.


def test_a_data_set_that_changes_under_the_section_of_evaluations(tmp_path: Path) -> None:
    for n in N:
        rows = held(n)
        for row in rows:
            row["val/dataset"] = "easy" if int(str(row["step"])) < 30 else "hard"
        own(tmp_path, n, rows)
    assert "one val/dataset, but those of 'g4' have 'easy' and 'hard'" in refused(tmp_path, MAP)


def test_tensorboard_of_two_evaluation_sets(tmp_path: Path) -> None:
    for n in N:
        write(tmp_path / f"g{n}" / "config.json", json.dumps(
            {"problems_per_batch": 6, "rollouts_per_problem": n}))
        events(tmp_path / f"g{n}" / "events.out.tfevents.1.a", [
            row for s in AT for name, by in (("easy", 0.1), ("hard", 0.0))
            for row in ((s, f"eval/{name}_loss", 0.1), (s, "eval/reward", score(s, n, by)))
        ])  # fmt: skip
    assert "one problem set, but hold 'easy', 'hard'" in refused(tmp_path)
    curves = load(tmp_path, problem_set="hard")
    assert drawn(curves) == ALL
    assert curves[1].score_K == pytest.approx([score(s, 8) for s in AT])


@pytest.mark.parametrize(("key", "one", "two", "told"), [
    ("eval_file", "a.jsonl", "b.jsonl", "evaluation set"),
    ("eval_temperature", 0.0, 1.0, "evaluation temperature"),
    ("max_new_tokens", 512, 4096, "max response length"),
    ("train_data", "a.jsonl", "b.jsonl", "train set"),
])  # fmt: skip
def test_runs_that_differ_in_the_words_of_ones_own_are_no_repetitions(
    tmp_path: Path, key: str, one: object, two: object, told: str
) -> None:
    for seed, value in ((1, one), (2, two)):
        for n in N:
            own(tmp_path / f"s{seed}", n, held(n, by=seed / 1e3), seed=seed, **{key: value})
    assert f"share their {told} to be compared" in refused(tmp_path, MAP)


# Tables.


def table(path: Path, header: str, rows: list[str]) -> Path:
    return write(path / "mine.csv", "\n".join([header, *rows, ""]))


def test_a_column_b_p_is_known_and_runs_that_begin_alike_share_their_unit(tmp_path: Path) -> None:
    def rows(small: float, large: float) -> list[str]:
        return [f"r{n}-{b},{b},{n},{s},{0.4 + s * by:.2f}" for b, n, by in (
            (6, 4, small), (6, 8, large), (3, 8, large)) for s in AT]  # fmt: skip

    file = table(tmp_path, "run,B_p,n,step,acc", rows(0.01, 0.4))
    assert "--map B_p=problems_per_batch" in refused(file)
    maps = ["B_p=problems_per_batch", "n=rollouts_per_problem", "acc=score"]
    percent = (0.0, 100.0)
    curves = load(file, maps, score_range=percent)
    assert {c.problems_per_batch for c in curves} == {3, 6}
    assert max(c.score_K.max() for c in curves) == pytest.approx(0.204)
    shares = [f"r4,6,4,{s},{0.3 + s / 200}" for s in AT]
    table(tmp_path, "run,B_p,n,step,acc", [*shares, *(f"r8,6,8,{s},{30 + s}" for s in AT)])
    assert "one range must hold for all runs" in refused(file, maps, score_range=percent)


def test_a_column_lr_is_the_learning_rate(tmp_path: Path) -> None:
    file = table(tmp_path, "problems_per_batch,rollouts_per_problem,step,lr,score", [
        f"6,{n},{s},{lr},{score(s, n, lr * 1e4)}" for n in N for lr in (1e-6, 3e-6) for s in AT])
    assert "share their learning_rate" in refused(file)
    for word in ("lr=3e-06", "learning_rate=3e-06"):
        curves = load(file, where=[word])
        assert drawn(curves) == ALL
        assert curves[0].recorded == {"learning_rate": 3e-6}


def test_the_index_of_a_table_may_be_mapped_though_it_has_no_name(tmp_path: Path) -> None:
    rows = [",".join([str(s), *(str(score(s, n)) for n in N)]) for s in AT]
    file = table(tmp_path, ",n4,n8", rows)
    assert "--map =steps if it counts updates" in refused(file)
    sets = ["pattern=n{rollouts_per_problem}", "problems_per_batch=6"]
    assert drawn(load(file, ["=steps"], sets)) == ALL


# Lines of one's own.


def test_counts_of_right_answers_in_a_section(tmp_path: Path) -> None:
    for n in N:
        own(tmp_path, n, [{"step": s, "val/solved": 10 + s, "val/total": 100} for s in AT])
    assert "--map val/solved/total=avg" in refused(tmp_path)
    curves = load(tmp_path, ["val/solved/total=avg"])
    assert curves[0].score_K == pytest.approx([(10 + s) / 100 for s in AT])


def test_seeds_in_one_file_share_the_configuration_beside_it(tmp_path: Path) -> None:
    for n in N:
        own(tmp_path, n, [{**row, "seed": seed} for seed in (1, 2)
                          for row in held(n, by=seed / 1e3)], seed=7)  # fmt: skip
    assert drawn(load(tmp_path, MAP)) == {
        key: at for n in N for seed in (1, 2) for key, at in of(6, n, seed).items()
    }
    assert {run.seed for run in read_log(tmp_path)} == {1, 2}


def test_rollouts_of_less_than_a_batch_are_none(tmp_path: Path) -> None:
    file = table(tmp_path, "problems_per_batch,rollouts_per_problem,rollouts,score", [
        f"6,{n},{6 * n * s / 1000},{score(s, n)}" for n in N for s in AT])  # fmt: skip
    assert "must be cumulative, at least B_p * n after an update" in refused(file)
