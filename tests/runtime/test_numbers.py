"""Numbers and positions that Python gives a loop anew in each round: the values are those of a loop that remembers
nothing, whatever became memory, and after the third round no plan is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings as limits, strategies as st

import anneal as an
from anneal import settings
from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.nn import functional as F
from anneal.runtime import cache_statistics, late
from anneal.tensor import Tensor, no_grad
from anneal.uop import Op, toposort

ROUNDS = 6
Array = np.ndarray[Any, Any]

# -- random programs --------------------------------------------------------------------------------------------------

_NUMBERS = st.one_of(
    st.sampled_from(
        [
            0,
            1,
            -1,
            2,
            0.0,
            -0.0,
            1.0,
            0.5,
            -2.0,
            math.inf,
            -math.inf,
            math.nan,
            True,
            False,
            3,
            1e-30,
            1e30,
            10**12,
            np.float64(0.75),
            np.int64(2),
            np.float32(1.5),
        ]
    ),
    st.floats(-4, 4),
    st.integers(-5, 9),
)
# a number for each round: the same one, or others
_VARIES = st.one_of(
    st.lists(_NUMBERS, min_size=ROUNDS, max_size=ROUNDS),
    st.lists(st.floats(0.125, 4), min_size=ROUNDS, max_size=ROUNDS),
    _NUMBERS.map(lambda x: [x] * ROUNDS),
)
_PLACES = st.lists(st.integers(-6, 5), min_size=ROUNDS, max_size=ROUNDS)
_KINDS = ["float32", "float32", "float32", "float64", "float16", "int32", "int64", "bool"]

_WITH_NUMBER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, c: x + c,
    "radd": lambda x, c: c + x,
    "sub": lambda x, c: x - c,
    "rsub": lambda x, c: c - x,
    "mul": lambda x, c: x * c,
    "rmul": lambda x, c: c * x,
    "div": lambda x, c: x / c,
    "rdiv": lambda x, c: c / x,
    "less": lambda x, c: (x < c).where(x, -x),
    "at most": lambda x, c: (x <= c).float(),
    "equal": lambda x, c: (x == c).float() + x,
    "unlike": lambda x, c: (x != c).float() * x,
    "where": lambda x, c: (x > 0).where(x, c),
    "where number": lambda x, c: (x > 0).where(c, x),
    "masked_fill": lambda x, c: x.masked_fill(x > 1, c),
    "alpha": lambda x, c: x.add(x, alpha=c),
    "minus alpha": lambda x, c: (x + 1).sub(x, alpha=c),
    "lerp": lambda x, c: x.lerp(x * 2, c),
    "addcmul": lambda x, c: x.addcmul(x, x, value=c),
    "in place": lambda x, c: (x * 2).mul_(c).add_(1),
    "in place, scaled": lambda x, c: (x * 2).add_(x, alpha=c),
    "power": lambda x, c: x.abs() ** c,
    "clamp": lambda x, c: x.clamp(min=c),
    "maximum": lambda x, c: x.maximum(c),
    "dropout": lambda x, c: Tensor.full(x.shape, 1.0) * c * x,
    "remainder": lambda x, c: x.remainder(c),
    "remainder of a number": lambda x, c: c % (x.abs() + 1),
    "quotient": lambda x, c: x // c,
    "fmod": lambda x, c: x.fmod(c),
    "power of a number": lambda x, c: c**x,
    "clamp to both": lambda x, c: x.clamp(-1, c),
    "clamp in place": lambda x, c: (x * 2).clamp_(max=c),
    "minimum": lambda x, c: x.minimum(c),
    "leaky_relu": lambda x, c: F.leaky_relu(x, c),
    "elu": lambda x, c: F.elu(x, c),
    "celu": lambda x, c: F.celu(x, c),
    "softplus": lambda x, c: F.softplus(x, c),
    "softplus's threshold": lambda x, c: F.softplus(x, 1, c),
    "threshold": lambda x, c: F.threshold(x, c, 1.0),
    "threshold's value": lambda x, c: F.threshold(x, 0.0, c),
    "hardtanh": lambda x, c: F.hardtanh(x, -1.0, c),
    "softshrink": lambda x, c: F.softshrink(x, c),
    "hardshrink": lambda x, c: F.hardshrink(x, c),
    "pad": lambda x, c: F.pad(x, (1, 1), value=c)[:, 1:-1],
    "nan_to_num": lambda x, c: x.nan_to_num(c),
    "layer_norm": lambda x, c: F.layer_norm(x, (6,), eps=c),
    "huber": lambda x, c: x + F.huber_loss(x, x * 0, delta=c),
    "smooth_l1": lambda x, c: x + F.smooth_l1_loss(x, x * 0, beta=c),
    "norm": lambda x, c: x + x.norm(c, -1, True),
    "addmm": lambda x, c: an.addmm(x, x, x, alpha=c, beta=0.5),
    "sum": lambda x, c: (x * c).sum(0, keepdim=True) + x,
    "product": lambda x, c: (x * c) @ x.transpose(-1, -2) @ x,
    "exponential": lambda x, c: 1 / ((-x).exp() + c),
}
_MADE: dict[str, Callable[[Any, Any], Any]] = {
    "addcdiv": lambda x, c: (x * 1).addcdiv_(x, x.abs() + 1, value=c),
    "full": lambda x, c: x + Tensor.full((6,), c),
    "full like": lambda x, c: x * x.full_like(c),
    "number": lambda x, c: x - Tensor(c),
    "filled": lambda x, c: (x * 1).fill_(c) + x,
}
_WITH_PLACE: dict[str, Callable[[Any, int], Any]] = {
    "row": lambda x, i: x + x[i],
    "roll": lambda x, i: x.roll(i, 1),
    "roll of all": lambda x, i: x.roll((i, 2 * i), (0, 1)) + x.roll(i),
    "triangle": lambda x, i: x.triu(i) - x.tril(i - 1),
    "numbers from": lambda x, i: x * an.arange(i, i + 6),
    "numbers between": lambda x, i: x * an.linspace(i, 2.5, 6),
    "column": lambda x, i: x + x[:, i : i + 1] if -6 < i < -1 else x + x[:, i].unsqueeze(1),
    "element": lambda x, i: x * x[i, -1],
    "element of both": lambda x, i: x * x[i, i],
    "window": lambda x, i: x + x[abs(i) // 2 : abs(i) // 2 + 2].sum(0),
    "rest": lambda x, i: x + x[i:].sum(0),
    "select": lambda x, i: x - x.select(1, i),
    "changed part": lambda x, i: _with_changed_part(x * 1, i),
    "changed view": lambda x, i: _with_changed_view(x * 1, i),
    "written": lambda x, i: _written(x * 1, i),
}


def _with_changed_part(x: Tensor, i: int) -> Tensor:
    x[i] += 1
    return x


def _with_changed_view(x: Tensor, i: int) -> Tensor:
    part = x[i]
    part.mul_(2)
    return x + part


def _written(x: Tensor, i: int) -> Tensor:
    x[i] = x[0] * 2
    return x


_STATEMENTS = st.one_of(
    st.tuples(st.sampled_from(sorted(_WITH_NUMBER)), _VARIES, st.integers(0, 9)),
    st.tuples(st.sampled_from(sorted(_WITH_PLACE)), _PLACES, st.integers(0, 9)),
)


def _run(program: list[Any], kind: str, reads: bool, wants: bool) -> list[Array | str]:
    """The values that a program gives in each of the rounds, or its errors."""
    out: list[Array | str] = []
    state = Tensor(np.linspace(-2, 2, 36).reshape(6, 6).astype(kind), requires_grad=wants)
    for turn in range(ROUNDS):
        data = (np.arange(36).reshape(6, 6) % (7 + turn) - 2).astype(kind)
        made = [state, Tensor(data)]
        for name, turns, which in program:
            x = made[which % len(made)]
            try:
                made.append((_WITH_NUMBER | _MADE | _WITH_PLACE)[name](x, turns[turn]))
                if reads:
                    out.append(made[-1].numpy())
            except Exception as e:
                out.append(f"{type(e).__name__}: {e}")
        total = made[-1].float() + made[len(made) // 2].float()
        if wants and total.requires_grad:
            total.backward(Tensor(np.linspace(-1, 1, 36, dtype="float32").reshape(6, 6)))
        with no_grad():
            if state.grad is not None:
                state -= state.grad.nan_to_num(0, 0, 0).clamp(-1, 1) * (0.1 / (turn + 1))
                state.grad = None
        out += [total.numpy(), state.numpy()]
    return out


@seed(0)
@limits(max_examples=60, deadline=None, database=None)
@given(st.lists(_STATEMENTS, min_size=1, max_size=6), st.sampled_from(_KINDS), st.booleans(), st.booleans())
def test_random_programs_have_the_values_of_a_loop_that_remembers_nothing(
    program: list[Any], kind: str, reads: bool, wants: bool
) -> None:
    found = []
    late.forget()
    for replay in (False, True):
        with settings.override(replay=replay), np.errstate(all="ignore"):
            found.append(_run(program, kind, reads, wants and kind.startswith("float")))
    for a, b in zip(*found, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            assert a == b
        else:
            assert a.dtype == b.dtype
            # a sum is multiplied by a constant, and has its terms multiplied by what is none
            sums = {"sum", "product"} & {name for name, _, _ in program}
            if sums:
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            else:
                assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize("name", _MADE)
def test_a_tensor_of_a_number_has_the_values_of_a_loop_that_remembers_nothing(name: str) -> None:
    rows = [0.5, 2.5, -3.25, 1e-30, 4, 0.0], [3, 2, -1, 7, 0, -0.0], [math.inf, 1, 10**12, True, math.nan, 1e30]
    for kind in ("float32", "float16", "int32", "int64", "bool"):
        for turns in rows:
            test_random_programs_have_the_values_of_a_loop_that_remembers_nothing.hypothesis.inner_test(
                [(name, turns, 1), ("radd", turns[::-1], 2)], kind, turns is rows[0], kind == "float32"
            )


# -- counted ----------------------------------------------------------------------------------------------------------


def _plans(turn: Callable[[int], Any], turns: int = 12) -> list[int]:
    """The plans that each turn makes."""
    out = []
    for n in range(turns):
        before = cache_statistics()[1]
        turn(n)
        out.append(cache_statistics()[1] - before)
    return out


DATA = np.linspace(-2, 2, 60, dtype=np.float32).reshape(12, 5)


def several(n: int) -> None:
    """Many numbers that vary together, one after another."""
    x = Tensor(DATA)
    y = (x * (n + 0.25) - n) / (n + 1)
    assert np.array_equal(
        (3.5 - y + (x > n / 9)).numpy(), 3.5 - (DATA * np.float32(n + 0.25) - n) / (n + 1) + (n / 9 < DATA)
    )


def a_rate(n: int) -> None:
    w = Tensor(DATA, requires_grad=True)
    (w * w).sum().backward()
    with no_grad():
        w -= w.grad * (0.1 / (n + 1))
        w.add_(w.grad, alpha=-0.1 / (n + 1))
    w.numpy()


def a_row(n: int) -> None:
    x = Tensor(DATA).realize()
    assert np.array_equal(x[n].numpy(), DATA[n])
    assert np.array_equal(x[-1 - n, n % 5].numpy(), DATA[-1 - n, n % 5])
    assert np.array_equal(x[:, n % 5].numpy(), DATA[:, n % 5])
    assert np.array_equal(x.select(0, n).numpy(), DATA[n])


def a_batch(n: int) -> None:
    x = Tensor(DATA).realize()
    i = n % 9
    assert np.array_equal(x[i : i + 3].numpy(), DATA[i : i + 3])
    assert np.array_equal(x[n, n % 3 : n % 3 + 2].numpy(), DATA[n, n % 3 : n % 3 + 2])


def a_part(n: int) -> None:
    x, i = Tensor(DATA).realize(), n % 9
    assert np.array_equal(x.narrow(0, i, 3).numpy(), DATA[i : i + 3])
    assert np.array_equal(x.narrow(dim=0, start=-4 - i // 2, length=3).numpy(), DATA[-4 - i // 2 : -1 - i // 2])
    assert np.array_equal(x.select(dim=1, index=n % 5).numpy(), DATA[:, n % 5])


def a_crop(n: int) -> None:
    x, i, j = Tensor(np.stack([DATA, -DATA])).realize(), n % 9, n % 3
    assert np.array_equal(x[:, i : i + 3, j : j + 2].numpy(), [DATA[i : i + 3, j : j + 2], -DATA[i : i + 3, j : j + 2]])
    assert np.array_equal(x[n % 2, i : i + 3, j : j + 2].numpy(), DATA[i : i + 3, j : j + 2] * (1 - n % 2 * 2))


def a_number_of_an_array(n: int) -> None:
    x, value = Tensor(DATA).realize(), n / 7 + 0.125
    wanted, whole = DATA * np.float32(value), DATA[:, 0] * np.float32(n)
    one = np.array(value, np.float32)
    for t in (an.tensor(np.float32(value)), an.from_numpy(one), x.new_tensor(value), np.float32(value), one):
        assert np.array_equal((x * t).numpy(), wanted)
    for t in (Tensor(np.int64(n)), np.int64(n), an.as_tensor(np.array(n))):
        assert np.array_equal((x[:, 0] * t).numpy(), whole)


SCALED = an.nn.BatchNorm1d(5)
SCALED.register_parameter("scale", an.nn.Parameter(an.tensor(1.0)))


def a_state_with_numbers(n: int) -> None:
    state = {name: an.tensor(t.numpy() + np.asarray(n, t.numpy().dtype)) for name, t in SCALED.state_dict().items()}
    SCALED.load_state_dict(state)
    assert (Tensor(DATA) * SCALED.scale).sum().item() == pytest.approx(DATA.sum() * state["scale"].item(), abs=1e-3)
    assert SCALED.num_batches_tracked is not None
    assert SCALED.num_batches_tracked.item() == state["num_batches_tracked"].item()


WRITTEN = Tensor(DATA * 0)


def a_written_part(n: int) -> None:
    wanted = WRITTEN.numpy()
    row, value = n % 12, n + 0.5
    WRITTEN[row] = value
    wanted[row] = value
    WRITTEN[n % 9 : n % 9 + 2] = Tensor(DATA[:2])
    wanted[n % 9 : n % 9 + 2] = DATA[:2]
    WRITTEN[-1 - row, n % 5] = WRITTEN[0, 0] * 2
    wanted[-1 - row, n % 5] = wanted[0, 0] * 2
    assert np.array_equal(WRITTEN.numpy(), wanted)


def a_class(n: int) -> None:
    labels = Tensor(np.arange(12) % 5)
    assert (labels == n % 5).sum().item() == (np.arange(12) % 5 == n % 5).sum()


def a_place_that_was_found(n: int) -> None:
    x = Tensor(np.roll(DATA, n, 0))
    i = int(x[:, 0].argmax())
    assert x[i, 0].item() == DATA.max(0)[0]


def a_number_of_numpy(n: int) -> None:
    x = Tensor(DATA).realize()
    factor = np.cos(n + 0.5)
    assert np.array_equal((x * factor).numpy(), DATA * np.float32(factor))
    i = np.random.default_rng(n).permutation(12)[0]
    assert np.array_equal(x[i].numpy(), DATA[i])


def a_chance_to_drop(n: int) -> None:
    x = Tensor(np.ones((40, 40), np.float32)).dropout(0.2 + n / 40)
    kept = x.numpy()
    assert set(np.unique(kept)) == {0.0, np.float32(1 / (1 - (0.2 + n / 40)))}
    assert abs((kept == 0).mean() - (0.2 + n / 40)) < 0.08


def made_of_numbers(n: int) -> None:
    x = Tensor(DATA).realize()
    step = 40 - n
    at = [Tensor.full((12,), step, dtype="int64"), Tensor(step).expand(12), Tensor.ones(12, dtype="int64") * step]
    at += [x.new_full((12,), step), Tensor.full((12,), 0.5 * step), Tensor(DATA[0, 0]).fill_(step).expand(12)]
    for t, scale in zip(at, [1, 1, 1, 1, 2, 1], strict=True):
        rows = Tensor(np.arange(80)).gather(0, (t * scale).int())
        assert np.array_equal((x + rows.reshape(12, 1)).numpy(), DATA + np.float32(step))


def adam_by_hand(n: int) -> None:
    for kind in ("float32", "float16", "bfloat16"):
        p, m, v = [Tensor(DATA[i]).cast(kind).realize() for i in range(3)]
        rate = 0.1 / (1 - 0.9 ** (n + 1))
        down = (v.abs().sqrt() / math.sqrt(1 - 0.99 ** (n + 1))).add_(1e-2)
        wide, low = p.float().addcdiv(m.float(), down.float(), value=-rate), p.addcdiv_(m, down, value=-rate)
        assert low.dtype.name == kind
        assert np.array_equal(low.float().numpy(), wide.cast(kind).float().numpy())


@pytest.mark.parametrize(
    "turn",
    [
        made_of_numbers,
        adam_by_hand,
        several,
        a_rate,
        a_row,
        a_batch,
        a_part,
        a_number_of_an_array,
        a_state_with_numbers,
        a_crop,
        a_written_part,
        a_class,
        a_place_that_was_found,
        a_number_of_numpy,
        a_chance_to_drop,
    ],
)
def test_what_varies_makes_no_plan_after_the_third_turn(turn: Callable[[int], Any]) -> None:
    assert not any(_plans(turn)[3:])


def test_numbers_that_stay_are_constants() -> None:
    x = Tensor(DATA)
    for _ in range(6):
        y = x * 1.0 + [x * c for c in (2.0, 3.0, 4.0)][1] * 0.5
        assert 0.5 in {u.arg for u in toposort((y.uop,)) if u.op is Op.CONST}
        assert not [u for u in toposort((y.uop,)) if u.op is Op.BUFFER and u.size == 1]
        y.numpy()


def test_tensors_of_numbers_that_stay_are_constants() -> None:
    """Also if one line makes several, in each round the same."""
    for _ in range(12):
        made = [Tensor.full((3,), c) for c in (2.0, 3.0)] + [Tensor(5), Tensor.full((2,), 1 << 20)]
        assert not [u for t in made for u in toposort((t.uop,)) if u.op is Op.BUFFER]
        (made[0] + made[1]).numpy()


def test_a_number_that_varied_is_no_constant_again() -> None:
    """Whatever values come back: plans for each mixture of constants and memory would be many."""
    x = Tensor(DATA)
    order = np.random.default_rng(0).integers(0, 4, (40, 3))

    def turn(n: int) -> None:
        a, b, c = map(float, order[n])
        y = ((x + a) * b - c).numpy()
        assert np.array_equal(y, (DATA + np.float32(a)) * np.float32(b) - np.float32(c))

    assert not any(_plans(turn, 40)[4:])


def test_the_kind_of_a_number_decides_over_the_dtype() -> None:
    x = Tensor(np.arange(4))
    for n in range(6):
        assert (x * (n + 0.5)).dtype.name == "float32"
        assert (x * n).dtype.name == x.dtype.name
        assert (x * n).tolist() == [n * k for k in range(4)]
        assert ((x > 1) * n).dtype.name == "int32"
        half = Tensor(np.ones(2, np.float16)) * (n + 0.1)
        assert half.numpy().dtype == np.float16
        assert half.tolist() == [np.float16(n + 0.1)] * 2


def test_an_index_out_of_range_is_an_error_at_its_call() -> None:
    x = Tensor(DATA)
    for n in range(6):
        assert x[n].tolist() == DATA[n].tolist()
        for i in (12 + n, -13 - n):
            with pytest.raises(PositionError, match=f"{i} is out of bounds for axis 0 of shape"):
                x[i]


def test_a_part_that_is_not_there_is_an_error_at_its_call() -> None:
    x = Tensor(DATA)
    for n in range(6):
        assert x.narrow(0, n, 3).tolist() == DATA[n : n + 3].tolist()
        for start, length in ((10, 3), (-13, 3), (n, 13)):
            with pytest.raises(ShapeError, match="12"):
                x.narrow(0, start, length)
        with pytest.raises(TypeError, match="select"):
            x.select(0, n, n)  # type: ignore[call-arg]


def test_a_part_at_a_place_that_varies_is_a_view() -> None:
    for n in range(6):
        x = Tensor(DATA) * 1
        part = x[n]
        part += 10
        part[n % 5] = 0.0
        wanted = DATA.copy()
        wanted[n] += 10
        wanted[n, n % 5] = 0
        assert np.array_equal(x.numpy(), wanted)
        assert np.array_equal(part.numpy(), wanted[n])


def test_a_gradient_goes_to_the_part_at_a_place_that_varies() -> None:
    for n in range(6):
        x = Tensor(DATA, requires_grad=True)
        (x[n] * 2 + x[n : n + 1, 1:3].sum()).sum().backward()
        wanted = np.zeros_like(DATA)
        wanted[n] = 2
        wanted[n, 1:3] += 5
        assert x.grad is not None
        assert np.array_equal(x.grad.numpy(), wanted)


CUBE = np.random.default_rng(3).standard_normal((7, 7, 7)).astype(np.float32)
PLACES: list[Callable[[int, int, int], Any]] = [
    lambda i, j, k: (slice(i, i + 3), slice(j, j + 3)),
    lambda i, j, k: (slice(i, i + 3), slice(j, j + 2), slice(k, k + 2)),
    lambda i, j, k: (slice(i, i + 3), slice(None), k),
    lambda i, j, k: (i, slice(None), slice(j, j + 3)),
    lambda i, j, k: (slice(i, i + 3), slice(1, 4), slice(k, k + 3)),
    lambda i, j, k: (slice(i, i + 3), j, slice(k, k + 3)),
]


@pytest.mark.parametrize("place", PLACES)
def test_values_with_a_gradient_go_to_several_places_that_vary(place: Callable[[int, int, int], Any]) -> None:
    for n in range(6):
        at = place(n % 4, (3 * n + 1) % 4, (2 * n) % 5)
        x, v = Tensor(CUBE, requires_grad=True), Tensor(2 * CUBE[at], requires_grad=True)
        y = x * 1
        y[at] = v * 3
        (y * y).sum().backward()
        wanted, slope = CUBE.copy(), 2 * CUBE
        wanted[at], slope[at] = 6 * CUBE[at], 0
        assert np.array_equal(y.numpy(), wanted)
        assert x.grad is not None
        assert v.grad is not None
        assert np.array_equal(x.grad.numpy(), slope)
        np.testing.assert_allclose(v.grad.numpy(), 36 * CUBE[at], rtol=1e-6)


BATCHES: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: x.split(4),
    "chunk": lambda x: x.chunk(8),
    "unbind": lambda x: x.reshape(8, 4, 5).unbind(),
    "list": lambda x: [x[i : i + 4] for i in range(0, 32, 4)],
    "columns": lambda x: x.T.split(4, 1),
    "of parts": lambda x: [part for half in x.split(16) for part in half.split(4)],
    "not computed": lambda x: (x * 1).split(4),
}


@pytest.mark.parametrize("name", BATCHES)
def test_parts_that_are_made_before_a_loop_make_no_plan_for_each(name: str) -> None:
    """Batches by `split`: each round had a plan of its own, at its batch's place."""
    parts = BATCHES[name]
    a = np.random.default_rng(0).standard_normal((32, 5)).astype(np.float32)
    x, w = Tensor(a), Tensor(np.ones((), np.float32), requires_grad=True)
    x.realize()
    for epoch in range(3):
        batches = parts(x)
        values = [batch.numpy() for batch in parts(Tensor(a))]

        def turn(n: int, batches: Any = batches, values: Any = values) -> None:
            loss = ((batches[n] * w) ** 2).sum()
            loss.backward()
            np.testing.assert_allclose(loss.item(), (values[n] ** 2).sum(), rtol=1e-5)
            assert w.grad is not None
            np.testing.assert_allclose(w.grad.item(), 2 * (values[n] ** 2).sum(), rtol=1e-5)
            w.grad = None

        assert not any(_plans(turn, 8)[0 if epoch > 1 else 4 :])
        x += 1.5
        a = a + np.float32(1.5)
        if name != "not computed":  # views of x
            batches[5][:] = 7
            assert (x.numpy() == 7).sum() == 20
            x.copy_(Tensor(a))
            assert batches[3].tolist() == parts(Tensor(a))[3].tolist()


