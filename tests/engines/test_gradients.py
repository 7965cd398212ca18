"""Gradients beside a trainer's own formulas, written out one response at a time.

The reference knows nothing of counts, chunks, masks or padding: each rollout is one row of its own,
its loss is summed token by token in double precision, and autograd does the rest. Formulas as in
verl 0.9.1: `compute_grpo_outcome_advantage`, `compute_policy_loss_vanilla` and `_cispo`,
`kl_penalty_forward` (low_var_kl), `agg_loss`, `entropy_from_logits`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.gradient import accumulate, token_logprobs  # noqa: E402
from isocompute.engines.local.sampling import sample  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from local_tools import tiny_model  # noqa: E402

N, LIMIT, TEMPERATURE = 24, 6, 0.6
PROMPTS = torch.tensor([[4, 7, 2, 9], [3, 5, 0, 0], [8, 1, 6, 0]])
LENGTHS = torch.tensor([4, 2, 3])


def models():
    """Policy, old policy and base model: three of one family, the policy peaked."""
    policy = tiny_model(seed=0, vocab_size=11, eos_token_id=(2, 5))
    old = copy.deepcopy(policy)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        policy.head.mul_(3.0)
        old.head.mul_(3.0)
        for parameter in old.parameters():
            parameter.add_(0.08 * torch.randn(parameter.shape, generator=generator))
    return policy, old, tiny_model(seed=1, vocab_size=11, eos_token_id=(2, 5))


def drawn_by(old):
    return sample(
        old, PROMPTS, LENGTHS, N, max_new_tokens=LIMIT, temperature=TEMPERATURE,
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip


def rewards(drawn):
    """By the first token; all rollouts of the last prompt agree."""
    return ((drawn.token_NT[:, 0] % 2 == 0) & (drawn.prompt_N < 2)).float()


def rollouts_of(drawn, reward_N):
    """(prompt tokens, response tokens, prompt, reward, number among its rollouts' rows)."""
    rows = []
    for i in range(len(drawn.length_N)):
        p = int(drawn.prompt_N[i])
        prompt = PROMPTS[p, : LENGTHS[p]]
        response = drawn.token_NT[i, : int(drawn.length_N[i])]
        rows += [(prompt, response, p, float(reward_N[i]))] * int(drawn.count_N[i])
    return rows


def log_probabilities(model, prompt, response):
    """Of the response's tokens (T,), and the distributions they are of (T, V)."""
    logits = model(torch.cat([prompt, response])[None])[0]
    logprob_TV = torch.log_softmax(logits[len(prompt) - 1 : -1] / TEMPERATURE, -1)
    return logprob_TV[range(len(response)), response], logprob_TV


def advantages_of(rows, std):
    found = []
    for _, _, prompt, reward in rows:
        group = [r for _, _, p, r in rows if p == prompt]
        mean = sum(group) / len(group)
        square = sum((r - mean) ** 2 for r in group)
        if square == 0:
            found.append(0.0)
        elif std == "none":
            found.append(reward - mean)
        else:
            spread = math.sqrt(square / (len(group) - (std == "sample")))
            found.append((reward - mean) / (spread + 1e-6))
    return found


def reference_gradient(policy, old, base, drawn, reward_N, recipe, advantages=None):
    """Loss and gradient by name, one rollout at a time; an advantage may differ by token."""
    policy, old, base = (copy.deepcopy(m).double() for m in (policy, old, base))
    rows = rollouts_of(drawn, reward_N)
    advantages = advantages or advantages_of(rows, recipe.advantage_std)
    varies = {p: len({r for _, _, q, r in rows if q == p}) > 1 for p in range(3)}
    counted = [varies[row[2]] or recipe.zero_variance_filter != "loss" for row in rows]
    regular = [varies[row[2]] or recipe.zero_variance_filter == "none" for row in rows]
    total = torch.zeros((), dtype=torch.float64)
    for (prompt, response, _, _), advantage, count, reg in zip(
        rows, advantages, counted, regular, strict=True
    ):
        logprob_T, logprob_TV = log_probabilities(policy, prompt, response)
        with torch.no_grad():
            old_T = log_probabilities(old, prompt, response)[0]
            base_T = log_probabilities(base, prompt, response)[0]
        ratio_T = torch.exp(logprob_T - old_T)
        bounded_T = torch.clamp(ratio_T, 1 - recipe.clip_low, 1 + recipe.clip_high)
        if recipe.objective == "cispo":
            policy_T = -bounded_T.detach() * advantage * logprob_T
        else:
            policy_T = torch.maximum(-advantage * ratio_T, -advantage * bounded_T)
        d_T = torch.clamp(base_T - logprob_T, -20, 20)
        kl_T = torch.clamp(torch.exp(d_T) - d_T - 1, -10, 10)
        entropy_T = -(logprob_TV.exp() * logprob_TV).sum(-1)
        terms = (
            (policy_T, count, counted),
            (recipe.kl_coef * kl_T - recipe.entropy_coef * entropy_T, reg, regular),
        )
        for term_T, enters, all_of in terms:
            if not enters:
                continue
            if recipe.aggregation == "token-mean":
                size = sum(len(row[1]) for row, c in zip(rows, all_of, strict=True) if c)
                total = total + term_T.sum() / size
            elif recipe.aggregation == "seq-mean-token-sum":
                total = total + term_T.sum() / sum(all_of)
            else:
                total = total + term_T.mean() / sum(all_of)
    total.backward()
    return float(total.detach()), {
        name: p.grad for name, p in policy.named_parameters() if p.grad is not None
    }


BASE = {"clip_low": 0.1, "clip_high": 0.35, "temperature": TEMPERATURE, "updates_per_batch": 2}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kl_coef": 0.3, "entropy_coef": 0.2},
        {"kl_coef": 0.3},
        {"entropy_coef": 0.2, "allow_entropy_without_kl": True},
        {"objective": "cispo", "kl_coef": 0.3, "entropy_coef": 0.2},
        {"aggregation": "seq-mean-token-sum", "kl_coef": 0.3, "entropy_coef": 0.2},
        {"aggregation": "seq-mean-token-mean", "kl_coef": 0.3, "entropy_coef": 0.2},
        {"zero_variance_filter": "loss", "kl_coef": 0.3, "entropy_coef": 0.2},
        {"zero_variance_filter": "regularizers", "kl_coef": 0.3, "entropy_coef": 0.2},
        {"advantage_std": "population"},
        {"advantage_std": "none", "clip_low": 0.3, "clip_high": 0.05},
    ],
    ids=str,
)
def test_the_gradient_is_that_of_the_formulas(changes):
    recipe = Recipe(**{**BASE, **changes})
    policy, old, base = models()
    drawn = drawn_by(old)
    reward_N = rewards(drawn)
    # What makes the comparison worth something: lengths differ, responses repeat, clipping acts on
    # both sides.
    assert len(set(drawn.length_N.tolist())) > 2
    assert int(drawn.count_N.max()) > 1
    made = make_experience(PROMPTS, LENGTHS, drawn, reward_N, recipe)
    made = replace(made, old_NT=token_logprobs(old, made, TEMPERATURE))
    ratio_NT = (token_logprobs(policy, made, TEMPERATURE) - made.old_NT).exp()
    up = made.advantage_NT.expand_as(ratio_NT)[made.mask_NT]
    ratio = ratio_NT[made.mask_NT]
    assert ((ratio > 1 + recipe.clip_high) & (up > 0)).any()
    assert ((ratio < 1 - recipe.clip_low) & (up < 0)).any()
    policy.zero_grad()
    report = accumulate(policy, base, made, recipe, rows_per_chunk=7)
    loss, expected = reference_gradient(policy, old, base, drawn, reward_N, recipe)
    largest = max(float(g.abs().max()) for g in expected.values())
    assert largest > 1e-3
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(
            parameter.grad.double(), expected[name], atol=2e-6 * max(1, largest), rtol=2e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip
    if "zero_variance_filter" not in changes or not changes.get("kl_coef"):
        assert report.loss == pytest.approx(loss, abs=2e-5)


@pytest.mark.heavy
def test_advantages_that_differ_by_token():
    """As ppo has them; some are 0 at the first token, and count all the same."""
    recipe = Recipe(**BASE, objective="ppo")
    policy, old, base = models()
    drawn = drawn_by(old)
    reward_N = rewards(drawn)
    made = make_experience(PROMPTS, LENGTHS, drawn, reward_N, recipe)
    generator = torch.Generator().manual_seed(9)
    advantage_NT = torch.randn(made.token_NT.shape, generator=generator)
    advantage_NT[::2, 0] = 0.0
    made = replace(
        made, advantage_NT=advantage_NT, old_NT=token_logprobs(old, made, TEMPERATURE)
    )
    accumulate(policy, base, made, recipe, rows_per_chunk=7)
    each = [advantage_NT[i, : int(drawn.length_N[i])].double()
            for i in range(len(drawn.length_N)) for _ in range(int(drawn.count_N[i]))]  # fmt: skip
    _, expected = reference_gradient(policy, old, base, drawn, reward_N, recipe, each)
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(
            parameter.grad.double(), expected[name], atol=1e-5, rtol=2e-4
        )


@pytest.mark.heavy
def test_what_is_measured_is_that_of_the_formulas():
    """Means over all tokens of all rollouts; k3 of the base model and of the old policy."""
    recipe = Recipe(**BASE, kl_coef=0.3, entropy_coef=0.2)
    policy, old, base = models()
    drawn = drawn_by(old)
    reward_N = rewards(drawn)
    made = make_experience(PROMPTS, LENGTHS, drawn, reward_N, recipe)
    made = replace(made, old_NT=token_logprobs(old, made, TEMPERATURE))
    means = accumulate(policy, base, made, recipe).means
    found = {name: [] for name in ("kl", "ratio", "ratio_clipped_share", "kl_old")}
    rows = rollouts_of(drawn, reward_N)
    for (prompt, response, _, _), advantage in zip(
        rows, advantages_of(rows, "sample"), strict=True
    ):
        with torch.no_grad():
            now_T, old_T, base_T = (
                log_probabilities(m, prompt, response)[0].double() for m in (policy, old, base)
            )
        ratio_T = (now_T - old_T).exp()
        bounded_T = ratio_T.clamp(1 - recipe.clip_low, 1 + recipe.clip_high)
        # With verl's clamp of a token's value.
        found["kl"] += ((base_T - now_T).exp() - (base_T - now_T) - 1).clamp(max=10).tolist()
        found["ratio"] += ratio_T.tolist()
        found["ratio_clipped_share"] += (bounded_T * advantage < ratio_T * advantage).tolist()
        # From the old policy, which drew the tokens, to the new one.
        k3_T = (now_T - old_T).exp() - (now_T - old_T) - 1
        found["kl_old"] += k3_T.clamp(max=10).tolist()
    for name, values in found.items():
        assert means[name] == pytest.approx(sum(values) / len(values), rel=1e-3), name


@pytest.mark.heavy
def test_on_policy_the_gradient_is_that_of_reinforce():
    """One update per batch: the ratio is 1 and nothing is clipped, whatever the bounds."""
    recipe = Recipe(temperature=TEMPERATURE, kl_coef=0.3, entropy_coef=0.2)
    policy, _, base = models()
    drawn = drawn_by(policy)
    reward_N = rewards(drawn)
    made = make_experience(PROMPTS, LENGTHS, drawn, reward_N, recipe)
    report = accumulate(policy, base, made, recipe)
    loss, expected = reference_gradient(policy, policy, base, drawn, reward_N, recipe)
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(
            parameter.grad.double(), expected[name], atol=2e-6, rtol=2e-4
        )
    assert report.loss == pytest.approx(loss, abs=2e-5)
    assert set(report.means) >= {"kl"}
