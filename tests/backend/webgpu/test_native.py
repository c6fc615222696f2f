"""The ways around wgpu-py's private names agree with what they replace."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import cffi
import pytest
import wgpu
from cffi.cparser import Parser

from anneal import cache, settings
from anneal.backend.webgpu import declarations, enumerate_adapters, native
from anneal.backend.webgpu.declarations import encode, look_up, sooner
from tests.tiers import thinned

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="this wgpu-py has no such names")


@pytest.mark.parametrize("part", thinned(range(4), test=4, ci=2))
def test_types_that_are_looked_up_are_the_ones_that_parsing_finds(part: int) -> None:
    parser = native.ffi._parser  # goes through all that is declared to parse a name, which is long for all of them
    source = "".join(p.read_text() for p in (Path(wgpu.__file__).parent / "backends" / "wgpu_native").glob("*.py"))
    named = set(re.findall(r"[\"']((?:WGPU\w+|char|void|uint\d+_t)(?: \*| ?\[\d*\])?|void\([\w *,]+\))[\"']", source))
    assert len(named) > 50
    others = {
        "char []", "float", "int *", "WGPUBuffer *", "const char *", "unsigned int", "void *", "int(float, char *)",
        "WGPUBuffer(WGPULimits *, void *)", "void(nothing)", "nothing", "void(", "void(void)", "WGPUDevice const *",
        "char const *", "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)", "const", "int const",
    }  # fmt: skip
    found = 0
    for name in sorted(named | others)[part::4]:
        try:
            slow = Parser.parse_type(parser, name)
        except Exception as error:
            with pytest.raises(type(error)):
                look_up(parser, name)
            continue
        with native.ffi._lock:
            assert backend_type(native.ffi, look_up(parser, name)) is backend_type(native.ffi, slow), name
        found += 1
    assert found > 12


def backend_type(ffi: Any, found: Any) -> Any:
    return ffi._get_cached_btype(found.as_function_pointer() if found.is_raw_function else found)


def test_a_plain_name_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = native.ffi._parser

    def never(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(Parser, "_parse", never)
    for name in ("WGPULimits *", "WGPUBindGroupEntry[]", "char[]", "uint32_t *", "void(WGPULimits const *, void *)"):
        parser.parse_type(name)
    with pytest.raises(AssertionError, match="parsed"):
        parser.parse_type("struct WGPULimits const *")


# as long as what is worth a file, and soon parsed
SHORT = "typedef struct { float x; } first; typedef first * pointer; typedef void (*callback)(pointer);" + " " * 20_000


def header() -> str:
    return str(native.ffi._cdefsources[0])


def declared(text: str) -> cffi.FFI:
    ffi = cffi.FFI()
    with sooner():
        ffi.cdef(text)
    return ffi


def test_a_header_from_disk_declares_what_the_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, plain = cffi.FFI(), cffi.FFI()
    whole.cdef(header())
    plain.cdef(declarations._UNUSED.sub("", header()))
    left_out = whole._parser._declarations.keys() - plain._parser._declarations.keys()
    assert len(left_out) > 100
    assert all(n.startswith("typedef WGPUProc") for n in left_out)
    expected = encode(plain._parser)
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        declared(header())  # writes the entry
        with monkeypatch.context() as patch:
            patch.setattr(Parser, "_parse", lambda *_: pytest.fail("parsed"))
            again = declared(header())
            assert again._parser._declarations
        assert encode(again._parser) == expected
        names = [n for n in plain._parser._declarations if n.startswith("struct ") and not n.endswith("Impl")]
        assert len(names) > 50
        for name in names:
            a, b = (type_of(f, name) for f in (again, plain))
            assert again.sizeof(a) == plain.sizeof(b)
            assert fields(a) == fields(b)
    assert Parser.parse.__module__ == "cffi.cparser"


def test_a_header_whose_entry_is_broken_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cffi.FFI()
    plain.cdef(SHORT)
    expected = encode(plain._parser)
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        assert encode(declared(SHORT)._parser) == expected
        (entry,) = cache.entries(tmp_path)
        entry.path.write_bytes(entry.path.read_bytes()[:-1])
        assert encode(declared(SHORT)._parser) == expected
        monkeypatch.setattr(declarations, "decode", lambda data: data["no such field"])
        assert encode(declared(SHORT)._parser) == expected


def type_of(ffi: Any, name: str) -> Any:
    """What `ffi.typeof`, which would parse the name, gives for one that is declared."""
    with ffi._lock:
        return ffi._get_cached_btype(ffi._parser._declarations[name][0])


def fields(t: Any) -> list[Any]:
    return [(name, f.offset, f.type.cname) for name, f in t.fields]


def test_only_a_first_header_is_kept(tmp_path: Path) -> None:
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        ffi = declared(SHORT)
        with sooner():
            ffi.cdef("typedef struct { int a; } one_more;" + " " * 20_000)
            ffi.cdef("typedef struct { char a; } packed_one;", packed=True)
        assert ffi.sizeof("one_more") == 4
        assert len(cache.entries(tmp_path)) == 1


def test_the_driver_keeps_its_pipelines_if_we_keep_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "__GL_SHADER_DISK_CACHE"
    monkeypatch.setenv(name, "as it was")
    for enabled, before, after in ((False, None, None), (True, None, "1"), (True, "0", "0")):
        monkeypatch.delenv(name)
        if before is not None:
            monkeypatch.setenv(name, before)
        with settings.override(cache=enabled, cache_dir=str(tmp_path)):
            enumerate_adapters()
        assert os.environ.pop(name, None) == after
        monkeypatch.setenv(name, "")
