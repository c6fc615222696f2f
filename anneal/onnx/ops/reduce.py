"""Reductions, running sums, softmax, the positions of the largest, products of matrices, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, MaybeArray, Value, axes_of, axis_of, counted, ints, iota, single, whole
from anneal.onnx.ops.shapes import Flatten
from anneal.onnx.registry import op, rows
from anneal.onnx.values import border
from anneal.tensor import Tensor, host_call

Axes = tuple[int, ...]
Reduction = Callable[[Tensor, Axes, bool], Tensor]

# -- reductions -------------------------------------------------------------------------------------------------------


def _total(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return x.sum(axes, keep, dtype=x.dtype) if axes else x


def _mean(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if not axes:
        return x
    if x.dtype.is_float:
        return x.mean(axes, keep)
    count = math.prod(x.shape[a] for a in axes)
    return _total(x, axes, keep).div(max(count, 1), rounding_mode="trunc").cast(x.dtype)


def _extreme(x: Tensor, axes: Axes, keep: bool, largest: bool) -> Tensor:
    """The largest or smallest; over nothing the other end of the dtype."""
    if not axes:
        return x
    if any(not x.shape[a] for a in axes):
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        ends = (-math.inf, math.inf) if x.dtype.is_float else (x.dtype.min, x.dtype.max)
        return x.new_full(sizes, ends[not largest])
    return x.amax(axes, keep) if largest else x.amin(axes, keep)


def _as_float(function: Reduction) -> Reduction:
    """Integers go through float32 and are cut off again."""

    def computed(x: Tensor, axes: Axes, keep: bool) -> Tensor:
        return function(x, axes, keep) if x.dtype.is_float else function(x.float(), axes, keep).cast(x.dtype)

    return computed


REDUCTIONS = {
    "ReduceL1": lambda x, a, k: _total(x.abs(), a, k),
    "ReduceL2": _as_float(lambda x, a, k: _total(x * x, a, k).sqrt()),
    "ReduceLogSum": _as_float(lambda x, a, k: _total(x, a, k).log()),
    "ReduceLogSumExp": _as_float(lambda x, a, k: x.logsumexp(a, k) if a else x),
    "ReduceMax": lambda x, a, k: _extreme(x, a, k, True),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, a, k: _extreme(x, a, k, False),
    "ReduceProd": lambda x, a, k: x.prod(a, k, dtype=x.dtype) if a else x,
    "ReduceSum": _total,
    "ReduceSumSquare": lambda x, a, k: _total(x * x, a, k),
}
ON_HOST = {
    "ReduceMax": lambda x, a, k: np.max(x, axis=a, keepdims=k),
    "ReduceMin": lambda x, a, k: np.min(x, axis=a, keepdims=k),
    "ReduceProd": lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype),
    "ReduceSum": lambda x, a, k: np.sum(x, axis=a, keepdims=k, dtype=x.dtype),
}


def _axes(ndim: int, given: MaybeArray, noop: int) -> Axes:
    if given is None or not given.size:
        return () if noop else tuple(range(ndim))
    return tuple(sorted({*axes_of(ints(given), ndim)}))


def _reduction(name: str, function: Reduction) -> None:
    """Register a reduction whose axes are an attribute at first, and an input later.

    The axes are an attribute before version 18 (ReduceSum: 13), and an input since; none at all means all, or with
    `noop_with_empty_axes=1` none.
    """

    def on_host(x: Array, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Any:
        over = _axes(x.ndim, axes, noop_with_empty_axes)
        if name in ("ReduceMax", "ReduceMin") and any(not x.shape[a] for a in over):
            return function(node.tensor(x), over, bool(keepdims))
        return ON_HOST[name](x, over, bool(keepdims)) if over else x

    @op(name, since=13 if name == "ReduceSum" else 18, host=name in ON_HOST and on_host, was=("axes",))
    def reduced(x: Tensor, axes: MaybeArray, *, keepdims: int, noop_with_empty_axes: int = 0) -> Tensor:
        return function(x, _axes(x.ndim, axes, noop_with_empty_axes), bool(keepdims))


for _name, _function in REDUCTIONS.items():
    _reduction(_name, _function)


# -- positions --------------------------------------------------------------------------------------------------------


@op("ArgMax", "ArgMin")
def position(x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """The position of the largest, or the smallest, along an axis: the first, or since version 12 the last if asked."""
    axis = axis_of(axis, x.ndim)
    seen = x.flip(axis) if select_last_index else x
    found = (seen.argmax if node.op == "ArgMax" else seen.argmin)(axis, bool(keepdims))
    return counted(x.shape[axis] - 1 - found if select_last_index else found)


@op(since=10, was=("k",))
def TopK(x: Tensor, k: Array, *, axis: int, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest, or since version 11 the smallest, in order (also where none is asked for), and their positions."""
    values, places = x.topk(single(k), axis_of(axis, x.ndim), bool(largest))
    return values, counted(places)


