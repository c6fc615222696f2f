"""ai.onnx.ml: features, encoders, linear models, support vector machines, trees."""

from functools import partial

from anneal.onnx import registry

op = partial(registry.op, domain="ai.onnx.ml")
