"""GPT-2's pre-norm transformer, with GPT-2's names; a vision transformer; a reader of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._attention import _STD, Llama, LlamaBlock, SelfAttention, _attended, _LanguageModel
from anneal.nn._dropouts import Dropout
from anneal.nn._layers import Embedding, LayerNorm, Linear
from anneal.nn._module import Module
from anneal.ops import checked, per_axis
from anneal.tensor import Tensor, Variable, functional as F, no_grad, realize
from anneal.uop import UOp


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and switches of a GPT; the defaults are GPT-2 small's.

    Args:
        vocab_size: the number of tokens.
        block_size: the longest sequence, in tokens.
        n_layer: the number of blocks.
        n_head: the number of heads of attention.
        n_embd: the width of the embedding.
        dropout: the chance with which an element is made 0 in training.
        bias: whether linear layers and norms have a bias.
        tie_weights: whether the logits share the weights of the token embedding.

    >>> GPTConfig(n_layer=2).n_embd
    768
    """

    vocab_size: int = 50257
    block_size: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True
    tie_weights: bool = True


def _linear(n_in: int, n_out: int, bias: bool, std: float = _STD) -> Linear:
    return Linear(n_in, n_out, bias, weight=init.normal((n_out, n_in), std))


class CausalSelfAttention(Module):
    """Causal self-attention, of each position to itself and those before it: (batch, time, n_embd) to the same.

    Weights start normal with deviation 0.02, those of the last layer with `residual_std`; biases zero.

    >>> CausalSelfAttention(8, 2)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(
        self, n_embd: int, n_head: int, bias: bool = True, dropout: float = 0.0, residual_std: float = _STD
    ) -> None:
        if n_embd % n_head:
            raise ShapeError(f"CausalSelfAttention: {n_head} heads do not divide a width of {n_embd}")
        self.n_head, self.dropout = n_head, dropout
        self.c_attn = _linear(n_embd, 3 * n_embd, bias)
        self.c_proj = _linear(n_embd, n_embd, bias, residual_std)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        p = self.dropout if self.training else 0.0
        out = self.c_proj(_attended(self.c_attn, x, self.n_head, p, True))
        return F.dropout(out, self.dropout, self.training)


class MLP(Module):
    """Two linear layers with gelu (tanh form) between: (..., n_embd) to 4*n_embd and back.

    >>> MLP(8)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(self, n_embd: int, bias: bool = True, dropout: float = 0.0, residual_std: float = _STD) -> None:
        self.dropout = dropout
        self.c_fc = _linear(n_embd, 4 * n_embd, bias)
        self.c_proj = _linear(4 * n_embd, n_embd, bias, residual_std)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        out = self.c_proj(self.c_fc(x).gelu("tanh"))
        return F.dropout(out, self.dropout, self.training)


