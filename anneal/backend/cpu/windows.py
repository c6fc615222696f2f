"""Windows: reduces over the few places of overlapping windows, which are folded place by place.

A convolution of each channel by itself, or a pool, reduces over the places ("taps") of a window: few for each output,
and many outputs for each tap. As one array of products and one reduce, every product would be written to memory and
summed along axes of three elements. Tap by tap, each is a pass over arrays of the output's size:

    out = x[at tap 0] * w[tap 0];  part = x[at tap 1] * w[tap 1];  out += part;  ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anneal.backend.cpu.index import Bounds, Linear
from anneal.uop import Op, UOp

# A window of more taps is a reduce like any other: its calls would take longer than its work.
MOST = 128
# Fewer outputs than this are not worth two calls a tap.
LEAST = 1024
# Nanoseconds: NumPy's way from one row of an array to the next, an element that is read or written out of order, an
# element that is not beside the one before it.
_ROW_NS, _ASTRAY_NS, _STEP_NS = 15.0, 1.0, 0.35


@dataclass(slots=True)
class Window:
    """A reduce over taps: the factors of its body, and the load (`main`) whose windows overlap."""

    factors: tuple[UOp, ...]
    main: UOp
    taps: int


@dataclass(slots=True)
class Access:
    """Memory as a kernel walks it: elements a step in each dim, and how many elements there are."""

    dims: Mapping[int, int]
    elements: int

    @property
    def inner(self) -> int:
        """The dim with the smallest step."""
        return min(self.dims, key=lambda s: abs(self.dims[s]))


def factors_of(u: UOp) -> tuple[UOp, ...]:
    """The factors that a reduce's body multiplies, if it adds products; else the body."""
    body = u.src[0]
    return body.src if u.arg is Op.ADD and body.op is Op.MUL else (body,)


def overlaps(form: Linear, over: int, extent: Sequence[int]) -> bool:
    """True if one place in memory is read for several outputs, through dims that a reduce ends and dims that it
    keeps.
    """
    for tap, a in form.dims.items():
        for kept, b in form.dims.items():
            if over >> tap & 1 and not over >> kept & 1:
                for x, y, n in ((abs(a), abs(b), extent[tap]), (abs(b), abs(a), extent[kept])):
                    if x and y % x == 0 and y < x * n:
                        return True
    return False


def forms_of(form: Linear, over: int, top: Sequence[int]) -> list[Bounds] | None:
    """Windows without borders as sums of a kept dim and a tap's, each bounded by what it takes; None if the steps do
    not tell which belong together."""
    found: list[Bounds] = []
    used: set[int] = set()
    for tap, a in form.dims.items():
        if not over >> tap & 1:
            continue
        near = [s for s, b in form.dims.items() if not over >> s & 1 and s not in used and a > 0 and b % a == 0]
        near = [s for s in near if form.dims[s] // a <= top[tap] + 1 and form.dims[s] > 0]
        if len(near) != 1:
            return None
        used.add(near[0])
        step = form.dims[near[0]] // a
        found.append(Bounds({near[0]: step, tap: 1}, 0, step * top[near[0]] + top[tap] + 1))
    return found


def innermost(
    order: Sequence[int],
    kept: Sequence[int],
    taps: int,
    main: Access,
    others: Sequence[Access],
    step: Callable[[int], int],
    extent: Sequence[int],
) -> int:
    """The dim that lies innermost while windows are folded: rows of it should be long, and what is laid out otherwise
    has to be turned round.

    `kept` are the dims of the outputs, `step(s)` how far neighbouring windows are apart along s, in elements.
    """
    elements = math.prod(extent[s] for s in kept)

    def nanoseconds(s: int) -> float:
        rows = _ROW_NS * taps * elements / extent[s]
        steps = _STEP_NS * taps * elements * (step(s) > 1)
        turned = main.elements * _ASTRAY_NS * (main.inner != s)
        return rows + steps + turned + sum([_ASTRAY_NS * x.elements for x in others if x.inner != s])

    last = [s for s in order if s in kept]
    return min(reversed(last), key=nanoseconds)
