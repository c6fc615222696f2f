"""Run one kernel graph on a device with NumPy arrays in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.backend import numpy_dtype
from anneal.backend.webgpu import DeviceBuffer, WebGpuDevice, WebGpuProgram
from anneal.codegen import Opt, Target, generate
from anneal.uop import Op, UOp, toposort

Array = npt.NDArray[Any]


def run(
    device: WebGpuDevice,
    sink: UOp,
    inputs: dict[int, Array],
    opts: list[Opt] | None = None,
    target: Target | None = None,
) -> dict[int, Array]:
    """The contents of every stored PARAM after one run; `inputs` gives contents by slot."""
    if opts is None and target is None:
        program = device.compile(sink)
    else:
        program = WebGpuProgram("test", generate(sink, target or device.target, opts))
    params = {u.arg[0]: u for u in toposort((sink,)) if u.op is Op.PARAM}
    buffers: list[DeviceBuffer] = []
    for slot in range(max(params) + 1):
        p = params.get(slot)
        if p is None:
            buffers.append(device.alloc(0, params[max(params)].dtype))
            continue
        buffer = device.alloc(p.arg[1][0], p.dtype)
        data = inputs.get(slot)
        if data is None:
            data = np.full(p.arg[1][0], 77).astype(numpy_dtype(p.dtype))
        device.upload(buffer, data.astype(numpy_dtype(p.dtype)))
        buffers.append(buffer)
    device.prepare([(program, buffers)]).run()
    stored = sorted({s.src[0].arg[0] for s in sink.src})
    out = {s: device.download(buffers[s], params[s].arg[1][0], params[s].dtype) for s in stored}
    for b in buffers:
        device.free(b)
    return out
