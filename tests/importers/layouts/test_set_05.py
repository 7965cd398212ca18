"""A fifth set of layouts: what was misread, or refused without a way on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log
from isocompute.importers.tables.tidy import load_tidy

PATTERN = ["problems_per_batch=32", "pattern=n{rollouts_per_problem}"]


def verl(path: Path) -> Path:
    rows = [{"step": s, "data": {"val-core/math/acc/mean@4": 0.3 + s / 1000}} for s in (0, 20, 40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_an_archive_beside_logs_is_named(tmp_path: Path) -> None:
    path = verl(tmp_path / "bp32_n8.jsonl")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as file:
        file.write(path, "bp32_n16.jsonl")
    (run,) = read_log(tmp_path, settings=load_settings(PATTERN))
    assert run.notes[-1] == "more.zip: archives of the folder were not opened; unpack them"
    path.unlink()
    with pytest.raises(InputError, match=r"holds archives \(more\.zip\); unpack them first"):
        read_log(tmp_path, settings=load_settings(PATTERN))


def batches(path: Path, times: Any) -> Path:
    rows = ["train_batch_size,n,step,accuracy"]
    rows += [f"{times(n)},{n},{s},{0.3 + s / 1000}" for n in (8, 16) for s in (0, 20, 40)]
    path.write_text("\n".join(rows))
    return path


def test_a_batch_of_responses_is_not_taken_for_problems(tmp_path: Path) -> None:
    mapped = tmp_path / "columns.yaml"
    words = "n: rollouts_per_problem, step: steps, accuracy: score"
    mapped.write_text(f"columns: {{train_batch_size: problems_per_batch, {words}}}")
    settings = load_settings([], mapped)
    table = batches(tmp_path / "of-responses.csv", lambda n: 32 * n)
    with pytest.raises(InputError, match=r"'train_batch_size' is 32 times every n.*batch=32 and"):
        load_tidy(table, settings=settings)
    curves = load_tidy(batches(tmp_path / "of-problems.csv", lambda _: 64), settings=settings)
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in curves} == {(64, 8), (64, 16)}
    mapped.write_text(f"columns: {{{words}}}")
    settings = load_settings(["problems_per_batch=32"], mapped)
    curves = load_tidy(table, settings=settings)
    assert {(c.problems_per_batch, c.rollouts_K[-1]) for c in curves} == {
        (32, 40 * 256), (32, 40 * 512)}  # fmt: skip


def history(path: Path, rows: list[str], header: str = "Name,seed,training/global_step") -> Path:
    path.write_text("\n".join([f"{header},val-core/math/acc/mean@4", *rows]))
    return path


def test_two_runs_of_one_name_are_not_woven_into_one(tmp_path: Path) -> None:
    rows = [f"b32-n8,{seed},{step},{0.3 + step / 1000}" for seed, first in ((1, 0), (2, 5))
            for step in range(first, 60, 10)]  # fmt: skip
    settings = load_settings(["pattern=b{problems_per_batch}-n{rollouts_per_problem}"])
    with pytest.raises(InputError, match="a run must have one seed, but the rows of 'b32-n8' have"):
        read_log(history(tmp_path / "wide.csv", rows), settings=settings)
    long = ["run,seed,step,metric,value"] + [
        f"b32-n8,{seed},{step},val-core/math/acc/mean@4,{0.3 + step / 1000}"
        for seed, first in ((1, 0), (2, 5)) for step in range(first, 60, 10)
    ]
    (tmp_path / "long.csv").write_text("\n".join(long))
    with pytest.raises(InputError, match="a run must have one seed.* have 1 and 2; give each run"):
        read_log(tmp_path / "long.csv", settings=settings)
    (run,) = read_log(history(tmp_path / "one.csv", rows[:6]), settings=settings)
    assert (run.problems_per_batch, run.rollouts_per_problem) == (32, 8)


def test_a_batch_that_grows_is_not_read_as_its_first_size(tmp_path: Path) -> None:
    rows = [{"step": s, "problems_per_batch": 32 if s < 40 else 64, "rollouts_per_problem": 8,
             "seed": 0, "val-core/math/acc/mean@4": 0.3} for s in (0, 20, 40, 60)]  # fmt: skip
    path = tmp_path / "ramp.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"one problems_per_batch, .* have 32 and 64"):
        read_log(path)
    grown = [{**row, "problems_per_batch": 32, "n": 4 + row["step"]} for row in rows]
    lines = [json.dumps(row).replace("rollouts_per_problem", "x") for row in grown]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"one n, .* have 4 and 24"):
        read_log(path, settings=load_settings(["rollouts_per_problem=8"]))
    path.write_text("\n".join(map(json.dumps, rows[:2])))
    (run,) = read_log(path)
    assert (run.problems_per_batch, run.seed) == (32, 0)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"dynamic_filtering": True}, "dynamic_filtering"),
        ({"trainer": {"algorithm": {"dynamic_sampling": {"type": "filter"}}}}, "dynamic_sampling"),
        ({"grpo": {"use_dynamic_sampling": True}}, "grpo.use_dynamic_sampling"),
        ({"algorithm": {"online_filtering": True}}, "algorithm.online_filtering"),
        ({"dynamic_sampling_filter_path": "a.b.check"}, "dynamic_sampling_filter_path"),
        ({"dynamic_filtering": False, "dynamic_sampling_filter_path": None}, None),
        ({"trainer": {"algorithm": {"dynamic_sampling": {"type": None}}}}, None),
    ],
)
def test_dynamic_sampling_is_said_of_every_trainer(
    tmp_path: Path, config: dict[str, Any], named: str | None
) -> None:
    path = verl(tmp_path / "bp32_n8.jsonl")
    path.write_text(json.dumps({"config": config}) + "\n" + path.read_text())
    (run,) = read_log(path, settings=load_settings(PATTERN))
    said = [note for note in run.notes if "refills batches: more rollouts were drawn" in note]
    assert [named in note for note in said if named] == ([True] if named else [])
    assert bool(said) is (named is not None)


@pytest.mark.parametrize("name", ["Rollouts (thousands)", "rollouts (k)", "steps [x10]"])
def test_a_count_in_another_unit_is_refused(tmp_path: Path, name: str) -> None:
    meaning = name.split()[0].lower()
    path, mapped = tmp_path / "t.csv", tmp_path / "columns.yaml"
    rows = [f"32,{n},{s},{0.3 + s / 1000}" for n in (8, 16) for s in (0, 20, 40)]
    path.write_text("\n".join([f"problems_per_batch,rollouts_per_problem,{name},score", *rows]))
    mapped.write_text(f"columns: {{'{name}': {meaning}}}")
    with pytest.raises(InputError, match=f"{meaning} must be plain counts.* names a unit"):
        load_tidy(path, settings=load_settings([], mapped))
