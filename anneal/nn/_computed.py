"""Attributes of a module that are computed from its other tensors; modules as functions of their parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ParamSpec, Protocol, TypeVar

from anneal.errors import DataError, SettingError
from anneal.nn._layers import _BatchNorm
from anneal.nn._module import Module
from anneal.nn._whole_calls import replaced
from anneal.optim import Optimizer
from anneal.optim.lr_scheduler import LRScheduler
from anneal.tensor import Tensor, no_grad

Compute = Callable[[Any], Any]

# A module with such attributes gets its own class, below its class, with a property for each.


def computed(module: Module) -> dict[str, tuple[Compute, Compute | None]]:
    """The functions that compute attributes of `module`, by name, and those that set them."""
    found: dict[str, Any] = vars(module).get("_computed", {})
    return found


def before(module: Module) -> type:
    """The class of a module before attributes of it were computed."""
    return getattr(module, "_before", type(module))


def compute(module: Any, name: str, get: Callable[..., Any], put: Callable[..., Any] | None = None) -> None:
    """Make `module.name` compute `get(module, name)`; assignment calls `put(module, name, value)`."""
    vars(module).pop(name, None)
    vars(module)["_computed"] = computed(module) | {name: (get, put)}
    _reclass(module)


def keep(module: Any, name: str, value: Any) -> None:
    """Make `module.name` a plain attribute with `value` again."""
    vars(module)["_computed"] = {n: f for n, f in computed(module).items() if n != name}
    _reclass(module)
    setattr(module, name, value)


def _reclass(module: Any) -> None:
    kind, names = before(module), tuple(computed(module))
    module.__class__ = _class(kind, names) if names else kind


def _property(name: str) -> property:
    def get(module: Any) -> Any:
        return vars(module)["_computed"][name][0](module, name)

    def put(module: Any, value: Any) -> None:
        by = vars(module)["_computed"][name][1]
        if by is None:
            raise DataError(f"{before(module).__name__}.{name} is computed: set the tensors that it is computed of")
        by(module, name, value)

    return property(get, put)


@lru_cache(1 << 10)
def _class(kind: type, names: tuple[str, ...]) -> type:
    body: dict[str, Any] = {name: _property(name) for name in names}
    body |= {"__module__": kind.__module__, "__doc__": kind.__doc__, "_before": kind}
    body["__reduce__"] = lambda module: (_made, (kind, names), vars(module))
    return type(kind.__name__, (kind,), body)


def _made(kind: type, names: tuple[str, ...]) -> Any:
    return object.__new__(_class(kind, names))


P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)


class _Called(Protocol[P, _R_co]):
    """The type of a module's call: what it takes and returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...

    def _tensors(self) -> Iterator[tuple[str, Module, str, Tensor]]: ...


def functional_call(module: _Called[P, R], parameters: Mapping[str, Tensor], *args: P.args, **kwargs: P.kwargs) -> R:
    """`module(*args, **kwargs)` with the tensors of `parameters`, by name, in place of the module's own for this call.

    Names are those of `named_parameters` and `state_dict`; tensors that are not named stay. What a name replaces is
    replaced wherever the module shares it, unless another name there says otherwise.

    Raises DataError for a name that the module does not have, or a tensor of another shape.

    >>> from anneal.nn import Linear
    >>> from anneal.tensor import Tensor, grad
    >>> model = Linear(2, 1, bias=False)
    >>> params = {"weight": Tensor([[3.0, 4.0]])}
    >>> grad(lambda p: functional_call(model, p, Tensor([1.0, 10.0])).sum())(params)
    {'weight': Tensor([[ 1., 10.]], dtype=float32)}
    """
    places = {name: (m, own) for name, m, own, _ in module._tensors()}
    unknown = [n for n in parameters if n not in places]
    if unknown:
        raise DataError(
            f"functional_call: {type(module).__name__} has no {', '.join(unknown)}; its tensors are {', '.join(places)}"
        )
    shared = {}
    for name, given in parameters.items():
        m, attribute = places[name]
        own = vars(m)[attribute]
        if given.shape != own.shape:
            raise DataError(f"functional_call: {name} has shape {given.shape}, the model's is {own.shape}")
        shared[own] = given
    put = []  # other attributes that the call assigns keep their new values
    for name, (m, attribute) in places.items():
        if (t := parameters.get(name, shared.get(vars(m)[attribute]))) is not None:
            put.append(((vars(m), attribute), t))
    with replaced([place for place, _ in put], [t for _, t in put]):
        return module(*args, **kwargs)


class Around(Module):
    """A module that calls another one, `module`."""

    module: Module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module for these `args` and `kwargs`."""
        return self.module(*args, **kwargs)


# -- models whose parameters are means over steps of training, and a schedule for it (Izmailov and others, 2018) ------


Average = Callable[[Tensor, Tensor, Any], Tensor]  # the mean, the new value, the number of values so far
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], object]  # assigns the means


def get_swa_avg_fn() -> Average:
    """The mean of all values, each with the same weight.

    >>> get_swa_avg_fn()(Tensor(1.0), Tensor(4.0), 2).item()
    2.0
    """
    return _mean


def _mean(mean: Tensor, new: Tensor, count: float | Tensor) -> Tensor:
    return mean + (new - mean) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A mean that keeps `decay` of itself with each new value. Raises SettingError for a decay outside 0 to 1.

    >>> get_ema_avg_fn(0.5)(Tensor(1.0), Tensor(4.0), 2).item()
    2.5
    """
    if not 0 <= decay <= 1:
        raise SettingError(f"get_ema_avg_fn: decay is a number of 0 to 1, not {decay}")
    return partial(_decayed, decay)  # which can be pickled with its model


