"""Values that travel with a page: what the functions give for the example, and what each kernel leaves on the way.

The results come from the functions as they stand, on this device and with its own plans; what each kernel leaves comes
from the page's plan, so that a page whose results differ can name the first kernel that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anneal.backend import Array
from anneal.pages.program import HELD
from anneal.runtime import BoundStep, compiled, realize
from anneal.tensor import Tensor, tree_leaves

Values = Mapping[int, tuple[Tensor, Array]]  # by the tensor's id


def state_of(steps: Sequence[BoundStep]) -> dict[int, tuple[Tensor, Array]]:
    """The tensors that the steps read or write, with their values now."""
    return values_of([t for step in steps for _, t, _ in step.tensors])


def values_of(tensors: Sequence[Tensor]) -> dict[int, tuple[Tensor, Array]]:
    """Tensors with their values now, by id."""
    realize(tensors)
    return {id(t): (t, t.numpy()) for t in tensors}


def put_back(values: Values) -> None:
    """Give the tensors these values again."""
    for t, array in values.values():
        t.assign(Tensor(array, device=t.device))
    realize([t for t, _ in values.values()])


def digests(step: BoundStep, values: Values, inputs: Sequence[Tensor]) -> list[list[Any]]:
    """For each call, of each value that it writes: the dtype, the size, the mean and the largest magnitude. A value
    that no page has an array for ends the list.
    """
    device = step.device
    for storage, t, _ in step.tensors:
        device.upload(storage.ensure(), values[id(t)][1])
    for t, buffer in zip(inputs, step.arguments, strict=True):
        device.upload(buffer, np.ascontiguousarray(t.numpy()))
    out = []
    for plan, buffers in step.launches:
        known = {v.arg[0]: step.variables[v.arg[0]] for v in plan.variables}
        for program, call in zip(compiled(plan, device), plan.calls, strict=True):
            device.prepare([(program, [buffers[v] for v in call.args])], known).run()
            found = []
            for v in call.args[: call.outputs]:
                value = plan.values[v]
                if value.dtype.name not in HELD:
                    break
                left = device.download(buffers[v], value.size, value.dtype)
                found.append([HELD[value.dtype.name], value.size, *_digest(left)])
            out.append(found)
    return out


def _digest(array: Array) -> list[float]:
    magnitudes = np.abs(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    return [float(f"{x:.6g}") for x in (magnitudes.mean(), magnitudes.max())] if magnitudes.size else [0.0, 0.0]


def expected(function: Callable[..., Any], args: tuple[Any, ...], values: Values) -> list[Array]:
    """The results of the function itself, from these values of its tensors."""
    put_back(values)
    results = [t for t in tree_leaves(function(*args)) if isinstance(t, Tensor)]
    realize(results)
    return [np.ascontiguousarray(t.numpy()) for t in results]
