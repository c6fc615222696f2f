"""SGD, Adam and AdamW, whose updates are one expression of nodes for each parameter; gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from anneal.backend import HOST
from anneal.errors import ArgumentError, DataError, GradientError, SettingError
from anneal.ops import said
from anneal.ops.nodes import pad, reshape, shrink
from anneal.optim._base import Optimizer, ParameterGroup, Parameters, update_phase
from anneal.optim._states import array_of, settings_among
from anneal.runtime import call_late, forbid_in_capture, outdate_captures, realize
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, const, dtypes

_F32 = dtypes.float32
_STEP = "step"  # the state that counts steps, of shape (1,)
_OLDER = "correction2"  # what older states have in its place


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, Nesterov's form and L2 weight decay as in torch.

    Args:
        params: as for `Optimizer`. lr: the learning rate. momentum: the factor of the last step's direction.
        dampening: the gradient's factor in it is 1 - dampening. weight_decay: the factor of a parameter that is added
        to its gradient. nesterov: whether to use Nesterov's momentum. maximize: whether to maximise the loss.
        foreach, differentiable, fused: ignored.

    Raises SettingError for nesterov without a momentum or with dampening, and as `Optimizer` does.

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
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if nesterov and (not momentum or dampening):
            raise SettingError("SGD: nesterov=True needs a momentum above 0 and no dampening")
        super().__init__(params, settings_among(locals()))

    def _shape_of(self, t: Tensor, name: str) -> tuple[int, ...]:
        return () if name == "step" else t.shape

    def _from_torch(self, i: int, name: str, array: Any) -> dict[str, Any]:
        # if there is a direction, a step was made
        return {f"{i}.{name}": array} | ({f"{i}.step": np.float32(1)} if name == "momentum_buffer" else {})

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        decay, dampening = group["weight_decay"], group["dampening"]
        for t in params:
            p, g, wide = self._operands(t, group["maximize"])
            if decay:
                g = g + p * decay
            if group["momentum"]:
                momentum = group["momentum"]
                begun = "momentum_buffer" in self.state.get(t, {})
                b = self._state(t, "momentum_buffer")
                if dampening:  # the first step takes the whole gradient
                    count = self._state(t, "step", float(begun))
                    done[count] = count.uop + 1.0
                    share = count.uop.eq(0.0).where(g, g * (1 - dampening))
                    new = b.uop * momentum + share
                else:
                    new = b.uop * momentum + g
                done[b] = new
                g = g + new * momentum if group["nesterov"] else new
            self._put(t, p - g * group.rate_node.cast(wide), done)


class _Counted(dict[str, Any]):
    """The state of a parameter, of which "step" is its group's where it has none of its own."""

    _group: Mapping[str, Any] = {}

    def __missing__(self, name: str) -> Any:
        if name == _STEP:
            return self._group[name]
        raise KeyError(name)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) as torch computes it; weight_decay is L2: it joins the gradient.

    Args:
        params: as for `Optimizer`. lr: the learning rate. betas: the decay of the running means of gradients and
            of their squares, in [0, 1). eps: added to the root of the latter. amsgrad: whether to take the largest mean
            of squares so far. maximize: whether to maximise the loss. foreach, capturable, differentiable, fused:
            ignored.

    Raises as `Optimizer` does.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.9], dtype=float32, requires_grad=True)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, settings_among(locals()))
        self.state.default_factory = _Counted

    # Each parameter counts the steps in which it had a gradient. Those that have had it in the same steps share one
    # count, the group's; the state of others has a count of their own, which they share as well.

    def _share_count(self, group: ParameterGroup) -> None:
        """Have the parameters' states show the group's count."""
        for t in group["params"]:
            if isinstance(mine := self.state.get(t), _Counted):
                mine._group = self.state[group]

    def _stay_behind(self, group: ParameterGroup, shared: Tensor | None, left: list[Tensor]) -> None:
        """Give parameters without a gradient a count of their own, which stays what it was."""
        forbid_in_capture(
            "an optimiser's step in which other parameters have a gradient than before", "call it outside of jit once"
        )
        count = self._group_state(group, _STEP) if shared is None else shared
        copy = count._new_plain(UOp(Op.CONTIGUOUS, _F32, (count.uop,)))
        realize([copy])
        for t in left:
            self.state[t][_STEP] = copy
        outdate_captures("an optimiser has gradients for other parameters than before")

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        together: dict[Tensor | None, list[Tensor]] = {}
        left: dict[Tensor | None, list[Tensor]] = {}
        new = [t for t in params if not self.state.get(t)] if self.state.get(group) else []
        first = Tensor(np.zeros(1, np.float32), device=params[0].device) if new else None
        for t in new:  # the program added the parameter, or removed its state: it has made no step
            self.state[t] = {_STEP: first}
        for t in group["params"]:
            (left if t.grad is None else together).setdefault(self.state.get(t, {}).get(_STEP), []).append(t)
        self._share_count(group)
        for shared, some in together.items():
            if shared in left:
                self._stay_behind(group, shared, left[shared])
            count = self._group_state(group, _STEP) if shared is None else shared
            self._update_together(group, some, count, done)

    def _update_together(
        self, group: ParameterGroup, params: list[Tensor], count: Tensor, done: dict[Tensor, UOp]
    ) -> None:
        eps, decay, decoupled = group["eps"], group["weight_decay"], group["decoupled_weight_decay"]
        first, second = group.share("betas"), group.share("betas", 1)
        (b1, rest1, _), (b2, rest2, _) = first, second
        done[count] = count.uop + 1.0
        step = reshape(done[count], ()).cast(group.rate.uop.dtype)
        # with the present betas
        c1, c2 = [_uncorrected(count, step, log) for _, _, log in (first, second)]
        # The numbers that a step shares sit in one small array, so that a kernel has one binding for all of them.
        shared = [group.rate_node * c1, Op.SQRT(c2)]
        if decoupled and decay:
            shared.append(1.0 - group.rate_node * decay)
        numbers = _array(shared)
        for t in params:
            p, g, wide = self._operands(t, group["maximize"])
            size, root, *rest = [u.cast(wide) for u in _parts(numbers, len(shared))]
            if decay and not decoupled:
                g = g + p * decay
            m, v = self._state(t, "exp_avg"), self._state(t, "exp_avg_sq")
            done[m] = mean = m.uop * b1 + g * rest1
            done[v] = square = v.uop * b2 + g * g * rest2
            if group["amsgrad"]:
                most = self._state(t, "max_exp_avg_sq")
                done[most] = square = Op.MAX(most.uop, square)
            if rest:
                p = p * rest[0]
            change = mean * size / (Op.SQRT(square) * root + eps)
            self._put(t, p - change, done)

    def _load(self, flat: Mapping[str, Any]) -> None:
        own = {}
        rest = {}
        for key, value in flat.items():
            head, _, name = key.partition(".")
            if name.endswith("correction1"):
                continue
            if name.endswith(_OLDER):  # 1 - beta**step of both betas, whose second tells the count
                beta, left = self.param_groups[0]["betas"][1], 1.0 - float(array_of(value).reshape(-1)[0])
                step = round(math.log(left) / math.log(beta)) if left > 0 and beta > 0 else 1e6
                key, name, value = key.replace(_OLDER, _STEP), name.replace(_OLDER, _STEP), np.array([step], np.float32)
            if name == _STEP and head.isdigit() and int(head) < len(self.params):
                array = array_of(value)
                if array.size != 1:
                    raise DataError(f"load_state_dict: {key} has shape {array.shape}, a count's is (1,)")
                own[int(head)] = float(array.reshape(-1)[0])
            else:
                rest[key] = value
        super()._load(rest)
        numbers = iter(range(len(self.params)))
        for group in self.param_groups:
            shared: dict[float, Tensor] = {}
            self._share_count(group)
            for t, n in zip(group["params"], numbers):
                if n in own:
                    outdate_captures("an optimiser's state was loaded")
                    count = shared.get(own[n], Tensor(np.array([own[n]], np.float32), device=t.device))
                    self.state[t][_STEP] = shared[own[n]] = count


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019) as torch computes it.

    Arguments and errors as for `Adam`; a step also takes `lr * weight_decay` of each parameter away.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.5)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.85], dtype=float32, requires_grad=True)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)


