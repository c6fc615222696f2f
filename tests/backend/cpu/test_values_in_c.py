"""The tables of values and gradients with kernels in C, and programs of the fuzzers under the compiler's sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anneal.backend import compiler
from tests.backend.cpu.in_batches import ALONE, ONE_OF

FOUND = compiler.find()
RANDOM = "tests/backend/cpu/test_random_kernels.py"
# files with so many kernels that it pays to compile them together
MANY = ("elementwise", "reduce", "edge_gradients", "symbolic", "indexing")
# Files, and of how many of their tests one runs: everywhere, and in CI; `make deep` runs all.
EVERYWHERE = {"tests/tensor/test_elementwise.py": 2, "tests/tensor/test_gradient.py": 2, RANDOM: 3}
IN_CI = {
    "tests/tensor/test_reduce.py": 4,
    "tests/tensor/test_indexing.py": 4,
    "tests/tensor/test_edge_gradients.py": 8,
    "tests/tensor/test_symbolic.py": 6,
    "tests/nn/test_formulas.py": 2,
}
TABLES = [
    *EVERYWHERE.items(),
    *[pytest.param(file, of, marks=pytest.mark.ci) for file, of in IN_CI.items()],
    *[pytest.param(file, 1, marks=pytest.mark.deep) for file in (*EVERYWHERE, *IN_CI)],
]
# The tests of a file, and what else in_batches.py takes; or programs of the fuzzer, from the first seed on, with each
# array of memory as long as it is, so that one element more is seen; with a third argument, a pointer's type, every
# kernel stores one element too far. Without optimisation no access is dropped before it is looked at, and a kernel
# compiles in half the time.
_SANITIZED = """
import dataclasses, os, sys
del os.environ["LD_PRELOAD"]  # it is loaded here; the compiler, its assembler and its linker need none
import numpy as np
from anneal.backend import compiler
from anneal.backend.cpu import executor, in_c
from tests.fuzz.programs import run
compiler.FLAGS += ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O0")
if sys.argv[1].startswith("tests/"):
    from tests.backend.cpu import in_batches
    sys.exit(in_batches.run([in_batches.ALONE, *sys.argv[1:]]))
executor._aligned = lambda nbytes: np.empty(nbytes, np.uint8)
first, count = map(int, sys.argv[1:3])
if sys.argv[3:]:
    right = in_c.generate
    def shifted(*args):
        made = right(*args)
        text = made.source.replace("p0 = memory[0]", f"p0 = 1 + ({sys.argv[3]})memory[0]")
        return dataclasses.replace(made, source=text)
    in_c.generate = shifted
failures = run(range(first, first + count), ["cpu"], 25)
sys.exit("\\n".join(map(str, failures)) or 0)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(FOUND is None, reason="this machine has no C compiler"),
]


def outcome(command: list[str], **variables: str) -> str:
    environ = {**os.environ, "ANNEAL_CPU": "c", **variables}
    done = subprocess.run(
        [sys.executable, *command], env=environ, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert "NumPy runs the kernels" not in done.stderr
    return done.stdout


_BY = """
import shutil, sys
from anneal.backend import compiler
from tests.backend.cpu import in_batches
found = shutil.which(sys.argv[1])
compiler.find = lambda: compiler.Compiler((found,), compiler._identity(found))
sys.exit(in_batches.run(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("name", "of"),
    [
        pytest.param("gcc", 4, marks=pytest.mark.ci),
        pytest.param("clang", 8, marks=pytest.mark.ci),
        *[pytest.param(name, 1, marks=pytest.mark.deep) for name in ("gcc", "clang")],
    ],
)
def test_values_hold_by_each_compiler(tmp_path: Path, name: str, of: int) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"this machine has no {name}")
    script = tmp_path / "by.py"
    script.write_text(_BY)
    by = [str(script), name]
    assert " passed" in outcome([*by, f"{ONE_OF}{of}", "tests/backend/cpu/test_kernels.py"], PYTHONPATH=os.getcwd())
    if FOUND is not None and compiler._identity(shutil.which(name) or "") != FOUND.identity:
        # what the package itself takes compiles these in the table
        assert " passed" in outcome([*by, f"{ONE_OF}6", ALONE, RANDOM], PYTHONPATH=os.getcwd())


@pytest.mark.parametrize(("file", "of"), TABLES)
def test_values_and_gradients_hold_in_c(file: str, of: int) -> None:
    alone = [] if any(name in file for name in MANY) else [ALONE]
    assert " passed" in outcome(["-m", "tests.backend.cpu.in_batches", *alone, f"{ONE_OF}{of}", file])


def sanitized(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Programs in C that look at each access and each operation."""
    assert FOUND is not None
    if "gcc" not in compiler.version(FOUND).lower() and "debian" not in compiler.version(FOUND).lower():
        pytest.skip("the libraries of the sanitizers are found by gcc alone")
    libraries = [
        subprocess.run([*FOUND.command, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    places = [done.stdout.strip() for done in libraries]
    if not all(os.path.isabs(place) for place in places):
        pytest.skip("this compiler has no sanitizers")
    script = folder / "sanitized.py"
    script.write_text(_SANITIZED)
    environ = {
        **os.environ, "ANNEAL_CPU": "c", "ANNEAL_CACHE": "0", "LD_PRELOAD": " ".join(places),
        "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": os.getcwd(),
    }  # fmt: skip
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=1800)


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, 15, marks=pytest.mark.ci),
        *[pytest.param(n, 250, marks=pytest.mark.deep) for n in range(15, 2015, 250)],
    ],
)
def test_sanitizers_find_nothing_in_programs_of_the_fuzzer(tmp_path: Path, first: int, count: int) -> None:
    done = sanitized(tmp_path, first, count)
    assert done.returncode == 0, done.stderr[-5000:]
    assert "NumPy runs the kernels" not in done.stderr


@pytest.mark.parametrize("of", [pytest.param(8, marks=pytest.mark.ci), pytest.param(1, marks=pytest.mark.deep)])
def test_sanitizers_find_nothing_in_random_kernels(tmp_path: Path, of: int) -> None:
    done = sanitized(tmp_path, RANDOM, f"{ONE_OF}{of}")
    assert " passed" in done.stdout, done.stdout[-5000:] + done.stderr
    assert done.returncode == 0


@pytest.mark.ci
def test_sanitizers_find_a_planted_bug(tmp_path: Path) -> None:
    done = sanitized(tmp_path, 0, 1, "float *")
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr
