"""The scorecard's tests of claims: each on worlds where the claim is true, false, open."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.errors import InputError
from isocompute.testing.planted import Arm, Noise, World

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "grid"))

from scorecard import (  # noqa: E402 (the folder is not installed)
    evidence,
    figure_list,
    figures,
    grid,
    page,
    power,
    scores,
    statistics,
)
from scorecard.claims import CLAIMS  # noqa: E402
from scorecard.verdicts import Estimate, seeds_to_decide, verdict  # noqa: E402

QUIET = Noise(problems=3000, samples=16, ceiling_sd=0.001, midpoint_sd=0.003)
LOUD = Noise(problems=50, samples=4, ceiling_sd=0.08, midpoint_sd=0.25)
FEW = (4, 16, 64, 256)


def rng(seed=0):
    return np.random.default_rng(seed)


def sweep(noise=QUIET, seed=0, seeds=3, **truth):
    truth = {"n": FEW, "per_octave": 0.03, **truth}
    return power.seen(power.planted(**truth), rng(seed), seeds, noise)


# Verdicts, by hand


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("above", 0.1, 3.0, "holds"),
        ("above", -0.1, 3.0, "undecided"),
        ("above", 0.1, 1.9, "does not"),  # there, but smaller than anybody would care for
        ("above", -3.0, 1.9, "does not"),
        ("above", 0.0, 3.0, "undecided"),
        ("within", -2.0, 2.0, "holds"),
        ("within", -2.1, 2.0, "undecided"),
        ("within", 2.1, 5.0, "does not"),
        ("within", -5.0, -2.1, "does not"),
        ("at_most", -9.0, 2.0, "holds"),
        ("at_most", 1.0, 2.1, "undecided"),
        ("at_most", 2.1, 9.0, "does not"),
    ],
)
def test_a_verdict_is_read_off_the_interval(kind, low, high, expected):
    assert verdict(Estimate((low + high) / 2, low, high, 3), kind, 2.0) == expected


def test_no_estimate_is_undecided():
    assert verdict(statistics.unknown("why"), "above", 1.0) == "undecided"
    assert verdict(statistics.unknown("why"), "at_most", 1.0) == "undecided"


def test_seeds_that_would_decide():
    # Half-width 2 with 3 seeds; 1 from the line where 3 is the value: 3 * (2 / 3)^2 = 1.33.
    assert seeds_to_decide(Estimate(3.0, 1.0, 5.0, 3), "above", 2.0) == 4
    # 0.5 above 0, 1.5 below the smallest effect: the latter is nearer, 3 * (3 / 1.5)^2 = 12.
    assert seeds_to_decide(Estimate(0.5, -2.5, 3.5, 3), "above", 2.0) == 12
    assert seeds_to_decide(Estimate(1.0, -1.0, 3.0, 3), "within", 2.0) == 12
    assert seeds_to_decide(Estimate(1.0, -1.0, 3.0, 3), "at_most", 2.0) == 12
    assert seeds_to_decide(Estimate(1.0, -1.0, 3.0, 3), "at_most", 1.5) == 48
    assert seeds_to_decide(Estimate(1.0, -1.0, 3.0, 3), "at_most", 1.05) is None  # 4,800
    assert seeds_to_decide(Estimate(3.0, 2.0, 4.0, 1), "within", 2.0) == 3  # never fewer
    assert seeds_to_decide(Estimate(1.0, -1.0, 3.0, 3), "at_most", 1.0) is None
    assert seeds_to_decide(Estimate(1.0, -math.inf, 3.0, 3), "above", 1.0) is None


# n*


@pytest.mark.heavy
def test_a_rise():
    assert decide(statistics.rise(sweep(levels_at=64)), "above", 2.0) == "holds"
    assert decide(statistics.rise(sweep(levels_at=4, beyond=0.03)), "above", 2.0) == "does not"
    assert (
        decide(statistics.rise(sweep(LOUD, levels_at=64, per_octave=0.005)), "above", 2.0)
        == "undecided"
    )


@pytest.mark.heavy
def test_a_rise_that_ends_at_the_largest_n_is_a_bound():
    found = statistics.rise(sweep(levels_at=4096, per_octave=0.06))
    assert found.high == math.inf
    assert "largest tested, 256" in found.note


@pytest.mark.heavy
def test_levelling_off():
    level = statistics.loss_of_staying(sweep(levels_at=16))
    assert decide(level, "at_most", 0.02) == "holds"
    late = {"levels_at": 1024, "per_octave": 0.06, "n": (64, 256, 1024, 2048), "beyond": 0.1}
    assert decide(statistics.loss_of_staying(sweep(**late)), "at_most", 0.02) == "does not"
    assert math.isnan(statistics.loss_of_staying(sweep(levels_at=4, beyond=0.03)).value)


@pytest.mark.heavy
def test_the_last_move():
    level = statistics.late_move(sweep(levels_at=16))
    assert abs(level.value) < 0.5
    rising = statistics.late_move(sweep(levels_at=1024, per_octave=0.06, n=(4, 16, 64, 256, 1024)))
    assert rising.value > level.value
    none = statistics.late_move(sweep(levels_at=4, beyond=0.03))
    assert math.isnan(none.value)
    assert none.note == "n* is not seen to rise"


@pytest.mark.heavy
def test_a_shift_between_two_sweeps():
    n = (4, 8, 16, 32, 64, 128, 256)
    a, b = (sweep(levels_at=best, n=n, beyond=0.03, seed=best) for best in (8, 64))
    found = statistics.shift(a, b)
    assert decide(found, "above", 2.0) == "holds"
    assert decide(statistics.shift(b, a), "above", 2.0) == "does not"
    loud = statistics.shift(sweep(LOUD, levels_at=8), sweep(LOUD, levels_at=64, seed=1))
    assert decide(loud, "above", 2.0) == "undecided"


@pytest.mark.heavy
def test_a_shift_between_bounds_is_open():
    top = sweep(levels_at=4096, per_octave=0.08, n=(4, 16, 64))
    found = statistics.shift(top, top)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.note == "n* may be the largest tested, 64"
    assert found.add == (128,)
    low = statistics.shift(*[sweep(levels_at=4, n=(4, 16, 64), beyond=0.03)] * 2)
    assert low.note == "n* may be the smallest tested, 4"
    assert low.add == (2,)


@pytest.mark.heavy
def test_a_turn_at_a_fixed_batch():
    found = power._turns(2.0)(rng())
    assert found.value > 1.0
    assert decide(power._turns(0.0)(rng()), "above", 1.0) == "does not"


@pytest.mark.heavy
def test_a_rise_at_a_fixed_batch_uses_that_batch_alone():
    def split(batch, best):
        return [
            Arm(problems_per_batch=batch // n, rollouts_per_problem=n, floor=0.05,
                ceiling=0.7 - 0.03 * abs(math.log2(best / n)), slope=4.0,
                midpoint=4.8 + 0.12 * math.log2(n))
            for n in FEW
        ]  # fmt: skip

    world = World(name="splits", arms=(*split(1024, 64), *split(2048, 4)), max_rollouts=4e6)
    curves = power.seen(world, rng(), 3, QUIET)
    assert decide(statistics.rise_at_fixed_batch(curves, 1024), "above", 2.0) == "holds"
    assert decide(statistics.rise_at_fixed_batch(curves, 2048), "above", 2.0) == "does not"


@pytest.mark.heavy
def test_whether_the_optimum_follows_n_or_the_batch():
    joint = {"levels_at": 64, "b_p": (8, 32, 128), "n": (4, 16, 64, 256, 1024)}
    of_n = statistics.direction(sweep(follows_batch=0.0, **joint))
    assert decide(of_n, "within", 0.5) == "holds"
    of_batch = statistics.direction(sweep(follows_batch=1.0, **joint))
    assert decide(of_batch, "within", 0.5) == "does not"


@pytest.mark.heavy
def test_what_moves_the_score_more():
    joint = {"levels_at": 64, "b_p": (8, 32, 128), "follows_batch": 0.0}
    of_n = statistics.spread_share(sweep(**joint))
    assert decide(of_n, "above", 1 / 3) == "holds"
    both = statistics.spread_share(sweep(bp_gain=0.03, **joint))
    assert decide(both, "within", 1 / 3) == "holds"
    of_bp = statistics.spread_share(sweep(bp_gain=0.06, per_octave=0.002, **{
        **joint, "levels_at": 16}))  # fmt: skip
    assert of_bp.value < both.value


@pytest.mark.heavy
def test_the_smallest_b_p_may_cost_more_on_hard():
    joint = {"levels_at": 16, "b_p": (8, 32, 128), "follows_batch": 0.0}
    easy, hard = sweep(**joint), sweep(bp_gain=0.05, seed=1, **joint)
    assert decide(statistics.bp_minimum(easy, hard), "above", 0.05) == "holds"
    assert decide(statistics.bp_minimum(easy, easy), "above", 0.05) == "does not"


@pytest.mark.heavy
def test_tokens_that_follow_rollouts_change_nothing():
    still = [c.replace(tokens_K=c.rollouts_K) for c in sweep(levels_at=4, beyond=0.03)]
    assert math.isnan(statistics.shift_of_rise(still).value)  # no rise, no trend to keep
    curves = sweep(levels_at=64, beyond=0.03)
    curves = [c.replace(tokens_K=c.rollouts_K * 7.0) for c in curves]
    same = statistics.shift_of_rise(curves)
    assert decide(same, "within", 1.0) == "holds"
    dear = [  # a rollout costs n tokens: by tokens large n are late
        c.replace(tokens_K=c.rollouts_K * c.rollouts_per_problem**2.0) for c in curves
    ]
    assert statistics.shift_of_rise(dear).value < -0.5


# Scores at equal rollouts


def flat(scores, n=16, b_p=32, k=10, ends=1e5):
    """One run per score list entry: constant after a start of 0.1."""
    x = np.concatenate([[0.0], np.geomspace(1e3, ends, k)])
    return [
        evidence.Curve(
            problems_per_batch=b_p, rollouts_per_problem=n, run=f"{n}-{s}", seed=s, rollouts_K=x,
            score_K=np.concatenate([[0.1], np.full(k, score)]),
        )
        for s, score in enumerate(scores)
    ]  # fmt: skip


def test_a_contrast_is_paired_by_seed_and_has_students_interval():
    a, b = flat([0.5, 0.6, 0.7]), flat([0.54, 0.65, 0.76])
    found = scores.contrast(a, b)
    # Differences 0.04, 0.05, 0.06: mean 0.05, sd 0.01, t(0.975, 2) = 4.303.
    assert found.value == pytest.approx(0.05)
    assert found.high - found.value == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4)
    assert found.seeds == 3
    assert verdict(found, "above", 0.02) == "holds"
    assert verdict(scores.contrast(b, a), "above", 0.02) == "does not"
    assert verdict(scores.contrast(a, flat([0.9, 0.3, 0.8])), "above", 0.02) == "undecided"


def test_configurations_of_a_seed_are_one_number():
    a = flat([0.5, 0.5]) + flat([0.5, 0.5], n=64)
    b = flat([0.6, 0.7]) + flat([0.8, 0.9], n=64)
    found = scores.contrast(a, b)
    assert found.seeds == 2
    assert found.value == pytest.approx(0.25)  # (0.1 + 0.3) / 2 and (0.2 + 0.4) / 2


def test_a_contrast_is_at_equal_rollouts():
    short = flat([0.5, 0.5, 0.5], ends=1e4)
    long = flat([0.6, 0.6, 0.6])
    long = [c.replace(score_K=np.where(c.rollouts_K > 1.1e4, 0.9, c.score_K)) for c in long]
    assert scores.contrast(short, long).value == pytest.approx(0.1)


def test_the_large_n_against_the_small_n():
    both = flat([0.5, 0.5, 0.5], n=4) + flat([0.56, 0.55, 0.57], n=64)
    assert verdict(scores.pair(both), "above", 0.02) == "holds"
    assert scores.pair(both, 64, 4).value == pytest.approx(-0.06)
    assert "not both there" in scores.pair(flat([0.5], n=4)).note
    runs = {(32, 4, 0): 1.0, (32, 64, 0): 3.0, (32, 4, 1): 1.0, (32, 64, 1): 5.0, (8, 64, 0): 9.0}
    assert scores.pair_runs(runs).value == 3.0


def test_what_one_n_for_both_costs():
    a = flat([0.6, 0.6, 0.6], n=4) + flat([0.55, 0.54, 0.56], n=16) + flat([0.4] * 3, n=64)
    b = flat([0.4, 0.4, 0.4], n=4) + flat([0.55, 0.56, 0.54], n=16) + flat([0.6] * 3, n=64)
    # n = 16 serves both best; each loses 0.05 by it, 0.06 and 0.04 in the seeds beside.
    found = scores.one_for_both(a, b)
    assert found.value == pytest.approx(0.05)
    assert (found.seeds, found.high - found.low) == (3, pytest.approx(0.0, abs=1e-9))
    assert scores.one_for_both(b, a).value == pytest.approx(-0.05)
    assert scores.one_for_both(a, a)[:3] == (0.0, 0.0, 0.0)
    level = flat([0.5] * 3, n=4) + flat([0.5] * 3, n=16) + flat([0.5] * 3, n=64)
    assert scores.one_for_both(a, level).value == pytest.approx(0.0)  # a flat top costs nothing
    assert "two seeds" in scores.one_for_both(flat([0.5]), flat([0.5])).note


@pytest.mark.heavy
def test_luck_of_a_seed_gains_nothing():
    """a is flat, b wants n = 64: one n serves both, though a's luckiest n may be smaller."""
    noise = np.random.default_rng(0).normal(0, 0.02, (400, 3, 5))
    b = [c for n, mean in ((4, 0.5), (16, 0.5), (64, 0.6)) for c in flat([mean] * 5, n=n)]
    costs = []
    for lucky in noise:
        a = [c for n, luck in zip((4, 16, 64), lucky, strict=True) for c in flat(0.5 + luck, n=n)]
        costs.append(scores.one_for_both(a, b).value)
    assert abs(np.mean(costs)) < 0.001  # 0.004 where the seed that judges has chosen, too


