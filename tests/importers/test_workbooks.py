"""Workbooks: sheets that hold tables are read as CSV of the same cells would be."""

from __future__ import annotations

import csv
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from xml.sax.saxutils import escape

import pytest

from isocompute.cli import main
from isocompute.errors import InputError, NotInstalledError
from isocompute.importers.tables import workbooks
from layout_helpers import load, refused

calamine = pytest.importorskip("python_calamine")

Cell = str | float | None
MAPS = ("Held-out acc=score", "Update step=steps")


def book(path: Path, sheets: dict[str, Sequence[Sequence[Cell]]]) -> Path:
    """A workbook as a spreadsheet writes one, of numbers and texts."""
    def cell(column: int, row: int, value: Cell) -> str:
        at = f'r="{chr(65 + column)}{row}"'
        if value is None:
            return ""
        if isinstance(value, str):
            return f'<c {at} t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c {at}><v>{value}</v></c>"

    main_ns = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r0" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main_ns}" xmlns:r="{office}"><sheets>' + "".join(
            f'<sheet name="{escape(name)}" sheetId="{i}" r:id="r{i}"/>'
            for i, name in enumerate(sheets, 1)) + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">' + "".join(
            f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/s{i}.xml"/>'
            for i in range(1, len(sheets) + 1)) + "</Relationships>",
    }  # fmt: skip
    for i, rows in enumerate(sheets.values(), 1):
        files[f"xl/worksheets/s{i}.xml"] = (
            f'<worksheet xmlns="{main_ns}"><sheetData>' + "".join(
                f'<row r="{k}">{"".join(cell(j, k, v) for j, v in enumerate(row))}</row>'
                for k, row in enumerate(rows, 1)) + "</sheetData></worksheet>"
        )  # fmt: skip
    with zipfile.ZipFile(path, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return path


def runs(n: int, seed: int = 3) -> list[list[Cell]]:
    """A sheet that names a run in its first row alone."""
    names = ["Run", "Problems / batch", "Rollouts / problem", "Seed", "Update step", "Held-out acc"]
    rows: list[list[Cell]] = [["My sweep"], [], [*names]]
    for k, size in enumerate((n, 2 * n)):
        for step in range(0, 50, 10):
            about: list[Cell] = [None] * 4 if step else ["AB"[k], 96 // size, size, seed]
            rows.append([*about, step, 0.2 + (step + size) / 200])
        rows.append([])
    return rows


def as_csv(path: Path, rows: Sequence[Sequence[Cell]]) -> Path:
    width = max(map(len, rows))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*row, *[None] * (width - len(row))] for row in rows])
    return path


@pytest.mark.parametrize("whole", [False, True])
def test_a_sheet_is_read_as_its_csv(whole: bool, tmp_path: Path) -> None:
    notes: list[list[Cell]] = [["n=32 later"], ["plot"]]
    made = book(tmp_path / "a.xlsx", {"GRPO runs": runs(4), "todo": notes})
    plain = load(as_csv(tmp_path / "a.csv", runs(4)), MAPS)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "~$a.xlsx").write_bytes(b"a lock")
    found = load(tmp_path if whole else made, MAPS)
    assert {(c.rollouts_per_problem, c.seed, c.run) for c in found} == {(4, 3, "A"), (8, 3, "B")}
    for one, other in zip(found, plain, strict=True):
        assert one.rollouts_K.tolist() == other.rollouts_K.tolist()
        assert one.score_K.tolist() == other.score_K.tolist()


@pytest.mark.heavy
def test_an_import_hands_a_workbook_on_with_one_command_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = book(tmp_path / "my runs.xlsx", {"GRPO runs": runs(4)})
    assert main(["import", str(made), "-o", str(tmp_path / "st")]) == 2
    told = capsys.readouterr().err
    assert "my runs.xlsx, sheet GRPO runs" in told
    argv = shlex.split("isocompute fit " + told.partition("isocompute fit ")[2])[1:]
    assert argv[2:] == ["--map", "Held-out acc=score", "--map", "Update step=steps"]
    assert main(argv) in (0, 3)
    capsys.readouterr()


def test_a_range_is_asked_for_with_all_else(tmp_path: Path) -> None:
    rows = runs(4)
    for row in rows[3:]:
        row[5:] = [100 * value for value in row[5:] if isinstance(value, float)]
    with pytest.raises(InputError, match=r"^1\) .*GRPO: .* 2\) .*--range 0 100") as caught:
        load(book(tmp_path / "a.xlsx", {"GRPO": rows}))
    words = [w for map_ in MAPS for w in ("--map", map_)]
    assert caught.value.options == (*words, "--range", "0", "100")


def test_no_table_no_workbook_and_no_package_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.xlsx").write_bytes(b"no workbook")
    assert "b.xlsx: a workbook must be readable" in refused(tmp_path / "b.xlsx")
    made = book(tmp_path / "a.xlsx", {"todo": [["n=32 later"]]})
    assert "none of its 1 sheets has a column of numbers" in refused(made)
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    workbooks._sheets.cache_clear()
    with pytest.raises(NotInstalledError, match=r"pip install 'isocompute\[excel\]'"):
        load(made)


def test_the_random_folder_of_sheets_tells_nothing_of_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may hold an `s7`, and anybody's configuration may lie beside it."""
    ours = tmp_path / "isocompute-q_s7"
    (tmp_path / "config.yaml").write_text("problems_per_batch: 8\nrollouts_per_problem: 2\n")
    monkeypatch.setattr(workbooks, "_folder", lambda: SimpleNamespace(name=str(ours)))
    workbooks._sheets.cache_clear()
    rows = ([k, 0.3 + k / 100, 0.31 + k / 90] for k in range(9))
    sheet = [["step", "seed 11", "seed 12"], *rows]
    (tmp_path / "there").mkdir()
    made = book(tmp_path / "there" / "a.xlsx", {"n=4": sheet, "n=8": sheet})
    told = refused(made)
    workbooks._sheets.cache_clear()
    assert "pattern='n={rollouts_per_problem}'" in told
    assert "problems_per_batch" in told.partition(" missing")[0]
