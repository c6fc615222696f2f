"""A module called as one: a loop without jit looks up the repeated call of a module of this library as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, ref

from anneal.nn._hooks import EVERYWHERE
from anneal.nn.parameter import Parameter
from anneal.runtime import PLAIN, Args, Options, Together, call_late, here
from anneal.tensor import Tensor
from anneal.uop import Recent

_ROOM = "anneal.nn."

# The result of one of the library's modules follows from its arguments, the tensors of its tree and the tree itself:
# classes, names and plain attributes. So one call of the module may be remembered, as an op's is
# (`anneal.runtime.late`), instead of the calls of all ops in it. A tree with anything else in it (a user's module or
# function, a hook) is called module by module, and so is a tree whose call cannot be remembered, for example since it
# draws random numbers.
_ARGUMENTS = PLAIN | {float, Tensor, Parameter}
_TRIED = 16  # calls after which a kind is judged
_SHAPES = 1 << 10  # of the arguments of a kind, before they begin anew


class _Kind:
    """Module trees that compute equal results from equal tensors."""

    __slots__ = ("__name__", "_made", "_shapes", "apart", "calls")

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.calls = self._made = 0  # calls, and those that were computed although their shapes were known
        self._shapes: set[Any] = set()  # of the arguments of calls that were computed
        self.apart = False  # whether the modules of such trees are looked up one by one

    def refuse(self) -> None:
        """Note that its calls are not to be remembered."""
        self.apart = True

    def made_one(self, args: Args) -> None:
        """Note that a call was made. If most are, and not for new shapes, which are new to each module in it as well,
        calls of the modules in it may still be remembered."""
        shapes = tuple([x._looks.shape for x in args if isinstance(x, Tensor)])
        if shapes not in self._shapes:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            self._shapes.add(shapes)
            return
        self._made += 1
        if self.calls > _TRIED and 2 * self._made > self.calls:
            self.apart = True


class _Tree:
    """The attributes of a module and those below, as they were when its kind was found.

    Nothing here refers to the module itself: its tree goes with it.
    """

    __slots__ = ("_dicts", "_forwards", "_held", "_lengths", "_rows", "kind", "places", "tensors", "together")

    def __init__(self, root: Any) -> None:
        self._dicts: list[dict[str, Any]] = []  # the modules' attributes
        self._rows: list[Collection[Any]] = []  # the lists, tuples and dicts in them
        self._forwards: list[tuple[type[Any], Any]] = []
        self.tensors: list[Tensor] = []
        self.places: list[tuple[Any, Any]] = []  # of those: what each stands in, under which key
        self.kind: _Kind | None = None
        words: list[Any] = []  # everything besides tensors that the result depends on
        if self._walk(root, words):
            key = tuple(words)
            self.kind = _kinds[key]
            if self.kind is None:
                self.kind = _kinds[key] = _Kind(type(root).__name__)
        else:
            self._dicts, self._rows, self._forwards, self.tensors, self.places = [], [], [], [], []
        self._held = list(self._values())
        self._lengths = list(map(len, (*self._dicts, *self._rows)))
        self.together = Together(self.tensors) if len(self.tensors) > Together.few else None

    def _values(self) -> Iterable[Any]:
        return chain.from_iterable((*map(dict.values, self._dicts), *self._rows))

    def is_current(self) -> bool:
        """True if the attributes have not changed."""
        return (
            [*map(len, self._dicts), *map(len, self._rows)] == self._lengths
            and all(map(is_, self._values(), self._held))
            and all([c.forward is f for c, f in self._forwards])  # noqa: C419  # a generator takes longer
        )

    def _walk(self, root: Any, words: list[Any]) -> bool:
        """Note the modules; False where the tree is called module by module."""
        modules, numbers = [root], {id(root): 0}
        for module in modules:  # it grows meanwhile
            cls = type(module)
            if not cls.__module__.startswith(_ROOM) or not _is_ours(cls.forward) or module._hooks is not None:
                return False
            attributes = vars(module)
            if cls._draws and module.training and attributes.get("p", 1):
                return False  # the call of a tree that draws is not remembered
            self._dicts.append(attributes)
            self._forwards.append((cls, cls.forward))
            words += (cls, cls.forward, *attributes)
            for name, v in attributes.items():
                if not self._note(v, words, modules, numbers, (attributes, name)):
                    return False
        return True

    def _note(self, value: Any, words: list[Any], modules: list[Any], numbers: dict[int, int], at: Any) -> bool:
        """Note an attribute; False for one whose part in the result is not known."""
        cls = value.__class__
        words.append(Tensor if isinstance(value, Tensor) else cls)  # a tensor may stand in for a parameter
        if cls in PLAIN:
            words.append(value)
        elif cls is float:
            words.append(repr(value))
        elif isinstance(value, Tensor):
            self.tensors.append(value)
            self.places.append(at)
        elif cls is list or cls is tuple or cls is dict:
            keys = list(value) if cls is dict else range(len(value))
            self._rows.append(value.values() if cls is dict else value)
            words += (len(value), *(keys if cls is dict else ()))
            return all(self._note(value[k], words, modules, numbers, (value, k)) for k in keys)
        elif cls is FunctionType or cls is frozenset or _is_frozen(cls):
            words.append(value)
            return cls is not FunctionType or _is_ours(value)
        elif hasattr(cls, "named_modules"):
            number = numbers.setdefault(id(value), len(modules))
            words.append(number)
            if number == len(modules):
                modules.append(value)
            return number > 0  # a tree that holds its own root would hold itself
        else:
            return False
        return True


_trees: WeakKeyDictionary[Any, _Tree] = WeakKeyDictionary()
_kinds: Recent[tuple[Any, ...], _Kind] = Recent(1 << 9)


def whole_call(
    module: Any,
    forward: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
    args: Args,
    kwargs: Options,
) -> Any:
    """The result of `forward(module, args, kwargs)`, which calls the module's own, or its remembered result, late."""
    if not here.defers or not type(module).__module__.startswith(_ROOM) or any(EVERYWHERE.values()):
        return forward(module, args, kwargs)
    tree = _known(module)
    kind, tensors = tree.kind, tree.tensors
    if kind is None or kind.apart or not _plain(args) or (kwargs and not _plain(kwargs.values())):
        return forward(module, args, kwargs)
    found, own = kind, ref(module)
    found.calls += 1

    def run(args: Args, *rest: Any) -> Any:
        kwargs, tensors = dict(zip(*rest[:-1], strict=True)) if len(rest) > 1 else {}, rest[-1]
        found.made_one(args)
        alive = own()
        if alive is None:
            raise LookupError(found.__name__)
        if _known(alive).tensors is tensors:
            return forward(alive, args, kwargs)
        # the call is made again, with others
        return _with_others(alive, found, tensors, lambda: forward(alive, args, kwargs))

    named = (tuple(kwargs), tuple(kwargs.values())) if kwargs else ()
    return call_late(found, (args, *named, tensors), {}, run, together=tree.together)


