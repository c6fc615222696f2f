"""What is changed through a view, beside torch: the tensor that it is a view of shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal
from anneal import nn
from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.tensor import Tensor, grad, jit, vmap
from tests.helpers import optional

torch = optional("torch")


def seven(lib: Any, x: Any) -> None:
    row = x[1]
    row += 7
    row *= 2


def columns(lib: Any, x: Any) -> None:
    for row in x:
        row.mul_(2)


def parts(lib: Any, x: Any) -> None:
    a, b = x.chunk(2, dim=1)
    a.add_(100)
    b.zero_()
    a.mul_(2)


def both_ways(lib: Any, x: Any) -> None:
    v = x.view(-1)
    x[0] = 5
    v[3:].add_(1)
    x.mul_(2)


def below(lib: Any, x: Any) -> None:
    a = x.view(-1)
    b = a[2:6]
    b[1:].zero_()
    b.add_(1)


def stale(lib: Any, x: Any) -> None:
    v = x[0]
    x.add_(1)
    v.mul_(2)


# each changes a tensor of shape (3, 4)
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda lib, x: x.view(-1).zero_(),
    "row": lambda lib, x: x.__getitem__(0).add_(1),
    "named row": seven,
    "T": lambda lib, x: x.T.mul_(2),
    "reshape that copies": lambda lib, x: x.T.reshape(-1).zero_(),
    "fill": lambda lib, x: x[0].fill_(5),
    "columns": lambda lib, x: x[:, 1:].zero_(),
    "steps": lambda lib, x: x[::2].zero_(),
    "halves": parts,
    "through several": lambda lib, x: x.unsqueeze(0).squeeze(0).view(-1)[3:5].copy_(lib.tensor([7.0, 8.0])),
    "item of a row": lambda lib, x: x[0].__setitem__(1, 50),
    "detach": lambda lib, x: x.detach().zero_(),
    "data": lambda lib, x: x.data[0].zero_(),
    "transpose": lambda lib, x: x.transpose(0, 1)[1].mul_(3),
    "clone": lambda lib, x: x.clone().zero_(),
    "product": lambda lib, x: (x * 1).add_(1),
    "rows": columns,
    "narrow": lambda lib, x: (x.narrow(1, 1, 2).zero_(), x.select(0, 1).fill_(9)),
    "flatten": lambda lib, x: x.flatten().__setitem__(slice(0, 2), 3),
    "part and assigned": lambda lib, x: x.__setitem__(0, x[0].mul_(3)),
    "clamp": lambda lib, x: x[1:, 0].clamp_(max=2.0),
    "of a changed tensor": stale,
    "both": both_ways,
    "a view of a view": below,
}


@pytest.mark.parametrize("kind", ["memory", "lazy", "late"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_reaches_the_base(name: str, kind: str) -> None:
    start = np.arange(12, dtype=np.float32).reshape(3, 4)
    theirs = torch.tensor(start) * 1.5
    CHANGES[name](torch, theirs)
    for _ in range(1 if kind != "late" else 3):
        ours = Tensor(start) * 1.5
        if kind == "memory":
            ours.realize()
        CHANGES[name](anneal, ours)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def _gradient(lib: Any) -> Any:
    w = lib.ones(3, 4)
    w.requires_grad_(True)
    x = w * 2
    x[0] *= 3
    x.view(-1)[5:].mul_(lib.tensor(2.0))
    a, b = x[:, :2], x[:, 2:]
    a.mul_(b.clone())
    (x * x).sum().backward()
    return w.grad


def test_gradients_go_through_a_changed_view() -> None:
    np.testing.assert_allclose(_gradient(anneal).numpy(), _gradient(torch).numpy(), rtol=1e-6)


def _parameter(lib: Any) -> Any:
    linear = lib.nn.Linear(2, 2)
    with lib.no_grad():
        linear.weight.copy_(lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
        linear.weight[0].zero_()
        linear.weight.view(-1)[-1] = 7
    linear.weight.data[1].mul_(2)
    linear.state_dict()["weight"].add_(1)
    assert linear.weight.requires_grad
    assert linear.weight.is_leaf
    return linear.weight.detach()


def test_parts_of_a_parameter_change_where_no_gradient_is_recorded(device: str) -> None:
    assert _parameter(anneal).tolist() == _parameter(torch).tolist() == [[1.0, 1.0], [7.0, 15.0]]


def test_what_torch_refuses_is_an_error() -> None:
    w = nn.Linear(2, 2).weight
    with pytest.raises(GradientError, match="leaf"):
        w[0].zero_()
    with pytest.raises(ShapeError, match=r"use \.clone\(\)"):
        x = Tensor([1.0, 2.0])
        x.expand(3, 2).add_(1)


def test_views_change_inside_jit_and_transforms() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y[0].mul_(3)
        y.view(-1)[1:].add_(1)
        return (y * y).sum()

    start = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    factor = np.array([[6.0], [2.0], [2.0]], np.float32)
    slope = 2 * factor * (start * factor + np.array([[0, 1], [1, 1], [1, 1]]))
    np.testing.assert_allclose(grad(f)(Tensor(start)).numpy(), slope, rtol=1e-6)
    np.testing.assert_allclose(vmap(grad(f))(Tensor(np.stack([start, start]))).numpy()[1], slope, rtol=1e-6)
    compiled = jit(f)
    assert len({round(compiled(Tensor(start)).item(), 2) for _ in range(4)}) == 1
    state = Tensor(start).realize()

    @jit
    def step() -> Tensor:
        state[0].add_(1)
        return state * 1

    for _ in range(4):
        step()
    np.testing.assert_allclose(state.numpy(), start + np.array([[4.0], [0.0], [0.0]]))


# -- programs that others write, beside torch --------------------------------------------------------------------------


def _stencil(lib: Any) -> list[Any]:
    u = lib.arange(8.0)
    left, middle, right = u[:-2], u[1:-1], u[2:]
    out = []
    for _ in range(4):
        middle += 0.25 * (left - 2 * middle + right) + 1
        out.append(left.sum().item())
    return [*out, u.tolist(), left.tolist(), right.tolist()]


def _flat_parameters(lib: Any) -> list[Any]:
    parameters = [lib.nn.Parameter(lib.arange(4.0).reshape(2, 2)), lib.nn.Parameter(lib.ones(3))]
    flat = lib.cat([p.data.view(-1) for p in parameters])
    first = 0
    for p in parameters:
        p.data = flat[first : first + p.numel()].view_as(p)
        first += p.numel()
    flat.add_(1)
    optimizer = lib.optim.SGD(parameters, lr=0.125)
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        ((parameters[0] ** 2).sum() + (parameters[1] * 3).sum()).backward()
        optimizer.step()
        out.append(flat.tolist())
    with lib.no_grad():
        flat.mul_(0.5)
        parameters[1][0] = 7
    return [*out, flat.tolist(), *[p.tolist() for p in parameters]]


def _average_of_states(lib: Any) -> list[Any]:
    linear = lib.nn.Linear(2, 1, bias=False)
    with lib.no_grad():
        linear.weight.fill_(1.0)
    state, row = linear.state_dict(), linear.weight[0]
    average = {name: t.clone() for name, t in state.items()}
    optimizer = lib.optim.SGD(linear.parameters(), lr=0.25)
    for _ in range(4):
        optimizer.zero_grad()
        (linear(lib.tensor([[1.0, 2.0]])) + row.sum()).sum().backward()
        optimizer.step()
        for name, t in state.items():
            average[name].mul_(0.5).add_(t, alpha=0.5)
    return [average["weight"].tolist(), row.tolist(), linear.weight.grad.tolist()]


def _listed_gradients(lib: Any) -> list[Any]:
    w, v = lib.tensor([3.0, 4.0], requires_grad=True), lib.tensor([12.0], requires_grad=True)
    out = []
    for _ in range(3):
        (w * w * 0.5).sum().backward()
        (v * v * 0.5).sum().backward()
        listed = [w.grad, v.grad]
        lib.nn.utils.clip_grad_norm_([w, v], 6.5)
        out.append([round(x, 4) for g in listed for x in g.tolist()])
        lib.nn.utils.clip_grad_value_([w, v], 2.0)
        out.append([round(x, 4) for g in listed for x in g.tolist()])
        (w.sum() + v.sum()).backward()  # adds up in place
        out.append([round(x, 4) for g in listed for x in g.tolist()])
        optimizer = lib.optim.SGD([w, v], lr=0.1)
        optimizer.zero_grad(set_to_none=False)
        out.append([x for g in listed for x in g.tolist()])
        w.grad.zero_()
    return out


def _cache(lib: Any) -> list[Any]:
    cache = lib.zeros(2, 4, 3)
    keys, values = cache[0], cache[1]
    out = []
    for i in range(4):
        keys[i] = lib.full((3,), float(i))
        values[i].copy_(keys[i] * 2)
        seen = cache[:, : i + 1]
        out.append([seen.sum().item(), values.sum().item()])
    del cache
    keys.zero_()
    return [*out, seen.tolist(), values.tolist()]


def _places(lib: Any) -> list[Any]:
    x, d, m = lib.arange(12.0).reshape(3, 4), lib.ones(3, 4), lib.ones(2, 2)
    x[0], x[2] = x[2], x[0]
    x[[0, 1]] += 1
    x[x > 6] -= 10
    d[range(3), lib.tensor([1, 0, 3])] -= 1
    for row in m:
        row += m[0]
    return [x.tolist(), d.tolist(), m.tolist()]


def _gradients_through_views(lib: Any) -> list[Any]:
    w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = w * 2
    head, tail = x[:2], x[1:]
    head.mul_(w[:2])
    x.add_(1)
    ((tail * tail).sum() + (head * 3).sum()).backward()
    u = lib.zeros(3)
    part = u[1:]
    u[1] = w[0] * w[2]
    return [w.grad.tolist(), x.tolist(), part.requires_grad, lib.autograd.grad(part.sum(), w)[0].tolist()]


def _kinds_of_views(lib: Any) -> list[Any]:
    x = lib.arange(12.0).reshape(3, 4)
    views = [
        x.T,
        x.diagonal(1),
        x.unfold(1, 2, 2),
        x.view(-1),
        x[None],
        x.permute(1, 0),
        x.expand(2, 3, 4),
        x.detach(),
        x.data,
    ]
    views += [
        x.as_strided((2, 2), (4, 1), 1),
        x.movedim(0, 1),
        x.swapaxes(0, 1),
        x.select(1, 2),
        x.narrow(0, 1, 2),
        x.flatten(),
    ]
    views += [
        *x.unbind(1),
        *x.chunk(2, 1),
        *x.split(2),
        x.squeeze(),
        x.contiguous(),
        x.T.reshape(-1),
        x.T.contiguous(),
        x.clone(),
    ]
    x.mul_(2)
    x.view(-1)[5] = 100.0
    return [v.tolist() for v in views]


PROGRAMS = (_stencil, _flat_parameters, _average_of_states, _listed_gradients, _cache, _places)
PROGRAMS = (*PROGRAMS, _gradients_through_views, _kinds_of_views)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_give_what_torch_gives(program: Callable[[Any], list[Any]]) -> None:
    expected = program(torch)
    for _ in range(3):  # the later ones are late
        assert program(anneal) == expected


@pytest.mark.parametrize("cut", [lambda x: x[1:], lambda x: x.T, lambda x: x.double()[1:], lambda x: x.view(2, 8)[1]])
def test_strides_of_memory_that_a_tensor_was_cut_from_are_refused(cut: Callable[[Any], Any]) -> None:
    whole = Tensor.arange(16.0).reshape(4, 4) * 1
    for _ in range(3):
        for part in (cut(whole), cut(Tensor.arange(16.0).reshape(4, 4) * 1)):  # whether one sees the whole or not
            with pytest.raises(ShapeError, match=r"is part of another: .* or on a \.clone"):
                part.as_strided((2,), (1,), 0)
            assert part.clone().as_strided((1,), (1,)).shape == (1,)


@pytest.mark.parametrize("name", ["permute_copy", "transpose_copy", "view_copy", "unbind_copy", "t_copy"])
def test_functions_that_copy_give_no_views(name: str) -> None:
    x = Tensor.ones(2, 3)
    given = {"permute_copy": ((1, 0),), "transpose_copy": (0, 1), "view_copy": ((3, 2),)}.get(name, ())
    for _ in range(3):
        out: Any = getattr(anneal, name)(x, *given)
        (out[0] if isinstance(out, tuple) else out).add_(1)
        assert x.sum().item() == 6.0


EMPTY: dict[str, Any] = {
    "rows": lambda x: x[3:],
    "no rows": lambda x: x[:0],
    "the end of a row": lambda x: x[1, 4:],
    "narrow": lambda x: x.narrow(1, 2, 0),
    "transposed": lambda x: x.T[4:],
    "flipped": lambda x: x.flip(0)[3:],
    "reshaped": lambda x: x[:, 4:].reshape(0),
    "flat": lambda x: x.view(12)[12:],
    "diagonal": lambda x: x.diagonal(4),
    "split": lambda x: x.split([3, 0])[1],
    "windows": lambda x: x.unfold(0, 2, 1)[2:],
}
WITHOUT_EFFECT: dict[str, Any] = {
    "zero_": lambda v: v.zero_(),
    "mul_": lambda v: v.mul_(2),
    "copy_": lambda v: v.copy_(Tensor.ones(*v.shape)),
    "masked_fill_": lambda v: v.masked_fill_(v > 0, 1),
    "[...]": lambda v: v.__setitem__(Ellipsis, 5),
}


@pytest.mark.parametrize("view", EMPTY)
@pytest.mark.parametrize("kind", ["computed", "int8", "lazy", "jit", "gradient"])
def test_a_view_of_no_elements_changes_nothing(view: str, kind: str) -> None:
    whole = np.arange(12.0).reshape(3, 4) + 1
    for name, change in WITHOUT_EFFECT.items():
        w = Tensor.ones(3, 4, requires_grad=kind == "gradient")
        x = w * (Tensor.arange(12.0).reshape(3, 4) + 1)
        x = x.to(anneal.int8) if kind == "int8" else x
        if kind not in ("lazy", "gradient"):
            x.realize()

        def step(y: Tensor, x: Tensor = x, change: Any = change) -> Tensor:
            change(EMPTY[view](x))
            return y + x

        call = jit(step) if kind == "jit" else step
        for _ in range(3 if kind == "jit" else 1):
            np.testing.assert_array_equal(call(Tensor.zeros(3, 4).realize()).detach().numpy(), whole, name)
        np.testing.assert_array_equal(x.detach().numpy(), whole, name)
        if kind == "gradient":
            x.sum().backward()
            assert w.grad is not None
            np.testing.assert_array_equal(w.grad.numpy(), whole, name)


COPIES: dict[str, Any] = {
    "cat": lambda x: Tensor.cat([x]),
    "hstack": lambda x: Tensor.hstack([x]),
    "vstack": lambda x: Tensor.vstack([x]),
    "column_stack": lambda x: Tensor.column_stack([x]),
    "interpolate": lambda x: nn.functional.interpolate(x[None, None], (2, 2)),
    "rot90": lambda x: x.rot90(4),
    "diff": lambda x: x.diff(n=0),
    "matrix_power": lambda x: x.matrix_power(1),
    "parameters_to_vector": lambda x: nn.utils.parameters_to_vector([x]),
    "pad": lambda x: nn.functional.pad(x[None], (0, 0), mode="reflect"),
    "round": lambda x: x.int().round(),
    "trunc": lambda x: x.int().trunc(),
    "nan_to_num": lambda x: x.int().nan_to_num(),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_result_that_is_a_copy_in_torch_shares_nothing(name: str) -> None:
    """Also where its values are its argument's."""
    for kind in ("float32", "int32"):
        x = Tensor([[1, 2], [3, 4]], dtype=kind)
        try:
            y = COPIES[name](x)
        except DTypeError:  # of integers
            continue
        y.add_(1)
        assert x.tolist() == [[1, 2], [3, 4]]


