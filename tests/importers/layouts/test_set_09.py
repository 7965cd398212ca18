"""The ninth set: each layout is read right, or refused in one line that says how it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from set_09 import TABLES, Layout, Run, score, write_csv
from set_09_logs import LOGS

BY_NAME = {layout.name: layout for layout in (*TABLES, *LOGS)}


class Answer(NamedTuple):
    """What the first try says, and what the user then adds."""

    line: str
    settings: dict[str, Any]
    options: dict[str, Any] = {}


ASKED = {
    "wandb_chart": Answer(
        r"pattern='bs\{problems_per_batch\}-n\{rollouts_per_problem\}' where the names say it",
        {"pattern": "bs{problems_per_batch}-n{rollouts_per_problem}"},
    ),
    "wandb_history": Answer(
        r"--metric avg:accuracy_reward or .*`problems_per_batch` must be .* --set problems_per_b",
        {"problems_per_batch": 16},
        {"metric": "avg:accuracy_reward"},
    ),
    "by_hand": Answer(
        r"pattern='n=\{rollouts_per_problem\}'.*; --set problems_per_batch=B_P if all rows share",
        {"pattern": "n={rollouts_per_problem}", "problems_per_batch": 64},
        {"score_range": (0.0, 100.0)},
    ),
    "excel": Answer(
        r"--map 'Prompts per batch=problems_per_batch' --map 'Samples per prompt=rollouts_per_pr"
        r"oblem' --map Accuracy=score if they hold these\.",
        {
            "columns": {
                "Prompts per batch": "problems_per_batch",
                "Samples per prompt": "rollouts_per_problem",
                "Accuracy": "score",
            }
        },
    ),
    "custom_jsonl": Answer(
        r"num_samples=rollouts_per_problem if .* \(samples of one problem, not of the batch; else",
        {"columns": {"num_prompts": "problems_per_batch"}, "pattern": "run_{rollouts_per_problem}"},
        {"score_range": (-1.0, 1.0)},
    ),
    "verl_jsonl": Answer(
        r"bs\{problems_per_batch\}_n\{rollouts_per_problem\}",
        {"pattern": "bs{problems_per_batch}_n{rollouts_per_problem}"},
        {"problem_set": "math500", "metric": "avg@4"},
    ),
    "trl_checkpoints": Answer(
        r"n\{rollouts_per_problem\}-seed\{seed\}.*--set problems_per_batch=B_P with your own",
        {"pattern": "n{rollouts_per_problem}-seed{seed}", "problems_per_batch": 32},
    ),
    "trl_console": Answer(
        r"pattern='g\{rollouts_per_problem\}', as .*, and --set problems_per_batch=B_P with your o",
        {"pattern": "g{rollouts_per_problem}", "problems_per_batch": 8},
    ),
    "openrlhf_events": Answer(
        r"rbs\{problems_per_batch\}_n\{rollouts_per_problem\}",
        {"pattern": "rbs{problems_per_batch}_n{rollouts_per_problem}"},
        {"metric": "avg"},
    ),
}
OPTIONS = {"verl_console": {"metric": "avg@4"}, "wandb_fetched": {"metric": "avg@1"}}


def read(path: Path, settings: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    return load_curves(path, settings=settings_from(settings or {}), **options)


def holds(curves: Sequence[Any], runs: Sequence[Run], low: float = 0.0, high: float = 1.0) -> None:
    """Every curve is a run of the truth, to the last digit that was written."""

    def row(b_p: int, n: int, rollouts: Sequence[float], scores: Sequence[float]) -> object:
        return b_p, n, [float(c) for c in rollouts], [round(s, 6) for s in scores]

    got = [row(c.problems_per_batch, c.rollouts_per_problem, c.rollouts_K.tolist(),
               [low + (high - low) * s for s in c.score_K.tolist()])
           for c in curves if c.rollouts_K[-1] > 0]  # fmt: skip
    want = [row(r.problems_per_batch, r.rollouts_per_problem, r.rollouts, r.scores) for r in runs]
    assert sorted(got, key=repr) == sorted(want, key=repr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name says no n."""
    place = tmp_path / "logs"
    place.mkdir()
    return place


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"parquet"}))
def test_a_layout_is_read_right_at_once_or_after_one_line(name: str, folder: Path) -> None:
    layout = BY_NAME[name]
    layout.write(folder)
    path = folder / layout.path
    answer = ASKED.get(name, Answer("", {}, OPTIONS.get(name, {})))
    if answer.line:
        with pytest.raises(InputError, match=answer.line) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    # the whole of a sheet's percents and the rewards below 0 are rescaled from their range
    low, high = answer.options.get("score_range", (0.0, 1.0))
    holds(read(path, answer.settings, **answer.options), layout.runs,
          *((0.0, 1.0) if name == "by_hand" else (low, high)))  # fmt: skip


