"""Transforms: functions of functions, each a rewrite of the graph that the function makes. They nest in every order.

`backward` is torch's `loss.backward()`. `grad`, `value_and_grad` and `vjp` pull cotangents back, `jvp` pushes tangents
forward, `vmap` maps over examples; `jacrev`, `jacfwd` and `hessian` are made of them. Arguments and results are trees:
nests of dicts, lists, tuples and named tuples with tensors at the leaves (`tree_map`, `tree_leaves`).
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.transforms.accumulate import backward, backward_of, of_several, seed, take_results, taken, zero_gradient
from anneal.transforms.batching import BATCHING, vmap
from anneal.transforms.custom import (
    Function,
    FunctionCtx,
    attached,
    custom_jvp,
    custom_vjp,
    once_differentiable,
    wants_gradient,
)
from anneal.transforms.derivatives import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp
from anneal.transforms.hooks import (
    RemovableHandle,
    hooked,
    register_hook,
    register_post_accumulate_grad_hook,
    releasing,
    retain_grad,
    retains_grad,
    set_apart,
)
from anneal.transforms.loops import computed_again, cond, fori_loop, scan, while_loop
from anneal.transforms.trace import Trace, leaf_nodes, paths_of, tree_leaves, tree_map
from anneal.transforms.walks import derivative_of, ended, stand_in

if TYPE_CHECKING:
    from anneal.transforms.captured import captured_backward
else:  # what computes is imported when something is computed
    __getattr__ = opened_later(__name__)

__all__ = [
    "BATCHING", "Function", "FunctionCtx", "RemovableHandle", "Trace", "attached", "backward", "backward_of",
    "captured_backward", "computed_again", "cond", "custom_jvp", "custom_vjp", "derivative_of", "ended", "fori_loop",
    "grad", "hessian", "hooked", "jacfwd", "jacrev", "jvp", "leaf_nodes", "of_several", "once_differentiable",
    "paths_of", "register_hook", "register_post_accumulate_grad_hook", "releasing", "retain_grad", "retains_grad",
    "scan", "seed", "set_apart", "stand_in", "take_results", "taken", "tree_leaves", "tree_map", "value_and_grad",
    "vjp", "vmap", "wants_gradient", "while_loop", "zero_gradient",
]  # fmt: skip
