"""Casts of extreme values beside torch's, every pair of dtypes: `torch_casts.py` made the table."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from anneal.backend import get_device
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
