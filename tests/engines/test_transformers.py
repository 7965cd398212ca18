"""Model folders in both directions: ours in transformers and TRL, theirs here."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import LocalEngine, engine  # noqa: E402
from isocompute.engines.local.folders import load_model, save_model  # noqa: E402
from isocompute.engines.local.policy import Policy, base_folder  # noqa: E402
from isocompute.engines.local.sampling import sample  # noqa: E402
from isocompute.engines.local.tokenizer import load_tokenizer  # noqa: E402
from isocompute.engines.local.worlds import world_problems  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.study import RunSpec  # noqa: E402
from isocompute.verifiers import load_verifier  # noqa: E402
from local_tools import tiny_model  # noqa: E402
from sinks import ListSink  # noqa: E402

pytestmark = pytest.mark.trainers
WORLDS = ("bits", "machine", "products", "countdown", "verbs")


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def tokens(vocabulary: int, shape: tuple[int, int]) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(1))


def same_logits(ours, theirs, token) -> None:
    with torch.no_grad():
        torch.testing.assert_close(ours(token), theirs(token).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_a_saved_model_has_the_same_logits_there(transformers, tmp_path, tied, biases):
    model = tiny_model(
        tie_word_embeddings=tied, attention_bias=biases, mlp_bias=biases, rope_theta=500.0
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    save_model(model, tmp_path)
    theirs, report = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    same_logits(model, theirs.eval(), tokens(33, (5, 20)))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"num_key_value_heads": 3},
        {"num_key_value_heads": 1},
        {"tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {"vocab_size": 1003},
        {"head_dim": 16},
        {"rms_norm_eps": 1e-3},
    ],
)
def test_a_folder_of_theirs_has_the_same_logits_here(transformers, tmp_path, change):
    sizes = {
        "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
    }  # fmt: skip
    config = transformers.LlamaConfig(**{**sizes, **change})
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():  # biases start at 0, norms at 1: neither would show a mistake
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    same_logits(load_model(tmp_path), theirs, tokens(config.vocab_size, (2, 9)))


def test_bfloat16_and_several_files_load(transformers, tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    same_logits(load_model(tmp_path), theirs.float().eval(), tokens(64, (2, 9)))


@pytest.mark.parametrize("world", WORLDS)
def test_shipped_models_and_tokenizers_are_read_alike(transformers, world):
    folder = base_folder(world)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    ours = load_tokenizer(folder)
    prompts = [p.prompt for p in world_problems("p", world=world, size=20, seed=3).problems]
    assert [words(text)["input_ids"] for text in prompts] == [ours.encode(t) for t in prompts]
    assert [words.decode(ours.encode(t)) for t in prompts] == prompts
    policy = Policy(folder)
    data = policy.tokenize(world_problems("p", world=world, size=20, seed=3))
    assert data.length_P.max() > 1
    row = data.token_PS[0, : data.length_P[0]][None]
    same_logits(policy.model, theirs, row)


def test_greedy_responses_are_those_of_transformers(transformers):
    folder = base_folder("products")
    policy = Policy(folder)
    data = policy.tokenize(world_problems("p", world="products", size=8, seed=3))
    drawn = sample(
        policy.model, data.token_PS, data.length_P, 1, max_new_tokens=policy.max_new_tokens,
        generator=torch.Generator().manual_seed(0), top_p=1e-9,
    )  # fmt: skip
    words = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    batch = words([p.prompt for p in data.problems.problems], padding=True, return_tensors="pt")
    out = theirs.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=False,
        max_new_tokens=policy.max_new_tokens,
    )  # fmt: skip
    texts = words.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    assert policy.texts(drawn) == texts


@pytest.mark.parametrize("world", WORLDS)
def test_a_shipped_folder_trains_in_trl(transformers, tmp_path, world):
    """One update of GRPOTrainer, and its folder loads here again."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    folder = base_folder(world)
    words = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    words.eos_token = words.eos_token or words.pad_token
    rows = [{"prompt": p.prompt} for p in world_problems("p", world=world, size=4, seed=3).problems]
    trainer = trl.GRPOTrainer(
        model=str(folder), processing_class=words, train_dataset=datasets.Dataset.from_list(rows),
        reward_funcs=lambda completion_ids, **_: [float(sum(c) % 2) for c in completion_ids],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=16, num_generations=4,
            max_steps=1, max_completion_length=8, use_cpu=True, bf16=False, report_to="none",
            gradient_checkpointing=False, learning_rate=1e-3, lr_scheduler_type="constant",
            save_strategy="no", disable_tqdm=True,
        ),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(tmp_path / "trained"))
    again = load_model(tmp_path / "trained")
    same_logits(again, trainer.model.eval(), tokens(again.sizes.vocab_size, (2, 9)))
    assert not torch.equal(again.norm, load_model(folder).norm)


