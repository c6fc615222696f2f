"""A module of the library that was called so before is looked up whole; one with anything else in it is not
(`nn/_whole_calls.py`). That values are those of the ops is tested in tests/fuzz/test_replays.py.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

from anneal import autograd, nn
from anneal.func import functional_call
from anneal.nn import functional as F
from anneal.tensor import Tensor, jit

ROUNDS = 6


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def hooked() -> nn.Module:
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    layer[1].register_forward_hook(lambda module, args, result: None)
    return layer


class Counted:
    """How often the modules below are entered in each round of a loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = 0
        for cls in (nn.Linear, nn.LSTM):
            forward: Callable[..., Any] = cls.forward

            @functools.wraps(forward)  # it is the library's to those who ask
            def counting(module: Any, *args: Any, _forward: Callable[..., Any] = forward) -> Any:
                self.entered += 1
                return _forward(module, *args)

            monkeypatch.setattr(cls, "forward", counting)

    def rounds(self, model: Any, shape: tuple[int, ...]) -> list[int]:
        found = []
        for n in range(ROUNDS):
            before = self.entered
            out = model(Tensor(np.full(shape, n, np.float32)))
            (out[0] if isinstance(out, tuple) else out).numpy()
            found.append(self.entered - before)
        return found


WHOLE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sequential": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), (3, 4)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (3, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4)),
    "tied": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0), 2), (2, 3, 4)),
    "nested results": (lambda: nn.LSTM(4, 2), (2, 3, 4)),
}
APART: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "a user's module": (lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)), Doubled()), (3, 4)),
    "a hook": (hooked, (3, 4)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_module_that_was_called_so_before_is_not_entered(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make, shape = WHOLE[name]
    first, second, *later = Counted(monkeypatch).rounds(make(), shape)
    assert first > 0
    assert later == [0] * (ROUNDS - 2), (first, second, later)


@pytest.mark.parametrize("name", APART)
def test_a_module_with_something_else_in_it_is_entered(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The modules in it may be known."""
    make, shape = APART[name]
    model = make()
    calls: list[int] = []
    monkeypatch.setattr(type(model), "forward", seen(type(model).forward, calls))
    Counted(monkeypatch).rounds(model, shape)
    assert len(calls) >= ROUNDS


def seen(forward: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counting(module: Any, *args: Any) -> Any:
        calls.append(1)
        return forward(module, *args)

    return counting


def test_random_numbers_are_drawn_in_each_round() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    found = [model(Tensor(np.ones((1, 4), np.float32))).numpy() for _ in range(ROUNDS)]
    assert len({a.tobytes() for a in found}) == ROUNDS


def test_a_function_of_the_users_is_called_in_each_round() -> None:
    calls: list[int] = []

    def activation(x: Tensor) -> Tensor:
        calls.append(1)
        return F.relu(x)

    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=activation)
    for _ in range(ROUNDS):
        layer(Tensor(np.ones((2, 3, 4), np.float32))).numpy()
    assert len(calls) == ROUNDS


def test_a_method_of_the_users_is_called_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(nn.Linear, "forward", seen(nn.Linear.forward, calls))
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    for _ in range(ROUNDS):
        model(Tensor(np.ones((3, 4), np.float32))).numpy()
    assert len(calls) == ROUNDS


def test_a_model_goes_with_its_last_name() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
    weight = ref(model.get_parameter("1.0.weight"))
    for _ in range(3):
        model(Tensor(np.ones((1, 4), np.float32))).numpy()
    gc.disable()
    try:
        del model
        assert weight() is None
    finally:
        gc.enable()


def test_errors_are_those_of_the_op_in_each_round() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    for _ in range(3):
        model(Tensor(np.ones((1, 4), np.float32))).numpy()
        with pytest.raises(ValueError, match="linear"):
            model(Tensor(np.ones((1, 3), np.float32)))


def layers_that_make_constants() -> dict[str, tuple[nn.Module, tuple[Tensor, ...], dict[str, Tensor]]]:
    x, rows = Tensor(np.ones((3, 2, 6), np.float32)), Tensor([0, 1, 2, 1])
    out, left = Tensor([[False, True, False], [False, False, True]]), Tensor.ones(3, 3, dtype="bool").triu(1)
    return {
        "attention": (nn.MultiheadAttention(6, 3), (x, x, x), {"key_padding_mask": out, "attn_mask": left}),
        "encoder": (nn.TransformerEncoderLayer(6, 3, 8, 0.0), (x,), {"src_key_padding_mask": out}),
        "bags": (nn.EmbeddingBag(3, 2), (rows, Tensor([0, 2])), {}),
    }


@pytest.mark.parametrize("name", layers_that_make_constants())
def test_a_captured_layer_may_be_called_from_several_lines(name: str) -> None:
    """Constants that a layer makes bear the line of its call; those of another line are the same constants."""
    layer, args, options = layers_that_make_constants()[name]
    fast = jit(layer)
    found = [fast(*args, **options)]
    found.append(fast(*args, **options))
    found.append(fast(*args, **options))
    found.append(fast(*args, **options))
    for y in found:
        first, wanted = (v[0] if isinstance(v, tuple) else v for v in (y, layer(*args, **options)))
        np.testing.assert_allclose(first.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(3, 3),
    "Sequential": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.LayerNorm(3)),
    "GRUCell": lambda: nn.GRUCell(3, 3),
    "attention": lambda: nn.TransformerEncoderLayer(3, 1, 4, dropout=0.0, batch_first=True),
}
WAYS: dict[str, Callable[[Tensor, list[Tensor]], list[Tensor | None]]] = {
    "grad": lambda loss, given: list(autograd.grad(loss, given)),
    "inputs": lambda loss, given: [loss.backward(inputs=given), *[t.grad for t in given]][1:],  # type: ignore[func-returns-value]
    "retained": lambda loss, given: [
        *[t.retain_grad() for t in given],  # type: ignore[func-returns-value]
        loss.backward(),  # type: ignore[func-returns-value]
        *[t.grad for t in given],
    ][len(given) + 1 :],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_what_stands_in_for_a_layers_tensors(name: str, way: str) -> None:
    """Computed parameters of `functional_call`, and computed arguments: the call made again is with them, not with the
    layer's own tensors, which stand there again by then."""
    layer, x = LAYERS[name](), Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    own = dict(layer.named_parameters())
    found = []
    for before in (True, False):
        fast = {n: p * 0.5 + 0.1 for n, p in own.items()}
        y, given = x * 1.0, list(fast.values())
        if before:  # leaves of the same values, for which no call is made again
            given = [nn.Parameter(t.detach()) for t in given]
            fast = dict(zip(own, given, strict=True))
        loss = (functional_call(layer, fast, y) ** 3 + y).sum()
        got = WAYS["inputs" if before else way](loss, given)
        found.append([g.numpy() for g in got if g is not None])
    assert len(found[0]) == len(own)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert all(vars_of is own[n] for n, vars_of in layer.named_parameters())


def test_a_step_of_maml_goes_through_inner_steps() -> None:
    layer, x = nn.Linear(1, 1, bias=False), Tensor([[2.0]])
    layer.weight.assign(Tensor([[1.0]]))
    for _ in range(4):
        fast: dict[str, Tensor] = dict(layer.named_parameters())
        for _ in range(2):  # (2 w)**2 has the slope 8 w
            loss = (functional_call(layer, fast, x) ** 2).sum()
            (slope,) = autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {"weight": fast["weight"] - 0.05 * slope}
        layer.zero_grad()
        functional_call(layer, fast, x).sum().backward()
        assert layer.weight.grad is not None
        np.testing.assert_allclose(layer.weight.grad.item(), 2 * 0.6**2, rtol=1e-6)
