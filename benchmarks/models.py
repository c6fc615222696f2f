"""The models whose memory is measured, and their training steps: run on a device, or only planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal import nn, settings
from anneal.backend import Storage, cost_models, get_device
from anneal.nn import init
from anneal.runtime import buffer_leaf, observed, storage_of, tracing
from anneal.schedule import Plan, donate, graph, plan_for
from anneal.tensor import Tensor, functional as F, jit, manual_seed, realize, set_default_device
from benchmarks._harness import Config

if TYPE_CHECKING:
    from anneal.runtime import Jit

GPT2 = Config(vocab=50257, layers=12, heads=12, width=768, context=1024, batch=8)


@dataclass(frozen=True)
class Images:
    """The sizes of a ResNet-18 and of its batch."""

    batch: int = 32
    side: int = 224
    width: int = 64
    classes: int = 1000


@dataclass(frozen=True)
class Case:
    """A model, its sizes, and the optimiser that trains it."""

    name: str
    size: Config | Images
    optimiser: str  # "adamw", or "sgd" with momentum

    def tiny(self) -> Case:
        """The same with sizes for a test."""
        if isinstance(self.size, Images):
            return replace(self, size=Images(batch=2, side=32, width=8, classes=10))
        return replace(self, size=Config(vocab=65, layers=2, heads=2, width=32, context=16, batch=4))


CASES = {
    "gpt2": Case("gpt2", GPT2, "adamw"),
    "resnet18": Case("resnet18", Images(), "sgd"),
    "resnet18-adamw": Case("resnet18-adamw", Images(), "adamw"),
}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, and what enters added to what they make of it."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet18(nn.Module):
    """He et al., 2015: images (batch, 3, side, side) to logits."""

    def __init__(self, width: int, classes: int) -> None:
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layers: list[nn.Module] = []
        channels = width
        for n in range(4):
            out = width << n
            self.layers += [BasicBlock(channels, out, 1 + (n > 0)), BasicBlock(out, out, 1)]
            channels = out
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


class Training:
    """A case's model and optimiser, one batch, and `update`, which makes the graph of a step."""

    def __init__(self, case: Case) -> None:
        size, random = case.size, np.random.default_rng(0)
        manual_seed(0)
        self.model: nn.Module
        self.loss: Callable[[Tensor, Tensor], Tensor]
        if isinstance(size, Images):
            model = self.model = ResNet18(size.width, size.classes)
            self.loss = lambda x, y: F.cross_entropy(model(x), y, ignore_index=None)
            pictures = random.standard_normal((size.batch, 3, size.side, size.side), np.float32)
            self.batch = Tensor(pictures), Tensor(random.integers(0, size.classes, size.batch).astype(np.int32))
        else:
            gpt = self.model = nn.GPT(
                vocab_size=size.vocab,
                block_size=size.context,
                n_layer=size.layers,
                n_head=size.heads,
                n_embd=size.width,
            )
            self.loss = gpt.loss
            shape = (2, size.batch, size.context)
            x, y = random.integers(0, size.vocab, shape).astype(np.int32)
            self.batch = Tensor(x), Tensor(y)
        if case.optimiser == "sgd":
            self.optimiser: nn.Optimizer = nn.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        else:
            self.optimiser = nn.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)

    def update(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.loss(x, y)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step(loss)
        return loss

    def state(self) -> list[Tensor]:
        """What outlives a step: parameters, running statistics, moments."""
        found = [t for *_, t in self.model._tensors(private=True)]
        found += [t for mine in self.optimiser.state.values() for t in mine.values()]
        found += [g.rate for g in self.optimiser.param_groups]
        return list({id(t): t for t in found}.values())


def planned(
    case: Case, max_buffers: int = 128, binding_bytes: int = (1 << 31) - 4
) -> tuple[Plan, dict[int, int], dict[str, float]]:
    """The plan of a captured training step on a GPU, the inputs that its outputs overwrite, and the seconds that it
    took.

    No device is opened, and the weights take no memory.
    """
    with tracing(), init.skipped():
        training = Training(case)
        for t in (*training.batch, *training.state()):
            _stand_in(t)
        training.update(*training.batch)  # makes the moments
    for t in training.state():
        _stand_in(t)
    before = {id(t): storage_of(t.uop) for t in training.state()}
    begun = time.perf_counter()
    with tracing() as wanted:
        loss = training.update(*training.batch)
    traced = time.perf_counter()
    nodes = list(dict.fromkeys([loss.uop, *[t.uop for t in wanted]]))
    with settings.override(cache=False):
        plan, inputs, _ = plan_for(graph(nodes), cost_models.gpu(max_buffers, binding_bytes))
    scheduled = time.perf_counter()
    slots = {id(s): n for n, s in enumerate(inputs)}
    outputs = dict(zip(nodes, plan.outputs, strict=True))
    pairs = {
        outputs[t.uop]: slots[id(before[id(t)])]
        for t in training.state()
        if t.uop in outputs and id(before[id(t)]) in slots
    }
    plan, overwritten = donate(plan, pairs, True)
    done = time.perf_counter()
    return (
        plan,
        overwritten,
        {"trace_s": traced - begun, "schedule_s": scheduled - traced, "donate_s": done - scheduled},
    )


def _stand_in(t: Tensor) -> None:
    """Let `t` show memory that is never written."""
    t.uop = buffer_leaf(Storage(t.uop.size, t.uop.dtype, "cpu"), t.shape)


class Step:
    """The step under `jit` on a device: callable, with `wait()`, `last_loss()` and, once captured, `plan`."""

    def __init__(self, case: Case, device: str) -> None:
        set_default_device(device)
        self.device = get_device(device)
        self.training = Training(case)
        realize(list(self.training.batch))
        self.kernels = self.calls = 0
        self.step: Jit[..., Tensor] = jit(self.training.update)

    def __call__(self) -> None:
        self.calls += 1
        seen: list[int] = []
        with observed(lambda step: seen.append(step.kernels)):
            self.loss = self.step(*self.training.batch)
        self.kernels = sum(seen) or self.kernels

    def wait(self) -> None:
        self.device.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.item())


@contextmanager
def watched(device: Any) -> Iterator[Mapping[str, int]]:
    """Within the block "peak" is the most bytes that the device has held so far, what is kept for reuse included."""
    seen = {"peak": device.held()}
    alloc = device.alloc

    def counting(size: int, dtype: Any) -> Any:
        buffer = alloc(size, dtype)
        seen["peak"] = max(seen["peak"], device.held())
        return buffer

    device.alloc = counting
    try:
        yield seen
    finally:
        del device.alloc
