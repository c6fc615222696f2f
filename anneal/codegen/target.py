"""Features and limits of a device, as far as generated code relies on them."""

from __future__ import annotations

from anneal.frozen import frozen
from anneal.rewrite import COMPUTED
from anneal.uop import DType, dtypes

# Dtypes of which several elements lie in a word of memory: computed in others.
PACKED = frozenset(COMPUTED) - {dtypes.float16}
_PLAIN = frozenset((dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool_, *PACKED))


def register(dtype: DType) -> DType:
    """The dtype of a value in a register: its own, unless memory packs it.

    >>> register(dtypes.bfloat16), register(dtypes.uint8), register(dtypes.float16)
    (dtypes.float32, dtypes.uint32, dtypes.float16)
    """
    return COMPUTED[dtype] if dtype in PACKED else dtype


def per_word(dtype: DType) -> int:
    """Elements of a word of memory; 1 where an element can be written by itself.

    >>> per_word(dtypes.int8), per_word(dtypes.float16)
    (4, 1)
    """
    return 32 // dtype.bits if dtype in PACKED else 1


@frozen
class MatrixShape:
    """Subgroup matrices that a device multiplies: m by k and k by n numbers of the dtype `operands` with sums of the
    dtype `result`."""

    operands: str
    result: str
    m: int
    n: int
    k: int


HALVES = MatrixShape("float16", "float32", 16, 16, 16)  # the matrices that kernels use


@frozen
class Target:
    """Features and limits of a device; the defaults are those that every WebGPU device has.

    `dialect`: the language that its kernels are printed in, one of `DIALECTS`.
    `subgroup`: so many threads, aligned and neighbouring, exchange values without memory or barriers; 0: none do.
    `names_subgroups`: WGSL has to name the extension before it uses them (Tint), or may not (naga).
    `matrices`: the subgroup matrices that it multiplies; none by default.
    `barriers`: whether its threads wait for each other cheaply; a driver that runs kernels on the CPU takes seconds to
    compile a wait.
    `lanes`: the most neighbouring 4-byte values that a vector holds; `unaligned`: vectors begin at any element, so that
    the last of a row begins earlier where its end is in the way.
    `rounds_halves`: its `pack2x16float` rounds to the nearest float16, halfway to even, subnormals, infinity and nan
    with it.
    `binding_bytes`: the most that one storage binding shows. `f16`, `int64`, `float64`: whether it has those dtypes.
    """

    max_threads: int = 256
    max_workgroups: int = 65535
    workgroup_bytes: int = 16384
    f16: bool = False
    subgroup: int = 0
    binding_bytes: int = 1 << 27
    int64: bool = False
    float64: bool = False
    names_subgroups: bool = False
    matrices: tuple[MatrixShape, ...] = ()
    dialect: str = "wgsl"
    barriers: bool = True
    lanes: int = 4
    unaligned: bool = False
    rounds_halves: bool = False

    @property
    def dtypes(self) -> frozenset[DType]:
        found = set(_PLAIN)
        if self.f16:
            found.add(dtypes.float16)
        if self.int64:
            found |= {dtypes.int64, dtypes.uint64}
        if self.float64 and self.int64:  # whose bits are looked at as integers
            found.add(dtypes.float64)
        return frozenset(found)
