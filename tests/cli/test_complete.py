"""Completion: what each shell offers, and that offering it does not import the compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anneal.cli import _flags
from anneal.cli._app import run
from anneal.inspect import ALL, passes, tensor_methods
from anneal.names import METHODS, OPS, OTHERS, PASSES, STATICS
from anneal.training import MODELS

ROOT = Path(__file__).resolve().parents[2]


def test_names_of_the_table_are_those_that_there_are() -> None:
    assert OPS.split() == list(ALL)
    assert sorted(f"{METHODS} {STATICS} {OTHERS}".split()) == tensor_methods()
    assert PASSES.split() == [p.name for p in passes()]


def offered(shell: str, line: str, cwd: Path = ROOT) -> list[str]:
    """What is offered for the last word of the line, in a process of its own that says what it imported."""
    code = (
        "import sys, atexit; from anneal.cli import main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    words = line.split(" ")
    env = {
        "complete_bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "complete_zsh": {"_TYPER_COMPLETE_ARGS": line},
        "complete_fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[f"complete_{shell}"]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "_ANNEAL_COMPLETE": f"complete_{shell}", **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    heavy = {"numpy", "wgpu", "anneal.uop", "anneal.tensor", "anneal.schedule", "anneal.backend"}
    assert not heavy & set(done.stderr.split()), "completing imports the compiler"
    return done.stdout.splitlines()


@pytest.mark.parametrize(("shell", "line", "wanted"), [
    ("bash", "anneal ke", ["kernels"]),
    ("bash", "anneal train makemore-g", ["makemore-gru", "makemore-gpt"]),
    ("bash", "anneal explain conv", ["conv2d"]),
    ("bash", "anneal graph mlp --until lin", ["linearise"]),
    ("bash", "anneal train --check", ["--checkpoint", "--checkpoint-every"]),
    ("bash", "anneal train mlp --device w", ["webgpu"]),
    ("bash", "anneal check s", ["some.onnx", "script.py"]),
    ("zsh", "anneal train nano", ["nanogpt"]),
    ("fish", "anneal onnx ex", ["export"]),
])  # fmt: skip
def test_what_is_offered(tmp_path: Path, shell: str, line: str, wanted: list[str]) -> None:
    for name in ("some.onnx", "script.py", "others.txt"):
        (tmp_path / name).touch()
    found = offered(shell, line, tmp_path)
    assert [w for w in wanted if any(w in x for x in found)] == wanted
    assert len(found) == len(wanted) if line != "anneal explain conv" else "nanogpt" not in found


def test_files_in_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("a.onnx", "b.onnx", ".hidden.onnx", "c.py"):
        (tmp_path / "models" / name).touch()
    assert [n for n, _ in _flags.traceable("models/")] == ["models/a.onnx", "models/b.onnx"]
    assert [n for n, _ in _flags.runnable("models/c")] == ["models/c.py"]
    assert _flags.traceable("nowhere/x") == []
    assert [n for n, _ in _flags.traceable("")] == list(MODELS)


@pytest.mark.parametrize(
    ("named", "users", "wanted"), [("zsh", "/bin/sh", "compdef"), (None, "/usr/bin/fish", "--no-f")]
)
def test_the_shell_that_is_named_or_the_users(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str | None, users: str, wanted: str
) -> None:
    """Whatever runs the command, as the sh of a Makefile does."""
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("sh", "/bin/sh"))
    monkeypatch.setenv("SHELL", users)
    assert run(["--show-completion", *([named] if named else [])]) == 0
    assert wanted in capsys.readouterr().out


def test_no_shell_that_is_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("sh", "/bin/sh"))
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert run(["--show-completion"]) == 2
    assert "not in dash: name one of them" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself(tmp_path: Path) -> None:
    """The script that `--show-completion` prints, in a bash that completes a line with it."""
    command = tmp_path / "anneal"
    command.write_text(f"#!{sys.executable}\nfrom anneal.cli import main\nmain()\n")
    command.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        ["anneal", "--show-completion", "bash"], capture_output=True, text=True, env=env, check=False
    )
    line = 'COMP_WORDS=(anneal train nano); COMP_CWORD=2; _anneal_completion anneal; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{shown.stdout}\n{line}"], capture_output=True, text=True, env=env, check=False
    )
    assert done.stdout == "nanogpt\n", (shown, done)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_installing_leaves_what_the_user_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    from anneal import files
    from anneal.errors import DataError

    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / f".{shell}rc"
    own.write_text("alias a=anneal\n")
    for _ in range(2):
        said = _flags.install(shell)
    text = own.read_text()
    assert text.startswith("alias a=anneal\n")
    added = {"bash": "source ~/.bash_completions/anneal.sh", "zsh": "fpath+=~/.zfunc", "fish": "alias"}[shell]
    assert text.count(added) == 1, "it was added twice"
    script = Path(said.split(": ")[1].split(",")[0])
    assert "_ANNEAL_COMPLETE" in script.read_text()

    def full(path: Path, write: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "replace", full)
    own.write_text("alias a=anneal\n")
    with pytest.raises(DataError, match="No space left"):
        _flags.install(shell)
    assert own.read_text() == "alias a=anneal\n"


def test_a_shell_that_is_not_known() -> None:
    from anneal.errors import UserError

    with pytest.raises(UserError, match="bash, zsh and fish"):
        _flags.install("csh")
