"""More shapes of logs that people publish, in small: one trap each, with numbers of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import import_logs, load_imported, read_logs
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.words.settings import load_settings
from test_layouts_real import json_lines, text

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
DESIGN = ["problems_per_batch=4", "rollouts_per_problem=5"]
REWARDS = (0.25, 0.5, 0.0, 0.375, 0.75)  # of a batch of eight: coarse


def read(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> list[ImportedRun]:
    return read_logs([source], settings=load_settings([*sets], [*maps]))


def refused(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> str:
    """What an import says."""
    study = source.parent / "study"
    with pytest.raises(InputError) as caught:
        import_logs([source], study, settings=load_settings([*sets], [*maps]))
    return str(caught.value)


def preview(source: Path, capsys: Any, *more: str) -> str:
    main(["import", str(source), "--preview", *more])
    return str(capsys.readouterr().out)


# What the command of a preview takes for granted.


def test_a_preview_says_what_must_hold_for_its_command(tmp_path: Path, capsys: Any) -> None:
    for n in (16, 32):
        json_lines(tmp_path / f"lora-R{n}" / "own.jsonl", [
            {"step": s, "val/accuracy": s / 50, "loss": 0.1, "lr": 1e-6} for s in range(1, 6)
        ])  # fmt: skip
    told = preview(tmp_path, capsys, "--map", "val/accuracy=avg")
    assert "To import, only if 'lora-R16' had 16 rollouts per problem, with your own B_P:" in told


def test_a_preview_gives_the_range_to_the_fit(tmp_path: Path, capsys: Any) -> None:
    log = json_lines(tmp_path / "a.jsonl", [{"step": s, "val/accuracy": s} for s in range(3, 15)])
    sets = [f"--set={one}" for one in DESIGN]
    told = preview(log, capsys, "--map", "val/accuracy=avg", *sets)
    assert "--range" not in next(line for line in told.splitlines() if "To import" in line)
    assert "Then, only if the scores are percent: isocompute fit study --range 0 100" in told


# Counts of an evaluation are no n, and an n is no total.


def test_the_size_of_a_held_out_set_is_no_n(tmp_path: Path) -> None:
    for step in (4, 8):
        text(tmp_path / "run" / f"run_ckpt{step}_dev_metrics.json",
             json.dumps({"num_samples": 80, "accuracy": 0.2}, indent=1))  # fmt: skip
    told = refused(tmp_path, maps=["dev_metrics/accuracy=avg"])
    assert "num_samples=rollouts_per_problem" not in told


def test_the_size_of_a_benchmark_is_no_n(tmp_path: Path, capsys: Any) -> None:
    rows = [f"{run},{s},{name},{size},0.3" for run in "ab" for s in (1, 2, 3)
            for name, size in (("olympiad", 40), ("school", 30))]  # fmt: skip
    head = "run_id,seed,benchmark,n_samples,pass_at_1"
    table = text(tmp_path / "t.csv", "\n".join([head, *rows]))
    main(["fit", str(table)])
    told = capsys.readouterr().err
    assert "pass_at_1=score" in told
    assert "n_samples" not in told.partition("it has ")[2].partition(")")[2]


def test_a_count_that_comes_again_and_again_is_of_one_problem(tmp_path: Path, capsys: Any) -> None:
    rows = [f"own-{k}-r{n},{n},0.{k}" for k in range(10, 22) for n in (4, 8)]
    table = text(tmp_path / "t.csv", "\n".join(["run_name,num_rollouts,val_accuracy", *rows]))
    main(["fit", str(table)])
    told = capsys.readouterr().err
    assert "--map num_rollouts=rollouts_per_problem" in told
    assert "num_rollouts=rollouts " not in told


# Which key may be the score.


@pytest.mark.parametrize("key", ["heldout_violation_rate", "eval_entropy", "avg_exact_kl"])
def test_no_violation_entropy_or_kl_is_offered(tmp_path: Path, key: str) -> None:
    log = json_lines(tmp_path / "a.jsonl", [
        {"step": s, "loss": 0.1, "lr": 1e-6, key: 0.2 + s / 100} for s in range(1, 9)
    ])  # fmt: skip
    assert f"--map {key}=" not in refused(log, DESIGN)


def checkpoints(folder: Path) -> Path:
    rows = [{"step": s, "loss": 0.1, "learning_rate": 1e-6, "accuracy": 0.5 + s / 100}
            for s in range(1, 13)]  # fmt: skip
    json_lines(folder / "run" / "metrics.jsonl", rows)
    for s in (6, 12):
        text(folder / "run" / "eval" / f"step_{s}" / "eval_metrics.json",
             json.dumps({"accuracy": 0.1 + s / 100}))  # fmt: skip
    return folder / "run"


def test_a_key_of_checkpoints_and_of_training_is_offered_as_that_of_training(
    tmp_path: Path,
) -> None:
    assert "name the score: --map accuracy=avg --set split=train." in refused(checkpoints(tmp_path))


def test_a_training_score_is_not_taken_for_that_of_checkpoints(tmp_path: Path) -> None:
    told = refused(checkpoints(tmp_path), DESIGN, ["accuracy=avg"])
    assert "one held-out score of a name" in told
    assert "--set split=train" in told
    (run,) = read(tmp_path / "run", [*DESIGN, "split=train"], ["accuracy=avg"])
    assert {(s.split, s.step_K.size) for s in run.series} == {("train", 12), ("validation", 2)}


# Names of runs.


def test_runs_are_called_by_their_folders_where_files_have_one_name(tmp_path: Path) -> None:
    for name in ("clip_low", "clip_high"):
        json_lines(tmp_path / name / "step_rows.jsonl", [
            {"step": s, "val/accuracy": s / 50 + len(name) / 100} for s in range(1, 9)
        ])  # fmt: skip
    json_lines(tmp_path / "clip_low" / "other.jsonl",
               [{"step": s, "val/accuracy": s / 70} for s in range(1, 9)])  # fmt: skip
    runs = read_logs([tmp_path], settings=load_settings([], ["val/accuracy=avg"]))
    assert sorted(run.name for run in runs) == ["clip_high", "clip_low", "other"]


def test_starts_of_one_job_are_not_called_by_their_folders(tmp_path: Path) -> None:
    for k, at in ((1, range(1, 6)), (2, range(6, 11))):
        json_lines(tmp_path / f"attempt_{k}" / "own.jsonl",
                   [{"step": s, "val/accuracy": s / 50} for s in at])  # fmt: skip
    (run,) = read(tmp_path, DESIGN, ["val/accuracy=avg"])
    assert (run.name, run.series[0].step_K.size) == ("own", 10)


# Beginnings that two runs share.


def begun(folder: Path, name: str, until: int, end: int, then: int) -> None:
    """A run of coarse rewards, which meet those of others now and then beyond the beginning."""
    rows = [{"step": s, "actor/lr": 1e-6,
             "critic/score/mean": REWARDS[(s if s <= until else s * then) % 5]}
            for s in range(1, end + 1)]  # fmt: skip
    json_lines(folder / f"{name}.jsonl", rows)


def test_a_short_beginning_that_two_runs_share_is_asked_about(tmp_path: Path) -> None:
    begun(tmp_path, "a", 6, 100, 2)
    begun(tmp_path, "b", 6, 90, 3)
    told = refused(tmp_path, DESIGN)
    assert "both began with one seed" in told
    assert len(read(tmp_path, [*DESIGN, "resumed=apart"])) == 2
    begun(tmp_path, "a", 60, 100, 2)  # most of a run is the same: a branch
    begun(tmp_path, "b", 60, 90, 3)
    (run,) = read(tmp_path, DESIGN)
    assert run.name == "a"


def test_what_is_to_be_pasted_for_two_runs_keeps_both(tmp_path: Path, capsys: Any) -> None:
    begun(tmp_path, "a", 6, 100, 2)
    begun(tmp_path, "b", 6, 100, 3)
    main(["import", str(tmp_path), "-o", str(tmp_path / "s"), *(f"--set={d}" for d in DESIGN)])
    told = capsys.readouterr().err
    assert "To paste, only if 'a' and 'b' are two runs:" in told
    assert "--set resumed=apart\nthen:" in told


# Steps, and what stands before the first update.


def test_a_null_loss_at_step_0_is_no_update(tmp_path: Path, capsys: Any) -> None:
    rows = [{"step": s, "loss": 0.1 if s else None, "val/accuracy": s / 100}
            for s in range(0, 90, 10)]  # fmt: skip
    log = json_lines(tmp_path / "a.jsonl", rows)
    (run,) = read(log, DESIGN, ["val/accuracy=avg"])
    assert run.provenance.trained == 80
    rows[0]["loss"] = 0.2
    (run,) = read(json_lines(tmp_path / "b.jsonl", rows), DESIGN, ["val/accuracy=avg"])
    assert run.provenance.trained == 81


def test_one_row_between_two_bars_stands_at_its_epoch(tmp_path: Path) -> None:
    def printed(epoch: float) -> str:
        bars = [f"\r {100 * s // 14}%|   | {s}/14 [00:01<01:00, 1.0s/it]" for s in range(15)]
        row = {"loss": 0.1, "reward": 0.3, "epoch": epoch}
        end = {"train_runtime": 9.5, "epoch": 1.0}
        return "\n".join(["".join(bars[:10]), str(row), "".join(bars[10:]), str(end), ""])

    log = text(tmp_path / "a.log", printed(0.71))
    (run,) = read(log, [*DESIGN, "split=train"])
    assert run.series[0].step_K.tolist() == [10]
    assert "must show one step" in refused(text(tmp_path / "b.log", printed(0.68)), DESIGN)


# Lines of one's own that say a step.


def own_lines(path: Path) -> Path:
    said = [f"[step {s}] loss=0.1 acc=0.{s + 10}\n*Step 2: walk 3 at 4 km/h*" for s in (4, 8, 12)]
    return text(path, "\n".join(said) + "\n")


def test_lines_of_training_alone_say_how_they_are_read(tmp_path: Path) -> None:
    text(tmp_path / "logs" / "a.log", "nothing\n")
    told = refused(own_lines(tmp_path / "logs" / "b.log").parent)
    assert "--map acc=avg --set split=train to read acc as of training" in told


def test_a_line_of_a_response_is_no_row_where_the_score_is_named(tmp_path: Path) -> None:
    log = own_lines(tmp_path / "a.log")
    (run,) = read(log, [*DESIGN, "split=train"], ["acc=avg"])
    assert run.series[0].step_K.tolist() == [4, 8, 12]


# A configuration that Ray prints in pieces.


@pytest.mark.parametrize("torn", [
    ["{'actor_rollout_ref': ", "{'rollout': {'n': ", "6,", "                        'seed': 3}},"],
    ["{'actor_rollout_ref'", ": ", "{'rollout': {'n': 6", ",", "      'seed': 3}}", ","],
])  # fmt: skip
def test_a_configuration_in_pieces_is_read(tmp_path: Path, torn: Sequence[str]) -> None:
    said = [*torn, " 'data': {'train_batch_size': ", "24}", ",", " 'trainer': {'nnodes': 1}}"]
    rows = [f"step:{s} - critic/score/mean:0.{s + 10} - actor/lr:1e-6" for s in range(1, 5)]
    lines = [f"(TaskRunner pid=7) {line}" for line in [*said, *rows]]
    (run,) = read(text(tmp_path / "a.log", "\n".join(lines) + "\n"))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (24, 6)


def test_a_console_that_ends_behind_its_configuration_says_so(tmp_path: Path) -> None:
    said = ["{'actor_rollout_ref': {'rollout': {'n': 6}},", " 'data': {'train_batch_size': 24}}",
            "Error: no memory"]  # fmt: skip
    log = text(tmp_path / "a.log", "\n".join(f"(TaskRunner pid=7) {line}" for line in said))
    assert "stopped before its first; leave it out" in refused(log)
    text(tmp_path / "b" / "config.yaml", "data:\n  train_batch_size: 24\n"
         "actor_rollout_ref:\n  rollout:\n    n: 6\n")  # fmt: skip
    other = text(tmp_path / "b" / "main.log", "Error: no memory\n")
    assert "holds nothing of them" in refused(other)
    assert "holds nothing of them" in refused(text(tmp_path / "c.log", "no memory\n"), DESIGN)


def test_names_that_count_runs_from_0_are_no_n(tmp_path: Path) -> None:
    for i in range(2):
        json_lines(tmp_path / "runs" / f"r{i}" / "metrics.jsonl",
                   [{"step": s, "val/accuracy": (s + i) / 50} for s in range(1, 9)])  # fmt: skip
    told = refused(tmp_path / "runs", maps=["val/accuracy=avg"])
    assert "`problems_per_batch` and `rollouts_per_problem` must be known" in told


# What a preview says of a folder.


def test_a_preview_shows_one_set_of_all_runs(tmp_path: Path, capsys: Any) -> None:
    math, aime, gsm = (f"val-core/{name}/acc/mean@4" for name in ("math", "aime", "gsm"))
    for n, keys in ((4, (math, aime)), (8, (aime, math)), (16, (aime,))):
        json_lines(tmp_path / f"g{n}.jsonl", [
            {"step": s, **{key: (0.5 if key == math else 0.1) + s / 100 for key in keys}}
            for s in range(1, 9)
        ])  # fmt: skip
    sets = ["--set", "problems_per_batch=6", "--set", "pattern=g{rollouts_per_problem}"]
    told = preview(tmp_path, capsys, *sets).splitlines()
    assert [line.split()[-2:] for line in told[2:5]] == [["0.11", "0.18"]] * 3
    json_lines(tmp_path / "g16.jsonl", [{"step": s, gsm: s / 10} for s in range(1, 9)])
    told = preview(tmp_path, capsys, *sets).splitlines()
    assert [line.split()[-4:-2] for line in told[2:5]] == [
        ["(gsm,", "validation)"], ["(math,", "validation)"], ["(math,", "validation)"]
    ]  # fmt: skip


def test_what_wandb_says_of_itself_is_no_other_file(tmp_path: Path, capsys: Any) -> None:
    home = tmp_path / "wandb" / "offline-run-20260801_101010-abcd1234"
    home.mkdir(parents=True)
    (home / "run-abcd1234.wandb").write_bytes((LOGS / "trl-offline.wandb").read_bytes())
    for name in ("logs/debug.log", "logs/debug-internal.log", "logs/debug-core.log"):
        text(home / name, '{"time": "2026-08-01", "level": "INFO", "msg": "stream"}\n')
        text(home.parent / Path(name).name, "INFO stream\n")
    text(home / "files" / "requirements.txt", "trl==1.16.0\n")
    (run,) = read_logs([tmp_path], settings=load_settings([], []))
    assert not any("other file" in note for note in run.notes)
    text(tmp_path / "notes.txt", "hello\n")
    main(["import", str(tmp_path), "--preview"])
    assert "isocompute: 1 other file of the folder gave no run\n" in capsys.readouterr().err


# Maps of keys that are no scores.


def test_tokens_of_a_log_are_no_score(tmp_path: Path) -> None:
    rows = [{"step": s, "val/accuracy": s / 50, "tokens_seen": 900 * s} for s in range(1, 9)]
    log = json_lines(tmp_path / "a.jsonl", rows)
    told = refused(log, DESIGN, ["val/accuracy=avg", "tokens_seen=tokens"])
    assert told.endswith("is to be tokens, which a table alone can have; drop that --map.")


def test_a_log_that_is_read_again_with_fewer_maps_keeps_what_it_had(tmp_path: Path) -> None:
    rows = [{"step": s, "val/accuracy": s / 50, "tokens_seen": 900 * s} for s in range(1, 9)]
    log = json_lines(tmp_path / "a.jsonl", rows)

    def labels(*maps: str) -> set[str]:
        import_logs([log], tmp_path / "s", settings=load_settings(DESIGN, [*maps]))
        return {s.metric.label for run in load_imported(tmp_path / "s") for s in run.series}

    assert labels("val/accuracy=avg", "tokens_seen=avg@8") == {"avg", "avg@8"}
    assert labels("val/accuracy=avg") == {"avg", "avg@8"}  # no scores are lost by a command


def test_runs_that_files_of_a_folder_count_keep_their_names(tmp_path: Path) -> None:
    for seed in (0, 1):
        for n in (4, 8):
            json_lines(tmp_path / f"s{seed}" / f"grpo_n{n}.jsonl", [
                {"step": s, "val/accuracy": s / 50 + n / 100 + seed / 90} for s in range(1, 9)
            ])  # fmt: skip
    runs = read(tmp_path, ["problems_per_batch=4", "pattern=s{seed}/grpo_n{rollouts_per_problem}"],
                ["val/accuracy=avg"])  # fmt: skip
    assert sorted(run.name for run in runs) == ["grpo_n4", "grpo_n4", "grpo_n8", "grpo_n8"]


def test_votes_of_several_numbers_of_samples_are_no_means(tmp_path: Path) -> None:
    for k in (8, 16):
        json_lines(tmp_path / "logs" / f"r{k}.jsonl",
                   [{"step": s, f"eval/maj@{k}": s / 50} for s in range(1, 9)])  # fmt: skip
    told = refused(tmp_path / "logs", DESIGN)
    assert "--map eval/maj@16=maj@16 --map eval/maj@8=maj@8" in told
