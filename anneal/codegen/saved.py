"""Generated kernels as plain data, and back."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from anneal.codegen.generate import Kernel
from anneal.codegen.linear import Param
from anneal.codegen.lower import Launch
from anneal.codegen.opts import Opt
from anneal.uop import decode_graph, decode_value, encode_graph, encode_value

__all__ = ["decode_kernel", "decode_opts", "encode_kernel", "encode_opts"]


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
    """The kernel that `encode_kernel` wrote down."""
    source, params, launch, (x, y, z), opts, variables = data
    nodes = [(decode_graph(rows), written) for rows, written in params]
    return Kernel(
        source,
        tuple([Param(node.arg[0], node, written) for node, written in nodes]),
        Launch(*decode_value(launch)),
        (x, y, z),
        decode_opts(opts),
        tuple(variables),
    )


def encode_opts(opts: tuple[Opt, ...]) -> list[Any]:
    return [encode_value(astuple(o)) for o in opts]


def decode_opts(data: list[Any]) -> tuple[Opt, ...]:
    return tuple([Opt(*decode_value(o)) for o in data])
