"""Comparisons at equal compute, on curves whose difference is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from isocompute.compare import compare_curves
from isocompute.domain import Curve
from isocompute.errors import InputError, RefusalError

X = np.array([0.0, 1e3, 1e4, 1e5])


def curve(n: int, seed: int | None, shift: float, **changes: object) -> Curve:
    values: dict[str, object] = {
        "problems_per_batch": 32,
        "rollouts_per_problem": n,
        "run": f"{n}-{seed}",
        "seed": seed,
        "rollouts_K": X,
        "score_K": np.array([0.1, 0.2, 0.3, 0.4]) + shift,
        "metric": "avg@4",
    }
    return Curve(**{**values, **changes})  # type: ignore[arg-type]


def codes(document: dict[str, list[dict[str, str]]]) -> list[str]:
    return [w["code"] for w in document["warnings"]]


def test_paired_seeds_cancel_what_they_share() -> None:
    noise = {0: -0.05, 1: 0.0, 2: 0.05}
    a = [curve(8, s, noise[s]) for s in noise]
    b = [curve(8, s, noise[s] + 0.10) for s in noise]
    d = compare_curves(a, b).document
    assert d["at"][-1]["difference"] == pytest.approx(0.10)
    assert d["at"][-1]["interval"] == pytest.approx([0.10, 0.10])
    assert d["verdict"] == "b"
    assert d["configurations"][0]["paired_by_seed"] is True
    assert codes(d) == []


def test_interval_of_paired_seeds_is_students() -> None:
    # Differences 0.00, 0.03, 0.06: mean 0.03, s = 0.03, t(0.975, 2) = 4.3027.
    a = [curve(8, s, 0.0) for s in range(3)]
    b = [curve(8, s, 0.03 * s) for s in range(3)]
    row = compare_curves(a, b).document["at"][-1]
    half = 4.302652729911275 * 0.03 / math.sqrt(3)
    assert row["interval"] == pytest.approx([0.03 - half, 0.03 + half])
    assert row["verdict"] == "undecided"


def test_a_narrower_level_gives_a_narrower_interval() -> None:
    a = [curve(8, s, 0.0) for s in range(3)]
    b = [curve(8, s, 0.03 * s) for s in range(3)]
    wide = compare_curves(a, b).document["at"][-1]["interval"]
    narrow = compare_curves(a, b, level=0.5).document["at"][-1]["interval"]
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_unpaired_seeds_are_compared_by_means_and_say_so() -> None:
    noise = (-0.05, 0.0, 0.05)
    a = [curve(8, s, noise[s]) for s in range(3)]
    b = [curve(8, 10 + s, noise[s] + 0.10) for s in range(3)]
    d = compare_curves(a, b).document
    low, high = d["at"][-1]["interval"]
    # Variance 2 * 0.05**2 / 3, Welch 4 degrees of freedom, t = 2.7764.
    assert (high - low) / 2 == pytest.approx(2.7764451 * math.sqrt(2 * 0.0025 / 3), rel=1e-6)
    assert codes(d) == ["seeds_unpaired"]


def test_configurations_count_equally_whatever_their_seeds() -> None:
    a = [curve(8, s, 0.0) for s in range(4)] + [curve(16, s, 0.0) for s in range(2)]
    b = [curve(8, s, 0.10) for s in range(4)] + [curve(16, s, 0.30) for s in range(2)]
    assert compare_curves(a, b).document["at"][0]["difference"] == pytest.approx(0.20)


def test_one_run_each_gives_the_spread_over_configurations() -> None:
    a = [curve(n, None, 0.0) for n in (8, 16, 32)]
    b = [curve(n, None, shift) for n, shift in ((8, 0.1), (16, 0.2), (32, 0.3))]
    d = compare_curves(a, b).document
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert d["at"][0]["interval"] == pytest.approx([0.2 - half, 0.2 + half])
    assert codes(d) == ["seeds_missing", "seeds_unpaired"]
    assert [row["level"] for row in d["notices"]] == ["caution", "note"]
    assert d["notices"][0]["text"].startswith("Some configurations have one run")


def test_one_pair_has_no_interval() -> None:
    d = compare_curves([curve(8, 0, 0.0)], [curve(8, 0, 0.1)]).document
    assert d["at"][0]["interval"] is None
    assert d["verdict"] == "undecided"
    assert codes(d) == ["no_interval"]


def test_close_scores_are_ties_and_order_turns_the_verdict() -> None:
    a = [curve(8, s, 0.001 * s) for s in range(3)]
    b = [curve(8, s, 0.0) for s in range(3)]
    assert compare_curves(a, b).document["verdict"] == "tie"
    worse = [curve(8, s, -0.1) for s in range(3)]
    assert compare_curves(a, worse).document["verdict"] == "a"
    assert compare_curves(worse, a).document["verdict"] == "b"


def test_budgets_are_those_that_every_run_covers() -> None:
    a = [curve(8, 0, 0.0)]
    b = [curve(8, 0, 0.0, rollouts_K=np.array([0.0, 2e3, 4e3, 5e4]))]
    at = compare_curves(a, b, n_budgets=3).document["at"]
    assert [row["rollouts"] for row in at] == pytest.approx([2e3, 1e4, 5e4])
    assert [r["rollouts"] for r in compare_curves(a, b, n_budgets=1).document["at"]] == [5e4]


def test_scores_are_read_at_equal_compute() -> None:
    # Half-way in log between 1e4 (0.3) and 1e5 (0.4) side A has 0.35; B stands at 0.5.
    a = [curve(8, 0, 0.0)]
    b = [curve(8, 0, 0.0, rollouts_K=np.array([1e3, 10**4.5]), score_K=np.array([0.5, 0.5]))]
    assert compare_curves(a, b).document["at"][-1]["difference"] == pytest.approx(0.15)


def test_the_best_configuration_of_each_side_is_named() -> None:
    a = [curve(8, 0, 0.0), curve(16, 0, 0.1)]
    b = [curve(8, 0, 0.2), curve(16, 0, 0.1)]
    row = compare_curves(a, b).document["at"][-1]
    assert row["best_a"]["rollouts_per_problem"] == 16
    assert row["best_b"]["rollouts_per_problem"] == 8
    assert row["best_b"]["score"] == pytest.approx(0.6)


def test_names_are_carried() -> None:
    d = compare_curves([curve(8, 0, 0.0)], [curve(8, 0, 0.0)], names=("old", "new")).document
    assert (d["a"], d["b"]) == ("old", "new")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(RefusalError, match=r"A has \(32, 8\) and B has \(32, 16\)"):
        compare_curves([curve(8, 0, 0.0)], [curve(16, 0, 0.0)])
    early = curve(8, 0, 0.0, rollouts_K=np.array([1.0, 2.0]), score_K=np.array([0.1, 0.2]))
    with pytest.raises(RefusalError, match="latest start is at 1000 and the earliest end at 2 "):
        compare_curves([early], [curve(8, 0, 0.0)])


def test_bad_input_is_named() -> None:
    one = [curve(8, 0, 0.0)]
    with pytest.raises(InputError, match="one metric, but got 'avg@4', 'best@4'"):
        compare_curves(one, [curve(8, 0, 0.0, metric="best@4")])
    with pytest.raises(InputError, match="`0 < level < 1` must hold"):
        compare_curves(one, one, level=1.0)
    with pytest.raises(InputError, match="`n_budgets >= 1` must hold"):
        compare_curves(one, one, n_budgets=0)
    with pytest.raises(InputError, match="need curves, but got 0 and 1"):
        compare_curves([], one)
