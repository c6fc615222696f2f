"""Examples in batches, under torch's names: a `Dataset` has them by number, a `DataLoader` makes batches of them."""

from __future__ import annotations

import bisect
import copy
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from anneal.distributed import get_rank, get_world_size
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.ops import Explained, Generator, default_generator, guarded, host_generator, need_tensor, said
from anneal.runtime import here
from anneal.tensor import Tensor
from anneal.utils.collating import default_collate, default_convert

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip

T = TypeVar("T")
# Orders come from the default generator of the host, keyed by `manual_seed`; they differ from torch's.
T_co = TypeVar("T_co", covariant=True)


class Dataset(Explained, Generic[T_co]):
    """Examples by number: subclasses define `__getitem__`, and `__len__` where the number is known.

    >>> class Squares(Dataset[int]):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         return index * index
    >>> [batch.tolist() for batch in DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4]]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise MissingMethodError(
            f"{type(self).__name__} defines no __getitem__(): define it in the class, from a number"
        )

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Examples in sequence: subclasses define `__iter__`.

    >>> class Three(IterableDataset[int]):
    ...     def __iter__(self):
    ...         return iter([1, 2, 3])
    >>> [batch.tolist() for batch in DataLoader(Three(), batch_size=2)]
    [[1, 2], [3]]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise MissingMethodError(
            f"{type(self).__name__} defines no __iter__(): define it in the class, one example at a time"
        )

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of tensors, which all have the same number of rows. Raises ShapeError if the numbers differ.

    >>> TensorDataset(Tensor([[1.0], [2.0]]), Tensor([5, 6]))[1]
    (Tensor([2.], dtype=float32), Tensor(6, dtype=int32))
    """

    def __init__(self, *tensors: Tensor) -> None:
        rows = {need_tensor("each of tensors", t, "TensorDataset").shape[:1] for t in tensors}
        if len(rows) != 1 or not all(rows):
            raise ShapeError(f"TensorDataset: tensors must have equally many rows, not {[t.shape for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


def _examples(dataset: Any, numbers: Iterable[Any]) -> Any:
    """The examples with these numbers, by one call if the data set has a method for several."""
    together = getattr(dataset, "__getitems__", None)
    return together([*numbers]) if together else [dataset[n] for n in numbers]


class Subset(Dataset[T_co]):
    """The examples of `dataset` with the numbers `indices`, in that order.

    >>> Subset("abc", [2, 0])[0]
    'c'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        return self.dataset[self.indices[index]]  # type: ignore[no-any-return]

    def __getitems__(self, indices: Sequence[int]) -> Any:
        return _examples(self.dataset, [self.indices[n] for n in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """The examples of `datasets`, one data set after another.

    >>> ConcatDataset(["ab", "cd"])[2]
    'c'
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets or not all(hasattr(d, "__len__") for d in self.datasets):
            raise ShapeError(f"ConcatDataset: takes one data set or more, each of a length, not {said(datasets)}")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: Any) -> T_co:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"ConcatDataset: there is no example {index} of {len(self)}")
        which = bisect.bisect_right(self.cumulative_sizes, at)
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


class StackDataset(Dataset[Any]):
    """The examples of several data sets of one length side by side: tuples, or dicts where they have names.

    Raises ShapeError for other lengths.

    >>> StackDataset("ab", [1, 2])[1], StackDataset(text="ab", label=[1, 2])[0]
    (('b', 2), {'text': 'a', 'label': 1})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.datasets: Any = kwargs or args
        parts = [d for d in (*kwargs.values(), *args) if hasattr(d, "__len__")]
        if len(parts) < len(args) + len(kwargs) or bool(args) is bool(kwargs) or len({len(d) for d in parts}) != 1:
            raise ShapeError(
                f"StackDataset: data sets of one length, in a row or by names, not {[len(d) for d in parts]}"
            )
        self._length = len(parts[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple([d[index] for d in self.datasets])

    def __len__(self) -> int:
        return self._length


class ChainDataset(IterableDataset[T_co]):
    """The examples of `datasets`, which are iterable, one data set after another.

    >>> list(ChainDataset(["ab", "c"]))
    ['a', 'b', 'c']
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[T_co]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


