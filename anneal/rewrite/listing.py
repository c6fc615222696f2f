"""The rules as a reader sees them: straight from the `.upat` files."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from anneal.errors import UserError
from anneal.rewrite.generate import PACKAGE, targets
from anneal.rewrite.upat import mentioned, parse
from anneal.uop import ALL


@dataclass(frozen=True, slots=True)
class Listed:
    """One rule with its place. `op` is what its pattern starts with, `mentions` every op in the pattern."""

    op: str
    mentions: frozenset[str]
    kind: str
    table: str
    text: str
    comment: str
    file: str
    line: int


def _read() -> Iterator[Listed]:
    for source, _ in targets():
        name = source.relative_to(PACKAGE.parent).as_posix()
        for table in parse(source.read_text(encoding="utf-8"), name).tables:
            for rule in table.rules:
                ops = [op.name for op in mentioned(rule, name)]
                yield Listed(ops[0], frozenset(ops), table.kind, table.name, rule.text, rule.comment, name, rule.line)


@functools.cache
def rules() -> tuple[Listed, ...]:
    """Every rule of the package, in the order of files and lines."""
    return tuple(_read())


def explain(op_name: str) -> list[Listed]:
    """The rules that concern an op: first those whose pattern starts with it, then those that only mention it.

    Raises UserError for a name that is no op, with the names that look like it.

    >>> [r.text for r in explain("exp") if r.kind == "gradient"]
    ['exp(x) -> g * y']
    """
    name = op_name.upper()
    if name not in ALL:
        import difflib

        near = difflib.get_close_matches(name, ALL, n=4) or sorted(ALL)
        raise UserError(f"unknown op {op_name!r}; known: {', '.join(near)}")
    return [r for r in rules() if r.op == name] + [r for r in rules() if r.op != name and name in r.mentions]
