"""Tensors of other libraries as ours, and the attributes that copies, files and states keep. The values are torch's."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.runtime import is_realized
from anneal.tensor import Tensor


class Foreign:
    """A tensor as torch has it, of a dtype that NumPy lacks."""

    def __init__(self, values: Any, dtype: str) -> None:
        self.values, self.dtype = np.asarray(values, np.float32), f"torch.{dtype}"
        self.shape = self.values.shape

    def detach(self) -> Foreign:
        return self

    cpu = detach

    def float(self) -> Any:
        return self.values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(f"Got unsupported ScalarType {self.dtype}")

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("DLPack has no such dtype")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", NARROW)
def test_dtypes_that_numpy_lacks_come_from_torch(dtype: str) -> None:
    given = Foreign([[1.5, -2.0]], dtype)
    for made in (an.tensor(given), an.as_tensor(given), an.from_dlpack(given)):
        assert (made.dtype.name, made.float().tolist()) == (dtype, [[1.5, -2.0]])
    layer = nn.Linear(2, 1, bias=False)
    layer.load_state_dict({"weight": given})
    assert (layer.weight.dtype.name, layer.weight.tolist()) == ("float32", [[1.5, -2.0]])
    layer.load_state_dict({"weight": given}, assign=True)
    assert (layer.weight.dtype.name, layer.weight.float().tolist()) == (dtype, [[1.5, -2.0]])
    w = nn.Parameter([1.0, 1.0])
    optimizer = an.optim.SGD([w], lr=0.5, momentum=0.5)
    state = {"momentum_buffer": Foreign([2.0, 4.0], dtype)}
    saved: Any = {"state": {0: state}, "param_groups": [{"lr": 0.5, "momentum": 0.5, "params": [0]}]}
    optimizer.load_state_dict(saved)
    w.grad = an.zeros(2)
    optimizer.step()
    assert w.tolist() == [0.5, 0.0]


def test_what_is_no_tensor_in_a_state_is_an_error_that_names_it() -> None:
    layer = nn.Linear(2, 1)
    for wrong in ([[1.0, 2.0]], None, 3.0, "text"):
        with pytest.raises(an.errors.DataError, match=r"does not fit the state: .*weight is "):
            layer.load_state_dict({"weight": wrong, "bias": np.ones(1)})


def test_assigned_tensors_require_gradients_as_the_models_do() -> None:
    for frozen in (False, True):
        model: Any = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        state = model.state_dict()
        given: Any = {
            n: nn.Parameter(t + 1, not frozen) for n, t in state.items() if t.dtype.is_float and "running" not in n
        }
        given |= {n: (t + 1.0).requires_grad_() * 2 for n, t in state.items() if "running" in n}
        model.requires_grad_(frozen)
        model.load_state_dict({**state, **given}, assign=True)
        assert {p.requires_grad for p in model.parameters()} == {frozen}
        assert model[0].weight is given["0.weight"]
        assert list(model.state_dict()) == list(state)
        assert model[1].running_mean.tolist() == [2.0, 2.0]


def test_assigned_tensors_are_computed_so_that_rounds_do_not_grow() -> None:
    layer = nn.Linear(2, 2)
    for _ in range(3):
        layer.load_state_dict({name: t * 2 for name, t in layer.state_dict().items()}, assign=True)
        assert all(is_realized(t.uop) for t in layer.parameters())


def test_states_are_collected_in_a_dict_that_is_given() -> None:
    into: dict[str, Any] = {"epoch": 3}
    assert nn.Linear(1, 1).state_dict(prefix="m.", destination=into) is into
    assert list(into) == ["epoch", "m.weight", "m.bias"]


def test_a_copy_of_a_leaf_has_its_gradient() -> None:
    x, y = an.ones(2, requires_grad=True), nn.Parameter([1.0])
    (x * 3).sum().backward()
    (y * 3).sum().backward()
    other = copy.deepcopy(x)
    assert other.grad is not None
    assert (other.requires_grad, other.grad.tolist(), other.grad is x.grad) == (True, [3.0, 3.0], False)
    both: Any = copy.deepcopy([x, x.grad])
    assert both[0].grad is both[1]
    assert copy.deepcopy(y).grad is None


def test_a_saved_leaf_requires_a_gradient_when_it_is_loaded() -> None:
    x = an.ones(1, requires_grad=True)
    file = io.BytesIO()
    an.save({"leaf": x, "result": x * 2, "plain": an.ones(1), "p": nn.Parameter([1.0], requires_grad=False)}, file)
    file.seek(0)
    loaded = an.load(file)
    assert {n: (t.requires_grad, t.is_leaf) for n, t in loaded.items()} == {
        "leaf": (True, True), "result": (True, True), "plain": (False, True), "p": (False, True),
    }  # fmt: skip


def test_numpy_takes_torchs_argument_and_lists_of_narrow_floats_warn_of_nothing() -> None:
    assert an.ones(2, requires_grad=True).numpy(force=True).tolist() == [1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
            assert Tensor([np.ones(2, dtype)]).tolist() == [[1.0, 1.0]]
