"""Random numbers with jit and without: one stream, whatever is drawn between the calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.ops import default_generator
from anneal.tensor import Generator, Tensor, Variable, jit, manual_seed, random

Made = dict[str, Callable[[Any], Any]]
OWN = Generator(5)


def several(x: Tensor) -> tuple[Tensor, ...]:
    """Draws of several kinds, two of them alike, and one from a generator of its own."""
    first, second = an.nn.functional.dropout(x, 0.5), an.nn.functional.dropout(x, 0.3)
    return first, random.random_bits(4), second, random.randint(0, 100, (3,)), random.random_bits(2, generator=OWN)


def in_turns(x: Tensor) -> Tensor:
    """Draws in the turns of a loop, and one beside it."""
    turns = an.fori_loop(0, 3, lambda _, c: c + an.nn.functional.dropout(x, 0.5), an.zeros_like(x))
    return turns * 100 + an.nn.functional.dropout(x, 0.5)


def changed(x: Tensor) -> Tensor:
    """A gradient is taken inside."""
    w = x.detach().requires_grad_(True)
    an.nn.functional.dropout(w * 2, 0.5).sum().backward()
    assert w.grad is not None
    return w.grad


FUNCTIONS: Made = {"several": several, "in turns": in_turns, "gradients": changed}


def _values(made: Any) -> list[list[float]]:
    return [t.tolist() for t in (made if isinstance(made, tuple) else (made,))]


def _run(functions: list[Callable[[Tensor], Any]], between: bool) -> list[Any]:
    """The results of calls from one seed on, the functions in turn: with draws `between` them, a new seed in the middle
    and another shape now and then."""
    manual_seed(3)
    OWN.manual_seed(4)
    out: list[Any] = []
    for n in range(9):
        if between and n == 5:
            manual_seed(8)
        x = Tensor(np.arange(1, 9 if n % 4 else 13, dtype=np.float32))
        out += [_values(f(x)) for f in functions]
        if between and n % 2:
            out.append(random.random_bits(1 + n).tolist())
    return out


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("names", [*[(n,) for n in FUNCTIONS], tuple(FUNCTIONS)], ids=" ".join)
def test_jit_draws_what_the_same_calls_draw_without(names: tuple[str, ...], between: bool, device: str) -> None:
    functions = [FUNCTIONS[n] for n in names]
    wanted = _run(functions, between)
    captured = [jit(f) for f in functions]
    assert _run(list(captured), between) == wanted
    assert all("captured, " in f.explain() for f in captured)
    assert _run(list(captured), between) == wanted  # replays only


def test_a_captured_call_that_gradients_flow_through_draws_so_too(device: str) -> None:
    def trained(compiled: bool) -> list[float]:
        manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1, bias=False))
        called: Any = jit(model) if compiled else model
        optimizer = an.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for n in range(6):
            optimizer.zero_grad()
            loss = called(Tensor(np.ones((2, 8), np.float32))).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item() + float(random.randint(0, 3, (1,)).item() if n % 2 else 0))
        assert not compiled or "captured with its backward" in called.explain()
        return losses

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)


def test_lengths_that_a_variable_has(device: str) -> None:
    def masked(x: Tensor, n: Any) -> Tensor:
        return an.nn.functional.dropout(x[:n], 0.5).sum()

    def run(f: Callable[..., Tensor]) -> list[float]:
        manual_seed(2)
        x = Tensor(np.arange(1, 17, dtype=np.float32))
        return [f(x, Variable("n", 1, 16).bind(n)).item() for n in (3, 8, 5, 16, 2)]

    assert run(jit(masked)) == run(masked)


def test_a_state_is_a_place_in_the_stream_of_both() -> None:
    draw = jit(lambda: random.random_bits(2))
    for _ in range(3):
        draw()
    saved = default_generator.state()
    wanted = [draw().tolist(), random.random_bits(2).tolist(), draw().tolist()]
    default_generator.go_on(saved)
    assert [random.random_bits(2).tolist(), draw().tolist(), random.random_bits(2).tolist()] == wanted


@pytest.mark.parametrize("when", [0, 1, 2, 3])
def test_no_number_is_drawn_twice_where_another_thread_draws_in_the_middle(when: int) -> None:
    seen: list[Tensor] = []
    call = 0

    def elsewhere() -> None:  # it computes nothing: a thread that records a function is the only one that does
        seen.append(random.random_bits(1))

    def draw() -> tuple[Tensor, Tensor]:
        first = random.random_bits(1)
        if call == when:
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
        return first, random.random_bits(1)

    manual_seed(6)
    captured = jit(draw)
    for n in range(9):
        call = min(n, 5)  # a value that changes at each call is one that no capture is kept for
        seen += captured()
    assert len({t.item() for t in seen}) == len(seen)
    assert "captured, " in captured.explain()
