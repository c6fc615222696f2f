"""Caches of the process have bounds: what a loop over new shapes, dtypes, functions and files lets grow is in a table
with its bound, and with small bounds the loop leaves as many objects as it found.

`tests/test_state.py` finds what functions of modules change; here all that modules hold is walked after they were
imported, also what hangs off their objects, and `functools` caches.
"""

from __future__ import annotations

import ast
import collections
import functools
import gc
import importlib
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.backend import get_device
from anneal.backend.device import BufferPool
from anneal.ops import bases
from anneal.runtime import late, nodes
from anneal.schedule import clear_cache
from anneal.uop import Recent, Weighed, arena, provenance, toposort
from tests.test_state import CACHE, PACKAGE, STATE

HALVES = "most"  # a `Recent`, which keeps twice as many, or a `Weighed`
DEVICES = "anneal.backend.storage.DEVICES"
CPU = f"{DEVICES}.open['cpu']"
# name -> its bound: HALVES, or the variable that has it
BOUNDS = {
    f"{CPU}._programs": HALVES,
    f"{CPU}.kernels._programs": HALVES,
    "anneal.nn._whole_calls._kinds": HALVES,
    "anneal.rewrite.symbolic._MEMO": "_MEMO_LIMIT",
    "anneal.runtime.late._calls": HALVES,
    "anneal.runtime.late.RUNS": HALVES,
    "anneal.runtime.nodes.LEARNED.carried": "MAX_LINES",
    "anneal.runtime.nodes.LEARNED.masks": "_MAX_MASKS",
    "anneal.runtime.numbering._holes": HALVES,
    "anneal.runtime.numbering._moved": HALVES,
    "anneal.runtime.numbering._rounds": HALVES,
    "anneal.runtime.numbering._tags": HALVES,
    "anneal.runtime.turns._plans": HALVES,
    "anneal.schedule.plan._plans": HALVES,
    "anneal.uop.provenance.CODES.kept": "_MAX_CODES",
    "anneal.uop.provenance.CODES.kinds": "_MAX_CODES",
    "anneal.uop.sizes._POLY": HALVES,
}
# what has another bound, and which
OTHERWISE = {
    "anneal.backend.cpu.primitives.SHARED.libraries": "those of the kernels' programs",
    f"{CPU}._bindings": "those of the batches that hold them",
    f"{CPU}.kernels._libraries": "those of the kernels' programs",
    "anneal.ops.bases.ViewRecipe": "lru_cache",
    "anneal.rewrite.sums.Sum.of": "lru_cache",
    "anneal.runtime.guards._chains": "lru_cache",
    "anneal.schedule.passes.range_propagation._kernel_of": "lru_cache",
    "anneal.schedule.passes.range_propagation._named": "lru_cache",
    "anneal.uop.sizes.is_symbolic": "lru_cache",
    f"{CPU}.of_launches": "those of late.RUNS",
    "anneal.uop.node._PROCESS.nodes": "swept where it has doubled: test_a_loop_over_shapes_leaves_nothing counts what is left",
}
# what `empty_cache()` empties, besides a bound in bytes or of its own
EMPTIED = {
    "anneal.backend.cpu.primitives.SHARED.ones",
    *[f"{CPU}.{name}" for name in ("_idle", "batches", "batches._keys")],
    *[f"{CPU}.pool.{name}" for name in ("_free", "_numbers")],
}

_KINDS = (dict, list, set, collections.deque, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)


