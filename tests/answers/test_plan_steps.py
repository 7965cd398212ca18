"""The commands that a plan prints, pasted: they train what their price says."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.store import Store
from isocompute.store.status import study_status

SWEEP = """
engine: simulator
engine_options: {{interference: 0.3, knowledge: 0.1}}
problems:
  train: {{generated: simulated, options: {{size: 60}}}}
  validation: {{held-out: {{generated: simulated, options: {{size: 80}}}}}}
recipe: {{learning_rate: 120, temperature: 1.0}}
grid:
  problems_per_batch: {b_p}
  rollouts_per_problem: [4, 8, 16]
  seeds: {seeds}
budget: 16384
adaptive: {adaptive}
evaluation: {{samples: 4, per_octave: 3, first: 512}}
"""


def rollouts(folder: Path) -> int:
    with Store(folder) as store:
        return sum(run.rollouts for run in store.runs())


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("b_p", "seeds", "adaptive"),
    [("8", 2, "false"), ("8", 1, "false"), ("[4, 8]", 1, "false"), ("8", 2, "true")],
)
def test_every_printed_command_trains_what_it_is_priced_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    b_p: str, seeds: int, adaptive: str,
) -> None:  # fmt: skip
    whole = tmp_path / "whole"
    whole.mkdir()
    monkeypatch.chdir(whole)
    (whole / "sweep.yaml").write_text(SWEEP.format(b_p=b_p, seeds=seeds, adaptive=adaptive))
    assert main(["run", "sweep.yaml"]) == 0
    frozen = study_status(whole / "sweep").states.get("frozen")
    capsys.readouterr()
    seen = set()
    for budget in ("1e4", "1e5") if seeds == 1 else ("1e5",):
        assert main(["plan", "sweep", "--budget", budget, "--json", "-"]) == 0
        steps = json.loads(capsys.readouterr().out)["run_next"]
        for i, step in enumerate(steps):
            if not step["command"].startswith("isocompute run "):
                continue
            copy = tmp_path / f"{budget}-{i}"
            shutil.copytree(whole, copy)
            monkeypatch.chdir(copy)
            before = rollouts(copy / "sweep")
            assert main(shlex.split(step["command"])[1:]) == 0
            capsys.readouterr()
            trained = rollouts(copy / "sweep") - before
            # in whole batches
            assert trained == pytest.approx(step["rollouts"], rel=0.03), step["command"]
            assert study_status(copy / "sweep").states.get("frozen") == frozen
            seen.add(step["settles"])
        monkeypatch.chdir(whole)
    assert "bp_untested" in seen or len(b_p) > 1
    assert len(seen) >= 2, seen
