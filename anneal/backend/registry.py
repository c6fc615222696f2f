"""The devices of this process: opened on first use, finished with before a fork."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from anneal import progress, settings
from anneal.backend import cost_models
from anneal.backend.device import Device, OpaqueBuffer
from anneal.errors import DeviceError, SettingError
from anneal.schedule import BUILDING
from anneal.uop import arena

if TYPE_CHECKING:
    from anneal.backend.memory import MemoryReport
    from anneal.schedule import CostModel
    from anneal.uop import DType

# A device of which nobody but itself knows what its buffers are.
AnyDevice = Device[OpaqueBuffer]


class Place(str):
    """The name of a device, as `x.device` gives it, with torch's `type` ("cpu") and `index` (None)."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The name without a number."""
        return str(self.partition(":")[0])

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The number, or None."""
        number = self.partition(":")[2]
        return int(number) if number else None


# The device of tensors that name none: it is always there, and holds every dtype.
HOST = Place("cpu")
_PRECISIONS = ("highest", "high", "medium")

_OPENING = threading.RLock()  # devices are opened once per process, on first use, by one thread at a time


class _Devices:
    """The devices of the process by their names, which are one each, and what they have in common."""

    def __init__(self, known: dict[str, _Known]) -> None:
        self.known = known
        self.open: dict[str, AnyDevice] = {}
        # those of the process that this one was forked from: what a driver holds cannot be let go of here
        self.left_behind: dict[str, AnyDevice] = {}
        self.auto = ""  # the name that "auto" stands for, once that is known
        self.precision = "highest"  # of products of float32, also on devices that are opened later


def device_names() -> tuple[str, ...]:
    """The names that `get_device` knows."""
    return ("auto", *DEVICES.known)


def register_device(name: str, open_device: Callable[[], Device[Any]], cost_model: CostModel) -> None:
    """Let tensors be put on the device called `name`, which `open_device` makes when it is first asked for.

    `cost_model` is what `anneal kernels` and the like plan with, which open no device. Raises DeviceError for a name
    that is taken. ANNEAL_DEVICE knows only the devices of anneal itself; `set_default_device` and `device=` take any.
    """
    with _OPENING:
        if name in device_names():
            raise DeviceError(f"there is a device {name!r} already; choose another name")
        DEVICES.known[name] = _Known(open_device, cost_model)


def register_host(name: str, dtypes: frozenset[DType]) -> None:
    """Let tensors be put on the device called `name`: the cpu, as if it had these `dtypes` alone, for what is planned
    for another machine. Nothing is done if there is one of that name."""

    def opened() -> Device[Any]:
        device = _open_cpu()
        device.name, device.limits = name, replace(device.limits, dtypes=dtypes)
        return device

    if name not in DEVICES.known:
        register_device(name, opened, cost_models.CPU)


def planned_cost_model(name: str) -> CostModel:
    """The cost model to plan with for the device called `name`, which is not opened; "auto" is taken to be a GPU.

    Raises DeviceError for an unknown name.
    """
    return _known("webgpu" if name == "auto" else name).cost_model


def is_foreign(name: str) -> bool:
    """True if a name is that of a GPU in other frameworks."""
    return isinstance(name, str) and name.partition(":")[0] in ("cuda", "mps", "xpu", "hip", "gpu")


def _known(name: str) -> _Known:
    known = DEVICES.known.get(name)
    if known is None and is_foreign(name):
        raise DeviceError(
            f"there is no device {name!r} here: GPUs of every vendor are reached through WebGPU, so write 'webgpu' "
            "(or 'auto': the GPU if there is one, else the cpu)"
        )
    if known is None:
        raise DeviceError(f"unknown device {name!r}; choose one of {', '.join(device_names())}")
    return known


def open_devices() -> list[AnyDevice]:
    """The devices that this process has opened so far."""
    return list(DEVICES.open.values())


def get_device(name: str = "auto") -> AnyDevice:
    """The device called `name`: "cpu", "webgpu", or "auto" (webgpu if there is a hardware adapter, else cpu).

    Raises DeviceError, with what to do, for an unknown name or when WebGPU has no suitable adapter. Software adapters
    are refused unless ANNEAL_ADAPTER names one or ANNEAL_REQUIRE_WEBGPU is set.

    >>> get_device("cpu").name
    'cpu'
    """
    device = DEVICES.open.get(name)
    if device is not None:
        return device
    with _OPENING:
        device = DEVICES.open.get(name)
        if device is not None:
            return device
        if name == "auto":
            return get_device(_auto_name())
        if name in DEVICES.left_behind:
            raise DeviceError(
                f"device {name!r} was opened before this process was forked, and does not work in it; open it in the "
                'new process alone, or start that with multiprocessing.get_context("spawn")'
            )
        with progress.work(f"opening {name}"):
            device = DEVICES.open[name] = _in_precision(_known(name).open())
        return device


def set_precision(precision: str) -> None:
    """Have products of float32 matrices computed in a `precision` on devices that have matrices, open or not.

    Raises SettingError for one that is none of torch's three.
    """
    if precision not in _PRECISIONS:
        raise SettingError(f"float32 precision is one of {', '.join(_PRECISIONS)}, not {precision!r}")
    DEVICES.precision = precision
    for device in open_devices():
        _in_precision(device)


def _in_precision(device: AnyDevice) -> AnyDevice:
    """The device, which computes products in the precision that is in force."""
    if device.cost_model.matrices:
        device.cost_model = replace(device.cost_model, float32_products=DEVICES.precision)
    return device


def memory_report(device: str) -> MemoryReport:
    """The report of the device called `device`; an empty one, if it was never opened."""
    from anneal.backend.memory import MemoryUse, report

    opened = DEVICES.open.get(device)
    return report(device, MemoryUse(0, 0, 0)) if opened is None else opened.report()


def empty_cache() -> None:
    """Give unused memory back to the system, on every open device.

    Values that are kept to be used again go too, and unused nodes. Plans, programs and remembered calls stay:
    a loop that calls this would make them anew each time. Each of those caches has a bound.
    """
    arena().sweep()
    for device in open_devices():
        device.empty_cache()


def _locks() -> list[Any]:
    """The locks of all devices, in the order in which a thread that needs several takes them."""
    return [_OPENING, BUILDING, *[d.lock for d in DEVICES.open.values()]]


def _before_fork() -> None:
    # the new process has this thread alone: what others are at must be finished
    for lock in _locks():
        lock.acquire()


def _after_fork() -> None:
    for lock in _locks():
        lock.release()


def _in_fork() -> None:
    _after_fork()
    for name, device in list(DEVICES.open.items()):
        if not device.survives_fork:
            DEVICES.left_behind[name] = DEVICES.open.pop(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


def _open_cpu() -> Device[Any]:
    from anneal.backend.cpu import CpuDevice

    return CpuDevice()


def _open_webgpu() -> Device[Any]:
    chosen = settings.current()
    try:
        from anneal.backend.webgpu import open_device
    except ImportError as e:
        raise DeviceError(
            f"device 'webgpu' needs the wgpu package ({e}); pip install wgpu, or choose device 'cpu'"
        ) from e
    named = bool(chosen.adapter) and not chosen.adapter.startswith(":")  # a turn among adapters names none
    return open_device(chosen.adapter or None, named or chosen.require_webgpu)


class _Known(NamedTuple):
    """A device that has a name: how to open it, and the cost model to plan with for a machine that may have none."""

    open: Callable[[], Device[Any]]
    cost_model: CostModel


DEVICES = _Devices({HOST: _Known(_open_cpu, cost_models.CPU), "webgpu": _Known(_open_webgpu, cost_models.GPU)})


def _auto_name() -> str:
    if not DEVICES.auto:
        wanted = settings.current()
        if wanted.device != "auto":
            get_device(wanted.device)
            return wanted.device
        try:
            get_device("webgpu")
            DEVICES.auto = "webgpu"
        except DeviceError as e:
            if wanted.require_webgpu:
                raise
            reason = str(e).splitlines()[0].split(";")[0]
            print(f"anneal: no WebGPU hardware ({reason}); using the cpu device", file=sys.stderr)
            get_device(HOST)
            DEVICES.auto = HOST
    return DEVICES.auto
