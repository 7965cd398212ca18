"""What a study file asks for, entered into the store: new, extended, or refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.engines import engine_target, load_engine
from isocompute.errors import InputError
from isocompute.problems import ProblemSet
from isocompute.recipe import Recipe
from isocompute.store.begun import keep_begun_recipes
from isocompute.store.database import Database
from isocompute.store.edited import coordinates, remove_replaced, replace_edited
from isocompute.store.files import run_folder
from isocompute.store.made_of import fingerprints, refuse_changed
from isocompute.study.spec import RunSpec
from isocompute.study.sweep import Study


def register(database: Database, study: Study, *, retry_failed: bool = False) -> Study:
    """Enter a study's runs: new ones are added, a larger budget continues the old ones.

    Runs in the store that the study no longer asks for stay as they are; one that was edited
    before it had results becomes what it was edited to.

    Args:
        database: of the study.
        study: validated.
        retry_failed: make failed and invalid runs pending again.

    Returns:
        The study under the recipes that it was begun with, see `keep_begun_recipes`.

    Raises:
        InputError: if the study, or a file that it names, was edited in a way that would change
            runs that have results; the difference is shown, and nothing is written.
    """
    made_of = fingerprints(study)
    with database.write() as connection:
        stored = _stored(connection)
        study = keep_begun_recipes(stored, study)
        if _adopt(connection, database.folder, stored, study):
            stored = _stored(connection)
        _refuse_edits(stored, study)
        replace_edited(connection, stored, study)
        for spec in study.runs:
            _add_run(connection, spec)
        if retry_failed:
            connection.execute(
                "UPDATE runs SET state = 'pending', reason = '', failures = 0 "
                "WHERE state IN ('failed', 'invalid')"
            )
        revisions = _revisions(connection, study)
        made_of = refuse_changed(connection, study, made_of)
        for key, value in (("name", study.name), ("source", dict(study.source)),
                           ("slices", list(study.slices)), ("revisions", revisions),
                           ("made_of", made_of)):  # fmt: skip
            connection.execute(
                "INSERT OR REPLACE INTO study (key, value) VALUES (?, ?)",
                (key, json.dumps(value, sort_keys=True)),
            )
    remove_replaced(database)
    return study


def _revisions(connection: sqlite3.Connection, study: Study) -> dict[str, int]:
    """Of each engine at work: of its random numbers and rules, which a study never mixes.

    Raises:
        InputError: if runs that are to go on, or new ones, would follow others than those that
            the study was begun with.
    """
    row = connection.execute("SELECT value FROM study WHERE key = 'revisions'").fetchone()
    known: dict[str, int] = json.loads(row[0]) if row else {}
    for name in sorted({spec.engine for spec in study.runs}):
        revision = int(getattr(load_engine(engine_target(name)), "revision", 1))
        begun, pending = (
            connection.execute(sql, (name,)).fetchone()[0]
            for sql in (
                "SELECT count(*) FROM runs WHERE steps_done + evaluation_rollouts > 0 "
                "AND json_extract(spec, '$.engine') = ?",
                "SELECT count(*) FROM runs WHERE state = 'pending' "
                "AND json_extract(spec, '$.engine') = ?",
            )
        )
        before = known.get(name, 1) if begun else revision
        if before != revision and pending:
            raise InputError(
                "a study must draw its random numbers in the same way to its end, but engine "
                f"{name!r} began with scheme {before} and this isocompute has scheme {revision}; "
                "finish it with the version that began it, or start anew in another folder (-o)."
            )
        known[name] = before
    return known


_Stored = dict[str, tuple[dict[str, Any], int]]  # hash -> (specification, steps done)


def _stored(connection: sqlite3.Connection) -> _Stored:
    rows = connection.execute("SELECT hash, spec, steps_done FROM runs ORDER BY steps_done")
    return {row[0]: (json.loads(row[1]), row[2]) for row in rows}


def _adopt(connection: sqlite3.Connection, folder: Path, stored: _Stored, study: Study) -> int:
    """Give runs of an older version the hash that the same run has now.

    A recipe grows with versions: what an older one did not know has its default. A folder is
    moved before the commit, so a death in between is made good the next time.
    """
    asked = {spec.hash for spec in study.runs}
    defaults = Recipe().to_dict()
    known = {_content(spec, defaults): h for h, (spec, _) in stored.items() if h not in asked}
    adopted = 0
    for spec in study.runs if known else ():
        old = None if spec.hash in stored else known.get(_content(spec.to_dict(), defaults))
        if old is None:
            continue
        source, target = run_folder(folder, old), run_folder(folder, spec.hash)
        if source.exists() and not target.exists():
            source.rename(target)
        connection.execute("UPDATE runs SET hash = ? WHERE hash = ?", (spec.hash, old))
        adopted += 1
    return adopted


def _content(spec: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """What a run is, with every word of a recipe that this version knows."""
    content = {key: value for key, value in spec.items() if key not in ("steps", "arm")}
    recipe = {**defaults, **content.get("recipe", {})}
    content["recipe"] = {k: v for k, v in recipe.items() if k in defaults or v is not None}
    return json.dumps(content, sort_keys=True)


def _add_run(connection: sqlite3.Connection, spec: RunSpec) -> None:
    for problems in (spec.train, *spec.validation.values()):
        _add_problems(connection, problems)
    content = spec.to_dict()
    steps = content.pop("steps")
    connection.execute(
        "INSERT INTO runs (hash, spec, target_steps, state) VALUES (?, ?, ?, 'pending') "
        "ON CONFLICT (hash) DO UPDATE SET target_steps = excluded.target_steps, "
        "spec = excluded.spec",
        (spec.hash, json.dumps(content, sort_keys=True), steps),
    )
    # A larger budget wakes a finished run up; a smaller one leaves it finished.
    connection.execute(
        "UPDATE runs SET state = CASE WHEN steps_done >= target_steps THEN 'done' "
        "ELSE 'pending' END WHERE hash = ? AND state = 'done'",
        (spec.hash,),
    )


def _add_problems(connection: sqlite3.Connection, problems: ProblemSet) -> None:
    known = connection.execute(
        "SELECT 1 FROM problem_sets WHERE sha256 = ?", (problems.sha256,)
    ).fetchone()
    if known:
        return
    connection.execute(
        "INSERT INTO problem_sets (sha256, verifier, size) VALUES (?, ?, ?)",
        (problems.sha256, problems.verifier, len(problems)),
    )
    connection.executemany(
        "INSERT INTO problems (set_sha256, position, id, prompt, answer, source, pass_rate, "
        "pass_rate_samples) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(problems.sha256, i, _text(p.id), _text(p.prompt), _text(p.answer), _text(p.source),
          p.pass_rate, p.pass_rate_samples) for i, p in enumerate(problems.problems)],
    )  # fmt: skip


def _text(value: str) -> str:
    # SQLite takes no lone surrogates; they are kept readable rather than lost.
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _refuse_edits(stored: Mapping[str, tuple[dict[str, Any], int]], study: Study) -> None:
    asked = {spec.hash for spec in study.runs}
    orphaned: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run_hash, (content, steps_done) in stored.items():
        if run_hash not in asked and steps_done > 0:
            orphaned.setdefault(coordinates(content), []).append(content)
    for spec in study.runs:
        if spec.hash in stored:
            continue
        new = spec.to_dict()
        olds = orphaned.get(coordinates(new))
        if not olds:
            continue
        del new["steps"]
        new.pop("arm", None)
        found: list[list[str]] = [
            differences({k: v for k, v in old.items() if k != "arm"}, new) for old in olds
        ]
        nearest = min(found, key=len)  # of several variants
        changed = "; ".join(map(_in_file_words, nearest))
        raise InputError(
            "an edit must not change runs that have results, but in the run problems_per_batch="
            f"{new['problems_per_batch']}, rollouts_per_problem={new['rollouts_per_problem']}, "
            f"seed={new['seed']} it changes {changed}; undo it, list both variants, or use "
            "another folder (-o)."
        )


# What a specification calls otherwise than the study file does.
_FILE_WORDS = {
    "evaluation_samples": "evaluation.samples", "evaluations_per_octave": "evaluation.per_octave",
    "first_evaluation": "evaluation.first",
}  # fmt: skip


def _in_file_words(difference: str) -> str:
    name, _, values = difference.partition(": ")
    if name.endswith(".sha256"):
        return f"the problems of {name.removesuffix('.sha256')}"
    return f"{_FILE_WORDS.get(name, name)}: {values}"


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Readable differences between two JSON values.

    >>> differences({"recipe": {"kl_coef": 0.0}}, {"recipe": {"kl_coef": 0.1}})
    ['recipe.kl_coef: 0.0 -> 0.1']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted({*old, *new}):
            found += differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if old == new else [f"{name}: {json.dumps(old)} -> {json.dumps(new)}"]
