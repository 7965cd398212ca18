import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402 (torch is optional)

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import LocalEngine  # noqa: E402
from isocompute.engines.local.mlp import BitMlp, MlpConfig  # noqa: E402
from isocompute.engines.local.policy import Policy, base_folder  # noqa: E402
from isocompute.engines.local.steps import batch_problems, stream  # noqa: E402
from isocompute.engines.local.tokenizer import WordTokenizer, load_tokenizer  # noqa: E402
from isocompute.engines.local.worlds import BitRuleWorld  # noqa: E402
from isocompute.errors import InputError  # noqa: E402
from isocompute.problems import Problem, ProblemSet  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.runner import run_study  # noqa: E402
from isocompute.store import Store  # noqa: E402
from isocompute.store.health import failed_rules  # noqa: E402
from isocompute.study import RunSpec, Study  # noqa: E402
from isocompute.testing import EngineTestCase  # noqa: E402
from isocompute.verifiers import load_verifier  # noqa: E402
from local_tools import WORLD, tiny_folder, tiny_model  # noqa: E402
from study_helpers import FAST  # noqa: E402
from supervised import (  # noqa: E402
    Phase,
    Supervision,
    save_base,
    train_base,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def make_spec(folder, **changes):
    spec = RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=6, steps=8),
        recipe=Recipe(learning_rate=3e-2, temperature=1.0, warmup_steps=2),
        train=WORLD.problems("train", 10, seed=1),
        validation={"val": WORLD.problems("val", 12, seed=2)},
        seed=0,
        engine_options={"model": str(folder)},
        first_evaluation=48,
        evaluations_per_octave=1,
    )
    return replace(spec, **changes)


class TestLocalEngine(EngineTestCase):
    measured = (
        "reward", "entropy", "grad_norm", "learning_rate", "length_tokens", "loss",
        "zero_variance_share", "distinct_share", "verifier_error_share",
    )  # fmt: skip
    supported = (
        {"advantage_std": "none"},
        {"aggregation": "seq-mean-token-sum"},
        {"advantage_std": "population"},
        {"kl_coef": 0.5},
        {"kl_coef": 0.5, "entropy_coef": 0.5},
        {"zero_variance_filter": "loss"},
        {"kl_coef": 0.5, "zero_variance_filter": "regularizers"},
        {"objective": "ppo"},
        {"objective": "cispo"},
        {"updates_per_batch": 2},
        {"gradient_rollouts": 3},
        {"learning_rate": 1e-2},
        {"learning_rate_scaling": "linear"},
        {"warmup_steps": 0},
        {"weight_decay": 0.5},
        {"max_grad_norm": 1e-3},
        {"temperature": 0.5},
        {"top_p": 0.5},
    )
    unsupported = (
        {"clip_low": 0.1},
        {"clip_high": 0.1},
        {"update_split": "epoch"},
        {"updates_per_batch": 3},
        {"gradient_rollouts": 7},
        {"importance_cap": 0.5},
        {"importance_level": "sequence"},
        {"gae_gamma": 0.9},
        {"gae_lambda": 0.9},
        {"value_learning_rate": 1e-3},
        {"value_clip": 0.1},
        {"objective": "ppo", "value_clip": 0.1},
        {"objective": "ppo", "gradient_rollouts": 2},
    )
    unsupported_options = (
        {"no_such_option": 1},
        {"max_new_tokens": 2.5},
        {"model": "no-model"},
        {"device": "abacus"},
        {"dtype": "float8"},
        {"sampler_dtype": "int2"},
    )

    @pytest.fixture(autouse=True)
    def _folder(self, folder):
        self.folder = folder

    def engine(self):
        return LocalEngine()

    def spec(self):
        return make_spec(self.folder)


class TestFeedForwardPolicy(EngineTestCase):
    supported = (
        {"kl_coef": 0.5}, {"entropy_coef": 0.5, "kl_coef": 0.5}, {"temperature": 0.5},
        {"objective": "ppo"},
    )  # fmt: skip
    unsupported = ({"clip_low": 0.1},)  # the ratio is 1

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        config = MlpConfig(prompt_words=len(WORLD.tokenizer()), answer_tokens=3, width=12)
        model = BitMlp(config, torch.Generator().manual_seed(0))
        save_base(model, WORLD, Supervision(phases=()), tmp_path)
        self.folder = tmp_path

    def engine(self):
        return LocalEngine()

    def spec(self):
        return make_spec(self.folder)


