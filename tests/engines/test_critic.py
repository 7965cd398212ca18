"""PPO's value model beside the formulas, one rollout at a time; what its updates are given.

As in verl 0.9.1: `compute_gae_advantage_return`, `masked_whiten`, `compute_value_loss`.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import LocalEngine  # noqa: E402
from isocompute.engines.local.critic import Critic  # noqa: E402
from isocompute.engines.local.experience import make_experience  # noqa: E402
from isocompute.engines.local.folders import load_model, save_model  # noqa: E402
from isocompute.engines.local.sampling import sample  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.study import RunSpec  # noqa: E402
from local_tools import WORLD, tiny_folder, tiny_model  # noqa: E402
from sinks import ListSink  # noqa: E402

PROMPTS = torch.tensor([[4, 7, 2, 9], [3, 5, 0, 0], [8, 1, 6, 0]])
LENGTHS = torch.tensor([4, 2, 3])
GAMMA, LAMBDA, CLIP = 0.9, 0.7, 0.02


def values_of(model, prompt, response):
    """Of the state in which each token of the response is chosen (T,)."""
    return model(torch.cat([prompt, response])[None])[0, len(prompt) - 1 : -1, 0]


@pytest.mark.heavy
@pytest.mark.parametrize("std", ["sample", "population", "none"])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_values_advantages_and_gradient(tmp_path, std, aggregation):
    save_model(tiny_model(seed=0, vocab_size=11, eos_token_id=(2, 5)), tmp_path)
    recipe = Recipe(
        objective="ppo", gae_gamma=GAMMA, gae_lambda=LAMBDA, value_clip=CLIP, advantage_std=std,
        aggregation=aggregation, updates_per_batch=2, temperature=0.6,
    )  # fmt: skip
    drawn = sample(
        load_model(tmp_path), PROMPTS, LENGTHS, 24, max_new_tokens=6,
        generator=torch.Generator().manual_seed(5), temperature=0.6,
    )  # fmt: skip
    reward_N = (drawn.token_NT[:, 0] % 2 == 0).float()
    assert len(set(drawn.length_N.tolist())) > 2
    assert int(drawn.count_N.max()) > 1
    critic = Critic(tmp_path, recipe, torch.device("cpu"), "float32")
    head = 0.3 * torch.randn(critic.model.head.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        critic.model.head.copy_(head)
    made = make_experience(PROMPTS, LENGTHS, drawn, reward_N, recipe)
    made = replace(made, **critic.judge(made, reward_N))

    before = copy.deepcopy(critic.model).double()
    rows = []  # of every rollout: its row, prompt, response
    for i in range(len(drawn.length_N)):
        p = int(drawn.prompt_N[i])
        response = drawn.token_NT[i, : int(drawn.length_N[i])]
        rows += [(i, PROMPTS[p, : LENGTHS[p]], response)] * int(drawn.count_N[i])
    advantages, returns, olds = [], [], []
    for i, prompt, response in rows:
        with torch.no_grad():
            old_T = values_of(before, prompt, response)
        running, found = 0.0, []
        for t in reversed(range(len(response))):
            last = t == len(response) - 1
            after = 0.0 if last else float(old_T[t + 1])
            delta = (float(reward_N[i]) if last else 0.0) + GAMMA * after - float(old_T[t])
            running = delta + GAMMA * LAMBDA * running
            found.insert(0, running)
        olds.append(old_T)
        advantages.append(torch.tensor(found, dtype=torch.float64))
        returns.append(advantages[-1] + old_T)
    every = torch.cat(advantages)
    if std != "none":
        spread = (every.var(correction=std == "sample") + 1e-8).sqrt()
        advantages = [(a - every.mean()) / spread for a in advantages]
    for (i, _, response), old_T, advantage_T, return_T in zip(
        rows, olds, advantages, returns, strict=True
    ):
        t = len(response)
        for field, expected in (
            ("value_NT", old_T), ("advantage_NT", advantage_T), ("return_NT", return_T)
        ):  # fmt: skip
            torch.testing.assert_close(
                getattr(made, field)[i, :t].double(), expected, atol=2e-5, rtol=1e-4
            )

    with torch.no_grad():  # an update later: some values have left the bound
        critic.model.head.mul_(1.3)
    after = copy.deepcopy(critic.model).double()
    total, tokens = torch.zeros((), dtype=torch.float64), sum(len(r) for *_, r in rows)
    outside = 0
    for (_, prompt, response), old_T, return_T in zip(rows, olds, returns, strict=True):
        value_T = values_of(after, prompt, response)
        bounded_T = torch.minimum(torch.maximum(value_T, old_T - CLIP), old_T + CLIP)
        outside += int((bounded_T != value_T).sum())
        error_T = 0.5 * torch.maximum((value_T - return_T) ** 2, (bounded_T - return_T) ** 2)
        if aggregation == "token-mean":
            total = total + error_T.sum() / tokens
        else:
            total = total + error_T.mean() / len(rows)
    total.backward()
    assert 0 < outside < tokens
    critic.optimizer.grad.zero_()
    loss = critic.accumulate(made, rows_per_chunk=7)
    assert loss == pytest.approx(float(total.detach()), rel=1e-4)
    expected = dict(after.named_parameters())
    for name, parameter in critic.model.named_parameters():
        if expected[name].grad is not None:
            torch.testing.assert_close(
                parameter.grad.double(), expected[name].grad, atol=1e-5, rtol=1e-3
            )


@pytest.mark.parametrize("split", ["mini-batch", "epoch"])
def test_what_each_update_of_a_batch_is_given(tmp_path, monkeypatch, split):
    """Shares of the problems, each once; rates warmed up and scaled, the critic's too."""
    seen = []
    update, losses = Critic.update, []

    def recorded(self, experience, rate, **more):
        seen.append((experience.prompts, experience.prompt_PS.clone(), rate))
        losses.append(update(self, experience, rate, **more))
        return losses[-1]

    monkeypatch.setattr(Critic, "update", recorded)
    spec = RunSpec(
        engine="local",
        allocation=Allocation(problems_per_batch=6, rollouts_per_problem=4, steps=5),
        recipe=Recipe(
            objective="ppo", updates_per_batch=3, update_split=split, learning_rate=1e-3,
            value_learning_rate=4e-3, warmup_steps=4,
        ),
        train=WORLD.problems("train", 10, seed=1),
        validation={"val": WORLD.problems("val", 4, seed=2)}, seed=0,
        engine_options={"model": str(tiny_folder(tmp_path / "tiny"))},
    )  # fmt: skip
    sink = ListSink(tmp_path / "sink")
    LocalEngine().run(spec, None, sink)
    assert len(seen) == 5 * 3
    data = engine_prompts(tmp_path / "tiny", spec)
    for step, record in enumerate(sink.steps, 1):
        parts = seen[3 * (step - 1) : 3 * step]
        whole = data[torch.from_numpy(record.problem_Q)]
        if split == "epoch":
            assert all(torch.equal(prompt, whole) for _, prompt, _ in parts)
        else:
            assert [prompts for prompts, *_ in parts] == [2, 2, 2]
            assert torch.equal(torch.cat([prompt for _, prompt, _ in parts]), whole)
        rate = 4e-3 * (24 / 1024) ** 0.5 * min(1.0, step / 4)
        assert [r for *_, r in parts] == pytest.approx([rate] * 3)
        assert record.health["learning_rate"] == pytest.approx(rate / 4)
        mean = sum(losses[3 * (step - 1) : 3 * step]) / 3
        assert record.health["value_loss"] == pytest.approx(mean)


def engine_prompts(folder, spec):
    from isocompute.engines.local.policy import Policy

    return Policy(folder).tokenize(spec.train).token_PS
