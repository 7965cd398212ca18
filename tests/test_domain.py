"""Configurations, curves, notices and the one way to write a value."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.domain import Configuration, Curve, as_warnings, documented, notice, ordered
from isocompute.domain.notices import NOTICES, TABLES
from isocompute.domain.text import compact, plain, visible
from isocompute.errors import InputError

ROOT = Path(__file__).resolve().parents[1]


def curve(**changes: Any) -> Curve:
    return Curve(
        problems_per_batch=32, rollouts_per_problem=8, run="a",
        rollouts_K=np.array([0.0, 256.0, 512.0]), score_K=np.array([0.1, 0.2, 0.3]),
    ).replace(**changes)  # fmt: skip


def test_a_configuration_is_the_pair_that_keys_always_were() -> None:
    found = curve().configuration
    assert found == (32, 8)
    assert {(32, 8): "there"}[found] == "there"
    assert (found.problems_per_batch, found.rollouts_per_problem) == (32, 8)
    assert found.batch_size == 256
    assert str(found) == "32 x 8"
    assert sorted([Configuration(64, 8), Configuration(32, 16), found])[0] is found


def test_the_position_of_a_curve_is_its_rollouts_or_tokens() -> None:
    tokens_K = np.array([0.0, 70.0, 150.0])
    assert curve().position().tolist() == [0, 256, 512]
    assert curve(tokens_K=tokens_K).position("tokens").tolist() == [0, 70, 150]
    with pytest.raises(InputError, match="problems_per_batch=32, rollouts_per_problem=8 lacks it"):
        curve().position("tokens")
    with pytest.raises(InputError, match="unit must be one of rollouts, tokens, gpu-hours, but"):
        curve().position("steps")


def test_a_curve_is_cut_where_a_budget_ends() -> None:
    whole = curve(tokens_K=np.array([0.0, 70.0, 150.0]), steps_K=np.array([0.0, 1.0, 2.0]))
    part = whole.until(256)
    assert part.rollouts_K.tolist() == [0, 256]
    assert part.score_K.tolist() == [0.1, 0.2]
    assert part.position("tokens").tolist() == [0, 70]
    assert part.steps_K is not None
    assert part.steps_K.tolist() == [0, 1]
    assert curve().until(255).tokens_K is None
    assert len(curve().until(-1).score_K) == 0


class _Any(float):
    """A value that every format of the table takes."""

    def __str__(self) -> str:
        return "SEEN"

    def __format__(self, spec: str) -> str:
        return "SEEN" + float.__format__(self, spec) if spec else "SEEN"


@pytest.mark.parametrize("code", NOTICES)
def test_every_notice_says_what_is_wrong_and_what_to_do(code: str) -> None:
    template = NOTICES[code]
    found = notice(code, **{name: _Any(1.0) for name in template.fields})
    assert found.code == code
    assert found.level in ("stop", "caution", "note")
    for sentence in (found.text, found.remedy):
        assert "{" not in sentence
        assert sentence[0].isupper() or sentence.startswith(("n =", "SEEN"))
        assert len(sentence) < 160
    assert found.text.endswith(".")
    assert found.remedy.endswith(".") or found.remedy.endswith("SEEN")  # a command to copy
    assert re.fullmatch("[a-z_]+", code)


def test_a_notice_needs_exactly_its_fields() -> None:
    with pytest.raises(AssertionError, match=r"few_seeds has the fields \['which'\]"):
        notice("few_seeds")
    with pytest.raises(AssertionError, match="no_interval has the fields"):
        notice("no_interval", n=8)
    with pytest.raises(KeyError, match="nonsense"):
        notice("nonsense")


def test_fields_are_written_as_the_table_says() -> None:
    trust = "; its intervals assume that the trend continues"
    told = {"edge": 1e6, "trust": trust, "unit": "rollouts", "do": "Stop it"}
    found = notice("extrapolated", times=4.0, **told)
    assert found.text.startswith("All n were compared only up to 1M rollouts. This plan is 4 times")
    far = notice("extrapolated", times=349.9, **told)
    assert "This plan is 350 times that; its intervals assume" in far.text
    found = notice("stopped_early", which=[2**e for e in range(3, 11)])
    assert "8, 16, 32, 64, 128, 256 and 2 more." in found.text
    assert "budget: 8, 16." in notice("stopped_early", which=[8, 16]).text
    found = notice("n_not_told_apart", at=2e6, unit="rollouts", which=[8, 16], good="8",
                   all_of_them="both")  # fmt: skip
    assert found.text == "n = 8, 16 are not told apart at 2M rollouts: any of them may be best."


def test_a_remedy_says_what_it_takes_where_that_is_known() -> None:
    about = {"n": 512, "other": 1024}
    found = notice("capped_by_tested_n", trains={Configuration(16, 1024): 8_388_608.0}, **about)
    assert (found.remedy, found.rollouts) == (
        "Train n = 1024 once (8.39M rollouts).", 8_388_608.0
    )
    assert notice("capped_by_tested_n", **about).remedy == "Train n = 1024 once."


def test_stops_come_first_and_nothing_twice() -> None:
    note = notice("noise_estimated")
    caution, again = (
        notice("extrapolated_down", times=3.0, edge=1e6, unit="rollouts") for _ in range(2)
    )
    stop = notice("scores_flat", hidden="", more="", rates="higher")
    assert ordered([note, caution, stop, again]) == [stop, caution, note]
    document = documented([note, stop])
    assert [row["level"] for row in document["notices"]] == ["stop", "note"]
    remedy = "Import logs that hold counts, or run a study."
    assert document["notices"][1] == {
        "code": "noise_estimated", "level": "note", "text": note.text, "remedy": remedy,
        "rollouts": None,
    }  # fmt: skip
    assert document["warnings"] == as_warnings([stop, note])
    message = f"{note.text} {remedy}"
    assert as_warnings([note]) == [{"code": "noise_estimated", "message": message}]


def test_every_code_stands_once_and_the_page_lists_exactly_these() -> None:
    assert sum(map(len, TABLES.values())) == len(NOTICES)
    spec = importlib.util.spec_from_file_location(
        "page", ROOT / "scripts" / "make_warnings_docs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "warnings.md").read_text(encoding="utf-8")
    assert page == module.warnings_page(), "run: python scripts/make_warnings_docs.py"
    assert set(re.findall(r"^- `([a-z_]+)` ", page, re.MULTILINE)) == set(NOTICES)


@pytest.mark.heavy
def test_the_table_has_exactly_the_codes_that_the_package_writes() -> None:
    literal, patterns, other = set(), set(), set()
    for path in (ROOT / "src" / "isocompute").rglob("*.py"):
        if path.name == "notices.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                other.add(node.value)
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "notice"):
                continue
            code = node.args[0]
            if isinstance(code, ast.Constant):
                literal.add(code.value)
            elif isinstance(code, ast.JoinedStr):
                patterns.add(re.sub(r"\{[^}]*\}", "(.+)", ast.unparse(code)[2:-1]))
    assert patterns == {"capped_by_(.+)"}
    assert literal - set(NOTICES) == set()
    ends = {m[1]: code for code in NOTICES for m in [re.fullmatch("capped_by_(.+)", code)] if m}
    raised = literal | {code for end, code in ends.items() if end in other}
    # Of a law's flags, and of the ends of the n tested: `notice(code)` of a name.
    raised |= {code for code in NOTICES if code in other}
    assert set(NOTICES) - raised == set(), "nothing raises it: drop its line"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"), (2.345, "2.3"), (12.5, "12"), (256, "256"), (9_994, "9,994"),
        (9_999, "10k"), (12_345, "12.3k"), (153_000, "153k"), (999_999, "1M"),
        (2_000_000, "2M"), (3_997_696, "4M"), (6.4e9, "6.4B"), (5e12, "5T"), (-2e6, "-2M"),
        (0, "0"), (None, "–"), (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_counts_are_written_one_way(value: float | None, text: str) -> None:
    assert compact(value) == text


def test_json_has_neither_numpy_nor_nan() -> None:
    value = {
        8: np.float64(0.5), "nan": math.nan, "inf": [np.inf, np.float32(-np.inf)],
        "array": np.array([[1, 2]]), "flag": np.bool_(True), "none": None,
        "path": Path("a"), "pair": (1, "x"), "set": {3}, "configuration": Configuration(32, 8),
    }  # fmt: skip
    found = plain(value)
    assert found == {
        "8": 0.5, "nan": None, "inf": [None, None], "array": [[1, 2]], "flag": True,
        "none": None, "path": "a", "pair": [1, "x"], "set": [3], "configuration": [32, 8],
    }  # fmt: skip
    assert found["flag"] is True
    json.dumps(found, allow_nan=False)
    assert plain(["x\x1b"]) == ["x\x1b"]
    assert plain({"k\x1b": "x" * 9}, 5) == {"k\\u0…": "xxxx…"}


def test_text_of_others_does_nothing() -> None:
    assert visible("a\nb\tc\u2028d") == "a b c d"
    assert visible("\x00\x7f\u200f\ud800") == "\\u0000\\u007f\\u200f\\ud800"
    assert visible("x" * 50, 10) == "x" * 9 + "…"
    assert len(visible("x" * 500)) == 400
    assert visible("x" * 500, None) == "x" * 500
    assert visible(3) == "3"
