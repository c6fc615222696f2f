"""ai.onnx.ml's maps: on the host, where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, Value
from anneal.onnx.ops.ml import ML
from anneal.onnx.registry import op
from anneal.onnx.types import Map

__all__: list[str] = []


@op("ZipMap", domain=ML, raw=True)
def zip_map(
    node: Call,
    x: Value,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> list[Map]:
    """A map for each row, from class labels to its numbers."""
    keys: Sequence[Any] = classlabels_strings or classlabels_int64s or ()
    rows = node.host(x, "its results are maps")
    rows = rows.reshape(1, -1) if rows.ndim < 2 else rows
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise node.fail(f"has {len(keys)} class labels for a value of shape {list(rows.shape)}")
    return [Map(dict(zip(keys, row, strict=True))) for row in rows.tolist()]


@op("DictVectorizer", domain=ML, raw=True)
def dict_vectorizer(
    node: Call,
    x: Any,
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    """The numbers that a map has for the keys of a list, 0 for those that it does not have: (1, keys)."""
    keys: Sequence[Any] = string_vocabulary or int64_vocabulary or ()
    entries = _entries(node, x)
    kind = type(next(iter(entries.values()), np.float32(0)))
    blank: Any = "" if kind is str else kind(0)
    row = np.empty(len(keys), object if kind is str else kind)
    row[:] = [entries.get(k, blank) for k in keys]
    return row.reshape(1, -1)


@op("CastMap", domain=ML, raw=True)
def cast_map(node: Call, x: Any, *, cast_to: str, map_form: str, max_map: int) -> Array:
    """The values of a map with whole numbers as keys, in their order (DENSE), or at the places that the keys name
    (SPARSE), as numbers or texts: (1, n).
    """
    entries = _entries(node, x)
    forms: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
        "TO_FLOAT": (float, np.float32, 0.0),
        "TO_INT64": (int, np.int64, 0),
        "TO_STRING": (lambda v: v if isinstance(v, str) else f"{v:f}", object, "0.f"),  # as onnxruntime has it
    }
    if cast_to not in forms or map_form not in ("DENSE", "SPARSE"):
        raise node.fail(f"cast_to={cast_to!r} with map_form={map_form!r} is nothing that the standard has")
    cast, dtype, blank = forms[cast_to]
    if map_form == "DENSE":
        values = [cast(entries[k]) for k in sorted(entries)]
    else:
        node.room(max_map)
        values = [blank] * max_map
        for k, v in entries.items():
            if not 0 <= k < max_map:
                raise node.fail(f"the map has the key {k}; max_map is {max_map}")
            values[k] = cast(v)
    row = np.empty(len(values), dtype)
    row[:] = values
    return row.reshape(1, -1)


def _entries(node: Call, x: Any) -> Any:
    if not isinstance(x, Map):
        raise node.fail("takes a map")
    return x.entries
