"""Gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

from anneal.errors import GradientError, SettingError
from anneal.ops.nodes import reshape
from anneal.optim._base import update_phase
from anneal.runtime import call_late
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, const, dtypes

_F32 = dtypes.float32


def clip_grad_norm_(
    params: Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their joint norm is at most `max_norm`; returns the norm before, shape ().

    `params` are the tensors whose gradients these are; `foreach` is ignored. `norm_type` is the norm's p,
    math.inf for the largest element. `error_if_nonfinite` reads the norm, and raises GradientError where it is no
    number. Raises SettingError for a negative max_norm.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w * 0.5).sum().backward()
    >>> clip_grad_norm_([w], 1.0).item(), w.grad.numpy().round(3).tolist()
    (5.0, [0.6000000238418579, 0.800000011920929])
    """
    if not max_norm >= 0:
        raise SettingError(f"clip_grad_norm_: max_norm may not be negative: {max_norm}")
    tensors, grads = _with_gradients(params)
    if not grads:
        return Tensor(0.0)
    total, scaled = call_late(_scaled_to, (grads, max_norm, norm_type), {}, _scaled_to)
    for t, g in zip(tensors, scaled, strict=True):
        t.grad = g
    if error_if_nonfinite and not math.isfinite(float(total.item())):
        raise GradientError(f"clip_grad_norm_: the norm of the gradients is {total.item()}")
    return total  # type: ignore[no-any-return]


def _with_gradients(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that have a gradient, and their gradients."""
    tensors = [t for t in ([params] if isinstance(params, Tensor) else params) if t.grad is not None]
    return tensors, [t.grad for t in tensors if t.grad is not None]


def _scaled_to(grads: list[Tensor], max_norm: float, norm_type: float) -> tuple[Tensor, list[Tensor]]:
    """The joint norm, and the gradients, scaled so that it is at most `max_norm`."""
    with update_phase():
        norm = _joint_norm(grads, norm_type)
        scale = Op.MIN(const(_F32, max_norm) / (norm + 1e-6), const(_F32, 1))
        scaled = [_changed(g, g.uop * scale.cast(g.uop.dtype)) for g in grads]
    return grads[0]._new_plain(norm), scaled


def _changed(g: Tensor, u: UOp) -> Tensor:
    """A gradient that shows `u` from now on, or a new one where a gradient flows through it."""
    if g._wants:
        return g._new_plain(u)
    g._become(u)
    return g


def _joint_norm(grads: list[Tensor], p: float) -> UOp:
    """The p-norm of all elements of several tensors."""
    op = Op.MAX if p == math.inf else Op.ADD
    total: UOp | None = None
    for g in grads:
        u = g.uop.cast(_F32)
        # The gradient itself feeds both the norm and the update: it has to be in memory anyway.
        each = u * u if p == 2 else g.detach().float().abs().uop if p == math.inf else (g.float().abs() ** p).uop
        part = reshape(UOp(Op.REDUCE_AXIS, _F32, (each,), (op, tuple(range(len(u.shape))))) if u.shape else each, ())
        total = part if total is None else op(total, part)
    assert total is not None
    if p == math.inf:
        return total
    return Op.SQRT(total) if p == 2 else (grads[0]._new_plain(total) ** (1 / p)).uop


def clip_grad_value_(params: Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Move every element of all gradients into [-clip_value, clip_value].

    `params` are the tensors whose gradients these are; `foreach` is ignored. Raises SettingError for a negative
    clip_value.

    >>> w = Tensor([3.0, 0.5], requires_grad=True)
    >>> (w * w * 0.5).sum().backward()
    >>> clip_grad_value_([w], 1.0); w.grad
    Tensor([1. , 0.5], dtype=float32)
    """
    if not clip_value >= 0:
        raise SettingError(f"clip_grad_value_: clip_value may not be negative: {clip_value}")
    tensors, grads = _with_gradients(params)
    if grads:
        for t, g in zip(tensors, call_late(_clamped, (grads, clip_value), {}, _clamped), strict=True):
            t.grad = g


def _clamped(grads: list[Tensor], most: float) -> list[Tensor]:
    with update_phase():
        return [_changed(g, g.detach().clamp(-most, most).uop) for g in grads]
