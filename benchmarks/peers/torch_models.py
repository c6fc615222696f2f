"""PyTorch's training steps of `benchmarks.models`: eager, f32, TF32 off; models by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks._harness import Config
from benchmarks.models import Case, Images
from benchmarks.peers.torch_gpt import GPT


class BasicBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or channels != out
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        layers: list[nn.Module] = []
        channels = width
        for n in range(4):
            out = width << n
            layers += [BasicBlock(channels, out, 1 + (n > 0)), BasicBlock(out, out, 1)]
            channels = out
        self.layers, self.fc = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return F.cross_entropy(self.fc(self.layers(x).mean((2, 3))), y)


def build(case: Case, device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model, whose call gives the loss, and a batch."""
    size = case.size
    with torch.device(device):
        if isinstance(size, Config):
            shape = (size.batch, size.context)
            return GPT(size), torch.randint(0, size.vocab, shape), torch.randint(0, size.vocab, shape)
        assert isinstance(size, Images)
        pictures = torch.randn(size.batch, 3, size.side, size.side)
        return ResNet18(size.width, size.classes), pictures, torch.randint(0, size.classes, (size.batch,))


def expected_bytes(case: Case) -> dict[str, int]:
    """What a step takes in PyTorch, without running it: what autograd keeps, counted on tensors without memory.

    `peak` is parameters and optimiser state, what is kept for the backward pass, and twice the largest of that: the
    gradient of the logits, or of the first activation, beside the one that it is made of. Gradients of parameters come
    as activations go. Workspaces of libraries are not in it. Attention is taken to keep no weights, as its kernels on
    GPUs do.
    """
    model, x, y = build(case, "meta")
    own = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
            alive.append(storage)
        return t

    alive: list[Any] = []
    attention = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = _Attention.fused
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            model(x, y)
    finally:
        F.scaled_dot_product_attention = attention
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    state = parameters * (2 if case.optimiser == "sgd" else 3)
    saved = sum(kept.values())
    return {"state": state, "saved": saved, "peak": state + saved + 2 * max(kept.values())}


class _Attention(torch.autograd.Function):
    """Attention as fused kernels have it: they keep queries, keys, values, the result, and a number for each row."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1]))
        return out

    @staticmethod
    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
        out: torch.Tensor = _Attention.apply(q, k, v)
        return out


class Step:
    def __init__(self, case: Case, device: str) -> None:
        self.device = "cuda" if device == "webgpu" and torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        self.model, self.x, self.y = build(case, self.device)
        parameters, fused = self.model.parameters(), self.device == "cuda" or None
        self.optimiser: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
            if case.optimiser == "sgd"
            else torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=fused)
        )

    def __call__(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.loss = self.model(self.x, self.y)
        self.loss.backward()
        self.optimiser.step()

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.detach())
