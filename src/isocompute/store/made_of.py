"""What runs are made of beside their specification: a model's folder, code of one's own.

A specification names them by a path, and what stands there may change between two commands.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.study.sweep import Study

ALLOWED = "changed_files"
_MODEL = ("*.safetensors", "*.bin", "config.json", "generation_config.json", "tokenizer*")
_SCRIPTS = (".py", ".sh")  # of a command; its program is the machine's
# Bytes. A larger file is told by its size and its ends; a change of neither is not seen. At half
# or twice of these a start takes other milliseconds and finds the same.
_WHOLE = 64 << 20
_END = 1 << 20


def fingerprints(study: Study) -> dict[str, str]:
    """Hashes of the files that a study names, by what they are ("model 'base'")."""
    found: dict[str, str] = {}
    for spec in study.runs:
        verifiers = {p.verifier for p in (spec.train, *spec.validation.values())}
        for name, path in _named(spec.engine_options, verifiers).items():
            if name not in found and path.exists():
                found[name] = _fingerprint(path)
    return found


def refuse_changed(
    connection: sqlite3.Connection, study: Study, now: Mapping[str, str]
) -> dict[str, str]:
    """The fingerprints that a study goes on with.

    Args:
        connection: in a transaction, with the runs that the study asks for.
        study: as the study file reads now.
        now: its `fingerprints`.

    Raises:
        InputError: if runs are to be trained with other files than those that have results.
    """
    row = connection.execute("SELECT value FROM study WHERE key = 'made_of'").fetchone()
    known: dict[str, str] = json.loads(row[0]) if row else {}
    kept = {**known, **now}
    if ALLOWED in (study.source.get("allow") or ()):
        return kept
    for name in (name for name, sha in known.items() if kept[name] != sha):
        begun, pending = _using(connection, name)
        if begun and pending:
            raise InputError(
                f"a study must keep the files that its runs are made of, but {name} is not what "
                f"it was when {begun} of its runs were trained; put it back, train in another "
                f"folder (-o), or, where it makes no difference, write `allow: [{ALLOWED}]`."
            )
        if begun:  # nothing is left that would mix the two
            kept[name] = known[name]
    return kept


def _using(connection: sqlite3.Connection, name: str) -> tuple[int, int]:
    """How many runs with results are made of it, and how many that are still to train."""
    verifiers = dict(connection.execute("SELECT sha256, verifier FROM problem_sets"))
    begun = pending = 0
    for text, done, evaluated, state in connection.execute(
        "SELECT spec, steps_done, evaluation_rollouts, state FROM runs"
    ):
        spec = json.loads(text)
        sets = (spec["train"], *spec["validation"].values())
        used = {verifiers[one["sha256"]] for one in sets if one["sha256"] in verifiers}
        if name in _named(spec["engine_options"], used):
            begun += bool(done or evaluated)
            pending += state == "pending"
    return begun, pending


def _named(options: Mapping[str, Any], verifiers: set[str]) -> dict[str, Path]:
    """The files that a run names."""
    named = {}
    model = options.get("model")
    if isinstance(model, str) and model:
        named[f"model {model!r}"] = Path(model)
    for word in options.get("command") or ():
        if isinstance(word, str) and word.endswith(_SCRIPTS):
            named[f"script {word!r}"] = Path(word)
    for verifier in sorted(verifiers):
        path = verifier.rpartition(":")[0]
        if path.endswith(".py"):
            named[f"checker {path!r}"] = Path(path)
    return named


def _fingerprint(path: Path) -> str:
    files = [path]
    if path.is_dir():
        files = sorted({file for pattern in _MODEL for file in path.glob(pattern)})
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size > _WHOLE:
                found.update(stream.read(_END))
                stream.seek(-_END, 2)
            found.update(stream.read())
    return found.hexdigest()
