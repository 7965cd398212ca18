"""The 39th blind set: what its folders hold that was wrong at the first try."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from isocompute.importers import Settings, load_settings, read_log
from isocompute.importers.formats.whose import with_runs
from isocompute.importers.values.imported import UnclearError
from layout_helpers import drawn, events, lines, load, refused, score, write

STEPS = range(0, 60, 10)
ACC = ["eval/acc=avg"]


def planted(b_p: int, runs: Sequence[tuple[int, int | None]]) -> dict[object, list[float]]:
    return {(b_p, n, seed): [b_p * n * s for s in STEPS] for n, seed in runs}


def field(number: int, data: bytes) -> bytes:
    def varint(value: int) -> bytes:
        low = bytes([value & 127 | (128 if value > 127 else 0)])
        return low + (varint(value >> 7) if value > 127 else b"")

    return varint(number << 3 | 2) + varint(len(data)) + data


def items(values: Mapping[str, object]) -> bytes:
    return b"".join(field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))
                    for key, value in values.items())  # fmt: skip


def tracked(
    folder: Path, name: str, config: Mapping[str, object], rows: Sequence[Mapping[str, object]],
    group: str = "", job: str = "", counter: str = "",
) -> None:
    """W&B's file of an offline run."""
    run = field(4, items(config)) + field(8, name.encode())
    run += (field(6, group.encode()) if group else b"") + (field(7, job.encode()) if job else b"")
    records = [field(17, run)]
    if counter:
        records.append(field(12, field(2, b"eval/*") + field(4, counter.encode())))
    records += [field(2, items({**row, "_step": i})) for i, row in enumerate(rows)]
    out = bytearray(b":W&B\x00\x00\x00")
    for data in records:
        out += struct.pack("<IHB", zlib.crc32(b"\x01" + data), len(data), 1) + data
    assert len(out) < 32768
    file = folder / "wandb" / f"offline-run-20261128_{name}" / f"run-{name}.wandb"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(out))


def trained(folder: Path, name: str, n: int, group: str = "") -> None:
    config = {"prompts_per_batch": 8, "rollouts_per_prompt": n, "seed": 1, "lr": 1e-6}
    rows = [{"train/reward": 0.1 + 0.001 * s, "train/step": s} for s in range(1, 51)]
    tracked(folder, name, config, rows, group, "train")


def evaluated(folder: Path, name: str, n: int, group: str = "", **config: object) -> None:
    rows = [{"checkpoint_step": s, "eval/acc": score(s, n)} for s in STEPS]
    said = {"dataset": "math500", "samples_per_question": 4, "temperature": 0.6, **config}
    tracked(folder, name, said, rows, group, "eval", "checkpoint_step")


def test_evaluations_of_another_process_are_of_the_run_whose_checkpoints_they_score(
    tmp_path: Path,
) -> None:
    for n in (4, 8):  # one trainer in the group
        trained(tmp_path / "group", f"n{n}", n, f"n{n}")
        evaluated(tmp_path / "group", f"eval-n{n}", n, f"n{n}")
        trained(tmp_path / "named", f"g{n}", n, "sweep")  # several, of which it names one
        evaluated(tmp_path / "named", f"eval-{n}", n, "sweep", ckpt=f"/ckpt/g{n}")
    for how in ("group", "named"):
        assert drawn(load(tmp_path / how, ACC)) == planted(8, [(4, 1), (8, 1)])


def test_samples_of_an_evaluation_are_no_n_of_training(tmp_path: Path) -> None:
    evaluated(tmp_path, "eval-n8", 8)
    for run in read_log(tmp_path):
        assert run.rollouts_per_problem is None
        assert "of an evaluation (job_type eval)" in " ".join(run.provenance.inferred)
    told = refused(tmp_path, ACC)
    assert "`problems_per_batch` and `rollouts_per_problem` must be known" in told


def rows_of(n: int, shift: float = 0.0) -> list[dict[str, object]]:
    return [{"step": s, "eval/acc": score(s, n, shift * bool(s))} for s in STEPS]


