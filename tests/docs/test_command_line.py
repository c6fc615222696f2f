"""The page of the command line has a section for each command, which names all of its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anneal.cli._app import run

PAGE = (Path(__file__).resolve().parents[2] / "docs/command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## anneal ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMON = {"--json", "--quiet", "--device", "--adapter", "--help"}  # the page's head has them
COMMANDS = {
    "doctor": ["doctor"], "train": ["train"], "launch": ["launch"], "data": ["data tokenize"], "gpt2 sample": ["gpt2 sample"], "run": ["run text", "run llama2c", "run resnet9"],
    "export": ["export"], "fit": ["fit"],
    "onnx": ["onnx info", "onnx run", "onnx check", "onnx export"], "graph": ["graph"], "kernels": ["kernels"],
    "explain": ["explain"], "check": ["check"], "record": ["record"], "web": ["web"], "viz": ["viz"],
    "cache": ["cache where", "cache ls", "cache prune"],
}  # fmt: skip


def test_each_command_has_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert SECTIONS.keys() == COMMANDS.keys()
    assert run(["--help"]) == 0
    told = set(re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE))
    assert {name.split()[0] for name in COMMANDS} == told & {name.split()[0] for name in COMMANDS}
    assert not {name for name in told if name.islower()} - {name.split()[0] for name in COMMANDS}


@pytest.mark.parametrize("section", COMMANDS)
def test_a_section_names_every_option_and_no_other(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    there: set[str] = set()
    for command in COMMANDS[section]:
        assert run([*command.split(), "--help"]) == 0
        there |= set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE))
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", SECTIONS[section]))
    assert there - COMMON <= named
    assert named - COMMON - {"--save", "--kernel"} <= there | {"--steps"}
