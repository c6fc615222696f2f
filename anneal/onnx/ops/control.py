"""Constants, control flow, and values that are no tensors: sequences (lists), optionals, text on the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import regex

from anneal import transforms
from anneal.onnx.execute import Values, fail, node
from anneal.onnx.graph import Graph
from anneal.onnx.ops.elementwise import Array, Floats, MaybeArray, Numbers, Texts, Value, axis_of, counted, ints
from anneal.onnx.registry import op, rows
from anneal.onnx.values import NeedsHostError, array_code, array_dtype, objects, size_of, taken
from anneal.tensor import Tensor, vjp
from anneal.uop.sizes import Size, most as largest, size, size_text

_UNROLLED = 1024  # nodes that the turns of a loop run together, where they become one graph
_TURNS = 32  # turns that do; more are a loop on the device, or run one by one
_TRAINED = 256  # the same where gradients flow
_TOGETHER = 32  # rows that are stacked at once, where turns run one by one


@op
def Constant(
    *,
    value: Any,
    sparse_value: Any,
    value_float: Any,
    value_floats: Any,
    value_int: Any,
    value_ints: Any,
    value_string: Any,
    value_strings: Any,
) -> Any:
    """The value of an attribute."""
    for dtype, *given in (
        (None, value, sparse_value),
        (np.float32, value_float, value_floats),
        (np.int64, value_int, value_ints),
        (object, value_string, value_strings),
    ):
        for found in given:
            if found is not None:
                return found if dtype is None else np.asarray(found, dtype)
    raise fail("has no value", "export the model with its weights")


rows({"Identity": lambda x: x}, sizes=True)


@op(sizes=True, asks="cond")
def If(cond: Any, *, then_branch: Graph, else_branch: Graph) -> Any:
    """The results of one of two subgraphs."""
    if math.prod(cond.shape) != 1:
        raise fail(f"its condition has {math.prod(cond.shape)} elements, not one")
    if isinstance(cond, Tensor) and not node.of.is_fixed(cond):
        ways = [lambda graph=g: _tensors(node.run(graph)) for g in (then_branch, else_branch)]
        done = node.traced(1, lambda: transforms.cond(cond.reshape(()), *ways))
        if done is not None:
            return tuple(done)
    return tuple(node.run(then_branch if node.host(cond).item() else else_branch))


@op(sizes=True, asks="most")
def Loop(most: MaybeArray = None, cond: MaybeArray = None, *carried: Any, body: Graph) -> Any:
    """A subgraph run again and again, at most `most` times, as long as it says so.

    What it carries goes from turn to turn; its further outputs are stacked, a row for each turn.
    """
    state = list(carried)
    if len(body.inputs) != 2 + len(state) or len(body.outputs) < 1 + len(state):
        raise fail(
            f"carries {len(state)} values, but its body takes {len(body.inputs) - 2} and gives {len(body.outputs) - 1}"
        )
    rows: list[Values] = [[] for _ in body.outputs[1 + len(state) :]]
    goes = cond is None or bool(_one(node.host(cond), "condition"))
    if goes and not rows and isinstance(most, Tensor) and most.uop.vmax <= node.of.budget:
        done = _until(body, most.reshape(()), state, most.uop.vmax)
        if done is not None:
            return done
    turns = None if most is None else size(_one(node.host(most), "count"))
    if goes and turns is not None and _are_many(body, turns) and largest(turns) <= node.of.budget:
        done = _counted(body, turns, state)
        if done is None and not rows:
            done = _until(body, turns, state)
        if done is not None:
            return done
        turns = node.apart(turns)
    turn = 0
    while goes and (turns is None or turn < turns):
        results = node.run(body, node.number(turn), node.number(True), *state)
        state = results[1 : 1 + len(state)]
        for row, value in zip(rows, results[1 + len(state) :]):
            row.append(value)
            node.room(turn + 1, size_of(value))
        turn += 1
        if turns is None or turn < turns:
            asks = isinstance(results[0], Tensor) and not node.of.is_fixed(results[0])
            if asks and turn == 1 and not rows and turns is not None:  # the host would wait for each turn
                done = _until(body, turns, list(carried))
                if done is not None:
                    return done
            goes = bool(_one(node.host(results[0], "it says whether a loop goes on"), "condition"))
    stacked = [_stacked(row) if row else _no_rows(body, 1 + len(state) + n) for n, row in enumerate(rows)]
    return (*state, *stacked)


def _are_many(body: Graph, turns: Size) -> bool:
    """True if so many turns are not to be one graph, because that would be large, or their number is symbolic."""
    few = _TRAINED if node.training else _TURNS
    return not isinstance(turns, int) or turns > few or turns * len(body.nodes) > _UNROLLED


def _tensors(values: Values) -> list[Tensor]:
    """Values as those of a loop on the device. Raises NeedsHostError if they cannot be."""
    if any(v is None or isinstance(v, list) for v in values):
        raise NeedsHostError(str(node.node))
    return [node.tensor(v) for v in values]


def _counted(body: Graph, turns: Size, state: Values) -> Any:
    """The results of a Loop whose body does not end it, on the device; None if it cannot be there."""

    def turn(state: Values, number: Tensor) -> Any:
        number = number.clamp(0, largest(turns) - 1)  # so that bounds of what is computed from it are known
        goes, *results = node.run(body, number, node.number(True), *state)
        if not isinstance(goes, np.ndarray) or not _one(goes, "condition"):
            raise NeedsHostError(str(node.node))
        return results[: len(state)], results[len(state) :]

    done = _scanned(turn, turns, state, lambda: counted(Tensor.arange(turns, device=node.device)))
    return done and (*done[0], *done[1])


def _until(body: Graph, turns: Any, state: Values, limit: Size | None = None) -> Any:
    """The results of a Loop whose body may end it, on the device; None if it cannot be there. `turns` may be a tensor
    of numbers up to `limit`."""

    def turn(given: Values) -> Values:
        number, goes, *state = given
        end, *state = _tensors(node.run(body, number, goes, *state))
        return [number + 1, end.reshape(()), *state]

    def whole() -> Any:
        first = _tensors([np.asarray(0), np.asarray(True), *state])
        return transforms.while_loop(lambda s: s[1] & (s[0] < turns), turn, first)

    done = None if node.training else node.traced(turns if limit is None else limit, whole)
    return done and tuple(done[2:])


def _scanned(turn: Callable[..., Any], turns: Size, state: Values, xs: Callable[[], Any]) -> Any:
    """The last state and the rows of a loop on the device; None if it cannot be there."""

    def each(state: Values, x: Any) -> Any:
        after, rows = [_tensors(values) for values in turn(state, x)]
        for r in rows:
            node.room(turns, size_of(r))
        return after, rows

    return node.traced(turns, lambda: transforms.scan(each, _tensors(state), xs(), turns))


def _one(value: Any, what: str) -> Any:
    if not isinstance(numbers := objects(value), np.ndarray) or numbers.size != 1:
        raise fail(f"its {what} is not one number")
    return numbers.item()


def _stacked(rows: Values, axis: int = 0) -> Any:
    """Values of one shape as rows of one value."""
    if any(r is None or isinstance(r, list) for r in rows):
        raise fail("a turn gives no tensor to be stacked")
    shapes = {tuple(r.shape) for r in rows}
    if len(shapes) > 1:
        raise fail(f"its turns give rows of shapes {sorted(shapes)}, which cannot be stacked")
    if not any(isinstance(r, Tensor) for r in rows):
        return np.stack(rows, axis)
    tensors = [node.tensor(r) for r in rows]
    if node.of.pieces is None or len(rows) <= _TOGETHER:
        return Tensor.stack(tensors, axis)
    # a few rows at a time, so that no graph has all of them
    parts = [Tensor.stack(tensors[n : n + _TOGETHER], axis).realize() for n in range(0, len(tensors), _TOGETHER)]
    while len(parts) > 1:
        parts = [Tensor.cat(parts[n : n + _TOGETHER], axis).realize() for n in range(0, len(parts), _TOGETHER)]
    return parts[0]


def _no_rows(body: Graph, n: int) -> Any:
    """The result of no turns: no row of the shape that the body says, where it says one."""
    info = body.outputs[n]
    shape = [d if isinstance(d, int) else 0 for d in info.shape or ()]
    node.room(*shape)
    dtype = np.dtype(object) if info.dtype == "string" else array_dtype(array_code(info.dtype or "float32"))
    return np.zeros((0, *shape), dtype)


@op(since=9, sizes=True)
def Scan(
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
        raise fail(f"scans {n} of its {len(values)} inputs")
    state, scanned = list(values[:-n]), values[-n:]
    axes, backward = _per_input(scan_input_axes, n), _per_input(scan_input_directions, n)
    lengths = set()
    for x, axis in zip(scanned, axes):
        lengths.add(x.shape[axis_of(axis, x.ndim)])
    if len(lengths) != 1:
        raise fail(f"its inputs have lengths {sorted(map(size_text, lengths))} along their axes, not one length")
    length = lengths.pop()
    count = len(body.outputs) - len(state)
    if count < 0:
        raise fail(f"carries {len(state)} values, but its body gives {len(body.outputs)}")
    out_axes, out_backward = _per_input(scan_output_axes, count), _per_input(scan_output_directions, count)
    if _are_many(body, length):
        done = _scanned_slices(body, length, state, list(zip(scanned, axes, backward)))
        if done is not None:
            turned = [r.flip(0) if back else r for r, back in zip(done[1], out_backward)]
            return (*done[0], *[r.movedim(0, axis) for r, axis in zip(turned, out_axes)])
        length = node.apart(length)
    rows: list[Values] = [[] for _ in range(count)]
    for turn in range(length):
        parts = [taken(x, axis % x.ndim, ~turn if back else turn) for x, axis, back in zip(scanned, axes, backward)]
        for part, x in zip(parts, scanned):
            node.follows(part, x)
        results = node.run(body, *state, *parts)
        state = results[: len(state)]
        for row, value in zip(rows, results[len(state) :]):
            row.append(value)
            node.room(turn + 1, size_of(value))
    stacked = [
        _stacked(row[::-1] if back else row, axis) if row else _no_rows(body, len(state) + k)
        for k, (row, axis, back) in enumerate(zip(rows, out_axes, out_backward))
    ]
    return (*state, *stacked)


def _scanned_slices(body: Graph, length: Size, state: Values, scanned: Values) -> Any:
    """The last state and the rows of a Scan on the device; None if it cannot be there."""

    def xs() -> list[Tensor]:
        first = [(node.tensor(x).movedim(axis, 0), back) for x, axis, back in scanned]
        return [x.flip(0) if back else x for x, back in first]

    def turn(state: Values, parts: Values) -> Any:
        results = node.run(body, *state, *parts)
        return results[: len(state)], results[len(state) :]

    return _scanned(turn, length, state, xs)


@op("Scan", since=8)
def scan_of_batches(lengths: Any, *values: Any, body: Graph, num_scan_inputs: int, directions: Any) -> Any:
    """The first version: a batch of sequences along axis 0, scanned along axis 1."""
    if lengths is not None:
        raise fail("has lengths of its sequences", "convert the model to opset 9 or newer")
    if any(d for d in directions or ()):
        raise fail("scans backward", "convert the model to opset 9 or newer")
    each = []
    for b in range(int(values[-1].shape[0])):
        parts = [x[b] for x in values]
        for part, x in zip(parts, values):
            node.follows(part, x)
        each.append(Scan(*parts, body=body, num_scan_inputs=num_scan_inputs))
    return tuple(_stacked(list(column)) for column in zip(*each))


def _per_input(given: Any, count: int) -> list[int]:
    each = list(given or [0] * count)
    if len(each) != count:
        raise fail(f"has {len(each)} axes or directions for {count} values")
    return each


@op(domain="ai.onnx.preview.training")
def Gradient(*values: Any, xs: list[str], y: str, zs: Any) -> Any:
    """The derivatives of the value `y` of this graph by the values `xs`, where `zs` are held."""
    names = [*xs, *(zs or ())]
    if len(names) != len(values):
        raise fail(f"names {len(names)} values, but takes {len(values)} inputs")
    given = [node.tensor(v) for v in values]

    def of(*moved: Tensor) -> Any:
        return node.tensor(node.again(y, dict(zip(names, [*moved, *given[len(xs) :]]))))

    out, back = vjp(of, *given[: len(xs)])
    return tuple(back(out.ones_like()))


@op(since=17, sizes=True)
def SequenceMap(sequence: Any, *others: Any, body: Graph) -> Any:
    """A subgraph run for each item of a sequence, and of other sequences; tensors among the inputs go to all turns."""
    if not isinstance(sequence, list):
        raise fail("its first input is no sequence")
    if any(isinstance(x, list) and len(x) != len(sequence) for x in others):
        raise fail(f"its sequences have other lengths than the first, which has {len(sequence)} items")
    turns, sizes = [], [0] * len(body.outputs)
    for n, item in enumerate(sequence):
        turns.append(node.run(body, item, *[x[n] if isinstance(x, list) else x for x in others]))
        sizes = [size + size_of(value) for size, value in zip(sizes, turns[-1])]
        node.room(max(sizes, default=0))
    return tuple([turn[k] for turn in turns] for k in range(len(body.outputs)))


def _sequence(x: Any) -> Values:
    if not isinstance(x, list):
        raise fail("takes a sequence, not a tensor")
    return x


def _position(position: Any, count: int, *, end: bool = False) -> int:
    """A position in a sequence, from its end if it is negative."""
    if position.size != 1:
        raise fail(f"its position has {position.size} elements, not one")
    at = int(position.item())
    if not -count <= at < count + end:
        raise fail(f"position {at} is outside a sequence of {count}")
    return at + count if at < 0 else at


rows(
    {
        "SequenceConstruct": lambda *items: [*items],
        "SequenceEmpty": lambda *, dtype=1: [],
        "SequenceLength": lambda x: np.asarray(len(_sequence(x)), np.int64),
    },
    since=11,
    sizes=True,
)


@op(since=11, sizes=True)
def SequenceAt(x: Any, position: Array) -> Any:
    """The item at a position."""
    return _sequence(x)[_position(position, len(x))]


@op(since=11, sizes=True)
def SequenceErase(x: Any, position: MaybeArray) -> Any:
    """The sequence without one item, the last unless it is named."""
    items = _sequence(x)
    if not items:
        raise fail("its sequence is empty")
    at = len(items) - 1 if position is None else _position(position, len(items))
    return node.sequence(items[:at] + items[at + 1 :], items)


@op(since=11, sizes=True)
def SequenceInsert(x: Value, value: Value, position: MaybeArray) -> Any:
    """The items and one more, at the end unless a place is named."""
    items = _sequence(x)
    at = len(items) if position is None else _position(position, len(items), end=True)
    return node.sequence([*items[:at], value, *items[at:]], items, value)


@op(since=11)
def ConcatFromSequence(x: Any, *, axis: int, new_axis: int) -> Any:
    """The items one after the other along an axis, or stacked along a new one."""
    items = _sequence(x)
    if not items:
        raise fail("its sequence is empty, so the result has no shape")
    node.room(sum(size_of(i) for i in items))
    if any(isinstance(i, Tensor) for i in items):
        tensors = [node.tensor(i) for i in items]
        return Tensor.stack(tensors, axis) if new_axis else Tensor.cat(tensors, axis)
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@op(since=11)
def SplitToSequence(x: Any, split: MaybeArray, *, axis: int, keepdims: int) -> Any:
    """Pieces along an axis: of one size, of given sizes, or single slices, which may lose the axis."""
    axis = axis_of(axis, x.ndim)
    size = int(x.shape[axis])
    if split is not None and split.ndim:
        sizes = ints(split)
    else:
        step = 1 if split is None else int(split)
        if step <= 0:
            raise fail(f"splits into pieces of {step}")
        sizes = [min(step, size - at) for at in range(0, size, step)]
    node.room(len(sizes))
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise fail(f"splits {size} elements into pieces of {sizes}")
    if split is None and not keepdims:
        return [taken(x, axis, at) for at in range(size)]
    return [taken(x, axis, slice(end - s, end)) for s, end in zip(sizes, itertools.accumulate(sizes))]


@op(since=15, sizes=True)
def Optional(x: Any, *, type: Any) -> Any:
    """The input as an optional: itself, or None."""
    return x


rows({"OptionalHasElement": lambda x=None: np.asarray(x is not None)}, since=15, sizes=True)


@op(since=15, sizes=True)
def OptionalGetElement(x: Any) -> Any:
    """The value that there is."""
    if x is None:
        raise fail("its optional is empty", "ask OptionalHasElement first")
    return x


PATIENCE = 1.0  # seconds that a pattern may take for one text; the file says the pattern


def text_of(x: Any) -> Array:
    """A value that is text."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OUS":
        raise fail("takes text, not numbers")
    return x


