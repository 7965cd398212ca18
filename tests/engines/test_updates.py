"""Updates of the embedded engine: exact against enumeration, equal for counts and copies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402 (torch is optional)

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import LocalEngine  # noqa: E402
from isocompute.engines.local.critic import Critic  # noqa: E402
from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.folders import load_model  # noqa: E402
from isocompute.engines.local.gradient import accumulate, token_logprobs  # noqa: E402
from isocompute.engines.local.learner import Learner, probed_kl  # noqa: E402
from isocompute.engines.local.policy import Policy  # noqa: E402
from isocompute.engines.local.precision import Sampler, trained_in  # noqa: E402
from isocompute.engines.local.sampling import Samples, sample  # noqa: E402
from isocompute.engines.local.steps import stream  # noqa: E402
from isocompute.errors import InputError, RunError  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.study import RunSpec  # noqa: E402
from isocompute.testing import EngineTestCase  # noqa: E402
from isocompute.verifiers import Outcome  # noqa: E402
from local_tools import WORLD, tiny_folder, tiny_model  # noqa: E402

CPU = torch.device("cpu")
PROMPT, LENGTH = torch.tensor([[4, 7, 2]]), torch.tensor([3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def make_spec(folder, recipe=None, options=None, **changes):
    recipe = {"learning_rate": 3e-2, "temperature": 1.0, "warmup_steps": 2, **(recipe or {})}
    spec = RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=6, steps=8),
        recipe=Recipe(**recipe),
        train=WORLD.problems("train", 10, seed=1),
        validation={"val": WORLD.problems("val", 12, seed=2)},
        seed=0, engine_options={"model": str(folder), **(options or {})},
        first_evaluation=48, evaluations_per_octave=1,
    )  # fmt: skip
    return replace(spec, **changes)


# ---- every objective passes the suite: determinism, resumption, accounting, knobs ----


class Local(EngineTestCase):
    recipe: dict = {}
    options: dict = {}

    @pytest.fixture(autouse=True)
    def _folder(self, folder):
        self.folder = folder

    def engine(self):
        return LocalEngine()

    def spec(self):
        return make_spec(self.folder, self.recipe, self.options)


class TestPpo(Local):
    recipe = {"objective": "ppo", "updates_per_batch": 2, "value_learning_rate": 3e-2}
    measured = ("value_loss", "ratio", "ratio_clipped_share", "kl_old", "entropy")
    supported = (
        {"gae_gamma": 0.5}, {"gae_lambda": 0.5}, {"value_learning_rate": 1e-2},
        {"value_clip": 1e-3}, {"clip_low": 0.0}, {"clip_high": 0.0}, {"update_split": "epoch"},
        {"advantage_std": "none"}, {"advantage_std": "population"},
        {"aggregation": "seq-mean-token-sum"}, {"updates_per_batch": 1},
        {"zero_variance_filter": "loss"},
    )  # fmt: skip
    unsupported = ({"gradient_rollouts": 3},)


class TestCispo(Local):
    recipe = {"objective": "cispo", "updates_per_batch": 2}
    measured = ("ratio", "ratio_clipped_share", "kl_old")
    supported = (
        {"clip_low": 0.0}, {"clip_high": 0.0}, {"update_split": "epoch"}, {"objective": "grpo"},
        {"gradient_rollouts": 3},
    )  # fmt: skip


class TestClippedGrpo(Local):
    recipe = {"updates_per_batch": 4, "kl_coef": 0.1, "entropy_coef": 0.1}
    supported = (
        {"clip_low": 0.0}, {"clip_high": 0.0}, {"zero_variance_filter": "loss"},
        {"zero_variance_filter": "regularizers"},
    )  # fmt: skip


class TestInt8Sampler(Local):
    options = {"sampler_dtype": "int8"}
    recipe = {"importance_cap": 1.0}
    measured = ("importance_ratio", "importance_capped_share")
    supported = (
        {"importance_cap": None}, {"importance_cap": 0.9}, {"importance_level": "sequence"},
    )  # fmt: skip

    @pytest.mark.heavy
    def test_a_sampler_that_is_the_trainer_has_a_ratio_of_1(self):
        caps = (None, 1.0, 2.0)
        runs = []
        for cap in caps:
            with self.recorded(make_spec(self.folder, {"importance_cap": cap})) as run:
                runs.append(run.comparable())
        assert runs[0] == runs[1] == runs[2]

    @pytest.mark.heavy
    def test_the_options_change_something(self):
        plain = make_spec(self.folder)  # without the cap, which needs a mismatch
        with self.recorded(plain) as base:
            for options in ({"sampler_dtype": "int8"}, {"sampler_dtype": "bfloat16"},
                            {"dtype": "bfloat16"}):  # fmt: skip
                with self.recorded(make_spec(self.folder, None, options)) as run:
                    assert run.comparable() != base.comparable(), options


# ---- counts and copies ----


def expanded(samples):
    """Every rollout a row of its own."""
    repeat = samples.count_N

    def rows(x):
        return x.repeat_interleave(repeat, 0)

    return Samples(
        token_NT=rows(samples.token_NT), length_N=rows(samples.length_N),
        prompt_N=rows(samples.prompt_N), count_N=torch.ones_like(rows(samples.count_N)),
        logprob_NT=rows(samples.logprob_NT), clipped_N=rows(samples.clipped_N),
        prompts=samples.prompts, entropy=samples.entropy,
    )  # fmt: skip


def two_prompts(folder, n=64):
    policy = Policy(folder)
    data = policy.tokenize(WORLD.problems("val", 2, seed=2))
    drawn = sample(policy.model, data.token_PS, data.length_P, n, max_new_tokens=2,
                   generator=stream(1))  # fmt: skip
    return data.token_PS, data.length_P, drawn


@pytest.mark.parametrize("objective", ["grpo", "cispo", "ppo"])
@pytest.mark.parametrize("off_policy", [False, True])
def test_counts_equal_copies_for_every_objective(folder, objective, off_policy):
    prompt, length, drawn = two_prompts(folder)
    recipe = Recipe(
        objective=objective, temperature=1.0, kl_coef=0.1, entropy_coef=0.05, importance_cap=1.1,
        updates_per_batch=2, advantage_std="none", value_clip=0.01,
    )  # fmt: skip
    gradients = []
    for samples, chunk in ((drawn, 512), (expanded(drawn), 512), (drawn, 5)):
        model, base = load_model(folder), load_model(folder)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.2)
        reward = (samples.token_NT[:, 0] % 3 == 1).float()
        made = make_experience(
            prompt, length, samples, reward, recipe, sampler_differs=True
        )
        if off_policy:
            made = replace(made, old_NT=token_logprobs(base, made, 1.0))
        more = []
        if objective == "ppo":
            critic = Critic(folder, recipe, CPU, "float32")
            with torch.no_grad():
                critic.model.head.fill_(0.05)
            made = replace(made, **critic.judge(made, reward))
            with torch.no_grad():
                critic.model.head.fill_(0.08)
            critic.accumulate(made, rows_per_chunk=chunk)
            more = [critic.optimizer.grad.clone()]
            assert float(more[0].abs().max()) > 1e-4
        report = accumulate(model, base, made, recipe, rows_per_chunk=chunk)
        gradients.append([*(p.grad.clone() for p in model.parameters()), *more])
        assert ("ratio" in report.means) == off_policy
    assert drawn.count_N.max() > 1
    assert max(float(g.abs().max()) for g in gradients[0]) > 1e-3
    for other in gradients[1:]:
        for one, two in zip(gradients[0], other, strict=True):
            # Two sums of float32 in another order; gradients are up to 0.2.
            torch.testing.assert_close(one, two, atol=3e-6, rtol=1e-5)


def test_on_policy_all_ratios_are_one_and_cispo_is_grpo(folder):
    """Also with `old_NT` given, at the policy that drew them: the clipped forms agree."""
    prompt, length, drawn = two_prompts(folder)
    reward = (drawn.token_NT[:, 0] % 3 == 1).float()
    gradients = []
    for objective, given in (("grpo", False), ("grpo", True), ("cispo", False), ("cispo", True)):
        model = load_model(folder)
        recipe = Recipe(objective=objective, temperature=1.0, updates_per_batch=2)
        made = make_experience(prompt, length, drawn, reward, recipe)
        if given:
            made = replace(made, old_NT=token_logprobs(model, made, 1.0))
        report = accumulate(model, None, made, recipe)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        if given:
            assert report.means["ratio"] == pytest.approx(1.0, abs=1e-5)
            assert report.means["ratio_clipped_share"] == 0.0
            assert report.means["kl_old"] == pytest.approx(0.0, abs=1e-6)
    for other in gradients[1:]:
        torch.testing.assert_close(gradients[0], other, atol=1e-6, rtol=1e-4)


def test_a_part_of_an_experience_is_its_prompts(folder):
    prompt, length, drawn = two_prompts(folder)
    reward = (drawn.token_NT[:, 0] % 3 == 1).float()
    made = make_experience(prompt, length, drawn, reward, Recipe(), sampler_differs=True)
    second = made.part(1, 2)
    mine = drawn.prompt_N == 1
    assert second.prompts == 1
    assert second.prompt_N.tolist() == [0] * int(mine.sum())
    assert torch.equal(second.prompt_PS, prompt[1:])
    for name in ("token_NT", "length_N", "count_N", "sampler_NT", "advantage_NT"):
        assert torch.equal(getattr(second, name), getattr(made, name)[mine])
    assert second.varies_P.tolist() == made.varies_P[1:].tolist()


# ---- a sampler that is not the trainer ----


def enumerated(model, tokens):
    """All responses of 1 or 2 tokens, counted as often as an endless sampler draws them."""
    words = model.config.vocab_size
    every = torch.cartesian_prod(*[torch.arange(words)] * tokens).view(-1, tokens)
    n = len(every)
    samples = Samples(
        token_NT=every, length_N=torch.full((n,), tokens), count_N=torch.ones(n).long(),
        prompt_N=torch.zeros(n).long(), logprob_NT=torch.zeros(n, tokens),
        clipped_N=torch.ones(n).bool(), prompts=1, entropy=0.0,
    )  # fmt: skip
    plain = make_experience(PROMPT, LENGTH, samples, torch.zeros(n), Recipe())
    logprob = token_logprobs(model, plain, 1.0)
    count = (logprob.double().sum(1).exp() * 10**9).round().long()
    return replace(samples, logprob_NT=logprob, count_N=count)


def exact_gradient(model, reward, tokens):
    """Of the expected reward per token, by autograd through every response's probability."""
    samples = enumerated(model, tokens)
    logits = model.response_logits(
        PROMPT, LENGTH, samples.token_NT,
        next(iter(make_experience(PROMPT, LENGTH, samples, reward, Recipe()).chunks(
            torch.arange(len(reward)), len(reward)))).given[3],
    )  # fmt: skip
    logprob = torch.log_softmax(logits.double(), -1).gather(-1, samples.token_NT[..., None])
    (-(logprob.sum((1, 2)).exp() * reward).sum() / tokens).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize(("tokens", "level"), [(1, "token"), (2, "sequence"), (2, "token")])
