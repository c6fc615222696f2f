"""Fourteen training programs in the manner of tutorials, for `benchmarks.eager --cases tutorials`: one text for both.

Nothing in them is written for a compiler: lengths, learning rates and temperatures change between steps, values are
read to decide what comes next, weights are changed by hand, and models are evaluated between steps of training.
"""

from __future__ import annotations

import importlib
import math
import random as python_random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.eager_models import BATCHES, Library, Program

CASES: dict[str, Callable[[Library], Program]] = {}


def _case(make: Callable[[Any, Any], Program]) -> Callable[[Any, Any], Program]:
    """A program that takes the library as `import torch` gives it, and a source of arrays."""
    CASES[make.__name__] = lambda lib: make(importlib.import_module(lib.name), np.random.default_rng(0))
    return make


def _floats(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape, np.float32)


@_case
def makemore_bigram(torch: Any, rng: Any) -> Program:
    """One layer without a module: its weights are changed by hand."""
    W = torch.randn((27, 27), requires_grad=True)

    def step(xs: Any, ys: Any) -> Any:
        logits = torch.nn.functional.one_hot(xs, num_classes=27).float() @ W
        counts = logits.exp()
        probs = counts / counts.sum(1, keepdims=True)
        loss = -probs[torch.arange(len(xs)), ys].log().mean() + 0.01 * (W**2).mean()
        W.grad = None
        loss.backward()
        W.data += -50 * W.grad
        return loss

    return Program(step, [[rng.integers(0, 27, 256) for _ in range(2)] for _ in range(BATCHES)])


@_case
def makemore_mlp(torch: Any, rng: Any) -> Program:
    """Embedding, two layers by hand, a learning rate that decays at each step."""
    C, W1, b1 = torch.randn((27, 10)), torch.randn((30, 200)), torch.randn(200)
    W2, b2 = torch.randn((200, 27)), torch.randn(27)
    parameters = [C, W1, b1, W2, b2]
    for p in parameters:
        p.requires_grad = True
    X, Y = torch.tensor(rng.integers(0, 27, (2000, 3))), torch.tensor(rng.integers(0, 27, 2000))
    taken = 0

    def step(ix: Any) -> Any:
        nonlocal taken
        taken += 1
        h = torch.tanh(C[X[ix]].view(-1, 30) @ W1 + b1)
        loss = torch.nn.functional.cross_entropy(h @ W2 + b2, Y[ix])
        for p in parameters:
            p.grad = None
        loss.backward()
        lr = 0.1 * 0.999**taken
        for p in parameters:
            p.data += -lr * p.grad
        return loss

    return Program(step, [[rng.integers(0, 2000, 32)] for _ in range(BATCHES)])


@_case
def makemore_batchnorm(torch: Any, rng: Any) -> Program:
    """Batch normalisation by hand, with running statistics kept under no_grad."""
    W1, W2 = torch.randn((30, 100)) * (5 / 3) / 30**0.5, torch.randn((100, 27)) * 0.01
    gain, bias, b2 = torch.ones((1, 100)), torch.zeros((1, 100)), torch.zeros(27)
    mean_running, std_running = torch.zeros((1, 100)), torch.ones((1, 100))
    C = torch.randn((27, 10))
    parameters = [C, W1, W2, gain, bias, b2]
    for p in parameters:
        p.requires_grad = True

    def step(x: Any, y: Any) -> Any:
        nonlocal mean_running, std_running
        before = C[x].view(x.shape[0], -1) @ W1
        mean, std = before.mean(0, keepdim=True), before.std(0, keepdim=True)
        h = torch.tanh(gain * (before - mean) / std + bias)
        with torch.no_grad():
            mean_running = 0.999 * mean_running + 0.001 * mean
            std_running = 0.999 * std_running + 0.001 * std
        loss = torch.nn.functional.cross_entropy(h @ W2 + b2, y)
        for p in parameters:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad
        return loss

    return Program(step, [[rng.integers(0, 27, (32, 3)), rng.integers(0, 27, 32)] for _ in range(BATCHES)])


@_case
def language_model(torch: Any, rng: Any) -> Program:
    """An LSTM over texts of another length in each batch, with clipped gradients."""
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.lstm, self.head = nn.Embedding(60, 64), nn.LSTM(64, 128), nn.Linear(128, 60)

        def forward(self, x: Any) -> Any:
            h, _ = self.lstm(self.tokens(x))
            return self.head(h)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).view(-1, 60), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    lengths = [20, 27, 24, 31, 22, 29, 26, 33]
    return Program(step, [[rng.integers(0, 60, (n, 16)) for _ in range(2)] for n in lengths])


