"""Every argument of every public op, wrong in every way: what comes of it is a result or an error of our own tree that
names the op.

The ops are enumerated from Tensor's methods, the functional modules, the layers and `nn.init`; one without a row in
argument_rows.py fails here. A wrong value stands in for one argument of a right call at a time. What can never be meant
(`MUST_RAISE`, by the argument's kind) has to be refused; of the rest, whatever is accepted has to compute.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from anneal import ops
from anneal.errors import DeviceError, UserError
from anneal.tensor import Tensor, realize
from tests.tensor.argument_rows import JOINED, OWN_DEVICE, Case, T, cases, made
from tests.tiers import thinned

CASES = cases()
EMPTY, SCALAR, FLAGS = T((0,)), T((), "float32", 1.5), T((2,), "bool")
WRONG: dict[str, Any] = {
    "None": None,
    "text": "a",
    "True": True,
    "False": False,
    "float": 1.5,
    "negative": -7,
    "huge": 2**70,
    "nan": math.nan,
    "inf": math.inf,
    "pair": (1, 1),
    "one": (1,),
    "empty tuple": (),
    "empty list": [],
    "bools": [True, False],
    "floats": [0.5],
    "object": object(),
    "0-d": SCALAR,
    "0-d int": T((), "int32", 1),
    "no elements": EMPTY,
    "bool tensor": FLAGS,
    "dict": {},
    "array of objects": np.array([None]),
    "complex": 1j,
    "bytes": b"a",
    "type": int,
}
# What no argument of a kind can be, by the annotation.
_NEVER = {"text", "object", "dict", "complex", "bytes", "type", "array of objects"}
_INTS = _NEVER | {
    "True",
    "False",
    "float",
    "huge",
    "nan",
    "inf",
    "bools",
    "floats",
    "0-d",
    "no elements",
    "bool tensor",
}
_NUMBERS = _NEVER | {
    "True",
    "False",
    "pair",
    "one",
    "empty tuple",
    "empty list",
    "bools",
    "no elements",
    "bool tensor",
}  # a tensor of one number stands for it, as in torch
MUST_RAISE: dict[str, set[str]] = {
    "int": _INTS | {"None", "pair", "one", "empty tuple", "empty list"},
    "int | None": _INTS | {"pair", "one", "empty tuple", "empty list"},
    "Sequence[int]": _INTS | {"None"},
    "Axes": _INTS,
    "Sizes": _INTS | {"None"},
    "Sizes | None": _INTS,
    "bool": set(WRONG) - {"True", "False"},
    "float": _NUMBERS | {"None"},
    "float | None": _NUMBERS,
    "str": set(WRONG),
    "Tensor": set(WRONG) - {"0-d", "0-d int", "no elements", "bool tensor"},
    "TensorBase": set(WRONG) - {"0-d", "0-d int", "no elements", "bool tensor"},
    "Tensor | None": set(WRONG) - {"None", "0-d", "0-d int", "no elements", "bool tensor"},
    "Operand": _NEVER,
}
SELVES = {
    "0-d": SCALAR,
    "no elements": T((0, 3)),
    "none at the end": T((2, 0)),
    "bools": T((2, 3), "bool"),
    "bytes": T((2, 3), "uint8"),
    "ints": T((2, 3), "int32"),
    "one": T((1, 1)),
    "five axes": T((1, 1, 1, 2, 3)),
}


def parameters(case: Case) -> Iterator[tuple[int | None, str, str]]:
    """The place, the name and the annotation of each argument that can be replaced."""
    given = list(inspect.signature(case.call).parameters.values())
    for i, p in enumerate(given):
        if p.kind is p.VAR_KEYWORD or p.name == "self":
            continue
        if p.kind is p.VAR_POSITIONAL:
            for j in range(i, len(case.row.args)):
                yield j, p.name, "*"
        else:
            yield i if p.kind is not p.KEYWORD_ONLY else None, p.name, str(p.annotation)


def replaced(case: Case, at: int | None, name: str, value: Any, device: str) -> tuple[list[Any], dict[str, Any]]:
    args, options = list(made(case.row.args, device)), made(dict(case.row.options), device)
    wrong = made(value, device)
    if at is not None and at < len(args):
        args[at] = wrong
    else:
        options[name] = wrong
    return args, options


def attempt(case: Case, what: str, args: list[Any], options: dict[str, Any]) -> tuple[bool, list[Tensor]]:
    """Whether the call was refused, rightly; and what it made if not."""
    try:
        out = case.call(*args, **options)
        if isinstance(out, contextlib.AbstractContextManager):
            with out:  # a block says what is wrong when it is entered
                pass
        return False, tensors_of(out)
    except UserError as e:
        words = str(e)
    assert words.startswith(f"{case.title}: "), f"{what} is refused as {words:.200}, which does not name {case.title}"
    assert words.rstrip() != f"{case.title}:", what
    return True, []


def tensors_of(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, (list, tuple)):
        return [t for x in out for t in tensors_of(x)]
    return []


def computes(title: str, results: list[tuple[str, Tensor]]) -> None:
    """All of them together; if that fails, the first that does. Values may be refused here, in the words of the op."""
    try:
        realize([t for _, t in results])
    except Exception:
        for what, t in results:
            try:
                t.numpy()
            except Exception as e:
                if isinstance(e, UserError) and str(e).startswith(f"{title.rstrip('_')}: "):
                    continue
                raise AssertionError(f"{what} is accepted and does not compute: {type(e).__name__}: {e}") from e


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """The stream of random numbers goes on as if nothing had been drawn or seeded. Losses warn of targets of other
    shapes, as torch's do."""
    from anneal.tensor.random import default_generator as g

    before = g.seed, g.calls
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using a target size", UserWarning)
            yield
    finally:
        g.manual_seed(before[0])
        g.calls = before[1]


