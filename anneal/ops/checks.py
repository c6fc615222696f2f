"""Arguments: what is a tensor, an int, a bool, how a message names what is none; shapes, axes, torch's spellings."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Container, Sequence
from types import CodeType
from typing import Any, TypeGuard

import numpy as np

from anneal.backend import Place
from anneal.doors import pairs
from anneal.errors import ArgumentError, DeviceError, DTypeError, GradientError, PositionError, SettingError, ShapeError
from anneal.names import Tensor
from anneal.runtime import Args, Fun, Handle, Options, flat, here, mapped, tensor_class
from anneal.uop import UOp
from anneal.uop.sizes import Count, is_symbolic, size

_LIMIT = 1 << 31  # index arithmetic has 32 bits


def is_tensor(x: Any) -> TypeGuard[Tensor]:
    """True if the argument is a tensor."""
    return isinstance(x, Handle)


def is_bool(x: Any) -> bool:
    """True if the argument is a bool, which is never an axis, a size or a position."""
    return isinstance(x, (bool, np.bool_))


def said(x: Any) -> str:
    """A wrong argument, described for a message; nothing is computed for it."""
    if is_tensor(x):
        return f"a tensor of {x.dtype.name} of shape {x.shape}"
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} of shape {x.shape}"
    if isinstance(x, (list, tuple, dict, set)) and any(is_tensor(y) for y in x):
        return f"a {type(x).__name__} with tensors in it"
    text = repr(x)
    return text if len(text) <= 60 else f"{type(x).__name__} {text[:40]}..."


def bound_int(what: str, n: int, name: str = "") -> int:
    """An int that fits 32 bits."""
    if -_LIMIT <= n < _LIMIT:
        return n
    raise ArgumentError(f"{name}: {what} is an int of 32 bits, not {said(n)}")


def whole(what: str, x: Any, name: str = "") -> Any:
    """An int, or a symbolic size; raises ShapeError for all else, bools among it."""
    if x.__class__ is int:
        return bound_int(what, x, name)
    if isinstance(x, Count) or (isinstance(x, UOp) and is_symbolic(x)):
        return x
    if not is_bool(x) and not (is_tensor(x) and x.dtype.name == "bool"):
        try:
            return bound_int(what, operator.index(x), name)
        except TypeError:
            pass
    raise ArgumentError(f"{name}: {what} is an int, not {said(x)}")


def need_tensor(what: str, x: Any, name: str = "") -> Any:
    """A tensor; raises DTypeError for all else."""
    if is_tensor(x):
        return x
    raise DTypeError(f"{name}: {what} is a tensor, not {said(x)}; make one with Tensor(...)")


# -- shapes and axes as arguments -------------------------------------------------------------------------------------


Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic
Axes = int | Sequence[int] | None


def broadcast_shapes(*shapes: Shape, name: str = "") -> Shape:
    """The shape that `shapes` broadcast to, aligned at the last axis; sizes of 1 repeat.

    Raises ShapeError naming `name`, the shapes and the axis that does not fit.

    >>> broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    ndim = max(len(s) for s in shapes)
    out = [1] * ndim
    for s in shapes:
        for i, n in enumerate(s, ndim - len(s)):
            if n != 1 and n != out[i]:
                if out[i] != 1:
                    said = " and ".join(str(x) for x in shapes)
                    kind = PositionError if name == "index" else ShapeError
                    raise kind(
                        f"{name}: shapes {said} do not broadcast: axis {i - ndim} is {out[i]} in one and {n} in "
                        "another; sizes must be equal or 1 (aligned at the last axis): reshape, or unsqueeze the "
                        "missing axis"
                    )
                out[i] = n
    return tuple(out)


def axes_of(axis: Axes, ndim: int, name: str = "") -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; None means all. Raises ShapeError for a wrong or repeated one."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, range)):
        at = axis_of(axis, ndim, name)  # type: ignore[arg-type]
        return (at,) if ndim else ()
    out = sorted([axis_of(a, ndim, name) for a in axis])
    for a, b in zip(out, out[1:]):
        if a == b:
            raise ShapeError(f"{name}: axis {a} is given twice in {tuple(axis)}")
    return tuple(out) if ndim else ()


def axis_of(axis: int, ndim: int, name: str = "") -> int:
    """An axis as a non-negative number. Raises PositionError, which lists the valid range, for a wrong one."""
    # A scalar accepts axis 0 and -1, as torch's does.
    n = ndim or 1
    if axis.__class__ is not int:
        axis = whole("an axis", axis, name)
    if -n <= axis < n:
        return axis + n if axis < 0 else axis
    if not ndim:
        raise PositionError(f"{name}: axis {axis} does not exist: the tensor has no axes (shape ())")
    raise PositionError(f"{name}: axis {axis} does not exist: valid axes are {-n} to {n - 1} for {n} axes")


