"""A Llama: the decoder of Touvron et al. (2023), with its names (`tok_embeddings`, `layers.0.attention.wq`, ...)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._attention import GroupedQueryAttention, RotaryEmbedding, SwiGLU
from anneal.nn._layers import Embedding, Linear
from anneal.nn._module import Module
from anneal.nn._norms import RMSNorm
from anneal.ops import checked
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = ["Llama", "LlamaBlock", "LlamaConfig"]

STD = 0.02


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes and switches of a Llama; the defaults are a small one's.

    Args:
        vocab_size: the number of tokens.
        dim: the width of the embedding.
        n_layers: the number of blocks.
        n_heads: the number of heads of queries.
        n_kv_heads: the number of heads of keys and values; None: as many as `n_heads`.
        hidden_dim: the width of the MLP; None: two thirds of 4 * dim, rounded up to a multiple of 32.
        max_seq_len: the longest sequence, in tokens.
        norm_eps: the epsilon of the norms.
        rope_theta: the base of the rotary angles.
        tie_weights: whether the logits share the weights of the token embedding.

    >>> LlamaConfig(dim=96).hidden
    256
    """

    vocab_size: int = 32000
    dim: int = 288
    n_layers: int = 6
    n_heads: int = 6
    n_kv_heads: int | None = None  # None: as many as n_heads
    hidden_dim: int | None = None  # None: two thirds of 4 * dim, rounded up to a multiple of 32
    max_seq_len: int = 256
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_weights: bool = True

    @property
    def hidden(self) -> int:
        """The width of the MLP."""
        return self.hidden_dim or -(-(8 * self.dim // 3) // 32) * 32


class LlamaBlock(Module):
    """`x + attention(attention_norm(x))`, then `x + feed_forward(ffn_norm(x))`: (batch, time, dim) to the same.

    >>> config = LlamaConfig(dim=8, n_heads=2)
    >>> LlamaBlock(config, RotaryEmbedding(4, 16))(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(self, config: LlamaConfig, rotary: RotaryEmbedding) -> None:
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.attention = GroupedQueryAttention(config.dim, config.n_heads, config.n_kv_heads, rotary=rotary)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = SwiGLU(config.dim, config.hidden)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(Module):
    """Token embeddings, blocks with rotary positions, a norm, and logits over the vocabulary.

    Weights start normal with deviation 0.02, those that feed the residual stream divided by sqrt(2 * n_layers). With
    `tie_weights` the output's weight is the token table, one tensor under two names.

    >>> Llama(LlamaConfig(vocab_size=65, dim=16, n_layers=1, n_heads=4, n_kv_heads=2))(Tensor([[1, 2, 3]])).shape
    (1, 3, 65)
    """

    @checked
    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        table = init.normal((config.vocab_size, config.dim), STD)
        self.tok_embeddings = Embedding(config.vocab_size, config.dim, weight=table)
        self._rotary = RotaryEmbedding(config.dim // config.n_heads, config.max_seq_len, config.rope_theta)
        self.layers = [LlamaBlock(config, self._rotary) for _ in range(config.n_layers)]
        self.norm = RMSNorm(config.dim, config.norm_eps)
        head = table if config.tie_weights else init.normal((config.vocab_size, config.dim), STD)
        self.output = Linear(config.dim, config.vocab_size, bias=False, weight=head)
        residual = STD / math.sqrt(2 * config.n_layers)
        for block in self.layers:
            ends = (block.attention.wo, block.feed_forward.w2)
            for m in block.modules():
                if isinstance(m, Linear):
                    m.weight = init.normal(m.weight.shape, residual if m in ends else STD)

    @checked
    def forward(self, index: Tensor) -> Tensor:
        """Logits (batch, time, vocab_size) of the token after each position; index is int, (batch, time).

        Raises ShapeError if there are more positions than `max_seq_len`.
        """
        if index.ndim != 2 or index.shape[1] > self.config.max_seq_len:
            raise ShapeError(
                f"Llama: tokens have shape (batch, time) with time up to max_seq_len {self.config.max_seq_len}, "
                f"not {index.shape}"
            )
        x = self.tok_embeddings(index)
        for block in self.layers:
            x = block(x)
        return self.output(self.norm(x))

    def loss(self, index: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy, shape (), of `index` (batch, time): `targets` (batch, time) are the token after each
        position, none ignored.
        """
        logits = self(index)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=None)
