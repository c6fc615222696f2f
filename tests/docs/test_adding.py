"""The diffs of the short guides, docs/adding-*.md, apply to the tree as it is, and what they add works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_adding_an_op import apply, changed_tree, run, the_diff

# By guide: the file of tests that it adds a case to, and what chooses the case.
GUIDES = {
    "docs/adding-a-torch-function.md": ("tests/tensor/test_gradient_tables.py", "conv_tbc"),
    "docs/adding-an-onnx-op.md": ("tests/onnx/test_contrib.py", "GatedAdd or microsoft"),
}


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_a_guides_diff_applies_and_its_tests_pass(guide: str, tmp_path: Path) -> None:
    if "onnx" in guide:
        pytest.importorskip("onnxruntime")
    folder = changed_tree(tmp_path, the_diff(guide))
    file, chosen = GUIDES[guide]
    if "gradient_tables" in file:
        pytest.importorskip("torch")
    pytest_of = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier", "deep")
    assert " passed" in run(folder, *pytest_of, "-k", f"({chosen}) and not webgpu", file)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_edits_one_file_of_the_package(guide: str, tmp_path: Path) -> None:
    names = [line[6:] for line in the_diff(guide).splitlines() if line.startswith("+++ b/")]
    assert [name.partition("/")[0] for name in names] == ["anneal", "tests"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(Path(name).read_text(encoding="utf-8"), encoding="utf-8")
    assert apply(the_diff(guide), tmp_path) == names
