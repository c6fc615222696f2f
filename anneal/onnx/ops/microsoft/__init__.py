"""com.microsoft: what onnxruntime has besides the standard. There is no schema of these operators here, so the defaults
of attributes stand in the functions.
"""

from functools import partial

from anneal.onnx import registry

MICROSOFT = "com.microsoft"
op = partial(registry.op, domain=MICROSOFT)
rows = partial(registry.rows, domain=MICROSOFT)
also = partial(registry.also, domain=MICROSOFT)
