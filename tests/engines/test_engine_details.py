"""Facts of the embedded engine that a changed number or a dropped word would alter.

Found missing by breaking lines on purpose (`make mutants`): each test stands for a kind of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import warnings
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402 (torch is optional)

from isocompute.engines.local import LocalEngine, engine, precision  # noqa: E402
from isocompute.engines.local import policy as policy_room  # noqa: E402
from isocompute.engines.local.base_rates import success_counter  # noqa: E402
from isocompute.engines.local.critic import Critic  # noqa: E402
from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.folders import (  # noqa: E402
    config_from_json,
    config_to_json,
    load_model,
    save_model,
)
from isocompute.engines.local.gradient import GradientReport, rows_that_fit  # noqa: E402
from isocompute.engines.local.learner import _averaged  # noqa: E402
from isocompute.engines.local.model import ModelConfig  # noqa: E402
from isocompute.engines.local.policy import Policy, base_folder  # noqa: E402
from isocompute.engines.local.precision import (  # noqa: E402
    Bfloat16,
    Sampler,
    rounded_to_int8,
    trained_in,
)
from isocompute.engines.local.sampling import nucleus, sample, scaled  # noqa: E402
from isocompute.engines.local.tokenizer import WordTokenizer  # noqa: E402
from isocompute.engines.local.worlds import (  # noqa: E402
    WORLDS,
    MachineWorld,
    world_problems,
)
from isocompute.errors import InputError  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.verifiers import Outcome  # noqa: E402
from local_tools import WORLD, tiny_config, tiny_folder, tiny_model  # noqa: E402
from sinks import ListSink  # noqa: E402
from supervised import _response_logits, _Sequences  # noqa: E402
from test_updates import make_spec  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


# ---- worlds ----

# Vocabulary, length limit, problems and demonstrations. The shipped models were taught these: a
# change here needs new ones (scripts/make_base_model.py).
WORLD_DIGESTS = {
    "bits": "2cb9efbab789d832",
    "machine": "78beabc89710409a",
    "products": "4b68a7221e499b3f",
    "countdown": "5fb2d6a6ce64e70f",
    "verbs": "413a1b2bca4d0174",
}


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_are_those_that_the_shipped_models_were_taught(name):
    world = WORLDS[name]()
    problems = world.problems("p", 30, seed=3)
    shown = world.demonstrate(60, 0.3, np.random.default_rng(5))
    said = [
        world.tokenizer().vocabulary, world.max_new_tokens, world.verifier,
        [(p.id, p.prompt, p.answer, p.source) for p in problems.problems],
        [tuple(text) for text in shown],
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
    assert digest == WORLD_DIGESTS[name]
    shipped = Policy(base_folder(name))
    assert shipped.max_new_tokens == world.max_new_tokens
    assert shipped.tokenizer.encode(problems.problems[0].prompt) == world.tokenizer().encode(
        problems.problems[0].prompt
    )


@pytest.mark.parametrize(
    ("name", "field", "least", "most"),
    [
        ("bits", "prompt_bits", 2, 52), ("bits", "answer_bits", 20, None),
        ("bits", "agree", 1, 32), ("machine", "moves", 1, 10), ("machine", "longest", 2, 25),
        ("products", "largest", 2, 99), ("countdown", "fewest", 2, 4), ("countdown", "most", 3, 6),
        ("countdown", "largest", 10, 99), ("verbs", "stems", 1, 100), ("verbs", "endings", 1, 100),
        ("verbs", "contexts", 1, 1000), ("verbs", "way", 1, 6),
    ],
)  # fmt: skip
def test_sizes_of_worlds_at_their_limits(name, field, least, most):
    """Each limit may be met; one step beyond is refused. (No set: words at the limits differ.)"""
    step = {"prompt_bits": 2, "answer_bits": 4}.get(field, 1)
    for value in (least, most):
        if value is not None:
            made = WORLDS[name](**{field: value})
            words = made.tokenizer().vocabulary
            assert len(set(words)) == len(words)
    for value in (least - step, None if most is None else most + step):
        if value is not None:
            with pytest.raises(InputError, match="choose such a number"):
                WORLDS[name](**{field: value})


def test_a_start_and_a_last_state_have_different_words():
    words = MachineWorld(longest=25).tokenizer()
    assert words.encode("z7") != words.encode("y7")


# ---- folders ----


def test_a_saved_configuration_says_all_that_transformers_reads():
    told = config_to_json(tiny_config(rope_theta=500.0))
    assert told | {"architectures": None} == {
        "architectures": None, "model_type": "llama", "vocab_size": len(WORLD.tokenizer()),
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
        "initializer_range": 0.3, "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}, "hidden_act": "silu",
        "attention_dropout": 0.0, "use_cache": True, "torch_dtype": "float32",
    }  # fmt: skip
    assert told["architectures"] == ["LlamaForCausalLM"]


def test_what_a_configuration_leaves_out_is_as_in_transformers():
    sizes = {"vocab_size": 12, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
             "num_attention_heads": 2}  # fmt: skip
    assert config_from_json({"model_type": "llama", **sizes}) == ModelConfig(
        **sizes, num_key_value_heads=2, head_dim=4, max_position_embeddings=2048,
        rms_norm_eps=1e-6, rope_theta=10000.0, initializer_range=0.02, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False, pad_token_id=0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


@pytest.mark.parametrize("extra", [False, True])
def test_a_model_with_tied_words_is_saved_and_read(tmp_path, extra):
    """Its head is the embedding: nothing of its own in the file, ignored where there is."""
    from safetensors.torch import load_file, save_file

    model = tiny_model(tie_word_embeddings=True)
    save_model(model, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in state
    if extra:
        state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
        save_file(state, tmp_path / "model.safetensors")
    again = load_model(tmp_path)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(again(tokens), model(tokens))


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.json", b"[" * 100_000, "RecursionError"),
        ("config.json", b"{", "JSONDecodeError"),
        ("config.json", b"[]", "AttributeError"),
        ("config.json", b"\xff\xfe", "UnicodeDecodeError"),
        ("model.safetensors", b"\xff" * 99, "SafetensorError"),
        ("tokenizer.json", b"[1]", "AttributeError"),
        ("generation_config.json", b"7", "TypeError"),
    ],
)
def test_a_damaged_model_folder_is_refused_in_one_line(folder, tmp_path, file, content, reason):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / file).write_bytes(content)
    with pytest.raises(InputError, match="a model folder must hold intact JSON") as caught:
        Policy(tmp_path / "m", 3)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_for_sizes_are_refused_in_one_line(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    for name, value in (("hidden_size", "many"), ("num_hidden_layers", "two"), ("vocab_size", -1)):
        (tmp_path / "m" / "config.json").write_text(json.dumps({**config, name: value}))
        with pytest.raises(InputError, match="intact JSON and safetensors files, but reading"):
            Policy(tmp_path / "m", 3)


# ---- sampling ----


@pytest.mark.parametrize("temperature", [0.25, 0.5, 0.6, 1.0, 2.0])
def test_logits_are_divided_by_every_temperature(temperature):
    logits = torch.tensor([[1.0, -2.0, 0.5]])
    torch.testing.assert_close(scaled(logits, temperature), logits / temperature)


def test_of_equally_likely_tokens_the_first_is_kept():
    kept = nucleus(torch.full((1, 100), 0.01), 0.495)
    assert (kept > 0).sum() == 50
    assert bool((kept[0, :50] > 0).all())


# ---- verdicts that fail ----


def failing(fails):
    """A loader of verifiers that fail where `fails(text)`."""
    real = policy_room.load_verifier

    def load(spec):
        verifier = real(spec)

        class Failing:
            spec = verifier.spec
            check_answer = staticmethod(verifier.check_answer)

            def __call__(self, text, answer):
                if fails(text):
                    raise ValueError("broken " + "pipe" * 200)
                return verifier(text, answer)

        return Failing()

    return load


def test_the_share_of_failed_verdicts_counts_what_was_judged_since_the_last_step(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(policy_room, "load_verifier", failing(lambda text: text[0] in "0123"))
    seen, sums = [], [0, 0]
    real = Policy.rewards

    def rewards(self, samples, data, index_P):
        reward_N = real(self, samples, data, index_P)
        sums[0] += int(samples.count_N.sum())
        sums[1] += int(samples.count_N[reward_N.isnan()].sum())
        if data.problems.name == "train":
            seen.append(sums[1] / sums[0])
            sums[:] = [0, 0]
        return reward_N

    monkeypatch.setattr(Policy, "rewards", rewards)
    sink = ListSink(tmp_path)
    LocalEngine().run(make_spec(folder), None, sink)
    told = [record.health["verifier_error_share"] for record in sink.steps]
    assert told == seen
    assert len(set(told)) > 3


def test_what_could_not_be_judged_is_kept_short(folder, monkeypatch):
    monkeypatch.setattr(policy_room, "load_verifier", failing(lambda _: True))
    policy = Policy(folder)
    data = policy.tokenize(WORLD.problems("val", 2, seed=2))
    monkeypatch.setattr(policy, "texts", lambda samples: ["7" * 1000] * len(samples.length_N))
    policy.count_successes(data, 1, torch.Generator().manual_seed(0), temperature=1.0, redraws=0)
    assert [len(one.response) for one in policy.take_unjudged()] == [300, 300]
    policy.count_successes(data, 1, torch.Generator().manual_seed(0), temperature=1.0, redraws=0)
    assert {len(one.message) for one in policy.take_unjudged()} == {300}


def test_responses_that_the_limit_ends_are_counted(folder, monkeypatch):
    monkeypatch.setattr(policy_room, "PROBLEMS_PER_PASS", 4)  # six problems in two passes
    problems = world_problems("p", size=6, world="products")
    few = success_counter("products", problems, max_new_tokens=2)(np.arange(6), 4)
    assert few.cut == 24  # the shortest answer has a sign, a digit and an end
    assert success_counter("products", problems)(np.arange(6), 4).cut < 24
    # nothing ends the text of this one but the limit
    assert success_counter(str(folder), WORLD.problems("p", 3, seed=1))(np.arange(3), 2).cut == 0


def test_difficulty_draws_nothing_again(folder, monkeypatch):
    monkeypatch.setattr(policy_room, "load_verifier", failing(lambda _: True))
    count = success_counter(str(folder), WORLD.problems("p", 5, seed=1))
    found = count(np.array([4, 1]), 3)
    assert found.judged_P.tolist() == [0, 0]
    assert [(one.problem, one.rollouts) for one in found.unjudged] == [(1, 3), (4, 3)] or [
        (one.problem, one.rollouts) for one in found.unjudged
    ] == [(4, 3), (1, 3)]
    assert found.tokens == 2 * 3 * 3


def test_difficulty_samples_as_it_is_told(folder, monkeypatch):
    asked = []

    def recorded(*given, **words):
        asked.append((given[3], words["temperature"], words["top_p"], words["max_new_tokens"]))
        return sample(*given, **words)

    monkeypatch.setattr(policy_room, "sample", recorded)
    count = success_counter(
        str(folder), WORLD.problems("p", 3, seed=1), temperature=0.7, max_new_tokens=4
    )
    count(np.array([0, 2]), 5)
    success_counter(str(folder), WORLD.problems("p", 3, seed=1))(np.array([1]), 2)
    assert asked[0] == (5, 0.7, 1.0, 4)
    assert asked[1][:3] == (2, 1.0, 1.0)  # the policy itself, where nothing is said


# ---- work in pieces ----


def test_a_value_model_is_trained_in_the_pieces_that_are_asked_for(tmp_path):
    save_model(tiny_model(seed=0, vocab_size=11), tmp_path)
    recipe = Recipe(objective="ppo", updates_per_batch=2)
    prompts, lengths = torch.tensor([[4, 7, 2, 9], [3, 5, 0, 0]]), torch.tensor([4, 2])
    drawn = sample(
        load_model(tmp_path), prompts, lengths, 12, max_new_tokens=4,
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip
    reward_N = (drawn.token_NT[:, 0] % 2 == 0).float()
    critic = Critic(tmp_path, recipe, torch.device("cpu"), "float32")
    made = make_experience(prompts, lengths, drawn, reward_N, recipe)
    made = replace(made, **critic.judge(made, reward_N))
    sizes, real = [], critic._values

    def values(chunk):
        sizes.append(len(chunk.rows))
        return real(chunk)

    critic._values = values
    each = torch.bincount(drawn.prompt_N).tolist()  # whole prompts stay together
    losses = [critic.accumulate(made, rows_per_chunk=size) for size in (3, 1000)]
    assert sizes == [*each, sum(each)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    sizes.clear()
    critic.update(made, 1e-3, rows_per_chunk=sum(each) - 1)
    critic.update(made, 1e-3, rows_per_chunk=sum(each))
    assert sizes == [*each, sum(each)]


def test_a_run_asks_to_keep_freed_memory(folder, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "keep_freed_memory", lambda: asked.append(1))
    engine._Run(make_spec(folder), ListSink(tmp_path))
    assert asked == [1]


def test_a_verdict_without_a_reason_says_so(folder, monkeypatch):
    policy = Policy(folder)
    data = policy.tokenize(WORLD.problems("val", 1, seed=2))

    class Silent:
        spec = "silent"

        def __call__(self, text, answer):
            return Outcome(None)

    reward_N = policy.rewards(
        sample(policy.model, data.token_PS, data.length_P, 2, max_new_tokens=3,
               generator=torch.Generator().manual_seed(0)),
        replace(data, verifier=Silent()), [0],
    )  # fmt: skip
    assert all(math.isnan(value) for value in reward_N.tolist())
    assert {one.message for one in policy.take_unjudged()} == {"no reason given"}


# ---- arithmetic ----


def test_the_second_half_of_a_block_is_its_formula():
    """x + out(mixed); then down(silu(gate(norm)) * up(norm)), every map with its bias."""
    model = tiny_model(attention_bias=True, mlp_bias=True).double()
    draw = torch.Generator().manual_seed(3)
    layer = list(model.blocks())[1]
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
        x = torch.randn(2, 3, 16, generator=draw, dtype=torch.float64)
        mixed = torch.randn(2, 3, 32, generator=draw, dtype=torch.float64)
        found = model._finish(layer, x, mixed)
        x = x + mixed @ layer.out.T + layer.out_bias
        scale = (x.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt()
        wide = (x * scale * layer.post_norm) @ layer.gate_up.T + layer.gate_up_bias
        gate, up = wide[..., :24], wide[..., 24:]
        expected = x + (gate * gate.sigmoid() * up) @ layer.down.T + layer.down_bias
    torch.testing.assert_close(found, expected)


def test_what_computes_in_which_precision(tmp_path):
    folder = tiny_folder(tmp_path)
    model = load_model(folder)
    assert trained_in(model, "float32") is model
    assert isinstance(trained_in(model, "bfloat16"), Bfloat16)
    assert Sampler(model, "float32", folder).refresh() is model
    assert isinstance(Sampler(model, "bfloat16", folder).refresh(), Bfloat16)
    rounded = Sampler(model, "int8", folder).refresh()
    assert rounded is not model
    for one, two in zip(rounded.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, rounded_to_int8(two) if two.dim() > 1 else two)


def test_a_base_model_samples_as_it_was_taught(folder):
    said = json.loads((folder / "generation_config.json").read_text())
    assert (said["temperature"], said["top_k"], said["do_sample"]) == (1.0, 0, True)


def test_a_response_too_large_for_memory_is_computed_alone():
    class Wide:
        def floats_per_token(self, prompt_tokens, tokens):
            return 10**12 * prompt_tokens * tokens

    class One:
        token_NT, prompt_PS = torch.zeros(2, 3), torch.zeros(1, 2)

    assert rows_that_fit(Wide(), One()) == 1


def test_the_base_model_takes_no_gradient(folder, tmp_path):
    learner = engine._Run(make_spec(folder), ListSink(tmp_path)).learner
    assert not any(p.requires_grad for p in learner.reference.parameters())
    assert all(p.requires_grad for p in learner.model.parameters())


def test_half_precision_is_bfloat16_on_every_device():
    class On:
        def __init__(self, device):
            self.device = torch.device(device)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a device that is not there is switched off, and said so
        found = [precision._autocast(On(device)).fast_dtype for device in ("cpu", "cuda")]
    assert found == [torch.bfloat16] * 2


def test_a_feed_forward_model_is_taught_by_single_demonstrations():
    model = load_model(base_folder("bits-mlp"))
    token_PL, start_P = torch.tensor([[1, 2, 3, 4, 1, 2], [2, 1, 4, 3, 2, 1]]), torch.tensor([4, 4])
    stop_P = start_P + 2
    logits_NV, target_N = _response_logits(model, _Sequences(token_PL, start_P, stop_P))
    assert target_N.tolist() == [1, 2, 2, 1]
    one = _Sequences(token_PL[1:], start_P[1:], stop_P[1:])
    alone_NV, target_N = _response_logits(model, one)
    assert target_N.tolist() == [2, 1]
    torch.testing.assert_close(alone_NV, logits_NV[2:])


@pytest.mark.parametrize(
    ("options", "kind", "shared"),
    [
        ({}, "Transformer", True), ({"dtype": "bfloat16"}, "Bfloat16", True),
        ({"sampler_dtype": "bfloat16"}, "Bfloat16", False),
        ({"sampler_dtype": "int8"}, "Transformer", False),
    ],
)  # fmt: skip
def test_a_run_samples_from_what_it_trains_unless_asked(folder, tmp_path, options, kind, shared):
    spec = make_spec(folder, {"importance_cap": 2.0} if "sampler_dtype" in options else None,
                     options)  # fmt: skip
    run = engine._Run(spec, ListSink(tmp_path))
    assert type(run.sampler.refresh()).__name__ == kind
    assert (run.sampler.refresh() is run.learner.model) is shared


def test_numbers_of_several_updates_are_put_together():
    """Losses are averaged over updates, what was measured over tokens."""
    found = _averaged([
        GradientReport(loss=1.0, sums={"kl": 2.0}, tokens=4.0),
        GradientReport(loss=4.0, sums={"kl": 6.0, "ratio": 3.0}, tokens=12.0),
    ])  # fmt: skip
    assert found == {"loss": 2.5, "kl": 0.5, "ratio": 3 / 16}


def test_what_a_saved_tokenizer_says(tmp_path):
    """Read by transformers in tests/engines/test_transformers.py; this holds every word of it."""
    WordTokenizer(["<p>", "<e>", "a", "b0"], r"[a-z][0-9]?", ["<p>", "<e>"]).save(
        tmp_path := tmp_path / "new" / "folder"
    )
    added = {"special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}  # fmt: skip
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 0, "content": "<p>", **added},
                         {"id": 1, "content": "<e>", **added}],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a-z][0-9]?"},
                          "behavior": "Isolated", "invert": False},
        "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": {"<p>": 0, "<e>": 1, "a": 2, "b0": 3},
                  "unk_token": "<p>"},
    }  # fmt: skip
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<p>", "eos_token": "<e>",
        "clean_up_tokenization_spaces": False, "padding_side": "left",
    }  # fmt: skip
