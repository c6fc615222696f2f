"""How functions may be called, beside torch: `out=`, other names of arguments, numbers in place of tensors, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DTypeError, GradientError, ShapeError, UserError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
X = [[1.0, -2.0], [3.0, 0.5]]

# -- out= -------------------------------------------------------------------------------------------------------------

# Each with what `out` is made of: sizes and dtypes of torch's result.
OUT: dict[str, tuple[Callable[[Any, Any, Any], Any], list[tuple[tuple[int, ...], str]]]] = {
    "exp": (lambda m, x, o: m.exp(x, out=o), [((2, 2), "float32")]),
    "add": (lambda m, x, o: m.add(x, 2, alpha=3, out=o), [((2, 2), "float32")]),
    "wider": (lambda m, x, o: m.mul(x, x, out=o), [((2, 2), "float64")]),
    "sum": (lambda m, x, o: m.sum(x, dim=0, out=o), [((2,), "float32")]),
    "matmul": (lambda m, x, o: m.matmul(x, x, out=o), [((2, 2), "float32")]),
    "eq": (lambda m, x, o: m.eq(x, 1, out=o), [((2, 2), "float32")]),
    "cat": (lambda m, x, o: m.cat([x, x], dim=1, out=o), [((2, 4), "float32")]),
    "clamp": (lambda m, x, o: m.clamp(x, min=0, out=o), [((2, 2), "float32")]),
    "max": (lambda m, x, o: m.max(x, dim=1, out=o), [((2,), "float32"), ((2,), "int64")]),
    "sort": (lambda m, x, o: m.sort(x, dim=1, out=o), [((2, 2), "float32"), ((2, 2), "int64")]),
    "arange": (lambda m, x, o: m.arange(1, 4, out=o), [((3,), "float32")]),
    "zeros": (lambda m, x, o: m.zeros(2, out=o), [((2,), "int32")]),
    "inverse": (lambda m, x, o: m.linalg.inv(x, out=o), [((2, 2), "float32")]),
    "norm": (lambda m, x, o: m.linalg.vector_norm(x, dim=0, out=o), [((2,), "float32")]),
    "erf": (lambda m, x, o: m.special.erf(x, out=o), [((2, 2), "float32")]),
}


def filled(m: Any, kinds: list[tuple[tuple[int, ...], str]], whole: bool) -> tuple[Any, Any]:
    """Tensors of sevens for a result, and what they are parts of: themselves, or rows of larger ones."""
    wide = [m.full(shape if whole else (3, *shape), 7, dtype=getattr(m, kind)) for shape, kind in kinds]
    parts = [x if whole else x[1] for x in wide]
    return wide, parts[0] if len(parts) == 1 else tuple(parts)


@pytest.mark.parametrize("whole", [True, False], ids=["tensors", "views"])
@pytest.mark.parametrize("name", OUT)
def test_out_takes_the_result(name: str, whole: bool) -> None:
    call, kinds = OUT[name]
    for step in range(3):  # late calls are remembered
        ours, theirs = filled(an, kinds, whole), filled(torch, kinds, whole)
        gave = call(an, an.tensor(X) + step, ours[1])
        call(torch, torch.tensor(X) + step, theirs[1])
        assert gave is ours[1] or all(a is b for a, b in zip(gave, ours[1], strict=True))
        for a, b in zip(ours[0], theirs[0], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OUT)
def test_out_of_no_elements_takes_the_shape(name: str) -> None:
    call, kinds = OUT[name]
    empty = [an.empty(0, dtype=kind) for _, kind in kinds]
    call(an, an.tensor(X), empty[0] if len(empty) == 1 else tuple(empty))
    assert [x.shape for x in empty] == [shape for shape, _ in kinds]


def test_out_refuses_what_it_cannot_hold() -> None:
    x = an.tensor(X)
    with pytest.raises(ShapeError, match=r"exp: out has shape \(3,\), and the result \(2, 2\)"):
        an.exp(x, out=an.empty(3))
    with pytest.raises(DTypeError, match="out is int32, which cannot hold the result, float32"):
        an.exp(x, out=an.empty(2, 2, dtype=an.int32))
    with pytest.raises(DTypeError, match="sort: gives 2 tensors"):
        an.sort(x, out=an.empty(2, 2))
    with pytest.raises(DTypeError, match="out is a tensor, not 3"):
        an.exp(x, out=3)
    with pytest.raises(DTypeError, match="reshape: there is no argument 'out'"):
        an.reshape(x, (4,), out=an.empty(4))
    w = an.tensor(X, requires_grad=True)
    with pytest.raises(GradientError, match="out= records no gradient"):
        an.exp(w, out=an.empty(2, 2))
    with an.no_grad():
        assert an.exp(w, out=an.empty(2, 2)).shape == (2, 2)


# -- other names ------------------------------------------------------------------------------------------------------

NAMED = """
x.sum(dim=1, keepdims=True); m.mean(x, axis=0, keepdims=True); m.std(x, axis=1); x.argmax(axis=1); m.flip(x, dims=(0,))
m.cat([x, x], axis=1); m.stack([x, x], axis=2); x.squeeze(axis=0); x.unsqueeze(axis=1); m.cumsum(x, axis=1); m.logsumexp(x, axis=1)
m.linalg.norm(x, axis=1, keepdims=True); m.linalg.vector_norm(x, dim=1, keepdims=True); m.sort(x, axis=1).values; m.roll(x, (1,))
m.nn.functional.softmin(x, dim=1, dtype=m.float64); m.index_select(x, axis=1, index=m.tensor([1])); m.diff(x, axis=0)
m.zeros(2, layout=None, pin_memory=False); m.zeros_like(x, memory_format=m.preserve_format); x.clone(memory_format=m.contiguous_format)
x.contiguous(memory_format=m.contiguous_format); m.where(x > 0)[1]; x.scatter(0, m.tensor([[0, 1]]), 2.0, reduce="multiply")
m.amax(x, axis=(0, 1), keepdims=True); m.all(x > 0, axis=0, keepdims=True); m.unbind(x, axis=1)[1]; m.split(x, 1, dim=1)[0]
"""


@pytest.mark.parametrize("call", [c.strip() for c in NAMED.replace("\n", ";").split(";") if c.strip()])
def test_arguments_have_numpys_names_too(call: str) -> None:
    mine, theirs = (eval(call, {"m": m, "x": m.tensor(X)}) for m in (an, torch))
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


# -- numbers ----------------------------------------------------------------------------------------------------------

ROOMS = {
    "": (an, torch),
    "special.": (an.special, torch.special),
    "nn.functional.": (an.nn.functional, torch.nn.functional),
    "linalg.": (an.linalg, torch.linalg),
}
ELSEWHERE = {"save", "load", "compile", "manual_seed", "seed", "vmap", "from_file", "use_deterministic_algorithms"}
NUMBERS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "2, t": lambda m: (2, m.tensor([1.0, 3.0])),
    "2.5, i": lambda m: (2.5, m.tensor([1, 3], dtype=m.int32)),
    "2, i": lambda m: (2, m.tensor([1, 3], dtype=m.int32)),
    "t, 2": lambda m: (m.tensor([1.0, 3.0]), 2),
    "i, 2": lambda m: (m.tensor([1, 3], dtype=m.int32), 2),
    "t, 2, 3": lambda m: (m.tensor([1.0, 3.0]), 2, 3),
    "b, 2.5": lambda m: (m.tensor([True, False]), 2.5),
    "2, 3": lambda m: (2, 3),
    "2": lambda m: (2,),
}
# torch takes a number for a flag there, or for a target, and gives a number that nobody means.
LOUD = (
    "inplace is True or False",
    "hard is True or False",
    "target is a tensor",
    "hardtanh_: the result is float32",
    "elu_: takes from",
)
RANDOM = ("rand", "normal", "empty", "multinomial", "bernoulli", "dropout", "gumbel")


def functions(theirs: Any) -> Iterator[str]:
    for name in sorted(dir(theirs)):
        value = getattr(theirs, name)
        if (
            not name.startswith(("_", "set_"))
            and callable(value)
            and not isinstance(value, type)
            and name not in ELSEWHERE
        ):
            yield name


def came(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gives: "number" and its values, "other", "refused" and the message, or "raw"."""
    try:
        r = call()
    except UserError as e:
        return "refused", str(e)
    except (TypeError, RuntimeError, ValueError, IndexError) as e:
        return "type" if isinstance(e, TypeError) else "raw", f"{type(e).__name__}: {e}"
    except Exception as e:
        return "raw", f"{type(e).__name__}: {e}"
    if isinstance(r, (an.Tensor, torch.Tensor)):
        return "number", np.asarray(r.detach().numpy(), np.float64)
    return "other", type(r).__name__


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_where_torch_takes_them(room: str, kind: str) -> None:
    """Every function of torch's that is here, given Python numbers: torch's values, or an error of ours."""
    mine, theirs = ROOMS[room]
    wrong = {}
    for name in functions(theirs):
        ours = getattr(mine, name, None)
        if not callable(ours) or isinstance(ours, type):
            continue
        a, b = (came(lambda f=f, m=m: f(*NUMBERS[kind](m))) for f, m in ((ours, an), (getattr(theirs, name), torch)))
        if a[0] == "raw" or (b[0] == "number" and a[0] != "number" and not any(said in a[1] for said in LOUD)):
            wrong[name] = a, b
        elif a[0] == b[0] == "number" and not any(r in name for r in RANDOM):
            if a[1].shape != b[1].shape or not np.allclose(a[1], b[1], 1e-4, 1e-6, equal_nan=True):
                wrong[name] = a, b
    assert wrong == {}
