"""GPT-2 trained on a GPU for each process: a step alone, together, and together with 16 bits on the wire.

`mpirun -n 2 python -m benchmarks.distributed gpu 8 1024` (docs/decisions/0041-mpi.md has the numbers). A process that
takes more than `PHASE` seconds from one row to the next says where it is, and ends all.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from anneal import nn
from anneal.backend import get_device
from anneal.distributed import Alone, Group, world
from anneal.tensor import Tensor, manual_seed
from anneal.training import Training, decayed

PHASE = 150


class Tokens(Training):
    """GPT-2 on random tokens; `batch` is of the whole group."""

    unit = "tokens"

    def __init__(self, group: Group, batch: int, context: int, layers: int, width: int, vocabulary: int) -> None:
        manual_seed(1)
        self.rng, self.context, self.vocabulary = np.random.default_rng(1), context, vocabulary
        heads = max(1, width // 64)
        model = nn.GPT(vocab_size=vocabulary, block_size=context, n_layer=layers, n_head=heads, n_embd=width)
        optimizer = nn.AdamW(decayed(model.parameters(), 0.1), lr=3e-4, betas=(0.9, 0.95))
        super().__init__(model, optimizer, steps=100, batch=batch * world().size, tokens=context, clip=1.0)
        self.group, self.batch = group, batch

    def next_batch(self) -> tuple[Tensor]:
        return (Tensor(self.rng.integers(0, self.vocabulary, (self.batch, self.context + 1), np.int32)),)

    def loss(self, windows: Tensor) -> Tensor:
        return self.model.loss(windows[:, :-1], windows[:, 1:])


def seconds(training: Training, steps: int) -> tuple[list[float], float]:
    """Milliseconds of each step, and the last loss."""
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        loss = float(training.step().item())
        times.append((time.perf_counter() - begun) * 1e3)
        print(f"{times[-1]:.0f}", end=" ", file=sys.stderr, flush=True)
    return times, loss


def measured(
    group: Group, batch: int, context: int = 1024, layers: int = 12, width: int = 768, vocabulary: int = 50257,
    steps: int = 12,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Rows as they come: adapters, reading results, and each way to train with the median milliseconds of a step."""
    faulthandler.dump_traceback_later(PHASE, exit=True)
    adapter = str(get_device("webgpu").describe().get("adapter"))
    names = group.all_gather([np.frombuffer(adapter.encode()[:64].ljust(64), np.uint8)])[0]
    yield {"adapters": [bytes(n).decode().strip() for n in names], "local_ranks": getattr(group, "local_size", 1)}
    for nbytes in (16 << 20, 64 << 20, 256 << 20):
        yield reading(nbytes)
    shape = (context, layers, width, vocabulary)
    every = batch * group.size
    ways: list[tuple[str, Group, int, str, str | None]] = [
        ("one alone", Alone(), batch, "float32", None),
        ("together", group, every, "float32", None),
        ("together, float16 on the wire", group, every, "float32", "float16"),
        ("all, no exchange", Alone(), batch, "float32", None),
        ("one alone", Alone(), batch, "float16", None),
        ("together", group, every, "float16", None),
        ("together, float16 on the wire", group, every, "float16", "float16"),
    ]
    one = 0.0
    for name, of, rows_of_all, precision, wire in ways:
        faulthandler.dump_traceback_later(PHASE, exit=True)
        begun = time.perf_counter()
        row: dict[str, Any] = {"way": name, "precision": precision, "ranks": of.size}
        if name != "one alone" or not group.rank:
            row |= trained(of, rows_of_all, shape, precision, wire, steps)
        group.barrier()
        one = row.get("ms", 0.0) if name == "one alone" else one
        if of.size > 1 and one:
            row["times_one"] = group.size * one / row["ms"]
        yield {**row, "whole_s": time.perf_counter() - begun}
    faulthandler.cancel_dump_traceback_later()


def trained(
    of: Group, rows_of_all: int, shape: tuple[int, ...], precision: str, wire: str | None, steps: int
) -> dict[str, Any]:
    """Some steps of a new model; each one's milliseconds are told on stderr as they come."""
    training = Tokens(of, rows_of_all, *shape)
    training.compute_in(precision)
    training.wire = wire
    before = (getattr(of, "waited", 0.0), getattr(of, "sent", 0))
    times, loss = seconds(training, steps)
    kept = times[min(4, steps - 1) :]
    made = {
        "ms": float(np.median(kept)), "least_ms": min(kept), "loss": loss,
        "waited_ms": (getattr(of, "waited", 0.0) - before[0]) / steps * 1e3,
        "sent_MB": (getattr(of, "sent", 0) - before[1]) / steps / 1e6,
        "memory_MB": get_device("webgpu").memory().peak / 1e6,
    }  # fmt: skip
    del training
    gc.collect()
    return made


def reading(nbytes: int) -> dict[str, Any]:
    """GiB/s of a result that the host reads, as a new array each time."""
    x = (Tensor(np.zeros(nbytes // 4, np.float32)) + 1).realize()
    found = []
    for _ in range(5):
        begun = time.perf_counter()
        x.numpy()
        found.append(nbytes / (time.perf_counter() - begun) / 2**30)
    return {"read_MiB": nbytes >> 20, "GiB_per_s": max(found)}