# what torch copies of a tensor that is not contiguous, and the number that is in the place of a copy's first element
OF_STRIDES: dict[str, tuple[Any, Any]] = {
    "flat": (lambda x: x.reshape(-1), lambda x: x),
    "ravel": (lambda x: x.ravel(), lambda x: x),
    "ravel of what strides could say": (lambda x: x[0].ravel(), lambda x: x[0]),
    "contiguous": (lambda x: x.contiguous(), lambda x: x),
    "of a view": (lambda x: x[1:].flatten(), lambda x: x[1:]),
    "of a view of a view": (lambda x: x[1:][:, ::2].reshape(-1), lambda x: x[1:]),
}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("name", OF_STRIDES)
def test_a_copy_stays_one_where_nobody_sees_the_root(name: str, seen: bool, read: bool) -> None:
    """The root of a transposed tensor is often a temporary one: strides stay, as in torch."""
    copy, place = OF_STRIDES[name]
    for _ in range(3):
        root = Tensor.arange(12).reshape(3, 4) * 1
        x = root.T
        if not seen:
            del root
        if read:
            x.realize()
        before = x.tolist()
        copied = copy(x)
        copied.fill_(-1)
        assert x.tolist() == before
        place(x).fill_(-2)
        assert (copied == -1).all().item()


