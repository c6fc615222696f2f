"""backward, grad, value_and_grad and vjp: where gradients go, how they add up, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import autograd, fill
from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor, functional as F, grad, hessian, no_grad, value_and_grad, vjp
from anneal.uop import arena, toposort
from tests.reference import evaluate


def values(t: Tensor | None) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    assert t is not None
    return evaluate([t.uop])[0]


def test_gradients_add_up_until_they_are_forgotten() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    (x * x).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [5, 7])
    x.grad = None
    (x * 3).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [3, 3])


def test_a_given_cotangent_weighs_the_elements() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x).backward(Tensor([1.0, 0.0, 10.0]))
    np.testing.assert_array_equal(values(x.grad), [2, 0, 60])
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        (x * x).backward(Tensor([1.0, 2.0]))


def test_two_equal_leaves_are_two_leaves() -> None:
    a, b = Tensor.ones(3, requires_grad=True), Tensor.ones(3, requires_grad=True)
    (a * a * b).sum().backward()
    np.testing.assert_array_equal(values(a.grad), [2, 2, 2])
    np.testing.assert_array_equal(values(b.grad), [1, 1, 1])


def test_a_lazy_leaf_is_found_through_folding_and_views() -> None:
    x = (Tensor([1.0, 2.0, 3.0, 4.0]).reshape(2, 2) * 0.5).detach().requires_grad_()
    ((x * 0.25).reshape(4) + x.permute(1, 0).reshape(4) + x.reshape(1, 4).reshape(4)).sum().backward()
    np.testing.assert_array_equal(values(x.grad), np.full((2, 2), 2.25))


def test_a_leaf_stays_a_leaf_when_assigned_and_when_realised() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
        with no_grad():
            assert w.grad is not None
            w.assign(w - w.grad * 0.25)
        w.grad = None
    (w * 2.0).sum().backward()
    np.testing.assert_array_equal(values(w.grad), [2, 2])
    np.testing.assert_allclose(w.numpy(), [0.125, 0.25])
    assert w.is_leaf
    assert w.requires_grad


def test_backward_goes_on_through_what_was_realised() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    middle = (x * x).realize()
    loss = (middle * 3).sum()
    assert loss.item() == 15
    loss.backward()
    np.testing.assert_array_equal(values(x.grad), [6, 12])


def test_a_leaf_realised_after_it_was_used() -> None:
    x = Tensor.full((2,), 3.0, requires_grad=True)
    loss = (x * x).sum()
    x.realize()
    loss.backward()
    np.testing.assert_array_equal(values(x.grad), [6, 6])


def test_detach_and_no_grad_stop_the_gradient() -> None:
    x = Tensor([3.0], requires_grad=True)
    (x * x.detach()).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [3])
    with no_grad():
        y = x * 2
    assert not y.requires_grad
    x.grad = None
    (x * y).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [6])


def test_flat_functions_have_zero_gradients() -> None:
    x = Tensor([1.5, -0.5], requires_grad=True)
    (x.floor() + x.sign() + x.round()).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [0, 0])
    flat: list[Callable[[Tensor], Tensor]] = [
        lambda x: F.grid_sample(Tensor.ones(1, 1, 2, 2), x.expand(1, 1, 1, 2), "nearest"),
        lambda x: fill(x, 3.0),
        lambda x: fill(x, Tensor(3.0, requires_grad=True)),
    ]
    for f in flat:
        assert autograd.grad(f(x).sum(), x)[0].tolist() == [0, 0]


def test_a_half_cast_keeps_the_wider_cotangent() -> None:
    x = Tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    (x.float() * 0.1).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype.name == "float16"
    # Two contributions of 2**-12 around 1 vanish when each is rounded to float16, and do not in float32.
    y = Tensor([1.0], dtype="float16", requires_grad=True)
    (y.float() * 1.0 + y.float() * 2.0**-12 + y.float() * 2.0**-12 + y.float() * 2.0**-11).sum().backward()
    assert values(y.grad)[0] == np.float16(1 + 2.0**-10)


def test_ties_share_the_gradient() -> None:
    x = Tensor([2.0, 5.0, 5.0], requires_grad=True)
    x.max().backward()
    np.testing.assert_array_equal(values(x.grad), [0, 0.5, 0.5])
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 3.0], requires_grad=True)
    a.maximum(b).sum().backward()
    np.testing.assert_array_equal(values(a.grad), [0.5, 0])
    np.testing.assert_array_equal(values(b.grad), [0.5, 1])
    z = Tensor([0.0], requires_grad=True)
    z.relu().sum().backward()
    np.testing.assert_array_equal(values(z.grad), [0])


def test_a_product_with_zeros() -> None:
    x = Tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]], requires_grad=True)
    x.prod(1).sum().backward()
    np.testing.assert_array_equal(values(x.grad), [[6, 0, 0], [0, 0, 0], [6, 3, 2]])


def test_the_backward_nodes_say_so() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x.exp() * x.sin()).sum()
    forward = set(toposort([loss.uop]))
    loss.backward()
    assert x.grad is not None
    made = [u for u in toposort([x.grad.uop]) if u not in forward and u.op.name != "CONST"]
    assert made
    assert {u.provenance[0] for u in made} == {"backward"}
    assert arena().phase == "forward"


def test_a_deep_graph_needs_no_recursion() -> None:
    x = Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y.sin()
    y.sum().backward()
    assert x.grad is not None
    assert len(toposort([x.grad.uop])) > 50_000


def test_the_walk_is_linear() -> None:
    def nodes(n: int) -> int:
        x = Tensor([1.0], requires_grad=True)
        y = x
        for _ in range(n):
            y = y * y + x
        y.sum().backward()
        assert x.grad is not None
        return len(toposort([x.grad.uop]))

    assert nodes(200) < 2.2 * nodes(100)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_backward_of_several_elements() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"\(2,\).*reduce it"):
        (x * 2).backward()


def test_backward_twice() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    np.testing.assert_array_equal(values(x.grad), [4, 8])
    with pytest.raises(GradientError, match="second time"):
        loss.backward()


def test_backward_without_a_leaf() -> None:
    with pytest.raises(GradientError, match="requires_grad=True"):
        Tensor([1.0]).sum().backward()
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="requires_grad=True"):
        x.detach().sum().backward()
    with pytest.raises(GradientError, match="only floats"):
        (x > 0).sum().backward()


def test_gradients_are_taken_inside_no_grad() -> None:
    """As in torch: the block stops recording, not the passes back; `create_graph` records."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x**3).sum()
    with no_grad():
        (plain,) = autograd.grad(y, x, retain_graph=True)
        (slope,) = autograd.grad(y, x, create_graph=True)
        assert not (x * 1).requires_grad
        y.backward()
    assert not plain.requires_grad
    assert x.grad is not None
    assert x.grad.tolist() == plain.tolist() == [3.0, 12.0]
    assert autograd.grad(slope.sum(), x)[0].tolist() == [6.0, 12.0]


