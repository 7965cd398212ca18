"""What the thirty-fifth blind set found in logs and tables: by construction, with other names."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from isocompute.importers import import_logs, imported_rows, load_settings, read_log
from isocompute.importers.values.wire import masked_crc32c
from layout_helpers import AT, MAP, drawn, events, lines, load, log, of, refused, score, write

N = (4, 8)
ALL = {key: at for n in N for key, at in of(6, n, None).items()}
DESIGN = ["problems_per_batch=6", "pattern=g{rollouts_per_problem}"]


def table(path: Path, columns: list[str], rows: list[list[object]]) -> Path:
    cells = [columns, *rows]
    return write(path, "".join(",".join("" if c is None else str(c) for c in row) + "\n"
                               for row in cells))  # fmt: skip


# A counter `step` that a run logs itself, where the tracker counts calls of log.


def calls(path: Path, n: int, by: tuple[int, ...], named: bool = True) -> None:
    """A W&B history of prime-rl's form: evaluations in calls of their own, at the next step."""
    rows: list[list[object]] = []

    def call(*cells: object) -> None:
        rows.append([len(rows), *cells])

    call(1, score(0, n), 0, None)
    for s in range(1, 51):
        call(s, None, None, 0.3 + s / 100)
        if s % 10 == 9:
            policy = s + 1 - by[s // 10 % len(by)]
            call(s + 1 if named else None, score(policy, n), policy, None)
    keys = ["eval/set/avg@2", "eval/set/policy_version", "reward/all/mean"]
    table(path, ["_step", "step", *keys], rows)


def test_a_step_that_is_logged_counts_before_that_of_calls(tmp_path: Path) -> None:
    for n in N:
        calls(tmp_path / f"g{n}.csv", n, (1,))
    at = [0, 9, 19, 29, 39, 49]
    assert drawn(load(tmp_path, (), DESIGN)) == {(6, n, None): [6 * n * s for s in at] for n in N}


def test_a_policy_that_is_named_is_held_against_the_logged_step(tmp_path: Path) -> None:
    for n in N:
        calls(tmp_path / f"g{n}.csv", n, (2, 1))
    told = refused(tmp_path, (), DESIGN)
    assert "step says 50 where eval/set/policy_version says 48" in told  # not the 55 calls
    curves = load(tmp_path, (), [*DESIGN, "step=eval/set/policy_version"])
    at = [0, 8, 19, 28, 39, 48]
    assert {c.rollouts_per_problem: c.rollouts_K.tolist() for c in curves} == {
        n: [6 * n * s for s in at] for n in N
    }


def test_scores_without_the_logged_step_are_not_counted_by_calls(tmp_path: Path) -> None:
    for n in N:
        rows: list[list[object]] = []
        for s in range(51):
            rows.append([len(rows), s, None, 0.3 + s / 100])
            if s % 10 == 0:
                rows.append([len(rows), None, score(s, n), None])
        table(tmp_path / f"g{n}.csv", ["_step", "step", "val/accuracy", "loss"], rows)
    told = refused(tmp_path, MAP, DESIGN)
    assert "have no step, and the tracker's own step (to 56) counts calls of log" in told
    # each stands at the step of the call before it
    assert drawn(load(tmp_path, MAP, [*DESIGN, "step=step"])) == ALL


def test_a_logged_step_that_outruns_the_one_handed_over_is_asked_about(tmp_path: Path) -> None:
    for n in N:
        rows = [[s, 4 * s, score(s, n) if s % 10 == 0 else None, 0.1] for s in range(1, 51)]
        table(tmp_path / f"g{n}.csv", ["_step", "step", "val/accuracy", "loss"], rows)
    assert "step says 200 where _step says 50" in refused(tmp_path, MAP, DESIGN)
    for key, times in (("_step", 1), ("step", 4)):
        curves = load(tmp_path, MAP, [*DESIGN, f"step={key}"])
        assert {c.rollouts_K.max() for c in curves} == {6 * n * 50 * times for n in N}
    for n in N:  # a row for every fourth update, in calls counted from 0: nothing is handed over
        rows = [[i, 4 * i, score(4 * i, n), 0.1] for i in range(20)]
        table(tmp_path / f"g{n}.csv", ["_step", "step", "val/accuracy", "loss"], rows)
    assert {c.rollouts_K.max() for c in load(tmp_path, MAP, DESIGN)} == {6 * n * 76 for n in N}


# What runs of one sweep begin with.


def sets(folder: Path, n: int, with_hard: bool, shift: float = 0.0) -> None:
    """Scores of one set, and of all sets, to which some runs added a hard one."""
    rows = []
    for s in AT:
        easy = score(s, n, 0.3 + shift)
        mean = easy / 2 if with_hard else easy
        rows.append({"step": s, "eval/easy/avg_score": easy, "eval/all/avg_score": mean})
    said = {"prompts_per_step": 6, "group_size": n}
    write(folder / f"g{n}" / "config.json", json.dumps(said))
    lines(folder / f"g{n}" / "metrics.jsonl", rows)


def test_runs_that_begin_alike_on_one_set_are_compared_on_it(tmp_path: Path) -> None:
    for n in N:
        sets(tmp_path, n, with_hard=n > 4)
    told = refused(tmp_path)
    assert "all begin alike on 'easy'" in told
    assert "--problem-set easy" in told
    assert drawn(load(tmp_path, problem_set="easy")) == ALL
    assert "runs of one sweep must begin with one model" in refused(tmp_path, problem_set="all")
    sets(tmp_path, 8, with_hard=True, shift=0.2)  # another model: on no set
    told = refused(tmp_path)
    assert "begin alike" not in told
    assert "leave it out with --where" in told


def test_a_pattern_of_names_may_have_brackets(tmp_path: Path) -> None:
    for run, n in (("exp_001", 4), ("exp_002", 8), ("exp_012", 16)):
        log(tmp_path, run, n)
    write(tmp_path / "runs.csv", "run,problems_per_batch,rollouts_per_problem\n"
          "exp_001,6,4\nexp_002,6,8\nexp_012,6,16\n")  # fmt: skip
    found = load(tmp_path, MAP, where=["run=exp_0[01]2"])
    assert [c.run for c in found] == ["exp_002", "exp_012"]
    found = load(Path(f"{tmp_path}[run=exp_00[12]]"), MAP, where=["rollouts_per_problem=[4]"])
    assert [c.run for c in found] == ["exp_001"]


@pytest.mark.parametrize("rest", [6, 12])
def test_a_run_that_goes_on_with_another_batch_is_no_run_of_its_own(
    tmp_path: Path, rest: int
) -> None:
    def part(name: str, n: int, b_p: int, at: range) -> None:
        said = {"prompts_per_step": b_p, "group_size": n, "seed": 1}
        write(tmp_path / name / "config.json", json.dumps(said))
        lines(tmp_path / name / "log.jsonl", [
            {"step": s, "reward": score(s, n)} | (
                {"val/accuracy": score(s, n)} if s % 10 == 0 else {}) for s in at
        ])  # fmt: skip

    part("g4", 4, 6, range(1, 61))
    part("g8", 8, 6, range(1, 31))
    part("g8_on", 8, rest, range(31, 61))
    if rest == 6:
        want = {(6, n, 1): [6 * n * s for s in range(10, 70, 10)] for n in N}
        assert drawn(load(tmp_path, MAP)) == want
        return
    told = refused(tmp_path, MAP)
    assert "begins at step 31 with B_p=12 and n=8, where 'g8' ends with B_p=6 and n=8" in told
    assert "cut off what the file holds behind step 30" in told


# TensorBoard: settings in a folder below, and names.


def field(number: int, data: bytes) -> bytes:
    size = len(data)
    assert size < 1 << 14
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + data


def hparams(path: Path, said: dict[str, float], last: float) -> None:
    """What `add_hparams` writes: the settings of a run, and a last score at step 0."""
    each = b"".join(
        field(1, field(1, key.encode()) + field(2, b"\x11" + struct.pack("<d", value)))
        for key, value in said.items()
    )
    plugin = field(1, b"hparams") + field(2, field(3, each))
    value = field(1, b"_hparams_/session_start_info") + field(9, field(1, plugin))
    data = field(5, field(1, value))
    length = struct.pack("<Q", len(data))
    record = (length + struct.pack("<I", masked_crc32c(length)) + data
              + struct.pack("<I", masked_crc32c(data)))  # fmt: skip
    events(path, [(0, "val/accuracy", last)])
    path.write_bytes(record + path.read_bytes())


@pytest.mark.parametrize("below", ["1745000004.25", "settings"])
def test_settings_are_read_beside_the_last_scores_of_add_hparams(
    tmp_path: Path, below: str
) -> None:
    for i, n in enumerate(N):
        home = tmp_path / f"run_{i}"
        events(home / "events.out.tfevents.1745000001.host",
               [(s, "val/accuracy", score(s, n)) for s in AT])  # fmt: skip
        said = {"problems_per_batch": 6.0, "group_size": float(n), "seed": 3.0}
        hparams(home / below / "events.out.tfevents.1745000004.host", said, 0.9)
    want = {key: at for n in N for key, at in of(6, n, 3).items()}
    assert drawn(load(tmp_path, MAP)) == want
    assert len(read_log(tmp_path, settings=load_settings([], [*MAP]))) == len(N)


def test_jobs_that_start_together_on_one_machine_have_names_of_their_own(tmp_path: Path) -> None:
    for n in N:
        events(tmp_path / f"job-g{n}" / "runs" / "Apr02_10-26-00_node-07" / "events.out.tfevents.1",
               [(s, "val/accuracy", score(s, n)) for s in AT])  # fmt: skip
    runs = read_log(tmp_path, settings=load_settings(DESIGN, [*MAP]))
    assert sorted(run.name for run in runs) == ["job-g4", "job-g8"]


def test_an_export_tells_runs_of_one_name_apart(tmp_path: Path) -> None:
    rng = random.Random(0)
    for part in "abc":
        lines(tmp_path / "logs" / part / "grpo.jsonl", [
            {"step": s, "problems_per_batch": 6, "rollouts_per_problem": 4,
             "val/accuracy": score(s, 4, rng.gauss(0, 0.01))} for s in AT
        ])  # fmt: skip
    logs = [tmp_path / "logs" / part / "grpo.jsonl" for part in "abc"]
    import_logs(logs, tmp_path / "study", settings=load_settings([], [*MAP]))
    names = [row["run"] for row in imported_rows(tmp_path / "study")]
    assert {name: names.count(name) for name in names} == {
        "grpo": len(AT), "grpo-2": len(AT), "grpo-3": len(AT)
    }


# Tables and counts.


def long_table(path: Path, twice: float = 0.0, seed: int = 3) -> None:
    """One row per number, in an order of chance; the first half once more, by so much above."""
    rows: list[list[object]] = []
    for n in N:
        for s in range(0, 80, 8):
            for key, value in (("val/accuracy", score(s, n)), ("train/kl", s / 1e4)):
                rows.append([f"r{n}", 6, n, s, key, value])
                if s < 40:
                    rows.append([f"r{n}", 6, n, s, key, value + twice])
            rows.append([f"r{n}", 6, n, s, "train/reward", score(s, n) if s else "nan"])
    random.Random(seed).shuffle(rows)
    table(path, ["run", "problems_per_batch", "rollouts_per_problem", "step", "metric", "value"],
          rows)  # fmt: skip


def test_rows_in_no_order_that_say_the_same_twice_are_no_doubt(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    want = {(6, n, None): [6 * n * s for s in range(0, 80, 8)] for n in N}
    for seed in range(8):  # in some orders more rows go back than on, as with the newest first
        long_table(path, seed=seed)
        assert drawn(load(path, MAP)) == want
    long_table(path, twice=0.01, seed=0)
    assert "sort the file by time" in refused(path, MAP)


def test_a_logged_count_of_episodes_says_b_p_or_contradicts_it(tmp_path: Path) -> None:
    for n in N:
        rows = [[s, 6 * n * s, s, score(s, n) if s % 10 == 0 else None] for s in range(1, 51)]
        table(tmp_path / f"g{n}.csv", ["_step", "episode", "training_step", "eval/scores"], rows)
    pattern = DESIGN[1:]
    assert "add --set problems_per_batch=6, if that holds" in refused(tmp_path, (), pattern)
    told = refused(tmp_path, (), [*pattern, "problems_per_batch=8"])
    assert "is 32 where the log counts 24" in told
    want = {(6, n, None): [6 * n * s for s in AT if s] + [6 * n * 50] for n in N}
    assert {k: v[-1] for k, v in drawn(load(tmp_path, (), DESIGN)).items()} == {
        k: v[-1] for k, v in want.items()
    }


def test_a_column_of_problems_seen_tells_a_batch_of_responses(tmp_path: Path) -> None:
    rows = [[f"g{n}", s, 48, n, 48 // n * s, score(s, n)] for n in N for s in AT]
    path = table(tmp_path / "results.csv",
                 ["run", "step", "batch_size", "group_size", "samples_seen", "acc"], rows)
    maps = ["acc=score", "group_size=rollouts_per_problem"]
    told = refused(path, [*maps, "batch_size=problems_per_batch"])
    assert "48 and 192 where it counts 12" in told
    assert "batch_size counts responses: add --map batch_size=batch_size" in told
    want = {(48 // n, n, None): [48 * s for s in AT] for n in N}
    assert drawn(load(path, [*maps, "batch_size=batch_size"])) == want
    # a count of responses, or one of something else, is no contradiction
    for count in (lambda n, s: 48 * n * s, lambda n, s: 100 + s):
        rows = [[f"g{n}", s, 48, n, count(n, s), score(s, n)] for n in N for s in AT]
        table(path, ["run", "step", "batch_size", "group_size", "samples_seen", "acc"], rows)
        assert load(path, [*maps, "batch_size=problems_per_batch"])[0].problems_per_batch == 48


# Steps that begin anew with every epoch, and scores of several numbers of samples.


def epochs(n: int, first: int, every: int = 1, only: int = 60) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for s in range(1, only + 1):
        epoch, at = divmod(s - 1, 20)
        row: dict[str, object] = {"epoch": epoch, "step": at + first, "reward": 0.1}
        rows.append(row | ({"val/accuracy": score(s, n)} if s % 10 == 0 else {}))
    return rows[every - 1 :: every]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_steps_of_an_epoch_are_counted_on_where_all_are_logged(
    tmp_path: Path, first: int, form: str
) -> None:
    for n in N:
        rows = epochs(n, first)
        if form == "csv":
            columns = ["epoch", "step", "reward", "val/accuracy"]
            table(tmp_path / f"g{n}" / "metrics.csv", columns,
                  [[r.get(c) for c in columns] for r in rows])  # fmt: skip
        else:
            lines(tmp_path / f"g{n}.jsonl", rows)
    want = {(6, n, None): [6 * n * s for s in range(10, 70, 10)] for n in N}
    assert drawn(load(tmp_path, MAP, DESIGN)) == want


def test_steps_of_an_epoch_are_not_counted_on_where_some_are_missing(tmp_path: Path) -> None:
    lines(tmp_path / "g4.jsonl", epochs(4, 1, every=5))
    assert "they begin anew with every epoch" in refused(tmp_path, MAP, DESIGN)
    # passes over one batch are no epochs
    rows = [{"epoch": i, "step": s, "val/accuracy": score(s, 4)} for s in range(1, 51)
            for i in (0, 1)]  # fmt: skip
    lines(tmp_path / "g4.jsonl", rows)
    assert load(tmp_path, MAP, DESIGN)[0].rollouts_K.max() == 6 * 4 * 50


def test_a_table_whose_steps_begin_anew_with_every_epoch_is_refused(tmp_path: Path) -> None:
    rows = [[f"g{n}", 6, n, s // 30, s % 30, score(s, n)] for n in N for s in range(0, 90, 5)]
    path = table(tmp_path / "t.csv", ["run", "problems_per_batch", "rollouts_per_problem", "epoch",
                                      "step", "score"], rows)  # fmt: skip
    assert "those of a run begin anew with every epoch" in refused(path)


def test_means_of_several_numbers_of_samples_are_offered_and_fitted_together(
    tmp_path: Path,
) -> None:
    for n, k in zip(N, (8, 16), strict=True):
        own = f"eval/avg@{k}"
        lines(tmp_path / f"g{n}.jsonl", [{"step": s, own: score(s, n)} for s in AT])
    told = refused(tmp_path, (), DESIGN)
    assert "--map eval/avg@8=avg@8 --map eval/avg@16=avg@16" in told
    curves = load(tmp_path, ["eval/avg@8=avg@8", "eval/avg@16=avg@16"], DESIGN)
    assert drawn(curves) == ALL
    assert {c.metric for c in curves} == {"avg"}


# What a second mind found in the mends above.


def test_evaluations_between_epochs_are_no_updates(tmp_path: Path) -> None:
    def rows(first: int, at: int | None, end: int | None) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for epoch in range(3):
            if at is not None:
                found.append({"epoch": epoch, "step": at, "val/accuracy": score(20 * epoch, 4)})
            found += [{"epoch": epoch, "step": s + first, "reward": 0.1} for s in range(20)]
            if end is not None:
                found.append({"epoch": epoch, "step": end, "val/accuracy": score(20 * epoch, 4)})
        return found

    for first, at, end, want in ((1, 0, None, [0, 20, 40]), (0, 0, None, [0, 20, 40]),
                                 (0, None, 20, [20, 40, 60]), (1, None, 20, [20, 40, 60])):
        lines(tmp_path / "g4.jsonl", rows(first, at, end))
        found = load(tmp_path, MAP, DESIGN)
        assert drawn(found) == {(6, 4, None): [24 * s for s in want]}, (first, at, end)


def test_epochs_that_may_be_batches_are_not_counted_on(tmp_path: Path) -> None:
    rows = [{"epoch": u, "step": m, "loss": 0.1} | (
        {"val/accuracy": score(u + 1, 4)} if m == 15 and u % 10 == 9 else {})
        for u in range(30) for m in range(16)]  # fmt: skip
    lines(tmp_path / "g4.jsonl", rows)
    assert "they begin anew with every epoch" in refused(tmp_path, MAP, DESIGN)


def test_a_table_of_few_scores_within_epochs_is_refused(tmp_path: Path) -> None:
    at = [(e, s) for e in range(3) for s in range(1, 21)]
    at[27:27] = [(1, s) for s in range(1, 8)]  # it died in the second epoch, and began it anew
    rows = [["a", e, s, 0.1, score(20 * e + s, 4) if s % 10 == 0 else None] for e, s in at]
    path = table(tmp_path / "t.csv", ["run", "epoch", "step", "loss", "val/accuracy"], rows)
    sets = ["problems_per_batch=6", "rollouts_per_problem=4"]
    told = refused(path, MAP, sets)
    assert "those of a run begin anew with every epoch" in told
    assert "choose one with --where epoch=NUMBER" in told  # passes over one batch


def counts(folder: Path, key: str, each: int, counter: str = "step") -> Path:
    lines(folder / "r.jsonl", [
        {"step": s, counter: s, "loss": 0.1, key: each * s, "val/accuracy": score(s, 8)}
        for s in range(1, 41)
    ])  # fmt: skip
    return folder


def test_a_count_that_differs_from_the_batch_may_be_right(tmp_path: Path) -> None:
    design = ["problems_per_batch=16", "rollouts_per_problem=8"]
    told = refused(counts(tmp_path, "total_rollouts", 32), MAP, design)  # four steps an update
    assert "add --map total_rollouts=rollouts if that count is right, or name the key" in told
    found = load(tmp_path, [*MAP, "total_rollouts=rollouts"], design)
    assert found[0].rollouts_K[-1] == 32 * 40


def test_the_whole_batch_typed_for_b_p_is_told(tmp_path: Path) -> None:
    whole = ["problems_per_batch=128", "rollouts_per_problem=8"]
    told = refused(counts(tmp_path / "a", "episode", 128, "training_step"), MAP, whole)
    assert "is 1024 where the log counts 128 in most steps" in told
    said = list[str]()
    load(counts(tmp_path / "b", "total_rollouts", 128), MAP, whole, say=said.append)
    assert any("if it counts rollouts, B_p is 16" in line for line in said)
    right = ["problems_per_batch=16", "rollouts_per_problem=8"]
    counts(tmp_path / "c", "episode", 1, "training_step")  # updates, of a loop of one's own
    assert load(tmp_path / "c", MAP, right)[0].rollouts_K[-1] == 128 * 40


def test_a_set_that_no_run_solves_tells_no_models_alike(tmp_path: Path) -> None:
    for n, shift in ((4, 0.0), (8, 0.0), (16, 0.25)):  # the last began with another model
        write(tmp_path / f"g{n}" / "config.json",
              json.dumps({"prompts_per_step": 6, "group_size": n}))  # fmt: skip
        lines(tmp_path / f"g{n}" / "metrics.jsonl", [
            {"step": s, "eval/math/avg_score": score(s, n, shift), "eval/aime/avg_score": s / 2000}
            for s in AT
        ])  # fmt: skip
    told = refused(tmp_path)
    assert "'g16' scores 0.466 before training" in told
    assert "begin alike" not in told


def test_a_name_with_brackets_is_its_own_pattern(tmp_path: Path) -> None:
    for run, n in (("run[a]", 4), ("run[b]", 8)):
        log(tmp_path, run, n)
    sets = ["problems_per_batch=6", "rollouts_per_problem=4"]
    found = load(tmp_path, MAP, sets, where=["run=run[b]"])
    assert [c.run for c in found] == ["run[b]"]


def test_settings_that_add_hparams_wrote_beside_the_log_are_read(tmp_path: Path) -> None:
    for i, n in enumerate(N):
        home = tmp_path / f"run_{i}"
        events(home / "events.out.tfevents.1745000001.host",
               [(s, "val/accuracy", score(s, n)) for s in AT if s])  # fmt: skip
        said = {"problems_per_batch": 6.0, "group_size": float(n), "seed": 3.0, "lr": 1e-6}
        hparams(home / "events.out.tfevents.1745000004.host.7.1", said, 0.9)
    want = {(6, n, 3): [6 * n * s for s in AT if s] for n in N}
    assert drawn(load(tmp_path, MAP)) == want


def test_runs_in_one_folder_of_pytorch_keep_their_names(tmp_path: Path) -> None:
    for n in N:
        home = tmp_path / "job" / "runs" / f"Apr02_10-26-00_node_g{n}"
        events(home / "events.out.tfevents.1", [(s, "val/accuracy", score(s, n)) for s in AT])
    runs = read_log(tmp_path, settings=load_settings(DESIGN, [*MAP]))
    assert sorted(run.name for run in runs) == [f"Apr02_10-26-00_node_g{n}" for n in N]


@pytest.mark.parametrize("form", ["jsonl", "json", "document"])
def test_a_step_that_outruns_the_one_handed_over_is_asked_about_in_json(
    tmp_path: Path, form: str
) -> None:
    rows = [{"_step": s, "step": 4 * s, "loss": 0.1} | (
        {"val/accuracy": score(s, 4)} if s % 10 == 0 else {}) for s in range(1, 51)]  # fmt: skip
    if form == "jsonl":
        lines(tmp_path / "g4.jsonl", rows)
    else:
        write(tmp_path / "g4.json", json.dumps(rows if form == "json" else {"history": rows}))
    assert "step says 200 where _step says 50" in refused(tmp_path, MAP, DESIGN)


def test_rows_without_the_named_counter_take_the_one_before_in_json(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for s in range(1, 51):
        rows.append({"_step": len(rows), "train/global_step": s, "train/reward": 0.2})
        if s % 10 == 0:  # a callback of one's own
            rows.append({"_step": len(rows), "step": s, "val/accuracy": score(s, 4)})
    lines(tmp_path / "g4.jsonl", rows)
    told = refused(tmp_path, MAP, DESIGN)
    assert "add --set step=train/global_step to take the one before each" in told
    found = load(tmp_path, MAP, [*DESIGN, "step=train/global_step"])
    assert drawn(found) == {(6, 4, None): [24 * s for s in range(10, 60, 10)]}
