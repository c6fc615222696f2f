"""WGSL, the language of WebGPU."""

from anneal.codegen.dialects.wgsl.expressions import literal, text_of, type_of
from anneal.codegen.dialects.wgsl.functions import called
from anneal.codegen.dialects.wgsl.modules import Binding, bindings_of, module, segment_bytes
from anneal.codegen.dialects.wgsl.writer import LINES, WgslWriter
from anneal.codegen.dialects.writer import Dialect
from anneal.codegen.heuristics import choose

WGSL = Dialect("WGSL", LINES, text_of, type_of, literal, choose, WgslWriter, module)
