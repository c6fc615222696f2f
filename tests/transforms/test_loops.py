"""Loops and choices: beside jax.lax and Python's own loops, in every mode, on both devices."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import anneal as an
from anneal import nn, schedule
from anneal.backend import get_device
from anneal.errors import DTypeError, GradientError, ShapeError, TransformError
from anneal.runtime import cache_statistics, turns
from anneal.runtime.calls import around_host_calls
from anneal.tensor import Tensor, functional as F
from anneal.utils.checkpoint import checkpoint
from tests.transforms.loop_programs import Library, program, python, run

Fn = Callable[..., Any]
LOOPS = Library(an, an.scan, an.fori_loop, an.while_loop, an.cond)
SLOPED = ("scan", "fori", "cond", "op", "scan", "fori")  # what has a reverse derivative


def array(*shape: int, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def near(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Trees of tensors and arrays are equal, but for rounding."""
    ours, theirs = an.tree_leaves(found), an.tree_leaves(wanted)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        x, y = (np.asarray(v.numpy() if isinstance(v, Tensor) else v) for v in (a, b))
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, tolerance, tolerance)


# -- values and derivatives of one loop, in every mode ----------------------------------------------------------------


def by_scan(w: Tensor, h: Tensor, xs: Tensor, **how: Any) -> Any:
    def body(h: Tensor, x: Tensor) -> Any:
        h = an.tanh(h @ w + x)
        return h, {"y": h * h}

    return an.scan(body, h, xs, **how)


def by_hand(w: Tensor, h: Tensor, xs: Tensor, reverse: bool = False, **_: Any) -> Any:
    rows: list[Any] = [None] * xs.shape[0]
    for n in range(xs.shape[0])[:: -1 if reverse else 1]:
        h = an.tanh(h @ w + xs[n])
        rows[n] = h * h
    return h, {"y": an.stack(rows)}


def loss(f: Fn, **how: Any) -> Fn:
    def of(w: Tensor, h: Tensor, xs: Tensor) -> Tensor:
        last, rows = f(w, h, xs, **how)
        return last.sin().sum() + (rows["y"] * an.arange(2)).sum()

    return of


def arguments() -> list[Tensor]:
    return [Tensor(array(2, 2, seed=1, scale=0.5)), Tensor(array(3, 2, seed=2)), Tensor(array(5, 3, 2, seed=3))]


