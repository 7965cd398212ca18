"""Sampling and updates in fixed shapes, held to those that share prefixes (`sampling`, `gradient`).

Shape legend: R runs, P prompts, N rows (rollouts), T response tokens.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402 (torch is optional)

from isocompute.engines.local import fixed  # noqa: E402
from isocompute.engines.local.counters import device_key, philox, uniforms  # noqa: E402
from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.gradient import accumulate  # noqa: E402
from isocompute.engines.local.optimizer import FlatAdamW  # noqa: E402
from isocompute.engines.local.sampling import Samples, sample  # noqa: E402
from isocompute.engines.local.stacked import StackedTransformer, to_the_right  # noqa: E402
from isocompute.engines.streams import Use  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from local_tools import tiny_model  # noqa: E402

CPU = torch.device("cpu")
PROMPT, LENGTH = torch.tensor([[1, 5, 2, 4], [3, 3, 1, 0]]), torch.tensor([4, 3])
LIMIT = 4


def small(**changes):
    return tiny_model(vocab_size=6, eos_token_id=2, **changes)


def stacked(models):
    out = StackedTransformer(models[0], len(models), CPU)
    for row, model in zip(out.flat, models, strict=True):
        row.copy_(StackedTransformer(model, 1, CPU).flat[0])
    return out


def uniform(n, seed=0, prompts=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(prompts, n, LIMIT, generator=generator, dtype=torch.float64)


def drawn(model, uniform_RPNT, *, prompt=PROMPT, length=LENGTH, slots=4, rows=10_000, **options):
    """Responses (R, P * N) of rows in the order of their prompts."""
    runs, prompts, n, _ = uniform_RPNT.shape
    place = torch.arange(prompts).repeat_interleave(n).expand(runs, -1)
    how = fixed.Sampling(
        limit=LIMIT, rows=rows, **{"temperature": 1.0, "top_p": 1.0, **options}
    )
    return place, fixed.draw(
        model, model.views(model.flat), to_the_right(prompt, length, slots).expand(runs, -1, -1),
        (slots - length).expand(runs, -1), place, uniform_RPNT.flatten(1, 2), how,
    )  # fmt: skip


# ---- random numbers ----


@pytest.mark.parametrize(("counter", "key", "known"), [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
])  # fmt: skip
def test_philox_gives_the_known_answers(counter, key, known):
    """Of the authors' own test vectors (Random123, kat_vectors)."""
    found = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert [f"{int(word):08x}" for word in found] == known.split()


def test_numbers_depend_on_their_key_and_place_and_on_nothing_else():
    key = torch.tensor(device_key(3, Use.TRAINING, 7))
    problem, place = torch.arange(50)[:, None].expand(-1, 40), torch.arange(40).expand(50, -1)
    whole = uniforms(key, problem, place, 5)
    assert whole.dtype == torch.float64
    assert 0 <= float(whole.min()) < 0.001 < 0.999 < float(whole.max()) < 1
    assert whole.unique().numel() == whole.numel()
    assert float(whole.mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / whole.numel()) ** 0.5)
    assert torch.equal(uniforms(key, problem[9:11, 3:], place[9:11, 3:], 5), whole[9:11, 3:])
    assert torch.equal(uniforms(key, problem, place, 3), whole[..., :3])
    others = [device_key(4, Use.TRAINING, 7), device_key(3, Use.EVALUATION, 7),
              device_key(3, Use.TRAINING, 8), device_key(3, Use.TRAINING, 7, 1),
              device_key(3, Use.TRAINING, 7, 0, 1)]  # fmt: skip
    for other in others:
        again = uniforms(torch.tensor(other), problem, place, 5)
        assert abs(float(np.corrcoef(whole.flatten(), again.flatten())[0, 1])) < 0.05
    assert len({device_key(3, Use.TRAINING, 7), *others}) == 6


@pytest.mark.gpu
def test_a_gpu_draws_the_same_bits():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    given = torch.tensor(device_key(3, Use.TRAINING, 7)), torch.arange(999), torch.arange(999)
    assert torch.equal(uniforms(*given, 7), uniforms(*(x.cuda() for x in given), 7).cpu())


# ---- sampling ----


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_p": 0.8}])
@pytest.mark.parametrize("slots", [4, 6])
def test_fixed_shapes_draw_what_the_tree_draws(options, slots):
    """The same uniform numbers: equal responses, log-probabilities equal to rounding."""
    model, n = small(), 300
    numbers = uniform(n, seed=7)
    tree = sample(
        model, PROMPT, LENGTH, n, max_new_tokens=LIMIT,
        generator=torch.Generator().manual_seed(7), **options,
    )  # fmt: skip
    for rows in (10_000, 7):  # rows of one pass
        place, mine = drawn(stacked([model]), numbers[None], slots=slots, rows=rows, **options)
        keys = list(zip(place[0].tolist(), map(tuple, mine.token_RNT[0].tolist()), strict=True))
        counts = {}
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        known = list(zip(tree.prompt_N.tolist(), map(tuple, tree.token_NT.tolist()), strict=True))
        assert counts == dict(zip(known, tree.count_N.tolist(), strict=True))
        index = torch.tensor([known.index(key) for key in keys])
        torch.testing.assert_close(mine.logprob_RNT[0], tree.logprob_NT[index], atol=5e-6, rtol=0)
        assert torch.equal(mine.length_RN[0], tree.length_N[index])
        assert torch.equal(mine.ended_RN[0], ~tree.clipped_N[index])
        tokens = int(mine.length_RN.sum())
        assert tokens == tree.tokens
        assert float(mine.entropy_R[0]) / tokens == pytest.approx(tree.entropy, rel=1e-5)


