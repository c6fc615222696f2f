"""Reports as values: graphs, passes, rules, kernels, devices. The commands print them.

Start in `kernels.py`: a plan enters, one `KernelCall` for each of its launches leaves.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.inspect.derivations import FiredRule
from anneal.inspect.devices import Adapter, Cpu, Survey, advice, cpu, survey, versions
from anneal.inspect.fired import Firing, firings
from anneal.inspect.graphs import Node, StepGraph, nodes, step_graph
from anneal.inspect.kernels import Buffer, KernelCall, Refusal, kernel_calls, of_line, refusals, wgsl_for
from anneal.inspect.lines import KernelText, TextLine, kernel_text, launch
from anneal.inspect.names import Line
from anneal.inspect.pipelines import Part, PassInfo, PassState, after_pass, passes
from anneal.inspect.rules import ALL, KINDS, Example, OpRules, example_of, op_rules, tensor_methods

if TYPE_CHECKING:
    from anneal.inspect.checking import (
        CheckedKernel,
        Checking,
        Difference,
        GradientCheck,
        Limits,
        NotFinite,
        Replayed,
        Report,
        Suspect,
        check,
        check_gradients,
        replayed,
        repro_of,
        under_check,
    )
else:
    __getattr__ = opened_later(
        __name__,
        {
            "checking": (
                "CheckedKernel",
                "Checking",
                "Difference",
                "GradientCheck",
                "Limits",
                "NotFinite",
                "Replayed",
                "Report",
                "Suspect",
                "check",
                "check_gradients",
                "check_gradients",
                "replayed",
                "repro_of",
                "under_check",
            )
        },
    )

__all__ = [
    "ALL",
    "KINDS",
    "Adapter",
    "Buffer",
    "CheckedKernel",
    "Checking",
    "Cpu",
    "Difference",
    "Example",
    "FiredRule",
    "Firing",
    "GradientCheck",
    "KernelCall",
    "KernelText",
    "Limits",
    "Line",
    "Node",
    "NotFinite",
    "OpRules",
    "Part",
    "PassInfo",
    "PassState",
    "Refusal",
    "Replayed",
    "Report",
    "StepGraph",
    "Survey",
    "Suspect",
    "TextLine",
    "advice",
    "after_pass",
    "check",
    "check_gradients",
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
    "replayed",
    "repro_of",
    "step_graph",
    "survey",
    "tensor_methods",
    "under_check",
    "versions",
    "wgsl_for",
]
