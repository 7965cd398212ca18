"""Bad input writes nothing, and its message can be printed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers.tidy import load_tidy
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
    with pytest.raises(InputError, match=r"needs the package 'torch'.*extra \[local\]"):
        quickstart(tmp_path / "q")
    assert not (tmp_path / "q").exists()


def test_a_binary_file_is_refused_in_printable_words(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(InputError) as caught:
        load_tidy(path)
    assert str(caught.value).isprintable()