# What transformers makes of weights that the engine trained, at a temperature and with a nucleus.
TEMPERATURE, TOP_P, SAMPLES = 0.7, 0.9, 8


@pytest.fixture(scope="module")
def trained(transformers, tmp_path_factory):
    """A run's evaluations, and its last checkpoint as a folder that transformers reads."""
    work = tmp_path_factory.mktemp("trained")
    base = base_folder("products")
    spec = RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=16, rollouts_per_problem=32, steps=8),
        recipe=Recipe(learning_rate=1e-3, base_batch_size=512, temperature=TEMPERATURE,
                      top_p=TOP_P, warmup_steps=2),
        train=world_problems("train", world="products", size=64, seed=3),
        validation={"val": world_problems("val", world="products", size=200, seed=4)},
        seed=5, evaluation_samples=SAMPLES, engine_options={"model": "products"},
        first_evaluation=16 * 32 * 8, evaluations_per_octave=1,
    )  # fmt: skip
    sink = ListSink(work / "run")
    LocalEngine().run(spec, None, sink)
    folder = work / "saved"
    shutil.copytree(base, folder)
    restored = engine._Run(spec, ListSink(work / "other"))
    restored.load(sink.last)
    save_model(restored.learner.model, folder)
    before, after = (record.successes_P for record in sink.evaluations)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    return before, after, folder, spec.validation["val"], model, words


def test_an_evaluation_scores_what_transformers_scores_with_the_saved_weights(trained):
    before, after, _, problems, model, words = trained
    batch = words([p.prompt for p in problems.problems], padding=True, return_tensors="pt")
    torch.manual_seed(0)
    out = model.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True,
        temperature=TEMPERATURE, top_p=TOP_P, top_k=0, num_return_sequences=SAMPLES,
        max_new_tokens=Policy(base_folder("products")).max_new_tokens,
    )  # fmt: skip
    texts = words.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    judge = load_verifier(problems.verifier)
    answers = [p.answer for p in problems.problems for _ in range(SAMPLES)]
    rewards = [judge(text, answer).reward for text, answer in zip(texts, answers, strict=True)]
    there = np.array(rewards).reshape(-1, SAMPLES).sum(1)
    # Problem by problem: as far apart as two draws from one policy are, where the base model's
    # successes, which add up to about as many, are much further away.
    rate = (after + there) / (2 * SAMPLES)
    chance = 2 * SAMPLES * np.sum(rate * (1 - rate)) / (1 - 1 / (2 * SAMPLES))
    assert abs(after.sum() - there.sum()) < 3.5 * np.sqrt(chance)
    assert np.sum((after - there) ** 2) < 1.4 * chance
    assert np.sum((before - there) ** 2) > 2.5 * chance


def test_log_probabilities_of_responses_are_those_of_transformers(trained):
    _, _, folder, problems, model, _ = trained
    policy = Policy(folder)
    data = policy.tokenize(problems)
    drawn = sample(
        policy.model, data.token_PS, data.length_P, 4, max_new_tokens=policy.max_new_tokens,
        generator=torch.Generator().manual_seed(0), temperature=2.0,
    )  # fmt: skip
    assert drawn.length_N.min() < drawn.length_N.max()  # as they are at so high a temperature
    for row in range(0, drawn.length_N.numel(), 7):
        prompt, length = int(drawn.prompt_N[row]), int(drawn.length_N[row])
        given = data.token_PS[prompt, : data.length_P[prompt]]
        response = drawn.token_NT[row, :length]
        with torch.no_grad():
            logits = model(torch.cat([given, response])[None]).logits[0, len(given) - 1 : -1]
        there = torch.log_softmax(logits / 2.0, -1).gather(-1, response[:, None])[:, 0]
        torch.testing.assert_close(drawn.logprob_NT[row, :length], there, atol=1e-4, rtol=1e-4)
