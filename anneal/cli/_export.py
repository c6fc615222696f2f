"""`anneal onnx export`: a model of examples/ as an ONNX file."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anneal import settings
from anneal.cli._choices import check_writable
from anneal.cli._models import Trainable, check_model, load_example
from anneal.cli._output import data, json_report
from anneal.errors import CompilerError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Order", "example_arguments", "export_model"]

_BATCH = 4  # of the example that a model for any batch is traced with
_MOST = 1 << 15  # examples of a batch


@dataclass(frozen=True, slots=True)
class Order:
    """The flags of `anneal onnx export`."""

    model: str
    output: Path
    batch: int | None = None
    opset: int = 20
    weights: Path | None = None
    model_dir: Path | None = None
    scratch: bool = False
    as_json: bool = False


def export_model(order: Order) -> None:
    """Write a model in evaluation mode, with fresh weights or those of a file, and say what was written."""
    check_model(order.model)
    if order.model != "gpt2" and (order.model_dir or order.scratch):
        raise SettingError(f"--model-dir and --scratch are for gpt2, not for {order.model}")
    check_writable(order.output)
    from anneal.onnx import export

    with settings.override(device="cpu"):
        example = load_example(order.model)
        training = example.make(
            steps=example.STEPS, batch=order.batch or _BATCH, seed=1, lr=example.LR, **_places(order)
        )
        arguments = example_arguments(training, order.batch is None)
        if order.weights is not None:
            from anneal.tensor.io import safe_load

            training.model.load_state_dict(safe_load(order.weights))
        made = export(training.model.eval(), arguments, order.output, opset=order.opset)
    if order.as_json:
        json_report({**asdict(made), "path": str(made.path), "data": None if made.data is None else str(made.data)})
    else:
        data(str(made))


def _places(order: Order) -> dict[str, Any]:
    """The folders that GPT-2 is read from."""
    if order.model != "gpt2":
        return {}
    from anneal.cli._gpt2 import places

    start, words = places(order.model_dir, weights=not order.scratch)
    return {"words": words, "start": None if order.scratch else start}


class _CalledError(Exception):
    """The model was called, and the arguments are known."""


def example_arguments(training: Trainable, any_batch: bool) -> tuple[Any, ...]:
    """Zeros like the arguments that the loss of a batch gives the model; with `any_batch` their first axes vary."""
    from anneal.runtime import bound_shape
    from anneal.tensor import Tensor, Variable, tree_map

    with _watched(training.model) as calls, suppress(_CalledError):
        training.loss(*training.next_batch())
    if not calls:
        raise CompilerError("the loss of this example never calls its model")
    batch = Variable("batch", 1, _MOST)

    def zeros(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        first, *rest = bound_shape(leaf.shape)
        return Tensor.zeros(batch.bind(first) if any_batch else first, *rest, dtype=leaf.dtype)

    found: tuple[Any, ...] = tree_map(zeros, calls[0])
    return found


@contextmanager
def _watched(model: Any) -> Iterator[list[tuple[Any, ...]]]:
    """The arguments of the model's first call, which ends there."""
    calls: list[tuple[Any, ...]] = []

    def forward(*arguments: Any) -> None:
        calls.append(arguments)
        raise _CalledError

    vars(model)["forward"] = forward
    try:
        yield calls
    finally:
        del vars(model)["forward"]
