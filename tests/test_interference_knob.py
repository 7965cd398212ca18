"""The simulator's knob: parameters that problems share make them lose to each other, measurably."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isocompute.engines import problem_generators
from isocompute.interference import study_interference
from isocompute.runner import run_study
from isocompute.study import load_study

STUDY = """
engine: simulator
engine_options: {interference: KNOB, knowledge: 0.2, features: 4}
problems:
  train: {generated: simulated, options: {size: 128}}
  validation:
    train: {generated: simulated, options: {size: 128}}
recipe: {learning_rate: 500, learning_rate_scaling: constant, warmup_steps: 0, advantage_std: none}
grid: {problems_per_batch: 16, rollouts_per_problem: [4, 32], seeds: 2}
budget: 32768
evaluation: {samples: 32, per_octave: 1, first: 4096}
"""


def measured(folder: Path, knob: float) -> dict[int, dict[str, Any]]:
    file = folder / f"k{knob}.yaml"
    file.write_text(STUDY.replace("KNOB", str(knob)))
    run_study(load_study(file, generators=problem_generators()), folder / f"k{knob}", workers=0)
    groups = study_interference(folder / f"k{knob}", draws=100)["groups"]
    return {g["rollouts_per_problem"]: g for g in groups}


@pytest.mark.heavy
def test_sharing_parameters_is_measured_as_interference(tmp_path: Path) -> None:
    apart, shared = measured(tmp_path, 0.0), measured(tmp_path, 1.0)
    for n in (4, 32):
        assert apart[n]["interference"]["value"] == pytest.approx(0.0, abs=0.002)
        low = shared[n]["interference"]["interval"][0]
        assert low > apart[n]["interference"]["interval"][1]
        assert shared[n]["never"]["value"] > apart[n]["never"]["value"]
        assert shared[n]["uniform_progress"]["value"] < apart[n]["uniform_progress"]["value"]
