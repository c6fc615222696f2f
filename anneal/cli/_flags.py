"""The parts of commands: words that shells complete, flags, checks of what was given, scripts of the user's."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

from anneal import files, settings
from anneal.cli._output import be_quiet, data, json_report, message
from anneal.errors import AnnealError, DataError, SettingError, UserError
from anneal.names import METHODS, OPS, OTHERS, PASSES, STATICS
from anneal.training import MODELS, check_model, suggest

if TYPE_CHECKING:
    from anneal.backend import AnyDevice
    from anneal.inspect import PlanRecording

_PACKAGE = Path(__file__).resolve().parents[1]

# -- completion: names that the compiler has stand in a table, since importing it takes a while ----------------------

Items = list[tuple[str, str]]  # a completion, and its description


def models(incomplete: str) -> Items:
    """The names of example models that begin with the text.

    >>> models("nano")
    [('nanogpt', 'a character GPT on Tiny Shakespeare')]
    """
    return [item for item in MODELS.items() if item[0].startswith(incomplete)]


def traceable(incomplete: str) -> Items:
    """Models, and ONNX files."""
    return models(incomplete) + _files(incomplete, ".onnx")


def runnable(incomplete: str) -> Items:
    """Models, ONNX files and scripts."""
    return traceable(incomplete) + _files(incomplete, ".py")


def explained(incomplete: str) -> Items:
    """Ops and Tensor methods; ops in lower case too, as `anneal explain` takes them."""
    found = [*_words(OPS, incomplete), *sorted(_words(f"{METHODS} {STATICS} {OTHERS}", incomplete))]
    return found or _words(OPS.lower(), incomplete)


def passes(incomplete: str) -> Items:
    """The passes of the compiler."""
    return _words(PASSES, incomplete)


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
    shell, home = _shell(named), Path.home()
    path, startup, line = {
        "bash": (home / ".bash_completions" / "anneal.sh", home / ".bashrc", "source ~/.bash_completions/anneal.sh"),
        "zsh": (home / ".zfunc" / "_anneal", home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        "fish": (home / ".config" / "fish" / "completions" / "anneal.fish", None, ""),
    }[shell]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = startup.read_bytes() if startup is not None and startup.exists() else b""
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from None
    write_file(path, f"{script(shell)}\n".encode())
    if startup is None or line.encode() in old:
        return f"{shell}: {path}"
    write_file(startup, old + f"\n{line}\n".encode())
    return f"{shell}: {path}, and a line in {startup}"


def _shell(named: str | None) -> str:
    """The shell that is named, else the one that runs this process, else the user's; UserError unless anneal completes
    in it.
    """
    shells = ("bash", "zsh", "fish")
    if named is None:
        try:
            named = str(import_module("shellingham").detect_shell()[0])
        except (ImportError, OSError):  # its own error, that it found none, is an OSError
            named = ""
        if named not in shells:  # the sh of a Makefile, say
            named = Path(settings.variable("SHELL")).name
    if named not in shells:
        raise UserError(f"anneal completes in bash, zsh and fish, not in {named or 'this shell'}: name one of them")
    return named


def _words(names: str, incomplete: str) -> Items:
    return [(name, "") for name in names.split() if name.startswith(incomplete)]


def _files(incomplete: str, end: str) -> Items:
    """Paths of files with this ending that begin with the text."""
    folder, slash, name = incomplete.rpartition("/")
    try:
        found = sorted(p.name for p in Path(folder + slash).iterdir())
    except OSError:
        return []
    shown = [n for n in found if n.endswith(end) and n.startswith(name) and (name or n[0] != ".")]
    return [(folder + slash + n, "") for n in shown]


# -- commands and their flags ------------------------------------------------------------------------------------------


Run = TypeVar("Run", bound=Callable[[Any], int | None])


class CommandGroup(TyperGroup):
    """A group that lists its commands with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list, folded where it is too wide."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(1000)) for name, c in commands if c is not None])


class ModelCommand(TyperCommand):
    """A command whose help lists the models of examples/."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the models before the options."""
        with formatter.section("Models"):
            formatter.write_dl(list(MODELS.items()))
        super().format_options(ctx, formatter)


