"""A small decoder-only transformer whose weights load in Hugging Face `LlamaForCausalLM`.

Shape legend: P prompts, N responses (rows), T new tokens per row, M distinct prefixes,
S prompt tokens (padded to the longest), H hidden size, A query heads, K key/value heads,
E head size, I feed-forward size, V vocabulary, G slots per prompt.

What it does that a general implementation does not: a prompt is computed once however many
responses it has, the responses of one prompt read its keys and values in place (`Grouping`),
in sampling and in training alike, and what responses begin with in common is computed once
(`PrefixTree`).

Architecture (RMSNorm, rotary positions in the half-split layout, SwiGLU, grouped keys and
values): arXiv 2302.13971, 1910.07467, 2104.09864, 2002.05202, 2305.13245.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isocompute.engines.local.cache import PromptCache, ResponseCache
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import Decoder, PolicyModel, as_tokens, scaled
from isocompute.engines.local.kernels import gated_unit, rms_norm
from isocompute.engines.local.tree import PrefixTree, node_logprobs, prefix_tree
from isocompute.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a Llama-type model, under the names of its `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Each ends a response."""
        return as_tokens(self.eos_token_id)

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                "`num_attention_heads` must be a multiple of `num_key_value_heads`, but got "
                f"{self.num_attention_heads} and {self.num_key_value_heads}; change one of them."
            )
        if self.head_dim % 2:
            raise InputError(
                f"`head_dim` must be even for rotary positions, but got {self.head_dim}; "
                "choose an even number."
            )


