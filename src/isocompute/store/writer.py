"""The sink that an engine writes to: rows wait in memory until a checkpoint commits them.

Shape legend: P problems of a validation set; Q problems of one training batch.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.engines.base import EvaluationRecord, IntArray, StepRecord, StopRequested, Unjudged
from isocompute.errors import InputError
from isocompute.health import Finding
from isocompute.store import leases
from isocompute.store.database import BusyError, Database, FencedError, storage_error
from isocompute.store.files import checkpoint_folder, make_folder, remove, seal, weights_of
from isocompute.store.findings import dump_findings, keep_divergence, monitored, replayed
from isocompute.store.judging import Judging
from isocompute.store.leases import Claim, Spent, check_token, compare_token, progress_file
from isocompute.store.pack import count_text, fits, pack
from isocompute.store.position import Position, take_back
from isocompute.store.under_way import AT
from isocompute.store.unjudged import TRAINING, insert_unjudged, judged_of

_PATIENCE_S = 0.25  # a commit that a slow reader blocks is put off: the engine goes on
_encode = json.JSONEncoder(sort_keys=True).encode  # one encoder: a step takes microseconds
_LONGEST = 20  # times `checkpoint_every_s`: longer nobody's work stays uncommitted
_ROWS_EVERY_S = 1.0  # a finding may be told this much later
_LAST_PATIENCE_S = 600.0  # the last one has to wait


class RunWriter:
    """Implements `engines.base.Sink` for one claim.

    Args:
        database: of the study, opened in this process.
        claim: what may be written.
        validation: number of problems of each validation set, by name.
        stop: asked after each record; True ends the run at its next checkpoint.
        on_step: called with (step, rollouts) after each update, for progress.
        on_finding: called with what a health rule newly found, while the run goes on.
        checkpoint_every_s: `wants_checkpoint` turns true after that much uncommitted work, later
            (up to 20 times) where a commit costs more than its share of it.
        commit_share: share of the time that commits may take. A checkpoint that comes sooner
            after the last commit than that allows is left to the next one, except at the end;
            infinity commits every checkpoint.

    Raises:
        FencedError: if the run was given to another runner before this one began.
        StorageError: if the folder cannot be written.
    """

    def __init__(
        self,
        database: Database,
        claim: Claim,
        validation: Mapping[str, int],
        *,
        stop: Callable[[], bool] = lambda: False,
        on_step: Callable[[int, int], None] = lambda *_: None,
        on_finding: Callable[[Finding], None] | None = None,
        checkpoint_every_s: float = 30.0,
        commit_share: float = 0.0025,
    ) -> None:
        self._database, self._claim, self._validation = database, claim, dict(validation)
        self._stop, self._on_step, self._every_s = stop, on_step, checkpoint_every_s
        self._on_finding = on_finding
        self._share, self._commit_s, self._first_weights = commit_share, 0.02, ""
        self._judging = Judging()
        row = database.read(
            "SELECT steps_done, rollouts, tokens, evaluation_rollouts, evaluation_tokens, "
            "lease_token, json_extract(spec, '$.recipe.objective'), "
            "json_extract(spec, '$.engine') FROM runs WHERE run = ?", (claim.run,),
        )[0]  # fmt: skip
        # What a log says is read again where it was not committed: none of it is lost by then.
        self._objective, self._of_log = str(row[6]), row[7] == "command"
        compare_token(claim, row[5])  # the position is that of the claim, not of a later one
        self._start = self._kept = self._position = Position(
            step=row[0], rollouts=row[1], tokens=row[2], evaluation_rollouts=row[3],
            evaluation_tokens=row[4])  # fmt: skip
        self._monitor = replayed(database, claim.run, self._start.step, self._objective)
        self._taken_back: int | None = None
        self._has_checkpoint, self._serial = claim.resume is not None, 0
        # Updates that are not rows yet, with copies of what an engine may use again.
        self._fresh: list[tuple[StepRecord, dict[str, float], IntArray, IntArray]] = []
        self._rows_at = -math.inf
        self._steps, self._evaluations = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        self._unjudged: list[tuple[int, str, Unjudged]] = []
        self._seen = self._evaluated(claim.from_step)
        self._began = self._committed_at = time.monotonic()
        self._repeated, self._put_off, self._reached = Spent(), list[Path](), 0
        try:
            path = progress_file(database.folder, claim.attempt)
            make_folder(path.parent)
            self._progress = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise storage_error(error) from error

    @property
    def spent(self) -> Spent:
        """What this attempt has drawn so far, committed or not; of a log only what is."""
        return self._spent(self._kept if self._of_log else self._position)

    def _spent(self, now: Position) -> Spent:
        start = self._start
        return Spent(
            rollouts=now.rollouts - start.rollouts, tokens=now.tokens - start.tokens,
            evaluation_rollouts=now.evaluation_rollouts - start.evaluation_rollouts
            + self._repeated.evaluation_rollouts,
            evaluation_tokens=now.evaluation_tokens - start.evaluation_tokens
            + self._repeated.evaluation_tokens,
            wall_s=time.monotonic() - self._began,
        )  # fmt: skip

    @property
    def position(self) -> int:
        """Last step that was recorded, committed or not."""
        return self._position.step

    @property
    def wants_checkpoint(self) -> bool:
        """True when the runner wants to stop, or when much work is uncommitted."""
        patience_s = min(self._commit_s / self._share, _LONGEST * self._every_s)
        waited_s = time.monotonic() - self._committed_at
        return self._stop() or waited_s > max(self._every_s, patience_s)

    def step(self, record: StepRecord) -> None:
        """Take one update's record.

        Raises:
            InputError: if steps do not follow each other, cumulative numbers fall, or counts
                do not fit (this at the latest at the next checkpoint): the engine is wrong, and
                its run fails.
        """
        here = self._position
        if record.step != here.step + 1 or record.rollouts < here.rollouts or (
            record.tokens < here.tokens
        ):
            raise InputError(
                "each update must be one step after the last with cumulative rollouts and tokens "
                f"that do not fall, but step {record.step} ({record.rollouts} rollouts, "
                f"{record.tokens} tokens) follows step {here.step} ({here.rollouts}, "
                f"{here.tokens}); correct the engine."
            )
        if len(record.problem_Q) != len(record.successes_Q):
            raise InputError(
                "a batch must hold one count of successes per problem, but got "
                f"{len(record.successes_Q)} counts for {len(record.problem_Q)} problems; "
                "correct the engine."
            )
        copies = dict(record.health), np.array(record.problem_Q), np.array(record.successes_Q)
        self._fresh.append((record, *copies))
        self._position = Position(
            step=record.step, rollouts=record.rollouts, tokens=record.tokens,
            evaluation_rollouts=here.evaluation_rollouts, evaluation_tokens=here.evaluation_tokens,
        )  # fmt: skip
        self._note()
        self._judging.step(record)
        self._on_step(record.step, record.rollouts)
        if time.monotonic() - self._rows_at >= _ROWS_EVERY_S:
            self._make_rows()

    def _make_rows(self) -> None:
        """Turn the records since the last time into rows and findings (InputError: misfits).

        Not at every update: after an engine's work the processor's caches are cold, and a row then
        costs ten times what it costs in a batch.
        """
        fresh, self._fresh, self._rows_at = self._fresh, [], time.monotonic()
        for record, measured, problem_Q, successes_Q in fresh:
            health = {k: float(v) if math.isfinite(v) else None for k, v in measured.items()}
            self._steps.append((
                record.step, record.rollouts, record.tokens, record.samples, record.wall_s,
                _encode(health), len(problem_Q), pack(problem_Q),
                pack(successes_Q, most=record.samples),
            ))  # fmt: skip
            self._unjudged += [(record.step, TRAINING, one) for one in record.unjudged]
            failed = {one.problem: one.rollouts for one in record.unjudged}
            judged_Q = judged_of(problem_Q, record.samples, failed)
            values = monitored(health, successes_Q, judged_Q, self._objective)
            for finding in self._monitor.update(record.step, values):
                if self._on_finding is not None:
                    self._on_finding(finding)

    def evaluation(self, record: EvaluationRecord) -> None:
        """Take one evaluation's record; one that was committed before is kept as it was.

        Raises:
            InputError: if the set is unknown, its size differs, or it is not of this step.
        """
        size, counts = self._validation.get(record.problem_set), len(record.successes_P)
        if not fits(size, counts, record.samples) or record.step != self._position.step:
            raise InputError(
                "an evaluation must be of a validation set of the run, with one count per "
                f"problem, at the current step {self._position.step}, but got "
                f"{record.problem_set!r} ({len(record.successes_P)} counts, the set has {size}) "
                f"at step {record.step}; correct the engine."
            )
        drawn = record.sampled_rollouts or record.samples * len(record.successes_P)
        key = (record.step, record.problem_set)
        if key in self._seen:
            again = self._repeated
            self._repeated = replace(
                again, evaluation_rollouts=again.evaluation_rollouts + drawn,
                evaluation_tokens=again.evaluation_tokens + record.sampled_tokens)  # fmt: skip
            self._note()
            return
        self._seen.add(key)
        self._unjudged += [(record.step, record.problem_set, one) for one in record.unjudged]
        self._evaluations.append((
            record.step, record.problem_set, record.rollouts, record.tokens, record.samples,
            drawn, record.sampled_tokens, record.wall_s,
            count_text(record.successes_P, record.samples), pack(record.successes_P),
        ))  # fmt: skip
        here = self._position
        self._position = replace(
            here, evaluation_rollouts=here.evaluation_rollouts + drawn,
            evaluation_tokens=here.evaluation_tokens + record.sampled_tokens)  # fmt: skip
        self._note()
        self._judging.evaluation(record, drawn)

    def reached(self, step: int) -> None:
        """See `Sink`."""
        self._reached = step
        self._note()
        self._on_step(step, 0)

    def rewind(self, step: int) -> None:
        """See `Sink`; what is dropped counts as lost. InputError: records wait for a commit."""
        if self._fresh or self._steps or self._evaluations:
            raise InputError("a run must be taken back before its first record, but it is at step "
                             f"{self.position}, uncommitted; correct the engine.")  # fmt: skip
        database, run = self._database, self._claim.run
        self._start = self._kept = self._position = Position.at(database.read, run, step)
        self._taken_back, self._seen = step, self._evaluated(step)
        self._monitor = replayed(database, run, step, self._objective)

    def _evaluated(self, step: int) -> set[tuple[int, str]]:
        return {(step, str(row[0])) for row in self._database.read(
            "SELECT problem_set FROM evaluations WHERE run = ? AND step = ?",
            (self._claim.run, step))}  # fmt: skip

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A fresh folder; on a clean exit it is committed with every row since the last one.

        Raises:
            FencedError: if the run was given to another runner; nothing of this one is kept.
            StopRequested: after the commit, if the runner wants to stop.
            StorageError: if the disk refuses; nothing was committed.
            InputError: if `step` is not the last step recorded.
        """
        if step != self._position.step:
            raise InputError(
                f"a checkpoint must be of the last step recorded, {self._position.step}, but got "
                f"step {step}; correct the engine."
            )
        self._make_rows()
        self._serial += 1
        began = time.monotonic()
        folder = checkpoint_folder(
            self._database.folder, self._claim.hash, self._claim.token, self._serial
        )
        self._database.refuse_moved()
        try:
            make_folder(folder.parent)
            folder.mkdir()
            yield folder
            if step == 0:
                self._first_weights = weights_of(folder)
            if self._worth_committing(step):
                self._commit(step, folder, began)
            else:
                remove(folder)
                leases.refuse_overtaken(self._database, self._claim)
        except OSError as error:
            remove(folder)
            raise storage_error(error) from error
        if self._stop():
            raise StopRequested

    def diverged(self, message: str) -> None:
        """Keep that it diverged after the last update; see `keep_divergence`."""
        keep_divergence(self._database, self._claim, self.position, self._monitor.findings, message)

    def close(self) -> None:
        """Close the progress file, whose content stays until the attempt is settled."""
        os.close(self._progress)

    def _note(self) -> None:
        # One pwrite, not synced: it survives the death of the process, and costs microseconds.
        at = AT.pack(max(self._reached, self._position.step))
        try:
            os.pwrite(self._progress, self.spent.pack() + at, 0)
        except OSError as error:
            raise storage_error(error) from error

    def _worth_committing(self, step: int) -> bool:
        if not self._steps and not self._evaluations:
            return not self._has_checkpoint  # where a trainer's own files are, or nothing new
        due = self._committed_at + self._commit_s / self._share
        last = self._of_log or step >= self._claim.target_steps  # of a log nothing comes after it
        return last or self.wants_checkpoint or time.monotonic() >= due

    def _commit(self, step: int, folder: Path, began: float) -> None:
        sha256, weights, size = seal(folder)
        final = step >= self._claim.target_steps or self._stop()
        try:
            dropped = self._transact(
                step, sha256, weights, size, _LAST_PATIENCE_S if final else _PATIENCE_S
            )
        except BusyError:
            if final:
                raise
            self._put_off.append(folder)  # a reader holds the file open: the next commits all
            self._committed_at = time.monotonic()
            self._commit_s = self._committed_at - began  # waiting, too, keeps to its share
            return
        except FencedError:
            remove(folder)
            raise
        self._steps, self._evaluations, self._unjudged = [], [], []
        self._has_checkpoint, self._taken_back, self._kept = True, None, self._position
        self._committed_at = time.monotonic()
        self._commit_s = self._committed_at - began
        for old in [*dropped, *self._put_off]:
            remove(old)
        self._put_off = []

    def _transact(
        self, step: int, sha256: str, weights: str, size: int, patience_s: float
    ) -> list[Path]:
        run, attempt, here = self._claim.run, self._claim.attempt, self._position
        with self._database.write(patience_s=patience_s) as connection:
            check_token(connection, self._claim)
            if self._taken_back is not None:
                take_back(connection, run, attempt, self._taken_back)
            connection.executemany(
                "INSERT INTO steps (run, attempt, step, rollouts, tokens, samples, wall_s, health, "
                "size, problems, successes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(run, attempt, *row) for row in self._steps],
            )
            connection.executemany(
                "INSERT INTO evaluations (run, attempt, step, problem_set, rollouts, tokens, "
                "samples, sampled_rollouts, sampled_tokens, wall_s, counts, successes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(run, attempt, *row) for row in self._evaluations],
            )
            insert_unjudged(connection, run, self._unjudged)
            totals = (here.rollouts, here.tokens, here.evaluation_rollouts, here.evaluation_tokens)
            # The previous complete checkpoint stays, in case this one turns out to be torn.
            drop = connection.execute(
                "SELECT token, serial FROM checkpoints WHERE run = ? "
                "ORDER BY token DESC, serial DESC LIMIT -1 OFFSET 1",
                (run,),
            ).fetchall()
            connection.executemany(
                "DELETE FROM checkpoints WHERE run = ? AND token = ? AND serial = ?",
                [(run, *row) for row in drop],
            )
            connection.execute(
                "INSERT INTO checkpoints (run, step, token, serial, sha256, weights_sha256, bytes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, step, self._claim.token, self._serial, sha256, weights, size),
            )
            connection.execute(
                "UPDATE runs SET steps_done = ?, rollouts = ?, tokens = ?, "
                "evaluation_rollouts = ?, evaluation_tokens = ?, failures = 0, findings = ?, "
                "first_weights = CASE WHEN first_weights = '' THEN ? "
                "ELSE first_weights END WHERE run = ?",
                (step, *totals, dump_findings(step, self._monitor.findings), self._first_weights,
                 run),
            )  # fmt: skip
            spent = self._spent(here)
            connection.execute(
                "UPDATE attempts SET rollouts = ?, tokens = ?, evaluation_rollouts = ?, "
                "evaluation_tokens = ?, wall_s = ? WHERE attempt = ?",
                (spent.rollouts, spent.tokens, spent.evaluation_rollouts, spent.evaluation_tokens,
                 spent.wall_s, attempt),
            )  # fmt: skip
        return [
            checkpoint_folder(self._database.folder, self._claim.hash, token, serial)
            for token, serial in drop
        ]
