"""Pages for models that people have: which functions leave, with which example, and what their page shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal import nn
from anneal.backend import Array
from anneal.errors import DTypeError, UserError
from anneal.frozen import Json
from anneal.pages.exporting import VISITOR
from anneal.pages.program import page_device
from anneal.tensor import Tensor

if TYPE_CHECKING:
    from anneal.onnx import Model
    from anneal.training import Trainable, Training

_PLANE = 40  # points of a side of the plane that the spirals' page paints


@dataclass
class PageRecipe:
    """The arguments of `export`."""

    functions: dict[str, Callable[..., Any]]
    examples: dict[str, tuple[Any, ...]]
    page: Json = field(default_factory=lambda: {"kind": "form"})
    data: Mapping[str, Array] = field(default_factory=dict)
    train: tuple[str, ...] = ()
    weights: str = ""  # a form that the recipe asks for


def of_training(name: str, training: Training, train: bool) -> PageRecipe:
    """The recipe of an example model, called `name`: its forward, and with `train` its training step."""
    model = training.model
    batch = training.next_batch()
    if isinstance(model, (nn.GPT, nn.Llama)) and hasattr(training, "alphabet"):
        recipe = of_text(model, {"kind": "write", "alphabet": "".join(training.alphabet)})
    elif name == "mlp":
        recipe, train = _spirals(training), True
    else:
        arguments = arguments_of(training, batch)
        recipe = PageRecipe({"predict": model}, {"predict": tuple(_first(a) for a in arguments)})
        if name == "conv":
            labels = [str(n) for n in range(10)]
            recipe.page = {"kind": "draw", "size": arguments[0].shape[-1], "labels": labels}
    model.eval()
    if train:
        recipe.functions["train"], recipe.examples["train"], recipe.train = training.update, batch, ("train",)
    return recipe


def _first(value: Any) -> Any:
    """The first example of a batch, as a batch."""
    return Tensor(value.numpy()[:1]) if isinstance(value, Tensor) and value.ndim else value


class _CalledError(Exception):
    """The model was called, with these arguments."""


def arguments_of(training: Trainable, batch: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that the loss of a batch gives the model first; nothing is computed."""

    def forward(*arguments: Any, **named: Any) -> None:
        raise _CalledError(*arguments, *named.values())

    vars(training.model)["forward"] = forward
    try:
        training.loss(*batch)
    except _CalledError as called:
        return called.args
    finally:
        del vars(training.model)["forward"]
    raise UserError("export: the loss of this example never calls its model")


def _spirals(training: Any) -> PageRecipe:
    side = np.linspace(-1, 1, _PLANE, dtype=np.float32)
    y, x = np.meshgrid(side[::-1], side, indexing="ij")
    plane = np.stack([x.ravel(), y.ravel()], axis=1)
    model = training.model
    page = {"kind": "spirals", "side": _PLANE, "batch": training.batch}
    data = {"points": training.points, "arms": training.arms}
    return PageRecipe({"predict": model}, {"predict": (Tensor(plane),)}, page, data)


# -- text -------------------------------------------------------------------------------------------------------------


def of_text(model: nn.GPT | nn.Llama, page: Mapping[str, Any]) -> PageRecipe:
    """The recipe of a model that writes, token by token; `page` is what it shows."""
    reader = nn.Reader(model)
    whole = np.zeros(reader.context, np.int32)
    prompt = min(8, reader.context - 1)
    whole[:prompt] = np.arange(prompt) % model.config.vocab_size
    count, blocks = Tensor(np.array([prompt], np.int32)), reader.blocks.bind(-(-(prompt + 1) // reader.block))
    begin, go_on = (Tensor(whole), count, blocks), (Tensor(np.array([1], np.int32)), count, blocks)
    functions = {"begin": reader.begin, "go_on": reader.go_on}
    shown = {**page, "context": reader.context, "block": reader.block}
    return PageRecipe(functions, {"begin": begin, "go_on": go_on}, shown)


def of_gpt2(config: nn.GPTConfig) -> PageRecipe:
    """The recipe of a GPT-2 of the sizes of `config`, whose weights and words the visitor of the page has."""
    return replace(of_text(nn.GPT.from_config(config), {"kind": "gpt2"}), weights=VISITOR)


# -- ONNX -------------------------------------------------------------------------------------------------------------


def of_onnx(model: Model, feeds: Mapping[str, Any], labels: list[str] | None = None) -> PageRecipe:
    """The recipe of an ONNX model for inputs of the sizes of `feeds`; one of a picture describes what is dropped,
    by the `labels` of its classes. Its int64 and uint64 are of 32 bits, and its float64 is float32.

    Raises DTypeError for feeds that 32 bits do not hold.
    """
    device = page_device()
    model = type(model)(model.program, device, model.budget, model.float64, model.elements)
    names = [v.name for v in model.inputs if v.name in feeds]
    fixed = {n: feeds[n] for n in names if not isinstance(feeds[n], Tensor) and n in model.deciding}
    given = [n for n in names if n not in fixed]

    def run(*tensors: Tensor) -> tuple[Any, ...]:
        return tuple(model.trace({**fixed, **dict(zip(given, tensors, strict=True))}).values())

    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = ["".join(c if c.isalnum() else "_" for c in f"in_{n}").removeprefix("in_") for n in given]
    signed: Any = run
    signed.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in parameters])
    tensors = tuple(_narrow(n, feeds[n], device) for n in given)
    page: Json = {"kind": "form"}
    if len(tensors) == 1 and tensors[0].ndim == 4 and tensors[0].shape[:2] == (1, 3):
        page = {"kind": "describe", "size": list(tensors[0].shape[2:]), "labels": labels or []}
    return PageRecipe({"run": signed}, {"run": tensors}, page)


def _narrow(name: str, value: Any, device: str) -> Tensor:
    """An input of an ONNX model as a page takes it."""
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    narrow = array.astype(
        {"int64": "int32", "uint64": "uint32", "float64": "float32"}.get(array.dtype.name, array.dtype)
    )
    if narrow.dtype.kind in "iu" and (narrow != array).any():
        raise DTypeError(
            f"export: input {name!r} has values of {array.dtype.name} that {narrow.dtype.name} does not hold"
        )
    return Tensor(narrow, device=device)