def alone() -> typer.Typer:
    """The app of a file with one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)


def group(name: str, about: str) -> typer.Typer:
    """The app of a file with a group of commands."""
    return typer.Typer(
        name=name, cls=CommandGroup, help=about, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def command(app: typer.Typer, name: str | None = None, **how: Any) -> Callable[[Run], Run]:
    """Make a command of a function: its flags are the fields of the dataclass that it takes, and what it returns is the
    exit code.

    A command with many flags is a dataclass of them, a line each, and a function that takes it: `command` makes a
    command of the two. What `number`, `option`, `switch` and `argument` give stands as the field's default; the flag's
    own is the one that they were given, else False of a bool, None of others.
    """

    def take(run: Run) -> Run:
        flags, _ = get_type_hints(run).values()

        def called(**given: Any) -> None:
            raise typer.Exit(run(flags(**given)) or 0)

        hints = get_type_hints(flags, include_extras=True)
        parameters = [p.replace(annotation=hints[p.name]) for p in inspect.signature(flags).parameters.values()]
        for p in parameters:
            if isinstance(p.default, ParameterInfo) and p.default.default is ...:
                p.default.default = False if p.annotation is bool else None
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__, called.__doc__ = {p.name: p.annotation for p in parameters}, run.__doc__
        app.command(name or run.__name__, **how)(called)
        return run

    return take


class DeviceName(StrEnum):
    """The values of --device."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"


def _hush(value: bool) -> bool:
    if value:
        be_quiet()
    return value


def _warm(value: float) -> float:
    if not 0 < value < float("inf"):
        raise SettingError(f"--temperature {value:g} is not a number above 0; --greedy takes the most likely one")
    return value


def openable(context: typer.Context, value: Any) -> Any:
    """An argument that may name a file; DataError now for one that cannot be opened: what reads it takes a second to
    be imported. Texts name one if they end with .onnx, those of a list behind an equals sign.
    """
    named = [t.rpartition("=")[2] for t in value or () if "=" in t] if isinstance(value, (list, tuple)) else [value]
    for x in () if context.resilient_parsing else named:
        if x and (named[0] is not value or isinstance(x, Path) or x.endswith(".onnx")) and x != "random":
            with reading(x):
                pass
    return value


@contextmanager
def reading(file: Path | str) -> Iterator[IO[bytes]]:
    """The block has the file, open; DataError for one that cannot be read."""
    try:
        with files.opened(file) as f:
            yield f
    except OSError as e:
        raise DataError(f"{file} cannot be read: {e.strerror or e}") from None


# The most that a flag takes: more is a slip of the keyboard, and would end as one deep in NumPy.
MOST, MOST_AT_ONCE, LAST_SEED = 10**9, 1 << 20, 2**63 - 1


def number(about: str, least: int = 1, most: int = MOST, default: Any = ...) -> Any:
    """The option for a whole number, named as its field is."""
    return option(about, "N", min=least, max=most, default=default)


def seed(of: str, default: Any = ...) -> Any:
    """The option for a random seed."""
    return number(f"Random seed of {of}.", 0, LAST_SEED, default)


def argument(about: str, metavar: str, **how: Any) -> Any:
    """An argument of a command, which is known by its place."""
    return typer.Argument(metavar=metavar, help=about, **how)


def option(about: str, metavar: str = "FILE", *names: str, default: Any = ..., **how: Any) -> Any:
    """The option for a value, a file if nothing else is said, called as its field or by these names."""
    return typer.Option(default, *names, metavar=metavar, help=about, **how)


def switch(name: str, about: str, default: Any = ...) -> Any:
    """The option that is there or not, or one of a few words."""
    return typer.Option(default, name, help=about)


