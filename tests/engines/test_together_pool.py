"""The pool that trains several runs of a study as one batch of the embedded engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from isocompute.engines.local import together
from isocompute.runner import Settings, run_study
from isocompute.runner.together import TogetherPool
from isocompute.store import Store
from isocompute.study import Limits, Study
from local_tools import tiny_folder
from test_updates import make_spec

FIXED = {"shapes": "fixed"}
OFTEN = Settings(report_s=1e-9, beat_s=1e-3)


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"))
    return [make_spec(folder, None, FIXED, seed=seed) for seed in range(3)]


def trained(specs, folder, places=3, **more):
    study = Study(name="together", runs=specs, slices=(1.0,), **more)
    summary = run_study(
        study, folder, settings=OFTEN, pool=lambda database: TogetherPool(database, places)
    )
    with Store(folder) as store:
        return summary, {run.hash: run for run in store.runs()}


@pytest.mark.heavy
def test_runs_in_one_batch_are_stored_as_if_each_had_been_trained_alone(specs, tmp_path):
    summary, runs = trained(specs, tmp_path / "batch", places=2)  # two, and then the third
    assert summary.done == 3
    run_study(Study(name="alone", runs=specs, slices=(1.0,)), tmp_path / "alone", workers=0)
    with Store(tmp_path / "alone") as alone, Store(tmp_path / "batch") as batch:
        for spec in specs:
            assert runs[spec.hash].steps_done == 8
            mine, theirs = batch.steps(spec.hash), alone.steps(spec.hash)
            assert mine.health["entropy"] == pytest.approx(theirs.health["entropy"], rel=1e-4)
            for one, two in zip(
                batch.successes(spec.hash, "val"), alone.successes(spec.hash, "val"), strict=True
            ):
                assert one.tolist() == two.tolist()


def test_runs_that_cannot_be_one_batch_fail_with_the_reason(specs, tmp_path):
    other = replace(specs[1], recipe=specs[1].recipe.replace(temperature=0.5))
    summary, runs = trained([specs[0], other], tmp_path)
    assert summary.failed == 2
    assert all("trained together must have one model" in run.reason for run in runs.values())


def test_what_all_need_ends_all_and_is_told_for_each(specs, tmp_path, monkeypatch):
    def broken(self):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(together.Together, "_update", broken)
    summary, runs = trained(specs[:2], tmp_path, limits=Limits(retries=0))
    assert summary.failed == 2
    assert all("CUDA out of memory" in run.reason for run in runs.values())
    assert all(run.steps_done == 0 for run in runs.values())


def test_what_all_need_takes_nothing_from_a_run_that_has_ended(specs, tmp_path, monkeypatch):
    update = together.Together._update

    def broken(self):
        if self.members[0].done or self.members[1].done:
            raise RuntimeError("CUDA out of memory")
        update(self)

    monkeypatch.setattr(together.Together, "_update", broken)
    short = replace(specs[1], allocation=replace(specs[1].allocation, steps=2))
    summary, runs = trained([specs[0], short], tmp_path, limits=Limits(retries=0))
    assert (summary.done, summary.failed) == (1, 1)
    assert (runs[short.hash].state, runs[short.hash].steps_done) == ("done", 2)


@pytest.mark.long
def test_one_run_that_diverges_fails_alone(specs, tmp_path):
    wild = replace(specs[1], recipe=specs[1].recipe.replace(learning_rate=1e30))
    summary, runs = trained([specs[0], wild], tmp_path)
    assert (summary.done, summary.failed) == (1, 1)
    assert "must be finite" in runs[wild.hash].reason
    assert runs[specs[0].hash].state == "done"


def test_a_run_that_passes_its_limit_ends_at_a_checkpoint(specs, tmp_path):
    summary, runs = trained(specs[:2], tmp_path, limits=Limits(wall_s=1e-3))
    assert summary.failed == 2
    assert all("passed its limit wall_s" in run.reason for run in runs.values())
    assert all(run.steps_done < 8 for run in runs.values())
