"""`an.compile` and `module.compile()`: jit by torch's names, with torch's arguments."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.errors import JitError, SettingError
from anneal.runtime import Jit
from anneal.tensor import Tensor, jit, no_grad


class Net(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(2, 1)
        self.runs: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.runs.append(1)
        return self.layer(x).relu()


X = Tensor([[1.0, 2.0], [3.0, -1.0]])


@pytest.mark.parametrize("by", [lambda m: an.compile(m), lambda m: (m.compile(mode="default"), m)[1]])
def test_a_module_stays_a_module(by: Any) -> None:
    net = Net()
    compiled = by(net)
    assert compiled is net
    assert [n for n, _ in nn.Sequential(compiled).named_parameters()] == ["0.layer.weight", "0.layer.bias"]
    with no_grad():
        expected = net.layer(X).relu().tolist()
        assert [net(X).tolist() for _ in range(5)] == [expected] * 5
    assert len(net.runs) == 2
    other = copy.deepcopy(net)
    with no_grad():
        other.layer.bias.sub_(3.0)
        expected = other.layer(X).relu().tolist()
        assert [other(X).tolist() for _ in range(4)] == [expected] * 4
        handle = net.register_forward_hook(lambda m, args, y: y * 2)
        assert net(X).tolist() == (net.layer(X).relu() * 2).tolist()
        handle.remove()
    net.compile(disable=True)
    assert not isinstance(net._compiled, Jit)


def test_a_compiled_module_trains_as_one_that_is_not() -> None:
    found = []
    for compiled in (False, True):
        net = Net()
        net.load_state_dict({"layer.weight": np.array([[1.0, 0.5]]), "layer.bias": np.array([0.1])})
        model = an.compile(net) if compiled else net
        optimiser = optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(6):
            optimiser.zero_grad()
            loss = (model(X) - 1).pow(2).mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_what_is_under_jit_is_part_of_its_module() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.encoder = jit(nn.Linear(2, 2))
            self.head = nn.Linear(2, 1)

    two = Two()
    names = ["encoder.weight", "encoder.bias", "head.weight", "head.bias"]
    assert sorted(n for n, _ in two.named_parameters()) == sorted(names)
    assert sorted(two.state_dict()) == sorted(names)
    two.eval()
    assert not two.encoder.training
    assert [t.shape for t in two.encoder.parameters()] == [(2, 2), (2,)]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = two.encoder.nonsense


def test_functions_are_compiled_with_torch_s_arguments() -> None:
    runs: list[int] = []

    @an.compile(fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune")
    def twice(x: Tensor) -> Tensor:
        runs.append(1)
        return x * 2

    assert [twice(Tensor([float(n)])).item() for n in range(5)] == [0, 2, 4, 6, 8]
    assert len(runs) == 2

    def plain(x: Tensor) -> Tensor:
        return x

    assert an.compile(plain, disable=True) is plain
    assert an.compile(plain, backend="eager") is plain
    assert isinstance(an.compile(plain, options={"trace.enabled": False}), Jit)


@pytest.mark.parametrize("options", [
    {"backend": "tensorrt"}, {"mode": "fast"}, {"fullgraph": 1}, {"dynamic": "yes"}, {"options": 3}, {"disable": None},
    {"mode": "default", "options": {}},
], ids=str)  # fmt: skip
def test_values_that_torch_does_not_have_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="compile: "):
        an.compile(lambda x: x, **options)
    with pytest.raises(SettingError, match="compile: "):
        nn.ReLU().compile(**options)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(SettingError, match="the model is a function or a module, not int"):
        an.compile(3)  # type: ignore[call-overload]


@pytest.mark.parametrize("branch", [
    lambda x: x if x.sum() > 0 else -x, lambda x: x if not x.sum() else -x, lambda x: x * (x.sum() > 0 and 2),
    lambda x: x if (x > 0).all() else -x,
])  # fmt: skip
def test_a_branch_on_a_tensor_says_what_to_write(branch: Any) -> None:
    with pytest.raises(JitError, match=r"a branch on the value of a tensor .*write an.where\(condition, a, b\)"):
        jit(branch)(Tensor([1.0, 2.0]))