def test_importance_weights_take_the_bias_of_the_sampler_away(tmp_path, tokens, level):
    from isocompute.engines.local.folders import save_model

    save_model(tiny_model(), tmp_path)
    sampler = Sampler(load_model(tmp_path), "int8", tmp_path).refresh()
    drawn = enumerated(sampler, tokens)
    reward = (drawn.token_NT.sum(1) % 3 == 1).float()
    truth = exact_gradient(load_model(tmp_path), reward, tokens)
    error = {}
    for cap in (None, 0.95, 100.0):
        recipe = Recipe(temperature=1.0, advantage_std="none", importance_cap=cap,
                        importance_level=level)  # fmt: skip
        model = load_model(tmp_path)
        made = make_experience(PROMPT, LENGTH, drawn, reward, recipe, sampler_differs=True)
        report = accumulate(model, None, made, recipe)
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        error[cap] = float((gradient - truth).norm() / truth.norm())
        assert report.means["importance_ratio"] == pytest.approx(1.0, abs=1e-3)
        if cap is not None:
            assert (report.means["importance_capped_share"] > 0.5) == (cap < 1)
    assert error[None] > 5e-3  # the mismatch matters
    assert error[0.95] > 5e-3  # a cap that binds keeps some of it
    if (tokens, level) == (2, "token"):
        assert 1e-4 < error[100.0] < error[None]  # the first token's weight misses the second's
    else:
        assert error[100.0] < 1e-3


