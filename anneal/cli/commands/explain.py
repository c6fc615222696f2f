"""`anneal graph`, `anneal kernels` and `anneal explain`: the work of the compiler on a model, or on one op."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._output import code, data, json_report, kernel_record, message, paged, phase_colours, scaled, table
from anneal.errors import UserError
from anneal.training import suggest

if TYPE_CHECKING:
    from anneal.inspect import Firing, KernelBuffer, KernelCall, KernelText, Line, OpRules, StepGraph
    from anneal.rewrite import Listed
    from anneal.uop import UOp

app = flags.alone()

_LINES = 8  # source lines that an error lists


@app.command()
def explain(
    op: Annotated[
        str | None,
        flags.argument(
            "Op of the intermediate language, such as ADD, or Tensor method.",
            "OP",
            autocompletion=flags.explained,
        ),
    ] = None,
    model: Annotated[
        str | None,
        flags.option(
            "Print the rules that fire for an example model or ONNX file.",
            "MODEL",
            autocompletion=flags.traceable,
            callback=flags.openable,
        ),
    ] = None,
    step: Annotated[
        bool, flags.switch("--step", "With --model: a whole training step instead of the forward pass.")
    ] = False,
    batch: flags.Batch = None,
    limit: Annotated[int, flags.number("With --model: number of rules to print; 0: all.", 0)] = 30,
    device: flags.PlannedFlag = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
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


def _model(model: str, step: bool, batch: int | None, device: str, limit: int, as_json: bool) -> None:
    """Print the rules that fire while `model` is built and compiled, the most frequent first."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import firings, traced_model

    flags.check_traceable(model, step)

    def outputs() -> Iterable[UOp]:
        return traced_model(model, batch).of(step)

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


