"""The front door: make targets, the CI script, pins and extras agree with each other."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import isocompute

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, flags=re.MULTILINE))


def test_every_test_target_is_run_by_ci() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    tests = {t for t in TARGETS if t == "test" or t.startswith("test-")}
    tests -= {"test-fast"}  # a part of `make test`
    assert {"setup", "quickstart", "lint", "bench", "docs", "clean"} <= TARGETS
    run = set(re.findall(r"^\s*(?:step|optional) ([a-z-]+)", script, flags=re.MULTILINE))
    assert tests | {"lint"} <= run


def test_every_marker_is_left_out_of_make_test_and_has_a_target() -> None:
    markers = [m.partition(":")[0] for m in PROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    fast, most = (
        sorted(found.split(" or "))
        for found in re.findall(r"pytest -q -n 2 (?:\\\s+)?-m 'not \((.*)\)'", MAKEFILE)[:2]
    )
    assert fast == sorted(markers)
    assert most == sorted({*markers} - {"long"})  # these `make test` runs
    for marker in most:
        assert f"test-{marker}" in TARGETS


def test_torch_is_pinned_without_a_build() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^torch==2\.13\.0$", pins, flags=re.MULTILINE)
    for name in ("constraints.txt", "pyproject.toml", "Makefile"):
        assert "+cpu" not in (ROOT / name).read_text(encoding="utf-8")


def test_a_plain_install_needs_no_torch() -> None:
    names = [re.split(r"[^a-z0-9_.-]", d)[0] for d in PROJECT["project"]["dependencies"]]
    assert not {"torch", "transformers", "trl", "ray", "pandas"} & set(names)
    assert PROJECT["project"]["scripts"] == {"isocompute": "isocompute.cli:main"}


def test_the_version_has_a_changelog_entry() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {isocompute.__version__}" in changelog


def test_the_ci_script_is_valid_shell() -> None:
    done = subprocess.run(
        ["bash", "-n", ".ci/run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('exit 1', "must make an environment with pip"),
        ('case "$1" in -c) exit 1;; -V) echo Python 3.8.1;; esac', "Python >= 3.11 is needed"),
    ],
)
def test_make_names_the_cure_where_python_cannot_be_used(
    tmp_path: Path, script: str, words: str
) -> None:
    python = tmp_path / "python"
    if "exit 1;;" not in script:  # a Python whose venv fails
        script = f'[ "$1 $2" = "-m venv" ] && {script}; [ "$1" = -c ] && exit 0'
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "PYTHON=python3.12" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_make_names_the_cure_where_there_is_no_python(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "setup", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 2
    assert "'no-such-python' was not found" in done.stderr
