"""What weight decay acts on, by hand and beside torch, and a KL term that would do nothing."""

import pytest

torch = pytest.importorskip("torch")

from isocompute.engines.local.optimizer import FlatAdamW  # noqa: E402 (torch is optional)
from isocompute.errors import InputError  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from local_tools import tiny_model  # noqa: E402


def named(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("decay_vectors", [False, True])
def test_decay_shrinks_matrices_and_leaves_norms(decay_vectors):
    """One update without a gradient: theta (1 - 0.1 * 0.5) where decay acts, else theta."""
    model = tiny_model()
    optimizer = FlatAdamW(
        model, weight_decay=0.5, max_grad_norm=1.0, decay_vectors=decay_vectors
    )
    before = named(model)
    optimizer.step(0.1)
    after = named(model)
    vectors = [name for name, value in before.items() if value.ndim < 2]
    assert vectors
    assert all("norm" in name for name in vectors)
    for name, value in before.items():
        factor = 0.95 if value.ndim > 1 or decay_vectors else 1.0
        assert torch.equal(after[name], value * factor) or torch.allclose(
            after[name], value * factor, rtol=1e-6, atol=0
        ), name
        assert (factor == 1.0) == torch.equal(after[name], value), name


def test_k1_with_a_coefficient_is_refused():
    """The expected gradient of mean(log pi - log pi_ref) over samples of pi is 0."""
    logit = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64), 0)
    logprob = torch.log_softmax(logit, 0)
    expected = (logprob.exp().detach() * (logprob - reference)).sum()
    (gradient,) = torch.autograd.grad(expected, logit)
    assert gradient.abs().max() < 1e-15
    with pytest.raises(InputError, match=r"kl_coef=0.1 \(the gradient of k1 is 0 on"):
        Recipe(kl_estimator="k1", kl_coef=0.1)
    assert Recipe(kl_estimator="k1").kl_coef == 0
    assert Recipe(kl_coef=0.1).kl_estimator == "k3"
