"""GPT-2's weights in a folder as Hugging Face lays it out: model.safetensors, and config.json for the sizes.

`nn.GPT` is GPT-2: norms before attention and the MLP, learned positions, gelu by tanh, one table for tokens and logits.
Its parameters have Hugging Face's names but for the prefix "transformer.", which some files have. One thing differs:
Hugging Face keeps the four matrices of a block as (inputs, outputs), its Conv1D, and `nn.Linear` as (outputs, inputs).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files, nn
from anneal.errors import DataError, UserError
from anneal.nn import init
from anneal.tensor import io, no_grad, upload

__all__ = ["read_checkpoint", "write_checkpoint"]

Shapes = dict[str, tuple[int, ...]]

WEIGHTS, CONFIG = "model.safetensors", "config.json"
LONGEST = 1 << 20  # bytes of config.json, which has a few thousand
PREFIX = "transformer."
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
# The causal mask and a constant, which old files carry for every block.
MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
BLOCK = re.compile(r"h\.(\d+)\.")
HEAD = "lm_head.weight"
HEAD_WIDTH = 64  # in every GPT-2 that OpenAI published

# What the model here computes, where Hugging Face's configuration knows other things.
FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}


def read_checkpoint(folder: str | Path) -> nn.GPT:
    """The model of a folder, on the default device, ready to evaluate (no dropout).

    Sizes are those of config.json, or of the tensors if there is none. Raises DataError if a file is missing or
    damaged, if config.json describes another model, and, in one error, for all tensors that are missing, unexpected or
    misshapen.
    """
    folder = Path(folder)
    settings = _read_config(folder / CONFIG)
    if not (folder / WEIGHTS).is_file():
        raise DataError(f"{folder} has no {WEIGHTS}; a checkpoint is a folder with that file and, best, {CONFIG}")
    file = io.safe_open(folder / WEIGHTS)
    names = _names(file)
    config = _sizes(settings, file, names)
    _check(config, file, names)

    with init.skipped():
        model = nn.GPT.from_config(config)
    # A block at a time, so that no more of the file is in memory; the blocks being alike, they share their kernels.
    for _, block in groupby(model.named_parameters(), key=lambda p: p[0].split(".")[:2]):
        tensors = []
        for name, parameter in block:
            value = file[names[name]]
            tensors.append(parameter.assign(value.T if name.endswith(TRANSPOSED) else value))
        with no_grad():  # nobody differentiates through the file: its tensors may go
            upload(tensors)
        file.release()
    return model.eval()


def write_checkpoint(model: nn.GPT, folder: str | Path, notes: Mapping[str, str] | None = None) -> None:
    """Write model.safetensors and config.json as transformers' GPT2LMHeadModel reads them; each replaces its old one
    whole.

    `notes` go into the metadata of model.safetensors, which is written last.

    Raises UserError for a model without biases, which GPT-2's layout has no place for, and DataError if a file cannot
    be written.
    """
    c = model.config
    if not c.bias:
        raise UserError("write_checkpoint: GPT-2's layout has biases, and this model has none; make it with bias=True")
    arrays = {}
    for name, t in model.state_dict().items():
        if name == HEAD and c.tie_weights:
            continue  # the table, by its other name
        array = t.numpy()
        key = name if name == HEAD else PREFIX + name
        arrays[key] = np.ascontiguousarray(array.T) if name.endswith(TRANSPOSED) else array
    settings = {key: values[0] for key, values in FIXED.items()} | {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocab_size,
        "n_positions": c.block_size,
        "n_layer": c.n_layer,
        "n_head": c.n_head,
        "n_embd": c.n_embd,
        "tie_word_embeddings": c.tie_weights,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), c.dropout),
    }
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DataError(f"write_checkpoint: cannot make the folder {folder}: {e.strerror or e}") from e
    io.save_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", folder / CONFIG)
    io.safe_save(arrays, folder / WEIGHTS, {"format": "pt", **(notes or {})})  # transformers asks for the first note


# -- the sizes ---------------------------------------------------------------------------------------------------------


def _read_config(path: Path) -> dict[str, Any]:
    """config.json, empty if there is none; DataError if it is damaged or describes what `nn.GPT` does not compute."""
    try:
        with files.opened(path) as f:
            text = f.read(LONGEST + 1)
        found = json.loads(text.decode()) if len(text) <= LONGEST else None
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{path} cannot be read as JSON: {e}; fetch it again, or remove it") from e
    if not isinstance(found, dict):
        raise DataError(f"{path} is no JSON object; fetch it again, or remove it")
    for key, values in FIXED.items():
        if found.get(key, values[0]) not in values:
            raise DataError(f"{path}: {key} is {found[key]!r}; this model knows {' and '.join(map(repr, values))}")
    return found


def _sizes(settings: dict[str, Any], file: io.SafeTensors, names: dict[str, str]) -> nn.GPTConfig:
    """What config.json says, and what the tensors say where it is silent."""

    def rows_and_columns(name: str) -> tuple[int | None, int | None]:
        found = file.entries[names[name]].shape if name in names else ()
        return (found[0], found[1]) if len(found) == 2 else (None, None)

    def size(*keys: str, otherwise: int | None) -> int:
        for key in keys:
            if key in settings:
                if type(settings[key]) is not int or settings[key] < 1:
                    raise DataError(f"{file.path.parent / CONFIG}: {key} is {settings[key]!r}, not a size")
                return int(settings[key])
        if otherwise is None:
            raise DataError(
                f"{file.path} does not tell {keys[0]}: it needs a {CONFIG} beside it that does, or is no GPT-2"
            )
        return otherwise

    layers = len({m[1] for n in names if (m := BLOCK.match(n))})
    n_layer = size("n_layer", otherwise=layers)
    if n_layer > layers:
        raise DataError(f"{file.path} has tensors of {layers} blocks, and {CONFIG} says {n_layer}")
    vocabulary, width = rows_and_columns("wte.weight")
    context, _ = rows_and_columns("wpe.weight")
    n_embd = size("n_embd", otherwise=width)
    if settings.get("n_inner") not in (None, 4 * n_embd):
        raise DataError(
            f"{file.path.parent / CONFIG}: n_inner is {settings['n_inner']!r}; this model knows 4 times n_embd"
        )
    heads = None if n_embd % HEAD_WIDTH else n_embd // HEAD_WIDTH
    n_head = size("n_head", otherwise=heads)
    if n_embd % n_head:
        raise DataError(f"{file.path.parent / CONFIG}: {n_head} heads do not divide a width of {n_embd}")
    tied = settings.get("tie_word_embeddings")
    return nn.GPTConfig(
        vocab_size=size("vocab_size", otherwise=vocabulary),
        block_size=size("n_positions", "n_ctx", otherwise=context),
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        tie_weights=_head_is_table(file, names) if tied is None else bool(tied),
    )


def _head_is_table(file: io.SafeTensors, names: dict[str, str]) -> bool:
    """Whether the file has no head of its own, or one that is the table of tokens."""
    table = names.get("wte.weight")
    return HEAD not in names or (table is not None and np.array_equal(file.array(names[HEAD]), file.array(table)))


# -- the names ---------------------------------------------------------------------------------------------------------


def _names(file: io.SafeTensors) -> dict[str, str]:
    """The file's names by those of `nn.GPT`, masks left out."""
    names: dict[str, str] = {}
    for name in file:
        own = name.removeprefix(PREFIX)
        if MASKS.fullmatch(own):
            continue
        if own in names:
            raise DataError(f"{file.path} has both {own} and {PREFIX}{own}")
        names[own] = name
    return names


