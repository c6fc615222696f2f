"""The graphs of models, from their structure: no weights are made, fetched or run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anneal import progress, settings
from anneal.errors import UserError
from anneal.inspect.graphs import StepGraph, step_graph
from anneal.training import load_example
from anneal.uop import toposort

if TYPE_CHECKING:
    import numpy as np

    from anneal.onnx import ValueInfo


def traced_model(model: str, batch: int | None = None, device: str = "cpu") -> StepGraph:
    """Build example `model` and one training step of it, which is not run; its parameters are memory that nobody
    writes.

    Of an ONNX file it is a run. On the cpu unless a device is named: a graph needs no GPU.

    Args:
        batch: the size of a batch; None: the example's default.
    """
    from anneal.nn import init

    with settings.override(device=device), progress.work(f"tracing {model}"):
        if model.endswith(".onnx"):
            return traced_run(Path(model), batch)
        example: Any = load_example(model)
        size = batch or example.BATCH
        with init.blank():
            if hasattr(example, "outline"):  # a model that reads files to learn, and none to be looked at
                training = example.outline(batch=size)
            else:
                training = example.make(steps=example.STEPS, batch=size, seed=1, lr=example.LR)
            return step_graph(model, training)


def traced_run(file: Path, batch: int | None) -> StepGraph:
    """The graph of a run of a model, which is not run; symbolic sizes are 1, those of a first axis `batch`."""
    import numpy as np

    from anneal.onnx import load
    from anneal.tensor import Tensor

    model = load(file)
    first = {v.shape[0] for v in model.inputs if v.shape}
    sizes = {d: batch for d in first if isinstance(d, str)} if batch else {}
    generator = np.random.default_rng(0)
    results = model.trace({v.name: random_input(v, sizes, generator) for v in model.inputs})
    tensors = [t for r in results.values() for t in (r if isinstance(r, list) else [r]) if isinstance(t, Tensor)]
    outputs = [t.uop for t in tensors]
    return StepGraph(str(file), outputs, outputs, toposort(outputs))


def random_input(info: ValueInfo, sizes: dict[str, int], generator: np.random.Generator) -> Any:
    """Random values for an input: normal floats, 0 and 1 for whole numbers.

    `sizes` has those that the file leaves open, by name or as INPUT.AXIS; the others are 1.

    Args:
        info: the description of the input.
        generator: the source of random numbers.
    """
    if info.kind != "tensor" or info.dtype == "string" or not info.dtype:
        raise UserError(f"input {info}: random values are for tensors of numbers; give it as NAME=FILE.npy")
    shape = [
        d if isinstance(d, int) else sizes.get(f"{info.name}.{i}", sizes.get(d or "", 1))
        for i, d in enumerate(info.shape or ())
    ]
    name = info.dtype
    if name.startswith(("float", "bfloat", "complex")):
        import ml_dtypes

        return generator.standard_normal(shape).astype(getattr(ml_dtypes, name, None) or name)
    return generator.integers(0, 2, shape).astype(name)
