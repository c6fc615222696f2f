"""The operators, a family a file. Every file here registers with `anneal.onnx.registry.op`; none is named elsewhere."""
