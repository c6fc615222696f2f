"""A result shares its values with an argument where torch gives a view of it, or that itself, and nowhere else."""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.errors import UserError
from anneal.tensor import Tensor, no_grad
from tests.tensor.argument_rows import Case, T, cases, made
from tests.tensor.torch_sharing import CALLS, PATH, changed, tensors

CHANGED: dict[str, str] = json.loads(PATH.read_text())["changed"]
assert CHANGED.keys() == set(CALLS), "run python -m tests.tensor.torch_sharing, which needs torch"

CASES, OPS = cases(), ("Tensor", "functional", "tensor")
# Methods that are no ops, and give the tensor itself or change it; and ops that give views of several tensors.
SHARED = {
    *("assign", "cpu", "detach", "dropout", "pin_memory", "realize", "requires_grad_", "to", "to_dense", "to_device"),
    *("type", "broadcast_tensors", "meshgrid"),
}


@pytest.mark.parametrize("kind", ["lazy", "memory", "late"])
def test_what_changes_with_a_result_is_torchs(kind: str, device: str) -> None:
    given: Callable[[Any], Any] = Tensor.realize if kind == "memory" else lambda x: x
    wrong = []
    for call in CALLS if device == "cpu" else CALLS[::5]:
        for _ in range(3 if kind == "late" else 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = changed(an, call, given)
            if found != CHANGED[call]:
                wrong.append(f"{call}: {found or 'nothing'} changes, not {CHANGED[call] or 'nothing'}")
    assert not wrong


def trivial(x: Any, dtype: str) -> Any:
    """The same arguments with tensors of one element."""
    if isinstance(x, T):
        return T((1,) * len(x.shape), dtype if x.dtype == "float32" else x.dtype, [1])
    return type(x)([trivial(y, dtype) for y in x]) if isinstance(x, (list, tuple)) else x


def own(case: Case) -> bool:
    """True if the results of an op share nothing."""
    op: Any = inspect.unwrap(case.call)
    shares = (hasattr(op, "is_view") or hasattr(op, "is_itself")) and not case.title.endswith("_copy")
    return not (shares or case.title in SHARED or case.title.endswith("_"))


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if n.split(".")[0] in OPS and own(case)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_no_result_is_an_argument(name: str, dtype: str) -> None:
    case = CASES[name]
    for row in (case.row.args, trivial(case.row.args, dtype)):
        args, options = made(row, "cpu"), made(case.row.options, "cpu")
        given = tensors(an, list(args))
        before = [x.numpy() for x in given]
        try:
            results = [y for y in tensors(an, case.call(*args, **options)) if not isinstance(y, nn.Parameter)]
            with no_grad():
                for y in results:
                    y.logical_not_() if y.dtype == an.bool else y.add_(1)
        except UserError:
            continue  # that is no right call
        for x, old in zip(given, before, strict=True):
            np.testing.assert_array_equal(x.numpy(), old)


def test_the_copying_form_of_a_view_has_results_of_its_own() -> None:
    for _ in range(3):
        for op, shared in ((an.permute, True), (an.permute_copy, False), (an.permute, True)):
            x = an.ones(2, 1) * 1
            op(x, (1, 0)).add_(1)
            assert x.tolist() == ([[2.0], [2.0]] if shared else [[1.0], [1.0]])


def _halved(g: Tensor) -> Tensor:
    """A gradient that is changed in place in parts, and a copy of it."""
    h = g.clone()
    h.view(-1)[0] = 5.0
    h[1].mul_(10)
    an.cat([h]).zero_()
    return h


class _Halved(an.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return _halved(g)


def test_views_share_values_where_gradients_are_made(device: str) -> None:
    for _ in range(3):
        x = an.ones(2, 2, requires_grad=True)
        _Halved.apply(x * 1).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[5.0, 1.0], [10.0, 10.0]]
        x.grad = None
        y = x * 1
        y.register_hook(_halved)
        y.sum().backward()
        assert x.grad.tolist() == [[5.0, 1.0], [10.0, 10.0]]  # type: ignore[attr-defined]


def test_a_shallow_copy_is_a_leaf_that_shares_values() -> None:
    w = nn.Parameter(an.zeros(2))
    for x, kind in ((an.zeros(2), Tensor), (an.zeros(2, requires_grad=True), Tensor), (w, nn.Parameter)):
        y = copy.copy(x)
        assert type(y) is kind
        assert y.is_leaf
        assert y is not x
        assert y.requires_grad == x.requires_grad
        with no_grad():
            y.add_(1)
        assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("index", [0, [0, 2], [True, False, True], slice(None)])
@pytest.mark.parametrize("data", [False, True])
def test_an_assignment_without_recording_leaves_the_gradient(index: Any, data: bool, device: str) -> None:
    """torch 2.13: the gradient goes past values that nobody recorded, to what the tensor was computed from."""
    for _ in range(3):
        w = an.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = w * 2
        at = an.tensor(index) if isinstance(index, list) else index
        if data:
            y.data[at] = 5.0
        else:
            with no_grad():
                y[at] = 5.0
        expected = np.array([2.0, 4.0, 6.0])
        expected[index] = 5.0
        assert y.requires_grad
        assert y.tolist() == expected.tolist()
        (y.sum() + w.sum()).backward()
        assert w.grad is not None
        assert w.grad.tolist() == [3.0, 3.0, 3.0]
