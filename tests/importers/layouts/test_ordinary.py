"""What ordinary people call their runs is no recipe; what may be one is asked about."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from isocompute.errors import InputError
from isocompute.importers.tables import curves, tidy
from isocompute.importers.tables.table import Naming, read_table
from isocompute.importers.words.settings import Settings
from isocompute.sources import load_curves
from isocompute.store.arms import with_where
from layout_helpers import AT, drawn, lines, load, refused, score, write

GRID = [(n, seed) for n in (4, 8, 16) for seed in (1, 2)]
ACC = ["val/accuracy=avg"]
SETS = ["pattern=n{rollouts_per_problem}*s{seed}", "problems_per_batch=6"]
HEAD = "run,problems_per_batch,rollouts_per_problem,seed,step,score"


def logs(folder: Path, names: dict[tuple[int, int], str], shift: float = 0.0) -> None:
    for (n, seed), name in names.items():
        lines(folder / f"{name}.jsonl", (
            {"step": s, "val/accuracy": score(s, n, seed / 700 + shift)} for s in AT))  # fmt: skip


def table(path: Path, column: str, values: list[object]) -> Path:
    rows = [f"r{n}{seed},6,{n},{seed},{s},{score(s, n, seed / 700)},{value}"
            for (n, seed), value in zip(GRID, values, strict=True) for s in AT]  # fmt: skip
    return write(path, "\n".join([f"{HEAD},{column}", *rows]) + "\n")


@pytest.mark.parametrize("ends", [
    ["", "", "", "_v2_fixed", "", ""], ["", "_resumed", "", "", "_after_oom", ""],
    ["_a100", "_h100", "_h100", "_a100", "_a100", "_h100"],
    ["_athena", "_hermes", "_hermes", "_athena", "_zeus", "_athena"],
    ["_alice", "_bob"] * 3, ["_may", "_june"] * 3,
])  # fmt: skip
def test_words_of_a_whole_grid_are_no_recipe(tmp_path: Path, ends: list[str]) -> None:
    logs(tmp_path, {(n, s): f"n{n}{end}_s{s}" for (n, s), end in zip(GRID, ends, strict=True)})
    assert len(load(tmp_path, ACC, SETS)) == 6


@pytest.mark.parametrize(("ends", "more"), [
    (["_grpo", "_gspo"] * 3, {}), (["", "_kl"] * 3, {}),
    ([""] * 6, {(n, 3): "_other" for n in (4, 8, 16)}), ([""] * 6, {(8, 3): "_fixed"}),
])  # fmt: skip
def test_words_of_seeds_that_may_be_a_recipe_are_asked_about(
    tmp_path: Path, ends: list[str], more: dict[tuple[int, int], str]
) -> None:
    of = {**dict(zip(GRID, ends, strict=True)), **more}
    logs(tmp_path, {(n, s): f"n{n}{end}_s{s}" for (n, s), end in of.items()})
    told, count = refused(tmp_path, ACC, SETS), min(len([*filter(None, ends)]), 3) + len(more)
    assert "another word of a name may say another recipe, but" in told
    assert f"leave {'it' if count == 1 else f'the {count} like it'} out with --where" in told
    assert len(load(tmp_path, ACC, SETS, where=["run=*"])) == len(of)


def test_seeds_by_letters_are_seeds(tmp_path: Path) -> None:
    names = {(n, s): f"n{n}{letter}" for n in (4, 8) for s, letter in ((1, "a"), (2, "b"))}
    logs(tmp_path, names)
    for (n, s), name in names.items():
        write(tmp_path / f"{name}.json", json.dumps({"seed": s, "num_generations": n}))
    assert len(load(tmp_path, ACC, ["problems_per_batch=6"])) == 4


def test_a_letter_behind_the_seed_of_a_name_is_no_recipe(tmp_path: Path) -> None:
    names = {(n, s): f"grpo-n{n}-s{s}{'x' * (s == 1)}" for n in (4, 8) for s in (1, 2, 3)}
    rows = [f"{name},6,{n},{s},{at},{score(at, n, s / 700)}"
            for (n, s), name in names.items() for at in AT]  # fmt: skip
    file = write(tmp_path / "all.csv", "\n".join([HEAD, *rows]) + "\n")
    assert len(load(file)) == 6
    word = write(tmp_path / "kl.csv", file.read_text().replace("s1x", "s1kl"))
    assert "another word of a name may say another recipe" in refused(word)


@pytest.mark.parametrize(("column", "values"), [
    ("setup", ["8xA100", "8xH100", "8xH100", "8xA100", "8xA100", "8xH100"]),
    ("condition", ["ok", "ok", "ok", "restarted once", "ok", "ok"]),
    ("scheduler", ["slurm", "k8s"] * 3), ("algo", ["GRPO", "grpo"] * 3),
    ("algo", ["grpo", "grpo", "grpo", "", "grpo", "grpo"]),
    ("max_response_length", [4096, "4096.0"] * 3),
])  # fmt: skip
def test_a_column_of_hosts_or_of_one_value_is_no_recipe(
    tmp_path: Path, column: str, values: list[object]
) -> None:
    assert len(load(table(tmp_path / "all.csv", column, values))) == 6


@pytest.mark.parametrize(("column", "values"), [
    ("algo", ["grpo", "dapo"] * 3), ("max_response_length", [1024, 1024, 1024, 4096, 1024, 1024]),
    ("variant", ["grpo", "gspo"] * 3),
])  # fmt: skip
def test_a_column_of_a_recipe_is_asked_about_in_a_whole_grid(
    tmp_path: Path, column: str, values: list[object]
) -> None:
    file = table(tmp_path / "all.csv", column, values)
    assert f"runs must share their {column.replace('_', ' ')}" in refused(file)
    assert len(load(file, where=[f"{column}=*"])) == 6


def test_of_two_sweeps_the_larger_that_a_pattern_finds_is_offered(tmp_path: Path) -> None:
    logs(tmp_path, {(n, s): f"grpo_n{n}_s{s}" for n, s in GRID})
    logs(tmp_path, {(n, 1): f"dapo_n{n}_s1" for n in (4, 8)}, 0.03)
    told = refused(tmp_path, ACC, SETS)
    assert "'grpo*' (6 runs) and 'dapo*' (2) have the same ones; choose with --where run='g" in told
    assert "or all others with --where run='!grpo*'" in told
    assert len(load(tmp_path, ACC, SETS, where=["run=grpo*"])) == 6
    assert len(load(tmp_path, ACC, SETS, where=["run=!grpo*"])) == 2


def test_what_is_left_of_three_sweeps_must_be_one(tmp_path: Path) -> None:
    for shift, name in enumerate(("grpo", "gspo", "dapo")):
        logs(tmp_path, {(n, s): f"{name}_n{n}_s{s}" for n, s in GRID}, shift / 9)
    told = refused(tmp_path, ACC, SETS, where=["run=!grpo*"])
    assert "'dapo*' (6 runs) and 'gspo*' (6) have the same ones" in told
    for kept in (["run=!grpo*", "run=!dapo*"], ["run=g*", "run=!grpo*", "seed=*"]):
        assert {c.run[:4] for c in load(tmp_path, ACC, SETS, where=kept)} == {"gspo"}
    assert len(load(tmp_path, ACC, SETS, where=["run=!grpo*", "run=*"])) == 12


def test_a_selection_that_leaves_all_or_nothing_out_says_so(tmp_path: Path) -> None:
    logs(tmp_path, {(n, s): f"n{n}_s{s}" for n, s in GRID})
    said = list[str]()
    assert len(load(tmp_path, ACC, SETS, where=["run=!diverged*"], say=said.append)) == 6
    assert any("--where 'run=!diverged*' leaves nothing out of 'n16_s1'" in line for line in said)
    assert "but got '!n*', which leaves out all" in refused(tmp_path, ACC, SETS, where=["run=!n*"])
    assert "must read KEY=VALUE" in refused(tmp_path, ACC, SETS, where=["run=!"])
    file, told = table(tmp_path / "t.csv", "host", [*"abcdef"]), list[str]()
    load(file, where=["host=!g"], say=told.append)
    assert told == [f"{file}: --where 'host=!g' leaves nothing out of 'a', 'b', 'c', 'd', 'e', 'f'"]


@pytest.mark.parametrize("name", ["it's", "a[b]", "a[b", "x=y", "p q", "c,d", "!z", "q?", "st*r"])
def test_the_run_to_leave_out_is_named_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    logs(tmp_path, {(n, s): f"n{n}_s{s}" for n, s in GRID})
    logs(tmp_path, {(8, 3): f"{name}_n8_s3"}, 0.1)
    with pytest.raises(InputError) as caught:
        load(tmp_path, ACC, SETS)
    flag, word = caught.value.options
    assert (flag, word) == ("--where", f"run=!{name}_n8_s3")
    source = with_where(str(tmp_path), [word, "seed=*"])  # as the command line gives it
    assert {c.run for c in load(source, ACC, SETS)} == {f"n{n}_s{s}" for n, s in GRID}


@pytest.mark.parametrize("words", [("oldreward", "newreward"), ("alice", "bob")])
def test_words_that_go_along_with_the_seed_are_told(tmp_path: Path, words: tuple[str, str]) -> None:
    names = {(n, s): f"{words[s - 1]}_n{n}_s{s}" for n, s in GRID}
    logs(tmp_path / "logs", names)
    rows = [f"{name},6,{n},{s},{at},{score(at, n, s / 700)}"
            for (n, s), name in names.items() for at in AT]  # fmt: skip
    file = write(tmp_path / "all.csv", "\n".join([HEAD, *rows]) + "\n")
    for source, how in ((tmp_path / "logs", (ACC, SETS)), (file, ((), ()))):
        said = list[str]()
        assert len(load(source, *how, say=said.append)) == 6
        (line,) = (line for line in said if "are of one seed each" in line)
        chosen = shlex.split(line.rpartition("--where ")[2])
        assert {c.seed for c in load(source, *how, where=chosen)} in ({1}, {2})
        load(source, *how, where=["run=*"], say=(more := list[str]()).append)
        assert not any("of one seed" in line for line in more)


@pytest.mark.parametrize(("column", "values", "told"), [
    ("tag", ["a", "b"] * 3, "tag (a, b)"), ("kl", [0.001, 0.01] * 3, "kl (0.001, 0.01)"),
    ("tag", ["", "", "", "v2", "", ""], ""), ("tag", [*"abcdef"], ""),
    ("host", ["gpu1", "gpu2", "gpu2", "gpu3", "gpu1", "gpu2"], ""),
    ("started", ["2026-05-01", "2026-05-02", "2026-05-02", "2026-05-02", "2026-05-04",
                 "2026-05-01"], ""), ("day", ["2026-05-01", "2026-05-02T10:30"] * 3, ""),
    ("user", ["ann", "bob"] * 3, "user (ann, bob)"),
    ("note", ["GRPO", "grpo"] * 3, ""), ("of_n", ["a", "a", "b", "b", "c", "c"], ""),
    ("data_seed", [7, 8] * 3, ""),
])  # fmt: skip
def test_a_column_that_is_not_read_and_differs_between_repetitions_is_told(
    tmp_path: Path, column: str, values: list[object], told: str
) -> None:
    file, said = table(tmp_path / "all.csv", column, values), list[str]()
    assert len(load(file, say=said.append)) == 6
    lines_of = [line for line in said if "makes another recipe" in line]
    assert len(lines_of) == (told != "")
    if told:
        assert told in lines_of[0]
        chosen = shlex.split(lines_of[0].rpartition("--where ")[2])
        assert 0 < len(load(file, where=chosen, say=(more := list[str]()).append)) < 6
        assert not any("differ in" in line for line in more)


def test_measurements_are_not_gone_through_to_see_that_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them took hours."""
    values = {(n, s): f"{s}" for n, s in GRID}
    rows = [f"n{n}_s{s},6,{n},{s},{at},{score(at, n, s / 700)},{values[n, s]},{n + s / 7 + at:.6f}"
            for n, s in GRID for at in AT]  # fmt: skip
    file = write(tmp_path / "all.csv", "\n".join([f"{HEAD},tag,entropy", *rows]) + "\n")
    packed = tmp_path / "all.parquet"
    pq.write_table(pyarrow.csv.read_csv(file), packed)
    taken, seen = list[str](), list[str]()

    def read(path: Path, naming: Naming) -> pa.Table:
        found = read_table(path, naming)
        taken.extend(found.column_names)
        return found

    monkeypatch.setattr(curves, "plain_value", lambda text: seen.append(text) or text)
    for source in (file, packed):
        said = list[str]()
        tidy.curves_of(source, (0.0, 1.0), {}, Settings(), say=said.append, read=read)
        assert "tag (1, 2)" in " ".join(said)
        assert {*seen} == {"1", "2"}
        assert source is packed or "entropy" not in taken