@_case
def translation(torch: Any, rng: Any) -> Program:
    """An encoder and a decoder that reads what it said, or what it should have, by a throw of the dice."""
    nn = torch.nn
    embed, encoder = nn.Embedding(50, 48), nn.GRU(48, 64)
    cell, head = nn.GRUCell(48, 64), nn.Linear(64, 50)
    parameters = [p for m in (embed, encoder, cell, head) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    dice = python_random.Random(0)

    def step(source: Any, target: Any) -> Any:
        optimizer.zero_grad()
        _, hidden = encoder(embed(source))
        h, token, loss = hidden[0], target[0], 0
        for t in range(1, target.shape[0]):
            h = cell(embed(token), h)
            logits = head(h)
            loss = loss + nn.functional.cross_entropy(logits, target[t])
            token = target[t] if dice.random() < 0.5 else logits.argmax(1).detach()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, [[rng.integers(0, 50, (9, 16)), rng.integers(0, 50, (5, 16))] for _ in range(BATCHES)])


@_case
def dqn(torch: Any, rng: Any) -> Program:
    """Deep Q-learning: an action chosen by a network, a memory of transitions, a slow target network."""
    nn = torch.nn

    def network() -> Any:
        return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))

    policy, target = network(), network()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    memory: deque[Any] = deque(maxlen=1000)
    dice = python_random.Random(0)
    taken = 0

    def step(state: Any, after: Any) -> Any:
        nonlocal taken
        taken += 1
        if dice.random() > 0.05 + 0.85 * math.exp(-taken / 1000):
            with torch.no_grad():
                action = policy(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[dice.randrange(2)]])
        memory.append((state, action, after, torch.tensor([float(action.item())])))
        if len(memory) < 32:
            return torch.tensor(0.0)
        states, actions, afters, rewards = zip(*dice.sample(memory, 32))
        values = policy(torch.cat(states)).gather(1, torch.cat(actions))
        with torch.no_grad():
            best = target(torch.cat(afters)).max(1).values
        expected = best * 0.99 + torch.cat(rewards)
        loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        slow, fast = target.state_dict(), policy.state_dict()
        for key in fast:
            slow[key] = fast[key] * 0.005 + slow[key] * 0.995
        target.load_state_dict(slow)
        return loss

    return Program(step, [[_floats(rng, 1, 4), _floats(rng, 1, 4)] for _ in range(BATCHES)])


