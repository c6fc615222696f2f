"""What a shell completes: models, ops, methods, passes and files. Names that the compiler has are read from its text,
since completing is to take no time and importing it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["explained", "methods", "models", "ops", "passes", "runnable", "traceable"]

_PACKAGE = Path(__file__).resolve().parents[1]

Items = list[tuple[str, str]]  # what is typed, and what it is


def models(incomplete: str) -> Items:
    """The models of examples/ that begin so.

    >>> models("nano")
    [('nanogpt', 'a character GPT on Tiny Shakespeare')]
    """
    from anneal.training import MODELS

    return _beginning(MODELS.items(), incomplete)


def traceable(incomplete: str) -> Items:
    """Models, and ONNX files."""
    return models(incomplete) + _files(incomplete, ".onnx")


def runnable(incomplete: str) -> Items:
    """Models, ONNX files and scripts."""
    return traceable(incomplete) + _files(incomplete, ".py")


def explained(incomplete: str) -> Items:
    """Ops and Tensor methods; ops in lower case too, as `anneal explain` takes them."""
    names = [*ops(), *methods()]
    found = _beginning([(n, "") for n in names], incomplete)
    return found or _beginning([(n.lower(), "") for n in ops()], incomplete)


def passes(incomplete: str) -> Items:
    """The passes of the compiler."""
    texts = [_text("schedule/passes/pipeline.py"), _text("codegen/pipeline.py")]
    return _beginning([(n, "") for text in texts for n in re.findall(r'\bPass\(\s*name="([a-z-]+)"', text)], incomplete)


def ops() -> list[str]:
    """The names of the ops of the language."""
    return re.findall(r"^    ([A-Z]\w*): ClassVar\[", _text("uop/ops.py"), re.MULTILINE)


def methods() -> list[str]:
    """The names of the public methods of Tensor."""
    text = _text("tensor/_tensor.py")
    properties = set(re.findall(r"@(?:property|\w+\.setter)\n +def (\w+)", text))
    properties |= set(re.findall(r"^    (\w+) = property\(", text, re.MULTILINE))
    names = re.findall(r"^    (?:def )?([a-z]\w*)(?: = |\()", text, re.MULTILINE)
    return sorted(set(names) - properties)


def _text(file: str) -> str:
    try:
        return (_PACKAGE / file).read_text(encoding="utf-8")
    except OSError:  # a package without its text: then there is nothing to complete with
        return ""


def _beginning(items: Iterable[tuple[str, str]], incomplete: str) -> Items:
    return [item for item in items if item[0].startswith(incomplete)]


def _files(incomplete: str, end: str) -> Items:
    """Files with this ending whose paths begin so."""
    folder, _, name = incomplete.rpartition("/")
    try:
        found = sorted(p.name for p in Path(f"{folder}/" if "/" in incomplete else ".").iterdir())
    except OSError:
        return []
    before = f"{folder}/" if "/" in incomplete else ""
    return [(before + n, "") for n in found if n.endswith(end) and n.startswith(name) and (name or n[0] != ".")]
