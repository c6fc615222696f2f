"""What several processes do together, check by check; the first one prints a line of JSON with what came of each.

A check raises nothing where it holds at this rank. `python -m anneal launch -n 2 tests/distributed/program.py`. With
PER_HOST=2 they are done again, and told on another line, as if two processes had a host each: what was compiled is
there then.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal import distributed, nn, settings
from anneal.autograd import grad as autograd_grad
from anneal.distributed import (
    MPIGroup,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    recv,
    reduce_scatter,
    send,
)
from anneal.optim import AdamW, ZeroRedundancyOptimizer
from anneal.runtime import Collective, Launch, Step, observed
from anneal.tensor import Tensor, grad, jit, manual_seed
from anneal.training import Training, decayed

Check = Callable[[Any], None]
CHECKS: dict[str, Check] = {}
JOINED: list[Any] = []  # the group of all processes, as `init` made it
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8")


def check(f: Check) -> Check:
    CHECKS[f.__name__] = f
    return f


def of_rank(r: int, n: int, dtype: str) -> Any:
    return (np.arange(n) % 37 + r).astype(dtype)


@check
def each_takes_the_adapter_whose_turn_it_is(group: Any) -> None:
    gc.collect()
    assert settings.current().adapter == os.environ.get("ANNEAL_ADAPTER", f":{JOINED[0].local_rank}")


@check
def arrays_of_any_dtype_and_size(group: Any) -> None:
    ranks = range(group.size)
    for dtype in DTYPES:
        for n in (1, 7, 40_000):
            given = [of_rank(group.rank, n, dtype), of_rank(group.rank, 3 * n, dtype).reshape(3, n)]
            sums = [sum(of_rank(r, n, "float64") for r in ranks), sum(of_rank(r, 3 * n, "float64") for r in ranks)]
            for found, want in zip(group.all_reduce(given, "sum"), sums, strict=True):
                np.testing.assert_array_equal(found.reshape(-1), want.astype(dtype))
            np.testing.assert_array_equal(group.all_reduce(given, "max")[0], of_rank(group.size - 1, n, dtype))
            (gathered,) = group.all_gather(given[:1])
            np.testing.assert_array_equal(gathered, np.stack([of_rank(r, n, dtype) for r in ranks]))
            np.testing.assert_array_equal(group.broadcast(given[:1], group.size - 1)[0], gathered[-1])
            whole = np.concatenate([of_rank(r + group.rank, n, dtype) for r in ranks])
            (part,) = group.reduce_scatter([whole], "sum")
            want = sum(of_rank(group.rank + r, n, "float64") for r in ranks)
            np.testing.assert_array_equal(part, want.astype(dtype))


@check
def sums_are_in_the_order_of_the_ranks(group: Any) -> None:
    parts = [np.random.default_rng(r).normal(size=100_001).astype(np.float32) for r in range(group.size)]
    hosts = getattr(group, "hosts", 1)
    each = group.size // hosts
    sums = []
    for h in range(hosts):
        total = parts[h * each].copy()
        for p in parts[h * each + 1 : (h + 1) * each]:
            total += p
        sums.append(total)
    want = sums[0]
    for s in sums[1:]:
        want = want + s
    np.testing.assert_array_equal(group.all_reduce([parts[group.rank]], "sum")[0], want)
    np.testing.assert_array_equal(group.all_reduce([parts[group.rank]], "mean")[0], want / np.float32(group.size))


@check
def several_are_under_way_at_once(group: Any) -> None:
    waits = [group.begin_all_reduce([np.full(200_000 + i, i + group.rank, np.int64)], "sum") for i in range(6)]
    for i, wait in enumerate(waits):
        assert (wait()[0] == group.size * i + sum(range(group.size))).all()


@check
def tensors_eager_and_in_jit(group: Any) -> None:
    total = sum(range(1, group.size + 1))

    def step(x: Tensor) -> tuple[Tensor, ...]:
        y = x * (group.rank + 1)
        return all_reduce(y), all_reduce(y, op="max"), all_gather(y), broadcast(y, root=group.size - 1)

    captured = jit(step)
    for i in range(5):
        x = Tensor([float(i), 2.0])
        for found in (step(x), captured(x)):
            lists = [t.tolist() for t in found]
            assert lists[0] == [total * i, total * 2.0], lists
            assert lists[1] == lists[3] == [group.size * i, group.size * 2.0]
            assert lists[2] == [[(r + 1) * i, (r + 1) * 2.0] for r in range(group.size)]
    part = reduce_scatter(Tensor(np.arange(2 * group.size, dtype=np.float32)), op="mean")
    assert part.tolist() == [2.0 * group.rank, 2.0 * group.rank + 1]
    if group.size > 1:
        halved = all_reduce(Tensor([1.5, 2.5], dtype="bfloat16") * (group.rank + 1))
        assert halved.float().tolist() == [1.5 * total, 2.5 * total]


@check
def exchanges_of_one_tensor(group: Any) -> None:
    """By themselves, eager and in jit: small and large ones take other ways, and the root another than the rest."""
    root = group.size - 1
    ways = (all_reduce, all_gather, reduce_scatter, lambda t: broadcast(t, root=root))
    for n in (group.size, 840, 120_000):
        values = [of_rank(r, n, "float32") for r in range(group.size)]
        whole = sum(values)
        part = np.split(whole, group.size)[group.rank]
        for way, want in zip(ways, (whole, np.stack(values), part, values[root]), strict=True):
            captured = jit(way)
            for _ in range(3):
                x = Tensor(values[group.rank])
                np.testing.assert_array_equal(captured(x).numpy(), want)
                np.testing.assert_array_equal(way(x.realize()).numpy(), want)
                np.testing.assert_array_equal(x.numpy(), values[group.rank])


@check
def results_that_are_kept_stay(group: Any) -> None:
    """An eager exchange takes memory of one before, unless somebody uses that."""
    everybodys = sum(range(1, group.size + 1))
    made = []
    for n in range(12):
        y = all_reduce(Tensor([(group.rank + 1.0) * n] * 3).realize()).realize()
        assert y.tolist() == [float(everybodys * n)] * 3
        made.append(y if n % 3 else y[1:])
        made[1:] = made[-4:]
    assert [y.tolist()[-1] for y in made] == [everybodys * n for n in (0, 8, 9, 10, 11)]
    w = Tensor([1.0, 2.0], requires_grad=True)
    total = all_reduce(w).realize()
    for _ in range(5):
        all_reduce(Tensor([5.0, 5.0]).realize()).realize()
    (total * (group.rank + 1.0)).sum().backward()
    assert w.grad is not None
    assert (total.tolist(), w.grad.tolist()) == ([group.size, 2.0 * group.size], [everybodys] * 2)


@check
def gradients(group: Any) -> None:
    ranks = group.size
    mine = group.rank + 1.0
    everybodys = sum(range(1, ranks + 1))
    x = Tensor([mine, 2.0])
    assert grad(lambda v: (all_reduce(v * 3) * mine).sum())(x).tolist() == [3 * everybodys] * 2
    largest = grad(lambda v: (all_reduce(v, op="max") * mine).sum())(x).tolist()
    assert largest == [everybodys if group.rank == ranks - 1 else 0.0, everybodys / ranks]
    whole = Tensor(np.arange(float(2 * ranks)))
    scattered = grad(lambda v: (reduce_scatter(v) * mine).sum())(whole).tolist()
    assert scattered == [float(r + 1) for r in range(ranks) for _ in range(2)]
    gathered = grad(lambda v: (all_gather(v) * mine).sum())(x).tolist()
    assert gathered == [everybodys] * 2


@check
def messages(group: Any) -> None:
    if group.size == 1:
        return
    to, source = (group.rank + 1) % group.size, (group.rank - 1) % group.size

    @jit
    def round_trip(x: Tensor) -> Tensor:
        if group.rank % 2:
            got = recv(x, source)
            send(x * 2, to)
        else:
            send(x * 2, to)
            got = recv(x, source)
        return got + 1

    for i in range(4):
        for n in (1, 100_000):
            found = round_trip(Tensor(np.full(n, i + group.rank, np.float32)))
            assert found.tolist() == [2 * (i + source) + 1] * n
    barrier()


class Small(Training):
    """A perceptron on drawn points; two linear layers and two tables of a thousand numbers."""

    def __init__(self, group: Any, batch: int = 8) -> None:
        manual_seed(3)
        self.rng = np.random.default_rng(5)
        model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))
        optimizer = nn.AdamW(model.parameters(), lr=0.01)
        super().__init__(model, optimizer, steps=10, batch=batch, clip=1.0)
        self.group = group

    def next_batch(self) -> tuple[Tensor, ...]:
        return (
            Tensor(self.rng.normal(size=(self.batch, 6)).astype(np.float32)),
            Tensor(self.rng.normal(size=(self.batch, 3)).astype(np.float32)),
        )

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return ((self.model(x) - y) ** 2).mean()


def digest(training: Training) -> str:
    return hashlib.md5(b"".join([p.numpy().tobytes() for p in training.model.parameters()])).hexdigest()


@check
def training_by_slices_is_training_by_ranks(group: Any) -> None:
    """To the last bit, whatever the buckets are; one process adds up the same slices in the same order."""
    found = []
    for bucket in (None, 500, 5000):
        together = Small(group)
        together.bucket = bucket
        losses = [together.step().item() for _ in range(6)]
        found.append((losses, digest(together)))
    assert found[0] == found[1] == found[2]
    alone = Small(distributed.Alone())
    parameters = list(alone.model.parameters())

    @jit  # as the steps of `Training` are: what is not may be computed by NumPy, whose last bits are others
    def gradients(*batch: Tensor) -> list[Tensor]:
        loss = alone.loss(*batch)
        alone.optimizer.zero_grad()
        loss.backward()
        return [loss.detach(), *[p.grad for p in parameters if p.grad is not None]]

    @jit
    def update(means: list[Tensor]) -> None:
        for p, m in zip(parameters, means, strict=True):
            p.grad = m
        nn.clip_grad_norm_(parameters, 1.0)
        alone.optimizer.step()

    losses = []
    for _ in range(6):
        batch = [t.numpy() for t in alone.next_batch()]
        means: list[Any] = []
        for part in range(group.size):
            made = [t.numpy() for t in gradients(*[Tensor(np.split(b, group.size)[part]) for b in batch])]
            means = made if not means else [a + b for a, b in zip(means, made, strict=True)]
        means = [np.asarray(m / np.float32(group.size)) for m in means]
        losses.append(float(means[0]))
        update([Tensor(m) for m in means[1:]])
    hosts = getattr(group, "hosts", 1)
    if hosts == 1:
        assert (losses, digest(alone)) == found[0]
    same = group.all_gather([np.frombuffer(digest(together).encode(), np.uint8)])[0]
    assert (same == same[0]).all()


@check
def exchanges_start_while_the_backward_pass_goes_on(group: Any) -> None:
    training = Small(group)
    training.bucket = 500
    training.step()
    steps: list[Step] = []
    with observed(steps.append):
        training.update(*[training._part(x) for x in training.next_batch()])
    kinds = ["launch" if isinstance(s, Launch) else "start" if s.inputs else "wait" for s in steps]
    assert all(isinstance(s, (Launch, Collective)) for s in steps)
    if group.size > 1:
        first, last = kinds.index("start"), len(kinds) - 1 - kinds[::-1].index("start")
        assert "launch" in kinds[first:last], kinds
        assert kinds.index("wait") > last, kinds
        assert kinds[-1] == "launch"


@check
def gradients_of_sixteen_bits(group: Any) -> None:
    whole, half = Small(group), Small(group)
    half.wire = "float16"
    losses = [(whole.step().item(), half.step().item()) for _ in range(6)]
    assert all(abs(a - b) < 2e-3 * abs(a) for a, b in losses), losses


@check
def batches_are_normalised_together(group: Any) -> None:
    r = np.random.default_rng(1)
    x, y = [r.normal(size=(4 * group.size, 3, 2, 2)).astype(np.float32) + 1 for _ in range(2)]
    part = slice(4 * group.rank, 4 * (group.rank + 1))
    for momentum in (0.1, None):
        _are_normalised_together(group, x, y, part, momentum)


def _are_normalised_together(group: Any, x: Any, y: Any, part: slice, momentum: float | None) -> None:
    together, whole = nn.Sequential(nn.BatchNorm2d(3, momentum=momentum)), nn.BatchNorm2d(3, momentum=momentum)
    nn.SyncBatchNorm.convert_sync_batchnorm(together)

    def trained(norm: nn.Module, x: Any, y: Any) -> list[Any]:
        given = Tensor(x, requires_grad=True)
        ((norm(given) * Tensor(y)) ** 2).mean().backward()
        if norm is together:
            distributed.average_gradients(norm.parameters(), group)
        return [t.numpy() for t in (given.grad, *[p.grad for p in norm.parameters()], *norm.buffers())]  # type: ignore[union-attr]

    found, want = trained(together, x[part], y[part]), trained(whole, x, y)
    want[0] = want[0][part] * group.size  # there the mean is of more
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@check
def gradients_are_averaged_in_backward(group: Any) -> None:
    """As torch's users expect of DistributedDataParallel: eager, in jit, with accumulation, clipping and 16 bits."""
    r = np.random.default_rng(2)
    batches = [r.normal(size=(2, 4 * group.size, 6)).astype(np.float32) for _ in range(4)]
    mine = slice(4 * group.rank, 4 * (group.rank + 1))

    def trained(sync: bool, captured: bool, wire: str | None = None) -> list[Any]:
        manual_seed(group.rank if sync else 0)  # the first process's weights are taken
        net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))
        model = nn.parallel.DistributedDataParallel(net, process_group=group, wire=wire) if sync else net
        manual_seed(0)
        optimizer = nn.AdamW(net.parameters(), lr=0.01)

        def step(first: Tensor, second: Tensor) -> Tensor:
            optimizer.zero_grad()
            if sync:
                with model.no_sync():
                    (model(first) ** 2).mean().backward()
            else:
                (model(first) ** 2).mean().backward()
            loss = (model(second) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step(loss)
            return loss

        run = jit(step) if captured else step
        for n in range(4):
            first, second = [Tensor(b[mine] if sync else b) for b in batches[n % 4]]
            run(first, second).item()
        return [p.numpy() for p in net.parameters()]

    want = trained(False, False)
    for captured in (False, True):
        found = trained(True, captured)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
        same = group.all_gather([np.concatenate([a.reshape(-1) for a in found])])[0]
        assert (same == same[0]).all()
    for a, b in zip(trained(True, True, "bfloat16"), want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-2)


@check
def parameters_are_sharded(group: Any) -> None:
    """The losses are those of whole parameters, and each process has its part of all that trains."""
    rows = np.random.default_rng(3).integers(0, 11, (4, 2 * group.size, 9)).astype(np.int32)
    mine = slice(2 * group.rank, 2 * group.rank + 2)

    def trained(kind: str, captured: bool) -> tuple[list[float], dict[str, Any]]:
        manual_seed(0 if kind == "whole" else group.rank)  # the first process's weights are taken
        model = nn.GPT(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16)
        count = sum([p.numel() for p in model.parameters()])
        if kind != "whole":
            nn.parallel.fully_shard(model, model.h if kind == "units" else (), group)
        optimizer = nn.AdamW(decayed(model.parameters(), 0.1), lr=0.01)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model.loss(x[:, :-1], x[:, 1:])
            loss.backward()
            if kind == "whole":
                (mean,) = distributed.average_gradients(model.parameters(), group, [loss])
            else:
                mean = all_reduce(loss.detach(), group, "mean")
            if kind == "whole":
                nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            else:
                distributed.clip_parts(model.parameters(), 0.2, group)
            optimizer.step(mean)
            return mean

        run = jit(step) if captured else step
        losses = [run(Tensor(x[mine])).item() for x in rows]
        held = sum([p.numel() for p in model.parameters()]) / count
        moments = sum([t.numel() for s in optimizer.state.values() for t in s.values()]) / 2 / count
        assert max(held, moments) <= (1 if kind == "whole" else 1 / group.size) + 0.02
        return losses, {k: t.numpy() for k, t in nn.parallel.whole_state_dict(model, group).items()}

    want, weights = trained("whole", False)
    for kind, captured in (("parts", True), ("units", False), ("units", True)):
        losses, found = trained(kind, captured)
        np.testing.assert_allclose(losses, want, rtol=1e-5)
        assert found.keys() == weights.keys()
        for name, a in found.items():
            np.testing.assert_allclose(a, weights[name], rtol=1e-3, atol=1e-4, err_msg=name)


@check
def units_are_gathered_before_the_one_before_computes(group: Any) -> None:
    """In each direction, without jit and in a capture, which has the memory of two units' parameters at most."""
    count = 4
    manual_seed(0)
    model = nn.Sequential(*[nn.Linear(24, 24) for _ in range(count)])
    nn.parallel.fully_shard(model, list(model), group)
    x = Tensor(np.ones((5, 24), np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        for p in model.parameters():
            p.grad = None
        loss = (model(x) ** 2).mean()
        loss.backward()
        return sum([(p.grad**2).sum() for p in model.parameters()], loss.detach())

    def look(steps: list[Any]) -> None:
        gathers = [s.function for s in steps if isinstance(s, Collective) and "gather" in s.function.name]
        begun = [n for n, s in enumerate(steps) if isinstance(s, Collective) and s.function.under_way is not None]
        assert len(gathers) == 2 * (1 + 2 * (count - 1)), len(gathers)  # the first at once, others in two halves
        for n in begun:
            ends = [
                m
                for m, s in enumerate(steps)
                if isinstance(s, Collective) and s.function.ending is steps[n].function.under_way
            ]
            assert len(ends) == 1
            assert any(isinstance(s, Launch) and s.kernels for s in steps[n : ends[0]]), (n, ends)
        assert len(begun) == 2 * (count - 1)

    steps: list[Any] = []
    with observed(steps.append):
        want = step(x).item()
    look(steps)
    run = jit(step)
    for _ in range(3):
        np.testing.assert_allclose(run(x).item(), want, rtol=1e-5)
    (captured,) = run.captures.values()
    look(captured.steps)
    shapes = {(group.size, -(-24 * 24 // group.size), 1), (group.size, -(-24 // group.size))}
    held = {
        id(s)
        for c in captured.steps
        if isinstance(c, Collective) and "gather" in c.function.name
        for s, (shape, _) in zip(c.outputs, c.function.results, strict=True)
        if shape in shapes
    }
    assert 2 <= len(held) <= 4, held


@check
def units_are_differentiated_twice(group: Any) -> None:
    x = Tensor(np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5))
    found = []
    for kind in ("whole", "units"):
        manual_seed(2)
        model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
        if kind == "units":
            nn.parallel.fully_shard(model, [model[0], model[2]], group)
        first = autograd_grad((model(x) ** 3).sum(), model.parameters(), create_graph=True)
        sum([(g**2).sum() for g in first]).backward()
        # a process adds up its parts' squares alone: what it gets is the mean over the processes, not the sum
        given = [p.grad.numpy().reshape(-1) for p in model.parameters()]
        if kind == "units":
            given = [all_gather(Tensor(a), group).numpy().reshape(-1) for a in given]
        found.append(given)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(group.size * b[: a.size], a, rtol=2e-4, atol=1e-5)
        assert np.abs(a).max() > 1e-3


@check
def a_unit_that_changed_is_gathered_again(group: Any) -> None:
    """A gather that was started is not used where its parameters have changed, or another unit is called."""
    manual_seed(1)
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(3)])
    nn.parallel.fully_shard(model, list(model), group)
    x = Tensor(np.ones((2, 6), np.float32)).realize()
    first = model[0](x)
    for p in model[1].parameters():
        p.assign(p * 0 + 1)
    np.testing.assert_allclose(model[1](x).numpy(), np.full((2, 6), 7.0), rtol=1e-6)
    np.testing.assert_array_equal(model[0](x).numpy(), first.numpy())
    whole = nn.parallel.whole_state_dict(model, group)
    assert (whole["1.weight"].numpy() == 1).all()
    many = jit(lambda x: model[0](x))  # its replays leave what they have started
    for _ in range(40):
        np.testing.assert_array_equal(many(x).numpy(), first.numpy())
    np.testing.assert_allclose(model[1](x).numpy(), np.full((2, 6), 7.0), rtol=1e-6)
    barrier(group)


@check
def a_sharded_optimiser_is_the_whole_one(group: Any) -> None:
    """To the last bit, and its state dict is the whole one's: either goes on from the other's."""
    sharded, whole = Small(group), Small(group)
    sharded.clip = whole.clip = None
    made = ZeroRedundancyOptimizer(sharded.model.parameters(), AdamW, group, lr=0.01, bucket=4000)
    data = np.random.default_rng(group.rank)

    def run(training: Small, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = training.loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        if optimizer is not made:
            distributed.average_gradients(training.model.parameters(), group)
        optimizer.step(loss)
        return loss

    step = jit(run)
    optimizers = [(sharded, made), (whole, whole.optimizer)]
    for n in range(8):
        batch = [Tensor(data.normal(size=(4, k)).astype(np.float32)) for k in (6, 3)]
        losses = [step(training, optimizer, *batch).item() for training, optimizer in optimizers]
        assert losses[0] == losses[1]
        if n == 4:
            state, other = made.state_dict(), whole.optimizer.state_dict()
            assert state.keys() == other.keys(), (state.keys(), other.keys())
            for key in state:
                np.testing.assert_array_equal(state[key].numpy(), other[key].numpy(), key)
            arrays = {k: t.numpy() for k, t in state.items()}
            whole.optimizer.load_state_dict(arrays)
            made.load_state_dict(arrays)
    assert digest(sharded) == digest(whole)
    held = sum([t.numel() for s in made.state.values() for t in s.values()])
    all_of = sum([t.numel() for s in whole.optimizer.state.values() for t in s.values()])
    assert held <= all_of * (1 / group.size + 0.02), (held, all_of)


def main() -> None:
    per_host = int(os.environ.get("PER_HOST", "0"))
    group: Any = distributed.init(timeout=60)
    JOINED.append(group)
    do(group)
    if per_host:
        group.leave()
        from mpi4py import MPI

        group = MPIGroup(MPI.COMM_WORLD, 60, ranks_per_host=per_host)
        distributed.world.__globals__["_groups"][:] = [group]
        do(group)


def do(group: Any) -> None:
    """Do all checks, or those that CHECKS names."""
    names = os.environ.get("CHECKS", "").split() or list(CHECKS)
    found = {}
    for name in names:
        try:
            CHECKS[name](group)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
            print(f"{name} at rank {group.rank}: {found[name]}", flush=True)
            if isinstance(group, MPIGroup):
                group.abort()
    if group.rank == 0:
        print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
