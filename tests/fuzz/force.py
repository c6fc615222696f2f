"""Kernels with an opt that the heuristic would not have chosen: added to its choice where it fits, else alone.

python -m tests.fuzz.programs --count 500 --devices webgpu --force TILE
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from anneal.backend import get_device
from anneal.codegen import Opt, Target, axes_of, choose
from anneal.codegen.dialects import DIALECTS
from anneal.codegen.pipeline import lower
from anneal.errors import CompilerError
from anneal.uop import Recent, UOp

__all__ = ["chooser", "forced"]


def chooser(kind: str) -> Callable[[UOp, Target], tuple[Opt, ...]]:
    """A stand-in for `choose` that adds an opt of `kind` to every kernel that takes one."""

    def pick(sink: UOp, target: Target) -> tuple[Opt, ...]:
        usual = choose(sink, target)
        dice = random.Random(sink.key)
        extra = [Opt(kind, axis, n) for axis, n in itertools.product(range(len(axes_of(sink))), (4, 2, 3, 1, 8))]
        dice.shuffle(extra)
        threads = (Opt("LOCAL", 0, 4), Opt("UPCAST", 0, 2))
        first = (Opt("TILE", len(axes_of(sink)) - 1, 2),) if kind == "PREFETCH" else ()
        for o in extra:
            for opts in ((*usual, *first, o), (o, *usual), (*threads, *first, o), (*first, o)):
                try:
                    lower(sink, opts, target)
                except CompilerError as e:
                    if e.stage != "apply_opts":
                        raise
                    continue
                return opts
        return usual

    return pick


@contextmanager
def forced(kind: str) -> Iterator[set[str]]:
    """Within the block the webgpu device compiles kernels with `kind` in them; gathers the kinds that were used."""
    used: set[str] = set()
    pick = chooser(kind)

    def note(sink: UOp, target: Target) -> tuple[Opt, ...]:
        opts = pick(sink, target)
        used.update(o.kind for o in opts)
        return opts

    device: Any = get_device("webgpu")
    with (
        mock.patch.object(device, "_programs", Recent(1024)),
        mock.patch.dict(DIALECTS, wgsl=replace(DIALECTS["wgsl"], choose=note)),
    ):
        yield used
