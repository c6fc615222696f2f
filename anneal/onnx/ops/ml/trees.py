"""ai.onnx.ml's trees: they are walked on the device, all trees and rows a level at a time."""

from __future__ import annotations

import math
import operator
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, MaybeArray, Numbers, floats
from anneal.onnx.ops.ml.features import TRANSFORMED, known, labelled
from anneal.onnx.registry import op
from anneal.tensor import Tensor

# The tests of nodes, as numbered; 6 is BRANCH_MEMBER.
_MODES: dict[str, Callable[[Any, Any], Any]] = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}
_TABLE = {"features": "i4", "modes": "i4", "yes": "i4", "no": "i4", "missing": "?"}  # what all rows read of a forest


class Forest(NamedTuple):
    """Trees as one table of nodes: what each asks, where it leads, and what a leaf (which leads to itself) gives."""

    features: Array
    splits: Array
    modes: Array  # places in _MODES, or 6
    yes: Array
    no: Array
    missing: Array  # whether nan goes the way of yes
    members: dict[int, list[float]]  # of BRANCH_MEMBER nodes
    roots: Array
    depth: int
    weights: Array  # (nodes, targets); nan where a leaf says nothing of a target


def _depth(yes: Array, no: Array, roots: Array) -> int:
    """The longest way from a root to a leaf; an error for nodes that lead in a circle."""
    level, depth = np.unique(roots), 0
    while True:
        inner = level[(yes[level] != level) | (no[level] != level)]
        if not inner.size:
            return depth
        level, depth = np.unique(np.concatenate([yes[inner], no[inner]])), depth + 1
        if depth > len(yes):
            raise fail("its trees lead in a circle")


def _within(name: str, values: Any, count: Any) -> Array:
    """The whole numbers of an attribute. Raises OnnxError for one that is negative or not below `count`."""
    found = np.array(values, np.int64)
    for n in found[(found < 0) | (found >= count)].tolist():
        raise fail(f"{name} has {n}, of {np.max(count)}")
    return found


def _walked(x: Tensor, f: Forest, aggregate: str) -> Tensor:
    """(rows, targets): the leaves that the rows of x reach, put together by SUM, AVERAGE, MIN or MAX."""
    n, trees = x.shape[0], len(f.roots)
    _within("nodes_featureids", f.features[f.yes != f.no], x.shape[1])
    own = x.dtype.name
    table = {k: node.constant(getattr(f, k).astype(kind)) for k, kind in _TABLE.items()}
    table["splits"] = node.constant(f.splits.astype(own))
    at = node.constant(f.roots.astype(np.int32)).reshape(1, -1).expand(n, trees)
    for _ in range(f.depth):
        goes = _answers(x.gather(1, table["features"].rows(at)), at, table, f)
        at = goes.where(table["yes"].rows(at), table["no"].rows(at))
    blank = {"MIN": math.inf, "MAX": -math.inf}.get(aggregate, 0.0)
    given = node.constant(np.where(np.isnan(f.weights), blank, f.weights).astype(own)).rows(at)
    if aggregate in ("MIN", "MAX"):
        out = given.amin(1) if aggregate == "MIN" else given.amax(1)
        return out.isinf().where(0.0, out)
    total = given.sum(1)
    return total / trees if aggregate == "AVERAGE" else total


def _answers(seen: Tensor, at: Tensor, table: dict[str, Tensor], f: Forest) -> Any:
    """True for each row whose element passes the test of its current node."""
    split, tests = table["splits"].rows(at), [*_MODES.values()]

    def asked(mode: int) -> Any:
        return tests[mode](seen, split) if mode < len(tests) else _member(seen, at, f)

    first, *others = sorted({int(m) for m in f.modes})
    goes = asked(first)
    for mode in others:
        goes = (table["modes"].rows(at) == mode).where(asked(mode), goes)
    if f.missing.any():
        goes = goes | (seen.isnan() & table["missing"].rows(at))
    return goes