def test_rows_of_a_long_table_are_told_apart_by_the_settings_that_they_repeat(folder: Path) -> None:
    layout = BY_NAME["parquet"]
    layout.write(folder)
    path, says = folder / layout.path, {"columns": {"eval/pass@1": "avg"}}
    with pytest.raises(InputError, match=r"@1=avg\), or add --split train\. 2\) runs must"):
        read(path)
    with pytest.raises(InputError, match=r"share their model .*--where model=Qwen2.5-1.5B, or kee"):
        read(path, says)
    for model in ("Qwen2.5-1.5B", "Qwen2.5-7B"):
        holds(read(path, says, where=[f"model={model}"]),
              [run for run in layout.runs if run.model == model])  # fmt: skip


HEAD = ["step", "metric", "value", "group_size", "prompts_per_step"]


def long_table(path: Path, parts: Sequence[tuple[int, range]], column: str = "") -> Path:
    rows: list[list[object]] = [[*HEAD, *([column] if column else [])]]
    for n, steps in parts:
        for step in steps:
            said = [f"out/checkpoint-{step}"] if column else []
            rows.append([step, "val-core/math/acc/mean@4", score(n, step), n, 32, *said])
    write_csv(path, rows)
    return path


def test_a_group_size_that_changes_within_one_run_is_no_two_runs(folder: Path) -> None:
    path = long_table(folder / "a.csv", [(4, range(0, 50, 10)), (8, range(50, 100, 10))])
    with pytest.raises(InputError, match=r"one group_size, .* have 4 and 8; give each run a log"):
        read(path)
    holds(read(long_table(folder / "b.csv", [(4, range(0, 50, 10)), (8, range(0, 90, 10))])), [
        Run("", 32, n, tuple(steps), tuple(score(n, s) for s in steps))
        for n, steps in ((4, range(0, 50, 10)), (8, range(0, 90, 10)))
    ])  # fmt: skip


def test_a_checkpoint_is_no_model_of_its_own(folder: Path) -> None:
    path = long_table(folder / "a.csv", [(4, range(10, 60, 10))], column="model")
    (curve,) = read(path)
    assert curve.rollouts_K.tolist() == [128.0 * step for step in range(10, 60, 10)]


def history(path: Path, *, columns: Sequence[str] = (), says: Any = None) -> Path:
    """Three runs of W&B in one table, whose names say no n."""
    rows: list[list[object]] = [["_step", "training/global_step", "val-core/m/acc/mean@4", "run",
                                 *columns]]  # fmt: skip
    for name, n in (("dry-moon", 4), ("calm-sea", 8), ("red-fox", 16)):
        for step in range(0, 61, 20):
            rows.append([step, step, score(n, step), name, *(says(n, name) if says else ())])
    write_csv(path, rows)
    return path


def truth(b_p: int = 64) -> list[Run]:
    steps = tuple(range(0, 61, 20))
    return [Run("", b_p, n, steps, tuple(score(n, s) for s in steps)) for n in (4, 8, 16)]


@pytest.mark.parametrize("prefix", ["", "config."])
def test_settings_in_the_columns_of_a_history_are_read(folder: Path, prefix: str) -> None:
    """They were checked to be constant and not read: a setting then said another n silently."""
    columns = [f"{prefix}data.train_batch_size", f"{prefix}actor_rollout_ref.rollout.n"]
    path = history(folder / "all.csv", columns=columns, says=lambda n, _: (64, n))
    holds(read(path), truth())
    said: list[str] = []
    holds(read(path, {"rollouts_per_problem": 16}, say=said.append), truth())
    assert "the log says rollouts_per_problem=4, the setting 16: the log's is used" in said[0]


def test_a_name_that_says_another_n_than_the_log_stops_the_import(folder: Path) -> None:
    path = history(folder / "g3.csv", columns=["num_generations"], says=lambda n, _: (n,))
    says = {"problems_per_batch": 64}
    with pytest.raises(
        InputError, match=r"the log says 4 and the name by the pattern 3; drop that"
    ):
        read(path, {**says, "pattern": "g{rollouts_per_problem}"})
    holds(read(path, says), truth())


def test_two_models_of_a_history_are_not_averaged(folder: Path) -> None:
    path = history(folder / "all.csv", columns=["model"], says=lambda n, _: (f"Q-{n // 8}B",))
    pattern = {"problems_per_batch": 64, "rollouts_per_problem": 8}
    with pytest.raises(InputError, match=r"share their model .* have Q-0B .*Q-1B .*Q-2B"):
        read(path, pattern)