def test_views_of_a_view_whose_root_is_gone_share_with_it() -> None:
    x = (Tensor.arange(12).reshape(3, 4) * 1).T
    x[1:].T.fill_(7)
    x[0].unsqueeze(0).zero_()
    assert x.tolist() == [[0] * 3, *[[7] * 3] * 3]


def test_the_flat_form_of_what_was_turned_in_place_is_a_copy() -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    x.t_()
    x.reshape(-1).fill_(0)
    assert x.tolist() == [[1, 4], [2, 5], [3, 6]]
    x.unsqueeze_(0)[0].reshape(-1).fill_(0)
    assert x.tolist() == [[[1, 4], [2, 5], [3, 6]]]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("wide", [lambda x: x.expand(3, 4), lambda x: x[0].unfold(0, 2, 1)])
def test_elements_that_are_one_in_memory_are_not_changed_apart(wide: Any, seen: bool) -> None:
    root = Tensor.ones(1, 4) * 2
    x = wide(root)
    if not seen:
        del root
    with pytest.raises(ShapeError, match="several elements of the expanded tensor are one in memory"):
        x[0] = 1.0
    x.fill_(3.0)
    assert (x == 3).all().item()


@pytest.mark.parametrize("part", [lambda x: x.unfold(0, 2, 2), lambda x: x.view(2, 3).diagonal(), lambda x: x[1:]])
def test_parts_of_another_dtype_write_its_bits(part: Any) -> None:
    for a in (np.arange(6, dtype=np.float32), np.arange(6, dtype=np.int32)):
        other = "int32" if a.dtype == np.float32 else "float32"
        for shown in (lambda x: part(x.view(other)), lambda x: part(x).view(other)):  # noqa: B023
            x = Tensor(a.copy())
            v = shown(x)
            v += 3
            want = a.copy()
            places = np.unique(part(Tensor.arange(6)).numpy())
            want.view(other)[places] += 3
            assert x.numpy().tobytes() == want.tobytes()


