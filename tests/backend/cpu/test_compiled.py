"""Kernels of the cpu in C: what runs them, what they are kept in, and what happens where none can be had."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.backend import compiler, get_device
from anneal.backend.cpu import CpuDevice, products
from anneal.backend.cpu.in_c import CKernels
from anneal.backend.cpu.primitives import SHARED
from anneal.backend.cpu.workers import address
from anneal.uop import Op, UOp, const
from anneal.uop.sizes import variables_of
from tests.backend.cpu import kernels as K

FOUND = compiler.find()
pytestmark = pytest.mark.skipif(FOUND is None, reason="this machine has no C compiler")


@pytest.fixture
def in_c(tmp_path: Path) -> Iterator[CpuDevice]:
    """The cpu device with kernels in C, none made yet, and a cache of its own."""
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    before = vars(device).pop("kernels", None)
    known = dict(SHARED.libraries)
    SHARED.libraries.clear()
    try:
        with settings.override(cpu="c", cache=True, cache_dir=str(tmp_path)):
            yield device
    finally:
        vars(device).pop("kernels", None)
        if before is not None:
            device.kernels = before
        SHARED.libraries.update(known)


def step(x: an.Tensor, w: an.Tensor) -> an.Tensor:
    return ((x @ w).tanh() * 2 + x.sum(1, keepdim=True)).sum(0)


def doubling(n: int) -> UOp:
    i = K.loop(0, n)
    x = K.load(K.param(1, n), i)
    return K.kernel(K.store(K.param(0, n), i, x + x))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = x.astype(np.float64)
    return (np.tanh(y @ w) * 2 + y.sum(1, keepdims=True)).sum(0)  # type: ignore[no-any-return]


def runs(rows: int = 40) -> np.ndarray:
    x, w = numbers(rows, 64), numbers(64, 64) / 8
    found = step(an.tensor(x), an.tensor(w)).numpy()
    np.testing.assert_allclose(found, expected(x, w), rtol=1e-4, atol=1e-4)
    return found


def launched(device: CpuDevice) -> int:
    """How many kernels the device has in C."""
    return sum(p is not None for p in device.kernels._programs.values())


def test_kernels_run_in_c(in_c: CpuDevice) -> None:
    runs()
    assert launched(in_c)
    assert not in_c.kernels.failed


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_a_reduce_over_a_range_that_its_value_lacks(in_c: CpuDevice, op: Op) -> None:
    inner = K.over(1, 3)
    value = K.reduce(op, K.load(K.param(1, 3, K.I32), inner), K.over(0, 4), inner)
    zero = const(K.I32, 0)
    K.check(K.kernel(K.store(K.param(0, 1, K.I32), zero, value)), np.zeros(1, np.int32), np.array([3, -5, 4], np.int32))
    assert launched(in_c) == 1
    assert not in_c.kernels.failed


def test_without_being_asked_for_nothing_is_compiled(in_c: CpuDevice) -> None:
    with settings.override(cpu="numpy"):
        runs(41)
    assert "kernels" not in vars(in_c)


def test_any_number_of_threads_gives_the_same_bits(in_c: CpuDevice) -> None:
    found = []
    for threads in (1, 2, 3, 8):
        in_c.kernels.threads = threads
        x = an.tensor(numbers(300, 200))
        found.append((x.exp().sum(1) + (x * x).sum(1)).numpy())
    assert all((f == found[0]).all() for f in found)


@pytest.mark.parametrize("again", [False, True], ids=["new", "recalled"])
def test_products_of_symbolic_sizes_are_blas_s(in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """The rows, the columns and the terms of a sum are so many as a variable says."""
    monkeypatch.setattr(products, "_FEW", 0)
    monkeypatch.setattr(products, "_FEW_DOTS", 0)
    x, w = numbers(3, 128, 64), numbers(64, 96) / 8
    rows = an.Variable("rows", 1, 8)

    @an.jit
    def f(x: an.Tensor, w: an.Tensor, rows: UOp) -> tuple[an.Tensor, an.Tensor]:
        y = (x[:, : rows * 16] @ w).tanh()
        return y.sum(1), ((y @ y.transpose(1, 2)).exp() @ y).sum(1)

    for _ in range(2 if again else 1):
        vars(in_c).pop("kernels", None)
        for n in (1, 8, 3, 5):
            y = np.tanh(x[:, : 16 * n].astype(np.float64) @ w)
            found = f(an.tensor(x), an.tensor(w), rows.bind(n))
            wanted = y.sum(1), (np.exp(y @ y.swapaxes(1, 2)) @ y).sum(1)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-3, atol=np.abs(b).max() * 1e-5)
        f = an.jit(f.__wrapped__)
    parts = [p for made in in_c.kernels._programs.values() if made for p in made.parts]
    by_blas = [p for p in parts if p.symbol == "multiply"]
    assert sum(any(map(variables_of, p.sizes[1:])) for p in by_blas) >= 3


@pytest.mark.parametrize(("width", "blas"), [(1000, False), (1024, True)])
def test_small_products_are_blas_s_where_rows_share_lines_of_the_cache(in_c: CpuDevice, width: int, blas: bool) -> None:
    x, w = numbers(32, 128), numbers(128, width) / 8
    found = (an.tensor(x) @ an.tensor(w)).numpy()
    np.testing.assert_allclose(found, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)
    parts = [p for made in in_c.kernels._programs.values() if made for p in made.parts]
    assert any(p.symbol == "multiply" for p in parts) == blas


@pytest.mark.parametrize("turned", [False, True])
def test_windows_over_rows_are_blas_s_where_no_range_runs_along_all_memory(in_c: CpuDevice, turned: bool) -> None:
    x, w = numbers(68, 48), numbers(40, 48, 5) / 8
    a = an.tensor(x if turned else np.ascontiguousarray(x.T))
    found = an.nn.functional.conv1d((a.T if turned else a)[None], an.tensor(w)).numpy()[0]
    wanted = np.einsum("ctw,ocw->ot", np.lib.stride_tricks.sliding_window_view(x.T.astype(np.float64), 5, 1), w)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    parts = [p for made in in_c.kernels._programs.values() if made for p in made.parts]
    assert any(p.symbol == "multiply" for p in parts) == turned


# -- when it is compiled: ANNEAL_CPU=auto


def test_a_jit_function_is_in_c_from_its_first_call_on(in_c: CpuDevice) -> None:
    x, w = an.tensor(numbers(46, 64)), an.tensor(numbers(64, 64) / 8)
    before = dict(in_c._programs)
    with settings.override(cpu="auto"):
        f = an.jit(step)
        found = [f(x, w).numpy() for _ in range(3)]
    assert launched(in_c)
    assert in_c._programs == before
    assert all((y == found[0]).all() for y in found)


LOOP = """
import sys
import numpy as np
import anneal as an
from anneal.backend import get_device
from anneal.backend.cpu import executor
executor._COMPILING_NS = int(sys.argv[1])
device, first, step = get_device("cpu"), 0, eval("lambda w: " + sys.argv[3])
w = an.tensor(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
for n in range(int(sys.argv[2])):
    w = step(w)
    print(w.sum().item())
    if not first and 'kernels' in vars(device) and any(device.kernels._programs.values()):
        first = n
print(first)
"""


STEPS = {
    "ops": "w - (w.tanh() * 3).sum(0, keepdim=True).sin() * 0.01",
    "a loop": "an.scan(lambda c, x: ((c + x.sin()) * 0.9, None), w, w.expand(3, 64, 64))[0]",
    "loops in a loop": "an.fori_loop(0, 2, lambda i, c: an.fori_loop(0, 3, lambda j, d: d.tanh() * 1.1 + j, c), w)",
    "a choice": "an.cond(w.sum() > 1e9, lambda w: w * 2, lambda w: (w.tanh() * 3).sin(), w)",
}


@pytest.mark.parametrize("step", STEPS)
def test_an_eager_loop_is_in_c_once_it_has_run_often(tmp_path: Path, step: str) -> None:
    """Its runs are counted, not its time; so each process gives the same bits, whatever the cache has."""
    env = {**os.environ, "ANNEAL_CPU": "auto", "ANNEAL_CACHE": "1", "ANNEAL_CACHE_DIR": str(tmp_path)}

    def runs(compiling: int, steps: int) -> list[str]:
        command = [sys.executable, "-c", LOOP, str(compiling), str(steps), STEPS[step]]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()

    pays = 1_000_000 if "loop" in step else 100_000  # a step has several turns
    found = runs(pays, 40)
    first = int(found[-1])
    assert 3 < first < 40
    assert runs(pays, 40) == found
    assert runs(pays, first - 1)[-1] == "0"
    assert runs(10**12, 40)[-1] == "0"


@pytest.mark.parametrize("cpu", ["auto", "c"])
def test_who_has_no_compiler_is_told_only_if_c_was_asked_for(
    in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cpu: str
) -> None:
    monkeypatch.setattr(compiler, "find", lambda: None)
    with settings.override(cpu=cpu):
        f = an.jit(step)
        for _ in range(3):
            f(an.tensor(numbers(47, 64)), an.tensor(numbers(64, 64))).numpy()
    assert ("no C compiler" in capsys.readouterr().err) is (cpu == "c")


# -- what there may not be


def test_a_machine_without_a_compiler_runs_numpy_and_says_so_once(
    in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiler, "find", lambda: None)
    runs(42)
    runs(43)
    assert launched(in_c) == 0
    assert capsys.readouterr().err.count("no C compiler") == 1


def test_windows_runs_numpy_and_the_doctor_says_why(in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find", compiler.find.__wrapped__)
    with settings.override(cpu="auto"), monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "win32")
        assert in_c._made_by() == "NumPy (kernels in C need POSIX threads, which Windows lacks)"
        assert in_c.why_numpy()


def test_the_command_of_macos_that_asks_for_a_compiler_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(compiler, "_identity", lambda path: (path,))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "darwin")
        patched.setattr(compiler, "_TOOLS", ("/nowhere",))
        found = compiler.find.__wrapped__()
        patched.setattr(compiler, "_TOOLS", ("/",))
        assert (found, compiler.find.__wrapped__()) == (None, compiler.Compiler(("/usr/bin/cc",), ("/usr/bin/cc",)))


@pytest.mark.parametrize(
    "text", ["echo it is broken >&2; exit 3", "exit 0"], ids=["an error", "no library"]
)  # fmt: skip
def test_a_compiler_that_fails_leaves_the_work_to_numpy(
    in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    broken = tmp_path / "cc"
    broken.write_text(f"#!/bin/sh\n{text}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(compiler, "find", lambda: compiler.Compiler((str(broken),), ("broken",)))
    runs(50 + len(text))
    said = capsys.readouterr().err
    assert said.startswith("anneal: NumPy runs the kernels of the cpu: ")
    assert said.count("\n") == 1 or "it is broken" in said
    assert launched(in_c) == 0


@pytest.mark.parametrize("pool", [False, True], ids=["the first", "a later one"])
def test_a_kernel_that_the_compiler_refuses_is_numpys_alone(
    in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pool: bool
) -> None:
    """One such kernel left all that the process ran later to NumPy."""
    if pool:
        runs(46)
    part = CKernels._part

    def broken(self: CKernels, sink: Any) -> Any:
        made = part(self, sink)
        if made.head and "sin" in made.text:
            made.text = made.text.replace("{", "{ int x = 0.5 + ;", 1)
        return made

    monkeypatch.setattr(CKernels, "_part", broken)
    x = numbers(47, 31 + pool)
    rows, other = an.tensor(x).exp().sum(1), an.tensor(x).sin().sum(0)
    an.realize([rows, other])
    np.testing.assert_allclose(rows.numpy(), np.exp(x).sum(1), rtol=1e-5)
    np.testing.assert_allclose(other.numpy(), np.sin(x).sum(0), rtol=1e-4, atol=1e-5)
    assert not in_c.kernels.failed
    assert launched(in_c) >= 1
    (reason,) = in_c.kernels.refused.values()
    assert reason in in_c._made_by()
    assert capsys.readouterr().err.count("which C's compiler refuses") == 1
    before = launched(in_c)
    runs(48 + pool)
    assert launched(in_c) > before
    assert (an.tensor(x).exp().sum(1) - rows).abs().max().item() < 1e-3


def test_a_full_disk_leaves_the_work_to_numpy(
    in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, *args: object, **options: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    runs(45)
    assert "No space left on device" in capsys.readouterr().err


def test_the_compiler_gets_our_own_words_and_no_shell(in_c: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    run = subprocess.Popen

    def noted(command: object, **options: object) -> object:
        commands.append((command, options))
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", noted)
    layer = an.nn.Linear(4, 4)
    layer.register_buffer("a; touch evil", an.tensor(numbers(3, 4)))
    (layer(an.tensor(numbers(3, 4))) + 1).numpy()
    assert commands
    for command, options in commands:
        assert isinstance(command, tuple)
        assert not options.get("shell")
        rest = command[len(FOUND.command) :] if FOUND else ()
        assert all(word in compiler.FLAGS or word in ("-o", "-lm") or word[:4] == "unit" for word in rest)


# -- the cache


def files(where: Path) -> list[Path]:
    return sorted((where / "native").iterdir())


def doubled(device: CpuDevice) -> None:
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    device.prepare([(device.compile(doubling(5)), [y, x])]).run()
    assert y.tolist() == [0, 2, 4, 6, 8]


def again(device: CpuDevice) -> int:
    """Run in what is as good as a new process; how many libraries were compiled."""
    vars(device).pop("kernels", None)
    SHARED.libraries.clear()
    made: list[int] = []
    whole = compiler._compiled

    def counted(texts: list[str], found: compiler.Compiler) -> list[bytes]:
        made.append(len(texts))
        return whole(texts, found)

    compiler._compiled = counted  # type: ignore[assignment]
    try:
        doubled(device)
    finally:
        compiler._compiled = whole
    return sum(made)


def test_the_next_process_compiles_nothing(in_c: CpuDevice, tmp_path: Path) -> None:
    doubled(in_c)
    assert again(in_c) == 0
    assert launched(in_c)


@pytest.mark.parametrize("how", ["cut", "changed", "of others", "a link"])
def test_a_library_that_is_not_as_it_was_written_is_made_again(in_c: CpuDevice, tmp_path: Path, how: str) -> None:
    doubled(in_c)
    for path in files(tmp_path):
        text = path.read_bytes()
        if how == "cut":
            path.write_bytes(text[: len(text) // 2])
        elif how == "changed":
            path.write_bytes(text[:-30] + bytes([text[-30] ^ 1]) + text[-29:])
        elif how == "of others":
            path.chmod(0o666)
        else:
            path.rename(path.with_suffix(".moved"))
            path.symlink_to(path.with_suffix(".moved"))
    assert again(in_c) > 0


def test_nothing_is_left_half_written(in_c: CpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(folder))
    doubled(in_c)
    assert [*folder.iterdir()] == []
    assert all(len(path.name) == 32 for path in files(tmp_path))
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o022 for path in files(tmp_path))


STOPPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which who started the tests may have had ignored
from anneal.backend import compiler
compiler.find = lambda: compiler.Compiler((sys.argv[1],), ("slow",))
import anneal as an
print("begun", flush=True)
try:
    (an.tensor([1.0, 2.0]) * 2).exp().numpy()
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def test_ctrl_c_while_it_compiles_ends_the_compiler(tmp_path: Path) -> None:
    """Pressed in a process of its own: the tests' would carry it on."""
    slow, started, folder = tmp_path / "cc", tmp_path / "started", tmp_path / "temporary"
    slow.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 60\n")
    slow.chmod(0o755)
    folder.mkdir()
    env = {**os.environ, "ANNEAL_CPU": "c", "ANNEAL_CACHE": "0", "TMPDIR": str(folder)}
    command = [sys.executable, "-c", STOPPED, str(slow)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert time.monotonic() - begun < 30
    assert [*folder.iterdir()] == []


def test_a_library_is_closed_once_no_program_has_its_functions(in_c: CpuDevice) -> None:
    doubled(in_c)
    gc.collect()
    left = len(SHARED.libraries)
    in_c.kernels._programs.clear()
    gc.collect()
    assert [*SHARED.libraries.values()] == [in_c.kernels.pool]
    assert left > 1


# -- threads and processes


def test_two_threads_at_once(in_c: CpuDevice) -> None:
    f = an.jit(step)
    x, w = numbers(400, 64), numbers(64, 64) / 8
    right = expected(x, w)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                np.testing.assert_allclose(f(an.tensor(x), an.tensor(w)).numpy(), right, rtol=1e-3, atol=1e-3)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_a_pool_of_its_own(in_c: CpuDevice) -> None:
    in_c.kernels.threads = 3
    big = an.tensor(numbers(500, 500))
    right = (big * 2 + 1).exp().sum(1).numpy()
    child = os.fork()
    if child == 0:
        same = ((big * 2 + 1).exp().sum(1).numpy() == right).all()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ((big * 2 + 1).exp().sum(1).numpy() == right).all()


def test_idle_workers_sleep(in_c: CpuDevice) -> None:
    in_c.kernels.threads = 4
    an.tensor(numbers(600, 600)).exp().sum(1).numpy()
    time.sleep(0.05)
    begun = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begun < 0.05


def test_the_pool_runs_each_workgroup_once(tmp_path: Path) -> None:
    """A table with launches of all sizes, by more threads than there are cores."""
    assert FOUND is not None
    counting = (
        "#include <stdatomic.h>\n"
        "void count(void **memory, long begin, long end) {\n"
        "  for (long i = begin; i < end; i += 1) atomic_fetch_add((_Atomic int *)memory[0] + i, 1);\n"
        "}\n"
    )
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        kernels = CKernels(7)
        kernels._load([], FOUND)
        (library,) = compiler.libraries([counting], FOUND, SHARED.libraries)
    function = address(library["count"])
    sizes = [1, 2, 3, 5, 64, 100, 1000]
    counts = [np.zeros(n, np.int32) for n in sizes]
    memory = [np.array([c.ctypes.data], np.uint64) for c in counts]
    groups = np.array(sizes, np.int32)
    rows = np.array(
        [
            [function, m.ctypes.data, groups.ctypes.data + 4 * n, 10_000 * (1 + k % 9)]
            for k in range(30)
            for n, m in enumerate(memory)
        ],
        np.int64,
    )
    for _ in range(100):
        kernels.pool.run(rows.ctypes.data, len(rows), 7)
    assert all((c == 3000).all() for c in counts)


def test_memory_that_is_written_and_read_under_two_names_is_numpys(in_c: CpuDevice) -> None:
    program = in_c.compile(doubling(4))
    x = np.arange(4, dtype=np.float32)
    in_c.prepare([(program, [x, x])]).run()
    assert x.tolist() == [0, 2, 4, 6]


def test_a_launch_costs_a_microsecond_of_python(in_c: CpuDevice) -> None:
    """A table of 100 launches is one call: its cost does not grow with them."""
    program = in_c.compile(doubling(4))
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    batch = in_c.prepare([(program, [y, x])] * 100)
    assert len(batch._steps) == 1
    batch.run()
    assert y.tolist() == [0, 2, 4, 6]


def test_halves_have_the_bits_of_numpys(in_c: CpuDevice) -> None:
    """By instructions where the processor has them: every half, and floats of all exponents."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = halves.astype(np.float32)
    found = an.tensor(halves).float().numpy()
    assert ((found.view(np.uint32) == wide.view(np.uint32)) | (np.isnan(found) & np.isnan(wide))).all()
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint64).astype(np.uint32)
    with np.errstate(all="ignore"):
        floats = np.concatenate([wide, np.nextafter(wide, np.float32(np.inf)), bits.view(np.float32)])
        narrow = floats.astype(np.float16)
    made = (an.tensor(floats) * 1).half().numpy()
    same = (made.view(np.uint16) == narrow.view(np.uint16)) | (np.isnan(made) & np.isnan(narrow))
    assert same.all(), (floats[~same][:5], made[~same][:5], narrow[~same][:5])


def test_bfloat16_is_the_upper_half_of_a_float_rounded_to_even(in_c: CpuDevice) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper, upper + 0x7FFF, upper + 0x8000, upper + 0x8001])
    floats, nan = bits.view(np.float32), np.isnan(bits.view(np.float32))
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    made = (an.tensor(floats) * 1).bfloat16().float().numpy()
    assert (np.isnan(made) == nan).all()
    assert (made.view(np.uint32)[~nan] >> 16 == rounded[~nan]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_remainders_and_quotients_of_floats_have_the_bits_of_numpys(in_c: CpuDevice, dtype: type) -> None:
    """float32 divides without the C library where quotients are small; here are small, large and special ones."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    some = [0.0, 1.0, 0.1, 3.0, 1e-3, 2.0**27, 2.0**28, 2.0**28 + 32, 1e9, info.tiny, info.smallest_subnormal, info.max]
    special = np.array([*some, np.inf, np.nan], dtype)
    special = np.concatenate([special, -special])
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    whole, steps = rng.integers(-60, 60, (2, 4096)).astype(dtype)
    normal = rng.standard_normal((2, 4096)).astype(dtype)
    words = rng.integers(0, 1 << 32, (2, 4096 * info.bits // 32), np.uint64).astype(np.uint32).view(dtype)
    close = whole * normal[1] * dtype(1 + info.eps)  # a quotient beside a whole number
    x = np.concatenate([x, whole, whole * dtype(0.1), normal[0] * dtype(1e6), words[0], close])
    y = np.concatenate([y, steps, np.full(4096, 0.1, dtype), normal[1], words[1], normal[1]])
    with np.errstate(all="ignore"):
        expected = np.remainder(x, y), np.floor_divide(x, y)
    for name, found, right in zip(
        "%/", an.jit(lambda a, b: (a % b, a // b))(an.tensor(x), an.tensor(y)), expected, strict=True
    ):
        found = found.numpy()
        bad = np.flatnonzero((found.view(f"u{info.bits // 8}") != right.view(f"u{info.bits // 8}")) & ~np.isnan(right))
        assert not bad.size, [(x[i], name, y[i], found[i], right[i]) for i in bad[:5]]
        assert (np.isnan(found) == np.isnan(right)).all()
