"""What a run of the embedded engine samples: with which arguments, from which weights.

An evaluation must be that of the weights that are saved with it, at the recipe's temperature and
nucleus, from a stream of its own; training samples must come from the policy as it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import LocalEngine, engine, policy  # noqa: E402
from isocompute.engines.local.folders import load_model, save_model  # noqa: E402
from isocompute.engines.local.learner import Learner, probed_kl  # noqa: E402
from isocompute.engines.local.policy import Policy, successes_of  # noqa: E402
from isocompute.engines.local.sampling import sample  # noqa: E402
from isocompute.engines.local.steps import stream  # noqa: E402
from isocompute.engines.streams import Use  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.study import RunSpec  # noqa: E402
from local_tools import WORLD, tiny_folder, tiny_model  # noqa: E402
from sinks import ListSink  # noqa: E402

SEED, N, B_P, K = 5, 6, 4, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def spec_of(folder, **recipe):
    words = {"learning_rate": 3e-2, "temperature": 0.6, "top_p": 0.8, "warmup_steps": 2}
    return RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=B_P, rollouts_per_problem=N, steps=4),
        recipe=Recipe(**{**words, **recipe}),
        train=WORLD.problems("train", 10, seed=1),
        validation={"a": WORLD.problems("a", 8, seed=2), "b": WORLD.problems("b", 6, seed=3)},
        seed=SEED, evaluation_samples=K, engine_options={"model": str(folder)},
        first_evaluation=24, evaluations_per_octave=1,
    )  # fmt: skip


def weights_of(model):
    values = [p.detach().numpy().tobytes() for p in model.parameters()]
    return hashlib.sha256(b"".join(values)).hexdigest()


def states_of(generator):
    return hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()


def run(spec, work, monkeypatch):
    """The sink and every call of `sample`: ("train" | "evaluate", weights, arguments)."""
    calls = []

    def recorded(kind):
        def call(model, prompt_PS, length_P, n, **arguments):
            given = dict(arguments)
            given["generator"] = states_of(arguments["generator"])
            calls.append((kind, weights_of(model), prompt_PS.clone(), n, given))
            return sample(model, prompt_PS, length_P, n, **arguments)

        return call

    monkeypatch.setattr(engine, "sample", recorded("train"))
    monkeypatch.setattr(policy, "sample", recorded("evaluate"))
    sink = ListSink(work)
    LocalEngine().run(spec, None, sink)
    return sink, calls


def test_arguments_of_sampling(folder, tmp_path, monkeypatch):
    spec = spec_of(folder)
    sink, calls = run(spec, tmp_path, monkeypatch)
    tokens = Policy(folder).max_new_tokens
    train = [call for call in calls if call[0] == "train"]
    evaluate = [call for call in calls if call[0] == "evaluate"]
    assert [n for *_, n, _ in train] == [N] * 4
    assert [n for *_, n, _ in evaluate] == [K] * 8  # steps 0, 1, 2, 4; two sets
    for *_, given in calls:
        assert (given["temperature"], given["top_p"], given["max_new_tokens"]) == (0.6, 0.8, tokens)
    assert [given["generator"] for *_, given in train] == [
        states_of(stream(SEED, Use.TRAINING, step)) for step in (1, 2, 3, 4)
    ]
    assert [given["generator"] for *_, given in evaluate] == [
        states_of(stream(SEED, Use.EVALUATION, step, number))
        for step in (0, 1, 2, 4) for number in (0, 1)
    ]  # fmt: skip
    # The policy as it is: each update's weights differ; an evaluation's are those of the next
    # update's samples, and the first are the base model's.
    weights = [w for kind, w, *_ in calls if kind == "train"]
    assert len(set(weights)) == 4
    assert weights[0] == weights_of(load_model(folder))
    at = [w for kind, w, *_ in calls if kind == "evaluate"]
    assert at[:6] == [weights[0], weights[0], weights[1], weights[1], weights[2], weights[2]]
    assert at[6] == at[7]
    assert at[6] not in weights
    # The prompts are those of the problems that the record names.
    data = Policy(folder).tokenize(spec.train)
    for (_, _, prompt_PS, _, _), record in zip(train, sink.steps, strict=True):
        assert torch.equal(prompt_PS, data.token_PS[torch.from_numpy(record.problem_Q)])


def test_an_evaluation_is_that_of_the_saved_weights(folder, tmp_path, monkeypatch):
    """Drawn again from the checkpoint's model file: the same successes, set by set."""
    sink, _ = run(spec_of(folder), tmp_path, monkeypatch)
    last = [record for record in sink.evaluations if record.step == 4]
    assert [record.problem_set for record in last] == ["a", "b"]
    saved = Policy(folder)
    restored = engine._Run(spec_of(folder), ListSink(tmp_path / "other"))
    restored.load(sink.last)
    save_model(restored.learner.model, tmp_path / "saved")
    there = load_model(tmp_path / "saved")
    assert weights_of(there) != weights_of(load_model(folder))
    for number, record in enumerate(last):
        data = saved.tokenize(spec_of(folder).validation[record.problem_set])
        drawn = sample(
            there, data.token_PS, data.length_P, K, max_new_tokens=saved.max_new_tokens,
            generator=stream(SEED, Use.EVALUATION, 4, number), temperature=0.6, top_p=0.8,
        )  # fmt: skip
        reward_N = saved.rewards(drawn, data, range(len(data)))
        assert successes_of(drawn, reward_N).tolist() == record.successes_P.tolist()
        assert record.sampled_tokens == drawn.tokens
        assert record.sampled_rollouts == K * len(data)


