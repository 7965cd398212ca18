"""A state machine over everything that can happen to a study: it always ends the same.

Steps of time are taken by hand: runners here make claims and heartbeats, engines are a counter.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from isocompute.engines.base import EvaluationRecord, StepRecord
from isocompute.store import Database, FencedError, Store, leases
from isocompute.store.doctor import examine
from isocompute.store.files import checkpoint_folder
from isocompute.store.register import register
from isocompute.store.writer import RunWriter
from study_helpers import small_study

TARGET = 6
BATCH = 8


def choose(free):
    return (free[0], free[0].target_steps) if free else None


class Trainer:
    """A runner that holds one run, with the uncommitted truth of what it drew."""

    def __init__(self, name, folder, claim):
        self.name, self.claim = name, claim
        self.database = Database(folder, write=True)
        self.writer = RunWriter(self.database, claim, {"val": 8}, commit_share=float("inf"))
        self.step = claim.from_step
        self.dead = False
        if claim.resume is None:
            self.evaluate()

    def train(self):
        self.step += 1
        # What a step records depends on its number alone, as in a deterministic engine.
        self.writer.step(StepRecord(
            step=self.step, rollouts=BATCH * self.step, tokens=BATCH * self.step,
            problem_Q=np.arange(4), successes_Q=np.array([self.step % 3, 1, 0, 2]), samples=2,
        ))  # fmt: skip
        if self.step % 2 == 0:
            self.evaluate()

    def evaluate(self):
        self.writer.evaluation(EvaluationRecord(
            step=self.step, rollouts=BATCH * self.step, tokens=BATCH * self.step,
            problem_set="val", samples=4, successes_P=np.arange(8) * (self.step + 1) % 5,
        ))  # fmt: skip

    def checkpoint(self):
        with self.writer.checkpoint(self.step) as folder:
            (folder / "model.safetensors").write_bytes(b"%d" % self.step)


class StudyMachine(RuleBasedStateMachine):
    """start, step, checkpoint, torn checkpoint, kill, pause, second runner, clock jump, resume."""

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.database = Database(self.folder, create=True)
        register(self.database, small_study(ns=(2,), rollouts=BATCH * TARGET))
        self.trainers: list[Trainer] = []
        self.drawn = self.names = self.deaths = 0
        self.clock = mock.patch.object(time, "time", return_value=0.0)
        self.clock.start()

    def teardown(self):
        self.finish()
        self.clock.stop()
        self.database.close()
        shutil.rmtree(self.folder)

    @rule()
    def claim(self):
        """Another runner comes; it takes the run only if it is free or its holder is dead."""
        dead = {t.name for t in self.trainers if t.dead}
        self._claim(dead)

    @rule()
    @precondition(lambda self: self.trainers)
    def take_over(self):
        """A runner that was paused past its lease: another one takes its run."""
        self._claim({t.name for t in self.trainers})

    def _claim(self, dead):
        self.names += 1
        name = f"runner {self.names}"
        claim = leases.claim(self.database, name, choose, dead=dead)
        if claim is None:
            return
        if claim.resume is not None:
            assert (claim.resume / "model.safetensors").read_bytes() == b"%d" % claim.from_step
        self.trainers.append(Trainer(name, self.folder, claim))

    @rule(data=st.data())
    @precondition(lambda self: any(not t.dead and t.step < TARGET for t in self.trainers))
    def step(self, data):
        able = [t for t in self.trainers if not t.dead and t.step < TARGET]
        data.draw(st.sampled_from(able)).train()
        self.drawn += BATCH

    @rule(data=st.data())
    @precondition(lambda self: any(not t.dead for t in self.trainers))
    def checkpoint(self, data):
        trainer = data.draw(st.sampled_from([t for t in self.trainers if not t.dead]))
        newest = self.database.read("SELECT lease_token FROM runs")[0][0]
        try:
            news = trainer.writer._steps or trainer.writer._evaluations
            trainer.checkpoint()
            assert trainer.claim.token == newest or not news
        except FencedError:
            assert trainer.claim.token < newest
            leases.settle(self.database, trainer.claim, "fenced", trainer.writer.spent)
            trainer.dead = True

    @rule(data=st.data())
    @precondition(lambda self: any(not t.dead for t in self.trainers))
    def kill(self, data):
        trainer = data.draw(st.sampled_from([t for t in self.trainers if not t.dead]))
        trainer.database.close()
        trainer.dead = True
        self.deaths += 1

    @rule()
    def tear_the_newest_checkpoint(self):
        if any(not t.dead for t in self.trainers):
            return  # a live engine's own folder is not torn by the disk while it runs
        row = self.database.read(
            "SELECT r.hash, c.token, c.serial FROM checkpoints c JOIN runs r ON r.run = c.run "
            "ORDER BY c.token DESC, c.serial DESC LIMIT 1"
        )
        if row:
            folder = checkpoint_folder(self.folder, *row[0])
            if folder.exists():
                (folder / "model.safetensors").write_bytes(b"")

    @rule(to=st.floats(-1e10, 1e10))
    def clock_jump(self, to):
        self.clock.stop()
        self.clock = mock.patch.object(time, "time", return_value=to)
        self.clock.start()

    @invariant()
    def nothing_is_counted_twice(self):
        if not hasattr(self, "database"):
            return
        with Store(self.folder) as store:
            run, accounting = store.runs()[0], store.accounting()
            assert run.rollouts == BATCH * run.steps_done
            assert store.steps(run.hash).step_K.tolist() == list(range(1, run.steps_done + 1))
            assert run.rollouts + max(accounting.wasted_rollouts, 0) <= self.drawn

    def finish(self):
        """Everyone dies; one last runner ends the study; the records are those of a calm one."""
        if not hasattr(self, "database"):
            return
        self._claim({t.name for t in self.trainers})
        last = self.trainers[-1]
        while last.step < TARGET:
            last.train()
            self.drawn += BATCH
        last.checkpoint()
        leases.settle(self.database, last.claim, "done", last.writer.spent, state="done")
        for trainer in self.trainers:
            if not trainer.dead and trainer is not last:
                leases.settle(self.database, trainer.claim, "fenced", trainer.writer.spent)
        leases.book_lost(self.database)
        with Store(self.folder) as store:
            run, accounting = store.runs()[0], store.accounting()
            steps, evaluations = store.steps(run.hash), store.evaluations(run.hash)
        assert run.state == "done"
        assert [s.tolist() for s in steps.successes] == [[k % 3, 1, 0, 2] for k in range(1, 7)]
        assert evaluations.step_K.tolist() == [0, 2, 4, 6]
        assert evaluations.rollouts_K.tolist() == [0, 16, 32, 48]
        # Every update was noted before the death that lost it: the books balance exactly.
        assert run.rollouts + accounting.wasted_rollouts == self.drawn
        assert [f for f in examine(self.folder) if f.severity == "error"] == []


StudyMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking runs the file system for minutes
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
TestStudyMachine = pytest.mark.long(StudyMachine.TestCase)
