"""`anneal doctor`: which devices this machine has, and what to do when there is none."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anneal
from anneal import settings
from anneal.cli._choices import choose_device
from anneal.cli._output import data, json_report, message
from anneal.errors import DeviceError

__all__ = ["Adapter", "advice", "doctor", "survey"]

NO_HARDWARE = DeviceError.exit_code
PACKAGES = ("numpy", "wgpu", "rich", "typer")
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
    """One WebGPU adapter, as it describes itself."""

    name: str
    backend: str
    kind: str
    driver: str
    hardware: bool
    shader_f16: bool
    features: list[str]
    limits: dict[str, int]


def survey(wanted: str) -> tuple[list[Adapter], Adapter | None, str]:
    """Every adapter, the one that anneal would use (the one called `wanted`, if that is given), and why there is none."""
    try:
        from anneal.backend.webgpu import choose_adapter
        from anneal.backend.webgpu.native import enumerate_adapters
    except (ImportError, OSError) as error:
        return [], None, f"the wgpu package does not load: {error}"
    try:
        raw = enumerate_adapters()
    except Exception as error:  # a missing or broken loader surfaces as any of several types
        return [], None, f"WebGPU did not start: {error}"
    found = [_facts(adapter) for adapter in raw]
    try:
        return found, found[raw.index(choose_adapter(raw, wanted or None, bool(wanted)))], ""
    except DeviceError as error:
        return found, None, str(error).split(";", maxsplit=1)[0]


def _facts(adapter: Any) -> Adapter:
    from anneal.backend.webgpu import describe_adapter

    info = describe_adapter(adapter)
    features = sorted(adapter.features)
    return Adapter(
        name=info.name,
        backend=info.backend,
        kind=info.kind,
        driver=info.driver,
        hardware=not info.software,
        shader_f16="shader-f16" in features,
        features=features,
        limits={name: int(adapter.limits[name]) for name in LIMITS if name in adapter.limits},
    )


def doctor(*, adapter: str | None, as_json: bool) -> int:
    """Report on the devices; 0 when there is a hardware adapter (or the one asked for), else 3."""
    with settings.override(**choose_device(None, adapter)):
        found, chosen, cause = survey(settings.current().adapter)
        steps = [] if chosen else advice(platform.system(), found)
        cpu = _cpu()
    if as_json:
        json_report(
            {
                "status": "failed" if cause else "ok",
                "cause": cause or None,
                "advice": steps,
                "chosen": chosen.name if chosen else None,
                "adapters": [asdict(a) for a in found],
                "cpu": cpu,
                "versions": _versions(),
                "settings": {s.variable: getattr(settings.current(), s.field) for s in settings.TABLE},
            }
        )
    else:
        _print(found, chosen, cpu, cause)
        for line in steps:
            message(line)
    return NO_HARDWARE if cause else 0


def advice(system: str, found: list[Adapter]) -> list[str]:
    """What to type on this system so that a hardware adapter appears, and what works meanwhile."""
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


def _cpu() -> dict[str, Any]:
    import numpy as np

    return {
        "status": "ok",
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "blas": str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]),
    }


def _versions() -> dict[str, str]:
    versions = {"anneal": anneal.__version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def _print(found: list[Adapter], used: Adapter | None, cpu: dict[str, Any], cause: str) -> None:
    for a in found:
        mark = "  <- the one anneal uses" if a is used else ""
        data(f"webgpu adapter: {a.name} ({a.backend}, {a.kind or 'unknown kind'}){mark}")
        data(f"  driver: {a.driver}")
        data(f"  shader-f16: {'yes' if a.shader_f16 else 'no'}")
        data(f"  features: {', '.join(a.features) or 'none'}")
        for name, value in a.limits.items():
            size = f" ({value / 2**20:,.0f} MiB)" if "size" in name and value >= 2**20 else ""
            data(f"  {name}: {value}{size}")
    if not found:
        data("webgpu adapter: none")
    data(f"cpu device: {cpu['status']} ({cpu['processor']}, {cpu['cores']} cores, NumPy with {cpu['blas']})")
    data("versions: " + ", ".join(f"{k} {v}" for k, v in _versions().items()))
    data(f"status: {cause or 'ok'}")
    sys.stdout.flush()
