"""Language models that read a text token by token, with the keys and values of what they have read in memory."""

from __future__ import annotations

import math

from anneal.nn._attention import Llama, LlamaBlock
from anneal.nn._transformer import GPT, Block
from anneal.tensor import Tensor, Variable, functional as F, no_grad, realize
from anneal.uop import UOp

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
        """The logits after a prompt: the first `count`, int32 (1,), of int32 (context,) `tokens`. What fills up the
        blocks is seen by none of them."""
        size = blocks * self.block
        x = self._embedded(tokens[:size], 0)
        layers = self._layers()
        for block, keys, values in zip(layers, self.keys, self.values, strict=True):
            q, k, v = self._projected(block, x, 0)
            keys[:, :size], values[:, :size] = k, v
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            if block is layers[-1]:  # from here on nobody asks for any but the last token
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
        """Queries, keys and values, (heads, time, width of a head), of what enters a block."""
        time, width = x.shape
        if isinstance(block, LlamaBlock):
            q, k, v = block.attention.project(block.attention_norm(x).reshape(1, time, width), place)
            return q[0], k[0], v[0]
        heads = block.attn.n_head
        q, k, v = block.attn.c_attn(block.ln_1(x)).reshape(time, 3, heads, width // heads).permute(1, 2, 0, 3)
        return q, k, v

    def _left(self, block: Block | LlamaBlock, x: Tensor, y: Tensor) -> Tensor:
        """The rows that leave a block, from those that entered it and what its heads saw."""
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
