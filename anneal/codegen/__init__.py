"""From a kernel graph to WGSL, or another dialect.

    sink --prepare--> legal ops, coalesced loops --choose--> opts --apply_opts--> ranges with a job each
         --to_hardware--> thread indices and registers --linearise--> statements --write--> text

`PASSES` (`pipeline.py`) is the list of all passes; `run_passes` runs it and stops where it is told, `generate` makes a
Kernel of what it gives. A kernel is a SINK of STOREs over RANGEs (see `anneal/schedule`); opts are values (`opts.Opt`),
and the only way in which speed enters.
"""

from anneal.codegen.apply import apply_opts
from anneal.codegen.coalesce import coalesce as coalesce_loops
from anneal.codegen.dialects import (
    C_TARGET,
    Binding,
    bindings_of,
    in_text,
    segment_bytes,
    wgsl_functions,
)
from anneal.codegen.hardware import LaunchConfig, grid
from anneal.codegen.heuristics import choose
from anneal.codegen.kernels import (
    GeneratedKernel,
    bodies_of,
    decode_kernel,
    decode_opts,
    encode_kernel,
    encode_opts,
    fused_ops,
    generate,
    kernel_info,
)
from anneal.codegen.opts import Opt, axes_of, neighbours, opts_text, work
from anneal.codegen.pipeline import PASSES, Lowering, prepare, run_passes
from anneal.codegen.ranges import SUBGROUP, form as affine_form
from anneal.codegen.target import HALVES, MatrixShape, Target
