"""Values of the command line that need no conversion.

Newer typers convert every value, even a missing one, through pydantic, whose import takes longer than that of all that
`anneal web` needs until its first answer. A text that is wanted as text, and an option that was left out, a number too,
are as they should be already; a path is made of its text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
