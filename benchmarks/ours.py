"""anneal's side of the comparisons: the step of `anneal train nanogpt`, run or only compiled."""

from __future__ import annotations

import importlib
import time
from typing import Any
from unittest import mock

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


class _NoDevice:
    """Limits of a WebGPU device on the specification's floor; it has no memory and runs nothing."""

    def __init__(self) -> None:
        from anneal.backend import Limits
        from anneal.uop import dtypes

        held = frozenset((dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool_))
        self.name, self.limits = "cpu", Limits(max_buffers=8, max_binding_bytes=128 << 20, dtypes=held)


def compile_once(config: Config) -> dict[str, Any]:
    """Seconds to trace, schedule and generate WGSL for one step; nothing runs and no device is opened.

    What realize() would have launched is collected instead. Weights, moments and the batch are taken for realized.
    """
    from anneal.codegen import generate
    from anneal.schedule import Plan
    from anneal.tensor import realize
    from anneal.uop import arena, toposort

    module = importlib.import_module("anneal.tensor.execution")
    plans: list[Plan] = []
    scheduling = [0.0]
    plan_for = module.plan_for

    def execute(plan: Plan, device: Any, inputs: list[Any], *_: Any) -> list[Any]:
        plans.append(plan)
        return [module.Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]

    def timed_plan(*args: Any) -> Any:
        start = time.perf_counter()
        result = plan_for(*args)
        scheduling[0] += time.perf_counter() - start
        return result

    nothing = _NoDevice()
    with (
        mock.patch.object(module, "execute", execute),
        mock.patch.object(module, "get_device", return_value=nothing),
        mock.patch.object(module, "plan_for", timed_plan),
    ):
        model, optimiser, x, y = prepare(config)
        realize([*model.parameters(), x, y])
        plans.clear()
        scheduling[0] = 0.0
        before = len(arena())
        start = time.perf_counter()
        loss = update(model, optimiser, x, y)
        realize([loss, *model.parameters()])
        scheduled = time.perf_counter()
        kernels = list(dict.fromkeys(k for plan in plans for k in plan.kernels))
        sources = [generate(k.sink).source for k in kernels]
        done = time.perf_counter()
    return {
        "seconds": done - start,
        "trace_s": scheduled - start - scheduling[0],
        "schedule_s": scheduling[0],
        "codegen_s": done - scheduled,
        "params": sum(p.numel() for p in model.parameters()),
        "kernels": sum(len(plan.calls) for plan in plans),
        "distinct_kernels": len(kernels),
        "nodes": len(arena()) - before,
        "kernel_nodes": sum(len(toposort((k.sink,))) for k in kernels),
        "wgsl_bytes": sum(map(len, sources)),
    }
