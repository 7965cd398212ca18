"""The walls of the house: what may import what, what loading costs, how long a module may be.

The order is the path of the data in the design; a module imports only from its left.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "isocompute"

# Left to right. A name stands for the module or for the whole package of that name, unless a
# longer name (`engines.base`) has a place of its own.
ORDER = (
    "errors",
    "files",
    "credentials",
    "process_tree",
    "domain",
    "allocation",
    "intervals",
    "verifiers",
    "problems",
    "recipe",
    "trainers",
    "health",
    "study",
    "engines",
    "store",
    "runner",
    "metrics",
    "spread",
    "difficulty",
    "journal",
    "recorder",
    "hooks",
    "interference",
    "lr_scores",
    "lr_sweep",
    "importers.values",
    "importers.words",
    "importers.beside",
    "importers.runs",
    "importers.tables",
    "importers.formats",
    "importers",
    "engines.command",  # reads the logs of others
    "sources",
    "model",
    "answers",
    "design",
    "compare",
    "report",
    "testing",
    "quickstart",
    "cli",
    "notebook",
    "__main__",
)

# (importing module, imported module): the reason.
MOVED_WALLS: dict[tuple[str, str], str] = {}

MAX_LINES = 400  # of a module


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        yield ".".join(parts), path


def place(name: str) -> int:
    """Position of a module in ORDER: that of its longest listed prefix."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in ORDER:
            return ORDER.index(prefix)
    raise AssertionError(f"module {name!r} has no place in ORDER; give it one")


def imported(path: Path, name: str) -> Iterator[str]:
    """Names inside isocompute that a file imports, at any depth of its code."""
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = ["isocompute", *name.split(".")]
                keep = len(parents) - node.level + (1 if is_package else 0)
                base = ".".join([*parents[:keep], *filter(None, [node.module])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.startswith("isocompute."):
                yield target.removeprefix("isocompute.")


@pytest.mark.heavy
def test_imports_run_only_leftward() -> None:
    wrong = []
    used = set()
    for name, path in modules():
        if not name:  # the package itself loads others on first use
            continue
        for target in imported(path, name):
            if target in ("__version__",):
                continue
            own, other = place(name), place(target)
            if own >= other:
                continue
            wall = (name, ORDER[other])
            if wall in MOVED_WALLS:
                used.add(wall)
            else:
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(wrong)
    assert used == set(MOVED_WALLS), "a moved wall that nothing uses any more; drop it"


def test_relative_imports_are_resolved(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("from . import sibling\nfrom ..domain import Curve\nimport isocompute.store\n")
    assert list(imported(file, "model.form")) == ["model.sibling", "domain.Curve", "store"]


def circles(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that reach themselves."""

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        ahead = [*imports[name]]
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead += imports[one]
        return found

    return [name for name in imports if name in reached(name)]


def loaded(path: Path) -> Iterator[str]:
    """Names inside isocompute that loading a file loads: at the top, not for types alone."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isocompute"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.heavy
def test_no_module_loads_itself() -> None:
    homes = dict(modules())
    imports: dict[str, set[str]] = {name: set() for name in homes}
    for name, path in homes.items():
        for target in loaded(path):
            home = target.removeprefix("isocompute.")
            while home and home not in homes:
                home = home.rpartition(".")[0]
            if home and home != name and target.startswith("isocompute."):
                imports[name].add(home)
    assert sum(map(len, imports.values())) > 500
    assert circles(imports) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import isocompute", ("torch", "scipy", "pyarrow", "pandas", "matplotlib", "plotly")),
        ("import isocompute; isocompute.Allocation; isocompute.Recipe", ("torch", "scipy")),
        ("import isocompute.problems, isocompute.verifiers", ("torch", "scipy", "pyarrow")),
        ("import isocompute.study", ("torch",)),
        ("import isocompute; isocompute.Recorder", ("numpy", "pydantic", "orjson", "yaml")),
        ("import isocompute.cli", ("torch", "scipy", "pyarrow", "matplotlib", "plotly")),
    ],
)
def test_loading_stays_light(statement: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print(*sorted(set(sys.modules) & set({forbidden!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_all_matches_what_can_be_loaded() -> None:
    package = importlib.import_module("isocompute")
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) == set(package._HOME)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    assert package.sources.Options.__doc__ is not None  # as the pages name it
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize(
    ("name", "path"), [pytest.param(n, p, id=n or "isocompute") for n, p in modules()]
)
def test_all_of_a_module_names_what_it_defines(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined: set[str] = set()
    listed: list[str] | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    defined.add(target.id)
                    if target.id == "__all__" and isinstance(node.value, ast.List | ast.Tuple):
                        listed = [ast.literal_eval(e) for e in node.value.elts]
    if listed is not None:
        assert set(listed) <= defined
        assert len(set(listed)) == len(listed)


def test_no_module_is_long() -> None:
    lengths = {n: len(p.read_text(encoding="utf-8").splitlines()) for n, p in modules()}
    too_long = {n for n, lines in lengths.items() if lines > MAX_LINES}
    assert not too_long, "split it where one thing ends and another begins"


def test_the_importers_say_where_a_line_belongs() -> None:
    folder = PACKAGE / "importers"
    listed = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    rooms = dict(room.split(": ", 1) for room in listed.split("\n- ")[1:])
    there = {home.parent.name: home.parent for home in folder.glob("*/__init__.py")}
    assert [f"importers.{room}" for room in rooms][:-1] == [
        name for name in ORDER if name.startswith("importers.")
    ]
    assert set(rooms) == {*there, "here"}
    for room, said in rooms.items():
        named = re.findall(r"\w+", " ".join(re.findall(r"\(([^)]*)\)", said)))
        held = {path.stem for path in there.get(room, folder).glob("*.py")} - {"__init__"}
        assert sorted(named) == sorted(held), "name each module once, in the room it belongs to"


def text_files() -> list[Path]:
    """Tracked text, or the whole tree where there is no git (an unpacked source archive)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [p for d in ("src", "tests", "docs", "scripts") for p in (ROOT / d).rglob("*")]
    endings = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".csv", ".txt", ".j2", ".sh", ""}
    return [p for p in paths if p.is_file() and p.suffix in endings]


@pytest.mark.heavy
def test_tests_are_collected_where_only_setup_has_run() -> None:
    """That is the base with [local], [math] and [dev]: no other package at the top of a file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["local"], *extras["math"], *extras["dev"]]
    there = {re.split(r"[\[>=<.]", name)[0].replace("-", "_") for name in wanted}
    there |= {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"isocompute"}
    there |= {path.stem for room in ("benchmarks", "scripts") for path in (ROOT / room).iterdir()}
    there |= {"scorecard", "__future__"}
    missing = [
        f"{path.name}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in top_imports(path)
        if name not in sys.stdlib_module_names and name not in there
    ]
    assert not missing, "import it in the test, or pytest.importorskip: " + ", ".join(missing)


def top_imports(path: Path) -> Iterator[str]:
    """Packages that loading a file loads, but for those under a condition."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_no_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt)/\w+")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in text_files()
        if path != Path(__file__).resolve()
        for match in pattern.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, "\n".join(found)


def test_no_promise_left_open() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{name}: {match.group()}"
        for name, path in modules()
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
