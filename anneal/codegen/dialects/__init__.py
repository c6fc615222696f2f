"""The languages that kernels are printed in: values, by the name that a target gives.

No pass before `write-body` knows any of them. `writer.py` has what they have in common.
"""

from anneal.codegen.dialects.c import TARGET as C_TARGET, C
from anneal.codegen.dialects.wgsl import WGSL, Binding, bindings_of, called as wgsl_functions, segment_bytes
from anneal.codegen.dialects.writer import Dialect, Text, in_text, merged

DIALECTS = {"wgsl": WGSL, "c": C}
