"""ai.onnx.ml: features, encoders, linear models, support vector machines, and maps, which are on the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, Floats, MaybeArray, Numbers, Texts, Value, floats, is_float
from anneal.onnx.registry import op
from anneal.onnx.values import Map
from anneal.tensor import Tensor


def _as_rows(x: Any) -> Any:
    """The rows of a value; a vector is one."""
    return x.reshape(1, -1) if x.ndim < 2 else x


# text is on the host
@op(host=lambda x, i: np.take(_as_rows(x), i.reshape(-1), -1))
def ArrayFeatureExtractor(x: Tensor, index: Tensor) -> Tensor:
    """The columns (of the last axis) that an index names; a vector is a row."""
    return _as_rows(x).index_select(-1, index.int().reshape(-1))  # type: ignore[no-any-return]


op("Binarizer")(lambda x, *, threshold: (x > threshold).cast(x.dtype))


@op
def FeatureVectorizer(*xs: Tensor, inputdimensions: Numbers) -> Tensor:
    """Columns side by side, as float32, so many of each input as `inputdimensions` says."""
    rows = [_as_rows(x).flatten(1) for x in xs]
    widths = inputdimensions or [r.shape[1] for r in rows]
    return Tensor.cat([r[:, :w].float() for r, w in zip(rows, widths, strict=True)], dim=1)


@op
def Imputer(
    x: Tensor,
    *,
    imputed_value_floats: Floats,
    imputed_value_int64s: Numbers,
    replaced_value_float: float,
    replaced_value_int64: int,
) -> Tensor:
    """The input with one value (which may be nan) replaced by a number, or by one for each column."""
    values = imputed_value_floats if is_float(x) else imputed_value_int64s
    old = replaced_value_float if is_float(x) else replaced_value_int64
    if not values:
        raise fail("the values to put in are missing")
    new = node.constant(np.array(values, x.dtype.name))
    hit = x.isnan() if is_float(x) and math.isnan(old) else x == old
    return hit.where(new.reshape(()) if len(values) == 1 else new, x)


@op
def Normalizer(x: Tensor, *, norm: str) -> Tensor:
    """Rows over their largest element, their sum of sizes, or the root of their sum of squares; of zeros themselves."""
    x = floats(x)
    axis = x.ndim - 1
    by = x.amax(axis, keepdim=True) if norm == "MAX" else x.norm(1 if norm == "L1" else 2, axis, keepdim=True)
    return (by == 0).where(x, x / by).float()


def known(numbers: Any) -> Tensor:
    """A list of floats as a Tensor, which is made once."""
    return node.constant(np.array(numbers, np.float32))


@op
def Scaler(x: Tensor, *, offset: Floats, scale: Floats) -> Tensor:
    """(x - offset) * scale, each a number or one for each column."""
    x = x.float()
    if offset:
        x = x - known(offset)
    return x * known(scale) if scale else x


# -- names ------------------------------------------------------------------------------------------------------------


def _looked_up(x: Array, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: Any) -> Array:
    """The values of elements in a table, or the default; nan is an ordinary key."""
    table = {"nan" if isinstance(k, float) and math.isnan(k) else k: v for k, v in zip(keys, values, strict=True)}
    found = [table.get("nan" if isinstance(v, float) and math.isnan(v) else v, default) for v in x.reshape(-1).tolist()]
    return _row(found, dtype).reshape(x.shape)


def _row(values: Sequence[Any], dtype: Any) -> Array:
    """A row of values, which NumPy does not look into."""
    out = np.empty(len(values), dtype)
    out[:] = values
    return out


@op
def CategoryMapper(
    x: Value, *, cats_int64s: Numbers, cats_strings: Texts, default_int64: int, default_string: str
) -> Array:
    """Text as the integers that stand beside it, or integers as text."""
    numbers, texts = cats_int64s or (), cats_strings or ()
    if isinstance(x, np.ndarray) and x.dtype.kind in "OUS":
        return _looked_up(x, texts, numbers, default_int64, np.int64)
    return _looked_up(node.host(x), numbers, texts, default_string, object)


@op("LabelEncoder")
def label_encoder_old(x: Value, *, classes_strings: Texts, default_int64: int, default_string: str) -> Any:
    """Version 1: texts as their positions in a list, or positions as texts."""
    texts = classes_strings or ()
    how: Any = {"default_int64": default_int64, "default_string": default_string}
    return CategoryMapper(x, cats_int64s=range(len(texts)), cats_strings=texts, **how)


@op(since=2)
def LabelEncoder(
    x: Value,
    *,
    default_float: float,
    default_int64: int,
    default_string: str,
    default_tensor: MaybeArray,
    keys_floats: Floats,
    keys_int64s: Numbers,
    keys_strings: Texts,
    keys_tensor: MaybeArray,
    values_floats: Floats,
    values_int64s: Numbers,
    values_strings: Texts,
    values_tensor: MaybeArray,
) -> Array:
    """The values of elements in a table of keys and values; tensors of them since version 4."""
    keys: Any = None if keys_tensor is None else keys_tensor.reshape(-1).tolist()
    keys = keys or keys_floats or keys_int64s or keys_strings
    if not keys:
        raise fail("the keys are missing")
    if values_tensor is not None:
        usual = {"O": "_Unused", "i": -1}.get(values_tensor.dtype.kind, -0.0)
        default = usual if default_tensor is None else default_tensor.reshape(()).item()
        return _looked_up(node.host(x), keys, values_tensor.reshape(-1).tolist(), default, values_tensor.dtype)
    for values, default, dtype in (
        (values_floats, default_float, np.float32),
        (values_int64s, default_int64, np.int64),
        (values_strings, default_string, object),
    ):
        if values is not None:
            return _looked_up(node.host(x), keys, values, default, dtype)
    raise fail("the values are missing")


@op
def OneHotEncoder(x: Value, *, cats_int64s: Numbers, cats_strings: Texts, zeros: int) -> Array:
    """A new last axis with 1 at the element's place in a list of categories, and zeros for what is not in it."""
    values = node.host(x)
    keys = cats_strings or cats_int64s or ()
    place = _looked_up(values if cats_strings else values.astype(np.int64), keys, range(len(keys)), -1, np.int64)
    if not zeros and (place < 0).any():
        raise fail("an element is none of the categories", "set zeros=1 to let it be all zeros")
    return np.asarray(place[..., None] == np.arange(len(keys)), np.float32)


