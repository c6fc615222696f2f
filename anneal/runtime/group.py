"""A group of participants as a value, and exchanges between them as functions of the host.

Each participant is a thread, or a process, that runs the same program and holds a `Group` of its own, with its number
in it. Nothing here knows how values travel: an implementation overrides `exchange`, and what it does better than by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from anneal.backend import Array
from anneal.errors import GroupError
from anneal.runtime.host import HostFunction

Reduction = Literal["sum", "mean"]
Arrays = Sequence[Array]


class Group(ABC):
    """A participant's view of a group of `size`: it is number `rank`, counted from 0.

    Every participant makes the same exchanges in the same order. Each returns once all have come to it, with the same
    bits for all; where one does not come, or comes with something else, every one that waits gets an error.
    """

    size: int
    rank: int

    @abstractmethod
    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        """The arrays of every participant in the order of their numbers. `what` says the exchange in words.

        Raises GroupError where a participant does not come in time or comes for another exchange, ShapeError or
        DTypeError where the arrays of one are of another shape or dtype than those of the others.
        """

    def all_reduce(self, arrays: Arrays, op: Reduction) -> list[Array]:
        """The sum over the participants of each of several arrays, or the mean, as `op` says; float16 and bfloat16 add
        in float32.
        """
        return self._reduced(self.exchange(f"all_reduce ({op})", arrays), op)

    def all_gather(self, arrays: Arrays) -> list[Array]:
        """The arrays of all participants along a new first axis, for each of several arrays."""
        return [np.stack(each) for each in zip(*self.exchange("all_gather", arrays), strict=True)]

    def broadcast(self, arrays: Arrays, root: int) -> list[Array]:
        """The arrays that participant `root` gives."""
        return list(self.exchange(f"broadcast from {root}", arrays)[root])

    def reduce(self, arrays: Arrays, root: int) -> list[Array]:
        """The sums of `arrays` over the participants at `root`, zeros at the others."""
        given = self.exchange(f"reduce to {root}", arrays)
        return self._reduced(given, "sum") if self.rank == root else [np.zeros_like(a) for a in arrays]

    def check_rank(self, name: str, rank: int) -> None:
        """Raise GroupError, with the op's `name`, unless `rank` is a participant's number."""
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.size:
            raise GroupError(f"{name}: root is a participant, a number from 0 to {self.size - 1}, not {rank!r}")

    def _reduced(self, given: Sequence[Arrays], op: Reduction) -> list[Array]:
        """Sums in the order of the participants' numbers, so that they are the same bits everywhere."""
        out = []
        for each in zip(*given, strict=True):
            dtype = each[0].dtype
            wide = np.dtype(np.float32) if dtype.itemsize <= 2 and dtype.kind not in "iub" else dtype
            total = each[0].astype(wide)
            for a in each[1:]:
                total += a.astype(wide)
            if op == "mean":
                total /= wide.type(self.size)
            out.append(total.astype(dtype))
        return out


@dataclass(frozen=True, slots=True)
class Exchange(HostFunction):
    """A function of the host that waits for the other participants of `group`: it is called with no lock held."""

    group: Group | None = field(default=None, compare=False)  # the key has it

    @property
    def title(self) -> str:
        """The name of the exchange in messages."""
        return self.name
