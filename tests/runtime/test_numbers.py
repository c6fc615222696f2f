"""Numbers and positions that Python gives a loop anew in each round: the values are those of a loop that remembers
nothing, whatever became memory, and after the third round no plan is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed
from hypothesis import settings as limits
from hypothesis import strategies as st

from anneal import settings
from anneal.errors import PositionError
from anneal.runtime import cache_statistics, late
from anneal.tensor import Tensor, no_grad
from anneal.uop import Op, toposort

ROUNDS = 6
Array = np.ndarray[Any, Any]

# -- random programs --------------------------------------------------------------------------------------------------

_NUMBERS = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5, -2.0, math.inf, -math.inf, math.nan, True, False, 3, 1e-30, 1e30, 10**12]
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
    "sum": lambda x, c: (x * c).sum(0, keepdim=True) + x,
    "product": lambda x, c: (x * c) @ x.transpose(-1, -2) @ x,
    "exponential": lambda x, c: 1 / ((-x).exp() + c),
}
_WITH_PLACE: dict[str, Callable[[Any, int], Any]] = {
    "row": lambda x, i: x + x[i],
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
        for name, given, which in program:
            x = made[which % len(made)]
            try:
                made.append((_WITH_NUMBER.get(name) or _WITH_PLACE[name])(x, given[turn]))
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
@given(
    st.lists(_STATEMENTS, min_size=1, max_size=6), st.sampled_from(_KINDS), st.booleans(), st.booleans()
)
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
