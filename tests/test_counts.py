"""Counts of the house that a reader feels: names with one owner, file names, preambles, circles of imports.

Each has a bar; where the house is above it, a number or a list here that may only fall.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.test_circles import PACKAGE, module_of

# Names of torch's and of the array API standard, which stand where those have them.
GIVEN_CLASSES = {
    "autocast": "torch.amp and torch.cuda.amp",
    "GradScaler": "torch.amp and torch.cuda.amp",
    "Identity": "torch.nn and torch.nn.utils.prune",
    "SVD": "what torch.linalg.svd and torch.svd return",
}
GIVEN_FILES = {
    "utils/data.py",
    "autograd/functional.py",
    "nn/functional.py",
    "array_api/linalg.py",
}
# Lines before a file's first definition: on average, in hundredths. The bar is 1400.
PREAMBLE = 1966


def trees(package: Path = PACKAGE) -> dict[str, ast.Module]:
    """The files of the package by their paths in it, parsed."""
    return {
        p.relative_to(package).as_posix(): ast.parse(p.read_text(encoding="utf-8"))
        for p in sorted(package.rglob("*.py"))
        if "_examples" not in p.parts
    }


@pytest.fixture(scope="module")
def package() -> dict[str, ast.Module]:
    return trees()


def test_a_public_class_name_has_one_owner(package: dict[str, ast.Module]) -> None:
    owners = defaultdict(list)
    for path, tree in package.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(path)
    several = {name for name, paths in owners.items() if len(paths) > 1} - GIVEN_CLASSES.keys()
    assert {name: owners[name] for name in several} == {}, "a class of that name stands elsewhere, too"


def test_no_file_name_stands_more_than_twice(package: dict[str, ast.Module]) -> None:
    files = defaultdict(list)
    for path in package:
        if path not in GIVEN_FILES and not path.endswith("__init__.py"):
            files[path.rpartition("/")[2]].append(path)
    assert [paths for paths in files.values() if len(paths) > 2] == []


def preamble(tree: ast.Module) -> int | None:
    """The lines before the first definition: a function, a class, or a value that is not `__all__`."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.If)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            continue
        return min([node.lineno, *[d.lineno for d in getattr(node, "decorator_list", [])]]) - 1
    return None


def test_preambles_become_shorter(package: dict[str, ast.Module]) -> None:
    lines = [n for tree in package.values() if (n := preamble(tree)) is not None]
    average = round(100 * sum(lines) / len(lines))
    assert average <= PREAMBLE, "files begin with more lines than before"
    assert average > PREAMBLE - 20, f"the average is {average / 100} now: lower PREAMBLE"


def test_a_preamble_ends_where_something_is_defined() -> None:
    assert preamble(ast.parse('"""Text."""\nimport os\n__all__ = ["f"]\n\n\n@os\ndef f(): ...')) == 5
    assert preamble(ast.parse("import os\nX = 1\n")) == 1
    assert preamble(ast.parse("import os\n")) is None


def needs(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules that a file imports anywhere, annotations' ones under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names} & modules
        elif isinstance(node, ast.ImportFrom) and node.module in modules and not node.level:
            inner = {a.name: f"{node.module}.{a.name}" for a in node.names}
            found |= {inner[name] if inner[name] in modules else node.module for name in inner}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of files that need each other, in rounds: what nobody of a set needs, or who needs nobody, goes."""

    def reached(start: str, ways: dict[str, set[str]]) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            new = ways[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    back: dict[str, set[str]] = {m: set() for m in graph}
    for m, others in graph.items():
        for other in others:
            back[other].add(m)
    out: list[set[str]] = []
    for m in sorted(graph):
        if not any(m in c for c in out) and len(found := reached(m, graph) & reached(m, back)) > 1:
            out.append(found)
    return out


def test_no_file_needs_one_that_needs_it(package: dict[str, ast.Module]) -> None:
    """Imports for annotations count. The generated stub `anneal/names.pyi` is no file of these: ops take tensors, which
    have ops as methods, and it says both."""
    names = {path: module_of(PACKAGE / path, PACKAGE) for path in package}
    graph = {names[path]: needs(tree, set(names.values())) - {names[path]} for path, tree in package.items()}
    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    tree = ast.parse("if TYPE_CHECKING:\n    from house.a import x\ndef f():\n    import house.b")
    assert needs(tree, {"house.a", "house.b"}) == {"house.a", "house.b"}
