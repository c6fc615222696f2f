"""The loop of the inspecting child: a question on each line of stdin, an answer for each on stdout."""

from __future__ import annotations

import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from anneal import inspect
from anneal.backend import planned_cost_model
from anneal.errors import AnnealError, OnnxError, UserError
from anneal.frozen import Json
from anneal.inspect import StepGraph
from anneal.rewrite import Event, tracing
from anneal.schedule import graph as sink_of
from anneal.training import check_model, suggest
from anneal.web.asking import QUESTIONS

KEPT = 4  # models whose graphs are held
CONTEXT = 3  # lines of source before and after the user's


@lru_cache(KEPT)
def _traced(path: str, batch: int | None) -> tuple[StepGraph, list[Event]]:
    """The graph of a model, and the rules that fired while it was made."""
    with tracing() as fired:
        return inspect.traced_model(path, batch), fired


@lru_cache(2 * KEPT)
def _looked(path: str, batch: int | None, step: bool, device: str) -> inspect.Looked:
    """Answers about a model, of its whole step or the forward pass, on a device."""
    graph, fired = _traced(path, batch)
    sink, target = sink_of(graph.of(step)), inspect.c_target(device)
    return inspect.Looked(graph.model, sink, planned_cost_model(device), fired, target)


# Questions about a graph and its plan, of a model or of a recording: what `inspect.Looked` answers.
_LOOKED = {
    "graph": lambda looked, q: looked.graph(),
    "passes": lambda looked, q: looked.passes(q.get("kernel")),
    "pass": lambda looked, q: looked.one_pass(str(q.get("name")), q.get("kernel")),
    "kernels": lambda looked, q: looked.kernels(),
    "kernel": lambda looked, q: looked.kernel(int(q.get("kernel") or 0)),
}