class Layer(nn.Module):
    """Weights of one block; query, key and value, and gate and up, are fused."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads = config.num_attention_heads + 2 * config.num_key_value_heads
        size, hidden, wide = config.head_dim, config.hidden_size, config.intermediate_size

        def bias(wanted: bool, outputs: int) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(outputs)) if wanted else None

        self.input_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Parameter(torch.empty(heads * size, hidden))
        self.out = nn.Parameter(torch.empty(hidden, config.num_attention_heads * size))
        self.post_norm = nn.Parameter(torch.ones(hidden))
        self.gate_up = nn.Parameter(torch.empty(2 * wide, hidden))
        self.down = nn.Parameter(torch.empty(hidden, wide))
        self.qkv_bias = bias(config.attention_bias, heads * size)
        self.out_bias = bias(config.attention_bias, hidden)
        self.gate_up_bias = bias(config.mlp_bias, 2 * wide)
        self.down_bias = bias(config.mlp_bias, hidden)


class Transformer(PolicyModel):
    """Decoder-only transformer; see the module's docstring."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        self.head = (
            self.embed
            if config.tie_word_embeddings
            else nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        )
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, config.initializer_range, generator=generator)
        size = config.head_dim
        frequency = config.rope_theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angle = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None]
        angle = torch.cat([angle * frequency] * 2, dim=-1)
        sign = torch.cat([-torch.ones(size // 2), torch.ones(size // 2)])
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin() * sign, persistent=False)

    @property
    def sizes(self) -> ModelConfig:
        """Sizes of the model."""
        return self.config

    def blocks(self) -> Iterator[Layer]:
        """The layers, in order."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    # Blocks -----------------------------------------------------------------------------

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Rolling by half swaps the halves; the sign of the second term is in `sin`.
        return torch.addcmul(x * cos, x.roll(self.config.head_dim // 2, -1), sin)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.config.rms_norm_eps)

    def _qkv(
        self,
        layer: Layer,
        x_NTH: Tensor,
        cos: Tensor,
        sin: Tensor,
        tree: PrefixTree | None = None,
        words_NT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (N, A, T, E) and keys (N, K, T, E), and values (N, K, T, E).

        The first layer sees nothing but words, `words_NT`: where there are fewer in the
        vocabulary than places, its products are made once per word.
        """
        c = self.config
        a, k = c.num_attention_heads, c.num_key_value_heads
        by_word = words_NT is not None and words_NT.numel() > c.vocab_size
        fed = self.embed if by_word else x_NTH
        fused = F.linear(self._normed(fed, layer.input_norm), layer.qkv, layer.qkv_bias)
        if by_word:
            assert words_NT is not None
            # In float32: thousands of gradients are added up in a word's row.
            fused = F.embedding(words_NT, fused.float())
        elif tree is not None:
            fused = tree.spread(fused)
        rows, new = fused.shape[:2]
        heads = fused.view(rows, new, a + 2 * k, c.head_dim).transpose(1, 2)
        turning, value = heads.split_with_sizes([a + k, k], 1)
        query, key = self._rotate(turning, cos, sin).split_with_sizes([a, k], 1)
        return query, key, value

    def _finish(self, layer: Layer, x_NTH: Tensor, mixed_NTH: Tensor) -> Tensor:
        x = x_NTH + F.linear(mixed_NTH, layer.out, layer.out_bias)
        normed = self._normed(x, layer.post_norm)
        gate, up = layer.gate_up.chunk(2)
        gate_bias = up_bias = None
        if layer.gate_up_bias is not None:
            gate_bias, up_bias = layer.gate_up_bias.chunk(2)
        wide = gated_unit(F.linear(normed, gate, gate_bias), F.linear(normed, up, up_bias))
        return x + F.linear(wide, layer.down, layer.down_bias)

    def logits(self, hidden_NTH: Tensor) -> Tensor:
        """Final norm and head: (..., H) -> (..., V)."""
        return F.linear(self._normed(hidden_NTH, self.norm), self.head)

    # Passes -----------------------------------------------------------------------------

    def prompt(
        self, token_PS: Tensor, length_P: Tensor | None = None, *, whole: bool = True
    ) -> tuple[Tensor, PromptCache]:
        """Hidden states (P, S, H) of prompts padded on the right, and their cache.

        With `whole=False` the hidden states are those of the last tokens only, (P, 1, H): what
        a continuation needs. The last layer then computes nothing but keys and values elsewhere.
        """
        c = self.config
        p, s = token_PS.shape
        if length_P is None:
            length_P = torch.full((p,), s, device=token_PS.device)
        same = bool((length_P == s).all())
        mask = None
        if not same:
            slot_S = torch.arange(s, device=token_PS.device)
            mask = torch.zeros(p, s, device=token_PS.device)
            mask = mask.masked_fill(slot_S >= length_P[:, None], -math.inf)
        x = F.embedding(token_PS, self.embed)
        keys, values = [], []
        cos, sin = self.cos[:s], self.sin[:s]
        for i, layer in enumerate(self.blocks()):
            if whole or i < c.num_hidden_layers - 1:
                q, k, v = self._qkv(layer, x, cos, sin, None, None if i else token_PS)
                # Padding stands to the right, so that causality alone hides it from the prompt.
                mixed = self._attend(q, k, v, None)
            else:
                x, q, k, v = self._last_layer(layer, x, length_P)
                mixed = self._attend(q, k, v, None if mask is None else mask[:, None, None])
            x = self._finish(layer, x, mixed.transpose(1, 2).flatten(2))
            keys.append(k.transpose(2, 3).contiguous())
            values.append(v.contiguous())
        return x, PromptCache(keys, values, length_P, mask)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention (N, A, T, E) of queries among their own sequence's keys and values."""
        repeat = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        causal = mask is None and q.shape[2] > 1
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    def _last_layer(
        self, layer: Layer, x_PSH: Tensor, length_P: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Input (P, 1, H) and queries of the last tokens; keys and values of all."""
        c = self.config
        p, s = x_PSH.shape[:2]
        a, k, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        sizes = [a * size, 2 * k * size]
        to_q, to_kv = torch.split(layer.qkv, sizes)
        q_bias = kv_bias = None
        if layer.qkv_bias is not None:
            q_bias, kv_bias = torch.split(layer.qkv_bias, sizes)
        normed = self._normed(x_PSH, layer.input_norm)
        fused = F.linear(normed, to_kv, kv_bias).view(p, s, 2 * k, size).transpose(1, 2)
        key, value = torch.split(fused, [k, k], dim=1)
        key = self._rotate(key, self.cos[:s], self.sin[:s])
        row, last = torch.arange(p, device=x_PSH.device), length_P - 1
        query = F.linear(normed[row, last], to_q, q_bias).view(p, a, 1, size)
        turned = self._rotate(query, self.cos[last, None, None], self.sin[last, None, None])
        return x_PSH[row, last, None], turned, key, value

    def respond(
        self,
        token_NT: Tensor,
        prompts: PromptCache,
        groups: Grouping,
        cache: ResponseCache | None = None,
        tree: PrefixTree | None = None,
    ) -> Tensor:
        """Hidden states (N, T, H) of response tokens that follow the prompts.

        With a cache, T must be 1: the token is appended to it. Without one, the T tokens are
        whole responses and attend causally to each other; with their tree, every distinct
        prefix is computed once but for its attention, and the states are those of nodes, (M, H).
        """
        c = self.config
        rows, new = token_NT.shape
        start = 0 if cache is None else cache.length
        k_heads, repeat, size = (
            c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads, c.head_dim
        )
        scale = size**-0.5
        causal = None
        if cache is None and new > 1:
            causal = torch.full((new, new), -math.inf, device=token_NT.device).triu(1)
        if prompts.mask_PS is None:
            first = prompts.key_LPKES[0].shape[-1] + start
            cos, sin = self.cos[first : first + new], self.sin[first : first + new]
        else:
            offset_T = torch.arange(start, start + new, device=token_NT.device)
            position = prompts.length_P[groups.prompt_N, None] + offset_T
            cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        x = F.embedding(token_NT if tree is None else tree.gather(token_NT), self.embed)
        for i, layer in enumerate(self.blocks()):
            q, k, v = self._qkv(layer, x, cos, sin, tree, None if i else token_NT)
            k = k.transpose(2, 3)
            if cache is not None:
                k, v = cache.append(i, k, v)
            # (N, K, R, T, E): R queries share a key/value head.
            q = (q * scale).reshape(rows, k_heads, repeat * new, size)
            to_prompt = groups.product(q, prompts.key_LPKES[i])
            if prompts.mask_PS is not None:
                to_prompt = to_prompt + prompts.mask_PS[groups.prompt_N, None, None]
            s = to_prompt.shape[-1]
            to_self = torch.matmul(q, k)
            if causal is not None:
                to_self = (to_self.view(rows, k_heads, repeat, new, -1) + causal).flatten(2, 3)
            weight = torch.softmax(torch.cat([to_prompt, to_self], dim=-1), dim=-1)
            on_prompt, on_self = weight.split_with_sizes([s, weight.shape[-1] - s], -1)
            mixed = groups.product(on_prompt, prompts.value_LPKSE[i])
            mixed = mixed + torch.matmul(on_self, v)
            mixed = mixed.reshape(rows, k_heads * repeat, new, size).transpose(1, 2)
            mixed = mixed.reshape(rows, new, -1)
            x = self._finish(layer, x, mixed if tree is None else tree.gather(mixed))
        if cache is not None:
            cache.length += 1
        return x

    def response_cache(self, rows: int, tokens: int) -> ResponseCache:
        """Room for the keys and values of so many rows of so many tokens."""
        c = self.config
        return ResponseCache(
            c.num_hidden_layers, c.num_key_value_heads, c.head_dim, rows, tokens, self.embed
        )

    def decoder(self, prompt_PS: Tensor, length_P: Tensor, rows: int, limit: int) -> Decoder:
        """Begin to sample, with a cache of keys and values."""
        return _TransformerDecoder(self, prompt_PS, length_P, rows, limit)

    def response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> Tensor:
        """Logits (N, T, V) of every token of given responses; each prompt is computed once."""
        first_PV, later, tree = self._response_logits(prompt_PS, length_P, token_NT, groups)
        first = first_PV[groups.prompt_N, None]
        if later is None:
            return first
        return torch.cat([first, later if tree is None else tree.spread(later)], 1)

    def _response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> tuple[Tensor, Tensor | None, PrefixTree | None]:
        """Logits of the first tokens (P, V), and of the later ones.

        The later ones are those of the tree's nodes (M, V); where there is none, of every place
        (N, T - 1, V).
        """
        hidden, cache = self.prompt(prompt_PS, length_P, whole=False)
        first_PV = self.logits(hidden[:, 0])
        if token_NT.shape[1] == 1:
            return first_PV, None, None
        given = token_NT[:, :-1]
        if groups.known is None or groups.known[0] is not token_NT:
            groups.known = token_NT, prefix_tree(
                given, groups.prompt_N, self.config.vocab_size, self.config.end_tokens
            )
        tree = groups.known[1]
        return first_PV, self.logits(self.respond(given, cache, groups, tree=tree)), tree

    def response_logprobs(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping,
        temperature: float = 1.0, *, entropies: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Log-probability (N, T) of every token of given responses, and entropies if wanted.

        The distributions are those of nodes: no row gets a copy of what it shares.
        """
        first_PV, later, tree = self._response_logits(prompt_PS, length_P, token_NT, groups)
        return node_logprobs(
            scaled(first_PV.float(), temperature),
            None if later is None else scaled(later.flatten(0, -2).float(), temperature),
            tree, groups.prompt_N, token_NT, entropies=entropies,
        )  # fmt: skip

    def floats_per_token(self, prompt_tokens: int, tokens: int) -> int:
        """Of a token that shares its prefix with no other response."""
        c = self.config
        attention = 2 * c.num_attention_heads * (c.head_dim + prompt_tokens + tokens)
        attention += 2 * c.num_key_value_heads * c.head_dim
        layer = 6 * c.hidden_size + 4 * c.intermediate_size + attention
        return c.num_hidden_layers * layer + 2 * c.hidden_size + 3 * c.vocab_size

    def forward(self, token_PS: Tensor) -> Tensor:
        """Logits (P, S, V) of whole sequences without padding."""
        hidden, _ = self.prompt(token_PS)
        return self.logits(hidden)


class _TransformerDecoder(Decoder):
    """Sampling with a cache that branches where prefixes do."""

    def __init__(
        self, model: Transformer, prompt_PS: Tensor, length_P: Tensor, rows: int, limit: int
    ) -> None:
        self.model = model
        hidden, self.prompts = model.prompt(prompt_PS, length_P, whole=False)
        self.first_PV = model.logits(hidden[:, 0])
        self.cache = model.response_cache(rows, limit)
        self.cache.rows = len(prompt_PS)
        self.groups = Grouping(torch.ones_like(length_P))

    def advance(self, parent_N: Tensor | None, token_N: Tensor, prompt_N: Tensor) -> Tensor:
        if parent_N is not None:
            self.cache.branch(parent_N)
            counts_P = torch.bincount(prompt_N, minlength=len(self.prompts.length_P))
            self.groups = Grouping(counts_P, len(token_N))
        hidden = self.model.respond(token_N[:, None], self.prompts, self.groups, self.cache)
        return self.model.logits(hidden[:, 0])
