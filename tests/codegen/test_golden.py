"""The WGSL of a dozen kernels, word for word.

`python -m tests.codegen.test_golden --update` writes the texts anew; read the difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anneal.codegen import MatrixShape, Opt, Target, generate
from anneal.uop import Op, UOp
from tests.codegen import kernels as K

FOLDER = Path(__file__).parent / "golden"

KERNELS: dict[str, tuple[UOp, list[Opt] | None]] = {
    "elementwise": (K.elementwise(12, 65), None),
    "transpose": (K.transpose(30, 20), None),
    "adam": (K.adam(1000), None),
    "matmul": (K.matmul(256, 256, 64), None),
    "matmul_uneven": (K.matmul(65, 70, 30), None),
    "matmul_shared_depth": (K.matmul(32, 32, 512), None),
    "sum_of_all": (K.row_reduce(Op.ADD, 1, 65536), None),
    "max_of_rows": (K.row_reduce(Op.MAX, 700, 65), None),
    "sum_of_columns": (K.column_reduce(Op.ADD, 2048, 128), None),
    "logsumexp": (K.logsumexp(64, 256), None),
    "padded_conv": (K.padded_conv(100, 3), None),
    "embedding": (K.embedding(768, 128, 65), None),
    "segment_sum": (K.segment_sum(65, 128, 768), None),
    "argsort": (K.argsort(768), None),
    "any_bool": (K.row_reduce(Op.MAX, 3, 10, K.BOOL), [Opt("FLAT", 0, 3)]),
    "half_product": (K.half_product(256, 128, 64, "bias", b_across=True), K.by_matrices(0, 2, 2, 2, 2, 2)),
    "f16_sum": (K.row_reduce(Op.ADD, 4, 64, K.F16), None),
}
TARGET = Target(f16=True)
TARGETS = {
    "half_product": Target(
        f16=True, subgroup=32, names_subgroups=True, matrices=(MatrixShape("float16", "float32", 16, 16, 16),)
    )
}


def text(name: str) -> str:
    graph, opts = KERNELS[name]
    return generate(graph, TARGETS.get(name, TARGET), opts).source


@pytest.mark.parametrize("name", KERNELS)
def test_wgsl_is_as_recorded(name: str) -> None:
    assert text(name) == (FOLDER / f"{name}.wgsl").read_text(), "python -m tests.codegen.test_golden --update"


def test_no_recorded_text_is_left_over() -> None:
    assert {p.stem for p in FOLDER.glob("*.wgsl")} == set(KERNELS)


if __name__ == "__main__" and "--update" in sys.argv:
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.wgsl"):
        stale.unlink()
    for each in KERNELS:
        (FOLDER / f"{each}.wgsl").write_text(text(each))
