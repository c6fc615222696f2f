"""A module's list of its public names is `__all__` to the letter: under another name Python does not look at it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def misspelt(text: str) -> Iterator[str]:
    """Names that look like `__all__` and are not, of the lists of words at a module's top."""
    if not re.search(r"^(?!__all__\b)_*(all|ALL)_*\b", text, re.MULTILINE):
        return  # most files: they need not be parsed
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if not isinstance(value, (ast.List, ast.Tuple)):
            continue
        for target in targets:
            if not isinstance(target, ast.Name) or target.id == "__all__":
                continue
            if target.id.strip("_") == "all" or target.id == "__ALL__":
                yield target.id


@pytest.mark.parametrize("name", ["all__", "__all", "_all_", "__ALL__", "all"])
def test_a_wrong_spelling_is_found(name: str) -> None:
    assert list(misspelt(f'import os\n{name} = ["os"]\n')) == [name]
    assert list(misspelt(f'import os\n{name}: list[str] = ["os"]\n')) == [name]
    assert not list(misspelt('__all__ = ["all"]\n\ndef all(x):\n    return x\n'))


def test_every_file_spells_it_right() -> None:
    files = [
        p for folder in ("anneal", "tests", "tools", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 500
    assert {str(p): names for p in files if (names := list(misspelt(p.read_text(encoding="utf-8"))))} == {}


def test_a_prompt_is_offered_what_users_call() -> None:
    """`dir(an)` has the rooms and every op, and nothing that only our own files call."""
    import anneal as an

    offered = set(dir(an))
    assert {"zeros", "Tensor", "jit", "nn", "special", "masked", "signal", "float32", "check"} <= offered
    inner = {
        "HELD",
        "MODES",
        "array_of",
        "as_dtype",
        "axes_of",
        "checked",
        "doors",
        "front",
        "need_tensor",
        "said",
        "whole",
    }
    assert not inner & offered
    assert not [name for name in offered if not hasattr(an, name)]


# -- a public function is named where it stands, and in one more file at most -----------------------------------------

# Rooms whose files say which functions there are; ops/nodes.py has functions of nodes, which share some names.
NAMING = ("*.py", "ops/*.py", "tensor/*.py", "nn/*.py", "linalg/*.py", "array_api/*.py")
# Names that three files or more write by hand, and what the others are: a list that may only shrink.
NAMED_OFTEN = {
    "arguments and settings of layers, limits and printing have these names": ("dropout full max stride threshold"),
    "values of arguments, the modes of images and of padding and the reductions of losses, have these names": (
        "linear mean sum zeros"
    ),
    "torch, or the standard, has others of these names, with other arguments": "meshgrid norm normal",
    "the standard's with another argument; that of the steps of a view": "diagonal matmul",
}


def named(text: str) -> set[str]:
    """Names that a file defines at its top or in a class, or has in a list, a table or a text of words.

    The parts of an f-string are a message.
    """
    tree, out = ast.parse(text), set[str]()
    for node in [n for top in tree.body for n in ([top, *top.body] if isinstance(top, ast.ClassDef) else [top])]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                out |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    messages = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        listed = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else getattr(node, "keys", [])
        words = [e.value for e in listed if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        if (
            isinstance(node, ast.Constant)
            and node not in messages
            and isinstance(node.value, str)
            and re.fullmatch(r"[\w\s]+_[\w\s]*", node.value)
        ):
            words = node.value.split()
        out |= set(words) if len(words) > 2 else set()
    return out


def test_a_name_is_found_where_it_is_written() -> None:
    assert named('def exp(): ...\nclass C:\n    log = exp\nX = ("a", "b", "c")') == {
        "exp",
        "C",
        "log",
        "X",
        "a",
        "b",
        "c",
    }
    assert named(
        '"""exp_ is a word of prose, with a comma."""\nf("exp")\nx = "exp_ log sin"; f(f"exp_ is no name {x}")'
    ) == {
        "x",
        "exp_",
        "log",
        "sin",
    }


def test_a_public_function_is_written_in_two_files_at_most() -> None:
    from tools.names import declared

    public = {name for folder in ("ops", "nn") for f in declared(ROOT / "anneal" / folder) for name in f.names}
    files: dict[str, int] = {}
    for path in sorted({p for pattern in NAMING for p in (ROOT / "anneal").glob(pattern)}):
        if path.name not in ("names.py", "nodes.py") and not path.name.endswith("_rules.py"):
            for name in named(path.read_text(encoding="utf-8")) & public:
                files[name] = files.get(name, 0) + 1
    often = {name for name, count in files.items() if count > 2}
    known = {name for names in NAMED_OFTEN.values() for name in names.split()}
    assert often - known == set(), "declare a name where it stands, by @function, and write it nowhere else"
    assert known - often == set(), "these are written in two files now: take them off the list"


def test_the_generated_files_follow_the_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    from tools.names import main

    assert main(["--check"]) == 0, capsys.readouterr().err