class Answers:
    """Answers to questions about models, ops, files in `uploads`, and recordings of jobs."""

    def __init__(self, uploads: Path, jobs: Path) -> None:
        self.uploads, self.jobs = uploads, jobs

    def answer(self, question: Json) -> tuple[int, Any]:
        """An HTTP status and the answer: errors of the user are 4xx, with their message."""
        ask = question.get("ask")
        if ask not in QUESTIONS:
            return 404, {"error": f"there is no question {ask!r}"}
        try:
            if ask in _LOOKED:
                return 200, _LOOKED[ask](self._looked(question), question)
            return 200, getattr(self, ask)(question)
        except OnnxError as error:
            return 422, {"error": str(error), "gaps": [str(g) for g in error.gaps]}
        except UserError as error:
            return 422, {"error": str(error)}
        except AnnealError as error:
            return 500, {"error": f"compiler failure: {error}. This is a fault of anneal; please report it."}

    # -- models, and plans of recordings

    def firings(self, q: Json) -> Any:
        """The rules that fire while the model is built and compiled."""
        step, model = bool(q.get("step")), planned_cost_model(_device(q))
        path, batch = self._model(q), _batch(q)
        return inspect.firings(lambda: inspect.traced_model(path, batch).of(step), model, forward=not step)

    def source(self, q: Json) -> Any:
        """The user's line of a node, or of a kernel's line, with the lines around it."""
        file, number = str(q.get("file")), int(q.get("line") or 0)
        path = self._path(q)
        if path.endswith(".zip"):
            return inspect.KeptRecording(Path(path)).source(file, number, CONTEXT)
        graph, _ = _traced(self._model(q), _batch(q))
        if file not in {u.provenance[1].co_filename for u in graph.nodes if u.provenance[1] is not None}:
            raise UserError("no node of this graph comes from that file")
        try:
            lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
        first = max(0, number - 1 - CONTEXT)
        return {"file": file, "first": first + 1, "line": number, "lines": lines[first : number + CONTEXT]}

    def recording(self, q: Json) -> Any:
        """The summary of a script's recording: its end, and a line for each plan."""
        return inspect.KeptRecording(Path(self._path(q))).summary()

    def trace(self, q: Json) -> Any:
        """The times of a recorded plan's launches, as a trace for Perfetto."""
        found = self._looked(q).kernels()
        if found.get("times") is None:
            raise UserError("nothing was timed here; measure the times first")
        return inspect.plan_trace(found["model"], found)

    # -- ops

    def ops(self, _: Json) -> Any:
        """The names of ops and of Tensor methods."""
        return {"ops": list(inspect.ALL), "methods": inspect.tensor_methods()}

    def explain(self, q: Json) -> Any:
        """The rules of an op, or of the ops that a Tensor method builds, with an example."""
        name = str(q.get("op"))[:100]
        if name.upper() in inspect.ALL:
            name = name.upper()
            ops = [name]
        elif name.lower() in (methods := inspect.tensor_methods()):
            name = name.lower()
            example = inspect.example_of(name)
            ops = example.ops if example is not None else []
        else:
            raise suggest("op or Tensor method", name, [*inspect.ALL, *methods])
        return {
            "name": name,
            "kinds": inspect.KINDS,
            "ops": [{**inspect.plain(inspect.op_rules(op)), "batching": inspect.batching(op)} for op in ops],
            "example": inspect.worked(name, planned_cost_model(_device(q))),
        }

    # -- files

    def onnx(self, q: Json) -> Any:
        """The contents and the needs of an ONNX file, with every gap; its weights are not read."""
        from anneal.onnx import load

        return load(Path(self._path(q)), "cpu", structure_only=True).describe()

    def file(self, q: Json) -> Any:
        """The tensors of an uploaded file of weights or arrays."""
        return inspect.tensor_file(Path(self._path(q)))

    # -- the rest

    def _path(self, q: Json) -> str:
        """The example, or the file behind an upload's id, or the recording of a job."""
        model = str(q.get("model"))
        kind, _, name = model.partition(".")
        if kind not in ("upload", "job"):
            return model
        place = self.uploads / name if kind == "upload" else self.jobs / name / "recording.zip"
        if not name.replace(".", "").replace("-", "").isalnum() or not place.is_file():
            raise UserError(
                "this file is not here any more; drop it on the studio's first page again"
                if kind == "upload"
                else "this script has run no plan yet"
            )
        return str(place)

    def _model(self, q: Json) -> str:
        """The example, or the file of a model that was dropped."""
        path = self._path(q)
        if path == q.get("model"):
            check_model(path)
        elif not path.endswith(".onnx"):
            raise UserError(f"{path} is no model: it has no graph and no kernels")
        return path

    def _looked(self, q: Json) -> inspect.Looked | inspect.KeptPlan:
        path = self._path(q)
        if path.endswith(".zip"):
            return inspect.KeptRecording(Path(path)).plan(int(q.get("plan") or 0))
        return _looked(self._model(q), _batch(q), bool(q.get("step")), _device(q))


def _device(q: Json) -> str:
    return str(q.get("device") or "auto")


def _batch(q: Json) -> int | None:
    return int(q["batch"]) if q.get("batch") else None


def main() -> None:
    """Answer until stdin ends.

        {"ask": "kernels", "model": "nanogpt", "step": true, "device": "auto"}
        200 18347
        {"kernels": [...], ...}

    Records of `anneal/inspect` leave as JSON objects of their fields. `python -m anneal.web.answers UPLOADS JOBS` has
    the files that were uploaded in one folder, and those of jobs in the other.
    """
    answers = Answers(Path(sys.argv[1]), Path(sys.argv[2]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not be read as an answer
    for line in sys.stdin:
        status, value = answers.answer(json.loads(line))
        text = json.dumps(value, default=inspect.plain, separators=(",", ":")).encode()
        out.write(b"%d %d\n" % (status, len(text)) + text)
        out.flush()


if __name__ == "__main__":
    main()
