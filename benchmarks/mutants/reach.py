"""Which tests reach which line, and how long each takes: one run of the tests under coverage.

As a pytest plugin (`-p mutants.reach`) it names the test that runs to coverage. What a fixture
of a whole module runs is done once, in the set-up of the first test that asks for it, so lines
reached in a set-up are taken for reached by every test of that file.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

TIMES = "ISOCOMPUTE_MUTANTS_TIMES"  # environment: the file that takes seconds of each test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Whatever runs for this test is its own."""
    _switch(f"setup|{item.nodeid}")
    yield
    _switch("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """The test itself, its fixtures made."""
    _switch(f"call|{item.nodeid}")
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long each phase took."""
    with open(os.environ[TIMES], "a") as file:
        file.write(json.dumps([report.nodeid, report.when, report.outcome, report.duration]) + "\n")


def _switch(name: str) -> None:
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(name)


class Reach:
    """What a run under coverage noted.

    Args:
        data: coverage's file.
        times: ours.
    """

    def __init__(self, data: Path, times: Path) -> None:
        """Read both."""
        self.seconds: dict[str, float] = defaultdict(float)
        bad, self.files = set(), defaultdict(list)
        for line in times.read_text().splitlines():
            test, phase, outcome, seconds = json.loads(line)
            self.seconds[test] += seconds
            if outcome != "passed":
                bad.add(test)  # skipped or failing without any change: it says nothing
            elif phase == "call":
                self.files[test.split("::")[0]].append(test)
        self.files = {f: [t for t in dict.fromkeys(ts) if t not in bad]
                      for f, ts in self.files.items()}  # fmt: skip
        self._data = coverage.CoverageData(basename=str(data))
        self._data.read()
        self._measured = {Path(f).as_posix(): f for f in self._data.measured_files()}

    def tests_of(self, path: Path, line: int) -> list[str]:
        """Tests that reach a line, the quickest first, then the others of their files."""
        name = self._measured.get(path.as_posix())
        if name is None:
            return []
        here, files, everyone = set(), {}, False
        for context in self._data.contexts_by_lineno(name).get(line, []):
            phase, _, test = context.partition("|")
            if not test:  # when the module was imported: every test that reaches the file
                everyone = True
                continue
            files[test.split("::")[0]] = None
            here.update(self.files.get(test.split("::")[0], []) if phase == "setup" else [test])
        if everyone:
            for contexts in self._data.contexts_by_lineno(name).values():
                for context in contexts:
                    test = context.partition("|")[2]
                    if test:
                        files[test.split("::")[0]] = None
                        here.add(test)
        passed = {t for ts in self.files.values() for t in ts}
        first = sorted(here & passed, key=lambda t: self.seconds[t])
        rest = [t for f in files for t in self.files.get(f, []) if t not in here]
        return first + sorted(rest, key=lambda t: self.seconds[t])


def merge(folder: Path) -> Path:
    """One data file of those in a folder."""
    out = folder / "coverage.db"
    data = coverage.CoverageData(basename=str(out))
    data.erase()
    for part in sorted(folder.glob("part-*.db")):
        other = coverage.CoverageData(basename=str(part))
        try:
            other.read()
        except (coverage.CoverageException, sqlite3.Error):
            continue
        data.update(other)
    data.write()
    return out
