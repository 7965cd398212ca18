"""More shapes of logs that strangers keep in their repositories, one trap each, in our numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import import_logs, load_settings, read_log, read_logs
from isocompute.importers.runs import own_words
from isocompute.importers.words.names import pattern_for
from isocompute.importers.words.scored import likely_key
from isocompute.sources import load_curves
from test_broken_lines import wandb
from test_layouts_wild import SIZES, lines, put, read, refused, sweep

# Runs of one n that other words make other recipes.


def loop(folder: Path, name: str, said: Mapping[str, object], last: int = 6) -> Path:
    """A run of a loop of one's own, its settings beside it."""
    put(folder / name / "config.json", {
        "group_size": 4, "prompts_per_batch": 6, "lr": 2e-6, "log_path": f"out/{name}", **said})
    shift = sum(map(ord, name)) / 9000
    return lines(folder / name / "metrics.jsonl", (
        {"step": s, "val-core/m/acc/mean@4": 0.2 + s / 40 + shift} for s in range(0, last + 1, 2)))


def test_settings_of_ones_own_divide_runs_of_one_seed(tmp_path: Path) -> None:
    for kind in ("strict", "mild"):
        for level in ("L1", "L2"):
            loop(tmp_path, f"{kind}/{level}", {"seed": 5, "shaping": kind, "levels": level})
    told = refused(tmp_path)
    assert "share their levels to be compared or averaged, but have L1 (2 runs), L2 (2" in told
    assert "--where levels=L1" in told
    with pytest.raises(InputError, match="share their shaping"):
        load_curves(f"{tmp_path}[levels=L1]")
    assert len(load_curves(f"{tmp_path}[levels=L1,shaping=mild]")) == 1


@pytest.mark.parametrize("said", [
    [{"seed": 5, "shaping": "a"}, {"seed": 6, "shaping": "b"}],  # the words go with the seed
    [{"seed": 5, "run_tag": "a"}, {"seed": 5, "run_tag": "b"}],  # a name, a place, a speed
    [{"seed": 5, "micro_batch": 1}, {"seed": 5, "micro_batch": 4}],
    [{"seed": 5, "job": "a", "attempt": 1}, {"seed": 5, "job": "b", "attempt": 2}],
    [{"part": 1}, {"part": 2}],  # may be the seed
    [{"seed": 5, "note": "a first try"}, {"seed": 5, "note": "and one more"}],
])  # fmt: skip
def test_settings_that_may_differ_between_repetitions(
    tmp_path: Path, said: list[dict[str, object]]
) -> None:
    for at, one in enumerate(said):
        loop(tmp_path, f"x{'ab'[at]}", one)
    assert refused_never(tmp_path)


def refused_never(folder: Path) -> bool:
    return len(load_curves(folder)) == 2


def test_settings_of_text_divide_runs_without_a_seed(tmp_path: Path) -> None:
    for kind in ("strict", "mild"):
        loop(tmp_path, kind, {"shaping": kind, "alpha": 0.5 if kind == "mild" else 1})
    assert "share their alpha" in refused(tmp_path) or "share their shaping" in refused(tmp_path)


def test_a_trainers_own_dump_is_of_known_words(tmp_path: Path) -> None:
    own = {"group_size": 4, "shaping": "a"}
    assert own_words.own_words(own) == {"shaping": "a"}
    assert not own_words.own_words({**own, **{f"k{i}": i for i in range(200)}})
    assert not own_words.own_words({"actor_rollout_ref.rollout.n": 4, "shaping": "a"})
    assert not own_words.own_words({"per_device_train_batch_size": 4, "shaping": "a"})


