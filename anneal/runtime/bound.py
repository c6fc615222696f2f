"""A call of a function as launches with the memory that they are bound to: what another program needs to run it.

This is the one place that says how a captured call is taken apart; `anneal.pages` writes it into files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anneal.backend import AnyDevice, OpaqueBuffer, Storage
from anneal.errors import JitError
from anneal.runtime.context import here
from anneal.runtime.flowing import Flowing
from anneal.runtime.guards import flatten
from anneal.runtime.handle import Handle
from anneal.runtime.held import CopyBack
from anneal.runtime.jitted import Jit
from anneal.runtime.launch import Execution
from anneal.runtime.steps import HostCall
from anneal.schedule import Plan

_TURNS = 128  # of a loop: each is kernels of its own
_CALLS = 5  # an optimiser makes its state in the first, and what a function changed is seen in the next


@dataclass(frozen=True, slots=True, eq=False)
class BoundStep:
    """A captured call. Memory is equal where it is the same object.

    Args:
        device: where it is bound.
        launches: in order, each a plan with the memory of its values by number.
        copies: after the launches: new values of state, and the state's memory.
        arguments: the memory of the arguments' tensors, in the order of `flatten`.
        tensors: the tensors that outlive the call, with the memory that is read, and whether it is written.
        variables: the values that the Variables had.
        result: what the call gave. results: its tensors, each with its memory, None where it is in none.
        jit: the owner of the memory.
    """

    device: AnyDevice
    launches: Sequence[tuple[Plan, Sequence[OpaqueBuffer]]]
    copies: Sequence[tuple[OpaqueBuffer, OpaqueBuffer]]
    arguments: Sequence[OpaqueBuffer]
    tensors: Sequence[tuple[Storage, Any, bool]]
    variables: Mapping[str, int]
    result: Any
    results: Sequence[tuple[Any, OpaqueBuffer | None]]
    jit: Jit[..., Any]


def bound_step(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundStep:
    """Call `function` until a call is captured, with loops written out; the captured call.

    Raises JitError with the reason where calls are not captured, and for one that needs the host in the middle;
    TransformError for a loop of many turns.
    """
    jit: Jit[..., Any] = Jit(function)
    unrolls, here.unrolls = here.unrolls, _TURNS
    try:
        for _ in range(_CALLS):
            result = jit(*args, **kwargs)
            places, captured = next(((key[1], c) for key, c in jit.captures.items() if c is not None), ((), None))
            if captured is not None or jit.uncaptured:
                break
    finally:
        here.unrolls = unrolls
    if captured is None or isinstance(captured, Flowing):
        why = "gradients flow through its results" if captured is not None else jit.explain()
        raise JitError(f"a call cannot be taken as a fixed list of kernels: {why}")
    bound, held = captured.laid_out()
    launches = [step for step in bound if isinstance(step, Execution)]
    copies = [step for step in bound if isinstance(step, CopyBack)]
    if len(launches) + len(copies) < len(bound):
        called = next(step for step in captured.steps if isinstance(step, HostCall))
        title = called.function.title
        raise JitError(f"{title} runs on the host in the middle of the call, and a page has no Python: leave it out")
    tensors = [(r.storage, t, False) for r in captured.reads.values() if (t := r.ref()) is not None]
    tensors += [(w.storage, t, True) for w in captured.state.values() if (t := w.ref()) is not None]
    made: list[Handle] = []
    flatten(result, made, None)
    memory = [staging.memory.ensure() for staging in captured.arguments]
    return BoundStep(
        captured.device,
        [(launch.plan, launch.buffers) for launch in launches],
        [(copy.aside.ensure(), copy.state.storage.ensure()) for copy in copies],
        [memory[n] for n in places],
        tensors,
        dict(captured.bound),
        result,
        [(t, None if s is None else s.ensure()) for t, s in zip(made, held, strict=True)],
        jit,
    )
