"""PyTorch's own table of calls (op_db), run here: for each op of a name that we have, every sample, its result and its
gradients.

`outcomes` says of each sample what became of it; test_torch_op_db.py holds the table of what may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import anneal
from anneal import nn
from anneal.errors import UserError
from anneal.nn import functional
from anneal.tensor import DType, Tensor

# Drawn at random, or of values that nobody promises: the shapes alone are compared.
DRAWN = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "new_empty_strided", "empty_strided",
    "empty_permuted", "randint_like", "rand_like", "randn_like", "randn", "randint", "normal", "uniform", "nn.functional.dropout", "empty",
    "empty_like", "randperm", "new_empty", "nn.functional.gumbel_softmax", "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
}  # fmt: skip
# Ops of torch that stand for a method that changes its tensor.
IN_PLACE = {name: f"{name}_" for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")}
# Those of `fft` that take pairs where torch takes complex numbers: its samples of them are real numbers.
OF_PAIRS = tuple([f"fft.{kind}fft{axes}" for kind in ("", "i", "ir", "h") for axes in ("", "2", "n")])
# Vectors have LAPACK's signs or their opposites: what torch's own tests look at (`output_process_fn_grad`) is compared.
SIGNS = {"linalg.eigh", "linalg.svd", "svd"}


class Outcome(NamedTuple):
    """`kind` is "agrees", "nearer" (torch's float32 is rounded further from torch's float64 than ours), "argument"
    (Python's TypeError: the call has an argument that we do not), "refused", "raw", "shape", "value" or "gradient";
    `said` is what was said or seen; `differentiable` if torch has a gradient there."""

    kind: str
    said: str
    call: str
    differentiable: bool = False


def differentiable(op: Any, torch: Any) -> bool:
    """True if torch has gradients of an op in float32 on the cpu."""
    return bool(op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"))


def found(name: str) -> Callable[..., Any] | None:
    """Ours of torch's name: of `nn.functional`, a room (`linalg`, `fft`, ...), a method of Tensor, or of `anneal`."""
    if name.startswith("nn.functional."):
        return getattr(functional, name.removeprefix("nn.functional."), None)
    if name in IN_PLACE:
        method = getattr(Tensor, IN_PLACE[name], None)
        return None if method is None else lambda x, *args, **options: method(x.clone(), *args, **options)
    if name in OF_PAIRS:
        return lambda x, *args, **options: getattr(anneal.fft, name[4:])(anneal.fft.pairs(x), *args, **options)
    place: Any = anneal
    if hasattr(Tensor, name) and (isinstance(getattr(anneal, name, None), DType) or not hasattr(anneal, name)):
        place = Tensor  # a method alone; `anneal.int` is a dtype
    for part in name.split("."):
        place = getattr(place, part, None)
        if isinstance(place, ModuleType) and not place.__name__.startswith("anneal"):
            return None
    if isinstance(place, property):
        return place.fget
    return place if callable(place) and not isinstance(place, type) else None


def _ours(x: Any, torch: Any, leaves: list[tuple[Tensor, Any]] | None) -> Any:
    """An argument of torch's as ours; float tensors that want a gradient go into `leaves`, beside torch's."""
    if isinstance(x, torch.Tensor):
        wants = leaves is not None and x.requires_grad
        if x.dtype is torch.bfloat16:
            t = Tensor(x.detach().float().numpy()).cast("bfloat16")
        else:
            t = Tensor(x.detach().resolve_conj().numpy())
        if wants:
            t.requires_grad_()
            leaves.append((t, x))  # type: ignore[union-attr]
        return t
    if isinstance(x, torch.nn.PairwiseDistance):
        return nn.PairwiseDistance(x.norm, x.eps, x.keepdim)
    if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
        return getattr(anneal, str(x).partition(".")[2])
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, (list, tuple)):
        return type(x)([_ours(y, torch, leaves) for y in x])
    return x


