"""Runs that broke or fell after a peak: how far they count, and what is said of them.

Shape legend: D draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.allocation import Allocation
from isocompute.answers.best import AS_GOOD, FloatArray, interval
from isocompute.answers.logged import in_logs, score_text
from isocompute.answers.overfit import falls
from isocompute.answers.price import BEYOND
from isocompute.answers.reading import Reading
from isocompute.domain import Configuration, Curve
from isocompute.domain.text import ROOM, fitting, of_runs
from isocompute.sources.studies import NO_STUDY_YET

if TYPE_CHECKING:
    from isocompute.answers.prescribe import Question


def came_to(fit: Reading, c: Configuration) -> float:
    """Rollouts that no run of a configuration came past unbroken; infinity: one did, or none broke.

    What a longer run would score, nobody has seen.
    """
    ends = {id(r): float(r.rollouts_K[-1]) for r in fit.counted if r.configuration == c}
    fell = max((ends.pop(id(r)) for r in fit.broke.get(c, ())), default=math.inf)
    return math.inf if max(ends.values(), default=0.0) > fell else fell


def broke_words(fit: Reading, c: Configuration) -> str:
    """What happened to the runs that broke: "rose to 0.48 and broke after step 480 (both runs)"."""
    of, span = _broke(fit, c), in_logs(fit, 1.0) - in_logs(fit, 0.0)
    rose = f"{in_logs(fit, of['score']):.{max(2 - round(math.log10(span)), 0)}f}"
    return f"rose to {rose} and broke after step {of['step']:,} ({of_runs(of['runs'], of['of'])})"


def _broke(fit: Reading, c: Configuration) -> dict[str, Any]:
    """How many broke, and the last step and largest score of the one that came furthest."""
    run = max(fit.broke[c], key=lambda r: float(r.rollouts_K[-1]))
    every = sum(r.configuration == c for r in fit.curves)
    return {"runs": len(fit.broke[c]), "of": every, "step": step_of(run, -1),
            "score": float(run.score_K.max())}  # fmt: skip


def fallen(fit: Reading) -> list[Configuration]:
    """The configurations whose scores end surely below an earlier level."""
    return [c for c, of in fit.windows.items() if falls(of)]


def step_of(run: Curve, k: int) -> int:
    """Updates at an evaluation of a run."""
    if run.steps_K is not None:
        return round(float(run.steps_K[k]))
    return round(float(run.rollouts_K[k]) / run.configuration.batch_size)


def _best_so_far(runs: Sequence[Curve]) -> tuple[Curve, int, float]:
    """The best evaluation of some runs: whose, at which step, and its score."""
    run = max(runs, key=lambda r: float(r.score_K.max()))
    k = int(run.score_K.argmax())
    return run, step_of(run, k), float(run.score_K[k])


def went_as_far(q: Question, a: Allocation) -> dict[str, Any] | None:
    """Runs of an allocation that there are already; None where there is none.

    Returns:
        How many `runs`, and the checkpoint to use, `step` of `run`: where the best one counts, that
        of their best evaluation, which may lie beyond the plan (it is paid for already); else the
        plan's own, of the first run. Of a study's own runs also whether it is `kept`, None where
        it may be dropped.
    """
    own = [c for c in _runs_of(q, a) if c.rollouts_K[-1] >= a.rollouts]
    if not own:
        return None
    run, step = own[0], a.steps
    if q.fit.posterior.select == "best":
        run, step, _ = _best_so_far(own)
    found = {"runs": len(own), "run": run.run, "step": step}
    if q.study is None or q.study is NO_STUDY_YET:
        return found
    # A study of ours keeps the last two checkpoints of a run, and its end is one of them.
    whole = next(c for c in own if c.run == run.run)
    return {**found, "kept": True if step == step_of(whole, -1) else None}


def _runs_of(q: Question, a: Allocation) -> list[Curve]:
    of = (a.problems_per_batch, a.rollouts_per_problem)
    return [c for c in q.fit.counted if c.configuration == of]


def trained_words(d: Mapping[str, Any], room: float = ROOM) -> str:
    """That runs of the sweep are the plan's already, and which checkpoint; "" where none is."""
    if not (found := d.get("trained")):
        return ""
    many, at = found["runs"], f"at step {found['step']:,}"
    far = "farther" if found["step"] > BEYOND * d.get("steps", math.inf) else "this far"
    went = f"{many} run{'s' * (many > 1)} went {far}"
    if not found.get("kept", True):
        return f"{went}: best {at} (its checkpoint may be gone)"
    if d.get("law", {}).get("select") == "final":
        return f"{went} already: use a checkpoint {at}"
    if many == 1:
        return f"{went} already: use its best checkpoint, {at}"
    best = f"{went}: use the best checkpoint, {at}"
    if not found["run"]:  # a table without names of runs
        return best
    own = f"use {found['run']}'s checkpoint {at}"
    forms = [f"{went} already: {own}", f"{went}: {own}", best]
    return fitting(forms, room)


def fell(q: Question, a: Allocation, score_D: FloatArray) -> dict[str, Any] | None:
    """That runs of an allocation broke, or fell after a peak before its end; None: neither.

    Returns:
        `how` ("broke" or "fell"), `runs` of how many (`of`), the last `step` before, and the
        `score` of an evaluation there. Of those that fell also what so many steps reach, as of a
        part of the budget.
    """
    fit, of = q.fit, Configuration(a.problems_per_batch, a.rollouts_per_problem)
    if of in fit.broke:
        return {"how": "broke", **_broke(fit, of)}
    if of not in fallen(fit):
        return None
    runs = _runs_of(q, a)
    _, step, score = _best_so_far(runs)
    if not 0 < step < a.steps:
        return None
    less_D = fit.scores_of([of], q.x * step / a.steps)[:, 0]
    lost_D = score_D - less_D
    return {
        "how": "fell", "runs": len(runs), "of": len(runs), "step": step, "score": score,
        "predicted_score": less_D.mean(), "lost": lost_D.mean(),
        "interval": interval(lost_D, fit.level), "as_good": bool(lost_D.mean() < AS_GOOD),
    }  # fmt: skip


def fell_words(d: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the text of that on a plan's screen, with what to do; both "": nothing fell."""
    if not (found := d.get("fell")):
        return "", ""
    at = f"after step {found['step']:,} ({score_text(d, found['score'])})"
    if found["how"] == "broke":
        return "broke", f"{of_runs(found['runs'], found['of'])} {at}: stop if yours falls"
    keep = "" if d.get("law", {}).get("select") == "final" else "keep the best checkpoint, "
    return "fell", f"{at}: {keep}stop there"


def to_its_peak(d: Mapping[str, Any], more: str) -> str:
    """What the steps reach after which the runs of a plan fell, and `more`; "" where none did."""
    found = d.get("fell") or {}
    if found.get("how") != "fell":
        return ""
    steps, score = f"{found['step']:,} steps", score_text(d, found["predicted_score"])
    if found["as_good"]:
        most = score_text(d, max(found["interval"][1], 0.0))
        better = "better" if found["lost"] < -AS_GOOD else "as well"
        return f"{steps} do {better}: {score} (at most {most} less){more}"
    half = f", half {score_text(d, d['half']['predicted_score'])}" if d.get("half") else ""
    return f"{steps}, its peak: {score}{half}{more}"
