"""An optimiser whose state is spread over the processes that train together (ZeRO-1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anneal.distributed import Group, all_gather, buckets, clip_parts, reduce_scatter, world
from anneal.errors import DataError, GradientError, SettingError
from anneal.ops import said
from anneal.optim._base import Optimizer, Parameters, update_phase
from anneal.runtime import realize
from anneal.tensor import Tensor, no_grad
from anneal.transforms import take_results
from anneal.uop import UOp

__all__ = ["ZeroRedundancyOptimizer"]

# Their updates treat each element by itself, so that a part of a parameter is updated as it is within the whole.
_ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")


class _Shard:
    """This rank's part of some parameters of one group, laid out one after another and padded to equal parts."""

    def __init__(self, params: list[Tensor], group: Group) -> None:
        self.params = params
        self.count = sum([p.numel() for p in params])
        self.size = -(-self.count // group.size)
        self.first, self.ranks = group.rank * self.size, group.size
        # what the inner optimiser trains: its state is kept by it, its values are the parameters' own
        self.part = Tensor(self.of(params).numpy(), device=params[0].device, requires_grad=True)

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """This rank's part of tensors like the parameters, shape (size,)."""
        parts, begin = [], 0
        for t in tensors:
            low, high = max(self.first - begin, 0), min(self.first + self.size - begin, t.numel())
            if low < high:
                parts.append(t.detach().reshape(-1)[low:high])
            begin += t.numel()
        if (missing := self.size - sum([p.numel() for p in parts])) > 0:
            parts.append(Tensor.zeros(missing, dtype=tensors[0].dtype, device=tensors[0].device))
        return parts[0] if len(parts) == 1 else Tensor.cat(parts)

    def whole(self, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients one after another, padded: shape (ranks * size,)."""
        flat = [g.detach().reshape(-1) for g in gradients]
        if missing := self.ranks * self.size - self.count:
            flat.append(Tensor.zeros(missing, dtype=flat[0].dtype, device=flat[0].device))
        return flat[0] if len(flat) == 1 else Tensor.cat(flat)

    def parts_of(self, whole: Tensor) -> list[Tensor]:
        """The parameters' new values out of all ranks' parts, (ranks, size)."""
        flat, begin, found = whole.reshape(-1), 0, []
        for p in self.params:
            found.append(flat[begin : begin + p.numel()].reshape(p.shape).contiguous())  # memory of its own
            begin += p.numel()
        return found


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
        self.params, self.defaults = whole.params, whole.defaults
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
            for s in self.shards:  # it shows no memory, which would be the old parameters'
                s.part._become(Tensor.zeros(s.size, dtype=s.part.dtype, device=s.part.device).uop)
                s.part.grad = None
            if not self.keep_gradients:
                self.zero_grad()
            realize([*results, *take_results(), *done, *new])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for t in self.params:
            t.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """The state as the optimiser of one process has it: every process calls this, and gets all of it."""
        numbers = {id(p): n for n, p in enumerate(self.params)}
        out: dict[str, Tensor] = {}
        for s in self.shards:
            for name, mine in self.state.get(id(s.part), {}).items():
                whole = s.parts_of(all_gather(mine, self.group)) if mine.shape == (s.size,) else [mine] * len(s.params)
                out |= {f"{numbers[id(p)]}.{name}": t for p, t in zip(s.params, whole, strict=True)}
        for i, g in enumerate(self.param_groups):
            out[f"group.{i}.lr"] = g.rate
            out |= {f"group.{i}.{name}": t for name, t in self.state.get(id(g), {}).items()}
        realize(list(out.values()))
        return out

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state of an optimiser of one process, or of this class with any number of processes.

        Raises DataError for a name or shape that does not fit.
        """
        flat = self.optimizer._flat(state)
        numbers = {id(p): n for n, p in enumerate(self.params)}
        groups = {key: value for key, value in flat.items() if key.startswith("group.")}
        self.optimizer.load_state_dict(groups)
        for s in self.shards:
            of = [numbers[id(p)] for p in s.params]
            for name in dict.fromkeys([key.partition(".")[2] for key in flat if key.partition(".")[0] == str(of[0])]):
                given = [flat.get(f"{n}.{name}") for n in of]
                whole = [t if isinstance(t, Tensor) else Tensor(t) for t in given if t is not None]
                if [t.shape for t in whole] != [p.shape for p in s.params] and any(t.ndim for t in whole):
                    raise DataError(f"load_state_dict: {name} of parameters {of} has other shapes than these")
                mine = s.of(whole) if whole[0].shape == s.params[0].shape else whole[0]
                self.optimizer._state(s.part, name).assign(mine)


def _same(tensors: Sequence[Tensor], kind: Any, nbytes: int) -> list[list[int]]:
    """Numbers of the tensors of one dtype that are exchanged together."""
    numbers = [n for n, t in enumerate(tensors) if t.dtype is kind]
    return [[numbers[k] for k in part] for part in buckets([tensors[n] for n in numbers], nbytes)]
