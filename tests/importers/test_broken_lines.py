"""Lines that could be broken unnoticed: a log or a table, as it is written, for each of them."""

from __future__ import annotations

import csv
import json
import struct
import zlib
from pathlib import Path

import pytest

from isocompute.importers import load_settings, read_log
from isocompute.importers.values.cells import cells_of
from isocompute.importers.values.wire import masked_crc32c
from layout_helpers import AT, MAP, drawn, events, lines, load, of, refused, score, write

SETS = ["problems_per_batch=6", "rollouts_per_problem=4"]


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


# W&B's own file: LevelDB's blocks, a record for each call of log.


def blocks(records: list[bytes]) -> bytes:
    out = bytearray(b":W&B\x00\x00\x00")
    for data in records:
        first = True
        while first or data:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                continue
            part, data = data[: room - 7], data[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                first, not data]  # fmt: skip
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(out)


def wandb(
    path: Path, rows: list[dict[str, object]], defined: list[bytes], more: bytes = b""
) -> Path:
    records = [field(12, one) for one in defined]
    for i, row in enumerate(rows):
        items = b"".join(
            field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))
            for key, value in {**row, "_step": i}.items()
        )
        records.append(field(2, items))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blocks([*records, *([more] if more else [])]))
    return path


@pytest.mark.parametrize("number", [1, 2])  # a name, a glob
def test_what_wandb_was_told_counts_a_score_counts_it(tmp_path: Path, number: int) -> None:
    rows: list[dict[str, object]] = []
    for s in AT:  # TRL's trainer counts its own; an evaluation of one's own has a counter beside it
        rows += [{"train/global_step": s, "train/reward": 0.2},
                 {"eval/step": s, "held/accuracy": score(s, 4)}]  # fmt: skip
    file, held = tmp_path / "run-a.wandb", ["held/accuracy=avg"]
    assert "have no train/global_step" in refused(wandb(file, rows, []), held, SETS)
    name = b"held/accuracy" if number == 1 else b"held/*"
    wandb(file, rows, [field(number, name) + field(4, b"eval/step")])
    assert drawn(load(file, held, SETS)) == of(6, 4, None)


@pytest.mark.long
def test_records_of_wandb_that_are_torn_nested_or_huge(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"train/global_step": s, "val": {"accuracy": score(s, 4)}, "said": "x" * 2000 * s}
        for s in AT
    ]  # fmt: skip
    file = wandb(tmp_path / "run-a.wandb", rows, [])
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    rows[2]["said"] = "x" * (17 << 20)  # more than a record may have
    wandb(file, rows, [])
    (curve,) = load(file, MAP, SETS)
    assert curve.rollouts_K.tolist() == [24 * s for s in AT if s != 20]
    wandb(file, rows[:2], [], field(2, b"\x0a\xff\xff\x01"))  # a field longer than its record
    (run,) = read_log(file)
    assert run.notes == ("1 records or rows were damaged and were not read",)
    rows[2]["said"] = "x" * 70_000
    torn = wandb(file, rows[:3], []).read_bytes()
    file.write_bytes(torn[: 2 * 32768])  # between two parts of one record
    (run,) = read_log(file)
    assert run.notes == ("1 records or rows were damaged and were not read",)


# TensorBoard's records.


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (length + struct.pack("<I", masked_crc32c(length)) + data
            + struct.pack("<I", masked_crc32c(data)))  # fmt: skip


def event(step: int, tag: str, value: bytes) -> bytes:
    return record(b"\x10" + varint(step) + field(5, field(1, field(1, tag.encode()) + value)))


