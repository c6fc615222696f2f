"""`torch.autograd.function`'s names: the class for ops with derivatives of their own, and what its functions use."""

from anneal.transforms import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
