"""What torch's casts make of extreme values: `python -m tests.tensor.torch_casts` writes torch_casts.json with it.

A float outside an integer's range is whatever C makes of it, which is other numbers on other processors: torch has
them through int64 for integers of 8 and 16 bits, where they are kept to its last bits, and those alone are here.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("torch_casts.json")
DTYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64",
)  # fmt: skip
ENDS = [v for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64) for v in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1)]
INTEGERS = [0, 1, 2, 3, -1, -2, -7, 31, 100, 300, -300, 1000, 70000, -70000, 16777217, *ENDS]
SIZES = (
    0.0, 0.5, 0.99, 1.0, 1.5, 2.5, 3.7, 127.0, 127.5, 128.0, 129.0, 200.7, 255.0, 255.9, 256.0, 300.0, 448.0, 464.0, 1000.0,
    32767.0, 32768.0, 57344.0, 61440.0, 65504.0, 65519.0, 65520.0, 65535.0, 65536.0, 70000.0, 1e6, 16777217.0, 2.0**31 - 1, 2.0**31,
    2.0**32 - 1, 2.0**32, 2.0**53, 2.0**62, 1e-3, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-24, 2.0**-25, 2.0**-126, 2.0**-149,
    3.3895314e38, 3.4e38, 3.5e38, 1e300, 5e-324, math.inf, math.nan,
)  # fmt: skip
FLOATS = [s * v for v in SIZES for s in (1.0, -1.0)]


def told(value: Any) -> Any:
    """A number as JSON has it."""
    return repr(value) if isinstance(value, float) else int(value)


def kept(source: str, target: str, value: float) -> bool:
    """Whether what C makes of a float is the same on all processors, or torch's way through int64 decides."""
    if source == "bool" or "float" not in source or "int" not in target:
        return True
    bits = int(target.lstrip("uint"))
    if bits <= 16:
        return math.isfinite(value) and abs(value) < 2**31
    return math.isfinite(value) and (
        -1 < value < 2**bits if target[0] == "u" else -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    )


def main() -> None:
    import torch

    table: dict[str, dict[str, list[Any]]] = {}
    for source in DTYPES:
        kind = getattr(torch, source)
        if source == "bool":
            x = torch.tensor([False, True])
        elif "float" in source:
            x = torch.tensor(FLOATS, dtype=torch.float64).to(kind)
            x = x.to(torch.float64).unique(sorted=True).to(kind)
        else:
            info = torch.iinfo(kind)
            x = torch.tensor(sorted({v for v in INTEGERS if info.min <= v <= info.max}), dtype=kind)
        values = x.tolist()
        table[source] = {"": [told(v) for v in values]}
        for target in DTYPES:
            out = x.to(getattr(torch, target)).tolist()
            table[source][target] = [
                told(r) if kept(source, target, v) else None for r, v in zip(out, values, strict=True)
            ]
    lines = [
        f' "{source}": {{\n' + ",\n".join([f'  "{t}": {json.dumps(row)}' for t, row in rows.items()]) + "\n }"
        for source, rows in table.items()
    ]
    PATH.write_text(f'{{\n "torch": "{torch.__version__}",\n' + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
