"""`anneal doctor`: which devices this machine has, and what to do when there is none."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict

from anneal import settings
from anneal.cli._choices import choose_device
from anneal.cli._output import data, json_report, message
from anneal.errors import DeviceError
from anneal.inspect import Adapter, Cpu, advice, cpu, survey, versions

__all__ = ["doctor"]

NO_HARDWARE = DeviceError.exit_code


def doctor(*, adapter: str | None, as_json: bool) -> int:
    """Report on the devices; 0 when there is a hardware adapter (or the one asked for), else 3."""
    with settings.override(**choose_device(None, adapter)):
        found, chosen, cause = survey(settings.current().adapter)
        steps = [] if chosen else advice(platform.system(), found)
        processor = cpu()
    if as_json:
        json_report(
            {
                "status": "failed" if cause else "ok",
                "cause": cause or None,
                "advice": steps,
                "chosen": chosen.name if chosen else None,
                "adapters": [asdict(a) for a in found],
                "cpu": asdict(processor),
                "versions": versions(),
                "settings": {s.variable: getattr(settings.current(), s.field) for s in settings.TABLE},
            }
        )
    else:
        _print(found, chosen, processor, cause)
        for line in steps:
            message(line)
    return NO_HARDWARE if cause else 0


def _print(found: list[Adapter], used: Adapter | None, processor: Cpu, cause: str) -> None:
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
    data(
        f"cpu device: {processor.status} ({processor.processor}, {processor.cores} cores, NumPy with {processor.blas})"
    )
    data("versions: " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    data(f"status: {cause or 'ok'}")
    sys.stdout.flush()