@guarded
def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset[Any]]:
    """The examples of `dataset` in disjoint parts, drawn at random by `generator`: of these lengths, or of these
    shares, which add up to 1.

    Raises ShapeError for lengths that do not add up to the examples.

    >>> [len(part) for part in random_split(range(10), [0.7, 0.3])]
    [7, 3]
    """
    count = len(dataset)
    if min(lengths, default=0) >= 0 and math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        sizes = [math.floor(count * share) for share in lengths]
        for i in range(count - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != count:
        raise ShapeError(f"random_split: lengths {list(lengths)} add up to {sum(sizes)}, not to {count} examples")
    order = host_generator(generator).permutation(count).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - n : end]) for n, end in zip(sizes, ends, strict=True)]


class Sampler(Explained, Generic[T_co]):
    """Numbers of examples: subclasses define `__iter__`, and `__len__`; `data_source` is ignored.

    >>> class Backwards(Sampler[int]):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> [batch.tolist() for batch in DataLoader([5, 6, 7], sampler=Backwards(), batch_size=3)]
    [[7, 6, 5]]
    """

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise MissingMethodError(f"{type(self).__name__} defines no __iter__(): define it in the class")


class SubsetRandomSampler(Sampler[int]):
    """The numbers `indices` in a random order, a new one each time; `generator` is the source of random numbers.

    >>> sorted(SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = host_generator(self.generator).permutation(len(self.indices)).tolist()
        return iter([self.indices[n] for n in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` numbers, each drawn with a probability in proportion to its weight; `weights` need not add up to 1.

    Args:
        replacement: whether a number may come again. generator: the source of random numbers.

    Raises SettingError for weights that are negative or too few, or for no samples.

    >>> list(WeightedRandomSampler([0.0, 2.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        self.weights = np.asarray(weights.numpy() if isinstance(weights, Tensor) else list(weights), float)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator
        there = int((self.weights > 0).sum())
        if num_samples < 1 or self.weights.ndim != 1 or not there or (self.weights < 0).any():
            raise SettingError(
                "WeightedRandomSampler: takes a vector of weights that are not negative, and at least one sample"
            )
        if not replacement and num_samples > there:
            raise SettingError(f"WeightedRandomSampler: {num_samples} samples of {there} without replacement")

    def __iter__(self) -> Iterator[int]:
        draw, shares = host_generator(self.generator), self.weights / self.weights.sum()
        return iter(draw.choice(len(shares), self.num_samples, self.replacement, shares).tolist())

    def __len__(self) -> int:
        return self.num_samples


class SequentialSampler(Sampler[int]):
    """The numbers of the examples of `data_source`, in their order.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """The numbers of the examples of `data_source` in a random order, a new one each time; `num_samples` of them, of
    several orders if there are fewer, or with `replacement` so many draws, by `generator`. SettingError for none.

    >>> sorted(RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples
        if num_samples is not None and num_samples < 1:
            raise SettingError(f"RandomSampler: num_samples is at least 1, not {num_samples}")

    def __iter__(self) -> Iterator[int]:
        draw, n = host_generator(self.generator), len(self.data_source)
        if self.replacement:
            return iter(draw.integers(0, n, self.num_samples).tolist())
        orders = (draw.permutation(n).tolist() for _ in range(-(-self.num_samples // max(n, 1))))
        return itertools.islice(itertools.chain.from_iterable(orders), self.num_samples)

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(Sampler[int]):
    """The numbers of one process's part of a data set: every part has as many, so some examples come twice, or with
    `drop_last` some are left out.

    Args:
        dataset: the data set. num_replicas, rank: how many processes there are, and which this one is; None: those of
            `anneal.distributed`. shuffle: whether the order is random: another one after each `set_epoch(epoch)`, the
            same in all processes of one `seed`.

    >>> [list(DistributedSampler("abcde", 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None,
        shuffle: bool = True, seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        self.dataset, self.shuffle, self.seed, self.epoch = dataset, shuffle, seed, 0
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise SettingError(f"DistributedSampler: rank is below num_replicas, {self.num_replicas}, not {self.rank}")
        self.num_samples = (len(dataset) + (0 if drop_last else self.num_replicas - 1)) // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        numbers = range(len(self.dataset))
        order = np.random.default_rng((self.seed, self.epoch)).permutation(numbers) if self.shuffle else numbers
        again = itertools.cycle([int(n) for n in order])
        return itertools.islice(again, self.rank, self.num_samples * self.num_replicas, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Seed the next orders with the number `epoch`."""
        self.epoch = epoch


class BatchSampler(Sampler[list[int]]):
    """A sampler's numbers in lists of `batch_size`; the last one may be shorter, or is left out with `drop_last`.

    >>> list(BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise SettingError(f"BatchSampler: batch_size is at least 1, not {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class WorkerInfo(NamedTuple):
    """A thread that reads for a `DataLoader`: its number among so many, the number with which its own random numbers
    may begin, and the dataset that it reads; of an IterableDataset a shallow copy.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` of this thread if a `DataLoader` reads with it, else None; in torch workers are processes.

    >>> get_worker_info() is None
    True
    """
    found: WorkerInfo | None = here.reads
    return found


class DataLoader(Explained, Generic[T_co]):
    """Batches of a data set's examples, in their order, or with `shuffle` in a new order each time.

    Args:
        dataset: a map-style data set, or an `IterableDataset`. batch_size: examples of a batch; None gives each
            example as it is. sampler, batch_sampler: indices, or lists of indices, in place of the order.
        num_workers: threads that fetch and collate batches ahead, in turn, each with random numbers of its own. Each
            reads a copy of an IterableDataset, all of it unless that takes a part by `get_worker_info`. collate_fn:
            makes a batch of a list of examples.
        drop_last: leaves out a last batch that is shorter. generator: of the random order.
        worker_init_fn: called in each of those threads with its number, before examples are fetched.
        prefetch_factor: batches that each thread makes ahead, 2 by default. pin_memory, pin_memory_device, timeout,
            persistent_workers, multiprocessing_context, in_order: ignored: threads read examples, which come in order.

    After an error of an example the pass goes on with the next batch.
    Raises SettingError for arguments that exclude each other, and where one is set later.

    >>> loader = DataLoader(TensorDataset(Tensor([[1.0], [2.0], [3.0]]), Tensor([0, 1, 0])), batch_size=2)
    >>> [(x.tolist(), y.tolist()) for x, y in loader], len(loader)
    ([([[1.0], [2.0]], [0, 1]), ([[3.0]], [0])], 2)
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None, batch_sampler: Iterable[Iterable[int]] | None = None,
        num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False,
        drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None, generator: Generator | None = None, *,
        prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:  # fmt: skip
        self.in_a_row = isinstance(dataset, IterableDataset)
        if self.in_a_row and (shuffle or sampler is not None or batch_sampler is not None):
            raise SettingError("DataLoader: an IterableDataset has its own order: no shuffle and no sampler")
        if sampler is not None and shuffle:
            raise SettingError("DataLoader: give shuffle or a sampler, and not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise SettingError("DataLoader: a batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise SettingError("DataLoader: drop_last needs batches, and batch_size is None")
        if num_workers < 0:
            raise SettingError(f"DataLoader: num_workers must not be negative, not {num_workers}")
        self.dataset, self.drop_last, self.num_workers, self.timeout = dataset, drop_last, num_workers, timeout
        self.batch_size = None if batch_sampler is not None else batch_size
        self.worker_init_fn, self.generator, self.prefetch_factor = worker_init_fn, generator, prefetch_factor
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.persistent_workers, self.multiprocessing_context = persistent_workers, multiprocessing_context
        whole = default_convert if batch_size is None and batch_sampler is None else default_collate
        self.collate_fn: Callable[[Any], Any] = whole if collate_fn is None else collate_fn
        self._plain = collate_fn is None
        if sampler is None and not self.in_a_row:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler: Any = sampler
        if sampler is not None and batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler: Any = batch_sampler

    def __setattr__(self, name: str, value: Any) -> None:
        if "batch_sampler" in vars(self) and name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset"):
            raise SettingError(f"DataLoader: {name} is what the loader was made with; make another one")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if self.in_a_row:
            return len(BatchSampler(self.dataset, self.batch_size or 1, self.drop_last))
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def _fetched(self, numbers: Any) -> Any:
        if self.batch_sampler is None:
            return self.collate_fn(self.dataset[numbers])
        if self._plain and type(self.dataset) is TensorDataset:
            return list(self.dataset[np.array([*numbers], np.int32)])
        return self.collate_fn(_examples(self.dataset, numbers))

    def _row(self, dataset: Any) -> Iterator[Any]:
        n = self.batch_size
        return map(self.collate_fn, dataset if n is None else BatchSampler(dataset, n, self.drop_last))

    def _begin(self, n: int, seed: int, modes: dict[str, Any]) -> Iterator[Any] | None:
        """Make this thread number `n` of those that read; gives the batches of a dataset in a row."""
        vars(here).update(modes)
        dataset = copy.copy(self.dataset) if self.in_a_row else self.dataset
        here.reads, here.draws = WorkerInfo(n, self.num_workers, seed + n, dataset), Generator(seed + n)
        if self.worker_init_fn is not None:
            self.worker_init_fn(n)
        return self._row(dataset) if self.in_a_row else None

    def _promised(self) -> Iterator[Callable[[], Any]]:
        """Functions, each of which gives a batch when it is called."""
        numbers = iter(() if self.in_a_row else self.sampler if self.batch_sampler is None else self.batch_sampler)
        if self.num_workers:
            return self._ahead(numbers)
        if self.in_a_row:
            return itertools.repeat(self._row(self.dataset).__next__)
        return (partial(self._fetched, n) for n in numbers)

    def _ahead(self, numbers: Iterator[Any]) -> Iterator[Callable[[], Any]]:
        """Functions as those of `_promised`; each thread makes every `num_workers`th batch, ahead of its call."""
        ended, pools = object(), [ThreadPoolExecutor(1) for _ in range(self.num_workers)]
        seed = (self.generator or here.draws or default_generator).pass_seed()
        modes = {name: getattr(here, name) for name in ("context", "device", "grad", "autocast")}

        def begun(k: int) -> Any:
            if self.in_a_row:
                return pools[k].submit(next, rows[k], ended)
            return next((pools[k].submit(self._fetched, n) for n in numbers), None)

        try:
            rows: Any = [row.result() for row in [p.submit(self._begin, k, seed, modes) for k, p in enumerate(pools)]]
            ahead = deque((k, begun(k)) for _ in range(self.prefetch_factor or 2) for k in range(self.num_workers))
            while ahead:
                k, first = ahead.popleft()
                if first is None or first.exception() is None and first.result() is ended:
                    continue
                ahead.append((k, begun(k)))
                yield first.result
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)


class _Batches(Iterator[Any]):
    """A pass over the batches of a loader, which goes on after an error."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader, self._promises = loader, loader._promised()

    def __next__(self) -> Any:
        return next(self._promises)()

    def __len__(self) -> int:
        return len(self._loader)


# torch's files of this package
dataset = dataloader = distributed = sampler = sys.modules[__name__]
sys.modules.update({f"{__name__}.{file}": sampler for file in ("dataset", "dataloader", "distributed", "sampler")})
