"""A call of a function on stand-ins for its arguments: the graph that it computes from them, and the tensors it reads
besides.

A stand-in is a node without values. Sizes that vary are Variables, bound to the sizes of the example.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import OnnxError, UserError
from anneal.nn import Module
from anneal.runtime import Jit, here, realize
from anneal.tensor import Tensor, Variable, tree_leaves, tree_map
from anneal.transforms import Trace, paths_of, stand_in
from anneal.uop import DType, Op, UOp, dtypes
from anneal.uop.sizes import size_text

_MOST = 1 << 15  # of a size that is named without bounds


class Input(NamedTuple):
    """An argument that a run gives: its name, the node that stands for it (of a size its bound Variable), and its dtype
    and shape."""

    name: str
    node: UOp
    dtype: DType
    shape: tuple[Any, ...]


class TracedGraph(NamedTuple):
    """A function that was traced: inputs, results, the tensors with names that it may read, and the nodes it made."""

    name: str
    device: str
    inputs: list[Input]
    results: list[UOp]
    weights: dict[str, Tensor]
    made: frozenset[UOp]


def traced(
    function: Callable[..., Any], example: Any, dynamic: Mapping[str, Mapping[int, Any]], names: Sequence[str] | None
) -> TracedGraph:
    """Call `function` on stand-ins for the tensors of `example`.

    Args:
        function: a module or a function of tensors.
        example: its arguments: one tensor, a tuple of arguments, or a dict of them by name.
        dynamic: for inputs by name the axes whose sizes vary: a name, or a Variable with bounds.
        names: of the inputs, in order; those of the function's parameters if None.

    Raises OnnxError for an example or sizes that do not fit, and for a function that changes tensors that outlive it.
    """
    inner = function.function if isinstance(function, Jit) else function
    args, kwargs = _arguments(example)
    weights = named_tensors(inner)
    realize(list(weights.values()))
    (args, kwargs), inputs, originals = _stand_ins(inner, args, kwargs, dynamic, names)
    nodes = {i.node: i.name for i in inputs}
    given = {nodes[t.uop]: t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
    device = next((t.device for t in (*originals, *weights.values())), "cpu")
    before = {name: t.uop for name, t in weights.items()}
    trace = Trace("export")
    here.unrolls, here.names = sys.maxsize, True
    try:
        leaves = _results(trace.run(inner, args, kwargs, grad=False))
        _check_unchanged(trace, leaves, weights, given)
    finally:
        here.unrolls, here.names = 0, False
        for name, t in weights.items():
            t.uop = before[name]
            if t._views is not None:
                t._outdate_views()
    return TracedGraph(_name_of(inner), device, inputs, [t.uop for t in leaves], weights, frozenset(trace.made()))


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple) and not hasattr(example, "_fields"):
        return example, {}
    if isinstance(example, list):
        return tuple(example), {}
    return (example,), {}


def _name_of(function: Any) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    name = type(inner).__name__ if isinstance(inner, Module) else getattr(inner, "__name__", type(inner).__name__)
    return name if name.isidentifier() else "function"


# -- what it reads ----------------------------------------------------------------------------------------------------


def named_tensors(function: Any) -> dict[str, Tensor]:
    """The tensors that a function reaches by name: of a module its own, of a function those of its variables."""
    if isinstance(function, Module):
        return _of_module("", function)
    if isinstance(function, functools.partial):
        return named_tensors(function.func) | _of_values(dict(enumerate(function.args)) | function.keywords)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Module):
        return _of_module("", owner)
    found = _of_values(vars(owner)) if hasattr(owner, "__dict__") and not inspect.ismodule(owner) else {}
    code = getattr(function, "__func__", function)
    if inspect.isfunction(code):
        reached = inspect.getclosurevars(code)
        found |= _of_values({**reached.globals, **reached.nonlocals})
    elif hasattr(function, "__dict__"):
        found |= _of_values(vars(function))
    return found


def _of_values(values: Mapping[Any, Any]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in values.items():
        if isinstance(value, Module):
            found |= _of_module(f"{name}.", value)
        elif isinstance(value, Tensor):
            found[str(name)] = value
        elif isinstance(value, (list, tuple, dict)):
            for path, part in zip(paths_of(value, str(name)), tree_leaves(value), strict=True):
                if isinstance(part, Module):
                    found |= _of_module(f"{_as_name(path)}.", part)
                elif isinstance(part, Tensor):
                    found[_as_name(path)] = part
    return found


def _of_module(prefix: str, module: Module) -> dict[str, Tensor]:
    return {f"{prefix}{n}": t for n, t in (*module.named_parameters(), *module.named_buffers())}


def _as_name(path: str) -> str:
    """The path to a leaf, as one name: `x['a'][0]` is x_a_0."""
    return "_".join("".join(c if c.isalnum() or c == "_" else " " for c in path).split())


# -- stand-ins --------------------------------------------------------------------------------------------------------


def _stand_ins(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Mapping[str, Mapping[int, Any]],
    names: Sequence[str] | None,
) -> tuple[Any, list[Input], list[Tensor]]:
    """The arguments with stand-ins for tensors and arrays, the inputs, and the tensors that they stand for."""
    try:
        bound = inspect.signature(function.forward if isinstance(function, Module) else function).bind(*args, **kwargs)
        parameters = _by_position(bound)
    except (TypeError, ValueError) as e:
        if isinstance(e, TypeError):
            raise OnnxError(f"export: the example's arguments do not fit the function: {e}") from None
        parameters = [f"input_{n}" for n in range(len(args))]
    tree = (tuple(args), kwargs)
    paths = [p for n, a in zip(parameters, args) for p in paths_of(a, n)]
    paths += [p for n, a in kwargs.items() for p in paths_of(a, n)]
    leaves = tree_leaves(tree)
    where = [i for i, v in enumerate(leaves) if isinstance(v, (Tensor, np.ndarray)) or _is_bound(v)]
    if names is not None and len(names) != len(where):
        raise OnnxError(f"export: input_names has {len(names)} names, but the example has {len(where)} inputs")
    chosen = list(names) if names is not None else [_as_name(paths[i]) for i in where]
    unknown = [n for n in dynamic if n not in chosen]
    if unknown:
        raise OnnxError(f"export: dynamic names {unknown[0]!r}, which is no input; the inputs are {', '.join(chosen)}")
    if len(set(chosen)) != len(chosen):
        raise OnnxError(f"export: two inputs have one name in {', '.join(chosen)}; give others as input_names=")
    variables: dict[str, UOp] = {}
    values: dict[str, int] = {}
    inputs, originals, new = [], [], list(leaves)
    for name, i in zip(chosen, where, strict=True):
        if _is_bound(leaves[i]):
            inputs.append(Input(name, leaves[i], dtypes.int64, ()))
            continue
        t = leaves[i] if isinstance(leaves[i], Tensor) else Tensor(leaves[i])
        shape = _sized(name, t.shape, dynamic.get(name, {}), variables, values)
        node = UOp(
            Op.CONTIGUOUS, t.dtype, (stand_in(t.dtype, shape, "input"),)
        )  # as values in memory are: no op makes it that
        inputs.append(Input(name, node, t.dtype, shape))
        originals.append(t)
        new[i] = Tensor._from_uop(node, t.device)
    rest = iter(new)
    return tree_map(lambda _: next(rest), tree), inputs, originals


def _is_bound(leaf: Any) -> bool:
    """True if a leaf is a Variable with a value: a size or a position that a run gives as a number."""
    return isinstance(leaf, UOp) and leaf.op is Op.BIND


def _by_position(bound: inspect.BoundArguments) -> list[str]:
    """The name of each positional argument; those that a parameter collects are numbered."""
    out = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            out += [f"{name}_{n}" for n in range(len(value))]
        elif kind is not inspect.Parameter.VAR_KEYWORD and kind is not inspect.Parameter.KEYWORD_ONLY:
            out.append(name)
    return out


def _sized(
    name: str, shape: tuple[Any, ...], axes: Mapping[int, Any], variables: dict[str, UOp], values: dict[str, int]
) -> tuple[Any, ...]:
    """The shape with bound Variables for the axes that vary; `variables` and their `values` are noted."""
    out = list(shape)
    if not isinstance(axes, Mapping):
        raise OnnxError(f"export: dynamic[{name!r}] is a dict from axes to names or Variables, not {axes!r}")
    for axis, said in axes.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise OnnxError(f"export: dynamic names axis {axis!r} of {name}, whose shape is {shape}")
        n = out[axis]
        if isinstance(n, UOp):
            raise OnnxError(f"export: axis {axis} of {name} varies already: its size is {n}")
        if isinstance(said, str) and said:
            variable = variables.get(said) or Variable(said, min(1, n), max(n, _MOST))
        elif isinstance(said, UOp) and said.op is Op.VARIABLE:
            variable = said
        else:
            raise OnnxError(f"export: a size that varies is a name or a Variable, not {said!r} (axis {axis} of {name})")
        known = variables.setdefault(variable.arg[0], variable)
        if known is not variable:
            raise OnnxError(f"export: {variable.arg[0]!r} has two bounds: give the same Variable wherever it is meant")
        if values.setdefault(variable.arg[0], n) != n:
            raise OnnxError(
                f"export: {variable.arg[0]!r} is {values[variable.arg[0]]} and {n} in the example (axis {axis} of "
                f"{name})"
            )
        try:
            out[axis] = variable.bind(n)
        except UserError as e:
            raise OnnxError(f"export: axis {axis} of {name}: {e}") from None
    return tuple(out)


# -- results ----------------------------------------------------------------------------------------------------------


def _results(out: Any) -> list[Tensor]:
    leaves = []
    for where, value in zip(paths_of(out, "the result"), tree_leaves(out), strict=True):
        if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
            value = Tensor(value)
        if not isinstance(value, Tensor):
            raise OnnxError(f"export: {where} is a {type(value).__name__}; outputs are tensors, or nests of them")
        leaves.append(value)
    if not leaves:
        raise OnnxError("export: the function returned no tensor, so there is nothing to export")
    return leaves


def _check_unchanged(trace: Trace, results: list[Tensor], weights: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    """Raise OnnxError if the function assigned to tensors that others see afterwards."""
    names = {id(t): f"its argument {n}" for n, t in given.items()} | {id(t): n for n, t in weights.items()}
    changed = trace.assigned([t for t in results if id(t) not in names])
    if found := [names.get(id(t), f"a tensor of shape {t.shape} that it reaches") for t in changed]:
        raise OnnxError(
            f"export: the function changes {', '.join(found)}, and a file keeps nothing from one run to the next; "
            "switch a module to .eval(), write x = x + y for x += y, or take the old value as an argument and return "
            "the new one"
        )


def told(shape: Sequence[Any]) -> list[int | str]:
    """A shape as ONNX states it: numbers, and expressions of names."""
    return [n if isinstance(n, int) else size_text(n, values=False) for n in shape]