# -- running sums -----------------------------------------------------------------------------------------------------


@op("CumSum", "CumProd")
def running(x: Tensor, axis: Array, *, exclusive: int, reverse: int) -> Tensor:
    """The sum, or the product, of the elements up to each, itself included or not, from either end."""
    product = node.op == "CumProd"
    along = axis_of(whole(axis), x.ndim)
    if not x.shape[along]:
        return x
    out = x.flip(along) if reverse else x
    if exclusive:
        out = out.pad(border(along, x.ndim, 1, -1), value=1 if product else 0).cast(x.dtype)
    out = out.cumprod(along, dtype=x.dtype) if product else out.cumsum(along, dtype=x.dtype)
    return out.flip(along) if reverse else out


# -- softmax ----------------------------------------------------------------------------------------------------------


def _softmax(name: str, function: Callable[[Tensor, int], Tensor]) -> None:
    """Register a function of rows: before version 13 of the axes from `axis` on, laid flat, then of one axis."""

    op(name)(lambda x, *, axis: function(Flatten(x, axis=axis), 1).reshape(*x.shape))  # type: ignore[arg-type]
    op(name, since=13)(lambda x, *, axis: function(x, axis_of(axis, x.ndim)))


def _rows(x: Tensor, axis: int) -> Tensor:
    """softmax; floats of 16 bits are rounded after each step, as in the body that the standard gives."""
    if x.dtype.bits != 16:
        return x.softmax(axis)
    weights = (x - x.amax(axis, keepdim=True)).exp()
    return weights / weights.sum(axis, keepdim=True)


_softmax("Softmax", _rows)
_softmax("LogSoftmax", Tensor.log_softmax)
_softmax(
    "Hardmax", lambda x, axis: (iota(x, x.shape[axis], axis, x.ndim) == x.argmax(axis, keepdim=True)).cast(x.dtype)
)


# -- products of matrices, and determinants ---------------------------------------------------------------------------


rows(
    {
        "MatMul": lambda a, b: a.matmul(b),  # of integers since version 9
        "Einsum": lambda *xs, equation: Tensor.einsum(equation.replace(" ", ""), *xs),
    }
)


@op
def Gemm(
    a: Tensor, b: Tensor, c: Tensor | None, *, alpha: float, beta: float, broadcast: int = 1, transA: int, transB: int
) -> Tensor:
    """alpha * A @ B + beta * C; C broadcasts (before version 7 if `broadcast` is 1), and is optional since 11."""
    out = _scaled((a.T if transA else a) @ (b.T if transB else b), alpha)
    return out if c is None or beta == 0 else out + _scaled(c, beta)


def _scaled(x: Tensor, by: float) -> Tensor:
    return x if by == 1 else x * by if x.dtype.is_float else (x * by).cast(x.dtype)


@op
def Det(x: Value) -> Value:
    """The determinants of square matrices, the last two axes, by LAPACK on the host."""
    from anneal.linalg import det

    return np.asarray(np.linalg.det(x), x.dtype) if isinstance(x, np.ndarray) else det(x)


LONGEST = 8192  # elements of a transform by products on a device: its matrix has the square of that


# -- transforms -------------------------------------------------------------------------------------------------------


