"""Transforms: functions of functions, each a rewrite of the graph that the function makes. They nest in every order.

`grad`, `value_and_grad` and `vjp` pull cotangents back, `jvp` pushes tangents forward, `vmap` maps over examples;
`jacrev`, `jacfwd` and `hessian` are made of them. Arguments and results are trees: nests of dicts, lists, tuples and
named tuples with tensors at the leaves (`tree_map`, `tree_leaves`).
"""

from anneal.tensor.transforms._tree import tree_leaves, tree_map
from anneal.tensor.transforms.batch import vmap
from anneal.tensor.transforms.forward import jvp
from anneal.tensor.transforms.jacobians import hessian, jacfwd, jacrev
from anneal.tensor.transforms.reverse import grad, value_and_grad, vjp

__all__ = ["grad", "hessian", "jacfwd", "jacrev", "jvp", "tree_leaves", "tree_map", "value_and_grad", "vjp", "vmap"]