MODES: dict[str, Callable[[Fn], Any]] = {
    "value": lambda f: f(*arguments()),
    "grad": lambda f: an.grad(loss(f), (0, 1, 2))(*arguments()),
    "jvp": lambda f: an.jvp(f, tuple(arguments()), tuple([x.flip(0) for x in arguments()])),
    "vmap": lambda f: an.vmap(f, (None, None, 0))(*arguments()[:2], Tensor(array(4, 5, 3, 2))),
    "vmap of the weights": lambda f: an.vmap(f, (0, None, None))(Tensor(array(4, 2, 2)), *arguments()[1:]),
    "vmap of grad": lambda f: an.vmap(an.grad(loss(f), (0, 1, 2)), (None, 0, None))(
        arguments()[0], Tensor(array(4, 3, 2)), arguments()[2]
    ),
    "grad of grad": lambda f: an.grad(lambda w: (an.grad(loss(f))(w, *arguments()[1:]) ** 2).sum())(arguments()[0]),
    "jvp of grad": lambda f: an.jvp(
        lambda w: an.grad(loss(f))(w, *arguments()[1:]), (arguments()[0],), (Tensor(array(2, 2, seed=9)),)
    ),
    "grad of jvp": lambda f: an.grad(
        lambda w: (an.jvp(lambda v: f(v, *arguments()[1:])[1]["y"], (w,), (Tensor(array(2, 2)),))[1] ** 2).sum()
    )(arguments()[0]),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_is_what_its_turns_are(mode: str) -> None:
    near(MODES[mode](by_scan), MODES[mode](by_hand), 1e-4)


@pytest.mark.parametrize("how", [{"reverse": True}, {"unroll": 2}, {"unroll": 3, "reverse": True}, {"unroll": True}])
def test_the_order_and_the_form_of_turns(how: dict[str, Any]) -> None:
    near(by_scan(*arguments(), **how), by_hand(*arguments(), **how))
    both = [an.grad(loss(f, **how), (0, 1, 2))(*arguments()) for f in (by_scan, by_hand)]
    near(*both, 1e-4)


# -- changes in place -------------------------------------------------------------------------------------------------


def put(x: Tensor, value: Any) -> Tensor:
    x[0] = value
    return x


CHANGES: dict[str, tuple[Fn, Fn]] = {  # a change of a tensor, and the same as a value
    "setitem": (lambda x, v: put(x, x[0] * v), lambda x, v: an.stack([x[0] * v, x[1]])),
    "an op": (lambda x, v: x.mul_(v), lambda x, v: x * v),
    "copy_": (lambda x, v: x.copy_(x.sin() + v), lambda x, v: x.sin() + v),
    "a view": (lambda x, v: (x[0].add_(v), x)[1], lambda x, v: an.stack([x[0] + v, x[1]])),
}


def turn_that_changes(f: Fn) -> Fn:
    def turn(c: Tensor, t: Tensor) -> Any:
        t = f(t, c[1])
        c = f(c, t[0])
        return c, (c, t)

    return turn


USES: dict[str, Fn] = {  # programs of such a change
    "scan": lambda f, x, xs: an.scan(turn_that_changes(f), x, xs),
    "scan, reverse": lambda f, x, xs: an.scan(turn_that_changes(f), x, xs, reverse=True, unroll=2),
    "scan, written out": lambda f, x, xs: an.scan(turn_that_changes(f), x, xs, unroll=True),
    "fori_loop": lambda f, x, xs: an.fori_loop(0, 3, lambda i, c: f(c, xs[0, 0] + i), x),
    "while_loop": lambda f, x, xs: an.while_loop(lambda s: f(s[0], 2.0)[0].sum() + s[1] < 4, lambda s: (
        f(s[0], 0.5), s[1].add_(1)), (x, 0)),
    "cond": lambda f, x, xs: [
        an.cond(x[0].sum() > n, lambda c, t: (f(c, t[0]), t), lambda c, t: (c, f(t, c[0])), x, xs[1]) for n in (-9, 9)
    ],
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("use", USES)
def test_a_body_may_change_what_it_is_given(use: str, change: str, jitted: bool, device: str) -> None:
    """The changed value counts from there on; the caller's tensors stay, rows are those of their turn."""
    x, xs = array(2, 2, seed=1), array(5, 2, 2, seed=2)
    given = Tensor(x), Tensor(xs)
    found, wanted = ((lambda a, b, f=f: USES[use](f, a, b)) for f in CHANGES[change])
    near((an.jit(found) if jitted else found)(*given), wanted(*given))
    near(given, (x, xs), 0)
    if not jitted and use != "while_loop":
        both = [an.grad(lambda *a, f=f: sum(v.sum() for v in an.tree_leaves(f(*a))), (0, 1)) for f in (found, wanted)]
        near(*[g(*given) for g in both])


def trained(f: Fn, jitted: bool, read: bool = False) -> Any:
    w = Tensor(array(2, 2, seed=1, scale=0.5), requires_grad=True)
    optimizer, h = an.optim.SGD([w], lr=0.05), arguments()[1]

    def step(xs: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(f)(w, h, xs)
        if read:
            value.item()
        value.backward()
        optimizer.step()
        return value

    run_step = an.jit(step) if jitted else step
    values = [run_step(arguments()[2] * (1 + n / 10)).item() for n in range(4)]
    if jitted:
        assert "captured" in run_step.explain()  # type: ignore[union-attr]
    return Tensor(values), w


def test_a_step_trains_on_both_devices(device: str) -> None:
    wanted = trained(by_hand, False)
    near(trained(by_scan, True), wanted, 1e-4)
    near(trained(by_scan, False), wanted, 1e-4)
    near(trained(by_scan, False, read=True), wanted, 1e-4)


def test_loops_in_loops_on_both_devices(device: str) -> None:
    xs = Tensor(array(4, 3, 2))

    def inner(c: Tensor, x: Tensor) -> Any:
        c = an.cond(x.sum() > 0, lambda v: v * x, lambda v: v - x, c)
        return c, c.sum()

    def outer(c: Tensor, x: Tensor) -> Any:
        c, rows = an.scan(inner, c, x)
        c = an.while_loop(lambda v: v.abs().sum() > 1, lambda v: v / 2, c)
        return c, rows

    c, found = np.ones(2, np.float32), np.zeros((4, 3), np.float32)
    for n, each in enumerate(xs.numpy()):
        for k, x in enumerate(each):
            c = c * x if x.sum() > 0 else c - x
            found[n, k] = c.sum()
        while np.abs(c).sum() > 1:
            c = c / 2
    near(an.scan(outer, an.ones(2), xs), (c, found))


def test_a_closure_gets_a_gradient_by_backward() -> None:
    w, b = Tensor(2.0, requires_grad=True), Tensor([1.0, 3.0], requires_grad=True)
    total, rows = an.scan(lambda c, x: (c * w + x, c * b[0]), 1.0, an.ones(3))
    (total + rows.sum()).backward()
    near([w.grad, b.grad], [np.float32(17 + 6), np.array([11, 0], np.float32)])
    with an.no_grad():
        assert not an.scan(lambda c, _: (c * w, c), 1.0, length=2)[0].requires_grad


def test_what_a_custom_derivative_says_holds_in_a_body() -> None:
    @an.custom_vjp
    def clipped(x: Tensor) -> Tensor:
        return x * 3

    clipped.defvjp(lambda x: (x * 3, None), lambda _, g: (g.clamp(-1, 1),))
    w = Tensor(0.5, requires_grad=True)  # what is carried wants a gradient after the first turn alone
    an.scan(lambda c, x: (clipped(c) + w * x, None), Tensor(0.0), Tensor([1.0, 2.0, 4.0]))[0].backward()
    near(w.grad, np.float32(1 + 2 + 4))


# -- random programs --------------------------------------------------------------------------------------------------


def values(seed: int, dtype: Any) -> list[Any]:
    return [array(3, seed=seed, dtype=dtype), array(3, seed=seed + 1, dtype=dtype), array(3, 3, scale=0.5, dtype=dtype)]


def of(steps: list[Any], library: Library) -> Fn:
    return lambda x, y, w: run(steps, library, [x, y], w)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.integers(0, 10_000))
def test_random_programs_are_their_turns(seed: int) -> None:
    steps = program(seed, 2, SLOPED, 2)
    given_, tangents = ([Tensor(a) for a in values(s, np.float64)] for s in (seed, seed + 7))
    results = []
    for library in (LOOPS, python(an)):
        f = of(steps, library)
        slope = an.grad(lambda *v, f=f: f(*v).sum(), (0, 1, 2))(*given_)
        results.append((f(*given_), an.jvp(f, tuple(given_), tuple(tangents)), slope))
    near(results[0], results[1], 1e-9)
    many = Tensor(array(2, 3, seed=seed, dtype=np.float64))
    both = [an.vmap(of(steps, lib), (0, None, None))(many, *given_[1:]) for lib in (LOOPS, python(an, select=True))]
    near(both[0], both[1], 1e-9)


@pytest.mark.parametrize("seed", [2, 4, 9, 11, 15])
def test_random_programs_are_those_of_jax(seed: int) -> None:
    jax = pytest.importorskip("jax")
    lax, steps = jax.lax, program(seed, 1)
    theirs = of(steps, Library(jax.numpy, lax.scan, lax.fori_loop, lax.while_loop, lax.cond))
    ours, arrays, tangents = of(steps, LOOPS), values(seed, np.float32), values(seed + 7, np.float32)
    tensors, many = [Tensor(a) for a in arrays], array(4, 3)
    moved = an.jvp(ours, tuple(tensors), tuple([Tensor(t) for t in tangents]))
    near(moved, jax.jit(lambda p, t: jax.jvp(theirs, p, t))(tuple(arrays), tuple(tangents)), 1e-4)
    if "while" in str(steps):
        mapped = an.vmap(ours, (0, None, None)), jax.vmap(theirs, (0, None, None))
    else:
        slopes = [t.grad(lambda *v, f=f: f(*v).sum(), (0, 1, 2)) for t, f in ((an, ours), (jax, theirs))]
        mapped = an.vmap(slopes[0], (0, None, None)), jax.vmap(slopes[1], (0, None, None))
    near(mapped[0](Tensor(many), *tensors[1:]), jax.jit(mapped[1])(many, *arrays[1:]), 1e-4)


# -- while_loop and cond ----------------------------------------------------------------------------------------------


def test_a_while_loop_has_tangents_and_no_gradient() -> None:
    def f(x: Tensor) -> Tensor:
        return an.while_loop(lambda v: v < 10, lambda v: v * x, x)

    near(an.jvp(f, (Tensor(3.0),), (Tensor(1.0),)), (np.float32(27), np.float32(27)))
    near(an.fori_loop(1, Tensor(4), lambda i, v: v * i, Tensor(1)), np.int32(6))
    with pytest.raises(GradientError, match="while_loop has no reverse derivative.*use scan"):
        an.grad(f)(Tensor(3.0))
    # a loop around it has none either, and its values all the same
    around = an.scan(lambda c, x: (f(c) - x, c), Tensor(2.0, requires_grad=True), Tensor([1.0, 13.0]))
    near(around[0].detach(), np.float32(15 - 13))


def test_a_gradient_passes_what_a_while_loop_computes_of_constants_beside_a_variable() -> None:
    def f(x: Any) -> Any:
        _, doubled, last = an.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2, s[2] * x), (0, OVER, x))
        return (doubled * x).sum(), last.sum()

    x = Tensor([1.0, 2.0])
    assert an.grad(lambda x: f(x)[0])(x).tolist() == (OVER * 8).tolist()
    with pytest.raises(GradientError, match="while_loop has no reverse derivative"):
        an.grad(lambda x: f(x)[1])(x)


