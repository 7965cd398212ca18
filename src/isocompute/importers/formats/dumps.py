"""Per-sample validation dumps of verl and SkyRL -> successes per problem.

The best source there is: every metric can be computed from it, without the bootstrap of verl's
own best@N. A problem is told from another by its prompt and answer.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import FloatArray, Metric, Outcomes
from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.settings import Column

MAX_PROBLEMS = 1_000_000  # per evaluation; a validation set has thousands
_SKYRL_FOLDER = re.compile(r"global_step_([0-9]{1,12})(?:_evals)?")


@dataclass(slots=True)
class _Tally:
    samples: int = 0
    total: float = 0.0
    binary: bool = True
    signed: bool = True  # -1 for a failure, 1 for a success
    broken: int = 0


@dataclass(slots=True)
class Dump:
    """What one evaluation's samples add up to, per (step, problem set)."""

    variable: str = "score"
    problems: dict[str, _Tally] = field(default_factory=dict)


def is_dump_row(row: Mapping[str, object]) -> bool:
    """True for a row of a validation dump: a prompt, a response, a score."""
    return "score" in row and (
        ("input" in row and "output" in row) or ("input_prompt" in row and "output_response" in row)
    )


def step_of_path(path: Path) -> int | None:
    """The step that a dump's path holds: `40.jsonl` (verl), `global_step_40_evals/` (SkyRL)."""
    match = _SKYRL_FOLDER.fullmatch(path.parent.name)
    if match:
        return int(match.group(1))
    name = path.name.split(".")[0]
    return whole(name) if name.isdecimal() else None


def _value(row: Mapping[str, object]) -> tuple[str, float | None]:
    """(variable, value): acc where the reward gives it, else the score; lists are summed."""
    for variable in ("acc", "score"):
        value = row.get(variable)
        if isinstance(value, bool):
            return variable, float(value)
        if isinstance(value, list) and value and variable == "score":  # SkyRL: a reward per token
            numbers = [number(v) for v in value]
            return variable, None if None in numbers else float(sum(v or 0.0 for v in numbers))
        if variable in row:
            return variable, number(value)
    return "score", None


def add_sample(
    dumps: dict[tuple[int, str], Dump], row: Mapping[str, object], line: int,
    collector: Collector, path: Path,
) -> None:
    """Take one sample of a dump into its evaluation."""
    collector.n_rows += 1
    step = whole(row["step"]) if "step" in row else step_of_path(path)
    if step is None:
        collector.errors.add(line, "a dumped sample must have a step, in the row or in the path")
        return
    problem_set = row.get("data_source")
    key = (step, problem_set if isinstance(problem_set, str) else "")
    if key not in dumps and len(dumps) >= 10_000:
        collector.errors.add(line, "more than 10000 evaluations in one dump")
        return
    dump = dumps.setdefault(key, Dump())
    # a reward function may name the problem; else its prompt and answer do
    identity = row.get("problem_id")
    if identity is None:
        identity = [row.get("input", row.get("input_prompt")), row.get("gts")]
    digest = hashlib.sha256(repr(identity).encode("utf-8", "backslashreplace")).hexdigest()[:16]
    tally = dump.problems.get(digest)
    if tally is None:
        if len(dump.problems) >= MAX_PROBLEMS:
            collector.errors.add(line, f"more than {MAX_PROBLEMS} problems in one evaluation")
            return
        tally = dump.problems[digest] = _Tally()
    dump.variable, value = _value(row)
    if value is None:
        tally.broken += 1
        collector.errors.add(line, f"a sample must have a finite {dump.variable}; left out, not 0")
        return
    tally.samples += 1
    tally.total += value
    tally.binary &= value in (0.0, 1.0)
    tally.signed &= value in (-1.0, 1.0)


def finish_dumps(dumps: dict[tuple[int, str], Dump], collector: Collector) -> None:
    """Evaluations with k samples for every problem -> outcomes and scores of the run."""
    tallies = [tally for dump in dumps.values() for tally in dump.problems.values()]
    signed = all(t.signed for t in tallies) and not all(t.binary for t in tallies)
    if signed:
        collector.counters.infer("score: -1 and 1 alone, read as failures and successes")
    for (step, problem_set), dump in sorted(dumps.items()):
        counts = Counter(t.samples for t in dump.problems.values() if t.samples and not t.broken)
        if not counts:
            collector.note(f"step {step}: no problem has a score in every sample")
            continue
        k = max(counts, key=lambda count: (counts[count], count))
        kept = {i: t for i, t in dump.problems.items() if t.samples == k and not t.broken}
        left_out = len(dump.problems) - len(kept)
        if left_out:
            collector.note(
                f"step {step}: {left_out} of {len(dump.problems)} problems were left out, because "
                f"they do not have {k} scored samples"
            )
        split = collector.settings.split or "validation"
        problem_set = problem_set or collector.settings.problem_set or ""
        total_P = np.array([t.total for t in kept.values()])
        total_P = (total_P + k) / 2 if signed else total_P
        binary = signed or all(t.binary for t in kept.values())
        scores = outcome_scores(total_P, k, dump.variable) if binary else {
            Metric(kind="avg", samples=k, variable=dump.variable, core=False):
                float(np.mean(total_P / k))
        }
        for metric, score in scores.items():
            column = Column(metric=metric, problem_set=problem_set, split=split)
            collector.score(column, step, score, 0)
        if binary:
            collector.outcomes.append(Outcomes(
                step=step, problem_set=problem_set, split=split, samples=k,
                problem_P=tuple(kept), successes_P=total_P.astype(np.int64),
            ))
        else:
            collector.note("some scores are neither 0 nor 1: only their mean was read")


def outcome_scores(
    successes_P: FloatArray, samples: int, variable: str
) -> dict[Metric, float]:
    """avg@k of all samples, and unbiased best@j, worst@j for j = 2, 4, ... and all of them.

    best@j = 1 - C(k - c, j) / C(k, j), worst@j = C(c, j) / C(k, j) with c successes of k.
    """
    scores = {
        Metric(kind="avg", samples=samples, variable=variable):
            float(np.mean(successes_P / samples))
    }
    counts = np.bincount(successes_P.astype(np.int64), minlength=samples + 1)
    n_problems = int(counts.sum())
    for j in sorted({2**i for i in range(1, samples.bit_length()) if 2**i <= samples} | {samples}):
        whole = math.comb(samples, j)
        best = sum(p * (1 - math.comb(samples - c, j) / whole) for c, p in enumerate(counts))
        worst = sum(p * (math.comb(c, j) / whole) for c, p in enumerate(counts))
        for kind, value in (("best", best), ("worst", worst)):
            metric = Metric(kind=kind, samples=j, estimator="unbiased", variable=variable)
            scores[metric] = float(value / n_problems)
    return scores
