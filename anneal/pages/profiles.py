"""Profiles: what a browser's adapter allows, as kernels that are generated ahead of time rely on it.

Limits are those that a page asks for when it opens the adapter. `browser` is what every WebGPU adapter has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from anneal.backend import AnyDevice, cost_models, register_host
from anneal.codegen import Target
from anneal.errors import SettingError
from anneal.schedule import CostModel


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The limits and features that kernels rely on.

    Args:
        name: as `--for` takes it.
        about: which machines have it.
        buffers: the storage buffers of one kernel.
        buffer_bytes: the largest buffer.
        target: what generated code relies on.
        features: WebGPU's names of the features that the page asks for.
        software: whether it is for adapters that run kernels on the CPU, and for these alone.
    """

    name: str
    about: str
    buffers: int = 8
    buffer_bytes: int = 1 << 28
    target: Target = field(default_factory=Target)
    features: tuple[str, ...] = ()
    software: bool = False

    @property
    def cost_model(self) -> CostModel:
        """The prices that kernels are fused by. Calls run in order, on memory of one dtype, and no scores are computed
        again for each reader: the host runs this plan too."""
        return replace(cost_models.gpu(self.buffers, self.target.binding_bytes), concurrent=False, chained_bytes=0)

    def limits(self) -> dict[str, int]:
        """The limits by WebGPU's names, as `requestDevice` takes them."""
        t = self.target
        return {
            "maxStorageBuffersPerShaderStage": self.buffers,
            "maxStorageBufferBindingSize": t.binding_bytes,
            "maxBufferSize": self.buffer_bytes,
            "maxComputeWorkgroupStorageSize": t.workgroup_bytes,
            "maxComputeInvocationsPerWorkgroup": t.max_threads,
            "maxComputeWorkgroupSizeX": t.max_threads,
        }


_WIDE = Target(max_threads=1024, workgroup_bytes=32768, f16=True)
PROFILES = {
    p.name: p
    for p in (
        DeviceProfile("browser", "every browser with WebGPU, its default limits"),
        DeviceProfile(
            "software", "browsers whose WebGPU runs on the CPU: SwiftShader, llvmpipe", target=Target(barriers=False),
            software=True,
        ),
        DeviceProfile(
            "desktop", "GPUs whose subgroups have 32 threads or more, as those of desktops", 10,
            target=Target(workgroup_bytes=32768, subgroup=32, names_subgroups=True), features=("subgroups",),
        ),
        DeviceProfile(
            "adreno", "phones with an Adreno of 2021 or later, as Chrome for Android opens it", 8, 1 << 30,
            replace(_WIDE, binding_bytes=1 << 28), ("shader-f16",),
        ),
        DeviceProfile(
            "m1", "Macs with Apple's M1 or later", 10, 1 << 32,
            replace(_WIDE, binding_bytes=(1 << 32) - 4), ("shader-f16",),
        ),
    )
}  # fmt: skip


def profile(name: str | DeviceProfile) -> DeviceProfile:
    """The profile of that name, or one's own. Raises SettingError, with those that there are, for another name.

    >>> profile("browser").buffers
    8
    """
    if isinstance(name, DeviceProfile):
        return name
    if name not in PROFILES:
        raise SettingError(f"there is no profile {name!r}; profiles are {', '.join(PROFILES)}")
    return PROFILES[name]


def page_device() -> str:
    """The name of a device that computes on the cpu and has a browser's dtypes: where a model that would take int64 or
    float64 takes the narrower ones, as it does on a GPU that has no others."""
    register_host("browser", Target().dtypes)
    return "browser"


@contextmanager
def planned_for(device: AnyDevice, wanted: DeviceProfile) -> Iterator[None]:
    """A block in which what runs on `device` is planned as for a profile; no adapter is opened for it."""
    before = device.cost_model
    with device.lock:
        device.cost_model = wanted.cost_model
        try:
            yield
        finally:
            device.cost_model = before
