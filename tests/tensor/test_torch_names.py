"""`import anneal as an`: names, printing, gradients of tensors, data, files and other libraries, beside torch's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DataError, DeviceError, GradientError, SettingError, ShapeError
from anneal.utils import data
from tests.helpers import optional

torch = optional("torch")


@pytest.fixture(autouse=True)
def printing() -> Any:
    yield
    an.set_printoptions(profile="default")


def numbers(t: str) -> list[Any]:
    """What a printed tensor shows, in its order: brackets, numbers, what is left out."""
    inner = t[t.index("[") : t.rindex("]") + 1]
    parts = re.findall(r"\[|\]|\.\.\.|[^\s,\[\]]+", inner)
    return [p if p in ("[", "]", "...", "True", "False") else float(p) for p in parts]


SHOWN: dict[str, Any] = {
    "few": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "whole": np.arange(4, dtype=np.float32),
    "ints": np.arange(-3, 3),
    "bools": np.array([True, False]),
    "many": np.arange(1200, dtype=np.float32).reshape(30, 40) / 1000,
    "many ints": np.arange(2000),
}


@pytest.mark.parametrize("name", SHOWN)
def test_values_print_as_torchs_do(name: str) -> None:
    assert numbers(repr(an.tensor(SHOWN[name]))) == numbers(repr(torch.tensor(SHOWN[name])))


def test_dtypes_that_numpy_lacks_print_as_others() -> None:
    x = an.tensor([1 / 3, 2.0])
    assert [repr(x.to(d)) for d in ("float16", "bfloat16", "float8_e5m2")] == [
        "Tensor([0.3333, 2.    ], dtype=float16)",
        "Tensor([0.334, 2.   ], dtype=bfloat16)",
        "Tensor([0.3125, 2.    ], dtype=float8_e5m2)",
    ]


def test_a_large_graph_is_not_computed_to_print_it() -> None:
    x = an.ones(2000)
    for _ in range(300):
        x = x + an.rand(2000)
    assert repr(x).endswith("lazy: print(x.realize()) computes it)")
    assert not x.is_realized
    assert "..." in repr(x.realize())
    assert an.ones(2)._repr_html_() == "<pre>Tensor([1., 1.], dtype=float32)</pre>"
    an.set_printoptions(precision=2, threshold=3, edgeitems=1, sci_mode=True)
    assert repr(an.tensor([1.0, 20.0])) == "Tensor([1.00e+00, 2.00e+01], dtype=float32)"
    assert "1.00e+00, ..., 1.00e+00" in repr(an.ones(9))
    with pytest.raises(SettingError, match="profile is one of default, short, full"):
        an.set_printoptions(profile="tiny")


def test_names_come_when_they_are_asked_for() -> None:
    code = "import sys, anneal; print('numpy' in sys.modules); anneal.zeros(3); print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
    for room in ("tensor", "nn", "ops", "settings", "optim"):
        code = f"import sys\nfrom anneal import {room}\nprint('anneal.front' in sys.modules)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["False"], room
    assert {"Tensor", "zeros", "nn", "optim", "autograd", "save", "float32"} <= set(dir(an))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        an.nothing  # type: ignore[attr-defined]


SPELLED = """
an.flip(x, dims=[1]); x.permute(dims=(1, 0)); an.permute(input=x, dims=(1, 0)); an.swapaxes(x, axis0=0, axis1=1)
an.tile(x, dims=(2, 1)); x.repeat(repeats=(2, 1)); an.split(x, split_size_or_sections=1, dim=1)[0]; x.view(size=(3, 2))
an.take_along_dim(x, indices=i, dim=1); an.where(condition=x > 1, input=x, other=-x); x.sort(dim=1, stable=True).values
an.bmm(input=x[None], mat2=x.t()[None]); an.full(size=(2,), fill_value=3.0); an.zeros(size=(2, 3), dtype=an.float32)
an.ones(size=(2,)); an.empty(size=(0,)); an.broadcast_to(x, size=(2, 2, 3)); x.reshape(shape=(3, 2))
x.unfold(dimension=1, size=2, step=1); an.nn.functional.pad(input=x, pad=(1, 1), value=2.0)
an.nn.functional.cosine_similarity(x1=x, x2=x + 1, dim=1); an.randint(low=3, high=4, size=(2,)); an.clone(x); an.detach(x)
an.gather(input=x, dim=1, index=i); an.chunk(input=x, chunks=3, dim=1)[2]
"""


@pytest.mark.parametrize("call", [c.strip() for c in SPELLED.replace("\n", ";").split(";") if c.strip()])
def test_arguments_have_torchs_names_too(call: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    i = np.array([[0], [2]])
    mine = eval(call, {"an": an, "x": an.tensor(x), "i": an.tensor(i)})
    theirs = eval(call, {"an": torch, "x": torch.tensor(x), "i": torch.tensor(i)})
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_name_that_nobody_has_is_an_error_still() -> None:
    for call in (
        lambda: an.zeros(sizes=(2,)),
        lambda: an.ones(2).flip(dim=0, dims=[0]),
        lambda: an.ones(2).exp(other=1),
    ):
        with pytest.raises(TypeError):
            call()
    assert an.numel(an.ones(2, 3)) == 6
    assert an.is_floating_point(an.ones(1))
    assert an.finfo(an.float32).eps == np.finfo(np.float32).eps
    assert an.iinfo(an.int8).max == 127


# What a first tensor needs none of: each would cost every program some milliseconds of its start.
LATER = """
anneal.ops.functions anneal.ops.linalg anneal.ops.reduce anneal.runtime.execution anneal.runtime.jitted
anneal.runtime.steps anneal.schedule.records numpy.typing
anneal.codegen anneal.transforms anneal.linalg anneal.nn anneal.optim anneal.tensor.io anneal.torch_names anneal.backend.cpu
anneal.backend.webgpu anneal.cache hashlib html ml_dtypes numpy.random onnx random regex requests rich typer urllib wgpu zipfile
"""


@pytest.mark.parametrize("first", ["an.zeros(3)", "print(an.zeros(3))"])
def test_a_first_tensor_imports_what_it_needs(first: str) -> None:
    code = (
        f"import sys, numpy; before = set(sys.modules); import anneal as an; {first}; print(*set(sys.modules) - before)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    came = run.stdout.splitlines()[-1].split()
    assert sorted(set(came) & set(LATER.split())) == []
    assert "anneal.ops.creation" in came
    assert len([name for name in came if name.startswith("anneal.")]) < 70  # 60 when this was written


def test_the_command_is_a_module_too() -> None:
    run = subprocess.run([sys.executable, "-m", "anneal", "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in run.stdout


LEAF = an.ones(2, requires_grad=True)


def on_the_way(m: Any, x: Any, y: Any) -> Any:
    return m.autograd.grad((y * y).sum(), [y, x])


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "a leaf": lambda m, x: m.autograd.grad((x**3).sum(), x),
    "on the way": lambda m, x: on_the_way(m, x, x * 2),
    "weighted": lambda m, x: m.autograd.grad(x * x, x, grad_outputs=m.ones(3)),
    "several": lambda m, x: m.autograd.grad([x.sum(), (x * x).sum()], [x]),
    "twice": lambda m, x: m.autograd.grad(m.autograd.grad((x**4).sum(), x, create_graph=True)[0].sum(), x),
    "unused": lambda m, x: m.autograd.grad(x.sum(), [x, m.ones(2, requires_grad=True)], allow_unused=True)[:1],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_tensors_are_torchs(name: str) -> None:
    values = [1.0, -2.0, 0.5]
    mine = GRADIENTS[name](an, an.tensor(values, requires_grad=True))
    theirs = GRADIENTS[name](torch, torch.tensor(values, requires_grad=True))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5)


def test_a_gradient_penalty_trains() -> None:
    w = an.tensor([2.0], requires_grad=True)
    x = an.tensor([3.0], requires_grad=True)
    (slope,) = an.autograd.grad((w * x * x).sum(), x, create_graph=True)
    (slope**2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2 * (2 * 3) * (2 * 2 * 3)]


def test_modes_of_recording() -> None:
    w = an.ones(1, requires_grad=True)
    with an.no_grad():
        assert not an.is_grad_enabled()
        with an.enable_grad():
            assert (w * 2).requires_grad
        assert an.enable_grad()(lambda: w * 2)().requires_grad
    an.set_grad_enabled(False)
    assert not (w * 2).requires_grad
    an.set_grad_enabled(True)
    with an.inference_mode():
        assert not (w * 2).requires_grad


def test_data_shows_and_changes_the_values() -> None:
    w = an.tensor([1.0, 2.0], requires_grad=True)
    w.data = w.data * 2
    w.data = w.data.clamp(max=3.0)
    assert w.tolist() == [2.0, 3.0]
    assert w.requires_grad
    assert w.is_leaf


def test_other_libraries_take_and_give_tensors() -> None:
    t = an.tensor([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(np.sum(t, axis=0), [4.0, 6.0])
    np.testing.assert_array_equal(np.concatenate([t, t]), np.concatenate([t.numpy(), t.numpy()]))
    assert torch.from_dlpack(t).tolist() == t.tolist()
    assert torch.as_tensor(t).tolist() == t.tolist()
    assert an.from_dlpack(torch.ones(2)).tolist() == [1.0, 1.0]
    assert (np.exp(t) - t.exp()).abs().max().item() < 1e-5  # a tensor, as of torch's
    assert (np.array([1.0, 2.0], np.float32) + t).tolist() == [[2.0, 4.0], [4.0, 6.0]]
    with pytest.raises(GradientError, match=r"np\.exp: NumPy records no gradient"):
        np.exp(an.ones(2, requires_grad=True))
    assert t.dtype == np.float32
    assert t.dtype == np.dtype("float32")
    assert t.dtype == torch.float32
    assert t.dtype != np.float64
    assert t.dtype != "int32"
    assert an.as_tensor(t) is t


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs(workers: int) -> None:
    x, y = np.arange(14, dtype=np.float32).reshape(7, 2), np.arange(7)
    ours = data.DataLoader(data.TensorDataset(an.tensor(x), an.tensor(y)), 3, num_workers=workers)
    theirs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)), 3)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert [part.tolist() for part in a] == [part.tolist() for part in b]
    an.manual_seed(0)
    shuffled = [
        n
        for _, batch in data.DataLoader(list(zip(x, y, strict=True)), 3, shuffle=True, drop_last=True)
        for n in batch.tolist()
    ]
    assert len(set(shuffled)) == 6
    assert shuffled != sorted(shuffled)
    an.manual_seed(0)
    parts = data.random_split(data.TensorDataset(an.tensor(y)), [5, 2])
    assert sorted([int(p[0].item()) for part in parts for p in part]) == list(range(7))
    assert data.default_collate([{"a": 1, "b": x[0]}, {"a": 2, "b": x[1]}])["b"].shape == (2, 2)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    model = an.nn.Sequential(an.nn.Linear(2, 3), an.nn.BatchNorm1d(3))
    optimizer = an.optim.Adam(model.parameters())
    model(an.ones(4, 2)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "losses": [0.5, (1, None)]}
    an.save(saved, tmp_path / "checkpoint")
    found = an.load(tmp_path / "checkpoint", map_location="cpu", weights_only=True)
    assert found["epoch"] == 3
    assert found["losses"] == [0.5, (1, None)]
    other = an.nn.Sequential(an.nn.Linear(2, 3), an.nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    x = an.rand(4, 2)
    np.testing.assert_array_equal(model.eval()(x).detach().numpy(), other.eval()(x).detach().numpy())
    an.save(x, tmp_path / "x")
    np.testing.assert_array_equal(an.load(tmp_path / "x").numpy(), x.numpy())


WRONG: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "grad of tensors": (TypeError, r"grad\(f\)\(x\).*autograd\.grad\(y, x\)", lambda: an.grad(an.ones(1), an.ones(1))),  # type: ignore[arg-type]
    "unused": (
        GradientError,
        "allow_unused=True",
        lambda: an.autograd.grad(an.ones(1, requires_grad=True).sum(), an.ones(2, requires_grad=True)),
    ),
    "no gradient": (GradientError, "requires_grad=True", lambda: an.autograd.grad(an.ones(1).sum(), an.ones(1))),
    "several": (
        GradientError,
        "grad_outputs",
        lambda: an.autograd.grad(LEAF * 2, LEAF),
    ),
    "cuda": (DeviceError, "'webgpu'", lambda: an.tensor([1.0], device="cuda")),
    "a class saved": (DataError, "state_dict", lambda: an.save({"model": an.nn.ReLU()}, "nowhere")),
    "rows": (ShapeError, "equally many rows", lambda: data.TensorDataset(an.ones(2), an.ones(3))),
    "parts": (ShapeError, "add up to 3", lambda: data.random_split([1, 2], [1, 2])),
    "orders": (SettingError, "shuffle or a sampler", lambda: data.DataLoader([1], shuffle=True, sampler=[0])),
    "a batch of what": (DataError, "collate_fn", lambda: list(data.DataLoader([object()]))),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    kind, text, call = WRONG[case]
    with pytest.raises(kind, match=text):
        call()
