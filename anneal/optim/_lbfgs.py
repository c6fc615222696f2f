"""L-BFGS, which estimates the curvature from a few past gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anneal.distributed import Group, all_gather, buckets, clip_parts, reduce_scatter, world
from anneal.errors import DataError, GradientError, SettingError
from anneal.ops import said
from anneal.optim._base import Optimizer, Parameters, update_phase, with_gradients
from anneal.optim._states import Saved, array_of, check_settings, settings_among
from anneal.runtime import realize
from anneal.tensor import Tensor, no_grad
from anneal.transforms import take_results
from anneal.uop import UOp, dtypes

Vector = np.ndarray[Any, np.dtype[np.float64]]


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal, 1989) as torch computes it: a step calls `closure` several times.

    Directions are computed on the host, in float64; a step is no part of a jit function.

    Args:
        params: of one group. lr: the length of a step. max_iter: directions a step; max_eval: calls a step, by default
            1.25 times as many. tolerance_grad, tolerance_change: where a step ends. history_size: how many gradients
            are kept. line_search_fn: None, or "strong_wolfe".

    Raises SettingError for several groups, an unknown line search or a step without a closure.

    >>> w = Tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> start = optimizer.step(closure).item()
    >>> w.numpy().round(3).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise SettingError(f'LBFGS: line_search_fn is None or "strong_wolfe", not {line_search_fn!r}')
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, settings_among(locals()))
        if len(self.param_groups) != 1:
            raise SettingError("LBFGS: takes one group of parameters")
        check_settings("LBFGS", self.param_groups[0])
        self._kept = _begun()

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Take up to `max_iter` directions; `closure` forgets gradients, computes the loss and calls backward().

        Returns the loss before.
        """
        if closure is None or isinstance(closure, Tensor) or options:
            raise SettingError("LBFGS: step takes a closure, which computes the loss and its gradients, and no other")
        group = self.param_groups[0]
        first = with_gradients(closure)
        loss, g = float(first), self._slope()
        calls = 1
        if np.abs(g).max(initial=0.0) <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            before = loss
            d, length = self._direction(g, group["lr"])
            start, place = Point(0.0, loss, g, float(g @ d)), self._place()
            if start.slope > -group["tolerance_change"]:
                break
            searches, used = group["line_search_fn"] is not None, 1
            if searches:
                looks = group["max_eval"] - calls
                found, used = strong_wolfe(partial(self._at, closure, place, d), start, length, d, looks)
                length, loss, g, _ = found
            self._move(place + length * d)
            self._kept |= {"direction": d, "slope": start.grad}
            self._kept["numbers"][0] = length
            if not searches and n != group["max_iter"]:
                loss, g = float(with_gradients(closure)), self._slope()
            calls += used
            small = np.abs(d * length).max(initial=0.0) <= group["tolerance_change"]
            flat = np.abs(g).max(initial=0.0) <= group["tolerance_grad"]
            if calls >= group["max_eval"] or flat or small or abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _direction(self, g: Vector, lr: float) -> tuple[Vector, float]:
        """The direction of the next step, and its first length."""
        kept, numbers = self._kept, self._kept["numbers"]
        numbers[2] += 1
        if not len(kept["direction"]):
            return -g, min(1.0, 1.0 / float(np.abs(g).sum())) * lr
        y, s = g - kept["slope"], kept["direction"] * numbers[0]
        product = float(y @ s)
        if product > 1e-10:
            for name, new in zip(_PAST, (y, s, 1.0 / product), strict=True):
                kept[name] = [*kept[name], new][-self.param_groups[0]["history_size"] :]
            numbers[1] = product / float(y @ y)
        q, past, weights = -g, list(zip(*[kept[name] for name in _PAST], strict=True)), []
        for y, s, r in reversed(past):
            weights.append(float(s @ q) * r)
            q = q - weights[-1] * y
        q = q * numbers[1]
        for (y, s, r), weight in zip(past, reversed(weights), strict=True):
            q = q + s * (weight - float(y @ q) * r)
        return q, lr

    def _memory(self) -> dict[str, Tensor]:
        there = self._kept if len(self._kept["direction"]) else {}
        return {f"group.0.{n}": Tensor(np.array(v), device="cpu") for n, v in there.items() if len(v)}

    def state_dict(self) -> dict[str, Tensor]:
        """The state, as `Optimizer.state_dict` gives it. Its `["state"]` has torch's names, without torch's counts of
        calls.
        """
        out = super().state_dict()
        if "group.0.direction" in out and isinstance(out, Saved):
            out.states = lambda: {0: _as_torchs(out)}
        return out

    def _from_torch(self, i: int, name: str, array: Any) -> dict[str, Any]:
        mine = _TORCHS.get(name, name)
        return {f"group.0.{mine}": array} if mine in (*self._kept, *_NUMBERS) else {}

    def _load(self, flat: Mapping[str, Any]) -> None:
        kept = _begun()
        names, size = (*kept, *_NUMBERS), self._place().size
        own = {n.removeprefix("group.0."): v for n, v in flat.items()}
        found = {n: np.array(array_of(own[n]), np.float64) for n in names if own.get(n) is not None}
        super()._load({n: v for n, v in flat.items() if n.removeprefix("group.0.") not in names})
        if wrong := [n for n in ("direction", "slope") if found.get(n, np.zeros(size)).shape != (size,)]:
            raise DataError(f"load_state_dict: {wrong[0]} is of {found[wrong[0]].size} elements, not {size}")
        numbers = found.get("numbers", [found.get(n) for n in _NUMBERS])
        if "direction" in found and all(n is not None for n in numbers):
            kept |= {"direction": found["direction"], "slope": found["slope"], "numbers": [*map(float, numbers)]}
        self._kept = kept | {n: list(found[n]) for n in _PAST if n in found}

    def _at(self, closure: Callable[[], Any], place: Vector, d: Vector, t: float) -> Point:
        """The `Point` at a distance along a direction."""
        self._move(place + t * d)
        loss, g = float(with_gradients(closure)), self._slope()
        self._move(place)
        return Point(t, loss, g, float(g @ d))

    def _place(self) -> Vector:
        return np.concatenate([t.detach().numpy().reshape(-1).astype(np.float64) for t in self.params])

    def _slope(self) -> Vector:
        slopes = [np.zeros(t.numel()) if t.grad is None else t.grad.detach().numpy().reshape(-1) for t in self.params]
        return np.concatenate([s.astype(np.float64) for s in slopes])

    def _move(self, place: Vector) -> None:
        at = 0
        for t in self.params:
            part = place[at : at + t.numel()].reshape(t.shape)
            t.assign(Tensor(part, dtype=t.dtype, device=t.device))
            at += t.numel()


