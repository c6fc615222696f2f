"""Code generation as one list of passes, from the scheduled kernel graph to the text of a module.

`PASSES` is the list; `run_passes` runs it and stops where it is told. A pass maps a `Lowering` to the next one, with
one more field filled or a new graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from anneal.codegen.apply import apply_opts
from anneal.codegen.coalesce import coalesce, merge_rows
from anneal.codegen.dialects import DIALECTS, Dialect, Text
from anneal.codegen.hardware import LaunchConfig, to_hardware
from anneal.codegen.lanes import to_runs, to_vectors
from anneal.codegen.legalise import legalise
from anneal.codegen.linear import LinearProgram, linearise
from anneal.codegen.matrices import check_matrices
from anneal.codegen.opts import Opt, Opts, opts_text, refused
from anneal.codegen.ranges import ACCESSES, extent, form, mask_of, normalise, of_kind, serial_of, unform, with_sources
from anneal.codegen.skip import skip_unused
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.rewrite import Hook, Pass, Pipeline, tell
from anneal.schedule import overwrites_rows
from anneal.uop import Ints, Known, Nodes, Op, UOp, arena, const, dtypes, of_op, ranks, toposort

_I32 = dtypes.int32
_Dims = Ints  # which ranges, by their number in the list

# -- registers and unrolled loops -------------------------------------------------------------------------------------
# Every node that depends on a range that is written out, once for each of its values.
#
# A node over two such ranges of extents 4 and 8 becomes 32 nodes, one over none of them stays one, whatever depends on
# it. The copies of an index share all of it but a constant.


class _Copies:
    def __init__(self, ranges: Nodes, serial: int) -> None:
        self.ranges, self.serial = list(ranges), serial
        self.mask = mask_of(ranges)
        self.copies: dict[UOp, tuple[_Dims, list[UOp]]] = {}
        self.paths: dict[tuple[_Dims, _Dims], list[int]] = {}

        @lru_cache(1 << 12)
        def of_bits(bits: int) -> _Dims:
            return tuple([i for i, r in enumerate(ranges) if bits >> r.arg[0] & 1])

        @lru_cache(1 << 12)
        def points(dims: _Dims) -> list[Ints]:
            return list(itertools.product(*[range(extent(ranges[d])) for d in dims]))

        self.dims = of_bits
        self.points = points  # the values of the ranges, the last fastest

    def seen_from(self, u: UOp, dims: _Dims) -> Nodes:
        """The copy of `u` that belongs to each point of `dims`."""
        mine, copies = self.copies[u]
        if mine == dims:
            return copies
        if not mine:
            return copies * len(self.points(dims))
        path = self.paths.get((mine, dims))
        if path is None:
            at = [dims.index(d) for d in mine]
            number = ranks(self.points(mine))
            path = self.paths[mine, dims] = [number[tuple([p[i] for i in at])] for p in self.points(dims)]
        return [copies[i] for i in path]

    def visit(self, u: UOp) -> None:
        op = u.op
        if op is Op.RANGE and u in self.ranges:
            self.copies[u] = (self.ranges.index(u),), [const(_I32, i) for i in range(extent(u))]
        elif op is Op.REDUCE:
            self.copies[u] = self.reduce(u)
        elif not u.ranges & self.mask:
            src = tuple([self.copies[s][1][0] for s in u.src])
            self.copies[u] = (), [u if src == u.src else with_sources(u, src, self.serial)]
        else:
            dims = self.dims(u.ranges)
            copies = [self.seen_from(s, dims) for s in u.src]
            offsets = self.indices(u.src[1], dims) if op in ACCESSES else None
            if offsets is None:
                self.copies[u] = dims, [with_sources(u, src, self.serial) for src in zip(*copies, strict=True)]
            else:
                copies[1] = offsets
                self.copies[u] = dims, [u.replace(src=src) for src in zip(*copies, strict=True)]

    def indices(self, index: UOp, dims: _Dims) -> list[UOp] | None:
        """Copies of an index that is affine in what is written out: one base, and a constant for each."""
        if not index.ranges & self.mask or index.dtype is not _I32:
            return None
        terms, constant = form(index)
        steps = {}
        for n, r in enumerate(self.ranges):
            if r in terms:
                steps[n] = terms.pop(r)
        if any(t.ranges & self.mask for t in terms):
            return None
        base = normalise(unform(terms, 0), self.serial)
        base_terms = [steps.get(d, 0) for d in dims]
        made: dict[int, UOp] = {}
        out = []
        for p in self.points(dims):
            c = constant + sum([k * v for k, v in zip(base_terms, p, strict=True)])
            u = made.get(c)
            if u is None:
                u = made[c] = base + c if c else base
            out.append(u)
        return out

    def reduce(self, u: UOp) -> tuple[_Dims, list[UOp]]:
        """A reduce over written-out ranges combines the copies of its value."""
        closed = [self.ranges.index(r) for r in u.src[1:] if r in self.ranges]
        dims = self.dims(u.ranges)
        # A range whose extent depends on data has an extent for each copy.
        left = [self.seen_from(r, dims) for r in u.src[1:] if r not in self.ranges]
        inner = (*dims, *closed)
        values = self.seen_from(u.src[0], inner)
        count = len(self.points(tuple(closed)))
        out = []
        for first in range(0, len(values), count):
            value = values[first]
            for other in values[first + 1 : first + count]:
                value = u.arg(value, other)
            # The tag says how many terms of the value are iterations of a loop, to be taken up one by one.
            tag = count if count > 1 else u.tag
            ranges = [copies[first // count] for copies in left]
            out.append(UOp(Op.REDUCE, u.dtype, (value, *ranges), u.arg, tag) if ranges else value)
        return dims, out

    def walks(self) -> Iterator[Known]:
        """The replacement of each node, as if the first copies, the second ones and so on were made by a walk each."""
        for n in range(max(len(copies) for _, copies in self.copies.values())):
            yield {u: copies[n] for u, (_, copies) in self.copies.items() if n < len(copies)}


def write_out(sink: UOp) -> UOp:
    """The kernel without its upcast and unroll ranges."""
    order = toposort(sink)
    ranges = sorted(of_op(order, Op.RANGE), key=lambda r: (r.arg[1] == "unroll", r.arg[0]))
    written = of_kind(ranges, "upcast", "unroll")
    if not written:
        return sink
    made = _Copies(written, serial_of(ranges))
    for u in order:
        if u is not sink:
            made.visit(u)
    tell(made.walks)
    return sink.replace(src=tuple([s for store in sink.src for s in made.copies[store][1]]))


# -- code generation as one list of passes, from the scheduled kernel graph to the text of a module -------------------


_LATER: Any = None


@frozen
class Lowering:
    """A kernel on its way from graph to text: the state that each pass hands on to the next.

    `kernel` is the graph as the scheduler made it, `sink` as the last pass left it. `opts` are None until they are
    chosen; nobody looks at `launch`, `program`, `text` and `source` before the pass that makes them.
    """

    kernel: UOp
    sink: UOp
    target: Target
    opts: Opts | None = None
    launch: LaunchConfig = _LATER
    program: LinearProgram = _LATER
    text: Text = _LATER
    source: str = _LATER

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.target.dialect]

    def said(self) -> list[list[UOp]]:
        """The nodes of the statements that each line of the text says: those written inside of another one first."""
        stmts, written = self.program.stmts, set(self.text.sources)
        said: dict[int, Ints] = {}
        inside: dict[int, Ints] = {}  # by the number of a statement without a line: what the line that it is in says
        first = 0
        for n, s in enumerate(stmts):
            if s.kind != "share" or stmts[n - 1].kind != "share":  # those in a row are written at once
                first = n
            parts = [x for o in s.src if isinstance(o, int) for x in inside.get(o, ())]
            said[first] = tuple(dict.fromkeys([*said.get(first, ()), *parts, n]))
            if n not in written and s.kind == "let":
                inside[s.number] = said[n]
        return [[u for n in said[at] if (u := stmts[n].node) is not None] for at in self.text.sources]


def _on_sink(change: Callable[[UOp], UOp]) -> Callable[[Lowering], Lowering]:
    """A pass that makes a new graph of the last one, and nothing else."""
    return lambda s: replace(s, sink=change(s.sink))


def _choose(s: Lowering) -> Lowering:
    opts = s.opts if s.opts is not None else s.dialect.choose(s.sink, s.target)
    if not any(o.kind == "FUSE_REDUCE" for o in opts) and overwrites_rows(s.kernel):
        raise CompilerError(
            "a kernel that overwrites its rows needs the opt FUSE_REDUCE: only then they are not read later"
        )
    return replace(s, opts=opts)


def _apply(s: Lowering) -> Lowering:
    check_matrices(s.opts or (), s.target)
    return replace(s, sink=apply_opts(s.sink, s.opts or (), s.target.unaligned))


def _map(s: Lowering) -> Lowering:
    sink, launch = to_hardware(s.sink)
    return replace(s, sink=sink, launch=launch)


def _linearise(s: Lowering) -> Lowering:
    program, target = linearise(s.sink, s.launch), s.target
    if s.launch.threads > target.max_threads:
        raise refused(f"{s.launch.threads} threads in a workgroup; the target has {target.max_threads}")
    if program.shared_bytes > target.workgroup_bytes:
        raise refused(f"{program.shared_bytes} bytes of workgroup memory; the target has {target.workgroup_bytes}")
    return replace(s, program=program)


# -- views ------------------------------------------------------------------------------------------------------------


def _graph(s: Lowering) -> tuple[UOp]:
    return (s.sink,)


PASSES: Pipeline[Lowering] = Pipeline(
    "codegen",
    (
        Pass(
            "legalise",
            lambda s: replace(s, sink=legalise(s.sink, s.target, s.dialect.text_of)),
            _graph,
            "ops and dtypes that a dialect has: narrow dtypes computed wide, bools as logic, ranks for ARGSORT",
            "legal",
        ),
        Pass(
            "coalesce-loops",
            _on_sink(coalesce),
            _graph,
            "neighbouring ranges become one wherever every index uses them as one",
            "legal",
        ),
        Pass(
            "merge-rows",
            _on_sink(merge_rows),
            _graph,
            "one range for a row of several axes, so that its reductions can be fused into the loop over it",
            "legal",
        ),
        Pass(
            "choose-opts",
            _choose,
            lambda s: [opts_text(s.opts or ()) or "no opts"],
            "a split for each range, by rules without search, unless the caller gives them",
        ),
        Pass(
            "apply-opts",
            _apply,
            _graph,
            "each range is split into pieces with a job each: workgroups, threads, registers, lanes, loops",
            "linear",
        ),
        Pass(
            "skip-unused",
            _on_sink(skip_unused),
            _graph,
            "removes loads, iterations and stores that a whole workgroup would discard",
            "linear",
        ),
        Pass(
            "map-to-hardware",
            _map,
            lambda s: [repr(s.launch), s.sink],
            "workgroups and threads become digits of mixed-radix hardware indices; tiles are filled",
            "linear",
        ),
        Pass(
            "write-out",
            _on_sink(write_out),
            _graph,
            "a copy of each node for each value of its registers and unrolled iterations",
            "linear",
        ),
        Pass(
            "vectorise",
            lambda s: replace(s, sink=(to_runs if s.target.unaligned else to_vectors)(s.sink)),
            _graph,
            "aligned accesses along a vector range become accesses to whole vectors",
            "linear",
        ),
        Pass(
            "linearise",
            _linearise,
            lambda s: [str(s.program)],
            "statements in order, every value named once, in the outermost loop where it is known",
        ),
        Pass(
            "write-body",
            lambda s: replace(s, text=s.dialect.write(s.program, s.target)),
            lambda s: s.text.lines,
            "the statements as text, by the dialect's table from op to text",
        ),
        Pass(
            "write-module",
            lambda s: replace(s, source=s.dialect.module((s.text,), s.target)),
            lambda s: [s.source],
            "wraps the body in its bindings, workgroup memory and functions",
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
    return _LOWERING.run(Lowering(ready, ready, target, tuple(opts))).program
