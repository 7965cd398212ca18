"""What a source says beside its curves: training batches, recipes, rates, failed configurations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isocompute.allocation import Rates
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.metrics import score_from_counts
from isocompute.runner import run_study
from isocompute.sources import load_curves, load_with_train
from isocompute.sources.studies import (
    StudyFacts,
    is_study,
    stored_recipe,
    study_curves,
    study_facts,
    with_study_rates,
)
from isocompute.store import Store
from isocompute.study import load_study

STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation: {near: {generated: simulated, options: {size: 6}}}
recipes:
  calm: {learning_rate: 0.5}
  wild: {learning_rate: 4000, warmup_steps: 0}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: [0, 1]}
budget: 640
evaluation: {samples: 4, per_octave: 2, first: 32}
rates: {rollouts_per_gpu_hour: 1000, tokens_per_rollout: 7}
"""
HEAD = "problems_per_batch,rollouts_per_problem,rollouts,score,split,metric"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "s.yaml").write_text(STUDY)
    study = load_study(folder / "s.yaml", generators=problem_generators())
    run_study(study, folder / "s", workers=0)
    return str(folder / "s")


def test_training_batches_stand_where_their_rollouts_were_drawn(study: str) -> None:
    """By hand: the batches up to an evaluation, each at the rollouts that came before it."""
    found = load_with_train(f"{study}[recipe=calm]")
    assert [c.run for c in found.curves] == [c.run for c in load_curves(f"{study}[recipe=calm]")]
    curve = next(c for c in found.train if c.configuration == (4, 8))
    with Store(study) as store:
        steps = store.steps(curve.run)
        second, third = (int(s) for s in np.unique(store.evaluations(curve.run).step_K)[1:3])
    rows = [i for i, step in enumerate(steps.step_K.tolist()) if second < step <= third]
    outcomes = [np.concatenate([of[i] for i in rows]) for of in (steps.successes, steps.judged)]
    assert curve.score_K[1] == pytest.approx(score_from_counts(*outcomes, "avg@1"))
    assert curve.rollouts_K[1] == pytest.approx(np.mean([32 * s for s in range(second, third)]))
    assert curve.tokens_K is not None
    assert curve.tokens_K[1] == pytest.approx(steps.tokens_K[rows].mean())
    assert curve.steps_K is not None
    assert curve.steps_K[1] == pytest.approx(np.mean(range(second, third)))


def test_training_curves_come_only_where_they_are_asked_for(study: str) -> None:
    where = {"recipe": "calm"}
    assert study_curves(study, where).train == []
    both = study_curves(study, where, train=True)
    assert len(both.train) == len(both.curves) == len(both.runs) == 4
    assert [c.split for c in study_curves(study, where, split="train").curves] == ["train"] * 4
    assert study_curves(study, where, problem_set="nowhere").curves == []
    assert {c.metric for c in study_curves(study, where, metric="best@2").curves} == {"best@2"}


def test_of_several_training_metrics_the_fitted_one_is_kept(tmp_path: Path) -> None:
    def train_of(*rows: str) -> list[float]:
        (tmp_path / "a.csv").write_text("\n".join([HEAD, "32,8,100,0.5,validation,avg@4", *rows]))
        return [float(c.score_K[0]) for c in load_with_train(tmp_path / "a.csv").train]

    same, other = "32,8,100,0.6,train,avg@4", "32,8,100,0.7,train,avg@8"
    assert train_of(same, other) == [0.6]
    assert train_of(other) == [0.7]
    assert train_of(other, "32,8,100,0.8,train,avg@16") == []
    assert train_of() == []


def test_runs_that_failed_a_health_rule_say_so(study: str) -> None:
    failed = {c.configuration for c in load_curves(f"{study}[recipe=wild]") if c.failed_rules}
    assert failed
    assert failed <= {(4, 4), (4, 8)}
    assert not any(c.failed_rules for c in load_curves(f"{study}[recipe=calm]"))


def test_recipes_of_a_study_are_listed_once_each(study: str) -> None:
    assert sorted(r.learning_rate for r in study_facts(study).recipes) == [0.5, 4000]
    assert [r.learning_rate for r in study_facts(f"{study}[recipe=wild]").recipes] == [4000]
    assert study_facts("published:qwen2.5-7b-easy") == StudyFacts()
    (recipe,) = study_facts(f"{study}[recipe=calm]").recipes
    assert stored_recipe({**recipe.to_dict(), "of_an_older_version": 1}) == recipe


@pytest.mark.parametrize(
    ("said", "target"),
    [({"target": 2e6}, 2e6), ({"target": "2M"}, 2e6), ({"target": "3 gpu-hours"}, None),
     ({"spend": 10}, None), (True, None), (None, None)],
)  # fmt: skip
def test_what_an_adaptive_sweep_was_for_is_known(
    study: str, monkeypatch: pytest.MonkeyPatch, said: object, target: float | None
) -> None:
    info = Store.info
    monkeypatch.setattr(Store, "info", lambda self: {**info(self), "source": {"adaptive": said}})
    assert study_facts(study).target == target


def test_rates_are_filled_where_nobody_gave_them(study: str) -> None:
    filled = with_study_rates(study, Rates(tokens_per_rollout=9.0))
    assert filled.tokens_per_rollout == 9
    assert filled.rollouts_per_gpu_hour == 1000
    assert filled.usd_per_gpu_hour is None
    assert with_study_rates(None, Rates()) == with_study_rates("a.csv", Rates()) == Rates()


def test_a_study_is_a_folder_with_its_file(study: str, tmp_path: Path) -> None:
    assert is_study(study)
    assert not is_study(tmp_path)


@pytest.mark.heavy
def test_an_option_that_is_not_known_is_refused(study: str) -> None:
    with pytest.raises(TypeError, match="metrics"):
        load_curves(study, metrics="avg@4")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="this holds 2: recipe=calm"):
        load_curves(study)