# The entries of the state by torch's names, each with its name in files: the last direction and gradient; the changes
# of the gradient and of the parameters, and 1 over their product. "numbers" are the last length, the scale of a
# direction, and the count of directions.
_TORCHS = {"d": "direction", "prev_flat_grad": "slope", "old_dirs": "slopes", "old_stps": "moves", "ro": "shares"}
_PAST, _NUMBERS = ("slopes", "moves", "shares"), ("t", "H_diag", "n_iter")


def _begun() -> dict[str, Any]:
    return {"direction": (), "slope": (), "numbers": [0.0, 1.0, 0], **dict.fromkeys(_PAST, ())}


def _as_torchs(out: Mapping[str, Tensor]) -> dict[str, Any]:
    """The memory in a state as torch has it: the numbers alone, and histories as lists."""
    length, scale, directions = out["group.0.numbers"].tolist()
    found = {"n_iter": int(directions), "t": length, "H_diag": Tensor(scale, dtype=dtypes.float64)}
    given = {name: out.get(f"group.0.{mine}", ()) for name, mine in _TORCHS.items()}
    return found | {name: list(v) if _TORCHS[name] in _PAST else v for name, v in given.items()}


# -- a line search for strong Wolfe conditions, with cubic interpolation (Nocedal and Wright, 2006, section 3.5)

_LOWER, _FLATTER = 1e-4, 0.9  # the conditions: how much of the first slope the loss falls by, and the slope is at most
_LEAST = 1e-9  # the change of an element from which on an interval is made smaller


class Point(NamedTuple):
    """A place along a direction: its distance, and the loss, its gradient and its slope there."""

    t: float
    loss: float
    grad: Vector
    slope: float