def _with_others(module: Any, kind: _Kind, tensors: list[Tensor], call: Callable[[], Any]) -> Any:
    """The result of a call in which these are the tensors of a module's tree. Raises LookupError where that became
    another."""
    if _known(module).kind is not kind or any(type(held) is tuple for held, _ in _trees[module].places):
        raise LookupError(kind.__name__)
    with replaced(_trees[module].places, tensors):
        return call()


@contextmanager
def replaced(places: Sequence[tuple[Any, Any]], tensors: Sequence[Tensor]) -> Iterator[None]:
    """A block in which these tensors stand at some `places`: a module's attributes, or what it holds, and a key each.

    Straight into the attributes: a module is as it was when the block ends, so no capture is out of date.
    """
    before = [held[key] for held, key in places]
    try:
        for (held, key), t in zip(places, tensors, strict=True):
            held[key] = t
        yield
    finally:
        for (held, key), t in zip(places, before, strict=True):
            held[key] = t


def _known(module: Any) -> _Tree:
    """The module's tree as it is now."""
    tree = _trees.get(module)
    if tree is None or not tree.is_current():
        tree = _trees[module] = _Tree(module)
    return tree


def _is_ours(function: Any) -> bool:
    """True if a function is of this library."""
    return str(function.__module__).startswith("anneal.")


def _is_frozen(cls: type) -> bool:
    """True if instances of a class are a configuration: a frozen dataclass of this library."""
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and cls.__module__.startswith("anneal.")


def _plain(values: Iterable[Any]) -> bool:
    """True if a call with such arguments may be remembered."""
    for x in values:
        cls = x.__class__
        if cls not in _ARGUMENTS and not ((cls is tuple or cls is list) and _plain(x)):
            return False
    return True