def containers() -> Iterator[tuple[str, Any]]:
    """All that modules, their classes and their objects hold that may grow, each by its first name."""
    seen: set[int] = set()
    modules = sorted((n, m) for n, m in sys.modules.items() if n.split(".")[0] == "anneal")
    waiting = [(f"{name}.{k}", v, name, 0) for name, m in modules for k, v in list(vars(m).items()) if k[:2] != "__"]
    # first: whatever they run refers to them; then, since others import it, an object where its class is
    waiting.sort(key=lambda x: (x[0] == DEVICES, type(x[1]).__module__ == x[2]))
    while waiting:
        name, x, module, depth = waiting.pop()
        x = getattr(x, "__func__", x)
        if id(x) in seen:
            continue
        if isinstance(x, functools._lru_cache_wrapper):
            seen.add(id(x))
            yield f"{x.__module__}.{x.__qualname__}", x
        elif isinstance(x, _KINDS):
            seen.add(id(x))
            yield name, x
            if isinstance(x, dict) and len(x) < 32:
                waiting += [(f"{name}[{k!r}]", v, module, depth + 1) for k, v in list(x.items()) if _ours(v)]
        elif _ours(x) and depth < 4 and getattr(x, "__module__", module) in sys.modules:
            seen.add(id(x))
            if isinstance(x, type):
                name, parts = f"{x.__module__}.{x.__qualname__}", list(vars(x).items())
            else:
                slots = [s for c in type(x).__mro__ for s in getattr(c, "__slots__", ()) if hasattr(x, s)]
                parts = [*getattr(x, "__dict__", {}).items(), *[(s, getattr(x, s)) for s in slots]]
            waiting += [(f"{name}.{k}", v, module, depth + 1) for k, v in parts if not k.startswith("__")]


def _ours(x: Any) -> bool:
    kind = x if isinstance(x, type) else type(x)
    return getattr(kind, "__module__", "").split(".")[0] == "anneal"


def module_of(name: str) -> str:
    """The module in what has this name: what stands before the first word in capitals, or else before the last."""
    parts = name.split(".")
    return ".".join(parts[: next((n for n, part in enumerate(parts) if part.isupper()), -1)])


def size(x: Any) -> int:
    if isinstance(x, functools._lru_cache_wrapper):
        return int(x.cache_info().currsize)
    return x.count() if isinstance(x, Recent) else len(x)


def program(n: int) -> None:
    """Ops, products, gradients, an optimiser's step and a jit function, of shapes that no other number has."""
    a, b = 2 + n % 17, 2 + n // 17
    x = an.ones(a, b)
    (((x + 1) * 2).sum(1)).numpy()
    (x @ x.T).sum().item()
    if n % 6 == 0:
        jitted(x).numpy()
        w = an.ones(b, 3, requires_grad=True)
        opt = an.optim.SGD([w], lr=0.1)
        (x @ w).pow(2).mean().backward()
        opt.step()
        w[1:].sum().item()


jitted = an.jit(lambda x: (x * 2 + 1).sum())


def further(n: int, folder: Path) -> None:
    """New code, dtypes, jit functions, views and files."""
    code = f"def f(x):\n    return (x * {n + 2} + an.arange({n + 3}).sum()).sum()\n"
    own: dict[str, Any] = {"an": an, "__name__": f"made{n}"}
    exec(compile(code, f"made{n}.py", "exec"), own)
    for dtype in (an.int32, an.float16, an.float32):
        own["f"](an.ones(n + 2, dtype=dtype)).item()
    g = an.jit(own["f"])
    for _ in range(3):
        g(an.ones(n + 2))
    with an.no_grad():
        an.nn.Linear(n + 1, 2)(an.ones(3, n + 1)).numpy()
    an.save({"x": an.ones(n + 1)}, folder / f"{n}.safetensors")
    an.load(folder / f"{n}.safetensors")
    np.asarray(an.nn.functional.conv1d(an.ones(1, 2, n + 5), an.ones(3, 2, 3)).numpy())


@pytest.fixture(autouse=True)
def with_empty_caches() -> Iterator[None]:
    clear_cache()
    with settings.override(device="cpu", cache=False):
        yield
    clear_cache()


def test_every_cache_of_a_module_has_a_bound() -> None:
    bounded = [*BOUNDS, *OTHERWISE, *EMPTIED]
    caches = {n for n, why in STATE.items() if why is CACHE} - {"anneal.nn._whole_calls._trees"}
    assert {n for n in caches if not any(f"{b}.".startswith(f"{n}.") for b in bounded)} == set()


