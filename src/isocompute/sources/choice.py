"""Which curves of several sources count: of the metric, problem set or recipe meant, each run once.

Shape legend: K points of one curve.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from isocompute.domain import Curve
from isocompute.domain.text import none_of, some_of
from isocompute.errors import InputError
from isocompute.importers.runs.repetitions import Named, refuse_two_sweeps
from isocompute.importers.runs.shared import ENOUGH
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.vocabulary import column_of, is_own
from isocompute.metrics import parse_metric
from isocompute.store import arms


def metric_of(curves: Sequence[Curve], metric: str | None) -> str | None:
    """The metric meant: as named, or the only mean, or score of one's own, among several."""
    labels = {c.metric for c in curves}
    if metric == "score" and "" in labels:
        return ""  # a table that names no metric
    if metric is not None and metric not in labels:
        key = column_of(metric)  # the log's own word for it
        if key is not None and key.metric.label in labels:
            return key.metric.label
        try:
            asked = parse_metric(metric)
        except InputError:
            return metric
        if str(asked) in labels:
            return str(asked)
        # Columns `best` and `worst` of a table are over as many samples as its mean.
        return asked.kind if f"avg@{asked.k}" in labels and asked.kind in labels else metric
    if metric is None and len(labels) > 1:
        means = [name for name in labels if re.fullmatch(r"avg@\d+|avg|", name) or is_own(name)]
        return means[0] if len(means) == 1 else None
    return metric


_ALL = "all"  # problem sets, or answers
_OPTIONS = {"problem_set": "--problem-set", "metric": "--metric", "arm": "--where arm=NAME"}


def _words(name: str, value: str) -> list[str]:
    """The words of an option, for a value."""
    option, _, key = _OPTIONS[name].partition(" ")
    return [option, key.replace("NAME", value) if key else value]


def one_of(curves: list[Curve], name: str, wanted: str | None) -> list[Curve]:
    """The curves with one value of an attribute; which one must be clear."""
    labels = sorted({getattr(c, name) for c in curves})
    unnamed = "score" if name == "metric" else ""
    listed = some_of(repr(label or unnamed) for label in labels) or "none"
    what = name.replace("_", " ")
    if wanted is None:
        if len(labels) != 1:
            raise InputError(
                f"the sources must hold one {what}, but hold {listed}; choose one with "
                f"{_OPTIONS[name]}.",
                options=_words(name, name.upper()), trial=_words(name, labels[-1]),
            )
        return curves
    fits = [wanted] if wanted in labels else [v for v in labels if arms.matches(v, wanted)]
    if not fits:
        raise InputError(none_of(what, (label or unnamed for label in labels), wanted))
    return [c for c in curves if getattr(c, name) in fits]


def of_one_exam(curves: list[Curve]) -> list[Curve]:
    """The curves: scores on different problems are no repetitions, whatever their set is called.

    Raises:
        InputError: a validation set of one name that holds other problems in some of the runs.
    """
    for name in sorted({c.problem_set for c in curves}):
        exams = Counter(c.validated_on for c in curves if c.problem_set == name and c.validated_on)
        if len(exams) > 1:
            (one, most), *others = exams.most_common()
            rest = sum(number for _, number in others)
            raise InputError(
                f"one fit needs scores on the same problems, but validation set {name!r} holds "
                f"others in {rest} of {most + rest} runs; choose those of one, "
                f"--where 'validation.{name}.sha256={one[:8]}*', or give one study alone."
            )
    return curves


def without_doubles(sources: Sequence[Sequence[Curve]]) -> tuple[list[Curve], list[str]]:
    """Curves of several sources, each run once, and what was left out: one line each."""
    kept: list[Curve] = []
    lines: list[str] = []
    for curves in sources:
        twins = {id(c): twin for c in curves if (twin := _twin(c, kept)) is not None}
        if twins:
            first = next(c for c in curves if id(c) in twins)
            said = f"{len(twins)} runs stand in more than one source and are counted once"
            if len(twins) == 1:
                said = "a run stands in more than one source and is counted once"
            which = "the first: " * (len(twins) > 1)
            lines.append(f"{said} ({which}{first.run!r}, as {twins[id(first)].run!r})")
        kept += [c for c in curves if id(c) not in twins]
    return kept, lines


