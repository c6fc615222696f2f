"""Names of launches for people: the module, the functions that were called there, the user's lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from anneal.schedule import Origin
from anneal.uop import MOVEMENT, Op

# Nodes that are no step of a computation: they show values, hold them or write them otherwise.
_SILENT = MOVEMENT | {Op.CONTIGUOUS, Op.DETACH, Op.CAST, Op.CALL, Op.SINK, Op.CONST, Op.IOTA}
_MOST = 4  # functions, and modules, that a label lists


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's code: its file, its number, and the function that it stands in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


def placed(places: Iterable[int], origins: Sequence[Origin]) -> list[Origin]:
    """The origins at `places`, sources first; those that are made of memory, if there are any."""
    found = [origins[at] for at in sorted(places)]
    return [o for o in found if o.grounded] or found


def lines_of(found: Iterable[Origin]) -> tuple[Line, ...]:
    """The user's lines, each once."""
    lines = []
    for o in found:
        _, code, line, _, _ = o.provenance
        if code is not None:
            lines.append(Line(code.co_filename, line, code.co_qualname))
    return tuple(dict.fromkeys(lines))


def modules_of(found: Iterable[Origin]) -> tuple[str, ...]:
    """The paths of the modules that were called, each once, from the module that was called first: "h.0.mlp"."""
    return tuple(dict.fromkeys([o.provenance[3] for o in found if o.provenance[3]]))


def functions_of(found: Iterable[Origin]) -> tuple[str, ...]:
    """The functions of anneal that the user or a module called, each once; an op's name where there is none."""
    return tuple(dict.fromkeys([_function(o) for o in _computing(found)]))


def label_of(found: Sequence[Origin]) -> str:
    """Modules and functions in one line.

    "h.0.mlp: linear + gelu" where all belongs to one module, else the modules one after the other:
    "h.0: add; h.1.ln_1: layer_norm".

    Args:
        found: the records that are described.
    """
    steps = [(o.provenance[3], _function(o)) for o in _computing(found)]
    if common := _common([path for path, _ in steps]):
        return f"{common}: {_sum([name for _, name in steps])}"
    parts = [
        (f"{path}: " if path else "") + _sum([name for _, name in group])
        for path, group in groupby(steps, key=lambda step: step[0])
    ]
    parts = list(dict.fromkeys(parts))
    return "; ".join(parts[:_MOST]) + ("; ..." if len(parts) > _MOST else "")


def _computing(found: Iterable[Origin]) -> list[Origin]:
    found = list(found)
    return [o for o in found if o.op not in _SILENT] or found


def _function(o: Origin) -> str:
    code = o.provenance[4]
    return o.op.name.lower() if code is None else code.co_name.strip("_")


def _common(paths: Sequence[str]) -> str:
    """The path of the innermost module that all of `paths` are in, or "".

    >>> _common(["h.0.mlp.c_fc", "h.0.mlp"]), _common(["h.0", "ln_f"])
    ('h.0.mlp', '')
    """
    names = []
    for each in zip(*[path.split(".") for path in paths]):
        if len(set(each)) > 1:
            break
        names.append(each[0])
    return ".".join(names)


def _sum(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    return " + ".join(each[:_MOST]) + (" + ..." if len(each) > _MOST else "")
