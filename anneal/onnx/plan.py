"""Runs of a model for one set of input shapes: traced once, captured, then replayed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import JitError, OutOfMemoryError
from anneal.onnx.execute import HostStep, Memo, NeedsHostError, Run, leaves
from anneal.onnx.types import fits_device
from anneal.tensor import Tensor, jit, no_grad, realize

if TYPE_CHECKING:
    from anneal.onnx.model import Model

__all__ = ["Plan", "signature"]

_SMALL = 64  # elements of an input that is known on the host: beyond that its values are no part of what a plan is for


class _Place(int):
    """A tensor of a run, by its place among the arguments or the results."""


class _StillError(Exception):
    """A run has no result that is not fixed: there is nothing to capture."""


class Plan:
    """How a model runs for inputs of one signature.

    Tensors are the arguments of a jit function; all other inputs are fixed, and so are the results that follow from
    them. Where values are needed on the host in the middle (`steps` tells where), nodes run one after the other
    instead, and only what is fixed is kept.
    """

    def __init__(self, model: Model, feeds: dict[str, Any], fixed: bool) -> None:
        self.model = model
        self.memo = Memo()
        self.steps: tuple[HostStep, ...] = ()
        self.dynamic = not fixed
        self._tried = 0  # how often a run that was to be device work alone was not
        self._still = False  # whether all results are fixed
        self._results: Any = None  # the results of a run, with places for tensors
        self._feeds = split(feeds, [], True) if fixed else None  # host values are kept: they are fixed
        if fixed:
            for value in feeds.values():
                self.memo.fix([v for v in leaves(value) if not isinstance(v, Tensor)])
        self._program = jit(self._traced)
        self.elements = sum(math.prod(v.shape) for x in feeds.values() for v in leaves(x))

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """The results for inputs of this plan's signature."""
        try:
            return self._run(feeds)
        except MemoryError as e:
            if isinstance(e, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a run of the model takes more memory than there is: {e}") from e

    def _run(self, feeds: dict[str, Any]) -> list[Any]:
        if not self.dynamic:
            tensors: list[Tensor] = []
            split(feeds, tensors, False)
            try:
                return self._joined(() if self._still else self._program(*tensors))
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
            return self._eager(feeds)

    def close(self) -> None:
        """Give back the memory of captures."""
        self._program.reset()

    def _joined(self, tensors: Any) -> list[Any]:
        return [joined(r, tensors) for r in self._results]

    def _traced(self, *tensors: Tensor) -> Any:
        """One run that reads nothing: its tensors that are not fixed."""
        assert self._feeds is not None
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.elements, reads=False)
        with no_grad():
            results = run.main(self.model.program.graph, joined(self._feeds, tensors))
            results = [self._given(run, r) for r in results]
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        out: list[Tensor] = []
        self._results = split(results, out, True, run)
        if not out:
            raise _StillError
        return tuple(out)

    def _eager(self, feeds: dict[str, Any]) -> list[Any]:
        """One run as it comes, with values read in the middle."""
        run = self.model.start(self.memo, self.elements)
        with no_grad():
            results = self._walked(run, feeds)
            realize([t for t in leaves(results) if isinstance(t, Tensor)] + list(self.memo.used.values()))
        self.steps = tuple(run.steps) or self.steps
        if self._feeds is not None and not run.steps and self._tried == 1:
            self.dynamic = False  # what was read is fixed, and is known now
        return results

    def lazy(self, feeds: dict[str, Any], watch: Any = None) -> list[Any]:
        """The results of one run, which are yet to be computed."""
        return self._walked(self.model.start(self.memo, self.elements, watch=watch), feeds)

    def _walked(self, run: Run, feeds: dict[str, Any]) -> list[Any]:
        if self._feeds is not None:  # the arrays that are fixed
            tensors: list[Tensor] = []
            split(feeds, tensors, False)
            feeds = joined(self._feeds, tensors)
        else:
            for value in feeds.values():
                for v in leaves(value):
                    if not isinstance(v, Tensor):
                        run.loose[id(v)] = v
        return [self._given(run, r) for r in run.main(self.model.program.graph, feeds)]

    def _given(self, run: Run, result: Any) -> Any:
        """A result as the caller gets it: on the device, if that can hold it."""
        if isinstance(result, list):
            return [self._given(run, r) for r in result]
        if isinstance(result, np.ndarray) and fits_device(result.dtype):
            return run.lift(None, result)
        return result


def split(value: Any, tensors: list[Tensor], keep: bool, run: Run | None = None) -> Any:
    """`value` with a place for each tensor, which is put into `tensors`; fixed tensors of `run` stay.

    Without `keep` the rest is not copied, and nothing is given.
    """
    if isinstance(value, dict):
        return {k: split(v, tensors, keep, run) for k, v in value.items()}
    if isinstance(value, list):
        return [split(v, tensors, keep, run) for v in value]
    if isinstance(value, Tensor) and (run is None or not run.is_fixed(value)):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    return value if keep else None


def joined(value: Any, tensors: Any) -> Any:
    """What `split` took apart, with these tensors."""
    if isinstance(value, dict):
        return {k: joined(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [joined(v, tensors) for v in value]
    return tensors[value] if isinstance(value, _Place) else value


def signature(feeds: dict[str, Any]) -> tuple[Any, bool]:
    """What a plan is made for: shapes and dtypes of tensors, and the values of what is on the host; and whether all of
    that is small enough to be part of it.
    """
    parts = []
    small = True
    for name, value in feeds.items():
        part, fits = _part(value)
        parts.append((name, part))
        small &= fits
    return (tuple(parts), small), small


def _part(value: Any) -> tuple[Any, bool]:
    if isinstance(value, list):
        parts = [_part(v) for v in value]
        return tuple([p for p, _ in parts]), all(fits for _, fits in parts)
    if value is None:
        return None, True
    if isinstance(value, Tensor):
        return (value.shape, value.dtype), True
    if value.size > _SMALL:
        return (value.dtype.name, value.shape), False
    return (
        value.dtype.name,
        value.shape,
        tuple(value.ravel().tolist()) if value.dtype.kind == "O" else value.tobytes(),
    ), True