@app.command()
def graph(
    model: flags.Traceable,
    batch: flags.Batch = None,
    limit: Annotated[int, flags.number("Number of nodes to print; 0: all.", 0)] = 60,
    until: Annotated[
        str | None,
        flags.option("Print the result of the compiler's passes up to PASS.", "PASS", autocompletion=flags.passes),
    ] = None,
    kernel: Annotated[int | None, flags.number("With --until: the passes of kernel N.", 0)] = None,
    device: flags.PlannedFlag = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
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

    flags.check_traceable(model)
    known = passes()
    if until not in [p.name for p in known]:
        raise suggest("pass", until, [p.name for p in known])
    state = after_pass(sink_of(traced_model(model, batch).outputs), planned_cost_model(device), until, kernel)
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


@app.command()
def kernels(
    model: flags.Traceable,
    step: flags.Step = False,
    batch: flags.Batch = None,
    time: Annotated[bool, flags.switch("--time", "Run the kernels and print their times, slowest first.")] = False,
    device: Annotated[
        flags.DeviceName | None,
        flags.switch("--device", "Device to plan for; auto: webgpu. With --time: device to run on."),
    ] = None,
    adapter: flags.AdapterFlag = None,
    kernel: Annotated[
        str | None,
        flags.option("Print one kernel: its buffers, cost and WGSL.", "N|NAME", "--wgsl", "--kernel"),
    ] = None,
    whole: Annotated[bool, flags.switch("--all", "Print every kernel, in a pager on a terminal.")] = False,
    lines: Annotated[
        bool, flags.switch("--lines", "With --wgsl: print the rules, source lines and modules of each line.")
    ] = False,
    line: Annotated[
        str | None,
        flags.option("Only kernels, or lines, that come from this source line.", "FILE:LINE"),
    ] = None,
    trace: Annotated[Path | None, flags.option("With --time: write a trace for ui.perfetto.dev.", "FILE.json")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Print the fused kernels of a model as a table: cost, phase, what they compute. --wgsl prints one, --time runs
    them.
    """
    flags.check_traceable(model, step)
    where = None if line is None else _where(line)
    if lines and kernel is None:
        raise UserError("--lines shows one kernel: add --wgsl N")
    if time and (kernel is not None or where is not None or whole):
        raise UserError("--time runs all kernels; leave --wgsl, --all and --line out")
    if trace is not None and not time:
        raise UserError("--trace shows times; add --time")
    changes = flags.choose_device(device, adapter)
    if time:
        with settings.override(**changes):
            _time(model, step, batch, settings.current().device, trace, as_json)
        return
    if adapter is not None:
        from anneal.inspect import need_adapter

        need_adapter(adapter)  # which is not opened: nothing runs
    _show(model, step, batch, str(changes.get("device", "auto")), kernel, whole, lines, where, as_json)


def _show(
    model: str,
    step: bool,
    batch: int | None,
    planned: str,
    kernel: str | None,
    whole: bool,
    lines: bool,
    where: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Print a table of the kernels that come from the user's line `where`, or all of them; the one called `kernel`, or
    all if `whole`, in full; with `lines` each of its lines with where it comes from.
    """
    from anneal.backend import get_device, planned_cost_model
    from anneal.inspect import c_target, kernel_calls, kernel_text, of_line, traced_model, wgsl_for
    from anneal.schedule import graph as sink_of, origins, plan_for

    traced = traced_model(model, batch)
    told = {"model": model, "step": step, "device": planned}
    sink, cost_model = sink_of(traced.of(step)), planned_cost_model(planned)
    plan, _, _ = plan_for(sink, cost_model)
    number = None if kernel is None else _number(kernel, [call.kernel.name for call in plan.calls])
    if lines and number is not None:
        text = kernel_text(sink, cost_model, number, c_target(planned))
        if where is not None:
            _check_line(where, [x for t in text.lines for x in t.lines], f"kernel {number}")
            text = replace(text, lines=tuple(text.of_line(*where)))
        if as_json:
            json_report({**told, **asdict(text)})
        else:
            _print_lines(number, text)
        return
    found = kernel_calls(plan, origins(sink), wgsl_for(get_device("cpu"), plan) if c_target(planned) else None)
    looked = found if number is None else [found[number]]
    if where is not None:
        of = "the plan" if number is None else f"kernel {number}"
        _check_line(where, [x for k in looked for x in k.lines], of)
    wanted = looked if where is None else of_line(looked, *where)
    shown = [(n, k) for n, k in enumerate(found) if k in wanted and number in (None, n)]
    if as_json:
        json_report({**told, "kernels": [kernel_record(k) for _, k in shown]})
        return
    if whole or kernel is not None:
        with paged(whole):
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
    there = ", ".join(f"{name}:{line}" for _, name, line in near[:_LINES]) + (", ..." if len(near) > _LINES else "")
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
        origin = [x for x in (_shown(line.lines), ", ".join(line.modules[:3])) if x]
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


def _time(model: str, step: bool, batch: int | None, device: str, trace: Path | None, as_json: bool) -> None:
    """Run the kernels of `model` on a device, each timed, and print what they took, the slowest first.

    `trace` is a file for a trace of it.
    """
    from anneal.backend import get_device
    from anneal.inspect import chrome_trace, kernel_calls, memory_plan, traced_model
    from anneal.runtime.profile import profile
    from anneal.schedule import graph as sink_of, origins, plan_for
    from anneal.uop.sizes import Values

    if trace is not None:
        flags.check_writable(trace)
    opened = get_device(device)
    traced = traced_model(model, batch, opened.name)
    values = Values()
    sink = sink_of(traced.of(step))
    plan, inputs, _ = plan_for(sink, opened.cost_model, values)
    times = profile(plan, opened, inputs, values, often=True)
    found = [
        {
            **kernel_record(kernel),
            "seconds": launch.seconds,
            "low": launch.time.low,
            "high": launch.time.high,
            "share": launch.share,
            "gflops": launch.gflops,
            "gbs": launch.gbs,
            "opts": launch.opts,
        }
        for kernel, launch in zip(
            kernel_calls(plan, origins(sink), lambda kernel: opened.compile(kernel).source), times.launches, strict=True
        )
    ]
    if trace is not None:
        events = chrome_trace(model, found, opened.adapter or opened.name, memory_plan(plan).live)
        flags.write_file(trace, json.dumps(events).encode())
        message(f"wrote {trace}; open it at https://ui.perfetto.dev")
    if not as_json:
        message(f"{model} on {opened}")
        table(*times.table(), words=6)
        data(times.total())
        for reason in times.times.reasons():
            message(reason)
        return
    json_report(
        {
            "model": model,
            "step": step,
            "device": opened.name,
            "adapter": opened.adapter,
            "seconds": times.seconds,
            "plan_seconds": times.plan_seconds,
            "times": times.times.summary(),
            "kernels": found,
        }
    )


def _print_table(shown: Sequence[tuple[int, KernelCall]]) -> None:
    """A row for each distinct kernel of a phase, in the order of their first launches, as many as a screen has."""
    same: defaultdict[tuple[str, str], list[tuple[int, KernelCall]]] = defaultdict(list)
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
    data(f"// {kernel.label}" + (f"  [{_shown(kernel.lines)}]" if kernel.lines else ""))
    data(f"// fused: {' + '.join(kernel.fused)}")
    for b in kernel.reads:
        _print_buffer("reads", b, f"boundary: from kernel {b.kernel}" if b.kernel is not None else "given")
    for b in kernel.writes:
        origin = {"output": "a result", "temp": "boundary: for a later kernel"}.get(b.kind, b.kind)
        _print_buffer("writes", b, origin)
    data(f"// {kernel.flops:,} flops, {kernel.bytes:,} bytes")
    code(kernel.text.rstrip(), "wgsl")
    data()


def _shown(lines: Sequence[Line], most: int = 3) -> str:
    return ", ".join(map(str, lines[:most])) + (", ..." if len(lines) > most else "")


def _print_buffer(word: str, b: KernelBuffer, origin: str) -> None:
    data(f"// {word:6s} {b.buffer}: {b.dtype}[{b.size}]  {origin}")
