"""Steps inside a step: a model that learns to be fine-tuned, through the gradient of its gradients."""

from __future__ import annotations

import anneal as torch
from tests.programs.files._start import STEPS, normal


def forward(params: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    w1, b1, w2, b2 = params
    return torch.tanh(x @ w1 + b1) @ w2 + b2


def run() -> list[float]:
    shapes = [(1, 8), (8,), (8, 1), (1,)]
    params = [(torch.tensor(normal(i, *s)) * 0.5).requires_grad_() for i, s in enumerate(shapes)]
    optimizer = torch.optim.Adam(params, lr=0.01)
    x = torch.linspace(-2, 2, 10).unsqueeze(1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = torch.zeros(())
        for task in range(2):
            y = torch.sin(x + 0.5 * task + 0.1 * step)
            fast = params
            for _ in range(2):
                inner = ((forward(fast, x[::2]) - y[::2]) ** 2).mean()
                grads = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [p - 0.1 * g for p, g in zip(fast, grads, strict=True)]
            total = total + ((forward(fast, x[1::2]) - y[1::2]) ** 2).mean()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return losses
