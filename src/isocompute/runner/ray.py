"""Runs on a Ray cluster: each in an actor with its resources, records streamed to the driver.

The driver stays the only writer: an engine on another machine writes to a proxy of the sink, and
whatever it hands over (records, the files of a checkpoint) is committed by the driver's own
`RunWriter`, with the same transactions, fencing and books as on one machine. A node that is lost
takes its actor with it; the run is retried from its last commit. What it drew is booked up to
the records that had arrived, a fraction of a second behind the engine. An actor that is through
with a slice takes the next one, so its start is paid once. A second driver on the same folder
joins, as a second runner does.

Needs the extra [ray].
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from isocompute.engines import load_engine
from isocompute.engines.base import DivergedError, EvaluationRecord, StepRecord, StopRequested
from isocompute.engines.jobs import RAY_TOKEN, ray_authentication, ray_words
from isocompute.errors import InputError, RunError
from isocompute.process_tree import memory_bytes
from isocompute.runner.execute import Ending, Outcome, Task, finding_line
from isocompute.runner.pool import Event
from isocompute.store.database import Database, FencedError, StorageError
from isocompute.store.leases import Spent
from isocompute.store.writer import RunWriter
from isocompute.study.spec import RunSpec

Files = dict[str, bytes]

_IDLE_S = 10.0  # an actor that waits longer gives its resources back


def ray_pool(
    *,
    address: str | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    max_runs: int | None = None,
) -> Callable[[Database], RayPool]:
    """A pool for `run_study(..., pool=...)`.

    Args:
        address: of a cluster ("auto" for the one that this machine belongs to); None: start a
            local one, which ends with this process.
        num_cpus, num_gpus: what one run takes.
        max_runs: at most so many at once; None: as many as the cluster's resources hold.

    Raises:
        InputError: if Ray is not installed, or one run takes nothing at all.
        RunError: if the cluster cannot be reached.
    """
    each = {"CPU": float(num_cpus), "GPU": float(num_gpus)}
    if min(each.values()) < 0 or max(each.values()) <= 0:
        raise InputError(
            f"one run must take resources >= 0 and some of them > 0, but got {each}; set num_cpus."
        )
    if "ray" not in sys.modules:  # Ray reads its mode once, when it is imported
        os.environ.update(ray_authentication())
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError(
            "running on Ray needs the package ray, which is not installed; install isocompute "
            "with the extra [ray]."
        ) from error
    if not ray.is_initialized():
        try:
            # Without an address Ray would join whatever cluster it finds on this machine.
            ray.init(address=address or "local", log_to_driver=False, include_dashboard=False,
                     configure_logging=False)  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise RunError(
                f"a Ray cluster must be reachable at address {address!r}, but Ray says: "
                f"{ray_words(str(error))}; start it with `ray start --head`, or leave the address "
                f"out. If it is up: {RAY_TOKEN}."
            ) from error
    return lambda database: RayPool(database, each, max_runs)


@dataclass
class _Running:
    task: Task
    actor: Any
    writer: RunWriter
    message: Any  # the reference of the actor's next messages
    killed: tuple[str, bool] | None = None
    told_to_stop: bool = False
    asked: Any = None  # the reference of the actor's next word on its memory
    memory: int | None = None
    faults: list[tuple[Ending, str]] = field(default_factory=list)
    notes: list[Event] = field(default_factory=list)


class RayPool:
    """Places on a Ray cluster; see `isocompute.runner.pool.Pool`."""

    def __init__(
        self, database: Database, each: Mapping[str, float], max_runs: int | None
    ) -> None:
        import ray

        self._ray: Any = ray  # its types differ between versions, and it may be absent
        self._database = database
        self._each = {name: amount for name, amount in each.items() if amount > 0}
        self._max_runs = max_runs
        self._running: list[_Running] = []
        self._idle: list[tuple[Any, float]] = []  # actors between two slices, since when
        self._stopping = False
        self._actor_class = ray.remote(RemoteRun).options(
            num_cpus=self._each.get("CPU", 0), num_gpus=self._each.get("GPU", 0),
            max_concurrency=4, max_restarts=0,
        )  # fmt: skip

    @property
    def free(self) -> int:
        """How many runs the cluster could take besides those that it has."""
        total = self._ray.cluster_resources()
        places = min(int(total.get(k, 0.0) / amount) for k, amount in self._each.items())
        if self._max_runs is not None:
            places = min(places, self._max_runs)
        return max(places - len(self._running), 0)

    def start(self, task: Task) -> None:
        """Hand the task to an actor; Ray chooses the node of a new one."""
        running = _Running(task=task, actor=None, writer=None, message=None)  # type: ignore[arg-type]
        running.writer = RunWriter(
            self._database, task.claim,
            {name: len(problems) for name, problems in task.spec.validation.items()},
            stop=lambda: self._stopping or running.killed is not None,
            checkpoint_every_s=task.checkpoint_every_s, commit_share=task.commit_share,
            on_finding=lambda f: running.notes.append(Event(task=task, note=finding_line(f))),
        )  # fmt: skip
        resume = None if task.claim.resume is None else _pack(task.claim.resume)
        running.actor = self._idle.pop()[0] if self._idle else self._actor_class.remote()
        running.message = running.actor.begin.remote(task.engine, task.spec, resume)
        self._running.append(running)

    def events(self, timeout_s: float) -> list[Event]:
        """Commit what has arrived; report progress and ends."""
        self._dismiss(time.monotonic() - _IDLE_S)
        if not self._running:
            time.sleep(timeout_s)
            return []
        by_reference = {r.message: r for r in self._running}
        # The first to come: its engine may be waiting at a checkpoint. Then all that is there.
        ready, _ = self._ray.wait(list(by_reference), timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(
                list(by_reference), num_returns=len(by_reference), timeout=0
            )
        found: list[Event] = []
        for reference in ready:
            found += self._receive(by_reference[reference])
        for running in self._running:
            if running.writer.wants_checkpoint and not running.told_to_stop:
                running.actor.want_checkpoint.remote()
                running.told_to_stop = self._stopping
        return found

    def kill(self, task: Task, reason: str, *, limit: bool) -> None:
        """End the task's actor at once."""
        for running in self._running:
            if running.task is task and running.killed is None:
                running.killed = reason, limit
                self._ray.kill(running.actor)

    def memory_bytes(self, task: Task) -> int | None:
        """Of the task's actor and what it started, as its node last said."""
        for running in self._running:
            if running.task is not task:
                continue
            if running.asked is None:
                running.asked = running.actor.memory.remote()
            ready, _ = self._ray.wait([running.asked], timeout=0)
            if ready:
                running.asked = None
                with contextlib.suppress(self._ray.exceptions.RayError):  # its end says so
                    running.memory = self._ray.get(ready[0])
            return running.memory
        return None

    def stop(self) -> None:
        """Ask every run to end at its next checkpoint."""
        self._stopping = True

    def close(self) -> None:
        """End every actor that is left."""
        for running in self._running:
            self._ray.kill(running.actor)
            running.writer.close()
        self._running = []
        self._dismiss(time.monotonic())

    def _dismiss(self, idle_since: float) -> None:
        """Give back the resources of actors that have had nothing to do since then."""
        for actor, since in self._idle:
            if since <= idle_since:
                self._ray.kill(actor)
        self._idle = [entry for entry in self._idle if entry[1] > idle_since]

    def _receive(self, running: _Running) -> list[Event]:
        try:
            messages = self._ray.get(running.message)
        except self._ray.exceptions.RayError as error:
            reason, limit = running.killed or (
                f"its actor was lost ({type(error).__name__}: {ray_words(str(error))[:300]})",
                False,
            )  # fmt: skip
            self._dismiss(time.monotonic())  # its node may have gone, and others with it
            return [*running.notes, self._end(running, "failed" if limit else "crashed", reason)]
        for message in messages:
            ended = self._handle(running, *message)
            if ended is not None:
                return [*running.notes, ended]
        running.message = running.actor.messages.remote()
        notes, running.notes = running.notes, []
        return [*notes, Event(task=running.task, step=running.writer.position)]

    def _handle(self, running: _Running, kind: str, *content: Any) -> Event | None:
        writer = running.writer
        if kind == "end":
            ending, detail = running.faults[0] if running.faults else content
            return self._end(running, ending, detail)
        if running.faults:
            return None  # it has been told; only its end still matters
        reply: str = "go on"
        try:
            if kind == "step":
                writer.step(content[0])
            elif kind in ("evaluation", "reached", "rewind", "diverged"):
                getattr(writer, kind)(content[0])
            else:
                step, files = content
                with writer.checkpoint(step) as folder:
                    _unpack(files, folder)
        except StopRequested:
            reply = "stop"
        except FencedError as error:
            running.faults.append(("fenced", str(error)))
        except StorageError as error:
            running.faults.append(("storage", str(error)))
        except InputError as error:
            running.faults.append(("failed", str(error)))
        if running.faults:
            running.actor.want_checkpoint.remote()
            reply = "stop"
        if kind == "checkpoint" or running.faults:
            running.actor.answer.remote(reply)
        return None

    def _end(self, running: _Running, ending: Ending, detail: str) -> Event:
        spent: Spent = running.writer.spent
        running.writer.close()
        self._running.remove(running)
        if ending in ("done", "stopped") and not running.faults and running.killed is None:
            self._idle.append((running.actor, time.monotonic()))
        else:
            self._ray.kill(running.actor)
        outcome = Outcome(ending=ending, detail=detail, spent=spent)
        return Event(task=running.task, outcome=outcome)


