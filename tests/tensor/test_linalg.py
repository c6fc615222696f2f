"""Products of matrices against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal.errors import DeviceError, ShapeError
from anneal.tensor import Tensor
from anneal.uop import toposort
from tests.helpers import check_grad, check_kernels, check_values, of_sums

both_devices = pytest.mark.usefixtures("device")
rng = np.random.default_rng(2)


def some(*shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((1, 4), (4, 1)),
    ((3, 1), (1, 5)),
    ((2, 3, 2, 4), (2, 3, 4, 1)),
    ((40, 33), (33, 50)),
    ((0, 4), (4, 2)),
]


@both_devices
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes: tuple[Any, Any]) -> None:
    a, b = some(*shapes[0]), some(*shapes[1])
    check_values(Tensor(a) @ Tensor(b), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-5)


@both_devices
def test_matmul_of_integers_and_mixed() -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(3, dtype=np.int32) - 1
    check_values(Tensor(a) @ Tensor(b), a @ b, dtype=of_sums())
    check_values(Tensor(a) @ Tensor(b).float(), (a @ b).astype(np.float32), dtype="float32")
    check_values(Tensor([True, True]) @ Tensor([True, True]), 2, dtype="int32")
    check_values(a @ Tensor(b), a @ b)


@both_devices
def test_products_by_other_names() -> None:
    a, b = some(3, 4), some(5, 4)
    check_values(Tensor(a).linear(Tensor(b), Tensor([1.0] * 5)), a @ b.T + 1, rtol=1e-4, atol=1e-5)
    check_values(Tensor([1, 2]).outer(Tensor([3, 4, 5])), np.outer([1, 2], [3, 4, 5]))
    check_values(Tensor([1, 2]).dot(Tensor([3, 4])), 11)
    check_values(Tensor(np.arange(12, dtype=np.int32).reshape(3, 4)).trace(), 15)


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("iij->ij", [(3, 3, 2)]),
    ("iji->j", [(3, 2, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->", [(3,), (3,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...i->...", [(2, 3, 4)]),
    ("b...,b->...", [(2, 3, 4), (2,)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,ij,ij->i", [(2, 3), (2, 3), (2, 3)]),
    ("ijk,k->kij", [(2, 3, 4), (4,)]),
    ("ij,kl->", [(2, 3), (4, 5)]),
    ("ij , jk -> ik", [(3, 4), (4, 5)]),
    ("ba", [(3, 4)]),
]


@both_devices
@pytest.mark.parametrize(("formula", "shapes"), EINSUMS, ids=[f for f, _ in EINSUMS])
def test_einsum(formula: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [some(*s) for s in shapes]
    expected = np.einsum(formula.replace(" ", ""), *[a.astype(np.float64) for a in arrays])
    check_values(Tensor.einsum(formula, *[Tensor(a) for a in arrays]), expected, rtol=1e-4, atol=1e-5)


def test_a_matmul_is_few_nodes_and_one_kernel() -> None:
    a, b = Tensor(some(8, 16)), Tensor(some(16, 4))
    y = a @ b
    assert len(toposort((y.uop,))) - len(toposort((a.uop, b.uop))) <= 7
    check_kernels(y, 1)
    check_kernels((y + 1.0).relu(), 1)


@both_devices
@pytest.mark.parametrize("dims", [0, 1, 2, ([1, 2], [1, 0]), ([0], [2])], ids=str)
def test_tensordot(dims: Any) -> None:
    a, b = some(2, 4, 3), some(4, 3, 2)
    if dims in (1, 2):
        a = some(2, *b.shape[:dims])
    elif dims == ([1, 2], [1, 0]):
        b = some(3, 4, 2)
    check_values(Tensor(a).tensordot(Tensor(b), dims), np.tensordot(a, b, dims), rtol=1e-4, atol=1e-5)


@both_devices
def test_inner_outer_and_vector_products() -> None:
    a, b = some(2, 1, 3), some(4, 3)
    check_values(Tensor(a).vecdot(Tensor(b)), (a * b).sum(-1), rtol=1e-5, atol=1e-6)
    check_values(Tensor(a).vecdot(Tensor(b[:1]), 0), (a * b[:1]).sum(0), rtol=1e-5, atol=1e-6)
    check_values(Tensor(a).cross(Tensor(b[None])), np.cross(a, b[None]), rtol=1e-4, atol=1e-5)
    check_values(Tensor(a[0]).kron(Tensor(b)), np.kron(a[0], b), rtol=1e-5)


@both_devices
@pytest.mark.parametrize("ord", ["fro", 1, -1, np.inf, -np.inf])
def test_matrix_norms(ord: Any) -> None:
    a = some(2, 3, 4)
    check_values(Tensor(a).matrix_norm(ord), np.linalg.norm(a, ord, (-2, -1)), rtol=1e-5)
    turned = np.linalg.norm(a, ord, (2, 0), keepdims=True)
    check_values(Tensor(a).matrix_norm(ord, (2, 0), True), turned, rtol=1e-5)


def test_gradients_of_products_and_norms() -> None:
    a, b = some(2, 3), some(3, 3)
    check_grad(lambda x, y: (x.tensordot(y, 1) ** 2).sum() + (x.kron(y) ** 2).sum() + (x.cross(y[:2]) ** 2).sum(), a, b)
    check_grad(lambda x: x.matrix_norm() + x.matrix_norm(1) * x.matrix_norm(-np.inf), a)
    check_grad(lambda x: (x.diag_embed(1) * x.diag_embed(1).exp()).rot90(1, (0, 2))[0], a)
    zero = Tensor([0.0, 0.0], requires_grad=True)
    zero.norm().backward()
    assert zero.grad is not None
    assert zero.grad.tolist() == [0.0, 0.0]


MISTAKES: dict[str, tuple[Any, str]] = {
    "tensordot": (lambda: Tensor.zeros(2, 3).tensordot(Tensor.zeros(2, 3), 1), "tensordot: axes .* not of equal sizes"),
    "tensordot axes": (lambda: Tensor.zeros(2).tensordot(Tensor.zeros(2), ([0], [])), "two lists of as many axes"),
    "tensordot count": (lambda: Tensor.zeros(2).tensordot(Tensor.zeros(2), 2), "tensordot: 2 axes of shapes"),
    "cross": (lambda: Tensor.zeros(2).cross(Tensor.zeros(2)), "cross: axis -1 .* must have 3"),
    "matrix_norm": (lambda: Tensor.zeros(2, 2).matrix_norm("nuc"), "there are no singular values"),
    "matrix_norm axes": (lambda: Tensor.zeros(2, 2).matrix_norm(dim=(0, 0)), "named twice"),
    "diag_embed": (lambda: Tensor.zeros(2, 2).diag_embed(0, 1, 1), "diag_embed: dim1 and dim2 are both axis 1"),
    "rot90": (lambda: Tensor.zeros(2, 2).rot90(1, (0,)), "rot90: takes two axes"),
    "matmul": (
        lambda: Tensor.zeros(2, 3) @ Tensor.zeros(2, 3),
        r"matmul: shapes \(2, 3\) and \(2, 3\): .* is 3 .* is 2",
    ),
    "matmul of a scalar": (lambda: Tensor(1.0) @ Tensor([1.0]), "matmul: .* a scalar has no axis"),
    "matmul batches": (lambda: Tensor.zeros(2, 3, 4) @ Tensor.zeros(3, 4, 5), "matmul: shapes .* do not broadcast"),
    "linear": (
        lambda: Tensor.zeros(2, 3).linear(Tensor.zeros(3, 4)),
        r"linear: weight of shape \(3, 4\).* not \(2, 3\)",
    ),
    "outer": (lambda: Tensor.zeros(2, 3).outer(Tensor.zeros(3)), "outer: takes two vectors"),
    "einsum operands": (lambda: Tensor.einsum("ij,jk->ik", Tensor.zeros(2, 3)), "names 2 operands, but 1 are given"),
    "einsum sizes": (
        lambda: Tensor.einsum("ij,jk->ik", Tensor.zeros(2, 3), Tensor.zeros(4, 5)),
        "axis 'j' .* is 3 .* and 4",
    ),
    "einsum axes": (lambda: Tensor.einsum("ijk->i", Tensor.zeros(2, 3)), "operand 0 .* has 3 axes named"),
    "einsum result": (lambda: Tensor.einsum("ij->ix", Tensor.zeros(2, 3)), "names 'x', which no operand has"),
    "einsum letters": (lambda: Tensor.einsum("i1->i", Tensor.zeros(2, 3)), "may hold letters"),
    "einsum diagonal": (lambda: Tensor.einsum("ii->i", Tensor.zeros(2, 3)), "axis 'i' .* is 2 and 3"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(ShapeError, match=message):
        call()


def test_devices_do_not_mix(webgpu: str) -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    b._device = webgpu
    for call in (lambda: a + b, lambda: a @ b, lambda: Tensor.cat([a, b]), lambda: a[b.int()], lambda: a.assign(b)):
        with pytest.raises(DeviceError, match=r"one tensor is on 'cpu' and the other on 'webgpu'; move one with \.to"):
            call()
