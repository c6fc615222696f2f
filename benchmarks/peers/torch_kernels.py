"""PyTorch's own kernels, one operation at a time; on CUDA timed by its events, small ones inside a captured graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy.typing as npt
import torch
import torch.nn.functional as F

from benchmarks._harness import Run

Array = npt.NDArray[Any]
Bound = tuple[Run, Callable[[], list[Array]]]


class Kernels:
    """The contestant `torch`."""

    details: ClassVar[dict[str, Any]] = {}

    def __init__(self, device: str) -> None:
        self.device = "cuda" if device == "webgpu" and torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("highest")

    @property
    def about(self) -> dict[str, Any]:
        cuda = self.device == "cuda"
        return {"device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads"}

    def tensor(self, x: Array) -> torch.Tensor:
        return torch.from_numpy(x).to(self.device)

    def product(self, a: Array, b: Array, ta: bool, tb: bool) -> tuple[Run, Callable[[], Array]]:
        x, y = self.tensor(a), self.tensor(b)
        x, y = x.transpose(-1, -2) if ta else x, y.transpose(-1, -2) if tb else y
        out = torch.matmul(x, y)
        run = self._timed(lambda: torch.matmul(x, y, out=out), captured=True)
        return run, lambda: out.cpu().numpy()

    def convolution(self, x: Array, w: Array) -> tuple[Run, Callable[[], Array]]:
        image, weight = self.tensor(x), self.tensor(w)
        out = F.conv2d(image, weight, padding=1)
        return self._timed(lambda: F.conv2d(image, weight, padding=1)), lambda: out.cpu().numpy()

    def memory(self, op: str, arrays: Sequence[Array]) -> Bound:
        """One of `benchmarks.memory_bound`'s operations."""
        tensors = [self.tensor(a) for a in arrays]
        work = WORK[op](*tensors)
        results = [r.detach().clone() for r in work()]
        return self._timed(work), lambda: [r.cpu().numpy() for r in results]

    def _timed(self, work: Callable[[], Any], captured: bool = False) -> Run:
        if self.device == "cpu":
            return lambda count: _host_seconds(work, count)
        launches: dict[int, Callable[[], Any]] = {}

        def run(count: int) -> float:
            if count not in launches:
                launches.clear()
                launches[count] = _captured(work, count) if captured else lambda: _repeat(work, count)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            launches[count]()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3

        return run


def _captured(work: Callable[[], Any], count: int) -> Callable[[], Any]:
    """A CUDA graph of `count` repeats, so that the cost of a call is not timed; the calls themselves where it fails."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _repeat(work, 3)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            _repeat(work, count)
    except RuntimeError:
        return lambda: _repeat(work, count)
    return graph.replay


def _repeat(work: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        work()


def _host_seconds(work: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    _repeat(work, count)
    return time.perf_counter() - start


Work = Callable[[], Sequence[torch.Tensor]]


def _into(f: Callable[..., torch.Tensor], *args: Any) -> Work:
    """`f` writing over its first result: no allocation is timed."""
    out = f(*args)
    return lambda: [f(*args, out=out)]


def _plain(f: Callable[..., torch.Tensor], *args: Any) -> Work:
    def work() -> list[torch.Tensor]:
        with torch.no_grad():
            return [f(*args)]

    return work


def _backward(f: Callable[..., torch.Tensor], d: torch.Tensor, *args: torch.Tensor) -> Work:
    """The backward pass alone, over a graph that was made before."""
    given = [a.requires_grad_() for a in args]
    y = f(*given)
    return lambda: torch.autograd.grad(y, given, d, retain_graph=True)


def _cross_entropy_gradient(x: torch.Tensor, t: torch.Tensor) -> Work:
    x.requires_grad_()

    def work() -> list[torch.Tensor]:
        loss = F.cross_entropy(x, t)
        return [loss, *torch.autograd.grad(loss, [x])]

    return work


def _adamw(p: torch.Tensor, g: torch.Tensor) -> Work:
    fused = p.device.type == "cuda"
    optimiser = torch.optim.AdamW([p], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=fused or None)
    p.grad = g
    optimiser.step()

    def work() -> list[torch.Tensor]:
        optimiser.step()
        return [p]

    return work


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, w.shape, w, b)


def _rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, w.shape, w, 1e-5)


WORK: dict[str, Callable[..., Work]] = {
    "copy": lambda x: _into(torch.mul, x, 1.5),
    "gelu": lambda x: _plain(_gelu, x),
    "gelu backward": lambda x, d: _backward(_gelu, d, x),
    "softmax": lambda x: _plain(torch.softmax, x, -1),
    "softmax backward": lambda x, d: _backward(lambda x: torch.softmax(x, -1), d, x),
    "layer norm": lambda x, w, b: _plain(_layer_norm, x, w, b),
    "layer norm backward": lambda x, w, b, d: _backward(_layer_norm, d, x, w, b),
    "rms norm": lambda x, w: _plain(_rms_norm, x, w),
    "rms norm backward": lambda x, w, d: _backward(_rms_norm, d, x, w),
    "cross-entropy": lambda x, t: _plain(F.cross_entropy, x, t.long()),
    "cross-entropy and gradient": lambda x, t: _cross_entropy_gradient(x, t.long()),
    "AdamW": _adamw,
    "sum": lambda x: _plain(torch.sum, x),
    "column sum": lambda x: _plain(torch.sum, x, 0),
    "transpose": lambda x: _plain(lambda x: x.T.contiguous(), x),
}
