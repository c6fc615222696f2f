"""Optimisers with torch's formulas, and gradient clipping.

`step()` writes the update into the graph of the gradients and computes everything at once: losses, parameters, moments.
Per parameter the update is one elementwise expression, so it fuses with the gradient that feeds it. What changes from
step to step (learning rates, the corrections for the first steps) is data, so every step runs the same kernels.

A parameter of 16 or 8 bits has a float32 copy in the state, "master", to which updates too small for it add up; the
parameter is that copy, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from anneal.errors import DataError, GradientError, SettingError, ShapeError
from anneal.ops import take_running_updates, wrap_array
from anneal.ops.nodes import pad, reshape, shrink
from anneal.runtime import forbid_in_capture, outdate_captures, realize
from anneal.tensor import Tensor, no_grad
from anneal.transforms import take_results
from anneal.uop import DType, Op, UOp, alu, arena, const, dtypes

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "ParameterGroup", "clip_grad_norm_"]

# What trains: tensors, or groups of them with settings of their own.
Parameters = Iterable[Tensor | Mapping[str, Any]]
# What becomes of the gradients before the update takes them.
Reduce = Callable[[list[Tensor]], Iterable[Tensor]]
_F32 = dtypes.float32
_CORRECTIONS = ("correction1", "correction2")  # 1 - beta**step for both of Adam's betas


@contextmanager
def _update_phase() -> Iterator[None]:
    """Nodes made within the block belong to the optimiser."""
    a = arena()
    before, a.phase = a.phase, "update"
    try:
        yield
    finally:
        a.phase = before


class ParameterGroup(dict[str, Any]):
    """Parameters with their settings, as torch's dicts; setting "lr" changes the value on the device.

    The other settings are constants of the compiled update: changing one compiles it anew.

    >>> group = SGD([Tensor([1.0], requires_grad=True)], lr=0.5).param_groups[0]
    >>> group["lr"] = group["lr"] / 2
    >>> group["lr"], group.rate
    (0.25, Tensor([0.25], dtype=float32))
    """

    def __init__(self, settings: Mapping[str, Any], device: str) -> None:
        super().__init__(settings)
        self.rate = Tensor(np.array([settings["lr"]], np.float32), device=device)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: Literal["params"], /) -> list[Tensor]: ...
        @overload
        def __getitem__(self, key: Literal["lr"], /) -> float: ...
        @overload
        def __getitem__(self, key: str, /) -> Any: ...
        def __getitem__(self, key: str, /) -> Any: ...

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "lr" and self.get(key) != value:
            outdate_captures(f"an optimiser's {key!r} was set")
        super().__setitem__(key, value)
        if key == "lr":
            self.rate.assign(Tensor(np.array([value], np.float32), device=self.rate.device))

    @property
    def rate_node(self) -> UOp:
        """The learning rate as a node of shape ()."""
        return reshape(self.rate.uop, ())


class Optimizer:
    """Base of the optimisers.

    Args:
        params: tensors that require gradients, or dicts `{"params": tensors, "lr": ..., ...}` with settings of their
            own.
        defaults: the settings of parameters that set none.

    Raises SettingError for no parameters, an unknown or wrong setting; GradientError for a tensor that is no leaf with
    requires_grad or appears twice.

    >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    >>> optimizer = AdamW([{"params": [a], "weight_decay": 0.1}, {"params": [b]}], lr=0.01)
    >>> [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
    [(0.01, 0.1), (0.01, 0.01)]
    """

    def __init__(self, params: Parameters, defaults: dict[str, Any]) -> None:
        given: list[Any] = list(params)
        name = type(self).__name__
        if not given:
            raise SettingError(f"{name}: no parameters given")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        seen: set[int] = set()
        self.param_groups: list[ParameterGroup] = []
        self.state: dict[int, dict[str, Tensor]] = {}
        for g in groups:
            unknown = [k for k in g if k != "params" and k not in defaults]
            if unknown:
                raise SettingError(f"{name}: unknown setting {unknown[0]!r}; known: {', '.join(defaults)}")
            group = {**defaults, **g}
            tensors = group["params"] = (
                [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
            )
            for t in tensors:
                if not isinstance(t, Tensor) or not t.requires_grad or not t.is_leaf:
                    raise GradientError(f"{name}: a parameter must be a tensor made with requires_grad=True, not {t!r}")
                if id(t) in seen:
                    raise GradientError(f"{name}: a parameter of shape {t.shape} is given twice")
                seen.add(id(t))
            _check_settings(name, group)
            if tensors:
                self.param_groups.append(ParameterGroup(group, tensors[0].device))
        self.params: list[Tensor] = [t for g in self.param_groups for t in g["params"]]
        # A parameter that is still lazy is computed now: its first update must not depend on how it was made.
        realize(self.params)

    def zero_grad(self) -> None:
        """Forget every gradient."""
        for t in self.params:
            t.grad = None

    def step(self, *results: Tensor, reduce: Reduce | None = None) -> None:
        """Update every parameter that has a gradient, and compute.

        Besides the parameters this computes `results`, the tensors whose backward() led here, and running statistics
        of batch norm: one call for the whole step.

        `reduce` makes of the gradients, a list of tensors in the order of `params`, those that the update takes: data
        parallel training gives `lambda gradients: all_reduce(gradients, group, "mean")`. `.grad` has them afterwards.

        Raises GradientError where `reduce` gives another number of gradients, ShapeError where one is of another shape.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer = SGD([w], lr=0.1)
        >>> (w * w).sum().backward(); optimizer.step(reduce=lambda gradients: [g / 2 for g in gradients]); w
        Tensor([0.9], dtype=float32, requires_grad=True)
        """
        if reduce is None:
            self._apply(results)
            return
        there = self.gradients()
        given = [g for g in there if g is not None]
        made = list(reduce(given))
        if len(made) != len(given):
            raise GradientError(
                f"{type(self).__name__}: reduce gives {len(made)} gradients for {len(given)}: one for each that it takes"
            )
        reduced = iter(made)
        self.apply([None if g is None else next(reduced) for g in there], *results)

    def gradients(self) -> list[Tensor | None]:
        """The gradients of `params` in their order, None for a parameter that has none."""
        return [t.grad for t in self.params]

    def apply(self, gradients: Sequence[Tensor | None], *results: Tensor) -> None:
        """The second half of `step`, with these gradients in place of the parameters' own; `.grad` has them afterwards.

        `gradients` has one for each of `params`, in their order: what `gradients()` gave, or what became of it. A
        parameter with None stays as it is. Raises GradientError for another number of gradients, or for something that
        is no tensor, ShapeError for one of another shape than its parameter's.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.apply([g.sign() for g in optimizer.gradients()]); w
        Tensor([0.9, 1.9], dtype=float32, requires_grad=True)
        """
        name, gradients = type(self).__name__, list(gradients)
        if len(gradients) != len(self.params):
            raise GradientError(
                f"{name}: {len(gradients)} gradients for {len(self.params)} parameters: give one for each"
            )
        for n, (t, g) in enumerate(zip(self.params, gradients, strict=True)):
            if g is not None and not isinstance(g, Tensor):
                raise GradientError(f"{name}: gradient {n} is a tensor, or None, not {type(g).__name__}")
            if g is not None and g.shape != t.shape:
                raise ShapeError(f"{name}: gradient {n} has shape {g.shape}, and its parameter {t.shape}")
        for t, g in zip(self.params, gradients, strict=True):
            t.grad = g
        self._apply(results)

    def _apply(self, results: Sequence[Tensor]) -> None:
        """Update the parameters by their gradients, and compute."""
        done: dict[Tensor, UOp] = {}
        with _update_phase():
            for group in self.param_groups:
                active = [t for t in group["params"] if t.grad is not None]
                if active:
                    self._update(group, active, done)
        for t, u in done.items():
            t._become(u)
        # Nothing asks for a gradient through what is computed here: memory shall not keep the graph of the step.
        with no_grad():
            realize([*results, *take_results(), *take_running_updates(), *done])

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        """Put the new nodes of parameters and state into `done`."""
        raise NotImplementedError(f"{type(self).__name__} defines no _update()")

    def _operands(self, t: Tensor) -> tuple[UOp, UOp, DType]:
        """Parameter and gradient in the dtype the update is computed in."""
        assert t.grad is not None
        wide = dtypes.float64 if t.uop.dtype is dtypes.float64 else _F32
        p, g = t.uop.cast(wide), t.grad.uop.cast(wide)
        if t.uop.dtype.is_narrow:
            # Where the parameter is not what the copy rounds to, somebody else has set it.
            master = self._state(t, "master").uop
            p = alu(Op.WHERE, (master.cast(t.uop.dtype).eq(t.uop), master, p))
        return p, g, wide

    def _put(self, t: Tensor, new: UOp, done: dict[Tensor, UOp]) -> None:
        """The parameter's new value, rounded to its dtype."""
        if t.uop.dtype.is_narrow:
            done[self._state(t, "master")] = new
        done[t] = new.cast(t.uop.dtype)

    def _state(self, t: Tensor, name: str) -> Tensor:
        """A state tensor like `t`, zero at first."""
        mine = self.state.setdefault(id(t), {})
        s = mine.get(name)
        if s is None:
            # a copy of the zeros would be written: the system gives memory when it is first used
            zeros = wrap_array(np.zeros(t.shape or (1,), _state_dtype(t)), t.device)
            s = mine[name] = Tensor(zeros, device=t.device)
            if not t.shape:
                s.uop = reshape(s.uop, ())
        return s

    def state_dict(self) -> dict[str, Tensor]:
        """The state by name: `"0.exp_avg"` is that of the first parameter; learning rates are `"group.0.lr"`."""
        out = {f"{i}.{n}": s for i, t in enumerate(self.params) for n, s in self.state.get(id(t), {}).items()}
        for i, g in enumerate(self.param_groups):
            out[f"group.{i}.lr"] = g.rate
            out |= {f"group.{i}.{n}": s for n, s in self.state.get(id(g), {}).items()}
        return out

    def load_state_dict(self, state: Mapping[str, Tensor | npt.ArrayLike]) -> None:
        """Take over what `state_dict` of an optimiser over the same parameters gave.

        Raises DataError for a name or shape that does not fit.
        """
        for key, value in state.items():
            head, _, rest = key.partition(".")
            array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            try:
                if head == "group":
                    number, _, name = rest.partition(".")
                    group = self.param_groups[int(number)]
                    if name == "lr":
                        group["lr"] = float(array.reshape(-1)[0])
                    else:
                        self._group_state(group, name).assign(Tensor(array))
                    continue
                t = self.params[int(head)]
            except (ValueError, IndexError):
                raise DataError(
                    f"load_state_dict: {key!r} belongs to no parameter of this {type(self).__name__}"
                ) from None
            if array.shape != t.shape:
                raise DataError(f"load_state_dict: {key} has shape {array.shape}, the parameter's is {t.shape}")
            self._state(t, rest).assign(Tensor(array, device=t.device))

    def _group_state(self, group: ParameterGroup, name: str) -> Tensor:
        mine = self.state.setdefault(id(group), {})
        if name not in mine:
            mine[name] = Tensor(np.zeros(1, np.float32), device=group.rate.device)
        return mine[name]


def _check_settings(name: str, group: Mapping[str, Any]) -> None:
    for key, value in group.items():
        wrong = False
        if key == "betas":
            wrong = len(value) != 2 or not all(0 <= b < 1 for b in value)
        elif key in ("lr", "eps", "weight_decay", "momentum"):
            wrong = not isinstance(value, (int, float)) or not value >= 0 or not math.isfinite(value)
        if wrong:
            wanted = "two numbers in [0, 1)" if key == "betas" else "a finite number that is not negative"
            raise SettingError(f"{name}: {key} is {wanted}, not {value!r}")


def _state_dtype(t: Tensor) -> type[np.floating[Any]]:
    return np.float64 if t.uop.dtype is dtypes.float64 else np.float32


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, Nesterov's form and L2 weight decay as in torch.

    Args:
        params: as for `Optimizer`. lr: the learning rate. momentum: how much of the last step's direction stays.
        weight_decay: how much of a parameter joins its gradient. nesterov: looks ahead by the momentum.

    Raises SettingError for nesterov without a momentum, and as `Optimizer` does.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.8], dtype=float32, requires_grad=True)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and not momentum:
            raise SettingError("SGD: nesterov=True needs a momentum above 0")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        momentum, decay = group["momentum"], group["weight_decay"]
        for t in params:
            p, g, wide = self._operands(t)
            if decay:
                g = g + p * decay
            if momentum:
                b = self._state(t, "momentum_buffer")
                new = b.uop * momentum + g
                done[b] = new
                g = g + new * momentum if group["nesterov"] else new
            self._put(t, p - g * group.rate_node.cast(wide), done)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) as torch computes it; weight_decay is L2: it joins the gradient.

    Args:
        params: as for `Optimizer`. lr: the learning rate. betas: how much of the running means of gradients and of
            their squares stays in a step, in [0, 1). eps: added to the root of the latter.

    Raises as `Optimizer` does.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.9], dtype=float32, requires_grad=True)
    """

    decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    # Each parameter counts the steps in which it had a gradient. Those that have had it in the same steps share one
    # count, the group's; the state of others has corrections of their own, which they share as well.

    def _corrections(self, t: Tensor) -> tuple[Tensor, Tensor] | None:
        """The corrections that stand in a parameter's own state."""
        mine = self.state.get(id(t), {})
        return (mine[_CORRECTIONS[0]], mine[_CORRECTIONS[1]]) if _CORRECTIONS[0] in mine else None

    def _stay_behind(self, group: ParameterGroup, shared: tuple[Tensor, Tensor] | None, left: list[Tensor]) -> None:
        """Give parameters without a gradient a count of their own, which stays what it was."""
        forbid_in_capture(
            "an optimiser's step in which other parameters have a gradient than before", "call it outside of jit once"
        )
        counts = shared or tuple([self._group_state(group, name) for name in _CORRECTIONS])
        copies = [q._new_plain(UOp(Op.CONTIGUOUS, _F32, (q.uop,))) for q in counts]
        realize(copies)
        for t in left:
            self.state.setdefault(id(t), {}).update(zip(_CORRECTIONS, copies, strict=True))
        outdate_captures("an optimiser has gradients for other parameters than before")

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        together: dict[tuple[Tensor, Tensor] | None, list[Tensor]] = {}
        left: dict[tuple[Tensor, Tensor] | None, list[Tensor]] = {}
        for t in group["params"]:
            (left if t.grad is None else together).setdefault(self._corrections(t), []).append(t)
        for shared, some in together.items():
            if shared in left:
                self._stay_behind(group, shared, left[shared])
            counts = shared or (self._group_state(group, _CORRECTIONS[0]), self._group_state(group, _CORRECTIONS[1]))
            self._update_together(group, some, counts, done)

    def _update_together(
        self, group: ParameterGroup, params: list[Tensor], counts: tuple[Tensor, Tensor], done: dict[Tensor, UOp]
    ) -> None:
        eps, decay = group["eps"], group["weight_decay"]
        b1, b2 = group["betas"]
        # 1 - beta**step follows q' = q*beta + (1 - beta) from 0, which loses no digits when beta is close to 1.
        corrections = []
        for q, beta in zip(counts, (b1, b2), strict=True):
            done[q] = q.uop * beta + (1 - beta)
            corrections.append(done[q])
        # The numbers that a step shares sit in one small array, so that a kernel has one binding for all of them.
        shared = [group.rate_node / reshape(corrections[0], ()), alu(Op.RSQRT, (reshape(corrections[1], ()),))]
        if self.decoupled and decay:
            shared.append(1.0 - group.rate_node * decay)
        numbers = _array(shared)
        for t in params:
            p, g, wide = self._operands(t)
            size, root, *rest = [u.cast(wide) for u in _parts(numbers, len(shared))]
            if decay and not self.decoupled:
                g = g + p * decay
            m, v = self._state(t, "exp_avg"), self._state(t, "exp_avg_sq")
            done[m] = mean = m.uop * b1 + g * (1 - b1)
            done[v] = square = v.uop * b2 + g * g * (1 - b2)
            if rest:
                p = p * rest[0]
            change = mean * size / (alu(Op.SQRT, (square,)) * root + eps)
            self._put(t, p - change, done)

    def load_state_dict(self, state: Mapping[str, Tensor | npt.ArrayLike]) -> None:
        """Take over what `state_dict` of an optimiser over the same parameters gave.

        Raises DataError for a name or shape that does not fit.
        """
        own: dict[str, dict[str, Any]] = {}
        rest: dict[str, Tensor | npt.ArrayLike] = {}
        for key, value in state.items():
            head, _, name = key.partition(".")
            if name in _CORRECTIONS and head.isdigit() and int(head) < len(self.params):
                array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
                if array.shape != (1,):
                    raise DataError(f"load_state_dict: {key} has shape {array.shape}, a count's is (1,)")
                own.setdefault(head, {})[name] = array
            else:
                rest[key] = value
        super().load_state_dict(rest)
        shared: dict[Any, list[Tensor]] = {}
        of = {id(t): i for i, g in enumerate(self.param_groups) for t in g["params"]}
        for n, t in enumerate(self.params):
            mine, given = self.state.get(id(t), {}), own.get(str(n))
            if given is None and _CORRECTIONS[0] not in mine:
                continue
            outdate_captures("an optimiser's state was loaded")
            for name in _CORRECTIONS:
                mine.pop(name, None)
            if given is not None:
                arrays = [np.asarray(given.get(name, [0.0]), np.float32) for name in _CORRECTIONS]
                same = (of[id(t)], *[float(a[0]) for a in arrays])
                if same not in shared:
                    shared[same] = [Tensor(a, device=t.device) for a in arrays]
                self.state.setdefault(id(t), {}).update(zip(_CORRECTIONS, shared[same], strict=True))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019) as torch computes it.

    Arguments and errors as for `Adam`; a step also takes `lr * weight_decay` of each parameter away.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.5)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.84999996], dtype=float32, requires_grad=True)
    """

    decoupled = True

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


def _array(values: list[UOp]) -> UOp:
    """Numbers of shape () as one array in memory."""
    n = len(values)
    out: UOp | None = None
    for i, v in enumerate(values):
        u = pad(reshape(v, (1,)), ((i, n - 1 - i),))
        out = u if out is None else out + u
    assert out is not None
    return UOp(Op.CONTIGUOUS, out.dtype, (out,))


def _parts(array: UOp, n: int) -> list[UOp]:
    """The elements of an array, each of shape ()."""
    return [reshape(shrink(array, ((i, i + 1),)), ()) for i in range(n)]


def clip_grad_norm_(params: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their joint 2-norm is at most `max_norm`; returns the norm before, shape ().

    Raises SettingError for a negative max_norm.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w * 0.5).sum().backward()
    >>> clip_grad_norm_([w], 1.0).item(), w.grad.numpy().round(3).tolist()
    (5.0, [0.6000000238418579, 0.800000011920929])
    """
    if not max_norm >= 0:
        raise SettingError(f"clip_grad_norm_: max_norm may not be negative: {max_norm}")
    tensors = [params] if isinstance(params, Tensor) else list(params)
    grads = [t.grad for t in tensors if t.grad is not None]
    if not grads:
        return Tensor(0.0)
    with _update_phase():
        total: UOp | None = None
        for g in grads:
            u = g.uop.cast(_F32)
            # The gradient itself feeds both the norm and the update: it has to be in memory anyway.
            square = UOp(Op.REDUCE_AXIS, _F32, (u * u,), (Op.ADD, tuple(range(len(u.shape))))) if u.shape else u * u
            part = reshape(square, ())
            total = part if total is None else total + part
        assert total is not None
        norm = alu(Op.SQRT, (total,))
        scale = alu(Op.MIN, (const(_F32, max_norm) / (norm + 1e-6), const(_F32, 1)))
        for t in tensors:
            if t.grad is not None:
                t.grad = t.grad._new_plain(t.grad.uop * scale.cast(t.grad.uop.dtype))
    return grads[0]._new_plain(norm)