def test_examples_leave_a_while_loop_one_by_one() -> None:
    def f(x: Tensor) -> Any:
        return an.while_loop(lambda s: s[0] < x, lambda s: (s[0] * 2, s[1] + 1), (1.0, 0))

    near(an.vmap(f)(Tensor([3.0, 100.0, 0.5])), (np.array([4, 128, 1], np.float32), np.array([2, 7, 0], np.int32)))


def test_a_choice_runs_one_branch_and_under_vmap_selects() -> None:
    called: list[float] = []

    def noted(a: Any) -> Any:
        called.append(float(a))
        return a

    def f(x: Tensor) -> Tensor:
        return an.cond(x > 1, lambda v: an.host_call(noted, ((), "float32"), v) * 2, lambda v: v - 1, x)

    assert (f(Tensor(3.0)).item(), f(Tensor(0.5)).item(), called) == (6.0, -0.5, [3.0])
    near(
        an.vmap(lambda x: an.cond(x > 1, lambda v: v * 2, lambda v: v - 1, x))(Tensor([3.0, 0.5])),
        np.array([6, -0.5], np.float32),
    )
    slope = an.vmap(an.grad(lambda x: an.cond(x > 1, lambda v: v * v, lambda v: -v, x)))(Tensor([3.0, 0.5]))
    near(slope, np.array([6, -1], np.float32))
    assert an.cond(True, lambda: 1.0, lambda: 2.0).item() == 1.0


# -- arguments --------------------------------------------------------------------------------------------------------


