"""ai.onnx.ml: features, encoders, linear models, support vector machines, trees."""

DOMAIN = "ai.onnx.ml"
