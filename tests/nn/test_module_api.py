"""Module and the containers: the same calls on ours and on torch's, and what each says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DataError, DeviceError, DTypeError, UserError
from anneal.tensor import Tensor, jit
from tests.helpers import optional

torch = optional("torch")


def named(m: Any) -> Any:
    """Two layers below a module, with a buffer and a shared layer."""
    n = m.nn
    net = n.Sequential(n.Linear(2, 3), n.ModuleDict({"a": n.Linear(3, 3), "act": n.ReLU()}))
    net.register_buffer("mask", m.ones(3))
    net.register_buffer("passing", m.ones(1), persistent=False)
    net.register_parameter("scale", n.Parameter(m.ones(2)))
    net.register_parameter("none", None)
    net.add_module("again", net[0])
    return net


class _Ours:
    nn = nn
    ones = staticmethod(Tensor.ones)
    zeros = staticmethod(Tensor.zeros)


def after(x: Any, *steps: Callable[[Any], Any]) -> Any:
    """`x` when all steps were done to it."""
    for step in steps:
        step(x)
    return x


def names_applied(n: Any) -> list[str]:
    seen: list[str] = []
    n.apply(lambda c: seen.append(type(c).__name__))
    return seen


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "parameters": lambda m, n: [k for k, _ in n.named_parameters()],
    "own parameters": lambda m, n: [k for k, _ in n.named_parameters(recurse=False)],
    "all names": lambda m, n: [k for k, _ in n.named_parameters(remove_duplicate=False)],
    "with a prefix": lambda m, n: [k for k, _ in n.named_parameters(prefix="net")],
    "buffers": lambda m, n: [k for k, _ in n.named_buffers()],
    "how many buffers": lambda m, n: len(list(n.buffers())),
    "state": lambda m, n: list(n.state_dict()),
    "state with a prefix": lambda m, n: list(n.state_dict(prefix="x.")),
    "children": lambda m, n: [k for k, _ in n.named_children()],
    "classes": lambda m, n: [type(c).__name__ for c in n.children()],
    "modules": lambda m, n: [k for k, _ in n.named_modules()],
    "submodule": lambda m, n: type(n.get_submodule("1.act")).__name__,
    "itself": lambda m, n: n.get_submodule("") is n,
    "parameter": lambda m, n: tuple(n.get_parameter("1.a.weight").shape),
    "buffer": lambda m, n: n.get_buffer("mask").tolist(),
    "applied": lambda m, n: names_applied(n),
    "frozen": lambda m, n: [p.requires_grad for p in n.requires_grad_(False).parameters()],
    "frozen, named": lambda m, n: [k for k, _ in n.requires_grad_(False).named_parameters()],
    "first": lambda m, n: tuple(next(iter(n.parameters())).shape),
    "next": lambda m, n: tuple(next(n.parameters()).shape),
    "private": lambda m, n: (setattr(n, "_own", m.nn.Linear(1, 1)), [k for k, _ in n.named_parameters()])[1],
    "private parameter": lambda m, n: (setattr(n, "_w", m.nn.Parameter(m.ones(1))), list(n.state_dict()))[1],
    "list": lambda m, n: repr(
        after(
            m.nn.ModuleList([m.nn.Identity(), m.nn.Sigmoid()]),
            lambda r: r.insert(1, m.nn.Tanh()),
            lambda r: r.extend([m.nn.ReLU()]),
            lambda r: r.pop(0),
            lambda r: r.__setitem__(-1, m.nn.SiLU()),
        )
    ),
    "slices": lambda m, n: [type(c).__name__ for c in m.nn.Sequential(m.nn.ReLU(), m.nn.Tanh(), m.nn.SiLU())[1:]],
    "deleted": lambda m, n: [
        k for k, _ in after(m.nn.Sequential(m.nn.ReLU(), m.nn.Tanh()), lambda r: r.__delitem__(0)).named_children()
    ],
    "sequential by names": lambda m, n: list(
        m.nn.Sequential(
            __import__("collections").OrderedDict(up=m.nn.Linear(1, 2), down=m.nn.Linear(2, 1))
        ).state_dict()
    ),
    "dict": lambda m, n: list(
        after(
            m.nn.ModuleDict({"a": m.nn.ReLU(), "b": m.nn.SiLU()}),
            lambda d: d.update({"c": m.nn.Tanh()}),
            lambda d: d.pop("b"),
        ).keys()
    ),
    "parameters in a row": lambda m, n: [k for k, _ in m.nn.ParameterList([m.ones(1), m.ones(2)]).named_parameters()],
    "parameters by name": lambda m, n: [k for k, _ in m.nn.ParameterDict({"a": m.ones(1)}).named_parameters()],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_module_answers_as_torchs(call: str) -> None:
    assert CALLS[call](_Ours, named(_Ours)) == CALLS[call](torch, named(torch))


def hooked(m: Any, seen: list[Any]) -> Any:
    net = m.nn.Sequential(m.nn.Identity(), m.nn.Identity())
    net[0].register_forward_hook(lambda module, args, result: seen.append(("after", len(args))) or result * 2)
    net[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    net[1].register_forward_hook(lambda module, args, kwargs, result: seen.append(kwargs), with_kwargs=True)
    net[1].register_forward_hook(lambda module, args, result: seen.append("first"), prepend=True)
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
    return net


def test_hooks_are_called_as_torchs() -> None:
    mine, theirs = list[Any](), list[Any]()
    got = hooked(_Ours, mine)(Tensor([1.0]))
    want = hooked(torch, theirs)(torch.ones(1))
    assert got.tolist() == want.tolist() == [4.0]
    assert mine == theirs


def test_a_hook_that_was_removed_is_gone_also_from_a_captured_function() -> None:
    layer = nn.Linear(1, 1)
    fast = jit(lambda x: layer(x))
    x = Tensor([[1.0]]).realize()
    before = [fast(x).item() for _ in range(3)][-1]
    handle = layer.register_forward_hook(lambda module, args, result: result + 1)
    assert [fast(x).item() for _ in range(3)] == pytest.approx([before + 1] * 3)
    handle.remove()
    handle.remove()
    assert fast(x).item() == pytest.approx(before)


def test_gradients_are_forgotten_or_made_zeros() -> None:
    layer = nn.Linear(2, 1)
    layer(Tensor([[1.0, 2.0]])).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0.0, 0.0]]
    layer.zero_grad()
    assert layer.weight.grad is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_go_with_their_parameters(dtype: str, device: str) -> None:
    layer = nn.Linear(2, 1, device="cpu")
    layer(Tensor([[1.0, 2.0]], device="cpu")).sum().backward()
    assert layer.to(device, dtype) is layer
    for p, wanted in ((layer.weight, [[1.0, 2.0]]), (layer.bias, [1.0])):
        assert p.grad is not None
        assert (p.grad.tolist(), p.grad.dtype.name, p.grad.device) == (wanted, dtype, device)
    before = layer.bias.item()
    nn.SGD(layer.parameters(), lr=1.0).step()
    assert layer.bias.item() == pytest.approx(before - 1, abs=0.01)
    assert layer.weight.to("cpu").device == "cpu"


def test_the_state_of_torch_is_read_with_its_gradient_flags() -> None:
    theirs, ours = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    assert ours.load_state_dict(theirs.state_dict(keep_vars=True)) == ([], [])
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().numpy())


WRONG: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "cuda": (DeviceError, "write 'webgpu'", lambda: nn.Linear(1, 1).cuda()),
    "to cuda": (DeviceError, "write 'webgpu'", lambda: nn.Linear(1, 1).to("cuda:0")),
    "a tensor to cuda": (DeviceError, "write 'webgpu'", lambda: Tensor([1.0]).to("cuda")),
    "made on mps": (DeviceError, "write 'webgpu'", lambda: Tensor([1.0], device="mps")),
    "no such module": (DataError, "has no '0.x': below '0' are no modules", lambda: named(_Ours).get_submodule("0.x")),
    "no such parameter": (DataError, "has no parameter 'x'", lambda: nn.Linear(1, 1).get_parameter("x")),
    "a buffer as parameter": (
        DTypeError,
        "use register_buffer",
        lambda: nn.Module().register_parameter("a", Tensor([1.0])),
    ),
    "a number as buffer": (DTypeError, "a tensor or None", lambda: nn.Module().register_buffer("a", 1.0)),  # type: ignore[arg-type]
    "a number as module": (DTypeError, "a module or None", lambda: nn.Module().add_module("a", 1.0)),  # type: ignore[arg-type]
    "a dotted name": (DataError, "without dots", lambda: nn.Module().add_module("a.b", nn.ReLU())),
    "a method's name": (DataError, "of its class", lambda: nn.Module().add_module("forward", nn.ReLU())),
    "a place": (IndexError, "there is no place 2 in a row of 1", lambda: nn.ModuleList([nn.ReLU()])[2]),
    "a name of a dict": (DTypeError, "no method", lambda: nn.ModuleDict({"keys": nn.ReLU()})),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    kind, text, call = WRONG[case]
    with pytest.raises(kind, match=text):
        call()


def test_a_hook_is_called_after_an_error() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    seen: list[Any] = []
    wrong = Wrong()
    wrong.register_forward_hook(lambda module, args, result: seen.append("never"))
    wrong.register_forward_hook(lambda *given: seen.append(given[1:]), always_call=True, with_kwargs=True)
    wrong.register_forward_hook(lambda module, args, result: 1 / 0, always_call=True)
    with (
        pytest.warns(UserWarning, match="always_call=True raised ZeroDivisionError"),
        pytest.raises(ValueError, match="no"),
    ):
        wrong(2)
    assert seen == [((2,), {}, None)]
    layer = nn.ReLU()
    layer.register_forward_hook(lambda module, args, result: seen.append(result), always_call=True)
    layer(Tensor([1.0]))
    assert len(seen) == 2
    with pytest.raises(UserError):
        layer("x")
    assert seen[2:] == [None]


# what torch 2.13 gives the last hook after an error in one before it
AFTER_AN_ERROR: dict[str, tuple[list[tuple[Any, bool]], Any]] = {
    "the module's result": ([(lambda *given: 1 / 0, False)], 3.0),
    "what a hook gave": ([(lambda *given: "replaced", False), (lambda *given: 1 / 0, False)], "replaced"),
    "what one gave after the error": ([(lambda *given: 1 / 0, False), (lambda *given: "late", True)], "late"),
}


@pytest.mark.parametrize("case", AFTER_AN_ERROR)
def test_a_hook_after_an_error_gets_the_result_so_far(case: str) -> None:
    hooks, wanted = AFTER_AN_ERROR[case]
    layer, seen = nn.Identity(), []
    layer.register_forward_pre_hook(lambda module, args: args[0] * 3)
    for hook, always in hooks:
        layer.register_forward_hook(hook, always_call=always)
    layer.register_forward_hook(lambda module, args, result: seen.extend([args[0], result]), always_call=True)
    with pytest.raises(ZeroDivisionError):
        layer(Tensor(1.0))
    assert [x.item() if isinstance(x, Tensor) else x for x in seen] == [3.0, wanted]


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_who_holds_a_buffer_keeps_it_where_its_module_is_cast(wrap: Any) -> None:
    """As in torch: the module has a new one, and each module that shares one its own. Parameters stay."""
    norm = nn.BatchNorm1d(2)
    norm.register_buffer("mask", Tensor.ones(2), persistent=False)
    norm.table = nn.Buffer([1.0], persistent=False)
    both = nn.Sequential(norm, nn.Module())
    both[1].register_buffer("mean", norm.running_mean)
    mean, weight, names = norm.running_mean, norm.weight, list(both.state_dict())
    call = wrap(lambda x: both[0](x))
    for _ in range(3):
        call(Tensor([[1.0, 3.0], [3.0, 1.0]]))
    before = mean.tolist()
    both.double()
    for _ in range(3):
        call(Tensor([[1.0, 3.0], [3.0, 1.0]], dtype="float64"))
    assert (mean.dtype.name, mean.tolist(), norm.weight is weight, weight.dtype.name) == (
        "float32",
        before,
        True,
        "float64",
    )
    assert [t.dtype.name for t in (norm.running_mean, both[1].mean, norm.mask, norm.table)] == ["float64"] * 4
    assert norm.running_mean.tolist() == pytest.approx([2 * (1 - 0.9**6)] * 2)
    assert both[1].mean.tolist() == pytest.approx(before)
    assert isinstance(norm.table, nn.Buffer)
    assert list(both.state_dict()) == names
    same = norm.running_mean
    assert both.to("float64")[0].running_mean is same
