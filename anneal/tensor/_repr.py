"""Tensors as text: four digits, aligned, and of many values the first and last of each axis, as torch shows them.

A large graph that was not computed is described; printing is not the place to train a model.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from anneal.backend import HOST
from anneal.errors import SettingError
from anneal.names import Tensor
from anneal.uop import UOp

_LARGE_GRAPH = 2000  # nodes: a layer or two


class _Options(TypedDict):
    precision: int
    threshold: float
    edgeitems: int
    linewidth: int
    sci_mode: bool | None


_DEFAULT: _Options = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES: dict[str, dict[str, Any]] = {
    "default": dict(_DEFAULT),
    "short": {**_DEFAULT, "precision": 2, "edgeitems": 2},
    "full": {**_DEFAULT, "threshold": math.inf},
}
_options: _Options = _DEFAULT.copy()


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
    given: dict[str, Any] = dict(_PROFILES[profile]) if profile is not None else {}
    numbers = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in numbers.items():
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise SettingError(f"set_printoptions: {name} is a number that is not negative, not {value!r}")
            given[name] = value
    if sci_mode is not None or profile is not None:
        given["sci_mode"] = sci_mode
    _options.update(given)  # type: ignore[typeddict-item]


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
    if not values.size:
        return f"{name}([], shape={t.shape}{tail})"
    if values.size > _options["threshold"]:
        tail = f", shape={t.shape}{tail}"
    return f"{name}({_values(values, f'{name}(')}{tail})"


def _values(values: np.ndarray[Any, Any], prefix: str) -> str:
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
    seen: set[UOp] = set()
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
