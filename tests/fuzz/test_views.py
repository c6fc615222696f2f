"""Random programs of views and changes in place, beside NumPy's views, whose memory is shared as torch's is.

A program has names: of tensors, of views of them, and of results. It takes views, writes through any name, deletes
names, computes and reads; it runs as it stands or inside jit functions, which change and read what is outside. After
every statement that reads, and at the end, all names have the values of NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from anneal.tensor import Tensor, jit

Names = dict[int, tuple[Tensor, np.ndarray[Any, Any]]]

# each takes a pair (tensor, array) and two small numbers, and gives a view of both, or None where it does not fit
View = Callable[[Tensor, Any, int, int], "tuple[Tensor, Any] | None"]


def _flat(t: Tensor, a: Any, m: int, n: int) -> tuple[Tensor, Any]:
    return t.reshape(-1), a.reshape(-1)  # a copy where strides cannot say it, in both


def _split(t: Tensor, a: Any, m: int, n: int) -> tuple[Tensor, Any] | None:
    if not a.ndim or a.shape[0] % 2:
        return None
    shape = (2, a.shape[0] // 2, *a.shape[1:])
    return t.reshape(shape), a.reshape(shape)


def _diagonal(t: Tensor, a: Any, m: int, n: int) -> tuple[Tensor, Any] | None:
    if a.ndim < 2:
        return None
    b = a.diagonal(m - 1, 0, 1)
    b.flags.writeable = True
    return t.diagonal(m - 1, 0, 1), b


def _windows(t: Tensor, a: Any, m: int, n: int) -> tuple[Tensor, Any] | None:
    if not a.ndim or a.shape[0] < 2:
        return None
    b = np.lib.stride_tricks.sliding_window_view(a, 2, 0, writeable=True)[:: m + 1]
    return t.unfold(0, 2, m + 1), b


def _index(*index: Callable[[int, int], Any]) -> View:
    def take(t: Tensor, a: Any, m: int, n: int) -> tuple[Tensor, Any] | None:
        found = tuple(f(m, n) for f in index)
        try:
            part = a[found if ... in found else (*found, ...)]  # a view, also of one element
        except IndexError:
            return None
        return t[found], part

    return take


VIEWS: dict[str, View] = {
    "flat": _flat,
    "split": _split,
    "diagonal": _diagonal,
    "windows": _windows,
    "T": lambda t, a, m, n: (t.T, a.T),
    "swapped": lambda t, a, m, n: (t.swapaxes(0, -1), a.swapaxes(0, -1)) if a.ndim else None,
    "row": _index(lambda m, n: m, lambda m, n: ...),
    "last": _index(lambda m, n: ..., lambda m, n: -1 - n % 2),
    "cut": _index(lambda m, n: slice(m, None)),
    "cut both": _index(lambda m, n: slice(None, -1), lambda m, n: slice(n % 2, n + 2)),
    "steps": _index(lambda m, n: slice(m % 2, None, 2)),
    "new axis": _index(lambda m, n: None, lambda m, n: ...),
    "squeezed": lambda t, a, m, n: (t.squeeze(), a.squeeze()),
    "data": lambda t, a, m, n: (t.data, a[...]),
    "narrow": lambda t, a, m, n: (t.narrow(0, m, 1), a[m : m + 1]) if a.ndim and m < a.shape[0] else None,
    "half": lambda t, a, m, n: (t.chunk(2)[0], a[: (a.shape[0] + 1) // 2]) if a.ndim and a.shape[0] else None,
    "contiguous": lambda t, a, m, n: (t.contiguous(), np.ascontiguousarray(a) if a.ndim else a),
    "permuted": lambda t, a, m, n: (t.permute(1, *range(2, a.ndim), 0), np.moveaxis(a, 0, -1)) if a.ndim > 1 else None,
}


def _set(x: Any, index: Any, value: Any) -> None:
    x[index] = value


def _where_large(x: Any) -> None:
    x[x > 3] = 1.0


def _rows_more(x: Any) -> None:
    if x.ndim and x.shape[0] > 1:
        x[[0, 1]] += 1.0


def _exchanged(x: Any) -> None:
    if x.ndim and x.shape[0] > 2:
        x[0:1], x[2:3] = x[2:3], x[0:1]  # NumPy's x[0] is a number where torch's is a view


# each changes its argument in place: what both libraries write alike, and pairs of what they do not
WRITES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda t, v: t.add_(v), lambda a, v: np.add(a, v, out=a)),
    "twice": (lambda t, v: t.mul_(2.0), lambda a, v: np.multiply(a, 2.0, out=a)),
    "fill": (lambda t, v: t.fill_(v), lambda a, v: a.fill(v)),
    "own sum": (lambda t, v: t.sub_(t.mean()), lambda a, v: np.subtract(a, a.mean(), out=a) if a.size else None),
    "first": (lambda t, v: _set(t, 0, v) if t.ndim else None, lambda a, v: _set(a, 0, v) if a.ndim else None),
    "part": (
        lambda t, v: _set(t, slice(1, None), v) if t.ndim else None,
        lambda a, v: _set(a, slice(1, None), v) if a.ndim else None,
    ),
    "where large": (lambda t, v: t.masked_fill_(t > 3, 1.0), lambda a, v: np.copyto(a, 1.0, where=a > 3)),
    "mask": (lambda t, v: _where_large(t) if t.ndim else None, lambda a, v: _where_large(a) if a.ndim else None),
    "rows": (lambda t, v: _rows_more(t), lambda a, v: _rows_more(a)),
    "exchanged": (lambda t, v: _exchanged(t), lambda a, v: _exchanged(a)),
}


def _apart(a: Any) -> bool:
    """Whether no element of an array is in memory twice, as far as strides say."""
    places = np.zeros(a.shape, np.int64)
    for axis, (n, s) in enumerate(zip(a.shape, a.strides, strict=True)):
        places = places + (np.arange(n) * s).reshape([n if i == axis else 1 for i in range(a.ndim)])
    return len(np.unique(places)) == places.size


class Program:
    """What runs, statement by statement, on both sides."""

    def __init__(self, start: tuple[int, ...], kind: str) -> None:
        a = np.arange(np.prod(start), dtype=np.float32).reshape(start)
        t = Tensor(a.copy())
        if kind == "lazy":
            t, a = t + 1.0, a + 1.0
        elif kind == "filled":
            t, a = Tensor.zeros(*start), np.zeros(start, np.float32)
        elif kind == "memory":
            t.realize()
        self.names: Names = {0: (t, a)}
        self.next = 1

    def put(self, pair: tuple[Tensor, Any]) -> None:
        assert pair[0].shape == pair[1].shape
        self.names[self.next] = pair
        self.next += 1

    def pick(self, n: int) -> tuple[Tensor, Any]:
        return list(self.names.values())[n % len(self.names)]

    def run(self, statement: tuple[str, str, int, int, int]) -> None:
        what, which, at, m, n = statement
        t, a = self.pick(at)
        if what == "view":
            found = VIEWS[which](t, a, m, n)
            if found is not None:
                self.put(found)
        elif what in ("write", "jit") and a.size and _apart(a):
            ours, theirs = WRITES[which]
            if what == "write":
                ours(t, float(m))
                theirs(a, float(m))
                return

            @jit
            def change() -> Tensor:
                ours(t, float(m))
                return t.sum()

            if which == "mask" or (which == "rows"):
                return  # values are looked at
            for _ in range(4):
                got = change()
                theirs(a, float(m))
                np.testing.assert_allclose(got.numpy(), a.sum(), rtol=1e-4, atol=1e-3)
                if n == 2:
                    self.check(self.names[max(self.names)])
        elif what == "delete" and len(self.names) > 1:
            del self.names[list(self.names)[at % len(self.names)]]
        elif what == "compute":
            # torch, like NumPy, keeps the strides of what is transposed; here every result is contiguous
            self.put((t + 1.0, np.ascontiguousarray(a + 1.0).reshape(a.shape)))
        elif what == "realize":
            t.realize()
        elif what == "copy" and _apart(a):
            u, b = self.pick(m)
            if b.shape == a.shape:
                t.copy_(u)
                a[...] = b.copy()
        else:
            self.check((t, a))

    def check(self, pair: tuple[Tensor, Any]) -> None:
        np.testing.assert_allclose(pair[0].numpy(), pair[1], rtol=1e-4, atol=1e-3)

    def check_all(self) -> None:
        for pair in self.names.values():
            self.check(pair)


_small = st.integers(0, 2)
_any = st.integers(0, 30)
STATEMENT = st.one_of(
    st.tuples(st.just("view"), st.sampled_from(sorted(VIEWS)), _any, _small, _small),
    st.tuples(st.just("view"), st.sampled_from(sorted(VIEWS)), _any, _small, _small),
    st.tuples(st.just("write"), st.sampled_from(sorted(WRITES)), _any, _small, _small),
    st.tuples(st.just("write"), st.sampled_from(sorted(WRITES)), _any, _small, _small),
    st.tuples(st.sampled_from(["delete", "compute", "realize", "copy", "read"]), st.just(""), _any, _any, _small),
)
INSIDE = st.tuples(st.just("jit"), st.sampled_from(sorted(WRITES)), _any, _small, _small)
START = st.sampled_from([(6,), (4, 3), (3, 3), (2, 2, 3)])
KIND = st.sampled_from(["memory", "lazy", "filled", "host"])


@given(START, KIND, st.lists(STATEMENT, min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_views_share_what_numpys_share(start: tuple[int, ...], kind: str, statements: list[Any]) -> None:
    program = Program(start, kind)
    for statement in statements:
        program.run(statement)
    program.check_all()


@given(START, KIND, st.lists(st.one_of(STATEMENT, STATEMENT, INSIDE), min_size=3, max_size=8))
@settings(max_examples=20, deadline=None)
def test_also_where_jit_functions_change_them(start: tuple[int, ...], kind: str, statements: list[Any]) -> None:
    program = Program(start, kind)
    for statement in statements:
        program.run(statement)
    program.check_all()


@given(START, KIND, st.lists(STATEMENT, min_size=3, max_size=8), st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_a_loop_that_is_known_does_the_same(
    start: tuple[int, ...], kind: str, statements: list[Any], rounds: int
) -> None:
    """The same program several times: the later ones are late."""
    for _ in range(rounds):
        program = Program(start, kind)
        for statement in statements:
            program.run(statement)
        program.check_all()


def test_two_threads_change_views_of_their_own(device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> list[float]:
        x = Tensor.zeros(4, 4, device=device)
        rows = list(x)
        for i in range(12):
            rows[(seed + i) % 4].add_(float(i))
            x.T[i % 4].mul_(0.5)
        return [float(r.sum().item()) for r in rows]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(4))) == [work(n) for n in range(4)]


if __name__ == "__main__":
    pytest.main([__file__])