def test_the_page_says_what_is_answered_by_its_cost():
    def row(claim, low):
        found = Estimate(0.0, low, 0.001, 3)
        cell = page.Cell(claim=claim, column=evidence.columns()[0], found=found)
        return [cell]

    six, cost = (next(c for c in CLAIMS if c.id == one) for one in ("6", "48"))
    said = page._decided([row(replace(six, smallest=0.0005), -1), row(cost, -1)])
    assert "1 of the 2 rows" in said
    cost_says = "What they ask is answered by its cost: 6 by row 48."
    assert said.endswith(f"open in every column: row 6. {cost_says}")
    both = page._decided([row(replace(c, smallest=0.0005), -1) for c in (six, cost)])
    assert both.endswith("open in every column: row 6, row 48.")


def test_early_and_late_are_of_the_same_runs():
    found = scores.begin(flat([0.5]), 0.5)
    assert found[0].rollouts_K[-1] <= 5e4
    late = flat([0.5])[0].replace(rollouts_K=np.array([8e4, 1e5]), score_K=np.array([0.4, 0.5]))
    assert scores.begin([late], 0.5) == []  # no evaluation by then
    short, long = scores.equal(flat([0.5], ends=1e4), flat([0.5]))
    assert short[0].rollouts_K[-1] == pytest.approx(1e4)
    assert long[0].rollouts_K[-1] <= 1e4 * (1 + 1e-9)


