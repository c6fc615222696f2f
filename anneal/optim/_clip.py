"""Gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

from anneal.errors import GradientError, SettingError
from anneal.ops.nodes import reshape
from anneal.optim._base import update_phase
from anneal.tensor import Tensor
from anneal.transforms import regraded
from anneal.uop import Op, UOp, alu, const, dtypes

__all__ = ["clip_grad_norm_", "clip_grad_value_"]

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
    tensors = [params] if isinstance(params, Tensor) else list(params)
    grads = [t.grad for t in tensors if t.grad is not None]
    if not grads:
        return Tensor(0.0)
    with update_phase():
        norm = _joint_norm(grads, norm_type)
        scale = alu(Op.MIN, (const(_F32, max_norm) / (norm + 1e-6), const(_F32, 1)))
        for t in tensors:
            if t.grad is not None:
                t.grad = regraded(t, t.grad.uop * scale.cast(t.grad.uop.dtype))
    total = grads[0]._new_plain(norm)
    if error_if_nonfinite and not math.isfinite(float(total.item())):
        raise GradientError(f"clip_grad_norm_: the norm of the gradients is {total.item()}")
    return total


def _joint_norm(grads: list[Tensor], p: float) -> UOp:
    """The p-norm of all elements of several tensors."""
    op = Op.MAX if p == math.inf else Op.ADD
    total: UOp | None = None
    for g in grads:
        u = g.uop.cast(_F32)
        # The gradient itself feeds both the norm and the update: it has to be in memory anyway.
        each = u * u if p == 2 else g.detach().float().abs().uop if p == math.inf else (g.float().abs() ** p).uop
        part = reshape(UOp(Op.REDUCE_AXIS, _F32, (each,), (op, tuple(range(len(u.shape))))) if u.shape else each, ())
        total = part if total is None else alu(op, (total, part))
    assert total is not None
    if p == math.inf:
        return total
    return alu(Op.SQRT, (total,)) if p == 2 else (grads[0]._new_plain(total) ** (1 / p)).uop


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
    with update_phase():
        for t in [params] if isinstance(params, Tensor) else list(params):
            if t.grad is not None:
                t.grad = regraded(t, t.grad.detach().clamp(-clip_value, clip_value).uop)