@pytest.mark.parametrize(("seeds", "tags", "told"), [
    ([1, 2, 3, 1, 1, 2], ["a", "a", "b", "a", "a", "a"], False),  # b was done at one n alone
    ([1, 2, 3, 1, 1, 2], ["a", "b", "b", "a", "a", "b"], True),  # a has a seed at every n
    ([1, 1, 2, 2, 1, 2], ["a", "b", "a", "b", "a", "a"], True),  # b has seeds of a once more
    (None, ["a", "b", "a", "b", "b", "a"], True), (None, ["a", "a", "a", "b", "b", "b"], False),
])  # fmt: skip
def test_a_column_is_told_where_its_values_are_sweeps_of_their_own(
    tmp_path: Path, seeds: list[int] | None, tags: list[str], *, told: bool
) -> None:
    rows = [f"r{i},6,{n},{'' if seeds is None else seeds[i]},{s},{score(s, n, i / 700)},{tags[i]}"
            for i, n in enumerate((4, 4, 4, 8, 16, 16) if seeds == [1, 2, 3, 1, 1, 2]
                                  else (4, 4, 8, 8, 16, 16)) for s in AT]  # fmt: skip
    said = list[str]()
    load(write(tmp_path / "all.csv", "\n".join([f"{HEAD},tag", *rows]) + "\n"), say=said.append)
    assert any("tag (a, b) count as repetitions" in line for line in said) == told


