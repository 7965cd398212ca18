"""Adaptive sweeps: what is decided on planted worlds, and that runners carry out just that."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_posterior import FakePosterior
from isocompute.cli import main
from isocompute.cli.resumed import resumed_lines
from isocompute.design.adaptive import _rounded, look_at, next_look
from isocompute.design.decider import decider
from isocompute.domain import Configuration
from isocompute.errors import InputError
from isocompute.lr_sweep import lr_study
from isocompute.model import fit_posterior
from isocompute.report.sections import study_section
from isocompute.report.study_data import study_view
from isocompute.runner import open_study, preview, run_study
from isocompute.sources.studies import study_curves
from isocompute.store import Database, Store
from isocompute.store.decisions import (
    decision_lines,
    last_look,
    load_looks,
    resting_states,
    save_look,
    why_ended,
)
from isocompute.store.doctor import examine
from isocompute.store.export import export_study
from isocompute.store.leases import Spent, progress_file
from isocompute.store.status import study_status
from isocompute.study.adaptive import Bounds, Decision, Grid, Look
from isocompute.study.cost import study_cost
from isocompute.testing.planted import NOISE, WORLDS, World, chained_arms
from study_helpers import FAST, edit, small_study

SLICES = (0.0625, 0.125, 0.25, 0.5, 1.0)


def planted(world: World, seed: int = 0, **bounds: float):
    """(grid, curves of three seeds) of a planted sweep."""
    steps = {
        Configuration(a.problems_per_batch, a.rollouts_per_problem):
            int(world.max_rollouts // a.batch_size)
        for a in world.arms
    }  # fmt: skip
    grid = Grid(steps=steps, seeds=3, slices=SLICES,
                bounds=Bounds(**{"target": world.max_rollouts, **bounds}))  # fmt: skip
    return grid, world.sample(NOISE["middle"], 3, np.random.default_rng(seed))


def carried_out(grid: Grid, curves, most: int = 40) -> list[Look]:
    """All looks of a sweep whose runs do what they are told."""
    looks = [grid.started(None)]
    while not looks[-1].has_ended and len(looks) < most:
        looks.append(next_look(grid, seen(curves, looks[-1]), looks[-1]))
    return looks


def seen(curves, look: Look):
    rows = look.of_configurations
    return [
        c.until(rows[c.configuration].rollouts[c.seed])
        for c in curves
        if c.seed < len(rows[c.configuration].rollouts)
    ]


DOMINATED = World(
    name="dominated",
    arms=tuple(
        replace(WORLDS["equal"].arms[0], rollouts_per_problem=n, ceiling=c)
        for n, c in ((8, 0.68), (64, 0.672), (512, 0.52))
    ),
)


@pytest.fixture(scope="module")
def dominated():
    grid, curves = planted(DOMINATED, tolerance=0.0005, spend=0.25 * 9 * 2**23)
    return grid, curves, carried_out(grid, curves)


@pytest.mark.long
def test_what_is_dominated_is_frozen_and_trained_no_further(dominated):
    grid, _, looks = dominated
    poor = Configuration(16, 512)
    frozen = [look.of_configurations[poor] for look in looks if
              look.of_configurations[poor].is_frozen]  # fmt: skip
    assert frozen
    assert frozen[-1].rollouts[0] <= 2**23 / 4
    assert frozen[0].numbers["looks_below"] == 2
    assert frozen[0].numbers["chance"] < 0.02
    assert frozen[0].numbers["improvement"] < 0.0006
    assert frozen[0].rollouts[0] >= 60 * poor.batch_size  # above the leader: only by evidence
    first = next(look for look in looks if look.of_configurations[poor].is_frozen)
    before = looks[first.number - 1].of_configurations[poor]
    assert before.numbers["looks_below"] == 1
    assert not before.is_frozen
    assert not looks[-1].of_configurations[Configuration(16, 8)].is_frozen
    assert grid.spent(looks[-1].of_configurations) <= grid.limit


@pytest.mark.heavy
def test_a_late_winner_is_not_frozen_and_is_found():
    world = World(name="late", arms=chained_arms((8, 128, 512), (0.60, 0.66, 0.72), (5.8, 6.4)))
    for seed in range(2):
        grid, curves = planted(world, seed)
        looks = carried_out(grid, curves)
        winner = Configuration(16, 512)
        assert not any(look.of_configurations[winner].is_frozen for look in looks)
        assert looks[-1].of_sweep.numbers["leader"] == 512
        assert looks[-1].has_ended
        assert looks[-1].of_sweep.numbers["loss_at_target"] < 0.002
        assert grid.spent(looks[-1].of_configurations) < 0.4 * 9 * 2**23


def test_a_loss_at_one_budget_weighs_more_than_in_a_mean(dominated):
    """Two draws: n = 64 is 0.02 better or worse than n = 8 at the last of nine budgets alone."""
    grid, _, looks = dominated
    few = replace(grid, steps={c: m for c, m in grid.steps.items() if c.rollouts_per_problem < 512})

    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.5 + 0.0 * (log2_n + x)

    top, late = np.log10(grid.bounds.target), np.array([[0.0, 0.02], [0.0, -0.02]])[:, :, None]
    fake: Any = FakePosterior(list(few.steps), surface, shift_DJ=np.zeros((2, 2)), last=top)
    fake.scores = lambda x: 0.5 + late * (np.asarray(x) > top - 1e-6)
    numbers = look_at(few, fake, looks[1]).of_sweep.numbers
    assert numbers["loss_at_target"] == pytest.approx(0.01)
    assert numbers["loss_on_path"] == pytest.approx(0.01 / 3, rel=1e-3)  # its mean is a ninth


@pytest.mark.heavy
def test_every_bound_changes_something(dominated):
    grid, curves, looks = dominated
    last = looks[8]  # by now n = 64 has seen a quarter of its run
    now = next_look(grid, seen(curves, last), last)

    def other(**bounds: float) -> Look:
        changed = replace(grid, bounds=replace(grid.bounds, **bounds))
        return next_look(changed, seen(curves, last), last)

    assert next_look(grid, seen(curves, last), last) == now  # and by nothing else
    assert not now.has_ended
    assert other(tolerance=0.9, target=2.0**18).has_ended
    spent = grid.spent(last.of_configurations)
    assert other(spend=spent).has_ended
    second = Configuration(16, 64)
    numbers = now.of_configurations[second].numbers
    chance, improvement = numbers["chance"], numbers["improvement"]

    def below(**bounds: float) -> float:
        return other(**bounds).of_configurations[second].numbers["looks_below"]

    assert below(chance=chance * 1.01, improvement=improvement * 1.01) == 1
    assert below(chance=chance * 0.99, improvement=improvement * 1.01) == 0
    assert below(chance=chance * 1.01, improvement=improvement * 0.99) == 0
    assert other(target=2.0**26).of_sweep.numbers != now.of_sweep.numbers
    fewer = replace(grid, seeds=1)
    rows = next_look(fewer, seen(curves, looks[0]), looks[0]).of_configurations
    assert all(len(d.rollouts) == 1 for d in rows.values())


@pytest.mark.long
def test_an_n_above_the_leader_is_not_frozen_for_being_behind():
    """Its first 60 steps say nothing of where it goes, whatever they look like."""
    grid, curves = planted(DOMINATED, chance=0.999, improvement=0.999, target=2.0**20)
    grid = replace(grid, slices=(2**18 / 2**23, 2**19 / 2**23, 1.0))  # 32 and 64 steps of n = 512
    first = grid.started(None)
    look = next_look(grid, seen(curves, first), first)
    rows = look.of_configurations
    assert rows[Configuration(16, 512)].numbers["looks_below"] == 0
    assert rows[Configuration(16, 64)].numbers["looks_below"] == 1


def test_nothing_is_frozen_before_a_quarter_and_nothing_ends_before_a_half():
    """What rises late is not foretold: a hopeless n is trained to a quarter, a good one to half."""
    grid, _ = planted(DOMINATED, tolerance=0.9)
    best, poor = Configuration(16, 8), Configuration(16, 512)

    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.6 - 0.02 * (log2_n - 3) + 0.0 * x

    def after(shares: dict[Configuration, float], grid: Grid = grid) -> Look:
        rows = [
            Decision(action="continue", configuration=c,
                     rollouts=(int(share * grid.steps[c]) * c.batch_size,),
                     numbers={"looks_below": 1.0} if c == poor and share >= 0.25 else {})
            for c, share in shares.items()
        ]  # fmt: skip
        fake: Any = FakePosterior(list(shares), surface, last=np.log10(grid.bounds.target))
        return look_at(grid, fake, Look(3, (Decision(action="continue"), *rows)))

    other = Configuration(16, 64)
    early = after({best: 0.5, other: 0.25, poor: 0.125})
    assert early.of_configurations[poor].action == "continue"
    assert early.of_sweep.numbers["foretold"] == 1
    later = after({best: 0.5, other: 0.25, poor: 0.25})
    assert later.of_configurations[poor].is_frozen
    assert later.has_ended
    short = after({best: 0.25, other: 0.25, poor: 0.25})
    assert not short.has_ended
    assert short.of_configurations[best].rollouts[0] == grid.bounds.target / 2
    # A slice ends at a whole update: a quarter of 1,025 of them is 256.
    odd = replace(grid, steps={c: m + 1 for c, m in grid.steps.items()},
                  bounds=replace(grid.bounds, target=2.0**24))  # fmt: skip
    assert after({best: 0.5, other: 0.25, poor: 0.25}, odd).of_configurations[poor].is_frozen


@pytest.mark.long
def test_the_order_of_curves_does_not_matter(dominated):
    grid, curves, looks = dominated
    assert next_look(grid, seen(curves[::-1], looks[1]), looks[1]) == looks[2]


@pytest.mark.long
def test_a_sweep_without_any_score_ends(dominated):
    grid, curves, looks = dominated
    none = [c.until(0) for c in curves]
    assert next_look(grid, none, looks[0]).has_ended
    assert next_look(grid, [], looks[0]).of_sweep.numbers["spent"] > 0


def test_the_first_slice_reaches_the_first_evaluation():
    """A slice without a score would end the sweep: nothing can be decided from it."""
    steps = {Configuration(8, n): 10_000 // (8 * n) for n in (8, 32, 512)}
    of = {"steps": steps, "seeds": 1, "slices": (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)}
    grid = Grid(**of, bounds=Bounds(target=1e6), first_evaluation=1024)
    blind = Grid(**of, bounds=Bounds(target=1e6))
    assert grid.levels(Configuration(8, 8)) == [1024, 1216, 2496, 4992, 9984]
    assert grid.levels(Configuration(8, 32))[0] == 1024
    assert grid.levels(Configuration(8, 512)) == blind.levels(Configuration(8, 512))
    assert blind.levels(Configuration(8, 8))[0] == 256
    started = grid.started(None)
    assert started is not None
    assert {d.rollouts for d in started.of_configurations.values()} == {(1024,), (8192 // 2,)}
    study = replace(small_study(first=100), adaptive=Bounds(target=256))
    assert study.grid().first_evaluation == 100


# -- carried out by a runner ------------------------------------------------------------------


def adaptive_study(**bounds: Any):
    """Six runs of 256 rollouts: n = 2 and 4, three seeds, three slices."""
    study = small_study(seeds=(0, 1, 2), slices=(0.25, 0.5, 1.0))
    return replace(
        study, adaptive=Bounds(**{"target": 256, **bounds}),
        source={"adaptive": True},
    )  # fmt: skip


def scripted(*looks: dict[int, tuple[str, tuple[int, ...]]]):
    """A `decide` that says so much of n = 2 and 4 at each look, and ends."""

    def decide(last: Look) -> Look:
        if last.number >= len(looks):
            ended = replace(last.of_sweep, action="end")
            return Look(last.number + 1, (ended, *last.of_configurations.values()))
        rows = [
            Decision(action=action, configuration=Configuration(4, n), rollouts=rollouts)
            for n, (action, rollouts) in looks[last.number].items()
        ]
        of_sweep = Decision(action="continue", numbers=last.of_sweep.numbers)
        return Look(last.number + 1, (of_sweep, *rows))

    return decide


SCRIPT = scripted(
    {2: ("freeze", (64,)), 4: ("continue", (128,))},
    {2: ("freeze", (64,)), 4: ("repeat", (256, 128))},
)


def reached(folder: Path) -> dict[tuple[int, int], int]:
    with Store(folder) as store:
        return {(r.spec["rollouts_per_problem"], r.spec["seed"]): r.rollouts for r in store.runs()}


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_runs_go_as_far_as_was_decided(tmp_path, workers):
    notes = []
    summary = run_study(
        adaptive_study(), tmp_path, workers=workers, settings=FAST, decide=SCRIPT,
        progress=lambda p: notes.append(p.note),
    )  # fmt: skip
    assert reached(tmp_path) == {(2, 0): 64, (4, 0): 256, (4, 1): 128,
                                 (2, 1): 0, (2, 2): 0, (4, 2): 0}  # fmt: skip
    assert (summary.done, summary.pending, summary.resting, summary.exit_code) == (1, 0, 5, 0)
    assert "look 1, frozen n = 2" in notes
    assert "look 3, frozen n = 2: ended" in notes
    status = study_status(tmp_path)
    assert {k: v for k, v in status.states.items() if v} == {
        "done": 1, "frozen": 1, "stopped": 1, "unneeded": 3
    }  # fmt: skip
    text = "\n".join(status.lines())
    assert "adaptive: look 3" in text
    assert "frozen: n=2, B_p=4, at 64 rollouts (look 1)" in text
    document = status.to_dict()["looks"]
    assert [look["look"] for look in document] == [0, 1, 2, 3]
    assert examine(tmp_path) == []
    # Started again, it trains nothing.
    assert run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT).done == 1
    assert reached(tmp_path)[2, 0] == 64


def test_numbers_of_a_look_are_kept_and_shown_whole() -> None:
    def said(loss: float) -> str:
        numbers = {"loss_at_target": loss, "loss_on_path": 0.001, "tolerance": 0.002,
                   "spent": 1179648.0, "target": 65536.0}  # fmt: skip
        look = Look(2, (Decision(action="end", numbers=_rounded(numbers)),))
        return "\n".join(decision_lines([look], 2 * 1179648, ()))

    assert "1,179,648 rollouts seen (50% of the grid)" in said(0.0029)  # whole numbers as they are
    assert _rounded({"loss": 0.00123456789}) == {"loss": 0.00123457}


@pytest.mark.heavy
def test_readers_know_what_was_frozen_and_why(tmp_path):
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    curves = study_curves(tmp_path, {}).curves
    assert {(c.rollouts_per_problem, c.seed): c.is_frozen for c in curves} == {
        (2, 0): True, (4, 0): False, (4, 1): False
    }  # fmt: skip
    section = study_section(study_view(tmp_path))
    assert section is not None
    assert [row["number"] for row in section["looks"]] == [0, 1, 2, 3]
    assert section["looks"][1]["decided"] == "freeze n = 2; continue n = 4"
    assert section["looks"][3]["decided"].startswith("the sweep ends; ")
    states = {(row["n"], row["seed"]): row["state"] for row in section["runs"]}
    assert states[2, 0] == "frozen"
    assert states[4, 1] == "stopped"
    assert states[4, 2] == "unneeded"
    # A study that is not adaptive any more trains what was left.
    full = replace(adaptive_study(), adaptive=None, source={})
    assert run_study(full, tmp_path, workers=0, settings=FAST).done == 6
    status = study_status(tmp_path)
    assert len(status.looks) == 4
    assert "frozen" not in "\n".join(status.lines())


def test_a_run_that_was_trained_past_its_look_does_not_rest(tmp_path):
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    with Store(tmp_path) as store:
        looks, runs = load_looks(store.database), store.runs()
    (frozen,) = [run for run in runs if resting_states(looks, runs).get(run.hash) == "frozen"]
    more = [replace(run, rollouts=2 * run.rollouts) if run is frozen else run for run in runs]
    assert frozen.hash not in resting_states(looks, more)


def test_a_run_added_to_an_adaptive_study_leaves_its_decisions_standing(tmp_path):
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    before = study_status(tmp_path).states
    one = replace(adaptive_study(), adaptive=None, source={})
    more = replace(one, runs=[run for run in one.runs if run.seed == 2][-1:])
    assert run_study(more, tmp_path, workers=0, settings=FAST).done == 1
    status, more = study_status(tmp_path), {"done": 1, "unneeded": -1}
    assert status.states == before | {k: before[k] + change for k, change in more.items()}
    assert "frozen: n=2" in "\n".join(status.lines())


@pytest.mark.long
def test_a_frozen_configuration_is_not_said_to_have_stopped(dominated):
    _, curves, looks = dominated
    told = [c.replace(is_frozen=c.rollouts_per_problem == 512) for c in seen(curves, looks[-1])]
    states = fit_posterior(told, draws=20).state_J
    assert states[2] == "frozen"
    assert "frozen" not in states[:2]


def test_a_frozen_n_is_thawed_to_the_end(tmp_path):
    study = adaptive_study()
    run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    with pytest.raises(InputError, match=r"must name frozen n \(.*\), but got 4; name those, or "):
        run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT, thaw=[4])
    assert reached(tmp_path)[2, 0] == 64
    summary = run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT, thaw=[2])
    assert summary.done == 2
    assert reached(tmp_path)[2, 0] == 256
    assert reached(tmp_path)[4, 1] == 128  # and nothing else goes on
    with Store(tmp_path) as store:
        row = last_look(store.database).of_configurations[Configuration(4, 2)]
        assert row.action == "thaw"
        assert row.rollouts == (256,)
        # It continued from its checkpoint: no update was made twice.
        assert store.accounting().wasted_rollouts == 0
    assert run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT, thaw=True).done == 2


def test_a_dry_run_says_what_it_would_thaw_and_what_that_takes(tmp_path):
    """What is left of the frozen n alone, to its end."""
    folder, study = tmp_path / "s", adaptive_study()
    assert preview(study, folder, SCRIPT, thaw=True) is None
    run_study(study, folder, workers=0, settings=FAST, decide=SCRIPT)
    before = reached(folder)
    over = preview(study, folder, SCRIPT)
    assert over.trains == []
    assert over.ended.startswith("ended: ")
    said = " ".join(resumed_lines(over, study_cost(study, runs=[]), "s"))
    assert f"{over.ended}." in " ".join(said.split())
    for asked in ([2], True):
        found = preview(study, folder, SCRIPT, thaw=asked)
        assert (found.thawed, found.goes_on) == ([2], False)
        assert {spec.allocation.rollouts_per_problem for spec in found.trains} == {2}
        assert {spec.allocation.rollouts for spec in found.trains} == {256}
        left = sum(256 - found.steps[spec.hash] * 8 for spec in found.trains)
        assert study_cost(study, runs=found.trains, steps=found.steps).rollouts == left > 0
    assert found.rollouts == sum(before.values())
    with pytest.raises(InputError, match=r"must name frozen n \(2\), but got 4; name those, or "):
        preview(study, folder, SCRIPT, thaw=[4])
    with pytest.raises(InputError, match="only an adaptive study has decisions"):
        preview(small_study(), folder, thaw=True)
    assert reached(folder) == before


def test_what_was_decided_is_read_not_decided_again(tmp_path):
    """A runner that dies right after a look was kept goes on by it."""
    study = adaptive_study()

    class GoneError(Exception):
        pass

    def once(last: Look) -> Look:
        if last.number:
            raise GoneError
        return SCRIPT(last)

    with pytest.raises(GoneError):
        run_study(study, tmp_path, workers=0, settings=FAST, decide=once)
    asked = []

    def noted(last: Look) -> Look:
        asked.append(last.number)
        return SCRIPT(last)

    run_study(study, tmp_path, workers=0, settings=FAST, decide=noted)
    assert asked == [1, 2]
    with Store(tmp_path) as store:
        looks = load_looks(store.database)
    database = Database(tmp_path, write=True)
    assert not save_look(database, replace_number(looks[-1], 1))  # of two runners the first decides
    assert load_looks(database) == looks
    database.close()


def replace_number(look: Look, number: int) -> Look:
    return Look(number, look.decisions)


def test_a_frozen_run_that_was_cut_off_after_its_last_commit_is_booked(tmp_path):
    """Its runner died before it wrote down how the attempt ended; nothing else would."""
    study = adaptive_study()
    run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    with Store(tmp_path) as store:
        before = store.accounting()
        run, attempt, rollouts, evaluated = store.database.read(
            "SELECT r.run, a.attempt, a.rollouts, a.evaluation_rollouts FROM runs r "
            "JOIN attempts a ON a.run = r.run WHERE r.state = 'pending' AND r.rollouts = 64"
        )[0]
    spent = Spent(rollouts=rollouts, tokens=rollouts, evaluation_rollouts=evaluated,
                  evaluation_tokens=evaluated)  # fmt: skip
    progress_file(tmp_path, attempt).write_bytes(spent.pack())
    edit(tmp_path, "UPDATE attempts SET outcome = 'running', rollouts = 0, tokens = 0, "
         "evaluation_rollouts = 0, evaluation_tokens = 0 WHERE attempt = ?", attempt)  # fmt: skip
    edit(tmp_path, "UPDATE runs SET lease_runner = 'gone' WHERE run = ?", run)
    assert {f.code for f in examine(tmp_path) if f.severity == "error"} == {"overcounted"}
    run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    assert [f for f in examine(tmp_path) if f.severity == "error"] == []
    with Store(tmp_path) as store:
        after = store.accounting()
    assert (after.rollouts, after.wasted_rollouts) == (before.rollouts, before.wasted_rollouts)
    assert reached(tmp_path)[2, 0] == 64


def test_other_bounds_and_new_n_go_on_where_the_sweep_had_ended(tmp_path):
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    asked = []

    def noted(last: Look) -> Look:
        asked.append(last.number)
        return SCRIPT(last)

    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=noted)
    assert asked == []
    run_study(adaptive_study(tolerance=0.001), tmp_path, workers=0, settings=FAST, decide=noted)
    assert asked[0] == 3
    study = small_study(ns=(2, 4, 8), seeds=(0, 1, 2), slices=(0.25, 0.5, 1.0))
    study = replace(study, adaptive=Bounds(target=256), source={"adaptive": True})
    run_study(study, tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    assert reached(tmp_path)[8, 0] == 64


def test_other_scores_to_compare_go_on_where_the_sweep_had_ended(tmp_path) -> None:
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    asked = []

    def compares(last: Look) -> Look:
        asked.append(last.number)
        return Look(last.number + 1, (grid.of_sweep("end", last.of_sweep.numbers),
                                      *last.of_configurations.values()))  # fmt: skip

    other = replace(adaptive_study(metric="best@2"), source={"adaptive": True})
    grid = other.grid()
    for _ in range(2):  # the second finds what the first has kept
        run_study(other, tmp_path, workers=0, settings=FAST, decide=compares)
    assert asked == [3]
    with Store(tmp_path) as store:
        kept = last_look(store.database)
    assert kept is not None
    assert kept.of_sweep.compared == "best@2"
    assert "compared" not in kept.of_sweep.numbers
    assert Bounds(target=9, metric="avg", problem_set="hard").compared == "avg on hard"


def test_an_adaptive_study_needs_someone_to_decide(tmp_path):
    with pytest.raises(InputError, match="needs something that decides, but got none"):
        run_study(adaptive_study(), tmp_path, workers=0, settings=FAST)
    with pytest.raises(InputError, match="only an adaptive study has decisions"):
        run_study(small_study(), tmp_path / "full", workers=0, settings=FAST, thaw=True)
    with pytest.raises(InputError, match="only an adaptive study has decisions"):
        decider(small_study(), tmp_path)


def test_a_changed_decision_is_damage(tmp_path):
    run_study(adaptive_study(), tmp_path, workers=0, settings=FAST, decide=SCRIPT)
    import sqlite3

    connection = sqlite3.connect(tmp_path / "study.db")
    connection.execute("UPDATE decisions SET action = 'continue' WHERE look = 1")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match=r"damaged at decisions \(look 1\)"):
        study_status(tmp_path)


# -- a whole study ----------------------------------------------------------------------------

FILE = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 64}}
  validation:
    val: {generated: simulated, options: {size: 64}}
recipe: {learning_rate: 5.0, temperature: 1.0}
grid: {problems_per_batch: 8, rollouts_per_problem: [4, 16, 64], seeds: 3}
budget: 32768
evaluation: {samples: 4, per_octave: 3, first: 256}
adaptive: {tolerance: 0.01}
"""


