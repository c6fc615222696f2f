"""Programs with hooks on tensors: `python -m tests.transforms.hook_programs` writes `hook_programs.json`, what
they give with torch."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")

# Statements -> results. `T` is the library, `x` a leaf of 1 and 2, `s` an empty list. A line that begins with blanks
# goes on.
_TEXT = r"""
y = x * 3; z = (y * y).sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = y.sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; a = (y * y).sum(); y.retain_grad(); b = (y * 5).sum(); (a + b).backward() -> y.grad, x.grad
y = x * 3; a = (y * 5).sum(); y.retain_grad(); b = (y * 5).sum(); (a + b).backward() -> y.grad, x.grad
y = x * 3; a = (y * 5).sum(); y.register_hook(lambda g: s.append(g.tolist())); a.backward() -> s, x.grad
y = x * 3; a = (y * 5).sum(); y.register_hook(lambda g: g * 10); a.backward() -> x.grad
y = x * 3; z = x * 3; y.retain_grad(); (y * 2 + z * 7).sum().backward() -> y.grad, z.grad, x.grad
y = x * 3; z = x * 3; y.retain_grad(); z.retain_grad(); (y * 2 + z * 7).sum().backward() -> y.grad, z.grad, x.grad
y = x * 3; z = x * 3; q = (y * 2 + z * 7).sum(); y.retain_grad(); z.retain_grad();
    q.backward() -> y.grad, z.grad, x.grad
