"""Whether a run that ended without an error has really trained."""

from __future__ import annotations

from isocompute.store.database import Database
from isocompute.store.findings import dead_share
from isocompute.store.judging import is_nothing
from isocompute.store.leases import Claim
from isocompute.store.pack import unpack
from isocompute.store.unjudged import judged_of, training_failures


def verdict(database: Database, claim: Claim) -> tuple[str, str]:
    """(state, reason) of a run whose engine returned from a slice.

    "invalid", not "done", where fewer steps were trained than asked, where every group of the
    whole run had zero variance, or with a value model every batch (no gradient ever flowed), where
    the weights are those of step 0, or where nothing was evaluated.
    """
    steps_done, target, first = database.read(
        "SELECT steps_done, target_steps, first_weights FROM runs WHERE run = ?", (claim.run,)
    )[0]
    if steps_done < claim.target_steps:
        return "invalid", (
            f"the engine must train {claim.target_steps} steps, but it returned after "
            f"{steps_done} without an error; look at its log."
        )
    if steps_done < target:
        return "pending", ""
    if not database.read("SELECT 1 FROM evaluations WHERE run = ? LIMIT 1", (claim.run,)):
        return "invalid", (
            f"at least one evaluation must be recorded, but {steps_done} steps have none; look at "
            "the engine's log."
        )
    drawn, judged, varies = _outcomes(database, claim.run)
    if is_nothing(judged, drawn):
        return "invalid", (
            f"the verifier must judge responses, but of {drawn:,} in training it judged "
            f"{judged:,}; mend it, then train in another folder (-o)."
        )
    if not varies:
        return "invalid", (
            "at least one group of rollouts must hold successes and failures, but all "
            f"{steps_done} steps had zero variance; choose easier problems or a larger group."
        )
    last = database.read(
        "SELECT weights_sha256 FROM checkpoints WHERE run = ? "
        "ORDER BY token DESC, serial DESC LIMIT 1",
        (claim.run,),
    )[0][0]
    if first and first == last:
        return "invalid", (
            f"training must change the weights, but after {steps_done} steps they are those of "
            "step 0; look at the learning rate and the engine's log."
        )
    return "done", ""


def is_cut_short(database: Database, claim: Claim, ending: str) -> bool:
    """Whether an attempt that ended while its runner was asked to stop ended by that.

    A queue's SIGTERM reaches the trainer as well as its runner, and a trainer may be gone before
    it is asked: with any exit code, or with 0 before its last step, with a log that cannot be read.
    """
    if ending != "done":
        return ending in ("crashed", "failed")
    rows = database.read("SELECT steps_done FROM runs WHERE run = ?", (claim.run,))
    return bool(rows[0][0] < claim.target_steps)


def _outcomes(database: Database, run: int) -> tuple[int, int, bool]:
    """Responses drawn and judged, up to the first group that teaches; whether there is one."""
    after, drawn, judged, failed = -1, 0, 0, training_failures(database, run)
    objective = database.read(
        "SELECT json_extract(spec, '$.recipe.objective') FROM runs WHERE run = ?", (run,)
    )[0][0]
    while True:
        rows = database.read(
            "SELECT step, samples, size, problems, successes FROM steps WHERE run = ? AND step > ? "
            "ORDER BY step LIMIT 200",
            (run, after),
        )
        if not rows:
            return drawn, judged, not drawn  # an engine that knows no outcomes cannot say
        for step, samples, size, problems, data in rows:
            after = step
            if not size:
                continue
            judged_Q = judged_of(unpack(problems, size), samples, failed.get(step, {}))
            drawn, judged = drawn + samples * size, judged + int(judged_Q.sum())
            if dead_share(unpack(data, size), judged_Q, objective) < 1:
                return drawn, judged, True