def write(folder: Path, text: str = FILE) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def looks_of(folder: Path) -> list[Look]:
    with Store(folder) as store:
        return load_looks(store.database)


@pytest.mark.heavy
def test_a_killed_sweep_takes_the_same_decisions(tmp_path):
    path = write(tmp_path)
    study = open_study(path)
    run_study(study, tmp_path / "whole", workers=0, settings=FAST,
              decide=decider(study, tmp_path / "whole"))  # fmt: skip
    command = [sys.executable, "-m", "isocompute", "run", str(path), "-o", str(tmp_path / "cut"),
               "--workers", "1", "--calibrate", "0"]  # fmt: skip
    killed = 0
    for wait_s in (2.0, 2.5, 3.0):
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)  # fmt: skip
        time.sleep(wait_s)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 1
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert looks_of(tmp_path / "cut") == looks_of(tmp_path / "whole")
    assert reached(tmp_path / "cut") == reached(tmp_path / "whole")
    assert looks_of(tmp_path / "cut")[-1].has_ended
    assert [f for f in examine(tmp_path / "cut") if f.severity == "error"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adaptive: {chance: 2}", r"`adaptive.chance` must lie between 0 and 1, but got 2"),
        ("adaptive: {improvement: 0}", r"`adaptive.improvement` must lie between 0 and 1"),
        ("adaptive: {tolerance: -1}", r"`adaptive.tolerance` must lie between 0 and 1"),
        ("adaptive: {target: 0.5}", r"`adaptive.target` must be a budget of at least 1 rollout"),
        ("adaptive: {spend: 0.1}", r"`adaptive.spend` must be a budget of at least 1 rollout"),
        ("adaptive: {tolerence: 1}", r"got 'adaptive.tolerence'; did you mean 'tolerance'"),
        ("adaptive: yes", r"adaptive of 'sweep.yaml' must be true, false or a mapping of bounds"),
        ("adaptive: {problem_set: other}",
         r"`adaptive.problem_set` must name a validation set, but got 'other' of val"),
        ("adaptive: true\ngrid: {problems_per_batch: 8, rollouts_per_problem: 4, seeds: 3}",
         r"must compare at least 2 configurations, but its grid holds 1"),
        ("adaptive: true\nrecipes: {a: {learning_rate: 5.0, temperature: 1.0}, "
         "b: {learning_rate: 4.0, temperature: 1.0}}", r"must have one recipe and one problem set"),
    ],
)  # fmt: skip
def test_bad_bounds_are_refused_in_one_line(tmp_path, text, message):
    kept = [
        line for line in FILE.splitlines()
        if line.split(":")[0] not in ("adaptive", *(t.split(":")[0] for t in text.splitlines()))
        and not ("recipes" in text and line.startswith("recipe:"))
    ]  # fmt: skip
    with pytest.raises(InputError, match=message) as caught:
        open_study(write(tmp_path, "\n".join([*kept, text])))
    assert "\n" not in str(caught.value)


