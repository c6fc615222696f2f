"""Running: what enters is nodes and a device, what leaves is memory with their values.

Start reading at `execution.py` (realize), then `steps.py` (what is executed, as values), `jitted.py` and `capture.py`
(steps that are recorded and replayed), `guards.py` (when they are not), `context.py` (all state). Nothing here knows
`Tensor`: it is a `Handle`. `profile` is a module of its own, which only reports import.
"""

from anneal.errors import JitError
from anneal.runtime.context import (
    Context,
    cache_statistics,
    compile_seconds,
    default_device,
    here,
    observed,
    outdate_captures,
    resolve_device,
    set_default_device,
    watched,
)
from anneal.runtime.execution import memory, plan_of, realize, tracing, upload, values
from anneal.runtime.group import Exchange, Group, Reduction
from anneal.runtime.handle import INSIDE, Handle
from anneal.runtime.host import HostFunction, HostGradient, VmapMethod, found_sizes, key_of
from anneal.runtime.jitted import Jit, Recapture, jit
from anneal.runtime.launch import Execution, execute, new_outputs
from anneal.runtime.nodes import buffer_leaf, host_storage, is_realized, storage_of
from anneal.runtime.recording import capturing, forbid_in_capture, forbid_in_jit
from anneal.runtime.sizes import bound_shape, needed, seen
from anneal.runtime.steps import Collective, HostCall, Launch, Step

__all__ = [
    "INSIDE",
    "Collective",
    "Context",
    "Exchange",
    "Execution",
    "Group",
    "Handle",
    "HostCall",
    "HostFunction",
    "HostGradient",
    "Jit",
    "JitError",
    "Launch",
    "Recapture",
    "Reduction",
    "Step",
    "VmapMethod",
    "bound_shape",
    "buffer_leaf",
    "cache_statistics",
    "capturing",
    "compile_seconds",
    "default_device",
    "execute",
    "forbid_in_capture",
    "forbid_in_jit",
    "found_sizes",
    "here",
    "host_storage",
    "is_realized",
    "jit",
    "key_of",
    "memory",
    "needed",
    "new_outputs",
    "observed",
    "outdate_captures",
    "plan_of",
    "realize",
    "resolve_device",
    "seen",
    "set_default_device",
    "storage_of",
    "tracing",
    "upload",
    "values",
    "watched",
]
