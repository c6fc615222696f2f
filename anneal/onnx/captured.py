"""A graph for values of one signature: traced in its first run, captured in the second, then replayed.

Sizes among the shapes may be Variables: then one capture serves all their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anneal.errors import AnnealError, OutOfMemoryError
from anneal.onnx.execute import GraphRun
from anneal.onnx.graph import Graph
from anneal.onnx.loaded import LoadedModel, exact, roomy
from anneal.onnx.values import Map, Memo, NeedsHostError, Sizes, fits_device, leaves
from anneal.tensor import Tensor, jit, no_grad, realize
from anneal.uop import UOp
from anneal.uop.sizes import evaluator, mapped, product, symbolic_arg, unbound, variables_of

_SMALL = 16  # whole numbers that an input has whose values are part of what a plan is for: a shape, pads, a count


class _Place(int):
    """A value that each run brings, by its place among the arguments or the results."""


class _StillError(Exception):
    """A run has no result that is not fixed: there is nothing to capture."""


class UnsizedError(Exception):
    """A node cannot take a symbolic size, so one capture does not serve all; the text says which node, and why."""


class Captured:
    """A graph as a jit function, for inputs of one signature.

    Args:
        model: whose graph it is.
        graph: the graph, or a part of one.
        feeds: its inputs by name. Tensors come with each run; small whole numbers on the host are part of what it is
            for.
        shapes: shapes of inputs in which sizes are Variables.
        fixed: further inputs, which follow from the file alone.
        key: what tells the graph's nodes from those of others, where results of nodes are kept.
        inner: results stay as they are: they go on to other nodes.
    """

    def __init__(
        self,
        model: LoadedModel,
        graph: Graph,
        feeds: dict[str, Any],
        shapes: Mapping[str, Any] | None = None,
        *,
        fixed: Mapping[str, Any] | None = None,
        key: tuple[Any, ...] = (),
        inner: bool = False,
    ) -> None:
        self.model = model
        self.memo = Memo()
        self._graph = graph
        self._key = key
        self._inner = inner
        self._fixed = dict(fixed or {})
        self._tried = False  # whether what is fixed and has to be read was read
        self._still = False  # whether all results are fixed
        self._results: Any = None  # the results of a run, with places for tensors
        self._shapes: list[Any] = []  # those of results with symbolic sizes, else None, by place
        given: list[Any] = []
        self._feeds = split(feeds, given, is_given)
        symbolic = {name: shape for name, shape in (shapes or {}).items() if symbolic_arg(shape)}
        self._taken = {self._feeds[name]: shape for name, shape in symbolic.items()}  # by place
        self.variables = tuple({v.arg[0]: v for x in symbolic.values() for n in x for v in variables_of(n)}.values())
        self._served = 0  # runs with Variables
        for value in self._feeds.values():
            self.memo.fix([v for v in leaves(value) if isinstance(v, np.ndarray)])
        self._program = jit(self._traced)
        self.elements = sum(math.prod(v.shape) for x in feeds.values() for v in leaves(x))

    def run(self, given: list[Any]) -> list[Any]:
        """The results for tensors in the order in which `split` takes them from feeds.

        Raises NeedsHostError where a node needs values on the host, UnsizedError where a node cannot take a symbolic
        size, and JitError for a node that does what cannot be replayed.
        """
        values: dict[str, int] = {}
        for place, shape in self._taken.items():
            values.update((v.arg[0], n) for v, n in zip(shape, given[place].shape) if isinstance(v, UOp))
        sizes = tuple([v.bind(values[v.arg[0]]) for v in self.variables])
        rows = [roomy(t, self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(given)]
        try:
            out = self._called(sizes, rows)
        except OutOfMemoryError:
            raise
        except (AnnealError, NeedsHostError) as e:
            if not self.variables or self._served > 1:
                raise
            if isinstance(e, NeedsHostError):
                self._check_plain(given)
            raise UnsizedError(f"{e} needs values on the host" if isinstance(e, NeedsHostError) else str(e)) from e
        self._served += 1
        shapes = [None if s is None else evaluator(s)(values) for s in self._shapes]
        return self._joined([t if s is None else exact(t, s) for t, s in zip(out, shapes)], values)

    def again(self, arrays: list[Any]) -> list[Any] | None:
        """The results for arrays in place of tensors, where the last run was a replay for as many of those shapes; None
        where they have to be tensors."""
        out = None if self.variables else self._program.again(arrays)
        return None if out is None else self._joined(out, {})

    def close(self) -> None:
        """Give back the memory of captures."""
        self._program.reset()

    def walked(self, run: GraphRun, given: Any) -> list[Any]:
        """The results of a run that goes through the nodes."""
        for value in given:
            if not isinstance(value, Tensor):
                run.loose[id(value)] = value
        feeds = {**joined(self._feeds, given), **self._fixed}
        return [self._given(run, r) for r in run.main(self._graph, feeds, self._key)]

    def _called(self, sizes: tuple[UOp, ...], rows: list[Tensor]) -> Any:
        try:
            return () if self._still else self._program(sizes, *rows)
        except _StillError:
            self._still = True
            return ()
        except NeedsHostError:
            if self._tried:
                raise
        with self.model.lock, no_grad():
            self._tried = True
            run = self.model.start(self.memo, self.elements, reads="fixed")
            self.walked(run, self._sized(sizes, rows))  # what it reads is fixed, and is known from now on
        return self._called(sizes, rows)

    def _check_plain(self, given: list[Any]) -> None:
        """Raises NeedsHostError if values are wanted on the host without Variables, too."""
        with self.model.lock, no_grad():
            self.walked(self.model.start(Memo(), self.elements, reads="fixed"), given)

    def _sized(self, sizes: tuple[UOp, ...], tensors: Any) -> list[Tensor]:
        """The arguments of a run as the graph's inputs: those with symbolic sizes come as rows."""
        return [t.reshape(self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(tensors)]

    def _now(self, place: int, sizes: tuple[UOp, ...]) -> tuple[Any, ...]:
        """The shape of an argument with the sizes of this run."""
        now = {v.arg[0]: n for v, n in zip(self.variables, sizes)}
        return tuple([now[d.arg[0]] if isinstance(d, UOp) else d for d in self._taken[place]])

    def _joined(self, tensors: Any, values: Mapping[str, int]) -> list[Any]:
        results = joined(self._results, tensors)
        return [_known(r, values) for r in results] if self._inner else [own(r) for r in results]

    def _traced(self, sizes: tuple[UOp, ...], *tensors: Tensor) -> Any:
        """The tensors of one run that reads nothing, without the fixed ones."""
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.elements, reads=False)
        with no_grad():
            results = self.walked(run, self._sized(sizes, tensors))
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        out: list[Tensor] = []
        self._results = split(results, out, lambda v: isinstance(v, Tensor) and not run.is_fixed(v))
        if not out:
            raise _StillError
        shapes = [mapped(t.shape, lambda n: unbound(n, {})) if symbolic_arg(t.shape) else None for t in out]
        self._shapes = shapes
        return tuple([t if s is None else t.reshape(product(t.shape)) for t, s in zip(out, shapes)])

    def _given(self, run: GraphRun, result: Any) -> Any:
        """A result as who takes it wants it: the caller on the device, if that can hold it; other nodes as it is."""
        if isinstance(result, list):
            return [self._given(run, r) for r in result]
        if self._inner:
            return result
        if isinstance(result, Sizes) or (isinstance(result, np.ndarray) and fits_device(result.dtype)):
            return run.lift(None, result)
        return result


