"""Results that are whole numbers are torch's on every device (torch_values.py)."""

from __future__ import annotations

import json
from typing import Any

import anneal as an
from anneal.tensor import Tensor
from tests.tensor.torch_values import CALLS, PATH, called, told

VALUES: dict[str, list[Any]] = json.loads(PATH.read_text())["values"]
assert VALUES.keys() == set(CALLS), "run python -m tests.tensor.torch_values, which needs torch"


def test_values_shapes_and_dtypes_are_torchs(device: str) -> None:
    wrong = [call for call in CALLS if told(called(an, call)) != VALUES[call]]
    assert not wrong


def test_windows_of_nothing_have_a_gradient_of_zeros() -> None:
    x = Tensor.ones(3, 2, requires_grad=True)
    x.unfold(0, 0, 1).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0]] * 3


def test_pairs_of_a_pad_may_be_none() -> None:
    assert Tensor([[1, 2]]).pad((None, (1, 0))).tolist() == [[0, 1, 2]]
    assert Tensor([[1, 2]]).pad(((0, 1), None)).tolist() == [[1, 2], [0, 0]]
    assert Tensor([[1, 2]]).pad((None, None)).tolist() == [[1, 2]]


def test_a_dtype_is_there_by_the_name_that_it_prints() -> None:
    kinds = [an.bool, an.int32, an.float16, an.uint8]
    assert [eval(repr(kind), {"dtypes": an.dtypes}) for kind in kinds] == kinds
    assert (an.dtypes.long, an.dtypes.half, an.dtypes.double) == (an.int64, an.float16, an.float64)


def test_a_number_in_a_text_is_one() -> None:
    loss = (an.tensor([1.0, 4.0], requires_grad=True)).mean()
    assert f"{loss} {loss:.2f} {an.tensor(3)} {an.tensor(True)}" == "2.5 2.50 3 True"  # torch's
    assert f"{an.tensor([3])}" == "Tensor([3], dtype=int32)"
