"""Tracebacks of mistakes: the user's frames, at most one of the library's, and the module's path at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anneal as an
from anneal import nn, settings

OURS = str(Path(an.__file__).parent)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(17, 8)

    def forward(self, x: an.Tensor) -> an.Tensor:
        return self.fc2(self.fc1(x).relu())


class Net(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), block)

    def forward(self, x: an.Tensor) -> an.Tensor:
        return self.encoder(x)


class Faulty(nn.Module):
    def forward(self, x: an.Tensor) -> an.Tensor:
        return {}[x.shape]


def told(function: Callable[[], Any], frames: str = "short") -> tuple[int, list[str]]:
    """How many of the library's frames the traceback of a mistake has, and its lines."""
    with settings.override(traceback=frames), pytest.raises(Exception) as caught:
        function()
    ours = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.startswith(OURS)]
    return len(ours), "".join(traceback.format_exception(caught.value)).splitlines()


def vector() -> an.Tensor:
    return an.zeros(3)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a layer in a user's module": (lambda: Net(Block())(an.zeros(2, 8)), "in Net.encoder.1.fc2"),
    "a container of layers": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 4))(an.zeros(2, 2)), "in Sequential.1"),
    "an error of the user's": (lambda: Net(Faulty())(an.zeros(2, 8)), "in Net.encoder.1"),
    "an operator": (lambda: an.zeros(2, 3) @ an.zeros(2, 3), "transpose one with .mT"),
    "a method": (lambda: vector().reshape(2), ""),
    "a function": (lambda: an.cat([an.zeros(2, 3), an.zeros(2, 4)]), ""),
    "a view": (lambda: vector()[4], ""),
    "in place": (lambda: vector().add_(an.zeros(4)), ""),
    "a gradient": (lambda: vector().backward(), ""),
    "an argument's name": (
        lambda: an.softmax(vector(), axs=0),  # type: ignore[call-arg]
        "softmax: there is no argument 'axs'; did you mean 'axis'? It takes x, axis, dim, dtype",
    ),
    "an argument of a layer": (lambda: nn.Linear(2, 3, baias=True), "did you mean 'bias'?"),  # type: ignore[call-arg]
    "a missing argument": (lambda: nn.Linear(2), "Linear: missing 1 required"),  # type: ignore[call-arg]
    "a loss": (lambda: nn.functional.cross_entropy(an.zeros(2, 3), an.zeros(4)), "not (4,)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_shows_the_users_frames_and_the_place(name: str) -> None:
    function, end = MISTAKES[name]
    for _ in range(3):  # the first call, and later ones that are looked up
        ours, lines = told(function)
        assert ours <= 1, "\n".join(lines)
        assert end in lines[-1]
    assert told(function, "full")[0] >= max(ours, 1)


def test_a_module_called_alone_has_no_path() -> None:
    _, lines = told(lambda: nn.Linear(3, 4)(an.zeros(2, 2)))
    assert lines[-1].startswith("anneal.errors.ShapeError: linear")


def test_an_error_below_the_users_code_keeps_the_frames_that_lead_to_it() -> None:
    def broken(x: Any) -> Any:
        return an.zeros(2).numpy().item()  # ValueError of NumPy's: two elements

    class Model(nn.Module):
        def forward(self, x: an.Tensor) -> Any:
            return broken(x)

    _, lines = told(lambda: Model()(an.zeros(2)))
    assert any("broken" in line for line in lines)
    assert not any("_module.py" in line for line in lines)


def test_a_path_is_of_the_call_that_failed() -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(4, 4)

        def forward(self, x: an.Tensor) -> an.Tensor:
            try:
                self.b(x)
            except an.errors.ShapeError:
                pass
            return self.a(x[:, :2])

    assert told(lambda: Careful()(an.zeros(2, 3)))[1][-1] == "in Careful.a"


def test_a_wrong_setting_is_told_once() -> None:
    program = "from anneal import nn; nn.LSTM(2, 3)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env={**os.environ, "ANNEAL_NOPE": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.stderr.count("ANNEAL_NOPE is not a setting") == 1
    assert "During handling" not in ran.stderr
    assert str(OURS) not in ran.stderr