y = x * 3; z = x * 3; q = (y * 2 + z * 7).sum(); y.retain_grad(); q.backward() -> y.grad, x.grad
y = x * 3; z = x * 3; q = (y * 2 + z * 7).sum(); y.register_hook(lambda g: g * 10); q.backward() -> x.grad
y = (x * 3).sum(); y.retain_grad(); y.backward() -> y.grad, x.grad
y = (x * 3).sum(); z = y * 2; y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = y * 2; y.register_hook(lambda g: g + 1); y.register_hook(lambda g: g * 2); z.sum().backward() -> x.grad
y = x * 3; y.retain_grad(); y.retain_grad(); (y * 2).sum().backward() -> y.grad
y = x * 3; y.retain_grad(); y.register_hook(lambda g: g * 10); (y * 2).sum().backward() -> y.grad, x.grad
y = x * 3; y.register_hook(lambda g: g * 10); y.retain_grad(); (y * 2).sum().backward() -> y.grad, x.grad
y = x * 3; v = y[0]; v.retain_grad(); y.retain_grad(); (y.sum() + v * 5).backward() -> y.grad, v.grad, x.grad
y = x * 3; v = y[0]; q = y.sum() + v * 5; v.retain_grad(); y.retain_grad(); q.backward() -> y.grad, v.grad, x.grad
y = x * 3; y.tolist(); z = (y * y).sum(); z.tolist(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = (y * y).sum(); y.tolist(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; h = y.register_hook(lambda g: g * 10); h.remove(); (y * 2).sum().backward() -> x.grad
y = x * 3; z = (y * 2).sum(); h = y.register_hook(lambda g: g * 10); h.remove(); z.backward() -> x.grad
z = (x * 2).sum(); x.register_hook(lambda g: g * 10); z.backward() -> x.grad
z = (x * 2).sum(); x.register_hook(lambda g: s.append(1)); x.register_hook(lambda g: s.append(2));
    x.register_post_accumulate_grad_hook(lambda p: s.append(3)); z.backward() -> s
y = x * 3; z = (y * 2).sum(); y.register_hook(lambda g: s.append(g.tolist())); z.backward(retain_graph=True);
    z.backward() -> s, x.grad
y = x * 3; a = (y * 2).sum(); b = (y * y).sum(); y.register_hook(lambda g: s.append(g.tolist()));
    a.backward(retain_graph=True); b.backward() -> s, x.grad
y = x * 3; a = (y * 2).sum(); b = (y * y).sum(); y.retain_grad(); a.backward(retain_graph=True);
    b.backward() -> y.grad, x.grad
y = x * 3; y.register_hook(lambda g: g * 10); z = (y * y).sum(); g = T.autograd.grad(z, [x, y]) -> g[0], g[1]
y = x * 3; z = (y * y).sum(); y.register_hook(lambda g: g * 10); g = T.autograd.grad(z, [x, y]) -> g[0], g[1]
y = x * 3; y.register_hook(lambda g: g * 10); y.mul_(2); (y * y).sum().backward() -> x.grad
a = x * 2; b = a * 3; c = b * 4; z = c.sum(); b.retain_grad(); a.retain_grad(); c.retain_grad();
    z.backward() -> a.grad, b.grad, c.grad, x.grad
a = x * 2; b = a * a; c = b + a; z = (c * a).sum(); a.retain_grad(); b.retain_grad(); c.retain_grad();
    z.backward() -> a.grad, b.grad, c.grad, x.grad
y = x * 3; z = y * 1; w = z + 0; y.retain_grad(); z.retain_grad();
    (w.sum() + y.sum()).backward() -> y.grad, z.grad, x.grad
y = x.clone(); y.retain_grad(); (y * 2 + x * 5).sum().backward() -> y.grad, x.grad
y = x.clone(); z = (y * 2 + x * 5).sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = -x; z = (-y).sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = (x * 2).reshape(2, 1); z = y.reshape(1, 2); y.retain_grad(); (z * 3).sum().backward() -> y.grad, x.grad
y = (x * 2).reshape(2, 1); z = y.reshape(1, 2); q = (z * 3).sum(); y.retain_grad(); q.backward() -> y.grad, x.grad
y = x ** 3; z = (y * y).sum(); y.retain_grad(); z.backward(create_graph=True); g = y.grad;
    x.grad.sum().backward() -> g, x.grad, y.grad
y = x ** 3; z = (y * y).sum(); y.register_hook(lambda g: g * g); g, = T.autograd.grad(z, x, create_graph=True);
    h, = T.autograd.grad(g.sum(), x) -> g, h
y = x * 3; z = (x * 2).sum(); y.register_hook(lambda g: s.append(1)); z.backward() -> s
a, b = (x * 2).split(1); z = (a * b).sum(); a.retain_grad(); b.retain_grad(); z.backward() -> a.grad, b.grad, x.grad
y = x * 2; y.retain_grad(); w = y; y = y * 3; y.retain_grad(); y.sum().backward() -> w.grad, y.grad
y = x * 3; a = x * 3; z = (y * a).sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = (y * y).sum(); z.item(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = y.clone(); z.mul_(2); q = (z * y).sum(); y.retain_grad(); z.retain_grad();
    q.backward() -> y.grad, z.grad, x.grad
y = x * 3; v = y[:1]; v.mul_(5); q = (y * y).sum(); y.retain_grad(); q.backward() -> y.grad, x.grad
y = x * 3; z = T.stack([y, y * 2]).sum() + y.detach().sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = T.nn.functional.dropout(y, 0.0).pow(2).sum(); y.retain_grad(); z.backward() -> y.grad, x.grad
y = x * 3; z = y[[0, 0, 1]].exp(); q = z.log().sum(); z.retain_grad(); y.retain_grad();
    q.backward() -> y.grad, z.grad, x.grad
y = x.softmax(0); z = T.nn.functional.softmax(x, 0); q = (y * z * x).sum(); z.retain_grad();
    q.backward() -> z.grad, x.grad
y = x * 3; m = y.max(); q = ((y - m) ** 2).sum(); m.retain_grad(); y.retain_grad();
    q.backward() -> m.grad, y.grad, x.grad
x.retain_grad(); (x * 2).sum().backward() -> x.grad, x.retains_grad
m = M(); h = m.register_full_backward_hook(note); m.register_full_backward_pre_hook(first);
    m(x, y0)[0].sum().backward(); m(x, y0, 5)[2].sum().backward(); h.remove(); m(x, y0)[0].sum().backward() -> s, x.grad
m = M(); m.register_full_backward_hook(note); y = m(y0, x); (y[0] + y[1]).sum().backward() -> s, x.grad
m = M(); m.register_full_backward_hook(note); z = m(y0, y0 * x.sum())[1].sum(); z.backward(retain_graph=True);
    z.backward() -> s, x.grad
m = T.nn.Linear(2, 3); m.weight.data.fill_(0.5); m.register_full_backward_hook(note);
    m(y0).sum().backward() -> s, m.weight.grad
m = T.nn.Linear(2, 3); m.weight.data.fill_(0.5); m.register_full_backward_hook(lambda m, i, o: (i[0] * 3,));
    m.register_full_backward_hook(note, prepend=True); m.register_full_backward_hook(note);
    m.register_full_backward_pre_hook(lambda m, o: (o[0] * 5,)); m.register_full_backward_pre_hook(first);
    m(x).sum().backward() -> s, x.grad, m.weight.grad
m = T.nn.Sequential(Q(), Q()); m[1].register_full_backward_hook(note);
    m[0].register_full_backward_hook(lambda m, i, o: (i[0] * 2,)); q = m(x).sum() + m(x * 2).sum();
    q.backward() -> s, x.grad
m = Q(); m.register_full_backward_hook(note); y = m(x); g = T.autograd.grad(y.sum(), x, create_graph=True)[0];
    g.sum().backward() -> x.grad
m = Q(); m.register_full_backward_hook(note); f = m(x.detach()).requires_grad -> f, len(s)
from importlib import import_module; E = import_module(T.__name__ + ".nn.modules.module"); m = Q();
    m.register_full_backward_hook(lambda m, i, o: s.append(7.0));
    a = E.register_module_full_backward_hook(note); b = E.register_module_full_backward_pre_hook(first);
    c = E.register_module_forward_hook(lambda m, i, o: o * 3);
    d = E.register_module_forward_pre_hook(lambda m, i: i[0] + 1);
    m(x).sum().backward(); [h.remove() for h in (a, b, c, d)]; m(x).sum().backward() -> s, x.grad
y = x * 3; a = y.retains_grad; y.retain_grad(); b = y.retains_grad; c = (y * 1.5).retains_grad -> a, b, c
y = x ** 2; y.register_hook(s.append); (y ** 3).sum().backward(); x.grad = None;
    (s[0] * x).sum().backward() -> s[0].requires_grad, x.grad
x.register_hook(s.append); (x ** 3).sum().backward(); x.grad = None;
    (s[0] * x).sum().backward() -> s[0].requires_grad, x.grad
y = x ** 2; y.retain_grad(); (y ** 3).sum().backward(); x.grad = None;
    (y.grad * x).sum().backward() -> x.grad
y = x ** 2; y.register_hook(s.append); T.autograd.grad((y ** 3).sum(), x, create_graph=True);
    (s[0] * x).sum().backward() -> s[0].requires_grad, x.grad
y = x ** 2; y.register_hook(lambda g: s.append(g * x)); (y ** 3).sum().backward(); x.grad = None;
    (s[0] * x).sum().backward() -> s[0].requires_grad, x.grad
y = (x * x).sum(); y.tolist(); q = y.sum(); g = T.autograd.grad(q, y, retain_graph=True)[0];
    (q * y).backward() -> g, x.grad
y = x * x; y.tolist(); q = y.reshape(2, 1); q.tolist(); y.register_hook(lambda g: g * 10);
    (q * q + y.sum()).sum().backward() -> x.grad
y = x * x; y.tolist(); q = y.view(1, 2).view(2); z = q * q; z.tolist(); y.retain_grad();
    (z + y).sum().backward() -> y.grad, x.grad
z = x.sum() * 2; w = y0.clone().requires_grad_(); z.backward(inputs=[w]) -> w.grad, x.grad
"""
# before each program: a module of several arguments and results, and hooks that note what they get
_BEFORE = """
__name__, y0 = "programs", T.tensor([3.0, 4.0])
flat = lambda gs: [[-1.0, -1.0] if g is None else g.reshape(-1).tolist() for g in gs]
note = lambda m, i, o: s.extend([v for g in flat(i) + flat(o) for v in g])
first = lambda m, o: s.extend([v for g in flat(o) for v in g])
Q = type("Q", (T.nn.Module,), {"forward": lambda self, a: a * a})
M = type("M", (T.nn.Module,), {"forward": lambda self, a, b, k=3: (a * 2, b * 3, a * b)})
"""
PROGRAMS = _TEXT.strip().replace("\n    ", " ").split("\n")

# the backward pass of a small network: all its tensors keep their gradients, asked for after the loss
BY_HAND = """
C, W1, b1, W2, gain = numbers
X, Y, n = T.tensor([[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 2, 3]]), T.tensor([1, 2, 6, 0]), 4
emb = C[X]
embcat = emb.view(n, -1)
before = embcat @ W1 + b1
mean = 1 / n * before.sum(0, keepdim=True)
diff = before - mean
square = diff**2
var = 1 / (n - 1) * square.sum(0, keepdim=True)
inv = (var + 1e-5) ** -0.5
h = T.tanh(gain * (diff * inv))
logits = h @ W2
shifted = logits - logits.max(1, keepdim=True).values
counts = shifted.exp()
total_inv = counts.sum(1, keepdim=True) ** -1
probs = counts * total_inv
loss = -probs.log()[range(n), Y].mean()
between = [probs, total_inv, counts, shifted, logits, h, inv, var, square, diff, mean, before, embcat, emb]
for t in between:
    t.retain_grad()
loss.backward()
found = [t.grad for t in (*between, *numbers)]
"""


def _plain(x: Any) -> Any:
    return x.tolist() if hasattr(x, "tolist") else x


def run(T: Any, program: str) -> list[Any]:
    """The results of a program."""
    text, results = program.split(" -> ")
    names: dict[str, Any] = {"T": T, "s": [], "x": T.tensor([1.0, 2.0], requires_grad=True)}
    exec(_BEFORE + text, names)
    return [_plain(r) for r in eval(f"[{results}]", names)]


def run_by_hand(T: Any) -> list[Any]:
    """The gradients of `BY_HAND`."""
    numbers = []
    for shape in ((7, 4), (12, 6), (6,), (6, 7), (1, 6)):
        values = (T.arange(T.zeros(shape).numel()) * 0.7 % 1.1 - 0.5).reshape(shape)
        numbers.append(T.tensor(values.tolist(), requires_grad=True))
    names: dict[str, Any] = {"T": T, "numbers": numbers}
    exec(BY_HAND, names)
    return [_plain(r) for r in names["found"]]


def main() -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {p: run(torch, p) for p in PROGRAMS}
        table = {"torch": torch.__version__, "programs": found, "by hand": run_by_hand(torch)}
    TABLE.write_text(json.dumps(table, separators=(",", ":")).replace(']],"', ']],\n"').replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    main()
