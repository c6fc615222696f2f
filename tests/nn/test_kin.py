"""What stands beside layers and optimisers: packed sequences, averages, containers, data, import paths, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import anneal
from anneal import nn, optim
from anneal.errors import DTypeError, GradientError, SettingError, ShapeError, UserError
from anneal.nn.utils import rnn
from anneal.tensor import Tensor, jit
from tests.nn.kin_programs import PROGRAMS, TABLE, numbers

RESULTS: dict[str, Any] = json.loads(TABLE.read_text())["results"]


def compare(mine: Any, torchs: Any) -> None:
    if isinstance(torchs, list) and torchs and not all(isinstance(x, (int, float)) for x in torchs):
        assert len(mine) == len(torchs)
        for a, b in zip(mine, torchs, strict=True):
            compare(a, b)
    elif isinstance(torchs, (int, float, list)):
        np.testing.assert_allclose(mine, torchs, rtol=2e-5, atol=2e-6)
    else:
        assert mine == torchs


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_torchs_gives(name: str) -> None:
    compare(numbers(PROGRAMS[name](anneal)), RESULTS[name])


@pytest.mark.parametrize("name", ["GRU 2 2 [2, 4, 1] True", "moving mean, one by one", "statistics"])
def test_on_each_device(name: str, device: str) -> None:
    compare(numbers(PROGRAMS[name](anneal)), RESULTS[name])


@pytest.mark.usefixtures("same_kernels")
def test_packed_sequences_under_jit() -> None:
    layer, x = nn.LSTM(2, 3), Tensor.ones(4, 2, 2)

    @jit
    def run(x: Tensor) -> Tensor:
        out, _ = layer(rnn.pack_padded_sequence(x, [4, 2]))
        return rnn.pad_packed_sequence(out)[0]

    results = [run(x * n).tolist() for n in (1, 2, 3, 1)]
    assert results[0] == results[3] != results[1]


PATHS = {
    "nn.utils.rnn": "pad_sequence PackedSequence pack_padded_sequence pad_packed_sequence pack_sequence unpad_sequence",
    "nn.parameter": "Parameter Buffer",
    "nn.modules": "Linear Conv2d Module",
    "nn.modules.module": "Module",
    "nn.modules.linear": "Linear",
    "nn.modules.batchnorm": "BatchNorm2d",
    "nn.modules.loss": "CrossEntropyLoss",
    "nn.modules.utils": "_pair _single _triple _ntuple",
    "optim.swa_utils": "AveragedModel SWALR update_bn get_ema_multi_avg_fn",
    "optim.lr_scheduler": "OneCycleLR LambdaLR LRScheduler",
    "utils.data": "Sampler WeightedRandomSampler SubsetRandomSampler ChainDataset get_worker_info",
    "utils.data.dataset": "Dataset TensorDataset random_split Subset",
    "utils.data.dataloader": "DataLoader default_collate",
    "utils.data.sampler": "Sampler RandomSampler BatchSampler",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_torchs_leads_there(path: str) -> None:
    for name in PATHS[path].split():
        assert getattr(import_module(f"anneal.{path}"), name).__name__ in (name, "<lambda>")


LAYERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("Linear", "Embedding", "EmbeddingBag", "RNN", "GRU", "LSTM", "GRUCell", "LSTMCell"), (4, 3)),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Bilinear"), (2, 4, 3)),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "LayerNorm", "RMSNorm", "SyncBatchNorm"), (4,)),
    "RNNCell": (4, 3, False),
    "InstanceNorm1d": (4, 1e-5, 0.1, True, True),
    "GroupNorm": (2, 4),
    "PReLU": (3,),
    "AdaptiveLogSoftmaxWithLoss": (8, 20, [5, 10]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_are_drawn_anew(name: str) -> None:
    layer = getattr(nn, name)(*LAYERS[name])
    with anneal.no_grad():
        for p in layer.parameters():
            p.fill_(7.0)
    before = [id(p) for p in layer.parameters()]
    layer.reset_parameters()
    assert [id(p) for p in layer.parameters()] == before
    assert all((np.abs(p.numpy()) < 6).all() for p in layer.parameters())


WRONG: dict[str, tuple[Callable[[], object], type[UserError], str]] = {
    "a model": (lambda: optim.SGD(nn.Linear(1, 1), 0.1), SettingError, r"SGD: .*write model.parameters\(\)"),  # type: ignore[arg-type]
    "None": (lambda: optim.Adam(None), SettingError, "Adam: params is a list of tensors"),  # type: ignore[arg-type]
    "none": (lambda: optim.Adam([]), SettingError, "no parameters given$"),
    "used up": (lambda: optim.Adam(iter([])), SettingError, "an iterator gives its items once"),
    "numbers": (lambda: optim.SGD([1.0], 0.1), GradientError, "not 1.0"),  # type: ignore[list-item]
    "a group of none": (lambda: optim.SGD([{"lr": 1.0}]), SettingError, 'a dict with "params"'),
    "a name": (lambda: nn.ModuleList([nn.ReLU()])["a"], DTypeError, "a place is an integer, not 'a'"),  # type: ignore[call-overload]
    "a number": (lambda: nn.ModuleList([3]), DTypeError, "ModuleList: holds modules, not 3"),  # type: ignore[list-item]
    "a number by name": (lambda: nn.ModuleDict({"a": 3}), DTypeError, "ModuleDict: holds modules, not 3"),  # type: ignore[dict-item]
    "unsorted": (
        lambda: rnn.pack_padded_sequence(Tensor.ones(3, 2), [1, 3]),
        ShapeError,
        r"decreasing order, not \[1, 3\]; or write enforce_sorted=False",
    ),
    "empty": (lambda: rnn.pack_padded_sequence(Tensor.ones(3, 2), [3, 0]), ShapeError, "each length is 1 or more"),
    "too long": (lambda: rnn.pack_padded_sequence(Tensor.ones(3, 2), [4, 1]), ShapeError, "at most 3 steps"),
    "widths": (
        lambda: rnn.pad_sequence([Tensor.ones(2, 3), Tensor.ones(2)]),
        ShapeError,
        "agree behind the first axis",
    ),
    "short": (
        lambda: rnn.pad_packed_sequence(rnn.pack_sequence([Tensor.ones(3)]), total_length=2),
        ShapeError,
        "total_length is at least 3",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
