"""Sequences of several lengths for recurrent layers, with torch's names: padded to one length, or packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.ops import said
from anneal.tensor import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]

# A packed sequence has the elements of all sequences, step by step, the longest sequence first. Lengths are read on the
# host: a function of theirs that jit captures holds for these lengths.


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Fields):
    """The elements of sequences step by step, and how many sequences each step has.

    >>> pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])])[:2]
    (Tensor([1., 3., 2.], dtype=float32), Tensor([2, 1], dtype=int32))
    """

    _host: tuple[Array, Array | None]  # the sizes, and the places of the sequences, where they were made
    _padded: tuple[Any, Any] = (None, None)  # the values of `data` when it was packed, and of what

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with elements of another dtype, or on another device: arguments as of `Tensor.to`."""
        return self.of(self.data.to(*args, **kwargs))

    def of(self, data: Tensor) -> PackedSequence:
        """Sequences of these lengths with other elements, `data`."""
        out = self._replace(data=data)
        if "_host" in vars(self):
            out._host = self._host
        return out

    def sizes(self) -> tuple[Array, Array | None]:
        """Numbers of sequences of each step, and the places of the sequences when they are padded, on the host."""
        if "_host" not in vars(self):
            back = self.unsorted_indices
            self._host = self.batch_sizes.numpy(), None if back is None else back.numpy()
        return self._host

    def lengths(self) -> Array:
        """The lengths of the sequences when they are padded, on the host."""
        sizes, back = self.sizes()
        long: Array = (np.arange(sizes[0]) < sizes[:, None]).sum(0).astype(np.int32)
        return long if back is None else long[back]

    def unpacked(self) -> Tensor | None:
        """The tensor that was packed, (time, batch, ...), if `data` has its values still. Programs that go on from it
        are one for all lengths, where `data` has as many rows as the lengths' sum.
        """
        made, padded = self._padded
        same = made is not None and made is (self.data.late or self.data.uop)
        return padded if same else None


def _lengths(name: str, lengths: Any) -> list[int]:
    given = lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)
    if not given or min(given) <= 0:
        raise ShapeError(f"{name}: each length is 1 or more, not {given}")
    return [int(n) for n in given]


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """The tensors `sequences`, each (time, ...), in one tensor (time, batch, ...), padded to the longest; with
    `batch_first` it is (batch, time, ...).

    Args:
        padding_value: the elements after the ends, or with `padding_side="left"` before the beginnings.

    Raises DTypeError for something else than tensors, ShapeError for none, or for others behind the first axis.

    >>> pad_sequence([Tensor([1.0, 2.0]), Tensor([3.0])], batch_first=True)
    Tensor([[1., 2.],
            [3., 0.]], dtype=float32)
    """
    given = list(sequences)
    if not given or padding_side not in ("left", "right"):
        raise ShapeError(f'pad_sequence: takes sequences, and "left" or "right", not {len(given)} and {padding_side!r}')
    for x in given:
        if not isinstance(x, Tensor):
            raise DTypeError(f"pad_sequence: each sequence is a tensor, not {said(x)}")
        if not x.ndim or x.shape[1:] != given[0].shape[1:]:
            raise ShapeError(
                f"pad_sequence: sequences agree behind the first axis, {given[0].shape} and {x.shape} do not"
            )
    longest = max(len(x) for x in given)
    padded = []
    for x in given:
        room = (0, longest - len(x)) if padding_side == "right" else (longest - len(x), 0)
        padded.append(x.pad((*[0, 0] * (x.ndim - 1), *room), value=padding_value) if any(room) else x)
    return Tensor.stack(padded, dim=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of these `lengths` that `pad_sequence` put in one tensor, `padded_sequences`, with `batch_first` as
    there.

    >>> unpad_sequence(Tensor([[1.0, 2.0], [3.0, 0.0]]), [2, 1], batch_first=True)[1]
    Tensor([3.], dtype=float32)
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n].clone() for i, n in enumerate(_lengths("unpad_sequence", lengths))]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A padded (time, batch, ...) tensor `input` packed; with `batch_first` it is (batch, time, ...).

    Args:
        lengths: of the sequences, longest first, or in any order without `enforce_sorted`.

    Raises ShapeError for lengths of another number, order or size.

    >>> pack_padded_sequence(Tensor([[1.0, 2.0], [3.0, 0.0]]), [2, 1], batch_first=True).data
    Tensor([1., 3., 2.], dtype=float32)
    """
    name, given = "pack_padded_sequence", _lengths("pack_padded_sequence", lengths)
    x = input.transpose(0, 1) if batch_first else input
    if len(given) != x.shape[1] or max(given) > x.shape[0]:
        raise ShapeError(f"{name}: {x.shape[1]} sequences of at most {x.shape[0]} steps have no lengths {given}")
    if enforce_sorted and given != sorted(given, reverse=True):
        raise ShapeError(f"{name}: lengths are in decreasing order, not {given}; or write enforce_sorted=False")
    long = np.array(given)
    order = np.argsort(-long, kind="stable").astype(np.int32)
    steps, ranks = (long[order] > np.arange(max(given))[:, None]).nonzero()
    sizes = np.bincount(steps).astype(np.int32)
    data = x.flatten(0, 1)[Tensor((steps * len(given) + order[ranks]).astype(np.int32), device=x.device)]
    back = None if enforce_sorted else np.argsort(order).astype(np.int32)
    orders = [] if back is None else [Tensor(order, device=x.device), Tensor(back, device=x.device)]
    out = PackedSequence(data, Tensor(sizes, device="cpu"), *orders)
    out._host, out._padded = (sizes, back), (data.late or data.uop, x.clone())
    return out


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """The tensors `sequences`, each (time, ...), packed: the longest first, or in any order without `enforce_sorted`.

    >>> pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]).data
    Tensor([1., 3., 2.], dtype=float32)
    """
    return pack_padded_sequence(pad_sequence(sequences), [len(x) for x in sequences], enforce_sorted=enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """A packed `sequence` padded, (time, batch, ...) or with `batch_first` (batch, time, ...), and the lengths.

    Args:
        padding_value: the elements after the ends. total_length: how many steps there are, the longest's if None.

    Raises ShapeError for a `total_length` that is shorter than the longest.

    >>> x, lengths = pad_packed_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]), batch_first=True)
    >>> x.tolist(), lengths.tolist()
    ([[1.0, 2.0], [3.0, 0.0]], [2, 1])
    """
    data, (sizes, back) = sequence.data, sequence.sizes()
    time, batch = len(sizes), int(sizes[0])
    total = time if total_length is None else total_length
    if total < time:
        raise ShapeError(f"pad_packed_sequence: total_length is at least {time}, the longest, not {total}")
    lengths = sequence.lengths()
    there = np.arange(total)[:, None] < lengths
    x = sequence.unpacked()
    if x is None or len(x) < total:
        ranks = np.arange(batch) if back is None else back
        starts = np.concatenate([np.cumsum(sizes) - sizes, np.zeros(total - time, sizes.dtype)])
        x = data[Tensor(np.where(there, starts[:, None] + ranks, 0).astype(np.int32), device=data.device)]
    else:
        x = x[:total]
    if not there.all():
        mask = Tensor(there.reshape(*there.shape, *[1] * (data.ndim - 1)), device=data.device)
        x = mask.where(x, padding_value)
    return (x.transpose(0, 1) if batch_first else x), Tensor(lengths, device="cpu")


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one, `packed_sequences`.

    >>> unpack_sequence(pack_sequence([Tensor([1.0, 2.0]), Tensor([3.0])]))[1]
    Tensor([3.], dtype=float32)
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
