"""The verifiers, copied beside a run, for a trainer's Python that has no isocompute.

Wherever the copy is on the module path, `isocompute.verifiers` works, with its killable workers.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import isocompute
from isocompute.problems import ProblemSet


def write_bundle(sets: Iterable[ProblemSet], folder: Path) -> None:
    """Make `folder/bundle`, for the module path, and copies of users' own verifiers beside it."""
    source = Path(isocompute.__file__).parent
    package = folder / "bundle" / "isocompute"
    shutil.rmtree(folder, ignore_errors=True)
    (package / "verifiers").mkdir(parents=True)
    for name in ("errors.py", "credentials.py", "process_tree.py"):  # what verifiers import
        shutil.copy(source / name, package)
    (package / "__init__.py").write_text('"""The part of isocompute that judges answers."""\n')
    for file in (source / "verifiers").glob("*.py"):
        shutil.copy(file, package / "verifiers")
    for problems in sets:
        path, colon, _ = problems.verifier.rpartition(":")
        if colon and path.endswith(".py"):
            shutil.copy(path, folder / portable_name(problems.verifier).rpartition(":")[0])


def portable_name(verifier: str) -> str:
    """The verifier's specification relative to the bundle's folder.

    >>> portable_name("exact")
    'exact'
    """
    path, colon, function = verifier.rpartition(":")
    if not colon or not path.endswith(".py"):
        return verifier
    return f"own_{hashlib.sha256(path.encode()).hexdigest()[:8]}.py:{function}"
