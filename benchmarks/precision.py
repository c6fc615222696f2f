"""Mixed precision: values and speed of products, steps of training in each precision, and their slowest kernels.

    ANNEAL_WEBGPU=dawn python -m benchmarks.precision --device webgpu --peers torch
    python -m benchmarks.precision --tiny          # a look at whether it works

Every part is said as it ends, so that a run that is cut off has told what it knew. `products`: float32 in each setting
of `set_float32_matmul_precision`, float16 and bfloat16, values against float64. `steps`: forward, backward and AdamW
of a GPT, waited for at the end of a round; the ten slowest kernels by their timestamps, with the steps among them that
subgroup matrices compute (MATRIX). The peer is PyTorch in float32, TF32 and bfloat16, with CUDA graphs.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks import _harness as h
from benchmarks.matmul import Product

PEERS = ("torch",)
PRECISIONS = ("float32", "float16", "bfloat16")
STEPS = {
    "full": h.CONFIGS["full"],
    "gpt2": h.Config(vocab=50304, layers=12, heads=12, width=768, context=1024, batch=8),
}
TINY = h.Config(vocab=64, layers=1, heads=2, width=32, context=16, batch=2)
PRODUCTS = (
    Product("square 4096", 4096, 4096, 4096),
    Product("square 1024", 1024, 1024, 1024),
    Product("qkv 16384x1152x384", 16384, 1152, 384),
    Product("mlp 16384x384x1536", 16384, 384, 1536),
    Product("a.T @ b 384x1152x16384", 384, 1152, 16384, ta=True),
    Product("a.T @ b 768x3072x8192", 768, 3072, 8192, ta=True),
    Product("a @ b.T 8192x50304x768", 8192, 50304, 768, tb=True),
    Product("odd 1000x1000x1000", 1000, 1000, 1000),
    Product("odd 16384x65x384, b.T", 16384, 65, 384, tb=True),
)
HOWS = ("highest", "high", "medium", "float16", "bfloat16")  # float32 in each setting; other dtypes


# -- products ---------------------------------------------------------------------------------------------------------


def product(case: Product, how: str, kernels: Any, positive: bool = False) -> dict[str, Any]:
    """TFLOP/s and the largest error of one product, as a part of the largest result; of positive operands, as a part of
    each result."""
    from anneal import set_float32_matmul_precision
    from anneal.tensor import Tensor

    kind = how if how in ("float16", "bfloat16") else "float32"
    a, b = ((np.abs(x) if positive else x) for x in case.inputs())
    x, y = (Tensor(v).cast(kind).realize() for v in (a, b))
    given = x.float().numpy(), y.float().numpy()
    set_float32_matmul_precision(how if kind == "float32" else "highest")
    try:
        left, right = x.transpose(-1, -2) if case.ta else x, y.transpose(-1, -2) if case.tb else y
        run, results = kernels.bind([left @ right])
        found = h.measure(run)
        wide = results()[0].astype(np.float32) if kind == "float16" else (left @ right).float().numpy()
    finally:
        set_float32_matmul_precision("highest")
    rows = np.unique(np.linspace(0, case.m - 1, 64).astype(int))
    left64 = (given[0].T if case.ta else given[0])[rows].astype(np.float64)
    exact = left64 @ (given[1].T if case.tb else given[1]).astype(np.float64)
    off = np.abs(wide[rows] - exact)
    error = (off / np.abs(exact)).max() if positive else off.max() / np.abs(exact).max()
    return {"TFLOP/s": case.flops / found["seconds"] / 1e12, "error": float(error), **kernels.details}


def products(args: argparse.Namespace) -> None:
    from benchmarks import ours

    kernels = ours.Kernels(args.device)
    print("device", kernels.about, flush=True)
    for case in PRODUCTS:
        case = case.tiny() if args.tiny else case
        for how in HOWS:
            said = _tried(product, case, how, kernels)
            print(f"product {case.name:26s} {how:9s} {said}", flush=True)
    for k in (256, 1024, 4096, 16384):
        case = Product(f"positive {k}", 1024, 1024, k)
        case = case.tiny() if args.tiny else case
        for how in HOWS:
            print(f"greatest error, K {k:5d} {how:9s} {_tried(product, case, how, kernels, True)}", flush=True)


def extremes(args: argparse.Namespace) -> None:
    """Products of operands with nan, inf, and magnitudes that float16 does not have."""
    from anneal import set_float32_matmul_precision
    from anneal.tensor import Tensor

    size = 32 if args.tiny else 512
    rng = np.random.default_rng(0)
    for name, scale in (("ones", 0), ("1e30 by 1e-30", 30), ("rows from 1e-18 to 1e18", None)):
        a, b = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
        if scale is None:
            a *= np.logspace(-18, 18, size, dtype=np.float32)[:, None]
        else:
            a, b = a * np.float32(10.0**scale), b * np.float32(10.0**-scale)
        a[3, 5], a[7, 1] = np.nan, np.inf
        b[:, 2] = 0
        with np.errstate(all="ignore"):
            exact = a.astype(np.float64) @ b.astype(np.float64)
        for how in ("highest", "high", "medium", "bfloat16"):
            set_float32_matmul_precision(how if how != "bfloat16" else "highest")
            x, y = (Tensor(v).cast("bfloat16" if how == "bfloat16" else "float32").realize() for v in (a, b))
            got = (x @ y).float().numpy().astype(np.float64)
            set_float32_matmul_precision("highest")
            same = (np.isnan(got) == np.isnan(exact)) & (np.isinf(got) == np.isinf(exact))
            whole = np.isfinite(exact) & np.isfinite(got)
            rows = np.where(whole, np.abs(exact), 0).max(1, keepdims=True)
            error = (np.where(whole, np.abs(got - exact), 0) / np.where(rows > 0, rows, 1)).max()
            print(f"extremes {name:26s} {how:9s} nan and inf right: {bool(same.all())}  error {error:.2e}", flush=True)


# -- steps ------------------------------------------------------------------------------------------------------------


class Ours:
    """A step under `autocast`, in `jit`; with float16 its losses are scaled."""

    def __init__(self, size: h.Config, device: str, precision: str) -> None:
        from anneal.amp import GradScaler, autocast
        from anneal.tensor import jit, realize
        from benchmarks import ours

        model, optimiser, self.x, self.y = ours.prepare(size)
        realize([self.x, self.y])
        scaler = GradScaler(device, enabled=precision == "float16")
        narrow = precision != "float32"

        def update(x: Any, y: Any) -> Any:
            with autocast(device, precision if narrow else None, narrow):
                loss = model.loss(x, y)
            optimiser.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            return loss

        self.step = jit(update)
        from anneal.backend import get_device

        self.device = get_device(device)

    def __call__(self) -> None:
        self.loss = self.step(self.x, self.y)

    def wait(self) -> None:
        self.device.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.item())

    def memory_gib(self) -> float:
        return float(self.device.memory().peak) / 2**30

    def slowest(self, count: int = 10) -> list[str]:
        """The slowest kernels of a step by their timestamps."""
        from anneal.codegen import Target, generate
        from anneal.runtime import Meter, metered

        with metered(Meter(part=1.0)) as meter:
            for _ in range(12):
                self()
            self.wait()
        found: list[tuple[float, str]] = []
        whole = launches = 0.0
        for plan, track in meter.tracks.items():
            if not track.counts[0]:
                continue
            same: defaultdict[str, list[int]] = defaultdict(list)
            for n, call in enumerate(plan.calls):
                same[call.kernel.name].append(n)
            for name, of in same.items():
                spread = track.of(of)
                seconds = spread.median if spread is not None else 0.0
                whole, launches = whole + seconds, launches + len(of)
                kernel = plan.calls[of[0]].kernel
                made = generate(kernel.sink, getattr(self.device, "target", None) or Target())
                opts = " ".join(f"{o.kind}({o.axis},{o.amount})" for o in made.opts)
                found.append((seconds, f"{len(of):3d} x {plan.calls[of[0]].phase:8s} {name}  {opts or 'in parts'}"))
        lines = [f"{s * 1e3:8.3f} ms {said}" for s, said in sorted(found, reverse=True)[:count]]
        return [f"{launches:.0f} launches, {whole * 1e3:.3f} ms by timestamps", *lines]


class Torch:
    """PyTorch's step in a precision, with CUDA graphs."""

    def __init__(self, size: h.Config, device: str, precision: str) -> None:
        import torch

        from benchmarks.peers import torch_gpt

        torch.cuda.reset_peak_memory_stats() if torch.cuda.is_available() else None
        self.step = torch_gpt.Step(size, device, "graphs" if torch.cuda.is_available() else "eager")
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        inner = self.step.forward
        if precision == "bfloat16":

            def forward(x: Any, y: Any) -> Any:
                with torch.autocast(self.step.device, torch.bfloat16):
                    return inner(x, y)

            self.step.forward = forward
        self.wait, self.last_loss = self.step.wait, self.step.last_loss

    def __call__(self) -> None:
        self.step()

    def memory_gib(self) -> float:
        import torch

        return float(torch.cuda.max_memory_allocated()) / 2**30 if torch.cuda.is_available() else 0.0

    def slowest(self) -> list[str]:
        return []


