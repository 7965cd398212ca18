"""What the twenty-eighth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import import_logs
from layout_helpers import load, refused
from test_layouts_eighteenth import write
from test_layouts_sixteenth import drawn, score

STEPS = range(0, 41, 10)
MAP = ("dev/exact=avg",)


def looped(folder: Path, n: int, trained: int, rows: range, **more: object) -> None:
    """A loop that evaluates at 1, 11, 21, ... and once more at the end."""
    said = {"problems_per_batch": 6, "rollouts_per_problem": n, **more}
    write(folder / f"own-n{n}.config.json", json.dumps(said))
    log = list[dict[str, object]]()
    for step in rows:
        row: dict[str, object] = {"step": step}
        if step <= trained:
            row |= {"loss": 0.1, "train/reward": 0.4}
        if step % 10 == 1:
            row["dev/exact"] = score(step, n)
        log.append(row)
    write(folder / f"own-n{n}.jsonl", "\n".join(map(json.dumps, log)))


# Evaluations in the row of the update that follows them.


@pytest.mark.parametrize(
    ("trained", "plan", "earlier"), [(40, 40, 1), (40, None, 1), (41, None, 0), (40, 41, 0)]
)
def test_an_evaluation_beyond_the_last_update_was_before_it(
    tmp_path: Path, trained: int, plan: int | None, earlier: int
) -> None:
    for n in (2, 4):
        looped(tmp_path, n, trained, range(1, 42), **({"num_updates": plan} if plan else {}))
    found = load(tmp_path, MAP)
    at = [step - earlier for step in range(1, 42, 10)]
    assert drawn(found) == {(6, n, None): [6 * n * s for s in at] for n in (2, 4)}
    assert found[0].score_K[0] == score(1, found[0].rollouts_per_problem)


# A score that was renamed between the runs of a sweep.


def cookbook(folder: Path, n: int, word: str) -> None:
    home = folder / f"{n}group"
    said = {"dataset_builder": {"batch_size": 8, "group_size": n, "seed": 3}}
    write(home / "config.json", json.dumps(said))
    rows = ({"step": step, "test/env/all/reward/total": score(step, n) - 0.1,
             f"test/env/all/{word}": score(step, n), "env/all/reward/total": 0.3}
            for step in STEPS)  # fmt: skip
    write(home / "metrics.jsonl", "\n".join(map(json.dumps, rows)))


def test_a_score_under_two_names_is_asked_for_and_read_as_one(tmp_path: Path) -> None:
    for n, word in ((4, "correct"), (8, "correct"), (16, "accuracy")):
        cookbook(tmp_path, n, word)
    both = ["test/env/all/correct=own", "test/env/all/accuracy=own"]
    told = refused(tmp_path, metric="avg:correct")
    assert "2 hold test/env/all/correct and 1 hold test/env/all/accuracy in its place" in told
    assert f"add --map {both[0]} --map {both[1]} (fit and plan take it with --metric own)" in told
    with pytest.raises(InputError) as caught:
        import_logs([tmp_path], tmp_path / "study")
    assert caught.value.options == ("--map", both[0], "--map", both[1])
    found = load(tmp_path, both, metric="own")
    assert drawn(found) == {(8, n, 3): [8 * n * s for s in STEPS] for n in (4, 8, 16)}
    assert {c.score_K[0] for c in found} == {score(0, n) for n in (4, 8, 16)}
    apart = load(tmp_path, ["test/env/all/accuracy=other"], metric="avg:correct")
    assert {c.rollouts_per_problem for c in apart} == {4, 8}


def test_another_rate_beside_the_score_of_all_runs_is_no_new_name_of_it(tmp_path: Path) -> None:
    for n in (4, 8):
        cookbook(tmp_path, n, "correct")
    text = (tmp_path / "8group" / "metrics.jsonl").read_text()
    write(tmp_path / "8group" / "metrics.jsonl", text.replace(
        '"env/all/reward', '"test/env/all/solved_once": 0.5, "env/all/reward'))  # fmt: skip
    assert len(load(tmp_path, metric="avg:correct")) == 2


# The line that an import offers.


def test_a_score_of_training_by_its_name_is_read_from_a_study_of_logs(tmp_path: Path) -> None:
    for n in (4, 8):
        rows = ({"step": step, "rewards/exact/mean": score(step, n), "reward": 1.4, "loss": 0.1,
                 "kl": 0.1, "problems_per_batch": 6, "rollouts_per_problem": n}
                for step in range(1, 41))  # fmt: skip
        write(tmp_path / "logs" / f"a{n}.jsonl", "\n".join(map(json.dumps, rows)))
    import_logs([tmp_path / "logs"], tmp_path / "study")
    found = load(tmp_path / "study", split="train", metric="avg:exact")
    assert {c.rollouts_per_problem: c.score_K[0] for c in found} == {
        n: score(1, n) for n in (4, 8)
    }
