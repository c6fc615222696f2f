"""Gradients of each example at once by torch.func, clipped and with noise; an ensemble of models at once."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from anneal.func import functional_call, grad, stack_module_state, vmap
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    start(0, model.parameters())
    x, y = torch.tensor(normal(1, 8, 3)), torch.tensor(normal(2, 8, 1))
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss_of(params: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(model, params, (sample.unsqueeze(0),))
        return F.mse_loss(out, target.unsqueeze(0))

    losses = []
    for step in range(STEPS):
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        scale = (1.0 / norms).clamp(max=1.0)
        new = {}
        for n, (k, g) in enumerate(each.items()):
            clipped = torch.einsum("i,i...->...", scale, g) / 8
            new[k] = params[k] - 0.2 * (clipped + 0.01 * torch.tensor(normal(100 * step + n, *clipped.shape)))
        params = new
        losses.append(F.mse_loss(functional_call(model, params, (x,)), y).item())
    models = [nn.Linear(3, 1) for _ in range(4)]
    for i, m in enumerate(models):
        start(10 + i, m.parameters())
    stacked, buffers = stack_module_state(models)

    def one(p: dict[str, torch.Tensor], b: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(models[0], (p, b), (data,))
        return out

    losses += vmap(one, in_dims=(0, 0, None))(stacked, buffers, x).mean(dim=(1, 2)).tolist()
    return losses
