"""Training with weights and activations of 16 bits: as well as with float32, because the optimiser keeps a copy in
float32.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from anneal import nn
from anneal.backend import get_device
from anneal.errors import DTypeError
from anneal.tensor import Tensor, dtypes, functional as F, jit
from anneal.uop import DType

STEPS = 60  # on the cpu


class Classifier(nn.Module):
    def __init__(self) -> None:
        self.first, self.norm, self.second = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x).gelu()))


def rings() -> tuple[np.ndarray, np.ndarray]:
    """Points of four classes that no plane separates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(128, 8)).astype(np.float32)
    return x, (np.linalg.norm(x, axis=1) * 2 % 4).astype(np.int32)


def train(
    make: Callable[..., nn.Optimizer], dtype: DType, device: str, steps: int
) -> tuple[list[float], Classifier, list[DType]]:
    Tensor.manual_seed(3)
    model = Classifier().to(device, dtype)
    optimizer = make(model.parameters())
    x, y = rings()
    data, target = Tensor(x, device=device).cast(dtype), Tensor(y, device=device)
    kinds: list[DType] = []

    @jit
    def step(data: Tensor, target: Tensor) -> Tensor:
        hidden = model(data)
        kinds.append(hidden.dtype)
        loss = F.cross_entropy(hidden.float(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step(data, target).item()) for _ in range(steps)]
    assert losses[0] > 1.2
    return losses, model, kinds


MAKERS: dict[str, Callable[..., nn.Optimizer]] = {
    "AdamW": lambda p: nn.AdamW(p, lr=1e-2),
    "SGD": lambda p: nn.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16], ids=repr)
def test_16_bits_train_as_well_as_32(name: str, dtype: DType) -> None:
    wide = float(np.mean(train(MAKERS[name], dtypes.float32, "cpu", STEPS)[0][-5:]))
    losses, model, kinds = train(MAKERS[name], dtype, "cpu", STEPS)
    assert set(kinds) == {dtype}
    assert all(p.dtype is dtype for p in model.parameters())
    assert wide < 0.9
    assert abs(float(np.mean(losses[-5:])) - wide) < 0.05 * wide + 0.02


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16], ids=repr)
def test_the_devices_train_alike(dtype: DType, webgpu: str) -> None:
    if dtype not in get_device(webgpu).limits.dtypes:
        pytest.skip(f"{webgpu} has no {dtype.name}")
    ours, model, _ = train(MAKERS["AdamW"], dtype, webgpu, 6)
    theirs, _, _ = train(MAKERS["AdamW"], dtype, "cpu", 6)
    assert all(p.dtype is dtype for p in model.parameters())
    np.testing.assert_allclose(ours, theirs, rtol=5e-3)


@pytest.mark.parametrize("name", list(MAKERS))
def test_updates_too_small_for_the_parameter_add_up(name: str) -> None:
    """A step of 1/1000 of a unit in the last place would leave a bfloat16 where it is, for ever."""
    w = Tensor(np.ones(4, ml_dtypes.bfloat16), requires_grad=True)
    optimizer = {"AdamW": lambda: nn.AdamW([w], lr=1e-4, weight_decay=0.0), "SGD": lambda: nn.SGD([w], lr=1e-4)}[name]()
    for _ in range(200):
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
    assert w.dtype is dtypes.bfloat16
    np.testing.assert_allclose(w.numpy().astype(np.float32), 0.98, atol=2.0**-8)
    np.testing.assert_allclose(optimizer.state_dict()["0.master"].numpy(), 0.98, atol=1e-4)


def test_a_parameter_that_is_set_counts(device: str) -> None:
    w = Tensor(np.ones(3, ml_dtypes.bfloat16), requires_grad=True)
    optimizer = nn.SGD([w], lr=0.25)
    for value, after in ((1.0, 0.75), (0.75, 0.5), (8.0, 7.75)):
        w.assign(Tensor([value] * 3, device=device))
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
        assert w.tolist() == [after] * 3


