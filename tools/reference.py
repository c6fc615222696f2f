"""The pages of the API reference: every public name, by room and family, from the front doors as they are at run time.

A name is documented once, on the page of its family; a room that has it too lists it with a link. `PAGES` of
`pages()` are what `tools/docs_site.py` writes and what tests/docs/test_site.py counts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from anneal.doors import names_of
from anneal.names import OPENED

__all__ = ["ROOMS", "STATE", "Entry", "Page", "home_of", "pages", "stands", "tensor_methods"]

# Rooms in the order in which they are read: module, folder of its pages, heading. A name belongs to the first.
ROOMS = (
    ("anneal.front", "anneal", "import anneal as an"),
    ("anneal.nn", "nn", "anneal.nn"),
    ("anneal.nn.functional", "nn-functional", "anneal.nn.functional"),
    ("anneal.nn.init", "nn-init", "anneal.nn.init"),
    ("anneal.nn.utils", "nn-utils", "anneal.nn.utils"),
    ("anneal.nn.utils.parametrizations", "nn-utils-parametrizations", "anneal.nn.utils.parametrizations"),
    ("anneal.nn.utils.parametrize", "nn-utils-parametrize", "anneal.nn.utils.parametrize"),
    ("anneal.nn.utils.prune", "nn-utils-prune", "anneal.nn.utils.prune"),
    ("anneal.nn.utils.rnn", "nn-utils-rnn", "anneal.nn.utils.rnn"),
    ("anneal.optim", "optim", "anneal.optim"),
    ("anneal.optim.lr_scheduler", "lr-scheduler", "anneal.optim.lr_scheduler"),
    ("anneal.optim.swa_utils", "swa-utils", "anneal.optim.swa_utils"),
    ("anneal.nn.parallel", "nn-parallel", "anneal.nn.parallel"),
    ("anneal.amp", "amp", "anneal.amp"),
    ("anneal.cuda", "cuda", "anneal.cuda"),
    ("anneal.backends", "backends", "anneal.backends"),
    ("anneal.compiler", "compiler", "anneal.compiler"),
    ("anneal.autograd", "autograd", "anneal.autograd"),
    ("anneal.func", "func", "anneal.func"),
    ("anneal.utils.data", "utils-data", "anneal.utils.data"),
    ("anneal.linalg", "linalg", "anneal.linalg"),
    ("anneal.distributions", "distributions", "anneal.distributions"),
    ("anneal.distributions.constraints", "distributions-constraints", "anneal.distributions.constraints"),
    ("anneal.fft", "fft", "anneal.fft"),
    ("anneal.special", "special", "anneal.special"),
    ("anneal.masked", "masked", "anneal.masked"),
    ("anneal.signal", "signal", "anneal.signal.windows"),
    ("anneal.array_api", "array-api", "anneal.array_api"),
    ("anneal.tensor", "tensor", "anneal.tensor"),
    ("anneal.tensor.functional", "functional", "anneal.functional"),
    ("anneal.tensor.io", "io", "anneal.io"),
    ("anneal.tensor.random", "random", "anneal.random"),
    ("anneal.transforms", "transforms", "anneal.transforms"),
    ("anneal.onnx", "onnx", "anneal.onnx"),
    ("anneal.pages", "pages", "anneal.pages"),
    ("anneal.distributed", "distributed", "anneal.distributed"),
    ("anneal.errors", "errors", "anneal.errors"),
    ("anneal.settings", "settings", "anneal.settings"),
    ("anneal.inspect", "inspect", "anneal.inspect"),
    ("anneal.runtime", "runtime", "anneal.runtime"),
    ("anneal.runtime.profile", "profile", "anneal.runtime.profile"),
    ("anneal.backend", "backend", "anneal.backend"),
    ("anneal.training", "training", "anneal.training"),
)
# Attributes of every tensor that no docstring can stand at.
STATE = {
    "device": 'the name of the device that the tensor lives on, "cpu" or "webgpu"',
    "is_leaf": "whether gradients end here: it was made by the program, not by an op of tensors that require one",
    "late": "what recognises a loop's step, while its values are not known yet; None for most tensors",
    "requires_grad": "whether `backward()` adds to its `.grad`",
    "uop": "the node of the graph that the tensor shows",
}
# Headings of the families that are large enough for a page of their own; others share the room's page.
OWN_PAGE = 6
TENSOR = "anneal.tensor._tensor.Tensor"


@dataclass(frozen=True)
class Entry:
    """A public name: where it is imported from, and where its definition stands."""

    path: str  # "anneal.nn.Linear"
    home: str  # "anneal.nn._layers.Linear"

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass
class Page:
    """A page of the reference: what it documents, and the names of its room that other pages document."""

    uri: str
    title: str
    room: str
    intro: str = ""
    entries: list[Entry] = field(default_factory=list)
    elsewhere: list[tuple[str, Entry]] = field(default_factory=list)
    values: list[tuple[str, str]] = field(default_factory=list)
    module: str = ""  # where most of it is defined, if that is not the room itself

    def __post_init__(self) -> None:
        self.module = self.module or self.room


def pages() -> list[Page]:
    """Every page, in the order of the rooms."""
    documented: dict[str, Entry] = {}
    out: list[Page] = []
    for room, folder, heading in ROOMS:
        try:
            module = import_module(room)
        except ModuleNotFoundError:
            continue
        out += _pages_of(module, folder, heading, documented)
    return out


def _pages_of(module: ModuleType, folder: str, heading: str, documented: dict[str, Entry]) -> list[Page]:
    first = Page(f"reference/{folder}/index.md", heading, module.__name__, inspect.getdoc(module) or "")
    families: dict[str, Page] = {}
    public = "anneal" if module.__name__ == "anneal.front" else heading
    for name in sorted(_names(module), key=str.lower):
        value = getattr(module, name)
        if isinstance(value, ModuleType) or _is_typing(value):
            continue
        if not _documented_by_its_object(value):
            first.values.append((name, _said(value)))
            continue
        home, at = home_of(value), _module_of(value)
        file = at.rpartition(".")[2].strip("_").removeprefix("f_")
        uri = f"reference/{folder}/{file}.md"
        page = families.setdefault(at, Page(uri, file, module.__name__, module=at))
        if not stands(value):
            page.values.append((name, (inspect.getdoc(value) or "").partition("\n")[0].replace("`", "")))
            continue
        if home in documented:
            first.elsewhere.append((name, documented[home]))
            continue
        entry = documented[home] = Entry(f"{public}.{name}", home)
        if home == TENSOR:  # has a page of its own
            first.elsewhere.append((name, entry))
            continue
        page.entries.append(entry)
        page.intro = page.intro or inspect.getdoc(import_module(at)) or ""
    own = [p for at, p in families.items() if len(p.entries) + len(p.values) >= OWN_PAGE and at != module.__name__]
    for page in families.values():
        if page not in own:
            first.entries += page.entries
            first.values += page.values
    first.entries.sort(key=lambda entry: entry.name.lower())
    for page in own:
        page.title = (
            f"{heading}: {_title(page.intro, page.title)}" if folder != "anneal" else _title(page.intro, page.title)
        )
    return [first, *sorted(own, key=lambda page: page.uri)]


def _names(module: ModuleType) -> Iterator[str]:
    if module.__name__ == "anneal.front":
        yield from (name for name in dir(module) if not name.startswith("_"))
    elif hasattr(module, "__all__"):
        yield from module.__all__
    elif (room := module.__name__) != "anneal.array_api":  # the standard says what that one has
        # what only rooms import is not listed a second time; what is opened later counts as if it had been asked for
        there = {*vars(module), *(names_of(room) if room in OPENED else ())}
        yield from (n for n in there if n[0] != "_" and _module_of(getattr(module, n)).startswith(room))


def _documented_by_its_object(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("anneal")


def _module_of(value: Any) -> str:
    """The module that a definition is written in: a front door calls its other names its own, for `pickle`."""
    return getattr(inspect.unwrap(value), "__module__", "")


def home_of(value: Any) -> str:
    """A definition's module and name."""
    return f"{_module_of(value)}.{value.__qualname__}"


def stands(value: Any) -> bool:
    """Whether a definition stands where its name says; most ops in place are made by a table."""
    found: Any = import_module(_module_of(value))
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not None


def _is_typing(value: Any) -> bool:
    return getattr(value, "__module__", "") == "typing"


def _said(value: Any) -> str:
    text = " ".join(repr(value).split())
    return (
        text
        if len(text) <= 80
        else f"{type(value).__name__} of {len(value)}"
        if hasattr(value, "__len__")
        else text[:80]
    )


def _title(intro: str, file: str) -> str:
    """The first words of the module's first sentence, or its file's name."""
    first = re.split(r"[.:;,]\s|[.:]$", " ".join(intro.split()))[0].rstrip(".")
    return first if 3 <= len(first) <= 60 else file.replace("_", " ")


def tensor_methods() -> dict[str, Any]:
    """Every public attribute of Tensor by name."""
    from anneal.tensor import Tensor

    return {name: getattr(Tensor, name) for name in dir(Tensor) if not name.startswith("_")}
