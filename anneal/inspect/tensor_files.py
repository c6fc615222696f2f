"""The tensors of a file of weights or arrays: safetensors, npy, npz, gguf; with statistics of their values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anneal.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

BINS = 24
MOST = 256 << 20  # bytes of a file whose values are read for statistics
PIECE = 1 << 20  # elements at a time
SHOWN = 8  # values at the beginning


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """The statistics of the finite values: least, greatest, mean, standard deviation, and the counts in equal bins
    between the least and the greatest; None if there are none. `zeros` and `not_finite` count; `first` are values as
    text.
    """

    least: float | None
    greatest: float | None
    mean: float | None
    std: float | None
    zeros: int
    not_finite: int
    bins: tuple[int, ...]
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a file; `statistics` is None where its values were not read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    statistics: TensorStatistics | None = None


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The contents of a file: its kind, its tensors, and the notes that it carries."""

    kind: str
    tensors: tuple[TensorEntry, ...]
    notes: tuple[tuple[str, str], ...]


def tensor_file(path: Path, most: int = MOST) -> TensorFile:
    """The tensors of a .safetensors, .npy, .npz or .gguf file, with statistics of the first `most` bytes of values.

    Raises DataError for a file that is broken or no such.

    Args:
        path: the path of the file.
    """
    kind = path.suffix.lstrip(".")
    if kind in ("npy", "npz"):
        return _arrays(path, kind, most)
    if kind in ("safetensors", "gguf"):
        return _mapped(path, kind, most)
    raise DataError(f"{path.name}: this is no .safetensors, .npy, .npz or .gguf file")


def statistics_of(array: Array) -> TensorStatistics | None:
    """The statistics of an array of numbers; None for one of something else.

    >>> import numpy as np
    >>> found = statistics_of(np.array([0.0, 1.0, 3.0, np.nan]))
    >>> found.least, found.greatest, found.zeros, found.not_finite, sum(found.bins)
    (0.0, 3.0, 1, 1, 3)
    """
    import numpy as np

    if array.dtype.kind in "OSUVMm" and not _wide(array):
        return None
    with np.errstate(over="ignore"):  # a sum that is infinite is told as none
        return _statistics(array.reshape(-1))


def _statistics(flat: Array) -> TensorStatistics:
    import numpy as np

    least, greatest, total, count, zeros, wrong = math.inf, -math.inf, 0.0, 0, 0, 0
    for x in _pieces(flat):
        good = x[np.isfinite(x)]
        zeros, wrong, count = zeros + int((x == 0).sum()), wrong + x.size - good.size, count + good.size
        if good.size:
            least, greatest, total = min(least, float(good.min())), max(greatest, float(good.max())), total + good.sum()
    first = tuple([str(v) for v in flat[:SHOWN].tolist()])
    if not count:
        return TensorStatistics(None, None, None, None, zeros, wrong, (), first)
    mean, squares, bins = total / count, 0.0, np.zeros(BINS, np.int64)
    span = greatest - least
    for x in _pieces(flat):
        good = x[np.isfinite(x)]
        squares += float(((good - mean) ** 2).sum())
        places = (
            ((good - least) / span * BINS).astype(np.int64) if 0 < span < math.inf else np.zeros(good.size, np.int64)
        )
        bins += np.bincount(np.minimum(places, BINS - 1), minlength=BINS)
    std = math.sqrt(squares / count) if math.isfinite(squares) else None
    return TensorStatistics(
        least, greatest, float(mean) if math.isfinite(mean) else None, std, zeros, wrong, tuple(bins.tolist()), first
    )


def _wide(array: Array) -> bool:
    """True if the dtype is a float that NumPy does not have itself, such as bfloat16."""
    return array.dtype.kind == "V" and array.dtype.names is None and "float" in array.dtype.name


def _pieces(flat: Array) -> Iterator[Array]:
    """The values as float64, some at a time; magnitudes of complex ones."""
    import numpy as np

    for at in range(0, flat.size, PIECE):
        x = flat[at : at + PIECE]
        yield (np.abs(x) if x.dtype.kind == "c" else x).astype(np.float64)


def _mapped(path: Path, kind: str, most: int) -> TensorFile:
    from anneal.tensor import io

    file: Any = io.safe_open(path, "cpu") if kind == "safetensors" else io.gguf_open(path, "cpu")
    found = []
    for name, e in file.entries.items():
        size = e.stop - e.start
        most -= size
        read = statistics_of(file[name].numpy()) if most >= 0 else None
        found.append(TensorEntry(name, e.dtype, tuple(e.shape), size, read))
    notes = io.safe_metadata(path) if kind == "safetensors" else file.metadata
    return TensorFile(kind, tuple(found), tuple([(k, str(v)[:200]) for k, v in notes.items()]))


def _arrays(path: Path, kind: str, most: int) -> TensorFile:
    import numpy as np

    found = []
    try:
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if kind == "npy" else None)
        names = [path.stem] if kind == "npy" else loaded.files
        for name in names:
            a = loaded if kind == "npy" else loaded[name]
            most -= a.nbytes
            found.append(TensorEntry(name, a.dtype.name, a.shape, a.nbytes, statistics_of(a) if most >= 0 else None))
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"{path.name}: is no .{kind} file of numbers: {error}") from None
    return TensorFile(kind, tuple(found), ())
