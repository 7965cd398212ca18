import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from isocompute.engines.local import advantages, objectives  # noqa: E402 (torch is optional)
from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.gradient import accumulate  # noqa: E402
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up  # noqa: E402
from isocompute.engines.local.sampling import Samples  # noqa: E402
from isocompute.errors import InputError  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from local_tools import tiny_model  # noqa: E402

# Two prompts; the first with rewards 1, 1, 0, 0, 0, 0 as counts 2 and 4, the second all 1.
REWARD = torch.tensor([1.0, 0.0, 1.0, 1.0])
COUNT = torch.tensor([2, 4, 1, 5])
PROMPT = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("std", "scale"),
    [
        # Mean 1/3; squares 2 * 4/9 + 4 * 1/9 = 4/3; variance 4/3 / 5 or 4/3 / 6.
        ("sample", math.sqrt(4 / 15) + 1e-6),
        ("population", math.sqrt(2 / 9) + 1e-6),
        ("none", 1.0),
    ],
)
def test_group_advantages_by_hand(std, scale):
    advantage, varies = advantages.group_advantages(REWARD, COUNT, PROMPT, 2, std)
    expected = [2 / 3 / scale, -1 / 3 / scale, 0.0, 0.0]
    assert advantage.tolist() == pytest.approx(expected, rel=1e-6)
    assert varies.tolist() == [True, False]


def test_a_group_of_one_has_no_advantage_and_a_word_must_be_known():
    one = advantages.group_advantages(torch.ones(1), torch.ones(1), torch.tensor([0]), 2)
    assert one[0].tolist() == [0.0]
    assert one[1].tolist() == [False, False]
    with pytest.raises(InputError, match="`advantage_std` must be .* but got 'mad'"):
        advantages.group_advantages(REWARD, COUNT, PROMPT, 2, "mad")


def test_token_weights_by_hand():
    length, count = torch.tensor([1, 3, 4]), torch.tensor([1, 2, 0])
    # 1 * 1 + 2 * 3 = 7 tokens in 3 responses.
    for aggregation, expected in (
        ("token-mean", [1 / 7, 2 / 7, 0]),
        ("seq-mean-token-sum", [1 / 3, 2 / 3, 0]),
        ("seq-mean-token-mean", [1 / 3, 2 / 9, 0]),
    ):
        weight = objectives.token_weights(length, count, aggregation)
        assert weight.tolist() == pytest.approx(expected)
        assert objectives.token_weights(length, 0 * count, aggregation).tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="`aggregation` must be .* but got 'sum'"):
        objectives.token_weights(length, count, "sum")


def test_policy_loss_by_hand():
    logprob = torch.tensor([[-0.5, -1.0], [-2.0, -0.1]], requires_grad=True)
    loss = objectives.policy_loss(logprob, torch.tensor([[1.5], [-0.5]]))
    assert loss.tolist() == [[-1.5, -1.5], [0.5, 0.5]]
    loss.sum().backward()
    assert logprob.grad.tolist() == [[-1.5, -1.5], [0.5, 0.5]]


# Ratios of new to old: 1.5, 1, 0.5; bounds 0.8 and 1.3.
RATIO = [1.5, 1.0, 0.5]


def ratios():
    old = torch.full((2, 3), -1.0)
    return (old + torch.tensor([RATIO, RATIO]).log()).requires_grad_(), old


def test_the_clipped_surrogate_by_hand():
    logprob, old = ratios()
    advantage = torch.tensor([[2.0], [-2.0]])
    loss, clipped = objectives.clipped_surrogate(logprob, old, advantage, 0.2, 0.3)
    # A = 2: min(3, 2.6), min(2, 2), min(1, 1.6). A = -2: min(-3, -2.6), -2, min(-1, -1.6).
    assert loss.flatten().tolist() == pytest.approx([-2.6, -2.0, -1.0, 3.0, 2.0, 1.6])
    assert clipped.tolist() == [[True, False, False], [False, False, True]]
    loss.sum().backward()
    # -A * ratio where it is not clipped, 0 where it is.
    assert logprob.grad.flatten().tolist() == pytest.approx([0, -2.0, -1.0, 3.0, 2.0, 0])
    per_token = advantage * torch.tensor([[1.0, 0.0, 2.0]])
    loss, _ = objectives.clipped_surrogate(logprob, old, per_token, 0.2, 0.3)
    assert loss[0].tolist() == pytest.approx([-2.6, 0.0, -2.0])  # min(0.5 * 4, 0.8 * 4)