class Block(Module):
    """`x + attn(ln_1(x))`, then `x + mlp(ln_2(x))`: (batch, time, n_embd) to the same.

    >>> Block(8, 2)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(
        self, n_embd: int, n_head: int, bias: bool = True, dropout: float = 0.0, residual_std: float = _STD
    ) -> None:
        self.ln_1 = LayerNorm(n_embd, bias=bias)
        self.attn = CausalSelfAttention(n_embd, n_head, bias, dropout, residual_std)
        self.ln_2 = LayerNorm(n_embd, bias=bias)
        self.mlp = MLP(n_embd, bias, dropout, residual_std)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(_LanguageModel):
    """Token and position embeddings, blocks, a norm, and logits over the vocabulary.

    Weights start normal with deviation 0.02, those that feed the residual stream divided by sqrt(2 * n_layer). With
    `tie_weights` the head's weight is the token table, one tensor under two names.

    Args:
        vocab_size, block_size, n_layer, n_head, n_embd, dropout, bias, tie_weights: as in `GPTConfig`.

    >>> GPT(vocab_size=65, block_size=16, n_layer=1, n_head=2, n_embd=8)(Tensor([[1, 2, 3]])).shape
    (1, 3, 65)
    """

    @checked
    def __init__(
        self,
        vocab_size: int = 50257,
        block_size: int = 1024,
        n_layer: int = 12,
        n_head: int = 12,
        n_embd: int = 768,
        dropout: float = 0.0,
        bias: bool = True,
        tie_weights: bool = True,
    ) -> None:
        self.config = GPTConfig(vocab_size, block_size, n_layer, n_head, n_embd, dropout, bias, tie_weights)
        self.wte = Embedding(vocab_size, n_embd, weight=init.normal((vocab_size, n_embd), _STD))
        self.wpe = Embedding(block_size, n_embd, weight=init.normal((block_size, n_embd), _STD))
        self.drop = Dropout(dropout)
        residual = _STD / math.sqrt(2 * n_layer)
        self.h = [Block(n_embd, n_head, bias, dropout, residual) for _ in range(n_layer)]
        self.ln_f = LayerNorm(n_embd, bias=bias)
        head = self.wte.weight if tie_weights else init.normal((vocab_size, n_embd), _STD)
        self.lm_head = Linear(n_embd, vocab_size, bias=False, weight=head)

    @classmethod
    def from_config(cls, config: GPTConfig) -> GPT:
        """The model that `config` describes."""
        return cls(**vars(config))

    @checked
    def forward(self, index: Tensor) -> Tensor:
        """Logits (batch, time, vocab_size) of the token after each position; index is int, (batch, time).

        Raises ShapeError if there are more positions than `block_size`.
        """
        if index.ndim != 2 or index.shape[1] > self.config.block_size:
            raise ShapeError(
                f"GPT: tokens have shape (batch, time) with time up to block_size {self.config.block_size}, "
                f"not {index.shape}"
            )
        positions = self.wpe.weight if index.shape[1] == self.config.block_size else self.wpe.weight[: index.shape[1]]
        x = self.drop(self.wte(index) + positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class PatchEmbed(Module):
    """An image as a row of patches: (batch, in_chans, h, w) to (batch, patches, embed_dim), a linear map of each.

    Args:
        img_size: the side of a picture in pixels.
        patch_size: the side of a patch in pixels.

    Raises ShapeError if the patches do not divide the image.

    >>> PatchEmbed(8, 4, 3, 16)(Tensor.ones(1, 3, 8, 8)).shape
    (1, 4, 16)
    """

    @checked
    def __init__(
        self,
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        bias: bool = True,
    ) -> None:
        image, patch = (
            per_axis("img_size", img_size, 2),
            per_axis("patch_size", patch_size, 2),
        )
        if image[0] % patch[0] or image[1] % patch[1]:
            raise ShapeError(f"PatchEmbed: patches of {patch} do not divide an image of {image}")
        self.img_size, self.patch_size = image, patch
        self.num_patches = (image[0] // patch[0]) * (image[1] // patch[1])
        from anneal.nn._windows import Conv2d  # a transformer of text needs none of that file's classes

        self.proj = Conv2d(in_chans, embed_dim, patch, stride=patch, bias=bias)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[2:] != self.img_size:
            raise ShapeError(
                f"PatchEmbed: x has shape (batch, channels, {', '.join(map(str, self.img_size))}), not {x.shape}"
            )
        return self.proj(x).flatten(2).transpose(1, 2)


class _MLP(Module):
    """Two linear layers with gelu between."""

    @checked
    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        self.dropout = dropout
        self.fc1, self.fc2 = Linear(dim, hidden), Linear(hidden, dim)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.fc2(self.fc1(x).gelu()), self.dropout, self.training)


class ViTBlock(Module):
    """`x + attn(norm1(x))`, then `x + mlp(norm2(x))`; attention is over all positions.

    >>> ViTBlock(8, 2)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(self, dim: int, num_heads: int, mlp_ratio: float = 4.0, dropout: float = 0.0) -> None:
        self.norm1 = LayerNorm(dim, eps=1e-6)
        self.attn = SelfAttention(dim, num_heads, dropout=dropout)
        self.norm2 = LayerNorm(dim, eps=1e-6)
        self.mlp = _MLP(dim, int(dim * mlp_ratio), dropout)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(Module):
    """Patches, a class token before them, learnt positions, blocks, and logits from the class token.

    Linear weights start normal with deviation 0.02, biases zero, as in the paper's successors.

    Args:
        img_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads, mlp_ratio: as in timm; the defaults
            are ViT-Base's. dropout: after attention weights and MLPs.

    >>> ViT(8, 4, num_classes=10, embed_dim=16, depth=1, num_heads=2)(Tensor.ones(2, 3, 8, 8)).shape
    (2, 10)
    """

    @checked
    def __init__(
        self,
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
    ) -> None:
        self.cls_token: Tensor = init.normal((1, 1, embed_dim), _STD)
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim)
        self.pos_embed: Tensor = init.normal((1, self.patch_embed.num_patches + 1, embed_dim), _STD)
        self.blocks = [ViTBlock(embed_dim, num_heads, mlp_ratio, dropout) for _ in range(depth)]
        self.norm = LayerNorm(embed_dim, eps=1e-6)
        self.head = Linear(embed_dim, num_classes)
        for m in self.modules():
            if isinstance(m, Linear):
                m.weight = init.normal(m.weight.shape, _STD)
                m.bias = init.constant((m.out_features,), 0.0)

    def features(self, x: Tensor) -> Tensor:
        """The normalised tokens of images x (batch, in_chans, h, w): (batch, 1 + patches, embed_dim), the class token
        first.
        """
        patches = self.patch_embed(x)
        token = self.cls_token.expand(x.shape[0], 1, self.cls_token.shape[-1])
        x = Tensor.cat([token, patches], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """The logits (batch, num_classes) of images x (batch, in_chans, h, w)."""
        return self.head(self.features(x)[:, 0])


# -- a reader of a language model -------------------------------------------------------------------------------------
# Language models that read a text token by token, with the keys and values of what they have read in memory.


_BLOCK = 64  # keys are read in whole blocks, so that tiles divide them


class Reader:
    """A GPT or a Llama that reads one text, each token once: keys and values of earlier tokens are kept.

    Both functions give the logits, float32 (vocabulary,), of the token that follows. They are lazy, take no gradients,
    and change `keys` and `values`: under `jit` a call is one set of kernels. `blocks`, a Variable, is how many blocks
    of `block` tokens are read: enough for the place of the last one.

    Args:
        model: the model, which is put into evaluation mode.

    >>> reader = Reader(GPT(vocab_size=7, block_size=8, n_layer=1, n_head=2, n_embd=8))
    >>> reader.begin(Tensor([1, 2, 3, 0, 0, 0, 0, 0]), Tensor([3]), reader.blocks.bind(2)).shape
    (7,)
    >>> reader.go_on(Tensor([4]), Tensor([3]), reader.blocks.bind(2)).shape
    (7,)
    """

    def __init__(self, model: GPT | Llama) -> None:
        if isinstance(model, GPT):
            c = model.config
            self.context, heads, head = c.block_size, c.n_head, c.n_embd // c.n_head
        else:
            d = model.config
            self.context, heads, head = d.max_seq_len, d.n_kv_heads or d.n_heads, d.dim // d.n_heads
        self.model = model.eval()
        self.block = math.gcd(_BLOCK, max(1, self.context // 4))
        self.blocks = Variable("blocks", 1, self.context // self.block)
        shape = (heads, self.context, head)
        layers = self._layers()
        self.keys = [Tensor.zeros(*shape) for _ in layers]
        self.values = [Tensor.zeros(*shape) for _ in layers]
        realize([*self.keys, *self.values])

    @no_grad()
    def begin(self, tokens: Tensor, count: Tensor, blocks: UOp) -> Tensor:
        """The logits after a prompt: the first `count`, int32 (1,), of int32 (context,) `tokens`. The tokens behind
        them, which fill up the blocks, have no effect.
        """
        size = blocks * self.block
        x = self._embedded(tokens[:size], 0)
        layers = self._layers()
        for block, keys, values in zip(layers, self.keys, self.values, strict=True):
            q, k, v = self._projected(block, x, 0)
            keys[:, :size], values[:, :size] = k, v
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            if block is layers[-1]:  # only the last token's row is needed from here on
                x, y = x[count - 1], y[:, count - 1]
            x = self._left(block, x, y)
        return self._logits(x)

    @no_grad()
    def go_on(self, token: Tensor, place: Tensor, blocks: UOp) -> Tensor:
        """The logits after one more `token` at its `place`, int32 (1,) both, among the keys of so many `blocks`."""
        size = blocks * self.block
        seen = (Tensor.arange(size) <= place).reshape(1, 1, size)
        x = self._embedded(token, place)
        for block, keys, values in zip(self._layers(), self.keys, self.values, strict=True):
            q, k, v = self._projected(block, x, place)
            keys.assign(keys.update_slice(k, (0, place, 0)))
            values.assign(values.update_slice(v, (0, place, 0)))
            y = F.scaled_dot_product_attention(q, keys[:, :size], values[:, :size], attn_mask=seen, enable_gqa=True)
            x = self._left(block, x, y)
        return self._logits(x)

    def _layers(self) -> list[Block | LlamaBlock]:
        return [*(self.model.h if isinstance(self.model, GPT) else self.model.layers)]

    def _embedded(self, tokens: Tensor, place: int | Tensor) -> Tensor:
        """The rows that enter the first block, (time, width), of tokens whose first stands at `place`."""
        if isinstance(self.model, Llama):
            return self.model.tok_embeddings(tokens)
        at = self.model.wpe(place) if isinstance(place, Tensor) else self.model.wpe.weight[: tokens.shape[0]]
        return self.model.wte(tokens) + at

    def _projected(self, block: Block | LlamaBlock, x: Tensor, place: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (heads, time, width of a head), of the rows that enter a block."""
        time, width = x.shape
        if isinstance(block, LlamaBlock):
            q, k, v = block.attention.project(block.attention_norm(x).reshape(1, time, width), place)
            return q[0], k[0], v[0]
        heads = block.attn.n_head
        q, k, v = block.attn.c_attn(block.ln_1(x)).reshape(time, 3, heads, width // heads).permute(1, 2, 0, 3)
        return q, k, v

    def _left(self, block: Block | LlamaBlock, x: Tensor, y: Tensor) -> Tensor:
        """The rows that leave a block, from the rows that entered it and the attention's results."""
        seen = y.transpose(0, 1).reshape(*x.shape)
        if isinstance(block, LlamaBlock):
            x = x + block.attention.wo(seen)
            return x + block.feed_forward(block.ffn_norm(x))
        x = x + block.attn.c_proj(seen)
        return x + block.mlp(block.ln_2(x))

    def _logits(self, x: Tensor) -> Tensor:
        model = self.model
        rows = model.lm_head(model.ln_f(x)) if isinstance(model, GPT) else model.output(model.norm(x))
        return rows.reshape(-1)