def _flat(x: Any, torch: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [z for y in x for z in _flat(y, torch)]
    return [x]


def _array(x: Any, torch: Any) -> Any:
    if isinstance(x, torch.Tensor):
        x = torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach()
        return (x.float() if x.dtype is torch.bfloat16 else x.resolve_conj().resolve_neg()).numpy(force=True)
    if isinstance(x, Tensor):
        return x.detach().float().numpy() if x.dtype.name in ("bfloat16", "float16") else x.detach().numpy()
    return np.asarray(x)


def _close(mine: Any, theirs: Any, relative: float = 2e-4, size: float = 0.0, floor: float = 2e-6) -> bool:
    if theirs.dtype.kind in "fc":
        # against the size of the whole, too: what cancels there cancels in another order here
        size = max(size, _size(theirs))
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        return bool(np.allclose(a, b, relative, floor + 2e-6 * size, equal_nan=True))
    return bool(np.array_equal(mine, theirs))


def _size(x: Any) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def outcomes(op: Any, torch: Any, ours: Callable[..., Any] | None = None) -> Iterator[Outcome]:
    """What becomes of each sample of an op, by the function of its name or by `ours`."""
    ours = found(op.name) if ours is None else ours
    assert ours is not None
    wants = differentiable(op, torch)
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=wants):
        call = f"{op.name}({_said(sample.input, torch)}, {_said(sample.args, torch)}, {_said(sample.kwargs, torch)})"
        try:
            expected = op(sample.input, *sample.args, **sample.kwargs)
            if isinstance(expected, torch.Tensor) and expected.is_complex():
                expected = torch.view_as_real(expected.resolve_conj())  # our pairs
        except Exception:
            continue
        leaves: list[tuple[Tensor, Any]] = []
        first = _ours(sample.input, torch, leaves)
        function, args = ours, [_ours(a, torch, leaves) for a in sample.args]
        options = {n: _ours(a, torch, leaves) for n, a in sample.kwargs.items()}
        if op.name.endswith("_") and not op.name.endswith("__"):
            first = first.clone()
        if op.name == "as_strided" and sample.input.untyped_storage().nbytes() > sample.input.nbytes:
            whole = torch.empty(0).set_(sample.input.untyped_storage())  # what the tensor was cut from
            start = sample.input.storage_offset()
            first = Tensor(whole.numpy())[start : start + sample.input.numel()]
        if op.name == "linalg.pinv" and op.variant_test_name == "singular":
            first, args = first @ args[0].mT, args[1:]
        if op.variant_test_name == "in_place":  # of "normal"
            function, first = Tensor.normal_, first.clone()
        if op.name in ("nn.functional.embedding", "nn.functional.embedding_bag"):
            first, args[0] = args[0], first  # op_db turns them round
        if op.name in ("einsum",):
            first, args = args[0], list(first)
        try:
            got = function(first, *args, **options)
            if op.name in SIGNS:
                got, expected = sample.output_process_fn_grad(got), sample.output_process_fn_grad(expected)
            if op.variant_test_name == "grad_oriented":  # of linalg.lstsq: the first two results alone
                got = got[: len(expected)]
            drawn = op.name in DRAWN or bool(options.get("dropout_p"))
            if op.name == "nn.functional.multi_head_attention_forward":
                drawn = args[9] > 0 and options["training"]
            kind, said, mine = _compared(drawn, got, expected, torch)
            if kind == "agrees" and wants and not drawn:
                kind, said, mine = _slopes(got, expected, leaves, torch)
            if kind in ("value", "gradient") and _nearer(kind, mine, op, sample, torch):
                kind = "nearer"
        except UserError as e:
            kind, said = "refused", str(e)
        except TypeError as e:
            missing = any(w in str(e) for w in ("unexpected keyword", "positional argument", "multiple values"))
            kind, said = ("argument" if missing else "raw"), f"TypeError: {e}"
        except Exception as e:
            kind, said = "raw", f"{type(e).__name__}: {e}"
        yield Outcome(kind, said, call, wants)


def _compared(drawn: bool, got: Any, expected: Any, torch: Any) -> tuple[str, str, list[Any]]:
    mine, theirs = _flat(got, torch), _flat(expected, torch)
    if len(mine) != len(theirs):
        return "shape", f"{len(mine)} results, not {len(theirs)}", []
    arrays = [_array(a, torch) for a in mine]
    for a, t in zip(arrays, theirs, strict=True):
        b = _array(t, torch)
        if a.shape != b.shape:
            return "shape", f"{a.shape}, not {b.shape}", []
        if not drawn and not _close(a, b):
            return "value", f"{_worst(a, b)} ({a.dtype}, {b.dtype})", arrays
    return "agrees", "", []