def test_cispo_by_hand():
    logprob, old = ratios()
    loss, clipped = objectives.cispo_loss(
        logprob, old, torch.tensor([[2.0], [-2.0]]), 0.2, 0.3
    )
    weight = [1.3, 1.0, 0.8]
    at = [math.log(r) - 1 for r in RATIO]
    expected = [-w * 2 * x for w, x in zip(weight, at, strict=True)]
    assert loss[0].tolist() == pytest.approx(expected)
    assert clipped.tolist() == [[True, False, True]] * 2
    loss.sum().backward()
    assert logprob.grad[0].tolist() == pytest.approx([-2.6, -2.0, -1.6])  # no token leaves
    assert logprob.grad[1].tolist() == pytest.approx([2.6, 2.0, 1.6])


def test_importance_weights_by_hand():
    trainer = torch.tensor([[0.5, 0.5, 0.9]]).log()
    sampler = torch.tensor([[0.25, 1.0, 0.1]]).log()
    mask = torch.tensor([[True, True, False]])
    token = objectives.importance_weights(trainer, sampler, mask)
    assert token[0].tolist() == pytest.approx([2.0, 0.5, 1.0])
    sequence = objectives.importance_weights(trainer, sampler, mask, "sequence")
    assert sequence[0].tolist() == pytest.approx([1.0, 1.0, 1.0])  # 2 * 0.5
    with pytest.raises(InputError, match="`importance_level` must be .* but got 'word'"):
        objectives.importance_weights(trainer, sampler, mask, "word")


def test_the_value_loss_by_hand():
    value = torch.tensor([[1.0, 0.2, 0.4]], requires_grad=True)
    loss = objectives.value_loss(value, torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]]), 0.3)
    # Clipped to 0.3, 0.2, 0.3: half of max(0, 0.49), of 0.64, of max(0.16, 0.09).
    assert loss[0].tolist() == pytest.approx([0.245, 0.32, 0.08])
    loss.sum().backward()
    assert value.grad[0].tolist() == pytest.approx([0.0, -0.8, 0.4])


def test_generalised_advantages_by_hand():
    value = torch.tensor([[0.5, 0.25, 9.0], [0.1, 0.2, 0.4]])
    length, reward = torch.tensor([2, 3]), torch.tensor([1.0, 0.0])
    advantage, target = advantages.generalised_advantages(value, reward, length, 0.9, 0.5)
    # First: deltas 0.9 * 0.25 - 0.5 and 1 - 0.25. Second: 0.08, 0.16, -0.4. Weight 0.45.
    second = [0.08 + 0.45 * (0.16 - 0.45 * 0.4), 0.16 - 0.45 * 0.4, -0.4]
    assert advantage[0].tolist() == pytest.approx([-0.275 + 0.45 * 0.75, 0.75, 0.0])
    assert advantage[1].tolist() == pytest.approx(second)
    assert target[0].tolist() == pytest.approx([0.5625, 1.0, 0.0])
    plain, target = advantages.generalised_advantages(value, reward, length, 1.0, 1.0)
    assert target.tolist() == [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]  # lambda 1: the outcome itself
    assert plain[0].tolist() == pytest.approx([0.5, 0.75, 0.0])


