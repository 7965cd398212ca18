"""Bad input writes nothing, and its message can be printed."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.files import not_found
from isocompute.importers.tables.tidy import load_tidy
from isocompute.quickstart import quickstart


def test_quickstart_without_torch_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without_torch(name: str, package: str | None = None) -> object:
        if name.startswith("isocompute.engines.local"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_torch)
    with pytest.raises(InputError, match=r"needs the package 'torch'.*'isocompute\[local\]'"):
        quickstart(tmp_path / "q")
    assert not (tmp_path / "q").exists()


def test_a_binary_file_is_refused_in_printable_words(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(InputError) as caught:
        load_tidy(path)
    assert str(caught.value).isprintable()


def _main(*argv: str) -> tuple[int, str]:
    """Exit code and what stood on stderr, of a command that may take no more than 20 seconds."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "isocompute", *argv], capture_output=True, text=True, timeout=20,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize(
    "argv",
    [("run", "pipe"), ("lr-sweep", "pipe"), ("import", "log.jsonl", "-o", "x", "--map", "pipe")],
)
def test_a_pipe_in_the_place_of_a_file_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("log.jsonl").write_text('{"step": 1}\n')
    code, said = _main(*argv)
    assert (code, said.count("\n")) == (2, 1)
    assert "'pipe' is a pipe or device; save it first" in said


@pytest.mark.parametrize(
    ("argv", "name"),
    [(["fit", ""], "source"), (["status", ""], "folder"), (["run", "x.yaml", "-o", ""], "output"),
     (["plan", "--budget", "1e6", "--law", ""], "law"), (["export", "x", "-o", ""], "output")],
)  # fmt: skip
def test_an_empty_word_is_not_the_current_folder(
    argv: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert f"`{name}` must not be empty, but got ''" in capsys.readouterr().err


def test_what_is_there_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "the link" in not_found(tmp_path / "loop")
    assert not_found(tmp_path).startswith("not a file: ")
    assert not_found(tmp_path / "lop").endswith(f"Did you mean {tmp_path / 'loop'}?")
