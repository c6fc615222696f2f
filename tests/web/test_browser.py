"""The page in a real browser: every view in both themes without a violation of axe's rules, by keys alone, and a
journey from a dropped model to a run that is resurrected. Screenshots are left in the tests' temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.helpers import until
from tests.web.test_server import relu

pytestmark = pytest.mark.ci
playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright: pip install -e '.[test]'")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "anneal/web/app/node_modules/axe-core/axe.min.js"
FLAGS = ("--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
# Rules that are not of colours hold in the light as they do in the dark.
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
# The address of each view, and what is there once it can be used.
VIEWS = {
    "home": ("/", ".device"),
    "graph": ("/v/mlp", "svg g.box"),
    "graph-table": ("/v/mlp?as=table", "main table"),
    "graph-node": ("/v/mlp?open=fc&node=12", ".inspector dl"),
    "pass": ("/v/mlp?pass=early-rewrites", "svg g.box"),
    "kernels": ("/k/mlp?kernel=0&line=14", ".origin h3"),
    "memory": ("/k/mlp?as=memory", ".plot canvas"),
    "explain": ("/x/EXP", ".rules"),
    "ops": ("/x", ".opgrid"),
    "check": ("/c/mlp", "form"),
    "train": ("/t/mlp", "form"),
    "generate": ("/g/gpt2", "form"),
    "scripts": ("/s", "main section"),
    "history": ("/r", "main section"),
    "doctor": ("/d", ".facts"),
    "missing": ("/nowhere", "h1"),
}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a studio in a process of its own, and the folder that it runs in."""
    where = tmp_path_factory.mktemp("studio")
    command = [sys.executable, "-P", "-c", "from anneal.cli import main; main()", "web", ":0", "--no-open"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    with subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].rstrip("/")
        try:
            yield url, where
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs a chromium, which .ci/run installs")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of 1280 by 800, dark; an error in its console fails the test."""
    yield from _page(browser, color_scheme="dark")


def _page(browser: Any, **options: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(30_000)
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda e: wrong.append(str(e)))
    found.on("console", lambda m: wrong.append(m.text) if m.type == "error" and "status of 4" not in m.text else None)
    yield found
    context.close()
    assert wrong == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_no_view_breaks_a_rule_of_axe(browser: Any, studio: tuple[str, Path], theme: str, tmp_path: Path) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: `npm ci` in anneal/web/app, as .ci/run does")
    script = AXE.read_text(encoding="utf-8")
    found = {}
    for page in _page(browser, color_scheme=theme, bypass_csp=True):
        for name, (path, there) in VIEWS.items():
            page.goto(studio[0] + path)
            page.wait_for_selector(there)
            page.screenshot(path=tmp_path / f"{name}-{theme}.png")
            page.evaluate(script)
            only = RULES if theme == "dark" else {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
            result = page.evaluate("only => axe.run(document, {runOnly: only, resultTypes: ['violations']})", only)
            for v in result["violations"]:
                found[f"{name}: {v['id']}"] = [
                    n["html"][:160] + " | " + n["failureSummary"][:300] for n in v["nodes"][:3]
                ]
    assert found == {}


def test_every_view_fits_a_narrow_screen(browser: Any, studio: tuple[str, Path]) -> None:
    for page in _page(browser, color_scheme="dark", reduced_motion="reduce"):
        page.set_viewport_size({"width": 320, "height": 640})
        for name, (path, there) in VIEWS.items():
            page.goto(studio[0] + path)
            page.wait_for_selector(there)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, name


def test_the_address_restores_the_view(page: Any, studio: tuple[str, Path]) -> None:
    page.goto(studio[0] + "/v/mlp")
    page.wait_for_selector("svg g.box")
    page.fill("#find", "reduce_axis")
    begun = time.perf_counter()
    page.wait_for_selector(".hits button")
    assert time.perf_counter() - begun < 1
    page.click(".hits button")
    page.wait_for_selector(".inspector dl")
    url, shown = page.url, page.inner_text(".inspector")
    assert re.search(r"node=\d+", url)
    page.goto(url)
    page.wait_for_selector(".inspector .source pre")
    assert page.inner_text(".inspector")[:60] == shown[:60]
    page.click(".inspector a.fusedlink")
    page.wait_for_selector(".code button")
    page.click(".code button.known >> nth=4")
    page.wait_for_selector(".origin .source")
    back = page.inner_text(".origin")
    page.reload()
    page.wait_for_selector(".origin .source pre")
    assert page.inner_text(".origin h3") == back.split("\n")[0]
    page.go_back()
    page.wait_for_selector("svg g.box")


def test_by_keys_alone(page: Any, studio: tuple[str, Path]) -> None:
    page.goto(studio[0] + "/")
    page.wait_for_selector("main h1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("v")
    page.wait_for_selector("svg g.box[tabindex='0']")
    page.focus("svg g.box[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".inspector h3")
    before = page.locator("svg g.box").count()
    page.keyboard.press("o")
    until(lambda: page.locator("svg g.box").count() != before)
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.wait_for_selector(".code button[tabindex='0']")
    assert page.url.endswith("/k/nanogpt")
    page.focus(".code button[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".origin h3")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_text_of_a_file_is_no_markup(page: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    evil = "<img src=x onerror=document.title='owned'>"
    page.goto(studio[0] + "/")
    page.wait_for_selector("input[type=file]", state="attached")
    data = relu(tmp_path / "m.onnx", evil)
    page.set_input_files("input[type=file]", files=[{"name": f"{evil}.onnx", "mimeType": "", "buffer": data}])
    page.wait_for_selector(".about .links a")
    page.click(".about .links a >> nth=0")
    page.wait_for_selector("svg g.box")
    assert evil in page.inner_text("h1")
    assert page.locator("main img").count() == 0
    assert "owned" not in page.evaluate("document.title.replace(/<.*>/, '')")


def steps(page: Any) -> int:
    """Steps that the curves have."""
    found = page.locator("[data-steps]")
    return int(found.get_attribute("data-steps")) if found.count() else 0


def test_the_journey(page: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    url, where = studio
    page.goto(url + "/")
    page.wait_for_selector("input[type=file]", state="attached")
    page.set_input_files(
        "input[type=file]", files=[{"name": "net.onnx", "mimeType": "", "buffer": relu(tmp_path / "m.onnx")}]
    )
    page.click(".about a:has-text('Kernels')")
    page.wait_for_selector(".code button.known")
    page.goto(url + "/t/mlp")
    page.fill("input[name=steps]", "50")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    page.wait_for_selector("[data-steps='50']")
    page.reload()
    page.wait_for_selector("[data-steps='50']")
    page.goto(url + "/t/mlp?steps=100000")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    until(lambda: steps(page) > 20)
    page.click("button:has-text('Pause')")
    page.wait_for_selector("button:has-text('Resume')")
    page.click("button:has-text('Resume')")
    page.click("button:has-text('Stop')")
    page.click("a:has-text('In the history')")
    page.wait_for_selector("button:has-text('Resurrect')")
    page.click("a:has-text('beside') >> nth=0")
    page.wait_for_selector("h3:has-text('What differs')")
    page.go_back()
    page.click("button:has-text('Resurrect')")
    until(lambda: steps(page) > 5)
    page.click("button:has-text('Stop')")
    page.wait_for_selector("h3:has-text('What it learnt')")
    until(lambda: len(list((where / "runs").glob("[!.]*/manifest.json"))) == 3)