@pytest.mark.parametrize(("name", "said"), [
    ("a/lam0.5_s1.jsonl", {"lam": "0.5"}), ("top_p0.9/x.log", {"p": "0.9"}),
    ("events.out.tfevents.1750000000.lab-tuf.33864.0", {}), ("qwen2.5_v1.2/n4.log", {}),
    ("tau0.5/tau0.9.log", {}), ("run.2.1.0.log", {}), ("lr0.5_kl0.1/a.log", {}),
])  # fmt: skip
def test_numbers_of_names_that_are_of_a_recipe(tmp_path: Path, name: str, said: object) -> None:
    (run,) = read(lines(tmp_path / "logs.jsonl", [
        {"step": s, "val-core/m/acc/mean@4": 0.2 + s / 40} for s in (0, 2, 4)]), SIZES)
    its = replace(run.provenance, path=f"w/x/y/z/{name}")
    assert own_words.words_in(replace(run, name="a", provenance=its)) == said


def verl(name: str, last: int, gain: float) -> str:
    """A job as verl's trainer prints it: its configuration, then a line for each update."""
    said = {"data": {"train_batch_size": 6}, "actor_rollout_ref": {"rollout": {"n": 4}},
            "trainer": {"experiment_name": name, "total_training_steps": 30}}  # fmt: skip
    rows = "".join(
        f"step:{s} - actor/pg_loss:0.1 - critic/score/mean:{0.2 + gain * s / 100:.4f}"
        f"{f' - val-core/m/reward/mean@1:{0.1 + gain * s / 90:.4f}' if not s % 5 else ''}\n"
        for s in range(1, last + 1)
    )
    return f"{said}\n{rows}"


def test_jobs_of_one_console_that_have_names_are_no_starts_of_each_other(tmp_path: Path) -> None:
    log = put(tmp_path / "run.log", verl("len0.0", 30, 0.9) + verl("len0.5", 10, 0.4)
              + verl("len0.9", 20, 0.1))  # fmt: skip
    runs = read(log)
    assert [(run.name, run.last) for run in runs] == [
        ("len0.0", 30), ("len0.5", 10), ("len0.9", 20)]
    assert "share their len to be compared or averaged, but have 0 (1 run), 0.5" in refused(log)


def test_starts_of_one_console_that_share_a_name_are_of_one_job(tmp_path: Path) -> None:
    log = put(tmp_path / "run.log", verl("one", 10, 0.4) + verl("one", 30, 0.9))
    (run,) = read(log)
    assert run.last == 30
    assert any("was started again" in line for line in run.provenance.inferred)


# What is n, where a loop calls its batch otherwise.


def test_a_group_that_no_batch_fits_is_told(tmp_path: Path) -> None:
    put(tmp_path / "config.json", {"batch_size": 96, "group_size": 6, "lr": 2e-6})
    log = lines(tmp_path / "metrics.jsonl", (
        {"step": s, "eval/accuracy": 0.2 + s / 40} for s in (0, 2, 4)))
    (run,) = read(log, ["problems_per_batch=6"])
    (told,) = (note for note in run.notes if "batch_size" in note)
    assert "96, is neither B_p (6) nor B_p * n (36)" in told
    words = shlex.split(told.partition("give ")[2].removesuffix(" instead"))
    (run,) = read(log, words[3:], words[1:2])
    assert run.design == (6, 16, None)
    for b_p in (16, 96):  # the batch counts responses, or problems
        (run,) = read(log, [f"problems_per_batch={b_p}"])
        assert not any("batch_size" in note for note in run.notes)


# What a row is of.


def games(last: int, each: int) -> list[dict[str, object]]:
    """A row for every game: one of training in each update, and some of held-out words."""
    rows = list[dict[str, object]]()
    for s in range(1, last + 1):
        rows.append({"log_type": "train", "step": s, "gain": s / 90, "loss_at": 0.1})
        rows += [{"log_type": "eval", "step": s, "gain": (s * k % 7) / 9, "loss_at": -1.0}
                 for k in range(each) if not s % 10]  # fmt: skip
    return rows


def test_rows_of_single_games_are_no_scores_of_a_step(tmp_path: Path) -> None:
    told = refused(lines(tmp_path / "a.jsonl", games(60, 12)), SIZES, ["gain=avg"])
    assert "gain has up to 12, row after row, at 6 of 6 steps, as single answers have" in told
    assert "write the mean of each step" in told


