"""Attention over all positions, with shared keys, with rotary positions; SwiGLU; and Llama, which is made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._layers import Embedding, Linear, RMSNorm
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor, functional as F
from anneal.uop import UOp


def _attended(qkv: Linear, x: Tensor, heads: int, dropout: float, is_causal: bool) -> Tensor:
    """Attention of every position of x (batch, positions, dim), whose queries, keys and values are `qkv(x)`."""
    b, t, c = x.shape
    both = qkv(x).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(both[0], both[1], both[2], dropout_p=dropout, is_causal=is_causal)
    return y.transpose(1, 2).reshape(b, t, c)


class SelfAttention(Module):
    """Self-attention of every position to all: (batch, positions, dim) to the same. The layers are `qkv` and `proj`.

    Args:
        is_causal: a position attends to itself and those before it only. dropout: of the weights, in training.

    >>> SelfAttention(8, 2)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(
        self, dim: int, num_heads: int, bias: bool = True, dropout: float = 0.0, is_causal: bool = False
    ) -> None:
        if num_heads < 1 or dim % num_heads:
            raise ShapeError(f"SelfAttention: {num_heads} heads do not divide a width of {dim}")
        self.num_heads, self.dropout, self.is_causal = num_heads, dropout, is_causal
        self.qkv = Linear(dim, 3 * dim, bias)
        self.proj = Linear(dim, dim)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        p = self.dropout if self.training else 0.0
        return self.proj(_attended(self.qkv, x, self.num_heads, p, self.is_causal))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}" + (", is_causal=True" if self.is_causal else "")


