"""`anneal doctor` and `anneal cache`: this machine's devices, and what is compiled for them on its disk."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anneal import settings
from anneal.cli._flags import AdapterFlag, DeviceFlag, Reporting, alone, command, group, on_device, option, switch
from anneal.cli._output import data, fits, json_report, message, sized, table
from anneal.errors import DataError, DeviceError, SettingError, UserError
from anneal.frozen import frozen

if TYPE_CHECKING:
    from anneal.inspect import Adapter

app = alone()


@frozen
class _Question(Reporting):
    """The flags of `anneal doctor`."""

    adapter: AdapterFlag = None
    verbose: bool = typer.Option(False, "--verbose", "-v", help="List every adapter's features and limits.")
    card: bool = switch("--numerics", "Measure a device's rounding errors: functions, denormals, sums.")
    device: DeviceFlag = None


@command(app)
def doctor(asked: _Question) -> None:
    """List this machine's devices, and say what to do if there is none. Exit code 3: no hardware WebGPU
    adapter.
    """
    from anneal.inspect import advice, cpu, survey, versions

    if asked.card:
        _card(asked)
        return
    if asked.device is not None:
        raise UserError("--device says whose --numerics to measure; add --numerics")
    with on_device(None, asked.adapter):
        found, chosen, cause = survey(settings.current().adapter)
        steps = [] if chosen else advice(platform.system(), found)
        processor = cpu()
    if asked.as_json:
        json_report(
            {
                "status": "failed" if cause else "ok", "cause": cause or None, "advice": steps,
                "chosen": chosen and chosen.name, "adapters": [asdict(a) for a in found], "cpu": asdict(processor),
                "versions": versions(),
                "settings": {s.variable: getattr(settings.current(), s.field) for s in settings.TABLE},
            }
        )  # fmt: skip
    else:
        yes, no = ("\N{CHECK MARK}", "\N{BALLOT X}") if fits("\N{CHECK MARK}\N{BALLOT X}") else ("ok:", "no:")
        if chosen is not None:
            data(f"{yes} webgpu: {chosen.name} ({chosen.backend}). Next: anneal train nanogpt")
        else:
            data(f"{no} webgpu: {cause}")
        data(f"{yes} cpu: {processor.processor}, {processor.cores} cores, NumPy with {processor.blas}")
        data(f"  kernels: {processor.kernels}")
        sys.stdout.flush()
        for line in steps:
            message(f"  {line}")
        for a in found:
            _print_adapter(a, a is chosen, asked.verbose)
        data("versions: " + ", ".join(f"{k} {v}" for k, v in versions().items()))
        sys.stdout.flush()
    raise typer.Exit(DeviceError.exit_code if cause else 0)


def _card(asked: _Question) -> None:
    """Measure how a device rounds, and print it."""
    from anneal.inspect import numerics

    with on_device(asked.device, asked.adapter):
        found = numerics(settings.current().device)
    if asked.as_json:
        json_report(asdict(found))
        return
    data(f"{found.device}{f' ({found.adapter})' if found.adapter else ''}")
    rows = [[f.name, f"{f.ulps:.2f}", f"{f.at:g}", f"{f.low:g} to {f.high:g}"] for f in found.functions]
    table(["function", "ULP", "at", "arguments"], rows, words=3)
    for name, value in found.facts:
        data(f"{name}: {value}")


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


_LISTED = 50  # entries that `cache ls` reads and shows: a folder may have tens of thousands
cache = group("cache", "Inspect and prune the compilation cache on disk.")
app.add_typer(cache)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@command(cache)
def where(asked: Reporting) -> None:
    """Print the cache directory; ANNEAL_CACHE_DIR sets another, ANNEAL_CACHE=0 turns the cache off."""
    place = _place()
    asked.tell({"folder": str(place), "exists": place.is_dir(), "enabled": settings.current().cache}, place)


@frozen
class _Listing(Reporting):
    """The flags of `anneal cache ls`."""

    everything: bool = switch("--all", f"List every entry, not only the {_LISTED} used last.")


@command(cache)
def ls(asked: _Listing) -> None:
    """List the entries, most recently used first: size, age, kind, description."""
    from anneal.cache import entries

    place, most = _place(), None if asked.everything else _LISTED
    found = entries(place, most)
    shown = found[:most]
    now = time.time()
    total = sum(e.bytes for e in found)
    if asked.as_json:
        listed = [
            {
                "kind": e.kind, "file": str(e.path), "bytes": e.bytes,
                "seconds_unused": round(max(0.0, now - e.used), 1),
                "what": e.label, "state": e.state,
            }
            for e in shown
        ]  # fmt: skip
        json_report({"folder": str(place), "bytes": total, "count": len(found), "entries": listed})
        return
    for e in shown:
        note = "" if e.state == "current" else f" ({e.state})"
        data(f"{sized(e.bytes):>9}  {_age(now - e.used):>5}  {e.kind:8} {e.path.name[:8]}  {e.label}{note}")
    if len(found) > len(shown):
        data(f"and {len(found) - len(shown)} more; --all lists them")
    parts = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(e.kind for e in found).items()))
    data(f"{sized(total)} in {place}: {parts or 'nothing yet'}")


@frozen
class _Pruning(Reporting):
    """The flags of `anneal cache prune`."""

    older_than: str | None = option("Remove entries not used for AGE: 90s, 30m, 12h, 7d.", "AGE")
    max_size: str | None = option("Remove the least recently used until SIZE is left: 100MB, 1GB.", "SIZE")
    everything: bool = switch("--all", "Remove every entry.")


@command(cache)
def prune(asked: _Pruning) -> None:
    """Remove entries; they are compiled again when needed."""
    from anneal.cache import prune as remove

    older_than, max_size, everything = asked.older_than, asked.max_size, asked.everything
    if not (everything or older_than or max_size):
        raise SettingError("say what to remove: --older-than AGE, --max-size SIZE or --all")
    age = size = None
    if older_than is not None:
        wrong = f"--older-than {older_than} is not an age; write a number and s, m, h, d or w, such as 7d"
        age = _amount(older_than, _SECONDS, "", wrong)
    if max_size is not None:
        wrong = f"--max-size {max_size} is not a size; write a number and B, kB, MB or GB, such as 100MB"
        size = int(min(_amount(max_size, _BYTES, "b?", wrong), 1 << 62))
    place = _place()
    gone, freed, stuck = remove(place, max_bytes=0 if everything else size, older_than=age)
    asked.tell(
        {"folder": str(place), "removed": gone, "bytes": freed, "failed": stuck},
        f"removed {gone} {'entry' if gone == 1 else 'entries'}, {sized(freed)}",
    )
    if stuck:
        raise DataError(f"{stuck} of the entries in {place} cannot be removed; check the folder's permissions")


def _place() -> Path:
    from anneal.cache import folder

    place = folder()
    if place is None:
        raise DataError("there is no cache folder for this user; name one: ANNEAL_CACHE_DIR")
    return place


def _amount(text: str, units: Mapping[str, int], end: str, wrong: str) -> float:
    """A number and its unit, with what may stand behind that; SettingError for anything else."""
    found = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*([a-z]??){end}", text.strip().lower())
    if found is None or found[2] not in units:
        raise SettingError(wrong)
    return float(found[1]) * units[found[2]]


def _age(seconds: float) -> str:
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit]:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{max(0, int(seconds))}s"
