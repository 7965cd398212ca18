"""Every notice of a fit is raised by a planted sweep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from few_draws import few_draws  # noqa: F401  # a fixture
from isocompute.answers import fit_sweep
from isocompute.cli.fit_full import full_lines
from isocompute.domain import Curve
from isocompute.sources import load_curves
from isocompute.testing.planted import NOISE, WORLDS


def sweep(world: str, seeds: int = 3, seed: int = 0, noise: str = "middle") -> list[Curve]:
    return WORLDS[world].sample(NOISE[noise], seeds, np.random.default_rng(seed))


def unequal(curves: list[Curve]) -> list[Curve]:
    return [c.replace(trials=1200 if c.rollouts_per_problem < 64 else 300) for c in curves]


def unscored(curves: list[Curve]) -> list[Curve]:
    """n = 16 with no evaluation after step 0."""
    return [c.until(0) if c.rollouts_per_problem == 16 else c for c in curves]


def turning(curves: list[Curve]) -> list[Curve]:
    """Large n leads at first, small n in the middle, large n at the end."""
    return [
        c.replace(score_K=0.2 + 0.1 * (x - 3) - 0.03 * (np.log2(n) - best) ** 2 / 4)
        for c in curves
        for n in [c.rollouts_per_problem]
        for x in [np.log10(np.maximum(c.rollouts_K, 1e3))]
        for best in [3 + 6 * np.abs((x - 5.6) / 1.0)]
    ]


def stepped(curves: list[Curve]) -> list[Curve]:
    """Scores that stop rising where a quarter of the budget is spent: every rise predicted."""
    return [
        c.replace(score_K=np.minimum(c.score_K, c.score_K[c.rollouts_K < 2.0e6].max()))
        for c in curves
    ]


def jumping(curves: list[Curve]) -> list[Curve]:
    """Scores that jump by 0.1 where nothing said so."""
    return [c.replace(score_K=c.score_K + 0.1 * (c.rollouts_K > 4.5e6)) for c in curves]


def ending_early(curves: list[Curve]) -> list[Curve]:
    """n = 8 ends at a fifth of the budget, where it still leads or may."""
    return [
        c.replace(rollouts_K=c.rollouts_K[keep], score_K=c.score_K[keep], tokens_K=None,
                  steps_K=None)
        for c in curves
        for keep in [c.rollouts_K <= (4e5 if c.rollouts_per_problem == 8 else np.inf)]
    ]  # fmt: skip


CASES: dict[str, Callable[[], list[Curve]]] = {
    "seeds_missing": lambda: sweep("rising", seeds=1),
    "n_confounded_with_batch": lambda: sweep("rising"),
    "noise_estimated": lambda: [c.replace(trials=None) for c in sweep("rising")],
    "stopped_early": lambda: ending_early(sweep("rising")),
    "non_monotone": lambda: turning(sweep("rising")),
    "few_seeds": lambda: sweep("rising", seeds=2),
    "optimum_at_edge": lambda: sweep("constant_large"),
    "rise_not_claimed": lambda: sweep("meeting"),
    "falling": lambda: sweep("falling"),
    "slope_not_identified": lambda: load_curves(["published:qwen2.5-7b-hard"]),
    "ceiling_unbounded": lambda: WORLDS["rising"].until(2.0**19).sample(
        NOISE["middle"], 3, np.random.default_rng(0)),
    "falls_after_peak": lambda: sweep("overfit"),
    "unhealthy_run": lambda: sweep("collapse"),
    "configuration_left_out": lambda: unscored(sweep("rising")),
    "runs_mixed": lambda: [c.replace(n_repeated=9) for c in sweep("rising")],
    "scores_missing": lambda: [c.replace(n_missing=2) for c in sweep("rising")],
    "no_skill": lambda: stepped(sweep("rising")),
    "unequal_evaluations": lambda: unequal(sweep("rising")),
    "one_or_two_n": lambda: [c for c in sweep("rising") if c.rollouts_per_problem in (8, 128)],
    "budgets_not_shared": lambda: ending_early(sweep("rising")),
    "n_not_told_apart": lambda: [c.replace(score_K=0 * c.score_K + 0.5) for c in sweep("equal")],
    "failed_health": lambda: [
        c.replace(failed_rules=("entropy_collapse",) if c.rollouts_per_problem == 16 else ())
        for c in sweep("rising")],
    "scores_flat": lambda: [
        c.replace(score_K=np.random.default_rng(i).binomial(1200, 0.4, len(c.score_K)) / 1200)
        for i, c in enumerate(sweep("equal"))],
    "intervals_missed": lambda: jumping(sweep("rising")),
    "scores_fall": lambda: [c.replace(score_K=1 - c.score_K) for c in sweep("rising")],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("code", CASES)
def test_each_notice_of_a_fit_is_raised(code: str) -> None:
    fit = fit_sweep(CASES[code]())
    found = {one.code: one for one in fit.notices}
    assert code in found, sorted(found)
    assert {"code": code, "message": f"{found[code].text} {found[code].remedy}"} in fit.warnings
    gravest = next((one for one in fit.notices if one.level != "note"), None)
    assert fit.verdict.level == ("ok" if gravest is None else gravest.level)


@pytest.mark.long
@pytest.mark.parametrize(("name", "raised"), [("equal", True), ("rising", False)])
def test_level_n_are_said_to_be_level(name: str, raised: bool) -> None:
    found = [
        "n_not_told_apart" in {one.code for one in fit_sweep(sweep(name, seed=s)).notices}
        for s in range(4)
    ]
    assert np.mean(found) >= 0.5 if raised else not any(found)


def test_a_clean_sweep_raises_none_of_the_faults() -> None:
    found = {one.code for one in fit_sweep(sweep("rising")).notices}
    assert not found & {
        "seeds_missing", "few_seeds", "falling", "unhealthy_run", "configuration_left_out",
        "budgets_not_shared", "n_not_told_apart", "scores_fall", "scores_flat", "one_or_two_n",
        "runs_mixed", "scores_missing", "no_skill", "failed_health", "intervals_missed",
        "unequal_evaluations", "not_smooth", "overfitting", "falls_after_peak", "stopped_early",
    }  # fmt: skip


def test_a_run_that_broke_is_not_called_rough_too() -> None:
    found = {one.code for one in fit_sweep(sweep("collapse")).notices}
    assert "unhealthy_run" in found
    assert "not_smooth" not in found


@pytest.mark.long
def test_of_several_batches_the_configuration_is_named() -> None:
    """n alone would name two of them."""
    world = WORLDS["joint_capped"].until(2.0**19)
    fit = fit_sweep(world.sample(NOISE["middle"], 2, np.random.default_rng(0)))
    text = next(one.text for one in fit.notices if one.code == "ceiling_unbounded")
    assert "16 x 128 (B_p x n)" in text
    alone = fit_sweep(CASES["ceiling_unbounded"]())
    assert "B_p" not in next(one.text for one in alone.notices if one.code == "ceiling_unbounded")


def test_rollouts_in_a_table_of_tokens_are_called_so() -> None:
    curves = [c.replace(tokens_K=700 * c.rollouts_K) for c in sweep("rising")]
    lines = full_lines(fit_sweep(curves, unit="tokens").document)
    assert "  to rollouts  " in lines[lines.index("Curves:") + 1]
