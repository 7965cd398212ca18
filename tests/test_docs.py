"""README.md and docs/: what they show is run, what they link exists, every option is known."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import docs_runner
from docs_runner import NOT_RUN, ONE_PROCESSOR, PAGES, ROOT, Walk, agree, blocks, reason_not_run
from isocompute.cli.parser import build_parser

SITE = "https?://"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands() -> list[tuple[str, str]]:
    """(page, command) of every command line and of every command in running text."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [(name_of(page), c) for block in blocks(text) for c in block.commands]
        prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
        if page.name != "cli.md":  # its tables are written from the parser
            found += [(name_of(page), " ".join(c.split()))
                      for c in re.findall(r"`(isocompute [^`]+)`", prose)]  # fmt: skip
    return found


@cache
def options_of() -> dict[str, set[str]]:
    (stages,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: {flag for action in parser._actions for flag in action.option_strings}
        for name, parser in stages.choices.items()
    }


def test_every_command_shown_has_a_known_stage_and_known_options() -> None:
    seen = 0
    for page, command in commands():
        words = command.split()
        if words[0] != "isocompute" or words[1].startswith("-"):
            continue
        seen += 1
        known = options_of().get(words[1].strip("`,;."))
        assert known is not None, f"{page}: {command}: no such command"
        given = {w.partition("=")[0] for w in words[2:] if re.match(r"--?[a-z]", w)}
        assert given <= known, f"{page}: {command}: unknown {sorted(given - known)}"
    assert seen > 50


def test_a_page_is_short_enough_to_be_read() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    # What was measured, page by page: evidence to look up, not pages to learn from.
    evidence = ("validation", "benchmarks", "scorecard", "figures", "grid", "lab-log")
    apart = [ROOT / "docs" / f"{name}.md" for name in evidence]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = {p: len(p.read_text(encoding="utf-8").split()) for p in pages if p not in apart}
    assert sum(words.values()) <= 25_000, sorted((n, p.name) for p, n in words.items())[-5:]


def test_the_losses_in_the_readme_are_those_that_were_measured() -> None:
    """Against the page that `grid_held_out.py` writes: three seeds, by the part seen."""
    columns = {
        "a plan": 2,
        "the leading n": 3,
        "the next larger": 4,
    }
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if "| 3 | 1/" in line]
    assert [row[1] for row in rows] == ["1/2", "1/4", "1/10"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule, column in columns.items():
        measured = " | ".join(f"{float(row[column]):.3f}" for row in rows)
        assert f"| {rule} | {measured} |" in readme, (rule, measured)
    fixed, largest = ({float(row[column]) for row in rows} for column in (5, 6))
    said = f"n = 64 always loses {fixed.pop():.3f}, the largest n {largest.pop():.3f}."
    assert said in readme
    assert not fixed | largest  # the same at every part


def test_what_pages_quote_of_the_evidence_is_what_was_measured() -> None:
    """What `design` guesses on the grid, and how far apart the engines' last weights score."""
    docs = ROOT / "docs"
    measured = re.search(
        r"guess loses ([0-9.]+) ± ([0-9.]+) here; its prior, of another model, foretells ([0-9.]+)",
        (docs / "validation.md").read_text("utf-8"),
    )
    assert measured is not None
    lost, error, foretold = (float(one.rstrip(".")) for one in measured.groups())
    design = " ".join((docs / "design.md").read_text("utf-8").split())
    assert f"guesses {lost:.3f} ± {error:.3f} ({foretold:.3f})" in design
    weights = (docs / "benchmarks.md").read_text("utf-8").partition("| last weights")[2]
    (row,) = re.findall(r"^\| minus local, paired (.*)$", weights, flags=re.M)
    most = max(abs(float(one)) for one in re.findall(r"[+-][0-9.]+", row))
    (said,) = re.findall(r"every engine score within ([0-9.]+)",
                         (docs / "engines-trainers.md").read_text("utf-8"))  # fmt: skip
    assert most <= float(said) < most + 0.001


def test_the_numbers_of_the_model_are_those_of_the_code() -> None:
    from isocompute.model import data, form, prior, walk

    page = (ROOT / "docs" / "model.md").read_text("utf-8")
    assert f"walks {walk.LEAST_ROUNDS} to {walk.MOST_ROUNDS} rounds" in page
    names = {3: "three", 5: "five", 20: "twenty"}
    assert f"at most {names[data.POSITIONS]} bins" in page
    assert f"The bumps are {names[len(form.KNOTS)]} cubic" in page
    assert f"bends over {names[int(prior.OCTAVES)]} octaves" in page
    for name, scale in zip(("height (logit)", "log slope", "midpoint (decades)"), prior.SCALES,
                           strict=False):  # fmt: skip
        line = f"{scale.line_n:g}"
        line += f", around {scale.mean_line_n:.2f} an octave" if scale.mean_line_n else ""
        assert f"| {name} | {line} | {scale.smooth:g} | {scale.nugget:g} |" in page


def test_the_rooms_are_there_in_the_order_of_their_imports() -> None:
    from test_architecture import ORDER

    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rooms = re.findall(r"^  (\w+)(?:/|\.py) ", text.partition("## The rooms")[2], flags=re.M)
    assert len(rooms) > 20
    there = {path.stem for path in (ROOT / "src" / "isocompute").iterdir()}
    assert [room for room in rooms if room not in there] == []
    assert [r for r in ORDER if r in rooms] == rooms


def test_the_attack_has_as_many_trials_as_are_said() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        sizes = importlib.import_module("attack.__main__").SIZES
    finally:
        sys.path.pop(0)
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    for name, words in (("kills", "SIGKILLs"), ("flips", "bits turned over"),
                        ("verifiers", "hostile checkers"), ("inputs", "bad inputs")):  # fmt: skip
        assert f"{sizes[name]} {words}" in text


def test_commands_that_are_not_run_are_listed_and_shown() -> None:
    shown = [command for _, command in commands()]
    for start, why in NOT_RUN.items():
        assert why
        assert any(c.startswith(start) for c in shown), f"{start!r} is shown nowhere: drop it"


def test_every_code_block_has_a_language_or_is_an_output() -> None:
    """So that no command can hide in a block that is not run."""
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            first = block.text.split("\n", 1)[0]
            if block.language == "":
                assert not re.match(r"\$ |isocompute |make |pip |python", first), (
                    f"{name_of(page)}:{block.line}: commands belong into a ```sh block"
                )


def test_study_files_shown_are_study_files() -> None:
    from isocompute.study.schema import parse_study
    from isocompute.study.yaml12 import parse_yaml

    found = 0
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "yaml" and re.search(r"^engine:", block.text, re.M):
                parse_study(parse_yaml(block.text, where=name_of(page)), where=name_of(page))
                found += 1
    assert found >= 3


def test_links_of_readme_and_docs_lead_somewhere() -> None:
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$|`[^`]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:|#|mailto:", target):
                continue
            assert (page.parent / target.partition("#")[0]).exists(), f"{name_of(page)}: {target}"


