"""Data parallel training on MPI, measured: `mpirun -n N python -m benchmarks.distributed WHAT`.

    scaling [BATCH]      a step of nanogpt by one rank and by all of them, rounds in turn, with and without exchanges
    collectives          each kind of exchange, 1 KB to 64 MB, beside mpi4py's own on NumPy arrays
    equality [STEPS]     losses and weights of N ranks beside one process that sums the same N slices in their order
    gpu [BATCH]          GPT-2 small, BATCH x 1024 tokens for each rank, float32 and with 16 bits on the wire

On a machine of few cores bind each rank to one: `mpirun --bind-to core`, with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anneal import distributed, settings
from anneal.distributed import Alone, Group
from anneal.training import Training, load_example

ROUNDS, STEPS = 12, 5


def nanogpt(group: Group, batch: int) -> Any:
    """The example in training by a group; `batch` is of all its ranks."""
    made: Any = load_example("nanogpt").make(steps=200, batch=batch * distributed.size(), seed=1, lr=3e-3)
    made.group, made.batch = group, batch
    return made


def delayed() -> float:
    """The seconds that this process could have run and had no core, since other programs had it (Linux)."""
    told = Path("/proc/self/schedstat")
    return int(told.read_text().split()[1]) * 1e-9 if told.is_file() else 0.0


def timed(training: Any, steps: int = STEPS) -> Any:
    """Of some steps the seconds, those of the processor, which other programs hardly change, those without a core, and
    those of waiting for other ranks.

    A step before them is not counted: a rank that has waited for another one comes from a pause, with cold caches.
    """
    training.step().item()

    def now() -> Any:
        return np.array([time.perf_counter(), time.process_time(), delayed(), getattr(training.group, "waited", 0.0)])

    begun = now()
    for _ in range(steps):
        loss = training.step()
    loss.item()
    return now() - begun


def scaling(group: Group, batch: int = 32) -> dict[str, Any]:
    """Medians over rounds: one rank with the whole batch, all with their parts, all with parts and no exchange.

    What several ranks take is the mean of theirs. `without_a_core` is the share of each one's time in which other
    programs had its core: where that is more than a hundredth, ratios of seconds say little.
    """
    together = nanogpt(group, batch)
    apart = nanogpt(Alone(), batch // group.size)
    alone = nanogpt(Alone(), batch)
    for training in (together, apart, alone):
        timed(training, 6)
    times: dict[str, list[Any]] = {"one": [], "all": [], "apart": []}
    for _ in range(ROUNDS):
        group.barrier()
        if group.rank == 0:
            times["one"].append(timed(alone))
        group.barrier()
        times["all"].append(timed(together))
        group.barrier()
        times["apart"].append(timed(apart))
    seconds, _, idle, waited = np.sum(times["all"], 0)
    mine = [*np.median(times["all"], 0), *np.median(times["apart"], 0), waited / seconds, idle / seconds]
    (ranks,) = group.all_gather([np.array(mine)])
    if group.rank:
        return {}
    found = np.array([np.median(times["one"], 0), *ranks[:, :8].mean(0).reshape(2, 4)]) / STEPS * 1e3
    (one, every, free), work = found[:, 0].tolist(), found[:, 1].tolist()
    return {
        "batch": batch, "ranks": group.size, "one_ms": one, "all_ms": every, "without_exchange_ms": free,
        "ratio": one / every, "ratio_without_exchange": one / free, "of_that": free / every,
        "processor_ms": work, "processor_ratio": work[0] / work[1], "of_that_processor": work[2] / work[1],
        "waiting_share": ranks[:, 8].tolist(), "without_a_core": ranks[:, 9].tolist(),
    }  # fmt: skip


def best_of(call: Callable[[], Any], group: Group, times: int) -> float:
    """Seconds of a call, the best of rounds of `times`: many where they are short, since others use the cores."""
    found: list[float] = []
    while len(found) < 5 or (sum(found) * times < 0.05 and len(found) < 100):
        call()
        group.barrier()
        begun = time.perf_counter()
        for _ in range(times):
            call()
        found.append(group.all_reduce([np.array([time.perf_counter() - begun])], "max")[0][0] / times)
    return min(found)


def collectives(group: Group) -> Iterator[dict[str, Any]]:
    """Microseconds of each kind of exchange by size: MPI's own, the group's, and those of tensors, in jit and eager."""
    return (row_of(group, 1 << n) for n in range(10, 27, 2))


def there_and_back(send: Callable[[], Any], receive: Callable[[], Any], first: bool) -> Callable[[], Any]:
    """A message to the other rank of a pair, and one back."""
    one, other = (send, receive) if first else (receive, send)
    return lambda: (one(), other())


def row_of(group: Group, nbytes: int) -> dict[str, Any]:
    """Exchanges of one size, a message one way; those in jit are less an addition in jit."""
    from mpi4py import MPI

    from anneal.tensor import Tensor, jit

    comm, size, first = MPI.COMM_WORLD, group.size, group.rank % 2 == 0
    given = np.ones(nbytes // 4, np.float32)
    out, part, whole = (
        np.empty_like(given),
        np.empty(given.size // size, np.float32),
        np.empty((size, given.size), np.float32),
    )
    x = Tensor(given, device="cpu").realize()
    other = group.rank ^ 1
    pairs = size % 2 == 0
    kinds: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any]]] = {
        "sum": (
            lambda: comm.Allreduce(given, out),
            lambda: group.all_reduce([given], "sum"),
            lambda t: distributed.all_reduce(t, group),
        ),
        "gather": (
            lambda: comm.Allgather(given, whole),
            lambda: group.all_gather([given]),
            lambda t: distributed.all_gather(t, group),
        ),
        "scatter": (
            lambda: comm.Reduce_scatter_block(given, part),
            lambda: group.reduce_scatter([given], "sum"),
            lambda t: distributed.reduce_scatter(t, group),
        ),
        "broadcast": (
            lambda: comm.Bcast(given, 0),
            lambda: group.broadcast([given], 0),
            lambda t: distributed.broadcast(t, group),
        ),
    }
    if pairs:
        kinds["message"] = (
            there_and_back(lambda: comm.Send(given, other), lambda: comm.Recv(out, other), first),
            there_and_back(lambda: group.send(given, other), lambda: group.receive(given, other), first),
            lambda t: there_and_back(
                lambda: distributed.send(t, other, group), lambda: distributed.recv(t, other, group), first
            )()[int(first)],
        )
    times = max(1, min(5, (1 << 22) // nbytes))
    plain = jit(lambda t: t + 1)
    add, op = (best_of(f, group, times) * 1e6 for f in (lambda: plain(x), lambda: Tensor.realize(x + 1)))
    row: dict[str, Any] = {"bytes": nbytes, "add_in_jit": round(add, 1), "eager_op": round(op, 1)}
    for name, (mpi, own, tensors) in kinds.items():
        step = jit(tensors)
        calls = (mpi, own, lambda step=step: step(x), lambda tensors=tensors: Tensor.realize(tensors(x)))
        for _ in range(3):
            step(x)
        took = np.array([best_of(f, group, times) for f in calls]) * 1e6 / (2 if name == "message" else 1)
        row[name] = [round(float(t), 1) for t in took]
        row[name][2] = round(row[name][2] - add / (2 if name == "message" else 1), 1)
    return row


def digest(training: Training) -> str:
    """What stands for the weights, bit by bit."""
    weights = b"".join([p.numpy().tobytes() for p in training.model.parameters()])
    return hashlib.blake2b(weights, digest_size=8).hexdigest()


def equality(group: Group, steps: int = 200, batch: int = 32) -> dict[str, Any]:
    """Losses and weights of all ranks, and of one process: by threads over the same slices, and on the whole batch."""
    together = nanogpt(group, batch)
    losses = [together.step().item() for _ in range(steps)]
    weights = group.all_gather([np.frombuffer(digest(together).encode(), np.uint8)])[0]
    if group.rank:
        return {}
    whole = nanogpt(Alone(), batch)
    wanted = [whole.step().item() for _ in range(steps)]
    sliced, other = in_slices(group.size, steps, batch)
    apart = np.abs(np.array(losses) - wanted)
    return {
        "ranks": group.size, "steps": steps, "digest": digest(together), "digest_of_slices": other,
        "ranks_equal": bool((weights == weights[0]).all()), "slices_equal": digest(together) == other and losses == sliced,
        "apart_at_50": float(apart[:50].max()), "apart": float(apart.max()), "last_loss": losses[-1],
    }  # fmt: skip


def in_slices(count: int, steps: int, batch: int) -> tuple[list[float], str]:
    """Losses and weights of one process that adds up the gradients of `count` slices in their order, with NumPy."""
    from anneal import nn
    from anneal.tensor import Tensor, jit

    training = nanogpt(Alone(), batch)
    parameters = training.optimizer.params

    @jit
    def gradients(part: Tensor) -> list[Tensor]:
        loss = training.loss(part)
        training.optimizer.zero_grad()
        loss.backward()
        return [loss.detach(), *[p.grad for p in parameters if p.grad is not None]]

    @jit
    def update(means: list[Tensor]) -> None:
        for p, g in zip(parameters, means, strict=True):
            p.grad = g
        nn.clip_grad_norm_(training.model.parameters(), training.clip or np.inf)
        training.optimizer.step()

    losses = []
    for _ in range(steps):
        if training.schedule is not None:
            training.schedule.step()
        (windows,) = training.next_batch()
        whole = windows.numpy()
        sums: list[Any] = []
        for part in np.split(whole, count):
            made = [g.numpy() for g in gradients(Tensor(part))]
            sums = made if not sums else [a + b for a, b in zip(sums, made, strict=True)]
        means = [s / np.float32(count) for s in sums]
        losses.append(float(means[0]))
        update([Tensor(m) for m in means[1:]])
    return losses, digest(training)


def gpu(group: Group, batch: int = 8, *shape: int) -> Iterator[dict[str, Any]]:
    """GPT-2 on `batch` rows a rank: alone, together, and together with 16 bits on the wire."""
    from benchmarks.distributed_gpu import measured

    return measured(group, batch, *shape)


def main() -> None:
    what, given = sys.argv[1], [int(n) for n in sys.argv[2:]]
    group = distributed.init(timeout=180)
    device = "webgpu" if what == "gpu" else "cpu"
    with settings.override(device=device):
        found = {"scaling": scaling, "collectives": collectives, "equality": equality, "gpu": gpu}[what](group, *given)  # type: ignore[operator]
        for row in [found] if isinstance(found, dict) else found:
            if group.rank == 0:
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