def _by_numpy(x: Tensor, n: int, inverse: bool, onesided: bool) -> Tensor:
    """The fast transform, which the cpu device's NumPy has; no gradient flows through it."""
    half = onesided and not inverse
    shape = (*x.shape[:-2], n // 2 + 1 if half else n, 1 if inverse and onesided else 2)

    def computed(values: Array) -> Array:
        signal = values[..., 0] + 1j * values[..., 1] if values.shape[-1] == 2 else values[..., 0]
        if inverse and onesided:
            return np.fft.irfft(signal, n)[..., None].astype(values.dtype)
        spectrum = (np.fft.ifft if inverse else np.fft.fft)(signal, n)[..., : shape[-2]]
        return np.stack([spectrum.real, spectrum.imag], -1).astype(values.dtype)

    return host_call(computed, (shape, x.dtype), x, key=("onnx DFT", n, inverse, onesided))


def _by_products(x: Tensor, n: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform as products with matrices, which a GPU has done before its host has the values."""
    columns = n // 2 + 1 if onesided else n
    rows = columns if inverse else n
    # The angle's product is taken modulo n, so that large ones lose no digits.
    angle = np.arange(rows)[:, None] * np.arange(n if inverse else columns) % n * (2 * math.pi / n)
    cos, sin = np.cos(angle), -np.sin(angle)
    if inverse:
        weight = np.where((np.arange(rows) == 0) | (2 * np.arange(rows) == n), 1, 1 + onesided)[:, None] / n
        cos, sin = cos * weight, -sin * weight
    m = x.shape[-2]
    x = x[..., :rows, :] if m >= rows else x.pad(border(x.ndim - 2, x.ndim, 0, rows - m))
    cos, sin = [node.constant(w.astype(x.dtype.name)) for w in (cos, sin)]
    first, second = x[..., 0] @ cos, x[..., 0] @ sin
    if x.shape[-1] == 2:
        first, second = first - x[..., 1] @ sin, second + x[..., 1] @ cos
    return first.unsqueeze(-1) if inverse and onesided else Tensor.stack([first, second], dim=-1)


def _transformed(x: Tensor, n: int, inverse: bool, onesided: bool) -> Tensor:
    """(..., time, 1 or 2) to (..., frequency, 2), or back; onesided is half the spectrum, and real numbers."""
    from anneal import fft

    if n < 1:
        raise fail(f"a transform of {n} elements")
    node.room(*x.shape[:-2], n, 2)
    if x.device != "cpu" and n <= LONGEST:
        return _by_products(x, n, inverse, onesided)
    if not node.training:
        return _by_numpy(x, n, inverse, onesided)
    z = x if x.shape[-1] == 2 else fft.pairs(x[..., 0])
    if inverse:
        return fft.irfft(z, n).unsqueeze(-1) if onesided else fft.ifft(z, n)
    return fft.fft(z, n)[..., : n // 2 + 1, :] if onesided else fft.fft(z, n)


@op(since=20, was=("axis",))
def DFT(x: Tensor, dft_length: MaybeArray, axis: MaybeArray, *, inverse: int, onesided: int) -> Tensor:
    """The discrete Fourier transform along an axis, the last but one unless another is named; an attribute before
    version 20.
    """
    at = axis_of(-2 if axis is None else whole(axis), x.ndim)
    if at == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise fail(f"axis {at} of shape {tuple(x.shape)}; the last axis has the real and imaginary parts")
    n = x.shape[at]
    n = whole(dft_length) if dft_length is not None else 2 * (n - 1) if inverse and onesided else n
    return _transformed(x.movedim(at, -2), n, bool(inverse), bool(onesided)).movedim(-2, at)


@op
def STFT(
    signal: Tensor, frame_step: Array, window: Tensor | None, frame_length: MaybeArray, *, onesided: int
) -> Tensor:
    """The transforms of windows of (batch, time, 1 or 2): (batch, frames, frequency, 2)."""
    step, total = whole(frame_step), signal.shape[1]
    n = total if window is None else window.shape[0]
    n = n if frame_length is None else whole(frame_length)
    if step < 1 or not 0 < n <= total:
        raise fail(f"frames of {n} elements, {step} apart, of a signal of {total}")
    signal = signal.unsqueeze(-1) if signal.ndim == 2 else signal
    frames = signal.unfold(1, n, step).transpose(-1, -2)
    if window is not None:
        sides = n - window.shape[0]
        window = window.pad([(sides // 2, sides - sides // 2)]) if sides else window
        frames = frames * window.reshape(-1, 1)
    return _transformed(frames, n, False, bool(onesided))


# -- windows ----------------------------------------------------------------------------------------------------------


def _window(name: str, *weights: float) -> None:
    """Register a sum of cosines: weights of 1, of -cos of one turn, of cos of two."""

    def window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        n = whole(size)
        node.room(n)
        angle = np.arange(n) * (2 * math.pi / max(n if periodic else n - 1, 1))
        total = sum((-1) ** i * w * np.cos(i * angle) for i, w in enumerate(weights))
        return np.asarray(total).astype(node.element(output_datatype))

    op(name)(window)


_window("HannWindow", 0.5, 0.5)
_window("HammingWindow", 25 / 46, 21 / 46)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


@op
def MelWeightMatrix(
    bins: Array, dft_length: Array, rate: Array, low: Array, high: Array, *, output_datatype: int
) -> Array:
    """Triangles at equal distances of pitch: a column for each band, a row for each frequency."""
    count, n = whole(bins), whole(dft_length)
    node.room(n // 2 + 1, count)
    mels = [2595 * math.log10(1 + f.item() / 700) for f in (low, high)]
    pitch = mels[0] + np.arange(count + 2) * (mels[1] - mels[0]) / (count + 2)
    edges = ((n + 1) * 700 * (10 ** (pitch / 2595) - 1) // whole(rate)).astype(np.int64)
    out = np.zeros((n // 2 + 1, count))
    for i, (a, b, c) in enumerate(zip(edges, edges[1:], edges[2:])):
        out[a : b + 1, i] = np.arange(b - a + 1) / (b - a) if b > a else 1
        if c > b:
            out[b:c, i] = (c - np.arange(b, c)) / (c - b)
    return out.astype(node.element(output_datatype))
