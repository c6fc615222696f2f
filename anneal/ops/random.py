"""Random numbers: counter-based, a tensor of them is a function of (seed, call, position), everywhere the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anneal.backend import Array, Place
from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import deferred, family, function, need_float
from anneal.ops.checks import Integer, need_tensor, of_python
from anneal.ops.creation import arange, sizes_given
from anneal.ops.made import DTypeLike, as_dtype, fresh, tensor, wrap_array
from anneal.ops.nodes import FLOAT32, INT32, iota, reshape
from anneal.ops.precision import refused
from anneal.runtime import Context, capturing, default_device, here, modes
from anneal.uop import DType, Ints, Op, UOp, dtypes
from anneal.uop.sizes import most, product

_U32 = dtypes.uint32
_static = function("static")


@dataclass(slots=True)
class Drawing:
    """The draws of a jit function's run from a generator: `count` calls, the first of them with the number `first`.
    The generator's counter on a device stands at `first + before[device]` when the first of them reads it, and at
    `first + after[device]` when the run is over.
    """

    expected: int  # as many as the run before made: no other thread draws them meanwhile
    first: int
    count: int = 0
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    broken: bool = False  # whether other threads drew some of the numbers between


_CALLS = 1 << 32  # the numbers of calls that there are


class Generator:
    """A stream of keys, `(seed, call number)`, for every device. The default one serves every call that names none.

    The two key words are data, never constants of a kernel: a program that draws numbers again finds its kernels again.
    Inside a jit function the call number lives on the device and is advanced by an assignment, so replayed steps draw
    new numbers: those that the same calls without jit draw.

    >>> Generator(3).next_key(), Generator(3).next_key()
    ((3, 0), (3, 0))
    """

    __slots__ = ("_counters", "_known", "_lock", "_seeds", "calls", "device", "passes", "seed")

    def __init__(self, seed: int | str = 0, device: str = "cpu") -> None:
        device, seed = (seed, 0) if isinstance(seed, str) else (device, seed)  # torch's first argument is the device
        self.device = Place(device)
        self._lock = threading.Lock()  # two threads draw from one stream, each its own numbers
        self._seeds: dict[str, Tensor] = {}
        self._counters: dict[str, Tensor] = {}  # what jit functions read and advance, by device
        self._known: dict[str, int] = {}  # their values, once all that was launched has run
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` (its low 32 bits) anew. A jit function that does this is not captured."""
        if here.recordings:
            here.recordings[-1].seeded = True
        self.seed = int(seed) & 0xFFFFFFFF
        self.calls = self.passes = 0
        for t in self._seeds.values():
            t.assign(_word(self.seed, t.device))
        return self

    def state(self) -> dict[str, Any]:
        """The place in the stream as plain numbers, for `go_on`.

        >>> first, second = Generator(3), Generator()
        >>> _ = first.next_key(), second.go_on(first.state())
        >>> second.next_key()
        (3, 1)
        """
        return {"seed": self.seed, "calls": self.calls + self.passes * _CALLS}

    __getstate__ = state

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.go_on(saved)

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Go on from the place that a `state` tells."""
        self.manual_seed(state["seed"])
        self.passes, self.calls = divmod(int(state["calls"]), _CALLS)

    def initial_seed(self) -> int:
        """The seed that `manual_seed` was given last."""
        return self.seed

    def get_state(self) -> Tensor:
        """`state()` as a tensor, for `set_state`."""
        return tensor(np.array(list(self.state().values())), device="cpu")

    def set_state(self, new_state: Tensor) -> None:
        """`go_on` from the tensor `new_state`, which `get_state` gave."""
        if new_state.shape != (2,) or not new_state.dtype.is_int:
            raise ShapeError(f"set_state: a state is two integers, and not {new_state.dtype.name} {new_state.shape}")
        self.go_on(dict(zip(("seed", "calls"), new_state.tolist())))

    def pass_seed(self) -> int:
        """A seed for the threads of the next pass over a data set, for which no call is made."""
        with self._lock:
            self.passes += 1
            return int(np.random.default_rng((self.seed, self.passes)).integers(1 << 31))

    def next_key(self) -> tuple[int, int]:
        """The key of the next call, as two 32-bit words."""
        return self.seed, self._take(1)

    def _take(self, count: int) -> int:
        """The number of the next call, where as many as `count` are made."""
        with self._lock:
            n = self.calls
            self.calls = (n + count) % _CALLS
        return n

    def key(self, device: str) -> tuple[Tensor, Tensor]:
        """The seed and the number of the next call, tensors of one uint32 on `device`."""
        here.effects += 1
        seed = self.seed_of(device)
        if capturing() and not here.recordings[-1].seeded:
            call = self._counted(here.recordings[-1], device)
        else:
            call = fresh(wrap_array(np.array([self._take(1)], np.uint32), device), device)
        return seed, _in_turn(seed, call)

    def _counted(self, recorded: Any, device: str) -> Tensor:
        """The number of the next call of a jit function's run, as the counter on `device` tells it."""
        run = recorded.drawn.get(self)
        if run is None:
            expected = recorded.expected[self].count if self in recorded.expected else 0
            run = recorded.drawn[self] = Drawing(expected, self._take(expected))
        place = run.count
        run.count += 1
        if place >= run.expected and (n := self._take(1)) != run.first + place:
            run.first, run.broken = n - place, True
            run.after.clear()
        if device not in run.after:
            with modes(made=None):  # not the function's: a replay sets the counter as it is due then
                self._set(device, run.first + place)
            run.before[device] = run.after[device] = place
            self._known.pop(device, None)
        counter, behind = self._counters[device], place - run.after[device]
        call = fresh((counter + behind if behind else counter).uop, device)
        counter.assign(counter + (behind + 1))
        run.after[device] = place + 1
        return call

    def _set(self, device: str, number: int) -> None:
        """Have the counter on `device` show a number."""
        word = _word(number % _CALLS, device)
        if device in self._counters:
            self._counters[device].assign(word)
        else:
            self._counters[device] = word

    def counters(self) -> list[Tensor]:
        """The tensors that jit functions advance."""
        return list(self._counters.values())

    def resume(self, run: Drawing) -> None:
        """A replay of this run begins: it draws the calls that are next."""
        start = self._take(run.count)
        for device, before in run.before.items():
            if self._known.get(device) != (start + before) % _CALLS:
                self._set(device, start + before)
            self._known[device] = (start + run.after[device]) % _CALLS

    def seed_of(self, device: str) -> Tensor:
        """The seed, a uint32 tensor of one element on `device`."""
        seed = self._seeds.get(device)
        return self._seeds.setdefault(device, _word(self.seed, device)) if seed is None else seed

    def at(self, call: Tensor) -> Generator:
        """A generator whose every call has the number `call`, one integer on the device, whatever was drawn before.

        >>> from anneal.tensor import Tensor
        >>> numbers = Generator(3).at(Tensor([5]))
        >>> rand(2, generator=numbers).tolist() == rand(2, generator=numbers).tolist()
        True
        """
        return _Numbered(self, call)


