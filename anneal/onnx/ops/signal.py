"""Fourier transforms, and windows: products with matrices of cosines and sines, or where it is the device, NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Array, axis_of, single
from anneal.onnx.registry import op
from anneal.onnx.types import array_dtype
from anneal.tensor import Tensor, host_call

LONGEST = 8192  # elements of a transform; its matrix has the square of that

# -- transforms -------------------------------------------------------------------------------------------------------


def _waves(n: int, rows: int, columns: int) -> tuple[Array, Array]:
    """cos and sin of 2 pi t k / n, for t below `rows` and k below `columns`."""
    # The product is taken modulo n, so that large angles lose no digits.
    angle = (np.arange(rows)[:, None] * np.arange(columns)[None, :] % n) * (2 * math.pi / n)
    return np.cos(angle), np.sin(angle)


def _fitted(x: Tensor, n: int) -> Tensor:
    """The last axis cut, or filled up with zeros, to n elements."""
    m = x.shape[-1]
    return x if m == n else x[..., :n] if m > n else x.pad([(0, 0)] * (x.ndim - 1) + [(0, n - m)])


def _by_numpy(x: Tensor, n: int, inverse: bool, onesided: bool) -> Tensor:
    """The fast transform, which the cpu device's NumPy has; no gradient flows through it."""
    half = onesided and not inverse
    shape = (*x.shape[:-2], n // 2 + 1 if half else n, 1 if inverse and onesided else 2)

    def computed(values: Array) -> Array:
        signal = values[..., 0] + 1j * values[..., 1] if values.shape[-1] == 2 else values[..., 0]
        if inverse and onesided:
            out = np.fft.irfft(signal, n)[..., None]
        else:
            spectrum = np.fft.ifft(signal, n) if inverse else np.fft.fft(signal, n)
            spectrum = spectrum[..., : shape[-2]]
            out = np.stack([spectrum.real, spectrum.imag], -1)
        return out.astype(values.dtype)

    found = host_call(computed, (shape, x.dtype), x, key=("onnx DFT", n, inverse, onesided))
    return found


def _transformed(node: NodeCall, x: Tensor, n: int, inverse: bool, onesided: bool) -> Tensor:
    """(..., time, 1 or 2) to (..., frequency, 2), or back; onesided is half the spectrum, and real numbers."""
    if not 0 < n <= LONGEST:
        raise node.fail(f"a transform of {n} elements; from 1 to {LONGEST} are computed")
    if x.device == "cpu" and not node.training:
        return _by_numpy(x, n, inverse, onesided)
    real = x[..., 0]
    imaginary = x[..., 1] if x.shape[-1] == 2 else None
    name = x.dtype.name

    def times(a: Tensor, matrix: Array) -> Tensor:
        return a.matmul(node.constant(matrix.astype(name)))

    if inverse and onesided:
        half = n // 2 + 1
        cos, sin = _waves(n, half, n)
        weight = np.where((np.arange(half) == 0) | (2 * np.arange(half) == n), 1.0, 2.0)[:, None] / n
        out = times(_fitted(real, half), cos * weight)
        if imaginary is not None:
            out = out - times(_fitted(imaginary, half), sin * weight)
        return out.unsqueeze(-1)
    columns = n // 2 + 1 if onesided else n
    cos, sin = _waves(n, n, columns)
    if inverse:
        cos, sin = cos / n, -sin / n
    real = _fitted(real, n)
    first, second = times(real, cos), -times(real, sin)
    if imaginary is not None:
        imaginary = _fitted(imaginary, n)
        first, second = first + times(imaginary, sin), second + times(imaginary, cos)
    return Tensor.stack([first, second], dim=-1)


def _along(node: NodeCall, x: Tensor, length: Array | None, axis: int, inverse: int, onesided: int) -> Tensor:
    axis = axis_of(node, axis, x.ndim)
    if axis == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise node.fail(f"axis {axis} of shape {tuple(x.shape)}; the last axis has the real and imaginary parts")
    n = x.shape[axis]
    n = int(single(length)) if length is not None else 2 * (n - 1) if inverse and onesided else n
    y = _transformed(node, x.movedim(axis, -2), n, bool(inverse), bool(onesided))
    return y.movedim(-2, axis)


@op("DFT", values=("dft_length",))
def dft_old(
    node: NodeCall, x: Tensor, dft_length: Array | None = None, *, axis: int, inverse: int, onesided: int
) -> Tensor:
    """The discrete Fourier transform along an axis, which is an attribute in version 17."""
    return _along(node, x, dft_length, axis, inverse, onesided)


@op("DFT", since=20, values=("dft_length", "axis"))
def dft(
    node: NodeCall,
    x: Tensor,
    dft_length: Array | None = None,
    axis: Array | None = None,
    *,
    inverse: int,
    onesided: int,
) -> Tensor:
    """The discrete Fourier transform along an axis, the last but one unless another is named."""
    return _along(node, x, dft_length, -2 if axis is None else int(single(axis)), inverse, onesided)


@op("STFT", values=("frame_step", "frame_length"))
def stft(
    node: NodeCall,
    signal: Tensor,
    frame_step: Array,
    window: Tensor | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int,
) -> Tensor:
    """The transforms of windows of (batch, time, 1 or 2): (batch, frames, frequency, 2)."""
    step, total = int(single(frame_step)), signal.shape[1]
    if frame_length is not None:
        n = int(single(frame_length))
    else:
        n = total if window is None else window.shape[0]
    if step < 1 or not 0 < n <= total:
        raise node.fail(f"frames of {n} elements, {step} apart, of a signal of {total}")
    signal = signal.unsqueeze(-1) if signal.ndim == 2 else signal
    frames = signal.unfold(1, n, step).transpose(-1, -2)
    if window is not None:
        sides = n - window.shape[0]
        window = window.pad([(sides // 2, sides - sides // 2)]) if sides else window
        frames = frames * window.reshape(-1, 1)
    return _transformed(node, frames, n, False, bool(onesided))


# -- windows ----------------------------------------------------------------------------------------------------------


def _window(name: str, *weights: float) -> None:
    """Register a sum of cosines: weights of 1, of -cos of one turn, of cos of two."""

    def window(node: NodeCall, size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        n = int(single(size))
        node.room(n)
        angle = np.arange(n) * (2 * math.pi / max(n if periodic else n - 1, 1))
        total = sum((-1) ** i * w * np.cos(i * angle) for i, w in enumerate(weights))
        dtype = array_dtype(output_datatype)
        if dtype is None:
            raise node.fail(f"there is no element type {output_datatype}")
        return np.asarray(total).astype(dtype)

    op(name, values=("size",))(window)


_window("HannWindow", 0.5, 0.5)
_window("HammingWindow", 25 / 46, 21 / 46)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


@op("MelWeightMatrix", values=("bins", "dft_length", "rate", "low", "high"))
def mel_weight_matrix(
    node: NodeCall, bins: Array, dft_length: Array, rate: Array, low: Array, high: Array, *, output_datatype: int = 1
) -> Array:
    """Triangles at equal distances of pitch: a column for each band, a row for each frequency."""
    count, n = int(single(bins)), int(single(dft_length))
    node.room(n // 2 + 1, count)
    mels = [2595 * math.log10(1 + float(single(f)) / 700) for f in (low, high)]
    pitch = mels[0] + np.arange(count + 2) * (mels[1] - mels[0]) / (count + 2)
    edges = ((n + 1) * 700 * (10 ** (pitch / 2595) - 1) // int(single(rate))).astype(np.int64)
    out = np.zeros((n // 2 + 1, count))
    for i, (a, b, c) in enumerate(zip(edges, edges[1:], edges[2:])):
        if a == b:
            out[b, i] = 1
        else:
            out[a : b + 1, i] = np.arange(b - a + 1) / (b - a)
        if c > b:
            out[b:c, i] = (c - np.arange(b, c)) / (c - b)
    dtype: Any = array_dtype(output_datatype)
    return out.astype(dtype)
