"""Difficulty: intervals against known values, the second stage, bands, advice, accounting."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from isocompute.difficulty import (
    Draws,
    measure_difficulty,
    recommend,
)
from isocompute.engines.base import Unjudged
from isocompute.errors import InputError, RunError
from isocompute.intervals import binomial_interval
from isocompute.problems import Problem, ProblemSet, load_problems, save_problems, select_problems
from isocompute.spread import GROUP_SIZES, mixed_share


def problem_set(size: int) -> ProblemSet:
    return ProblemSet(
        name="all", problems=[Problem(id=f"q{i}", prompt=f"{i}", answer="1") for i in range(size)]
    )


class Planted:
    """A sampler with known success rates that writes down what it was asked."""

    def __init__(self, rates: list[float], seed: int = 0) -> None:
        self.rates = np.array(rates)
        self.rng = np.random.default_rng(seed)
        self.calls: list[tuple[list[int], int]] = []

    def __call__(self, index_P: np.ndarray, samples: int) -> np.ndarray:
        self.calls.append((index_P.tolist(), samples))
        return self.rng.binomial(samples, self.rates[index_P])


def test_what_was_not_counted_is_none() -> None:
    drawn = Draws(np.array([1]), np.array([2]))
    assert (drawn.tokens, drawn.unjudged) == (0, ())


def test_the_share_of_mixed_groups_of_known_rates() -> None:
    many = [100_000, 100_000]
    assert mixed_share([50_000, 50_000], many)[2] == pytest.approx(0.5, abs=0.001)
    # 0.25 lies between two rates of the grid, 0.13 octaves apart.
    assert mixed_share([25_000, 0], many)[4] == pytest.approx((1 - 0.25**4 - 0.75**4) / 2, abs=0.01)
    assert mixed_share([], []) == {}


@pytest.mark.parametrize(("a", "b"), [(0.3, 8.0), (3.0, 4.0), (0.5, 0.5)])
def test_the_share_of_mixed_groups_is_not_that_of_observed_rates(a: float, b: float) -> None:
    """As measured: 16 samples, 128 where none was right; observed rates miss by up to 0.12."""
    rng = np.random.default_rng(0)
    missed = []
    for _ in range(10):
        rate = rng.beta(a, b, 400)
        right = rng.binomial(16, rate)
        none = right == 0
        right = right + np.where(none, rng.binomial(112, rate), 0)
        found = mixed_share(right, np.where(none, 128, 16))
        missed.append([found[n] - (1 - rate**n - (1 - rate) ** n).mean() for n in GROUP_SIZES])
    bias = np.mean(missed, axis=0)
    assert abs(bias[:5]).max() < 0.01  # n to 32
    assert abs(bias).max() < 0.03


# ---- measuring ----


def test_second_stage_only_where_nothing_succeeded() -> None:
    sampler = Planted([0.0, 1.0, 0.5, 0.0])
    result = measure_difficulty(sampler, problem_set(4), chunk=3)
    assert sampler.calls == [([0, 1, 2], 16), ([3], 16), ([0, 3], 112)]
    assert result.judged_P.tolist() == [128, 16, 16, 128]
    assert result.rollouts == 4 * 16 + 2 * 112
    assert result.errors == 0
    assert "_P=" not in repr(result)  # in a notebook: no line per problem
    assert result.high_P[0] < 0.03
    assert result.problems.problems[0].pass_rate_samples == 128
    assert [p.id for p in result.select("extremely_hard").problems] == ["q0", "q3"]


def test_bands_go_by_the_first_stage_and_survive_a_file(tmp_path: Any) -> None:
    class Late:
        """No success in the first stage, 20 in the second."""

        def __call__(self, index_P: np.ndarray, samples: int) -> list[int]:
            return [0 if samples == 16 else 20 for _ in index_P]

    result = measure_difficulty(Late(), problem_set(1))
    (problem,) = result.problems.problems
    assert (problem.pass_rate, problem.pass_rate_samples) == (0.0, 16)
    assert result.successes_P.tolist() == [20]
    assert result.low_P[0] > 0.09  # the interval knows all 128 samples
    assert len(result.select("hard")) == 1
    with pytest.raises(InputError, match="band extremely_hard must hold at least 1 problem"):
        result.select("extremely_hard")
    save_problems(result.problems, tmp_path / "all.jsonl")
    loaded = load_problems(tmp_path / "all.jsonl")
    assert select_problems(loaded, "hard").problems == result.select("hard").problems


def test_parameters_change_the_measurement() -> None:
    rates = list(np.linspace(0, 1, 21))

    def measure(**changes: Any) -> Any:
        return measure_difficulty(Planted(rates), problem_set(21), **changes)

    base = measure()
    assert measure(samples=8).samples == 8
    assert measure(samples=8, second_stage=0).rollouts == 21 * 8
    assert measure(second_stage=0).rollouts == 21 * 16
    assert measure(second_stage=64).rollouts < base.rollouts
    half = measure(level=0.5)
    low, high = binomial_interval(half.successes_P, half.judged_P, level=0.5)
    assert (half.low_P.tolist(), half.high_P.tolist()) == (low.tolist(), high.tolist())
    assert np.all(half.high_P - half.low_P < base.high_P - base.low_P)


def test_unjudged_samples_count_as_drawn_but_in_no_rate() -> None:
    def sample(index_P: np.ndarray, samples: int) -> Draws:
        judged = np.where(index_P == 0, 0, samples // 2)
        return Draws(judged // 2, judged, tokens=10 * samples * index_P.size)

    result = measure_difficulty(sample, problem_set(2))
    assert result.rollouts == 32
    assert result.errors == 16 + 8
    assert result.tokens == 320
    assert result.problems.problems[0].pass_rate is None
    assert result.problems.problems[1].pass_rate == 0.5
    assert np.isnan(result.first_rate_P[0])
    assert (result.low_P[0], result.high_P[0]) == (0, 1)
    assert result.histogram_C.sum() == 0  # a problem with unjudged samples has no avg@16
    assert result.document["errors"] == 24


@pytest.mark.parametrize(("cut", "told"), [(1, False), (2, True)])
def test_cut_responses_are_told_above_a_tenth(cut: int, told: bool) -> None:
    def sample(index_P: np.ndarray, samples: int) -> Draws:
        return Draws(np.full(index_P.size, samples // 2), cut=cut * index_P.size)

    document = measure_difficulty(sample, problem_set(5), second_stage=0).document
    assert document["cut_off"] == 5 * cut
    said = [one["text"] for one in document["notices"] if one["code"] == "responses_cut"]
    assert said == ["12% of the responses were cut off: pass rates may be too low."] * told


def test_what_the_verifier_failed_on_comes_back_by_problem() -> None:
    """Of three pieces, told in another order than that of the set."""

    def sample(index_P: np.ndarray, samples: int) -> Draws:
        failed = [Unjudged(problem=int(i), rollouts=1, message=f"m{i}", response="?")
                  for i in reversed(index_P)]  # fmt: skip
        return Draws(np.ones(index_P.size, int), np.full(index_P.size, samples - 1),
                     unjudged=failed)  # fmt: skip

    result = measure_difficulty(sample, problem_set(5), samples=4, second_stage=0, chunk=2)
    assert [(one.problem, one.message) for one in result.unjudged] == [
        (i, f"m{i}") for i in range(5)
    ]  # fmt: skip


def test_document_is_json_and_complete() -> None:
    result = measure_difficulty(Planted([0.0, 0.05, 0.45, 0.5, 0.75, 1.0]), problem_set(6))
    document = json.loads(json.dumps(result.document, allow_nan=False))
    assert sum(document["histogram"]) == 6
    assert len(document["histogram"]) == 17
    assert document["rollouts"] == result.rollouts
    assert document["bands"]["easy"]["n_problems"] == len(result.select("easy"))
    low, high = document["mean_pass_rate_interval"]
    assert 0 <= low < document["mean_pass_rate"] < high <= 1
    assert document["recipe"] == "mixed"
    assert [p["id"] for p in document["problems"]] == [f"q{i}" for i in range(6)]
    with pytest.raises(InputError, match="a band must be one of easy, hard, .* but got 'heavy'"):
        result.select("heavy")
    alone = measure_difficulty(Planted([0.5]), problem_set(1))
    assert alone.mean_interval == (0.0, 1.0)


@pytest.mark.parametrize(
    ("rates", "name", "codes"),
    [
        ([0.3, 0.6, 0.5], "easy", []),
        ([0.0, 0.0625, 0.05], "hard", []),
        ([0.0625, 0.0625], "hard", []),
        ([0.3, 0.3], "easy", []),
        ([0.1, 0.2], "hard", ["between_bands"]),
        ([0.0, 0.0, 0.5, 0.9], "mixed", []),
        ([1.0, 0.95], "easy", ["little_left"]),
        ([0.4, float("nan")], "easy", []),
    ],
)
def test_advice(rates: list[float], name: str, codes: list[str]) -> None:
    advice = recommend(rates)
    assert advice.name == name
    assert [one.code for one in advice.notices] == codes
    assert "mean pass rate" in advice.reason


def test_what_cannot_be_measured() -> None:
    problems = problem_set(2)
    with pytest.raises(InputError, match="needs the pass rate of at least 1 problem"):
        recommend([float("nan")])
    for changes in ({"samples": 0}, {"chunk": 0}):
        with pytest.raises(InputError, match="`samples >= 1` and `chunk >= 1` must hold"):
            measure_difficulty(Planted([0, 0]), problems, **changes)
    with pytest.raises(InputError, match="`second_stage > samples` must hold, or 0"):
        measure_difficulty(Planted([0, 0]), problems, second_stage=16)
    for changes in ({"samples": 10**11, "second_stage": 0}, {"second_stage": 1_000_001}):
        with pytest.raises(InputError, match="a problem may have at most 1,000,000 samples"):
            measure_difficulty(Planted([0, 0]), problems, **changes)
    with pytest.raises(RunError, match="the verifier failed on all"):
        measure_difficulty(lambda i, s: Draws(0 * i, 0 * i), problems)


def test_many_samples_are_drawn_in_parts_that_memory_holds() -> None:
    calls = []

    def sample(index_P: Any, samples: int) -> Any:
        calls.append((len(index_P), samples))
        return np.full(len(index_P), samples // 4)

    found = measure_difficulty(sample, problem_set(3), samples=2500, second_stage=0, chunk=2)
    assert calls == [(2, 1024), (2, 1024), (2, 452), (1, 1024), (1, 1024), (1, 452)]
    assert found.rollouts == 7500
    assert found.successes_P.tolist() == [625] * 3


@pytest.mark.parametrize(
    "returned", [[1], [1, 17], [-1, 0], [0.5, 0.5], Draws([1, 1], [0, 16]), Draws([1, 1], [17, 16])]
)
def test_a_sampler_that_returns_nonsense(returned: Any) -> None:
    with pytest.raises(RunError, match=r"a sampler must return 0..16 successes for each of 2"):
        measure_difficulty(lambda i, s: returned, problem_set(2))
