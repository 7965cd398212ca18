"""Little logs of one's own: what their names, keys, configurations and consoles say of a run."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import load_imported, read_log


def score(n: int, step: int, seed: int = 0) -> float:
    return 0.2 + 0.4 * n * step / (n * step + 400) + 0.003 * seed


def little_log(
    folder: Path, n: int, seed: int = 0, config: Mapping[str, object] | None = None
) -> None:
    """Scores of a run of n in a file of a name that others have, too."""
    folder.mkdir(parents=True)
    rows = [{"step": s, "data": {"val-core/m/acc/mean@4": score(n, s, seed)}}
            for s in range(0, 61, 5)]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def test_a_table_of_runs_names_those_of_one_name_by_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, study = tmp_path / "logs", str(tmp_path / "study")
    rows = [(n, seed) for n in (4, 8) for seed in (0, 1)]
    for n, seed in rows:
        little_log(logs / f"g{n}" / f"seed{seed}", n, seed)
    head = "run,problems_per_batch,rollouts_per_problem,seed\n"
    lines = [f"seed{seed},16,{n},{seed}\n" for n, seed in rows]
    (logs / "runs.csv").write_text(head + "".join(lines))
    assert main(["import", str(logs), "-o", study]) == 2
    assert "run (names repeat: with its folder, as g4/seed0)," in capsys.readouterr().err
    (logs / "runs.csv").unlink()
    named = [f"g{n}/{line}" for (n, _), line in zip(rows, lines, strict=True)]
    (logs / "table.csv").write_text(head + "".join(named))
    assert main(["import", str(logs), "-o", study]) == 0
    assert [run.design for run in load_imported(study)] == [(16, n, seed) for n, seed in rows]


def test_two_metrics_of_one_run_are_both_named_with_their_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": s, "a": score(8, s), "b": score(8, s, 3)} for s in range(0, 61, 5)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = ["--set", "problems_per_batch=16", "--set", "rollouts_per_problem=8"]
    told += ["--map", "a=avg", "--map", "b=avg@4"]
    assert main(["fit", str(tmp_path / "log.jsonl"), *told]) == 2
    assert "holds avg, avg@4; add --metric avg, or --metric avg@4." in capsys.readouterr().err


@pytest.mark.parametrize(("line", "key"), [
    ("Epoch:[1/1]({step}/60), Reward: {share:.4f}", "Reward"),
    ("{step}/60 | loss=0.2 | acc={percent:.2f}%", "acc"),
])  # fmt: skip
def test_a_console_may_count_its_steps_by_shares(
    tmp_path: Path, line: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (line.format(step=s, share=score(8, s), percent=100 * score(8, s)) for s in range(1, 61))
    path = tmp_path / "bp16_n8.log"
    path.write_text("Loading shards: 1/4\n" + "\n".join(told) + "\n")
    say = ["--set", "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"]
    study = str(tmp_path / "study")
    assert main(["import", str(path), "-o", study, *say]) == 2
    assert f"add --map {key}=avg" in capsys.readouterr().err
    assert main(["import", str(path), "-o", study, *say, "--map", f"{key}=avg"]) == 0
    (run,) = load_imported(study)
    assert run.series[0].step_K.tolist() == list(range(1, 61))
    assert run.series[0].score_K[-1] == pytest.approx(score(8, 60), abs=1e-4)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_trackers_rows_may_hold_a_step_that_begins_anew_with_every_epoch(
    tmp_path: Path, kind: str
) -> None:
    rows = [{"_step": i, "epoch": i // 20, "step": i % 20, "train/loss": 0.1,
             "eval/acc": score(8, i) if i % 5 == 0 else ""} for i in range(60)]  # fmt: skip
    lines = [json.dumps({k: v for k, v in row.items() if v != ""}) for row in rows]
    if kind == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path = tmp_path / f"history.{kind}"
    path.write_text("\n".join(lines) + "\n")
    say = ["--set", "problems_per_batch=16", "--set", "rollouts_per_problem=8"]
    study = str(tmp_path / "study")
    assert main(["import", str(path), "-o", study, *say, "--map", "eval/acc=avg"]) == 0
    (run,) = load_imported(study)
    assert run.series[0].step_K.tolist() == list(range(0, 60, 5))
    assert any("begins anew with every epoch" in line for line in run.provenance.inferred)


def test_a_configuration_that_calls_n_its_group_is_asked_about_by_that_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (4, 8):
        little_log(tmp_path / "logs" / "ab"[n == 8], n, config={"group": n, "batch_size": 16})
    logs, study = str(tmp_path / "logs"), str(tmp_path / "study")
    assert main(["import", logs, "-o", study]) == 2
    assert "--map group=rollouts_per_problem if it holds that" in capsys.readouterr().err
    maps = ["--map", "group=rollouts_per_problem", "--map", "batch_size=problems_per_batch"]
    assert main(["import", logs, "-o", study, *maps]) == 0
    assert [run.design[:2] for run in load_imported(study)] == [(16, 4), (16, 8)]


def test_one_table_of_imported_runs_has_their_hours(tmp_path: Path) -> None:
    rows = [{"step": s, "data": {"timing_s/step": 9.0, "val-core/m/acc/mean@4": score(8, s)}}
            for s in range(1, 41)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study, table = str(tmp_path / "study"), tmp_path / "t.csv"
    say = ["problems_per_batch=16", "rollouts_per_problem=8", "gpus=4"]
    told = [word for one in say for word in ("--set", one)]
    assert main(["import", str(tmp_path / "log.jsonl"), "-o", study, *told]) == 0
    assert main(["export", study, "-o", str(table)]) == 0
    with table.open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["wall_s"]) == pytest.approx(360)
    assert float(last["gpu_hours"]) == pytest.approx(0.4)
    assert main(["export", study, "-o", str(table), "--no-times"]) == 0
    assert "wall_s" not in table.read_text()


@pytest.mark.parametrize("key", ["step", "global_step", "update", "iter", "training_iteration"])
@pytest.mark.parametrize("as_list", [True, False])
def test_rows_of_json_count_updates_under_the_same_keys_in_a_list_and_in_lines(
    tmp_path: Path, key: str, as_list: bool
) -> None:
    rows = [{key: step, "val/accuracy": 0.2 + step / 1000} for step in range(0, 101, 10)]
    file = tmp_path / ("history.json" if as_list else "history.jsonl")
    file.write_text(json.dumps(rows) if as_list else "\n".join(map(json.dumps, rows)))
    (run,) = read_log(file, settings={"columns": {"val/accuracy": "avg"}})
    assert run.series[0].step_K.tolist() == list(range(0, 101, 10))


def test_a_list_of_rows_without_a_step_is_told_the_key_that_counts(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_text(json.dumps([{"batch_no": i, "val/accuracy": 0.2 + i / 50} for i in range(9)]))
    with pytest.raises(InputError, match=r"must hold rows with a step.*--set step=batch_no") as no:
        read_log(file)
    assert no.value.options == ("--set", "step=batch_no")


def test_samples_in_a_list_are_read_as_those_in_lines(tmp_path: Path) -> None:
    rows = [{"input": f"p{i}", "output": "x", "gts": "1", "score": float(i < 3), "step": step}
            for step in (0, 20) for i in range(4)]  # fmt: skip
    scores = []
    for name, text in (("a.json", json.dumps(rows)), ("b.jsonl", "\n".join(map(json.dumps, rows)))):
        (tmp_path / name).write_text(text)
        (run,) = read_log(tmp_path / name)
        scores.append([(s.metric.label, s.step_K.tolist(), s.score_K.tolist()) for s in run.series])
    assert scores[0] == scores[1] != []
