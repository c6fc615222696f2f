"""The functions that WGSL lacks, or that drivers get wrong (`functions.wgsl`); a module holds those it calls."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def _series(x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule for the powers of `x` from the lowest on."""
    text = f"{coefficients[-1]!r}lf"
    for c in reversed(coefficients[:-1]):
        text = f"{c!r}lf + {x} * ({text})"
    return text


# erfc(x) = t exp(-x * x + T(4t - 2)) with t = 2 / (2 + x), for x >= 0: the Chebyshev series T (Numerical Recipes).
_ERFC = (
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
    1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
    -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip
_SERIES = {
    "EXP": _series("r", [1 / math.factorial(k) for k in range(14)]),
    "EXPM1": _series("z", [1 / math.factorial(k) for k in range(1, 18)]),
    "LOG": _series("q", [2 / (2 * k + 1) for k in range(13)]),
    "SIN": _series("q", [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]),
    "COS": _series("q", [(-1) ** k / math.factorial(2 * k) for k in range(10)]),
    "ERF": _series("q", [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(22)]),
    "ERFC": ", ".join(f"{c!r}lf" for c in _ERFC),
}
_SMALL = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32}


def _of_64_bits(functions: Mapping[str, str]) -> dict[str, str]:
    """The functions of 64 bits that are those of 32 bits with other types, and the ends of integers for f64."""
    out = {}
    for name in ("max_i32", "min_i32", "floordiv_i32", "floormod_i32"):
        text = functions[name].replace("i32", "i64")
        out[name.replace("32", "64")] = re.sub(r"\b(\d+)i\b", r"\1li", text)
    for name in ("div_u32", "mod_u32", "sign_u32"):
        text = functions[name].replace("u32", "u64")
        out[name.replace("32", "64")] = re.sub(r"\b(\d+)u\b", r"\1lu", text)
    text = functions["pow_f32"].replace("size_pow(abs(x), y)", "exp2(y * log2(abs(x)))").replace("f32", "f64")
    text = text.replace("16777216.0f", "9007199254740992.0f")
    text = text.replace("bitcast<u32>(x) >> 31u) == 1u", "bitcast<u64>(x) >> 63u) == 1lu")
    for name in ("exp2", "log2", "is_nan", "infinity"):
        text = text.replace(f"{name}(", f"{name}_f64(")
    out["pow_f64"] = re.sub(r"(\d\.\d+)f\b", r"\1lf", text.replace("quiet_nan(", "nan_f64("))
    for kind, bits in _SMALL.items():
        low = -(2 ** (bits - 1)) if kind[0] == "i" else 0
        high = 2 ** (bits - (kind[0] == "i")) - 1
        word = f"{kind[0]}32"
        out[f"to_{kind}_f64"] = (
            f"fn to_{kind}_f64(x: f64) -> {word} {{ return {word}(min(max(select(x, 0.0lf, is_nan_f64(x)), {low}.0lf), "
            f"{high}.0lf)); }}"
        )
    return out


def _written() -> dict[str, str]:
    """The functions of `functions.wgsl` by name: each is its first line, the indented ones, and a closing brace."""
    text = Path(__file__).with_name("functions.wgsl").read_text(encoding="utf-8")
    text = re.sub(r"\$(\w+)", lambda series: _SERIES[series[1]], text)
    return {f[1]: f[0] for f in re.finditer(r"^fn (\w+)\(.*(?:\n .*)*(?:\n\})?", text, re.MULTILINE)}


FUNCTIONS = _written()
FUNCTIONS |= _of_64_bits(FUNCTIONS)

_CALL = re.compile(r"\b([a-z]\w*)\(")
_VECTOR = re.compile(r"(\w+)_x([24])")


def called(body: str) -> list[str]:
    """The texts of the functions that `body` calls, and of those they call, in the order of the table.

    `NAME_x4` is NAME on each lane of a vec4.
    """
    used: set[str] = set()
    vectors: set[tuple[str, int]] = set()
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
