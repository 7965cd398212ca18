"""Runs in fixed shapes: what every engine promises, several at once, and what a device is asked."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402 (torch is optional)
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.base import DivergedError, StopRequested  # noqa: E402
from isocompute.engines.local import LocalEngine, fixed  # noqa: E402
from isocompute.engines.local import policy as room  # noqa: E402
from isocompute.engines.local.graphs import Captured  # noqa: E402
from isocompute.engines.local.together import Together, shape_of  # noqa: E402
from isocompute.errors import InputError  # noqa: E402
from isocompute.testing.engine import Recorder  # noqa: E402
from local_tools import tiny_folder  # noqa: E402
from test_engine_cost import WAITS, Counting  # noqa: E402
from test_updates import Faulty, Local, make_spec  # noqa: E402

FIXED = {"shapes": "fixed"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


class TestFixed(Local):
    options = FIXED
    recipe = {"kl_coef": 0.05, "entropy_coef": 0.01}
    measured = ("loss", "kl", "entropy", "grad_norm", "zero_variance_share", "distinct_share")
    supported = (
        {"kl_coef": 0.1}, {"entropy_coef": 0.1}, {"temperature": 0.9}, {"top_p": 0.9},
        {"learning_rate": 1e-2}, {"warmup_steps": 0}, {"weight_decay": 0.5},
        {"max_grad_norm": 0.01}, {"gradient_rollouts": 3}, {"advantage_std": "none"},
        {"aggregation": "seq-mean-token-sum"}, {"zero_variance_filter": "loss"},
        {"zero_variance_filter": "regularizers"},
    )  # fmt: skip
    unsupported = (
        {"objective": "ppo"}, {"objective": "cispo"}, {"updates_per_batch": 2},
        {"clip_high": 0.3}, {"importance_cap": 0.5},
    )  # fmt: skip
    unsupported_options = (
        {"graphs": True}, {"sampler_dtype": "int8"}, {"dtype": "bfloat16"}, {"shapes": "round"},
    )  # fmt: skip


def test_another_architecture_and_graphs_without_fixed_shapes_are_refused(folder):
    with pytest.raises(InputError, match="graphs needs device cuda and shapes: fixed"):
        LocalEngine().check(make_spec(folder, None, {"graphs": True}))
    spec = make_spec("bits-mlp", None, FIXED)
    with pytest.raises(InputError, match="shapes: fixed needs a transformer, but got .*bits-mlp"):
        LocalEngine().check(spec)


def finished(specs, folder, resumes=None, recorders=None):
    """Train the runs together to their ends."""
    recorders = recorders or [
        Recorder(folder=folder / str(i)) for i in range(len(specs))
    ]  # fmt: skip
    for one in recorders:
        one.folder.mkdir(parents=True, exist_ok=True)
    together = Together(specs, resumes or [None] * len(specs), recorders)
    while together.advance():
        pass
    return together, recorders


def several(folder, recipe=None, **changes):
    """Runs of one shape that differ in seed, rate, n x B_p and recipe."""
    whole = make_spec(folder, {"kl_coef": 0.05, **(recipe or {})}, FIXED, **changes)
    splits = Allocation(problems_per_batch=8, rollouts_per_problem=3, steps=8)
    return [
        whole, replace(whole, seed=5), replace(whole, allocation=splits),
        replace(whole, seed=6, recipe=whole.recipe.replace(learning_rate=1e-2, entropy_coef=0.02)),
    ]  # fmt: skip


def assert_same(mine, theirs, last=8):
    """The same tokens at every step, and numbers that agree to the rounding of float32."""
    assert len(mine.steps) == len(theirs.steps)
    for one, two in zip(mine.steps, theirs.steps, strict=True):
        assert one.tokens == two.tokens
        assert one.problem_Q.tolist() == two.problem_Q.tolist()
        assert one.successes_Q.tolist() == two.successes_Q.tolist()
        assert one.health == pytest.approx(two.health, rel=1e-3, abs=1e-6)
    for one, two in zip(mine.evaluations, theirs.evaluations, strict=True):
        assert (one.step, one.problem_set) == (two.step, two.problem_set)
        assert one.successes_P.tolist() == two.successes_P.tolist()
    states = [load_file(r.checkpoints[last] / "training.safetensors") for r in (mine, theirs)]
    for name in states[0]:
        torch.testing.assert_close(states[0][name], states[1][name], atol=1e-4, rtol=1e-3)


@pytest.mark.heavy
def test_every_run_of_a_batch_is_the_run_that_it_is_alone(folder, tmp_path):
    specs = several(folder)
    _, batch = finished(specs, tmp_path / "together")
    for i, spec in enumerate(specs):
        _, (alone,) = finished([spec], tmp_path / f"alone{i}")
        assert_same(batch[i], alone)
    last = [r.steps[-1].successes_Q.tolist() for r in batch]
    assert last[0] != last[1]


@pytest.mark.heavy
def test_runs_of_a_batch_share_its_time(folder, tmp_path):
    """What is booked for all of them is no more than what passed."""
    began = time.monotonic()
    _, batch = finished(several(folder), tmp_path)
    passed = time.monotonic() - began
    booked = [sum(x.wall_s for x in [*r.steps, *r.evaluations]) for r in batch]
    assert 0 < sum(booked) <= passed
    assert max(booked) < 0.5 * sum(booked)


@pytest.mark.heavy
def test_runs_that_stand_at_different_steps_go_on_together(folder, tmp_path):
    """After a crash their checkpoints differ; a run that is done waits for the others."""
    specs = several(folder)[:2]
    _, whole = finished(specs, tmp_path / "whole")
    starts = sorted(s for s in whole[0].checkpoints if 0 < s < 8)
    resumes = [whole[0].checkpoints[starts[0]], whole[1].checkpoints[starts[-1]]]
    assert starts[0] < starts[-1]
    _, rest = finished(specs, tmp_path / "rest", resumes)
    for before, after, start in zip(whole, rest, (starts[0], starts[-1]), strict=True):
        assert [r.step for r in after.steps] == list(range(start + 1, 9))
        joined = Recorder(
            folder=after.folder, checkpoints=after.checkpoints,
            steps=[r for r in before.steps if r.step <= start] + after.steps,
            evaluations=[r for r in before.evaluations if r.step <= start] + after.evaluations,
        )  # fmt: skip
        assert_same(joined, before)


@pytest.mark.heavy
def test_a_run_that_ends_early_leaves_the_others_alone(folder, tmp_path):
    specs = several(folder)[:3]
    specs[0] = replace(specs[0], recipe=specs[0].recipe.replace(learning_rate=1e30))
    stops = [Recorder(folder=tmp_path / "a"), Recorder(folder=tmp_path / "b", stop_at=3),
             Recorder(folder=tmp_path / "c")]  # fmt: skip
    together, (diverged, stopped, whole) = finished(specs, tmp_path, None, stops)
    errors = [m.error for m in together.members]
    assert isinstance(errors[0], DivergedError)
    assert len(diverged.steps) < 8
    assert isinstance(errors[1], StopRequested)
    assert len(stopped.steps) == 3
    assert errors[2] is None
    _, (alone,) = finished(specs[2:], tmp_path / "alone")
    assert_same(whole, alone)


@pytest.mark.parametrize("first", [24, 10_000], ids=["in an evaluation", "in an update"])
def test_what_is_drawn_from_no_probabilities_is_no_result(folder, tmp_path, first):
    """As in drawn shapes: else an evaluation of what is left would be a score of 0."""
    healthy = make_spec(folder, {"warmup_steps": 0}, FIXED, first_evaluation=first)
    wild = replace(healthy, recipe=healthy.recipe.replace(learning_rate=1e30))
    together, (mine, theirs) = finished([healthy, wild], tmp_path)
    assert together.members[0].error is None
    assert len(theirs.steps) == 1
    assert isinstance(together.members[1].error, DivergedError)
    assert "probabilities must be finite" in str(together.members[1].error)
    assert [e.step for e in theirs.evaluations] == [0]
    assert list(theirs.checkpoints) == [0]
    _, (alone,) = finished([healthy], tmp_path / "alone")
    assert_same(mine, alone)


def test_runs_of_several_shapes_are_refused(folder, tmp_path):
    one = several(folder)[0]
    other = replace(one, recipe=one.recipe.replace(temperature=0.9))
    assert shape_of(one) != shape_of(other)
    with pytest.raises(InputError, match="trained together must have one model.*got 2 runs"):
        Together([one, other], [None, None], [None, None])


def test_a_verifier_that_fails_is_left_out_and_asked_again(folder, monkeypatch, tmp_path):
    real = room.load_verifier
    monkeypatch.setattr(
        room, "load_verifier", lambda spec: Faulty(real(spec), lambda text, _: text[0] in "0123")
    )
    _, (run,) = finished([make_spec(folder, None, FIXED)], tmp_path)
    shares = [r.health["verifier_error_share"] for r in run.steps]
    assert 0.01 < min(shares) < max(shares) < 0.6
    told = [one for r in (*run.steps, *run.evaluations) for one in r.unjudged]
    assert all(one.response[0] in "0123" for one in told)
    evaluated = run.evaluations[-1]
    again = evaluated.sampled_rollouts - evaluated.samples * len(evaluated.successes_P)
    assert again > 0
    assert again % evaluated.samples == 0


@pytest.mark.heavy
def test_training_in_fixed_shapes_learns_as_training_that_shares_prefixes_does(folder, tmp_path):
    """Other random numbers, so not the same run: mean rewards of the last steps, four seeds."""
    allocation = Allocation(problems_per_batch=8, rollouts_per_problem=16, steps=24)
    ends = []
    for options in (FIXED, {}):
        specs = [make_spec(folder, None, options, seed=s, allocation=allocation) for s in range(4)]
        if options:
            runs = finished(specs, tmp_path)[1]
        else:
            runs = [Recorder(folder=tmp_path / f"drawn{s}") for s in range(4)]
            for spec, run in zip(specs, runs, strict=True):
                run.folder.mkdir()
                LocalEngine().run(spec, None, run)
        rewards = [[r.health["reward"] for r in run.steps] for run in runs]
        first = sum(sum(x[:2]) for x in rewards) / 8
        ends.append((first, sum(sum(x[-6:]) for x in rewards) / 24))
    (start, mine), (before, theirs) = ends
    assert start == pytest.approx(before, abs=0.05)
    assert mine - start > 0.1
    assert mine == pytest.approx(theirs, abs=0.1)


# ---- what a device is asked ----

# A CUDA graph cannot hold what waits, what depends on the data for its size, and what copies a
# number of the host; the last ones add up rows in an order that is not fixed.
NOT_IN_A_GRAPH = WAITS | {
    f"aten::{name}" for name in (
        "lift_fresh", "masked_select", "index", "unique_consecutive",
        "embedding_dense_backward", "index_add", "index_add_", "index_put", "index_put_",
        "repeat_interleave", "bincount",
    )
}  # fmt: skip


@pytest.mark.heavy
def test_kernels_and_waits_grow_neither_with_n_nor_with_runs(folder, tmp_path, monkeypatch):
    reads = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t, f=torch.Tensor.cpu: reads.append(1) or f(t))
    monkeypatch.setattr(
        torch.Tensor, "tolist", lambda t, f=torch.Tensor.tolist: reads.append(1) or f(t)
    )
    kernels, waits = {}, {}
    for runs, n in ((1, 4), (1, 64), (4, 4), (4, 64)):
        allocation = Allocation(problems_per_batch=4, rollouts_per_problem=n, steps=8)
        one = make_spec(folder, {"kl_coef": 0.1}, FIXED, allocation=allocation)
        specs = [replace(one, seed=s) for s in range(runs)]
        recorders = [Recorder(folder=tmp_path / f"{runs}-{n}-{s}") for s in range(runs)]
        for each in recorders:
            each.folder.mkdir()
        together = Together(specs, [None] * runs, recorders)
        together.advance()
        together.advance()
        seen: Counter[str] = Counter()
        asked = []
        for captured in (together.draws.call, together.learn):
            inner = captured.function

            def counted(inner=inner, seen=seen):
                with Counting() as counting:
                    out = inner()
                seen.update(counting.seen)
                return out

            captured.function = counted
        judge = type(together.members[0]).judge

        def judged(member, rows, problems, judge=judge, asked=asked):
            before = len(reads)  # what the host does with its own numbers waits for no device
            out = judge(member, rows, problems)
            asked.append(len(reads) - before)
            return out

        with monkeypatch.context() as patch:
            patch.setattr(type(together.members[0]), "judge", judged)
            patch.setattr(type(together.members[0]), "updated", lambda m, *_: None)
            patch.setattr(type(together.members[0]), "done", False)
            reads.clear()
            patch.setattr(together, "_evaluate", lambda _: None)
            patch.setattr(together, "_save", lambda _: None)
            together.advance()
        assert seen["aten::scalar_tensor"] <= 2  # the gradient of clamp; its zeros are made there
        assert seen.keys() & NOT_IN_A_GRAPH == set()
        kernels[runs, n] = sum(seen.values())
        waits[runs, n] = len(reads) - sum(asked)
    assert set(kernels.values()) == {kernels[1, 4]}, kernels
    assert set(waits.values()) == {2}, waits


@pytest.mark.heavy
def test_a_batch_beyond_the_memory_of_a_pass_takes_several(folder, tmp_path, monkeypatch):
    spec = make_spec(folder, {"kl_coef": 0.1}, FIXED)
    found = []
    for floats in (1 << 28, 1 << 17):
        monkeypatch.setitem(fixed.FLOATS_PER_PASS, "cpu", floats)
        together, (run,) = finished([spec], tmp_path / str(floats))
        found.append((-(-24 // together.rows), run))
    assert found[0][0] == 1 < found[1][0]
    assert_same(found[1][1], found[0][1])


@pytest.mark.heavy
def test_runs_on_another_device_mix_it_with_no_tensor_of_the_cpu(folder, tmp_path):
    """The same bits of randomness there: equal draws, and numbers that differ by rounding."""
    from fake_device import NAME, FakeDevice

    specs = several(folder)[:2]
    _, here = finished(specs, tmp_path / "here")
    with FakeDevice():
        there = [replace(s, engine_options={**s.engine_options, "device": NAME}) for s in specs]
        _, runs = finished(there, tmp_path / "there")
        for one, two in zip(here, runs, strict=True):
            assert_same(one, two)


# ---- graphs ----


class Recording:
    """Stands in for torch's CUDA graphs: what is recorded computes nothing until it is replayed."""

    def __init__(self, changed):
        self.changed, self.log = changed, []

    def Stream(self):
        self.log.append("stream")
        return self

    def current_stream(self):
        return self

    def wait_stream(self, other):
        assert other is self
        self.log.append("wait")

    @contextlib.contextmanager
    def stream(self, stream):
        yield

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    @contextlib.contextmanager
    def graph(self, graph, stream):
        assert stream is self
        self.log.append("record")
        before = [x.clone() for x in self.changed]
        yield
        for x, was in zip(self.changed, before, strict=True):
            x.copy_(was)


