"""Names of torch that few programs need give what torch gives; what is not there says so."""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import anneal
from anneal import nn
from anneal.autograd.graph import saved_tensors_hooks
from anneal.errors import DataError, GradientError, MissingMethodError, RangeError, SettingError, ShapeError, UserError
from anneal.optim import SGD
from anneal.tensor import Tensor, jit
from tests.nn.further_programs import PROGRAMS, TABLE
from tests.nn.kin_programs import numbers
from tests.nn.test_kin import compare

RESULTS: dict[str, Any] = json.loads(TABLE.read_text())["results"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_torchs_gives(name: str) -> None:
    compare(json.loads(json.dumps(numbers(PROGRAMS[name](anneal)))), RESULTS[name])


@pytest.mark.parametrize(
    "name", ["steps hooked", "states hooked", "axes listed", "lazy layers", "methods of parts", "copies"]
)
def test_on_each_device(name: str, device: str) -> None:
    compare(json.loads(json.dumps(numbers(PROGRAMS[name](anneal)))), RESULTS[name])


def test_hooks_of_a_step_under_jit_run_when_it_is_captured() -> None:
    w, calls = nn.Parameter([1.0]), list[int]()
    optimizer = SGD([w], lr=0.1)
    optimizer.register_step_post_hook(lambda *given: calls.append(len(given)))

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(5)]
    assert losses == pytest.approx([0.64**n for n in range(5)], rel=1e-5)
    assert calls == [3, 3]


def seeded(x: Tensor) -> tuple[Tensor, ...]:
    first = anneal.rand(2) + x * 0
    with anneal.random.fork_rng():
        anneal.manual_seed(5)
        second = anneal.rand(2)
    with anneal.random.fork_rng(enabled=False):
        third = anneal.rand(2)
    return first, second, third, anneal.rand(2)


def forked(x: Tensor) -> tuple[Tensor, ...]:
    with anneal.random.fork_rng():
        first = anneal.rand(2) + x * 0
    return first, anneal.rand(2)


def own_stream(x: Tensor) -> tuple[Tensor, ...]:
    numbers = anneal.Generator().manual_seed(3)
    return anneal.rand(2, generator=numbers) + x * 0, anneal.rand(2)


@pytest.mark.parametrize("function", [seeded, forked, own_stream])
def test_random_numbers_that_are_seeded_inside_a_jit_function(function: Callable[..., Any], device: str) -> None:
    drawn = []
    for call in (function, jit(function)):
        anneal.manual_seed(1)
        drawn.append([[t.tolist() for t in call(Tensor([1.0, 1.0]))] for _ in range(5)])
        drawn[-1].append(anneal.random.get_rng_state().tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


def test_a_forked_stream_goes_on_after_an_error() -> None:
    state = anneal.random.get_rng_state().tolist()
    with pytest.raises(ValueError, match="inside"), anneal.random.fork_rng():
        anneal.rand(3)
        raise ValueError("inside")
    assert anneal.random.get_rng_state().tolist() == state


def stepped(hook: Any) -> Callable[[], None]:
    def run() -> None:
        optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
        hook(optimizer)
        optimizer.step()

    return run


ints = Tensor([1, 2])
WRONG: dict[str, tuple[Callable[[], object], type[UserError], str]] = {
    "a hook's result": (
        stepped(lambda o: o.register_step_pre_hook(lambda *given: 3)),
        SettingError,
        r"None or \(args, kwargs\), not",
    ),
    "a group without settings": (
        stepped(lambda o: o.param_groups.append({"params": [nn.Parameter([1.0])]})),
        SettingError,
        "group 1 has no 'lr': add_param_group",
    ),
    "no extra state": (lambda: nn.ReLU().get_extra_state(), MissingMethodError, "ReLU defines no get_extra_state"),
    "no extra state to set": (lambda: nn.ReLU().set_extra_state(1), MissingMethodError, "no set_extra_state"),
    "missing": (lambda: nn.Linear(1, 1).load_state_dict({}), DataError, "missing: weight, bias .strict=False"),
    "axes beyond": (lambda: anneal.einsum(Tensor([1.0]), [52]), ShapeError, "numbers below 52"),
    "axes left out": (lambda: anneal.einsum(Tensor([1.0]), [0], Tensor([1.0])), ShapeError, "a list of axes"),
    "no formula": (lambda: anneal.einsum(3, Tensor([1.0])), ShapeError, "takes a formula"),
    "saved tensors": (lambda: saved_tensors_hooks(abs, abs), GradientError, r"utils\.checkpoint"),
    "by 0": (lambda: ints // 0, RangeError, "no quotient by 0"),
    "0 as a tensor": (lambda: ints % Tensor(0), RangeError, "no quotient by 0"),
    "zeros": (lambda: 7 // Tensor.zeros(2, dtype="int32"), RangeError, "no quotient by 0"),
    "truncated by 0": (lambda: ints.div(0, rounding_mode="trunc"), RangeError, "no quotient by 0"),
    "fmod by 0": (lambda: ints.fmod(0), RangeError, "no quotient by 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_divisors_that_are_not_known_give_0() -> None:
    assert (ints // Tensor([0, 2])).tolist() == [0, 1]
    assert (ints % Tensor([0, 2])).tolist() == [0, 0]
    assert (ints.float() // 0).tolist() == [float("inf")] * 2
    assert (Tensor.zeros(0, dtype="int32") // 0).shape == (0,)


ROOMS = """
anneal anneal.nn anneal.nn.functional anneal.nn.init anneal.nn.utils anneal.optim anneal.optim.lr_scheduler
anneal.utils.data anneal.autograd anneal.func anneal.linalg anneal.special anneal.fft anneal.distributions anneal.amp
anneal.masked anneal.compiler anneal.cuda anneal.array_api anneal.transforms anneal.tensor
""".split()  # noqa: SIM905
OBJECTS = ("biject_to", "transform_to", "identity_transform")  # they are equal to what they were, not the same


def callables(room: Any) -> dict[str, Any]:
    found = {name: getattr(room, name) for name in dir(room) if not name.startswith("_") and name not in OBJECTS}
    return {
        name: f
        for name, f in found.items()
        if callable(f)
        and not hasattr(f, "__origin__")  # a name for types
        and f is not ModuleType
        and (not isinstance(f, ModuleType) or name == "tensor")
    }


@pytest.mark.parametrize("room", [*ROOMS, "Tensor"])
def test_every_public_function_can_be_pickled(room: str) -> None:
    found = callables(Tensor if room == "Tensor" else importlib.import_module(room))
    assert found
    assert [name for name, f in found.items() if pickle.loads(pickle.dumps(f)) is not f] == []
