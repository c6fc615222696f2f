"""anneal's side of the comparisons: the step of `anneal train nanogpt`, run or only compiled."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks._harness import Config


def prepare(config: Config) -> tuple[Any, Any, Any, Any]:
    """Model, optimiser and a batch."""
    from anneal import nn
    from anneal.tensor import Tensor, manual_seed

    manual_seed(0)
    model = nn.GPT(
        vocab_size=config.vocab,
        block_size=config.context,
        n_layer=config.layers,
        n_head=config.heads,
        n_embd=config.width,
    )
    optimiser = nn.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    random = np.random.default_rng(0)
    shape = (config.batch, config.context)
    x, y = (Tensor(random.integers(0, config.vocab, shape).astype(np.int32)) for _ in range(2))
    return model, optimiser, x, y


def update(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
    """Forward, backward and AdamW, as one lazy graph; the loss."""
    loss = model.loss(x, y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss


class Step:
    """The step under `jit`, as examples/nanogpt.py runs it."""

    def __init__(self, config: Config, device: str) -> None:
        from anneal.backend import get_device
        from anneal.tensor import jit, realize, set_default_device

        set_default_device(device)
        self.device = get_device(device)
        self.model, self.optimiser, self.x, self.y = prepare(config)
        realize([self.x, self.y])
        self.step = jit(lambda x, y: update(self.model, self.optimiser, x, y))

    @property
    def about(self) -> dict[str, Any]:
        about = self.device.describe()
        name = about.get("adapter") or about.get("device") or self.device.name
        return {"device": str(name), "params": sum(p.numel() for p in self.model.parameters())}

    def __call__(self) -> None:
        self.loss = self.step(self.x, self.y)

    def wait(self) -> None:
        self.device.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.item())


def compile_once(config: Config) -> dict[str, Any]:
    """Seconds to trace, schedule and generate WGSL for one step; nothing of it runs and no GPU is opened.

    Weights and batch are made before the clock starts; so are tinygrad's.
    """
    from anneal.codegen import generate
    from anneal.schedule import clear_cache
    from anneal.tensor.execution import plan_of, tracing
    from anneal.uop import arena, toposort

    model, optimiser, x, y = prepare(config)
    clear_cache()
    before = len(arena())
    start = time.perf_counter()
    with tracing() as wanted:
        loss = update(model, optimiser, x, y)
    traced = time.perf_counter()
    plan = plan_of(list(dict.fromkeys([loss, *wanted])))
    scheduled = time.perf_counter()
    sources = [generate(k.sink).source for k in plan.kernels]
    done = time.perf_counter()
    return {
        "seconds": done - start,
        "trace_s": traced - start,
        "schedule_s": scheduled - traced,
        "codegen_s": done - scheduled,
        "params": sum(p.numel() for p in model.parameters()),
        "kernels": len(plan.calls),
        "distinct_kernels": len(plan.kernels),
        "nodes": len(arena()) - before,
        "kernel_nodes": sum(len(toposort((k.sink,))) for k in plan.kernels),
        "wgsl_bytes": sum(map(len, sources)),
    }
