"""Every op under jvp, vmap and their nestings, and programs made of several.

`checks.py` says what is held; here over two shapes each or three, by its command over all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from anneal.runtime import values
from anneal.tensor import Tensor, functional as F
from tests.tensor.test_gradient import CASES, arguments
from tests.tiers import thinned

from .checks import ALL, check, check_jax, ints


def test_every_function_is_held_over_eight_shapes() -> None:
    few = [c.name for c in ALL if len(set(c.shapes)) < 8 and not c.name.startswith("second")]
    assert not few


EVERY = [pytest.param(c, id=f"{i}-{c.name}") for i, c in enumerate(ALL)]
OF_TWO = [row for row, c in zip(EVERY, ALL, strict=True) if len(c.shapes) > 1]
OF_THREE = [row for row, c in zip(EVERY, ALL, strict=True) if len(c.shapes) > 2]


@pytest.mark.parametrize("case", EVERY)
def test_an_op_under_transforms(case: Any) -> None:
    check(case.name, case.ours, arguments(case, case.shapes[0]), nested=True)


@pytest.mark.parametrize("case", thinned(OF_TWO, test=2, ci=2))
def test_an_op_of_a_second_shape_under_transforms(case: Any) -> None:
    check(case.name, case.ours, arguments(case, case.shapes[1]), nested=False)


@pytest.mark.parametrize("case", thinned(OF_THREE, test=3, ci=3))
def test_an_op_of_a_third_shape_under_transforms(case: Any) -> None:
    check(case.name, case.ours, arguments(case, case.shapes[2]), nested=False)


# one of each kind of rule; the others by `python -m tests.transforms.checks`
BESIDE_JAX = (
    "mul",
    "div",
    "pow",
    "maximum",
    "where",
    "tanh",
    "gelu",
    "erfinv",
    "prod",
    "max",
    "softmax",
    "cumsum",
    "pad",
)
CHOSEN = [c for c in CASES if c.jax and c.name in BESIDE_JAX + ("rows", "gather", "matmul", "strided slice", "var")]


@pytest.mark.parametrize("case", CHOSEN, ids=[f"{i}-{c.name}" for i, c in enumerate(CHOSEN)])
def test_beside_jax(case: Any) -> None:
    pytest.importorskip("jax")
    check_jax(case, case.shapes[min(1, len(case.shapes) - 1)])


STEPS: dict[str, Any] = {
    "sum of both": lambda a, b: a + b,
    "product": lambda a, b: a * b.tanh(),
    "quotient": lambda a, b: a / (b * b + 1.0),
    "power": lambda a, b: (a * a + 0.5) ** b.tanh(),
    "matmul": lambda a, b: a @ b,
    "transposed": lambda a, b: a.T * 0.5 + b,
    "gelu": lambda a, b: a.gelu(),
    "softmax": lambda a, b: a.softmax(0) * b,
    "norm": lambda a, b: F.layer_norm(a + b * 0.1, 3),
    "sorted": lambda a, b: a.sort(-1)[0] + b,
    "largest": lambda a, b: a.maximum(b) + a.amax(0, keepdim=True),
    "running": lambda a, b: a.cumsum(0) * 0.3 + b,
    "prod": lambda a, b: a.prod(1, keepdim=True) * b,
    "moved": lambda a, b: a.flip(0).pad((1, 0))[:, :3] + b.roll(1, 1),
    "rows": lambda a, b: a[ints(2, 0, 2)] * b,
    "added rows": lambda a, b: a.index_add(0, ints(1, 1, 0), b),
    "positions": lambda a, b: a.take_along_dim(b.argsort(1), 1),
    "half": lambda a, b: (a > 0.0).where(a, b.sin()),
    "cross entropy": lambda a, b: a * F.cross_entropy(b, ints(0, 2, 1)),
}


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5), st.integers(0, 2**16))
def test_programs_under_transforms(names: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)

    def program(x: Tensor, y: Tensor) -> Tensor:
        for name in names:
            x, y = STEPS[name](x, y), x.tanh()
        return x

    # as the device computes them, all together
    check(" ".join(names), program, [rng.standard_normal((3, 3)) * 0.5 for _ in range(2)], True, values)
