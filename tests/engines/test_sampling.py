import itertools

import pytest

torch = pytest.importorskip("torch")
from scipy import stats  # noqa: E402 (torch is optional)

from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.gradient import accumulate  # noqa: E402
from isocompute.engines.local.grouping import Grouping  # noqa: E402
from isocompute.engines.local.mlp import BitMlp, MlpConfig  # noqa: E402
from isocompute.engines.local.sampling import Samples, draw_children, nucleus, sample  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from local_tools import tiny_model  # noqa: E402

PROMPT = torch.tensor([[1, 5, 2, 4], [3, 3, 1, 0]])
LENGTH = torch.tensor([4, 3])


def draw(model, n, *, seed=0, tokens=3, **options):
    return sample(
        model, PROMPT, LENGTH, n, max_new_tokens=tokens,
        generator=torch.Generator().manual_seed(seed), **options,
    )  # fmt: skip


def small(**changes):
    return tiny_model(vocab_size=6, **changes)


def exact_probabilities(model, prompt, tokens, temperature=1.0):
    """Probability of every response of `tokens` tokens, by enumeration and plain forwards."""
    responses = list(itertools.product(range(model.config.vocab_size), repeat=tokens))
    rows = torch.cat([prompt.expand(len(responses), -1), torch.tensor(responses)], 1)
    with torch.no_grad():
        logprob = torch.log_softmax(model(rows)[:, len(prompt) - 1 : -1] / temperature, -1)
    chosen = logprob.gather(-1, rows[:, len(prompt) :, None])[..., 0]
    return dict(zip(responses, chosen.sum(1).double().exp().tolist(), strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_responses_have_the_distribution_of_independent_samples(temperature):
    model, n = small(), 20_000
    drawn = draw(model, n, tokens=2, temperature=temperature)
    for p in range(2):
        mine = drawn.prompt_N == p
        seen = dict(
            zip(map(tuple, drawn.token_NT[mine].tolist()), drawn.count_N[mine].tolist(),
                strict=True)
        )  # fmt: skip
        exact = exact_probabilities(model, PROMPT[p, : LENGTH[p]], 2, temperature)
        expected = [n * exact[r] / sum(exact.values()) for r in exact]
        assert sum(seen.values()) == n
        result = stats.chisquare([seen.get(r, 0) for r in exact], expected)
        assert result.pvalue > 1e-4


def test_the_tree_equals_plain_sampling_rollout_by_rollout():
    """Each rollout from the same uniform numbers, alone, without tree, cache or sharing."""
    model, n, tokens = small(), 50, 3
    drawn = draw(model, n, seed=7, tokens=tokens)
    uniform = torch.rand(
        2, n, tokens, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    counts: dict[tuple[int, ...], int] = {}
    for p in range(2):
        for i in range(n):
            row = PROMPT[p, : LENGTH[p]].tolist()
            for t in range(tokens):
                with torch.no_grad():
                    probability = torch.softmax(model(torch.tensor([row]))[0, -1], -1).double()
                row.append(int((probability.cumsum(0) <= uniform[p, i, t]).sum()))
            key = (p, *row[-tokens:])
            counts[key] = counts.get(key, 0) + 1
    keys = zip(drawn.prompt_N.tolist(), drawn.token_NT.tolist(), strict=True)
    tree = {(p, *r): c for (p, r), c in zip(keys, drawn.count_N.tolist(), strict=True)}
    assert tree == counts


def test_passes_of_any_size_draw_the_same():
    model = small()
    one, two = draw(model, 40), draw(model, 40, rows_per_pass=40)
    for name in ("token_NT", "count_N", "prompt_N", "length_N"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert one.entropy == pytest.approx(two.entropy)


def test_the_same_generator_state_draws_the_same_and_another_does_not():
    model = small()
    assert torch.equal(draw(model, 9).token_NT, draw(model, 9).token_NT)
    assert not torch.equal(draw(model, 9).token_NT, draw(model, 9, seed=1).token_NT)


def test_responses_end_at_the_end_of_text():
    model = small(eos_token_id=2)
    drawn = draw(model, 300, tokens=4)
    assert torch.equal(drawn.clipped_N, drawn.token_NT.eq(2).sum(1) == 0)
    for row, length, clipped in zip(
        drawn.token_NT.tolist(), drawn.length_N.tolist(), drawn.clipped_N.tolist(), strict=True
    ):
        assert length == (4 if clipped else row.index(2) + 1)
        assert all(token == model.config.pad_token_id for token in row[length:])
    assert set(drawn.length_N.tolist()) == {1, 2, 3, 4}
    assert drawn.tokens == int((drawn.length_N * drawn.count_N).sum())
    assert torch.bincount(drawn.prompt_N, weights=drawn.count_N.double()).tolist() == [300, 300]
    exact = exact_probabilities(model, PROMPT[0], 1)
    first = drawn.count_N[(drawn.prompt_N == 0) & (drawn.length_N == 1)].sum().item()
    p = exact[(2,)]
    assert abs(first - 300 * p) < 5 * (300 * p * (1 - p)) ** 0.5


def test_each_of_several_end_tokens_ends_a_response():
    drawn = draw(small(eos_token_id=(2, 5)), 300, tokens=4)
    ends_NT = torch.isin(drawn.token_NT, torch.tensor([2, 5]))
    assert torch.equal(drawn.clipped_N, ends_NT.sum(1) == 0)
    last_N = drawn.token_NT[torch.arange(len(drawn.length_N)), drawn.length_N - 1]
    assert set(last_N[~drawn.clipped_N].tolist()) == {2, 5}
    first_N = torch.where(drawn.clipped_N, 3, ends_NT.long().argmax(1))
    assert torch.equal(drawn.length_N, first_N + 1)


def test_logprobs_are_those_of_the_trainer():
    model = small(eos_token_id=2)
    drawn = draw(model, 60, tokens=4, temperature=0.7)
    logits = model.response_logits(PROMPT, LENGTH, drawn.token_NT, Grouping(drawn.distinct_P))
    logprob = torch.log_softmax(logits / 0.7, -1)
    chosen = logprob.gather(-1, drawn.token_NT[..., None])[..., 0].detach()
    mask = torch.arange(4) < drawn.length_N[:, None]
    torch.testing.assert_close(drawn.logprob_NT, chosen * mask, atol=1e-5, rtol=1e-4)


def test_nucleus_keeps_the_smallest_sufficient_set():
    probability = torch.tensor([[0.5, 0.1, 0.3, 0.1]])
    assert nucleus(probability, 1.0) is probability
    torch.testing.assert_close(nucleus(probability, 0.8), torch.tensor([[0.625, 0, 0.375, 0]]))
    torch.testing.assert_close(nucleus(probability, 0.5), torch.tensor([[1.0, 0, 0, 0]]))
    assert nucleus(probability, 0.81)[0].count_nonzero() == 3


def test_top_p_reaches_the_sampler():
    model = small()
    likeliest = draw(model, 20, top_p=1e-6)
    assert likeliest.count_N.tolist() == [20, 20]


def test_children_are_drawn_by_inversion():
    probability = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]])
    node = torch.tensor([0, 0, 1, 1])
    uniform = torch.tensor([0.2, 0.25, 0.0, 0.6], dtype=torch.float64)
    child, count, of = draw_children(probability, node, uniform)
    assert child.tolist() == [0, 1, 4, 5]
    assert count.tolist() == [1, 1, 1, 1]
    assert of.tolist() == [0, 1, 2, 3]


def expanded(samples: Samples) -> Samples:
    """The same rollouts, each a row of its own."""
    repeat = samples.count_N

    def rows(x):
        return x.repeat_interleave(repeat, 0)

    return Samples(
        token_NT=rows(samples.token_NT), length_N=rows(samples.length_N),
        prompt_N=rows(samples.prompt_N), count_N=torch.ones_like(rows(samples.count_N)),
        logprob_NT=rows(samples.logprob_NT), clipped_N=rows(samples.clipped_N),
        prompts=samples.prompts, entropy=samples.entropy,
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"advantage_std": "none", "aggregation": "seq-mean-token-sum"},
        {"kl_coef": 0.1, "entropy_coef": 0.05, "aggregation": "seq-mean-token-mean"},
        {"kl_coef": 0.1, "zero_variance_filter": "regularizers"},
        {"kl_coef": 0.1, "zero_variance_filter": "loss"},
    ],
)
def test_the_weighted_gradient_equals_the_plain_one(change):
    model, base = small(eos_token_id=2), small(seed=5, eos_token_id=2)
    recipe = Recipe(temperature=0.8, **change)
    drawn = draw(model, 64, tokens=3, temperature=0.8)
    assert drawn.count_N.max() > 1
    plain = expanded(drawn)
    gradients, reports = [], []
    for samples, chunk in ((drawn, 256), (plain, 256), (drawn, 7)):
        reward = (samples.token_NT[:, 0] % 3 == 1).float() * (samples.prompt_N == 0)
        model.zero_grad()
        experience = make_experience(PROMPT, LENGTH, samples, reward, recipe)
        report = accumulate(model, base, experience, recipe, rows_per_chunk=chunk)
        gradients.append([p.grad.clone() for p in model.parameters()])
        reports.append(report)
    assert max(float(g.abs().max()) for g in gradients[0]) > 1e-3
    for other in gradients[1:]:
        for one, two in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
    assert experience.varies_P.tolist() == [True, False]
    if change.get("zero_variance_filter", "none") == "none" and "kl_coef" in change:
        assert reports[0].means["kl"] == pytest.approx(reports[1].means["kl"], rel=1e-4)


def test_the_feed_forward_policy_is_sampled_from_its_own_distribution():
    config = MlpConfig(prompt_words=8, answer_tokens=2, width=6, prompt_tokens=4)
    model, n = BitMlp(config, torch.Generator().manual_seed(1)), 20_000
    drawn = draw(model, n, tokens=2)
    with torch.no_grad():
        probability = torch.softmax(model.answer_logits(PROMPT, LENGTH), -1).double()
    for p in range(2):
        mine = drawn.prompt_N == p
        seen = torch.zeros(17, 17)
        tokens = drawn.token_NT[mine]
        seen[tokens[:, 0], tokens[:, 1]] = drawn.count_N[mine].float()
        expected = torch.outer(probability[p, 0], probability[p, 1])[1:, 1:].flatten()
        result = stats.chisquare(seen[1:, 1:].flatten(), expected * n / expected.sum())
        assert result.pvalue > 1e-4
    logits = model.response_logits(PROMPT, LENGTH, drawn.token_NT, Grouping(drawn.distinct_P))
    chosen = torch.log_softmax(logits, -1).gather(-1, drawn.token_NT[..., None])[..., 0].detach()
    torch.testing.assert_close(drawn.logprob_NT, chosen)
