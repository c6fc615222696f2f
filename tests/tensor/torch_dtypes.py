"""The dtypes of torch's results: `python -m tests.tensor.torch_dtypes` writes torch_dtypes.json with it.

Each function of one and of two arguments is called with every dtype, and pair of dtypes, and with Python's numbers in
either place.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("torch_dtypes.json")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
NUMBERS = {"True": True, "1": 1, "1.0": 1.0}
ONE = """
    abs neg sign square sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc reciprocal floor ceil round trunc frac sgn signbit isnan isfinite isinf isreal positive deg2rad
    rad2deg logit sum prod mean std var median amax amin max min argmax argsort sort count_nonzero cumsum cumprod
    logcumsumexp nansum nanmean softmax log_softmax logsumexp norm relu clone bitwise_not logical_not digamma lgamma sinc i0 diff
    trapezoid unique cov corrcoef histc quantile nan_to_num
""".split()  # noqa: SIM905
TWO = """
    add sub mul div true_divide floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2 hypot copysign
    nextafter logaddexp logaddexp2 ldexp xlogy eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm heaviside where outer kron dot matmul inner isclose
""".split()  # noqa: SIM905
ALONG = ("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax", "logsumexp")


def cases(name: str) -> Iterator[tuple[str, ...]]:
    """The dtypes, or numbers, of a function's arguments."""
    if name in ONE:
        yield from ((d,) for d in DTYPES)
        return
    yield from itertools.product(DTYPES, DTYPES)
    for d, n in itertools.product(DTYPES, NUMBERS):
        yield d, n
        yield n, d


def dtype_of(library: Any, name: str, case: tuple[str, ...], made: Callable[[list[int], str], Any]) -> str:
    """The dtype of a call's (first) result, or "error"."""
    args = [NUMBERS[c] if c in NUMBERS else made([1, 1], c) for c in case]
    args = [made([1, 0], "bool"), *args] if name == "where" else [*args, 0] if name in ALONG else args
    args = [*args, 0.5] if name == "quantile" else args
    try:
        out = (getattr(library, name, None) or getattr(library.nn.functional, name))(*args)
    except Exception:
        return "error"
    out = out[0] if isinstance(out, (tuple, list)) else out
    return str(out.dtype).rpartition(".")[2]


def main() -> None:
    import torch

    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, str]] = {}
    for name in ONE + TWO:
        rows[name] = {}
        for case in cases(name):
            found = dtype_of(torch, name, case, lambda v, d: torch.tensor(v).to(getattr(torch, d)))
            if found != "error":  # where torch refuses, a result is no other one
                rows[name].setdefault(found, "")
                rows[name][found] = f"{rows[name][found]} {','.join(case)}".strip()
    lines = ",\n".join([f' "{name}": {json.dumps(row)}' for name, row in rows.items()])
    PATH.write_text(f'{{\n "torch": "{torch.__version__}",\n{lines}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
