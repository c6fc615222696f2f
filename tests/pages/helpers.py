"""Pages that tests export, and a server of a folder that notes what is asked of it."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anneal.pages import ExportedPage, PageRecipe, export, of_training
from anneal.training import load_example


def recipe_of(name: str, train: bool = False, batch: int = 8, lr: float | None = None) -> tuple[Any, PageRecipe]:
    """An example's training, small, and the recipe of its page."""
    example = load_example(name)
    training = example.make(steps=100, batch=batch, seed=1, lr=lr or example.LR)
    return training, of_training(name, training, train)


def write(recipe: PageRecipe, path: Path, **how: Any) -> ExportedPage:
    """Export a recipe."""
    more: dict[str, Any] = {"train": recipe.train, "page": recipe.page, "data": recipe.data}
    return export(recipe.functions, recipe.examples, path, **more, **how)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def spoilt(folder: Path, source: int, act: Callable[[str], str]) -> None:
    """Change the text of one kernel of an export, and its hash with it."""
    plan = json.loads((folder / "model.json").read_text())
    pack = (folder / "kernels.wgsl").read_bytes()
    texts = [pack[begin:end].decode() for begin, end in plan["sources"]]
    texts[source] = act(texts[source])
    at = 0
    plan["sources"] = [[at, at := at + len(text.encode())] for text in texts]
    pack = "".join(texts).encode()
    (folder / "kernels.wgsl").write_bytes(pack)
    plan["files"]["kernels.wgsl"] = {
        "bytes": len(pack), "sha256": [base64.b64encode(hashlib.sha256(pack).digest()).decode()],
    }  # fmt: skip
    (folder / "model.json").write_text(json.dumps(plan))


def too_large(text: str) -> str:
    """A kernel of floats whose first store writes half as much again."""
    return re.sub(r"(p0\[[^\n]*?\] = )([^;]+);", r"\1(\2) * 1.5;", text, count=1)