def test_functools_caches_have_a_bound_or_one_entry() -> None:
    without = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for f in ast.walk(ast.parse(text)) if "cache\n" in text or "cache(" in text else ():
            if isinstance(f, ast.FunctionDef) and (f.args.args or f.args.kwonlyargs):
                said = [ast.unparse(d) for d in f.decorator_list]
                without += [f.name for d in said if d in ("cache", "functools.cache") or "cache(None" in d]
    assert not without


def test_what_grows_has_a_bound(tmp_path: Path) -> None:
    def rounds(begin: int, end: int) -> dict[str, int]:
        for n in range(begin, end):
            program(n)
            further(n, tmp_path)
        gc.collect()
        return {name: size(x) for name, x in containers()}

    before, after = rounds(0, 10), rounds(10, 24)
    grown = {name for name, n in after.items() if n >= before.get(name, 0) + 8}
    assert {"anneal.runtime.late._calls", "anneal.uop.provenance.CODES.kinds", "anneal.runtime.guards._chains"} <= grown
    assert grown <= {*BOUNDS, *OTHERWISE, *EMPTIED}
    an.empty_cache()
    assert {name: n for name, x in containers() if name in EMPTIED and (n := size(x)) > 2} == {}


def test_a_loop_over_shapes_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bounds of some tens of entries, 300 shapes leave as many objects as the 600 before them."""
    program(0)  # opens the device
    for name in BOUNDS:
        importlib.import_module(module_of(name))
    small, held = 48, {name: x for name, x in containers() if name in BOUNDS}
    for name, bound in BOUNDS.items():
        if ".kernels." in name and name not in held:  # there is none where NumPy runs all
            continue
        if bound is HALVES:
            monkeypatch.setattr(held[name], "most", small)
            held[name].clear()
        elif name in held:
            where = sys.modules[module_of(name)]
            monkeypatch.setattr(where, bound, 1024 if bound == "_MAX_CODES" else small)
            if bound != "_MAX_CODES":
                held[name].clear()
    monkeypatch.setattr("anneal.runtime.jitted._CAPTURES", small)
    monkeypatch.setattr(bases, "recipe_of", functools.lru_cache(small)(bases.ViewRecipe))
    left = []
    for n in range(900):
        program(n)
        if n in (599, 899):
            for name, x in containers():
                if OTHERWISE.get(name) == "lru_cache":  # which nobody can make small
                    x.cache_clear()
            an.empty_cache()
            gc.collect()
            left.append((len(arena().nodes), len(gc.get_objects())))
            # one program's entries come at once
            over = {name: size(x) for name, x in containers() if name in BOUNDS and size(x) > 2 * small + 200}
            assert {*over} <= {"anneal.uop.provenance.CODES.kinds", "anneal.uop.provenance.CODES.kept"}
    (nodes, objects), (nodes_then, objects_then) = left
    assert nodes_then < 1.1 * nodes + 200
    assert objects_then < 1.02 * objects + 1000


def test_recent_keeps_what_is_used_again() -> None:
    turns: list[int] = []
    cache: Recent[int, int] = Recent(8, lambda: turns.append(1))
    cache[-1] = 1
    for n in range(100):
        cache[n] = n
        assert cache[-1] == 1
        assert cache.count() <= 16
        assert cache[n - 3] is not None or n < 3
    assert cache[50] is None
    assert len(turns) > 10
    cache.clear()
    assert cache.count() == 0
    assert cache[-1] is None


def test_calls_that_are_used_again_stay_while_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's own calls are not made anew, however many others are made and forgotten meanwhile."""
    monkeypatch.setattr(late._calls, "most", 16)
    made: list[str] = []
    learn = late._learn
    monkeypatch.setattr(late, "_learn", lambda *args: (made.append(args[1][0].__name__), learn(*args))[1])
    x = an.ones(3)
    for n in range(80):
        (x.exp() + x).sum().item()
        (an.ones(n + 4) * 2).numpy()
    assert len(made) > 80
    assert made.count("exp") <= 2