class RemoteRun:
    """Lives on a cluster node: trains in a thread, hands records over, waits at checkpoints."""

    def __init__(self) -> None:
        self._outbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wanted = threading.Event()

    def begin(self, engine: str, spec: RunSpec, resume: Files | None) -> list[tuple[Any, ...]]:
        """Train a slice; returns its first messages."""
        self._wanted.clear()
        thread = threading.Thread(target=self._train, args=(engine, spec, resume), daemon=True)
        thread.start()
        return self.messages()

    def messages(self) -> list[tuple[Any, ...]]:
        """Everything that was handed over since the last call, at least one message."""
        found = [self._outbox.get()]
        deadline = time.monotonic() + 0.2
        while len(found) < 1000 and found[-1][0] not in ("checkpoint", "end"):
            try:
                found.append(self._outbox.get(timeout=max(deadline - time.monotonic(), 0.0)))
            except queue.Empty:
                break
        return found

    def answer(self, reply: str) -> None:
        """The driver's answer to a checkpoint."""
        self._answers.put(reply)

    def memory(self) -> int | None:
        """Bytes of this process and what it started."""
        return memory_bytes(os.getpid())

    def want_checkpoint(self) -> None:
        """The driver would like a checkpoint soon."""
        self._wanted.set()

    def _train(self, target: str, spec: RunSpec, resume: Files | None) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            start = None
            if resume is not None:
                start = folder / "resume"
                start.mkdir()
                _unpack(resume, start)
            try:
                load_engine(target).run(spec, start, _Proxy(self, folder))
                end = ("end", "done", "")
            except StopRequested:
                end = ("end", "stopped", "asked to stop")
            except InputError as error:
                end = ("end", "failed", str(error))
            except DivergedError as error:
                self._outbox.put(("diverged", str(error)))
                end = ("end", "failed", str(error))
            except Exception as error:  # noqa: BLE001  # a run ends here, whatever was raised
                line = " ".join(str(error).split())[:500]
                end = ("end", "crashed", f"{type(error).__name__}: {line}")
            self._outbox.put(end)


class _Proxy:
    """The engine's sink on the node."""

    def __init__(self, run: RemoteRun, folder: Path) -> None:
        self._run, self._folder, self._count = run, folder, 0

    @property
    def wants_checkpoint(self) -> bool:
        return self._run._wanted.is_set()

    def step(self, record: StepRecord) -> None:
        self._run._outbox.put(("step", replace(record)))

    def evaluation(self, record: EvaluationRecord) -> None:
        self._run._outbox.put(("evaluation", replace(record)))

    def reached(self, step: int) -> None:
        self._run._outbox.put(("reached", step))

    def rewind(self, step: int) -> None:
        self._run._outbox.put(("rewind", step))

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            yield Path(name)
            files = _pack(Path(name))
        self._run._wanted.clear()
        self._run._outbox.put(("checkpoint", step, files))
        if self._run._answers.get() == "stop":
            raise StopRequested


def _pack(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def _unpack(files: Files, folder: Path) -> None:
    root = os.path.realpath(folder)
    for name, content in files.items():
        path = folder / name
        if not os.path.realpath(path).startswith(root + os.sep):
            raise InputError(
                f"files of a checkpoint must lie in its folder, but got {name!r}; correct the "
                "engine."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
