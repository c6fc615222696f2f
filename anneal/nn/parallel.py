"""Modules that several processes train together, under the names of `torch.nn.parallel`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from anneal.distributed import Group, average_gradients, broadcast_all, gathered, world
from anneal.nn._computed import compute, computed, functional_call
from anneal.nn._module import Module
from anneal.nn.parameter import Parameter
from anneal.runtime import here, realize
from anneal.tensor import Tensor, no_grad
from anneal.transforms import Function, vjp
from anneal.uop import DType

__all__ = ["DistributedDataParallel", "fully_shard", "shards_of", "whole_state_dict"]


class _Averaging:
    """The average of a module's gradients, which follows each backward pass that reached one of them."""

    def __init__(self, parameters: list[Tensor], group: Group, bucket: int | None, wire: DType | str | None) -> None:
        self.parameters, self.group, self.bucket, self.wire = parameters, group, bucket, wire
        self.on = True

    def reached(self, parameter: Tensor) -> None:
        """Note that a pass has added to a gradient."""
        if self.on and self not in here.after_backward:
            here.after_backward.append(self)

    def __call__(self) -> None:
        average_gradients(self.parameters, self.group, bucket=self.bucket, wire=self.wire)


class DistributedDataParallel(Module):
    """A module whose gradients are, after each `backward()`, their means over all processes.

    Each process computes on its own part of the batch, with the same code. Parameters and buffers are those of the
    first process from the beginning on. What follows, clipping and any optimiser, is as with one process.

    Args:
        module: the module that trains. Its parameters are those of `.module`, as in torch.
        device_ids: accepted as torch's: a process has one device.
        process_group: this participant's view of the group; None: all processes.
        bucket_cap_mb: MiB of gradients that are exchanged together; None: by the size of all.
        find_unused_parameters: accepted as torch's: parameters that no process used are left out in any case.
        wire: the dtype in which gradients travel, "float16" or "bfloat16"; None: their own.

    >>> from anneal import nn
    >>> model = DistributedDataParallel(nn.Linear(2, 1))
    >>> with model.no_sync():
    ...     model(Tensor.ones(4, 2)).mean().backward()  # these gradients add up, and travel with the next ones
    >>> model(Tensor.ones(4, 2)).mean().backward()
    >>> model.module.weight.grad
    Tensor([[2., 2.]], dtype=float32)
    """

    def __init__(
        self, module: Module, device_ids: Any = None, *, process_group: Group | None = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, wire: DType | str | None = None,
    ) -> None:  # fmt: skip
        group = world() if process_group is None else process_group
        bucket = None if bucket_cap_mb is None else int(bucket_cap_mb * 2**20)
        self.module = module
        parameters = list(module.parameters())
        broadcast_all([*parameters, *module.buffers()], group)
        self._averaging = _Averaging([p for p in parameters if p.requires_grad], group, bucket, wire)
        for p in self._averaging.parameters if group.size > 1 else ():
            p.register_post_accumulate_grad_hook(self._averaging.reached)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backward passes add to the gradients of this process alone, as for accumulation."""
        before, self._averaging.on = self._averaging.on, False
        try:
            yield
        finally:
            self._averaging.on = before


_SHARD = "_shard"  # behind the name of a parameter: the part of it that this process has


def fully_shard(module: Module, units: Iterable[Module] = (), group: Group | None = None) -> Module:
    """The module, of whose parameters each process keeps its part alone (ZeRO-3), and gradients and optimisers too.

    A parameter is gathered where it is used. Within a call of one of the `units`, layers say, the gathered ones and
    what is computed of them are dropped at its end, and computed again for its gradient. Gradients are means over the
    processes, of the parts, which `parameters()` are: any optimiser that treats each element by itself trains as if it
    had the whole.

    Args:
        module: changed in place, before the optimiser is made. The first process's parameters count.
        units: modules in it that are called with one tensor, and give one.
        group: this participant's view of the group; None: all processes.

    >>> from anneal import nn
    >>> model = fully_shard(net := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), units=[net[0]])
    >>> [name for name, _ in model.named_parameters()], model(Tensor.ones(4, 2)).shape
    (['0.weight_shard', '0.bias_shard', '1.weight_shard', '1.bias_shard'], (4, 1))
    """
    group = world() if group is None else group
    broadcast_all([*module.parameters(), *module.buffers()], group)
    whole: dict[int, Any] = {}  # a shared parameter has one shard
    for m in list(module.modules()):
        for name, p in list(m.named_parameters(recurse=False)):
            if id(p) not in whole:
                whole[id(p)] = _shard_of(p, group), p.shape, p
            part, shape, _ = whole[id(p)]
            compute(m, name, partial(_gathered, shape=shape, group=group))
            setattr(m, name + _SHARD, part)
    for unit in units:
        vars(unit)["forward"] = partial(_call_unit, unit, unit.forward)
    return module


def shards_of(module: Module) -> dict[str, Tensor]:
    """The parts that this process has of a module's parameters, by name; none if it is not sharded.

    >>> from anneal import nn
    >>> list(shards_of(fully_shard(nn.Linear(2, 3))))
    ['weight_shard', 'bias_shard']
    """
    named = module.named_parameters(remove_duplicate=False)
    return {name: p for name, p in named if name.endswith(_SHARD)}


def _shard_of(p: Tensor, group: Group) -> Parameter:
    """This process's part of a parameter: with two axes if it has, by which optimisers choose what decays."""
    size = -(-p.numel() // group.size)
    flat = np.zeros(size * group.size, p.numpy().dtype)
    flat[: p.numel()] = p.numpy().reshape(-1)
    mine = flat[group.rank * size : (group.rank + 1) * size]
    made = Tensor(mine.reshape(-1, 1) if p.ndim > 1 else mine.copy(), device=p.device)
    return Parameter(made, requires_grad=p.requires_grad)


def _gathered(module: Module, name: str, shape: tuple[int, ...], group: Group) -> Tensor:
    """The whole of a parameter."""
    part: Tensor = vars(module)[name + _SHARD]
    return gathered(part, group, "mean").reshape(-1)[: math.prod(shape)].reshape(shape)


def whole_state_dict(module: Module, group: Group | None = None) -> dict[str, Tensor]:
    """The `state_dict` that the module had before `fully_shard`. Every process calls this, and gets all of it.

    Args:
        group: as for `fully_shard`.

    >>> from anneal import nn
    >>> list(whole_state_dict(fully_shard(nn.Linear(2, 3))))
    ['weight', 'bias']
    """
    with no_grad():
        found = {
            f"{prefix}.{name}".removeprefix("."): getattr(m, name).detach()
            for prefix, m in module.named_modules()
            for name in computed(m)
            if name + _SHARD in vars(m)
        }
        rest = {k: t for k, t in module.state_dict().items() if not k.endswith(_SHARD)}
        realize([*found.values(), *rest.values()])
    return {**found, **rest}


class _Unit(Function):
    """A call of a unit: its argument and result are kept, and its parameters are gathered in each direction."""

    @staticmethod
    def forward(ctx: Any, call: Any, x: Tensor, *parts: Tensor) -> Tensor:
        y: Tensor = call(x, *parts)
        realize([y])
        ctx.call = call
        ctx.save_for_backward(x, *parts)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _, pull = vjp(ctx.call, *ctx.saved_tensors)
        made = pull(g)
        realize(list(made))
        return None, *made


def _call_unit(unit: Module, forward: Any, x: Tensor) -> Any:
    names = [name for name, _ in unit.named_parameters()]
    parts = [p for _, p in unit.named_parameters()]

    def call(x: Tensor, *parts: Tensor) -> Tensor:
        vars(unit)["forward"] = forward
        try:
            made: Tensor = functional_call(unit, dict(zip(names, parts, strict=True)), x)
            return made
        finally:
            vars(unit)["forward"] = outer

    outer = vars(unit)["forward"]
    realize([x])
    return _Unit.apply(call, x, *parts)
