"""Convolutions over one and three axes, transposed ones, pools and resizing: against torch, values and gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import ShapeError
from anneal.tensor import Tensor, functional as F
from tests.helpers import check_values, optional
from tests.nn.beside_torch import check, normal

torch = optional("torch")
TF = torch.nn.functional
rng = np.random.default_rng(3)

Shape = tuple[int, ...]
CONVOLUTIONS: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    ((2, 4, 8), (6, 2, 2), {"groups": 2, "stride": 2}),
    ((4, 7), (2, 4, 3), {"padding": "same"}),
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {}),
    ((1, 4, 4, 5, 6), (2, 2, 2, 2, 3), {"stride": (2, 1, 3), "padding": (1, 0, 2), "groups": 2}),
    ((1, 2, 5, 4, 4), (2, 2, 2, 2, 2), {"dilation": (2, 1, 3)}),
    ((2, 4, 4, 4), (3, 2, 2, 2, 2), {"stride": 2}),
]


@pytest.mark.parametrize(("x", "w", "options"), CONVOLUTIONS, ids=str)
def test_convolutions_of_any_axes(x: Shape, w: Shape, options: dict[str, Any]) -> None:
    name = f"conv{len(w) - 2}d"
    check(
        lambda a, b, c: getattr(F, name)(a, b, c, **options),
        lambda a, b, c: getattr(TF, name)(a, b, c, **options),
        *(normal(*x), normal(*w), normal(w[0])),
    )


TRANSPOSED: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 3), {}),
    ((2, 3, 5), (3, 4, 3), {"stride": 3, "padding": 1, "output_padding": 2}),
    ((2, 4, 5), (4, 2, 2), {"stride": 3, "groups": 2}),
    ((1, 2, 4), (2, 1, 4), {"stride": 2, "padding": 4}),
    ((2, 3, 4, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 3, 4, 5), (3, 2, 2, 2), {"stride": 2}),
    ((1, 4, 3, 3), (4, 3, 3, 2), {"stride": (1, 2), "dilation": (2, 3), "groups": 2, "output_padding": (1, 2)}),
    ((3, 3, 4), (3, 2, 3, 3), {"padding": (2, 0)}),
    ((1, 2, 2, 3, 2), (2, 2, 2, 3, 2), {"stride": (2, 1, 2), "padding": (0, 1, 0)}),
]


@pytest.mark.parametrize(("x", "w", "options"), TRANSPOSED, ids=str)
def test_transposed_convolutions(x: Shape, w: Shape, options: dict[str, Any]) -> None:
    name = f"conv_transpose{len(w) - 2}d"
    check(
        lambda a, b, c: getattr(F, name)(a, b, c, **options),
        lambda a, b, c: getattr(TF, name)(a, b, c, **options),
        *(normal(*x), normal(*w), normal(w[1] * options.get("groups", 1))),
    )


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "ceil_mode": True}],
    ids=str,
)
def test_pools_of_other_axes(axes: int, options: dict[str, Any]) -> None:
    x = normal(2, 2, *(5, 7, 4)[:axes])
    for kind in ("max", "avg"):
        ours, theirs = getattr(F, f"{kind}_pool{axes}d"), getattr(TF, f"{kind}_pool{axes}d")
        check(functools.partial(ours, **options), functools.partial(theirs, **options), x)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pools(axes: int, kind: str) -> None:
    x = normal(2, 2, *(7, 6, 5)[-axes:])
    name = f"adaptive_{kind}_pool{axes}d"
    for size in (1, 3, (2, 4, 5)[-axes:]):
        check(
            functools.partial(getattr(F, name), output_size=size),
            functools.partial(getattr(TF, name), output_size=size),
            x,
        )
    check(lambda a: getattr(F, name)(a, 2), lambda a: getattr(TF, name)(a, 2), x[0])


def test_an_axis_that_a_pool_keeps() -> None:
    x = normal(1, 2, 6, 5)
    check(lambda a: F.adaptive_avg_pool2d(a, (None, 2)), lambda a: TF.adaptive_avg_pool2d(a, (None, 2)), x)


@pytest.mark.parametrize("options", [{}, {"dilation": 2, "padding": 1}, {"stride": (2, 1), "padding": (0, 2)}], ids=str)
def test_windows_as_columns(options: dict[str, Any]) -> None:
    check(lambda a: F.unfold(a, (2, 3), **options), lambda a: TF.unfold(a, (2, 3), **options), normal(2, 3, 5, 6))
    check(lambda a: F.unfold(a, 2, **options), lambda a: TF.unfold(a, 2, **options), normal(3, 5, 6))


RESIZED: list[tuple[Shape, dict[str, Any]]] = [
    ((2, 3, 5), {"size": 10}),
    ((2, 3, 5), {"size": 7}),
    ((2, 3, 5), {"size": 3, "mode": "nearest-exact"}),
    ((1, 2, 4, 6), {"scale_factor": 2}),
    ((1, 2, 4, 6), {"scale_factor": (1.5, 0.5)}),
    ((1, 2, 3, 4, 2), {"size": (5, 2, 4)}),
    ((1, 2, 7, 6), {"size": (3, 4), "mode": "area"}),
    ((1, 2, 6), {"size": 9, "mode": "area"}),
    ((2, 3, 5), {"size": 8, "mode": "linear"}),
    ((2, 3, 5), {"size": 3, "mode": "linear", "align_corners": True}),
    ((1, 2, 4, 5), {"size": (7, 3), "mode": "bilinear"}),
    ((1, 2, 4, 5), {"size": (7, 9), "mode": "bilinear", "align_corners": True}),
    ((1, 2, 4, 5), {"scale_factor": 2, "mode": "bilinear"}),
    ((1, 2, 4, 5), {"scale_factor": (1.5, 2.5), "mode": "bilinear"}),
    ((1, 2, 4, 5), {"size": (1, 4), "mode": "bilinear", "align_corners": True}),
    ((1, 1, 4, 5), {"size": (7, 8), "mode": "bicubic"}),
    ((1, 1, 4, 5), {"size": (6, 3), "mode": "bicubic", "align_corners": True}),
    ((1, 2, 2, 3, 4), {"size": (3, 5, 6), "mode": "trilinear"}),
]


@pytest.mark.parametrize(("x", "options"), RESIZED, ids=str)
def test_interpolate(x: Shape, options: dict[str, Any]) -> None:
    check(lambda a: F.interpolate(a, **options), lambda a: TF.interpolate(a, **options), normal(*x))


@pytest.mark.usefixtures("device")
def test_on_each_device() -> None:
    x, w = rng.standard_normal((1, 2, 4, 5)).astype(np.float32), rng.standard_normal((2, 3, 3, 3)).astype(np.float32)
    a, b = torch.tensor(x).double(), torch.tensor(w).double()
    options: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1}
    check_values(F.conv_transpose2d(Tensor(x), Tensor(w), **options), TF.conv_transpose2d(a, b, **options), rtol=1e-4)
    check_values(F.adaptive_avg_pool2d(Tensor(x), 3), TF.adaptive_avg_pool2d(a, 3), rtol=1e-4, atol=1e-6)
    check_values(F.adaptive_max_pool2d(Tensor(x), (3, 2)), TF.adaptive_max_pool2d(a, (3, 2)))
    check_values(F.unfold(Tensor(x), 2, padding=1), TF.unfold(a, 2, padding=1))
    for resize in ({"size": (7, 9), "mode": "bilinear"}, {"scale_factor": 2}, {"size": (3, 8), "mode": "bicubic"}):
        check_values(F.interpolate(Tensor(x), **resize), TF.interpolate(a, **resize), rtol=1e-4, atol=1e-5)
    y, v = (
        rng.standard_normal((1, 2, 3, 4, 4)).astype(np.float32),
        rng.standard_normal((2, 2, 2, 3, 2)).astype(np.float32),
    )
    want = TF.conv3d(torch.tensor(y).double(), torch.tensor(v).double(), stride=(1, 1, 2))
    check_values(F.conv3d(Tensor(y), Tensor(v), stride=(1, 1, 2)), want, rtol=1e-4, atol=1e-5)


def test_pixels_and_channels() -> None:
    x = normal(2, 8, 3, 2)
    check(lambda a: F.pixel_shuffle(a, 2), lambda a: TF.pixel_shuffle(a, 2), x)
    check(
        lambda a: F.pixel_unshuffle(a.reshape(2, 2, 6, 4), 2), lambda a: TF.pixel_unshuffle(a.reshape(2, 2, 6, 4), 2), x
    )


MISTAKES: dict[str, tuple[Any, str]] = {
    "conv3d": (
        lambda: F.conv3d(Tensor.zeros(1, 1, 2, 2), Tensor.zeros(1, 1, 1)),
        r"weight \(out, in/groups, kd, kh, kw\)",
    ),
    "stride": (lambda: F.conv1d(Tensor.zeros(1, 1, 4), Tensor.zeros(1, 1, 2), stride=(1, 2)), "stride is an int of"),
    "kernel": (lambda: F.conv1d(Tensor.zeros(1, 1, 4), Tensor.zeros(1, 1, 5)), "conv1d: a kernel of"),
    "channels": (
        lambda: F.conv_transpose1d(Tensor.zeros(1, 3, 4), Tensor.zeros(2, 1, 2)),
        r"has 3 channels, so the weight must have shape \(3, out/groups, k\)",
    ),
    "output padding": (
        lambda: F.conv_transpose1d(Tensor.zeros(1, 1, 4), Tensor.zeros(1, 1, 2), output_padding=1),
        "output_padding .* must be less than",
    ),
    "nothing left": (
        lambda: F.conv_transpose1d(Tensor.zeros(1, 1, 2), Tensor.zeros(1, 1, 2), padding=3),
        "leaves nothing",
    ),
    "mode": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), 4, mode="cubic"), "mode is one of nearest"),
    "axes": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), 4, mode="bilinear"), "'bilinear' resizes 2 axes"),
    "both": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), 4, 2), "size or scale_factor"),
    "sizes": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), (4, 4)), "one positive number or 1"),
    "empty": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), scale_factor=0.25), "from 2 to 0 elements"),
    "corners": (lambda: F.interpolate(Tensor.zeros(1, 1, 2), 4, align_corners=True), "align_corners has no meaning"),
    "adaptive": (lambda: F.adaptive_avg_pool2d(Tensor.zeros(1, 4, 4), (2, 0)), "output_size is a positive int or 2"),
    "unfold": (lambda: F.unfold(Tensor.zeros(4, 4), 2), "unfold: x is"),
    "shuffle": (lambda: F.pixel_shuffle(Tensor.zeros(3, 2, 2), 2), "pixel_shuffle: x is"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose", "InstanceNorm"])
def test_lazy_layers_take_an_example_without_a_batch(name: str, axes: int) -> None:
    settings = {"affine": True} if name == "InstanceNorm" else {"out_channels": 4, "kernel_size": 2, "groups": 2}
    lazy = getattr(nn, f"Lazy{name}{axes}d")(**settings)
    made = getattr(nn, f"{name}{axes}d")(6, **settings)
    x = Tensor.rand(6, *(5, 4, 3)[:axes])
    assert lazy(x).shape == made(x).shape
    assert {n: t.shape for n, t in lazy.state_dict().items()} == {n: t.shape for n, t in made.state_dict().items()}
    lazy.load_state_dict(made.state_dict())
    assert lazy(x.unsqueeze(0)).squeeze(0).tolist() == made(x).tolist()
