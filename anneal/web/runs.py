"""Run bundles as the page sees them: what `anneal train --bundle` wrote, its own and the command line's."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anneal.web.uploads import Uploads

NAME = re.compile(r"[\w][\w.-]{0,120}")
LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Runs:
    """The bundles in a folder, and those that were dropped as .zip files."""

    folder: Path
    uploads: Uploads

    def all(self) -> list[dict[str, Any]]:
        """The manifest of every bundle without its list of files, the latest first."""
        names = [p.parent.name for p in sorted(self.folder.glob("*/manifest.json"), reverse=True)[:2000]]
        dropped = [u.id for u in self.uploads.all() if u.kind == "run"]
        found = []
        for name in (*[n for n in names if not n.startswith(".")], *dropped):
            place = self.place(name)
            manifest = None if place is None else json_of(place, "manifest.json")
            if isinstance(manifest, dict):
                manifest.pop("files", None)
                found.append({**manifest, "id": name, "command": _command(manifest), "dropped": name in dropped})
        return sorted(found, key=lambda m: str(m.get("begun", "")), reverse=True) if dropped else found

    def one(self, id: str) -> dict[str, Any] | None:
        """All of a bundle but its kernels' text: manifest, options, settings, losses, schedule, sample."""
        place = self.place(id)
        manifest = None if place is None else json_of(place, "manifest.json")
        if place is None or not isinstance(manifest, dict):
            return None
        events = _lines(place, "events.jsonl")
        return {
            **manifest,
            "id": id,
            "command": _command(manifest),
            "config": json_of(place, "config.json"),
            "schedule": json_of(place, "schedule.json"),
            "losses": _losses(place, "loss.csv"),
            "events": [e for e in events if e.get("event") != "step"],
            "vitals": [e for e in events if e.get("event") == "step" and "lr" in e],
            "picture": place.read("picture.png") is not None,
        }

    def file(self, id: str, name: str) -> bytes | None:
        """A file of a bundle: the picture that it drew, the text of a kernel."""
        place = self.place(id)
        return None if place is None else place.read(name)

    def place(self, id: str) -> BundleFolder | None:
        """The bundle of that name: one of those that are there."""
        if not NAME.fullmatch(id) or ".." in id:
            return None
        if id.startswith("upload."):
            packed = self.uploads.path(id)
            return None if packed is None or packed.suffix != ".zip" else _Packed(packed)
        place = self.folder / id
        return Folder(place) if (place / "manifest.json").is_file() and not place.is_symlink() else None


class BundleFolder(Protocol):
    """The folder with the files of a bundle."""

    def read(self, name: str) -> bytes | None:
        """A file of it; None for one that is not there, or too large."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A bundle as `anneal train` leaves it."""

    path: Path

    def read(self, name: str) -> bytes | None:
        """A file of it; None for one that is not there, too large, or a link."""
        path = self.path / name
        try:
            return path.read_bytes() if path.stat().st_size <= LARGEST and not path.is_symlink() else None
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class _Packed:
    """A bundle as a .zip file, with its folder or without; nothing of it is unpacked to disk."""

    path: Path

    def read(self, name: str) -> bytes | None:
        """A file of it; None for one that is not there, too large, or broken."""
        try:
            with zipfile.ZipFile(self.path) as packed:
                top = next(n for n in packed.namelist() if n.endswith("manifest.json")).removesuffix("manifest.json")
                return packed.read(top + name) if packed.getinfo(top + name).file_size <= LARGEST else None
        except (OSError, KeyError, ValueError, StopIteration, RuntimeError, NotImplementedError, zipfile.BadZipFile):
            return None


def _command(manifest: dict[str, Any]) -> str:
    found = manifest.get("command")
    return shlex.join(["anneal", *map(str, found)]) if isinstance(found, list) else ""


def json_of(place: BundleFolder, name: str) -> Any:
    """The JSON of a file of a bundle; None for none."""
    try:
        return json.loads(place.read(name) or b"null", parse_constant=_nothing)
    except ValueError:
        return None


def _nothing(_: str) -> None:
    """The value of NaN and Infinity, which Python writes as JSON and a browser cannot read."""


def _lines(place: BundleFolder, name: str) -> list[dict[str, Any]]:
    found = []
    for line in (place.read(name) or b"").splitlines():
        try:
            value = json.loads(line, parse_constant=_nothing)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _losses(place: BundleFolder, name: str) -> list[list[float]]:
    """Step, loss and milliseconds of each step."""
    rows = csv.reader((place.read(name) or b"").decode("utf-8", "replace").splitlines()[1:])
    found = []
    for row in rows:
        try:
            values = [float(x) for x in row]
        except ValueError:
            continue
        if len(values) == 3 and all(map(math.isfinite, values)):
            found.append(values)
    return found
