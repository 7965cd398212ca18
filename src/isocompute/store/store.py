"""The study folder as others read it: runs, steps, evaluations, costs.

Shape legend: R runs, K evaluations or steps, C = K + 1 possible numbers of successes,
P problems, Q problems of a batch.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.health import Finding
from isocompute.problems import Problem, ProblemSet
from isocompute.store import seals
from isocompute.store.columns import PIECE, evaluation_columns, last_evaluation, spread_counts
from isocompute.store.database import Database
from isocompute.store.findings import load_findings
from isocompute.store.pack import unpack
from isocompute.store.unjudged import UnjudgedRow, judged_of, training_failures, unjudged_rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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
        findings: of the health rules up to the last commit; None where an older version wrote.
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
    findings: list[Finding] | None


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
        samples_K, wall_s_K: rollouts per problem, seconds of each.
        health: one array per name that occurs; NaN where a step has no such number, infinity
            where the engine measured one that is not finite (a diverged run).
        problems, successes, judged: index into the training set, successes of those problems,
            and rollouts of them that the verifier judged; per step an array of length Q.
        objective: of the run's recipe.
    """

    step_K: IntArray
    rollouts_K: IntArray
    tokens_K: IntArray
    samples_K: IntArray
    wall_s_K: FloatArray
    health: dict[str, FloatArray]
    problems: list[IntArray]
    successes: list[IntArray]
    judged: list[IntArray]
    objective: str

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
            "coalesce(sum(a.tokens + a.evaluation_tokens), 0), coalesce(sum(a.wall_s), 0), "
            "r.findings "
            "FROM runs r LEFT JOIN attempts a ON a.run = r.run GROUP BY r.run ORDER BY r.run"
        )
        return [
            StoredRun(
                hash=r[0], spec={**json.loads(r[1]), "steps": r[2]}, state=r[3], reason=r[4],
                steps_done=r[5], rollouts=r[6], tokens=r[7], evaluation_rollouts=r[8],
                evaluation_tokens=r[9], leased=r[10] is not None, attempts=r[11],
                wasted_rollouts=r[12] - r[6] - r[8], wasted_tokens=r[13] - r[7] - r[9],
                wall_s=r[14], findings=load_findings(r[15], r[5]),
            )
            for r in rows
        ]  # fmt: skip

    def evaluations(
        self, run_hash: str | None = None, *, problem_set: str | None = None
    ) -> Evaluations:
        """Evaluations of one run, or of all, optionally of one validation set.

        Raises:
            InputError: if rows of the run are damaged. All runs at once are checked up to
                100,000 rows; `doctor` checks more.
        """
        where, values = ("", ()) if run_hash is None else (" WHERE hash = ?", (run_hash,))
        rows = self.database.read(f"SELECT run, hash, spec FROM runs{where}", values)
        names = {name for row in rows for name in json.loads(row[2]).get("validation", ())}
        names = names if problem_set is None else names & {problem_set}
        run = rows[0][0] if run_hash is not None and rows else None
        if run is not None or last_evaluation(self.database) <= PIECE:
            self.database.refuse_damage(("evaluations",), run)
        tables = [
            (i, columns)
            for i, name in enumerate(sorted(names))
            for columns in evaluation_columns(self.database, name, run)
        ]
        if not tables:
            return _no_evaluations()
        set_K = np.concatenate([np.full(len(t[0]), i) for i, t in tables])
        run_K, step_K, rollouts_K, tokens_K, samples_K, wall_s_K = (
            np.concatenate([t[c] for _, t in tables]) for c in range(6)
        )
        counts_KC = spread_counts(np.concatenate([t[6] for _, t in tables]), samples_K)
        order = np.lexsort((set_K, step_K, run_K))
        by_number = np.full(max(row[0] for row in rows) + 1, "", dtype="<U16")
        by_number[[row[0] for row in rows]] = [row[1] for row in rows]
        return Evaluations(
            run_K=by_number[run_K[order]],
            problem_set_K=np.array(sorted(names), dtype=object)[set_K[order]],
            step_K=step_K[order], rollouts_K=rollouts_K[order], tokens_K=tokens_K[order],
            samples_K=samples_K[order], counts_KC=counts_KC[order], wall_s_K=wall_s_K[order],
        )  # fmt: skip

    def successes(self, run_hash: str, problem_set: str) -> tuple[IntArray, IntArray]:
        """(step_K, successes_KP): successes of every problem at every evaluation of a run."""
        rows = self._rows(
            "evaluations", "t.step, t.counts, t.successes", run_hash, "AND t.problem_set = ?",
            problem_set,
        )  # fmt: skip
        size = [sum(json.loads(row[1])) for row in rows]
        arrays = [unpack(row[2], n) for row, n in zip(rows, size, strict=True)]
        steps = np.array([row[0] for row in rows], dtype=np.int64)
        return steps, np.array(arrays, dtype=np.int64).reshape(len(rows), size[0] if size else 0)

    def steps(self, run_hash: str) -> Steps:
        """Updates of one run, all up to its last commit."""
        done = self.database.read("SELECT steps_done FROM runs WHERE hash = ?", (run_hash,))
        rows = self._rows(
            "steps", "t.step, t.rollouts, t.tokens, t.samples, t.wall_s, t.health, t.size, "
            "t.problems, t.successes, t.run, json_extract(r.spec, '$.recipe.objective')",
            run_hash)  # fmt: skip
        if [row[0] for row in rows] != list(range(1, max(len(rows), *sum(done, ()), 0) + 1)):
            seals.refuse_broken([f"steps (some of run {run_hash} are missing)"],
                                str(self.database.path))  # fmt: skip
        failed = training_failures(self.database, rows[0][9]) if rows else {}
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
                name: np.array([np.inf if v is None else v for v in values])  # stored as null
                for name in names for values in ([row.get(name, np.nan) for row in health],)
            },
            problems=problems,
            successes=[unpack(row[8], row[6]) for row in rows],
            judged=[judged_of(problem_Q, row[3], failed.get(row[0], {}))
                    for row, problem_Q in zip(rows, problems, strict=True)],
            objective=(rows and rows[0][10]) or "grpo",
        )

    def unjudged(self, *, total: bool = False) -> list[UnjudgedRow]:
        """What the verifiers failed on, by run, step and problem, or by problem over all."""
        self.database.refuse_damage(("unjudged",))
        return list(unjudged_rows(self.database, total=total))

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
        self.database.refuse_damage(("problems",))
        rows = self.database.read(
            "SELECT id, prompt, answer, source, pass_rate, pass_rate_samples FROM problems "
            "WHERE set_sha256 = ? ORDER BY position",
            (sha256,),
        )
        return ProblemSet(
            name=name, verifier=head[0][0],
            problems=[
                Problem(
                    id=r[0], prompt=r[1], answer=r[2], source=r[3], pass_rate=r[4],
                    pass_rate_samples=r[5],
                )
                for r in rows
            ],
        )  # fmt: skip

    def idle_s(self, run_hash: str, *, ended: bool = True) -> list[float]:
        """Seconds of each finished slice of a run in which it neither trained nor was evaluated.

        Of those that did not end, with ended=False, beside what they have committed. None of a
        trainer that says no times: what its updates took is not known.
        """
        took = " - ".join(
            f"coalesce((SELECT sum(wall_s) FROM {table} t WHERE t.run = a.run "
            "AND t.attempt = a.attempt), 0)" for table in ("steps", "evaluations")
        )  # fmt: skip
        rows = self.database.read(
            f"SELECT a.wall_s - {took} FROM attempts a JOIN runs r ON r.run = a.run "
            "WHERE r.hash = ? AND (a.outcome = 'done') = ? AND a.target_steps > a.from_step "
            "AND NOT EXISTS (SELECT 1 FROM steps t WHERE t.run = a.run AND t.attempt = a.attempt "
            "GROUP BY t.run HAVING sum(t.wall_s) = 0)",
            (run_hash, ended),
        )
        return [max(row[0], 0.0) for row in rows]

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
            "SELECT purpose, sum(rollouts), sum(tokens), sum(wall_s) FROM ledger GROUP BY purpose "
            "ORDER BY purpose"
        )
        return Accounting(
            rollouts=used[0], tokens=used[1], evaluation_rollouts=used[2],
            evaluation_tokens=used[3], wasted_rollouts=drawn[0] - used[0],
            wasted_tokens=drawn[1] - used[1], wasted_evaluation_rollouts=drawn[2] - used[2],
            wasted_evaluation_tokens=drawn[3] - used[3], wall_s=drawn[4], attempts=drawn[5],
            uncertain_steps=drawn[6],
            other={r[0]: {"rollouts": r[1], "tokens": r[2], "wall_s": r[3]} for r in other},
        )  # fmt: skip

    def spend(self, purpose: str, *, rollouts: int, tokens: int = 0, wall_s: float = 0.0,
              detail: str = "") -> None:  # fmt: skip
        """Book rollouts that no run drew, for example with purpose "difficulty"."""
        with contextlib.closing(Database(self.folder, create=True)) as database:
            database.spend(purpose, rollouts, tokens=tokens, wall_s=wall_s, detail=detail)

    def _rows(
        self, table: str, columns: str, run_hash: str, extra: str = "", *values: str
    ) -> list[tuple[Any, ...]]:
        """One run's rows by step, as they were committed."""
        for (run,) in self.database.read("SELECT run FROM runs WHERE hash = ?", (run_hash,)):
            self.database.refuse_damage((table, "unjudged"), run)
        return self.database.read(
            f"SELECT {columns} FROM {table} t JOIN runs r ON r.run = t.run "
            f"WHERE r.hash = ? {extra} ORDER BY t.step",
            (run_hash, *values),
        )


def _no_evaluations() -> Evaluations:
    none = np.zeros(0, dtype=np.int64)
    return Evaluations(
        run_K=np.zeros(0, dtype="<U16"), problem_set_K=np.zeros(0, dtype=object), step_K=none,
        rollouts_K=none, tokens_K=none, samples_K=none,
        counts_KC=np.zeros((0, 0), dtype=np.int64), wall_s_K=np.zeros(0),
    )  # fmt: skip
