"""The eighth set: each layout is read right, or refused in one line that says how it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from set_08 import LAYOUTS
from set_08_base import Layout, Run

BY_NAME = {layout.name: layout for layout in LAYOUTS}
# What the first try says, and what the user then adds.
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "roll_agentic": (
        r"name the score \(--map val/env/FrozenLake/success/mean=avg\)[^`]*$",
        {"columns": {"val/env/FrozenLake/success/mean": "avg"}},
    ),
    "comet": (
        r"name the score \(--map val_accuracy=avg\)[^`]*$",
        {"columns": {"val_accuracy": "avg"}},
    ),
    "aim": (r"name the score \(--map accuracy=avg\)[^`]*$", {"columns": {"accuracy": "avg"}}),
    "raytune": (
        r"--map val_acc=avg.* --map config/n=rollouts_per_",
        {
            "columns": {
                "val_acc": "avg",
                "config/prompts_per_batch": "problems_per_batch",
                "config/n": "rollouts_per_problem",
            }
        },
    ),
    "torchtune": (
        r"--map val/successes=avg.* `problems_per_batch` .* \(batch_size, of one GPU\) \* GPUs",
        {"columns": {"val/successes": "avg"}, "problems_per_batch": 8},
    ),
    "hand": (
        r"--map 'batch \(prompts\)=problems_per_batch' --map G=rollouts_per_problem --map acc=s",
        {
            "columns": {
                "batch (prompts)": "problems_per_batch",
                "G": "rollouts_per_problem",
                "acc": "score",
            }
        },
    ),
}


def read(path: Path, **settings: Any) -> list[Any]:
    return load_curves(path, settings=settings_from(settings))


def holds(curves: Sequence[Any], runs: Sequence[Run]) -> None:
    """Every curve is a run of the truth, to the last number."""
    assert len(curves) == len(runs)
    left = list(runs)
    for c in curves:
        run = next(
            r for r in left
            if (r.n == c.rollouts_per_problem and None in (r.seed, c.seed)) or
            (r.n, r.seed) == (c.rollouts_per_problem, c.seed)
        )  # fmt: skip
        left.remove(run)
        assert (c.problems_per_batch, c.rollouts_per_problem) == (run.bp, run.n)
        assert list(zip(c.rollouts_K.tolist(), c.score_K.tolist(), strict=True)) == run.curve
        assert c.steps_K is None or c.steps_K.tolist() == list(run.scores)


def drawn(layout: Layout) -> list[list[tuple[float, float]]]:
    """Rollouts that DAPO drew: batches of 192 problems, 1 + step % 3 of them in every update."""
    total = [0]
    for step in range(1, 101):
        total.append(total[-1] + 1 + step % 3)
    return [
        [(float(total[step] * 192 * run.n), score) for step, score in run.scores.items()]
        for run in layout.runs
    ]


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"dapo", "unsloth", "rounded"}))
def test_a_layout_is_read_right_at_once_or_after_one_line(name: str, tmp_path: Path) -> None:
    layout = BY_NAME[name]
    path = layout.write(tmp_path)
    settings: dict[str, Any] = {}
    if name in ASKED:
        line, settings = ASKED[name]
        with pytest.raises(InputError, match=line) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    holds(read(path, **settings), layout.runs)


def test_rollouts_that_dynamic_sampling_drew_are_counted(tmp_path: Path) -> None:
    layout = BY_NAME["dapo"]
    curves = sorted(read(layout.write(tmp_path)), key=lambda c: c.rollouts_per_problem)
    assert [c.problems_per_batch for c in curves] == [64] * 3
    for c, points in zip(curves, drawn(layout), strict=True):
        assert list(zip(c.rollouts_K.tolist(), c.score_K.tolist(), strict=True)) == points


def test_rows_whose_bars_disagree_are_placed_by_their_epochs(tmp_path: Path) -> None:
    layout = BY_NAME["unsloth"]
    path = layout.write(tmp_path)
    # B_p is the banner's: 1 in the configuration, n * 4 completions of which n are of one problem
    runs = [Run(4, run.n, run.scores) for run in layout.runs]
    holds(read(path), runs)
    for file in path.iterdir():  # tqdm draws the bar again behind every row
        out, bar = list[str](), ""
        for line in file.read_text().splitlines():
            if "'loss'" in line:
                step = int(bar.partition("%|####      | ")[2].partition("/")[0] or 0) + 10
                bar = f" {step * 100 // 250}%|####      | {step}/250 [01:00<20:00,  6.01s/it]"
            if "%|" not in line:
                out += [bar, line, bar] if "'epoch'" in line else [line]
        file.write_text("\n".join([*out, ""]))
    holds(read(path), runs)


def test_rollouts_that_a_spreadsheet_rounded_are_refused(tmp_path: Path) -> None:
    layout = BY_NAME["rounded"]
    path = layout.write(tmp_path)
    with pytest.raises(InputError, match=r"row 2 has 1.02E\+05, .* \(199.2 batches of 512\); show"):
        read(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    steps = [step for run in layout.runs for step in run.scores]
    text = ["problems_per_batch,rollouts_per_problem,step,score"]
    text += [f"{r['problems_per_batch']},{r['rollouts_per_problem']},{step},{r['score']}"
             for r, step in zip(rows, steps, strict=True)]  # fmt: skip
    path.write_text("\n".join([*text, ""]))
    holds(read(path), layout.runs)
    # as many digits as there are: 1.00E+03 is no rounded number where it is whole batches
    path.write_text("problems_per_batch,rollouts_per_problem,rollouts,score\n10,10,1.00E+03,0.5\n"
                    "10,20,2.00E+03,0.5\n")  # fmt: skip
    assert [c.rollouts_K.tolist() for c in read(path)] == [[1000.0], [2000.0]]


def _verl(step: int, score: str) -> str:
    return f"step:{step} - critic/score/mean:0.5 - val-core/gsm8k/acc/mean@1:{score}"


@pytest.mark.parametrize("pack", [False, True])
def test_half_a_number_at_the_end_of_a_console_is_left_out(tmp_path: Path, pack: bool) -> None:
    import gzip

    def write(text: str) -> list[Any]:
        path = tmp_path / ("bp8_n4.log.gz" if pack else "bp8_n4.log")
        path.write_bytes(gzip.compress(text.encode()) if pack else text.encode())
        return read(path, problems_per_batch=8, rollouts_per_problem=4)

    lines = [_verl(0, "0.25"), _verl(10, "0.5"), _verl(20, "0.7")]
    (cut,) = write("\n".join(lines))
    assert cut.score_K.tolist() == [0.25, 0.5]
    (whole,) = write("\n".join([*lines, ""]))
    assert whole.score_K.tolist() == [0.25, 0.5, 0.7]


RESUMED = [(0, 0.1), (20, 0.2), (40, 0.3), (60, 0.9), (80, 0.95), (60, 0.4), (80, 0.5), (100, 0.6)]


def _long(rows: Sequence[tuple[int, float]], clock: Callable[[int], object] | None) -> str:
    head = "run,metric,value,step" + ("" if clock is None else ",timestamp")
    text = [f"n8,avg,{score},{step}" + ("" if clock is None else f",{clock(i)}")
            for i, (step, score) in enumerate(rows)]  # fmt: skip
    return "\n".join([head, *text, ""])


CLOCKS = [lambda i: 1.7e9 + i * 60, lambda i: f"2026-01-02T1{i}:00:00+0{i}:30", None]


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_newest_rows_first_are_no_resumed_run(
    tmp_path: Path, clock: Callable[[int], object] | None
) -> None:
    path = tmp_path / "m.csv"
    settings = {"problems_per_batch": 8, "rollouts_per_problem": 8}
    path.write_text(_long(RESUMED, clock))
    (right,) = read(path, **settings)
    assert right.score_K.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    last = len(RESUMED) - 1
    path.write_text(_long(RESUMED[::-1], clock and (lambda i: clock(last - i))))
    with pytest.raises(InputError, match=r"the newest seem to stand first; sort the file by time"):
        read(path, **settings)


@pytest.mark.parametrize("levels", [1, 2])
def test_a_pivoted_frame_is_read_by_the_names_of_its_levels(tmp_path: Path, levels: int) -> None:
    path = tmp_path / "pivot.csv"
    above = ["," + ",".join(["acc"] * 4)] if levels == 2 else []
    path.write_text("\n".join([*above, "n,8,8,16,16", "seed,0,1,0,1", "step,,,,",
                               "10,0.1,0.2,0.3,0.4", "20,0.2,0.3,0.4,0.5", ""]))  # fmt: skip
    pattern = "n{rollouts_per_problem}_seed{seed}"
    with pytest.raises(InputError, match=r"add --set pattern='n\{rollouts_per_problem\}_seed\{se"):
        read(path)
    curves = read(path, pattern=pattern, problems_per_batch=4)
    found = {(c.rollouts_per_problem, c.seed): (c.rollouts_K.tolist(), c.score_K.tolist())
             for c in curves}  # fmt: skip
    assert found[8, 1] == ([320.0, 640.0], [0.2, 0.3])
    assert found[16, 0] == ([640.0, 1280.0], [0.3, 0.4])
    assert len(found) == 4


def test_two_columns_that_say_one_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    rows = ["step,acc_n8,kl_n8,acc_n16,kl_n16", "10,0.1,0.01,0.2,0.02", "20,0.3,0.02,0.4,0.03"]
    path.write_text("\n".join([*rows, ""]))
    settings: dict[str, Any] = {"problems_per_batch": 4}
    with pytest.raises(InputError, match=r"'acc_n8' and 'kl_n8' both say problems_per_batch=4, r"):
        read(path, pattern="n{rollouts_per_problem}", **settings)
    curves = read(path, pattern="acc_n{rollouts_per_problem}", **settings)
    assert [c.score_K.tolist() for c in curves] == [[0.1, 0.3], [0.2, 0.4]]


def test_slimes_console_is_read_with_its_command(tmp_path: Path) -> None:
    for n in (8, 16):
        lines = [f"+ python3 train.py --rollout-batch-size 32 --n-samples-per-prompt {n} "
                 "--num-rollout 60 --n-samples-per-eval-prompt 16"]  # fmt: skip
        lines.append("(RolloutManager pid=4) eval 0: {'eval/aime': 0.1, 'eval/aime-x': nan}")
        for rollout in range(60):
            lines.append(f"(RolloutManager pid=4) rollout {rollout}: {{'rollout/raw_reward': 0.5}}")
            if rollout % 20 == 19:
                shown = {"eval/aime": 0.2 + rollout / 100}
                lines.append(f"(RolloutManager pid=4) eval {rollout}: {shown}")
        (tmp_path / f"{n}.log").write_text("\n".join([*lines, ""]))
    for c in read(tmp_path):
        assert (c.problems_per_batch, c.metric) == (32, "avg@16")
        batch = 32 * c.rollouts_per_problem
        assert c.rollouts_K.tolist() == [step * batch for step in (0, 20, 40, 60)]
        assert c.score_K.tolist() == pytest.approx([0.1, 0.39, 0.59, 0.79])


def test_a_duration_is_no_clock(tmp_path: Path) -> None:
    rows = [{"step": step, "time": 20.0 - i, "eval/acc": score}
            for i, (step, score) in enumerate(RESUMED)]  # fmt: skip
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    settings = {"problems_per_batch": 8, "rollouts_per_problem": 8, "columns": {"eval/acc": "avg"}}
    assert read(path, **settings)[0].score_K.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    for i, row in enumerate(rows):
        row["time"] = 1.7e9 + 60 * i
    path.write_text(json.dumps(rows[::-1]))  # with a clock the order of the file is none
    assert read(path, **settings)[0].score_K.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_the_step_of_verls_asynchronous_trainer_is_a_sync(tmp_path: Path) -> None:
    layout = BY_NAME["fully_async"]
    path = layout.write(tmp_path)
    for file in path.rglob("metrics.jsonl"):  # its rows of training count the updates besides
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        more = [{"step": row["step"], "data": {"training/global_step": 4 * row["step"],
                                               "critic/rewards/mean": 0.3}} for row in rows[1:]]
        lines = [json.dumps(row) for row in sorted([*rows, *more], key=lambda row: row["step"])]
        file.write_text("\n".join([*lines, ""]))
    holds(read(path), layout.runs)
    holds(read(path, step="step"), layout.runs)


@pytest.mark.parametrize("waits", [None, 16])
def test_the_batch_of_tinkers_asynchronous_training(tmp_path: Path, waits: int | None) -> None:
    config = {"dataset_builder": {"batch_size": 32, "group_size": 8}, "async_config": None}
    if waits is not None:
        config["async_config"] = {"max_steps_off_policy": 2, "groups_per_batch": waits}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = [{"step": step, "progress/batch": step, "test/env/all/correct": 0.1 + step / 100}
            for step in (0, 10, 20)]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (curve,) = read(tmp_path)
    assert (curve.problems_per_batch, curve.rollouts_per_problem) == (waits or 32, 8)


def test_a_count_of_problems_is_none_of_rollouts(tmp_path: Path) -> None:
    head = "problems_per_batch,rollouts_per_problem,steps,rollouts,score"
    points = [(n, step) for n in (4, 8) for step in (0, 50, 100)]

    def table(count: Callable[[int, int], int]) -> Path:
        rows = [f"64,{n},{step},{count(n, step)},{0.2 + step / 1000}" for n, step in points]
        path = tmp_path / "t.csv"
        path.write_text("\n".join([head, *rows, ""]))
        return path

    with pytest.raises(InputError, match=r"responses \(those of this table are B_p \* steps at ev"):
        read(table(lambda n, step: 64 * step))
    assert {c.rollouts_K[-1] for c in read(table(lambda n, step: 64 * n * step))} == {25600, 51200}
    # a batch that serves four updates at every n is no such count
    assert {c.rollouts_K[-1] for c in read(table(lambda n, step: 16 * n * step))} == {6400, 12800}


def test_a_mapped_count_of_problems_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bp64_n8.jsonl"

    def settings(seen: int) -> dict[str, Any]:
        rows = [{"step": step, "seen": seen * step, "eval/acc": 0.1 + step / 1000}
                for step in (0, 50, 100, 200)]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"problems_per_batch": 64, "rollouts_per_problem": 8,
                "columns": {"eval/acc": "avg", "seen": "rollouts"}}  # fmt: skip

    with pytest.raises(InputError, match=r"12,800 at step 200, which is B_p \* step and not B_p"):
        read(path, **settings(64))
    assert read(path, **settings(64 * 8))[0].rollouts_K[-1] == 102400
    assert read(path, **settings(64 * 16))[0].rollouts_K[-1] == 204800


def test_a_plain_table_with_an_empty_row_is_no_pivoted_frame(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("run,problems_per_batch,rollouts_per_problem,steps,score\n"
                    "a,8,4,10,0.5\nb,,,,\nb,8,4,10,0.6\n")  # fmt: skip
    with pytest.raises(InputError, match=r"`problems_per_batch` must be a whole number >= 1"):
        read(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_export_holds_what_was_imported(tmp_path: Path, ending: str) -> None:
    layout = BY_NAME["slime"]
    study = tmp_path / "study"
    assert main(["import", str(layout.write(tmp_path)), "-o", str(study)]) == 0
    file = tmp_path / f"curves.{ending}"
    assert main(["export", str(study), "-o", str(file)]) == 0
    holds(read(file), layout.runs)
    assert main(["export", str(study), "--format", ending, "-o", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / f"imported.{ending}").stat().st_size > 0


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["r8,8,4,1,10,0.1", ",8,4,1,20,0.2"], r"have its run, or none, but row 2 has none \(1 su"),
        (["r8,8,4,1,10,0.1", "r8,8,4,,20,0.2"], r"have its seed, or none, but row 2 has none"),
        (["r8,8,4,1,10,0.1", "r8,,,1,20,0.2"], r"row 2 has nan .*; fill empty cells down"),
        (["r8,8,4,1,10,0.1", "r8,8,4,1,20,0.2", ",8,8,,20,0.2"], ""),
    ],
)
def test_merged_cells_are_refused(tmp_path: Path, rows: list[str], line: str) -> None:
    path = tmp_path / "t.csv"
    head = "run,problems_per_batch,rollouts_per_problem,seed,steps,score"
    path.write_text("\n".join([head, *rows, ""]))
    if not line:
        assert sorted(len(c.score_K) for c in read(path)) == [1, 2]
        return
    with pytest.raises(InputError, match=line):
        read(path)


def test_a_mapped_key_that_holds_no_numbers_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 0, "eval/acc": "0,25"}\n{"step": 10, "eval/acc": "0,5"}\n')
    with pytest.raises(InputError, match=r"line 1, eval/acc must be a number, but got '0,25'"):
        read(path, columns={"eval/acc": "avg"}, problems_per_batch=8, rollouts_per_problem=4)


def test_slimes_history_with_the_newest_row_first_is_refused(tmp_path: Path) -> None:
    layout = BY_NAME["slime"]
    path = layout.write(tmp_path)
    for file in path.rglob("history.csv"):  # which evaluation of step 0 is before training?
        head, *rows = file.read_text().splitlines()
        file.write_text("\n".join([head, *rows[::-1], ""]))
    with pytest.raises(InputError, match=r"calls its first update step 0, but the newest seem to"):
        read(path)


def test_a_configuration_beside_several_torchtune_logs_is_of_none(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "torchtune_config.yaml").write_text("batch_size: 1\ngrpo_samples: 16\n")
    settings = {"problems_per_batch": 8, "columns": {"val/successes": "avg"}}
    for number in range(2):
        rows = [f"Step {step} | loss:0.1 val/successes:{0.1 * number + step / 100} "
                for step in (10, 20)]  # fmt: skip
        (folder / f"log_175750000{number}.txt").write_text("\n".join([*rows, ""]))
        if not number:
            assert read(folder, **settings)[0].rollouts_per_problem == 16
    with pytest.raises(InputError, match="`rollouts_per_problem` must be known"):
        read(folder, **settings)


def test_a_table_that_breaks_off_within_its_rollouts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = "problems_per_batch,rollouts_per_problem,score,rollouts\n"
    text += "".join(f"8,4,{step / 100},{32 * step}\n" for step in (0, 10, 20, 30))
    path.write_text(text[:-2])  # 960 breaks off at 96
    with pytest.raises(InputError, match=r"ends within a line, .* from 640 to 96 in it; complete"):
        read(path)
    path.write_text(text[:-1])  # by hand, without a last end of line
    assert read(path)[0].rollouts_K.tolist() == [0.0, 320.0, 640.0, 960.0]
    path.write_text(text + "8,8,0.1,0\n8,8,0.3,640\n8,8,0.2,64")  # in no order by hand
    with pytest.raises(InputError, match="complete or drop"):
        read(path)


def test_decimal_commas_between_tabs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    head = "problems_per_batch\trollouts_per_problem\tsteps\tscore"
    path.write_text(f"{head}\n8\t4\t0\t0,25\n8\t4\t10\t0,5125\n")
    assert read(path)[0].score_K.tolist() == [0.25, 0.5125]
    path.write_text(f"{head}\n8\t4\t0\t0,25\n8\t4\t1,024\t0,5125\n")
    with pytest.raises(InputError, match="has '1,024'; write plain numbers"):
        read(path)
    log = tmp_path / "bp8_n4.tsv"
    log.write_text("step\tval-core/gsm8k/acc/mean@4\n0\t0,25\n10\t0,5125\n")
    (curve,) = read(log, problems_per_batch=8, rollouts_per_problem=4)
    assert curve.score_K.tolist() == [0.25, 0.5125]
