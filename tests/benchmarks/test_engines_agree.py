"""What benchmarks/engines_agree.py compares, without a trainer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
engines_agree = pytest.importorskip("engines_agree")
engines_agree_verl = pytest.importorskip("engines_agree_verl")


def test_the_end_that_verl_needs_is_never_drawn(tmp_path: Path) -> None:
    """Else verl's responses end early, and its tokens are not those of the other engines."""
    engines_agree_verl.widen(engines_agree_verl.BASE, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    tokenizer = json.loads((tmp_path / "tokenizer_config.json").read_text())
    known = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert tokenizer["eos_token"] not in known
    end = json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"]
    assert end == len(known) == config["vocab_size"]  # logits are 0 to vocab_size - 1


def test_the_interval_is_students_of_paired_differences() -> None:
    first, second = {0: 0.50, 1: 0.40, 2: 0.60, 3: 0.9}, {0: 0.51, 1: 0.42, 2: 0.63, 4: 0.1}
    mean, half, seeds = engines_agree.paired(first, second)
    # 0.01, 0.02, 0.03: deviation 0.01; t of 2 degrees at 97.5% is 4.3027
    assert (mean, half, seeds) == (pytest.approx(0.02), pytest.approx(0.024841, abs=1e-6), 3)