Quiet = Annotated[bool, typer.Option("--quiet", callback=_hush, help="Print only results and errors, no progress.")]
Json = Annotated[bool, switch("--json", "Print JSON instead of text.")]
NoOpen = Annotated[bool, switch("--no-open", "Do not open a browser.")]
DeviceFlag = Annotated[DeviceName | None, switch("--device", "Device to run on; default: ANNEAL_DEVICE, else auto.")]
AdapterFlag = Annotated[str | None, option("WebGPU adapter whose name contains NAME.", "NAME", "--adapter")]
PlannedFlag = Annotated[DeviceName | None, switch("--device", "Device to plan for; auto: webgpu. No device is opened.")]
Model = Annotated[
    str,
    argument("Example model; `anneal train --help` lists them.", "MODEL", autocompletion=models),
]
Traceable = Annotated[
    str,
    argument(
        "Example model (`anneal train --help`) or ONNX file.",
        "MODEL",
        autocompletion=traceable,
        callback=openable,
    ),
]
Script = Annotated[str, argument("Python program to run.", "SCRIPT.py")]
Arguments = Annotated[list[str] | None, argument("Arguments of SCRIPT.py.", "ARGS")]
Prompt = Annotated[str, argument("Text to continue.", "PROMPT")]
Batch = Annotated[int | None, number("Batch size; default: the example's.", most=MOST_AT_ONCE)]
Temperature = Annotated[float, option("Sampling temperature; lower is less random.", "X", callback=_warm)]
Weights = Annotated[
    Path | None, option("Trained weights, as `anneal train MODEL --save FILE` writes them.", callback=openable)
]
Scratch = Annotated[bool, switch("--scratch", "gpt2: a small model with random weights.")]
Record = Annotated[Path | None, option("Save a recording of the generation for the studio.", "FILE.zip")]
Download = Annotated[
    bool,
    switch("--download", "Download CIFAR-10 (170 MB) without asking; without it, generated shapes are used."),
]
Inputs = Annotated[
    list[str] | None,
    option("Values of an input; NAME=random or no value: random.", "NAME=FILE.npy", "--input", callback=openable),
]
Sizes = Annotated[list[str] | None, option("Value of a symbolic size; default: 1.", "NAME=N", "--size")]


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """The flags of what prints results: the last in each command's help."""

    quiet: Quiet = False  # whose callback does all
    as_json: Json = False

    def tell(self, record: Any, *lines: object) -> None:
        """Print the record as JSON, or what a function gives for it, if that is asked for; else the lines."""
        if self.as_json:
            json_report(record() if callable(record) else record)
        else:
            for line in lines:
                data(str(line))


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """The flags of what runs on a device, where they stand before those of `Reporting`."""

    device: DeviceFlag = None
    adapter: AdapterFlag = None


# -- checks of what was given ------------------------------------------------------------------------------------------


def choose_device(device: str | None, adapter: str | None) -> dict[str, object]:
    """Changes of the settings for --device and --adapter; naming an adapter chooses webgpu."""
    if adapter is not None:
        if device == "cpu":
            raise SettingError("--adapter chooses a WebGPU adapter, but --device is cpu; leave one of them out")
        if not adapter.strip():
            raise SettingError("--adapter needs a name, or part of one; `anneal doctor` lists the adapters")
        return {"device": "webgpu", "adapter": adapter}
    return {} if device is None else {"device": str(device)}


def on_device(device: str | None, adapter: str | None) -> AbstractContextManager[object]:
    """The block runs with the settings of --device and --adapter."""
    return settings.override(**choose_device(device, adapter))


@contextmanager
def opened(device: str | None, adapter: str | None) -> Iterator[AnyDevice]:
    """The block runs on the device of --device and --adapter, which is opened."""
    from anneal.backend import get_device

    with on_device(device, adapter):
        found = get_device(settings.current().device)
        with settings.override(device=found.name):
            yield found


def check_traceable(name: str, step: bool = False) -> None:
    """UserError, with a suggestion, for what has no graph: neither an example nor an ONNX file; or, with `step`, no
    training step.
    """
    if not name.endswith(".onnx"):
        check_model(name)
    elif step:
        raise UserError("an ONNX file is run, not trained; leave --step out")


