"""Transforms: functions of functions, each a rewrite of the graph that the function makes. They nest in every order.

`backward` is torch's `loss.backward()`. `grad`, `value_and_grad` and `vjp` pull cotangents back, `jvp` pushes tangents
forward, `vmap` maps over examples; `jacrev`, `jacfwd` and `hessian` are made of them. Arguments and results are trees:
nests of dicts, lists, tuples and named tuples with tensors at the leaves (`tree_map`, `tree_leaves`).
"""

from anneal.transforms.accumulate import backward, take_results
from anneal.transforms.batch import vmap
from anneal.transforms.batching import BATCHING
from anneal.transforms.forward import jvp
from anneal.transforms.jacobians import hessian, jacfwd, jacrev
from anneal.transforms.leaves import leaf_nodes
from anneal.transforms.pullback import gradient
from anneal.transforms.reverse import grad, value_and_grad, vjp
from anneal.transforms.tree import paths_of, tree_leaves, tree_map

__all__ = [
    "BATCHING",
    "backward",
    "grad",
    "gradient",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "leaf_nodes",
    "paths_of",
    "take_results",
    "tree_leaves",
    "tree_map",
    "value_and_grad",
    "vjp",
    "vmap",
]
