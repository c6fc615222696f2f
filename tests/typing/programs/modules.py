"""Models as a user of torch writes them: a call has the parameters and the result of the class's own forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, assert_type

from anneal import nn
from anneal.nn import functional_call
from anneal.tensor import Tensor, jit

T = TypeVar("T")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return x + self.drop(self.down(self.up(self.norm(x)).gelu())) * scale


class Scores(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]


class Net(nn.Module):
    def __init__(self, tokens: int, width: int, depth: int) -> None:
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), Tensor.tanh, nn.Linear(width, tokens))

    def forward(self, index: Tensor, *, scale: float = 1.0) -> Scores:
        x = self.embed(index)
        hidden: list[Tensor] = []
        for block in self.blocks:
            assert_type(block, Block)
            x = block(x, scale=scale)
            hidden.append(x)
        assert_type(self.blocks[0](x), Tensor)
        return Scores(self.head(x), hidden)


class Affine(nn.Module):
    def __init__(self, width: int) -> None:
        self.scale = nn.Parameter(Tensor.ones(width))
        self.shift = Tensor.zeros(width, requires_grad=True)
        self.fixed = nn.Parameter(Tensor.ones(width), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift * self.fixed


class Same(nn.Module):
    """A forward with a type variable of its own says so once more for mypy (LIMITATIONS.md)."""

    def forward(self, x: T) -> T:
        return x

    if TYPE_CHECKING:

        def __call__(self, x: T) -> T: ...  # type: ignore[override]


class Tagger(nn.Module):
    def __init__(self) -> None:
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.gru = nn.GRU(16, 16)
        self.attend = nn.SelfAttention(16, 2)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, last = self.lstm(x, state)
        assert_type(last, tuple[Tensor, Tensor])
        assert_type(self.gru(out), tuple[Tensor, Tensor])
        return self.attend(out), last


net = Net(10, 4, depth=2)
index = Tensor([[1, 2, 3]])
scores = net(index, scale=0.5)
assert_type(scores, Scores)
assert_type(scores.logits, Tensor)
assert_type(Block(4)(Tensor.ones(1, 4), 2.0), Tensor)
assert_type(Tagger()(Tensor.ones(1, 3, 8)), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(net.head(Tensor.ones(1, 4)), Tensor)
assert_type(nn.CrossEntropyLoss()(scores.logits.reshape(-1, 10), index.reshape(-1)), Tensor)
assert_type(nn.Conv2d(1, 4, 3)(Tensor.ones(1, 1, 8, 8)), Tensor)

assert_type(Same()([index]), list[Tensor])
affine = Affine(4)
assert_type(affine.scale, nn.Parameter)
assert_type(affine(Tensor.ones(4)), Tensor)
assert_type(nn.Linear(2, 3).weight, Tensor)
assert_type(nn.Linear(2, 3).bias, Tensor | None)
affine.shift = affine.scale
print([type(p) for p in affine.parameters() if isinstance(p, nn.Parameter)])

# Layers keep their class on the way through a mode or a device, and tensors their names.
assert_type(net.eval(), Net)
assert_type(net.train().to("cpu").requires_grad_(False), Net)
assert_type(net.parameters(), list[Tensor])
assert_type(net.state_dict(), dict[str, Tensor])
missing, unexpected = net.load_state_dict(net.state_dict(), strict=False)
assert_type(missing, list[str])
assert_type([name for name, _ in net.named_parameters()], list[str])

# A module is a function, for jit and as a function of its parameters.
fast = jit(net)
assert_type(fast(index, scale=2.0), Scores)
assert_type(functional_call(net, net.state_dict(), index, scale=2.0), Scores)
