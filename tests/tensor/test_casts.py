"""Casts of extreme values beside torch's, every pair of dtypes: `torch_casts.py` made the table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.backend import get_device
from anneal.errors import DTypeError
from anneal.tensor import Tensor
from tests.tensor.torch_casts import DTYPES, PATH

TABLE = json.loads(PATH.read_text(encoding="utf-8"))


def _read(row: list[Any]) -> list[Any]:
    return [float(x) if isinstance(x, str) else x for x in row]


def _said(value: Any) -> str:
    return str(float(value)) if isinstance(value, float) else str(int(value))


def _told_apart(target: str, wanted: Any) -> bool:
    """float8_e4m3fn ends in nan here and at 448 in torch (LIMITATIONS)."""
    return target != "float8_e4m3fn" or abs(wanted) != 448


@pytest.mark.parametrize("source", DTYPES)
def test_casts_beside_torch(source: str, device: str) -> None:
    held = {d.name for d in get_device(device).limits.dtypes}
    if source not in held:
        pytest.skip(f"{device} has no {source}")
    rows = TABLE[source]
    values = _read(rows[""])
    floats = "float" in source
    x = Tensor(np.array(values, np.float64 if floats else source), device="cpu").cast(source).to(device)
    wrong = []
    for target in DTYPES:
        if target not in held:
            continue
        for value, got, wanted in zip(values, x.cast(target).tolist(), _read(rows[target]), strict=True):
            if wanted is None or not _told_apart(target, wanted):
                continue
            denormal = device != "cpu" and floats and (abs(value) < 2.0**-126 or (wanted and abs(wanted) < 2.0**-126))
            if _said(got) != _said(wanted) and not denormal:
                wrong.append(f"{source} {value} to {target}: {got}, torch has {wanted}")
    assert not wrong, "\n".join(wrong)


def test_a_negative_float_is_the_low_bits_of_a_small_integer(device: str) -> None:
    for made in (lambda v: Tensor(v).cast("uint8"), lambda v: (Tensor(v) * 1).cast("uint8")):
        assert made([-1.0, -1.5, 255.9, 256.0, 300.0]).tolist() == [255, 255, 255, 0, 44]
    assert (Tensor(-1.5).cast("uint8").item(), Tensor(-129.0).cast("int8").item()) == (255, 127)


WRITERS: dict[str, Callable[[Tensor, Any], Any]] = {
    "x[0] = v": lambda x, v: x.__setitem__(0, v),
    "x[:1] = v": lambda x, v: x.__setitem__(slice(1), v),
    "x[x > 0] = v": lambda x, v: x.__setitem__(x > 0, v),
    "x[[0]] = v": lambda x, v: x.__setitem__([0], v),
    "fill_": lambda x, v: x.fill_(v),
    "full": lambda x, v: Tensor.full((2,), v, dtype=x.dtype),
    "full_like": lambda x, v: x.full_like(v),
    "index_copy": lambda x, v: x.index_copy(0, Tensor([0]), v),
    "index_fill": lambda x, v: x.index_fill(0, Tensor([0]), v),
    "index_put": lambda x, v: x.index_put((Tensor([0]),), v),
    "masked_fill": lambda x, v: x.masked_fill(x > 0, v),
    "new_full": lambda x, v: x.new_full((2,), v),
    "scatter": lambda x, v: x.scatter(0, Tensor([0]), v),
    "Tensor(v)": lambda x, v: Tensor(v, dtype=x.dtype),
    "Tensor([v])": lambda x, v: Tensor([v], dtype=x.dtype),
}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -1e30], ids=str)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_number_that_no_integer_is_near_is_refused(name: str, kind: str, value: float) -> None:
    """torch's: "value cannot be converted to type int without overflow"."""
    x = Tensor([1, 0]).cast(kind)
    with pytest.raises(DTypeError, match="fit"):
        WRITERS[name](x, value)
    assert x.tolist() == [1, 0]
