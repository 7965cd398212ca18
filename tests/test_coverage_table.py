"""The coverage benchmark itself: interrupted and resumed it says the same; every cell is shown."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.laws import fit_sweep
from isocompute.plan import plan_budget


@pytest.fixture(scope="module")
def coverage() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "law_coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["coverage_table"] = module
    spec.loader.exec_module(module)
    return module


def test_a_cell_in_chunks_is_the_cell(
    coverage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = coverage.Task("coverage", "late_winner", "low", 2, 900, 3, 40)
    whole = coverage.run_chunk(task)
    monkeypatch.setattr(coverage, "CHUNK", 2)
    parts = coverage.chunks(task)
    assert [(p.first, p.sweeps) for p in parts] == [(900, 2), (902, 1)]
    coverage.do((parts[0], tmp_path))
    assert coverage.cell_of(task, tmp_path).sweeps == 2
    coverage.do((parts[1], tmp_path))
    cell = coverage.cell_of(task, tmp_path)
    assert (cell.sweeps, cell.tally) == (3, whole.tally)
    assert len(cell.tally["law 0.90"]) == 3 * coverage.BUDGETS

    def never(_: object) -> None:
        raise AssertionError("a chunk that is done was run again")

    monkeypatch.setattr(coverage, "run_chunk", never)
    coverage.do((parts[0], tmp_path))
    assert "| late_winner | low | 2 |" in coverage.table([task], tmp_path)


def test_one_seed_is_conditional_on_its_run(coverage: Any) -> None:
    of = coverage.sample_of
    assert of(coverage.Task("coverage", "rising", "high", 1, 0, 1, 9))[1].ceiling_sd == 0
    assert of(coverage.Task("coverage", "rising", "high", 2, 0, 1, 9))[1].ceiling_sd == 0.012
    world = of(coverage.Task("regret", "rising", "high", 3, 0, 1, 9))[0]
    assert world.max_rollouts == 2.0**21


def test_a_crossover_counts_whether_it_is_reported_or_not(coverage: Any) -> None:
    cell = coverage.run_chunk(coverage.Task("coverage", "rising", "high", 2, 900, 2, 60))
    assert sum(cell.tally["true crossovers"]) == len(cell.tally["crossing 0.90"]) == 12
    assert sum(cell.tally["crossovers detected"]) < 12


def test_plans_of_a_sweep_beat_simpler_rules_beyond_it(coverage: Any) -> None:
    cell = coverage.run_chunk(coverage.Task("regret", "rising", "low", 3, 900, 2, 60))
    for factor in coverage.FACTORS:
        assert cell.tally[f"refused {factor}x"] == [0, 0]
        for rule in coverage.RULES:
            assert all(0 <= lost < 0.15 for lost in cell.tally[f"{rule} {factor}x"])
    # Beyond the sweep n = 512 is best, and neither the law nor the sweep's leader knows it.
    assert max(cell.tally["plan 10x"]) < min(cell.tally["best n of the sweep 10x"])


@pytest.mark.long
def test_a_small_version_of_the_table_keeps_its_promises(coverage: Any) -> None:
    """40 sweeps of 100 draws. Three standard errors are 14 points for a law at 90% (its budgets
    stand or fall together), 10 at 95%, 9 and 6 for ceilings and crossovers, which are several.
    """
    cell = coverage.run_chunk(coverage.Task("coverage", "late_winner", "middle", 3, 900, 40, 100))
    assert cell.refused == 0
    assert cell.mean("rise claimed") >= 0.8
    for level, law, other in ((0.90, 0.14, 0.09), (0.95, 0.10, 0.06)):
        assert cell.mean(f"law {level:.2f}") >= level - 0.03 - law
        assert cell.mean(f"set {level:.2f}") >= level - 0.03
        assert cell.mean(f"size {level:.2f}") < 2  # of 3: a set of everything proves nothing
        assert cell.mean(f"bounded {level:.2f}") >= 0.8
        for what in ("ceiling", "crossing"):
            assert level - 0.03 - other <= cell.mean(f"{what} {level:.2f}") < 1


@pytest.mark.long
def test_a_small_version_of_the_plans_loses_little(coverage: Any) -> None:
    cell = coverage.run_chunk(coverage.Task("regret", "late_winner", "middle", 3, 900, 12, 60))
    for factor in coverage.FACTORS:
        assert np.mean(cell.tally[f"refused {factor}x"]) <= 0.25
        assert np.median(cell.tally[f"plan {factor}x"]) <= 0.005
        assert np.sort(cell.tally[f"plan {factor}x"])[-2] <= 0.02  # one of twelve may lose more


@pytest.mark.long
def test_the_shortened_document_leaves_every_plan_as_it_is(coverage: Any) -> None:
    """The table leaves the back-test out of a fit, for time: no allocation may hang on it."""
    task = coverage.Task("regret", "three_octaves", "high", 3, 901, 1, 60)
    world, noise = coverage.sample_of(task)
    curves = world.sample(noise, 3, np.random.default_rng(901))
    whole, short = (fit_sweep(curves, draws=60, seed=901) for _ in range(2))
    coverage.without_back_test(short)
    top = whole.support[1]
    for factor in coverage.FACTORS:
        plans = [plan_budget(fit, top * factor) for fit in (whole, short)]
        assert plans[0].allocation == plans[1].allocation
        assert plans[0].document["chosen_by"] == plans[1].document["chosen_by"]


def test_the_command_prints_what_is_there(
    coverage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--sweeps", "1", "--null-sweeps", "1", "--draws", "20", "--noise", "low", "--seeds",
            "3", "--worlds", "falling", "--parts", "coverage", "null",
            "--cells", str(tmp_path / "cells")]  # fmt: skip
    out = tmp_path / "table.md"
    assert coverage.main([*argv, "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert "| falling | low | 3 | 0.0 | 0 | 1 |" in out.read_text()
    assert "core-hours in all" in printed.out
    assert "2/2 " in printed.err
    assert coverage.main([*argv, "--print-only"]) == 0