@pytest.mark.parametrize("changes", [
    {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True},
    {"num_key_value_heads": 4, "num_hidden_layers": 1},
])  # fmt: skip
def test_every_architecture_that_loads_is_the_same_in_fixed_shapes(changes):
    model = small(**changes)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) / 4)
    place, mine = drawn(stacked([model]), uniform(20)[None])
    for i in range(40):
        row, length = PROMPT[place[0, i], : LENGTH[place[0, i]]], int(mine.length_RN[0, i])
        whole = torch.cat([row, mine.token_RNT[0, i, :length]])
        with torch.no_grad():
            logprob = torch.log_softmax(model(whole[None])[0, len(row) - 1 : -1], -1)
        said = logprob.gather(-1, whole[len(row) :, None])[:, 0]
        torch.testing.assert_close(mine.logprob_RNT[0, i, :length], said, atol=5e-6, rtol=0)


def test_runs_that_are_drawn_together_draw_what_each_draws_alone():
    models = [small(seed=s) for s in (0, 1, 2)]
    numbers = torch.stack([uniform(50, seed=s) for s in (3, 4, 5)])
    _, together = drawn(stacked(models), numbers)
    for i, model in enumerate(models):
        _, alone = drawn(stacked([model]), numbers[i : i + 1])
        assert torch.equal(together.token_RNT[i], alone.token_RNT[0])
        torch.testing.assert_close(together.logprob_RNT[i], alone.logprob_RNT[0], atol=1e-6, rtol=0)


# ---- updates ----


def as_samples(place, mine, run=0):
    """The rows of a run, each drawn once."""
    ones = torch.ones_like(mine.length_RN[run])
    return Samples(
        token_NT=mine.token_RNT[run], length_N=mine.length_RN[run], prompt_N=place[run],
        count_N=ones, logprob_NT=mine.logprob_RNT[run], clipped_N=~mine.ended_RN[run], prompts=2,
        entropy=0.0,
    )  # fmt: skip


def pushes_of(experience, recipe):
    from isocompute.engines.local.gradient import active_rows, row_weights

    weight, regular = row_weights(experience, recipe)
    active = active_rows(experience, recipe, weight, regular)
    return fixed.Pushes(
        advantage_RN=experience.advantage_NT.T, weight_RN=weight[None], regular_RN=regular[None],
        counted_RN=(active * experience.count_N)[None].float(),
        kl_coef_R=torch.tensor([recipe.kl_coef]),
        entropy_coef_R=torch.tensor([recipe.entropy_coef]),
        regularised=recipe.kl_coef > 0 or recipe.entropy_coef > 0,
    )  # fmt: skip


RECIPES = [
    {},
    {"advantage_std": "none", "aggregation": "seq-mean-token-sum"},
    {"kl_coef": 0.1, "entropy_coef": 0.05, "aggregation": "seq-mean-token-mean"},
    {"kl_coef": 0.1, "zero_variance_filter": "regularizers"},
    {"entropy_coef": 0.1, "allow_entropy_without_kl": True, "zero_variance_filter": "loss"},
]


@pytest.mark.parametrize("change", RECIPES)
def test_the_gradient_and_the_update_are_those_of_shared_prefixes(change):
    model, base = small(), small(seed=5)
    recipe = Recipe(temperature=0.8, max_grad_norm=0.05, weight_decay=0.3, **change)
    mine = stacked([model])
    place, found = drawn(mine, uniform(64)[None], temperature=0.8)
    samples = as_samples(place, found)
    reward = (samples.token_NT[:, 0] % 3 == 1).float() * (samples.prompt_N == 0)
    made = make_experience(PROMPT, LENGTH, samples, reward, recipe)
    optimizer = FlatAdamW(model, weight_decay=0.3, max_grad_norm=0.05)
    report = accumulate(model, base, made, recipe)
    for rows in (10_000, 9):
        grad, sums = fixed.gradients(
            mine, stacked([base]), to_the_right(PROMPT, LENGTH, 4)[None], 4 - LENGTH[None], place,
            found.token_RNT, found.length_RN, pushes_of(made, recipe), 0.8, rows,
        )  # fmt: skip
        assert float(grad.abs().max()) > 1e-3
        torch.testing.assert_close(grad[0], optimizer.grad, atol=1e-6, rtol=1e-4)
        loss, tokens, kl = sums[0].tolist()
        assert loss == pytest.approx(report.loss, abs=1e-6)
        assert tokens == report.tokens
        if recipe.kl_coef > 0:
            assert kl / tokens == pytest.approx(report.means["kl"], rel=1e-4)
    adam = fixed.StackedAdamW(mine, torch.tensor([0.3]), torch.tensor([0.05]))
    for step, rate in ((1, 1e-2), (2, 2e-2)):
        grad = optimizer.grad.clone()[None] * step
        optimizer.grad.mul_(step)
        kept = optimizer.grad.clone()
        norm = optimizer.step(rate)
        corrections = [torch.tensor([1 - beta**step]) for beta in (0.9, 0.999)]
        assert float(adam.step(grad, torch.tensor([rate]), *corrections)) == pytest.approx(norm)
        torch.testing.assert_close(mine.flat[0], optimizer.flat, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(adam.second[0], optimizer.second, atol=1e-9, rtol=1e-4)
        optimizer.grad.copy_(kept)
