"""`anneal explain` and `anneal graph`: the rules of ops and models, and the graph of a training step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal.cli._flags import (
    Batch,
    Json,
    PlannedFlag,
    Quiet,
    Traceable,
    alone,
    check_traceable,
    explained,
    number,
    openable,
    passes as complete_passes,
    switch,
    traceable,
)
from anneal.cli._output import data, json_report
from anneal.errors import UserError
from anneal.training import suggest

if TYPE_CHECKING:
    from anneal.inspect import Firing, OpRules, StepGraph
    from anneal.rewrite.listing import Listed
    from anneal.uop import UOp


app = alone()


@app.command()
def explain(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="Op of the intermediate language, such as ADD, or Tensor method.",
            autocompletion=explained,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Print the rules that fire for an example model or ONNX file.",
            autocompletion=traceable,
            callback=openable,
        ),
    ] = None,
    step: Annotated[bool, switch("--step", "With --model: a whole training step instead of the forward pass.")] = False,
    batch: Batch = None,
    limit: Annotated[int, number("With --model: number of rules to print; 0: all.", 0)] = 30,
    device: PlannedFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the rewrite rules of an op, or those that fire while a model is compiled: how often, in which passes, for
    which lines and modules. Without either, list the ops.
    """
    if op is not None and model is not None:
        raise UserError("explain takes an OP, or --model MODEL: `anneal explain mul`, `anneal explain --model mlp`")
    if model is not None:
        _model(model, step, batch, device or "auto", limit, as_json)
    elif step or batch is not None or device is not None:
        raise UserError("--step, --batch and --device belong to --model")
    elif op is not None:
        _op(op, as_json)
    else:
        _list(as_json)


def _op(name: str, as_json: bool) -> None:
    """Print the rules of the op called `name`, or of the ops that the Tensor method `name` builds."""
    from anneal.inspect import ALL, example_of, nodes, op_rules, tensor_methods

    methods: list[str] = []
    example = None
    if name.upper() in ALL:
        found = [op_rules(name.upper())]
        meaning = found[0].meaning
    else:
        methods = tensor_methods()
        if name.lower() not in methods:
            raise suggest("op or Tensor method", name, [*ALL, *methods] if len(name) < 2 else _near(name, methods))
        example = example_of(name.lower())
        ops = example.ops if example is not None else []
        found = [op_rules(op) for op in ops]
        meaning = f"Tensor.{name.lower()} builds: {', '.join(ops) or 'no node of its own'}"
    if as_json:
        ops_found = {f.op: [_record(r) for r in f.rules] for f in found}
        made = (
            {} if example is None else {"example": example.source, "nodes": [asdict(n) for n in nodes(example.nodes)]}
        )
        json_report({"name": name, "meaning": meaning, **made, "ops": ops_found})
        return
    data(f"{name.upper() if not methods else name.lower()}: {meaning}" if not methods else meaning)
    if example is not None:
        data(f"\n  {example.source}   is made of")
        for node in nodes(example.nodes):
            data(f"    {str(node).partition('  #')[0]}")
    for f in found:
        _print(f, heading=len(found) > 1)


def _list(as_json: bool) -> None:
    """Print what can be explained: the ops of the language with their meanings, and the Tensor methods."""
    from anneal.inspect import ALL, op_rules, tensor_methods

    meanings = {op: op_rules(op).meaning for op in ALL}
    if as_json:
        json_report({"ops": meanings, "methods": tensor_methods()})
        return
    width = max(map(len, meanings))
    for op, meaning in meanings.items():
        data(f"{op:{width}}  {meaning}")
    data()
    data("Tensor methods: " + ", ".join(tensor_methods()))