def test_one_seed_has_no_interval():
    found = scores.contrast(flat([0.5]), flat([0.6]))
    assert found.low == -math.inf
    assert verdict(found, "above", 0.02) == "undecided"
    assert "no runs in common" in scores.over_seeds([]).note


def test_one_n_cannot_be_best():
    alone = flat([0.5, 0.6, 0.7])
    for found in (
        statistics.rise(alone), statistics.shift(alone, alone), statistics.pilot_loss(alone),
        scores.one_seed_loss(alone),
    ):  # fmt: skip
        assert found.note == "one n only so far"
        assert verdict(found, "above", 1.0) == "undecided"


def test_what_a_run_moved():
    assert scores.moved(flat([0.5, 0.6, 0.7])).value == pytest.approx(0.5)


def test_a_final_score_is_the_mean_of_the_last_fifth():
    curve = flat([0.5])[0]
    curve = curve.replace(
        rollouts_K=np.array([0.0, 50, 79, 90, 100]), score_K=np.array([0, 0, 0, 0.4, 0.6])
    )
    assert scores.final_scores([curve]) == {(32, 16, 0): pytest.approx(0.5)}


def test_a_fall_is_looked_for_in_the_other_seeds():
    falls = power.planted(levels_at=4, n=(4, 16), falls=0.1)
    assert verdict(scores.fall(power.seen(falls, rng(), 3, QUIET)), "above", 0.01) == "holds"
    level = power.planted(levels_at=4, n=(4, 16))
    found = scores.fall(power.seen(level, rng(), 3, QUIET))
    assert verdict(found, "above", 0.01) == "does not"
    many = [scores.fall(power.seen(level, rng(i), 3, LOUD)).value for i in range(30)]
    assert abs(np.mean(many)) < 0.02  # a peak of the run's own would be 0.05 of noise
    loud = [scores.fall(power.seen(falls, rng(i), 3, LOUD)) for i in range(30)]
    assert {verdict(one, "above", 0.01) for one in loud} == {"holds", "undecided"}  # never denied


