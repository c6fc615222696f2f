"""The C declarations of the wgpu library, sooner."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any

import _cffi_backend  # type: ignore[import-untyped]
import cffi

from anneal import cache

_Parsing = cffi.FFI
# The types of pointers to its functions, two hundred of them, which nobody names.
_UNUSED = r"(?m)^typedef [^;{}]*\(\s*\*\s*WGPUProc\w+\)[^;]*;"


class CompiledFFI(_cffi_backend.FFI):  # type: ignore[misc]
    """A `cffi.FFI` for one header. It has the tables that cffi writes into a Python module "out of line", so that it
    parses no C: neither the header nor the names of types."""

    def __init__(self) -> None:
        """Nothing is declared before `cdef`."""

    def cdef(self, source: str) -> None:
        """Declare what a header says."""
        super().__init__("wgpu", **tables(source))

    def set_source(self, name: str, source: None) -> None:
        """Does nothing: it is compiled already."""


@contextlib.contextmanager
def sooner() -> Iterator[None]:
    """Within the block `cffi.FFI` is a `CompiledFFI`.

    wgpu-py gives its header to cffi whenever it is imported, and cffi parses it in Python: 0.2 s. It also parses the
    name of a type, as in "WGPULimits *", when that is first used: 15 ms each, because it goes through all declared
    names, and opening a device and making a pipeline take forty.
    """
    cffi.FFI = CompiledFFI
    try:
        yield
    finally:
        cffi.FFI = _Parsing


def tables(source: str) -> Any:
    """The tables of a header, by their names: from disk, or by parsing it."""
    key = cache.disk_key("headers", cffi.__version__, source)
    # private: the library in C takes them as they are
    found = cache.load("headers", key, decode, private=True)
    if found is None:
        found = parsed(source)
        cache.save("headers", key, encode(found), f"a C header of {len(source)} characters", private=True)
    return found


def parsed(source: str) -> dict[str, Any]:
    """The tables of a header by parsing it."""
    from cffi.recompiler import make_py_source

    ffi, module = _Parsing(), io.StringIO()
    ffi.cdef(re.sub(_UNUSED, "", source))
    make_py_source(ffi, "wgpu", module)
    call: Any = ast.parse(module.getvalue()).body[-1]
    return {k.arg: ast.literal_eval(k.value) for k in call.value.keywords}


def encode(table: Any) -> Any:
    """Tables, of tuples, bytes and numbers, in lists and texts."""
    if isinstance(table, dict):
        return {name: encode(x) for name, x in table.items()}
    if isinstance(table, tuple):
        return list(map(encode, table))
    return table.decode("latin-1") if isinstance(table, bytes) else table


def decode(table: Any) -> Any:
    """The tables that `encode` wrote down."""
    if isinstance(table, dict):
        return {name: decode(x) for name, x in table.items()}
    if isinstance(table, list):
        return tuple(map(decode, table))
    return table.encode("latin-1") if isinstance(table, str) else table
