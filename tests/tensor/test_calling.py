"""How functions may be called, beside torch: `out=`, other names of arguments, numbers in place of tensors, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.errors import DTypeError, GradientError, JitError, ShapeError, UserError
from anneal.tensor import Tensor
from tests.helpers import optional

torch = optional("torch")
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
    "hardtanh_: min_val may not be above",  # torch refuses it of hardtanh alone
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
        if isinstance(r, (an.Tensor, torch.Tensor)):
            return "number", np.asarray(r.detach().numpy(), np.float64)
    except UserError as e:
        return "refused", str(e)
    except (TypeError, RuntimeError, ValueError, IndexError) as e:
        return "type" if isinstance(e, TypeError) else "raw", f"{type(e).__name__}: {e}"
    except Exception as e:
        return "raw", f"{type(e).__name__}: {e}"
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


# -- sizes ------------------------------------------------------------------------------------------------------------

SIZES = """
m.eye(N); m.eye(2, N); m.zeros(N); m.full((N,), 1.0); m.arange(5.0).repeat(N); m.tile(v, (N,)); m.tril(x, N); m.triu(x, N); m.diag(x, N)
m.diagonal(x, N); m.roll(x, N); m.roll(x, N, 0); m.repeat_interleave(v, N); m.chunk(v, N)[0]; m.split(v, N)[0]
m.narrow(v, 0, N, 1); m.narrow(v, 0, 0, N); v.unfold(0, 2, N); m.topk(v, N).values; m.kthvalue(v, N).values; m.combinations(v, N)
m.nn.functional.one_hot(m.tensor([0, 1]), N); m.vander(v, N); m.rot90(x, N); m.linspace(0, 1, N); m.hann_window(N); m.kaiser_window(N)
m.bartlett_window(N); m.nn.functional.avg_pool2d(i, N); m.nn.functional.avg_pool2d(i, 2, N); m.nn.functional.max_pool2d(i, 2, 2, N)
m.nn.functional.avg_pool2d(i, 2, divisor_override=N); m.nn.functional.max_pool2d(i, 2, 2, 0, N); m.nn.functional.conv2d(i, w, None, N)
m.nn.functional.conv2d(i, w, None, 1, 0, N); m.nn.functional.conv2d(i, w, None, 1, 0, 1, N); m.nn.functional.pixel_shuffle(i, N)
m.nn.functional.group_norm(i, N); m.nn.functional.glu(x, N); m.nn.functional.unfold(i, N); m.sum(x, N); m.select(x, 0, N); v[N:]; v[:N]
m.renorm(x, 2, 0, N); m.round(v, decimals=N); m.linalg.matrix_power(x[:, :3], N); m.unflatten(x, 1, (N, 2)); x.reshape(N, 3); x.expand(3, N)
m.tril_indices(3, 3, N); m.nn.functional.embedding(m.tensor([N]), x); m.take(v, m.tensor([N])); m.logspace(0, 1, N); v.new_zeros(N)
"""
LARGE = ("tri", "diagonal", "roll", "narrow", "2, N", "None, N)", "rot90", "round", "divisor", "v[", "sum", "select")
MANY = (
    "eye",
    "zeros",
    "full",
    "repeat",
    "tile",
    "one_hot",
    "vander",
    "space",
    "window",
    "conv2d(i, w, None, 1, 0",
    "split",
    "expand",
)


@pytest.mark.parametrize("n", [0, -1, -5, 2**31 - 1, 2**40, -(2**63)])
def test_sizes_at_their_ends(n: int) -> None:
    """torch's values, or an error of ours; what takes all memory in torch is not tried."""
    wrong = {}
    for call in [c.strip() for c in SIZES.replace("\n", ";").split(";") if c.strip()]:
        if n == 2**31 - 1 and ("eye" in call or not any(part in call for part in LARGE)):
            continue
        names = {"x": (3, 4), "v": (5,), "i": (1, 2, 6, 8), "w": (3, 2, 2, 2)}
        text = call.replace("None", "@").replace("N", str(n)).replace("@", "None")

        def run(m: Any, text: str = text, names: dict[str, Any] = names) -> Any:
            given = {k: m.arange(float(np.prod(s))).reshape(s) for k, s in names.items()}
            return eval(text, {"m": m, **given})

        a = came(lambda: run(an))
        b = ("none", None) if abs(n) >= 2**31 and any(name in call for name in MANY) else came(lambda: run(torch))
        if a[0] in ("raw", "type") or (a[0] == b[0] == "number" and not np.array_equal(a[1], b[1], equal_nan=True)):
            if not (
                a[0] == "number" and a[1].shape == b[1].shape and np.allclose(a[1], b[1], 1e-4, 1e-6, equal_nan=True)
            ):
                wrong[text] = a, b
    assert wrong == {}


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0), (0, 0), (3, 0, 2), (3, 2, 0)])
def test_norms_of_nothing(shape: tuple[int, ...]) -> None:
    inf = float("inf")
    for name, orders in {
        "linalg.norm": (None, "fro", "nuc", 1, -1, 2, -2, inf, -inf, 0, 3),
        "linalg.vector_norm": (0, 1, -1, 2, inf, -inf, 3),
        "linalg.matrix_norm": ("fro", "nuc", 1, -1, 2, -2, inf, -inf),
        "norm": ("fro", "nuc", 1, 2, 0, inf, 3),
    }.items():
        for order in orders:
            for dim in ((-2, -1), None, 0, -1):
                if name == "linalg.matrix_norm" and dim != (-2, -1):
                    continue

                def run(m: Any, name: str = name, order: Any = order, dim: Any = dim) -> Any:
                    f = getattr(m.linalg, name.removeprefix("linalg.")) if name.startswith("linalg.") else m.norm
                    return f(m.zeros(shape), order, dim)

                a, b = came(lambda: run(an)), came(lambda: run(torch))
                assert (a[0] == "number") == (b[0] == "number"), (name, order, dim, a, b)
                assert a[0] != "number" or np.array_equal(a[1], b[1]), (name, order, dim)


