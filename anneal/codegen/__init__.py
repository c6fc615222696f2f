"""From a kernel graph to WGSL.

    sink --prepare--> legal ops, merged ranges --choose--> opts --apply_opts--> ranges with a job each
         --to_hardware--> thread indices and registers --linearise--> statements --write--> text

`generate` runs all of it. A kernel is a SINK of STOREs over RANGEs (see `anneal/schedule`); opts are values
(`opts.Opt`), and the only way in which speed enters.
"""

from anneal.codegen.generate import Kernel, generate, prepare
from anneal.codegen.heuristics import choose
from anneal.codegen.info import KernelInfo, fused_ops, kernel_info, opts_text
from anneal.codegen.lower import Launch, Target
from anneal.codegen.modules import grid
from anneal.codegen.opts import Opt, apply_opts, axes_of
from anneal.codegen.saved import decode_kernel, decode_opts, encode_kernel, encode_opts
from anneal.codegen.windows import Binding, bindings_of, window_bytes

__all__ = [
    "Binding",
    "Kernel",
    "KernelInfo",
    "Launch",
    "Opt",
    "Target",
    "apply_opts",
    "axes_of",
    "bindings_of",
    "choose",
    "decode_kernel",
    "decode_opts",
    "encode_kernel",
    "encode_opts",
    "fused_ops",
    "generate",
    "grid",
    "kernel_info",
    "opts_text",
    "prepare",
    "window_bytes",
]
