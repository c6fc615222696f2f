"""The ways around wgpu-py's private names agree with what they replace."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import wgpu

from anneal import settings
from anneal.backend.webgpu import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="this wgpu-py has no such names")


def test_types_that_are_looked_up_are_the_ones_that_parsing_finds() -> None:
    parser = native.ffi._parser
    parse = type(parser).parse_type
    source = "".join(p.read_text() for p in (Path(wgpu.__file__).parent / "backends" / "wgpu_native").glob("*.py"))
    named = set(re.findall(r"[\"']((?:WGPU\w+|char|void|uint\d+_t)(?: \*| ?\[\d*\])?)[\"']", source))
    assert len(named) > 50
    found = 0
    for name in sorted(named | {"char []", "float", "int *", "WGPUBuffer *", "const char *", "unsigned int"}):
        try:
            slow = parse(parser, name)
        except Exception as error:
            with pytest.raises(type(error)):
                parser.parse_type(name)
            continue
        with native.ffi._lock:
            assert native.ffi._get_cached_btype(parser.parse_type(name)) is native.ffi._get_cached_btype(slow), name
        found += 1
    assert found > 50


def test_a_plain_name_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = native.ffi._parser

    def never(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(type(parser), "_parse", never)
    for name in ("WGPULimits *", "WGPUBindGroupEntry[]", "char[]", "uint32_t *"):
        parser.parse_type(name)
    with pytest.raises(AssertionError, match="parsed"):
        parser.parse_type("struct WGPULimits const *")


def test_the_driver_keeps_its_pipelines_if_we_keep_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "__GL_SHADER_DISK_CACHE"
    monkeypatch.setenv(name, "as it was")
    for enabled, before, after in ((False, None, None), (True, None, "1"), (True, "0", "0")):
        monkeypatch.delenv(name)
        if before is not None:
            monkeypatch.setenv(name, before)
        with settings.override(cache=enabled, cache_dir=str(tmp_path)):
            native.enumerate_adapters()
        assert os.environ.pop(name, None) == after
        monkeypatch.setenv(name, "")
