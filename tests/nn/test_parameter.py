"""nn.Parameter: a tensor whose class says that it trains, and plain tensors with requires_grad beside it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DTypeError
from anneal.nn import functional_call
from anneal.tensor import Tensor, dtypes, grad, io, jit, jvp, no_grad, vmap

START = np.array([1.0, -2.0, 3.0], np.float32)


class Scaled(nn.Module):
    def __init__(self) -> None:
        self.scale = nn.Parameter(Tensor(START))
        self.plain = Tensor([1.0], requires_grad=True)
        self.frozen = nn.Parameter(Tensor([5.0]), requires_grad=False)
        self.buffer = Tensor([7.0])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.plain + self.frozen


def test_it_is_a_tensor_that_wants_a_gradient() -> None:
    p = nn.Parameter(Tensor(START))
    assert isinstance(p, nn.Parameter)
    assert isinstance(p, Tensor)
    assert p.requires_grad
    assert p.is_leaf
    np.testing.assert_array_equal(p.numpy(), START)
    (p * p).sum().backward()
    assert p.grad is not None
    assert type(p.grad) is Tensor
    np.testing.assert_array_equal(p.grad.numpy(), 2 * START)


@pytest.mark.parametrize(
    "data", [START, START.tolist(), Tensor(START), Tensor(START, requires_grad=True), Tensor(START) * 1]
)
def test_it_is_made_of_arrays_lists_and_tensors(data: object) -> None:
    p = nn.Parameter(data)
    np.testing.assert_array_equal(p.numpy(), START)
    assert p.is_leaf
    assert p.requires_grad


def test_its_gradient_ends_there_and_its_data_stay() -> None:
    source = Tensor(START, requires_grad=True)
    p = nn.Parameter(source * 2)
    p.sum().backward()
    assert source.grad is None
    p.assign(p.detach() * 0)
    np.testing.assert_array_equal(source.numpy(), START)


def test_integers_do_not_train() -> None:
    with pytest.raises(DTypeError, match="only floats have gradients"):
        nn.Parameter(Tensor([1, 2]))
    assert not nn.Parameter(Tensor([1, 2]), requires_grad=False).requires_grad


def test_it_says_its_class() -> None:
    assert repr(nn.Parameter([1.0, 2.0])) == "Parameter([1., 2.], dtype=float32, requires_grad=True)"
    assert repr(nn.Parameter([1.0], requires_grad=False)) == "Parameter([1.], dtype=float32)"
    large = nn.Parameter(Tensor.zeros(40, 40))
    assert repr(large).endswith("shape=(40, 40), dtype=float32, requires_grad=True)")


@pytest.mark.parametrize(
    "made",
    [
        lambda p: p * 2,
        lambda p: 2 * p,
        lambda p: Tensor([1.0]) + p,
        lambda p: p[0],
        lambda p: p.sum(),
        lambda p: p.reshape(1, 3),
        lambda p: p.detach(),
        lambda p: p.clone(),
        lambda p: p.zeros_like(),
        lambda p: p.new_tensor([1.0]),
        lambda p: p.to("float16"),
        lambda p: Tensor.cat([p, p]),
        lambda p: p.softmax(-1),
        lambda p: p.sort()[0],
        lambda p: p.max() + p.argmax(),
        lambda p: p @ p,
    ],
)
def test_what_is_computed_with_it_is_a_plain_tensor(made: object) -> None:
    assert type(made(nn.Parameter(START))) is Tensor


def test_a_module_finds_it_beside_plain_tensors() -> None:
    module = Scaled()
    assert [name for name, _ in module.named_parameters()] == ["scale", "plain", "frozen"]
    assert [name for name, _ in module.named_buffers()] == ["buffer"]
    assert list(module.state_dict()) == ["scale", "plain", "frozen", "buffer"]
    assert module.num_parameters() == 5


def test_layers_have_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Conv1d(3, 1, 1))
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    with nn.init.skipped():
        assert isinstance(nn.Linear(2, 3).weight, nn.Parameter)


def test_copies_are_parameters_of_their_own() -> None:
    for requires_grad in (True, False):
        p = nn.Parameter(START, requires_grad)
        for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert type(other) is nn.Parameter
            assert other.requires_grad is requires_grad
            np.testing.assert_array_equal(other.numpy(), START)
            other.assign(other.detach() + 1)
        np.testing.assert_array_equal(p.numpy(), START)


def test_a_shared_one_is_shared_in_a_copy_of_the_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    twin = copy.deepcopy(model)
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight is not model[0].weight
    assert isinstance(twin[0].weight, nn.Parameter)


def test_it_stays_itself_when_its_module_moves_and_loads(tmp_path: object) -> None:
    module = Scaled()
    p = module.scale
    assert module.to("float16").scale is p
    assert p.dtype.name == "float16"
    assert isinstance(p, nn.Parameter)
    assert p.requires_grad
    module.float()
    io.safe_save(module.state_dict(), f"{tmp_path}/module.safetensors")
    other = Scaled()
    other.scale.assign(other.scale.detach() * 0)
    assert other.load_state_dict(io.safe_load(f"{tmp_path}/module.safetensors")) == ([], [])
    assert type(other.scale) is nn.Parameter
    np.testing.assert_array_equal(other.scale.numpy(), START)


def test_freezing_is_of_parameters_too() -> None:
    module = Scaled().requires_grad_(False)
    assert [name for name, _ in module.named_parameters()] == ["scale", "plain", "frozen"]
    assert not any(p.requires_grad for p in module.parameters())
    assert isinstance(module.scale, nn.Parameter)
    module.requires_grad_()
    assert all(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize("make", [nn.SGD, nn.Adam, nn.AdamW])
def test_it_trains_as_a_plain_tensor_does_also_inside_jit(make: type[nn.Optimizer]) -> None:
    ends = []
    for kind in (nn.Parameter, lambda data: Tensor(data, requires_grad=True)):
        source = Tensor(START).realize()
        w = kind(source)
        optimizer = make([w], lr=0.1)

        @jit
        def step(x: Tensor, w: Tensor = w, optimizer: nn.Optimizer = optimizer) -> Tensor:
            loss = ((w - x) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(Tensor([0.5])).item() for _ in range(5)]
        assert losses == sorted(losses, reverse=True)
        np.testing.assert_array_equal(source.numpy(), w.numpy() if kind is nn.Parameter else START)
        ends.append(w)
    assert isinstance(ends[0], nn.Parameter)
    np.testing.assert_array_equal(ends[0].numpy(), ends[1].numpy())


def test_jit_takes_and_returns_it() -> None:
    w = nn.Parameter(START)
    step = jit(lambda x: (w, x * w))
    for i in range(4):
        same, product = step(nn.Parameter([float(i)], requires_grad=False))
        assert same is w
        assert type(product) is Tensor
        np.testing.assert_array_equal(product.numpy(), START * i)


def test_transforms_take_it_as_a_tensor() -> None:
    p = nn.Parameter(START)
    slope = grad(lambda p: (p * p).sum())(p)
    assert type(slope) is Tensor
    np.testing.assert_array_equal(slope.numpy(), 2 * START)
    out, tangent = jvp(lambda p: p * p, (p,), (Tensor(np.ones_like(START)),))
    np.testing.assert_array_equal(tangent.numpy(), 2 * START)
    many = vmap(lambda p: p * 2)(p)
    assert type(out) is type(many) is Tensor
    np.testing.assert_array_equal(many.numpy(), 2 * START)
    module = Scaled()
    slopes = grad(lambda s: functional_call(module, s, Tensor(START)).sum())({"scale": module.scale})
    np.testing.assert_array_equal(slopes["scale"].numpy(), START)


def test_nothing_is_recorded_for_it_without_gradients() -> None:
    p = nn.Parameter(START)
    with no_grad():
        assert not (p * 2).requires_grad


def test_a_parameter_of_a_size_has_so_many_elements() -> None:
    """torch's `Parameter(torch.Tensor(n))`: the number n could not train."""
    bias = nn.Parameter(Tensor(5))
    assert bias.shape == (5,)
    assert bias.dtype is dtypes.float32
    assert bias.requires_grad
