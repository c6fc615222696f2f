"""anneal's side of the comparisons: the step of `anneal train nanogpt`, run or only compiled, and single kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._harness import Config, Run, resident_mib

Array = npt.NDArray[Any]
MAX_BUFFERS = 32  # of the adapter that is compiled for: what GPUs have


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
        self.calls = self.kernels = 0
        self.step = jit(lambda x, y: update(self.model, self.optimiser, x, y))

    @property
    def about(self) -> dict[str, Any]:
        about = self.device.describe()
        params = sum(p.numel() for p in self.model.parameters())
        return {
            "device": str(about.get("adapter") or about["name"]),
            "driver": str(about.get("driver", "")),
            "params": params,
            "kernels": self.kernels,
        }

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 2:  # the one that jit captures
            self._counted()
        else:
            self.loss = self.step(self.x, self.y)

    def _counted(self) -> None:
        from anneal.runtime import observed

        seen: list[int] = []
        with observed(lambda step: seen.append(step.kernels)):
            self.loss = self.step(self.x, self.y)
        self.kernels = sum(seen)

    def wait(self) -> None:
        self.device.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.item())


class Kernels:
    """Single pieces of work as their plans' kernels, timed on the device; see `benchmarks.matmul` and
    `memory_bound`.
    """

    def __init__(self, device: str) -> None:
        from anneal.backend import get_device
        from anneal.tensor import set_default_device

        set_default_device(device)
        self.device = get_device(device)
        self.details: dict[str, Any] = {}  # of the case at hand

    @property
    def about(self) -> dict[str, Any]:
        about = self.device.describe()
        return {"device": str(about.get("adapter") or about["name"]), "driver": str(about.get("driver", ""))}

    def product(self, a: Array, b: Array, ta: bool, tb: bool) -> tuple[Run, Callable[[], Array]]:
        from anneal.tensor import Tensor

        x, y = Tensor(a), Tensor(b)
        x, y = x.transpose(-1, -2) if ta else x, y.transpose(-1, -2) if tb else y
        run, results = self.bind([x @ y])
        return run, lambda: results()[0]

    def convolution(self, x: Array, w: Array) -> tuple[Run, Callable[[], Array]]:
        from anneal.tensor import Tensor, functional as F

        run, results = self.bind([F.conv2d(Tensor(x), Tensor(w), padding=1)])
        return run, lambda: results()[0]

    def memory(self, op: str, arrays: Sequence[Array]) -> tuple[Run, Callable[[], list[Array]]]:
        """One of `benchmarks.memory_bound`'s operations."""
        return self.bind(_work(op, *arrays))

    def bind(self, outputs: Sequence[Any]) -> tuple[Run, Callable[[], list[Array]]]:
        """What computes these lazy tensors, ready to run any number of times, and their values."""
        from anneal.backend import Storage
        from anneal.runtime import Execution, Launch, compiled
        from anneal.schedule import graph, plan_for

        device = self.device
        plan, inputs, _ = plan_for(graph([t.uop for t in outputs]), device.cost_model)
        made = [Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]
        bound = Execution(Launch(plan, inputs, made), device, compiled(plan, device))
        calls = [(device.compile(c.kernel.sink), [bound.buffers[v] for v in c.args]) for c in plan.calls]
        self.details = {"kernels": len(calls)}
        batches: dict[int, Any] = {}

        def run(count: int) -> float:
            if count not in batches:
                batches.clear()
                batches[count] = device.prepare(calls * count)
            seconds: float = batches[count].seconds()
            return seconds

        def results() -> list[Array]:
            bound.run()
            return [device.download(s.buffer, s.size, s.dtype).reshape(t.shape) for s, t in zip(made, outputs)]

        return run, results