def test_values_are_added_at_an_index_of_one_place_too() -> None:
    x = Tensor.zeros(2, 3)
    x.index_put_((Tensor(1), Tensor([2, 0, 2])), Tensor(1.0), accumulate=True)
    x.index_put_((Tensor(0), Tensor(-1)), Tensor(5.0), accumulate=True)
    x.index_put_((Tensor(0),), Tensor([1.0, 2.0, 3.0]), accumulate=True)
    assert x.tolist() == [[1, 2, 8], [1, 0, 2]]


PARTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "first": (lambda x, n: x[:n], lambda a: a[:3]),
    "a reshape": (lambda x, n: x[:n].reshape(1, -1), lambda a: a[:3].reshape(1, -1)),
    "later ones": (lambda x, n: x[1:n], lambda a: a[1:3]),
    "a column": (lambda x, n: x.reshape(4, 1)[:n], lambda a: a.reshape(4, 1)[:3]),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_symbolic_size_shows_what_its_base_becomes(name: str) -> None:
    part, same = PARTS[name]
    x, a = anneal.tensor([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    y, b = part(x, anneal.Variable("n", 1, 4).bind(3)), same(a)
    for change in (lambda v: v.__iadd__(1), lambda v: v.__imul__(2)):
        change(x), change(a)
        assert y.tolist() == b.tolist()
    y += 1
    b += 1
    assert (y.tolist(), x.tolist()) == (b.tolist(), a.tolist())
