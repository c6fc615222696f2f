"""Attributes whose values the standard's schemas do not bound: words, numbers for words, counts, axes, places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("onnx")

from onnx import ModelProto, defs

import anneal.onnx
from anneal.onnx import OnnxError
from anneal.onnx.graph import allowed_values
from anneal.onnx.registry import table
from tests.onnx import corpus

WHOLE, TEXT, LIST = 2, 3, 7  # AttributeProto.AttributeType
# Texts of any kind; `to` is a word in version 1 alone, and a fused activation may be written in any case.
FREE = "activation default_string delimiter equation locale pattern quant_type to value_string y".split()  # noqa: SIM905
VALUES = (7, -1, -1000)
BLOCKS = 8


def texts() -> Iterator[str]:
    """The attributes of texts that operators read, as "Operator.attribute"."""
    kinds: dict[tuple[str, str], set[str]] = {}
    for schema in defs.get_all_schemas_with_history():
        names = {name for name, a in schema.attributes.items() if int(a.type.value) == TEXT}
        kinds.setdefault((schema.domain, schema.name), set()).update(names)
    for (domain, name), versions in table().items():
        for of in versions:
            own = {key for key, value in of.attributes.items() if isinstance(value, str)}
            yield from [f"{name}.{key}" for key in of.attributes if key in kinds.get((domain, name), own)]


def test_every_text_that_is_one_of_a_few_words_is_checked() -> None:
    assert [at for at in texts() if at.partition(".")[2] not in FREE and not allowed_values(*at.split("."))] == []


def changed() -> Iterator[tuple[str, Any, bytes]]:
    """Cases of one node of which an attribute has another value, each once: the attribute, the case and the model."""
    seen = set()
    for case in corpus.node_cases().values():
        model = ModelProto.FromString(case.model)
        node, *more = model.graph.node
        for a in () if more or "expanded" in case.name else node.attribute:
            if a.type not in (WHOLE, TEXT, LIST) or (at := f"{node.op_type}.{a.name}") in seen:
                continue
            seen.add(at)
            for value in VALUES if a.type != TEXT else ("nonsense",):
                before = a.SerializeToString()
                if a.type == WHOLE:
                    a.i = value
                elif a.type == TEXT:
                    a.s = value.encode()
                elif a.ints:
                    a.ints[-1] = value
                for o in model.graph.output:  # what it gives may be of another shape
                    o.type.tensor_type.ClearField("shape")
                yield f"{at}={value}", case, model.SerializeToString()
                a.ParseFromString(before)


def failures(block: int) -> Iterator[str]:
    for at, case, data in list(changed())[block::BLOCKS]:
        name = re.split("[.=]", at)[1]
        try:
            model = anneal.onnx.load(data)
            model.run(dict(zip([v.name for v in model.inputs], case.data[0][0], strict=False)))
        except OnnxError as e:
            # not what Python says of a number that does not fit
            if re.search(r"of main graph: \w+Error: ", str(e)):
                yield f"{at}: {e}"
            elif "nonsense" in at and name not in FREE and f"{name} is" not in str(e):
                yield f"{at} is refused without its name: {e}"
        except Exception as e:
            yield f"{at}: {e!r}"
        else:
            if "nonsense" in at and name not in FREE:
                yield f"{at} is taken"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_value_that_no_operator_has_is_an_error_that_says_so(block: int) -> None:
    assert [*failures(block)] == []


def test_heads_that_the_standard_has_no_body_for_are_told() -> None:
    case = next(c for at, c, _ in changed() if at.startswith("LinearAttention.q_num_heads"))
    model = ModelProto.FromString(case.model)
    next(a for a in model.graph.node[0].attribute if a.name == "q_num_heads").i = 7
    loaded = anneal.onnx.load(model.SerializeToString())
    with pytest.raises(OnnxError, match="LinearAttention .* no body of it for these inputs: .*'q_num_heads': 7"):
        loaded.run(dict(zip([v.name for v in loaded.inputs], case.data[0][0], strict=False)))
