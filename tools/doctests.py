"""A griffe extension: the doctests of a docstring become blocks of code, and its sections lists."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]

# A prompt, and what follows it up to an empty line: more prompts and what they print.
BLOCK = re.compile(r"(?:^>>> .*\n?(?:^(?!$).*\n?)*\n?)+", re.MULTILINE)
SECTION = re.compile(r"^(Args|Raises|Returns):\n((?:^    .*\n?)+)", re.MULTILINE)
ITEM = re.compile(r"^    (\S.*(?:\n     +\S.*)*)", re.MULTILINE)
HEADINGS = {"Args": "Arguments", "Raises": "Raises", "Returns": "Returns"}


def fenced(text: str) -> str:
    """The text with each doctest in a fence of its own, and its sections as lists."""

    def listed(found: re.Match[str]) -> str:
        items = [" ".join(item.split()) for item in ITEM.findall(found[2])]
        return f"{HEADINGS[found[1]]}:\n\n" + "\n".join(f"- {_named(item)}" for item in items) + "\n"

    text = SECTION.sub(listed, text)
    return BLOCK.sub(lambda found: f"```pycon\n{found[0].strip()}\n```\n\n", text).strip()


def _named(item: str) -> str:
    """The names before an item's first colon as code."""
    names, colon, said = item.partition(":")
    if not colon or not re.fullmatch(r"[\w*]+(, [\w*]+)*", names):
        return item
    return f"{', '.join(f'`{name}`' for name in names.split(', '))}:{said}"


_CALLED = (griffe.Kind.FUNCTION, griffe.Kind.CLASS)


def at_run_time(path: str) -> str | None:
    """The docstring that `help` shows, which has the arguments of `anneal.ops.glossary` besides."""
    module, _, name = path.rpartition(".")
    found = sys.modules.get(module)
    return inspect.getdoc(getattr(found, name)) if found is not None and hasattr(found, name) else None


def _families(module: griffe.Module) -> Iterator[griffe.Function]:
    """The functions of a module that `family(...)` makes, which griffe does not see."""
    for name, found in vars(sys.modules.get(module.path)).items() if module.path in sys.modules else ():
        if name in module.members or not inspect.isfunction(found) or found.__module__ != module.path:
            continue
        signature = inspect.signature(found)
        parameters = [
            griffe.Parameter(
                p.name,
                annotation=p.annotation,
                kind=griffe.ParameterKind(p.kind.description),
                default=None if p.default is p.empty else repr(p.default),
            )
            for p in signature.parameters.values()
        ]
        yield griffe.Function(
            name,
            lineno=inspect.unwrap(found).__code__.co_firstlineno,
            parameters=griffe.Parameters(*parameters),
            returns=signature.return_annotation,
            docstring=griffe.Docstring(inspect.getdoc(found) or ""),
        )


class Doctests(griffe.Extension):
    """Runs over every object with a docstring before it is drawn."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if isinstance(obj, griffe.Module):
            for made in _families(obj):
                obj.set_member(made.name, made)
        if obj.docstring is not None:
            said = at_run_time(obj.path) if obj.kind in _CALLED else None
            obj.docstring.value = fenced(said or obj.docstring.value)
