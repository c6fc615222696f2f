"""The losses that are not of classification, as functions and as modules, against torch: values and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import ShapeError
from anneal.tensor import Tensor, functional as F, jit
from tests.helpers import optional
from tests.nn.beside_torch import check, normal

torch = optional("torch")
rng = np.random.default_rng(0)


def signs(*shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(0, 2, shape) * 2.0 - 1


CASES: dict[str, tuple[tuple[Any, ...], list[dict[str, Any]]]] = {
    "soft_margin_loss": ((normal(4, 3), signs(4, 3)), [{}]),
    "hinge_embedding_loss": ((normal(4, 3), signs(4, 3)), [{}, {"margin": 0.4}]),
    "margin_ranking_loss": ((normal(5), normal(5), signs(5)), [{}, {"margin": 0.3}]),
    "cosine_embedding_loss": ((normal(6, 4), normal(6, 4), signs(6)), [{}, {"margin": 0.2}]),
    "triplet_margin_loss": ((normal(5, 4), normal(5, 4), normal(5, 4)), [{}, {"margin": 2.0, "p": 3.0, "swap": True}]),
    "multi_margin_loss": ((normal(6, 5), rng.integers(0, 5, 6)), [{}, {"p": 2, "margin": 0.5}]),
    "multilabel_soft_margin_loss": ((normal(4, 3), rng.integers(0, 2, (4, 3)).astype(float)), [{}]),
    "poisson_nll_loss": (
        (np.abs(normal(4, 3)) + 0.1, rng.integers(0, 5, (4, 3)).astype(float)),
        [{}, {"full": True}, {"log_input": False}],
    ),
    "gaussian_nll_loss": ((normal(4, 3), normal(4, 3), np.abs(normal(4, 3)) + 0.01), [{}, {"full": True, "eps": 0.3}]),
}
MODULES = {
    "soft_margin_loss": "SoftMarginLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss",
    "triplet_margin_loss": "TripletMarginLoss",
    "multi_margin_loss": "MultiMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "poisson_nll_loss": "PoissonNLLLoss",
    "gaussian_nll_loss": "GaussianNLLLoss",
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_torchs(name: str, reduction: str) -> None:
    arrays, variants = CASES[name]
    fixed: tuple[Any, ...] = ()
    if name in ("soft_margin_loss", "multilabel_soft_margin_loss"):  # torch gives their targets no gradient
        arrays, fixed = arrays[:1], arrays[1:]
    mine, others = [Tensor(a) for a in fixed], [torch.tensor(a) for a in fixed]
    for options in variants:
        options = {**options, "reduction": reduction}
        for ours, theirs in (
            (partial(getattr(F, name), **options), partial(getattr(torch.nn.functional, name), **options)),
            (getattr(nn, MODULES[name])(**options), getattr(torch.nn, MODULES[name])(**options)),
        ):
            check(lambda *a, f=ours: f(*a, *mine), lambda *a, f=theirs: f(*a, *others), *arrays)  # type: ignore[misc]


@pytest.mark.parametrize(
    "name", ["MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss"]
)
def test_a_module_is_its_function(name: str) -> None:
    x, y = rng.uniform(0.1, 0.9, (2, 4, 3))
    reduction = "batchmean" if name == "KLDivLoss" else "mean"
    check(getattr(nn, name)(reduction=reduction), getattr(torch.nn, name)(reduction=reduction), x, y)


def test_losses_of_classes() -> None:
    x, target, w = normal(6, 5), np.array([0, 1, 2, 3, 4, 2]), rng.uniform(0.1, 1, 5)
    for name in ("CrossEntropyLoss", "NLLLoss"):
        ours, theirs = [getattr(m, name) for m in (nn, torch.nn)]
        check(ours(), theirs(), x, target)
        check(ours(Tensor(w), ignore_index=2), theirs(torch.tensor(w), ignore_index=2), x, target)
    check(nn.CrossEntropyLoss(label_smoothing=0.1), torch.nn.CrossEntropyLoss(label_smoothing=0.1), x, target)


def test_errors_name_the_shapes() -> None:
    x = Tensor.zeros(4, 3)
    with pytest.raises(ShapeError, match=r"cosine_embedding_loss: .* the target has shape \(4,\), not \(4, 3\)"):
        F.cosine_embedding_loss(x, x, x)
    with pytest.raises(ShapeError, match=r"multi_margin_loss: .* p is 1 or 2, not \(4, 3\) and 3"):
        F.multi_margin_loss(x, Tensor([0, 1, 2, 0]), p=3)
    with pytest.raises(ShapeError, match="margin_ranking_loss: input and target must have one shape"):
        F.margin_ranking_loss(x, x, Tensor.zeros(4))


def test_a_variance_that_lacks_the_last_axis_is_one_for_all_along_it() -> None:
    rng = np.random.default_rng(0)
    x, t = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
    var = rng.uniform(0.5, 2, 4).astype(np.float32)
    want = torch.nn.functional.gaussian_nll_loss(*map(torch.tensor, (x, t, var)))
    assert F.gaussian_nll_loss(Tensor(x), Tensor(t), Tensor(var)).item() == pytest.approx(want.item(), rel=1e-5)
    with pytest.raises(ShapeError, match="var has that shape"):
        F.gaussian_nll_loss(Tensor(x[:3]), Tensor(t[:3]), Tensor(var))


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_shapes_that_broadcast_are_warned_of_at_the_users_line(name: str) -> None:
    a, b = np.float32([[1.0], [2.0], [4.0]]), np.float32([1.5, 3.0, 2.0])
    loss, wide = (
        getattr(F, name),
        (Tensor(np.broadcast_to(a, (3, 3)).copy()), Tensor(np.broadcast_to(b, (3, 3)).copy())),
    )
    said = r"Using a target size \(\(3,\)\) that is different to the input size \(\(3, 1\)\)\. .* due to broadcasting"
    for _ in range(3):
        with pytest.warns(UserWarning, match=said) as caught:
            found = loss(Tensor(a), Tensor(b))
        assert [w.filename for w in caught] == [__file__]
        np.testing.assert_allclose(found.item(), loss(*wide).item(), rtol=1e-6)
    with pytest.raises(ShapeError, match=f"{name}: input and target: shapes .* do not broadcast"):
        loss(Tensor(a), Tensor(b[:2]).reshape(2, 1))


# labels (of 4 classes), lengths of at most 6 steps and the blank, and what torch 2.13 says: its losses, or an error
CTC: dict[str, tuple[Any, list[int], list[int], int, list[float] | str]] = {
    "labels": ([[1, 2], [3, 1]], [6, 6], [2, 2], 0, [2.9976, 4.6197]),
    "another blank": ([[1, 2], [2, 1]], [6, 6], [2, 2], 3, [4.5468, 4.9796]),
    "in a row": ([1, 2, 3], [6, 6], [2, 1], 0, [2.9976, 5.1288]),
    "what is beyond a length": ([[1, -1], [3, 1]], [6, 6], [1, 2], 0, [4.0425, 4.6197]),
    "the blank beyond a length": ([[1, 0], [3, 1]], [6, 6], [1, 2], 0, [4.0425, 4.6197]),
    "no label": ([[1, 2], [3, 1]], [6, 6], [0, 2], 0, [6.4636, 4.6197]),
    "no step": ([[1, 2], [3, 1]], [0, 6], [2, 2], 0, [np.inf, 4.6197]),
    "no step for one label": ([[1, 2], [3, 1]], [0, 6], [1, 2], 0, [np.inf, 4.6197]),
    "no step for no label": ([[1, 2], [3, 1]], [0, 6], [0, 2], 0, [0.0, 4.6197]),
    "no labels": ([[], []], [6, 6], [0, 0], 0, [6.4636, 10.1990]),
    "no labels in a row": ([], [6, 6], [0, 0], 0, [6.4636, 10.1990]),
    "no class": ([[1, 4], [3, 1]], [6, 6], [2, 2], 0, r"labels \[4\] and blank 0: all are classes of 0 to 3"),
    "a negative label": ([[1, -1], [3, 1]], [6, 6], [2, 2], 0, r"labels \[-1\]"),
    "no class in a row": ([1, 7, 3], [6, 6], [2, 1], 0, r"labels \[7\]"),
    "the blank": ([[1, 0], [3, 1]], [6, 6], [2, 2], 0, r"labels \[0\] and blank 0: .* no label is blank"),
    "a blank that is no class": ([[1, 2], [3, 1]], [6, 6], [2, 2], 4, "blank 4: all are classes of 0 to 3"),
    "a negative blank": ([[1, 2], [3, 1]], [6, 6], [2, 2], -1, "blank -1"),
    "too many steps": ([[1, 2], [3, 1]], [7, 6], [2, 2], 0, "at most 6 steps"),
    "steps below 0": ([[1, 2], [3, 1]], [-1, 6], [2, 2], 0, "lengths for 2 examples"),
    "labels below 0": ([[1, 2], [3, 1]], [6, 6], [-1, 2], 0, "lengths for 2 examples"),
    "too few labels": ([[1, 2], [3, 1]], [6, 6], [3, 2], 0, r"targets of shape \(2, 2\) for lengths \[3, 2\]"),
    "too many in a row": ([1, 2, 3, 1], [6, 6], [2, 1], 0, r"not \(4,\)"),
}


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("case", CTC)
def test_ctc_takes_classes_alone(case: str, wrap: Any) -> None:
    labels, steps, lengths, blank, wanted = CTC[case]
    chances = np.random.default_rng(0).dirichlet(np.ones(4), (6, 2)).astype(np.float32)

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.ctc_loss(x, labels, steps, lengths, blank, "none")

    call, given, labels = wrap(loss), Tensor(np.log(chances)), Tensor(labels, dtype="int32")
    if isinstance(wanted, str):
        if wrap is jit and "label" in wanted:
            return  # a captured function does not know its arguments' values
        with pytest.raises(ShapeError, match=wanted):
            call(given, labels)
    else:
        for _ in range(3):
            np.testing.assert_allclose(call(given, labels).numpy(), wanted, atol=1e-4)