def test_a_capture_leaves_what_the_function_changes_as_it_was(monkeypatch):
    state, calls = torch.tensor([1.0]), []

    def function():
        calls.append(1)
        state.add_(1)
        return state.clone()

    cuda = Recording([state])
    for name in ("Stream", "current_stream", "stream", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    captured = Captured(function, graphs=True, changed=(state,))
    captured()
    assert len(calls) == 4  # three times to warm up, and once to be recorded
    assert state.tolist() == [1.0]
    captured()
    assert len(calls) == 4
    assert cuda.log == ["stream", "wait", "wait", "record", "replay", "replay"]
    plain = Captured(function, graphs=False)
    assert plain().tolist() == [2.0]
    assert plain().tolist() == [3.0]


def traced(captured):
    """As `Captured._capture`, with torch's tracer: the operations of one call, to be replayed."""
    before = [x.clone() for x in captured.changed]
    graph = make_fx(lambda: captured.function())()
    captured.result = captured.function()
    for x, was in zip(captured.changed, before, strict=True):
        x.copy_(was)

    def replay():
        for old, new in zip(tree_leaves(captured.result), tree_leaves(graph()), strict=True):
            old.copy_(new)

    return replay


@pytest.mark.heavy
def test_a_replay_reads_everything_that_changes_from_its_inputs(folder, tmp_path, monkeypatch):
    """A number that were fixed when the graph was made (a rate, a key) would show by step 2."""
    specs = several(folder)
    _, plain = finished(specs, tmp_path / "plain")
    made = []
    monkeypatch.setattr(Captured, "_capture", lambda c: made.append(1) or traced(c))
    start = Together.__init__

    def with_graphs(self, *args):
        start(self, *args)
        for one in (self.draws.call, self.evaluation_draws.call, self.learn):
            one.graphs = True

    monkeypatch.setattr(Together, "__init__", with_graphs)
    _, replayed = finished(specs, tmp_path / "replayed")
    assert len(made) == 3
    for mine, theirs in zip(replayed, plain, strict=True):
        assert mine.comparable() == theirs.comparable()
        states = [load_file(r.checkpoints[8] / "training.safetensors") for r in (mine, theirs)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def on_a_gpu(spec, graphs=True):
    options = {**spec.engine_options, "device": "cuda", "graphs": graphs}
    return replace(spec, engine_options=options)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [False, True])
def test_runs_on_a_gpu_are_those_of_the_cpu_but_for_rounding(folder, tmp_path, graphs):
    """The same random bits. Tokens may differ where a number falls on an edge: one update here."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    one = Allocation(problems_per_batch=4, rollouts_per_problem=6, steps=1)
    specs = [replace(s, allocation=one) for s in several(folder)[:2]]
    _, here = finished(specs, tmp_path / "here")
    _, there = finished([on_a_gpu(s, graphs) for s in specs], tmp_path / "there")
    for mine, theirs in zip(there, here, strict=True):
        assert_same(mine, theirs, last=1)


@pytest.mark.gpu
def test_a_graph_replays_what_it_recorded(folder, tmp_path):
    """Eight updates and their evaluations, several runs: the same as launched kernel by kernel."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    specs = several(folder)
    _, plain = finished([on_a_gpu(s, graphs=False) for s in specs], tmp_path / "plain")
    _, graphed = finished([on_a_gpu(s) for s in specs], tmp_path / "graphs")
    _, again = finished([on_a_gpu(s) for s in specs], tmp_path / "again")
    for mine, theirs, twice in zip(graphed, plain, again, strict=True):
        assert_same(mine, theirs)
        assert mine.comparable() == twice.comparable()  # bit for bit on one machine


@pytest.mark.gpu
def test_a_graph_of_a_large_batch_is_captured(folder, tmp_path):
    """More than 3,072 rows: there a lookup's gradient cannot be captured, and this has none."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    large = Allocation(problems_per_batch=8, rollouts_per_problem=1024, steps=2)
    _, (run,) = finished([on_a_gpu(several(folder, allocation=large)[0])], tmp_path)
    assert len(run.steps) == 2
