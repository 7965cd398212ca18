"""Imported runs -> learning curves, with the questions that must be answered before."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.domain.text import none_of
from isocompute.errors import InputError
from isocompute.importers.runs.doubts import refuse_doubts, refuse_renamed
from isocompute.importers.runs.steps import ASSUMED
from isocompute.importers.values.imported import ImportedRun, Series
from isocompute.importers.values.reading import whole
from isocompute.importers.values.timing import gpu_hours, groups_of
from isocompute.importers.words.asking import first_error, require_configuration
from isocompute.importers.words.called import mapping
from isocompute.importers.words.recorded import recorded_said
from isocompute.importers.words.scale import MOST_ROLLOUTS
from isocompute.importers.words.scored import (
    is_no_score,
    is_rate,
    keys_there,
    likely_options,
    likely_scores,
    mapped,
    scores_unread,
    unread_lines,
)
from isocompute.importers.words.vocabulary import column_of, is_own

_REWARDS = ("reward", "rewards", "score")  # what trainers call the whole of them
_NAMED = 3  # keys
_MEAN = re.compile(r"avg(?:@[0-9]+)?(:.+)?")
_RATE = re.compile("acc|correct|solve|success|exact", re.I)  # variables that are success rates


class Conversion(NamedTuple):
    """Curves, and the runs without one: (name, why)."""

    curves: list[Curve]
    excluded: list[tuple[str, str]]


def to_curves(
    runs: Sequence[ImportedRun], metric: str | None = None, *, problem_set: str | None = None,
    split: str | None = "validation", say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Learning curves of imported runs under one metric; `say` hears which runs are left out.

    Raises:
        InputError: see `convert_runs`; also if every run is left out.
    """
    conversion = convert_runs(runs, metric, problem_set=problem_set, split=split)
    read = {c.metric for c in conversion.curves}
    means = sorted({
        s.metric.label for run in runs for s in run.series
        if _any_k(s.metric.label) in read and split in (None, s.split)
    } - read)
    if means and say is not None and metric is None:  # who names avg knows
        say(_pooled_line(means))
    if not conversion.curves:
        name, reason = conversion.excluded[0]
        raise InputError(
            f"at least 1 run must have scores, but all {len(conversion.excluded)} were left out "
            f"(the first, {name!r}: {reason}); check the logs."
        )
    if say is not None:
        left = note_lines((name, f"left out: {why}") for name, why in conversion.excluded)
        for line in (*left, *unread_lines(runs)):
            say(line)
    return conversion.curves


def pooled(
    curves: list[Curve], metric: str | None, say: Callable[[str], None] | None = None
) -> list[Curve]:
    """Curves that differ in the k of avg@k alone, as one metric; not where a run has several k.

    avg@k estimates the same success rate whatever k is, with noise of its own (`Curve.trials`).
    """
    for mean, alike in groupby(sorted({c.metric for c in curves}, key=_by_mean), _any_k):
        labels = list(alike)
        if mean is None or len(labels) < 2 or metric not in (None, mean):
            continue
        runs = Counter(
            (c.problems_per_batch, c.rollouts_per_problem, c.run, c.seed, c.problem_set, c.split)
            for c in curves if c.metric in labels
        )  # fmt: skip
        if max(runs.values()) > 1:
            continue
        if say is not None and metric is None:
            say(_pooled_line(labels))
        curves = [c.replace(metric=mean) if c.metric in labels else c for c in curves]
    return curves


def _by_mean(label: str) -> tuple[str, str]:
    return _any_k(label) or "", label


def _any_k(label: str) -> str | None:
    """A mean over samples under the name that has no k; None for another estimator.

    >>> _any_k("avg@4:accuracy"), _any_k("avg"), _any_k("best@4")
    ('avg:accuracy', 'avg', None)
    """
    found = _MEAN.fullmatch(label)
    return None if found is None else f"avg{found[1] or ''}"


def _pooled_line(labels: Sequence[str]) -> str:
    return (f"{', '.join(labels)} are read as {_any_k(labels[0])}: a mean over samples, however "
            "many they are")  # fmt: skip