class _Numbered(Generator):
    """Draws by numbers that a tensor gives."""

    __slots__ = ("_call", "_parent")

    def __init__(self, parent: Generator, call: Tensor) -> None:
        self.seed, self.calls, self.passes = parent.seed, 0, 0
        self.device, self._lock = parent.device, parent._lock
        self._parent, self._call = parent, call

    def key(self, device: str) -> tuple[Tensor, Tensor]:
        return self._parent.seed_of(device), fresh(self._call.uop.cast(_U32), device)


def _in_turn(seed: Tensor, call: Tensor) -> Tensor:
    """The number of a call in a turn of the loops whose body is traced: another in each."""
    if not here.turns:
        return call
    key, number = reshape(seed.uop, ()) ^ 0x9E3779B9, reshape(call.uop, ())
    for trace in here.turns:
        number = Op.THREEFRY(trace.nodes[0].cast(_U32), key, number)
    return fresh(reshape(number, (1,)), call.device)


def _word(value: int, device: str) -> Tensor:
    return tensor(np.array([value], np.uint32), device=device)


with Context():  # nobody seeds: a jit function may be the first to import this
    default_generator = Generator(0)


@_static
def manual_seed(seed: Integer) -> Generator:
    """Make every later random number a function of `seed` and the calls since.

    >>> from anneal.tensor import Tensor
    >>> _ = manual_seed(7); a = Tensor.rand(3).tolist()
    >>> _ = manual_seed(7); a == Tensor.rand(3).tolist()
    True
    """
    generator: Generator = here.draws or default_generator
    return generator.manual_seed(seed)


# -- bits -----------------------------------------------------------------------------------------------------------