def test_a_bfloat16_sampler_says_what_it_drew_from(folder):
    """Its log-probabilities are those of its own arithmetic, near the trainer's, not equal."""
    policy = Policy(folder)
    data = policy.tokenize(WORLD.problems("val", 2, seed=2))
    drawn = sample(Sampler(policy.model, "bfloat16", folder).refresh(), data.token_PS,
                   data.length_P, 64, max_new_tokens=2, generator=stream(1))  # fmt: skip
    reward = torch.zeros(len(drawn.length_N))
    made = make_experience(data.token_PS, data.length_P, drawn, reward, Recipe())
    full = token_logprobs(policy.model, made, 1.0)
    half = token_logprobs(trained_in(policy.model, "bfloat16"), made, 1.0)
    assert drawn.logprob_NT.dtype == torch.float32
    assert 1e-4 < float((drawn.logprob_NT - full).abs().max()) < 0.2
    assert float((drawn.logprob_NT - half).abs().max()) < 0.1


# ---- the value model ----


@pytest.mark.heavy
def test_the_value_model_starts_at_zero_and_learns_the_reward(folder):
    prompt, length, drawn = two_prompts(folder)
    critic = Critic(folder, Recipe(objective="ppo", max_grad_norm=100.0, value_clip=10.0), CPU,
                    "float32")  # fmt: skip
    reward = (drawn.prompt_N == 1).float()
    made = make_experience(prompt, length, drawn, reward, Recipe())
    first = critic.judge(made, reward)
    assert float(first["value_NT"].abs().max()) == 0.0
    losses = []
    for _ in range(60):
        losses.append(critic.update(replace(made, **critic.judge(made, reward)), 1e-2))
    assert losses[0] == pytest.approx(0.25)  # half of mean(R^2), half of the returns are 1
    assert losses[-1] < 0.02
    value = critic.judge(made, reward)["value_NT"]
    assert float(value[drawn.prompt_N == 1].mean()) > 0.8 > 0.2 > float(
        value[drawn.prompt_N == 0].mean()
    )


