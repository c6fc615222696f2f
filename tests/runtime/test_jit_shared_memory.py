"""A capture sees every change of a tensor that its function reaches, also where its memory was another tensor's first:
a jitted call gives what the function gives by itself then.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.tensor import Tensor, jit, no_grad

# Guards look at Python's values; a compiler for each capture takes half of the time.
pytestmark = pytest.mark.usefixtures("same_kernels")

# Of `base`, which lives on, or of a tensor that nobody keeps.
STATES: dict[str, Callable[[Tensor], Any]] = {
    "a parameter of a tensor": lambda base: nn.Parameter(an.tensor([2.0, 3.0])),
    "a buffer of a tensor": lambda base: nn.Buffer(an.tensor([2.0, 3.0])),
    "a clone": lambda base: an.tensor([2.0, 3.0]).clone(),
    "a clone of what lives on": lambda base: base.clone(),
    "detached": lambda base: an.tensor([2.0, 3.0]).detach(),
    "detached from what lives on": lambda base: base.detach(),
    "reshaped": lambda base: an.tensor([[2.0, 3.0]]).reshape(2),
    "squeezed": lambda base: an.tensor([[2.0, 3.0]]).squeeze(0),
    "a whole slice": lambda base: an.tensor([2.0, 3.0])[:],
    "a row of a new axis": lambda base: an.tensor([2.0, 3.0])[None][0],
    "a copy": lambda base: copy.copy(an.tensor([2.0, 3.0])),
    "a deep copy": lambda base: copy.deepcopy(an.tensor([2.0, 3.0])),
    "data": lambda base: nn.Parameter(base).data,
    "a part": lambda base: an.tensor([1.0, 2.0, 3.0])[1:],
    "computed": lambda base: (base * 2).realize(),
    "lazy": lambda base: base * 2,
    "constant": lambda base: an.full((2,), 3.0),
}
CHANGES: dict[str, Callable[[Any, Tensor], Any]] = {
    "fill_": lambda p, base: p.fill_(5.0),
    "[0] =": lambda p, base: p.__setitem__(0, 7.0),
    "data.add_": lambda p, base: p.data.add_(1),
    "data =": lambda p, base: setattr(p, "data", an.tensor([4.0, 4.0])),
    "a view's": lambda p, base: p[1:].zero_(),
    "what it was made of": lambda p, base: base.add_(1),
}
FUNCTIONS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "product": lambda x, p: x * p,
    "view": lambda x, p: x * p.reshape(2, 1).T[0],
    "grad": lambda x, p: an.grad(lambda v: (v * v * p).sum())(x),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_change_of_memory_that_was_anothers_is_seen(state: str, function: str) -> None:
    f, x = FUNCTIONS[function], Tensor.ones(2)
    for name, change in CHANGES.items():
        base = an.tensor([2.0, 3.0])
        p = STATES[state](base)

        def call(x: Tensor, p: Any = p) -> Tensor:
            return f(x, p)

        jitted = jit(call)
        for turn in range(3):
            for _ in range(3):
                np.testing.assert_array_equal(jitted(x).numpy(), call(x).numpy(), f"{name}, turn {turn}")
            with no_grad():
                change(p, base)


@pytest.mark.parametrize("read", [True, False])
def test_copies_of_weights_stay_while_a_captured_step_trains_them(read: bool) -> None:
    """A copy that is not computed yet reads the weights' memory, which the capture of another function reads, too."""
    an.manual_seed(0)
    model, x = nn.Linear(2, 2), Tensor.ones(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(x).item()
    before = model.weight.numpy().copy()
    kept = [p.detach().clone() for p in model.parameters()]
    if read:
        kept[0].tolist()

    def both(x: Tensor) -> Tensor:
        return x @ kept[0].T + model.weight.sum()

    jitted = jit(both)
    for n in range(8):
        np.testing.assert_allclose(
            jitted(x).detach().numpy(), x.numpy() @ before.T + model.weight.detach().numpy().sum(), rtol=1e-5
        )
        if n % 2:
            step(x)
    explained = str(jitted.explain())
    assert ": captured" in explained
    assert explained.count("captured again") <= 1


def test_the_first_jit_function_of_a_process_is_captured() -> None:
    """Though it is the first to import the generator of random numbers, which begins with a seed."""
    program = (
        "import anneal as an\n"
        "@an.jit\n"
        "def f(x): return x * 2 + 1\n"
        "for n in range(4): f(an.tensor([float(n)])).tolist()\n"
        "print(f.explain())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert ": captured, 1 kernel" in done.stdout


MEAN, ARRAY = Tensor.zeros(3), np.ones(3, np.float32)


def test_what_methods_read_of_a_name_is_seen() -> None:
    """A tensor, an array or an attribute that the function names only to call a method of it."""
    holder = SimpleNamespace(t=Tensor.zeros(3))

    def call(x: Tensor) -> Tensor:
        return x * float(ARRAY.sum()) + MEAN.view(3) + holder.t.reshape(3)

    jitted, x = jit(call), Tensor.ones(3)
    changes: list[Callable[[], Any]] = [
        lambda: MEAN.add_(1), lambda: holder.t.add_(2), lambda: ARRAY.fill(3), lambda: MEAN.__setitem__(0, 5.0),
        lambda: holder.t.fill_(7), lambda: None,
    ]  # fmt: skip
    for change in changes:
        for _ in range(3):
            np.testing.assert_array_equal(jitted(x).numpy(), call(x).numpy())
        change()
