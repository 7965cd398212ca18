"""TRL trains with vLLM colocated, on the CPU, in the environment of `make test-verl`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from isocompute.allocation import Allocation
from isocompute.engines.base import StopRequested
from isocompute.engines.trl import TrlEngine, training_order
from isocompute.errors import RunError
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import Recipe
from isocompute.study import RunSpec
from sinks import ListSink

ON_CPU = Path(__file__).parents[1] / "verl_cpu"
PYTHON = os.environ.get("ISOCOMPUTE_VERL_CPU_PYTHON",
                        str(ON_CPU.parent.parent / ".venv-verl-cpu/bin/python"))  # fmt: skip
# TRL beside that environment, not in it: verl changes where it finds TRL.
TRL = os.environ.get("ISOCOMPUTE_TRL_BESIDE", str(Path(PYTHON).parent.parent / "trl"))
pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason="no Python with verl and vLLM"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([PYTHON, str(ON_CPU / "make_model.py"), str(folder)], check=True,
                   capture_output=True)  # fmt: skip
    return folder


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PYTHONPATH": f"{TRL}{os.pathsep}{ON_CPU / 'with_trl'}", "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


def spec_of(folder: Path, model: Path, steps: int = 6, room: int = 16) -> RunSpec:
    """Problems whose answer is a digit that must stand in the response."""
    own = folder / "holds.py"
    own.write_text("def holds(response, answer):\n    return int(answer in response)\n")

    def digits(name: str, first: int, last: int) -> ProblemSet:
        return ProblemSet(name=name, verifier=f"{own}:holds", problems=[
            Problem(id=f"{name}-{i}", prompt=f"{i:02d}", answer=str(i % 10))
            for i in range(first, last)])

    return RunSpec(
        engine="trl", seed=0,
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=8, steps=steps),
        recipe=Recipe(learning_rate=0.01, learning_rate_scaling="constant", warmup_steps=2,
                      temperature=1.0, importance_cap=2.0),
        train=digits("train", 0, 16), validation={"val": digits("val", 16, 22)},
        evaluations_per_octave=1, first_evaluation=64,
        engine_options={
            "model": str(model), "max_new_tokens": 4, "python": PYTHON, "device": "cpu",
            "micro_batch": 16, "overrides": {"use_vllm": True, "vllm_mode": "colocate",
                                             "vllm_max_model_length": room},
        },
    )  # fmt: skip


def told(sink: ListSink) -> list[tuple[object, ...]]:
    return [
        *((s.step, s.tokens, s.problem_Q.tolist(), s.successes_Q.tolist(), s.health["grad_norm"])
          for s in sink.steps),
        *((e.step, e.tokens, e.successes_P.tolist(), e.sampled_tokens) for e in sink.evaluations),
    ]  # fmt: skip


def test_trl_trains_what_its_own_vllm_sampled_and_resumes(tmp_path: Path, model: Path) -> None:
    spec = spec_of(tmp_path, model)
    whole = ListSink(tmp_path / "whole")
    TrlEngine().run(spec, None, whole)
    order = training_order(16, 4, 6, spec.seed).reshape(6, 4)
    assert [s.problem_Q.tolist() for s in whole.steps] == [sorted(row) for row in order.tolist()]
    trained = 0
    for s in whole.steps:  # the trainer's own count of each step, and the store's
        assert (s.rollouts, s.samples) == (32 * s.step, 8)
        assert s.tokens - trained == round(s.health["length_tokens"] * 32)
        trained = s.tokens
        # the sampler has the weights of the last update: its probabilities are the trainer's
        assert s.health["importance_ratio"] == pytest.approx(1.0, abs=1e-3)
    assert sum(s.health["grad_norm"] > 0 for s in whole.steps) >= 3
    assert [(e.step, e.samples, len(e.successes_P)) for e in whole.evaluations] == [
        (0, 4, 6), (2, 4, 6), (4, 4, 6), (6, 4, 6)]  # fmt: skip
    cut = ListSink(tmp_path / "cut", stop_at=2)
    with pytest.raises(StopRequested):
        TrlEngine().run(spec, None, cut)
    cut.stop_at = None
    TrlEngine().run(spec, cut.last, cut)
    assert told(cut) == told(whole)  # the sampler lives in the process that seeds every step


def test_a_sampler_without_room_for_a_response_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(RunError, match="vllm_max_model_length must be at least 6, the longest"):
        TrlEngine().run(spec_of(tmp_path, model, room=5), None, ListSink(tmp_path))
