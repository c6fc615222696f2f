"""`anneal doctor`."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anneal import settings
from anneal.cli._choices import on_device
from anneal.cli._flags import AdapterFlag, DeviceFlag, Json, Quiet, alone, switch
from anneal.cli._output import data, fits, json_report, message, table
from anneal.errors import DeviceError, UserError

if TYPE_CHECKING:
    from anneal.inspect import Adapter, Cpu


app = alone()


@app.command()
def doctor(
    adapter: AdapterFlag = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every adapter's features and limits.")] = False,
    card: Annotated[
        bool, switch("--numerics", "Measure a device's rounding errors: functions, denormals, sums.")
    ] = False,
    device: DeviceFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """List this machine's devices, and say what to do if there is none. Exit code 3: no hardware WebGPU
    adapter.
    """
    from anneal.inspect import advice, cpu, survey, versions

    if card:
        _card(device, adapter, as_json)
        return
    if device is not None:
        raise UserError("--device says whose --numerics to measure; add --numerics")
    with on_device(None, adapter):
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
    raise typer.Exit(DeviceError.exit_code if cause else 0)


def _card(device: str | None, adapter: str | None, as_json: bool) -> None:
    """Measure how a device rounds, and print it."""
    from anneal.inspect import numerics

    with on_device(device, adapter):
        found = numerics(settings.current().device)
    if as_json:
        json_report(asdict(found))
        return
    data(f"{found.device}{f' ({found.adapter})' if found.adapter else ''}")
    rows = [[f.name, f"{f.ulps:.2f}", f"{f.at:g}", f"{f.low:g} to {f.high:g}"] for f in found.functions]
    table(["function", "ULP", "at", "arguments"], rows, words=3)
    for name, value in found.facts:
        data(f"{name}: {value}")


def _print_verdict(used: Adapter | None, processor: Cpu, cause: str) -> None:
    yes, no = ("\N{CHECK MARK}", "\N{BALLOT X}") if fits("\N{CHECK MARK}\N{BALLOT X}") else ("ok:", "no:")
    if used is not None:
        data(f"{yes} webgpu: {used.name} ({used.backend}). Next: anneal train nanogpt")
    else:
        data(f"{no} webgpu: {cause}")
    data(f"{yes} cpu: {processor.processor}, {processor.cores} cores, NumPy with {processor.blas}")
    data(f"  kernels: {processor.kernels}")


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
