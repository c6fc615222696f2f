"""Generated kernels as plain data, and back."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from anneal.codegen.hardware import Launch
from anneal.codegen.kernels import Kernel
from anneal.codegen.linear import Param
from anneal.codegen.opts import KINDS, Opt
from anneal.uop import UOp, decode_graph, decode_value, encode_graph, encode_value


def encode_kernel(kernel: Kernel) -> list[Any]:
    """`kernel` as lists of strings and numbers."""
    return [
        kernel.source,
        [[encode_graph(p.node), p.written] for p in kernel.params],
        encode_value(astuple(kernel.launch)),
        list(kernel.grid),
        encode_opts(kernel.opts),
        list(kernel.variables),
    ]


def decode_kernel(data: list[Any]) -> Kernel:
    """The kernel that `encode_kernel` wrote down; an exception if this is none."""
    source, params, launch, (x, y, z), opts, variables = data
    nodes = [(decode_graph(rows), written) for rows, written in params]
    workgroups, threads, group, stride, needed = decode_value(launch)
    if not (
        isinstance(source, str)
        and all(type(n) is int and n > 0 for n in (workgroups, threads, group, stride, x, y, z))
        and all(type(written) is bool for _, written in nodes)
        and all(isinstance(name, str) for name in variables)
        and (needed is None or isinstance(needed, UOp))
    ):
        raise ValueError("this is no kernel")
    return Kernel(
        source,
        tuple([Param(node.arg[0], node, written) for node, written in nodes]),
        Launch(workgroups, threads, group, stride, needed),
        (x, y, z),
        decode_opts(opts),
        tuple(variables),
    )


def encode_opts(opts: tuple[Opt, ...]) -> list[Any]:
    return [encode_value(astuple(o)) for o in opts]


def decode_opts(data: list[Any]) -> tuple[Opt, ...]:
    """The opts that `encode_opts` wrote down; an exception if these are none."""
    found = tuple([Opt(*decode_value(o)) for o in data])
    if not all(o.kind in KINDS and type(o.axis) is int and type(o.amount) is int for o in found):
        raise ValueError("these are no opts")
    return found
