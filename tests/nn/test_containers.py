"""Containers of modules and parameters that a jit function makes, as parts of others: they are none of its effects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DataError, DTypeError, JitError
from anneal.tensor import Tensor, jit

MADE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "slice": lambda m, x: m[:2](x),
    "sequential": lambda m, x: nn.Sequential(m[0], nn.ReLU(), Tensor.sin)(x),
    "children": lambda m, x: nn.Sequential(*list(m.children())[:-1])(x),
    "names": lambda m, x: nn.Sequential(OrderedDict(a=m[0], b=m[1]))(x),
    "list": lambda m, x: nn.ModuleList([m[0], m[1]])[-1](x),
    "sum": lambda m, x: (nn.ModuleList([m[0]]) + [m[1]])[1](x),
    "dict": lambda m, x: nn.ModuleDict({"a": m[0], "b": m[1]})["a"](x),
    "copy": lambda m, x: nn.ModuleDict([("a", m[0])]).copy()["a"](x),
    "parameters": lambda m, x: x @ nn.ParameterList([m[0].weight])[0].T,
    "named parameters": lambda m, x: x @ nn.ParameterDict({"w": m[0].weight})["w"].T,
}


@pytest.mark.parametrize("name", MADE)
def test_a_container_may_be_made_in_a_jit_function(name: str) -> None:
    make, m = MADE[name], nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    f, other = jit(lambda x: make(m, x)), jit(m)
    for n in range(4):
        x = Tensor([[1.0, n]])
        np.testing.assert_allclose(f(x).numpy(), make(m, x).numpy(), atol=1e-6)
        other(x)
        make(m, x)  # no capture is out of date by it
    assert not f.recaptures
    assert not other.recaptures
    assert "captured" in f.explain()
    assert "not captured" not in f.explain()


def test_a_container_that_stands_outside_is_not_changed_in_a_jit_function() -> None:
    for change in (
        lambda m, d: m.append(nn.Tanh()),
        lambda m, d: d.update({"c": nn.Tanh()}),
        lambda m, d: m.insert(0, nn.Tanh()),
    ):
        m, d = nn.Sequential(nn.Tanh()), nn.ModuleDict({"a": nn.Tanh()})

        def f(x: Tensor, change: Any = change, m: Any = m, d: Any = d) -> Tensor:
            change(m, d)
            return x * 2

        step = jit(f)
        with pytest.raises(JitError):
            [step(Tensor([1.0])) for _ in range(4)]


def test_names_and_values_are_checked_as_before() -> None:
    for wrong in ({"a.b": nn.ReLU()}, {"": nn.ReLU()}, {"forward": nn.ReLU()}, {"a": 3}):
        with pytest.raises(DTypeError):
            nn.ModuleDict(wrong)
        with pytest.raises((DataError, DTypeError)):
            nn.Sequential(wrong)
    with pytest.raises(DTypeError, match="holds modules, not 3"):
        nn.Sequential(nn.ReLU(), 3)  # type: ignore[arg-type]
    assert [len(c) for c in (nn.Sequential(), nn.Sequential({}), nn.ModuleList(), nn.ModuleDict())] == [0, 0, 0, 0]
    assert list(nn.ModuleDict(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ReLU()}).items())) == ["b", "a"]


def test_a_state_that_is_no_dict_is_refused() -> None:
    m = nn.Linear(2, 2)
    for wrong in ("model.pt", m, 3, None, [1]):
        with pytest.raises(DataError, match="load_state_dict: takes a dict of tensors by name"):
            m.load_state_dict(wrong)  # type: ignore[arg-type]


def test_parameters_of_a_plain_dict_come_by_name_and_others_as_they_stand() -> None:
    """torch's order, which numbers the states of a saved optimiser."""
    b, a = nn.Parameter([1.0]), nn.Parameter([2.0])
    assert list(nn.ParameterDict({"b": b, "a": a})) == ["a", "b"]
    assert list(nn.ParameterDict(OrderedDict(b=b, a=a))) == list(nn.ParameterDict([("b", b), ("a", a)])) == ["b", "a"]
    given = nn.ParameterDict({"z": a})
    given.update({"y": a, "c": b})
    given.update(nn.ParameterDict([("w", b), ("v", a)]))
    assert [name for name, _ in given.named_parameters(remove_duplicate=False)] == ["z", "c", "y", "w", "v"]
    assert list(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ReLU()})) == ["b", "a"]
