"""`anneal graph`, `anneal kernels` and `anneal explain`: the work of the compiler on a model, or on one op."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._flags import command, option, switch
from anneal.cli._output import code, data, json_report, kernel_record, message, paged, phase_colours, scaled, table
from anneal.errors import UserError
from anneal.frozen import Json, frozen
from anneal.training import suggest

if TYPE_CHECKING:
    from anneal.inspect import Firing, KernelBuffer, KernelCall, KernelText, Line, OpRules
    from anneal.rewrite import Listed

app = flags.alone()

_LINES = 8  # source lines that an error lists


@frozen
class _Question(flags.Reporting):
    """The flags of `anneal explain`."""

    op: str | None = flags.argument(
        "Op of the intermediate language, such as ADD, or Tensor method.", "OP", autocompletion=flags.explained
    )
    model: str | None = option(
        "Print the rules that fire for an example model or ONNX file.", "MODEL", autocompletion=flags.traceable,
        callback=flags.openable,
    )  # fmt: skip
    step: bool = switch("--step", "With --model: a whole training step instead of the forward pass.")
    batch: flags.Batch = None
    limit: int = flags.number("With --model: number of rules to print; 0: all.", 0, default=30)
    device: flags.PlannedFlag = None


@command(app)
def explain(asked: _Question) -> None:
    """Print the rewrite rules of an op, or those that fire while a model is compiled: how often, in which passes, for
    which lines and modules. Without either, list the ops.
    """
    if asked.op is not None and asked.model is not None:
        raise UserError("explain takes an OP, or --model MODEL: `anneal explain mul`, `anneal explain --model mlp`")
    if asked.model is not None:
        _model(asked, asked.model)
    elif asked.step or asked.batch is not None or asked.device is not None:
        raise UserError("--step, --batch and --device belong to --model")
    elif asked.op is not None:
        _op(asked.op, asked.as_json)
    else:
        _list(asked.as_json)


def _op(name: str, as_json: bool) -> None:
    """Print the rules of the op called `name`, or of the ops that the Tensor method `name` builds."""
    from anneal.inspect import ALL, example_of, nodes, op_rules, tensor_methods

    methods = []
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
    data(meaning if methods else f"{name.upper()}: {meaning}")
    if example is not None:
        data(f"\n  {example.source}   is made of")
        for node in nodes(example.nodes):
            data(f"    {str(node).partition('  #')[0]}")
    for f in found:
        _print_rules(f, heading=len(found) > 1)


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


def _model(asked: _Question, model: str) -> None:
    """Print the rules that fire while `model` is built and compiled, the most frequent first."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import firings, traced_model

    step, device = asked.step, asked.device or "auto"
    flags.check_traceable(model, step)
    found = firings(lambda: traced_model(model, asked.batch).of(step), planned_cost_model(device), forward=not step)
    if asked.as_json:
        rules = [{**asdict(f), "passes": dict(f.passes), "modules": dict(f.modules)} for f in found]
        json_report({"model": model, "step": step, "device": device, "rules": rules})
        return
    shown = found[: asked.limit or None]
    for f in shown:
        _print_firing(f)
    if len(shown) < len(found):
        data(f"... {len(found) - len(shown)} more rules; --limit 0 prints them all")
    data(f"{len(found)} rules fired {sum(f.count for f in found):,} times")


def _print_firing(f: Firing) -> None:
    data(f"{f.count:>7,}  {f.rule}")
    data(f"         {f.table} at {f.place}")
    for word, pairs in (("in", f.passes), ("for", f.lines), ("of", f.modules)):
        if pairs:
            data(f"         {word} " + _listed([f"{x or 'building the graph'} ({n:,})" for x, n in pairs], 4))


def _listed(words: Iterable[object], most: int) -> str:
    each = [*map(str, words)]
    return ", ".join([*each[:most], *["..."] * (len(each) > most)])


def _near(name: str, methods: list[str]) -> list[str]:
    """Known names that look like `name`; all ops when none does."""
    import difflib

    from anneal.inspect import ALL

    known = {n.lower(): n for n in [*methods, *ALL]}
    return [known[n] for n in difflib.get_close_matches(name.lower(), known, n=6, cutoff=0.5)] or list(ALL)