@pytest.mark.heavy
def test_the_feed_forward_value_model_reads_what_was_said_before(tmp_path):
    from isocompute.engines.local.folders import save_model
    from isocompute.engines.local.mlp import BitMlp, MlpConfig

    config = MlpConfig(prompt_words=8, answer_tokens=3, prompt_tokens=2, width=32)
    save_model(BitMlp(config, torch.Generator().manual_seed(0)), tmp_path)
    prompt, length = torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 2])
    drawn = sample(load_model(tmp_path), prompt, length, 200, max_new_tokens=3,
                   generator=stream(7))  # fmt: skip
    reward = (drawn.token_NT[:, 0] > 8).float()  # the first of three digits is 8 or more
    recipe = Recipe(objective="ppo", max_grad_norm=100.0, value_clip=10.0)
    critic = Critic(tmp_path, recipe, CPU, "float32")
    made = make_experience(prompt, length, drawn, reward, Recipe())
    assert float(critic.judge(made, reward)["value_NT"].abs().max()) == 0.0
    for _ in range(60):
        critic.update(replace(made, **critic.judge(made, reward)), 1e-2)
    value = critic.judge(made, reward)["value_NT"]
    high = reward == 1
    for prompt_number in (0, 1):  # before anything is said, all states of a prompt are one
        mine = value[drawn.prompt_N == prompt_number, 0]
        assert torch.equal(mine, mine[:1].expand_as(mine))
        assert 0.2 < float(mine[0]) < 0.8
    for place in (1, 2):
        assert float(value[high, place].mean()) > 0.9 > 0.1 > float(value[~high, place].mean())
    other = drawn.token_NT.clone()
    other[:, 1] = 1 + other[:, 1] % 16
    changed = critic.judge(replace(made, token_NT=other), reward)["value_NT"]
    assert torch.equal(changed[:, :2], value[:, :2])  # what is said later changes nothing
    assert not torch.equal(changed[:, 2], value[:, 2])


