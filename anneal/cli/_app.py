"""The command line: what its help lists, which command it runs, and what becomes of errors."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from anneal import settings
from anneal.cli.commands import COMMANDS, FILES
from anneal.errors import AnnealError, CompilerError, DataError, SettingError

_SHELL = "anneal.shell"  # where a context has the shell that the options of completion name
_INSTALL = "install_completion"  # the name of typer's option
_ClickError: Any = typer.BadParameter.__mro__[2]  # ClickException, of click or of the copy that typer has of it


class _Commands(TyperGroup):
    """The commands of the table, known by name and line; only one that is called is built, which takes a while."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update({name: TyperCommand(name, short_help=line) for name, line in COMMANDS.items()})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse them. What completes is ours, and a shell may be named behind those two options, flags to typer."""
        for option in self.params:  # typer adds the two once the group is made
            if option.name in (_INSTALL, "show_completion"):
                option.callback = _complete
        if len(args) == 2 and args[0] in ("--install-completion", "--show-completion"):
            ctx.meta[_SHELL] = args[1]
            args = args[:1]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options."""
        return as_they_are(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments call: its name, itself, and the arguments that are left."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and plain(built(name)), rest


def built(name: str) -> Any:
    """The command of this name, of the file that has it, perhaps with others."""
    found = typer.main.get_command(import_module(f"anneal.cli.commands.{FILES.get(name, name)}").app)
    return getattr(found, "commands", {}).get(name, found)


def _complete(context: Any, option: Any, value: Any) -> Any:
    """Install completion, or print the script that completes, and stop."""
    if not value or context.resilient_parsing:
        return value
    from anneal.cli._flags import install, script
    from anneal.cli._output import data

    shell = context.meta.get(_SHELL)
    installs = option.name == _INSTALL
    data(f"{install(shell)}; it takes effect in the next shell that you start" if installs else script(shell))
    raise typer.Exit


app = typer.Typer(
    name="anneal",
    cls=_Commands,
    help="anneal: a lazy tensor compiler. Start with `anneal doctor`, then `anneal train nanogpt`.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 compiler failure, 2 wrong command, 3 no usable device, 4 bad file, 130 stopped.",
)


def _version(value: bool) -> None:
    if value:
        import platform

        from anneal import __version__
        from anneal.cli._output import data

        where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        data(f"anneal {__version__} ({where})")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Train, look into, and check models compiled by anneal."""
    settings.current()  # a wrong variable is an error whatever the command, and before it does anything
    from anneal.progress import shown, work

    context.with_resource(shown())
    context.with_resource(work(f"anneal {context.invoked_subcommand}"))


def run(argv: list[str] | None) -> int:
    """Run the command line; the documented exit code. A user's mistake prints one message and no traceback.

    Exit codes: 0 done; 1 the compiler failed; 2 a mistake in the command or the program; 3 no usable device; 4 a file
    that is missing, unwritable or corrupt; 130 stopped with Ctrl-C.
    """
    from anneal.cli._output import streams

    with streams() as verdict:
        return int(verdict(_run(argv)))


def _run(argv: list[str] | None) -> int:
    try:
        return int(app(args=argv, prog_name="anneal", standalone_mode=False) or 0)
    except _ClickError as error:
        return _mistyped(error)
    except SystemExit as end:
        # 1 is what typer makes of a reader of help that has left; our own failures come as errors.
        return 0 if end.code in (None, 1) else int(end.code)
    except CompilerError as error:
        return _fail(
            f"compiler failure: {error}\nThis is a fault of anneal, not of your program; please report it.", error
        )
    except AnnealError as error:
        return _fail(str(error), error)
    except OSError as error:  # of what nobody expected to fail: a disk, a name, a right
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return _fail(f"{where}{error.strerror or error}", error, DataError.exit_code)
    except MemoryError as error:
        return _fail("this takes more memory than there is; try a smaller --batch, or a smaller model", error, 2)
    return 0


def _mistyped(error: Any) -> int:
    """Say what is wrong with the command line, as it was given, and how it is used."""
    from anneal.cli._output import complain

    context = getattr(error, "ctx", None)
    # what the library that converts values says of itself
    text = re.sub("Value error, |, unable to parse string as an? .*", "", error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    if possible := getattr(error, "possibilities", None):
        import difflib

        name = getattr(error, "option_name", "")
        near = difflib.get_close_matches(name, possible, n=1, cutoff=0.6) or sorted(possible)[:3]
        text = f"No such option: {name}. Did you mean {' or '.join(near)}?"
    if context is not None:
        complain(context.get_usage())
        complain(f"Try '{context.command_path} {context.help_option_names[0]}' for help.\n")
    complain(f"error: {text}")
    return int(error.exit_code)


def _fail(text: str, error: BaseException, code: int = 1) -> int:
    from anneal.cli._output import complain

    complain(f"error: {text}")
    if not isinstance(error, SettingError) and settings.current().debug:
        import traceback

        complain("".join(traceback.format_exception(error)))
    return error.exit_code if isinstance(error, AnnealError) else code


# -- values of the command line that need no conversion ---------------------------------------------------------------


def plain(command: Any) -> Any:
    """The command, with parameters that convert only what is not of their type yet."""
    of = command.get_params
    command.get_params = lambda context: as_they_are(of(context))
    for inner in getattr(command, "commands", {}).values():
        plain(inner)
    return command


def as_they_are(params: list[Any]) -> list[Any]:
    """The same of a command's parameters. Those of typers that import no such thing are left alone."""
    for param in params:
        make = getattr(param, "get_runtime_param", None)
        if make is not None and not isinstance(getattr(make, "__self__", None), _Late):
            param.get_runtime_param = _Late(make, param.type_descriptor.annotation).itself
    return params


class _Late:
    """A converter of a parameter's values; typer's own is made when a value needs it."""

    def __init__(self, make: Any, kind: Any) -> None:
        self.make, self.kind = make, kind

    def itself(self) -> _Late:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        one = not param.multiple and param.nargs == 1
        if value is None and (param.multiple or param.nargs == -1):
            return ()
        if one and type(value) is self.kind and self.kind in (int, float):  # a default: what is typed is a text
            return value
        if one and (value is None or (self.kind in (str, bool, Path) and isinstance(value, self.kind))):
            return value
        if one and self.kind is Path and isinstance(value, str):
            return Path(value)
        return self.make().coerce(value, param=param, ctx=ctx)
