"""Every warning of a fit is raised by a planted sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from few_draws import few_draws  # noqa: F401  # a fixture
from isocompute.cli.tables import fit_lines
from isocompute.curves import fit_curves
from isocompute.domain import Curve
from isocompute.laws import fit_sweep
from isocompute.laws.limits import fall_warning, undecided_warning
from isocompute.sources import load_curves
from isocompute.testing.planted import NOISE, WORLDS

ROOT = Path(__file__).resolve().parents[1]


def sweep(world: str, seeds: int = 3, seed: int = 0, noise: str = "middle") -> list[Curve]:
    return WORLDS[world].sample(NOISE[noise], seeds, np.random.default_rng(seed))


def unequal(curves: list[Curve]) -> list[Curve]:
    return [c.replace(trials=1200 if c.rollouts_per_problem < 64 else 300) for c in curves]


def short(curves: list[Curve]) -> list[Curve]:
    """n = 16 with four evaluations only."""
    return [
        c.replace(rollouts_K=c.rollouts_K[:4], score_K=c.score_K[:4], tokens_K=None, steps_K=None)
        if c.rollouts_per_problem == 16
        else c
        for c in curves
    ]


def stepped(curves: list[Curve]) -> list[Curve]:
    """Scores that stop rising where a quarter of the budget is spent: every rise predicted."""
    return [
        c.replace(score_K=np.minimum(c.score_K, c.score_K[c.rollouts_K < 1.2e6].max()))
        for c in curves
    ]


def ending_early(curves: list[Curve]) -> list[Curve]:
    """n = 8 ends at a fifth of the budget, where it still leads or may."""
    return [
        c.replace(rollouts_K=c.rollouts_K[keep], score_K=c.score_K[keep], tokens_K=None,
                  steps_K=None)
        for c in curves
        for keep in [c.rollouts_K <= (4e5 if c.rollouts_per_problem == 8 else np.inf)]
    ]  # fmt: skip


def bending_at_once(curves: list[Curve]) -> list[Curve]:
    """Slow rises that end abruptly (Gumbel's smallest values), without noise."""
    return [
        c.replace(score_K=0.35 + (0.2 + 0.03 * np.log2(n)) * -np.expm1(-np.exp(1.8 * (x - m))))
        for c in curves
        for n in [c.rollouts_per_problem]
        for m in [4.6 + 0.15 * np.log2(n)]
        for x in [np.log10(np.maximum(c.rollouts_K, 1))]
    ]


CASES: dict[str, Callable[[], list[Curve]]] = {
    "seeds_missing": lambda: sweep("rising", seeds=1),
    "few_seeds": lambda: sweep("rising", seeds=2),
    "optimum_at_edge": lambda: sweep("constant_large"),
    "rise_not_claimed": lambda: sweep("meeting"),
    "falling": lambda: sweep("falling"),
    "slope_not_identified": lambda: load_curves(["published:qwen2.5-7b-hard"]),
    "ceiling_unbounded": lambda: WORLDS["rising"].until(2.0**19).sample(
        NOISE["middle"], 3, np.random.default_rng(0)),
    "falls_after_peak": lambda: sweep("overfit"),
    "unhealthy_run": lambda: sweep("collapse"),
    "configuration_left_out": lambda: short(sweep("rising")),
    "runs_mixed": lambda: [c.replace(n_repeated=9) for c in sweep("rising")],
    "scores_missing": lambda: [c.replace(n_missing=2) for c in sweep("rising")],
    "no_skill": lambda: stepped(sweep("rising")),
    "sensitive_to_rules": lambda: sweep("equal", seeds=2, noise="high"),
    "tie": lambda: sweep("equal", seeds=2, noise="high"),
    "bends_late": lambda: sweep("gompertz"),
    "unequal_evaluations": lambda: unequal(sweep("rising")),
    "few_n": lambda: [c for c in sweep("rising") if c.rollouts_per_problem in (8, 128)],
    "budgets_not_shared": lambda: ending_early(sweep("rising")),
    "n_not_told_apart": lambda: [c.replace(score_K=0 * c.score_K + 0.5) for c in sweep("equal")],
    "failed_health": lambda: [
        c.replace(failed_rules=("entropy_collapse",) if c.rollouts_per_problem == 16 else ())
        for c in sweep("rising")],
    "scores_flat": lambda: [
        c.replace(score_K=np.random.default_rng(i).binomial(1200, 0.4, len(c.score_K)) / 1200)
        for i, c in enumerate(sweep("equal"))],
    "intervals_missed": lambda: bending_at_once(sweep("rising")),
    "scores_fall": lambda: [c.replace(score_K=1 - c.score_K) for c in sweep("rising")],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("code", CASES)
def test_each_warning_of_a_fit_is_raised(code: str) -> None:
    found = {w["code"]: w["message"] for w in fit_sweep(CASES[code]()).warnings}
    assert code in found, sorted(found)
    assert len(found[code]) > 30


def dipping(curves: list[Curve]) -> list[Curve]:
    """Curves that begin 0.15 higher and lose that from 10^4.5 rollouts on, while they rise."""
    return [
        c.replace(score_K=np.minimum(c.score_K + 0.15 * np.exp(-4 * np.maximum(x - 4.5, 0)), 1))
        for c in curves
        for x in [np.log10(np.maximum(c.rollouts_K, 1))]
    ]


@pytest.mark.long
def test_a_dip_at_the_start_is_not_called_overfitting() -> None:
    falls = sweep("overfit")
    chosen = [c for c in dipping(sweep("rising")) if c.rollouts_per_problem in (16, 32, 256)]
    dips = fit_sweep(chosen, draws=20)
    assert "falls_after_peak" in dips.document["curves"][0]["flags"]
    said = {w["code"]: w["message"] for w in dips.warnings}["falls_after_peak"]
    assert "dip below an earlier level by more than noise and end above it" in said
    assert "Look for overfitting" not in said
    # beside curves that do fall, each is named for what it does
    both = [*(c for c in falls if c.rollouts_per_problem in (8, 512)), *chosen]
    said = {w["code"]: w["message"] for w in fit_sweep(both, draws=20).warnings}["falls_after_peak"]
    assert said.startswith("scores of n=8 fall below")
    assert "Scores of n=16, n=32, n=256 dip below" in said


def test_noise_alone_is_seldom_called_a_fall() -> None:
    """A level stands in for some bins of such a sweep in every third."""
    fits = [
        fit_curves(sweep("rising", seed=seed), draws=0) for seed in range(700_000, 700_020)
    ]
    assert sum(any(one.dominated_RX.any() for one in f.binned) for f in fits) >= 4
    assert sum(fall_warning(f) is not None for f in fits) <= 2
    falls = [fall_warning(fit_curves(sweep("overfit", seed=s), draws=0)) for s in range(5)]
    assert all(found is not None and "Look for overfitting" in found["message"] for found in falls)


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.5, 0.5], "2 of the 2 n tested may be the best (8, 16)"),
        ([0.9, 0.05, 0.05], None),  # one
        ([0.5, 0.5, 0.0], None),  # two of three: neighbours
        ([0.4, 0.3, 0.3], "3 of the 3"),
        ([0.25, 0.25, 0.5, 0.0], "3 of the 4 n tested may be the best (8, 16, 32)"),
        ([0.0, 0.0, 0.0, 0.4, 0.3, 0.3], None),  # half
        ([0.0, 0.0, 0.0, 0.3, 0.2, 0.3, 0.2], "4 of the 7 n tested may be the best (64, 128"),
    ],
)
def test_n_are_not_told_apart_where_most_of_them_may_be_best(
    shares: list[float], said: str | None
) -> None:
    n = 8 * 2 ** np.arange(len(shares))
    at_the_end = np.array(shares)[:, None]
    frontier = SimpleNamespace(
        supported_V=np.array([True, True, False]),
        probability_JV=np.hstack([0 * at_the_end + 1, at_the_end, 0 * at_the_end + 1]),
    )
    fit = SimpleNamespace(curve_fits=SimpleNamespace(rollouts_per_problem_J=n), frontier=frontier,
                          level=0.95, support=(1e5, 1e6), unit="rollouts")  # fmt: skip
    found = undecided_warning(fit)
    assert (found is None) == (said is None)
    if found is not None and said is not None:
        assert f"at 1,000,000 rollouts, the largest budget compared, {said}" in found["message"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "raised"), [("equal", True), ("meeting", True),
                                              ("rising", False), ("capped", False)])  # fmt: skip
