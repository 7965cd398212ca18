"""Several records of one run: found by the scores that they share, and made one.

Shape legend: K points of one series.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from isocompute.importers.runs.starts import noise_of
from isocompute.importers.values.imported import (
    DESIGN,
    FloatArray,
    ImportedRun,
    IntArray,
    Metric,
    Series,
    disagree,
)
from isocompute.importers.values.spent import Each, Spent, kept_of, known_at

Key = tuple[Metric, str, str]  # of a series in its run: metric, problem set, split
ENOUGH = 3  # distinct equal scores after step 0 that two runs of chance do not have
# The same where one record has fewer digits, as a console that prints three (verl before 0.2) or a
# table that was rounded: of two runs of chance one score in fifty agrees. At half, a pair among a
# hundred runs is taken for one; at twice, runs of fewer than eight evaluations count twice.
ENOUGH_ROUNDED = 4
_ROUNDED = range(2, 6)  # digits of such a record; more are float32's
_COARSE = 2  # digits with which two seeds agree at any one step, if not at all of them
# The chance that two seeds agree at every step as two records do, below which these are of one run;
# and where both say one seed, of which a sweep has few twice. Simulated, with two digits: at ten
# times that 1 in 1,000 pairs of seeds of four evaluations is taken for one (noise 0.006), here none
# of 4,000; of copies of 20 evaluations half are found (97 of 100 at a noise of 0.012).
BY_CHANCE, OF_ONE_SEED = 1e-5, 1e-3
_ULP = 1e-9  # 42.3 / 100 is no 0.423 to the last bit
_SERIES, _POINTS, _MIXER = 2, 16, 2_654_435_761  # where another record of a run is looked for
_CROWD = 8  # a score that more runs share at one step (0, 1) tells nothing


def merged(group: Sequence[ImportedRun]) -> ImportedRun:
    """One run of several records: the richest, with what only the others know.

    Args:
        group: of several that say how scores are read, the first is believed.
    """
    if len(group) == 1:
        return group[0]

    def rank(run: ImportedRun) -> tuple[int, int, bool, bool]:
        rounds = run.provenance.format.endswith("console")  # some print three digits
        finest = _ROUNDED.stop - (_digits(run) or _ROUNDED.stop)
        return -_size(run), finest, rounds, run.problems_per_batch is None

    ordered = sorted(group, key=rank)
    best = ordered[0]
    known = {
        name: next((v for r in ordered if (v := getattr(r, name)) is not None), None)
        for name in (*DESIGN, "steps")
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


def _rolled_out(run: ImportedRun, series: Sequence[Series]) -> ImportedRun:
    """The run with one series per metric, the longest, and what any record counts until a step."""
    kept: dict[Key, Series] = {}
    for s in _with_samples(series):
        kept[s.of] = _reaching(kept[s.of], s) if s.of in kept else s
    batch = (run.problems_per_batch or np.nan) * (run.rollouts_per_problem or np.nan)
    for key, s in kept.items():
        if np.isnan(s.rollouts_K).any():
            at, count = _counted(series, "rollouts_K")
            more_K = np.maximum(s.step_K - at[-1], 0) * batch
            counted_K = np.interp(s.step_K, at, count).round() + more_K
            s = replace(s, rollouts_K=np.where(np.isnan(s.rollouts_K), counted_K, s.rollouts_K))
        tokens_K = known_at(*_counted(series, "tokens_K"), s.step_K)
        if np.isnan(s.tokens_K).all() and np.isfinite(tokens_K).all():
            s = replace(s, tokens_K=tokens_K)
        kept[key] = s
    return replace(run, series=tuple(kept.values()))


def _counted(series: Sequence[Series], name: str) -> tuple[IntArray, FloatArray]:
    """What series say was spent until their steps, and none at the begin."""
    step = np.concatenate([s.step_K for s in series])
    count = np.concatenate([getattr(s, name) for s in series])
    there = np.isfinite(count) & (step > 0)
    at, first = np.unique(step[there], return_index=True)
    return np.concatenate(([0], at)), np.concatenate(([0.0], count[there][first]))


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
        return other
    ends = (other.step_K < long.step_K[0], other.step_K > long.step_K[-1])
    parts = {
        name: np.concatenate([getattr(other, name)[ends[0]], getattr(long, name),
                              getattr(other, name)[ends[1]]])
        for name in ("step_K", "rollouts_K", "tokens_K", "score_K")
    }  # fmt: skip
    return replace(long, **parts)  # type: ignore[arg-type]  # arrays by the fields' own names


def scores_of(run: ImportedRun) -> dict[Key, dict[int, float]]:
    """The scores of every series by step."""
    return {
        s.of: dict(zip(s.step_K.tolist(), s.score_K.tolist(), strict=True)) for s in run.series
    }


def pairs(runs: Sequence[ImportedRun], decided: frozenset[int]) -> list[tuple[int, int]]:
    """Places of two runs that share scores at some steps and were not settled before."""
    holders: dict[tuple[str, int, int, float], list[int]] = defaultdict(list)
    digits = [_digits(run) for run in runs]
    coarse = {d for d in digits if d is not None}
    marks = [[*_marks(run)] for run in runs]
    for i, of_run in enumerate(marks):
        for split, step, value in of_run:
            own = digits[i] or _ROUNDED.stop - 1
            for d in {own, *(d for d in coarse if d < own)}:
                holders[split, step, d, round(value, d)].append(i)
    count: Counter[tuple[int, int]] = Counter()
    alike: Counter[tuple[int, int]] = Counter()  # with two digits: many share each
    for (*_, d, _), found in holders.items():
        both = [*combinations(sorted(set(found)), 2)] if (
            d == _COARSE or len(found) <= _CROWD) else []
        count.update(both if len(found) <= _CROWD else [])
        alike.update(both if d == _COARSE else [])
    near = {(i, j) for (i, j), hits in count.items() if hits >= 2} | {
        (i, j) for (i, j), hits in alike.items()
        if hits >= max(2, min(len(marks[i]), len(marks[j])) / 2)
    }
    return sorted((i, j) for i, j in near if not {id(runs[i]), id(runs[j])} <= decided)


def _marks(run: ImportedRun) -> Iterator[tuple[str, int, float]]:
    """Some means of a run, by which another record of it may be found.

    Of long series the same steps in every run: those of the smallest hash.
    """
    taken: Counter[str] = Counter()
    for s in run.series:
        if s.metric.kind != "avg" or taken[s.split] == _SERIES:
            continue
        taken[s.split] += 1
        after = np.flatnonzero(s.step_K > 0)
        if after.size > _POINTS:
            order = np.argsort(s.step_K[after] * _MIXER % (1 << 31), kind="stable")
            after = after[order[:_POINTS]]
        for step, value in zip(s.step_K[after].tolist(), s.score_K[after].tolist(), strict=True):
            yield s.split, step, value


def _digits(run: ImportedRun) -> int | None:
    """To how many digits a record rounds its scores; None where it does not."""
    value_K = np.concatenate([s.score_K for s in run.series] or [np.empty(0)])
    return next((d for d in _ROUNDED if (abs(np.round(value_K, d) - value_K) < _ULP).all()), None)


def may_be_one(a: ImportedRun, b: ImportedRun) -> bool:
    """Whether nothing that two records say of their runs tells them apart."""
    if disagree(a, b, DESIGN[:2]):
        return False
    if {*a.design[:2], *b.design[:2]} == {None}:
        return False  # two configurations may be meant: they are asked for first
    rates = [r.provenance.facts.get("learning_rate") for r in (a, b)]
    # two runs by their own word: the rate is asked for
    return None in rates or rates[0] == rates[1]


class Shared(NamedTuple):
    """What the scores of two records have in common, step 0 apart."""

    equal: set[float]  # distinct scores that are the same, before any that is not
    enough: bool  # more of them than chance gives
    until: int  # the last step of those
    differ: int | None  # the first step at which they differ


def shared(a: ImportedRun, b: ImportedRun) -> Shared:
    """The scores of two records, held against each other.

    Trackers name metrics differently (avg, avg@4; a problem set or none), so every series of one
    kind, k and split is held against each of the other's that says no other.
    """
    scores_a, scores_b = scores_of(a), scores_of(b)
    digits = [_digits(a), _digits(b)]
    rounded = known = [d for d in digits if d is not None]
    if digits[0] == digits[1] and not any(r.provenance.format.endswith("console") for r in (a, b)):
        rounded = []  # neither is the rounding of the other
    # trackers round to float32
    rtol, atol = (0.0, 0.501 * 10.0 ** -min(rounded)) if rounded else (1e-5, 1e-7)
    same: list[tuple[int, float]] = []
    differ: int | None = None
    chance = 1.0
    for (metric, problem_set, split), points in scores_a.items():
        for (other, other_set, other_split), others in scores_b.items():
            if (metric.kind, metric.variable, split) != (other.kind, other.variable, other_split):
                continue
            if None not in (metric.samples, other.samples) and metric.samples != other.samples:
                continue  # best@2 is another number than best@4
            if problem_set and other_set and problem_set != other_set:
                continue
            common = sorted(points.keys() & others.keys() - {0})
            x_K = np.array([points[s] for s in common])
            alike_K = np.isclose(x_K, [others[s] for s in common], rtol=rtol, atol=atol)
            first = int(alike_K.argmin()) if not alike_K.all() else len(common)
            if first < len(common):
                differ = min(common[first], differ if differ is not None else common[first])
            if known:
                y_K = np.array([others[s] for s in common])
                pair = (x_K, y_K) if digits[1] == min(known) else (y_K, x_K)
                fine_K, coarse_K = (one[:first] for one in pair)
                chance = min(chance, _chance(fine_K, coarse_K, min(known)))
            same += zip(common[:first], x_K[:first].tolist(), strict=True)
    same = [(at, v) for at, v in same if differ is None or at < differ]
    equal = {round(v, min(rounded, default=7)) for _, v in same}
    enough = len(equal) >= (ENOUGH_ROUNDED if rounded else ENOUGH)
    one_seed = a.seed is not None and a.seed == b.seed
    likely = chance < (OF_ONE_SEED if one_seed else BY_CHANCE)
    if digits[0] == digits[1] == _COARSE:
        enough = enough and likely
    elif rounded and digits[0] != digits[1]:  # one may be the rounding of the other
        enough = (likely and differ is None) or (enough and min(rounded) > _COARSE)
    return Shared(equal, enough, max((at for at, _ in same), default=0), differ)


def _chance(fine_K: FloatArray, coarse_K: FloatArray, digits: int) -> float:
    """The chance that a seed's scores round to those of another at every step, as they do.

    By the noise of the finer record alone, though seeds differ by more; a step at which the coarser
    stays as it was says nothing, as where all is solved. Scores of 50 problems are 0.02 apart.
    """
    if fine_K.size <= ENOUGH:
        return 1.0
    whole_K = np.round(coarse_K * 10.0**digits).astype(np.int64)
    apart = max(int(np.gcd.reduce(whole_K)), 1) * 10.0**-digits
    each = min(1.0, apart / max(2 * np.pi**0.5 * noise_of(fine_K), 1e-12))
    return float(each ** (1 + np.count_nonzero(np.diff(whole_K))))