def _member(seen: Tensor, at: Tensor, f: Forest) -> Tensor:
    """True for each element in its node's set; sets are rows of one table, filled up with nan."""
    longest = max(map(len, f.members.values()), default=1)
    sets = np.full((len(f.features), longest), np.nan)
    for i, values in f.members.items():
        sets[i, : len(values)] = values
    return (seen.unsqueeze(-1) == node.constant(sets.astype(seen.dtype.name)).rows(at)).any(-1)


@op(since=5)
def TreeEnsemble(
    x: Tensor,
    *,
    aggregate_function: int,
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    membership_values: MaybeArray,
    n_targets: int,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_hitrates: MaybeArray,
    nodes_missing_value_tracks_true: Numbers,
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int,
    tree_roots: Sequence[int],
) -> Tensor:
    """The leaves that each row reaches, put together for each target."""
    inner, leaves = len(nodes_featureids), len(leaf_targetids)
    node.room(inner + leaves, n_targets)
    own = np.arange(inner, inner + leaves)

    def way(name: str, nodes: Sequence[int], ends: Sequence[int]) -> Array:
        at_leaf = _within(f"nodes_{name}leafs", ends, 2)
        to = _within(f"nodes_{name}nodeids", nodes, np.where(at_leaf, leaves, inner))
        return np.array([*(to + inner * at_leaf), *own])

    yes = way("true", nodes_truenodeids, nodes_trueleafs)
    no = way("false", nodes_falsenodeids, nodes_falseleafs)
    weights = np.full((inner + leaves, n_targets), np.nan)
    targets = _within("leaf_targetids", leaf_targetids, n_targets)
    weights[own, targets] = leaf_weights.astype(np.float64).reshape(-1)
    roots = _within("tree_roots", tree_roots, inner)
    tracks = nodes_missing_value_tracks_true or [0] * inner
    # leaves ask nothing
    features, splits, modes, missing = [
        np.pad(np.asarray(v).reshape(-1), (0, leaves)) for v in (nodes_featureids, nodes_splits, nodes_modes, tracks)
    ]
    members = _sets(membership_values, np.flatnonzero(modes == 6))
    forest = Forest(features, splits, modes, yes, no, missing, members, roots, _depth(yes, no, roots), weights)
    scores = _walked(x, forest, ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function])
    return [*TRANSFORMED.values()][post_transform](scores)


def _sets(values: MaybeArray, nodes: Array) -> dict[int, list[float]]:
    """The set of each node that asks for one; they stand behind each other with nan between."""
    row = np.zeros(0) if values is None else values.astype(np.float64).reshape(-1)
    parts = np.split(row, np.flatnonzero(np.isnan(row)))
    return {int(n): [v for v in part.tolist() if v == v] for n, part in zip(nodes, parts)}


def _forest(width: int, kind: str) -> Forest:
    """The trees of the older operators, whose leaves are nodes as well: their weights are told by tree and node."""
    a = node.attributes
    place = {key: i for i, key in enumerate(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))}
    count = len(place)
    node.room(count, width)
    leaf = np.array([m == "LEAF" for m in a["nodes_modes"]])
    own = np.arange(count)

    def at(name: str, tree: int, n: int) -> Any:
        if (tree, n) not in place:
            raise fail(f"{name} has {n}, which is no node of tree {tree}")
        return place[tree, n]

    def way(name: str) -> Array:
        to = [own[i] if leaf[i] else at(name, a["nodes_treeids"][i], v) for i, v in enumerate(a[name])]
        return np.array(to, np.int64)

    yes, no = way("nodes_truenodeids"), way("nodes_falsenodeids")
    if unknown := set(a["nodes_modes"]) - _MODES.keys() - {"LEAF"}:
        raise fail(f"nodes_modes has {', '.join(sorted(unknown))}")
    modes = np.array([0 if m == "LEAF" else [*_MODES].index(m) for m in a["nodes_modes"]])
    weights = np.full((count, width), np.nan)
    given = _either(a, f"{kind}_weights")
    told = [a[f"{kind}_{what}ids"] for what in ("tree", "node")]
    for tree, n, target, w in zip(*told, _within(f"{kind}_ids", a[f"{kind}_ids"], width), given, strict=True):
        row = weights[at(f"{kind}_nodeids", tree, n)]
        row[target] = w if math.isnan(row[target]) else row[target] + w
    inner = modes[~leaf]
    modes[leaf] = inner[0] if inner.size else 0
    firsts = {tree: i for i, tree in reversed(list(enumerate(a["nodes_treeids"])))}
    roots = np.array([firsts[t] for t in sorted(firsts)])
    missing = np.array(a.get("nodes_missing_value_tracks_true") or [0] * count, bool)
    splits = np.array(_either(a, "nodes_values"), np.float64)
    depth = _depth(yes, no, roots)
    return Forest(np.array(a["nodes_featureids"]), splits, modes, yes, no, missing, {}, roots, depth, weights)


