"""`help` of a public name: a first sentence, each argument, an example, and the shape of an op's result."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from anneal import front, names, nn, ops, optim
from anneal.errors import UserError
from anneal.nn import functional, init
from anneal.ops import glossary
from anneal.ops.glossary import FAMILIES, MEANINGS, explained
from anneal.optim import lr_scheduler
from anneal.tensor import Tensor
from tools.reference import pages

# Functions for the ops themselves, which `an` shows because `anneal.ops` does.
INNER = {
    *("alias", "arguments_of", "array_of", "axes_of", "axis_of", "bound_int", "called_on_host", "changed"),
    *(
        "check_device_dtype",
        "checked",
        "guarded",
        "deferred",
        "flagged",
        "viewing",
        "function",
        "host_normal",
        "host_uniform",
        "in_place",
    ),
    *("locate", "shorten"),
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
    twins = {
        word.partition("=")[0] for word in names.OPENED["anneal.ops"]["anneal.ops"].split()
    }  # of an op that has one
    without = [n for n, v in public(room) if ">>>" not in (inspect.getdoc(v) or "") and n not in twins]
    assert without == []


def test_help_of_an_op_says_a_shape() -> None:
    shape = re.compile(
        r"shape|Gives|size|axis|axes|\([^)]*, |row|matri|vector|number|scalar|True|tensor", re.IGNORECASE
    )
    assert [n for n, v in public("ops") if not shape.search(said(v)) and n not in OF_NO_SHAPE] == []


def test_arguments_are_added_before_the_examples_and_once() -> None:
    text = "Sum.\n\n    Args:\n        dim: an axis.\n\n    >>> x\n    "
    told = explained(text, ["x", "dim", "unheard"], "anywhere")
    assert told == (
        "Sum.\n\n    Args:\n        x: a tensor of any shape, unless stated otherwise.\n        dim: an axis.\n\n    >>> x\n    "
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


# -- every public name of the reference -------------------------------------------------------------------------------

# Words that begin a clause about something unnamed: "What `finfo` gives."
RIDDLE = re.compile(r"(What|Whatever|Where|Whether|Which|Who|Whoever|Whose|How|When|Why|That|Those)\b")
# Docstrings of these rooms that still do: numbers that only go down.
RIDDLES: dict[str, int] = {}


def told_first(value: Any) -> str:
    """The first paragraph of the docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


def fault(paragraph: str) -> str:
    """The reason why a docstring's beginning is no sentence about something that it names; "" if it is one."""
    if not paragraph:
        return "there is none"
    if RIDDLE.match(paragraph):
        return "its subject is not named"
    if not paragraph.endswith((".", ":")):
        return "it has no end"
    return "" if len(paragraph.split()) > 1 else "it is one word"


@functools.cache
def in_the_reference() -> list[tuple[str, Any]]:
    """Every name of the reference with its object, and the public methods of its classes; Tensor's are ops."""
    found: list[tuple[str, Any]] = []
    for entry in itertools.chain.from_iterable(page.entries for page in pages()):
        module, _, name = entry.home.rpartition(".")
        value = getattr(import_module(module), name)
        found.append((entry.path, value))
        if inspect.isclass(value) and value is not Tensor:
            own = [n for n in vars(value) if not n.startswith("_")]
            said = [n for n in own if isinstance(vars(value)[n], (classmethod, staticmethod, property)) or
                    inspect.isroutine(vars(value)[n])]  # fmt: skip
            found += [(f"{entry.path}.{n}", getattr(value, n)) for n in said]
    return found


def test_every_docstring_begins_with_a_sentence_about_something_that_it_names() -> None:
    names = in_the_reference()
    assert len(names) > 1400
    assert {path: why for path, value in names if (why := fault(told_first(value)))} == {}


def test_no_docstring_of_the_package_begins_with_a_riddle() -> None:
    """The inner ones too: whoever reads the code reads them first."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    riddles: dict[str, list[str]] = {}
    for path in Path("anneal").rglob("*.py"):
        room = "/".join(path.parts[:2])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds) and RIDDLE.match(told := ast.get_docstring(node) or ""):
                riddles.setdefault(room, []).append(f"{path}: {told.partition(chr(10))[0]}")
    assert {room: found for room, found in riddles.items() if len(found) > RIDDLES.get(room, 0)} == {}


def test_a_riddle_is_found() -> None:
    assert fault("Whether it is one.")
    for text in ("What `finfo` gives.", "Where the largest element is.", "How many there are.", "Zeros.", "Zeros", ""):
        assert fault(text), text
    assert fault("The number of elements, whatever they are.") == ""


def test_help_of_every_name_in_the_reference_names_each_argument() -> None:
    """But for records, which the library makes: their fields are named and typed where they stand."""
    missing = {}
    for path, value in in_the_reference():
        record = inspect.isclass(value) and (dataclasses.is_dataclass(value) or hasattr(value, "_fields"))
        if not callable(value) or record or path.rpartition(".")[2] in INNER:
            continue
        words = set(re.findall(r"\w+", said(value)))
        if left := [p for p in _parameters(value) if p not in HIDDEN | words and not p.startswith("_")]:
            missing[path] = left
    assert missing == {}


_CLAIMS = {
    glossary._SAME: (2, 3),
    glossary._MEET: (2, 3),
    glossary._REDUCED: (3,),  # along axis 0
}


def _claims() -> Iterator[tuple[str, Any, str]]:
    for room in glossary.RESULTS:
        for name, value in vars(import_module(room)).items():
            if getattr(value, "__module__", "") == room and not name.startswith("_") and inspect.unwrap(value) != value:
                claim = next((c for c in _CLAIMS if c in (value.__doc__ or "")), None)
                if claim is not None:
                    yield f"{room}.{name}", value, claim


def test_results_have_the_shapes_that_docstrings_claim() -> None:
    x = Tensor([[0.5, 0.25, 0.125], [0.3, 0.2, 0.1]])
    tries: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {"dim": 0}), ((x,), {"axis": 0}), ((x, 0), {}), ((x,), {}), ((x, x[0]), {}), ((x > 0.2, x[0] > 0.2), {}),
        ((x.int(),), {}), ((x.int(), x[0].int()), {}), ((x, x[0], x[0]), {}), ((x, (3,)), {}), ((x, 0.1, 0.2), {}), ((x, 3), {}),
    ]  # fmt: skip
    wrong, uncalled = {}, []
    for path, function, claim in _claims():
        for args, options in tries:
            if claim == glossary._REDUCED and not options and not (len(args) == 2 and isinstance(args[1], int)):
                continue
            try:
                result = function(*args, **options)
            except UserError:
                continue
            results = result if isinstance(result, (tuple, list)) else (result,)
            shapes = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in results]
            if any(s != _CLAIMS[claim] for s in shapes):
                wrong[path] = shapes
            break
        else:
            uncalled.append(path)
    assert wrong == {}
    assert uncalled == ["anneal.ops.activations.local_response_norm"]  # takes three axes
