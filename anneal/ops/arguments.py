"""The arguments of an op, checked by kind before it runs, and its name in every message."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from anneal import settings
from anneal.errors import DeviceError, DTypeError, OutOfMemoryError, SettingError, ShapeError, UserError
from anneal.names import Tensor
from anneal.ops.bases import change_view, link_views
from anneal.ops.checks import KINDS, TENSOR, Kind, apart, into, is_tensor, lifted, loosely, said, spelled, unknown
from anneal.ops.glossary import FORWARD, arguments_of, explained
from anneal.ops.precision import casts, in_single
from anneal.runtime import Args, F, Fun, Options, call_late, here

P = ParamSpec("P")
R = TypeVar("R")


def need_float(what: str, x: Tensor, *others: Tensor | None) -> None:
    """Raise DTypeError unless `x` is a float tensor, DeviceError unless the others that are given are on its device."""
    if not x.dtype.is_float:
        raise DTypeError(f"{what} must be a float tensor, not {x.dtype.name}; use .float()")
    if others:
        same_device(x, *others)


def same_device(x: Tensor, *others: Tensor | None) -> None:
    """Raise DeviceError unless all given tensors live on one device."""
    for o in others:
        if o is not None and o.device != x.device:
            x._mixed(o)


# The names of the argument that is an axis, each with its other name.
_AXES = {"axis": "dim", "dim": "axis", "dims": "axis"}


def _axis_among(order: Sequence[str], count: int, kinds: dict[str, Kind]) -> tuple[str, str, int]:
    """The name of a function's axis, its other name, and its place among the `count` arguments that have one; of both
    names there is one kind.
    """
    names = [name for name in _AXES if name in order]
    own = names[0] if len(names) == 1 else ""
    if own in kinds:
        kinds[_AXES[own]] = kinds[own]
    return own, _AXES.get(own, ""), order.index(own) if own in order[:count] else 1 << 30


def _one_axis(own: str, other: str, place: int, args: Args, options: Options) -> Args:
    """The positional arguments, of which the one at `place` is the axis; options that give it by its other name are
    changed. Raises ShapeError where both names are given, and differ.
    """
    x, positional = options.pop(other), place < len(args)
    given = args[place] if positional else options.get(own)
    if x is None:
        return args
    if given is not None and given != x:
        both = " and ".join([f"{n}={v}" for n, v in sorted({own: given, other: x}.items())])
        raise ShapeError(f"{both} are the same argument; give one of them")
    if positional:
        return (*args[:place], x, *args[place + 1 :])
    options[own] = x
    return args


_NAMED = (ShapeError, DTypeError, DeviceError)  # whose messages begin with the op's name
_PREFIX = re.compile(r"^(?:[A-Za-z_][\w.]*(?: assignment)?)?: ")


def rename(error: UserError, name: str, anew: bool = True) -> None:
    """Put `name` in place of the op that the message names; if not `anew`, only where it names none."""
    named = isinstance(error, _NAMED if anew else (*_NAMED, SettingError)) and not isinstance(error, OutOfMemoryError)
    text = error.args[0] if named and error.args else None
    if isinstance(text, str) and (anew or text.startswith(": ") or not _PREFIX.match(text)):
        error.args = (f"{name}: {_PREFIX.sub('', text, count=1)}", *error.args[1:])


# `checked` reads the kinds from a function's annotations: an `int` is an integer of 32 bits and no bool, a `bool` is
# True or False, a `float` a number, a `Tensor` a tensor, and so on (`KINDS`). What an annotation leaves open (`Any`:
# operands, sizes given one by one) the op looks at itself. An error that the op raises carries the name that was
# called, whichever op below found the fault: `softmax` does not speak of `max`. So what only ops call (`axis_of`,
# `per_axis`) raises without a name; who calls it from elsewhere gives one.
#
# Every public function of `anneal/ops/` is checked; a test finds one that is not.
def checked(function: F, name: str = "", loose: bool = False) -> F:
    """The function with a check of its arguments, and its name (a class's, for `__init__`) in its errors.

    A `loose` check is of what is no op: 1 is True there, and an error that names a function keeps the name.
    """
    # From the code object: inspect.signature takes 0.1 ms, and there are hundreds of ops to import.
    inner = inspect.unwrap(function)
    code, annotations = inner.__code__, inner.__annotations__
    order = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = partial(loosely, inner.__module__) if loose else KINDS.get
    kinds = {p: k for p in order if (k := known(p if p == "device" else annotations.get(p, "")))}
    placed = [(i, p, *kinds[p]) for i, p in enumerate(order[: code.co_argcount]) if p in kinds]
    # most ops take a tensor first: only its class is checked
    tensor = placed.pop(0)[1] if code.co_argcount and kinds.get(order[0]) is TENSOR else ""
    tensors = TENSOR[1]
    own, other, place = _axis_among(order, code.co_argcount, kinds)
    title = name or function.__name__
    of_class = title in ("__init__", "forward")  # a layer's: it has the name of its class
    method, takes_out = bool(order) and order[0] == "self" and "self" not in annotations, title[-1] != "_" and not loose

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            if tensor and args and args[0].__class__ not in tensors:
                args = lifted(function, title, tensor, args)
            for i, what, look, plain in placed:
                if i >= len(args):
                    break
                if args[i].__class__ not in plain and (seen := look(what, args[i])) is not args[i]:
                    args = (*args[:i], seen, *args[i + 1 :])
            if options:
                for what, x in options.items():
                    if what in kinds and x.__class__ not in kinds[what][1]:
                        options[what] = kinds[what][0](what, x)
                if other in options:
                    args = _one_axis(own, other, place, args, options)
            return function(*args, **options)
        except UserError as error:
            # in `forward` the message keeps the name of the inner layer, which says more
            rename(error, type(args[0]).__name__ if of_class else title, title != "forward" and not loose)
            shorten(error)
            raise
        except (AttributeError, TypeError) as error:
            if "out" in options and "out" not in order and takes_out and not _views(function, title):
                return into(called, args, options, bool(tensor))
            if options and (again := spelled(order, code, args, options)) is not None:
                return called(*again[0], **again[1])
            if method and args and not loose and not of_class and not is_tensor(args[0]):
                raise DTypeError(f"{title}: the first argument is a tensor, not {said(args[0])}") from None
            names = [n for o in order for n in ((own, other) if o == own else (o,))]
            if what := unknown(error, inner.__qualname__, names, options):
                at = type(args[0]).__name__ if of_class and args else title
                raise DTypeError(f"{at}: {what}") from None
            raise

    if name:
        called.__name__ = name
    if called.__doc__ is not None and not of_class and inner.__module__.startswith("anneal."):
        called.__doc__ = explained(called.__doc__, [a for a in arguments_of(code) if a != "self"], inner.__module__)
    return deferred(called, function) if _defers(function) else called  # type: ignore[return-value]


def guarded(function: F) -> F:
    """A function that is no op, or an `__init__`, whose arguments are checked loosely."""
    return checked(function, loose=True)


class _Declares(Protocol):
    @overload
    def __call__(self, op: F) -> F: ...
    @overload
    def __call__(self, op: str) -> _Declares: ...


@overload
def function(op: F) -> F: ...
@overload
def function(op: str) -> _Declares: ...
def function(op: Any, words: str = "") -> Any:
    """A public function of this package, checked. Its words are read by `tools/names.py`, which writes the table of
    names.

    `@function("in_place alias=arccos")` is a decorator with these words, WORD or WORD=VALUE, which takes more; a file
    may name one whose words many functions share. Several names are joined by commas, and "method=no" denies a word.

    Args:
        alias: further names, of the function and of the method. function_alias: of the function alone.
        method: whether it is one of Tensor's; not said: if it takes a tensor first. static: whether it is a static one.
        in_place: whether there is NAME_, which gives its tensor the result; "shape": the result's shape, too.
        functional: whether it is one of `nn.functional`, or its names there. special: the same for `anneal.special`.
        linalg: whether it is one of `anneal.linalg`.
        array_api: whether it is one of the array API standard, by the standard's arguments, or its names there.
        neutral: the value that changes nothing, as 0 in a sum; what has one is in `anneal.masked`, too. "lowest" and
            "highest" are the dtype's, "-inf" and "inf" of floats, which integers become first.
        inplace: whether it takes `inplace` in `nn.functional`; "twin": whether NAME_ is there, too.
        view: whether its results are views of its first argument, as in torch: `viewing`.
        itself: whether it gives its argument where it has nothing to do, as in torch, and not a copy.
        lifts: "number": its first operand may be a number, as in torch, where the second is a tensor; "numbers": both.
        autocast: the dtype that it takes its operands in under `anneal.amp.autocast`: `precision.casts`.
        single: whether floats of 8 and 16 bits become float32 first: `precision.in_single`; "first": the result has the
            dtype of the first tensor.
    """
    if isinstance(op, str):
        return partial(function, words=f"{words} {op}")
    said = dict(word.partition("=")[::2] for word in words.split())
    if "single" in said:
        op = in_single(op, said["single"] == "first")
    op.is_op = True
    if "neutral" in said:
        op.neutral = said["neutral"]
    if "lifts" in said:
        op.lifts = said["lifts"]
    if "itself" in said:
        op.is_itself = True
    if "autocast" in said:
        op = casts(op, said["autocast"])
    return checked(viewing(op) if "view" in said else op)


# Of a docstring among others: the name of its function, and words.
_HEADING = re.compile(r"^    ([a-z]\w*)([^:\n]*):\n    ", re.MULTILINE)


def rows_of(
    op: Callable[Concatenate[Any, Any, P], R], documents: str, rows: Mapping[str, Any] | None = None
) -> list[Callable[P, R]]:
    """Functions of one signature: `op`, whose first two arguments each of them has its own of.

    The arguments that follow, their defaults and annotations are `op`'s.

    Args:
        documents: the functions' docstrings, each below its function's name and a colon.
        rows: by the functions' names the first two arguments in a tuple, or the second, where the first is the name.
            None for functions over one, two or three axes: `op` then takes the name and the number of axes, the digit
            in the name.

    >>> def _powers(base: float, sign: int, x: float) -> float:
    ...     return float(base ** (sign * x))
    >>> documents = "    twos:\\n    2 ** x.\\n    halves:\\n    0.5 ** x."
    >>> twos, halves = rows_of(_powers, documents, {"twos": (2, 1), "halves": (2, -1)})
    >>> halves(2.0), halves.__doc__
    (0.25, '0.5 ** x.')
    """
    inner = op
    code = inner.__code__
    given, alone = code.co_varnames[2 : code.co_argcount], code.co_varnames[code.co_argcount :]
    alone, first = alone[: code.co_kwonlyargcount], max(code.co_posonlyargcount - 2, 0)
    several = [f"*{name}" for name in arguments_of(code)[code.co_argcount + len(alone) :]]
    own = ", ".join([*given[:first], *"/" * bool(first), *given[first:], *(several or "*" * bool(alone)), *alone])
    call = ", ".join([*given, *several, *[f"{name}={name}" for name in alone]])
    text = f"def _({own}): return op(one, two, {call})"
    body = compile(text, code.co_filename, "exec").co_consts[0].replace(co_firstlineno=code.co_firstlineno)
    kinds = dict(list(inner.__annotations__.items())[2:])
    found = []
    parts = _HEADING.split(documents)[1:]
    for name, words, document in zip(parts[::3], parts[1::3], parts[2::3]):
        row = rows[name] if rows else next(int(n) for n in name if n.isdigit())
        one, two = row if isinstance(row, tuple) else (name, row)
        held = {"op": op, "one": one, "two": two, "__name__": op.__module__}
        made: Any = FunctionType(body.replace(co_name=name, co_qualname=name), held, name, inner.__defaults__)
        made.__annotations__, made.__doc__, made.__kwdefaults__ = kinds, document.rstrip(), inner.__kwdefaults__
        vars(made).update(vars(inner), words=words)
        found.append(made)
    return found


def family(
    op: Callable[Concatenate[Any, Any, P], R], words: str, documents: str, rows: Mapping[str, Any] | None = None
) -> list[Callable[P, R]]:
    """Public functions of one signature, each declared as by `function`; `tools/names.py` reads both decorators.

    Args:
        op: the computation, as of `rows_of`.
        words: those of `function`.
        documents: the docstrings, as there; what `function` is told of one of them alone stands behind its name.
        rows: what each function has its own of, as there.

    >>> def _halved(name: str, axes: int, x: float) -> float:
    ...     return x / 2**axes
    >>> halved1d, halved2d = family(_halved, "", "    halved1d:\\n    A half.\\n    halved2d:\\n    A quarter.")
    >>> halved2d(8.0), halved2d.__doc__.splitlines()[0]
    (2.0, 'A quarter.')
    """
    return [function(f"{words} {vars(made)['words']}")(made) for made in rows_of(op, documents, rows)]


def init_of(cls: Any, body: str = "") -> Any:
    """An `__init__` whose arguments are a class's annotated attributes, those behind `_: KW_ONLY` by name alone, behind
    those of the class above, if its `__init__` is such a one. Its `row` has the arguments by place, those by name, and
    the defaults.

    `dataclass` itself takes four times as long, and marks a class for programs that would take instances apart.
    Defaults leave the class `cls`. If `body` says nothing else, it keeps the arguments under their names, and calls
    `__post_init__`.

    >>> class _Step:
    ...     length: "int"
    ...     back: "bool" = False
    ...     __post_init__ = lambda self: None
    >>> _Step.__init__ = init_of(_Step)
    >>> vars(_Step(3))
    {'length': 3, 'back': False}
    """
    annotations = vars(cls).get("__annotations__", {}).items()
    own = [(n, re.sub(r"InitVar\[(.*)\]", r"\1", kind)) for n, kind in annotations if "ClassVar" not in kind]
    behind = [*[n for n, _ in own], "_"].index("_")
    mine = {n: vars(cls)[n] for n, _ in own if n in vars(cls)}
    for name in mine:
        delattr(cls, name)
    placed, named, defaults = getattr(cls.__init__, "row", ({}, {}, {}))
    placed, named, defaults = placed | dict(own[:behind]), named | dict(own[behind + 1 :]), defaults | mine
    arguments = ", ".join(["self", *placed, *"*" * bool(named), *named])
    lines = [body] if body else [*[f"self.{n} = {n}" for n in (*placed, *named)], "self.__post_init__()"]
    text = "\n    ".join([f"def __init__({arguments}):", *lines])
    made: Any = FunctionType(compile(text, __file__, "exec").co_consts[0], {"__name__": cls.__module__}, "__init__")
    made.__defaults__ = tuple([defaults[n] for n in placed if n in defaults])
    made.__kwdefaults__ = {n: defaults[n] for n in named}
    made.__annotations__, made.__qualname__ = placed | named | {"return": "None"}, f"{cls.__qualname__}.__init__"
    made.row = placed, named, defaults
    return made


class Explained:
    """Base of classes of ours whose `__init__` is checked, and whose docstrings explain its arguments, and that of
    `forward` its own; a user's class below stays as it is.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("anneal."):
            return
        start = vars(cls).get("__init__")
        if isinstance(start, FunctionType) and not hasattr(start, "__wrapped__"):
            cls.__init__ = guarded(start)  # type: ignore[method-assign]
        code = getattr(inspect.unwrap(cls.__init__), "__code__", None)
        if cls.__doc__ is not None and code is not None:
            cls.__doc__ = explained(cls.__doc__, arguments_of(code)[1:], cls.__module__)
        forward = vars(cls).get("forward")
        if forward is not None and forward.__doc__ is None:
            forward.__doc__ = explained(FORWARD, arguments_of(inspect.unwrap(forward).__code__)[1:], cls.__module__)


def viewing(op: F) -> F:
    """An op whose results are views of its first argument: a change in place of them changes that (`bases.py`)."""
    op.is_view = True  # type: ignore[attr-defined]
    return op


def _views(function: Fun, name: str) -> bool:
    """True if a function, known by this name, gives views; torch's functions of other names copy."""
    return getattr(function, "is_view", False) and not name.endswith("_copy")


# Files of ops whose calls have side effects, or results that do not follow from their arguments.
_AT_ONCE = frozenset([f"anneal.ops.{name}" for name in ("creation", "dynamic", "inplace", "random")])
_OF_OPS = "anneal.ops.", "anneal.linalg.", "anneal.fft", "anneal.special"
# what they compute with what they draw, or make of a number, are ops of their own
_DRAW_FIRST = frozenset(("dropout", "gumbel_softmax", "new_full", "new_tensor"))


def _defers(function: Fun) -> bool:
    """True if a function's calls may be late: it is an op, and its result follows from its arguments. What gives a bool
    reads values: the ops that it calls are late, as if the user had called them."""
    at = function.__module__
    if at == "anneal.tensor._tensor":
        return hasattr(function, "is_op")
    first = function.__name__ in _DRAW_FIRST or function.__annotations__.get("return") == "bool"
    return at.startswith(_OF_OPS) and at not in _AT_ONCE and not first


def deferred(function: F, op: Fun | None = None, changes: bool = False) -> F:
    """A function whose results may be late (`anneal.runtime.late`), known as the op that it is the checked form of.
    With `changes` it is an in-place op."""
    copies = function.__name__.endswith("_copy")  # its calls are others than those of the op, which shares values
    known = function if op is None or copies else op
    views = _views(known, function.__name__)
    changes = changes or known.__name__ == "assign"
    run: Fun = function if views or changes or (hasattr(known, "is_itself") and not copies) else apart(function)

    def linked(*args: Any, **options: Any) -> Any:
        """The results, which are noted as views of the first argument."""
        out = function(*args, **options)
        link_views(known.__name__, function, args, options, out)
        return out

    @functools.wraps(function)
    def late(*args: Any, **options: Any) -> Any:
        if here.defers:
            if "out" in options and not (changes or views):
                return into(late, args, options, True)
            try:
                viewed = changes and args and getattr(args[0], "_base", None) is not None
                if viewed and change_view(known, function, args[0], args[1:], options):
                    return args[0]
                return call_late(known, args, options, linked if views else run, changes)
            except Exception as error:
                shorten(error)
                raise
        return function(*args, **options)

    late.__wrapped__ = op or function  # what `alias` and `inspect` look for
    return late  # type: ignore[return-value]


def changing(function: F) -> F:
    """An in-place op, checked or not, whose results may be late."""
    return deferred(function, inspect.unwrap(function), changes=True)


def alias(function: F, name: str) -> F:
    """A checked function under another name, which its messages bear."""
    inner: F = function.__wrapped__  # type: ignore[attr-defined]
    made = checked(inner, name)
    made.__qualname__ = name  # by which `pickle` finds it
    return made


# -- tracebacks of a user's mistake: this library's frames are taken out, and the module where it happened is named ----
#
#     Traceback (most recent call last):
#       File "train.py", line 20, in <module>
#         loss = net(x).sum()
#       File "train.py", line 12, in forward
#         return self.fc2(self.fc1(x))
#     anneal.errors.ShapeError: linear: weight of shape (8, 17) is (out, in) and takes ...
#     in Net.encoder.1.fc2
#
# ANNEAL_TRACEBACK=full keeps every frame. The functions that users call (ops, `Module.__call__`, jit functions)
# hand an error to `shorten` and raise it again, which adds no frame.


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple({os.path.join(p, "lib") + os.sep for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)})


