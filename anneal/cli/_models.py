"""The models a command can name: examples (see `anneal/training`) and ONNX files, and their graphs."""

from __future__ import annotations

from anneal.errors import UserError
from anneal.inspect import traced_model
from anneal.training import (
    DRAWING,
    MODELS,
    Trainable,
    check_model,
    examples_folder,
    load_example,
    load_module,
    suggest,
)

__all__ = [
    "DRAWING",
    "MODELS",
    "Trainable",
    "check_model",
    "check_traceable",
    "examples_folder",
    "load_example",
    "load_module",
    "suggest",
    "traced_model",
]


def check_traceable(name: str, step: bool = False) -> None:
    """UserError, with a suggestion, for what has no graph: neither an example nor an ONNX file; or, with `step`, no
    training step.
    """
    if not name.endswith(".onnx"):
        check_model(name)
    elif step:
        raise UserError("an ONNX file is run, not trained; leave --step out")
