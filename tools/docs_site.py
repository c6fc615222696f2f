"""Hooks of MkDocs (mkdocs.yml): the reference from the front doors, documents of the root, notebooks, links out.

`make docs` serves the site, `make docs-build` writes it to build/site, with warnings as errors.
"""

from __future__ import annotations

import base64
import functools
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage

from tools.reference import STATE, Page, pages, stands, tensor_methods

ROOT = Path(__file__).resolve().parents[1]
# Documents that stand outside docs/, by their place on the site. Pictures keep their place.
OUTSIDE = {
    "SPEC.md": "internals/spec.md",
    "LIMITATIONS.md": "limitations.md",
    "NUMERICS.md": "internals/numerics.md",
    "BENCHMARKS.md": "internals/benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "anneal/rewrite/README.md": "internals/rules.md",
    "examples/README.md": "examples.md",
    **{f"examples/pictures/{name}.png": f"pictures/{name}.png" for name in ("diffusion", "dit", "meanflow")},
}
# What a search finds first: pages that teach, before the reference, before pages about the house itself.
BOOSTS = {
    "guides/": 8, "howto/web-page": 1, "howto/": 8, "first-hour": 8, "coming-from": 8, "faq": 6, "limitations": 8, "gallery": 3,
    "notebooks/": 2, "reference/anneal/": 2, "reference/": 1, "internals/": 0.5, "changelog": 0.3, "reading": 0.3, "decisions/": 0.2,
}  # fmt: skip
LINK = re.compile(r"(\]\()(?!https?://|#|mailto:|data:)([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The reference's pages take their place in the navigation, behind the heading that waits for them."""
    assert config.nav is not None
    for item in config.nav:
        if isinstance(item, dict) and "Reference" in item:
            item["Reference"] += _reference_nav()
        if isinstance(item, dict) and "Decisions" in item:
            item["Decisions"] = ["decisions/README.md", *_decisions()]
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """The exported pages that docs/howto/web-page.md shows."""
    from tools.live_pages import write

    write(Path(config.site_dir) / "live")


def _reference_nav() -> list[Any]:
    rooms: dict[str, list[Page]] = {}
    for page in pages():
        rooms.setdefault(posixpath.dirname(page.uri), []).append(page)
    out: list[Any] = []
    for first, *rest in rooms.values():
        here = [{page.title.partition(": ")[2] or page.title: page.uri} for page in rest]
        out.append({first.title: [{"Overview": first.uri}, *here]} if rest else {first.title: first.uri})
    return out


def _decisions() -> list[str]:
    return sorted(f"decisions/{path.name}" for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page in pages():
        files.append(File.generated(config, page.uri, content=_reference(page)))
    files.append(File.generated(config, "reference/tensor-class.md", content=_tensor_class()))
    for name, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook(path)))
    return files


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Links that are right in the repository become right on the site; what is not on the site is in the repository."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {"boost": next((b for begins, b in BOOSTS.items() if uri.startswith(begins)), 1)})
    origin = _origin(uri)
    page.edit_url = f"{config.extra['repository']}/edit/main/{origin}"
    blocks = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for n in range(0, len(blocks), 2):
        blocks[n] = LINK.sub(
            lambda found: f"{found[1]}{_moved(found[2], origin, uri, config)}{found[3] or ''}{found[4]}", blocks[n]
        )
    return "".join(blocks)


def _origin(uri: str) -> str:
    """The file of the repository that a page is made of."""
    if uri.startswith("notebooks/"):
        return f"docs/{uri.removesuffix('.md')}.ipynb"
    if uri.startswith("reference/"):
        return Path(sys.modules[_modules()[uri]].__file__ or "").relative_to(ROOT).as_posix()
    return next((name for name, place in OUTSIDE.items() if place == uri), f"docs/{uri}")


@functools.cache
def _modules() -> dict[str, str]:
    """The module that each page of the reference documents."""
    return {page.uri: page.module for page in pages()} | {"reference/tensor-class.md": "anneal.tensor._tensor"}