def test_parts_that_are_used_in_each_round_stay_where_they_are() -> None:
    a = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    first, second = Tensor(a).realize().split(4)
    for _ in range(14):
        y = first * 2 + second
        assert not [u for u in toposort((y.uop,)) if u.op is Op.GATHER]
        np.testing.assert_allclose(y.numpy(), a[:4] * 2 + a[4:], rtol=1e-6)


def test_a_factor_without_bounds_is_in_each_term_of_a_sum() -> None:
    x = Tensor(np.array([1.0, -1.0, 0.0], np.float32))
    assert math.isnan((x * math.inf).sum().item())
    assert (x[:1] * math.inf).sum().item() == math.inf


def test_a_number_that_does_not_fit_is_refused_at_a_place_that_varies() -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    for n, value in enumerate([1, 2, 3.0, math.inf, 4, 1e30, math.nan]):
        if abs(value) < 9:
            x[n % 2] = value
        else:
            with pytest.raises(DTypeError, match="does not fit int32"):
                x[n % 2] = value
    assert x.tolist() == [[4, 4, 4], [2, 2, 2]]


def test_a_shift_by_less_than_nothing_is_refused_where_shifts_vary() -> None:
    for n in [1, 2, 3, -1, 4, -(2**31), 5]:
        x = Tensor([1, 2], dtype=an.int64)
        if n > 0:
            assert (x << n).tolist() == [1 << n, 2 << n]
        else:
            with pytest.raises(DTypeError, match=f"0 places or more, not {n}$"):
                x << n


