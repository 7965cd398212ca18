"""Responses that the verifier failed to judge: of which problems, and why.

Shape legend: Q problems of one batch.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.credentials import hide
from isocompute.engines.base import Unjudged
from isocompute.store.database import Database

IntArray = NDArray[np.int64]
TRAINING = ""  # stands for the training set, beside the names of validation sets


@dataclass(frozen=True, kw_only=True)
class UnjudgedRow:
    """Responses to one problem at one step, or over all steps and runs.

    Args:
        run: hash of the run; "" for all.
        step: of the training; -1 for all.
        split: "train" or "validation".
        problem_set, problem: name of the set, id of the problem.
        rollouts: how many responses.
        message, response: why the first was not judged, and what it said.
    """

    run: str
    step: int
    split: str
    problem_set: str
    problem: str
    rollouts: int
    message: str
    response: str


def unjudged_rows(database: Database, *, total: bool = False) -> Iterator[UnjudgedRow]:
    """What the verifiers of a study failed on, by run, step, set and problem.

    Args:
        database: of the study.
        total: one row per problem instead, over all steps and runs, the most responses first.
    """
    specs = {row[0]: (row[1], json.loads(row[2])) for row in database.read(
        "SELECT run, hash, spec FROM runs WHERE run IN (SELECT run FROM unjudged)")}  # fmt: skip
    ids = {(row[0], row[1]): row[2] for row in database.read(
        "SELECT set_sha256, position, id FROM problems")} if specs else {}  # fmt: skip
    sums: dict[tuple[str, str, str], UnjudgedRow] = {}
    for run, step, name, position, rollouts, message, response in database.read(
        "SELECT u.run, u.step, u.problem_set, u.position, u.rollouts, u.message, u.response "
        "FROM unjudged u JOIN runs r ON r.run = u.run "
        "ORDER BY r.hash, u.step, u.problem_set, u.position"
    ):
        run_hash, spec = specs[run]
        split = "train" if name == TRAINING else "validation"
        head = spec["train"] if name == TRAINING else spec["validation"][name]
        row = UnjudgedRow(
            run=run_hash, step=step, split=split,
            problem_set=head["name"] if name == TRAINING else name,
            problem=ids.get((head["sha256"], position), f"problem {position}"),
            rollouts=rollouts, message=message, response=response,
        )  # fmt: skip
        if not total:
            yield row
            continue
        key = (row.split, head["sha256"], row.problem)
        known = sums.get(key)
        sums[key] = UnjudgedRow(
            run="", step=-1, split=split, problem_set=row.problem_set, problem=row.problem,
            rollouts=rollouts + (known.rollouts if known else 0),
            message=known.message if known else message,
            response=known.response if known else response,
        )  # fmt: skip
    yield from sorted(sums.values(), key=lambda row: -row.rollouts)


def insert_unjudged(
    connection: sqlite3.Connection, run: int, unjudged: Sequence[tuple[int, str, Unjudged]]
) -> None:
    """Write (step, set, failure) of a run, in the transaction that is open."""
    connection.executemany(
        "INSERT INTO unjudged (run, step, problem_set, position, rollouts, message, response) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (run, step, name, one.problem, one.rollouts, hide(_storable(one.message)),
             _storable(one.response))
            for step, name, one in unjudged
        ],
    )  # fmt: skip


def _storable(text: str) -> str:
    """Without the halves of surrogate pairs, which a response may hold and UTF-8 cannot."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def training_failures(database: Database, run: int) -> dict[int, dict[int, int]]:
    """Unjudged rollouts of a run's batches: step -> {index into the training set: how many}."""
    found: dict[int, dict[int, int]] = {}
    for step, position, rollouts in database.read(
        "SELECT step, position, rollouts FROM unjudged WHERE run = ? AND problem_set = ?",
        (run, TRAINING),
    ):
        found.setdefault(step, {})[position] = rollouts
    return found


def judged_of(
    problem_Q: NDArray[np.integer[Any]], samples: int, failed: Mapping[int, int]
) -> IntArray:
    """How many of `samples` rollouts were judged, per problem of a batch.

    >>> judged_of(np.array([7, 3]), 4, {3: 1}).tolist()
    [4, 3]
    """
    judged_Q = np.full(len(problem_Q), samples, dtype=np.int64)
    if failed:
        judged_Q -= [failed.get(problem, 0) for problem in problem_Q.tolist()]
    return judged_Q


def unjudged_text(told: Sequence[tuple[str, int, str]], most: int = 3) -> str:
    """In a few words which problems, how often and why: (problem, responses, message) each.

    >>> unjudged_text([("a", 2, "ValueError: x"), ("b", 1, "no verdict within 10 s")], most=1)
    'a (2, ValueError: x) and 1 more problem'
    """
    told = sorted(told, key=lambda one: -one[1])
    text = ", ".join(f"{name} ({count:,}, {message})" for name, count, message in told[:most])
    rest = len(told) - most
    return text + (f" and {rest:,} more problem{'' if rest == 1 else 's'}" if rest > 0 else "")
