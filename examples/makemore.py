"""Five models learn to make up names: how much does each gain over the one before?

    anneal train makemore-bigram            python examples/makemore.py bigram
    anneal train makemore-mlp               a few characters back (Bengio et al., 2003)
    anneal train makemore-cnn               dilated causal convolutions (WaveNet, van den Oord et al., 2016)
    anneal train makemore-rnn               Elman's network
    anneal train makemore-gru               gates that decide what to keep (Cho et al., 2014)
    anneal train makemore-gpt               attention

A name is a row of letters between two marks. Every model maps int32[batch, LENGTH] to logits[batch, LENGTH, 27] for the
letter that follows each position, from that position and those before it; they differ in how far back they see. The
names ship with anneal. The loss to beat is that of names which are held back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anneal import nn
from anneal.assets import load
from anneal.tensor import Tensor, functional as F, jit, manual_seed, no_grad
from anneal.training import Training, main, told

LETTERS = 27  # 0 is the mark before and after a name
LENGTH = 16  # the longest name has 15 letters
WIDTH = 64
HELD_BACK = 1000


class Bigram(nn.Module):
    """The next letter from this one alone: a table of logits."""

    def __init__(self) -> None:
        self.table = nn.Embedding(LETTERS, LETTERS)

    def forward(self, index: Tensor) -> Tensor:
        return self.table(index)


class MLP(nn.Module):
    """The next letter from the last three, side by side."""

    BACK = 3

    def __init__(self) -> None:
        self.embed = nn.Embedding(LETTERS, WIDTH // 2)
        self.first = nn.Linear(self.BACK * (WIDTH // 2), 2 * WIDTH)
        self.last = nn.Linear(2 * WIDTH, LETTERS)

    def forward(self, index: Tensor) -> Tensor:
        x = self.embed(index)
        # Row t of the k-th copy is row t - k of x; before the name there is nothing.
        back = [x[:, : LENGTH - k].pad(((0, 0), (k, 0), (0, 0))) for k in range(self.BACK)]
        return self.last(self.first(Tensor.cat(back, dim=-1)).tanh())


class CNN(nn.Module):
    """Convolutions over two positions 1, 2, 4 and 8 apart: each layer doubles how far back a position sees."""

    def __init__(self) -> None:
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.layers = [nn.Conv1d(WIDTH, 2 * WIDTH, 2, dilation=2**i) for i in range(4)]
        self.last = nn.Linear(WIDTH, LETTERS)

    def forward(self, index: Tensor) -> Tensor:
        x = self.embed(index).transpose(1, 2)
        for i, layer in enumerate(self.layers):
            h = layer(x.pad(((0, 0), (0, 0), (2**i, 0))))  # before the first letter only: no look ahead
            x = x + F.glu(h, dim=1)
        return self.last(x.transpose(1, 2))


class Recurrent(nn.Module):
    """One vector carries what has been read."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.cell = kind(WIDTH, 2 * WIDTH, batch_first=True)
        self.last = nn.Linear(2 * WIDTH, LETTERS)

    def forward(self, index: Tensor) -> Tensor:
        return self.last(self.cell(self.embed(index))[0])


def gpt() -> nn.Module:
    """Four blocks of causal attention."""
    return nn.GPT(vocab_size=LETTERS, block_size=LENGTH, n_layer=4, n_head=4, n_embd=WIDTH)


class Names(Training):
    """One of the models in training."""

    data = "32,033 names, one in 32 held back, shipped with anneal (public domain)"
    unit = "names"

    def __init__(
        self, build: Callable[[], nn.Module], about: str, steps: int, batch: int, seed: int, lr: float
    ) -> None:
        self.rng = np.random.default_rng(seed)
        words = load("names").decode().split()
        rows = np.zeros((len(words), LENGTH + 1), np.int32)
        for row, word in zip(rows, words):
            row[1 : len(word) + 1] = [ord(letter) - ord("a") + 1 for letter in word]
        self.rng.shuffle(rows)
        self.held_back, self.names = rows[:HELD_BACK], rows[HELD_BACK:]
        self.known = set(words)
        manual_seed(seed)
        model = build()
        self.info = f"{about}, context {LENGTH}"
        optimizer = nn.AdamW(model.parameters(), lr=lr, weight_decay=0.01, betas=(0.9, 0.99))
        schedule = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 20), steps=steps, floor=0.02)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=schedule, clip=1.0)
        self.read = jit(model)

    def next_batch(self) -> tuple[Tensor]:
        return (Tensor(self.names[self.rng.integers(0, len(self.names), self.batch)]),)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean cross entropy of each letter and of the mark after the last, shape ()."""
        given, target = rows[:, :-1], rows[:, 1:]
        # A mark after a mark is padding. The first column is never that.
        padding = (given == 0) & (Tensor.arange(LENGTH) > 0)
        logits = self.model(given).reshape(-1, LETTERS)
        return F.cross_entropy(logits, padding.where(-100, target).reshape(-1))

    @no_grad()
    def sample(self, count: int = 20) -> str:
        """The loss on the names held back, and new names, all letter by letter at once."""
        losses = [self.loss(Tensor(part)).item() for part in np.split(self.held_back, 4)]
        rows = np.zeros((count, LENGTH), np.int32)
        for t in told(range(LENGTH - 1), "naming", LENGTH - 1):
            logits = self.read(Tensor(rows)).numpy()[:, t]
            # The largest of logits plus Gumbel noise is a sample of their softmax.
            letter = (logits + self.rng.gumbel(size=logits.shape)).argmax(-1)
            rows[:, t + 1] = np.where((t == 0) | (rows[:, t] > 0), letter, 0)
        names = ["".join(chr(ord("a") + i - 1) for i in row if i) for row in rows]
        new = sum(name not in self.known for name in names)
        return (
            f"loss on {HELD_BACK:,} names held back: {np.mean(losses):.3f}\n{new} of {count} are new: {' '.join(names)}"
        )


@dataclass(frozen=True)
class Example:
    """What `anneal train makemore-...` asks for: defaults, and a training run."""

    build: Callable[[], nn.Module]
    about: str
    STEPS: int
    BATCH: int
    LR: float

    def make(
        self, *, steps: int | None = None, batch: int | None = None, seed: int = 1, lr: float | None = None
    ) -> Names:
        return Names(self.build, self.about, steps or self.STEPS, batch or self.BATCH, seed, lr or self.LR)


MODELS = {
    "bigram": Example(Bigram, "a table of pairs", 1000, 256, 5e-2),
    "mlp": Example(MLP, "three letters back, one hidden layer", 3000, 256, 3e-3),
    "cnn": Example(CNN, "four dilated convolutions with gates", 3000, 256, 3e-3),
    "rnn": Example(lambda: Recurrent(nn.RNN), "a recurrent network", 3000, 256, 2e-3),
    "gru": Example(lambda: Recurrent(nn.GRU), "a gated recurrent unit", 3000, 256, 3e-3),
    "gpt": Example(gpt, "four blocks of attention", 3000, 256, 2e-3),
}


if __name__ == "__main__":
    main(MODELS[sys.argv[1] if len(sys.argv) > 1 else "bigram"].make)
