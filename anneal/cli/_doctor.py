"""`anneal doctor`: which devices this machine has, and what to do when there is none."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict

from anneal import settings
from anneal.cli._choices import choose_device
from anneal.cli._output import data, fits, json_report, message, table
from anneal.errors import DeviceError
from anneal.inspect import Adapter, Cpu, advice, cpu, survey, versions

__all__ = ["doctor"]

NO_HARDWARE = DeviceError.exit_code


def doctor(*, adapter: str | None, verbose: bool, as_json: bool) -> int:
    """Report on the devices, the verdict first; 0 when there is a hardware adapter (or the one asked for), else 3."""
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
        _print_verdict(chosen, processor, cause)
        sys.stdout.flush()
        for line in steps:
            message(f"  {line}")
        for a in found:
            _print_adapter(a, a is chosen, verbose)
        data("versions: " + ", ".join(f"{k} {v}" for k, v in versions().items()))
        sys.stdout.flush()
    return NO_HARDWARE if cause else 0


def numerics_card(device: str | None, adapter: str | None, *, as_json: bool) -> int:
    """Measure how a device rounds, and print it; 0."""
    from anneal.inspect import numerics

    with settings.override(**choose_device(device, adapter)):
        found = numerics(settings.current().device)
    if as_json:
        json_report(asdict(found))
        return 0
    data(f"{found.device}{f' ({found.adapter})' if found.adapter else ''}")
    rows = [[f.name, f"{f.ulps:.2f}", f"{f.at:g}", f"{f.low:g} to {f.high:g}"] for f in found.functions]
    table(["function", "ULP", "at", "arguments"], rows, words=3)
    for name, value in found.facts:
        data(f"{name}: {value}")
    return 0


def _print_verdict(used: Adapter | None, processor: Cpu, cause: str) -> None:
    yes, no = ("\N{CHECK MARK}", "\N{BALLOT X}") if fits("\N{CHECK MARK}\N{BALLOT X}") else ("ok:", "no:")
    if used is not None:
        data(f"{yes} webgpu: {used.name} ({used.backend}). Next: anneal train nanogpt")
    else:
        data(f"{no} webgpu: {cause}")
    data(f"{yes} cpu: {processor.processor}, {processor.cores} cores, NumPy with {processor.blas}")


def _gives(a: Adapter) -> list[tuple[bool, str]]:
    return [(a.shader_f16, "shader-f16"), (a.wide, "64-bit dtypes"), (a.tensor_cores, "tensor cores")]


def _print_adapter(a: Adapter, used: bool, verbose: bool) -> None:
    mark = "  <- the one anneal uses" if used else ""
    way = f"{a.backend} by {a.implementation}"
    data(f"adapter {a.number}: {a.name} ({way}, {a.kind or 'unknown kind'}, driver {a.driver}){mark}")
    if not verbose:
        largest = a.limits.get("max-buffer-size", 0)
        has = [f"{'' if yes else 'no '}{what}" for yes, what in _gives(a)]
        data(
            f"  {', '.join(has)}, buffers up to {largest / 2**20:,.0f} MiB, {len(a.features)} features: --verbose lists"
        )
        return
    for yes, what in _gives(a):
        data(f"  {what}: {'yes' if yes else 'no'}")
    data(f"  features: {', '.join(a.features) or 'none'}")
    for name, value in a.limits.items():
        size = f" ({value / 2**20:,.0f} MiB)" if "size" in name and value >= 2**20 else ""
        data(f"  {name}: {value}{size}")
