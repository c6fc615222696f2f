"""Calls that torch refuses, all of which must be errors of anneal's: wrong shapes, axes, sizes and numbers."""

from __future__ import annotations

import builtins
import json

import pytest

import anneal as an
from anneal.errors import LinAlgError, UserError
from tests.tensor.torch_refusals import CALLS, PATH, called

# What anneal takes on purpose: negative steps, products by other names of any axes, quantiles of integers, and an
# `arange` that goes nowhere, which has no elements (the array API's).
TAKEN = ["X[::-1]", "an.mm(an.ones(3), an.ones(3))", "an.quantile(I, 0.5)", "an.arange(3, 0)"]


CLASSES: dict[str, str] = json.loads(PATH.read_text())["classes"]
assert CLASSES.keys() == set(CALLS), "run python -m tests.tensor.torch_refusals, which needs torch"


@pytest.mark.parametrize("call", CALLS)
def test_what_torch_refuses_is_refused(call: str) -> None:
    """By an error of the class that torch raises, so that what a program catches is caught."""
    kind = CLASSES[call]
    with pytest.raises(LinAlgError if kind == "LinAlgError" else getattr(builtins, kind)) as raised:
        called(an, call)
    assert isinstance(raised.value, (UserError, TypeError))


@pytest.mark.parametrize("call", TAKEN)
def test_what_is_taken_all_the_same(call: str) -> None:
    called(an, call)