def test_a_start_that_a_tracker_says_failed_is_no_repetition(tmp_path: Path) -> None:
    """Sacred numbers its runs, and says in run.json how each ended."""
    for number, n, last, status in (
        (1, 4, 50, "COMPLETED"), (2, 8, 20, "FAILED"), (3, 8, 50, "COMPLETED"),
        (4, 16, 30, "INTERRUPTED"),
    ):  # fmt: skip
        home = tmp_path / "runs" / str(number)
        held = [s for s in STEPS if s <= last]
        scored = {"steps": [*held], "values": [score(s, n, 0.001 * (number == 2)) for s in held]}
        write(home / "metrics.json", json.dumps({"eval/acc": scored}))
        config = {"problems_per_batch": 8, "group_size": n, "seed": 7}
        write(home / "config.json", json.dumps(config))
        write(home / "run.json", json.dumps({"status": status}))
    curves = drawn(load(tmp_path, ACC))
    assert curves == planted(8, [(4, 7), (8, 7)]) | {(8, 16, 7): [128 * s for s in (0, 10, 20, 30)]}
    (whole,) = [run for run in read_log(tmp_path, settings=load_settings([], ACC))
                if run.name == "3"]
    assert any("failed at step 20, and '3' has its seed" in line
               for line in whole.provenance.inferred)  # fmt: skip
    both = load(tmp_path, ACC, ["resumed=apart"])
    assert [c.rollouts_per_problem for c in both].count(8) == 2


@pytest.mark.parametrize(
    ("key", "of"),
    [("train/num_generations", "n"), ("rollout/group_size", "n"),
     ("train/n_rollouts", "B_p and n")],
)
def test_a_run_whose_n_changes_on_the_way_has_no_curve(
    tmp_path: Path, key: str, of: str
) -> None:
    for n in (4, 8):
        lines(tmp_path / f"n{n}" / "metrics.jsonl", [
            {**row, key: n if n == 4 or at < 3 else 16} for at, row in enumerate(rows_of(n))])
        write(tmp_path / f"n{n}" / "config.json",
              json.dumps({"prompts_per_step": 8, "num_generations": 4 if n == 4 else 16}))
    told = refused(tmp_path, ACC)
    assert f"a run must have one {of}, but {key} is 8 and from step 30 on 16: no curve" in told
    if " and " in of:  # it may count the responses of an update, too
        lines(tmp_path / "n8" / "metrics.jsonl", [
            {**row, key: 64 if at < 3 else 128} for at, row in enumerate(rows_of(8))])
        assert f"{key} is 64 and from step 30 on 128: no curve" in refused(tmp_path, ACC)
    assert len(load(tmp_path, [*ACC, f"{key}=other"], metric="avg")) == 2
    lines(tmp_path / "n8" / "metrics.jsonl", [{**row, key: 16} for row in rows_of(8)])
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, None), (16, None)])


def test_what_comet_keeps_of_a_changed_parameter_is_no_n(tmp_path: Path) -> None:
    def said(name: str, least: object, most: object) -> dict[str, str]:
        return {"name": name, "valueMin": str(least), "valueMax": str(most),
                "valueCurrent": str(most)}  # fmt: skip

    for n, least in ((4, 4), (16, 8)):
        home = tmp_path / f"key{n}"
        lines(home / "metrics.jsonl", [
            {"metricName": "eval/acc", "metricValue": str(row["eval/acc"]), "step": row["step"]}
            for row in rows_of(n)])
        write(home / "parameters.json", json.dumps([
            said("prompts_per_batch", 8, 8), said("num_generations", least, n),
            said("learning_rate", 1e-7, 1e-6)]))
    assert "says 8 to 16: it was changed on the way" in refused(tmp_path, ACC)
    (tmp_path / "key16" / "parameters.json").unlink()
    (tmp_path / "key16" / "metrics.jsonl").unlink()
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, None)])


def test_a_sweep_that_ran_again_with_another_grader_is_no_second_seed(tmp_path: Path) -> None:
    """Hydra numbers the jobs of a multirun below its date and time."""
    gained = (0.0, 0.22, 0.3, 0.35, 0.39, 0.41)
    for day, base in (("2026-03-02", 0.2), ("2026-03-04", 0.3)):
        for job, n in enumerate((4, 8)):
            home = tmp_path / "multirun" / day / "10-15-00" / str(job)
            lines(home / "metrics.jsonl", [
                {"step": s, "eval/acc": base + gain * (1 + 0.01 * n)}
                for s, gain in zip(STEPS, gained, strict=True)])
            write(home / ".hydra" / "config.yaml",
                  f"problems_per_batch: 8\ngroup_size: {n}\nseed: 42\n")
    told = refused(tmp_path, ACC)
    assert "runs of one sweep must begin with one model" in told
    assert "run='2026-03-04/10-15-00/*'" in told or "run='2026-03-02/10-15-00/*'" in told
    chosen = load(tmp_path, ACC, where={"run": "2026-03-04*"})
    assert drawn(chosen) == planted(8, [(4, 42), (8, 42)])


