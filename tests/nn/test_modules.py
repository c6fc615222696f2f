"""Modules: names, states, layouts, modes; layers against torch's own with the same weights."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DataError, ShapeError
from anneal.tensor import Tensor, functional, io, manual_seed
from tests.helpers import reference


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = [nn.LayerNorm(4), nn.Linear(4, 4, bias=False)]
        self.parts = {"norm": nn.BatchNorm2d(2)}
        self.scale = Tensor([1.0], requires_grad=True)
        self.offset = Tensor([0.0])
        self._hidden = Tensor([1.0], requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1](self.blocks[0](self.first(x))) * self.scale  # type: ignore[no-any-return]


def test_names_are_torchs() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "scale",
        "first.weight",
        "first.bias",
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.1.weight",
        "parts.norm.weight",
        "parts.norm.bias",
    ]
    assert [n for n, _ in net.named_buffers()] == [
        "offset",
        "parts.norm.running_mean",
        "parts.norm.running_var",
        "parts.norm.num_batches_tracked",
    ]
    assert net.num_parameters() == 1 + 16 + 8 + 16 + 4
    assert "Linear(in_features=3, out_features=4, bias=True)" in repr(net)


@pytest.mark.parametrize("load", [io.safe_load, io.safe_open])
def test_state_goes_from_one_to_another(load: Callable[[Path], Mapping[str, Tensor]], tmp_path: Path) -> None:
    a, b = Net(), Net()
    x = Tensor(np.ones((2, 3), np.float32))
    assert reference(a(x)).tolist() != reference(b(x)).tolist()
    io.safe_save(a.state_dict(), tmp_path / "a.safetensors")
    weight = b.first.weight
    assert b.load_state_dict(load(tmp_path / "a.safetensors")) == ([], [])
    assert b.first.weight is weight
    assert weight.requires_grad
    np.testing.assert_array_equal(reference(a(x)), reference(b(x)))


def test_a_loaded_state_is_a_copy() -> None:
    a, b = Net(), Net()
    b.load_state_dict(a.state_dict())
    before = reference(a.scale).tolist()
    a.scale.assign(a.scale + 1).realize()
    assert b.scale.tolist() == before
    b.scale.assign(b.scale * 0).realize()
    assert a.scale.tolist() == [x + 1 for x in before]


def test_skipped_parameters_take_no_memory_until_they_are_loaded() -> None:
    a = nn.Linear(3, 2)
    with nn.init.skipped():
        b = nn.Linear(3, 2)
    assert b.weight.requires_grad
    assert not b.weight.is_realized
    b.load_state_dict(a.state_dict())
    np.testing.assert_array_equal(b.weight.numpy(), a.weight.numpy())
    assert reference(nn.Linear(3, 2).weight).any()


def test_a_state_that_does_not_fit_is_described_and_not_loaded() -> None:
    net = Net()
    state: dict[str, Any] = dict(net.state_dict())
    del state["first.bias"]
    state["extra"] = Tensor([1.0])
    before = reference(net.scale).tolist()
    state["scale"] = Tensor([9.0])
    with pytest.raises(DataError, match=r"missing: first\.bias; unexpected: extra"):
        net.load_state_dict(state)
    assert reference(net.scale).tolist() == before
    assert net.load_state_dict(state, strict=False) == (["first.bias"], ["extra"])
    assert reference(net.scale).tolist() == [9]
    state["first.weight"] = np.zeros((3, 4))
    with pytest.raises(DataError, match=r"first\.weight has shape \(3, 4\), the model's is \(4, 3\)"):
        net.load_state_dict(state, strict=False)


def test_modes_reach_every_module() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)))
    assert all(m.training for m in net.modules())
    assert not any(m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())


def test_gradients_reach_parameters_and_are_forgotten() -> None:
    net = Net()
    net(Tensor(np.ones((2, 3), np.float32))).sum().backward()
    with_grad = [n for n, p in net.named_parameters() if p.grad is not None]
    assert with_grad == ["scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight"]
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_freezing_and_letting_loose() -> None:
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    net.requires_grad_(False)
    assert [n for n, _ in net.named_parameters()] == names
    assert not any(p.requires_grad for p in net.parameters())
    assert not set(names) & {n for n, _ in net.named_buffers()}
    net.requires_grad_()
    assert all(p.requires_grad for p in net.parameters())
    assert [n for n, _ in net.named_parameters()] == names


def test_a_module_list_names_its_modules_by_number() -> None:
    layers = nn.ModuleList([nn.Linear(1, 2)]).append(nn.ReLU())
    assert len(layers) == 2
    assert [n for n, _ in layers.named_parameters()] == ["0.weight", "0.bias"]
    with pytest.raises(NotImplementedError, match="forward"):
        layers(1)


def test_models_start_from_the_seed() -> None:
    manual_seed(3)
    a = nn.Linear(4, 4)
    manual_seed(3)
    b = nn.Linear(4, 4)
    np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())
    assert abs(a.weight.numpy()).max() <= 0.5


def test_batch_norm_counts_and_moves_its_statistics() -> None:
    norm = nn.BatchNorm2d(2)
    x = np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype(np.float32) + 5
    norm(Tensor(x))
    norm(Tensor(x))
    assert norm.num_batches_tracked is not None
    assert norm.running_mean is not None
    assert norm.num_batches_tracked.item() == 2
    np.testing.assert_allclose(norm.running_mean.numpy(), (1 - 0.81) * x.mean((0, 2, 3)), rtol=1e-5)
    kept = norm.running_mean.numpy()
    norm.eval()(Tensor(x))
    np.testing.assert_array_equal(kept, norm.running_mean.numpy())
    with pytest.raises(ShapeError, match="BatchNorm2d"):
        norm(Tensor(x[0]))


LAYERS: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
    ("Linear", lambda m: m.Linear(5, 3), (2, 4, 5)),
    ("Linear without bias", lambda m: m.Linear(5, 3, bias=False), (5,)),
    ("Conv2d", lambda m: m.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 5, 5)),
    ("Conv2d, dilated", lambda m: m.Conv2d(2, 3, (3, 2), dilation=2, bias=False), (1, 2, 7, 6)),
    ("MaxPool2d", lambda m: m.MaxPool2d(3, 2, 1), (2, 2, 6, 7)),
    ("AvgPool2d", lambda m: m.AvgPool2d(2), (2, 2, 6, 7)),
    ("LayerNorm", lambda m: m.LayerNorm(6), (3, 6)),
    ("LayerNorm over two axes", lambda m: m.LayerNorm((2, 6), bias=False), (3, 2, 6)),
    ("RMSNorm", lambda m: m.RMSNorm(6), (3, 6)),
    ("BatchNorm2d", lambda m: m.BatchNorm2d(3), (4, 3, 2, 2)),
    ("GELU", lambda m: m.GELU(), (7,)),
    ("GELU tanh", lambda m: m.GELU("tanh"), (7,)),
    ("Flatten", lambda m: m.Flatten(), (2, 3, 4)),
    ("Sequential", lambda m: m.Sequential(m.Linear(3, 4), m.ReLU(), m.Linear(4, 2)), (5, 3)),
]


@pytest.mark.parametrize(("name", "make", "shape"), LAYERS, ids=[n for n, _, _ in LAYERS])
def test_layers_agree_with_torch(name: str, make: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(nn)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({k: v.numpy() + 0.1 for k, v in state.items()})
    theirs.load_state_dict({k: v + 0.1 for k, v in state.items()})
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for mode in (True, False):
        got = ours.train(mode)(Tensor(x)).numpy()
        want = theirs.train(mode)(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for key, value in theirs.state_dict().items():
        if value.is_floating_point():
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


def test_embedding_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.Embedding(7, 3), nn.Embedding(7, 3)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    index = np.array([[0, 6], [3, 3]])
    np.testing.assert_array_equal(
        ours(Tensor(index, dtype="int32")).numpy(), theirs(torch.tensor(index)).detach().numpy()
    )


def torch_gpt(state: dict[str, Any], index: Any, heads: int, torch: Any) -> Any:
    """GPT-2's formulas over a state dict."""
    F = torch.nn.functional
    w = {k: torch.tensor(v.numpy(), requires_grad=True) for k, v in state.items()}
    n = index.shape[1]
    x = w["wte.weight"][index] + w["wpe.weight"][:n]
    width = x.shape[-1]

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"])

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    layers = len({k.split(".")[1] for k in state if k.startswith("h.")})
    for i in range(layers):
        h = f"h.{i}"
        q, k, v = linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").split(width, 2)
        q, k, v = [t.view(*t.shape[:2], heads, width // heads).transpose(1, 2) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + linear(y, f"{h}.attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh"), f"{h}.mlp.c_proj")
    return F.linear(norm(x, "ln_f"), w["wte.weight"]), w


def test_gpt_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    manual_seed(0)
    model = nn.GPT(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8)
    for p in model.parameters():
        p.assign(Tensor(np.random.default_rng(p.numel()).standard_normal(p.shape).astype(np.float32) * 0.3))
    index = np.random.default_rng(0).integers(0, 11, (3, 6))
    target = np.roll(index, -1, 1)
    logits = model(Tensor(index, dtype="int32"))
    loss = model.loss(Tensor(index, dtype="int32"), Tensor(target, dtype="int32"))
    loss.backward()
    want, weights = torch_gpt(model.state_dict(), torch.tensor(index), 2, torch)
    np.testing.assert_allclose(logits.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-4)
    theirs = torch.nn.functional.cross_entropy(want.reshape(-1, 11), torch.tensor(target).reshape(-1))
    theirs.backward()
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    for name, p in model.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), weights[name].grad.numpy(), rtol=2e-3, atol=2e-5, err_msg=name)