def step(name: str, size: h.Config, who: str, precision: str, args: argparse.Namespace) -> str:
    from anneal.backend import get_device

    gc.collect()
    if who == "anneal":
        get_device(args.device).reset_peak()
    start = time.perf_counter()
    made = (Torch if who == "torch" else Ours)(size, args.device, precision)
    made()
    made.wait()
    first = time.perf_counter() - start
    h.warm(made, made.wait)
    times = [h.pipelined_step(made, made.wait, 2 if args.tiny else args.steps) for _ in range(args.rounds)]
    said = f"{min(times):.3f} to {max(times):.3f} ms a step, first {first:.1f} s, peak {made.memory_gib():.2f} GiB"
    lines = [f"step {name} {who} {precision}: {said}, loss {made.last_loss():.4f}", *made.slowest()]
    return "\n    ".join(lines)


def steps(args: argparse.Namespace, peers: list[str]) -> None:
    from anneal.tensor import set_default_device

    set_default_device(args.device)
    for name, size in STEPS.items():
        if args.steps_of and name not in args.steps_of.split(","):
            continue
        size = TINY if args.tiny else size
        wanted = [("anneal", p) for p in PRECISIONS]
        wanted += [("torch", p) for p in ("float32", "tf32", "bfloat16") if "torch" in peers]
        for who, precision in wanted:
            print(_tried(step, name, size, who, precision, args), flush=True)


def _tried(work: Any, *args: Any) -> Any:
    """The result of some work; an error in words, so that the rest still runs."""
    try:
        found = work(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(found, dict):
        return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--peers", default="", help=f"a list of {', '.join(PEERS)}")
    parser.add_argument("--parts", default="steps,products,extremes", help="what is run, in this order")
    parser.add_argument("--steps-of", default="", help=f"a list of {', '.join(STEPS)}; all by default")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default 3)")
    parser.add_argument("--tiny", action="store_true", help="small sizes")
    args = parser.parse_args()
    peers = h.chosen_names(parser, args.peers, PEERS, "peer")
    parts = {
        "steps": lambda: steps(args, peers),
        "products": lambda: products(args),
        "extremes": lambda: extremes(args),
    }
    for part in args.parts.split(","):
        begun = time.perf_counter()
        print(f"== {part}", flush=True)
        parts[part]()
        print(f"== {part} took {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
