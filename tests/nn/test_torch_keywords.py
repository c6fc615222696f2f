"""torch's calls by keyword, its blocks before functions and its closures, of what is no op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anneal as an
from anneal import nn

CALLS = """
nn.utils.clip_grad_norm_(parameters=layer.parameters(), max_norm=1.0); nn.utils.clip_grad_value_(parameters=layer.parameters(), clip_value=1.0)
layer.load_state_dict(state_dict=layer.state_dict()); optimizer.load_state_dict(state_dict=optimizer.state_dict())
an.save(obj={"a": an.ones(1)}, f=path); an.load(f=path); layer.apply(fn=repr); optimizer.step(closure=None); optimizer.step(None)
"""


def test_arguments_have_torchs_names(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    names: dict[str, Any] = {"an": an, "nn": nn, "layer": layer, "path": str(tmp_path / "a.safetensors")}
    names["optimizer"] = an.optim.SGD(layer.parameters(), lr=0.1)
    for call in CALLS.replace("\n", ";").split(";"):
        if call.strip():
            eval(call.strip(), names)


@pytest.mark.parametrize(
    ("block", "records"),
    [
        (an.no_grad, False),
        (an.enable_grad, True),
        (an.inference_mode, False),
        (an.inference_mode(), False),
        (an.inference_mode(False), True),
        (an.inference_mode(mode=True), False),
    ],
    ids=range(6),
)
def test_a_block_stands_before_a_function_with_or_without_parentheses(block: Any, records: bool) -> None:
    w = an.ones(1, requires_grad=True)
    for outside in (an.enable_grad, an.no_grad):
        with outside():
            assert block(lambda: w * 2)().requires_grad is records
            assert (w * 2).requires_grad is (outside is an.enable_grad)


def test_set_grad_enabled_before_a_function() -> None:
    w = an.ones(1, requires_grad=True)
    assert not an.set_grad_enabled(False)(lambda: w * 2)().requires_grad
    assert (w * 2).requires_grad


@pytest.mark.parametrize("result", ["tensor", "number", "nothing"])
@pytest.mark.parametrize("kind", ["SGD", "LBFGS"])
def test_a_closure_gives_what_it_likes_also_under_no_grad(kind: str, result: str) -> None:
    w = nn.Parameter(an.ones(1))
    optimizer = getattr(an.optim, kind)([w], lr=0.25)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return {"tensor": loss, "number": loss.item(), "nothing": None}[result]

    if (kind, result) == ("LBFGS", "nothing"):  # it asks for the loss, as torch's does
        with pytest.raises(TypeError):
            optimizer.step(closure)
        return
    with an.no_grad():
        loss = optimizer.step(closure)
    assert loss is None if result == "nothing" else float(loss) == 1.0
    assert abs(w.item()) < 0.6


@pytest.mark.parametrize(
    "name", ["uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
             "kaiming_normal_", "orthogonal_", "sparse_"],
)  # fmt: skip
def test_initial_values_come_from_a_generator(name: str) -> None:
    draw = getattr(nn.init, name)
    more = (0.5,) if name == "sparse_" else ()
    first, again, other = (draw(an.zeros(3, 4), *more, generator=an.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_shared_buffer_comes_once() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, nn.ReLU(), norm)
    assert [n for n, _ in model.named_buffers()] == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    assert len(list(model.named_buffers(remove_duplicate=False))) == 6
    assert (len(list(model.modules())), len(list(model.modules(remove_duplicate=False)))) == (3, 4)
    assert model.get_buffer("2.running_mean") is norm.running_mean


@pytest.mark.parametrize(
    "make", ["BatchNorm1d(4", "SyncBatchNorm(4", "GroupNorm(2, 4", "InstanceNorm1d(4, affine=True"]
)
def test_norms_without_a_bias_have_their_weight(make: str) -> None:
    layer, whole = (eval(f"nn.{make}{more})") for more in (", bias=False", ""))
    assert "bias" not in layer.state_dict()
    assert ("bias=False" in repr(layer)) is ("bias=False" not in repr(whole)) is True
    for norm in (layer, whole):
        norm.weight.data = an.tensor([1.0, 2.0, 3.0, 4.0])
    x = an.arange(24).reshape(2, 4, 3).float().sin()
    assert layer(x).tolist() == whole(x).tolist()
    assert nn.BatchNorm1d(2, affine=False).bias is None