def test_whitening_by_hand():
    value = torch.tensor([[1.0, 4.0], [7.0, 0.0]])
    weight = torch.tensor([[2, 1], [1, 0]])  # 1, 1, 4, 7: mean 3.25, squares sum to 24.75
    for std, variance in (("sample", 24.75 / 3), ("population", 24.75 / 4)):
        white = advantages.whitened(value, weight, std)
        expected = [(x - 3.25) / math.sqrt(variance) for x in (1.0, 4.0, 7.0)]
        assert white.flatten().tolist() == pytest.approx([*expected, 0.0])
    assert advantages.whitened(value, weight, "none") is value
    with pytest.raises(InputError, match="`advantage_std` must be .* but got 'mad'"):
        advantages.whitened(value, weight, "mad")


def test_a_random_subset_is_drawn_without_replacement():
    count, prompt = torch.tensor([6, 2, 1, 7]), torch.tensor([0, 0, 1, 1])
    drawn = [
        advantages.random_subset(count, prompt, 4, torch.Generator().manual_seed(seed))
        for seed in range(400)
    ]
    for some in drawn:
        assert bool((some <= count).all())
        assert some[:2].sum() == some[2:].sum() == 4
    mean = torch.stack(drawn).double().mean(0)
    # Hypergeometric: half of each; its variance is 0.43 at most, so 0.03 per mean of 400.
    assert mean.tolist() == pytest.approx([3.0, 1.0, 0.5, 3.5], abs=0.13)
    again = advantages.random_subset(count, prompt, 9, torch.Generator().manual_seed(0))
    assert again.tolist() == count.tolist()


def test_kl_estimates_by_hand():
    logprob = torch.tensor([[math.log(0.5), math.log(0.2)]], requires_grad=True)
    reference = torch.tensor([[math.log(0.25), math.log(0.4)]])
    k1 = objectives.kl_estimate(logprob, reference, "k1")
    assert k1[0].tolist() == pytest.approx([math.log(2), -math.log(2)])
    k3 = objectives.kl_estimate(logprob, reference, "k3")
    # d = log(ref / pi): 0.5 - log 0.5 - 1 and 2 - log 2 - 1.
    assert k3[0].tolist() == pytest.approx([math.log(2) - 0.5, 1 - math.log(2)])
    k3.sum().backward()
    assert logprob.grad[0].tolist() == pytest.approx([1 - 0.5, 1 - 2.0])  # 1 - exp(d)
    far = objectives.kl_estimate(torch.tensor([[-40.0]]), torch.tensor([[0.0]]), "k3")
    assert far.item() == 10.0
    with pytest.raises(InputError, match="`kl_estimator` must be k1 or k3, but got 'k2'"):
        objectives.kl_estimate(logprob, reference, "k2")


def test_token_entropy_by_hand():
    probability = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    entropy = objectives.token_entropy(probability, probability.log())
    assert entropy.tolist() == pytest.approx([1.5 * math.log(2), 0.0])


def one_token_batch():
    """One prompt, tokens 0 and 3 drawn 3 times and once, right and wrong."""
    samples = Samples(
        token_NT=torch.tensor([[0], [3]]), length_N=torch.ones(2, dtype=torch.long),
        prompt_N=torch.zeros(2, dtype=torch.long), count_N=torch.tensor([3, 1]),
        logprob_NT=torch.zeros(2, 1), clipped_N=torch.ones(2, dtype=torch.bool), prompts=1,
        entropy=0.0,
    )  # fmt: skip
    return samples, torch.tensor([1.0, 0.0])


def test_a_prompt_without_a_response_counts_none():
    samples, _ = one_token_batch()
    assert replace(samples, prompts=3).distinct_P.tolist() == [2, 0, 0]


