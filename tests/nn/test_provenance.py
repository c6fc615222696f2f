"""Where nodes come from: the user's line, the path of the module being called, the function it called."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any

import pytest

from anneal import nn, runtime
from anneal.tensor import Tensor, grad
from anneal.uop import UOp, arena, toposort


def of_phase(u: UOp, phase: str) -> list[tuple[str, Any, int, str, Any]]:
    return [n.provenance for n in toposort((u,)) if n.weak and n.provenance[0] == phase]


def here() -> int:
    return sys._getframe(1).f_lineno


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm = nn.LayerNorm(4)
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](self.norm(x)).gelu())


def test_a_node_knows_the_module_and_the_function() -> None:
    model = nn.Sequential(Block(), Block())
    y = model(Tensor([[1.0, 2.0, 3.0, 4.0]]))
    found = {(path, code.co_name) for _, _, _, path, code in of_phase(y.uop, "forward") if code}
    for n in ("0", "1"):
        assert (f"{n}.norm", "layer_norm") in found
        assert (f"{n}.layers.0", "linear") in found
        assert (f"{n}.layers.1", "linear") in found
        assert (n, "gelu") in found
    assert arena().here.path == ""


def test_paths_are_those_of_the_modules_as_they_are_at_the_call() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.first, self.rest = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))

        def forward(self) -> list[str]:
            assert runtime.here.modules is not None
            return list(runtime.here.modules.values())

    m = Two()
    assert m() == m() == ["", "first", "rest", "rest.0"]
    m.last = m.first
    assert m() == ["", "first", "rest", "rest.0"]
    del m.first
    assert m() == ["", "rest", "rest.0", "last"]
    m.rest.append(nn.Linear(2, 2))
    assert m() == ["", "rest", "rest.0", "rest.1", "last"]
    m.rest[0] = nn.Sequential(nn.ReLU())
    assert m() == ["", "rest", "rest.0", "rest.0.0", "rest.1", "last"]
    m.last = None
    assert m() == ["", "rest", "rest.0", "rest.0.0", "rest.1"]
    m.several = [nn.Linear(2, 2)]
    assert m() == ["", "rest", "rest.0", "rest.0.0", "rest.1", "several.0"]
    m.several.append(nn.Linear(2, 2))
    assert m() == ["", "rest", "rest.0", "rest.0.0", "rest.1", "several.0", "several.1"]


def test_a_line_inside_of_a_forward_of_the_users_is_that_line() -> None:
    lines = {
        line
        for _, _, line, path, _ in of_phase(Block()(Tensor([[1.0, 2.0, 3.0, 4.0]])).uop, "forward")
        if path == "layers.0"
    }
    assert lines == {Block.forward.__code__.co_firstlineno + 1}


def test_a_gradient_bears_the_line_of_its_forward_code() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    forward = here() + 1
    loss = model(Tensor([[1.0, 2.0, 3.0, 4.0]])).tanh().sum()
    loss.backward()
    for n in (0, 1):
        g = model[n].weight.grad
        assert g is not None
        found = [(line, path) for _, _, line, path, _ in of_phase(g.uop, "backward")]
        assert (forward, str(n)) in found
        assert {line for line, _ in found} == {forward}
    assert arena().here.track


def test_gradients_of_functions_do_so_too() -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin().sum()

    g = grad(function)(Tensor([1.0, 2.0]))
    assert {line for _, _, line, _, _ in of_phase(g.uop, "backward")} == {function.__code__.co_firstlineno + 1}


def test_a_module_that_is_no_attribute_goes_by_its_class() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            return nn.Sequential(nn.Linear(4, 4))(self.inner(x))

    class Whole(nn.Module):
        def __init__(self) -> None:
            self.outer = Outer()

        def forward(self, x: Tensor) -> Any:
            return self.outer(x)

    y = Whole()(Tensor.ones(2, 4))
    assert "outer.Sequential.0" in {path for *_, path, _ in of_phase(y.uop, "forward")}


def test_the_path_ends_with_the_call_also_by_an_error() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Any:
            raise ValueError("no")

    model = nn.Sequential(nn.Sequential(Wrong()))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            model(Tensor.ones(1))
        assert arena().here.path == ""
    assert model[0][0] is not None
    assert {path for *_, path, _ in of_phase(nn.Linear(1, 1)(Tensor.ones(1, 1)).uop, "forward")} == {""}


def test_threads_have_paths_of_their_own() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Any:
            inside.set()
            leave.wait(30)
            return x + 1

    outer = nn.Sequential(nn.Identity(), Waits())
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(outer(Tensor.ones(2) * 3)))
    thread.start()
    assert inside.wait(30)
    y = nn.Sequential(nn.Linear(2, 2))(Tensor.ones(1, 2))
    leave.set()
    thread.join()
    assert {path for *_, path, _ in of_phase(y.uop, "forward") if path} == {"0"}
    assert results[0].uop.provenance[3] == "1"


def test_frames_of_the_standard_library_are_nobodys_line() -> None:
    """Their caller is meant: here a decorator, a map over threads, and a copy."""
    import copy
    from concurrent.futures import ThreadPoolExecutor

    with contextlib.ExitStack() as stack:
        made = here(), stack.enter_context(contextlib.nullcontext(Tensor([1.0, 2.0]))).exp()
    assert line_of(made[1]) == (__file__, made[0])
    line, copied = here(), copy.deepcopy(Tensor([1.0, 2.0]).realize())
    assert line_of(copied) == (__file__, line)
    reduced = here(), functools.singledispatch(Tensor.exp)(Tensor([1.0, 2.0]))
    assert line_of(reduced[1]) == (__file__, reduced[0])
    with ThreadPoolExecutor(1) as pool:
        (found,) = pool.map(Tensor.exp, [Tensor([1.0, 2.0])])
        (named,) = pool.map(lambda x: x.exp(), [Tensor([1.0, 2.0])])
    assert line_of(found) == (None, 0), "a thread's first frames"
    assert line_of(named)[0] == __file__


def line_of(x: Tensor) -> tuple[str | None, int]:
    _, code, line, _, _ = x.uop.provenance
    return (None if code is None else code.co_filename), line


def test_of_what_the_command_line_calls_itself_no_line_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its callers are a library's frames; an example's lines are its own."""
    from anneal.cli import main

    for command in (["graph", "mlp", "--json"], ["kernels", "mlp", "--step", "--json"], ["explain", "--model", "mlp"]):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert not end.value.code
        out = capsys.readouterr().out
        assert "mlp.py" in out
        assert "main.py" not in out