def note_lines(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Notes of runs, one line for those that say the same with other numbers.

    >>> note_lines([("a", "3 rows were not used"), ("b", "4 rows were not used")])
    ['run a: 3 rows were not used (and 1 more run alike)']
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, note in notes:
        alike.setdefault(re.sub("[0-9]+", "#", note), []).append((name, note))
    lines = []
    for (name, note), *others in alike.values():
        more = f" (and {len(others)} more run{'s' if len(others) > 1 else ''} alike)"
        whose = "" if " of the folder " in note else f"run {name}: "
        lines.append(f"{whose}{note}{more if others else ''}")
    return lines


def convert_runs(
    runs: Sequence[ImportedRun], metric: str | None = None, *, problem_set: str | None = None,
    split: str | None = "validation",
) -> Conversion:
    """Learning curves of imported runs.

    Args:
        runs: what `read_log` gave, from any number of logs.
        metric: a label such as "avg@4" or "best@4:bootstrap"; None: the only one there is, or
            the only avg@k among several. "avg" is avg@k whatever k is, of several in one run the
            one of most samples; runs that differ in k alone are read so by themselves.
        problem_set: None: every one, a curve each.
        split: "validation", "train", or None for both.

    Raises:
        InputError: where B_p or n is not known, where the metric is not there or not the only
            one, and where one label would mix different estimators or averaged variables.
    """
    if not runs:
        raise InputError("at least 1 imported run must be given, but got 0; read a log first.")
    chosen = [
        (run, s) for run in runs for s in run.series
        if split in (None, s.split) and problem_set in (None, s.problem_set)
    ]
    label = _label(runs, chosen, metric, problem_set, split)
    if metric is None:
        _refuse_blends(chosen, label)
        _refuse_unread_rates(chosen, label)
    if any(s.metric.label != label and _any_k(s.metric.label) == label for _, s in chosen):
        chosen = _of_most_samples(chosen, label)
    else:
        chosen = [(run, s) for run, s in chosen if s.metric.label == label]
    if split == "validation":
        refuse_renamed(runs, label)
    refuse_doubts([run for run, _ in chosen], training=True)
    require_configuration([run for run, _ in chosen])
    for of in dict.fromkeys(s.problem_set for _, s in chosen):
        _refuse_mixtures([one for one in chosen if one[1].problem_set == of], label)
    curves: list[Curve] = []
    with_metric = {id(run) for run, _ in chosen}
    excluded = [(run.name, f"it has no {label}") for run in runs if id(run) not in with_metric]
    for run, s in chosen:
        keep = np.isfinite(s.rollouts_K)
        if not keep.any():
            excluded.append((
                run.name,
                f"all {s.n_missing} of its scores are missing{first_error([run])}"
                if s.score_K.size == 0
                else "its cumulative rollouts are not known",
            ))
            continue
        if s.rollouts_K[keep].max() > MOST_ROLLOUTS:
            raise InputError(
                f"rollouts must be at most {MOST_ROLLOUTS:.0e}, but run {run.name!r} has "
                f"{s.rollouts_K[keep].max():.3g}; correct its steps, B_p or n."
            )
        curves.append(_curve(run, s, keep, label))
    return Conversion(curves, excluded)


def _of_most_samples(
    chosen: Sequence[tuple[ImportedRun, Series]], label: str
) -> list[tuple[ImportedRun, Series]]:
    """The avg@k of most samples of every run, problem set and split; a plain avg goes first."""
    most: dict[tuple[int, str, str], tuple[ImportedRun, Series]] = {}
    for run, s in chosen:
        if _any_k(s.metric.label) != label:
            continue
        key, rank = (id(run), s.problem_set, s.split), s.metric.samples or math.inf
        if key not in most or rank > (most[key][1].metric.samples or math.inf):
            most[key] = (run, s)
    return list(most.values())


def _label(
    runs: Sequence[ImportedRun], chosen: Sequence[tuple[ImportedRun, Series]], metric: str | None,
    problem_set: str | None, split: str | None,
) -> str:
    labels = sorted({s.metric.label for _, s in chosen})
    where = "" if problem_set is None else f" on {problem_set!r}"
    if not labels:
        sets = {s.problem_set for run in runs for s in run.series if split in (None, s.split)}
        if problem_set is not None and sets and problem_set not in sets:
            raise InputError(none_of("problem set", sets, problem_set))
        there = sorted({
            f"{s.metric.label} ({s.split}{', ' if s.problem_set else ''}{s.problem_set})"
            for run in runs for s in run.series
        })
        other = "train" if split != "train" else "validation"
        score = likely_scores(runs)
        options, trial = likely_options(runs)
        cure = "choose another split or problem set"
        if any(s.split == other for run in runs for s in run.series):
            cure = f"add --split {other}"
            if not trial:
                options = trial = ["--split", other]
        said = f"name the score ({score})"
        cure = f"{cure}, or {said}" if "KEY" in score else f"{said}, or {cure}"
        raise InputError(
            f"a log must hold {split or 'scored'} metrics{where} that are known, but "
            f"{runs[0].provenance.path!r} holds {', '.join(there[:8]) or 'none'}"
            f"{keys_there(runs) or first_error(runs)}; {cure}.", options=options, trial=trial,
        )
    if metric is not None:
        if metric in (*labels, *map(_any_k, labels)):
            return metric
        if (named := column_of(metric)) is not None and named.metric.label in labels:
            return named.metric.label  # by the log's own key
        hint = ("; the log does not say k: add --set evaluation_samples=K, or"
                if "@" in metric and metric.split("@")[0] in labels else ";")
        raise InputError(
            f"metric {metric!r} must be in the log{where}, but it holds {', '.join(labels)}"
            f"{hint} choose one of them."
        )
    if len(labels) == 1:
        return labels[0]
    means = [name for name in labels if _any_k(name) == "avg" or is_own(name)]
    if len(means) == 1:
        return means[0]
    if {_any_k(name) for name in labels} == {_any_k(labels[0])} != {None}:
        means = labels  # of one variable, which is not the whole reward
    of_run = Counter(
        (id(run), s.problem_set, s.split) for run, s in chosen if s.metric.label in means
    )
    one_each = means and max(of_run.values()) == 1 and not any(map(is_own, means))
    if one_each:  # runs differ in k alone
        return str(_any_k(means[0]))
    first = min(means or labels, key=lambda name: not is_own(name))
    each = [f"--metric {name}" for name in sorted(labels, key=lambda name: name != first)]
    raise InputError(
        f"one metric must be chosen, but the log holds {', '.join(labels)}; add "
        f"{', or '.join(each[:_NAMED])}.",
        options=("--metric", first if sum(map(is_own, labels)) == 1 else "METRIC"),
        trial=("--metric", first))  # fmt: skip


def rate_beside_reward(runs: Sequence[ImportedRun]) -> str | None:
    """The success rate that a fit asks for by name, as a whole reward stands beside it."""
    if not (chosen := [(run, s) for run in runs for s in run.series if s.split == "validation"]):
        return None
    try:
        found = _blend(chosen, _label(runs, chosen, None, None, "validation"))
    except InputError:  # it asks something else first
        return None
    return None if found is None else found[-1]


def _refuse_blends(chosen: Sequence[tuple[ImportedRun, Series]], label: str) -> None:
    """A reward that is no success rate is not taken for one where the rate stands beside it."""
    if (found := _blend(chosen, label)) is None:
        return
    run, s, t, rate = found
    raise InputError(
        f"one score must be chosen, but run {run.name!r} has {rate} "
        f"({t.score_K.min():.4g} to {t.score_K.max():.4g}) and {label}, the whole reward "
        f"({s.score_K.min():.4g} to {s.score_K.max():.4g}); add --metric {rate} "
        f"or --metric {label}{_range_for(s)}.", options=("--metric", rate),
        condition=f"you follow {rate}, not the whole reward",
    )


def _refuse_unread_rates(chosen: Sequence[tuple[ImportedRun, Series]], label: str) -> None:
    """A reward beyond 0..1 is not taken where a share of successes was left unread."""
    for run, s in chosen:
        rates = [key for key in scores_unread(run) if is_rate(key)]
        if s.metric.label != label or s.metric.variable not in _REWARDS or not s.score_K.size or (
            not _range_for(s) or not rates
        ):
            continue
        raise InputError(
            f"one score must be chosen, but run {run.name!r} has {label}, a reward "
            f"({s.score_K.min():.4g} to {s.score_K.max():.4g}), and {', '.join(rates[:_NAMED])} "
            f"{'was' if len(rates[:_NAMED]) == 1 else 'were'} not read; add "
            f"{' or '.join(map(mapped, rates[:_NAMED]))}, or --metric {label}{_range_for(s)}.",
            options=shlex.split(mapped(rates[0])) if len(rates) == 1 else ("--map", "KEY=avg"),
            trial=shlex.split(mapped(rates[0])),
            condition=f"`{rates[0]}` is the score that you follow" if len(rates) == 1 else "",
        )


def _range_for(s: Series) -> str:
    """The option that a score needs, too, where it leaves 0..1."""
    inside = s.score_K.min() >= 0 and s.score_K.max() <= 1
    return "" if inside else " with --range LOW HIGH, the least and most it can be"


def _blend(
    chosen: Sequence[tuple[ImportedRun, Series]], label: str
) -> tuple[ImportedRun, Series, Series, str] | None:
    """A run, its whole reward, and the success rate beside it with its name."""
    rates = sorted((of for of in chosen if _RATE.search(of[1].metric.variable)),
                   key=lambda of: is_no_score(of[1].metric.variable))  # fmt: skip
    for run, s in chosen:
        as_told = _any_k if label == _any_k(s.metric.label) else str
        if label not in (s.metric.label, as_told(s.metric.label)):
            continue
        if s.metric.variable not in ("reward", "score"):
            continue
        for other, t in rates:
            is_beside = (t.problem_set, t.split) == (s.problem_set, s.split)
            if other is not run or t.metric.kind != "avg" or not is_beside:
                continue
            _, mine, its = np.intersect1d(s.step_K, t.step_K, return_indices=True)
            if np.allclose(s.score_K[mine], t.score_K[its], rtol=1e-5, atol=1e-7):
                continue
            return run, s, t, str(as_told(t.metric.label))
    return None


def _refuse_mixtures(chosen: Sequence[tuple[ImportedRun, Series]], label: str) -> None:
    kinds = {(s.metric.estimator, s.metric.variable.replace(f"@{s.metric.samples}", "@k")): run.name
             for run, s in reversed(chosen)}  # fmt: skip
    one_each = len({(id(r), s.problem_set, s.split) for r, s in chosen}) == len(chosen)
    if len(kinds) > 1 and not (is_own(label) and one_each):  # a name of the user's, for all of them
        seen = "; ".join(f"{of} of {variable or '?'} (run {name!r})"
                         for (of, variable), name in sorted(kinds.items()))  # fmt: skip
        one = " ".join(mapping(key, "own") for key in sorted({s.key for _, s in chosen}))
        same = one_each and len({of for of, _ in kinds}) == 1 and one.count("--map") <= _NAMED
        raise InputError(
            f"one fit must use one estimator of one variable, but {label} is: {seen}; read the "
            f"logs {f'with {one} and --metric own if they are one score, or ' if same else ''}"
            "apart, with a --range of their own, to fit the studies together; or import dumps."
        )


def _curve(run: ImportedRun, s: Series, keep: NDArray[np.bool_], label: str) -> Curve:
    tokens, steps_K = s.tokens_K[keep], s.step_K[keep].astype(np.float64)
    told = run.provenance
    timed, seconds = told.gpu_s_per_step, told.s_per_step
    assert run.problems_per_batch is not None  # asked for above
    assert run.rollouts_per_problem is not None
    each, of = float(s.rollouts_K[-1]) / max(int(s.step_K[-1]), 1), told.passes_per_step
    return Curve(
        problems_per_batch=run.problems_per_batch, rollouts_per_problem=run.rollouts_per_problem,
        run=run.name, seed=run.seed, rollouts_K=s.rollouts_K[keep], score_K=s.score_K[keep],
        metric=label, problem_set=s.problem_set, split=s.split, steps_K=steps_K,
        tokens_K=tokens if np.isfinite(tokens).all() else None, clocked=told.clocked,
        gpu_hours_K=None if timed is None else gpu_hours(steps_K, timed, told.pace),
        trials=_trials(run, s), key=s.key, groups=groups_of(run, s),
        n_missing=s.n_missing + int((~keep).sum()), recorded=recorded_said(told.facts),
        steps_assumed=any(line.endswith(ASSUMED) for line in told.inferred),
        gpus=round(timed / seconds) if timed and seconds else None,
        trained_on=round(each / run.rollouts_per_problem / of) if of and each > 0 else None,
        micro_batch=told.micro_batch, response_limit=whole(told.facts.get("max_response_length")),
        rate_left=told.rates[0] / told.rates[1] if told.rates else None,
    )


def _trials(run: ImportedRun, s: Series) -> int | None:
    """Outcomes behind each score: problems, times samples for a mean; None where not known."""
    samples = s.metric.samples if s.metric.kind == "avg" else 1
    problems = min(
        (len(o.problem_P) for o in run.outcomes
         if (o.problem_set, o.split) == (s.problem_set, s.split)),
        default=run.provenance.evaluation_problems,
    )
    if problems is None or samples is None or s.split != "validation":
        return None
    return problems * samples
