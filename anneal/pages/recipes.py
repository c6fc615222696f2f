"""Pages for models that people have: which functions leave, with which example, and what their page shows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal import nn
from anneal.backend import Array
from anneal.errors import UserError
from anneal.pages.weights import VISITOR
from anneal.tensor import Tensor, Variable, realize
from anneal.tensor import functional as F
from anneal.uop import UOp

if TYPE_CHECKING:
    from anneal.onnx import Model
    from anneal.training import Training

_PLANE = 40  # points of a side of the plane that the spirals' page paints
_BLOCK = 64  # keys are read in whole blocks


@dataclass
class Recipe:
    """The arguments of `export`."""

    functions: dict[str, Callable[..., Any]]
    examples: dict[str, tuple[Any, ...]]
    page: dict[str, Any] = field(default_factory=lambda: {"kind": "form"})
    data: Mapping[str, Array] = field(default_factory=dict)
    train: tuple[str, ...] = ()
    weights: str = ""  # a form that the recipe asks for


def of_training(name: str, training: Training, train: bool) -> Recipe:
    """The recipe of an example model, called `name`: its forward, and with `train` its training step."""
    model: Any = training.model
    batch = training.next_batch()
    if isinstance(model, nn.GPT) and hasattr(training, "alphabet"):
        recipe = of_text(model, {"kind": "write", "alphabet": "".join(training.alphabet)})
    elif name == "mlp":
        recipe, train = _spirals(training), True
    else:
        arguments = _arguments(training, batch)
        recipe = Recipe({"predict": model}, {"predict": tuple(_first(a) for a in arguments)})
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


def _arguments(training: Training, batch: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that the loss of a batch gives the model first."""
    found: list[tuple[Any, ...]] = []
    model: Any = training.model
    forward = model.forward

    def noted(*arguments: Any, **named: Any) -> Any:
        found.append((*arguments, *named.values()))
        return forward(*arguments, **named)

    vars(model)["forward"] = noted
    try:
        training.loss(*batch).realize()
    finally:
        del vars(model)["forward"]
    if not found:
        raise UserError("export: the loss of this example never calls its model")
    return found[0]


def _spirals(training: Any) -> Recipe:
    side = np.linspace(-1, 1, _PLANE, dtype=np.float32)
    y, x = np.meshgrid(side[::-1], side, indexing="ij")
    plane = np.stack([x.ravel(), y.ravel()], axis=1)
    model = training.model
    page = {"kind": "spirals", "side": _PLANE, "batch": training.batch}
    data = {"points": training.points, "arms": training.arms}
    return Recipe({"predict": model}, {"predict": (Tensor(plane),)}, page, data)


# -- text -------------------------------------------------------------------------------------------------------------