NUMPYS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "clamp": lambda x, n: x.clamp(n, 0.5),
    "clamp, max": lambda x, n: x.clamp(-1, max=n),
    "quantile": lambda x, n: x.quantile(n, 0),
    "nanquantile": lambda x, n: an.nanquantile(x, n),
    "bernoulli_": lambda x, n: x * an.zeros(3).bernoulli_(n),
    "bernoulli": lambda x, n: x * an.bernoulli(n, 3),
}


@pytest.mark.parametrize("name", NUMPYS)
@pytest.mark.parametrize("replay", [True, False])
def test_a_number_of_numpy_is_one_of_python(name: str, replay: bool) -> None:
    """Also its gradient at a bound, and the shape of a result for one number, varying or not."""
    with settings.override(replay=replay):
        for n in [0.25, 0.25, 0.5, 0.75, 0.125]:
            found = []
            for number in (n, np.float32(n)):
                an.manual_seed(0)
                x = Tensor([0.25, 0.75, 0.125], requires_grad=True)
                y = NUMPYS[name](x, number)
                y.sum().backward()
                found.append((y.tolist(), x.grad.tolist()))
            assert found[0] == found[1]


def test_a_part_of_less_than_nothing_is_refused_where_parts_vary() -> None:
    x = Tensor([1, 2, 3, 4])
    for start, length in [(0, 2), (1, 2), (2, 2), (-3, 2), (0, 1), (1, -2), (-3, -3)]:
        if length < 0:
            with pytest.raises(PositionError, match="is not inside"):
                x.narrow(0, start, length)
        else:
            assert x.narrow(0, start, length).tolist() == [1, 2, 3, 4][start % 4 :][:length]