def _worst(a: Any, b: Any) -> str:
    """The elements that differ most."""
    with np.errstate(all="ignore"):
        apart = np.abs(a.astype(np.float64) - b).reshape(-1)
    at = np.argsort(-np.where(np.isnan(apart), np.inf, apart), kind="stable")[:4]
    return f"{a.reshape(-1)[at]}, not {b.reshape(-1)[at]}"


def _sloped(results: Any, torch: Any) -> list[int]:
    """The results, by number, that a gradient flows through."""
    return [
        n
        for n, b in enumerate(_flat(results, torch))
        if isinstance(b, torch.Tensor) and b.is_floating_point() and b.requires_grad
    ]


def _weight(shape: tuple[int, ...]) -> Any:
    return np.cos(np.arange(math.prod(shape), dtype=np.float64)).reshape(shape).astype(np.float32) + np.float32(1.5)


def _torch_slopes(results: Any, leaves: list[Any], torch: Any) -> list[Any]:
    """The gradients of a sum of all results, weighted."""
    flat = _flat(results, torch)
    total = sum((flat[n] * torch.tensor(_weight(flat[n].shape))).sum() for n in _sloped(results, torch))
    slopes = torch.autograd.grad(total, leaves, allow_unused=True)
    return [np.zeros(x.shape) if s is None else _array(s, torch) for x, s in zip(leaves, slopes, strict=True)]


def _slopes(got: Any, expected: Any, leaves: list[tuple[Tensor, Any]], torch: Any) -> tuple[str, str, list[Any]]:
    numbers = _sloped(expected, torch)
    if not numbers or not leaves:
        return "agrees", "", []
    mine: Any = 0.0
    for a in [_flat(got, torch)[n] for n in numbers]:
        mine = mine + (a * Tensor(_weight(a.shape))).sum()
    given = _torch_slopes(expected, [t for _, t in leaves], torch)
    if not isinstance(mine, Tensor) or not mine.requires_grad:
        return ("agrees", "", []) if not any(s.any() for s in given) else ("gradient", "none flows", [])
    mine.backward()
    size = max(_size(g) for g in given)
    narrow = any(_flat(got, torch)[n].dtype.bits < 32 for n in numbers)
    found = [np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy() for leaf, _ in leaves]
    for here, there in zip(found, given, strict=True):
        if not _close(here, there, 1e-2 if narrow else 2e-4, size, 1e-5):
            return "gradient", _worst(here, there), found
    return "agrees", "", []


def _nearer(kind: str, mine: list[Any], op: Any, sample: Any, torch: Any) -> bool:
    """True if what differs is rounding: torch's float64 is as near to ours as to torch's float32, or nearer."""

    def doubled(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dtype is torch.float32:
            singles.append(x)
            leaves.append(x.detach().double().requires_grad_(x.requires_grad))
            return leaves[-1]
        if isinstance(x, (list, tuple)):
            return type(x)([doubled(y) for y in x])
        return torch.float64 if x is torch.float32 else x

    found: list[Any] = []
    for double in (False, True):
        singles: list[Any] = []
        leaves: list[Any] = []
        args = [doubled(x) for x in (sample.input, *sample.args)]
        options = {n: doubled(x) for n, x in sample.kwargs.items()}
        if not double:
            args, options, leaves = [sample.input, *sample.args], sample.kwargs, singles
        try:
            results = op(*args, **options)
            if op.name in SIGNS:
                results = sample.output_process_fn_grad(results)
            wanted = [x for x in leaves if x.requires_grad]
            flat = [_array(x, torch) for x in _flat(results, torch)]
            found.append(_torch_slopes(results, wanted, torch) if kind == "gradient" else flat)
        except Exception:  # it is of float32 alone
            return False
    rounded, exact = found
    for m, t, d in zip(mine, rounded, exact, strict=True):
        ours, theirs = [np.abs(a.astype(np.float64) - d).max(initial=0.0) for a in (m, t)]
        if not (_close(t, d, 1e-2, floor=1e-2) and (ours <= theirs or _close(m, d))):
            return False
    return bool(mine)


def _said(x: Any, torch: Any) -> str:
    if isinstance(x, torch.Tensor):
        return f"{str(x.dtype)[6:]}{list(x.shape)}"
    if isinstance(x, (list, tuple)):
        return f"({', '.join(_said(y, torch) for y in x)})"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k}={_said(v, torch)}" for k, v in x.items()) + "}"
    return repr(x)
