"""Sizes: no file over 600 lines and no function over 60, but for those below, which may shrink and not grow.

Who splits one of them takes it off its list; nothing is added. A function that stays long says why in the first comment
of its body ("One function of ... lines: ...").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
FILES = {
    "anneal/tensor/_tensor.py": 770,  # one class: its state, and what goes in and out
}
FUNCTIONS = {
    "anneal/rewrite/driver.py graph_rewrite": 70,
    "anneal/uop/node.py add": 97,
}


def sources() -> Iterator[tuple[str, str]]:
    """Every file of the package that people write, by its path."""
    for path in sorted((ROOT / "anneal").rglob("*.py")):
        if not path.name.endswith("_rules.py") and not {"_generated", "_examples"} & set(path.parts):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def functions(name: str, text: str) -> Iterator[tuple[str, int]]:
    """Each function of a file with its number of lines from `def` on."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            yield f"{name} {node.name}", node.end_lineno - node.lineno + 1


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, int], dict[str, int]]:
    files: dict[str, int] = {}
    longest: dict[str, int] = {}
    for name, text in sources():
        files[name] = text.count("\n")
        for function, lines in functions(name, text):
            longest[function] = max(lines, longest.get(function, 0))
    return files, longest


def test_no_file_is_longer_than_one_reads_at_a_time(found: tuple[dict[str, int], dict[str, int]]) -> None:
    check(found[0], FILES, LONGEST_FILE)


def test_no_function_is_longer_than_a_screen(found: tuple[dict[str, int], dict[str, int]]) -> None:
    check(found[1], FUNCTIONS, LONGEST_FUNCTION)


def check(found: dict[str, int], listed: dict[str, int], most: int) -> None:
    long = {name: lines for name, lines in found.items() if lines > most}
    assert [f"{name}: {lines} lines" for name, lines in long.items() if lines > listed.get(name, most)] == []
    assert [name for name in listed if name not in long] == [], "these are short now: take them off the list"


def test_a_long_function_is_found(tmp_path: Path) -> None:
    text = "@decorated\ndef short():\n    pass\n\n\nclass C:\n    def long(self):\n" + "        x = 1\n" * 60
    assert dict(functions("file.py", text)) == {"file.py short": 2, "file.py long": 61}
    with pytest.raises(AssertionError, match=r"file.py long: 61 lines"):
        check(dict(functions("file.py", text)), {}, LONGEST_FUNCTION)
    with pytest.raises(AssertionError, match="take them off the list"):
        check({}, {"gone.py": 700}, LONGEST_FILE)
