"""What the health rules found in a run, kept with it, so that nobody has to read every step again.

Shape legend: Q problems of one batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.health import Finding, Monitor
from isocompute.store.database import Database
from isocompute.store.leases import Claim, check_token
from isocompute.store.pack import unpack
from isocompute.store.unjudged import judged_of, training_failures


def monitored(
    health: Mapping[str, float | None],
    successes_Q: NDArray[np.integer[Any]],
    judged_Q: NDArray[np.integer[Any]],
    objective: str,
) -> dict[str, float]:
    """One step as the rules are shown it, live and afterwards.

    Args:
        health: as it is stored; None stands for a number that was not finite.
        successes_Q: of the batch's problems; reward and dead groups come from them.
        judged_Q: rollouts of each that the verifier judged.
        objective: of the recipe; see `dead_share`.
    """
    values = _numbers(health)
    values.pop("reward", None)
    values.pop("zero_variance_share", None)
    if len(successes_Q):  # sums and counts take a third of the time of np.mean
        if judged := int(judged_Q.sum()):
            values["reward"] = int(successes_Q.sum()) / judged
        values["zero_variance_share"] = dead_share(successes_Q, judged_Q, objective)
        values["groups"] = 1 if objective == "ppo" else len(successes_Q)
    return values


def replayed(database: Database, run: int, until: int, objective: str) -> Monitor:
    """A monitor that has seen the steps before a checkpoint, so that rules know the start."""
    monitor = Monitor()
    rows = database.read(
        "SELECT step, samples, size, problems, successes, health FROM steps WHERE run = ? "
        "AND step <= ? ORDER BY step", (run, until),
    )  # fmt: skip
    failed = training_failures(database, run)
    for step, samples, size, problems, successes, health in rows:
        judged_Q = judged_of(unpack(problems, size), samples, failed.get(step, {}))
        values = monitored(json.loads(health), unpack(successes, size), judged_Q, objective)
        monitor.update(step, values)
    return monitor


def dead_share(
    successes_Q: NDArray[np.integer[Any]], judged_Q: NDArray[np.integer[Any]], objective: str
) -> float:
    """Share of a batch's problems that give no gradient.

    With a group baseline: those whose rewards agree. A value model (ppo) also learns from groups
    of one, so there it is all or nothing: whether the whole batch agrees.
    """
    if objective == "ppo":
        return float(int(successes_Q.sum()) in (0, int(judged_Q.sum())))
    dead = (successes_Q == 0) | (successes_Q == judged_Q)
    return int(np.count_nonzero(dead)) / len(successes_Q)


def dump_findings(step: int, findings: Sequence[Finding]) -> str:
    """JSON text of the findings up to a step; numbers that are not finite become null."""
    plain = [
        {**asdict(f), "values": {k: v if math.isfinite(v) else None for k, v in f.values.items()}}
        for f in findings
    ]
    return json.dumps({"step": step, "findings": plain}, allow_nan=False)


def keep_divergence(
    database: Database, claim: Claim, step: int, findings: Sequence[Finding], message: str
) -> None:
    """Keep with a run that it diverged after `step`, beside what was found before.

    Raises:
        FencedError: if the run was given to another runner.
    """
    diverged = Finding(
        code="divergence", severity="failure", step=step, values={}, message=message
    )
    kept = [*(f for f in findings if f.code != diverged.code), diverged]
    with database.write() as connection:
        check_token(connection, claim)
        (done,) = connection.execute(
            "SELECT steps_done FROM runs WHERE run = ?", (claim.run,)
        ).fetchone()
        connection.execute(
            "UPDATE runs SET findings = ? WHERE run = ?", (dump_findings(done, kept), claim.run)
        )


def load_findings(text: str | None, step: int) -> list[Finding] | None:
    """The findings, or None where none were kept for this step."""
    kept = json.loads(text) if text else {}
    if kept.get("step") != step:
        return None
    return [Finding(**{**f, "values": _numbers(f["values"])}) for f in kept["findings"]]


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.inf if value is None else value for name, value in values.items()}
