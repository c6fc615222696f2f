"""Decorated generators, tables whose rows are held to a norm, threads of a DataLoader. The values are torch's."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from typing import Any

import pytest

import anneal as an
from anneal import nn
from anneal.tensor import Tensor
from anneal.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


def test_a_block_around_a_generator_holds_in_each_of_its_steps() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    ended: list[bool] = []

    def steps() -> Generator[Tensor, float, str]:
        k = 1.0
        try:
            for _ in range(2):
                try:
                    k = (yield w * k) or 2.0
                except KeyError:
                    k = 7.0
        finally:
            ended.append((w * 1).requires_grad)
        return "done"

    silent = an.no_grad()(steps)()
    assert [next(silent).requires_grad, (w * 2).requires_grad] == [False, True]
    made = silent.throw(KeyError("k"))
    assert (made.tolist(), made.requires_grad) == ([7.0, 14.0], False)
    with pytest.raises(StopIteration) as end:
        silent.send(3.0)
    assert (end.value.value, ended) == ("done", [False])

    with an.no_grad():
        loud = an.enable_grad()(steps)()
        assert [next(loud).requires_grad, loud.send(2.0).requires_grad, (w * 2).requires_grad] == [True, True, False]
        loud.close()
    assert ended == [False, True]
    assert [b.requires_grad for b in an.inference_mode()(steps)()] == [False, False]


@pytest.mark.parametrize("jit", [False, True])
def test_a_table_whose_rows_are_held_to_a_norm_trains(jit: bool) -> None:
    table = nn.Embedding(3, 2, max_norm=1.0, _weight=Tensor([[3.0, 4.0], [0.5, 0.0], [6.0, 8.0]]))
    optimizer = an.optim.SGD(table.parameters(), lr=0.5)

    def step(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = table(index).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = an.jit(step) if jit else step
    losses = [step(Tensor([0, 1])).item() for _ in range(3)]
    assert losses == pytest.approx([1.9, -0.1, -1.94164062], abs=1e-5)
    assert table.weight.tolist()[2] == [6.0, 8.0]


def test_threads_of_a_loader_begin_with_their_numbers() -> None:
    seen: dict[int, str] = {}

    def begin(n: int) -> None:
        seen[n] = threading.current_thread().name

    loader: Any = DataLoader(range(6), 2, num_workers=3, worker_init_fn=begin)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4, 5]]
    assert sorted(seen) == [0, 1, 2]
    assert len(set(seen.values())) == 3

    def wrong(n: int) -> None:
        raise OSError(f"worker {n}")

    with pytest.raises(OSError, match="worker"):
        list(DataLoader(range(4), 2, num_workers=2, worker_init_fn=wrong))


def test_what_is_registered_makes_way_for_its_kind_alone() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", Tensor([1.0]))
            self.register_buffer("none", None)
            self.w = nn.Parameter([1.0])
            self.sub = nn.Linear(1, 1)

    m: Any = Several()
    for name, value in {"n": 3, "none": "text", "w": 2.0, "sub": Tensor([1.0])}.items():
        before = getattr(m, name)
        with pytest.raises(TypeError, match=rf"Several\.{name} is a .* take its place; delete it first"):
            setattr(m, name, value)
        assert getattr(m, name) is before
    with pytest.raises(TypeError, match=r"Several\.sub is a module"):
        m.sub = 3
    m.n, m.none, m.w, m.sub = Tensor([2.0]), Tensor([3.0]), None, None
    assert list(m.state_dict()) == ["n", "none"]
    del m.n
    m.n, m.plain = 3, 4
    m.plain = [5]
    assert (m.n, m.plain) == (3, [5])


def test_a_tensor_that_a_call_leaves_is_no_buffer() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("mean", Tensor.zeros(2))
            self.last: Any = None

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            self.last, self.new, self.mean = y.detach(), y.detach(), y.detach().mean(0)
            return y.sum()

    m = Kept()
    for _ in range(3):
        m(Tensor.ones(1, 2))
    assert list(m.state_dict()) == ["mean", "layer.weight", "layer.bias"]
    assert [name for name, _ in m.named_buffers()] == ["mean"]
    Kept().load_state_dict(m.state_dict())
    assert m.double().last.dtype is an.float64  # it goes with its module


class _Numbers(IterableDataset):
    """Whole numbers, all of them or the part of the thread that reads."""

    def __init__(self, end: int, parts: bool = False) -> None:
        self.numbers, self.parts = range(end), parts

    def __iter__(self) -> Any:
        info = get_worker_info() if self.parts else None
        return iter(self.numbers if info is None else self.numbers[info.id :: info.num_workers])


def _takes_a_part(n: int) -> None:
    info: Any = get_worker_info()
    assert info.id == n
    info.dataset.numbers = info.dataset.numbers[n :: info.num_workers]


def test_threads_that_read_an_iterable_dataset_have_a_copy_each() -> None:
    """The batches are those of torch's processes, in their order."""

    def batches(dataset: Any, size: Any = 2, **more: Any) -> list[Any]:
        loader: Any = DataLoader(dataset, size, **more)
        first, again = [[b.tolist() if isinstance(b, Tensor) else b for b in loader] for _ in range(2)]
        assert first == again
        return first

    once = [[0, 1], [2, 3], [4]]
    assert batches(_Numbers(5)) == batches(_Numbers(5), num_workers=1) == once
    assert batches(_Numbers(5), num_workers=2) == [b for b in once for _ in range(2)]
    assert batches(_Numbers(3), None, num_workers=2) == [0, 0, 1, 1, 2, 2]
    assert batches(_Numbers(9, parts=True), num_workers=2) == [[0, 2], [1, 3], [4, 6], [5, 7], [8]]
    assert batches(_Numbers(7, parts=True), num_workers=2) == [[0, 2], [1, 3], [4, 6], [5]]
    assert batches(_Numbers(7), num_workers=2, worker_init_fn=_takes_a_part) == [[0, 2], [1, 3], [4, 6], [5]]
    assert batches(_Numbers(7), num_workers=2, worker_init_fn=_takes_a_part, drop_last=True) == [[0, 2], [1, 3], [4, 6]]
    assert get_worker_info() is None


def test_a_thread_that_reads_says_its_number() -> None:
    class Told(Dataset[int]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, n: int) -> int:
            info: Any = get_worker_info()
            assert info.dataset is self
            assert info.seed == an.initial_seed()
            return int(info.id)

    loader: Any = DataLoader(Told(), 2, num_workers=3)
    assert {n for b in loader for n in b.tolist()} <= {0, 1, 2}


def test_a_loader_that_is_left_in_the_middle_ends_its_threads() -> None:
    before = threading.active_count()
    for batch in DataLoader(_Numbers(1000), 2, num_workers=3):
        assert batch.tolist() == [0, 1]
        break
    gc.collect()
    assert threading.active_count() == before