# -- scores -----------------------------------------------------------------------------------------------------------


# by `post_transform`, in the order in which TreeEnsemble numbers them
TRANSFORMED: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": lambda scores: scores.softmax(-1),
    "LOGISTIC": Tensor.sigmoid,
    "SOFTMAX_ZERO": lambda scores: (scores == 0).where(0.0, scores.softmax(-1)),
    "PROBIT": lambda scores: (scores * 2 - 1).erfinv() * math.sqrt(2),
}


def labelled(place: Tensor, numbers: Numbers, texts: Texts) -> Value:
    """Classes by their position, as integers or as text."""
    if texts:
        return np.asarray(np.array(texts, object)[node.host(place, "its labels are text")], object)
    return node.constant(np.array(numbers or (), np.int64)).index_select(0, place.reshape(-1)).reshape(*place.shape)


@op
def LinearRegressor(
    x: Tensor, *, coefficients: Sequence[float], intercepts: Floats, post_transform: str, targets: int
) -> Tensor:
    """A linear function of the columns for each target."""
    return TRANSFORMED[post_transform](_linear(x, coefficients, intercepts, targets))


def _linear(x: Tensor, coefficients: Floats, intercepts: Any, count: int) -> Any:
    y = _as_rows(x).float() @ _weights(coefficients, count)
    return y + known(intercepts) if intercepts else y


