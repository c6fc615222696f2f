"""Files of tokens: memory mapped, and cut into batches that follow from a seed and the number of the step alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal import files
from anneal.errors import DataError, SettingError

Tokens = npt.NDArray[Any]
_HEADER = 256  # int32 words: magic, version, tokens
_SHORT, _LONG = (20240520, 1, np.dtype("<u2")), (20240801, 7, np.dtype("<u4"))  # llm.c's, of GPT-2 and of Llama 3


def write_tokens(path: Path, tokens: Sequence[int] | Tokens) -> None:
    """Write a file of tokens: in llm.c's layout, or as an array of NumPy's if the name ends with .npy.

    Args:
        path: the file. tokens: numbers from 0 on; those below 65536 take 16 bits each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tokens(Path(folder) / "a.bin", [1, 2, 3])
    ...     TokenFiles([Path(folder) / "a.bin"], 2).rows(0, 1).tolist()
    [[1, 2, 3]]
    """
    given = np.asarray(tokens)
    magic, version, dtype = _SHORT if given.max(initial=0) < 1 << 16 else _LONG
    header = np.zeros(_HEADER, "<i4")
    header[:3] = (magic, version, len(given))
    if path.suffix == ".npy":
        files.replace(path, lambda f: np.save(f, given.astype(dtype)))
    else:
        files.replace(path, lambda f: f.write(header.tobytes() + given.astype(dtype).tobytes()))


def _mapped(path: Path) -> Tokens:
    """The tokens of a file. Raises DataError for a file of another kind."""
    try:
        if path.suffix == ".npy":
            made: Tokens = np.load(path, mmap_mode="r")
            if made.ndim != 1 or made.dtype.kind not in "iu":
                raise DataError(f"{path} has {made.dtype.name}{list(made.shape)}; tokens are integers in a row")
            return made
        header = np.fromfile(path, "<i4", _HEADER)
        found = [d for magic, version, d in (_SHORT, _LONG) if header[:2].tolist() == [magic, version]]
        if not found or len(header) < _HEADER:
            raise DataError(
                f"{path} is no file of tokens: neither llm.c's .bin nor .npy; `anneal data tokenize` makes one"
            )
        return np.memmap(path, found[0], "r", offset=4 * _HEADER, shape=(int(header[2]),))
    except (OSError, ValueError) as e:
        raise DataError(f"{path} cannot be read as tokens: {e}") from e


class TokenFiles:
    """Windows of the tokens of some files, each once in a pass over all of them, in an order that a seed gives.

    A batch follows from the seed and its step: training goes on at any step, and any number of processes that take
    parts of a batch read, together, the same.

    Args:
        paths: the files, of llm.c's layout or .npy. window: the tokens of a row, without the one that follows.
        seed: of the order. limit: the tokens that a model knows; None: any.

    Raises DataError for other files, or fewer tokens than a row has.
    """

    def __init__(self, paths: Sequence[Path], window: int, seed: int = 0, limit: int | None = None) -> None:
        self.window, self.seed, self.limit = window, seed, limit
        self._files = [_mapped(p) for p in paths]
        self.tokens = sum([len(a) for a in self._files])
        self._begins = np.cumsum([0, *[max(0, len(a) - 1) // window for a in self._files]])
        self.count = int(self._begins[-1])  # windows
        if not self.count:
            raise DataError(f"{len(paths)} files have {self.tokens} tokens, too few for a row of {window} and the next")
        self._orders: dict[int, Tokens] = {}
        self._reader = ThreadPoolExecutor(1, "anneal-tokens")
        self._next: tuple[tuple[int, ...], Future[Tokens]] | None = None

    def rows(self, step: int, batch: int, begin: int = 0, end: int | None = None) -> Tokens:
        """Rows `begin` to `end` of the batch of a step, int32[rows, window + 1]. Raises DataError for an unknown token.

        Args:
            step: the number of the step, from 0 on. batch: the rows of all processes.
        """
        if not 0 <= begin < (end := batch if end is None else end) <= batch:
            raise SettingError(f"rows {begin} to {end} are no part of a batch of {batch}")
        out = np.empty((end - begin, self.window + 1), np.int32)
        for n, row in enumerate(out, step * batch + begin):
            number = self._order(n // self.count)[n % self.count]
            file = int(np.searchsorted(self._begins, number, "right")) - 1
            at = int(number - self._begins[file]) * self.window
            row[:] = self._files[file][at : at + self.window + 1]
        if self.limit is not None and out.max() >= self.limit:
            raise DataError(
                f"token {out.max()} is in the files, and the model knows {self.limit}: another vocabulary's"
            )
        return out

    def take(self, step: int, batch: int, begin: int = 0, end: int | None = None) -> Tokens:
        """`rows`, and those of the next step are read meanwhile.

        Args:
            step, batch, begin, end: as for `rows`.
        """
        key = (step, batch, begin, batch if end is None else end)
        found = self._next[1].result() if self._next is not None and self._next[0] == key else self.rows(*key)
        following = (step + 1, *key[1:])
        self._next = following, self._reader.submit(self.rows, *following)
        return found

    def _order(self, turn: int) -> Tokens:
        """The order of the windows in a pass over all."""
        if turn not in self._orders:
            kind = np.int32 if self.count < 1 << 31 else np.int64
            made = np.random.default_rng((self.seed, turn)).permutation(np.arange(self.count, dtype=kind))
            self._orders = {**dict(list(self._orders.items())[-1:]), turn: made}
        return self._orders[turn]
