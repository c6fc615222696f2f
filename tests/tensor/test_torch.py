"""Where names and meanings are torch's: the same calls on both, compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal.tensor import Tensor
from tests.helpers import close, optional

torch = optional("torch")
rng = np.random.default_rng(6)

X = rng.normal(size=(3, 4, 6)).astype(np.float32)
I = rng.integers(0, 3, (2, 4, 5)).astype(np.int64)
IDX = np.array([2, 0, 1], np.int64)

# Each is written once and run with x (and i) of either library.
CALLS: dict[str, Any] = {
    "var": lambda x, i: x.var(dim=1),
    "var unbiased": lambda x, i: x.var(dim=1, unbiased=False),
    "std keepdim": lambda x, i: x.std(dim=(0, 2), keepdim=True),
    "amax": lambda x, i: x.amax(dim=(0, 1)),
    "argmax": lambda x, i: x.argmax(dim=2),
    "argmin flat": lambda x, i: x.argmin(),
    "logsumexp": lambda x, i: x.logsumexp(dim=-1),
    "softmax": lambda x, i: x.softmax(dim=0),
    "log_softmax": lambda x, i: x.log_softmax(dim=-1),
    "cumsum": lambda x, i: x.cumsum(dim=1),
    "prod": lambda x, i: x.prod(dim=2),
    "norm": lambda x, i: x.norm(dim=1),
    "chunk": lambda x, i: x.chunk(4, dim=2)[1],
    "split": lambda x, i: x.split(4, dim=2)[1],
    "split sizes": lambda x, i: x.split([1, 2, 3], dim=-1)[2],
    "unbind": lambda x, i: x.unbind(1)[2],
    "unfold": lambda x, i: x.unfold(2, 3, 2),
    "roll": lambda x, i: x.roll((1, -2), dims=(0, 2)),
    "flip": lambda x, i: x.flip(0, 1),
    "repeat": lambda x, i: x.repeat(2, 1, 1, 2),
    "repeat_interleave": lambda x, i: x.repeat_interleave(2, dim=1),
    "tril": lambda x, i: x.tril(-1),
    "diagonal": lambda x, i: x.diagonal(1, 0, 2),
    "movedim": lambda x, i: x.movedim((0, 1), (1, 2)),
    "unflatten": lambda x, i: x.unflatten(2, (2, 3)),
    "narrow": lambda x, i: x.narrow(2, 1, 3),
    "gather": lambda x, i: x.gather(0, i[:, :, :5]),
    "index_select": lambda x, i: x.index_select(1, i[0, 0, :3]),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "take": lambda x, i: x.take(i),
    "indexed": lambda x, i: x[i[:, 0], 1],
    "indexed apart": lambda x, i: x[i[0, 0, :3], :, i[0, 1, :3]],
    "indexed beside an int": lambda x, i: x[1, :, i[0, 0]],
    "indexed with a new axis": lambda x, i: x[:, None, i[0, 0, :3], ..., 1:3],
    "masked_fill": lambda x, i: x.masked_fill(x > 0, 2.0),
    "clamp": lambda x, i: x.clamp(-0.5, 0.5),
    "clamp min": lambda x, i: x.clamp(min=0.1),
    "where": lambda x, i: x.where(x > 0, -x),
    "remainder": lambda x, i: x.remainder(-0.7),
    "fmod": lambda x, i: x.fmod(0.7),
    "floor_divide": lambda x, i: x.floor_divide(0.3),
    "div trunc": lambda x, i: x.div(0.3, rounding_mode="trunc"),
    "lerp": lambda x, i: x.lerp(x * 2, 0.25),
    "round": lambda x, i: (x * 4).round(),
    "expm1": lambda x, i: x.expm1(),
    "log1p": lambda x, i: x.abs().log1p(),
    "logaddexp": lambda x, i: x.logaddexp(x * 2),
    "matmul": lambda x, i: x @ x.mT,
    "add alpha": lambda x, i: x.add(x, alpha=3),
    "topk": lambda x, i: x.topk(3, dim=2)[0],
    "sort": lambda x, i: x.sort(dim=1)[1],
    "count_nonzero": lambda x, i: (x > 0).count_nonzero(dim=1),
    "integer mean": lambda x, i: (x > 0).int().float().mean(dim=0),
    "integer division": lambda x, i: i / 2,
    "trunc of ints": lambda x, i: (i - 2).div(2, rounding_mode="trunc"),
    "all": lambda x, i: (x > -1).all(dim=1),
    "prelu": lambda x, i: (
        torch.nn.functional.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4]))
        if isinstance(x, torch.Tensor)
        else x.prelu(Tensor([0.1, 0.2, 0.3, 0.4]))
    ),
    "atan2": lambda x, i: x.atan2(x.cos()),
    "softmin": lambda x, i: torch.nn.functional.softmin(x, 1) if isinstance(x, torch.Tensor) else x.softmin(1),
    "addcmul": lambda x, i: x.addcmul(x, x * 2, value=0.5),
    "addcdiv": lambda x, i: x.addcdiv(x, x.exp(), value=2),
    "addmm": lambda x, i: x[0, :, :4].addmm(x[1], x[2].mT, beta=2, alpha=0.5),
    "diag_embed": lambda x, i: x.diag_embed(),
    "diag_embed off": lambda x, i: x.diag_embed(1, 0, 2),
    "diag_embed below": lambda x, i: x.diag_embed(offset=-2, dim1=1),
    "rot90": lambda x, i: x.rot90(1, (0, 2)),
    "rot90 back": lambda x, i: x.rot90(-1, (2, 1)),
    "rot90 twice": lambda x, i: x.rot90(2, (0, 1)),
    "fliplr": lambda x, i: x.fliplr().flipud(),
    "kron": lambda x, i: x[0, :2].kron(x[:2, 0]),
    "kron of other ranks": lambda x, i: x[0, 0].kron(x[0, :2]),
    "cross": lambda x, i: x[..., :3].cross(x[..., 3:], dim=-1),
    "cross of another axis": lambda x, i: x.cross(x.exp(), dim=0),
    "isfinite": lambda x, i: (1 / (x * 0)).isfinite(),
}


@pytest.mark.parametrize("name", CALLS)
def test_same_as_torch(name: str) -> None:
    f = CALLS[name]
    expected = f(torch.tensor(X), torch.tensor(I)).numpy()
    got = f(Tensor(X), Tensor(I.astype(np.int32)))
    assert got.dtype.kind == {"f": "float", "i": "int", "b": "bool"}[expected.dtype.kind]
    close(got.numpy(), expected, rtol=2e-4, atol=2e-5)


ACTIVATIONS = ["relu", "relu6", "leaky_relu", "elu", "celu", "selu", "silu", "gelu", "softplus", "softsign", "mish"]
ACTIVATIONS += ["hardtanh", "hardsigmoid", "hardswish", "logsigmoid", "sigmoid", "tanh"]
ACTIVATIONS += ["softshrink", "hardshrink", "tanhshrink"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_slopes_are_torchs(name: str) -> None:
    x = np.array([-30.0, -5.0, -3.0, -1.0, -0.3, 0.0, 0.2, 1.0, 2.5, 3.0, 6.0, 30.0], np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    y = getattr(torch.nn.functional, name)(theirs)
    y.sum().backward()
    ours = Tensor(x, requires_grad=True)
    z = getattr(ours, name)()
    z.sum().backward()
    close(z.numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert ours.grad is not None
    close(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
