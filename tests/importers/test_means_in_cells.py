"""Cells of results tables that hold a mean and its width: the mean is read, the rest is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.importers import load_tidy
from layout_helpers import load, refused, write

_HEAD = "problems_per_batch,rollouts_per_problem,step,score"
_MEANS = {8: (0.301, 0.421, 0.483), 16: (0.302, 0.404, 0.497)}


def _table(cell: str, separator: str = ",", head: str = _HEAD) -> str:
    rows = [head.replace(",", separator)]
    for n, means in _MEANS.items():
        for step, mean in zip((0, 50, 100), means, strict=True):
            text = cell.format(share=mean, percent=100 * mean)
            rows.append(separator.join(("32", str(n), str(step), f'"{text}"')))
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("cell", "top"),
    [
        ("{percent:.1f} \u00b1 0.8", 100.0),
        ("{percent:.1f} +- 0.8", 100.0),
        ("{percent:.1f} +/- 0.8", 100.0),
        ("{percent:.1f} (0.8)", 100.0),
        ("{percent:.1f} [29.2, 61.0]", 100.0),
        ("{percent:.1f}% \u00b1 0.8%", 1.0),
        ("{percent:.1f} \u00b1 0.8%", 1.0),
        ("{share:.3f}\u00b1.008", 1.0),
        (r"${share:.3f} \pm 0.008$", 1.0),
    ],
)
def test_the_mean_is_the_score_and_what_stands_behind_it_is_said(
    tmp_path: Path, cell: str, top: float
) -> None:
    path, told = tmp_path / "results.csv", list[str]()
    write(path, _table(cell))
    curves = load_tidy(path, score_range=(0.0, top), say=told.append)
    assert {c.rollouts_per_problem: tuple(c.score_K.round(6)) for c in curves} == _MEANS
    (line,) = told
    assert "score: the mean of cells such as" in line
    assert "not used as noise" in line


def test_decimal_commas_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "ergebnisse.csv"
    write(path, _table("{share:.3f} \u00b1 0.008", ";").replace(".", ","))
    curves = load_tidy(path)
    assert {c.rollouts_per_problem: tuple(c.score_K) for c in curves} == _MEANS


def test_one_column_for_each_n_says_it_once(tmp_path: Path) -> None:
    path, told = tmp_path / "wide.csv", list[str]()
    rows = zip((0, 50, 100), *_MEANS.values(), strict=True)
    write(path, "step,n8,n16\n" + "".join(f"{s},{a} (0.01),{b} (0.02)\n" for s, a, b in rows))
    curves = load(path, (), ("problems_per_batch=32", "pattern=n{rollouts_per_problem}"),
                  say=told.append)  # fmt: skip
    assert {c.rollouts_per_problem: tuple(c.score_K) for c in curves} == _MEANS
    assert sum("the mean of cells" in line for line in told) == 1


def test_the_column_is_proposed_as_the_score(tmp_path: Path) -> None:
    head = _HEAD.replace("score", "accuracy")
    path = write(tmp_path / "results.csv", _table("{share:.3f} \u00b1 0.008", head=head))
    assert "add --map accuracy=score if it holds that" in refused(path)


def test_a_table_of_notes(tmp_path: Path) -> None:
    rows = zip((0, 50, 100), *_MEANS.values(), strict=True)
    write(tmp_path / "notes.md", "| step | n8 | n16 |\n|---|---|---|\n" + "".join(
        f"| {s} | {a} \u00b1 0.01 | {b} \u00b1 0.02 |\n" for s, a, b in rows))
    curves = load(tmp_path, ("score=avg",),
                  ("problems_per_batch=32", "pattern=n{rollouts_per_problem}"))  # fmt: skip
    assert {c.rollouts_per_problem: tuple(c.score_K) for c in curves} == _MEANS


@pytest.mark.parametrize("sign", ["16 (8)", "16 \u00b1 8"])
def test_a_count_with_a_width_is_no_count(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "results.csv"
    write(path, _table("{share:.3f}").replace(",16,", f",{sign},"))
    error = refused(path)
    assert "rollouts_per_problem must hold numbers" in error


def test_counts_with_their_share_are_not_percent(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    rows = "".join(f"32,8,{s},{k} ({k / 60:.2f})\n" for s, k in ((0, 17), (50, 25), (100, 31)))
    write(path, f"{_HEAD}\n{rows}")
    assert "score must hold numbers" in refused(path, score_range=(0.0, 100.0))