def test_a_type_of_rows_says_their_split(tmp_path: Path) -> None:
    (run,) = read(lines(tmp_path / "a.jsonl", games(60, 1)), SIZES, ["gain=avg"])
    of = {s.split: s.step_K.tolist() for s in run.series}
    assert of == {"train": [*range(1, 61)], "validation": [*range(10, 61, 10)]}


# Consoles beside what they are of.


def test_a_console_that_wandb_keeps_stops_no_folder(tmp_path: Path) -> None:
    """Its rows are held back by a buffer, and the history beside it has all of them."""
    home = tmp_path / "wandb" / "run-20260504_101112-ab1"
    at = (4, 9, 11)
    rows = [{"train/global_step": s, "train/reward": s / 90, "train/loss": 0.1} for s in at]
    wandb(home / "run-ab1.wandb", rows, [])
    bar = " 27%|   | 16/60 [00:01<01:00, 1.0s/it]"
    printed = "\n".join(str({"loss": 0.1, "reward": s / 90, "epoch": 0.01}) for s in at)
    console = put(home / "files" / "output.log", f"{bar}\n{printed}\n")
    (run,) = read(tmp_path, SIZES)
    assert run.provenance.format == "wandb"
    (home / "run-ab1.wandb").unlink()
    with pytest.raises(InputError, match="a bar must stand before and behind every row"):
        read(console, SIZES)


@pytest.mark.parametrize("saves", [True, False])
def test_a_console_of_boxes_beside_a_log_is_no_log_of_several_jobs(
    tmp_path: Path, saves: bool
) -> None:
    lines(tmp_path / "metrics.jsonl", (
        {"step": s, "eval/pass_at_1": 0.2 + s / 90} for s in range(0, 40, 10)))
    said = ""
    kept = "loop.io:78 [INFO] Saved: {'state_path': 'w/4', 'sampler_path': 'v/4'}\n" * saves
    for s in (0, 10, 20, 0, 10):  # it was started again
        said += (f"loop.main:277 [INFO] === Step {s} ===\nloop.main:432 [INFO] Running evaluation "
                 f"at step {s}...\n| eval/pass_at_1 | 0.3 |\n{kept}"
                 f"loop.main:455 [INFO] Done with step {s}\n")  # fmt: skip
    put(tmp_path / "logs.log", said)
    (run,) = read(tmp_path, SIZES)
    assert run.series[0].step_K.tolist() == [0, 10, 20, 30]