def _bits(shape: Ints, device: str, generator: Generator | None) -> UOp:
    """An array of random 32-bit words."""
    return words(shape, *key(shape, device, generator))[0]


def key(shape: Ints, device: str, generator: Generator | None = None, count: int = 1) -> tuple[Tensor, Tensor]:
    """The key of a call that draws `count` arrays of words."""
    n = product(shape)
    if most(n) * count >= 1 << 31:
        raise ShapeError(f"random: {n} numbers in one call are too many; the limit is 2**31")
    return (generator or here.draws or default_generator).key(device)


def words(shape: Ints, seed: Tensor, call: Tensor, count: int = 1) -> list[UOp]:
    """`count` arrays of random 32-bit words, all of the call with this key."""
    n = product(shape)
    key = reshape(seed.uop, ()), reshape(call.uop, ())
    positions = iota(n).cast(_U32)
    starts = [n * i for i in range(count)]
    places = [positions + (s.cast(_U32) if isinstance(s, UOp) else s) if s != 0 else positions for s in starts]
    return [reshape(Op.THREEFRY(at, *key), shape) for at in places]


def _unit(bits: UOp, dtype: DType) -> UOp:
    """Words as floats in [0, 1): as many leading bits as the dtype holds exactly (at most 24)."""
    keep = min(24, dtype.digits)
    return ((bits >> (32 - keep)).cast(FLOAT32) * 2.0**-keep).cast(dtype)


def _float_dtype(dtype: DTypeLike | None) -> DType:
    d = FLOAT32 if dtype is None else as_dtype(dtype)
    if not d.is_float:
        raise DTypeError(f"makes floats, not {d.name}; use randint for integers")
    return d


def _device(device: str | None) -> str:
    return default_device() if device is None else device


@function
def random_bits(*shape: Any, device: str | None = None, generator: Generator | None = None) -> Tensor:
    """uint32 words, every bit random. Shape as ints or one tuple.

    >>> from anneal.tensor import Tensor
    >>> random_bits(2).dtype
    dtypes.uint32
    """
    device = _device(device)
    return fresh(_bits(sizes_given(shape), device, generator), device)


# -- distributions --------------------------------------------------------------------------------------------------


