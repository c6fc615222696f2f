"""The device: buffers, pipelines, and batches that record a whole step as one submission."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import cast

from anneal import cache, progress, schedule, settings
from anneal.backend.device import Call, Program
from anneal.backend.webgpu.adapters import choose_adapter, enumerate_adapters
from anneal.backend.webgpu.batch import WebGpuBatch
from anneal.backend.webgpu.beam import best_opts
from anneal.backend.webgpu.opened import OpenAdapter
from anneal.backend.webgpu.queue import DeviceBuffer, WebGpuProgram
from anneal.codegen import GeneratedKernel, decode_kernel, encode_kernel, generate
from anneal.errors import CompilerError, DeviceError
from anneal.schedule import name_of
from anneal.uop import UOp

_WORTH = 0.005  # seconds of code generation below which the result is not worth a file


class WebGpuDevice(OpenAdapter):
    """An open adapter that compiles kernels and prepares batches of them."""

    def compile(self, sink: UOp) -> WebGpuProgram:
        """WGSL for a kernel graph; equal graphs give the same program. The pipeline is made by `prepare`."""
        return self._programs[self._key(sink.key)] or self._add(sink.key, name_of(sink), self._generate(sink))

    def load(self, name: str, kernel: GeneratedKernel) -> WebGpuProgram:
        """A program of code that was generated elsewhere, or otherwise; it is not kept."""
        return WebGpuProgram(name, kernel)

    def _generate(self, sink: UOp) -> GeneratedKernel:
        width = settings.current().beam
        return generate(sink, self.target, best_opts(self, sink, width) if width else None)

    def _key(self, graph: bytes) -> bytes:
        """Programs of different searches are different programs."""
        return graph + bytes([settings.current().beam])

    def compile_all(self, kernels: Sequence[schedule.Kernel], often: bool = False) -> list[Program]:
        """Programs for the kernels of a plan. Code that an earlier process generated is taken from disk: all of a plan
        is one entry, so that a second process generates nothing.
        """
        distinct = {k.key: k for k in kernels}
        programs = {key: p for key in distinct if (p := self._programs[self._key(key)]) is not None}
        if len(programs) < len(distinct):
            begun = time.perf_counter()
            # the kernels' graphs in order, and everything of the device that code may depend on
            entry = cache.disk_key((self.identity, settings.current().beam), *distinct)
            on_disk = cache.enabled()
            kept = cache.load("kernels", entry, lambda found: list(map(decode_kernel, found))) if on_disk else None
            for n, (key, k) in enumerate(progress.told(distinct.items(), "compiling kernels")):
                if key not in programs:
                    programs[key] = self._add(key, k.name, kept[n]) if kept is not None else self.compile(k.sink)
            if kept is None and on_disk and time.perf_counter() - begun >= _WORTH:
                code = [encode_kernel(programs[key].kernel) for key in distinct]
                cache.save("kernels", entry, code, f"WGSL of {len(code)} kernels for {self.info.name}")
        return [programs[k.key] for k in kernels]

    def _add(self, key: bytes, name: str, kernel: GeneratedKernel) -> WebGpuProgram:
        program = WebGpuProgram(name, kernel)
        if settings.current().debug >= 4:
            print(f"// {program.name}\n{program.source}", file=sys.stderr)
        count = len(self._bindings(kernel))
        if count > self.limits.max_buffers:
            what = f"binds {len(kernel.params)} buffers"
            if count > len(kernel.params):
                what += f" in {count} pieces of at most {self.limits.max_binding_bytes} bytes"
            raise CompilerError(
                f"kernel {program.name} {what}; {self.info.name} allows {self.limits.max_buffers}", stage="webgpu"
            )
        self._start(program)
        self._programs[self._key(key)] = program
        return program

    def prepare(self, calls: Sequence[Call[DeviceBuffer]], values: Mapping[str, int] | None = None) -> WebGpuBatch:
        """Pipelines and bind groups for `calls`, ready to be recorded."""
        checked = [(cast(WebGpuProgram, p), b) for p, b in calls]
        for program, _ in checked:
            self._start(program)
        for program, _ in checked:
            if program.pipeline is None:
                self._finish(program)
        bound = []
        for program, buffers in checked:
            kernel = program.kernel
            if kernel.launch.workgroups:  # a kernel without workgroups stores nothing
                if kernel.variables:
                    buffers = [*buffers[: kernel.params[-1].slot], self._table(kernel.variables)]
                bound.append((program, list(buffers), self.bind_group(program, buffers)))
        return WebGpuBatch(self, bound, values or {})


def open_device(
    adapter: str | None = None, allow_software: bool = False, limits: Mapping[str, int] | None = None
) -> WebGpuDevice:
    """The device on the best adapter, or on one whose name contains `adapter`.

    A software adapter is taken only if it is named or `allow_software` is set; `limits` are asked for in the place of
    the adapter's own, by WebGPU's names. Raises DeviceError with the likely cause and what to type.
    """
    try:
        found = enumerate_adapters()
    except Exception as e:  # a missing or broken loader surfaces as any of several types
        raise DeviceError(f"WebGPU did not start ({e}); update the wgpu package, or use device 'cpu'") from e
    device = WebGpuDevice(choose_adapter(found, adapter, allow_software), limits)
    if settings.current().debug >= 1:
        print(f"anneal: webgpu on {device.info.name} ({device.info.backend}, {device.info.driver})", file=sys.stderr)
    return device