def _record(rule: Listed) -> Json:
    names = {"kind": "kind", "table": "table", "rule": "text", "reason": "comment", "file": "file", "line": "line"}
    return {name: getattr(rule, of) for name, of in names.items()}


def _print_rules(found: OpRules, heading: bool) -> None:
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


@frozen
class _GraphView(flags.Reporting):
    """The flags of `anneal graph`."""

    model: flags.Traceable
    batch: flags.Batch = None
    limit: int = flags.number("Number of nodes to print; 0: all.", 0, default=60)
    until: str | None = option(
        "Print the result of the compiler's passes up to PASS.", "PASS", autocompletion=flags.passes
    )
    kernel: int | None = flags.number("With --until: the passes of kernel N.", 0)
    device: flags.PlannedFlag = None


@command(app)
def graph(view: _GraphView) -> None:
    """Print the graph of one training step: its nodes, and their number by phase and op; or the result of a pass."""
    from anneal.inspect import nodes, traced_model

    if view.until is not None:
        _after(view, view.until)
        return
    if view.kernel is not None:  # the graph is the same on every device
        raise UserError("--kernel belongs to --until PASS")
    traced = traced_model(view.model, view.batch)
    if view.as_json:
        numbers = {u: i for i, u in enumerate(traced.nodes)}
        json_report(
            {
                "model": traced.model, "uops_forward": traced.forward, "uops_backward": traced.backward,
                "counts": {name: dict(sorted(c.items())) for name, c in sorted(traced.counts.items())},
                "outputs": [numbers[u] for u in traced.outputs],
                "nodes": [asdict(node) for node in nodes(traced.nodes)],
            }
        )  # fmt: skip
        return
    shown = nodes(traced.nodes, view.limit)
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


