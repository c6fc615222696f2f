"""A character transformer learns Tiny Shakespeare.

    anneal train nanogpt            python examples/nanogpt.py

The text ships with anneal. The model reads 64 characters and predicts the next one at every position.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.assets import load
from anneal.tensor import Tensor, jit, manual_seed, no_grad
from anneal.training import Training, decayed, main, told

STEPS, BATCH, LR = 2000, 32, 3e-3
CONTEXT, LAYERS, HEADS, WIDTH = 64, 4, 4, 128
WARM_UP = 100


class Shakespeare(Training):
    """A GPT in training. `step()` advances it; `sample()` lets it speak."""

    model: nn.GPT | nn.Llama  # llama.py builds on this class
    data = "Tiny Shakespeare, 1,115,394 characters, shipped with anneal (public domain)"
    unit = "tokens"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        text = load("tinyshakespeare").decode()
        self.alphabet = sorted(set(text))
        code = {character: i for i, character in enumerate(self.alphabet)}
        self.text = np.array([code[character] for character in text], np.int32)
        self.rng = np.random.default_rng(seed)
        manual_seed(seed)

        model = self.build(len(self.alphabet))
        optimizer = nn.AdamW(decayed(model.parameters(), 0.1), lr=lr, betas=(0.9, 0.99))
        schedule = nn.WarmupCosine(optimizer, lr, warmup=WARM_UP, steps=steps, floor=0.1)
        super().__init__(model, optimizer, steps=steps, batch=batch, tokens=self.context, schedule=schedule, clip=1.0)
        self.read = jit(model)

    def build(self, vocabulary: int) -> nn.GPT | nn.Llama:
        """The model, for so many characters."""
        self.context = CONTEXT
        self.info = f"vocab {vocabulary}, {LAYERS} layers, {HEADS} heads, width {WIDTH}, context {CONTEXT}"
        return nn.GPT(vocab_size=vocabulary, block_size=CONTEXT, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH)

    def next_batch(self) -> tuple[Tensor]:
        """Random windows of the text, int32[batch, context + 1]."""
        starts = self.rng.integers(0, len(self.text) - self.context - 1, self.batch)
        return (Tensor(self.text[starts[:, None] + np.arange(self.context + 1)]),)

    def loss(self, windows: Tensor) -> Tensor:
        """Mean cross entropy of the character that follows each position, shape ()."""
        return self.model.loss(windows[:, :-1], windows[:, 1:])

    @no_grad()
    def sample(self, length: int = 300, prompt: str = "\nROMEO:", temperature: float = 0.8) -> str:
        """Text in the model's own words, one character at a time."""
        ids = [self.alphabet.index(character) for character in prompt]
        for _ in told(range(length), "writing", length):
            window = np.zeros((1, self.context), np.int32)
            recent = ids[-self.context :]
            window[0, : len(recent)] = recent
            logits = self.read(Tensor(window)).numpy()[0, len(recent) - 1] / temperature
            chances = np.exp(logits - logits.max())
            ids.append(int(self.rng.choice(len(chances), p=chances / chances.sum())))
        return "".join(self.alphabet[i] for i in ids).strip()


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Shakespeare:
    return Shakespeare(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