def test_gpt_names_sizes_and_start() -> None:
    manual_seed(1)
    model = nn.GPT(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128)
    names = [n for n, _ in model.named_parameters()]
    assert names[:4] == ["wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias"]
    assert "h.3.attn.c_attn.weight" in names
    assert "lm_head.weight" in model.state_dict()
    assert "lm_head.weight" not in names
    assert model.lm_head.weight is model.wte.weight
    assert model.num_parameters() == 65 * 128 + 64 * 128 + 4 * (12 * 128**2 + 13 * 128) + 2 * 128
    deviation = model.h[0].mlp.c_proj.weight.numpy().std()
    assert deviation == pytest.approx(0.02 / np.sqrt(8), rel=0.05)
    rng = np.random.default_rng(0)
    index = Tensor(rng.integers(0, 65, (4, 64)).astype(np.int32))
    assert model.loss(index, index.roll(-1, 1)).item() == pytest.approx(np.log(65), abs=0.1)
    with pytest.raises(ShapeError, match="block_size 64"):
        model(Tensor(np.zeros((1, 65), np.int32)))
    with pytest.raises(ShapeError, match="heads"):
        nn.CausalSelfAttention(10, 4)
    assert nn.GPT.from_config(nn.GPTConfig(5, 4, 1, 1, 4, tie_weights=False)).num_parameters() > 0