def test_a_hook_takes_gradients_inside_no_grad() -> None:
    """The step back through a fixed point, as tutorials of deep equilibrium models write it."""
    x, z0 = Tensor([0.3, 0.4], requires_grad=True), Tensor([0.1, 0.2], requires_grad=True)
    f0 = (z0 * x).tanh()
    z = (x * 2).tanh()
    z.register_hook(lambda v: autograd.grad(f0, z0, v, retain_graph=True)[0] + v)
    total = z.sum()
    with no_grad():
        total.backward()
    a, b = x.numpy(), z0.numpy()
    expected = 2 * (1 - np.tanh(2 * a) ** 2) * (1 + a * (1 - np.tanh(a * b) ** 2))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_only_floats_want_gradients() -> None:
    with pytest.raises(DTypeError):
        Tensor([1, 2], requires_grad=True)


# -- functions over functions -----------------------------------------------------------------------------------------


def test_grad_of_grad() -> None:
    def f(x: Tensor) -> Tensor:
        return (x * x * x).sum()

    x = Tensor([1.0, 2.0])
    np.testing.assert_array_equal(values(grad(f)(x)), [3, 12])
    np.testing.assert_array_equal(values(grad(lambda y: grad(f)(y).sum())(x)), [6, 12])
    np.testing.assert_array_equal(values(grad(lambda y: grad(lambda z: grad(f)(z).sum())(y).sum())(x)), [6, 6])


