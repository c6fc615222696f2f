"""Tensors: lazy arrays with gradients.

`anneal.tensor(data, dtype=None, device=None, requires_grad=False)` makes a tensor of a number, a nested list, an array
or a tensor; see `Tensor`, the class. `no_grad` switches gradients off; `grad`, `value_and_grad`, `vjp`, `jvp` and
`vmap` transform functions, and `jacrev`, `jacfwd` and `hessian` with them; `jit` captures and replays functions;
`manual_seed` starts the random numbers. `memory` says what holds a device's memory, `empty_cache` gives unused memory
back. `functional`, `random` and `io` are modules.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from anneal.doors import opened_later
from anneal.ops import as_dtype, broadcast_shapes, grad_enabled, no_grad
from anneal.runtime import default_device, set_default_device
from anneal.tensor._interchange import OLDER as OLDER
from anneal.tensor._tensor import Tensor
from anneal.uop import DType, dtypes

if TYPE_CHECKING:
    from anneal.backend import MemoryReport, empty_cache
    from anneal.ops import Generator, MinMax, ValuesIndices, broadcast_tensors, manual_seed, meshgrid
    from anneal.ops.nodes import Variable
    from anneal.runtime import jit, memory, realize, upload
    from anneal.tensor import autograd, functional, io, random
    from anneal.tensor._interchange import host_call
    from anneal.tensor._shown import set_printoptions
    from anneal.transforms import grad, hessian, jacfwd, jacrev, jvp, tree_leaves, tree_map, value_and_grad, vjp, vmap
else:
    __getattr__ = opened_later(__name__)


class _Made(ModuleType):
    """This package, which as `anneal.tensor(data)` is torch's function of that name."""

    def __call__(
        self,
        data: Any,
        dtype: Any = None,
        device: str | None = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> Tensor:
        return Tensor(data, device, dtype, requires_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (__name__,)


__all__ = [
    "DType", "Generator", "MemoryReport", "MinMax", "Tensor", "ValuesIndices", "Variable", "as_dtype",
    "broadcast_shapes", "broadcast_tensors", "default_device", "dtypes", "empty_cache", "grad", "grad_enabled",
    "hessian", "host_call", "jacfwd", "jacrev", "jit", "jvp", "manual_seed", "memory", "meshgrid", "no_grad", "realize",
    "set_default_device", "set_printoptions", "tree_leaves", "tree_map", "upload", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
sys.modules[__name__].__class__ = _Made
