"""What programs of torch do around their models gives what torch gives; what is not there says so."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import anneal
from anneal import nn
from anneal.errors import DataError, DeviceError, DTypeError, SettingError, ShapeError, UserError
from anneal.optim import SGD
from anneal.tensor import Tensor, jit
from tests.nn.habits_programs import PROGRAMS, TABLE
from tests.nn.kin_programs import numbers
from tests.nn.test_kin import compare

RESULTS: dict[str, Any] = json.loads(TABLE.read_text())["results"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_torchs_gives(name: str) -> None:
    compare(json.loads(json.dumps(numbers(PROGRAMS[name](anneal)))), RESULTS[name])


@pytest.mark.parametrize("name", ["scaled, two left out", "underscores"])
def test_on_each_device(name: str, device: str) -> None:
    compare(json.loads(json.dumps(numbers(PROGRAMS[name](anneal)))), RESULTS[name])


PATHS = {
    "backends": "cudnn mps cuda mkldnn openmp",
    "backends.cudnn": "is_available flags",
    "backends.cuda": "sdp_kernel matmul",
    "backends.mps": "is_available",
    "cuda": "is_available synchronize amp",
    "cuda.amp": "autocast GradScaler custom_fwd",
    "amp": "autocast GradScaler",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_torchs_leads_there(path: str) -> None:
    for name in PATHS[path].split():
        assert getattr(import_module(f"anneal.{path}"), name)


def gradients_of_float16() -> None:
    w = Tensor([1.0], dtype="float16", requires_grad=True)
    w.grad = Tensor([1.0], dtype="float16")
    anneal.amp.GradScaler("cpu").unscale_(SGD([w], lr=0.1))


def twice(first: str, second: str) -> Callable[[], None]:
    def run() -> None:
        optimiser, scaler = SGD([Tensor([1.0], requires_grad=True)], lr=0.1), anneal.amp.GradScaler("cpu")
        getattr(scaler, first)(optimiser)
        getattr(scaler, second)(optimiser)

    return run


def set_without_inverse() -> None:
    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.ReLU())
    layer.weight = Tensor.ones(2, 2)


def set_while_pruned() -> None:
    nn.utils.prune.l1_unstructured(nn.Linear(2, 2), "weight", 1).weight = Tensor.ones(2, 2)


WRONG: dict[str, tuple[Callable[[], object], type[UserError], str]] = {
    "factors": (lambda: anneal.amp.GradScaler("cpu", growth_factor=1.0), SettingError, "growth_factor is above 1"),
    "halves": (gradients_of_float16, DTypeError, "keep parameters in float32"),
    "unscaled twice": (twice("unscale_", "unscale_"), RuntimeError, "unscale_: was called before"),
    "stepped twice": (twice("step", "step"), RuntimeError, "step: was called before"),
    "nothing stepped": (lambda: anneal.amp.GradScaler("cpu").update(), SettingError, "no step"),
    "no state": (lambda: anneal.amp.GradScaler("cpu").load_state_dict({}), RuntimeError, "the state is empty"),
    "a GPU": (lambda: anneal.zeros(2, device=anneal.device("cuda:0")), DeviceError, "write 'webgpu'"),
    "its name": (lambda: anneal.cuda.get_device_name(0), DeviceError, "there is no CUDA here"),
    "no device": (lambda: anneal.device(None), DeviceError, "device: takes a name"),
    "set without inverse": (set_without_inverse, DataError, r"ReLU defines no right_inverse\(value\)"),
    "set while pruned": (set_while_pruned, DataError, "Linear.weight is computed"),
    "not pruned": (lambda: nn.utils.prune.remove(nn.Linear(2, 2), "weight"), DataError, "'weight' .* is not pruned"),
    "no normed": (lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2)), DataError, "'weight' of Linear has none"),
    "an amount": (lambda: nn.utils.prune.L1Unstructured(1.5), SettingError, "a share from 0 to 1 or a count"),
    "no tensor": (lambda: nn.utils.prune.identity(nn.ReLU(), "weight"), DataError, "ReLU has no tensor 'weight'"),
    "another shape": (
        lambda: nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0)),
        ShapeError,
        "unsafe=True",
    ),
    "text": (lambda: anneal.load(io.StringIO("{}")), DataError, "mode 'rb'"),
    "no file": (lambda: anneal.load(io.BytesIO(b"PK")), DataError, "corrupt or not a safetensors file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", ["polar", "complex", "complex64", "cfloat", "view_as_complex"])
def test_complex_names_say_that_there_are_none(name: str) -> None:
    with pytest.raises(AttributeError, match="no complex"):
        getattr(anneal, name)


def test_files_that_are_open(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as f:
        anneal.save({"a": Tensor([1.0]), "b": (1, None)}, f)
    with (tmp_path / "a").open("rb") as f:
        assert anneal.load(f)["b"] == (1, None)
    assert anneal.load(tmp_path / "a")["a"].tolist() == [1.0]


def test_a_buffer_with_an_underscore_under_jit_and_functional_call() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("_n", Tensor.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self._n += 1
            return x * self._n

    net = Counts()
    run = jit(lambda x: net(x))
    assert [run(Tensor([2.0])).tolist() for _ in range(4)] == [[2.0], [4.0], [6.0], [8.0]]
    assert net.state_dict()["_n"].tolist() == [4.0]
    assert anneal.func.functional_call(net, {"_n": Tensor([9.0])}, Tensor([1.0])).tolist() == [10.0]