# ---- n_train of n_est, and checkers that fail ----


def test_the_subset_leaves_mean_and_std_to_all_rollouts(folder):
    prompt, length, drawn = two_prompts(folder)
    reward = (drawn.token_NT[:, 0] % 3 == 1).float()
    whole = make_experience(prompt, length, drawn, reward, Recipe())
    part = make_experience(
        prompt, length, drawn, reward, Recipe(gradient_rollouts=16), generator=stream(5)
    )
    assert torch.equal(whole.advantage_NT, part.advantage_NT)
    assert torch.bincount(part.prompt_N, part.count_N.double()).tolist() == [16.0, 16.0]
    assert bool((part.count_N <= whole.count_N).all())


class Faulty:
    """Judges as the world does, but fails where `fails` says so."""

    spec = "faulty"

    def __init__(self, inner, fails):
        self.inner, self.fails, self.calls = inner, fails, 0

    def __call__(self, response, answer):
        self.calls += 1
        if self.fails(response, self.calls):
            if self.calls % 2:
                raise ValueError("broken pipe")
            return Outcome(None, "broken pipe")
        return self.inner(response, answer)

    def check_answer(self, answer):
        return None

    def close(self):
        pass


def test_a_verifier_that_fails_is_left_out_of_its_group_and_counted(folder):
    prompt, length, drawn = two_prompts(folder)
    reward = (drawn.token_NT[:, 0] % 3 == 1).float()
    broken = drawn.token_NT[:, 1] == drawn.token_NT[0, 1]
    made = make_experience(prompt, length, drawn, reward.masked_fill(broken, math.nan), Recipe())
    kept = Samples(
        **{name: getattr(drawn, name)[~broken] for name in (
            "token_NT", "length_N", "prompt_N", "count_N", "logprob_NT", "clipped_N")},
        prompts=2, entropy=0.0,
    )  # fmt: skip
    without = make_experience(prompt, length, kept, reward[~broken], Recipe())
    assert 0 < int(broken.sum()) < len(broken)
    assert torch.equal(made.advantage_NT, without.advantage_NT)
    assert torch.equal(made.count_N, without.count_N)
    none = make_experience(prompt, length, drawn, torch.full_like(reward, math.nan), Recipe())
    assert none.varies_P.tolist() == [False, False]
    assert accumulate(load_model(folder), None, none, Recipe()).loss == 0.0


