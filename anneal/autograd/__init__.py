"""Gradients of tensors that were computed, and functions with derivatives of their own, under torch's names.

`anneal.grad` and `anneal.func` are the other kind: gradients of functions.
"""

from typing import TYPE_CHECKING

from anneal.autograd import function as function, functional as functional
from anneal.autograd.gradcheck import gradcheck, gradgradcheck
from anneal.autograd.variable import Variable, detect_anomaly, set_detect_anomaly
from anneal.doors import same_under
from anneal.tensor.autograd import backward, enable_grad, grad, inference_mode, no_grad, set_grad_enabled
from anneal.transforms import Function, custom_jvp, custom_vjp

__all__ = [
    "Function", "Variable", "backward", "custom_jvp", "custom_vjp", "detect_anomaly", "enable_grad", "grad",
    "gradcheck", "gradgradcheck", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = same_under(__name__, "anomaly_mode grad_mode")