def test_rows_of_five_updates_that_a_buffer_held_back_are_counted(tmp_path: Path) -> None:
    out, total, every = "", 60, 5
    for k in range(1, total + 1):
        out += f"\r {100 * k // total}%|   | {k}/{total} [00:01<01:00, 1.0s/it]"
        if not k % 23 or k == total:
            done = out.count("'reward'")
            out += "\r" + "\n".join(
                str({"loss": 0.1, "learning_rate": 1e-6, "reward": s / 100, "epoch": 0.01})
                for s in range(done + 1, k // every + 1)) + "\n"  # fmt: skip
    log = put(tmp_path / "a.log", out)
    (run,) = read(log, SIZES)
    assert run.series[0].step_K.tolist() == [*range(every, total + 1, every)]
    cut = put(tmp_path / "b.log", out.replace("'reward': 0.12", "'none': 0.12").replace(
        str({"loss": 0.1, "learning_rate": 1e-6, "reward": 0.07, "epoch": 0.01}), ""))  # fmt: skip
    with pytest.raises(InputError, match="a bar must stand before and behind every row"):
        read(cut, SIZES)


def test_a_training_by_examples_before_that_of_rewards_is_no_curve(tmp_path: Path) -> None:
    """One console, as a notebook keeps it: bars are drawn now and then, epochs have four digits."""

    def row(epoch: float, **values: str) -> str:
        return str({"loss": "0.4", "learning_rate": "2e-06", **values, "epoch": f"{epoch:.4g}"})

    out = "\n".join(row(s * 20 / 99) for s in range(1, 9))  # of 178 updates, each of 20
    out += f"\n{row(1.798, train_runtime='9')}\n\r100%|   | 178/178 [00:01<00:00, 1.0s/it]\n"
    for s in range(1, 13):
        out += row(s * 5 / 47, reward=f"{s / 90:.4f}") + "\n"
        out += f"\r {s}%|   | {s * 5}/60 [00:01<01:00, 1.0s/it]\n" * (not s % 4)
    out += row(60 / 47, train_runtime="9") + "\n"
    (run,) = (one for one in read(put(tmp_path / "a.log", out), SIZES) if one.series)
    assert run.series[0].step_K.tolist() == [*range(5, 61, 5)]
    assert run.series[0].score_K.tolist() == pytest.approx([s / 90 for s in range(1, 13)], abs=1e-4)


# What is offered to be pasted.


def test_columns_of_a_document_by_the_key_that_counts(tmp_path: Path) -> None:
    log = put(tmp_path / "results.json", {
        "checkpoint": [20, 40, 60], "accuracy": [0.3, 0.4, 0.45], "base accuracy": 0.25})
    for form in (log, put(tmp_path / "many" / "results.json", log.read_text())):
        (run,) = read(form, [*SIZES, "step=checkpoint", "begins=0"], ["accuracy=avg"])
        assert run.series[0].step_K.tolist() == [20, 40, 60]
        assert run.series[0].score_K.tolist() == [0.3, 0.4, 0.45]


def test_a_number_of_steps_in_a_name_is_no_n(tmp_path: Path) -> None:
    names = ("task_4gen_600steps_x", "task_4gen_600steps_y")
    runs = read_log(sweep(tmp_path, names), settings=load_settings([], []))
    assert pattern_for(runs) is None


def test_what_has_a_cure_is_told_before_notes(tmp_path: Path) -> None:
    put(tmp_path / "README.md", "| Batches | What |\n|---|---|\n| 39,695 | pairs |\n")
    put(tmp_path / "logs" / "grpo.log", "".join(
        f"Epoch:[1/1]({s}/40), Reward: {s / 90:.3f}, Loss: 0.1, Rate: 0.001\n"
        for s in range(1, 41)))  # fmt: skip
    with pytest.raises(InputError, match="--map Reward=avg --set split=train") as caught:
        read_logs([tmp_path])
    assert "39,695" not in str(caught.value)
    put(tmp_path / "best.json", {"best_reward": 0.5, "epochs": 4})
    with pytest.raises(InputError, match="--map Reward=avg --set split=train"):
        read_logs([tmp_path])


def test_the_next_command_says_that_scores_are_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = lines(tmp_path / "a.jsonl", (
        {"step": s, "loss": 0.1, "solved": 0.2 + s / 90} for s in range(1, 41)))
    sets = [word for one in (*SIZES, "split=train") for word in ("--set", one)]
    study = str(tmp_path / "study")
    assert main(["import", str(log), "-o", study, *sets, "--map", "solved=avg"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"Next: isocompute fit {study} --split train"
    assert main(shlex.split(line.partition("isocompute ")[2])) == 0


@pytest.mark.parametrize(("keys", "score"), [
    (["eval_avg_win_reward", "eval_win_rate_percent"], "eval_win_rate_percent"),
    (["baseline_reward", "reward"], "reward"),
    (["rejected_reward", "chosen_reward"], "KEY"),
    (["eval_turns_on_win", "win_rate"], "win_rate"),
])  # fmt: skip
def test_what_wins_or_others_gained_is_not_offered_as_the_score(
    keys: list[str], score: str
) -> None:
    assert likely_key(keys) == score


def test_settings_of_ones_own_divide_runs_of_two_imports(tmp_path: Path) -> None:
    for kind in ("strict", "mild"):
        loop(tmp_path / "logs" / kind, kind, {"seed": 5, "shaping": kind})
        import_logs([tmp_path / "logs" / kind], tmp_path / "study")
        if kind == "strict":
            assert len(load_curves(tmp_path / "study")) == 1
    with pytest.raises(InputError, match="share their shaping to be compared or averaged"):
        load_curves(tmp_path / "study")
    assert len(load_curves(f"{tmp_path / 'study'}[shaping=mild]")) == 1
