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
