"""Memory, pooling, batches, workers and the choice of a device."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from anneal import settings
from anneal.backend import Storage, cost_models, get_device, registry
from anneal.backend.cpu import layout
from anneal.backend.cpu.executor import CpuDevice
from anneal.backend.cpu.index import Dims, LinearIndex, NeedsSplit, NotLinear, linear
from anneal.backend.cpu.workers import Workers
from anneal.backend.device import BufferPool
from anneal.errors import CompilerError, DeviceError
from anneal.runtime import late
from anneal.schedule import plan
from anneal.tensor import Tensor, realize
from anneal.uop import Op, UOp, Weighed, dtypes
from tests.backend.cpu.kernels import F32, I32, exact, kernel, load, loop, over, param, reduce, store

pytestmark = pytest.mark.usefixtures("in_numpy")


def doubling(n: int) -> UOp:
    i = loop(0, n)
    return kernel(store(param(0, n), i, load(param(1, n), i) * 2.0))


# -- memory --------------------------------------------------------------------------------------------------------


def test_data_comes_back_as_it_went_up() -> None:
    device = get_device("cpu")
    for dtype in (F32, I32, dtypes.bool_, dtypes.float16):
        buffer = device.alloc(6, dtype)
        sent = np.arange(6).reshape(2, 3).astype(buffer.dtype)
        device.upload(buffer, sent)
        got = device.download(buffer, 6, dtype)
        np.testing.assert_array_equal(got, sent.reshape(-1))
        got[0] = 1
        assert device.download(buffer, 6, dtype)[0] == 0
        device.free(buffer)


def test_buffers_are_aligned_for_vectors() -> None:
    assert get_device("cpu").alloc(3, F32).ctypes.data % 64 == 0


def test_a_storage_gives_its_buffer_back() -> None:
    device = get_device("cpu")
    storage = Storage(1234, F32, "cpu", np.ones(1234, np.float32))
    buffer = storage.ensure()
    assert storage.host is None
    assert buffer.sum() == 1234
    del storage
    gc.collect()
    assert device.alloc(1234, F32) is buffer


def test_a_finaliser_that_comes_while_the_pool_changes_leaves_it_alone() -> None:
    device = CpuDevice()
    inner: list[object] = []

    class Interrupted(BufferPool):
        def take(self, kind: object) -> object:
            if not inner:
                inner.append(None)
                device.free(second)
                inner.append(device.alloc(1234, F32))
                device.empty_cache()
            return super().take(kind)

    device.pool = Interrupted(1 << 20, lambda buffer: None)
    inner.append(None)
    first, second = device.alloc(1234, F32), device.alloc(1234, F32)
    device.free(first)
    inner.clear()
    assert device.alloc(1234, F32) is first
    assert not any(inner[1] is b for b in (first, second))
    assert device.alloc(1234, F32) is second


def test_storages_differ_though_their_fields_agree() -> None:
    a, b = Storage(3, F32, "cpu"), Storage(3, F32, "cpu")
    assert a != b
    assert repr(a) == repr(b) == "Storage(3, float32, 'cpu')"


def test_ten_thousand_small_buffers_leave_little_behind() -> None:
    device = CpuDevice()
    for n in range(10_000):
        device.free(device.alloc(n % 97 + 1, F32))
    assert device.pool.held < 100_000


def test_a_pool_drops_what_was_unused_longest() -> None:
    gone: list[str] = []
    pool = BufferPool(1100, gone.append)
    for name in "abc":
        pool.give(name, 100, name)
    assert gone == []
    pool.take("a")
    pool.give("a", 100, "a")
    pool.give("d", 100, "d")
    assert gone == ["b"]
    pool.clear()
    assert sorted(gone) == ["a", "b", "c", "d"]
    assert pool.held == 0


def test_batches_do_not_keep_buffers_that_the_pool_dropped() -> None:
    device = CpuDevice()
    device.pool.budget = 1000
    program = device.compile(doubling(100))
    buffers = [device.alloc(100, F32) for _ in range(2)]
    refs = [weakref.ref(b) for b in buffers]
    batch = device.prepare([(program, buffers)])
    batch.run()
    device.batches.put(batch, program, buffers)
    del batch
    while buffers:
        device.free(buffers.pop())
    device.free(device.alloc(220, F32))
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_batches_that_are_kept_are_bounded_by_their_calls_and_one_buffer_may_serve_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anneal.uop.caches._LEAST", 2)
    monkeypatch.setattr(CpuDevice, "_CALLS", 5)
    device = CpuDevice()
    program = device.compile(doubling(4))
    for n in (1, 1, 1, 1, 1, 1, 4, 9, 9):
        b = np.zeros(4, np.float32)
        device.batches.put(device.prepare([(program, [b, b])] * n), program, [b, b], n)
        kept = [len(batch.names) for batch, _ in device.batches.values()]
        assert sum(kept) <= 5 or len(kept) <= 2
        assert kept[-1] == n
        assert device.batches.weight == sum(kept)
    assert kept == [9, 9]
    device.empty_cache()
    assert device.batches.weight == len(device.batches) == len(device.batches._keys) == 0


# -- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_replays_in_order_and_sees_new_data() -> None:
    device = get_device("cpu")
    program = device.compile(doubling(3))
    a, b, c = (np.zeros(3, np.float32) for _ in range(3))
    batch = device.prepare([(program, [b, a]), (program, [c, b])])
    for value in (1.0, 5.0):
        a[:] = value
        batch.run()
        assert c.tolist() == [4 * value] * 3
    timings = batch.profile()
    assert [name for name, _ in timings] == [program.name] * 2
    assert all(seconds > 0 for _, seconds in timings)
    assert batch.seconds() > 0


def test_programs_and_bindings_are_made_once() -> None:
    device = get_device("cpu")
    program = device.compile(doubling(3))
    assert device.compile(doubling(3)) is program
    a, b = np.zeros(3, np.float32), np.zeros(3, np.float32)
    first, second = (device.prepare([(program, [b, a])]) for _ in range(2))
    assert first.__dict__["_bound"][0] is second.__dict__["_bound"][0]


def test_the_source_of_a_program_reads_as_steps() -> None:
    i, j, k = loop(0, 4), loop(1, 5), over(2, 6)
    value = reduce(Op.ADD, load(param(1, 24), i * 6 + k) * load(param(2, 30), k * 5 + j), k)
    source = get_device("cpu").compile(kernel(store(param(0, 20), i * 5 + j, value + load(param(3, 5), j)))).source
    assert source.splitlines()[2:] == [
        "for 1 blocks on 1 workers:",
        "    p0[1*d1+5*d0] = p1[6*d0+1*d2] @ p2[5*d2+1*d1]",
        "    p0[5*d0+1*d1] = add(p0[1*d1+5*d0], p3[1*d1])",
    ]


def test_a_node_that_is_no_kernel_names_itself() -> None:
    i = loop(0, 3)
    odd = UOp(Op.LANES, F32, (load(param(1, 3), i),))
    with pytest.raises(CompilerError, match="LANES"):
        get_device("cpu").compile(kernel(store(param(0, 3), i, odd)))


# -- workers ---------------------------------------------------------------------------------------------------------


def test_lanes_run_every_share() -> None:
    seen: list[int] = []
    workers = Workers(3)
    for _ in range(50):
        seen.clear()
        workers.run([[(seen.append, (worker,))] * 4 for worker in range(3)])
        assert sorted(seen) == [0] * 4 + [1] * 4 + [2] * 4


def test_an_error_in_a_lane_reaches_the_caller_and_the_lane_lives_on() -> None:
    workers = Workers(2)
    with pytest.raises(ZeroDivisionError):
        workers.run([[], [(divmod, (1, 0))]])
    names: list[str] = []
    workers.run([[], [(lambda: names.append(threading.current_thread().name), ())]])
    assert names == ["anneal-cpu-worker"]


def test_an_interrupt_leaves_lanes_that_work() -> None:
    workers = Workers(2)

    def interrupted() -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            workers.run([[(interrupted, ())], []])
        seen: list[int] = []
        workers.run([[(seen.append, (0,))], [(seen.append, (1,))]])
        assert sorted(seen) == [0, 1]


def test_lanes_compute_what_one_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    i, j, k = loop(0, 40), loop(1, 30), over(2, 20)
    value = Op.TANH(reduce(Op.ADD, load(param(1, 800), i * 20 + k) * load(param(2, 600), k * 30 + j), k))
    sink = kernel(store(param(0, 1200), i * 30 + j, value))
    rng = np.random.default_rng(0)
    # sums of these are exact in every order, so that how BLAS sums a piece of the matrix does not show
    a, b = (exact(rng, n) for n in (800, 600))
    results = []
    for least, count in ((10**9, 1), (-1, 4)):
        monkeypatch.setattr(layout, "_WORKER_NS", least)
        device = CpuDevice()
        device.workers = Workers(count)
        program = device.compile(sink)
        assert f"on {count} workers" in program.source
        out = np.zeros(1200, np.float32)
        device.prepare([(program, [out, a, b])]).run()
        results.append(out)
    np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-7)


def test_blas_has_one_thread_in_lanes_and_its_own_number_afterwards() -> None:
    from anneal.backend.cpu import workers as module

    if not module.blas_obeys():
        pytest.skip("this NumPy's BLAS cannot be told its thread count")
    blas = module.blas()
    before = blas.get()
    seen: list[int] = []
    with module.numpy_settings(one_blas_thread=True):
        Workers(2).run([[(lambda: seen.append(blas.get()), ())]] * 2)
    assert seen == [1, 1]
    assert blas.get() == before


# -- linear forms --------------------------------------------------------------------------------------------------


def forms(index: UOp, *extents: int) -> tuple[LinearIndex, Dims]:
    dims = Dims()
    for i, n in enumerate(extents):
        dims.add(i, n)
    while True:
        try:
            return linear(index, dims), dims
        except NeedsSplit as e:
            dims.split(e.dim, e.inner)


def test_sums_products_and_differences_are_linear() -> None:
    i, j = loop(0, 4), loop(1, 5)
    form, _ = forms((i * 5 + j) * 3 - i + 7, 4, 5)
    assert (form.const, form.dims) == (7, {0: 14, 1: 3})


def test_division_splits_a_range() -> None:
    i = loop(0, 24)
    form, dims = forms(i % 4 * 6 + i // 4, 24)
    assert dims.extent == [6, 4]
    assert form.dims == {0: 1, 1: 6}


def test_what_has_no_linear_form() -> None:
    i = loop(0, 24)
    for index in (i * i, i // 5, i % 7):
        with pytest.raises(NotLinear):
            forms(index, 24)


# -- choosing a device ---------------------------------------------------------------------------------------------


def test_unknown_devices_are_named_with_the_known() -> None:
    with pytest.raises(DeviceError, match=r"unknown device 'gqu'; choose one of auto, cpu, webgpu"):
        get_device("gqu")
    with pytest.raises(DeviceError, match=r"there is no device 'gpu' here: .* write 'webgpu'"):
        get_device("gpu")


def test_auto_falls_back_to_the_cpu_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> object:
        raise DeviceError("no adapter at all; install a driver")

    monkeypatch.setitem(registry.DEVICES.known, "webgpu", registry._Known(none, cost_models.CPU))
    monkeypatch.setattr(registry.DEVICES, "open", {})
    monkeypatch.setattr(registry.DEVICES, "auto", "")
    with settings.override(device="auto", require_webgpu=False, adapter=""):
        assert get_device("auto").name == "cpu"
        assert get_device("auto") is get_device("cpu")
    err = capsys.readouterr().err
    assert err == "anneal: no WebGPU hardware (no adapter at all); using the cpu device\n"


def test_a_required_webgpu_does_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> object:
        raise DeviceError("no adapter at all")

    monkeypatch.setitem(registry.DEVICES.known, "webgpu", registry._Known(none, cost_models.CPU))
    monkeypatch.setattr(registry.DEVICES, "open", {})
    monkeypatch.setattr(registry.DEVICES, "auto", "")
    with settings.override(device="auto", require_webgpu=True), pytest.raises(DeviceError, match="no adapter"):
        get_device("auto")


def test_programs_of_large_kernels_are_few() -> None:
    """A thousand and more of them took 480 MB, where a constant of a large kernel changed in each step of a loop."""
    device = get_device("cpu")
    device.empty_cache()
    x = Tensor(np.linspace(0.1, 1, 8, dtype=np.float32)).realize()
    known: weakref.WeakSet[layout.CpuProgram] = weakref.WeakSet()
    make = layout.CpuProgram.__init__

    def noted(self: layout.CpuProgram, *args: Any) -> None:
        make(self, *args)
        known.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout.CpuProgram, "__init__", noted)
        patch.setattr(device, "_programs", Weighed(64, 128))
        patch.setattr(device.batches, "heavy", 128)
        for known_plans in (plan._plans, late.RUNS):
            patch.setattr(known_plans, "most", 64)
        for n in range(100):
            y = x
            for k in range(24):
                y = (y * 1.01).tanh() + x.pow(1.5 + k)
            y.clamp(max=3 + n).sum().item()
        gc.collect()
        assert min(p.weight for p in known) > 2
        assert len(known) <= 80


def test_the_cpu_describes_itself() -> None:
    facts = get_device("cpu").describe()
    assert facts["name"] == "cpu"
    assert facts["cores"] >= 1
    assert "float64" in facts["dtypes"]


def test_scatters_that_were_joined_take_the_work_of_each() -> None:
    """Not of all pairs of their elements, as one table over all their ranges would."""
    n, r = 128, np.random.default_rng(0)
    places = [r.permutation(n)[: n // 8].astype(np.int32) for _ in range(4)]
    wanted = np.zeros((4, n), np.float32)
    results = []
    begun = time.process_time()
    for i, place in enumerate(places):
        wanted[i, place] = i + 1
        results.append(Tensor.zeros(n).scatter(0, Tensor(place), Tensor.full((n // 8,), float(i + 1))))
    realize(results)
    np.testing.assert_array_equal([y.numpy() for y in results], wanted)
    assert time.process_time() - begun < 3
