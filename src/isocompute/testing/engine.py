"""The conformance suite of engines. Third parties subclass it; pytest runs it.

```python
class TestMine(EngineTestCase):
    supported = [{"advantage_std": "none"}]
    unsupported = [{"objective": "ppo"}]

    def engine(self):
        return MyEngine()

    def spec(self):
        return RunSpec(engine="mine", ...)
```

Held to: every rollout of the budget is drawn and counted; evaluations come at step 0 and on the
common grid, with all problems and all samples; records are raw counts, with the health numbers
that the engine says it measures; the same seed gives the same records and files, another seed
others; a resumed run equals the uninterrupted one; a longer budget continues the same run; a stop
is obeyed; supported knobs change something, others are refused before any compute.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from isocompute.engines.base import Engine, EvaluationRecord, StepRecord, StopRequested
from isocompute.errors import InputError
from isocompute.health import METRICS
from isocompute.study import RunSpec


@dataclass
class Recorder:
    """A sink that keeps everything in memory and checkpoints in a folder.

    Args:
        folder: where checkpoints are kept.
        want_at: step after which a checkpoint is asked for; None: never.
        stop_at: step at whose checkpoint the run is stopped, once it is committed.
    """

    folder: Path
    want_at: int | None = None
    stop_at: int | None = None
    steps: list[StepRecord] = field(default_factory=list)
    evaluations: list[EvaluationRecord] = field(default_factory=list)
    checkpoints: dict[int, Path] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    @property
    def wants_checkpoint(self) -> bool:
        """True from `want_at` or `stop_at` on, until there is a checkpoint."""
        asked = [s for s in (self.want_at, self.stop_at) if s is not None]
        last = self.steps[-1].step if self.steps else 0
        return any(last >= s and not any(c >= s for c in self.checkpoints) for s in asked)

    def step(self, record: StepRecord) -> None:
        """Keep one update's record."""
        self.steps.append(record)
        self.order.append(f"step {record.step}")

    def evaluation(self, record: EvaluationRecord) -> None:
        """Keep one evaluation's record."""
        self.evaluations.append(record)
        self.order.append(f"evaluation {record.step} {record.problem_set}")

    def reached(self, step: int) -> None:
        """Nothing is kept of it."""

    rewind = reached

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A fresh folder; it is kept when the context ends without an error."""
        target = self.folder / f"{len(self.order)}-{step}"
        target.mkdir(parents=True)
        yield target
        self.checkpoints[step] = target
        self.order.append(f"checkpoint {step}")
        if self.stop_at is not None and step >= self.stop_at:
            raise StopRequested

    def comparable(self, until: float = math.inf) -> tuple[list[Any], list[Any]]:
        """Everything that must be reproduced: all but times, up to a step."""
        steps = [
            (r.step, r.rollouts, r.tokens, np.asarray(r.problem_Q).tolist(), list(r.unjudged),
             np.asarray(r.successes_Q).tolist(), r.samples, sorted(r.health.items()))
            for r in self.steps if r.step <= until
        ]
        evaluations = [
            (r.step, r.rollouts, r.tokens, r.problem_set, r.samples, list(r.unjudged),
             np.asarray(r.successes_P).tolist(), r.sampled_tokens, r.sampled_rollouts)
            for r in self.evaluations if r.step <= until
        ]
        return steps, evaluations


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


class EngineTestCase:
    """Subclass it with an `engine` and a `spec`; the name of the subclass starts with Test.

    The specification should take at least 6 updates and evaluate at least twice after step 0.

    Attributes:
        supported: changes of the recipe that the engine must act on, one dictionary each.
        unsupported: changes of the recipe that it must refuse.
        unsupported_options: engine options that it must refuse.
        measured: health numbers that every step's record must hold.
        deterministic: False for engines that cannot repeat a run bit for bit (for example on
            several devices); their determinism and resumption are then held to counts only.
    """

    supported: ClassVar[Sequence[Mapping[str, Any]]] = ()
    unsupported: ClassVar[Sequence[Mapping[str, Any]]] = ()
    unsupported_options: ClassVar[Sequence[Mapping[str, Any]]] = ({"no_such_option": 1},)
    measured: ClassVar[Sequence[str]] = ()
    deterministic: ClassVar[bool] = True
    _kept: ClassVar[tuple[Any, Recorder, contextlib.ExitStack] | None] = None

    def engine(self) -> Engine:
        """A fresh engine.

        Raises:
            TypeError: if a subclass does not give one.
        """
        raise TypeError(f"{type(self).__name__} must define engine(); return a fresh engine.")

    def spec(self) -> RunSpec:
        """A small specification.

        Raises:
            TypeError: if a subclass does not give one.
        """
        raise TypeError(f"{type(self).__name__} must define spec(); return a small RunSpec.")

    # ---- helpers ----

    @contextlib.contextmanager
    def recorded(
        self,
        spec: RunSpec,
        *,
        resume: Path | None = None,
        want_at: int | None = None,
        stop_at: int | None = None,
    ) -> Iterator[Recorder]:
        """Run a specification to its end, or to its stop."""
        folder = Path(tempfile.mkdtemp(prefix="isocompute-"))
        try:
            recorder = Recorder(folder=folder, want_at=want_at, stop_at=stop_at)
            engine = self.engine()
            engine.check(spec)
            with contextlib.suppress(StopRequested):
                engine.run(spec, resume, recorder)
            yield recorder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def whole(self, spec: RunSpec) -> Recorder:
        """The uninterrupted run of a specification, made once for the tests of a class.

        What it holds is for reading: engines are slow, and most tests only look at this run.
        """
        key = (spec.hash, spec.allocation)
        kept = type(self).__dict__.get("_kept")
        if kept is None or kept[0] != key:
            self.teardown_class()
            stack = contextlib.ExitStack()
            kept = (key, stack.enter_context(self.recorded(spec)), stack)
            type(self)._kept = kept
            atexit.register(stack.close)  # for a class that pytest does not tear down
        return kept[1]

    @classmethod
    def teardown_class(cls) -> None:
        """Remove the files of the run that the tests shared."""
        kept = cls.__dict__.get("_kept")
        if kept is not None:
            kept[2].close()
            cls._kept = None

    def _equal(self, first: Recorder, second: Recorder, what: str) -> None:
        one, two = first.comparable(), second.comparable()
        if not self.deterministic:
            one, two = (
                ([row[:2] for row in rows[0]], [row[:2] for row in rows[1]]) for rows in (one, two)
            )
        assert one[0] == two[0], f"{what}: the records of the updates must be equal"
        assert one[1] == two[1], f"{what}: the evaluations must be equal"

    # ---- accounting ----

    def test_every_rollout_of_the_budget_is_drawn_and_counted(self) -> None:
        """B_p * n rollouts in each of M updates, no more and no fewer."""
        spec = self.spec()
        allocation = spec.allocation
        run = self.whole(spec)
        assert [r.step for r in run.steps] == list(range(1, allocation.steps + 1))
        for record in run.steps:
            problem_Q = np.asarray(record.problem_Q)
            drawn = record.samples * problem_Q.size
            assert drawn == allocation.batch_size, (
                f"step {record.step} must draw B_p * n = {allocation.batch_size} rollouts, "
                f"but drew {drawn}"
            )
            assert record.rollouts == record.step * allocation.batch_size
            assert len(set(problem_Q.tolist())) == problem_Q.size, "problems must be unique"
            assert 0 <= problem_Q.min() <= problem_Q.max() < len(spec.train)
        assert run.steps[-1].rollouts == allocation.rollouts
        tokens = [r.tokens for r in run.steps]
        assert all(b > a for a, b in zip([0, *tokens], tokens, strict=False)), (
            "tokens must be cumulative and grow with every update"
        )

    def test_records_are_raw_counts(self) -> None:
        """Integers between 0 and the number of samples, and health under known names."""
        run = self.whole(self.spec())
        counts = [(r.successes_Q, r.samples, np.shape(r.problem_Q)) for r in run.steps]
        counts += [(r.successes_P, r.samples, np.shape(r.successes_P)) for r in run.evaluations]
        for successes, samples, shape in counts:
            array = np.asarray(successes)
            assert np.issubdtype(array.dtype, np.integer), f"counts, but got {array.dtype}"
            assert array.shape == shape
            assert 0 <= array.min() <= array.max() <= samples
        for record in run.steps:
            right = dict(zip(record.problem_Q, record.successes_Q, strict=True))
            for one in record.unjudged:
                assert 1 <= one.rollouts <= record.samples - right[one.problem], one
                assert one.message, one
        unknown = {name for r in run.steps for name in r.health} - METRICS.keys()
        assert not unknown, f"health names must be in health.METRICS, but got {unknown}"
        missing = {name for r in run.steps for name in set(self.measured) - r.health.keys()}
        assert not missing, f"every step must measure {', '.join(sorted(missing))}"
        assert all(np.isfinite(v) for r in run.steps for v in r.health.values())
        assert all(r.wall_s >= 0 for r in run.steps)

    def test_evaluations_come_on_the_common_grid(self) -> None:
        """At step 0, whenever its index rises, at the end: every set, every problem, k samples."""
        spec = self.spec()
        batch = spec.allocation.batch_size
        due = [step for step in range(spec.allocation.steps + 1) if spec.is_evaluated(step)]
        assert len(due) >= 3, "the test's specification must evaluate twice after step 0"
        run = self.whole(spec)
        for name, problems in spec.validation.items():
            mine = [r for r in run.evaluations if r.problem_set == name]
            assert [r.step for r in mine] == due, f"set {name!r} must be evaluated at {due}"
            for record in mine:
                assert record.rollouts == record.step * batch
                assert record.samples == spec.evaluation_samples
                assert len(np.asarray(record.successes_P)) == len(problems)
                assert record.sampled_tokens > 0
        assert {r.problem_set for r in run.evaluations} == set(spec.validation)
        saved = set(run.checkpoints)
        assert {*due} <= saved, (
            "a checkpoint must follow every evaluation"
        )
        for at in due:
            place = run.order.index(f"checkpoint {at}")
            assert all(
                run.order.index(f"evaluation {at} {name}") < place for name in spec.validation
            ), "an evaluation must be recorded before its checkpoint"

    # ---- determinism and resumption ----

    def test_the_same_seed_gives_the_same_run(self) -> None:
        """Equal records, and equal files in the last checkpoint."""
        spec = self.spec()
        first = self.whole(spec)
        with self.recorded(spec) as second:
            self._equal(first, second, "the same specification twice")
            if self.deterministic:
                last = spec.allocation.steps
                assert _files(first.checkpoints[last]) == _files(second.checkpoints[last])

    def test_another_seed_gives_another_run(self) -> None:
        """The seed reaches sampling or the order of the problems."""
        spec = self.spec()
        first = self.whole(spec)
        with self.recorded(replace(spec, seed=spec.seed + 1)) as second:
            assert first.comparable() != second.comparable()

    def test_a_resumed_run_equals_the_uninterrupted_one(self) -> None:
        """From every checkpoint: the same records and the same files as if nothing happened."""
        spec = self.spec()
        last = spec.allocation.steps
        whole = self.whole(spec)
        starts = sorted(s for s in whole.checkpoints if s < last)
        for at in {starts[0], starts[len(starts) // 2], starts[-1]}:
            copy = Path(tempfile.mkdtemp(prefix="isocompute-"))
            try:
                # Read-only for the engine: resuming must not need what comes later.
                source = copy / "checkpoint"
                shutil.copytree(whole.checkpoints[at], source)
                with self.recorded(spec, resume=source) as rest:
                    joined = Recorder(
                        folder=copy,
                        steps=[r for r in whole.steps if r.step <= at] + rest.steps,
                        evaluations=[r for r in whole.evaluations if r.step <= at]
                        + rest.evaluations,
                    )
                    self._equal(whole, joined, f"resumed from step {at}")
                    if self.deterministic:
                        assert _files(whole.checkpoints[last]) == _files(
                            rest.checkpoints[last]
                        ), f"resumed from step {at}: the last checkpoint must be equal"
            finally:
                shutil.rmtree(copy, ignore_errors=True)

    def test_a_longer_budget_continues_the_same_run(self) -> None:
        """A short budget, extended, equals the long one, but for the evaluation at its own end."""
        spec = self.spec()
        half = spec.allocation.steps // 2
        short = replace(spec, allocation=replace(spec.allocation, steps=half))
        assert short.hash == spec.hash
        whole = self.whole(spec)
        with self.recorded(short) as first:
            assert first.steps[-1].step == half
            with self.recorded(spec, resume=first.checkpoints[half]) as rest:
                joined = Recorder(
                    folder=first.folder,
                    steps=first.steps + rest.steps,
                    evaluations=[r for r in first.evaluations if spec.is_evaluated(r.step)]
                    + rest.evaluations,
                )
                self._equal(whole, joined, f"extended from {half} steps")

    def test_a_stop_is_obeyed(self) -> None:
        """After `StopRequested` the engine ends, and its checkpoint can be resumed."""
        spec = self.spec()
        stop = spec.allocation.steps // 2
        with self.recorded(spec, stop_at=stop) as run:
            assert max(run.checkpoints) == run.steps[-1].step < spec.allocation.steps, (
                "the engine must let StopRequested end the run at a checkpoint"
            )

    def test_looking_for_a_wish_to_checkpoint_changes_nothing(self) -> None:
        """An extra checkpoint is allowed, never required, and leaves the records alone."""
        spec = self.spec()
        plain = self.whole(spec)
        with self.recorded(spec, want_at=2) as asked:
            self._equal(plain, asked, "with an extra checkpoint")

    # ---- knobs ----

    def test_supported_knobs_change_something(self) -> None:
        """A knob that does nothing is a fault."""
        spec = self.spec()
        whole = self.whole(spec)
        allocation = spec.allocation
        for change in self.supported:
            changed = replace(spec, recipe=spec.recipe.replace(**change))
            # Most knobs show in the first updates; the budget changes nothing before it.
            for steps in (-(-allocation.steps // 3), allocation.steps):
                short = replace(changed, allocation=replace(allocation, steps=steps))
                with self.recorded(short) as run:
                    differs = run.comparable(steps) != whole.comparable(steps)
                if differs:
                    break
            assert differs, f"{change} changed nothing"

    def test_unsupported_knobs_are_refused_before_compute(self) -> None:
        """An error in one line that names the knob, from `check` already."""
        spec = self.spec()
        wrong = [
            (change, replace(spec, recipe=spec.recipe.replace(**change)))
            for change in self.unsupported
        ]
        wrong += [
            (options, replace(spec, engine_options={**spec.engine_options, **options}))
            for options in self.unsupported_options
        ]
        for change, changed in wrong:
            refusal = self._refusal(changed)
            assert refusal is not None, f"check() must refuse {dict(change)}"
            assert "\n" not in refusal
            assert any(name in refusal for name in change), (
                f"the refusal must name {' or '.join(change)}, but says: {refusal}"
            )

    def _refusal(self, spec: RunSpec) -> str | None:
        try:
            self.engine().check(spec)
        except InputError as error:
            return str(error)
        return None
