"""No circles of files: in no room is there a file that needs, by whatever way, a file that needs it.

Imports inside functions count, since they only put a circle off; those under TYPE_CHECKING do not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "anneal"
ROOMS = sorted(p.parent.name for p in PACKAGE.glob("[!_]*/__init__.py"))


def module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules of this package that a file imports, a front door only if something of its own is asked of it."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        # statements alone: expressions, which are most nodes, import nothing
        waiting += [
            n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.stmt, ast.ExceptHandler, ast.match_case))
        ]


def graph_of(package: Path) -> dict[str, set[str]]:
    files = {module_of(p, package): p for p in package.rglob("*.py")}
    return {m: set(imports(ast.parse(p.read_text()), set(files))) - {m} for m, p in files.items()}


def circle(graph: dict[str, set[str]], room: str) -> list[str]:
    """The files of one circle through a file of `room` (a dotted prefix), in order; none if there is none."""
    for start in sorted(m for m in graph if m == room or m.startswith(f"{room}.")):
        came: dict[str, str] = {}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            for m in sorted(graph[at]):
                if m == start:
                    path = [at]
                    while path[-1] != start:
                        path.append(came[path[-1]])
                    return [*reversed(path), start]
                if m not in came:
                    came[m] = at
                    waiting.append(m)
    return []


@pytest.fixture(scope="module")
def package() -> dict[str, set[str]]:
    return graph_of(PACKAGE)


@pytest.mark.parametrize("room", ROOMS)
def test_the_room_has_no_circle_of_files(package: dict[str, set[str]], room: str) -> None:
    found = circle(package, f"anneal.{room}")
    assert not found, " -> ".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from house.b import x", ["house.a", "house.b", "house.a"]),
        ("def f():\n    from house import b", ["house.a", "house.b", "house.a"]),
        ("import house.b", ["house.a", "house.b", "house.a"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.b import x", []),
        ("from other import b", []),
    ],
)
def test_a_circle_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    house = tmp_path / "house"
    house.mkdir()
    (house / "__init__.py").write_text("from house.a import x\n")
    (house / "a.py").write_text(text + "\n")
    (house / "b.py").write_text("import house.a\n")
    assert circle(graph_of(house), "house") == found