def test_seeds_that_draw_their_own_evaluation_problems_are_seeds(tmp_path: Path) -> None:
    for seed, base in ((1, -0.04), (2, 0.0)):  # what began apart was done once each
        for n in (4, 8):
            lines(tmp_path / f"n{n}_s{seed}" / "metrics.jsonl", [
                {"step": s, "eval/acc": score(s, n) + base} for s in STEPS])
            write(tmp_path / f"n{n}_s{seed}" / "config.json", json.dumps(
                {"problems_per_batch": 8, "group_size": n, "seed": seed}))
    assert len(load(tmp_path, ACC)) == 4


def test_dates_of_one_sweep_run_again_under_one_seed_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from isocompute.cli import main

    for day in ("2026-03-02", "2026-03-04"):
        for job, n in enumerate((4, 8)):
            home = tmp_path / "multirun" / day / "10-15-00" / str(job)
            lines(home / "metrics.jsonl", rows_of(n, 0.003 * (day[-1] == "4")))
            write(home / ".hydra" / "config.yaml",
                  f"problems_per_batch: 8\ngroup_size: {n}\nseed: 42\n")
    assert len(load(tmp_path, ACC)) == 4
    main(["import", str(tmp_path), "--preview", "--map", ACC[0]])
    assert "are both of n = 4 and seed 42, and count as repetitions" in capsys.readouterr().err


def of_long(path: Path, column: str, again: Sequence[int] = ()) -> Path:
    """tbparse's DataFrame as CSV: a loop that counts from 0 and evaluates after update k."""
    rows = [f",step,tag,value,{column}"]
    for n, seed in ((4, 1), (8, 1), (8, 2)):
        name = f"p8_g{n}_seed{seed}"
        for s in (*range(50), *again):
            rows.append(f"{len(rows)},{s},train/reward,0.{100 + s + n + seed * 7},{name}")
            if (s + 1) % 10 == 0:
                rows.append(f"{len(rows)},{s},eval/acc,{score(s + 1, n, 0.001 * seed)},{name}")
    write(path, "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("column", ["dir_name", "logdir", "source file"])
@pytest.mark.parametrize("again", [(), (48, 49)])
def test_a_long_table_names_its_runs_in_any_column_of_words(
    tmp_path: Path, column: str, again: tuple[int, ...]
) -> None:
    file = of_long(tmp_path / "all.csv", column, again)
    curves = load(file, ACC, ["pattern=p{problems_per_batch}_g{rollouts_per_problem}_seed{seed}"])
    assert drawn(curves) == {(8, n, seed): [8 * n * s for s in STEPS[1:]]
                             for n, seed in ((4, 1), (8, 1), (8, 2))}  # fmt: skip


def test_a_column_of_words_that_tells_no_runs_apart_names_none(tmp_path: Path) -> None:
    rows = [f"{s},eval/acc,{score(s, 4)},host{s % 20}" for s in STEPS]
    file = write(tmp_path / "one.csv", "step,tag,value,host\n" + "\n".join(rows) + "\n")
    curves = load(file, ACC, ["problems_per_batch=8", "rollouts_per_problem=4"])
    assert drawn(curves) == planted(8, [(4, None)])


def test_starts_of_a_job_named_by_the_clock_share_the_configuration_beside_them(
    tmp_path: Path,
) -> None:
    """The night the clocks go back, what was started later is named earlier."""
    for n, times in ((4, ["022000"]), (8, ["024000", "022000"])):
        home = tmp_path / f"n{n}"
        write(home / "config.json", json.dumps(
            {"problems_per_batch": 8, "group_size": n, "seed": 3}))
        for at, time in enumerate(times):
            done = range(1, 51) if len(times) == 1 else range(1, 28) if not at else range(21, 51)
            rows: list[dict[str, object]] = [{"step": s, "train/reward": 0.1 + 0.001 * s + at / 1e4}
                                             for s in done]  # fmt: skip
            rows += [{"step": s, "eval/acc": score(s, n)} for s in STEPS if s in done or not s + at]
            rows.sort(key=lambda row: row["step"])  # type: ignore[arg-type,return-value]
            lines(home / f"log_20261025-{time}.jsonl", rows)
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, 3), (8, 3)])
    lines(tmp_path / "n8" / "log_20261025-022000.jsonl", rows_of(8, 0.02))  # from the start again
    lines(tmp_path / "n8" / "log_20261025-024000.jsonl", rows_of(8))
    assert "if it was changed between them" in refused(tmp_path, ACC)


