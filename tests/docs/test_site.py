"""The site: it is built with warnings as errors, its links lead somewhere, every public name is in its reference, and
its search finds what newcomers ask. Building takes a while, so CI does it; what the sources show is tested everywhere.
"""

from __future__ import annotations

import functools
import http.server
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from filelock import FileLock

from tests.docs.test_documents import ROOT, read
from tools.live_pages import PAGES as LIVE
from tools.reference import ROOMS, Entry, home_of, pages, tensor_methods

LARGEST = 300_000  # bytes of a page
QUESTIONS = re.findall(
    r"^\| ([^|]+\?) \| `([^`]+)` \| \[[\w./-]+\]\(([\w./#-]+)\) \|$", read("docs/questions.md"), re.MULTILINE
)
WORDS = {
    "tutorial": "first-hour.html",
    "quickstart": "first-hour.html",
    "nan": "guides/check.html#where-does-a-nan-or-an-infinity-come-from",
    "softmax": "reference/anneal/reduce.html#anneal.ops.reduce.softmax",
    "any": "reference/anneal/reduce.html#anneal.ops.reduce.any",  # a word that most searches leave out
}
# Rooms of the package that are the compiler's own, or programs: the specification describes them, not the reference.
INNER = {
    "array_api", "assets", "cache", "cli", "codegen", "doors", "files", "front", "frozen", "names", "ops", "progress",
    "rewrite", "version", "schedule", "stubs", "testing", "torch_facts", "torch_names", "uop", "utils", "web",
}  # fmt: skip
COLOURS = ["color-contrast", "link-in-text-block"]
AXE = ROOT / "anneal/web/app/node_modules/axe-core/axe.min.js"
MAIN_PAGES = (
    "index.html",
    "first-hour.html",
    "coming-from.html",
    "gallery.html",
    "faq.html",
    "guides/profiling.html",
    "compiler-tour.html",
    "reference/tensor-class.html",
    "reference/anneal/reduce.html",
    "notebooks/training.html",
)


# -- what the sources show --------------------------------------------------------------------------------------------


@functools.cache
def documented() -> dict[str, Entry]:
    return {entry.home: entry for page in pages() for entry in page.entries} | {
        entry.home: entry for page in pages() for _, entry in page.elsewhere
    }


def test_every_room_is_in_the_reference_or_is_an_inner_one() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "anneal").iterdir() if not path.name.startswith("_")}
    rooms = {room for room in rooms if not room.endswith(".pyi")}
    described = {room.split(".")[1] for room, _, _ in ROOMS}
    assert rooms - described - INNER == {"py.typed"}


@pytest.mark.parametrize("room", [room for room, _, _ in ROOMS])
def test_every_public_name_of_a_room_is_in_the_reference(room: str) -> None:
    if find_spec(room) is None:
        pytest.skip("not there yet")
    module = import_module(room)
    front = room == "anneal.front"
    names = [n for n in dir(module) if not n.startswith("_")] if front else getattr(module, "__all__", [])
    values = {n for page in pages() if page.room == room for n, _ in page.values}
    missing = []
    for name in names:
        value = getattr(module, name)
        if name in values or inspect.ismodule(value) or getattr(value, "__module__", "") in ("typing", "__future__"):
            continue
        if not hasattr(value, "__qualname__") or home_of(value) not in documented():
            missing.append(name)
    assert [name for name in missing if name != "annotations"] == []


def test_every_method_of_tensor_is_a_documented_function_or_stands_with_the_class() -> None:
    from anneal.tensor import Tensor
    from tools.reference import STATE

    homes = documented()
    for name, value in tensor_methods().items():
        own = inspect.getattr_static(Tensor, name)
        there = hasattr(value, "__qualname__") and home_of(value) in homes
        assert there or (name in vars(Tensor) and inspect.getdoc(own)) or name in STATE, name


def test_there_are_thirty_questions() -> None:
    assert len(QUESTIONS) == len({question for question, _, _ in QUESTIONS}) == 30
    assert len({words for _, words, _ in QUESTIONS}) == 30


# -- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs-build` builds it, once for all workers."""
    for needed in ("mkdocs", "material", "mkdocstrings_handlers"):
        if find_spec(needed) is None:
            pytest.skip(f"needs the package {needed}: pip install -e '.[docs]'")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return built(tmp_path_factory.mktemp("site"))
    shared = tmp_path_factory.getbasetemp().parent  # the workers' own are below it
    with FileLock(shared / "site.lock"):
        return shared / "site" if (shared / "site" / "sitemap.xml").exists() else built(shared / "site")