def test_two_models_of_a_table_are_not_averaged(folder: Path) -> None:
    rows: list[list[object]] = [["model", "problems_per_batch", "rollouts_per_problem", "step",
                                 "score"]]  # fmt: skip
    for model, start in (("small", 0.2), ("large", 0.4)):
        for n in (4, 8):
            rows += [[model, 64, n, s, score(n, s, start=start)] for s in (0, 20, 40)]
    write_csv(folder / "a.csv", rows)
    with pytest.raises(InputError, match=r"share their model, .*--map model=run .*model=sm"):
        read(folder / "a.csv")
    curves = read(folder / "a.csv", where=["model=large"])
    assert [c.score_K[0] for c in curves] == [0.4, 0.4]
    assert len(read(folder / "a.csv", {"columns": {"model": "run"}})) == 4


def test_a_table_of_checkpoints_may_name_each_as_its_model(folder: Path) -> None:
    rows: list[list[object]] = [["model", "problems_per_batch", "rollouts_per_problem", "step",
                                 "score"]]  # fmt: skip
    rows += [[f"n4/step_{s}", 64, 4, s, score(4, s)] for s in (0, 20, 40)]
    write_csv(folder / "a.csv", rows)
    (curve,) = read(folder / "a.csv")
    assert curve.rollouts_K.tolist() == [0.0, 256.0 * 20, 256.0 * 40]


def test_no_pattern_is_taken_from_a_folder_that_all_runs_share(tmp_path: Path) -> None:
    """`n9` of a folder above gave every run n = 9."""
    place = tmp_path / "n9"
    place.mkdir()
    with pytest.raises(InputError) as caught:
        read(history(place / "all.csv"))
    assert "--set problems_per_batch=B_P --set rollouts_per_problem=N with" in str(caught.value)
    for n in (4, 8):
        (place / f"b{n}").mkdir()
        (place / f"b{n}" / "history.csv").write_text((place / "all.csv").read_text().replace(
            "run", "who"))  # fmt: skip
    (place / "all.csv").unlink()
    with pytest.raises(InputError) as caught:
        read(place)
    assert "as the names seem to say" not in str(caught.value)


def batched(folder: Path) -> Path:
    layout: Layout = BY_NAME["custom_jsonl"]
    layout.write(folder)
    return folder / layout.path


@pytest.mark.parametrize("more", [{}, {"total_samples": "rollouts"}])
def test_samples_of_a_whole_batch_are_no_n(folder: Path, more: dict[str, str]) -> None:
    """The line of the first try, followed to the letter, made n 32 times too large."""
    maps = {"num_prompts": "problems_per_batch", "num_samples": "rollouts_per_problem", **more}
    with pytest.raises(
        InputError,
        match=r"n is 512 and the count of rollouts 30,720 at step 60, "
        r".*\(512 / 32 = 16 may be meant\); correct what says n",
    ):
        read(batched(folder), {"columns": maps, "step": "train_step"}, score_range=(-1.0, 1.0))


def test_a_count_of_samples_may_be_of_problems(folder: Path) -> None:
    rows = [{"step": s, "prompts_per_step": 32, "group_size": 8, "consumed_samples": 32 * s,
             "val-core/m/acc/mean@4": score(8, s)} for s in range(10, 60, 10)]  # fmt: skip
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (curve,) = read(path)
    assert curve.rollouts_K.tolist() == [256.0 * s for s in range(10, 60, 10)]
    rows = [{**row, "consumed_samples": 256 * row["step"], "group_size": 4} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"'consumed_samples' counts 12,800 at step 50, where B_p"):
        read(path)


def chart(path: Path, names: Sequence[str]) -> Path:
    """A W&B chart of runs of n = 4 and 8, each score its own."""
    each = [(name, n) for name in names for n in (4, 8)]
    rows: list[list[object]] = [
        ["Step", *(f"{name}bs64-n{n} - val-core/m/acc/mean@4" for name, n in each)]
    ]
    for step in range(0, 61, 20):
        rows.append([step, *(score(n, step, seed=i, start=0.2 + i / 50)
                             for i, (_, n) in enumerate(each))])  # fmt: skip
    write_csv(path, rows)
    return path