@_static
def uniform(
    *shape: Any,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform floats in [low, high): those of `rand` scaled, so a device may differ in the last bit.

    >>> from anneal.tensor import Tensor
    >>> Tensor.uniform(2, low=3.0, high=3.0)
    Tensor([3., 3.], dtype=float32)
    """
    d, size, device = _float_dtype(dtype), sizes_given(shape), _device(device)
    drawn = _uniform(*key(size, device, generator), size, d, low, high)
    return fresh(drawn.uop, device, True) if requires_grad else drawn


@deferred
def _uniform(seed: Tensor, call: Tensor, shape: Ints, d: DType, low: float, high: float) -> Tensor:
    u = _unit(words(shape, seed, call)[0], d)
    u = u if high - low == 1 else u * (high - low)
    return fresh(u if low == 0 else u + low, seed.device)


@_static
def normal(
    *shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal floats of `mean` and standard deviation `std`. Raises ShapeError for a negative deviation.

    >>> from anneal.tensor import Tensor
    >>> Tensor.normal(2, 3, mean=5.0).shape
    (2, 3)
    """
    if not std >= 0:
        raise ShapeError(f"normal: the standard deviation is 0 or more, not {std}")
    d, size, device = _float_dtype(dtype), sizes_given(shape), _device(device)
    drawn = _normal(*key(size, device, generator, 2), size, d, mean, std)
    return fresh(drawn.uop, device, True) if requires_grad else drawn


@deferred
def _normal(seed: Tensor, call: Tensor, shape: Ints, d: DType, mean: float, std: float) -> Tensor:
    a, b = words(shape, seed, call, 2)
    f = FLOAT32
    # 1 - u lies in (0, 1], so the logarithm is finite.
    radius = Op.SQRT(Op.LOG(1.0 - _unit(a, f)) * (-2.0 * std * std))
    u = radius * Op.COS(_unit(b, f) * (2 * np.pi))
    return fresh((u if mean == 0 else u + mean).cast(d), seed.device)


def _unscaled(
    name: str,
    draw: Callable[..., Tensor],
    *shape: Any,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    return draw(*shape, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator)


rand, randn = family(
    _unscaled,
    "static",
    """
    rand:
    Uniform floats in [0, 1): multiples of 2**-24 (of narrower floats, as fine as they are at 1/2).

    >>> manual_seed(0) and rand(2, 3).shape
    (2, 3)

    randn:
    Normal floats of mean 0 and standard deviation 1 (Box-Muller over two uniform words).

    >>> from anneal.tensor import Tensor
    >>> Tensor.randn(2, 3).shape
    (2, 3)
    """,
    {
        "rand": uniform,
        "randn": normal,
    },
)


@_static
def randint(
    low: Integer,
    high: Integer | None = None,
    shape: Sequence[int] = (),
    *,
    size: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers in [low, high), or in [0, low) if `high` is missing; int32 unless `dtype` says otherwise.

    The word modulo the span: a value's chance differs from another's by at most one part in 2**32/(high-low).

    Raises ShapeError if the range is empty or wider than 2**32.

    >>> from anneal.tensor import Tensor
    >>> Tensor.randint(3, 4, (2,))
    Tensor([3, 3], dtype=int32)
    """
    if high is None:
        low, high = 0, low
    span = high - low
    if not 0 < span <= 1 << 32:
        raise ShapeError(f"randint: the range [{low}, {high}) must hold between 1 and 2**32 integers")
    d = INT32 if dtype is None else as_dtype(dtype)
    least, most_ = (-(1 << d.digits), 1 << d.digits) if d.is_float else (int(d.min), int(d.max))
    if low < least or high - 1 > most_:
        raise DTypeError(f"randint: {d.name} cannot hold every integer of [{low}, {high})")
    device = _device(device)
    bits = _bits(sizes_given((tuple(shape if size is None else size),)), device, generator)
    u = (bits if span == 1 << 32 else bits % span).cast(d)
    return fresh(u + low if low else u, device)


@function
def bernoulli(p: Tensor | float, *shape: Any, device: str | None = None, generator: Generator | None = None) -> Tensor:
    """1.0 with probability `p`, else 0.0: over `p`'s shape, or over `shape` for a number. A number behind a tensor is
    the probability, over the tensor's shape.

    >>> bernoulli(1.0, 2)
    Tensor([1., 1.], dtype=float32)
    """
    if isinstance(of_python(p), (int, float)) and not isinstance(p, bool):
        if not 0 <= p <= 1:
            raise ShapeError(f"bernoulli: p lies in 0 to 1, not {p}")
        return (rand(*shape, device=device, generator=generator) < p).float()
    chances = need_tensor("p, unless it is a number,", p).detach()
    if shape:  # as in torch a probability, over the tensor's shape
        return bernoulli(shape[0], *p.shape, device=p.device, generator=generator).cast(p.dtype)  # type: ignore[union-attr]
    drawn = (rand(*chances.shape, device=chances.device, generator=generator) < chances).uop.cast(INT32)
    right = ((chances >= 0) & (chances <= 1)).uop
    drawn = refused("bernoulli", chances.device, drawn, right, "p lies in 0 to 1; these do not")
    return chances._new_plain(drawn.cast(chances.dtype))  # type: ignore[no-any-return]


@_static
def randperm(n: int, *, device: str | None = None, generator: Generator | None = None) -> Tensor:
    """The integers 0..n-1 in random order, int32: the stable sorting order of n random words.

    >>> from anneal.tensor import Tensor
    >>> sorted(Tensor.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    device = _device(device)
    keys = UOp(Op.BITCAST, INT32, (_bits(sizes_given((n,)), device, generator),))
    return fresh(UOp(Op.ARGSORT, INT32, (keys,)), device)


def _gumbel(shape: Ints, device: str, generator: Generator | None) -> Tensor:
    """-log(-log(u)) with u strictly between 0 and 1."""
    u = _unit(_bits(shape, device, generator), FLOAT32) + 2.0**-25
    return fresh(-Op.LOG(-Op.LOG(u)), device)


@function("method=no")
def categorical(logits: Tensor, num_samples: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Draws from softmax(logits) over the last axis, int32: shape `logits.shape[:-1]`, plus (num_samples,) if given.

    The argmax of logits plus Gumbel noise, so no probabilities are summed.

    Raises ShapeError for logits of shape () and for a negative number of samples.

    >>> from anneal.tensor import Tensor
    >>> categorical(Tensor([[0.0, 100.0]]))
    Tensor([1], dtype=int32)
    """
    if not logits.ndim:
        raise ShapeError("categorical: logits have one axis or more, not shape ()")
    if num_samples is not None and num_samples < 0:
        raise ShapeError(f"categorical: num_samples is 0 or more, not {num_samples}")
    batch, classes = logits.shape[:-1], logits.shape[-1]
    count = 1 if num_samples is None else num_samples
    noise = _gumbel((*batch, count, classes), logits.device, generator)
    picks = (logits.detach().float().reshape(*batch, 1, classes) + noise).argmax(-1)
    return picks.reshape(batch) if num_samples is None else picks


@function
def multinomial(
    probs: Tensor, num_samples: int = 1, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Draws from unnormalised probabilities over the last axis (one or two axes), int32.

    Shape `(*probs.shape[:-1], num_samples)`. Without replacement no class is drawn twice. Raises ShapeError for more
    axes, or more samples without replacement than classes, DTypeError for integers. On the cpu reading
    a draw from probabilities that are negative, infinite or nan, or all 0, is a UserError.

    >>> from anneal.tensor import Tensor
    >>> multinomial(Tensor([0.0, 1.0]))
    Tensor([1], dtype=int32)
    """
    if probs.ndim not in (1, 2):
        raise ShapeError(f"multinomial: probs has 1 or 2 axes, not shape {probs.shape}")
    classes = probs.shape[-1]
    if num_samples < 1 or (not replacement and num_samples > classes):
        raise ShapeError(f"multinomial: cannot draw {num_samples} of {classes} classes without replacement")
    need_float("probs", probs)
    probs = probs.detach().float()
    if num_samples == 1:
        drawn = categorical(probs.log(), 1, generator=generator)
    elif not replacement:  # the largest of logits plus Gumbel noise, as one of them is a single draw
        drawn = (probs.log() + _gumbel(probs.shape, probs.device, generator)).topk(num_samples)[1]
    else:
        until = probs.cumsum(-1)
        places = until[..., -1:] * rand(*probs.shape[:-1], num_samples, device=probs.device, generator=generator)
        # Sums rounded in another order may step at a class of probability 0: the possible one before it is meant.
        possible = (probs > 0).where(arange(classes, device=probs.device), 0).cummax(-1)[0]
        drawn = possible.take_along_dim(until.searchsorted(places, right=True).clamp(0, classes - 1), -1)
    right = ((probs >= 0) & (probs < np.inf)).all(-1, keepdim=True) & (probs.sum(-1, keepdim=True) > 0)
    text = "probabilities are finite and not negative, and some are above 0; these are not"
    return drawn._new_plain(refused("multinomial", drawn.device, drawn.uop, right.expand(drawn.shape).uop, text))


def host_generator(generator: Generator | None = None) -> np.random.Generator:
    """A NumPy generator seeded by the next call's key: for large host-made arrays such as initial weights."""
    return np.random.Generator(np.random.SFC64((generator or here.draws or default_generator).next_key()))


def host_normal(shape: Ints, std: float, generator: Generator | None = None) -> Array:
    """Normal numbers made on the host."""
    x = host_generator(generator).standard_normal(shape, np.float32)
    x *= np.float32(std)
    return x


_LARGEST_BOUND = float(np.finfo(np.float32).max) / 2  # the width of the interval is a float32 too


def host_uniform(shape: Ints, bound: float, generator: Generator | None = None) -> Array:
    """Uniform numbers in [-bound, bound) made on the host. Raises ShapeError for a bound that is not finite
    in float32.
    """
    if not abs(bound) <= _LARGEST_BOUND:
        raise ShapeError(f"uniform: the bound is a finite number of at most {_LARGEST_BOUND:.4g}, not {bound}")
    x = host_generator(generator).random(shape, np.float32)
    x *= np.float32(2 * bound)
    x -= np.float32(bound)
    return x


def _drawn_like(
    name: str,
    draw: Callable[..., Tensor],
    x: Tensor,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    kind = x.dtype if dtype is None else dtype
    return draw(*x.shape, dtype=kind, device=device or x.device, requires_grad=requires_grad)


rand_like, randn_like = family(
    _drawn_like,
    "",
    """
    rand_like:
    `rand` in this tensor's shape, dtype and device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).rand_like().shape
    (2,)

    randn_like:
    `randn` in this tensor's shape, dtype and device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).randn_like().shape
    (2,)
    """,
    {
        "rand_like": rand,
        "randn_like": randn,
    },
)
