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
from anneal.backend.webgpu.declarations import CompiledFFI, sooner

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="this wgpu-py has no such names")


def header() -> str:
    return (Path(wgpu.__file__).parent / "resources" / "combined_header.h").read_text()


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    """The header, as cffi parses it and as wgpu-py has it here."""
    parsed = cffi.FFI()
    parsed.cdef(header())
    return parsed, native.ffi


def test_types_are_the_ones_that_parsing_finds(both: tuple[Any, Any]) -> None:
    assert type(native.ffi) is CompiledFFI
    source = "".join(p.read_text() for p in (Path(wgpu.__file__).parent / "backends" / "wgpu_native").glob("*.py"))
    named = set(re.findall(r"[\"'](WGPU\w+)(?: \*| ?\[\d*\])?[\"']", source)) - {"WGPU_LIB_PATH", "WGPU_DEBUG"}
    assert len(named) > 50
    structures = 0
    for name in sorted(named):
        found = []
        for ffi in both:
            try:
                t = ffi.typeof(name)
            except Exception:  # nothing of C
                found.append(None)
                continue
            found.append((t.kind, _name(t), ffi.sizeof(t) if t.kind == "struct" else 0, fields(t)))
        assert found[0] == found[1], name
        structures += found[0] is not None and found[0][0] == "struct"
    assert structures > 20


def fields(t: Any) -> list[Any]:
    return [(name, f.offset, _name(f.type)) for name, f in t.fields] if t.kind == "struct" and t.fields else []


def _name(t: Any) -> str:
    return str(t.cname).replace("struct ", "").replace("enum ", "")


# soon parsed
SHORT = (
    "typedef struct { float x; } first; typedef first * pointer; typedef void (*callback)(pointer); enum E { A, B };"
)


def declared(text: str) -> Any:
    with sooner():
        ffi = cffi.FFI()
        ffi.cdef(text)
    return ffi


def test_a_header_from_disk_declares_what_the_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        expected = declarations.parsed(header())
        declared(header())  # writes the entry
        monkeypatch.setattr(Parser, "_parse", lambda *_: pytest.fail("parsed"))
        assert declarations.tables(header()) == expected
        assert declared(header()).sizeof("WGPULimits") == native.ffi.sizeof("WGPULimits")
    assert cffi.FFI.__module__ == "cffi.api"


def test_a_header_whose_entry_is_broken_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        assert declared(SHORT).sizeof("first") == 4
        (entry,) = cache.entries(tmp_path)
        assert entry.path.stat().st_mode & 0o77 == 0
        entry.path.write_bytes(entry.path.read_bytes()[:-1])
        assert declared(SHORT).sizeof("first") == 4
        monkeypatch.setattr(declarations, "decode", lambda data: data["no such field"])
        assert declared(SHORT).sizeof("first") == 4


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
