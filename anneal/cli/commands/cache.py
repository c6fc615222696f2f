"""`anneal cache`."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from anneal import settings
from anneal.cli._flags import Json, Quiet, group, switch
from anneal.cli._lines import sized
from anneal.cli._output import data, json_report
from anneal.errors import DataError, SettingError

app = group("cache", "Inspect and prune the compilation cache on disk.")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@app.command("where")
def where(quiet: Quiet = False, as_json: Json = False) -> None:
    """Print the cache directory; ANNEAL_CACHE_DIR sets another, ANNEAL_CACHE=0 turns the cache off."""
    place = _place()
    if as_json:
        json_report({"folder": str(place), "exists": place.is_dir(), "enabled": settings.current().cache})
        return
    data(str(place))


@app.command("ls")
def ls(quiet: Quiet = False, as_json: Json = False) -> None:
    """List the entries, most recently used first: size, age, kind, description."""
    from anneal.cache import entries

    place = _place()
    found = entries(place)
    now = time.time()
    total = sum(e.bytes for e in found)
    if as_json:
        listed = [
            {
                "kind": e.kind, "file": str(e.path), "bytes": e.bytes,
                "seconds_unused": round(max(0.0, now - e.used), 1),
                "what": e.label, "state": e.state,
            }
            for e in found
        ]  # fmt: skip
        json_report({"folder": str(place), "bytes": total, "entries": listed})
        return
    for e in found:
        note = "" if e.state == "current" else f" ({e.state})"
        data(f"{sized(e.bytes):>9}  {_age(now - e.used):>5}  {e.kind:8} {e.path.name[:8]}  {e.label}{note}")
    kinds = Counter(e.kind for e in found)
    parts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    data(f"{sized(total)} in {place}: {parts or 'nothing yet'}")


@app.command("prune")
def prune(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove entries not used for AGE: 90s, 30m, 12h, 7d.")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Remove the least recently used until SIZE is left: 100MB, 1GB."),
    ] = None,
    everything: Annotated[bool, switch("--all", "Remove every entry.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove entries; they are compiled again when needed."""
    from anneal.cache import prune as remove

    if not (everything or older_than or max_size):
        raise SettingError("say what to remove: --older-than AGE, --max-size SIZE or --all")
    age = None if older_than is None else _seconds(older_than)
    size = None if max_size is None else _bytes(max_size)
    place = _place()
    gone, freed, stuck = remove(place, max_bytes=0 if everything else size, older_than=age)
    if as_json:
        json_report({"folder": str(place), "removed": gone, "bytes": freed, "failed": stuck})
    else:
        data(f"removed {gone} {'entry' if gone == 1 else 'entries'}, {sized(freed)}")
    if stuck:
        raise DataError(f"{stuck} of the entries in {place} cannot be removed; check the folder's permissions")


def _place() -> Path:
    from anneal.cache import folder

    place = folder()
    if place is None:
        raise DataError("there is no cache folder for this user; name one: ANNEAL_CACHE_DIR")
    return place


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if found is None:
        raise SettingError(f"--older-than {text} is not an age; write a number and s, m, h, d or w, such as 7d")
    return float(found[1]) * _SECONDS[found[2]]


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?", text.strip().lower())
    if found is None:
        raise SettingError(f"--max-size {text} is not a size; write a number and B, kB, MB or GB, such as 100MB")
    return int(min(float(found[1]) * _BYTES[found[2]], 1 << 62))


def _age(seconds: float) -> str:
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit]:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{max(0, int(seconds))}s"