def _uncorrected(count: Tensor, step: UOp, log: Any) -> UOp:
    """1 / (1 - beta**step), of beta's logarithm, by functions that lose no digits when beta is close to 1."""
    if count.device == HOST:  # (1 + coth) / 2, in a third of the calls; a GPU's tanh is coarse near 0
        half: UOp = step * (log * -0.5)
        return const(step.dtype, 0.5) / Op.TANH(half) + 0.5
    return const(step.dtype, -1.0) / count._new_plain(step * log).expm1().uop


def _array(values: list[UOp]) -> UOp:
    """Numbers of shape () as one array in memory."""
    n = len(values)
    apart = [pad(reshape(v, (1,)), ((i, n - 1 - i),)) for i, v in enumerate(values)]
    return reduce(Op.ADD, apart).then(Op.CONTIGUOUS)


def _parts(array: UOp, n: int) -> list[UOp]:
    """The elements of an array, each of shape ()."""
    return [reshape(shrink(array, ((i, i + 1),)), ()) for i in range(n)]


# -- gradient clipping ------------------------------------------------------------------------------------------------


def clip_grad_norm_(
    parameters: Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their joint norm is at most `max_norm`; returns the norm before, shape ().

    `parameters` are the tensors whose gradients these are; `foreach` is ignored. `norm_type` is the norm's p,
    math.inf for the largest element. `error_if_nonfinite` reads the norm, and raises GradientError where it is no
    number. Raises SettingError for a negative max_norm.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w * 0.5).sum().backward()
    >>> clip_grad_norm_([w], 1.0).item(), w.grad.numpy().round(3).tolist()
    (5.0, [0.6000000238418579, 0.800000011920929])
    """
    tensors, grads = _with_gradients(parameters, "clip_grad_norm_: max_norm", max_norm)
    if not grads:
        return Tensor(0.0)
    if error_if_nonfinite:  # before the gradients are scaled in place
        get_total_norm(grads, norm_type, True)
    total: Tensor
    total, scaled = call_late(_scaled_to, (grads, max_norm, norm_type), {}, _scaled_to)
    for t, g in zip(tensors, scaled, strict=True):
        t.grad = g
    return total


def _finite(total: Tensor, wanted: bool) -> Tensor:
    if wanted and not math.isfinite(float(total.item())):
        raise GradientError(f"clip_grad_norm_: the norm of the gradients is {total.item()}")
    return total


def get_total_norm(
    tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The joint norm of `tensors`, shape ().

    `norm_type`, `error_if_nonfinite`, `foreach` and the error are as for `clip_grad_norm_`.

    >>> get_total_norm([Tensor([3.0]), Tensor([[0.0, 4.0]])]).item()
    5.0
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    total = given[0]._new_plain(_joint_norm(given, norm_type)) if given else Tensor(0.0)
    return _finite(total, error_if_nonfinite)


def _with_gradients(params: Iterable[Tensor], what: str, most: float) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that have a gradient, and their gradients. Raises SettingError for a negative bound."""
    try:
        if not most >= 0:
            raise SettingError(f"{what} may not be negative: {most}")
        tensors = [t for t in ([params] if isinstance(params, Tensor) else params) if t.grad is not None]
        return tensors, [t.grad for t in tensors if t.grad is not None]
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"{what} is a number, and parameters are tensors, as of model.parameters(), not {said(most)} and "
            f"{said(params)}"
        ) from None