def _after(view: _GraphView, until: str) -> None:
    """Print what the passes up to `until` make of a training step of the model, or of one of its kernels."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import after_pass, passes, traced_model
    from anneal.schedule import graph as sink_of

    model, device, kernel, known = view.model, view.device or "auto", view.kernel, passes()
    flags.check_traceable(model)
    if until not in [p.name for p in known]:
        raise suggest("pass", until, [p.name for p in known])
    state = after_pass(sink_of(traced_model(model, view.batch).outputs), planned_cost_model(device), until, kernel)
    of = f" of kernel {kernel}" if kernel is not None else ""
    view.tell(
        lambda: {"model": model, "device": device, "passes": [asdict(p) for p in known], **asdict(state)},
        f"// after {state.info.name}{of}: {state.info.reason}", *[part.text.rstrip("\n") for part in state.parts],
    )  # fmt: skip


@frozen
class _KernelView(flags.Reporting):
    """The flags of `anneal kernels`."""

    model: flags.Traceable
    step: bool = switch("--step", "A whole training step instead of the forward pass.")
    batch: flags.Batch = None
    time: bool = switch("--time", "Run the kernels and print their times, slowest first.")
    device: flags.DeviceName | None = switch(
        "--device", "Device to plan for; auto: webgpu. With --time: device to run on."
    )
    adapter: flags.AdapterFlag = None
    kernel: str | None = option("Print one kernel: its buffers, cost and WGSL.", "N|NAME", "--wgsl", "--kernel")
    whole: bool = switch("--all", "Print every kernel, in a pager on a terminal.")
    lines: bool = switch("--lines", "With --wgsl: print the rules, source lines and modules of each line.")
    line: str | None = option("Only kernels, or lines, that come from this source line.", "FILE:LINE")
    trace: Path | None = option("With --time: write a trace for ui.perfetto.dev.", "FILE.json")


@command(app)
def kernels(view: _KernelView) -> None:
    """Print the fused kernels of a model as a table: cost, phase, what they compute. --wgsl prints one, --time runs
    them.
    """
    flags.check_traceable(view.model, view.step)
    where = None if view.line is None else _where(view.line)
    if view.lines and view.kernel is None:
        raise UserError("--lines shows one kernel: add --wgsl N")
    if view.time and (view.kernel is not None or where is not None or view.whole):
        raise UserError("--time runs all kernels; leave --wgsl, --all and --line out")
    if view.trace is not None and not view.time:
        raise UserError("--trace shows times; add --time")
    changes = flags.choose_device(view.device, view.adapter)
    if view.time:
        with settings.override(**changes):
            _time(view)
        return
    if view.adapter is not None:
        from anneal.inspect import need_adapter

        need_adapter(view.adapter)  # which is not opened: nothing runs
    _show(view, str(changes.get("device", "auto")), where)


def _show(view: _KernelView, planned: str, where: tuple[str, int] | None) -> None:
    """Print a table of the kernels that come from the user's line `where`, or all of them; the one that is named, or
    all if they are wanted, in full; with `lines` each of its lines with where it comes from.
    """
    from anneal.backend import get_device, planned_cost_model
    from anneal.inspect import Looked, c_target, of_line, traced_model, wgsl_for
    from anneal.schedule import graph as sink_of

    told = {"model": view.model, "step": view.step, "device": planned}
    sink = sink_of(traced_model(view.model, view.batch).of(view.step))
    looked = Looked(view.model, sink, planned_cost_model(planned), target=c_target(planned))
    kernel = view.kernel
    number = None if kernel is None else _number(kernel, [call.kernel.name for call in looked.plan.calls])
    if view.lines and number is not None:
        text = looked.text(number)
        if where is not None:
            _check_line(where, [x for t in text.lines for x in t.lines], f"kernel {number}")
            text = replace(text, lines=tuple(text.of_line(*where)))
        if view.as_json:
            json_report({**told, **asdict(text)})
        else:
            _print_lines(number, text)
        return
    found = looked.calls(wgsl_for(get_device("cpu"), looked.plan) if c_target(planned) else None)
    chosen = found if number is None else [found[number]]
    if where is not None:
        of = "the plan" if number is None else f"kernel {number}"
        _check_line(where, [x for k in chosen for x in k.lines], of)
    wanted = chosen if where is None else of_line(chosen, *where)
    shown = [(n, k) for n, k in enumerate(found) if k in wanted and number in (None, n)]
    if view.as_json:
        json_report({**told, "kernels": [kernel_record(k) for _, k in shown]})
        return
    if view.whole or kernel is not None:
        with paged(view.whole):
            for n, call in shown:
                _print(n, len(found), call)
    else:
        _print_table(shown)
    distinct = len({k.name for _, k in shown})
    data(
        f"{len(shown)} kernel{'s' if len(shown) != 1 else ''}, {distinct} distinct; "
        f"{sum(k.flops for _, k in shown):,} flops, "
        f"{sum(k.bytes for _, k in shown):,} bytes"
    )


def _where(text: str) -> tuple[str, int]:
    """FILE:LINE of the command line. UserError for anything else."""
    file, colon, number = text.rpartition(":")
    if not (file and colon and number.isdecimal()):
        raise UserError(f"--line takes FILE:LINE, such as model.py:12, not {text[:100]!r}")
    return file, int(number)


def _check_line(where: tuple[str, int], lines: Iterable[Line], of: str) -> None:
    """UserError if nothing comes from the line `where`, with the lines that something comes from; those of the file
    first.
    """
    file, number = where
    if any(x.line == number and x.file.endswith(file) for x in lines):
        return
    near = sorted({(not x.file.endswith(file), Path(x.file).name, x.line) for x in lines})
    there = _listed([f"{name}:{line}" for _, name, line in near], _LINES)
    raise UserError(
        f"nothing of {of} comes from line {number} of {file}; " + (f"lines are {there}" if near else "it has no lines")
    )


def _number(kernel: str, names: Sequence[str]) -> int:
    """The number of the launch that the command line means by `kernel`: a number, or a name or its unique beginning.

    UserError for what the plan does not have.
    """
    if kernel.isdecimal():
        if int(kernel) < len(names):
            return int(kernel)
        raise UserError(f"there is no kernel {kernel}: the plan has {len(names)}, from 0 to {len(names) - 1}")
    meant = sorted({name for name in names if name.startswith(kernel)})
    if len(meant) == 1:
        return names.index(meant[0])
    near = f"several are: {', '.join(meant[:3])}" if meant else f"the plan has {names[0]} and others: see the table"
    raise UserError(f"there is no kernel {kernel[:100]!r}: {near}")


def _print_lines(number: int, found: KernelText) -> None:
    """Print the WGSL of one kernel, each line with where it comes from."""
    data(f"// ==== kernel {number} {found.name}  {found.label}")
    said = None
    for line in found.lines:
        origin = [x for x in (_listed(line.lines, 3), ", ".join(line.modules[:3])) if x]
        if line.ops and (line.ops, origin, line.rules, line.passes) != said:
            data(f"    // {', '.join(line.ops[-3:])}: {'  '.join(origin)}")
            for rule in line.rules[:2]:
                data(f"    //   by {rule}")
            if len(line.rules) > 2:
                data(f"    //   and {len(line.rules) - 2} rules before")
            if line.passes:
                data(f"    //   made in {', '.join(line.passes)}")
            said = (line.ops, origin, line.rules, line.passes)
        data(f"{line.number:4d} {line.text}")


def _time(view: _KernelView) -> None:
    """Run the kernels of the model on the device, each timed, and print what they took, the slowest first."""
    from anneal.backend import get_device
    from anneal.inspect import chrome_trace, kernel_calls, memory_plan, timed_launches, traced_model
    from anneal.runtime.profile import profile
    from anneal.schedule import graph as sink_of, origins, plan_for
    from anneal.uop.sizes import Values

    flags.check_writable(view.trace)
    device, values = get_device(settings.current().device), Values()
    sink = sink_of(traced_model(view.model, view.batch, device.name).of(view.step))
    plan, inputs, _ = plan_for(sink, device.cost_model, values)
    times = profile(plan, device, inputs, values, often=True)
    report = timed_launches(plan, times.times, device, [x.opts for x in times.launches])
    calls = kernel_calls(plan, origins(sink), lambda kernel: device.compile(kernel).source)
    report["kernels"] = [{**kernel_record(k), **t} for k, t in zip(calls, report["kernels"], strict=True)]
    if view.trace is not None:
        events = chrome_trace(view.model, report["kernels"], device.adapter or device.name, memory_plan(plan).live)
        flags.write_file(view.trace, json.dumps(events).encode())
        message(f"wrote {view.trace}; open it at https://ui.perfetto.dev")
    if view.as_json:
        json_report({"model": view.model, "step": view.step, **report})
        return
    message(f"{view.model} on {device}")
    table(*times.table(), words=6)
    data(times.total())
    for reason in times.times.reasons():
        message(reason)


def _print_table(shown: Sequence[tuple[int, KernelCall]]) -> None:
    """A row for each distinct kernel of a phase, in the order of their first launches, as many as a screen has."""
    same = defaultdict(list)
    for n, k in shown:
        same[k.phase, k.name].append((n, k))
    fits = max(shutil.get_terminal_size((80, 45)).lines - 5, 10)
    left = len(same) - fits
    rows, colours, painted = [], [], phase_colours()
    for calls in list(same.values())[: fits if left > 1 else None]:
        n, k = calls[0]
        cost = [scaled(sum(k.flops for _, k in calls)), scaled(sum(k.bytes for _, k in calls))]
        rows.append([str(n), str(len(calls)), *cost, k.phase, k.label, k.name])
        colours.append(painted.get(k.phase, ""))
    table(["kernel", "calls", "flops", "bytes", "phase", "what it computes", "name"], rows, words=4, colours=colours)
    if left > 1:
        data(f"... and {left} more rows: --all prints everything, --json too")


def _print(number: int, total: int, kernel: KernelCall) -> None:
    data(f"// ==== kernel {number}/{total} {kernel.name} ({kernel.phase}) " + "=" * 40)
    data(f"// {kernel.label}" + (f"  [{_listed(kernel.lines, 3)}]" if kernel.lines else ""))
    data(f"// fused: {' + '.join(kernel.fused)}")
    for b in kernel.reads:
        _print_buffer("reads", b, f"boundary: from kernel {b.kernel}" if b.kernel is not None else "given")
    for b in kernel.writes:
        origin = {"output": "a result", "temp": "boundary: for a later kernel"}.get(b.kind, b.kind)
        _print_buffer("writes", b, origin)
    data(f"// {kernel.flops:,} flops, {kernel.bytes:,} bytes")
    code(kernel.text.rstrip(), "wgsl")
    data()


def _print_buffer(word: str, b: KernelBuffer, origin: str) -> None:
    data(f"// {word:6s} {b.buffer}: {b.dtype}[{b.size}]  {origin}")
