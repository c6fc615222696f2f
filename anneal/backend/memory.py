"""A report of who holds a device's memory: tensors by the user's line that made them, captured functions, the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from anneal.frozen import frozen
from anneal.uop import arena


class Reserved(Protocol):
    """A holder of memory that no tensor shows: a captured function with its temporaries."""

    def reserved(self) -> tuple[str, int]:
        """A holder's description, and the bytes that it holds."""
        ...


@frozen
class MemoryUse:
    """Bytes of a device's memory: `in_use` by tensors and compiled functions, `cached` for later use, and the most that
    was `in_use` since the last `reset_peak`."""

    in_use: int
    cached: int
    peak: int


@frozen
class Holder:
    """Memory that was taken in one place: `count` tensors of `nbytes` together, made at `where`."""

    where: str
    what: str
    count: int
    nbytes: int


@frozen
class MemoryReport:
    """The memory of one device, as `use` counts it, and its holders, the largest first.

    Memory that several holders share is counted for each; what none of them shows (scratch, compiled code) for none.
    """

    device: str
    use: MemoryUse
    holders: tuple[Holder, ...]

    def text(self, most: int = 20) -> str:
        """The report in lines, with at most so many holders."""
        u = self.use
        lines = [
            f"{self.device}: {_said(u.in_use)} in use, {_said(u.cached)} cached, at most {_said(u.peak)} were in use"
        ]
        for h in self.holders[:most]:
            count = f"{h.count} x " if h.count > 1 else ""
            lines.append(f"  {_said(h.nbytes):>10}  {count}{h.what}  {h.where}".rstrip())
        rest = self.holders[most:]
        if rest:
            lines.append(f"  {_said(sum(h.nbytes for h in rest)):>10}  in {len(rest)} other places")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def report(device: str, use: MemoryUse, reserved: Iterable[Reserved] = ()) -> MemoryReport:
    """A report of the holders of the memory of the device called `device`, of which `use` is taken. Of `reserved` no
    tensor shows the memory."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for where, what, nbytes in (*_tensors(device), *[("", *holder.reserved()) for holder in reserved]):
        count, total = found.get((where, what), (0, 0))
        found[where, what] = count + 1, total + nbytes
    holders = [Holder(where, what, count, nbytes) for (where, what), (count, nbytes) in found.items()]
    return MemoryReport(device, use, tuple(sorted(holders, key=lambda h: -h.nbytes)))


def _tensors(device: str) -> Iterator[tuple[str, str, int]]:
    seen = set()
    for u in arena().buffers():
        s = u.arg
        if s.device == device and s.buffer is not None and id(s) not in seen:
            seen.add(id(s))
            code, line = s.line or u.provenance[1:3]
            where = f"{code.co_filename}:{line}" if code is not None else ""
            yield where, f"{s.dtype.name} of {s.size:,}", s.size * s.dtype.itemsize


def _said(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"