class Reader:
    """A GPT that reads a text once: what later tokens need of earlier ones, keys and values, stays on the device.

    `begin` reads a prompt and `go_on` one more token; both give the logits of what follows, float32[vocabulary].
    """

    def __init__(self, model: nn.GPT) -> None:
        c = model.config
        self.model = model.eval()
        self.block = math.gcd(_BLOCK, max(1, c.block_size // 4))
        self.blocks = Variable("blocks", 1, c.block_size // self.block)
        shape = (c.n_head, c.block_size, c.n_embd // c.n_head)
        self.keys = [Tensor.zeros(*shape) for _ in model.h]
        self.values = [Tensor.zeros(*shape) for _ in model.h]
        realize([*self.keys, *self.values])

    def begin(self, tokens: Tensor, count: Tensor, blocks: UOp) -> Tensor:
        """Read whole blocks of int32[context] `tokens`, of which the first `count`, int32[1], are the prompt."""
        model, size = self.model, blocks * self.block
        x = model.wte(tokens[:size]) + model.wpe.weight[:size]
        for block, keys, values in zip(model.h, self.keys, self.values, strict=True):
            q, k, v = self._heads(block, x)
            keys[:, :size], values[:, :size] = k, v
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            if block is model.h[-1]:  # from here on nobody asks for any but the last token
                x, y = x[count - 1], y[:, count - 1]
            x = self._rest(block, x, y)
        return self._said(x)

    def go_on(self, token: Tensor, place: Tensor, blocks: UOp) -> Tensor:
        """Read one `token` at its `place`, int32[1] both, among the keys of so many blocks."""
        model, size = self.model, blocks * self.block
        seen = (Tensor.arange(size) <= place).reshape(1, 1, size)
        x = model.wte(token) + model.wpe(place)
        for block, keys, values in zip(model.h, self.keys, self.values, strict=True):
            q, k, v = self._heads(block, x)
            keys.assign(keys.update_slice(k, (0, place, 0)))
            values.assign(values.update_slice(v, (0, place, 0)))
            y = F.scaled_dot_product_attention(q, keys[:, :size], values[:, :size], attn_mask=seen)
            x = self._rest(block, x, y)
        return self._said(x)

    def _heads(self, block: nn.Block, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        time, width = x.shape
        heads = self.model.config.n_head
        q, k, v = block.attn.c_attn(block.ln_1(x)).reshape(time, 3, heads, width // heads).permute(1, 2, 0, 3)
        return q, k, v

    def _rest(self, block: nn.Block, x: Tensor, y: Tensor) -> Tensor:
        x = x + block.attn.c_proj(y.transpose(0, 1).reshape(*x.shape))
        return x + block.mlp(block.ln_2(x))

    def _said(self, x: Tensor) -> Tensor:
        logits = self.model.lm_head(self.model.ln_f(x)).reshape(-1)
        realize([logits, *self.keys, *self.values])
        return logits


def of_text(model: nn.GPT, page: Mapping[str, Any]) -> Recipe:
    """The recipe of a GPT, `model`, that writes, token by token; `page` is what it shows."""
    reader = Reader(model)
    context = model.config.block_size
    whole = np.zeros(context, np.int32)
    whole[:8] = np.arange(8) % model.config.vocab_size
    begin = (Tensor(whole), Tensor(np.array([8], np.int32)), reader.blocks.bind(1))
    go_on = (Tensor(np.array([3], np.int32)), Tensor(np.array([8], np.int32)), reader.blocks.bind(1))
    functions: dict[str, Callable[..., Any]] = {"begin": reader.begin, "go_on": reader.go_on}
    shown = {**page, "context": context, "block": reader.block}
    return Recipe(functions, {"begin": begin, "go_on": go_on}, shown)


def of_gpt2(config: nn.GPTConfig) -> Recipe:
    """The recipe of a GPT-2 of the sizes of `config`, whose weights and words the visitor of the page has."""
    return replace(of_text(nn.GPT.from_config(config), {"kind": "gpt2"}), weights=VISITOR)


# -- ONNX -------------------------------------------------------------------------------------------------------------


def of_onnx(model: Model, feeds: Mapping[str, Any], labels: list[str] | None = None) -> Recipe:
    """The recipe of an ONNX model for inputs of the sizes of `feeds`; one of a picture describes what is dropped,
    by the `labels` of its classes."""
    names = [v.name for v in model.inputs if v.name in feeds]
    fixed = {n: feeds[n] for n in names if not isinstance(feeds[n], Tensor) and n in model.deciding}
    given = [n for n in names if n not in fixed]

    def run(*tensors: Tensor) -> tuple[Any, ...]:
        return tuple(model.trace({**fixed, **dict(zip(given, tensors, strict=True))}).values())

    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = ["".join(c if c.isalnum() else "_" for c in f"in_{n}" if True).removeprefix("in_") for n in given]
    signed: Any = run
    signed.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in parameters])
    tensors = tuple(feeds[n] if isinstance(feeds[n], Tensor) else Tensor(feeds[n]) for n in given)
    page: dict[str, Any] = {"kind": "form"}
    if len(tensors) == 1 and tensors[0].ndim == 4 and tensors[0].shape[:2] == (1, 3):
        page = {"kind": "describe", "size": list(tensors[0].shape[2:]), "labels": labels or []}
    return Recipe({"run": signed}, {"run": tensors}, page)
