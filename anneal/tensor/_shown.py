"""Tensors as text, and the names of the functions that made them."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.backend import HOST, Array
from anneal.doors import pairs
from anneal.errors import SettingError
from anneal.names import Tensor
from anneal.runtime import here, storage_of
from anneal.uop import Op, Src, UOp, toposort

_LARGE_GRAPH = 2000  # nodes: a layer or two


_DEFAULT: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES = {
    "default": _DEFAULT,
    "short": {**_DEFAULT, "precision": 2, "edgeitems": 2},
    "full": {**_DEFAULT, "threshold": float("inf")},
}
_options = _DEFAULT.copy()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set the format in which this process prints tensors; arguments that are not given stay as they are, or as
    `profile` has them.

    Args:
        precision: digits after the point. threshold: with more values than these, `edgeitems` of each end are shown.
        linewidth: columns. profile: "default", "short" or "full". sci_mode: whether floats have exponents; None for
        those that need them.

    Raises SettingError for an unknown profile, or numbers that are none.

    >>> from anneal.tensor import Tensor
    >>> set_printoptions(precision=1)
    >>> Tensor([1 / 3])
    Tensor([0.3], dtype=float32)
    >>> set_printoptions(profile="default")
    >>> Tensor([1 / 3])
    Tensor([0.3333], dtype=float32)
    """
    if profile is not None and profile not in _PROFILES:
        raise SettingError(f"set_printoptions: profile is one of {', '.join(_PROFILES)}, not {profile!r}")
    given = {} if profile is None else dict(_PROFILES[profile])
    numbers = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in numbers.items():
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise SettingError(f"set_printoptions: {name} is a number that is not negative, not {value!r}")
            given[name] = value
    if sci_mode is not None or profile is not None:
        given["sci_mode"] = sci_mode
    _options.update(given)


def text(t: Tensor) -> str:
    """The text of `repr`. Values that are in memory, few, or of a small graph are shown; others are described."""
    tail = f", dtype={t.dtype.name}"
    if t.device != HOST:
        tail += f", device={t.device!r}"
    if t.requires_grad:
        tail += ", requires_grad=True"
    name = type(t).__name__
    if t.numel() > _options["threshold"] and not t.is_realized and _is_large(t.uop):
        return f"{name}(shape={t.shape}{tail}, lazy: print(x.realize()) computes it)"
    values = t.numpy()
    if t.dtype.is_narrow:  # bfloat16 and float8 know no precision
        values = values.astype(np.float32)
    if not values.size:
        return f"{name}([], shape={t.shape}{tail})"
    if values.size > _options["threshold"]:
        tail = f", shape={t.shape}{tail}"
    return f"{name}({_values(values, f'{name}(')}{tail})"


def _values(values: Array, prefix: str) -> str:
    digits, sci = _options["precision"], _options["sci_mode"]
    formatter: Any = None
    if sci and values.dtype.kind == "f":
        formatter = {"float_kind": lambda x: np.format_float_scientific(x, digits, unique=False)}
    return np.array2string(
        values,
        max_line_width=_options["linewidth"],
        precision=digits,
        suppress_small=True if sci is False else None,
        separator=", ",
        prefix=prefix,
        threshold=int(min(_options["threshold"], 2**31)),
        edgeitems=_options["edgeitems"],
        formatter=formatter,
    )


def _is_large(u: UOp) -> bool:
    """True if more nodes than a layer's have to be computed for `u`."""
    seen = set()
    stack = [u]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) > _LARGE_GRAPH:
            return True
        stack.extend(node.src)
    return False


def html(t: Tensor) -> str:
    """The text of a notebook: what `repr` gives, in letters of one width."""
    from html import escape

    return f"<pre>{escape(text(t))}</pre>"


# -- names of the functions that made tensors, as torch's `grad_fn` shows them ----------------------------------------


# Our functions -> torch's, where that is not their own name.
_NAMES = pairs("""
    cross_entropy=NllLoss divide=Div truediv=Div true_divide=Div rtruediv=Div linear=Addmm matmul=Mm rmatmul=Mm
    multiply=Mul rmul=Mul radd=Add rpow=Pow subtract=Sub reshape=View view_as=View flatten=View getitem=Select
    cast=ToCopy float=ToCopy conv1d=Convolution conv2d=Convolution concat=Cat
""")