# The attributes of both older operators, which `_forest` reads.
_NAMES = (
    "base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights class_weights_as_tensor "
    "nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true "
    "nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor target_ids "
    "target_nodeids target_treeids target_weights target_weights_as_tensor"
)
Trees = namedtuple("Trees", _NAMES, defaults=[None] * 23)  # type: ignore[misc]


def _either(a: dict[str, Any], name: str) -> Any:
    """A list of floats, or since version 3 a tensor of doubles in its place."""
    tensor = a.get(f"{name}_as_tensor")
    return (a.get(name) or ()) if tensor is None else tensor.reshape(-1).tolist()


@op
def TreeEnsembleRegressor(
    x: Tensor, *, aggregate_function: str, n_targets: int | None, post_transform: str, trees: Trees
) -> Tensor:
    """The leaves that each row reaches, put together for each target; tensors of doubles since version 3."""
    x = floats(x)
    scores = _walked(x, _forest(n_targets or 1, "target"), aggregate_function).float()
    if base := _either(node.attributes, "base_values"):
        scores = scores + known(base)
    return TRANSFORMED[post_transform](scores)


@op
def TreeEnsembleClassifier(
    x: Tensor, *, classlabels_int64s: Any, classlabels_strings: Any, post_transform: str, trees: Trees
) -> Any:
    """The class with the most votes of the trees, and the scores."""
    x = floats(x)
    count = len(classlabels_strings or classlabels_int64s or ())
    votes = set(node.attributes["class_ids"])
    forest = _forest(count, "class")
    scores = _walked(x, forest, "SUM").float()
    base = _either(node.attributes, "base_values")
    if count == 2 and len(votes) == 1:
        chosen, scores = _of_two(scores, votes == {0}, base, min(_either(node.attributes, "class_weights")) >= 0)
    else:
        seen = scores
        if base:
            seen = scores = scores + known(base)
        elif np.isnan(forest.weights[forest.yes == np.arange(len(forest.yes))]).any():
            # A class without votes is not the one with the most.
            voted = _walked(x, forest._replace(weights=forest.weights * 0 + 1), "MAX") > 0
            seen = voted.where(scores, -math.inf)
        chosen = seen.argmax(-1)
    return labelled(chosen, classlabels_int64s, classlabels_strings), TRANSFORMED[post_transform](scores)


def _of_two(scores: Tensor, first: bool, base: Sequence[float], share: bool) -> tuple[Tensor, Tensor]:
    """The class, and the scores of both, where the votes are for one of two alone: shares of 1, or above and below 0.

    Votes for the first class count for the second, which then has what is left, as onnxruntime has it.
    """
    score = scores[:, 0 if first else 1] + (float(base[-1]) if base else 0.0)
    chosen = (score > (0.5 if share else 0.0)).int()
    other = (1 - score if share else -score) if first else scores[:, 0]
    return chosen, Tensor.stack([other, score], dim=-1)