def test_the_words_of_the_file_become_bounds(tmp_path):
    study = open_study(write(tmp_path))
    assert study.adaptive == Bounds(target=32768, tolerance=0.01)
    assert study.slices == (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)
    text = FILE.replace("adaptive: {tolerance: 0.01}", "adaptive: true\nslices: [0.5, 1]")
    assert open_study(write(tmp_path, text)).slices == (0.5, 1.0)
    assert open_study(write(tmp_path, text)).adaptive == Bounds(target=32768)
    off = open_study(write(tmp_path), ["adaptive=false"])
    assert off.adaptive is None
    assert off.slices == (0.125, 0.25, 0.5, 1.0)
    words = ["adaptive={target: 40gpuh, spend: 20gpuh, chance: 0.01, improvement: 0.001}",
             "rates={rollouts_per_gpu_hour: 1000}"]  # fmt: skip
    found = open_study(write(tmp_path), words).adaptive
    assert found == Bounds(target=40000, spend=20000, chance=0.01, improvement=0.001)


def test_a_learning_rate_sweep_of_it_is_whole(tmp_path):
    assert lr_study(open_study(write(tmp_path)), None, tmp_path / "lr").adaptive is None


@pytest.mark.heavy
def test_a_metric_that_the_evaluations_do_not_give_is_refused(tmp_path):
    study = open_study(write(tmp_path), ["adaptive={metric: best@8}"])
    with pytest.raises(InputError, match="must need at most the 4 samples .* but got 'best@8'"):
        decider(study, tmp_path)
    assert math.isclose(decider_metric(tmp_path, "best@4"), decider_metric(tmp_path, "best@4"))
    assert decider_metric(tmp_path, "best@4") != decider_metric(tmp_path, "worst@4")