def test_a_report_of_ray_tune_is_no_training(tmp_path: Path) -> None:
    for n in (4, 8):
        home = tmp_path / f"train_grpo_{n}"
        write(home / "params.json", json.dumps({"problems_per_batch": 8, "group_size": n}))
        lines(home / "result.json", [
            {**row, "training_iteration": at, "train_reward": None if at < 2 else 0.2,
             "config": {"kl_coef": 0.1}} for at, row in enumerate(rows_of(n), 1)])
    runs = read_log(tmp_path, settings=load_settings([], ACC))
    assert [run.provenance.trained for run in runs] == [50, 50]


def test_counts_of_right_answers_in_a_database_are_an_accuracy(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(file := tmp_path / "results.db") as db:
        db.execute("create table runs (id integer, name text, prompts_per_update integer, "
                   "samples_per_prompt integer, seed integer)")  # fmt: skip
        db.execute("create table evals (run_id integer, update_no integer, dataset text, "
                   "n_correct integer, n_total integer)")  # fmt: skip
        for i, n in enumerate((4, 8)):
            db.execute("insert into runs values (?, ?, 8, ?, 1)", (i, f"run-{'ab'[i]}", n))
            for s in STEPS:
                db.execute("insert into evals values (?, ?, 'math', ?, 500)", (i, s, 100 + s + n))
                db.execute("insert into evals values (?, ?, 'gsm8k', ?, 1319)", (i, s, 700 + s))
    db.close()
    told = refused(file)
    maps = ["prompts_per_update=problems_per_batch", "samples_per_prompt=rollouts_per_problem",
            "accuracy=score", "update_no=steps"]  # fmt: skip
    assert all(one in told for one in maps)
    assert "their dataset, but at 0 rollouts it is math and gsm8k" in refused(file, maps)
    curves = load(file, maps, where={"dataset": "math"})
    assert drawn(curves) == planted(8, [(4, 1), (8, 1)])
    assert [c.score_K[2] for c in curves] == [124 / 500, 128 / 500]
    with sqlite3.connect(file) as db:  # more right answers than answers: no share
        db.execute("update evals set n_total = 5 where update_no = 10")
    db.close()
    assert "accuracy=score" not in refused(file)


def test_names_of_columns_of_checkpoints_may_say_n(tmp_path: Path) -> None:
    """OpenCompass: a row for every data set, a column for every model."""
    for n in (4, 8):
        head = ["dataset", "version", "metric", "mode", "base"]
        head += [f"grpo-n{n}-step{s}" for s in STEPS[1:]]
        sets = (["math", "f0a2", "accuracy", "gen", "21.00"], ["gsm8k", "1d7f", "accuracy", "gen",
                "60.00"])  # fmt: skip
        rows = [[*one, *(f"{20 * i + 100 * score(s, n):.02f}" for s in STEPS[1:])]
                for i, one in enumerate(sets)]  # fmt: skip
        write(tmp_path / f"n{n}" / "summary.csv", "\n".join(map(",".join, [head, *rows])) + "\n")
    pattern = "pattern=grpo-n{rollouts_per_problem}-step{steps}"
    told = refused(tmp_path)
    assert f"--set {pattern.replace('=', chr(61) + chr(39), 1)}'" in told
    curves = load(tmp_path, sets=[pattern, "problems_per_batch=8"], score_range=(0, 100),
                  where={"dataset": "math"})  # fmt: skip
    assert drawn(curves) == {(8, n, None): [8 * n * s for s in STEPS[1:]] for n in (4, 8)}


def test_one_score_under_the_words_of_two_releases_can_be_fitted(tmp_path: Path) -> None:
    """verl: a scorer that returns a dict has acc beside a reward that is another thing."""
    for n in (4, 8):
        key = "val-core/gsm8k/reward/mean@1" if n == 4 else "val-core/gsm8k/acc/mean@1"
        more = {} if n == 4 else {"val-aux/gsm8k/reward/mean@1": 0.1}
        lines(tmp_path / f"n{n}.jsonl", [
            {"step": s, "data": {key: score(s, n), **{k: v + score(s, n) for k, v in more.items()}}}
            for s in STEPS])
    sets = ["problems_per_batch=8", "pattern=n{rollouts_per_problem}"]
    one = [f"val-core/gsm8k/{of}/mean@1=own" for of in ("acc", "reward")]
    told = refused(tmp_path, sets=sets)
    assert f"read the logs with --map {one[0]} --map {one[1]} and --metric own" in told
    curves = load(tmp_path, one, sets, metric="own")
    assert drawn(curves) == planted(8, [(4, None), (8, None)])


def test_greedy_and_sampled_evaluations_of_verifiers_are_two_metrics(tmp_path: Path) -> None:
    def result(model: str, n: int, s: int, k: int, temperature: float) -> None:
        value = score(s, n, 0.1 * temperature)
        home = tmp_path / "evals" / f"math--{model.replace('/', '--')}" / f"{k}{s}ab"
        write(home / "metadata.json", json.dumps({
            "env_id": "math", "model": model, "num_examples": 50, "rollouts_per_example": k,
            "sampling_args": {"temperature": temperature}, "avg_reward": value,
            "avg_metrics": {"correct": value, "formatted": 0.9}}))
        write(home / "results.jsonl", json.dumps({"example_id": 0, "reward": 1.0}) + "\n")

    for n in (4, 8):
        for s in STEPS[1:]:
            result(f"ckpt/bp8-n{n}/step_{s}", n, s, 1, 0.0)
            result(f"ckpt/bp8-n{n}/step_{s}", n, s, 4, 1.0)
    write(tmp_path / "evals" / "step_40" / "metadata.json", '{"score": 0.4}')  # of another's
    sets = ["pattern=bp{problems_per_batch}-n{rollouts_per_problem}"]
    assert "the log holds avg@1:greedy, avg@4:t1; add" in refused(tmp_path, sets=sets)
    for metric, shift in (("avg@1:greedy", 0.0), ("avg@4:t1", 0.1)):
        curves = load(tmp_path, sets=sets, metric=metric)
        assert drawn(curves) == {(8, n, None): [8 * n * s for s in STEPS[1:]] for n in (4, 8)}
        assert [c.score_K[0] for c in curves] == [score(10, n, shift) for n in (4, 8)]
    for n in (4, 8):  # a configuration says which model they began with
        write(tmp_path / "configs" / f"bp8-n{n}.json", json.dumps(
            {"problems_per_batch": 8, "group_size": n, "model": "Qwen/base"}))
    result("Qwen/base", 4, 0, 1, 0.0)
    curves = load(tmp_path, metric="avg@1:greedy")
    assert drawn(curves) == planted(8, [(4, None), (8, None)])


@pytest.mark.parametrize("key", ["batch_size", "rollout/num_prompts"])
def test_a_run_whose_batch_changes_on_the_way_has_no_curve(tmp_path: Path, key: str) -> None:
    for n in (4, 8):
        lines(tmp_path / f"n{n}" / "metrics.jsonl", [
            {**row, key: 8 if n == 4 or at < 3 else 16} for at, row in enumerate(rows_of(n))])
        write(tmp_path / f"n{n}" / "config.json",
              json.dumps({"prompts_per_step": 8, "num_generations": n}))
    assert f"have one B_p, but {key} is 8 and from step 30 on 16: no" in refused(tmp_path, ACC)
    lines(tmp_path / "n8" / "metrics.jsonl", [  # a last batch, of what was left
        {**row, key: 8 if at < 5 else 3} for at, row in enumerate(rows_of(8))])
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, None), (8, None)])


