"""The words that a shell completes: models, ops, methods, passes and files. Names that the compiler has are read from
its text, since completing is to take no time and importing it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from anneal import settings as environment
from anneal.errors import DataError, UserError
from anneal.names import METHODS, STATICS

_PACKAGE = Path(__file__).resolve().parents[1]

Items = list[tuple[str, str]]  # what is typed, and what it is


def models(incomplete: str) -> Items:
    """The models of examples/ that begin so.

    >>> models("nano")
    [('nanogpt', 'a character GPT on Tiny Shakespeare')]
    """
    from anneal.training import MODELS

    return _beginning(MODELS.items(), incomplete)


def traceable(incomplete: str) -> Items:
    """Models, and ONNX files."""
    return models(incomplete) + _files(incomplete, ".onnx")


def runnable(incomplete: str) -> Items:
    """Models, ONNX files and scripts."""
    return traceable(incomplete) + _files(incomplete, ".py")


def explained(incomplete: str) -> Items:
    """Ops and Tensor methods; ops in lower case too, as `anneal explain` takes them."""
    names = [*ops(), *methods()]
    found = _beginning([(n, "") for n in names], incomplete)
    return found or _beginning([(n.lower(), "") for n in ops()], incomplete)


def passes(incomplete: str) -> Items:
    """The passes of the compiler."""
    text = _text("schedule/passes/pipeline.py") + _text("codegen/pipeline.py")
    names = re.findall(r'\bPass\(\s*name="([a-z-]+)"', text)
    return _beginning(dict.fromkeys(names, "").items(), incomplete)


def ops() -> list[str]:
    """The names of the ops of the language."""
    return re.findall(r"^    ([A-Z]\w*) = _\w+\(", _text("uop/ops.py"), re.MULTILINE)


def methods() -> list[str]:
    """The names of the public methods of Tensor."""
    text = _text("tensor/_tensor.py")
    properties = set(re.findall(r"@(?:property|\w+\.setter)\n +def (\w+)", text))
    names = set(re.findall(r"^    def ([a-z]\w*)\(", text, re.MULTILINE))
    elsewhere = re.findall(r'^    "anneal[\w.]+": "([^"]+)"', text, re.MULTILINE)  # methods of other rooms
    names.update(" ".join([METHODS, STATICS, *elsewhere]).split())
    several = r"^    ((?:[a-z]\w*(?:, | = ))+)(.*)"  # `a = b = f`, `a, b = f, g`
    for told, value in re.findall(several, text, re.MULTILINE):
        none = re.match(r"property\(|map\(property|True|False|\"", value)
        (properties if none else names).update(re.findall(r"\w+", told))
    return sorted(names - properties)


def script(named: str | None = None) -> str:
    """The script by which a shell completes the command: the shell that is named, or the one that runs this process.

    UserError for a shell that is not known.
    """
    return str(
        import_module("typer.completion").get_completion_script(
            prog_name="anneal", complete_var="_ANNEAL_COMPLETE", shell=_shell(named)
        )
    )


def install(named: str | None = None) -> str:
    """Have a shell complete the command: the one that is named, or that this runs in; what was done.

    The user's own file of settings is replaced whole or not at all. UserError for a shell that is not known, DataError
    for a file that cannot be written.
    """
    from anneal.cli._choices import write_file

    shell, home = _shell(named), Path.home()
    path, settings, line = {
        "bash": (home / ".bash_completions" / "anneal.sh", home / ".bashrc", "source ~/.bash_completions/anneal.sh"),
        "zsh": (home / ".zfunc" / "_anneal", home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        "fish": (home / ".config" / "fish" / "completions" / "anneal.fish", None, ""),
    }[shell]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = settings.read_bytes() if settings is not None and settings.exists() else b""
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from None
    write_file(path, f"{script(shell)}\n".encode())
    if settings is None or line.encode() in old:
        return f"{shell}: {path}"
    write_file(settings, old + f"\n{line}\n".encode())
    return f"{shell}: {path}, and a line in {settings}"


def _shell(named: str | None) -> str:
    """The shell that is named, else the one that runs this, else the user's; one of those that are completed."""
    shells = ("bash", "zsh", "fish")
    if named is None:
        try:
            named = str(import_module("shellingham").detect_shell()[0])
        except (ImportError, OSError):  # its own error, that it found none, is an OSError
            named = ""
        if named not in shells:  # the sh of a Makefile, say
            named = Path(environment.variable("SHELL")).name
    if named not in shells:
        raise UserError(f"anneal completes in bash, zsh and fish, not in {named or 'this shell'}: name one of them")
    return named


def _text(file: str) -> str:
    try:
        return (_PACKAGE / file).read_text(encoding="utf-8")
    except OSError:  # a package without its text: then there is nothing to complete with
        return ""


def _beginning(items: Iterable[tuple[str, str]], incomplete: str) -> Items:
    return [item for item in items if item[0].startswith(incomplete)]


def _files(incomplete: str, end: str) -> Items:
    """Files with this ending whose paths begin so."""
    folder, _, name = incomplete.rpartition("/")
    try:
        found = sorted(p.name for p in Path(f"{folder}/" if "/" in incomplete else ".").iterdir())
    except OSError:
        return []
    before = f"{folder}/" if "/" in incomplete else ""
    return [(before + n, "") for n in found if n.endswith(end) and n.startswith(name) and (name or n[0] != ".")]
