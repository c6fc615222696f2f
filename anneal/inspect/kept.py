"""Recordings read back: the answers that `recordings.py` kept, from an untrusted file."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anneal.errors import DataError, UserError

LARGEST = 256 << 20  # bytes of one answer


@dataclass(frozen=True, slots=True)
class KeptRecording:
    """A .zip file that `Recording.save` wrote. Nothing of it is unpacked to disk."""

    path: Path

    def summary(self) -> dict[str, Any]:
        """The summary of the recording: the program, its end, and the plans. Raises DataError for a file that is no
        recording.
        """
        found = self.read("recording.json")
        if not isinstance(found, dict) or not isinstance(found.get("plans"), list):
            raise DataError(f"{self.path.name}: this is no recording of anneal's")
        return found

    def plan(self, number: int) -> KeptPlan:
        """The answers about one plan. Raises UserError for one that there is not.

        Args:
            number: the number of the launch or plan, counted from 0.
        """
        count = len(self.summary()["plans"])
        if not 0 <= number < count:
            raise UserError(f"the recording has no plan {number}: it has {count}, from 0")
        return KeptPlan(self, number)

    def source(self, file: str, line: int, around: int) -> dict[str, Any]:
        """A line of the program that was recorded, with those about it that were kept.

        Args:
            file: the path, or its end.
            around: the number of lines before and after it.
        """
        sources = self.read("sources.json")
        kept = sources.get(file) if isinstance(sources, dict) else None
        if not isinstance(kept, dict) or str(line) not in kept:
            raise UserError("no node of this recording comes from that file")
        numbers = [n for n in range(max(1, line - around), line + around + 1) if str(n) in kept]
        return {"file": file, "first": numbers[0], "line": line, "lines": [str(kept[str(n)]) for n in numbers]}

    def read(self, name: str) -> Any:
        """A file of it as a value. Raises DataError for one that is missing, broken or too large.

        Args:
            name: the name of a file in the .zip file.
        """
        try:
            with zipfile.ZipFile(self.path) as packed:
                if packed.getinfo(name).file_size > LARGEST:
                    raise DataError(f"{self.path.name}: {name} is too large")
                return json.loads(packed.read(name))
        except KeyError:
            raise DataError(f"{self.path.name}: it has no {name}") from None
        except (OSError, ValueError, RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path.name}: {name} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The answers of `Looked`, read from a plan of a recording."""

    recording: KeptRecording
    number: int

    def graph(self) -> Any:
        """The nodes, the names of the launches, and the names of the passes."""
        return self._read("graph")

    def passes(self, kernel: int | None = None) -> Any:
        """The passes, each with the number of nodes that it changed; of launch `kernel`, if one is named."""
        return self._read("passes" if kernel is None else _none())

    def one_pass(self, name: str, kernel: int | None = None) -> Any:
        """The graph after pass `name`; of launch `kernel`, if one is named. Raises UserError for an unknown pass."""
        known = [p["info"]["name"] for p in self.passes(kernel)]
        if name not in known:
            raise UserError(f"there is no pass called {name[:60]!r}. There is: {', '.join(known)}")
        return self._read(f"pass/{name}")

    def kernels(self) -> Any:
        """The launches in order, with their times where they were measured."""
        return self._read("kernels")

    def kernel(self, number: int) -> Any:
        """The launch of that number. Raises UserError if the plan does not have it.

        Args:
            number: the number of the launch or plan, counted from 0.
        """
        count = len(self.kernels()["kernels"])
        if not 0 <= number < count:
            raise UserError(f"there is no kernel {number}: the plan has {count}, from 0")
        return self._read(f"kernel/{number}")

    def _read(self, name: str) -> Any:
        return self.recording.read(f"{self.number}/{name}.json")


def _none() -> str:
    raise UserError("a recording keeps what the passes made of whole graphs, not of single kernels")
