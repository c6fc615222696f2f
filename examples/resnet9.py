"""ResNet-9 learns CIFAR-10.

    anneal train resnet9 --save resnet9.safetensors            python examples/resnet9.py
    anneal run resnet9 --weights resnet9.safetensors

Nine layers (David Page, 2018): convolutions with batch norm, pools that halve the image while the channels double, and
two residual blocks, whose two convolutions add to what enters. Trained with momentum, a learning rate that rises and
falls, and pictures that are shifted and flipped. Where CIFAR-10 is not available the run says so and learns shapes that
are made here.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from anneal import nn
from anneal.errors import DataError
from anneal.tensor import Tensor, functional as F, io, jit, manual_seed, no_grad
from anneal.training import CIFAR10, Training, decayed, grid, images, main, told

DOWNLOADS = CIFAR10  # if the user wants that
STEPS, BATCH, LR = 800, 256, 0.4
WIDTH = 64  # channels of the first layer
POOL, UNSEEN = 10_000, 1_024  # shapes, where they stand in for CIFAR-10
EVALUATED = 2_048  # test pictures for the accuracy
SMOOTHING = 0.1
MEAN, DEVIATION = np.array([[0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]], np.float32)[..., None, None]


def convolution(channels: int, out: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution, batch norm, relu; then, with `pool`, the largest of each 2x2 square."""
    layers = [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class ResNet9(nn.Module):
    """Images (batch, 3, 32, 32), normalised, to logits of ten classes."""

    def __init__(self, width: int | None = None) -> None:
        w = width or WIDTH
        self.prep = convolution(3, w)
        self.layer1 = convolution(w, 2 * w, pool=True)
        self.residual1 = nn.Sequential(convolution(2 * w, 2 * w), convolution(2 * w, 2 * w))
        self.layer2 = convolution(2 * w, 4 * w, pool=True)
        self.layer3 = convolution(4 * w, 8 * w, pool=True)
        self.residual3 = nn.Sequential(convolution(8 * w, 8 * w), convolution(8 * w, 8 * w))
        self.classify = nn.Linear(8 * w, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer1(self.prep(x))
        x = x + self.residual1(x)
        x = self.layer3(self.layer2(x))
        x = x + self.residual3(x)
        return self.classify(x.amax((2, 3))) * 0.125


def shifted(rng: np.random.Generator, pictures: np.ndarray) -> np.ndarray:
    """Each picture moved by up to four pixels, mirrored at its edges; half of them flipped."""
    n, _, h, w = pictures.shape
    wide = np.pad(pictures, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    rows = rng.integers(0, 9, (n, 1)) + np.arange(h)
    columns = rng.integers(0, 9, (n, 1)) + np.arange(w)
    flip = rng.random(n) < 0.5
    columns[flip] = columns[flip, ::-1]
    return wide[np.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].transpose(0, 3, 1, 2)


def normal(pictures: np.ndarray) -> Tensor:
    return Tensor((pictures - MEAN) / DEVIATION)


class Classifier(Training):
    """The network in training."""

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.images = images(seed, train=POOL, test=UNSEEN)
        self.data = self.images.about
        manual_seed(seed)
        model = ResNet9()
        self.info = f"eight 3x3 convolutions, {WIDTH} to {8 * WIDTH} channels, batch norm, two residual blocks"
        optimizer = nn.SGD(decayed(model.parameters(), 5e-4), lr=lr, momentum=0.9, nesterov=True)
        schedule = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 5), steps=steps, floor=0.0)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=schedule)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = self.rng.integers(0, len(self.images.train), self.batch)
        return normal(shifted(self.rng, self.images.train[rows])), Tensor(self.images.train_labels[rows])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y, ignore_index=None, label_smoothing=SMOOTHING)

    def sample(self) -> str:
        """Accuracy on test pictures, and sixteen of them with what the network says, mistakes first."""
        self.model.eval()
        said = classify(self.model, self.images.test[:EVALUATED])
        answers = self.images.test_labels[:EVALUATED]
        shown = np.argsort(said == answers, kind="stable")[:16]
        self.picture = grid(self.images.test[shown])
        return report(said, answers, shown, self.images.classes)


@no_grad()
def classify(model: nn.Module, pictures: np.ndarray, batch: int = 256) -> np.ndarray:
    """The class of each picture, batch by batch; the last one is filled up, so that one program serves all."""
    read = jit(lambda x: model(x).argmax(-1))
    out = []
    begins = range(0, len(pictures), batch)
    for begin in told(begins, "looking at pictures", len(begins)):
        part = pictures[begin : begin + batch]
        filled = np.concatenate([part, np.zeros((batch - len(part), *part.shape[1:]), np.float32)])
        out.append(read(normal(filled)).numpy()[: len(part)])
    return np.concatenate(out)


def report(said: np.ndarray, answers: np.ndarray, shown: np.ndarray, classes: tuple[str, ...]) -> str:
    names = [classes[s] if s == a else f"{classes[s]} (a {classes[a]})" for s, a in zip(said[shown], answers[shown])]
    return f"accuracy on {len(said):,} test pictures: {(said == answers).mean():.1%}\n" + ", ".join(names)


def trained(weights: Path) -> ResNet9:
    """The network of a file that `anneal train resnet9 --save` wrote. DataError says what another file has
    and lacks.
    """
    file = io.safe_open(weights)
    first = file.entries["prep.0.weight"].shape if "prep.0.weight" in file else ()
    with nn.init.skipped():
        model = ResNet9(first[0] if len(first) == 4 and first[0] else WIDTH)
    wanted = {name: t.shape for name, t in model.state_dict().items()}
    faults = {
        "lacks": [name for name in wanted if name not in file],
        "has besides": [name for name in file if name not in wanted],
        "has in another shape": [
            f"{name} {file.entries[name].shape}, not {shape}"
            for name, shape in wanted.items()
            if name in file and file.entries[name].shape != shape
        ],
    }
    said = [f"{what} {len(names)} tensors ({', '.join(map(ascii, names[:5]))}{', ...' * (len(names) > 5)})"
            for what, names in faults.items() if names]  # fmt: skip
    if said:
        raise DataError(
            f"{weights} is no ResNet-9 as `anneal train resnet9 --save FILE` writes it: it {'; it '.join(said)}"
        )
    model.load_state_dict(file)
    return model


def run(weights: Path | None, count: int, seed: int) -> tuple[str, np.ndarray]:
    """What `anneal run resnet9` shows: a text and a picture. Without weights the network is as it starts."""
    manual_seed(seed)
    model = (ResNet9() if weights is None else trained(weights)).eval()
    found = images(seed, train=16, test=count)
    pictures, answers = found.test[:count], found.test_labels[:count]
    begun = time.perf_counter()
    said = classify(model, pictures, min(256, count))
    rate = len(said) / (time.perf_counter() - begun)
    untrained = "none: a network that has learnt nothing; `anneal train resnet9 --save FILE` makes some"
    lines = [
        f"data    {found.about}",
        f"weights {weights or untrained}",
        report(said, answers, np.arange(min(16, len(said))), found.classes),
        f"{rate:,.0f} pictures/s, with compiling",
    ]
    return "\n".join(lines), grid(pictures[:16])


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Classifier:
    return Classifier(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