def joined(curves: Iterable[Curve]) -> list[Curve]:
    """Curves of several tables, the parts of a run as one: as if they stood in one table.

    Parts are of one name, and each begins where the one before has ended.
    """
    of: dict[object, list[Curve]] = {}
    for c in curves:
        key = (c.run, c.configuration, c.seed, c.metric, c.problem_set, c.split, c.arm)
        of.setdefault(key if c.run and c.rollouts_K.size else id(c), []).append(c)
    return [one for parts in of.values() for one in _one_after_another(parts)]


def _one_after_another(parts: Sequence[Curve]) -> Sequence[Curve]:
    """One curve of parts that follow each other; else the parts as they are."""
    ordered = sorted(parts, key=lambda c: float(c.rollouts_K[0]) if c.rollouts_K.size else 0.0)
    names = [name for name, value in vars(ordered[0]).items() if name.endswith("_K")]
    rows = {name: [getattr(c, name) for c in ordered] for name in names}
    whole = {name: None if any(row is None for row in of) else np.concatenate(of)
             for name, of in rows.items()}  # fmt: skip
    counts = (v for name, v in whole.items() if name != "score_K" and v is not None)
    twice = (np.diff(np.concatenate([c.rollouts_K for c in ordered])) == 0).any()
    if len(parts) == 1 or twice or any((np.diff(count) < 0).any() for count in counts):
        return parts
    left = {name: sum(getattr(c, name) for c in ordered) for name in ("n_missing", "n_repeated")}
    return [ordered[0].replace(**whole, **left)]


def _twin(curve: Curve, others: Sequence[Curve]) -> Curve | None:
    """The curve of the same configuration with the same scores."""
    for other in others:
        if (
            curve.configuration != other.configuration or curve.split != other.split
            or curve.arm != other.arm or (None not in (curve.seed, other.seed)
            and curve.seed != other.seed)
        ):
            continue
        _, mine, its = np.intersect1d(curve.rollouts_K, other.rollouts_K, return_indices=True)
        after = curve.rollouts_K[mine] > 0
        x_K, y_K = curve.score_K[mine][after], other.score_K[its][after]
        if np.allclose(x_K, y_K, rtol=1e-5, atol=1e-7) and np.unique(x_K).size >= ENOUGH:
            return other
    return None


def of_one_set(curves: list[Curve]) -> list[Curve]:
    """Curves without those of `all` problem sets (SkyRL's) where one set alone is all of them.

    So are all answers of a set (prime-rl's `math500/all`) where `math500/effective` is.
    """
    named = {_but_set(c) for c in curves if not _is_whole(c)}
    return [c for c in curves if not _is_whole(c) or _but_set(c) not in named]


def _is_whole(c: Curve) -> bool:
    return c.problem_set.rpartition("/")[2] == _ALL


def _but_set(c: Curve) -> tuple[object, ...]:
    scores = c.score_K.tobytes(), c.rollouts_K.tobytes()
    return c.configuration, c.run, c.seed, c.metric, c.split, *scores


def refuse_tables_of_two_sweeps(found: Sequence[tuple[Path, Curve]]) -> None:
    """Curves of several tables are those of one sweep, also by the names of the tables.

    Runs count that have no name of their own, or scores of the same updates in several tables: not
    parts of one course.

    Raises:
        InputError: names two of the tables.
    """
    at = Counter((run, *rest) for _, run, *rest in {
        (table, c.run, c.configuration, c.seed, c.metric, c.problem_set, c.split, c.arm, x)
        for table, c in found if c.run for x in c.rollouts_K[c.rollouts_K > 0].tolist()
    })  # fmt: skip
    twice = {"", *(run for (run, *_), tables in at.items() if tables > 1)}
    refuse_two_sweeps(
        [
            Named(run_name(table), (c.problems_per_batch, c.rollouts_per_problem, c.seed),
                  frozenset([(c.metric, c.problem_set, f"{c.split} {c.arm}")]), of_file=True)
            for table, c in found if c.run in twice
        ],
        "give the files of one of them alone (fit runs/*/NAME.csv).",
    )  # fmt: skip
