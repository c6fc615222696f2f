"""Files that were dropped on the page, kept by their content; and run bundles as the page sees them."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import math
import os
import re
import secrets
import shlex
import zipfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anneal.frozen import Json, frozen

KINDS = ("onnx", "safetensors", "gguf", "npy", "npz", "zip", "py")
LARGEST = 4 << 30  # bytes of one file
ALL = 16 << 30  # and of all of them
_ID = re.compile(rf"[0-9a-f]{{32}}\.(?:{'|'.join(KINDS)})")
# The suffix of a file's name here, found by the dot: a text of megabytes is searched in milliseconds.
_SUFFIX = re.compile("|".join(rf"\.{k}(?<=[0-9a-f]{{32}}\.{k})" for k in KINDS).encode())


class Refused(Exception):
    """A file that is refused, with the HTTP status and the text for its sender."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@frozen
class Upload:
    """A file: `id` is what the page calls it ("upload.HASH.onnx"), `name` what its sender did. `kind` is its suffix, or
    what a .zip file is: a "run" (a bundle of `anneal train`), a "recording" (of `anneal record`).
    """

    id: str
    name: str
    kind: str
    bytes: int


class Uploads:
    """The files in a folder, which is made when the first one comes, under names of ours: no name from outside reaches
    the file system. Without `scripts` no program is among them.
    """

    def __init__(self, folder: Path, *, scripts: bool = True) -> None:
        self.folder = folder
        self.kinds = tuple(k for k in KINDS if scripts or k != "py")

    async def take(self, name: str, body: AsyncIterator[bytes]) -> Upload:
        """Keep a file that comes in pieces. Raises Refused for another kind of file, or one that is too large."""
        stem, _, kind = name.lower().rpartition(".")
        if not stem or kind not in self.kinds:
            raise Refused(415, f"files of these kinds are taken: {', '.join('.' + k for k in self.kinds)}")
        room = ALL - sum(u.bytes for u in self.all())
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f".{secrets.token_hex(8)}"
        digest, size = hashlib.blake2b(digest_size=16), 0
        try:
            with place.open("wb") as f:
                async for piece in body:
                    size += len(piece)
                    if size > min(LARGEST, room):
                        raise Refused(
                            413, f"the file is larger than {min(LARGEST, room) >> 20} MiB, the most there is room for"
                        )
                    digest.update(piece)
                    f.write(piece)
            if not size:
                raise Refused(400, "the file is empty")
            suffix = kind
            if kind == "zip":
                kind = await asyncio.to_thread(packed_kind, place)
            stored = f"{digest.hexdigest()}.{suffix}"
            os.replace(place, self.folder / stored)
        finally:
            place.unlink(missing_ok=True)
        found = Upload(f"upload.{stored}", plain(name), kind, size)
        (self.folder / f"{stored}.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
        return found

    def copy(self, file: Path) -> Upload:
        """Keep a file of this machine. Raises OSError where it cannot be read."""

        async def pieces() -> AsyncIterator[bytes]:
            with file.open("rb") as f:
                while piece := f.read(1 << 20):
                    yield piece

        return asyncio.run(self.take(file.name, pieces()))

    def all(self) -> list[Upload]:
        """The files that are there, the latest first."""
        found = []
        for path in sorted(self.folder.glob("*.json"), key=lambda p: -p.stat().st_mtime):
            with suppress(OSError, ValueError, TypeError):
                found.append(Upload(**json.loads(path.read_text(encoding="utf-8"))))
        return found

    def named(self, text: bytes) -> bytes:
        """JSON in which every file of this folder is called as its sender called it. An id stays what it is."""
        out, at = bytearray(), 0
        for found in _SUFFIX.finditer(text):
            begin = found.start() - 32
            if text.endswith(b"upload.", at, begin):
                continue
            stored = text[begin : found.end()].decode()
            for folder in {self.folder, self.folder.resolve()}:
                place = _inside(f"{folder}{os.sep}")
                if text.endswith(place, at, begin):
                    begin -= len(place)
                    break
            out += text[at:begin] + _inside(self._name(stored))
            at = found.end()
        return bytes(out + text[at:]) if at else text

    def _name(self, stored: str) -> str:
        try:
            return str(json.loads((self.folder / f"{stored}.json").read_text(encoding="utf-8"))["name"])
        except (OSError, ValueError, KeyError, TypeError):
            return "a file that was dropped"

    def path(self, id: str) -> Path | None:
        """The file behind an id, if there is one."""
        stored = id.removeprefix("upload.")
        if not _ID.fullmatch(stored) or not (self.folder / stored).is_file():
            return None
        return self.folder / stored

    def remove(self, id: str) -> bool:
        """Forget a file; whether there was one."""
        path = self.path(id)
        if path is None:
            return False
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.json").unlink(missing_ok=True)
        return True


def packed_kind(place: Path) -> str:
    """The kind of content of a .zip file. Raises Refused for one that is neither a run nor a recording."""
    try:
        with zipfile.ZipFile(place) as packed:
            names = packed.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        raise Refused(422, "this is no .zip file, or it is broken") from None
    if "recording.json" in names:
        return "recording"
    if any(re.fullmatch(r"(?:[^/\\]+/)?manifest\.json", n) for n in names):
        return "run"
    raise Refused(
        422,
        "this .zip file is neither a run (anneal train --bundle, zipped) nor a recording (anneal record -o FILE.zip)",
    )


def _inside(text: str) -> bytes:
    """A text as it is inside a string of JSON."""
    return json.dumps(text)[1:-1].encode()


def plain(name: str) -> str:
    """A name to show: its last part, without control characters of a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in re.split(r"[\\/]", name)[-1])[:200]


NAME = re.compile(r"[\w][\w.-]{0,120}")
LARGEST_PART = 64 << 20


@frozen
class Runs:
    """The bundles in a folder, and those that were dropped as .zip files."""

    folder: Path
    uploads: Uploads

    def all(self) -> list[Json]:
        """The manifest of every bundle without its list of files, the latest first."""
        names = [p.parent.name for p in sorted(self.folder.glob("*/manifest.json"), reverse=True)[:2000]]
        dropped = [u.id for u in self.uploads.all() if u.kind == "run"]
        found = []
        for name in (*[n for n in names if not n.startswith(".")], *dropped):
            manifest = self.place(name).manifest
            if manifest is not None:
                manifest.pop("files", None)
                found.append({**manifest, "id": name, "command": _command(manifest), "dropped": name in dropped})
        return sorted(found, key=lambda m: str(m.get("begun", "")), reverse=True) if dropped else found

    def one(self, id: str) -> Json | None:
        """A bundle without its kernels' text: manifest, options, settings, losses, schedule, sample."""
        place = self.place(id)
        manifest = place.manifest
        if manifest is None:
            return None
        events = _lines(place.read("events.jsonl") or b"")
        return {
            **manifest,
            "id": id,
            "command": _command(manifest),
            "config": place.json("config.json"),
            "schedule": place.json("schedule.json"),
            "losses": _losses(place.read("loss.csv") or b""),
            "events": [e for e in events if e.get("event") != "step"],
            "vitals": [e for e in events if e.get("event") == "step" and "lr" in e],
            "picture": place.read("picture.png") is not None,
        }

    def place(self, id: str) -> BundleFolder:
        """The bundle of that name; one without files where there is none."""
        if NAME.fullmatch(id) and ".." not in id:
            place = self.folder / id
            packed = self.uploads.path(id) if id.startswith("upload.") else None
            if packed is not None and packed.suffix == ".zip":
                return BundleFolder(packed, True)
            if (place / "manifest.json").is_file() and not place.is_symlink():
                return BundleFolder(place)
        return BundleFolder(Path(os.devnull))


@frozen
class BundleFolder:
    """A bundle as `anneal train` leaves it; or `packed`, a .zip file with its folder or without, of which nothing is
    unpacked to disk.
    """

    path: Path
    packed: bool = False

    def read(self, name: str) -> bytes | None:
        """A file of the bundle; None for one that is missing, too large, broken, or a link."""
        try:
            if not self.packed:
                path = self.path / name
                return path.read_bytes() if path.stat().st_size <= LARGEST_PART and not path.is_symlink() else None
            with zipfile.ZipFile(self.path) as packed:
                top = next(n for n in packed.namelist() if n.endswith("manifest.json")).removesuffix("manifest.json")
                return packed.read(top + name) if packed.getinfo(top + name).file_size <= LARGEST_PART else None
        except (OSError, KeyError, ValueError, StopIteration, RuntimeError, NotImplementedError, zipfile.BadZipFile):
            return None

    def json(self, name: str) -> Any:
        """The JSON of a file of the bundle; None if there is none."""
        try:
            return json.loads(self.read(name) or b"null", parse_constant=_nothing)
        except ValueError:
            return None

    @property
    def manifest(self) -> Json | None:
        """The manifest: the run, and its end; None where there is no bundle."""
        found = self.json("manifest.json")
        return found if isinstance(found, dict) else None


def _command(manifest: Json) -> str:
    found = manifest.get("command")
    return shlex.join(["anneal", *map(str, found)]) if isinstance(found, list) else ""


def _nothing(_: str) -> None:
    """The value of NaN and Infinity, which Python writes as JSON and a browser cannot read."""


def _lines(text: bytes) -> list[Json]:
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line, parse_constant=_nothing))
    return [value for value in found if isinstance(value, dict)]


def _losses(text: bytes) -> list[list[float]]:
    """Step, loss and milliseconds of each step."""
    found = []
    for row in csv.reader(text.decode("utf-8", "replace").splitlines()[1:]):
        with suppress(ValueError):
            found.append([float(x) for x in row])
    return [values for values in found if len(values) == 3 and all(map(math.isfinite, values))]