def test_a_seed_that_two_logs_have_is_told(tmp_path: Path) -> None:
    logs(tmp_path / "logs", {(n, s): f"n{n}_s{s}" for n, s in GRID})
    early = [{"step": s, "val/accuracy": score(s, 8, 0.01)} for s in AT[:3]]
    lines(tmp_path / "died/n8_s1.jsonl", early)
    found = load(tmp_path, ACC, SETS, say=(said := list[str]()).append)
    assert len(found) == 7
    (line,) = (line for line in said if "count as repetitions" in line)
    assert line.startswith(f"{tmp_path}/logs/n8_s1.jsonl and {tmp_path}/died/n8_s1.jsonl are both")
    assert line.endswith("a start that died, move it out of the folder")
    load(tmp_path, ACC, SETS, where=["run=*"], say=(said := list[str]()).append)
    assert said == []
    for file in (tmp_path / "logs").iterdir():  # a default of all runs tells nothing
        file.rename(file.with_name(f"{file.stem.replace('_s', '-')}.jsonl"))
    write(tmp_path / "runs.csv", "run,seed\n" + "".join(
        f"{name},42\n" for name in ["n8_s1", *(f"n{n}-{s}" for n, s in GRID)]))  # fmt: skip
    found = load(tmp_path, ACC, ["pattern=n{rollouts_per_problem}", *SETS[1:]],
                 where=["run=!n8_s1"], say=(said := list[str]()).append)  # fmt: skip
    assert {c.seed for c in found} == {42}
    assert not any("count as repetitions" in line for line in said)