@op
def LinearClassifier(
    x: Tensor,
    *,
    classlabels_ints: Numbers,
    classlabels_strings: Texts,
    coefficients: Sequence[float],
    intercepts: Floats,
    multi_class: int,
    post_transform: str,
) -> Any:
    """The class of the largest linear score, and the scores; of one score a second class is made."""
    count = len(classlabels_strings or classlabels_ints or ())
    rows = len(coefficients) // x.shape[-1]
    scores = _linear(x, coefficients, intercepts, rows)
    if rows == 1 and count == 2:
        # The class behind the score, where that is above 0 (LOGISTIC: 0.5 of its sigmoid).
        place = (scores[:, 0] > 0).int()
        scores = Tensor.cat([-scores, scores], dim=1)
    else:
        place = scores.argmax(-1)
    return labelled(place, classlabels_ints, classlabels_strings), TRANSFORMED[post_transform](scores)


@op
def ZipMap(x: Value, *, classlabels_int64s: Numbers, classlabels_strings: Texts) -> list[Map]:
    """A map for each row, from class labels to its numbers."""
    keys = classlabels_strings or classlabels_int64s or ()
    rows = _as_rows(node.host(x, "its results are maps"))
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise fail(f"has {len(keys)} class labels for a value of shape {list(rows.shape)}")
    return [Map(dict(zip(keys, row))) for row in rows.tolist()]


@op
def DictVectorizer(x: Any, *, int64_vocabulary: Numbers, string_vocabulary: Texts) -> Array:
    """The numbers that a map has for the keys of a list, 0 for those that it does not have: (1, keys)."""
    keys = string_vocabulary or int64_vocabulary or ()
    entries = _entries(x)
    kind = type(next(iter(entries.values()), np.float32(0)))
    blank = "" if kind is str else kind(0)
    return _row([entries.get(k, blank) for k in keys], object if kind is str else kind).reshape(1, -1)


@op
def CastMap(x: Any, *, cast_to: str, map_form: str, max_map: int) -> Array:
    """The values of a map with whole numbers as keys, in their order (DENSE), or at the places that the keys name
    (SPARSE), as numbers or texts: (1, n).
    """
    entries = _entries(x)
    forms: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
        "TO_FLOAT": (float, np.float32, 0.0),
        "TO_INT64": (int, np.int64, 0),
        "TO_STRING": (lambda v: v if isinstance(v, str) else f"{v:f}", object, "0.f"),  # as onnxruntime has it
    }
    cast, dtype, blank = forms[cast_to]
    if map_form == "DENSE":
        values = [cast(entries[k]) for k in sorted(entries)]
    else:
        node.room(max_map)
        values = [blank] * max_map
        for k, v in entries.items():
            if not 0 <= k < max_map:
                raise fail(f"the map has the key {k}; max_map is {max_map}")
            values[k] = cast(v)
    return _row(values, dtype).reshape(1, -1)


def _entries(x: Any) -> Any:
    if not isinstance(x, Map):
        raise fail("takes a map")
    return x.entries


_TURNS = 100  # of the iteration that makes one distribution of those of pairs


class Machine(NamedTuple):
    """The attributes of both."""

    coefficients: Floats = None
    kernel_params: Floats = None
    kernel_type: str = "LINEAR"
    post_transform: str = "NONE"
    rho: Floats = None
    support_vectors: Floats = None


def _kernel(x: Tensor, count: int, how: Machine) -> Tensor:
    """(rows, vectors): what the kernel makes of each pair of a row and one of `count` support vectors."""
    vectors, kind = _matrix(how.support_vectors, count, "support_vectors"), how.kernel_type
    gamma, coef0, degree = [*(how.kernel_params or ()), *[0.0] * 3][:3]
    products = x @ node.constant(vectors.T)
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (products * gamma + coef0).pow(degree)
    if kind == "SIGMOID":
        return (products * gamma + coef0).tanh()
    less = x.unsqueeze(1) - node.constant(vectors)
    return ((less * less).sum(-1) * -gamma).exp()


def _matrix(values: Floats, rows: int, what: str) -> Array:
    """(rows, n) float32 numbers of a list."""
    array = np.array(values or (), np.float32)
    if rows < 1 or not array.size or array.size % rows:
        raise fail(f"{what} has {array.size} numbers for {rows} rows")
    return array.reshape(rows, -1)


def _weights(coefficients: Floats, count: int) -> Tensor:
    """(columns, count) weights of linear functions."""
    return node.constant(_matrix(coefficients, count, "coefficients").T)