def test_a_captured_tensor_is_a_constant() -> None:
    x = Tensor([2.0])
    np.testing.assert_array_equal(values(grad(lambda y: (y * x).sum())(x)), [2])
    np.testing.assert_array_equal(values(grad(lambda y, z: (y * z).sum())(x, x)), [2])
    inner = grad(lambda x: grad(lambda y: (x * y).sum())(Tensor([5.0])).sum())
    np.testing.assert_array_equal(values(inner(x)), [1])


def test_structures_and_argument_numbers() -> None:
    def f(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return (p["w"] * x + p["b"]).sum()

    p = {"w": Tensor([2.0, 3.0]), "b": Tensor([1.0, 1.0])}
    value, (dp, dx) = value_and_grad(f, argnums=(0, 1))(p, Tensor([10.0, 20.0]))
    assert values(value) == 82
    np.testing.assert_array_equal(values(dp["w"]), [10, 20])
    np.testing.assert_array_equal(values(dp["b"]), [1, 1])
    np.testing.assert_array_equal(values(dx), [2, 3])


def test_auxiliary_results() -> None:
    (value, twice), g = value_and_grad(lambda x: ((x * x).sum(), x * 2), has_aux=True)(Tensor([3.0]))
    assert values(value) == 9
    np.testing.assert_array_equal(values(twice), [6])
    np.testing.assert_array_equal(values(g), [6])


def test_an_unused_argument_has_a_zero_gradient() -> None:
    g = grad(lambda x, y: y.sum(), argnums=0)(Tensor([1.0, 2.0]), Tensor([3.0]))
    np.testing.assert_array_equal(values(g), [0, 0])


def test_grad_inside_backward() -> None:
    w = Tensor([2.0], requires_grad=True)
    slope = grad(lambda x: (x * x * w).sum())(Tensor([3.0]))
    slope.sum().backward()
    np.testing.assert_array_equal(values(w.grad), [6])


# a tensor that another expression equals, or that is a leaf's values or another's in another shape
EQUAL: list[Callable[[Tensor], Tensor]] = [
    lambda x: x * 3.0,
    lambda x: x.exp(),
    lambda x: x.clone(),
    lambda x: x * 1.0,
    lambda x: x[:],
    lambda x: x.unsqueeze(0),
    lambda x: (x * 3.0).view(2, 1).T,
    lambda x: F.pad(x, (0, 0)),
    lambda x: x.neg().neg(),
    lambda x: x[Tensor([1, 0])],
]


@pytest.mark.parametrize("read", ["", "itself", "the result"])
@pytest.mark.parametrize("f", EQUAL, ids=range(len(EQUAL)))
def test_the_gradient_of_a_result_is_of_its_own_uses(f: Callable[[Tensor], Tensor], read: str) -> None:
    for n in range(4):  # its calls are late in the third round
        x, c = Tensor([1.0, 2.0 + n], requires_grad=True), Tensor([1.0, 10.0])
        y, other = f(x), f(x)
        if read == "itself":
            y.tolist()
        z = (y * other * c).sum() + (x * 5).sum() + (y.exp() * x).sum()
        if read == "the result":
            z.item()
        whole, own = autograd.grad(z, [x, y], retain_graph=True)
        z.backward(inputs=[x, y])
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose(own.numpy(), (f(x) * c + f(x).exp() * x).detach().numpy(), 1e-6)
        assert y.grad.tolist() == own.tolist()
        assert x.grad.tolist() == whole.tolist()
        assert autograd.grad((f(x) * 2).sum(), y, allow_unused=True) == (None,)


def test_grad_leaves_no_trace_in_the_graph() -> None:
    x = Tensor([1.0, 2.0])
    a, b = grad(lambda y: (y * y).sum())(x), grad(lambda y: (y * y).sum())(x)
    assert a.uop is b.uop


def test_vjp() -> None:
    y, pull = vjp(lambda a, b: a @ b, Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]]))
    assert values(y) == 11
    da, db = pull(Tensor([[10.0]]))
    np.testing.assert_array_equal(values(da), [[30, 40]])
    np.testing.assert_array_equal(values(db), [[10], [20]])


