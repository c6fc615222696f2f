"""What modules of anneal keep between calls: the runtime's context, the arena of nodes, and what a table here allows.

State is what a function of a module changes and a later call sees: a variable that it declares global, an item or an
attribute of something that the module holds, at whatever depth, a class's own attribute. An object that a module holds
is one entry, whatever fields it has, if its class has methods that change it; so is what a module makes empty, since
somebody fills it. The results that `functools` caches are values,
since they follow from a function's arguments; so is what a `Recent` and a `Weighed` hold (`anneal/uop/caches.py`), the
two kinds of caches with a bound, which tests/test_caches.py counts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tools.front_doors import statements

PACKAGE = Path(__file__).resolve().parent.parent / "anneal"

CACHE = "a cache: what it holds follows from its key, so forgetting it costs time alone"
TABLE = "a table that is filled when modules are imported, and that users may add to"
BELOW = "what is told of a thread's or the process's work, below the runtime: nobody listening is the default"

# module.name -> why it may be there
STATE = {
    "anneal.backend.cpu.primitives.SHARED": "what the cpu devices share: scratch memory, libraries, the worker in question",
    "anneal.backend.registry.DEVICES": "the devices of the process, of which there is one each, and torch's precision",
    "anneal.cli._output.NOW": "the command's streams, of which a process has one of each",
    "anneal.distributed.groups._groups": "the group of all processes, of which a process joins one",
    "anneal.distributions._base.Distribution": "whether arguments are checked by default, as torch lets one set it",
    "anneal.distributions._base._TABLE": TABLE,
    "anneal.nn._whole_calls._trees": CACHE,
    "anneal.onnx.registry._TABLE": TABLE,
    "anneal.ops.random.default_generator": "the process's generator of random numbers, as torch has it",
    "anneal.progress._TOLD": BELOW,
    "anneal.rewrite.symbolic._MEMO": CACHE,
    "anneal.rewrite.passes._LISTENERS": BELOW,
    "anneal.rewrite.walk.HERE": BELOW,
    "anneal.runtime.context.here": "the runtime's context: what a thread has switched on, watches and records",
    "anneal.runtime.nodes.LEARNED": CACHE,
    "anneal.schedule.shared.WITH_PLANS": TABLE,
    "anneal.settings._IN_FORCE": "the settings, read from the environment once; `override` puts others there for a block",
    "anneal.tensor._shown._options": "how tensors are printed, as set_printoptions said, for the process",
    "anneal.uop.ops.SYMBOLIC": "of the arena: whether it ever had a VARIABLE, which it keeps",
    "anneal.uop.node._ALU_FACTS": TABLE,
    "anneal.uop.node._current": "the arena of interned nodes",
    "anneal.uop.provenance.CODES": CACHE,
}
MOST = 22  # of them
# What belongs to a thread: the context's own, and the two below it.
THREADED = ["rewrite/walk.py", "runtime/context.py", "uop/provenance.py"]

_CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "update",
    ]
)
_MAKING = ("__init__", "__new__", "__post_init__", "__init_subclass__")  # methods that make an object
_EMPTY = (
    "Counter",
    "OrderedDict",
    "WeakKeyDictionary",
    "WeakSet",
    "WeakValueDictionary",
    "count",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def outside(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a module that run when it is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.For, ast.If, ast.Try, ast.With)):
            waiting += ast.iter_child_nodes(node)


def homes(tree: ast.Module, module: str) -> dict[str, str]:
    """The names of a module that hold something of this package, with the full name of each: its own and imported."""
    found = {}
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(module.partition(".")[0]):
            found.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    for node in outside(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for t in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.update({n.id: f"{module}.{n.id}" for n in ast.walk(t) if isinstance(n, ast.Name)})
        elif isinstance(node, ast.ClassDef):
            found[node.name] = f"{module}.{node.name}"
    return found


def roots(x: ast.expr | None) -> Iterator[str]:
    """The names that an expression hands on as they are, or parts of: `a` of `a`, `a.b[c]`, and of `a if x else b`."""
    while isinstance(x, (ast.Subscript, ast.Attribute)):
        x = x.value
    if isinstance(x, ast.Name):
        yield x.id
    for part in (x.body, x.orelse) if isinstance(x, ast.IfExp) else x.values if isinstance(x, ast.BoolOp) else ():
        yield from roots(part)


def assigned(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to, or deletes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        return [part for t in node.targets for part in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)) else []


def changed(function: ast.AST, local: frozenset[str]) -> Iterator[str]:
    """The names whose object, or binding, a function changes; `local` are those of its own and of functions around.

    What a name's attributes and items hold is its own, and a local name for it is that name.
    """
    others: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for t in targets:
                if isinstance(t, ast.Name) and t.id in local:
                    others.setdefault(t.id, set()).update(n for n in roots(node.value) if n not in local)
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            yield from changed(node, local | own_names(node))
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Global):
            yield from node.names
        of = [t for t in assigned(node) if not isinstance(t, ast.Name)]
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                of.append(node.func.value)
            elif isinstance(node.func, ast.Name) and node.func.id == "next":
                of += node.args[:1]
        for name in [n for x in of for n in roots(x)]:
            yield from {name} - local | others.get(name, set())


def own_names(function: ast.AST) -> frozenset[str]:
    """The parameters of a function and what it binds."""
    names, shared = set(), set()
    for n in ast.walk(function):
        if isinstance(n, ast.Name):
            if isinstance(n.ctx, ast.Store):
                names.add(n.id)
        elif isinstance(n, ast.arg):
            names.add(n.arg)
        elif isinstance(n, ast.Global):
            shared.update(n.names)
    return frozenset(names - shared)


def outermost(tree: ast.Module) -> Iterator[ast.AST]:
    """The functions of a module, and the methods of its classes, without those inside them."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, _FUNCTIONS):
                yield node
            else:
                waiting.append(node)


