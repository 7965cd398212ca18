import json

import pytest

torch = pytest.importorskip("torch")

from isocompute.engines.local.folders import (  # noqa: E402 (torch is optional)
    config_from_json,
    config_to_json,
    load_model,
    save_model,
)
from isocompute.engines.local.grouping import Grouping  # noqa: E402
from isocompute.engines.local.kernels import (  # noqa: E402
    gated_unit,
    picked,
    placed,
    rms_norm,
    shared_logprob,
    token_logprob,
    token_logprob_and_entropy,
)
from isocompute.engines.local.mlp import BitMlp, MlpConfig  # noqa: E402
from isocompute.engines.local.tree import prefix_tree  # noqa: E402
from isocompute.errors import InputError  # noqa: E402
from local_tools import WORLD, tiny_config, tiny_model  # noqa: E402


def test_logits_are_pinned():
    # transformers 5.23 gives these numbers for the same folder (`test_transformers`).
    logits = tiny_model()(torch.tensor([[1, 20, 3, 30]]))
    assert logits[0, -1, :4].tolist() == pytest.approx(
        [0.6107923, 0.1728680, 1.3259217, 1.9406182], abs=1e-5
    )


@pytest.mark.parametrize("biases", [False, True])
def test_a_saved_model_loads_bit_for_bit(tmp_path, biases):
    model = tiny_model(attention_bias=biases, mlp_bias=biases)
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    for one, two in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.long
@pytest.mark.parametrize("lengths", [[10, 10, 10], [10, 7, 1]])
@pytest.mark.parametrize("counts", [[2, 2, 2], [3, 1, 4], [1, 9, 1]])  # view, slots, copies
def test_shared_prompts_and_cache_equal_the_plain_forward(lengths, counts):
    model = tiny_model()
    draw = torch.Generator().manual_seed(3)
    prompt = torch.randint(0, 33, (3, 10), generator=draw)
    length = torch.tensor(lengths)
    groups = Grouping(torch.tensor(counts))
    response = torch.randint(0, 33, (groups.rows, 6), generator=draw)
    with torch.no_grad():
        _, prompts = model.prompt(prompt, length)
        whole = model.logits(model.respond(response, prompts, groups))
        cache = model.response_cache(groups.rows, 6)
        steps = [model.respond(response[:, t : t + 1], prompts, groups, cache) for t in range(6)]
        cached = model.logits(torch.cat(steps, 1))
        for row, p in enumerate(groups.prompt_N.tolist()):
            plain = model(torch.cat([prompt[p, : length[p]], response[row]])[None])[0, -6:]
            torch.testing.assert_close(whole[row], plain, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(cached[row], plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("lengths", [[10, 10, 10], [10, 7, 1]])
def test_the_last_tokens_alone_equal_those_of_the_whole_prompt(lengths, biases):
    model = tiny_model(attention_bias=biases)
    prompt = torch.randint(0, 33, (3, 10), generator=torch.Generator().manual_seed(3))
    length = torch.tensor(lengths)
    with torch.no_grad():
        for layer in model.blocks():
            if layer.qkv_bias is not None:
                layer.qkv_bias.normal_(generator=torch.Generator().manual_seed(4))
        hidden, whole = model.prompt(prompt, length)
        last, brief = model.prompt(prompt, length, whole=False)
    assert last.shape == (3, 1, 16)
    torch.testing.assert_close(last[:, 0], hidden[torch.arange(3), length - 1])
    for one, two in zip([*brief[0], *brief[1]], [*whole[0], *whole[1]], strict=True):
        torch.testing.assert_close(one, two)


def test_a_tree_counts_each_prefix_once():
    rows = torch.tensor([[5, 6, 7], [5, 6, 8], [5, 2, 0], [9, 9, 9], [5, 6, 7], [5, 6, 7]])
    prompt = torch.tensor([0, 0, 0, 0, 0, 1])
    tree = prefix_tree(rows, prompt, 10, end_tokens=(2,))
    # Prompt 0: 5; 9; 56; 52; 99; 567; 568; 999. Prompt 1: 5; 56; 567.
    assert tree.place_M.numel() == 11
    live = torch.ones(6, 3, dtype=torch.bool)
    live[2, 2] = False  # after the end-of-text token
    assert tree.node_NT[0].tolist() == tree.node_NT[4].tolist() != tree.node_NT[5].tolist()
    assert tree.node_NT[0, 1] == tree.node_NT[1, 1] != tree.node_NT[2, 1]
    assert len(set(tree.node_NT[live].tolist())) == 11
    again = tree.spread(tree.gather(rows))
    assert torch.equal(again[live], rows[live])
    distinct = torch.arange(18).view(6, 3)
    assert prefix_tree(distinct, prompt, 18) is None
    # From the second token on nothing is shared; what the first saves decides, rows that end count.
    late = torch.tensor([[1, 2, 9, 9], [1, 4, 2, 5], [1, 6, 2, 7], [1, 8, 7, 8]])
    assert prefix_tree(late, torch.zeros(4).long(), 10, (2,)).place_M.numel() == 9
    assert prefix_tree(late, torch.zeros(4).long(), 10, (2,)).node_NT[0, 2:].sum() == 0
    assert prefix_tree(late + 10, torch.zeros(4).long(), 20) is not None


@pytest.mark.parametrize("ends", [(), (2,), (2, 4)])
def test_shared_prefixes_change_neither_logits_nor_gradient(ends, monkeypatch):
    model = tiny_model(vocab_size=6, eos_token_id=ends)
    draw = torch.Generator().manual_seed(3)
    prompt, length = torch.randint(0, 6, (2, 5), generator=draw), torch.tensor([5, 3])
    groups = Grouping(torch.tensor([20, 10]))
    rows = torch.randint(0, 6, (30, 4), generator=draw)
    rows[:, 0] %= 2
    live = torch.ones(30, 4, dtype=torch.bool)
    if ends:
        live[:, 1:] = torch.isin(rows[:, :-1], torch.tensor(ends)).cumsum(1) == 0
    results = []
    for worth in (0.99, 0.0):
        monkeypatch.setattr("isocompute.engines.local.tree.WORTH_SHARING", worth)
        model.zero_grad()
        logits = model.response_logits(prompt, length, rows, groups)
        picked = torch.log_softmax(logits, -1)[live]
        (picked * torch.linspace(-1, 1, picked.numel()).view_as(picked)).sum().backward()
        results.append([picked.detach(), *(p.grad.clone() for p in model.parameters())])
    assert prefix_tree(rows, groups.prompt_N, 6, ends) is None
    monkeypatch.undo()
    assert prefix_tree(rows, groups.prompt_N, 6, ends) is not None
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_a_branched_cache_follows_its_parents():
    model = tiny_model()
    prompt = torch.randint(0, 33, (1, 5), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        _, prompts = model.prompt(prompt)
        cache = model.response_cache(2, 2)
        one = Grouping(torch.tensor([2]))
        model.respond(torch.tensor([[4], [9]]), prompts, one, cache)
        cache.branch(torch.tensor([1, 1, 0]))
        three = Grouping(torch.tensor([3]))
        out = model.respond(torch.tensor([[7], [8], [7]]), prompts, three, cache)[:, 0]
        for row, tail in enumerate([[9, 7], [9, 8], [4, 7]]):
            plain, _ = model.prompt(torch.cat([prompt[0], torch.tensor(tail)])[None])
            torch.testing.assert_close(out[row], plain[0, -1], atol=1e-5, rtol=1e-4)


def test_config_survives_its_json():
    for ends in (2, (2, 5), None):
        config = tiny_config(tie_word_embeddings=True, eos_token_id=ends, rope_theta=500.0)
        assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == config


def test_a_folder_ends_where_its_generation_config_says(tmp_path):
    save_model(tiny_model(eos_token_id=2), tmp_path)
    assert load_model(tmp_path).sizes.end_tokens == (2,)
    told = {"eos_token_id": [7, 2]}
    (tmp_path / "generation_config.json").write_text(json.dumps(told))
    assert load_model(tmp_path).sizes.end_tokens == (7, 2)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": None}))
    assert load_model(tmp_path).sizes.end_tokens == (2,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type='llama'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type='default'"),
        ({"hidden_act": "gelu"}, "hidden_act='silu'"),
    ],
)
def test_other_architectures_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        config_from_json({**config_to_json(tiny_config()), **change})


def test_a_missing_size_is_named():
    data = config_to_json(tiny_config())
    del data["vocab_size"]
    with pytest.raises(InputError, match="must give vocab_size, but it is missing"):
        config_from_json(data)


def test_bad_sizes_are_refused():
    with pytest.raises(InputError, match="got 4 and 3"):
        tiny_config(num_key_value_heads=3)
    with pytest.raises(InputError, match="`head_dim` must be even.*got 7"):
        tiny_config(head_dim=7)


def test_broken_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"must hold config.json and model.safetensors"):
        load_model(tmp_path)
    model = tiny_model()
    save_model(model, tmp_path)
    data = config_to_json(model.config)
    (tmp_path / "config.json").write_text(json.dumps({**data, "num_hidden_layers": 3}))
    with pytest.raises(InputError, match="'model.layers.2.input_layernorm.weight' is missing"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**data, "num_hidden_layers": 1}))
    with pytest.raises(InputError, match="only the weights that its config.json names"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**data, "vocab_size": 40}))
    with pytest.raises(InputError, match="must have the shape that config.json gives"):
        load_model(tmp_path)


