"""Attributes of tensors that can be set: each does what torch's does, or is refused.

`settable.json` has what torch gives; `python -m tests.tensor.test_settable` writes it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import anneal
from anneal import nn, optim
from anneal.tensor import Tensor

TABLE = Path(__file__).with_name("settable.json")
KINDS = ("plain", "leaf", "parameter", "computed", "ints", "narrow")
NAMES = ("requires_grad", "grad", "data", "is_leaf", "device", "dtype", "shape", "T", "mT", "ndim", "itemsize")
VALUES = ("None", "True", "False", "0", "1.0", "list", "same", "wide", "longer", "scalar", "ints")


def made(m: Any, kind: str) -> Any:
    if kind == "parameter":
        return m.nn.Parameter(m.tensor([1.0, 2.0]))
    if kind in ("ints", "narrow"):
        return m.tensor([1, 2], dtype=m.int32 if kind == "ints" else m.float16)
    x = m.tensor([1.0, 2.0], requires_grad=kind != "plain")
    return (x * 2, x) if kind == "computed" else x


def value(m: Any, name: str) -> Any:
    numbers = {"None": None, "True": True, "False": False, "0": 0, "1.0": 1.0, "list": [1.0, 2.0]}
    if name in numbers:
        return numbers[name]
    if name == "ints":
        return m.tensor([3, 4], dtype=m.int32)
    given = {"same": [3.0, 4.0], "wide": [3.0, 4.0], "longer": [1.0, 2.0, 3.0], "scalar": 5.0}[name]
    return m.tensor(given, dtype=m.float64 if name == "wide" else m.float32)


def outcome(m: Any, kind: str, name: str, given: str) -> Any:
    """What an attribute, the tensor and a gradient are afterwards; None where it is refused."""
    x = made(m, kind)
    x, leaf = x if isinstance(x, tuple) else (x, x)
    try:
        setattr(x, name, value(m, given))
    except (AttributeError, TypeError, RuntimeError, ValueError):
        return None
    out: list[Any] = [str(x.dtype).split(".")[-1], x.detach().tolist(), x.requires_grad]
    if x.requires_grad:
        if kind == "computed":
            x.retain_grad()
        try:
            (x * x * 3).sum().backward()
        except RuntimeError:
            return [*out, None]
        out += [t.grad.tolist() for t in (x, leaf) if t.grad is not None]
        if kind != "computed":
            m.optim.SGD([x], 0.5).step()
            out.append(x.detach().tolist())
    return out


def key(*names: str) -> str:
    return " ".join(names)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_is_as_torchs(name: str, device: str) -> None:
    table = json.loads(TABLE.read_text())["outcomes"]
    for kind in KINDS:
        for given in VALUES:
            if device == "webgpu" and given == "wide":  # it has no float64
                continue
            mine, torchs = outcome(anneal, kind, name, given), table[key(kind, name, given)]
            if (kind, name) == ("computed", "data") and torchs and given != "same":
                # backward() through new data of another shape or dtype says that the graph ended there
                assert mine == [*torchs[:3], None]
                continue
            if (kind, name, given) == ("narrow", "grad", "same"):
                assert (
                    mine is not None
                )  # a gradient of float32, which a scale was taken from; torch wants grad_dtype set
                continue
            assert mine == torchs, (kind, given)


def test_every_other_attribute_is_refused() -> None:
    for name in dir(Tensor):
        if name.startswith("_") or name in ("requires_grad", "grad", "data"):
            continue
        if name in ("late", "uop"):  # the compiler's own
            continue
        with pytest.raises(AttributeError):
            setattr(Tensor([1.0]), name, None)
    with pytest.raises(AttributeError, match=r"device cannot be set: move the tensor by \.to\(device\)"):
        Tensor([1.0]).device = "webgpu"  # type: ignore[misc]


def test_a_tensor_that_comes_to_require_a_gradient_trains(device: str) -> None:
    w, frozen = Tensor([1.0, 2.0]), nn.Parameter([1.0])
    w.requires_grad = True
    frozen.requires_grad = False
    optimizer = optim.SGD([w, frozen], 0.5)
    for _ in range(2):
        optimizer.zero_grad()
        ((w * w).sum() + frozen.sum()).backward()
        optimizer.step()
    assert w.tolist() == [0.0, 0.0]
    assert frozen.grad is None
    assert frozen.tolist() == [1.0]
    frozen.requires_grad = True
    (frozen * 3).sum().backward()
    assert frozen.grad is not None
    assert frozen.grad.tolist() == [3.0]


def test_inside_the_package_the_slot_is_set() -> None:
    """`requires_grad = ...` there would be a call, with checks that results of ops have no need of."""
    for path in Path(anneal.__file__).parent.rglob("*.py"):
        found = re.findall(r"^(?!.*>>>).*\w\.(?:requires_grad|is_leaf) = .*", path.read_text(), re.MULTILINE)
        assert not found, (path, found)


if __name__ == "__main__":
    import torch

    outcomes = {key(k, n, v): outcome(torch, k, n, v) for k in KINDS for n in NAMES for v in VALUES}
    TABLE.write_text(json.dumps({"torch": torch.__version__, "outcomes": outcomes}, indent=0) + "\n")
