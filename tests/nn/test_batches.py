"""Passes over a DataLoader: samplers, errors of examples, containers, what its threads have. The values are torch's."""

from __future__ import annotations

import collections
import copy
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import anneal as an
from anneal.tensor import Tensor
from anneal.utils import data
from anneal.utils.data import DataLoader

workers = pytest.mark.parametrize("num_workers", [0, 2])


def plain(found: Any) -> Any:
    if isinstance(found, (Tensor, np.ndarray)):
        return found.tolist()
    if isinstance(found, (list, tuple)):
        return [plain(part) for part in found]
    return {name: plain(part) for name, part in found.items()} if isinstance(found, dict) else found


class Known:
    """Tells how it was asked."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, n: Any) -> Any:
        return ("at once", list(n)) if isinstance(n, list) else n


class Together(Known):
    def __getitems__(self, numbers: list[int]) -> list[int]:
        return [100 + n for n in numbers]


class Broken(Known):
    def __getitem__(self, n: Any) -> Any:
        if n == 2:
            raise KeyError("two")
        return n


@workers
def test_lists_of_numbers_may_be_of_any_kind(num_workers: int) -> None:
    pairs = data.TensorDataset(an.arange(5), an.arange(10).reshape(5, 2))
    kinds: Any = (list, tuple, np.array, an.tensor, lambda two: range(two[0], two[1] + 1))
    for kind in kinds:
        batches: Any = [kind([0, 1]), kind([3, 4])]
        assert plain(list(DataLoader(Known(), batch_sampler=batches, num_workers=num_workers))) == [[0, 1], [3, 4]]
        found = plain(list(DataLoader(pairs, batch_sampler=batches, num_workers=num_workers)))
        assert found == [[[0, 1], [[0, 1], [2, 3]]], [[3, 4], [[6, 7], [8, 9]]]]
    assert DataLoader(Known(), batch_sampler=[[0]]).batch_size is None


@workers
def test_a_data_set_may_fetch_examples_at_once(num_workers: int) -> None:
    numbers = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    loader: Any = DataLoader(Known(), batch_size=None, sampler=numbers, num_workers=num_workers)
    assert plain(list(loader)) == [["at once", [0, 1]], ["at once", [2, 3]], ["at once", [4]]]
    for whole, expected in [
        (Together(), [[100, 101], [102, 103], [104]]),
        (data.Subset(Together(), [3, 2, 1]), [[103, 102], [101]]),
        (data.Subset(data.Subset(Known(), [3, 2, 1]), [2, 0]), [[1, 3]]),
    ]:
        assert plain(list(DataLoader(whole, 2, num_workers=num_workers))) == expected


@workers
def test_a_pass_goes_on_after_an_example_that_cannot_be_read(num_workers: int) -> None:
    found: list[Any] = []
    batches = iter(DataLoader(Broken(), 1, num_workers=num_workers))
    assert len(batches) == 5  # type: ignore[arg-type]
    for _ in range(7):
        try:
            found.append(next(batches).tolist())
        except (KeyError, StopIteration) as e:
            found.append(type(e).__name__)
    assert found == [[0], [1], "KeyError", [3], [4], "StopIteration", "StopIteration"]


class Pair(NamedTuple):
    n: Any
    text: Any


class Named(collections.UserDict[str, Any]):
    pass


CONTAINERS: list[tuple[Any, Any]] = [
    (range(2, 4), list),
    (collections.deque([2, 3]), collections.deque),
    (Named(a=2), Named),
    (collections.OrderedDict(a=2), collections.OrderedDict),
    (collections.defaultdict(int, a=2), collections.defaultdict),
    (Pair(2, "b"), Pair),
    ((2, 3), list),
    ([2, 3], list),
    (np.str_("q"), list),
]


@pytest.mark.parametrize(("example", "kind"), CONTAINERS)
def test_containers_keep_their_kinds(example: Any, kind: Any) -> None:
    batch, alone = data.default_collate([example, example]), data.default_convert(example)
    assert type(batch) is kind
    assert type(alone) is (np.str_ if isinstance(example, str) else kind)
    if hasattr(example, "keys"):
        assert plain(batch["a"]) == [2, 2]
        assert alone == example
    elif kind is not Pair and not isinstance(example, str):
        assert plain(list(batch)) == [[2, 2], [3, 3]]
        assert list(alone) == [2, 3]
    texts = np.array(["a"])
    assert data.default_convert(texts) is texts


def test_more_samples_than_examples_are_of_several_orders() -> None:
    drawn = list(data.RandomSampler(range(3), num_samples=8))
    assert [sorted(drawn[i : i + 3]) for i in (0, 3)] == [[0, 1, 2]] * 2
    assert len(drawn) == 8
    assert len(set(drawn[6:])) == 2
    for wrong in (0, -1):
        with pytest.raises(an.errors.SettingError, match="num_samples is at least 1"):
            data.RandomSampler(range(3), num_samples=wrong)
    with pytest.raises(an.errors.ShapeError, match="add up to"):
        data.random_split(range(10), [1.5, -0.5])


class _Row(data.IterableDataset[int]):
    def __init__(self, end: int) -> None:
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.end))


def test_data_sets_in_a_row_add_up_to_one_in_a_row() -> None:
    assert list(_Row(2) + _Row(1)) == [0, 1, 0]


def test_a_loader_tells_its_arguments_and_keeps_them() -> None:
    generator = an.Generator()
    loader: Any = DataLoader(Known(), 2, generator=generator, timeout=3, pin_memory=True, prefetch_factor=4)
    assert (loader.generator, loader.timeout, loader.pin_memory, loader.prefetch_factor) == (generator, 3, True, 4)
    assert (loader.persistent_workers, loader.multiprocessing_context, loader.in_order) == (False, None, True)
    for name in ("batch_size", "dataset", "sampler", "batch_sampler", "drop_last"):
        with pytest.raises(ValueError, match=f"DataLoader: {name} is what the loader was made with"):
            setattr(loader, name, None)
    assert plain(list(copy.copy(loader))) == [[0, 1], [2, 3], [4]]
    with pytest.raises(an.errors.SettingError, match="drop_last needs batches"):
        DataLoader(Known(), None, drop_last=True)


class Drawn(Known):
    """Examples that draw random numbers, in threads that wait for different times."""

    def __getitem__(self, n: Any) -> Any:
        time.sleep(random.random() * 0.002)
        return an.rand(1) + n


def test_the_threads_of_a_loader_draw_the_same_numbers_for_a_seed() -> None:
    def drawn() -> Any:
        an.manual_seed(3)
        loader: Any = DataLoader(Drawn(), 2, num_workers=3)
        passes = [plain([*loader, an.rand(2)]) for _ in range(2)]
        assert passes[0] != passes[1]
        assert len({x % 1 for batch in passes[0][:-1] for (x,) in batch}) == 5
        return passes

    first = drawn()
    assert all(drawn() == first for _ in range(3))


def test_a_state_of_the_stream_goes_on_with_the_threads_numbers() -> None:
    an.manual_seed(3)
    loader: Any = DataLoader(Drawn(), 2, num_workers=2)
    one = plain(list(loader))
    saved = an.get_rng_state()
    two = plain(list(loader))
    an.set_rng_state(saved)
    assert (plain(list(loader)) == two, two != one) == (True, True)


def test_orders_are_the_same_with_threads_and_without() -> None:
    def orders(num_workers: int) -> Any:
        generator = an.Generator().manual_seed(5)
        own: Any = DataLoader(range(12), 4, True, generator=generator, num_workers=num_workers)
        an.manual_seed(1)
        default: Any = DataLoader(range(12), 4, True, num_workers=num_workers)
        return plain([*own, *own, *default, *default, an.rand(2)])

    assert orders(0) == orders(2)


def test_a_thread_that_seeds_changes_no_other_stream() -> None:
    def after(begin: Any) -> Any:
        an.manual_seed(3)
        list(DataLoader(Drawn(), 2, num_workers=2, worker_init_fn=begin))
        return an.rand(2).tolist()

    assert after(an.manual_seed) == after(None)
    assert an.initial_seed() == 3


class Modes(Known):
    def __getitem__(self, n: Any) -> Any:
        y = an.ones(1, 1, device="cpu") @ an.ones(1, 1, device="cpu")
        return (an.is_grad_enabled(), y.dtype.name, an.runtime.default_device())


@workers
def test_threads_have_the_modes_of_the_one_that_reads(num_workers: int) -> None:
    def seen() -> Any:
        loader: Any = DataLoader(Modes(), 2, num_workers=num_workers, collate_fn=list)
        return {example for batch in loader for example in batch}

    assert seen() == {(True, "float32", "cpu")}
    with an.no_grad(), an.autocast("cpu", dtype=an.bfloat16), an.runtime.modes(device="there"):
        assert seen() == {(False, "bfloat16", "there")}
