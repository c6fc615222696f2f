"""What the site teaches runs: each page of docs/ as one program, each notebook, each example of other documents."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from anneal import settings
from tests.docs.notebooks import NEAR, NOTEBOOKS, fresh, same, shown
from tests.docs.snippets import FENCE, agrees, blocks, pages, printed
from tests.docs.test_documents import DOCUMENTS, EXAMPLE, ROOT, read

# Pages whose program does on a GPU what it does on the cpu.
TAUGHT = "docs/first-hour.md"


@pytest.mark.parametrize("name", [name for name in pages() if blocks(read(name))])
def test_a_page_is_a_program_that_prints_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(name, "cpu", tmp_path, monkeypatch)


def test_the_tour_looks_at_one_kernel() -> None:
    """The lines of kernel 0 that have an origin (section 6) are lines of its text (section 5)."""
    text = read("docs/compiler-tour.md")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [s.partition("\n")[0] for s in sections if "kernel 0" in s.partition("\n")[0]] == [
        s.partition("\n")[0] for s in sections[4:7]
    ]
    written, origins = ([b.expected or "" for b in blocks(s)][-1].splitlines() for s in sections[5:7])
    lines = [line.rpartition(" | ") for line in origins]
    assert lines
    assert [said for said, _, _ in lines if f"  {said}" not in written] == []
    # The numbers are those of the page.
    named = {int(number): text.splitlines()[int(number) - 1].partition(" = ")[0] for _, _, number in lines}
    assert named == {16: "x", 18: "loss"}


@pytest.mark.ci
def test_the_first_hour_is_the_same_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, webgpu: str) -> None:
    with settings.override(require_webgpu=True):
        _run(TAUGHT, webgpu, tmp_path, monkeypatch)


def _run(name: str, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = read(name)
    found = blocks(text)
    if importlib.util.find_spec("torch") is None:
        found = [block for block in found if "torch" not in block.code]
    for block, said in printed(name, found, device):
        shown = block.code if block.kind == "console" else block.expected
        assert shown is not None or not said, f"{name}:{block.line} prints and shows nothing:\n{said}"
        assert agrees(shown or "", said), f"{name}:{block.line} printed\n{said}\nand shows\n{shown}"


def test_an_output_agrees_where_dots_stand_for_the_rest() -> None:
    assert agrees("a\n...\nb", "a\n1\n2\nb")
    assert agrees("a ... b", "a 17 b")
    assert agrees("a.b", "a.b")
    assert not agrees("a ... b", "a 17")
    assert not agrees("a\nb", "a\n1\nb")
    assert not agrees("a.b", "axb")


def test_a_page_that_prints_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = "```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    (first, _), (second, said) = printed("page", blocks(page), "cpu")
    assert first.expected is None
    assert second.expected == "3\n"
    assert said == "2\n"
    assert not agrees(second.expected, said)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert same(fresh(notebook, path.stem), shown(notebook)), "python -m tests.docs.notebooks writes the outputs anew"


def test_a_picture_that_is_another_is_found() -> None:
    def drawn(height: float, mark: str = "1.1") -> list[list[dict[str, Any]]]:
        svg = f'<svg><polyline points="40,170 60,{height}" fill="none"/><text>{mark}</text></svg>'
        return [[{"data": {"image/svg+xml": [svg]}}]]

    assert same(drawn(20), drawn(20 + NEAR))
    assert not same(drawn(20), drawn(21 + NEAR))
    assert not same(drawn(20), drawn(20, "1.2"))
    assert not same(drawn(20), [[]])


def test_the_training_notebook_shows_its_curve_and_its_points() -> None:
    notebook = json.loads((ROOT / "docs/notebooks/training.ipynb").read_text(encoding="utf-8"))
    pictures = ["".join(o["data"]["image/svg+xml"]) for cell in shown(notebook) for o in cell if "svg" in str(o)]
    assert [len(re.findall(r"<path|<polyline", picture)) for picture in pictures] == [3, 2]
    assert all("<title>" in picture and len(picture) < 10_000 for picture in pictures)


def test_there_are_three_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-steps", "onnx", "training"]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in pages()])
def test_all_python_of_a_document_is_an_example_that_runs(name: str) -> None:
    """A block of Python without an output would be run by nobody."""
    text = read(name)
    run = {match.start() for match in EXAMPLE.finditer(text)}
    alone = [match for match in FENCE.finditer(text) if match[1] == "python" and match.start() not in run]
    assert [f"{name}:{text[: match.start()].count(chr(10)) + 1}" for match in alone] == []


def test_no_page_hides_python_from_the_runner() -> None:
    for name in pages():
        text = read(name)
        fences = re.findall(r"^```(\w*)$", text, re.MULTILINE)
        assert set(fences) <= {"", "python", "console", "text", "log", "sh", "js"}, name
        assert fences.count("python") == sum(block.kind == "python" for block in blocks(text)), name
    assert (ROOT / TAUGHT).exists()