def scalar(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


@pytest.mark.long
@pytest.mark.parametrize("size", [700_000, 3_000_000])
def test_images_between_scalars_of_tensorboard_are_passed_over(tmp_path: Path, size: int) -> None:
    image = event(0, "samples", field(4, b"x" * size))
    whole = b"".join(image * (s in (0, 30)) + event(s, "val/accuracy", scalar(score(s, 4)))
                     for s in AT)  # fmt: skip
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(whole)
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    file.write_bytes(whole[:-900] + b"\x00" * 30 + whole)  # damaged: read on at the next record
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    file.write_bytes(whole + image[:-9])
    (run,) = read_log(file, settings=load_settings(SETS, [*MAP]))
    assert run.n_errors == 1
    assert len(run.series[0].step_K) == len(AT)


def test_tensors_of_one_number_are_scalars(tmp_path: Path) -> None:
    """TensorFlow 2 writes a scalar as a tensor: its number, or its bytes."""
    forms = (lambda v: b"\x08\x01" + b"\x2d" + struct.pack("<f", v),  # float_val
             lambda v: b"\x08\x01" + field(5, struct.pack("<f", v)),  # the same, packed
             lambda v: b"\x08\x02" + field(6, struct.pack("<d", v)),  # double_val
             lambda v: b"\x08\x01" + field(4, struct.pack("<f", v)),  # tensor_content
             lambda v: b"\x08\x02" + field(4, struct.pack("<d", v)))  # fmt: skip
    for form in forms:
        file = tmp_path / "events.out.tfevents.1.host"
        file.write_bytes(b"".join(
            event(s, "val/accuracy", field(8, form(score(s, 4)))) for s in AT))  # fmt: skip
        (curve,) = load(file, MAP, SETS)
        assert curve.score_K.tolist() == pytest.approx([score(s, 4) for s in AT], abs=1e-6)
        assert curve.rollouts_K.tolist() == [24 * s for s in AT]


# Records of one run, and what its parts count.


def test_a_set_that_a_sequel_evaluates_first_counts_from_the_beginning(tmp_path: Path) -> None:
    """DAPO draws two batches for each update; the second log knows only its own."""
    def rows(first: int, last: int, keys: tuple[str, ...]) -> list[dict[str, object]]:
        return [{"step": s, "loss": 0.1}
                | ({"train/num_gen_batches": 2, "response_length/mean": 100.0} if s else {})
                | ({key: score(s, 4) for key in keys} if s % 10 == 0 else {})
                for s in range(first, last + 1)]  # fmt: skip

    maps = [*MAP, "hard/accuracy=avg"]
    lines(tmp_path / "g4" / "a.jsonl", rows(0, 40, ("val/accuracy",)))
    lines(tmp_path / "g4" / "b.jsonl", rows(41, 80, ("val/accuracy", "hard/accuracy")))
    (run,) = read_log(tmp_path, settings=load_settings([*SETS, "resumed=join"], maps))
    both = {s.metric.variable: s for s in run.series}
    assert both["val/accuracy"].rollouts_K.tolist() == [48 * s for s in range(0, 81, 10)]
    assert both["hard/accuracy"].rollouts_K.tolist() == [48 * s for s in (50, 60, 70, 80)]
    assert both["hard/accuracy"].tokens_K.tolist() == [4800 * s for s in (50, 60, 70, 80)]


def test_dumps_beside_a_log_count_what_the_log_counts(tmp_path: Path) -> None:
    """verl writes validation_data_dir beside its log, and true and false of a reward function."""
    write(tmp_path / "run" / "config.yaml", "data:\n  train_batch_size: 6\n"
          "actor_rollout_ref:\n  rollout:\n    n: 4\n")  # fmt: skip
    each = {"train/num_gen_batches": 2, "response_length/mean": 50.0}
    lines(tmp_path / "run" / "log.jsonl", [
        {"step": s, "data": (each if s else {}) | (
            {"val-core/math/acc/mean@2": s / 80} if s % 10 == 0 else {})}
        for s in range(51)
    ])  # fmt: skip
    for i, s in enumerate(AT):
        lines(tmp_path / "run" / "dumps" / f"{s}.jsonl", [
            {"input": f"q{k // 2}", "output": "a", "gts": "1", "data_source": "math", "step": s,
             "acc": k < i, "score": 2.0 * (k < i) - 1}
            for k in range(8)
        ])  # fmt: skip
    (run,) = read_log(tmp_path)
    found = {s.metric.label: s for s in run.series}
    assert found["avg@2"].score_K.tolist() == pytest.approx([s / 80 for s in AT])
    assert found["best@2"].score_K.tolist() == [0, 0.25, 0.25, 0.5, 0.5, 0.75]  # by hand
    for s in found.values():
        assert s.rollouts_K.tolist() == [2 * 24 * at for at in AT]
        assert s.tokens_K.tolist() == [2 * 24 * 50 * at for at in AT]


def test_the_mean_that_skyrl_logs_is_the_mean_of_its_dumps(tmp_path: Path) -> None:
    write(tmp_path / "run" / "config.yaml", "trainer:\n  train_batch_size: 6\n"
          "generator:\n  n_samples_per_prompt: 4\n")  # fmt: skip
    lines(tmp_path / "run" / "metrics.jsonl", [
        {"step": s, "eval/gsm8k/avg_score": i / 8} for i, s in enumerate(AT)
    ])  # fmt: skip
    for i, s in enumerate(AT):
        lines(tmp_path / "run" / "dumped_evals" / f"global_step_{s}_evals" / "gsm8k.jsonl", [
            {"input_prompt": f"q{k // 2}", "output_response": "a", "data_source": "gsm8k",
             "score": [0.0, float(k < i)]}
            for k in range(8)
        ])  # fmt: skip
    (run,) = read_log(tmp_path)
    assert {s.metric.label for s in run.series} == {"avg@2", "best@2", "worst@2"}
    for one in run.series:
        assert one.rollouts_K.tolist() == [24 * s for s in AT]


def test_starts_of_one_job_under_two_models_are_two_runs(tmp_path: Path) -> None:
    for i, (model, last) in enumerate((("small", 20), ("large", 50))):
        home = tmp_path / f"v{i}-20250812-14120{i}"
        write(home / "config.json", json.dumps({
            "prompts_per_step": 6, "group_size": 4, "seed": 5, "max_steps": 50, "model": model,
        }))  # fmt: skip
        lines(home / "metrics.jsonl", [
            {"step": s, "loss": 0.1} | ({"val/accuracy": score(s, i)} if s % 10 == 0 else {})
            for s in range(1, last + 1)
        ])  # fmt: skip
    runs = read_log(tmp_path, settings=load_settings([], [*MAP]))
    assert [run.series[0].step_K.tolist() for run in runs] == [[10, 20], [10, 20, 30, 40, 50]]


def test_attempts_in_folders_of_their_own_are_no_repetitions(tmp_path: Path) -> None:
    for i in (1, 2):
        lines(tmp_path / f"attempt_{i}" / f"try{i}.jsonl",
              [{"step": s, "val/accuracy": score(s, i)} for s in AT])  # fmt: skip
    assert "attempts of one run are no repetitions" in refused(tmp_path, MAP, SETS)


# Scores that stand beside each other.


def test_the_share_solved_beside_a_reward_is_a_mean(tmp_path: Path) -> None:
    """pass@8 of correctness is no other form of the mean reward, the mean of it is."""
    def rows(key: str) -> list[dict[str, object]]:
        return [{"step": s, "eval/math/avg_score": score(s, 0), key: score(s, 9)} for s in AT]

    file = tmp_path / "g4.jsonl"
    lines(file, rows("val/math/pass@8"))
    assert {c.metric for c in load(file, (), SETS, metric="avg")} == {"avg"}
    lines(file, rows("val/math/pass@1"))
    assert "the whole reward" in refused(file, (), SETS)


@pytest.mark.parametrize("first", [0, 1])
def test_a_plain_mean_goes_before_one_of_so_many_samples(tmp_path: Path, first: int) -> None:
    keys = {"val/accuracy": 0, "val/accuracy@8": 3}
    order = [*keys][first:] + [*keys][:first]
    lines(tmp_path / "g4.jsonl", [{"step": s, **{k: score(s, keys[k]) for k in order}} for s in AT])
    maps = ["val/accuracy=avg", "val/accuracy@8=avg@8"]
    (curve,) = load(tmp_path, maps, SETS, metric="avg")
    assert curve.score_K.tolist() == [score(s, 0) for s in AT]


def test_a_text_of_every_row_is_no_kind_of_score(tmp_path: Path) -> None:
    rows = [["run", "steps", "score", "saved"]]
    rows += [["a", s, score(s, k), "abcdef"[s // 10] + "xyz"[k]] for s in AT for k in range(3)]
    file = tmp_path / "t.csv"
    with file.open("w", newline="") as handle:
        csv.writer(handle).writerows(rows)
    (curve,) = load(file, (), SETS)
    assert curve.n_repeated == 12


def test_one_set_that_begins_with_another_model_is_asked_about_where_it_is_chosen(
    tmp_path: Path,
) -> None:
    for n, more in ((4, 0.0), (8, 0.0), (16, 0.25)):
        lines(tmp_path / f"g{n}.jsonl", [
            {"step": s, "eval/math/avg_score": score(s, n, more),
             "eval/aime/avg_score": score(s, n)} for s in AT
        ])  # fmt: skip
    given = ["problems_per_batch=6", "pattern=g{rollouts_per_problem}"]
    assert "begin with one model" in refused(tmp_path, (), given, problem_set="math")
    assert len(load(tmp_path, (), given, problem_set="aime")) == 3


def test_a_torn_notebook_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "train.ipynb", '{"cells": [{"cell_type": "code", "source": ["x')
    assert "train.ipynb" in refused(file)


def test_cells_that_count_on_between_trainings_say_no_setting(tmp_path: Path) -> None:
    """`args.seed += 1` makes what was set before unknown; `done += 1` nothing."""
    def trained(n: int, more: str) -> dict[str, object]:
        code = (f"args = GRPOConfig(num_generations={n}, per_device_train_batch_size=24,\n"
                f"    gradient_accumulation_steps=1, seed=5)\n{more}\nT(args).train()")
        said = "".join(f"[val] step {s} acc 0.{s + n + 10}\n" for s in (0, 20, 40))
        return {"cell_type": "code", "source": [code], "outputs": [
            {"output_type": "stream", "text": [said]}]}  # fmt: skip

    for more, seed in (("done += 1", 5), ("args.seed += 1", None)):
        write(tmp_path / "nb.ipynb", json.dumps({"cells": [trained(4, more), trained(8, more)]}))
        runs = read_log(tmp_path / "nb.ipynb", settings=load_settings(["processes=1"], ["acc=avg"]))
        assert [run.design for run in runs] == [(6, 4, seed), (3, 8, seed)]


# Trackers' own forms.


def test_a_line_of_mlflow_that_was_cut_short_is_no_score_at_step_0(tmp_path: Path) -> None:
    home = tmp_path / "mlruns" / "1" / "abc"
    write(home / "meta.yaml", "run_id: abc\nrun_name: mine\nstatus: 3\n")
    for key, value in (("problems_per_batch", 6), ("rollouts_per_problem", 4)):
        write(home / "params" / key, str(value))
    rows = "".join(f"17000000{s:02} {score(s, 4)} {s}\n" for s in AT)
    write(home / "metrics" / "val" / "accuracy", rows + "1700000060 0.3")
    write(home / "metrics" / "loss", "".join(f"17000000{s:02} 0.1 {s}\n" for s in AT))
    (run,) = read_log(tmp_path, settings=load_settings([], [*MAP]))
    (found,) = run.series
    assert dict(zip(found.step_K.tolist(), found.score_K.tolist(), strict=True)) == {
        s: score(s, 4) for s in AT
    }  # fmt: skip
    assert run.notes == ("1 lines were not used",)


def test_a_key_that_was_nan_once_is_offered_as_the_score(tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 0.1, "held/accuracy": score(s, 4)} for s in AT]
    rows[2]["held/accuracy"] = float("nan")
    lines(tmp_path / "g4.jsonl", rows)
    assert "--map held/accuracy=avg" in refused(tmp_path, (), SETS)
    assert drawn(load(tmp_path, ["held/accuracy=avg"], SETS)) == {
        (6, 4, None): [24 * s for s in AT if s != 20]
    }  # fmt: skip


def test_slime_evaluates_once_more_where_it_ends(tmp_path: Path) -> None:
    """Two steps of the optimizer for each of 23 batches, an evaluation after each fifth."""
    rows: list[dict[str, object]] = []
    for at in range(23):
        rows.append({"rollout/step": 2 * at, "rollout/raw_reward": 0.5})
        if (at + 1) % 5 == 0 or at == 22:
            rows.append({"eval/step": 2 * at, "eval/held": score(at, 4)})
    lines(tmp_path / "g4.jsonl", [{"_step": i, **row} for i, row in enumerate(rows)])
    assert drawn(load(tmp_path, (), SETS)) == {(6, 4, None): [24 * s for s in (5, 10, 15, 20, 23)]}


def test_results_of_which_one_says_another_step_are_asked_about(tmp_path: Path) -> None:
    for s in (10, 20, 30):  # the first says its step in its name alone
        said = {"accuracy": score(s, 4)} | ({"step": 21} if s == 20 else {})
        write(tmp_path / "g4" / f"step_{s}.json", json.dumps(said))
    told = refused(tmp_path, ["accuracy=avg"], SETS)
    assert "step_20.json is of step 20, but its step says 21; add --set step=step" in told


def test_scores_that_only_the_poorer_record_holds_are_kept(tmp_path: Path) -> None:
    """A writer of JSON that loses a score where a tracker has it."""
    events(tmp_path / "g4" / "events.out.tfevents.1.host", [
        (s, f"{key}/accuracy", score(s, n)) for s in AT for n, key in ((4, "first"), (7, "second"))
    ])  # fmt: skip
    lines(tmp_path / "g4" / "log.jsonl", [
        {"step": s, "first/accuracy": score(s, 4), "second/accuracy": float("nan"),
         "third/accuracy": score(s, 5), "fourth/accuracy": score(s, 6)}
        for s in AT
    ])  # fmt: skip
    maps = [f"{key}/accuracy=avg" for key in ("first", "second", "third", "fourth")]
    (run,) = read_log(tmp_path, settings=load_settings(SETS, maps))
    found = {s.metric.variable.partition("/")[0]: s.score_K.tolist() for s in run.series}
    assert found["second"] == pytest.approx([score(s, 7) for s in AT])
    assert [*map(len, found.values())] == [6] * 4


@pytest.mark.parametrize(
    "line",
    ["", ",", "a,b", " a , b ", "a;b", "a,,b,", 'a,"b,c"', 'a,"b', "a,b\rc", "a\0,b",
     "x" * 140_000 + ",b"],
)
def test_a_plain_line_has_the_cells_that_csv_finds(line: str) -> None:
    try:
        expected = next(csv.reader([line.replace("\0", "")], strict=True), [])
    except csv.Error:
        expected = []
    assert cells_of(line, ",") == expected
