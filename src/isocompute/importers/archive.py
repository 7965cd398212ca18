"""Imported runs in study.db, beside the runs of a study of one's own.

Tables (their columns: `store.schema`), made when first needed: `imports` (one row per run),
`import_series` (one per metric), `import_scores` (one per score), `import_outcomes` (counts and
successes per problem, packed as in `evaluations`), `import_errors` (rows that were not used). Each
row bears its seal.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isocompute.errors import AskedError, InputError
from isocompute.importers.again import alike, changes, settle_again
from isocompute.importers.runs.doubts import refuse_doubts
from isocompute.importers.runs.identity import named_apart, settle_runs
from isocompute.importers.values.imported import (
    ImportedRun,
    Metric,
    Outcomes,
    Provenance,
    RowError,
    Series,
)
from isocompute.importers.values.reading import anew
from isocompute.importers.values.timing import gpu_hours
from isocompute.importers.words.asking import (
    answered,
    asked_at_once,
    configuration_asked,
    first_error,
    require_configuration,
)
from isocompute.importers.words.names import with_names
from isocompute.importers.words.scale import check_range, refuse_percent
from isocompute.importers.words.scored import keys_there, likely_options, likely_scores, no_reward
from isocompute.importers.words.settings import Settings
from isocompute.store import schema, seals
from isocompute.store.database import Database
from isocompute.store.pack import count_text, pack, unpack

# Beside the provenance: what the log calls the scores of each series, and words of its own.
_KEYS, _OWN = "keys", "own"


class ImportSummary(NamedTuple):
    """What an import wrote.

    Args:
        stored: runs stored anew.
        known: runs that were there already, as they are.
        replaced: runs that were there and are read otherwise now: name, and what changed.
        n_errors: rows not used.
        notes: run and line.
    """

    stored: list[str]
    known: list[str]
    replaced: list[tuple[str, str]]
    n_errors: int
    notes: list[tuple[str, str]]


@anew
def read_logs(
    sources: Sequence[str | Path], *, settings: Settings | None = None,
    score_range: tuple[float, float] | None = None,
) -> list[ImportedRun]:
    """The runs of several logs and folders, each run once; see `import_logs`."""
    from isocompute.importers.read import read_log  # with all readers, which a table needs not

    if not sources:
        raise InputError("at least 1 source must be given, but got 0; name a log or a folder.")
    if score_range is not None:
        check_range(score_range)
    runs = [run for source in sources for run in read_log(source, settings=settings)]
    if len(sources) > 1:
        runs = settle_runs(runs, resumed=None if settings is None else settings.resumed)
    if score_range is None:
        refuse_percent(runs)
        return runs
    return [
        replace(run, provenance=replace(run.provenance, score_range=score_range)) for run in runs
    ]


def import_logs(
    sources: Sequence[str | Path], folder: str | Path, *, settings: Settings | None = None,
    score_range: tuple[float, float] | None = None,
) -> ImportSummary:
    """Read logs and keep their runs in a study folder, as if all logs were read at once.

    The same run twice is kept once; a log that is there and says otherwise now, because it went on
    or is read with other settings, is replaced.

    Args:
        sources: files and folders that `read_log` knows.
        folder: the study folder; made where it is missing.
        settings: what the logs do not say.
        score_range: what scores may be, where that is not 0..1; kept with the runs.

    Raises:
        InputError: if a source is no log, or a run's B_p or n is not known. Nothing is written
            then: everything is read before.
    """
    def read(words: Sequence[str]) -> list[ImportedRun]:
        return ready_runs(sources, folder, settings, words, score_range)

    return store_runs(asked_at_once(read), folder, settings)


def ready_runs(
    sources: Sequence[str | Path], folder: str | Path, settings: Settings | None,
    words: Sequence[str] = (), score_range: tuple[float, float] | None = None,
) -> list[ImportedRun]:
    """The runs of sources, read with words of the command line, if they can be kept in a folder.

    Raises:
        InputError: what `store_runs` would.
    """
    settings, _ = answered(settings, words)
    runs = read_logs(sources, settings=settings, score_range=score_range)
    there = load_imported(folder) if (Path(folder) / "study.db").is_file() else []
    settle_with(complete_runs(runs), there, settings)
    return runs


def store_runs(
    runs: Sequence[ImportedRun], folder: str | Path, settings: Settings | None = None
) -> ImportSummary:
    """Keep imported runs in a study folder, in one transaction; see `import_logs`.

    Args:
        runs: each once.
        folder: the study folder; made where it is missing.
        settings: what the logs do not say: `resumed`, of a log that may go on with one that is
            there; `split`, where scores of training are meant.

    Raises:
        InputError: if a run's B_p or n is not known, no run has a score, or it is not clear how
            a run and one that is there go together.
    """
    settings = settings or Settings()
    kept = complete_runs(runs)
    database = Database(folder, create=True)
    try:
        with database.write() as connection:
            schema.create_imports(connection)
            seals.adopt(connection)
            connection.execute(
                "INSERT OR IGNORE INTO study (key, value) VALUES ('name', ?)",
                (json.dumps(Path(folder).absolute().name),),
            )
            there = _loaded(database)
            settled = settle_with(kept, there, settings)
            gone = [old for old in there if not any(alike(run, old) for run in settled)]
            for old in gone:
                _forget(connection, old)
            fresh = [run for run in settled if not any(alike(run, old) for old in there)]
            for run in fresh:
                _store(connection, run)
    finally:
        database.close()
    before = [next((old for old in gone if _follows_on(run, old)), None) for run in fresh]
    stored = [run.name for run, old in zip(fresh, before, strict=True) if old is None]
    replaced = [(run.name, changes(run, old))
                for run, old in zip(fresh, before, strict=True) if old is not None]  # fmt: skip
    written = {run.name for run in fresh}
    known = [run.name for run in kept if run.name not in written]
    notes = [(run.name, note) for run in kept for note in run.notes]
    notes += [(run.name, "it holds no metric that is known and was left out")
              for run in runs if not run.series]
    # the runs of one file share their errors
    errors = {(r.provenance.path, r.provenance.sha256): r.n_errors for r in runs}
    return ImportSummary(stored, known, replaced, sum(errors.values()), notes)


def complete_runs(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """The runs that have a score, each with its B_p and n.

    A try that was never evaluated and says neither is left out where others have held-out scores.

    Raises:
        InputError: where one of these is not known.
    """
    kept = [run for run in runs if run.series]
    if not kept:
        words = likely_options(runs)
        unlike = no_reward(runs)
        other = next((n for run in runs for n in run.notes if "gave no run (one: " in n), "")
        other = f" Besides, {other}." if other else ""
        asked = InputError(
            f"at least 1 run must hold a metric that is known, but none of {len(runs)} does"
            f"{keys_there(runs) or first_error(runs)}; name the score: "
            f"{likely_scores(runs)}.{unlike}{other}", options=words[0], trial=words[1],
        )
        more = None if words[1] or unlike else configuration_asked(runs)
        raise asked if more is None else AskedError([asked, more])
    trained = [run for run in kept if all(s.split == "train" for s in run.series)]
    left = [run for run in trained if len(trained) < len(kept) and None in run.design[:2]]
    kept = [run for run in kept if all(run is not one for one in left)]  # arrays have no equality
    require_configuration(kept)
    told = [f"left out: {run.name} has no held-out score, and B_p and n are not known"
            for run in left]  # fmt: skip
    kept[0] = replace(kept[0], notes=(*kept[0].notes, *told))
    return with_names(kept)


def settle_with(
    kept: Sequence[ImportedRun], there: Sequence[ImportedRun], settings: Settings
) -> list[ImportedRun]:
    """Runs and those that a study folder holds, as if all were read at once; nothing in doubt.

    Raises:
        InputError: where it is not clear how they go together.
    """
    settled = named_apart(settle_again(kept, there, resumed=settings.resumed))
    refuse_doubts(settled, training=settings.split is not None)
    return settled


def _follows_on(run: ImportedRun, old: ImportedRun) -> bool:
    return run.name == old.name or run.provenance.sha256 == old.provenance.sha256


def _forget(connection: sqlite3.Connection, run: ImportedRun) -> None:
    """Take a run out, with all that hangs on it."""
    mine = "(SELECT import FROM imports WHERE name = ? AND sha256 = ?)"
    key = (run.name, run.provenance.sha256)
    series = f"series IN (SELECT series FROM import_series WHERE import IN {mine})"
    connection.execute(f"DELETE FROM import_scores WHERE {series}", key)
    for table in ("import_series", "import_outcomes", "import_errors"):
        connection.execute(f"DELETE FROM {table} WHERE import IN {mine}", key)
    connection.execute("DELETE FROM imports WHERE name = ? AND sha256 = ?", key)


def _store(connection: sqlite3.Connection, run: ImportedRun) -> None:
    row = connection.execute(
        "INSERT INTO imports (name, sha256, problems_per_batch, rollouts_per_problem, "
        "steps, seed, n_rows, n_errors, notes, provenance) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.name, run.provenance.sha256, run.problems_per_batch, run.rollouts_per_problem,
         run.steps, run.seed, run.n_rows, run.n_errors, json.dumps(run.notes),
         json.dumps(asdict(run.provenance)
                    | {_KEYS: [s.key for s in run.series], _OWN: dict(run.own)})),
    )
    key = row.lastrowid
    for s in run.series:
        series = connection.execute(
            "INSERT INTO import_series (import, metric, kind, samples, estimator, variable, core, "
            "problem_set, split, n_missing) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (key, s.metric.label, s.metric.kind, s.metric.samples, s.metric.estimator,
             s.metric.variable, s.metric.core, s.problem_set, s.split, s.n_missing),
        ).lastrowid
        # SQLite stores NaN as NULL, which is what it means here
        connection.executemany(
            "INSERT INTO import_scores (series, step, rollouts, tokens, score) "
            "VALUES (?, ?, ?, ?, ?)",
            ((series, *point) for point in zip(
                s.step_K.tolist(), s.rollouts_K.tolist(), s.tokens_K.tolist(),
                s.score_K.tolist(), strict=True)),
        )
    connection.executemany(
        "INSERT INTO import_outcomes (import, step, problem_set, split, samples, counts, "
        "successes, problems) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((key, o.step, o.problem_set, o.split, o.samples, count_text(o.successes_P, o.samples),
          pack(o.successes_P), json.dumps(o.problem_P)) for o in run.outcomes),
    )
    connection.executemany(
        "INSERT INTO import_errors (import, file, line, reason) VALUES (?, ?, ?, ?)",
        ((key, *e) for e in run.errors),
    )


def load_imported(folder: str | Path, gpus: float | None = None) -> list[ImportedRun]:
    """The imported runs of a study folder; empty where none were imported.

    Args:
        folder: of the study.
        gpus: that timed runs were trained on, as said now; None: as said at the import.

    Raises:
        InputError: if there is no study there, or a record is damaged.
    """
    database = Database(folder)
    try:
        runs = _loaded(database)
    finally:
        database.close()
    return runs if gpus is None else [
        replace(run, provenance=replace(told, gpu_s_per_step=told.s_per_step * gpus))
        if (told := run.provenance).s_per_step is not None else run for run in runs
    ]  # fmt: skip


def imported_rows(folder: str | Path, *, times: bool = True) -> Iterator[dict[str, Any]]:
    """The imported runs of a study folder as rows of tidy curves, a score each.

    With `times` their seconds and GPU-hours until then. Of runs that share a name, as logs of one
    name in several folders do, a number tells them apart.
    """
    names = set[str]()
    for run in load_imported(folder):
        tried = (run.name, *(f"{run.name}-{i}" for i in range(2, len(names) + 3)))
        names.add(name := next(one for one in tried if one not in names))
        told = run.provenance
        for s in run.series:
            took = {
                name: [None] * len(s.step_K) if each is None else (
                    gpu_hours(s.step_K.astype(float), each, told.pace) * unit).tolist()
                for name, each, unit in (("wall_s", told.s_per_step, 3600.0),
                                         ("gpu_hours", told.gpu_s_per_step, 1.0))
            }  # fmt: skip
            for i, (step, rollouts, tokens, score) in enumerate(zip(
                s.step_K.tolist(), s.rollouts_K.tolist(), s.tokens_K.tolist(),
                s.score_K.tolist(), strict=True,
            )):  # fmt: skip
                yield {
                    "problems_per_batch": run.problems_per_batch,
                    "rollouts_per_problem": run.rollouts_per_problem,
                    "rollouts": rollouts, "score": score, "best": None, "worst": None,
                    "tokens": tokens if tokens == tokens else None, "seed": run.seed,
                    "run": name, "steps": step, "metric": s.metric.label,
                    "problem_set": s.problem_set, "split": s.split,
                    **({k: took[k][i] for k in took} if times else {}),
                }  # fmt: skip


def _loaded(database: Database) -> list[ImportedRun]:
    if not seals.has_imports(database.read, str(database.path)):
        return []
    database.refuse_damage(seals.imported(database.read))
    return [
        _load(database, row) for row in database.read(
            "SELECT import, name, problems_per_batch, rollouts_per_problem, steps, seed, n_rows, "
            "n_errors, notes, provenance FROM imports ORDER BY import"
        )
    ]


def _load(database: Database, row: tuple[Any, ...]) -> ImportedRun:
    key, name, b_p, n, steps, seed, n_rows, n_errors, notes, provenance = row
    told, series = json.loads(provenance), list[Series]()
    keys = [*told.get(_KEYS, ())]
    for (number, kind, samples, estimator, variable, core, problem_set, split,
         n_missing) in database.read(
        "SELECT series, kind, samples, estimator, variable, core, problem_set, split, n_missing "
        "FROM import_series WHERE import = ? ORDER BY series", (key,)
    ):
        points = database.read(
            "SELECT step, rollouts, tokens, score FROM import_scores WHERE series = ? "
            "ORDER BY step", (number,)
        )
        column = list(zip(*points, strict=True)) if points else [()] * 4
        series.append(Series(
            metric=Metric(kind=kind, samples=samples, estimator=estimator, variable=variable,
                          core=bool(core)),
            problem_set=problem_set, split=split, n_missing=n_missing,
            key=keys.pop(0) if keys else "",
            step_K=np.array(column[0], np.int64), rollouts_K=np.array(column[1], np.float64),
            tokens_K=np.array(column[2], np.float64), score_K=np.array(column[3], np.float64),
        ))
    outcomes = tuple(
        Outcomes(step=step, problem_set=problem_set, split=split, samples=samples,
                 problem_P=tuple(json.loads(problems)),
                 successes_P=unpack(successes, sum(json.loads(counts))))
        for step, problem_set, split, samples, counts, successes, problems in database.read(
            "SELECT step, problem_set, split, samples, counts, successes, problems "
            "FROM import_outcomes WHERE import = ? ORDER BY rowid", (key,))
    )
    errors = tuple(RowError(*e) for e in database.read(
        "SELECT file, line, reason FROM import_errors WHERE import = ? ORDER BY rowid", (key,)))
    return ImportedRun(
        name=name, problems_per_batch=b_p, rollouts_per_problem=n, steps=steps, seed=seed,
        series=tuple(series), outcomes=outcomes, errors=errors, n_errors=n_errors, n_rows=n_rows,
        notes=tuple(json.loads(notes)), provenance=_provenance(told), own=told.get(_OWN, {}),
    )


def _provenance(kept: dict[str, Any]) -> Provenance:
    """As it was stored; a study of an earlier version has fewer fields, of a later one more."""
    known = {f.name: kept[f.name] for f in fields(Provenance) if f.name in kept}
    for name in ("inferred", "unread", "likely", "beside_loss", "score_range", "rates"):
        if known.get(name) is not None:
            known[name] = tuple(known[name])
    known["pace"] = tuple((int(step), float(share)) for step, share in known.get("pace", ()))
    return Provenance(**known)
