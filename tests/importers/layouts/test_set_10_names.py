"""Variations of the tenth set: what files of one run measure, and units of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from set_10 import Run, curve, write_csv, write_json
from test_set_10_more import lines, read, truth

STEPS = range(0, 101, 10)
ACC = {"columns": {"acc": "avg"}}
JOBS = {"pattern": "job{rollouts_per_problem}", "problems_per_batch": 32}
Writer = Callable[[Path, Sequence[float]], None]


def as_csv(path: Path, scores: Sequence[float]) -> None:
    write_csv(path.with_suffix(".csv"), ["step", "acc"], zip(STEPS, scores, strict=True))


def as_lines(path: Path, scores: Sequence[float]) -> None:
    lines(
        path.with_suffix(".jsonl"),
        [{"step": s, "acc": v} for s, v in zip(STEPS, scores, strict=True)],
    )


def jobs(folder: Path, write: Writer, files: Sequence[str], *, config: bool) -> list[Any]:
    """Two jobs, each with a file of its scores and one of a quarter of them."""
    runs = [Run(32, n) for n in (4, 8)]
    for run in runs:
        scores, home = curve(run, STEPS), folder / f"job{run.n}"
        write(home / files[0], scores)
        write(home / files[1], [score / 4 for score in scores])
        if config:
            text = f"prompts_per_batch: 32\ngroup_size: {run.n}\n"
            (home / "config.yaml").write_text(text)
    return truth(*runs)


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_files_of_several_evaluation_sets_are_no_repetitions(
    tmp_path: Path, write: Writer, config: bool
) -> None:
    wanted = jobs(tmp_path, write, ("eval_math", "eval_aime24"), config=config)
    said = ACC if config else {**ACC, **JOBS}
    with pytest.raises(InputError, match="one problem set, but hold 'aime24', 'math'; choose one"):
        read(tmp_path, said)
    assert read(tmp_path, said, problem_set="math") == wanted


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("write", [as_csv, as_lines])
@pytest.mark.parametrize("files", [("eval", "train"), ("val_log", "train_log")])
def test_files_of_training_are_no_repetitions(
    tmp_path: Path, files: Sequence[str], write: Writer, config: bool
) -> None:
    wanted = jobs(tmp_path, write, files, config=config)
    assert read(tmp_path, ACC if config else {**ACC, **JOBS}) == wanted


@pytest.mark.parametrize("config", [False, True])
def test_folders_of_training_are_no_repetitions(tmp_path: Path, config: bool) -> None:
    wanted = jobs(tmp_path, as_lines, ("eval/metrics", "train/metrics"), config=config)
    assert read(tmp_path, ACC if config else {**ACC, **JOBS}) == wanted


def test_files_of_seeds_are_repetitions(tmp_path: Path) -> None:
    jobs(tmp_path, as_lines, ("eval_seed0", "eval_seed1"), config=False)
    assert len(read(tmp_path, {**ACC, **JOBS}, where=["run=*"])) == 4  # they begin unlike


def one_job(folder: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    write_csv(folder / "metrics.csv", header, rows)
    (folder / "config.yaml").write_text("prompts_per_batch: 32\ngroup_size: 8\n")


def test_steps_that_count_responses_are_asked_about(tmp_path: Path) -> None:
    scores = curve(Run(32, 8), STEPS)
    rows = [[step * 256, score] for step, score in zip(STEPS, scores, strict=True)]
    one_job(tmp_path, ["step", "acc"], rows)
    with pytest.raises(InputError, match=r"to 25600, are multiples of B_p \* n = 256, as a count"):
        read(tmp_path, ACC)
    assert read(tmp_path, {**ACC, "step": "step"})[0][2][-1][0] == 25600 * 256


@pytest.mark.parametrize("written", ["1,000", "1 000", "1k", "1.2K"])
def test_steps_in_thousands_are_refused_not_dropped(tmp_path: Path, written: str) -> None:
    scores = curve(Run(32, 8), STEPS)
    rows = [[step, score] for step, score in zip(STEPS, scores, strict=True)]
    one_job(tmp_path, ["step", "acc"], [*rows, [written, 0.5]])
    with pytest.raises(InputError, match="a step must be a plain number, .* write it out, as 1200"):
        read(tmp_path, ACC)
    long = [["r", "val/acc", step, value] for step, value in (*rows, (written, 0.5))]
    path = tmp_path / "long" / "all.csv"
    write_csv(path, ["run", "metric", "step", "value"], long)
    with pytest.raises(InputError, match="a step must be a plain number, .* write it out, as 1200"):
        read(path, {"columns": {"val/acc": "avg"}, "bp": 32, "n": 8})


def test_shares_that_a_sheet_shows_in_percent_are_shares(tmp_path: Path) -> None:
    run = Run(32, 8)
    scores = [round(score, 3) for score in curve(run, STEPS)]
    rows = [[s, f"{100 * score:.1f}%"] for s, score in zip(STEPS, scores, strict=True)]
    one_job(tmp_path, ["step", "score"], rows)
    found = read(tmp_path, {"columns": {"score": "avg"}})
    assert [y for _, y in found[0][2]] == pytest.approx(scores)


def test_sacred_keeps_its_series_apart(tmp_path: Path) -> None:
    runs = [Run(32, n) for n in (4, 8)]
    for run in runs:
        scores, home = curve(run, STEPS), tmp_path / str(run.n)
        told = {
            key: {"steps": list(STEPS), "values": values, "timestamps": ["2026-11-25"] * 11}
            for key, values in (("eval.acc", scores), ("train.acc", [0.1] * 11))
        }
        write_json(home / "metrics.json", told)
        write_json(home / "config.json", {"problems_per_batch": 32, "group_size": run.n})
        split = {"train": {"steps": list(STEPS), "acc": [0.1] * 11}}
        whole = {**split, "eval": {"steps": list(STEPS), "acc": scores}}
        config = {"config": {"problems_per_batch": 32, "group_size": run.n}}
        write_json(tmp_path / "splits" / f"r{run.n}.json", {**whole, **config})
    assert read(tmp_path / "splits", {"columns": {"eval/acc": "avg"}}) == truth(*runs)
    for run in runs:
        found = read(tmp_path / str(run.n), {"columns": {"eval.acc": "avg"}})
        assert found == truth(run)


def test_sets_called_val_and_test_are_two(tmp_path: Path) -> None:
    wanted = jobs(tmp_path, as_lines, ("val", "test"), config=True)
    with pytest.raises(InputError, match="one problem set, but hold 'test', 'val'; choose one"):
        read(tmp_path, ACC)
    assert read(tmp_path, ACC, problem_set="val") == wanted


def test_a_second_table_of_a_run_is_never_dropped(tmp_path: Path) -> None:
    runs = [Run(32, n) for n in (4, 8)]
    for run in runs:
        points, home = list(zip(STEPS, curve(run, STEPS), strict=True)), tmp_path / f"job{run.n}"
        write_csv(home / "metrics.csv", ["step", "acc"], points[:7])
        write_csv(home / "metrics_resumed.csv", ["step", "acc"], points[6:])
        text = f"prompts_per_batch: 32\ngroup_size: {run.n}\nseed: 3\n"
        (home / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"must be known, but 'metrics_resumed' .*, and 1 more\)"):
        read(tmp_path, ACC)
    assert read(tmp_path, {**ACC, **JOBS}) == truth(*runs)


@pytest.mark.parametrize("files", [("metrics_math", "metrics_aime"), ("math/log", "aime/log")])
@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_files_whose_names_recur_in_every_folder_are_no_repetitions(
    tmp_path: Path, write: Writer, files: Sequence[str]
) -> None:
    wanted = jobs(tmp_path, write, files, config=False)
    cure = "give the files of one" if write is as_csv else r"choose with --where run=\w*aime,"
    with pytest.raises(InputError, match=f"'.*aime' .2 runs. and '.*math' .2. have the .*{cure}"):
        read(tmp_path, {**ACC, **JOBS})
    if write is as_lines:
        assert read(tmp_path, {**ACC, **JOBS}, where=["run=*math"]) == wanted
        assert len(read(tmp_path, {**ACC, **JOBS}, where=["run=*"])) == 4


@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_files_of_repetitions_that_recur_are_read(tmp_path: Path, write: Writer) -> None:
    for files in (("seed0", "seed1"), ("run_a", "run_b")):
        folder = tmp_path / files[0]
        jobs(folder, write, files, config=False)
        more = {"where": ["run=*"]} if write is as_lines else {}  # they begin unlike
        assert len(read(folder, {**ACC, **JOBS}, **more)) == 4