class RotaryEmbedding(Module):
    """Rotary positions (Su et al., 2021): neighbouring pairs of features turn by an angle proportional to the position.

    The product of a query and a key, both turned, depends on their distance alone.

    Args:
        dim: features of a head, even. max_positions: how many positions the table holds. theta: the slowest wavelength.

    >>> rotary = RotaryEmbedding(2, 4)
    >>> rotary(Tensor([[1.0, 0.0], [1.0, 0.0]])).numpy().round(3).tolist()  # cos and sin of 0 and of 1
    [[1.0, 0.0], [0.5400000214576721, 0.8410000205039978]]
    """

    @checked
    def __init__(self, dim: int, max_positions: int, theta: float = 10000.0) -> None:
        if dim % 2:
            raise ShapeError(f"RotaryEmbedding: features turn in pairs, and {dim} is odd")
        if not 0.0 < theta < math.inf:
            raise ShapeError(f"RotaryEmbedding: theta, the slowest wavelength, is a positive number, not {theta}")
        self.dim, self.max_positions, self.theta = dim, max_positions, theta
        # From the host: a device's cos and sin are not good for angles of thousands.
        angles = np.outer(np.arange(max_positions), theta ** (-np.arange(0, dim, 2) / dim))
        cos, sin = np.cos(angles), np.sin(angles)
        self._cos = Tensor(np.stack([cos, cos], -1).astype(np.float32))
        self._sin = Tensor(np.stack([-sin, sin], -1).astype(np.float32))

    @checked
    def forward(self, x: Tensor, start: int | UOp | Tensor = 0) -> Tensor:
        """x (..., time, dim), whose first row stands at position `start`; or the positions of all rows, int (time,)."""
        *_, time, dim = x.shape
        if dim != self.dim:
            raise ShapeError(f"RotaryEmbedding: x has shape (..., time, {self.dim}), not {x.shape}")
        if isinstance(start, int) and isinstance(time, int) and not 0 <= start <= self.max_positions - time:
            raise ShapeError(f"RotaryEmbedding: positions {start} to {start + time - 1} of {self.max_positions}")
        rows = start if isinstance(start, Tensor) else slice(start, start + time)
        cos, sin = self._cos[rows], self._sin[rows]
        pairs = x.reshape(*x.shape[:-1], dim // 2, 2)
        return (pairs * cos + pairs.flip(-1) * sin).reshape(*x.shape)

    def extra_repr(self) -> str:
        return f"{self.dim}, {self.max_positions}, theta={self.theta}"


class GroupedQueryAttention(Module):
    """Causal attention whose query heads share `n_kv_heads` heads of keys and values (Ainslie et al., 2023).

    The layers are Llama's: `wq`, `wk`, `wv`, `wo`, without bias.

    Args:
        rotary: turns queries and keys; None leaves the positions to others.

    >>> attention = GroupedQueryAttention(8, 4, 2, rotary=RotaryEmbedding(2, 16))
    >>> attention(Tensor.ones(1, 5, 8)).shape, attention.wk.weight.shape
    ((1, 5, 8), (4, 8))
    """

    @checked
    def __init__(
        self,
        dim: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        *,
        rotary: RotaryEmbedding | None = None,
        is_causal: bool = True,
    ) -> None:
        n_kv_heads = n_kv_heads or n_heads
        if dim % n_heads or n_heads % n_kv_heads:
            raise ShapeError(
                f"GroupedQueryAttention: {n_heads} heads must divide a width of {dim}, and be shared evenly by "
                f"{n_kv_heads} heads of keys"
            )
        self.n_heads, self.n_kv_heads, self.is_causal = n_heads, n_kv_heads, is_causal
        head = dim // n_heads
        self.wq = Linear(dim, dim, bias=False)
        self.wk = Linear(dim, n_kv_heads * head, bias=False)
        self.wv = Linear(dim, n_kv_heads * head, bias=False)
        self.wo = Linear(dim, dim, bias=False)
        self.rotary = rotary

    def project(self, x: Tensor, start: int | UOp | Tensor = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x (batch, time, dim), each (batch, heads, time, head), rotated to their positions
        from `start` on.
        """
        b, t, c = x.shape
        head = c // self.n_heads
        q, k, v = [f(x).reshape(b, t, -1, head).transpose(1, 2) for f in (self.wq, self.wk, self.wv)]
        if self.rotary is not None:
            q, k = self.rotary(q, start), self.rotary(k, start)
        return q, k, v

    @checked
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(*x.shape))

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}"


class SwiGLU(Module):
    """A gated MLP (Shazeer, 2020): `w2(silu(w1(x)) * w3(x))`, dim to hidden_dim and back, without bias by default.

    >>> SwiGLU(8, 16)(Tensor.ones(2, 8)).shape
    (2, 8)
    """

    @checked
    def __init__(self, dim: int, hidden_dim: int, bias: bool = False) -> None:
        self.w1 = Linear(dim, hidden_dim, bias)
        self.w2 = Linear(hidden_dim, dim, bias)
        self.w3 = Linear(dim, hidden_dim, bias)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return self.w2(self.w1(x).silu() * self.w3(x))


_STD = 0.02  # of weights at first


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


class _LanguageModel(Module):
    """A module from tokens to logits."""

    def loss(self, index: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy, shape (), of `index` (batch, time): `targets` (batch, time) are the token after each
        position, none ignored.
        """
        logits = self(index)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=None)


class Llama(_LanguageModel):
    """Token embeddings, blocks with rotary positions, a norm, and logits over the vocabulary.

    Weights start normal with deviation 0.02, those that feed the residual stream divided by sqrt(2 * n_layers). With
    `tie_weights` the output's weight is the token table, one tensor under two names.

    >>> Llama(LlamaConfig(vocab_size=65, dim=16, n_layers=1, n_heads=4, n_kv_heads=2))(Tensor([[1, 2, 3]])).shape
    (1, 3, 65)
    """

    @checked
    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        table = init.normal((config.vocab_size, config.dim), _STD)
        self.tok_embeddings = Embedding(config.vocab_size, config.dim, weight=table)
        self._rotary = RotaryEmbedding(config.dim // config.n_heads, config.max_seq_len, config.rope_theta)
        self.layers = [LlamaBlock(config, self._rotary) for _ in range(config.n_layers)]
        self.norm = RMSNorm(config.dim, config.norm_eps)
        head = table if config.tie_weights else init.normal((config.vocab_size, config.dim), _STD)
        self.output = Linear(config.dim, config.vocab_size, bias=False, weight=head)
        residual = _STD / math.sqrt(2 * config.n_layers)
        for block in self.layers:
            ends = (block.attention.wo, block.feed_forward.w2)
            for m in block.modules():
                if isinstance(m, Linear):
                    m.weight = init.normal(m.weight.shape, residual if m in ends else _STD)

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
