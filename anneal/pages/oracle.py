"""Values that travel with a page: what the functions give for the example, and what each kernel leaves on the way.

The results come from the functions as they stand, on this device and with its own plans; what each kernel leaves comes
from the page's plan, so that a page whose results differ can name the first kernel that does. How far both may be off
follows from the ops of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anneal.backend import Array, numpy_dtype
from anneal.pages.program import HELD
from anneal.runtime import BoundStep, Jit, compiled, realize
from anneal.tensor import Tensor, tree_leaves
from anneal.uop.sizes import widest

_TRIALS = 4
_PLACES = 64  # elements of a value that is read in part
Values = Mapping[int, tuple[Tensor, Array]]  # by the tensor's id
Bounds = Callable[..., list[Any]]


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


def judged(
    step: BoundStep, values: Values, inputs: Sequence[Tensor], bounds: Bounds
) -> tuple[list[list[list[Any]]], list[float]]:
    """The values that a page compares its own with by the plan of `step`, and how far they may be apart.

    Kernels run one by one. What each may round, by its ops and on the values that it reads, is what `anneal check`
    allows: `bounds` is `inspect.error_bounds`. Runs that change every value by some of that, at random, show what
    becomes of it: twice the largest difference that they make is allowed.

    Returns:
        For each call, of each value that it writes: dtype (None: no page has an array of it), size, a weighted sum, how
        far that may be off, and the places that it is of where not all are read. And for each result how far an
        element may be off.
    """
    errors: list[tuple[Array, Array | None]] = []
    sums, results = _played(step, values, inputs, errors, bounds)
    rng = np.random.default_rng(0)
    trials = [_played(step, values, inputs, errors, rng) for _ in range(_TRIALS)]
    number = iter(range(len(sums)))
    calls = []
    for plan, _ in step.launches:
        for call in plan.calls:
            found = []
            for v, n in zip(call.args[: call.outputs], number):
                off = _rounded(max(_apart(t[n], sums[n]) for t, _ in trials) + 1e-8 * abs(sums[n]))
                entry = [HELD.get(plan.values[v].dtype.name), plan.values[v].size, float(f"{sums[n]:.9g}"), off]
                found.append(entry if (read := errors[n][1]) is None else [*entry, _some(read).tolist()])
            calls.append(found)
    return calls, [_rounded(max(_apart(t[n], r) for _, t in trials)) for n, r in enumerate(results)]


def _rounded(off: float) -> float:
    return float(f"{2 * off:.3g}")


def _apart(a: Any, b: Any) -> float:
    """The largest difference of two arrays, where both are finite."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(a, b, dtype=np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def _played(
    step: BoundStep,
    values: Values,
    inputs: Sequence[Tensor],
    errors: list[tuple[Array, Array | None]],
    change: Bounds | np.random.Generator,
) -> tuple[list[float], list[Array]]:
    """Run the kernels one by one: the weighted sum of each value that one writes, and the results. By bounds
    it lists in `errors` what each value may be off; by chance it changes each by as much at most.
    """
    device = step.device
    kept = {id(s.ensure()): t for s, t, _ in step.tensors}
    for storage, t, _ in step.tensors:
        device.upload(storage.ensure(), values[id(t)][1])
    for t, buffer in zip(inputs, step.arguments, strict=True):
        device.upload(buffer, np.ascontiguousarray(t.numpy()))
    sums: list[float] = []
    for plan, buffers in step.launches:
        known = {v.arg[0]: step.variables[v.arg[0]] for v in plan.variables}
        for program, call in zip(compiled(plan, device), plan.calls, strict=True):
            memory = [(buffers[v], plan.values[v].size, plan.values[v].dtype) for v in call.args]
            written, read = memory[: call.outputs], {id(b) for b, _, _ in memory[call.outputs :]} | kept.keys()
            for buffer, size, dtype in written:
                if id(buffer) not in read:  # what is not written is 0, here and in the page
                    device.upload(buffer, np.zeros(size, numpy_dtype(dtype)))
            if not isinstance(change, np.random.Generator):
                errors += change(call.kernel.sink, device.download_all(memory), call.outputs, known)
            device.prepare([(program, [b for b, _, _ in memory])], known).run()
            for buffer, size, dtype in written:
                found = device.download(buffer, size, dtype)
                if isinstance(change, np.random.Generator) and dtype.is_float:
                    found = (found + change.uniform(-1, 1, size) * errors[len(sums)][0]).astype(found.dtype)
                    device.upload(buffer, found)
                sums.append(_sum(found, errors[len(sums)][1]))
    for aside, state in step.copies:
        u = kept[id(state)].uop
        device.upload(state, device.download(aside, prod(widest(u.shape)), u.dtype))
    results = [(b, prod(widest(t.uop.shape)), t.uop.dtype) for t, b in step.results if b is not None]
    return sums, device.download_all(results)


def _some(places: Array) -> Array:
    """Some of the places, spread evenly."""
    return places[:: -(-len(places) // _PLACES) or 1]


def _sum(array: Array, places: Array | None) -> float:
    """The sum of elements, each with a weight from -1 to 1 that its place gives: other values have another sum. Of some
    elements, where not all are read."""
    at = np.arange(array.size) if places is None else _some(places)
    weights = ((at + 1).astype(np.uint32) * np.uint32(0x9E3779B1)).view(np.int32) / 2**31
    return float(weights @ np.nan_to_num(array[at].astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))


def expected(function: Callable[..., Any], args: tuple[Any, ...], values: Values) -> list[Array]:
    """The results of the function itself, from these values of its tensors; as a jit function, which draws random
    numbers from the places that a page draws them from."""
    put_back(values)
    results = [t for t in tree_leaves(Jit(function)(*args)) if isinstance(t, Tensor)]
    realize(results)
    return [np.ascontiguousarray(t.numpy()) for t in results]