class GradFn:
    """The function that computed a tensor, with its name and its inputs.

    The name follows torch's manner; it is the node's, and equal nodes have the name of the first. Several calls of one
    function in one line that follow each other are shown as one.

    Args:
        u: the node.
        graph: the facts about its graph, once `next_functions` is used.
    """

    __slots__ = ("_graph", "_name", "_node")

    def __init__(self, u: UOp, graph: _Graph | None = None) -> None:
        self._node, self._graph = u, graph
        self._name = _name_of(u)

    def name(self) -> str:
        """The name: "MulBackward0"."""
        return self._name

    @property
    def next_functions(self) -> tuple[tuple[GradFn | AccumulateGrad, int], ...]:
        """The functions that made the arguments through which gradients flow, and the leaves, each with a 0."""
        graph = self._graph = self._graph or _Graph(self._node)
        return tuple([(f, 0) for f in graph.below(self._node)])

    def __repr__(self) -> str:
        return f"<{self._name}>"


class AccumulateGrad:
    """The end of a graph of gradients: a leaf, `variable`, whose `grad` receives them.

    Args:
        variable: the leaf.
    """

    __slots__ = ("variable",)
    next_functions: tuple[Any, ...] = ()

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def name(self) -> str:
        """The name, as torch has it."""
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


class _Graph:
    """The leaves below a node, and the nodes that depend on them."""

    def __init__(self, root: UOp) -> None:
        self.leaves: dict[UOp, Any] = {}
        for t in here.tensors.live_leaves():
            for u in (t.uop, t._alias):
                if u is not None:
                    self.leaves[_flat(u)] = t
        self.wants: set[UOp] = set(self.leaves)
        for u in toposort(root, lambda u: u.op is Op.DETACH or u in self.leaves, _sources):
            if any(s in self.wants for s in _sources(u)):
                self.wants.add(u)

    def below(self, u: UOp) -> list[GradFn | AccumulateGrad]:
        """The calls that made the inputs of the call that made `u`."""
        found: dict[UOp, GradFn | AccumulateGrad] = {}
        stack = [_flat(u)] if _flat(u) in self.leaves else list(reversed(_sources(u)))  # a view of a leaf's memory
        seen = set()
        while stack:
            s = stack.pop()
            if s in seen or s not in self.wants:
                continue
            seen.add(s)
            if s in self.leaves:
                found[s] = AccumulateGrad(self.leaves[s])
            elif _call_of(s) == _call_of(u) or _call_of(s)[0] is None:
                stack += reversed(_sources(s))
            else:
                found[s] = GradFn(s, self)
        return list(found.values())


def _flat(u: UOp) -> UOp:
    """The memory that a node shows in some shape, or the node: a reshape of a reshape is one."""
    below = u
    while below.op is Op.RESHAPE:
        below = below.src[0]
    return below if below.op is Op.BUFFER else u


def _sources(u: UOp) -> Src:
    """The sources of a node, even after it was realized."""
    storage = storage_of(u)
    return u.src if storage is None or storage.origin is None else (storage.origin,)


def _call_of(u: UOp) -> tuple[Any, ...]:
    """The function of a node, and the line that called it."""
    return u.provenance[4], u.provenance[1:4]


def grad_fn(x: Tensor) -> GradFn | None:
    """The function that computed this tensor, None for a leaf; it has a name and `next_functions`."""
    if x.is_leaf or not x.requires_grad:
        return None
    u = x.uop
    storage = storage_of(u)
    if storage is not None and storage.origin is not None:
        u = storage.origin
    while u.op is Op.CONTIGUOUS and u.provenance[4] is None:
        u = u.src[0]
    return GradFn(u)


def _name_of(u: UOp) -> str:
    from anneal.transforms import derivative_of

    if u.op is Op.BUFFER:
        return "ViewBackward0"  # of a leaf whose memory is flat: a view as flat is the same node
    known = derivative_of(u)
    if known is not None and known.hooks is None and not known.name.startswith("a backward hook"):
        return f"{known.name.split('.')[-1]}Backward"
    code = u.provenance[4]
    name = u.op.name.lower() if code is None else code.co_name
    said = _NAMES.get(name.rstrip("_")) or "".join(word.capitalize() for word in name.split("_"))
    return f"{said}Backward0"
