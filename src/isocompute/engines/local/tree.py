"""Prefix trees of given responses: what several rows share is computed once.

Shape legend: P prompts, N rows, T tokens of a row, V vocabulary, M nodes (distinct prefixes of a
prompt's responses), or N (T - 1) places where there is no tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isocompute.engines.local.interface import is_end
from isocompute.engines.local.kernels import picked, shared_logprob

# Above this share of nodes among the places of all rows, gathering costs more than it saves.
WORTH_SHARING = 0.85


@dataclass(frozen=True)
class PrefixTree:
    """Nodes in the order of their depth.

    Args:
        node_NT: the node at each place of each row; 0 where the row has ended.
        place_M: where a node first stands, as `row * T + t`.
    """

    node_NT: Tensor
    place_M: Tensor

    def spread(self, value_MX: Tensor) -> Tensor:
        """(M, ...) -> (N, T, ...)."""
        flat = value_MX.index_select(0, self.node_NT.view(-1))
        return flat.view(*self.node_NT.shape, *value_MX.shape[1:])

    def gather(self, value_NTX: Tensor) -> Tensor:
        """(N, T, ...) -> (M, ...): each node as its first row has it."""
        return picked(value_NTX.flatten(0, 1), self.place_M)


def prefix_tree(
    token_NT: Tensor, prompt_N: Tensor, vocab_size: int, end_tokens: tuple[int, ...] = ()
) -> PrefixTree | None:
    """The tree of rows of tokens; None where sharing would not pay.

    Places after an end-of-text token belong to no node.
    """
    n, t = token_NT.shape
    alive_NT = torch.ones_like(token_NT, dtype=torch.bool)
    if end_tokens:
        alive_NT[:, 1:] = is_end(token_NT[:, :-1], end_tokens).cumsum(1) == 0
    node_NT = torch.zeros_like(token_NT)
    found, at_N = 0, prompt_N
    for column in range(t):
        rows = alive_NT[:, column].nonzero().squeeze(-1)
        if not rows.numel():
            break
        key = at_N[rows] * vocab_size + token_NT[rows, column]
        distinct, inverse = torch.unique(key, return_inverse=True)
        at_N = at_N.index_copy(0, rows, inverse)
        node_NT[rows, column] = inverse + found
        found += distinct.numel()
        most = found
        if distinct.numel() == rows.numel():  # nothing is shared from here on
            most += int(alive_NT[:, column + 1 :].sum())
        if most > WORTH_SHARING * n * t:
            return None
    flat = torch.arange(n * t, device=token_NT.device)
    place_M = torch.full((found,), n * t, device=token_NT.device)
    alive = alive_NT.view(-1)
    place_M.scatter_reduce_(0, node_NT.view(-1)[alive], flat[alive], "amin")
    return PrefixTree(node_NT, place_M)


def node_logprobs(
    first_PV: Tensor,
    later_MV: Tensor | None,
    tree: PrefixTree | None,
    prompt_N: Tensor,
    token_NT: Tensor,
    *,
    entropies: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability (N, T) of tokens from the logits of what they follow.

    Args:
        first_PV: logits of the first tokens.
        later_MV: those of the later ones; None where T = 1.
        tree: of the rows without their last token; None: one node per place.
        prompt_N, token_NT: prompt and tokens of each row.
        entropies: whether the entropies (N, T) of the distributions are wanted too, in nats.
    """
    first_N, entropy_P = shared_logprob(first_PV, prompt_N, token_NT[:, 0], entropies=entropies)
    logprobs, found = [first_N[:, None]], []
    if entropies:
        found.append(entropy_P[prompt_N, None])
    if later_MV is not None:
        given_NT = token_NT[:, 1:]
        if tree is None:
            node = torch.arange(given_NT.numel(), device=token_NT.device)
        else:
            node = tree.node_NT.view(-1)
        later, entropy_M = shared_logprob(
            later_MV, node, given_NT.flatten(), entropies=entropies
        )
        logprobs.append(later.view(given_NT.shape))
        if entropies:
            found.append(entropy_M.index_select(0, node).view(given_NT.shape))
    return torch.cat(logprobs, 1), torch.cat(found, 1) if entropies else None
