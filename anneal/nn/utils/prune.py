"""Pruning with torch's names: a tensor of a module becomes `weight_orig`, which trains, times `weight_mask`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anneal.errors import DataError, DTypeError, SettingError, ShapeError
from anneal.nn._computed import compute, keep
from anneal.nn._module import Module
from anneal.tensor import Tensor, no_grad

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


def _masked(module: Any, name: str) -> Tensor:
    out: Tensor = getattr(module, f"{name}_orig") * getattr(module, f"{name}_mask")
    return out


class BasePruningMethod:
    """Base of ways to prune: a subclass has `compute_mask(t, default_mask)`, and says by `PRUNING_TYPE` what it looks
    at of a tensor that was pruned before: "unstructured" (the elements that are left), "structured" (the rows along
    `dim` of which some are), "global" (all).
    """

    PRUNING_TYPE = "unstructured"
    dim = -1

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the tensor `t`, which has the zeros of `default_mask` too: 1 where elements stay."""
        raise SettingError(f"{type(self).__name__} defines no compute_mask(t, default_mask): define it in the class")

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """The tensor `t` with zeros where it is pruned by `importance_scores`, or itself; `default_mask` has zeros that
        stay.
        """
        mask = Tensor.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune the tensor `name` of `module` by this method of these arguments; returns the method.

        Args:
            importance_scores: what is compared in place of the elements.

        Raises ShapeError for scores of another shape, DataError for a name of no tensor.
        """
        method, t = cls(*args, **kwargs), getattr(module, name, None)
        if not isinstance(t, Tensor):
            raise DataError(f"prune: {type(module).__name__} has no tensor {name!r}")
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise ShapeError(f"prune: importance_scores are {importance_scores.shape}, {name!r} is {t.shape}")
        done = vars(module).get("_pruned", {})
        with no_grad():
            scores = (t if importance_scores is None else importance_scores).detach()
            if name in done:
                mask = _combined(method, scores, getattr(module, f"{name}_mask"))
                getattr(module, f"{name}_mask").copy_(mask)
            else:
                mask = method.compute_mask(scores, Tensor.ones_like(scores)).to(t.dtype)
                compute(module, name, _masked)
                setattr(module, f"{name}_orig", t)
                module.register_buffer(f"{name}_mask", mask)
        vars(module)["_pruned"] = {**done, name: (*done.get(name, ()), method)}
        return method


def _combined(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Tensor:
    """The mask of a tensor that has one."""
    dim = method.dim
    scores, kept = t, mask
    if method.PRUNING_TYPE == "unstructured":
        dim, scores, kept = 0, t.reshape(-1), mask.reshape(-1)
    elif method.PRUNING_TYPE == "global":
        return method.compute_mask(t, mask)
    elif method.PRUNING_TYPE != "structured":
        raise SettingError(f"prune: PRUNING_TYPE is unstructured, structured or global, not {method.PRUNING_TYPE!r}")
    dim %= scores.ndim
    (rows,) = (kept.numpy() != 0).any(axis=tuple(n for n in range(kept.ndim) if n != dim)).nonzero()
    index = Tensor(rows.astype("int32"), device=t.device)
    part = method.compute_mask(scores.index_select(dim, index), kept.index_select(dim, index))
    return kept.index_copy(dim, index, part.to(mask.dtype)).reshape(mask.shape)


class PruningContainer(BasePruningMethod):
    """Several pruning methods, one after another: each prunes the elements that the earlier ones left.

    Args:
        args: the methods.
    """

    PRUNING_TYPE = "global"

    def __init__(self, *args: BasePruningMethod) -> None:
        self.methods = list(args)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        for method in self.methods:
            default_mask = _combined(method, t, default_mask)
        return default_mask


class Identity(BasePruningMethod):
    """A mask that prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise DTypeError(f"prune: amount is a number, not {amount!r}")
        if amount < 0 or isinstance(amount, float) and amount > 1:
            raise SettingError(f"prune: amount is a share from 0 to 1 or a count, not {amount}")
        self.amount = amount

    _scores: Callable[[Tensor], Tensor]  # of elements or of rows: the least go

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        scores = self._scores(t)
        size = scores.numel()
        count = self.amount if isinstance(self.amount, int) else round(self.amount * size)
        if count > size:
            raise SettingError(f"prune: amount is {self.amount} of {size}")
        if not count:
            return default_mask.clone()
        index = scores.reshape(-1).topk(count, largest=False).indices
        kept = Tensor.ones(size, device=t.device).index_fill(0, index, 0.0)
        if self.PRUNING_TYPE == "unstructured":
            return default_mask * kept.reshape(t.shape)
        return default_mask * kept.reshape([-1 if n == self.dim % t.ndim else 1 for n in range(t.ndim)])


