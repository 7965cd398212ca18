"""Imported runs -> learning curves, with the questions that must be answered before."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.recorded import recorded_numbers
from isocompute.importers.runs import ImportedRun, Series
from isocompute.importers.scale import MOST_ROLLOUTS
from isocompute.importers.vocabulary import column_of

_MEAN = re.compile(r"avg(?:@([0-9]+))?")
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
    means = sorted({
        s.metric.label for run in runs for s in run.series
        if _MEAN.fullmatch(s.metric.label) and split in (None, s.split)
    } - {"avg"})
    if means and say is not None and {c.metric for c in conversion.curves} == {"avg"}:
        say(_pooled_line(means))
    if not conversion.curves:
        name, reason = conversion.excluded[0]
        raise InputError(
            f"at least 1 run must have scores, but all {len(conversion.excluded)} were left out "
            f"(the first, {name!r}: {reason}); check the logs."
        )
    if say is not None:
        for line in note_lines((name, f"left out: {why}") for name, why in conversion.excluded):
            say(line)
    return conversion.curves


def pooled(
    curves: list[Curve], metric: str | None, say: Callable[[str], None] | None = None
) -> list[Curve]:
    """Curves of several sources that differ in the k of avg@k alone, as one metric.

    avg@k estimates the same success rate whatever k is, with noise of its own (`Curve.trials`).
    """
    labels = sorted({c.metric for c in curves})
    if len(labels) < 2 or not all(_MEAN.fullmatch(label) for label in labels):
        return curves
    runs = Counter(
        (c.problems_per_batch, c.rollouts_per_problem, c.run, c.seed, c.problem_set, c.split)
        for c in curves
    )
    if metric not in (None, "avg") or max(runs.values()) > 1:
        return curves
    if say is not None:
        say(_pooled_line(labels))
    return [c.replace(metric="avg") for c in curves]


def _pooled_line(labels: Sequence[str]) -> str:
    return f"{', '.join(labels)} are read as avg: a mean over samples, however many they are"


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
        lines.append(f"run {name}: {note}{more if others else ''}")
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
    if label == "avg" and any(s.metric.label != label and _MEAN.fullmatch(s.metric.label)
                              for _, s in chosen):
        chosen = _of_most_samples(chosen)
    else:
        chosen = [(run, s) for run, s in chosen if s.metric.label == label]
    _refuse_mixtures(chosen, label)
    require_configuration([run for run, _ in chosen])
    curves: list[Curve] = []
    excluded: list[tuple[str, str]] = []
    with_metric = {id(run) for run, _ in chosen}
    for run in runs:
        if id(run) not in with_metric:
            excluded.append((run.name, f"it has no {label}"))
    for run, s in chosen:
        keep = np.isfinite(s.rollouts_K)
        if not keep.any():
            excluded.append((
                run.name,
                f"all {s.n_missing} of its scores are missing" if s.score_K.size == 0
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
    chosen: Sequence[tuple[ImportedRun, Series]]
) -> list[tuple[ImportedRun, Series]]:
    """The avg@k of most samples of every run, problem set and split; a plain avg goes first."""
    most: dict[tuple[int, str, str], tuple[ImportedRun, Series]] = {}
    for run, s in chosen:
        if _MEAN.fullmatch(s.metric.label) is None:
            continue
        key = (id(run), s.problem_set, s.split)
        rank = s.metric.samples or math.inf
        if key not in most or rank > (most[key][1].metric.samples or math.inf):
            most[key] = (run, s)
    return list(most.values())


_SETTINGS = ("problems_per_batch", "rollouts_per_problem")


def pattern_for(runs: Sequence[ImportedRun]) -> str | None:
    """The `pattern` that names seem to follow, of runs without B_p or n; None where none."""
    lacking = [run for run in runs if any(getattr(run, name) is None for name in _SETTINGS)]
    if not lacking:
        return None
    missing = [n for n in _SETTINGS if any(getattr(run, n) is None for run in lacking)]
    first = Path(lacking[0].provenance.path)
    seen = [first.name, lacking[0].name]
    if len(lacking) > 1:  # folders speak for their logs where a folder of several was read
        seen += [first.parent.name, *("/".join(first.parts[-depth:]) for depth in (3, 4))]
    return next((p for name in seen if (p := _pattern_in(name, missing))), None)


def require_configuration(runs: Sequence[ImportedRun]) -> None:
    """Ask in one line for the B_p and n that logs do not hold.

    Raises:
        InputError: names the first run, how many there are, and the settings to add.
    """
    lacking = [run for run in runs if any(getattr(run, name) is None for name in _SETTINGS)]
    if not lacking:
        return
    missing = [n for n in _SETTINGS if any(getattr(run, n) is None for run in lacking)]
    others = len({id(r) for r in lacking}) - 1
    example = {"problems_per_batch": 32, "rollouts_per_problem": 16}
    sets = " ".join(f"--set {n}={example[n]}" for n in missing)
    named = pattern_for(runs)
    short = {"problems_per_batch": "bp", "rollouts_per_problem": "n"}
    pattern = named or "_".join(f"{short[n]}{{{n}}}" for n in missing)
    raise InputError(
        f"{' and '.join(f'`{n}`' for n in missing)} must be known, but {lacking[0].name!r} "
        f"({lacking[0].provenance.path}{f', and {others} more' if others else ''}) does not log "
        f"{'them' if len(missing) > 1 else 'it'}; add "
        + (f"--set pattern='{pattern}' where the names say it, as they seem to, or {sets}."
           if named
           else f"{sets}, or --set pattern='{pattern}' if the names of files or runs say it.")
    )


# How names of files and folders write B_p and n: bp32, n16, prompts-32, rollouts_16.
_WRITTEN = {
    "problems_per_batch": r"bp|b_p|bsz|bs|batch|prompts|problems(?:_per_batch)?",
    "rollouts_per_problem": r"n|g|group|gen|rollouts?(?:_per_problem)?|samples",
}


def _pattern_in(text: str, missing: Sequence[str]) -> str | None:
    """The part of a name that says what is missing, as a `pattern`; None where it does not.

    >>> _pattern_in("run_bp32_n16_seed0.jsonl", list(_WRITTEN))
    'bp{problems_per_batch}_n{rollouts_per_problem}'
    """
    places = []
    for name in missing:
        said = re.search(rf"(?<![a-z])(?:{_WRITTEN[name]})[-_=]?([0-9]{{1,12}})", text, re.I)
        if said is None:
            return None
        places.append((said.start(1), said.end(), said.start(), name))
    pattern, at = "", min(start for _, _, start, _ in places)
    for number, end, _, name in sorted(places):
        pattern += f"{text[at:number]}{{{name}}}"
        at = end
    return pattern


def _label(
    runs: Sequence[ImportedRun], chosen: Sequence[tuple[ImportedRun, Series]], metric: str | None,
    problem_set: str | None, split: str | None,
) -> str:
    labels = sorted({s.metric.label for _, s in chosen})
    where = "" if problem_set is None else f" on {problem_set!r}"
    if not labels:
        there = sorted({
            f"{s.metric.label} ({s.split}{', ' if s.problem_set else ''}{s.problem_set})"
            for run in runs for s in run.series
        })
        other = "train" if split != "train" else "validation"
        cure = "choose another split or problem set, or "
        if any(s.split == other for run in runs for s in run.series):
            cure = f"add --split {other}, or another problem set, or "
        raise InputError(
            f"a log must hold {split or 'scored'} metrics{where} that are known, but "
            f"{runs[0].provenance.path!r} holds {', '.join(there[:8]) or 'none'}"
            f"{keys_there(runs)}; {cure}name the keys in a column map (--map columns.yaml with "
            f"columns: {{{likely_key(runs)}: avg@4}})."
        )
    if metric is not None:
        named = column_of(metric)  # by the log's own key
        if metric not in labels and named is not None and named.metric.label in labels:
            return named.metric.label
        if metric == "avg" and any(_MEAN.fullmatch(name) for name in labels):
            return metric
        if metric not in labels:
            hint = ("; the log does not say k: add --set evaluation_samples=K, or"
                    if "@" in metric and metric.split("@")[0] in labels else ";")
            raise InputError(
                f"metric {metric!r} must be in the log{where}, but it holds {', '.join(labels)}"
                f"{hint} choose one of them."
            )
        return metric
    if len(labels) == 1:
        return labels[0]
    means = [name for name in labels if _MEAN.fullmatch(name)]
    if len(means) == 1:
        return means[0]
    of_run = Counter(
        (id(run), s.problem_set, s.split) for run, s in chosen if s.metric.label in means
    )
    if means and max(of_run.values()) == 1:  # runs differ in k alone
        return "avg"
    raise InputError(
        f"one metric must be chosen, but the log holds {', '.join(labels)}; "
        f"add --metric {(means or labels)[0]}."
    )


def likely_key(runs: Sequence[ImportedRun]) -> str:
    """The key of logs that was not understood and looks most like a score of an evaluation.

    >>> likely_key([])
    'KEY'
    """
    keys = [key for run in runs for key in run.provenance.unread]
    keys = [key for key in keys if not re.search("best|max|min|std|len", key, re.I)]  # no scores
    for words in ("^(eval|val|test|validation).*(acc|score|reward|pass|correct)", "eval|val|test",
                  "acc|score|reward|pass"):
        if found := next((key for key in keys if re.search(words, key, re.I)), None):
            return found
    return "KEY"


def keys_there(runs: Sequence[ImportedRun], most: int = 12) -> str:
    """The keys of logs that were not understood, for a message; the likely scores first.

    >>> keys_there([])
    ''
    """
    keys = list(dict.fromkeys(key for run in runs for key in run.provenance.unread))
    likely = [k for k in keys if re.search("eval|val|test|acc|score|reward|pass", k, re.I)]
    listed = [*likely, *(k for k in keys if k not in likely)]
    if not listed:
        return ""
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f" (keys that were not read: {', '.join(listed[:most])}{more})"


def _refuse_blends(chosen: Sequence[tuple[ImportedRun, Series]], label: str) -> None:
    """A reward that is no success rate is not taken for one where the rate stands beside it."""
    for run, s in chosen:
        if s.metric.label != label or s.metric.variable not in ("reward", "score"):
            continue
        for other, t in chosen:
            if other is not run or t is s or t.metric.kind != "avg" or (
                (t.problem_set, t.split) != (s.problem_set, s.split)
                or _RATE.search(t.metric.variable) is None
            ):
                continue
            _, mine, its = np.intersect1d(s.step_K, t.step_K, return_indices=True)
            if np.allclose(s.score_K[mine], t.score_K[its], rtol=1e-5, atol=1e-7):
                continue
            raise InputError(
                f"one score must be meant, but run {run.name!r} has {label}, the whole reward "
                f"({s.score_K.min():.4g} to {s.score_K.max():.4g}), and {t.metric.label} "
                f"({t.score_K.min():.4g} to {t.score_K.max():.4g}); add --metric {t.metric.label} "
                f"or --metric {label}."
            )


def _refuse_mixtures(chosen: Sequence[tuple[ImportedRun, Series]], label: str) -> None:
    kinds: dict[tuple[str, str], str] = {}
    for run, s in chosen:
        kinds.setdefault((s.metric.estimator, s.metric.variable), run.name)
    if len(kinds) > 1:
        seen = "; ".join(
            f"{estimator} of {variable or '?'} (run {name!r})"
            for (estimator, variable), name in sorted(kinds.items())
        )
        raise InputError(
            f"one fit must use one estimator of one variable, but {label} is: {seen}; import the "
            "runs apart, or the per-sample dumps of all of them."
        )


def _curve(run: ImportedRun, s: Series, keep: NDArray[np.bool_], label: str) -> Curve:
    tokens, steps_K = s.tokens_K[keep], s.step_K[keep].astype(np.float64)
    timed = run.provenance.gpu_s_per_step
    assert run.problems_per_batch is not None  # asked for above
    assert run.rollouts_per_problem is not None
    return Curve(
        problems_per_batch=run.problems_per_batch, rollouts_per_problem=run.rollouts_per_problem,
        run=run.name, seed=run.seed, rollouts_K=s.rollouts_K[keep], score_K=s.score_K[keep],
        metric=label, problem_set=s.problem_set, split=s.split,
        tokens_K=tokens if np.isfinite(tokens).all() else None,
        steps_K=steps_K, gpu_hours_K=None if timed is None else steps_K * timed / 3600,
        trials=_trials(run, s),
        n_missing=s.n_missing + int((~keep).sum()), recorded=recorded_numbers(run.provenance.facts),
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
