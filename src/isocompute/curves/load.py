"""Every SOURCE -> learning curves: tidy files, study folders, logs of others, published curves.

Shape legend: K evaluations, C = samples + 1 possible numbers of successes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocompute.errors import InputError
from isocompute.importers import (
    Settings,
    load_imported,
    load_published,
    load_tidy,
    note_lines,
    to_curves,
)
from isocompute.importers.base import Curve
from isocompute.importers.identity import require_one_arm as require_one_run_arm
from isocompute.importers.identity import select_imported
from isocompute.importers.runs import ImportedRun
from isocompute.importers.scale import PLAIN, rescaled
from isocompute.importers.table import tables_or_runs
from isocompute.metrics import metric_table, parse_metric, score_from_counts
from isocompute.store import Store, StoredRun
from isocompute.store.arms import (
    LABELS,
    Where,
    matches,
    no_match,
    parse_where,
    require_one_arm,
    select_runs,
    split_source,
)
from isocompute.store.health import failed_rules

PUBLISHED = "published:"
_CURVE_KEYS = ("run", "seed", "problems_per_batch", "rollouts_per_problem")


def load_curves(
    sources: str | Path | Sequence[str | Path],
    *,
    metric: str | None = None,
    problem_set: str | None = None,
    split: str | None = None,
    where: Sequence[str] = (),
    score_range: tuple[float, float] = (0.0, 1.0),
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Learning curves of one metric on one problem set.

    Args:
        sources: one or more tidy files, folders of nothing but such, study folders, logs that
            `import` knows, or `published:NAME`, each with a selection of its runs where wanted:
            `STUDY[recipe=kl]`.
        metric: avg@k, best@k, worst@k, or the word a source uses. None: avg@k with every sample
            for a study, the only metric or the only mean there is elsewhere.
        problem_set: None: the only one there is.
        split: "validation" (the default) or "train": of a study, the success on the training
            batches between two evaluations.
        where: KEY=VALUE words that narrow every source, see `store.arms`.
        score_range: of the scores of tidy files.
        settings: what the sources do not say (`importers.load_settings`).
        say: hears, line by line, what was left out of logs, and why.

    Raises:
        InputError: a source that cannot be read, or that leaves open which metric, problem set
            or recipe is meant.
    """
    asked = {"metric": metric, "problem_set": problem_set, "split": split}
    return _load_all(sources, asked, where, score_range, settings, say, train=None)


