"""Whether memory stays where it is: loops over large results, new inputs, many shapes, exceptions; and threads.

    python -m benchmarks.steady --device webgpu --calls 500 --json

Resident memory is the process's; a GPU's is what the device asked the driver for. Each loop tells both after its third
call, their largest values since, and at its end; `over` is the largest growth in results of that size.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anneal.backend import get_device
from anneal.tensor import Tensor, empty_cache, jit, no_grad


def resident() -> int:
    """Bytes of physical memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def result_loop(device: str, mbytes: int, calls: int, captured: bool) -> dict[str, Any]:
    """`r = f(x)`, again and again, without waiting."""
    d = get_device(device)
    x = Tensor(np.ones(mbytes * 250_000, np.float32), device=device).realize()
    run: Callable[[Tensor], Tensor] = lambda x: (x * 2 + 1).realize()
    f = jit(run) if captured else run
    first = largest = (0, 0)
    begun = time.perf_counter()
    r = None
    for n in range(calls):
        r = f(x)
        now = (resident(), d.held())
        if n == 2:
            first = largest = now
        elif n > 2:
            largest = max(largest[0], now[0]), max(largest[1], now[1])
    d.synchronize()
    seconds = time.perf_counter() - begun
    assert r is not None
    assert float(r[-1].item()) == 3.0
    over = [(b - a) / (mbytes * 1e6) for a, b in zip(first, largest, strict=True)]
    return {
        "loop": f"{mbytes} MB {'jit' if captured else 'eager'}", "calls": calls, "seconds": round(seconds, 2),
        "resident_mb": [round(first[0] / 1e6), round(largest[0] / 1e6)],
        "device_mb": [round(first[1] / 1e6), round(largest[1] / 1e6)], "over": [round(x, 2) for x in over],
    }  # fmt: skip


def returns(device: str, name: str, work: Callable[[], None]) -> dict[str, Any]:
    """Bytes in use before and after, and resident memory after an emptied cache."""
    d = get_device(device)
    work()  # what is compiled stays
    gc.collect()
    before, low = d.memory().in_use, resident()
    work()
    gc.collect()
    after, high = d.memory().in_use, resident()
    empty_cache()
    return {
        "loop": name, "in_use": [before, after], "resident_mb": [round(low / 1e6), round(high / 1e6)],
        "cached_after_empty": d.memory().cached, "resident_mb_after_empty": round(resident() / 1e6),
    }  # fmt: skip


def new_inputs(device: str, count: int) -> Callable[[], None]:
    w = Tensor(np.ones((256, 256), np.float32), device=device).realize()

    @jit
    def f(x: Tensor) -> Tensor:
        return (x @ w).relu()

    def work() -> None:
        kept = [f(Tensor(np.full((64, 256), n, np.float32), device=device)) for n in range(count)]
        assert kept[-1][0, 0].item() == (count - 1) * 256
        kept.clear()

    return work


def exceptions(device: str, count: int) -> Callable[[], None]:
    w = Tensor(np.ones((256, 256), np.float32), device=device).realize()

    def work() -> None:
        for n in range(count):
            x = Tensor(np.full((64, 256), n, np.float32), device=device)
            try:
                y = (x @ w).realize()
                (y + Tensor(np.ones(3, np.float32), device=device)).realize()
            except ValueError:
                continue
            raise AssertionError("shapes that do not fit")

    return work


def many_shapes(device: str, count: int) -> Callable[[], None]:
    def work() -> None:
        for n in range(count):
            assert (Tensor(np.ones(n + 1, np.float32), device=device) * 3).sum().item() == 3 * (n + 1)

    return work


def threads(device: str, calls: int, kind: str) -> dict[str, Any]:
    """Four threads, each calling one thing; how many results are wrong."""
    w = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    shared = Tensor(w, device=device)
    body: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda x: ((x @ shared).exp2() + 1, (x * 2).sum())
    f = jit(body)
    wrong: list[str] = []

    def values(n: int, g: Callable[[Tensor], tuple[Tensor, Tensor]]) -> bool:
        x = np.full((3, 4), n % 7 / 8, np.float32)
        y, total = g(Tensor(x, device=device))
        return bool(np.allclose(y.numpy(), np.exp2(x @ w) + 1, rtol=1e-5)) and total.item() == 2 * x.sum()

    def gradients(n: int) -> bool:
        x = np.arange(4, dtype=np.float32) + n % 5
        leaf = Tensor(np.full(4, 2.0, np.float32), device=device, requires_grad=True)
        (leaf * Tensor(x, device=device)).sum().backward()
        return leaf.grad is not None and bool((leaf.grad.numpy() == x).all())

    def switched_off(n: int) -> bool:
        with no_grad():
            return not (Tensor([float(n)], device=device, requires_grad=True) * 2).requires_grad

    kinds: dict[str, list[Callable[[int], bool]]] = {
        "jit": [lambda n: values(n, f)] * 4,
        "eager": [lambda n: values(n, body)] * 4,
        "gradients": [gradients, switched_off] * 2,
        "mixed": [lambda n: values(n, f), lambda n: values(n, body), gradients, switched_off],
    }

    def serve(number: int) -> None:
        check = kinds[kind][number]
        for n in range(calls):
            try:
                ok, said = check(n * 4 + number), ""
            except Exception as e:  # counted as wrong, whatever it is
                ok, said = False, repr(e)[:200]
            if not ok:
                wrong.append(said or f"call {n}")

    begun = time.perf_counter()
    workers = [threading.Thread(target=serve, args=(n,)) for n in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    seconds = round(time.perf_counter() - begun, 1)
    return {"threads": kind, "calls": 4 * calls, "wrong": len(wrong), "first": wrong[:2], "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "webgpu"])
    parser.add_argument("--mbytes", default="64,1600", help="sizes of results, in MB")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--thread-calls", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=5000)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    print(json.dumps({"device": get_device(a.device).describe().get("adapter", a.device)}), flush=True)
    jobs: list[Callable[[], dict[str, Any]]] = []
    for m in map(int, a.mbytes.split(",")) if a.mbytes else ():
        jobs += [lambda m=m, c=c: result_loop(a.device, m, a.calls, c) for c in (True, False)]  # type: ignore[misc]
    jobs += [
        lambda: returns(a.device, f"{a.inputs} new inputs, results kept and cleared", new_inputs(a.device, a.inputs)),
        lambda: returns(a.device, f"{a.inputs} exceptions", exceptions(a.device, a.inputs)),
        lambda: returns(a.device, f"{a.shapes} shapes", many_shapes(a.device, a.shapes)),
    ]
    if a.thread_calls:
        jobs += [lambda k=k: threads(a.device, a.thread_calls, k) for k in ("jit", "eager", "gradients", "mixed")]  # type: ignore[misc]
    for job in jobs:
        row = job()
        gc.collect()
        print(json.dumps(row) if a.json else "  ".join(f"{k}: {v}" for k, v in row.items()), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
