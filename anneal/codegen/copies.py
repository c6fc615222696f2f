"""Registers and unrolled loops: every node that depends on a range that is written out, once for each of its values.

A node over two such ranges of extents 4 and 8 becomes 32 nodes, one over none of them stays one, whatever depends on
it. The copies of an index share all of it but a constant.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from anneal.codegen.affine import form, normalise, unform
from anneal.codegen.ranges import SERIAL, mask_of, with_sources
from anneal.rewrite import tell
from anneal.uop import Op, UOp, alu, const, dtypes, toposort

_I32 = dtypes.int32
_Dims = tuple[int, ...]  # which ranges, by their number in the list


class _Copies:
    def __init__(self, ranges: Sequence[UOp], serial: int) -> None:
        self.ranges, self.serial = list(ranges), serial
        self.extents = [int(r.src[0].arg) for r in ranges]
        self.mask = mask_of(ranges)
        self.copies: dict[UOp, tuple[_Dims, list[UOp]]] = {}
        self.dims_of: dict[int, _Dims] = {}
        self.points_of: dict[_Dims, list[tuple[int, ...]]] = {}
        self.paths: dict[tuple[_Dims, _Dims], list[int]] = {}

    def dims(self, bits: int) -> _Dims:
        bits &= self.mask
        found = self.dims_of.get(bits)
        if found is None:
            found = tuple([i for i, r in enumerate(self.ranges) if bits >> r.arg[0] & 1])
            self.dims_of[bits] = found
        return found

    def points(self, dims: _Dims) -> list[tuple[int, ...]]:
        """The values of the ranges, the last fastest."""
        found = self.points_of.get(dims)
        if found is None:
            found = self.points_of[dims] = list(itertools.product(*[range(self.extents[d]) for d in dims]))
        return found

    def seen_from(self, u: UOp, dims: _Dims) -> list[UOp]:
        """The copy of `u` that belongs to each point of `dims`."""
        mine, copies = self.copies[u]
        if mine == dims:
            return copies
        if not mine:
            return copies * len(self.points(dims))
        path = self.paths.get((mine, dims))
        if path is None:
            at = [dims.index(d) for d in mine]
            number = {p: n for n, p in enumerate(self.points(mine))}
            path = self.paths[mine, dims] = [number[tuple([p[i] for i in at])] for p in self.points(dims)]
        return [copies[i] for i in path]

    def visit(self, u: UOp) -> None:
        op = u.op
        if op is Op.RANGE and u in self.ranges:
            n = self.ranges.index(u)
            self.copies[u] = (n,), [const(_I32, i) for i in range(self.extents[n])]
        elif op is Op.REDUCE:
            self.copies[u] = self.reduce(u)
        elif not u.ranges & self.mask:
            src = tuple([self.copies[s][1][0] for s in u.src])
            self.copies[u] = (), [u if src == u.src else with_sources(u, src, self.serial)]
        elif op is Op.LOAD or op is Op.STORE:
            self.copies[u] = self.access(u)
        else:
            dims = self.dims(u.ranges)
            src_copies = [self.seen_from(s, dims) for s in u.src]
            self.copies[u] = dims, [with_sources(u, src, self.serial) for src in zip(*src_copies, strict=True)]

    def access(self, u: UOp) -> tuple[_Dims, list[UOp]]:
        dims = self.dims(u.ranges)
        src = [self.seen_from(s, dims) for s in u.src]
        offsets = self.indices(u.src[1], dims)
        if offsets is None:
            return dims, [with_sources(u, s, self.serial) for s in zip(*src, strict=True)]
        src[1] = offsets
        return dims, [UOp(u.op, u.dtype, s, u.arg, u.tag) for s in zip(*src, strict=True)]

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
                value = alu(u.arg, (value, other))
            # The tag says how many terms of the value are iterations of a loop, to be taken up one by one.
            tag = count if count > 1 else u.tag
            ranges = [copies[first // count] for copies in left]
            out.append(UOp(Op.REDUCE, u.dtype, (value, *ranges), u.arg, tag) if ranges else value)
        return dims, out

    def walks(self) -> Iterator[dict[UOp, UOp]]:
        """The replacement of each node, as if the first copies, the second ones and so on were made by a walk each."""
        for n in range(max(len(copies) for _, copies in self.copies.values())):
            yield {u: copies[n] for u, (_, copies) in self.copies.items() if n < len(copies)}


def write_out(sink: UOp) -> UOp:
    """The kernel without its upcast and unroll ranges."""
    order = toposort((sink,))
    ranges = sorted([u for u in order if u.op is Op.RANGE], key=lambda r: (r.arg[1] == "unroll", r.arg[0]))
    written = [r for r in ranges if r.arg[1] in ("upcast", "unroll")]
    if not written:
        return sink
    made = _Copies(written, mask_of([r for r in ranges if r.arg[1] in SERIAL]))
    for u in order:
        if u is not sink:
            made.visit(u)
    tell(made.walks)
    stores = [s for store in sink.src for s in made.copies[store][1]]
    return UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg, sink.tag)
