"""Running: from nodes and a device to memory with their values.

Start reading at `execution.py` (realize), then `steps.py` (what is executed, as values), `jitted.py` and `capture.py`
(steps that are recorded and replayed), `guards.py` (when they are not), `context.py` (all state). Nothing here knows
`Tensor`: it is a `Handle`. `profile` is a module of its own, which only reports import.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.errors import JitError
from anneal.runtime.context import (
    Context,
    cache_statistics,
    capturing,
    compile_seconds,
    default_device,
    forbid_in_capture,
    forbid_in_jit,
    here,
    modes,
    note_plain,
    observed,
    outdate_captures,
    resolve_device,
    same_plain,
    set_default_device,
    set_float32_products,
    watched,
)  # fmt: skip

from anneal.runtime.handle import (  # isort: skip
    UNSEEN, Handle, Inside, earlier_nodes, emptied, filled, flat, is_hole, lazily_earlier, mapped,
)  # fmt: skip
from anneal.runtime.numbering import Late, Numbering, at_once, numbering_of, numbers_of
from anneal.runtime.of_memory import number
from anneal.runtime.together import Together

from anneal.runtime.nodes import (  # isort: skip
    LEARNED, base_of, bound_shape, buffer_leaf, call_of, forget_become, freeze, has_leaf, has_twin, host_storage,
    is_chain, is_computed_late, is_lazy_leaf, is_open, is_realized, memory_of, needed, note_assigned,
    note_become, note_constants, note_made, seen, shown, sources_of, storage_of, thaw,
)  # fmt: skip
from anneal.runtime.late import (  # isort: skip
    PLAIN, Varies, become_late, call as call_late, composite, made_number, register as register_late,
    tensor_class, varies_at,
)  # fmt: skip
from anneal.runtime.uses import (  # isort: skip
    Args, CallHistory, F, Fun, KnownCalls, Options, check_unchanged, make_again, note_call, passed_calls,
    second_backward, used_unseen,
)  # fmt: skip

if TYPE_CHECKING:
    from anneal.runtime.bodies import (
        Choice,
        DeviceCall,
        Loop,
        While,
        chosen,
        has_variables,
        looped,
        parameters_like,
        sized,
    )
    from anneal.runtime.execution import begun, memory, plan_of, realize, realize_new, tracing, upload, values
    from anneal.runtime.jitted import Jit, Recapture, compile, jit
    from anneal.runtime.launch import Execution, compiled, execute, new_outputs
    from anneal.runtime.meter import Meter, Spread, Times, metered, said
    from anneal.runtime.repeats import Again, over_memory
    from anneal.runtime.steps import (
        Arrays,
        Begin,
        Collective,
        Exchange,
        Group,
        HostCall,
        HostFunction,
        HostGradient,
        Launch,
        Reduction,
        Rules,
        Step,
        VmapMethod,
        Wait,
        found_sizes,
        key_of,
        reduced,
    )
else:  # what computes is imported when something is computed
    __getattr__ = opened_later(__name__)