# -- paths, and names that are not there ------------------------------------------------------------------------------


def test_a_path_is_a_path(tmp_path: Any) -> None:
    from anneal.tensor import io

    tensors, path = {"a": an.ones(2)}, tmp_path / "x"
    for call, saved in ((io.safe_save, tensors), (io.save_npz, tensors), (io.save_npy, an.ones(2)), (an.save, tensors)):
        for args in ((path, saved), (saved, None), (saved, 3), (saved, {"a": 1}), (3, saved)):
            with pytest.raises(
                UserError,
                match=r"a path|path is the name of a file|and then the path|no array of numbers|the object is a",
            ):
                call(*args)  # type: ignore[operator]
    for read in (io.safe_load, io.safe_open, io.safe_metadata, io.load_npy, io.load_npz, io.gguf_open, an.load):
        for given in (tensors, None, 3, an.ones(2)):
            with pytest.raises(UserError, match=r"takes a path|path is the name of a file"):
                read(given)  # type: ignore[operator]


# Of torch's names, in the order of its documentation, those that programs use and that are no functions of tensors.
USED = """
is_tensor is_storage is_complex is_conj is_floating_point is_nonzero set_default_dtype get_default_dtype set_default_device get_default_device
numel set_printoptions set_flush_denormal tensor asarray as_tensor from_numpy from_dlpack zeros full arange linspace eye empty seed manual_seed
initial_seed get_rng_state set_rng_state Generator get_num_threads set_num_threads set_num_interop_threads no_grad enable_grad inference_mode
set_grad_enabled is_grad_enabled finfo iinfo promote_types result_type can_cast typename Size dtype device use_deterministic_algorithms
are_deterministic_algorithms_enabled set_float32_matmul_precision get_float32_matmul_precision cuda backends mps xpu channels_last strided
contiguous_format preserve_format float double half long int short bool uint8 bfloat16 inf nan pi e newaxis FloatTensor LongTensor IntTensor
BoolTensor ByteTensor DoubleTensor HalfTensor save load nn optim autograd utils linalg fft special func masked signal vmap jit Tensor
"""
ABSENT = (
    "complex64 sparse_coo_tensor view_as_real profiler fx hub multiprocessing quantization UntypedStorage range solve"
)


def test_names_that_programs_use() -> None:
    assert [name for name in USED.split() if not hasattr(an, name)] == []
    for name in ABSENT.split():
        assert hasattr(torch, name) or name == "solve"
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': \w+"):
            getattr(an, name)
    x = an.tensor([1.0, 2.0])
    assert (x.device.type, x.device.index, an.device("cpu", 0), x.type()) == ("cpu", None, "cpu:0", "torch.FloatTensor")
    assert isinstance(x, an.FloatTensor)
    assert not isinstance(x, an.LongTensor)
    assert (x.is_cuda, x.is_complex(), x.nbytes, x.nbytes(), x.itemsize) == (False, False, 8, 8, 4)
    assert an.LongTensor(2, 3).shape == an.Tensor(2, 3).shape == (2, 3)
    assert an.FloatTensor([1, 2]).dtype is an.float32
    assert an.Tensor().shape == (0,)
    for a, b in (("int8", "float16"), ("uint8", "int8"), ("float32", "float64"), ("bool", "int32")):
        kinds = [getattr(torch, k) for k in (a, b)]
        assert an.promote_types(a, b) == torch.promote_types(*kinds)
        assert an.can_cast(a, b) == torch.can_cast(*kinds)
        assert an.can_cast(b, a) == torch.can_cast(*kinds[::-1])
    with pytest.raises(DTypeError, match="set_default_dtype: Python's floats become float32"):
        an.set_default_dtype(an.float64)
    assert an.tensor([x[0], 2]).tolist() == [1.0, 2.0]
    y = (an.ones(2, requires_grad=True) * x).detach_()
    assert (y.requires_grad, y.is_leaf) == (False, True)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (7, 2), (3, 3, 3), (0, 2), (3, 0)])
