"""Health of stored runs: what was recorded reaches the rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import study_helpers
from isocompute.engines import register_engine
from isocompute.engines.simulator import SimulatorEngine
from isocompute.health import Thresholds
from isocompute.recipe import Recipe
from isocompute.runner import run_study
from isocompute.store import Store
from isocompute.store.health import steps_health, study_health


@pytest.mark.heavy
def test_findings_of_a_study(tmp_path: Path) -> None:
    study = study_helpers.small_study(ns=(2, 4), rollouts=512)
    run_study(study, tmp_path, workers=1, settings=study_helpers.FAST)
    with Store(tmp_path) as store:
        found = study_health(store)
        assert found == {r.hash: steps_health(store.steps(r.hash)) for r in store.runs()}
        assert set(found) == {run.hash for run in study.runs}
        steps = store.steps(study.runs[0].hash)
    # The simulator logs entropy; everything counts as collapsed under this limit.
    strict = steps_health(steps, Thresholds(entropy_collapse=1.5, solved=1.1))
    assert "entropy_collapse" in [f.code for f in strict]

    # Reward and dead groups come from the counts: none succeeds any more from step 20 on.
    none = [s if i < 20 else np.zeros_like(s) for i, s in enumerate(steps.successes)]
    codes = {f.code: f.severity for f in steps_health(replace(steps, successes=none))}
    assert codes["dead_batches"] == "failure"
    assert codes["reward_collapse"] == "failure"

    diverged = np.where(steps.step_K == 5, np.inf, steps.health["grad_norm"])
    findings = steps_health(replace(steps, health={**steps.health, "grad_norm": diverged}))
    assert [(f.code, f.step) for f in findings if f.code == "divergence"] == [("divergence", 5)]


def test_kept_findings_are_those_of_the_steps(tmp_path: Path) -> None:
    """Across slices (each resumes) and a number that is not finite; an older file has none."""
    study = study_helpers.small_study(ns=(2,), engine="odd", options={"fault": "diverges"})
    run_study(study, tmp_path, workers=0, settings=study_helpers.FAST)
    with Store(tmp_path) as store:
        run = store.runs()[0]
        expected = steps_health(store.steps(run.hash))
        assert run.findings == expected
        failures = [(f.code, f.step) for f in expected if f.severity == "failure"]
        assert failures == [("divergence", 3)]
        # findings of another step say nothing
        study_helpers.edit(tmp_path, "UPDATE runs SET findings = ?", '{"step": 1, "findings": []}')
        assert store.runs()[0].findings is None
        assert study_health(store) == {run.hash: expected}


class SameEngine(SimulatorEngine):
    """All rollouts of a problem agree; problems do not."""

    name = "same"

    def check(self, spec):
        pass

    def run(self, spec, resume, sink):
        class Same:
            checkpoint, evaluation, reached = sink.checkpoint, sink.evaluation, sink.reached
            wants_checkpoint = False

            def step(self, record):
                right = np.asarray(record.problem_Q) % 2 * record.samples
                sink.step(replace(record, successes_Q=right))

        super().run(replace(spec, recipe=spec.recipe.replace(objective="grpo")), resume, Same())


register_engine("same", "test_store_health:SameEngine")


@pytest.mark.parametrize(("objective", "n", "healthy"), [
    ("grpo", 4, False), ("ppo", 4, True), ("ppo", 1, True),
])
def test_a_value_model_learns_from_groups_that_agree(tmp_path, objective, n, healthy):
    """A group baseline gives no gradient there: the run is marked, by rule and by verdict."""
    recipe = Recipe(learning_rate=5.0, temperature=1.0, objective=objective)
    study = study_helpers.small_study(ns=(n,), engine="same", recipe=recipe, rollouts=n * 4 * 40)
    run_study(study, tmp_path, workers=0, settings=study_helpers.FAST)
    with Store(tmp_path) as store:
        run = store.runs()[0]
        codes = [f.code for f in run.findings]
        assert steps_health(store.steps(run.hash)) == run.findings
    assert ("dead_batches" in codes) is not healthy
    assert ("zero variance" in run.reason) is not healthy