def test_tables_given_apart_that_say_two_recipes_are_asked_about(tmp_path: Path) -> None:
    one = table(tmp_path / "a.csv", "algo", ["grpo"] * 6)
    other = table(tmp_path / "b.csv", "algo", ["gspo"] * 6)
    other.write_text(other.read_text().replace(",0.2", ",0.3").replace("\nr", "\nq"))
    sources = [str(one), str(other)]
    with pytest.raises(InputError, match="must share their algo") as caught:
        load_curves(sources)
    assert caught.value.options == ("--where", "algo=grpo")
    said = list[str]()
    assert {c.run[0] for c in load_curves(sources, where=["algo=grpo"], say=said.append)} == {"r"}
    assert f"left out: {other}: algo must be one of 'gspo', but got 'grpo'" in said
    assert len(load_curves(sources, where=["algo=*"])) == 12
    with pytest.raises(InputError, match="must be one of 'grpo', but got 'dapo'"):
        load_curves(sources, where=["algo=dapo"])


@pytest.mark.parametrize("key", ["retrieval_acc", "constraint_ok", "latest_score"])
def test_a_split_is_named_by_a_word_and_not_by_a_part_of_one(tmp_path: Path, key: str) -> None:
    for n in (4, 8):
        lines(tmp_path / f"n{n}.jsonl", (
            {"step": s, "split": split, key: score(s, n, shift)}
            for s in AT for split, shift in (("train", 0.1), ("eval", 0.0))))  # fmt: skip
    sets = ["pattern=n{rollouts_per_problem}", "problems_per_batch=6"]
    found = load(tmp_path, [f"{key}=avg"], sets)
    assert [c.score_K.tolist() for c in found] == [[score(s, n) for s in AT] for n in (4, 8)]