def decider_metric(folder: Path, metric: str) -> float:
    """Expected loss at the first look by a metric, of a study whose first slice was trained."""
    study = open_study(write(folder), [f"adaptive={{metric: {metric}, tolerance: 0.9}}"])
    target = folder / "one-slice"
    if not target.exists():
        study_of = replace(study, source={"adaptive": True})
        run_study(study_of, target, workers=0, settings=FAST,
                  decide=lambda last: Look(last.number + 1, (
                      Decision(action="end", numbers=last.of_sweep.numbers),
                      *last.of_configurations.values())))  # fmt: skip
    first = looks_of(target)[0]
    return float(decider(study, target)(first).of_sweep.numbers["loss_on_path"])


@pytest.mark.heavy
def test_a_sweep_that_ends_says_what_its_next_step_needs(tmp_path):
    bounds = "adaptive={tolerance: 0.0001, spend: 20000}"
    study = open_study(write(tmp_path), [bounds])
    folder = tmp_path / "s"
    run_study(study, folder, workers=0, settings=FAST, decide=decider(study, folder))
    looks = looks_of(folder)
    numbers = looks[-1].of_sweep.numbers
    assert numbers["spent"] <= numbers["limit"] == 20000 < numbers["needed"]
    assert numbers["needed"] % 32 == 0  # whole batches of the smallest n
    (line,) = [one for one in study_status(folder).lines() if "ended:" in one]
    assert f"its next step needs {numbers['needed']:,.0f} in all" in line
    # Every decision is in an export, too.
    files = {f.name: f for f in export_study(folder, tmp_path / "t", format="csv")}
    with files["decisions.csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(look.decisions) for look in looks)
    of_sweep = [row for row in rows if not row["rollouts_per_problem"]]
    assert (len(of_sweep), of_sweep[-1]["action"]) == (len(looks), "end")
    assert json.loads(of_sweep[-1]["numbers"]) == numbers
    names = {f.name for f in export_study(folder, tmp_path / "u", format="parquet")}
    assert "decisions.parquet" in names


def test_the_bound_of_a_sweep_is_said_before_it_starts(tmp_path, capsys):
    text = FILE + "rates: {rollouts_per_gpu_hour: 1000, usd_per_gpu_hour: 2}\n"
    assert main(["run", str(write(tmp_path, text)), "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    # 1.2 runs of three n; the grid is 9 runs of 32,768 rollouts.
    assert "sweep: adaptive, at most 117,965 rollouts (`adaptive.spend`), about " in said
    assert ": 40% of its grid of 9 runs, 294,912 rollouts + " in said


def test_adaptive_true_is_a_section_of_defaults(tmp_path):
    path = write(tmp_path, FILE.replace("adaptive: {tolerance: 0.01}", "adaptive: true"))
    bounds = open_study(path, ["adaptive.spend=3e6"]).adaptive
    assert (bounds.spend, bounds.tolerance) == (3e6, 0.002)
    off = write(tmp_path, FILE.replace("{tolerance: 0.01}", "false"))
    with pytest.raises(InputError, match="'adaptive' is no section, it is False"):
        open_study(off, ["adaptive.spend=1e6"])


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (0.0015, "  ended: its plan loses less than the tolerance, 0.002"),
        (0.0022, "  ended: it had trained 300 of 320 rollouts that it may (`adaptive.spend`), and "
                 "its next step needs 340 in all; its plan still loses more than the tolerance, "
                 "0.002: raise `adaptive.spend` to 480"),
        (0.0023, "  ended: its plan still loses more than the tolerance, 0.002, and no training "
                 "within the budget would change it: raise `budget`"),
        (0.0024, "  ended: it had trained 300 of 320 rollouts that it may (`adaptive.spend`); "
                 "its plan still loses more than the tolerance, 0.002: raise `adaptive.spend` to "
                 "480"),
    ],
)  # fmt: skip
def test_status_says_why_a_sweep_ended(loss, line):
    numbers = {"spent": 300.0, "target": 1000.0, "loss_at_target": loss,
               "loss_on_path": 0.001, "tolerance": 0.002, "limit": 320.0}  # fmt: skip
    numbers |= {0.0022: {"needed": 340.0}, 0.0023: {"needed": 0.0}}.get(loss, {})
    of = Configuration(32, 8)
    end = Look(3, (
        Decision(action="end", numbers=numbers),
        Decision(action="freeze", configuration=of, rollouts=(100,),
                 numbers={"chance": 0.013, "improvement": 0.0001}),
    ))  # fmt: skip
    assert decision_lines([end], 1200, {of}) == [
        "adaptive: look 3, 300 rollouts seen (25% of the grid); the plan at 1,000 is expected to "
        f"lose {loss:.4f} of score, 0.0010 over the budgets up to it",
        line,
        "  frozen: n=8, B_p=32, at 100 rollouts (look 3): 1.3% chance to come within 0.005 of "
        "the best, expected improvement 0.0001",
    ]


def test_a_sweep_that_misses_its_tolerance_at_smaller_budgets_says_that_it_is_there():
    """Its look said 0.0017 at the target, its end that the plan loses more than 0.002."""
    numbers = {"spent": 300.0, "target": 1000.0, "loss_at_target": 0.0017, "loss_on_path": 0.0024,
               "tolerance": 0.002, "limit": 320.0, "needed": 340.0}  # fmt: skip
    why = why_ended([Look(3, (Decision(action="end", numbers=numbers),))], 1200)
    assert "loses more than the tolerance, 0.002, at budgets below 1,000: raise" in why


def test_status_is_true_after_a_thaw_and_names_no_more_than_the_grid():
    """A look of 300 of 320 that it may, then 100 more by a thaw; the grid holds 400 in all."""
    def end(number, spent, loss, limit):
        numbers = {"spent": spent, "target": 1000.0, "loss_at_target": loss, "loss_on_path": 0.001,
                   "tolerance": 0.002, "limit": limit, "needed": 340.0}  # fmt: skip
        return Look(number, (Decision(action="end", numbers=numbers),))

    looks = [end(3, 200.0, 0.0031, 220.0), end(4, 300.0, 0.003, 320.0)]
    head, why, unseen = decision_lines(looks, 400, (), 400)
    assert head.endswith("0.0010 over the budgets up to it; after 200 it was 0.0031")
    assert why.endswith("raise `adaptive.spend` to 400")  # not 480, which is no part of the grid
    assert unseen.startswith("  100 rollouts trained since then are not in these losses")
    assert len(decision_lines(looks, 400, (), 300)) == 2
    assert why_ended(looks, 400) == why.strip()  # which `run` says at its end
    (_, why) = decision_lines([end(4, 400.0, 0.003, 400.0)], 400, (), 400)
    assert "all that its grid holds, and its plan still loses more than the tolerance, 0" in why
    assert why.endswith("002: raise `budget`, or add seeds or n")


def test_what_a_sweep_may_spend_where_nobody_says():
    def limit(seeds, **changes):
        steps = {Configuration(16, n): 2**16 // (16 * n) for n in (8, 16)}
        bounds = Bounds(target=2**16, **changes)
        return Grid(steps=steps, seeds=seeds, slices=(1.0,), bounds=bounds).limit

    assert limit(3) == pytest.approx(1.2 * 2 * 2**16)  # 40% of three seeds
    assert limit(5) == limit(3)
    assert limit(1) == 2 * 2**16  # the whole grid
    assert limit(3, spend=5e4) == 5e4
    assert limit(3, spend=1e9) == 3 * 2 * 2**16


@pytest.mark.parametrize("mended", [True, False])
def test_a_sweep_whose_runs_all_failed_goes_on_once_they_train(tmp_path, mended):
    def sweep(fault):
        study = small_study(engine="odd", options={"fault": fault, "flag": str(tmp_path / "flag")},
                            rollouts=1024, seeds=(0, 1), slices=(0.25, 0.5, 1.0))  # fmt: skip
        return replace(study, adaptive=Bounds(target=1024))

    def run(study, **options):
        return run_study(study, tmp_path / "s", workers=0, settings=FAST,
                         decide=decider(study, tmp_path / "s"), **options)  # fmt: skip

    assert run(sweep("raises")).failed == 2
    with Store(tmp_path / "s") as store:
        assert last_look(store.database).saw_nothing
        before = len(load_looks(store.database))
    assert run(sweep("raises")).failed == 2  # nobody mended them: no look is taken
    if mended:
        study = sweep("plain")
        assert preview(study, tmp_path / "s", decider(study, tmp_path / "s")).goes_on
        run(study)
    else:
        assert run(sweep("raises"), retry_failed=True).failed == 2
    with Store(tmp_path / "s") as store:
        looks = load_looks(store.database)
        rollouts = sum(one.rollouts for one in store.runs())
    assert looks[before].of_sweep.action == "continue"
    assert looks[-1].saw_nothing is not mended
    assert (rollouts > 2 * 256) is mended
    assert not examine(tmp_path / "s")
