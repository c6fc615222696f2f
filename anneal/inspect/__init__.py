"""Reports as values: graphs, passes, rules, kernels, devices. The commands print them.

Start in `kernels.py`: a plan enters, one `KernelCall` for each of its launches leaves.
"""

from anneal.inspect.derivations import FiredRule
from anneal.inspect.devices import Adapter, Cpu, Survey, advice, cpu, survey, versions
from anneal.inspect.fired import Firing, firings
from anneal.inspect.graphs import Node, StepGraph, nodes, step_graph
from anneal.inspect.kernels import Buffer, KernelCall, Refusal, kernel_calls, of_line, refusals, wgsl_for
from anneal.inspect.lines import KernelText, TextLine, kernel_text, launch
from anneal.inspect.names import Line
from anneal.inspect.pipelines import Part, PassInfo, PassState, after_pass, passes
from anneal.inspect.rules import ALL, KINDS, Example, OpRules, example_of, op_rules, tensor_methods

__all__ = [
    "ALL",
    "KINDS",
    "Adapter",
    "Buffer",
    "Cpu",
    "Example",
    "FiredRule",
    "Firing",
    "KernelCall",
    "KernelText",
    "Line",
    "Node",
    "OpRules",
    "Part",
    "PassInfo",
    "PassState",
    "Refusal",
    "StepGraph",
    "Survey",
    "TextLine",
    "advice",
    "after_pass",
    "cpu",
    "example_of",
    "firings",
    "kernel_calls",
    "kernel_text",
    "launch",
    "nodes",
    "of_line",
    "op_rules",
    "passes",
    "refusals",
    "step_graph",
    "survey",
    "tensor_methods",
    "versions",
    "wgsl_for",
]