def _model(model: str, step: bool, batch: int | None, device: str, limit: int, as_json: bool) -> None:
    """Print the rules that fire while `model` is built and compiled, the most frequent first."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import firings, traced_model

    check_traceable(model, step)

    def outputs() -> Iterable[UOp]:
        traced = traced_model(model, batch)
        return traced.of(step)

    found = firings(outputs, planned_cost_model(device), forward=not step)
    if as_json:
        rules = [{**asdict(f), "passes": dict(f.passes), "modules": dict(f.modules)} for f in found]
        json_report({"model": model, "step": step, "device": device, "rules": rules})
        return
    shown = found[:limit] if limit else found
    for f in shown:
        _print_firing(f)
    if len(shown) < len(found):
        data(f"... {len(found) - len(shown)} more rules; --limit 0 prints them all")
    data(f"{len(found)} rules fired {sum(f.count for f in found):,} times")


def _print_firing(f: Firing, most: int = 4) -> None:
    data(f"{f.count:>7,}  {f.rule}")
    data(f"         {f.table} at {f.place}")
    data("         in " + _counted([(name or "building the graph", n) for name, n in f.passes], most))
    if f.lines:
        data("         for " + _counted([(str(line), n) for line, n in f.lines], most))
    if f.modules:
        data("         of " + _counted(f.modules, most))


def _counted(pairs: Iterable[tuple[str, int]], most: int) -> str:
    each = [f"{name} ({n:,})" for name, n in pairs]
    return ", ".join(each[:most]) + (", ..." if len(each) > most else "")


def _near(name: str, methods: list[str]) -> list[str]:
    """Known names that look like `name`; all ops when none does."""
    import difflib

    from anneal.inspect import ALL

    known = {n.lower(): n for n in [*methods, *ALL]}
    return [known[n] for n in difflib.get_close_matches(name.lower(), known, n=6, cutoff=0.5)] or list(ALL)


def _record(rule: Listed) -> dict[str, Any]:
    return {
        "kind": rule.kind,
        "table": rule.table,
        "rule": rule.text,
        "reason": rule.comment,
        "file": rule.file,
        "line": rule.line,
    }


def _print(found: OpRules, heading: bool) -> None:
    from anneal.inspect import KINDS

    op, rules = found.op, found.rules
    if heading:
        data(f"\n{op}: {found.meaning}")
    for kind, about in KINDS.items():
        data(f"\n  {about}")
        mine = [r for r in rules if r.kind == kind and (r.op == op or kind not in ("gradient", "forward"))]
        if not mine:
            known = any(r.kind == "gradient" and r.op == op for r in rules)
            more = {
                "gradient": "; nothing flows back through it",
                "forward": " of its own: the gradient's, which is its own transpose" if known else "",
            }
            data("    no rule" + more.get(kind, ""))
        reason = ""
        for r in mine:
            if r.comment and r.comment != reason:
                data(f"    # {r.comment}")
            reason = r.comment
            data(f"    {r.text}   [{r.file}:{r.line}]")


@app.command()
def graph(
    model: Traceable,
    batch: Batch = None,
    limit: Annotated[int, number("Number of nodes to print; 0: all.", 0)] = 60,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help="Print the result of the compiler's passes up to PASS.",
            autocompletion=complete_passes,
        ),
    ] = None,
    kernel: Annotated[int | None, number("With --until: the passes of kernel N.", 0)] = None,
    device: PlannedFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the graph of one training step: its nodes, and their number by phase and op; or the result of a pass."""
    from anneal.inspect import nodes, traced_model

    if until is not None:
        _after(model, until, kernel, batch, device or "auto", as_json)
        return
    if kernel is not None:  # the graph is the same on every device
        raise UserError("--kernel belongs to --until PASS")
    traced = traced_model(model, batch)
    if as_json:
        json_report(_report(traced))
        return
    shown = nodes(traced.nodes, limit)
    for node in shown:
        data(str(node))
    if len(shown) < len(traced.nodes):
        data(f"... {len(traced.nodes) - len(shown)} more nodes; --limit 0 prints them all")
    data()
    width = max(len(name) for name in traced.counts)
    data(f"{'op'.ljust(width)}  forward  backward")
    for name, by_phase in sorted(traced.counts.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        data(f"{name.ljust(width)}  {by_phase['forward']:7d}  {by_phase['backward']:8d}")
    data(f"{'total'.ljust(width)}  {traced.forward:7d}  {traced.backward:8d}")


def _after(model: str, until: str, kernel: int | None, batch: int | None, device: str, as_json: bool) -> None:
    """Print what the passes up to `until` make of a training step of `model`, or of its kernel number `kernel`."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import after_pass, passes, traced_model
    from anneal.schedule import graph as sink_of

    check_traceable(model)
    known = passes()
    if until not in [p.name for p in known]:
        raise suggest("pass", until, [p.name for p in known])
    sink = sink_of(traced_model(model, batch).outputs)
    state = after_pass(sink, planned_cost_model(device), until, kernel)
    if as_json:
        json_report({"model": model, "device": device, "passes": [asdict(p) for p in known], **asdict(state)})
        return
    of = f" of kernel {kernel}" if kernel is not None else ""
    data(f"// after {state.info.name}{of}: {state.info.reason}")
    for part in state.parts:
        data(part.text.rstrip("\n"))


def _report(traced: StepGraph) -> dict[str, Any]:
    from anneal.inspect import nodes

    numbers = {u: i for i, u in enumerate(traced.nodes)}
    return {
        "model": traced.model,
        "uops_forward": traced.forward,
        "uops_backward": traced.backward,
        "counts": {name: dict(sorted(c.items())) for name, c in sorted(traced.counts.items())},
        "outputs": [numbers[u] for u in traced.outputs],
        "nodes": [asdict(node) for node in nodes(traced.nodes)],
    }
