"""The functions that WGSL lacks, or that drivers get wrong (`functions.wgsl`); a module holds those it calls."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path


def _series(x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule for the powers of `x` from the lowest on."""
    text = f"{coefficients[-1]!r}lf"
    for c in reversed(coefficients[:-1]):
        text = f"{c!r}lf + {x} * ({text})"
    return text


# erfc(x) = t exp(-x * x + T(4t - 2)) with t = 2 / (2 + x), for x >= 0: the Chebyshev series T (Numerical Recipes).
_ERFC = """
    -1.3026537197817094 6.4196979235649026e-1 1.9476473204185836e-2 -9.561514786808631e-3 -9.46595344482036e-4
    3.66839497852761e-4 4.2523324806907e-5 -2.0278578112534e-5 -1.624290004647e-6 1.303655835580e-6 1.5626441722e-8
    -8.5238095915e-8 6.529054439e-9 5.059343495e-9 -9.91364156e-10 -2.27365122e-10 9.6467911e-11 2.394038e-12
    -6.886027e-12 8.94487e-13 3.13092e-13 -1.12708e-13 3.81e-16 7.106e-15 -1.523e-15 -9.4e-17 1.21e-16 -2.8e-17
"""
_SERIES = {
    "EXP": _series("r", [1 / math.factorial(k) for k in range(14)]),
    "EXPM1": _series("z", [1 / math.factorial(k) for k in range(1, 18)]),
    "LOG": _series("q", [2 / (2 * k + 1) for k in range(13)]),
    "SIN": _series("q", [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]),
    "COS": _series("q", [(-1) ** k / math.factorial(2 * k) for k in range(10)]),
    "ERF": _series("q", [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(22)]),
    "ERFC": ", ".join(f"{float(c)!r}lf" for c in _ERFC.split()),
}


def _written() -> dict[str, str]:
    """The functions of `functions.wgsl` by name: each is its first line, the indented ones, and a closing brace."""
    text = Path(__file__).with_name("functions.wgsl").read_text(encoding="utf-8")
    text = re.sub(r"\$(\w+)", lambda series: _SERIES[series[1]], text)
    return {f[1]: f[0] for f in re.finditer(r"^fn (\w+)\(.*(?:\n .*)*(?:\n\})?", text, re.MULTILINE)}


def _of_64_bits(text: str) -> str:
    """An integer function of 32 bits, of 64."""
    return re.sub(r"\b(\d+)([iu])\b", r"\1l\2", re.sub(r"([iu])32", r"\g<1>64", text))


_BOTH = "max_i32 min_i32 floordiv_i32 floormod_i32 div_u32 mod_u32 sign_u32"
FUNCTIONS = _written()
FUNCTIONS |= {name.replace("32", "64"): _of_64_bits(FUNCTIONS[name]) for name in _BOTH.split()}

_CALL = re.compile(r"\b([a-z]\w*)\(")
_VECTOR = re.compile(r"(\w+)_x([24])")


def called(body: str) -> list[str]:
    """The texts of the functions that `body` calls, and of those they call, in the order of the table.

    `NAME_x4` is NAME on each lane of a vec4.
    """
    used = set()
    vectors = set()
    texts = [body]
    while texts:
        for name in set(_CALL.findall(texts.pop())):
            by_lane = _VECTOR.fullmatch(name)
            if by_lane is not None and by_lane[1] in FUNCTIONS and name not in FUNCTIONS:
                vectors.add((by_lane[1], int(by_lane[2])))
                name = by_lane[1]
            if name in FUNCTIONS and name not in used:
                used.add(name)
                texts.append(FUNCTIONS[name])
    return [FUNCTIONS[f] for f in FUNCTIONS if f in used] + [_by_lane(name, n) for name, n in sorted(vectors)]


_SIGNATURE = re.compile(r"fn \w+\(([^)]*)\) -> (\w+)")


def _by_lane(name: str, lanes: int) -> str:
    """A function on vectors that calls `name` for each lane."""
    found = _SIGNATURE.match(FUNCTIONS[name])
    assert found is not None
    parameters = [p.split(": ") for p in found[1].split(", ")]
    given = ", ".join(f"{p}: vec{lanes}<{t}>" for p, t in parameters)
    calls = ", ".join(f"{name}({', '.join(f'{p}.{c}' for p, _ in parameters)})" for c in "xyzw"[:lanes])
    result = f"vec{lanes}<{found[2]}>"
    return f"fn {name}_x{lanes}({given}) -> {result} {{ return {result}({calls}); }}"
