"""A Llama learns Tiny Shakespeare, character by character.

    anneal train llama            python -m examples.llama

What it has that nanogpt's GPT has not:

- RMSNorm: a row is divided by its root mean square; no mean is subtracted, no bias added.
- Rotary positions: instead of adding a learnt vector per position, queries and keys turn by an angle that grows with
  the position, so that their product knows how far apart they are.
- Grouped-query attention: four query heads share two heads of keys and values, which halves what generation keeps.
- SwiGLU: the MLP has a gate, `w2(silu(w1 x) * w3 x)`.
- Tied embeddings: the table that reads characters also writes them.
"""

from __future__ import annotations

from anneal import nn
from anneal.training import main

from . import nanogpt

STEPS, BATCH, LR = 2000, 32, 3e-3
CONTEXT, LAYERS, HEADS, KV_HEADS, WIDTH = 64, 4, 4, 2, 128


class Shakespeare(nanogpt.Shakespeare):
    """A Llama in training, on nanogpt's text and as nanogpt is trained."""

    def build(self, vocabulary: int) -> nn.Llama:
        config = nn.LlamaConfig(
            vocab_size=vocabulary, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=KV_HEADS, max_seq_len=CONTEXT
        )
        self.context = CONTEXT
        self.info = (
            f"vocab {vocabulary}, {LAYERS} layers, {HEADS} heads on {KV_HEADS} of keys, width {WIDTH}, "
            f"MLP {config.hidden}, context {CONTEXT}"
        )
        return nn.Llama(config)


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Shakespeare:
    return Shakespeare(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