def test_a_table_whose_n_changes_has_no_curve(tmp_path: Path) -> None:
    for n in (4, 8):
        rows = [f"{s},{score(s, n)},{n if n == 4 or s < 30 else 16}" for s in STEPS]
        write(tmp_path / f"n{n}.csv", "\n".join(["step,score,num_generations", *rows]) + "\n")
    sets = ["problems_per_batch=8", "pattern=n{rollouts_per_problem}"]
    assert "a run must have one n, but num_generations is 8 and 16" in refused(tmp_path, sets=sets)


def test_a_group_tells_whose_evaluations_a_run_of_wandb_holds(tmp_path: Path) -> None:
    for n in (4, 8):  # without job_type
        config = {"prompts_per_batch": 8, "rollouts_per_prompt": n, "seed": 1}
        rows = [{"train/reward": 0.1 + 0.001 * s, "train/step": s} for s in range(1, 51)]
        tracked(tmp_path, f"n{n}", config, rows, f"n{n}")
        scored = [{"ckpt/global_step": s, "eval/acc": score(s, n)} for s in STEPS]
        said = {"dataset": "math500", "samples_per_question": 4, "temperature": 0.6}
        tracked(tmp_path, f"e{n}", said, scored, f"n{n}", counter="ckpt/global_step")
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, 1), (8, 1)])


