"""Choosing an adapter, and saying what to do when there is none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from anneal import settings
from anneal.backend.webgpu.implementation import Implementation
from anneal.backend.webgpu.native import Wgpu
from anneal.errors import DeviceError
from anneal.frozen import frozen

_SOFTWARE = ("llvmpipe", "lavapipe", "swiftshader", "microsoft basic render")


@frozen
class AdapterInfo:
    """An adapter's description of itself."""

    name: str
    backend: str
    kind: str
    driver: str
    vendor: str

    @property
    def software(self) -> bool:
        """Does the CPU do the work?"""
        return self.kind == "CPU" or any(s in self.name.lower() for s in _SOFTWARE)


def describe_adapter(adapter: Any) -> AdapterInfo:
    """The facts of a wgpu adapter."""
    keys = ("device", "backend_type", "adapter_type", "description", "vendor")
    name, *others = [str(adapter.info.get(key, "")) for key in keys]
    return AdapterInfo(name or "unnamed", *others)


# The least number of threads of a subgroup, by PCI vendor: NVIDIA, AMD, Apple, Intel. Others report it themselves.
_SUBGROUPS = {0x10DE: 32, 0x1002: 32, 0x106B: 32, 0x8086: 8}


def subgroup_size(info: Mapping[str, Any]) -> int:
    """The number of neighbouring threads that are sure to be in one subgroup, where the adapter of this `info` has
    subgroup operations.
    """
    # wgpu-py 0.32 misspells the key; 4 is what WebGPU promises.
    reported = info.get("subgroup_min_size") or info.get("stackgroup_min_size") or 4
    return max(int(reported), _SUBGROUPS.get(int(info.get("vendor_id") or 0), 4))


_FIXES = {
    "linux": (
        "likely cause: no Vulkan driver. Install the GPU maker's driver, or mesa-vulkan-drivers for AMD and Intel "
        "(apt install mesa-vulkan-drivers), and check with: vulkaninfo --summary"
    ),
    "darwin": "likely cause: a virtual machine without Metal, or macOS before 10.15. Run on the host, or update macOS",
    "win32": "likely cause: an old graphics driver. Update it from the GPU maker's page, then check with: dxdiag",
}


def fix_for(platform: str) -> str:
    """Advice for this system when no adapter is found."""
    return _FIXES.get(platform, _FIXES["linux"]) + "; or use device 'cpu'"


def choose_adapter(found: Sequence[Any], wanted: str | None, allow_software: bool) -> Any:
    """The best of `found`: hardware before software; Vulkan, Metal, DX12 before others; of equals the first. `wanted`
    is the number of one in the list, a part of its name, or ":2" for number 2 of those that are best, counted round.

    Raises DeviceError, with the likely cause and what to type, if none will do.
    """
    if not found:
        raise DeviceError(f"no WebGPU adapter was found; {fix_for(sys.platform)}")
    infos = [(describe_adapter(a), a) for a in found]
    names = ", ".join(sorted({f"{i.name} ({i.backend})" for i, _ in infos}))
    fit, turn = infos, 0
    if wanted and wanted.startswith(":") and wanted[1:].isdecimal():
        wanted, turn = "", int(wanted[1:])
    if wanted and wanted.isdecimal() and int(wanted) < len(found):
        return found[int(wanted)]
    if wanted:
        fit = [(i, a) for i, a in infos if wanted.lower() in f"{i.name} {i.vendor} {i.backend}".lower()]
        if not fit:
            raise DeviceError(f"no WebGPU adapter is called {wanted!r}, or has that number; there are: {names}")
    elif not allow_software:
        fit = [(i, a) for i, a in infos if not i.software]
        if not fit:
            raise DeviceError(
                f"the only WebGPU adapter is software: {names}; {fix_for(sys.platform)}; "
                f"to use it all the same, name it: ANNEAL_ADAPTER={infos[0][0].name.split()[0]}"
            )
    first = min([_rank(i) for i, _ in fit])
    best = [a for i, a in fit if _rank(i) == first]
    return best[turn % len(best)]


_KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU")
_BACKENDS = ("Vulkan", "Metal", "D3D12")


def _rank(info: AdapterInfo) -> tuple[bool, int, int]:
    kinds, backends = (*_KINDS, info.kind), (*_BACKENDS, info.backend)  # others come last
    return info.software, kinds.index(info.kind), backends.index(info.backend)


# ---------------------------------------------------------------------------------------------------------------------
# The implementations of WebGPU on this machine, and their adapters. ANNEAL_WEBGPU names one.


_MISSING = {
    "wgpu": "the wgpu package is missing: pip install wgpu",
    "dawn": "Dawn needs the package wgpudawn, an extra: pip install wgpudawn",
}


@lru_cache(maxsize=2)
def implementation(name: str) -> Implementation:
    """The implementation "wgpu" or "dawn". Raises DeviceError where its package is not installed."""
    try:
        if name == "dawn":
            from anneal.backend.webgpu.implementation import Dawn

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