def test_two_models_that_only_names_tell_apart_are_not_averaged(folder: Path) -> None:
    says = {"pattern": "bs{problems_per_batch}-n{rollouts_per_problem}"}
    path = chart(folder / "a.csv", ["qwen1.5b-", "qwen7b-"])
    with pytest.raises(
        InputError,
        match=r"'qwen1.5b\*' \(2 runs\) and 'qwen7b\*' \(2\) have .*"
        r"--where run='qwen1.5b\*', or all others with --where run='!qwen1.5b",
    ):
        read(path, says, where=["model=*"])
    with pytest.raises(InputError, match=r"1.5b \(2 runs\), 7b \(2 runs\); choose with --where "):
        read(path, says)
    curves = read(path, says, where=["run=qwen7b*"])
    assert sorted(c.rollouts_per_problem for c in curves) == [4, 8]


def test_two_models_that_names_in_a_table_tell_apart_are_not_averaged(folder: Path) -> None:
    rows: list[list[object]] = [["run", "problems_per_batch", "rollouts_per_problem", "step",
                                 "score"]]  # fmt: skip
    for model, start in (("1.5b", 0.2), ("7b", 0.4)):
        for n in (4, 8):
            rows += [
                [f"qwen-{model}-n{n}", 64, n, s, score(n, s, start=start)] for s in (0, 20, 40)
            ]
    write_csv(folder / "a.csv", rows)
    with pytest.raises(InputError, match=r"'qwen-1.5b-n\*' \(2 runs\) and 'qwen-7b-n\*' \(2\)"):
        read(folder / "a.csv")
    assert {c.score_K[0] for c in read(folder / "a.csv", where=["run=qwen-7b-n*"])} == {0.4}
    assert len(read(folder / "a.csv", where=["run=*"])) == 4


@pytest.mark.parametrize("names", [("a-", "b-"), ("try1_", "try2_"), ("0914-", "0915-")])
def test_runs_done_once_more_are_repetitions(folder: Path, names: tuple[str, str]) -> None:
    says = {"pattern": "bs{problems_per_batch}-n{rollouts_per_problem}"}
    assert len(read(chart(folder / "a.csv", names), says)) == 4


def appended(path: Path, *, again: bool = False) -> Path:
    """Runs of n = 4 and 8 that wrote into one file; or one run that did its steps again."""
    rows = [{"n": n, "batch_size": 64, "step": s, "acc": score(n, s, start=0.2 + n / 100)}
            for n in (4, 8) for s in range(0, 61, 20)]  # fmt: skip
    if again:  # a count that changes between rows is no setting
        rows = [{**row, "n": 4, "num_samples": 256 - i} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_runs_that_wrote_into_one_file_are_not_read_as_the_last(folder: Path) -> None:
    path = appended(folder / "a.jsonl")
    with pytest.raises(
        InputError,
        match=r"--map acc=avg\).*Under these answers: a run must have one n, but the rows ",
    ):
        read(path)
    says = {"columns": {"acc": "avg"}, "problems_per_batch": 64, "rollouts_per_problem": 8}
    with pytest.raises(InputError, match=r"one n, .* have 4 and 8 and hold the same steps again; "):
        read(path, says)
    assert len(read(appended(path, again=True), says)) == 1  # the last start of one run
    named = [{**json.loads(line), "run": f"r{i // 4}"} for i, line in enumerate(
        appended(path).read_text().splitlines())]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in named))
    maps = {"acc": "avg", "batch_size": "problems_per_batch", "n": "rollouts_per_problem"}
    curves = read(path, {"columns": maps})
    assert sorted(c.rollouts_per_problem for c in curves) == [4, 8]


def test_w_and_b_s_own_folders_name_their_runs(folder: Path) -> None:
    for n in (4, 8):
        files = folder / f"run-20250914_10223{n}-ab{n}" / "files"
        files.mkdir(parents=True)
        (files / "config.yaml").write_text(
            f"data:\n    value:\n        train_batch_size: 64\n"
            f"actor_rollout_ref:\n    value:\n        rollout:\n            n: {n}\n"
        )
        (files / "output.log").write_text(
            "".join(f"step:{s} - val-core/m/acc/mean@4:{score(n, s)}\n" for s in range(0, 61, 20))
        )
    assert sorted((c.run, c.rollouts_per_problem) for c in read(folder)) == [
        ("run-20250914_102234-ab4", 4), ("run-20250914_102238-ab8", 8)]  # fmt: skip


def test_a_batch_that_is_mapped_alone_is_known(folder: Path) -> None:
    path = batched(folder)
    with pytest.raises(InputError, match=r"^1\) `rollouts_per_problem` must .*16 may be") as caught:
        read(path, {"columns": {"num_prompts": "problems_per_batch"}})
    assert "problems_per_batch=problems_per_batch" not in str(caught.value)