@pytest.mark.heavy
def test_a_run_goes_on_with_a_verifier_that_fails(folder, monkeypatch):
    from isocompute.engines.local import policy as room

    real = room.load_verifier
    monkeypatch.setattr(
        room, "load_verifier", lambda spec: Faulty(real(spec), lambda text, _: text[0] in "0123")
    )
    case = TestPpo()
    with case.recorded(make_spec(folder)) as run:
        shares = [r.health["verifier_error_share"] for r in run.steps]
        assert len(run.steps) == 8
        told = [one for r in run.steps for one in r.unjudged]
        told += [one for r in run.evaluations for one in r.unjudged]
        evaluated = run.evaluations[-1]
    assert 0.01 < min(shares) < max(shares) < 0.6
    assert {one.message for one in told} <= {"broken pipe", "ValueError: broken pipe"}
    assert all(one.response[0] in "0123" and one.rollouts > 0 for one in told)
    drawn_again = evaluated.sampled_rollouts - evaluated.samples * len(evaluated.successes_P)
    assert drawn_again > 0
    assert drawn_again % evaluated.samples == 0


def test_unjudged_validation_problems_are_drawn_again(folder):
    policy = Policy(folder)
    data = policy.tokenize(WORLD.problems("val", 6, seed=2))
    once = Faulty(data.verifier, lambda _, call: call in (2, 3))
    successes, tokens, rollouts, _ = policy.count_successes(
        replace(data, verifier=once), 4, stream(0), temperature=1.0
    )
    assert policy.errors in (2, 3, 4, 5)
    assert sum(one.rollouts for one in policy.take_unjudged()) == policy.errors
    assert tokens == rollouts * 3 > 6 * 4 * 3
    assert policy.take_unjudged() == ()
    assert policy.judged > 24
    never = Faulty(data.verifier, lambda *_: True)
    policy.judged = policy.errors = 0
    successes, tokens, rollouts, _ = policy.count_successes(
        replace(data, verifier=never), 4, stream(0), temperature=1.0
    )
    assert successes.tolist() == [0] * 6
    assert policy.errors == policy.judged == rollouts == 4 * 6 * 4  # never a silent 0
    assert [(one.problem, one.rollouts) for one in policy.take_unjudged()] == [
        (problem, 16) for problem in range(6)
    ]
    assert tokens == 4 * 6 * 4 * 3


def test_answers_that_cannot_be_given_are_refused(folder):
    with pytest.raises(InputError, match="must fit into max_new_tokens=2, but .* has 3 tokens"):
        LocalEngine().check(make_spec(folder, None, {"max_new_tokens": 2}))


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ({"gradient_rollouts": 7}, {}, "`gradient_rollouts` .* must not exceed .* 7 of 6"),
        ({"updates_per_batch": 3}, {}, "`problems_per_batch` must be a multiple .* got 4 and 3"),
        ({"importance_cap": 0.5}, {}, "`importance_cap` must be >= 1 .* got 0.5"),
        ({"clip_high": 0.3}, {}, "`clip_high` .* without updates_per_batch > 1"),
        ({}, {"sampler_dtype": "int4"}, "sampler_dtype must be one of float32, bfloat16, int8"),
        ({}, {"dtype": "float8"}, "engine_options.dtype must be one of float32, bfloat16"),
        ({}, {"device": "abacus"}, "device must be a device of torch .* got 'abacus'"),
        ({}, {"max_new_tokens": 1000}, "got 1000; the longest prompt here has 4 .* at most 28"),
        ({"zero_variance_filter": "regularizers"}, {}, "without kl_coef or entropy_coef,"),
    ],
)
def test_knobs_that_would_do_nothing_or_cannot_be_are_refused(folder, recipe, options, message):
    with pytest.raises(InputError, match=message):
        LocalEngine().check(make_spec(folder, recipe, options))


def test_groups_of_one_need_a_value_model(folder):
    one = Allocation(problems_per_batch=4, rollouts_per_problem=1, steps=2)
    with pytest.raises(InputError, match="`rollouts_per_problem >= 2` .* group baseline"):
        LocalEngine().check(make_spec(folder, allocation=one))
    with pytest.raises(InputError, match="`rollouts_per_problem >= 2` .* zero_variance_filter"):
        LocalEngine().check(
            make_spec(folder, {"objective": "ppo", "zero_variance_filter": "loss"},
                      allocation=one)
        )  # fmt: skip
    with TestPpo().recorded(make_spec(folder, {"objective": "ppo"}, allocation=one)) as run:
        assert len(run.steps) == 2
        assert "zero_variance_share" not in run.steps[0].health


