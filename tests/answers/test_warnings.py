"""Every notice of a fit is raised by a planted sweep, and a sound one raises none of the faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isocompute.answers import Fit, fit_sweep, plan_budget
from isocompute.answers.overfit import falls, windows_of
from isocompute.cli.fit_full import full_lines
from isocompute.domain import Curve
from isocompute.domain.notices import NOTICES, TABLES
from isocompute.testing.planted import NOISE, WORLDS, World, chained_arms

Sweep = list[Curve]


def sweep(
    world: str | World, seeds: int = 3, noise: str = "middle", until: float = 2.0**23
) -> Sweep:
    of = WORLDS[world] if isinstance(world, str) else world
    return of.until(until).sample(NOISE[noise], seeds, np.random.default_rng(0))


def only(curves: Sweep, *n: int) -> Sweep:
    return [c for c in curves if c.rollouts_per_problem in n]


def moved(curves: Sweep, at: float, by: float) -> Sweep:
    """Every score beyond a budget moves."""
    return [c.replace(score_K=np.clip(c.score_K + by * (c.rollouts_K > at), 0, 1)) for c in curves]


def halted(curves: Sweep, at: float) -> Sweep:
    """No score moves beyond a budget, but by noise."""
    out = []
    for c in curves:
        last = np.interp(at, c.rollouts_K, c.score_K) + 0.01 * np.sin(c.rollouts_K)
        out.append(c.replace(score_K=np.where(c.rollouts_K > at, last, c.score_K)))
    return out


def flat(curves: Sweep) -> Sweep:
    rng = np.random.default_rng(0)
    return [c.replace(score_K=rng.binomial(1200, 0.4, len(c.score_K)) / 1200) for c in curves]


def ends(c: Curve) -> Curve:
    """Step 0 and the last evaluation."""
    return Curve(
        **c.configuration._asdict(), run=c.run, rollouts_K=c.rollouts_K[[0, -1]],
        score_K=c.score_K[[0, -1]],
    )  # fmt: skip


def train_of(curves: Sweep) -> Sweep:
    """Training scores that rise throughout."""
    return [
        c.replace(score_K=0.2 + 0.08 * np.log10(np.maximum(c.rollouts_K, 1)), split="train")
        for c in curves
    ]


def faulty() -> Sweep:
    """Everything at once that may be the matter with how runs were recorded."""
    rng = np.random.default_rng(0)
    out = []
    for c in sweep("rising", until=2.0**21):
        n, change = c.rollouts_per_problem, {}
        change["trials"] = 300 if n == 512 else 1200
        if n == 8:
            c = c.until(0.0)
        elif n == 16:
            change["failed_rules"] = ("entropy_collapse",)
        elif n == 32:
            rough = c.score_K + 0.15 * rng.standard_normal(len(c.score_K))
            change["score_K"] = np.clip(rough, 0, 1)
        elif n == 64:
            change |= {"n_missing": 2, "n_repeated": 9}
        out.append(c.replace(**change))
    return out


TURNS = World(name="turns", arms=chained_arms((8, 128, 16), (0.60, 0.68, 0.76), (5.6, 6.3)))

LATE = World(
    name="late",
    arms=tuple(
        replace(a, ceiling=0.9, midpoint=6.5, slope=5.0) for a in WORLDS["constant_small"].arms
    ),
)


def after(c: Curve, x: float) -> Curve:
    later = c.rollouts_K > x
    return c.replace(rollouts_K=c.rollouts_K[later], score_K=c.score_K[later], steps_K=None,
                     tokens_K=None)  # fmt: skip


CASES: dict[str, tuple[Callable[[], Sweep], set[str]]] = {
    "one run": (
        lambda: sweep("rising", seeds=1),
        {"seeds_missing", "optimum_at_edge", "noise_estimated"},
    ),
    "two runs, two n": (
        lambda: only(sweep("rising", seeds=2), 8, 128),
        {"few_seeds", "one_or_two_n", "n_confounded_with_batch"},
    ),
    "n level": (lambda: sweep("meeting"), {"n_not_told_apart", "rise_not_claimed"}),
    "one sudden step": (lambda: sweep("constant_large"), {"slope_not_identified"}),
    "n falls": (lambda: sweep("falling"), {"falling"}),
    "n turns": (lambda: sweep(TURNS, noise="low"), {"non_monotone"}),
    "early": (lambda: sweep("rising", until=2.0**19), {"ceiling_unbounded"}),
    "one ends early": (
        lambda: [c.until(4e5 if c.rollouts_per_problem == 8 else np.inf) for c in sweep("rising")],
        {"budgets_not_shared", "stopped_early"},
    ),
    "one ends before the other begins": (
        lambda: [one for c in only(sweep("rising"), 8)
                 for one in (c.until(4e4), after(c, 1e5).replace(rollouts_per_problem=64))],
        {"never_compared"},
    ),
    "overfits": (lambda: sweep("overfit"), {"falls_after_peak", "overfitting"}),
    "collapses": (lambda: sweep("collapse"), {"unhealthy_run"}),
    "records": (
        faulty,
        {"configuration_left_out", "failed_health", "not_smooth", "scores_missing", "runs_mixed",
         "unequal_evaluations"},
    ),
    "falls": (
        lambda: [c.replace(score_K=1 - c.score_K) for c in sweep("rising")], {"scores_fall"},
    ),
    "steps not known": (
        lambda: [c.replace(steps_assumed=True) for c in sweep("rising")], {"steps_assumed"},
    ),
    "mini-batches follow n": (
        lambda: [
            c.replace(recorded={"updates_per_batch": 8.0 if c.rollouts_per_problem == 8 else 1.0})
            for c in sweep("rising")
        ],
        {"settings_follow_n"},
    ),
    "validates on what it trains on": (
        lambda: [c.replace(seen=0.67) for c in sweep("rising")], {"prompts_trained_on"},
    ),
    "rate falls": (lambda: [c.replace(rate_left=0.1) for c in sweep("rising")], {"rate_fell"}),
    "one seed twice": (lambda: [c.replace(seed=1) for c in sweep("rising")], {"seed_repeated"}),
    "stays": (lambda: flat(sweep("equal")), {"scores_flat"}),
    "ends alone": (lambda: [ends(c) for c in sweep("rising")], {"nothing_held_out"}),
    "drops late": (lambda: moved(sweep("rising"), 3e6, -0.08), {"intervals_widened"}),
    "stops rising": (lambda: halted(sweep(LATE), 1.9e6), {"no_skill"}),
    "jumps late": (lambda: moved(sweep("rising"), 2e6, 0.1), {"intervals_missed"}),
}  # fmt: skip


def fitted(curves: Sweep, train: Sweep | None = None) -> Fit:
    return fit_sweep(curves, draws=100, train=train or [])


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_each_notice_of_a_fit_is_raised(case: str) -> None:
    sample, wanted = CASES[case]
    curves = sample()
    fit = fitted(curves, train_of(curves) if case == "overfits" else None)
    found = {one.code: one for one in fit.notices}
    assert wanted <= set(found), sorted(found)
    for code in wanted:
        assert found[code].level == NOTICES[code].level
        assert "{" not in found[code].text + found[code].remedy
    gravest = fit.notices[0]
    assert fit.verdict.level == ("ok" if gravest.level == "note" else gravest.level)


def broken_at(scores: list[float], last: float, *, seed: int = 0, then: float = 0.02) -> Curve:
    """Twenty evaluations, 40 steps of 32 x 8 apart; those beyond `last` steps are `then`."""
    steps = 40.0 * np.arange(len(scores))
    score = np.where(steps > last, then, scores)
    return Curve(problems_per_batch=32, rollouts_per_problem=8, run=f"s{seed}", seed=seed,
                 rollouts_K=256 * steps, score_K=score)  # fmt: skip


@pytest.mark.heavy
def test_a_broken_seed_does_not_stop_the_sound_one() -> None:
    """0.31 to 0.51 by 0.01 in 800 steps; one seed breaks after step 480, at 0.43."""
    noise = 0.004 * np.random.default_rng(0).standard_normal((2, 21))
    rise = 0.31 + 0.01 * np.arange(21)
    sound, lost = broken_at([*(rise + noise[0])], 800, seed=1), broken_at([*(rise + noise[1])], 480)
    both = fit_sweep([sound, lost], draws=20)
    said = {one.code: one for one in both.notices}
    assert both.verdict.level == "caution"
    assert not {"scores_fall", "falls_after_peak"} & set(said)
    assert said["unhealthy_run"].text.startswith(
        "n = 8 rose to 0.43 and broke after step 480 (1 of 2 runs).")  # fmt: skip
    assert both.trained(sound.configuration) == 204_800
    # Alone it is what the fit says first; how it would score beyond is asked of nobody.
    alone = fit_sweep([lost], draws=20)
    assert alone.verdict.reason.startswith("n = 8 rose to 0.43 and broke after step 480 (its only")
    assert alone.trained() == alone.reached() == 122_880
    assert not {"scores_fall", "ceiling_unbounded"} & {one.code for one in alone.notices}
    # In the log's own units.
    percent = fit_sweep([lost.replace(score_range=(0.0, 100.0))], draws=20)
    assert percent.verdict.reason.startswith("n = 8 rose to 43 and broke")


@pytest.mark.heavy
def test_an_n_that_ends_in_its_first_updates_is_told_as_that() -> None:
    """n = 8 goes to step 800, n = 64 to step 18: 36,864 rollouts of the 40,960 of 20 steps."""
    rise = 0.31 + 0.01 * np.arange(21)
    long = broken_at([*rise], 800)
    steps = np.arange(0.0, 19.0, 2.0)
    short = Curve(problems_per_batch=32, rollouts_per_problem=64, run="short", seed=0,
                  rollouts_K=2048 * steps, score_K=0.31 + 0.02 * steps / 2)  # fmt: skip
    fit = fit_sweep([long, short], draws=20)
    said = next(one for one in fit.notices if one.code == "never_compared")
    assert said.text.startswith("At no budget do all n have scores: n = 64 has none from update 20 "
                                "on, where n are compared. What one gains")  # fmt: skip
    assert said.remedy.startswith("Continue n = 64 to that update")
    assert dict(said.trains) == {short.configuration: 4096}


@pytest.mark.heavy
def test_a_curve_that_fell_is_not_said_to_rise() -> None:
    """Up to 0.45 at step 280, then down to 0.38."""
    up, down = np.linspace(0.31, 0.45, 8), np.linspace(0.445, 0.38, 13)
    noise = 0.002 * np.random.default_rng(1).standard_normal(21)
    fit = fit_sweep([broken_at([*(np.concatenate([up, down]) + noise)], 800)], draws=20)
    found = {one.code for one in fit.notices}
    assert "falls_after_peak" in found
    assert "ceiling_unbounded" not in found
    assert "ceiling_unbounded" not in fit.document["curves"][0]["flags"]


def test_every_notice_of_a_fit_has_a_case() -> None:
    assert set().union(*(codes for _, codes in CASES.values())) == set(TABLES["Of a fit"])


@pytest.mark.heavy
def test_a_sound_sweep_raises_no_fault() -> None:
    """The largest n is the best one there, and one B_p was planted."""
    curves = [c.replace(trials=1200) for c in sweep("rising")]
    found = {one.code for one in fitted(curves).notices}
    assert found == {"n_confounded_with_batch", "optimum_at_edge"}


@pytest.mark.heavy
def test_what_one_notice_says_no_other_repeats() -> None:
    """Runs that break are neither rough nor falling; runs that stay level do not break."""
    found = {one.code for one in fitted(sweep("collapse")).notices}
    assert not found & {"not_smooth", "falls_after_peak"}
    assert "unhealthy_run" not in {one.code for one in fitted(flat(sweep("equal"))).notices}


@pytest.mark.heavy
def test_of_several_batches_the_configuration_is_named() -> None:
    """n alone would name two of them."""
    fit = fitted(sweep("joint_capped", seeds=2, until=2.0**19))
    said = {one.code: one.text for one in fit.notices}
    assert "64 x 128" in said["ceiling_unbounded"]
    assert "(B_p x n)" in said["ceiling_unbounded"]
    alone = {one.code: one.text for one in fitted(CASES["early"][0]()).notices}
    assert "B_p" not in alone["ceiling_unbounded"]
    assert ", 512 still" in alone["ceiling_unbounded"]


def test_where_budgets_part_the_runs_that_begin_late_are_named() -> None:
    """Of n = 512 the 20th update lies beyond what the others compared; no run ends there."""
    fit = fit_sweep(only(sweep("equal", seeds=2, until=2.0**18.2), 8, 64, 512), draws=40)
    (text,) = [one.text for one in fit.notices if one.code == "budgets_not_shared"]
    assert text.endswith("the runs of n = 512 lack 20 updates by then.")


@pytest.mark.heavy
def test_noise_alone_is_seldom_called_a_fall() -> None:
    def share(world: str) -> float:
        found = [
            falls(windows)
            for seed in range(20)
            for curves in [WORLDS[world].sample(NOISE["middle"], 3, np.random.default_rng(seed))]
            for windows in windows_of(curves, "rollouts").values()
        ]
        return float(np.mean(found))

    assert share("rising") < 0.03
    assert share("overfit") > 0.5


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "raised"), [("equal", True), ("rising", False)])
def test_level_n_are_said_to_be_level(name: str, raised: bool) -> None:
    sampled = [
        WORLDS[name].sample(NOISE["middle"], 3, np.random.default_rng(seed)) for seed in range(4)
    ]
    found = ["n_not_told_apart" in {one.code for one in fitted(c).notices} for c in sampled]
    assert np.mean(found) >= 0.5 if raised else not any(found)


@pytest.mark.heavy
def test_rollouts_in_a_table_of_tokens_are_called_so() -> None:
    curves = [c.replace(tokens_K=700 * c.rollouts_K) for c in sweep("rising", seeds=1)]
    lines = full_lines(fit_sweep(curves, unit="tokens", draws=20).document)
    assert "  to rollouts  " in lines[lines.index("Curves:") + 1]


def test_a_fit_and_its_plan_ask_for_the_same_run_of_a_larger_n() -> None:
    # The last whole evaluation of large batches lies somewhat before that of small ones.
    fit = fit_sweep([c.replace(rollouts_K=0.975 * c.rollouts_K, steps_K=None)
                     if c.rollouts_per_problem == 512 else c for c in sweep("rising")])  # fmt: skip
    asked = {one.code: one.rollouts for one in fit.notices}
    plan = plan_budget(fit, fit.reached()).document
    planned = {one["code"]: one["rollouts"] for one in plan["notices"]}
    assert asked["optimum_at_edge"] == planned["capped_by_tested_n"] < fit.reached()
    assert asked["n_confounded_with_batch"] == planned["n_confounded_with_batch"]
