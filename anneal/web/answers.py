"""What the inspecting child runs: a question on each line of stdin, an answer for each on stdout.

    {"ask": "kernels", "model": "nanogpt", "step": true, "device": "auto"}
    200 18347
    {"kernels": [...], ...}

Records of `anneal/inspect` leave as JSON objects of their fields. `python -m anneal.web.answers FOLDER` has the files
that were uploaded in FOLDER.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anneal import inspect
from anneal.backend import planned_cost_model
from anneal.errors import AnnealError, OnnxError, UserError
from anneal.inspect import StepGraph
from anneal.rewrite import Event, tracing
from anneal.schedule import CostModel, Plan, plan_for
from anneal.schedule import graph as sink_of
from anneal.schedule import origins as origins_of
from anneal.training import suggest
from anneal.uop import UOp

__all__ = ["Answers", "main"]

KEPT = 4  # models whose graphs are held
CONTEXT = 3  # lines of source before and after the user's


@dataclasses.dataclass(slots=True)
class _Traced:
    """A model that was asked about."""

    graph: StepGraph
    fired: list[Event]
    sinks: dict[bool, UOp] = dataclasses.field(default_factory=dict)

    def sink(self, step: bool) -> UOp:
        if step not in self.sinks:
            self.sinks[step] = sink_of(self.graph.of(step))
        return self.sinks[step]


class Answers:
    """Answers to questions about models, ops and files in `uploads`."""

    def __init__(self, uploads: Path) -> None:
        self.uploads = uploads
        self._models: dict[str, _Traced] = {}
        self._known: dict[str, Callable[[dict[str, Any]], Any]] = {
            "graph": self.graph,
            "passes": self.passes,
            "pass": self.one_pass,
            "kernels": self.kernels,
            "kernel": self.kernel,
            "explain": self.explain,
            "ops": self.ops,
            "firings": self.firings,
            "onnx": self.onnx,
            "file": self.file,
            "source": self.source,
        }

    def answer(self, question: dict[str, Any]) -> tuple[int, Any]:
        """A status and what to say: errors of the user's are 4xx, with their message."""
        ask = self._known.get(str(question.get("ask")))
        if ask is None:
            return 404, {"error": f"there is no question {question.get('ask')!r}"}
        try:
            return 200, ask(question)
        except OnnxError as error:
            return 422, {"error": str(error), "gaps": [str(g) for g in error.gaps]}
        except UserError as error:
            return 422, {"error": str(error)}
        except AnnealError as error:
            return 500, {"error": f"compiler failure: {error}. This is a fault of anneal; please report it."}

    # -- models

    def graph(self, q: dict[str, Any]) -> Any:
        """The tensor graph, each node with the kernels that compute it."""
        traced, sink, _, plan = self._planned(q)
        calls = inspect.kernel_calls(plan, origins_of(sink), lambda _: "")
        return {
            "model": traced.graph.model,
            "nodes": inspect.graph_nodes(sink, plan, traced.fired),
            "kernels": [{"name": k.name, "label": k.label, "phase": k.phase} for k in calls],
            "passes": inspect.passes(),
        }

    def passes(self, q: dict[str, Any]) -> Any:
        """How much each pass changed, of the whole graph, or of one kernel."""
        return [{**_fields(p), "nodes": len(p.nodes), "text": len(p.text)} for p in self._graphs(q)]

    def one_pass(self, q: dict[str, Any]) -> Any:
        """The graph after a pass."""
        name = str(q.get("name"))
        graphs = self._graphs(q)
        found = [p for p in graphs if p.info.name == name]
        if not found:
            raise suggest("pass", name, [p.info.name for p in graphs])
        return found[0]

    def kernels(self, q: dict[str, Any]) -> Any:
        """The launches of the plan, why neighbours are two, and its memory."""
        traced, sink, model, plan = self._planned(q)
        calls = inspect.kernel_calls(plan, origins_of(sink), lambda _: "")
        return {
            "model": traced.graph.model,
            "kernels": calls,
            "refusals": inspect.refusals(sink, model),
            "memory": inspect.memory_plan(plan),
        }

    def kernel(self, q: dict[str, Any]) -> Any:
        """One launch: its text line by line, and how it is launched."""
        _, sink, model, _ = self._planned(q)
        number = int(q.get("kernel") or 0)
        call = inspect.launch(sink, model, number)
        try:
            text: Any = inspect.kernel_text(sink, model, number)
        except UserError as error:  # a dtype that WGSL does not have
            text, error_text = None, str(error)
        else:
            error_text = ""
        return {"text": text, "error": error_text, "launch": inspect.launch_facts(call.kernel.sink)}

    def firings(self, q: dict[str, Any]) -> Any:
        """The rules that fire while the model is built and compiled."""
        step, model = bool(q.get("step")), self._cost_model(q)
        path, batch = self._path(q), _batch(q)
        return inspect.firings(lambda: inspect.traced_model(path, batch).of(step), model, forward=not step)

    def source(self, q: dict[str, Any]) -> Any:
        """The user's line of a node, or of a kernel's line, with the lines around it."""
        traced = self._traced(q)
        file, number = str(q.get("file")), int(q.get("line") or 0)
        ours = {u.provenance[1].co_filename for u in traced.graph.nodes if u.provenance[1] is not None}
        if file not in ours:
            raise UserError("no node of this graph comes from that file")
        try:
            lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
        first = max(0, number - 1 - CONTEXT)
        return {"file": file, "first": first + 1, "line": number, "lines": lines[first : number + CONTEXT]}

    # -- ops

    def ops(self, _: dict[str, Any]) -> Any:
        """The names of ops and of Tensor methods."""
        return {"ops": list(inspect.ALL), "methods": inspect.tensor_methods()}

    def explain(self, q: dict[str, Any]) -> Any:
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
            "ops": [{**_fields(inspect.op_rules(op)), "batching": inspect.batching(op)} for op in ops],
            "example": inspect.worked(name, self._cost_model(q)),
        }

    # -- files

    def onnx(self, q: dict[str, Any]) -> Any:
        """What an ONNX file has and needs, with every gap; its weights are not read."""
        from anneal.onnx import load

        return load(Path(self._path(q)), "cpu", structure_only=True).describe()

    def file(self, q: dict[str, Any]) -> Any:
        """The tensors of an uploaded file of weights or arrays."""
        return inspect.tensor_file(Path(self._path(q)))

    # -- the rest

    def _path(self, q: dict[str, Any]) -> str:
        """The example, or the file behind an upload's id."""
        model = str(q.get("model"))
        if not model.startswith("upload."):
            return model
        name = model.removeprefix("upload.")
        if not name.replace(".", "").isalnum() or not (self.uploads / name).is_file():
            raise UserError("this file is not here any more; drop it on the studio's first page again")
        return str(self.uploads / name)

    def _traced(self, q: dict[str, Any]) -> _Traced:
        path, batch = self._path(q), _batch(q)
        key = f"{path} {batch}"
        if key not in self._models:
            if not path.endswith(".onnx"):
                from anneal.training import check_model

                check_model(path)
            while len(self._models) >= KEPT:
                del self._models[next(iter(self._models))]
            with tracing() as fired:
                graph = inspect.traced_model(path, batch)
            self._models[key] = _Traced(graph, fired)
        return self._models[key]

    def _cost_model(self, q: dict[str, Any]) -> CostModel:
        return planned_cost_model(str(q.get("device") or "auto"))

    def _planned(self, q: dict[str, Any]) -> tuple[_Traced, UOp, CostModel, Plan]:
        traced, model = self._traced(q), self._cost_model(q)
        sink = traced.sink(bool(q.get("step")))
        return traced, sink, model, plan_for(sink, model, {})[0]

    def _graphs(self, q: dict[str, Any]) -> list[inspect.PassGraph]:
        _, sink, model, _ = self._planned(q)
        if q.get("kernel") is None:
            return inspect.pass_graphs(sink, model)
        return inspect.kernel_pass_graphs(sink, model, int(q["kernel"]))


def _batch(q: dict[str, Any]) -> int | None:
    return int(q["batch"]) if q.get("batch") else None


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def encode(value: Any) -> Any:
    """A record as JSON has it."""
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def main() -> None:
    """Answer until stdin ends."""
    answers = Answers(Path(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints is no answer
    for line in sys.stdin:
        status, value = answers.answer(json.loads(line))
        text = json.dumps(value, default=encode, separators=(",", ":")).encode()
        out.write(b"%d %d\n" % (status, len(text)) + text)
        out.flush()


if __name__ == "__main__":
    main()