def test_without_cuda_the_device_says_so(folder):
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(InputError, match="must be usable on this machine, but got 'cuda'"):
        LocalEngine().check(make_spec(folder, None, {"device": "cuda"}))


@pytest.mark.parametrize("norms", [[3.0, 1.0], [1.0, 3.0]])
def test_the_gradient_of_a_step_is_that_of_its_largest_update(folder, monkeypatch, norms):
    recipe = Recipe(temperature=1.0, updates_per_batch=2, advantage_std="none")
    learner = Learner(Policy(folder).model, folder, recipe)
    left = iter(norms)
    monkeypatch.setattr(learner.optimizer, "step", lambda rate: next(left))
    prompt, length, drawn = two_prompts(folder, n=8)
    health = learner.learn(
        prompt, length, drawn, torch.zeros(len(drawn.count_N)), step=1, learning_rate=1e-3,
        value_learning_rate=1e-3, generator=stream(0),
    )  # fmt: skip
    assert health["grad_norm"] == 3.0


@pytest.mark.heavy
def test_the_probe_measures_kl_without_the_term(folder, monkeypatch):
    """Zero at the base model, more after training; once in so many rollouts, whatever the batch."""
    policy = Policy(folder)
    learner = Learner(policy.model, folder, Recipe(temperature=1.0))
    prompt, length, drawn = two_prompts(folder)
    kl = probed_kl(learner.reference, prompt, length, drawn, stream(0), 1.0)
    assert kl == pytest.approx(0.0, abs=1e-6)
    spec = make_spec(folder)
    batch = spec.allocation.batch_size
    for every, measured in ((batch, lambda step: True), (3 * batch, lambda step: step % 3 == 1)):
        monkeypatch.setattr("isocompute.engines.local.learner.PROBE_EVERY", every)
        with TestPpo().recorded(spec) as run:
            kl = {r.step: r.health["kl"] for r in run.steps if "kl" in r.health}
        assert list(kl) == [r.step for r in run.steps if measured(r.step)]
        assert kl[1] == pytest.approx(0.0, abs=1e-6)
        assert list(kl.values())[-1] > 0


def test_every_new_tensor_follows_the_device():
    """On the path of training each is made on a device by name, or by a CPU generator first."""
    import ast
    from pathlib import Path

    import isocompute.engines.local as room

    makers = {"zeros", "ones", "full", "arange", "tensor", "empty", "rand", "eye"}
    seen = 0
    for name in ("advantages", "counters", "experience", "fixed", "gradient", "grouping",
                 "learner", "mlp", "model", "objectives", "policy", "precision", "sampling",
                 "stacked", "tree"):  # fmt: skip
        tree = ast.parse((Path(room.__file__).parent / f"{name}.py").read_text())
        for node in ast.walk(tree):  # modules are made on the CPU and then moved as a whole
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                node.body = []
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if ast.unparse(call.func) in {f"torch.{maker}" for maker in makers}:
                seen += 1
                named = {word.arg for word in call.keywords}
                assert named & {"device", "generator"}, f"{name}.py:{call.lineno}"
    assert seen > 15


