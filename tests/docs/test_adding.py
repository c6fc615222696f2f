"""The diffs of the short guides, docs/adding-*.md, apply to the tree as it is, and what they add works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_adding_an_op import apply, changed_tree, run, the_diff
from tests.docs.test_documents import ROOT

# By guide: the files of the package that it edits at most; then what runs in the changed tree, a file of tests with
# what chooses its cases.
GUIDES: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "docs/adding-a-torch-function.md": (1, [("tests/tensor/test_gradient_tables.py", "conv_tbc and not webgpu")]),
    "docs/adding-an-onnx-op.md": (1, [("tests/onnx/test_contrib.py", "(GatedAdd or microsoft) and not webgpu")]),
    "docs/adding-a-dtype.md": (4, [
        ("tests/uop/test_dtype.py", ""),
        ("tests/backend/webgpu/test_packed.py", "e3m4"),
        ("tests/tensor/test_dtypes.py", "e3m4 or numpy_and_printing"),
        ("tests/tensor/test_creation.py", "promotion or many_names"),
    ]),
    "docs/adding-a-dialect.md": (2, [("tests/codegen/test_dialect_c.py", "does_what_the_oracle_says")]),
    "docs/adding-an-opt.md": (2, [
        ("tests/codegen/test_opts.py", ""),
        ("tests/backend/webgpu/test_opts.py", "random"),
        ("tests/backend/webgpu/test_beam.py", "neighbours or amounts or step"),
    ]),
}  # fmt: skip


def has_openmp(folder: Path) -> bool:
    """True if this machine's C compiler knows OpenMP."""
    (folder / "empty.c").write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
    command = [shutil.which("cc") or "", "-fopenmp", "-o", "empty", "empty.c"]
    return bool(command[0]) and not subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_a_guides_diff_applies_and_its_tests_pass(guide: str, tmp_path: Path) -> None:
    if "onnx" in guide:
        pytest.importorskip("onnxruntime")
    if "dialect" in guide and not has_openmp(tmp_path):
        pytest.skip("no C compiler with OpenMP")
    (tmp_path / "tree").mkdir()
    folder = changed_tree(tmp_path / "tree", the_diff(guide))
    files = [file for file, _ in GUIDES[guide][1]]
    if "tests/tensor/test_gradient_tables.py" in files:
        pytest.importorskip("torch")
    # one process for all files: the names of a file and of its folder choose, too
    chosen = " or ".join(
        [" and ".join([*file.split("/")[-2:], *([f"({words})"] if words else [])]) for file, words in GUIDES[guide][1]]
    )
    said = run(folder, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tier", "deep", "-k", chosen, *files)
    assert all(re.search(rf"^{re.escape(file)}::.* PASSED", said, re.MULTILINE) for file in files)


def git_takes(diff: str, folder: Path) -> None:
    """`git apply` takes the diff, as the guides say: a hunk has a line of context on both sides."""
    if git := shutil.which("git"):
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
        found = subprocess.run(
            [git, "apply", "--check"],
            cwd=folder,
            env=environment,
            input=diff,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_edits_few_files_of_the_package(guide: str, tmp_path: Path) -> None:
    names = [line[6:] for line in the_diff(guide).splitlines() if line.startswith("+++ b/")]
    rooms = [name.partition("/")[0] for name in names]
    assert rooms == sorted(rooms)
    assert set(rooms) == {"anneal", "tests"}
    assert rooms.count("anneal") == GUIDES[guide][0]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path / name)
    git_takes(the_diff(guide), tmp_path)
    assert apply(the_diff(guide), tmp_path) == names
