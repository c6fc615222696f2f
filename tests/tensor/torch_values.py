"""Calls with whole numbers for results, the same to the last bit everywhere: `python -m tests.tensor.torch_values`
writes torch_values.json with them. `an` in a call is torch there and anneal in the tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("torch_values.json")
SIZES = ((5, 5), (3, 9), (2, 2), (11, 4))
CALLS = [
    # images of bytes, rounded after each axis
    *[f"F.interpolate(U, size={size}, mode='{mode}', align_corners={corners}, antialias={wide})"
      for size in SIZES for mode in ("bilinear", "bicubic") for corners in (False, True) for wide in (False, True)],
    *[f"F.interpolate(U, scale_factor=(1.7, 0.6), mode='{mode}', antialias={wide})" for mode in ("bilinear", "bicubic") for wide in (False, True)],
    "F.interpolate(U, size=(3, 3), mode='nearest')", "F.interpolate(U, size=(3, 3), mode='nearest-exact')",
    "F.interpolate(an.full((1, 1, 1, 300), 255).to(an.uint8), size=(1, 2), mode='bilinear', antialias=True)",
    # windows of nothing
    "X.unfold(1, 0, 8)", "X.unfold(0, 0, 1)", "an.ones(0).unfold(0, 0, 1)", "an.tensor(1.0).unfold(0, 1, 1)", "an.tensor(1.0).unfold(0, 0, 1)",
    "X.unfold(-1, 2, 2)", "X.unfold(2, 4, 3)",
    # integers into integers of another width, and what is cast on purpose
    "an.zeros(3, dtype=an.int32).scatter_add(0, an.tensor([0, 2, 0]), an.ones(3, dtype=an.int32))",
    "an.zeros(3, 3).half().diagonal_scatter(an.ones(3))", "an.zeros(3, 3).half().select_scatter(an.ones(3), 0, 1)",
    "an.zeros(3).half().index_fill(0, an.tensor([1]), an.tensor(2.0))", "an.zeros(3).half().masked_fill(an.tensor([True, False, True]), an.tensor(2.0))",
    "an.zeros(3).half().copy_(an.ones(3))", "an.eye(2, dtype=an.bool)", "an.full((2,), 1, dtype=an.bool)",
]  # fmt: skip


def called(an: Any, call: str) -> Any:
    """What a call makes, in torch or in anneal."""
    image = (an.arange(144).reshape(2, 3, 4, 6) * 37 % 256).to(an.uint8)
    return eval(call, {"an": an, "F": an.nn.functional, "X": an.arange(24).reshape(2, 3, 4).float(), "U": image})


def told(x: Any) -> list[Any]:
    """The dtype, the shape and the numbers of a tensor, as JSON has them."""
    return [str(x.dtype).rpartition(".")[2], list(x.shape), [int(n) for n in x.reshape(-1).tolist()]]


def main() -> None:
    import torch

    values = {call: told(called(torch, call)) for call in CALLS}
    rows = ",\n".join(f"{json.dumps(call)}: {json.dumps(value)}" for call, value in values.items())
    PATH.write_text(f'{{"torch": "{torch.__version__}", "values": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
