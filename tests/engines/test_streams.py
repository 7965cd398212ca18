"""Random numbers: every stream that a run draws from is its own; a study never mixes schemes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute.engines.simulator import SimulatorEngine
from isocompute.engines.streams import Use, problem_order, stream_key
from isocompute.errors import InputError
from isocompute.runner import run_study
from isocompute.store import Store
from study_helpers import FAST, edit, small_study

NUMBER = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**32 + 1])
KEYS = st.tuples(NUMBER, st.sampled_from(Use), NUMBER, st.integers(0, 2**32 - 1))


def test_a_change_of_streams_has_a_revision_of_its_own():
    # Studies begun under another revision are finished under theirs, or refused.
    local = pytest.importorskip("isocompute.engines.local")
    assert (local.LocalEngine.revision, getattr(SimulatorEngine, "revision", 1)) == (2, 1)


@given(KEYS, KEYS)
def test_keys_are_six_words_and_no_two_meet(one, other):
    assert len(stream_key(*one)) == 6
    assert max(stream_key(*one)) < 2**32
    assert (stream_key(*one) == stream_key(*other)) == (one == other)
    states = [np.random.SeedSequence(stream_key(*key)).generate_state(4).tolist()
              for key in (one, other)]  # fmt: skip
    assert (states[0] == states[1]) == (one == other)


def test_known_keys():
    assert stream_key(3, Use.TRAINING, 7) == (3, 0, 0, 7, 0, 0)
    assert stream_key(2**32 + 5, Use.LEARNING, 2**33, 4) == (5, 1, 4, 0, 2, 4)
    orders = [problem_order(seed, number, 50).tolist() for seed in (0, 1) for number in (0, 1)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.heavy
def test_every_stream_of_a_study_is_its_own(tmp_path, monkeypatch):
    """Of two seeds, two validation sets, several steps, and of difficulty: recorded, all distinct.

    Each has its seed and its step; the same run draws from the same ones again.
    """
    torch = pytest.importorskip("torch")
    from isocompute.allocation import Allocation
    from isocompute.engines.local import LocalEngine, base_rates, engine
    from isocompute.recipe import Recipe
    from isocompute.study import RunSpec
    from local_tools import WORLD, tiny_folder
    from sinks import ListSink

    folder = tiny_folder(tmp_path / "tiny")
    train = WORLD.problems("train", 10, seed=1)
    sets = {name: WORLD.problems(name, 6, seed=2) for name in ("a", "b")}
    seen: list[tuple[int, ...]] = []

    def recorded(seed, use=Use.TRAINING, first=0, second=0):
        seen.append((seed, use, first, second))
        return stream(seed, use, first, second)

    stream = engine.stream
    monkeypatch.setattr(engine, "stream", recorded)
    monkeypatch.setattr(base_rates, "stream", recorded)
    states = {}
    draw = torch.rand

    def drawn(*args, generator=None, **kwargs):
        if generator is not None:  # the first use of a generator shows its state
            states.setdefault(len(seen), generator.get_state().numpy().tobytes())
        return draw(*args, generator=generator, **kwargs)

    monkeypatch.setattr(torch, "rand", drawn)
    spec = RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=6, steps=5),
        recipe=Recipe(learning_rate=1e-3), train=train, validation=sets, seed=0,
        engine_options={"model": str(folder)}, first_evaluation=24, evaluations_per_octave=1,
    )  # fmt: skip
    for seed in (0, 3):
        LocalEngine().run(replace(spec, seed=seed), None, ListSink(tmp_path / str(seed)))
    count = base_rates.success_counter(str(folder), train, seed=0)
    for _ in range(3):
        count(np.arange(10), 4)
    assert len(set(seen)) == len(seen)
    assert len(set(states.values())) == len(states) > 20
    by_use = {use: [key for key in seen if key[1] == use] for use in Use}
    for seed in (0, 3):
        steps = [key[2] for key in by_use[Use.TRAINING] if key[0] == seed]
        assert steps == [1, 2, 3, 4, 5]
        evaluations = [key[2:] for key in by_use[Use.EVALUATION] if key[0] == seed]
        assert evaluations == [(step, number) for step in (0, 1, 2, 4, 5) for number in (0, 1)]
    assert [key[2] for key in by_use[Use.DIFFICULTY]] == [1, 2, 3]
    first = list(seen)
    seen.clear()
    LocalEngine().run(spec, None, ListSink(tmp_path / "again"))
    assert seen == [key for key in first if key[0] == 0 and key[1] != Use.DIFFICULTY]


@pytest.mark.heavy
def test_a_study_of_another_scheme_is_finished_with_it_or_refused(tmp_path, monkeypatch):
    done = small_study(rollouts=64)
    run_study(done, tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        assert store.info()["revisions"] == {"simulator": 1}
    longer = small_study(rollouts=128)
    monkeypatch.setattr(SimulatorEngine, "revision", 2, raising=False)
    before = (tmp_path / "study.db").read_bytes()
    rule = "engine 'simulator' began with scheme 1 and this isocompute has scheme 2; finish"
    with pytest.raises(InputError, match=rule):
        run_study(longer, tmp_path, workers=0, settings=FAST)
    assert before == (tmp_path / "study.db").read_bytes()
    assert run_study(done, tmp_path, workers=0, settings=FAST).done == 2  # nothing to draw
    with Store(tmp_path) as store:
        assert store.info()["revisions"] == {"simulator": 1}
    with pytest.raises(InputError, match="scheme 1"):
        run_study(longer, tmp_path, workers=0, settings=FAST)
    monkeypatch.undo()
    assert run_study(longer, tmp_path, workers=0, settings=FAST).done == 2
    # A file of before schemes were written down is of the first.
    edit(tmp_path, "DELETE FROM study WHERE key = 'revisions'")
    monkeypatch.setattr(SimulatorEngine, "revision", 2, raising=False)
    with pytest.raises(InputError, match="scheme 1"):
        run_study(small_study(rollouts=256), tmp_path, workers=0, settings=FAST)
    summary = run_study(longer, tmp_path / "new", workers=0, settings=FAST)
    assert summary.done == 2
    with Store(tmp_path / "new") as store:
        assert json.dumps(store.info()["revisions"]) == '{"simulator": 2}'
