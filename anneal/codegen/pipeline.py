"""Code generation as one list of passes, from the scheduled kernel graph to the text of a module.

`PASSES` is the list; `run_passes` runs it and stops where it is told. A pass maps a `Lowering` to the next one, with
one more field filled or a new graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from anneal.codegen.apply import apply_opts
from anneal.codegen.coalesce import coalesce, merge_rows
from anneal.codegen.copies import write_out
from anneal.codegen.dialects import DIALECTS, Text
from anneal.codegen.hardware import LaunchConfig, to_hardware
from anneal.codegen.info import opts_text
from anneal.codegen.lanes import to_runs, to_vectors
from anneal.codegen.legalise import legalise
from anneal.codegen.linear import LinearProgram, linearise
from anneal.codegen.matrices import check_matrices
from anneal.codegen.opts import Opt
from anneal.codegen.skip import skip_unused
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.rewrite import Hook, Pass, Pipeline
from anneal.schedule import overwrites_rows
from anneal.uop import UOp, arena


@dataclass(frozen=True, slots=True)
class Lowering:
    """A kernel on its way from graph to text: the state that each pass hands on to the next.

    `kernel` is the graph as the scheduler made it, `sink` as the last pass left it. `opts` are None until they are
    chosen; `launch`, `program`, `text` and `source` until the pass that makes them.
    """

    kernel: UOp
    sink: UOp
    target: Target
    opts: tuple[Opt, ...] | None = None
    launch: LaunchConfig | None = None
    program: LinearProgram | None = None
    text: Text | None = None
    source: str | None = None


def _on_sink(change: Callable[[UOp], UOp]) -> Callable[[Lowering], Lowering]:
    """A pass that makes a new graph of the last one, and nothing else."""
    return lambda s: replace(s, sink=change(s.sink))


def _legalise(s: Lowering) -> Lowering:
    return replace(s, sink=legalise(s.sink, s.target, DIALECTS[s.target.dialect].text_of))


def _choose(s: Lowering) -> Lowering:
    opts = s.opts if s.opts is not None else DIALECTS[s.target.dialect].choose(s.sink, s.target)
    if not any(o.kind == "FUSE_REDUCE" for o in opts) and overwrites_rows(s.kernel):
        raise CompilerError(
            "a kernel that overwrites its rows needs the opt FUSE_REDUCE: only then they are not read later"
        )
    return replace(s, opts=opts)


def _apply(s: Lowering) -> Lowering:
    check_matrices(s.opts or (), s.target)
    return replace(s, sink=apply_opts(s.sink, s.opts or (), s.target.unaligned))


def _vectorise(s: Lowering) -> Lowering:
    return replace(s, sink=(to_runs if s.target.unaligned else to_vectors)(s.sink))


def _map(s: Lowering) -> Lowering:
    sink, launch = to_hardware(s.sink)
    return replace(s, sink=sink, launch=launch)


def _linearise(s: Lowering) -> Lowering:
    assert s.launch is not None
    program = linearise(s.sink, s.launch)
    _check_limits(program, s.target)
    return replace(s, program=program)


def _check_limits(program: LinearProgram, target: Target) -> None:
    if program.launch.threads > target.max_threads:
        raise CompilerError(
            f"{program.launch.threads} threads in a workgroup; the target has {target.max_threads}", stage="apply_opts"
        )
    if program.shared_bytes > target.workgroup_bytes:
        raise CompilerError(
            f"{program.shared_bytes} bytes of workgroup memory; the target has {target.workgroup_bytes}",
            stage="apply_opts",
        )


def _write(s: Lowering) -> Lowering:
    assert s.program is not None
    return replace(s, text=DIALECTS[s.target.dialect].write(s.program, s.target))


def _module(s: Lowering) -> Lowering:
    assert s.text is not None
    return replace(s, source=DIALECTS[s.target.dialect].module((s.text,), s.target))


# -- views ------------------------------------------------------------------------------------------------------------


def _graph(s: Lowering) -> Iterator[UOp | str]:
    yield s.sink


def _opts(s: Lowering) -> Iterator[UOp | str]:
    yield opts_text(s.opts or ()) or "no opts"


def _launched(s: Lowering) -> Iterator[UOp | str]:
    yield repr(s.launch)
    yield s.sink


def _program(s: Lowering) -> Iterator[UOp | str]:
    assert s.program is not None
    yield str(s.program)


def _lines(s: Lowering) -> Iterator[UOp | str]:
    assert s.text is not None
    yield from s.text.lines


def _source(s: Lowering) -> Iterator[UOp | str]:
    assert s.source is not None
    yield s.source


PASSES: Pipeline[Lowering] = Pipeline(
    "codegen",
    (
        Pass(
            name="legalise",
            run=_legalise,
            view=_graph,
            stage="legal",
            reason="ops and dtypes that a dialect has: narrow dtypes computed wide, bools as logic, ranks for ARGSORT",
        ),
        Pass(
            name="coalesce-loops",
            run=_on_sink(coalesce),
            view=_graph,
            stage="legal",
            reason="neighbouring ranges become one wherever every index uses them as one",
        ),
        Pass(
            name="merge-rows",
            run=_on_sink(merge_rows),
            view=_graph,
            stage="legal",
            reason="one range for a row of several axes, so that its reductions can be fused into the loop over it",
        ),
        Pass(
            name="choose-opts",
            run=_choose,
            view=_opts,
            reason="a split for each range, by rules without search, unless the caller gives them",
        ),
        Pass(
            name="apply-opts",
            run=_apply,
            view=_graph,
            stage="linear",
            reason="each range is split into pieces with a job each: workgroups, threads, registers, lanes, loops",
        ),
        Pass(
            name="skip-unused",
            run=_on_sink(skip_unused),
            view=_graph,
            stage="linear",
            reason="removes loads, iterations and stores that a whole workgroup would discard",
        ),
        Pass(
            name="map-to-hardware",
            run=_map,
            view=_launched,
            stage="linear",
            reason="workgroups and threads become digits of mixed-radix hardware indices; tiles are filled",
        ),
        Pass(
            name="write-out",
            run=_on_sink(write_out),
            view=_graph,
            stage="linear",
            reason="a copy of each node for each value of its registers and unrolled iterations",
        ),
        Pass(
            name="vectorise",
            run=_vectorise,
            view=_graph,
            stage="linear",
            reason="aligned accesses along a vector range become accesses to whole vectors",
        ),
        Pass(
            name="linearise",
            run=_linearise,
            view=_program,
            reason="statements in order, every value named once, in the outermost loop where it is known",
        ),
        Pass(
            name="write-body",
            run=_write,
            view=_lines,
            reason="the statements as text, by the dialect's table from op to text",
        ),
        Pass(
            name="write-module",
            run=_module,
            view=_source,
            reason="wraps the body in its bindings, workgroup memory and functions",
        ),
    ),
)
# The passes that opts decide about: a search runs them again and again on one prepared kernel.
_LOWERING: Pipeline[Lowering] = Pipeline("lowering", PASSES.passes[4:10])


def run_passes(
    sink: UOp,
    target: Target | None = None,
    opts: Sequence[Opt] | None = None,
    until: str | None = None,
    hook: Hook[Lowering] | None = None,
) -> Lowering:
    """Run PASSES over the kernel graph `sink`, up to and including the pass called `until`.

    `opts` are the heuristic's unless given; `hook` is called after each pass. Raises UserError for an `until` that is
    no pass, with the names of all; DTypeError for a dtype that the target lacks; CompilerError for opts that do not
    fit.
    """
    with arena().untracked():  # whose line a node comes from is told by the tensor graph
        return PASSES.run(Lowering(sink, sink, target or Target(), None if opts is None else tuple(opts)), until, hook)


def prepare(sink: UOp, target: Target) -> UOp:
    """The kernel in ops and dtypes that a dialect has, with loops coalesced: the graph that opts are applied to."""
    return run_passes(sink, target, until="merge-rows").sink


def lower(ready: UOp, opts: Sequence[Opt], target: Target) -> LinearProgram:
    """The linear program of a prepared kernel with `opts`; raises CompilerError if they do not fit kernel or target."""
    program = _LOWERING.run(Lowering(ready, ready, target, tuple(opts))).program
    assert program is not None
    return program