def caches(tree: ast.Module) -> set[str]:
    """The names of a module that hold a `Recent` or a `Weighed`."""
    return {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func) in ("Recent", "Weighed")
    }


def called(node: ast.AST) -> str:
    """The last name of what a node calls: `count` of `itertools.count()`."""
    return ast.unparse(node.func).split("[")[0].rpartition(".")[2] if isinstance(node, ast.Call) else ""


def is_empty(x: ast.expr | None) -> bool:
    """True for what a module makes empty, so that somebody fills it."""
    if isinstance(x, (ast.List, ast.Dict)):
        return not (x.elts if isinstance(x, ast.List) else x.keys)
    return called(x) in _EMPTY and not x.args if isinstance(x, ast.Call) else False


def changes_itself(kind: ast.ClassDef) -> bool:
    """True for a class of a thread's objects, and for one with a method that changes its object after it was made."""
    if any(ast.unparse(base) == "threading.local" for base in kind.bases):
        return True
    methods = [f for f in kind.body if isinstance(f, ast.FunctionDef) and f.args.args and f.name not in _MAKING]
    return any(f.args.args[0].arg in changed(f, own_names(f) - {f.args.args[0].arg}) for f in methods)


def kept(tree: ast.Module, names: dict[str, str], home: Callable[[str], str], kinds: Collection[str]) -> set[str]:
    """The names of a module that are made empty, or that hold an object of one of these classes, and its functions that
    keep one for good."""
    found: set[str] = set()
    filled: set[str] = set()
    for node in outside(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets, value = assigned(node), node.value
            values = (
                value.elts
                if isinstance(value, ast.Tuple) and len(value.elts) == len(targets)
                else [value] * len(targets)
            )
            for t, x in zip(targets, values, strict=True):
                if not isinstance(t, ast.Name):
                    filled.update(roots(t))
                elif is_empty(x) or any(home(names.get(called(c), "")) in kinds for c in (ast.walk(x) if x else ())):
                    found.add(t.id)
        elif isinstance(node, ast.FunctionDef) and node.returns and not node.args.args:
            if home(names.get(ast.unparse(node.returns), "")) in kinds:
                found |= {node.name for d in node.decorator_list if "cache" in ast.unparse(d)}
    return found - filled


def state_of(package: Path) -> set[str]:
    """The full names of what functions of a package change and keep."""
    files = {module_of(p, package): p for p in package.rglob("*.py") if "_examples" not in p.parts}
    trees = {module: ast.parse(p.read_text(encoding="utf-8")) for module, p in files.items()}
    known = {module: homes(tree, module) for module, tree in trees.items()}

    def home(name: str) -> str:
        """Where what has this name was made, through the front doors that hand it on."""
        while (at := name.rpartition("."))[0] in known:
            further = known[at[0]].get(at[2], name)
            if further == name:
                break
            name = further
        return name

    kinds = {
        f"{module}.{node.name}"
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and changes_itself(node)
    }
    found = set()
    for module, tree in trees.items():
        for f in outermost(tree):
            found |= {home(known[module][n]) for n in changed(f, own_names(f)) if n in known[module]}
        found |= {f"{module}.{name}" for name in kept(tree, known[module], home, kinds)}
    return found - {f"{module}.{name}" for module, tree in trees.items() for name in caches(tree)}


def test_nothing_else_keeps_state() -> None:
    assert state_of(PACKAGE) == STATE.keys()
    assert len(STATE) <= MOST, "no new state: an object that its user makes has it"
    assert len(STATE) == MOST, "lower MOST"


def test_few_modules_have_what_belongs_to_a_thread() -> None:
    having = [p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if "threading.local" in p.read_text()]
    assert sorted(having) == THREADED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = {}\ndef f(): x[1] = 2", {"house.a.x"}),
        ("x = []\ndef f(): x.append(1)", {"house.a.x"}),
        ("x = 0\ndef f():\n    global x\n    x += 1", {"house.a.x"}),
        ("class C:\n    n = 0\n    def f(self):\n        C.n += 1", {"house.a.C"}),
        ("import functools\n@functools.lru_cache(4)\ndef f(): return 1", set()),
        ("import itertools\nx = itertools.count()\ndef f(): return next(x)", {"house.a.x"}),
        ("from house.b import y\ndef f(): y.seen = True", {"house.b.y"}),
        ("x = {}\ndef f(k, /): return lambda: x.pop(k)", {"house.a.x"}),
        ("x = {1: 2}\ndef f():\n    x = {}\n    x[1] = 2", set()),
        ("x = {1: 2}\ndef f(x): x.update(a=1)", set()),
        ("x = {1: 2}\ndef f(): return x[1]\nx[3] = 4", set()),
        ("x: Recent[int, int] = Recent(4)\ndef f(): x[1] = 2", set()),
        ("from house.b import y\ndef f(): y.own.items.append(1)", {"house.b.y"}),
        ("from house.b import y\ndef f(): y.own.items[1] = 2", {"house.b.y"}),
        ("from house.b import y\ndef f(): z = y.own\ndef g():\n    z = y.own\n    z.seen = 1", {"house.b.y"}),
        ("from house.b import y\ndef f(): z = y.own or 1\ndef g(y):\n    z = y.own\n    z.seen = 1", set()),
        ("x: list[int] = []\ndef f(): g(x)", {"house.a.x"}),
        ("x = {}\nx[1] = 2", set()),
        ("class C:\n    def f(self): self.n = 1\nx = C()", {"house.a.x"}),
        ("class C:\n    def f(self): self.all.append(1)\nx, y = C(), 2", {"house.a.x"}),
        ("class C:\n    def __init__(self): self.n = 1\nx = C()", set()),
        ("class C:\n    def f(self): self.n = 1\ndef f(): return C()", set()),
        ("import threading\nclass C(threading.local):\n    n = 0\nx = C()", {"house.a.x"}),
        ("class C:\n    def f(self): self.n = 1\n@cache\ndef f() -> C: return C()", {"house.a.f"}),
    ],
)
def test_state_is_found(tmp_path: Path, text: str, found: set[str]) -> None:
    house = tmp_path / "house"
    house.mkdir()
    (house / "a.py").write_text(text + "\n")
    (house / "b.py").write_text("y = object()\n")
    assert state_of(house) == found