@pytest.mark.parametrize("key", ["training_step", "train_step", "update", "global_step/max_steps"])
def test_json_lines_and_documents_know_the_same_steps(tmp_path: Path, key: str) -> None:
    rows = [{key: s if "/" not in key else f"{s}/50", "val/accuracy": score(s, 8)} for s in AT]
    lines(tmp_path / "a" / "n8.jsonl", rows)
    write(tmp_path / "b" / "n8.json", json.dumps({"config": {"lr": 1e-6}, "history": rows}))
    for folder in "ab" if "/" not in key else "a":
        found = load(tmp_path / folder, ACC, ["rollouts_per_problem=8", "problems_per_batch=6"])
        assert drawn(found) == {(6, 8, None): [48.0 * s for s in AT]}


@pytest.mark.parametrize("key", ["experimentKey", "run_id", "wandb_id"])
def test_runs_of_one_name_are_told_apart_by_what_trackers_add(tmp_path: Path, key: str) -> None:
    rows = [{"run": "grpo", key: f"id{i}", "step": s, "validation/accuracy": score(s, 8, i / 700)}
            for i in (1, 2) for s in AT]  # fmt: skip
    lines(tmp_path / "a" / "log.jsonl", rows)
    write(tmp_path / "b" / "log.csv", "\n".join(
        [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    for folder in "ab":
        found = load(tmp_path / folder, (), ["problems_per_batch=6", "rollouts_per_problem=8"])
        assert [c.score_K[0] for c in found] == [score(0, 8, i / 700) for i in (1, 2)]
