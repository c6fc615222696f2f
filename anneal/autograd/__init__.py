"""Gradients of tensors that were computed, and functions with derivatives of their own, under torch's names.

`anneal.grad` and `anneal.func` are the other kind: gradients of functions.
"""

from typing import TYPE_CHECKING

from anneal.autograd import functional as functional
from anneal.autograd.functional import gradcheck, gradgradcheck
from anneal.doors import same_under
from anneal.tensor.autograd import (
    Variable,
    backward,
    detect_anomaly,
    enable_grad,
    grad,
    inference_mode,
    no_grad,
    save_on_cpu,
    saved_tensors_hooks,
    set_detect_anomaly,
    set_grad_enabled,
)
from anneal.transforms import Function, FunctionCtx, custom_jvp, custom_vjp, once_differentiable

__all__ = [
    "Function", "FunctionCtx", "Variable", "backward", "custom_jvp", "custom_vjp", "detect_anomaly", "enable_grad",
    "grad", "gradcheck", "gradgradcheck", "inference_mode", "no_grad", "once_differentiable", "save_on_cpu",
    "saved_tensors_hooks", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = same_under(__name__, "anomaly_mode function grad_mode gradcheck graph variable")