# Beyond the paper


@pytest.mark.heavy
def test_a_pilot_that_finds_the_n_and_one_that_does_not():
    found = statistics.pilot_loss(sweep(levels_at=4, beyond=0.03))
    assert decide(found, "at_most", 0.02) == "holds"
    assert "the pilot chose n = 4" in found.note
    assert decide(power._late_fall(rng(), QUIET), "at_most", 0.02) != "holds"


@pytest.mark.heavy
def test_what_one_seed_is_worth():
    found = scores.one_seed_loss(sweep(levels_at=64))
    assert decide(found, "at_most", 0.02) == "holds"
    assert scores.one_seed_loss(sweep(LOUD, levels_at=64)).value > found.value


def decide(found, kind, smallest):
    return verdict(found, kind, smallest)


# The registry and its evidence


def test_every_claim_says_what_it_needs():
    assert [c.id for c in CLAIMS] == [str(i + 1) for i in range(len(CLAIMS))]
    for claim in CLAIMS:
        assert set(claim.needs) <= set(evidence.ARMS), claim.id
        assert claim.smallest > 0
        assert claim.where or claim.group == "Beyond the paper"
    # What compares two n* was registered with more than the paper's own differences.
    amended = {c.id for c in CLAIMS if c.registered is not None}
    assert amended == {"5", "6", "8", "9", "10", "22"}


