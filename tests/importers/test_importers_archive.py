"""Imported runs in a study folder: what goes in comes out, once."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log, settings_from, to_curves
from isocompute.importers.archive import import_logs, load_imported, store_runs
from isocompute.importers.values.imported import ImportedRun, RowError
from isocompute.importers.values.spent import Spent
from isocompute.sources import load_curves
from isocompute.store.doctor import examine
from isocompute.store.seals import IMPORTED

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
BP_N = {"problems_per_batch": 2, "rollouts_per_problem": 4}


def flat(value: ImportedRun) -> object:
    """A record with arrays as lists, NaN as None, so that == compares them."""
    record = dataclasses.asdict(dataclasses.replace(value, spent=Spent()))
    return json.loads(json.dumps(record, default=np.ndarray.tolist).replace("NaN", "null"))


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["mlflow.db", "verl/dumps", "verl/bp4_n8.jsonl", "trl"])
def test_a_stored_run_is_the_run_that_was_read(tmp_path: Path, name: str) -> None:
    runs = read_log(LOGS / name, settings=BP_N)
    summary = store_runs(runs, tmp_path / "study")
    assert summary.stored == [run.name for run in runs]
    loaded = load_imported(tmp_path / "study")
    assert [flat(run) for run in loaded] == [flat(run) for run in runs]
    assert len(to_curves(loaded)) == len(to_curves(runs))


def test_the_gpus_of_an_imported_run_may_be_said_later(tmp_path: Path) -> None:
    rows = [{"step": s, "data": {"val-core/a/acc/mean@4": 0.3 + s / 100, "timing_s/step": 9.0}}
            for s in range(1, 31)]  # fmt: skip
    log = tmp_path / "n4.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    import_logs([log], tmp_path / "s", settings=settings_from(BP_N))
    (unsaid,) = load_curves(tmp_path / "s")
    assert unsaid.gpu_hours_K is None
    (said,) = load_curves(tmp_path / "s", settings={"gpus": 8})
    assert said.gpu_hours_K is not None
    assert said.gpu_hours_K[-1] == pytest.approx(30 * 9 * 8 / 3600)


def test_importing_twice_keeps_a_run_once(tmp_path: Path) -> None:
    first = import_logs([LOGS / "mlflow.db"], tmp_path / "s")
    again = import_logs([LOGS / "mlflow.db", LOGS / "trackio.db"], tmp_path / "s")
    assert first.stored == ["trl-bp2-n4"]
    # another tracker's record of the same run is that run
    assert (again.stored, again.known) == ([], ["trl-bp2-n4"])
    third = import_logs([LOGS / "trackio.db"], tmp_path / "s")
    assert (third.stored, third.known) == ([], ["trl-bp2-n4"])
    assert len(load_imported(tmp_path / "s")) == 1


def test_nothing_is_written_before_everything_is_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set problems_per_batch=B_P --set rollouts_per_pro"):
        import_logs([LOGS / "mlflow.db", LOGS / "verl" / "bp4_n8.jsonl"], tmp_path / "s")
    with pytest.raises(InputError, match="at least 1 source must be given"):
        import_logs([], tmp_path / "s")
    bare = [dataclasses.replace(r, series=()) for r in read_log(LOGS / "mlflow.db")]
    with pytest.raises(InputError, match="none of 1 does"):
        store_runs(bare, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_errors_are_kept_with_file_and_line_and_secrets_are_not(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"config": {"data": {"train_batch_size": 2}, "actor_rollout_ref": {"rollout": '
                    '{"n": 4}}, "WANDB_API_KEY": "sk-secret"}}\n'
                    '{"step": 0, "data": {"val-core/m/acc/mean@4": 0.5}}\nnot json\n')
    summary = import_logs([path], tmp_path / "s")
    assert summary.n_errors == 1
    error = load_imported(tmp_path / "s")[0].errors[0]
    assert (Path(error.file).name, error.line) == ("x.jsonl", 3)
    assert b"sk-secret" not in (tmp_path / "s" / "study.db").read_bytes()  # row 27


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("UPDATE imports SET rollouts_per_problem = 8", "imports (trl-bp2-n4)"),
        ("UPDATE import_series SET metric = 'x' WHERE series = 1", "import_series (row 1)"),
        ("UPDATE import_scores SET score = score + 1e-9 WHERE series = 1 AND step = 2",
         "import_scores (series 1, step 2)"),
        ("INSERT INTO import_scores (series, step, score) VALUES (1, 99, 0.5)",
         "import_scores (series 1, step 99)"),
        ("UPDATE import_outcomes SET samples = 9 WHERE rowid = 1", "import_outcomes (row 1)"),
        ("UPDATE import_errors SET line = 9 WHERE rowid = 1", "import_errors (row 1)"),
    ],
)  # fmt: skip
def test_an_imported_record_that_another_program_changed_is_named(
    tmp_path: Path, sql: str, where: str
) -> None:
    runs = read_log(LOGS / "verl" / "dumps", settings=BP_N)
    run = dataclasses.replace(
        runs[0], name="trl-bp2-n4", errors=(RowError(file="x", line=1, reason="y"),)
    )
    store_runs([run], tmp_path)
    assert [f for f in examine(tmp_path) if f.severity != "info"] == []
    assert load_imported(tmp_path)
    other = sqlite3.connect(tmp_path / "study.db")
    assert other.execute(sql).rowcount >= 1
    other.commit()
    other.close()
    with pytest.raises(InputError, match="records must be as they were committed") as caught:
        load_imported(tmp_path)
    assert where in str(caught.value)
    (finding,) = [f for f in examine(tmp_path) if f.severity == "error"]
    assert (finding.code, where in finding.message) == ("damaged_records", True)


def test_a_table_of_imports_that_is_gone_is_missed(tmp_path: Path) -> None:
    import_logs([LOGS / "mlflow.db"], tmp_path)
    other = sqlite3.connect(tmp_path / "study.db")
    other.execute("ALTER TABLE imports RENAME TO import5")
    other.commit()
    with pytest.raises(InputError, match=r"damaged at imports \(the table is gone\)"):
        load_imported(tmp_path)
    assert [f.severity for f in examine(tmp_path)] == ["error"]


def test_a_column_of_imports_that_is_renamed_is_missed(tmp_path: Path) -> None:
    import_logs([LOGS / "mlflow.db"], tmp_path)
    other = sqlite3.connect(tmp_path / "study.db")
    other.execute("ALTER TABLE imports RENAME COLUMN problems_per_batch TO problems_per_batci")
    other.commit()
    with pytest.raises(InputError, match="no such column: problems_per_batch"):
        load_imported(tmp_path)
    (finding,) = examine(tmp_path)
    assert "column imports.problems_per_batch INTEGER is missing" in finding.message


@pytest.mark.heavy
def test_flipped_bits_of_the_tables_definitions_are_refused_and_found(tmp_path: Path) -> None:
    import_logs([LOGS / "mlflow.db"], tmp_path)
    file, truth = tmp_path / "study.db", flat(load_imported(tmp_path)[0])
    whole = file.read_bytes()
    start = whole.index(b"CREATE TABLE imports")
    refused = 0
    for at in range(start, start + 400, 7):
        for bit in (0, 7):  # another letter; no UTF-8
            data = bytearray(whole)
            data[at] ^= 1 << bit
            file.write_bytes(data)
            try:
                assert flat(load_imported(tmp_path)[0]) == truth
                said = None
            except InputError as error:
                said = str(error)
            if said is not None:
                refused += 1
                assert "\n" not in said
                assert any(f.severity == "error" for f in examine(tmp_path))
    assert refused > 50


def test_imports_of_an_older_version_are_read_and_sealed_by_the_next(tmp_path: Path) -> None:
    import_logs([LOGS / "mlflow.db"], tmp_path)
    before = [flat(run) for run in load_imported(tmp_path)]
    other = sqlite3.connect(tmp_path / "study.db")
    for table in IMPORTED:
        other.execute(f"ALTER TABLE {table} DROP COLUMN seal")
    other.commit()
    assert [flat(run) for run in load_imported(tmp_path)] == before
    assert [f.code for f in examine(tmp_path)] == ["unsealed_imports"]
    import_logs([LOGS / "mlflow.db"], tmp_path)
    assert [flat(run) for run in load_imported(tmp_path)] == before
    assert examine(tmp_path) == []
    for table in IMPORTED:
        rows = other.execute(f"SELECT count(*), count(seal) FROM {table}").fetchone()
        assert rows[0] == rows[1]


def test_a_study_without_imports_has_none(tmp_path: Path) -> None:
    from isocompute.store.database import Database

    Database(tmp_path, create=True).close()
    assert load_imported(tmp_path) == []


def test_scores_can_be_read_with_sql(tmp_path: Path) -> None:
    import_logs([LOGS / "mlflow.db"], tmp_path)
    with sqlite3.connect(tmp_path / "study.db") as connection:
        rows = connection.execute(
            "SELECT step, rollouts, score FROM import_scores JOIN import_series USING (series) "
            "WHERE metric = 'avg@4' ORDER BY step").fetchall()
    connection.close()
    assert rows == [(0, 0.0, 0.375), (2, 16.0, 0.5625), (4, 32.0, 0.5), (6, 48.0, 0.4375)]


@pytest.mark.heavy
def test_the_command_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "study")
    assert main(["import", str(LOGS / "verl" / "bp4_n8.jsonl"), "-o", out]) == 2
    assert "--set problems_per_batch=B_P" in capsys.readouterr().err
    columns = tmp_path / "map.yaml"
    columns.write_text("columns: {actor/entropy: avg@1}\nproblems_per_batch: 4\n")
    assert main(["import", str(LOGS / "verl" / "bp4_n8.jsonl"), "-o", out, "--map", str(columns),
                 "--set", "rollouts_per_problem=8", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"][0]["problems_per_batch"] == 4
    assert document["runs"][0]["rollouts_per_problem"] == 8
    assert "avg@1" in document["runs"][0]["metrics"]
    assert main(["import", str(LOGS / "verl" / "bp4_n8.jsonl"), "-o", out,
                 "--set", "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"]) == 0
    assert "1 run was in " in capsys.readouterr().out


def test_a_column_map_must_be_a_map(tmp_path: Path) -> None:
    columns = tmp_path / "map.yaml"
    columns.write_text("- 1\n")
    with pytest.raises(InputError, match="a column map must hold names and values"):
        load_settings([], columns)


@pytest.mark.heavy
def test_one_command_reads_logs_that_do_not_say_their_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for n in (4, 8):
        for seed in (0, 1):
            rows = [{"step": s, "data": {
                "my/val": 0.2 + 0.05 * s / n + 0.001 * seed, "critic/score/mean": 0.1}}
                    for s in range(0, 64, 2)]
            (logs / f"n{n}_seed{seed}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows))
    assert main(["fit", str(logs)]) == 2
    columns = tmp_path / "map.yaml"
    columns.write_text("problems_per_batch: 32\ncolumns: {my/val: avg@4}\n")
    said = ["--map", str(columns), "--set", "pattern=n{rollouts_per_problem}_seed{seed}"]
    capsys.readouterr()
    assert main(["fit", str(logs), *said, "--json", "-"]) == 0
    curves = json.loads(capsys.readouterr().out)["curves"]
    assert [(c["problems_per_batch"], c["rollouts_per_problem"], c["n_runs"]) for c in curves] == [
        (32, 4, 2), (32, 8, 2)]
    assert main(["report", str(logs), *said, "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert main(["compare", str(logs), str(logs), *said]) == 0
    assert main(["plan", "--budget", "2e4", "--law", str(logs), *said, "--json", "-"]) in (0, 3)
    assert main(["fit", str(logs), "--set", "rollout=4"]) == 2
    assert "a setting must be one of" in capsys.readouterr().err


def test_the_status_of_imported_runs_is_that_there_is_nothing_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    runs = read_log(LOGS / "trl", settings=BP_N)
    store_runs(runs, study)
    capsys.readouterr()
    assert main(["status", str(study)]) == 0
    s = "s" if len(runs) > 1 else ""
    assert capsys.readouterr().out == f"study: {len(runs)} imported run{s}; nothing to train\n"
    assert main(["status", str(study), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == len(runs)
    assert main(["watch", str(study)]) == 0
    assert "nothing to train" in capsys.readouterr().out
