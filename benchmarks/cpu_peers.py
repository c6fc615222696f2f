"""The networks that `benchmarks.cpu_steps` runs as ONNX files, written by torch; two of them quantised by ONNX Runtime.

    python -m benchmarks.cpu_peers FOLDER      with a Python that has torch, torchvision and onnx

`quantised` wants onnxruntime, which the Python of anneal's tests has.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_exports import exported

CLASSIFIERS = {"mobilenet_v3": "mobilenet_v3_large", "efficientnet_b0": "efficientnet_b0", "resnet18": "resnet18"}


def unet() -> Any:
    """Three halvings to 128 channels, and back by transposed convolutions: 64 pictures' side by 2, with skips."""
    import torch
    from torch import nn

    def two(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64, 128)
            self.down = nn.ModuleList([two(i, o) for i, o in zip((3, *widths), widths)])
            pairs = list(zip(widths[::-1], widths[-2::-1]))
            self.up = nn.ModuleList([nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs])
            self.join = nn.ModuleList([two(2 * o, o) for _, o in pairs])
            self.last = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for n, block in enumerate(self.down):
                x = block(x if n == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            kept.pop()
            for up, join in zip(self.up, self.join):
                x = join(torch.cat([up(x), kept.pop()], 1))
            return self.last(x)

    return UNet()


def write(folder: Path) -> None:
    """Every network that torch exports, with random weights, for one picture (or 32 steps of one sequence)."""
    import torch
    from torchvision import models

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    random = np.random.default_rng(0)

    class Last(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(128, 256, 2)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    made: dict[str, tuple[Any, tuple[int, ...]]] = {
        name: (models.get_model(of, weights=None), (1, 3, 224, 224)) for name, of in CLASSIFIERS.items()
    }
    made |= {"unet": (unet(), (1, 3, 128, 128)), "lstm": (Last(), (32, 1, 128))}
    for name, (model, shape) in made.items():
        x = {"x": random.standard_normal(shape).astype(np.float32)}
        (folder / f"{name}.onnx").write_bytes(exported(model, [x, x], dynamo=False)[0])


def quantised(folder: Path) -> None:
    """resnet18 with QuantizeLinear and DequantizeLinear around each operator, and the LSTM with int8 weights."""
    from onnxruntime import quantization

    class Pictures(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            random = np.random.default_rng(0)
            self.left = [{"x": random.standard_normal((1, 3, 224, 224)).astype(np.float32)} for _ in range(2)]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    quantization.quantize_static(folder / "resnet18.onnx", folder / "qdq_resnet18.onnx", Pictures())
    quantization.quantize_dynamic(folder / "lstm.onnx", folder / "int8_lstm.onnx")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
