"""Small torch modules as torch.onnx.export writes them, beside torch itself at two shapes each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import anneal.onnx
from benchmarks.onnx_exports import exported


class Convolutions(torch.nn.Module):  # type: ignore[misc, name-defined]
    """What a small image network is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.depth = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.hardswish(self.norm(self.first(x)))
        y = torch.nn.functional.interpolate(y + self.depth(y), scale_factor=2, mode="bilinear")
        return self.last(torch.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Words, a recurrent layer both ways, and the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(20, 6)
        self.layer = torch.nn.LSTM(6, 7, 2, batch_first=True, bidirectional=True)

    def forward(self, ids: Any) -> Any:
        y, (h, _) = self.layer(self.words(ids))
        return torch.cat([y.amax(1), h[-1]], 1)


class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A layer of attention with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu", norm_first=True)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.layer(x, src_key_padding_mask=mask)


class Assigned(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Slices that are assigned: a chain of ScatterND."""

    def forward(self, x: Any) -> Any:
        y = torch.zeros_like(x)
        for i, part in enumerate((slice(0, 2), slice(2, -2), slice(-2, None))):
            y[:, part] = x[:, part] * (i + 1)
        y[:, :, 0] += 5
        return torch.roll(y, (1, -1), (1, 2))


def images(n: int) -> dict[str, Any]:
    return {"x": np.random.RandomState(n).randn(1 + n, 3, 16, 12 + 4 * n).astype(np.float32)}


def words(n: int) -> dict[str, Any]:
    return {"ids": np.random.RandomState(n).randint(0, 20, (2 + n, 5))}


def rows(n: int) -> dict[str, Any]:
    mask = np.zeros((1 + n, 6), bool)  # torch's exporter writes the length into the file
    mask[-1, 4:] = True
    return {"x": np.random.RandomState(n).randn(1 + n, 6, 16).astype(np.float32), "mask": mask}


def squares(n: int) -> dict[str, Any]:
    return {"x": np.random.RandomState(n).randn(1 + n, 7 + n, 6).astype(np.float32)}


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(Convolutions, images), (Recurrent, words), (Attention, rows), (Assigned, squares)],
)
@pytest.mark.parametrize("dynamo", [False, True])
def test_an_exported_module_gives_torchs_values(
    module: type[Any], inputs: Callable[[int], dict[str, Any]], dynamo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    # A fused layer, which the exporters do not know.
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    made = module().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data, sets = exported(made, [inputs(0), inputs(1)], dynamo)
    model = anneal.onnx.load(data, device="cpu")
    for feeds in sets:
        with torch.no_grad():
            wanted = made(*[torch.from_numpy(x) for x in feeds.values()]).numpy()
        for _ in range(3):  # traced, captured, replayed
            (found,) = model.run(feeds).values()
            np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-5)
    assert model.host_steps == ()
