"""The models of `benchmarks.eager` as a newcomer writes them: one text, run by anneal and by torch.

Each of `CASES` makes, from a `Library`, the model's parameters, a function that takes one training step on a batch and
gives the loss, and the arrays of the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._harness import CONFIGS

Batch = list[npt.NDArray[Any]]
BATCHES = 8  # different ones, which take turns


@dataclass(frozen=True)
class Library:
    """A library's parts by torch's names, torch's own or anneal's; `prepare` is called with each model."""

    name: str
    nn: Any
    F: Any
    optim: Any
    prepare: Callable[[Any], Any] = id


@dataclass(frozen=True)
class Program:
    """A model with its optimisers: `step` takes tensors of one of `batches`, and gives the loss."""

    step: Callable[..., Any]
    batches: list[Batch]


def _images(classes: int, *shape: int) -> list[Batch]:
    random = np.random.default_rng(0)
    return [
        [random.random(shape, np.float32), random.integers(0, classes, shape[0]).astype(np.int64)]
        for _ in range(BATCHES)
    ]


def _classifier(lib: Library, model: Any, batches: list[Batch]) -> Program:
    lib.prepare(model)
    optimiser = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = lib.F.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        return loss

    return Program(step, batches)


def mlp(lib: Library) -> Program:
    """784-256-10 on a batch of 64."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    return _classifier(lib, model, _images(10, 64, 784))


def cnn(lib: Library) -> Program:
    """Two convolutions with pools on 64 pictures of 28 x 28."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )
    return _classifier(lib, model, _images(10, 64, 1, 28, 28))


def lstm(lib: Library) -> Program:
    """An LSTM of 128 over 32 steps, batch 32, whose last output is classified."""

    class Classifier(lib.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lib.nn.LSTM(32, 128, batch_first=True)
            self.head = lib.nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            out, _ = self.lstm(x)
            return self.head(out[:, -1])

    return _classifier(lib, Classifier(), _images(10, 32, 32, 32))


def encoder(lib: Library) -> Program:
    """Two transformer encoder blocks of width 64 over 32 tokens, batch 16, with padding masks."""
    nn, F = lib.nn, lib.F
    width, heads, time, vocab = 64, 4, 32, 100

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any, mask: Any) -> Any:
            b = x.shape[0]
            qkv = self.qkv(self.norm1(x)).reshape(b, time, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            weights = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
            weights = weights.masked_fill(mask, -1e9).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(b, time, width))
            return x + self.mlp(self.norm2(x))

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(time, width)
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.head = nn.Linear(width, 5)

        def forward(self, tokens: Any, places: Any, padded: Any) -> Any:
            x = self.tokens(tokens) + self.places(places)
            mask = padded.reshape(padded.shape[0], 1, 1, time)
            for block in self.blocks:
                x = block(x, mask)
            kept = (~padded).float().unsqueeze(-1)
            return self.head((x * kept).sum(1) / kept.sum(1))

    model = Encoder()
    lib.prepare(model)
    optimiser = lib.optim.AdamW(model.parameters(), lr=1e-3)
    random = np.random.default_rng(0)
    batches: list[Batch] = []
    for _ in range(BATCHES):
        lengths = random.integers(time // 2, time + 1, (16, 1))
        tokens = random.integers(0, vocab, (16, time)).astype(np.int64)
        batches.append([tokens, np.arange(time), np.arange(time) >= lengths, random.integers(0, 5, 16)])

    def step(tokens: Any, places: Any, padded: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(tokens, places, padded), y)
        loss.backward()
        optimiser.step()
        return loss

    return Program(step, batches)


def vae(lib: Library) -> Program:
    """784-256-20 and back, on a batch of 64, with noise that comes with the batch."""
    nn, F = lib.nn, lib.F

    class VAE(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.mean, self.spread = nn.Linear(784, 256), nn.Linear(256, 20), nn.Linear(256, 20)
            self.outer, self.picture = nn.Linear(20, 256), nn.Linear(256, 784)

        def forward(self, x: Any, noise: Any) -> Any:
            h = self.inner(x).relu()
            mean, spread = self.mean(h), self.spread(h)
            z = mean + noise * (spread * 0.5).exp()
            return self.picture(self.outer(z).relu()), mean, spread

    model = VAE()
    lib.prepare(model)
    optimiser = lib.optim.Adam(model.parameters(), lr=1e-3)
    random = np.random.default_rng(0)
    batches: list[Batch] = [
        [random.random((64, 784), np.float32), random.standard_normal((64, 20), np.float32)] for _ in range(BATCHES)
    ]

    def step(x: Any, noise: Any) -> Any:
        optimiser.zero_grad()
        y, mean, spread = model(x, noise)
        likeness = F.binary_cross_entropy_with_logits(y, x, reduction="sum")
        loss = likeness - 0.5 * (1 + spread - mean * mean - spread.exp()).sum()
        loss.backward()
        optimiser.step()
        return loss

    return Program(step, batches)


def gan(lib: Library) -> Program:
    """A generator 64-256-784 against a discriminator 784-256-1, on batches of 64."""
    nn, F = lib.nn, lib.F
    maker = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 784), nn.Tanh())
    judge = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 1))
    lib.prepare(maker)
    lib.prepare(judge)
    makers = lib.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = lib.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    random = np.random.default_rng(0)
    batches: list[Batch] = [
        [
            random.random((64, 784), np.float32),
            random.standard_normal((64, 64), np.float32),
            np.ones((64, 1), np.float32),
            np.zeros((64, 1), np.float32),
        ]
        for _ in range(BATCHES)
    ]

    def step(real: Any, noise: Any, ones: Any, zeros: Any) -> Any:
        made = maker(noise)
        judges.zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(real), ones)
        loss = loss + F.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
        loss.backward()
        judges.step()
        makers.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(made), ones)
        fooled.backward()
        makers.step()
        return loss + fooled

    return Program(step, batches)


def gpt(lib: Library) -> Program:
    """The character GPT of the baby configuration, with anneal's model or the peer's."""
    config = CONFIGS["baby"]
    if lib.name == "torch":
        from benchmarks.peers.torch_gpt import GPT

        model: Any = GPT(config)
        loss_of = model
    else:
        model = lib.nn.GPT(
            vocab_size=config.vocab,
            block_size=config.context,
            n_layer=config.layers,
            n_head=config.heads,
            n_embd=config.width,
        )
        loss_of = model.loss
    lib.prepare(model)
    optimiser = lib.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    random = np.random.default_rng(0)
    shape = (config.batch, config.context)
    batches = [[random.integers(0, config.vocab, shape).astype(np.int64) for _ in range(2)] for _ in range(BATCHES)]

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimiser.step()
        return loss

    return Program(step, batches)


CASES: dict[str, Callable[[Library], Program]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "vae": vae,
    "encoder": encoder,
    "gan": gan,
    "gpt": gpt,
}
