"""Attention with several heads and the transformer's layers, with torch's names, arguments and layouts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from anneal.errors import ShapeError
from anneal.nn import functional as F, init
from anneal.nn._containers import ModuleList
from anneal.nn._dropouts import Dropout
from anneal.nn._layers import LayerNorm, Linear
from anneal.nn._module import Module
from anneal.nn.parameter import Parameter
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


class NonDynamicallyQuantizableLinear(Linear):
    """`Linear` under the name that torch prints inside attention."""


class MultiheadAttention(Module):
    """Attention with `num_heads` heads: queries (l, batch, embed_dim), keys and values (s, batch, ...).

    Args:
        embed_dim: the width of queries and results. num_heads: divides it. dropout: of the weights, in training.
        kdim, vdim: the widths of keys and values. add_bias_kv, add_zero_attn: one more key and value, learnt or zero.
        batch_first: the batch axis comes first. Without a batch all three have two axes.

    A call takes `key_padding_mask` (batch, s) and `attn_mask` (l, s) or (batch * num_heads, l, s), bool (True leaves a
    position out) or added to the scores, and gives the result and, with `need_weights`, the weights (batch, l, s), or
    (batch, heads, l, s) where `average_attn_weights` is False.

    Raises ShapeError for heads that do not divide the width, or shapes that do not fit.

    >>> attend = MultiheadAttention(8, 2, batch_first=True)
    >>> x = Tensor.ones(1, 3, 8)
    >>> y, weights = attend(x, x, x)
    >>> y.shape, weights.shape
    ((1, 3, 8), (1, 3, 3))
    """

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {num_heads} heads do not divide a width of {embed_dim}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.add_zero_attn, self.head_dim = add_zero_attn, embed_dim // num_heads
        same = self.kdim == embed_dim and self.vdim == embed_dim
        self.in_proj_weight: Tensor | None = init.xavier_uniform((3 * embed_dim, embed_dim)) if same else None
        self.q_proj_weight: Tensor | None = None if same else init.xavier_uniform((embed_dim, embed_dim))
        self.k_proj_weight: Tensor | None = None if same else init.xavier_uniform((embed_dim, self.kdim))
        self.v_proj_weight: Tensor | None = None if same else init.xavier_uniform((embed_dim, self.vdim))
        self.in_proj_bias: Tensor | None = init.constant((3 * embed_dim,), 0.0) if bias else None
        self.bias_k: Tensor | None = init.xavier_normal((1, 1, embed_dim)) if add_bias_kv else None
        self.bias_v: Tensor | None = init.xavier_normal((1, 1, embed_dim)) if add_bias_kv else None
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias)
        if bias:
            self.out_proj.bias = init.constant((embed_dim,), 0.0)
        self._place(device, dtype)

    @checked
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        turned = self.batch_first and query.ndim == 3
        if turned:
            q = query.transpose(0, 1)
            k = q if key is query else key.transpose(0, 1)
            v = k if value is key else value.transpose(0, 1)
        else:
            q, k, v = query, key, value
        out, weights = F.multi_head_attention_forward(
            q,
            k,
            v,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            self.in_proj_weight is None,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (out.transpose(0, 1) if turned else out), weights


class _TransformerLayer(Module):
    """The parts that layers of encoder and decoder have."""

    _of_memory = False  # whether it attends to a memory, too
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    @checked
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = type(self).__name__
        if isinstance(activation, str) and activation not in ("relu", "gelu"):
            raise ShapeError(f'{name}: activation is "relu", "gelu" or a function, not {activation!r}')
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        if self._of_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        if self._of_memory:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if self._of_memory:
            self.dropout3 = Dropout(dropout)
        self.activation = F.relu if activation == "relu" else F.gelu if isinstance(activation, str) else activation
        self._place(device, dtype)

    def _widened(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _through(self, x: Tensor, *parts: tuple[LayerNorm, Callable[[Tensor], Tensor], Dropout]) -> Tensor:
        """x plus the result of each part, after a dropout; a norm stands before each part or behind it."""
        for norm, part, drop in parts:
            x = x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))
        return x


class TransformerEncoderLayer(_TransformerLayer):
    """A layer of the transformer's encoder: attention to itself and an MLP, with norms: (time, batch, d_model) to that.

    Args:
        d_model: the width. nhead: the heads. dim_feedforward: the MLP's width. dropout: in training.
        activation: "relu", "gelu" or a function. layer_norm_eps: added to variances.
        batch_first: the batch axis comes first. norm_first: norms stand before the parts, not after their sums.

    A call takes `src_mask` (time, time) and `src_key_padding_mask` (batch, time), as `MultiheadAttention` does.

    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(Tensor.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    @checked
    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        return self._through(src, (self.norm1, attend, self.dropout1), (self.norm2, self._widened, self.dropout2))


class TransformerDecoderLayer(_TransformerLayer):
    """A layer of the transformer's decoder: attention to itself, to `memory`, and an MLP: (time, batch, d_model).

    Arguments as for `TransformerEncoderLayer`; a call takes masks of both attentions.

    >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(Tensor.ones(1, 3, 8), Tensor.ones(1, 5, 8)).shape
    (1, 3, 8)
    """

    _of_memory = True

    @checked
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look(x: Tensor) -> Tensor:
            mask, padding = memory_mask, memory_key_padding_mask
            return self.multihead_attn(x, memory, memory, padding, False, mask, is_causal=memory_is_causal)[0]

        widen = self.norm3, self._widened, self.dropout3
        return self._through(tgt, (self.norm1, attend, self.dropout1), (self.norm2, look, self.dropout2), widen)


class _Stack(Module):
    """Copies of a layer one after the other, and a norm at the end if one is given."""

    def _stack(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        self.layers: ModuleList[Any] = ModuleList([deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x: Any, *rest: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *rest)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """`num_layers` copies of a layer one after the other, and a norm at the end if one is given.

    >>> layer = TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> TransformerEncoder(layer, 2)(Tensor.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        self._stack(encoder_layer, num_layers, norm)

    @checked
    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        out: Tensor = self._through(src, mask, src_key_padding_mask, bool(is_causal))
        return out


class TransformerDecoder(_Stack):
    """`num_layers` copies of a layer one after the other, and a norm at the end if one is given.

    >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> TransformerDecoder(layer, 2)(Tensor.ones(1, 3, 8), Tensor.ones(1, 5, 8)).shape
    (1, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self._stack(decoder_layer, num_layers, norm)

    @checked
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        out: Tensor = self._through(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return out


class Transformer(Module):
    """The transformer (Vaswani and others, 2017): an encoder of `src` and a decoder of `tgt`, both (time, batch,
    d_model).

    Arguments as for `TransformerEncoderLayer`, with the numbers of layers of both.

    >>> Transformer(8, 2, 1, 1, 16, batch_first=True)(Tensor.ones(1, 5, 8), Tensor.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    @checked
    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        self.encoder: Any = custom_encoder
        self.decoder: Any = custom_decoder
        end = LayerNorm(d_model, layer_norm_eps, bias=bias)
        if custom_encoder is None:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*shared), num_encoder_layers, end)
        if custom_decoder is None:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*shared), num_decoder_layers, deepcopy(end))
        for m in self.modules():  # every copy starts from numbers of its own, as torch's do here
            for p in list(vars(m).values()):
                if isinstance(p, Parameter) and p.ndim > 1:
                    p.assign(init.xavier_uniform(p.shape).detach())
        self._place(device, dtype)

    @checked
    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, bool(src_is_causal))
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        out: Tensor = self.decoder(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: str | None = None, dtype: DTypeLike = "float32") -> Tensor:
        """The causal mask (sz, sz) that is added to scores: -inf above the diagonal, 0 elsewhere, so that no position
        attends to a later one. On `device`, of `dtype`.

        >>> Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return Tensor.full((sz, sz), float("-inf"), dtype=dtype, device=device).triu(1)
