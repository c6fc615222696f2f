"""ai.onnx.ml's support vector machines: kernels between the rows and all support vectors, then one product."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Array
from anneal.onnx.ops.ml import ML
from anneal.onnx.ops.ml.features import labelled, transformed
from anneal.onnx.registry import op
from anneal.tensor import Tensor, dtypes

_TURNS = 100  # of the iteration that makes one distribution of those of pairs


class Machine(NamedTuple):
    """The attributes of both."""

    coefficients: Sequence[float] | None = None
    kernel_params: Sequence[float] | None = None
    kernel_type: str = "LINEAR"
    post_transform: str = "NONE"
    rho: Sequence[float] | None = None
    support_vectors: Sequence[float] | None = None


MACHINE = Machine()


def _kernel(node: NodeCall, x: Tensor, count: int, how: Machine) -> Tensor:
    """(rows, vectors): what the kernel makes of each pair of a row and one of `count` support vectors."""
    vectors, kind = _matrix(node, how.support_vectors, count, "support_vectors"), how.kernel_type
    known = node.constant(np.ascontiguousarray(vectors.T))
    gamma, coef0, degree = [*(how.kernel_params or ()), *[0.0] * 3][:3]
    products = x @ known
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (products * gamma + coef0).pow(degree)
    if kind == "SIGMOID":
        return (products * gamma + coef0).tanh()
    if kind == "RBF":
        less = x.unsqueeze(1) - node.constant(vectors)
        return ((less * less).sum(-1) * -gamma).exp()
    raise node.fail(f"kernel_type is LINEAR, POLY, RBF or SIGMOID, not {kind!r}")


def _matrix(node: NodeCall, values: Sequence[float] | None, rows: int, what: str) -> Array:
    """(rows, n) float32 numbers of a list."""
    array = np.array(values or (), np.float32)
    if rows < 1 or not array.size or array.size % rows:
        raise node.fail(f"{what} has {array.size} numbers for {rows} rows")
    return array.reshape(rows, -1)


@op("SVMRegressor", domain=ML)
def svm_regressor(
    node: NodeCall,
    x: Tensor,
    *,
    n_supports: int,
    one_class: int,
    how: Machine = MACHINE,
) -> Tensor:
    """Kernels with the support vectors times coefficients, plus rho; of one class whether that is above 0: 1 or -1.

    Without support vectors it is a linear function. `post_transform` changes nothing, in onnxruntime either.
    """
    x = _rows(x)
    if n_supports > 0:
        x = _kernel(node, x, n_supports, how)
    weights = node.constant(np.ascontiguousarray(_matrix(node, how.coefficients, 1, "coefficients").T))
    score = x @ weights + float(how.rho[0] if how.rho else 0.0)
    if not one_class:
        return score
    inside: Any = score > 0
    return inside.where(1.0, -1.0)  # type: ignore[no-any-return]


def _rows(x: Tensor) -> Tensor:
    return (x.reshape(1, -1) if x.ndim == 1 else x).float()


@op("SVMClassifier", domain=ML)
def svm_classifier(
    node: NodeCall,
    x: Tensor,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    prob_a: Sequence[float] | None = None,
    prob_b: Sequence[float] | None = None,
    vectors_per_class: Sequence[int] | None = None,
    how: Machine = MACHINE,
) -> Any:
    """The class that wins most of the decisions between two, and their scores, or the classes' probabilities.

    Without support vectors each class has a linear score.
    """
    x, count = _rows(x), len(classlabels_strings or classlabels_ints or ())
    shift = np.array(how.rho or [0.0], np.float32)
    if not vectors_per_class:
        scores = x @ node.constant(np.ascontiguousarray(_matrix(node, how.coefficients, count, "coefficients").T))
        scores = scores + float(shift[0])
        chosen = scores.argmax(-1)
    else:
        scores = _decisions(node, x, count, vectors_per_class, how) + node.constant(shift)
        chosen = _votes(node, scores, count).argmax(-1)
        if prob_a:
            pairs = node.host(scores, "its probabilities are iterated")
            found = _probabilities(pairs, count, np.array(prob_a), np.array(prob_b))
            scores = node.tensor(found.astype(np.float32))
    if not prob_a and not vectors_per_class and count == 2 and len(shift) == 1:
        chosen = _of_two(scores, min(how.coefficients or (0.0,)) >= 0)
    labels = labelled(node, chosen, classlabels_ints, classlabels_strings)
    if scores.shape[1] > 1:
        return labels, transformed(node, scores, how.post_transform)
    # One decision between two classes: a score for each.
    if count == 2 and how.post_transform in ("NONE", "LOGISTIC"):
        return labels, transformed(node, Tensor.cat([-scores, scores], dim=1), how.post_transform)
    if count == 2 and how.post_transform != "PROBIT":
        return labels, Tensor.cat([1 - scores, scores], dim=1)
    return labels, scores if how.post_transform != "PROBIT" else transformed(node, scores, how.post_transform)


def _of_two(scores: Tensor, positive: bool) -> Tensor:
    """The chosen one of two classes with linear scores: as in onnxruntime the second, if the larger score is above 0
    (above 0.5 where no weight is negative), else that of the larger score.
    """
    most = scores.amax(-1)
    enough: Any = most >= 0.5 if positive else most > 0
    chosen: Tensor = enough.where(1, scores.argmax(-1))
    return chosen


def _decisions(node: NodeCall, x: Tensor, count: int, sizes: Sequence[int], how: Machine) -> Tensor:
    """(rows, pairs of classes): the decision between the two of each pair, without its shift."""
    total = sum(sizes)
    if len(sizes) != count or min(sizes) < 0:
        raise node.fail(f"vectors_per_class has {len(sizes)} numbers for {count} classes, {list(sizes)}")
    weights = _matrix(node, how.coefficients, count - 1, "coefficients")
    if weights.shape[1] != total:
        raise node.fail(f"coefficients has {weights.size} numbers for {total} vectors and {count} classes")
    owner = np.repeat(np.arange(count), sizes)
    pairs = list(itertools.combinations(range(count), 2))
    node.room(total, len(pairs))
    table = np.zeros((total, len(pairs)), np.float32)
    for n, (i, j) in enumerate(pairs):
        table[owner == i, n] = weights[j - 1, owner == i]
        table[owner == j, n] = weights[i, owner == j]
    return _kernel(node, x, total, how) @ node.constant(table)


def _votes(node: NodeCall, scores: Tensor, count: int) -> Tensor:
    """(rows, classes): how many of its decisions each class wins."""
    pairs = list(itertools.combinations(range(count), 2))
    node.room(2, len(pairs), count)
    first, second = np.zeros((2, len(pairs), count), np.float32)
    for n, (i, j) in enumerate(pairs):
        first[n, i] = second[n, j] = 1
    wins: Any = scores > 0
    wins = wins.cast(dtypes.float32)
    votes: Tensor = wins @ node.constant(first) + (1 - wins) @ node.constant(second)
    return votes


def _probabilities(scores: Array, count: int, a: Array, b: Array) -> Array:
    """(rows, classes): the distribution that is nearest to those of all pairs.

    The second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling"
    (2004), with the iteration and the end that libsvm has.
    """
    pairs = np.clip(1 / (1 + np.exp(scores.astype(np.float64) * a + b)), 1e-7, 1 - 1e-7)
    r = np.zeros((len(scores), count, count))
    for n, (i, j) in enumerate(itertools.combinations(range(count), 2)):
        r[:, i, j], r[:, j, i] = pairs[:, n], 1 - pairs[:, n]
    q = -r.transpose(0, 2, 1) * r
    q[:, range(count), range(count)] = (r * r).sum(1)
    p = np.full((len(scores), count), 1 / count)
    open_rows = np.arange(len(scores))
    for _ in range(_TURNS):
        part, one = q[open_rows], p[open_rows]
        qp = np.einsum("nij,nj->ni", part, one)
        value = (one * qp).sum(1)
        going = np.abs(qp - value[:, None]).max(1, initial=0.0) >= 0.005 / count
        open_rows, part, one, qp, value = open_rows[going], part[going], one[going], qp[going], value[going]
        if not len(open_rows):
            break
        for t in range(count):
            step = (value - qp[:, t]) / part[:, t, t]
            one[:, t] += step
            value = (value + step * (step * part[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, None] * part[:, t]) / (1 + step)[:, None]
            one /= (1 + step)[:, None]
        p[open_rows] = one
    return p
