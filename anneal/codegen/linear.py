"""The linear program: a lowered kernel as statements in order, every value named once.

Values live in the outermost loop where their ranges are known, shared subgraphs once. Reduces over the same ranges that
do not need each other share a loop, and reduces that threads share have their barriers in common. Nothing here knows
WGSL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anneal.codegen.hardware import LaunchConfig
from anneal.codegen.lanes import is_whole, memory_of
from anneal.codegen.opts import identity
from anneal.codegen.ranges import SERIAL, ZERO, conjunction, conjuncts, factors, is_fragment, is_product, substituted
from anneal.codegen.target import per_word
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.uop import Known, Nodes, Numbers, Op, Src, UOp, const, dtypes, of_op, toposort
from anneal.uop.sizes import variables_of

_ONE = const(dtypes.int32, 1)
_NAMED = frozenset((Op.CONST, Op.VARIABLE, Op.PARAM, Op.SHARED))

_IN_REGISTERS = 160  # numbers of a thread: results of a staged reduce, and the loads of their epilogue at a time
_AHEAD = 96  # words that are loaded before the strip of sums they are stored with
_EARLY = 24  # words loaded outside of reduces that may wait in registers until those are done

# An operand is the number of the statement that made a value, or a constant or PARAM node.
Operand = int | UOp


_Stores = list[tuple[UOp, Src]]  # with what each takes: index, value and what is left of its predicate


class Stmt(NamedTuple):
    """One statement. `number` names its value, if it has one.

    kind      node      src
    let       the op    its sources
    acc       a value   (initial value,): a variable
    update    REDUCE    (accumulator, value), or (accumulator, a, b) to add a product
    set       a value   (variable, value)
    for       RANGE     (extent,); its value is the loop variable; closed by end; a "written" one's body is repeated
    end
    share     REDUCE    (value,); consecutive ones share their barriers
    guard               (condition,): threads where it is false are done
    store     STORE     (param, index, value[, predicate]); into workgroup memory, too
    barrier
    """

    kind: str
    number: int
    node: UOp | None
    src: tuple[Operand, ...]
    depth: int


class Param(NamedTuple):
    """A storage binding: slot, elements, dtype, and whether the kernel stores to it."""

    slot: int
    node: UOp
    written: bool

    @property
    def nbytes(self) -> int:
        """The bytes of the memory that the kernel takes for it."""
        size = int(self.node.arg[1][0]) if self.node.arg[1] else 1
        return size * self.node.dtype.device_itemsize


@frozen
class LinearProgram:
    """Statements, bindings in slot order, and the launch.

    `lanes` maps the bit of a vector range to its lanes, `wide` memory to the lanes of its elements; `sub_word` is the
    memory that has sub-word stores.
    """

    stmts: tuple[Stmt, ...]
    params: tuple[Param, ...]
    launch: LaunchConfig
    lanes: Mapping[int, int]
    wide: Mapping[UOp, int]
    tiles: Src
    sub_word: frozenset[UOp] = frozenset()
    variables: Src = ()  # by name

    def width(self, u: UOp) -> int:
        """Lanes of a value: 1 for a scalar."""
        return _width(u, self.lanes)

    def __str__(self) -> str:
        """A line for every statement, indented by its loops."""
        return "\n".join(map(_line, self.stmts))

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory: tiles, and what threads that share a reduce exchange (at most)."""
        tiles = sum(int(t.arg[1][0]) * t.dtype.device_itemsize for t in self.tiles)
        parts = [s.node for s in self.stmts if s.kind == "share" and s.node is not None]
        return tiles + sum(self.launch.threads * self.width(u) * u.dtype.itemsize for u in parts)


def _line(s: Stmt) -> str:
    """One statement as a reader sees it.

    >>> _line(Stmt("guard", 3, None, (2, const(dtypes.int32, 8)), 1))
    '  guard(%2, 8)'
    """
    u, indent = s.node, "  " * s.depth
    if u is None:
        op = ""
    else:
        op = f" {u.op.name}" + (f" {u.arg[0]}" if u.op is Op.SPECIAL else f" {u.arg}" if u.op is Op.LANE else "")
    operands = ", ".join([f"%{o}" if isinstance(o, int) else _leaf(o) for o in s.src])
    name = f"%{s.number} = " if s.kind in ("let", "acc", "for", "share") else ""
    return f"{indent}{name}{s.kind}{op}" + (f"({operands})" if operands else "")


