"""Programs that write into shared memory, and the gradients that they leave: `python -m tests.fuzz.shared_gradients`
writes `shared_gradients.json`, what they give with torch.

A program is a tensor, a way to a part of it, a way to write, and a mode: where gradients are recorded and where not,
and through `data`. It runs three times: on a tensor without a gradient, at another index, and as at first; what the
library remembers of one run, the next one meets.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")


# the leaf -> a tensor, and one that shares its memory, which is written to
TENSORS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "result": lambda T, w: _with(w * 2, lambda y: y),
    "computed": lambda T, w: _with(_read(w * 2), lambda y: y),
    "view": lambda T, w: _with(w * 2, lambda y: y.T),
    "part": lambda T, w: _with(T.cat([w, w]) * 2, lambda y: y[:2]),
    "detached": lambda T, w: _with(w * 2, lambda y: y.detach()),
    "detached plain": lambda T, w: _with(T.zeros(2, 2), lambda y: y.detach()),
    "detached view": lambda T, w: _with(w * 2, lambda y: y.detach().T),
}


def _with(y: Any, view: Callable[[Any], Any]) -> tuple[Any, Any]:
    return y, view(y)


PARTS: dict[str, Callable[[Any, int], Any]] = {
    "whole": lambda x, k: x,
    "row": lambda x, k: x[k],
    "column": lambda x, k: x[:, k],
    "diagonal": lambda x, k: x.diagonal(k),
}


def _set(x: Any, index: Any, value: Any) -> None:
    x[index] = value


def _add(x: Any, value: Any) -> None:
    x += value


# a part, a number that is another one in each round, and the leaf
WRITES: dict[str, Callable[[Any, int, Any], Any]] = {
    "zero": lambda p, k, w: p.zero_(),
    "add": lambda p, k, w: p.add_(k + 1.0),
    "copy": lambda p, k, w: p.copy_(p.detach() * 0 + 5),
    "item": lambda p, k, w: _set(p, 0, k + 4.0),
    "add leaf": lambda p, k, w: _add(p, w[0, k]),
    "item leaf": lambda p, k, w: _set(p, 0, w[k, 1]),
    "copy leaf": lambda p, k, w: p.copy_(w[k, k]),
}

MODES = ("grad", "no_grad", "data")


def _read(x: Any) -> Any:
    x.tolist()
    return x


# Programs that change a leaf, and give gradients: `T` is the library, `w` a leaf of 1 and 2, `o` an optimiser of it.
LEAVES = (
    "y = (w * 3).sum(); no(w.add_, 1); y.backward()",
    "y = (w * 3).sum(); no(w.add_, 1); (y + w.sum()).backward()",
    "y = (w * 3).sum(); no(w.add_, 1); z = (w * w).sum(); (y + z).backward()",
    "y = (w * 3).sum(); no(w.add_, 1); y.tolist(); w.tolist(); (y + w.sum()).backward()",
    "y = (w * 3).sum(); y.tolist(); no(w.mul_, 2); no(w.add_, 1); (y + w.sum()).backward()",
    "y = (w * 3).sum(); no(w.mul_, 2); z = (w * 5).sum(); no(w.add_, 1); (y + z + w.sum()).backward()",
    "no(w.mul_, 2); y = (w * 3).sum(); no(w.mul_, 2); (y + w.sum()).backward()",
    "y = (w * 3).sum(); w.data.mul_(0.5); (y + w.sum()).backward()",
    "y = (w * 3).sum(); w.data = w.data.clamp(-1, 1); (y + w.sum()).backward()",
    "y = (w * 3).sum(); w.data[0] = 7.0; (y + w.sum()).backward()",
    "y = (w * 3).sum(); (w * w).sum().backward(); o.step(); o.zero_grad(); (y + w.sum()).backward()",
    "y = (w * 3).sum(); (w * w).sum().backward(); o.step(); o.step(); o.zero_grad(); (y + w.sum()).backward()",
    "y = (w * 3).sum(); no(w.add_, 1); w.grad = T.autograd.grad(y + w.sum(), w)[0]",
    "y = (w * 3).sum(); no(w.add_, 1); y.backward(inputs=[w])",
    "v = w[0] * 3; no(w.add_, 1); (v + w.sum()).backward()",
)


def run_leaf(T: Any, program: str) -> list[Any]:
    """The leaf, and its gradient."""

    def no(change: Callable[[Any], Any], by: float) -> None:
        with T.no_grad():
            change(by)

    w = T.tensor([1.0, 2.0], requires_grad=True)
    exec(program, {"T": T, "w": w, "no": no, "o": T.optim.SGD([w], lr=0.5)})
    return [w.tolist(), w.grad.tolist()]


def programs() -> Iterator[tuple[str, str, str, str]]:
    """All of them: tensor, part, write and mode."""
    for tensor in TENSORS:
        for part in PARTS:
            for write in WRITES:
                for mode in MODES:
                    yield tensor, part, write, mode


def _once(T: Any, program: tuple[str, str, str, str], k: int, plain: bool) -> list[Any]:
    tensor, part, write, mode = program
    w = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    h, x = (T.ones(2, 2),) * 2 if plain else TENSORS[tensor](T, w)
    block = T.no_grad() if mode == "no_grad" else contextlib.nullcontext()
    with block:
        p = PARTS[part](x.data if mode == "data" else x, k)
        WRITES[write](p, k, w)
    flags = [t.requires_grad for t in (h, x, p)]
    loss = (x * x).sum() + (h * 3).sum() + (p * 5).sum() + (w * 7).sum()
    loss.backward()
    return [[int(f) for f in flags], h.tolist(), w.grad.tolist()]


def run(T: Any, program: tuple[str, str, str, str]) -> list[list[Any]]:
    """The results of its runs: the flags `requires_grad`, the values, and the gradient of the leaf."""
    return [_once(T, program, k, plain) for k, plain in ((1, True), (0, False), (1, False))]


def main() -> None:
    import torch

    found = {}
    for program in programs():
        with contextlib.suppress(RuntimeError):  # what torch refuses
            found[", ".join(program)] = run(torch, program)
    table = {"torch": torch.__version__, "leaves": {p: run_leaf(torch, p) for p in LEAVES}, "programs": found}
    text = json.dumps(table, separators=(",", ":"))
    TABLE.write_text(text.replace(']]],"', ']]],\n"') + "\n")


if __name__ == "__main__":
    main()