def _cubic(a: Point, b: Point, low: float, high: float) -> float:
    """The least place from `low` to `high` of the cubic through two points with slopes, of which `a` comes first."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    place = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(place, low), high)


def strong_wolfe(at: Callable[[float], Point], first: Point, t: float, d: Vector, most: int) -> tuple[Point, int]:
    """A point along the direction `d` that meets the conditions, or the best after `most` looks, and how often `at` was
    called, with `t` at first.
    """

    def high_at(p: Point) -> bool:
        return p.loss > first.loss + _LOWER * p.t * first.slope

    flat, largest = -_FLATTER * first.slope, float(np.abs(d).max())
    before, now = first, at(t)
    for n in range(most):
        too_high = high_at(now) or (n > 1 and now.loss >= before.loss)
        if not too_high and abs(now.slope) <= flat:
            return now, n + 1
        if too_high or now.slope >= 0:
            break
        place = _cubic(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10)
        before, now = now, at(place)
    else:
        n, before = most, first
    # an interval that is made smaller until the conditions hold
    low, high = sorted((before, now), key=lambda p: p.loss)
    calls, slow = n + 1, False
    for _ in range(most - n):
        if abs(low.t - high.t) < (_LEAST / largest if largest else _LEAST):
            break
        a, b = sorted((low, high), key=lambda p: p.t)
        t, margin = _cubic(a, b, a.t, b.t), 0.1 * (b.t - a.t)
        near = min(b.t - t, t - a.t) < margin
        if near and (slow or not a.t < t < b.t):
            t = b.t - margin if abs(t - b.t) < abs(t - a.t) else a.t + margin
            near = False
        slow, now = near, at(t)
        calls += 1
        if high_at(now) or now.loss >= low.loss:
            low, high = sorted((low, now), key=lambda p: p.loss)
            continue
        high = low if now.slope * (high.t - low.t) >= 0 else high
        low = now
        if abs(now.slope) <= flat:
            break
    return low, calls


# -- an optimiser whose state is spread over the processes that train together (ZeRO-1 and 2) -------------------------


# Optimisers whose updates treat each element by itself: they can update parts of parameters.
_ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")


class _Shard:
    """This rank's part of some parameters of one group, laid out one after another and padded to equal parts."""

    def __init__(self, params: list[Tensor], group: Group) -> None:
        self.params = params
        self.size = -(-sum([p.numel() for p in params]) // group.size)
        self.first, self.ranks = group.rank * self.size, group.size
        # the tensor that the inner optimiser trains: its state is the optimiser's, its values are the parameters'
        self.part = Tensor(self.of(params).numpy(), device=params[0].device, requires_grad=True)

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """This rank's part of tensors like the parameters, shape (size,)."""
        parts, begin = [], 0
        for t in tensors:
            low, high = max(self.first - begin, 0), min(self.first + self.size - begin, t.numel())
            if low < high:
                parts.append(t.detach().reshape(-1)[low:high])
            begin += t.numel()
        return _padded(parts, self.size, tensors[0])

    def whole(self, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients one after another, padded: shape (ranks * size,)."""
        return _padded([g.detach().reshape(-1) for g in gradients], self.ranks * self.size, gradients[0])

    def parts_of(self, whole: Tensor) -> list[Tensor]:
        """The parameters' new values out of all ranks' parts, (ranks, size)."""
        flat, begin, found = whole.reshape(-1), 0, []
        for p in self.params:
            found.append(flat[begin : begin + p.numel()].reshape(p.shape).contiguous())  # memory of its own
            begin += p.numel()
        return found


def _padded(parts: list[Tensor], size: int, like: Tensor) -> Tensor:
    """Parts one after another, with zeros behind them up to a size."""
    if missing := size - sum([p.numel() for p in parts]):
        parts = [*parts, Tensor.zeros(missing, dtype=like.dtype, device=like.device)]
    return parts[0] if len(parts) == 1 else Tensor.cat(parts)


class ZeroRedundancyOptimizer(Optimizer):
    """An optimiser of `optimizer_class` whose state each process keeps for its part of the parameters alone.

    `step()` takes gradients of each process's own part of the batch: it adds them up so that each process gets its part
    of the mean, updates that, and gathers the new parameters. Alone it is the optimiser itself, in other words.

    Args:
        params: tensors, or groups of them, as for any optimiser. optimizer_class: one that treats each element by
            itself: SGD, Adam, AdamW, ... clip: the largest norm that the mean gradients may have together.
        group: this participant's view of the group; None: all processes. defaults: settings of the optimiser.
        bucket: bytes of parameters that are exchanged together.
        keep_gradients: False drops them once they are added up, so that none is kept beside the update (ZeRO-2).

    Raises SettingError for a class whose update needs whole parameters, GradientError where one has no gradient.

    >>> from anneal.optim import AdamW
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = ZeroRedundancyOptimizer([w], AdamW, lr=0.1, weight_decay=0.0)
    >>> (w * w).sum().backward(); optimizer.step(); w
    Tensor([0.9, 1.9], dtype=float32, requires_grad=True)
    """

    def __init__(
        self, params: Parameters, optimizer_class: type[Optimizer], group: Group | None = None, *,
        clip: float | None = None, keep_gradients: bool = False, bucket: int = 4 << 20, **defaults: Any,
    ) -> None:  # fmt: skip
        if getattr(optimizer_class, "__name__", "") not in _ELEMENTWISE:
            raise SettingError(
                f"ZeroRedundancyOptimizer: takes an optimiser that treats each element by itself "
                f"({', '.join(_ELEMENTWISE)}), not {said(optimizer_class)}"
            )
        self.group = world() if group is None else group
        self.clip, self.keep_gradients = clip, keep_gradients
        whole: Any = optimizer_class(params, **defaults)
        self._whole: list[Tensor] = whole.params
        self._sizes: list[int] = whole._counts()
        self.defaults = whole.defaults
        self.shards: list[_Shard] = []
        groups = []
        for g in whole.param_groups:
            mine = [
                _Shard([g["params"][n] for n in part], self.group)
                for kind in dict.fromkeys([p.dtype for p in g["params"]])
                for part in _same(g["params"], kind, bucket)
            ]
            self.shards += mine
            groups.append({**g, "params": [s.part for s in mine]})
        self.optimizer = optimizer_class(groups, **defaults)
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state

    @property
    def params(self) -> list[Tensor]:
        """The parameters, of which the groups have parts."""
        return self._whole

    def step(self, *results: Any, reduce: Any = None) -> None:  # type: ignore[override]  # no closure
        """Update every parameter by the mean of the gradients, and compute, with `results`. `reduce` is not taken."""
        if reduce is not None:
            raise GradientError("ZeroRedundancyOptimizer: it adds the gradients up itself, and takes no reduce=")
        with no_grad():
            for s in self.shards:
                gradients = [p.grad for p in s.params if p.grad is not None]
                if len(gradients) < len(s.params):
                    raise GradientError("ZeroRedundancyOptimizer: a parameter has no gradient")
                s.part.grad = reduce_scatter(s.whole(gradients), self.group, "mean")
            if self.clip is not None:
                clip_parts([s.part for s in self.shards], self.clip, self.group)
            for s in self.shards:
                s.part._become(s.of(s.params).uop)
            with update_phase():
                done = self.optimizer._updated()
            new: dict[Tensor, UOp] = {}
            for s in self.shards:
                own = Tensor._from_uop(done.pop(s.part), s.part.device)
                made = s.parts_of(all_gather(own, self.group))
                new |= {p: t.uop for p, t in zip(s.params, made, strict=True)}
            for t, u in {**done, **new}.items():
                t._become(u)
            for s in self.shards:  # it must not hold the memory of the old parameters
                s.part._become(Tensor.zeros(s.size, dtype=s.part.dtype, device=s.part.device).uop)
                s.part.grad = None
            if not self.keep_gradients:
                self.zero_grad()
            realize([*results, *take_results(), *done, *new])

    def _memory(self) -> dict[str, Tensor]:
        """The state of the parameters as the optimiser of one process has it: every process calls this, and gets all of
        it.
        """
        numbers = {p: n for n, p in enumerate(self.params)}
        out: dict[str, Tensor] = {}
        for s in self.shards:
            for name, mine in self.state.get(s.part, {}).items():
                whole = s.parts_of(all_gather(mine, self.group)) if mine.shape == (s.size,) else [mine] * len(s.params)
                out |= {f"{numbers[p]}.{name}": t for p, t in zip(s.params, whole, strict=True)}
        realize(list(out.values()))
        return out

    def _counts(self) -> list[int]:
        return self._sizes

    def _from_torch(self, i: int, name: str, array: Any) -> dict[str, Any]:
        return self.optimizer._from_torch(i, name, array)

    def _load(self, flat: Mapping[str, Any]) -> None:
        """Take over the state of an optimiser of one process, or of this class with any number of processes."""
        numbers = {p: n for n, p in enumerate(self.params)}
        mine = {key: value for key, value in flat.items() if key.startswith("group.")}
        for k, s in enumerate(self.shards):
            of = [numbers[p] for p in s.params]
            for name in [key.partition(".")[2] for key in flat if key.startswith(f"{of[0]}.")]:
                given = [flat.get(f"{n}.{name}") for n in of]
                whole = [t if isinstance(t, Tensor) else Tensor(t) for t in given if t is not None]
                like = [t.shape for t in whole] == [p.shape for p in s.params]
                if not like and any(t.numel() > 1 for t in whole):
                    raise DataError(f"load_state_dict: {name} of parameters {of} has other shapes than these")
                mine[f"{k}.{name}"] = s.of(whole) if like else whole[0]
        self.optimizer._load(mine)


def _same(tensors: Sequence[Tensor], kind: Any, nbytes: int) -> list[list[int]]:
    """The numbers of tensors of one dtype, which are exchanged together."""
    numbers = [n for n, t in enumerate(tensors) if t.dtype is kind]
    return [[numbers[k] for k in part] for part in buckets([tensors[n] for n in numbers], nbytes)]
