"""How many kernels a GPU runs for what networks are made of, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anneal import nn
from anneal.runtime import plan_of, tracing
from anneal.tensor import Tensor, functional as F
from anneal.uop import Op, toposort
from benchmarks import ours
from benchmarks._harness import Config
from examples.gpt2.generate import Decoder, Sampling


def value(*shape: int, grad: bool = True) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), requires_grad=grad)


def forward(f: Callable[..., Tensor], *args: Tensor) -> int:
    return len(plan_of([f(*args)]).calls)


def backward(f: Callable[..., Tensor], *args: Tensor) -> int:
    """Kernels of the gradients alone, for a cotangent that is given, with what they compute of the forward
    pass again.
    """
    y = f(*args)
    y.backward(value(*y.shape, grad=False))
    return len(plan_of([g for t in args if (g := t.grad) is not None]).calls)


def both(f: Callable[..., Tensor], *args: Tensor) -> int:
    y = f(*args)
    y.backward(value(*y.shape, grad=False) if y.ndim else None)
    return len(plan_of([y, *[g for t in args if (g := t.grad) is not None]]).calls)


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1], weight, bias)


def test_softmax() -> None:
    assert forward(lambda x: x.softmax(-1), value(48, 64)) == 1
    assert both(lambda x: x.softmax(-1), value(48, 64)) == 1


def test_log_softmax() -> None:
    assert both(lambda x: x.log_softmax(-1), value(48, 64)) == 1


def test_layer_norm() -> None:
    assert forward(norm, value(48, 64), value(64), value(64)) == 1
    # one for the result, the statistics and the gradient of x, one for those of weight and bias
    assert both(norm, value(48, 64), value(64), value(64)) == 2


def test_the_gradients_of_a_long_norm_read_it_once() -> None:
    # statistics and the gradient of x; partial sums of those of weight and bias together; their sums together
    assert backward(norm, value(8192, 64), value(64), value(64)) == 3


def test_rms_norm() -> None:
    assert both(lambda x, w: F.rms_norm(x, 64, w), value(48, 64), value(64)) == 2


def test_cross_entropy() -> None:
    target = Tensor(np.arange(48, dtype=np.int32) % 10)
    # the losses and the gradient, and the mean of the losses
    assert both(lambda x: F.cross_entropy(x, target, ignore_index=None), value(48, 10)) == 2


def test_attention() -> None:
    q, k, v = (value(2, 4, 64, 32) for _ in range(3))
    # scores, softmax, product with v
    assert forward(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v) == 3
    # and the rows' dot products, the gradients of the scores, of v, of q and of k
    assert both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v) == 3 + 5


def test_a_layer_with_an_activation() -> None:
    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.linear(x, w, b).gelu("tanh")

    assert forward(layer, value(48, 64), value(96, 64), value(96)) == 1
    # the result and what gelu's gradient needs; the gradients of x, w and b
    assert both(layer, value(48, 64), value(96, 64), value(96)) == 4


def test_an_activation_leaves_its_slope_for_the_gradient() -> None:
    x, w, b, v = value(48, 64), value(96, 64), value(96), value(8, 96)
    y = F.linear(F.linear(x, w, b).gelu("tanh"), v)
    y.backward(value(*y.shape, grad=False))
    plan = plan_of([y, *[g for t in (x, w, b, v) if (g := t.grad) is not None]])
    assert sum(Op.RECIP in {u.op for u in toposort((c.kernel.sink,))} for c in plan.calls) == 1


def test_convolution_with_bias_and_relu() -> None:
    assert forward(lambda x, w, b: F.conv2d(x, w, b).relu(), value(4, 3, 16, 16), value(8, 3, 3, 3), value(8)) == 1


def update(optimiser: nn.Optimizer, *parameters: Tensor, clip: bool = False) -> int:
    for p in parameters:
        p.grad = value(*p.shape, grad=False)
    with tracing() as wanted:
        if clip:
            nn.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    return len(plan_of(wanted).calls)


SHAPES = ((65, 32), (16, 32), (32,), (96, 32), (96,), (32, 32), (32,), (128, 32))


def test_updates_of_many_parameters() -> None:
    parameters = [value(*s) for s in SHAPES]
    # the corrections, and all updates with the counter
    assert update(nn.AdamW(parameters), *parameters) == 1 + 1
    assert update(nn.SGD(parameters), *parameters) == 1


def test_clipping() -> None:
    parameters = [value(*s) for s in SHAPES]
    # partial sums of all gradients, their sum
    assert update(nn.AdamW(parameters), *parameters, clip=True) == 2 + 1 + 1


@pytest.mark.parametrize(("layers", "most"), [(1, 42), (2, 64), (4, 110)])
def test_a_training_step(layers: int, most: int) -> None:
    model, optimiser, x, y = ours.prepare(Config(layers=layers))
    with tracing() as wanted:
        loss = ours.update(model, optimiser, x, y)
    plan = plan_of(list(dict.fromkeys([loss, *wanted])))
    assert len(plan.calls) <= most


def test_the_first_layer_is_as_the_others() -> None:
    """Embeddings are kept with their positions added, so that the first layer reads one array as the others do."""
    model, optimiser, x, y = ours.prepare(Config(layers=4))
    with tracing() as wanted:
        loss = ours.update(model, optimiser, x, y)
    kernels = plan_of(list(dict.fromkeys([loss, *wanted]))).kernels
    assert len(kernels) <= 39
    assert sum(k.name.startswith("r_12_64_128_by_4_32") for k in kernels) == 1


def test_what_is_joined_waits_for_nothing_more() -> None:
    """The longest chain of kernels that need each other: what a step takes however wide the device is."""
    model, optimiser, x, y = ours.prepare(Config())
    with tracing() as wanted:
        loss = ours.update(model, optimiser, x, y)
    plan = plan_of(list(dict.fromkeys([loss, *wanted])))
    depth: dict[int, int] = {}
    for call in plan.calls:
        level = 1 + max([depth.get(v, 0) for v in call.args[call.outputs :]], default=0)
        depth |= dict.fromkeys(call.args[: call.outputs], level)
    assert max(depth.values()) <= 78


def test_one_row_is_normed_where_a_product_reads_it() -> None:
    """A product with a vector waits for its matrix: the norm of the vector is done again by every workgroup, unseen."""
    x, w, b, g = value(1, 96), value(144, 96), value(144), value(96)
    assert forward(lambda x: F.linear(norm(x, g, g), w, b), x) == 1
    # of many rows it is done once
    assert forward(lambda x: F.linear(norm(x, g, g), w, b), value(64, 96)) == 2


def test_products_of_one_row_share_a_launch() -> None:
    x, g = value(1, 96), value(96)
    rows = norm(x, g, g)
    several = [F.linear(rows, value(96, 96)) for _ in range(3)]
    assert len(plan_of(several).calls) == 1
    # so do the pieces of one product, each of which goes its own way
    q, k, v = F.linear(rows, value(3 * 96, 96), value(3 * 96)).reshape(3, 8, 12)
    assert len(plan_of([q * 2.0, k + 1.0, v.exp()]).calls) == 1


def test_one_query_takes_two_kernels() -> None:
    q, k, v = value(4, 1, 32), value(4, 80, 32), value(4, 80, 32)
    seen = Tensor(np.arange(80) < 50).reshape(1, 1, 80)
    # the scores; their softmax in the kernel that sums the values
    assert forward(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=seen), q, k, v) == 2
    assert forward(lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v, q, k, v) == 2


def test_layers_whose_sizes_agree_by_chance_stay_apart() -> None:
    """A square matrix after a wide layer: as many products in both, and yet each reads all results of the one
    before.
    """
    x, w, v = value(1, 64), value(256, 64), value(64, 256)
    assert forward(lambda x: F.linear(F.linear(x, w).relu(), v), x) == 2


@pytest.mark.parametrize("layers", [1, 3])
def test_a_decoded_token(layers: int) -> None:
    decoder = Decoder(
        nn.GPT(vocab_size=50257, block_size=128, n_layer=layers, n_head=4, n_embd=64), Sampling(greedy=True)
    )
    with tracing() as wanted:
        decoder._read_token(decoder.reader.blocks.bind(1))
    calls = plan_of(list(dict.fromkeys(wanted))).calls
    # a jit updates in place: it leaves the copies out
    copies = [c for c in calls if len(c.args) == 2 and c.kernel.sink.src[0].src[2].op is Op.LOAD]
    # A block: norm, queries, keys and values, each put where it belongs; scores; softmax and the sum of the values; its
    # product; norm and the wide layer; the narrow one. Beside that: what is seen, the embedding, logits, the choice,
    # and the place, which goes on where the old one is read no more.
    assert (len(calls) - len(copies), len(copies)) == (6 * layers + 5, 2 * layers + 1)


def test_the_loss_is_computed_before_the_gradients_that_do_not_need_it() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(6)])
    loss = model(value(32, 64, grad=False)).square().mean()
    loss.backward()
    plan = plan_of([loss, *[p.grad for p in model.parameters() if p.grad is not None]])
    (at,) = [n for n, c in enumerate(plan.calls) if plan.outputs[0] in c.args[: c.outputs]]
    assert [c.phase for c in plan.calls[:at]].count("backward") <= 1