@_case
def reinforce(torch: Any, rng: Any) -> Program:
    """A policy gradient over an episode, whose length differs, with returns normalised."""
    nn = torch.nn
    policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step(states: Any, rewards: Any) -> Any:
        logs, returns, total = [], [], 0.0
        for state in states:
            chances = torch.distributions.Categorical(logits=policy(state.unsqueeze(0)))
            action = chances.sample()
            logs.append(chances.log_prob(action))
        for r in reversed(rewards.tolist()):
            total = r + 0.99 * total
            returns.insert(0, total)
        aims = torch.tensor(returns)
        aims = (aims - aims.mean()) / (aims.std() + 1e-6)
        loss = torch.cat([-log * aim for log, aim in zip(logs, aims)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    lengths = [6, 9, 7, 10, 8, 11, 6, 9]
    return Program(step, [[_floats(rng, n, 4), _floats(rng, n)] for n in lengths])


@_case
def lora(torch: Any, rng: Any) -> Program:
    """Low-rank adapters beside frozen layers, with a warm-up of the learning rate."""
    nn = torch.nn

    class Adapted(nn.Module):  # type: ignore[misc]
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            for p in base.parameters():
                p.requires_grad = False
            self.a = nn.Parameter(torch.randn(8, base.in_features) * 0.02)
            self.b = nn.Parameter(torch.zeros(base.out_features, 8))

        def forward(self, x: Any) -> Any:
            return self.base(x) + (x @ self.a.T) @ self.b.T * 2.0

    model = nn.Sequential(Adapted(nn.Linear(256, 512)), nn.GELU(), nn.Dropout(0.1), Adapted(nn.Linear(512, 64)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 500))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return Program(step, [[_floats(rng, 32, 256), _floats(rng, 32, 64)] for _ in range(BATCHES)])


@_case
def vae(torch: Any, rng: Any) -> Program:
    """Noise drawn in the model, and a weight of the divergence that grows."""
    nn, F = torch.nn, torch.nn.functional
    inner, mean, spread = nn.Linear(784, 256), nn.Linear(256, 20), nn.Linear(256, 20)
    decoder = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 784), nn.Sigmoid())
    parameters = [p for m in (inner, mean, spread, decoder) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    taken = 0

    def step(x: Any) -> Any:
        nonlocal taken
        taken += 1
        h = F.relu(inner(x))
        mu, logvar = mean(h), spread(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        likeness = F.binary_cross_entropy(decoder(z), x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = likeness + min(1.0, taken / 1000) * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, [[rng.random((64, 784), np.float32)] for _ in range(BATCHES)])


@_case
def dcgan(torch: Any, rng: Any) -> Program:
    """Transposed convolutions against convolutions; labels and losses as the tutorial writes them."""
    nn = torch.nn
    maker = nn.Sequential(
        nn.ConvTranspose2d(32, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    judge = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    criterion = nn.BCELoss()
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    makers = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(real: Any) -> Any:
        judge.zero_grad()
        label = torch.full((real.shape[0],), 1.0)
        good = criterion(judge(real).view(-1), label)
        good.backward()
        fake = maker(torch.randn(real.shape[0], 32, 1, 1))
        label.fill_(0.0)
        bad = criterion(judge(fake.detach()).view(-1), label)
        bad.backward()
        judges.step()
        maker.zero_grad()
        label.fill_(1.0)
        fooled = criterion(judge(fake).view(-1), label)
        fooled.backward()
        makers.step()
        return good + bad + fooled

    return Program(step, [[_floats(rng, 16, 1, 16, 16)] for _ in range(BATCHES)])


@_case
def diffusion(torch: Any, rng: Any) -> Program:
    """Noise of a random amount is added to points, and a network says which noise it was."""
    nn = torch.nn
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    steps = nn.Embedding(100, 64)
    network = nn.Sequential(nn.Linear(66, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))
    average = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.Adam([*steps.parameters(), *network.parameters()], lr=1e-3)

    def step(x: Any) -> Any:
        t = torch.randint(0, 100, (x.shape[0],))
        noise = torch.randn_like(x)
        share = kept[t].unsqueeze(1)
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = nn.functional.mse_loss(network(torch.cat([noisy, steps(t)], dim=1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average, network.parameters()):
                old.mul_(0.995).add_(new, alpha=0.005)
        return loss

    return Program(step, [[_floats(rng, 128, 2)] for _ in range(BATCHES)])


@_case
def nanogpt(torch: Any, rng: Any) -> Program:
    """A small GPT with a schedule of the learning rate, evaluated on two batches at every fifth step."""
    nn, F = torch.nn, torch.nn.functional
    width, heads, time, vocab = 64, 4, 32, 65

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out, self.drop = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(0.1)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            B, T, C = x.size()
            q, k, v = [
                part.view(B, T, heads, C // heads).transpose(1, 2) for part in self.qkv(self.one(x)).split(C, dim=2)
            ]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.drop(self.out(y.transpose(1, 2).contiguous().view(B, T, C)))
            return x + self.drop(self.mlp(self.two(x)))

    tokens, places, head = nn.Embedding(vocab, width), nn.Embedding(time, width), nn.Linear(width, vocab)
    model = nn.ModuleList([tokens, places, *[Block() for _ in range(3)], head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    taken = 0

    def loss_of(x: Any, y: Any) -> Any:
        h = tokens(x) + places(torch.arange(x.shape[1]))
        for block in list(model)[2:-1]:
            h = block(h)
        return F.cross_entropy(head(h).view(-1, vocab), y.view(-1))

    def step(x: Any, y: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken % 5 == 0:
            model.eval()
            with torch.no_grad():
                sum([loss_of(x, y).item() for _ in range(2)])
            model.train()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(taken / 100, 1.0) * 0.999**taken
        loss = loss_of(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return Program(step, [[rng.integers(0, vocab, (12, time)) for _ in range(2)] for _ in range(BATCHES)])


@_case
def resnet(torch: Any, rng: Any) -> Program:
    """A residual network on small pictures, SGD with momentum, a one-cycle schedule, and the accuracy read."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.way = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.way = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            h = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(h)) + self.way(x))

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10_000)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        (out.argmax(1) == y).float().mean().item()
        return loss

    return Program(step, [[_floats(rng, 16, 3, 32, 32), rng.integers(0, 10, 16)] for _ in range(BATCHES)])


@_case
def gumbel_codes(torch: Any, rng: Any) -> Program:
    """An autoencoder through categories, drawn at a temperature that falls with each step."""
    nn, F = torch.nn, torch.nn.functional
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8 * 16))
    decoder = nn.Sequential(nn.Linear(8 * 16, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.RMSprop([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    taken = 0

    def step(x: Any) -> Any:
        nonlocal taken
        taken += 1
        logits = encoder(x).view(-1, 8, 16)
        codes = F.gumbel_softmax(logits, tau=max(0.5, math.exp(-1e-3 * taken)), hard=taken % 2 == 0)
        q = logits.softmax(-1)
        loss = F.mse_loss(decoder(codes.flatten(1)), x) + 1e-3 * (q * (q + 1e-9).log()).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, [[_floats(rng, 64, 64)] for _ in range(BATCHES)])
