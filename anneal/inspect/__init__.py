"""What a viewer asks for, as values: graphs, rules, kernels, devices. The commands print them.

Start in `kernels.py`: a plan enters, one `KernelCall` for each of its launches leaves.
"""

from anneal.inspect.devices import Adapter, Cpu, Survey, advice, cpu, survey, versions
from anneal.inspect.graphs import Node, StepGraph, nodes, step_graph
from anneal.inspect.kernels import Buffer, KernelCall, Refusal, kernel_calls, of_line, refusals, wgsl_for
from anneal.inspect.names import Line
from anneal.inspect.rules import ALL, KINDS, OpRules, op_rules, ops_of_method, tensor_methods

__all__ = [
    "ALL",
    "KINDS",
    "Adapter",
    "Buffer",
    "Cpu",
    "KernelCall",
    "Line",
    "Node",
    "OpRules",
    "Refusal",
    "StepGraph",
    "Survey",
    "advice",
    "cpu",
    "kernel_calls",
    "nodes",
    "of_line",
    "op_rules",
    "ops_of_method",
    "refusals",
    "step_graph",
    "survey",
    "tensor_methods",
    "versions",
    "wgsl_for",
]
