"""Constants, identity, control flow: which subgraph runs, how often, and what its turns give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from anneal.onnx.execute import Call, NeedsHostError, Pieces
from anneal.onnx.graph import Graph
from anneal.onnx.registry import Implementation, op
from anneal.onnx.values import size_of
from anneal.tensor import Tensor, vjp

_UNROLLED = 1024  # nodes that the turns of a loop run together, where they become one graph
_LONG = 64  # turns that do: a value that each makes of the last one's is computed anew in each kernel that takes it
_TOGETHER = 32  # rows that are stacked or taken apart at once, where turns are replayed


@op("Constant", raw=True)
def constant(
    node: Call,
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
) -> Any:
    """The value of an attribute."""
    for found in (value, sparse_value):
        if found is not None:
            return found
    for found, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if found is not None:
            return np.asarray(found, dtype)
    raise node.fail("has no value", "export the model with its weights")


@op("Identity", raw=True, sizes=True)
def identity(node: Call, x: Any) -> Any:
    """The input itself."""
    return x


@op("If", raw=True, sizes=True, values=("cond",))
def if_(node: Call, cond: Any, *, then_branch: Graph, else_branch: Graph) -> Any:
    """The results of one of two subgraphs."""
    if cond.size != 1:
        raise node.fail(f"its condition has {cond.size} elements, not one")
    return tuple(node.run(then_branch if cond.item() else else_branch))


@op("Loop", raw=True, sizes=True, values=("most", "cond"))
def loop(node: Call, most: Any = None, cond: Any = None, *carried: Any, body: Graph) -> Any:
    """A subgraph run again and again, at most `most` times, as long as it says so.

    What it carries goes from turn to turn; its further outputs are stacked, a row for each turn.
    """
    state = list(carried)
    if len(body.inputs) != 2 + len(state) or len(body.outputs) < 1 + len(state):
        raise node.fail(
            f"carries {len(state)} values, but its body takes {len(body.inputs) - 2} and gives {len(body.outputs) - 1}"
        )
    rows: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    goes = cond is None or bool(_one(node, cond, "condition"))
    turns = None if most is None else int(_one(node, most, "count"))
    if (
        turns is not None
        and turns <= node.of.budget
        and goes
        and not any(node.decides(v.name) for v in body.inputs[:1])
    ):
        pieces = _replays(node, body, turns)
        numbers, out_axes = (np.arange(turns), 0), [0] * len(rows)
        growing = any(isinstance(x, list) for x in state)  # another length in each turn
        if (
            pieces is not None
            and not growing
            and (
                done := _in_chunks(
                    node, pieces, _TURNS, [numbers], lambda n, state: [*n, None, *state], state, out_axes, body
                )
            )
        ):
            return done
    turn = 0
    while goes and (turns is None or turn < turns):
        results = node.run(body, node.count(turn), node.truth(True), *state)
        state = results[1 : 1 + len(state)]
        for row, value in zip(rows, results[1 + len(state) :]):
            row.append(value)
            node.room(turn + 1, size_of(value))
        turn += 1
        if turns is None or turn < turns:
            goes = bool(_one(node, node.host(results[0], "it says whether a loop goes on"), "condition"))
    stacked = [_stacked(node, row) if row else _no_rows(node, body, 1 + len(state) + n) for n, row in enumerate(rows)]
    return (*state, *stacked)


def _replays(node: Call, body: Graph, turns: int) -> Pieces | None:
    """The place for captures, if so many turns are not to be one graph because that would be large."""
    return node.replays(f"{turns} turns") if turns > _LONG or turns * len(body.nodes) > _UNROLLED else None


def _in_chunks(
    node: Call,
    pieces: Pieces,
    of: Implementation,
    scanned: list[tuple[Any, int]],
    given: Callable[[Sequence[Any], list[Any]], list[Any]],
    state: list[Any],
    out_axes: list[int],
    body: Graph,
) -> Any:
    """The results of all turns, a few of which are captured together and replayed; None where that cannot be.

    `of` computes a few turns from what `given` makes of pieces of `scanned`, each with its axis, and of the state.
    """
    few = max(1, min(_TOGETHER, _UNROLLED // max(len(body.nodes), 1)))
    count = len(state) + len(out_axes)
    rows: list[list[Any]] = []
    try:
        for parts in zip(*[_chunks(pieces, node.tensor(x), axis, few) for x, axis in scanned]):
            results = node.captured(pieces, of, given(parts, state), count)
            state = results[: count - len(out_axes)]
            rows.append([node.tensor(r) for r in results[len(state) :]])
            for row in rows[-1]:
                node.room(len(rows), size_of(row))
    except NeedsHostError:
        return None
    joined = []
    for column, axis in zip(zip(*rows), out_axes):
        at = axis % column[0].ndim
        joined.append(pieces.kept(("cat", at), partial(_join, at))(list(column)))
    return (*state, *joined)


def _join(axis: int) -> Callable[[list[Tensor]], Tensor]:
    return lambda few: Tensor.cat(few, axis)


def _chunks(pieces: Pieces, x: Tensor, axis: int, few: int) -> list[Tensor]:
    """A value in pieces along an axis."""
    lead = (slice(None),) * (axis % x.ndim)

    def split(whole: Tensor) -> Any:
        return [whole[(*lead, slice(n, n + few))] for n in range(0, whole.shape[len(lead)], few)]

    found: list[Tensor] = pieces.kept(("split", len(lead), few), lambda: split)(x)
    return found


def _turns(node: Call, numbers: Tensor, goes: Any = None, *carried: Any, body: Graph) -> Any:
    """A few turns of a loop that goes on, whose numbers are given."""
    state = list(carried)
    rows: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    for n in range(numbers.shape[0]):
        results = node.run(body, numbers[n], node.truth(True), *state)
        if not isinstance(results[0], np.ndarray) or not _one(node, results[0], "condition"):
            raise NeedsHostError(str(node.node))
        state = results[1 : 1 + len(state)]
        for row, value in zip(rows, results[1 + len(state) :]):
            row.append(value)
    return (*state, *[_stacked(node, row) for row in rows])


_TURNS = Implementation(
    "turns",
    "",
    1,
    _turns,
    None,
    frozenset(),
    True,
    False,
    True,
    True,
    ("numbers", "goes", "carried"),
    True,
    {"body": None},
)


def _one(node: Call, value: Any, what: str) -> Any:
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise node.fail(f"its {what} is not one number")
    return value.reshape(())[()]


def _stacked(node: Call, rows: list[Any], axis: int = 0) -> Any:
    """Values of one shape as rows of one value."""
    if any(r is None or isinstance(r, list) for r in rows):
        raise node.fail("a turn gives no tensor to be stacked")
    shapes = {tuple(r.shape) for r in rows}
    if len(shapes) > 1:
        raise node.fail(f"its turns give rows of shapes {sorted(shapes)}, which cannot be stacked")
    if not any(isinstance(r, Tensor) for r in rows):
        return np.stack(rows, axis)
    tensors = [node.tensor(r) for r in rows]
    pieces = node.of.pieces
    if pieces is None or len(rows) <= _TOGETHER:
        return Tensor.stack(tensors, axis)
    # a few rows at a time, so that no graph has all of them
    some = pieces.kept(("stack", axis), lambda: lambda *few: Tensor.stack(few, axis))
    joined = pieces.kept(("join", axis), lambda: lambda *few: Tensor.cat(few, axis))
    parts = [some(*tensors[n : n + _TOGETHER]) for n in range(0, len(tensors), _TOGETHER)]
    while len(parts) > 1:
        parts = [joined(*parts[n : n + _TOGETHER]) for n in range(0, len(parts), _TOGETHER)]
    return parts[0]


def _slices(node: Call, x: Any, axis: int) -> list[Any]:
    """The slices of a value along an axis, in order."""
    count = int(x.shape[axis])
    pieces = node.of.pieces
    if not isinstance(x, Tensor) or pieces is None or count <= _TOGETHER:
        return [_slice(x, axis, n) for n in range(count)]
    lead = (slice(None),) * (axis % x.ndim)

    def parts(whole: Tensor) -> Any:
        return [whole[(*lead, slice(n, n + _TOGETHER))] for n in range(0, whole.shape[axis], _TOGETHER)]

    def singles(part: Tensor) -> Any:
        return [_slice(part, axis, n) for n in range(part.shape[axis])]

    single = pieces.kept(("singles", len(lead), x.ndim), lambda: singles)
    return [s for part in pieces.kept(("parts", len(lead), x.ndim), lambda: parts)(x) for s in single(part)]


def _no_rows(node: Call, body: Graph, n: int, length: int = 0) -> Any:
    """The result of no turns: no row of the shape that the body says, where it says one."""
    info = body.outputs[n]
    shape = [d if isinstance(d, int) else 0 for d in info.shape or ()]
    node.room(length, *shape)
    dtype = np.dtype(object) if info.dtype == "string" else node.numpy_dtype(info.dtype or "float32")
    return np.zeros((length, *shape), dtype)


@op("Scan", since=9, raw=True, sizes=True)
def scan(
    node: Call,
    *values: Any,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
) -> Any:
    """A subgraph run for each slice of its last inputs; what it carries goes from turn to turn."""
    n = num_scan_inputs
    if not 0 < n <= len(values):
        raise node.fail(f"scans {n} of its {len(values)} inputs")
    state, scanned = list(values[: len(values) - n]), list(values[len(values) - n :])
    axes, backward = _per_input(node, scan_input_axes, n), _per_input(node, scan_input_directions, n)
    lengths = set()
    for k, x in enumerate(scanned):
        if not -x.ndim <= axes[k] < x.ndim:
            raise node.fail(f"scans axis {axes[k]} of an input of shape {list(x.shape)}")
        lengths.add(int(x.shape[axes[k]]))
    if len(lengths) != 1:
        raise node.fail(f"its scanned inputs have lengths {sorted(lengths)} along their axes, not one length")
    length = lengths.pop()
    count = len(body.outputs) - len(state)
    if count < 0:
        raise node.fail(f"carries {len(state)} values, but its body gives {len(body.outputs)}")
    rows: list[list[Any]] = [[] for _ in range(count)]
    pieces = _replays(node, body, length)
    out_axes, out_backward = _per_input(node, scan_output_axes, count), _per_input(node, scan_output_directions, count)
    if pieces is not None and not any(backward) and not any(out_backward):
        of = node.node.implementation
        each = list(zip(scanned, axes))
        done = of and _in_chunks(node, pieces, of, each, lambda few, state: [*state, *few], state, out_axes, body)
        if done:
            return done
    slices = [_slices(node, x, axes[k])[:: -1 if backward[k] else 1] for k, x in enumerate(scanned)]
    for turn in range(length):
        parts = [each[turn] for each in slices]
        for part, x in zip(parts, scanned):
            node.follows(part, x)
        results = node.run(body, *state, *parts)
        state = results[: len(state)]
        for row, value in zip(rows, results[len(state) :]):
            row.append(value)
            node.room(turn + 1, size_of(value))
    stacked = []
    for k, row in enumerate(rows):
        if row:
            axis = out_axes[k] + (row[0].ndim + 1 if out_axes[k] < 0 else 0)
            stacked.append(_stacked(node, row[::-1] if out_backward[k] else row, axis))
        else:
            stacked.append(_no_rows(node, body, len(state) + k))
    return (*state, *stacked)


@op("Scan", since=8, raw=True)
def scan_of_batches(
    node: Call, lengths: Any, *values: Any, body: Graph, num_scan_inputs: int, directions: Any = None
) -> Any:
    """The first version: a batch of sequences along axis 0, scanned along axis 1."""
    n = num_scan_inputs
    if not 0 < n <= len(values):
        raise node.fail(f"scans {n} of its {len(values)} inputs")
    if lengths is not None:
        raise node.fail("has lengths of its sequences", "convert the model to opset 9 or newer")
    if any(d for d in directions or ()):
        raise node.fail("scans backward", "convert the model to opset 9 or newer")
    batch = int(values[-1].shape[0])
    kept, rows = [], []
    for b in range(batch):
        parts = [_slice(x, 0, b) for x in values]
        for part, x in zip(parts, values):
            node.follows(part, x)
        state = parts[: len(parts) - n]
        scanned = parts[len(parts) - n :]
        out: list[list[Any]] = [[] for _ in body.outputs[len(state) :]]
        for turn in range(int(scanned[0].shape[0])):
            slices = [_slice(x, 0, turn) for x in scanned]
            for part, x in zip(slices, scanned):
                node.follows(part, x)
            results = node.run(body, *state, *slices)
            state = results[: len(state)]
            for row, value in zip(out, results[len(state) :]):
                row.append(value)
                node.room(batch, turn + 1, size_of(value))
        kept.append(state)
        rows.append([_stacked(node, r) for r in out])
    return tuple([_stacked(node, list(column)) for column in (*zip(*kept), *zip(*rows))])


def _per_input(node: Call, given: Any, count: int) -> list[int]:
    if given is None or not len(given):
        return [0] * count
    if len(given) != count:
        raise node.fail(f"has {len(given)} axes or directions for {count} values")
    return list(given)


def _slice(x: Any, axis: int, at: int) -> Any:
    return x[(*[slice(None)] * (axis % x.ndim), at)]


@op("Gradient", domain="ai.onnx.preview.training", raw=True)
def gradient(node: Call, *values: Any, xs: list[str], y: str, zs: Any = None) -> Any:
    """The derivatives of the value `y` of this graph by the values `xs`, where `zs` are held."""
    names = [*xs, *(zs or ())]
    if len(names) != len(values):
        raise node.fail(f"names {len(names)} values, but takes {len(values)} inputs")
    given = [node.tensor(v) for v in values]

    def of(*moved: Tensor) -> Any:
        return node.tensor(node.again(y, dict(zip(names, [*moved, *given[len(xs) :]]))))

    out, back = vjp(of, *given[: len(xs)])
    return tuple(back(out.ones_like()))


@op("SequenceMap", since=17, raw=True, sizes=True)
def sequence_map(node: Call, sequence: Any, *others: Any, body: Graph) -> Any:
    """A subgraph run for each item of a sequence, and of other sequences; tensors among the inputs go to all turns."""
    if not isinstance(sequence, list):
        raise node.fail("its first input is no sequence")
    if any(isinstance(x, list) and len(x) != len(sequence) for x in others):
        raise node.fail(f"its sequences have other lengths than the first, which has {len(sequence)} items")
    turns, sizes = [], [0] * len(body.outputs)
    for n, item in enumerate(sequence):
        turns.append(node.run(body, item, *[x[n] if isinstance(x, list) else x for x in others]))
        sizes = [size + size_of(value) for size, value in zip(sizes, turns[-1])]
        node.room(max(sizes, default=0))
    return tuple([[turn[k] for turn in turns] for k in range(len(body.outputs))])
