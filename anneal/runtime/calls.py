"""Calls of the host in a graph: they are made first, between launches, and memory takes their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anneal.backend import AnyDevice, OpaqueBuffer, Storage, get_device
from anneal.rewrite import rebuild
from anneal.runtime.context import here
from anneal.runtime.host import HostFunction
from anneal.runtime.nodes import buffer_leaf, is_realized, storage_of
from anneal.runtime.steps import HostCall
from anneal.uop import DType, Op, UOp, arena, toposort

__all__ = ["around_host_calls", "call_host"]

# (nodes, those of them that are lazy, device) -> the nodes as leaves: one launch
Launched = Callable[[Sequence[UOp], list[UOp], str], list[UOp]]


def around_host_calls(uops: Sequence[UOp], lazy: list[UOp], device_name: str, launched: Launched) -> list[UOp]:
    """Compute `uops` on one device, the calls of the host first; `lazy` are those of them that are not in memory.

    Calls that need no other's results have their inputs computed together, by `launched`.
    """
    depth: dict[UOp, int] = {}
    waves: list[dict[tuple[HostFunction, tuple[UOp, ...]], list[UOp]]] = []
    for u in toposort(lazy):
        depth[u] = at = max([depth[s] for s in u.src], default=0)
        if u.op is Op.HOST_CALL:
            depth[u] = at + 1
            if at == len(waves):
                waves.append({})
            waves[at].setdefault((u.arg[0], u.src), []).append(u)
    computed: dict[UOp, UOp] = {}  # the results of calls as leaves, and the nodes over them
    for wave in waves:
        sources = [[rebuild(s, _in_its_place, computed) for s in src] for _, src in wave]
        flat = list(dict.fromkeys([s for src in sources for s in src]))
        leaves = dict(zip(flat, launched(flat, [s for s in flat if not is_realized(s)], device_name), strict=True))
        for ((function, _), nodes), src in zip(wave.items(), sources, strict=True):
            outputs = _call_host(function, [leaves[s] for s in src], device_name)
            for u in nodes:
                outputs[u.arg[1]].line = u.provenance[1:3]
                computed[u] = buffer_leaf(outputs[u.arg[1]], u.shape)
    final = {u: rebuild(u, _in_its_place, computed) for u in lazy}
    shown: set[Storage] = set()
    for n, (old, u) in enumerate(final.items()):
        # each has memory of its own, as everything that is realized: a jit may update one of them in place
        s = storage_of(u)
        if s is not None and (s in shown or s.owner is not None):
            final[old] = UOp(Op.CONTIGUOUS, u.dtype, (u,), tag=("host", n))
        elif s is not None:
            shown.add(s)
    wanted = [final.get(u, u) for u in uops]
    return launched(wanted, [u for u in dict.fromkeys(wanted) if not is_realized(u)], device_name)


def _in_its_place(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` over memory that was not there before, with the line that `u` has."""
    return u if src == u.src else arena().again(u, src, u.arg)


def _call_host(function: HostFunction, inputs: Sequence[UOp], device_name: str) -> list[Storage]:
    """The storages of the results of a function of the host."""
    given = [s for u in inputs if (s := storage_of(u)) is not None]
    outputs = [Storage(math.prod(shape), dtype, device_name) for shape, dtype in function.results]
    step = HostCall(function, given, [u.shape for u in inputs], outputs)
    kinds = [(u.shape, u.dtype) for u in inputs]
    call_host(function, kinds, get_device(device_name), [s.ensure() for s in given], [s.ensure() for s in outputs])
    for observe in here.observers:
        observe(step)
    return outputs


def call_host(
    function: HostFunction,
    kinds: Sequence[tuple[tuple[int, ...], DType]],
    device: AnyDevice,
    inputs: Sequence[OpaqueBuffer],
    outputs: Sequence[OpaqueBuffer],
) -> None:
    """Read the inputs, of these shapes and dtypes, call the function and write the outputs. What it raises is
    raised.
    """
    with device.lock:
        pieces = [(b, math.prod(shape), dtype) for b, (shape, dtype) in zip(inputs, kinds, strict=True)]
        given = device.download_all(pieces)
    before, here.in_host_call = here.in_host_call, True
    try:
        made = function.arrays([a.reshape(shape) for a, (shape, _) in zip(given, kinds, strict=True)])
    finally:
        here.in_host_call = before
    with device.lock:
        for buffer, array in zip(outputs, made, strict=True):
            device.upload(buffer, array.reshape(-1))
