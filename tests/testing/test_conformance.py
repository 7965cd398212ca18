"""Every engine passes one suite; and the suite catches engines that break each rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Allocation
from isocompute.engines.base import EvaluationRecord, Sink, StepRecord, StopRequested
from isocompute.engines.simulator import SimulatorEngine, simulated_problems
from isocompute.errors import InputError
from isocompute.recipe import Recipe
from isocompute.study import RunSpec
from isocompute.testing import EngineTestCase


def simulator_spec() -> RunSpec:
    return RunSpec(
        engine="simulator",
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=4, steps=12),
        recipe=Recipe(learning_rate=5.0, temperature=1.0),
        train=simulated_problems("train", 12),
        validation={"a": simulated_problems("a", 6), "b": simulated_problems("b", 5)},
        seed=3, evaluations_per_octave=1, first_evaluation=32,
    )  # fmt: skip


class TestSimulator(EngineTestCase):
    measured = ("entropy", "grad_norm")
    supported = [
        {"learning_rate": 50.0}, {"temperature": 0.5}, {"advantage_std": "none"},
        {"warmup_steps": 0}, {"base_batch_size": 8},
    ]
    unsupported = [{"objective": "ppo"}, {"kl_coef": 0.1}, {"updates_per_batch": 2}]

    def engine(self) -> SimulatorEngine:
        return SimulatorEngine()

    def spec(self) -> RunSpec:
        return simulator_spec()


class TestLocal(EngineTestCase):
    supported = [
        {"learning_rate": 3e-2}, {"temperature": 0.5}, {"top_p": 0.5}, {"advantage_std": "none"},
        {"advantage_std": "population"}, {"kl_coef": 0.1}, {"kl_coef": 0.1, "entropy_coef": 0.1},
        {"weight_decay": 1.0}, {"warmup_steps": 0}, {"max_grad_norm": 1e-3},
        {"base_batch_size": 8}, {"learning_rate_scaling": "constant"},
        {"learning_rate_scaling": "linear"},
    ]
    unsupported_options = [{"no_such_option": 1}, {"max_new_tokens": "many"}]

    def engine(self) -> Any:
        pytest.importorskip("torch", reason="needs the extra [local]")
        from isocompute.engines.local import LocalEngine

        return LocalEngine()

    def spec(self) -> RunSpec:
        pytest.importorskip("torch", reason="needs the extra [local]")
        from isocompute.engines.local.worlds import BitRuleWorld

        world = BitRuleWorld()
        return RunSpec(
            engine="local",
            allocation=Allocation(problems_per_batch=4, rollouts_per_problem=4, steps=6),
            recipe=Recipe(learning_rate=1e-2, temperature=1.0, warmup_steps=2),
            train=world.problems("train", 12, 1),
            validation={"a": world.problems("a", 6, 2), "b": world.problems("b", 5, 3)},
            seed=3, evaluations_per_octave=1, first_evaluation=32,
        )  # fmt: skip


# ---- the suite itself ----


class Bent:
    """Passes the simulator's records through a function that spoils them."""

    name = "bent"

    def __init__(self, spoil: Callable[..., Any]) -> None:
        self.spoil, self.plain = spoil, SimulatorEngine()

    def check(self, spec: RunSpec) -> None:
        self.plain.check(spec)

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        self.plain.run(spec, resume, Spoiled(sink, self.spoil))