def _scaled_to(grads: list[Tensor], max_norm: float, norm_type: float) -> tuple[Tensor, list[Tensor]]:
    """The joint norm, and the gradients, scaled so that it is at most `max_norm`."""
    with update_phase():
        norm = _joint_norm(grads, norm_type)
        scale = Op.MIN(const(norm.dtype, max_norm) / (norm + 1e-6), const(norm.dtype, 1))
        scaled = [_changed(g, g.uop * scale.cast(g.uop.dtype)) for g in grads]
    return grads[0]._new_plain(norm), scaled


def _changed(g: Tensor, u: UOp) -> Tensor:
    """The gradient, whose value is now `u`; or a new tensor if a gradient flows through it."""
    if g._wants:
        return g._new_plain(u)
    g._become(u)
    return g


def _joint_norm(grads: list[Tensor], p: float) -> UOp:
    """The p-norm of all elements of several tensors, in float64 if one of them is."""
    op = Op.MAX if p == math.inf else Op.ADD
    wide = dtypes.float64 if any(g.uop.dtype is dtypes.float64 for g in grads) else _F32
    parts = []
    for g in grads:
        u, x = g.uop.cast(wide), g.cast(wide)
        # The gradient itself feeds both the norm and the update: it has to be in memory anyway.
        each = u * u if p == 2 else x.detach().abs().uop if p == math.inf else (x.abs() ** p).uop
        axes = tuple(range(len(u.shape)))
        parts.append(reshape(UOp(Op.REDUCE_AXIS, wide, (each,), (op, axes)) if axes else each, ()))
    total = reduce(op, parts)
    if p == math.inf:
        return total
    return Op.SQRT(total) if p == 2 else (grads[0]._new_plain(total) ** (1 / p)).uop


def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of all gradients to [-clip_value, clip_value].

    `parameters` are the tensors whose gradients these are; `foreach` is ignored. Raises SettingError for a negative
    clip_value.

    >>> w = Tensor([3.0, 0.5], requires_grad=True)
    >>> (w * w * 0.5).sum().backward()
    >>> clip_grad_value_([w], 1.0); w.grad
    Tensor([1. , 0.5], dtype=float32)
    """
    tensors, grads = _with_gradients(parameters, "clip_grad_value_: clip_value", clip_value)
    if grads:
        for t, g in zip(tensors, call_late(_clamped, (grads, clip_value), {}, _clamped), strict=True):
            t.grad = g


def _clamped(grads: list[Tensor], most: float) -> list[Tensor]:
    with update_phase():
        return [_changed(g, g.detach().clamp(-most, most).uop) for g in grads]