def _decayed(decay: float, mean: Tensor, new: Tensor, count: Any) -> Tensor:
    return decay * mean + (1 - decay) * new


def _assigned(average: Average, means: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
    with no_grad():
        for mean, new in zip(means, values, strict=True):
            mean.assign(average(mean, new, count))


def get_swa_multi_avg_fn() -> Averages:
    """`get_swa_avg_fn` for lists of tensors: assigns the means.

    >>> means = [Tensor(1.0)]
    >>> get_swa_multi_avg_fn()(means, [Tensor(4.0)], 2); means[0].item()
    2.0
    """
    return partial(_assigned, _mean)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """`get_ema_avg_fn(decay)` for lists of tensors: assigns the means.

    >>> means = [Tensor(1.0)]
    >>> get_ema_multi_avg_fn(0.5)(means, [Tensor(4.0)], 2); means[0].item()
    2.5
    """
    return partial(_assigned, get_ema_avg_fn(decay))


class AveragedModel(Around):
    """A copy of a model whose parameters are means of that model's, one value for each `update_parameters`.

    Args:
        model: the model that trains. device: where the copy is.
        avg_fn: mean, new value and count to the new mean; the mean of all if None. multi_avg_fn: the same of lists,
            which assigns. use_buffers: buffers are averaged too; they are the model's otherwise.

    >>> from anneal import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     averaged.update_parameters(model.weight.detach().fill_(value) is None or model)
    >>> averaged(Tensor([[1.0]])).item()
    2.0
    """

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        if avg_fn is not None and multi_avg_fn is not None:
            raise SettingError("AveragedModel: give avg_fn or multi_avg_fn, and not both")
        self.module = copy.deepcopy(model)
        self.n_averaged = Tensor(0)
        self.to(device=device)
        self.avg_fn = avg_fn or (None if multi_avg_fn else get_swa_avg_fn())
        self.multi_avg_fn, self.use_buffers = multi_avg_fn, use_buffers

    def update_parameters(self, model: Module) -> None:
        """Average the present parameters of `model` in."""
        pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        copied = list(zip(self.module.buffers(), model.buffers(), strict=True))
        if self.use_buffers:
            pairs, copied = pairs + copied, []
        with no_grad():
            means, values = [a for a, _ in pairs], [b.detach().to(device=a.device) for a, b in pairs]
            if self.avg_fn is not None:
                first = self.n_averaged == 0
                for mean, new in zip(means, values, strict=True):
                    mean.assign(first.to(device=mean.device).where(new, self.avg_fn(mean, new, self.n_averaged)))
            elif self.multi_avg_fn is not None and int(self.n_averaged.item()):
                self.multi_avg_fn(means, values, self.n_averaged)
            else:
                copied = [*copied, *pairs]
            for a, b in copied:
                a.assign(b.detach().to(device=a.device))
            self.n_averaged.assign(self.n_averaged + 1)


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Compute the running statistics of `model`'s batch norms again, as means over the batches of `loader`.

    A batch that is a list or a tuple counts by its first part; it moves to `device` if that is given.

    >>> from anneal import nn
    >>> model = nn.BatchNorm1d(1)
    >>> update_bn([Tensor([[1.0], [3.0]]), Tensor([[5.0], [7.0]])], model); model.running_mean.tolist()
    [4.0]
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    before, training = [m.momentum for m in norms], model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    with no_grad():
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    for m, momentum in zip(norms, before, strict=True):
        m.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """Rates of `optimizer` that go to `swa_lr` in `anneal_epochs` steps, and stay there.

    Args:
        swa_lr: the last rate, or one for each group. anneal_strategy: "cos" or "linear". last_epoch: the step to go on
            from, -1 to begin.

    Raises SettingError for another strategy, or a negative number of steps.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = SWALR(optimizer, 0.2, anneal_epochs=2, anneal_strategy="linear")
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.6, 0.2, 0.2]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear") or not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise SettingError(
                f'SWALR: "cos" or "linear" and a number of steps, not {anneal_strategy!r} and {anneal_epochs}'
            )
        groups = optimizer.param_groups
        rates = [swa_lr] * len(groups) if isinstance(swa_lr, (int, float)) else list(swa_lr)
        if len(rates) != len(groups):
            raise SettingError(f"SWALR: {len(rates)} rates for {len(groups)} groups")
        for group, rate in zip(groups, rates, strict=True):
            dict.update(group, swa_lr=rate)
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self.anneal_strategy == "cos" else t

    def get_lr(self) -> list[float]:
        step = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self._share(step - 1), self._share(step)
        out = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            out.append(last * now + first * (1 - now))
        return out
