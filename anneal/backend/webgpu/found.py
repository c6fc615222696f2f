"""The implementations of WebGPU on this machine, and their adapters. ANNEAL_WEBGPU names one."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import lru_cache
from typing import Any

from anneal import settings
from anneal.backend.webgpu.implementation import Implementation
from anneal.backend.webgpu.native import Wgpu
from anneal.errors import DeviceError

_MISSING = {
    "wgpu": "the wgpu package is missing: pip install wgpu",
    "dawn": "Dawn needs the package wgpudawn, an extra: pip install wgpudawn",
}


@lru_cache(maxsize=2)
def implementation(name: str) -> Implementation:
    """The implementation "wgpu" or "dawn". Raises DeviceError where its package is not installed."""
    try:
        if name == "dawn":
            from anneal.backend.webgpu.dawn import Dawn

            return Dawn(importlib.import_module("wgpudawn"))
        return Wgpu(importlib.import_module("wgpu"))
    except ImportError as e:
        raise DeviceError(f"{_MISSING[name]} ({e})") from e


def implementation_of(adapter: Any) -> Implementation:
    """The implementation that an adapter is of."""
    return implementation("dawn" if type(adapter).__module__.startswith("wgpudawn") else "wgpu")


def enumerate_adapters(which: str | None = None) -> list[Any]:
    """The adapters of the implementation `which` ("auto", "wgpu", "dawn"), by default of ANNEAL_WEBGPU.

    "auto" is wgpu, which has 64-bit dtypes, and Dawn where wgpu finds no adapter.
    """
    which = settings.current().webgpu if which is None else which
    if which != "auto":
        return implementation(which).adapters()
    if found := implementation("wgpu").adapters():
        return found
    with suppress(DeviceError):  # it is an extra
        return implementation("dawn").adapters()
    return []