def characters(texts: Array) -> int:
    """The number of characters of all texts together."""
    return sum(map(len, texts.reshape(-1).tolist()))


@op
def StringConcat(x: Value, y: Value) -> Array:
    """The texts of two arrays, concatenated pair by pair."""
    one, two = text_of(x), text_of(y)
    node.broadcasts(one, two)
    node.room(sum(characters(t) * (max(one.size, two.size) // max(t.size, 1)) for t in (one, two)))
    return np.asarray(one + two, object)


@op
def StringSplit(x: Value, *, delimiter: str | None, maxsplit: int | None) -> Any:
    """The parts of each text, filled up with "" to one length, and how many there are."""
    texts = text_of(x)
    most = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, most) for t in texts.reshape(-1)]
    return filled(parts, "", texts.shape), np.array([*map(len, parts)], np.int64).reshape(texts.shape)


def filled(rows: list[list[str]], blank: str, shape: tuple[int, ...]) -> Array:
    """Rows of texts, one for each text of an array of this shape, filled up to one length."""
    longest = max(map(len, rows), default=0)
    node.room(len(rows), longest)
    out = np.full((len(rows), longest), blank, object)
    for line, row in zip(out, rows):
        line[: len(row)] = row
    return out.reshape(*shape, longest)


@op
def StringNormalizer(
    x: Value, *, case_change_action: str, is_case_sensitive: int, locale: str | None, stopwords: Texts
) -> Array:
    """Texts without the stop words, in another case, whatever the locale; an empty text if none is left."""
    texts = text_of(x)
    if texts.ndim not in (1, 2) or (texts.ndim == 2 and texts.shape[0] != 1):
        raise fail(f"takes texts of shape [n] or [1, n], not {list(texts.shape)}")
    changes: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = changes[case_change_action]
    gone = set(stopwords or ()) if is_case_sensitive else {w.lower() for w in stopwords or ()}
    kept = [t for t in texts.reshape(-1) if (t if is_case_sensitive else t.lower()) not in gone]
    out = np.array([change(t) for t in kept] or [""], object)
    return out.reshape(1, -1) if texts.ndim == 2 else out


@op
def RegexFullMatch(x: Value, *, pattern: str) -> Array:
    """True for each text that a pattern matches as a whole."""
    texts = text_of(x)
    try:
        compiled = regex.compile(pattern)
        found = [compiled.fullmatch(t, timeout=PATIENCE) is not None for t in texts.reshape(-1)]
    except regex.error as e:
        raise fail(f"the pattern {pattern!r} is not valid: {e}") from e
    except TimeoutError:
        raise fail(f"the pattern {pattern!r} takes more than {PATIENCE:g} s for a text", "simplify it") from None
    return np.array(found, bool).reshape(texts.shape)


@op
def TfIdfVectorizer(
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Numbers,
    pool_strings: Texts,
    weights: Floats,
) -> Array:
    """The count of each listed sequence of words (TF), weighted (TFIDF), or 1 if it occurs (IDF)."""
    column = _columns(ngram_counts, ngram_indexes, list(pool_strings or pool_int64s or ()))
    width = max(ngram_indexes, default=-1) + 1
    node.room(*x.shape[:-1], width)
    words = node.host(x)
    rows = words.reshape(-1, words.shape[-1] if words.ndim else 1)
    out = np.zeros((len(rows), width), np.float32)
    for row, line in zip(out, rows.tolist()):
        for gram, count in _grams(line, min_gram_length, max_gram_length, max_skip_count).items():
            if gram in column:
                row[column[gram]] += count
    if mode == "IDF":
        out = (out > 0).astype(np.float32)
    if mode != "TF" and weights:
        by = np.ones(width, np.float32)
        by[list(ngram_indexes)] = weights
        out = out * by
    return out.reshape(*words.shape[:-1], width)


def _columns(starts: Sequence[int], indexes: Sequence[int], pool: Values) -> dict[tuple[Any, ...], int]:
    """The column of each sequence of words; the pool has all of one word first, then all of two, and so on."""
    grams = []
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams += [tuple(pool[i : i + n]) for i in range(begin, end - n + 1, n)]
    if len(grams) != len(indexes):
        raise fail(f"ngram_indexes names {len(indexes)} columns for {len(grams)} sequences")
    return dict(zip(grams, indexes))


def _grams(line: Values, least: int, most: int, skips: int) -> Counter[tuple[Any, ...]]:
    """Sequences of `least` to `most` words that stand 1 to skips + 1 apart; single words once."""
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(least, most + 1):
        for step in range(1, 2 if n == 1 else skips + 2):
            reach = step * (n - 1) + 1
            found.update([tuple(line[i : i + reach : step]) for i in range(len(line) - reach + 1)])
    return found
