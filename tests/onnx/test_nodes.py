"""The node cases of the onnx package, each against its own data."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from tests.onnx import corpus

PASSING = ("test_identity", "test_add", "test_mul_bcast", "test_shape", "test_reshape_zero_dim")


@pytest.mark.parametrize("name", PASSING)
def test_a_node_case_gives_the_values_of_the_standard(name: str) -> None:
    corpus.run(corpus.node_cases()[name])
