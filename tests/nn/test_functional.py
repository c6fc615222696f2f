"""The functions of neural networks against torch: values and gradients, over a table of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal.errors import DTypeError, ShapeError
from anneal.runtime import plan_of
from anneal.tensor import Tensor, functional as F
from tests.helpers import optional
from tests.nn.beside_torch import check, normal
from tests.reference import evaluate

torch = optional("torch")
TF = torch.nn.functional
rng = np.random.default_rng(0)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    return rng.uniform(0.1, 0.9, shape)


def classes(n: int, *shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(0, n, shape)


def chances(*shape: int) -> np.ndarray[Any, Any]:
    x = rng.uniform(0.1, 1, shape)
    return x / x.sum(1, keepdims=True)


CONVOLUTIONS = [
    ((2, 3, 5, 6), (4, 3, 3, 3), {}),
    ((2, 3, 5, 6), (4, 3, 3, 2), {"stride": 2}),
    ((1, 4, 7, 7), (6, 2, 3, 3), {"stride": (2, 3), "padding": (1, 2), "groups": 2}),
    ((2, 2, 8, 7), (2, 2, 3, 2), {"dilation": (2, 3)}),
    ((2, 4, 6, 6), (4, 1, 3, 3), {"groups": 4, "padding": "same"}),
    ((1, 1, 9, 9), (1, 1, 2, 2), {"stride": 5}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {"stride": 2}),
    ((2, 3, 4, 4), (5, 3, 2, 2), {"stride": 2}),
    ((3, 4, 4), (2, 3, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize(("x", "w", "options"), CONVOLUTIONS, ids=str)
def test_conv2d(x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    check(
        lambda a, b, c: F.conv2d(a, b, c, **options),
        lambda a, b, c: TF.conv2d(a, b, c, **options),
        normal(*x),
        normal(*w),
        normal(w[0]),
    )


def test_conv1d() -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "dilation": 2}
    check(
        lambda a, b: F.conv1d(a, b, **options),
        lambda a, b: TF.conv1d(a, b, **options),
        normal(2, 3, 9),
        normal(4, 3, 3),
    )


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pooling(options: dict[str, Any]) -> None:
    x = normal(2, 3, 7, 8)
    check(lambda a: F.max_pool2d(a, **options), lambda a: TF.max_pool2d(a, **options), x)
    check(lambda a: F.avg_pool2d(a, **options), lambda a: TF.avg_pool2d(a, **options), x)
    check(
        lambda a: F.avg_pool2d(a, **options, count_include_pad=False),
        lambda a: TF.avg_pool2d(a, **options, count_include_pad=False),
        x,
    )


def test_max_pool_with_dilation() -> None:
    check(lambda a: F.max_pool2d(a, 2, 1, dilation=2), lambda a: TF.max_pool2d(a, 2, 1, dilation=2), normal(1, 2, 6, 6))


def test_a_pool_of_ints_and_without_batch() -> None:
    x = rng.integers(-9, 9, (2, 4, 4)).astype(np.int32)
    assert evaluate([F.max_pool2d(Tensor(x), 3, 1, 1).uop])[0].dtype == np.int32


def test_vectors_of_unit_length() -> None:
    x, y = normal(4, 3), normal(4, 3)
    check(lambda a: F.normalize(a), lambda a: TF.normalize(a), x)
    check(lambda a: F.normalize(a, 3.0, 0), lambda a: TF.normalize(a, 3.0, 0), x)
    check(lambda a: F.normalize(a), lambda a: TF.normalize(a), np.zeros((2, 3)))
    check(lambda a, b: F.cosine_similarity(a, b), lambda a, b: TF.cosine_similarity(a, b), x, y)
    check(lambda a, b: F.cdist(a, b), lambda a, b: torch.cdist(a, b), x, normal(5, 3))
    check(lambda a, b: F.cdist(a, b, 1.0), lambda a, b: torch.cdist(a, b, 1.0), normal(2, 4, 3), normal(2, 5, 3))
    with pytest.raises(ShapeError, match="cdist: takes"):
        F.cdist(Tensor(x), Tensor(x[:, :2]))
    check(lambda a: F.glu(a, 0), lambda a: TF.glu(a, 0), x)
    with pytest.raises(ShapeError, match="glu: axis -1 of shape .* even size"):
        F.glu(Tensor(x))


def test_normalisation() -> None:
    x, w, b = normal(4, 3, 5), normal(3, 5), normal(3, 5)
    check(lambda a, c, d: F.layer_norm(a, (3, 5), c, d), lambda a, c, d: TF.layer_norm(a, (3, 5), c, d), x, w, b)
    check(lambda a, c: F.rms_norm(a, 5, c, 1e-6), lambda a, c: TF.rms_norm(a, (5,), c, 1e-6), x, normal(5))
    check(lambda a: F.rms_norm(a, 5), lambda a: TF.rms_norm(a, (5,)), x)
    check(
        lambda a, c, d: F.group_norm(a, 2, c, d),
        lambda a, c, d: TF.group_norm(a, 2, c, d),
        normal(2, 4, 3, 3),
        normal(4),
        normal(4),
    )


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool) -> None:
    x, w, b, m, v = normal(4, 3, 2, 2), normal(3), normal(3), normal(3), positive(3)
    ours, theirs = [Tensor(m), Tensor(v)], [torch.tensor(m), torch.tensor(v)]
    check(
        lambda a, c, d: F.batch_norm(a, ours[0], ours[1], c, d, training),
        lambda a, c, d: TF.batch_norm(a, theirs[0], theirs[1], c, d, training),
        x,
        w,
        b,
    )
    for o, t in zip(evaluate([o.uop for o in ours]), theirs, strict=True):
        np.testing.assert_allclose(o, t.numpy(), rtol=1e-9)


def test_linear_and_embedding() -> None:
    check(F.linear, TF.linear, normal(2, 3, 4), normal(5, 4), normal(5))
    check(F.linear, TF.linear, normal(4), normal(5, 4))
    check(F.embedding, TF.embedding, classes(7, 2, 5), normal(7, 3))
    check(lambda i, w: F.embedding(i, w, 2), lambda i, w: TF.embedding(i, w, 2), classes(4, 9), normal(4, 3))


@pytest.mark.parametrize("causal", [True, False])
def test_attention(causal: bool) -> None:
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 2)
    options: dict[str, Any] = {"is_causal": causal}
    ours, theirs = F.scaled_dot_product_attention, TF.scaled_dot_product_attention
    check(lambda *a: ours(*a, **options), lambda *a: theirs(*a, **options), q, k, v)
    check(lambda *a: ours(*a, scale=0.3, **options), lambda *a: theirs(*a, scale=0.3, **options), q, k, v)


def test_attention_masks_and_shared_heads() -> None:
    ours, theirs = F.scaled_dot_product_attention, TF.scaled_dot_product_attention
    q, k, v = normal(2, 4, 5, 4), normal(2, 4, 6, 4), normal(2, 4, 6, 2)
    mask = rng.random((5, 6)) < 0.7
    mask[:, 0] = True
    check(lambda *a: ours(*a, attn_mask=Tensor(mask)), lambda *a: theirs(*a, attn_mask=torch.tensor(mask)), q, k, v)
    check(lambda a, b, c, m: ours(a, b, c, m), lambda a, b, c, m: theirs(a, b, c, m), q, k, v, normal(2, 1, 5, 6))
    check(
        lambda *a: ours(*a, enable_gqa=True),
        lambda *a: theirs(*a, enable_gqa=True),
        q,
        normal(2, 2, 6, 4),
        normal(2, 2, 6, 2),
    )


CLASS_LOSSES = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 2}, {"label_smoothing": 0.1}]


@pytest.mark.parametrize("options", CLASS_LOSSES, ids=str)
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3), (5,)], ids=str)
def test_cross_entropy(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    target = classes(5, *[n for i, n in enumerate(shape) if i != min(1, len(shape) - 1)])
    if len(shape) > 1:
        target.flat[0] = 2
        target.flat[1] = 1
    elif "ignore_index" in options:
        target = np.array(1)
    check(
        lambda a, t: F.cross_entropy(a, t, **options),
        lambda a, t: TF.cross_entropy(a, t, **options),
        normal(*shape),
        target,
    )
    if "label_smoothing" not in options:
        check(
            lambda a, t: F.nll_loss(a, t, **options), lambda a, t: TF.nll_loss(a, t, **options), normal(*shape), target
        )


@pytest.mark.parametrize("options", CLASS_LOSSES, ids=str)
def test_cross_entropy_with_class_weights(options: dict[str, Any]) -> None:
    x, target, w = normal(6, 5), np.array([0, 1, 2, 3, 4, 2]), positive(5)
    ours, theirs = Tensor(w), torch.tensor(w)
    check(
        lambda a, t: F.cross_entropy(a, t, weight=ours, **options),
        lambda a, t: TF.cross_entropy(a, t, weight=theirs, **options),
        x,
        target,
    )


def test_cross_entropy_with_probabilities() -> None:
    for options in ({}, {"reduction": "none"}, {"label_smoothing": 0.2}):
        check(
            lambda a, t, o=options: F.cross_entropy(a, t, **o),  # type: ignore[misc]
            lambda a, t, o=options: TF.cross_entropy(a, t, **o),  # type: ignore[misc]
            normal(4, 5, 2),
            chances(4, 5, 2),
        )


def test_cross_entropy_reads_the_logits_once() -> None:
    # The targets that count are counted first; loss and gradient of a row come from one kernel.
    x = Tensor(np.zeros((2048, 64), np.float32), requires_grad=True)
    loss = F.cross_entropy(x, Tensor(np.zeros(2048, np.int32)))
    loss.backward()
    assert x.grad is not None
    plan = plan_of([loss, x.grad])
    logits = next(i for i, v in enumerate(plan.values[: plan.inputs]) if v.size == x.numel())
    assert sum(logits in c.args for c in plan.calls) == 1


def test_cross_entropy_is_stable() -> None:
    x = np.array([[1e4, 0.0, -1e4]])
    loss = F.cross_entropy(Tensor(x), Tensor([1]))
    assert evaluate([loss.uop])[0] == pytest.approx(1e4)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_other_losses(reduction: str) -> None:
    x, y = normal(4, 3), normal(4, 3)
    for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"):
        check(
            lambda a, b, n=name: getattr(F, n)(a, b, reduction=reduction),  # type: ignore[misc]
            lambda a, b, n=name: getattr(TF, n)(a, b, reduction=reduction),  # type: ignore[misc]
            x,
            y,
        )
    t = positive(4, 3)
    check(
        lambda a: F.binary_cross_entropy(a, Tensor(t), reduction=reduction),
        lambda a: TF.binary_cross_entropy(a, torch.tensor(t), reduction=reduction),
        positive(4, 3),
    )
    check(
        lambda a, b: F.kl_div(a, b, reduction=reduction),
        lambda a, b: TF.kl_div(a, b, reduction=reduction),
        x,
        positive(4, 3),
    )
    check(
        lambda a, b: F.kl_div(a, b, reduction=reduction, log_target=True),
        lambda a, b: TF.kl_div(a, b, reduction=reduction, log_target=True),
        x,
        y,
    )


def test_dropout() -> None:
    x = Tensor(np.ones((1000,), np.float32))
    got = evaluate([F.dropout(x, 0.25).uop])[0]
    assert set(np.unique(got)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.70 < (got > 0).mean() < 0.80
    assert F.dropout(x, 0.25, training=False) is x
    assert not evaluate([F.dropout(x, 1.0).uop])[0].any()


def test_errors_name_the_shapes() -> None:
    x = Tensor.zeros(2, 3, 4, 4)
    with pytest.raises(ShapeError, match=r"3 channels in 1 groups"):
        F.conv2d(x, Tensor.zeros(4, 2, 3, 3))
    with pytest.raises(ShapeError, match="does not fit"):
        F.conv2d(x, Tensor.zeros(4, 3, 5, 5))
    with pytest.raises(ShapeError, match="half the kernel"):
        F.max_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError, match="normalized_shape"):
        F.layer_norm(x, 5)
    with pytest.raises(ShapeError, match=r"class targets have shape \(2,\)"):
        F.cross_entropy(Tensor.zeros(2, 3), Tensor([1, 2, 3]))
    with pytest.raises(DTypeError, match="float"):
        F.cross_entropy(Tensor([[1, 2]]), Tensor([1]))
    with pytest.raises(ShapeError, match="reduction"):
        F.mse_loss(Tensor([1.0]), Tensor([1.0]), reduction="median")
    with pytest.raises(ShapeError, match="one shape"):
        F.kl_div(Tensor([1.0]), Tensor([1.0, 2.0]))


ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ["relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "softplus", "elu", "celu", "selu", "mish"], ()
    ),
    **dict.fromkeys(["hardtanh", "hardswish", "logsigmoid", "softsign", "tanhshrink", "hardshrink"], ()),
    "leaky_relu": (0.1,),
    "softshrink": (0.2,),
    "threshold": (0.1, -2.0),
    "softmax": (1,),
    "log_softmax": (-1,),
    "softmin": (0,),
    "pad": ((1, 2, 0, 1), "constant", 3.0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_functions_too(name: str) -> None:
    x = normal(3, 4) * 4
    check(lambda x: getattr(F, name)(x, *ACTIVATIONS[name]), lambda x: getattr(TF, name)(x, *ACTIVATIONS[name]), x)


def test_activations_with_a_tensor_and_of_integers() -> None:
    check(F.prelu, TF.prelu, normal(2, 3, 4), positive(3))
    # torch's own hardsigmoid has the float32 next to 1/6 for its slope.
    check(F.hardsigmoid, lambda x: TF.relu6(x + 3) / 6, normal(3, 4) * 4)
    index = np.array([[0, 2], [1, 0]])
    np.testing.assert_array_equal(F.one_hot(Tensor(index), 3).numpy(), TF.one_hot(torch.tensor(index), 3).numpy())
