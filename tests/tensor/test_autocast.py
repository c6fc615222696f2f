"""`anneal.amp`: which functions cast under autocast, and a scale of losses that stays on the device."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import amp, nn
from anneal.amp import GradScaler, autocast, custom_bwd, custom_fwd
from anneal.autograd import Function
from anneal.errors import DTypeError
from anneal.nn import functional as F
from anneal.optim import SGD, Adam
from anneal.runtime import metered, observed
from anneal.tensor import Tensor, dtypes, jit, manual_seed
from anneal.uop import Op, toposort
from tests.tensor.torch_autocast import PATH
from tools.names import ROOT, declared

BF16, F16, F32 = dtypes.bfloat16, dtypes.float16, dtypes.float32
# torch's names of what is another function here, several, a module, or not there; and what torch's test leaves out
ELSEWHERE = {
    "_convolution",
    "_cudnn_rnn",
    "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell",
    "chain_matmul",
    "conv_tbc",
    "convolution",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "grid_sampler",
    "gru_cell",
    "linalg_multi_dot",
    "linalg_vecdot",
    "lstm_cell",
    "nll_loss2d",
    "rnn_relu_cell",
    "rnn_tanh_cell",
    "index_put",
}
FURTHER = {
    "low": "scaled_dot_product_attention vecdot",
    "float32": "cross_entropy huber_loss interpolate matrix_norm normalize softmin",
    "widest": "grid_sample index_put",
}


def test_the_column_of_the_table_is_torchs() -> None:
    ours: dict[str, str] = {}
    for folder in ("ops", "nn"):
        for f in declared(ROOT / "anneal" / folder):
            ours |= {name: f.said.get("autocast", "") for name in f.names if not name.endswith("_")}
    wanted = {n: rule for rule, names in json.loads(PATH.read_text()).items() for n in names if n not in ELSEWHERE}
    wanted |= {n: rule for rule, names in FURTHER.items() for n in names.split()}
    assert {n: ours.get(n, "not there") for n in wanted} == wanted
    assert {n for n, rule in ours.items() if rule} - set(wanted) <= {"mm", "mv", "bmm", "arccos", "arcsin", "arctan2"}


def narrow(device: str) -> str:
    """A dtype to cast to that the device has."""
    return "float16" if device == "cpu" else "bfloat16"


def test_dtypes_in_a_block(device: str) -> None:
    x, w, b = Tensor.ones(2, 4), Tensor.ones(4, 4), Tensor.ones(4)
    low = dtypes.float16 if device == "cpu" else BF16
    with autocast(device, narrow(device)):
        y = x @ w
        found = {
            "low": [y, F.linear(x, w, b), x.matmul(w), an.mm(x, w), b.addmv(w, b), an.einsum("ij,jk->ik", x, w)],
            "as given": [y + 1, y.relu(), F.gelu(y), y * y, y / 2, y.mean(), y.reshape(-1), F.dropout(y, 0.0)],
            "float32": [y.softmax(-1), y.sum(), y.exp(), y.log(), 2 / y, y**2, y.norm(), F.layer_norm(y, (4,))],
            "widest": [y + x, Tensor.cat([x, y]), y[0].dot(b), x.addcmul(y, y)],
        }
        loss = F.mse_loss(y, x.to(low))
    kinds = {rule: {t.dtype for t in some} for rule, some in found.items()}
    assert kinds == {"low": {low}, "as given": {low}, "float32": {F32}, "widest": {F32}}
    assert loss.dtype is F32
    np.testing.assert_allclose(y.float().numpy(), 4.0)
    np.testing.assert_allclose(found["float32"][0].numpy(), 0.25, atol=1e-6)


def test_float64_and_integers_stay() -> None:
    wide, whole = Tensor([[1.0]], dtype="float64"), Tensor([[2]])
    with autocast("cpu"):
        assert (wide @ wide).dtype is dtypes.float64
        assert wide.exp().dtype is dtypes.float64
        assert (whole @ whole).dtype is dtypes.int32
        assert Tensor([1.0], dtype=BF16).sum(dtype=BF16).dtype is BF16, "a call that names a dtype has it"


def test_blocks_in_blocks_and_other_devices() -> None:
    x = Tensor.ones(2, 2)

    @autocast("cpu", "float16")
    def product() -> Any:
        return (x @ x).dtype

    assert product() is F16
    with autocast("cpu", "bfloat16"):
        assert (product(), (x @ x).dtype) == (F16, BF16)
        with autocast("cpu", enabled=False):
            assert (x @ x).dtype is F32
            with autocast("cpu", "float16"):
                assert (amp.is_autocast_enabled("cpu"), amp.get_autocast_dtype("cpu")) == (True, F16)
        with autocast("webgpu", "float16"):
            assert (x @ x).dtype is BF16
        assert amp.is_autocast_enabled()
    with autocast("webgpu"):
        assert ((x @ x).dtype, amp.is_autocast_enabled("cpu")) == (F32, False)
    with pytest.raises(ZeroDivisionError), autocast("auto"):
        raise ZeroDivisionError
    assert (x @ x).dtype is F32
    assert not amp.is_autocast_enabled()


def test_what_is_not_there_warns_and_changes_nothing() -> None:
    x = Tensor.ones(2, 2)
    for given in (("cuda",), ("cpu", "float32")):
        with pytest.warns(UserWarning, match="nothing changes"):
            block = autocast(*given)
        with block:
            assert (x @ x).dtype is F32


def test_gradients_are_float32_and_products_of_them_narrow(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    x, w = Tensor(a), Tensor(b, requires_grad=True)
    with autocast(device, "bfloat16"):
        y = x @ w
        z = (y.relu() @ w).sum()
    z.backward()
    assert w.grad is not None
    assert w.grad.dtype is F32
    assert w.dtype is F32
    low = [u for u in toposort((w.grad.uop,)) if u.op is Op.REDUCE_AXIS and len(u.src[0].shape) > 2]
    assert {u.dtype for u in low} == {BF16}
    casts = {u for u in toposort((w.grad.uop,)) if u.op is Op.CAST and u.src[0] is w.uop}
    assert len(casts) == 1, "one cast of a parameter for all that use it"
    kept = np.maximum(a @ b, 0)
    wide = a.T @ (np.ones((4, 4), np.float32) @ b.T * (a @ b > 0)) + kept.T @ np.ones((4, 4), np.float32)
    np.testing.assert_allclose(w.grad.numpy(), wide, rtol=0.05, atol=0.1)


def test_repeated_calls_know_the_block() -> None:
    """Calls of the same code, late or of a whole module, in jit and without it, have the dtypes of their block."""
    layer, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), Tensor.ones(1, 2)
    calls = {"plain": layer, "jit": jit(layer)}
    for name, call in calls.items():
        for _ in range(3):
            for kind in (None, "bfloat16", "float16"):
                with autocast("cpu", kind, enabled=kind is not None):
                    y = call(x)
                assert y.dtype.name == (kind or "float32"), name
                y.realize()


def test_custom_functions() -> None:
    class Scaled(Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs="float32")
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append((x.dtype, amp.is_autocast_enabled("cpu")))
            return x @ x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Tensor) -> Tensor:
            seen.append((g.dtype, amp.is_autocast_enabled("cpu")))
            return g

    class Plain(Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x @ x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Tensor) -> Tensor:
            seen.append((g.dtype, amp.is_autocast_enabled("cpu")))
            return g @ g

    seen: list[Any] = []
    x = Tensor.ones(2, 2, requires_grad=True)
    with autocast("cpu", "bfloat16"):
        y = Scaled.apply(x.to(BF16))
    y.sum().backward()
    assert seen == [(F32, False), (F32, False)]
    seen.clear()
    with autocast("cpu", "bfloat16"):
        y = Plain.apply(x)
    assert y.dtype is BF16
    y.float().sum().backward()
    assert seen == [(BF16, True)]


def trained(precision: str, device: str, steps: int = 12) -> list[float]:
    manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.GPT(vocab_size=16, block_size=8, n_layer=1, n_head=2, n_embd=16)
    optimiser, scaler = Adam(model.parameters(), lr=1e-2), GradScaler(device, 2.0**10, enabled=precision == "float16")
    x = Tensor(rng.integers(0, 16, (4, 9)).astype(np.int32))

    @jit
    def step(x: Tensor) -> Tensor:
        with autocast(device, precision if precision != "float32" else None, precision != "float32"):
            loss = model.loss(x[:, :-1], x[:, 1:])
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    losses = [step(x).item() for _ in range(steps)]
    assert all(p.dtype is F32 for p in model.parameters())
    return losses


def test_a_gpt_learns_as_in_float32(device: str) -> None:
    wide = trained("float32", device)
    for precision in ("bfloat16", *["float16"] * (device == "cpu")):
        narrow = trained(precision, device)
        assert wide[-1] < 0.8 * wide[0]
        np.testing.assert_allclose(narrow, wide, atol=0.02)
        assert narrow != wide


# -- scaled losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [False, True])
def test_a_step_that_is_not_finite_changes_nothing(device: str, captured: bool) -> None:
    """Scales as torch's GradScaler has them; parameters and moments of the steps that were left out stay."""
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimiser = Adam([w], lr=0.1)
    scaler = GradScaler(device, 4.0, growth_interval=2)

    def step(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    run = jit(step) if captured else step
    scales, values = [], []
    for x in (1.0, np.inf, 1.0, 1.0, np.nan, 1.0, 1.0, 1.0, 1.0):
        run(Tensor([x, 1.0])).realize()
        scales.append(scaler.get_scale())
        values.append(w.numpy().tolist())
    assert scales == [4.0, 2.0, 2.0, 4.0, 2.0, 2.0, 4.0, 4.0, 8.0]
    assert values[0] == values[1]
    assert values[3] == values[4]
    other = Tensor([1.0, 2.0], requires_grad=True)
    plain = Adam([other], lr=0.1)
    for _ in range(7):
        plain.zero_grad()
        other.sum().backward()
        plain.step()
    np.testing.assert_allclose(values[-1], other.numpy(), rtol=1e-6)


def test_what_a_scaler_does_is_few_kernels() -> None:
    """The gradients are computed once: with the step, which keeps what update() asks for."""
    w, x = Tensor(np.ones((8, 8), np.float32), requires_grad=True), Tensor.ones(8, 8)
    optimiser, scaler = SGD([w], lr=0.1), GradScaler("cpu", 4.0)
    launches: list[int] = []
    with observed(lambda step: launches.append(step.kernels)):
        for _ in range(3):
            optimiser.zero_grad()
            scaler.scale((x @ w).tanh().sum()).backward()
            scaler.step(optimiser)
            scaler.update()
        scaler.get_scale()
    assert max(launches) <= 8
    assert len(launches) <= 6
    assert min(launches) <= 2


def launches_of(precision: str, captured: bool) -> list[int]:
    """The kernels of each plan that the fourth step of a GPT runs."""
    model = nn.GPT(vocab_size=16, block_size=8, n_layer=2, n_head=2, n_embd=16)
    optimiser, scaler = Adam(model.parameters(), lr=1e-2), GradScaler("cpu", enabled=precision == "float16")
    x = Tensor(np.zeros((2, 9), np.int32)).realize()

    def update(x: Tensor) -> Tensor:
        with autocast("cpu", precision):
            loss = model.loss(x[:, :-1], x[:, 1:])
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    run = jit(update) if captured else update
    for _ in range(3):
        run(x).realize()
    with metered() as meter:
        run(x).item()
        scaler.get_scale()
    return [len(plan.calls) for plan, t in meter.tracks.items() for _ in range(t.runs)]


def test_a_scaled_step_is_one_plan() -> None:
    """The loss, the gradients, their check and the update are computed together; the scale follows by itself."""
    counts = {
        f"{p} {name}": launches_of(p, name == "jit") for p in ("bfloat16", "float16") for name in ("plain", "jit")
    }
    for name in ("plain", "jit"):
        whole, scaled = counts[f"bfloat16 {name}"], counts[f"float16 {name}"]
        assert max(scaled) <= max(whole) + 60, counts  # a count of each gradient's numbers that are not finite
        assert sum(scaled) - max(scaled) <= 8, counts


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    w = Tensor([3.0, 4.0], requires_grad=True)
    optimiser, scaler = SGD([w], lr=1.0), GradScaler("cpu", 1024.0)
    scaler.scale((w * w).sum() / 2).backward()
    scaler.unscale_(optimiser)
    assert nn.utils.clip_grad_norm_([w], 1.0).item() == pytest.approx(5.0)
    scaler.step(optimiser)
    scaler.update()
    np.testing.assert_allclose(w.numpy(), [2.4, 3.2], rtol=1e-5)


def test_a_state_goes_on_in_another_scaler() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimiser, scaler = SGD([w], lr=0.1), GradScaler("cpu", 8.0, growth_interval=3)
    for _ in range(2):
        scaler.scale(w.sum()).backward()
        scaler.step(optimiser)
        scaler.update()
    assert scaler.state_dict()["_growth_tracker"] == 2
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    other.scale(w.sum()).backward()
    other.step(optimiser)
    other.update()
    assert (other.get_scale(), other.state_dict()["_growth_tracker"]) == (16.0, 0)
    other.update(3.0)
    assert other.get_scale() == 3.0


def test_an_optimiser_of_the_users_own_is_asked_on_the_host() -> None:
    class Own(SGD):
        def step(self, *results: Any, **options: Any) -> Any:
            calls.append(1)
            return super().step(*results, **options)

    calls: list[int] = []
    w = Tensor([1.0], requires_grad=True)
    optimiser, scaler = Own([w], lr=0.1), GradScaler("cpu", 4.0)
    for x in (np.inf, 1.0):
        optimiser.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.step(optimiser)
        scaler.update()
    assert len(calls) == 1
    np.testing.assert_allclose(w.numpy(), [0.9], rtol=1e-6)
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize(
    "ask", [amp.autocast, amp.get_autocast_dtype, amp.is_autocast_available, amp.is_autocast_enabled]
)
def test_a_kind_of_device_is_a_text(ask: Callable[[Any], Any]) -> None:
    with pytest.raises(DTypeError, match=r"device_type is a text such as 'cpu' or 'auto', not"):
        ask(2)