def _leaf(u: UOp) -> str:
    """A node that stands for itself: a number, memory, a variable or the lanes of a vector."""
    if u.is_const:
        return repr(u.arg)
    return {Op.PARAM: "p", Op.SHARED: "tile"}.get(u.op, f"{u.op.name.lower()} ") + str(u.arg[0])


def _width(u: UOp, lanes: Mapping[int, int]) -> int:
    for bit, n in lanes.items():
        if u.ranges & bit:
            return n
    return 1


@dataclass(slots=True)
class _Block:
    mask: int
    depth: int
    stmts: list[Stmt] = field(default_factory=list)
    names: dict[UOp, Operand] = field(default_factory=dict)
    range: UOp | None = None  # of a loop
    synchronises: bool = False  # its threads wait for each other: again before the next iteration


_WHOLE = frozenset((Op.REDUCE, Op.BUFFERIZE))


def _sources(u: UOp) -> Src:
    # A reduce and a tile are emitted as a whole: the nodes below them belong to their loop.
    if u.op in _WHOLE:
        return ()
    return u.src[:1] if u.op is Op.LANES and is_fragment(u) else u.src


class _Lineariser:
    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.count = 0
        self.stack = [_Block(0, 0)]
        self.serial = 0
        self.loops: list[UOp] = []
        self.levels: Numbers = {}
        self.lanes: dict[int, int] = {}
        self.wide: Numbers = {}
        self.tiles: list[UOp] = []
        self.strips: list[UOp] = []  # tiles of sums that subgroup matrices made
        self.sub_word: set[UOp] = set()
        self.variables: dict[str, UOp] = {}
        self._analyse()

    def _analyse(self) -> None:
        # The level of a reduce: how many reduces deep its value is. Reduces of one level do not need each other.
        level: Numbers = {}
        params: dict[UOp, bool] = {}
        for u in toposort(self.sink):
            level[u] = max([level[s] for s in u.src], default=0) + (u.op is Op.REDUCE)
            if u.op is Op.REDUCE:
                self.levels[u] = level[u]
            elif u.op is Op.RANGE:
                if u.arg[1] in SERIAL:
                    self.serial |= 1 << u.arg[0]
                    self.loops.append(u)
                elif u.arg[1] == "vector":
                    self.lanes[1 << u.arg[0]] = int(u.src[0].arg)
            elif u.op is Op.PARAM:
                params.setdefault(u, False)
            elif u.op is Op.SHARED:
                self.tiles.append(u)
            elif u.op is Op.BUFFERIZE and u.arg[0] == "matrices":
                self.strips.append(u)
            elif u.op is Op.VARIABLE:
                self.variables[u.arg[0]] = u
            elif u.op is Op.STORE and u.src[0].op is Op.PARAM:
                params[u.src[0]] = True
                if per_word(u.dtype) > 1 and not is_whole(u.src[1]):
                    self.sub_word.add(u.src[0])
            if (u.op is Op.LOAD or u.op is Op.STORE) and is_whole(u.src[1]):
                self.wide[memory_of(u.src[0])] = int(u.src[1].src[1].src[0].arg)
            elif u.op is Op.LOAD and u.arg is not None:
                self.wide.setdefault(memory_of(u.src[0]), 4)
        self.loops.sort(key=lambda r: int(r.arg[0]))
        self.params = tuple(Param(p.arg[0], p, w) for p, w in sorted(params.items(), key=lambda kv: kv[0].arg[0]))

    # -- emitting

    def add(self, block: _Block, kind: str, node: UOp | None, *src: Operand) -> int:
        """A statement at the end of a block; nodes among its operands are values that are made already."""
        operands = tuple([x if isinstance(x, int) else self.operand(x) for x in src])
        self.count += 1
        block.stmts.append(Stmt(kind, self.count, node, operands, block.depth))
        return self.count

    def find(self, u: UOp) -> Operand | None:
        if u.op in _NAMED or (u.op is Op.RANGE and u.arg[1] not in SERIAL):
            return u
        for b in self.stack:  # a generator would be the most calls of all that compiling a kernel makes
            if (found := b.names.get(u)) is not None:
                return found
        return None

    def operand(self, u: UOp) -> Operand:
        got = self.find(u)
        if got is None:
            raise CompilerError("a value was used before it was made", stage="linearise", node=u)
        return got

    def home(self, u: UOp) -> int:
        """The outermost open block that knows every loop `u` depends on."""
        need = u.ranges & self.serial
        for i, b in enumerate(self.stack):
            if not need & ~b.mask:
                return i
        raise CompilerError("a value depends on a loop that is not open", stage="linearise", node=u)

    def order(self, roots: Nodes) -> Nodes:
        """The nodes to be emitted for `roots`, sources first; reduces are leaves."""
        return toposort(roots, lambda u: self.find(u) is not None, _sources)

    def emit(self, roots: Nodes) -> None:
        order = self.order(roots)
        together: dict[tuple[object, ...], list[UOp]] = {}
        for u in order:
            if u.op is Op.REDUCE:
                together.setdefault(self.loop_key(u), []).append(u)
        for u in order:
            if self.find(u) is not None:
                continue  # made meanwhile, for a loop that came first
            if u.op is Op.LANES and (is_whole(u) or is_fragment(u)):
                self.stack[self.home(u)].names[u] = self.operand(u.src[0])
            elif u.op is Op.BUFFERIZE:
                at = self.home(u)
                self.fill([x for x in order if x.op is Op.BUFFERIZE and self.home(x) == at], at)
            elif u.op is not Op.REDUCE:
                block = self.stack[self.home(u)]
                block.names[u] = self.add(block, "let", u, *u.src)
            else:
                members = together[self.loop_key(u)]
                full, at = self.stack, self.home(u)
                self.stack = full[: at + 1]
                if u.src[1].arg[1] == "group":
                    self.share(members)
                else:
                    self.loop(members)
                self.stack = full

    def early_loads(self, roots: Nodes) -> Nodes:
        """Loads that need no reduce, if they are few: on their way while threads wait for each other at barriers, which
        they cannot cross by themselves."""
        late = set()
        early = []
        for u in self.order(roots):
            if u.op is Op.REDUCE or any(s in late for s in u.src):
                late.add(u)
            elif u.op is Op.LOAD and not u.ranges & self.serial:
                early.append(u)
        return early if sum(map(self.lanes_of, early)) <= _EARLY else []

    def loop_key(self, u: UOp) -> tuple[object, ...]:
        return (u.src[1:], u.ranges & self.serial, self.levels[u])

    def loop(self, members: Nodes) -> None:
        """Accumulators, the loops over the members' common ranges, and one update each."""
        outer = self.stack[-1]
        accs = [self.add(outer, "acc", u, identity(u.arg, u.dtype)) for u in members]
        with self.looping([r for r in members[0].src[1:] if r.arg[1] in SERIAL and r.src[0] is not _ONE]):
            iterations = [_iterations(u) for u in members]
            for at in range(max(map(len, iterations))):
                # Iteration by iteration: the operands of one are loaded just before it.
                now = [(u, acc, i[at]) for u, acc, i in zip(members, accs, iterations, strict=True) if at < len(i)]
                self.emit([x for _, _, parts in now for x in parts])
                for u, acc, parts in now:
                    self.add(self.stack[-1], "update", u, acc, *parts)
        outer.names.update(zip(members, accs, strict=True))

    @contextlib.contextmanager
    def looping(self, ranges: Nodes) -> Iterator[None]:
        """Within the block, loops over `ranges` are open."""
        depth = len(self.stack)
        for r in ranges:
            self.emit([r.src[0]])
            parent = self.stack[-1]
            block = _Block(parent.mask | 1 << r.arg[0], parent.depth + 1, range=r)
            self.count += 1
            block.stmts.append(Stmt("for", self.count, r, (self.operand(r.src[0]),), parent.depth))
            block.names[r] = self.count
            self.stack.append(block)
        yield
        while len(self.stack) > depth:
            closed = self.stack.pop()
            if closed.synchronises:
                self.add(closed, "barrier", None)
            closed.stmts.append(Stmt("end", 0, None, (), closed.depth - 1))
            self.stack[-1].stmts += closed.stmts

    def fill(self, members: Nodes, at: int) -> None:
        """The tiles that `members` fill, all before one barrier."""
        full = self.stack
        self.stack = full[: at + 1]
        block = self.stack[-1]
        stores = [(tile, s) for tile in members for s in tile.src[0].src]
        prefetched = []
        values: list[Operand] = []
        # in the first iteration of the block's loop, and in the one after each, or the last
        first = {}
        later = {}
        if (loop := block.range) is not None:
            first[loop], later[loop] = ZERO, Op.MIN(loop + 1, loop.src[0] - 1)
        self.emit(
            [s.src[2] for tile, s in stores if tile.arg[0] == "stored" and not tile.arg[1]]
        )  # made of the same sums, in one loop
        for tile, s in stores:
            self.emit([s.src[1], *s.src[3:]])
            if tile.arg[1] and block.range is not None:
                values.append(self.fetch_first(s.src[2], first))
                prefetched.append((values[-1], s.src[2]))
            else:
                self.emit([s.src[2]])
                values.append(s.src[2])
        for (_, s), value in zip(stores, values, strict=True):
            self.add(block, "store", s, *s.src[:2], value, *s.src[3:])
        self.add(block, "barrier", None)
        block.synchronises = block.range is not None and not all(tile.arg[2] for tile in members)
        for tile in members:
            block.names[tile] = memory_of(tile)
        for variable, value in prefetched:
            needed = substituted(value, later, self.serial)
            self.emit([needed])
            self.add(block, "set", value, variable, needed)
        self.stack = full

    def fetch_first(self, value: UOp, first: Known) -> int:
        """A variable before the loop, with what its first iteration needs."""
        inside = self.stack
        self.stack = inside[:-1]
        needed = substituted(value, first, self.serial)
        self.emit([needed])
        out = self.add(self.stack[-1], "acc", value, needed)
        self.stack = inside
        return out

    def share(self, members: Nodes) -> None:
        """Partial results of a group's threads, combined: all members at the same barriers."""
        block = self.stack[-1]
        if len(self.stack) > 1:
            raise CompilerError("a shared reduce stands inside a loop", stage="linearise", node=members[0])
        self.emit([u.src[0] for u in members])
        for u in members:
            block.names[u] = self.add(block, "share", u, u.src[0])

    def store_in_batches(self, stores: _Stores) -> None:
        """Stores after a staged reduce, whose results fill the registers: a few at a time with what they load.

        All loads come first after all, if an element might be stored before it is read.
        """
        order = self.order(_given(stores))
        self.emit(of_op(order, Op.REDUCE))
        by_index: dict[UOp, _Stores] = {}
        for s, src in stores:
            by_index.setdefault(s.src[1], []).append((s, src))
        written = {s.src[0] for s, _ in stores}
        several = list(by_index.values())
        if any(u.src[0] in written for u in order if u.op is Op.LOAD):
            for at, members in by_index.items():
                reads = self.loads(members)
                here = {s.src[0] for s, _ in members}
                if any(u.src[0] in written and not (u.src[0] in here and u.src[1] is at) for u in reads):
                    several = [stores]
                    break
        results = sum(self.lanes_of(u) for u in order if u.op is Op.REDUCE and not u.ranges & self.serial)
        left = results
        loads: Numbers = {}
        waiting = []
        for n, members in enumerate(several):
            mine = [u for u in self.loads(members) if u not in loads]
            loads |= {u: self.lanes_of(u) for u in mine}
            waiting += members
            full = sum(map(self.lanes_of, mine)) + sum(loads.values()) + left > _IN_REGISTERS
            if mine and not full and n + 1 < len(several):
                continue
            # The loads side by side, and each value computed just before it is stored: registers are few.
            self.emit(self.loads(waiting))
            if len(several) == 1:
                self.emit(_given(waiting))
            self.store(waiting)
            loads, waiting, left = {}, [], results * (len(several) - n - 1) // len(several)

    def store_strips(self, strips: Nodes, stores: _Stores) -> None:
        """Stores of what is computed from matrices, strip by strip: they share workgroup memory."""
        block = self.stack[-1]
        mine: dict[UOp, _Stores] = {strip: [] for strip in strips}
        for s, src in stores:
            mine[next((u for u in self.order(list(src)) if u in mine), strips[0])].append((s, src))
        self.emit([s.src[2] for strip in strips for s in strip.src[0].src])
        # Other values that a strip's stores take are read as early as registers allow: before barriers, not between.
        reads = self.reads_apart(strips, mine)
        ahead = waiting = 0
        for n, strip in enumerate(strips):
            while ahead < len(strips) and (ahead <= n or waiting + reads[ahead][1] <= _AHEAD):
                self.emit(reads[ahead][0])
                waiting += reads[ahead][1]
                ahead += 1
            waiting -= reads[n][1]
            if n:
                self.add(block, "barrier", None)
            self.store([(s, s.src[1:]) for s in strip.src[0].src])
            self.add(block, "barrier", None)
            block.names[strip] = memory_of(strip)
            # The loads side by side, and each value computed just before it is stored.
            self.emit(self.loads(mine[strip]))
            self.store(mine[strip])

    def reads_apart(self, strips: Nodes, stores: Mapping[UOp, _Stores]) -> list[tuple[list[UOp], int]]:
        """The loads of each strip's stores that need no strip, and the words of those that no strip before it needs."""
        found = []
        late, known = set(strips), set[UOp]()
        for strip in strips:
            loads = []
            for u in self.order(_given(stores[strip])):
                if any(s in late for s in u.src):
                    late.add(u)
                elif u.op is Op.LOAD:
                    loads.append(u)
            words = sum(-(-self.lanes_of(u) * u.dtype.bits // 32) for u in loads if u not in known)
            known.update(loads)
            found.append((loads, words))
        return found

    def loads(self, stores: _Stores) -> Nodes:
        """The values that are yet to be loaded for stores."""
        return of_op(self.order(_given(stores)), Op.LOAD)

    def store(self, stores: _Stores) -> None:
        """Stores, each with what it takes if that isn't made yet."""
        for s, src in stores:
            self.emit(list(src))
            self.add(self.stack[-1], "store", s, s.src[0], *src)

    def lanes_of(self, u: UOp) -> int:
        """Lanes of a value: 1 for a scalar."""
        return _width(u, self.lanes)

    def run(self, launch: LaunchConfig) -> LinearProgram:
        root = self.stack[0]
        asked = {}  # of each store that is ever made
        for s in self.sink.src:
            predicates = conjuncts(s.src[3]) if len(s.src) == 4 else []
            if all(not p.is_const or p.arg for p in predicates):
                asked[s] = [p for p in predicates if not p.is_const]
        shared = any(u.src[1].arg[1] == "group" for u in self.levels)
        # Threads past the end leave at once: the predicate of all stores is asked first. Where threads wait at barriers
        # all leave or all stay.
        synchronised = shared or bool(self.tiles)
        common = [p for p in next(iter(asked.values()), ()) if all(p in r for r in asked.values()) and not p.ranges]
        common = [p for p in common if not any(_differs(u, synchronised) for u in self.order([p]))]
        if common:
            self.emit(common)
            self.add(root, "guard", None, *common)
        # Every load comes before every store: a buffer may be both read and written. Of stores in loops (over rows too
        # long for registers) that holds for each iteration; loads outside of them come before.
        by_loops: dict[int, _Stores] = {0: []}
        for s, r in asked.items():
            left = conjunction([p for p in r if p not in common])
            by_loops.setdefault(s.ranges & self.serial, []).append((s, (*s.src[1:3], *left)))
        outside = _given(by_loops[0])
        if shared and not self.tiles:
            self.emit(self.early_loads(outside))
        if self.strips:
            self.store_strips(self.strips, by_loops.pop(0))
        elif self.tiles and len(by_loops) == 1:
            self.store_in_batches(by_loops.pop(0))
        else:
            self.emit(outside)
        for loops in sorted(by_loops, reverse=True):
            with self.looping([r for r in self.loops if loops >> r.arg[0] & 1]):
                self.emit(_given(by_loops[loops]))
                self.store(by_loops[loops])
        tiles = tuple(sorted(self.tiles, key=lambda t: int(t.arg[0])))
        self.variables |= {v.arg[0]: v for v in variables_of(launch.needed)} if launch.needed is not None else {}
        variables = tuple([self.variables[n] for n in sorted(self.variables)])
        sub_word = frozenset(self.sub_word)
        return LinearProgram(tuple(root.stmts), self.params, launch, self.lanes, self.wide, tiles, sub_word, variables)


def _given(stores: _Stores) -> Nodes:
    """The nodes that stores take, all together."""
    return [x for _, src in stores for x in src]


def _iterations(u: UOp) -> list[Src]:
    """The terms that unrolled iterations of a loop add to an accumulator, in their order; products as two factors."""
    value, terms = u.src[0], []
    for _ in range(u.tag - 1 if isinstance(u.tag, int) else 0):
        if value.op is not u.arg:
            break
        value, last = value.src
        terms.append(last)
    terms.append(value)
    if is_product(u):
        return [factors(t) for t in reversed(terms)]
    products = u.arg is Op.ADD and u.dtype.is_float
    return [t.src if products and t.op is Op.MUL else (t,) for t in reversed(terms)]


def _differs(u: UOp, synchronised: bool) -> bool:
    """True if a thread reads memory for `u`, or has a value of its own where threads are `synchronised`."""
    return u.op is Op.LOAD or (synchronised and u.op is Op.SPECIAL and u.arg[0] == "lid")


def linearise(sink: UOp, launch: LaunchConfig) -> LinearProgram:
    """The statements of a lowered kernel."""
    return _Lineariser(sink).run(launch)
