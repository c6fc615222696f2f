"""Memory whose elements are narrower than a word: two or four of them lie in a u32, the first in its lowest bits.

A value of such a dtype is a number of the dtype that it is computed in (`register` in `codegen/target.py`); this file
has the text by which it comes out of words and goes back. A store of whole words writes them. In a sub-word store
another thread may write the rest of the word, so it is two atomic operations on bits that no other thread touches; all
of that memory is then an array of atomics.
"""

from __future__ import annotations

from dataclasses import dataclass

from anneal.uop import DType, dtypes


@dataclass(frozen=True, slots=True)
class Packed:
    """`unpack_NAME` makes a number of the bits of an element, and `pack_NAME` rounds one to such bits."""

    name: str
    bits: int

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return 32 // self.bits

    def unpack(self, bits: str, lanes: int = 1) -> str:
        """The number whose bits, each element's in a u32 of its own, are `bits`."""
        return f"unpack_{self.name}{'' if lanes == 1 else f'_x{lanes}'}({bits})"

    def pack(self, value: str, lanes: int = 1) -> str:
        """The bits of what `value` rounds to."""
        return f"pack_{self.name}{'' if lanes == 1 else f'_x{lanes}'}({value})"

    def words(self, lanes: int) -> int:
        """Words of a vector."""
        return max(1, lanes * self.bits // 32)

    def read(self, whole: str, lanes: int) -> str:
        """The vector that lies in whole words."""
        return self.unpack(f"split_{self.bits}in{lanes}({whole})", lanes)

    def written(self, value: str, lanes: int) -> str:
        """Whole words of a vector."""
        return f"join_{self.bits}in{lanes}({self.pack(value, lanes)})"

    def place(self, index: str) -> tuple[str, str]:
        """The word of an element, given as a name or a number, and how far up its bits lie in it."""
        if index.removesuffix("i").isdigit():
            at = int(index.removesuffix("i"))
            return f"{at // self.per_word}", f"{at % self.per_word * self.bits}u"
        digits, scale = self.per_word.bit_length() - 1, self.bits.bit_length() - 1
        return f"{index} >> {digits}u", f"(u32({index} & {self.per_word - 1}i) << {scale}u)"

    def element(self, word: str, shift: str) -> str:
        """The number in a part of a word."""
        low = word if shift == "0u" else f"({word} >> {shift})"
        return self.unpack(f"{low} & {self.mask}")

    @property
    def mask(self) -> str:
        """The bits of the first element of a word."""
        return f"{(1 << self.bits) - 1:#x}u"


PACKED: dict[DType, Packed] = {
    dtypes.bfloat16: Packed("bf16", 16),
    dtypes.float8_e4m3fn: Packed("e4", 8),
    dtypes.float8_e5m2: Packed("e5", 8),
    dtypes.int8: Packed("i8", 8),
    dtypes.uint8: Packed("u8", 8),
    dtypes.int16: Packed("i16", 16),
    dtypes.uint16: Packed("u16", 16),
}


def element_type(words: int, atomic: bool) -> str:
    """The WGSL type of an element of an array of so many words each."""
    if atomic:
        return "atomic<u32>"
    return "u32" if words == 1 else f"vec{words}<u32>"