def test_wrong_arguments() -> None:
    with pytest.raises(GradientError, match="argument 1"):
        grad(lambda x: x.sum(), argnums=1)(Tensor([1.0]))
    with pytest.raises(GradientError, match="int32"):
        grad(lambda x: x.sum())(Tensor([1]))
    with pytest.raises(GradientError, match="must return a tensor"):
        grad(lambda x: 3.0)(Tensor([1.0]))
    with pytest.raises(GradientError, match="elements"):
        grad(lambda x: x)(Tensor([1.0, 2.0]))


def test_a_kept_loss_does_not_keep_its_step_alive() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for look_first in (True, False):
        loss = (w * w).sum()
        if look_first:
            loss.item()
        loss.backward()
        loss.item()
        flat = loss.uop.src[0] if loss.uop.src else loss.uop
        assert flat.arg.origin is None
        with pytest.raises(GradientError, match="second time"):
            loss.backward()


_OF_TWO: list[Callable[[Tensor, Tensor], Tensor]] = [
    F.binary_cross_entropy,
    lambda a, b: F.binary_cross_entropy(a, b.sigmoid(), weight=a * b),
    F.binary_cross_entropy_with_logits,
    lambda a, b: F.binary_cross_entropy_with_logits(a, b, pos_weight=a * b),
    F.kl_div,
    F.cross_entropy,
    F.smooth_l1_loss,
    F.huber_loss,
    F.poisson_nll_loss,
    lambda a, b: F.gaussian_nll_loss(a, b, a * b + 1.0),
    F.cosine_similarity,
    F.pairwise_distance,
    lambda a, b: F.layer_norm(a, (3,), b[0], b[1]),
    lambda a, b: F.batch_norm(a, None, None, b[0], b[1], True),
    lambda a, b: F.scaled_dot_product_attention(a, b, a * b),
    Tensor.pow,
    Tensor.atan2,
    Tensor.hypot,
    Tensor.logaddexp,
    Tensor.logaddexp2,
    Tensor.xlogy,
    Tensor.fmod,
    Tensor.maximum,
    Tensor.copysign,
]