@pytest.mark.long
def test_the_gradient_of_an_update_by_hand():
    """d loss / d logits = -1/4 sum over rollouts of A (onehot - pi), pulled through the head."""
    model = tiny_model()
    prompt, length = torch.tensor([[4, 7, 2]]), torch.tensor([3])
    samples, reward = one_token_batch()
    recipe = Recipe(temperature=1.0)
    accumulate(model, None, make_experience(prompt, length, samples, reward, recipe), recipe)
    got = model.head.grad.clone()
    with torch.no_grad():
        hidden, _ = model.prompt(prompt)
        pi = torch.softmax(model.logits(hidden[0, -1]), -1)
        last = torch.nn.functional.rms_norm(hidden[0, -1], (16,), model.norm, 1e-6)
    # Rewards 1, 1, 1, 0: mean 3/4, sample variance 1/4, so A = 0.5 and -1.5.
    right, wrong = 0.25 / (0.5 + 1e-6), -0.75 / (0.5 + 1e-6)
    onehot = torch.zeros(2, model.config.vocab_size)
    onehot[0, 0] = onehot[1, 3] = 1
    logits_gradient = -(3 * right * (onehot[0] - pi) + wrong * (onehot[1] - pi)) / 4
    torch.testing.assert_close(got, torch.outer(logits_gradient, last), atol=1e-6, rtol=1e-4)


def test_kl_and_entropy_terms_by_finite_differences():
    base = tiny_model(seed=3)
    prompt, length = torch.tensor([[4, 7, 2]]), torch.tensor([3])
    samples, reward = one_token_batch()
    recipe = Recipe(temperature=1.0, kl_coef=0.3, entropy_coef=0.2)
    model = tiny_model()
    experience = make_experience(prompt, length, samples, reward, recipe)
    report = accumulate(model, base, experience, recipe)

    def loss_at(value):
        other = tiny_model()
        with torch.no_grad():
            other.head[3, 5] = value
            hidden, _ = other.prompt(prompt)
            logprob = torch.log_softmax(other.logits(hidden[0, -1]), -1)
            reference = torch.log_softmax(base(prompt)[0, -1], -1)
            chosen, fixed = logprob[[0, 3]], reference[[0, 3]]
            advantage = torch.tensor([0.5, -1.5])
            weight = torch.tensor([0.75, 0.25])
            d = fixed - chosen
            kl = (weight * (d.exp() - d - 1)).sum()
            entropy = -(logprob.exp() * logprob).sum()
            return (-(weight * advantage * chosen).sum() + 0.3 * kl - 0.2 * entropy).item()

    at = model.head[3, 5].item()
    slope = (loss_at(at + 1e-2) - loss_at(at - 1e-2)) / 2e-2
    assert model.head.grad[3, 5].item() == pytest.approx(slope, rel=0.02)
    assert report.means["kl"] > 0


def test_learning_rate_rules():
    recipe = Recipe(learning_rate=1e-3)
    assert recipe.learning_rate_at(4096) == pytest.approx(2e-3)
    linear = recipe.replace(learning_rate_scaling="linear")
    assert linear.learning_rate_at(4096) == pytest.approx(4e-3)
    assert recipe.replace(learning_rate_scaling="constant").learning_rate_at(4096) == 1e-3
    assert [warmed_up(2.0, step, 10) for step in (1, 5, 10, 500)] == [0.2, 1.0, 2.0, 2.0]
    assert warmed_up(2.0, 1, 0) == 2.0


@pytest.mark.long
def test_the_optimizer_equals_that_of_torch(tmp_path):
    ours, theirs = tiny_model(), tiny_model()
    mine = FlatAdamW(ours, weight_decay=0.1, max_grad_norm=0.5)
    # Norms apart, as in transformers' trainers.
    groups = [{"params": [p for p in theirs.parameters() if (p.ndim > 1) == decays],
               "weight_decay": 0.1 * decays} for decays in (True, False)]  # fmt: skip
    reference = torch.optim.AdamW(groups, lr=1.0)
    token = torch.tensor([[1, 2, 3, 4, 5]])
    for step in range(1, 6):
        for group in reference.param_groups:
            group["lr"] = 0.01 * step
        ours(token).square().sum().backward()
        theirs(token).square().sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        reference.zero_grad()
        assert mine.step(0.01 * step) == pytest.approx(norm.item(), rel=1e-4)
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)
    mine.save(tmp_path / "state.safetensors")
    again = FlatAdamW(tiny_model(seed=9), weight_decay=0.1, max_grad_norm=0.5)
    again.load(tmp_path / "state.safetensors")
    assert again.steps == 5
    for name, value in mine.state().items():
        assert torch.equal(again.state()[name], value)
