"""Who derives from a base of anneal's and leaves a method out learns its name and the fix, whatever the base."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anneal
from anneal import nn, optim
from anneal.errors import MissingMethodError, UserError
from anneal.optim.lr_scheduler import LRScheduler
from anneal.runtime.handle import _INSTEAD
from anneal.tensor import Tensor
from anneal.training import Training
from anneal.transforms import Function
from anneal.utils.data import DataLoader, Dataset, IterableDataset


class Net(nn.Module):
    pass


class Step(optim.Optimizer):
    pass


class Rate(LRScheduler):
    pass


class Op(Function):
    pass


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 2


class Row(IterableDataset[int]):
    pass


def weight() -> Tensor:
    w = Tensor([1.0], requires_grad=True)
    w.sum().backward()
    return w


def training() -> Training:
    return Training(nn.Linear(1, 1), optim.SGD([weight()], lr=0.1), steps=1, batch=1)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "module": (lambda: Net()(weight()), r"Net defines no forward\(\): define"),
    "list": (lambda: nn.ModuleList([Net()])(1), "called one by one"),
    "optimizer": (lambda: Step([weight()], {"lr": 0.1}).step(), r"Step computes no update: define step\(\)"),
    "schedule": (lambda: Rate(optim.SGD([weight()], lr=0.1)), r"Rate defines no get_lr\(\): define"),
    "function": (lambda: Op.apply(weight()), r"forward\(ctx, \*args\), a static method: define"),
    "pull": (lambda: Op.backward(None, weight()), "no backward, a static method: define"),
    "push": (lambda: Op.jvp(None, weight()), "no jvp, a static method: define"),
    "context": (lambda: Op.setup_context(None, (), None), "no setup_context, a static method: define"),
    "numbers": (lambda: next(iter(DataLoader(Numbers()))), r"Numbers defines no __getitem__\(\): define"),
    "row": (lambda: next(iter(DataLoader(Row()))), r"Row defines no __iter__\(\): define"),
    "batch": (lambda: training().next_batch(), r"Training defines no next_batch\(\): define"),
    "loss": (lambda: training().loss(), r"Training defines no loss\(\): define"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_that_is_left_out_is_named(name: str) -> None:
    call, said = CALLS[name]
    with pytest.raises(MissingMethodError, match=said) as caught:
        call()
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, NotImplementedError)  # torch's, which programs may catch


@pytest.mark.parametrize("name", sorted(_INSTEAD))
def test_a_method_of_torchs_that_is_not_there_says_what_to_write(name: str) -> None:
    """And what it says is there."""
    x = Tensor([[2.0, 0.0], [0.0, 2.0]])
    with pytest.raises(AttributeError, match=f"no attribute '{name}': write ") as error:
        getattr(x, name)
    instead = str(error.value).partition("anneal.")[2].partition("(")[0]
    assert not instead or callable(getattr(anneal, instead))
    assert not hasattr(x, "nothing_like_it")
