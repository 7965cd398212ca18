"""What the runs of each learning rate of a sweep showed: score, health, and whether they fell.

Shape legend: S seeds, P validation problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.health import Finding, smoothness
from isocompute.health.rules import LEAST_CHANGE, SURE
from isocompute.intervals import Noise
from isocompute.metrics import problem_scores, score_from_counts
from isocompute.store import Store, StoredRun
from isocompute.store.health import run_health

FELL = "score_fell"  # ends below its start: no rule of training, and asked of the scores alone


@dataclass(frozen=True)
class Rate:
    """What the runs of one learning rate showed.

    Args:
        rate: after warm-up.
        scores: S, of the finished runs.
        problem_score_P, problem_start_P: at the end and before training, mean over the seeds.
        row: of the document.
    """

    rate: float
    scores: list[float]
    problem_score_P: NDArray[np.float64]
    problem_start_P: NDArray[np.float64]
    row: dict[str, Any]

    @property
    def healthy(self) -> bool:
        """In every seed."""
        return bool(self.row["healthy"])

    def learned(self, level: float) -> bool:
        """Whether its runs surely end above where they began, by the noise of the problems."""
        if not self.scores:
            return False
        gain_P = self.problem_score_P - self.problem_start_P
        half = Noise.of_problems(gain_P).half_width(1, level)
        return half is not None and float(gain_P.mean()) > half


def rate_of(store: Store, rate: float, runs: Sequence[StoredRun], name: str, metric: str) -> Rate:
    """Scores and findings of the runs of one rate on a validation set."""
    scores, problems, starts, smooth = [], [], [], []
    findings: list[Finding] = []
    broken = [run for run in runs if run.state in ("failed", "invalid")]
    unhealthy = {run.hash for run in broken}
    for run in runs:
        own = run_health(store, run)
        findings += own
        if any(finding.severity == "failure" for finding in own):
            unhealthy.add(run.hash)
        if run.state != "done":
            continue
        step_K, successes_KP = store.successes(run.hash, name)
        samples = int(run.spec["evaluation_samples"])
        score_KP = problem_scores(successes_KP, samples, metric)
        scores.append(float(score_from_counts(successes_KP[-1], samples, metric)))
        problems.append(score_KP[-1])
        starts.append(score_KP[0])
        if fell(score_KP[0], score_KP[-1]):
            unhealthy.add(run.hash)
            start, end = (float(score_KP[k].mean()) for k in (0, -1))
            findings.append(Finding(
                code=FELL, severity="failure", step=int(step_K[-1]),
                values={"score": end, "score_start": start},
                message=f"a score must not fall below its start, but it went from {start:.3f} to "
                f"{end:.3f}; lower the learning rate.",
            ))  # fmt: skip
        share = smoothness(score_KP.mean(axis=1))
        smooth += [] if share is None else [share]
    row = {
        "learning_rate": rate, "score": float(np.mean(scores)) if scores else None,
        "score_start": float(np.mean(starts)) if starts else None,
        "interval": None, "behind_best": None, "behind_best_interval": None,
        "within_noise": None, "healthy": not unhealthy, "n_runs": len(runs),
        "n_unhealthy": len(unhealthy),
        "smoothness": float(np.mean(smooth)) if smooth else None,
        "findings": _findings(findings),
        "failed": [{"run": run.hash, "state": run.state, "reason": run.reason} for run in broken],
    }  # fmt: skip
    start_P, mean_P = (np.mean(of, axis=0) if of else np.empty(0) for of in (starts, problems))
    return Rate(rate, scores, mean_P, start_P, row)


def fell(start_P: NDArray[np.float64], end_P: NDArray[np.float64]) -> bool:
    """Whether a score surely ends below its start: by 0.01, and 3 standard errors over problems."""
    change_P = end_P - start_P
    error = math.sqrt(Noise.of_problems(change_P).variance)
    return bool(change_P.mean() <= -LEAST_CHANGE and change_P.mean() < -SURE * error)


def _findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Rules that were broken, each once: in how many runs, and how early."""
    steps: dict[tuple[str, str], list[int]] = {}
    for finding in findings:
        steps.setdefault((finding.severity, finding.code), []).append(finding.step)
    return [
        {"severity": severity, "code": code, "n_runs": len(at), "first_step": min(at)}
        for (severity, code), at in sorted(steps.items())
    ]


def add_intervals(found: Sequence[Rate], seeds: int, level: float) -> None:
    """Interval of every score, and of its distance behind the best healthy one."""
    healthy = [one for one in found if one.healthy and one.scores]
    best = max(healthy, key=lambda one: float(np.mean(one.scores)), default=None)
    pooled = Noise.of_seeds([one.scores for one in healthy])
    for one in found:
        if not one.scores:
            continue
        count = len(one.scores)
        if seeds == 1:
            half = Noise.of_problems(one.problem_score_P).half_width(1, level)
        else:  # a rate that breaks spreads more than the others: its own seeds only
            noise = pooled if one.healthy else Noise.of_seeds([one.scores])
            half = noise.half_width(1 / count, level)
        score = float(np.mean(one.scores))
        if half is not None:
            one.row["interval"] = [max(0.0, score - half), min(1.0, score + half)]
        if best is None or not one.healthy:
            continue
        behind = float(np.mean(best.scores)) - score
        if one is best:
            half = 0.0
        elif seeds == 1:
            behind_P = best.problem_score_P - one.problem_score_P
            half = Noise.of_problems(behind_P).half_width(1, level)
        else:
            half = pooled.half_width(1 / count + 1 / len(best.scores), level)
        one.row["behind_best"] = behind
        if half is not None:
            one.row["behind_best_interval"] = [behind - half, behind + half]
            one.row["within_noise"] = behind - half <= 0