def test_level_n_are_said_to_be_level(name: str, raised: bool) -> None:
    found = [
        undecided_warning(fit_sweep(sweep(name, seed=s), draws=200)) is not None for s in range(8)
    ]
    assert np.mean(found) >= 0.5 if raised else not any(found)


def test_a_clean_sweep_raises_none_of_the_faults() -> None:
    found = {w["code"] for w in fit_sweep(sweep("rising")).warnings}
    assert not found & {
        "seeds_missing", "few_seeds", "falling", "unhealthy_run", "configuration_left_out",
        "budgets_not_shared", "n_not_told_apart", "scores_fall", "scores_flat", "few_n",
        "runs_mixed", "scores_missing", "no_skill", "failed_health", "intervals_missed",
        "unequal_evaluations", "not_smooth", "overfitting", "bends_late",
    }  # fmt: skip


def test_a_run_that_is_left_out_is_not_called_rough_too() -> None:
    fit = fit_sweep(sweep("collapse"))
    found = {w["code"] for w in fit.warnings}
    assert "unhealthy_run" in found
    assert "not_smooth" not in found
    assert min(c["smoothness"] for c in fit.document["curves"]) > 0.85


@pytest.mark.long
def test_of_several_batches_the_configuration_is_named() -> None:
    world = WORLDS["joint_capped"].until(2.0**19)
    curves = world.sample(NOISE["middle"], 2, np.random.default_rng(0))
    found = {w["code"]: w["message"] for w in fit_sweep(curves, joint=True).warnings}
    assert "B_p=64 n=128" in found["ceiling_unbounded"]


