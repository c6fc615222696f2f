"""Kernels printed in C, compiled by the machine's compiler, beside the oracle: the socket for dialects is real."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anneal.backend import numpy_dtype
from anneal.codegen import GeneratedKernel, Opt, Target, generate
from anneal.codegen.dialects import C_TARGET
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, const, dtypes, toposort
from tests.backend.kernel_oracle import run_kernel
from tests.codegen import kernels as K

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="this machine has no C compiler")


def compiled(source: str, folder: Path) -> ctypes._CFuncPtr:
    """The function `kernel` of a text."""
    assert COMPILER is not None
    (folder / "kernel.c").write_text(source)
    flags = ["-O2", "-march=native", "-fwrapv", "-ffp-contract=off", "-fopenmp-simd", "-fPIC", "-shared", "-Wall"]
    flags += ["-Wno-unused-function", "-Wno-unused-variable", "-Wno-psabi"]
    command = [COMPILER, *flags, "-o", "kernel.so", "kernel.c", "-lm"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not made.returncode, made.stderr + source
    return ctypes.CDLL(str(folder / "kernel.so")).kernel


def contents(sink: UOp) -> list[np.ndarray]:
    """Numbers for the memory of a kernel, by slot."""
    rng = np.random.default_rng(1)
    params = {u.arg[0]: u for u in toposort((sink,)) if u.op is Op.PARAM}
    out = []
    for slot in range(1 + max(params)):
        dtype, size = params[slot].dtype, params[slot].arg[1]
        numbers = rng.normal(size=size) if dtype.is_float else rng.integers(0, 2 if dtype.bits == 8 else 100, size)
        out.append(numbers.astype(numpy_dtype(dtype)))
    return out


def run(kernel: GeneratedKernel, memory: Sequence[np.ndarray], folder: Path) -> None:
    pointers = (ctypes.c_void_p * len(memory))(*[m.ctypes.data for m in memory])
    function = compiled(kernel.source, folder)
    middle = kernel.launch.workgroups // 2  # workgroups may run in any order, and in several calls
    function(pointers, ctypes.c_long(middle), ctypes.c_long(kernel.launch.workgroups))
    function(pointers, ctypes.c_long(0), ctypes.c_long(middle))


def check(sink: UOp, folder: Path, opts: Sequence[Opt] | None = None, memory: Sequence[np.ndarray] = ()) -> None:
    """The kernel in C does what the oracle says of its graph."""
    given = list(memory) or contents(sink)
    expected = [m.copy() for m in given]
    run_kernel(sink, expected)
    run(generate(sink, C_TARGET, opts), given, folder)
    for found, right in zip(given, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)


KERNELS: dict[str, tuple[UOp, list[Opt] | None]] = {
    "elementwise": (K.elementwise(12, 65), None),
    "in vectors": (K.elementwise(12, 64), [Opt("VECTORIZE", 1, 4)]),
    "transpose": (K.transpose(30, 20), None),
    "transpose in registers": (K.transpose(32, 16), [Opt("UPCAST", 0, 4), Opt("VECTORIZE", 1, 4)]),
    "adam": (K.adam(1000), None),
    "embedding": (K.embedding(20, 8, 65), None),
    "gates": (K.padded_conv(100, 3), None),
    "ranks": (K.argsort(50), None),
    "a sum": (K.row_reduce(Op.ADD, 7, 65), None),
    "a largest": (K.row_reduce(Op.MAX, 7, 64), [Opt("VECTORIZE", 1, 4)]),
    "bools": (K.row_reduce(Op.MAX, 3, 10, K.BOOL), None),
    "columns": (K.column_reduce(Op.ADD, 20, 12), None),
    "two reductions": (K.logsumexp(6, 25), None),
    "rows": (K.softmax(6, 16), None),
    "a product": (K.matmul(12, 10, 8), None),
    "a product in registers": (K.matmul(16, 16, 32), [Opt("UPCAST", 0, 2), Opt("UPCAST", 1, 4), Opt("UNROLL", 2, 2)]),
    "a tiled product": (K.matmul(16, 16, 32), [Opt("UPCAST", 0, 2), Opt("UPCAST", 1, 4), Opt("TILE", 2, 8)]),
    "an uneven tiled product": (K.matmul(13, 18, 30), [Opt("UPCAST", 0, 2), Opt("UPCAST", 1, 4), Opt("TILE", 2, 8)]),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_in_c_does_what_the_oracle_says(name: str, tmp_path: Path) -> None:
    check(KERNELS[name][0], tmp_path, KERNELS[name][1])


_WHOLE = [Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR]
_OF_TWO = {
    K.F32: [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.POW, Op.IDIV, Op.MOD],
    dtypes.float64: [Op.DIV, Op.MAX, Op.IDIV, Op.MOD],
    K.I32: _WHOLE, K.U32: _WHOLE, dtypes.int64: _WHOLE, dtypes.uint64: _WHOLE, dtypes.int8: [Op.ADD, Op.MUL, Op.MAX],
}  # fmt: skip
_FLOAT = [
    Op.NEG, Op.ABS, Op.SIGN, Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.SQRT,
    Op.RSQRT, Op.RECIP, Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC,
]  # fmt: skip
_OF_ONE = {K.F32: _FLOAT, dtypes.float64: _FLOAT, K.I32: [Op.NEG, Op.ABS, Op.SIGN, Op.NOT], K.BOOL: [Op.NOT]}


def ends(dtype: DType) -> list[float]:
    """Numbers at the ends of what a dtype has, and around zero."""
    if dtype.is_float:
        return [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -3.0, 1e30, math.inf, -math.inf, math.nan]
    return [0, 1, 2, 3, 7, 31, 32, 33, int(dtype.max), int(dtype.min), int(dtype.max) - 1, int(dtype.min) + 1]


@needs_compiler
@pytest.mark.parametrize("dtype", [*_OF_TWO, K.BOOL], ids=lambda d: d.name)
def test_each_op_of_a_dtype_is_the_oracles(dtype: DType, tmp_path: Path) -> None:
    numbers = np.array(ends(dtype) if dtype is not K.BOOL else [0, 1] * 6, numpy_dtype(dtype))
    n = numbers.size**2
    i = K.loop(n, 0)
    x, y = K.load(K.param(0, n, dtype), i), K.load(K.param(1, n, dtype), i)
    known = (
        y.ne(0.0).where(y, y.const_like(1.0)) if dtype.is_float else y
    )  # of x // 0.0 the oracle says nan, devices infinity
    values = [op(x, known if op in (Op.IDIV, Op.MOD) else y) for op in _OF_TWO.get(dtype, ())]
    values += [op(x) for op in _OF_ONE.get(dtype, ())]
    values += [x < y, x.eq(y), x.ne(y), (x < y).where(x, y)]
    values += [x.cast(d) for d in (K.F32, K.I32, K.U32, dtypes.int64, dtypes.uint8, K.BOOL) if d is not dtype]
    out = [K.param(2 + k, n, v.dtype) for k, v in enumerate(values)]
    memory = [np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)]
    memory += [np.zeros(n, numpy_dtype(v.dtype)) for v in values]
    with np.errstate(all="ignore"):
        check(K.sink(*[K.store(p, i, v) for p, v in zip(out, values, strict=True)]), tmp_path, None, memory)


def _conv(n: int, channels: int, width: int) -> UOp:
    """A padded convolution of a row, three places wide, with a bias."""
    i, o, x = K.loop(n, 0), K.loop(5, 1), K.loop(width, 2)
    c, k = K.over(channels, 3), K.over(3, 4)
    at = x + k - 1
    inside = (Op.LT(at, const(K.I32, 0)).ne(True)) & (at < width)
    pixel = UOp(Op.LOAD, K.F32, (K.param(1, n * channels * width), (i * channels + c) * width + at, inside))
    total = UOp(
        Op.REDUCE, K.F32, (pixel * K.load(K.param(2, 5 * channels * 3), (o * channels + c) * 3 + k), c, k), Op.ADD
    )
    return K.sink(K.store(K.param(0, n * 5 * width), (i * 5 + o) * width + x, total + K.load(K.param(3, 5), o)))


# Extents that are no multiple of the lanes, fewer than one vector, and one more than it.
@needs_compiler
@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("n", [3, 17])
def test_ends_of_rows_are_the_oracles_with_any_lanes(lanes: int, n: int, tmp_path: Path) -> None:
    kernels = [K.elementwise(3, n), K.row_reduce(Op.ADD, 3, n), K.row_reduce(Op.MAX, n, 5), K.softmax(2, n), K.matmul(3, n, 5),
               K.matmul(5, 3, n), K.adam(n), _conv(2, 3, n), K.transpose(n, 3)]  # fmt: skip
    for number, sink in enumerate(kernels):
        folder = tmp_path / str(number)
        folder.mkdir()
        given, expected = contents(sink), contents(sink)
        run_kernel(sink, expected)
        run(generate(sink, replace(C_TARGET, lanes=lanes)), given, folder)
        for found, right in zip(given, expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)


@needs_compiler
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_floats_of_16_bits_are_rounded_as_numpy_rounds_them(dtype: DType, tmp_path: Path) -> None:
    numbers = np.float32(
        [0.0, -0.0, 1.0, 1 + 2**-11, 1 + 3 * 2**-11, 65504, 65520, 1e-7, 6e-8, 2e-8, -3e38, np.inf, np.nan]
    )
    x = np.resize(numbers, 40)
    i = K.loop(40, 0)
    narrow = K.load(K.param(0, 40), i).cast(dtype)
    sink = K.sink(K.store(K.param(1, 40, dtype), i, narrow), K.store(K.param(2, 40), i, narrow.cast(K.F32) * 2.0))
    memory = [x, np.zeros(40, numpy_dtype(dtype)), np.zeros(40, np.float32)]
    run(generate(sink, C_TARGET), memory, tmp_path)
    with np.errstate(over="ignore"):
        rounded = x.astype(memory[1].dtype).astype(np.float32)
        np.testing.assert_array_equal(memory[1].astype(np.float32), rounded)
        np.testing.assert_array_equal(memory[2], rounded * 2)


@needs_compiler
def test_any_split_of_workgroups_gives_the_same_bits(tmp_path: Path) -> None:
    for number, sink in enumerate(
        [K.softmax(9, 40), K.matmul(30, 50, 40), _conv(3, 4, 20), K.column_reduce(Op.ADD, 40, 50)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        kernel = generate(sink, C_TARGET)
        once, apart = contents(sink), contents(sink)
        run(kernel, once, folder)
        function = ctypes.CDLL(str(folder / "kernel.so")).kernel
        pointers = (ctypes.c_void_p * len(apart))(*[m.ctypes.data for m in apart])
        for at in reversed(range(kernel.launch.workgroups)):
            function(pointers, ctypes.c_long(at), ctypes.c_long(at + 1))
        for a, b in zip(once, apart, strict=True):
            assert a.tobytes() == b.tobytes()


@needs_compiler
def test_bits_constants_and_random_numbers_are_the_oracles(tmp_path: Path) -> None:
    i = K.loop(64, 0)
    x, n = K.load(K.param(0, 64), i), K.load(K.param(1, 64, K.U32), i)
    values = [
        UOp(Op.BITCAST, K.U32, (x,)),
        UOp(Op.BITCAST, K.F32, (n,)),
        UOp(Op.THREEFRY, K.U32, (n, n + 1, n + 2)),
        x + const(K.F32, math.inf),
        Op.MAX(x, const(K.F32, -1.5)),
        n.cast(K.I32) + const(K.I32, -(2**31)),
        n.cast(dtypes.int64) + const(dtypes.int64, -(2**63)),
    ]
    out = [K.param(2 + k, 64, v.dtype) for k, v in enumerate(values)]
    check(K.sink(*[K.store(p, i, v) for p, v in zip(out, values, strict=True)]), tmp_path)


def test_a_kernel_in_c_is_one_function_of_its_memory_and_workgroups() -> None:
    text = generate(K.elementwise(12, 65), C_TARGET).source.partition("/* vectors */\n")[2]
    made, _, body = text.partition("void kernel")
    assert made == "EXP(f32, 16)\nLOAD(f32, 16)\nSTORE(f32, 16)\n"
    assert body == (
        "(void **memory, long begin, long end) {\n"
        "  f32 *restrict p0 = memory[0];\n"
        "  const f32 *restrict p1 = memory[1];\n"
        "  const f32 *restrict p2 = memory[2];\n"
        "  for (long at = begin > 0 ? begin : 0; at < end && at < 1; at += 1) {\n"
        "    const i32 wg = at - 0;\n"
        "    for (i32 lid = 0; lid < 60; lid += 1) {\n"
        "      const i32 n0 = min_i32(((i32)((u32)lid % (u32)5)) * 16, 49);\n"
        "      const i32 n1 = (((i32)((u32)lid / (u32)5)) * 65) + n0;\n"
        "      const f32x16 x0 = load_f32x16(p1 + n1);\n"
        "      const f32x16 x1 = load_f32x16(p2 + n0);\n"
        "      store_f32x16(p0 + n1, exp_f32x16(x0) + x1);\n"
        "    }\n"
        "  }\n"
        "}\n"
    )


def test_parts_of_which_one_stores_what_another_reads_are_refused() -> None:
    i, counter = K.loop(3, 0), K.param(1, 1)
    reads = K.store(K.param(0, 3), i, K.load(counter, 0) * 2.0)
    with pytest.raises(CompilerError, match="one part of a kernel stores what another part reads"):
        generate(K.sink(reads, K.store(counter, 0, K.load(counter, 0) + 1.0)), C_TARGET)


def test_what_c_lacks_is_said() -> None:
    with pytest.raises(CompilerError, match="no C for threads"):
        generate(K.row_reduce(Op.ADD, 4, 64), C_TARGET, [Opt("GROUP", 1, 16)])
    with pytest.raises(CompilerError, match="no C for float8_e5m2"):
        generate(K.row_reduce(Op.ADD, 4, 64, dtypes.float8_e5m2), C_TARGET)


def test_a_dialect_that_nobody_has_is_none() -> None:
    with pytest.raises(KeyError, match="fortran"):
        generate(K.elementwise(4, 4), replace(Target(), dialect="fortran"))


def test_a_long_chain_behind_a_product_is_written_out_for_few_results() -> None:
    """Compilers take seconds over quantised layers' ends, which are alike for each result that registers hold."""
    written = {}
    for steps in (1, 10, 60):
        i, j, k = K.loop(128, 0), K.loop(128, 1), K.over(64, 2)
        a, b = K.load(K.param(1, 8192), i * 64 + k), K.load(K.param(2, 8192), k * 128 + j)
        value = K.reduce(Op.ADD, a * b, k)
        for _ in range(steps):
            value = Op.TANH(value)
        source = generate(K.sink(K.store(K.param(0, 16384), i * 128 + j, value)), C_TARGET).source
        written[steps] = source.count("tanh_f32x") / steps
    assert written[1] == written[10] >= 16, "enough sums to keep a processor busy"
    assert written[60] <= 8
