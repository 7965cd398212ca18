"""The curves of the study that are shipped: which panels, which numbers, and their names."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.importers import load_published

N = {
    ("easy", 32): (8, 16, 32, 64, 128, 256, 512),
    ("easy", 64): (8, 16, 32, 64, 128, 256, 512),
    ("easy", 256): (8, 16, 32, 64, 128, 256),
    ("hard", 32): (8, 64, 128, 256, 512),
    ("hard", 64): (8, 16, 32, 64, 128, 256),
    ("hard", 256): (8, 16, 32, 64),
}
DOTS = {("easy", 32): 2079, ("easy", 64): 1425, ("easy", 256): 932,
        ("hard", 32): 1137, ("hard", 64): 812, ("hard", 256): 860}  # fmt: skip


def name_of(difficulty: str, bp: int) -> str:
    return f"qwen2.5-7b-{difficulty}" + (f"-bp{bp}" if bp != 32 else "")


@pytest.mark.parametrize(("difficulty", "bp"), N)
def test_a_panel_has_one_batch_its_n_and_all_its_dots(difficulty: str, bp: int) -> None:
    curves = load_published(name_of(difficulty, bp))
    assert {c.problems_per_batch for c in curves} == {bp}
    assert tuple(c.rollouts_per_problem for c in curves) == N[difficulty, bp]
    assert sum(len(c.score_K) for c in curves) == DOTS[difficulty, bp]
    assert {(c.metric, c.problem_set, c.split) for c in curves} == {
        ("avg@4", difficulty, "validation")
    }
    for c in curves:
        assert (np.diff(c.rollouts_K) >= 0).all()
        assert 0.02 < c.score_K.min() < c.score_K.max() < 0.71


def test_numbers_are_those_that_were_read() -> None:
    first = load_published("qwen2.5-7b-easy-bp64")[0]
    assert (first.rollouts_K[0], first.score_K[0]) == (692600, 0.5545)
    first = load_published("qwen2.5-7b-hard-bp256")[0]
    assert (first.rollouts_K[0], first.score_K[0]) == (237000, 0.0437)


@pytest.mark.parametrize("difficulty", ["easy", "hard"])
def test_joint_is_all_panels_of_a_difficulty(difficulty: str) -> None:
    joint = load_published(f"qwen2.5-7b-{difficulty}-joint")
    assert [(c.problems_per_batch, c.rollouts_per_problem) for c in joint] == [
        (bp, n) for d, bp in N if d == difficulty for n in N[d, bp]
    ]
    assert {c.problem_set for c in joint} == {difficulty}
    parts = [load_published(name_of(difficulty, bp)) for bp in (32, 64, 256)]
    for one, other in zip(joint, (c for part in parts for c in part), strict=True):
        assert np.array_equal(one.score_K, other.score_K)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"published:qwen2\.5-7b-easy-joint.*-hard-bp64.*but got"):
        load_published("qwen2.5-7b-easy-bp32")