def _layout(c: nn.GPTConfig) -> Shapes:
    """The tensors of a GPT-2 of these sizes, with the shapes that they have in Hugging Face's file."""
    n = c.n_embd
    norm: Shapes = {"weight": (n,), "bias": (n,)}
    parts: dict[str, Shapes] = {
        "ln_1": norm,
        "attn.c_attn": {"weight": (n, 3 * n), "bias": (3 * n,)},
        "attn.c_proj": {"weight": (n, n), "bias": (n,)},
        "ln_2": norm,
        "mlp.c_fc": {"weight": (n, 4 * n), "bias": (4 * n,)},
        "mlp.c_proj": {"weight": (4 * n, n), "bias": (n,)},
    }
    blocks = {f"h.{i}.{part}": tensors for i in range(c.n_layer) for part, tensors in parts.items()}
    tables: dict[str, Shapes] = {"wte": {"weight": (c.vocab_size, n)}, "wpe": {"weight": (c.block_size, n)}}
    head: dict[str, Shapes] = {} if c.tie_weights else {"lm_head": {"weight": (c.vocab_size, n)}}
    every = {**tables, **blocks, "ln_f": norm, **head}
    return {f"{part}.{name}": shape for part, tensors in every.items() for name, shape in tensors.items()}


def _check(config: nn.GPTConfig, file: io.SafeTensors, names: dict[str, str]) -> None:
    """All that is missing, unexpected, misshapen or of another kind than floats, in one DataError."""
    layout = _layout(config)
    entries = {own: file.entries[name] for own, name in names.items()}
    unexpected = [n for n in entries if n not in layout and not (n == HEAD and config.tie_weights)]
    misshapen = [
        f"{n} has {entries[n].shape}, not {shape}"
        for n, shape in layout.items()
        if n in entries and entries[n].shape != shape
    ]
    kinds = [f"{n} has {entries[n].dtype}" for n in layout if n in entries and "F" not in entries[n].dtype]
    faults = {
        "missing": [n for n in layout if n not in entries],
        "unexpected": unexpected,
        "misshapen": misshapen,
        "no floats": kinds,
    }
    if any(faults.values()):
        text = "; ".join(f"{kind}: {_listed(found)}" for kind, found in faults.items() if found)
        raise DataError(
            f"{file.path} is no GPT-2 of {config.n_layer} blocks, width {config.n_embd}, vocabulary "
            f"{config.vocab_size} "
            f"and context {config.block_size}: {text}"
        )


def _listed(found: Iterable[str], most: int = 50) -> str:
    every = [ascii(n)[1:-1] for n in found]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