def test_numbers_of_a_step_are_those_of_its_samples(folder, tmp_path, monkeypatch):
    """Drawn again with the same argument: successes, tokens, entropy, share of distinct ones."""
    spec = spec_of(folder)
    sink, _ = run(spec, tmp_path, monkeypatch)
    base = Policy(folder)
    data = base.tokenize(spec.train)
    record = sink.steps[0]
    index = torch.from_numpy(record.problem_Q)
    drawn = sample(
        base.model, data.token_PS[index], data.length_P[index], N,
        max_new_tokens=base.max_new_tokens, generator=stream(SEED, Use.TRAINING, 1),
        temperature=0.6, top_p=0.8,
    )  # fmt: skip
    reward_N = base.rewards(drawn, data, record.problem_Q.tolist())
    assert successes_of(drawn, reward_N).tolist() == record.successes_Q.tolist()
    assert record.tokens == drawn.tokens
    assert record.health["reward"] == pytest.approx(int(record.successes_Q.sum()) / (N * B_P))
    assert record.health["entropy"] == pytest.approx(drawn.entropy)
    assert record.health["distinct_share"] == len(drawn.length_N) / (N * B_P)
    assert record.health["length_tokens"] == pytest.approx(drawn.tokens / (N * B_P))


class Failing:
    """A verifier that fails on some responses."""

    def __init__(self, real):
        self.real, self.spec = real, real.spec

    def __call__(self, response, answer):
        from isocompute.verifiers import Outcome

        if response[:1] in "01234567":
            return Outcome(None, "broken")
        return self.real(response, answer)

    def check_answer(self, answer):
        return self.real.check_answer(answer)

    def close(self):
        self.real.close()


def test_failed_verdicts_are_no_part_of_the_reward(folder, tmp_path, monkeypatch):
    """The mean is over what was judged; what was not is a share of all that was drawn."""
    load = policy.load_verifier
    monkeypatch.setattr(policy, "load_verifier", lambda spec: Failing(load(spec)))
    sink, _ = run(spec_of(folder), tmp_path, monkeypatch)
    seen = 0
    for record in sink.steps:
        failed = sum(one.rollouts for one in record.unjudged)
        seen += failed
        reward = int(record.successes_Q.sum()) / max(1, N * B_P - failed)
        assert record.health["reward"] == pytest.approx(reward)
        if record.step in (3, 4):  # no evaluation before: the share is of this batch alone
            drawn = record.health["verifier_error_share"] * N * B_P
            assert record.step != 4 or drawn == pytest.approx(failed)
    assert seen > 0


def test_entropy_is_the_mean_over_all_tokens_of_all_rollouts():
    """Each rollout's tokens one by one, at the temperature, counts and lengths included."""
    model = tiny_model(seed=0, vocab_size=11, eos_token_id=(2, 5))
    prompt, length = torch.tensor([[4, 7, 2, 9], [3, 6, 0, 0]]), torch.tensor([4, 2])
    drawn = sample(
        model, prompt, length, 40, max_new_tokens=5, temperature=0.6,
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert int(drawn.count_N.max()) > 1
    assert len(set(drawn.length_N.tolist())) > 2
    values = []
    for i, count in enumerate(drawn.count_N.tolist()):
        p = int(drawn.prompt_N[i])
        before = prompt[p, : length[p]]
        response = drawn.token_NT[i, : int(drawn.length_N[i])]
        with torch.no_grad():
            logits = model(torch.cat([before, response])[None])[0, len(before) - 1 : -1].double()
        logprob = torch.log_softmax(logits / 0.6, -1)
        values += (-(logprob.exp() * logprob).sum(-1)).tolist() * count
    assert drawn.entropy == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_the_probe_is_the_kl_to_the_base_model_at_the_temperature(folder):
    """Of one response that all rollouts share: k3 of its tokens, from policy to base model."""
    recipe = Recipe(temperature=0.6, learning_rate=1e-3)
    policy = Policy(folder)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    data = policy.tokenize(WORLD.problems("val", 1, seed=2))
    drawn = sample(
        policy.model, data.token_PS, data.length_P, 8, max_new_tokens=3, temperature=0.6,
        top_p=1e-9, generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert len(drawn.length_N) == 1
    learner = Learner(policy.model, folder, recipe)
    found = probed_kl(
        learner.reference, data.token_PS, data.length_P, drawn, stream(0), recipe.temperature
    )
    row = torch.cat([data.token_PS[0, : data.length_P[0]], drawn.token_NT[0]])[None]

    def logprob_of(model):
        with torch.no_grad():
            logits = model(row)[0, int(data.length_P[0]) - 1 : -1].double() / 0.6
        return torch.log_softmax(logits, -1)[range(3), drawn.token_NT[0]]

    d = logprob_of(load_model(folder)) - logprob_of(policy.model)
    assert found == pytest.approx(float((d.exp() - d - 1).mean()), rel=1e-4)
    assert found > 1e-3


def test_a_redraw_replaces_what_was_drawn(folder):
    """Every response is right, where it is judged: all of the samples succeed, and no more."""

    class Right:
        spec = "right"
        calls = 0

        def __call__(self, response, answer):
            from isocompute.verifiers import Outcome

            self.calls += 1
            return Outcome(None, "broken") if self.calls <= 5 else Outcome(1)

        def check_answer(self, answer):
            return None

        def close(self):
            pass

    own = Policy(folder)
    data = replace(own.tokenize(WORLD.problems("val", 6, seed=2)), verifier=Right())
    counted = own.count_successes(data, 4, stream(0), temperature=0.6)
    assert counted.successes_P.tolist() == [4] * 6
    assert counted.rollouts > 24
