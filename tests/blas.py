"""The kernels of NumPy's OpenBLAS that this processor can execute: `python -m tests.blas` prints those that are not its
own, and `python -m tests.blas tests` the tests that CI runs under each of them.

OpenBLAS brings a set of kernels for each family of processors and takes one by what the processor says of itself, or by
the variable OPENBLAS_CORETYPE. Two kernels sum in different orders, so a test that holds under all of them does not
depend on whose processor it runs. Each name is tried in a process of its own, because a kernel is chosen once, and
counts only if OpenBLAS says that it took it: a wheel does not bring all of them, and SapphireRapids without AVX-512
kernels is Haswell again. Where NumPy has another BLAS there is nothing to print.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

_AVX2 = {"avx2", "fma"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Name, and what of /proc/cpuinfo's flags its instructions need. On other makers' machines: what every ARMv8 executes.
KERNELS: dict[str, dict[str, set[str]]] = {
    "x86_64": {
        "Prescott": {"pni"},
        "Core2": {"pni", "ssse3"},
        "Nehalem": {"sse4_1", "sse4_2", "popcnt"},
        "Sandybridge": {"avx"},
        "Haswell": _AVX2,
        "Zen": _AVX2,
        "SkylakeX": _AVX512,
        "Cooperlake": _AVX512 | {"avx512_bf16"},
        "SapphireRapids": _AVX512 | {"avx512_bf16", "amx_tile"},
    },
    "aarch64": {"ARMV8": {"asimd"}, "NEOVERSEN1": {"asimd", "asimddp", "atomics"}, "NEOVERSEV1": {"sve", "asimddp"}},
}


# Where the cpu device multiplies matrices: of the files of tests/backend/cpu, nn, tensor and linalg and the trainings
# those in which several tests do (calls of np.matmul and np.dot were counted by test), and some random programs.
TESTS = (
    "tests/backend/cpu/test_binding.py",
    "tests/backend/cpu/test_kernels.py",
    "tests/backend/cpu/test_random_kernels.py",
    "tests/backend/cpu/test_batches.py",
    "tests/linalg/test_linalg.py",
    "tests/nn/test_attention.py",
    "tests/nn/test_formulas.py",
    "tests/nn/test_layers.py",
    "tests/nn/test_layers_beside_torch.py",
    "tests/nn/test_modules.py",
    "tests/nn/test_narrow.py",
    "tests/nn/test_optim_beside_torch.py",
    "tests/programs/test_programs.py::test_a_program_has_torchs_losses",
    "tests/tensor/test_further.py",
    "tests/tensor/test_gamma.py",
    "tests/tensor/test_gradient_tables.py",
    "tests/tensor/test_linalg.py",
    "tests/tensor/test_memory.py",
    "tests/tensor/test_reduce.py",
    "tests/test_training.py::test_a_replayed_step_copies_no_state",
    "tests/test_training.py::test_an_example_plans_two_steps_and_replays_the_others",
    "tests/test_training.py::test_the_second_step_finds_the_plan_of_the_first",
    "tests/training/test_training.py",
    "tests/transforms/test_functions.py",
    "tests/transforms/test_hooks.py::test_checkpointed_blocks_train_alike",
    *[f"tests/fuzz/test_programs.py::test_random_programs_agree[{part}-cpu]" for part in (0, 7, 14)],
)


def flags() -> set[str]:
    """What /proc/cpuinfo says that the processor executes; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    lines = (line.partition(":") for line in text.splitlines())
    return {word for name, _, words in lines if name.strip() in ("flags", "Features") for word in words.split()}


def kernel() -> str:
    """The kernel in use in this process, by OpenBLAS's own name for it; empty if NumPy's BLAS does not say."""
    package = Path(np.__file__).parent
    for path in sorted((package.parent / "numpy.libs").glob("*openblas*")):
        library = ctypes.CDLL(str(path))
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            if hasattr(library, name):
                found = getattr(library, name)
                found.restype = ctypes.c_char_p
                return bytes(found()).decode()
    return ""


def others() -> list[str]:
    """For each kernel that this processor can execute, beside the one it takes by itself, a value of
    OPENBLAS_CORETYPE.
    """
    seen, names = {_kernel_of("")}, []
    have = flags()
    for name, needed in KERNELS.get(platform.machine().lower().replace("amd64", "x86_64"), {}).items():
        if needed <= have and (found := _kernel_of(name)) and found not in seen:
            seen.add(found)
            names.append(name)
    return names


def _kernel_of(name: str) -> str:
    environ = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"} | (
        {"OPENBLAS_CORETYPE": name} if name else {}
    )
    done = subprocess.run(
        [sys.executable, "-c", "from tests.blas import kernel; print(kernel())"],
        capture_output=True, text=True, env=environ, check=False, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    print(*(TESTS if sys.argv[1:] == ["tests"] else others()))