def feed_forward():
    config = MlpConfig(prompt_words=len(WORLD.tokenizer()), answer_tokens=3, width=12)
    return BitMlp(config, torch.Generator().manual_seed(0))


def test_a_digit_of_the_feed_forward_policy_is_four_independent_bits(tmp_path):
    model = feed_forward()
    prompt = torch.tensor([[17, 22, 25, 30], [17, 22, 0, 0]])
    length = torch.tensor([4, 2])
    with torch.no_grad():
        logits = model.answer_logits(prompt, length)
        probability = torch.softmax(logits, -1)
        x = model.words[[17, 22]].sum(0) + model.words_bias
        x = torch.nn.functional.gelu(x) @ model.middle.T + model.middle_bias
        bit = torch.sigmoid(torch.nn.functional.gelu(x) @ model.bits.T + model.bits_bias)
    assert logits.shape == (2, 3, 17)
    assert probability[..., 0].max() == 0  # padding is never said
    for digit in range(16):
        expected = 1.0
        for place in range(4):
            on = digit >> (3 - place) & 1
            expected *= float(bit[4 + place] if on else 1 - bit[4 + place])
        assert probability[1, 1, 1 + digit].item() == pytest.approx(expected, rel=1e-4)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, BitMlp)
    with torch.no_grad():
        assert torch.equal(again.answer_logits(prompt, length), logits)