def built(folder: Path) -> Path:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Page(HTMLParser):
    """The ids of a page, what it links to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.unsaid: list[str] = []  # pictures without a text in their place
        self.edits: list[str] = []
        self.neighbours: list[str] = []  # the pages before and after
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "img" and not given.get("alt"):
            self.unsaid.append(given.get("src", "")[:80])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.edits += [given["href"]] if given.get("rel") == "edit" else []
            self.neighbours += [given["href"]] if "md-footer__link" in given.get("class", "") else []
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])


def parsed(site: Path) -> dict[str, _Page]:
    return {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }


@pytest.mark.ci
@pytest.mark.slow
def test_the_site_is_whole(site: Path) -> None:
    found = parsed(site)
    assert set(MAIN_PAGES) <= set(found)
    assert {path: os.path.getsize(site / path) for path in found if os.path.getsize(site / path) > LARGEST} == {}
    dead = [f"{path}: {link}" for path, page in found.items() for link in page.links if _dead(path, link, found, site)]
    assert dead == []
    # Nothing is fetched from elsewhere: no font, script, style or picture.
    loads = {load for page in found.values() for load in page.loads if not load.startswith("data:")}
    assert [load for load in loads if urlsplit(load).netloc] == []
    missing = [
        f"{path}: {load}" for path, page in found.items() for load in page.loads if _dead(path, load, found, site)
    ]
    assert [load for load in missing if ": data:" not in load] == []
    assert {path: page.unsaid for path, page in found.items() if page.unsaid} == {}
    # Each page leads to the file that it is made of, and to the pages beside it. A view of the studio is no page, nor
    # is an export.
    for path in set(found) - {"studio/kernels.html", *(p for p in found if p.startswith("live/"))}:
        (edit,) = found[path].edits
        assert (ROOT / edit.partition("/edit/main/")[2]).is_file(), (path, edit)
        assert found[path].neighbours, path
    # A name is documented once, under its own heading.
    ids = Counter(name for page in found.values() for name in page.ids)
    assert [home for home in documented() if ids[home] != 1] == []


def _dead(path: str, link: str, found: dict[str, _Page], site: Path) -> bool:
    if urlsplit(link).scheme:
        return not re.fullmatch(r"https://[\w.-]+\.\w+(:\d+)?(/\S*)?|mailto:\S+", link)
    target, fragment = urldefrag(unquote(link))
    place = (site / path).parent.joinpath(target).resolve() if target else site / path
    if place.is_dir():
        place /= "index.html"
    if not place.is_file():
        return True
    name = place.relative_to(site.resolve()).as_posix() if target else path
    return bool(fragment) and name in found and fragment not in found[name].ids


CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


WEBGPU = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def shown(site: Path) -> Iterator[tuple[Any, str]]:
    """A browser's context that reaches this machine alone, and the address of the site."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[test]'")
    if CHROMIUM is None:
        pytest.skip("needs a chromium, which .ci/run installs")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=WEBGPU)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        context.set_default_timeout(60_000)
        context.route("**", lambda route: route.continue_() if "127.0.0.1" in route.request.url else route.abort())
        yield context, f"http://127.0.0.1:{server.server_address[1]}"
        browser.close()
    server.shutdown()
    server.server_close()


@pytest.mark.ci
def test_the_main_pages_break_no_rule_of_axe(shown: tuple[Any, str]) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: `npm ci` in anneal/web/app, as .ci/run does")
    context, address = shown
    script = AXE.read_text(encoding="utf-8")
    page = context.new_page()
    found = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        # Rules that are not of colours hold in the dark as they do in the light.
        only = {} if theme == "light" else {"runOnly": {"type": "rule", "values": COLOURS}}
        for path in MAIN_PAGES if theme == "light" else MAIN_PAGES[:2]:
            page.goto(f"{address}/{path}")
            page.evaluate(script)
            result = page.evaluate("only => axe.run(document, {resultTypes: ['violations'], ...only})", only)
            for v in result["violations"]:
                found[f"{theme} {path}: {v['id']}"] = [n["html"][:160] for n in v["nodes"][:3]]
    page.close()
    assert found == {}


@pytest.mark.ci
def test_exported_pages_run_where_they_are_shown(shown: tuple[Any, str]) -> None:
    """Each in its frame, right, and by itself without a network after that."""
    context, address = shown
    page = context.new_page()
    page.goto(f"{address}/howto/web-page.html")
    page.evaluate("document.querySelectorAll('details').forEach(d => (d.open = true))")
    frames = page.query_selector_all("iframe")
    assert len(frames) == len(LIVE)
    for element in frames:
        element.scroll_into_view_if_needed()
        frame = element.content_frame()
        # The frame is lazy: until its own page has begun to load, its address is about:blank.
        frame.wait_for_url("**/index.html", wait_until="commit")
        name = frame.url.split("/")[-2]
        if name == "gpt2":
            frame.wait_for_selector("input[type=file]")
            continue
        frame.wait_for_selector("html[data-kept], #badge.bad", state="attached")
        assert frame.inner_text("#badge").startswith("checked: worst error"), (name, frame.inner_text("body"))
    page.close()
    context.set_offline(True)
    try:
        page = context.new_page()
        page.goto(f"{address}/live/nanogpt/index.html")
        page.wait_for_selector("html[data-ready], #badge.bad", state="attached")
        assert page.inner_text("#badge").startswith("checked: worst error")
        page.get_by_role("button", name="Write").click()
        page.wait_for_function("document.querySelector('pre').textContent.length > 20")
        page.close()
    finally:
        context.set_offline(False)


