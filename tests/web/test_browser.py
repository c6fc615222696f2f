"""The page in a real browser: every view in both themes without a violation of axe's rules, by keys alone, and a
journey from a dropped model to a run that is resurrected. Screenshots are left in the tests' temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.web.helpers import until
from tests.web.test_server import onnx, relu

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


STUDIOS: dict[str, tuple[str, str]] = {}  # those that are there: the address that was printed, and the token


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a studio in a process of its own, and the folder that it runs in."""
    where = tmp_path_factory.mktemp("studio")
    with _started(where, ":0") as (url, _):
        yield url, where


@contextmanager
def _started(where: Path, address: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-P", "-c", "from anneal.cli import main; main()", "web", address, "--no-open"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    with subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        printed = process.stdout.readline().split()[-1]
        url = printed.partition("/?")[0]
        STUDIOS[url] = printed, (where / "runs" / ".studio" / "token").read_text()
        try:
            yield url, process
        finally:
            del STUDIOS[url]
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


def launched() -> Iterator[Any]:
    """A chromium."""
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
    """A page that the studios let in which are there already."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    for url, (_, token) in STUDIOS.items():
        context.add_cookies([{"name": f"anneal_token_{url.rpartition(':')[2]}", "value": token, "url": url}])
    context.set_default_timeout(30_000)
    found = context.new_page()
    wrong: list[str] = []
    known = re.compile("status of 4|net::ERR_")  # answers that a test asked for, and a server that it ended
    found.on("pageerror", lambda e: wrong.append(str(e)))
    found.on("console", lambda m: wrong.append(m.text) if m.type == "error" and not known.search(m.text) else None)
    yield found
    context.close()
    assert wrong == []


# What a browser may be told of its user: each is looked at, and the rules of axe that its colours can break are tried.
MEDIA: dict[str, dict[str, str]] = {
    "dark": {"color_scheme": "dark"},
    "light": {"color_scheme": "light"},
    "forced": {"color_scheme": "dark", "forced_colors": "active"},
}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
WIDTHS = (320, 1280, 3840)
# What is wider than its place: of code nothing, at any width; of tables nothing on a screen of a desk.
CUT = """wide => [...document.querySelectorAll(wide ? ".code, .source pre, .listing, .scroll" : ".code, .source pre, .listing")]
  .filter((e) => e.scrollWidth > e.clientWidth).map((e) => `${e.className || e.tagName} ${e.scrollWidth}`)"""


def test_every_view_in_every_theme_and_at_every_width(browser: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    look_at(browser, studio, VIEWS, tmp_path)


def look_at(browser: Any, studio: tuple[str, Path], views: dict[str, tuple[str, str]], folder: Path) -> None:
    """No rule of axe is broken, nothing is wider than the screen, and nothing moves for those who want that."""
    script = AXE.read_text(encoding="utf-8") if AXE.exists() else ""
    broken: dict[str, list[str]] = {}
    wide = []
    for page in _page(browser, bypass_csp=True, reduced_motion="reduce"):
        page.goto(studio[0] + "/")
        page.evaluate(script)
        for name, (path, there) in views.items():
            page.evaluate(
                "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path
            )
            page.wait_for_selector(there)
            for theme, media in MEDIA.items():
                page.emulate_media(**{"forced_colors": "none", **media})
                page.screenshot(path=folder / f"{name}-{theme}.png")
                if not script or theme == "forced":  # the browser's own colours are no business of axe's
                    continue
                only = RULES if theme == "dark" else COLOURS
                result = page.evaluate("only => axe.run(document, {runOnly: only, resultTypes: ['violations']})", only)
                for v in result["violations"]:
                    broken[f"{name}, {theme}: {v['id']}"] = [
                        n["html"][:160] + " | " + n["failureSummary"][:300] for n in v["nodes"][:3]
                    ]
            page.emulate_media(color_scheme="dark", forced_colors="none")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    wide.append(f"{name} at {width}")
                wide += [f"{cut} in {name} at {width}" for cut in page.evaluate(CUT, width >= 1280)]
            page.set_viewport_size({"width": 1280, "height": 800})
            assert page.evaluate("document.getAnimations().filter((a) => a.playState === 'running').length") == 0, name
    assert broken == {}
    assert wide == []
    if not script:
        pytest.skip("needs axe-core: `npm ci` in anneal/web/app, as .ci/run does")


def test_the_printed_address_opens_one_browser(browser: Any, page: Any, tmp_path: Path) -> None:
    with _started(tmp_path, ":0") as (url, _):
        address = STUDIOS[url][0]
        page.goto(url + "/d")
        page.wait_for_selector("[role=alert]:has-text('open the whole address that `anneal web` printed')")
        page.goto(address)
        page.wait_for_selector(".models")
        assert page.url == url + "/"
        page.reload()
        page.wait_for_selector(".models")
        tab = page.context.new_page()
        tab.goto(address)
        tab.wait_for_selector(".models")
        other = browser.new_context().new_page()
        other.goto(address)
        other.wait_for_selector("[role=alert]:has-text('this browser is not let in')")
        assert other.locator(".models").count() == 0
        other.context.close()
        tab.close()
        page.goto("about:blank")  # or what it still asks would be cut off with its server


def test_lines_go_on_below_and_lose_their_common_margin(page: Any, studio: tuple[str, Path]) -> None:
    page.goto(studio[0] + "/k/nanogpt?kernel=20&line=30")
    page.wait_for_selector(".origin .source pre")
    for width in (320, 900, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(CUT, width >= 1280) == [], width
    first = page.locator(".code .hung", has_text="array<").first
    line = float(page.evaluate("e => parseFloat(getComputedStyle(e).lineHeight)", first.element_handle()))
    assert first.bounding_box()["height"] >= 2 * line
    lines = [text for text in page.locator(".source .hung").all_text_contents() if text.strip()]
    margins = [len(text) - len(text.lstrip()) for text in lines]
    assert min(margins) == 0 < max(margins)


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
    page.goto(studio[0] + "/t/mlp")
    page.wait_for_selector("form")
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
    assert page.url.endswith("/k/mlp")
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


def test_a_model_of_nan_does_not_agree(page: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy")
    steps = [("Sub", ["x", "ten"], "a"), ("Log", ["a"], "b"), ("Softmax", ["b"], "y")]
    nodes = [onnx.helper.make_node(op, sources, [made]) for op, sources, made in steps]
    ten = onnx.helper.make_tensor("ten", onnx.TensorProto.FLOAT, [], [1000.0])
    graph = onnx.helper.make_graph(nodes, "odd", [x], [y], [ten])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    page.goto(studio[0] + "/")
    page.wait_for_selector("input[type=file]", state="attached")
    odd = {"name": "odd.onnx", "mimeType": "", "buffer": model.SerializeToString()}
    page.set_input_files("input[type=file]", files=[odd])
    page.wait_for_selector(".about .links a")
    page.click(".about .links a:has-text('Check')")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    page.wait_for_selector("pre.bad:has-text('the first nan appears in kernel 0')")
    said = page.inner_text("[role=status]")
    assert "LOG is nan at [0, 0]" in said
    assert "which come from v" in said
    assert page.inner_text(".state.failed") == "nan in a result"
    assert page.locator("text=nothing differs").count() == 0


def test_a_script_is_checked_from_the_page(page: Any, studio: tuple[str, Path]) -> None:
    script = """
from anneal.tensor import Tensor
(Tensor([1.0, 2.0]) + 1.0).realize()
(Tensor([1.0, -2.0]).log() * 3.0).realize()
print("ended")
"""
    page.goto(studio[0] + "/c/mlp")
    page.wait_for_selector("input[type=file]", state="attached")
    page.set_input_files("input[type=file]", files=[{"name": "my net.py", "mimeType": "", "buffer": script.encode()}])
    page.wait_for_selector("h1:has-text('Check my net.py')")
    assert page.locator("input[name=step]").count() == 0
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    page.wait_for_selector("pre.found:has-text('LOG is nan at [1], from my net.py:4')")
    assert page.inner_text("pre.output").strip().startswith("ended")
    assert page.locator("tbody tr").count() == 2
    assert page.evaluate(CUT, True) == []
    assert "my net.py:3" in page.inner_text("tbody")


def test_times_are_shown_as_they_were_measured(page: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    """Medians with their spread, the sum of all runs and no product, and why times do not agree."""
    from anneal import inspect
    from anneal.tensor import Tensor

    with inspect.recording("loop") as r:
        (Tensor([1.0, 2.0], device="cpu") + 1.0).realize()
    summary = r.plans[0].summary()
    ms = {"run": 2, "kernels": 1, "timed": 2, "python": 3, "step": 5, "others": 0}
    spreads = {k: {"median": v / 1e3, "low": v / 2e3, "high": v / 5e2, "count": 19} for k, v in ms.items()}
    why = "of a step of 5.00 ms a run is 2.00 ms, Python between the runs 3.00 ms"
    summary["runs"], summary["seconds"] = 20, 0.002
    summary["times"] = {**summary["times"], **spreads, "runs": 20, "total": 0.05, "reasons": [why]}
    with zipfile.ZipFile(r.save(tmp_path / "r.zip")) as old, zipfile.ZipFile(tmp_path / "loop.zip", "w") as new:
        for name in old.namelist():
            found = json.loads(old.read(name))
            if name == "recording.json":
                found = {**r.summary(), "plans": [summary]}
            if name == "0/kernels.json":
                found["times"]["times"]["parts"] = {"kernels": 0.602, "between kernels": 0.381}
            new.writestr(name, json.dumps(found))
    page.goto(studio[0] + "/")
    page.wait_for_selector("input[type=file]", state="attached")
    data = {"name": "loop.zip", "mimeType": "", "buffer": (tmp_path / "loop.zip").read_bytes()}
    page.set_input_files("input[type=file]", files=[data])
    page.wait_for_selector("a:has-text('The plans that were recorded')")
    page.click("a:has-text('The plans that were recorded')")
    page.wait_for_selector("table")
    said = " ".join(page.inner_text("main").split())
    for part in ("2.00 ms 1.00 ms to 4.00 ms", "5.00 ms 2.50 ms to 10.00 ms", "50.00 ms", why):
        assert part in said
    assert "40.00 ms" not in said, "20 runs of the median"
    assert page.evaluate(CUT, True) == []
    page.click("a[aria-label='1 kernel of plan 0']")
    page.wait_for_selector(".whence")
    parts = " ".join(page.inner_text(".whence").split())
    assert "kernels 60 % of a step between kernels 38 % of a step" in parts
    page.go_back()
    page.click("tbody a.strong")
    page.wait_for_selector("svg g.box")


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
    page.wait_for_selector("button:has-text('Re-run')")
    page.click("a:has-text('beside') >> nth=0")
    page.wait_for_selector("h3:has-text('What differs')")
    page.go_back()
    page.click("button:has-text('Re-run')")
    until(lambda: steps(page) > 5)
    page.click("button:has-text('Stop')")
    page.wait_for_selector("h3:has-text('What it learnt')")
    until(lambda: len(list((where / "runs").glob("[!.]*/manifest.json"))) == 3)


def test_a_run_has_one_loss_and_says_what_watching_changes(page: Any, studio: tuple[str, Path]) -> None:
    """Of the training, of the history and of the first page: the mean of the last steps, and the kernels."""
    page.goto(studio[0] + "/t/mlp?steps=70")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    page.click("a:has-text('In the history')")
    page.go_back()
    page.wait_for_selector("dt:has-text('kernels a step')")
    loss = page.inner_text(".facts div:has(> dt:text-is('loss')) dd")
    assert re.fullmatch(r"\d\.\d{4}, mean of the last 50 steps", loss)
    fused = page.inner_text("p:has-text('kernels are fused')")
    said = re.fullmatch(
        r"Watching keeps the gradients for their norm, so fewer kernels are fused: (\d+) instead of (\d+)\.", fused
    )
    assert said is not None
    assert said[1] == page.inner_text(".facts div:has(> dt:text-is('kernels a step')) dd")
    page.click("dt:text-is('kernels a step') + dd a")
    page.wait_for_selector(f".sub:has-text('{said[2]} kernels')")
    page.go_back()
    page.click("a:has-text('In the history')")
    page.wait_for_selector(f"p:text-is('{fused}')")
    assert page.inner_text(".facts div:has(> dt:text-is('loss')) dd") == loss
    page.wait_for_selector(f"tr.selected td:text-is('{loss[:6]}')")
    page.goto(studio[0] + "/")
    page.wait_for_selector(f"section:has-text('Recent runs') td:text-is('{loss[:6]}')")


def tabbed(page: Any, found: str, most: int = 120) -> None:
    """Press Tab until what has the focus matches a selector."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("found => document.activeElement.matches(found)", found):
            return
    raise AssertionError(f"Tab does not reach {found}")


def test_the_journey_by_keys_alone(page: Any, studio: tuple[str, Path], tmp_path: Path) -> None:
    chosen: list[Any] = []
    page.on(
        "filechooser", lambda chooser: chosen.append(chooser)
    )  # from the start: to be told of choosers takes the browser a moment
    page.goto(studio[0] + "/")
    page.wait_for_selector(".models")
    tabbed(page, "input[type=file]")
    data = {"name": "keys.onnx", "mimeType": "", "buffer": relu(tmp_path / "m.onnx", "keys")}
    page.keyboard.press("Enter")
    until(lambda: page.wait_for_timeout(20) or chosen)
    chosen[0].set_files(files=[data])
    page.wait_for_selector(".about .links a")
    tabbed(page, ".about .links a[href^='/k/']")
    page.keyboard.press("Enter")
    page.wait_for_selector(".code button.known")
    tabbed(page, ".code button[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".origin h3")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_selector(".models")
    tabbed(page, "a[aria-label='Train mlp']")
    page.keyboard.press("Enter")
    page.wait_for_selector("input[name=steps]")
    tabbed(page, "input[name=steps]")
    page.keyboard.type("100000")
    tabbed(page, "select[name=device]")
    page.keyboard.type("c")  # cpu
    assert page.input_value("select[name=device]") == "cpu"
    tabbed(page, "form button.primary")
    page.keyboard.press("Enter")
    until(lambda: steps(page) >= 1, 60)
    page.evaluate("document.querySelector('main').focus()")
    tabbed(page, ".buttons button:nth-of-type(2)")
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    page.wait_for_selector("a:has-text('In the history')")
    page.evaluate("document.querySelector('main').focus()")
    tabbed(page, ".buttons a.button")
    page.keyboard.press("Enter")
    page.wait_for_selector("button:has-text('Re-run')")
    tabbed(page, "main button.primary")
    assert "Re-run" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    until(lambda: steps(page) >= 1, 60)
    page.evaluate("document.querySelector('main').focus()")
    tabbed(page, ".buttons button:nth-of-type(2)")
    page.keyboard.press("Enter")
    page.wait_for_selector("h3:has-text('What it learnt')")


def test_a_page_goes_on_when_the_server_starts_again(page: Any, tmp_path: Path) -> None:
    with _started(tmp_path, ":0") as (url, process):
        page.goto(STUDIOS[url][0])
        page.goto(url + "/t/mlp?steps=100000&bundle=0")
        page.select_option("select[name=device]", "cpu")
        page.click("form button.primary")
        until(lambda: steps(page) > 5)
        process.kill()
        process.wait(10)
    before = steps(page)
    with _started(tmp_path, url.rpartition(":")[2]):
        until(lambda: steps(page) > before + 5)
        page.click("button:has-text('Stop')")
        page.wait_for_selector("h3:has-text('What it learnt')")
        assert page.locator("main .bad").count() == 0


# Counts the frames that the page asks for, and how often it has drawn more steps.
COUNTED = """() => {
  window.asked = window.drawn = 0;
  const ask = window.requestAnimationFrame;
  window.requestAnimationFrame = (f) => (window.asked++, ask.call(window, f));
  const drawn = new MutationObserver(() => window.drawn++);
  drawn.observe(document.querySelector("[data-steps]"), { attributeFilter: ["data-steps"] });
}"""


def test_what_comes_together_is_drawn_in_one_frame(page: Any, studio: tuple[str, Path]) -> None:
    """A frame of its own for the curves would take the processor from the run that they are of once more."""
    page.goto(studio[0] + "/t/mlp?steps=100000&bundle=0")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    until(lambda: steps(page) > 5)
    page.evaluate(COUNTED)
    until(lambda: page.evaluate("window.drawn") >= 20)
    drawn, asked = page.evaluate("[window.drawn, window.asked]")
    page.click("button:has-text('Kill')")
    # Once a second the other curves are drawn, too, which may be a frame later.
    assert drawn <= asked <= 1.3 * drawn + 2
