"""Symbolic sizes: every program gives what it gives with plain numbers, and one compilation serves all values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import nn, settings
from anneal.errors import DTypeError, GradientError, JitError, ShapeError
from anneal.runtime import cache_statistics
from anneal.schedule import clear_cache
from anneal.tensor import Tensor, Variable, functional as F, jit, manual_seed, no_grad, realize
from anneal.transforms import jvp
from anneal.uop import UOp

A = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
PROGRAMS: list[Callable[[Tensor, Any, Any], Tensor]] = []


def program(f: Callable[[Tensor, Any, Any], Tensor]) -> Callable[[Tensor, Any, Any], Tensor]:
    """A program over x (4, 8), n in 1..7 and m in 0..5; it runs with numbers too."""
    PROGRAMS.append(f)
    return f


@program
def slices(x: Tensor, n: Any, m: Any) -> Tensor:
    return Tensor.cat([x[:, :n] * 2, x[:, n:] + 1, x[:, m : m + 2], x[:, n].unsqueeze(1)], 1)


@program
def sums(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].sum(1) + x[:, :m].sum(1) * x[:, :n].amax(1)


@program
def means(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].mean() + x[:, :n].var(0, 0).sum() + (x[:, : m + 2].var(1)).sum()


@program
def merged(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].reshape(-1) * 1.5


@program
def merged_transposed(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].T.reshape(-1) + 0.5


@program
def split_again(x: Tensor, n: Any, m: Any) -> Tensor:
    return (x[:, :n].T.reshape(-1).reshape(4, n) * 1.5).sum(1)


@program
def split_after_memory(x: Tensor, n: Any, m: Any) -> Tensor:
    return (x[:, :n].reshape(4 * n).realize().reshape(2, 2, n) * 1.5).sum(1)


@program
def flipped(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].flip(1) * 2


@program
def padded(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].pad(((0, 1), (m, n)))


@program
def expanded(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :1].expand(4, n) + x[:, :n]


@program
def products(x: Tensor, n: Any, m: Any) -> Tensor:
    return (x[:, :n] @ x[:, :n].T).sum() + x[:, :n].T @ x[:, : m + 1]


@program
def rows(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].softmax(-1) + x[:, :n].softmax(0)


@program
def norms(x: Tensor, n: Any, m: Any) -> Tensor:
    return F.layer_norm(x.T[:n], 4) + F.rms_norm(x.T[:n], 4)


@program
def counters(x: Tensor, n: Any, m: Any) -> Tensor:
    return Tensor.arange(n + m) * 2 + n


@program
def triangles(x: Tensor, n: Any, m: Any) -> Tensor:
    return Tensor.ones(n, n).triu(1) + Tensor.ones(n, n).tril()


@program
def gathers(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].gather(1, Tensor.arange(n).reshape(1, n).expand(4, n).flip(1))


@program
def two_variables(x: Tensor, n: Any, m: Any) -> Tensor:
    return (x[:, :n].reshape(4, n, 1) * x[:, :m].reshape(4, 1, m)).sum(0)


@program
def masks(x: Tensor, n: Any, m: Any) -> Tensor:
    return (Tensor.arange(8) < n).where(x, m)


@program
def chains(x: Tensor, n: Any, m: Any) -> Tensor:
    return (x[:, :n].relu().realize() + 1).sum()


@program
def gradients(x: Tensor, n: Any, m: Any) -> Tensor:
    w = Tensor(x.numpy(), requires_grad=True)
    ((w[:, :n].softmax(-1) * w[:, :n]).mean() + w[:, : m + 1].flip(1).pad(((0, 0), (n, 0))).sum()).backward()
    assert w.grad is not None
    return w.grad


@program
def updates(x: Tensor, n: Any, m: Any) -> Tensor:
    w = (x * 1).realize()
    w[:, m : m + 1] = x[:, :1] * 3
    w[:, n] = 7.0
    w[1, m] = w[1, m] + 1
    return w


@program
def running_sums(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[:, :n].cumsum(1) + x[:, :n].T.cumsum(0).T + x[:, :n].roll(1, 1)


@program
def orders(x: Tensor, n: Any, m: Any) -> Tensor:
    return x[0, :n].argsort() + x[:, :n].argmax(0) + x[:, :n].argmax(1).sum()


@program
def batches_of_images(x: Tensor, n: Any, m: Any) -> Tensor:
    images = x.reshape(8, 1, 2, 2).repeat(1, 1, 2, 2)[:n]
    return F.max_pool2d(F.conv2d(images, x.reshape(2, 1, 4, 4)[:, :, :3, :3], padding=1), 2)


@program
def attention(x: Tensor, n: Any, m: Any) -> Tensor:
    q = x.T[:n].reshape(1, n, 4)
    return F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)


@program
def tables(x: Tensor, n: Any, m: Any) -> Tensor:
    places = Tensor(np.array([3, 0, 1, 1, 2, 3, 0, 2], np.int32))[:n]
    sums = Tensor.zeros(4).scatter_add(0, places, x[0, :n])
    return F.embedding(places, x) + sums.sum() + places.one_hot(4).sum(0).sum()


@program
def places_that_come_again(x: Tensor, n: Any, m: Any) -> Tensor:
    places = Tensor(np.array([3, 0, 1, 1, 2, 3, 0, 2], np.int32))[:n]
    most, least = (Tensor.zeros(4).scatter_reduce(0, places, x[1, :n] * s, "amax") for s in (1, -1))
    last = Tensor.zeros(4).index_put((places,), x[0, :n])
    return Tensor.stack([most, least, last])


@program
def random_numbers(x: Tensor, n: Any, m: Any) -> Tensor:
    manual_seed(5)
    return Tensor.rand(n, 4) + F.dropout(x.T[:n], 0.5)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_values_are_those_with_numbers(device: str, f: Callable[[Tensor, Any, Any], Tensor]) -> None:
    n, m = Variable("n", 1, 7), Variable("m", 0, 5)
    x = Tensor(A)
    for i, j in ((3, 2), (1, 0), (7, 5)):
        got = f(x, n.bind(i), m.bind(j))
        np.testing.assert_allclose(got.numpy(), f(x, i, j).numpy(), rtol=2e-6, atol=2e-6)


def test_one_plan_serves_every_value(device: str) -> None:
    n = Variable("n", 1, 7)
    x = Tensor(A).realize()
    made = 0
    for i in range(1, 8):
        (x[:, : n.bind(i)].softmax(-1) @ x[:4, : n.bind(i)].T).realize()
        if i == 1:
            made = cache_statistics()[1]
    assert cache_statistics()[1] == made


def test_shapes_are_read(device: str) -> None:
    n = Variable("n", 1, 7)
    y = Tensor(A)[:, : n.bind(3)]
    assert str((y * 2).shape) == "(4, n=3)"
    assert str(y.reshape(-1).shape) == "(n=3*4,)"
    assert y.realize().shape == (4, n.bind(3))
    assert y.numpy().shape == (4, 3)
    assert Tensor.cat([y, y], 1).shape == (4, n.bind(3) * 2)


def test_errors_name_the_variable_and_the_sizes() -> None:
    n, m = Variable("n", 1, 7), Variable("m", 1, 7)
    x = Tensor(A)
    with pytest.raises(ShapeError, match="n runs from 1 to 7: 8 is outside"):
        n.bind(8)
    with pytest.raises(ShapeError, match="Variable n has no value here"):
        x[:, :n].numpy()
    with pytest.raises(ShapeError, match="n=3 in one and m=3 in another"):
        x[:, : n.bind(3)] + x[:, : m.bind(3)]
    with pytest.raises(ShapeError, match="two values in one program, 3 and 4"):
        (x[:, : n.bind(3)].sum() + x[:, : n.bind(4)].sum()).numpy()
    with pytest.raises(ShapeError, match=r"n=3\*4 elements and"):
        x[:, : n.bind(3)].reshape(5, n.bind(3))
    with pytest.raises(
        ShapeError, match=r"0 to n=3 \+ 4 is not inside axis 1 of shape \(4, 8\): n=3 \+ 4 may be more than 8"
    ):
        x[:, : n.bind(3) + 4]
    with pytest.raises(ShapeError, match="0 <= min <= max"):
        Variable("n", 3, 2)


def test_what_needs_a_number_says_so() -> None:
    n = Variable("n", 1, 7)
    y = Tensor(A)[:, : n.bind(3)].T
    with pytest.raises(TypeError, match="the first axis has n=3 elements"):
        len(y)
    with pytest.raises(TypeError, match="the first axis has n=3 elements"):
        list(y)
    with pytest.raises(ShapeError, match=r"shape \(n=3, 4\) has n=3\*4 values, not one"):
        y.item()
    assert str(y[1:].shape if n.arg[1] > 1 else y[:-1].shape) == "(n=3 - 1, 4)"
    assert repr(y[:1]) == repr(Tensor(A)[:, :1].T)


def test_a_program_with_variables_is_found_on_disk(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = Variable("n", 1, 7)
    x = Tensor(A).realize()

    def run(k: Any) -> np.ndarray[Any, Any]:
        return (x[:, :k].softmax(-1).flip(1).cumsum(1) * k).numpy()

    monkeypatch.setattr("anneal.schedule.plan._WORTH", 0.0)
    with settings.override(cache=True, cache_dir=tmp_path):
        expected = {i: run(i) for i in (3, 5)}
        clear_cache()
        np.testing.assert_allclose(run(n.bind(3)), expected[3], rtol=2e-6)
        clear_cache()
        monkeypatch.setattr("anneal.schedule.plan.run_passes", lambda *_: pytest.fail("planned again"))
        for i in (3, 5):
            np.testing.assert_allclose(run(n.bind(i)), expected[i], rtol=2e-6)
    clear_cache()


# -- jit ---------------------------------------------------------------------------------------------------------------


def test_a_cache_grows_in_place(device: str) -> None:
    heads, length, width = 2, 16, 4
    rng = np.random.default_rng(1)
    keys, values = (Tensor.zeros(heads, length, width).contiguous().realize() for _ in range(2))
    pos = Variable("pos", 0, length - 1)

    @jit
    def step(q: Tensor, k: Tensor, v: Tensor, p: UOp) -> Tensor:
        keys[:, p : p + 1] = k
        values[:, p] = v[:, 0]
        weights = (q @ keys[:, : p + 1].mT).softmax(-1)
        return weights @ values[:, : p + 1]

    ks, vs = np.zeros((2, heads, length, width), np.float32)
    for i in (0, 1, 2, 3, 15, 2):
        q, k, v = rng.normal(size=(3, heads, 1, width)).astype(np.float32)
        ks[:, i : i + 1], vs[:, i : i + 1] = k, v
        scores = q @ ks[:, : i + 1].transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ vs[:, : i + 1]
        got = step(Tensor(q), Tensor(k), Tensor(v), pos.bind(i))
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(keys.numpy(), ks)
        np.testing.assert_array_equal(values.numpy(), vs)
    (captured,) = step.captures.values()
    assert captured is not None
    kernels = [c for run in captured.launches for c in run.plan.calls]
    assert len(kernels) == {"cpu": 4, "webgpu": 3}[device], [c.kernel.name for c in kernels]
    assert not any(f"_{length}_" in c.kernel.name for c in kernels), "no kernel walks over a whole cache"


def test_the_old_values_stay_with_whoever_needs_them(device: str) -> None:
    memory = Tensor.zeros(4, 2).contiguous().realize()
    at = Variable("at", 0, 3)

    @jit
    def put(x: Tensor, i: UOp) -> Tensor:
        before = memory * 1
        memory[i] = x
        return before.sum() + memory.sum()

    expected, plain = [], np.zeros((4, 2), np.float32)
    for i in (0, 1, 3, 3, 2):
        kept, was = memory + 0, plain.copy()
        total = put(Tensor([float(i), 1.0]), at.bind(i)).item()
        plain[i] = (i, 1)
        expected.append(was.sum() + plain.sum())
        assert total == pytest.approx(expected[-1])
        np.testing.assert_array_equal(kept.numpy(), was)
        np.testing.assert_array_equal(memory.numpy(), plain)


def test_variables_of_a_jit_function_are_told_apart(device: str) -> None:
    n, m = Variable("n", 1, 7), Variable("m", 1, 7)
    x = Tensor(A).realize()

    @jit
    def f(a: UOp, b: UOp) -> tuple[Tensor, Tensor]:
        return x[:, :a].sum() - 2 * x[:, :b].sum(), x[:2, :a] * 2

    def check(a: UOp, b: UOp, i: int, j: int) -> None:
        total, part = f(a, b)
        assert total.item() == pytest.approx(A[:, :i].sum() - 2 * A[:, :j].sum(), abs=1e-4)
        np.testing.assert_array_equal(part.numpy(), A[:2, :i] * 2)

    for i, j in ((3, 4), (4, 3), (5, 5), (1, 7), (7, 1), (2, 2)):
        check(n.bind(i), m.bind(j), i, j)
    for i, j in ((3, 4), (4, 3), (5, 5), (1, 7), (7, 1)):
        check(m.bind(i), n.bind(j), i, j)
    assert len(f.captures) == 2


def test_gradients_go_on_through_what_was_realized(device: str) -> None:
    w = Tensor(A, requires_grad=True)
    n = Variable("n", 1, 8).bind(3)
    part = (w[:, :n] ** 2).realize()
    (part * 2).sum().backward()
    assert w.grad is not None
    want = np.zeros_like(A)
    want[:, :3] = 4 * A[:, :3]
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-6)
    _, along = jvp(lambda x: (x[:, :n] ** 2).realize() * 2, (Tensor(A),), (Tensor(A),))
    np.testing.assert_allclose(along.numpy(), 4 * A[:, :3] ** 2, rtol=1e-6)


def test_arguments_of_symbolic_shape(device: str) -> None:
    n = Variable("n", 1, 8)

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.sum() / x.shape[0]

    kept = []
    for i in (3, 4, 8, 1, 5):
        x = np.arange(i, dtype=np.float32)
        doubled, mean = f(Tensor(np.arange(8, dtype=np.float32))[: n.bind(i)])
        kept.append((doubled, x * 2))
        assert mean.item() == pytest.approx(x.mean())
    for got, wanted in kept:
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_a_step_of_training_takes_batches_of_any_size(device: str) -> None:
    rows = Variable("rows", 1, 16)
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(16, 8)).astype(np.float32)), Tensor(rng.integers(0, 4, 16).astype(np.int32))

    def losses(symbolic: bool) -> tuple[list[float], int]:
        manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
        optimiser = nn.SGD(model.parameters(), lr=0.1)

        @jit
        def step(n: Any) -> Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x[:n]), y[:n])
            loss.backward()
            optimiser.step()
            return loss

        sizes = (3, 16, 7, 1)
        return [step(rows.bind(n) if symbolic else n).item() for n in sizes], len(step.captures)

    got, captures = losses(True)
    np.testing.assert_allclose(got, losses(False)[0], rtol=1e-5)
    assert captures == 1


def test_what_an_argument_is_bound_to_is_checked_at_every_call(device: str) -> None:
    n = Variable("n", 2, 5)
    x = Tensor(A).realize()
    double = jit(lambda k: (x[:, :k] * 2).sum())
    for i in (2, 5, 2, 5, 3):
        assert double(n.bind(i)).item() == pytest.approx(2 * A[:, :i].sum(), abs=1e-4)
    for i in (1, 6):
        with pytest.raises(ShapeError, match=f"n runs from 2 to 5: {i} is outside"):
            double(n.bind(i))
    assert double(n.bind(4)).item() == pytest.approx(2 * A[:, :4].sum(), abs=1e-4)


def test_large_launches_are_as_large_as_the_values_ask_for(webgpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.backend.webgpu.batch._MANY_WORKGROUPS", 8)
    n = Variable("n", 0, 70_000)
    data = np.random.default_rng(0).normal(size=(70_000, 5)).astype(np.float32)
    x = Tensor(data, device=webgpu).realize()
    part = jit(lambda k: (x[:k].relu()[:, 1:3],))
    for i in (3, 70_000, 64, 0, 65, 69_999, 5):
        np.testing.assert_array_equal(part(n.bind(i))[0].numpy(), np.maximum(data[:i], 0)[:, 1:3])


def test_results_that_are_kept_while_launches_change_their_size(webgpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.backend.webgpu.batch._MANY_WORKGROUPS", 8)
    n = Variable("n", 1, 7000)
    data = np.random.default_rng(0).integers(-9, 9, (7000, 5)).astype(np.float32)
    x = Tensor(data, device=webgpu).realize()

    @jit
    def some(k: UOp) -> Tensor:
        return x[:k].relu().sum(1).contiguous().max() + 0.0

    for often in (1, 3, 4):  # the same value for some calls, then another: now and then what is prepared is dropped
        sizes = [m for m in (3, 7000, 64, 900, 65, 6999, 5) for _ in range(often)]
        kept = [some(n.bind(m)) for m in sizes]
        assert [t.item() for t in kept] == [np.maximum(data[:m], 0).sum(1).max() for m in sizes]


def test_a_variable_beside_the_arguments(device: str) -> None:
    n = Variable("n", 1, 7)
    x = Tensor(A).realize()
    bound = n.bind(2)

    @jit
    def alone(y: Tensor) -> Tensor:
        return (x[:, :bound] + y).sum()

    for i in range(5):
        bound = n.bind(i + 1)
        assert alone(Tensor([1.0])).item() == pytest.approx((A[:, : i + 1] + 1).sum(), abs=1e-4)
    fixed = n.bind(3)

    @jit
    def both(a: UOp) -> Tensor:
        return x[:, :a].sum() + x[:, :fixed].sum()

    both(n.bind(3))
    with pytest.raises((JitError, ShapeError), match="argument of a jit function and is also bound"):
        both(n.bind(3))

    @jit
    def apart(a: UOp) -> Tensor:
        return x[:, :a].sum().realize() + x[:, :fixed].sum().realize()

    assert apart(n.bind(2)).item() == pytest.approx(A[:, :2].sum() + A[:, :3].sum(), abs=1e-4)
    with pytest.raises(JitError, match="is an argument of a jit function and is also bound to 3"):
        apart(n.bind(2))


def test_a_model_reads_prompts_of_any_length(device: str) -> None:
    block = 4
    model = nn.GPT(vocab_size=31, block_size=4 * block, n_layer=1, n_head=2, n_embd=8)
    blocks = Variable("blocks", 1, 4)
    tokens = np.random.default_rng(0).integers(0, 31, (1, 4 * block)).astype(np.int32)
    whole = Tensor(tokens).realize()

    @jit
    def logits(index: Tensor, k: UOp) -> Tensor:
        return model(index[:, : k * block])

    with no_grad():
        for k in (1, 4, 2, 3):
            got = logits(whole, blocks.bind(k)).numpy()
            np.testing.assert_allclose(got, model(Tensor(tokens[:, : k * block])).numpy(), rtol=1e-5, atol=1e-6)
    assert len(logits.captures) == 1


# -- a place that is looked up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 2, 3, -5, 9])
def test_a_slice_is_put_where_a_tensor_says(device: str, start: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 6, 2)
    value = -np.ones((2, 3, 1), np.float32)
    n = Variable("n", 1, 3)
    for whole in (Tensor(x).realize(), Tensor(x) * 1):
        got = whole.update_slice(Tensor(value), (0, Tensor([start]), 1))
        expected = x.copy()
        inside = min(max(start, 0), 3)
        expected[:, inside : inside + 3, 1:] = value
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(whole.numpy(), x)
        got = whole.update_slice(Tensor(value)[:, : n.bind(2)], (0, Tensor(start) * 1, 1))
        expected = x.copy()
        inside = min(max(start, 0), 4)
        expected[:, inside : inside + 2, 1:] = value[:, :2]
        np.testing.assert_array_equal(got.numpy(), expected)


def test_a_step_that_looks_its_place_up_writes_in_place(device: str) -> None:
    memory, at = Tensor.zeros(2, 16).contiguous().realize(), Tensor([3]).realize()

    @jit
    def put(x: Tensor) -> Tensor:
        memory.assign(memory.update_slice(x, (0, at)))
        at.assign(at + 2)
        realize([memory, at])
        return at

    expected = np.zeros((2, 16), np.float32)
    for i in range(6):
        put(Tensor([[i + 1.0], [-i]]))
        expected[:, 3 + 2 * i] = (i + 1, -i)
        np.testing.assert_array_equal(memory.numpy(), expected)
    (captured,) = put.captures.values()
    assert captured is not None
    kernels = [c.kernel.name for run in captured.launches for c in run.plan.calls]
    assert len(kernels) == 1
    assert not any("16" in name.split("_") for name in kernels), "no kernel walks over the memory"


def test_an_update_of_a_slice_that_does_not_fit() -> None:
    x = Tensor.zeros(2, 4)
    with pytest.raises(ShapeError, match=r"axis 1 of a value of shape \(2, 5\) does not fit into \(2, 4\)"):
        x.update_slice(Tensor.zeros(2, 5), (0, 0))
    with pytest.raises(ShapeError, match="2 elements from 3 on do not fit into axis 1"):
        x.update_slice(Tensor.zeros(2, 2), (0, 3))
    with pytest.raises(ShapeError, match="as many axes, and as many starts"):
        x.update_slice(Tensor.zeros(2), (0, 0))
    with pytest.raises(DTypeError, match="single integer, not float32"):
        x.update_slice(Tensor.zeros(2, 2), (0, Tensor([1.0])))
    w = Tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.raises(GradientError, match="use where"):
        w.reshape(1, 1, 2).update_slice(Tensor([[[0.0]]]), (Tensor(0), Tensor(0), Tensor([1])))
    for start in (1, Tensor([1]), Tensor(5)):
        w.grad = None
        (w.update_slice(Tensor([[5.0]]), (0, start)) * 3).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [[3.0, 0.0]]


def test_a_variable_with_only_one_value() -> None:
    n = Variable("n", 2, 2).bind(2)
    assert Tensor.arange(n, 7).numpy().tolist() == [2, 3, 4, 5, 6]
    assert (Tensor([1, 2, 3])[:n] * n).numpy().tolist() == [2, 4]
    assert jit(lambda x, size: (x[:size] + size).sum())(Tensor([1.0, 2.0, 9.0]), n).item() == 7.0


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.BatchNorm1d(4),
        lambda: nn.BatchNorm1d(4, momentum=None),
        lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.LayerNorm(5),
    ],
    ids=["batch", "average", "instance", "group", "layer"],
)
def test_layers_that_norm_in_training_take_batches_of_any_size(layer: Callable[[], Any], device: str) -> None:
    n, rng = Variable("n", 1, 6), np.random.default_rng(0)
    symbolic, fixed = layer().to(device), layer().to(device)
    for k in (2, 6, 3):
        x = rng.standard_normal((6, 4, 5)).astype(np.float32)
        given = [Tensor(x, device=device)[: n.bind(k)], Tensor(x[:k], device=device)]
        for t in given:
            t.requires_grad_()
        found, wanted = (f(t) for f, t in zip((symbolic, fixed), given, strict=True))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
        for (name, a), b in zip(symbolic.state_dict().items(), fixed.state_dict().values(), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)
