"""`fit`: functions under a profile of a browser's adapter, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from anneal.errors import UserError
from anneal.pages.exporting import Names, entries_of, programs_of
from anneal.pages.program import profile


@dataclass(frozen=True, slots=True)
class Fit:
    """The fate of functions under a profile.

    `why` is empty where they fit; else the other numbers are 0. `memory` is all that a page holds on the GPU, and at
    the same time the most, since a page takes it all when it opens: `weights` of it are tensors, `working` what is
    computed on the way. `split` names the kernels that see a tensor in several bindings.
    """

    profile: str
    why: str = ""
    memory: int = 0
    weights: int = 0
    working: int = 0
    largest: int = 0
    kernels: int = 0
    launches: int = 0
    split: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.why:
            return f"{self.profile}: does not fit: {self.why}"
        split = f"; split over several bindings: {', '.join(self.split)}" if self.split else "; nothing is split"
        return (
            f"{self.profile}: fits in {self.memory:,} bytes ({self.weights:,} of tensors, {self.working:,} on the way; "
            f"the largest buffer has {self.largest:,}), {self.kernels} kernels, {self.launches} launches{split}"
        )


def fit(
    function: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    example_args: Any,
    name: str = "browser",
    train: bool | Collection[str] = False,
) -> Fit:
    """The fate of a page of `function` under a profile: whether it fits, what is split, the memory that it takes.

    Args:
        function: as `export` takes it. example_args: its arguments. train: whether gradients are taken inside.
        name: the name of the profile, one of `PROFILES`.

    >>> from anneal import nn
    >>> from anneal.tensor import Tensor
    >>> print(fit(nn.Linear(3, 2), Tensor.ones(4, 3)))
    browser: fits in 128 bytes (48 of tensors, 32 on the way; the largest buffer has 48), 1 kernels, 1 launches; \
nothing is split
    """
    entries = entries_of(function, example_args, train)
    try:
        (program,), _ = programs_of(entries, [profile(name)], Names([e.function for e in entries]))
    except UserError as e:
        if not str(e).startswith("export: "):
            raise
        return Fit(name, str(e).removeprefix("export: "))
    sizes = program.buffers
    split = [k["name"] for k in program.kernels if len(k["bindings"]) > len({b[1] for b in k["bindings"]})]
    launches = sum(len(f["calls"]) for f in program.functions.values())
    weights, working = (sum(sizes[n] for n in of) for of in (set(program.weights.values()), program.scratch))
    return Fit(name, "", sum(sizes), weights, working, max(sizes), len(program.kernels), launches, tuple(split))
