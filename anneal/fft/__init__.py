"""Fourier transforms by torch.fft's names and arguments, on real pairs.

There are no complex dtypes. A complex tensor of shape (...) is a float tensor of shape (..., 2), whose last axis has
the real and the imaginary part: what torch's `view_as_real` gives. `fft`, `ifft`, `irfft`, `hfft` and those of two and
n axes take pairs; `rfft` and `ihfft` take real numbers; `irfft` and `hfft` give real numbers, all others pairs. Axes
and sizes are those of the complex tensor, so `dim=-1` is the last axis before the pair. `pairs(x)` makes pairs of real
numbers, `pairs(x, y)` of real and imaginary parts.

Every transform runs on the host, by NumPy, on every device, and is a node of the graph all the same: lazy, part of jit
functions, batched by `vmap`, with gradients (each transform is linear: its gradient is its transpose, made of
transforms, so all derivatives exist) and tangents. float32 and float64 keep their dtype; narrower floats are computed
in float32; integers and bools become float32, as torch's do.

    >>> from anneal.tensor import Tensor
    >>> spectrum = rfft(Tensor([1.0, 2.0, 3.0, 4.0]))
    >>> spectrum.shape, irfft(spectrum).tolist()
    ((3, 2), [1.0, 2.0, 3.0, 4.0])
"""

from anneal.fft._transforms import *
from anneal.fft._transforms import __all__ as __all__