def test_difficulty_names_what_could_not_be_judged(folder, monkeypatch):
    from isocompute.difficulty import Draws, measure_difficulty
    from isocompute.engines.local import policy as room
    from isocompute.engines.local.base_rates import success_counter

    real = room.load_verifier
    problems = WORLD.problems("val", 5, seed=2)

    def measured(fails):
        monkeypatch.setattr(room, "load_verifier", lambda spec: Faulty(real(spec), fails))
        count = success_counter(str(folder), problems)
        return measure_difficulty(
            lambda index_P, samples: Draws(*count(index_P, samples)), problems, samples=8,
            second_stage=16, chunk=2,
        )  # fmt: skip

    whole = measured(lambda *_: False)
    assert whole.errors == 0
    assert whole.document["unjudged"] == []
    some = measured(lambda text, _: text[0] in "0123")
    assert 0 < some.errors == sum(one.rollouts for one in some.unjudged)
    lost = {one.problem: one.rollouts for one in some.unjudged}
    second = some.first_successes_P == 0
    drawn_P = np.where(second, 16, 8)
    assert some.judged_P.tolist() == [
        int(drawn) - lost.get(i, 0) for i, drawn in enumerate(drawn_P)
    ]
    row = some.document["unjudged"][-1]
    assert row["id"] == problems.problems[some.unjudged[-1].problem].id
    assert row["message"].endswith("broken pipe")
    with pytest.raises(RunError, match=r"failed on all \((ValueError: )?broken pipe\)"):
        measured(lambda *_: True)


@pytest.mark.heavy
@pytest.mark.parametrize("recipe", [
    {"kl_coef": 0.1, "entropy_coef": 0.1, "gradient_rollouts": 3},
    {"updates_per_batch": 2, "zero_variance_filter": "loss", "top_p": 0.9},
    {"objective": "cispo", "updates_per_batch": 2, "update_split": "epoch"},
    {"objective": "ppo", "updates_per_batch": 2},
    {"importance_cap": 1.0},
])
def test_a_run_on_another_device_mixes_it_with_no_tensor_of_the_cpu(folder, recipe):
    """The same draws, and numbers that differ by rounding: other kernels of the same CPU."""
    from safetensors.torch import load_file

    from fake_device import NAME, FakeDevice

    options = {"sampler_dtype": "int8"} if "importance_cap" in recipe else {}
    with TestPpo().recorded(make_spec(folder, recipe, options)) as here, FakeDevice():
        with pytest.raises(RuntimeError, match="expected all tensors on one device"):
            torch.ones(2, device=NAME) + torch.ones(2)
        assert torch.ones(2, device=NAME).device.type == NAME
        half = make_spec(folder, recipe, {**options, "device": NAME})
        half = replace(half, allocation=replace(half.allocation, steps=4))
        with TestPpo().recorded(half) as there:
            whole = replace(half, allocation=replace(half.allocation, steps=8))
            with TestPpo().recorded(whole, resume=there.checkpoints[4]) as rest:
                steps = there.steps + rest.steps
                files = [sorted(run.checkpoints[8].glob("*.safetensors")) for run in (here, rest)]
                assert len(files[0]) == len(files[1]) == 1 + (recipe.get("objective") == "ppo")
                for one, two in zip(*files, strict=True):
                    for name, tensor in load_file(one).items():
                        torch.testing.assert_close(
                            load_file(two)[name], tensor, atol=1e-4, rtol=1e-3
                        )
    for mine, theirs in zip(steps, here.steps, strict=True):
        assert mine.successes_Q.tolist() == theirs.successes_Q.tolist()
        assert mine.health == pytest.approx(theirs.health, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("device", ["meta", "mps", "cuda:9"])
def test_a_device_that_cannot_compute_is_refused_before_anything(folder, device):
    with pytest.raises(InputError, match="device must be usable on this machine"):
        LocalEngine().check(make_spec(folder, None, {"device": device}))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("objective", ["grpo", "cispo", "ppo"])
def test_training_on_a_gpu(folder, objective, dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    recipe = {"objective": objective, "kl_coef": 0.01, "updates_per_batch": 2}
    spec = make_spec(folder, recipe, {"device": "cuda", "dtype": dtype})
    with TestPpo().recorded(spec) as run:
        assert len(run.steps) == 8
        assert all(math.isfinite(v) for r in run.steps for v in r.health.values())