def test_trees_numbers_and_no_turns() -> None:
    xs = {"a": Tensor(array(3, 2)), "b": (Tensor([1, 2, 3]),)}
    carry, rows = an.scan(
        lambda c, x: ({"n": c["n"] + x["b"][0], "s": c["s"]}, (x["a"] * 2, None)), {"n": 0, "s": 1.5}, xs
    )
    near((carry, rows), ({"n": np.int32(6), "s": np.float32(1.5)}, (array(3, 2) * 2, None)))
    assert not an.scan(lambda c, x: (c, x[:0]), 2.0, an.zeros(2, 3))[1].any()  # rows without elements
    carry, row = an.scan(lambda c, x: (c + x.sum(), x > 0), 2.0, an.zeros(0, 3))
    assert (carry.item(), row.shape, row.dtype) == (2.0, (0, 3), an.bool)
    assert an.fori_loop(4, 2, lambda i, v: v * i, Tensor(5.0)).item() == 5.0
    assert an.fori_loop(0, 3, lambda i, v: v + i * 0.5, 0).item() == 1.5  # a number is carried in what comes of it
    near(
        an.scan(lambda c, _: ((c[1], c[0]), c[0]), (1.0, 2.0), length=3),
        ((np.float32(2), np.float32(1)), np.array([1, 2, 1], np.float32)),
    )


