"""The page's built files: of their sources, small, and without anything from elsewhere."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APP, STATIC = ROOT / "anneal/web/app", ROOT / "anneal/web/static"
FIRST = ("index.html", "main.js", "style.css", "icon.svg")


def test_the_built_files_are_what_the_sources_make() -> None:
    node = shutil.which("node")
    if node is None or not (APP / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs node and `npm ci` in anneal/web/app, as .ci/run does")
    done = subprocess.run([node, "build.mjs", "--check"], cwd=APP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + "run: make web-build"


def test_the_first_view_is_small() -> None:
    sent = sum(len(gzip.compress((STATIC / name).read_bytes(), 6)) for name in FIRST)
    assert sent <= 600 << 10
    assert sent <= 90 << 10, "it was 65 KB; the bar of the issue is 600"


def test_nothing_is_fetched_from_elsewhere_or_written_inline() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["/static/icon.svg", "/static/style.css", "/static/main.js"]
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
    assert not re.search(r"url\((?!['\"]?data:)", (STATIC / "style.css").read_text(encoding="utf-8"))
    script = (STATIC / "main.js").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w./-]+", script)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/1999/xhtml",
        "http://x",  # only a base that a path is read against
    }  # fmt: skip
    assert not re.search(r"\beval\(|new Function\(", script)


def test_the_sources_put_no_text_into_the_page_as_markup() -> None:
    for path in sorted((APP / "src").glob("*.ts*")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\b", text
        ), path
