"""Pages that tests export, and a server of a folder that notes what is asked of it."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anneal.pages import Exported, Recipe, export, of_training
from anneal.training import load_example


def recipe_of(name: str, train: bool = False, batch: int = 8) -> tuple[Any, Recipe]:
    """An example's training, small, and the recipe of its page."""
    example = load_example(name)
    training = example.make(steps=100, batch=batch, seed=1, lr=example.LR)
    return training, of_training(name, training, train)


def write(recipe: Recipe, path: Path, **how: Any) -> Exported:
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