XS, COUNT, WEIGHT = an.ones(3, 2), an.zeros(1), an.ones(2, requires_grad=True)
WRONG: dict[str, tuple[Fn, type[Exception], str]] = {
    "numbers of slices": (
        lambda: an.scan(lambda c, x: (c, x), 0.0, (XS, XS[:2])),
        ShapeError,
        r"xs\[0\] has 3.*xs\[1\] has 2",
    ),
    "length": (lambda: an.scan(lambda c, x: (c, x), 0.0, XS, length=4), ShapeError, "length is 4, but xs has 3"),
    "no length": (lambda: an.scan(lambda c, x: (c, x), 0.0), ShapeError, "give xs, or length"),
    "no axis": (lambda: an.scan(lambda c, x: (c, x), 0.0, Tensor(1.0)), ShapeError, r"xs has shape \(\)"),
    "no pair": (lambda: an.scan(lambda c, x: c, 0.0, XS), TransformError, "returns a pair"),
    "shape": (
        lambda: an.scan(lambda c, x: ({"h": x}, x), {"h": 0.0}, XS),
        ShapeError,
        r"carry\['h'\] is of shape \(\).*\(2,\)",
    ),
    "dtype": (lambda: an.fori_loop(0, 2, lambda i, v: v.cast("int32"), Tensor(1.0)), DTypeError, "float32 .* int32"),
    "structure": (lambda: an.scan(lambda c, x: ((c[0],), x), (0.0, 1.0), XS), TransformError, "has 1 items, not 2"),
    "predicate": (lambda: an.cond(XS[0] > 0, lambda: 1, lambda: 2), ShapeError, r"is a scalar, and has shape \(2,\)"),
    "condition": (lambda: an.while_loop(lambda v: v, lambda v: v, 1.0), ShapeError, "boolean scalar, and gave float32"),
    "branches' shapes": (lambda: an.cond(True, lambda: XS, lambda: XS[0]), ShapeError, r"\(3, 2\) as true_fun gives"),
    "branches' trees": (
        lambda: an.cond(True, lambda: XS, lambda: [XS]),
        TransformError,
        "what false_fun gives has nests",
    ),
    "a value": (
        lambda: an.scan(lambda c, x: (c + x.sum().item(), x), 0.0, XS),
        TransformError,
        "of a loop's body, was read",
    ),
    "assigned": (lambda: an.scan(lambda c, x: (c, XS[0].assign(x)), 0.0, XS), TransformError, "example, or turn"),
    "changed outside": (
        lambda: an.fori_loop(0, 3, lambda i, v: (COUNT.add_(1), v)[1], Tensor(1.0)),
        TransformError,
        r"fori_loop: the function changed a tensor of shape \(1,\) that outlives the call.*carry the tensor",
    ),
    "changed outside, and returned": (
        lambda: an.fori_loop(0, 3, lambda i, v: COUNT.add_(v), an.ones(1)),
        TransformError,
        r"assigned a value of one example, or turn, to a tensor of shape \(1,\)",
    ),
    "backward inside": (
        lambda: an.scan(lambda c, x: ((WEIGHT * x).sum().backward(), (c, x))[1], 0.0, XS),
        TransformError,
        r"backward\(\) inside the function gives a tensor of shape \(2,\)",
    ),
    "changed outside by a branch": (
        lambda: an.cond(False, lambda: COUNT.add_(1), lambda: an.ones(1)),
        TransformError,
        "cond: .* would be made once",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_name_the_place(what: str) -> None:
    call, kind, message = WRONG[what]
    with pytest.raises(kind, match=message):
        call()
    WEIGHT.grad = None


# -- random numbers, plans and memory ---------------------------------------------------------------------------------


def test_each_turn_draws_other_numbers() -> None:
    def rows(x: Tensor) -> Tensor:
        def inner(c: Any, _: Any) -> Any:
            return c, an.rand(())

        return an.scan(lambda c, _: (c, an.scan(inner, None, length=2)[1]), None, length=3)[1] + x * 0

    def different(x: Tensor) -> int:
        return len(set(x.reshape(-1).tolist()))

    assert different(rows(an.zeros(()))) == 6
    assert different(an.vmap(rows)(an.zeros(2))) == 12
    assert different(an.vmap(rows, randomness="same")(an.zeros(2))) == 6
    replayed = an.jit(rows)
    assert different(an.stack([replayed(an.zeros(())) for _ in range(4)])) == 24
    an.manual_seed(3)
    first = rows(an.zeros(())).tolist()
    an.manual_seed(3)
    assert rows(an.zeros(())).tolist() == first


def test_as_many_plans_for_any_number_of_turns() -> None:
    def plans(count: int) -> int:
        before = sum(cache_statistics())
        xs, w = Tensor(array(count, 3)), Tensor(array(3, 3, scale=0.3), requires_grad=True)
        an.scan(lambda h, x: (an.tanh(h @ w + x), h), an.zeros(3), xs)[0].sum().backward()
        an.realize([w.grad])
        return sum(cache_statistics()) - before

    assert plans(200) == plans(7) > 2


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_loops_of_other_lengths_share_kernels(device: str, reverse: bool) -> None:
    """Each length was planned, compiled and counted anew. Arrays of several lengths have the same memory in turn."""
    turns._plans.clear()
    w = Tensor(array(3, 3, scale=0.3), device=device, requires_grad=True)
    for count in (9, 16, 12, 9, 0, 10):
        given, rows, h = array(count, 3, seed=count), [], Tensor(np.zeros(3, np.float32), device=device)
        for x in given[::-1] if reverse else given:
            rows.append(h := an.tanh(h @ w + Tensor(x, device=device)))
        rows = rows[::-1] if reverse else rows
        last, made = an.scan(
            lambda h, x: (an.tanh(h @ w + x),) * 2,
            an.zeros(3, device=device),
            Tensor(given, device=device),
            None,
            reverse,
        )
        near([last, list(made)], [h, rows])
        if count:
            grads = [an.autograd.grad(an.stack(t).sum(), [w]) for t in ([last, *made], [h, *rows])]
            near(*grads)
        assert {plan.loop.length for plan in turns._plans.values()} == {16}
        # forward for values and for gradients, and the reverse, of the state or of rows
        assert len(turns._plans) <= 4


def test_turns_of_all_lengths_count_until_c_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    turns._plans.clear()
    monkeypatch.setattr(type(get_device("cpu")), "runs_before_often", lambda self, programs: 40)
    hurried = []
    monkeypatch.setattr(turns._Steps, "hurry", lambda self: hurried.append(self))
    for count in (9, 12, 10, 9, 11):
        an.scan(lambda h, x: (an.tanh(h + x), None), an.zeros(3), Tensor(array(count, 3)))[0].realize()
    assert len(hurried) == 1


def test_turns_that_are_the_same_calls_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, bound = get_device("cpu"), []
    bind = cpu.bind
    monkeypatch.setattr(cpu, "bind", lambda *given: bound.append(given) or bind(*given))
    an.scan(lambda h, x: (an.tanh(h * 2 + x), None), an.zeros(5), Tensor(array(60, 5)))[0].realize()
    assert 1 <= len(bound) < 15


def test_a_loop_without_rows_takes_the_memory_of_what_it_carries() -> None:
    cpu = get_device("cpu")
    cpu.empty_cache()  # of other tests: a larger piece that is kept would be counted whole
    x = an.ones(100_000, device="cpu").realize()
    cpu.reset_peak()
    before = cpu.memory().in_use
    y = an.fori_loop(0, 50, lambda i, v: v * 0.5 + i, x).realize()
    assert y[0].item() == pytest.approx(96, abs=1e-3)
    assert cpu.memory().peak - before < 3 * 400_000


def test_what_is_read_one_by_one_is_computed_once() -> None:
    turns: list[int] = []

    def noted(a: Any) -> Any:
        turns.append(1)
        return a

    w = Tensor(array(2, seed=5), requires_grad=True)

    def body(c: Tensor, x: Tensor) -> Any:
        c = an.host_call(noted, ((2,), "float32"), an.tanh(c * w + x), gradient=lambda i, o, g: g)
        return c, c * 2

    last, rows = an.scan(body, an.zeros(2), Tensor(array(4, 2)))
    last.tolist()
    total = rows.sum()
    total.item()
    total.backward()
    assert w.grad is not None
    w.grad.tolist()
    assert len(turns) == 4


def test_memory_of_steps_that_read_their_loss_is_flat() -> None:
    cpu, used = get_device("cpu"), []
    w, xs = Tensor(array(32, 32, scale=0.1), requires_grad=True), Tensor(array(20, 32)).realize()
    optimizer = an.optim.SGD([w], lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        value = (an.scan(lambda h, x: (an.tanh(h @ w + x), h * 2), an.zeros(32), xs)[1] ** 2).mean()
        value.item()
        value.backward()
        optimizer.step()
        used.append(cpu.memory().in_use)
    assert used[2] == used[-1]


def test_loops_in_loops_are_planned_before_the_device_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the device's lock and asks for BUILDING waits for a thread that has BUILDING and asks for the device."""
    lock, held = get_device("cpu").lock, []
    plan_for = schedule.plan_for

    def watched(*given: Any) -> Any:
        held.append(lock._is_owned())
        return plan_for(*given)

    monkeypatch.setattr(schedule, "plan_for", watched)

    def inner(x: Tensor) -> Tensor:
        return an.cond(x.sum() > 0, lambda v: an.fori_loop(0, 2, lambda i, u: u * 2 + i, v), lambda v: -v, x)

    rows = an.scan(lambda c, x: (c + inner(x), c), an.zeros(2), Tensor(array(3, 2)))[1]
    assert rows.numpy().shape == (3, 2)
    assert len(held) > 4
    assert not any(held)


# -- checkpoints in a body --------------------------------------------------------------------------------------------


def block(h: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """Several products, and draws, whose values between are what a checkpoint does not keep."""
    h = an.tanh(h @ w + x) * (1 + Tensor.rand(*h.shape) / 9)
    return an.tanh((h @ w).softmax(-1) @ w + h).mean(-1)


def of_blocks(saves: bool, **how: Any) -> Fn:
    def body(w: Tensor, c: Tensor, x: Tensor) -> Any:
        y = checkpoint(block, c, x, w, use_reentrant=False) if saves else block(c, x, w)
        return an.tanh(c / 2 + y.unsqueeze(-1)), y

    def of(w: Tensor, h: Tensor, xs: Tensor) -> Any:
        an.manual_seed(5)
        c, y = an.scan(lambda c, x: body(w, c, x), h, xs, **how)
        return c, {"y": y.unsqueeze(-1).expand(-1, -1, 2)}

    return of


def results_of_loops(run: Fn, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """The results of `run`, and the elements of the results of each loop on the device, the reverse last."""
    elements: list[int] = []
    prepare = turns._BoundLoop._prepare

    def preparing(self: Any) -> None:
        elements.append(sum([int(np.prod(shape)) for shape, _ in self.loop.results]))
        prepare(self)

    with monkeypatch.context() as patch:
        patch.setattr(turns._BoundLoop, "_prepare", preparing)
        value = run()
        an.realize(an.tree_leaves(value))
    return value, elements


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_in_a_body_changes_no_value(mode: str) -> None:
    near(MODES[mode](of_blocks(True)), MODES[mode](of_blocks(False)), 1e-4)


@pytest.mark.parametrize("mode", ["grad", "vmap of grad", "grad of vmap", "nested"])
def test_a_checkpoint_in_a_body_keeps_no_rows_of_what_is_inside(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward loop gives the carries and what it is asked for, the cotangents' products aside."""
    w, h, xs = Tensor(array(8, 8, scale=0.3)), Tensor(array(3, 8)), Tensor(array(20, 3, 8))

    def gradient(saves: bool) -> Any:
        f = of_blocks(saves)
        value = lambda w, h: f(w, h, xs)[0].sin().sum()
        if mode == "grad":
            return an.grad(value, (0, 1))(w, h)
        if mode == "vmap of grad":
            return an.vmap(an.grad(value, (0, 1)), (None, 0))(w, an.stack([h, h * 2]))
        if mode == "grad of vmap":
            both = lambda w, h: an.vmap(value, (None, 0), randomness="same")(w, h).sum()
            return an.grad(both, (0, 1))(w, an.stack([h, h * 2]))

        def inside(c: Tensor, x: Tensor) -> Tensor:
            return an.scan(lambda c, v: (an.tanh(c @ w + v), None), c, an.stack([x, x * 2, x * 3]))[0]

        def loop(w: Tensor, h: Tensor) -> Tensor:
            turn = lambda c, x: (checkpoint(inside, c, x) if saves else inside(c, x), None)
            return an.scan(turn, h * w.sum(), xs)[0].sum()

        return an.grad(loop, (0, 1))(w, h)

    kept, everything = results_of_loops(lambda: gradient(False), monkeypatch)
    found, some = results_of_loops(lambda: gradient(True), monkeypatch)
    near(found, kept, 1e-4)
    assert max(some) < 0.6 * max(everything)
    examples = 2 if "vmap" in mode else 1
    carried, means = 21 * 24 * examples, 20 * 3 * examples
    if mode != "nested":
        assert min(some) <= carried + means


def test_checkpoints_in_turn_in_branches_and_without_a_gradient() -> None:
    w, h, xs = Tensor(array(2, 2, seed=1)), Tensor(array(3, 2, seed=2)), Tensor(array(4, 3, 2, seed=3))

    def loss(saves: bool) -> Fn:
        inner: Fn = checkpoint if saves else lambda f, *args: f(*args)
        step = lambda c, x: inner(lambda c: (c @ w).softmax(-1) + inner(lambda v: (v @ w).tanh(), x), c)
        turn = lambda c, x: an.cond(x.sum() > 0, lambda c: step(c, x), lambda c: step(-c, x), c)
        return lambda h, xs: an.scan(lambda c, x: (turn(c, x), None), h, xs)[0].sin().sum()

    near(an.grad(loss(True), (0, 1))(h, xs), an.grad(loss(False), (0, 1))(h, xs))
    near(an.fori_loop(0, 3, lambda i, c: checkpoint(lambda v: v * 2 + i, c), h), h * 8 + 4)
    near(
        an.while_loop(lambda c: c.sum() < 99, lambda c: checkpoint(lambda v: v * 2, c), Tensor([1.0])), Tensor([128.0])
    )
    with an.no_grad():
        near(loss(True)(h, xs), loss(False)(h, xs))


# -- memory, dtypes, sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "int64"])
def test_rows_of_narrow_dtypes_on_both_devices(dtype: str, device: str) -> None:
    x = (an.arange(15).reshape(5, 3) % 4).cast(dtype)

    def body(c: Tensor, row: Tensor) -> Any:
        c = c ^ row if dtype == "bool" else c + row
        return c, c

    found = an.scan(body, x[0], x)[1]
    wanted, c = [], x.numpy()[0]
    for row in x.numpy():
        c = c ^ row if dtype == "bool" else (c + row).astype(c.dtype)
        wanted.append(c)
    assert found.dtype is x.dtype
    np.testing.assert_array_equal(found.numpy(), np.stack(wanted))


def test_a_jit_function_gives_results_that_stay() -> None:
    replayed = an.jit(lambda x: an.scan(lambda c, v: (c + v, c * v), 0.0, x))
    results = [replayed(Tensor([1.0, 2.0, float(n)])) for n in range(5)]
    assert [(c.item(), rows.tolist()) for c, rows in results] == [(3.0 + n, [0.0, 2.0, 3.0 * n]) for n in range(5)]


def test_a_symbolic_size_in_a_body() -> None:
    x = an.ones(8)[: an.Variable("n", 1, 8).bind(3)]
    last, rows = an.scan(lambda c, v: (c + v, c), 0.0, x)
    assert (last.item(), rows.tolist()) == (3.0, [0.0, 1.0, 2.0])
    assert an.scan(lambda c, v: (c + (x * v).sum(), c), 0.0, an.ones(2))[0].item() == 6.0


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_weights_are_products_after_the_loop(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) * 0.3 for shape in ((6, 3, 4), (4, 5), (5, 5), (5,))]
    xs, w, u, b = [Tensor(a, requires_grad=True) for a in arrays]
    carried: list[list[tuple[Any, ...]]] = []
    prepare = turns._BoundLoop._prepare

    def preparing(self: Any) -> None:
        carried.append([shape for shape, _ in self.loop.results[: self.loop.carried]])
        prepare(self)

    def looped(x: Any) -> Any:
        last, rows = an.scan(
            lambda c, t: ((t @ w + c @ u + b).tanh(), (c * c).sum()), Tensor.zeros(3, 5), x, reverse=reverse
        )
        return last.sum() + rows.sum()

    def unrolled(x: Any) -> Any:
        c, total = Tensor.zeros(3, 5), Tensor(0.0)
        for n in reversed(range(6)) if reverse else range(6):
            total = total + (c * c).sum()
            c = (x[n] @ w + c @ u + b).tanh()
        return c.sum() + total

    found = []
    monkeypatch.setattr(turns._BoundLoop, "_prepare", preparing)
    for f in (looped, unrolled):
        for t in (xs, w, u, b):
            t.grad = None
        f(xs).backward()
        found.append([t.grad.numpy() for t in (xs, w, u, b) if t.grad is not None])
    assert len(found[0]) == 4
    for ours, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-5, atol=1e-6)
    assert len(carried) == 2  # forward and back
    assert all(shape == (3, 5) for shapes in carried for shape in shapes), carried


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize(("reverse", "unroll"), [(False, 1), (True, 2)])
def test_a_captured_step_with_checkpoints_is_the_eager_one_without(
    device: str, reverse: bool, unroll: int, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue("webgpu") if device == "webgpu" else device
    rng = np.random.default_rng(0)
    start, xs, weight = (rng.standard_normal(s).astype(np.float32) * 0.4 for s in ((4, 8), (6, 4, 8), (8, 8)))

    def block(c: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return ((c @ w).tanh() * x).sin() + c * 0.5

    def trained(checkpointed: bool, captured: bool) -> list[float]:
        w = Tensor(weight, device=device).requires_grad_(True)
        optimiser = an.optim.SGD([w], lr=0.1)

        def step(c: Tensor, x: Tensor) -> Tensor:
            def body(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                y = checkpoint(block, carry, x, w) if checkpointed else block(carry, x, w)
                return y, y.sum()

            last, sums = an.scan(body, c, x, reverse=reverse, unroll=unroll)
            loss = (last * last).mean() + sums.mean() * 0.1
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = an.jit(step) if captured else step
        c, x = Tensor(start, device=device), Tensor(xs, device=device)
        losses = [run(c, x).item() for _ in range(4)]
        return [*losses, *w.detach().numpy().ravel().tolist()]

    np.testing.assert_allclose(trained(True, True), trained(False, False), rtol=1e-5, atol=1e-6)


# -- a training loop without jit: loops are found by their templates ---------------------------------------------------


def _losses(kind: type, looped: bool, before: bool, accumulates: bool, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The losses, gradients after a step and an evaluation of a training loop of a recurrent model."""
    monkeypatch.setattr("anneal.nn._recurrent._LOOPED", 3 if looped else 1 << 30)
    an.manual_seed(0)
    model, head = kind(3, 4, batch_first=True), nn.Linear(4, 2)
    parameters = [*model.parameters(), *head.parameters()]
    optimiser = nn.AdamW(parameters, lr=1e-2)
    rng, out = np.random.default_rng(0), list[float]()
    for k in range(8):
        x = Tensor(rng.standard_normal((2, 5 if k % 3 == 2 else 4, 3)).astype(np.float32))
        if not accumulates or k % 2 == 0:
            optimiser.zero_grad()
        h, last = model(x)
        loss = F.cross_entropy(head(h[:, -1]), Tensor(rng.integers(0, 2, 2).astype(np.int32)))
        if before:
            out.append(loss.item())
        loss.backward()
        if k == 5:
            out += [p.grad.abs().sum().item() for p in parameters if p.grad is not None]
        optimiser.step()
        if k % 4 == 2:  # what the step needed, and what it did not
            out += [p.grad.abs().sum().item() for p in parameters if p.grad is not None]
            out.append((last[0] if isinstance(last, tuple) else last).sum().item())
        out.append(loss.item())
    with an.no_grad():
        return [*out, model(x)[0].sum().item()]


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_training_loop_of_loops(kind: type, before: bool, accumulates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = (_losses(kind, looped, before, accumulates, monkeypatch) for looped in (True, False))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
def test_what_is_read_beside_a_step_needs_no_further_turn(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.nn._recurrent._LOOPED", 3)
    runs, run = [0], turns._BoundLoop._run

    def counted(self: turns._BoundLoop) -> None:
        runs[0] += 1
        run(self)

    monkeypatch.setattr(turns._BoundLoop, "_run", counted)
    models = [nn.LSTM(3, 4), nn.LSTM(3, 4)]  # the gradients of one are there while the other is trained
    optimisers, x = [nn.SGD(m.parameters(), lr=0.1) for m in models], Tensor(np.ones((4, 2, 3), np.float32))
    for k in range(6):
        for model, optimiser in zip(models, optimisers, strict=True):
            optimiser.zero_grad()
            out, (h, c) = model(x)
            loss = out[-1].sum()
            runs[0] = 0
            if before:
                loss.item()
            loss.backward()
            optimiser.step()
            assert [p.grad.sum().item() for p in model.parameters() if p.grad is not None]
            assert h.sum().item() != c.sum().item()
            assert runs[0] == 2, f"step {k}: forward and back"


def test_a_step_of_one_model_is_found_again_beside_the_gradients_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.nn._recurrent._LOOPED", 3)
    models = [nn.LSTM(3, 4), nn.LSTM(3, 4)]
    optimisers, x = [nn.SGD(m.parameters(), lr=0.1) for m in models], Tensor(np.ones((4, 2, 3), np.float32))

    def step(n: int) -> None:
        optimisers[n].zero_grad()
        models[n](x)[0][-1].sum().backward()
        optimisers[n].step()

    step(0)
    for _ in range(4):
        step(1)
    rebuilt = [0]
    monkeypatch.setattr(
        "anneal.runtime.execution.around_host_calls", lambda *a: (rebuilt.__setitem__(0, 1), around_host_calls(*a))[1]
    )
    step(1)
    assert rebuilt == [0]


OVER = an.tensor([1.0, 2.0])  # which no derivative is taken by


def doubled(x: Tensor) -> Tensor:
    """A while_loop through which no gradient has to flow, whose turns carry a tensor from outside."""
    return an.while_loop(lambda v: v[0].sum() < 9, lambda v: (v[0] * 2, v[1]), (x.detach(), OVER))[0]


AROUND: dict[str, Callable[[Tensor], Tensor]] = {
    "cond": lambda x: an.cond(x.sum() > 0, lambda x: x * doubled(x), lambda x: x, x),
    "fori_loop": lambda x: an.fori_loop(0, 3, lambda _, v: v * doubled(x), x),
    "scan": lambda x: an.scan(lambda c, y: (c * doubled(x) * y, y), x, an.ones(3, 2))[0],
    "slices": lambda x: an.scan(lambda c, y: (c * doubled(y), y), x, an.ones(3, 2))[0],
    "both": lambda x: an.cond(
        x.sum() > 0, lambda x: an.fori_loop(0, 2, lambda _, v: v * doubled(x), x), lambda x: x, x
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_while_loop_that_no_gradient_flows_through_may_stand_in_a_body(name: str) -> None:
    f, x = AROUND[name], an.tensor([0.3, 0.9])
    factor = f(x) / x  # f is linear, but for what is detached
    np.testing.assert_allclose(an.grad(lambda x: f(x).sum())(x).numpy(), factor.numpy(), rtol=1e-6)
    leaf = an.tensor([0.3, 0.9], requires_grad=True)
    f(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), factor.numpy(), rtol=1e-6)
    second = an.grad(lambda x: an.grad(lambda x: (f(x) ** 2).sum())(x).sum())(x)
    np.testing.assert_allclose(second.numpy(), 2 * factor.numpy() ** 2, rtol=1e-5)


def test_a_while_loop_that_a_gradient_has_to_flow_through_is_refused_in_a_body() -> None:
    def through(x: Tensor) -> Tensor:
        return an.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x)

    for f in (
        lambda x: an.cond(x.sum() > 0, through, lambda x: x, x),
        lambda x: an.fori_loop(0, 3, lambda _, v: through(v), x),
        lambda x: an.scan(lambda c, y: (c * through(y), y), an.ones(2), x.expand(3, 2))[0],
    ):
        with pytest.raises(GradientError, match="while_loop has no reverse derivative"):
            an.grad(lambda x: f(x).sum())(an.tensor([0.3, 0.9]))  # noqa: B023


def test_what_a_body_was_given_may_live_on_in_a_cycle_while_a_jit_function_runs() -> None:
    def turn(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept: list[Any] = [c.mul_(2)]
        kept.append(kept)
        return c * x, c.sum()

    for f in (lambda c, xs: an.scan(turn, c, xs)[0], lambda c, xs: an.vmap(turn)(c * 1, xs)[1]):
        jitted = an.jit(f)
        gc.disable()
        try:
            for _ in range(3):
                near(jitted(an.ones(3), xs := an.arange(3.0)), f(an.ones(3), xs))
        finally:
            gc.enable()
