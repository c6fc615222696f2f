"""`torch.func`'s names: functions of functions, and modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anneal.errors import DataError
from anneal.nn import Module, functional_call as _functional_call
from anneal.runtime import Fun
from anneal.tensor import Tensor
from anneal.transforms import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with the tensors of `parameter_and_buffer_dicts`, a dict by name or several, in place
    of its own; one argument needs no tuple around it. A tensor that the module shares is replaced wherever it is, if
    `tie_weights`. Tensors that are not named stay, or raise DataError if `strict`.

    >>> from anneal import nn
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> functional_call(layer, {"weight": Tensor([[1.0, 10.0]])}, (Tensor([3.0, 4.0]),))
    Tensor([43.], dtype=float32)
    """
    given = parameter_and_buffer_dicts
    named: dict[str, Tensor] = {}
    for each in [given] if isinstance(given, Mapping) else given:
        named.update(each)
    if strict or not tie_weights:
        own = dict(module.named_parameters(remove_duplicate=False))
        own.update(module.named_buffers(remove_duplicate=False))
        met = {own.get(n) for n in named}
        for n, t in own.items():
            if strict and n not in named and not (tie_weights and t in met):
                raise DataError(f"functional_call: strict, and nothing is given for {n}")
            if t in met and not tie_weights:
                named.setdefault(n, t)
    several = () if args is None else args if isinstance(args, tuple) else (args,)
    return _functional_call(module, named, *several, **(kwargs or {}))


def grad_and_value(func: Fun, argnums: Any = 0, has_aux: bool = False) -> Fun:
    """`value_and_grad` of `func` with the gradient first; `argnums` and `has_aux` are its.

    >>> grad_and_value(lambda x: (x * x).sum())(Tensor([3.0]))
    (Tensor([6.], dtype=float32), Tensor(9., dtype=float32))
    """
    both = value_and_grad(func, argnums, has_aux)

    def turned(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, slope = both(*args, **kwargs)
        return slope, value

    return turned


def linearize(func: Fun, *primals: Any) -> tuple[Any, Fun]:
    """`func(*primals)`, and its derivative there: the function from tangents of `primals` to that of the result.

    >>> value, slope = linearize(lambda x: x * x, Tensor([3.0]))
    >>> value, slope(Tensor([0.5]))
    (Tensor([9.], dtype=float32), Tensor([3.], dtype=float32))
    """
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters, and the buffers, of models of one class, by name, each stacked along a new first axis.

    >>> from anneal import nn
    >>> params, buffers = stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> {name: p.shape for name, p in params.items()}, buffers
    ({'weight': (4, 3, 2), 'bias': (4, 3)}, {})
    """

    def stacked(each: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {
            name: Tensor.stack([d[name].detach() for d in each]).requires_grad_(t.requires_grad)
            for name, t in each[0].items()
        }

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])
