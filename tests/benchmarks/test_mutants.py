"""Lines broken on purpose: which changes there are, and what the lists hold."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from mutants.places import Place, broken, draw, line_of, places  # noqa: E402

SOURCE = '''"""Words."""

def f(a, b=2):
    """Words."""
    if a < b and not b:
        raise ValueError(f"{a + 1}")
    g(a, key=b)
    return -a * 2


def h(a):
    if a < b and not b:
        return max(a, 0.5)
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(SOURCE)
    return tmp_path


def test_changes_of_a_file(root: Path) -> None:
    found = [(p.function, p.kind, p.after.strip()) for p in places(root, "m.py")]
    test = "if a < b and not b:"
    of_test = {
        ("comparison", "if a <= b and not b:"), ("comparison", "if a >= b and not b:"),
        ("and/or", "if a < b or not b:"), ("sign", "if a < b and b:"),
        ("condition", "if True:"), ("condition", "if False:"),
    }  # fmt: skip
    assert {(kind, text) for name, kind, text in found if name == "f"} == {
        *of_test, ("number", "def f(a, b=3):"), ("number", "def f(a, b=1):"),
        ("argument dropped", "g(a, )"), ("statement", "pass"), ("operator", "return -a / 2"),
        ("sign", "return a * 2"), ("number", "return -a * 3"), ("number", "return -a * 1"),
    }  # fmt: skip
    assert {(kind, text) for name, kind, text in found if name == "h"} == {
        *of_test, ("function", "return min(a, 0.5)"), ("arguments swapped", "return max(0.5, a)"),
        ("number", "return max(a, 1.0)"), ("number", "return max(a, 0.25)"),
    }  # fmt: skip
    assert test not in {text for _, _, text in found}


def test_the_line_of_the_right_function_is_broken(root: Path) -> None:
    (place,) = [p for p in places(root, "m.py") if p.function == "h" and p.after.endswith("True:")]
    text = broken(SOURCE, place)
    assert text is not None
    assert text.splitlines()[11] == "    if True:"
    assert text.splitlines()[:11] == SOURCE.splitlines()[:11]
    assert line_of(SOURCE, place) == 12
    assert line_of("# one more line\n" + SOURCE, place) == 13
    gone = Place(path="m.py", function="h", kind="x", before="    return 7", after="    pass")
    assert broken(SOURCE, gone) is None


def test_a_sample_takes_a_line_once_and_repeats(root: Path) -> None:
    one = draw(root, {"m": ["m.py"]}, {"m": 5}, seed=1)
    assert one == draw(root, {"m": ["m.py"]}, {"m": 5}, seed=1)
    assert one != draw(root, {"m": ["m.py"]}, {"m": 5}, seed=2)
    assert len({(p.function, p.before) for _, p in one}) == len(one) == 5


def test_what_is_listed_as_equivalent_is_of_a_sample_and_has_its_reason() -> None:
    folder = ROOT / "benchmarks" / "mutants"
    drawn = {}
    for number in (1, 2, 3):
        with (folder / f"sample-{number}.csv").open(newline="") as file:
            drawn[number] = [(r["path"], r["function"], r["after"]) for r in csv.DictReader(file)]
    with (folder / "equivalent.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # 300, in the first 55 in reserve beside them, in the third a fifth
    assert {number: len(places) for number, places in drawn.items()} == {1: 355, 2: 300, 3: 60}
    listed = {(r["path"], r["function"], r["after"]) for r in rows}
    assert listed <= {place for places in drawn.values() for place in places}
    assert all(len(r["reason"]) > 10 for r in rows)
