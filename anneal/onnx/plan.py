"""Runs of a model for inputs of one signature: captured as a whole, or around the nodes that need the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anneal.errors import JitError, OutOfMemoryError
from anneal.onnx.captured import Captured, UnsizedError, is_given, own, signature, split
from anneal.onnx.execute import HostStep, Memo, NeedsHostError
from anneal.onnx.segments import Pieces
from anneal.onnx.values import leaves
from anneal.tensor import Tensor, no_grad, realize

if TYPE_CHECKING:
    from anneal.onnx.model import Model

__all__ = ["Plan", "UnsizedError", "signature"]


class Plan:
    """A plan that runs a model for inputs of one signature; `shapes` has a shape for each input, in which sizes are
    Variables.

    Tensors are the arguments of a jit function; small whole numbers that decide shapes are fixed, and so are results
    that follow from them alone. Where values are needed on the host in the middle (`steps` tells where), what is
    between those nodes is captured in pieces; so it is from the first run on where an input is an array that is not
    fixed.
    """

    def __init__(self, model: Model, feeds: dict[str, Any], shapes: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self.captured = Captured(model, model.program.graph, feeds, shapes)
        self.memo = self.captured.memo
        self.steps: tuple[HostStep, ...] = ()
        given: list[Any] = []
        split(feeds, given, is_given)
        self.dynamic = not all(isinstance(v, Tensor) for v in given)
        self._pieces = Pieces(model, shapes or {}, self.captured.elements)
        self._host = tuple(
            [
                HostStep(f"input {name!r}", "its values are needed on the host")
                for name, value in feeds.items()
                if any(is_given(v) and not isinstance(v, Tensor) for v in leaves(value))
            ]
        )

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """The results for inputs of this plan's signature."""
        given: list[Any] = []
        split(feeds, given, is_given)
        try:
            return self._run(given)
        except (MemoryError, SystemError) as e:  # NumPy's functions of C forget the error where they get no memory
            if isinstance(e, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a run of the model takes more memory than there is: {e}") from None

    def close(self) -> None:
        """Give back the memory of captures."""
        self.captured.close()
        self._pieces.close()

    def _run(self, given: list[Any]) -> list[Any]:
        if not self.dynamic:
            try:
                return self.captured.run(given)
            except NeedsHostError:
                self.dynamic = True
            except JitError as e:  # an operator does what cannot be replayed: it draws numbers, say
                self.dynamic = True
                self._host = (HostStep("the whole model", f"its runs cannot be replayed: {e}"),)
        with self.model.lock:
            return self._in_pieces(given)

    def _in_pieces(self, given: list[Any]) -> list[Any]:
        """A run in pieces, with values read between them."""
        # what is fixed for these inputs is not, where their sizes are Variables
        run = self.model.start(Memo() if self.captured.variables else self.memo, self.captured.elements)
        run.pieces = self._pieces
        run.keeps = True
        with no_grad():
            results = self.captured.walked(run, given)
            realize([t for t in leaves(results) if isinstance(t, Tensor)])
        self.steps = self._host + tuple(dict.fromkeys(run.steps)) or self.steps
        return [own(r) for r in results]

    def lazy(self, feeds: dict[str, Any], parameters: Any = None, watch: Any = None) -> list[Any]:
        """The results of one run, which are yet to be computed; `parameters` stand in place of initialisers."""
        given: list[Any] = []
        split(feeds, given, is_given)
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.captured.elements, training=parameters is not None, watch=watch)
        run.parameters = parameters or {}
        run.keeps = watch is not None  # who watches takes values, not graphs
        results = self.captured.walked(run, given)
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        return [own(r) for r in results]
