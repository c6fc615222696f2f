"""Runs of a model for one set of input shapes, in which there may be Variables: traced, captured, then replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import AnnealError, JitError, OutOfMemoryError
from anneal.onnx.bounds import exact, roomy
from anneal.onnx.execute import HostStep, Memo, NeedsHostError, Run
from anneal.onnx.sizes import Sizes
from anneal.onnx.types import fits_device
from anneal.onnx.values import leaves
from anneal.tensor import Tensor, jit, no_grad, realize
from anneal.uop import UOp
from anneal.uop.sizes import evaluator, mapped, product, symbolic_arg, unbound, variables_of

if TYPE_CHECKING:
    from anneal.onnx.model import Model

__all__ = ["Plan", "UnsizedError", "signature"]

_SMALL = 16  # whole numbers that an input has whose values are part of what a plan is for: a shape, pads, a count


class _Place(int):
    """A value that each run brings, by its place among the arguments or the results."""


class _StillError(Exception):
    """A run has no result that is not fixed: there is nothing to capture."""


class UnsizedError(Exception):
    """A node cannot take a symbolic size, so one plan does not serve all sizes; the text says which node, and why."""


class Plan:
    """How a model runs for inputs of one signature; `shapes` has a shape for each input, in which sizes are Variables.

    Tensors are the arguments of a jit function; small whole numbers that decide shapes are fixed, and so are results
    that follow from them alone. Where values are needed on the host in the middle (`steps` tells where), nodes run one
    after the other instead, and only what is fixed is kept; that is so from the first run on where an input is an array
    that is not fixed. A plan with Variables is captured, or it is none (UnsizedError).
    """

    def __init__(self, model: Model, feeds: dict[str, Any], shapes: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self.memo = Memo()
        self.steps: tuple[HostStep, ...] = ()
        self._tried = 0  # how often a run that was to be device work alone was not
        self._still = False  # whether all results are fixed
        self._results: Any = None  # the results of a run, with places for tensors
        self._shapes: list[Any] = []  # those of results with symbolic sizes, else None, by place
        given: list[Any] = []
        self._feeds = split(feeds, given, is_given)
        symbolic = {name: shape for name, shape in (shapes or {}).items() if symbolic_arg(shape)}
        self._taken = {self._feeds[name]: shape for name, shape in symbolic.items()}  # by place
        self.variables = tuple({v.arg[0]: v for x in symbolic.values() for n in x for v in variables_of(n)}.values())
        self._unsized = ""  # why it cannot be
        self._served = 0  # runs of a plan with Variables
        self.dynamic = not all(isinstance(v, Tensor) for v in given)
        self._host = tuple(
            [
                HostStep(f"input {name!r}", "its values are wanted on the host, so nodes run one after the other")
                for name, value in feeds.items()
                if any(is_given(v) and not isinstance(v, Tensor) for v in leaves(value))
            ]
        )
        for value in self._feeds.values():
            self.memo.fix([v for v in leaves(value) if isinstance(v, np.ndarray)])
        self._program = jit(self._traced)
        self.elements = sum(math.prod(v.shape) for x in feeds.values() for v in leaves(x))

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """The results for inputs of this plan's signature."""
        given: list[Any] = []
        split(feeds, given, is_given)
        try:
            return self._run(given)
        except MemoryError as e:
            if isinstance(e, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a run of the model takes more memory than there is: {e}") from e

    def _run(self, given: list[Any]) -> list[Any]:
        if self.variables:
            return self._run_of_sizes(given)
        if not self.dynamic:
            try:
                return self._joined(() if self._still else self._program((), *given))
            except _StillError:
                self._still = True
                return self._joined(())
            except NeedsHostError:
                self.dynamic = True
                self._tried += 1
            except JitError as e:  # an operator does what cannot be replayed: it draws numbers, say
                self.dynamic = True
                self._tried += 2
                self.steps = (HostStep("the whole model", f"its runs cannot be replayed: {e}"),)
        with self.model.lock:
            return self._eager(given)

    def _run_of_sizes(self, given: list[Any]) -> list[Any]:
        """One run of a plan with Variables: the sizes of this run are values that its kernels read."""
        if self.dynamic:
            raise UnsizedError(str(self._host[0]) if self._host else self._unsized)
        values: dict[str, int] = {}
        for place, shape in self._taken.items():
            values.update((v.arg[0], n) for v, n in zip(shape, given[place].shape) if isinstance(v, UOp))
        sizes = tuple([v.bind(values[v.arg[0]]) for v in self.variables])
        rows = [roomy(t, self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(given)]
        try:
            out = self._captured(sizes, rows)
        except (OutOfMemoryError, MemoryError):
            raise
        except (AnnealError, NeedsHostError) as e:
            if self._served > 1:
                raise
            self.dynamic = True
            self._unsized = f"{e} reads values on the host" if isinstance(e, NeedsHostError) else str(e)
            raise UnsizedError(self._unsized) from e
        self._served += 1
        shapes = [None if s is None else evaluator(s)(values) for s in self._shapes]
        return self._joined([t if s is None else exact(t, s) for t, s in zip(out, shapes)])

    def _captured(self, sizes: tuple[UOp, ...], rows: list[Tensor]) -> Any:
        try:
            return () if self._still else self._program(sizes, *rows)
        except _StillError:
            self._still = True
            return ()
        except NeedsHostError:
            if self._tried:
                raise
        self._tried += 1
        run = self.model.start(self.memo, self.elements, reads="fixed")
        with no_grad():
            self._walked(run, self._sized(sizes, rows))  # what it reads is fixed, and is known from now on
        return self._captured(sizes, rows)

    def _sized(self, sizes: tuple[UOp, ...], tensors: Any) -> list[Tensor]:
        """The arguments of a run as the graph's inputs: those with symbolic sizes come as rows."""
        return [t.reshape(self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(tensors)]

    def _now(self, place: int, sizes: tuple[UOp, ...]) -> tuple[Any, ...]:
        """The shape of an argument with the sizes of this run."""
        now = {v.arg[0]: n for v, n in zip(self.variables, sizes)}
        return tuple([now[d.arg[0]] if isinstance(d, UOp) else d for d in self._taken[place]])

    def close(self) -> None:
        """Give back the memory of captures."""
        self._program.reset()

    def _joined(self, tensors: Any) -> list[Any]:
        return [_own(joined(r, tensors)) for r in self._results]

    def _traced(self, sizes: tuple[UOp, ...], *tensors: Tensor) -> Any:
        """One run that reads nothing: its tensors that are not fixed."""
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.elements, reads=False)
        with no_grad():
            results = self._walked(run, self._sized(sizes, tensors))
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        out: list[Tensor] = []
        self._results = split(results, out, lambda v: isinstance(v, Tensor) and not run.is_fixed(v))
        if not out:
            raise _StillError
        shapes = [mapped(t.shape, lambda n: unbound(n, {})) if symbolic_arg(t.shape) else None for t in out]
        self._shapes = shapes
        return tuple([t if s is None else t.reshape(product(t.shape)) for t, s in zip(out, shapes)])

    def _eager(self, given: list[Any]) -> list[Any]:
        """One run as it comes, with values read in the middle."""
        run = self.model.start(self.memo, self.elements)
        with no_grad():
            results = self._walked(run, given)
            realize([t for t in leaves(results) if isinstance(t, Tensor)] + list(self.memo.used.values()))
        self.steps = self._host + tuple(run.steps) or self.steps
        if not run.steps and not run.loose and self._tried == 1:
            self.dynamic = False  # what was read is fixed, and is known now
        return [_own(r) for r in results]

    def lazy(self, feeds: dict[str, Any], parameters: Any = None, watch: Any = None) -> list[Any]:
        """The results of one run, which are yet to be computed; `parameters` stand in place of initialisers."""
        given: list[Any] = []
        split(feeds, given, is_given)
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.elements, training=parameters is not None, watch=watch)
        run.parameters = parameters or {}
        results = self._walked(run, given)
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        return [_own(r) for r in results]

    def _walked(self, run: Run, given: Any) -> list[Any]:
        """The results of a run that goes through the nodes."""
        for value in given:
            if not isinstance(value, Tensor):
                run.loose[id(value)] = value
        return [self._given(run, r) for r in run.main(self.model.program.graph, joined(self._feeds, given))]

    def _given(self, run: Run, result: Any) -> Any:
        """A result as the caller gets it: on the device, if that can hold it."""
        if isinstance(result, list):
            return [self._given(run, r) for r in result]
        if isinstance(result, Sizes) or (isinstance(result, np.ndarray) and fits_device(result.dtype)):
            return run.lift(None, result)
        return result


def _own(value: Any) -> Any:
    """A result as tensors and arrays of the caller's own: what is done to them in place is nobody else's."""
    if isinstance(value, list):
        return [_own(v) for v in value]
    if isinstance(value, Tensor) and not value.requires_grad:
        return value.detach()
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
    """What `split` took apart, with these leaves."""
    if isinstance(value, dict):
        return {k: joined(v, given) for k, v in value.items()}
    if isinstance(value, list):
        return [joined(v, given) for v in value]
    return given[value] if isinstance(value, _Place) else value


def is_given(value: Any) -> bool:
    """Whether a value comes with each run, and is no part of what a plan is for."""
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
