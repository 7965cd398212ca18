"""Several records of one run, made one: the richest, with what only the others know.

Shape legend: K points of one series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from isocompute.importers.runs import ImportedRun, Metric, Series
from isocompute.importers.spent import Each, Spent, kept_of

Key = tuple[Metric, str, str]  # of a series in its run: metric, problem set, split


def merged(group: Sequence[ImportedRun]) -> ImportedRun:
    """One run of several records: the richest, with what only the others know.

    Args:
        group: of several that say how scores are read, the first is believed.
    """
    if len(group) == 1:
        return group[0]

    def rank(run: ImportedRun) -> tuple[int, bool, bool]:
        rounds = run.provenance.format.endswith("console")  # some print three digits
        return -_size(run), rounds, run.problems_per_batch is None

    ordered = sorted(group, key=rank)
    best = ordered[0]
    names = ("problems_per_batch", "rollouts_per_problem", "steps", "seed")
    known = {
        name: next((v for r in ordered if (v := getattr(r, name)) is not None), None)
        for name in names
    }
    whole = replace(best, **known)  # type: ignore[arg-type]  # the fields' own values
    whole = _rolled_out(whole, [s for r in ordered for s in r.series])
    facts = {k: v for r in reversed(ordered) for k, v in r.provenance.facts.items()}
    said = {
        name: next((v for r in group if (v := getattr(r.provenance, name)) is not None), None)
        for name in ("passes_per_step", "rates", "micro_batch", "alike",
                     "evaluation_problems", "score_range")
    }
    spent, times = _spent(group)
    whole = replace(
        whole, provenance=replace(whole.provenance, facts=facts, **said, **times),  # type: ignore[arg-type]  # as above
        notes=tuple(dict.fromkeys(note for r in ordered for note in r.notes)),
        spent=spent,
        outcomes=best.outcomes or next((r.outcomes for r in ordered if r.outcomes), ()),
    )
    paths = dict.fromkeys(r.provenance.path for r in ordered[1:])
    others = ", ".join(path for path in paths if path != best.provenance.path)
    told = [f"counted once: the same scores stand in {others}"] if others else []
    return whole.inferring(*(line for r in ordered for line in r.provenance.inferred), *told)


def _spent(group: Sequence[ImportedRun]) -> tuple[Spent, dict[str, object]]:
    """What updates took, by the records that reach furthest, and what is said of their times."""
    kept = [kept_of(r) for r in group]
    tokens, drawn = (max((getattr(one, name) for one in kept), key=Each.last)
                     for name in ("tokens", "drawn"))  # fmt: skip
    epochs = max((one.epochs for one in kept), key=Each.last)
    clocks = [k for k, r in enumerate(group) if r.provenance.s_per_step is not None]
    if not clocks:
        return Spent(tokens=tokens, drawn=drawn, epochs=epochs), {}
    first = max(clocks, key=lambda k: kept[k].last())
    own, gpus = group[first].provenance, next((one.gpus for one in kept if one.gpus), None)
    times = {name: getattr(own, name) for name in ("s_per_step", "pace", "clocked")}
    times["gpu_s_per_step"] = own.gpu_s_per_step or (gpus and gpus * times["s_per_step"])
    return Spent(times=kept[first].times, gpus=kept[first].gpus or gpus, tokens=tokens,
                 drawn=drawn, epochs=epochs), times  # fmt: skip


def _size(run: ImportedRun) -> int:
    return sum(s.step_K.size for s in run.series)


def _rolled_out(run: ImportedRun, series: Iterable[Series]) -> ImportedRun:
    """The run with one series per metric, the longest, and rollouts where they are known now."""
    kept: dict[Key, Series] = {}
    for s in _with_samples(list(series)):
        key = (s.metric, s.problem_set, s.split)
        if key not in kept:
            kept[key] = s
        elif np.isnan(kept[key].tokens_K).all() and np.array_equal(kept[key].step_K, s.step_K):
            kept[key] = replace(kept[key], tokens_K=s.tokens_K)
        else:
            kept[key] = _reaching(kept[key], s)
    b_p, n = run.problems_per_batch, run.rollouts_per_problem
    if b_p is not None and n is not None:
        for key, s in kept.items():
            if np.isnan(s.rollouts_K).any():
                rollouts = np.where(np.isnan(s.rollouts_K), s.step_K * float(b_p * n), s.rollouts_K)
                kept[key] = replace(s, rollouts_K=rollouts)
    return replace(run, series=tuple(kept.values()))


def _with_samples(series: Sequence[Series]) -> list[Series]:
    """Series with `avg` of one record as the `avg@4` of another that knows k."""
    known: dict[tuple[object, ...], set[tuple[Metric, str]]] = {}
    for s in series:
        if s.metric.samples is not None:
            known.setdefault(_but_samples(s), set()).add((s.metric, s.problem_set))
    told = []
    for s in series:
        those = known.get(_but_samples(s), set()) if s.metric.samples is None else set()
        same = {one for one in those if one[1] == s.problem_set} or those
        if len(same) == 1:
            ((metric, name),) = same
            told.append(replace(s, metric=metric, problem_set=name))
        elif not those:
            told.append(s)
    return told


def _but_samples(s: Series) -> tuple[object, ...]:
    return s.metric.kind, s.metric.variable, s.metric.estimator, s.split


def _reaching(long: Series, other: Series) -> Series:
    """The longer series, with what another record has before it or beyond."""
    if not long.step_K.size:
        return long
    ends = (other.step_K < long.step_K[0], other.step_K > long.step_K[-1])
    if not any(end.any() for end in ends):
        return long
    parts = {
        name: np.concatenate([getattr(other, name)[ends[0]], getattr(long, name),
                              getattr(other, name)[ends[1]]])
        for name in ("step_K", "rollouts_K", "tokens_K", "score_K")
    }  # fmt: skip
    return replace(long, **parts)  # type: ignore[arg-type]  # arrays by the fields' own names