def test_every_page_is_in_the_navigation_once() -> None:
    content = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text("utf-8"))

    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        items = node.values() if isinstance(node, dict) else node
        return [leaf for item in items for leaf in leaves(item)]  # type: ignore[union-attr]

    listed = leaves(content["nav"])
    pages = [str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_pictures_are_small() -> None:
    pictures = [p for p in (ROOT / "docs").rglob("*") if p.suffix in (".png", ".svg")]
    assert sum(p.stat().st_size for p in pictures) < 2_000_000


def test_every_picture_has_the_script_that_makes_it_named() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    _, _, figures = text.partition("## Figures")
    named = re.findall(r"[\w*-]+\.(?:png|svg)", figures)
    pictures = [p.name for p in (ROOT / "docs").rglob("*") if p.suffix in (".png", ".svg")]
    assert [p for p in pictures if not any(fnmatch(p, n) for n in named)] == []
    assert [n for n in named if not any(fnmatch(p, n) for p in pictures)] == []
    scripts = re.findall(r"python ((?:scripts|studies|benchmarks)/\w+\.py)", figures)
    assert len(set(scripts)) == 4
    assert all((ROOT / script).is_file() for script in scripts)


def test_the_runner_reads_commands_outputs_and_files() -> None:
    page = (
        "<!-- save as: a.txt -->\n```yaml\nx: 1\n```\n\n"
        "<!-- exit: 3 -->\n```sh\ncat a.txt | \\\n  tr x y   # swap\nfalse\n```\n"
    )
    first, second = blocks(page)
    assert (first.language, first.text, first.comment) == ("yaml", "x: 1\n", "save as: a.txt")
    assert second.commands == ["cat a.txt | tr x y", "false"]
    assert reason_not_run("make test") is not None
    assert reason_not_run("isocompute fit x") is None


@pytest.mark.parametrize(("shown", "printed", "same"), [
    ("score 0.625, n = 128", "score   0.626,\nn = 128", True),
    ("0.625", "0.628", False), ("| 57% |", "| 55% |", True), ("57%", "50%", False),
    ("2%", "2", False), ("276k to 1.39M", "275k to 1.41M", True),
    ("79 to 1,024", "81 to 1,020", True), ("n = 128", "n = 64", False), ("3 runs", "4 runs", False),
    ("40 (24 to 64)", "40 (17 to 64)", True), ("40 (24 to 64)", "40 (8 to 64)", False),
    ("by 3.4, at least 2.6", "by 3.3, at least 2.1", True),
    ("by 3.4 octaves", "by 2.9 octaves", False),
    ("rises 10-fold, at", "rises 12-fold, at", True), ("rises 10-fold", "rises 13-fold", False),
    ("2 to 3", "2", False), ("ok up to 2M", "stop up to 2M", False),
])  # fmt: skip
def test_a_page_is_what_was_printed_but_for_last_digits(
    shown: str, printed: str, same: bool
) -> None:
    assert agree(shown, printed) is same


def test_the_runner_notices_a_wrong_exit_code(tmp_path: Path) -> None:
    walk = Walk(tmp_path / "w", "<!-- exit: 3 -->\n```sh\nexit 3\n```\n\n```sh\nexit 2\n```\n")
    complaints = [c for _, c in walk.steps()]
    assert complaints[0] == []
    assert "ended with 2, not 0" in complaints[1][0]


PAGES_WITH_COMMANDS = [
    page
    for page in PAGES
    if any(
        block.comment.startswith("output of")
        or block.language == "python"
        or any(reason_not_run(c) is None for c in block.commands)
        for block in blocks(page.read_text(encoding="utf-8"))
    )
]


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=name_of)
def test_what_a_page_shows_happens(page: Path, tmp_path: Path) -> None:
    walk = Walk(tmp_path / "here", page.read_text(encoding="utf-8"))
    complaints = []
    for block, said in walk.steps():
        complaints += said
        key, _, command = block.comment.partition(": ")
        if key == "output of" and reason_not_run(command) is None:
            printed = walk.output_of(command)
            if printed is None or not agree(block.text, printed):
                complaints.append(
                    f"line {block.line}: `{command}` prints something else; run "
                    "scripts/update_docs.py"
                )
    assert not complaints, "\n".join(complaints)


