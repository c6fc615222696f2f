"""Wrong rules are found: each planted bug makes the index fuzzer report a changed value within a few hundred
programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anneal.rewrite.sums as sums
import anneal.rewrite.symbolic as symbolic
import anneal.rewrite.symbolic_rules as symbolic_rules
import anneal.uop as uop
import anneal.uop.bounds as bounds
import anneal.uop.fold_rules as fold_rules
import anneal.uop.node as node
from anneal.rewrite.generate import generate
from tests.rewrite.fuzz_index import failures

FOLD_TEXT = Path(fold_rules.__file__).with_name("fold.upat").read_text()
SYMBOLIC_TEXT = Path(symbolic_rules.__file__).with_name("symbolic.upat").read_text()
SUMS_TEXT = Path(sums.__file__).read_text()
BOUNDS_TEXT = Path(bounds.__file__).read_text()
COUNT = 3000

# (what is wrong, the right text, the wrong text)
FOLD_BUGS = [
    ("a remainder is its dividend", "if v(c) > 0 and lo(x) // v(c) == hi(x) // v(c)", "if v(c) > 0 and hi(x) < 2 * v(c)"),
    ("nested divisors add", "x // {v(c1) * v(c2)}", "x // {v(c1) + v(c2)}"),
    ("not less is less by one", "~(x:int < c) -> {v(c) - 1} < x", "~(x:int < c) -> {v(c)} < x"),
    ("an off-by-one bound", "-> x // (c2 // c1)\n  if v(c2) > 0 and divides(c1, c2) and below(y, c1)",
     "-> x // (c2 // c1)\n  if v(c2) > 0 and divides(c1, c2) and lo(y) >= 0 and hi(y) <= v(c1)"),
    ("wrap-around forgotten", "(x:int + c1) < c2 -> x < {v(c2) - v(c1)} if exact(s0) and", "(x:int + c1) < c2 -> x < {v(c2) - v(c1)} if"),
    ("a product that wraps is divided", "// {v(c2) // gcd(v(c1), v(c2))}\n  if v(c2) > 0 and gcd(v(c1), v(c2)) > 1 and exact(s0)",
     "// {v(c2) // gcd(v(c1), v(c2))}\n  if v(c2) > 0 and gcd(v(c1), v(c2)) > 1"),
    ("floor for ceiling", "(x:int * c1) < c2 -> x < {-(-v(c2) // v(c1))}", "(x:int * c1) < c2 -> x < {v(c2) // v(c1)}"),
    ("the branches swapped", "where(~p, a, b) -> where(p, b, a)", "where(~p, a, b) -> where(p, a, b)"),
    ("a lost sign", "-(x:int - y) -> y - x", "-(x:int - y) -> x - y"),
    ("max takes the lower", "max(x:int, y) -> x if lo(x) >= hi(y)", "max(x:int, y) -> x if hi(x) >= hi(y)"),
    ("a mask that is no mask", "and v(c) & (v(c) + 1) == 0", "")  ,
    ("subtraction commutes", "x:int - (y + c) -> (x - y) + {-v(c)}", "x:int - (y + c) -> (x - y) + {v(c)}"),
]  # fmt: skip
SUMS_BUGS = [
    ("a quotient keeps a term it should lose", "if b.lo >= 0 and b.hi < g and a.fits:", "if b.hi <= g and a.fits:"),
    ("a remainder forgets its small term", "a.node() % (d // g) * (g * sign) + b.node()", "a.node() % (d // g) * (g * sign)"),
    ("the rest may span two multiples", "if rest.lo // d == rest.hi // d and whole.fits:", "if rest.hi - rest.lo <= d and whole.fits:"),
    ("a comparison rounds down", "c = -(-c // g)", "c = c // g"),
    ("an off-by-one gate", "if b.lo >= r and b.hi < g + r:", "if b.lo >= r and b.hi <= g + r:"),
    ("a fence one too wide", "return a, a.vmin, b.arg - 1", "return a, a.vmin, b.arg"),
    ("wrap-around forgotten", "return bool(self.dtype.min <= self.lo and self.hi <= self.dtype.max)", "return True"),
    ("quotient and remainder of different values meet", "if s.terms.get(other) != k * c.arg:", "if other not in s.terms:"),
]  # fmt: skip
BOUNDS_BUGS = [
    ("a remainder reaches its divisor less two", "return 0, b.vmax - 1", "return 0, b.vmax - 2"),
    ("a sum that wraps keeps its bounds", "if dtype.min <= lo and hi <= dtype.max:", "if True:"),
]


def _mutated(text: str, right: str, wrong: str) -> str:
    assert right in text, f"the rule to break is gone: {right}"
    return text.replace(right, wrong)


def _execute(text: str, name: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), scope)
    scope.update(names)
    return scope


@contextlib.contextmanager
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(symbolic, "_MEMO", {})
    with uop.Arena():
        yield


@pytest.mark.parametrize(("what", "right", "wrong"), FOLD_BUGS, ids=[b[0] for b in FOLD_BUGS])
def test_a_wrong_creation_rule_is_found(what: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _execute(generate(_mutated(FOLD_TEXT, right, wrong), "fold.upat"), "wrong_fold")["FOLD"]
    facts = {op: (table.get(op), dtype, typed) for op, (_, dtype, typed) in node._ALU_FACTS.items()}
    monkeypatch.setattr(node, "_ALU_FACTS", facts)
    with _fresh(monkeypatch):
        assert failures(COUNT, stop=1), what


@pytest.mark.parametrize(("what", "right", "wrong"), SUMS_BUGS, ids=[b[0] for b in SUMS_BUGS])
def test_a_wrong_index_rule_is_found(what: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _execute(_mutated(SUMS_TEXT, right, wrong), "wrong_sums")
    functions = {n: f for n, f in broken.items() if getattr(f, "__module__", "") == "wrong_sums"}
    scope = _execute(generate(SYMBOLIC_TEXT, "symbolic.upat"), "wrong_symbolic", **functions)
    monkeypatch.setattr(symbolic, "SYMBOLIC", scope["SYMBOLIC"])
    with _fresh(monkeypatch):
        assert failures(COUNT, stop=1), what


@pytest.mark.parametrize(("what", "right", "wrong"), BOUNDS_BUGS, ids=[b[0] for b in BOUNDS_BUGS])
def test_wrong_bounds_are_found(what: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _execute(_mutated(BOUNDS_TEXT, right, wrong), "wrong_bounds")
    for op in (op for op in uop.ALU if op.bounds is not None):
        monkeypatch.setattr(op, "bounds", broken[op.bounds.__name__])
    with _fresh(monkeypatch):
        assert failures(COUNT, stop=1), what


def test_the_harness_itself_finds_nothing_in_right_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = _execute(generate(SYMBOLIC_TEXT, "symbolic.upat"), "right_symbolic")
    monkeypatch.setattr(symbolic, "SYMBOLIC", scope["SYMBOLIC"])
    with _fresh(monkeypatch):
        assert not failures(200)
