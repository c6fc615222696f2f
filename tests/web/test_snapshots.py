"""A view as one page: what is in it, what is not, and that it asks nobody."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from anneal.web.jobs import Job
from tests.cli.helpers import run
from tests.web.helpers import Client
from tests.web.test_server import relu, upload

ROOT = Path(__file__).resolve().parents[2]


def kept(page: str) -> dict[str, Any]:
    """What the page has packed."""
    data = re.search(r'id="snapshot">([^<]*)<', page)
    assert data is not None
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data[1])))
    return found


def taken(client: Client, view: str) -> str:
    answer = client.get("/api/snapshot", params={"view": view})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_page_has_the_answers_of_its_view_and_no_more_than_that(shared: Client, tmp_path: Path) -> None:
    other = upload(shared, "other.onnx", relu(tmp_path / "m.onnx"))
    page = taken(shared, "/k/mlp?kernel=2&line=12")
    found = kept(page)
    assert found["view"] == "/k/mlp?kernel=2&line=12"
    asked = shared.get("/api/ask/kernel", params={"model": "mlp", "step": "1", "kernel": 2}).json()
    kernel = found["answers"]["/api/ask/kernel&kernel=2&model=mlp&step=1"]
    assert [x["text"] for x in kernel["text"]["lines"]] == [x["text"] for x in asked["text"]["lines"]]
    line = next(x["lines"][0] for x in asked["text"]["lines"] if x["lines"])
    file = Path(line["file"]).relative_to(ROOT)
    source = f"/api/ask/source&file={file}&line={line['line']}&model=mlp&step=1"
    assert found["answers"][source]["line"] == line["line"]
    session = found["answers"]["/api/session"]
    assert (session["token"], session["uploads"], session["jobs"], session["runs"]) == ("", [], [], [])
    assert Path(line["file"]).is_absolute()
    assert str(ROOT) not in json.dumps(found)
    assert shared.app.key.token not in page  # type: ignore[attr-defined]
    assert other["id"] not in page


def test_its_policy_allows_what_it_has_alone(shared: Client) -> None:
    page = taken(shared, "/x/EXP")
    policy = re.search(r'content="(default-src[^"]*)"', page)
    assert policy is not None
    for tag, name in (('<script type="module">', "script"), ("<style>", "style")):
        text = page.split(tag, 1)[1].split(f"</{name}>", 1)[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy[1]
    assert "connect-src" not in policy[1]
    assert "unsafe" not in policy[1]
    assert not re.search(r'(?:src|href)="?/', page.split("<script", 1)[0])


def test_every_view_has_one(shared: Client) -> None:
    runs = shared.studio.where / "runs"  # type: ignore[attr-defined]
    job = "20260314T150926-train-a1b2c3"
    place = runs / ".studio" / "jobs" / job
    place.mkdir(parents=True)
    facts = Job(job, "train", "mlp", "cpu", [], {}, state="done", run="one")
    (place / "job.json").write_text(json.dumps(dataclasses.asdict(facts)))
    (place / "events.jsonl").write_text('{"event":"start"}\n{"event":"step"}\n')
    shared.studio.jobs.read()  # type: ignore[attr-defined]
    (runs / "one").mkdir()
    (runs / "one" / "manifest.json").write_text('{"model": "mlp"}')
    for view, wanted in (
        ("/", "/api/doctor"),
        ("/v/mlp?pass=early-rewrites", "/api/ask/pass&model=mlp&name=early-rewrites&step=1"),
        ("/x/EXP", "/api/ask/explain&op=EXP"),
        (f"/t/mlp?job={job}", f"/api/jobs/{job}/events"),
        ("/r/one", "/api/runs/one"),
        ("/o?runs=one+two&x=log", "/api/curves&runs=one two&x=log"),
    ):
        assert wanted in kept(taken(shared, view))["answers"], view
    events = kept(taken(shared, f"/t/mlp?job={job}"))["answers"][f"/api/jobs/{job}/events"]
    assert [e["event"] for e in events["lines"]] == ["start", "step"]
    assert events["state"]["state"] == "done"


@pytest.mark.parametrize("view", ["/nowhere", "/v/nothing", "/v/../etc/passwd", "/r/none", "/t/mlp?job=1"])
def test_what_is_no_view_is_an_error(shared: Client, view: str) -> None:
    answer = shared.get("/api/snapshot", params={"view": view})
    assert (answer.status_code, bool(answer.json()["error"])) == (422, True)


def test_the_command_writes_a_file_of_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    relu(tmp_path / "m.onnx")
    outcome = run(capsys, "web", "--snapshot", "/v/m.onnx", "-o", "page.html")
    assert (outcome.code, outcome.err) == (0, "wrote page.html\n")
    assert [u["name"] for u in kept((tmp_path / "page.html").read_text())["answers"]["/api/session"]["uploads"]] == [
        "m.onnx"
    ]
    assert run(capsys, "web", "--snapshot", "/v/mlp", "-o", "no/page.html").code == 4
    assert run(capsys, "web", "--snapshot", "/v/mpl").code == 2


@pytest.mark.ci
def test_it_opens_from_a_file_and_asks_nobody(shared: Client, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next((c for n in ("chromium", "chromium-browser", "google-chrome") if (c := shutil.which(n))), None)
    if chromium is None:
        pytest.skip("needs a chromium")
    views = {"/v/mlp?node=12": "svg g.box", "/k/mlp?kernel=2&line=12": ".origin h3"}
    for n, view in enumerate(views):
        (tmp_path / f"{n}.html").write_text(taken(shared, view), encoding="utf-8")
    asked, wrong = [], []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda r: asked.append(r.url) if not r.url.startswith(("data:", "blob:", "file:")) else None)
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        for n, there in enumerate(views.values()):
            page.goto((tmp_path / f"{n}.html").as_uri())
            page.wait_for_selector(there)
        page.click("main table a >> nth=0")
        page.wait_for_selector("h2:has-text('Kernel 0')")
        browser.close()
    assert (asked, wrong) == ([], [])


def test_the_page_of_the_gallery_is_whole() -> None:
    page = (ROOT / "docs/studio/kernels.html").read_text(encoding="utf-8")
    found = kept(page)
    assert found["view"] == "/k/mlp?kernel=2&line=14"
    assert found["answers"]["/api/ask/kernel&kernel=2&model=mlp&step=1"]["text"]["lines"][13]["lines"]
    script = page.split('<script type="module">', 1)[1].split("</script>", 1)[0]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in page