@op
def SVMRegressor(x: Tensor, *, n_supports: int, one_class: int, how: Machine) -> Tensor:
    """Kernels with the support vectors times coefficients, plus rho; of one class whether that is above 0: 1 or -1.

    Without support vectors it is a linear function. `post_transform` changes nothing, in onnxruntime either.
    """
    x = _as_rows(x).float()
    if n_supports > 0:
        x = _kernel(x, n_supports, how)
    score = x @ _weights(how.coefficients, 1) + float(how.rho[0] if how.rho else 0.0)
    if not one_class:
        return score
    return (score > 0).where(1.0, -1.0)


@op
def SVMClassifier(
    x: Tensor,
    *,
    classlabels_ints: Numbers,
    classlabels_strings: Texts,
    prob_a: Floats,
    prob_b: Floats,
    vectors_per_class: Numbers,
    how: Machine,
) -> Any:
    """The class that wins most of the decisions between two, and their scores, or the classes' probabilities.

    Without support vectors each class has a linear score.
    """
    x, count = _as_rows(x).float(), len(classlabels_strings or classlabels_ints or ())
    shift = np.array(how.rho or [0.0], np.float32)
    if not vectors_per_class:
        scores = x @ _weights(how.coefficients, count) + float(shift[0])
        chosen = scores.argmax(-1)
    else:
        scores = _decisions(x, count, vectors_per_class, how) + node.constant(shift)
        chosen = _votes(scores, count).argmax(-1)
        if prob_a:
            pairs = node.host(scores, "its probabilities are iterated")
            found = _probabilities(pairs, count, np.array(prob_a), np.array(prob_b))
            scores = node.tensor(found.astype(np.float32))
    if not prob_a and not vectors_per_class and count == 2 and len(shift) == 1:
        # as in onnxruntime the second, if the larger score is above 0 (or 0.5 where no weight is negative)
        most = scores.amax(-1)
        chosen = (most >= 0.5 if min(how.coefficients or (0.0,)) >= 0 else most > 0).where(1, chosen)
    labels = labelled(chosen, classlabels_ints, classlabels_strings)
    if scores.shape[1] > 1:
        return labels, TRANSFORMED[how.post_transform](scores)
    # A single score decides between two classes: make a score for each.
    if count == 2 and how.post_transform in ("NONE", "LOGISTIC"):
        return labels, TRANSFORMED[how.post_transform](Tensor.cat([-scores, scores], dim=1))
    if how.post_transform == "PROBIT":
        return labels, TRANSFORMED["PROBIT"](scores)
    return labels, Tensor.cat([1 - scores, scores], dim=1) if count == 2 else scores


def _decisions(x: Tensor, count: int, sizes: Sequence[int], how: Machine) -> Tensor:
    """(rows, pairs of classes): the decision between the two of each pair, without its shift."""
    total = sum(sizes)
    if len(sizes) != count or min(sizes) < 0:
        raise fail(f"vectors_per_class has {len(sizes)} numbers for {count} classes, {list(sizes)}")
    weights = _matrix(how.coefficients, count - 1, "coefficients")
    if weights.shape[1] != total:
        raise fail(f"coefficients has {weights.size} numbers for {total} vectors and {count} classes")
    owner = np.repeat(np.arange(count), sizes)
    pairs = list(itertools.combinations(range(count), 2))
    node.room(total, len(pairs))
    table = np.zeros((total, len(pairs)), np.float32)
    for n, (i, j) in enumerate(pairs):
        table[owner == i, n] = weights[j - 1, owner == i]
        table[owner == j, n] = weights[i, owner == j]
    return _kernel(x, total, how) @ node.constant(table)


def _votes(scores: Tensor, count: int) -> Any:
    """(rows, classes): how many of its decisions each class wins."""
    pairs = list(itertools.combinations(range(count), 2))
    node.room(2, len(pairs), count)
    first, second = np.zeros((2, len(pairs), count), np.float32)
    for n, (i, j) in enumerate(pairs):
        first[n, i] = second[n, j] = 1
    wins = (scores > 0).float()
    return wins @ node.constant(first) + (1 - wins) @ node.constant(second)


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
