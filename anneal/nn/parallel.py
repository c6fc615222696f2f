"""Modules that several processes train together, under the names of `torch.nn.parallel`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from anneal import distributed
from anneal.nn._computed import Around, compute, computed
from anneal.nn._module import Module
from anneal.nn._whole_calls import replaced
from anneal.nn.parameter import Parameter
from anneal.runtime import here, realize
from anneal.tensor import Tensor, no_grad
from anneal.transforms import Function, vjp
from anneal.uop import DType

__all__ = ["DataParallel", "DistributedDataParallel", "fully_shard", "shards_of", "whole_state_dict"]


class _Averaging:
    """The average of a module's gradients, which follows each backward pass that reached one of them."""

    def __init__(
        self, parameters: list[Tensor], group: distributed.Group, bucket: int | None, wire: DType | str | None
    ) -> None:
        self.parameters, self.group, self.bucket, self.wire = parameters, group, bucket, wire
        self.on = True

    def reached(self, parameter: Tensor) -> None:
        """Note that a pass has added to a gradient."""
        if self.on and self not in here.after_backward:
            here.after_backward.append(self)

    def __call__(self) -> None:
        distributed.average_gradients(self.parameters, self.group, bucket=self.bucket, wire=self.wire)


class DataParallel(Around):
    """A module as it is, under torch's name for one on several GPUs: a process computes on one device.

    Args:
        module: the module that is called; its tensors are those of `.module`, as in torch. device_ids, output_device,
            dim: ignored.

    >>> from anneal import nn
    >>> list(DataParallel(nn.Linear(2, 1)).state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        self.module = module


class DistributedDataParallel(Around):
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
        self, module: Module, device_ids: Any = None, *, process_group: distributed.Group | None = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, wire: DType | str | None = None,
    ) -> None:  # fmt: skip
        group = distributed.world() if process_group is None else process_group
        bucket = None if bucket_cap_mb is None else int(bucket_cap_mb * 2**20)
        self.module = module
        parameters = list(module.parameters())
        distributed.broadcast_all([*parameters, *module.buffers()], group)
        self._averaging = _Averaging([p for p in parameters if p.requires_grad], group, bucket, wire)
        for p in self._averaging.parameters if group.size > 1 else ():
            p.register_post_accumulate_grad_hook(self._averaging.reached)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backward passes add to the gradients of this process alone, as for accumulation."""
        before, self._averaging.on = self._averaging.on, False
        try:
            yield
        finally:
            self._averaging.on = before


_SHARD = "_shard"  # behind the name of a parameter: the part of it that this process has


def fully_shard(module: Module, units: Iterable[Module] = (), group: distributed.Group | None = None) -> Module:
    """The module, of whose parameters each process keeps its part alone (ZeRO-3), and gradients and optimisers too.

    A parameter is gathered where it is used. A call of one of the `units`, layers say, gathers all of its parameters,
    and starts to gather those of the next one before it computes; the backward pass does so from the last one to the
    first. What is gathered is dropped at the end of a call, with what was computed of it, and made again for its
    gradient. Gradients are means over the processes, of the parts, which `parameters()` are: any optimiser that treats
    each element by itself trains as if it had the whole.

    Args:
        module: changed in place, before the optimiser is made. The first process's parameters count.
        units: modules in it that are called with one tensor, and give one, in the order of their calls.
        group: this participant's view of the group; None: all processes.

    >>> from anneal import nn
    >>> model = fully_shard(net := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), units=[net[0]])
    >>> [name for name, _ in model.named_parameters()], model(Tensor.ones(4, 2)).shape
    (['0.weight_shard', '0.bias_shard', '1.weight_shard', '1.bias_shard'], (4, 1))
    """
    group = distributed.world() if group is None else group
    distributed.broadcast_all([*module.parameters(), *module.buffers()], group)
    whole = {}  # a shared parameter has one shard
    for m in list(module.modules()):
        for name, p in list(m.named_parameters(recurse=False)):
            if p not in whole:
                whole[p] = _shard_of(p, group)
            compute(m, name, partial(_gathered, shape=p.shape, group=group))
            setattr(m, name + _SHARD, whole[p])
    within = _Units(list(units), group)
    for n, unit in enumerate(within.units):
        vars(unit)["forward"] = partial(within.called, n, unit.forward)
    return module


def shards_of(module: Module) -> dict[str, Tensor]:
    """The parts that this process has of a module's parameters, by name; none if it is not sharded.

    >>> from anneal import nn
    >>> list(shards_of(fully_shard(nn.Linear(2, 3))))
    ['weight_shard', 'bias_shard']
    """
    named = module.named_parameters(remove_duplicate=False)
    return {name: p for name, p in named if name.endswith(_SHARD)}


