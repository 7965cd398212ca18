"""Problem sets: files of every kind, malformed rows, selection, mixtures, subsets, splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.errors import InputError
from isocompute.problems import (
    BANDS,
    MIXTURES,
    Problem,
    ProblemSet,
    load_problems,
    mix_problems,
    save_problems,
    select_problems,
    split_problems,
    subset_problems,
)


def write_lines(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def problem_set(rates: list[float | None], samples: int | None = 16) -> ProblemSet:
    return ProblemSet(
        name="all",
        problems=[
            Problem(id=str(i), prompt=f"p{i}", answer="1", pass_rate=r, pass_rate_samples=samples)
            for i, r in enumerate(rates)
        ],
    )


def ids(problems: ProblemSet) -> list[str]:
    return [p.id for p in problems.problems]


# ---- files ----


def test_jsonl_and_back(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "sums.jsonl",
        {"id": 7, "prompt": "1+1=", "answer": 2, "source": "hand", "pass_rate": 0.5,
         "pass_rate_samples": 16, "comment": "ignored"},
        "",
        {"prompt": "2+2=\u2028", "answer": "4", "verifier": "integer"},
    )
    problems = load_problems(path)
    assert problems.name == "sums"
    assert problems.verifier == "integer"
    assert problems.problems == (
        Problem(id="7", prompt="1+1=", answer="2", source="hand", pass_rate=0.5,
                pass_rate_samples=16),
        Problem(id="1", prompt="2+2=\u2028", answer="4"),
    )
    save_problems(problems, tmp_path / "copy.jsonl")
    again = load_problems(tmp_path / "copy.jsonl", name="sums")
    assert again == problems
    assert again.sha256 == problems.sha256
    assert [f.name for f in tmp_path.iterdir() if f.suffix == ".part"] == []


def test_parameters_of_loading_change_the_set(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        {"question": "x?", "meta": {"gold": "1", "rate": 0.25}},
        {"question": "y?", "meta": {"gold": "2", "rate": None}},
    )
    names = {"prompt": "question", "answer": "meta.gold", "pass_rate": "meta.rate"}
    problems = load_problems(path, name="mine", verifier="integer", columns=names)
    assert (problems.name, problems.verifier) == ("mine", "integer")
    assert [p.pass_rate for p in problems.problems] == [0.25, None]
    assert [p.prompt for p in problems.problems] == ["x?", "y?"]


VERL = [
    {
        "data_source": "math",
        "prompt": [{"role": "user", "content": f"What is {i}+1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(i + 1)},
        "extra_info": {"split": "train", "index": 10 + i},
    }
    for i in range(3)
]


def test_parquet_plain_and_verl(tmp_path: Path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": [1.0, None], "x": [0, 0]}), plain)
    with pytest.raises(InputError, match=r"`answer` must not be empty, but .*plain.parquet, row 2"):
        load_problems(plain)
    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": [1.0, 2.5]}), plain)
    assert [p.answer for p in load_problems(plain).problems] == ["1", "2.5"]

    verl = tmp_path / "verl.parquet"
    pq.write_table(pa.Table.from_pylist(VERL), verl)
    problems = load_problems(verl, verifier="integer")
    assert problems.problems[1] == Problem(
        id="11", prompt="What is 1+1?", answer="2", source="math"
    )
    # The same rows as JSONL; indices that repeat are replaced by row numbers.
    rows = [{**row, "extra_info": {"index": 0}} for row in VERL]
    assert ids(load_problems(write_lines(tmp_path / "verl.jsonl", *rows))) == ["0", "1", "2"]


def test_a_conversation_becomes_one_text(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    path = write_lines(tmp_path / "c.jsonl", {"prompt": messages, "answer": "2"})
    assert load_problems(path).problems[0].prompt == "Be brief.\n\n1+1?"


def test_hugging_face_folders(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["a", "b"], "answer": ["1", "2"]})
    hub = tmp_path / "hub" / "data"
    hub.mkdir(parents=True)
    pq.write_table(table, hub / "train-00000-of-00002.parquet")
    pq.write_table(table.slice(1), hub / "train-00001-of-00002.parquet")
    pq.write_table(table.slice(0, 1), hub / "test-00000-of-00001.parquet")
    train = load_problems(hub.parent, split="train")
    assert [p.prompt for p in train.problems] == ["a", "b", "b"]
    assert len(load_problems(hub.parent, split="test")) == 1
    with pytest.raises(InputError, match=r"`split` must be one of test, train .* but got None"):
        load_problems(hub.parent)

    saved = tmp_path / "saved" / "train"  # what DatasetDict.save_to_disk writes
    saved.mkdir(parents=True)
    for name in ("data-00000-of-00001.arrow", "cache-1234.arrow"):
        with pa.OSFile(str(saved / name), "wb") as sink, pa.ipc.new_stream(
            sink, table.schema
        ) as writer:
            writer.write_table(table)
    assert len(load_problems(saved.parent, split="train")) == 2
    assert len(load_problems(saved)) == 2
    with pa.OSFile(str(tmp_path / "random.arrow"), "wb") as sink, pa.ipc.new_file(
        sink, table.schema
    ) as writer:
        writer.write_table(table)
    assert len(load_problems(tmp_path / "random.arrow")) == 2


GOOD = {"prompt": "a", "answer": "1"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"bad.jsonl, line 2 is not \(Expecting property name"),
        ("[1]", "bad.jsonl, line 2 is of type list"),
        ("[" * 100_000, "bad.jsonl, line 2 is not"),
        ({"question": "a", "answer": "1"}, r"must be there.*columns: \{prompt: question\}"),
        ({"promt": "a", "answer": "1"}, r"rename it, .*columns: \{prompt: promt\}"),
        ({"prompt": "a"}, "column `answer` must be there, but .*line 2 has prompt; add"),
        ({"prompt": "a", "answer": None}, "`answer` must not be empty, but .*line 2 has none"),
        ({"prompt": " ", "answer": "1"}, "`prompt` must not be empty, but .*line 2"),
        ({"prompt": 3.5, "answer": "1"}, "`prompt` must be text or a list of messages"),
        ({"prompt": [], "answer": "1"}, "`prompt` must be text or a list of messages"),
        ({"prompt": [{"content": "a"}], "answer": "1"}, "must have a role and a text content"),
        ({"prompt": "a", "answer": True}, "`answer` must be text or a number, but .* has True"),
        ({"prompt": "a", "answer": ["1"]}, "`answer` must be text or a number"),
        ('{"prompt": "a", "answer": NaN}', "`answer` must be finite, but .*line 2 has nan"),
        ({**GOOD, "pass_rate": 1.5}, "`pass_rate` must be a number in 0..1, but .*line 2 has 1.5"),
        ({**GOOD, "pass_rate": "x"}, "`pass_rate` must be a number in 0..1"),
        ({**GOOD, "pass_rate_samples": 0}, "`pass_rate_samples` must be a whole number >= 1"),
        ({**GOOD, "pass_rate_samples": 1e999}, "`pass_rate_samples` must be a whole number >= 1"),
        ({**GOOD, "id": "0"}, r"ids must be unique, but .*line 2 has '0', which .*line 1 has"),
        ({**GOOD, "verifier": "math"}, "one set has one verifier, but .*line 1 says 'exact'"),
    ],
)
def test_a_malformed_row_names_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    path = write_lines(tmp_path / "bad.jsonl", {**GOOD, "verifier": "exact"}, row)
    with pytest.raises(InputError, match=message) as caught:
        load_problems(path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="must hold at least 1 problem, but .*empty.jsonl holds 0"):
        load_problems(tmp_path / "empty.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b'{"a": \xff\xfe}')
    with pytest.raises(InputError, match="must be UTF-8 text .* but byte 6 is not"):
        load_problems(tmp_path / "binary.jsonl")
    for ending in ("parquet", "arrow"):
        broken = tmp_path / f"broken.{ending}"
        broken.write_bytes(b"PAR1 not really")
        with pytest.raises(InputError, match=f"must be a readable {ending} file"):
            load_problems(broken)
    with pytest.raises(InputError, match="a problem file must exist, but .*nowhere.jsonl does not"):
        load_problems(tmp_path / "nowhere.jsonl")
    (tmp_path / "table.xlsx").write_text("")
    with pytest.raises(InputError, match=r"but got 'table.xlsx'; convert"):
        load_problems(tmp_path / "table.xlsx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="must hold .parquet or .arrow files"):
        load_problems(tmp_path / "folder")
    with pytest.raises(InputError, match="`split` chooses inside a folder"):
        load_problems(tmp_path / "empty.jsonl", split="train")
    with pytest.raises(InputError, match="`columns` must name .* but got promt"):
        load_problems(tmp_path / "empty.jsonl", columns={"promt": "x"})


def test_answers_are_checked_against_the_verifier(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", GOOD, {"id": "odd", "prompt": "b", "answer": "1.5"})
    with pytest.raises(InputError, match=r"'integer' must be able .* problem 'odd' .*'1.5'"):
        load_problems(path, verifier="integer")
    with pytest.raises(InputError, match="a verifier must be one of"):
        load_problems(path, verifier="intger")
    assert load_problems(path, verifier="math").verifier == "math"


def test_saving_needs_a_jsonl_name_and_a_folder(tmp_path: Path) -> None:
    problems = problem_set([None])
    with pytest.raises(InputError, match=r"but got 'a.csv'; name the file a.jsonl"):
        save_problems(problems, tmp_path / "a.csv")
    with pytest.raises(InputError, match="must be written to a folder that exists"):
        save_problems(problems, tmp_path / "absent" / "a.jsonl")


# ---- sets ----


def test_sets_refuse_nothing_and_repeats() -> None:
    with pytest.raises(InputError, match="'all' must hold at least 1 problem, but got 0"):
        problem_set([])
    twice = Problem(id="a", prompt="p", answer="1")
    with pytest.raises(InputError, match="'a' occurs 2 times"):
        ProblemSet(name="s", problems=[twice, twice])
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="`pass_rate` must lie in 0..1"):
            Problem(id="a", prompt="p", answer="1", pass_rate=rate)
    with pytest.raises(InputError, match="`pass_rate_samples` must be >= 1, but got 0"):
        Problem(id="a", prompt="p", answer="1", pass_rate_samples=0)


def test_the_hash_is_of_what_training_sees() -> None:
    base = problem_set([0.1, 0.2])
    assert problem_set([0.9, None]).sha256 == base.sha256
    assert base.replace(name="other", problems=base.problems).sha256 == base.sha256
    assert ProblemSet(name="all", problems=base.problems, verifier="math").sha256 != base.sha256
    assert base.replace(problems=base.problems[::-1]).sha256 != base.sha256


RATES: list[float | None] = [0.0, 1 / 16, 2 / 16, 0.3, 0.1 + 0.2, 7 / 16, 0.6, 0.75, 0.9, 1.0]


@pytest.mark.parametrize(
    ("band", "expected"),
    [
        ("easy", ["3", "4", "5", "6"]),  # ends included, also 0.30000000000000004
        ("hard", ["0", "1"]),
        ("very_easy", ["6", "7", "8"]),
        ((0.1, 0.3), ["2", "3", "4"]),
    ],
)
def test_selection_by_pass_rate(band: str, expected: list[str]) -> None:
    chosen = select_problems(problem_set(RATES), band)
    assert ids(chosen) == expected
    assert chosen.name == (f"all-{band}" if isinstance(band, str) else "all-0.1-0.3")
    assert select_problems(problem_set(RATES), band, name="mine").name == "mine"


def test_extremely_hard_needs_128_samples() -> None:
    with pytest.raises(InputError, match=r"pass rates from >= 128 samples, but no problem"):
        select_problems(problem_set([0.0, 0.5]), "extremely_hard")
    measured = problem_set([0.0, 1 / 128, 0.5], samples=128)
    assert ids(select_problems(measured, "extremely_hard")) == ["0"]


def test_selection_that_cannot_be_made() -> None:
    with pytest.raises(InputError, match="2 of 3 in set 'all' have none"):
        select_problems(problem_set([None, 0.1, None]), "hard")
    with pytest.raises(InputError, match=r"band easy \[0.3, 0.6\] must hold at least 1 problem"):
        select_problems(problem_set([0.0]), "easy")
    with pytest.raises(InputError, match="must be one of easy, hard, .* but got 'heavy'"):
        select_problems(problem_set([0.0]), "heavy")
    with pytest.raises(InputError, match="`0 <= low <= high <= 1` must hold"):
        select_problems(problem_set([0.0]), (0.5, 0.1))


def test_subsets_are_seeded_nested_and_in_order() -> None:
    full = problem_set([None] * 100)
    small = subset_problems(full, 10, np.random.default_rng(0))
    large = subset_problems(full, 50, np.random.default_rng(0))
    assert len(small) == 10
    assert set(ids(small)) < set(ids(large))
    assert ids(large) == sorted(ids(large), key=int)
    assert ids(small) == ids(subset_problems(full, 10, np.random.default_rng(0)))
    assert ids(small) != ids(subset_problems(full, 10, np.random.default_rng(1)))
    assert (small.name, subset_problems(full, 1, np.random.default_rng(0), name="one").name) == (
        "all-D10", "one"
    )
    for size in (0, 101):
        with pytest.raises(InputError, match=f"`1 <= size <= 100` must hold .* size={size}"):
            subset_problems(full, size, np.random.default_rng(0))


def test_splits_are_disjoint_also_in_prompts() -> None:
    full = problem_set([None] * 30)
    repeats = [
        Problem(id=f"again{i}", prompt=f"p{i}", answer="1") for i in range(10)
    ]
    full = full.replace(problems=[*full.problems, *repeats])
    train, validation = split_problems(full, 12, np.random.default_rng(0))
    assert (len(train), len(validation)) == (28, 12)
    assert not {p.prompt for p in train.problems} & {p.prompt for p in validation.problems}
    assert set(ids(train)) | set(ids(validation)) == set(ids(full))
    assert (train.name, validation.name) == ("all-train", "all-validation")
    other = split_problems(full, 12, np.random.default_rng(1))[1]
    assert ids(other) != ids(validation)


def test_splits_that_cannot_be_made() -> None:
    for size in (0, 3):
        with pytest.raises(InputError, match=f"`1 <= validation < 3` .* validation={size}"):
            split_problems(problem_set([None] * 3), size, np.random.default_rng(0))
    same = ProblemSet(
        name="same", problems=[Problem(id=str(i), prompt="p", answer="1") for i in range(4)]
    )
    with pytest.raises(InputError, match="groups of up to 4 equal prompts .* only 0 instead of 2"):
        split_problems(same, 2, np.random.default_rng(0))


def test_mixtures_have_the_shares_of_the_paper() -> None:
    rates: list[float | None] = [0.0] * 40 + [0.4] * 40 + [0.8] * 40
    full = problem_set(rates, samples=128)
    dual = mix_problems(full, "hetero_dual", np.random.default_rng(0), size=20)
    assert np.bincount([int(10 * (p.pass_rate or 0)) for p in dual.problems]).tolist() == [
        10, 0, 0, 0, 10
    ]
    tri = mix_problems(full, "hetero_tri", np.random.default_rng(0), size=40)
    counts = np.bincount([int(10 * (p.pass_rate or 0)) for p in tri.problems])
    assert counts[[0, 4, 8]].tolist() == [20, 10, 10]
    assert (dual.name, tri.name) == ("all-hetero_dual", "all-hetero_tri")
    assert len(mix_problems(full, "hetero_tri", np.random.default_rng(0))) == 80
    assert ids(tri) == sorted(ids(tri), key=int)
    again = mix_problems(full, "hetero_tri", np.random.default_rng(1), size=40, name="x")
    assert ids(again) != ids(tri)
    assert again.name == "x"
    assert sum(MIXTURES["hetero_tri"].values()) == 1
    assert set(MIXTURES["hetero_tri"]) <= set(BANDS)


def test_own_shares_and_borders() -> None:
    # 0.6 lies in both bands and counts for the one listed first.
    full = problem_set([0.6] * 4 + [0.8] * 4)
    shares = {"easy": 1 / 3, "very_easy": 2 / 3}
    mixed = mix_problems(full, shares, np.random.default_rng(0), size=5)
    assert sum(p.pass_rate == 0.6 for p in mixed.problems) == 2  # 1.67 rounds up, 3.33 down
    assert len(mixed) == 5


@pytest.mark.parametrize(
    ("mixture", "size", "message"),
    [
        ("hetero_quad", 4, "must be one of hetero_dual, hetero_tri, .* but got 'hetero_quad'"),
        ({"easy": 0.5}, 4, r"sum to 1, but got \{'easy': 0.5\}"),
        ({"easy": 1.5, "hard": -0.5}, 4, "must be > 0 and sum to 1"),
        ({}, 4, "must be > 0 and sum to 1"),
        ({"heavy": 1.0}, 4, "but got 'heavy'"),
        ("hetero_tri", 40, r"holds hard 2 \(needs 20\), easy 2 \(needs 10\)"),
        ("hetero_tri", 2, "get at least 1"),
    ],
)
def test_mixtures_that_cannot_be_made(mixture: Any, size: int, message: str) -> None:
    full = problem_set([0.0, 0.0, 0.4, 0.4, 0.8])
    with pytest.raises(InputError, match=message):
        mix_problems(full, mixture, np.random.default_rng(0), size=size)


def test_half_a_surrogate_pair_is_saved_as_json_says_it(tmp_path: Path) -> None:
    problem = Problem(id="1", prompt="half \ud83d, whole \U0001f600, é", answer="1")
    file = tmp_path / "p.jsonl"
    save_problems(ProblemSet(name="p", problems=[problem]), file)
    assert load_problems(file).problems == (problem,)
    assert "é" in file.read_text(encoding="utf-8")
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.jsonl"]