@pytest.mark.parametrize("name", nn.__all__)
def test_what_is_public_has_an_example(name: str) -> None:
    found = [getattr(nn, name)]
    if isinstance(found[0], types.ModuleType):
        # those that the tensors' door has, too, are held to their examples there
        found = [getattr(found[0], inner) for inner in found[0].__all__ if not hasattr(functional, inner)]
    for thing in found:
        if isinstance(thing, types.ModuleType):  # has pages of its own: tests/docs
            continue
        assert ">>> " in (thing.__doc__ or ""), f"{thing}: a docstring with an example"


def test_a_module_added_by_name_takes_part_in_a_sequential() -> None:
    """As in torch: `add_module` and a plain attribute append to the row; deleting takes it out."""
    row = nn.Sequential()
    row.add_module("up", nn.Linear(2, 3))
    row.add_module("act", nn.ReLU())
    row.down = nn.Linear(3, 4)
    assert row(Tensor.ones(1, 2)).shape == (1, 4)
    assert len(row) == 3
    assert row[2] is row.down
    assert [name for name, _ in row.named_children()] == ["up", "act", "down"]
    row.append(nn.ReLU())
    assert [name for name, _ in row.named_children()][-1] == "3"
    del row.down, row[0]
    assert [type(m).__name__ for m in row] == ["ReLU", "ReLU"]
    layers = nn.ModuleList()
    layers.add_module("0", nn.Linear(2, 2))
    assert len(layers) == 1


NO_CHANNELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(0, 3, bias=False), (2, 0), (2, 3)),
    "Linear, none out": (lambda: nn.Linear(3, 0), (2, 3), (2, 0)),
    "Conv2d": (lambda: nn.Conv2d(0, 3, 3, bias=False), (1, 0, 4, 4), (1, 3, 2, 2)),
    "Conv1d, none out": (lambda: nn.Conv1d(2, 0, 3), (1, 2, 4), (1, 0, 2)),
}


@pytest.mark.parametrize("name", NO_CHANNELS)
def test_layers_of_no_channels(name: str) -> None:
    made, shape, result = NO_CHANNELS[name]
    y = made()(Tensor.ones(*shape))
    assert y.shape == result
    assert not y.numpy().any()


class Frozen(nn.Module):
    """Stays in evaluation, and tells of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm1d(2), 0

    def train(self, mode: bool = True) -> Frozen:
        self.calls += 1
        super().train(mode)
        self.norm.eval()
        return self


def test_a_part_with_a_train_of_its_own_is_switched_by_it() -> None:
    """As torch does: parts of it stay as it leaves them, whoever switches the whole."""
    part, fixed = Frozen(), nn.Sequential(nn.Dropout())
    fixed.eval().train = lambda mode=True: fixed  # type: ignore[method-assign]
    whole = nn.Sequential(nn.Sequential(part, nn.Dropout()), fixed, nn.BatchNorm1d(2))
    for mode in (True, False, True):
        whole.train(mode)
        states = [m.training for m in (whole, part, part.norm, whole[0][1], fixed, fixed[0], whole[2])]
        assert states == [mode, mode, False, mode, False, False, mode]
    whole.eval()
    assert (part.calls, part.training) == (4, False)
    part.whole = [whole]  # type: ignore[assignment]  # a list is looked into: there is a way round
    nn.Sequential.train(whole)
    assert whole.training
