"""The notebooks of docs/notebooks/, run without Jupyter: each cell of code in one namespace, as IPython would show it.

`python -m tests.docs.notebooks` writes their outputs anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import tempfile
from typing import Any

from anneal import settings
from anneal.tensor import set_default_device
from tests.docs.snippets import ROOT

__all__ = ["NOTEBOOKS", "fresh", "same", "shown"]

CURVE = re.compile(r'<polyline points=\\"([^"\\]+)\\"')
NEAR = 5  # pixels, of the 150 that a curve is high
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def fresh(notebook: dict[str, Any], name: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell of code, from a run in the working folder on the cpu device."""
    names: dict[str, object] = {"__name__": "__main__"}
    found = []
    try:
        with settings.override(device="cpu"):
            for number, cell in enumerate(c for c in notebook["cells"] if c["cell_type"] == "code"):
                found.append(_outputs("".join(cell["source"]), f"{name}[{number + 1}]", number + 1, names))
    finally:
        set_default_device(None)
    return found


def _outputs(source: str, where: str, number: int, names: dict[str, object]) -> list[dict[str, Any]]:
    """What a cell prints, then the value of its last line if that is an expression."""
    body = ast.parse(source, where).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    out, value = io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(ast.Module(body, []), where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    made: list[dict[str, Any]] = []
    if out.getvalue():
        made.append({"name": "stdout", "output_type": "stream", "text": out.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if draw := getattr(value, "_repr_svg_", None):
            data["image/svg+xml"] = draw().splitlines(keepends=True)
        made.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return made


def same(found: list[list[dict[str, Any]]], wanted: list[list[dict[str, Any]]]) -> bool:
    """True if outputs are the same; a curve may pass `NEAR` pixels beside: sums are added in many orders."""
    (rest, points), (other, others) = _curves(found), _curves(wanted)
    if rest != other or [len(p) for p in points] != [len(p) for p in others]:
        return False
    return all(abs(a - b) <= NEAR for p, q in zip(points, others, strict=True) for a, b in zip(p, q, strict=True))


def _curves(outputs: list[list[dict[str, Any]]]) -> tuple[str, list[list[float]]]:
    """The outputs as text without their curves, and the numbers of each curve."""
    text = json.dumps(outputs, sort_keys=True)
    found = [[float(n) for n in re.split("[ ,]", points)] for points in CURVE.findall(text)]
    return CURVE.sub("", text), found


def shown(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs that the file has."""
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def main() -> None:
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found = fresh(notebook, path.stem)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, outputs) in enumerate(zip(cells, found, strict=True)):
            cell["outputs"], cell["execution_count"] = outputs, number + 1
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
