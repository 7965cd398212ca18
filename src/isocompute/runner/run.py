"""Run a study to its end, or resume it; safe to start any number of times at once."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from isocompute.engines import engine_target, load_engine, takes_whole_machine
from isocompute.errors import InputError
from isocompute.runner.course import Course, Decide
from isocompute.runner.execute import Outcome, Task, cut_off, slice_of
from isocompute.runner.pool import Event, InlinePool, Pool, ProcessPool
from isocompute.runner.preflight import check_before_writing, check_folder, check_trainers
from isocompute.runner.progress import Pace, Progress, Summary, progress_of
from isocompute.runner.pulse import Pulse
from isocompute.runner.settings import Settings
from isocompute.runner.verdict import is_cut_short, verdict
from isocompute.store import leases
from isocompute.store.database import BusyError, Database, FencedError, StorageError, moved_line
from isocompute.store.edited import used_s
from isocompute.store.register import register
from isocompute.store.store import Store
from isocompute.study.cost import Calibration
from isocompute.study.spec import run_words
from isocompute.study.sweep import Study

_UNKNOWN_S = 5.0  # so long after its start a run's memory may be unknown without a word


class _StopNow(BaseException):
    """A second signal: end at once."""


def run_study(
    study: Study,
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    settings: Settings | None = None,
    retry_failed: bool = False,
    pool: Callable[[Database], Pool] | None = None,
    calibration: Calibration | None = None,
    decide: Decide | None = None,
    thaw: Sequence[int] | bool = False,
) -> Summary:
    """Train every run of a study that is not done yet, or what an adaptive one decides.

    Everything is validated before the first rollout. SIGTERM and Ctrl-C commit and return (a
    second one returns at once); calling again continues. Several calls on one folder, in any
    processes of any machines that share it, divide the runs among them.

    Args:
        study: what to run.
        folder: where study.db and the checkpoints live; made if missing.
        workers: worker processes of one thread each; None: one per core, or 1 on GPUs and for an
            engine that takes the whole machine; 0: in this process.
        progress: called about once a second, and when something happens.
        settings: timing.
        retry_failed: try failed and invalid runs again.
        pool: where to train instead (`ray.ray_pool`); `workers` then only scales estimated time.
        calibration: timing measured before; its rollouts are counted in the cost.
        decide: what an adaptive study does next (`design.decider`); unused by others.
        thaw: frozen n to train to the end of their budget; True: all.

    Raises:
        InputError: if the study, an engine or the folder's content does not fit.
        StorageError: if the disk is full or cannot be written; nothing committed is lost.
    """
    runner = _Runner(study, Path(folder), workers, progress, settings or Settings())
    return runner.run(retry_failed, pool, calibration, decide, thaw)


def default_workers(study: Study) -> int:
    """One per core; 1 on GPUs, which runs side by side would slow, and for a whole machine."""
    whole = takes_whole_machine(spec.engine for spec in study.runs)
    return 1 if whole or any(spec.gpus for spec in study.runs) else len(os.sched_getaffinity(0))


class _Runner:
    def __init__(
        self,
        study: Study,
        folder: Path,
        workers: int | None,
        progress: Callable[[Progress], None] | None,
        settings: Settings,
    ) -> None:
        if workers is not None and workers < 0:
            raise InputError(
                f"`workers >= 0` must hold, but got workers={workers}; give the number of "
                "processes, or 0 to train in this one."
            )
        self.study, self.folder, self.settings = study, folder, settings
        self.progress = progress or (lambda _: None)
        self.workers = default_workers(study) if workers is None else workers
        self.engines = {e: engine_target(e) for e in sorted({s.engine for s in study.runs})}
        for name, target in self.engines.items():
            engine = load_engine(target)
            for spec in study.runs:
                if spec.engine == name:
                    engine.check(spec)
        self.id = secrets.token_hex(8)
        self.started = time.monotonic()
        self.stopped_by: int | None = None
        self.storage_fault = ""
        self.warnings: list[str] = []
        self.pace = Pace()
        self.live: dict[str, tuple[int, int]] = {}
        self.tasks: dict[int, tuple[Task, float]] = {}  # attempt -> (task, start)
        self.used_s: dict[int, float] = {}  # attempt -> seconds of the run's earlier attempts
        self.late: list[tuple[Task, Outcome]] = []  # ended, but nobody could write it down yet
        self.last_report = -1e9
        self.stopping_since: float | None = None
        self.ending = False
        self.is_checked = False

    def run(
        self, retry_failed: bool, pool: Callable[[Database], Pool] | None,
        calibration: Calibration | None, decide: Decide | None, thaw: Sequence[int] | bool,
    ) -> Summary:  # fmt: skip
        # A cluster's machines are their own.
        self.is_checked = pool is not None or check_before_writing(self.study, self.folder)
        database = Database(self.folder, create=True)
        try:
            self.database = database
            if database.copy is not None:
                self.warnings.append(moved_line(database.copy))
            s, wait_s = self.settings, 0.25 if self.workers or pool else 0.05  # here training waits
            self.pulse = Pulse(database, self.id, s.beat_s, s.lease_beats, patience_s=wait_s)
            self.warnings += check_folder(self.folder)
            self.study = register(database, self.study, retry_failed=retry_failed)
            self.specs = {spec.hash: spec for spec in self.study.runs}
            if calibration is not None:
                database.spend("calibration", calibration.rollouts, tokens=calibration.tokens,
                               wall_s=calibration.wall_s)  # fmt: skip
            self.course = Course(database, self.study, decide)
            if thaw is not False:
                self.course.thaw(None if thaw is True else thaw)
            self.pool = self._make_pool(pool)
            with self._signals():
                try:
                    self._loop()
                except _StopNow:
                    pass
                finally:
                    self._end()
            if self.storage_fault:
                raise StorageError(self.storage_fault)
            return self._summary()
        finally:
            database.close()

    def _make_pool(self, pool: Callable[[Database], Pool] | None) -> Pool:
        if pool is not None:
            return pool(self.database)
        if self.workers == 0:
            return InlinePool(self.database, self._tick)
        return ProcessPool(min(self.workers, len(self.specs)))  # never more than runs

    def _loop(self) -> None:
        while True:
            self.pulse.beat()
            self._settle_late()
            self._start_tasks()
            if not self.tasks and not self.late and (self._stopping or self._nothing_left()):
                return
            for event in self.pool.events(min(self.settings.beat_s, 0.25)):
                self._take(event)
            self._enforce_limits()
            self._report()

    # -- claims ------------------------------------------------------------------------------

    def _start_tasks(self) -> None:
        while not self._stopping and self.pool.free and self.course.pending(self.pulse.dead()):
            if not self.is_checked:
                check_trainers(self.study)
            self.is_checked = True
            try:
                dead = self.pulse.dead()
                claim = leases.claim(self.database, self.id, self.course.choose, dead=dead)
            except (BusyError, FencedError):  # a query holds the file, or it was overtaken: later
                return
            if claim is None:
                return
            for note in claim.notes:
                self._say(note)
            spec = self.specs[claim.hash]
            task = Task(
                engine=self.engines[spec.engine], claim=claim, folder=self.folder.absolute(),
                # another start may have raised its budget since this one
                spec=slice_of(spec, claim.target_steps, max(claim.last_step, claim.target_steps)),
                checkpoint_every_s=self.settings.checkpoint_every_s,
                commit_share=self.settings.commit_share,
            )  # fmt: skip
            self.tasks[claim.attempt] = (task, time.monotonic())
            self.used_s[claim.attempt] = used_s(self.database, claim)
            self.live[claim.hash] = (claim.from_step, claim.target_steps)
            try:
                self.pool.start(task)
            except FencedError as error:
                gone = Outcome(ending="fenced", detail=str(error), spent=leases.Spent())
                self._take(Event(task=task, outcome=gone))

    def _nothing_left(self) -> bool:
        """Whether no run trains further; an adaptive study is first asked for its next look."""
        if self.course.pending():
            return False
        try:
            more = self.course.decide_next()
        except BusyError:  # a query holds the file: later
            return False
        if more:
            self._report(force=True, note=self.course.note)
        return not more

    # -- what tasks report -------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        claim = event.task.claim
        if event.note:
            run = run_words(event.task.spec.to_dict())
            self._report(force=True, note=f"{run}: {event.note}")
            return
        if event.outcome is None:
            self.live[claim.hash] = (event.step, claim.target_steps)
            self.pace.saw(claim.attempt, event.task.spec, event.step, time.monotonic())
            return
        _, started = self.tasks.pop(claim.attempt)
        step, _ = self.live.pop(claim.hash)
        self._settle(event.task, event.outcome)
        steps = self.database.read("SELECT steps_done FROM runs WHERE run = ?", (claim.run,))[0][0]
        self.pace.add(event.task.spec.allocation.batch_size, max(steps, step) - claim.from_step,
                      time.monotonic() - started, claim.attempt)  # fmt: skip
        self._report(force=True)

    def _settle(self, task: Task, outcome: Outcome) -> None:
        claim, ending, detail = task.claim, outcome.ending, outcome.detail
        state, reason = "pending", ""
        if self.stopped_by is not None and is_cut_short(self.database, claim, ending):
            ending = "stopped"
        if ending == "done":
            state, reason = verdict(self.database, claim)
        elif ending == "failed":
            state, reason = "failed", detail
        elif ending == "crashed":
            failures = self.database.read(
                "SELECT failures FROM runs WHERE run = ?", (claim.run,)
            )[0][0]
            retries = self.study.limits.retries
            if failures >= retries:
                state, reason = "failed", f"{detail}; it was retried {failures} times"
            self._say(f"run {claim.hash} crashed ({detail}), attempt {claim.attempt}")
        elif ending == "storage":
            self.storage_fault = detail
        elif ending == "fenced":
            self._say(f"run {claim.hash} was taken over by another runner")
        try:
            leases.settle(self.database, claim, ending, outcome.spent, detail=detail, state=state,
                          reason=reason)  # fmt: skip
        except (BusyError, StorageError) as error:
            if self.storage_fault:  # the disk may not even take this: the next runner books it
                return
            if isinstance(error, StorageError):
                raise
            self.late.append((task, outcome))  # a query holds the file for minutes: others go on

    def _settle_late(self) -> None:
        late, self.late = self.late, []
        for task, outcome in late:
            self._settle(task, outcome)

    def _enforce_limits(self) -> None:
        limits, now = self.study.limits, time.monotonic()
        if limits.wall_s is None and limits.memory_gb is None:
            return
        for task, started in list(self.tasks.values()):
            used_s = self.used_s[task.claim.attempt] + now - started
            if limits.wall_s is not None and used_s > limits.wall_s:
                reason = f"it passed its limit wall_s={limits.wall_s:g}; raise it, then retry"
                self.pool.kill(task, reason, limit=True)
            memory = None if limits.memory_gb is None else self.pool.memory_bytes(task)
            if limits.memory_gb is not None and memory is None and now - started > _UNKNOWN_S:
                self._unenforced()
            if limits.memory_gb is not None and (memory or 0) > limits.memory_gb * 1e9:
                reason = (
                    f"it passed its limit memory_gb={limits.memory_gb:g} with "
                    f"{(memory or 0) / 1e9:.2f}; raise it, then retry"
                )
                self.pool.kill(task, reason, limit=True)

    def _unenforced(self) -> None:
        line = (
            "limits.memory_gb is not enforced: how much memory a run holds cannot be known here "
            "(it is read from /proc)"
        )
        if line not in self.warnings:
            self._say(line)

    # -- stopping ----------------------------------------------------------------------------

    @property
    def _stopping(self) -> bool:
        if self.stopped_by is None and not self.storage_fault:
            return False
        now = time.monotonic()
        if self.stopping_since is None:
            self.stopping_since = now
            self.pool.stop()
        elif now - self.stopping_since > self.settings.stop_grace_s:
            for task, _ in self.tasks.values():
                self.pool.kill(task, "it made no checkpoint in time to stop", limit=False)
        return True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C ask to stop; the second one stops at once."""

        def handle(number: int, _: FrameType | None) -> None:
            if self.ending:
                return
            if self.stopped_by is not None:
                raise _StopNow
            self.stopped_by = number
            if isinstance(self.pool, InlinePool):
                self.pool.stop()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _end(self) -> None:
        """Close the pool, book what was cut off, give the leases back."""
        self.ending = True  # a third signal must not cut this short
        self.pool.close()
        with contextlib.suppress(StorageError, BusyError):
            for task, began in list(self.tasks.values()):
                leases.settle(self.database, task.claim, "stopped", cut_off(task, began),
                              detail="cut off")  # fmt: skip
            self.tasks.clear()
            leases.book_lost(self.database)
            leases.leave(self.database, self.id, self.pulse.dead())

    # -- reports -----------------------------------------------------------------------------

    def _tick(self, task: Task, step: int) -> None:
        self.live[task.claim.hash] = (step, task.claim.target_steps)
        self.pace.saw(task.claim.attempt, task.spec, step, time.monotonic())
        self.pulse.beat()
        self._enforce_limits()
        self._report()

    def _say(self, note: str) -> None:
        self.warnings.append(note)
        self._report(force=True, note=note)

    def _states(self) -> dict[str, tuple[str, int]]:
        rows = self.database.read("SELECT hash, state, steps_done FROM runs")
        return {row[0]: (row[1], row[2]) for row in rows if row[0] in self.specs}

    def _report(self, *, force: bool = False, note: str = "") -> None:
        now = time.monotonic()
        if not force and now - self.last_report < self.settings.report_s:
            return
        self.last_report, specs = now, self.course.specs
        live = {name: at for name, at in self.live.items() if name in specs}
        self.progress(progress_of(
            specs, self._states(), live, self.pace, workers=max(self.workers, 1),
            elapsed_s=now - self.started, note=note, limit=self.course.limit,
        ))  # fmt: skip

    def _summary(self) -> Summary:
        store = Store(self.folder)
        with store:
            states, to_go = self._states(), self.course.pending()
            bad = [(r.hash, r.reason) for r in store.runs()
                   if r.hash in self.specs and r.state in ("failed", "invalid")]  # fmt: skip
            count = Counter(state for state, _ in states.values())
            waiting, pending = count["pending"], max(len(to_go), int(not self.course.has_ended))
            return Summary(done=count["done"], failed=count["failed"], invalid=count["invalid"],
                           pending=pending, resting=waiting - len(to_go), problems=bad,
                           accounting=store.accounting(),
                           elapsed_s=time.monotonic() - self.started,
                           stopped_by=self.stopped_by, warnings=tuple(self.warnings))  # fmt: skip
