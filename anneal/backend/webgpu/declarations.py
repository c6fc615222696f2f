"""The C declarations of the wgpu library, sooner."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import cffi
from cffi import model
from cffi.commontypes import resolve_common_type
from cffi.cparser import Parser

from anneal import cache

_CLASSES: dict[str, Any] = {
    c.__name__: c for c in vars(model).values() if isinstance(c, type) and issubclass(c, model.BaseTypeByIdentity)
}
_PLAIN = re.compile(r"(\w+)( const)? *(\*|\[\])?")
_FUNCTION = re.compile(r"([\w *]+)\(([\w *,]+)\)")
# The types of pointers to its functions, two hundred of them, which nobody names.
_UNUSED = re.compile(r"^typedef [^;{}]*\(\s*\*\s*WGPUProc\w+\)[^;]*;", re.MULTILINE)
_HEADER = 10_000  # characters that are worth a file
_parse, _parse_type = Parser.parse, Parser.parse_type


@contextlib.contextmanager
def sooner() -> Iterator[None]:
    """Within the block a header that a parser is given first is taken from disk, and plain names are looked up.

    wgpu-py gives its header to cffi whenever it is imported, and cffi parses it in Python: 0.2 s. It also parses the
    name of a type, as in "WGPULimits *", when that is first used: 15 ms each, because it goes through all declared
    names, and opening a device and making a pipeline take forty. Here what the parser found in the header is kept on
    disk, and plain names are looked up. Both are cffi's private names; without them the parser does its work as ever.
    """
    Parser.parse, Parser.parse_type = _recalled, look_up
    try:
        yield
    finally:
        Parser.parse, Parser.parse_type = _parse, _parse_type


# -- names


def look_up(parser: Any, text: str) -> Any:
    """The finding of `Parser.parse_type` for the text of a type."""
    signature = _FUNCTION.fullmatch(text)
    if signature is None:
        found = _plain(parser, text)
    else:
        found = _plain(parser, signature[1])
        arguments = [_plain(parser, a) for a in signature[2].split(",")]
        known = found is not None and None not in arguments and model.void_type not in arguments
        found = model.RawFunctionType(tuple(arguments), found, False) if known else None
    return _parse_type(parser, text) if found is None else found


def _plain(parser: Any, text: str) -> Any:
    found = _PLAIN.fullmatch(text.strip())
    if found is None:
        return None
    name, const, suffix = found.groups()
    if name == "void":
        base, qualifiers = model.void_type, 0
    else:
        known = parser._declarations.get(f"typedef {name}")
        if known is None and name not in model.PrimitiveType.ALL_PRIMITIVE_TYPES:
            return None
        base, qualifiers = known or resolve_common_type(parser, name)
    if const:
        qualifiers |= model.Q_CONST
    if suffix == "*":
        return parser._get_type_pointer(base, qualifiers)
    return model.ArrayType(base, None) if suffix else base


# -- headers


def _recalled(parser: Any, source: str, *args: Any, **options: Any) -> None:
    key = None
    if len(source) >= _HEADER and not parser._declarations and not args and not any(options.values()):
        key = cache.disk_key("declarations", cffi.__version__, source)
        fields = cache.load("declarations", key, decode) if cache.enabled() else None
        if fields is not None:
            vars(parser).update(fields)
            return
    _parse(parser, _UNUSED.sub("", source), *args, **options)
    if key is not None and cache.enabled():
        with contextlib.suppress(TypeError):  # something that has no plain form
            cache.save("declarations", key, encode(parser), f"{len(parser._declarations)} declarations of a C header")


def encode(parser: Any) -> dict[str, Any]:
    """A parser's findings as plain data: every type once, by number. TypeError if there is more to it."""
    if parser._included_declarations or parser._recomplete:
        raise TypeError("unfinished declarations")
    number = {}
    types: list[Any] = []

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, (tuple, list)):
            return {"tuple" if isinstance(value, tuple) else "list": [plain(v) for v in value]}
        if _CLASSES.get(type(value).__name__) is not type(value):
            raise TypeError(f"cannot be written down: {value!r}")
        if id(value) not in number:
            number[id(value)] = len(types)
            types.append(value)
        return {"type": number[id(value)]}

    declarations = [[name, plain(found)] for name, found in parser._declarations.items()]
    rows: list[Any] = []
    while len(rows) < len(types):
        t = types[len(rows)]
        rows.append([type(t).__name__, {k: plain(v) for k, v in vars(t).items()}])
    return {
        "declarations": declarations,
        "types": rows,
        "constants": parser._int_constants,
        "anonymous": parser._anonymous_counter,
        "feature": plain(parser._uses_new_feature),
    }


def decode(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of the parser that `encode` wrote down."""
    types = [_CLASSES[name].__new__(_CLASSES[name]) for name, _ in data["types"]]

    def full(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "type" in value:
            return types[value["type"]]
        return tuple([full(v) for v in value["tuple"]]) if "tuple" in value else [full(v) for v in value["list"]]

    for t, (_, fields) in zip(types, data["types"], strict=True):
        vars(t).update({k: full(v) for k, v in fields.items()})
    return {
        "_declarations": {name: full(found) for name, found in data["declarations"]},
        "_int_constants": data["constants"],
        "_anonymous_counter": data["anonymous"],
        "_uses_new_feature": data["feature"],
    }
