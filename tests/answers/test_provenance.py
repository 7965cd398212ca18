"""A fit says what it was made from: hashes of data and code, rules, numbers left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isocompute.answers import document, fit_sweep
from isocompute.answers.document import code_sha256, data_sha256
from isocompute.testing.planted import NOISE, WORLDS


def test_the_hash_is_of_the_scores_and_not_of_their_order() -> None:
    curves = WORLDS["late_winner"].sample(NOISE["low"], 2, np.random.default_rng(0))
    same = data_sha256(curves)
    assert data_sha256(curves[::-1]) == same
    assert data_sha256([c.replace(run=f"other-{i}") for i, c in enumerate(curves)]) == same
    moved = curves[0].replace(score_K=curves[0].score_K + 1e-12)
    assert data_sha256([moved, *curves[1:]]) != same
    assert data_sha256(curves[1:]) != same
    assert data_sha256([curves[0].replace(rollouts_per_problem=9), *curves[1:]]) != same


def test_the_hash_of_the_code_moves_with_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers").mkdir()
    for name in ("answers/document.py", "a.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(document, "__file__", str(tmp_path / "answers" / "document.py"))
    first = code_sha256.__wrapped__()
    assert code_sha256.__wrapped__() == first
    (tmp_path / "a.py").write_text("x = 2\n")
    assert code_sha256.__wrapped__() != first


@pytest.mark.heavy
def test_a_document_names_its_options() -> None:
    curves = WORLDS["overfit"].sample(NOISE["low"], 3, np.random.default_rng(0))
    curves = [c.replace(n_missing=2) for c in curves]
    fit = fit_sweep(curves, draws=20, seed=3, select="final", sources=["a.csv"])
    found = fit.document["provenance"]
    assert len(found["code_sha256"]) == 64
    assert found["data_sha256"] == data_sha256(curves)
    assert (found["n_runs"], found["n_missing"]) == (21, 42)
    assert (found["draws"], found["seed"], found["selection"]) == (20, 3, "final")
    assert found["sources"] == ["a.csv"]
