"""Every SOURCE -> learning curves: tidy files, study folders, logs of others, published curves.

Shape legend: K evaluations, C = samples + 1 possible numbers of successes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from isocompute.errors import InputError
from isocompute.importers import load_imported, load_published, load_tidy, read_log, to_curves
from isocompute.importers.base import Curve
from isocompute.importers.wandb import is_wandb_csv
from isocompute.metrics import metric_table, parse_metric
from isocompute.store import Store, StoredRun

PUBLISHED = "published:"
_TIDY = (".csv", ".parquet")


def load_curves(
    sources: Sequence[str | Path],
    *,
    metric: str | None = None,
    problem_set: str | None = None,
    split: str = "validation",
    score_range: tuple[float, float] = (0.0, 1.0),
) -> list[Curve]:
    """Learning curves of one metric on one problem set.

    Args:
        sources: tidy files, study folders, logs that `import` knows, `published:NAME`.
        metric: avg@k, best@k, worst@k, or the word a source uses. None: avg@k with every sample
            for a study, the only metric or the only mean there is elsewhere.
        problem_set: None: the only one there is.
        split: "validation" or "train".
        score_range: of the scores of tidy files.

    Raises:
        InputError: a source that cannot be read, or that leaves open which metric, problem set
            or recipe is meant.
    """
    if not sources:
        raise InputError("at least 1 source must be named, but got 0; name a file or a folder.")
    curves = [
        curve
        for source in sources
        for curve in _load(str(source), metric, problem_set, split, score_range)
    ]
    curves = _one(curves, "problem set", lambda c: c.problem_set, problem_set, "--problem-set")
    return _one(curves, "metric", lambda c: c.metric, _metric(curves, metric), "--metric")


def _load(
    source: str,
    metric: str | None,
    problem_set: str | None,
    split: str,
    score_range: tuple[float, float],
) -> list[Curve]:
    if source.startswith(PUBLISHED):
        return load_published(source.removeprefix(PUBLISHED))
    path = Path(source)
    if (path / "study.db").is_file():
        return [
            *_study_curves(path, metric, problem_set, split),
            *_imported_curves(path, metric, problem_set, split),
        ]
    if not path.exists():
        raise InputError(
            f"{source}: a source must be a file, a folder or published:NAME, but there is none; "
            "check the path."
        )
    if path.is_file() and _is_tidy(path):
        curves = load_tidy(path, score_range=score_range)
        return [c for c in curves if c.split == split]
    return to_curves(read_log(path), metric, problem_set=problem_set, split=split)


def _is_tidy(path: Path) -> bool:
    """A CSV or Parquet table, unless its header is that of a W&B chart."""
    name = path.name.removesuffix(".gz")
    if not name.endswith(_TIDY):
        return False
    if path.suffix != ".csv":
        return True
    with path.open("rb") as file:
        header = file.readline(1 << 16).decode("utf-8", "replace")
    return not is_wandb_csv(header)


def _imported_curves(
    path: Path, metric: str | None, problem_set: str | None, split: str
) -> list[Curve]:
    runs = load_imported(path)
    return to_curves(runs, metric, problem_set=problem_set, split=split) if runs else []


def _study_curves(
    path: Path, metric: str | None, problem_set: str | None, split: str
) -> list[Curve]:
    """One curve per run and validation set; a run whose weights never moved has none."""
    if split != "validation":
        return []
    with Store(path) as store:
        runs = [run for run in store.runs() if run.state != "invalid"]
        _require_one_arm(path, runs)
        return [curve for run in runs for curve in _run_curves(store, run, metric, problem_set)]


def _run_curves(
    store: Store, run: StoredRun, metric: str | None, problem_set: str | None
) -> list[Curve]:
    found = store.evaluations(run.hash, problem_set=problem_set)
    curves: list[Curve] = []
    for name in sorted({str(s) for s in found.problem_set_K}):
        rows_K = np.flatnonzero(found.problem_set_K == name)
        samples = int(found.samples_K[rows_K].min())
        if int(found.samples_K[rows_K].max()) != samples:
            raise InputError(
                f"evaluations of one run must draw the same number of samples, but run {run.hash} "
                f"has {samples} and {int(found.samples_K[rows_K].max())}; ask for a new study."
            )
        wanted = parse_metric(metric or f"avg@{samples}")
        counts_KC = found.counts_KC[rows_K, : samples + 1]
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
            )
        )
    return curves


def _require_one_arm(path: Path, runs: Sequence[StoredRun]) -> None:
    """Runs that differ in more than allocation and seed are no repetitions of each other."""
    for key in ("recipe", "train", "engine", "engine_options"):
        values = [run.spec[key] for run in runs]
        if any(value != values[0] for value in values):
            raise InputError(
                f"{path}: the curves of one fit must share their {key}, but this study holds "
                "several; run them as studies of their own, or select rows of "
                f"`isocompute export {path} -o curves.csv`."
            )


def _metric(curves: Sequence[Curve], metric: str | None) -> str | None:
    """The metric meant: as named, or the only mean among several."""
    labels = {c.metric for c in curves}
    if metric is not None and metric not in labels:
        try:
            alias = str(parse_metric(metric))
        except InputError:
            return metric
        return alias if alias in labels else metric
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
    listed = ", ".join(repr(name) for name in labels) or "none"
    if wanted is not None and wanted not in labels:
        raise InputError(
            f"the {what} must be one of {listed}, but got {wanted!r}; choose one of them."
        )
    if wanted is None and len(labels) != 1:
        raise InputError(
            f"the sources must hold one {what}, but hold {listed}; choose one with {option}."
        )
    return [c for c in curves if wanted is None or label(c) == wanted]