def test_every_row_stands_in_the_power_table():
    named = " ".join(t.rows for t in power.TRIALS)
    covered = {int(r) for part in named.replace(" to ", "-").split(",") for r in span(part)}
    assert {int(c.id) for c in CLAIMS} == covered


def span(part):
    found = []
    for word in part.split():
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_a_column_that_lacks_an_arm_says_so(tmp_path):
    column = evidence.Evidence(name="x", title="x", arms={}, seconds_per_million=100.0)
    with pytest.raises(evidence.MissingError, match="PPO"):
        column.sweep("ppo")
    # Five n, three seeds, 1M rollouts each: 15M rollouts, 1,500 seconds.
    assert column.cost(("ppo",)) == "15 runs, 15M rollouts, 0.42 core hours"
    bad = tmp_path / "columns.toml"
    bad.write_text('[x]\ntitle = "x"\nmedium = { source = "y.csv" }\n')
    with pytest.raises(InputError, match="an arm must be one of .*, but got medium in column x"):
        evidence.columns(bad)


def test_the_columns_of_the_page_are_there():
    names = [column.name for column in evidence.columns()]
    assert names[:4] == ["qwen7b", "grid", "grid_fresh", "bits"]
    fresh, bits = evidence.columns()[2:4]
    assert {c.seed for c in fresh.sweep("hard_on_easy", on="very_easy")} == {10, 11, 12}
    assert {c.problems_per_batch for c in bits.sweep("easy")} == {64}
    assert {c.problems_per_batch for c in bits.sweep("easy_all")} == {16, 64}
    assert {c.rollouts_per_problem for c in bits.sweep("n64")} == {64}
    assert {c.problem_set for c in bits.sweep("dual", on="hard")} == {"hard"}
    assert bits.runs("easy", "gap")[16, 4, 0] == pytest.approx(0.03178)
    with pytest.raises(evidence.MissingError, match="one length"):
        bits.with_tokens("easy")
    with pytest.raises(evidence.MissingError, match="three splits"):
        bits.fullest_batch("easy_all")