def test_calls_may_be_forgotten_in_the_middle_of_a_step() -> None:
    """What is numbered goes on where what is known of templates goes."""
    x, w = an.randn(4, 3), an.randn(3, 2, requires_grad=True)
    found = []
    for forgets in (False, True, True):
        y = x.reshape(3, 4).T @ w
        if forgets:
            late.forget()
        (x.flatten()[:8].reshape(4, 2) * y).sum().backward()
        if forgets:
            late.forget()
        found.append(w.grad.numpy().copy())
        w.grad = None
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_codes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_MAX_CODES", len(provenance.CODES.kept) + 20)
    for n in range(60):
        own: dict[str, Any] = {}
        exec(f"def f(x):\n    return (x * 2).sum()\n{chr(10) * n}", own)
        assert own["f"](an.ones(2)).item() == 4
    assert len(provenance.CODES.kept) == len(provenance.CODES.kinds) <= provenance._MAX_CODES
    assert provenance.line_of(1, 0) == "code that was forgotten"


def test_a_template_larger_than_what_is_kept_is_not_numbered_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is visited to know the numbers in templates grows as the templates do, whatever the bound."""
    late.forget()
    monkeypatch.setattr(nodes, "_MAX_MASKS", 64)
    monkeypatch.setattr(nodes.LEARNED, "most_masks", 64)
    visited = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal visited
        found = toposort(*args, **options)
        visited += len(found)
        return found

    monkeypatch.setattr(nodes, "toposort", counted)
    x = total = an.ones(4)
    for n in range(1000):
        total = total + x * float(n)
    size = len(toposort((total.uop,)))
    assert total.sum().item() == 4 + 4 * sum(range(1000))
    assert visited < 5 * size
    late.forget()
    assert nodes.LEARNED.most_masks == 64


def test_memory_that_waits_for_a_round_goes_with_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loop over shapes runs again is forgotten, and with it the memory that only its rounds would write."""
    monkeypatch.setattr(late.RUNS, "most", 4)
    device = get_device("cpu")
    an.empty_cache()
    before = len(device._look_at_idle())
    for n in range(300):
        for _ in range(3):
            (an.ones(n + 3) * 2 + 1).numpy()
        assert len(device._idle) <= 2 * device._idle_looked + 65  # others are looked at before there are many
    assert len(device._look_at_idle()) - before <= 4 * 5  # rounds of each, and scratch


def test_a_program_that_uses_little_leaves_little_in_the_pool() -> None:
    dropped: list[int] = []
    pool: BufferPool[object] = BufferPool(4000, dropped.append)  # type: ignore[arg-type]
    for n in range(100):
        pool.give(n, 100, object(), worth=1500)
    assert pool.held <= 1500
    for n in range(100, 200):
        pool.give(n, 100, object(), worth=10)
    assert pool.held <= 1000  # a quarter, whatever was in use
    for n in range(200, 300):
        pool.give(n, 100, object(), worth=10**6)
    assert 3000 < pool.held <= 4000


def test_heavy_entries_are_fewer() -> None:
    cache: Weighed[int, int] = Weighed(200, 1000)
    for n in range(300):
        cache.keep(n, n + 1, 1)
    assert (len(cache), cache.weight) == (200, 200)
    assert cache.find(100) == 101
    assert cache.find(99) is None
    for n in range(300, 400):
        cache.keep(n, n, 100)
    assert (len(cache), cache.weight) == (64, 6400)
    cache.keep(399, 0, 10**6)
    assert (len(cache), cache.weight) == (64, 10**6 + 6300)
    cache.clear()
    assert (len(cache), cache.weight, cache.find(399)) == (0, 0, None)