def test_diagonals_are_filled(shape: tuple[int, ...], wrap: bool) -> None:
    assert an.zeros(shape).fill_diagonal_(5, wrap).tolist() == torch.zeros(shape).fill_diagonal_(5, wrap).tolist()


def test_incomplete_gamma_at_its_ends() -> None:
    ends = [0.0, -1.0, 1e-30, 0.1, 1.0, 2.0, 10.0, 19.0, 21.0, 99.0, 101.0, 1e3, 1e5, float("inf"), float("nan")]
    a, x = np.meshgrid(ends, ends)
    for name in ("igamma", "igammac"):
        mine = getattr(an, name)(an.tensor(a), an.tensor(x)).numpy()
        theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(x)).numpy()
        np.testing.assert_allclose(mine, theirs, rtol=2e-8, atol=1e-12)
        slopes = []
        for m in (an, torch):
            t = m.tensor([0.5, 2.0, 30.0], requires_grad=True)
            getattr(m, name)(m.tensor([2.0, 1.0, 29.0]), t).sum().backward()
            slopes.append(t.grad.numpy())
        np.testing.assert_allclose(*slopes, rtol=1e-4)
    with pytest.raises(GradientError, match="no gradient for the first argument"):
        an.igamma(an.ones(2, requires_grad=True), an.ones(2))


LU = {"square": (4, 4), "wide": (3, 5), "tall": (5, 3), "batch": (2, 3, 3), "empty": (0, 3)}


@pytest.mark.parametrize("name", LU)
def test_triangles_and_their_gradients(name: str) -> None:
    values = np.random.default_rng(0).standard_normal(LU[name])
    found = []
    for m in (an, torch):
        A = m.tensor(values, requires_grad=True)
        P, L, U = m.linalg.lu(A)
        packed, pivots = m.linalg.lu_factor(A)
        parts = [P, L, U, pivots, *m.lu_unpack(packed, pivots)]
        if name != "empty":
            (L.sum() * 2 + (U * U).sum() + packed.cos().sum()).backward()
            parts.append(A.grad)
        if name in ("square", "batch"):
            b = m.tensor(values[..., :2])
            parts += [m.linalg.lu_solve(packed, pivots, b, adjoint=flag) for flag in (False, True)]
            parts += [m.lu_solve(b, *m.lu(A)), m.linalg.lu_solve(packed, pivots, b.mT, left=False)]
        found.append([t.detach().numpy() for t in parts])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_one_place_of_a_row_is_an_index_of_no_axes() -> None:
    """As a data set's one-hot targets are written: `zeros(10).scatter_(0, tensor(y), value=1)`."""
    assert an.zeros(4).scatter_(0, an.tensor(2), value=1).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert an.zeros(4).scatter_add(0, an.tensor(1), an.tensor(3.0)).tolist() == [0.0, 3.0, 0.0, 0.0]
    with pytest.raises(ShapeError, match="need as many axes"):
        an.zeros(2, 2).scatter(0, an.tensor(1), 1.0)


NUMBERS: dict[str, Callable[[Tensor, Any], Any]] = {
    "alpha": lambda x, t: x.add(x, alpha=t),
    "in place": lambda x, t: x.clone().sub_(x, alpha=t),
    "value": lambda x, t: an.addcmul(x, x, x, value=t),
    "full": lambda x, t: x.new_full((2,), t),
    "range": lambda x, t: an.arange(t),
    "slope": lambda x, t: nn.functional.leaky_relu(x - 2, t),
    "eps": lambda x, t: nn.functional.layer_norm(x, (3,), eps=t),
    "power of a norm": lambda x, t: x.norm(t),
    "pad": lambda x, t: nn.functional.pad(x, (1, 1), value=t),
    "init": lambda x, t: nn.init.constant_(x.clone(), t),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_tensor_of_one_number_stands_for_it(name: str) -> None:
    """As in torch it is read, unless a gradient flows through it, or nothing may be read."""
    call, x = NUMBERS[name], Tensor([[1.0, 2.0, 3.0]])
    for t in (Tensor(2.0), Tensor(2), Tensor([1.0, 3.0]).mean()):
        assert call(x, t).tolist() == call(x, t.item()).tolist()
    for wrong in (Tensor([2.0]), Tensor(2.0, requires_grad=True)):
        with pytest.raises(DTypeError, match="is a number, not a tensor"):
            call(x, wrong)
    with pytest.raises(DTypeError, match="is a number, not a tensor"):
        an.grad(lambda t: call(x, t).sum())(Tensor(2.0))
    with pytest.raises(JitError, match="read back inside a jit function"):
        an.jit(lambda t: call(x, t))(Tensor(2.0))