class RandomUnstructured(_Amount):
    """Prunes random elements.

    Args:
        amount: the share of elements, or their number.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return Tensor.rand(*t.shape, device=t.device)


class L1Unstructured(_Amount):
    """Prunes the smallest elements.

    Args:
        amount: the share of elements, or their number.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class RandomStructured(_Amount):
    """Prunes random rows.

    Args:
        amount: the share of rows, or their number. dim: the axis that they are along.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        return Tensor.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Amount):
    """Prunes the rows of least norm.

    Args:
        amount: the share of rows, or their number. n: the order of the norm. dim: the axis that they are along.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def _scores(self, t: Tensor) -> Tensor:
        return t.movedim(self.dim, 0).flatten(1).norm(self.n, dim=1)


class CustomFromMask(BasePruningMethod):
    """Prunes the elements where a given `mask` is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Give the tensor `name` of `module` a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prune an `amount` of random elements of the tensor `name` of `module`, a fraction or a number; returns the
    module.

    >>> from anneal import nn
    >>> random_unstructured(nn.Linear(4, 2), "weight", 3).weight_mask.sum().item()
    5.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prune an `amount` of the smallest elements of the tensor `name` of `module`, a fraction or a number; returns the
    module.

    Args:
        importance_scores: what is compared in place of the elements.

    >>> from anneal import nn
    >>> layer = nn.Linear(2, 2)
    >>> layer.weight = nn.Parameter([[1.0, -4.0], [2.0, -3.0]])
    >>> l1_unstructured(layer, "weight", 0.5).weight.tolist()
    [[0.0, -4.0], [0.0, -3.0]]
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prune an `amount` of random rows, along `dim`, of the tensor `name` of `module`; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prune an `amount` of the rows of least norm, of order `n`, along `dim`, of the tensor `name` of `module`; returns
    the module.

    Args:
        importance_scores: what is compared in place of the elements.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune the tensor `name` of `module` where `mask` is 0; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Any, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several tensors as if they were one.

    Args:
        parameters: modules with the names of their tensors.
        pruning_method: the class, which is unstructured; kwargs: its arguments, `amount=0.2`.
        importance_scores: what is compared in place of elements, by module and name.

    Raises SettingError for a method of rows.

    >>> from anneal import nn
    >>> layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    >>> global_unstructured([(layer, "weight") for layer in layers], L1Unstructured, amount=0.25)
    >>> sum((layer.weight == 0).sum().item() for layer in layers)
    2
    """
    several, scores = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise SettingError(f"global_unstructured: takes an unstructured method, not {pruning_method.__name__}")
    with no_grad():
        tensors = [getattr(m, n).detach() for m, n in several]
        flat = [scores.get(key, t).reshape(-1) for key, t in zip(several, tensors, strict=True)]
        masks = [getattr(m, f"{n}_mask", Tensor.ones_like(t)) for (m, n), t in zip(several, tensors, strict=True)]
        mask = _combined(method, Tensor.cat(flat), Tensor.cat([x.reshape(-1) for x in masks]))
    at = 0
    for (m, n), t in zip(several, tensors, strict=True):
        custom_from_mask(m, n, mask[at : at + t.numel()].reshape(t.shape))
        at += t.numel()


def remove(module: Any, name: str) -> Any:
    """Let the tensor `name` of `module` be a parameter again, with zeros where it was pruned; returns the module.
    Raises DataError if it was not.
    """
    done = vars(module).get("_pruned", {})
    if name not in done:
        raise DataError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
    original = getattr(module, f"{name}_orig")
    with no_grad():
        original.copy_(getattr(module, name))
    delattr(module, f"{name}_orig")
    delattr(module, f"{name}_mask")
    vars(module)["_pruned"] = {n: v for n, v in done.items() if n != name}
    keep(module, name, original)
    return module


def is_pruned(module: Module) -> bool:
    """True if a tensor of `module`, or of a module below, is pruned."""
    return any(vars(m).get("_pruned") for m in module.modules())