def _shard_of(p: Tensor, group: distributed.Group) -> Parameter:
    """This process's part of a parameter: with two axes if it has, by which optimisers choose what decays."""
    size = -(-p.numel() // group.size)
    flat = np.pad(p.numpy().reshape(-1), (0, size * group.size - p.numel()))
    mine = flat[group.rank * size : (group.rank + 1) * size]
    made = Tensor(mine.reshape(-1, 1) if p.ndim > 1 else mine.copy(), device=p.device)
    return Parameter(made, requires_grad=p.requires_grad)


def _gathered(module: Module, name: str, shape: tuple[int, ...], group: distributed.Group) -> Tensor:
    """The whole of a parameter; in a call of a unit it was gathered before, [participants, ...]."""
    part: Tensor = vars(module)[name + _SHARD]
    whole = part if part.ndim > (2 if len(shape) > 1 else 1) else distributed.gathered(part, group, "mean")
    return whole.reshape(-1)[: math.prod(shape)].reshape(shape)


def whole_state_dict(module: Module, group: distributed.Group | None = None) -> dict[str, Tensor]:
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


class _Units:
    """The units of a sharded module: a unit that is called has its whole parameters, and those of the next unit are
    gathered while it computes.
    """

    def __init__(self, units: list[Module], group: distributed.Group) -> None:
        self.units, self.group = units, group
        self.inside = False  # a call of one is running: those within it have whole parameters
        self._started: tuple[tuple[Any, ...], Callable[[], list[Tensor]]] | None = None

    def called(self, number: int, forward: Callable[[Tensor], Any], x: Tensor) -> Any:
        """The result of unit `number` for `x`."""
        if self.inside:
            return forward(x)
        realize([x])
        return _Unit.apply(self, number, x, *self.units[number].parameters())

    def whole(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The whole of a unit's parameters, [participants, ...], which were on their way if it was to come next."""
        started, self._started = self._started, None
        if started is not None and started[0] == _state(parts):
            return started[1]()
        if self.group.copies and not here.tracing:
            realize(parts)
            return distributed.gathered_later(parts, self.group, now=True)()
        with no_grad():
            made = distributed.gathered(list(parts), self.group, "mean")
        realize(made)
        return made

    def start(self, number: int) -> None:
        """Start to gather the parameters of the unit that comes next, if there is one."""
        if 0 <= number < len(self.units) and self.group.copies and not here.tracing:
            realize(parts := self.units[number].parameters())
            self._started = _state(parts), distributed.gathered_later(parts, self.group)

    def computed(self, number: int, x: Tensor, *whole: Tensor) -> Tensor:
        """Call a unit with the whole of its parameters."""
        unit = self.units[number]
        of = dict(zip(unit.parameters(), whole, strict=True))
        places = [(vars(m), name) for _, m, name, t in unit._tensors() if t in of]
        self.inside = True
        try:
            with replaced(places, [of[held[name]] for held, name in places]):
                made: Tensor = unit(x)
                return made
        finally:
            self.inside = False


def _state(parts: Sequence[Tensor]) -> tuple[Any, ...]:
    """The facts that hold from the start of a gather to the use of its result: the parts' nodes, and the run that
    is recorded."""
    return (here.recordings[-1] if here.recordings else None, *[p.uop for p in parts])


class _Unit(Function):
    """A call of a unit: its argument and result are kept, and its parameters are gathered in each direction."""

    @staticmethod
    def forward(ctx: Any, units: _Units, number: int, x: Tensor, *parts: Tensor) -> Tensor:
        whole = units.whole(parts)
        units.start(number + 1)
        y = units.computed(number, x, *whole)
        realize([y])
        ctx.units, ctx.number = units, number
        ctx.save_for_backward(x, *parts)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        units: _Units = ctx.units
        x, *parts = ctx.saved_tensors
        if here.creates or here.depth:  # what is to be differentiated again is one graph from the parts on

            def of_parts(x: Tensor, *parts: Tensor) -> Tensor:
                return units.computed(ctx.number, x, *distributed.gathered(list(parts), units.group, "mean"))

            _, again = vjp(of_parts, x, *parts)
            return None, None, *again(g)
        whole = units.whole(parts)
        units.start(ctx.number - 1)
        with no_grad():  # else the memory of gradients holds what they were computed from
            _, pull = vjp(partial(units.computed, ctx.number), x, *whole)
            of_x, *of_whole = pull(g)
            flat = [t.reshape(-1, *part.shape[1:]) for t, part in zip(of_whole, parts, strict=True)]
            made = [of_x, *(distributed.reduce_scatter(flat, units.group, "mean") if flat else ())]
            realize(made)
        return None, None, *made