@pytest.mark.heavy
def test_the_feed_forward_policy_and_difficulty_on_another_device(tmp_path):
    from fake_device import NAME, FakeDevice
    from isocompute.engines.local.base_rates import success_counter

    case = TestFeedForwardPolicy()
    config = MlpConfig(prompt_words=len(WORLD.tokenizer()), answer_tokens=3, width=12)
    model = BitMlp(config, torch.Generator().manual_seed(0))
    save_base(model, WORLD, Supervision(phases=()), tmp_path)
    for recipe in ({"kl_coef": 0.1}, {"objective": "ppo"}):
        spec = make_spec(tmp_path)
        spec = replace(spec, recipe=spec.recipe.replace(**recipe))
        elsewhere = replace(spec, engine_options={**spec.engine_options, "device": NAME})
        with case.recorded(spec) as here, FakeDevice(), case.recorded(elsewhere) as there:
            for mine, theirs in zip(there.steps, here.steps, strict=True):
                assert mine.successes_Q.tolist() == theirs.successes_Q.tolist()
    problems, index_P = WORLD.problems("few", 10, seed=3), np.arange(3, 9)
    here = success_counter(str(tmp_path), problems)(index_P, 8)
    with FakeDevice():
        there = success_counter(str(tmp_path), problems, device=NAME)(index_P, 8)
    assert there.successes_P.tolist() == here.successes_P.tolist()
    assert there.tokens == here.tokens