@pytest.mark.long
@pytest.mark.parametrize(("world", "sure"), [("falling", True), ("equal", False)])
def test_a_fall_of_n_is_stated_where_the_draws_confirm_it(world: str, sure: bool) -> None:
    noise = "middle" if sure else "high"
    fits = (fit_sweep(sweep(world, seed=i, noise=noise)) for i in range(20))
    fit = next(f for f in fits if "falling" in f.law.flags)
    (message,) = [w["message"] for w in fit.warnings if w["code"] == "falling"]
    assert ("spend what a larger budget buys on steps" in message) == sure
    assert ("do not exclude that it does not" in message) != sure


def test_rollouts_in_a_table_of_tokens_are_called_so() -> None:
    curves = [c.replace(tokens_K=700 * c.rollouts_K) for c in sweep("rising")]
    lines = fit_lines(fit_sweep(curves, unit="tokens").document)
    assert "  to rollouts  " in lines[lines.index("Curves:") + 1]


@pytest.mark.long
def test_a_parameter_on_a_bound_is_named() -> None:
    """A rise of 0.7 per decade: slower than the search goes."""
    x = np.linspace(1.0, 11.0, 40)
    curves = [
        Curve(
            problems_per_batch=1, rollouts_per_problem=n, run=str(n), rollouts_K=10**x,
            score_K=0.3 + 0.3 / (1 + np.exp(-0.7 * (x - 5 - n / 10))),
        )
        for n in (1, 2, 4)
    ]  # fmt: skip
    document = fit_sweep(curves).document
    assert [c["on_bound"] for c in document["curves"]] == [["slope"]] * 3
    assert sum("on_bound: slope" in line for line in fit_lines(document)) == 3


@pytest.mark.long
def test_configurations_of_several_problems_per_batch_are_named_by_both() -> None:
    """n alone would name two of them."""
    world = WORLDS["joint_capped"].until(2.0**19)
    fit = fit_sweep(world.sample(NOISE["middle"], 3, np.random.default_rng(0)))
    found = {w["code"]: w["message"] for w in fit.warnings}
    assert found["ceiling_unbounded"].count("n=") == found["ceiling_unbounded"].count("B_p=") > 1
    alone = {w["code"]: w["message"] for w in fit_sweep(CASES["ceiling_unbounded"]()).warnings}
    assert "B_p=" not in alone["ceiling_unbounded"]
