"""Programs whose gradients once were not torch's, silently: `python -m tests.transforms.gradient_programs` writes
`gradient_programs.json`, what they give with torch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
PROGRAMS: dict[str, Callable[..., list[Any]]] = {}


def program(f: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """A program: of the library, two leaves and a tensor that is none."""
    PROGRAMS[f.__name__] = f
    return f


def run(T: Any, name: str) -> list[Any]:
    """The results of a program."""
    w, v = (T.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [3.0, 4.0]))
    found = PROGRAMS[name](T, w, v, T.tensor([0.5, -2.0]))
    return [r.reshape(-1).tolist() if hasattr(r, "reshape") else r for r in found]


# -- leaves that are frozen, and thawed -------------------------------------------------------------------------------


@program
def used_while_frozen(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w.requires_grad_(False)
    a = w * v
    w.requires_grad_(True)
    a.sum().backward()
    return [w.grad, v.grad]


@program
def used_before_and_while_frozen(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = w * v
    w.requires_grad = False
    b = w * v
    w.requires_grad = True
    (a + 2 * b).sum().backward()
    return [w.grad, v.grad]


@program
def frozen_after_its_use(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = w * v
    w.requires_grad_(False)
    a.sum().backward()
    return [w.grad, v.grad]


@program
def values_and_views_of_a_frozen_leaf(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w.requires_grad_(False)
    h, view = w * 2, w.reshape(2, 1)
    w.requires_grad_(True)
    (h * v + view.sum(1) * v + w * w).sum().backward()
    return [w.grad, v.grad]


@program
def a_lazy_leaf(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w = (x * 3).requires_grad_()
    a = w * v
    w.requires_grad_(False)
    b = w * v
    read = w.tolist()
    c = w * v
    w.requires_grad_(True)
    (a + 2 * b + 3 * c + 10 * w).sum().backward()
    return [read, w.grad, v.grad]


@program
def changed_while_frozen(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w.requires_grad_(False)
    w.mul_(2)
    w.data = w * x
    a = w * v
    w.requires_grad_(True)
    (a + w).sum().backward()
    return [w, w.grad, v.grad]


@program
def a_leaf_of_a_frozen_one(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w.requires_grad_(False)
    d = w.detach().requires_grad_()
    w.requires_grad_(True)
    (d * v + w * v * 5).sum().backward()
    return [d.grad, w.grad, v.grad]


@program
def a_leaf_of_a_frozen_one_that_was_used(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = w * v
    w.requires_grad_(False)
    d = w.detach().requires_grad_()
    b = d * v
    d = w.detach().requires_grad_()
    (a + b * 3 + d * v * 5).sum().backward()
    return [d.grad, w.grad, v.grad]


@program
def by_autograd_grad(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    w.requires_grad_(False)
    a = w * v
    w.requires_grad_(True)
    return list(T.autograd.grad(a.sum(), [w, v], allow_unused=True))


@program
def a_frozen_module(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    m = T.nn.Linear(2, 2)
    with T.no_grad():
        for p in m.parameters():
            p.fill_(0.5)
    m.requires_grad_(False)
    y = m(v)
    m.requires_grad_(True)
    (y + m(v) * 3).sum().backward()
    return [v.grad, m.weight.grad, m.bias.grad]


@program
def frozen_in_turn(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a, b = T.optim.SGD([w], lr=0.125), T.optim.SGD([v], lr=0.125, momentum=0.5)
    found: list[Any] = []
    for _ in range(5):
        w.requires_grad_(False)
        loss = (w * v * v).sum()
        w.requires_grad_(True)
        b.zero_grad()
        loss.backward()
        b.step()
        found += [w.grad, loss.detach()]
        a.zero_grad()
        (w * w * v.detach()).sum().backward()
        a.step()
        found.append(w.grad.clone())
        a.zero_grad()
    return [*found, w, v]


# -- leaves that show the memory of other tensors ---------------------------------------------------------------------


@program
def used_before_it_wants(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = x * v
    x.requires_grad_()
    (a + x * v * 5).sum().backward()
    return [x.grad, v.grad]


SHARED: dict[str, Callable[..., Any]] = {
    "detach": lambda T, x: x.detach().requires_grad_(),
    "clone": lambda T, x: x.clone().requires_grad_(),
    "Parameter": lambda T, x: T.nn.Parameter(x),
    "view": lambda T, x: x.view(2, 1).requires_grad_(),
}


def shared(kind: str, when: str) -> None:
    """A program in which the tensor, beside a leaf that shows its memory, is used before or after."""

    def f(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
        a = x * v * 5 if when == "before" else None
        d = SHARED[kind](T, x)
        a = x * v * 5 if a is None else a
        (d.reshape(2) * v + a).sum().backward()
        return [d.grad, v.grad]

    PROGRAMS[f"{kind}_used_{when}"] = f


for _kind in SHARED:
    shared(_kind, "before")
    shared(_kind, "after")


@program
def asked_a_second_time(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = x * v
    d = x.detach().requires_grad_()
    b = d * v
    d.requires_grad_()
    w.requires_grad_()
    (a + b + d * w).sum().backward()
    return [d.grad, w.grad, v.grad]


@program
def asked_again_after_a_change(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a, view = w * v, v.view(2, 1)
    with T.no_grad():
        w.mul_(0.5)
        view.mul_(2)
    b = w * 3
    w.requires_grad_()
    v.requires_grad_()
    (w + a.detach() + b + view[:, 0] + v).sum().backward()
    return [w.grad, v.grad]


@program
def the_maximum_of_a_frozen_leaf(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a = w * v
    w.requires_grad_(False)
    b = w.max() * v
    w.requires_grad_()
    (a + b + w).sum().backward()
    return [w.grad, v.grad]


@program
def a_leaf_of_values_in_each_round(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    found = []
    for _ in range(5):
        d = x.detach().requires_grad_()
        (d * v + x * v * 5).sum().backward()
        found.append(d.grad)
    return [*found, v.grad]


# -- gradients of several results, and of tensors on the way to others: one pass, as in torch --------------------------


def double(T: Any, seen: list[Any]) -> Callable[..., Any]:
    """A function of the user's, which notes the gradients that it gets."""

    class Double(T.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.extend(g.reshape(-1).tolist())
            return g * 2

    return Double.apply  # type: ignore[no-any-return]


@program
def a_function_on_the_way_from_several(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    y = double(T, seen)(w)
    T.autograd.backward([(y * y).sum(), (y * 5).sum()])
    return [w.grad, seen]


@program
def hooks_on_the_way_from_several(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    y = w * 2
    for t in (y, w):
        t.register_hook(lambda g: seen.extend(g.tolist()))
    T.autograd.backward([(y * y).sum(), y], [None, v.detach()])
    return [w.grad, seen]


@program
def a_function_of_several_results(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []

    class Both(T.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2, a * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.extend([*g.tolist(), *h.tolist()])
            return g * 2 + h * 3

    a, b = Both.apply(w)
    T.autograd.backward([a.sum(), (b * b).sum()])
    return [w.grad, seen]


@program
def gradients_of_several_by_what_is_between(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = w * 3
    y = double(T, seen)(h)
    found = T.autograd.grad([(y * y).sum(), (y * v).sum()], [h, w, v, y])
    return [*found, seen]


@program
def gradients_that_are_differentiated(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = w * 3
    y = double(T, seen)(h)
    a, b = T.autograd.grad((y**3).sum(), [h, w], create_graph=True)
    (a * b).sum().backward()
    return [a.detach(), b.detach(), w.grad, len(seen)]


@program
def results_on_the_way_to_each_other(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    h = w * 3
    a = (h * h).sum()
    found = T.autograd.grad([a, a * 2], [a, h, w], retain_graph=True)
    T.autograd.backward([a, a * 2, a])
    return [*found, w.grad]


@program
def inputs_of_backward_on_the_way(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = w * 3
    h.retain_grad()
    k = double(T, seen)(h)
    k.register_hook(lambda g: g * 10)
    z = (k * k).sum()
    z.backward(inputs=[w, h], retain_graph=True)
    z.backward(inputs=[k, h])
    return [w.grad, h.grad, k.grad, seen]


@program
def a_backward_of_several_spends_all(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    a, b = (w * w).sum(), (w * v).sum()
    T.autograd.backward([a, b])
    found = []
    for t in (a, b):
        try:
            t.backward()
            found.append(False)
        except RuntimeError:
            found.append(True)
    return [*found, w.grad, v.grad]


@program
def steps_of_several_losses(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    o = T.optim.SGD([w, v], lr=0.125)
    for _ in range(5):
        o.zero_grad()
        T.autograd.backward([(w * w).sum(), (w * v * 0.5).sum()])
        o.step()
    return [w, v]


# -- retained gradients of what was changed in place, or compared -----------------------------------------------------


@program
def retained_beside_a_maximum(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    h = w * 3
    h.retain_grad()
    (h * h.max()).sum().backward()
    return [h.grad, w.grad]


@program
def retained_after_a_change(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    h = w * 3
    h.mul_(2)
    h.register_hook(lambda g: g * 10)
    h.retain_grad()
    (h.sort()[0] * h.max()).sum().backward()
    return [h.grad, w.grad]


@program
def retained_before_and_after_a_change(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    h = w * 3
    h.retain_grad()
    h.mul_(2)
    h.retain_grad()
    (h * h).sum().backward()
    return [h.grad, w.grad]


@program
def retained_in_steps(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    o = T.optim.SGD([w], lr=0.125)
    found: list[Any] = []
    for _ in range(5):
        h = w * 2
        h *= w
        h.retain_grad()
        o.zero_grad()
        (h * (h - h.max()) * 0.125).sum().backward()
        o.step()
        found.append(h.grad)
    return [*found, w]


# -- functions of the user's whose leaf is gone, and their order ------------------------------------------------------


def noting(T: Any, seen: list[Any], number: int, weight: Any = None) -> Callable[..., Any]:
    """A function whose backward notes its number, and may add to a weight's gradient by itself."""

    class Noting(T.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(number)
            if weight is not None:
                weight.grad = g * 1 if weight.grad is None else weight.grad + g
            return g * 2

    return Noting.apply  # type: ignore[no-any-return]


@program
def a_function_whose_leaf_is_gone(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = noting(T, seen, 1, w)((v * 3).detach().requires_grad_())
    (h * w).sum().backward()
    return [w.grad, seen]


@program
def a_function_above_no_leaf(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    for _ in range(4):
        h = noting(T, seen, 1, w)(x.detach().requires_grad_())
        noting(T, seen, 2, w)(h * h).sum().backward()
    return [w.grad, seen]


@program
def hooks_above_no_leaf(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = (x * 2).requires_grad_() * 3
    h.register_hook(lambda g: seen.append(g.tolist()[0]))
    h.retain_grad()
    (h * v.detach()).sum().backward()
    return [h.grad, seen]


@program
def what_autograd_grad_does_not_need(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    h = noting(T, seen, 1)(v * 3)
    found = T.autograd.grad((h * w).sum(), w, retain_graph=True)
    (h * w).sum().backward(inputs=[w])
    return [*found, w.grad, seen]


ORDERS = {
    "sum": "y = a(w) + b(w)",
    "a_sum_turned": "y = a(w); y = b(w) + y",
    "branches": "y, z = c(w), a(w); y = d(y) * b(z) + y",
    "between": "y, z = c(w), a(w); y = (y * d(w * w)).exp().log() + b(z * w) * y",
    "several": "y = [f(w) for f in (d, a, c, b)]; y = y[2] + y[0] * y[3] + y[1]",
}


def ordered(name: str) -> None:
    """A program that notes in which order functions are called."""

    def f(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
        seen: list[Any] = []
        names = {"w": w, **{name: noting(T, seen, n) for n, name in enumerate("abcd")}}
        exec(ORDERS[name], names)
        names["y"].sum().backward()
        return [w.grad, seen]

    PROGRAMS[f"order_of_{name}"] = f


for _name in ORDERS:
    ordered(_name)


# -- others that show a leaf's memory ---------------------------------------------------------------------------------

SIBLINGS = {
    "detached": "x.detach()",
    "data": "x.data",
    "detached_twice": "x.detach().detach()",
    "viewed": "x.view(2, 1).view(2)",
    "a_view_of_a_detached_one": "x.detach().view(2)",
    "cloned": "x.clone()",
    "part": "x[:2]",
}


def sibling(name: str, late: bool) -> None:
    """A program in which another tensor that shows a leaf's memory is used, before it is a leaf or (`late`) then."""

    def f(T: Any, w: Any, v: Any, x: Any) -> list[Any]:
        y = eval(SIBLINGS[name], {"x": x})
        if not late:
            used = y * v
        leaf = x.detach().requires_grad_()
        if late:
            used = y * v
        ((used + leaf) * w).sum().backward()
        return [leaf.grad, w.grad, v.grad, y.requires_grad]

    PROGRAMS[f"{name}{'_and_used_later' if late else ''}_beside_a_leaf"] = f


for _name in SIBLINGS:
    for _late in (False, True):
        sibling(_name, _late)


def main() -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [f"{json.dumps(name)}:{json.dumps(run(torch, name), separators=(',', ':'))}" for name in PROGRAMS]
    TABLE.write_text("{" + ",\n".join(rows) + "}\n")


if __name__ == "__main__":
    main()
