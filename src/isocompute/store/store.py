"""The study folder as others read it: runs, steps, evaluations, costs.

Shape legend: R runs, K evaluations or steps, C = K + 1 possible numbers of successes,
P problems, Q problems of a batch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet
from isocompute.store.database import Database
from isocompute.store.pack import unpack

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CHUNK = 50_000  # rows per query: a reader never holds the file for long


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run as the store knows it.

    Args:
        hash: identity (the specification without the budget).
        spec: JSON values as `RunSpec.to_dict`, with "steps" the target.
        state: "pending", "done", "failed" or "invalid".
        reason: why it failed or is invalid.
        steps_done, rollouts, tokens: at the last commit.
        evaluation_rollouts, evaluation_tokens: drawn by the evaluations that are kept.
        attempts: how many were started.
        wasted_rollouts, wasted_tokens: drawn in training and evaluation and not kept.
        wall_s: of all attempts together.
        leased: True while a runner holds it.
    """

    hash: str
    spec: dict[str, Any]
    state: str
    reason: str
    steps_done: int
    rollouts: int
    tokens: int
    evaluation_rollouts: int
    evaluation_tokens: int
    attempts: int
    wasted_rollouts: int
    wasted_tokens: int
    wall_s: float
    leased: bool


@dataclass(frozen=True, kw_only=True)
class Evaluations:
    """Evaluations of one or all runs, in order of run, step and set.

    Args:
        run_K: hash of the run.
        problem_set_K: name of the validation set.
        step_K, rollouts_K, tokens_K: training position.
        samples_K: samples per problem.
        counts_KC: problems with 0, 1, ..., samples successes (0 beyond a row's samples).
        wall_s_K: seconds each took.
    """

    run_K: NDArray[np.str_]
    problem_set_K: NDArray[np.object_]
    step_K: IntArray
    rollouts_K: IntArray
    tokens_K: IntArray
    samples_K: IntArray
    counts_KC: IntArray
    wall_s_K: FloatArray

    def __len__(self) -> int:
        return len(self.step_K)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Updates of one run, in order.

    Args:
        step_K, rollouts_K, tokens_K: cumulative position after each.
        samples_K: rollouts per problem.
        wall_s_K: seconds of each.
        health: one array per name that occurs; NaN where a step has no such number, infinity
            where the engine measured one that is not finite (a diverged run).
        problems: index into the training set, per step an array of length Q.
        successes: successes of those problems, per step an array of length Q.
    """

    step_K: IntArray
    rollouts_K: IntArray
    tokens_K: IntArray
    samples_K: IntArray
    wall_s_K: FloatArray
    health: dict[str, FloatArray]
    problems: list[IntArray]
    successes: list[IntArray]

    def __len__(self) -> int:
        return len(self.step_K)


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """Where the rollouts and tokens of a study went. drawn = used + wasted, of each kind.

    Args:
        rollouts, tokens: training, kept.
        evaluation_rollouts, evaluation_tokens: evaluation, kept.
        wasted_rollouts, wasted_tokens: of training, drawn and lost to crashes and fencing.
        wasted_evaluation_rollouts, wasted_evaluation_tokens: the same of evaluation.
        other: {purpose: {"rollouts", "tokens", "wall_s"}} of "difficulty", "calibration", ...
        wall_s: worker seconds of all attempts.
        attempts: how many were started.
        uncertain_steps: attempts that died; each may have drawn up to one more update.
    """

    rollouts: int
    tokens: int
    evaluation_rollouts: int
    evaluation_tokens: int
    wasted_rollouts: int
    wasted_tokens: int
    wasted_evaluation_rollouts: int
    wasted_evaluation_tokens: int
    other: dict[str, dict[str, float]]
    wall_s: float
    attempts: int
    uncertain_steps: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


class Store:
    """Reads a study folder; safe while runners write it.

    Args:
        folder: the study folder (the one that holds study.db).

    Raises:
        InputError: if there is no study there, it is from a newer version, or damaged.

    Example:
        >>> store = Store("my-study")                                   # doctest: +SKIP
        >>> [(r.spec["rollouts_per_problem"], r.state) for r in store.runs()]  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.database = Database(folder)
        self.folder = self.database.folder

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self.info().get("name", ""))

    def info(self) -> dict[str, Any]:
        """The study's own entries: name, source (the study file's content), slices."""
        rows = self.database.read("SELECT key, value FROM study ORDER BY key")
        return {key: json.loads(value) for key, value in rows}

    def runs(self) -> list[StoredRun]:
        """All runs, in the order in which they were added."""
        rows = self.database.read(
            "SELECT r.hash, r.spec, r.target_steps, r.state, r.reason, r.steps_done, r.rollouts, "
            "r.tokens, r.evaluation_rollouts, r.evaluation_tokens, r.lease_runner, "
            "count(a.attempt), coalesce(sum(a.rollouts + a.evaluation_rollouts), 0), "
            "coalesce(sum(a.tokens + a.evaluation_tokens), 0), coalesce(sum(a.wall_s), 0) "
            "FROM runs r LEFT JOIN attempts a ON a.run = r.run GROUP BY r.run ORDER BY r.run"
        )
        return [
            StoredRun(
                hash=r[0], spec={**json.loads(r[1]), "steps": r[2]}, state=r[3], reason=r[4],
                steps_done=r[5], rollouts=r[6], tokens=r[7], evaluation_rollouts=r[8],
                evaluation_tokens=r[9], leased=r[10] is not None, attempts=r[11],
                wasted_rollouts=r[12] - r[6] - r[8], wasted_tokens=r[13] - r[7] - r[9],
                wall_s=r[14],
            )
            for r in rows
        ]  # fmt: skip

    def evaluations(
        self, run_hash: str | None = None, *, problem_set: str | None = None
    ) -> Evaluations:
        """Evaluations of one run, or of all, optionally of one validation set."""
        rows = self._rows(
            "evaluations", "r.hash, t.problem_set, t.step, t.rollouts, t.tokens, t.samples, "
            "t.counts, t.wall_s", run_hash, problem_set)  # fmt: skip
        columns = list(zip(*rows, strict=True)) if rows else [()] * 8
        samples = np.array(columns[5], dtype=np.int64)
        return Evaluations(
            run_K=np.array(columns[0], dtype=np.str_),
            problem_set_K=np.array(columns[1], dtype=object),
            step_K=np.array(columns[2], dtype=np.int64),
            rollouts_K=np.array(columns[3], dtype=np.int64),
            tokens_K=np.array(columns[4], dtype=np.int64),
            samples_K=samples,
            counts_KC=_counts(columns[6], samples),
            wall_s_K=np.array(columns[7], dtype=np.float64),
        )

    def successes(self, run_hash: str, problem_set: str) -> tuple[IntArray, IntArray]:
        """(step_K, successes_KP): successes of every problem at every evaluation of a run."""
        rows = self._rows("evaluations", "t.step, t.counts, t.successes", run_hash, problem_set)
        size = [sum(json.loads(row[1])) for row in rows]
        arrays = [unpack(row[2], n) for row, n in zip(rows, size, strict=True)]
        steps = np.array([row[0] for row in rows], dtype=np.int64)
        return steps, np.array(arrays, dtype=np.int64).reshape(len(rows), size[0] if size else 0)

    def steps(self, run_hash: str) -> Steps:
        """Updates of one run."""
        rows = self._rows(
            "steps", "t.step, t.rollouts, t.tokens, t.samples, t.wall_s, t.health, t.size, "
            "t.problems, t.successes", run_hash, None)  # fmt: skip
        health = [json.loads(row[5]) for row in rows]
        names = sorted({name for row in health for name in row})
        problems = [unpack(row[7], row[6]) for row in rows]
        return Steps(
            step_K=np.array([row[0] for row in rows], dtype=np.int64),
            rollouts_K=np.array([row[1] for row in rows], dtype=np.int64),
            tokens_K=np.array([row[2] for row in rows], dtype=np.int64),
            samples_K=np.array([row[3] for row in rows], dtype=np.int64),
            wall_s_K=np.array([row[4] for row in rows], dtype=np.float64),
            health={
                name: np.array([_number(row.get(name, np.nan)) for row in health])
                for name in names
            },
            problems=problems,
            successes=[unpack(row[8], row[6]) for row in rows],
        )

    def problem_set(self, sha256: str, name: str = "") -> ProblemSet:
        """A problem set that some run of the study trains or is evaluated on.

        Raises:
            InputError: if the store has no set with that hash.
        """
        head = self.database.read("SELECT verifier FROM problem_sets WHERE sha256 = ?", (sha256,))
        if not head:
            raise InputError(
                f"a problem set must be in the study, but none has hash {sha256!r}; take the "
                "hash from a run's specification."
            )
        rows = self.database.read(
            "SELECT id, prompt, answer, source, pass_rate, pass_rate_samples FROM problems WHERE set_sha256 = ? "
            "ORDER BY position",
            (sha256,),
        )
        return ProblemSet(
            name=name, verifier=head[0][0],
            problems=[
                Problem(id=r[0], prompt=r[1], answer=r[2], source=r[3], pass_rate=r[4],
                        pass_rate_samples=r[5])
                for r in rows
            ],
        )  # fmt: skip

    def accounting(self) -> Accounting:
        """Rollouts and tokens: used, wasted, spent on evaluation and on anything else."""
        used = self.database.read(
            "SELECT coalesce(sum(rollouts), 0), coalesce(sum(tokens), 0), "
            "coalesce(sum(evaluation_rollouts), 0), coalesce(sum(evaluation_tokens), 0) FROM runs"
        )[0]
        drawn = self.database.read(
            "SELECT coalesce(sum(rollouts), 0), coalesce(sum(tokens), 0), "
            "coalesce(sum(evaluation_rollouts), 0), coalesce(sum(evaluation_tokens), 0), "
            "coalesce(sum(wall_s), 0), count(*), "
            "coalesce(sum(outcome IN ('lost', 'crashed')), 0) FROM attempts"
        )[0]
        other = self.database.read(
            "SELECT purpose, sum(rollouts), sum(tokens), sum(wall_s) FROM ledger "
            "GROUP BY purpose ORDER BY purpose"
        )
        return Accounting(
            rollouts=used[0], tokens=used[1], evaluation_rollouts=used[2],
            evaluation_tokens=used[3], wasted_rollouts=drawn[0] - used[0],
            wasted_tokens=drawn[1] - used[1], wasted_evaluation_rollouts=drawn[2] - used[2],
            wasted_evaluation_tokens=drawn[3] - used[3], wall_s=drawn[4], attempts=drawn[5],
            uncertain_steps=drawn[6],
            other={r[0]: {"rollouts": r[1], "tokens": r[2], "wall_s": r[3]} for r in other},
        )  # fmt: skip

    def spend(
        self, purpose: str, *, rollouts: int, tokens: int = 0, wall_s: float = 0.0,
        detail: str = "",
    ) -> None:  # fmt: skip
        """Book rollouts that no run drew, for example with purpose "difficulty"."""
        with self.database.write() as connection:
            connection.execute(
                "INSERT INTO ledger (purpose, rollouts, tokens, wall_s, detail) "
                "VALUES (?, ?, ?, ?, ?)",
                (purpose, rollouts, tokens, wall_s, detail),
            )

    def _rows(
        self, table: str, columns: str, run_hash: str | None, problem_set: str | None
    ) -> list[tuple[Any, ...]]:
        """Rows by run and step, read in short pieces so that no writer has to wait long."""
        order = "t.run, t.step" + (", t.problem_set" if table == "evaluations" else "")
        runs = self.database.read("SELECT run, hash FROM runs ORDER BY run")
        if run_hash is not None:
            runs = [row for row in runs if row[1] == run_hash]
        if not runs:
            return []
        where = "t.run BETWEEN ? AND ?"
        extra: tuple[Any, ...] = ()
        if problem_set is not None:
            where, extra = where + " AND t.problem_set = ?", (problem_set,)
        sizes = dict(
            self.database.read(f"SELECT run, count(*) FROM {table} GROUP BY run")
            if run_hash is None
            else [(runs[0][0], 1)]
        )
        found: list[tuple[Any, ...]] = []
        for first, last in _spans([row[0] for row in runs], sizes):
            found += self.database.read(
                f"SELECT {columns} FROM {table} t JOIN runs r ON r.run = t.run "
                f"WHERE {where} ORDER BY {order}",
                (first, last, *extra),
            )
        return found


def _number(value: float | None) -> float:
    return np.inf if value is None else value  # JSON has no infinity: it is stored as null


def _spans(runs: list[int], sizes: dict[int, int]) -> list[tuple[int, int]]:
    """Ranges of runs with about `_CHUNK` rows each."""
    spans: list[tuple[int, int]] = []
    start, rows = runs[0], 0
    for i, run in enumerate(runs):
        rows += sizes.get(run, 0)
        if rows >= _CHUNK or i == len(runs) - 1:
            spans.append((start, run))
            start, rows = (runs[i + 1] if i + 1 < len(runs) else run), 0
    return spans


def _counts(texts: tuple[str, ...], samples_K: IntArray) -> IntArray:
    """JSON lists -> one array (K, C), parsed in one go."""
    if not texts:
        return np.zeros((0, 0), dtype=np.int64)
    width = int(samples_K.max()) + 1
    flat = np.array(",".join(text[1:-1] for text in texts).split(","), dtype=np.int64)
    counts = np.zeros((len(texts), width), dtype=np.int64)
    counts[np.arange(width)[None, :] <= samples_K[:, None]] = flat
    return counts