# The grid's files, the page, the figures


def grid_run(folder, name, *, study="easy", b_p=32, n=4, seed=0, ends=(0, 4, 8), state="done"):
    """A file as the grid has it: two problems on `easy`, two on `trained`, 8 samples."""
    rows = [
        {"steps": k, "rollouts": at, "tokens": at * 5, "problem_set": on, "samples": 8,
         "successes": [min(8, at + seed), 0 if on == "easy" else min(8, at)]}
        for k, at in enumerate(ends) for on in ("easy", "trained")
    ]  # fmt: skip
    spec = {"problems_per_batch": b_p, "rollouts_per_problem": n, "seed": seed}
    head = {"run": name, "study": study, "state": state, "cpu_s": 2.0, "spec": spec}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(
        {b"isocompute": json.dumps(head).encode()}
    )
    pq.write_table(table, folder / f"{name}.parquet")


def test_the_runs_of_the_grid_are_curves(tmp_path):
    grid_run(tmp_path, "a")
    grid_run(tmp_path, "b", study="hard")
    (curve,) = grid.curves(tmp_path, ("easy",), "", "avg", None)
    assert curve.configuration == (32, 4)
    assert curve.score_K.tolist() == [0.0, 0.25, 0.5]  # of two problems one is learned
    assert curve.tokens_K.tolist() == [0.0, 20.0, 40.0]
    best = grid.curves(tmp_path, ("easy",), "", "best", None)[0]
    # 4 of 8 right: no success in 4 of 8 has chance C(4, 4) / C(8, 4) = 1 / 70.
    assert best.score_K[1] == pytest.approx((1 - 1 / 70) / 2)
    assert grid.seconds_per_million(tmp_path) == pytest.approx(4.0 / 16 * 1e6)


def test_a_run_that_two_studies_plan_counts_for_both_at_equal_rollouts(tmp_path, monkeypatch):
    grid_run(tmp_path, "a", study="hard", ends=(0, 4, 8))
    grid_run(tmp_path, "b", study="anchor", ends=(0, 2))
    packed = tmp_path / "packed"
    packed.mkdir()
    table = pa.table({"run": ["a", "b"], "arm": ["rate-1e-3", "rate-2e-3"]})
    pq.write_table(table, packed / "anchor.parquet")
    monkeypatch.setattr(grid, "PACKED", packed)
    grid._packed.cache_clear()
    assert len(grid.of_study(tmp_path, ("anchor",))) == 2
    (one,) = grid.of_study(tmp_path, ("anchor",), "rate-1e-3")
    assert one.head["run"] == "a"
    arms = {"rates": {"study": "anchor", "arm": "rate-{}", "on": "easy", "runs": 3,
                      "values": ["1e-3", "2e-3"]}}  # fmt: skip
    column = evidence.Evidence(name="x", title="X", arms=arms, folder=tmp_path)
    assert column.progress(("rates",)) == (2, 3)
    # The other ends at 2 rollouts: so does this one, whose first evaluation after 0 is at 4.
    assert column.rates() == {4: {1e-3: 0.0, 2e-3: 0.125}}
    grid._packed.cache_clear()


def test_outcomes_of_the_grid_are_compared_at_equal_rollouts(tmp_path):
    grid_run(tmp_path, "a")
    grid_run(tmp_path, "b", n=64, ends=(0, 4))  # ends sooner: the other is read at 4, too
    gap = grid.of_problems(tmp_path, ("easy",), "easy", "gap")
    assert gap == {(32, 4, 0): pytest.approx(0.25), (32, 64, 0): pytest.approx(0.25)}
    runs = grid.of_study(tmp_path, ("easy",))
    rates = grid.landscapes(runs, (4, 64))
    assert {k: v.tolist() for k, v in rates.items()} == {
        "before": [0.0, 0.0, 0.0, 0.0], "n=4": [0.5, 0.5], "n=64": [0.5, 0.5]
    }  # fmt: skip
    assert grid.landscapes(runs, (4, 256)) == {}


