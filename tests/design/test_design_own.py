"""A study file for a trainer of one's own: taken by `run` as it is, or what is left open named.

The tests end at what `run` says of a file before it trains; what it trains: engines/test_command.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from isocompute.answers.price import Price
from isocompute.cli import main
from isocompute.design import Sweep, Trainer, write_study
from isocompute.design.kept import Kept
from isocompute.engines.command import NEEDED
from isocompute.errors import InputError
from isocompute.runner import missing_trainer, planned_study
from isocompute.study.cost import Calibration, study_cost
from isocompute.study.yaml12 import read_yaml

SWEEP = Sweep(problems_per_batch=16, rollouts_per_problem=(4, 16), seeds=1, rollouts_per_run=4096)
OWN = ["python3", "train.py", *(f"{{{name}}}" for name in NEEDED)]


def written(path: Path, **words: Any) -> dict[str, Any]:
    write_study(path, SWEEP, Trainer(engine="command", **words), final=5e5, problems=None,
                price=Price())  # fmt: skip
    found = read_yaml(path)
    assert isinstance(found, dict)
    return found


def test_a_command_that_was_given_is_trained_as_it_is(tmp_path: Path) -> None:
    content = written(tmp_path / "own.yaml", command=OWN, resume=[], gpus=8)
    assert content["engine_options"] == {"command": OWN, "resume": [], "log": "metrics.jsonl",
                                         "reader": "jsonl"}  # fmt: skip
    assert content["recipe"] == {"learning_rate": 1e-6}  # nothing that it is not told
    assert content["rates"] == {"gpus": 8}
    study, lacks = planned_study(tmp_path / "own.yaml")
    assert (lacks, missing_trainer(study), study.slices) == (None, None, (0.125, 0.25, 0.5, 1.0))
    assert "FILL_IN" not in (tmp_path / "own.yaml").read_text()
    measured = Calibration(step_s={64: 1.0, 256: 2.0}, evaluation_s=0.0, tokens_per_rollout=1.0,
                           rollouts=1, tokens=1, wall_s=1.0)  # fmt: skip
    cost = study_cost(study, measured)
    assert cost.worker_s
    assert cost.gpu_hours == pytest.approx(8 * cost.worker_s / 3600)


@pytest.mark.parametrize(("engine", "gpus", "agrees", "other", "where"), [
    ("command", 8, "engine_options.gpus=8", "engine_options.gpus=4", "on 4"),  # of older studies
    ("verl", 8, "rates.gpus=8", "rates.gpus=16", "on 8"),
    ("trl", 2, "rates.gpus=2", "rates.gpus=1", "on 2"),
    ("local", None, "rates.gpus=null", "rates.gpus=1", "on the CPU"),
])  # fmt: skip
def test_gpus_that_rates_and_engine_options_say_must_be_the_same(
    engine: str, gpus: int | None, agrees: str, other: str, where: str, tmp_path: Path
) -> None:
    path = tmp_path / "study.yaml"
    own = {"command": OWN, "resume": []} if engine == "command" else {}
    write_study(path, SWEEP, Trainer(engine=engine, gpus=gpus, **own), final=5e5, problems=None,
                price=Price())  # fmt: skip
    planned_study(path, [agrees])
    with pytest.raises(InputError, match="`rates.gpus` must be the GPUs that a run trains on") as e:
        planned_study(path, [other])
    assert f"it trains {where};" in str(e.value)


def test_what_is_left_open_is_named_and_run_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    for words, name in (({}, "command"), ({"command": OWN}, "resume")):
        written(file, **words)
        assert main(["run", str(file), "--dry-run"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"To train it here: engine_options.{name} must be filled in, but still" in said
        assert main(["run", str(file)]) == 2
        assert f"engine_options.{name} must be filled in" in capsys.readouterr().err
        assert not (tmp_path / "own").exists()


def test_words_of_the_recipe_are_those_that_the_command_is_told(tmp_path: Path) -> None:
    told = written(tmp_path / "own.yaml", command=[*OWN, "{kl_coef}"], resume=[])
    assert told["recipe"] == {"learning_rate": 1e-6, "kl_coef": 1e-3}
    runs = Kept(words={"learning_rate": 3e-6, "kl_coef": 0.0, "entropy_coef": 0.0, "top_p": 0.9})
    kept = written(tmp_path / "own.yaml", command=OWN, resume=[], kept=runs)
    assert kept["recipe"] == {"learning_rate": 3e-6, "kl_coef": 0.0, "entropy_coef": 0.0}
    planned_study(tmp_path / "own.yaml")


def test_slices_of_a_trainer_that_cannot_go_on_are_refused_first(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    written(file, command=OWN, resume=[])
    text = file.read_text()
    file.write_text(text.replace("  resume: []\n", ""))
    with pytest.raises(InputError, match="slices must go on where they stopped, but the engine"):
        planned_study(file)
    planned_study(file, ["slices=[1]"])
    file.write_text(text)
    planned_study(file)


def test_options_of_another_trainer_are_refused() -> None:
    with pytest.raises(InputError, match="must stand in its command, but got --model M"):
        Trainer(engine="command", model="M")
    for words in ({"command": OWN}, {"resume": []}):
        with pytest.raises(InputError, match="are of the engine 'command', but got --engine verl"):
            Trainer(engine="verl", **words)


def test_design_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.yaml"
    base = ["design", "--budget", "1e6", "--difficulty", "easy", "--draws", "4", "--sweep",
            "-o", str(file), "--problems", "4000", "--gpus", "8xH100", "--hours", "72",
            "--rollouts-per-gpu-hour", "900"]  # fmt: skip
    assert main([*base, "--command", shlex.join(OWN), "--resume=--resume"]) == 0
    said = capsys.readouterr().out
    assert "(command" in said
    assert "Pass --train, or edit it." in " ".join(said.split())
    found: Any = read_yaml(file)
    assert found["engine_options"]["command"] == OWN
    assert found["engine_options"]["resume"] == ["--resume"]
    assert found["problems"]["train"] == {"generated": "simulated", "options": {"size": 4000}}
    assert found["rates"]["gpus"] == 8
    assert main(["run", str(file), "--dry-run"]) == 0