def test_the_float32_copy_is_saved() -> None:
    def made() -> tuple[Tensor, nn.AdamW]:
        w = Tensor(np.ones(2, ml_dtypes.bfloat16), requires_grad=True)
        return w, nn.AdamW([w], lr=1e-3)

    def steps(w: Tensor, optimizer: nn.AdamW, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()

    w, optimizer = made()
    steps(w, optimizer, 5)
    v, again = made()
    v.assign(Tensor(w.numpy()))
    again.load_state_dict({n: t.numpy() for n, t in optimizer.state_dict().items()})
    steps(w, optimizer, 5)
    steps(v, again, 5)
    np.testing.assert_array_equal(again.state_dict()["0.master"].numpy(), optimizer.state_dict()["0.master"].numpy())


def test_a_module_changes_its_dtype_in_place() -> None:
    model = Classifier()
    weight = model.first.weight
    before = weight.numpy()
    assert model.bfloat16().first.weight is weight
    assert weight.requires_grad
    np.testing.assert_array_equal(weight.numpy(), before.astype(ml_dtypes.bfloat16))
    assert model(Tensor(np.ones((2, 8), ml_dtypes.bfloat16))).dtype is dtypes.bfloat16
    assert model.half().first.weight.dtype is dtypes.float16
    assert model.double().first.weight.dtype is dtypes.float64
    assert {t.dtype for t in model.float().parameters()} == {dtypes.float32}
    norm = nn.BatchNorm2d(3).half()
    assert norm.running_mean is not None
    assert norm.running_mean.dtype is dtypes.float16
    with pytest.raises(DTypeError, match=r"Classifier\.to: a module's dtype is a float, not int32"):
        model.to("int32")


def test_a_captured_step_notices() -> None:
    model = nn.Linear(3, 2)
    f = jit(lambda x: model(x))
    x = Tensor([[1.0, 2.0, 3.0]])
    for _ in range(3):
        assert f(x).dtype is dtypes.float32
    model.bfloat16()
    for _ in range(3):
        assert f(x.bfloat16()).dtype is dtypes.bfloat16
        assert f(x).dtype is dtypes.float32


def _float(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


TOKENS = np.random.default_rng(2).integers(0, 20, (2, 8)).astype(np.int32)
LAYERS: dict[str, tuple[Callable[[], nn.Module], np.ndarray]] = {
    "Linear": (lambda: nn.Linear(8, 4), _float(3, 8)),
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), _float(2, 3, 9)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3), _float(2, 3, 9, 9)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3), _float(2, 3, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(8), _float(3, 8)),
    "RMSNorm": (lambda: nn.RMSNorm(8), _float(3, 8)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), _float(4, 3, 5, 5)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), _float(2, 4, 5)),
    "RNN": (lambda: nn.RNN(8, 6), _float(5, 2, 8)),
    "LSTM": (lambda: nn.LSTM(8, 6), _float(5, 2, 8)),
    "GRU": (lambda: nn.GRU(8, 6), _float(5, 2, 8)),
    "SwiGLU": (lambda: nn.SwiGLU(8, 16), _float(3, 8)),
    "SelfAttention": (lambda: nn.SelfAttention(16, 4), _float(2, 5, 16)),
    "GroupedQueryAttention": (lambda: nn.GroupedQueryAttention(16, 4, 2), _float(2, 5, 16)),
    "GPT": (lambda: nn.GPT(vocab_size=20, block_size=8, n_layer=2, n_head=2, n_embd=16), TOKENS),
    "Llama": (lambda: nn.Llama(nn.LlamaConfig(20, 16, 2, 4, 2, max_seq_len=8)), TOKENS),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_layer_keeps_its_dtype(name: str) -> None:
    """No constant or table of a layer turns 16 bits into 32 again, and the values are those of float32, rounded."""
    make, data = LAYERS[name]

    def out(model: nn.Module, dtype: DType) -> Tensor:
        y = model(Tensor(data) if data.dtype == np.int32 else Tensor(data).cast(dtype))
        return y[0] if isinstance(y, tuple) else y

    wide = make()
    expected = out(wide, dtypes.float32).numpy()
    state = {n: t.numpy() for n, t in wide.state_dict().items()}
    for dtype in (dtypes.bfloat16, dtypes.float16):
        model = make()
        model.load_state_dict(state)
        y = out(model.to(dtype), dtype)
        assert y.dtype is dtype
        assert np.abs(y.float().numpy() - expected).max() < 4 * 2.0**-dtype.digits * np.abs(expected).max()
        y.float().square().sum().backward()
        assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {dtype}


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("momentum", [0.5, None])
@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d"])
def test_running_statistics_move(name: str, momentum: float | None, dtype: DType) -> None:
    """A layer moves its own running statistics, not a float32 copy of them that was made for the computation."""
    if name == "InstanceNorm1d" and momentum is None:
        return
    x = np.random.default_rng(0).normal(1.0, 2.0, size=(4, 3, 5)).astype(np.float32)
    kept = []
    for kind in (dtypes.float32, dtype):
        layer = getattr(nn, name)(3, momentum=momentum, affine=True, track_running_stats=True).to(dtype=kind)
        data = Tensor(x).cast(dtype).cast(kind)
        for _ in range(3):
            assert layer(data).dtype is kind
        kept.append([t.float().numpy() for t in (layer.running_mean, layer.running_var, layer.eval()(data))])
    for wide, narrow in zip(*kept, strict=True):
        assert np.allclose(wide, narrow, rtol=0.02, atol=0.02)
