"""Runs that are compared in a real browser: found and chosen in the list, overlaid, read by hand and by keys, live."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.helpers import until
from tests.web.test_browser import _page, _started, launched, look_at, playwright, tabbed

pytestmark = pytest.mark.ci
COUNT = 24
NAMES = [f"20261101T{n:02d}0000-{'mlp' if n % 2 else 'vit'}-{n:06x}" for n in range(COUNT)]
VIEWS = {
    "history-chosen": (f"/r?runs={NAMES[0]}+{NAMES[1]}", "tbody input:checked"),
    "overlay": (f"/o?runs={'+'.join(NAMES[:10])}", ".plot canvas"),
    "overlay-log": (f"/o?runs={'+'.join(NAMES[:10])}+gone&y=log&x=log", ".amber"),
    "overlay-none": ("/o", "main p a"),
    "overlay-empty": ("/o?runs=gone", ".notes .amber"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address and the folder of a studio with runs of 40 and 20 steps: the first one diverged, the second one fell
    below 0, and the last one has 40,000 steps.
    """
    where = tmp_path_factory.mktemp("compare")
    for n, name in enumerate(NAMES):
        keep(where / "runs" / name, n)
    with _started(where, ":0") as (found, _):
        yield found, where


@pytest.fixture(scope="module")
def url(studio: tuple[str, Path]) -> str:
    return studio[0]


def keep(place: Path, n: int) -> None:
    place.mkdir(parents=True)
    steps = 40_000 if n == COUNT - 1 else 20 if n % 3 == 2 else 40
    losses = [0.5 - s / 40 if n == 1 else (1 + n) * math.exp(-s / (steps / 4)) for s in range(1, steps + 1)]
    validated = ",val_loss" if n == 2 else ""
    rows = [f"{s},{x},1{f',{2 * x}' if validated else ''}\n" for s, x in enumerate(losses, 1)]
    (place / "loss.csv").write_text(f"step,loss,ms{validated}\n" + "".join(rows))
    facts = {"model": place.name.split("-")[1], "status": "done", "begun": f"2026-11-{n + 1:02d}T12:00:00Z", "steps": 40,
             "steps_done": steps, "lr": [0.01, 0.1][n % 2], "seed": n, "batch": 8, "command": ["train"]}  # fmt: skip
    if n == 0:
        facts |= {"status": "failed", "error": "UserError: the loss became nan at step 41; try a smaller --lr"}
    (place / "manifest.json").write_text(json.dumps(facts))


@pytest.fixture
def page(browser: Any, studio: tuple[str, Path]) -> Iterator[Any]:
    yield from _page(browser, color_scheme="dark", timezone_id="UTC")


def test_they_are_accessible_in_every_theme_and_at_every_width(
    browser: Any, studio: tuple[str, Path], tmp_path: Path
) -> None:
    look_at(browser, studio, VIEWS, tmp_path)


def heads(page: Any) -> list[str]:
    return [h.strip(" ↑↓") for h in page.locator("thead th").all_inner_texts()]


def test_runs_are_found_chosen_and_compared(page: Any, url: str) -> None:
    page.goto(url + "/r")
    page.wait_for_selector("tbody tr")
    rows = page.locator("tbody tr")
    for find, count in (("mlp", 12), ("mlp 2026-11-04", 1), ("seed=7", 1), (NAMES[5][-6:], 1), ("nothing", 0)):
        page.fill("input[type=search]", find)
        playwright.expect(rows, find).to_have_count(count)
    page.fill("input[type=search]", "")
    page.fill("input[type=date] >> nth=0", "2026-11-03")
    page.fill("input[type=date] >> nth=1", "2026-11-06")
    playwright.expect(rows).to_have_count(4)
    page.select_option("select >> nth=0", "vit")
    playwright.expect(rows).to_have_count(2)
    assert page.locator("main button.primary").is_disabled()
    page.click("button:has-text('Choose these 2')")
    page.goto(url + "/r?" + page.url.partition("?")[2].split("&")[-1])  # the list without its filters
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody input:checked").count() == 2
    page.check(f"input[aria-label$='{NAMES[0]}']")
    page.click("button:has-text('Compare 3 runs')")
    page.wait_for_selector(".plot canvas")
    playwright.expect(rows).to_have_count(3)
    assert heads(page) == ["line", "run", "model", "seed", "loss of the step", "validation", "state", "take out"]
    assert "diverged; what was finite is drawn" in page.inner_text(".notes")
    page.click(f"button[aria-label='take out {NAMES[0]}']")
    page.wait_for_selector("h1:has-text('2 runs')")
    playwright.expect(rows).to_have_count(2)
    page.click("a:has-text('Choose runs')")
    page.wait_for_selector("button:has-text('Compare 2 runs')")


