"""Run bundles as the page sees them: what `anneal train --bundle` wrote, its own and the command line's."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Runs"]

_ID = re.compile(r"[\w][\w.-]{0,120}")
LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Runs:
    """The bundles in a folder."""

    folder: Path

    def all(self) -> list[dict[str, Any]]:
        """The manifest of every bundle without its list of files, the latest first."""
        found = []
        for path in sorted(self.folder.glob("*/manifest.json"), reverse=True)[:2000]:
            if not path.parent.name.startswith("."):
                manifest = _json(path)
                if isinstance(manifest, dict):
                    manifest.pop("files", None)
                    found.append({**manifest, "id": path.parent.name, "command": _command(manifest)})
        return found

    def one(self, id: str) -> dict[str, Any] | None:
        """All of a bundle but its kernels' text: manifest, options, settings, losses, schedule, sample."""
        place = self._place(id)
        if place is None:
            return None
        manifest = _json(place / "manifest.json") or {}
        events = _lines(place / "events.jsonl")
        return {
            **manifest,
            "id": id,
            "command": _command(manifest),
            "config": _json(place / "config.json"),
            "schedule": _json(place / "schedule.json"),
            "losses": _losses(place / "loss.csv"),
            "events": [e for e in events if e.get("event") != "step"],
            "vitals": [e for e in events if e.get("event") == "step" and "lr" in e],
            "picture": (place / "picture.png").is_file(),
        }

    def picture(self, id: str) -> bytes | None:
        """The picture that a run drew."""
        place = self._place(id)
        return _bytes(place / "picture.png") if place is not None else None

    def kernel(self, id: str, name: str) -> str | None:
        """The text of a run's kernel."""
        place = self._place(id)
        if place is None or not _ID.fullmatch(name):
            return None
        text = _bytes(place / "kernels" / f"{name}.wgsl")
        return None if text is None else text.decode("utf-8", "replace")

    def _place(self, id: str) -> Path | None:
        """The folder of a bundle: one of those that are there, by its name."""
        if not _ID.fullmatch(id) or ".." in id:
            return None
        place = self.folder / id
        return place if (place / "manifest.json").is_file() and not place.is_symlink() else None


def _command(manifest: dict[str, Any]) -> str:
    found = manifest.get("command")
    return shlex.join(["anneal", *map(str, found)]) if isinstance(found, list) else ""


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST and not path.is_symlink() else None
    except OSError:
        return None


def _json(path: Path) -> Any:
    try:
        return json.loads(_bytes(path) or b"null")
    except ValueError:
        return None


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in (_bytes(path) or b"").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _losses(path: Path) -> list[list[float]]:
    """Step, loss and milliseconds of each step."""
    rows = csv.reader((_bytes(path) or b"").decode("utf-8", "replace").splitlines()[1:])
    found = []
    for row in rows:
        try:
            values = [float(x) for x in row]
        except ValueError:
            continue
        if len(values) == 3 and all(map(math.isfinite, values)):
            found.append(values)
    return found
