"""What the documents state is what the code does: examples are run, tables and names compared."""

from __future__ import annotations

import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest

from anneal import settings
from benchmarks.report import RESULTS, document
from tests.docs import snippets

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "README.md",
    "SPEC.md",
    "LIMITATIONS.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("anneal", "docs", "examples")
        for path in (ROOT / folder).rglob("*.md")
        if not {"_examples", "node_modules"} & set(path.parts)
    ),
)
PROJECT = "/anneal-compiler/anneal"
# A python block, and the output that a text block right after it shows.
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


EXAMPLES = [
    pytest.param(name, match[1], match[2], id=f"{name}:{read(name)[: match.start()].count(chr(10)) + 1}")
    for name in DOCUMENTS
    if name not in snippets.pages()
    for match in EXAMPLE.finditer(read(name))
]


@pytest.mark.parametrize(("name", "code", "expected"), EXAMPLES)
def test_an_example_prints_what_the_document_shows(name: str, code: str, expected: str, tmp_path: Path) -> None:
    printed = io.StringIO()
    with settings.override(device="cpu"), contextlib.redirect_stdout(printed), contextlib.chdir(tmp_path):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    assert printed.getvalue().rstrip() == expected.rstrip()


def test_every_document_with_code_has_examples_that_run() -> None:
    assert {p.values[0] for p in EXAMPLES} >= {"README.md", "SPEC.md"}


def test_the_readme_trains_in_nine_lines_and_fits_three_screens() -> None:
    first = next(p.values[1] for p in EXAMPLES if p.values[0] == "README.md")
    assert isinstance(first, str)
    loop = re.search(r"^model = .*?^    return loss$", first, re.MULTILINE | re.DOTALL)
    assert loop
    assert len([line for line in loop[0].splitlines() if line]) == 9
    assert all(word in loop[0] for word in ("nn.", "optim.", "jit"))
    assert len(read("README.md").splitlines()) <= 3 * 45


def test_links_of_the_readme_are_absolute_and_lead_to_files() -> None:
    """It is shown by package registries too, where a relative link leads nowhere."""
    links = re.findall(r"\]\(([^)\s]+)\)", read("README.md"))
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [re.fullmatch(rf"https://\S+{PROJECT}/(?:blob/)?main/(\S+)", link) for link in links]
    assert [found[1] for found in ours if found and not (ROOT / found[1]).exists()] == []
    assert sum(found is not None for found in ours) == len(links) - 1  # the other one is the site's


def test_the_package_says_where_it_lives() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert set(project["urls"]) == {"Documentation", "Source", "Issues", "Changelog"}
    assert project["urls"]["Source"].endswith(PROJECT)
    # nothing is published yet: the line installs from the source
    assert f"pip install git+https://github.com{PROJECT}\n" in read("README.md")
    assert project["urls"]["Source"] in read("mkdocs.yml")


def test_the_table_of_variables_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| `(ANNEAL_\w+)` \| ([^|]*) \| ([^|]*) \|", read("docs/environment.md"), re.MULTILINE)
    assert [(n, v.strip().replace("`", ""), m.strip()) for n, v, m in rows] == [
        (s.variable, s.values, s.meaning) for s in settings.TABLE
    ]


def test_the_benchmarks_are_those_of_the_results() -> None:
    assert read("BENCHMARKS.md") == document(RESULTS), "python -m benchmarks.report writes it anew"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_a_document_names_exist(name: str) -> None:
    named = re.findall(r"`((?:anneal|tests|examples|benchmarks)/[\w/.]+)`", read(name))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", read("README.md"))) <= targets


def test_the_specification_lists_every_rule_file() -> None:
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "anneal").rglob("*.upat")}
    assert set(re.findall(r"^\| `(anneal/[\w/]+\.upat)` \|", read("SPEC.md"), re.MULTILINE)) == written


def test_the_changelog_has_its_groups_and_an_entry_in_each() -> None:
    unreleased = re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)[1]
    assert unreleased.startswith("Unreleased\n")
    groups = dict(re.findall(r"^### (.*)\n\n((?:(?!^#).*\n?)*)", unreleased, re.MULTILINE))
    for group in ("Memory and threads", "Values and gradients", "Files and command line", "Breaking changes"):
        assert groups[group].startswith("- "), group
        assert all(line.startswith(("- ", "  ")) for line in groups[group].splitlines() if line), group


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name: str) -> None:
    prose = re.sub(r"`[^`\n]*`", "", read(name))
    # Pages of the reference are made when the site is, which looks at these links itself.
    links = re.findall(r"\]\((?!https?://|#|reference/)([^)#\s]+)", prose)
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_a_page_with_its_four_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Choice", "Consequence", "Figures"]
    assert text.startswith(f"# {int(path.stem[:4])}. ")
    assert len(text.splitlines()) <= 60


def test_the_index_lists_every_decision_by_its_title() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+\.md)\) \| (.*) \|$", read("docs/decisions/README.md"), re.MULTILINE)
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in DECISIONS]
    assert listed == [
        (path.stem[:4], path.name, title.partition(". ")[2]) for path, title in zip(DECISIONS, titles, strict=True)
    ]
    assert [int(number) for number, _, _ in listed] == list(range(1, len(DECISIONS) + 1))