def _work(op: str, *arrays: Array) -> Sequence[Any]:
    """The lazy results of one of `benchmarks.memory_bound`'s operations."""
    from anneal.tensor import Tensor, functional as F

    if op == "AdamW":
        return _adamw(*arrays)
    backward = op.endswith(("backward", "gradient"))
    given = [Tensor(a, requires_grad=backward and a.dtype == np.float32) for a in arrays]
    if op == "cross-entropy and gradient":
        loss = F.cross_entropy(*given)
        loss.backward()
        return [loss, given[0].grad]
    forward: dict[str, Callable[..., Any]] = {
        "copy": lambda x: x * 1.5,
        "gelu": lambda x: x.gelu("tanh"),
        "softmax": lambda x: x.softmax(-1),
        "layer norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        "rms norm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        "cross-entropy": F.cross_entropy,
        "sum": lambda x: x.sum(),
        "column sum": lambda x: x.sum(0),
        "transpose": lambda x: x.T.contiguous(),
    }
    if not backward:
        return [forward[op](*given)]
    *given, d = given
    forward[op.removesuffix(" backward")](*given).backward(d.detach())
    return [t.grad for t in given]


def _adamw(p: Array, g: Array) -> Sequence[Any]:
    """The second step: the first makes the moments."""
    from anneal import nn
    from anneal.runtime import tracing
    from anneal.tensor import Tensor

    parameter = Tensor(p, requires_grad=True)
    parameter.grad = Tensor(g)
    optimiser = nn.AdamW([parameter], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    optimiser.step()
    with tracing() as wanted:
        optimiser.step()
    lazy = list({id(t): t for t in wanted if t is not parameter}.values())
    return [parameter, *lazy]


def compile_once(config: Config) -> dict[str, Any]:
    """Seconds to trace, schedule and generate WGSL for one step; nothing of it runs and no GPU is opened.

    Weights and batch are made before the clock starts; so are tinygrad's. `mib`: what the process grew by meanwhile,
    with graph, plan and texts all alive, without the optimiser's moments.
    """
    import gc

    from anneal import settings
    from anneal.codegen import generate
    from anneal.runtime import here, plan_of, tracing
    from anneal.schedule import clear_cache
    from anneal.uop import arena, toposort

    model, optimiser, x, y = prepare(config)
    clear_cache()
    before = len(arena())
    gc.collect()
    resident = resident_mib()
    made: list[Any] = []
    here.made = made
    start, worked = time.perf_counter(), time.process_time()
    with tracing() as wanted:
        loss = update(model, optimiser, x, y)
    traced = time.perf_counter()
    here.made = None
    with settings.override(cache=False):
        plan = plan_of(list(dict.fromkeys([loss, *wanted])), MAX_BUFFERS)
    scheduled = time.perf_counter()
    sources = [generate(k.sink).source for k in plan.kernels]
    done = time.perf_counter()
    arrays = [m.storage.host for m in made if m.storage is not None]
    data = sum(a.nbytes for a in arrays if a is not None) / 2**20
    return {
        "seconds": done - start,
        "processor_s": time.process_time() - worked,
        "trace_s": traced - start,
        "schedule_s": scheduled - traced,
        "codegen_s": done - scheduled,
        "mib": resident_mib() - resident - data,
        "params": sum(p.numel() for p in model.parameters()),
        "kernels": len(plan.calls),
        "distinct_kernels": len(plan.kernels),
        "nodes": len(arena()) - before,
        "kernel_nodes": sum(len(toposort((k.sink,))) for k in plan.kernels),
        "wgsl_bytes": sum(map(len, sources)),
    }


def chain_once(length: int) -> dict[str, Any]:
    """Seconds to build a chain of `length` additions of two tensors, and to plan, compile and run it on the cpu."""
    from anneal import settings
    from anneal.tensor import Tensor, realize

    x, one = Tensor(np.zeros(4, np.float32), device="cpu"), Tensor(np.ones(4, np.float32), device="cpu")
    realize([x, one])
    y = x
    start = time.perf_counter()
    for _ in range(length):
        y = y + one
    built = time.perf_counter()
    with settings.override(cache=False):
        total = y.numpy()
    done = time.perf_counter()
    if (total != length).any():
        raise SystemExit(f"a chain of {length} additions of 1 came to {total}")
    return {"chain": length, "seconds": done - start, "build_s": built - start, "run_s": done - built}
