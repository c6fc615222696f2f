"""Dtypes of results beside torch's: every function, dtype and pair of dtypes of the table of `torch_dtypes.py`."""

from __future__ import annotations

import json

import pytest

import anneal as an
from tests.tensor.torch_dtypes import ONE, PATH, TWO, dtype_of

TABLE = json.loads(PATH.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ONE + TWO)
def test_dtypes_beside_torch(name: str) -> None:
    """int64 may be int32 (LIMITATIONS); where torch refuses, nothing is asked."""
    wrong = []
    for wanted, row in TABLE[name].items():
        for text in row.split():
            case = tuple(text.split(","))
            got = dtype_of(an, name, case, lambda v, d: an.tensor(v).cast(d))
            refused = name == "nextafter" and wanted in ("float16", "bfloat16") and got == "error"
            if got != wanted and (got, wanted) != ("int32", "int64") and not refused:
                wrong.append(f"{name}({text}): {got}, torch has {wanted}")
    assert not wrong, "\n".join(wrong)


def test_a_scalar_tensor_counts_as_any_other() -> None:
    """As the array API has it, where torch takes the other's dtype (LIMITATIONS)."""
    assert (an.ones(2, dtype="float16") * an.tensor(1.0)).dtype == an.float32