def _moved(target: str, origin: str, uri: str, config: MkDocsConfig) -> str:
    if uri.startswith("notebooks/") and target.endswith(".ipynb"):
        return target.removesuffix(".ipynb") + ".md"
    at = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if at in OUTSIDE or (at.startswith("docs/") and (ROOT / at).is_file()):
        place = OUTSIDE.get(at) or at.removeprefix("docs/")
        return posixpath.relpath(place, posixpath.dirname(uri) or ".")
    if (ROOT / at).exists() and not at.startswith("docs/"):
        kind = "tree" if (ROOT / at).is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/main/{at}"
    return target


def on_post_page(output: str, page: SitePage, config: MkDocsConfig) -> str:
    """What the theme's templates lack for screen readers: its dialog's name."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


# -- the reference ----------------------------------------------------------------------------------------------------


def _reference(page: Page) -> str:
    out = [f"# {page.title}", _quoted(page.intro)]
    if page.elsewhere:
        out.append("Names of this room that another page documents:")
        out.append(_columns(f"[`{name}`][{entry.home}]" for name, entry in page.elsewhere))
    if page.values:
        out.append("| value | |\n|---|---|\n" + "\n".join(f"| `{name}` | `{text}` |" for name, text in page.values))
    methods = {id(value): name for name, value in tensor_methods().items()}
    for entry in page.entries:
        said = f"`{entry.path}`"
        value = _runtime(entry.home)
        if id(value) in methods:
            said += f", as a method `Tensor.{methods[id(value)]}`"
        out.append(f"::: {entry.home}\n    options:\n      heading: {entry.name}\n      toc_label: {entry.name}\n")
        out.append(f"{said}\n{{ .where }}")
    return "\n\n".join(part for part in out if part)


OWN = """Its state, what goes in and out, and its dtypes and devices stand here; the other methods are functions of
`anneal` as well, and are documented with their family."""


def _tensor_class() -> str:
    from anneal.tensor import Tensor

    documented = {id(_runtime(entry.home)): entry for page in pages() for entry in page.entries}
    own = [n for n, v in tensor_methods().items() if id(v) not in documented]
    methods = [(n, documented[id(v)]) for n, v in tensor_methods().items() if id(v) in documented]
    made = [n for n in own if callable(getattr(Tensor, n)) and not stands(getattr(Tensor, n))]
    members = [name for name in own if name in vars(Tensor) and name not in made]
    state = [name for name in own if name not in vars(Tensor)]
    return "\n\n".join(
        (
            "# Tensor",
            OWN,
            "## Methods that are functions too",
            _columns(f"[`{name}`][{entry.home}]" for name, entry in methods),
            "## Methods in place, of the functions that they are named after",
            _columns(f"`{name}`" for name in made),
            "## State",
            "\n".join(f"- `{name}`: {STATE[name]}" for name in state),
            "::: anneal.tensor._tensor.Tensor\n    options:\n      heading: Tensor\n      members:\n"
            + "".join(f"        - {name}\n" for name in members),
        )
    )


def _columns(names: Any) -> str:
    return " · ".join(names)


def _quoted(text: str) -> str:
    from tools.doctests import fenced

    return fenced(text)


def _runtime(home: str) -> Any:
    from importlib import import_module

    parts = home.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            value = getattr(value, name)
        return value
    raise LookupError(home)


# -- notebooks --------------------------------------------------------------------------------------------------------


def notebook(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and the text and pictures that it shows."""
    out = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            out.append(source)
            continue
        out.append(f"```python\n{source}\n```")
        for printed in cell["outputs"]:
            data = printed.get("data", {})
            if "image/svg+xml" in data:
                out.append(_drawn("".join(data["image/svg+xml"])))
            else:
                text = "".join(printed.get("text") or data.get("text/plain", ""))
                out.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(out)


def _drawn(svg: str) -> str:
    """A picture, whose title is what is read out in its place."""
    title = re.search("<title>(.*?)</title>", svg)
    assert title, "a picture without a title"
    return f"![{title[1]}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