@pytest.mark.docs
def test_the_ten_lines_of_the_python_page_need_no_pandas(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    code = next(b.text for b in blocks(page) if b.language == "python")
    assert len(code.splitlines()) == 10
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['pandas'] = None\n{code}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "# for 4 processes: " in done.stdout


@pytest.mark.docs
def test_findings_are_what_the_package_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_findings.py", "--check"],
        capture_output=True, text=True, check=False, env={**os.environ, **ONE_PROCESSOR},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_page_of_the_command_line_is_what_help_says() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from make_cli_docs import cli_page
    finally:
        sys.path.pop(0)
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == cli_page(), (
        "run scripts/make_cli_docs.py"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs the extra [docs]")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", folder],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**docs_runner.os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.mark.docs
def test_the_site_loads_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    loads = rf'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="{SITE}[^"]*"'
    for page in pages:
        found = re.findall(loads, page.read_text("utf-8"))
        assert found == [], f"{page.name}: {found}"
    api = (site / "api.html").read_text("utf-8")
    for name in ("fit", "fit_law", "fit_sweep", "plan_from_source", "render_report"):
        assert f'id="isocompute.{name}"' in api or f'.{name}"' in api


@pytest.mark.docs
def test_search_works_from_a_folder(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra [browser]")
    from browser_tools import launched

    with sync_api.sync_playwright() as playwright:
        browser = launched(playwright)
        if browser is None:
            pytest.skip("no Chromium found; install one (apt-get install chromium) or set CHROMIUM")
        page, asked = browser.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "findings" / "index.html").as_uri())
        page.focus("input[name=query]")
        page.wait_for_selector(".md-search-result__meta:has-text('Type')", state="attached")
        page.type("input[name=query]", "crossover")
        page.wait_for_selector(".md-search-result__link", state="attached")
        assert "matching" in page.inner_text(".md-search-result__meta")
        assert [url for url in asked if not url.startswith(("file:", "about:"))] == []
        browser.close()


@pytest.mark.docs
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs the extra [docs]")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra [docs]")
    pytest.importorskip("ipykernel", reason="needs the extra [docs]")
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] for cell in cells)  # stored without outputs
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output for cell in cells for output in cell.outputs]
    pictures = [o for o in shown if "image/png" in o.get("data", {})]
    printed = "".join(o.get("text", "") for o in shown if o.get("name") == "stdout")
    assert len(pictures) == 3
    assert "n* =" in printed
    assert "32 problems x 512 rollouts" in printed
    assert "run next" in printed
    assert printed.count("held") + printed.count("missed") >= 4


@pytest.mark.heavy
@pytest.mark.parametrize("stage", ["fit", "plan"])
def test_contracts_name_every_key_that_is_written(stage: str, tmp_path: Path) -> None:
    from isocompute.cli import main

    target = tmp_path / "out.json"
    law = ["plan", "--budget", "4e6", "--law"] if stage == "plan" else ["fit"]
    assert main([*law, "published:qwen2.5-7b-hard", "--json", str(target)]) == 0
    page = (ROOT / "docs" / "contracts.md").read_text("utf-8")
    section = page.split("## `plan --json`")[stage == "plan"]
    named = set(re.findall(r"`([a-z0-9_.]+)`", section)) | {"version"}
    written = set(json.loads(target.read_text("utf-8")))
    assert written <= named, sorted(written - named)


def test_contracts_name_what_a_run_is_estimated_at_and_how_far_it_is() -> None:
    from isocompute.store.under_way import UnderWay
    from isocompute.study.cost import Cost

    page = (ROOT / "docs" / "contracts.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(estimate|under_way)` \| (.*)$", page, re.M))
    for name, written in (("estimate", [f.name for f in fields(Cost)]),
                          ("under_way", UnderWay._fields)):  # fmt: skip
        assert set(written) <= set(re.findall(r"`([a-z_]+)`", rows[name])), name
