"""Trees: nests of dicts, lists, tuples and named tuples with tensors at the leaves. None is a tree without leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anneal.errors import TransformError
from anneal.runtime import flat, mapped


def _parts(tree: Any) -> list[tuple[str, Any]] | None:
    """The subtrees of a node with how each is written after it (`['w']`, `[0]`, `.x`); None for a leaf."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [(f"[{k!r}]", v) for k, v in tree.items()]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{k}", v) for k, v in zip(tree._fields, tree, strict=True)]
    if isinstance(tree, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(tree)]
    return None


def _leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    stack = [(name, tree)]
    while stack:
        where, node = stack.pop()
        parts = _parts(node)
        if parts is None:
            yield where, node
        else:
            stack.extend([(where + step, part) for step, part in reversed(parts)])


def paths_of(tree: Any, name: str = "") -> list[str]:
    """The paths of the leaves of `tree`, in order: the Python text that reaches each from `name`.

    >>> paths_of({"w": [1, 2], "b": None}, "p")
    ["p['w'][0]", "p['w'][1]"]
    """
    return [where for where, _ in _leaves(tree, name)]


def flatten(tree: Any) -> list[Any]:
    """The leaves, in order.

    Args:
        tree: a tensor, or a nest of tuples, lists and dicts.
    """
    return [x for x in flat(tree) if x is not None]


tree_leaves = flatten


def rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    """The same structure with each leaf replaced by the next of `leaves` (a tree is a few levels deep)."""
    return mapped(tree, lambda x: None if x is None else next(leaves))


def like(name: str, tree: Any, other: Any, what: str, reference: str) -> list[Any]:
    """The parts of `other` at the leaves of `tree`; `other` may have any subtree there.

    Raises TransformError naming the place where the structures differ; `what` and `reference` are what to call them.
    """
    out: list[Any] = []
    stack = [(what, tree, other)]
    while stack:
        where, a, b = stack.pop()
        parts = _parts(a)
        if parts is None:
            out.append(b)
            continue
        theirs = _parts(b)
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() == b.keys():
                stack.extend([(f"{where}[{k!r}]", a[k], b[k]) for k in reversed(a)])
                continue
            said = f"has the keys {list(b)}, not {list(a)}"
        elif theirs is None or type(a) is not type(b):
            said = f"is {_kind(b)}, not {_kind(a)}"
        elif len(parts) != len(theirs):
            said = f"has {len(theirs)} items, not {len(parts)}"
        else:
            stack.extend(
                [(where + step, x, y) for (step, x), (_, y) in reversed(list(zip(parts, theirs, strict=True)))]
            )
            continue
        raise TransformError(f"{name}: {where} {said}: it must have the structure of {reference}")
    return out


def _kind(tree: Any) -> str:
    return "None" if tree is None else f"a {type(tree).__name__}"


def broadcast_prefix(name: str, prefix: Any, tree: Any, what: str, reference: str) -> list[Any]:
    """A value for each leaf of `tree`, from a tree of values that may stop early: a value there counts for all below.

    None in `prefix` is a value (no axis), as in vmap's in_axes.
    """
    out: list[Any] = []
    stack = [(what, prefix, tree)]
    while stack:
        where, p, t = stack.pop()
        parts = None if p is None else _parts(p)
        below = _parts(t)
        if parts is None:
            out += [p] * len(flatten(t))
            continue
        if isinstance(p, dict) and isinstance(t, dict) and p.keys() == t.keys():
            stack.extend([(f"{where}[{k!r}]", p[k], t[k]) for k in reversed(t)])
            continue
        alike = isinstance(p, (list, tuple)) and isinstance(t, (list, tuple)) and below is not None
        if not alike or len(parts) != len(below or ()):
            many = "" if below is None or not alike else f" of {len(below)} items"
            raise TransformError(
                f"{name}: {where} is {_kind(p)} of {len(parts)} items, but the part of {reference} there is "
                f"{_kind(t)}{many}; give one value for the whole, or the same structure"
            )
        stack.extend([(f"{where}[{i}]", p[i], t[i]) for i in reversed(range(len(p)))])
    return out


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` of every leaf of `tree` (and of the parts of `others` in its place), in the same structure.

    Raises TransformError if another tree has another structure.

    >>> from anneal.tensor import Tensor
    >>> tree_map(lambda p, g: p - 0.5 * g, {"w": Tensor([1.0])}, {"w": Tensor([4.0])})
    {'w': Tensor([-1.], dtype=float32)}
    """
    columns: Sequence[list[Any]] = [
        flatten(tree),
        *[like("tree_map", tree, o, f"tree {n}", "the first") for n, o in enumerate(others, 2)],
    ]
    return rebuild(tree, iter([function(*leaves) for leaves in zip(*columns, strict=True)]))
