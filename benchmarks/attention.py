"""Causal attention, forward and backward, beside torch's: milliseconds a call, in one run.

    python -m benchmarks.attention                          4 x 16 heads of 4096 positions, 64 wide, float32, webgpu
    ANNEAL_WEBGPU=dawn python -m benchmarks.attention --dtype float16 --shape 1 16 32768 64
    python -m benchmarks.attention --device cpu --shape 2 4 128 16 --peers ""    a look at whether it works

Inputs take turns, so that nothing is computed once for all calls. Calls are asked for one after the other and waited
for at the end of a round of eight; the least and the median of three rounds are told.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS, CALLS, SETS = 3, 8, 2

Arrays = Sequence[npt.NDArray[Any]]


def inputs(shape: Sequence[int]) -> list[Arrays]:
    """Queries, keys, values and the result's gradient, several times."""
    random = np.random.default_rng(0)
    return [[random.standard_normal(shape).astype(np.float32) for _ in range(4)] for _ in range(SETS)]


def timed(call: Callable[[int], Any], wait: Callable[[], None]) -> str:
    """The text of what a call takes."""
    for n in range(2 * SETS):
        call(n)
    wait()
    took = []
    for _ in range(ROUNDS + 1):  # the first warms the clock
        begun = time.perf_counter()
        for n in range(CALLS):
            call(n)
        wait()
        took.append((time.perf_counter() - begun) / CALLS * 1e3)
    return f"{min(took[1:]):.2f} ms, median {statistics.median(took[1:]):.2f}"


def attention(F: Any) -> Callable[..., list[Any]]:
    """A function of tensors of a library, whose results and gradients it gives."""

    def run(*tensors: Any) -> list[Any]:
        q, k, v = [t.detach().requires_grad_(True) for t in tensors[:3]]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.backward(tensors[3])
        return [out.detach(), q.grad, k.grad, v.grad]

    return run


def ours(sets: Sequence[Arrays], dtype: str, device: str) -> None:
    """Print what anneal takes, eager and under jit."""
    import anneal as an
    from anneal.backend import get_device
    from anneal.runtime import realize
    from anneal.tensor import Tensor, functional as F, set_default_device

    set_default_device(device)
    found = get_device(device)
    about = found.describe()
    print(about.get("adapter") or about["name"], about.get("driver", ""), flush=True)
    given = [[Tensor(a).cast(dtype).realize() for a in s] for s in sets]
    run = attention(F)
    fast = an.jit(run)
    print("anneal, jit  ", timed(lambda n: fast(*given[n % SETS]), found.synchronize), flush=True)
    print("anneal, eager", timed(lambda n: realize(run(*given[n % SETS])), found.synchronize), flush=True)


def theirs(sets: Sequence[Arrays], dtype: str) -> None:
    """Print what torch takes."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = [[torch.tensor(a).to(device, getattr(torch, dtype)) for a in s] for s in sets]
    run = attention(torch.nn.functional)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    print(f"torch, {device}  ", timed(lambda n: run(*given[n % SETS]), wait), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=4, default=(4, 16, 4096, 64), help="batch, heads, length, width")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="webgpu")
    parser.add_argument("--peers", default="torch")
    args = parser.parse_args()
    sets = inputs(args.shape)
    ours(sets, args.dtype, args.device)
    if args.peers:
        theirs(sets, args.dtype)


if __name__ == "__main__":
    main()