def may_download(example: object, flag: bool) -> bool:
    """True if an example's data may be downloaded: a flag says so, or the person at the terminal does."""
    name = getattr(example, "DOWNLOADS", None)
    if flag or name is None or settings.current().offline:
        return flag
    from anneal.assets import ASSETS, location, verify

    asset = ASSETS[name]
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        if verify(asset) is not None:
            return False
        sys.stderr.write(f"{asset.about}: download {asset.bytes / 1e6:.0f} MB to {location(asset)}? [y/N] ")
        sys.stderr.flush()
    except DataError:  # said where the file is asked for
        return False
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def refuse_option(context: Any, text: str | None) -> None:
    """UserError, with the nearest option, for an argument that looks like one: where a script may have options of its
    own, nobody else refuses it.
    """
    if text is not None and text.startswith("-") and text != "-":
        known = [o for p in context.command.params for o in p.opts if o.startswith("--")]
        raise suggest("option", text, [*known, *context.help_option_names])


def check_recording(path: Path | None) -> None:
    """UserError or DataError unless --record can put a recording there."""
    if path is not None and path.suffix != ".zip":
        raise UserError(f"--record writes a .zip file, not {path.name}")
    check_writable(path)


@contextmanager
def recorded(path: Path | None, name: str, **how: Any) -> Iterator[PlanRecording | None]:
    """The block is recorded, and the recording put at `path`; None without one.

    Args:
        how: what `anneal.inspect.recording` takes.
    """
    if path is None:
        yield None
        return
    from anneal.inspect import recording

    with recording(name, later=True, **how) as found:
        yield found
    found.look()
    found.save(path)


def check_writable(*paths: Path | None) -> None:
    """DataError unless a file can be put at each of `paths`: better now than after the training."""
    for path in paths:
        if path is not None:
            with _writing(path):
                files.check_replaceable(path)


def write_file(path: Path, data: bytes) -> None:
    """Put a file at `path`, whole or not at all; DataError where that cannot be done."""
    with _writing(path):
        files.replace(path, lambda f: f.write(data))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A block that writes to `path`: DataError, with what to do, where that cannot be done."""
    try:
        yield
    except OSError as error:
        why, advice = error.strerror or error, "choose another file"
        if os.path.isdir(path):
            advice = f"name a file in it: {path / 'NAME'}"
        elif isinstance(error, FileNotFoundError) and not os.path.exists(path.parent):
            why, advice = f"{path.parent} does not exist", f"make it first: mkdir -p {path.parent}"
        raise DataError(f"{path} cannot be written: {why}; {advice}") from None


# -- a script of the user's --------------------------------------------------------------------------------------------


def check_script(name: str) -> None:
    """DataError for a script that is not there, or is a folder."""
    if Path(name).is_dir():
        raise DataError(f"{name} cannot be read: it is a folder, not a file")
    if not Path(name).is_file():
        raise DataError(f"{name}: there is no such file")


def run_script(name: str, arguments: Sequence[str], aside: bool) -> None:
    """Run a script as Python would; what it prints goes to stderr where stdout is for JSON. UserError if it fails."""
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:0] = [name, *arguments], [str(Path(name).resolve().parent)]
    try:
        with redirect_stdout(sys.stderr) if aside else nullcontext():
            runpy.run_path(name, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            message(f"anneal: {name} ended with {end.code}")
    except AnnealError as error:
        raise (DataError if isinstance(error, DataError) else UserError)(f"{name}: {error}") from error
    except Exception as error:
        mine = [f for f in traceback.extract_tb(error.__traceback__) if _is(f.filename, name)]
        where = f" at line {mine[-1].lineno}" if mine else ""
        raise UserError(f"{name} failed{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.argv, sys.path[:] = argv, path


def trace_of(error: BaseException, name: str) -> str:
    """The traceback of what a script raised, from its own first line on; of a mistake of the user's without anneal's
    lines.
    """
    cause = error.__cause__ or error
    frames = list(traceback.extract_tb(cause.__traceback__))
    frames = frames[next((n for n, f in enumerate(frames) if _is(f.filename, name)), 0) :]
    if isinstance(cause, UserError):
        frames = [f for f in frames if not Path(f.filename).resolve().is_relative_to(_PACKAGE)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(cause)]
    found = "Traceback (most recent call last):\n" + "".join(lines).rstrip()
    return found.replace(f"{Path.cwd()}{os.sep}", "")


def _is(filename: str, name: str) -> bool:
    return filename == name or Path(filename).resolve() == Path(name).resolve()