def test_rows_of_checkpoints_stand_at_their_step(tmp_path: Path) -> None:
    for n in (4, 8):
        home = tmp_path / f"n{n}"
        lines(home / "train.jsonl", [{"step": s, "train/reward": 0.1 + s / 999} for s in range(51)])
        lines(home / "eval.jsonl", [{"eval_idx": i, "checkpoint_step": s, "eval/acc": score(s, n)}
                                    for i, s in enumerate(STEPS)])  # fmt: skip
        write(home / "config.json", json.dumps({"problems_per_batch": 8, "group_size": n}))
    assert drawn(load(tmp_path, ACC)) == planted(8, [(4, None), (8, None)])


def test_a_wide_table_names_its_runs_in_a_column_of_folders_not_of_kinds(tmp_path: Path) -> None:
    def table(words: Sequence[str]) -> list[list[str]]:
        return [[f"{s}", f"{score(s, n)}", f"{0.1 + s / 999 + n / 99}", word]
                for n, word in zip((4, 8), words, strict=True) for s in STEPS]  # fmt: skip

    names = ["step", "eval/acc", "train/reward"]
    rows = map(",".join, [[*names, "dir_name"], *table(("n4", "n8"))])
    file = write(tmp_path / "all.csv", "\n".join(rows) + "\n")
    sets = ["problems_per_batch=8", "pattern=n{rollouts_per_problem}"]
    assert drawn(load(file, ACC, sets)) == planted(8, [(4, None), (8, None)])
    for column, words in (("dataset", ("n4", "n8")), ("log_dir", ("n4", "n4")),
                          ("host", ("gpu-a", "gpu-b"))):  # fmt: skip
        header = [*names, column]
        there = iter(list(enumerate(table(words), 2)))
        assert with_runs(file, header, there, (0,), Settings())[0] == header
    header, there = [*names, "decoding"], iter(list(enumerate(table(("greedy", "sampled")), 2)))
    with pytest.raises(UnclearError, match="decoding is greedy and sampled, and the steps begin"):
        with_runs(file, header, there, (0,), Settings())


@pytest.mark.parametrize("runs", [1, 2])
def test_a_score_that_was_renamed_is_asked_about(tmp_path: Path, runs: int) -> None:
    for n in (4, 8):  # on the way, or from one run to the next
        lines(tmp_path / f"n{n}" / "metrics.jsonl", [
            {"step": s, "eval/acc" if (s < 30 if runs == 1 else n == 4) else "eval/accuracy":
             score(s, n)} for s in STEPS])
        write(tmp_path / f"n{n}" / "config.json",
              json.dumps({"problems_per_batch": 8, "group_size": n}))
    told = refused(tmp_path, ACC)
    if runs == 1:
        assert "eval/acc ends at step 20 and eval/accuracy begins behind it" in told
        curves = load(tmp_path, [*ACC, "eval/accuracy=avg"])
    else:
        assert "1 hold eval/acc and 1 hold eval/accuracy in its place" in told
        curves = load(tmp_path, ["eval/acc=own", "eval/accuracy=own"], metric="own")
    assert drawn(curves) == planted(8, [(4, None), (8, None)])
    assert all(c.score_K.tolist() == [score(s, c.rollouts_per_problem) for s in STEPS]
               for c in curves)  # fmt: skip


