"""jit: memory that the captured kernels overwrite is also an argument, a result, or somebody else's operand."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from anneal.errors import JitError
from anneal.tensor import Tensor, jit


def one(value: float = 1.0) -> Tensor:
    return Tensor([value])


def test_an_argument_that_is_returned_is_the_caller_s_own() -> None:
    @jit
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x + 1

    kept = [both(one(i)) for i in range(5)]
    assert [[t.item() for t in pair] for pair in kept] == [[i, i + 1] for i in range(5)]


def test_an_argument_that_the_function_also_reads_by_itself() -> None:
    weight = one(2)

    @jit
    def scale(x: Tensor) -> Tensor:
        return x * weight

    assert [scale(weight).item() for _ in range(3)] == [4, 4, 4]
    assert scale(one(10)).item() == 20


def test_assigning_to_an_argument_is_an_error() -> None:
    @jit
    def add(x: Tensor) -> Tensor:
        x.assign(x + 1)
        return x * 2

    with pytest.raises(JitError, match="assigned to its argument"):
        add(one())


def test_state_that_is_returned_is_the_same_tensor() -> None:
    total = one(0)

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total

    for i in range(5):
        assert add(one()) is total
        assert total.item() == i + 1


def test_a_view_of_state_that_is_returned_shows_it_as_it_is() -> None:
    total = one(0)

    @jit
    def add(x: Tensor) -> tuple[Tensor, Tensor]:
        total.assign(total + x)
        return total.reshape(1, 1), total * 2

    kept = [add(one()) for _ in range(5)]
    assert [(a.item(), b.item()) for a, b in kept] == [(5, 2 * i) for i in range(1, 6)]
    assert total.item() == 5


def test_one_result_several_times() -> None:
    @jit
    def thrice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y, y.reshape(1, 1)

    kept = [thrice(one(i)) for i in range(5)]
    assert [[t.item() for t in results] for results in kept] == [[i + 1] * 3 for i in range(5)]


def test_a_result_that_is_only_looked_at_follows_its_tensor() -> None:
    weight = one()

    @jit
    def read(x: Tensor) -> tuple[Tensor, Tensor]:
        return weight.detach(), x * 1

    kept = [read(one()) for _ in range(3)]
    weight.assign(one(7))
    kept.append(read(one()))
    assert [w.item() for w, _ in kept] == [7, 7, 7, 7]


def test_a_lazy_reader_of_what_is_read_anew_keeps_the_old_value() -> None:
    weight = one()

    @jit
    def scale(x: Tensor) -> Tensor:
        return x * weight

    for _ in range(3):
        scale(one())
    twice = weight * 2
    weight.assign(one(5))
    assert scale(one()).item() == 5
    assert twice.item() == 2


def test_a_reader_that_outlives_the_tensor_keeps_the_old_value() -> None:
    total = one(0)

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 1

    for _ in range(3):
        add(one())
    seen, copy, doubled = total.detach(), total.clone(), total * 2
    assert add(one()).item() == 4
    assert (seen.item(), copy.item(), doubled.item(), total.item()) == (4, 3, 6, 4)


def test_the_same_argument_again_and_an_argument_that_changed() -> None:
    total, x = one(0), one(1)

    @jit
    def add(y: Tensor) -> Tensor:
        total.assign(total + y)
        return total * 1

    assert [add(x).item() for _ in range(4)] == [1, 2, 3, 4]
    x.assign(x * 10)
    assert [add(x).item() for _ in range(2)] == [14, 24]
    assert [add(total).item() for _ in range(3)] == [48, 96, 192]  # the state itself: it changes with every call


def test_two_functions_share_their_state() -> None:
    weight = one()

    @jit
    def train(x: Tensor) -> Tensor:
        weight.assign(weight + x)
        return weight * 1

    @jit
    def evaluate(x: Tensor) -> Tensor:
        return weight * x

    for i in range(6):
        assert train(one()).item() == i + 2
        assert evaluate(one(10)).item() == 10 * (i + 2)
    weight.assign(one(0))
    gc.collect()
    assert [evaluate(one(10)).item(), train(one()).item(), evaluate(one(10)).item()] == [0, 1, 10]


def test_where_a_result_is_put_is_no_reason_to_capture_again() -> None:
    class Run:
        def __init__(self) -> None:
            self.weight = one(2)
            self.last = one(0)
            self.step = jit(lambda x: x * self.weight)

        def __call__(self, x: Tensor) -> Tensor:
            self.last = self.step(x)
            return self.last

    run = Run()
    for i in range(3):
        run(one(i))
    captured = list(run.step.captures.values())
    assert captured[0] is not None
    assert run(one(5)).item() == 10
    assert list(run.step.captures.values()) == captured


def test_results_of_many_calls_are_kept_dropped_and_used() -> None:
    state = one(0)

    @jit
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        state.assign(state + x)
        y = state * 2 + x
        return y, (y * y).reshape(1, 1)

    expected, kept, total = [], [], 0.0
    for i in range(12):
        total += i
        first, second = both(one(i))
        assert first.item() == 2 * total + i
        if i % 3:
            kept.append((first, second, first + 1))
            expected.append(2 * total + i)
        if i == 8:
            state.assign(one(100))
            total = 100
    assert [(a.item(), b.item(), c.item()) for a, b, c in kept] == [(v, v * v, v + 1) for v in expected]


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 2,) * 2


def in_a_nest(x: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
    y = x * 2
    return y, {"a": [x * 3, y]}


def beside_a_view(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x * 2
    return y, y.reshape(1, -1), y


@pytest.mark.parametrize("wants", [False, True], ids=["plain", "with gradients"])
@pytest.mark.parametrize(
    ("function", "last"),
    [(twice, lambda r: r[1]), (in_a_nest, lambda r: r[1]["a"][1]), (beside_a_view, lambda r: r[2])],
)
def test_a_tensor_that_is_given_twice_is_one_tensor(
    function: Callable[[Tensor], Any], last: Callable[[Any], Tensor], wants: bool
) -> None:
    captured = jit(function)
    for i in range(6):
        x = Tensor([float(i), 1.0], requires_grad=wants)
        results = captured(x)
        assert results[0] is last(results)
        results[0].add_(1)
        assert last(results).tolist() == [2.0 * i + 1, 3.0]
        if wants:
            (results[0] * last(results)).sum().backward()
            assert x.grad is not None
            assert x.grad.tolist() == [4 * (2.0 * i + 1), 12.0]


# -- state that takes other memory as it is ----------------------------------------------------------------------------

WHOLE = [
    "d = x - b; b.copy_(x); return d",
    "d = x - b; b[:] = x; return d",
    "d = x - b; b[...] = x; return d",
    "d = x - b; b.copy_(x * 1); return d",
    "d = x - b; b.copy_(x.clone()); return d",
    "d = x - b; b.copy_(x.view(1)); return d",
    "d = x - b; b.data = x.clone(); return d",
    "d = x - b; b.copy_(x); b.realize(); return d",
    "a.add_(b); b.copy_(x); return a * 1",
    "a.mul_(0.5).add_(b); b.copy_(x); return a * 1",
    "a.copy_(b); b.copy_(x); return a * 1",
    "a.copy_(b * 2); b.copy_(x); return a * 1",
    "b.copy_(x)",
    "b[:] = x",
    "a.copy_(b); b.copy_(x)",
    "a.copy_(b); b.copy_(x * 1)",
    "a.copy_(b); b.add_(1); return a + b",
    "a.copy_(b); b.copy_(x * 2); return a + b",
    "b.copy_(x); return b",
    "b.copy_(x); a.copy_(x); return a + b",
    "b.copy_(x); a.copy_(b); return a + b",
    "a.data = b * 1; b.copy_(x); return a * 1",
    "t = a * 1; a.copy_(b); b.copy_(t); b.add_(x); return a * 1",
    "b.fill_(x[0]); return b * 2",
]


@pytest.mark.parametrize("text", WHOLE)
def test_state_that_is_overwritten_whole_is_what_it_is_without_jit(text: str) -> None:
    names: dict[str, Any] = {}
    exec("def step(a, b, x):\n    " + text.replace("; ", "\n    "), names)

    def values(wrap: Any) -> list[Any]:
        a, b = Tensor.zeros(1), Tensor.zeros(1)
        step = wrap(lambda x: names["step"](a, b, x))
        found = []
        for n in range(7):
            given = step(Tensor([float(n * n)]))
            found.append((None if given is None else given.item(), a.item(), b.item()))
        return found

    assert values(jit) == values(lambda step: step)


@pytest.mark.parametrize("fill", ["b.copy_({})", "b[:] = {}", "b.data = {}"])
def test_state_is_copied_from_what_was_filled_outside(fill: str) -> None:
    a, b = Tensor.zeros(1), Tensor.zeros(1)

    @jit
    def step() -> Tensor:
        a.copy_(b)
        return a * 1

    found = []
    for n in range(6):
        exec(fill.format(f"Tensor([{n}.0])"), {"b": b, "Tensor": Tensor})
        found.append(step().item())
    assert found == [0, 1, 2, 3, 4, 5]