def axis_in(axis: int, x: Tensor) -> int:
    """An axis of a tensor as a non-negative number. Errors as for `axis_of`."""
    return axis_of(axis, len(x.uop.shape))


def int_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` alike, as a tuple of ints, and of nodes where a size is symbolic."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    out: list[Any] = []
    for a in args:
        if a.__class__ is int:
            out.append(a)
            continue
        try:
            out.append(size(a) if isinstance(a, (UOp, Count)) else whole("an axis", a))
        except (AttributeError, TypeError, ShapeError):
            raise ArgumentError(f"sizes and axes are ints, not {said(a)}; given {said(args)}") from None
    for n in out:
        if n.__class__ is int and not -(2**31) <= n < 2**31:
            raise ShapeError(f"sizes and axes are ints of 32 bits, not {n}")
    return tuple(out)


def need_axes(shape: Shape) -> None:
    """Raise PositionError for a tensor of shape ()."""
    if not shape:
        raise PositionError("a tensor of shape () has no axes; use .reshape(1) first")


# -- kinds of arguments, by their annotations -------------------------------------------------------------------------


Integer = int  # in an annotation: of any size, where `int` is one of 32 bits


def _integer(what: str, x: Any) -> Any:
    """An int of any size."""
    if not is_bool(x):
        try:
            return operator.index(x)
        except TypeError:
            pass
    raise ArgumentError(f"{what} is an int, not {said(x)}")


def flag(what: str, x: Any) -> Any:
    if isinstance(x, np.bool_):
        return bool(x)
    raise DTypeError(f"{what} is True or False, not {said(x)}")


def number(what: str, x: Any) -> Any:
    if x.__class__ is int:
        if abs(x) < 1 << 1023:
            return x
    elif isinstance(x, (np.integer, np.floating)):
        return x.item()
    elif isinstance(x, float):
        return float(x)
    elif isinstance(x, UOp) and is_symbolic(x):
        return x
    elif is_tensor(x) and not x.shape and not x.requires_grad:  # read, as in torch
        return number(what, x.item())
    advice = f"; use {what}.{'tolist' if x.shape else 'item'}()" if is_tensor(x) else ""
    raise DTypeError(f"{what} is a number, not {said(x)}{advice}")


def of_python(x: Any) -> Any:
    """A number of NumPy as one of Python; anything else as it is."""
    return x.item() if isinstance(x, np.generic) else x


def _value(what: str, x: Any) -> Any:
    return bool(x) if isinstance(x, np.bool_) else number(what, x)


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _looks(words: str, fits: Fun, error: type[Exception] = ArgumentError, advice: str = "") -> Fun:
    """A look at something of a kind, which the words and a function say."""

    def look(what: str, x: Any) -> Any:
        if fits(x):
            return x
        near = "; write model.parameters()" if what == "parameters" else advice
        raise error(f"{what} is {words}, not {said(x)}{near}")

    return look


def _has(*names: str) -> Fun:
    return lambda x: any(hasattr(x, name) for name in names)


def _many(x: Any) -> bool:
    return isinstance(x, (list, tuple, range)) or (isinstance(x, np.ndarray) and x.ndim > 0)


def several(what: str, x: Any) -> list[Any]:
    """The items of a list, a tuple, a range or an array with an axis."""
    if _many(x):
        return list(x)
    raise ArgumentError(f"{what} is a list or a tuple of ints, not {said(x)}")


def _wholes(what: str, x: Any) -> Any:
    return tuple([whole(f"each of {what}", n) for n in several(what, x)])


def _sizes(what: str, x: Any) -> Any:
    """Sizes of a new shape: a tuple of ints that are not negative."""
    given = _wholes(what, x) if _many(x) else (whole(what, x),)
    if any(isinstance(n, int) and n < 0 for n in given):
        raise ShapeError(f"{what} must not be negative, not {said(x)}")
    return given


def _whole_or_wholes(what: str, x: Any) -> Any:
    if _many(x):
        return _wholes(what, x)
    try:
        return whole(what, x)
    except ShapeError:
        what = "an axis" if what in ("axis", "dim") else what
        raise ArgumentError(f"{what} is an int, or several are a list of ints, not {said(x)}") from None


def _or_text(look: Fun) -> Fun:
    return lambda what, x: x if _is_text(x) else look(what, x)


def _number_or_numbers(what: str, x: Any) -> Any:
    if _many(x):
        return [number(f"each of {what}", n) for n in x]
    return number(what, x)


def _outputs(what: str, x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return tuple([n if n is None else whole(f"each of {what}", n) for n in x])
    return whole(what, x)


# A kind of arguments: the function that checks a value and gives what the op gets, and classes that need no check.
Kind = tuple[Callable[[str, Any], Any], Container[type]]


_NONE = type(None)
_ROWS: Sequence[tuple[Any, ...]] = (  # an annotation, and its kind; each is there with "| None", too
    ("int", whole),
    ("Integer", _integer, int),
    ("bool", flag, bool),
    ("float", number, float),
    ("int | float", _value, float, bool),
    ("Number", _value, float, bool),
    ("Number | UOp", _value, float, bool, UOp),
    ("float | str", _or_text(number), float, str),
    ("str", _looks("a text", _is_text, DTypeError), str),
    ("Axes", _whole_or_wholes, _NONE),
    ("Axes | bool", _whole_or_wholes, _NONE, bool),
    ("int | Sequence[int]", _whole_or_wholes),
    ("Sequence[int]", _wholes),
    ("Sizes", _whole_or_wholes),
    ("Sizes | str", _or_text(_whole_or_wholes), str),
    ("Outputs", _outputs),
    ("Shape", _sizes),
    ("float | Sequence[float]", _number_or_numbers, float),
    ("Generator", _looks("a Generator", _has("next_key"), DTypeError, "; manual_seed starts the default one")),
)
KINDS: dict[str, Kind] = {name: (look, frozenset(plain)) for name, look, *plain in _ROWS}
KINDS |= {f"{name} | None": (look, frozenset((*plain, _NONE))) for name, look, *plain in _ROWS}
TENSOR = KINDS["Tensor"] = need_tensor, here.tensors.classes
KINDS["Tensor | None"] = need_tensor, here.tensors.classes_or_none
# a parameter's name says it
KINDS["device"] = _looks("the name of a device", _is_text, DeviceError), (str, Place, _NONE)


# Looks at arguments of classes and functions beyond the ops, which take what torch takes: 2.0 for 2, 1 for True.


def _countable(what: str, x: Any) -> Any:
    """A number of any kind."""
    if hasattr(x, "__float__") and not getattr(x, "shape", ()) or isinstance(x, (UOp, Count)):
        return x
    raise DTypeError(f"{what} is a number, not {said(x)}")


def _of_class(name: str) -> Fun:
    return lambda x: any(kind.__name__ == name for kind in type(x).__mro__)


_LISTS = _looks("a list, or the like", lambda x: not isinstance(x, (str, bytes)) and _has("__iter__", "__getitem__")(x))
_LOOKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("Iterable", "Sequence", "list", "tuple"), _LISTS),
    "Callable": _looks("a function", callable),
    "Optimizer": _looks("an optimiser", _has("param_groups"), SettingError),
    "Sized": _looks("something of a length", _has("__len__")),
    **{name: _looks(f"a {name}", _of_class(name)) for name in ("Categorical", "Distribution", "Module", "Transform")},
}


def loosely(module: str, annotation: str) -> Kind | None:
    """The kind of an argument of what is no op: there 1 is True, and no number of steps or epochs need be whole."""
    name = annotation.removesuffix(" | None")
    if name == "float" or (name == "int" and module.startswith("anneal.optim")):
        look: Any = _countable
    elif name == "bool" or " | " in name:
        return None
    elif (look := _LOOKS.get(name.partition("[")[0])) is None:
        return KINDS.get(annotation)
    return look and (look, () if name == annotation else (_NONE,))


# -- other spellings of arguments -------------------------------------------------------------------------------------
# Calls as torch takes them: other names of arguments, a number in a tensor's place, `out=`.


# torch's names of arguments, where a function of ours has another: one of these, or that of several (`*shape`);
# `value` is of scatter, where it is a number.
_SPELLINGS = {
    theirs: ours.split(",")
    for theirs, ours in pairs("""
        a=x axis=dim,dims axis0=dim0 axis1=dim1 b=other condition=x dim=axis dimension=dim dims=repeats,dim
        dtype=shape element=x elements=x equation=formula exponent=other indices=index,indices_or_sections input1=a
        input2=b,L input_=input keepdims=keepdim log_input=input mat1=a mat2=other,b other=b,dim pad=padding
        sections=indices_or_sections size=shape sorted_sequence=x split_size_or_sections=split_size target_=target
        tensor=other,x tensor1=a tensor2=b test_element=values test_elements=values value=src vec=other vec2=other
        x1=a x2=b
    """).items()
}
# Arguments of torch's that say where and how values lie in memory, which is the compiler's affair: left out.
_OF_MEMORY = frozenset(("layout", "memory_format", "non_blocking", "pin_memory", "sparse_grad"))


def spelled(order: Sequence[str], code: CodeType, args: Args, options: Options) -> tuple[Args, Options] | None:
    """A call's arguments with the function's own names in place of torch's; None if it uses none of them."""
    several = code.co_varnames[len(order)] if code.co_flags & inspect.CO_VARARGS else ""
    out = {}
    many = None
    for name, x in options.items():
        if name in _OF_MEMORY and name not in order:
            continue
        ours = next((o for o in (name, *_SPELLINGS.get(name, ())) if o in order or o == several), name)
        if ours == several != "":
            many = x
        elif ours in out:
            return None
        else:
            out[ours] = x
    # the first argument that has no other name
    if "input" in out and "input" not in order and len(args) == ("self" in order):
        first = next((o for o in order[len(args) :] if o not in out), None)
        if first is not None:
            out[first] = out.pop("input")
    if many is not None:
        if "axis" in out:
            return None
        before = [out.pop(o) for o in order[len(args) : code.co_argcount] if o in out]
        return (*args, *before, many), out
    return None if out.keys() == options.keys() else (args, out)


def unknown(error: Exception, name: str, order: Sequence[str], options: Options) -> str:
    """The words for an argument that the function of that qualified name does not take, or lacks; empty where Python
    says something else.
    """
    import difflib

    said = str(error)
    if not said.startswith(f"{name}() "):
        return ""
    wrong = next((o for o in options if o not in order), "")
    if not wrong:
        return said.removeprefix(f"{name}() ")
    names = [o for o in order if o not in ("self", "input")]
    near = difflib.get_close_matches(wrong, names, 1)
    write = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no argument {wrong!r}{write} It takes {', '.join(names) or 'none'}"


def apart(op: Fun) -> Fun:
    """An op whose results share no values with its arguments: in place of an argument it gives a new tensor.

    Args:
        op: the op.
    """

    def run(*args: Any, **options: Any) -> Any:
        out = op(*args, **options)
        given = {id(x) for x in flat((args, options)) if is_tensor(x)}
        if given.isdisjoint(map(id, flat(out))):
            return out
        return mapped(out, lambda t: t._new(t.uop) if id(t) in given else t)

    return run


def into(function: Fun, args: Args, options: Options, of_tensors: bool) -> Any:
    """The result of a call, written into its `out=` (a tensor, or a tuple of them), which is returned.

    As in torch an `out` of no elements takes the shape of the result, and no gradient is recorded. Where torch warns
    and gives an `out` of other elements another shape there is a ShapeError.
    """
    out, rest = options["out"], {name: x for name, x in options.items() if name != "out"}
    if out is None:
        return function(*args, **rest)
    name = function.__name__
    if not of_tensors and is_tensor(out):  # a function that makes tensors of nothing makes such as `out`
        rest = {"dtype": out.dtype, "device": out.device, **rest}
    made = function(*args, **rest)
    results, outs = (made, out) if isinstance(made, (tuple, list)) else ((made,), (out,))
    if not all(map(is_tensor, results)):
        raise DTypeError(f"{name}: gives {said(made)}, which no out holds")
    if not isinstance(outs, (tuple, list)) or len(outs) != len(results):
        raise DTypeError(f"{name}: gives {len(results)} tensors, and out is a tuple of as many, not {said(out)}")
    for new, x in zip(results, outs):
        need_tensor("out", x, name)
        if here.grad and (new.requires_grad or x.requires_grad):
            raise GradientError(f"{name}: out= records no gradient, which a tensor here requires; use no_grad(), or "
                                f"x.copy_({name}(...))")  # fmt: skip
        if rank(new.dtype) > rank(x.dtype):
            raise DTypeError(f"{name}: out is {x.dtype.name}, which cannot hold the result, {new.dtype.name}")
        if new.shape != x.shape and x.numel():
            raise ShapeError(f"{name}: out has shape {x.shape}, and the result {new.shape}; give one of this shape, or "
                             "of no elements, which takes any")  # fmt: skip
    for new, x in zip(results, outs):
        if new.shape == x.shape:
            x.copy_(new)
        else:
            x._take(new.uop.cast(x.dtype))
    return out if results[0] is made else type(made)(*outs) if hasattr(made, "_fields") else type(made)(outs)


def rank(dtype: Any) -> int:
    """The rank of a dtype's kind: a dtype holds values of its own rank and of lower ones."""
    return 2 if dtype.is_float else int(dtype.is_int)


def lifted(function: Any, name: str, what: str, args: Args) -> Args:
    """Arguments whose first is no tensor, as a tensor of the second's dtype where torch takes a number there."""
    first, other = args[0], args[1] if len(args) > 1 else None
    lifts = None if name[-1] == "_" else getattr(function, "lifts", None)  # a change in place is one of a tensor
    if lifts and isinstance(first, (bool, int, float, np.generic)):
        if is_tensor(other):
            return (other._lift(first), *args[1:])
        if lifts == "numbers" and isinstance(other, (bool, int, float)):
            return (tensor_class()(first), *args[1:])
    return (need_tensor(what, first), *args[1:])
