"""The importers' rows of the reliability table, named after their numbers, and fuzzing."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import sqlite3
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isocompute.errors import InputError
from isocompute.importers import (
    ImportedRun,
    convert_runs,
    read_log,
    to_curves,
)
from isocompute.importers.formats import tensorboard, wandb
from isocompute.importers.runs import collect
from isocompute.importers.tables import table, tidy
from isocompute.importers.values import imported, reading
from isocompute.importers.values.imported import Series
from isocompute.importers.values.wire import WireError, find_header, iter_fields, masked_crc32c

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
BP_N = {"problems_per_batch": 2, "rollouts_per_problem": 4}
KEY = "val-core/m/acc/mean@4"


def lines(path: Path, *rows: object) -> Path:
    """JSON lines; bytes stay as they are."""
    path.write_bytes(b"".join(
        (r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in rows))
    return path


def verl(step: object, score: object) -> dict[str, object]:
    return {"step": step, "data": {KEY: score}}


def one(path: Path) -> tuple[ImportedRun, Series]:
    run = read_log(path, settings=BP_N)[0]
    return run, next(s for s in run.series if s.metric.label == "avg@4")


def test_row_13_missing_is_counted_never_zero(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", verl(0, 0.0),
                 b'{"step": 1, "data": {"%s": NaN}}' % KEY.encode(),
                 verl(2, None), verl(3, "NaN"), verl(4, "-Infinity"), verl(5, 0.5),
                 b'{"step": 6, "data": {"%s": 1e999}}' % KEY.encode())
    run, s = one(path)
    assert s.step_K.tolist() == [0, 5]
    assert s.score_K.tolist() == [0.0, 0.5]
    assert s.n_missing == 5
    assert run.n_errors == 0


def test_row_13_mlflow_nan_is_stored_as_zero_with_a_flag(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes((LOGS / "mlflow.db").read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE metrics SET value = 0, is_nan = 1 WHERE key = 'eval_reward' "
                           "AND step = 2")
        connection.execute("UPDATE metrics SET value = 1.7976931348623157e308 WHERE step = 4 "
                           "AND key = 'eval_reward'")  # how MLflow stores infinity
    connection.close()
    s = next(s for s in read_log(path)[0].series if s.metric.label == "avg@4")
    assert s.step_K.tolist() == [0, 6]
    assert s.n_missing == 2


def test_row_13_trackio_writes_nan_as_text(tmp_path: Path) -> None:
    path = tmp_path / "trackio.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE metrics (run_name TEXT, step INTEGER, metrics TEXT)")
        for step, value in ((0, 0.5), (1, "NaN"), (2, "Infinity")):
            connection.execute("INSERT INTO metrics VALUES ('r', ?, ?)",
                               (step, json.dumps({"eval/reward": value})))
        connection.execute("INSERT INTO metrics VALUES ('r', 3, 'torn {')")
    connection.close()
    run = read_log(path)[0]
    assert run.series[0].step_K.tolist() == [0]
    assert run.series[0].n_missing == 2
    assert [e.line for e in run.errors] == [4]


def test_row_13_a_run_that_is_all_missing_is_excluded_with_its_reason(tmp_path: Path) -> None:
    lines(tmp_path / "good.jsonl", verl(0, 0.5))
    lines(tmp_path / "lost.jsonl", verl(0, None), verl(1, "NaN"))
    conversion = convert_runs(read_log(tmp_path, settings=BP_N))
    assert [c.run for c in conversion.curves] == ["good"]
    assert conversion.excluded == [("lost", "all 2 of its scores are missing")]
    with pytest.raises(InputError, match="all 1 were left out.*all 2 of its scores are missing"):
        to_curves(read_log(tmp_path / "lost.jsonl", settings=BP_N))


def test_row_14_steps_duplicate_out_of_order_negative_fractional(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", verl(4, 0.4), verl(0, 0.1), verl(0, 0.9), verl(-1, 0.5),
                 verl(2.5, 0.5), verl("x", 0.5), verl(None, 0.5), verl(2.0, 0.2), verl(10**30, 0.5),
                 verl(True, 0.5))
    run, s = one(path)
    assert s.step_K.tolist() == [0, 2, 4]
    assert s.score_K.tolist() == [0.1, 0.2, 0.4]  # the first of two counts
    assert [e.line for e in run.errors] == [4, 5, 6, 7, 9, 10]
    assert all("a step must be a whole number" in e.reason for e in run.errors)
    assert any("1 further rows of a step that was there already" in n for n in run.notes)
    ordered = read_log(lines(tmp_path / "b.jsonl", verl(1, 0.1), verl(0, 0.1)), settings=BP_N)[0]
    assert any("out of order were sorted" in n for n in ordered.notes)


def test_row_14_a_configuration_that_changes_within_a_run_holds_for_none_of_it() -> None:
    collector = collect.Collector("r", collect.Errors("f"), collect.Settings())
    first = {"data.train_batch_size": 8, "actor_rollout_ref.rollout.n": 4}
    collector.configure(first)
    collector.configure(first | {"actor_rollout_ref.rollout.n": 16}, 7)
    run = collector.finish(LOGS / "mlflow.db", "test")
    assert run.rollouts_per_problem is None
    assert run.errors[0].line == 7
    assert "changes rollouts_per_problem from 4 to 16" in run.errors[0].reason


def test_row_15_a_long_line_costs_neither_memory_nor_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as handle:
        handle.write(json.dumps(verl(0, 0.25)).encode() + b"\n{\"step\": 1, \"data\": \"")
        for _ in range(64):
            handle.write(b"x" * (1 << 20))
        handle.write(b"\"}\n" + json.dumps(verl(2, 0.5)).encode() + b"\n")
    tracemalloc.start()
    run, s = one(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert s.step_K.tolist() == [0, 2]
    assert [(e.line, e.reason[:13]) for e in run.errors] == [(2, "a line must u")]
    assert peak < 24 << 20


@pytest.mark.heavy
def test_row_15_memory_grows_with_scores_not_with_bytes(tmp_path: Path) -> None:
    row = json.dumps({"step": 0, "data": {f"timing_s/part{i}": 1.0 for i in range(200)}}).encode()
    path = tmp_path / "a.jsonl"
    peaks = []
    for n_rows in (200, 2000):
        path.write_bytes((row + b"\n") * n_rows + json.dumps(verl(1, 0.5)).encode() + b"\n")
        tracemalloc.start()
        one(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (1 << 20)  # ten times the bytes, 10 MB against 1


def test_row_15_series_and_points_are_capped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MAX_SERIES", 3)
    monkeypatch.setattr(collect, "MAX_POINTS", 20)
    path = lines(tmp_path / "a.jsonl", *({"step": s, "data": {
        f"val-core/set{i}/acc/mean@4": 0.5 for i in range(9)}} for s in range(50)))
    run = read_log(path)[0]
    assert len(run.series) == 3
    assert sum(s.step_K.size for s in run.series) == 20
    assert any("more than 3 metrics" in n for n in run.notes)
    assert any("more than 20 scores" in n for n in run.notes)


def test_row_15_errors_are_capped_and_counted(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", verl(0, 0.5), *([b"torn {"] * 3000))
    run, _ = one(path)
    assert len(run.errors) == imported.MAX_ERRORS_KEPT
    assert run.n_errors == 3000


@pytest.mark.parametrize(("row", "reason"), [
    (b'{"a":' + b"[" * 100_000, "nested too deep"),
    (b'{"step": ' + b"9" * 5000 + b', "data": {}}', "not JSON"),
    (b'{"step": 1, "data\x00": {}', "not JSON"),
    (b'{"step": 1, "data": {"\xff": 1}}', "not UTF-8"),
    (b'{"step": 1, "da', "not JSON"),
    (b"[1, 2]", "must be a JSON object"),
    (b'"text"', "must be a JSON object"),
])
def test_row_16_a_bad_line_is_reported_and_the_rest_is_read(
    tmp_path: Path, row: bytes, reason: str
) -> None:
    run, s = one(lines(tmp_path / "a.jsonl", verl(0, 0.25), row, verl(1, 0.5)))
    assert s.step_K.tolist() == [0, 1]
    assert [e.line for e in run.errors] == [2]
    assert reason in run.errors[0].reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(value=JSON, ascii_only=st.booleans())
def test_row_16_the_fast_parser_reads_what_the_standard_one_does(
    value: object, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, not escaped
        return
    read, reason = reading.parse_json(data)
    assert reason is None
    if json.dumps(read) != json.dumps(json.loads(data)):  # integers that no float carries
        assert any(len(digits) > 15 for digits in re.findall("[0-9]+", text))


@pytest.mark.parametrize(("data", "value"), [
    (b"NaN", None), (b"[Infinity, -Infinity]", None), (b"1e999", None), (b"1e400", None),
    (b"18446744073709551616", 18446744073709551616.0), (b'{"a": 1, "a": 2}', {"a": 2}),
    (b'"\\ud800"', "\ud800"), (b"-0", 0), (b"[1e5]", [1e5]),
])
def test_row_16_words_and_numbers_of_trackers(data: bytes, value: object) -> None:
    read, reason = reading.parse_json(data)
    assert reason is None
    if value is None:
        assert all(reading.number(item) is None for item in (read if isinstance(read, list)
                                                             else [read]))
    else:
        assert read == value


def test_row_16_bom_surrogates_and_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(verl(0, 0.5)).encode()
                     + b'\r\n{"step": 1, "data": {"val-core/\\ud800/acc/mean@4": 0.5}}\n'
                     + b'{"step": 2, "da')
    run = read_log(path, settings=BP_N)[0]
    assert [s.problem_set for s in run.series] == ["m", "\\ud800"]
    assert [e.line for e in run.errors] == [3]
    str(run).encode("utf-8")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_row_16_a_configuration_that_windows_saved(tmp_path: Path, mark: str) -> None:
    said = json.dumps({"num_generations": 4, "problems_per_batch": 8, "seed": 3})
    (tmp_path / "config.json").write_text(mark + said, encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps(verl(5, 0.5)) + "\n")
    (run,) = read_log(tmp_path)
    assert (run.problems_per_batch, run.rollouts_per_problem, run.seed) == (8, 4, 3)


def test_row_16_a_torn_trainer_state_gives_the_rows_before_the_tear(tmp_path: Path) -> None:
    whole = (LOGS / "trl" / "checkpoint-6" / "trainer_state.json").read_bytes()
    path = tmp_path / "trainer_state.json"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    run = read_log(path)[0]
    assert 3 < run.n_rows < 10
    assert "torn" in run.notes[0]
    assert run.n_errors == 1


@pytest.mark.heavy
def test_row_17_one_flipped_byte_in_an_event_file_is_counted(tmp_path: Path) -> None:
    whole = bytearray((LOGS / "events.out.tfevents.trl").read_bytes())
    clean = read_log(LOGS / "events.out.tfevents.trl")[0]
    starts = []
    at = 0
    while at < len(whole):
        starts.append(at)
        at += 16 + struct.unpack_from("<Q", whole, at)[0]
    path = tmp_path / "events.out.tfevents.x"
    for offset in (starts[100] + 2, starts[100] + 9, starts[100] + 14, starts[101] - 2):
        broken = bytearray(whole)
        broken[offset] ^= 0x40
        path.write_bytes(broken)
        run = read_log(path)[0]
        assert run.n_errors == 1, offset
        assert run.n_rows == clean.n_rows - 1  # only the broken record is lost
        assert "1 records were damaged" in run.notes[-1]


def test_row_17_crc32c_of_the_known_vector_and_resynchronisation() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeros -> 0x8A9136AA before the masking
    crc = 0x8A9136AA
    assert masked_crc32c(b"\0" * 32) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    header = struct.pack("<Q", 5)
    record = header + struct.pack("<I", masked_crc32c(header))
    assert find_header(b"abc" + record + b"tail", 0) == 3
    assert find_header(b"abc" + record, 4) is None
    assert find_header(b"short", 0) is None


def test_row_18_every_attempt_has_its_own_file_and_they_are_one_run(tmp_path: Path) -> None:
    lines(tmp_path / "run.attempt0.jsonl", verl(0, 0.1), verl(1, 0.2))
    lines(tmp_path / "run.attempt1.jsonl", verl(1, 0.2), verl(2, 0.3))
    runs = read_log(tmp_path, settings=BP_N)
    assert [r.series[0].step_K.tolist() for r in runs] == [[0, 1, 2]]
    assert "joined with" in runs[0].provenance.inferred[0]
    apart = read_log(tmp_path, settings={**BP_N, "resumed": "apart"})
    assert [r.series[0].step_K.tolist() for r in apart] == [[0, 1], [1, 2]]


def test_row_20_pickles_are_refused(tmp_path: Path) -> None:
    for name, data in (("training_args.bin", pickle.dumps({"a": 1})), ("x.log", b"\x80\x04.")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="must not be able to run code"):
            read_log(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(1))
    with pytest.raises(InputError, match="is a zip archive"):
        read_log(tmp_path / "model.pt")


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "n" * 300, "Run", "run", "a\x07\x1b[31mb"]
)
def test_row_22_names_are_data_and_build_no_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes((LOGS / "mlflow.db").read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET name = ?", (name,))
        connection.execute("UPDATE metrics SET key = 'eval_rewards/../../y/mean' "
                           "WHERE key = 'eval_reward'")
    connection.close()
    before = sorted(os.listdir(tmp_path))
    run = read_log(path)[0]
    assert run.name == "".join(c if c.isprintable() else "?" for c in name)
    assert any(s.metric.variable == "../../y" for s in run.series)
    assert sorted(os.listdir(tmp_path)) == before


def test_row_25_a_gzip_bomb_stops_at_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb") as handle:
        handle.write(json.dumps(verl(0, 0.5)).encode() + b"\n")
        handle.write(b" " * (20 << 20))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(reading, "MAX_DECOMPRESSED_BYTES", 8 << 20)
    with pytest.raises(InputError, match="must unpack to at most 8388608 bytes"):
        read_log(path)


@pytest.mark.long
def test_row_25_a_packed_table_stops_at_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    rows = 200_000
    columns = {"problems_per_batch": [32] * rows, "rollouts_per_problem": [8] * rows,
               "rollouts": [256] * rows, "score": [0.5] * rows}
    made = pa.table(columns | {"run": ["x" * 1000] * rows})  # 200 MB, of which 1 kB differs
    parquet, packed = tmp_path / "t.parquet", tmp_path / "t.csv.gz"
    pa.parquet.write_table(made, parquet, compression="zstd")
    with gzip.open(packed, "wt", compresslevel=1) as file:
        file.write(",".join(columns) + "\n" + "32,8,256,0.5\n" * rows)
    assert parquet.stat().st_size < 200_000
    assert packed.stat().st_size < 200_000
    allocated = pa.total_allocated_bytes()

    def same(names: list[str]) -> dict[str, str]:
        return {name: name for name in names}

    kept = table.read_table(parquet, same)
    assert pa.total_allocated_bytes() - allocated < 20 << 20
    assert kept.num_rows == rows
    assert table.read_table(packed, same).num_rows == rows
    for name, cap in (("_MAX_ROWS", 100_000), ("_MAX_BYTES", 500)):
        with monkeypatch.context() as patch:
            patch.setattr(table, name, cap)
            for path in (parquet, packed):
                with pytest.raises(InputError, match="are read, but it has"):
                    tidy.load_tidy(path)


def test_row_25_gzip_is_read_and_a_torn_one_up_to_the_tear(tmp_path: Path) -> None:
    data = b"".join(json.dumps(verl(i, i / 1000)).encode() + b"\n" for i in range(500))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(data))
    assert one(path)[1].step_K.size == 500
    path.write_bytes(gzip.compress(data)[:-400])
    run, s = one(path)
    assert 0 < s.step_K.size < 500
    assert run.n_errors >= 1


def test_row_25_a_planted_view_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE c(run_name) AS (SELECT 1 UNION ALL SELECT "
            "run_name + 1 FROM c) SELECT run_name, run_name AS step, '{}' AS metrics FROM c")
    connection.close()
    with pytest.raises(InputError, match="must be one of MLflow"):
        read_log(path)


def test_row_26_a_crashed_verifier_is_an_error_never_a_zero(tmp_path: Path) -> None:
    sample = {"input": "q", "output": "a", "gts": "1", "step": 0}
    rows = [sample | {"score": s} for s in (1.0, 0.0)]
    rows += [sample | {"input": "p", "score": s} for s in (None, 1.0)]
    run, s = one_dump(lines(tmp_path / "0.jsonl", *rows))
    assert s.score_K.tolist() == [0.5]  # the problem with a failed check is left out
    assert run.errors[0].line == 3
    assert "left out, not 0" in run.errors[0].reason
    assert any("1 of 2 problems were left out" in n for n in run.notes)
    nothing = read_log(lines(tmp_path / "1.jsonl", sample | {"score": None}))[0]
    assert nothing.series == ()
    assert "no problem has a score in every sample" in nothing.notes[0]


def one_dump(path: Path) -> tuple[ImportedRun, Series]:
    run = read_log(path, settings=BP_N)[0]
    return run, next(s for s in run.series if s.metric.label == "avg@2")


def test_scores_that_are_not_binary_give_a_mean_only(tmp_path: Path) -> None:
    rows = [{"input": "q", "output": "a", "score": s, "step": 0} for s in (0.5, -1.0)]
    run = read_log(lines(tmp_path / "0.jsonl", *rows))[0]
    assert [s.metric.label for s in run.series] == ["avg@2:score"]
    assert run.outcomes == ()
    assert "neither 0 nor 1" in run.notes[0]


def test_wandb_damage_is_counted_and_the_rest_read(tmp_path: Path) -> None:
    whole = bytearray((LOGS / "trl-offline.wandb").read_bytes())
    clean = read_log(LOGS / "trl-offline.wandb")[0]
    whole[40_000] ^= 1  # in the second of three blocks
    path = tmp_path / "run-x.wandb"
    path.write_bytes(whole)
    run = read_log(path)[0]
    assert run.n_errors >= 1
    assert clean.n_rows / 4 < run.n_rows < clean.n_rows


def test_wire_refuses_what_is_cut_short() -> None:
    for data in (b"\x08", b"\x12\x05ab", b"\x09\x01", b"\x0b", b"\xff" * 11):
        with pytest.raises(WireError):
            list(iter_fields(data))


def one_line(error: InputError) -> None:
    assert "\n" not in str(error)


def scores_of(runs: list[ImportedRun]) -> set[float]:
    return {float(v) for run in runs for s in run.series for v in s.score_K}


CUT = {
    "verl/bp4_n8.jsonl": "a.jsonl",
    "verl/console.log": "a.log",
    "verl/dumps/2.jsonl": "2.jsonl",
    "trl/checkpoint-6/trainer_state.json": "trainer_state.json",
    "events.out.tfevents.trl": "events.out.tfevents.x",
    "trl-offline.wandb": "run-x.wandb",
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", CUT)
def test_truncation_at_every_offset_never_crashes_or_invents(tmp_path: Path, name: str) -> None:
    whole = (LOGS / name).read_bytes()
    path = tmp_path / CUT[name]
    real = scores_of(read_log(LOGS / name))
    # every offset of the small files; of the large ones some, and every one near the end
    step = len(whole) // 100 if len(whole) > 9_000 else 7
    last = range(len(whole) - 20, len(whole))
    for length in sorted({*range(0, len(whole), step), *range(20), *last}):
        path.write_bytes(whole[:length])
        try:
            found = scores_of(read_log(path))
        except InputError:
            continue
        if "dumps" in name:  # fewer samples give other means, of the same outcomes
            assert all(0 <= v <= 1 for v in found)
        elif "console" not in name:
            assert found <= real, length


@pytest.mark.parametrize("name", ["mlflow.db", "trackio.db"])
def test_truncated_databases_never_crash_or_invent(tmp_path: Path, name: str) -> None:
    whole = (LOGS / name).read_bytes()
    path = tmp_path / name
    real = scores_of(read_log(LOGS / name))
    for length in [*range(0, 200, 7), *range(1000, len(whole), 2048)]:
        path.write_bytes(whole[:length])
        try:
            assert scores_of(read_log(path)) <= real
        except InputError:
            continue


FUZZ = settings(max_examples=60, deadline=None,
                suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(data=st.binary(max_size=400), head=st.sampled_from(
    [b"", b":W&B\xe1\xbe\x00", b"SQLite format 3\0", b"{", b'{"step": 1, "data": {', b"\x1f\x8b",
     b'{"log_history": [', b"step:1 - val-core/m/acc/mean@4:", b'"Step","r - eval/reward"\n']))
def test_random_bytes_give_runs_or_one_line(tmp_path: Path, data: bytes, head: bytes) -> None:
    path = tmp_path / "file.log"
    path.write_bytes(head + data)
    for name in ("file.log", "trainer_state.json", "3.jsonl", "x.csv", "events.out.tfevents.1"):
        (tmp_path / "file.log").rename(path := tmp_path / name)
        try:
            for run in read_log(path):
                assert all(np.isfinite(s.score_K).all() for s in run.series)
                str(run).encode("utf-8")
        except InputError as error:
            one_line(error)
        path.rename(tmp_path / "file.log")


@FUZZ
@given(name=st.sampled_from(sorted([*CUT, "mlflow.db", "trackio.db"])),
       flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
                      min_size=1, max_size=5))
def test_flipped_bytes_never_crash(
    tmp_path: Path, name: str, flips: list[tuple[float, int]]
) -> None:
    data = bytearray((LOGS / name).read_bytes())
    for place, mask in flips:
        data[int(place * len(data))] ^= mask
    path = tmp_path / CUT.get(name, name)
    path.write_bytes(data)
    try:
        read_log(path)
    except InputError as error:
        one_line(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([KEY, "step", "data", "score", "input", "output", "acc", "eval_reward",
                         "response_length/mean", "config", "log_history"]), inner, max_size=4),
    max_leaves=12)


@pytest.mark.heavy
@FUZZ
@given(rows=st.lists(JSON, max_size=6))
def test_strange_but_valid_json_never_crashes(tmp_path: Path, rows: list[object]) -> None:
    text = "\n".join(json.dumps(r) for r in rows)
    for name in ("a.jsonl", "7.jsonl", "trainer_state.json"):
        path = tmp_path / name
        path.write_text(text if name != "trainer_state.json" else json.dumps({"log_history": rows}))
        try:
            read_log(path, settings=BP_N)
        except InputError as error:
            one_line(error)


def test_modules_hold_their_limits() -> None:
    assert tensorboard.MAX_RECORD_BYTES <= 1 << 20
    assert wandb.MAX_RECORD_BYTES <= 16 << 20
    assert collect.MAX_RUNS <= 10_000