def shorten(error: BaseException) -> None:
    """Take this library's frames out of the traceback of `error` and of what it was raised from.

    Of a mistake in the arguments all go. Of any other error those go that lie above the user's own code: below it they
    are needed to find a fault of ours.
    """
    # settings that are wrong cannot say how their own error is shown
    if not isinstance(error, SettingError) and settings.current().traceback == "full":
        return
    seen = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        at.__traceback__ = _without_ours(at.__traceback__, isinstance(at, UserError))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def locate(error: Exception, path: str, root: str = "") -> None:
    """Note in which module an error was raised.

    Args:
        path: the path of that module from the one that was called first; the innermost call's is kept.
        root: the class of the module that was called first, by its own call: the note is added there.
    """
    if not root:
        error.__dict__.setdefault("_module", path)
    elif inner := error.__dict__.pop("_module", ""):
        error.add_note(f"in {root}.{inner}")


def _without_ours(first: TracebackType | None, every: bool) -> TracebackType | None:
    entries = []
    while first is not None:
        entries.append((first, first.tb_frame.f_code.co_filename))
        first = first.tb_next
    users = [n for n, (_, file) in enumerate(entries) if not file.startswith((_OURS, *_INSTALLED))]
    last = len(entries) if every else users[-1] if users else 0
    out = None
    for n in range(len(entries) - 1, -1, -1):
        entry, file = entries[n]
        if n >= last or not file.startswith(_OURS):
            out = TracebackType(out, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return out
