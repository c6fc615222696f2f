"""What `help` says of a public name: each argument, an example, and the shape of what an op gives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from anneal import front, nn, ops, optim
from anneal.nn import functional, init
from anneal.ops.glossary import FAMILIES, MEANINGS, explained
from anneal.optim import lr_scheduler
from anneal.tensor import Tensor

# Functions for the ops themselves, which `an` shows because `anneal.ops` does.
INNER = {
    *("alias", "arguments_of", "array_of", "axes_of", "axis_of", "bound_int", "called_on_host", "changed"),
    *(
        "check_device_dtype",
        "checked",
        "deferred",
        "explain_class",
        "host_normal",
        "host_uniform",
        "in_place",
        "in_single",
    ),
    *("int_args", "is_bool", "is_tensor", "need_changeable", "need_float", "need_tensor", "one_of", "pass_unseen"),
    *("per_axis", "said", "same_device", "several", "take_running_updates", "whole", "wrap_array", "host_generator"),
}
# Settings of whole models, and what is described in the words of its signature.
ROOMS = {
    "Tensor": {name: getattr(Tensor, name) for name in dir(Tensor)},
    "ops": {name: getattr(ops, name) for name in ops.__all__},
    "nn": {name: getattr(nn, name) for name in nn.__all__},
    "nn.functional": {name: getattr(functional, name) for name in functional.__all__},
    "nn.init": {name: getattr(init, name) for name in init.__all__},
    "optim": {name: getattr(optim, name) for name in optim.__all__},
    "lr_scheduler": {name: getattr(lr_scheduler, name) for name in lr_scheduler.__all__},
}
TOLD_BY_THEIR_NAMES = {"GPTConfig", "LlamaConfig"}
OF_NO_SHAPE = {"as_dtype", "from_numpy", "grad_enabled", "no_grad"}
HIDDEN = {"self", "cls", "args", "kwargs", "options", "named", "_"}


def public(room: str) -> Iterator[tuple[str, Any]]:
    for name, value in ROOMS[room].items():
        ours = callable(value) and (getattr(value, "__module__", "") or "").startswith("anneal.")
        if ours and not name.startswith("_") and name not in INNER | TOLD_BY_THEIR_NAMES:
            if not (inspect.isclass(value) and value.__init__ is object.__init__):
                yield name, value


def said(value: Any) -> str:
    texts = [inspect.getdoc(value) or "", (value.__init__.__doc__ or "") if inspect.isclass(value) else ""]
    return " ".join(text.partition(">>>")[0] for text in texts)


@pytest.mark.parametrize("room", ROOMS)
def test_help_names_each_argument(room: str) -> None:
    missing = {}
    for name, value in public(room):
        try:
            parameters = inspect.signature(value).parameters
        except ValueError:
            continue
        wanted = [p for p in parameters if p not in HIDDEN and not p.startswith("_")]
        words = set(re.findall(r"\w+", said(value)))
        if left := [p for p in wanted if p not in words]:
            missing[name] = left
    assert missing == {}


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("nn.functional",)])
def test_help_shows_an_example(room: str) -> None:
    kin = "anneal.ops.inplace_kin"  # of an op that has one
    without = [n for n, v in public(room) if ">>>" not in (inspect.getdoc(v) or "") and v.__module__ != kin]
    assert without == []


def test_help_of_an_op_says_a_shape() -> None:
    shape = re.compile(
        r"shape|Gives|size|axis|axes|\([^)]*, |row|matri|vector|number|scalar|Whether|tensor", re.IGNORECASE
    )
    assert [n for n, v in public("ops") if not shape.search(said(v)) and n not in OF_NO_SHAPE] == []


def test_arguments_are_added_before_the_examples_and_once() -> None:
    text = "Sum.\n\n    Args:\n        dim: an axis.\n\n    >>> x\n    "
    told = explained(text, ["x", "dim", "unheard"], "anywhere")
    assert told == (
        "Sum.\n\n    Args:\n        x: a tensor; any shape where nothing else is said.\n        dim: an axis.\n\n    >>> x\n    "
    )
    assert explained("x along dim.", ["x", "dim"], "anywhere") == "x along dim."


def test_every_meaning_is_a_sentence_that_somebody_uses() -> None:
    texts = [*MEANINGS.values(), *(m for family in FAMILIES.values() for m in family.values())]
    assert [text for text in texts if not text.endswith(".")] == []
    taken = {p for room in ROOMS for _, value in public(room) if callable(value) for p in _parameters(value)}
    assert set(MEANINGS) - taken == set()
    assert front.exp.__doc__ is not None


def _parameters(value: Any) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except ValueError:
        return []