def test_a_series_that_goes_on_under_another_tag_is_asked_about(tmp_path: Path) -> None:
    for n in (4, 8):
        home = tmp_path / f"n{n}"
        events(home / "events.out.tfevents.1.h",
               [(s, "eval/acc" if s < 30 else "eval/accuracy", score(s, n)) for s in STEPS])
        write(home / "config.json", json.dumps({"problems_per_batch": 8, "group_size": n}))
    assert "eval/acc ends at step 20 and eval/accuracy begins behind it" in refused(tmp_path, ACC)
    curves = load(tmp_path, [*ACC, "eval/accuracy=avg"])
    assert drawn(curves) == planted(8, [(4, None), (8, None)])
    for n in (4, 8):  # what is scored once, at the end
        last = {"step": 51, "eval/final_acc": 1}
        lines(tmp_path / f"n{n}" / "metrics.jsonl", [*rows_of(n), last])
        (tmp_path / f"n{n}" / "events.out.tfevents.1.h").unlink()
    assert len(load(tmp_path, ACC)) == 2


def test_two_sweeps_of_the_same_names_are_told_by_their_folders(tmp_path: Path) -> None:
    gained = (0.0, 0.22, 0.3, 0.35, 0.39, 0.41)
    for folder, base in (("old", 0.2), ("new", 0.3)):
        for n in (4, 8):
            home = tmp_path / folder / f"n{n}"
            lines(home / "metrics.jsonl", [
                {"step": s, "eval/acc": base + gain * (1 + 0.01 * n)}
                for s, gain in zip(STEPS, gained, strict=True)])
            write(home / "config.json",
                  json.dumps({"problems_per_batch": 8, "group_size": n, "seed": 42}))
    told = refused(tmp_path, ACC)
    assert "give the folder of those that count (" in told
    assert all(str(tmp_path / folder) in told for folder in ("old", "new"))


def test_a_start_that_ended_early_under_the_one_seed_of_all_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from isocompute.cli import main

    for number, (n, last) in enumerate(((4, 50), (8, 20), (8, 50)), 1):
        home = tmp_path / str(number)
        lines(home / "metrics.jsonl", [row for row in rows_of(n, number / 1000)
                                       if row["step"] in range(last + 1)])  # fmt: skip
        write(home / "config.json",
              json.dumps({"problems_per_batch": 8, "group_size": n, "seed": 7}))
    main(["import", str(tmp_path), "--preview", "--map", ACC[0]])
    assert "are both of n = 8 and seed 7, and count as repetitions" in capsys.readouterr().err


def test_runs_whose_n_is_asked_for_are_no_repetitions_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from isocompute.cli import main

    for n, seed in ((4, 1), (4, 2), (8, 1), (8, 2), (16, 1)):
        home = tmp_path / f"run_n{n}_seed{seed}"
        lines(home / "metrics.jsonl", rows_of(n, seed / 1000))
        write(home / "config.json", json.dumps({"prompts_per_step": 8, "seed": seed}))
    main(["import", str(tmp_path), "--preview", "--map", ACC[0]])
    told = capsys.readouterr()
    assert "`rollouts_per_problem` must be known" in told.out
    assert "count as repetitions" not in told.err
    assert main(["fit", str(tmp_path), "--map", ACC[0]]) == 2
    assert "runs of one sweep must differ" not in capsys.readouterr().err  # names tell no recipe


def test_runs_of_one_name_and_the_one_seed_of_all_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sweeps whose first scores agree: nothing else tells them apart."""
    from isocompute.cli import main

    for folder, gain in (("first", 0.0), ("again", 0.02)):
        for n in (4, 8):
            home = tmp_path / folder / f"n{n}"
            lines(home / "metrics.jsonl", [
                {**row, "eval/acc": row["eval/acc"] + gain * (row["step"] > 0)}
                for row in rows_of(n, 0.0)])
            write(home / "config.json",
                  json.dumps({"problems_per_batch": 8, "group_size": n, "seed": 42}))
    main(["import", str(tmp_path), "--preview", "--map", ACC[0]])
    told = capsys.readouterr().err
    assert "are both of n = 4 and seed 42, and count as repetitions (1 more alike)" in told
    assert "of another sweep or a start that died, move it out of the folder" in told
