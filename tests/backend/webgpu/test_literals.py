"""Constants in kernels: whatever a driver's compiler knows of 0, 1, infinity and nan, results are IEEE 754's.

Each op has each special constant in each operand; all of an operand's constants are computed together, so the file
takes few kernels on a GPU. Compared up to what SPEC.md, section 9, grants: the sign of the zeros that sums and extremes
give, flushed denormal numbers, 2.5 units in the last place of a quotient, 32 of a power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.runtime import realize
from anneal.tensor import Tensor

pytestmark = pytest.mark.usefixtures("webgpu")

Array = np.ndarray[Any, Any]

CONSTANTS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, math.inf, -math.inf, math.nan, 3.0e38, 1e-30)
VALUES = np.array(
    [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 0.5, -2.5, 3.0, 1e30, -1e30, 3.4e38, -1.5e-30, 7.0],
    np.float32,
)
TINY = 1.2e-38

# (NumPy's function, how far the result may be from it, whether the sign of a zero counts)
OPS: dict[str, tuple[Callable[[Any, Any], Any], float, bool]] = {
    "add": (np.add, 0, False),
    "sub": (np.subtract, 0, False),
    "mul": (np.multiply, 0, True),
    "div": (np.divide, 4e-7, True),
    "maximum": (np.maximum, 0, False),
    "minimum": (np.minimum, 0, False),
    "floor_divide": (np.floor_divide, 4e-7, False),
    "remainder": (np.mod, 0, False),
    "fmod": (np.fmod, 0, False),
    "pow": (np.power, 4e-6, False),
    "lt": (np.less, 0, False),
    "le": (np.less_equal, 0, False),
    "gt": (np.greater, 0, False),
    "ge": (np.greater_equal, 0, False),
    "eq": (np.equal, 0, False),
    "ne": (np.not_equal, 0, False),
    "copysign": (np.copysign, 0, True),
    "hypot": (np.hypot, 1e-6, False),
}


def wrong(got: Array, wanted: Array, rtol: float, signs: bool) -> Array:
    """Where results are not what they should be."""
    if got.dtype.kind == "b":
        return np.argwhere(got != wanted)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= rtol * np.abs(b))
        same |= (np.abs(b) < TINY) & (np.abs(a) < TINY)  # flushed, or not
        # next to the ends of the range a quotient or power may round to either side of them
        same |= (rtol > 0) & (np.abs(b) > 3.3e38) & (np.abs(a) > 3.3e38) & (np.sign(a) == np.sign(b))
    if signs:
        same &= (b != 0) | (np.signbit(a) == np.signbit(b))
    return np.argwhere(~same)


def test_every_constant_in_every_operand(webgpu: str) -> None:
    x = Tensor(VALUES, device=webgpu)
    made: list[tuple[str, str, Tensor, Array]] = []
    for name, (f, _, _) in OPS.items():
        left = [Tensor.full((), c, device=webgpu) for c in CONSTANTS]
        with np.errstate(all="ignore"):
            exact = np.stack([f(VALUES, np.float32(c)) for c in CONSTANTS])
            turned = np.stack([f(np.float32(c), VALUES) for c in CONSTANTS])
            if name == "pow":
                exact[CONSTANTS.index(0.5)] = np.sqrt(VALUES)  # x ** 0.5 is a square root, as torch has it
        made.append((name, "constant on the right", Tensor.stack([getattr(x, name)(c) for c in CONSTANTS]), exact))
        made.append((name, "constant on the left", Tensor.stack([getattr(c, name)(x) for c in left]), turned))
    realize([t for _, _, t, _ in made])
    faults = []
    for name, way, t, wanted in made:
        _, rtol, signs = OPS[name]
        got = t.numpy()
        for c, v in wrong(got, wanted, rtol, signs):
            faults.append(f"{name}, {way} {CONSTANTS[c]}, x = {VALUES[v]}: {got[c, v]}, wanted {wanted[c, v]}")
    assert not faults, "\n".join(faults)


def test_constants_alone(webgpu: str) -> None:
    """Both operands are constants; what a compiler could work out, it has to work out as the device would."""
    numbers = (0.0, -0.0, 1.0, math.inf, math.nan)
    made = []
    for name in ("div", "mul", "maximum", "pow", "remainder", "floor_divide"):
        rows = [
            getattr(Tensor.full((), a, device=webgpu), name)(Tensor.full((), b, device=webgpu))
            for a in numbers
            for b in numbers
        ]
        with np.errstate(all="ignore"):
            wanted = np.array([OPS[name][0](np.float32(a), np.float32(b)) for a in numbers for b in numbers])
        made.append((name, Tensor.stack(rows), wanted))
    realize([t for _, t, _ in made])
    for name, t, wanted in made:
        at = wrong(t.numpy(), wanted, 1e-6, False)
        pairs = [(numbers[int(i) // 5], numbers[int(i) % 5], t.numpy()[i], wanted[i]) for (i,) in at]
        assert not pairs, f"{name}: (a, b, got, wanted) {pairs}"


def test_functions_of_constants(webgpu: str) -> None:
    names = (
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sin",
        "tanh",
        "abs",
        "sign",
        "floor",
        "relu",
        "isnan",
        "isinf",
        "isfinite",
    )
    made = [(n, Tensor.stack([getattr(Tensor.full((), c, device=webgpu), n)() for c in CONSTANTS])) for n in names]
    memory = Tensor(np.array(CONSTANTS, np.float32))
    realize([t for _, t in made])
    for name, t in made:
        got, wanted = t.numpy(), getattr(memory, name)().numpy()
        assert not len(at := wrong(got, wanted, 4e-6, False)), (
            f"{name}: {[(CONSTANTS[i], got[i], wanted[i]) for (i,) in at]}"
        )


def test_products_with_constants_that_are_summed(webgpu: str) -> None:
    """A sum of products is fma, a product of its own kind."""
    x = Tensor(np.repeat(VALUES[:, None], 3, 1), device=webgpu)
    weights = np.array([[0.0, 0.0], [0.0, -0.0], [0.0, 1.0]], np.float32)
    sums = [(x * c + (x * 0.0)).sum(1) for c in (0.0, 1.0, math.inf)]
    # NVIDIA's compiler (580.159) makes x * (a + b) of x * a + x * b, whatever a and b are: a constant is to do as
    # memory does.
    zeros = Tensor(np.zeros(3, np.float32), device=webgpu)
    loaded = [(x * Tensor(np.full(3, c, np.float32), device=webgpu) + x * zeros).sum(1) for c in (0.0, 1.0, math.inf)]
    product = x @ Tensor(weights, device=webgpu)
    # of four: a quarter is exact, so that equal values differ from their mean by nothing
    spread = Tensor(np.repeat(VALUES[:, None], 4, 1), device=webgpu).var(1, correction=4)
    nothing = x[:, 0].add(x[:, 1], alpha=0)
    mixed = x[:, 0].lerp(x[:, 1], 0.0)
    plain = x[:, 0].addcmul(x[:, 1], x[:, 2], value=0.0)
    realize([*sums, *loaded, product, spread, nothing, mixed, plain])
    with np.errstate(all="ignore"):
        zero = VALUES * np.float32(0)
        for c, t, same in zip((0.0, 1.0, math.inf), sums, loaded, strict=True):
            wanted = 3 * (VALUES * np.float32(c) + zero)
            factored = 3 * (VALUES * (np.float32(c) + np.float32(0)))
            at = np.intersect1d(wrong(t.numpy(), wanted, 1e-6, False), wrong(t.numpy(), same.numpy(), 1e-6, False))
            assert not len(at), c
            assert not len(
                np.intersect1d(wrong(t.numpy(), wanted, 1e-6, False), wrong(t.numpy(), factored, 1e-6, False))
            ), c
        for column in (0, 1):
            wanted = zero + zero + VALUES * weights[2, column]
            assert not len(wrong(product.numpy()[:, column], wanted, 1e-6, False)), column
        deviation = 4 * (VALUES - VALUES) ** 2 / np.float32(0)
        got = spread.numpy()
        finite = np.isfinite(VALUES) & (np.abs(VALUES) < 1e30)  # larger means overflow, or not, in their sum
        assert not len(wrong(got[finite], deviation[finite], 0, False)), got
        assert np.isnan(got[~np.isfinite(VALUES)]).all()
        for name, t, wanted in (
            ("add", nothing, VALUES + zero),
            ("lerp", mixed, VALUES + (VALUES - VALUES) * np.float32(0)),
            ("addcmul", plain, VALUES + VALUES * VALUES * np.float32(0)),
        ):
            at = wrong(t.numpy(), wanted, 0, False)
            assert not len(at), f"{name}: {[(VALUES[i], t.numpy()[i], wanted[i]) for (i,) in at]}"
