"""Modules that several processes train together, under the names of `torch.nn.parallel`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anneal.distributed import Group, average_gradients, broadcast_all, world
from anneal.nn._module import Module
from anneal.runtime import here
from anneal.tensor import Tensor
from anneal.uop import DType

__all__ = ["DistributedDataParallel"]


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