def test_values_are_read_at_a_step_by_hand_and_by_keys(page: Any, url: str) -> None:
    page.goto(f"{url}/o?runs={NAMES[3]}+{NAMES[2]}")
    page.wait_for_selector(".plot canvas")
    losses = page.locator("tbody td:nth-child(6)")  # line, run, model, lr, seed, loss
    assert [float(x) for x in losses.all_inner_texts()] == pytest.approx([4 * math.exp(-4), 3 * math.exp(-4)], rel=1e-4)
    box = page.locator(".plot .u-over").bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 9)
    page.wait_for_selector("h2:has-text('at step 1')")
    read = [float(x) for x in losses.all_inner_texts()]
    assert read == pytest.approx([4 * math.exp(-0.1), 3 * math.exp(-0.2)], rel=1e-4)
    page.mouse.move(0, 0)
    tabbed(page, ".steps input")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h2:has-text('at step 2')")
    assert float(losses.all_inner_texts()[0]) == pytest.approx(4 * math.exp(-0.2), rel=1e-4)
    page.keyboard.press("End")
    page.wait_for_selector("h2:has-text('at step 40')")
    assert losses.all_inner_texts()[1] == "–"  # it ended before
    assert f"{NAMES[3]} 0.0732" in page.get_attribute(".steps input", "aria-valuetext")


def test_a_run_of_more_steps_than_slots_is_read_exactly(page: Any, url: str) -> None:
    page.goto(f"{url}/o?runs={NAMES[-1]}")
    page.wait_for_selector(".notes:has-text('Of every 8 steps the least and the greatest loss are drawn')")
    assert float(page.inner_text("tbody .figure")) == pytest.approx(COUNT * math.exp(-4), rel=1e-4)
    page.locator(".steps input").fill("6")
    page.wait_for_selector("h2:has-text('at step 24')")
    page.wait_for_selector(f"tbody .figure:text-is('{COUNT * math.exp(-2.4e-3):.5g}')")


def test_axes_are_logarithmic_and_the_address_restores_them(page: Any, url: str) -> None:
    page.goto(f"{url}/o?runs={NAMES[1]}+{NAMES[4]}")
    page.wait_for_selector(".plot canvas")
    assert "above 0" not in page.inner_text(".notes")
    page.check("label:has-text('log loss') input")
    page.check("label:has-text('log steps') input")
    page.wait_for_selector(".notes:has-text('21 losses of 1 run are not above 0 and left out')")
    assert page.url.endswith("&y=log&x=log")
    page.reload()
    page.wait_for_selector(".notes:has-text('21 losses')")
    assert page.locator(".check input:checked").count() == 2
    page.check("label:has-text('table') input")
    shown = page.locator(".chart tbody tr >> nth=29").locator("td").all_inner_texts()
    assert (shown[0], shown[1]) == ("30", "")  # a loss of -0.25
    page.uncheck("label:has-text('log loss') input")
    until(lambda: page.locator(".chart tbody tr >> nth=29").locator("td").all_inner_texts()[1] == "-0.25")


def test_a_run_that_trains_grows_in_the_overlay(page: Any, url: str) -> None:
    page.goto(url + "/t/mlp?steps=100000&bundle=0")
    page.select_option("select[name=device]", "cpu")
    page.click("form button.primary")
    page.wait_for_selector("button:has-text('Stop')")
    page.goto(url + "/r?find=running")
    page.click("tbody input >> nth=0")
    page.fill("input[type=search]", NAMES[3])
    page.click("tbody input >> nth=0")
    page.click("button:has-text('Compare 2 runs')")
    points = "[data-points]"
    page.wait_for_selector(points)
    before = int(page.get_attribute(points, "data-points"))
    until(lambda: int(page.get_attribute(points, "data-points")) > before + 40)
    job = page.url.split("job.")[1].split("+")[0].split("&")[0]
    other = page.context.new_page()
    other.goto(f"{url}/t/mlp?job={job}")
    other.click("button:has-text('Stop')")
    page.wait_for_selector("tbody .state.stopped")
    page.reload()
    page.wait_for_selector("tbody .state.stopped")
    assert int(page.get_attribute(points, "data-points")) > before + 40