@pytest.mark.parametrize("name", thinned(CASES, test=20, ci=6))
def test_a_wrong_argument_is_refused_in_the_words_of_the_op(name: str) -> None:
    case = CASES[name]
    kept: list[tuple[str, Tensor]] = []
    silent: list[str] = []
    with as_it_was():
        case.call(*made(case.row.args, "cpu"), **made(case.row.options, "cpu"))  # the row is a right call
        for at, parameter, annotation in parameters(case):
            for kind, value in WRONG.items():
                what = f"{name}({parameter}={kind})"
                try:
                    refused, results = attempt(case, what, *replaced(case, at, parameter, value, "cpu"))
                except (AssertionError, pytest.fail.Exception):
                    raise
                except Exception as e:
                    raise AssertionError(f"{what} raises {type(e).__name__}: {e}") from e
                lifted = (
                    at == 0 and takes_a_number_first(name.partition(".")[2]) and isinstance(value, (bool, int, float))
                )
                if lifted:  # a number in the first operand's place, as torch takes it
                    continue
                if not refused and kind in MUST_RAISE.get(annotation, ()) and not is_same(case, at, value):
                    silent.append(what)
                kept += [(what, t) for t in results]
        computes(case.title, kept)
    assert not silent, f"taken for something else: {', '.join(silent)}"


def takes_a_number_first(name: str) -> bool:
    """True for an op whose first operand may be a number, as in torch."""
    return name[-1:] != "_" and hasattr(getattr(ops, name, None), "lifts")


def is_same(case: Case, at: int | None, value: Any) -> bool:
    """Whether the wrong value is what the right call has."""
    return at is not None and at < len(case.row.args) and case.row.args[at] is value


@pytest.mark.parametrize("name", thinned([n for n in CASES if n.startswith("Tensor.")], test=20, ci=6))
def test_every_op_takes_or_refuses_tensors_of_every_shape_and_kind(name: str) -> None:
    case = CASES[name]
    if not case.row.args or not isinstance(case.row.args[0], T):
        pytest.skip("takes no tensor first")
    kept: list[tuple[str, Tensor]] = []
    with as_it_was():
        for kind, value in SELVES.items():
            args = [made(value, "cpu"), *made(case.row.args, "cpu")[1:]]
            what = f"{name} of {kind}"
            try:
                kept += [(what, t) for t in attempt(case, what, args, made(dict(case.row.options), "cpu"))[1]]
            except AssertionError:
                raise
            except Exception as e:
                raise AssertionError(f"{what} raises {type(e).__name__}: {e}") from e
        for kind in ("text", "None", "float", "object", "one", "array of objects"):
            if name.partition(".")[2] in JOINED:
                continue
            short = name.partition(".")[2]
            if kind == "float" and takes_a_number_first(short) and not short.startswith("bitwise"):
                # A number in the first operand's place, as torch takes it: what a tensor of it gives.
                number, scalar = (
                    case.call(
                        made(first, "cpu"), *made(case.row.args, "cpu")[1:], **made(dict(case.row.options), "cpu")
                    )
                    for first in (WRONG[kind], T((), "float32", WRONG[kind]))
                )
                assert (number.dtype, number.tolist()) == (scalar.dtype, scalar.tolist()), name
                continue
            with pytest.raises(UserError, match=rf"^{case.title}: "):
                case.call(WRONG[kind], *made(case.row.args, "cpu")[1:], **made(dict(case.row.options), "cpu"))
        computes(case.title, kept)


def test_a_tensor_on_another_device_is_refused_by_every_op_that_takes_two(webgpu: str) -> None:
    met = 0
    for name, case in CASES.items():
        places = [i for i, a in enumerate(case.row.args) if isinstance(a, T)]
        if len(places) < 2 or name.partition(".")[2] in OWN_DEVICE:
            continue
        for at in places:
            args = [made(a, webgpu if i == at else "cpu") for i, a in enumerate(case.row.args)]
            with pytest.raises(DeviceError, match=rf"^{case.title}: "):
                case.call(*args, **made(dict(case.row.options), "cpu"))
            met += 1
    assert met > 200, met
