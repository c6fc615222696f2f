"""Calls with whole numbers for results, the same to the last bit everywhere: `python -m tests.tensor.torch_values`
writes torch_values.json with them. `an` in a call is torch there and anneal in the tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_name("torch_values.json")
SIZES = ((5, 5), (3, 9), (2, 2), (11, 4))
CALLS = [
    # images of bytes, rounded after each axis
    *[f"F.interpolate(U, size={size}, mode='{mode}', align_corners={corners}, antialias={wide})"
      for size in SIZES for mode in ("bilinear", "bicubic") for corners in (False, True) for wide in (False, True)],
    *[f"F.interpolate(U, scale_factor=(1.7, 0.6), mode='{mode}', antialias={wide})" for mode in ("bilinear", "bicubic") for wide in (False, True)],
    # an axis that stays as long as it was is copied, whatever the scale; not by "bicubic" alone
    *[f"F.interpolate(U, scale_factor={scale}, mode='{mode}', antialias={wide})" for scale in ((1.1, 1.1), (1.1, 2), (2, 1.1))
      for mode in ("bilinear", "bicubic") for wide in (False, True)],
    "F.interpolate(X * 64, scale_factor=1.2, mode='linear')", "F.interpolate(X[None] * 64, scale_factor=(2, 1.2), mode='bilinear')",
    "F.interpolate(X[None] * 64, scale_factor=(2, 1.2), mode='bilinear', antialias=True)",
    "F.interpolate(X[None, None] * 64, scale_factor=(1, 2, 1.2), mode='trilinear')",
    # losses with a weight of each element: the mean of huber_loss alone divides by their number
    *[f"F.{loss}(M * 2, M * 6, weight=M + 1, reduction='{r}') * 12" for loss in ("mse_loss", "l1_loss", "huber_loss") for r in ("none", "sum")],
    *[f"F.{loss}(an.tensor([6.0, 0.0]), an.zeros(2), weight=an.tensor([1.0, 3.0]))" for loss in ("mse_loss", "huber_loss")],
    "F.l1_loss(an.tensor([4.0, 0.0]), an.zeros(2), weight=an.tensor([1.0, 3.0]))",
    # torch's names of arguments
    "an.addcmul(input=M, tensor1=M, tensor2=M, value=2)", "an.addcdiv(M, tensor1=M, tensor2=M * 0 + 1)",
    "an.addmm(input=M @ M.T, mat1=M, mat2=M.T, beta=2)", "an.mm(input=M, mat2=M.T)", "F.bilinear(input1=M, input2=M, weight=an.ones(1, 4, 4))",
    "an.dot(input=M[0], tensor=M[1])", "an.mv(input=M, vec=M[0])", "an.outer(input=M[0], vec2=M[1])", "an.pow(input=M, exponent=2)",
    "an.gather(M, 0, an.tensor([[0, 1]]), sparse_grad=False)", "an.isin(elements=M, test_elements=an.tensor([1.0, 5.0])).int()",
    "an.max(input=M, other=M * 0 + 3)", "an.searchsorted(sorted_sequence=an.tensor([1.0, 3.0]), input=an.tensor([2.0])).int()",
    "an.tensordot(a=M, b=M.T, dims=1)", "an.split(tensor=M, split_size_or_sections=2, dim=1)[1]", "an.hsplit(M, indices=[1])[1]", "M.view(dtype=an.int32)",
    "F.interpolate(U, size=(3, 3), mode='nearest')", "F.interpolate(U, size=(3, 3), mode='nearest-exact')",
    "F.interpolate(an.full((1, 1, 1, 300), 255).to(an.uint8), size=(1, 2), mode='bilinear', antialias=True)",
    # windows of nothing
    "X.unfold(1, 0, 8)", "X.unfold(0, 0, 1)", "an.ones(0).unfold(0, 0, 1)", "an.tensor(1.0).unfold(0, 1, 1)", "an.tensor(1.0).unfold(0, 0, 1)",
    "X.unfold(-1, 2, 2)", "X.unfold(2, 4, 3)",
    # integers into integers of another width, and what is cast on purpose
    "an.zeros(3, dtype=an.int32).scatter_add(0, an.tensor([0, 2, 0]), an.ones(3, dtype=an.int32))",
    "an.zeros(3, 3).half().diagonal_scatter(an.ones(3))", "an.zeros(3, 3).half().select_scatter(an.ones(3), 0, 1)",
    "an.zeros(3).half().index_fill(0, an.tensor([1]), an.tensor(2.0))", "an.zeros(3).half().masked_fill(an.tensor([True, False, True]), an.tensor(2.0))",
    # bools in an index: masks of shape ()
    *[f"X[{index}]" for index in ("True", "False", "None, True", "True, None", "0, True", "True, 0", "False, 0", "..., True", "True, False",
      "True, [0, 1]", "[0, 1], True", ":, True", "0, :, True", "True, :, [0, 1]", "an.tensor(True), 1:", "1, an.tensor(False)", ":, False", "1:, True, None")],
    "an.tensor(5.0)[True]", "an.tensor(5.0)[False]", *[f"an.zeros(2, 3).index_put((an.tensor([1]),), an.ones(3))[{i}]" for i in ("True, 1", "0, False")],
    # integers
    *[f"an.vander(an.tensor([-7, 3, 100], dtype=an.{kind}), {more}).to(an.int32)" for kind in ("int8", "int16", "int32") for more in ("4", "4, True", "0", "1")],
    "an.vander(an.tensor([True, False]), 3).to(an.int32)",
    *[f"an.add(an.tensor([True, False]), an.tensor([{other}, {other}]), alpha={alpha})" for other in (True, False) for alpha in (0, 2, True)],
    *[f"an.addcmul(I, I, I, value={value})" for value in (0.5, 2, 2.7, -1.5)], "an.addcmul(I.float(), I, I, value=0.5).mul(2)",
    "I.masked_fill(I > 0, 7.0)", "I.masked_fill(I > 1, -0.0)", "(I > 0).masked_fill(I > 1, 0.0)", "an.nansum(X, 1, dtype=an.int32)",
    # whole quotients, weights near an end, differences beyond the dtype, NumPy's numbers, numbers beyond float16
    "an.div(an.tensor([1.0, -1.0, 7.0, 6.0, -0.5]), an.tensor([0.1, 0.1, -2.0, 3.0, 1.0]), rounding_mode='trunc')",
    *[f"an.div(an.tensor([float('inf'), -float('inf'), 5.0]), {by}, rounding_mode='trunc').clamp(-9, 9)" for by in ("2.0", "an.tensor(-2.0)")],
    *[f"an.lerp(an.tensor([1e8, -4.0]), an.tensor([1.0, 8.0]), {weight})" for weight in ("1", "1.0", "0.25", "an.tensor([1.0, 0.75])", "np.float64(0.5)")],
    "an.isclose(an.tensor([0, -128, 127, 100], dtype=an.int8), an.tensor([-128, 127, 127, 100], dtype=an.int8))",
    "an.isclose(an.tensor([True, False]), an.tensor([True, True]))", "an.isclose(I * 0 + 2147483647, I - 2)",
    "an.gcd(an.tensor([1, 3, 0, 12], dtype=an.int8), an.tensor([-128, -128, -128, -8], dtype=an.int8))",
    *[f"{where}, np.{number}(3))" for number in ("int64", "float32", "uint8") for where in ("an.where(I > 1, I.to(an.int8)", "I.half().where(I > 1")],
    "an.pow(np.int64(2), M[0].half())", "an.sub(np.float32(2), M[0].half())",
    *[f"(an.tensor([0.5, -0.25, 2048.0]).half() {op} {by}).clamp(-60000, 60000)" for op, by in (("*", "65536.0"), ("*", "2**17"), ("/", "131072.0 * 32768"))],
    "2.0**20 / (M[0].half() + 32)", "an.tensor([256.0]).half().mul_(100000.0 / 1024 / 2).int()", "an.tensor([64.0]).half().div_(65536.0).mul(1024)",
    "an.trapezoid(X, M[:2, :3].T.reshape(2, 3)[:, :, None].expand(2, 3, 4))", "an.trapezoid(X, M)", "an.cumulative_trapezoid(X, M, dim=1)",
    "an.trapezoid(X, M[0])", "an.zeros(2, dtype=an.result_type(X, U)) + 1", "an.zeros(2, dtype=an.result_type(U, 2))",
    *[f"an.cdist(an.zeros(2, 0), an.zeros(3, 0), {p})" for p in ("0.0", "1.0", "2.0", "float('inf')")], "F.pdist(an.zeros(3, 0), float('inf'))",
    *[f"an.tensor([88.0, -1000.0, 60000.0]).half().round(decimals={n})" for n in (3, 1, -1)],
    "an.zeros(3).half().copy_(an.ones(3))", "an.eye(2, dtype=an.bool)", "an.full((2,), 1, dtype=an.bool)",
    # many axes: more than letters, up to NumPy's
    *[f"an.arange(8.0).reshape((2, 2, 2) + (1,) * {n}){op}.flatten()" for n in (6, 24, 50, 61) for op in (
        ".sum(0)", ".mT", ".transpose(0, -1)", ".flip(1)", "[1, ..., 0]", ".cumsum(1)", ".sort(0, descending=True)[0]", ".max(1)[1].int()",
        ".sum(tuple(range(1, 9)))", ".roll(1, 0)", f".expand(*[-1] * {n + 2}, 3)",
        f".gather(0, an.zeros((1, 2, 2) + (1,) * {n}, dtype=an.int64))", ".topk(1, 0)[0]", ".repeat_interleave(2, 1)",
        ".masked_fill(an.tensor(True), 3)", ".diagonal(0, 0, 1)", ".squeeze()", ".argmax().int().reshape(1)", ".var(0)", ".prod(2)")],
    *[f"an.einsum('a...,b...->...', x := an.arange(8.0).reshape((2, 2, 2) + (1,) * {n}), x).flatten()" for n in (6, 24)],
    *[f"an.cat([x := an.arange(8.0).reshape((2, 2, 2) + (1,) * {n}), x], 1).flatten()" for n in (6, 24, 50, 61)],
    *[f"an.tensordot(x := an.arange(8.0).reshape((2, 2, 2) + (1,) * {n}), x, {n}).sum(0).flatten()" for n in (6, 24)],
]  # fmt: skip


def called(an: Any, call: str) -> Any:
    """The result of the text of a call, where `an` is torch or anneal."""
    image = (an.arange(144).reshape(2, 3, 4, 6) * 37 % 256).to(an.uint8)
    return eval(
        call,
        {
            "an": an,
            "np": np,
            "F": an.nn.functional,
            "X": an.arange(24).reshape(2, 3, 4).float(),
            "M": an.arange(12).reshape(3, 4).float(),
            "U": image,
            "I": an.arange(3, dtype=an.int32),
        },
    )


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