def claim(**changes):
    return replace(CLAIMS[0], test=lambda _: Estimate(3.0, 1.0, 5.0, 3, 6e6), **changes)


def test_a_cell_says_its_verdict_what_it_rests_on_and_what_is_next():
    column = evidence.Evidence(name="x", title="X", arms={}, seconds_per_million=3600.0)
    sure = page.judge(claim(), column)
    assert (sure.short, sure.what_next()) == ("yes 3.0 [1.0, 5.0]", "")
    partial = replace(sure, runs=(5, 27))
    assert partial.short == "yes so far 3.0 [1.0, 5.0]"
    assert partial.what_next() == "5 of 27 planned runs are there"
    unsure = page.judge(claim(kind="within"), column)
    # The line lies at 2, 1 from the estimate; half-width 2: four times the seeds, nine more.
    assert unsure.what_next() == "at least 12 seeds: 18M rollouts more, 18 core hours"
    of_scores = page.judge(claim(kind="within", unit="score"), column)
    assert of_scores.what_next() == "about 12 seeds: 18M rollouts more, 18 core hours"
    at_end = Estimate(0.0, -math.inf, 4.0, 3, 6e6, "a bound", (128,))
    bits = evidence.columns()[3]  # runs of 262,144 rollouts at 16 CPU seconds a million
    bound = replace(sure, column=bits, found=at_end)
    assert bound.short == "open 0.0 [..., 4.0]"
    assert bound.what_next() == "a bound; add n = 128: 786k rollouts more, 0.0035 core hours"
    printed = replace(bits, printed={"30": 0.5}, arms={})
    cell = page.judge(next(c for c in CLAIMS if c.id == "30"), printed)
    assert cell.short == "open 0.5 [..., ...]"
    assert cell.what_next() == "as printed, one run: no interval"
    assert page.judge(CLAIMS[0], printed).short == "·"
    absent = page.judge(CLAIMS[0], column)
    assert absent.short == "·"
    assert absent.what_next().startswith("needs Easy problems: 27 runs, 108M rollouts")


@pytest.mark.heavy
def test_a_page_has_every_claim_and_leaves_no_row_without_an_answer():
    column = evidence.Evidence(name="x", title="X", arms={}, seconds_per_million=60.0)
    table = [[page.judge(c, column), page.judge(c, column)] for c in CLAIMS]
    written = page.text(table, "scorecard.png")
    rows, _, _ = written.partition("## What the tests can see")
    assert f"0 of the {len(CLAIMS)} rows say yes or no in a column;" in written
    assert "open in every column: row 1, row 2" in written
    for c in CLAIMS:
        assert rows.count(f"| {c.id} |") == 3, c.id  # the claim, what it takes, its test
        assert c.rule in written
    assert "](scorecard.png)" in written
    assert "| column | n | B_p |" in page.text([[page.judge(c, evidence.columns()[0])] for c in
                                                CLAIMS[:1]], "scorecard.png")  # fmt: skip
    drawn = page.picture(table)
    shown = [t.get_text() for t in drawn.axes[0].get_yticklabels()]
    assert len(shown) == len(CLAIMS)


def test_every_figure_names_arms_that_there_are():
    assert len({one.number for one in figure_list.FIGURES}) == len(figure_list.FIGURES)
    for one in figure_list.FIGURES:
        assert set(one.needs) <= set(evidence.ARMS)


@pytest.mark.heavy
def test_a_figure_has_a_row_per_column_with_data_and_says_what_others_lack(tmp_path):
    (one,) = [f for f in figure_list.FIGURES if f.number == "3"]
    found = evidence.columns(folder=tmp_path)
    drawn, lacks = figures.draw(one, found)
    titles = [axes.get_title() for axes in drawn.axes if axes.get_title()]
    assert titles == ["bits: Easy", "bits: Hard", "machine: Easy", "machine: Hard"]
    assert any("verbs" in line for line in lacks)
    said = figures.section(one, "3.png", found)
    assert "(0 of 9 runs are there)" in said
    assert "No data yet" in figures.section(one, None, found)