def _known(value: Any, values: Mapping[str, int]) -> Any:
    """A result with the numbers of this run in place of sizes."""
    if isinstance(value, list):
        return [_known(v, values) for v in value]
    if not isinstance(value, Sizes):
        return value
    flat = mapped(tuple(value.items.reshape(-1)), lambda n: unbound(n, {}))
    return np.array(evaluator(flat)(values), value.dtype).reshape(value.shape)


def own(value: Any) -> Any:
    """A result as tensors and arrays of the caller's own: in-place changes of them affect nothing else."""
    if isinstance(value, list):
        return [own(v) for v in value]
    if isinstance(value, Map):
        return dict(value.entries)
    if isinstance(value, Tensor) and not value.requires_grad:
        return Tensor._from_uop(value.uop, value.device)
    return value.copy() if isinstance(value, np.ndarray) else value


def split(value: Any, out: list[Any], chosen: Callable[[Any], bool]) -> Any:
    """`value` with a place for each leaf that is chosen; those are put into `out`."""
    if isinstance(value, dict):
        return {k: split(v, out, chosen) for k, v in value.items()}
    if isinstance(value, list):
        return [split(v, out, chosen) for v in value]
    if value is not None and chosen(value):
        out.append(value)
        return _Place(len(out) - 1)
    return value


def joined(value: Any, given: Any) -> Any:
    """The value that `split` took apart, with these leaves."""
    if isinstance(value, dict):
        return {k: joined(v, given) for k, v in value.items()}
    if isinstance(value, list):
        return [joined(v, given) for v in value]
    return given[value] if isinstance(value, _Place) else value


def is_given(value: Any) -> bool:
    """True if a value is passed to each run, rather than fixed in its plan."""
    small = isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.ndim <= 1 and value.size <= _SMALL
    return not small


def signature(feeds: dict[str, Any], shapes: Mapping[str, Any] | None = None) -> Any:
    """The key of a plan: shapes and dtypes, and the values of small whole numbers that are on the host.

    `shapes` are those of inputs with Variables in them.
    """
    return tuple([(name, _part(value, (shapes or {}).get(name))) for name, value in feeds.items()])


def _part(value: Any, shape: Any = None) -> Any:
    if isinstance(value, list):
        return tuple([_part(v) for v in value])
    if value is None:
        return None
    if isinstance(value, Tensor):
        return value.shape if shape is None else shape, value.dtype
    return value.dtype.name, value.shape, None if is_given(value) else value.tobytes()