def values_and_gradients(function, *inputs):
    """Outputs of `function` and gradients of a fixed weighted sum of them."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    total = sum((o * torch.linspace(-1, 2, o.numel()).view(o.shape)).sum() for o in outputs)
    total.backward()
    return [*outputs, *(x.grad for x in leaves if x.requires_grad)]


def check_kernel(ours, plain, *inputs):
    for one, two in zip(
        values_and_gradients(ours, *inputs), values_and_gradients(plain, *inputs), strict=True
    ):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs), plain(*inputs), atol=1e-6, rtol=1e-5)


def test_kernels_equal_plain_autograd():
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 5, 8, generator=draw), torch.randn(8, generator=draw)
    token = torch.randint(0, 8, (3, 5), generator=draw)

    def plain_logprob(logits, token):
        logprob = torch.log_softmax(logits, -1)
        return logprob.gather(-1, token[..., None])[..., 0]

    def plain_both(logits, token):
        logprob = torch.log_softmax(logits, -1)
        return plain_logprob(logits, token), -(logprob.exp() * logprob).sum(-1)

    check_kernel(
        lambda x, w: rms_norm(x, w, 1e-6),
        lambda x, w: torch.nn.functional.rms_norm(x, (8,), w, 1e-6), x, weight,
    )  # fmt: skip
    check_kernel(
        lambda gate, up: gated_unit(gate.clone(), up),
        lambda gate, up: torch.nn.functional.silu(gate) * up, x, torch.sin(3 * x),
    )  # fmt: skip
    check_kernel(token_logprob, plain_logprob, x, token)
    check_kernel(token_logprob_and_entropy, plain_both, x, token)
    rows, row = x.flatten(0, 1), torch.tensor([3, 0, 3, 14, 3, 7, 7])
    said = token.flatten()[:7]  # the same row and word, too
    said[2] = said[0]
    check_kernel(
        lambda logits: shared_logprob(logits, row, said, entropies=True),
        lambda logits: (plain_logprob(logits[row], said), plain_both(logits, token.flatten())[1]),
        rows,
    )  # fmt: skip
    check_kernel(
        lambda logits: shared_logprob(logits, row, said)[0],
        lambda logits: plain_logprob(logits[row], said), rows,
    )  # fmt: skip
    assert shared_logprob(rows, row, said)[1].numel() == 0
    place = torch.tensor([4, 0, 2])
    check_kernel(lambda x: placed(x, place, 6),
                 lambda x: torch.zeros(6, 5, 8).index_copy(0, place, x), x)  # fmt: skip
    check_kernel(lambda x: picked(x, place), lambda x: x[place], rows)


def test_words_of_a_small_vocabulary_are_multiplied_once_each(monkeypatch):
    # Longer prompts than the vocabulary has words: the first layer's products are shared.
    from isocompute.engines.local import model as room

    model = tiny_model()
    token = torch.randint(0, model.config.vocab_size, (40, 5), generator=torch.Generator())
    seen, real = [], room.F.embedding

    def watched(words, table):
        seen.append(table.shape[1])
        return real(words, table)

    monkeypatch.setattr(room.F, "embedding", watched)
    found = []
    for part in (token, None):
        model.zero_grad()
        logits = model(token) if part is not None else torch.cat([model(t[None]) for t in token])
        (logits * torch.linspace(-1, 1, logits.numel()).view(logits.shape)).sum().backward()
        found.append([logits.detach(), *(p.grad.clone() for p in model.parameters())])
    assert len(seen) == 42  # once more for the words' products of the whole, never for the parts
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-3)


def test_words_that_cannot_be_said_have_no_gradient():
    logits = torch.tensor([[-torch.inf, 1.0, 2.0]], requires_grad=True)
    logprob, entropy = token_logprob_and_entropy(logits, torch.tensor([2]))
    (logprob + entropy).sum().backward()
    p = torch.softmax(torch.tensor([1.0, 2.0]), -1)
    h = -(p * p.log()).sum()
    expected = torch.tensor([0.0, 1.0]) - p - p * (p.log() + h)
    assert entropy.item() == pytest.approx(h.item())
    assert logits.grad[0, 0] == 0
    torch.testing.assert_close(logits.grad[0, 1:], expected)