def load_with_train(
    sources: str | Path | Sequence[str | Path],
    *,
    metric: str | None = None,
    problem_set: str | None = None,
    split: str | None = None,
    where: Sequence[str] = (),
    score_range: tuple[float, float] = (0.0, 1.0),
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[list[Curve], list[Curve]]:
    """The curves of `load_curves`, and of the same sources on their training batches.

    The second list, for the train-test gap, is empty where a source says nothing about training,
    or where its split was chosen.
    """
    asked = {"metric": metric, "problem_set": problem_set, "split": split}
    train: list[Curve] = []
    curves = _load_all(sources, asked, where, score_range, settings, say, train=train)
    # Of several metrics of training, the one that is fitted; a reward beyond 0..1 is no success.
    same = [c for c in train if c.metric == curves[0].metric]
    same = same or (train if len({c.metric for c in train}) == 1 else [])
    rates = all(((c.score_K >= 0) & (c.score_K <= 1)).all() for c in same)
    return curves, same if rates else []


def _load_all(
    sources: str | Path | Sequence[str | Path],
    asked: dict[str, str | None],
    where: Sequence[str],
    score_range: tuple[float, float],
    settings: Settings | None,
    say: Callable[[str], None] | None,
    *,
    train: list[Curve] | None,
) -> list[Curve]:
    if isinstance(sources, (str, Path)):
        sources = [sources]
    for source in sources if isinstance(sources, (list, tuple)) else [sources]:
        if not isinstance(source, (str, Path)):
            raise InputError(
                f"a source must be a path or published:NAME, but got a {type(source).__name__}; "
                "write a table to a file first (df.to_parquet('runs.parquet')) and give its path."
            )
    if not sources:
        raise InputError("at least 1 source must be named, but got 0; name a file or a folder.")
    shared = parse_where(where)
    for key in LABELS:
        asked[key] = asked[key] or shared.pop(key, None)
    curves: list[Curve] = []
    arms: list[StoredRun] = []
    for source in sources:
        path, own = split_source(str(source))
        words = {key: own.pop(key, None) or asked[key] for key in LABELS}
        wanted = _Wanted(**words, say=say, train=train if words["split"] is None else None)
        found = _load(path, {**shared, **own}, wanted, score_range, arms, settings)
        if not found:
            raise _nothing_in(path, wanted)
        if words["problem_set"] is not None:
            found = _one(found, "problem set", _set_of, words["problem_set"], "--problem-set")
        if words["metric"] is not None:
            found = _one(found, "metric", _metric_of, _metric(found, words["metric"]), "--metric")
        curves += found
    if len(sources) > 1:
        require_one_arm(" ".join(map(str, sources)), arms)
    if len({c.arm for c in curves if c.arm}) > 1:
        _one(curves, "arm", lambda c: c.arm, None, "--where arm=NAME")
    curves = _one(curves, "problem set", _set_of, None, "--problem-set")
    return _one(curves, "metric", _metric_of, _metric(curves, None), "--metric")


class _Wanted(NamedTuple):
    """What is asked of every source; None where it is left open."""

    metric: str | None
    problem_set: str | None
    split: str | None
    say: Callable[[str], None] | None = None
    train: list[Curve] | None = None  # takes the curves of training batches, where asked for


def _load(
    path: str,
    where: Where,
    wanted: _Wanted,
    score_range: tuple[float, float],
    arms: list[StoredRun],
    settings: Settings | None,
) -> list[Curve]:
    """Curves of one source; the runs of a study are added to `arms`."""
    wanted = wanted._replace(split=wanted.split or "validation")
    if path.startswith(PUBLISHED):
        published = load_published(path.removeprefix(PUBLISHED))
        return _narrow(path, [c for c in published if c.split == wanted.split], where)
    file = Path(path)
    if (file / "study.db").is_file():
        curves = _study_curves(file, where, wanted, arms)
        if wanted.train is not None:
            wanted.train.extend(_study_curves(file, where, _Wanted(None, None, "train"), []))
        imported = load_imported(file)
        if imported:
            curves += _log_curves(path, imported, wanted, where, score_range)
        return curves
    if not file.exists():
        raise InputError(
            f"{path}: a source must be a file, a folder or published:NAME, but there is none; "
            "check the path."
        )
    tables, runs = tables_or_runs(file, settings, wanted.say)
    if tables:
        curves = []
        for table in tables:
            curves += load_tidy(table, score_range=score_range, where=where, settings=settings)
        if wanted.train is not None:
            wanted.train.extend([c for c in curves if c.split == "train"])
        return [c for c in curves if c.split == wanted.split]
    if wanted.say is not None:
        told = [(run.name, note) for run in runs for note in (*run.notes, *run.concluded)]
        for line in note_lines(told):
            wanted.say(line)
    return _log_curves(path, runs, wanted, where, score_range)


def _nothing_in(path: str, wanted: _Wanted) -> InputError:
    """Why a source gives no curve: no such split, another problem set, or no results yet."""
    if not (Path(path) / "study.db").is_file():
        split = wanted.split or "validation"
        return InputError(
            f"{path}: a source must hold curves of the split that is asked for, but none is of "
            f"{split!r}; choose another with --split."
        )
    with Store(path) as store:
        runs = store.runs()
    sets = sorted({name for run in runs for name in run.spec["validation"]})
    if wanted.split != "train" and wanted.problem_set not in (None, *sets):
        return InputError(
            f"the problem set must be one of {', '.join(map(repr, sets))}, but got "
            f"{wanted.problem_set!r}; choose one of them."
        )
    what = "update" if wanted.split == "train" else "evaluation"
    return InputError(
        f"{path}: a curve needs an {what} of a valid run, but none of {len(runs)} runs has one; "
        "start the study again: isocompute run STUDY.yaml (how far it is: isocompute status "
        f"{path})."
    )


def _log_curves(
    path: str,
    runs: Sequence[ImportedRun],
    wanted: _Wanted,
    where: Where,
    score_range: tuple[float, float],
) -> list[Curve]:
    runs = select_imported(path, runs, where)
    require_one_run_arm([run for run in runs if run.series], where)
    if score_range == PLAIN:  # as it was declared at the import
        score_range = next((r for run in runs if (r := run.provenance.score_range)), PLAIN)
    if wanted.train is not None:
        # nothing about training, several metrics of it, or rewards on another scale
        with contextlib.suppress(InputError):
            wanted.train.extend(rescaled(to_curves(runs, split="train"), score_range, path))
    found = to_curves(
        runs, wanted.metric, problem_set=wanted.problem_set, split=wanted.split, say=wanted.say
    )
    found = rescaled(found, score_range, path)
    if score_range != PLAIN and wanted.say is not None:
        low, high = score_range
        wanted.say(
            f"{path}: scores of {low:g}..{high:g} are shown in 0..1; best@k and worst@k of rewards "
            "that are no success or failure are the log's own, never computed"
        )
    return found


def _narrow(path: str, curves: list[Curve], where: Where) -> list[Curve]:
    """What a selection leaves of curves that know no more than their configuration and run."""
    for key, value in where.items():
        if key not in _CURVE_KEYS:
            raise InputError(
                f"{path}: a selection of logs must name one of {', '.join(_CURVE_KEYS)}, but got "
                f"{key!r}; logs hold no recipe, so import them apart, or select by run=PATTERN."
            )
        there = sorted({str(getattr(c, key)) for c in curves})
        curves = [c for c in curves if matches(str(getattr(c, key)), value)]
        if not curves:
            raise no_match(path, key, value, there)
    return curves


def _study_curves(path: Path, where: Where, wanted: _Wanted, arms: list[StoredRun]) -> list[Curve]:
    """One curve per run and set; a run whose weights never moved has none."""
    with Store(path) as store:
        runs = [run for run in store.runs() if run.state != "invalid"]
        runs = select_runs(path, runs, where)
        require_one_arm(path, runs)
        arms += runs
        if wanted.split == "train":
            return [c for run in runs if (c := _train_curve(store, run, wanted.metric)) is not None]
        return [curve for run in runs for curve in _run_curves(store, run, wanted)]


def _run_curves(store: Store, run: StoredRun, asked: _Wanted) -> list[Curve]:
    found = store.evaluations(run.hash, problem_set=asked.problem_set)
    failed = failed_rules(store, run)
    curves: list[Curve] = []
    for name in sorted(set(found.problem_set_K.tolist())):
        rows_K = np.flatnonzero(found.problem_set_K == name)
        samples = int(found.samples_K[rows_K].min())
        if int(found.samples_K[rows_K].max()) != samples:
            raise InputError(
                f"evaluations of one run must draw the same number of samples, but run {run.hash} "
                f"has {samples} and {int(found.samples_K[rows_K].max())}; ask for a new study."
            )
        wanted = parse_metric(asked.metric or f"avg@{samples}")
        counts_KC = found.counts_KC[rows_K, : samples + 1]
        problems = int(counts_KC.sum(axis=1).min())
        score_K = counts_KC @ metric_table(samples, wanted) / counts_KC.sum(axis=1)
        curves.append(
            Curve(
                problems_per_batch=run.spec["problems_per_batch"],
                rollouts_per_problem=run.spec["rollouts_per_problem"],
                run=run.hash,
                seed=run.spec["seed"],
                rollouts_K=found.rollouts_K[rows_K].astype(np.float64),
                score_K=score_K,
                metric=str(wanted),
                problem_set=name,
                tokens_K=found.tokens_K[rows_K].astype(np.float64),
                steps_K=found.step_K[rows_K].astype(np.float64),
                trials=problems * (samples if wanted.kind == "avg" else 1),
                failed_rules=failed,
            )
        )
    return curves


def _train_curve(store: Store, run: StoredRun, metric: str | None) -> Curve | None:
    """Scores on the training batches between two evaluations, where those rollouts were drawn.

    On-policy batches are samples of the policy before each update, so a window's mean stands at
    the mean of the rollouts drawn before its updates. None for a run without updates.
    """
    steps = store.steps(run.hash)
    due_K = np.unique(store.evaluations(run.hash).step_K)
    window_K = np.searchsorted(due_K, steps.step_K, side="left")
    wanted = parse_metric(metric or "avg@1")
    batch = run.spec["problems_per_batch"] * run.spec["rollouts_per_problem"]
    places, scores, tokens, ends = [], [], [], []
    for window in np.unique(window_K):
        rows = np.flatnonzero(window_K == window)
        counts = [steps.successes[i] for i in rows]
        judged = np.concatenate([steps.judged[i] for i in rows])
        enough = judged >= min(wanted.k, int(steps.samples_K[rows].max(initial=0)))
        if not enough.any():
            continue
        score = score_from_counts(np.concatenate(counts)[enough], judged[enough], wanted)
        scores.append(float(score))
        places.append(float((steps.rollouts_K[rows] - batch).mean()))
        tokens.append(float(steps.tokens_K[rows].mean()))
        ends.append(float(steps.step_K[rows].mean() - 1))
    if not scores:
        return None
    return Curve(
        problems_per_batch=run.spec["problems_per_batch"],
        rollouts_per_problem=run.spec["rollouts_per_problem"],
        run=run.hash,
        seed=run.spec["seed"],
        rollouts_K=np.array(places),
        score_K=np.array(scores),
        metric=str(wanted),
        problem_set=str(run.spec["train"]["name"]),
        split="train",
        tokens_K=np.array(tokens),
        steps_K=np.array(ends),
    )


def _set_of(curve: Curve) -> str:
    return curve.problem_set


def _metric_of(curve: Curve) -> str:
    return curve.metric


def _metric(curves: Sequence[Curve], metric: str | None) -> str | None:
    """The metric meant: as named, or the only mean among several."""
    labels = {c.metric for c in curves}
    if metric == "score" and "" in labels:
        return ""  # a table that names no metric
    if metric is not None and metric not in labels:
        try:
            asked = parse_metric(metric)
        except InputError:
            return metric
        if str(asked) in labels:
            return str(asked)
        # Columns `best` and `worst` of a table are over as many samples as its mean.
        return asked.kind if f"avg@{asked.k}" in labels and asked.kind in labels else metric
    if metric is None and len(labels) > 1:
        means = [name for name in labels if re.fullmatch(r"avg@\d+|avg|score|", name)]
        return means[0] if len(means) == 1 else None
    return metric


def _one(
    curves: list[Curve],
    what: str,
    label: Callable[[Curve], str],
    wanted: str | None,
    option: str,
) -> list[Curve]:
    """The curves with one label; which one must be clear."""
    labels = sorted({label(c) for c in curves})
    unnamed = "score" if what == "metric" else ""
    listed = ", ".join(repr(name or unnamed) for name in labels) or "none"
    if wanted is not None and wanted not in labels:
        raise InputError(
            f"the {what} must be one of {listed}, but got {wanted!r}; choose one of them."
        )
    if wanted is None and len(labels) != 1:
        raise InputError(
            f"the sources must hold one {what}, but hold {listed}; choose one with {option}."
        )
    return [c for c in curves if wanted is None or label(c) == wanted]
