"""Gradients that hooks and backward functions keep: constants, unless the pass was made with create_graph.

`python -m tests.transforms.torch_hook_values` writes torch_hook_values.json; `T` in a program is torch there and anneal
in the tests. A program gives what it kept, and the gradients of a later loss with that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_suffix(".json")


def _later(T: Any, x: Any, kept: Any) -> list[Any]:
    """The flag `requires_grad` of the kept gradient, its values, and the gradient of a loss with it."""
    x.grad = None
    (kept * x).sum().backward()
    return [kept.requires_grad, kept.tolist(), x.grad.tolist()]


def of_result(T: Any, x: Any, create: bool) -> list[Any]:
    seen: list[Any] = []
    h = x**2
    h.register_hook(seen.append)
    (h**3).sum().backward(retain_graph=True, create_graph=create)
    return _later(T, x, seen[0])


def of_leaf(T: Any, x: Any, create: bool) -> list[Any]:
    seen: list[Any] = []
    handle = x.register_hook(lambda g: seen.append(0.5 * g + x))
    (x**3).sum().backward(retain_graph=True, create_graph=create)
    handle.remove()
    return _later(T, x, seen[0])


def of_retained(T: Any, x: Any, create: bool) -> list[Any]:
    h = x**2
    h.retain_grad()
    (h**3).sum().backward(create_graph=create)
    return _later(T, x, h.grad)


def of_function(T: Any, x: Any, create: bool) -> list[Any]:
    seen: list[Any] = []

    class Cube(T.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append(g * x)
            return g * 3 * x**2

    Cube.apply(x * 2).pow(2).sum().backward(create_graph=create)
    return _later(T, x, seen[0])


def of_module(T: Any, x: Any, create: bool) -> list[Any]:
    seen: list[Any] = []
    m = T.nn.Softplus()
    m.register_full_backward_hook(lambda module, came, given: seen.append(came[0] + given[0]))
    (m(x * 0) * x**2).sum().backward(create_graph=create)
    return [seen[0].requires_grad]


def of_targets(T: Any, x: Any, create: bool) -> list[Any]:
    """Those of `autograd.grad`: a hook of a target is called where no other target lies below it."""
    found = []
    for keep in (False, True):
        for targets in (lambda x, y: [y], lambda x, y: [x, y]):
            y = x * 3
            y.register_hook(lambda g: g * 10)
            z = (y * y).sum()
            found += [g.tolist() for g in T.autograd.grad(z, targets(x, y), retain_graph=keep, create_graph=create)]
    return found


PROGRAMS: dict[str, Callable[[Any, Any, bool], list[Any]]] = {
    f.__name__: f for f in (of_result, of_leaf, of_retained, of_function, of_module, of_targets)
}


def run(T: Any, name: str) -> list[Any]:
    """The numbers of a program, without create_graph and with it."""
    x = [T.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2)]
    return [PROGRAMS[name](T, x[create], create) for create in ((False, True) if name != "of_retained" else (False,))]


def main() -> None:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(run(torch, name))}" for name in PROGRAMS)
    PATH.write_text(f'{{"torch": "{torch.__version__}", "values": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