class Spoiled:
    def __init__(self, sink: Sink, spoil: Callable[..., Any]) -> None:
        self.sink, self.spoil = sink, spoil

    @property
    def wants_checkpoint(self) -> bool:
        return self.sink.wants_checkpoint

    def step(self, record: StepRecord) -> None:
        record = self.spoil(record)
        if record is not None:
            self.sink.step(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        record = self.spoil(record)
        if record is not None:
            self.sink.evaluation(record)

    def reached(self, step: int) -> None:
        self.sink.reached(step)

    def rewind(self, step: int) -> None:
        self.sink.rewind(step)

    def checkpoint(self, step: int) -> Any:
        return self.sink.checkpoint(step)


def on(kind: type, **changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def spoil(record: Any) -> Any:
        if not isinstance(record, kind):
            return record
        return dataclasses.replace(record, **{k: f(record) for k, f in changes.items()})

    return spoil


RNG = np.random.default_rng()


BUDGET = "test_every_rollout_of_the_budget_is_drawn_and_counted"
COUNTS = "test_records_are_raw_counts"


@pytest.mark.parametrize(
    ("spoil", "test", "message"),
    [
        (on(StepRecord, samples=lambda r: 3), BUDGET, "must draw B_p"),
        (on(StepRecord, problem_Q=lambda r: r.problem_Q * 0), BUDGET, "must be unique"),
        (on(StepRecord, tokens=lambda r: 7), BUDGET, "must be cumulative"),
        (on(EvaluationRecord, successes_P=lambda r: r.successes_P / 4), COUNTS, "float64"),
        (on(StepRecord, health=lambda r: {"vibes": 1.0}), COUNTS, "health names"),
        (on(StepRecord, health=lambda r: {}), COUNTS, "every step must measure entropy"),
        (lambda r: None if isinstance(r, EvaluationRecord) and r.step == 4 else r,
         "test_evaluations_come_on_the_common_grid", "must be evaluated at"),
        (on(StepRecord, health=lambda r: {"entropy": RNG.random()}),
         "test_the_same_seed_gives_the_same_run", "the same specification twice"),
    ],
)  # fmt: skip
def test_the_suite_catches_a_broken_engine(
    spoil: Callable[..., Any], test: str, message: str
) -> None:
    class Case(TestSimulator):
        def engine(self) -> Any:
            return Bent(spoil)

    with pytest.raises(AssertionError, match=message):
        getattr(Case(), test)()


def test_the_suite_catches_engines_that_resume_stop_or_refuse_wrongly() -> None:
    class Forgets(SimulatorEngine):
        """Starts again where it should continue."""

        def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
            super().run(spec, None, sink)

    class Deaf(SimulatorEngine):
        """Goes on after a stop."""

        def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
            try:
                super().run(spec, resume, sink)
            except StopRequested:
                sink.stop_at = None  # type: ignore[attr-defined]
                super().run(spec, None, sink)

    class Lenient(SimulatorEngine):
        """Refuses nothing, and acts on nothing."""

        def check(self, spec: RunSpec) -> None:
            pass

        def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
            super().run(simulator_spec(), resume, sink)

    def case(kind: type) -> EngineTestCase:
        class Case(TestSimulator):
            def engine(self) -> Any:
                return kind()

        return Case()

    with pytest.raises(AssertionError, match="resumed from step"):
        case(Forgets).test_a_resumed_run_equals_the_uninterrupted_one()
    with pytest.raises(AssertionError, match="must let StopRequested end the run"):
        case(Deaf).test_a_stop_is_obeyed()
    with pytest.raises(AssertionError, match=r"check\(\) must refuse \{'objective': 'ppo'\}"):
        case(Lenient).test_unsupported_knobs_are_refused_before_compute()
    with pytest.raises(AssertionError, match=r"'learning_rate': 50.0\} changed nothing"):
        case(Lenient).test_supported_knobs_change_something()
    with pytest.raises(AssertionError):
        case(Lenient).test_another_seed_gives_another_run()


def test_an_engine_that_cannot_repeat_itself_is_held_to_its_counts() -> None:
    class Case(TestSimulator):
        deterministic = False

        def engine(self) -> Any:
            return Bent(on(StepRecord, health=lambda r: {"entropy": RNG.random()}))

    Case().test_the_same_seed_gives_the_same_run()
    Case().test_a_resumed_run_equals_the_uninterrupted_one()


def test_a_refusal_must_name_the_knob() -> None:
    class Mumbles(SimulatorEngine):
        def check(self, spec: RunSpec) -> None:
            raise InputError("no")

    class Case(TestSimulator):
        def engine(self) -> Any:
            return Mumbles()

    with pytest.raises(AssertionError, match="must name objective, but says: no"):
        Case().test_unsupported_knobs_are_refused_before_compute()


def test_a_case_without_engine_or_spec_says_so() -> None:
    with pytest.raises(TypeError, match=r"EngineTestCase must define engine\(\)"):
        EngineTestCase().engine()
    with pytest.raises(TypeError, match=r"EngineTestCase must define spec\(\)"):
        EngineTestCase().spec()