@pytest.mark.parametrize("f", _OF_TWO, ids=range(len(_OF_TWO)))
def test_mixed_second_derivatives_are_symmetric(f: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A gradient whose rule names slopes of several arguments has each of them once, also when differentiated."""
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.uniform(0.1, 0.9, (2, 3))) for _ in range(2))
    ((_, right), (left, _)) = hessian(lambda a, b: ((f(a, b) + 1.0) ** 2).sum(), argnums=(0, 1))(a, b)
    right, left = right.reshape(6, 6), left.reshape(6, 6)
    np.testing.assert_allclose(right.numpy(), left.T.numpy(), rtol=1e-9, atol=1e-12)


READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda y: y.sum().item(),
    "tolist": lambda y: y.tolist(),
    "realize": lambda y: y.realize(),
    "printed": str,
    "read later": lambda y: (y * 2).tolist(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("mode", [no_grad, autograd.inference_mode, autograd.enable_grad])
def test_gradients_pass_what_was_read_in_any_mode(read: str, mode: Any) -> None:
    for shared in (False, True):
        x = Tensor([1.0, 2.0], requires_grad=True)
        y = x * 3
        z = y * y
        with mode():
            READS[read](z if shared else y)
            READS[read](y)
        (z * x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [27.0, 108.0]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_gradient_that_passes_a_spent_result_is_complete_or_an_error(before: bool, shape: tuple[int, ...]) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum() if not shape else x * x
    if before:
        y.tolist()
    y.backward(y.ones_like())
    assert x.grad is not None
    y.tolist()
    for use in (lambda y: x * y, lambda y: y.reshape(-1) * x, lambda y: x + y.exp()):
        with pytest.raises(GradientError, match="whose backward was taken before"):
            use(y).sum().backward()
        with pytest.raises(GradientError, match="whose backward was taken before"):
            autograd.grad(use(y).sum(), x)
        x.grad = None
        use(y.detach()).sum().backward()
        assert x.grad is not None
    total = Tensor(0.0)
    for _ in range(20):  # memory of rounds before is taken again, for results that are not spent
        loss, other = (x * x).sum(), (x * 3).sum()
        loss.backward()
        total = total + loss.item()
        other.tolist()
        x.grad = None
        (other * x).sum().backward()
        assert x.grad.tolist() == [18.0, 18.0]


def test_a_leaf_is_its_own_result_as_often_as_one_likes() -> None:
    x, w = Tensor(3.0, requires_grad=True), Tensor(2.0, requires_grad=True)
    x.backward()
    x.backward()
    (x * w).backward(inputs=[w])
    (x * w).backward()
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.item(), w.grad.item()) == (4.0, 6.0)


def test_unused_inputs_that_are_refused_are_refused_with_zeros_too() -> None:
    x, w = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    assert autograd.grad(x.sum(), [x, w], materialize_grads=True)[1].tolist() == [0.0]
    with pytest.raises(GradientError, match="no output depends"):
        autograd.grad(x.sum(), [x, w], materialize_grads=True, allow_unused=False)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("row", [True, False])
def test_a_gradient_passes_a_result_whose_data_were_replaced(read: bool, row: bool) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    base = x * 2
    y = base[0] if row else base
    if read:
        y.tolist()
    y.data = y.data * 0 + 5
    assert base.tolist() == [[2.0, 4.0], [6.0, 8.0]] if row else [[5.0, 5.0], [5.0, 5.0]]
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[20.0, 20.0], [0.0, 0.0] if row else [20.0, 20.0]]


@pytest.mark.parametrize("read", [True, False])
def test_views_keep_their_gradients_when_what_they_show_is_detached(read: bool) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    row, turned = y[1:], y.view(2, 1)
    if read:
        row.tolist()
    y.detach_()
    (turned.sum() * 10 + row.sum() + y.sum() * x.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [39.0, 42.0]
    with no_grad():
        y.mul_(2)  # they show the same memory still
    assert (row.tolist(), turned.tolist()) == ([12.0], [[6.0], [12.0]])


@pytest.mark.parametrize("read", [False, True])
def test_a_gradient_of_a_result_passes_gradients_that_were_taken_before(read: bool, device: str) -> None:
    """A gradient was made of a result; another of that result lacked what flows through the first."""
    x = Tensor([2.0, 3.0], requires_grad=True, device=device)
    y = x * x
    loss = (y**3).sum()
    if read:
        loss.item()
    (slope,) = autograd.grad(loss, x, create_graph=True)
    z = (slope * y).sum()
    if read:
        z.item()
    np.testing.assert_allclose(autograd.grad(z, y)[0].numpy(), [576.0, 4374.0], rtol=1e-5)  # 18 x y^2


@pytest.mark.parametrize(
    ("function", "torchs"),
    [
        (lambda x: x.exp(), [53.78026580810547, 4841.14599609375]),
        (lambda x: x.tanh(), [1.2379018068313599, -4.591206073760986]),
        (lambda x: x.sqrt(), [2.1213202476501465, 4.242640495300293]),
        (lambda x: 1 / x, [-144.0, -0.5625]),
        (lambda x: (x + 1) / x, [-324.0, -5.0625]),
    ],
    ids=["exp", "tanh", "sqrt", "reciprocal", "quotient"],
)
def test_a_slope_that_is_made_of_a_result_is_made_of_its_tensor(
    function: Callable[[Tensor], Tensor], torchs: list[float]
) -> None:
    """As in torch 2.13, whose exp, tanh and sqrt keep their result; a quotient keeps its operands."""
    x = Tensor([0.5, 2.0], requires_grad=True)
    y = function(x)
    (slope,) = autograd.grad((y**3).sum(), x, create_graph=True)
    np.testing.assert_allclose(autograd.grad((slope * y).sum(), y)[0].numpy(), torchs, rtol=1e-5)


def test_inner_steps_through_results_make_no_plan_each_round() -> None:
    w = Tensor([0.5, -0.25], requires_grad=True)
    made = []
    for n in range(6):
        fast, x = w, Tensor([1.0 + n, 2.0])
        for _ in range(3):
            (g,) = autograd.grad((((fast * x).tanh() - 1) ** 2).sum(), fast, create_graph=True)
            fast = fast - 0.1 * g
        w.grad = None
        (fast * x).sum().backward()
        w.grad.numpy()  # type: ignore[union-attr]
        made.append(cache_statistics()[1])
    assert made[-1] == made[2]