# In the page: the theme's worker with the built index; what it finds for each query, best first, as the box lists it.
FIND = """async (queries) => {
  const config = JSON.parse(document.getElementById("__config").textContent);
  const index = await (await fetch(new URL("search/search_index.json", location.href))).json();
  const worker = new Worker(new URL(config.search, location.href));
  const told = (type) => new Promise((resolve) => worker.addEventListener("message", function heard({ data }) {
    if (data.type === type) { worker.removeEventListener("message", heard); resolve(data.data); }
  }));
  const ask = (type, data, answer) => { const found = told(answer); worker.postMessage({ type, data }); return found; };
  await ask(0, { ...index, options: { suggest: false } }, 1);
  const out = [];
  for (const query of queries) {
    const { items } = await ask(2, query, 3);
    out.push(items.slice(0, 3).map((group) => [
      group.map((item) => item.location).find((at) => !at.includes("#")),
      group.map((item) => item.location).find((at) => at.includes("#")) ?? null,
    ]));
  }
  worker.terminate();
  return out;
}"""


@pytest.mark.ci
def test_blocks_of_code_are_copied_as_they_stand(shown: tuple[Any, str]) -> None:
    context, address = shown
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page = context.new_page()
    for path in ("index.html", "first-hour.html", "reference/anneal/reduce.html", "notebooks/training.html"):
        page.goto(f"{address}/{path}")
        page.wait_for_selector(".md-code__button")
        assert page.locator("pre > code").count() == page.locator("pre .md-code__button").count() > 0, path
        page.locator("pre .md-code__button").first.click()
        page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.strip() == page.locator("pre > code").first.inner_text().strip(), path
    page.goto(f"{address}/index.html")
    assert "pip install git+https://github.com/anneal-compiler/anneal" in page.locator("pre > code").first.inner_text()
    page.close()


@pytest.mark.ci
def test_the_first_hit_of_the_search_is_the_answer(shown: tuple[Any, str]) -> None:
    """Of thirty questions as they are asked, of what the list says to type for them, and of single words."""
    wanted = [(typed, _place(answer)) for question, words, answer in QUESTIONS for typed in (question, words)]
    wanted += WORDS.items()
    context, address = shown
    page = context.new_page()
    page.goto(f"{address}/index.html")
    results = page.evaluate(FIND, [typed for typed, _ in wanted])
    wrong = {}
    for (typed, answer), found in zip(wanted, results, strict=True):
        path, section = found[0] if found else ("", None)
        if answer not in (path, section):
            wrong[typed] = (answer, found)
    assert wrong == {}
    # The box lists what the worker finds.
    for typed, answer in (wanted[0], wanted[-1]):
        assert answer in _search(page, typed)[:2], typed
    page.close()


def _place(answer: str) -> str:
    """An answer of the list as the index of the search names it."""
    path, hash_, section = answer.partition("#")
    return f"{path.removeprefix('../').lower().removesuffix('.md')}.html{hash_}{section}"


def _search(page: Any, words: str) -> list[str]:
    """What the search box lists, best first."""
    box = page.locator("input.md-search__input")
    box.click()
    before = page.locator(".md-search-result__list").inner_html()
    box.fill(words)
    box.press("End")  # the theme listens to keys
    page.wait_for_function("b => document.querySelector('.md-search-result__list').innerHTML !== b", arg=before)
    page.wait_for_selector(".md-search-result__link", state="attached")
    links = page.eval_on_selector_all(
        ".md-search-result__item .md-search-result__link",
        "all => all.map(a => new URL(a.href).pathname + new URL(a.href).hash)",
    )
    return [link.lstrip("/") for link in links]


def test_every_room_of_the_reference_has_something() -> None:
    """A front door without `__all__` has what is written in its room, but for the array API standard's."""
    found: Counter[str] = Counter()
    for page in pages():
        found[page.uri.split("/")[1]] += len(page.entries) + len(page.values) + len(page.elsewhere)
    assert "runtime" in found
    assert [room for room, count in found.items() if not count] == ["array-api"]
