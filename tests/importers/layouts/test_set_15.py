"""Layouts of the fifteenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.cli.imports import import_document
from isocompute.domain import Curve
from isocompute.importers import read_logs
from layout_helpers import load, refused

Cells = Sequence[object]
TABLE = ("Bp=problems_per_batch", "K=rollouts_per_problem", "acc=score")


def write(
    path: Path, rows: Iterable[Cells], separator: str = ",", encoding: str = "utf-8"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(separator.join(map(str, row)) + "\n" for row in rows)
    path.write_text(text, encoding)
    return path


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def steps_of(c: Curve) -> list[float]:
    return [round(x / c.problems_per_batch / c.rollouts_per_problem, 6) for x in c.rollouts_K]


def score(step: int, n: int) -> float:
    return round(0.2 + 0.002 * step + 0.001 * n, 4)


# Rows of one run at one step: samplings of one kind count each, two kinds are not mixed.


@pytest.mark.parametrize("sampled", [2, 4])
def test_samplings_with_equal_scores_count_each(tmp_path: Path, sampled: int) -> None:
    rows = [
        (24, 4, 1, step, draw, 0.5 if draw < sampled - 1 else 0.5 + step / 1000)
        for step in (10, 20, 30, 40) for draw in range(sampled)
    ]
    source = write(tmp_path / "e.csv", [("Bp", "K", "seed", "step", "draw", "acc"), *rows])
    (curve,) = load(source, TABLE)
    assert curve.score_K.size == 4 * sampled


@pytest.mark.parametrize("times", [2, 3])
def test_rows_that_were_written_again_count_once(tmp_path: Path, times: int) -> None:
    rows = [(24, 4, 1, step, score(step, 4)) for step in (10, 20, 30, 40)] * times
    source = write(tmp_path / "e.csv", [("Bp", "K", "seed", "step", "acc"), *rows])
    (curve,) = load(source, TABLE)
    assert curve.score_K.tolist() == [score(step, 4) for step in (10, 20, 30, 40)]


KINDS = [("verifier", ("rule", "llm judge")), ("prompt_style", ("boxed", "plain", "cot"))]


@pytest.mark.parametrize(("column", "kinds"), KINDS)
def test_scores_of_two_kinds_are_not_mixed(
    tmp_path: Path, column: str, kinds: tuple[str, ...]
) -> None:
    rows = [
        (24, n, 3, step, f"2025-0{i + 1}-10", kind, score(step, n) - 0.05 * i)
        for n in (4, 8) for step in (10, 20, 30, 40) for i, kind in enumerate(kinds)
    ]
    source = write(tmp_path / "e.csv", [("Bp", "K", "seed", "step", "day", column, "acc"), *rows])
    told = refused(source, TABLE)
    assert f"column {column} has {', '.join(sorted(kinds))}; choose with --where" in told
    for c in load(source, TABLE, where=[f"{column}={kinds[0]}"]):
        assert c.score_K.tolist() == [
            score(int(s), c.rollouts_per_problem) for s in steps_of(c)
        ]
    assert all(c.score_K.size == 4 * len(kinds) for c in load(source, TABLE, where=[f"{column}=*"]))


@pytest.mark.parametrize("column", ["day", "draw"])
def test_numbers_and_dates_are_no_kinds(tmp_path: Path, column: str) -> None:
    rows = [
        (24, 4, 3, step, f"2025-0{i + 1}-10" if column == "day" else i, score(step, 4) - 0.05 * i)
        for step in (10, 20, 30, 40) for i in range(2)
    ]
    source = write(tmp_path / "e.csv", [("Bp", "K", "seed", "step", column, "acc"), *rows])
    (curve,) = load(source, TABLE)
    assert curve.score_K.size == 8


# Jobs that go on with each other.


def job(path: Path, seed: int, first: int, last: int, n: int = 8, log: str = "log") -> None:
    config = {"problems_per_batch": 24, "rollouts_per_problem": n, "seed": seed}
    (path / log).mkdir(parents=True)
    (path / log / "config.json").write_text(json.dumps(config))
    steps = range(first, last + 1)
    rows: list[dict[str, object]] = [{"step": s, "train/loss": 1 / (s + 1)} for s in steps]
    rows += [{"step": s, "val/accuracy": score(s, n + seed + first)} for s in steps if s % 5 == 0]
    write_lines(path / log / "metrics.jsonl", sorted(rows, key=lambda r: int(str(r["step"]))))


MAP = ("val/accuracy=avg",)


@pytest.mark.parametrize("name", ["job_{}", "2025-08-1{}"])
def test_a_folder_for_every_job_is_one_run(tmp_path: Path, name: str) -> None:
    parts = [(1, 0, 23), (2, 0, 26), (1, 21, 47), (2, 21, 60), (1, 41, 60)]
    for i, (seed, first, last) in enumerate(parts):
        job(tmp_path / name.format(i), seed, first, last)
    curves = load(tmp_path, MAP)
    assert sorted((c.seed, *steps_of(c)) for c in curves) == [
        (seed, *range(0, 61, 5)) for seed in (1, 2)
    ]
    first = next(c for c in curves if c.seed == 1)
    assert first.score_K[5] == score(25, 9 + 21)  # of the job that went on


@pytest.mark.parametrize("names", [("monday", "tuesday"), ("first-node", "big-node")])
def test_a_job_of_another_name_is_asked_about(tmp_path: Path, names: tuple[str, str]) -> None:
    job(tmp_path / names[0], 4, 0, 31, log=".")
    job(tmp_path / "x" / "y" / names[1], 4, 31, 60, log=".")
    told = refused(tmp_path, MAP, ("begins=0",))
    assert "resumed=join" in told
    assert "resumed=apart" in told
    (curve,) = load(tmp_path, MAP, ("resumed=join",))
    assert steps_of(curve) == [*range(0, 61, 5)]


# Evaluations that are counted by index.


def indexed(path: Path, evaluations: range, trained: int, **config: object) -> Path:
    path.mkdir(parents=True)
    said = {"problems_per_batch": 24, "rollouts_per_problem": 8, "eval.every_updates": 20}
    (path / "config.json").write_text(json.dumps(said | config))
    rows: list[dict[str, object]] = [{"step": i, "eval/acc": score(i, 8)} for i in evaluations]
    rows += [{"step": s, "train/loss": 0.5} for s in range(1, trained + 1)]
    write_lines(path / "metrics.jsonl", rows)
    return path


@pytest.mark.parametrize(("key", "said", "first"), [
    ("eval.before_training", False, 20), ("val_before_train", True, 0),
    ("eval_on_start", "false", 20),
])  # fmt: skip
def test_the_configuration_says_where_evaluations_begin(
    tmp_path: Path, key: str, said: object, first: int
) -> None:
    source = indexed(tmp_path / "run", range(8), 160 + first // 4, **{key: said})
    (curve,) = load(source, ("eval/acc=avg",))
    assert steps_of(curve) == [first + 20 * i for i in range(8)]


@pytest.mark.parametrize("trained", [160, 175])
def test_a_beginning_that_nothing_says_is_asked_about(tmp_path: Path, trained: int) -> None:
    source = indexed(tmp_path / "run", range(8), trained)
    told = refused(source, ("eval/acc=avg",))
    assert "they may stand at 0 to 140 or at 20 to 160" in told


@pytest.mark.parametrize("clock", ["monitoring/ab/gpu", "system/gpu.0.memory"])
def test_the_clock_of_a_machine_trains_nothing(tmp_path: Path, clock: str) -> None:
    start = datetime.datetime(2025, 6, 1, tzinfo=datetime.UTC)
    series = {
        clock: [(10_000 * i, 90.0) for i in range(30)],
        "train/loss": [(i, 0.5) for i in range(1, 61)],
        "eval/solved": [(i, score(i, 8)) for i in range(7)],
    }
    rows: list[dict[str, object]] = [
        {"run_id": "R-1", "attribute_path": f"config/{key}", "attribute_type": "int", "step": None,
         "timestamp": None, "int_value": value, "float_value": None}
        for key, value in (("rollout/k", 8), ("batch/problems", 24), ("eval/every", 10))
    ]  # fmt: skip
    rows += [
        {"run_id": "R-1", "attribute_path": key, "attribute_type": "float_series",
         "step": float(step), "timestamp": start, "int_value": None, "float_value": value}
        for key, points in series.items() for step, value in points
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "R-1_part_0.parquet")
    told = refused(tmp_path, ("eval/solved=avg",))
    maps = ("batch.problems=problems_per_batch", "rollout.k=rollouts_per_problem")
    assert f"--map {maps[0]} --map {maps[1]} if they hold these" in told
    (curve,) = load(tmp_path, ("eval/solved=avg", *maps))
    assert steps_of(curve) == [*range(0, 61, 10)]


@pytest.mark.parametrize("seeds", [(7, 8), (90, 91)])
def test_slime_draws_with_its_rollout_seed(tmp_path: Path, seeds: tuple[int, int]) -> None:
    for seed in seeds:
        said = {"rollout_batch_size": 16, "n_samples_per_prompt": 4, "seed": 1234,
                "rollout_seed": seed}  # fmt: skip
        lines = [f"  {key} ............ {value}" for key, value in said.items()]
        lines.append("eval 0: {'eval/aime': 0.25}")
        for i in range(23):
            lines.append(f"x.py:1 - rollout {i}: {{'rollout/raw_reward': 0.5, 'rollout/len': 1}}")
            if i % 10 == 9:
                lines.append(f"x.py:1 - eval {i}: {{'eval/aime': {0.3 + i / 1000 + seed / 9999}}}")
        (tmp_path / f"r{seed}.log").write_text("\n".join(lines) + "\n")
    runs = read_logs([tmp_path])
    assert sorted(run.seed or 0 for run in runs) == [*seeds]
    assert [run["steps"] for run in import_document(runs)["runs"]] == [23, 23]
    assert all(steps_of(c) == [0, 10, 20] for c in load(tmp_path))


# One number that is set for all runs must fit all of them.


def trl(folder: Path, n: int, **more: object) -> None:
    said = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 6,
            "num_generations": n, "learning_rate": 1e-6, **more}  # fmt: skip
    home = folder / f"grpo-g{n}"
    (home / "checkpoint-90").mkdir(parents=True)
    (home / "recipe.yaml").write_text("".join(f"{k}: {v}\n" for k, v in said.items()))
    history = [{"step": s, "eval_reward": score(s, n), "loss": 0.1} for s in range(0, 91, 15)]
    state = {"log_history": history, "global_step": 90, "max_steps": 90}
    (home / "checkpoint-90" / "trainer_state.json").write_text(json.dumps(state))


@pytest.mark.parametrize("where", [".", "grpo-g8"])
def test_accelerate_says_the_processes(tmp_path: Path, where: str) -> None:
    for n in (4, 8):
        trl(tmp_path, n)
    assert "lay accelerate's own file beside the log" in refused(tmp_path)
    told = refused(tmp_path, (), ("problems_per_batch=24",))
    assert "it means 4 processes of 'grpo-g4' and 8 of 'grpo-g8'" in told
    (tmp_path / where / "launch.yml").write_text("distributed_type: FSDP\nnum_processes: 4\n")
    if where != ".":
        (tmp_path / "grpo-g4" / "ds.yaml").write_text("distributed_type: NO\nnum_processes: 4\n")
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in load(tmp_path)} == {
        (24, 4), (12, 8)
    }


@pytest.mark.parametrize("passes", [1, 3])
def test_a_folder_above_says_what_torchtune_counts(tmp_path: Path, passes: int) -> None:
    for n in (4, 16):
        said = f"batch_size: 2\ngrpo_samples: {n}\nppo_epochs: {passes}\nnum_steps: 20\nseed: 5\n"
        home = tmp_path / f"tune{n}"
        (home / "logs").mkdir(parents=True)
        (home / "tune.yaml").write_text(said)
        lines = (f"Step {passes * i} | rewards:1.5 successes:0.{30 + i} loss:0.1 lr:1e-05 \n"
                 for i in range(1, 21))  # fmt: skip
        (home / "logs" / "log_17.txt").write_text("".join(lines))
    told = refused(tmp_path)
    assert "--map successes=avg --set split=train if it is of the training batch" in told
    train = ("split=train", "problems_per_batch=8")
    if passes == 1:
        told = refused(tmp_path / "tune4", ("successes=avg",), ("split=train",))
        assert "B_p is 2 (batch_size, of one GPU) * GPUs" in told
    for c in load(tmp_path, ("successes=avg",), train, split="train"):
        assert c.rollouts_K[[0, -1]].tolist() == [8 * c.rollouts_per_problem * i for i in (1, 20)]


# Sheets.


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_lines_above_a_sheet_are_mapped_by_name(tmp_path: Path, encoding: str) -> None:
    for n, b_p in ((4, 48), (12, 16)):
        rows: list[Cells] = [
            ("Lauf", f"Übung, k={n}", "", ""), ("Fragen je Schritt", b_p, "", "(fest, ohne Rest)"),
            ("Züge je Frage", n, "", ""), ("", "", "", ""),
            ("Runde", "Züge bisher", "richtig (Prüfung)", "Lohn"),
        ]
        for s in (0, 25, 50):
            drawn = f"{s * n * b_p:,}".replace(",", ".")
            share = f"{100 * score(s, n):.1f} %".replace(".", ",")
            rows.append((f"{s / 50:.1f}".replace(".", ","), drawn, share, "0,5"))
        write(tmp_path / f"k{n}.csv", rows, ";", encoding)
    told = refused(tmp_path)
    assert "above its rows Lauf, Fragen je Schritt, Züge je Frage" in told
    curves = load(tmp_path, (
        "Fragen je Schritt=problems_per_batch", "Züge je Frage=rollouts_per_problem",
        "Züge bisher=rollouts", "richtig (Prüfung)=score",
    ))  # fmt: skip
    assert sorted((c.problems_per_batch, c.rollouts_per_problem) for c in curves) == [
        (16, 12), (48, 4)
    ]
    for c in curves:
        assert steps_of(c) == [0, 25, 50]
        assert c.score_K.tolist() == pytest.approx(
            [score(s, c.rollouts_per_problem) for s in (0, 25, 50)], abs=6e-4
        )


@pytest.mark.parametrize("word", ["iter_", "ckpt-"])
def test_names_of_checkpoints_are_steps(tmp_path: Path, word: str) -> None:
    maps = (*TABLE, "saved=steps")
    rows: list[Cells] = [("Bp", "K", "kind", "saved", "acc")]
    rows += [(24, n, "rl", f"{word}{s}", score(s, n)) for n in (4, 8) for s in (10, 20, 30)]
    source = write(tmp_path / "a.csv", rows)
    assert all(steps_of(c) == [10, 20, 30] for c in load(source, maps))
    rows += [(24, 4, "sft", f"checkpoint-{s}", 0.3) for s in (500, 1000)]
    told = refused(write(source, rows), maps)
    assert "the updates of one trainer" in told
    assert "checkpoint-1000" in told
    assert all(steps_of(c) == [10, 20, 30] for c in load(source, maps, where=["kind=rl"]))


@pytest.mark.parametrize("margin", ["All", "mean"])
def test_a_pivot_says_b_p_in_a_level(tmp_path: Path, margin: str) -> None:
    ns = (2, 4, 16)
    rows: list[Cells] = [
        ("g", *ns, margin), ("seed", 5, 5, 5, ""), ("rollouts_k", *[""] * 4),
        *((s * 64 / 1000, *(score(s, n) for n in ns), 0.4) for s in (50, 100, 150)),
    ]
    total = (margin, 0.4, 0.4, 0.4, 0.4)
    source = write(tmp_path / "p.csv", [*rows, total])
    pattern = "pattern=g{rollouts_per_problem}_seed{seed}"
    assert "put it into their names and the pattern as bp{problems_per_batch}_" in refused(source)
    maps = ("rollouts_k=rollouts",)
    assert "or drop its row if it sums up others" in refused(source, maps, (pattern,))
    write(source, rows)
    told = refused(source, maps, (pattern, "problems_per_batch=32"))
    assert "if it is in thousands, multiply them out" in told
    body = [(s * 64, *row[1:]) for s, row in zip((50, 100, 150), rows[3:], strict=True)]
    write(source, [("bp", *(64 // n for n in ns), margin), *rows[:3], *body])
    curves = load(source, maps, (pattern.replace("=g", "=bp{problems_per_batch}_g"),))
    assert sorted((c.problems_per_batch, c.rollouts_per_problem) for c in curves) == [
        (4, 16), (16, 4), (32, 2)
    ]
    assert all(steps_of(c) == [50, 100, 150] for c in curves)


@pytest.mark.parametrize("deep", [True, False])
def test_a_file_named_for_an_id_is_of_that_run(tmp_path: Path, deep: bool) -> None:
    home = tmp_path / "histories" if deep else tmp_path
    listed = []
    for key, n, seed in (("k3x9", 4, 1), ("p0aa", 4, 2), ("zz71", 8, 1)):
        config = {"problems_per_batch": 24, "rollouts_per_problem": n, "seed": seed}
        listed.append({"id": key, "name": f"sweep_{n}", "config": config})
        write(home / f"{key}.csv", [
            ("run_name", "_step", "train/global_step", "eval/global_step", "eval/accuracy"),
            *((f"sweep_{n}", s, s, s, score(s, n + seed)) for s in (10, 20, 30)),
        ])  # fmt: skip
    (tmp_path / "all.json").write_text(json.dumps(listed))
    found = {(c.rollouts_per_problem, c.seed) for c in load(tmp_path, ("eval/accuracy=avg",))}
    assert found == {(4, 1), (4, 2), (8, 1)}


@pytest.mark.parametrize(("top", "percent"), [(9.5, False), (62.0, True)])
def test_rewards_of_ten_are_not_called_percent(tmp_path: Path, top: float, percent: bool) -> None:
    config = {"problems_per_batch": 24, "rollouts_per_problem": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_lines(tmp_path / "metrics.jsonl", (
        {"step": s, "val/accuracy": round(top * s / 40, 3)} for s in (10, 20, 30, 40)
    ))  # fmt: skip
    assert ("for percent --range 0 100" in refused(tmp_path, MAP)) is percent


@pytest.mark.parametrize("column", ["AIME %", "solved (pct)"])
def test_a_column_of_percent_by_name_and_values_needs_no_range(tmp_path: Path, column: str) -> None:
    rows = [(24, n, s, 100 * score(s, n)) for n in (4, 8) for s in (10, 20)]
    source = write(tmp_path / "e.csv", [("Bp", "K", "step", column), *rows])
    assert "--range" not in refused(source, TABLE[:2])
    maps = (*TABLE[:2], f"{column}=score")
    for c in (*load(source, maps, score_range=(0, 100)), *load(source, maps)):
        assert c.score_K.tolist() == pytest.approx(
            [score(s, c.rollouts_per_problem) for s in (10, 20)]
        )
