"""The programs, by kind: each takes the library and a source of numbers, and gives the losses of its steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.common import STEPS, normal, same_weights

Losses = list[float]
PROGRAMS: dict[str, Callable[[Any, np.random.Generator], Losses]] = {}


def program(function: Callable[[Any, np.random.Generator], Losses]) -> Callable[[Any, np.random.Generator], Losses]:
    PROGRAMS[function.__name__] = function
    return function


@program
def regression_by_hand(torch: Any, rng: Any) -> Losses:
    x, y = normal(torch, rng, 16, 3), normal(torch, rng, 16, 1)
    w, b = torch.zeros(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    losses = []
    for _ in range(STEPS):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
            w.clamp_(-0.5, 0.5)
        w.grad = b.grad = None
        losses.append(loss.item())
    return losses


@program
def mlp(torch: Any, rng: Any) -> Losses:
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))
    same_weights(torch, model, rng)
    data = torch.utils.data.TensorDataset(normal(torch, rng, 24, 4), torch.tensor(rng.integers(0, 3, 24)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses: Losses = []
    while len(losses) < STEPS:
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y.long())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses[:STEPS]


@program
def cnn(torch: Any, rng: Any) -> Losses:
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")
            self.norm = nn.BatchNorm2d(4)
            self.conv2 = nn.Conv2d(4, 8, 3, stride=2)
            self.drop = nn.Dropout2d(0.0)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
            x = self.drop(F.gelu(self.conv2(x)))
            return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

    model = same_weights(torch, Net(), rng)
    x, y = normal(torch, rng, 6, 1, 10, 10), torch.tensor(rng.integers(0, 3, 6)).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    losses = []
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@program
def vae(torch: Any, rng: Any) -> Losses:
    nn, F = torch.nn, torch.nn.functional
    encoder, decoder = nn.Linear(6, 4), nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))
    both = same_weights(torch, nn.ModuleDict({"encoder": encoder, "decoder": decoder}), rng)
    x = torch.sigmoid(normal(torch, rng, 10, 6))
    optimizer = torch.optim.AdamW(both.parameters(), lr=0.01, amsgrad=True)
    losses = []
    for _ in range(STEPS):
        noise = normal(torch, rng, 10, 2)
        mean, log_var = encoder(x).chunk(2, dim=-1)
        z = mean + noise * (0.5 * log_var).exp()
        loss = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        loss = loss - 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def gan(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    g = same_weights(torch, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 2)), rng)
    d = same_weights(torch, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1)), rng)
    og, od = torch.optim.RMSprop(g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-2, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(STEPS):
        real, noise = normal(torch, rng, 8, 2), normal(torch, rng, 8, 2)
        fake = g(noise)
        od.zero_grad()
        loss = criterion(d(real), torch.ones(8, 1)) + criterion(d(fake.detach()), torch.zeros(8, 1))
        loss.backward()
        od.step()
        og.zero_grad()
        fooled = criterion(d(fake), torch.ones(8, 1))
        fooled.backward()
        og.step()
        losses.append(loss.item() + fooled.item())
    return losses


@program
def lstm(torch: Any, rng: Any) -> Losses:
    nn = torch.nn

    class Tagger(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4, padding_idx=0)
            self.lstm = nn.LSTM(4, 5, batch_first=True)
            self.head = nn.Linear(5, 7)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.embed(x))[0])

    model = same_weights(torch, Tagger(), rng)
    x = torch.tensor(rng.integers(1, 7, (3, 5))).long()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x)[:, :-1].reshape(-1, 7), x[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def padded_encoder(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    model = same_weights(torch, nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False), rng)
    x, y = normal(torch, rng, 3, 5, 8), normal(torch, rng, 3, 5, 8)
    mask = torch.tensor(np.arange(5)[None] >= np.array([[5], [3], [2]]))
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = model(x, src_key_padding_mask=mask)
        loss = ((out - y) ** 2).masked_fill(mask.unsqueeze(-1), 0.0).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def lora(torch: Any, rng: Any) -> Losses:
    nn = torch.nn

    class LoRA(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any, rank: int) -> None:
            super().__init__()
            self.base = base
            for p in self.base.parameters():
                p.requires_grad_(False)
            self.a = nn.Parameter(torch.ones(rank, base.in_features) * 0.1)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x: Any) -> Any:
            return self.base(x) + x @ self.a.T @ self.b.T

    model = LoRA(same_weights(torch, nn.Linear(4, 3), rng), 2)
    assert len(list(model.parameters())) == 4
    optimizer = torch.optim.Adagrad([p for p in model.parameters() if p.requires_grad], lr=0.1)
    x, y = normal(torch, rng, 8, 4), normal(torch, rng, 8, 3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.MSELoss()(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def averaged_weights(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    model = same_weights(torch, nn.Linear(3, 1), rng)
    average = copy.deepcopy(model).requires_grad_(False)
    x, y = normal(torch, rng, 8, 3), normal(torch, rng, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, dampening=0.2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
            losses.append(nn.functional.mse_loss(average(x), y).item())
    return losses


@program
def pinn(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    model = same_weights(torch, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), rng)
    x = torch.tensor(np.linspace(0, 1, 9, dtype=np.float32)[:, None], requires_grad=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        u = model(x)
        first = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
        loss = ((second + u) ** 2).mean() + (model(torch.zeros(1, 1)) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def k_means(torch: Any, rng: Any) -> Losses:
    x = normal(torch, rng, 30, 2)
    centres = x[:3].clone()
    losses = []
    for _ in range(STEPS):
        distances = torch.cdist(x, centres)
        nearest, which = distances.min(dim=1)
        one_hot = torch.nn.functional.one_hot(which.long(), 3).float()
        centres = one_hot.T @ x / one_hot.sum(0).clamp(min=1).unsqueeze(1)
        losses.append((nearest**2).sum().item())
    return losses


@program
def resumed(torch: Any, rng: Any) -> Losses:
    nn = torch.nn

    def make() -> Any:
        model = nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.7)

    model, optimizer, scheduler = make()
    same_weights(torch, model, rng)
    x, y = normal(torch, rng, 8, 3), normal(torch, rng, 8, 1)
    losses = []
    for step in range(STEPS):
        if step == STEPS // 2:
            states = [thing.state_dict() for thing in (model, optimizer, scheduler)]
            model, optimizer, scheduler = make()
            for thing, state in zip((model, optimizer, scheduler), states, strict=True):
                thing.load_state_dict(state)
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@program
def residual_in_place(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    layers = same_weights(torch, nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), rng)
    x, y = normal(torch, rng, 8, 4), normal(torch, rng, 8, 4)
    optimizer = torch.optim.Adamax(layers.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        h = x * 1.0
        for layer in layers:
            h = h + 0
            h += nn.functional.silu(layer(h * 1.0))
        loss = nn.functional.mse_loss(h, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def per_sample_gradients(torch: Any, rng: Any) -> Losses:
    nn = torch.nn
    model = same_weights(torch, nn.Linear(3, 2), rng)
    x, y = normal(torch, rng, 6, 3), normal(torch, rng, 6, 2)
    params = list(model.parameters())
    losses = []
    for _ in range(STEPS):
        each = ((model(x) - y) ** 2).sum(1)
        slopes = [torch.autograd.grad(each[i], params, retain_graph=True) for i in range(6)]
        with torch.no_grad():
            for n, p in enumerate(params):
                rows = torch.stack([s[n].flatten() for s in slopes], dim=0)
                rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)
                p -= 0.1 * rows.mean(0).reshape(p.shape)
        losses.append(each.sum().item())
    return losses
