"""A sixth set of layouts: what was misread, or became so once the tool's own line was followed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log
from isocompute.importers.convert import convert_runs, pooled, rate_beside_reward
from isocompute.sources import load_curves
from layout_helpers import events

PATTERN = ["problems_per_batch=32", "pattern=n{rollouts_per_problem}"]
STEPS = range(0, 120, 20)


def score(n: int, step: int) -> float:
    return round(0.3 + n / 100 + step / 1000 + 0.0123457 * (step % 7), 7)


def mlflow_run(folder: Path, n: int, stage: str) -> None:
    (folder / "params").mkdir(parents=True)
    (folder / "metrics" / "val-core" / "math" / "acc").mkdir(parents=True)
    rows = "\n".join(f"1700000000 {score(n, s)} {s}" for s in STEPS)
    (folder / "metrics" / "val-core" / "math" / "acc" / "mean_at_4").write_text(rows)
    (folder / "meta.yaml").write_text(f"lifecycle_stage: {stage}\nrun_name: n{n}\n")


def test_runs_that_their_owner_deleted_in_mlflow_are_left_out(tmp_path: Path) -> None:
    for name, n, stage in (("a", 8, "active"), ("b", 16, "active"), ("c", 32, "deleted")):
        mlflow_run(tmp_path / "mlruns" / "1" / name, n, stage)
    runs = read_log(tmp_path, settings=load_settings(PATTERN))
    assert sorted(run.name for run in runs) == ["n16", "n8"]
    assert runs[0].notes == ("1 more runs were deleted in MLflow and are left out",)
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.execute("CREATE TABLE runs (run_uuid, name, lifecycle_stage)")
        db.execute("CREATE TABLE metrics (run_uuid, key, value, step, is_nan)")
        for n, stage in ((8, "active"), (32, "deleted")):
            db.execute("INSERT INTO runs VALUES (?, ?, ?)", (f"id{n}", f"n{n}", stage))
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, 0)", [
                (f"id{n}", "val-core/math/acc/mean@4", score(n, s), s) for s in STEPS])  # fmt: skip
    (run,) = read_log(tmp_path / "mlflow.db", settings=load_settings(PATTERN))
    assert (run.name, len(run.notes)) == ("n8", 1)


def test_a_folder_of_deleted_runs_alone_says_so(tmp_path: Path) -> None:
    mlflow_run(tmp_path / "mlruns" / "1" / "a", 8, "deleted")
    with pytest.raises(InputError, match=r"holds none \(1 runs were deleted in MLflow\)"):
        read_log(tmp_path)


def trl(folder: Path, n: int) -> None:
    """Evaluated with n samples, as TRL does where nobody says otherwise."""
    folder.mkdir(parents=True)
    rows = [{"step": s, "eval_reward": score(n, s) + 0.1,
             "eval_rewards/accuracy_reward/mean": score(n, s)} for s in STEPS]  # fmt: skip
    state = {"global_step": 100, "log_history": rows}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def test_a_whole_reward_is_no_accuracy_where_k_differs_from_run_to_run(tmp_path: Path) -> None:
    runs = []
    for n in (4, 8):
        trl(tmp_path / f"n{n}", n)
        settings = load_settings([*PATTERN, f"evaluation_samples={n}"])
        runs += read_log(tmp_path / f"n{n}", settings=settings)
    told = r"has avg:accuracy_reward \(.*\) and avg, the whole reward \(.*\); add --metric"
    with pytest.raises(InputError, match=told):
        convert_runs(runs)
    assert rate_beside_reward(runs) == "avg:accuracy_reward"
    found = convert_runs(runs, "avg:accuracy_reward")
    assert {(c.metric, c.rollouts_per_problem) for c in found.curves} == {
        ("avg:accuracy_reward", 4), ("avg:accuracy_reward", 8)}  # fmt: skip
    assert not found.excluded
    assert found.curves[0].score_K[0] == pytest.approx(score(4, 0))
    lines: list[str] = []
    apart = [convert_runs([run], f"avg@{n}:accuracy_reward").curves[0]
             for run, n in zip(runs, (4, 8), strict=True)]  # fmt: skip
    assert {c.metric for c in pooled(apart, None, lines.append)} == {"avg:accuracy_reward"}
    assert "are read as avg:accuracy_reward" in lines[0]


def test_an_import_names_the_metric_that_a_fit_will_ask_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (4, 8):
        trl(tmp_path / "logs" / f"n{n}", n)
    words = ["--set", PATTERN[0], "--set", PATTERN[1]]
    assert main(["import", str(tmp_path / "logs"), "-o", str(tmp_path / "s"), *words]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"Next: isocompute fit {tmp_path / 's'} --metric avg:accuracy_reward"


def console(path: Path, digits: int, first: int = 0, last: int = 120) -> Path:
    n = int(path.stem.rpartition("n")[2])
    rows = [f"step:{s} - val-core/math/acc/mean@4:{score(n, s):.{digits}f}"
            for s in range(first, last, 20)]  # fmt: skip
    path.write_text("\n".join([*rows, ""]))
    return path


def test_begins_moves_logs_that_begin_late_alone(tmp_path: Path) -> None:
    console(tmp_path / "n8.log", 7)
    console(tmp_path / "n16.log", 7, 200, 320)
    late, own = read_log(tmp_path, settings=load_settings([*PATTERN, "begins=200"]))
    assert own.series[0].step_K.tolist() == list(STEPS)
    assert "begins: not used, since the log begins at step 0" in own.provenance.inferred
    assert late.series[0].step_K.tolist() == list(STEPS)
    assert late.series[0].rollouts_K[-1] == 100 * 32 * 16


@pytest.mark.parametrize("digits", [3, 5, 7])
def test_a_console_with_few_digits_is_no_second_seed(tmp_path: Path, digits: int) -> None:
    verl = [{"step": s, "data": {"val-core/math/acc/mean@4": score(8, s)}} for s in STEPS]
    (tmp_path / "exp-n8.jsonl").write_text("\n".join(map(json.dumps, verl)))
    console(tmp_path / "train-n8.log", digits)
    (run,) = read_log(tmp_path, settings=load_settings(PATTERN))
    assert any(line.startswith("counted once") for line in run.provenance.inferred)
    console(tmp_path / "train-n8.log", digits)
    other = (tmp_path / "train-n8.log").read_text().replace("0.4", "0.5")
    (tmp_path / "train-n8.log").write_text(other)  # a second seed differs somewhere
    assert len(read_log(tmp_path, settings=load_settings(PATTERN))) == 2


def test_two_consoles_in_one_file_are_refused(tmp_path: Path) -> None:
    one, two = (f"(TaskRunner pid={pid}, ip=10.0.0.{pid}) " for pid in (4, 5))
    row = "step:{} - val-core/math/acc/mean@4:0.5"
    path = tmp_path / "bp32_n8.log"
    path.write_text("\n".join(who + row.format(s) for s in STEPS for who in (one, two)))
    with pytest.raises(InputError, match=r"pid=4, ip=10.0.0.4\) and .*pid=5.* take turns; split"):
        read_log(path)
    path.write_text("\n".join([*(one + row.format(s) for s in STEPS),
                               *(two + row.format(s + 120) for s in STEPS), ""]))  # it went on
    (run,) = read_log(path)
    assert run.series[0].step_K.size == 12


def test_a_batch_in_names_that_follows_n_counts_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def logs(folder: Path, batch: Any) -> None:
        folder.mkdir()
        for n in (4, 16):
            rows = [{"step": s, "data": {"val-core/math/acc/mean@4": score(n, s)}} for s in STEPS]
            (folder / f"run_bs{batch(n)}_n{n}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    logs(tmp_path / "rollouts", lambda n: 64 * n)
    with pytest.raises(InputError, match=r"pattern='n\{rollouts_per_problem\}' and --set "
                                         r"problems_per_batch=64, if the batch in the names"):
        convert_runs(read_log(tmp_path / "rollouts"))
    assert main(["import", str(tmp_path / "rollouts"), "--preview"]) == 0
    told = capsys.readouterr().out
    assert "--set 'pattern=n{rollouts_per_problem}' --set problems_per_batch=64" in told
    logs(tmp_path / "problems", lambda n: 64)
    with pytest.raises(InputError, match=r"pattern='bs\{problems_per_batch\}_n\{rollouts_per"):
        convert_runs(read_log(tmp_path / "problems"))


def histories(folder: Path, names: Sequence[str]) -> None:
    (folder / "history").mkdir(parents=True)
    for name in names:
        n = int(name.split("n")[-1].split(".")[0])
        rows = ["_step,trainer/global_step,eval/all/avg_score"]
        rows += [f"{s},{s},{score(n, s)}" for s in STEPS]
        (folder / "history" / f"{name}.csv").write_text("\n".join(rows))


SWEEPS = [f"{model}.n{n}.s{seed}" for model in ("qwen-1.7b", "qwen-4b") for n in (4, 16)
          for seed in (1, 2)]  # fmt: skip


def test_names_that_hold_the_same_design_twice_are_two_sweeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, name in enumerate(SWEEPS):  # scores of their own, else they are one run
        rows = [{"step": s, "data": {"val-core/math/acc/mean@4": 0.3 + i / 50 + s / 999}}
                for s in STEPS]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["problems_per_batch=32", "pattern=n{rollouts_per_problem}.s{seed}"]
    with pytest.raises(InputError, match=r"1.7b \(4 runs\), 4b \(4 runs\); choose with --where "
                                         r"model=1.7b"):
        load_curves(str(tmp_path), settings=load_settings(words))
    with pytest.raises(InputError, match=r"'qwen-1.7b\*' \(4 runs\) and 'qwen-4b\*' \(4\) have "
                                         r"the same ones; choose with --where run='qwen-1.7b\*'"):
        load_curves(str(tmp_path), settings=load_settings(words), where=["model=*"])
    for where, count in ((["run=qwen-4b.*"], 4), (["model=4b"], 4), (["run=*", "model=*"], 8)):
        found = load_curves(str(tmp_path), settings=load_settings(words), where=where)
        assert len(found) == count
    words[1] = "pattern=n{rollouts_per_problem}"  # seeds that nobody says
    with pytest.raises(InputError, match=r"'qwen-1.7b\*' \(4 runs\) and 'qwen-4b\*' \(4\) have "):
        load_curves(str(tmp_path), settings=load_settings(words), where=["model=*"])
    for name in SWEEPS[4:]:
        (tmp_path / f"{name}.jsonl").unlink()
    assert len(load_curves(str(tmp_path), settings=load_settings(words))) == 4  # repetitions


def test_the_configuration_in_one_cell_of_w_and_b_s_export_is_read(tmp_path: Path) -> None:
    histories(tmp_path, ["a.n4.s1", "b.n16.s1"])
    config = {"trainer": {"train_batch_size": 16, "seed": 3, "policy": {"model": {"path": "Q"}}},
              "generator": {"n_samples_per_prompt": 4}}  # fmt: skip
    other = json.loads(json.dumps(config).replace("_prompt\": 4", "_prompt\": 16"))
    table = [",summary,config,name"] + [
        f'{i},"{{\'_step\': 100}}","{one}",{name}'
        for i, (name, one) in enumerate((("a.n4.s1", config), ("b.n16.s1", other)))
    ]
    (tmp_path / "project.csv").write_text("\n".join(table))
    runs = read_log(tmp_path)
    assert [(r.problems_per_batch, r.rollouts_per_problem, r.seed) for r in runs] == [
        (16, 4, 3), (16, 16, 3)]  # fmt: skip
    assert runs[0].provenance.facts["model"] == "Q"
    assert "configuration: read from project.csv beside the log" in runs[0].provenance.inferred


def test_event_files_over_episodes_do_not_count_them_as_updates(tmp_path: Path) -> None:
    rows = [row for u in range(1, 101) for row in (
        (u * 256, "training_step", float(u)), (u * 256, "eval/scores", 0.3 + u / 1000))]
    path = events(tmp_path / "k8" / "events.out.tfevents.1", rows)
    words = ["problems_per_batch=32", "pattern=k{rollouts_per_problem}"]
    assert read_log(path, settings=load_settings(words))[0].series[0].step_K[-1] == 100
    with pytest.raises(InputError, match="step says 25600 where training_step says 100; choose "
                                         "with --set step=training_step"):
        read_log(path, settings=load_settings(["problems_per_batch=40", words[1]]))
    (run,) = read_log(path, settings=load_settings([*words, "step=training_step"]))
    assert run.series[0].step_K[-1] == 100
    assert run.series[0].rollouts_K[-1] == 25600


def test_slime_s_first_evaluation_in_an_event_file_is_kept(tmp_path: Path) -> None:
    rows: list[tuple[int, str, float]] = []
    for r in range(60):
        if r == 0 or r % 20 == 19:
            rows += [(r, "eval/aime", 0.1 + r / 100), (r, "eval/step", float(r))]
        rows += [(r, "rollout/raw_reward", 0.2), (r, "rollout/step", float(r))]
    path = events(tmp_path / "n8" / "events.out.tfevents.1", rows)
    (run,) = read_log(path, settings=load_settings(PATTERN))
    (found,) = [s for s in run.series if s.split == "validation"]
    assert found.step_K.tolist() == [0, 20, 40, 60]


def test_openrlhf_that_filters_is_told_of(tmp_path: Path) -> None:
    rows = [(s, tag, value) for s in range(1, 41) for tag, value in (
        ("train/dynamic_filtering_pass_rate", 45.0), ("eval/eval_math_pass1", 0.3 + s / 999))]
    path = events(tmp_path / "n8" / "events.out.tfevents.1", rows)
    (run,) = read_log(path, settings=load_settings(PATTERN))
    assert any("more rollouts were drawn than B_p * n * step counts" in n for n in run.notes)


def test_tables_in_folders_that_say_b_p_n_and_seed_are_read(tmp_path: Path) -> None:
    for n, seed in ((4, 0), (4, 1), (16, 0)):
        folder = tmp_path / "results" / f"n={n}" / f"seed={seed}"
        folder.mkdir(parents=True)
        rows = [f"{s},{score(n, s) + seed / 50}" for s in STEPS]
        (folder / "metrics.csv").write_text("\n".join(["step,val_score", *rows]))
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "__MACOSX" / "metrics.csv").write_text("a,b\n")
    mapped = tmp_path / "columns.yaml"
    mapped.write_text("columns: {step: steps, val_score: score}")
    words = ["problems_per_batch=32", "pattern=n={rollouts_per_problem}/seed={seed}"]
    told: list[str] = []
    curves = load_curves(str(tmp_path), settings=load_settings(words, mapped), say=told.append)
    assert {(c.rollouts_per_problem, c.seed, c.rollouts_K[-1]) for c in curves} == {
        (4, 0, 12800), (4, 1, 12800), (16, 0, 51200)}  # fmt: skip
    assert "its 3 tables are read" in told[0]
