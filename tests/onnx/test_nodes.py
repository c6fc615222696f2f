"""The node cases of the onnx package, each against its own data."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from tests.onnx import corpus

PASSING = (
    "test_identity",
    "test_identity_opt",
    "test_identity_sequence",
    "test_if",
    "test_if_opt",
    "test_if_seq",
    "test_optional_get_element_sequence",
    "test_optional_has_element_empty_optional_input",
    "test_sequence_insert_at_back",
    "test_sequence_map_identity_1_sequence_1_tensor_expanded",
    "test_split_to_sequence_1",
)


@pytest.mark.parametrize("name", PASSING)
def test_a_node_case_gives_the_values_of_the_standard(name: str) -> None:
    corpus.run(corpus.node_cases()[name], times=4)  # traced, captured, replayed twice
