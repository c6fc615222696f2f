"""The tables of values and gradients with kernels in C, and programs of the fuzzers under the compiler's sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anneal.backend.cpu import compiler

FOUND = compiler.find()
TABLES = (
    "tests/tensor/test_elementwise.py",
    "tests/tensor/test_gradient.py",
    "tests/backend/cpu/test_random_kernels.py",
    *[
        pytest.param(file, marks=pytest.mark.ci)
        for file in (
            "tests/tensor/test_reduce.py",
            "tests/tensor/test_indexing.py",
            "tests/tensor/test_edge_gradients.py",
            "tests/tensor/test_symbolic.py",
            "tests/nn/test_formulas.py",
        )
    ],
)
_SANITIZED = """
import sys, pytest
from anneal.backend.cpu import compiler
compiler.FLAGS += ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1")
sys.exit(pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "not webgpu", *sys.argv[1:]]))
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


@pytest.mark.parametrize("file", TABLES)
def test_values_and_gradients_hold_in_c(file: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "not webgpu", file]
    assert " passed" in outcome(command)


@pytest.mark.ci
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
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
    script = tmp_path / "sanitized.py"
    script.write_text(_SANITIZED)
    said = outcome(
        [str(script), "tests/backend/cpu/test_random_kernels.py"],
        LD_PRELOAD=" ".join(places), ASAN_OPTIONS="detect_leaks=0", PYTHONPATH=os.getcwd(),
    )  # fmt: skip
    assert " passed" in said