def test_freed_memory_stays_with_the_process():
    import resource

    from isocompute.engines.local.memory import keep_freed_memory

    if not keep_freed_memory():
        pytest.skip("this C library has no such setting")
    torch.empty(2_000_000).fill_(1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):  # 8 MB each, 100,000 pages of 4 KiB in all
        torch.empty(2_000_000).fill_(1.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 10_000


@pytest.mark.heavy
def test_training_raises_the_reward(folder):
    case = TestLocalEngine()
    case.folder = folder
    spec = make_spec(
        folder, allocation=Allocation(problems_per_batch=8, rollouts_per_problem=32, steps=40)
    )
    with case.recorded(spec) as run:
        rewards = [r.health["reward"] for r in run.steps]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.15


def test_health_numbers_say_what_happened(folder):
    case = TestLocalEngine()
    case.folder = folder
    spec = make_spec(folder, recipe=make_spec(folder).recipe.replace(kl_coef=0.01))
    with case.recorded(spec) as run:
        for record in run.steps:
            health = record.health
            assert health["reward"] == pytest.approx(record.successes_Q.sum() / 24)
            same = np.isin(record.successes_Q, (0, 6)).mean()
            assert health["zero_variance_share"] == pytest.approx(same)
            assert health["length_tokens"] == 3.0
            assert health["entropy"] > 0
            assert health["kl"] >= 0
            assert "clipped_share" not in health  # nothing ends this model's text but its limit
        assert run.steps[0].health["learning_rate"] == pytest.approx(spec.learning_rate / 2)
        assert run.steps[-1].health["learning_rate"] == pytest.approx(spec.learning_rate)
        assert run.steps[-1].tokens == 8 * 24 * 3
        assert run.evaluations[0].sampled_tokens == 12 * 4 * 3


def test_batches_pass_over_the_set():
    seen = np.concatenate([batch_problems(step, 12, 4, seed=3) for step in (1, 2, 3)])
    assert sorted(seen.tolist()) == list(range(12))
    again = [batch_problems(step, 12, 4, seed=3).tolist() for step in (4, 5, 6)]
    assert again != seen.reshape(3, 4).tolist()
    assert len(set(batch_problems(1, 10, 4, seed=0).tolist())) == 4


def test_streams_differ_and_repeat():
    draws = [torch.rand(3, generator=stream(*key)).tolist() for key in [(0, 1), (1, 0), (0, 1)]]
    assert draws[0] == draws[2] != draws[1]


def test_small_groups_and_large_batches_are_refused(folder):
    for allocation, message in (
        (Allocation(problems_per_batch=4, rollouts_per_problem=1, steps=1),
         "`rollouts_per_problem >= 2` must hold .* got 1"),
        (Allocation(problems_per_batch=11, rollouts_per_problem=2, steps=1),
         "`problems_per_batch` must not exceed .* got 11 for 10"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            LocalEngine().check(make_spec(folder, allocation=allocation))


@pytest.mark.parametrize(
    ("prompt", "answer", "message"),
    [
        ("A0B1!", "abc", "prompt of problem 'x': text must be .* model's 33 words, but got '!';"),
        ("A0" * 40, "abc", "a prompt must have 1 to 29 tokens for this model, but .* has 40"),
        ("", "abc", "a prompt must have 1 to 29 tokens for this model, but .* has 0"),
        ("A0B1", "xyz", "every answer must be one that 'hexbits>=7' can match"),
    ],
)
def test_problems_of_another_world_are_refused(folder, prompt, answer, message):
    problems = ProblemSet(
        name="odd", problems=[Problem(id="x", prompt=prompt, answer=answer)], verifier="hexbits>=7"
    )
    with pytest.raises(InputError, match=message):
        LocalEngine().check(make_spec(folder, validation={"odd": problems}))


def test_a_limit_is_needed(folder, tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match="`max_new_tokens` must be >= 1, but got None"):
        Policy(tmp_path)
    assert Policy(tmp_path, max_new_tokens=5).max_new_tokens == 5


def test_the_world_is_what_it_says():
    world = BitRuleWorld()
    one, two = world.problems("a", 50, seed=1), world.problems("a", 50, seed=1)
    assert one.sha256 == two.sha256 != world.problems("a", 50, seed=2).sha256
    bit_PD = world.prompt_bits_of(50, np.random.default_rng([0, 1, 1]))
    bit_PT = world.answers(bit_PD)
    assert 0.4 < bit_PT.mean() < 0.6
    verify = load_verifier(world.verifier)
    assert one.verifier == f"hexbits>={world.agree}"
    for problem, bits in zip(one.problems, bit_PT, strict=True):
        assert int(problem.answer, 16) == int("".join("01"[int(b)] for b in bits), 2)
        flipped = int(problem.answer, 16) ^ ((1 << (32 - world.agree)) - 1)
        assert verify(f"{flipped:08x}", problem.answer).reward == 1
        assert verify(f"{flipped ^ (1 << 31):08x}", problem.answer).reward == 0
    words = world.tokenizer()
    assert words.decode(words.encode(one.problems[0].prompt)) == one.problems[0].prompt
    assert len(words.encode(one.problems[0].answer)) == world.max_new_tokens == 8


def test_worlds_refuse_impossible_sizes():
    for change, message in (
        ({"prompt_bits": 33}, "`prompt_bits` must be a multiple of 2"),
        ({"answer_bits": 10}, "`answer_bits` must be a positive multiple of 4"),
        ({"agree": 33}, "`agree` must be between 1 and answer_bits=32, but got 33"),
    ):
        with pytest.raises(InputError, match=message):
            BitRuleWorld(**change)


def test_other_tokenizers(tmp_path, folder):
    with pytest.raises(InputError, match=r"must hold tokenizer.json"):
        load_tokenizer(tmp_path)
    assert isinstance(load_tokenizer(folder), WordTokenizer)
    data = json.loads((folder / "tokenizer.json").read_text())
    data["decoder"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    try:
        import tokenizers  # noqa: F401 (asked for, not used)
    except ModuleNotFoundError:
        with pytest.raises(InputError, match="needs the package `tokenizers`"):
            load_tokenizer(tmp_path)
    else:
        assert load_tokenizer(tmp_path).encode("A1") == load_tokenizer(folder).encode("A1")


def test_a_model_that_is_not_there():
    with pytest.raises(InputError, match=r"`model` must be a folder or one of .*bits"):
        base_folder("../base/bits2")


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["transformer", "feed-forward"])
def test_supervision_teaches_the_rule_and_repeats(kind):
    def trained(steps):
        if kind == "transformer":
            model = tiny_model(initializer_range=0.1)
        else:
            config = MlpConfig(prompt_words=len(WORLD.tokenizer()), answer_tokens=3, width=24)
            model = BitMlp(config, torch.Generator().manual_seed(0))
        losses = []
        phases = (Phase(steps=steps, batch=64), Phase(steps=5, problems=32, batch=16))
        supervision = Supervision(phases=phases, noise=0.1)
        train_base(WORLD, model, supervision, lambda phase, step, loss: losses.append(loss))
        return losses

    losses = trained(60)
    assert len(losses) == 65
    assert np.mean(losses[50:60]) < 0.93 * np.log(16)
    assert trained(3)[:3] == losses[:3]


@pytest.mark.parametrize("changes", [{"learning_rate": 1e30}, {"kl_coef": 1e30}])
def test_a_run_that_diverges_is_told_so_once(folder, tmp_path, changes):
    """Another try ends the same: no retry, one line, a finding of divergence."""
    spec = make_spec(folder, recipe=Recipe(**{"learning_rate": 1e-3, **changes}))
    study = Study(name="s", runs=[spec], slices=(1.0,))
    summary = run_study(study, tmp_path / "s", workers=0, settings=FAST)
    assert (summary.failed, summary.accounting.attempts, summary.warnings) == (1, 1, ())
    assert "must be finite" in summary.problems[0][1]
    with Store(tmp_path / "s") as store:
        (run,) = store.runs()
        assert failed_rules(store, run) == ("divergence",)
