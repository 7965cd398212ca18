"""The attack's own eyes: what counts as refused, raw, silent, hung, and what an export lost."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
process: Any = importlib.import_module("attack.process")

LINE = "print('isocompute: n must be > 0, but got 0; raise it.', file=sys.stderr); "


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (LINE + "sys.exit(2)", "refused"),
        ("print('a note', file=sys.stderr); " + LINE + "sys.exit(2)", "refused"),
        (LINE, "silent"),
        ("sys.exit(2)", "raw"),
        (LINE + "print('and more', file=sys.stderr); sys.exit(2)", "raw"),
        ("raise ValueError", "raw"),
        ("import os; os.abort()", "raw"),
        ("import time; time.sleep(60)", "hung"),
    ],
)
def test_how_a_command_ended(tmp_path: Path, code: str, verdict: str) -> None:
    program = [sys.executable, "-c", f"import sys; {code}"]
    limit_s = 1.0 if verdict == "hung" else 60.0
    assert process.call_program(program, cwd=tmp_path, limit_s=limit_s).refusal().verdict == verdict


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_what_a_command_leaves_behind_is_found_and_killed(tmp_path: Path) -> None:
    # The kernel lets the parent go on before the child's environment can be read: wait for it.
    code = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "while not pathlib.Path(f'/proc/{child.pid}/environ').read_bytes(): time.sleep(0.01)"
    )
    process.call_program([sys.executable, "-c", code], cwd=tmp_path, mark="left")
    assert process.left_behind("other", grace_s=0) == []
    assert [line.strip() for line in process.left_behind("left", grace_s=0)] == ["sleep 60"]
    assert process.left_behind("left") == []


def test_the_first_difference_of_two_exports_is_named() -> None:
    right = {"a.csv": b"x\n1\n2\n", "b.csv": b""}
    assert process.difference(right, dict(right)) == ""
    assert process.difference(right, {**right, "a.csv": b"x\n1\n3\n"}) == "a.csv: b'2' became b'3'"
    assert "length" in process.difference(right, {**right, "a.csv": b"x\n1\n"})
    assert "but got ['a.csv']" in process.difference(right, {"a.csv": b""})
