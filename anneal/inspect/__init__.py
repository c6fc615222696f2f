"""Reports as values: graphs, passes, rules, kernels, devices. The commands print them.

Start in `kernel_list.py`: a plan enters, one `KernelCall` for each of its launches leaves.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.inspect.derivations import FiredRule, Firing, KernelText, TextLine, firings, kernel_text, launch
from anneal.inspect.devices import Adapter, Cpu, Survey, advice, cpu, need_adapter, survey, versions

from anneal.inspect.graphs import (  # isort: skip
    GraphNode, Node, Part, PassGraph, PassInfo, PassNode, PassState, StepGraph, after_pass, graph_nodes,
    kernel_pass_graphs, nodes, pass_graphs, passes, random_input, step_graph, traced_model,
)  # fmt: skip

from anneal.inspect.kernel_list import (  # isort: skip
    KernelBuffer, KernelCall, KernelRefusal, Line, c_target, kernel_calls, label_of, of_line, placed, refusals,
    wgsl_for,
)  # fmt: skip
from anneal.inspect.looking import (  # isort: skip
    KINDS, Batching, LaunchFacts, Life, Looked, MemoryPlan, OpRules, RuleExample, TensorEntry, TensorFile,
    TensorStatistics, Worked, batching, chrome_trace, example_of, launch_facts, memory_plan, op_rules, plain,
    plan_trace, statistics_of, tensor_file, tensor_methods, worked,
)  # fmt: skip
from anneal.inspect.recordings import KeptPlan, KeptRecording, PlanRecording, RecordedPlan, recording, timed_launches
from anneal.uop import ALL

if TYPE_CHECKING:
    from anneal.inspect.checking import (
        CheckedKernel,
        Checking,
        CheckLimits,
        Difference,
        GradientCheck,
        NotFinite,
        Replayed,
        Report,
        Suspect,
        check,
        check_gradients,
        error_bounds,
        replayed,
        repro_of,
        under_check,
    )
    from anneal.inspect.devices import FunctionError, Numerics, numerics
else:
    __getattr__ = opened_later(__name__)

__all__ = [
    "ALL", "KINDS", "Adapter", "Batching", "CheckLimits", "CheckedKernel", "Checking", "Cpu", "Difference", "FiredRule",
    "Firing", "FunctionError", "GradientCheck", "GraphNode", "KeptPlan", "KeptRecording", "KernelBuffer", "KernelCall",
    "KernelRefusal", "KernelText", "LaunchFacts", "Life", "Line", "Looked", "MemoryPlan", "Node", "NotFinite",
    "Numerics", "OpRules", "Part", "PassGraph", "PassInfo", "PassNode", "PassState", "PlanRecording", "RecordedPlan",
    "Replayed", "Report", "RuleExample", "StepGraph", "Survey", "Suspect", "TensorEntry", "TensorFile",
    "TensorStatistics", "TextLine", "Worked", "advice", "after_pass", "batching", "c_target", "check",
    "check_gradients", "chrome_trace", "cpu", "error_bounds", "example_of", "firings", "graph_nodes", "kernel_calls",
    "kernel_pass_graphs", "kernel_text", "label_of", "launch", "launch_facts", "memory_plan", "need_adapter", "nodes",
    "numerics", "of_line", "op_rules", "pass_graphs", "passes", "placed", "plain", "plan_trace", "random_input",
    "recording", "refusals", "replayed", "repro_of", "statistics_of", "step_graph", "survey", "tensor_file",
    "tensor_methods", "timed_launches", "traced_model", "under_check", "versions", "wgsl_for", "worked",
]  # fmt: skip
