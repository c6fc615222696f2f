"""Write the front doors' section of pyproject.toml anew: `python tools/front_doors.py`, after a room was added or a
file moved.

A room is a package below `anneal`; only the room itself may import its modules, everybody else imports the room. Each
room gets a contract of import-linter's, with the imports past its door that there are as exceptions.
`tests/docs/test_rooms.py` holds their number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Modules that are public by their own name: doors, too.
DOORS = (
    "anneal.backend.cost_models",
    "anneal.array_api.linalg",
    "anneal.distributions.constraints",
    "anneal.linalg.older",
    "anneal.nn.functional",
    "anneal.nn.init",
    "anneal.nn.parameter",
    "anneal.nn.utils",
    "anneal.nn.utils.parametrizations",
    "anneal.nn.utils.parametrize",
    "anneal.nn.utils.prune",
    "anneal.nn.utils.rnn",
    "anneal.ops.made",
    "anneal.ops.nodes",
    "anneal.ops.operators",
    "anneal.optim.lr_scheduler",
    "anneal.optim.swa_utils",
    "anneal.runtime.profile",
    "anneal.tensor.autograd",
    "anneal.tensor.functional",
    "anneal.tensor.io",
    "anneal.tensor.random",
    "anneal.uop.sizes",
    "anneal.utils.data",
)
BEGIN, END = "# -- front doors", "[tool.pytest.ini_options]"
HEAD = f"""{BEGIN}: written by tools/front_doors.py -------------------------------------------------------------------
# A room is imported by what its `__init__` says. Exceptions that begin with `anneal.**` are modules that are public by their own
# name; the others are imports past a door that there are. One that nobody needs is an error of lint, and none is added.

"""


def modules(root: Path) -> dict[str, Path]:
    """The modules of the package by name."""
    files = [p for p in sorted((root / "anneal").rglob("*.py")) if "_examples" not in p.parts]
    return {".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p for p in files}


def rooms(root: Path) -> list[str]:
    return sorted(name for name, path in modules(root).items() if path.name == "__init__.py" and name != "anneal")


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module, those inside others too. Expressions, which are most nodes, are not walked."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                yield node
                waiting.append(node)


def _imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def _inside(name: str, door: str) -> bool:
    return f"{name}.".startswith(f"{_parent(door)}.")


def imports_of(root: Path) -> dict[str, list[str]]:
    """What each module imports."""
    known = modules(root)
    return {name: list(_imports(path, known)) for name, path in known.items()}


def past_doors(root: Path, imported: dict[str, list[str]]) -> dict[str, set[str]]:
    """For each room the imports of its modules from outside, `importing room.** -> module`."""
    found = {room: set[str]() for room in rooms(root)}
    for name, targets in imported.items():
        for target in targets:
            room = _parent(target)
            if target not in imported or room not in found or target in DOORS or f"{name}.".startswith(f"{room}."):
                continue
            importer = name if name in found or _parent(name) == "anneal" else f"{_parent(name)}.**"
            found[room].add(f"{importer} -> {target}")
    return found


def section(root: Path) -> str:
    """The contracts as TOML."""
    imported, lines = imports_of(root), []
    entered = {door for name, doors in imported.items() for door in doors if not _inside(name, door)}
    for room, exceptions in past_doors(root, imported).items():
        if not any(_parent(name) == room for name in imported):
            continue
        lines += [
            "[[tool.importlinter.contracts]]",
            f'name = "{room.removeprefix("anneal.")}: past the front door"',
            'type = "protected"',
            f'protected_modules = ["{room}.*"]',
            f'allowed_importers = ["{room}", "{room}.**"]',
            "as_packages = false",
        ]
        excused = [f"anneal.** -> {door}" for door in DOORS if door in entered and _parent(door) == room]
        excused += sorted(exceptions)
        if excused:
            lines += ["ignore_imports = [", *[f'  "{line}",' for line in excused], "]"]
        lines.append("")
    return HEAD + "\n".join(lines) + "\n"


def rewritten(text: str, root: Path) -> str:
    """pyproject.toml's text with the section in its place."""
    end = text.index(END)
    begin = text.index(BEGIN) if BEGIN in text else end
    return text[:begin] + section(root) + text[end:]


if __name__ == "__main__":
    config = ROOT / "pyproject.toml"
    config.write_text(rewritten(config.read_text(encoding="utf-8"), ROOT), encoding="utf-8")
    print(sum(map(len, past_doors(ROOT, imports_of(ROOT)).values())), "imports past a front door")
