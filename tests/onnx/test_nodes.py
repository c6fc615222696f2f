"""The cases of the onnx package, each against its own data: nodes in blocks, so that names need not be known before."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

pytest.importorskip("onnx")

import numpy as np

import anneal.onnx
from tests.onnx import corpus
from tests.tiers import thinned

BLOCKS = 64

# Random numbers: the data are of one generator, which nobody else has.
RANDOM = (
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
)


def expected_to_fail(name: str) -> bool:
    """The cases that LIMITATIONS names, with their reasons."""
    return name in RANDOM or (name.startswith("test_image_decoder") and not importlib.util.find_spec("PIL"))


def failures(block: int, device: str, *, atol: float | None = None, on_device: bool = False) -> Iterator[str]:
    """The cases of a block that fail although they are not known to, or do not although they are."""
    cases = corpus.node_cases()
    for name in list(cases)[block::BLOCKS]:
        try:
            corpus.run(cases[name], device, atol, times=3, on_device=on_device)  # traced, captured, replayed
        except Exception as e:
            if not expected_to_fail(name):
                yield f"{name}: {type(e).__name__}: {e}"
        else:
            if expected_to_fail(name) and name not in RANDOM:  # those may be equal by chance
                yield f"{name}: passes, although it is listed"


def test_there_are_the_cases_that_the_figures_speak_of() -> None:
    import onnx

    if onnx.__version__.startswith("1.23."):
        cases = corpus.node_cases()
        assert len(cases) == 1884
        assert sum(not corpus.needs(c) for c in cases.values()) == 1584


@pytest.mark.parametrize("block", thinned(range(BLOCKS), test=32, ci=4))
def test_nodes_on_the_cpu(block: int) -> None:
    assert list(failures(block, "cpu")) == []


@pytest.mark.parametrize("block", thinned(range(BLOCKS), test=32, ci=8))
def test_nodes_whose_inputs_are_on_the_device(block: int) -> None:
    assert list(failures(block, "cpu", on_device=True)) == []


# 107 of the references are below 9e-4, where an absolute tolerance of 1e-7 asks for more than float32 functions of a
# GPU give.
@pytest.mark.parametrize("block", thinned(range(BLOCKS), test=64, ci=32))
def test_nodes_on_webgpu(block: int, webgpu: str) -> None:
    assert list(failures(block, webgpu, atol=1e-5, on_device=True)) == []


@pytest.mark.parametrize("kind", ["simple", "pytorch-operator", "pytorch-converted"])
def test_the_cases_of_small_models(kind: str) -> None:
    cases = corpus.file_cases(kind)
    assert len(cases) == {"simple": 23, "pytorch-operator": 35, "pytorch-converted": 82}[kind]
    faults = []
    for name, case in cases.items():
        try:
            corpus.run(case, times=3)
        except Exception as e:
            faults.append(f"{name}: {type(e).__name__}: {e}")
    assert faults == []


LIGHT = (
    "squeezenet",
    "shufflenet",
    "inception_v1",
    "resnet50",
    "densenet121",
    "inception_v2",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", thinned(LIGHT, test=9, ci=9))
def test_each_node_of_a_real_model_has_the_value_that_onnxruntime_gives(name: str) -> None:
    pytest.importorskip("onnxruntime")
    assert set(corpus.light_models()) == set(LIGHT)
    data = corpus.with_weights(corpus.light_models()[name])
    (info,) = anneal.onnx.load(data, structure_only=True).inputs
    x = np.random.default_rng(1).standard_normal(info.shape).astype(np.float32)
    found = anneal.onnx.check(data, {info.name: x}, tolerance=1e-4)
    assert found.first is None
    assert found.reference == "onnxruntime"
    assert found.values > 20
